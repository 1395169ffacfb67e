"""In-register prefix scan of a contiguous run, in either direction, as a routine that kernels call.

In a vector, each element is combined with the element 1, 2, 4, ... before it, so that it holds the prefix within the
vector (Hillis and Steele, Data parallel algorithms, CACM 29 (1986)); then all are combined with the prefix before the
vector. So the dependence between vectors is one operation.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from tinyxla.compiler.costs import L2_BYTES
from tinyxla.loopir.ir.loop_ir import Index, Operand, Value
from tinyxla.loopir.ir.routines import declare_kernel
from tinyxla.loopir.ir.types import COMPONENT_BYTES, INTEGERS
from tinyxla.loopir.lower.routine_calls import ParametricBuilder
from tinyxla.loopir.target import vector_bytes

_OPS = frozenset(("add", "multiply", "and", "or", "xor", "maximum", "minimum"))
_TYPES = (*INTEGERS, "f32", "f64")

Combine = Callable[[Operand, Operand], Value]


def supports(op: str | None, type: str) -> bool:
    """Whether there is a scan of this monoid and element type."""
    return op in _OPS and type in _TYPES


@functools.cache
def declare_scan(op: str, type: str, backward: bool) -> str:
    """Declare `scan(source, target, carry, (count,))` and return its name. `carry` holds the prefix before the run, and
    afterwards the prefix of the whole run; its second element is the identity of the monoid."""
    name = "_".join(["scan", op, type, *["backward"] * backward])
    b = ParametricBuilder("scan", "count")
    source, target, carry = b.argument(type), b.argument(type, True), b.argument(type, True)
    element_bytes = COMPONENT_BYTES[type]
    count, n = b.parameter["count"], vector_bytes() // element_bytes
    distance = L2_BYTES // 4 // element_bytes * (-1 if backward else 1)
    # As constants these would make LLVM choose slower shuffles.
    identity = b.broadcast(b.load(carry, 1), n)

    def combine(x: Operand, y: Operand) -> Value:
        return b.compute(op, type, x, y)

    def position(done: Index, length: int) -> Index:
        """Where the next `length` elements are."""
        return b.sub(b.sub(count, done), length) if backward else done

    vectors = b.floordiv(count, n)
    with b.loop(0, vectors, [b.broadcast(b.load(carry, 0), n)], sequential=True) as (k, loop):
        start = position(b.mul(k, n), n)
        b.prefetch(source, b.add(start, distance))
        prefix, before = _vector_prefix(b, combine, b.load(source, start, n), identity, backward), loop.carried[0]
        b.store(target, start, combine(before.arg, prefix))
        before.next = combine(before.arg, b.shuffle([0 if backward else n - 1] * n, prefix))
    total = b.shuffle([0], loop.carried[0].result)
    with b.loop(b.mul(vectors, n), count, [total], sequential=True) as (k, loop):
        at, running = position(k, 1), loop.carried[0]
        running.next = combine(running.arg, b.load(source, at))
        b.store(target, at, running.next)
    b.store(carry, 0, loop.carried[0].result)
    return declare_kernel(name, b.kernel)


def _vector_prefix(b: ParametricBuilder, combine: Combine, x: Value, identity: Value, backward: bool) -> Value:
    """The prefix scan of a vector."""
    step, n = 1, x.lanes
    while step < n:
        before = [k + step if backward else k - step for k in range(n)]
        order = [j if 0 <= j < n else n + k for k, j in enumerate(before)]
        x = combine(b.shuffle(order, x, identity), x)
        step *= 2
    return x
