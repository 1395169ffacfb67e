"""The graph pass pipeline: pure functions from computation to computation, in one list.

A program is optimized from the outermost computation inwards: the passes run on the body of a loop after those on the
surrounding computation have hoisted code and pruned what the loop carries. A few passes visit nested computations, too
(inlining, LICM, control flow DCE); they record the computations that they leave unchanged. So each computation passes
through the list once, and the backend only reads the result.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from tinyxla.compiler.analysis.regions import REGIONS
from tinyxla.compiler.analysis.scalarization import is_large, scalarize_lane
from tinyxla.compiler.passes.algebraic_simplifier import simplify
from tinyxla.compiler.passes.batch_loop_dots import batch_loop_dots
from tinyxla.compiler.passes.canonicalize.convolution import canonicalize_convolutions
from tinyxla.compiler.passes.canonicalize.dot import canonicalize_dots
from tinyxla.compiler.passes.canonicalize.ragged_dot import canonicalize_ragged_dots
from tinyxla.compiler.passes.canonicalize.reduce_window import canonicalize_windows
from tinyxla.compiler.passes.canonicalize.sort import canonicalize_sorts
from tinyxla.compiler.passes.collapse_minor_dims import collapse_minor_dims
from tinyxla.compiler.passes.constant_fold import fold_constants
from tinyxla.compiler.passes.control_flow_dce import control_flow_dce
from tinyxla.compiler.passes.cse import eliminate_common_subexpressions
from tinyxla.compiler.passes.expand import expand
from tinyxla.compiler.passes.inline_calls import inline_calls
from tinyxla.compiler.passes.layout_assignment import assign_broadcast_layouts, assign_gemm_layouts
from tinyxla.compiler.passes.licm import hoist_loop_invariants
from tinyxla.compiler.passes.scalar_computations import prepare_scalar_computations
from tinyxla.compiler.passes.sink_transposes import sink_transposes
from tinyxla.compiler.rewriter import Pass, Rewriter, for_opcodes, rewrite
from tinyxla.hlo import Computation, Instruction
from tinyxla.tracing.config import config
from tinyxla.transforms.computations import with_computations


@for_opcodes("lanes")
def lower_vmapped_regions(computation: Computation) -> Computation:
    """Choose the form of a vmapped region (op `lanes`): per-instance, if an instance can be scalarized; otherwise
    the batched computation, inlined."""

    def visit(rewriter: Rewriter, x: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if x.op.name != "lanes":
            return None
        if not is_large(x.attributes.to_apply):
            to_apply = _optimized_lane(x.attributes.to_apply, config.while_residual_bytes)
            if scalarize_lane(to_apply, x.attributes.mapped) is not None:
                return rewriter.emit(x.op, *operands, **x.attributes._replace(to_apply=to_apply)._asdict())
        return rewriter.splice(inline_calls(x.attributes.in_lock_step), operands, visit)

    return rewrite(computation, visit)


@lru_cache(256)
def _optimized_lane(computation: Computation, residual_bytes: int) -> Computation:
    """The optimized computation of one instance; `residual_bytes` is a key of the cache, since it decides how
    derivatives of loops are expanded."""
    return optimize(computation)


PASSES: list[tuple[str, Pass]] = [
    ("cse", eliminate_common_subexpressions),
    ("inline-calls", inline_calls),
    ("vmapped-regions", lower_vmapped_regions),
    ("licm", hoist_loop_invariants),
    ("control-flow-dce-first", control_flow_dce),
    ("batch-loop-dots", batch_loop_dots),
    ("expand", expand),
    ("inline-calls-of-expansions", inline_calls),
    ("algebraic-simplifier", simplify),
    ("sink-transposes", sink_transposes),
    ("constant-folding", fold_constants),
    ("canonicalize-convolution", canonicalize_convolutions),
    ("canonicalize-reduce-window", canonicalize_windows),
    ("canonicalize-ragged-dot", canonicalize_ragged_dots),
    ("canonicalize-dot", canonicalize_dots),
    ("canonicalize-sort", canonicalize_sorts),
    ("collapse-minor-dims", collapse_minor_dims),
    ("control-flow-dce", control_flow_dce),
    ("algebraic-simplifier-again", simplify),
    ("layout-assignment-broadcasts", assign_broadcast_layouts),
    ("layout-assignment-gemms", assign_gemm_layouts),
    ("scalar-computations", prepare_scalar_computations),
]


def optimize(computation: Computation, check: Callable[[str, Computation], None] | None = None) -> Computation:
    """Run all passes on a computation, then on the computations of its loops and branches, on each once;
    `check(name, computation)` is called after each pass on the first."""
    return _optimized(_with_origins(computation, {}), {}, check)


def _with_origins(computation: Computation, copies: dict[int, Computation]) -> Computation:
    """A copy whose instructions, also those in loops and branches, record the instructions of the program that they
    stand for."""
    if id(computation) not in copies:
        new: dict[Instruction, Instruction] = {}
        for x in computation.instructions:
            attributes = x.attributes
            if x.op.name in (*REGIONS, "call"):
                attributes = attributes._replace(**with_computations(x, lambda inner: _with_origins(inner, copies)))
            operands = [new[o] for o in x.operands]
            new[x] = Instruction(x.op, operands, attributes, x.shape, x.source, origin=x.origin or x)
        parameters = [new[p] for p in computation.parameters]
        copies[id(computation)] = Computation(computation.name, parameters, list(new.values()), new[computation.root])
    return copies[id(computation)]


def _optimized(
    computation: Computation,
    optimized: dict[int, tuple[Computation, Computation]],
    check: Callable[[str, Computation], None] | None = None,
) -> Computation:
    """`optimized` maps nested computations, by identity, to their results: several loops or branches may share one."""
    entry = optimized.get(id(computation))
    if entry is None:
        result = _with_regions(_run_passes(computation, check), lambda inner: _optimized(inner, optimized))
        entry = optimized[id(computation)] = (computation, result)
    return entry[1]


def _run_passes(computation: Computation, check: Callable[[str, Computation], None] | None) -> Computation:
    for name, apply in PASSES:
        computation = apply(computation)
        if check:
            check(name, computation)
    return computation


def _with_regions(computation: Computation, change: Pass) -> Computation:
    """The computation with the computations of its loops and branches changed."""
    if computation.opcodes.isdisjoint(REGIONS):
        return computation

    def visit(rewriter: Rewriter, x: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if x.op.name not in REGIONS:
            return None
        return rewriter.emit(x.op, *operands, **with_computations(x, change))

    return rewrite(computation, visit)
