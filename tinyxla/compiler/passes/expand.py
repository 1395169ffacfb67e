"""Expansion: instructions of composite ops are replaced by the ops that these are made of."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

from tinyxla.compiler.rewriter import Rewriter, Visit, rewrite
from tinyxla.hlo import Computation, Instruction
from tinyxla.ops import Op, elementwise, ops
from tinyxla.shapes import AnyShape, TupleShape
from tinyxla.text.hlo_text import OPCODES
from tinyxla.tracing.config import config
from tinyxla.tracing.core import trace
from tinyxla.transforms.computations import with_computations


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
