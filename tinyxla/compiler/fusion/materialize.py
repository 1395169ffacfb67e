"""What is computed once and kept in memory, rather than where it is read.

First what has to be, and what would be computed many times at one place; then, when nests are known, what several of
them would compute.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence, Set

from tinyxla.compiler.analysis.access_maps import split_dimensions
from tinyxla.compiler.analysis.fusibility import (
    COSTLY_WORK,
    MOVEMENT,
    is_costly,
    is_inlined,
    is_native_type,
    is_reduction,
    is_scalar_computation,
)
from tinyxla.compiler.fusion.plan import (
    Fusion,
    Step,
    buffer_of,
    is_leaf,
    is_wide_concatenate,
    materialized_inputs,
    producer_of,
    results_of,
    walk_producers,
)
from tinyxla.compiler.passes.layout_assignment import MIN_REUSE
from tinyxla.hlo import Computation, Instruction
from tinyxla.ops import calls, dynamic_slices, elementwise, indexing, movement, reduction, sorting
from tinyxla.shapes import Shape

MOST_COMPUTED = 12  # instructions that an op which writes some elements computes by itself
DEEPEST = 80  # inlined instructions in a chain
MOST_INLINED = 1 << 11  # from which an element is computed
MOST_VIEWS = 4  # places at which something is computed, before it is moved again
MOST_EDGES = 36  # places at which it is asked where in something put together an element is
CHEAP_VIEWS = 6  # places at which what is cheap is computed: the components of a system, which one loop computes
MOST_AGAIN = 64  # operations that are done again for an element
COSTLY_VIEWS = 2  # places at which what is costly is computed: both parts of a rotation, say
WRITING = 2  # readings of an array that take as long as writing one
FEW_OPERATIONS = 8  # that may as well be computed again for each element that is gathered
LONG_SLICE = 256  # elements that are worth storing what they are read from
WORK = {"divide": 2, "sqrt": 2, "rsqrt": 2, "gather": 1}  # of what is not simple, in simple operations
SIMPLE = 32  # operations that are next to nothing
UNSURE = 16  # times as much work is to be saved where it may be computed once anyway
STORING = 16  # simple operations that take as long as writing an element and reading it
ONE_MORE_NEST = 1 << 15  # and as long as another loop nest

_Views = set[tuple[Instruction, int]]  # what an element is computed from, each with a number for the way to its index


def _moved(views: _Views, x: Instruction) -> _Views:
    """What x is computed from by an operand: elsewhere, if x moves data."""
    if x.op.name not in MOVEMENT:
        return views
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
    dimensions do not matter to is computed outside of the loops over these, which is sure for the last one alone: the
    others may be one loop."""
    size = operand.array_shape.size
    if x.op is not movement.broadcast or size < 2:
        return False
    sizes = x.array_shape.dimensions
    last = max(to for d, to in enumerate(x.attributes.dimensions) if operand.array_shape.dimensions[d] > 1)
    computed = {y for y, _ in views if y.array_shape.size > 1}
    work = sum(
        min(y.array_shape.size, size) * (COSTLY_WORK if is_costly(y) else WORK.get(y.op.name, 0)) for y in computed
    )
    work += size * max(0, len(computed) - SIMPLE)
    surely, perhaps = (math.prod(sizes[:end]) // size - 1 for end in (last + 1, max(last + 1, len(sizes) - 1)))
    return max(surely, perhaps / UNSURE) * work >= max(ONE_MORE_NEST, STORING * size)


def _is_put_together(x: Instruction) -> bool:
    return x.op is movement.concatenate or x.op is movement.pad


def _slides_over_edges(x: Instruction, operand: Instruction) -> bool:
    """Whether much is read from anywhere in what is put together, so that each element asks where it is."""
    sizes = x.array_shape.size, operand.array_shape.size if isinstance(operand.shape, Shape) else 0
    anywhere = x.op is dynamic_slices.dynamic_slice or x.op is indexing.gather
    return (
        anywhere
        and operand is x.operands[0]
        and _is_put_together(operand)
        and sizes[0] >= max(LONG_SLICE, sizes[1] // 2)
    )


def _turns_often(x: Instruction, operand: Instruction) -> bool:
    """Whether what a broadcast reads across is read so often that it is better turned."""
    is_turned = x.op is movement.broadcast and operand.op is movement.transpose
    return is_turned and x.array_shape.size >= MIN_REUSE * operand.array_shape.size


def _takes_places(x: Instruction, operand: Instruction) -> bool:
    """Whether an op that is a loop nest of its own counts the places in a line by itself, where these are no keys."""
    along = operand.op is movement.iota and x.op is sorting.sort and is_scalar_computation(x.attributes.to_apply)
    return along and operand is not x.operands[0] and x.attributes.dimensions == (operand.attributes.iota_dimension,)


def _computes(x: Instruction, number: int, stored: set[Instruction]) -> bool:
    """Whether an op that writes some elements of arrays computes an operand by itself: what it writes, or where, if
    that is simple, and does not read what it changes."""
    if x.op is indexing.scatter:
        changed = len(x.operands) // 2
        native = is_scalar_computation(x.attributes.to_apply) and is_native_type(x.operands[changed].array_shape)
    else:
        changed, native = 1, x.op is dynamic_slices.dynamic_update_slice
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
        return all(len(into) == len(out) == 1 for into, out in split_dimensions(*sizes))
    cheap = x.op in (movement.broadcast, movement.iota, movement.constant) or x.op.name in elementwise.NAMES
    return cheap and is_inlined(x) and not is_costly(x)


def initially_materialized(computation: Computation) -> set[Instruction]:
    """What is stored whatever the nests are."""
    stored: set[Instruction] = set()
    depth: dict[Instruction, int] = {}
    views: dict[Instruction, _Views] = {}
    edges: dict[Instruction, _Views] = {}  # the same of what is put together

    def store(x: Instruction) -> None:
        x = buffer_of(x)
        if not is_leaf(x) and x.op is not movement.constant:  # which has memory from the start, where it needs any
            stored.add(x)

    def store_repeated(x: Instruction) -> None:
        """What x would compute at many places. Of what is made of each other, the last is enough, if it is cheap."""
        if len({y for y, _ in views[x]}) == len(views[x]):
            return
        inside: set[Instruction] = set()
        often = {y: n for y, n in Counter(y for y, _ in views[x] if y not in stored).items() if n > COSTLY_VIEWS}
        for y in sorted(often, key=lambda y: len(views[y]), reverse=True):
            again = (often[y] - 1) * len(views[y]) if often[y] > CHEAP_VIEWS and y not in inside else 0
            if is_costly(y) or again > MOST_AGAIN:
                store(y)
                inside.update(z for z, _ in views[y] if not is_costly(z))
        if inside:
            views[x] = {(y, way) for y, way in views[x] if y not in inside}

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
            views[x] = {(x, 0)} if x.op.name not in MOVEMENT or x.op.name in WORK else set()
            edges[x] = {(x, 0)} if _is_put_together(x) and x.array_shape.size >= LONG_SLICE else set()
            for operand in x.operands:
                seen = views.get(operand, ())
                if x.op.name in MOVEMENT and (_most(seen) >= MOST_VIEWS or _read_again(x, operand, seen)):
                    store(operand)
                if _slides_over_edges(x, operand) or _repeated(x, operand, seen) or _turns_often(x, operand):
                    store(operand)
                if buffer_of(operand) not in stored:
                    views[x] |= _moved(views.get(operand, set()), x)
                    edges[x] |= _moved({e for e in edges.get(operand, ()) if e[0] not in stored}, x)
            store_repeated(x)
            if len(views[x]) > MOST_INLINED:  # LLVM takes more than linear time: kernels are cut, as sums of halves
                for operand in x.operands:
                    if len(views.get(operand, ())) > MOST_INLINED // 8:
                        store(operand)
                views[x] = {(x, 0)}
            for joined, times in Counter(y for y, _ in edges[x] if y not in stored).items():
                if times > MOST_EDGES:
                    store(joined)
            depth[x] = 1 + max((0 if o in stored else depth[o] for o in x.operands), default=0)
            if depth[x] > DEEPEST or is_wide_concatenate(x):
                store(x)
        else:
            stored.add(x) if isinstance(x.shape, Shape) else None
            for k, operand in enumerate(x.operands):
                if not _takes_places(x, operand) and not _computes(x, k, stored):
                    store(operand)
    return stored


def recomputed(computation: Computation, steps: Sequence[Step], stored: set[Instruction]) -> set[Instruction]:
    """What several nests compute, but is better stored: what is costly, and sums and the like of so many arrays that
    reading the result saves more than writing it takes, such as what the layers of a deep network add up."""
    nests: dict[Instruction, set[int]] = {}
    for number, step in enumerate(steps):
        if isinstance(step, Fusion):
            for x, _, from_memory in walk_producers(step.roots, stored):
                if not from_memory:
                    nests.setdefault(x, set()).add(number)
    found: set[Instruction] = set()
    computed = set(nests)
    below: dict[Instruction, frozenset[Instruction]] = {}  # what an element is computed from, to the arrays in memory
    for x in computation.instructions:
        below[x] = frozenset([x])
        if x in nests:
            inputs = frozenset[Instruction]().union(*(below[o] for o in x.operands))
            again = len(nests[x]) - 1
            if again and x.op.name in elementwise.NAMES and _is_better_stored(x, again, inputs, computed):
                found.add(x)
                computed.remove(x)
            else:
                below[x] = inputs | below[x]
    return found


def _is_better_stored(x: Instruction, again: int, inputs: Iterable[Instruction], computed: Set[Instruction]) -> bool:
    """Whether it takes less time to write x and to read it than to compute it again so often, from inputs of which some
    are computed, too."""
    if is_costly(x):
        return True
    size = x.array_shape.size
    large = [y for y in inputs if 2 * y.array_shape.size > size]
    saved = again * (sum(y not in computed for y in large) - 1)
    work = again * sum(y in computed and y.op.name in elementwise.NAMES for y in large)
    return size > 1 and (saved > WRITING or work > MOST_AGAIN)


def live_out(computation: Computation, steps: Sequence[Step], stored: set[Instruction]) -> set[Instruction]:
    """What is read outside of the nest that makes it."""
    found = {buffer_of(x) for x in computation.outputs}
    users = computation.users()
    for step in steps:
        if isinstance(step, Fusion):
            own = set(step.roots)
            found.update(x for x in step.reads if producer_of(x) not in own)
            if step.kind == "row":  # plain roots are read again from memory by later loops over the row
                found.update(x for x in step.reads if x in own and x.op is not reduction.reduce)
        else:
            found.update(materialized_inputs(step.root, stored))
            found.update(results_of(step.root, users))
    return found
