"""The passes that simplify a graph before it is fused: pure functions from computation to computation, in one list.

A program is optimized from the outermost computation inwards: the passes run on the body of a loop when those on the
computation around it have moved out of it what they can, and have decided what it carries. A few passes visit nested
computations, too (calls, invariant code, dead values): they remember which of them they leave as they are. So each
computation goes through the list once, and the backend only reads what it gets.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from tinyxla.compiler.analysis.regions import REGIONS
from tinyxla.compiler.analysis.scalarization import is_large, scalarize_lane
from tinyxla.compiler.passes.algebraic_simplifier import simplify
from tinyxla.compiler.passes.batch_loop_dots import compute_together
from tinyxla.compiler.passes.canonicalize.convolution import canonicalize_convolutions
from tinyxla.compiler.passes.canonicalize.dot import canonicalize_dots
from tinyxla.compiler.passes.canonicalize.ragged_dot import canonicalize_ragged_dots
from tinyxla.compiler.passes.canonicalize.reduce_window import canonicalize_windows
from tinyxla.compiler.passes.canonicalize.sort import canonicalize_sorts
from tinyxla.compiler.passes.collapse_minor_dims import join_short_rows
from tinyxla.compiler.passes.constant_fold import fold_constants
from tinyxla.compiler.passes.control_flow_dce import prune
from tinyxla.compiler.passes.cse import share
from tinyxla.compiler.passes.expand import expand
from tinyxla.compiler.passes.inline_calls import inline_calls
from tinyxla.compiler.passes.layout_assignment import assign_broadcast_layouts, assign_gemm_layouts
from tinyxla.compiler.passes.licm import hoist
from tinyxla.compiler.passes.scalar_computations import prepare_computations
from tinyxla.compiler.passes.sink_transposes import sink_transposes
from tinyxla.compiler.rewriter import Pass, Rewriter, of_opcodes, rewrite
from tinyxla.hlo import Computation, Instruction
from tinyxla.tracing.config import config
from tinyxla.transforms.computations import with_computations


@of_opcodes("lanes")
def join_lanes(computation: Computation) -> Computation:
    """Optimize what lanes compute one by one; let those that are not small computations run in lock step."""

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
    """`residual_bytes` decides how the way back through a loop is written out."""
    return optimize(computation)


PASSES: list[tuple[str, Pass]] = [
    ("share", share),
    ("inline-calls", inline_calls),
    ("join-lanes", join_lanes),
    ("hoist", hoist),
    ("prune-first", prune),
    ("compute-together", compute_together),
    ("expand", expand),
    ("inline-calls-of-expansions", inline_calls),
    ("simplify", simplify),
    ("sink-transposes", sink_transposes),
    ("fold-constants", fold_constants),
    ("canonicalize-convolutions", canonicalize_convolutions),
    ("canonicalize-windows", canonicalize_windows),
    ("canonicalize-ragged-dots", canonicalize_ragged_dots),
    ("canonicalize-dots", canonicalize_dots),
    ("canonicalize-sorts", canonicalize_sorts),
    ("join-short-rows", join_short_rows),
    ("prune", prune),
    ("simplify-again", simplify),
    ("assign-broadcast-layouts", assign_broadcast_layouts),
    ("assign-gemm-layouts", assign_gemm_layouts),
    ("prepare-computations", prepare_computations),
]


def optimize(computation: Computation, check: Callable[[str, Computation], None] | None = None) -> Computation:
    """Run all passes on a computation, and then on those of its loops and branches, on each of these once;
    `check(name, computation)` is called after each pass on the first."""
    return _optimized(_with_origins(computation, {}), {}, check)


def _with_origins(computation: Computation, known: dict[int, Computation]) -> Computation:
    """A copy whose instructions, inside loops and branches too, say which ones of the program they stand for."""
    if id(computation) not in known:
        new: dict[Instruction, Instruction] = {}
        for x in computation.instructions:
            attributes = x.attributes
            if x.op.name in (*REGIONS, "call"):
                attributes = attributes._replace(**with_computations(x, lambda inner: _with_origins(inner, known)))
            operands = [new[o] for o in x.operands]
            new[x] = Instruction(x.op, operands, attributes, x.shape, x.source, origin=x.origin or x)
        parameters = [new[p] for p in computation.parameters]
        known[id(computation)] = Computation(computation.name, parameters, list(new.values()), new[computation.root])
    return known[id(computation)]


def _optimized(
    computation: Computation,
    known: dict[int, tuple[Computation, Computation]],
    check: Callable[[str, Computation], None] | None = None,
) -> Computation:
    """`known` has what was made of nested computations, by identity: several loops or branches may share one."""
    found = known.get(id(computation))
    if found is None:
        made = _with_regions(_run_passes(computation, check), lambda inner: _optimized(inner, known))
        found = known[id(computation)] = (computation, made)
    return found[1]


def _run_passes(computation: Computation, check: Callable[[str, Computation], None] | None) -> Computation:
    for name, apply in PASSES:
        computation = apply(computation)
        if check:
            check(name, computation)
    return computation


def _with_regions(computation: Computation, change: Pass) -> Computation:
    """With other computations of its loops and branches."""
    if computation.opcodes.isdisjoint(REGIONS):
        return computation

    def visit(rewriter: Rewriter, x: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if x.op.name not in REGIONS:
            return None
        return rewriter.emit(x.op, *operands, **with_computations(x, change))

    return rewrite(computation, visit)
