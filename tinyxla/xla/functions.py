"""What makes a function a builder function: it takes operations, checks its arguments, and adds instructions.

A builder function is written as a function of values. The annotations of its parameters say what is checked, and what
the function gets for it.
"""

from __future__ import annotations

import functools
import inspect
import operator
import reprlib
from collections.abc import Callable, Sequence
from typing import Any

from tinyxla.errors import ArgumentError, AttributeValueError, ShapeError
from tinyxla.ops import Value
from tinyxla.ops.numerics.accuracy import ResultAccuracy
from tinyxla.shapes import Layout, Shape, TupleShape
from tinyxla.tracing.core import state, within_scope
from tinyxla.util.binding import bind
from tinyxla.xla.builder import BuilderFunction, Tree, XlaBuilder, XlaOp, functions
from tinyxla.xla.computation import XlaComputation
from tinyxla.xla.dimension_numbers import (
    ChannelHandle,
    ChannelType,
    ConvolutionDimensionNumbers,
    DotDimensionNumbers,
    GatherDimensionNumbers,
    PrecisionConfig,
    RaggedDotDimensionNumbers,
    ReplicaGroup,
    ScatterDimensionNumbers,
)

Channel = int  # the number of a channel, given as such or as a `ChannelHandle`
Groups = tuple[tuple[int, ...], ...]  # given as a list of lists of integers, or of `ReplicaGroup`s
Pairs = tuple[tuple[int, int], ...]
Values = Sequence[Value]  # of several operands, given as a list of `XlaOp`s (or as one, for a list of one)


def _operand(builder: XlaBuilder, what: str, given: Any) -> Tree:
    if not isinstance(given, XlaOp):
        raise ArgumentError(
            f"{what} must be an XlaOp, but is {reprlib.repr(given)} of type {type(given).__name__}; make it one with "
            "ConstantLiteral."
        )
    if given.builder is not builder:
        raise ArgumentError(f"{what} must be an operation of {builder!r}, but is {given!r}; pass it as a parameter.")
    return given.value


def checked_array(builder: XlaBuilder, what: str, given: Any) -> Value:
    value = _operand(builder, what, given)
    if isinstance(value, tuple):
        raise ShapeError(f"{what} must be an array, but is the tuple {given.shape}; use GetTupleElement.")
    return value


def _array_list(builder: XlaBuilder, what: str, given: Any) -> list[Value]:
    return [checked_array(builder, f"{what}[{k}]", x) for k, x in enumerate(_listed(what, given))]


def checked_trees(builder: XlaBuilder, what: str, given: Any) -> list[Tree]:
    return [_operand(builder, f"{what}[{k}]", x) for k, x in enumerate(_listed(what, given))]


def at_least_one(what: str, operands: Values) -> Value:
    """The first of several operands."""
    if not operands:
        raise ArgumentError(f"{what}: operands must have at least one array, but there is none.")
    return operands[0]


def _listed(what: str, given: Any) -> list[Any]:
    if isinstance(given, XlaOp):
        return [given]
    if isinstance(given, (list, tuple)):
        return list(given)
    raise ArgumentError(f"{what} must be a list of XlaOps, but is {reprlib.repr(given)}.")


def _checked_int(builder: XlaBuilder, what: str, given: Any) -> int:
    try:
        return operator.index(given)
    except TypeError:
        raise ArgumentError(f"{what} must be an integer, but is {reprlib.repr(given)}.") from None


def integers(what: str, given: Any) -> tuple[int, ...]:
    """A repeated field of integers."""
    try:
        return tuple(map(operator.index, given))
    except TypeError:
        raise ArgumentError(f"{what} must be a list of integers, but is {reprlib.repr(given)}.") from None


def _groups(builder: XlaBuilder, what: str, given: Any) -> Groups:
    return tuple(
        integers(f"{what}[{k}]", x.replica_ids if isinstance(x, ReplicaGroup) else x)
        for k, x in enumerate(_sequence(what, given, "lists of integers or ReplicaGroups"))
    )


def _pairs(builder: XlaBuilder, what: str, given: Any) -> Pairs:
    found = [integers(f"{what}[{k}]", x) for k, x in enumerate(_sequence(what, given, "pairs (source, target)"))]
    for k, pair in enumerate(found):
        if len(pair) != 2:
            raise ArgumentError(f"{what}[{k}] must be a pair (source, target), but is {reprlib.repr(pair)}.")
    return tuple((source, target) for source, target in found)


def _sequence(what: str, given: Any, elements: str) -> list[Any]:
    if isinstance(given, (str, bytes)) or not hasattr(given, "__iter__"):
        raise ArgumentError(f"{what} must be a list of {elements}, but is {reprlib.repr(given)}.")
    return list(given)


def channel_number(what: str, given: Any, *types: ChannelType) -> Channel:
    """The number of a channel, which must be of one of these types where its handle says one."""
    if isinstance(given, ChannelHandle):
        if given.type not in types:
            wanted = " or ".join(kind.name for kind in types)
            raise ArgumentError(f"{what} must be a channel of type {wanted}, but is {given!r}.")
        given = given.handle
    number = integers(what, (given,))[0]
    if number < 0:
        raise AttributeValueError(f"{what} must be the number of a channel, 0 or more, but is {number}.")
    return number


def checked_instance(what: str, given: Any, *kinds: type[Any]) -> Any:
    """The argument, which must be of one of these classes."""
    if not isinstance(given, kinds):
        wanted = " or ".join(kind.__name__ for kind in kinds)
        raise ArgumentError(
            f"{what} must be of type {wanted}, but is {reprlib.repr(given)} of type {type(given).__name__}."
        )
    return given


def _instance_check(*kinds: type[Any]) -> Callable[[XlaBuilder, str, Any], Any]:
    return lambda builder, what, given: checked_instance(what, given, *kinds)


_CLASSES = (
    ConvolutionDimensionNumbers,
    DotDimensionNumbers,
    GatherDimensionNumbers,
    Layout,
    PrecisionConfig,
    RaggedDotDimensionNumbers,
    ResultAccuracy,
    ScatterDimensionNumbers,
    Shape,
    XlaComputation,
)
# What the functions get for a parameter with this annotation.
_CHECKS: dict[str, Callable[[XlaBuilder, str, Any], Any]] = {
    "Value": checked_array,
    "Values": _array_list,
    "Tree": _operand,
    "list[Tree]": checked_trees,
    "int": _checked_int,
    "Channel": lambda builder, what, given: channel_number(what, given, ChannelType.DEVICE_TO_DEVICE),
    "Groups": _groups,
    "Pairs": _pairs,
    "AnyShape": _instance_check(Shape, TupleShape),
    "Sequence[int]": lambda builder, what, given: integers(what, given),
    **{kind.__name__: _instance_check(kind) for kind in _CLASSES},
}


def builder_function(**older: str) -> Callable[[Callable[..., Tree]], BuilderFunction]:
    """Make a function of values a function of `XlaOp`s, which adds instructions to their builder.

    The builder is its first parameter, and need be given only where no operand tells it. Arguments are checked, and
    operands replaced by their values, by the annotations of parameters. `older` has names of arguments that only older
    pages have.
    """

    def decorate(function: Callable[..., Tree]) -> BuilderFunction:
        signature = inspect.signature(function)
        kinds = {p.name: str(p.annotation).partition(" | ") for p in signature.parameters.values()}
        checks = {p: (_CHECKS[kind], rest == "None") for p, (kind, _, rest) in kinds.items() if kind in _CHECKS}
        name = function.__name__

        @functools.wraps(function)
        def build(*args: Any, **kwargs: Any) -> XlaOp:
            named = {older.get(key, key): value for key, value in kwargs.items()}
            if not (args and isinstance(args[0], XlaBuilder)) and "builder" not in named:
                args = (_builder_of(name, [*args, *named.values()]), *args)
            bound = bind(f"{name}{signature}", signature, args, named)
            given = bound.arguments
            builder: XlaBuilder = checked_instance(f"{name}: builder", given["builder"], XlaBuilder)
            for parameter, (check, optional) in checks.items():
                if parameter in given and not (optional and given[parameter] is None):
                    given[parameter] = check(builder, f"{name}: {parameter}", given[parameter])
            scope = state.scope  # the graph is one with what is around
            added = lambda: within_scope(scope, lambda: function(*bound.args, **bound.kwargs))  # noqa: E731
            return builder.wrap(builder.trace.run(added))

        functions[name] = build
        return build

    return decorate


def alias(name: str, function: BuilderFunction) -> BuilderFunction:
    """Another name for a function."""
    functions[name] = function
    return function


def _builder_of(name: str, given: Any) -> XlaBuilder:
    for x in given:
        if isinstance(x, XlaOp):
            return x.builder
        if isinstance(x, (list, tuple)) and any(isinstance(element, XlaOp) for element in x):
            return _builder_of(name, x)
    raise ArgumentError(f"{name}: no operand tells the builder; give it as the first argument.")
