"""Windows that move over arrays, folded in about log(size) steps over whole arrays."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tinyxla.hlo import Computation, Literal
from tinyxla.ops import elementwise, movement, reduction
from tinyxla.ops.op import Array, Ints, Value, ops
from tinyxla.shapes import TupleShape
from tinyxla.shapes.symbolic import has_symbolic
from tinyxla.shapes.window import Window, WindowDimension

STILL = WindowDimension(1)  # of a dimension along which nothing happens


def positions(window: Window, sizes: Sequence[int]) -> Ints:
    """The number of windows along each dimension."""
    return tuple(w.positions(size) for w, size in zip(window, sizes, strict=True))


class Calls(NamedTuple):
    """How ops are applied: to arrays, for their values, or to any values, which record them."""

    op: Callable[..., Any]
    combine: Callable[[Computation, Sequence[Any], Sequence[Any]], list[Any]]
    constant: Callable[[Array], Any]


def _combine_values(to_apply: Computation, left: Sequence[Value], right: Sequence[Value]) -> list[Value]:
    op = reduction.monoid(to_apply)
    return [ops[op](left[0], right[0])] if op else reduction.combine_values(to_apply, left, right)


ON_ARRAYS = Calls(lambda op, *x, **attributes: op.evaluate(*x, **attributes), reduction.combine_arrays, np.asarray)
ON_VALUES = Calls(
    lambda op, *x, **attributes: op(*x, **attributes), _combine_values, lambda x: movement.constant(literal=Literal(x))
)


def fold(how: Calls, *operands: Any, window: Window, to_apply: Computation) -> Any:
    """The windows folded one dimension after the other. Initial values may have leading dimensions."""
    arrays, initial = reduction.halves(operands)
    sizes = positions(window, arrays[0].shape)
    starts = [how.op(movement.broadcast, x, sizes=sizes, dimensions=tuple(range(x.ndim))) for x in initial]
    results = starts
    if math.prod(sizes) and arrays[0].size:
        present: Any = None  # where a window has an element; None: everywhere
        for d in reversed(range(len(window))):
            if window[d] == STILL:
                continue
            arrays, mask = _fold_along(how, arrays, d, window[d], to_apply)
            if not mask.all():
                along = how.op(movement.broadcast, how.constant(mask), sizes=sizes, dimensions=(d,))
                present = along if present is None else how.op(elementwise.and_, present, along)
        results = how.combine(to_apply, starts, arrays)
        if present is not None:
            results = [how.op(elementwise.select, present, x, y) for x, y in zip(results, starts, strict=True)]
    return tuple(results) if isinstance(to_apply.root.shape, TupleShape) else results[0]


in_steps = partial(fold, ON_VALUES)  # reduce-window as about log(size) operations on whole arrays


def _fold_along(
    how: Calls, arrays: list[Any], d: int, w: WindowDimension, to_apply: Computation
) -> tuple[list[Any], Array]:
    """Folds along one dimension, and where these have an element. A window's fold is joined from folds over powers of
    two elements: so there are about log(size) steps over the whole array."""
    size = arrays[0].shape[d]
    direction = cumulative_direction(w, size)
    if direction and how is ON_VALUES:
        return prefixes(how, arrays, d, direction, to_apply), np.ones(size, np.bool_)
    empty = neutral(arrays[0].dtype, to_apply)
    edges = (w.padding_low, w.padding_high, w.base_dilation - 1)
    config = tuple(edges if k == d else (0, 0, 0) for k in range(arrays[0].ndim))

    def padded(x: Any) -> Any:
        fill = np.zeros((), x.dtype) if empty is None else empty
        return how.op(movement.pad, x, how.constant(fill), padding_config=config)

    mask = movement.pad.evaluate(np.ones(size, np.bool_), np.asarray(False), padding_config=(edges,))
    power = [padded(x) for x in arrays], mask  # folds over `length` elements, and where these are not empty
    whole: tuple[list[Any], Array] | None = None  # over the `done` first elements of each window
    done, length = 0, 1
    while True:
        if w.size & length:
            shift = done * w.window_dilation
            whole = power if whole is None else _joined(how, whole, power, d, shift, to_apply, empty is None)
            done += length
        if done == w.size:
            break
        power = _joined(how, power, power, d, length * w.window_dilation, to_apply, empty is None)
        length *= 2
    assert whole is not None
    limit = (w.positions(size) - 1) * w.stride + 1
    return [_part(how, x, d, 0, limit, w.stride) for x in whole[0]], whole[1][: limit : w.stride]


def _joined(
    how: Calls,
    left: tuple[list[Any], Array],
    right: tuple[list[Any], Array],
    d: int,
    shift: int,
    to_apply: Computation,
    masked: bool,
) -> tuple[list[Any], Array]:
    """Each fold on the left with the one on the right that is `shift` further; what is empty has no part."""
    count = right[1].size - shift
    first = [_part(how, x, d, 0, count) for x in left[0]]
    second = [_part(how, x, d, shift, shift + count) for x in right[0]]
    one, other = left[1][:count], right[1][shift:]
    both = how.combine(to_apply, first, second)

    def chosen(where: Array, x: Any, y: Any) -> Any:
        if where.all():
            return x
        spread = how.op(movement.broadcast, how.constant(where), sizes=x.shape, dimensions=(d,))
        return how.op(elementwise.select, spread, x, y)

    if masked:
        alone = [chosen(one, x, y) for x, y in zip(first, second, strict=True)]
        both = [chosen(one & other, x, y) for x, y in zip(both, alone, strict=True)]
    return both, one | other


def _part(how: Calls, x: Any, axis: int, start: int, limit: int, stride: int = 1) -> Any:
    if (start, limit, stride) == (0, x.shape[axis], 1):
        return x
    starts = tuple(start if d == axis else 0 for d in range(x.ndim))
    limits = tuple(limit if d == axis else size for d, size in enumerate(x.shape))
    strides = tuple(stride if d == axis else 1 for d in range(x.ndim))
    return how.op(movement.slice_, x, start_indices=starts, limit_indices=limits, strides=strides)


def neutral(dtype: Any, to_apply: Computation) -> Array | None:
    """The neutral element of a monoid, if the type has it."""
    op = reduction.monoid(to_apply)
    if op is None:
        return None
    found = np.asarray(reduction.identity_element(op, dtype)).astype(dtype)
    return None if found != found else found  # an infinity that the type has not is NaN


def cumulative_direction(w: WindowDimension, size: int) -> str | None:
    """`forward` if the windows of a dimension are its beginnings, `backward` if they are its ends."""
    edges = w.padding_low, w.padding_high
    if w.size == size:
        is_short = type(size) is int and size < 2
    else:
        is_short = has_symbolic((w.size, size)) or w.size < max(size, 2)
    if is_short or (w.stride, w.window_dilation, w.base_dilation) != (1, 1, 1):
        return None
    return {(w.size - 1, 0): "forward", (0, w.size - 1): "backward"}.get(edges)


def prefixes(how: Calls, arrays: list[Any], d: int, direction: str, to_apply: Computation) -> list[Any]:
    """Backwards, the elements come in the other order, and so the operands do."""

    def combine(left: list[Any], right: list[Any]) -> list[Any]:
        return how.combine(to_apply, left, right) if direction == "forward" else how.combine(to_apply, right, left)

    if direction == "forward":
        return scan(combine, arrays, d)
    flipped = [movement.reverse(x, dimensions=(d,)) for x in arrays]
    return [movement.reverse(x, dimensions=(d,)) for x in scan(combine, flipped, d)]


def scan(combine: Callable[[list[Any], list[Any]], list[Any]], arrays: list[Any], axis: int) -> list[Any]:
    """The folds of all beginnings along an axis: neighbours are combined, their scan gives every second result, and one
    more step the others.

    Source: G. E. Blelloch, "Prefix sums and their applications", 1990.
    """
    count = arrays[0].shape[axis]
    if count < 2:
        return arrays

    def part(x: Any, start: int, limit: int, stride: int = 1) -> Any:
        return movement.slice_axis(x, axis % x.ndim, start, limit, stride)

    paired = count // 2
    at_odd = scan(combine, combine(*([part(x, k, 2 * paired, 2) for x in arrays] for k in (0, 1))), axis)
    before = [part(x, 0, (count - 1) // 2) for x in at_odd]
    rest = [part(x, 2, count, 2) for x in arrays]
    at_even = combine(before, rest) if count > 2 else rest
    first = [part(x, 0, 1) for x in arrays]
    whole = [movement.concatenate(f, e, dimension=axis % f.ndim) for f, e in zip(first, at_even, strict=True)]
    return [_interleaved(e, o, axis % e.ndim) for e, o in zip(whole, at_odd, strict=True)]


def _interleaved(even: Any, odd: Any, axis: int) -> Any:
    """Elements of both in turn, beginning with `even`, which may have one more."""
    pairs = odd.shape[axis]
    columns = [
        movement.reshape_to(x, (*x.shape[: axis + 1], 1, *x.shape[axis + 1 :]))
        for x in (movement.slice_axis(even, axis, 0, pairs), odd)
    ]
    joined = movement.concatenate(*columns, dimension=axis + 1)
    mixed = movement.reshape_to(joined, (*odd.shape[:axis], 2 * pairs, *odd.shape[axis + 1 :]))
    if even.shape[axis] == pairs:
        return mixed
    return movement.concatenate(mixed, movement.slice_axis(even, axis, pairs, pairs + 1), dimension=axis)
