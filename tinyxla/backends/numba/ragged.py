"""Ragged dots as loop nests: a product by the BLAS for each group, or for tiles of its rows. Where groups begin is read
from memory, so sizes of products are known only then; pieces of work are cut at fixed places, and many may be empty."""

from __future__ import annotations

import math

from tinyxla.backends.numba.axes import finished
from tinyxla.backends.numba.loops import INDEX, Index, Literal, Matrix, Operand, Value
from tinyxla.backends.numba.lowering import Coordinates, LoweredKernel, Lowering, Users, zero
from tinyxla.compiler.fusion import Plan
from tinyxla.hlo import Instruction
from tinyxla.ops.ragged import RaggedDot

_TILE = 256  # rows of a product


def supports(x: Instruction) -> bool:
    """All that the pass leaves."""
    dims: RaggedDot = x.attributes
    return x.array_shape.element_type.name in ("f32", "f64", "c64", "c128") and dims.lhs_ragged_dims == (0,)


def lower(x: Instruction, plan: Plan, users: Users) -> list[LoweredKernel]:
    from tinyxla.backends.numba.blas import provide_multiplier  # here, since SciPy takes long to load

    provide_multiplier(x.array_shape.element_type.name)  # pyright: ignore[reportArgumentType]
    dims: RaggedDot = x.attributes
    return [_each_term_group(x, plan)] if dims.mode == "contracting" else [_each_row_group(x, plan), _no_group(x, plan)]


def _groups(x: Instruction) -> int:
    return x.operands[2].array_shape.dimensions[0]


def _start(low: Lowering, x: Instruction, group: Index) -> Index:
    """Where a group begins, within the rows that there are; the first one after the last is where all end."""
    b = low.builder
    lhs, _, sizes = x.operands
    rows = Literal(INDEX, lhs.array_shape.dimensions[0])

    def add(indices: Coordinates, totals: list[Operand]) -> list[Operand]:
        size = b.compute("convert", INDEX, low.value(sizes, indices))
        return [b.compute("add", INDEX, totals[0], b.compute("clamp", INDEX, Literal(INDEX, 0), size, rows))]

    (start,) = low.nest([(0, group)], [Literal(INDEX, 0)], add)
    assert isinstance(start, Value)
    return b.index("minimum", start, lhs.array_shape.dimensions[0])


def _each_row_group(x: Instruction, plan: Plan) -> LoweredKernel:
    """[rows, terms] x [groups, terms, columns] -> [rows, columns]: tiles of each group's rows."""
    low = Lowering("ragged_dot", plan)
    b = low.builder
    lhs, rhs, out = low.buffer(x.operands[0]), low.buffer(x.operands[1]), low.buffer(x, True)
    rows, *inner = x.operands[0].array_shape.dimensions
    terms, columns = math.prod(inner), x.array_shape.size // rows
    terms_last = x.attributes.rhs_contracting_dims != tuple(range(1, 1 + len(inner)))
    tiles = -(-rows // _TILE)
    with low.loop(b.kernel.first, b.kernel.last) as (index, _):
        group, tile = low.split_index(index, [_groups(x), tiles])
        end = _start(low, x, b.index("add", group, 1))
        first = b.index("add", _start(low, x, group), b.index("multiply", tile, _TILE))
        count = b.index("maximum", b.index("minimum", b.index("subtract", end, first), _TILE), 0)
        first = b.index("minimum", first, rows)
        b.multiply(
            Matrix(out, b.index("multiply", first, columns), columns),
            Matrix(lhs, b.index("multiply", first, terms), terms),
            Matrix(rhs, b.index("multiply", group, terms * columns), terms if terms_last else columns, terms_last),
            (count, columns, terms),
        )
    return finished(low, _groups(x) * tiles, _TILE * terms * (1 + columns // 16), [x])


def _no_group(x: Instruction, plan: Plan) -> LoweredKernel:
    """Rows that are in no group are zero."""
    low = Lowering("no_group", plan)
    b = low.builder
    rows = x.operands[0].array_shape.dimensions[0]
    columns = x.array_shape.size // rows
    out = low.buffer(x, True)
    with low.loop(b.kernel.first, b.kernel.last) as (index, _):
        end = _start(low, x, _groups(x))
        start = b.index("maximum", b.index("multiply", end, columns), b.index("multiply", index, columns * _TILE))
        stop = b.index("minimum", b.index("multiply", b.index("add", index, 1), columns * _TILE), rows * columns)
        with low.loop(start, stop) as (k, _):
            b.store(out, k, zero(x.array_shape))
    return finished(low, -(-rows // _TILE), _TILE * columns, [x])


def _each_term_group(x: Instruction, plan: Plan) -> LoweredKernel:
    """[terms, rows] x [terms, columns] -> [groups, rows, columns]: tiles of rows for each group's terms."""
    low = Lowering("ragged_dot", plan)
    b = low.builder
    lhs, rhs, out = low.buffer(x.operands[0]), low.buffer(x.operands[1]), low.buffer(x, True)
    rows, columns = (math.prod(o.array_shape.dimensions[1:]) for o in x.operands[:2])
    tiles = -(-rows // _TILE)
    with low.loop(b.kernel.first, b.kernel.last) as (index, _):
        group, tile = low.split_index(index, [_groups(x), tiles])
        first, end = _start(low, x, group), _start(low, x, b.index("add", group, 1))
        row = b.index("multiply", tile, _TILE)
        result = b.index("multiply", b.index("add", b.index("multiply", group, rows), row), columns)
        b.multiply(
            Matrix(out, result, columns),
            Matrix(lhs, b.index("add", b.index("multiply", first, rows), row), rows, True),
            Matrix(rhs, b.index("multiply", first, columns), columns),
            (
                b.index("minimum", b.index("subtract", rows, row), _TILE),
                columns,
                b.index("maximum", b.index("subtract", end, first), 0),
            ),
        )
    terms = -(-x.operands[0].array_shape.dimensions[0] // max(1, _groups(x)))
    return finished(low, _groups(x) * tiles, _TILE * terms * (1 + columns // 16), [x])
