"""Matrix products of this library's own: for types that the BLAS lacks, and where its setting up costs too much.

A product is cut into tiles of C that stay in registers: some rows of two vectors. The right operand is copied once
to *panels*, as wide as a tile, in which what a tile reads next comes next; all threads read them. Rows of the left
operand are copied by the thread that needs them, unless they are contiguous and there are few columns. As copies go
element by element, any strides will do, and narrow types are widened on the way.

Three instructions multiply and add: that of the element type; and, where the processor has them, those that add two
products of bf16 to an f32, or of s16 to an s32, for which panels hold pairs.

Where tiles are depends on shapes alone, and a long sum is cut at fixed places, so results do not depend on the number
of threads.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from tinyxla.backends.numba import panel_routines as routines
from tinyxla.backends.numba.axes import CHUNK, COSTLY_WORK, finished
from tinyxla.backends.numba.loops import INDEX, Buffer, Builder, Index, Kernel, Literal, Operand, Value
from tinyxla.backends.numba.lowering import LoweredKernel, Lowering, Partial, Storage, Users
from tinyxla.backends.numba.panel_routines import COPY, TILE, Arithmetic, arithmetic, tile_rows
from tinyxla.backends.numba.products import Matrices, MatrixProduct, product_of
from tinyxla.backends.numba.reductions import sum_of_pieces
from tinyxla.compiler.fusion import Plan
from tinyxla.hlo import Instruction
from tinyxla.ops import contraction
from tinyxla.shapes import Shape, element_type

_DEPTH = 256  # steps of the sum that are done at once: what a tile reads of the right operand stays in the first cache
_SHALLOW = 32  # and where the right operand is not copied, and has long rows, all of which are read side by side
_DEEP = 1 << 11  # and where the left operand is not copied, and read once: so it is read in order
_NARROW = 256  # elements of a row
_FEW_ROWS = 16  # of the left operand, for which long rows of the right one are not copied
_BLOCK = 64  # rows of the left operand that are copied at once
_FEW_PANELS = 4  # for which rows of the left operand are not copied
_FEW = 4  # rows or columns, which are products with vectors
_SMALL = 16  # columns and terms of a product that the BLAS has a kernel for
_SQUARE = 32  # rows and columns that are mirrored at once
_PIECES = 8  # into which the work is cut at least, if it is enough

# --- the kernels around it --------------------------------------------------------------------------------------------


Place = tuple[Buffer, Index]


class Numbers(Builder):
    """A builder of a kernel that takes sizes and strides from its table, so that one serves all shapes."""

    def __init__(self, name: str, names: str) -> None:
        super().__init__(name)
        self.kernel.numbers = [Value(INDEX, number) for number in names.split()]
        self.number = dict(zip(names.split(), self.kernel.numbers, strict=True))

    def sum(self, *terms: Index) -> Index:
        return functools.reduce(lambda x, y: self.index("add", x, y), terms)

    def times(self, *factors: Index) -> Index:
        return functools.reduce(lambda x, y: self.index("multiply", x, y), factors)

    def split(self, index: Index, *sizes: Index) -> list[Index]:
        """The coordinates of an index in a space whose inner sizes are these."""
        found: list[Index] = []
        for size in reversed(sizes):
            found.append(self.index("remainder", index, size))
            index = self.index("divide", index, size)
        return [index, *reversed(found)]

    def piece(self, piece: Index, length: Index, whole: Index) -> tuple[Index, Index]:
        """From where to where a piece of some length is in the whole."""
        start = self.times(piece, length)
        return start, self.index("minimum", self.sum(start, length), whole)

    def factor(
        self, kind: Arithmetic, source: Buffer, place: Callable[[Index], Index], step: Index, part: int
    ) -> Operand:
        """What a panel holds of a factor: the `part`-th of a pair, or zero where a sum has no more terms."""
        term, terms = self.sum(self.times(step, kind.step), part), self.number["k"]
        if part:
            value = self.load(source, place(self.index("minimum", term, self.index("subtract", terms, 1))))
        else:
            value = self.load(source, place(term))
        held = self.compute("bitcast-convert", "u16", value) if kind.pairs == "bf16" else _as(self, value, kind.held)
        if not part:
            return held
        assert isinstance(term, Value)
        inside = self.compute("compare", "pred", term, terms, direction="LT", compare_type="SIGNED")
        return self.compute("select", kind.held, inside, held, Literal(kind.held, 0))


def give(b: Numbers, sizes: Buffer, names: Sequence[str], **values: Index) -> None:
    """Put numbers where a routine reads them."""
    for name, value in values.items():
        b.store(sizes, names.index(name), value if isinstance(value, Value) else Literal(INDEX, value))


def _as(b: Builder, value: Operand, type: str) -> Operand:
    return value if value.type == type else b.compute("convert", type, value)


def _copy_routine(kind: Arithmetic, type: str, terms: int, matrices: Matrices, terms_last: bool) -> str | None:
    """What copies the factors of a tile as they are, if no element changes, and pairs stand together."""
    even = terms_last and terms % 2 == max(matrices.row, matrices.column) % 2 == 0
    if type == kind.total or (kind.pairs == type and even):
        return routines.turn(kind.bits) if terms_last else routines.lift(kind.bits)
    return None


@functools.cache
def _pack(kind: Arithmetic, type: str, by_rows: bool, routine: str | None) -> Kernel:
    """The right operand as panels [batch, panel, step, column]: its rows, or else its columns, are contiguous."""
    b = Numbers("panels", "k n steps pitch batch row column panels pieces length")
    n = b.number
    source, panels = b.argument(type), b.argument(kind.held, True)
    row, column = (n["row"], 1) if by_rows else (1, n["column"])
    sizes = b.scratch(INDEX, len(COPY))

    def columns_of(panel: Index) -> Index:
        return b.index("minimum", b.index("subtract", n["n"], b.times(panel, kind.width)), kind.width)

    def copy(batch: Index, panel: Index, step: Index, j: Index) -> None:
        base = b.sum(b.times(batch, n["batch"]), b.times(b.sum(b.times(panel, kind.width), j), column))
        line = b.sum(b.times(b.sum(b.times(batch, n["panels"]), panel), n["pitch"]), step)
        place = b.sum(b.times(line, kind.width * kind.step), b.times(j, kind.step))
        for part in range(kind.step):
            value = b.factor(kind, source, lambda p: b.sum(base, b.times(p, row)), step, part)
            b.store(panels, b.sum(place, part), value)

    with b.loop(b.kernel.first, b.kernel.last) as (index, _):
        if by_rows:  # row by row, since that is how memory is read fastest
            batch, piece = b.split(index, n["pieces"])
            start, stop = b.piece(piece, n["length"], n["steps"])
            with (
                b.loop(start, stop) as (step, _),
                b.loop(0, n["panels"]) as (panel, _),
                b.loop(0, columns_of(panel)) as (j, _),
            ):
                copy(batch, panel, step, j)
            return b.kernel
        batch, panel, piece = b.split(index, n["panels"], n["pieces"])
        start, stop = b.piece(piece, n["length"], n["steps"])
        columns = columns_of(panel)
        if routine is None:
            with b.loop(0, columns) as (j, _), b.loop(start, stop) as (step, _):
                copy(batch, panel, step, j)
            return b.kernel
        base = b.sum(b.times(batch, n["batch"]), b.times(panel, kind.width, column), b.times(start, kind.step))
        line = b.sum(b.times(b.sum(b.times(batch, n["panels"]), panel), n["pitch"]), start)
        give(b, sizes, COPY, steps=b.index("subtract", stop, start), pitch=kind.width)
        give(b, sizes, COPY, row=b.index("divide", column, kind.step))
        _turn(b, kind, routine, (panels, b.times(line, kind.width * kind.step)), (source, base), columns, column, sizes)
    return b.kernel


def _turn(
    b: Numbers, kind: Arithmetic, routine: str, to: Place, source: Place, columns: Index, column: Index, sizes: Buffer
) -> None:
    """Copy columns that are contiguous to a panel."""
    rows = tile_rows()
    with b.loop(0, b.index("divide", b.sum(columns, rows - 1), rows), sequential=True) as (group, _):
        j = b.times(group, rows)
        give(b, sizes, COPY, rows=b.index("subtract", columns, j))
        into = to[0], b.sum(to[1], b.times(j, kind.step))
        b.call(routine, into, (source[0], b.sum(source[1], b.times(j, column))), (sizes, 0))


_MULTIPLY = (
    "k m n steps a_batch a_row a_column b_batch b_panel b_step c_batch c_row c_piece "
    "blocks block across panels pieces length depth triangle"
)


@functools.cache
def _multiply(
    kind: Arithmetic,
    type: str,
    other: str,
    result: str,
    copies: bool,
    by_rows: bool,
    routine: str | None,
    inside: tuple[bool, str | None] | None,
) -> Kernel:
    """Blocks of rows by groups of panels, for each of some pieces of the sum. The left operand is copied, or read where
    it is. Where there is one block, panels of the right operand are made `inside`: of its rows, or by a routine."""
    b = Numbers("product", _MULTIPLY)
    n = b.number
    a, right, c = b.argument(type), b.argument(other), b.argument(result, True)
    rows = tile_rows()
    copied = b.scratch(kind.held, _BLOCK * _DEPTH * kind.step) if copies else a
    sizes, others = b.scratch(INDEX, len(TILE)), b.scratch(INDEX, len(COPY))
    row, column = (n["a_row"], 1) if by_rows else (1, n["a_column"])

    panel_copy = b.scratch(kind.held, _DEPTH * kind.width * kind.step) if inside is not None else right
    tell = functools.partial(give, b, sizes, TILE)
    product = routines.tile(kind)
    with b.loop(b.kernel.first, b.kernel.last) as (index, _):
        batch, down, part, piece = b.split(index, n["blocks"], n["across"], n["pieces"])
        first, last = b.piece(down, n["block"], n["m"])
        first_panel, last_panel = b.piece(
            part, n["panels"], b.index("divide", b.sum(n["n"], kind.width - 1), kind.width)
        )
        on_diagonal = b.index("divide", b.times(first, n["triangle"]), kind.width)
        first_panel = b.index("maximum", first_panel, on_diagonal)
        begin, end = b.piece(piece, n["length"], n["steps"])
        source = b.sum(b.times(batch, n["a_batch"]), b.times(first, row))
        target = b.sum(b.times(batch, n["c_batch"]), b.times(first, n["c_row"]), b.times(piece, n["c_piece"]))
        height = b.index("subtract", last, first)
        tiles = b.index("divide", b.sum(height, rows - 1), rows)
        chunks = b.index(
            "divide", b.sum(b.index("subtract", end, begin), b.index("subtract", n["depth"], 1)), n["depth"]
        )
        tell(b_step=n["b_step"] if inside is None else kind.width)
        tell(c_row=n["c_row"])
        tell(a_step=rows if copies else b.index("divide", column, kind.step) if column != 1 else 1)
        tell(a_row=1 if copies else b.index("divide", row, kind.step))
        with b.loop(0, chunks, sequential=True) as (chunk, _):
            start = b.sum(begin, b.times(chunk, n["depth"]))
            steps = b.index("minimum", b.index("subtract", end, start), n["depth"])
            tell(steps=steps)
            tell(more=b.index("minimum", chunk, 1))
            if copies and routine is not None:
                lengths = functools.partial(give, b, others, COPY)
                lengths(steps=steps, row=b.index("divide", row if by_rows else column, kind.step), pitch=rows)
                with b.loop(0, tiles, sequential=True) as (tile, _):
                    top = b.times(tile, rows)
                    lengths(rows=b.index("subtract", height, top))
                    line = b.sum(source, b.times(top, row), b.times(start, column, kind.step))
                    b.call(routine, (copied, b.times(tile, _DEPTH * rows * kind.step)), (a, line), (others, 0))
            elif copies:
                with b.loop(0, tiles) as (tile, _):
                    top = b.times(tile, rows)
                    counts = (b.index("minimum", b.index("subtract", height, top), rows), steps)
                    with b.loop(0, counts[not by_rows]) as (outer, _), b.loop(0, counts[by_rows]) as (inner, _):
                        i, step = (outer, inner) if by_rows else (inner, outer)
                        place = b.times(b.sum(b.times(b.sum(b.times(tile, _DEPTH), step), rows), i), kind.step)
                        line = b.sum(source, b.times(b.sum(top, i), row))
                        for half in range(kind.step):
                            value = b.factor(
                                kind, a, lambda p: b.sum(line, b.times(p, column)), b.sum(start, step), half
                            )
                            b.store(copied, b.sum(place, half), value)
            with b.loop(first_panel, last_panel, sequential=True) as (panel, _):
                left = b.times(panel, kind.width)
                columns = b.index("minimum", b.index("subtract", n["n"], left), kind.width)
                tell(columns=columns)
                in_b = b.sum(b.times(batch, n["b_batch"]), b.times(panel, n["b_panel"]), b.times(start, n["b_step"]))
                in_b = b.times(in_b, kind.step)
                if inside is not None:
                    in_b = 0
                    right_row, right_column = (n["b_step"], 1) if inside[0] else (1, n["b_panel"])
                    base = b.sum(b.times(batch, n["b_batch"]), b.times(left, right_column))
                    if inside[1] is not None and not inside[0]:
                        give(b, others, COPY, steps=steps, pitch=kind.width)
                        give(b, others, COPY, row=b.index("divide", right_column, kind.step))
                        source_place = right, b.sum(base, b.times(start, kind.step))
                        _turn(b, kind, inside[1], (panel_copy, 0), source_place, columns, right_column, others)
                    else:
                        counts = (steps, columns)
                        with (
                            b.loop(0, counts[not inside[0]]) as (outer, _),
                            b.loop(0, counts[inside[0]]) as (inner, _),
                        ):
                            step, j = (outer, inner) if inside[0] else (inner, outer)
                            line = b.sum(base, b.times(j, right_column))
                            place = b.times(b.sum(b.times(step, kind.width), j), kind.step)
                            for half in range(kind.step):
                                value = b.factor(
                                    kind, right, lambda p: b.sum(line, b.times(p, right_row)), b.sum(start, step), half
                                )
                                b.store(panel_copy, b.sum(place, half), value)
                with b.loop(0, tiles, sequential=True) as (tile, _):
                    top = b.times(tile, rows)
                    tell(rows=b.index("minimum", b.index("subtract", height, top), rows))
                    in_a = (
                        b.times(tile, _DEPTH * rows * kind.step)
                        if copies
                        else b.sum(source, b.times(top, row), b.times(start, column, kind.step))
                    )
                    in_c = b.sum(target, b.times(top, n["c_row"]), left)
                    b.call(product, (c, in_c), (copied, in_a), (panel_copy, in_b), (sizes, 0))
    return b.kernel


# --- which kernels a product needs ------------------------------------------------------------------------------------


def supports(x: Instruction) -> bool:
    """Whether a product has a type that this arithmetic is for, and is large enough that copies pay; the BLAS may not
    have its type."""
    type, result = x.operands[0].array_shape.element_type.name, x.array_shape.element_type.name
    p = product_of(x)
    if p is None or arithmetic(type, result, p.n) is None or not x.array_shape.size or not p.k:
        return False
    return type not in ("f32", "f64") or (min(p.m, p.n) > _FEW and max(p.n, p.k) > _SMALL)


def lower(x: Instruction, plan: Plan, users: Users) -> list[LoweredKernel]:
    type, other = (o.array_shape.element_type.name for o in x.operands)
    result = x.array_shape.element_type.name
    p = product_of(x)
    assert p is not None
    kind = arithmetic(type, result, p.n)
    assert kind is not None
    width, steps = kind.width, -(-p.k // kind.step)
    panels = -(-p.n // width)
    kernels: list[LoweredKernel] = []
    most = _BLOCK if p.right.row <= _NARROW else _FEW_ROWS
    packs = kind.step == 2 or other != kind.total or not p.right.by_rows or p.n % width != 0 or p.m > most
    right: Storage = x.operands[1]
    right_routine = _copy_routine(kind, other, p.k, p.right, not p.right.by_rows)
    inside = packs and p.m <= _BLOCK and (p.batch == 1 or p.right.batch > 0)
    b_batch, b_panel, b_step = p.right.batch, width, p.right.row
    if inside:
        b_panel = p.right.column
    elif packs:
        count = p.batch if p.right.batch else 1
        pitch = steps + 1  # so that panels are not a power of two apart, and meet in the cache
        right = Partial(Shape(element_type(kind.held), (count, panels, pitch, width * kind.step)))
        length = _BLOCK if p.right.by_rows else _DEPTH
        pieces, wide = -(-steps // length), panels if p.right.by_rows else 1
        numbers = (p.k, p.n, steps, pitch, p.right.batch, p.right.row, p.right.column, panels, pieces, length)
        work = 2 * wide * width * kind.step * min(steps, length)
        kernels.append(
            _step(
                _pack(kind, other, p.right.by_rows, right_routine),
                [x.operands[1], right],
                numbers,
                count * (panels // wide) * pieces,
                work,
                x,
            )
        )
        b_batch, b_panel, b_step = panels * pitch * width if count > 1 else 0, pitch * width, width
    copies = kind.step == 2 or type != kind.total or not p.left.by_rows or panels > _FEW_PANELS
    is_symmetric = _is_symmetric(x) and p.m >= 2 * _BLOCK
    rows = tile_rows()
    at_once = not packs and p.right.row > _NARROW
    block = _up(p.m, rows)
    if not at_once and not inside:
        block = min(_BLOCK, max(rows, _up(-(-p.m * p.batch // _PIECES), rows)), block)
    blocks = -(-p.m // block)
    depth = _DEPTH
    if at_once:
        depth = _SHALLOW
    elif not copies and panels == 1 and not inside:
        depth = _DEEP
    chunks = -(-steps // depth)
    missing = -(-_PIECES // (p.batch * blocks))
    across = 1 if at_once and chunks >= missing else max(1, min(panels, missing))
    group = -(-panels // across)
    across = -(-panels // group)
    least = 2 if at_once else 2 * _DEPTH // depth or 1
    pieces = max(1, min(chunks // least, _PIECES // (p.batch * blocks * across)))
    length = -(-chunks // pieces) * depth
    pieces = -(-steps // length)
    size = x.array_shape.size
    partial = Partial(Shape(x.array_shape.element_type, (pieces, size)))
    into: Storage = x if pieces == 1 else partial
    numbers = (
        *(p.k, p.m, p.n, steps, p.left.batch, p.left.row, p.left.column, b_batch, b_panel, b_step),
        *(p.m * p.n, p.n, size, blocks, block, across, group, pieces, length, depth, int(is_symmetric)),
    )
    kernel = _multiply(
        kind,
        type,
        other if inside or not packs else kind.held,
        result,
        copies,
        p.left.by_rows,
        _copy_routine(kind, type, p.k, p.left, p.left.by_rows),
        (p.right.by_rows, right_routine) if inside else None,
    )
    work = block * group * width * min(length, steps) // 8
    kernels.append(_step(kernel, [x.operands[0], right, into], numbers, p.batch * blocks * across * pieces, work, x))
    if pieces > 1:
        kernels.append(sum_of_pieces(partial, x, plan))
    return [*kernels, _mirrored(x, p, plan)] if is_symmetric else kernels


def _step(
    kernel: Kernel, arguments: list[Storage], numbers: tuple[int, ...], extent: int, work: int, x: Instruction
) -> LoweredKernel:
    return LoweredKernel(kernel, arguments, extent, max(1, CHUNK * COSTLY_WORK // max(1, work)), [x], numbers)


def _is_symmetric(x: Instruction) -> bool:
    """Whether a matrix is multiplied with its transpose: then a triangle of the result is enough."""
    lhs, rhs = x.operands
    dims: contraction.Dot = x.attributes
    return lhs is rhs and dims.contracting(0) == dims.contracting(1) and dims.batch(0) == dims.batch(1)


def _mirrored(x: Instruction, p: MatrixProduct, plan: Plan) -> LoweredKernel:
    """Below the diagonal what is above: square by square, so that lines of memory are read once."""
    low = Lowering("mirror", plan)
    b = low.builder
    squares = -(-p.m // _SQUARE)
    out = low.buffer(x, True)
    with low.loop(b.kernel.first, b.kernel.last) as (index, _):
        matrix, down, across = low.split_index(index, (p.batch, squares, squares))
        top, left = (b.index("multiply", k, _SQUARE) for k in (down, across))
        bottom = b.index("minimum", b.index("add", top, _SQUARE), p.m)
        right = b.index("add", left, _SQUARE)
        base = b.index("multiply", matrix, p.m * p.m)

        def place(row: Index, column: Index) -> Index:
            return b.index("add", base, b.index("add", b.index("multiply", row, p.m), column))

        with (
            low.loop(top, bottom, sequential=True) as (i, _),
            low.loop(left, b.index("minimum", right, i)) as (j, _),
        ):
            b.store(out, place(i, j), b.load(out, place(j, i)))
    return finished(low, p.batch * squares * squares, _SQUARE * _SQUARE, [x])


def _up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple
