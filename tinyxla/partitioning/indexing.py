"""Partitioning of what reads and writes at computed places of dimensions that are split: gather, scatter,
dynamic-slice, dynamic-update-slice. Each device does what concerns its own part.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tinyxla.hlo import Instruction
from tinyxla.ops import dynamic_slices, elementwise, movement, reduction
from tinyxla.ops.op import Value, ops
from tinyxla.partitioning.halos import Ranges, window
from tinyxla.partitioning.partitioner import Part, Partitioner, Plan, Rule, applied, constant
from tinyxla.partitioning.propagation import factors_of
from tinyxla.partitioning.resharding import sliced
from tinyxla.shapes import element_type

S32 = element_type("s32")


def present(p: Partitioner, x: Value, d: int, axes: Sequence[Any], start: Value, length: int) -> Value:
    """The elements of a dimension from a place on, an s32[] inside of it, as far as they are in a device's part; and
    `nothing` elsewhere."""
    part = x.shape[d]
    config = tuple((length, length, 0) if k == d else (0, 0, 0) for k in range(x.ndim))
    padded = movement.pad(x, constant(reduction.nothing(x.dtype), x.dtype), padding_config=config)
    return sliced(padded, d, _within(p, axes, part, start, length), length)


def _within(p: Partitioner, axes: Sequence[Any], part: int, start: Value, length: int) -> Value:
    """A place of the array in the part of a device with `length` more elements on either side."""
    first = elementwise.mul(p.index(axes), movement.full(part, np.int32))
    place = elementwise.add(elementwise.sub(start, first), movement.full(length, np.int32))
    return elementwise.clamp(movement.full(0, np.int32), place, movement.full(part + length, np.int32))


def _start(start: Value, last: int) -> Value:
    """A start index, moved inside the array, as s32[]."""
    (found,) = _bounded(movement.reshape_to(start, (1,)), 0, [(0, last)])
    return found


def _bounded(indices: Value, vector_dim: int, bounds: Sequence[tuple[int, int]]) -> list[Value]:
    """For each entry of index vectors the indices, moved between two bounds, as s32."""
    found: list[Value] = []
    for k, (low, high) in enumerate(bounds):
        entry = indices if vector_dim == indices.ndim else movement.slice_axis(indices, vector_dim, k, k + 1)
        sizes = (*entry.shape[:vector_dim], *entry.shape[vector_dim + 1 :])
        entry = movement.reshape_to(entry, sizes)
        kind = element_type(entry.dtype)
        if kind.bits < 32:
            entry = elementwise.convert(entry, new_element_type=S32)
        low = max(low, 0) if kind.kind == "unsigned" else low
        low_everywhere, high_everywhere = (movement.full(n, entry.dtype, sizes) for n in (low, high))
        entry = elementwise.clamp(low_everywhere, entry, high_everywhere)
        found.append(elementwise.convert(entry, new_element_type=S32))
    return found


def _dynamic_slice(p: Partitioner, x: Instruction, operands: list[Part]) -> list[Part]:
    factors = factors_of(x)
    array, *starts = operands
    sizes = x.attributes.dynamic_slice_sizes
    plan = p.plan(x, operands, factors.without([d for d in factors.communicating if 2 * sizes[d] > array.sizes[d]]))
    value = p.resharded(array, plan.operands[0])
    places = [p.whole(s) for s in starts]
    for d in sorted(plan.factors.communicating):
        if plan.split(d):
            start = _start(places[d], array.sizes[d] - sizes[d])
            value = present(p, value, d, plan.split(d), start, sizes[d])
            places[d] = constant(0, places[d].dtype)
    return applied(p, x, plan, [value, *places], x.attributes._asdict())


def _dynamic_update_slice(p: Partitioner, x: Instruction, operands: list[Part]) -> list[Part]:
    """An update of a known place moves there by halo exchange. One of a computed place is whole, and is written into
    the part with room for it on either side, which is then left out."""
    factors = factors_of(x)
    array, update, *starts = operands
    known = {d: int(o.attributes.literal.value) for d, o in enumerate(x.operands[2:]) if o.op is movement.constant}
    long = [d for d in factors.communicating if d not in known and 2 * update.sizes[d] > array.sizes[d]]
    factors = factors.without(long)
    taken = tuple(d if d not in factors.communicating or d in known else None for d in factors.operands[1])
    plan = p.plan(x, operands, factors._replace(operands=(factors.operands[0], taken, *factors.operands[2:])))
    value, given = (p.resharded(part, spec) for part, spec in zip((array, update), plan.operands, strict=False))
    places = [p.whole(s) for s in starts]
    sizes = value.shape
    split = [d for d in sorted(factors.communicating) if plan.split(d)]
    room = [update.sizes[d] if d in split and d not in known else 0 for d in range(len(sizes))]
    for d in split:
        if d not in known:
            start = _start(places[d], array.sizes[d] - room[d])
            place = _within(p, plan.split(d), sizes[d], start, room[d])
            places[d] = elementwise.convert(place, new_element_type=element_type(places[d].dtype))
    if any(room):
        config = tuple((n, n, 0) for n in room)
        value = movement.pad(value, constant(0, value.dtype), padding_config=config)
    here: Value | None = None
    for d in set(split).intersection(known):
        start = min(max(known[d], 0), array.sizes[d] - update.sizes[d])
        axes, own = plan.split(d), plan.operands[1][d]
        given = window(p, given, d, update.sizes[d], axes, own, Ranges(sizes[d], -start, sizes[d]), None)
        places[d] = constant(0, places[d].dtype)
        inside = p.inside(sizes, d, axes, sizes[d], -start, update.sizes[d])
        here = inside if here is None else elementwise.and_(here, inside)
    found = dynamic_slices.dynamic_update_slice(value, given, *places)
    for d, n in enumerate(room):
        if n:
            found = movement.slice_axis(found, d, n, n + sizes[d])
    if here is not None:
        found = elementwise.select(here, found, p.resharded(array, plan.operands[0]))
    return p.combined([found], x, plan)


def _gather(p: Partitioner, x: Instruction, operands: list[Part]) -> list[Part]:
    """Each device looks up what is in its part; together they have all."""
    a = x.attributes
    array = operands[0]
    plan = p.plan(x, operands, factors_of(x))
    value, places = (p.resharded(part, spec) for part, spec in zip(operands, plan.operands, strict=True))
    looked_up = {d: plan.split(d) for d in plan.factors.communicating if plan.split(d)}
    if not looked_up:
        return applied(p, x, plan, [value, places], a._asdict())
    bounds = [(0, array.sizes[d] - a.slice_sizes[d]) for d in a.start_index_map]
    entries = _bounded(places, a.index_vector_dim, bounds)
    here: Value | None = None
    for k, d in enumerate(a.start_index_map):
        if d in looked_up:
            entries[k] = _in_part(p, entries[k], looked_up[d], value.shape[d])
            own = elementwise.and_(
                elementwise.ge(entries[k], movement.full(0, np.int32, entries[k].shape)),
                elementwise.lt(entries[k], movement.full(value.shape[d], np.int32, entries[k].shape)),
            )
            here = own if here is None else elementwise.and_(here, own)
    assert here is not None
    local = plan.factors.localize(a._asdict(), [value.shape], [])
    local |= {"index_vector_dim": here.ndim, "start_indices_batching_dims": _without_vectors(a)}
    found = x.op(value, _as_vectors(entries), **local)
    batch = tuple(d for d in range(found.ndim) if d not in a.offset_dims)
    inside = movement.broadcast(here, sizes=found.shape, dimensions=batch)
    nothing = movement.broadcast(
        constant(reduction.nothing(found.dtype), found.dtype), sizes=found.shape, dimensions=()
    )
    return p.combined([elementwise.select(inside, found, nothing)], x, plan)


def _without_vectors(a: Any) -> tuple[int, ...]:
    """The batching dimensions of indices whose vectors are along the last dimension."""
    return tuple(d - (d > a.index_vector_dim) for d in a.start_indices_batching_dims)


def _as_vectors(entries: Sequence[Value]) -> Value:
    """Index vectors along the last dimension."""
    columns = [movement.reshape_to(x, (*x.shape, 1)) for x in entries]
    return columns[0] if len(columns) == 1 else movement.concatenate(*columns, dimension=columns[0].ndim - 1)


def _in_part(p: Partitioner, indices: Value, axes: Sequence[Any], part: int) -> Value:
    """Indices into an array as indices into the part of a device."""
    first = elementwise.mul(p.index(axes), movement.full(part, np.int32))
    return elementwise.sub(indices, movement.broadcast(first, sizes=indices.shape, dimensions=()))


def _scatter(p: Partitioner, x: Instruction, operands: list[Part]) -> list[Part]:
    """Each device takes the updates of its own part: others are outside of it. Where updates are split, devices combine
    theirs, and then with the array."""
    a = x.attributes
    plan = p.plan(x, operands, factors_of(x))
    count = len(operands) // 2
    values = [p.resharded(part, spec) for part, spec in zip(operands, plan.operands, strict=True)]
    first = operands[0]
    split = {d: plan.split(d) for d in a.scatter_dims_to_operand_dims if plan.operands[0][d]}
    attributes = a._asdict()
    if split:
        bounds = [(-1, first.sizes[d]) for d in a.scatter_dims_to_operand_dims]
        entries = _bounded(values[count], a.index_vector_dim, bounds)
        for k, d in enumerate(a.scatter_dims_to_operand_dims):
            if d in split:
                entries[k] = _in_part(p, entries[k], split[d], values[0].shape[d])
        along = tuple(d - (d > a.index_vector_dim) for d in a.scatter_indices_batching_dims)
        values[count] = _as_vectors(entries)
        attributes |= {
            "index_vector_dim": values[count].ndim - 1,
            "scatter_indices_batching_dims": along,
            "indices_are_sorted": False,
        }
    if not any(plan.split(factor) for factor, _ in plan.factors.reductions):
        return applied(p, x, plan, values, attributes)
    return _partial_scatter(p, x, operands, plan, values, attributes)


def _partial_scatter(
    p: Partitioner, x: Instruction, operands: list[Part], plan: Plan, values: list[Value], attributes: dict[str, Any]
) -> list[Part]:
    op = reduction.monoid(x.attributes.to_apply)
    assert op is not None, "only these have reductions"
    array, indices, updates = values
    updates = p.with_identities(updates, operands[2], plan, 2)
    identity = movement.full(reduction.identity_element(op, array.dtype), array.dtype, array.shape)
    (found,) = applied(p, x, plan, [identity, indices, updates], attributes)
    return [Part(ops[op](p.resharded(operands[0], found.spec), found.value), found.spec, found.sizes)]


RULES: dict[str, Rule] = {
    "dynamic-slice": _dynamic_slice,
    "dynamic-update-slice": _dynamic_update_slice,
    "gather": _gather,
    "scatter": _scatter,
}
