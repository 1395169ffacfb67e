"""Fusion: which instructions become which loop nests, products and calls, in which order.

*Inlined* instructions (element-wise, data movement, scalar constants) have no memory of their own: they are computed
where they are read. *Stored* ones are: results, operands and results of products, reductions that are read elsewhere,
and what is too costly to compute twice. Every stored instruction and every reduction is a *root* of one loop nest.
Nests join where they share data, have the same outer dimensions, and need of each other only what belongs to the same
outer index. There are five kinds:

- `loop`: element-wise over one space;
- `row`: for each outer index, loops over the inner dimensions one after the other, with reductions in between, such as
  the whole of a softmax;
- `column`: reductions whose innermost dimension is kept: a row of accumulators;
- `split`: reductions to few elements: pieces are reduced on their own and then together.

The last two also take in what is made of a reduction's result element by element, and what is stored for each element
that they reduce. A `row` takes in reductions over its outer dimensions, too, such as the gradient of a scale.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from tinyxla.compiler.access import Place, matching, normal, operand_places
from tinyxla.hlo import Computation, Instruction
from tinyxla.ops import calls, contraction, elementwise, indexing, movement, reduction, sorting
from tinyxla.shapes import Shape, TupleShape

SERIAL = 1 << 15  # elements that are not worth splitting over threads
FEW_ROWS = 64  # below this many rows, rows are cut instead
MOST_ROOTS = 24  # of one nest
MOST_BUFFERS = 48
MOST_COMPUTED = 12  # instructions that an op which writes some elements computes by itself
MOST_ARRAYS = 8  # of which loops choose one for each element
DEEPEST = 80  # inlined instructions in a chain
MOST_VIEWS = 4  # places at which something is computed, before it is moved again
COSTLY_VIEWS = 2  # places at which what is costly is computed: both parts of a rotation, say
WIDEST_ACROSS = 1 << 13  # elements of what a row reduces over its outer dimensions
WRITING = 2  # readings of an array that take as long as writing one
FEW_OPERATIONS = 8  # that may as well be computed again for each element that is gathered
LONG_SLICE = 256  # elements that are worth storing what they are read from
WORK = {"divide": 2, "sqrt": 2, "rsqrt": 2}  # of what is not simple, in simple operations
COSTLY_WORK = 8  # of what is costly
STORING = 16  # simple operations that take as long as writing an element and reading it
ONE_MORE_NEST = 1 << 15  # and as long as another loop nest

_MOVEMENT = frozenset("broadcast reshape transpose reverse slice pad concatenate iota dynamic-slice gather".split())
_COSTLY = frozenset(
    "exponential exponential-minus-one log log-plus-one logistic sine cosine tan tanh sinh cosh erf erf-inv power "
    "atan2 cbrt remainder".split()
)
_UNSUPPORTED_BITS = frozenset({2, 4})


@dataclass(eq=False)
class Fusion:
    """A loop nest. `outer` are the sizes of the dimensions that all roots share (all for a `loop`); `across`, of
    a row, is a nest of reductions over these, which it does too: its roots and reads are among those of the row."""

    kind: str
    outer: tuple[int, ...]
    roots: list[Instruction] = field(default_factory=list)
    reads: dict[Instruction, None] = field(default_factory=dict)
    across: Fusion | None = None

    @property
    def reductions(self) -> list[Instruction]:
        """The roots that are reductions."""
        return [root for root in self.roots if base(root).op is reduction.reduce]

    @property
    def kept(self) -> tuple[int, ...] | None:
        """Of a row: the dimensions that its reductions keep, if these are not the first ones. They are the same for all
        roots of that rank."""
        others = self.across.roots if self.across is not None else []
        inside = [x for x in self.reductions if self.kind == "row" and x not in others and not is_trailing(x)]
        return kept_dimensions(inside[0]) if inside else None

    def along(self) -> list[Instruction]:
        """Of a nest of one space of reductions: the roots that are stored for each element that is reduced."""
        space = domain(self.reductions[0])
        return [x for x in self.roots if space != self.outer and is_stored_along(x, space)]


@dataclass(eq=False)
class Product:
    """A matrix product, left to the BLAS."""

    root: Instruction


@dataclass(eq=False)
class HostCall:
    """An op that no loop nest expresses, evaluated on arrays as the interpreter does."""

    root: Instruction


Step = Fusion | Product | HostCall


@dataclass(eq=False)
class Plan:
    """Steps in order.

    `stored` are the instructions that are computed once and kept; a reshape of one is another view of it (`buffer_of`).
    Those in `escaping` are read outside of the nest that makes them: they have memory of their own. `after` has nests
    that are computed where the result of an instruction is made.
    """

    computation: Computation
    steps: list[Step]
    stored: set[Instruction]
    escaping: set[Instruction]
    after: dict[Instruction, Fusion] = field(default_factory=dict)


def buffer_of(x: Instruction) -> Instruction:
    """The instruction whose memory x has: a reshape is another view of its operand's."""
    while x.op is movement.reshape:
        x = x.operands[0]
    return x


def is_leaf(x: Instruction) -> bool:
    """Parameters, and constants that loops cannot have in place, have memory from the start."""
    if x.op is movement.constant:
        return x.array_shape.size != 1 or not supported(x.array_shape)
    return x.op is movement.parameter


def is_inlined(x: Instruction) -> bool:
    """Whether loops can compute the instruction in place."""
    name = x.op.name
    if name in _MOVEMENT or name in elementwise.NAMES or _is_native_bits(x):
        return all(supported(o.array_shape) for o in (x, *x.operands)) or _is_of_bytes(x)
    return x.op is movement.constant


def _is_of_bytes(x: Instruction) -> bool:
    """What loops can do with types that are only stored: move and choose elements, and convert them. To a float among
    them from what an f32 holds."""
    if x.op is not elementwise.convert:
        return x.op.name == "select" or (x.op.name in _MOVEMENT and x.op is not movement.iota)
    source, target = x.operands[0].array_shape, x.array_shape
    if "complex" in (source.element_type.kind, target.element_type.kind):
        return False
    exact = source.element_type.bits <= 16 or source.element_type.name == "f32"
    return exact or target.element_type.is_integer or supported(target)


def _is_native_bits(x: Instruction) -> bool:
    """A bitcast element by element, or a loss of precision in a type that kernels compute in."""
    if x.op.name == "reduce-precision":
        return x.array_shape.element_type.bits >= 32
    return x.op.name == "bitcast-convert" and x.array_shape.dimensions == x.operands[0].array_shape.dimensions


def supported(shape: Shape) -> bool:
    """Whether kernels have scalars of this type: not of the 8-bit floats and narrower types, which are only stored."""
    kind = shape.element_type
    return kind.bits not in _UNSUPPORTED_BITS and not (kind.kind == "float" and kind.bits < 16)


def is_reduction(x: Instruction) -> bool:
    """A reduction that loops can do: its computation is of scalars only."""
    if x.op is not reduction.reduce:
        return False
    return is_of_scalars(x.attributes.to_apply) and all(supported(o.array_shape) for o in x.operands)


def is_of_scalars(computation: Computation) -> bool:
    """Whether `Lowering.apply` can do a computation: parameters are scalars, and so is all that is not inlined or
    reduced."""
    return all(map(_is_of_scalars, computation.instructions))


def _is_of_scalars(x: Instruction) -> bool:
    if x.op is movement.parameter:
        return isinstance(x.shape, Shape) and not x.shape.rank
    if x.op in (calls.tuple_, calls.get_tuple_element):
        return True
    if x.op.name in ("while", "conditional"):
        return all(map(is_of_scalars, x.computations()))
    return is_reduction(x) or is_inlined(x)


def is_costly(x: Instruction) -> bool:
    """Whether an element takes as long to compute as several loads."""
    return x.op.name in _COSTLY


def results_of(x: Instruction, users: dict[Instruction, list[Instruction]]) -> list[Instruction]:
    """The arrays an instruction gives: itself, or the elements of its tuple that are taken."""
    if isinstance(x.shape, TupleShape):
        return [u for u in users[x] if u.op is calls.get_tuple_element]
    return [x]


def base(x: Instruction) -> Instruction:
    """The instruction that makes a root: for an element of a tuple, what makes the tuple."""
    return x.operands[0] if x.op is calls.get_tuple_element else x


def plan(computation: Computation) -> Plan:
    """Decide what is stored, and join loop nests; where several would compute what is better stored, decide again."""
    stored = _first_stored(computation)
    while True:
        groups = _Grouping(computation, stored).steps()
        again = _computed_twice(computation, groups, stored)
        if not again:
            return Plan(computation, groups, stored, _escaping(computation, groups, stored))
        stored |= again


def _inputs(x: Instruction, stored: set[Instruction]) -> list[Instruction]:
    """What an op that is not part of a fusion reads from memory."""
    found: dict[Instruction, None] = {}
    waiting = list(x.operands)
    while waiting:
        y = buffer_of(waiting.pop())
        if y in stored or not is_inlined(y):
            found[y] = None
        else:
            waiting.extend(y.operands)
    return list(found)


def _escaping(computation: Computation, steps: Sequence[Step], stored: set[Instruction]) -> set[Instruction]:
    found = {buffer_of(x) for x in computation.outputs}
    users = computation.users()
    for step in steps:
        if isinstance(step, Fusion):
            own = set(step.roots)
            found.update(x for x in step.reads if base(x) not in own)
            if step.kind == "row":  # plain roots are read again from memory by later loops over the row
                found.update(x for x in step.reads if x in own and x.op is not reduction.reduce)
        else:
            found.update(_inputs(step.root, stored))
            found.update(results_of(step.root, users))
    return found


_Views = set[tuple[Instruction, int]]  # what an element is computed from, each with a number for the way to its index


def _moved(views: Iterable[tuple[Instruction, int]], x: Instruction) -> _Views:
    """What x is computed from by an operand: elsewhere, if x moves data."""
    if x.op.name not in _MOVEMENT:
        return set(views)
    return {(y, hash((id(x), way))) for y, way in views}


def _most(views: Iterable[tuple[Instruction, int]]) -> int:
    """How often the same instruction is computed, at most."""
    return max(Counter(y for y, _ in views).values(), default=0)


def _read_again(x: Instruction, operand: Instruction, views: Iterable[tuple[Instruction, int]]) -> bool:
    """Whether a gather asks several times for elements of an operand, or of the indices, that take long to compute."""
    if x.op is not indexing.gather or x.array_shape.size <= operand.array_shape.size:
        return False
    computed = {y for y, _ in views}
    return len(computed) > FEW_OPERATIONS or any(map(is_costly, computed))


def _repeated(x: Instruction, operand: Instruction, views: Iterable[tuple[Instruction, int]]) -> bool:
    """Whether a broadcast computes the elements of its operand so often that it is better stored. What the last
    dimensions do not matter to is computed outside of the loops over these."""
    size = operand.array_shape.size
    if x.op is not movement.broadcast or size < 2:
        return False
    last = max(to for d, to in enumerate(x.attributes.dimensions) if operand.array_shape.dimensions[d] > 1)
    again = math.prod(x.array_shape.dimensions[: last + 1]) // size - 1
    computed = {y for y, _ in views}
    work = again * sum(
        min(y.array_shape.size, size) * (COSTLY_WORK if is_costly(y) else WORK.get(y.op.name, 0))
        for y in computed
        if y.array_shape.size > 1
    )
    return work >= max(ONE_MORE_NEST, STORING * size)


def _slides_over_edges(x: Instruction, operand: Instruction) -> bool:
    """Whether much is read from anywhere in what is put together, so that each element asks where it is."""
    sizes = x.array_shape.size, operand.array_shape.size if isinstance(operand.shape, Shape) else 0
    put_together = operand.op is movement.concatenate or operand.op is movement.pad
    anywhere = x.op is indexing.dynamic_slice or x.op is indexing.gather
    return anywhere and put_together and sizes[0] >= max(LONG_SLICE, sizes[1] // 2)


def _first_stored(computation: Computation) -> set[Instruction]:
    stored: set[Instruction] = set()
    depth: dict[Instruction, int] = {}
    views: dict[Instruction, _Views] = {}

    def store(x: Instruction) -> None:
        x = buffer_of(x)
        if not is_leaf(x) and x.op is not movement.constant:  # which has memory from the start, where it needs any
            stored.add(x)

    for x in computation.outputs:
        store(x)
    for x in computation.instructions:
        if x is computation.root and x.op is calls.tuple_:
            continue
        depth[x] = 0
        if x.op is calls.get_tuple_element:
            stored.add(x)
        elif is_leaf(x):
            pass
        elif is_reduction(x):
            if isinstance(x.shape, Shape):
                stored.add(x)
        elif is_inlined(x):
            views[x] = {(x, 0)} if x.op.name not in _MOVEMENT else set()
            for operand in x.operands:
                seen = views.get(operand, ())
                if x.op.name in _MOVEMENT and (_most(seen) >= MOST_VIEWS or _read_again(x, operand, seen)):
                    store(operand)
                if _slides_over_edges(x, operand) or _repeated(x, operand, seen):
                    store(operand)
                if buffer_of(operand) not in stored:
                    views[x] |= _moved(views.get(operand, ()), x)
            for costly, times in Counter(y for y, _ in views[x] if y not in stored and is_costly(y)).items():
                if times > COSTLY_VIEWS:
                    store(costly)
            depth[x] = 1 + max((0 if o in stored else depth[o] for o in x.operands), default=0)
            if depth[x] > DEEPEST or _is_of_many(x):
                store(x)
        else:
            stored.add(x) if isinstance(x.shape, Shape) else None
            for k, operand in enumerate(x.operands):
                if not _takes_places(x, operand) and not _computes(x, k, stored):
                    store(operand)
    return stored


def domain(root: Instruction) -> tuple[int, ...]:
    """The sizes of the loops around a root: its own dimensions, or those of what it reduces."""
    x = base(root)
    return x.operands[0].array_shape.dimensions if x.op is reduction.reduce else x.array_shape.dimensions


def first_places(root: Instruction) -> list[tuple[Instruction, Place]]:
    """What a root reads for one index of its domain."""
    x = base(root)
    sizes = domain(root)
    here = normal(range(len(sizes)), sizes)
    if x.op is reduction.reduce:
        count = len(x.operands) // 2
        return [(o, here) for o in x.operands[:count]] + [(o, ()) for o in x.operands[count:]]
    return list(operand_places(x, here))


def walk(roots: Iterable[Instruction], stored: set[Instruction]) -> Iterator[tuple[Instruction, Place, bool]]:
    """All instructions that roots read, with the place, each pair once; the flag says that its memory is read."""
    seen: set[tuple[Instruction, Place]] = set()
    waiting: list[tuple[Instruction, Place]] = []
    for root in roots:
        waiting.extend(first_places(root))
    while waiting:
        item = waiting.pop()
        if item in seen:
            continue
        seen.add(item)
        x, place = item
        from_memory = x in stored or is_leaf(x)
        yield x, place, from_memory
        if not from_memory:
            waiting.extend(operand_places(x, place))


def _computed_twice(computation: Computation, steps: Sequence[Step], stored: set[Instruction]) -> set[Instruction]:
    """What several nests compute, but is better stored: what is costly, and sums and the like of so many arrays that
    reading the result saves more than writing it takes, such as what the layers of a deep network add up."""
    nests: dict[Instruction, set[int]] = {}
    for number, step in enumerate(steps):
        if isinstance(step, Fusion):
            for x, _, from_memory in walk(step.roots, stored):
                if not from_memory:
                    nests.setdefault(x, set()).add(number)
    found: set[Instruction] = set()
    reads: dict[Instruction, frozenset[Instruction]] = {}  # the arrays in memory that an element is computed from
    for x in computation.instructions:
        reads[x] = frozenset([x])
        if x in nests:
            below = frozenset[Instruction]().union(*(reads[o] for o in x.operands))
            again = len(nests[x]) - 1
            if again and x.op.name in elementwise.NAMES:
                size = x.array_shape.size
                saved = again * (sum(2 * y.array_shape.size > size for y in below) - 1)
                if is_costly(x) or (saved > WRITING and size > 1):
                    found.add(x)
                    continue
            reads[x] = below
    return found


def shape_class(root: Instruction) -> tuple[str, tuple[int, ...]]:
    """The kind of nest a root makes by itself, and the outer sizes."""
    x = base(root)
    sizes = domain(root)
    if x.op is not reduction.reduce:
        return "parts" if _is_of_many(x) else "loop", sizes
    reduced = x.attributes.dimensions
    kept = [d for d in range(len(sizes)) if d not in reduced]
    rows = math.prod(sizes[d] for d in kept)
    total = math.prod(sizes)
    wide = [d for d in range(len(sizes)) if sizes[d] != 1]
    if wide and wide[-1] not in reduced:
        return "column", tuple(sizes[d] for d in kept)
    if rows < FEW_ROWS and total > SERIAL:
        return "split", tuple(sizes[d] for d in kept)
    return "row", tuple(sizes[d] for d in kept)


def is_stored_along(root: Instruction, space: tuple[int, ...]) -> bool:
    """Whether a root is computed element by element in this space."""
    return base(root).op is not reduction.reduce and domain(root) == space


def kept_dimensions(root: Instruction) -> tuple[int, ...]:
    """The dimensions that a reduction keeps."""
    return tuple(d for d in range(len(domain(root))) if d not in base(root).attributes.dimensions)


def _is_of_many(x: Instruction) -> bool:
    return x.op is movement.concatenate and len(x.operands) > MOST_ARRAYS


def _takes_places(x: Instruction, operand: Instruction) -> bool:
    """Whether an op that is a loop nest of its own counts the places in a line by itself."""
    return operand.op is movement.iota and x.op is sorting.sort and is_of_scalars(x.attributes.to_apply)


def _computes(x: Instruction, number: int, stored: set[Instruction]) -> bool:
    """Whether an op that writes some elements of arrays computes an operand by itself: what it writes, or where, if
    that is simple, and does not read what it changes."""
    if x.op is indexing.scatter:
        changed = len(x.operands) // 2
        native = is_of_scalars(x.attributes.to_apply) and supported(x.operands[changed].array_shape)
    else:
        changed, native = 1, x.op is indexing.dynamic_update_slice
    if not native or number < changed:
        return False
    arrays = set(map(buffer_of, x.operands[:changed]))
    seen: set[Instruction] = set()
    waiting = [x.operands[number]]
    while waiting:
        y = waiting.pop()
        if buffer_of(y) in stored or is_leaf(buffer_of(y)):
            if buffer_of(y) in arrays:
                return False
        elif y not in seen:
            seen.add(y)
            if len(seen) > MOST_COMPUTED or not _is_simple(y):
                return False
            waiting.extend(y.operands)
    return True


def _is_simple(x: Instruction) -> bool:
    """Whether an element is made of few elements at the same index."""
    if x.op is movement.reshape:
        sizes = x.operands[0].array_shape.dimensions, x.array_shape.dimensions
        return all(len(into) == len(out) == 1 for into, out in matching(*sizes))
    cheap = x.op in (movement.broadcast, movement.iota, movement.constant) or x.op.name in elementwise.NAMES
    return cheap and is_inlined(x) and not is_costly(x)


def is_trailing(root: Instruction) -> bool:
    """Whether a reduction's kept dimensions come first."""
    kept = kept_dimensions(root)
    return kept == tuple(range(len(kept)))


class _Grouping:
    """Joins roots, in topological order, greedily: each goes to the latest nest that it fits."""

    def __init__(self, computation: Computation, stored: set[Instruction]) -> None:
        self.computation = computation
        self.stored = stored
        self.users = computation.users()
        self._steps: list[Step] = []
        self._before: list[int] = []  # for each step, the set of steps that must precede it, as bits
        self._effects = 0  # the last step with a side effect and all before it, as bits
        self._step_of: dict[Instruction, int] = {}
        for x in computation.instructions:
            self._visit(x)

    def steps(self) -> list[Step]:
        """In an order that respects what each needs."""
        gone = self._join_across()
        order: list[Step] = []
        placed = 0
        waiting = [k for k in range(len(self._steps)) if k not in gone]
        while waiting:
            rest: list[int] = []
            for k in waiting:
                if self._before[k] & ~placed == 0:
                    order.append(self._steps[k])
                    placed |= 1 << k
                else:
                    rest.append(k)
            assert len(rest) < len(waiting), "loop nests wait for each other"
            waiting = rest
        return order

    def _join_across(self) -> set[int]:
        """Let rows take in reductions over their outer dimensions of what they read anyway; gives what is gone."""
        rows: dict[tuple[int, ...], list[int]] = {}
        for k, step in enumerate(self._steps):
            if isinstance(step, Fusion) and step.kind == "row" and step.kept is None:
                rows.setdefault(step.outer, []).append(k)
        gone: set[int] = set()
        for j, column in enumerate(self._steps if rows else ()):
            if not isinstance(column, Fusion) or column.kind != "column":
                continue
            space, reduced = domain(column.reductions[0]), base(column.reductions[0]).attributes.dimensions
            rank = len(reduced)
            if reduced != tuple(range(rank)) or math.prod(space[rank:]) > WIDEST_ACROSS:
                continue
            for k in rows.get(space[:rank], ()):
                row = self._steps[k]
                assert isinstance(row, Fusion)
                if row.across is None and self._may_merge(k, j) and self._fits_across(row, column, space):
                    self._merge(k, row, j, column)
                    gone.add(j)
                    break
        return gone

    def _merge(self, k: int, row: Fusion, j: int, column: Fusion) -> None:
        """Nest j becomes part of nest k."""
        row.across = column
        row.roots += column.roots
        row.reads.update(column.reads)
        self._before[k] |= self._before[j] & ~(1 << k)
        for t, before in enumerate(self._before):
            if before >> j & 1:
                self._before[t] = before & ~(1 << j) | 1 << k
        self._grow(k, 0)

    def _may_merge(self, k: int, j: int) -> bool:
        """Whether nothing stands between nest k and nest j, which may need it, but not the other way round."""
        if self._before[k] >> j & 1:
            return False
        if not self._before[j] >> k & 1:
            return True
        between = (t for t in range(len(self._steps)) if t not in (j, k) and self._before[j] >> t & 1)
        return not any(self._before[t] >> k & 1 for t in between)

    def _fits_across(self, row: Fusion, column: Fusion, space: tuple[int, ...]) -> bool:
        whole = math.prod(space)
        if not any(x.array_shape.size >= whole and (x in row.reads or base(x) in row.roots) for x in column.reads):
            return False
        if len(row.roots) + len(column.roots) > MOST_ROOTS or len(row.reads) + len(column.reads) > MOST_BUFFERS:
            return False
        if any(reduction.monoid(base(x).attributes.to_apply) is None for x in column.reductions):
            return False
        rank = len(row.outer)
        local = normal(range(rank), row.outer)
        members = {r for g in row.roots for r in results_of(g, self.users)}
        inside = [*column.reductions, *column.along()]
        read = (
            (x, place[:rank]) for x, place, from_memory in walk(inside, self.stored) if from_memory and x in members
        )
        after = [x for x in column.roots if x not in inside]
        late = (x for x, _, from_memory in walk(after, self.stored) if from_memory and x in members)
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
            self._add(step, x, _inputs(x, self.stored))

    def _add(self, step: Step, root: Instruction, reads: Iterable[Instruction]) -> None:
        self._steps.append(step)
        self._before.append(self._needs(reads))
        self._step_of[root] = k = len(self._steps) - 1
        if isinstance(step, HostCall) and root.has_side_effect:
            self._before[k] |= self._effects
            self._effects = self._before[k] | 1 << k

    def _needs(self, reads: Iterable[Instruction]) -> int:
        needed = 0
        for x in reads:
            k = self._step_of.get(x)
            if k is not None:
                needed |= self._before[k] | 1 << k
        return needed

    def _join(self, root: Instruction) -> None:
        kind, outer = shape_class(root)
        reads: dict[Instruction, list[Place]] = {}
        for x, place, from_memory in walk([root], self.stored):
            if from_memory:
                reads.setdefault(x, []).append(place)
        needed = self._needs(reads)
        for k in range(len(self._steps) - 1, max(-1, len(self._steps) - 65), -1):
            group = self._steps[k]
            if not isinstance(group, Fusion) or len(group.roots) >= MOST_ROOTS:
                continue
            if self._reaches_through_others(k, reads):
                continue
            joined = self._fits(group, root, kind, outer, reads)
            if joined is not None:
                group.kind, group.outer = joined
                group.roots.append(root)
                group.reads.update(dict.fromkeys(reads))
                self._step_of[root] = k
                self._grow(k, needed & ~(1 << k))
                return
        self._add(Fusion(kind, outer, [root], dict.fromkeys(reads)), root, reads)

    def _reaches_through_others(self, k: int, reads: Iterable[Instruction]) -> bool:
        """Whether something that is read, outside of nest k, needs nest k first."""
        for x in reads:
            of = self._step_of.get(x)
            if of is not None and of != k and self._before[of] >> k & 1:
                return True
        return False

    def _grow(self, k: int, needed: int) -> None:
        """Nest k needs more: so does all that needs nest k."""
        self._before[k] |= needed
        for j, before in enumerate(self._before):
            if before >> k & 1:
                self._before[j] |= self._before[k]

    def _fits(
        self, group: Fusion, root: Instruction, kind: str, outer: tuple[int, ...], reads: dict[Instruction, list[Place]]
    ) -> tuple[str, tuple[int, ...]] | None:
        """Kind and outer sizes of the nest with the root in it, or None if it does not belong there."""
        members = {r for g in group.roots for r in results_of(g, self.users)}
        alone = math.prod(domain(root)) == 1  # what has one element gains by company of any kind
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
            whole = domain((group.reductions or [root])[0])
            is_inside = base(root).op is reduction.reduce or domain(root) == whole != space
            if any((is_stored_along(x, whole) and whole != space) != is_inside for x in members & reads.keys()):
                return None  # results are known when all elements have been seen
            space = whole if is_inside else space
        kept = Fusion(joined[0], joined[1], [*group.roots, root]).kept
        if kept is not None:
            return (
                joined if all(_is_local(x, p, root, kept) for x in members & reads.keys() for p in reads[x]) else None
            )
        local = normal(range(len(space)), space)
        for x in members & reads.keys():
            for place in reads[x]:
                if place[: len(space)] != local or (joined[0] != "row" and len(place) != len(space)):
                    return None
        return joined

    def _joined_kind(
        self, group: Fusion, root: Instruction, kind: str, outer: tuple[int, ...]
    ) -> tuple[str, tuple[int, ...]] | None:
        sizes = domain(root)
        if "parts" in (group.kind, kind):
            return None
        if group.kind in ("column", "split") and kind == "loop":
            space = domain(group.reductions[0])
            fits = sizes == group.outer or (sizes == space and _is_in_order([root], self.stored, space))
            return (group.kind, group.outer) if fits else None
        if group.kind == "loop" and kind in ("column", "split"):
            fits = group.outer == sizes != outer and _is_in_order(group.roots, self.stored, sizes)
            return (kind, outer) if fits else None
        if group.kind in ("column", "split") or kind in ("column", "split"):
            return (kind, outer) if group.kind == kind and _is_same_reduction(group.reductions[0], root) else None
        if (kind == "row" and not is_trailing(root)) or group.kept is not None:
            return self._joined_inside(group, root, kind, outer)
        if group.kind == "loop" and kind == "loop":
            return ("loop", outer) if group.outer == outer else None
        if group.kind == "row":
            fits = sizes[: len(group.outer)] == group.outer and (kind == "loop" or outer == group.outer)
            new = group.outer
        else:
            fits = group.outer[: len(outer)] == outer
            new = outer
        enough = math.prod(new) >= FEW_ROWS or max(math.prod(s) for s in (sizes, *map(domain, group.roots))) <= SERIAL
        return ("row", new) if fits and enough else None

    def _joined_inside(
        self, group: Fusion, root: Instruction, kind: str, outer: tuple[int, ...]
    ) -> tuple[str, tuple[int, ...]] | None:
        """The same where what the reductions keep is not the first dimensions: all are over one space, or over what
        they keep."""
        first, *others = [*group.reductions, *([root] if kind == "row" else [])]
        space, kept = domain(first), kept_dimensions(first)
        new = tuple(space[d] for d in kept)
        plain = [x for x in (*group.roots, root) if base(x).op is not reduction.reduce]
        fits = all(_is_same_reduction(first, x) for x in others) and all(domain(x) in (space, new) for x in plain)
        fits = fits and (group.kind == "row" or group.outer == space) and _is_in_order(plain, self.stored, space)
        enough = math.prod(new) >= FEW_ROWS or math.prod(space) <= SERIAL
        return ("row", new) if fits and enough else None


def _is_same_reduction(one: Instruction, other: Instruction) -> bool:
    """Whether two reductions are over the same dimensions of the same space."""
    return domain(one) == domain(other) and base(one).attributes.dimensions == base(other).attributes.dimensions


def _is_local(x: Instruction, place: Place, root: Instruction, kept: tuple[int, ...]) -> bool:
    """Whether a root, in a row whose reductions keep these dimensions, reads only what belongs to the same row of x."""
    if len(domain(root)) == len(kept):
        return len(place) == len(kept) and place == normal(range(len(kept)), domain(root))
    if len(place) == len(kept):
        return place == normal(kept, [domain(root)[d] for d in kept])
    sizes = domain(root)
    return len(place) == len(sizes) and all(place[d] == (d if sizes[d] != 1 else -1) for d in kept)


def _is_in_order(roots: Sequence[Instruction], stored: set[Instruction], space: tuple[int, ...]) -> bool:
    """Whether the innermost loop goes along memory in all that is read."""
    wide = [d for d, size in enumerate(space) if size != 1]
    for x, place, from_memory in walk(roots, stored):
        pure = [c for c in place if c != -1]
        if from_memory and x.array_shape.size >= SERIAL and wide and pure and pure[-1] != wide[-1]:
            return False
    return True
