"""Partitioning of what moves windows over dimensions that are split, or shifts them: slice, pad, concatenate, reverse,
reduce-window, convolution. Each is done on the parts after a halo exchange.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tinyxla.hlo import Instruction
from tinyxla.ops import elementwise, movement, reduction
from tinyxla.ops.distributed import exchanges
from tinyxla.ops.op import Factors, Value, ops
from tinyxla.ops.products.convolution import slides_kernel
from tinyxla.ops.windows import cumulative_monoid
from tinyxla.partitioning import resharding
from tinyxla.partitioning.halos import Ranges, Tile, tile, window
from tinyxla.partitioning.indexing import present
from tinyxla.partitioning.partitioner import Part, Partitioner, Plan, Rule, applied, by_factors, constant
from tinyxla.partitioning.propagation import factors_of
from tinyxla.shapes import Shape, WindowDimension

Tiles = dict[int, Tile]  # by factor, which is the dimension but for convolutions


def _tiles(
    p: Partitioner,
    x: Instruction,
    operands: list[Part],
    factors: Factors,
    tile_of: Callable[[int, Plan], Tile | None],
) -> tuple[Plan, Tiles]:
    """A plan, and the tile of each communicating factor that it splits, as `tile_of(factor, plan)` gives it. Factors
    without a tile are not split."""
    while True:
        plan = p.plan(x, operands, factors)
        found = {factor: tile_of(factor, plan) for factor in sorted(factors.communicating) if plan.split(factor)}
        tiles = {factor: t for factor, t in found.items() if t is not None}
        if len(tiles) == len(found):
            return plan, tiles
        factors = factors.without(found.keys() - tiles.keys())


def _of_results(
    p: Partitioner, x: Instruction, windows: Sequence[WindowDimension]
) -> Callable[[int, Plan], Tile | None]:
    """The tile of each dimension of a windowed op of one array."""

    def tile_of(d: int, plan: Plan) -> Tile | None:
        positions = p.part_sizes(x.array_shape.dimensions, plan.results[0])[d]
        return tile(windows[d], positions, positions * windows[d].stride)

    return tile_of


def _tiled(p: Partitioner, part: Part, plan: Plan, tiles: Tiles, fill: Value | None) -> Value:
    """The elements of an array that the tiles of a device need."""
    value, spec = p.resharded(part, plan.operands[0]), plan.operands[0]
    for d, t in tiles.items():
        value = window(p, value, d, part.sizes[d], plan.split(d), spec[d], t.ranges, fill)
    return value


def _slice(p: Partitioner, x: Instruction, operands: list[Part]) -> list[Part]:
    """Of a dimension of which few elements are taken, devices have those in their part."""
    (part,), sizes = operands, x.array_shape.dimensions
    starts, limits, strides = (list(values) for values in x.attributes)
    few = [d for d, n in enumerate(sizes) if _are_few(p, x, part, d, n)]
    factors, op = factors_of(x), reduction.union(x.array_shape.dtype)
    factors = factors._replace(
        results=(tuple(None if d in few else d for d in range(len(sizes))),),
        reductions=tuple((d, op) for d in few),
    )
    windows = [WindowDimension(1, stride, -start) for start, stride in zip(starts, strides, strict=True)]
    plan, tiles = _tiles(p, x, operands, factors, _of_results(p, x, windows))
    taken = [d for d in few if tiles.pop(d, None)]
    value = _tiled(p, part, plan, tiles, None)
    for d in taken:
        value = present(p, value, d, plan.split(d), movement.full(starts[d], np.int32), sizes[d])
    for d in (*tiles, *taken):
        starts[d], limits[d] = 0, value.shape[d]
    attributes = {"start_indices": tuple(starts), "limit_indices": tuple(limits), "strides": tuple(strides)}
    return applied(p, x, plan, [value], attributes)


def _are_few(p: Partitioner, x: Instruction, part: Part, d: int, taken: int) -> bool:
    """Whether less is taken of a dimension than it has parts, or half of it."""
    return 0 < taken < p.count(part.spec[d]) and 2 * taken <= part.sizes[d] and x.attributes.strides[d] == 1


def _pad(p: Partitioner, x: Instruction, operands: list[Part]) -> list[Part]:
    """Padding is a window of one element over a dilated array."""
    config = x.attributes.padding_config
    windows = [WindowDimension(1, 1, low, high, 1, interior + 1) for low, high, interior in config]
    plan, tiles = _tiles(p, x, operands, factors_of(x), _of_results(p, x, windows))
    fill = p.whole(operands[1])
    value = _tiled(p, operands[0], plan, tiles, fill)
    local = list(config)
    for d, t in tiles.items():
        local[d] = (t.window.padding_low, t.window.padding_high, config[d][2])
    return applied(p, x, plan, [value, fill], {"padding_config": tuple(local)})


def _concatenate(p: Partitioner, x: Instruction, operands: list[Part]) -> list[Part]:
    """Each part of the result chooses, for each of its places, the operand that stands there."""
    d = x.attributes.dimension
    plan = p.plan(x, operands, factors_of(x))
    axes = plan.split(d)
    values = [p.resharded(part, spec) for part, spec in zip(operands, plan.operands, strict=True)]
    if not axes:
        return applied(p, x, plan, values, x.attributes._asdict())
    width = p.part_sizes(x.array_shape.dimensions, plan.results[0])[d]
    found: Value | None = None
    start = 0
    for part, value, spec in zip(operands, values, plan.operands, strict=True):
        size = part.sizes[d]
        if size:
            piece = window(p, value, d, size, axes, spec[d], Ranges(width, -start, width), None)
            here = p.inside(piece.shape, d, axes, width, -start, size)
            found = piece if found is None else elementwise.select(here, piece, found)
        start += size
    assert found is not None
    return p.combined([found], x, plan)


def _reverse(p: Partitioner, x: Instruction, operands: list[Part]) -> list[Part]:
    """Devices exchange parts in pairs, reverse them, and shift away what was past the end."""
    plan = p.plan(x, operands, factors_of(x))
    value = p.resharded(operands[0], plan.operands[0])
    value = x.op(value, dimensions=x.attributes.dimensions)
    for d in x.attributes.dimensions:
        axes, size = plan.split(d), operands[0].sizes[d]
        for axis in axes:
            last = p.mesh[axis] - 1
            pairs = tuple((k, last - k) for k in range(last + 1))
            value = exchanges.collective_permute(value, source_target_pairs=pairs, axis_name=axis)
        part = value.shape[d]
        surplus = part * p.count(axes) - size
        if axes and surplus:
            value = window(p, value, d, part * p.count(axes), axes, axes, Ranges(part, surplus, part), None)
    return p.combined([value], x, plan)


def _reduce_window(p: Partitioner, x: Instruction, operands: list[Part]) -> list[Part]:
    op = reduction.monoid(x.attributes.to_apply)
    if op is None:
        return by_factors(p, x, operands)
    array, initial = operands
    line = [d for d, w in enumerate(x.attributes.window) if w.size > 1]
    if len(line) == 1 and array.spec[line[0]] and _is_cumulative(x.attributes.window[line[0]], array.sizes[line[0]]):
        return _cumulative(p, x, operands, line[0], op)
    plan, tiles = _tiles(p, x, operands, factors_of(x), _of_results(p, x, x.attributes.window))
    fill = constant(reduction.identity_element(op, array.value.dtype), array.value.dtype)
    value = _tiled(p, array, plan, tiles, fill)
    local = tuple(tiles[d].window if d in tiles else w for d, w in enumerate(x.attributes.window))
    return applied(p, x, plan, [value, p.whole(initial)], {**x.attributes._asdict(), "window": local})


def _is_cumulative(w: WindowDimension, size: int) -> bool:
    edge = size - 1
    return w in (WindowDimension(size, padding_low=edge), WindowDimension(size, padding_high=edge))


def _cumulative(p: Partitioner, x: Instruction, operands: list[Part], d: int, op: str) -> list[Part]:
    """Parallel prefix: each part by itself, and what comes before it, of which devices tell each other the totals.

    Source: "Prefix sums and their applications" (Blelloch, 1990), section 1.2.
    """
    plan = p.plan(x, operands, factors_of(x))
    axes = plan.split(d)
    if not axes:
        return by_factors(p, x, operands)
    reverse = x.attributes.window[d].padding_high > 0
    array = operands[0]
    dtype = array.value.dtype
    identity = constant(reduction.identity_element(op, dtype), dtype)
    value = p.filled(p.resharded(array, plan.operands[0]), d, axes, array.sizes[d], identity)
    own = cumulative_monoid(value, d, op, reverse)
    edge = 0 if reverse else value.shape[d] - 1
    totals = resharding.gathered(movement.slice_axis(own, d, edge, edge + 1), d, axes, p.mesh)
    places = movement.iota(shape=Shape.of(totals).with_type(np.int32), iota_dimension=d)
    number = movement.broadcast(p.index(axes), sizes=totals.shape, dimensions=())
    before = elementwise.gt(places, number) if reverse else elementwise.lt(places, number)
    kept = elementwise.select(before, totals, movement.broadcast(identity, sizes=totals.shape, dimensions=()))
    carry = reduction.reduce(
        kept, p.whole(operands[1]), dimensions=(d,), to_apply=reduction.scalar_computation(op, dtype)
    )
    along = tuple(k for k in range(value.ndim) if k != d)
    return p.combined([ops[op](own, movement.broadcast(carry, sizes=own.shape, dimensions=along))], x, plan)


_SPATIAL = 3  # the factor of the first spatial dimension of a convolution


def _convolution(p: Partitioner, x: Instruction, operands: list[Part]) -> list[Part]:
    """Where the kernel is split, each device has the elements of the array that its part is multiplied with."""
    labels, windows = x.attributes.dim_labels, list(x.attributes.window)

    def tile_of(factor: int, plan: Plan) -> Tile | None:
        w = windows[factor - _SPATIAL]
        i, k, j = (spec[2 + factor - _SPATIAL] for spec in labels)
        positions = p.part_sizes(x.array_shape.dimensions, plan.results[0])[j]
        if slides_kernel(w, operands[0].sizes[i]):
            return tile(w, positions, positions * w.stride)
        part = p.part_sizes(operands[1].sizes, plan.operands[1])[k]
        return None if w.window_reversal else tile(w._replace(size=part), positions, part * w.window_dilation)

    plan, tiles = _tiles(p, x, operands, factors_of(x), tile_of)
    left, right = (p.resharded(part, spec) for part, spec in zip(operands, plan.operands, strict=True))
    zero = constant(0, left.dtype)
    for factor, t in tiles.items():
        d = labels.lhs_spec[2 + factor - _SPATIAL]
        size, own = operands[0].sizes[d], plan.operands[0][d]
        left = window(p, left, d, size, plan.split(factor), own, t.ranges, zero)
        windows[factor - _SPATIAL] = t.window
    features = labels.lhs_spec[1]
    left = p.filled(left, features, plan.operands[0][features], operands[0].sizes[features], zero)
    for d in labels.rhs_spec[1:]:
        right = p.filled(right, d, plan.operands[1][d], operands[1].sizes[d], zero)
    return applied(p, x, plan, [left, right], {**x.attributes._asdict(), "window": tuple(windows)})


RULES: dict[str, Rule] = {
    "concatenate": _concatenate,
    "convolution": _convolution,
    "pad": _pad,
    "reduce-window": _reduce_window,
    "reverse": _reverse,
    "slice": _slice,
}
