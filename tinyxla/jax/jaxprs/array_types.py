"""Types of the arrays of a computation over a mesh: how they are split along explicit axes, and along which axes they
vary among devices, or are partial sums. The abstract values of jaxprs have both."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tinyxla.errors import ShardingTypeError
from tinyxla.hlo import Instruction
from tinyxla.jax.jaxprs.avals import ManualAxisType, ShapedArray
from tinyxla.ops.tuples import leaf_shapes
from tinyxla.shapes import Shape
from tinyxla.tracing.axis_types import axis_types, explicit_axes
from tinyxla.tracing.core import state, varying_axes
from tinyxla.tracing.meshes import AbstractMesh, AxisType
from tinyxla.tracing.shardings import NamedSharding, Spec, spec_of
from tinyxla.transforms.manual import SumAxis, kind_along, results_vary
from tinyxla.transforms.sharded import named
from tinyxla.transforms.sharding_types import kept_axes, result_types, type_of, typed_mesh

Axes = frozenset[Hashable]
_NONE: Axes = frozenset()


class ArrayType(NamedTuple):
    """The axes along which an array varies, with a `SumAxis` for others, and how it is split along explicit ones."""

    axes: Axes
    spec: Spec


class Types(NamedTuple):
    """The types of a computation's parameters.

    Attributes:
        mesh: a mesh with explicit axes, with the kinds that its axes have there; None if there is none.
        explicit: these axes, with their sizes.
        names: the axes along which it is known what varies, with a `SumAxis` for others.
        inputs: the types of the first parameters; others are whole, and the same on all devices.
    """

    mesh: AbstractMesh | None
    explicit: tuple[tuple[Hashable, int], ...]
    names: Axes
    inputs: tuple[ArrayType, ...]

    def of_parameters(self, shapes: Sequence[Shape]) -> list[ArrayType]:
        """The types of parameters of these shapes."""
        return [*self.inputs, *(ArrayType(_NONE, ((),) * x.rank) for x in shapes[len(self.inputs) :])]

    def of_results(self, x: Instruction, operands: Sequence[Sequence[ArrayType]]) -> list[ArrayType]:
        """The types of the arrays of an instruction's result. Of what has no type, as on the way back of derivatives,
        it is that of an array which is not split."""
        axes = results_vary(x, [[t.axes for t in several] for several in operands])
        try:
            specs = result_types(x, [[t.spec for t in several] for several in operands], dict(self.explicit))
        except ShardingTypeError:
            specs = [((),) * shape.rank for shape in leaf_shapes(x.shape)]
        return [ArrayType(a & self.names, spec) for a, spec in zip(axes, specs, strict=True)]

    def aval(self, shape: Shape, type: ArrayType) -> ShapedArray:
        """The abstract value of an array."""
        layout = None if self.mesh is None else NamedSharding(self.mesh, spec_of(type.spec, shape.rank))
        kinds = {name: kind_along(type.axes, name) for name in self.names if not isinstance(name, SumAxis)}
        along = (frozenset(n for n, k in kinds.items() if k == kind) for kind in ("varying", "unreduced", "reduced"))
        return ShapedArray(shape.dimensions, shape.dtype, sharding=layout, manual_axis_type=ManualAxisType(*along))

    def inside(self, inputs: Sequence[ArrayType]) -> Types:
        """The types of another computation's parameters."""
        return self._replace(inputs=tuple(inputs))


def types_of_values(values: Sequence[Any]) -> Types | None:
    """The types of a computation of such values; None if there is nothing to say of them."""
    mesh = typed_mesh(values)
    names = _NONE if state.manual is None else state.manual.names
    if mesh is None and not names:
        return None
    explicit = () if mesh is None else tuple((name, mesh.shape[name]) for name in explicit_axes(mesh))
    kinds = None if mesh is None else mesh.abstract_mesh.update(axis_types=axis_types(mesh))

    def found(x: Any) -> ArrayType:
        is_split = isinstance(getattr(x, "sharding", None), NamedSharding)
        spec = kept_axes(type_of(x), dict(explicit)) if is_split else ((),) * np.ndim(x)
        return ArrayType((varying_axes(x) or _NONE) & names, spec)

    return Types(kinds, explicit, names, tuple(map(found, values)))


def types_over_mesh(mesh: AbstractMesh, specs: Sequence[Spec]) -> Types | None:
    """The types of a program whose arguments are split so over a mesh; None without explicit axes."""
    explicit = {name: mesh.shape[name] for name in mesh.explicit_axes}
    if not explicit:
        return None
    inputs = tuple(ArrayType(_NONE, kept_axes(spec, explicit)) for spec in specs)
    return Types(mesh.abstract_mesh, tuple(explicit.items()), _NONE, inputs)


def types_of_parts(x: Instruction, types: Types | None, operands: Sequence[ArrayType]) -> Types | None:
    """The types inside of a function of parts, the instruction `shard-map`, from those around it."""
    a = x.attributes
    own = frozenset(a.own_axes)
    names = _NONE if types is None else types.names
    if a.check_vma:
        names |= own | {SumAxis(kind, name) for kind in ("unreduced", "reduced") for name in own}
    explicit = () if types is None else tuple(pair for pair in types.explicit if pair[0] not in own)
    if not names and not explicit:
        return None
    mesh = types.mesh if types is not None and explicit else None
    if mesh is not None:
        kinds = zip(mesh.axis_names, mesh.axis_types, strict=True)
        mesh = mesh.update(axis_types=tuple(AxisType.Manual if name in own else kind for name, kind in kinds))
    inputs: list[ArrayType] = []
    for t, spec in zip(operands, a.in_specs, strict=True):
        axes = t.axes | (named(spec) if a.check_vma else _NONE)
        inputs.append(ArrayType(axes, kept_axes(tuple(t.spec), dict(explicit))))
    return Types(mesh, explicit, names, tuple(inputs))
