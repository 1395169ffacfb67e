"""Kernels that differ in numbers only become one, which takes the numbers from its table: so arrays of another size
need no other code.

Numbers that come from sizes are the ends of loops, the strides, bounds and divisors of indices, and the floats n and
1/n that means leave. Those that cost nothing at run time are taken from the table from the beginning. The others make
inner loops faster where LLVM knows them, so each value gets its own code, until kernels that are otherwise equal have
come with three. A short loop whose end is not known has its rest in masked vectors, whatever the number: one by one
that takes longer than all before it.
"""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tinyxla.loopir.ir.fingerprint import kernel_fingerprint
from tinyxla.loopir.ir.loop_ir import (
    INDEX,
    LONG_LOOP_ITERATIONS,
    Compute,
    Index,
    Kernel,
    Literal,
    Loop,
    Operand,
    Statement,
    Value,
    leaves_remainder,
    may_leave_remainder,
)
from tinyxla.loopir.ir.operations import max_element_bytes
from tinyxla.loopir.lower.emit import UNBOUNDED

LEAST = 16  # smaller numbers are more often a dimension of vectors than a number of them
FEW = 1 << 12  # iterations of the innermost loops
_VALUES = 3  # of a number, from which on it is one that varies
_FORMATS = {"s32": "q", "s64": "q", "f32": "fxxxx", "f64": "d"}
_ARITHMETIC = frozenset("add subtract multiply divide remainder minimum maximum compare negate clamp select".split())
_DIVISIONS = ("divide", "remainder")

# What replaces a number: given its type, its value, and whether knowing it makes code faster.
_Choice = Callable[[str, Any, bool], Operand | None]


class SpecializationCache:
    """Kernels that are equal up to numbers: the values that each had, and which of them the code is to know."""

    def __init__(self) -> None:
        self._seen: list[set[Any]] = []

    def known(self, values: Sequence[Any], useful: Sequence[bool]) -> list[bool]:
        """For each number of another kernel, whether its code knows it."""
        if not self._seen:
            self._seen = [set() for _ in values]
        for seen, value in zip(self._seen, values, strict=True):
            if len(seen) < _VALUES:
                seen.add(value)
        return [use and len(seen) < _VALUES for use, seen in zip(useful, self._seen, strict=True)]


_families: dict[str, SpecializationCache] = {}
_lock = threading.RLock()  # a signal's handler may come back in


def _renew_lock() -> None:
    """In the child of a fork: a thread of the parent may have held the lock."""
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


def forget() -> None:
    """Forget which kernels there were."""
    _families.clear()


def generalize(kernel: Kernel, once: bool = False) -> tuple[Kernel, list[int]]:
    """The kernel that is compiled in place of another, and the words that follow the addresses in its table. What a
    call of the program does `once` need not be as fast as can be, if it is little."""
    once = once and _iterations(kernel.body) < FEW
    values: list[Any] = []
    useful: list[bool] = []

    def note(type: str, value: Any, use: bool) -> Operand:
        values.append(value)
        useful.append(use and not once)
        return Value(type, f"n{len(values)}")

    widest = _Numbers(note).kernel(kernel)
    if not values:
        return kernel, []
    text = kernel_fingerprint(widest)
    with _lock:
        known = iter(_families.setdefault(text, SpecializationCache()).known(values, useful))
    words: list[int] = []

    def choose(type: str, value: Any, use: bool) -> Operand | None:
        if next(known):
            return None
        words.append(struct.unpack("q", struct.pack(_FORMATS[type], value))[0])
        return Value(type, f"n{len(words)}")

    return _Numbers(choose).kernel(kernel), words


class _Numbers:
    """Copies a kernel, asking for each number that may come from a size what to put in its place."""

    def __init__(self, choose: _Choice) -> None:
        self._choose = choose
        self._numbers: list[Value] = []
        self._innermost = False

    def kernel(self, kernel: Kernel) -> Kernel:
        body = self._block(kernel.body)
        return replace(kernel, body=body, parameters=self._numbers)

    def _block(self, statements: Sequence[Statement]) -> list[Statement]:
        return [self._statement(x) for x in statements]

    def _statement(self, x: Statement) -> Statement:
        if isinstance(x, Compute) and x.op in _ARITHMETIC:
            return replace(x, operands=tuple(self._operand(x, k) for k in range(len(x.operands))))
        if not isinstance(x, Loop):
            return x
        around, self._innermost = self._innermost, not any(isinstance(y, Loop) for y in x.body)
        short = isinstance(x.stop, int) and x.stop * min(4, max_element_bytes(x)) < 4 * LONG_LOOP_ITERATIONS
        stop: Index = x.stop
        has_rest = x.has_remainder or leaves_remainder(x, LONG_LOOP_ITERATIONS)
        if isinstance(x.stop, int) and x.stop >= LEAST:
            found = self._replaced(INDEX, x.stop, self._innermost and short and not x.sequential)
            assert not isinstance(found, Literal)
            if found is not None:
                stop, has_rest = found, has_rest or (x.stop < LONG_LOOP_ITERATIONS and may_leave_remainder(x, LEAST))
        made = replace(x, stop=stop, body=self._block(x.body), has_remainder=has_rest)
        self._innermost = around
        return made

    def _operand(self, x: Compute, place: int) -> Operand:
        operand = x.operands[place]
        if not isinstance(operand, Literal) or not _is_of_size(operand):
            return operand
        divides = x.op in _DIVISIONS and place == 1
        is_stride = x.op == "multiply" and x.result.type == INDEX
        return self._replaced(operand.type, operand.value, is_stride or (divides and self._innermost)) or operand

    def _replaced(self, type: str, value: Any, useful: bool) -> Value | None:
        found = self._choose(type, value, useful)
        if found is not None:
            assert isinstance(found, Value)
            self._numbers.append(found)
        return found


def _iterations(statements: Sequence[Statement]) -> int:
    """How often a block's innermost statements run, as far as it is known."""
    loops = [x for x in statements if isinstance(x, Loop)]
    known = [(x.stop - x.start if isinstance(x.start, int) and isinstance(x.stop, int) else 1, x.body) for x in loops]
    return sum(count * _iterations(body) for count, body in known) or 1


def _is_of_size(x: Literal) -> bool:
    """Whether a literal may come from the size of an array: a number that is not small, or 1 over one."""
    if x.type in ("s32", "s64"):
        return LEAST <= x.value < UNBOUNDED  # of which LLVM is to know that it is positive
    if x.type not in ("f32", "f64") or not LEAST <= max(abs(x.value), 1 / (abs(x.value) or 1)) < 1 << 31:
        return False
    whole = abs(x.value) if abs(x.value) > 1 else 1 / abs(x.value)
    return abs(whole - round(whole)) <= whole * 1e-6
