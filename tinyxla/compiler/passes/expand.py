"""Expansion: composite ops are replaced by the ops that define them."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from functools import cache, lru_cache, partial
from typing import Any

from tinyxla.compiler.passes.canonicalize.ragged_dot import expand_ragged_dots
from tinyxla.compiler.passes.lapack_forms import expand_factorizations
from tinyxla.compiler.rewriter import Rewriter, rewrite
from tinyxla.hlo import Computation, Instruction, map_computations
from tinyxla.ops import Op, elementwise, ops
from tinyxla.ops.movement import symbolic_size
from tinyxla.runtime.mpi import world
from tinyxla.shapes import AnyShape, TupleShape
from tinyxla.shapes.symbolic import is_symbolic
from tinyxla.text.hlo_text import OPCODES
from tinyxla.tracing.config import config
from tinyxla.tracing.core import trace, without_lines


@cache
def _expandable() -> frozenset[str]:
    """Composite ops; elementwise ones are excluded, since they have native code."""
    return frozenset(name for name, op in ops.items() if op.expand is not None and name not in elementwise.NAMES)


def expand(computation: Computation) -> Computation:
    """The computation with composite ops expanded."""
    if computation.opcodes.isdisjoint(_expandable()):
        return computation

    def visit(rewriter: Rewriter, x: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if x.op.name not in _expandable():
            return None
        return _expanded(rewriter, x, operands)

    return rewrite(computation, visit)


def expand_to_hlo(computation: Computation, kept: Container[str] = ()) -> Computation:
    """The computation with all ops that only this library has expanded to XLA's, in loops and branches too, for HLO
    text that XLA runs. Ops without expansion stay, and those whose names are `kept`, with their computations."""
    inner = partial(expand_to_hlo, kept=kept)

    def visit(rewriter: Rewriter, x: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if x.op.name in kept or (x.op is symbolic_size and is_symbolic(x.attributes.size)):
            return None
        if x.op.name == "lanes":
            return rewriter.splice(x.attributes.in_lock_step, operands, rewriter.visit, rewriter.scope)
        if x.op.name in OPCODES:
            if not any(x.computations()):
                return None
            return rewriter.emit(x.op, *operands, **map_computations(x.attributes._asdict(), inner))
        return None if x.op.expand is None else _expanded(rewriter, x, operands)

    return rewrite(computation, visit)


def expand_to_stablehlo(computation: Computation) -> Computation:
    """The same for StableHLO: ragged dots become dots over all groups, and factorizations calls of LAPACK."""
    return expand_factorizations(expand_ragged_dots(expand_to_hlo(computation)))


def expand_if(computation: Computation, wanted: Callable[[Instruction], bool]) -> Computation:
    """The computation with composite ops expanded that are wanted so, in loops and branches too."""

    def visit(rewriter: Rewriter, x: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if x.op is symbolic_size and is_symbolic(x.attributes.size):
            return None
        if x.op.expand is not None and wanted(x):
            return _expanded(rewriter, x, operands)
        if x.op.name in ("while", "conditional"):
            attributes = map_computations(x.attributes._asdict(), lambda inner: expand_if(inner, wanted))
            return rewriter.emit(x.op, *operands, **attributes)
        return None

    return rewrite(computation, visit)


def _expanded(rewriter: Rewriter, x: Instruction, operands: tuple[Instruction, ...]) -> Instruction:
    """The expansion of an op, rewritten by the same visitor."""
    among = world()
    process = among.rank, among.size
    body = _expansion(x.op, tuple(o.shape for o in operands), x.attributes, config.while_residual_bytes, process)
    root = rewriter.splice(body, operands, rewriter.visit)
    return root if isinstance(x.shape, TupleShape) else root.operands[0]


@lru_cache(1024)
def _expansion(
    op: Op, shapes: tuple[AnyShape, ...], attributes: Any, residual_bytes: int, process: tuple[int, int]
) -> Computation:
    """`residual_bytes` and `process` are keys of the cache, since they decide how derivatives of loops and collective
    operations are expanded."""

    def function(*operands: Any) -> Sequence[Any]:
        assert op.expand is not None
        results = op.expand(*operands, **attributes._asdict())
        return results if isinstance(results, tuple) else (results,)

    return without_lines(lambda: trace(function, shapes, op.name)[0])
