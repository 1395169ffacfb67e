"""Ops that are loop nests of their own, which nothing fuses with: where the order of loops is the op's, as in a sort.

A lowering gives the kernels of one instruction, in order. It reads its operands from memory (`Lowering.value`), applies
computations (`Lowering.apply`), and stores what `results_of` lists; temporaries between its kernels are `Partial`s. An
op without an entry, or one that the entry does not support, is evaluated by the host.

An op that changes a few elements of an operand says so by `updates`: for the number of a result, the number of the
operand that it begins as. The nest finds that operand's elements in the result's memory already, whether they were
copied there or it is the operand's own memory that nobody else needs; it writes the rest, and does not read the
operand. A barrier writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tinyxla.compiler.fusion.plan import Plan
from tinyxla.hlo import Instruction
from tinyxla.loopir.kernels import convolution, scatter
from tinyxla.loopir.kernels.control_flow import batched_while, pointwise_while, scalarized
from tinyxla.loopir.kernels.fft import plan
from tinyxla.loopir.kernels.gemm import dot_product, grouped, packed
from tinyxla.loopir.kernels.linalg import lapack
from tinyxla.loopir.kernels.sort import merge_sort, top_k
from tinyxla.loopir.kernels.windows import reduce_window
from tinyxla.loopir.lower.emit import LoweredKernel, Users


def _nothing(x: Instruction) -> dict[int, int]:
    return {}


class OpLowering(NamedTuple):
    """How an op is lowered; `otherwise` is how what this does not support is."""

    supports: Callable[[Instruction], bool]
    lower: Callable[[Instruction, Plan, Users], list[LoweredKernel]]
    updates: Callable[[Instruction], dict[int, int]] = _nothing
    otherwise: OpLowering | None = None


_OF_SMALL_ARRAYS = OpLowering(scalarized.supports, scalarized.lower, scalarized.updates)
_OF_ELEMENTS = OpLowering(
    pointwise_while.supports, pointwise_while.lower, pointwise_while.updates, otherwise=_OF_SMALL_ARRAYS
)

OP_LOWERINGS: dict[str, OpLowering] = {
    "cholesky": OpLowering(lapack.supports, lapack.cholesky, lambda x: {0: 0}),
    "Eig": OpLowering(lapack.supports, lapack.eig),
    "Eigh": OpLowering(lapack.supports, lapack.eigh),
    "LuDecomposition": OpLowering(lapack.supports, lapack.lu),
    "LuPivotsToPermutation": OpLowering(lapack.supports_permutation, lapack.permutation),
    "Qr": OpLowering(lapack.supports, lapack.qr),
    "Svd": OpLowering(lapack.supports, lapack.svd),
    "triangular-solve": OpLowering(lapack.supports, lapack.triangular_solve, lambda x: {0: 1}),
    "conditional": _OF_SMALL_ARRAYS,
    "convolution": OpLowering(convolution.supports, convolution.lower),
    "dot": OpLowering(dot_product.supports, dot_product.lower, otherwise=OpLowering(packed.supports, packed.lower)),
    "dynamic-update-slice": OpLowering(scatter.supports_update, scatter.lower_update, scatter.begins_as_operand),
    "lanes": OpLowering(scalarized.supports, batched_while.lower, scalarized.updates),
    "opt-barrier": OpLowering(
        lambda x: True, lambda x, plan, users: [], lambda x: {k: k for k in range(len(x.operands))}
    ),
    "fft": OpLowering(plan.supports, plan.lower),
    "ragged-dot": OpLowering(grouped.supports, grouped.lower),
    "reduce-window": OpLowering(reduce_window.supports_reduce, reduce_window.lower_reduce),
    "select-and-scatter": OpLowering(reduce_window.supports_select, reduce_window.lower_select),
    "scatter": OpLowering(scatter.supports_scatter, scatter.lower_scatter, scatter.begins_as_operand),
    "sort": OpLowering(merge_sort.supports, merge_sort.lower),
    "topk": OpLowering(top_k.supports, top_k.lower),
    "while": _OF_ELEMENTS,  # as vectors, which are compiled sooner than as many scalars
}


def op_lowering(x: Instruction) -> OpLowering | None:
    """How an instruction is lowered by itself, or None if it is no nest."""
    nest = OP_LOWERINGS.get(x.op.name)
    while nest is not None and not nest.supports(x):
        nest = nest.otherwise
    return nest
