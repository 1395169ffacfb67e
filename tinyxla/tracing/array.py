"""Arrays: the type users see, and the concrete one that holds a NumPy buffer.

`Array` has all operators and methods. They are those of the NumPy-like API and live there; that module tells this one of
itself when it is imported (`set_namespace`), since it is built on arrays.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tinyxla.errors import ArgumentError, TracerError

_namespace: Any = None


def set_namespace(namespace: Any) -> None:
    """Say where the operators' functions are."""
    global _namespace
    _namespace = namespace


class Array:
    """An immutable n-dimensional array: concrete, or a tracer that stands for one inside a transformed function.

    Arithmetic promotes types and broadcasts as `tinyxla.numpy` does; indexing gives arrays; `x.at[index]` updates copies.
    """

    __slots__ = ("__weakref__",)
    __array_priority__ = 100

    weak_type: bool

    def __init__(self, *args: Any) -> None:
        raise ArgumentError("Array is not called directly; use tinyxla.numpy.array or asarray.")

    # --- what it is

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the dimensions."""
        raise NotImplementedError

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type."""
        raise NotImplementedError

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        count = 1
        for n in self.shape:
            count *= n
        return count

    @property
    def nbytes(self) -> int:
        """The size of the elements in bytes."""
        return self.size * self.dtype.itemsize

    @property
    def itemsize(self) -> int:
        """The size of an element in bytes."""
        return self.dtype.itemsize

    def concrete(self, wanted: str) -> ConcreteArray:
        """This array if it has a value now; else an error that says what `wanted` it."""
        raise NotImplementedError

    def block_until_ready(self) -> Array:
        """This array; results are always ready."""
        return self

    # --- values for Python

    def __bool__(self) -> bool:
        return bool(self.concrete("A Python condition (if, while, and, or, not, bool())").numpy())

    def __int__(self) -> int:
        return int(self.concrete("int()").numpy())

    def __float__(self) -> float:
        return float(self.concrete("float()").numpy())

    def __complex__(self) -> complex:
        return complex(self.concrete("complex()").numpy())

    def __index__(self) -> int:
        return self.concrete("A Python index").numpy().__index__()

    def item(self, *index: int) -> Any:
        """The only element (or the one at `index`) as a Python number."""
        return self.concrete("item()").numpy().item(*index)

    def tolist(self) -> Any:
        """Nested lists of Python numbers."""
        return self.concrete("tolist()").numpy().tolist()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        value = self.concrete("A NumPy array").numpy()
        return np.array(value, dtype=dtype, copy=copy)

    def __len__(self) -> int:
        if not self.shape:
            raise ArgumentError("len() of an array without dimensions; use .size.")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        if not self.shape:
            raise ArgumentError("An array without dimensions cannot be iterated over.")
        return (self[k] for k in range(self.shape[0]))

    __hash__: Any = None  # as NumPy: equality is element by element

    def __setitem__(self, index: Any, value: Any) -> None:
        raise ArgumentError(f"Arrays are immutable: instead of x[{index!r}] = y write x = x.at[{index!r}].set(y).")


class ConcreteArray(Array):
    """An array with a value."""

    __slots__ = ("_signature", "_value", "weak_type")

    def __init__(self, value: Any, weak_type: bool = False) -> None:
        self._value = value  # an ndarray, or the NumPy scalar that NumPy makes of one without dimensions
        self.weak_type = weak_type

    def numpy(self) -> Any:
        """The value, which must not be written to: an ndarray, or a NumPy scalar."""
        return self._value

    @property
    def shape(self) -> tuple[int, ...]:
        return self._value.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._value.dtype

    @property
    def ndim(self) -> int:
        return self._value.ndim

    @property
    def size(self) -> int:
        return self._value.size

    def concrete(self, wanted: str) -> ConcreteArray:
        return self

    def signature(self) -> int:
        """A number that stands for element type, shape and weakness: what compiled functions are looked up by."""
        try:
            return self._signature
        except AttributeError:
            key = (self.dtype, self.shape, self.weak_type)
            self._signature = _signatures.setdefault(key, len(_signatures))
            return self._signature

    def dense(self) -> np.ndarray[Any, Any]:
        """The value as a row-major ndarray without gaps."""
        value = self._value
        if type(value) is not np.ndarray or not value.flags.c_contiguous or not value.flags.aligned:
            value = self._value = np.array(value, order="C")
        return value


_signatures: dict[Any, int] = {}


def wrap(value: Any) -> ConcreteArray:
    """A concrete array that holds a NumPy array, which nobody writes to from here on."""
    return ConcreteArray(value)


def is_array(value: Any) -> bool:
    return isinstance(value, Array)


def no_numpy_out(function: str) -> TracerError:
    """The error for NumPy functions that would write into an array."""
    return TracerError(f"{function} writes into an array, but arrays are immutable; use its result instead.")
