"""Mutable arrays: `new_ref(x)` holds an array that `ref[index] = y` replaces by an updated one."""

from __future__ import annotations

from typing import Any

from tinyxla.errors import DTypeError
from tinyxla.jax.jaxprs.avals import AbstractValue, get_aval
from tinyxla.numpy import zeros
from tinyxla.shapes import element_type
from tinyxla.tracing.array import Array, ConcreteArray
from tinyxla.tracing.promotion import as_array
from tinyxla.tracing.references import Reference

_KINDS = {"pred": 0, "unsigned": 1, "signed": 1, "float": 2, "complex": 3}


class Ref(Reference):
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

    def get(self) -> Array:
        """The array."""
        return self.read()

    def set(self, value: Any) -> None:
        """Replace the array."""
        self[...] = value

    def __getitem__(self, index: Any) -> Any:
        value = self.read()
        return value if index is Ellipsis else value[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        old: Any = self.read()
        self.write(old.at[index].set(self._converted(value)))

    def addupdate(self, index: Any, value: Any) -> None:
        """Add to elements."""
        old: Any = self.read()
        self.write(old.at[index].add(self._converted(value)))

    def _converted(self, value: Any) -> Any:
        """A value in the element type of the array, which has to have all numbers of its kind."""
        new: Any = as_array(value)
        kinds = [element_type(x.dtype).kind for x in (new, self._value)]
        if all(kind in _KINDS for kind in kinds) and _KINDS[kinds[0]] > _KINDS[kinds[1]]:
            raise DTypeError(
                f"A Ref of {self._value.dtype.name} cannot hold a value of {new.dtype.name}; convert it with "
                f"astype({self._value.dtype.name!r})."
            )
        return new.astype(self._value.dtype)

    def freeze(self) -> Array:
        """The array; the Ref cannot be used any more."""
        return self.free()

    def __len__(self) -> int:
        return len(self._value)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return self.read().__array__(dtype, copy)

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
    ref.addupdate(... if index is None else index, value)
