"""Plans: loop nests, products and calls. `storing.py` decides what has memory, `grouping.py` what shares a nest.

*Inlined* instructions (element-wise, data movement, scalar constants) have no memory of their own: they are computed
where they are read. *Stored* ones are: results, operands and results of products, reductions that are read elsewhere,
and what is too costly to compute twice. Every stored instruction and every reduction is a *root* of one loop nest.
Nests join where they share data, have the same outer dimensions, and need of each other only what belongs to the same
outer index. There are five kinds:

- `loop`: element-wise over one space;
- `row`: for each outer index, loops over the inner dimensions one after the other, with reductions in between, such as
  the whole of a softmax;
- `column`: reductions whose innermost dimension is kept, but for short runs: a row of accumulators;
- `split`: reductions to few elements: pieces are reduced on their own and then together.

The last two also take in what is made of a reduction's result element by element, and what is stored for each element
that they reduce. A `row` takes in reductions over its outer dimensions, too, such as the gradient of a scale.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tinyxla.compiler.analysis.access_maps import AccessMap, normalize, operand_access_maps
from tinyxla.compiler.analysis.fusibility import is_inlined, is_native_type
from tinyxla.hlo import Computation, Instruction
from tinyxla.ops import calls, movement, reduction
from tinyxla.shapes import TupleShape

SERIAL = 1 << 15  # elements that are not worth splitting over threads
FEW_ROWS = 64  # below this many rows, rows are cut instead
MOST_ARRAYS = 8  # of which loops choose one for each element
SHORT_RUN = 16  # elements of rows that are columns of longer ones, where other dimensions are reduced, too


@dataclass(eq=False)
class Fusion:
    """A loop nest. `outer` are the sizes of the dimensions that all roots share (all for a `loop`); `across`, of
    a row, is a nest of reductions over these, which it does too: its roots and reads are among those of the row."""

    kind: str
    outer: tuple[int, ...]
    roots: list[Instruction] = field(default_factory=list)
    reads: dict[Instruction, None] = field(default_factory=dict)
    cross_row: Fusion | None = None

    def add_root(self, root: Instruction, joined: tuple[str, tuple[int, ...]], reads: Iterable[Instruction]) -> None:
        """Compute a root that fits, with which the nest is of this kind and has these outer sizes."""
        self.kind, self.outer = joined
        self.roots.append(root)
        self.reads.update(dict.fromkeys(reads))

    @property
    def reductions(self) -> list[Instruction]:
        """The roots that are reductions."""
        return [root for root in self.roots if producer_of(root).op is reduction.reduce]

    @property
    def kept(self) -> tuple[int, ...] | None:
        """Of a row: the dimensions that its reductions keep, if these are not the first ones. They are the same for all
        roots of that rank."""
        others = self.cross_row.roots if self.cross_row is not None else []
        inside = [
            x for x in self.reductions if self.kind == "row" and x not in others and not reduces_trailing_dimensions(x)
        ]
        return kept_dimensions(inside[0]) if inside else None

    def full_space_roots(self) -> list[Instruction]:
        """Of a nest of one space of reductions: the roots that are stored for each element that is reduced."""
        space = iteration_space(self.reductions[0])
        return [x for x in self.roots if space != self.outer and spans_iteration_space(x, space)]


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
    materialized: set[Instruction]
    live_out: set[Instruction]
    epilogues: dict[Instruction, Fusion] = field(default_factory=dict)


def buffer_of(x: Instruction) -> Instruction:
    """The instruction whose memory x has: a reshape is another view of its operand's."""
    while x.op is movement.reshape:
        x = x.operands[0]
    return x


def is_leaf(x: Instruction) -> bool:
    """Parameters, and constants that loops cannot have in place, have memory from the start."""
    if x.op is movement.constant:
        return x.array_shape.size != 1 or not is_native_type(x.array_shape)
    return x.op is movement.parameter


def is_in_memory(x: Instruction, stored: set[Instruction]) -> bool:
    """Whether loops read an instruction rather than compute it."""
    return x in stored or is_leaf(x)


def results_of(x: Instruction, users: dict[Instruction, list[Instruction]]) -> list[Instruction]:
    """The arrays an instruction gives: itself, or the elements of its tuple that are taken."""
    if isinstance(x.shape, TupleShape):
        return [u for u in users[x] if u.op is calls.get_tuple_element]
    return [x]


def producer_of(x: Instruction) -> Instruction:
    """The instruction that makes a root: for an element of a tuple, what makes the tuple."""
    return x.operands[0] if x.op is calls.get_tuple_element else x


def materialized_inputs(x: Instruction, stored: set[Instruction]) -> list[Instruction]:
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


def iteration_space(root: Instruction) -> tuple[int, ...]:
    """The sizes of the loops around a root: its own dimensions, or those of what it reduces."""
    x = producer_of(root)
    return x.operands[0].array_shape.dimensions if x.op is reduction.reduce else x.array_shape.dimensions


def initial_access_maps(root: Instruction) -> list[tuple[Instruction, AccessMap]]:
    """What a root reads for one index of its domain."""
    x = producer_of(root)
    sizes = iteration_space(root)
    here = normalize(range(len(sizes)), sizes)
    if x.op is reduction.reduce:
        count = len(x.operands) // 2
        return [(o, here) for o in x.operands[:count]] + [(o, ()) for o in x.operands[count:]]
    return list(operand_access_maps(x, here))


def walk_producers(
    roots: Iterable[Instruction], stored: set[Instruction], views: bool = False
) -> Iterator[tuple[Instruction, AccessMap, bool]]:
    """All instructions that roots read, with the place, each pair once; the flag says that its memory is read. With
    `views`, a reshape of what is in memory stands for that."""
    seen: set[tuple[Instruction, AccessMap]] = set()
    waiting: list[tuple[Instruction, AccessMap]] = []
    for root in roots:
        waiting.extend(initial_access_maps(root))
    while waiting:
        item = waiting.pop()
        if item in seen:
            continue
        seen.add(item)
        x, place = item
        from_memory = is_in_memory(buffer_of(x) if views else x, stored)
        yield x, place, from_memory
        if not from_memory:
            waiting.extend(operand_access_maps(x, place))


def classify_root(root: Instruction) -> tuple[str, tuple[int, ...]]:
    """The kind of nest a root makes by itself, and the outer sizes."""
    x = producer_of(root)
    sizes = iteration_space(root)
    if x.op is not reduction.reduce:
        return "parts" if is_wide_concatenate(x) else "loop", sizes
    reduced = x.attributes.dimensions
    kept = [d for d in range(len(sizes)) if d not in reduced]
    rows = math.prod(sizes[d] for d in kept)
    total = math.prod(sizes)
    wide = [d for d in range(len(sizes)) if sizes[d] != 1]
    if wide and (wide[-1] not in reduced or _ends_in_short_runs(x)):
        return "column", tuple(sizes[d] for d in kept)
    if rows < FEW_ROWS and total > SERIAL:
        return "split", tuple(sizes[d] for d in kept)
    return "row", tuple(sizes[d] for d in kept)


def _ends_in_short_runs(x: Instruction) -> bool:
    """Whether the last dimensions that a reduction goes over are less than vectors, and there are others before what it
    keeps."""
    sizes, reduced = iteration_space(x), x.attributes.dimensions
    last = max((d for d in kept_dimensions(x) if sizes[d] != 1), default=-1)
    run, rows = (math.prod(sizes[d] for d in reduced if (d > last) == side) for side in (True, False))
    return run < SHORT_RUN < rows * run and rows > 1 and reduction.monoid(x.attributes.to_apply) is not None


def spans_iteration_space(root: Instruction, space: tuple[int, ...]) -> bool:
    """Whether a root is computed element by element in this space."""
    return producer_of(root).op is not reduction.reduce and iteration_space(root) == space


def kept_dimensions(root: Instruction) -> tuple[int, ...]:
    """The dimensions that a reduction keeps."""
    return tuple(d for d in range(len(iteration_space(root))) if d not in producer_of(root).attributes.dimensions)


def is_wide_concatenate(x: Instruction) -> bool:
    """Whether it puts together so many arrays that it is a nest of its own."""
    return x.op is movement.concatenate and len(x.operands) > MOST_ARRAYS


def reduces_trailing_dimensions(root: Instruction) -> bool:
    """Whether a reduction's kept dimensions come first."""
    kept = kept_dimensions(root)
    return kept == tuple(range(len(kept)))
