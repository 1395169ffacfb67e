"""Matrix products of this library's own: for types that the BLAS lacks, and where its setting up costs too much.

A product is cut into tiles of C that stay in registers (see `gathered`). The right operand is read where it is, if its
rows are contiguous, do not meet in the cache, and fit into it. Else it is copied to *panels*, as wide as a tile, in
which what a tile reads next comes next: once for all threads, or chunk by chunk by the thread that multiplies some
hundred rows by them. The left operand is copied by the thread that needs some of its rows, where a tile does not find
its elements in order. Copies change the types of elements on the way. A thread comes to block after block of the left
operand's rows with as many panels as stay in its cache.

Three instructions multiply and add: that of the element type; and, where the processor has them, those that add two
products of bf16 to an f32, or of s16 to an s32 or to each other, for which panels hold pairs. Where it has a matrix
unit that this process may use, that multiplies bf16, and integers of 8 bits, of which panels hold four in a word.

Where tiles are depends on shapes alone, and a long sum is cut at fixed places, so results do not depend on the number
of threads. All work is done by routines; kernels tell them what to do, and take sizes as numbers.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

from tinyxla.compiler.fusion.plan import Plan
from tinyxla.hlo import Instruction
from tinyxla.loopir.ir.loop_ir import INDEX, Buffer, Index, Kernel
from tinyxla.loopir.kernels.gemm import packing as routines
from tinyxla.loopir.kernels.gemm.microkernel import NUMBERS, provide_product
from tinyxla.loopir.kernels.gemm.packing import COPY, Arithmetic, arithmetic, tile_rows
from tinyxla.loopir.kernels.gemm.problem import MatrixProduct, product_of
from tinyxla.loopir.lower.axes import parallel_grain
from tinyxla.loopir.lower.emit import LoweredKernel, Storage, Temporary, Users
from tinyxla.loopir.lower.reductions import combine_partials
from tinyxla.loopir.lower.routine_calls import ParametricBuilder, store_arguments
from tinyxla.ops import contraction
from tinyxla.shapes import Shape, element_type

_DEPTH = 384  # steps of the sum that are done at once: what a tile reads of its operands stays in the second cache
_UNIT_DEPTH = 256  # the same for a matrix unit, whose panels are wider
_ODD = 16  # steps that a row of a copy has more: its length is no power of two
_SHALLOW = 64  # and, at most, where the right operand is read once, all columns of a row after another
_STREAM = 1 << 20  # bytes of it that are read so
_LARGE = 1 << 21  # bytes, which fill the second cache
_WAY = 1 << 17  # bytes of the second cache, after which addresses meet
_MEETING = 4  # rows that may
_SECOND = 1 << 20  # bytes of it
_BLOCK = 48  # rows of the left operand that are done at once, which are whole tiles
_TALL_BLOCK = 144  # the same where a panel does not stay in the second cache
_BLOCK_INSIDE = 336  # and where the right operand is copied for them alone, and the left one is not
_MANY_ROWS = 512  # of a left operand that is copied, for which a right one that the cache does not hold is, too
_GROUP_OF_COPIES = 8  # panels, for which a block of the left operand is worth to be copied once more
_UNIT_BLOCK = 128  # the same for a matrix unit
_FEW = 2  # rows or columns, which are products with vectors
_SMALL = 16  # columns and terms of a product that the BLAS has a kernel for
_STORE = 4  # terms of a sum that take as long as to load and to store it
_PIECES = 8  # into which the work is cut at least, if it is enough

# --- the kernels around it --------------------------------------------------------------------------------------------


class Panel(NamedTuple):
    """Which part of the right operand: of which matrix, which columns, and from which step on how many."""

    batch: Index
    panel: Index
    start: Index
    steps: Index


Place = tuple[Buffer, Index]
_NUMBERS = (
    "k m n steps a_batch a_row a_column b_batch b_row b_column c_batch c_row c_piece "
    "blocks block across panels pieces length depth triangle next_block next_group"
)


def _panel(
    b: ParametricBuilder,
    kind: Arithmetic,
    type: str,
    by_rows: bool,
    to: Place,
    source: Buffer,
    sizes: Buffer,
    at: Panel,
) -> None:
    """Copy some steps of the columns of a panel, from a right operand whose rows, or else columns, are contiguous."""
    n, start = b.parameter, b.mul(at.start, kind.step)
    left, columns = b.tile_start_and_size(at.panel, kind.width, n["n"])
    row, column = (n["b_row"], 1) if by_rows else (1, n["b_column"])
    base = b.add(b.mul(at.batch, n["b_batch"]), b.mul(left, column), b.mul(start, row))
    store_arguments(b, sizes, COPY, pitch=kind.width, terms=b.sub(n["k"], start))
    if by_rows:
        store_arguments(b, sizes, COPY, steps=columns, row=row, rows=at.steps)
        b.call(routines.lines(type, kind, kind.step > 1), to, (source, base), (sizes, 0))
        return
    store_arguments(b, sizes, COPY, steps=at.steps, row=column)
    height = tile_rows()
    with b.loop(0, b.ceil_div(columns, height), sequential=True) as (group, _):
        j = b.mul(group, height)
        store_arguments(b, sizes, COPY, rows=b.sub(columns, j))
        into = to[0], b.add(to[1], b.mul(j, kind.step))
        b.call(routines.turn_for(type, kind), into, (source, b.add(base, b.mul(j, column))), (sizes, 0))


@functools.cache
def _pack(kind: Arithmetic, type: str, by_rows: bool) -> Kernel:
    """The right operand as panels [batch, panel, step, column]."""
    b = ParametricBuilder("panels", "k n steps pitch b_batch b_row b_column panels wide parts pieces length")
    n = b.parameter
    source, panels, sizes = b.argument(type), b.argument(kind.held, True), b.scratch(INDEX, len(COPY))
    with b.loop(b.kernel.first, b.kernel.last) as (index, _):
        batch, part, piece = b.delinearize(index, n["parts"], n["pieces"])
        start, stop = b.tile_range(piece, n["length"], n["steps"])
        first, last = b.tile_range(part, n["wide"], n["panels"])
        with b.loop(first, last, sequential=True) as (panel, _):
            line = b.add(b.mul(b.add(b.mul(batch, n["panels"]), panel), n["pitch"]), start)
            to = panels, b.mul(line, kind.width * kind.step)
            at = Panel(batch, panel, start, b.sub(stop, start))
            _panel(b, kind, type, by_rows, to, source, sizes, at)
    return b.kernel


class Lines(NamedTuple):
    """Of how many steps a left operand's rows are copied, how many of these there are, how many terms are left, how far
    apart these are, and most rows."""

    steps: Index
    rows: Index
    terms: Index
    apart: Index
    most: int


def _turned(
    b: ParametricBuilder,
    kind: Arithmetic,
    type: str,
    to: Buffer,
    words: Buffer,
    source: Place,
    sizes: Buffer,
    at: Lines,
) -> None:
    """Copy rows of a left operand whose columns are contiguous: a few of these as words, which are then turned."""
    height = tile_rows()
    with b.loop(0, b.ceil_div(at.steps, height), sequential=True) as (group, _):
        step = b.mul(group, height)
        term, count = b.mul(step, kind.step), b.min(b.sub(at.steps, step), height)
        store_arguments(
            b, sizes, COPY, steps=at.rows, row=at.apart, rows=count, pitch=at.most, terms=b.sub(at.terms, term)
        )
        from_term = source[0], b.add(source[1], b.mul(term, at.apart))
        b.call(routines.lines(type, kind, True), (words, 0), from_term, (sizes, 0))
        store_arguments(b, sizes, COPY, row=at.most, pitch=_UNIT_DEPTH + _ODD)
        b.call(routines.turn(kind.bits), (to, term), (words, 0), (sizes, 0))


@functools.cache
def _multiply(
    kind: Arithmetic, type: str, other: str, result: str, copies: bool, by_rows: bool, inside: bool, right_by_rows: bool
) -> Kernel:
    """Blocks of rows by groups of panels, for each of some pieces of the sum. The left operand is copied, or read where
    it is; and so is the right one, if panels of it are made `inside`."""
    b = ParametricBuilder("product", _NUMBERS)
    n = b.parameter
    a, right, c = b.argument(type), b.argument(other), b.argument(result, True)
    most, turns = _most_rows(kind, copies, inside), copies and kind.in_unit and not by_rows
    depth, pitch = _depth(kind), _depth(kind) + _ODD
    copied = b.scratch(kind.held, most * pitch * kind.step) if copies else a
    words = b.scratch(kind.held, tile_rows() * most * kind.step) if turns else a
    panel_copy = b.scratch(kind.held, depth * kind.width * kind.step) if inside else right
    copy, sizes = b.scratch(INDEX, len(COPY)), b.scratch(INDEX, len(NUMBERS))
    lists = rows, results, terms, factors = [b.scratch(INDEX, count) for count in (most, most, depth, depth)]
    row, column = (n["a_row"], 1) if by_rows else (1, n["a_column"])
    rows_apart, steps_apart = (pitch, 1) if by_rows or turns else (1, most)
    if not copies:
        rows_apart, steps_apart = b.floordiv(row, kind.step) if by_rows else 1, column
    b.list(rows, b.min(n["block"], n["m"]), rows_apart)
    b.list(results, b.min(n["block"], n["m"]), n["c_row"])
    b.list(terms, b.min(n["depth"], n["steps"]), steps_apart)
    store_arguments(b, sizes, NUMBERS, beside=kind.width if inside else n["b_row"])
    b.list(factors, b.min(n["depth"], n["steps"]), kind.width if inside else n["b_row"])
    with b.loop(b.kernel.first, b.kernel.last) as (index, _):
        batch, place, piece = b.delinearize(index, b.mul(n["blocks"], n["across"]), n["pieces"])
        down = b.remainder(b.floordiv(place, n["next_block"]), n["blocks"])
        part = b.remainder(b.floordiv(place, n["next_group"]), n["across"])
        first, last = b.tile_range(down, n["block"], n["m"])
        first_panel, last_panel = b.tile_range(part, n["panels"], b.ceil_div(n["n"], kind.width))
        on_diagonal = b.floordiv(b.mul(first, n["triangle"]), kind.width)
        first_panel = b.max(first_panel, on_diagonal)
        begin, end = b.tile_range(piece, n["length"], n["steps"])
        source = b.add(b.mul(batch, n["a_batch"]), b.mul(first, row))
        target = b.add(b.mul(batch, n["c_batch"]), b.mul(first, n["c_row"]), b.mul(piece, n["c_piece"]))
        height = b.sub(last, first)
        store_arguments(b, sizes, NUMBERS, m=height)

        def by_chunks(first_panel: Index, last_panel: Index) -> None:
            with b.loop(0, b.ceil_div(b.sub(end, begin), n["depth"]), sequential=True) as (chunk, _):
                start = b.add(begin, b.mul(chunk, n["depth"]))
                steps = b.min(b.sub(end, start), n["depth"])
                term = b.mul(start, kind.step)
                in_a = b.add(source, b.mul(term, column))
                store_arguments(b, sizes, NUMBERS, k=steps, more=b.min(chunk, 1))
                if turns:
                    at = Lines(steps, height, b.sub(n["k"], term), column, most)
                    _turned(b, kind, type, copied, words, (a, in_a), copy, at)
                    in_a = 0
                elif copies:
                    left = b.sub(n["k"], term)
                    store_arguments(b, copy, COPY, row=row if by_rows else column, terms=left)
                    if by_rows:
                        left = b.min(left, b.mul(steps, kind.step))
                        store_arguments(b, copy, COPY, rows=height, steps=left, pitch=pitch * kind.step)
                    else:
                        store_arguments(b, copy, COPY, rows=steps, steps=height, pitch=most)
                    b.call(routines.lines(type, kind, kind.step > 1 and not by_rows), (copied, 0), (a, in_a), (copy, 0))
                    in_a = 0
                with b.loop(first_panel, last_panel, sequential=True) as (panel, _):
                    left, columns = b.tile_start_and_size(panel, kind.width, n["n"])
                    store_arguments(b, sizes, NUMBERS, n=columns)
                    in_b: Index = 0
                    if inside:
                        at = Panel(batch, panel, start, steps)
                        _panel(b, kind, other, right_by_rows, (panel_copy, 0), right, copy, at)
                    else:
                        in_b = b.add(b.mul(batch, n["b_batch"]), b.mul(left, n["b_column"]), b.mul(start, n["b_row"]))
                        in_b = b.mul(in_b, kind.step)
                    matrices = (c, b.add(target, left)), (copied, in_a), (panel_copy, in_b)
                    b.call(provide_product(kind), *matrices, *((places, 0) for places in (*lists, sizes)))

        if kind.in_unit and not copies:  # whose sums would leave the caches between chunks
            with b.loop(first_panel, last_panel, sequential=True) as (panel, _):
                by_chunks(panel, b.add(panel, 1))
        else:
            by_chunks(first_panel, last_panel)
    return b.kernel


# --- which kernels a product needs ------------------------------------------------------------------------------------


def supports(x: Instruction) -> bool:
    """Whether a product has a type that this arithmetic is for, and is large enough that copies pay; the BLAS may not
    have its type."""
    type, result = x.operands[0].array_shape.element_type.name, x.array_shape.element_type.name
    p = product_of(x)
    if p is None or arithmetic(type, result, p.m, p.n, p.k) is None or not x.array_shape.size or not p.k:
        return False
    if type not in ("f32", "f64"):
        return True
    is_large = p.right.by_rows and p.k * p.right.row * routines.bits_of(type) // 8 >= _SECOND
    return (p.m > 1 or is_large) and p.n > _FEW and max(p.n, p.k) > _SMALL


def _depth(kind: Arithmetic) -> int:
    return _UNIT_DEPTH if kind.in_unit else _DEPTH


def _most_rows(kind: Arithmetic, copies: bool, inside: bool) -> int:
    """Of the left operand that a kernel can do at once."""
    if kind.in_unit:
        return _UNIT_BLOCK // 2 if inside else _UNIT_BLOCK
    return _BLOCK if copies else _BLOCK_INSIDE


def _is_read_in_place(kind: Arithmetic, type: str, p: MatrixProduct) -> bool:
    """Whether the left operand's elements, or pairs of them, are what is multiplied."""
    left = p.left
    if kind.step == 1:
        return type == kind.total
    return type == kind.packed and left.by_rows and not any(size % kind.step for size in (p.k, left.row, left.batch))


def lower(x: Instruction, plan: Plan, users: Users) -> list[LoweredKernel]:
    type, other = (o.array_shape.element_type.name for o in x.operands)
    result = x.array_shape.element_type.name
    p = product_of(x)
    assert p is not None
    kind = arithmetic(type, result, p.m, p.n, p.k)
    assert kind is not None
    is_right_in_order = kind.step == 1 and other == kind.total and p.right.by_rows
    if p.m <= _BLOCK and is_right_in_order:
        kind = kind.streaming(p.m, p.n)
    width, steps = kind.width, -(-p.k // kind.step)
    panels = -(-p.n // width)
    kernels: list[LoweredKernel] = []
    depth = min(_depth(kind), _MEETING * _WAY // math.gcd(p.right.row * kind.bits // 8, _WAY))
    held = p.k * p.right.row * kind.bits // 8
    copies = not _is_read_in_place(kind, type, p) or (not p.left.by_rows and panels > 1)
    is_scattered = depth < _depth(kind) // 2 or held > _SECOND * (1 if p.m >= _BLOCK else 2)
    is_copied = is_scattered and p.m > (_MANY_ROWS if copies else _BLOCK)
    packs = not is_right_in_order or is_copied
    inside = packs and p.m <= _most_rows(kind, copies, True) and (p.batch == 1 or p.right.batch > 0)
    right: Storage = x.operands[1]
    b_batch, b_row, b_column = p.right.batch, p.right.row, p.right.column
    if packs and not inside:
        right, packing, pitch = _packed(x, p, kind)
        kernels.append(packing)
        b_batch, b_row, b_column = panels * pitch * width if p.right.batch else 0, width, pitch
    most, in_cache = _most_rows(kind, copies, inside), _SECOND // (2 * width * steps * kind.bits // 8)
    if not (kind.in_unit or inside):
        most = min(most, _BLOCK if in_cache else _TALL_BLOCK)
    is_symmetric = _is_symmetric(x) and p.m >= 2 * most
    at_once = kind.few > 0 and (p.m <= _FEW or held > _LARGE)
    by_columns = panels >= _PIECES  # the right operand, which then is the larger one, is read once
    block = p.m if at_once or inside else min(most, p.m if by_columns else max(kind.rows, -(-p.m * p.batch // _PIECES)))
    block = _up(-(-p.m // -(-p.m // block)), kind.rows)
    blocks = -(-p.m // block)
    if at_once:
        depth = max(1, min(_SHALLOW, _STREAM * 8 // kind.bits // p.right.row))
    elif packs:
        depth = _depth(kind)
    chunks = -(-steps // depth)
    missing = -(-_PIECES // (p.batch * blocks))
    across = 1 if at_once and chunks >= missing else max(1, min(panels, missing))
    together = max(in_cache, _GROUP_OF_COPIES if copies else 1)
    stays = panels > together * across and not (at_once or inside)  # a group, while block after block comes to it
    group = together if stays else max(1, panels // across)
    across = -(-panels // group)
    pieces = min(chunks // 2, _PIECES // (p.batch * blocks * across)) // 2 * 2 or 1
    length = _up(-(-steps // pieces), kind.whole)
    depth = _up(-(-length // -(-length // depth)), kind.whole)
    pieces = -(-steps // length)
    size = x.array_shape.size
    partial = Temporary(Shape(x.array_shape.element_type, (pieces, size)))
    into: Storage = x if pieces == 1 else partial
    numbers = (
        *(p.k, p.m, p.n, steps, p.left.batch, p.left.row, p.left.column, b_batch, b_row, b_column),
        *(p.m * p.n, p.n, size, blocks, block, across, group, pieces, length, depth, int(is_symmetric)),
        *((1, blocks) if stays else (across, 1)),
    )
    other = other if inside or not packs else kind.held
    kernel = _multiply(kind, type, other, result, copies, p.left.by_rows, inside, p.right.by_rows)
    work = block * group * width * (min(length, steps) + _STORE) // 2
    kernels.append(step_of(kernel, [x.operands[0], right, into], numbers, p.batch * blocks * across * pieces, work, x))
    if pieces > 1:
        kernels.append(combine_partials(partial, x, plan))
    return [*kernels, _mirrored(x, p)] if is_symmetric else kernels


def _packed(x: Instruction, p: MatrixProduct, kind: Arithmetic) -> tuple[Temporary, LoweredKernel, int]:
    """The right operand's panels, the kernel that makes them, and how many steps apart they are."""
    source, steps = x.operands[1], -(-p.k // kind.step)
    count, panels = p.batch if p.right.batch else 1, -(-p.n // kind.width)
    pitch = steps + 1  # so that panels are not a power of two apart, and meet in the cache
    found = Temporary(Shape(element_type(kind.held), (count, panels, pitch, kind.width * kind.step)))
    length, wide = (_BLOCK, panels) if p.right.by_rows else (_depth(kind), 1)
    parts, pieces = panels // wide, -(-steps // length)
    numbers = (p.k, p.n, steps, pitch, p.right.batch, p.right.row, p.right.column, panels, wide, parts, pieces, length)
    work = 2 * wide * kind.width * kind.step * min(steps, length)
    kernel = _pack(kind, source.array_shape.element_type.name, p.right.by_rows)
    return found, step_of(kernel, [source, found], numbers, count * parts * pieces, work, x), pitch


def step_of(
    kernel: Kernel, arguments: list[Storage], numbers: tuple[int, ...], extent: int, work: int, x: Instruction
) -> LoweredKernel:
    """A kernel for all sizes, with the numbers that it is to take."""
    return LoweredKernel(kernel, arguments, extent, parallel_grain(extent, work), [x], numbers)


def _is_symmetric(x: Instruction) -> bool:
    """Whether a matrix is multiplied with its transpose: then a triangle of the result is enough."""
    lhs, rhs = x.operands
    dims: contraction.Dot = x.attributes
    return lhs is rhs and dims.contracting(0) == dims.contracting(1) and dims.batch(0) == dims.batch(1)


@functools.cache
def _mirror(type: str) -> Kernel:
    """Right of squares on the diagonal stands what is to stand below them."""
    b = ParametricBuilder("mirror", "m groups size")
    n, height = b.parameter, tile_rows()
    out, sizes = b.argument(type, True), b.scratch(INDEX, len(COPY))
    with b.loop(b.kernel.first, b.kernel.last) as (index, _):
        matrix, group = b.delinearize(index, n["groups"])
        first, after = b.tile_range(group, height, n["m"])
        store_arguments(b, sizes, COPY, rows=height, steps=b.sub(n["m"], after), row=n["m"], pitch=n["m"])
        base = b.mul(matrix, n["size"])
        below, right = b.add(base, b.mul(after, n["m"]), first), b.add(base, b.mul(first, n["m"]), after)
        b.call(routines.turn(routines.bits_of(type)), (out, below), (out, right), (sizes, 0))
    return b.kernel


def _mirrored(x: Instruction, p: MatrixProduct) -> LoweredKernel:
    """Below the diagonal what is above. Squares on it are there, and symmetric: a sum has its terms in one order."""
    groups = -(-p.m // tile_rows())
    kernel = _mirror(x.array_shape.element_type.name)
    return step_of(kernel, [x], (p.m, groups, p.m * p.m), p.batch * groups, p.m * tile_rows(), x)


def _up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple
