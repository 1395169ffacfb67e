"""Specialization policy: sizes in kernels as constants or as run-time parameters, so that kernels that differ in sizes
only can share code.

Numbers that may come from sizes are loop bounds; strides, bounds and divisors of indices; the floats n and 1/n of
means; and indices of single elements, of which an unrolled program has many. Numbers whose value does not matter for
speed are parameters from the beginning. The others make inner loops faster as constants, so each value gets its own
code, until kernels that are otherwise equal have come with three values. A short loop with a parameter as its bound has
a masked remainder for all values, since a scalar remainder would take longer than the vectors.
"""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tinyxla.compiler.costs import CACHED_ELEMENTS, VECTOR_ELEMENTS
from tinyxla.loopir.ir.fingerprint import kernel_fingerprint
from tinyxla.loopir.ir.loop_ir import (
    INDEX,
    LONG_LOOP_ITERATIONS,
    Compute,
    Index,
    Kernel,
    Literal,
    Load,
    Loop,
    Operand,
    Statement,
    Store,
    Value,
    leaves_remainder,
    may_leave_remainder,
)
from tinyxla.loopir.ir.operations import max_element_bytes
from tinyxla.loopir.lower.emit import UNBOUNDED

MAX_SPECIALIZATIONS = 3  # values of a number; from the third on, it is a parameter
_WORD_FORMATS = {"s32": "q", "s64": "q", "f32": "fxxxx", "f64": "d"}
_ARITHMETIC = frozenset("add subtract multiply divide remainder minimum maximum compare negate clamp select".split())
_DIVISIONS = ("divide", "remainder")

# What replaces a number, given its type, its value, and whether specialization makes the code faster.
_Choice = Callable[[str, Any, bool], Operand | None]


class SpecializationCache:
    """For kernels that are equal up to numbers, the values that each number had."""

    def __init__(self) -> None:
        self._seen: list[set[Any]] = []

    def specialized(self, values: Sequence[Any], is_useful: Sequence[bool]) -> list[bool]:
        """For each number of another kernel, whether it stays a constant."""
        if not self._seen:
            self._seen = [set() for _ in values]
        for seen_values, value in zip(self._seen, values, strict=True):
            if len(seen_values) < MAX_SPECIALIZATIONS:
                seen_values.add(value)
        few_values = [len(seen_values) < MAX_SPECIALIZATIONS for seen_values in self._seen]
        return [useful and few for useful, few in zip(is_useful, few_values, strict=True)]


_caches: dict[str, SpecializationCache] = {}
_lock = threading.RLock()  # a signal handler may re-enter


def _renew_lock() -> None:
    """Renew the lock in the child of a fork: a thread of the parent may have held it."""
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


def forget() -> None:
    """Forget all kernels."""
    _caches.clear()


def generalize(kernel: Kernel, is_cold: bool = False) -> tuple[Kernel, list[int]]:
    """The kernel to compile for another, with numbers as parameters, and the words of the parameters in its table.
    If it `is_cold`, run once per call of the program and little work, it need not be specialized."""
    is_cold = is_cold and _trip_count(kernel.body) < CACHED_ELEMENTS
    values: list[Any] = []
    is_useful: list[bool] = []

    def collect(type: str, value: Any, useful: bool) -> Operand:
        values.append(value)
        is_useful.append(useful)
        return Value(type, f"n{len(values)}")

    generic = _SizeRewriter(collect, is_cold).kernel(kernel)
    if not values:
        return kernel, []
    key = kernel_fingerprint(generic)
    with _lock:
        is_specialized = iter(_caches.setdefault(key, SpecializationCache()).specialized(values, is_useful))
    parameter_words: list[int] = []

    def parametrize(type: str, value: Any, useful: bool) -> Operand | None:
        if next(is_specialized):
            return None
        parameter_words.append(struct.unpack("q", struct.pack(_WORD_FORMATS[type], value))[0])
        return Value(type, f"n{len(parameter_words)}")

    return _SizeRewriter(parametrize, is_cold).kernel(kernel), parameter_words


class _SizeRewriter:
    """Copies a kernel with numbers that may come from sizes replaced, as `choose` decides. Sizes make no code faster
    that `is_cold`; indices do, since elements at known ones may be vectorized."""

    def __init__(self, choose: _Choice, is_cold: bool) -> None:
        self._choose, self._is_cold = choose, is_cold
        self._parameters: list[Value] = []
        self._innermost = False

    def kernel(self, kernel: Kernel) -> Kernel:
        body = self._block(kernel.body)
        return replace(kernel, body=body, parameters=self._parameters)

    def _block(self, statements: Sequence[Statement]) -> list[Statement]:
        return [self._statement(x) for x in statements]

    def _statement(self, x: Statement) -> Statement:
        if isinstance(x, Compute) and x.op in _ARITHMETIC:
            return replace(x, operands=tuple(self._operand(x, k) for k in range(len(x.operands))))
        if isinstance(x, Load | Store) and isinstance(x.index, int) and x.buffer.size is None:
            index = self._parameter(INDEX, x.index, True)
            return x if index is None else replace(x, index=index)
        if not isinstance(x, Loop):
            return x
        outer, self._innermost = self._innermost, not any(isinstance(inner, Loop) for inner in x.body)
        is_short = isinstance(x.stop, int) and x.stop * min(4, max_element_bytes(x)) < 4 * LONG_LOOP_ITERATIONS
        stop: Index = x.stop
        has_remainder = x.has_remainder or leaves_remainder(x, LONG_LOOP_ITERATIONS)
        if isinstance(x.stop, int) and x.stop >= VECTOR_ELEMENTS:
            parameter = self._parameter_for_size(INDEX, x.stop, self._innermost and is_short and not x.sequential)
            assert not isinstance(parameter, Literal)
            if parameter is not None:
                stop, is_long = parameter, x.stop >= LONG_LOOP_ITERATIONS
                has_remainder = has_remainder or (not is_long and may_leave_remainder(x, VECTOR_ELEMENTS))
        loop = replace(x, stop=stop, body=self._block(x.body), has_remainder=has_remainder)
        self._innermost = outer
        return loop

    def _operand(self, x: Compute, position: int) -> Operand:
        operand = x.operands[position]
        if not isinstance(operand, Literal) or not _may_be_size(operand):
            return operand
        is_divisor = x.op in _DIVISIONS and position == 1
        is_stride = x.op == "multiply" and x.result.type == INDEX
        return (
            self._parameter_for_size(operand.type, operand.value, is_stride or (is_divisor and self._innermost))
            or operand
        )

    def _parameter_for_size(self, type: str, value: Any, is_useful: bool) -> Value | None:
        return self._parameter(type, value, is_useful and not self._is_cold)

    def _parameter(self, type: str, value: Any, is_useful: bool) -> Value | None:
        parameter = self._choose(type, value, is_useful)
        if parameter is not None:
            assert isinstance(parameter, Value)
            self._parameters.append(parameter)
        return parameter


def _trip_count(statements: Sequence[Statement]) -> int:
    """How often the innermost statements of a block run, as far as known."""
    loops = [x for x in statements if isinstance(x, Loop)]
    trip_counts = [
        (x.stop - x.start if isinstance(x.start, int) and isinstance(x.stop, int) else 1, x.body) for x in loops
    ]
    return sum(count * _trip_count(body) for count, body in trip_counts) or 1


def _may_be_size(x: Literal) -> bool:
    """True if a literal may come from the size of an array: a number that is not small, or the inverse of one."""
    if x.type in ("s32", "s64"):
        return VECTOR_ELEMENTS <= x.value < UNBOUNDED  # LLVM should know that UNBOUNDED is positive
    if x.type not in ("f32", "f64") or not VECTOR_ELEMENTS <= max(abs(x.value), 1 / (abs(x.value) or 1)) < 1 << 31:
        return False
    size = abs(x.value) if abs(x.value) > 1 else 1 / abs(x.value)
    return abs(size - round(size)) <= size * 1e-6
