"""How element-wise functions are made of operations: promote, broadcast, apply; with a short way for concrete arrays.

What such a function does depends only on the types of its operands. So for each combination of types it is recorded
once, on scalars, and kept as a `_Plan` of NumPy calls, which do the broadcasting. A call on concrete arrays then costs
little more than NumPy's own. On large ones it is compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial, reduce
from typing import Any, NamedTuple

import numpy as np

from tinyxla.api.jit import jit
from tinyxla.hlo import Computation, Instruction
from tinyxla.numpy.arguments import (
    ArrayLike,
    Type,
    cast,
    converted,
    inexact,
    is_as_written,
    like,
    named,
    operand,
    paired,
    refuse_options,
    type_of,
)
from tinyxla.numpy.elementwise.examples import documented
from tinyxla.numpy.operations import ops
from tinyxla.shapes import Shape, TupleShape, element_type
from tinyxla.tracing.array import Array, ConcreteArray
from tinyxla.tracing.core import LARGE, state, trace
from tinyxla.tracing.meshes import context
from tinyxla.tracing.promotion import checked_scalar, config, promote_types
from tinyxla.tracing.signatures import Binary as Binary, Unary as Unary
from tinyxla.tracing.transfers import check_host_values
from tinyxla.transforms import custom
from tinyxla.util.tracebacks import filter_error

Function = Callable[..., Any]  # of arrays of one type and shape, made of element-wise ops
_Step = tuple[int, Function, tuple[int, ...]]  # the place of a value, what computes it, and the places of the operands


class OfMask(NamedTuple):
    """A binary function of a boolean mask and an array of numbers, where the mask has the shape of the result:
    `function` takes arrays of one shape, `of_numpy` NumPy arrays."""

    function: Function
    of_numpy: Function

    def of_small(self, otherwise: Function, mask_at: int) -> Function:
        """The function of NumPy arrays and scalars in the order of the operands, `otherwise` where it is of a mask of
        another shape."""

        def compute(*operands: Any) -> Any:
            mask, x = operands[mask_at], operands[1 - mask_at]
            if mask.shape == np.broadcast_shapes(mask.shape, x.shape):
                return self.of_numpy(mask, x)
            return otherwise(mask.astype(x.dtype), x)

        return compute


class _Plan(NamedTuple):
    """For one combination of types: how operands get the common type (None: they have it), what is computed, and
    whether the result is weakly typed."""

    x: Function | None
    y: Function | None
    compute: Function
    weak: bool


_PYTHON = frozenset((bool, int, float, complex))


def _converter(value: Any, dtype: np.dtype[Any]) -> Function | None:
    if type(value) in _PYTHON:
        return lambda number: checked_scalar(number, dtype, may_wrap=True)
    if value.dtype == dtype:
        return None
    return lambda array: converted(array, dtype)


def _numpy_function(function: Function, dtype: np.dtype[Any], arity: int) -> Function | None:
    """The function as NumPy calls, recorded on scalars; None if its result does not have the shape of all operands."""
    scalar = Shape(element_type(dtype))
    graph, captured, _ = trace(lambda *xs: [function(*xs)], [scalar] * arity, "elementwise")
    if captured or not _depends_on_all(graph):
        return None
    steps: list[_Step] = []
    values: list[Any] = [None] * arity
    (result,) = _flatten(graph, range(arity), steps, values)
    quiet = np.errstate(all="ignore")
    if len(steps) == 1 and steps[0][2] == tuple(range(arity)):
        return quiet(steps[0][1])

    @quiet
    def run(*arrays: Any) -> Any:
        known = [*arrays, *values[arity:]]
        for at, compute, inputs in steps:
            known[at] = compute(*[known[k] for k in inputs])
        return known[result]

    return run


def _flatten(graph: Computation, places: Sequence[int], steps: list[_Step], values: list[Any]) -> list[int]:
    """Append the constants and the steps of a graph, with its calls inlined; gives the places of the results."""
    at: dict[Instruction, Any] = dict(zip(graph.parameters, places, strict=True))
    for x in graph.instructions:
        if x in at or x.op.name == "tuple":
            continue
        operands = [at[o] for o in x.operands]
        if x.op.name == "call":  # of a function with a derivative of its own
            found = _flatten(x.attributes.to_apply, operands, steps, values)
            at[x] = found if isinstance(x.shape, TupleShape) else found[0]
            continue
        if x.op.name == "get-tuple-element":
            at[x] = operands[0][x.attributes.index]
            continue
        attributes = {name: value for name, value in x.attributes._asdict().items() if value is not None}
        at[x] = len(values)
        values.append(x.op.evaluate(**attributes) if x.op.name == "constant" else None)
        if x.op.name != "constant":
            compute = partial(x.op.evaluate, **attributes) if attributes else x.op.evaluate
            steps.append((at[x], compute, tuple(operands)))
    return [at[x] for x in graph.outputs]


def _depends_on_all(graph: Computation) -> bool:
    reached = set(graph.outputs)
    for x in reversed(graph.instructions):
        if x in reached:
            reached.update(x.operands)
    return reached.issuperset(graph.parameters)


def _common(operands: Sequence[Any], to_inexact: bool, to_integer: bool) -> Type:
    found = promote_types(*(type_of(x) for x in operands))
    if to_integer and found[0].kind == "b":
        found = np.dtype(np.int32), False
    return inexact(found) if to_inexact else found


def _named(function: Any, name: str, text: str, parameters: tuple[str, ...], has_options: bool) -> Any:
    function.__module__ = "tinyxla.numpy"
    return named(function, name, documented(name, text, parameters, has_options))


def unary(
    name: str,
    function: Function,
    text: str,
    *,
    to_inexact: bool = False,
    strong: bool = False,
    of_complex: Function | None = None,
    is_ufunc: bool = False,
) -> Unary:
    """The function of any array that `function` is of arrays; of integers as of floats if `to_inexact`.

    Results are weakly typed if the operand is, unless `strong`. Of small arrays of complex numbers NumPy's `of_complex`
    does what the function would do in many steps. What `is_ufunc` has the keywords of those, which must be None.
    """
    plans: dict[Any, _Plan] = {}

    @cache  # made by its first use: there are many such functions
    def large() -> Function:
        return jit(lambda x: slow(x, None))

    def slow(x: ArrayLike, key: Any) -> Array:
        x = operand(x, name)
        dtype, weak = _common([x], to_inexact, False)
        weak = weak and not strong
        if key is not None and of_complex is not None and dtype.kind == "c":
            plans[key] = _Plan(None, None, np.errstate(all="ignore")(of_complex), weak)
            return apply(x)
        result = function(cast(x, dtype)).with_weak_type(weak)
        if key is not None:
            compute = _numpy_function(function, dtype, 1)
            if compute is not None:
                plans[key] = _Plan(_converter(x, dtype), None, compute, weak)
        return result

    def apply(x: ArrayLike, /) -> Array:
        key = None
        if type(x) is ConcreteArray and state.staging is None is context.programs and not config.special:
            value = x._value  # pyright: ignore[reportPrivateUsage] - saves a call
            if value.size >= LARGE and not config.disable_jit:
                return large()(x)
            key = (value.dtype, x.weak_type, config.enable_x64)
            plan = plans.get(key)
            if plan is not None:
                return ConcreteArray(plan.compute(plan.x(value) if plan.x else value), plan.weak)
        elif config.special:
            check_host_values(name, (x,))
        try:
            return slow(x, key)
        except Exception as error:
            filter_error(error)
            raise

    def apply_ufunc(x: ArrayLike, /, out: None = None, where: None = None) -> Array:
        if out is not None or where is not None:
            refuse_options(name, out, where)
        return apply(x)

    return _named(apply_ufunc if is_ufunc else apply, name, text, ("x",), is_ufunc)


def binary(
    name: str,
    function: Function,
    text: str,
    *,
    to_inexact: bool = False,
    to_integer: bool = False,
    strong: bool = False,
    of_signed: Function | None = None,
    of_mask: OfMask | None = None,
) -> Binary:
    """The function of any two arrays that `function` is of arrays of one type and shape.

    Of integers it is that of floats if `to_inexact`, of booleans that of integers if `to_integer`. Results are weakly
    typed if the common type of the operands is, unless `strong`. Of small arrays of integers with a sign NumPy's
    `of_signed` does what the function would do in many steps. Of numbers and a mask it is `of_mask` if the option
    `boolean_products` is "select".
    """
    plans: dict[Any, _Plan] = {}
    if of_mask is not None:
        config.watch(plans.clear)

    def mask_among(x: Any, y: Any) -> int | None:
        """Which operand is the mask beside numbers for which there is a function of its own."""
        if of_mask is None or config.boolean_products != "select" or is_as_written((x, y)):
            return None
        is_mask = [type(o) is not bool and type_of(o)[0].kind == "b" for o in (x, y)]
        return is_mask.index(True) if sum(is_mask) == 1 else None

    @cache
    def large(*kept: int) -> Function:
        return jit(lambda x, y: slow(x, y, None), static_argnums=kept)

    def slow(x: ArrayLike, y: ArrayLike, key: Any) -> Array:
        x, y = operand(x, name), operand(y, name)
        dtype, weak = _common([x, y], to_inexact, to_integer)
        weak = weak and not strong
        mask_at = mask_among(x, y)
        pair = paired(name, [cast(x, dtype), cast(y, dtype)])
        if of_mask is not None and mask_at is not None and (x, y)[mask_at].shape == pair[0].shape:
            result = of_mask.function((x, y)[mask_at], pair[1 - mask_at]).with_weak_type(weak)
        else:
            result = function(*pair).with_weak_type(weak)
        if key is not None:
            if of_signed is not None and dtype.kind == "i":
                compute = np.errstate(all="ignore")(of_signed)
            else:
                compute = _numpy_function(function, dtype, 2)
            if compute is not None:
                of_x, of_y = (None if mask_at == k else _converter(o, dtype) for k, o in enumerate((x, y)))
                if of_mask is not None and mask_at is not None:
                    compute = of_mask.of_small(compute, mask_at)
                plans[key] = _Plan(of_x, of_y, compute, weak)
        return result

    def apply(x: ArrayLike, y: ArrayLike, /, out: None = None, where: None = None) -> Array:
        key = a = b = None
        if out is not None or where is not None:
            refuse_options(name, out, where)
        if state.staging is None is context.programs and not config.special:
            kind, other = type(x), type(y)
            size = 1
            if kind is ConcreteArray:
                a = x._value  # saves a call
                size = a.size
                if other is ConcreteArray:
                    b = y._value
                    size = max(size, b.size)
                    key = (a.dtype, x.weak_type, b.dtype, y.weak_type, config.enable_x64)
                elif other in _PYTHON:
                    b = y
                    key = (a.dtype, x.weak_type, other, config.enable_x64)
            elif other is ConcreteArray and kind in _PYTHON:
                a, b = x, y._value
                size = b.size
                key = (kind, b.dtype, y.weak_type, config.enable_x64)
            if size >= LARGE and not config.disable_jit:
                return large(*(k for k, value in enumerate((a, b)) if type(value) is int))(x, y)
            plan = plans.get(key)
            if plan is not None:
                try:
                    value = plan.compute(plan.x(a) if plan.x else a, plan.y(b) if plan.y else b)
                    return ConcreteArray(value, plan.weak)
                except (MemoryError, ValueError):
                    pass  # the long way frees memory, and says so of shapes that do not broadcast
        elif config.special:
            check_host_values(name, (x, y))
        try:
            return slow(x, y, key)
        except Exception as error:
            filter_error(error)
            raise

    return _named(apply, name, text, ("x", "y"), has_options=True)


def as_unary(f: Function) -> Unary:
    """`unary` for a function with a docstring."""
    return unary(f.__name__, f, f.__doc__ or "")


def as_binary(
    *, to_inexact: bool = False, to_integer: bool = False, strong: bool = False, of_signed: Function | None = None
) -> Callable[[Function], Binary]:
    """`binary` for a function with a docstring."""
    options: dict[str, Any] = {
        "to_inexact": to_inexact,
        "to_integer": to_integer,
        "strong": strong,
        "of_signed": of_signed,
    }
    return lambda f: binary(f.__name__, f, f.__doc__ or "", **options)


def constant_beyond(x: Any, limit: float) -> Any:
    """x, or the limit with x's sign where |x| is larger; the derivative is 0 there, also at infinities.

    For the argument of a function that saturates: a derivative taken at an infinity would be 0 times infinity. Complex
    numbers are left as they are.
    """
    if x.dtype.kind == "c":
        return x  # complex numbers have no order
    high, low = like(limit, x), like(-limit, x)
    found = ops.select(ops.gt(x, high), high, ops.select(ops.lt(x, low), low, x))
    return found.with_weak_type(x.weak_type)


def with_slope(name: str, function: Callable[..., Any], *slopes: Callable[..., Any]) -> Callable[..., Any]:
    """A function of arrays of one shape, element by element, with partial derivatives of its own, `slope(result,
    *arrays)` for each of them, in place of those of the operations that it is made of."""

    def push(values: Any, tangents: Any) -> tuple[list[Any], list[Any]]:
        ans = ruled(*values)
        moving = [(t, slope) for t, slope in zip(tangents, slopes, strict=True) if t is not None]
        parts = [ops.chain_mul(t, slope(ans, *values)) for t, slope in moving]
        return [ans], [reduce(ops.add, parts) if parts else None]

    def ruled(*values: Any) -> Any:
        return custom.apply(rule, *values)[0]

    rule = custom.CustomJvp(name, name, len(slopes), lambda *values: [function(*values)], push)
    return ruled
