"""Sharding types: along mesh axes that are explicit, how an array is split is part of its type.

The type of a result follows from those of operands by the sharding rule of the operation. Where it does not, as for a
product of which both operands are split along a contracted dimension, there is an error: the program says what it wants
by `out_sharding` or `reshard`, or leaves it to the compiler by `auto_axes`. Inside of what is left to the compiler, and
on the way back of derivatives, types have no axes.

Source: the documentation of JAX, section "Explicit sharding (a.k.a. 'sharding in types')".
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import chain
from typing import Any, TypeVar

from tinyxla.errors import PartialSumError, ShardingTypeError
from tinyxla.hlo import Computation, Instruction
from tinyxla.ops import Op, calls, elementwise, movement, reduction
from tinyxla.ops.op import Dimensions, Factors
from tinyxla.ops.tuples import leaf_shapes
from tinyxla.shapes import AnyShape, Shape
from tinyxla.shapes.reshape import split_dimensions
from tinyxla.shapes.symbolic import is_symbolic
from tinyxla.tracing.array import ConcreteArray
from tinyxla.tracing.axis_types import explicit_axes
from tinyxla.tracing.core import GraphTrace, GraphTracer, set_trace_of_values, state, trace
from tinyxla.tracing.meshes import AbstractMesh, current_mesh
from tinyxla.tracing.shardings import (
    NO_SUMS,
    UNCONSTRAINED,
    NamedSharding,
    Spec,
    Sums,
    axes_of,
    dual_of,
    spec_of,
    sums_of,
    with_sums,
)
from tinyxla.transforms.annotated import AnnotatedTrace
from tinyxla.transforms.computations import interpret, results
from tinyxla.transforms.partial_sums import NOT_LINEAR, refusal_of_sums
from tinyxla.transforms.sharded import meshes_in, sharding_constraint

_Result = TypeVar("_Result")
Sizes = Mapping[Hashable, int]  # of the explicit axes, by name
_FIX = "give out_sharding where the function has it, reshard an operand, or leave it to the compiler by auto_axes"


def explicit_sizes(mesh: AbstractMesh, *others: AbstractMesh) -> Sizes:
    """The axes of meshes that are part of types, and their sizes.

    Raises:
        ShardingTypeError: an axis has another size in another mesh.
    """
    sizes = {name: mesh.shape[name] for name in explicit_axes(mesh)}
    for other in others:
        sizes = _with_axes_of(sizes, other, explicit_axes(other))
    return sizes


def _with_axes_of(sizes: Sizes, mesh: AbstractMesh, names: Sequence[Hashable]) -> dict[Hashable, int]:
    """Sizes of axes, and those of some axes of a further mesh."""
    found = dict(sizes)
    for name in names:
        if found.setdefault(name, mesh.shape[name]) != mesh.shape[name]:
            raise ShardingTypeError(
                f"The axis {name!r} has {found[name]} devices in one mesh of a program, and {mesh.shape[name]} in "
                f"another, {mesh}; give the axes of meshes names of their own."
            )
    return found


def _other_meshes(computation: Computation, mesh: AbstractMesh) -> list[AbstractMesh]:
    """The meshes of other axes in a computation."""
    found = dict.fromkeys(other for _, other in meshes_in(computation))
    return [other for other in found if other.shape_tuple != mesh.shape_tuple and not other.empty]


def type_of(x: Any) -> Spec:
    """How an array is split along explicit axes."""
    layout = x.sharding
    sizes = explicit_sizes(layout.mesh) if isinstance(layout, NamedSharding) else {}
    return kept_axes(layout.dimension_axes(x.shape), sizes) if sizes else ((),) * x.ndim


def check_contracted(what: str, out_sharding: Any, operands: Sequence[tuple[Any, Sequence[int]]]) -> None:
    """Refuse a product that is to be left as partial sums along other axes than it is summed over.

    Args:
        what: names the function in errors.
        out_sharding: how the product is to be split.
        operands: arrays, and their dimensions that are contracted, in the same order.

    Raises:
        ShardingTypeError: the operands are split along others there, or in different ways.
    """
    unreduced = sums_of(getattr(out_sharding, "spec", out_sharding)).unreduced
    if not unreduced:
        return
    split = [tuple(type_of(x)[d] for d in dimensions) for x, dimensions in operands]
    found = frozenset(chain(*split[0]))
    if len({*split}) == 1 and found == unreduced:
        return
    shapes = " and ".join(shown_type(x) for x, _ in operands)
    along = f"is split along {_names(sorted(found, key=str))} there" if found else "is whole there"
    why = along if len({*split}) == 1 else "is split in different ways there"
    raise ShardingTypeError(
        f"{what}: {out_sharding} is unreduced along {_names(sorted(unreduced, key=str))}, but must be so along the "
        f"axes that operands are split along where they are contracted: what is contracted {why}, of {shapes}; reshard "
        "an operand, or the result."
    )


def sharding_in_type(x: Any) -> NamedSharding | None:
    """The type of an array as a sharding; None if its mesh has no explicit axes, or it has no mesh."""
    layout = getattr(x, "sharding", None)
    if not isinstance(layout, NamedSharding) or not explicit_axes(layout.mesh):
        return None
    return NamedSharding(layout.mesh, spec_of(type_of(x), x.ndim))


def type_of_examples(
    what: str, values: Sequence[Any], places: Sequence[int | None]
) -> tuple[AbstractMesh, tuple[Any, ...]] | None:
    """The mesh and the explicit axes along which the examples of mapped arrays are split; None if they are not.

    Args:
        what: names the map in errors.
        values: arrays and tracers.
        places: for each the dimension of examples, or None.

    Raises:
        ShardingTypeError: they are split in different ways.
    """
    if state.staging is not None and not has_types(state.staging):
        return None
    found: dict[tuple[Any, ...], AbstractMesh] = {}
    for x, d in zip(values, places, strict=True):
        if d is None or type(x) is ConcreteArray:
            continue
        layout = x.sharding
        if isinstance(layout, NamedSharding) and (names := type_of(x)[d]):
            found[names] = layout.mesh
    if len(found) > 1:
        both = " and ".join(map(_names, found))
        raise ShardingTypeError(f"{what}: the examples of arguments are split in different ways, along {both}; {_FIX}.")
    return next(((mesh, names) for names, mesh in found.items()), None)


def with_examples_along(value: Any, d: int, mesh: AbstractMesh, names: tuple[Any, ...]) -> Any:
    """An array whose dimension d, of examples that are all the same, is split along axes."""
    spec = type_of(value)
    split = with_sums((*spec[:d], names, *spec[d + 1 :]), sums_of(spec))
    return sharding_constraint(value, mesh=mesh, spec=constraint_of(split, mesh))


def kept_axes(spec: Spec, sizes: Container[Hashable]) -> Spec:
    """The axes of a spec that are part of types."""
    found = tuple(tuple(name for name in axes if name in sizes) for axes in spec)
    if type(spec) is tuple:
        return found
    unreduced, reduced = (frozenset(name for name in axes if name in sizes) for axes in sums_of(spec))
    return with_sums(found, Sums(unreduced, reduced))


def with_type_of(value: Any, x: Any, is_cotangent: bool = False) -> Any:
    """A value, of the shape of x, that has its type, or that of its cotangent."""
    layout = x.sharding
    if not isinstance(layout, NamedSharding) or not explicit_axes(layout.mesh):
        return value
    spec = dual_of(type_of(x)) if is_cotangent else type_of(x)
    return sharding_constraint(value, mesh=layout.mesh, spec=constraint_of(spec, layout.mesh))


def constraint_of(spec: Spec, mesh: AbstractMesh) -> tuple[Any, ...]:
    """A type as the spec of a constraint: if there are axes of another kind, dimensions may be split along these."""
    whole = None if mesh.are_all_axes_explicit else UNCONSTRAINED
    return with_sums((axes or whole for axes in spec), sums_of(spec))


def with_types(
    computation: Computation,
    mesh: AbstractMesh,
    sizes: Sizes,
    inputs: Sequence[Spec],
    meshes: Sequence[AbstractMesh] = (),
) -> Computation:
    """A program whose results are constrained to their types.

    Args:
        computation: the program.
        mesh: that of the program.
        sizes: the axes of it that are part of types.
        inputs: how the arguments are split.
        meshes: those of the arguments, if one is over another mesh of the same devices.
    """
    others = dict.fromkeys((*_other_meshes(computation, mesh), *(x for x in meshes if x != mesh)))
    for other in others:
        if other.shape_tuple != mesh.shape_tuple:
            sizes = _with_axes_of(sizes, other, other.explicit_axes)
    if not sizes:
        return computation
    owners = meshes or (mesh,) * len(inputs)
    given = [
        kept_axes(spec, sizes if owner == mesh else owner.explicit_axes)
        for spec, owner in zip(inputs, owners, strict=True)
    ]
    types = output_types(computation, given, sizes)
    elsewhere = {p for p, owner in zip(computation.parameters, owners, strict=True) if owner != mesh}

    def over(x: Instruction, spec: Spec) -> AbstractMesh:
        """The mesh of a result: that whose axes are in its type."""
        last = x.attributes.mesh if x.op is sharding_constraint else mesh
        return next((m for m in (last, mesh, *others) if all(map(m.axis_names.__contains__, chain(*spec)))), mesh)

    layouts = [(over(x, spec), spec) for x, spec in zip(computation.outputs, types, strict=True)]
    are_kept = [x in elsewhere for x in computation.outputs]

    def typed(*values: Any) -> list[Any]:
        found = results(interpret(computation, values, lambda x, inputs: x.op(*inputs, **x.attributes._asdict())))
        return [
            x if is_kept else sharding_constraint(x, mesh=owner, spec=constraint_of(spec, owner))
            for x, (owner, spec), is_kept in zip(found, layouts, are_kept, strict=True)
        ]

    return trace(typed, computation.parameter_shapes, computation.name)[0]


class TypedTrace(AnnotatedTrace[Spec]):
    """Records a graph, and the sharding type of each array, over a mesh or others whose operations it records."""

    def __init__(self, what: str, mesh: AbstractMesh, values: Sequence[Any], staging: bool) -> None:
        super().__init__(what, [type_of(x) for x in values], staging)
        self.mesh = mesh
        self._others: dict[AbstractMesh, None] = {}  # meshes of other axes
        self._owners: dict[Instruction, AbstractMesh] = {}  # the meshes of arrays that are over one of these
        self._values = values

    def _noted(self, layout: Any) -> AbstractMesh | None:
        """The mesh of a value or an operation; the axes of one with others than that of the trace are then known."""
        mesh = getattr(layout, "mesh", None)
        if not isinstance(mesh, AbstractMesh) or mesh.empty:
            return None
        if mesh.shape_tuple == self.mesh.shape_tuple:
            return self.mesh
        self._others[mesh.abstract_mesh] = None
        return mesh.abstract_mesh

    def parameter(self, shape: AnyShape, weak_type: bool = False) -> GraphTracer:
        tracer = super().parameter(shape, weak_type)
        number = len(self.parameters) - 1
        if number < len(self._values):
            self._own(tracer.instruction, self._noted(getattr(self._values[number], "sharding", None)))
        return tracer

    def lift(self, value: Any) -> Instruction:
        made = super().lift(value)
        if made not in self._owners and not isinstance(value, GraphTracer):
            self._own(made, self._noted(getattr(value, "sharding", None)))
        return made

    def _own(self, x: Instruction, mesh: AbstractMesh | None) -> None:
        if mesh is not None:
            self._owners[x] = mesh

    def _of_value(self, value: Any) -> Spec:
        return type_of(value)

    def _of_results(self, x: Instruction, operands: list[list[Spec]]) -> list[Spec]:
        mesh = self._noted(x.attributes)
        for inner in x.computations():
            for found, _ in meshes_in(inner):
                self._noted(found.attributes)
        if self._others:
            self._own(x, mesh if hasattr(x.attributes, "mesh") else self._common_owner(x, operands))
        sizes = explicit_sizes(self.mesh, *self._others)
        return result_types(x, [[kept_axes(spec, sizes) for spec in several] for several in operands], sizes)

    def _common_owner(self, x: Instruction, operands: list[list[Spec]]) -> AbstractMesh | None:
        """The mesh that operands are over, and so the result."""
        layouts = [
            self._owners.get(o, self.mesh if any(map(any, specs)) else None)
            for o, specs in zip(x.operands, operands, strict=True)
        ]
        several = list(dict.fromkeys(mesh for mesh in layouts if mesh is not None))
        if len(several) > 1 and x.op.sharding is not None:
            raise ShardingTypeError(
                f"{x.op.name}: operands must be over one mesh, but are over {several[0]} and {several[1]}; reshard one."
            )
        return several[0] if several else None

    def sharding_of(self, x: Instruction) -> NamedSharding:
        """The type of an array as a sharding."""
        mesh = self._owners.get(x, self.mesh)
        return NamedSharding(mesh.abstract_mesh, spec_of(self.known[x][0], len(x.array_shape.dimensions)))


def has_types(graph: GraphTrace) -> bool:
    """Whether a trace knows the sharding types of arrays."""
    return isinstance(graph, TypedTrace)


def _trace_of_values(what: str, staging: bool, values: Sequence[Any]) -> GraphTrace:
    """The trace of a function of values like these: with types, if there are explicit axes."""
    mesh = typed_mesh(values)
    return GraphTrace(what, staging) if mesh is None else TypedTrace(what, mesh, values, staging)


def typed_mesh(values: Sequence[Any]) -> AbstractMesh | None:
    """The mesh with explicit axes that a function of values like these is about; None if there is none."""
    outer = state.staging
    meshes = [layout.mesh for x in values if isinstance(layout := getattr(x, "sharding", None), NamedSharding)]
    meshes += [outer.mesh] if isinstance(outer, TypedTrace) else []
    return next((mesh for mesh in (*meshes, current_mesh()) if explicit_axes(mesh)), None)


set_trace_of_values(_trace_of_values)


def shown_types(computation: Computation, values: Sequence[Any]) -> list[str]:
    """The types of the results of a computation of values like these, as they are printed; none if there are no
    explicit axes."""
    mesh = typed_mesh(values)
    if mesh is None:
        return []
    sizes = explicit_sizes(mesh, *_other_meshes(computation, mesh))
    types = output_types(computation, [kept_axes(type_of(x), sizes) for x in values], sizes)
    return [shown(x.array_shape, spec) for x, spec in zip(computation.outputs, types, strict=True)]


def shown_type(x: Any) -> str:
    """The type of an array as it is printed."""
    return shown(Shape.of(x), type_of(x))


# --- rules ------------------------------------------------------------------------------------------------------------


def output_types(computation: Computation, inputs: Sequence[Spec], sizes: Sizes, checks: bool = False) -> list[Spec]:
    """The types of the results of a computation. Where one is ambiguous, of what a constraint decides later, it has no
    axes; with `checks` that is an error."""
    return list(_output_types(computation, tuple(inputs), tuple(sizes.items()), checks))


@lru_cache(4096)
def _output_types(computation: Computation, inputs: tuple[Spec, ...], sizes: Any, checks: bool) -> list[Spec]:
    def rule(x: Instruction, operands: list[list[Spec]]) -> list[Spec]:
        try:
            return result_types(x, operands, dict(sizes))
        except ShardingTypeError:
            if checks:
                raise
            return _whole(x)

    given: list[list[Spec]] = [[spec] for spec in inputs]
    return interpret(computation, given, rule)


def _whole(x: Instruction) -> list[Spec]:
    return [((),) * shape.rank for shape in leaf_shapes(x.shape)]


def result_types(x: Instruction, operands: Sequence[Sequence[Spec]], sizes: Sizes) -> list[Spec]:
    """The types of the arrays of an instruction's result, from those of its operands.

    Raises:
        ShardingTypeError: they do not follow.
    """
    flat = [spec for several in operands for spec in several]
    if x.op is calls.tuple_ or x.op.name == "opt-barrier":
        return flat
    if x.op is calls.get_tuple_element:
        return [flat[x.attributes.index]]
    if x.op.name in _OF_COMPUTATIONS:
        return _OF_COMPUTATIONS[x.op.name](x, flat, sizes)
    if all(type(spec) is tuple for spec in flat):
        return _split_types(x, flat, sizes)
    if x.op.name not in _RULES and x.op.sharding is None and x.op.expand is not None:
        return _types_of_parts(x, flat, sizes)
    sums = _sums_of_result(x, flat)
    return [with_sums(spec, sums) for spec in _split_types(x, [tuple(spec) for spec in flat], sizes)]


def _split_types(x: Instruction, flat: Sequence[Spec], sizes: Sizes) -> list[Spec]:
    """How the arrays of an instruction's result are split."""
    if x.op.name in _RULES:
        return _RULES[x.op.name](x, flat, sizes)
    if not any(map(any, flat)):
        return _whole(x)
    shapes = tuple(o.shape for o in x.operands)
    attributes = x.attributes._asdict()
    if "axis_name" in attributes and len(flat) == len(leaf_shapes(x.shape)):
        return _collective(x, flat, sizes)
    if x.op.sharding is not None:
        return _by_factors(x, x.op.sharding(*shapes, **attributes), flat, sizes)
    if x.op.expand is not None:
        return _types_of_parts(x, flat, sizes)
    if all(_is_whole(names, sizes) for spec in flat for names in spec):
        return _whole(x)
    raise ShardingTypeError(f"{x.op.name}: has no rule for operands that are split, {_shown(x, flat)}; {_FIX}.")


def _types_of_parts(x: Instruction, flat: Sequence[Spec], sizes: Sizes) -> list[Spec]:
    """The types of the results of an operation that is made of others."""
    shapes, attributes = tuple(o.shape for o in x.operands), tuple(x.attributes._asdict().items())
    return output_types(_expanded(x.op, shapes, attributes), flat, sizes, checks=True)


def _sums_of_result(x: Instruction, operands: Sequence[Spec]) -> Sums:
    """The axes of partial sums of a result: what is linear in partial sums gives such. Arrays that go with reduced ones
    are reduced, too, but for scalars and constants, which all devices have."""
    error = partial(_refused, x, operands, fix="reshard an operand")
    known = [sums_of(spec) for spec in operands]
    reduced = {sums.reduced for sums in known if sums.reduced}
    unreduced = {sums.unreduced for sums in known if sums.unreduced}
    if len(reduced) > 1 or len(unreduced) > 1:
        raise error("operands are partial sums, or reduced, along different axes")
    along, whole = next(iter(unreduced), frozenset[Any]()), next(iter(reduced), frozenset[Any]())
    if along:
        are_sums = [bool(sums.unreduced) for sums in known]
        assert isinstance(x.op, Op)
        why = refusal_of_sums(x.op, x.attributes._asdict(), x.operands, are_sums)
        if why == NOT_LINEAR:
            raise PartialSumError(str(error(why).args[0]))
        if x.op.name in _CONTRACTIONS:
            why = "operands that are contracted must not be partial sums"
        if why:
            raise error(why)
        for o, sums in zip(x.operands, known, strict=True):
            if x.op is elementwise.mul and sums == NO_SUMS and not _is_repeated(o):
                raise error(f"the factor of partial sums must be reduced along {_names(sorted(along, key=str))}")
    if x.op.name in _CONTRACTIONS:
        return NO_SUMS
    for o, spec, sums in zip(x.operands, operands, known, strict=True):
        shape = o.shape
        if whole and sums == NO_SUMS and isinstance(shape, Shape) and shape.rank and not _is_repeated(o):
            split = whole.intersection(*spec) if any(spec) else frozenset[Any]()
            how = f"split along {_names(sorted(split, key=str))}" if split else "whole"
            raise error(f"an operand is {how}, where another one is reduced along {_names(sorted(whole, key=str))}")
    return Sums(along, whole - along)


@lru_cache(1024)
def _expanded(op: Op, shapes: tuple[AnyShape, ...], attributes: tuple[tuple[str, Any], ...]) -> Computation:
    """What an operation is made of."""
    assert op.expand is not None
    expand = op.expand
    return trace(lambda *x: results(expand(*x, **dict(attributes))), shapes, op.name)[0]


def _refused(x: Instruction, operands: Sequence[Spec], why: str, fix: str = _FIX) -> ShardingTypeError:
    """The error of an operation, for operands of these types."""
    return ShardingTypeError(f"{x.op.name}: {why}, of {_shown(x, operands)}; {fix}.")


def _shown(x: Instruction, operands: Sequence[Spec]) -> str:
    """Operands as types are printed."""
    shapes = [shape for o in x.operands for shape in leaf_shapes(o.shape)]
    return " and ".join(shown(shape, spec) for shape, spec in zip(shapes, operands, strict=True))


def shown(shape: Shape, spec: Spec) -> str:
    """A type: `f32[8@x,4]`."""
    sizes = ",".join(f"{n}{split_along(axes)}" for n, axes in zip(shape.dimensions, spec, strict=True))
    return f"{shape.element_type.name}[{sizes}]{shown_axes((), sums_of(spec))}"


def shown_axes(varying: Iterable[Any], sums: Sums, mesh: AbstractMesh | None = None) -> str:
    """`{V:x, U:y}` for an array that varies along x and is unreduced along y; `R` stands for reduced."""
    order = [] if mesh is None else list(mesh.axis_names)
    parts: list[str] = []
    for letter, axes in zip("VUR", (varying, *sums), strict=True):
        names = sorted(axes, key=lambda name: (order.index(name) if name in order else len(order), str(name)))
        listed = ",".join(map(str, names))
        parts += [f"{letter}:{listed}" if len(names) == 1 else f"{letter}:({listed})"] if names else []
    return f"{{{', '.join(parts)}}}" if parts else ""


def split_along(axes: Sequence[Any]) -> str:
    """`@x` for a dimension that is split along an axis x, `@(x,y)` along two."""
    return f"@{axes[0]}" if len(axes) == 1 else f"@({','.join(map(str, axes))})" if axes else ""


_CONTRACTIONS = ("convolution", "dot", "ragged-dot")
_LOOKING_UP = ("gather", "scatter")


def _by_factors(x: Instruction, factors: Factors, operands: Sequence[Spec], sizes: Sizes) -> list[Spec]:
    """Dimensions of one factor are split alike."""
    error = partial(_refused, x, operands)
    axes: dict[int, tuple[Any, ...]] = {}
    contracted = {factor for factor, _ in factors.reductions}
    for spec, dimensions in zip(operands, factors.operands, strict=True):
        for d, (names, factor) in enumerate(zip(spec, dimensions, strict=True)):
            if not names:
                continue
            if factor is None and (x.op is reduction.reduce or _is_whole(names, sizes)):  # sums are not ambiguous
                continue
            if factor is None:
                raise error(f"dimension {d} must be whole, but is split along {_names(names)}")
            if axes.setdefault(factor, names) != names:
                both = f"{_names(axes[factor])} and {_names(names)}"
                which = "contracted dimensions" if factor in contracted else "dimensions that go together"
                raise error(f"{which} are split in different ways, along {both}")
    for factor, _ in factors.reductions:
        _check_reduced(x, factors, factor, operands, sizes, error)
    found: list[Spec] = []
    for shape, dimensions in zip(leaf_shapes(x.shape), factors.results, strict=True):
        spec = tuple(axes.get(factor, ()) if factor is not None else () for factor in dimensions)
        _check_result(shape, spec, sizes, error)
        found.append(spec)
    return found


def _check_reduced(
    x: Instruction,
    factors: Factors,
    factor: int,
    operands: Sequence[Spec],
    sizes: Sizes,
    error: Callable[[str], Exception],
) -> None:
    """An error for a sum over parts that may be left as it is, added up, or scattered; and for elements that are looked
    up in parts of others."""
    split = [
        spec[d]
        for spec, dimensions in zip(operands, factors.operands, strict=True)
        for d in _places(dimensions, factor)
        if spec[d]
    ]
    if x.op.name in _CONTRACTIONS and len(split) > 1:
        raise error(f"both operands are split along {_names(split[0])} where they are contracted, so it is ambiguous")
    if x.op.name == "convolution" and split and not _is_whole(split[0], sizes):
        raise error(f"an operand is split along {_names(split[0])} where features are contracted")
    if x.op.name in _LOOKING_UP and split and not _is_whole(split[0], sizes):
        raise error(f"elements are looked up along a dimension that is split along {_names(split[0])}")


def _is_whole(names: Sequence[Any], sizes: Sizes) -> bool:
    """Whether axes have one device together, which has all of what is split along them."""
    return math.prod(sizes[name] for name in names) == 1


def _places(dimensions: Dimensions, factor: int) -> Iterator[int]:
    return (d for d, own in enumerate(dimensions) if own == factor)


def _check_result(shape: Shape, spec: Spec, sizes: Sizes, error: Callable[[str], Exception]) -> None:
    names = [name for axes in spec for name in axes]
    if len(set(names)) < len(names):
        raise error(f"two dimensions of the result would be split along the same axis, as {shown(shape, spec)}")
    for d, (n, axes) in enumerate(zip(shape.dimensions, spec, strict=True)):
        if n % math.prod(sizes[name] for name in axes):
            raise error(f"dimension {d} of the result has the size {n}, which has no equal parts along {_names(axes)}")


def _names(axes: Sequence[Any]) -> str:
    return " and ".join(map(repr, axes))


def _constraint(x: Instruction, operands: Sequence[Spec], sizes: Sizes) -> list[Spec]:
    wanted = x.attributes.spec
    pairs = zip(wanted, operands[0], strict=True)
    spec = tuple(own if part is UNCONSTRAINED else axes_of(part) for part, own in pairs)
    return [kept_axes(with_sums(spec, sums_of(wanted)), sizes)]


def _shard_map(x: Instruction, operands: Sequence[Spec], sizes: Sizes) -> list[Spec]:
    """Along the axes that the function is about as its specs say, along others as the types inside of it."""
    a = x.attributes
    others = {name: size for name, size in sizes.items() if name not in a.own_axes}
    outside = [kept_axes(spec, sizes) for spec in a.out_specs]
    if not others:
        return outside
    inside = output_types(a.to_apply, [kept_axes(spec, others) for spec in operands], others)
    pairs = zip(outside, inside, strict=True)
    return [with_sums(map(operator.add, spec, other), sums_of(spec)) for spec, other in pairs]


def _dynamic_slice(x: Instruction, operands: Sequence[Spec], sizes: Sizes) -> list[Spec]:
    """That of the operand, also of dimensions of which there is a part, if it has equal ones."""
    error = partial(_refused, x, operands)
    _check_result(x.array_shape, operands[0], sizes, error)
    return [operands[0]]


def _is_repeated(x: Instruction) -> bool:
    """Whether an array repeats elements along new dimensions, or is a constant: then each device may have any part."""
    while x.op in (movement.reshape, movement.transpose, elementwise.convert):
        (x,) = x.operands
    return x.op in (movement.broadcast, movement.constant, movement.iota)


def _collective(x: Instruction, operands: Sequence[Spec], sizes: Sizes) -> list[Spec]:
    """What devices tell each other along a manual axis is split along others as it was."""
    error = partial(_refused, x, operands)
    for shape, spec in zip(leaf_shapes(x.shape), operands, strict=True):
        _check_result(shape, spec, sizes, error)
    return list(operands)


def _reshape(x: Instruction, operands: Sequence[Spec], sizes: Sizes) -> list[Spec]:
    """Dimensions that become one are split along the axes of all, if none after the first whole one is split; one that
    becomes several is split along its axes in order. Others follow the factors of the operation."""
    (operand,) = x.operands
    before, after = operand.array_shape.dimensions, x.array_shape.dimensions
    assert x.op.sharding is not None
    factors = x.op.sharding(operand.array_shape, **x.attributes._asdict())
    found: list[tuple[Any, ...]] = [()] * len(after)
    for inputs, outputs in _reshaped_dimensions(before, after):
        axes = [operands[0][d] for d in inputs]
        split = [names for names in axes if names]
        if len(outputs) == 1 and axes[: len(split)] == split:
            found[outputs[0]] = tuple(chain(*split))
        elif len(inputs) == 1:
            rest = list(axes[0])
            for d in outputs:
                while rest and after[d] % math.prod(sizes[name] for name in (*found[d], rest[0])) == 0:
                    found[d] = (*found[d], rest.pop(0))
                if rest and math.prod(sizes[name] for name in found[d]) != after[d]:
                    return _by_factors(x, factors, operands, sizes)
        elif split:
            return _by_factors(x, factors, operands, sizes)
    _check_result(x.array_shape, tuple(found), sizes, partial(_refused, x, operands))
    return [tuple(found)]


def _reshaped_dimensions(before: Sequence[Any], after: Sequence[Any]) -> Iterable[tuple[Sequence[int], Sequence[int]]]:
    """Which dimensions become which by a reshape, in groups that are as small as possible; without those of size 1. One
    group of all, where sizes are zero or symbolic."""
    if not any(is_symbolic(n) or n == 0 for n in (*before, *after)):
        return split_dimensions(before, after)
    inputs, outputs = ([d for d, n in enumerate(shape) if is_symbolic(n) or n != 1] for shape in (before, after))
    return [(inputs, outputs)]


def _concatenate(x: Instruction, operands: Sequence[Spec], sizes: Sizes) -> list[Spec]:
    """That of all operands, but for those that may be split in any way."""
    known = {spec for o, spec in zip(x.operands, operands, strict=True) if any(spec) or not _is_repeated(o)}
    if len(known) > 1:
        raise ShardingTypeError(f"{x.op.name}: operands are split in different ways, {_shown(x, operands)}; {_FIX}.")
    assert x.op.sharding is not None
    factors = x.op.sharding(*(o.array_shape for o in x.operands), **x.attributes._asdict())
    return _by_factors(x, factors, operands, sizes)


def _call(x: Instruction, operands: Sequence[Spec], sizes: Sizes) -> list[Spec]:
    return output_types(x.attributes.to_apply, operands, sizes)


def _while(x: Instruction, operands: Sequence[Spec], sizes: Sizes) -> list[Spec]:
    """What is carried, to a fixed point: a dimension that is whole at the start may be split later."""
    carry = list(operands)
    while True:
        after = [_joined(x, *pair) for pair in zip(carry, output_types(x.attributes.body, carry, sizes), strict=True)]
        if after == carry:
            return after
        carry = after


def _conditional(x: Instruction, operands: Sequence[Spec], sizes: Sizes) -> list[Spec]:
    found, *others = (output_types(branch, operands[1:], sizes) for branch in x.attributes.branch_computations)
    for other in others:
        found = [_joined(x, *pair) for pair in zip(found, other, strict=True)]
    return found


def _joined(x: Instruction, one: Spec, other: Spec) -> Spec:
    """The type of what has one type or another; a whole dimension goes with one that is split."""
    if sums_of(one) != sums_of(other) or any(a and b and a != b for a, b in zip(one, other, strict=True)):
        raise ShardingTypeError(
            f"{x.op.name}: a value is split as {one} in one place, and as {other} in another; {_FIX}."
        )
    return with_sums((a or b for a, b in zip(one, other, strict=True)), sums_of(one))


_RULES: dict[str, Callable[[Instruction, Sequence[Spec], Sizes], list[Spec]]] = {
    "callback": lambda x, flat, sizes: _whole(x),  # the host gets whole arrays and gives such
    "concatenate": _concatenate,
    "dynamic-slice": _dynamic_slice,
    "reshape": _reshape,
}
_OF_COMPUTATIONS: dict[str, Callable[[Instruction, Sequence[Spec], Sizes], list[Spec]]] = {
    "call": _call,
    "conditional": _conditional,
    "shard-map": _shard_map,
    "sharding-constraint": _constraint,
    "while": _while,
}
