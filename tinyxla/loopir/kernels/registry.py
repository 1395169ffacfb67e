"""Registry of the operations with kernels of their own, which are not fused with others: their algorithm fixes the
order of loops.

A lowering returns the kernels of one instruction in order. It reads operands from memory (`Lowering.value`), applies
computations (`Lowering.apply`) and stores what `results_of` lists; `Temporary` is memory between its kernels. An
operation without an entry, or one that its entry does not support, is evaluated by the host.

An operation that changes a few elements of an operand lists it in `aliased_operands`: result to operand. The kernel
finds that operand's elements in the result's memory, copied or in place, writes the changed elements only and does not
read the operand. A barrier writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tinyxla.compiler.fusion.plan import Plan
from tinyxla.hlo import Instruction
from tinyxla.loopir.kernels import convolution, native_call, scatter
from tinyxla.loopir.kernels.control_flow import batched_while, pointwise_while, scalarized
from tinyxla.loopir.kernels.fft import plan
from tinyxla.loopir.kernels.gemm import dot_product, grouped, packed
from tinyxla.loopir.kernels.linalg import lapack
from tinyxla.loopir.kernels.sort import merge_sort, top_k
from tinyxla.loopir.kernels.windows import reduce_window
from tinyxla.loopir.lower.emit import LoweredKernel, Users


def _no_aliases(x: Instruction) -> dict[int, int]:
    return {}


class OpLowering(NamedTuple):
    """The lowering of an operation; `fallback` is used for instructions that it does not support."""

    supports: Callable[[Instruction], bool]
    lower: Callable[[Instruction, Plan, Users], list[LoweredKernel]]
    aliased_operands: Callable[[Instruction], dict[int, int]] = _no_aliases
    fallback: OpLowering | None = None


_SCALARIZED = OpLowering(scalarized.supports, scalarized.lower, scalarized.aliased_operands)
_WHILE = OpLowering(
    pointwise_while.supports, pointwise_while.lower, pointwise_while.aliased_operands, fallback=_SCALARIZED
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
    "conditional": _SCALARIZED,
    "convolution": OpLowering(convolution.supports, convolution.lower),
    "custom-call": OpLowering(native_call.supports, native_call.lower),
    "dot": OpLowering(dot_product.supports, dot_product.lower, fallback=OpLowering(packed.supports, packed.lower)),
    "dynamic-update-slice": OpLowering(scatter.supports_update, scatter.lower_update, scatter.aliased_operands),
    "lanes": OpLowering(scalarized.supports, batched_while.lower, scalarized.aliased_operands),
    "opt-barrier": OpLowering(
        lambda x: True, lambda x, plan, users: [], lambda x: {k: k for k in range(len(x.operands))}
    ),
    "fft": OpLowering(plan.supports, plan.lower),
    "ragged-dot": OpLowering(grouped.supports, grouped.lower),
    "reduce-window": OpLowering(reduce_window.supports_reduce, reduce_window.lower_reduce),
    "select-and-scatter": OpLowering(reduce_window.supports_select, reduce_window.lower_select),
    "scatter": OpLowering(scatter.supports_scatter, scatter.lower_scatter, scatter.aliased_operands),
    "sort": OpLowering(merge_sort.supports, merge_sort.lower),
    "topk": OpLowering(top_k.supports, top_k.lower),
    "while": _WHILE,  # vectorized, which compiles faster than the same number of scalars
}


def op_lowering(x: Instruction) -> OpLowering | None:
    """The lowering of an instruction; None if it has no kernels of its own."""
    nest = OP_LOWERINGS.get(x.op.name)
    while nest is not None and not nest.supports(x):
        nest = nest.fallback
    return nest
