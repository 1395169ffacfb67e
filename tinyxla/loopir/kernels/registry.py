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
from dataclasses import dataclass

from tinyxla.compiler.fusion.plan import BlasCall, Collective, HostCall, LibraryKernel, Loop, Plan, SingleOp, Switch
from tinyxla.hlo import Instruction
from tinyxla.loopir.kernels import convolution, native_call, scatter
from tinyxla.loopir.kernels.control_flow import choose_form
from tinyxla.loopir.kernels.fft import plan
from tinyxla.loopir.kernels.gemm import choose_kernel, grouped
from tinyxla.loopir.kernels.linalg import lapack
from tinyxla.loopir.kernels.sort import choose_algorithm
from tinyxla.loopir.kernels.windows import reduce_window
from tinyxla.loopir.lower.emit import LoweredKernel, Users
from tinyxla.ops.distributed.process_collectives import is_message
from tinyxla.ops.host.callback import Exchange
from tinyxla.ops.products import contraction


def _no_aliases(x: Instruction) -> dict[int, int]:
    return {}


@dataclass(frozen=True)
class OpLowering:
    """The lowering of an operation; `fallback` is used for instructions that it does not support."""

    supports: Callable[[Instruction], bool]
    lower: Callable[[Instruction, Plan, Users], list[LoweredKernel]]
    aliased_operands: Callable[[Instruction], dict[int, int]] = _no_aliases
    fallback: OpLowering | None = None


# Memory as it is: no kernel.
_ALLOCATION = OpLowering(lambda x: x.attributes.custom_call_target == "AllocateBuffer", lambda x, plan, users: [])
_REGION = OpLowering(choose_form.supports, choose_form.lower, choose_form.aliased_operands)

OP_LOWERINGS: dict[str, OpLowering] = {
    "cholesky": OpLowering(lapack.supports, lapack.cholesky, lambda x: {0: 0}),
    "Eig": OpLowering(lapack.supports, lapack.eig),
    "Eigh": OpLowering(lapack.supports, lapack.eigh),
    "LuDecomposition": OpLowering(lapack.supports, lapack.lu),
    "LuPivotsToPermutation": OpLowering(lapack.supports_permutation, lapack.permutation),
    "Qr": OpLowering(lapack.supports, lapack.qr),
    "Svd": OpLowering(lapack.supports, lapack.svd),
    "triangular-solve": OpLowering(lapack.supports, lapack.triangular_solve, lambda x: {0: 1}),
    "conditional": _REGION,
    "convolution": OpLowering(convolution.supports, convolution.lower),
    "custom-call": OpLowering(native_call.supports, native_call.lower, fallback=_ALLOCATION),
    "dot": OpLowering(choose_kernel.supports, choose_kernel.lower),
    "dynamic-update-slice": OpLowering(scatter.supports_update, scatter.lower_update, scatter.aliased_operands),
    "lanes": _REGION,
    "opt-barrier": OpLowering(
        lambda x: True, lambda x, plan, users: [], lambda x: {k: k for k in range(len(x.operands))}
    ),
    "fft": OpLowering(plan.supports, plan.lower),
    "ragged-dot": OpLowering(grouped.supports, grouped.lower),
    "reduce-window": OpLowering(reduce_window.supports_reduce, reduce_window.lower_reduce),
    "select-and-scatter": OpLowering(reduce_window.supports_select, reduce_window.lower_select),
    "scatter": OpLowering(scatter.supports_scatter, scatter.lower_scatter, scatter.aliased_operands),
    "sort": OpLowering(choose_algorithm.supports_sort, choose_algorithm.lower_sort),
    "topk": OpLowering(choose_algorithm.supports_top_k, choose_algorithm.lower_top_k),
    "while": _REGION,
}


_REGIONS: dict[str, Callable[[Instruction], SingleOp]] = {"while": Loop, "conditional": Switch}


def step_for(x: Instruction) -> SingleOp:
    """What becomes of an instruction that no nest computes: its own kernels, if a lowering supports it."""
    lowering = OP_LOWERINGS.get(x.op.name)
    while lowering is not None and not lowering.supports(x):
        lowering = lowering.fallback
    if lowering is not None:
        return LibraryKernel(x, lowering)
    if x.op.name in _REGIONS:
        return _REGIONS[x.op.name](x)
    if x.op is contraction.dot and x.array_shape.element_type.is_inexact:
        return BlasCall(x)
    is_exchange = is_message(x) or isinstance(getattr(x.attributes, "function", None), Exchange)
    return Collective(x) if is_exchange else HostCall(x)
