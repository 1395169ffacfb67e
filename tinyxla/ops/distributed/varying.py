"""What is the same on all devices along an axis, and what varies.

Inside `shard_map` a value is invariant along a mesh axis, or varies. Where the two meet, the invariant one becomes a
varying one (`pvary`); a sum over the axis (`psum-invariant`) makes an invariant one. Each is the other's transpose, so
that the cotangent of an invariant value is the sum of what all devices contribute.

Along an axis a value may be unreduced, too: the sum of what devices have, each a summand; and reduced: the same on all
devices, but so that its cotangent is unreduced. Both are each other's type of cotangents, as varying is its own.
`recast` says that a value of one kind is one of another, and moves nothing.

Source: "JEP 28661" and the documentation of `jax.shard_map`, section "Tracking how values vary over manual mesh axes".
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any, NamedTuple

import numpy as np

from tinyxla.ops import elementwise, movement
from tinyxla.ops.distributed import collectives, exchanges
from tinyxla.ops.distributed.replica_groups import REPLICAS
from tinyxla.ops.op import OWN, Axes, Linear, Op, Sample, Value


class OverAxis(NamedTuple):
    axis_name: Hashable = REPLICAS


def _samples(random: np.random.Generator) -> Iterator[Sample]:
    yield Sample((movement.sample_values((2, 3)),))


def _pvary_batch(size: int, operands: tuple[Value], axes: Axes, *, axis_name: Hashable) -> Any:
    (x,), (axis,) = operands, axes
    if axis_name is OWN:
        return movement.align_axis(x, axis, 0, size), 0
    return pvary(x, axis_name=axis_name), axis


def _sum(x: Value, axis_name: Hashable) -> Value:
    return collectives.all_reduce(x, to_apply=collectives.sum_of(x.dtype), axis_name=axis_name)


def _psum_batch(size: int, operands: tuple[Value], axes: Axes, *, axis_name: Hashable) -> Any:
    (x,), (axis,) = operands, axes
    if axis_name is not OWN:
        return psum_invariant(x, axis_name=axis_name), axis
    given = {"to_apply": collectives.sum_of(x.dtype), "axis_name": axis_name}
    return collectives.all_reduce.batch(size, operands, axes, **(collectives.all_reduce.defaults | given))


class Recast(NamedTuple):
    """`source` and `target` are "varying", "unreduced" or "reduced", the target also "invariant"."""

    axis_name: Hashable = REPLICAS
    source: str = "varying"
    target: str = "unreduced"


_DUAL = {"varying": "varying", "unreduced": "reduced", "reduced": "unreduced"}


def _recast_batch(size: int, operands: tuple[Value], axes: Axes, *, axis_name: Hashable, **kinds: str) -> Any:
    (x,), (axis,) = operands, axes
    if axis_name is OWN:
        return x, axis
    return recast(x, axis_name=axis_name, **kinds), axis


def _recast_transpose(g: Value, x: Value, *, axis_name: Hashable, source: str, target: str) -> tuple[Value]:
    if target == "invariant":
        return (summand(g, axis_name),)
    return (recast(g, axis_name=axis_name, source=_DUAL[target], target=_DUAL[source]),)


def summand(x: Value, axis_name: Hashable) -> Value:
    """An array that all devices have as the sum of what they have: all of it on the first one."""
    first = elementwise.eq(exchanges.replica_id(axis_name=axis_name), movement.full(0, np.uint32))
    own = elementwise.select(movement.broadcast(first, sizes=x.shape, dimensions=()), x, elementwise.zeros_like(x))
    return recast(own, axis_name=axis_name, source="varying", target="unreduced")


recast = Op(
    "recast",
    attributes=Recast,
    fill_defaults=True,
    shape=lambda x, *, axis_name, source, target: x,
    evaluate=lambda x, *, axis_name, source, target: x,
    derivative=Linear(_recast_transpose),
    batch=_recast_batch,
    samples=_samples,
    expand=lambda x, *, axis_name, source, target: x,
)
pvary = Op(
    "pvary",
    attributes=OverAxis,
    fill_defaults=True,
    shape=lambda x, *, axis_name: x,
    evaluate=lambda x, *, axis_name: x,
    derivative=Linear(lambda g, x, *, axis_name: (psum_invariant(g, axis_name=axis_name),)),
    batch=_pvary_batch,
    samples=_samples,
    expand=lambda x, *, axis_name: x,
)
psum_invariant = Op(
    "psum-invariant",
    attributes=OverAxis,
    fill_defaults=True,
    shape=lambda x, *, axis_name: x,
    evaluate=collectives.alone("psum-invariant", lambda x, **attributes: x),
    derivative=Linear(lambda g, x, *, axis_name: (pvary(g, axis_name=axis_name),)),
    batch=_psum_batch,
    samples=_samples,
    expand=lambda x, *, axis_name: _sum(x, axis_name),
)
