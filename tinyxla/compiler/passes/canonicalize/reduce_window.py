"""Canonical form of reduce-window and select-and-scatter.

- Windows with at most one element, as in arrays dilated by the window size (the gradient of an average pool), become
  data movement.
- Sums and products of floats narrower than 32 bits are accumulated in f32 and rounded once.
- Large windows are separated into windows of one dimension each. Where these have no loop nest, they become log-step
  doubling over whole arrays, with windows of 2, 4, 8, ... elements.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinyxla.compiler.costs import CACHED_ELEMENTS, MAX_UNROLLED_TERMS, VECTOR_ELEMENTS
from tinyxla.compiler.passes.algebraic_simplifier import scalar_value
from tinyxla.compiler.rewriter import Rewriter, for_opcodes, rewrite
from tinyxla.hlo import Computation, Instruction, Literal
from tinyxla.ops import movement, reduction, window_doubling, windows
from tinyxla.ops.barrier import opt_barrier
from tinyxla.shapes import TupleShape
from tinyxla.shapes.window import Window, WindowDimension, dilated
from tinyxla.tracing.core import trace

IDENTITY_WINDOW = WindowDimension(1)


@for_opcodes("reduce-window", "select-and-scatter")
def canonicalize_windows(computation: Computation) -> Computation:
    """The computation with windows of several elements only, for which there are loop nests."""

    def visit(rewriter: Rewriter, x: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        decompose = None
        if x.op is windows.reduce_window:
            if _holds_one_element(x, operands):
                return _as_data_movement(rewriter, x, operands)
            is_narrow = windows.accumulates_in_single(x.operands[0].array_shape.dtype, x.attributes.to_apply)
            decompose = windows.in_single if is_narrow else _decomposition(x)
        elif x.op is windows.select_and_scatter:
            decompose = (
                windows.by_index if math.prod(w.size for w in x.attributes.window) > 2 * MAX_UNROLLED_TERMS else None
            )
        if decompose is None:
            return None

        def function(*values: Any) -> Sequence[Any]:
            results = decompose(*values, **x.attributes._asdict())
            return results if isinstance(results, tuple) else (results,)

        root = rewriter.splice(trace(function, [o.shape for o in operands], x.op.name)[0], operands, rewriter.visit)
        return root if isinstance(x.shape, TupleShape) else root.operands[0]

    return rewrite(computation, visit)


def is_large(window: Window, sizes: Sequence[int]) -> bool:
    """True if windows are reduced one dimension after the other."""
    elements = math.prod(-(-w.size // w.base_dilation) for w in window)
    is_long = elements > min(MAX_UNROLLED_TERMS, MAX_UNROLLED_TERMS // 2 * math.prod(w.stride for w in window))
    return is_long or any(window_doubling.cumulative_direction(w, n) for w, n in zip(window, sizes, strict=True))


def undilate(sizes: Sequence[int], window: Window) -> tuple[list[int], Window]:
    """Sizes and windows of the undilated form of dilated windows: over rows as long as the dilation, if all sizes
    are multiples of it."""
    dims: list[tuple[int, WindowDimension]] = []
    for n, w in zip(sizes, window, strict=True):
        dilation = w.window_dilation
        is_divisible = not any(k % dilation for k in (n, w.padding_low, w.padding_high))
        if dilation > 1 and is_divisible and (w.stride, w.base_dilation) == (1, 1):
            undilated = WindowDimension(w.size, 1, w.padding_low // dilation, w.padding_high // dilation)
            dims += [(n // dilation, undilated), (dilation, IDENTITY_WINDOW)]
        else:
            dims.append((n, w))
    return [n for n, _ in dims], tuple(w for _, w in dims)


def _decomposition(x: Instruction) -> Callable[..., Any] | None:
    """The decomposition of a reduce-window that has no loop nest; None for others."""
    sizes, window = x.operands[0].array_shape.dimensions, x.attributes.window
    if 0 in sizes:
        return window_doubling.in_steps
    has_identity = window_doubling.neutral(x.operands[0].array_shape.dtype, x.attributes.to_apply) is not None
    is_multidimensional, is_long = sum(w != IDENTITY_WINDOW for w in window) > 1, is_large(window, sizes)
    if (
        is_multidimensional and has_identity and 1 < window[-1].stride < window[-1].size
    ):  # strided reads of the minor dimension are few then
        return _by_dimension
    if not is_long:
        return None
    if all(_is_tiled(n, w) for n, w in zip(sizes, window, strict=True)):
        return _as_reduce
    if is_multidimensional:
        return _by_dimension if has_identity else window_doubling.in_steps
    if any(window_doubling.cumulative_direction(w, n) for w, n in zip(window, sizes, strict=True)):
        return None
    sizes, window = undilate(sizes, window)
    (d,) = (d for d, w in enumerate(window) if w != IDENTITY_WINDOW)
    is_dense = (window[d].window_dilation, window[d].base_dilation) == (1, 1)
    if (
        has_identity
        and is_dense
        and math.prod(sizes[d + 1 :]) >= VECTOR_ELEMENTS
        and window[d].size <= CACHED_ELEMENTS // 2
    ):
        return None
    return _doubling_with_pad if has_identity else window_doubling.in_steps


def _is_tiled(size: int, w: WindowDimension) -> bool:
    """True if windows are adjacent and disjoint."""
    is_adjacent = w == WindowDimension(w.size, w.size, 0, min(w.padding_high, 0))
    return w == IDENTITY_WINDOW or (is_adjacent and w.positions(size) > 0)


def _as_reduce(*operands: Any, window: Window, to_apply: Computation) -> Any:
    """Disjoint windows as dimensions of a reduce."""
    count = len(operands) // 2
    positions = [w.positions(n) for w, n in zip(window, operands[0].shape, strict=True)]
    limits = tuple(n * w.size for n, w in zip(positions, window, strict=True))
    sizes = tuple(k for n, w in zip(positions, window, strict=True) for k in (n, w.size))
    slice_attributes = {"start_indices": (0,) * len(limits), "limit_indices": limits, "strides": (1,) * len(limits)}
    split = [movement.reshape_to(movement.slice_(x, **slice_attributes), sizes) for x in operands[:count]]
    window_dims = tuple(range(1, 2 * len(limits), 2))
    return reduction.reduce(*split, *operands[count:], dimensions=window_dims, to_apply=to_apply)


def _by_dimension(x: Any, initial: Any, *, window: Window, to_apply: Computation) -> Any:
    """A separable window reduction, one dimension after the other."""
    window_dims = [d for d, w in enumerate(window) if w != IDENTITY_WINDOW]
    identity = movement.constant(literal=Literal(np.asarray(window_doubling.neutral(x.dtype, to_apply))))
    for d in window_dims:
        window_of_dim = tuple(w if k == d else IDENTITY_WINDOW for k, w in enumerate(window))
        x = windows.reduce_window(
            x, initial if d == window_dims[-1] else identity, window=window_of_dim, to_apply=to_apply
        )
    return x


def _doubling_with_pad(x: Any, initial: Any, *, window: Window, to_apply: Computation) -> Any:
    """Window doubling over an array that is padded in memory, since the steps read it repeatedly."""
    padding = tuple((w.padding_low, w.padding_high, w.base_dilation - 1) for w in window)
    if any(padding_of_dim != (0, 0, 0) for padding_of_dim in padding):
        identity = movement.constant(literal=Literal(np.asarray(window_doubling.neutral(x.dtype, to_apply))))
        (x,) = opt_barrier(movement.pad(x, identity, padding_config=padding))
        window = tuple(w._replace(padding_low=0, padding_high=0, base_dilation=1) for w in window)
    return window_doubling.in_steps(x, initial, window=window, to_apply=to_apply)


def _holds_one_element(x: Instruction, operands: tuple[Instruction, ...]) -> bool:
    """True if the windows of a monoid, from its identity, hold one element at most."""
    if len(operands) != 2 or 0 in (x.array_shape.size, operands[0].array_shape.size):
        return False
    is_sparse = all(w.window_dilation == 1 and w.size <= w.base_dilation for w in x.attributes.window)
    monoid = reduction.monoid(x.attributes.to_apply)
    if not is_sparse or monoid is None:
        return False
    return scalar_value(operands[1]) == reduction.identity_element(monoid, x.array_shape.dtype)


def _as_data_movement(rewriter: Rewriter, window_result: Instruction, operands: tuple[Instruction, ...]) -> Instruction:
    """Each element repeated as often as there are windows that hold it; elsewhere the initial value."""
    (x, initial), window, positions = operands, window_result.attributes.window, window_result.array_shape.dimensions
    emit = rewriter.emit
    sizes = x.array_shape.dimensions
    split_sizes = [(n, w.size) if w.size > 1 else (n,) for n, w in zip(sizes, window, strict=True)]
    dims = [sum(map(len, split_sizes[:d])) for d in range(len(split_sizes))]
    result = emit(movement.broadcast, x, sizes=tuple(n for split in split_sizes for n in split), dimensions=tuple(dims))
    gaps = {d + 1: w.base_dilation - w.size for d, w in zip(dims, window, strict=True) if w.size > 1}
    result = emit(
        movement.pad,
        result,
        initial,
        padding_config=tuple((0, gaps.get(d, 0), 0) for d in range(result.array_shape.rank)),
    )
    dilated_sizes = tuple(n * w.base_dilation if w.size > 1 else n for n, w in zip(sizes, window, strict=True))
    result = emit(movement.reshape, result, sizes=dilated_sizes)
    padding = tuple(_padding_of(w, n, m) for w, n, m in zip(window, dilated_sizes, positions, strict=True))
    result = emit(movement.pad, result, initial, padding_config=padding)
    limits = result.array_shape.dimensions
    strides = tuple(w.stride for w in window)
    return emit(movement.slice_, result, start_indices=(0,) * len(sizes), limit_indices=limits, strides=strides)


def _padding_of(w: WindowDimension, size: int, positions: int) -> tuple[int, int, int]:
    """The padding of repeated elements, such that there is one element per window position."""
    low = w.padding_low - w.size + 1
    interior = w.base_dilation - 1 if w.size == 1 else 0
    return low, (positions - 1) * w.stride + 1 - low - dilated(size, interior + 1), interior
