"""Block specifications: which part of an array a program of a grid reads or writes (`BlockSpec`), and grids of such.

A dimension of a block is blocked (the index map counts blocks), squeezed (one element, a dimension that the kernel does
not see) or counts elements (`Element`, whose blocks may overlap and be padded).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

import numpy as np

from tinyxla import lax, numpy as jnp
from tinyxla.errors import ArgumentError, ShapeError
from tinyxla.jax.jaxprs.refs import Ref, new_ref
from tinyxla.jax.pallas.interpretation import uninitialized
from tinyxla.shapes import element_type


class Blocked(NamedTuple):
    """A dimension in blocks of `block_size` elements, which the index map counts; a plain integer means the same."""

    block_size: int


class Squeezed:
    """A dimension of which a block has one element, and the kernel none; None means the same."""

    block_size = 1

    def __repr__(self) -> str:
        return "Squeezed()"


squeezed = Squeezed()


class Element(NamedTuple):
    """A dimension of which a block has `block_size` elements from the one on that the index map gives. The array is
    padded by so many elements at its two ends, whose values are undefined."""

    block_size: int
    padding: tuple[int, int] = (0, 0)

    def __repr__(self) -> str:
        return f"Element({self.block_size}{f', padding={self.padding}' if self.padding != (0, 0) else ''})"


class RevisitMode(Enum):
    """Whether a buffer is filled again for a block that was there before."""

    ANY = "any"
    IMMEDIATE = "immediate"


@dataclass(frozen=True)
class Buffered:
    """How many buffers an accelerator has for a block. Here blocks are read where they are."""

    buffer_count: int
    use_lookahead: bool = False
    revisit: RevisitMode | None = None


@dataclass
class BlockSpec:
    """The block of an array that a program of the grid has.

    Args:
        block_shape: for each dimension its block size, None (squeezed), `Element`, or `Blocked`; None is the array.
        index_map: a function of the program's indices, and of references to the prefetched scalars, that gives the
            index of the block along each dimension; by default that is zeros.
        pipeline_mode: how an accelerator buffers blocks.
        memory_space: the memory that an accelerator has blocks in.
    """

    block_shape: Sequence[Any] | None = None
    index_map: Callable[..., Any] | None = None
    pipeline_mode: Buffered | None = None
    memory_space: Any = field(default=None, kw_only=True)


@dataclass(frozen=True)
class NoBlockSpec:
    """The specification of an argument that has none: the kernel has the array."""

    def __repr__(self) -> str:
        return "NoBlockSpec"


no_block_spec = NoBlockSpec()


@dataclass
class GridSpec:
    """A grid, with the blocks of arguments and results, and the types of memory that all programs share.

    Args:
        grid: the number of programs along each axis; an integer is one axis.
        in_specs: for each argument a `BlockSpec`, or a pytree of them as the argument is.
        out_specs: the same for results.
        scratch_shapes: the types of further references that the kernel gets.
    """

    grid: Any = ()
    in_specs: Any = no_block_spec
    out_specs: Any = no_block_spec
    scratch_shapes: Any = ()
    num_scalar_prefetch = 0


@dataclass
class PrefetchScalarGridSpec(GridSpec):
    """A grid whose first `num_scalar_prefetch` arguments are given to index maps, too, and whole to the kernel."""

    num_scalar_prefetch: int = 0

    def __init__(
        self,
        num_scalar_prefetch: int,
        grid: Any = (),
        in_specs: Any = no_block_spec,
        out_specs: Any = no_block_spec,
        scratch_shapes: Any = (),
    ) -> None:
        super().__init__(grid, in_specs, out_specs, scratch_shapes)
        self.num_scalar_prefetch = num_scalar_prefetch


class Block(NamedTuple):
    """The block of a program: a reference to the array, one to the block, and where that starts in the array. An array
    of one block is its own block."""

    whole: Any
    local: Any
    starts: Sequence[Any]


class Blocks:
    """The blocks of one array that is held by a reference: its dimensions as `BlockSpec` says."""

    def __init__(self, name: str, spec: BlockSpec | NoBlockSpec, shape: tuple[int, ...]) -> None:
        self._name = name
        given = None if isinstance(spec, NoBlockSpec) else spec.block_shape
        self.is_whole = given is None
        if given is None:
            return
        assert isinstance(spec, BlockSpec)
        self._dims = [_dimension(name, size) for size in given]
        if len(self._dims) != len(shape):
            raise ShapeError(
                f"pallas_call: the block shape {tuple(given)} of {name} must have as many dimensions as its array, "
                f"whose shape is {shape}. Block shape for {name} must have the same number of dimensions as the array "
                f"shape {shape}."
            )
        self._index_map = spec.index_map
        self._sizes = [dim.block_size for dim in self._dims]
        self._visible = [size for size, dim in zip(self._sizes, self._dims, strict=True) if dim is not squeezed]
        self.padding = [_padding(dim, size) for dim, size in zip(self._dims, shape, strict=True)]

    def padded(self, x: Any) -> Any:
        """The array with undefined elements at its ends, so that it consists of whole blocks."""
        if self.is_whole or not any(map(any, self.padding)):
            return x
        return lax.pad(x, uninitialized((), x.dtype), [(low, high, 0) for low, high in self.padding])

    def cropped(self, x: Any) -> Any:
        """The array without such elements."""
        if self.is_whole or not any(map(any, self.padding)):
            return x
        ends = [size - high for size, (_, high) in zip(x.shape, self.padding, strict=True)]
        return lax.slice(x, [low for low, _ in self.padding], ends)

    def load(self, ref: Any, indices: Sequence[Any], scalars: Sequence[Ref]) -> Block:
        """The block that a program with these indices has of the padded array that a reference holds."""
        if self.is_whole:
            return Block(ref, ref, ())
        starts = self._starts(indices, scalars)
        if tuple(self._visible) == tuple(ref.shape):  # there is one block
            return Block(ref, ref, ())
        part = lax.dynamic_slice(ref[...], starts, self._sizes)
        return Block(ref, new_ref(part.reshape(self._visible)), starts)

    def store(self, block: Block) -> None:
        """Write what a program left in its block into the array."""
        if block.local is not block.whole and block.local.is_written:
            part = block.local[...].reshape(self._sizes)
            block.whole[...] = lax.dynamic_update_slice(block.whole[...], part, block.starts)

    def _starts(self, indices: Sequence[Any], scalars: Sequence[Ref]) -> list[Any]:
        """The first element of the block along each dimension."""
        if self._index_map is None:
            return [np.int32(0)] * len(self._dims)
        given = self._index_map(*indices, *scalars)
        found = tuple(given) if isinstance(given, tuple | list) else (given,)
        if len(found) != len(self._dims):
            raise ArgumentError(
                f"pallas_call: the index map of {self._name} gives {len(found)} of the {len(self._dims)} "
                f"indices of a block. Index map function {located(self._index_map)} for {self._name} must return "
                f"{len(self._dims)} values to match its block_shape. Currently returning {len(found)} values."
            )
        for k, index in enumerate(found):
            if np.ndim(index) or not element_type(jnp.result_type(index)).is_integer:
                raise ArgumentError(
                    f"pallas_call: the index map of {self._name} gives {index!r} for axis {k}; an index is an integer. "
                    f"Index map function {located(self._index_map)} for {self._name} must return integer scalars. "
                    f"Output[{k}] has type {jnp.result_type(index).name}{list(np.shape(index)) or '[]'}."
                )
        return [i if isinstance(dim, Element) else i * dim.block_size for i, dim in zip(found, self._dims, strict=True)]


def located(function: Any) -> str:
    """The name of a function and where it is defined."""
    code = getattr(function, "__code__", None)
    name = getattr(function, "__name__", type(function).__name__)
    return name if code is None else f"{name} at {code.co_filename}:{code.co_firstlineno}"


def _dimension(name: str, given: Any) -> Any:
    if given is None or isinstance(given, Squeezed):
        return squeezed
    if isinstance(given, Blocked | Element):
        return given
    if isinstance(given, int | np.integer) and given > 0:
        return Blocked(int(given))
    raise ArgumentError(
        f"pallas_call: the block shape of {name} has the entry {given!r}; an entry is a positive number, None, "
        "Blocked, Element or Squeezed."
    )


def _padding(dim: Any, size: int) -> tuple[int, int]:
    return dim.padding if isinstance(dim, Element) else (0, -size % dim.block_size)
