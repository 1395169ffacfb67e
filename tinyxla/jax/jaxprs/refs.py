"""Mutable arrays: `new_ref(x)` holds an array that `ref[index] = y` replaces by an updated one."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from types import EllipsisType
from typing import Any, NamedTuple

import numpy as np

from tinyxla import ShapeDtypeStruct, eval_shape
from tinyxla.errors import DTypeError
from tinyxla.jax.jaxprs.avals import AbstractValue, get_aval
from tinyxla.lax import bitcast_convert_type
from tinyxla.numpy import zeros
from tinyxla.numpy.indexing.dynamic_slices import Slice
from tinyxla.numpy.indexing.indexed import check_integers
from tinyxla.ops.movement import inverse_permutation
from tinyxla.shapes import element_type
from tinyxla.tracing import pytrees
from tinyxla.tracing.array import Array, ConcreteArray
from tinyxla.tracing.promotion import as_array
from tinyxla.tracing.references import Part, Reference

_KINDS = {"pred": 0, "unsigned": 1, "signed": 1, "float": 2, "complex": 3}


class _Elements(ABC):
    """Reads and writes of elements, by those of the whole array."""

    shape: Any
    dtype: Any

    @abstractmethod
    def read(self) -> Any:
        """The array."""

    @abstractmethod
    def write(self, new: Any) -> None:
        """Replace the array."""

    def get(self) -> Array:
        """The array."""
        return self.read()

    def set(self, value: Any) -> None:
        """Replace the array."""
        self[...] = value

    def __getitem__(self, index: Any) -> Any:
        value = self.read()
        check_integers(value, index)
        return value if index is Ellipsis else value[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        old: Any = self.read()
        check_integers(old, index)
        self.write(old.at[index].set(_converted(value, old.dtype)))

    def addupdate(self, value: Any, idx: Any = ...) -> None:
        """Add to elements."""
        old: Any = self.read()
        check_integers(old, idx)
        self.write(old.at[idx].add(_converted(value, old.dtype)))

    @property
    def at(self) -> _At:
        """Parts of the array: `ref.at[index]` is a reference to elements."""
        return _At(self)

    def reshape(self, *shape: Any) -> RefView:
        """A reference to the array in another shape."""
        return RefView(self, _Form("reshape", shape, tuple(self.shape)))

    def transpose(self, *permutation: Any) -> RefView:
        """A reference to the transposed array."""
        order = permutation[0] if permutation and isinstance(permutation[0], tuple | list) else permutation
        order = order or tuple(reversed(range(len(self.shape))))
        return RefView(self, _Form("transpose", tuple(order), inverse_permutation(tuple(order))))

    T = property(transpose)

    def bitcast(self, dtype: Any) -> RefView:
        """A reference to the bits of the array as another element type, of the same width."""
        return RefView(self, _Form("bitcast", dtype, self.dtype))

    def __len__(self) -> int:
        return self.shape[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return self.read().__array__(dtype, copy)


def _converted(value: Any, dtype: Any) -> Any:
    """A value in an element type, which has to have all numbers of its kind."""
    new: Any = as_array(value)
    kinds = [element_type(x).kind for x in (new.dtype, dtype)]
    if all(kind in _KINDS for kind in kinds) and _KINDS[kinds[0]] > _KINDS[kinds[1]]:
        raise DTypeError(
            f"A Ref of {dtype.name} cannot hold a value of {new.dtype.name}; convert it with astype({dtype.name!r})."
        )
    return new.astype(dtype)


class _At:
    """Indexing that gives references."""

    def __init__(self, ref: _Elements) -> None:
        self._ref = ref

    def __getitem__(self, index: Any) -> RefView:
        return RefView(self._ref, _Indexed(index))


def _reached(shape: tuple[int, ...], index: Any) -> tuple[int, ...]:
    """The shape of an array so large that slices of an index fit: those that are longer are for masked reads."""
    entries = index if isinstance(index, tuple) else (index,)
    if Ellipsis in [e for e in entries if isinstance(e, EllipsisType)]:
        return shape
    lengths = [(e.size - 1) * e.stride + 1 if isinstance(e, Slice) else 0 for e in entries]
    return (*map(max, shape, lengths), *shape[len(lengths) :])


@dataclass(frozen=True)
class _Form:
    """An array in another shape, order of dimensions or element type: what leads there, and back."""

    operation: str
    there: Any
    back: Any

    def take(self, x: Any) -> Any:
        return _FORMS[self.operation](x, self.there)

    def put(self, x: Any, new: Any) -> Any:
        return _FORMS[self.operation](new, self.back)


_FORMS: dict[str, Callable[[Any, Any], Any]] = {
    "reshape": lambda x, shape: x.reshape(*shape),
    "transpose": lambda x, order: x.transpose(order),
    "bitcast": bitcast_convert_type,
}


class _Indexed(NamedTuple):
    """The elements at an index: a container of what of the index is traced or an array."""

    index: Any

    def take(self, x: Any) -> Any:
        return x[self.index]

    def put(self, x: Any, new: Any) -> Any:
        return x.at[self.index].set(new)


class _Entry(NamedTuple):
    """An entry of an index that is no array: slices have no hash."""

    kind: type
    values: tuple[Any, ...]


def _index_parts(indexed: _Indexed) -> tuple[tuple[Any, ...], Any]:
    """The arrays of an index, in which slices of a traced start have one, and the rest."""
    index = indexed.index
    entries = index if isinstance(index, tuple) else (index,)
    arrays: list[Any] = []
    rest: list[Any] = []
    for entry in entries:
        if isinstance(entry, Slice):
            arrays.append(entry.start)
            rest.append(_Entry(Slice, (entry.size, entry.stride)))
        elif isinstance(entry, slice):
            rest.append(_Entry(slice, (entry.start, entry.stop, entry.step)))
        elif isinstance(entry, Array | np.ndarray):
            arrays.append(entry)
            rest.append(_Entry(Array, ()))
        else:
            rest.append(entry)
    return tuple(arrays), (isinstance(index, tuple), tuple(rest))


def _index_of(rest: Any, arrays: Any) -> _Indexed:
    is_tuple, entries = rest
    given = iter(arrays)
    index: list[Any] = []
    for entry in entries:
        if not isinstance(entry, _Entry):
            index.append(entry)
        elif entry.kind is slice:
            index.append(slice(*entry.values))
        else:
            array = next(given)
            index.append(Slice(array, *entry.values) if entry.kind is Slice else array)
    return _Indexed(tuple(index) if is_tuple else index[0])


pytrees.register(_Indexed, _index_parts, _index_of)


@dataclass(frozen=True)
class _Functions:
    """Functions that give a part of an array, and put it there."""

    take: Callable[[Any], Any]
    put: Callable[[Any, Any], Any]


class RefView(_Elements, Part):
    """A part of what a reference holds, or another form of it; reads and writes are those of the reference.

    Example:
        >>> import tinyxla.jax
        >>> import jax
        >>> ref = jax.new_ref(jax.numpy.zeros((2, 3)))
        >>> ref.at[1].at[:2][...] = 5.0
        >>> ref[...]
        Array([[0., 0., 0.],
               [5., 5., 0.]], dtype=float32)
    """

    def __init__(self, parent: Any, form: Any) -> None:
        self.parent, self.form = parent, form

    @classmethod
    def by(cls, parent: _Elements, take: Callable[[Any], Any], put: Callable[[Any, Any], Any]) -> RefView:
        """A part that functions give and put there."""
        return cls(parent, _Functions(take, put))

    @property
    def index(self) -> Any:
        """The index, if that is what makes the part; else None."""
        return self.form.index if isinstance(self.form, _Indexed) else None

    @functools.cached_property
    def _kind(self) -> Any:
        return eval_shape(self.form.take, ShapeDtypeStruct(_reached(self.parent.shape, self.index), self.parent.dtype))

    shape = property(lambda self: self._kind.shape)
    dtype = property(lambda self: self._kind.dtype)
    ndim = property(lambda self: self._kind.ndim)
    size = property(lambda self: self._kind.size)

    def read(self) -> Any:
        return self.form.take(self.parent.read())

    def write(self, new: Any) -> None:
        self.parent.write(self.form.put(self.parent.read(), new))

    def __repr__(self) -> str:
        return f"RefView({self.dtype.name}{list(self.shape)} of {self.parent!r})"


def _parts(view: RefView) -> tuple[tuple[Any, ...], Any]:
    indexed = isinstance(view.form, _Indexed)
    return ((view.parent, view.form), None) if indexed else ((view.parent,), view.form)


pytrees.register(RefView, _parts, lambda form, children: RefView(*children, *(() if form is None else (form,))))


class Ref(Reference, _Elements):
    """A mutable array. Functions that are compiled or run in loops and branches may use it: they get its value, and it
    gets what they leave there.

    Example:
        >>> import tinyxla.jax
        >>> import jax
        >>> ref = jax.new_ref(jax.numpy.zeros(2))
        >>> @jax.jit
        ... def step(x):
        ...     ref[0] += x
        >>> step(1.0)
        >>> step(2.0)
        >>> ref[...]
        Array([3., 0.], dtype=float32)
    """

    @property
    def aval(self) -> AbstractValue:
        return get_aval(self)

    ndim = property(lambda self: self._value.ndim)
    sharding = property(lambda self: self._value.sharding)
    weak_type = property(lambda self: self._value.weak_type)
    size = property(lambda self: self._value.size)

    def freeze(self) -> Array:
        """The array; the Ref cannot be used any more."""
        return self.free()

    def __repr__(self) -> str:
        return (
            f"Ref({repr(self._value).removeprefix('Array(')}" if isinstance(self._value, ConcreteArray) else "Ref(...)"
        )


def new_ref(init_val: Any, *, memory_space: Any = None, kind: Any = None) -> Ref:
    """A mutable array that holds a copy."""
    return Ref(init_val)


def empty_ref(ty: Any, memory_space: Any = None) -> Ref:
    """A mutable array of a shape and element type, of zeros."""
    return Ref(zeros(ty.shape, ty.dtype))


def freeze(ref: Ref) -> Array:
    """The array that a Ref holds, which cannot be used any more."""
    return ref.freeze()


def free_ref(ref: Ref) -> None:
    """Let a Ref not be used any more."""
    ref.freeze()


def get(ref: Ref, index: Any = ...) -> Array:
    """Elements of a Ref."""
    return ref[index]


def set(ref: Ref, index: Any, value: Any) -> None:
    """Replace elements of a Ref."""
    ref[... if index is None else index] = value


def swap(ref: Ref, index: Any, value: Any) -> Array:
    """Replace elements of a Ref; gives those that were there."""
    place = ... if index is None else index
    before = ref[place]
    ref[place] = value
    return before


def addupdate(ref: Ref, index: Any, value: Any) -> None:
    """Add to elements of a Ref."""
    ref.addupdate(value, ... if index is None else index)
