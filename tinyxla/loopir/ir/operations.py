"""Properties of the loop IR's scalar operations that lowerings and passes ask for; a backend emits by them.

`INLINE` operations are one to three instructions and stand where they are used; all others are functions of their own.
Operations with a slow path compute all operands by the fast path, and run the loop again for the few operands that need
more (a sine of a huge argument).
"""

from __future__ import annotations

from typing import TypeGuard

from tinyxla.loopir.ir.llvm_templates import BYTES, MEMORY
from tinyxla.loopir.ir.loop_ir import Compute, Load, Loop, Statement, Store

INLINE = frozenset(
    "abs add and ceil chain-divide chain-multiply clamp compare complex divide floor imag is-finite maximum"
    " maximum-of-numbers minimum minimum-of-numbers multiply negate not or real round-nearest-even select sqrt"
    " subtract xor copy".split()
)
_SLOW_OF_FLOATS = frozenset("cosine remainder sine tan".split())
_SLOW_OF_COMPLEX = frozenset("cosh cosine exponential exponential-minus-one logistic power sine sinh tan tanh".split())
_FLOATS = ("f32", "f64", "f16", "bf16")
_COMPLEX = ("c64", "c128")


def is_function(x: Statement) -> TypeGuard[Compute]:
    """Whether a statement computes by a function of its own rather than inline."""
    return isinstance(x, Compute) and x.op not in INLINE and not is_index_arithmetic(x)


def is_index_arithmetic(x: Compute) -> bool:
    return bool(x.attributes) and x.attributes[0][0] == "index"


def has_slow_path(x: Compute) -> bool:
    """Whether an operation has a slow path for few of its operands."""
    if not is_function(x) or x.op == "convert":
        return False
    type = x.operands[-1].type
    if type in _FLOATS:
        return x.op in _SLOW_OF_FLOATS
    if type in _COMPLEX:
        return x.op in _SLOW_OF_COMPLEX
    return x.op == "power"


def widest_of(loop: Loop) -> int:
    """Bytes of the widest element that a loop loads, stores or carries, from which LLVM derives its vector width."""
    moved = [x.buffer.type for x in loop.body if isinstance(x, (Load, Store))]
    return max((BYTES[MEMORY[x]] for x in (*moved, *(c.arg.type for c in loop.carried))), default=4)
