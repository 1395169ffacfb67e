"""Fixed permutations within short blocks of memory, by vector shuffles: transposes of many small matrices,
deinterleaved channels, strided slices and reversals of a short minor dimension.

A routine is generated per permutation: it loads a few blocks as vectors, and assembles each result vector by shuffles
with constant masks. The last vectors overlap if blocks do not fill them. Applies to one root that only moves elements
of one array within blocks of at most `MAX_BLOCK_BYTES`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from hashlib import sha256
from itertools import product
from typing import NamedTuple

from tinyxla.compiler.analysis.access_maps import CONSTANT
from tinyxla.compiler.fusion.plan import Plan, buffer_of
from tinyxla.hlo import Instruction
from tinyxla.loopir.ir.routines import declare_llvm
from tinyxla.loopir.lower.axes import Axis, make_kernel, ops_per_element
from tinyxla.loopir.lower.emit import LoweredKernel, Lowering
from tinyxla.loopir.target import vector_bytes
from tinyxla.ops import movement

MAX_BLOCK_BYTES = 256  # larger blocks need shuffles of too many vectors
_MAX_VECTORS = 8  # of the blocks of one iteration
_WORD_BYTES = 8  # largest unit of a shuffle
_CHUNK_BYTES = 1 << 13  # of a kernel's outer iteration
_MAX_DISCARD_RATIO = 4  # loaded elements per selected element

Order = tuple[int, ...]  # source position of each word of a block


class BlockPermutation(NamedTuple):
    """The permutation of an array within blocks: source positions of the words of a result block, and the number of
    words of a source block."""

    array: Instruction
    order: Order
    source_words: int


def lower(roots: Sequence[Instruction], plan: Plan, axes: Sequence[Axis]) -> LoweredKernel | None:
    """The kernel of a block permutation; None if the root is none, or if blocks are long or few."""
    root = roots[0]
    permutation = (_selection(root, plan) or _transposition(root, plan, axes)) if len(roots) == 1 else None
    if permutation is None:
        return None
    itemsize = root.array_shape.dtype.itemsize
    word_bytes = min(itemsize, _WORD_BYTES)
    size, source_size = (words * word_bytes // itemsize for words in (len(permutation.order), permutation.source_words))
    blocks = _blocks_per_iteration(len(permutation.order), vector_bytes() // word_bytes)
    count = root.array_shape.size // size
    if count < 4 * blocks:
        return None
    low = Lowering("shuffle", plan, roots)
    b, routine = low.builder, _declare(permutation.order, permutation.source_words, word_bytes, blocks, vector_bytes())
    chunk_blocks = max(1, _CHUNK_BYTES // (size * itemsize * blocks)) * blocks
    with low.loop(b.kernel.first, b.kernel.last) as (index, _):
        start_block, block_count = b.tile_start_and_size(index, chunk_blocks, count)
        source, target = low.buffer(buffer_of(permutation.array)), low.buffer(root, True)
        start, end = (b.mul(block, size) for block in (start_block, b.add(start_block, block_count)))
        b.call(routine, (source, b.mul(start_block, source_size)), (target, start), (target, end))
    ops = ops_per_element(roots, plan.accesses) * chunk_blocks * size
    return make_kernel(low, -(-count // chunk_blocks), ops, roots)


def _selection(root: Instruction, plan: Plan) -> BlockPermutation | None:
    """The permutation of a root that selects elements of the minor dimension by slices and reversals."""
    reads = plan.accesses.read_by([root], views=True)
    chain = [root, *(x for x, _, from_memory in reads if not from_memory)]
    sources = [x for x, _, from_memory in reads if from_memory]
    if len(sources) != 1 or root.array_shape.rank < 2:
        return None
    x, last = sources[0], root.array_shape.rank - 1
    size, itemsize = x.array_shape.dimensions[-1] if x.array_shape.rank else 1, x.array_shape.dtype.itemsize
    selected = range(size)
    for y in reversed(chain):
        if y.op is movement.slice_ and y.array_shape.dimensions[:-1] == y.operands[0].array_shape.dimensions[:-1]:
            starts, limits, strides = y.attributes
            selected = selected[starts[-1] : limits[-1] : strides[-1]]
        elif y.op is movement.reverse and y.attributes.dimensions == (last,):
            selected = selected[::-1]
        else:
            return None
    if len(selected) < 2 or size * itemsize > MAX_BLOCK_BYTES or size > _MAX_DISCARD_RATIO * len(selected):
        return None
    words = -(-itemsize // _WORD_BYTES)
    return BlockPermutation(x, tuple(k * words + word for k in selected for word in range(words)), size * words)


def _transposition(root: Instruction, plan: Plan, axes: Sequence[Axis]) -> BlockPermutation | None:
    """The permutation of a root that transposes dimensions within blocks."""
    source_read = _source(root, plan) if len(axes) > 2 else None
    if source_read is None:
        return None
    x, access = source_read
    itemsize, sizes = x.array_shape.dtype.itemsize, root.array_shape.dimensions
    axis_of = {d: k for k, axis in enumerate(axes) for d in range(axis.first, axis.last + 1)}
    source_axes = list(dict.fromkeys(axis_of[d] for d in access if sizes[d] != 1))
    common = next((k for k, a in enumerate(source_axes) if k != a), len(axes))
    size = math.prod(a.size for a in axes[common:])
    if size * itemsize > MAX_BLOCK_BYTES or size == 1:
        return None
    block_sizes, block_source = [a.size for a in axes[common:]], [a - common for a in source_axes[common:]]
    order = _order(block_sizes, block_source, -(-itemsize // _WORD_BYTES))
    return BlockPermutation(x, order, len(order))


def _source(root: Instruction, plan: Plan) -> tuple[Instruction, tuple[int, ...]] | None:
    """The array that a root transposes, and the root's dimension for each of its dimensions."""
    reads = plan.accesses.read_by([root], views=True)
    chain = [root, *(x for x, _, from_memory in reads if not from_memory)]
    sources = [(x, access) for x, access, from_memory in reads if from_memory]
    if len(sources) != 1 or any(x.op not in (movement.transpose, movement.reshape) for x in chain):
        return None
    x, access = sources[0]
    dimensions = tuple(c for c in access if isinstance(c, int) and c != CONSTANT)
    is_plain = not any(isinstance(c, frozenset) for c in access)
    return (x, dimensions) if is_plain and x.array_shape.size == root.array_shape.size else None


def _order(sizes: Sequence[int], source: Sequence[int], words: int) -> Order:
    """The source positions of the words of a block with dimensions `sizes`, which the source has in the order
    `source`."""
    strides, stride = [0] * len(sizes), words
    for a in reversed(source):
        strides[a], stride = stride, stride * sizes[a]
    offsets = (sum(i * s for i, s in zip(index, strides, strict=True)) for index in product(*map(range, sizes)))
    return tuple(offset + word for offset in offsets for word in range(words)) if sizes else ()


def _blocks_per_iteration(size: int, vector_words: int) -> int:
    """The number of blocks per iteration that wastes least of the last vector."""
    counts = range(-(-vector_words // size), max(_MAX_VECTORS * vector_words // size, -(-vector_words // size)) + 1)
    return min(counts, key=lambda count: -(-count * size // vector_words) * vector_words / (count * size))


@functools.cache
def _declare(order: Order, source_words: int, bytes_each: int, blocks: int, width: int) -> str:
    """Declare the routine of a permutation; returns its name. The arguments are the addresses of the first source
    block and the first result block, and the end of the result. If the last blocks are fewer than an iteration
    moves, the iteration overlaps the previous one."""
    name = f"shuffle_{sha256(repr((order, source_words, bytes_each, blocks, width)).encode()).hexdigest()[:16]}"
    text = _text(order, source_words, bytes_each, blocks, width // bytes_each)
    declare_llvm(name, text, "shuffle", is_optimized=True)
    return name


def _text(order: Order, source_words: int, bytes_each: int, blocks: int, vector_words: int) -> str:
    total, source_count = blocks * len(order), blocks * source_words
    element = f"i{8 * bytes_each}"
    body: list[str] = []
    for start in [*range(0, total - vector_words, vector_words), total - vector_words]:
        elements = [divmod(k, len(order)) for k in range(start, start + vector_words)]
        selected = [block * source_words + order[k] for block, k in elements]
        body += _vector(start, selected, source_count, element, bytes_each)
    return "\n".join(
        [
            "define void @shuffle(ptr noalias %from, ptr noalias %to, ptr %end) {",
            "entry:",
            "  %start = ptrtoint ptr %to to i64",
            "  %stop = ptrtoint ptr %end to i64",
            "  %bytes = sub i64 %stop, %start",
            f"  %count = udiv exact i64 %bytes, {len(order) * bytes_each}",
            f"  %last = sub i64 %count, {blocks}",
            "  br label %blocks",
            "blocks:",
            "  %k = phi i64 [ 0, %entry ], [ %next, %blocks ]",
            "  %block = call i64 @llvm.smin.i64(i64 %k, i64 %last)",
            f"  %source_offset = mul i64 %block, {source_words * bytes_each}",
            f"  %target_offset = mul i64 %block, {len(order) * bytes_each}",
            "  %source = getelementptr i8, ptr %from, i64 %source_offset",
            "  %target = getelementptr i8, ptr %to, i64 %target_offset",
            *body,
            f"  %next = add i64 %k, {blocks}",
            "  %more = icmp slt i64 %next, %count",
            "  br i1 %more, label %blocks, label %done",
            "done:",
            "  ret void",
            "}",
            "declare i64 @llvm.smin.i64(i64, i64)",
            "",
        ]
    )


def _vector(start: int, selected: Sequence[int], source_count: int, element: str, bytes_each: int) -> Iterator[str]:
    """The LLVM lines that assemble one result vector."""
    vector_words = len(selected)
    vector, result, remaining = f"<{vector_words} x {element}>", "poison", set(selected)
    while remaining:
        first = min(min(remaining), source_count - vector_words)
        loaded = range(first, first + vector_words)
        name = f"%v{start}.{first}"
        yield f"  {name}.at = getelementptr i8, ptr %source, i64 {first * bytes_each}"
        yield f"  {name} = load {vector}, ptr {name}.at, align {bytes_each}"
        is_new = [k in loaded and k in remaining for k in selected]
        lanes = [
            vector_words + k - first if new else lane
            for lane, (k, new) in enumerate(zip(selected, is_new, strict=True))
        ]
        mask = ", ".join(f"i32 {lane}" for lane in lanes)
        yield f"  {name}.with = shufflevector {vector} {result}, {vector} {name}, <{vector_words} x i32> <{mask}>"
        result = f"{name}.with"
        remaining.difference_update(loaded)
    yield f"  %to{start} = getelementptr i8, ptr %target, i64 {start * bytes_each}"
    yield f"  store {vector} {result}, ptr %to{start}, align {bytes_each}"
