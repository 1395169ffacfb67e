"""Sort problem: what a sort or a top-k computes, from which `choose_algorithm` chooses the algorithm.

Arrays are permuted together along one dimension, by a comparator or in the plain order of the first array, whose
elements are the keys. `keep` says which ranks of each line are read: all, the first k, or some segments (quantiles).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np

from tinyxla.compiler.analysis.fusibility import is_index_payload, is_native_type
from tinyxla.compiler.costs import MAX_UNROLLED
from tinyxla.compiler.fusion.plan import Plan, results_of
from tinyxla.hlo import Computation, Instruction, is_constant
from tinyxla.loopir.ir.loop_ir import VECTOR_ITERATIONS, Builder, Index, Operand
from tinyxla.loopir.lower.emit import Lowering, Storage, Users
from tinyxla.loopir.target import current_target
from tinyxla.ops import indexing, movement, sorting
from tinyxla.shapes import Shape, TupleShape, element_type

REGISTER_ELEMENTS = MAX_UNROLLED  # elements, or rows of vectors, that are sorted in registers
BLOCK = VECTOR_ITERATIONS  # elements that one vector loop processes
ALL_SEGMENTS = (1 << 64) - 1  # a mask: lines have at most 64 segments


class Ranks(NamedTuple):
    """The ranks of a sorted line that are read: those before `stop` that lie in the segments of a mask. The elements of
    other ranks are undefined."""

    stop: int
    segments: int = ALL_SEGMENTS

    @classmethod
    def between(cls, start: int, stop: int, length: int) -> Self:
        """A range of the ranks of a line."""
        if start >= stop:
            return cls(0, 0)
        bits = segment_shift(length)
        return cls(stop, (2 << (stop - 1 >> bits)) - (1 << (start >> bits)))

    def union(self, other: Ranks) -> Ranks:
        return Ranks(max(self.stop, other.stop), self.segments | other.segments)


def segment_shift(length: int) -> int:
    """log2 of a segment's length."""
    return max(0, (length - 1).bit_length() - 6)


def _ranks_read_by(reader: Instruction, x: Instruction, dimension: int) -> Ranks:
    """The ranks of `x` that an instruction reads: bounds of a slice, constant indices of a gather, otherwise all."""
    size, attributes = x.array_shape.dimensions[dimension], reader.attributes
    if reader.op is movement.slice_:
        return Ranks.between(attributes.start_indices[dimension], attributes.limit_indices[dimension], size)
    if reader.op is indexing.gather and attributes.start_index_map == (dimension,) and reader.operands[0] is x:
        indices = reader.operands[1]
        while indices.op in (movement.broadcast, movement.reshape):
            (indices,) = indices.operands
        if is_constant(indices) and attributes.slice_sizes[dimension] == 1:
            ranks = np.unique(np.clip(indices.attributes.literal.value, 0, size - 1)).tolist()
            return _union(Ranks.between(rank, rank + 1, size) for rank in ranks)
    return Ranks(size)


def _union(ranks: Iterable[Ranks]) -> Ranks:
    return functools.reduce(Ranks.union, ranks, Ranks(0, 0))


class OrderedKeys(NamedTuple):
    """An order-preserving bijection from elements of a type to unsigned integers. In a `total` order all elements
    differ; otherwise -0 equals 0, and all NaNs are equal and last."""

    element: str
    descending: bool
    total: bool

    @property
    def bits(self) -> int:
        return max(8, element_type(self.element).bits)

    @property
    def type(self) -> str:
        """The type of keys, and of the bits of elements."""
        return f"u{self.bits}"

    @property
    def restores(self) -> bool:
        """Whether different elements share a key."""
        return element_type(self.element).kind == "float" and not self.total

    @property
    def constants(self) -> list[int]:
        """Constants of the mapping: the bits that are flipped if the element is negative, the bits that are always
        flipped, and the bit patterns of infinity and of the usual NaN."""
        type, sign_bit = element_type(self.element), 1 << (self.bits - 1)
        all_bits = 2 * sign_bit - 1 if self.descending else 0
        flipped_bits = (sign_bit if type.kind in ("float", "signed") else 0) ^ all_bits
        if type.kind != "float":
            return [0, flipped_bits, 0, 0]
        infinity, nan = (int(np.full((), x, type.dtype).view(f"u{self.bits // 8}")) for x in (np.inf, np.nan))
        return [sign_bit - 1, flipped_bits, infinity, nan]


def element_offset(b: Builder, line: tuple[Index, Index], i: Index, length: Index, inner: Index) -> Index:
    """The offset of element `i` of the line with these outer and inner indices, in an array whose lines have `length`
    elements, `inner` apart."""
    start = b.add(b.mul(line[0], b.mul(length, inner)), line[1])
    return b.add(start, b.mul(i, inner))


@dataclass(frozen=True)
class Lines:
    """Arrays of `outer` x `length` x `inner` elements, whose lines along the middle dimension are permuted together;
    None for an array that is not read. Iotas along `dimension` are not in memory."""

    arrays: Sequence[Storage | None]
    outer: int
    length: int
    inner: int = 1
    dimension: int | None = None

    def load(self, low: Lowering, line: Index, i: Index) -> list[Operand]:
        """The element of each array at an index of a line."""
        b, offset = low.builder, self._offset(low, line, i)
        return [
            b.convert(x.array_shape.element_type.name, i)
            if isinstance(x, Instruction) and is_index_payload(x, self.dimension)
            else b.load(low.buffer(x), offset)
            for x in self.arrays
            if x is not None
        ]

    def store(self, low: Lowering, line: Index, i: Index, values: Sequence[Operand]) -> None:
        """Store an element of each array that is read."""
        offset = self._offset(low, line, i)
        for x, value in zip(self.arrays, values, strict=True):
            if x is not None:
                low.builder.store(low.buffer(x, True), offset, value)

    def _offset(self, low: Lowering, line: Index, i: Index) -> Index:
        outer, inner = low.split_index(line, (self.outer, self.inner))
        return element_offset(low.builder, (outer, inner), i, self.length, self.inner)


@dataclass(frozen=True, eq=False)
class SortProblem:
    """A sort of arrays along one dimension.

    Attributes:
        sources: the arrays, of which the first one holds the keys if `keys` is not None.
        results: the sorted arrays; None for one that is not read.
        keep: the ranks that are read.
        comparator: the computation that tells whether an element comes before another; None for a total order.
        keys: the plain order of the first array with at most one payload; None for every other order.
    """

    x: Instruction
    plan: Plan
    sources: Sequence[Instruction]
    results: Sequence[Instruction | None]
    dimension: int
    keep: Ranks
    comparator: Computation | None
    keys: OrderedKeys | None

    @property
    def sizes(self) -> tuple[int, ...]:
        return self.sources[0].array_shape.dimensions

    @property
    def length(self) -> int:
        return self.sizes[self.dimension]

    @property
    def inner(self) -> int:
        """The distance of neighbours in a line."""
        return math.prod(self.sizes[self.dimension + 1 :])

    @property
    def lines(self) -> int:
        return math.prod(self.sizes) // max(1, self.length)

    @property
    def result_length(self) -> int:
        """The length of lines of the results: less than that of the sources for a top-k."""
        return next((r.array_shape.dimensions[self.dimension] for r in self.results if r is not None), 0)

    @property
    def is_empty(self) -> bool:
        """True if nothing is read."""
        return not self.lines * self.keep.stop * self.result_length

    @property
    def source_lines(self) -> Lines:
        return Lines(self.sources, self.lines // max(1, self.inner), self.length, self.inner, self.dimension)

    @property
    def result_lines(self) -> Lines:
        return Lines(self.results, self.lines // max(1, self.inner), self.result_length, self.inner)

    def is_iota(self, k: int) -> bool:
        """Whether a source holds the indices along the sorted dimension, which need not be loaded."""
        return is_index_payload(self.sources[k], self.dimension)

    def chunks(self, min_elements: int) -> int:
        """Chunks of each line, of at least so many elements; 1 if there are lines for all threads."""
        target = current_target()
        return 1 if self.lines >= target.tasks else max(1, min(target.balanced_tasks, self.length // min_elements))


def sort_problem(x: Instruction, plan: Plan, users: Users) -> SortProblem:
    """The problem of a sort; what its readers take of each line is kept."""
    (dimension,) = x.attributes.dimensions
    results = _live_results(x, plan, users)
    readers = [(reader, r) for r in results if r is not None for reader in users.get(r) or [r]]
    keep = _union(_ranks_read_by(reader, r, dimension) for reader, r in readers)
    return SortProblem(x, plan, x.operands, results, dimension, keep, x.attributes.to_apply, _plain_keys(x))


def top_k_problem(x: Instruction, plan: Plan, users: Users) -> SortProblem:
    """The problem of a top-k: the first k of a total order, with their indices."""
    (operand,), (k, largest) = x.operands, x.attributes
    shape = operand.array_shape
    dimension = shape.rank - 1
    index_shape = Shape(element_type(np.int32), shape.dimensions)
    indices = Instruction(movement.iota, (), movement.Iota(index_shape, dimension), index_shape)
    keys = OrderedKeys(shape.element_type.name, largest, total=True)
    keep = Ranks.between(0, k, shape.dimensions[-1])
    return SortProblem(x, plan, (operand, indices), _live_results(x, plan, users), dimension, keep, None, keys)


def _plain_keys(x: Instruction) -> OrderedKeys | None:
    """The keys of a sort in the plain order of one native key, with at most one payload."""
    order, key = sorting.order_of(x.attributes.to_apply), x.operands[0].array_shape
    if order is None or order.keys > 1 or len(x.operands) > 2:
        return None
    if key.element_type.kind == "complex" or not is_native_type(key):
        return None
    return OrderedKeys(key.element_type.name, order.descending, total=False)


def _live_results(x: Instruction, plan: Plan, users: Users) -> list[Instruction | None]:
    """The results; None for one that is not read."""
    read = {r.attributes.index if r is not x else 0: r for r in results_of(x, users) if r in plan.live_out}
    count = len(x.shape.elements) if isinstance(x.shape, TupleShape) else 1
    return [read.get(k) for k in range(count)]
