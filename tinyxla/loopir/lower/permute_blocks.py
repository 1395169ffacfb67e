"""Arrays that are put in another order within short blocks of memory, each in the same way: many small matrices that
are transposed, channels whose groups are interleaved, or some channels of all.

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
from typing import NamedTuple

from tinyxla.compiler.analysis.access_maps import CONSTANT
from tinyxla.compiler.fusion.plan import Plan, buffer_of, walk_producers
from tinyxla.hlo import Instruction
from tinyxla.loopir.ir.routines import declare_llvm
from tinyxla.loopir.lower.axes import Axis, make_kernel, ops_per_element
from tinyxla.loopir.lower.emit import LoweredKernel, Lowering
from tinyxla.loopir.target import vector_bytes
from tinyxla.ops import movement

LARGEST = 256  # bytes of a block: more come from too many vectors
_TOGETHER = 8  # vectors of several blocks, at most
_WORD = 8  # bytes that are moved as one, at most
_PIECE = 1 << 13  # bytes that one iteration moves
_MOST_LEFT = 4  # times as many elements as are picked: vectors of more are mostly for nothing

Order = tuple[int, ...]  # for each element of a block, where it was before


class Shuffle(NamedTuple):
    """An array of which another is made, in blocks: the order of a block's words, and how many there were."""

    array: Instruction
    order: Order
    before: int


def lower(roots: Sequence[Instruction], plan: Plan, axes: Sequence[Axis]) -> LoweredKernel | None:
    """The kernel of an array that is another one, in another order within blocks; None if it is not that, or if blocks
    are long, or few."""
    root = roots[0]
    found = (_picked(root, plan) or _turned(root, plan, axes)) if len(roots) == 1 else None
    if found is None:
        return None
    itemsize = root.array_shape.dtype.itemsize
    word = min(itemsize, _WORD)
    size, before = (words * word // itemsize for words in (len(found.order), found.before))
    together = _blocks(len(found.order), vector_bytes() // word)
    count = root.array_shape.size // size
    if count < 4 * together:
        return None
    low = Lowering("shuffle", plan, roots)
    b, routine = low.builder, _provide(found.order, found.before, word, together, vector_bytes())
    each = max(1, _PIECE // (size * itemsize * together)) * together
    with low.loop(b.kernel.first, b.kernel.last) as (index, _):
        begin, length = b.tile_start_and_size(index, each, count)
        old, new = low.buffer(buffer_of(found.array)), low.buffer(root, True)
        start, end = (b.mul(at, size) for at in (begin, b.add(begin, length)))
        b.call(routine, (old, b.mul(begin, before)), (new, start), (new, end))
    return make_kernel(low, -(-count // each), ops_per_element(roots, plan.materialized) * each * size, roots)


def _picked(root: Instruction, plan: Plan) -> Shuffle | None:
    """What consists of some elements of a last dimension, or all of them backwards."""
    found = list(walk_producers([root], plan.materialized, views=True))
    moved = [root, *(x for x, _, from_memory in found if not from_memory)]
    read = [x for x, _, from_memory in found if from_memory]
    if len(read) != 1 or root.array_shape.rank < 2:
        return None
    x, last = read[0], root.array_shape.rank - 1
    size, itemsize = x.array_shape.dimensions[-1] if x.array_shape.rank else 1, x.array_shape.dtype.itemsize
    picked = range(size)
    for y in reversed(moved):
        if y.op is movement.slice_ and y.array_shape.dimensions[:-1] == y.operands[0].array_shape.dimensions[:-1]:
            picked = picked[y.attributes.start_indices[-1] : y.attributes.limit_indices[-1] : y.attributes.strides[-1]]
        elif y.op is movement.reverse and y.attributes.dimensions == (last,):
            picked = picked[::-1]
        else:
            return None
    if len(picked) < 2 or size * itemsize > LARGEST or size > _MOST_LEFT * len(picked):
        return None
    words = -(-itemsize // _WORD)
    return Shuffle(x, tuple(k * words + word for k in picked for word in range(words)), size * words)


def _turned(root: Instruction, plan: Plan, axes: Sequence[Axis]) -> Shuffle | None:
    """What consists of the same elements whose dimensions are in another order."""
    found = _source(root, plan) if len(axes) > 2 else None
    if found is None:
        return None
    x, place = found
    itemsize, sizes = x.array_shape.dtype.itemsize, root.array_shape.dimensions
    axis_of = {d: k for k, axis in enumerate(axes) for d in range(axis.first, axis.last + 1)}
    source = list(dict.fromkeys(axis_of[d] for d in place if sizes[d] != 1))
    same = next((k for k, a in enumerate(source) if k != a), len(axes))
    size = math.prod(a.size for a in axes[same:])
    if size * itemsize > LARGEST or size == 1:
        return None
    order = _order([a.size for a in axes[same:]], [a - same for a in source[same:]], -(-itemsize // _WORD))
    return Shuffle(x, order, len(order))


def _source(root: Instruction, plan: Plan) -> tuple[Instruction, tuple[int, ...]] | None:
    """The array of which the root is another order, and where each of its dimensions is in the root."""
    found = list(walk_producers([root], plan.materialized, views=True))
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
def _provide(order: Order, before: int, bytes_each: int, together: int, width: int) -> str:
    """Let kernels call the routine for an order; its name. It takes the addresses of the first block, before and after,
    and that of the end. Where the last blocks are fewer than are moved at once, some before them are moved again."""
    name = f"shuffle_{sha256(repr((order, before, bytes_each, together, width)).encode()).hexdigest()[:16]}"
    text = _text(order, before, bytes_each, together, width // bytes_each)
    declare_llvm(name, text, "shuffle", is_optimized=True)
    return name


def _text(order: Order, before: int, bytes_each: int, together: int, lanes: int) -> str:
    total, read = together * len(order), together * before
    element = f"i{8 * bytes_each}"
    body: list[str] = []
    for start in [*range(0, total - lanes, lanes), total - lanes]:
        places = [divmod(k, len(order)) for k in range(start, start + lanes)]
        body += _vector(start, [block * before + order[k] for block, k in places], read, element, bytes_each)
    return "\n".join(
        [
            "define void @shuffle(ptr noalias %from, ptr noalias %to, ptr %end) {",
            "entry:",
            "  %start = ptrtoint ptr %to to i64",
            "  %stop = ptrtoint ptr %end to i64",
            "  %bytes = sub i64 %stop, %start",
            f"  %count = udiv exact i64 %bytes, {len(order) * bytes_each}",
            f"  %last = sub i64 %count, {together}",
            "  br label %blocks",
            "blocks:",
            "  %k = phi i64 [ 0, %entry ], [ %next, %blocks ]",
            "  %at = call i64 @llvm.smin.i64(i64 %k, i64 %last)",
            f"  %read = mul i64 %at, {before * bytes_each}",
            f"  %written = mul i64 %at, {len(order) * bytes_each}",
            "  %old = getelementptr i8, ptr %from, i64 %read",
            "  %new = getelementptr i8, ptr %to, i64 %written",
            *body,
            f"  %next = add i64 %k, {together}",
            "  %more = icmp slt i64 %next, %count",
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
