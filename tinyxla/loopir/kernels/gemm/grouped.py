"""Grouped GEMM (ragged dot): one BLAS GEMM for each tile of rows of each group. Group boundaries are read from memory
at run time, so the sizes of the products are known only then; tiles are cut at fixed places, and may be empty."""

from __future__ import annotations

import math

from tinyxla.compiler.fusion.plan import Plan
from tinyxla.hlo import Instruction
from tinyxla.loopir.ir.loop_ir import INDEX, Index, Literal, Matrix, Operand, Value
from tinyxla.loopir.ir.routines import MultiplyRoutine, declare
from tinyxla.loopir.lower.axes import make_kernel
from tinyxla.loopir.lower.emit import Coordinates, LoweredKernel, Lowering, Users, zero
from tinyxla.ops.products.ragged import RaggedDot

_TILE_ROWS = 256  # of one GEMM


def supports(x: Instruction) -> bool:
    """Whether the canonical form of ragged dots applies: rows or the contracted dimension in groups, of a type of the
    BLAS."""
    dims: RaggedDot = x.attributes
    return x.array_shape.element_type.name in ("f32", "f64", "c64", "c128") and dims.lhs_ragged_dims == (0,)


def lower(x: Instruction, plan: Plan, users: Users) -> list[LoweredKernel]:
    """The kernels of a ragged dot."""
    declare(MultiplyRoutine(x.array_shape.element_type.name))
    dims: RaggedDot = x.attributes
    return (
        [_contracting_groups(x, plan)]
        if dims.mode == "contracting"
        else [_row_groups(x, plan), _zero_remaining_rows(x, plan)]
    )


def _group_count(x: Instruction) -> int:
    return x.operands[2].array_shape.dimensions[0]


def _group_start(low: Lowering, x: Instruction, group: Index) -> Index:
    """First row of a group, clamped to the rows there are; for the group past the last one, the end of all groups."""
    b = low.builder
    lhs, _, sizes = x.operands
    rows = Literal(INDEX, lhs.array_shape.dimensions[0])

    def add(indices: Coordinates, totals: list[Operand]) -> list[Operand]:
        size = b.convert(INDEX, low.value(sizes, indices))
        return [b.compute("add", INDEX, totals[0], b.compute("clamp", INDEX, Literal(INDEX, 0), size, rows))]

    (start,) = low.nest([(0, group)], [Literal(INDEX, 0)], add)
    assert isinstance(start, Value)
    return b.min(start, lhs.array_shape.dimensions[0])


def _row_groups(x: Instruction, plan: Plan) -> LoweredKernel:
    """[rows, k] x [groups, k, columns] -> [rows, columns]: tiles of the rows of each group."""
    low = Lowering("ragged_dot", plan)
    b = low.builder
    lhs, rhs, out = low.buffer(x.operands[0]), low.buffer(x.operands[1]), low.buffer(x, True)
    rows, *inner = x.operands[0].array_shape.dimensions
    k, columns = math.prod(inner), x.array_shape.size // rows
    k_minor = x.attributes.rhs_contracting_dims != tuple(range(1, 1 + len(inner)))
    tiles = -(-rows // _TILE_ROWS)
    with low.loop(b.kernel.first, b.kernel.last) as (index, _):
        group, tile = low.split_index(index, [_group_count(x), tiles])
        end = _group_start(low, x, b.add(group, 1))
        first = b.add(_group_start(low, x, group), b.mul(tile, _TILE_ROWS))
        count = b.max(b.min(b.sub(end, first), _TILE_ROWS), 0)
        first = b.min(first, rows)
        b.multiply(
            Matrix(out, b.mul(first, columns), columns),
            Matrix(lhs, b.mul(first, k), k),
            Matrix(rhs, b.mul(group, k * columns), k if k_minor else columns, k_minor),
            (count, columns, k),
        )
    return make_kernel(low, _group_count(x) * tiles, _TILE_ROWS * k * (1 + columns // 16), [x])


def _zero_remaining_rows(x: Instruction, plan: Plan) -> LoweredKernel:
    """Zeros in the rows of the result that belong to no group."""
    low = Lowering("no_group", plan)
    b = low.builder
    rows = x.operands[0].array_shape.dimensions[0]
    columns = x.array_shape.size // rows
    out = low.buffer(x, True)
    with low.loop(b.kernel.first, b.kernel.last) as (index, _):
        end = _group_start(low, x, _group_count(x))
        start = b.max(b.mul(end, columns), b.mul(index, columns * _TILE_ROWS))
        stop = b.min(b.mul(b.add(index, 1), columns * _TILE_ROWS), rows * columns)
        with low.loop(start, stop) as (k, _):
            b.store(out, k, zero(x.array_shape))
    return make_kernel(low, -(-rows // _TILE_ROWS), _TILE_ROWS * columns, [x])


def _contracting_groups(x: Instruction, plan: Plan) -> LoweredKernel:
    """[k, rows] x [k, columns] -> [groups, rows, columns]: tiles of rows, summed over each group's part of k."""
    low = Lowering("ragged_dot", plan)
    b = low.builder
    lhs, rhs, out = low.buffer(x.operands[0]), low.buffer(x.operands[1]), low.buffer(x, True)
    rows, columns = (math.prod(o.array_shape.dimensions[1:]) for o in x.operands[:2])
    tiles = -(-rows // _TILE_ROWS)
    with low.loop(b.kernel.first, b.kernel.last) as (index, _):
        group, tile = low.split_index(index, [_group_count(x), tiles])
        first, end = _group_start(low, x, group), _group_start(low, x, b.add(group, 1))
        row = b.mul(tile, _TILE_ROWS)
        result = b.mul(b.add(b.mul(group, rows), row), columns)
        b.multiply(
            Matrix(out, result, columns),
            Matrix(lhs, b.add(b.mul(first, rows), row), rows, True),
            Matrix(rhs, b.mul(first, columns), columns),
            (b.min(b.sub(rows, row), _TILE_ROWS), columns, b.max(b.sub(end, first), 0)),
        )
    k = -(-x.operands[0].array_shape.dimensions[0] // max(1, _group_count(x)))
    return make_kernel(low, _group_count(x) * tiles, _TILE_ROWS * k * (1 + columns // 16), [x])
