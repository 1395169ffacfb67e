"""Control flow that values decide: loops, branches, and functions that stay together."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, NamedTuple, TypeVar, overload

import numpy as np

from tinyxla.api import vmap
from tinyxla.api.functions import Function, ShapeDtypeStruct, argument_names, arrays_of, trace_tree
from tinyxla.errors import (
    ArgumentError,
    AttributeValueError,
    ConcretizationError,
    PromotionError,
    ResultTypeError,
    ShapeError,
    ShardingTypeError,
    TinyxlaError,
)
from tinyxla.hlo import Computation
from tinyxla.lax.loops.eager_control_flow import is_recorded, repeated
from tinyxla.lax.loops.threading_references import branching, counting, looping, mapping, scanning
from tinyxla.numpy.arguments import ArrayLike, array_of, cast, integer_of, is_several, shown, with_flags
from tinyxla.ops import Op, barrier, elementwise, movement
from tinyxla.shapes import Shape, element_type
from tinyxla.shapes.symbolic import has_symbolic, is_symbolic, max_dim
from tinyxla.tracing import pytrees
from tinyxla.tracing.array import Array, ConcreteArray, Operand
from tinyxla.tracing.core import state, trace
from tinyxla.tracing.float_zeros import (
    as_numbers,
    holds_float0,
    is_float0,
    rows_of_float0,
    stacked_float0,
    without_float0,
)
from tinyxla.tracing.promotion import as_array, checked_scalar, config, default_int, promote_types
from tinyxla.tracing.signatures import Arguments, R
from tinyxla.transforms import call, conditional, while_
from tinyxla.transforms.calls import Composite
from tinyxla.transforms.computations import (
    effects,
    of_one,
    program_of_op,
    run,
    subgraph,
    unpacked,
    with_parameters,
)
from tinyxla.transforms.invariants import carrying
from tinyxla.transforms.sharding_types import sharding_in_type, shown_type, shown_types
from tinyxla.transforms.while_reverse import allocated, at, put
from tinyxla.util.tracebacks import boundary
from tinyxla.util.wrapping import wraps

# --- functions as computations ----------------------------------------------------------------------------------------


class _Traced(NamedTuple):
    """A function as a computation of its arguments' leaves and of what it captured."""

    computation: Computation
    captured: list[Any]
    weak: list[bool]
    tree: pytrees.TreeDef


def _traced(function: Function, *args: Any) -> _Traced:
    """Arrays that the function uses become operands too, so that other arrays do not make another computation."""
    made, captured, weak, tree = trace_tree(function, args, {})
    constants = [x for x in made.instructions if x.op is movement.constant and x.array_shape.size > 1]
    if constants:
        made = subgraph(made.name, [*made.parameters, *constants], made.outputs, effects=effects(made))
    arrays = [ConcreteArray(x.attributes.literal.value) for x in constants]
    return _Traced(made, [*captured, *arrays], weak, tree)


def _united(functions: Sequence[_Traced]) -> tuple[list[Computation], list[Any]]:
    """Computations of the same parameters: those that the functions share, then all that any of them captured."""
    captured = list({id(x): x for traced in functions for x in traced.captured}.values())
    first = functions[0].computation
    shared = len(first.parameters) - len(functions[0].captured)
    shapes = [*first.parameter_shapes[:shared], *map(Shape.of, captured)]
    number = {id(x): shared + k for k, x in enumerate(captured)}
    places = [[*range(shared), *(number[id(x)] for x in traced.captured)] for traced in functions]
    made = [
        with_parameters(traced.computation, shapes, p, keeps_unused=True)
        for traced, p in zip(functions, places, strict=True)
    ]
    return made, captured


def _bind(op: Op, *operands: Any, **attributes: Any) -> tuple[Any, ...]:
    """The op, in a computation of its own where there is none around it: that is what gets compiled."""
    if state.staging is not None:
        return op(*operands, **attributes)
    shapes = tuple(map(Shape.of, operands))
    return call(*operands, to_apply=program_of_op(op, shapes, tuple(attributes.items())))


def _with_weakness(tree: pytrees.TreeDef, values: Sequence[Any], weak: Sequence[bool]) -> Any:
    return pytrees.unflatten(tree, [x.with_weak_type(w) for x, w in zip(values, weak, strict=True)])


def _check_callable(what: str, *functions: Any) -> None:
    for function in functions:
        if not callable(function):
            raise ArgumentError(f"{what} takes functions, but got {function!r} of type {type(function).__name__}.")


def _is_known(x: Any) -> bool:
    """Whether Python can look at a value, so that with `disable_jit` it decides what runs."""
    try:
        x.primal("")
    except ConcretizationError:
        return False
    return True


def _typed(x: Array) -> str:
    return f"{Shape.of(x)}{' (weakly typed)' if x.weak_type else ''}"


# --- loops ------------------------------------------------------------------------------------------------------------


class Differences(NamedTuple):
    """Where what is carried or given differs, in an error about it.

    Attributes:
        what: the name of the function, such as "scan".
        argument: the name of the parameter that is what is carried, or the number of the other branch.
        places: a path, and the structures or shapes there: at the start and later, or of the first and another branch.
    """

    what: str
    argument: str
    places: list[tuple[str, Any, Any]]


_Error = TypeVar("_Error", bound=TinyxlaError)


def _about(error: _Error, what: str, argument: str, places: list[tuple[str, Any, Any]]) -> _Error:
    """The error with its differences as an attribute."""
    error.differences = Differences(what.removeprefix("lax."), argument, places)  # type: ignore[attr-defined]
    return error


def _carry_name(what: str, function: Function) -> str:
    """The name of the parameter of a step that is what is carried."""
    try:
        names = [*inspect.signature(function).parameters]
    except (TypeError, ValueError):
        return ""
    return (*names, "", "")[what == "lax.fori_loop"]


Carried = TypeVar("Carried")  # what a loop hands on from step to step
Element = TypeVar("Element")  # an element of what a loop goes along


class _Carry(NamedTuple):
    """What a loop hands from one step to the next."""

    leaves: list[Array]
    tree: pytrees.TreeDef

    @staticmethod
    def of(what: str, value: Any) -> _Carry:
        return _Carry(*arrays_of(value, f"{what}: the initial value", float0=True))

    @property
    def value(self) -> Any:
        return pytrees.unflatten(self.tree, self.leaves)


def _step_of(what: str, function: Function, carry: _Carry, *others: Any, within: str = "") -> tuple[_Carry, _Traced]:
    """The function `(carry, *others) -> (carry, y)` traced, and the carry at the start in the types that it has later:
    a weakly typed number takes the type of what becomes of it. (`within`: where in the carry that of the user is.)"""
    while True:  # a weak type can give way once; no other changes
        traced = _traced(function, carry.value, *others)
        trees = traced.tree.children()
        if len(trees) != 2 or trees[0] != carry.tree:
            given = trees[0] if len(trees) == 2 else traced.tree
            error = ArgumentError(
                f"{what}: the function must give what is carried in the structure that it has at the start, "
                f"{pytrees.structure_text(carry.tree)} where * stands for an array, but it gives "
                f"{pytrees.structure_text(given)}."
            )
            differences = pytrees.differences(carry.tree, given)
            places = [(path.removeprefix(within), one, other) for path, one, other in differences]
            raise _about(error, what, _carry_name(what, function), places)
        later = [x.array_shape for x in traced.computation.outputs]
        leaves = [_settled(x, y, w) for x, y, w in zip(carry.leaves, later, traced.weak, strict=False)]
        if state.manual is not None:
            given = [*pytrees.leaves((carry.value, *others)), *traced.captured]
            leaves = state.manual.settled(leaves, traced.computation, given)
        if all(x is y for x, y in zip(leaves, carry.leaves, strict=True)):
            _check_carry(what, function, carry, traced, within)
            _check_sharding(what, carry, traced, others)
            return carry, traced
        carry = _Carry(leaves, carry.tree)


def _settled(x: Array, later: Shape, weak: bool) -> Array:
    """What is carried, in the type of what becomes of it if its own is weak and another."""
    if not x.weak_type or x.dtype == later.dtype:
        return x
    dtype, _ = promote_types((x.dtype, True), (later.dtype, weak))
    return cast(x, dtype).with_weak_type(False)


def _check_carry(what: str, function: Function, carry: _Carry, traced: _Traced, within: str) -> None:
    outputs = [x.array_shape for x in traced.computation.outputs]
    changed = [k for k, (x, y) in enumerate(zip(carry.leaves, outputs, strict=False)) if Shape.of(x) != y]
    if not changed:
        return
    names = [name.removeprefix(within) for name in pytrees.leaf_names(carry.value)]
    x, y, name = carry.leaves[changed[0]], outputs[changed[0]], names[changed[0]]
    where = f"the leaf {name} of what is carried" if name else "what is carried"
    fix = "convert one of them with astype" if x.shape == y.dimensions else "the sizes must stay as they are"
    error = ResultTypeError(f"{what}: {where} is {_typed(x)} at the start, but the function makes it {y}; {fix}.")
    places = [(names[k], Shape.of(carry.leaves[k]), outputs[k]) for k in changed]
    raise _about(error, what, _carry_name(what, function), places)


def _check_sharding(what: str, carry: _Carry, traced: _Traced, others: Any) -> None:
    """An error for what is carried if its sharding type changes."""
    later = shown_types(traced.computation, [*carry.leaves, *pytrees.leaves(others), *traced.captured])
    for x, found in zip(carry.leaves, later, strict=False):
        if shown_type(x) != found:
            raise ResultTypeError(
                f"{what}: what is carried is split as {shown_type(x)} at the start, but the function makes it {found}; "
                "reshard one of them."
            )


def _run_loop(
    name: str, condition: Function, step: Function, carried: Sequence[Any], kept: Sequence[Any], count: int | None
) -> list[Any]:
    """While `condition(*carried, *kept)`, the values carried become `step(*carried, *kept)`, and others stay."""
    shapes = [Shape.of(x) for x in (*carried, *kept)]
    body, _, _ = trace(lambda *x: [*step(*x), *x[len(carried) :]], shapes, name)
    test = of_one(condition, shapes, f"{name}_condition")
    found = _bind(while_, *carried, *kept, condition=test, body=body, known_trip_count=count)
    return list(found[: len(carried)])


@overload
def while_loop(
    cond_fun: Callable[[Array], Any],
    body_fun: Callable[[Array], Operand],
    init_val: Operand,
    *,
    max_steps: int | None = None,
) -> Array: ...
@overload
def while_loop(
    cond_fun: Callable[[Carried], Any],
    body_fun: Callable[[Carried], Any],
    init_val: Carried,
    *,
    max_steps: int | None = None,
) -> Carried: ...
@overload
def while_loop(cond_fun: Function, body_fun: Callable[..., R], init_val: Any, *, max_steps: int | None = None) -> R: ...
@boundary
@looping
def while_loop(cond_fun: Function, body_fun: Function, init_val: Any, *, max_steps: int | None = None) -> Any:
    """Apply a function again and again while a condition holds.

    Args:
        cond_fun: of what is carried; gives a pred without dimensions.
        body_fun: of what is carried; gives it for the next step, with the same structure, shapes and types.
        init_val: what is carried at the start: a pytree of arrays.
        max_steps: the loop ends after so many steps even if the condition still holds. Where few are enough, a
            derivative in reverse mode takes less memory.

    Returns:
        What is carried in the end.

    Raises:
        ResultTypeError: the body changes a shape or type.
        ArgumentError: the body changes the structure, or the condition gives something else.

    A derivative in reverse mode runs a loop whose length is not known beforehand once more, and keeps what it needs of
    each step, as far as there is memory (`config.update("while_residual_bytes", ...)`); beyond that it runs parts of
    the loop yet again. `fori_loop` with Python numbers and `scan` keep what they need at once.

    >>> from tinyxla.lax import while_loop
    >>> while_loop(lambda x: x < 100, lambda x: 2 * x, 3)
    Array(192, dtype=int32, weak_type=True)
    """
    what = "lax.while_loop"
    if max_steps is not None and (isinstance(max_steps, bool) or not hasattr(max_steps, "__index__") or max_steps < 0):
        raise ArgumentError(
            f"{what}: max_steps must be an integer that is not negative, or None, but is {max_steps!r}."
        )

    def general(init: Any) -> Any:
        return _while(what, cond_fun, body_fun, init, most=max_steps)

    return repeated((cond_fun, body_fun), (what, max_steps), general, (init_val,))


def _while(
    what: str, cond_fun: Function, body_fun: Function, init_val: Any, within: str = "", most: int | None = None
) -> Any:
    _check_callable(what, cond_fun, body_fun)
    if config.disable_jit and _is_known(array_of(cond_fun(init_val), what)):
        init_val = _Carry.of(what, init_val).value
        for _ in count() if most is None else range(most):
            if not cond_fun(init_val):
                break
            init_val = body_fun(init_val)
        return init_val
    start = _Carry.of(what, init_val)
    carry, step = _step_of(what, wraps(body_fun)(lambda carry: (body_fun(carry), ())), start, within=within)
    test = _traced(cond_fun, carry.value)
    found = [x.shape for x in test.computation.outputs]
    single = test.tree == pytrees.flatten(0)[1]
    if not single or found != [Shape.of(np.zeros((), np.bool_))]:
        raise ArgumentError(
            f"{what}: cond_fun must give one pred without dimensions, but it gives "
            f"{found[0] if single else pytrees.structure_text(test.tree)}; compare a number, and fold an array by "
            "any() or all()."
        )
    (goes_on, body), kept = _united([test, step])
    name = step.computation.name
    if most is None:
        results = _bind(
            while_,
            *carry.leaves,
            *kept,
            condition=unpacked(goes_on),
            body=carrying(body, len(carry.leaves)),
            known_trip_count=None,
        )
        return _with_weakness(carry.tree, results[: len(carry.leaves)], step.weak)

    def within_bound(i: Any, *x: Any) -> Any:
        return elementwise.and_(run(goes_on, x)[0], elementwise.lt(i, movement.full(most, np.int32)))

    def counting(i: Any, *x: Any) -> list[Any]:
        return [elementwise.add(i, movement.full(1, np.int32)), *run(body, x)]

    start = [movement.full(0, np.int32), *carry.leaves]
    results = _run_loop(name, within_bound, counting, start, kept, None)[1:]
    return _with_weakness(carry.tree, results, step.weak)


@overload
def fori_loop(
    lower: Operand,
    upper: Operand,
    body_fun: Callable[[Array, Array], Operand],
    init_val: Operand,
    *,
    unroll: int | bool | None = None,
) -> Array: ...
@overload
def fori_loop(
    lower: Operand,
    upper: Operand,
    body_fun: Callable[[Array, Carried], Any],
    init_val: Carried,
    *,
    unroll: int | bool | None = None,
) -> Carried: ...
@overload
def fori_loop(
    lower: Operand, upper: Operand, body_fun: Callable[..., R], init_val: Any, *, unroll: int | bool | None = None
) -> R: ...
@boundary
@counting
def fori_loop(lower: Any, upper: Any, body_fun: Function, init_val: Any, *, unroll: int | bool | None = None) -> Any:
    """Apply a function for each integer of a range: `for i in range(lower, upper): val = body_fun(i, val)`.

    Args:
        lower: the first integer.
        upper: the end, exclusive. Where both are known, derivatives in reverse mode are those of `scan`, and the index
            has the default integer type. Both may be floats: known ones are truncated, and others are counted up by
            ones.
        body_fun: of the integer and what is carried; gives it for the next step, with the same structure and types.
        init_val: what is carried at the start: a pytree of arrays.
        unroll: how many steps to write out after one another in a loop of known length.

    Returns:
        What is carried in the end.

    Raises:
        ShapeError: a different shape of what is carried.
        DTypeError: a different element type of what is carried.
        ArgumentError: limits that are not both integers.
        NumberRangeError: a Python integer beside an array whose type does not hold it.

    >>> from tinyxla.lax import fori_loop
    >>> fori_loop(0, 4, lambda i, x: x + i, 10)
    Array(16, dtype=int32, weak_type=True)
    """
    what = "lax.fori_loop"
    _check_callable(what, body_fun)
    bounds = [array_of(x, what) for x in (lower, upper)]
    said = "lower and upper must be integers, or both floats"
    try:
        dtype, weak = promote_types(*((x.dtype, x.weak_type) for x in bounds))
    except PromotionError:
        raise PromotionError(f"{what}: {said}, of one type, but are {' and '.join(map(_typed, bounds))}.") from None
    floats = [x.dtype.kind == "f" for x in bounds]
    if any(x.shape for x in bounds) or np.dtype(dtype).kind not in "iuf" or any(floats) != all(floats):
        raise ArgumentError(f"{what}: {said}, but are {' and '.join(map(_typed, bounds))}.")
    if has_symbolic((lower, upper)) and not all(isinstance(x, int) for x in (lower, upper)):
        lower, upper = bounds
    usual = np.iinfo(default_int())
    known = all(isinstance(x, ConcreteArray) and (all(floats) or usual.min <= x.item() <= usual.max) for x in bounds)
    if not known and (isinstance(lower, Array) or isinstance(upper, Array)):
        if unroll is not None:
            raise ArgumentError(f"{what}: unroll takes a range of known numbers, but got {lower!r} and {upper!r}.")
        given = zip((lower, upper), bounds, strict=True)
        start, stop = (_bound(x, found, dtype).with_weak_type(weak) for x, found in given)
        final = _while(
            what,
            lambda carry: elementwise.lt(carry[0], carry[1]),
            lambda carry: (_next(carry[0]), carry[1], body_fun(carry[0], carry[2])),
            (start, stop, init_val),
            "[2]",
        )
        return final[2]
    if has_symbolic((lower, upper)):
        numbers = _Numbers(lower, upper)
        step = wraps(body_fun)(lambda carry, i: (body_fun(i, carry), None))
        return _scan(what, step, _Carry.of(what, init_val), numbers, None, False, unroll or 1)[0]
    numbers = range(*(int(x) if f else operator.index(x) for x, f in zip((lower, upper), floats, strict=True)))
    step = wraps(body_fun)(lambda carry, i: (body_fun(i, carry), None))

    def general(init: Any) -> Any:
        return _scan(what, step, _Carry.of(what, init), numbers, None, False, unroll or 1)[0]

    return repeated((body_fun,), (what, numbers, unroll), general, (init_val,))


def _bound(given: Any, found: Array, dtype: np.dtype[Any]) -> Array:
    """A bound in the type of both. Of unsigned indices no bound wraps around."""
    if type(given) is int and element_type(dtype).is_integer:
        return as_array(checked_scalar(given, dtype, may_wrap=dtype.kind != "u"))
    return cast(found, dtype)


class _Numbers(NamedTuple):
    """A `range` whose ends may be symbolic."""

    start: Any
    stop: Any

    @staticmethod
    def below(count: Any) -> Any:
        return _Numbers(0, count) if is_symbolic(count) else range(count)


def _next(i: Any) -> Any:
    following: Any = elementwise.add(i, movement.full(1, i.dtype))
    return following.with_weak_type(i.weak_type)


@overload
def scan(
    f: Callable[[Carried, Element], tuple[Carried, R]],
    init: Carried,
    xs: Element,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
    _split_transpose: bool = False,
) -> tuple[Carried, R]: ...
@overload
def scan(
    f: Callable[[Carried, None], tuple[Carried, R]],
    init: Carried,
    xs: None = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
    _split_transpose: bool = False,
) -> tuple[Carried, R]: ...
@overload
def scan(
    f: Callable[..., tuple[Carried, R]],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
    _split_transpose: bool = False,
) -> tuple[Carried, R]: ...
@boundary
@scanning
@with_flags
def scan(
    f: Function,
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
    _split_transpose: bool = False,
) -> Any:
    """Apply a function along the first axis of arrays, carrying a value from step to step, and stack what it gives.

    Args:
        f: `(carry, x) -> (carry, y)`, where x has one element of the first axis of each array of `xs`.
        init: what is carried at the start: a pytree of arrays, whose structure, shapes and types stay.
        xs: a pytree of arrays with first axes of one size, or None.
        length: that size, needed if there are no arrays.
        reverse: from the last element to the first.
        unroll: how many steps to write out after one another; True: all.
        _split_transpose: accepted for JAX's sake; the derivative is one loop.

    Returns:
        `(carry, ys)`: what is carried in the end, and all y stacked along a new first axis.

    Raises:
        ShapeError: a different shape of what is carried, or arrays of `xs` with first axes of different sizes.
        DTypeError: a different element type of what is carried.
        ArgumentError: neither `xs` nor `length`.

    >>> import numpy as np
    >>> from tinyxla.lax import scan
    >>> scan(lambda total, x: (total + x, total), np.int32(0), np.arange(1, 5))
    (Array(10, dtype=int32), Array([0, 1, 3, 6], dtype=int32))
    """
    what = "lax.scan"
    _check_callable(what, f)
    step = wraps(f)(lambda carry, x: _pair(what, f(carry, x)))

    def general(init: Any, xs: Any) -> Any:
        count, rows = _rows(what, xs, length)
        return _scan(what, step, _Carry.of(what, init), _Numbers.below(count), rows, reverse, unroll)

    if is_recorded():
        return general(init, xs)
    return repeated((f,), (what, length, reverse, unroll), general, (init, xs))


_MAX_STEPS = (1 << 31) - 1  # they are counted in 32 bits


def _scan(
    what: str,
    f: Function,
    carry: _Carry,
    numbers: Any,
    xs: tuple[list[Any], pytrees.TreeDef] | None,
    reverse: bool,
    unroll: int | bool,
) -> Any:
    """`f(carry, x)` for each x: the rows of arrays, or the numbers if there is None."""
    count = max_dim(0, numbers.stop - numbers.start)
    if not is_symbolic(count) and count > _MAX_STEPS:
        raise ShapeError(f"{what}: a loop has at most {_MAX_STEPS} steps, but this one has {count}; nest two loops.")
    rows, tree = xs or ([], None)
    if config.disable_jit:
        return _scan_in_python(what, f, carry.value, numbers, xs, reverse)
    example: Any = as_array(numbers.start)
    if tree is not None:
        example = pytrees.unflatten(tree, [_row_like(x) for x in rows])
    carry, traced = _step_of(what, f, carry, example)
    step, kept = traced.computation, traced.captured
    ys = [x.array_shape for x in step.outputs[len(carry.leaves) :]]
    stacks = [allocated(y.with_dimensions((count, *y.dimensions))) for y in ys]
    carried = [movement.full(0, np.int32), *carry.leaves, *stacks]
    ends = 1 + len(carry.leaves), len(carried), len(carried) + len(rows)

    def one(*values: Any) -> list[Any]:
        i, *now = values[: ends[0]]
        place: Any = elementwise.sub(movement.full(count - 1, np.int32), i) if reverse else i
        given = [at(x, place) for x in values[ends[1] : ends[2]]]
        if tree is None:
            given = [elementwise.add(cast(i, example.dtype), movement.full(numbers.start, example.dtype))]
        found = run(step, [*now, *given, *values[ends[2] :]])
        pushed = [put(stack, y, place) for stack, y in zip(values[ends[0] : ends[1]], found[len(now) :], strict=True)]
        return [elementwise.add(i, movement.full(1, np.int32)), *found[: len(now)], *pushed]

    results = _repeated(step.name, one, carried, [*rows, *kept], count, _unrolled(what, unroll, count))
    final = _with_weakness(carry.tree, results[1 : ends[0]], traced.weak[: len(carry.leaves)])
    tree_of_ys = traced.tree.children()[1]
    stacked = _with_weakness(tree_of_ys, results[ends[0] :], traced.weak[len(carry.leaves) :])
    return final, stacked_float0(stacked, count) if holds_float0(tree_of_ys) else stacked


def _row_like(x: Any) -> Any:
    """A value with the shape and type of a row, or its description."""
    row = movement.full(0, x.dtype, x.shape[1:])
    if state.manual is not None:
        return state.manual.like(row, x)
    layout = sharding_in_type(x)
    if layout is None:
        return row
    if layout.shard_shape(x.shape)[0] != x.shape[0]:
        raise ShardingTypeError(
            f"lax.scan: dimension 0 of xs must be whole, but is split along {layout.spec[0]!r}, as {layout.spec}; "
            "reshard it, or leave it to the compiler by auto_axes."
        )
    return ShapeDtypeStruct(row.shape, row.dtype, sharding=layout.without_dimension(0, x.ndim))


def _repeated(name: str, one: Function, carried: list[Any], kept: list[Any], count: int, together: int) -> list[Any]:
    """`one` applied `count` times, of which each step of a loop does several `together`, and what remains comes after;
    the first of the values carried counts."""
    if is_symbolic(count):
        together = 1
    rounds = count // together if together else 0
    end = rounds * together

    def several(*values: Any) -> list[Any]:
        now = list(values[: len(carried)])
        for _ in range(together):
            now = one(*now, *values[len(carried) :])
        return now

    if is_symbolic(rounds) or rounds > 1:
        ahead = lambda i, *_: elementwise.lt(i, movement.full(end, np.int32))  # noqa: E731
        carried = _run_loop(name, ahead, several, carried, kept, rounds)
    else:
        end = 0
    for _ in range(count - end):
        carried = one(*carried, *kept)
    return carried


def _rows(what: str, xs: Any, length: int | None) -> tuple[Any, tuple[list[Array], pytrees.TreeDef]]:
    """How many rows arrays have, and the arrays with the structure of a row."""
    rows, tree = arrays_of(xs, f"{what}: xs", float0=True)
    if not holds_float0(tree):
        return _length(what, rows, xs, length), (rows, tree)
    count = _length(what, arrays_of(as_numbers(xs), f"{what}: xs")[0], xs, length)
    return count, (rows, pytrees.flatten(without_float0(rows_of_float0(xs)))[1])


def _length(what: str, rows: Sequence[Array], xs: Any, length: int | None) -> int:
    if length is not None:
        length = integer_of(what, "the length", length)
    for k, x in enumerate(rows):
        if not x.ndim:
            raise ShapeError(
                f"{what}: each array of xs must have a first axis to go along, but xs{pytrees.leaf_names(xs)[k]} is "
                f"{Shape.of(x)}; what is the same in all steps the function can use without handing it in."
            )
        if x.shape[0] != (rows[0].shape[0] if length is None else length):
            wanted = f"{rows[0].shape[:1]}" if length is None else f"the length {length}"
            raise ShapeError(
                f"{what}: the arrays of xs must have first axes of one size, {wanted}, but "
                f"xs{pytrees.leaf_names(xs)[k]} is {Shape.of(x)}."
            )
    if length is None and not rows:
        raise ArgumentError(f"{what}: without arrays in xs, length must say how many steps there are.")
    found = rows[0].shape[0] if length is None else length
    if found < 0:
        raise ShapeError(f"{what}: the length must not be negative, but is {found}.")
    return found


def _unrolled(what: str, unroll: int | bool, count: int) -> int:
    if is_symbolic(count):
        return 1
    if isinstance(unroll, bool):
        return count if unroll else 1
    steps = integer_of(what, "unroll", unroll)
    if steps < 0:
        raise ArgumentError(f"{what}: unroll must be a positive integer, or True for all steps, but is {unroll!r}.")
    return min(steps or count, count)


def _pair(what: str, result: Any) -> Any:
    if not isinstance(result, (tuple, list)) or len(result) != 2:
        found = Shape.of(result) if hasattr(result, "shape") and hasattr(result, "dtype") else repr(result)
        raise ArgumentError(f"{what}: the function must give a pair (carry, y), but gives {found}.")
    return tuple(result)


def _scan_in_python(what: str, f: Function, carry: Any, numbers: range, xs: Any, reverse: bool) -> Any:
    found: list[Any] = []
    for k, number in reversed(list(enumerate(numbers))) if reverse else enumerate(numbers):
        carry, y = f(carry, number if xs is None else pytrees.unflatten(xs[1], [x[k] for x in xs[0]]))
        found.append(y)
    stacked = found[::-1] if reverse else found
    if not stacked and xs is not None:
        raise ArgumentError(f"{what}: without compilation the shape of what is stacked is not known for a length of 0.")
    return carry, pytrees.map_tree(lambda *y: _stacked([array_of(x, what) for x in y]), *stacked) if stacked else None


def _stacked(arrays: Sequence[Any]) -> Any:
    spread = [movement.reshape_to(x, (1, *x.shape)) for x in arrays]
    return movement.concatenate(*spread, dimension=0)


@boundary
@mapping(scan)
def map_(f: Callable[[Element], R], xs: Element, *, batch_size: int | None = None) -> R:
    """Apply a function to each element along the first axis of arrays, one after the other, and stack what it gives.

    Args:
        f: of one element of each array of `xs`; `vmap` computes the same for all elements at once.
        xs: a pytree of arrays with first axes of one size.
        batch_size: how many elements to compute at once, by `vmap`; None or 0: one after the other.

    Returns:
        A pytree of arrays: the results of f along a new first axis.

    Raises:
        ShapeError: arrays with first axes of different sizes.

    >>> import numpy as np
    >>> from tinyxla.lax.loops.control_flow import map_
    >>> map_(lambda x: x * x, np.array([1.0, 2.0, 3.0]))
    Array([1., 4., 9.], dtype=float32)
    """
    what = "lax.map"
    _check_callable(what, f)
    return repeated((f,), (what, batch_size), lambda xs: _map(what, f, xs, batch_size), (xs,))


def _map(what: str, f: Function, xs: Any, batch_size: int | None) -> Any:
    if batch_size is not None:
        batch_size = integer_of(what, "batch_size", batch_size)
    if not batch_size:
        count, parts = _rows(what, xs, None)
        step = wraps(f)(lambda _, x: ((), f(x)))
        return _scan(what, step, _Carry.of(what, ()), _Numbers.below(count), parts, False, 1)[1]
    if batch_size < 1:
        raise ArgumentError(f"{what}: batch_size must not be negative, but is {batch_size}.")
    rows, tree = arrays_of(xs, f"{what}: xs")
    count = _length(what, rows, xs, None)
    rounds = count // batch_size
    if not rounds:
        return vmap(f)(xs)
    whole = [movement.slice_axis(x, 0, 0, rounds * batch_size) for x in rows]
    grouped = [movement.reshape_to(x, (rounds, batch_size, *x.shape[1:])) for x in whole]
    several = map_(vmap(f), pytrees.unflatten(tree, grouped))

    def flat(y: Any) -> Any:
        reshape: Any = np.reshape if is_float0(y) else movement.reshape_to
        return reshape(y, (rounds * batch_size, *y.shape[2:]))

    def joined(y: Any, z: Any) -> Any:
        return np.concatenate([y, z]) if is_float0(y) else movement.concatenate(y, z, dimension=0)

    found = pytrees.map_tree(flat, several)
    if rounds * batch_size == count:
        return found
    rest = pytrees.unflatten(tree, [movement.slice_axis(x, 0, rounds * batch_size, count) for x in rows])
    return pytrees.map_tree(joined, found, vmap(f)(rest))


# --- branches ---------------------------------------------------------------------------------------------------------


_ABSENT = object()


@overload
def cond(
    pred: ArrayLike,
    true_fun: Callable[[*Arguments], R],
    false_fun: Callable[[*Arguments], R],
    *operands: *Arguments,
) -> R: ...
@overload
def cond(pred: ArrayLike, true_fun: Callable[..., R], false_fun: Callable[..., R], *operands: Any) -> R: ...
@overload
def cond(
    pred: ArrayLike, true_fun: Callable[[Carried], R], false_fun: Callable[[Carried], R], *, operand: Any
) -> R: ...
@overload
def cond(
    pred: ArrayLike,
    true_operand: Carried,
    true_fun: Callable[[Carried], R],
    false_operand: Element,
    false_fun: Callable[[Element], R],
    /,
) -> R: ...
@boundary
def cond(pred: ArrayLike, true_fun: Any, false_fun: Any, *operands: Any, operand: Any = _ABSENT) -> Any:
    """One of two functions applied, as a value says.

    Args:
        pred: a pred, or a number that is not zero, without dimensions.
        true_fun, false_fun: of the operands; their results have one structure, shapes and types.
        operands: pytrees of arrays. (`operand=x` is another way to hand in one; and each function may have an operand
            of its own: `cond(pred, true_operand, true_fun, false_operand, false_fun)`.)
        operand: the single operand, as a keyword.

    Returns:
        The result of the function that is chosen; only that one runs, but under `vmap` with a mapped `pred` both do.

    Raises:
        ArgumentError: a predicate that is not one boolean or number.

    >>> from tinyxla.lax import cond
    >>> cond(True, lambda x: x + 1, lambda x: x - 1, 5)
    Array(6, dtype=int32, weak_type=True)
    """
    what = "lax.cond"
    if len(operands) == 2 and not callable(true_fun) and callable(false_fun) and callable(operands[1]):
        one, first, other, second = true_fun, false_fun, *operands
        return cond(pred, lambda x, _: first(x), lambda _, y: second(y), one, other)
    _check_callable(what, true_fun, false_fun)
    chooses = array_of(pred, what)
    if chooses.shape or chooses.dtype.kind == "c":
        raise ArgumentError(f"{what}: pred must be a pred or a number without dimensions, but is {_typed(chooses)}.")
    if chooses.dtype != np.bool_:
        chooses = elementwise.ne(chooses, elementwise.zeros_like(chooses))
    args = operands if operand is _ABSENT else (operand,)
    if config.disable_jit and _is_known(chooses):
        return (true_fun if chooses else false_fun)(*args)
    functions = (true_fun, false_fun)
    if is_recorded():
        return _branch(what, chooses, functions, args)
    return repeated(
        functions, (what,), lambda chooses, *args: _branch(what, chooses, functions, args), (chooses, *args)
    )


@overload
def switch(index: ArrayLike, branches: Sequence[Callable[[*Arguments], R]], *operands: *Arguments) -> R: ...
@overload
def switch(index: ArrayLike, branches: Sequence[Callable[..., R]], *operands: Any, operand: Any = ...) -> R: ...
@boundary
def switch(index: ArrayLike, branches: Sequence[Function], *operands: Any, operand: Any = _ABSENT) -> Any:
    """One of several functions applied, as an integer says.

    Args:
        index: an integer without dimensions; one outside of the range chooses the nearest function.
        branches: functions of the operands; their results have one structure, shapes and types.
        operands: pytrees of arrays. (`operand=x` is another way to hand in one.)
        operand: the single operand, as a keyword.

    Returns:
        The result of the branch that is chosen.

    Raises:
        AttributeValueError: no branches.
        ArgumentError: an index that is not one integer.

    >>> from tinyxla.lax import switch
    >>> switch(2, [lambda x: x, lambda x: -x, lambda x: x * x], 7)
    Array(49, dtype=int32, weak_type=True)
    """
    what = "lax.switch"
    if not is_several(branches):
        raise ArgumentError(f"{what} takes a list of functions, but got {branches!r}; put them in brackets.")
    functions = list(branches)
    _check_callable(what, *functions)
    number = array_of(index, what)
    if number.shape or np.dtype(number.dtype).kind not in "iu":
        raise ArgumentError(f"{what}: the index must be an integer without dimensions, but is {_typed(number)}.")
    if not functions:
        raise AttributeValueError(f"{what} takes at least one branch.")
    args = operands if operand is _ABSENT else (operand,)
    bounds = [movement.full(k, number.dtype) for k in (0, len(functions) - 1)]
    number = cast(elementwise.clamp(bounds[0], number, bounds[1]), np.dtype(np.int32))
    if config.disable_jit and _is_known(number):
        return functions[int(number)](*args)
    if len(functions) == 1:
        return functions[0](*args)
    chosen = tuple(functions)
    return repeated(chosen, (what,), lambda number, *args: _branch(what, number, chosen, args), (number, *args))


@branching
def _branch(what: str, index: Any, functions: Sequence[Function], args: tuple[Any, ...]) -> Any:
    leaves, tree = arrays_of(args, f"{what}: operand ", lambda: argument_names(args, {}), float0=True)
    whole = pytrees.unflatten(tree, leaves)
    once: dict[int, _Traced] = {}  # a function that is several branches is traced once
    for function in functions:
        if id(function) not in once:
            once[id(function)] = _traced(function, *whole)
    traced = [once[id(function)] for function in functions]
    first = traced[0]
    for number, other in enumerate(traced):
        if other.tree != first.tree:
            error = ArgumentError(
                f"{what}: the results of all functions must have one structure, but that of function 0 is "
                f"{pytrees.structure_text(first.tree)} and that of function {number} is "
                f"{pytrees.structure_text(other.tree)}, where * stands for an array."
            )
            raise _about(error, what, str(number), pytrees.differences(first.tree, other.tree))
    types = [shown_types(t.computation, [*leaves, *t.captured]) for t in traced]
    for several in zip(*types, strict=True):
        if len(set(several)) > 1:
            raise ResultTypeError(
                f"{what}: the results of all functions must be split alike, but one is {' or '.join(several)}; reshard "
                "some of them."
            )
    common = [_common_type(what, traced, k) for k in range(len(first.weak))]
    if any(x.array_shape.dtype != d for t in traced for x, (d, _) in zip(t.computation.outputs, common, strict=True)):
        traced = [_cast_results(t, [dtype for dtype, _ in common]) for t in traced]
    made, captured = _united(traced)
    results = _conditional(index, [*leaves, *captured], made)
    return _with_weakness(first.tree, results, [weak for _, weak in common])


def _conditional(index: Any, operands: Sequence[Any], branches: Sequence[Computation]) -> list[Any]:
    """The results of the branch with that index. A result that is one operand in all branches does not depend on the
    index: it is that operand."""
    places = {id(p): k for c in branches for k, p in enumerate(c.parameters)}
    columns = list(zip(*([places.get(id(x)) for x in c.outputs] for c in branches), strict=True))
    forwarded = [column[0] if len(set(column)) == 1 else None for column in columns]
    chosen = [k for k, place in enumerate(forwarded) if place is None]
    results = [None if place is None else operands[place] for place in forwarded]
    if not chosen and not any(effects(c) for c in branches):
        return results
    if len(chosen) < len(results):
        kept = [[c.outputs[k] for k in chosen] for c in branches]
        branches = [subgraph(c.name, c.parameters, x, effects=effects(c)) for c, x in zip(branches, kept, strict=True)]
    found = _bind(conditional, index, *operands, branch_computations=tuple(branches))
    for k, x in zip(chosen, found, strict=True):
        results[k] = x
    return results


def _common_type(what: str, traced: Sequence[_Traced], k: int) -> tuple[np.dtype[Any], bool]:
    """The type of a result of all functions; numbers that are weakly typed give way. If all functions give one element
    type, the first branch says whether it is weak, as in JAX: that of a switch for 0, of a cond for False."""
    shapes = [t.computation.outputs[k].array_shape for t in traced]
    weak = [t.weak[k] for t in traced]
    fixed = {s.dtype for s, w in zip(shapes, weak, strict=True) if not w}
    dtype, is_weak = promote_types(*((s.dtype, w) for s, w in zip(shapes, weak, strict=True)))
    sizes = {s.dimensions for s in shapes}
    if len(sizes) > 1 or (fixed and fixed != {dtype}):
        names = pytrees.leaf_names(pytrees.with_placeholders(traced[0].tree))
        error = ResultTypeError(
            f"{what}: the results of all functions must have the same shapes and types, but the result{names[k]} is "
            f"{' or '.join(map(str, shapes))}."
        )
        other = next((n for n, x in enumerate(shapes) if x != shapes[0]), 0)
        raise _about(error, what, str(other), [(names[k], shapes[0], shapes[other])])
    if len({s.dtype for s in shapes}) == 1:
        is_weak = weak[-1 if what == "lax.cond" else 0]
    return dtype, is_weak


def _cast_results(traced: _Traced, dtypes: Sequence[Any]) -> _Traced:
    def function(*operands: Any) -> list[Any]:
        return [cast(x, d) for x, d in zip(run(traced.computation, operands), dtypes, strict=True)]

    made = trace(function, traced.computation.parameter_shapes, traced.computation.name)[0]
    return traced._replace(computation=made)


# --- functions that stay together -------------------------------------------------------------------------------------


def composite(decomposition: Function, name: str, version: int = 0) -> Function:
    """A function that stands in the graph as one op with a name of its own, which is called with the function's body.

    Args:
        decomposition: of arrays, and of attributes by keyword, which are numbers, strings, NumPy arrays and so on;
            those that are None are not named in the graph.
        name: such as "library.op".
        version: of its meaning.

    Returns:
        The function; its value, derivatives and so on are those of `decomposition`.

    Source: section "CompositeCall" of the XLA documents.

    Raises:
        ArgumentError: a name that is not text, or an attribute of another kind.

    >>> from tinyxla.lax import composite
    >>> double = composite(lambda x, *, factor: x * factor, "example.scale")
    >>> double(3.0, factor=2)
    Array(6., dtype=float32, weak_type=True)
    """
    _check_callable("lax.composite", decomposition)
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ArgumentError(f"lax.composite: name must be text, but got {shown(name)}.")

    def function(*args: Any, **attributes: Any) -> Any:
        leaves, tree = arrays_of(args, f"lax.composite of {name}: argument ")
        traced = _traced(lambda *inner: decomposition(*inner, **attributes), *pytrees.unflatten(tree, leaves))
        said = {key: value for key, value in attributes.items() if value is not None}
        described = ", ".join(f"{key} = {_attribute_text(value)}" for key, value in said.items())
        single = len(traced.weak) == 1
        found = call(
            *leaves,
            *traced.captured,
            to_apply=unpacked(traced.computation) if single else traced.computation,
            is_composite=True,
            frontend_attributes=Composite(name, f"{{{described}}}", operator.index(version)),
        )
        return _with_weakness(traced.tree, [found] if single else found, traced.weak)

    return function


def _attribute_text(value: Any) -> str:
    """An attribute as MLIR writes it."""
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, (int, np.integer)):
        return f"{value} : i64"
    if isinstance(value, (float, np.floating)):
        return f"{float(value):e} : f32"
    if isinstance(value, (tuple, list)):
        return "[" + ", ".join(map(_attribute_text, value)) + "]"
    if isinstance(value, (np.dtype, np.ndarray)):
        from tinyxla.text.mlir import element_types, ir, printer  # here, since few programs need it

        name = element_types.to_mlir(element_type(value if isinstance(value, np.dtype) else value.dtype))
        if isinstance(value, np.dtype):
            return name
        return printer.attribute_text(ir.DenseAttr(value, ir.TensorType(value.shape, name)))
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    raise ArgumentError(
        f"lax.composite: an attribute must be a number, a string, a NumPy array or element type, or a tuple of such, "
        f"but is {shown(value)}; hand in other arrays as arguments."
    )


def optimization_barrier(operand: Carried) -> Carried:
    """The argument, a pytree of arrays: all of them are computed before anything that is made of the result, and the
    compiler moves and merges nothing across.

    Args:
        operand: a pytree of arrays.

    Returns:
        The same pytree.

    Raises:
        ArgumentError: a leaf that is no array or number.

    >>> from tinyxla.lax import optimization_barrier
    >>> optimization_barrier((1, 2.0))
    (Array(1, dtype=int32, weak_type=True), Array(2., dtype=float32, weak_type=True))
    """
    leaves, tree = arrays_of(operand, "lax.optimization_barrier: the operand")
    if not leaves:
        return operand
    return _with_weakness(tree, barrier.opt_barrier(*leaves), [x.weak_type for x in leaves])
