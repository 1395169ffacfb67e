"""Fixed permutations within short blocks of memory, by vector shuffles: transposes of many small matrices,
deinterleaved channels, strided slices and reversals of a short minor dimension.

A routine is generated per permutation: it loads a few blocks as vectors, and assembles each result vector by shuffles
with constant masks. The last vectors overlap if blocks do not fill them. Applies to one root that only moves elements
of one array within blocks of at most `MAX_BLOCK_BYTES`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from hashlib import sha256
from itertools import product
from typing import NamedTuple

from tinyxla.compiler.analysis.access_maps import CONSTANT
from tinyxla.compiler.costs import L1_BYTES, LINE_BYTES, MAX_UNROLLED
from tinyxla.compiler.fusion.plan import Plan, buffer_of
from tinyxla.hlo import Instruction
from tinyxla.loopir.ir.loop_ir import INDEX, Buffer, Builder, Index, Value, operand_of
from tinyxla.loopir.ir.routines import declare_kernel
from tinyxla.loopir.lower.axes import Axis, make_kernel, ops_per_element
from tinyxla.loopir.lower.emit import LoweredKernel, Lowering
from tinyxla.loopir.lower.routine_calls import ParametricBuilder
from tinyxla.loopir.target import vector_bytes
from tinyxla.ops import movement

MAX_BLOCK_BYTES = LINE_BYTES * 4  # larger blocks need shuffles of too many vectors
_WORD_BYTES = 8  # largest unit of a shuffle

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
    counts = b.scratch(INDEX, 1)
    chunk_blocks = max(1, L1_BYTES // 4 // (size * itemsize * blocks)) * blocks  # read, and written
    with low.loop(b.kernel.first, b.kernel.last) as (index, _):
        start_block, block_count = b.tile_start_and_size(index, chunk_blocks, count)
        source, target = low.buffer(buffer_of(permutation.array)), low.buffer(root, True)
        b.store(counts, 0, operand_of(block_count))
        b.call(routine, (source, b.mul(start_block, source_size)), (target, b.mul(start_block, size)), (counts, 0))
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
    if len(selected) < 2 or size * itemsize > MAX_BLOCK_BYTES or size > 4 * len(selected):  # loads discard most
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
    counts = range(-(-vector_words // size), max(MAX_UNROLLED * vector_words // size, -(-vector_words // size)) + 1)
    return min(counts, key=lambda count: -(-count * size // vector_words) * vector_words / (count * size))


@functools.cache
def _declare(order: Order, source_words: int, bytes_each: int, blocks: int, width: int) -> str:
    """Declare `permute(source, target, (count,))` for `count` blocks and return its name. If the last blocks are fewer
    than an iteration moves, the iteration overlaps the previous one."""
    name = f"permute_{sha256(repr((order, source_words, bytes_each, blocks, width)).encode()).hexdigest()[:16]}"
    b = ParametricBuilder("permute", "count")
    source, target = b.argument(f"u{8 * bytes_each}"), b.argument(f"u{8 * bytes_each}", True)
    count, lanes, words = b.parameter["count"], width // bytes_each, blocks * len(order)
    with b.loop(0, b.ceil_div(count, blocks), sequential=True) as (k, _):
        block = b.min(b.mul(k, blocks), b.sub(count, blocks))
        source_start, target_start = b.mul(block, source_words), b.mul(block, len(order))
        for start in [*range(0, words - lanes, lanes), words - lanes]:
            positions = (divmod(word, len(order)) for word in range(start, start + lanes))
            selected = [number * source_words + order[word] for number, word in positions]
            vector = _gathered(b, source, source_start, selected, blocks * source_words)
            b.store(target, b.add(target_start, start), vector)
    return declare_kernel(name, b.kernel)


def _gathered(b: Builder, source: Buffer, start: Index, selected: Sequence[int], source_count: int) -> Value:
    """A vector of words of the source at these distances from `start`, all below `source_count`: the words come from
    vectors that are loaded one after the other."""
    lanes = len(selected)
    result, remaining = None, set(selected)
    while remaining:
        first = min(min(remaining), source_count - lanes)
        loaded = range(first, first + lanes)
        vector = b.load(source, b.add(start, first), lanes)
        if result is None:
            result = b.shuffle([k - first if k in loaded else 0 for k in selected], vector)
        else:
            is_new = [k in loaded and k in remaining for k in selected]
            order = [
                lanes + k - first if new else lane for lane, (k, new) in enumerate(zip(selected, is_new, strict=True))
            ]
            result = b.shuffle(order, result, vector)
        remaining.difference_update(loaded)
    assert result is not None, "there are words"
    return result
