"""The passes that simplify a graph before it is fused: pure functions from computation to computation, in one list.

A program is optimized from the outermost computation inwards: the passes run on the body of a loop when those on the
computation around it have moved out of it what they can, and have decided what it carries. A few passes visit nested
computations, too (calls, invariant code, dead values): they remember which of them they leave as they are. So each
computation goes through the list once, and the backend only reads what it gets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import Any

import numpy as np

from tinyxla.compiler.convolutions import canonicalize_convolutions
from tinyxla.compiler.dots import as_multiplication, canonicalize_dots, converted
from tinyxla.compiler.invariants import hoist
from tinyxla.compiler.meetings import turn_what_meets
from tinyxla.compiler.ragged_dots import canonicalize_ragged_dots
from tinyxla.compiler.rewriting import Pass, Rewriter, Visit, is_unshared, of_opcodes, rewrite, to_fixed_point
from tinyxla.compiler.rows import compute_together
from tinyxla.compiler.short_rows import join_short_rows
from tinyxla.compiler.simplification import scalar_value, simplify
from tinyxla.compiler.small import is_large, lane_of
from tinyxla.compiler.sorts import canonicalize_sorts
from tinyxla.compiler.structured import prune
from tinyxla.compiler.transposes import sink_transposes
from tinyxla.compiler.turned_factors import turn_factors
from tinyxla.compiler.windows import canonicalize_windows
from tinyxla.hlo import Computation, Instruction, Literal
from tinyxla.ops import Op, calls, contraction, elementwise, movement, ops
from tinyxla.ops.arithmetic import evaluator
from tinyxla.shapes import AnyShape, Shape, TupleShape
from tinyxla.text.hlo_text import OPCODES
from tinyxla.tracing.core import trace
from tinyxla.tracing.options import config
from tinyxla.transforms.computations import with_computations

REGIONS = ("while", "conditional")  # ops whose computations are programs of their own


@cache
def _expandable() -> frozenset[str]:
    """The ops that are made of others; element-wise ones have native code."""
    return frozenset(name for name, op in ops.items() if op.expand is not None and name not in elementwise.NAMES)


def expand(computation: Computation) -> Computation:
    """Put what ops are made of in the place of those that say it."""
    if computation.opcodes.isdisjoint(_expandable()):
        return computation

    def visit(rewriter: Rewriter, x: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if x.op.name not in _expandable():
            return None
        return _expanded(rewriter, x, operands, visit)

    return rewrite(computation, visit)


def write_out(computation: Computation) -> Computation:
    """Put XLA's operations in the place of those that only this library has, inside loops and branches too: for a text
    that XLA is to run. What is not made of others stays."""

    def visit(rewriter: Rewriter, x: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if x.op.name == "lanes":
            return rewriter.splice(x.attributes.in_lock_step, operands, visit)
        if x.op.name in OPCODES:
            return rewriter.emit(x.op, *operands, **with_computations(x, write_out)) if any(x.computations()) else None
        return None if x.op.expand is None else _expanded(rewriter, x, operands, visit)

    return rewrite(computation, visit)


def _expanded(rewriter: Rewriter, x: Instruction, operands: tuple[Instruction, ...], visit: Visit) -> Instruction:
    """What an op is made of, itself visited."""
    body = _expansion(x.op, tuple(o.shape for o in operands), x.attributes, config.while_residual_bytes)
    root = rewriter.splice(body, operands, visit)
    return root if isinstance(x.shape, TupleShape) else root.operands[0]


@lru_cache(1024)
def _expansion(op: Op, shapes: tuple[AnyShape, ...], attributes: Any, residual_bytes: int) -> Computation:
    """`residual_bytes` decides how the way back through a loop is written out."""

    def function(*operands: Any) -> Sequence[Any]:
        assert op.expand is not None
        found = op.expand(*operands, **attributes._asdict())
        return found if isinstance(found, tuple) else (found,)

    return trace(function, shapes, op.name)[0]


@to_fixed_point
def inline_calls(computation: Computation) -> Computation:
    """Put the instructions of called computations in the place of the calls, inside loops and branches too; tuples that
    are taken apart vanish. Scalars of constants are folded on the way, so that calls with constants, of which there may
    be many, need not be written out."""
    if "call" not in computation.all_opcodes and not computation.opcodes.issuperset(("tuple", "get-tuple-element")):
        return computation

    def visit(rewriter: Rewriter, x: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if operands and all(o.op is movement.constant for o in operands):
            folded = _folded_scalars(rewriter, x, operands)
            if folded is not None:
                return folded
        if x.op.name == "call":
            return rewriter.splice(x.attributes.to_apply, operands, visit, own=True)
        if x.op is calls.get_tuple_element and operands[0].op is calls.tuple_:
            return operands[0].operands[x.attributes.index]
        if any("call" in inner.all_opcodes for inner in x.computations()):
            return rewriter.emit(x.op, *operands, **with_computations(x, inline_calls))
        return None

    return rewrite(computation, visit)


def _folded_scalars(rewriter: Rewriter, x: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
    """Constant folding of an instruction or a call whose operands are constants, if all that it computes is scalars."""
    with np.errstate(all="ignore"):
        found = _scalars(x, [o.attributes.literal.value for o in operands])
    if found is None:
        return None
    constants = [rewriter.emit(movement.constant, literal=Literal(np.asarray(value))) for value in found]
    return rewriter.emit(calls.tuple_, *constants) if isinstance(x.shape, TupleShape) else constants[0]


def _scalars(x: Instruction, operands: Sequence[Any]) -> list[Any] | None:
    """The results of an instruction, or of all that a call computes; None if these are no scalars."""
    if x.op.name == "call":
        computation = x.attributes.to_apply
        values: dict[Instruction, Any] = {p: [value] for p, value in zip(computation.parameters, operands, strict=True)}
        for y in computation.instructions:
            if y not in values:
                inputs = [value for o in y.operands for value in values[o]]
                found = inputs if y.op is calls.tuple_ and len(inputs) == len(y.operands) else _scalars(y, inputs)
                if found is None:
                    return None
                values[y] = found
        return values[computation.root]
    if x.op is calls.get_tuple_element and isinstance(x.shape, Shape):
        return [operands[x.attributes.index]]
    if x.op.name not in _OF_SCALARS or not isinstance(x.shape, Shape) or x.shape.rank:
        return None
    return [evaluator(x)(*operands)]


_OF_SCALARS = elementwise.NAMES | {"bitcast-convert", "broadcast", "constant", "reshape"}


@of_opcodes("constant")
def fold_constants(computation: Computation) -> Computation:
    """Compute what depends on small constants alone."""
    largest = 1024

    def visit(rewriter: Rewriter, x: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if not operands or not isinstance(x.shape, Shape) or x.op is movement.broadcast:
            return None
        scalars = [scalar_value(o) for o in operands] if x.op.name in elementwise.NAMES and x.shape.rank else [None]
        if all(value is not None for value in scalars):  # the same for each element
            with np.errstate(all="ignore"):
                value = evaluator(x)(*map(np.asarray, scalars))
            found = rewriter.emit(movement.constant, literal=Literal(np.asarray(value).reshape(())))
            return rewriter.emit(movement.broadcast, found, sizes=x.shape.dimensions, dimensions=())
        if any(o.op is not movement.constant for o in operands) or is_unshared(x):
            return None
        same = x.op in (movement.concatenate, movement.reshape)  # which make nothing larger
        if not same and max(x.shape.size, *(o.array_shape.size for o in operands)) > largest:
            return None
        with np.errstate(all="ignore"):
            value = evaluator(x)(*(o.attributes.literal.value for o in operands))
        return rewriter.emit(movement.constant, literal=Literal(np.asarray(value)))

    return rewrite(computation, visit)


def prepare_computations(computation: Computation) -> Computation:
    """Bring the computations that kernels take in - of reductions, windows, sorts - to what can be emitted there: no
    calls, nothing made of other ops, sums of products for dots. Those of loops and branches are programs of their own.
    """

    def visit(rewriter: Rewriter, x: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if not _has_scalar_computations(x):
            return None
        attributes = with_computations(x, _for_scalars)
        return rewriter.emit(x.op, *operands, **attributes) if attributes != x.attributes._asdict() else None

    return rewrite(computation, visit) if any(map(_has_scalar_computations, computation.instructions)) else computation


def _has_scalar_computations(x: Instruction) -> bool:
    return x.op.name not in (*REGIONS, "lanes") and any(x.computations())


@lru_cache(1024)
def _for_scalars(computation: Computation) -> Computation:
    def visit(rewriter: Rewriter, x: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if x.op is contraction.dot:
            lhs, rhs = (converted(rewriter, o, x.array_shape.element_type) for o in operands)
            return as_multiplication(rewriter, lhs, rhs, x.attributes, x.array_shape)
        if any(x.computations()):
            return rewriter.emit(x.op, *operands, **with_computations(x, _for_scalars))
        return None

    return rewrite(inline_calls(expand(computation)), visit)


def share(computation: Computation) -> Computation:
    """Equal instructions become one, and what nothing needs goes: rewriting does both."""
    return rewrite(computation, lambda rewriter, x, operands: None)


@of_opcodes("lanes")
def join_lanes(computation: Computation) -> Computation:
    """Optimize what lanes compute one by one; let those that are not small computations run in lock step."""

    def visit(rewriter: Rewriter, x: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if x.op.name != "lanes":
            return None
        if not is_large(x.attributes.to_apply):
            to_apply = _optimized_lane(x.attributes.to_apply, config.while_residual_bytes)
            if lane_of(to_apply, x.attributes.mapped) is not None:
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
    ("turn-what-meets", turn_what_meets),
    ("turn-factors", turn_factors),
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
