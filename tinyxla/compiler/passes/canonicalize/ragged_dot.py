"""Canonical form of ragged dots: grouped GEMMs (each group of rows times a matrix of its own, or products of groups
of rows of two matrices) stay for the backend. All others (several rows of group sizes, batch dimensions, types that
the BLAS does not have) become dots over all groups.
"""

from __future__ import annotations

from tinyxla.compiler.rewriter import Rewriter, for_opcodes, rewrite
from tinyxla.hlo import Computation, Instruction, map_computations
from tinyxla.ops import movement
from tinyxla.ops.products import ragged
from tinyxla.ops.products.contraction import free_dimensions
from tinyxla.ops.products.ragged import RaggedDot
from tinyxla.tracing.core import trace

Ints = tuple[int, ...]


@for_opcodes("ragged-dot")
def canonicalize_ragged_dots(computation: Computation) -> Computation:
    """The computation with ragged dots of matrices only, whose ragged and group dimensions come first."""

    def visit(rewriter: Rewriter, x: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if x.op is not ragged.ragged_dot:
            return None
        return (
            _with_canonical_layout(rewriter, x, operands)
            if _is_grouped_gemm(x)
            else _as_full_dots(rewriter, x, operands)
        )

    return rewrite(computation, visit)


def expand_ragged_dots(computation: Computation) -> Computation:
    """The computation with dots over all groups in the place of ragged ones, in loops and branches too, for StableHLO,
    which has no ragged dots."""

    def visit(rewriter: Rewriter, x: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if x.op is ragged.ragged_dot:
            return _as_full_dots(rewriter, x, operands)
        if any(x.computations()):
            return rewriter.emit(x.op, *operands, **map_computations(x.attributes._asdict(), expand_ragged_dots))
        return None

    return rewrite(computation, visit)


def _as_full_dots(rewriter: Rewriter, x: Instruction, operands: tuple[Instruction, ...]) -> Instruction:
    body, *_ = trace(
        lambda *values: (ragged.expanded(*values, **x.attributes._asdict()),), [o.shape for o in operands], "ragged-dot"
    )
    return rewriter.splice(body, operands, lambda *_: None).operands[0]


def _is_grouped_gemm(x: Instruction) -> bool:
    dims: RaggedDot = x.attributes
    lhs, rhs, sizes = (o.array_shape for o in x.operands)
    type = x.array_shape.element_type
    is_supported = type.name in ("f32", "f64", "c64", "c128") and type is lhs.element_type
    if not is_supported or dims.lhs_batch_dims or sizes.rank != 1 or 0 in (lhs.size, rhs.size, x.array_shape.size):
        return False
    if dims.mode == "free":
        return free_dimensions(lhs.rank, dims.lhs_contracting_dims, ()) == dims.lhs_ragged_dims
    return dims.lhs_contracting_dims == dims.lhs_ragged_dims


def _with_canonical_layout(rewriter: Rewriter, x: Instruction, operands: tuple[Instruction, ...]) -> Instruction:
    lhs, rhs, sizes = operands
    dims: RaggedDot = x.attributes
    x_free, y_free = (
        free_dimensions(o.array_shape.rank, contracting, ())
        for o, contracting in ((lhs, dims.lhs_contracting_dims), (rhs, dims.rhs_contracting_dims))
    )
    if dims.mode == "contracting":
        lhs = _transposed(rewriter, lhs, (*dims.lhs_contracting_dims, *x_free))
        rhs = _transposed(rewriter, rhs, (*dims.rhs_contracting_dims, *y_free))
        canonical = dims._replace(lhs_contracting_dims=(0,), rhs_contracting_dims=(0,), lhs_ragged_dims=(0,))
    else:
        inner, columns = dims.rhs_contracting_dims, tuple(d for d in y_free if d not in dims.rhs_group_dims)
        lhs = _transposed(rewriter, lhs, (*dims.lhs_ragged_dims, *dims.lhs_contracting_dims))
        order = (*dims.rhs_group_dims, *inner, *columns)
        if order != tuple(sorted(order)):  # the contracting dimensions may also come last
            order = (*dims.rhs_group_dims, *columns, *inner)
        rhs = _transposed(rewriter, rhs, order)
        canonical = dims._replace(
            lhs_contracting_dims=tuple(range(1, 1 + len(inner))),
            rhs_contracting_dims=tuple(map(order.index, inner)),
            lhs_ragged_dims=(0,),
            rhs_group_dims=(0,),
        )
    canonical = canonical._replace(preferred_element_type=None)
    return rewriter.emit(ragged.ragged_dot, lhs, rhs, sizes, **canonical._asdict())


def _transposed(rewriter: Rewriter, x: Instruction, permutation: Ints) -> Instruction:
    if permutation == tuple(range(len(permutation))):
        return x
    return rewriter.emit(movement.transpose, x, permutation=permutation)
