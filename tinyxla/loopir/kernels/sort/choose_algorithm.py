"""Choice of the sort algorithm: one for each `SortProblem`.

| algorithm | order | lines |
|---|---|---|
| threshold selection | plain | contiguous, of which the first few ranks are read |
| sorting network by keys | plain | many short ones, along any dimension |
| sorting network by comparator | any | many that are shorter still |
| radix sort | plain | contiguous |
| merge sort | any | any |
"""

from __future__ import annotations

from tinyxla.compiler.analysis.fusibility import is_native_type, is_scalar_computation
from tinyxla.compiler.costs import CACHED_ELEMENTS
from tinyxla.compiler.fusion.plan import Plan
from tinyxla.hlo import Instruction
from tinyxla.loopir.kernels.sort import merge_sort, radix_sort, sorting_network, threshold_selection
from tinyxla.loopir.kernels.sort.problem import BLOCK, REGISTER_ELEMENTS, SortProblem, sort_problem, top_k_problem
from tinyxla.loopir.lower.emit import LoweredKernel, Users

SHORT_ELEMENTS = REGISTER_ELEMENTS * 4  # of lines that odd-even transposition sorts


def supports_sort(x: Instruction) -> bool:
    """Whether the comparator can be part of a loop."""
    return is_scalar_computation(x.attributes.to_apply)


def lower_sort(x: Instruction, plan: Plan, users: Users) -> list[LoweredKernel]:
    """The kernels of a sort."""
    return _kernels(sort_problem(x, plan, users))


def supports_top_k(x: Instruction) -> bool:
    """Whether the element type is a native one."""
    return is_native_type(x.operands[0].array_shape)


def lower_top_k(x: Instruction, plan: Plan, users: Users) -> list[LoweredKernel]:
    """The kernels of a top-k."""
    return _kernels(top_k_problem(x, plan, users))


def _kernels(sort: SortProblem) -> list[LoweredKernel]:
    """The kernels of the algorithm that fits the order, the lengths of lines, and the ranks that are read."""
    if sort.is_empty:
        return []
    is_network = sorting_network.supports(sort)
    is_batch = sort.comparator is not None and sort.lines >= BLOCK
    if _selects_first(sort, is_network):
        return threshold_selection.kernels(sort)
    if is_network and not (is_batch and 2 * sort.length <= REGISTER_ELEMENTS):  # keys do not pay for few elements
        return sorting_network.kernels(sort)
    if is_batch and 2 <= sort.length <= SHORT_ELEMENTS:
        return sorting_network.transposition_kernels(sort)
    # The radix sort, compiled once, is as fast for few elements as code for their number.
    is_radix = sort.length > REGISTER_ELEMENTS or sort.length * sort.lines <= SHORT_ELEMENTS
    if sort.keys is not None and sort.inner == 1 and (is_radix or sort.comparator is None):
        return radix_sort.kernels(sort)
    return merge_sort.kernels(sort)


def _selects_first(sort: SortProblem, is_network: bool) -> bool:
    """Whether threshold selection is cheaper than sorting the lines."""
    k = sort.keep.stop
    if sort.keys is None or sort.inner > 1 or 2 * k > CACHED_ELEMENTS:
        return False
    if is_network:  # which sorts keys alone in half the time
        return 32 * k * (2 if len(sort.sources) == 1 else 1) <= sort.length
    sorts_candidates = k > threshold_selection.MAX_SELECTED
    return max(2 * threshold_selection.group_count(k), sorts_candidates * CACHED_ELEMENTS) <= sort.length
