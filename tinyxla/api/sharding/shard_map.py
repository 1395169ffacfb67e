"""`shard_map`: functions of the parts that devices have, as functions of whole arrays."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable, Sequence
from contextlib import nullcontext
from typing import Any

from tinyxla.api.functions import OfLeaves, arrays_of, check_callable, name_of
from tinyxla.api.jit import Jitted
from tinyxla.errors import ArgumentError, AttributeValueError, ConcretizationError, ShapeError, ShardingTypeError
from tinyxla.hlo import Instruction
from tinyxla.ops import movement
from tinyxla.ops.distributed import collectives, varying
from tinyxla.partitioning.array import ShardedArray
from tinyxla.partitioning.placement import is_placement, placed, with_subtrees
from tinyxla.shapes import Shape, element_type
from tinyxla.tracing import pytrees
from tinyxla.tracing.array import ConcreteArray
from tinyxla.tracing.axis_types import axis_types, explicit_axes, manual_axes
from tinyxla.tracing.config import config
from tinyxla.tracing.core import Tracer, outside_of_traces, state, trace, varying_axes, with_axes
from tinyxla.tracing.meshes import AbstractMesh, Mesh, current_mesh, set_mesh
from tinyxla.tracing.promotion import as_array
from tinyxla.tracing.references import has_references, reference_of, write_all
from tinyxla.tracing.shardings import (
    NO_SUMS,
    UNCONSTRAINED,
    NamedSharding,
    PartitionSpec,
    Sharding,
    Spec,
    Sums,
    axes_of,
    spec_of,
    sums_of,
    with_sums,
)
from tinyxla.transforms.computations import run, subgraph
from tinyxla.transforms.manual import ManualTrace, SumAxis, kind_along, trace_parts
from tinyxla.transforms.sharded import ShardMap, applied, named, part_shape, shard_map as shard_map_op
from tinyxla.transforms.sharding_types import output_types, shown_type, type_of
from tinyxla.util.tracebacks import boundary
from tinyxla.util.wrapping import wraps

Function = Callable[..., Any]


@boundary
def shard_map(
    f: Function | None = None,
    /,
    *,
    out_specs: Any = None,
    in_specs: Any = UNCONSTRAINED,
    mesh: AbstractMesh | None = None,
    axis_names: Any = frozenset(),
    check_vma: bool = True,
) -> Any:
    """A function of the parts that devices have, as a function of whole arrays.

    Inside, `lax.psum`, `lax.ppermute`, `lax.axis_index` and the like talk over the axes of the mesh by their names.

    Args:
        f: of pytrees of arrays, the parts of one device.
        out_specs: a pytree of `PartitionSpec`s that may stop earlier than the result: along which dimension the parts
            of the devices along an axis are put together. Along axes that a spec does not name they must be the same;
            along those that are `unreduced` they are summed.
        in_specs: for the arguments, how they are split into parts. Along axes that a spec does not name all devices
            have the same part; of one that is `unreduced` along an axis they have summands. A mutable array has parts
            that are mutable arrays. By default they are split as their types say, where all axes are explicit.
        mesh: the devices; by default the current mesh.
        axis_names: the axes that f is about, by default all but those of functions of parts around. Arrays are not
            split along others inside of it.
        check_vma: know which values vary along an axis. Results that must be the same are then checked, and a
            derivative that f takes by a value that all devices have is the sum over them. Without it, a derivative is
            that of one device.

    Returns:
        A function of whole arrays.

    Raises:
        ArgumentError: there is no mesh, or no `in_specs` for an axis that is not explicit.
        ShapeError: a spec that does not fit an array, or a result that varies along an axis which its spec does not
            name.
        PytreeError: specs of another structure than the arguments or the result.

    Example:
        >>> import tinyxla as tx
        >>> import tinyxla.numpy as jnp
        >>> mesh = tx.make_mesh((1,), ("x",))
        >>> P = tx.sharding.PartitionSpec
        >>> f = tx.shard_map(lambda x: tx.lax.psum(x.sum(), "x"), mesh=mesh, in_specs=P("x"), out_specs=P())
        >>> f(jnp.arange(4.0))
        Array(6., dtype=float32)
    """
    if f is None:
        return functools.partial(
            shard_map, out_specs=out_specs, in_specs=in_specs, mesh=mesh, axis_names=axis_names, check_vma=check_vma
        )
    check_callable("shard_map", f)
    parts = _OfParts(f, mesh, in_specs, out_specs, axis_names, check_vma)

    @boundary
    @wraps(f)
    def whole(*given: Any) -> Any:
        if has_references(given):
            return parts.with_references(given)
        function, args = parts.for_arguments(given)
        leaves = pytrees.leaves(args)
        function.values = None if state.staging is not None or state.axes else _values(leaves)
        function.is_of_tracers = any(isinstance(x, Tracer) for x in leaves)
        inside = state.staging is not None or state.axes or any(isinstance(x, Tracer) for x in leaves)
        if inside or config.disable_jit:
            return function(*args)
        found = Jitted(wraps(f)(function), frozenset(), frozenset())(*args)  # traced anew: f may use what has changed
        others = explicit_axes(function.mesh) if axis_names else ()  # the types of results may name these
        return found if others else placed("shard_map: out_specs", found, function.out_shardings())

    return whole


@boundary
def smap(f: Function | None = None, /, *, in_axes: Any = UNCONSTRAINED, out_axes: Any, axis_name: Hashable) -> Any:
    """`shard_map` over one axis of the current mesh, with positions of dimensions in the place of specs, as of `vmap`.

    Args:
        f: of pytrees of arrays, the parts of one device.
        in_axes: which dimension of the arguments is split along the axis: an integer, None for none, or a tuple of such
            for the positional arguments. By default they are split as their types say, if the axis is explicit.
        out_axes: along which dimension the parts of results are put together, as `in_axes`, or a pytree of integers.
            Where it is None, all devices must have the same result.
        axis_name: the axis. Arrays are not split along others inside of f.

    Returns:
        A function of whole arrays.

    Raises:
        ArgumentError: there is no mesh, `axis_name` is not the name of one axis, or there is no `in_axes` for an axis
            that is not explicit.
        AttributeValueError: a position that is not None or an integer from zero on.

    Example:
        >>> import tinyxla as tx
        >>> f = tx.smap(lambda x: tx.lax.psum(x, "x"), in_axes=0, out_axes=None, axis_name="x")
        >>> with tx.set_mesh(tx.make_mesh((1,), ("x",))):
        ...     f(tx.numpy.arange(2.0))
        Array([0., 1.], dtype=float32)
    """
    if f is None:
        return functools.partial(smap, in_axes=in_axes, out_axes=out_axes, axis_name=axis_name)
    if isinstance(axis_name, tuple | list):
        raise ArgumentError(
            f"smap: axis_name is the name of one axis, but is {axis_name!r}; use shard_map for several."
        )

    def spec(position: Any) -> Any:
        if position is UNCONSTRAINED:
            return position
        if position is None:
            return PartitionSpec()
        if not isinstance(position, int) or isinstance(position, bool) or position < 0:
            raise AttributeValueError(
                f"smap: in_axes and out_axes are None or integers from 0 on, but have {position!r}."
            )
        return PartitionSpec(*[None] * position, axis_name)

    ins, outs = (pytrees.map_tree(spec, axes, is_leaf=lambda x: x is None) for axes in (in_axes, out_axes))
    return shard_map(f, in_specs=ins, out_specs=outs, axis_names=frozenset({axis_name}))


def _values(leaves: Sequence[Any]) -> list[Any] | None:
    """The arguments of a call that is not traced; None if one is not known."""
    try:
        return [x.primal("") if isinstance(x, Tracer) else x for x in leaves]
    except (ConcretizationError, ArgumentError):  # the latter of an array of which this process has a part only
        return None


class _OfParts:
    """A function of parts, applied to whole arrays as one operation.

    Attributes:
        values: the leaves of the arguments, where these are known.
        is_of_tracers: whether some are tracers.
    """

    values: list[Any] | None = None
    is_of_tracers = False

    def __init__(
        self, f: Function, mesh: AbstractMesh | None, in_specs: Any, out_specs: Any, axis_names: Any, check_vma: bool
    ) -> None:
        self._f = f
        self._mesh = mesh
        self._in_specs = in_specs
        self._out_specs = out_specs
        self._axis_names = (axis_names,) if isinstance(axis_names, str) else tuple(axis_names)
        self._check_vma = check_vma

    @property
    def mesh(self) -> AbstractMesh:
        """The mesh: of an abstract one the current one, which has its devices."""
        mesh = current_mesh() if self._mesh is None else self._mesh
        if mesh.empty:
            raise ArgumentError("shard_map: there is no mesh; pass one, or make one the current by set_mesh.")
        return current_mesh() if not isinstance(mesh, Mesh) and isinstance(current_mesh(), Mesh) else mesh

    def out_shardings(self) -> Any:
        """The shardings of the results."""
        mesh = self.mesh
        return pytrees.map_tree(
            lambda x: NamedSharding(mesh, x) if isinstance(x, PartitionSpec) else x,
            self._out_specs,
            is_leaf=is_placement,
        )

    def for_arguments(self, args: tuple[Any, ...]) -> tuple[_OfParts, tuple[Any, ...]]:
        """The function of the arguments that are split: what has no spec keeps its value, which need not be an array.
        An abstract mesh is that of an argument."""
        specs: Any = self._in_specs
        leaves, _ = pytrees.flatten_shown(specs, is_placement)
        if isinstance(specs, tuple) and not isinstance(specs, PartitionSpec) and None in leaves and None not in specs:
            what = f"shard_map of {name_of(self._f)}"
            structure, pairs = with_subtrees(specs, args, f"{what}: in_specs has another structure")
            f = wraps(self._f)(lambda *parts: self._f(*pytrees.unflatten(structure, parts)))
            inner = _OfParts(f, self._mesh, tuple(leaves), self._out_specs, self._axis_names, self._check_vma)
            return inner.for_arguments(tuple(subtree for subtree, _ in pairs))
        is_list = isinstance(specs, tuple | list) and not isinstance(specs, PartitionSpec) and len(specs) == len(args)
        split = [k for k in range(len(args)) if not (is_list and specs[k] is None)]

        def f(*parts: Any) -> Any:
            filled = list(args)
            for k, part in zip(split, parts, strict=True):
                filled[k] = part
            return self._f(*filled)

        is_whole = len(split) == len(args)
        given = tuple(args[k] for k in split)
        made = _OfParts(
            self._f if is_whole else wraps(self._f)(f),
            self._mesh_of(given),
            specs if is_whole else tuple(specs[k] for k in split),
            self._out_specs,
            self._axis_names,
            self._check_vma,
        )
        return made, given

    def with_references(self, args: tuple[Any, ...]) -> Any:
        """Mutable arrays among the arguments: parts are mutable arrays of their own, and what these hold is written
        back."""
        leaves, structure = pytrees.flatten(args)
        references = {k: r for k, x in enumerate(leaves) if (r := reference_of(x)) is not None}
        values = [references[k].read() if k in references else x for k, x in enumerate(leaves)]
        mesh = self.mesh
        if self._in_specs is UNCONSTRAINED:
            self._check_inferred(values, mesh)
            specs = [spec_of(self._inferred(x, mesh), x.ndim) for x in map(as_array, values)]
        else:
            specs = self._specs("in_specs", self._in_specs, args, mesh)

        @wraps(self._f)
        def of_values(parts: list[Any]) -> Any:
            own = {k: r.like(parts[k]) for k, r in references.items()}
            result = self._f(
                *pytrees.unflatten(structure, [own[k].target if k in own else x for k, x in enumerate(parts)])
            )
            return result, [r.read() for r in own.values()]

        result, after = shard_map(
            of_values,
            mesh=self._mesh,
            in_specs=(specs,),
            out_specs=(self._out_specs, [specs[k] for k in references]),
            axis_names=self._axis_names,
            check_vma=self._check_vma,
        )(values)
        write_all([*references.values()], after)
        return result

    def _has_sums(self, sums: Sequence[Sums]) -> bool:
        """Whether arguments or results are unreduced or reduced."""
        given, _ = pytrees.flatten_shown(self._out_specs, is_placement)
        found = [*sums, *(sums_of(x.spec if isinstance(x, NamedSharding) else x) for x in given)]
        return any(s != NO_SUMS for s in found)

    def _sums(self, x: Any, spec: PartitionSpec, mesh: AbstractMesh) -> Sums:
        """The axes of partial sums of an argument, as its spec says and its type."""
        own, given = sums_of(type_of(x)), sums_of(spec)
        if own != given and (own != NO_SUMS or isinstance(x.sharding, NamedSharding)):
            raise ShardingTypeError(
                f"shard_map of {name_of(self._f)}: in_specs has {spec} for an argument of the type {shown_type(x)}, "
                "but both must have the same unreduced and reduced axes; reshard it, or leave out in_specs."
            )
        return given

    def _names(self, mesh: AbstractMesh) -> frozenset[Hashable]:
        """The axes that the function is about: by default those that no function of parts around is about."""
        names = frozenset(mesh.axis_names)
        return frozenset(self._axis_names) or names.difference(manual_axes(mesh)) or names

    def _inferred(self, x: Any, mesh: AbstractMesh) -> Spec:
        """How an array is split along the axes of the function, as its type says."""
        names = self._names(mesh)
        spec = type_of(x)
        unreduced, reduced = (axes & names for axes in sums_of(spec))
        return with_sums((tuple(filter(names.__contains__, axes)) for axes in spec), Sums(unreduced, reduced))

    def _mesh_of(self, args: Any) -> AbstractMesh | None:
        """The mesh of arguments that are over one, where there is no other with devices."""
        wanted = self._mesh
        if wanted is None or isinstance(wanted, Mesh) or isinstance(current_mesh(), Mesh) or state.staging is not None:
            return wanted
        meshes = [x.layout.mesh for x in pytrees.leaves(args) if isinstance(x, ShardedArray)]
        if not meshes and not any(isinstance(x, Tracer) for x in pytrees.leaves(args)):
            raise ArgumentError(
                f"shard_map: an abstract mesh, {wanted}, has no devices; pass an array that is over a mesh which has, "
                "or set one by set_mesh."
            )
        for mesh in meshes:
            if mesh.shape_tuple != wanted.shape_tuple:
                raise ArgumentError(
                    f"shard_map: an argument is over a mesh of the axes {mesh.shape_tuple}, but the mesh of the "
                    f"function has {wanted.shape_tuple}."
                )
        return meshes[0] if meshes else wanted

    def __call__(self, *args: Any) -> Any:
        mesh = self.mesh
        names = self._names(mesh)
        leaves, structure = arrays_of(args, f"shard_map of {name_of(self._f)}: the arguments")
        if self._in_specs is UNCONSTRAINED:
            self._check_inferred(leaves, mesh)
            ins = [self._inferred(x, mesh) for x in leaves]
            sums = [sums_of(spec) for spec in ins]
            ins = [tuple(spec) for spec in ins]
        else:
            specs = self._specs("in_specs", self._in_specs, args, mesh)
            sums = [self._sums(x, spec, mesh) for x, spec in zip(leaves, specs, strict=True)]
            ins = [_axes("in_specs", mesh, names, spec, x.shape) for x, spec in zip(leaves, specs, strict=True)]
        parts = [
            (
                part_shape(Shape(element_type(x.dtype), x.shape), spec, mesh),
                x.weak_type,
                named(spec) | (varying_axes(x) or frozenset()),
            )
            for x, spec in zip(leaves, ins, strict=True)
        ]
        flat = OfLeaves(self._f, structure)

        def of_parts(*given: Any) -> list[Any]:
            outputs = flat(*(_part_of_sum(x, s, self._check_vma) for x, s in zip(given, sums, strict=True)))
            outs = self._specs("out_specs", self._out_specs, pytrees.unflatten(flat.tree, outputs), mesh)
            return [_total(x, sums_of(spec), self._check_vma) for x, spec in zip(outputs, outs, strict=True)]

        values = None if self.values is None else [as_array(x) for x in self.values]

        def run_parts(graph: ManualTrace, x: Instruction) -> ConcreteArray | None:
            return None if values is None else _run_parts(graph, x, values, mesh, names, ins)

        types = _types_of_parts(mesh, names, leaves)
        with set_mesh(mesh) if current_mesh().empty else nullcontext():  # that of functions of parts of these parts
            function = of_parts if self._has_sums(sums) else flat
            given = (function, parts, mesh, names, self._check_vma, name_of(self._f))
            made, captured, results = trace_parts(*given, run_parts, self.is_of_tracers, types)
        for x in captured:
            if sums_of(type_of(x)).unreduced & names:
                raise ShardingTypeError(
                    f"shard_map of {name_of(self._f)}: uses an array of the type {shown_type(x)} from around, of which "
                    "each device has a summand; pass it as an argument."
                )
        result = pytrees.unflatten(flat.tree, [x.array_shape for x in made.outputs])
        specs = self._specs("out_specs", self._out_specs, result, mesh)
        outs = [
            _out_axes(mesh, names, spec, x.array_shape, varies if self._check_vma else frozenset())
            for x, spec, (_, varies) in zip(made.outputs, specs, results, strict=True)
        ]
        whole = tuple(((),) * x.ndim for x in captured)
        found = shard_map_op(
            *leaves,
            *captured,
            to_apply=made,
            mesh=mesh,
            in_specs=(*ins, *whole),
            out_specs=tuple(outs),
            check_vma=self._check_vma,
            manual_axes=tuple(filter(names.__contains__, mesh.axis_names)) if names < {*mesh.axis_names} else (),
        )
        weak = [x.with_weak_type(is_weak) for x, (is_weak, _) in zip(found, results, strict=True)]
        return pytrees.unflatten(flat.tree, weak)

    def _check_inferred(self, leaves: Sequence[Any], mesh: AbstractMesh) -> None:
        """An error for arguments whose types cannot say how they are split."""
        others = sorted(self._names(mesh).difference(explicit_axes(mesh)), key=str) if leaves else []
        if others:
            raise ArgumentError(
                f"shard_map of {name_of(self._f)}: in_specs must say how arguments are split along "
                f"{' and '.join(map(repr, others))}, which no type says, as {others[0]!r} is not an explicit axis; "
                "pass in_specs (of smap: in_axes)."
            )

    def _specs(self, what: str, specs: Any, tree: Any, mesh: AbstractMesh) -> list[PartitionSpec]:
        """A spec for each leaf of a tree, from one whose leaves may be subtrees."""
        _, pairs = with_subtrees(specs, tree, f"shard_map of {name_of(self._f)}: {what} has another structure")
        found: list[PartitionSpec] = []
        for subtree, spec in pairs:
            given = spec.spec if isinstance(spec, NamedSharding) else spec
            if given is not None and not isinstance(given, PartitionSpec):
                raise ArgumentError(f"shard_map: {what} must be PartitionSpecs, but has {spec!r}.")
            found += [given if given is not None else PartitionSpec()] * len(pytrees.leaves(subtree))
        return found


def _part_of_sum(x: Any, sums: Sums, check_vma: bool) -> Any:
    """A device's part of an array that is whole on all devices: along unreduced axes its summand, along reduced ones
    all of it."""
    for name in sorted(sums.unreduced, key=str):
        x = varying.summand(x, name)
    for name in sorted(sums.reduced, key=str) if check_vma else ():
        x = varying.recast(varying.pvary(x, axis_name=name), axis_name=name, source="varying", target="reduced")
    return x


def _total(x: Any, sums: Sums, check_vma: bool) -> Any:
    """The array that a result is: along unreduced axes the sum of what devices have."""
    known = varying_axes(x) or frozenset[Hashable]()
    for name in sorted(sums.unreduced, key=str):
        if not check_vma:
            x = collectives.all_reduce(x, to_apply=collectives.sum_of(x.dtype), axis_name=name)
            continue
        kind = kind_along(known, name)
        _check_kind(x, kind, ("unreduced", "varying"), name)
        if kind == "unreduced":
            x = varying.recast(x, axis_name=name, source="unreduced", target="varying")
        x = varying.psum_invariant(x, axis_name=name)
    for name in sorted(sums.reduced, key=str) if check_vma else ():
        _check_kind(x, kind_along(known, name), ("reduced",), name)
        x = varying.recast(x, axis_name=name, source="reduced", target="invariant")
    return x


def _check_kind(x: Any, kind: str, wanted: tuple[str, ...], name: Hashable) -> None:
    """Refuse a result that is not what its spec says along an axis."""
    if kind not in wanted:
        raise ShardingTypeError(
            f"shard_map: a result {Shape.of(x)} is {kind} along {name!r}, but its spec says {wanted[0]}; use lax.pcast "
            "with to, or change out_specs."
        )


def _types_of_parts(
    mesh: AbstractMesh, names: frozenset[Hashable], leaves: Sequence[Any]
) -> Callable[[ManualTrace, Instruction], Sharding] | None:
    """A function that gives the sharding types of parts, along the explicit axes that a function is not about; None if
    there are no such axes."""
    others = {name: mesh.shape[name] for name in explicit_axes(mesh) if name not in names}
    if not others:
        return None

    def kept(x: Any) -> Spec:
        return tuple(tuple(filter(others.__contains__, axes)) for axes in type_of(x))

    inputs = [kept(x) for x in leaves]

    def type_of_part(graph: ManualTrace, x: Instruction) -> Sharding:
        made = subgraph("type", graph.parameters, [x])
        (spec,) = output_types(made, [*inputs, *map(kept, graph.captured.values())], others)
        kinds = mesh.abstract_mesh.update(axis_types=axis_types(mesh))
        return NamedSharding(kinds, spec_of(spec, len(x.array_shape.dimensions)))

    return type_of_part


def _run_parts(
    graph: ManualTrace,
    x: Instruction,
    values: list[Any],
    mesh: AbstractMesh,
    names: frozenset[Hashable],
    ins: Sequence[Spec],
) -> ConcreteArray | None:
    """The parts of all devices of a result that a function of parts has computed so far, for arguments with values.
    None if they depend on a value that is not known, or on calls that must not be made twice."""
    captured = _values(list(graph.captured.values()))
    made = subgraph("value", graph.parameters, [x])
    if captured is None or made.has_side_effect or not isinstance(x.shape, Shape):
        return None
    sizes = {name: mesh.shape[name] for name in names}

    def one_row(*given: Any) -> list[Any]:
        (found,) = run(made, given)
        return [movement.reshape_to(found, (1, *found.shape))]

    def rows() -> Any:
        function, _, _ = with_axes(sizes, lambda: trace(one_row, made.parameter_shapes, "value"))
        own = tuple(name for name in mesh.axis_names if name in names)
        specs = (*ins, *(((),) * c.ndim for c in captured))
        out = ((own, *((),) * len(x.array_shape.dimensions)),)
        (found,) = applied(ShardMap(function, mesh.abstract_mesh, specs, out, True, own), [*values, *captured])
        return found.concrete("A value")

    return outside_of_traces(rows)


def _axes(what: str, mesh: AbstractMesh, names: frozenset[Hashable], spec: PartitionSpec, shape: Any) -> Spec:
    found = NamedSharding(mesh, spec).dimension_axes(shape, f"shard_map: {what}")
    others = named(found) - names
    if others:
        raise ArgumentError(
            f"shard_map: {what} has {spec}, but the function is about the axes {sorted(names, key=str)} only; leave "
            f"out {sorted(others, key=str)}."
        )
    return found


def _out_axes(
    mesh: AbstractMesh, names: frozenset[Hashable], spec: PartitionSpec, shape: Shape, varies: frozenset[Hashable]
) -> Spec:
    whole = list(shape.dimensions)
    for d, part in enumerate(spec[: len(whole)]):
        whole[d] *= math.prod(mesh.shape.get(name, 1) for name in axes_of(part))
    found = _axes("out_specs", mesh, names, spec, whole)
    beyond = sorted(varies - named(found), key=str)
    for axis in beyond:
        if isinstance(axis, SumAxis):
            raise ShardingTypeError(
                f"shard_map: a result {shape} with the spec {spec} is {axis.kind} along {axis.name!r}; say so in "
                "out_specs, or use lax.psum or lax.pcast."
            )
    if beyond:
        raise ShapeError(
            f"shard_map: a result {shape} with the spec {spec} must be the same on all devices along "
            f"{' and '.join(map(repr, beyond))}, but may vary there; name the axis in out_specs, make it the same by "
            "lax.psum or lax.pmean, or, if you know that it is, pass check_vma=False."
        )
    return found
