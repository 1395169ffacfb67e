"""Properties of the loop IR's scalar operations: which are inline and which have a slow path. Lowerings, passes and
backends decide by them.

`INLINE` operations are one to three instructions at their point of use; all others are calls of functions. An operation
with a slow path computes all elements by the fast path first; the loop runs again for the few operands that need the
slow path (the sine of a huge argument).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard, get_args

from tinyxla.loopir.ir.loop_ir import (
    Compute,
    Fence,
    Gather,
    If,
    Literal,
    Load,
    Loop,
    Prefetch,
    Shuffle,
    Statement,
    Store,
    TileOperation,
)
from tinyxla.loopir.ir.types import COMPONENT_BYTES, PAIRS
from tinyxla.ops import ops
from tinyxla.scalar_math.integers import is_integer, width_of
from tinyxla.shapes import element_type

INLINE = frozenset(
    "abs add and ceil chain-divide chain-multiply clamp compare complex divide dot-product-add floor imag iota"
    " is-finite lane-mask maximum maximum-of-numbers minimum minimum-of-numbers multiply multiply-add negate not"
    " or real round-nearest-even select sqrt subtract xor copy".split()
)

_VECTOR_STATEMENTS = (Shuffle, Prefetch, If, Fence, Gather, *get_args(TileOperation))


def is_function(x: Statement) -> TypeGuard[Compute]:
    """True if a statement calls a function rather than being inline."""
    return isinstance(x, Compute) and x.op not in INLINE and not is_index_arithmetic(x)


def is_index_arithmetic(x: Compute) -> bool:
    """True if an operation was emitted by `Builder`'s index arithmetic."""
    return bool(x.attributes) and x.attributes[0][0] == "index"


def has_slow_path(x: Compute) -> bool:
    """True if few operands of an operation need a slow path."""
    if not is_function(x) or x.op == "convert":
        return False
    scalar = ops[x.op].scalar if x.op in ops else None
    return scalar is not None and element_type(x.operands[-1].type).kind in scalar.slow_path


def is_division_by_floats(x: Compute) -> bool:
    """True if vectors of floats divide integers faster, as `divide-in-vectors` and `remainder-in-vectors` do. LLVM
    multiplies by the reciprocal of a divisor that is constant."""
    if x.op not in ("divide", "remainder") or isinstance(x.operands[1], Literal):
        return False
    return is_integer(x.result.type) and width_of(x.result.type) <= 32


def has_vector_form(x: Compute) -> bool:
    """True if an operation computes lane by lane what it does of scalars: not if it needs a slow path, nor of complex
    numbers."""
    types = (x.result.type, *(operand.type for operand in x.operands))
    return not has_slow_path(x) and not any(type in PAIRS for type in types)


def vector_op(x: Compute) -> str:
    """The name of an operation on vectors."""
    return f"{x.op}-in-vectors" if is_division_by_floats(x) else x.op


def is_vector_code(statements: Sequence[Statement]) -> bool:
    """True if statements are written in vectors or as routines are, and so need none of LLVM's passes."""
    return any(
        isinstance(x, _VECTOR_STATEMENTS)
        or (isinstance(x, Load) and x.result.lanes > 1)
        or (isinstance(x, Loop) and is_vector_code(x.body))
        for x in statements
    )


def max_element_bytes(loop: Loop) -> int:
    """Bytes of the widest element type that a loop loads, stores or carries; LLVM derives its vector width from this
    type."""
    types = [x.buffer.type for x in loop.body if isinstance(x, (Load, Store))]
    return max((COMPONENT_BYTES[x] for x in (*types, *(c.arg.type for c in loop.carried))), default=4)
