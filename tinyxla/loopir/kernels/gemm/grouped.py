"""Ragged dots as loop nests: a product by the BLAS for each group, or for tiles of its rows. Where groups begin is read
from memory, so sizes of products are known only then; pieces of work are cut at fixed places, and many may be empty."""

from __future__ import annotations

import math

from tinyxla.compiler.fusion.plan import Plan
from tinyxla.hlo import Instruction
from tinyxla.loopir.ir.loop_ir import INDEX, Index, Literal, Matrix, Operand, Value
from tinyxla.loopir.ir.routines import MultiplyRoutine, declare
from tinyxla.loopir.lower.axes import make_kernel
from tinyxla.loopir.lower.emit import Coordinates, LoweredKernel, Lowering, Users, zero
from tinyxla.ops.ragged import RaggedDot

_TILE = 256  # rows of a product


def supports(x: Instruction) -> bool:
    """All that the pass leaves."""
    dims: RaggedDot = x.attributes
    return x.array_shape.element_type.name in ("f32", "f64", "c64", "c128") and dims.lhs_ragged_dims == (0,)


def lower(x: Instruction, plan: Plan, users: Users) -> list[LoweredKernel]:
    declare(MultiplyRoutine(x.array_shape.element_type.name))
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
        size = b.convert(INDEX, low.value(sizes, indices))
        return [b.compute("add", INDEX, totals[0], b.compute("clamp", INDEX, Literal(INDEX, 0), size, rows))]

    (start,) = low.nest([(0, group)], [Literal(INDEX, 0)], add)
    assert isinstance(start, Value)
    return b.min(start, lhs.array_shape.dimensions[0])


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
        end = _start(low, x, b.add(group, 1))
        first = b.add(_start(low, x, group), b.mul(tile, _TILE))
        count = b.max(b.min(b.sub(end, first), _TILE), 0)
        first = b.min(first, rows)
        b.multiply(
            Matrix(out, b.mul(first, columns), columns),
            Matrix(lhs, b.mul(first, terms), terms),
            Matrix(rhs, b.mul(group, terms * columns), terms if terms_last else columns, terms_last),
            (count, columns, terms),
        )
    return make_kernel(low, _groups(x) * tiles, _TILE * terms * (1 + columns // 16), [x])


def _no_group(x: Instruction, plan: Plan) -> LoweredKernel:
    """Rows that are in no group are zero."""
    low = Lowering("no_group", plan)
    b = low.builder
    rows = x.operands[0].array_shape.dimensions[0]
    columns = x.array_shape.size // rows
    out = low.buffer(x, True)
    with low.loop(b.kernel.first, b.kernel.last) as (index, _):
        end = _start(low, x, _groups(x))
        start = b.max(b.mul(end, columns), b.mul(index, columns * _TILE))
        stop = b.min(b.mul(b.add(index, 1), columns * _TILE), rows * columns)
        with low.loop(start, stop) as (k, _):
            b.store(out, k, zero(x.array_shape))
    return make_kernel(low, -(-rows // _TILE), _TILE * columns, [x])


def _each_term_group(x: Instruction, plan: Plan) -> LoweredKernel:
    """[terms, rows] x [terms, columns] -> [groups, rows, columns]: tiles of rows for each group's terms."""
    low = Lowering("ragged_dot", plan)
    b = low.builder
    lhs, rhs, out = low.buffer(x.operands[0]), low.buffer(x.operands[1]), low.buffer(x, True)
    rows, columns = (math.prod(o.array_shape.dimensions[1:]) for o in x.operands[:2])
    tiles = -(-rows // _TILE)
    with low.loop(b.kernel.first, b.kernel.last) as (index, _):
        group, tile = low.split_index(index, [_groups(x), tiles])
        first, end = _start(low, x, group), _start(low, x, b.add(group, 1))
        row = b.mul(tile, _TILE)
        result = b.mul(b.add(b.mul(group, rows), row), columns)
        b.multiply(
            Matrix(out, result, columns),
            Matrix(lhs, b.add(b.mul(first, rows), row), rows, True),
            Matrix(rhs, b.mul(first, columns), columns),
            (b.min(b.sub(rows, row), _TILE), columns, b.max(b.sub(end, first), 0)),
        )
    terms = -(-x.operands[0].array_shape.dimensions[0] // max(1, _groups(x)))
    return make_kernel(low, _groups(x) * tiles, _TILE * terms * (1 + columns // 16), [x])
