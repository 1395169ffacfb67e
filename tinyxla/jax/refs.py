"""Mutable arrays: `new_ref(x)` holds an array that `ref[index] = y` replaces by an updated one."""

from __future__ import annotations

from typing import Any

from tinyxla.errors import ArgumentError
from tinyxla.jax.avals import AbstractValue, ShapedArray, get_aval
from tinyxla.numpy import zeros
from tinyxla.tracing.array import Array
from tinyxla.tracing.core import Tracer, state
from tinyxla.tracing.promotion import as_array


class AbstractRef(AbstractValue):
    """The type of a mutable array: that of the array which it holds."""

    def __init__(self, inner_aval: Any) -> None:
        self.inner_aval = inner_aval

    shape = property(lambda self: self.inner_aval.shape)
    dtype = property(lambda self: self.inner_aval.dtype)

    def __repr__(self) -> str:
        return f"Ref{{{self.inner_aval.str_short()}}}"


class Ref:
    """A mutable array. It can be written by the function that made it, not by a transformed function inside that: its
    value would be known to that function alone.

    Example:
        >>> import tinyxla.jax
        >>> import jax
        >>> ref = jax.new_ref(jax.numpy.zeros(2))
        >>> ref[0] = 1.0
        >>> ref[...]
        Array([1., 0.], dtype=float32)
    """

    def __init__(self, value: Any) -> None:
        self._value: Any = as_array(value)
        self._trace = state.depth, state.staging
        self._is_freed = False

    @property
    def aval(self) -> AbstractRef:
        inner: Any = get_aval(self._value)
        return AbstractRef(ShapedArray(inner.shape, inner.dtype))

    shape = property(lambda self: self._value.shape)
    dtype = property(lambda self: self._value.dtype)
    ndim = property(lambda self: self._value.ndim)
    size = property(lambda self: self._value.size)

    def _current(self) -> Array:
        if self._is_freed:
            raise ArgumentError("This Ref has been frozen or freed; use the array that freeze gave.")
        return self._value

    def get(self) -> Array:
        """The array."""
        return self._current()

    def set(self, value: Any) -> None:
        """Replace the array."""
        self[...] = value

    def __getitem__(self, index: Any) -> Any:
        return self._current()[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        new: Any = self._current().at[index].set(as_array(value).astype(self._value.dtype))  # type: ignore[attr-defined]
        self._store(new)

    def addupdate(self, index: Any, value: Any) -> None:
        """Add to elements."""
        self._store(self._current().at[index].add(value))  # type: ignore[attr-defined]

    def _store(self, new: Any) -> None:
        if isinstance(new, Tracer) and self._trace != (state.depth, state.staging):
            raise ArgumentError(
                "A Ref is written inside a transformed function, but was made outside of it; make it inside, or give "
                "the array as an argument and the updated one as a result."
            )
        self._value = new

    def freeze(self) -> Array:
        """The array; the Ref cannot be used any more."""
        value = self._current()
        self._is_freed = True
        return value

    def __len__(self) -> int:
        return len(self._value)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return self._current().__array__(dtype, copy)

    def __repr__(self) -> str:
        return f"Ref({self._value!r})"


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
