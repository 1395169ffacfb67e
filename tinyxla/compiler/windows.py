"""Windows made simple, as a pass from graph to graph: those that hold one element at most, as over an array whose holes
are as long as the window, move data and compute nothing. Such is the gradient of an average pool.
"""

from __future__ import annotations

from tinyxla.compiler.rewriting import Rewriter, rewrite
from tinyxla.compiler.simplification import scalar_value
from tinyxla.hlo import Computation, Instruction
from tinyxla.ops import movement, reduction
from tinyxla.shapes.window import Window, WindowDimension, dilated


def canonicalize_windows(computation: Computation) -> Computation:
    """Leave only windows that hold several elements."""

    def visit(rewriter: Rewriter, x: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if (
            x.op.name != "reduce-window"
            or len(operands) != 2
            or 0 in (x.array_shape.size, operands[0].array_shape.size)
        ):
            return None
        window: Window = x.attributes.window
        is_sparse = all(w.window_dilation == 1 and w.size <= w.base_dilation for w in window)
        monoid = reduction.monoid(x.attributes.to_apply)
        if not is_sparse or monoid is None:
            return None
        if scalar_value(operands[1]) != reduction.identity_element(monoid, x.array_shape.dtype):
            return None
        return _repeated(rewriter, *operands, window, x.array_shape.dimensions)

    return rewrite(computation, visit)


def _repeated(
    rewriter: Rewriter, x: Instruction, initial: Instruction, window: Window, positions: tuple[int, ...]
) -> Instruction:
    """Each element as often as there are windows that hold it; elsewhere the initial value."""
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
