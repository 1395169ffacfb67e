"""Which roots share a loop nest, and the order of all steps."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import replace

from tinyxla.compiler.analysis.access_maps import AccessMap, normalize
from tinyxla.compiler.analysis.fusibility import is_inlined, is_reduction
from tinyxla.compiler.analysis.reachability import Reachability
from tinyxla.compiler.fusion.materialize import initially_materialized, live_out, recomputed
from tinyxla.compiler.fusion.plan import (
    FEW_ROWS,
    SERIAL,
    Fusion,
    HostCall,
    Plan,
    Product,
    Step,
    classify_root,
    is_leaf,
    iteration_space,
    kept_dimensions,
    materialized_inputs,
    producer_of,
    reduces_trailing_dimensions,
    results_of,
    spans_iteration_space,
    walk_producers,
)
from tinyxla.hlo import Computation, Instruction
from tinyxla.ops import calls, contraction, reduction

MOST_ROOTS = 24  # of one nest
MOST_BUFFERS = 48
MOST_COMPUTED = 1 << 13  # instructions, with the places at which they are computed: LLVM takes more than linear time
MOST_ROUNDS = 8  # of deciding what is stored
LATEST = 64  # steps among which a root looks for a nest
NEAREST = 64  # rows on either side that read the same array, which a row may join
WIDEST_ACROSS = 1 << 13  # elements of what a row reduces over its outer dimensions


def plan(computation: Computation) -> Plan:
    """Decide what is stored, and join loop nests; where several would compute what is better stored, decide again."""
    stored = initially_materialized(computation)
    groups = _Grouping(computation, stored).steps()
    for _ in range(MOST_ROUNDS):
        again = recomputed(computation, groups, stored)
        if not again:
            break
        stored |= again
        groups = _Grouping(computation, stored).steps()
    return Plan(computation, groups, stored, live_out(computation, groups, stored))


class _Grouping:
    """Joins roots, in topological order, greedily: each goes to the latest nest that it fits, first of those that make
    what it reads."""

    def __init__(self, computation: Computation, stored: set[Instruction]) -> None:
        self.computation = computation
        self.stored = stored
        self.users = computation.users()
        self._steps: list[Step] = []
        self._graph = Reachability()  # of the steps, by their numbers
        self._last_effect: int | None = None  # the last step with a side effect
        self._step_of: dict[Instruction, int] = {}
        self._computed: dict[Instruction, int] = {}  # how many instructions a root computes
        self._readers: dict[Instruction, list[int]] = {}  # the nests that read an array, in ascending order
        for x in computation.instructions:
            self._visit(x)

    def steps(self) -> list[Step]:
        """In an order that respects what each needs: all that can run, by number, and again with what then can."""
        self._graph.decompose()
        rows = _Rows(self._steps)
        self._join_early(rows)
        self._join_across(rows)
        sweep: dict[int, int] = {}
        for k in self._graph.in_order():
            sweep[k] = max((sweep[before] + (before > k) for before in self._graph.predecessors(k)), default=0)
        return [self._steps[k] for k in sorted(sweep, key=lambda k: (sweep[k], k))]

    def _join_early(self, rows: _Rows) -> None:
        """Let rows take in other rows that came when the first did not yet read the same."""
        for j in rows.numbers():
            other = self._steps[j]
            assert isinstance(other, Fusion)
            first = self._places_read(other.roots[0])
            made_by = {self._graph.find(self._step_of[x]) for x in first if x in self._step_of}
            near = [k for k in rows.near(j, other.outer, first, made_by) if self._has_room(k, other)]
            reads = {other.roots[0]: first, **{x: self._places_read(x) for x in other.roots[1:] if near}}
            for k in near:
                whole = self._with_all(k, reads) if self._may_merge(k, j) else None
                if whole is not None:
                    self._merge(k, whole, j)
                    rows.merge(k, j, other)
                    break

    def _has_room(self, k: int, other: Fusion) -> bool:
        row = self._steps[k]
        return isinstance(row, Fusion) and self._are_few([*row.roots, *other.roots])

    def _are_few(self, roots: Sequence[Instruction]) -> bool:
        """Whether one kernel may compute all of these."""
        return len(roots) <= MOST_ROOTS and sum(map(self._computed.__getitem__, roots)) <= MOST_COMPUTED

    def _with_all(self, k: int, reads: dict[Instruction, dict[Instruction, list[AccessMap]]]) -> Fusion | None:
        """Nest k with some roots more, of which this is what they read, if all fit."""
        row = self._steps[k]
        assert isinstance(row, Fusion)
        whole = replace(row, roots=[*row.roots], reads=dict(row.reads))
        for root, places in reads.items():
            joined = self._fits(whole, root, *classify_root(root), places)
            if joined is None:
                return None
            whole.add_root(root, joined, places)
        return whole

    def _places_read(self, root: Instruction) -> dict[Instruction, list[AccessMap]]:
        """What a root reads from memory, and where."""
        reads: dict[Instruction, list[AccessMap]] = {}
        self._computed[root] = 0
        for x, place, from_memory in walk_producers([root], self.stored):
            if from_memory:
                reads.setdefault(x, []).append(place)
            else:
                self._computed[root] += 1
        return reads

    def _join_across(self, rows: _Rows) -> None:
        """Let rows take in reductions over their outer dimensions of what they read anyway."""
        for j, column in enumerate(self._steps if rows.numbers() else ()):
            if not isinstance(column, Fusion) or column.kind != "column":
                continue
            space, reduced = (
                iteration_space(column.reductions[0]),
                producer_of(column.reductions[0]).attributes.dimensions,
            )
            rank, whole = len(reduced), math.prod(space)
            if reduced != tuple(range(rank)) or math.prod(space[rank:]) > WIDEST_ACROSS:
                continue
            large = [x for x in column.reads if x.array_shape.size >= whole]
            made_by = {self._graph.find(self._step_of[x]) for x in large if x in self._step_of}
            for k in rows.near(j, space[:rank], large, made_by):
                row = self._steps[k]
                assert isinstance(row, Fusion)
                if row.kept is not None or row.cross_row is not None:
                    continue
                if self._may_merge(k, j) and self._fits_across(k, column, space):
                    joined = replace(
                        row, roots=row.roots + column.roots, reads=row.reads | column.reads, cross_row=column
                    )
                    self._merge(k, joined, j)
                    rows.merge(k, j, column)
                    break

    def _merge(self, k: int, whole: Fusion, j: int) -> None:
        """Nest j becomes part of nest k, which is this as a whole."""
        self._steps[k] = whole
        self._graph.merge(k, j)

    def _may_merge(self, k: int, j: int) -> bool:
        """Whether nothing stands between nest k and nest j, which may need it, but not the other way round."""
        return not self._graph.reaches(j, k) and not self._graph.reaches_through_others(k, j)

    def _fits_across(self, k: int, column: Fusion, space: tuple[int, ...]) -> bool:
        row, whole = self._steps[k], math.prod(space)
        assert isinstance(row, Fusion)
        if not any(
            x.array_shape.size >= whole and (x in row.reads or producer_of(x) in row.roots) for x in column.reads
        ):
            return False
        if not self._has_room(k, column) or len(row.reads) + len(column.reads) > MOST_BUFFERS:
            return False
        if any(reduction.monoid(producer_of(x).attributes.to_apply) is None for x in column.reductions):
            return False
        rank = len(row.outer)
        local = normalize(range(rank), row.outer)
        members = {r for g in row.roots for r in results_of(g, self.users)}
        inside = [*column.reductions, *column.full_space_roots()]
        read = (
            (x, place[:rank])
            for x, place, from_memory in walk_producers(inside, self.stored)
            if from_memory and x in members
        )
        after = [x for x in column.roots if x not in inside]
        late = (x for x, _, from_memory in walk_producers(after, self.stored) if from_memory and x in members)
        return all(place == local for _, place in read) and not any(late)

    def _visit(self, x: Instruction) -> None:
        if is_leaf(x) or (x.op is calls.tuple_ and x is self.computation.root):
            return
        if x.op is calls.get_tuple_element:
            self._step_of[x] = self._step_of[x.operands[0]]
        elif is_reduction(x) or (is_inlined(x) and x in self.stored):
            self._join(x)
        elif not is_inlined(x):
            step = Product(x) if x.op is contraction.dot and x.array_shape.element_type.is_inexact else HostCall(x)
            self._add(step, x, materialized_inputs(x, self.stored))

    def _add(self, step: Step, root: Instruction, reads: Iterable[Instruction]) -> None:
        k = self._graph.add(self._made_by(reads))
        self._steps.append(step)
        self._step_of[root] = k
        if isinstance(step, HostCall) and root.has_side_effect:
            self._graph.add_edges(k, () if self._last_effect is None else [self._last_effect])
            self._last_effect = k

    def _made_by(self, reads: Iterable[Instruction]) -> set[int]:
        """The steps that make what is read."""
        return {self._step_of[x] for x in reads if x in self._step_of}

    def _join(self, root: Instruction) -> None:
        kind, outer = classify_root(root)
        reads = self._places_read(root)
        made_by = self._made_by(reads)
        for k in self._related(reads, made_by):
            group = self._steps[k]
            if not isinstance(group, Fusion) or not self._are_few([*group.roots, root]):
                continue
            joined = self._fits(group, root, kind, outer, reads)
            if joined is not None and not any(of != k and self._graph.reaches(k, of) for of in made_by):
                group.add_root(root, joined, reads)
                self._step_of[root] = k
                self._graph.add_edges(k, made_by)
                self._note_reads(k, reads)
                return
        self._add(Fusion(kind, outer, [root], dict.fromkeys(reads)), root, reads)
        self._note_reads(len(self._steps) - 1, reads)

    def _related(self, reads: Iterable[Instruction], made_by: set[int]) -> list[int]:
        """Of the latest steps those that make some of this, and then those that read some of it: the latest first."""
        first = max(0, len(self._steps) - LATEST)
        found = {k for k in made_by if k >= first}
        for x in reads:
            readers = self._readers.get(x, [])
            found.update(readers[bisect_left(readers, first) :])
        return sorted(found, key=lambda k: (k not in made_by, -k))

    def _note_reads(self, k: int, reads: Iterable[Instruction]) -> None:
        for x in reads:
            _insert(self._readers.setdefault(x, []), k)

    def _fits(
        self,
        group: Fusion,
        root: Instruction,
        kind: str,
        outer: tuple[int, ...],
        reads: dict[Instruction, list[AccessMap]],
    ) -> tuple[str, tuple[int, ...]] | None:
        """Kind and outer sizes of the nest with the root in it, or None if it does not belong there."""
        members = {r for g in group.roots for r in results_of(g, self.users)}
        alone = math.prod(iteration_space(root)) == 1  # what has one element gains by company of any kind
        shared = [x for x in reads if x in members or x in group.reads]
        if (
            not any(x in members or x.array_shape.size > 1 or alone for x in shared)
            or len(group.reads) + len(reads) > MOST_BUFFERS
        ):
            return None
        joined = self._joined_kind(group, root, kind, outer)
        if joined is None:
            return None
        space = joined[1]
        if joined[0] in ("column", "split"):
            whole = iteration_space((group.reductions or [root])[0])
            is_inside = producer_of(root).op is reduction.reduce or iteration_space(root) == whole != space
            if any((spans_iteration_space(x, whole) and whole != space) != is_inside for x in members & reads.keys()):
                return None  # results are known when all elements have been seen
            space = whole if is_inside else space
        kept = Fusion(joined[0], joined[1], [*group.roots, root]).kept
        if kept is not None:
            return (
                joined if all(_is_local(x, p, root, kept) for x in members & reads.keys() for p in reads[x]) else None
            )
        local = normalize(range(len(space)), space)
        for x in members & reads.keys():
            for place in reads[x]:
                if place[: len(space)] != local or (joined[0] != "row" and len(place) != len(space)):
                    return None
        return joined

    def _joined_kind(
        self, group: Fusion, root: Instruction, kind: str, outer: tuple[int, ...]
    ) -> tuple[str, tuple[int, ...]] | None:
        sizes = iteration_space(root)
        if "parts" in (group.kind, kind):
            return None
        if group.kind in ("column", "split") and kind == "loop":
            space = iteration_space(group.reductions[0])
            fits = sizes == group.outer or (sizes == space and _is_in_order([root], self.stored, space))
            return (group.kind, group.outer) if fits else None
        if group.kind == "loop" and kind in ("column", "split"):
            fits = group.outer == sizes != outer and _is_in_order(group.roots, self.stored, sizes)
            return (kind, outer) if fits else None
        if group.kind in ("column", "split") or kind in ("column", "split"):
            return (kind, outer) if group.kind == kind and _is_same_reduction(group.reductions[0], root) else None
        if (kind == "row" and not reduces_trailing_dimensions(root)) or group.kept is not None:
            return self._joined_inside(group, root, kind, outer)
        if group.kind == "loop" and kind == "loop":
            return ("loop", outer) if group.outer == outer else None
        if group.kind == "row":
            fits = sizes[: len(group.outer)] == group.outer and (kind == "loop" or outer == group.outer)
            new = group.outer
        else:
            fits = group.outer[: len(outer)] == outer
            new = outer
        enough = (
            math.prod(new) >= FEW_ROWS
            or max(math.prod(s) for s in (sizes, *map(iteration_space, group.roots))) <= SERIAL
        )
        return ("row", new) if fits and enough else None

    def _joined_inside(
        self, group: Fusion, root: Instruction, kind: str, outer: tuple[int, ...]
    ) -> tuple[str, tuple[int, ...]] | None:
        """The same where what the reductions keep is not the first dimensions: all are over one space, or over what
        they keep."""
        first, *others = [*group.reductions, *([root] if kind == "row" else [])]
        space, kept = iteration_space(first), kept_dimensions(first)
        new = tuple(space[d] for d in kept)
        plain = [x for x in (*group.roots, root) if producer_of(x).op is not reduction.reduce]
        fits = all(_is_same_reduction(first, x) for x in others) and all(
            iteration_space(x) in (space, new) for x in plain
        )
        fits = fits and (group.kind == "row" or group.outer == space) and _is_in_order(plain, self.stored, space)
        enough = math.prod(new) >= FEW_ROWS or math.prod(space) <= SERIAL
        return ("row", new) if fits and enough else None


class _Rows:
    """The nests of rows, by the arrays they read and their outer sizes."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self._outer: dict[int, tuple[int, ...]] = {}
        self._readers: dict[tuple[Instruction, tuple[int, ...]], list[int]] = {}
        for k, step in enumerate(steps):
            if isinstance(step, Fusion) and step.kind == "row":
                self._outer[k] = step.outer
                for x in step.reads:
                    self._readers.setdefault((x, step.outer), []).append(k)

    def numbers(self) -> list[int]:
        return list(self._outer)

    def near(self, j: int, outer: tuple[int, ...], reads: Iterable[Instruction], made_by: Iterable[int]) -> list[int]:
        """Rows of these outer sizes, other than nest j, that make or read some of this: of those that read the same
        the nearest ones."""
        found = {k for k in made_by if self._outer.get(k) == outer}
        for x in reads:
            readers = self._readers.get((x, outer), [])
            at = bisect_left(readers, j)
            found.update(readers[max(0, at - NEAREST) : at + NEAREST])
        return sorted(found - {j})

    def merge(self, k: int, j: int, other: Fusion) -> None:
        """Row k takes in nest j."""
        outer, former = self._outer[k], self._outer.pop(j, None)
        for x in other.reads:
            if former is not None:
                readers = self._readers[x, former]
                del readers[bisect_left(readers, j)]
            _insert(self._readers.setdefault((x, outer), []), k)


def _insert(numbers: list[int], k: int) -> None:
    """Put a number in its place in an ascending list, if it is not there."""
    at = bisect_left(numbers, k)
    if at == len(numbers) or numbers[at] != k:
        numbers.insert(at, k)


def _is_same_reduction(one: Instruction, other: Instruction) -> bool:
    """Whether two reductions are over the same dimensions of the same space."""
    return (
        iteration_space(one) == iteration_space(other)
        and producer_of(one).attributes.dimensions == producer_of(other).attributes.dimensions
    )


def _is_local(x: Instruction, place: AccessMap, root: Instruction, kept: tuple[int, ...]) -> bool:
    """Whether a root, in a row whose reductions keep these dimensions, reads only what belongs to the same row of x."""
    if len(iteration_space(root)) == len(kept):
        return len(place) == len(kept) and place == normalize(range(len(kept)), iteration_space(root))
    if len(place) == len(kept):
        return place == normalize(kept, [iteration_space(root)[d] for d in kept])
    sizes = iteration_space(root)
    return len(place) == len(sizes) and all(place[d] == (d if sizes[d] != 1 else -1) for d in kept)


def _is_in_order(roots: Sequence[Instruction], stored: set[Instruction], space: tuple[int, ...]) -> bool:
    """Whether the innermost loop goes along memory in all that is read."""
    wide = [d for d, size in enumerate(space) if size != 1]
    for x, place, from_memory in walk_producers(roots, stored):
        pure = [c for c in place if c != -1]
        if from_memory and x.array_shape.size >= SERIAL and wide and pure and pure[-1] != wide[-1]:
            return False
    return True
