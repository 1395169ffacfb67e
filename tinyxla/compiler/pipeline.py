"""The compiler's passes, in lists: over graphs (`GRAPH`), plans (`PLAN`), schedules (`SCHEDULE`) and kernels of the
loop IR (`LOOP_IR`). `compile_program` runs all of them; a backend compiles the kernels that result.

A program is optimized from the outermost computation inwards: the passes run on the body of a loop after those on the
surrounding computation have hoisted code and pruned what the loop carries. A few passes visit nested computations, too
(inlining, LICM, control flow DCE); they record the computations that they leave unchanged. So each computation passes
through the list once, and the backend only reads the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tinyxla.compiler.analysis.regions import REGIONS
from tinyxla.compiler.analysis.scalarization import is_large, scalarize_lane
from tinyxla.compiler.fusion.cluster import plan
from tinyxla.compiler.fusion.epilogue import fuse_epilogues
from tinyxla.compiler.fusion.plan import Plan
from tinyxla.compiler.passes.algebraic_simplifier import simplify
from tinyxla.compiler.passes.all_reduce_combiner import combine_all_reduces
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
from tinyxla.compiler.rewriter import Rewriter, for_opcodes, rewrite
from tinyxla.compiler.schedule.blocks import AliasMap, Block, shape_of, walk_steps
from tinyxla.compiler.schedule.bufferization import alias_in_place, elide_update_copies, schedule_last_uses_early
from tinyxla.compiler.schedule.build import Construction, build, give_results_memory
from tinyxla.compiler.schedule.concurrent_steps import run_concurrently
from tinyxla.compiler.schedule.latency_hiding import hide_latency
from tinyxla.compiler.schedule.transpose_gemm_operands import transpose_gemm_operands
from tinyxla.errors import AttributeValueError
from tinyxla.hlo import Computation, Instruction, map_computations
from tinyxla.loopir.kernels.registry import step_for
from tinyxla.loopir.lower.emit import LoweredKernel
from tinyxla.loopir.passes.nontemporal_stores import use_nontemporal_stores
from tinyxla.loopir.passes.pipeline_rows import prefetch_next_rows
from tinyxla.loopir.passes.slp_vectorize import slp_vectorized
from tinyxla.loopir.passes.vectorize_loops import vectorized
from tinyxla.shapes import AnyShape
from tinyxla.text.op_names import with_inner
from tinyxla.tracing.config import cached_by_options, config


class Pass(NamedTuple):
    """A step of the pipeline: a pure function under a name, what it does in a sentence, and whether programs cannot be
    compiled without it. Others are left out if `config.disabled_passes` names them."""

    name: str
    apply: Callable[..., Any]
    what: str
    is_required: bool = False


@for_opcodes("lanes")
def lower_vmapped_regions(computation: Computation) -> Computation:
    """Choose the form of a vmapped region (op `lanes`): per-instance, if an instance can be scalarized; otherwise
    the batched computation, inlined."""

    def visit(rewriter: Rewriter, x: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if x.op.name != "lanes":
            return None
        if not is_large(x.attributes.to_apply):
            to_apply = _optimized_lane(x.attributes.to_apply)
            if scalarize_lane(to_apply, x.attributes.mapped) is not None:
                return rewriter.emit(x.op, *operands, **x.attributes._replace(to_apply=to_apply)._asdict())
        return rewriter.splice(inline_calls(x.attributes.in_lock_step), operands, rewriter.visit, rewriter.scope)

    return rewrite(computation, visit)


@cached_by_options(256)
def _optimized_lane(computation: Computation) -> Computation:
    """The optimized computation of one instance."""
    return optimize(computation)


GRAPH: tuple[Pass, ...] = (
    Pass("cse", eliminate_common_subexpressions, "Equal instructions become one."),
    Pass("inline-calls", inline_calls, "Calls are replaced by what they call.", is_required=True),
    Pass("vmapped-regions", lower_vmapped_regions, "A mapped loop runs per instance or as a batch.", is_required=True),
    Pass("licm", hoist_loop_invariants, "What does not change in a loop is computed before it."),
    Pass("control-flow-dce-first", control_flow_dce, "Loops carry, and branches give, what is used."),
    Pass("batch-loop-dots", batch_loop_dots, "Products of a loop that do not depend on each other become one."),
    Pass("expand", expand, "Operations without a lowering become others that have one.", is_required=True),
    Pass("inline-calls-of-expansions", inline_calls, "Calls in expansions are inlined, too.", is_required=True),
    Pass("algebraic-simplifier", simplify, "Identities of single instructions and their operands."),
    Pass("sink-transposes", sink_transposes, "Transposes move towards results, where they cancel or are free."),
    Pass("constant-folding", fold_constants, "What is known is computed."),
    Pass("all-reduce-combiner", combine_all_reduces, "Small all-reduces that are ready together become one."),
    Pass("canonicalize-convolution", canonicalize_convolutions, "One order of dimensions.", is_required=True),
    Pass("canonicalize-reduce-window", canonicalize_windows, "Windows without what lowerings lack.", is_required=True),
    Pass("canonicalize-ragged-dot", canonicalize_ragged_dots, "One order of dimensions.", is_required=True),
    Pass("canonicalize-dot", canonicalize_dots, "Products as batches of matrices.", is_required=True),
    Pass("canonicalize-sort", canonicalize_sorts, "Sorts along the last dimension.", is_required=True),
    Pass("collapse-minor-dims", collapse_minor_dims, "Dimensions that are always together become one."),
    Pass("control-flow-dce", control_flow_dce, "Once more, after simplification."),
    Pass("algebraic-simplifier-again", simplify, "Once more, after canonicalization."),
    Pass("layout-assignment-broadcasts", assign_broadcast_layouts, "The order of dimensions of pairwise broadcasts."),
    Pass("layout-assignment-gemms", assign_gemm_layouts, "The order of dimensions of a product's operands."),
    Pass(
        "transpose-gemm-operands", transpose_gemm_operands, "Operands of products as GEMMs take them.", is_required=True
    ),
    Pass("scalar-computations", prepare_scalar_computations, "What is applied element by element.", is_required=True),
)


def _plan(computation: Computation) -> Plan:
    return plan(computation, step_for)


# From a computation to its plan.
PLAN: tuple[Pass, ...] = (
    Pass("fusion", _plan, "Instructions become loop nests, kernels of single operations and calls.", is_required=True),
    Pass("epilogue-fusion", fuse_epilogues, "Nests are computed with the product that they read."),
)

# Of the kernels of a computation, and of the whole program.
SCHEDULE: tuple[Pass, ...] = (
    Pass("early-last-uses", schedule_last_uses_early, "What reads a memory for the last time runs before its writer."),
    Pass("elide-update-copies", elide_update_copies, "Updates write into their operand, where nothing else reads it."),
    Pass("alias-in-place", alias_in_place, "Results of kernels share the memory of operands that end there."),
    Pass("latency-hiding", hide_latency, "Kernels run between the start and the end of messages among processes."),
    Pass("concurrent-steps", run_concurrently, "Independent long steps of one thread run on several."),
)

# Of each kernel with the bytes of its arguments.
LOOP_IR: tuple[Pass, ...] = (
    Pass("prefetch-rows", prefetch_next_rows, "Rows are prefetched, and loaded one iteration early."),
    Pass("nontemporal-stores", use_nontemporal_stores, "Results larger than the cache are stored past it."),
)

# Of each kernel whose sizes have become parameters, by the backend that compiles it.
MACHINE: tuple[Pass, ...] = (
    Pass("vectorize-loops", vectorized, "Innermost loops are loops over vectors."),
    Pass("slp-vectorize", slp_vectorized, "Equal statements about consecutive elements become one about a vector."),
)


Check = Callable[[str, Any], None]  # of a pass's name, and of what it gave


def compile_program(
    computation: Computation,
    donated: Sequence[int],
    begin: Callable[[LoweredKernel, bool], None],
    check: Check | None = None,
) -> tuple[Block, AliasMap]:
    """The schedule of a program, with its kernels in the loop IR, and which values share memory.

    Args:
        computation: the program.
        donated: the parameters that may be overwritten.
        begin: is given each kernel as soon as it is there, and whether it is in a loop, so that a backend compiles
            while the rest is built. A few become others later, which write to memory that they read.
        check: is called after each pass, with its name and its result: a `Computation`, a `Plan`, a `Block` or, after
            "lowering" and the passes over it, a `LoweredKernel`.
    """
    aliases, kernels = AliasMap(), _Kernels(check)
    run = {x.name: x.apply for x in SCHEDULE if x.name not in config.disabled_passes}
    how = Construction(
        lambda c: _planned(c, check),
        run.get("early-last-uses"),
        run.get("elide-update-copies"),
        lambda work, is_in_loop: begin(work if check else kernels.optimized(work), is_in_loop),
    )
    block = build(optimize(computation, check), aliases, how)
    if check:
        check("early-last-uses", block)
    aliases.donated.update(block.computation.parameters[k] for k in donated)
    if how.elide:
        how.elide(block, aliases, ())
    if "alias-in-place" in run:
        run["alias-in-place"](block, aliases)
    give_results_memory(block, aliases)
    if check:
        check("alias-in-place", block)
    if "latency-hiding" in run:
        run["latency-hiding"](block, aliases)
    if check:
        check("latency-hiding", block)
    if "concurrent-steps" in run:
        run["concurrent-steps"](block, aliases)
    if check:
        check("concurrent-steps", block)
    for step, *_ in walk_steps(block):
        if isinstance(step.work, LoweredKernel):
            step.work = kernels.optimized(step.work)
            begin(step.work, False)
    return block, aliases


class _Kernels:
    """The kernels of a program after the passes over the loop IR, each of which runs once."""

    def __init__(self, check: Check | None) -> None:
        self._check = check
        self._known: dict[int, tuple[LoweredKernel, LoweredKernel]] = {}  # by identity

    def optimized(self, lowered: LoweredKernel) -> LoweredKernel:
        if id(lowered) not in self._known:
            self._known[id(lowered)] = lowered, self._run_passes(lowered)
        return self._known[id(lowered)][1]

    def _run_passes(self, work: LoweredKernel) -> LoweredKernel:
        if self._check:
            self._check("lowering", work)
        sizes = [x.size * x.dtype.itemsize for x in map(shape_of, work.arguments)]
        for x in LOOP_IR:
            if x.name not in config.disabled_passes:
                work = x.apply(work, sizes)
                if self._check:
                    self._check(x.name, work)
        return work


def _planned(computation: Computation, check: Check | None) -> Plan:
    state: Any = computation
    for x in PLAN:
        if x.name not in config.disabled_passes:
            state = x.apply(state)
            if check:
                check(x.name, state)
    return state


# Computations and what the passes made of them, by their number of instructions and the shape of their result.
_Optimized = dict[tuple[int, AnyShape], list[tuple[Computation, Computation]]]


def optimize(computation: Computation, check: Check | None = None) -> Computation:
    """Run the graph passes on a computation, then on the computations of its loops and branches, on each once;
    `check(name, computation)` is called after each pass on the first."""
    return _optimized(_with_origins(computation, {}), {}, check)


def _with_origins(computation: Computation, copies: dict[int, Computation], scope: str = "") -> Computation:
    """A copy whose instructions, also those in loops and branches, record the instructions of the program that they
    stand for, and their scopes those around loops and branches."""
    if id(computation) not in copies:
        new: dict[Instruction, Instruction] = {}
        for x in computation.instructions:
            attributes, source = x.attributes, x.source.inside(scope) if x.source else None
            if x.op.name in (*REGIONS, "call"):
                around = source.scope if source else scope  # paths matter inside of scopes alone
                attributes = with_inner(
                    x, around, lambda inner, path, around=around: _with_origins(inner, copies, path if around else "")
                )
            operands = [new[o] for o in x.operands]
            new[x] = Instruction(x.op, operands, attributes, x.shape, source, origin=x.origin or x)
        parameters = [new[p] for p in computation.parameters]
        copies[id(computation)] = Computation(computation.name, parameters, list(new.values()), new[computation.root])
    return copies[id(computation)]


def _optimized(computation: Computation, known: _Optimized, check: Check | None = None) -> Computation:
    """A computation after the passes, with those of its loops and branches. Several of these may share one, or have
    equal ones of the same lines, such as the two phases of a sampler."""
    alike = known.setdefault((len(computation.instructions), computation.root.shape), [])
    for other, result in alike:
        if other is computation or (other == computation and _have_same_lines(other, computation, set())):
            return result
    result = _with_regions(_run_passes(computation, check), lambda inner: _optimized(inner, known))
    alike.append((computation, result))
    return result


def _have_same_lines(x: Computation, y: Computation, compared: set[tuple[int, int]]) -> bool:
    """Whether equal computations were made by the same lines of the program, those of their loops and branches, too."""
    if x is y or (id(x), id(y)) in compared:
        return True
    compared.add((id(x), id(y)))
    return all(
        a.source == b.source
        and all(_have_same_lines(*pair, compared) for pair in zip(a.computations(), b.computations(), strict=True))
        for a, b in zip(x.instructions, y.instructions, strict=True)
    )


def _run_passes(computation: Computation, check: Check | None) -> Computation:
    disabled = _disabled()
    for name, apply, *_ in GRAPH:
        if name in disabled:
            continue
        computation = apply(computation)
        if check:
            check(name, computation)
    return computation


def _disabled() -> tuple[str, ...]:
    """The passes that are switched off, which must be optional ones."""
    names = config.disabled_passes
    optional = [x.name for x in (*GRAPH, *PLAN, *SCHEDULE, *LOOP_IR, *MACHINE) if not x.is_required] if names else ()
    for name in names:
        if name not in optional:
            raise AttributeValueError(
                f"config.disabled_passes: {name!r} is no pass that can be left out; these are {', '.join(optional)}."
            )
    return names


def _with_regions(computation: Computation, change: Callable[[Computation], Computation]) -> Computation:
    """The computation with the computations of its loops and branches changed."""
    if computation.opcodes.isdisjoint(REGIONS):
        return computation

    def visit(rewriter: Rewriter, x: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if x.op.name not in REGIONS:
            return None
        return rewriter.emit(x.op, *operands, **map_computations(x.attributes._asdict(), change))

    return rewrite(computation, visit)
