"""Arrays that are put in another order within short blocks of memory, each in the same way: many small matrices that
are transposed, or channels whose groups are interleaved.

Loops over so few elements cost more than to move these. So a routine is made for the order: it reads some blocks as
vectors, and each vector of the result is put together from the few that hold what belongs there, by shuffles whose
masks are known. The vectors overlap where blocks do not fill them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from hashlib import sha256
from itertools import product

from tinyxla.backends.numba.axes import Axis, cost, finished
from tinyxla.backends.numba.llvm_printer import routine_name
from tinyxla.backends.numba.lowering import LoweredKernel, Lowering
from tinyxla.backends.numba.native import provide_llvm, vector_bytes
from tinyxla.compiler.access import CONSTANT
from tinyxla.compiler.fusion import Plan, buffer_of, walk
from tinyxla.hlo import Instruction
from tinyxla.ops import movement

LARGEST = 256  # bytes of a block: more come from too many vectors
_TOGETHER = 8  # vectors of several blocks, at most
_WORD = 8  # bytes that are moved as one, at most
_PIECE = 1 << 13  # bytes that one iteration moves

Order = tuple[int, ...]  # for each element of a block, where it was before


def lower(roots: Sequence[Instruction], plan: Plan, axes: Sequence[Axis]) -> LoweredKernel | None:
    """The kernel of an array that is another one, in another order within blocks; None if it is not that, or if blocks
    are long, or few."""
    found = _source(roots[0], plan) if len(roots) == 1 and len(axes) > 2 else None
    if found is None:
        return None
    x, place = found
    itemsize, sizes = x.array_shape.dtype.itemsize, roots[0].array_shape.dimensions
    axis_of = {d: k for k, axis in enumerate(axes) for d in range(axis.first, axis.last + 1)}
    source = list(dict.fromkeys(axis_of[d] for d in place if sizes[d] != 1))
    same = next((k for k, a in enumerate(source) if k != a), len(axes))
    size = math.prod(a.size for a in axes[same:])
    if size * itemsize > LARGEST or size == 1:
        return None
    word = min(itemsize, _WORD)
    order = _order([a.size for a in axes[same:]], [a - same for a in source[same:]], itemsize // word)
    together = _blocks(len(order), vector_bytes() // word)
    count = x.array_shape.size // size
    if count < 4 * together:
        return None
    low = Lowering("shuffle", plan, roots)
    b, routine = low.builder, _provide(order, word, together, vector_bytes())
    each = max(1, _PIECE // (size * itemsize * together)) * together
    with low.loop(b.kernel.first, b.kernel.last) as (index, _):
        begin, length = b.block(index, each, count)
        start, end = (b.times(at, size) for at in (begin, b.sum(begin, length)))
        old, new = low.buffer(buffer_of(x)), low.buffer(roots[0], True)
        b.call(routine, (old, start), (new, start), (new, end))
    return finished(low, -(-count // each), cost(roots, plan.stored) * each * size, roots)


def _source(root: Instruction, plan: Plan) -> tuple[Instruction, tuple[int, ...]] | None:
    """The array of which the root is another order, and where each of its dimensions is in the root."""
    found = list(walk([root], plan.stored, views=True))
    moved = [root, *(x for x, _, from_memory in found if not from_memory)]
    read = [(x, place) for x, place, from_memory in found if from_memory]
    if len(read) != 1 or any(x.op not in (movement.transpose, movement.reshape) for x in moved):
        return None
    x, place = read[0]
    dimensions = tuple(c for c in place if isinstance(c, int) and c != CONSTANT)
    is_plain = not any(isinstance(c, frozenset) for c in place)
    return (x, dimensions) if is_plain and x.array_shape.size == root.array_shape.size else None


def _order(sizes: Sequence[int], source: Sequence[int], words: int) -> Order:
    """Where the words of a block of these sizes are before, if its dimensions stand there in the order `source`."""
    steps, step = [0] * len(sizes), words
    for a in reversed(source):
        steps[a], step = step, step * sizes[a]
    places = (sum(i * s for i, s in zip(at, steps, strict=True)) for at in product(*map(range, sizes)))
    return tuple(place + word for place in places for word in range(words)) if sizes else ()


def _blocks(size: int, lanes: int) -> int:
    """How many blocks at once fill vectors best."""
    counts = range(-(-lanes // size), max(_TOGETHER * lanes // size, -(-lanes // size)) + 1)
    return min(counts, key=lambda count: -(-count * size // lanes) * lanes / (count * size))


@functools.cache
def _provide(order: Order, bytes_each: int, together: int, width: int) -> str:
    """Let kernels call the routine for an order; its name. It takes the addresses of the first block, before and after,
    and that of the end. Where the last blocks are fewer than are moved at once, some before them are moved again."""
    name = f"shuffle_{sha256(repr((order, bytes_each, together, width)).encode()).hexdigest()[:16]}"
    provide_llvm(routine_name(name), _text(order, bytes_each, together, width // bytes_each), "shuffle", is_final=True)
    return name


def _text(order: Order, bytes_each: int, together: int, lanes: int) -> str:
    total = together * len(order)
    element = f"i{8 * bytes_each}"
    body: list[str] = []
    for start in [*range(0, total - lanes, lanes), total - lanes]:
        places = [divmod(k, len(order)) for k in range(start, start + lanes)]
        body += _vector(start, [block * len(order) + order[k] for block, k in places], total, element, bytes_each)
    return "\n".join(
        [
            "define void @shuffle(ptr noalias %from, ptr noalias %to, ptr %end) {",
            "entry:",
            "  %start = ptrtoint ptr %to to i64",
            "  %stop = ptrtoint ptr %end to i64",
            "  %bytes = sub i64 %stop, %start",
            f"  %last = sub i64 %bytes, {total * bytes_each}",
            "  br label %blocks",
            "blocks:",
            "  %k = phi i64 [ 0, %entry ], [ %next, %blocks ]",
            "  %at = call i64 @llvm.smin.i64(i64 %k, i64 %last)",
            "  %old = getelementptr i8, ptr %from, i64 %at",
            "  %new = getelementptr i8, ptr %to, i64 %at",
            *body,
            f"  %next = add i64 %k, {total * bytes_each}",
            "  %more = icmp slt i64 %next, %bytes",
            "  br i1 %more, label %blocks, label %done",
            "done:",
            "  ret void",
            "}",
            "declare i64 @llvm.smin.i64(i64, i64)",
            "",
        ]
    )


def _vector(start: int, wanted: Sequence[int], total: int, element: str, bytes_each: int) -> Iterator[str]:
    """The lines that put a vector of the result together."""
    lanes = len(wanted)
    vector, found, left = f"<{lanes} x {element}>", "poison", set(wanted)
    while left:
        at = min(min(left), total - lanes)
        here = range(at, at + lanes)
        name = f"%v{start}.{at}"
        yield f"  {name}.at = getelementptr i8, ptr %old, i64 {at * bytes_each}"
        yield f"  {name} = load {vector}, ptr {name}.at, align {bytes_each}"
        mask = ", ".join(f"i32 {lanes + k - at if k in here and k in left else lane}" for lane, k in enumerate(wanted))
        yield f"  {name}.with = shufflevector {vector} {found}, {vector} {name}, <{lanes} x i32> <{mask}>"
        found = f"{name}.with"
        left.difference_update(here)
    yield f"  %to{start} = getelementptr i8, ptr %new, i64 {start * bytes_each}"
    yield f"  store {vector} {found}, ptr %to{start}, align {bytes_each}"
