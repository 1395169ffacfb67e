"""Fusion plans: loop nests, kernels and calls. `materialize` decides which instructions have memory,
`cluster` which roots share a nest.

*Inlined* instructions (elementwise, data movement, scalar constants) have no memory: they are computed at their points
of use. *Materialized* are results, operands and results of matrix products, reductions that are read elsewhere, and
instructions too costly to recompute. Every materialized instruction and every reduction is a *root* of one loop nest.
Nests are fused if they share data, have the same outer dimensions, and depend on each other only within one outer
index. The kinds of nests:

- `loop`: elementwise over one space;
- `row`: for each outer index, several loops over the inner dimensions with reductions in between, such as a softmax;
- `column`: reductions that keep the minor dimension, up to short runs: a row of accumulators;
- `split`: reductions to few elements: partial reductions, which are combined;
- `parts`: a concatenation of many arrays.

`column` and `split` also compute elementwise roots from the reductions' results, and store elementwise roots over the
space that they reduce. A `row` may contain cross-row reductions, such as the gradient of a scale.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from tinyxla.compiler.analysis.access_maps import AccessMap, normalize, operand_access_maps
from tinyxla.compiler.analysis.fusibility import is_inlined, is_native_type
from tinyxla.compiler.costs import CHUNKS, MAX_PIECES, PARALLEL_CHUNK_ELEMENTS, VECTOR_ELEMENTS
from tinyxla.hlo import Computation, Instruction
from tinyxla.ops import calls, movement, reduction
from tinyxla.shapes import TupleShape

Reads = dict[Instruction, list[AccessMap]]  # arrays in memory with the access maps of all reads
_Operands = tuple[tuple[Instruction, AccessMap], ...]


@dataclass(eq=False)
class LoopNest:
    """A loop nest. `outer` are the sizes of the dimensions that all roots share (all dimensions of a `loop`).
    `cross_row`, of a row, is a fusion of reductions over the outer dimensions; its roots and reads are among those
    of the row. `access_maps` has, for each root, the arrays in memory that it reads, with the access maps over its
    iteration space."""

    kind: str
    outer: tuple[int, ...]
    roots: list[Instruction] = field(default_factory=list)
    reads: dict[Instruction, None] = field(default_factory=dict)
    cross_row: LoopNest | None = None
    access_maps: dict[Instruction, Reads] = field(default_factory=dict)

    def add_root(self, root: Instruction, kind_and_outer: tuple[str, tuple[int, ...]], reads: Reads) -> None:
        """Add a root, with which the nest has this kind and these outer sizes."""
        self.kind, self.outer = kind_and_outer
        self.roots.append(root)
        self.reads.update(dict.fromkeys(reads))
        self.access_maps[root] = reads

    @property
    def reductions(self) -> list[Instruction]:
        """The roots that are reductions."""
        return [root for root in self.roots if producer_of(root).op is reduction.reduce]

    @property
    def kept(self) -> tuple[int, ...] | None:
        """The dimensions that the reductions of a row keep, if these are not the leading ones; otherwise None. They
        are the same for all roots of that rank."""
        cross_row_roots = self.cross_row.roots if self.cross_row is not None else []
        row_reductions = [
            x
            for x in self.reductions
            if self.kind == "row" and x not in cross_row_roots and not reduces_trailing_dimensions(x)
        ]
        return kept_dimensions(row_reductions[0]) if row_reductions else None

    def full_space_roots(self) -> list[Instruction]:
        """The roots of a reduction nest that are stored per element of the reduced space."""
        space = iteration_space(self.reductions[0])
        return [x for x in self.roots if space != self.outer and spans_iteration_space(x, space)]


class KernelLowering(Protocol):
    """How an operation becomes kernels of its own, which are not fused with others."""

    @property
    def lower(self) -> Callable[[Instruction, Plan, dict[Instruction, list[Instruction]]], list[Any]]: ...

    @property
    def aliased_operands(self) -> Callable[[Instruction], dict[int, int]]: ...


@dataclass(eq=False)
class _Operation:
    """An operation that no nest computes. Its class says what becomes of it."""

    root: Instruction


@dataclass(eq=False)
class LibraryKernel(_Operation):
    """An operation with a kernel of its own, whose algorithm fixes the order of loops: a GEMM, a sort, an FFT."""

    lowering: KernelLowering


class BlasCall(_Operation):
    """A matrix product by the BLAS, or by a small kernel with the same interface."""


class HostCall(_Operation):
    """An operation that Python evaluates on arrays: it has no kernel, or is a function of the user's."""


class Collective(_Operation):
    """A collective operation: replicas meet in a call of the host, or processes in a call of MPI, and exchange
    arrays."""


class CollectiveStart(Collective):
    """The start of a message among processes, whose operand and result are in use until its `CollectiveDone`."""


class CollectiveDone(Collective):
    """The wait for a message among processes that a `CollectiveStart` has started."""


class Loop(_Operation):
    """A `while` whose condition and body are programs of their own."""


class Switch(_Operation):
    """A `conditional` whose branches are programs of their own."""


SingleOp = LibraryKernel | BlasCall | HostCall | Collective | Loop | Switch
Step = LoopNest | SingleOp


class Access(NamedTuple):
    """An instruction that a nest reads at the element `access`, loaded from memory or computed where it is used."""

    x: Instruction
    access: AccessMap
    from_memory: bool


class Accesses:
    """Access maps of what roots read, each computed once; `materialized` are the instructions in memory, besides
    parameters and constants. Clustering asks for the maps of single roots, lowerings for those of a nest or a stage."""

    def __init__(self, materialized: Set[Instruction]) -> None:
        self.materialized = materialized
        self._operands: dict[tuple[Instruction, AccessMap], _Operands] = {}
        self._operands_of_roots: dict[Instruction, _Operands] = {}
        self._read_by: dict[tuple[tuple[Instruction, ...], bool], tuple[Access, ...]] = {}

    def materializing(self, more: Set[Instruction]) -> Accesses:
        """The accesses if more instructions are in memory. Maps of operands do not depend on that, and are kept."""
        result = Accesses(self.materialized | more)
        result._operands, result._operands_of_roots = self._operands, self._operands_of_roots
        return result

    def forget(self) -> None:
        """Drop what is known; it is computed again where it is asked for."""
        for known in (self._operands, self._operands_of_roots, self._read_by):
            known.clear()

    def is_in_memory(self, x: Instruction) -> bool:
        """True if loops load an instruction's elements rather than compute them."""
        return x in self.materialized or is_leaf(x)

    def read_by(self, roots: Iterable[Instruction], views: bool = False) -> tuple[Access, ...]:
        """All instructions that roots read, transitively, with their access maps, each pair once. With `views`,
        reshapes of arrays in memory count as in memory."""
        key = tuple(roots), views
        found = self._read_by.get(key)
        if found is None:
            found = self._read_by[key] = self._walk(*key)
        return found

    def _walk(self, roots: tuple[Instruction, ...], views: bool) -> tuple[Access, ...]:
        seen: dict[tuple[Instruction, AccessMap], Access] = {}
        pending = [operand for root in roots for operand in self._initial(root)]
        while pending:
            item = pending.pop()
            if item in seen:
                continue
            x, access = item
            from_memory = self.is_in_memory(buffer_of(x) if views else x)
            seen[item] = Access(x, access, from_memory)
            if not from_memory:
                operands = self._operands.get(item)
                if operands is None:
                    operands = self._operands[item] = tuple(operand_access_maps(x, access))
                pending.extend(operands)
        return tuple(seen.values())

    def _initial(self, root: Instruction) -> _Operands:
        """The operands of a root with their access maps over its iteration space."""
        found = self._operands_of_roots.get(root)
        if found is None:
            found = self._operands_of_roots[root] = tuple(_initial_access_maps(root))
        return found


@dataclass(eq=False)
class Plan:
    """Steps in order.

    `materialized` are the instructions that are computed once and kept; a reshape of one is a view of its memory
    (`buffer_of`). Those in `live_out` are read outside of the nest that computes them, and have memory of their own.
    `epilogues` maps instructions to nests that are computed with their result. `accesses` has the access maps of nests.
    """

    computation: Computation
    steps: list[Step]
    accesses: Accesses
    live_out: set[Instruction]
    epilogues: dict[Instruction, LoopNest] = field(default_factory=dict)

    @property
    def materialized(self) -> Set[Instruction]:
        return self.accesses.materialized


def buffer_of(x: Instruction) -> Instruction:
    """The instruction whose memory x has: a reshape is a view of its operand."""
    while x.op is movement.reshape:
        x = x.operands[0]
    return x


def is_leaf(x: Instruction) -> bool:
    """True for parameters, and for constants that loops cannot inline: they have memory from the start."""
    if x.op is movement.constant:
        return x.array_shape.size != 1 or not is_native_type(x.array_shape)
    return x.op is movement.parameter


def is_in_memory(x: Instruction, materialized: Set[Instruction]) -> bool:
    """True if loops load an instruction's elements rather than compute them."""
    return x in materialized or is_leaf(x)


def results_of(x: Instruction, users: dict[Instruction, list[Instruction]]) -> list[Instruction]:
    """The arrays of an instruction: itself, or the elements of its tuple that are used."""
    if isinstance(x.shape, TupleShape):
        return [u for u in users[x] if u.op is calls.get_tuple_element]
    return [x]


def producer_of(x: Instruction) -> Instruction:
    """The instruction that computes a root: for an element of a tuple, the producer of the tuple."""
    return x.operands[0] if x.op is calls.get_tuple_element else x


def materialized_inputs(x: Instruction, materialized: Set[Instruction]) -> list[Instruction]:
    """The arrays in memory that an op outside of fusions reads."""
    inputs: dict[Instruction, None] = {}
    pending = list(x.operands)
    while pending:
        producer = buffer_of(pending.pop())
        if producer in materialized or not is_inlined(producer):
            inputs[producer] = None
        else:
            pending.extend(producer.operands)
    return list(inputs)


def iteration_space(root: Instruction) -> tuple[int, ...]:
    """The sizes of the loops around a root: its dimensions, or those of a reduction's operand."""
    x = producer_of(root)
    return x.operands[0].array_shape.dimensions if x.op is reduction.reduce else x.array_shape.dimensions


def _initial_access_maps(root: Instruction) -> Iterable[tuple[Instruction, AccessMap]]:
    x, sizes = producer_of(root), iteration_space(root)
    identity = normalize(range(len(sizes)), sizes)
    if x.op is reduction.reduce:
        count = len(x.operands) // 2
        return [(o, identity) for o in x.operands[:count]] + [(o, ()) for o in x.operands[count:]]
    return operand_access_maps(x, identity)


def is_parallel(rows: int, elements: int) -> bool:
    """True if rows of so many elements in all need not be cut: threads have enough of them, or one thread suffices."""
    return rows >= 2 * CHUNKS or elements <= 2 * PARALLEL_CHUNK_ELEMENTS


def classify_root(root: Instruction) -> tuple[str, tuple[int, ...]]:
    """The kind and the outer sizes of the nest of a root by itself."""
    x = producer_of(root)
    sizes = iteration_space(root)
    if x.op is not reduction.reduce:
        return "parts" if is_wide_concatenate(x) else "loop", sizes
    reduced = x.attributes.dimensions
    kept = [d for d in range(len(sizes)) if d not in reduced]
    row_count = math.prod(sizes[d] for d in kept)
    total = math.prod(sizes)
    wide_dims = [d for d in range(len(sizes)) if sizes[d] != 1]
    if wide_dims and (wide_dims[-1] not in reduced or _ends_in_short_reduced_run(x)):
        return "column", tuple(sizes[d] for d in kept)
    if not is_parallel(row_count, total):
        return "split", tuple(sizes[d] for d in kept)
    return "row", tuple(sizes[d] for d in kept)


def _ends_in_short_reduced_run(x: Instruction) -> bool:
    """True if the reduced dimensions inside the last kept one are shorter than a vector, and other dimensions are
    reduced, too."""
    sizes, reduced = iteration_space(x), x.attributes.dimensions
    last_kept = max((d for d in kept_dimensions(x) if sizes[d] != 1), default=-1)
    run_length, other_size = (
        math.prod(sizes[d] for d in reduced if (d > last_kept) == is_inner) for is_inner in (True, False)
    )
    return (
        run_length < VECTOR_ELEMENTS < other_size * run_length
        and other_size > 1
        and reduction.monoid(x.attributes.to_apply) is not None
    )


def spans_iteration_space(root: Instruction, space: tuple[int, ...]) -> bool:
    """True if a root is computed elementwise in this space."""
    return producer_of(root).op is not reduction.reduce and iteration_space(root) == space


def kept_dimensions(root: Instruction) -> tuple[int, ...]:
    """The dimensions that a reduction keeps."""
    return tuple(d for d in range(len(iteration_space(root))) if d not in producer_of(root).attributes.dimensions)


def is_wide_concatenate(x: Instruction) -> bool:
    """True for a concatenation of so many arrays that it is a nest of its own."""
    return x.op is movement.concatenate and len(x.operands) > MAX_PIECES


def reduces_trailing_dimensions(root: Instruction) -> bool:
    """True if the kept dimensions of a reduction come first."""
    kept = kept_dimensions(root)
    return kept == tuple(range(len(kept)))
