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

from tinyxla.backends.numba import (
    convolution,
    element_loops,
    firsts,
    fourier,
    lapack,
    panels,
    ragged,
    row_products,
    scatter,
    small_arrays,
    small_lanes,
    sorting,
    windows,
)
from tinyxla.backends.numba.lowering import LoweredKernel, Users
from tinyxla.compiler.fusion import Plan
from tinyxla.hlo import Instruction


def _nothing(x: Instruction) -> dict[int, int]:
    return {}


class OwnNest(NamedTuple):
    """How an op is lowered; `otherwise` is how what this does not support is."""

    supports: Callable[[Instruction], bool]
    lower: Callable[[Instruction, Plan, Users], list[LoweredKernel]]
    updates: Callable[[Instruction], dict[int, int]] = _nothing
    otherwise: OwnNest | None = None


_OF_SMALL_ARRAYS = OwnNest(small_arrays.supports, small_arrays.lower, small_arrays.updates)
_OF_ELEMENTS = OwnNest(element_loops.supports, element_loops.lower, element_loops.updates, otherwise=_OF_SMALL_ARRAYS)

OWN_NESTS: dict[str, OwnNest] = {
    "cholesky": OwnNest(lapack.supports, lapack.cholesky, lambda x: {0: 0}),
    "Eig": OwnNest(lapack.supports, lapack.eig),
    "Eigh": OwnNest(lapack.supports, lapack.eigh),
    "LuDecomposition": OwnNest(lapack.supports, lapack.lu),
    "LuPivotsToPermutation": OwnNest(lapack.supports_permutation, lapack.permutation),
    "Qr": OwnNest(lapack.supports, lapack.qr),
    "Svd": OwnNest(lapack.supports, lapack.svd),
    "triangular-solve": OwnNest(lapack.supports, lapack.triangular_solve, lambda x: {0: 1}),
    "conditional": _OF_SMALL_ARRAYS,
    "convolution": OwnNest(convolution.supports, convolution.lower),
    "dot": OwnNest(row_products.supports, row_products.lower, otherwise=OwnNest(panels.supports, panels.lower)),
    "dynamic-update-slice": OwnNest(scatter.supports_update, scatter.lower_update, scatter.begins_as_operand),
    "lanes": OwnNest(small_arrays.supports, small_lanes.lower, small_arrays.updates),
    "opt-barrier": OwnNest(lambda x: True, lambda x, plan, users: [], lambda x: {k: k for k in range(len(x.operands))}),
    "fft": OwnNest(fourier.supports, fourier.lower),
    "ragged-dot": OwnNest(ragged.supports, ragged.lower),
    "reduce-window": OwnNest(windows.supports_reduce, windows.lower_reduce),
    "select-and-scatter": OwnNest(windows.supports_select, windows.lower_select),
    "scatter": OwnNest(scatter.supports_scatter, scatter.lower_scatter, scatter.begins_as_operand),
    "sort": OwnNest(sorting.supports, sorting.lower),
    "topk": OwnNest(firsts.supports, firsts.lower),
    "while": _OF_ELEMENTS,  # as vectors, which are compiled sooner than as many scalars
}


def own_nest(x: Instruction) -> OwnNest | None:
    """How an instruction is lowered by itself, or None if it is no nest."""
    nest = OWN_NESTS.get(x.op.name)
    while nest is not None and not nest.supports(x):
        nest = nest.otherwise
    return nest
