"""Windows made simple, as a pass from graph to graph.

- Those that hold one element at most, as over an array whose holes are as long as the window, move data and compute
  nothing. Such is the gradient of an average pool.
- Sums and products of floats narrower than 32 bits are accumulated in f32, and rounded once.
- Of large ones, folds along one dimension after the other are made. Where these have no loop nest, they are steps over
  whole arrays, which give windows of 2, 4, 8, ... elements.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinyxla.compiler.passes.algebraic_simplifier import scalar_value
from tinyxla.compiler.rewriter import Rewriter, of_opcodes, rewrite
from tinyxla.hlo import Computation, Instruction, Literal
from tinyxla.ops import movement, reduction, window_doubling, windows
from tinyxla.ops.barrier import opt_barrier
from tinyxla.shapes import TupleShape
from tinyxla.shapes.window import Window, WindowDimension, dilated
from tinyxla.tracing.core import trace

_STILL = WindowDimension(1)
LANES = 16  # columns of which vectors are made
_MOST_PLACES = 16  # of a window that is gone through, for each step that it takes
_WRITTEN_OUT = 32  # places, at most
_MOST_SELECTED = 64  # places of a window one of which is selected
_LONGEST = 1 << 11  # windows that are put together in the cache


@of_opcodes("reduce-window", "select-and-scatter")
def canonicalize_windows(computation: Computation) -> Computation:
    """Leave only windows that hold several elements, and that have loop nests."""

    def visit(rewriter: Rewriter, x: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        steps = None
        if x.op is windows.reduce_window:
            if _is_sparse(x, operands):
                return _repeated(rewriter, x, operands)
            narrow = windows.accumulates_in_single(x.operands[0].array_shape.dtype, x.attributes.to_apply)
            steps = windows.in_single if narrow else _steps(x)
        elif x.op is windows.select_and_scatter:
            steps = windows.by_index if math.prod(w.size for w in x.attributes.window) > _MOST_SELECTED else None
        if steps is None:
            return None

        def function(*values: Any) -> Sequence[Any]:
            found = steps(*values, **x.attributes._asdict())
            return found if isinstance(found, tuple) else (found,)

        root = rewriter.splice(trace(function, [o.shape for o in operands], x.op.name)[0], operands, visit)
        return root if isinstance(x.shape, TupleShape) else root.operands[0]

    return rewrite(computation, visit)


def is_large(window: Window, sizes: Sequence[int]) -> bool:
    """Whether windows are folded one dimension after the other."""
    places = math.prod(-(-w.size // w.base_dilation) for w in window)
    large = places > min(_WRITTEN_OUT, _MOST_PLACES * math.prod(w.stride for w in window))
    return large or any(window_doubling.cumulative_direction(w, n) for w, n in zip(window, sizes, strict=True))


def in_rows(sizes: Sequence[int], window: Window) -> tuple[list[int], Window]:
    """Dilated windows as ones that are not, over rows as long as the dilation, where everything is whole rows."""
    found: list[tuple[int, WindowDimension]] = []
    for n, w in zip(sizes, window, strict=True):
        row = w.window_dilation
        whole = not any(k % row for k in (n, w.padding_low, w.padding_high))
        if row > 1 and whole and (w.stride, w.base_dilation) == (1, 1):
            undilated = WindowDimension(w.size, 1, w.padding_low // row, w.padding_high // row)
            found += [(n // row, undilated), (row, _STILL)]
        else:
            found.append((n, w))
    return [n for n, _ in found], tuple(w for _, w in found)


def _steps(x: Instruction) -> Callable[..., Any] | None:
    """What a reduce-window without a loop nest is made of."""
    sizes, window = x.operands[0].array_shape.dimensions, x.attributes.window
    if 0 in sizes:
        return window_doubling.in_steps
    has_neutral = window_doubling.neutral(x.operands[0].array_shape.dtype, x.attributes.to_apply) is not None
    several, large = sum(w != _STILL for w in window) > 1, is_large(window, sizes)
    if several and has_neutral and 1 < window[-1].stride < window[-1].size:  # few reads that are no vectors
        return _one_by_one
    if not large:
        return None
    if all(_is_tiled(n, w) for n, w in zip(sizes, window, strict=True)):
        return _reduced
    if several:
        return _one_by_one if has_neutral else window_doubling.in_steps
    if any(window_doubling.cumulative_direction(w, n) for w, n in zip(window, sizes, strict=True)):
        return None
    sizes, window = in_rows(sizes, window)
    (d,) = (d for d, w in enumerate(window) if w != _STILL)
    is_dense = (window[d].window_dilation, window[d].base_dilation) == (1, 1)
    if has_neutral and is_dense and math.prod(sizes[d + 1 :]) >= LANES and window[d].size <= _LONGEST:
        return None
    return _padded_first if has_neutral else window_doubling.in_steps


def _is_tiled(size: int, w: WindowDimension) -> bool:
    """Whether windows follow each other without anything between them."""
    plain = w == WindowDimension(w.size, w.size, 0, min(w.padding_high, 0))
    return w == _STILL or (plain and w.positions(size) > 0)


def _reduced(*operands: Any, window: Window, to_apply: Computation) -> Any:
    """Each window as dimensions that are reduced."""
    count = len(operands) // 2
    positions = [w.positions(n) for w, n in zip(window, operands[0].shape, strict=True)]
    limits = tuple(n * w.size for n, w in zip(positions, window, strict=True))
    sizes = tuple(k for n, w in zip(positions, window, strict=True) for k in (n, w.size))
    still = {"start_indices": (0,) * len(limits), "limit_indices": limits, "strides": (1,) * len(limits)}
    parted = [movement.reshape_to(movement.slice_(x, **still), sizes) for x in operands[:count]]
    inner = tuple(range(1, 2 * len(limits), 2))
    return reduction.reduce(*parted, *operands[count:], dimensions=inner, to_apply=to_apply)


def _one_by_one(x: Any, initial: Any, *, window: Window, to_apply: Computation) -> Any:
    """Along one dimension after the other."""
    moving = [d for d, w in enumerate(window) if w != _STILL]
    neutral = movement.constant(literal=Literal(np.asarray(window_doubling.neutral(x.dtype, to_apply))))
    for d in moving:
        along = tuple(w if k == d else _STILL for k, w in enumerate(window))
        x = windows.reduce_window(x, initial if d == moving[-1] else neutral, window=along, to_apply=to_apply)
    return x


def _padded_first(x: Any, initial: Any, *, window: Window, to_apply: Computation) -> Any:
    """The steps, over an array that is padded in memory: they read it often."""
    config = tuple((w.padding_low, w.padding_high, w.base_dilation - 1) for w in window)
    if any(edges != (0, 0, 0) for edges in config):
        neutral = movement.constant(literal=Literal(np.asarray(window_doubling.neutral(x.dtype, to_apply))))
        (x,) = opt_barrier(movement.pad(x, neutral, padding_config=config))
        window = tuple(w._replace(padding_low=0, padding_high=0, base_dilation=1) for w in window)
    return window_doubling.in_steps(x, initial, window=window, to_apply=to_apply)


def _is_sparse(x: Instruction, operands: tuple[Instruction, ...]) -> bool:
    """Whether the windows of a monoid from its neutral element hold one element at most."""
    if len(operands) != 2 or 0 in (x.array_shape.size, operands[0].array_shape.size):
        return False
    sparse = all(w.window_dilation == 1 and w.size <= w.base_dilation for w in x.attributes.window)
    monoid = reduction.monoid(x.attributes.to_apply)
    if not sparse or monoid is None:
        return False
    return scalar_value(operands[1]) == reduction.identity_element(monoid, x.array_shape.dtype)


def _repeated(rewriter: Rewriter, result: Instruction, operands: tuple[Instruction, ...]) -> Instruction:
    """Each element as often as there are windows that hold it; elsewhere the initial value."""
    (x, initial), window, positions = operands, result.attributes.window, result.array_shape.dimensions
    emit = rewriter.emit
    sizes = x.array_shape.dimensions
    parts = [(n, w.size) if w.size > 1 else (n,) for n, w in zip(sizes, window, strict=True)]
    first = [sum(map(len, parts[:d])) for d in range(len(parts))]
    found = emit(movement.broadcast, x, sizes=tuple(n for part in parts for n in part), dimensions=tuple(first))
    rest = {d + 1: w.base_dilation - w.size for d, w in zip(first, window, strict=True) if w.size > 1}
    found = emit(
        movement.pad,
        found,
        initial,
        padding_config=tuple((0, rest.get(d, 0), 0) for d in range(found.array_shape.rank)),
    )
    whole = tuple(n * w.base_dilation if w.size > 1 else n for n, w in zip(sizes, window, strict=True))
    found = emit(movement.reshape, found, sizes=whole)
    config = tuple(_edges(w, n, m) for w, n, m in zip(window, whole, positions, strict=True))
    found = emit(movement.pad, found, initial, padding_config=config)
    limits = found.array_shape.dimensions
    strides = tuple(w.stride for w in window)
    return emit(movement.slice_, found, start_indices=(0,) * len(sizes), limit_indices=limits, strides=strides)


def _edges(w: WindowDimension, size: int, positions: int) -> tuple[int, int, int]:
    """How elements that are repeated are padded, so that there is one for each place of the window."""
    low = w.padding_low - w.size + 1
    interior = w.base_dilation - 1 if w.size == 1 else 0
    return low, (positions - 1) * w.stride + 1 - low - dilated(size, interior + 1), interior
