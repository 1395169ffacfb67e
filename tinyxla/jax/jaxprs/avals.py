"""Abstract values: what is known of an array while a function is traced, and the types that stand for zeros and unknown
values in derivative rules."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tinyxla.api.functions import ShapeDtypeStruct
from tinyxla.errors import ArgumentError
from tinyxla.jax.devices.memory_spaces import Space, space_of
from tinyxla.jax.jaxprs.traces.current_trace import ProgramTrace
from tinyxla.ops import movement
from tinyxla.partitioning.memory_kinds import memory_kind_of
from tinyxla.shapes import KeyType, Shape, element_type
from tinyxla.shapes.symbolic import is_symbolic
from tinyxla.sharding import AbstractMesh, get_abstract_mesh
from tinyxla.tracing import pytrees
from tinyxla.tracing.array import ConcreteArray
from tinyxla.tracing.core import state
from tinyxla.tracing.promotion import as_array, float0
from tinyxla.tracing.references import Reference
from tinyxla.tracing.shardings import NamedSharding, SingleDeviceSharding, Sums, axes_of, spec_of
from tinyxla.transforms.key_arrays import KeyArray
from tinyxla.transforms.manual import kinds_of_axes
from tinyxla.transforms.sharding_types import shown_axes, split_along, type_of


class AbstractValue:
    """The base class of abstract values. Types above arrays say what arrays they consist of; others are these
    themselves."""

    def lo_ty(self) -> list[Any]:
        """The types of the arrays that a value consists of."""
        return [self]

    def lower_val(self, value: Any) -> list[Any]:
        """The arrays of a value."""
        return [value]

    def raise_val(self, *values: Any) -> Any:
        """The value that consists of arrays."""
        (value,) = values
        return value

    def normalize(self) -> Any:
        """The type without what values of the same type may differ in."""
        return self


def _dtype_of(dtype: Any) -> np.dtype[Any]:
    """The dtype that a scalar constructor has, or that NumPy finds; a scalar type of NumPy's has an attribute of the
    name, too."""
    found = getattr(dtype, "dtype", None)
    return found if isinstance(found, np.dtype) else np.dtype(dtype)


@functools.lru_cache(256)
def _replicated(mesh: AbstractMesh, rank: int) -> NamedSharding:
    """The sharding of an array that is not split."""
    return NamedSharding(mesh, (None,) * rank)


class ManualAxisType(NamedTuple):
    """Along which axes of a mesh a value inside of `shard_map` varies among devices, is a summand of each, or is the
    same and its cotangent a summand."""

    varying: frozenset[Any] = frozenset()
    unreduced: frozenset[Any] = frozenset()
    reduced: frozenset[Any] = frozenset()

    def invarying(self, mesh: AbstractMesh) -> frozenset[Any]:
        """The manual axes of a mesh along which the value is the same on all devices."""
        return frozenset(mesh.manual_axes) - self.varying - self.unreduced - self.reduced


class ShapedArray(AbstractValue):
    """The shape, element type and weakness of an array.

    Example:
        >>> ShapedArray((2, 3), "float32")
        ShapedArray(float32[2,3])
        >>> ShapedArray((2, 3), np.float32) == ShapedArray((2, 3), "float32")
        True
    """

    def __init__(
        self,
        shape: Sequence[int],
        dtype: Any,
        weak_type: bool = False,
        *,
        sharding: Any = None,
        vma: Any = frozenset(),
        memory_space: Any = None,
        manual_axis_type: Any = None,
    ) -> None:
        self.shape = tuple(n if is_symbolic(n) else int(n) for n in shape)
        self.dtype: Any = dtype if isinstance(dtype, KeyType) else _dtype_of(dtype)
        self.weak_type = bool(weak_type)
        is_one_device = sharding is None or isinstance(sharding, SingleDeviceSharding)
        layout: Any = _replicated(get_abstract_mesh(), len(self.shape)) if is_one_device else sharding
        self.manual_axis_type = ManualAxisType(frozenset(vma)) if manual_axis_type is None else manual_axis_type
        self.memory_space = Space.Device if memory_space is None else memory_space
        if any(layout.spec):
            layout.dimension_axes(self.shape, "ShapedArray")  # refuses one that does not fit
        self.sharding: Any = layout.with_rank(len(self.shape)) if isinstance(layout, NamedSharding) else layout

    def _key(self) -> Any:
        return type(self), self.shape, self.dtype, self.weak_type, self.memory_space, self.manual_axis_type

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ShapedArray) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    mat = property(lambda self: self.manual_axis_type)

    @property
    def vma(self) -> frozenset[Any]:
        return self.manual_axis_type.varying

    def update(self, **changes: Any) -> ShapedArray:
        names = ("shape", "dtype", "sharding", "weak_type", "memory_space", "manual_axis_type")
        kept: dict[str, Any] = {name: getattr(self, name) for name in names}
        return ShapedArray(**(kept | changes))

    def str_short(self, short_dtypes: bool = False, **ignored: Any) -> str:
        """`float32[2,3]`, or `f32[2,3]` as jaxprs are printed."""
        name = short_name(self.dtype) if short_dtypes else str(self.dtype)
        sizes = [f"{n}{split_along(axes_of(part))}" for n, part in zip(self.shape, self.sharding.spec, strict=True)]
        space = "<host>" if self.memory_space is Space.Host else ""
        manual, spec = self.manual_axis_type, self.sharding.spec
        sums = Sums(manual.unreduced | spec.unreduced, manual.reduced | spec.reduced)
        return f"{name}{space}[{','.join(sizes)}]{shown_axes(manual.varying, sums, self.sharding.mesh)}"

    def strip_weak_type(self) -> ShapedArray:
        return self.update(weak_type=False)

    normalize = strip_weak_type

    def to_tangent_aval(self) -> ShapedArray:
        """The type of tangents: `float0` for arrays that are not floating or complex."""
        is_inexact = (
            not isinstance(self.dtype, KeyType) and self.dtype != float0 and element_type(self.dtype).is_inexact
        )
        dtype = self.dtype if is_inexact else float0
        return ShapedArray(self.shape, dtype, self.weak_type)

    at_least_vspace = to_tangent_aval
    to_cotangent_aval = to_tangent_aval

    def __repr__(self) -> str:
        weak = ", weak_type=True" if self.weak_type else ""
        return f"ShapedArray({self.str_short()}{weak})"

    def __str__(self) -> str:
        return f"{'~' * self.weak_type}{self.str_short()}"


def short_name(dtype: Any) -> str:
    """The short name of an element type in jaxprs: `f32`, `i32`, `bool`."""
    if dtype == float0:
        return "float0"
    if isinstance(dtype, KeyType):
        return str(dtype)
    kind = element_type(dtype)
    if kind.kind == "float" and kind.bits < 16:
        return kind.dtype.name.replace("float", "f")
    return "bool" if kind.kind == "pred" else f"i{kind.bits}" if kind.kind == "signed" else kind.name


hi_types: dict[type, Callable[..., Any]] = {}  # classes of values that are no arrays, and how to find a value's type


def get_aval(x: Any) -> AbstractValue:
    """The abstract value of an array, a tracer or a number."""
    kind: type = type(x)
    if kind is ConcreteArray and state.manual is None:
        return _aval_of_array(x.shape, x.dtype, x.weak_type, get_abstract_mesh())
    if isinstance(x, AbstractValue):
        return x
    if isinstance(x, (Zero, UndefinedPrimal)):
        return x.aval
    if isinstance(getattr(x, "owner", None), ProgramTrace):
        return x.aval
    if isinstance(x, Reference):
        return AbstractRef(get_aval(x.held.with_weak_type(False)))
    if isinstance(x, np.ndarray) and x.dtype == float0:
        return ShapedArray(x.shape, float0)
    if kind in hi_types:
        return hi_types[kind](x)
    if isinstance(x, (ShapeDtypeStruct, KeyArray)) or hasattr(x, "weak_type"):
        weak_type, sharding = getattr(x, "weak_type", False), sharding_along_explicit_axes(x)
        kinds = None if state.manual is None else ManualAxisType(*kinds_of_axes(x))
        space = space_of(memory_kind_of(x))
        return ShapedArray(x.shape, x.dtype, weak_type, sharding=sharding, memory_space=space, manual_axis_type=kinds)
    array = as_array(x, "get_aval")
    return ShapedArray(array.shape, array.dtype, array.weak_type)


@functools.lru_cache(1024)
def _aval_of_array(shape: tuple[int, ...], dtype: Any, weak_type: bool, mesh: AbstractMesh) -> ShapedArray:
    """That of an array on one device, while this mesh is current."""
    return ShapedArray(shape, dtype, weak_type)


def sharding_along_explicit_axes(x: Any) -> NamedSharding | None:
    """The sharding of an array along the axes that are explicit: those along which it is part of the type."""
    layout = getattr(x, "sharding", None)
    if not isinstance(layout, NamedSharding):
        return None
    return NamedSharding(layout.mesh.abstract_mesh, spec_of(type_of(x), x.ndim))


class AbstractRef(AbstractValue):
    """The type of a mutable array: that of the array which it holds."""

    def __init__(self, inner_aval: Any) -> None:
        self.inner_aval = inner_aval

    shape = property(lambda self: self.inner_aval.shape)
    dtype = property(lambda self: self.inner_aval.dtype)
    ndim = property(lambda self: self.inner_aval.ndim)
    size = property(lambda self: self.inner_aval.size)
    weak_type = property(lambda self: self.inner_aval.weak_type)
    sharding = property(lambda self: self.inner_aval.sharding)

    def __repr__(self) -> str:
        return f"Ref{{{self.inner_aval.str_short()}}}"


def of_shape(shape: Shape, weak_type: bool = False) -> ShapedArray:
    """The abstract value of an instruction's shape."""
    return ShapedArray(shape.dimensions, shape.dtype, weak_type)


class Zero:
    """A tangent or cotangent that is zero whatever the values are; `aval` is its type."""

    def __init__(self, aval: Any) -> None:
        self.aval = aval

    @staticmethod
    def from_primal_value(value: Any) -> Zero:
        """The zero tangent of a value."""
        aval: Any = get_aval(value)
        return Zero(aval.to_tangent_aval())

    def instantiate(self) -> Any:
        return instantiate_zeros(self)

    def __repr__(self) -> str:
        return f"Zero({self.aval})"


class UndefinedPrimal:
    """An operand of a transpose rule in which the primitive is linear: its value is not known."""

    def __init__(self, aval: Any) -> None:
        self.aval = aval

    def __repr__(self) -> str:
        return f"UndefinedPrimal({self.aval})"


for _kind in (Zero, UndefinedPrimal):  # as in JAX: containers of no arrays, which transformations take and give
    pytrees.register(_kind, lambda x: ((), x.aval), lambda aval, _, kind=_kind: kind(aval))


def is_undefined_primal(x: Any) -> bool:
    """Whether an operand of a transpose rule is one of those in which the primitive is linear."""
    return isinstance(x, UndefinedPrimal)


def zeros_like_aval(aval: Any) -> Any:
    """An array of zeros of an abstract value's shape and element type."""
    if aval.dtype == float0:
        return np.zeros(aval.shape, float0)
    zeros: Any = movement.full(0, aval.dtype, aval.shape)
    return zeros.with_weak_type(aval.weak_type)


def instantiate_zeros(x: Any) -> Any:
    """The array of zeros that a `Zero` stands for; anything else as it is."""
    return zeros_like_aval(x.aval) if isinstance(x, Zero) else x


def add_tangents(x: Any, y: Any) -> Any:
    """The sum of two tangents, either of which may be a `Zero`."""
    if isinstance(x, Zero):
        return y
    return x if isinstance(y, Zero) else x + y


def mapped_aval(size: int, axis: int | None, aval: Any) -> Any:
    """The abstract value of one element along a mapped axis."""
    if axis is None:
        return aval
    if aval.shape[axis] != size:
        raise ArgumentError(f"mapped_aval: axis {axis} of {aval} must have the size {size}.")
    return aval.update(shape=(*aval.shape[:axis], *aval.shape[axis:][1:]))


def unmapped_aval(size: int, axis: int | None, aval: Any, *ignored: Any) -> Any:
    """The abstract value of `size` of these along a new axis."""
    if axis is None:
        return aval
    return aval.update(shape=(*aval.shape[:axis], size, *aval.shape[axis:]))
