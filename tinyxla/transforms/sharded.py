"""Operations that say how arrays lie on a mesh: a constraint, and a function of the parts.

`sharding-constraint` says how its operand is split, and is it. `shard-map` is a function of the parts that devices
have, which talk over the axes of the mesh; as an operation like others it is that function mapped over the parts.

Sources: custom calls "Sharding", and `sdy.manual_computation` of the Shardy dialect.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from tinyxla.errors import ShapeError
from tinyxla.hlo import Computation
from tinyxla.ops import Op, Sample, calls, collectives, elementwise, movement
from tinyxla.ops.op import Axes, Decomposition, Linear
from tinyxla.shapes import AnyShape, Shape, TupleShape, element_type
from tinyxla.tracing.core import trace, with_axes
from tinyxla.tracing.meshes import AbstractMesh
from tinyxla.tracing.shardings import UNCONSTRAINED, Spec, splitting
from tinyxla.transforms.batch import batch
from tinyxla.transforms.computations import run

NamedAxes = Sequence[tuple[Any, int]]  # with their sizes
_ONE = AbstractMesh((1,), ("x",))


class ShardingConstraint(NamedTuple):
    """`spec` is a `PartitionSpec` with an entry for each dimension."""

    mesh: AbstractMesh
    spec: tuple[Any, ...]


def _constraint_shape(x: AnyShape, *, mesh: Any, spec: tuple[Any, ...]) -> Shape:
    shape = movement.array_operand("sharding-constraint", x)
    if len(spec) != shape.rank:
        raise ShapeError(f"sharding-constraint: spec must have an entry for each dimension of {shape}, but is {spec}.")
    return shape


def _constraint_batch(size: int, operands: tuple[Any], axes: Axes, *, mesh: Any, spec: Any) -> Any:
    (x,), (axis,) = operands, axes
    assert axis is not None
    return sharding_constraint(x, mesh=mesh, spec=(*spec[:axis], UNCONSTRAINED, *spec[axis:])), axis


def _constraint_samples(random: np.random.Generator) -> Iterator[Sample]:
    yield Sample((movement.sample_values((2, 3)),), {"mesh": _ONE, "spec": ("x", None)})


sharding_constraint = Op(
    "sharding-constraint",
    attributes=ShardingConstraint,
    shape=_constraint_shape,
    evaluate=lambda x, **attributes: x,
    derivative=Linear(lambda g, x, **attributes: (sharding_constraint(g, **attributes),)),
    batch=_constraint_batch,
    samples=_constraint_samples,
    expand=lambda x, **attributes: x,
)


class ShardMap(NamedTuple):
    """`to_apply` is the function of a device, whose axes have the names of the mesh's."""

    to_apply: Computation
    mesh: AbstractMesh
    in_specs: tuple[Spec, ...]
    out_specs: tuple[Spec, ...]


def part_shape(shape: Shape, spec: Spec, mesh: AbstractMesh) -> Shape:
    """The shape of the part of an array that a device has."""
    sizes = list(shape.dimensions)
    for d, axes in enumerate(spec):
        for name in axes:
            sizes[d] //= mesh.shape[name]
    return shape.with_dimensions(sizes)


def whole_shape(part: Shape, spec: Spec, mesh: AbstractMesh) -> Shape:
    """The shape of an array of whose parts each has this shape."""
    sizes = list(part.dimensions)
    for d, axes in enumerate(spec):
        for name in axes:
            sizes[d] *= mesh.shape[name]
    return part.with_dimensions(sizes)


def _check_specs(what: str, specs: Any, ranks: Sequence[int], mesh: Any) -> None:
    """For each array a tuple for each dimension, of different axes of the mesh."""
    fits = isinstance(mesh, AbstractMesh) and isinstance(specs, tuple) and len(specs) == len(ranks)
    for spec, rank in zip(specs, ranks, strict=True) if fits else ():
        fits = fits and isinstance(spec, tuple) and len(spec) == rank and all(isinstance(axes, tuple) for axes in spec)
        names = [name for axes in spec for name in axes] if fits else []
        fits = fits and len(set(names)) == len(names) and set(names) <= set(mesh.axis_names)
    if not fits:
        raise ShapeError(
            f"shard-map: {what} must have for each of the {len(ranks)} arrays a tuple of axes for each dimension, of "
            f"different axes of {mesh}, but is {specs}."
        )


def _shard_map_shape(*operands: AnyShape, to_apply: Computation, mesh: Any, in_specs: Any, out_specs: Any) -> AnyShape:
    arrays = [movement.array_operand("shard-map", x) for x in operands]
    results = [x.array_shape for x in to_apply.outputs]
    _check_specs("in_specs", in_specs, [x.rank for x in arrays], mesh)
    _check_specs("out_specs", out_specs, [x.rank for x in results], mesh)
    for x, spec in zip(arrays, in_specs, strict=True):
        if whole_shape(part_shape(x, spec, mesh), spec, mesh) != x:
            raise ShapeError(f"shard-map: {x} has no equal parts under {spec} over {mesh}; pad it.")
    parts = [part_shape(x, spec, mesh) for x, spec in zip(arrays, in_specs, strict=True)]
    if parts != to_apply.parameter_shapes:
        raise ShapeError(f"shard-map: the parts of the operands must be {to_apply.parameter_shapes}, but are {parts}.")
    return TupleShape(tuple(whole_shape(x, spec, mesh) for x, spec in zip(results, out_specs, strict=True)))


def _mapped(*operands: Any, to_apply: Computation, mesh: Any, in_specs: Any, out_specs: Any) -> Any:
    """The function, mapped over the parts along one mesh axis after the other."""
    axes = tuple(mesh.shape.items())
    parts: list[Any] = []
    for x, spec in zip(operands, in_specs, strict=True):
        part = _split(sharding_constraint(x, mesh=mesh, spec=spec), spec, axes)
        parts.append(sharding_constraint(part, mesh=mesh, spec=_split_spec(part.ndim, spec, axes)))
    found = over_axes(to_apply, axes, parts, in_specs, out_specs)
    results: list[Any] = []
    for x, output, spec in zip(found, to_apply.outputs, out_specs, strict=True):
        shape = whole_shape(output.array_shape, spec, mesh)
        part = sharding_constraint(x, mesh=mesh, spec=_split_spec(x.ndim, spec, axes))
        results.append(sharding_constraint(_joined(part, shape.dimensions, spec, axes), mesh=mesh, spec=spec))
    return tuple(results)


def _split_spec(ndim: int, spec: Spec, axes: NamedAxes) -> Spec:
    """The sharding of parts along leading dimensions for the axes."""
    leading = tuple((name,) for name, _ in axes if splits(spec, name))
    return (*leading, *((),) * (ndim - len(leading)))


def _split(x: Any, spec: Spec, axes: NamedAxes) -> Any:
    made = splitting(x.shape, spec, axes)
    return movement.transpose_to(movement.reshape_to(x, made.sizes), made.permutation)


def _joined(x: Any, shape: Sequence[int], spec: Spec, axes: NamedAxes) -> Any:
    permutation, _ = splitting(shape, spec, axes).inverse
    return movement.reshape_to(movement.transpose_to(x, permutation), shape)


def over_axes(
    computation: Computation, axes: NamedAxes, values: Sequence[Any], inputs: Sequence[Spec], outputs: Sequence[Spec]
) -> list[Any]:
    """The results of a program of one device for all devices along axes, from what all have: parts, along leading
    dimensions for the axes that split the array. What is the same along an axis does not have its dimension."""
    if not axes:
        return list(run(computation, values))
    (name, count), inner = axes[0], axes[1:]
    places = [0 if splits(spec, name) else None for spec in inputs]
    pairs = batch(lambda *x: over_axes(computation, inner, x, inputs, outputs), count, values, places, name)
    found: list[Any] = []
    for (x, axis), spec in zip(pairs, outputs, strict=True):
        if splits(spec, name):
            found.append(movement.align_axis(x, axis, 0, count))
        else:
            found.append(x if axis is None else _first(x, axis))
    return found


def splits(spec: Spec, name: Any) -> bool:
    """Whether an axis splits an array."""
    return any(name in axes for axes in spec)


def _first(x: Any, axis: int) -> Any:
    """The first of the elements along an axis."""
    one = movement.slice_axis(x, axis, 0, 1)
    return movement.reshape_to(one, (*x.shape[:axis], *x.shape[axis + 1 :]))


@lru_cache(256)
def _written_out(shapes: tuple[Shape, ...], attributes: ShardMap) -> Computation:
    made, _, _ = trace(lambda *x: _mapped(*x, **attributes._asdict()), shapes, "shard_map")
    return made


def _evaluate(*operands: Any, **attributes: Any) -> Any:
    return calls.evaluate(_written_out(tuple(map(Shape.of, operands)), ShardMap(**attributes)), operands)


def _shard_map_batch(size: int, operands: tuple[Any, ...], axes: Axes, **attributes: Any) -> Any:
    pairs = batch(lambda *x: _mapped(*x, **attributes), size, operands, axes)
    return tuple(x for x, _ in pairs), tuple(a for _, a in pairs)


def _shard_map_samples(random: np.random.Generator) -> Iterator[Sample]:
    """Of each row the share in the sum of its column."""
    mesh = AbstractMesh((2,), ("x",))

    def share(x: Any) -> list[Any]:
        total = collectives.all_reduce(x, to_apply=collectives.sum_of(x.dtype), axis_name="x")
        return [elementwise.div(x, total)]

    part = Shape(element_type("f32"), (1, 3))
    made, _, _ = with_axes(mesh.shape, lambda: trace(share, [part], "share"))
    split = (("x",), ())
    given = {"to_apply": made, "mesh": mesh, "in_specs": (split,), "out_specs": (split,)}
    yield Sample((movement.sample_values((2, 3)),), given)


shard_map = Op(
    "shard-map",
    attributes=ShardMap,
    shape=_shard_map_shape,
    evaluate=_evaluate,
    derivative=Decomposition(_mapped),
    batch=_shard_map_batch,
    samples=_shard_map_samples,
    expand=_mapped,
)
