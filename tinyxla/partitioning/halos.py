"""Halo exchange: the elements that windows over a dimension that is split need of other parts.

Each device needs a range of equally many elements of a dimension, from a place on that advances by a step from device
to device. What is in other parts comes by collective permutes, of as few elements as any device needs; if that were
more than all parts, they are gathered.

Source: "GSPMD: General and Scalable Parallelization for ML Computation Graphs" (Xu et al., 2021), section 4.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tinyxla.ops import elementwise, movement
from tinyxla.ops.distributed import exchanges
from tinyxla.ops.op import Value
from tinyxla.partitioning.partitioner import Partitioner
from tinyxla.partitioning.resharding import scaled_index, sliced
from tinyxla.shapes import WindowDimension
from tinyxla.shapes.window import dilated


class Ranges(NamedTuple):
    """The elements of a dimension that devices need: `width` from `index * step + start` on."""

    step: int
    start: int
    width: int


class Tile(NamedTuple):
    """The elements that windows of the positions of a device need, and the window over them."""

    ranges: Ranges
    window: WindowDimension


def tile(w: WindowDimension, positions: int, advance: int) -> Tile | None:
    """Of each device, as many windows, one after the other.

    Args:
        positions: how many windows.
        advance: how much further those of the next device are.

    Returns:
        None if windows of different devices lie differently among the holes of a dilated array.
    """
    if advance % w.base_dilation:
        return None
    first, skipped = divmod(-w.padding_low, w.base_dilation)
    extent = skipped + (positions - 1) * w.stride + dilated(w.size, w.window_dilation)
    width = (extent - 1) // w.base_dilation + 1
    padding = extent - dilated(width, w.base_dilation)
    ranges = Ranges(advance // w.base_dilation, first, width)
    return Tile(ranges, w._replace(padding_low=-skipped, padding_high=padding))


def window(
    p: Partitioner, x: Value, d: int, size: int, axes: Sequence[Any], own: Sequence[Any], r: Ranges, fill: Value | None
) -> Value:
    """The elements of a dimension that a device needs.

    Args:
        x: what a device has of the array.
        d, size: the dimension, and its size.
        axes: those along which `r` advances.
        own: those along which the array is split: the same, or none.
        fill: what stands outside of the array; None if it does not matter.
    """
    count = p.count(axes)
    buffer, step, base = _received(p, x, d, size, axes, own, r)
    offsets = [k * (r.step - step) + r.start - base for k in (0, count - 1)]
    low, high = max(0, -min(offsets)), max(0, max(offsets) + r.width - buffer.shape[d])
    if low or high:
        config = tuple((low, high, 0) if k == d else (0, 0, 0) for k in range(x.ndim))
        buffer = movement.pad(buffer, movement.full(0, x.dtype), padding_config=config)
    if step == r.step:
        found = movement.slice_axis(buffer, d, offsets[0] + low, offsets[0] + low + r.width)
    else:
        moved = elementwise.mul(p.index(axes), movement.full(r.step - step, np.int32))
        place = elementwise.add(moved, movement.full(r.start - base + low, np.int32))
        found = sliced(buffer, d, place, r.width)
    if fill is None or (r.start >= 0 and (count - 1) * r.step + r.start + r.width <= size):
        return found
    other = movement.broadcast(fill, sizes=found.shape, dimensions=())
    return elementwise.select(p.inside(found.shape, d, axes, r.step, r.start, size), found, other)


def _received(
    p: Partitioner, x: Value, d: int, size: int, axes: Sequence[Any], own: Sequence[Any], r: Ranges
) -> tuple[Value, int, int]:
    """An array that has all elements that a device needs, and where it begins: at `index * step + base`."""
    if not own:
        return x, 0, 0
    part = x.shape[d]
    needed: list[tuple[int, int, int]] = []  # the device, and its range inside of the array
    for k in range(p.count(axes)):
        begin, end = max(0, k * r.step + r.start), min(size, k * r.step + r.start + r.width)
        if begin < end:
            needed.append((k, begin, end))
    low = min((begin // part - k for k, begin, _ in needed), default=0)
    high = max(((end - 1) // part - k for k, _, end in needed), default=0)
    first = max(0, min((begin - (k + low) * part for k, begin, _ in needed), default=0))
    last = min(part, max((end - (k + high) * part for k, _, end in needed), default=part))
    received = (high - low + 1) * part - first - (part - last) - (part if low <= 0 <= high else 0)
    if received >= (p.count(axes) - 1) * part:
        return p.gathered(x, d, own, size), 0, 0
    pieces: list[Value] = []
    for k in range(low, high + 1):
        begin, end = first if k == low else 0, last if k == high else part
        pieces.append(shifted(p, movement.slice_axis(x, d, begin, end), axes, k))
    joined = pieces[0] if len(pieces) == 1 else movement.concatenate(*pieces, dimension=d)
    return joined, part, low * part + first


def shifted(p: Partitioner, x: Value, axes: Sequence[Any], distance: int) -> Value:
    """What the device has whose number along axes is larger by a distance; zeros if there is none."""
    if distance == 0:
        return x
    *outer, axis = axes
    size = p.mesh[axis]
    if not outer:
        pairs = tuple((k + distance, k) for k in range(size) if 0 <= k + distance < size)
        return exchanges.collective_permute(x, source_target_pairs=pairs, axis_name=axis)
    carry, turn = divmod(distance, size)
    if turn:
        pairs = tuple(((k + turn) % size, k) for k in range(size))
        x = exchanges.collective_permute(x, source_target_pairs=pairs, axis_name=axis)
    here = shifted(p, x, outer, carry)
    if not turn:
        return here
    is_beyond = elementwise.ge(scaled_index(axis, 1), movement.full(size - turn, np.int32))
    beyond = movement.broadcast(is_beyond, sizes=x.shape, dimensions=())
    return elementwise.select(beyond, shifted(p, x, outer, carry + 1), here)
