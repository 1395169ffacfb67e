"""Operations that say how arrays lie on a mesh: a constraint, and a function of the parts.

`sharding-constraint` says how its operand is split, and is it. `shard-map` is a function of the parts that devices
have, which talk over the axes of the mesh; as an operation like others it is that function mapped over the parts.

Sources: custom calls "Sharding", and `sdy.manual_computation` of the Shardy dialect.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import numpy as np

from tinyxla.errors import ShapeError
from tinyxla.hlo import Computation, Instruction, own_axes
from tinyxla.ops import Op, Sample, calls, elementwise, movement
from tinyxla.ops.distributed import collectives
from tinyxla.ops.distributed.varying import pvary, recast
from tinyxla.ops.host.callback import examples
from tinyxla.ops.op import OWN, Axes, ByAttributes, Decomposition, Derivative, Joint, Linear
from tinyxla.shapes import AnyShape, Shape, TupleShape, element_type
from tinyxla.tracing.core import trace, with_axes
from tinyxla.tracing.meshes import AbstractMesh, Mesh
from tinyxla.tracing.shardings import (
    UNCONSTRAINED,
    NamedSharding,
    SingleDeviceSharding,
    Spec,
    axes_of,
    dual_of,
    spec_of,
    splitting,
    sums_of,
    with_sums,
)
from tinyxla.transforms.batch import batch
from tinyxla.transforms.calls import has_rules, split_reverse, unsummed_error
from tinyxla.transforms.computations import Mask, batched, chosen, forward, inexact, run, spread
from tinyxla.transforms.manual import SumAxis, kind_along, outputs_vary, unified

NamedAxes = Sequence[tuple[Any, int]]  # with their sizes
_Result = TypeVar("_Result")
_NONE: frozenset[Hashable] = frozenset()
_ONE = AbstractMesh((1,), ("x",))


class ShardingConstraint(NamedTuple):
    """`spec` is a `PartitionSpec` with an entry for each dimension. The examples of a map around are split along
    `example_axes`; without them that is left open. `memory_kind` is where the result is, if that is said."""

    mesh: AbstractMesh
    spec: tuple[Any, ...]
    example_axes: tuple[Hashable, ...] = ()
    memory_kind: str | None = None


def _constraint_shape(x: AnyShape, *, mesh: Any, spec: tuple[Any, ...], **others: Any) -> Shape:
    shape = movement.array_operand("sharding-constraint", x)
    if len(spec) != shape.rank:
        raise ShapeError(f"sharding-constraint: spec must have an entry for each dimension of {shape}, but is {spec}.")
    return shape


def _constraint_transpose(
    g: Any, x: Any, *, mesh: Any, spec: Any, memory_kind: Any = None, **others: Any
) -> tuple[Any]:
    """The cotangent where the operand is, if that was on other devices."""
    layout: Any = getattr(x, "sharding", None)
    if isinstance(layout, SingleDeviceSharding):
        layout = layout.layout if x.committed else None
    own: Any = layout.mesh if isinstance(layout, NamedSharding) else None
    is_placed = isinstance(own, Mesh) and not own.is_default_device
    is_elsewhere = is_placed and isinstance(mesh, Mesh) and own.devices.tolist() != mesh.devices.tolist()
    has_other_axes = bool(own and own.explicit_axes) and own.shape_tuple != mesh.shape_tuple
    if is_elsewhere or has_other_axes:
        mesh, spec = own, layout.dimension_axes(x.shape)
    return (sharding_constraint(g, mesh=mesh, spec=dual_of(spec), **others),)


def _constraint_batch(
    size: int, operands: tuple[Any], axes: Axes, *, mesh: Any, spec: Any, example_axes: Any, **others: Any
) -> Any:
    (x,), (axis,) = operands, axes
    assert axis is not None
    _check_example_axes(example_axes, mesh, spec)
    examples = example_axes or UNCONSTRAINED
    whole = with_sums((*spec[:axis], examples, *spec[axis:]), sums_of(spec))
    return sharding_constraint(x, mesh=mesh, spec=whole, **others), axis


def _check_example_axes(names: tuple[Hashable, ...], mesh: AbstractMesh, spec: tuple[Any, ...]) -> None:
    """An error for axes of examples that the mesh does not have, or along which each example is split by itself."""
    own = {name for part in spec for name in axes_of(part)}
    for name in names:
        if name not in mesh.axis_names:
            raise ShapeError(
                f"lax.with_sharding_constraint: the examples of vmap are split along the mesh axis {name!r}, but the "
                f"mesh has the axes {mesh.axis_names}."
            )
        if name in own:
            raise ShapeError(
                f"lax.with_sharding_constraint: the examples of vmap are split along the mesh axis {name!r}, by "
                f"spmd_axis_name or their type, but each of them is split along it, too, by "
                f"{spec_of(tuple(map(axes_of, spec)))}; leave the axis out of one of these."
            )


def _constraint_samples(random: np.random.Generator) -> Iterator[Sample]:
    yield Sample((movement.sample_values((2, 3)),), {"mesh": _ONE, "spec": ("x", None)})


sharding_constraint = Op(
    "sharding-constraint",
    attributes=ShardingConstraint,
    shape=_constraint_shape,
    evaluate=lambda x, **attributes: x,
    fill_defaults=True,
    derivative=Linear(_constraint_transpose),
    batch=_constraint_batch,
    samples=_constraint_samples,
    expand=lambda x, **attributes: x,
)


def meshes_in(computation: Computation) -> Iterator[tuple[Instruction, AbstractMesh]]:
    """The operations over meshes that a computation has, in loops and branches too, with these."""
    if computation.all_opcodes.isdisjoint(("shard-map", "sharding-constraint")):
        return
    for x in computation.instructions:
        mesh = getattr(x.attributes, "mesh", None)
        if isinstance(mesh, Mesh) or (isinstance(mesh, AbstractMesh) and not mesh.empty):
            yield x, mesh
        for inner in x.computations():
            yield from meshes_in(inner)


class ShardMap(NamedTuple):
    """`to_apply` is the function of a device, whose axes have the names of the mesh's. With `check_vma` it says by
    `pvary` where what is the same on all devices meets what varies (`tinyxla.transforms.manual`). `manual_axes` are
    the axes of the mesh that the function is about, all if it is empty; it may talk over others, which belong to a
    function around it. The examples of a map around are split along `example_axes`."""

    to_apply: Computation
    mesh: AbstractMesh
    in_specs: tuple[Spec, ...]
    out_specs: tuple[Spec, ...]
    check_vma: bool = False
    manual_axes: tuple[Hashable, ...] = ()
    example_axes: tuple[Hashable, ...] = ()

    @property
    def own_axes(self) -> Sequence[Hashable]:
        """The axes that the function is about."""
        return own_axes(self.manual_axes, self.mesh.axis_names)


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


def _shard_map_shape(
    *operands: AnyShape, to_apply: Computation, mesh: Any, in_specs: Any, out_specs: Any, **others: Any
) -> AnyShape:
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


def _mapped(*operands: Any, **attributes: Any) -> Any:
    """The function, mapped over the parts along one mesh axis after the other. Along axes that it is not about, the
    compiler decides how dimensions are split that no spec splits."""
    a = ShardMap(**attributes)
    to_apply, mesh = a.to_apply, a.mesh
    other = UNCONSTRAINED if a.manual_axes else ()
    in_specs, out_specs = (tuple(map(tuple, specs)) for specs in (a.in_specs, a.out_specs))  # values, which are sums
    axes = tuple((name, mesh.shape[name]) for name in a.own_axes)
    parts: list[Any] = []
    for x, spec in zip(operands, in_specs, strict=True):
        part = _split(sharding_constraint(x, mesh=mesh, spec=_with_other(spec, other)), spec, axes)
        parts.append(sharding_constraint(part, mesh=mesh, spec=_split_spec(part.ndim, spec, axes, other)))
    found = over_axes(to_apply, axes, parts, in_specs, out_specs)
    results: list[Any] = []
    for x, output, spec in zip(found, to_apply.outputs, out_specs, strict=True):
        shape = whole_shape(output.array_shape, spec, mesh)
        part = sharding_constraint(x, mesh=mesh, spec=_split_spec(x.ndim, spec, axes, other))
        whole = _joined(part, shape.dimensions, spec, axes)
        results.append(sharding_constraint(whole, mesh=mesh, spec=_with_other(spec, other)))
    return tuple(results)


def _with_other(spec: Spec, other: Any) -> tuple[Any, ...]:
    """A spec whose dimensions that no axis splits have another entry."""
    return tuple(axes or other for axes in spec)


def _split_spec(ndim: int, spec: Spec, axes: NamedAxes, other: Any) -> tuple[Any, ...]:
    """The sharding of parts along leading dimensions for the axes; other dimensions have another entry."""
    leading = tuple((name,) for name, _ in axes if splits(spec, name))
    return (*leading, *(other,) * (ndim - len(leading)))


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
    outer, examples.are_devices = examples.are_devices, True
    try:
        pairs = batch(lambda *x: over_axes(computation, inner, x, inputs, outputs), count, values, places, name)
    finally:
        examples.are_devices = outer
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


# --- transformations, which are those of the function of a device -----------------------------------------------------


def named(spec: Spec) -> frozenset[Hashable]:
    """The axes that split an array."""
    return frozenset(name for axes in spec for name in axes)


def _traced(a: ShardMap, function: Callable[[], _Result]) -> _Result:
    """Call a function that traces one of a device."""
    return with_axes({name: a.mesh.shape[name] for name in a.own_axes}, function)


def _with_pvary(a: ShardMap) -> ShardMap:
    """The same where results vary along the axes that split them; with `check_vma`."""
    if not a.check_vma:
        return a
    kinds = tuple(map(named, a.in_specs))
    found = zip(a.out_specs, outputs_vary(a.to_apply, kinds), strict=True)
    wanted = tuple(named(spec) | axes for spec, axes in found)
    return a._replace(to_apply=_traced(a, lambda: unified(a.to_apply, kinds, wanted)))


def applied(a: ShardMap, values: Sequence[Any]) -> list[Any]:
    """The results of `shard_map` with those attributes."""
    return list(shard_map(*values, **_with_pvary(a)._asdict()))


def _forward(tangents: tuple[Any, ...], *operands: Any, **attributes: Any) -> tuple[Any, Any]:
    a = ShardMap(**attributes)
    present = tuple(t is not None for t in tangents)
    made, moving = _traced(a, lambda: forward(a.to_apply, present))
    inputs = (*a.in_specs, *chosen(a.in_specs, present))
    outputs = (*a.out_specs, *chosen(a.out_specs, moving))
    both = a._replace(to_apply=made, in_specs=inputs, out_specs=outputs)
    found = applied(both, [*operands, *chosen(tangents, present)])
    count = len(a.out_specs)
    return tuple(found[:count]), tuple(spread(found[count:], moving))


def _reverse(wanted: Mask, *operands: Any, **attributes: Any) -> tuple[Any, Callable[[Any], list[Any]] | None]:
    """Forward and backward pass are a function of a device each. What the second needs of the first each device keeps
    for itself."""
    a = _with_pvary(ShardMap(**attributes))
    passes = _passes(a, wanted)
    outputs = applied(passes.there, operands)
    count = len(a.out_specs)
    if not any(passes.flows):
        return tuple(outputs[:count]), None
    computed = iter(outputs[count:])
    residuals = [next(computed) if place is None else operands[place] for place in passes.residuals]

    def pullback(g: Any) -> list[Any]:
        found = applied(passes.back, [*residuals, *chosen(g, inexact(a.to_apply))])
        return spread(spread(found, passes.flows), wanted)

    return tuple(outputs[:count]), pullback


class _Passes(NamedTuple):
    """As a `Split` says, functions of a device."""

    there: ShardMap
    residuals: list[int | None]
    back: ShardMap
    flows: Mask


@lru_cache(256)
def _passes(a: ShardMap, wanted: Mask) -> _Passes:
    """Residuals stand along a new first dimension, which is split along the axes along which they vary."""
    split = _traced(a, lambda: split_reverse(a.to_apply, wanted, None, inexact(a.to_apply)))
    count = len(a.out_specs)
    kept = split.there.outputs[count:]
    kinds = _residuals_vary(a, split.there)
    axes = [tuple(n for n in a.mesh.axis_names if kind_along(k, n) in ("varying", "unreduced")) for k in kinds]
    stacked = [((names,) if names else ()) + ((),) * x.array_shape.rank for x, names in zip(kept, axes, strict=True)]
    computed = iter(zip(axes, stacked, kinds, strict=True))
    places = [((), a.in_specs[place], _NONE) if place is not None else next(computed) for place in split.residuals]
    cotangents = chosen(a.out_specs, inexact(a.to_apply))
    gradients = chosen(chosen(a.in_specs, wanted), split.flows)

    def there(*values: Any) -> list[Any]:
        found = list(run(split.there, values))
        found[count:] = [_recast(x, k) for x, k in zip(found[count:], kinds, strict=True)]
        rows = [movement.reshape_to(x, (1, *x.shape)) if n else x for x, n in zip(found[count:], axes, strict=True)]
        return [*found[:count], *rows]

    def back(*values: Any) -> list[Any]:
        rows, g = values[: len(places)], values[len(places) :]
        residuals = [
            _recast(movement.reshape_to(x, x.shape[1:]) if names else x, kinds, is_back=True)
            for x, (names, _, kinds) in zip(rows, places, strict=True)
        ]
        seeds = [_shared(a, x, spec) for x, spec in zip(g, cotangents, strict=True)]
        found = run(split.back, [*residuals, *seeds])
        return [_summed(a, x, spec) for x, spec in zip(found, gradients, strict=True)]

    made, _, _ = _traced(a, lambda: trace(there, split.there.parameter_shapes, split.there.name))
    forth = a._replace(to_apply=made, out_specs=(*a.out_specs, *stacked))
    inputs = (*(spec for _, spec, _ in places), *cotangents)
    shapes = [x.array_shape for x in split.back.parameters]
    for k, (names, _, _) in enumerate(places):
        if names:
            shapes[k] = shapes[k].with_dimensions((1, *shapes[k].dimensions))
    made, _, _ = _traced(a, lambda: trace(back, shapes, split.back.name))
    if a.check_vma and has_rules(a.to_apply):
        _check_summed(f"shard_map: a backward rule in {a.to_apply.name}", made, inputs, gradients)
    return _Passes(
        forth, split.residuals, a._replace(to_apply=made, in_specs=inputs, out_specs=tuple(gradients)), split.flows
    )


def _recast(x: Any, kinds: frozenset[Hashable], is_back: bool = False) -> Any:
    """A residual as what a function of parts may give, of one that is partial sums or reduced; or the way back."""
    for axis in (a for a in kinds if isinstance(a, SumAxis)):
        there = "varying" if axis.kind == "unreduced" else "invariant"
        if is_back and there == "invariant":
            x = pvary(x, axis_name=axis.name)
        source, target = ("varying", axis.kind) if is_back else (axis.kind, there)
        x = recast(x, axis_name=axis.name, source=source, target=target)
    return x


def _check_summed(what: str, back: Computation, inputs: Sequence[Spec], gradients: Sequence[Spec]) -> None:
    """The rules of calls give cotangents that are the same on all devices for what is."""
    varies = outputs_vary(back, tuple(map(named, inputs)))
    for x, axes, spec in zip(back.outputs, varies, gradients, strict=True):
        if axes - named(spec):
            raise unsummed_error(what, x.array_shape, axes - named(spec))


def _residuals_vary(a: ShardMap, there: Computation) -> list[frozenset[Hashable]]:
    """The axes along which what a forward pass keeps may vary."""
    count = len(a.out_specs)
    if a.check_vma:
        return outputs_vary(there, tuple(map(named, a.in_specs)))[count:]
    return [_axes(a)] * (len(there.outputs) - count)


def _axes(a: ShardMap) -> frozenset[Hashable]:
    """The axes along which devices may do different things."""
    return a.to_apply.axis_names.union(*map(named, (*a.in_specs, *a.out_specs))).intersection(a.own_axes)


def _shared(a: ShardMap, g: Any, spec: Spec) -> Any:
    """What each device along the axes that do not split a result takes of its cotangent: equal parts, as of the mean of
    what they have. With `check_vma` such a result is one, the same on all devices, and so is its cotangent."""
    count = 1 if a.check_vma else math.prod(a.mesh.shape[name] for name in _axes(a) - named(spec))
    return g if count == 1 else elementwise.div(g, movement.full(count, g.dtype, g.shape))


def _summed(a: ShardMap, g: Any, spec: Spec) -> Any:
    """The cotangent of an operand that all devices along an axis have: the sum of theirs. With `check_vma` it is that
    already, by the transpose of `pvary`."""
    for name in () if a.check_vma else sorted(_axes(a) - named(spec), key=str):
        g = collectives.all_reduce(g, to_apply=collectives.sum_of(g.dtype), axis_name=name)
    return g


def _derivative(**attributes: Any) -> Derivative:
    """Of a function that takes the largest of all devices (by all-reduce), which is not linear in what is the same on
    all, or talks over axes of others, that of what it is made of."""
    a = ShardMap(**attributes)
    if not a.to_apply.axis_names <= {*a.own_axes} or (a.check_vma and "all-reduce" in a.to_apply.all_opcodes):
        return Decomposition(_mapped)
    return Joint(_forward, _reverse)


def _shard_map_batch(size: int, operands: tuple[Any, ...], axes: Axes, **attributes: Any) -> Any:
    a = ShardMap(**attributes)
    names, a = _axes_of_examples(a), a._replace(example_axes=())
    for name in ShardMap(**attributes).example_axes:
        if any(name in axes for spec in (*a.in_specs, *a.out_specs) for axes in spec):
            raise ShapeError(
                f"shard_map: the examples of vmap are split along the mesh axis {name!r}, by spmd_axis_name or their "
                "type, but in_specs or out_specs name it, too; leave it out of one of these."
            )
    attributes = a._asdict()
    if not a.to_apply.axis_names <= {*a.own_axes, OWN}:  # over which a `vmap` around talks
        pairs = batch(lambda *x: _mapped(*x, **attributes), size, operands, axes)
        return tuple(x for x, _ in pairs), tuple(axis for _, axis in pairs)
    own = size // math.prod(a.mesh.shape[name] for name in names)  # examples of a device
    made, found = _traced(a, lambda: batched(a.to_apply, own, axes))
    inputs = tuple(_with_dimension(spec, axis, names) for spec, axis in zip(a.in_specs, axes, strict=True))
    outputs = tuple(_with_dimension(spec, axis, names) for spec, axis in zip(a.out_specs, found, strict=True))
    return tuple(applied(a._replace(to_apply=made, in_specs=inputs, out_specs=outputs), operands)), found


def _axes_of_examples(a: ShardMap) -> tuple[Hashable, ...]:
    """The axes along which examples are to be split, if the function has no use for them: then each device computes
    its own examples."""
    used = a.to_apply.axis_names.union(*map(named, (*a.in_specs, *a.out_specs)))
    return a.example_axes if used.isdisjoint(a.example_axes) and {*a.example_axes} <= {*a.own_axes} else ()


def _with_dimension(spec: Spec, axis: int | None, names: tuple[Hashable, ...]) -> Spec:
    """The sharding of an array with one more dimension, which is split along these axes."""
    return spec if axis is None else (*spec[:axis], names, *spec[axis:])


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
    fill_defaults=True,
    derivative=ByAttributes(_derivative),
    batch=_shard_map_batch,
    samples=_shard_map_samples,
    expand=_mapped,
)
