"""Indexed updates as types: what `x.at` and `x.at[index]` have; `tinyxla.numpy.indexing.indexed` implements them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypedDict, Unpack

if TYPE_CHECKING:
    from tinyxla.tracing.array import Array, Operand

Mode = Literal["drop", "fill", "clip", "wrap", "promise_in_bounds"]


class UpdateOptions(TypedDict, total=False):
    """The keywords of all updates."""

    mode: Mode | Any  # an `lax.GatherScatterMode`, too
    unique_indices: bool
    indices_are_sorted: bool
    wrap_negative_indices: bool
    out_sharding: Any


class IndexedUpdate(Protocol):
    """The elements at an index, to be read or updated: `x.at[index]`. Updates give a new array."""

    def get(
        self,
        *,
        mode: Mode | Any = None,
        fill_value: Operand | None = None,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        wrap_negative_indices: bool = True,
        out_sharding: Any = None,
    ) -> Array:
        """The elements."""
        ...

    def set(self, values: Operand | list[Any], **options: Unpack[UpdateOptions]) -> Array:
        """The elements replaced."""
        ...

    def add(self, values: Operand | list[Any], **options: Unpack[UpdateOptions]) -> Array:
        """Values added to the elements."""
        ...

    def subtract(self, values: Operand | list[Any], **options: Unpack[UpdateOptions]) -> Array:
        """Values subtracted from the elements."""
        ...

    def multiply(self, values: Operand | list[Any], **options: Unpack[UpdateOptions]) -> Array:
        """The elements multiplied by values."""
        ...

    def mul(self, values: Operand | list[Any], **options: Unpack[UpdateOptions]) -> Array:
        """`multiply`."""
        ...

    def divide(self, values: Operand | list[Any], **options: Unpack[UpdateOptions]) -> Array:
        """The elements divided by values."""
        ...

    def power(self, values: Operand | list[Any], **options: Unpack[UpdateOptions]) -> Array:
        """The elements to the power of values."""
        ...

    def min(self, values: Operand | list[Any], **options: Unpack[UpdateOptions]) -> Array:
        """The smaller of elements and values."""
        ...

    def max(self, values: Operand | list[Any], **options: Unpack[UpdateOptions]) -> Array:
        """The larger of elements and values."""
        ...

    def apply(self, func: Callable[[Array], Any], **options: Unpack[UpdateOptions]) -> Array:
        """The elements replaced by a function of them."""
        ...


class IndexedUpdates(Protocol):
    """`x.at`, which takes an index in brackets."""

    def __getitem__(self, index: Any) -> IndexedUpdate: ...
