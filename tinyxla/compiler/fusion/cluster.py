"""Fusion clustering: which roots share a loop nest, and the order of all steps."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import replace
from functools import cache

from tinyxla.compiler.analysis.access_maps import AccessMap, normalize
from tinyxla.compiler.analysis.fusibility import is_inlined, is_reduction
from tinyxla.compiler.analysis.reachability import Reachability
from tinyxla.compiler.costs import (
    L1_ELEMENTS,
    MAX_CANDIDATES,
    MAX_INSTRUCTIONS,
    MAX_NEST_BUFFERS,
    MAX_ROUNDS,
    PARALLEL_CHUNK_ELEMENTS,
)
from tinyxla.compiler.fusion.materialize import initially_materialized, live_out, materialize_recomputed
from tinyxla.compiler.fusion.plan import (
    Accesses,
    LoopNest,
    Plan,
    Reads,
    SingleOp,
    Step,
    classify_root,
    is_leaf,
    is_parallel,
    iteration_space,
    kept_dimensions,
    materialized_inputs,
    producer_of,
    reduces_trailing_dimensions,
    results_of,
    spans_iteration_space,
)
from tinyxla.hlo import Computation, Instruction
from tinyxla.ops import calls, reduction
from tinyxla.ops.distributed.process_collectives import is_message, mpi_collective


def plan(computation: Computation, step_for: Callable[[Instruction], SingleOp]) -> Plan:
    """Materialize, fuse, and repeat while several nests compute instructions that are better materialized.

    `step_for` decides what becomes of an operation that no nest computes; it is asked once for each.
    """
    accesses, step_for = Accesses(initially_materialized(computation)), cache(step_for)
    steps = _Clustering(computation, accesses, step_for).steps()
    for _ in range(MAX_ROUNDS):
        added = materialize_recomputed(computation, steps, accesses)
        if not added:
            break
        accesses = accesses.materializing(added)
        steps = _Clustering(computation, accesses, step_for).steps()
    return Plan(computation, steps, accesses, live_out(computation, steps, accesses.materialized))


def _is_ordered(x: Instruction) -> bool:
    """Whether a step stays in the order of the program among others of which this is true: those with side effects, and
    messages between processes, which all must send in one order."""
    return x.has_side_effect or is_message(x) or any(mpi_collective.name in c.all_opcodes for c in x.computations())


class _Clustering:
    """Greedy clustering of roots in topological order: each root joins the latest nest that can fuse it, producers
    of its operands first."""

    def __init__(
        self, computation: Computation, accesses: Accesses, step_for: Callable[[Instruction], SingleOp]
    ) -> None:
        self.computation = computation
        self.accesses = accesses
        self._step_for = step_for
        self.users = computation.users()
        self._steps: list[Step] = []
        self._graph = Reachability()  # of the steps, by their numbers
        self._last_ordered: int | None = None  # the last step whose order is the program's
        self._step_of: dict[Instruction, int] = {}
        self._computed: dict[Instruction, int] = {}  # how many instructions a root computes
        self._readers: dict[Instruction, list[int]] = {}  # the nests that read an array, in ascending order
        for x in computation.instructions:
            self._visit(x)

    def steps(self) -> list[Step]:
        """The steps in a valid order: sweeps over all steps by number, each taking the steps whose predecessors are
        done."""
        self._graph.decompose()
        rows = _RowNests(self._steps)
        self._fuse_rows(rows)
        self._fuse_cross_row_reductions(rows)
        sweep: dict[int, int] = {}
        for k in self._graph.topological_order():
            sweep[k] = max((sweep[before] + (before > k) for before in self._graph.predecessors(k)), default=0)
        return [self._steps[k] for k in sorted(sweep, key=lambda k: (sweep[k], k))]

    def _fuse_rows(self, rows: _RowNests) -> None:
        """Fuse row nests that were created before they read the same arrays."""
        for j in rows.indices():
            other = self._steps[j]
            assert isinstance(other, LoopNest)
            first_reads = self._reads_of(other.roots[0])
            producers = {self._graph.find(self._step_of[x]) for x in first_reads if x in self._step_of}
            candidates = [k for k in rows.near(j, other.outer, first_reads, producers) if self._has_room(k, other)]
            reads = {other.roots[0]: first_reads, **{x: self._reads_of(x) for x in other.roots[1:] if candidates}}
            for k in candidates:
                fused = self._fused(k, reads) if self._may_merge(k, j) else None
                if fused is not None:
                    self._merge(k, fused, j)
                    rows.merge(k, j, other)
                    break

    def _has_room(self, k: int, other: LoopNest) -> bool:
        row = self._steps[k]
        return isinstance(row, LoopNest) and self._fit_one_kernel([*row.roots, *other.roots])

    def _fit_one_kernel(self, roots: Sequence[Instruction]) -> bool:
        """True if one kernel may compute all these roots."""
        has_buffers = 2 * len(roots) <= MAX_NEST_BUFFERS  # each with as many that are read
        return has_buffers and sum(map(self._computed.__getitem__, roots)) <= 4 * MAX_INSTRUCTIONS

    def _fused(self, k: int, reads: dict[Instruction, Reads]) -> LoopNest | None:
        """Nest k with more roots, given their reads; None if one of them does not fit."""
        row = self._steps[k]
        assert isinstance(row, LoopNest)
        fused = replace(row, roots=[*row.roots], reads=dict(row.reads), access_maps=dict(row.access_maps))
        for root, accesses in reads.items():
            kind_and_outer = self._can_fuse(fused, root, *classify_root(root), accesses)
            if kind_and_outer is None:
                return None
            fused.add_root(root, kind_and_outer, accesses)
        return fused

    def _reads_of(self, root: Instruction) -> Reads:
        """The arrays that a root reads from memory, with the access maps."""
        reads: Reads = {}
        self._computed[root] = 0
        for x, access, from_memory in self.accesses.read_by([root]):
            if from_memory:
                reads.setdefault(x, []).append(access)
            else:
                self._computed[root] += 1
        return reads

    def _fuse_cross_row_reductions(self, rows: _RowNests) -> None:
        """Fuse reductions over the outer dimensions of row nests that read the same arrays."""
        for j, column in enumerate(self._steps if rows.indices() else ()):
            if not isinstance(column, LoopNest) or column.kind != "column":
                continue
            space, reduced = (
                iteration_space(column.reductions[0]),
                producer_of(column.reductions[0]).attributes.dimensions,
            )
            rank, space_size = len(reduced), math.prod(space)
            if reduced != tuple(range(rank)) or math.prod(space[rank:]) > L1_ELEMENTS:
                continue
            large = [x for x in column.reads if x.array_shape.size >= space_size]
            producers = {self._graph.find(self._step_of[x]) for x in large if x in self._step_of}
            for k in rows.near(j, space[:rank], large, producers):
                row = self._steps[k]
                assert isinstance(row, LoopNest)
                if row.kept is not None or row.cross_row is not None:
                    continue
                if self._may_merge(k, j) and self._can_fuse_cross_row(k, column, space):
                    fused = replace(
                        row,
                        roots=row.roots + column.roots,
                        reads=row.reads | column.reads,
                        cross_row=column,
                        access_maps=row.access_maps | column.access_maps,
                    )
                    self._merge(k, fused, j)
                    rows.merge(k, j, column)
                    break

    def _merge(self, k: int, fused: LoopNest, j: int) -> None:
        """Replace nests k and j by their fusion."""
        self._steps[k] = fused
        self._graph.merge(k, j)

    def _may_merge(self, k: int, j: int) -> bool:
        """True if no path between the nests leads through another step, and nest k does not depend on nest j."""
        return not self._graph.reaches(j, k) and not self._graph.reaches_indirectly(k, j)

    def _can_fuse_cross_row(self, k: int, column: LoopNest, space: tuple[int, ...]) -> bool:
        row, space_size = self._steps[k], math.prod(space)
        assert isinstance(row, LoopNest)
        if not any(
            x.array_shape.size >= space_size and (x in row.reads or producer_of(x) in row.roots) for x in column.reads
        ):
            return False
        if not self._has_room(k, column) or len(row.reads) + len(column.reads) > MAX_NEST_BUFFERS:
            return False
        if any(reduction.monoid(producer_of(x).attributes.to_apply) is None for x in column.reductions):
            return False
        rank = len(row.outer)
        row_access = normalize(range(rank), row.outer)
        row_results = {r for g in row.roots for r in results_of(g, self.users)}
        full_space_roots = [*column.reductions, *column.full_space_roots()]
        row_reads = (
            (x, access[:rank])
            for x, access, from_memory in self.accesses.read_by(full_space_roots)
            if from_memory and x in row_results
        )
        dependent_roots = [x for x in column.roots if x not in full_space_roots]
        dependent_reads = (
            x for x, _, from_memory in self.accesses.read_by(dependent_roots) if from_memory and x in row_results
        )
        return all(access == row_access for _, access in row_reads) and not any(dependent_reads)

    def _visit(self, x: Instruction) -> None:
        if is_leaf(x) or (x.op is calls.tuple_ and x is self.computation.root):
            return
        if x.op is calls.get_tuple_element:
            self._step_of[x] = self._step_of[x.operands[0]]
        elif is_reduction(x) or (is_inlined(x) and x in self.accesses.materialized):
            self._fuse(x)
        elif not is_inlined(x):
            self._add(self._step_for(x), x, materialized_inputs(x, self.accesses.materialized))

    def _add(self, step: Step, root: Instruction, reads: Iterable[Instruction]) -> None:
        k = self._graph.add(self._producers(reads))
        self._steps.append(step)
        self._step_of[root] = k
        if not isinstance(step, LoopNest) and _is_ordered(root):
            self._graph.add_edges(k, () if self._last_ordered is None else [self._last_ordered])
            self._last_ordered = k

    def _producers(self, reads: Iterable[Instruction]) -> set[int]:
        """The steps that compute these arrays."""
        return {self._step_of[x] for x in reads if x in self._step_of}

    def _fuse(self, root: Instruction) -> None:
        kind, outer = classify_root(root)
        reads = self._reads_of(root)
        producers = self._producers(reads)
        for k in self._candidates(reads, producers):
            group = self._steps[k]
            if not isinstance(group, LoopNest) or not self._fit_one_kernel([*group.roots, root]):
                continue
            kind_and_outer = self._can_fuse(group, root, kind, outer, reads)
            is_cyclic = kind_and_outer is not None and any(p != k and self._graph.reaches(k, p) for p in producers)
            if kind_and_outer is not None and not is_cyclic:
                group.add_root(root, kind_and_outer, reads)
                self._step_of[root] = k
                self._graph.add_edges(k, producers)
                self._record_reads(k, reads)
                return
        self._add(LoopNest(kind, outer, [root], dict.fromkeys(reads), access_maps={root: reads}), root, reads)
        self._record_reads(len(self._steps) - 1, reads)

    def _candidates(self, reads: Iterable[Instruction], producers: set[int]) -> list[int]:
        """Of the latest steps, the producers of these arrays, then other readers of them; each group latest first."""
        first = max(0, len(self._steps) - MAX_CANDIDATES)
        candidates = {k for k in producers if k >= first}
        for x in reads:
            readers = self._readers.get(x, [])
            candidates.update(readers[bisect_left(readers, first) :])
        return sorted(candidates, key=lambda k: (k not in producers, -k))

    def _record_reads(self, k: int, reads: Iterable[Instruction]) -> None:
        for x in reads:
            _insert(self._readers.setdefault(x, []), k)

    def _can_fuse(
        self,
        group: LoopNest,
        root: Instruction,
        kind: str,
        outer: tuple[int, ...],
        reads: Reads,
    ) -> tuple[str, tuple[int, ...]] | None:
        """Kind and outer sizes of a nest after fusion with a root; None if they cannot be fused."""
        group_results = {r for g in group.roots for r in results_of(g, self.users)}
        is_scalar = math.prod(iteration_space(root)) == 1  # a single element gains by any fusion
        shared = [x for x in reads if x in group_results or x in group.reads]
        if (
            not any(x in group_results or x.array_shape.size > 1 or is_scalar for x in shared)
            or len(group.reads) + len(reads) > MAX_NEST_BUFFERS
        ):
            return None
        kind_and_outer = self._fused_kind(group, root, kind, outer)
        if kind_and_outer is None:
            return None
        own = group_results & reads.keys()
        return kind_and_outer if self._reads_own_elements(group, root, own, reads, *kind_and_outer) else None

    def _reads_own_elements(
        self,
        group: LoopNest,
        root: Instruction,
        own: Set[Instruction],
        reads: Reads,
        kind: str,
        outer: tuple[int, ...],
    ) -> bool:
        """True if a root reads the results `own` of a nest only where an iteration of the fused nest has them."""
        space = outer
        if kind in ("column", "split"):
            full_space = iteration_space((group.reductions or [root])[0])
            is_full_space = producer_of(root).op is reduction.reduce or iteration_space(root) == full_space != space
            if any((spans_iteration_space(x, full_space) and full_space != space) != is_full_space for x in own):
                return False  # a reduction's result is available only after the reduction
            space = full_space if is_full_space else space
        kept = LoopNest(kind, outer, [*group.roots, root]).kept
        accesses = [(x, access) for x in own for access in reads[x]]
        if kept is not None:
            return all(_is_row_local(x, access, root, kept) for x, access in accesses)
        row_access = normalize(range(len(space)), space)
        return all(
            access[: len(space)] == row_access and (kind == "row" or len(access) == len(space))
            for _, access in accesses
        )

    def _fused_kind(
        self, group: LoopNest, root: Instruction, kind: str, outer: tuple[int, ...]
    ) -> tuple[str, tuple[int, ...]] | None:
        if "parts" in (group.kind, kind):
            return None
        if not {group.kind, kind}.isdisjoint(("column", "split")):
            return self._fuse_columns(group, root, kind, outer)
        if (kind == "row" and not reduces_trailing_dimensions(root)) or group.kept is not None:
            return self._fuse_non_leading(group, root, kind, outer)
        if group.kind == "loop" and kind == "loop":
            return ("loop", outer) if group.outer == outer else None
        sizes = iteration_space(root)
        if group.kind == "row":
            is_compatible = sizes[: len(group.outer)] == group.outer and (kind == "loop" or outer == group.outer)
            shared_outer = group.outer
        else:
            is_compatible = group.outer[: len(outer)] == outer
            shared_outer = outer
        elements = max(math.prod(s) for s in (sizes, *map(iteration_space, group.roots)))
        return ("row", shared_outer) if is_compatible and is_parallel(math.prod(shared_outer), elements) else None

    def _fuse_columns(
        self, group: LoopNest, root: Instruction, kind: str, outer: tuple[int, ...]
    ) -> tuple[str, tuple[int, ...]] | None:
        """`_fused_kind` if the nest or the root is a `column` or `split`: with the same reduction, or with what is
        elementwise over the reduced space or over the results."""
        sizes = iteration_space(root)
        if kind == "loop":
            space = iteration_space(group.reductions[0])
            is_full = sizes == space and _is_contiguous_in([root], self.accesses, space)
            return (group.kind, group.outer) if sizes == group.outer or is_full else None
        if group.kind == "loop":
            is_compatible = group.outer == sizes != outer and _is_contiguous_in(group.roots, self.accesses, sizes)
            return (kind, outer) if is_compatible else None
        return (kind, outer) if group.kind == kind and _is_same_reduction(group.reductions[0], root) else None

    def _fuse_non_leading(
        self, group: LoopNest, root: Instruction, kind: str, outer: tuple[int, ...]
    ) -> tuple[str, tuple[int, ...]] | None:
        """`_fused_kind` for reductions whose kept dimensions are not leading: every root must iterate over the full
        reduction space or over the kept dimensions."""
        first, *others = [*group.reductions, *([root] if kind == "row" else [])]
        space, kept = iteration_space(first), kept_dimensions(first)
        shared_outer = tuple(space[d] for d in kept)
        pointwise = [x for x in (*group.roots, root) if producer_of(x).op is not reduction.reduce]
        is_compatible = all(_is_same_reduction(first, x) for x in others) and all(
            iteration_space(x) in (space, shared_outer) for x in pointwise
        )
        is_compatible = (
            is_compatible
            and (group.kind == "row" or group.outer == space)
            and _is_contiguous_in(pointwise, self.accesses, space)
        )
        has_tasks = is_parallel(math.prod(shared_outer), math.prod(space))
        return ("row", shared_outer) if is_compatible and has_tasks else None


class _RowNests:
    """The row nests, by the arrays they read and their outer sizes."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self._outer: dict[int, tuple[int, ...]] = {}
        self._readers: dict[tuple[Instruction, tuple[int, ...]], list[int]] = {}
        for k, step in enumerate(steps):
            if isinstance(step, LoopNest) and step.kind == "row":
                self._outer[k] = step.outer
                for x in step.reads:
                    self._readers.setdefault((x, step.outer), []).append(k)

    def indices(self) -> list[int]:
        return list(self._outer)

    def near(self, j: int, outer: tuple[int, ...], reads: Iterable[Instruction], producers: Iterable[int]) -> list[int]:
        """Other row nests of these outer sizes that produce or read these arrays; of the readers, the nearest ones."""
        neighbours = {k for k in producers if self._outer.get(k) == outer}
        for x in reads:
            readers = self._readers.get((x, outer), [])
            position = bisect_left(readers, j)
            neighbours.update(readers[max(0, position - MAX_CANDIDATES) : position + MAX_CANDIDATES])
        return sorted(neighbours - {j})

    def merge(self, k: int, j: int, other: LoopNest) -> None:
        """Record that row nest k absorbed nest j."""
        outer, old_outer = self._outer[k], self._outer.pop(j, None)
        for x in other.reads:
            if old_outer is not None:
                readers = self._readers[x, old_outer]
                del readers[bisect_left(readers, j)]
            _insert(self._readers.setdefault((x, outer), []), k)


def _insert(sorted_numbers: list[int], k: int) -> None:
    """Insert a number in an ascending list, unless it is there."""
    position = bisect_left(sorted_numbers, k)
    if position == len(sorted_numbers) or sorted_numbers[position] != k:
        sorted_numbers.insert(position, k)


def _is_same_reduction(one: Instruction, other: Instruction) -> bool:
    """True if two reductions reduce the same dimensions of the same space."""
    return (
        iteration_space(one) == iteration_space(other)
        and producer_of(one).attributes.dimensions == producer_of(other).attributes.dimensions
    )


def _is_row_local(x: Instruction, access: AccessMap, root: Instruction, kept: tuple[int, ...]) -> bool:
    """True if a root, in a row nest whose reductions keep these dimensions, reads x only in the same row."""
    if len(iteration_space(root)) == len(kept):
        return len(access) == len(kept) and access == normalize(range(len(kept)), iteration_space(root))
    if len(access) == len(kept):
        return access == normalize(kept, [iteration_space(root)[d] for d in kept])
    sizes = iteration_space(root)
    return len(access) == len(sizes) and all(access[d] == (d if sizes[d] != 1 else -1) for d in kept)


def _is_contiguous_in(roots: Sequence[Instruction], accesses: Accesses, space: tuple[int, ...]) -> bool:
    """True if the innermost loop is contiguous in all large arrays that the roots read."""
    wide_dims = [d for d, size in enumerate(space) if size != 1]
    for x, access, from_memory in accesses.read_by(roots):
        mapped = [c for c in access if c != -1]
        if (
            from_memory
            and x.array_shape.size >= 2 * PARALLEL_CHUNK_ELEMENTS  # for two threads
            and wide_dims
            and mapped
            and mapped[-1] != wide_dims[-1]
        ):
            return False
    return True
