"""Workloads: control flow that is large as a program - many carried values, deep nests, long sequences - at several
sizes. Their first calls show how compile time grows with the size of a program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.workload import Calls, Function, Inputs, Once, Workload, normal, uniform

# --- many carried values ----------------------------------------------------------------------------------------------


def _numbers(count: int) -> Inputs:
    return lambda generator: (tuple(generator.random(count, dtype=np.float32)),)


def _independent(tx: Any) -> Function:
    """10 steps of a loop that carries each number for itself."""

    def step(state: Any) -> Any:
        return state[0] + 1, tuple(0.5 * x + 1 for x in state[1])

    return lambda values: tx.lax.while_loop(lambda state: state[0] < 10, step, (0, values))[1]


def _neighbours(tx: Any) -> Function:
    """10 steps of a loop that makes each number of itself and the next one."""

    def step(state: Any) -> Any:
        values = state[1]
        return state[0] + 1, tuple(0.5 * x + 0.5 * y for x, y in zip(values, (*values[1:], values[0]), strict=True))

    return lambda values: tx.lax.while_loop(lambda state: state[0] < 10, step, (0, values))[1]


def _scan(tx: Any) -> Function:
    """The sum of the outputs of a scan that carries many numbers."""

    def step(values: Any, factor: Any) -> Any:
        made = tuple(factor * x + y for x, y in zip(values, (*values[1:], values[0]), strict=True))
        return made, made[0]

    return lambda values, factors: tx.numpy.sum(tx.lax.scan(step, values, factors)[1])


def _carried(count: int) -> Inputs:
    def inputs(generator: np.random.Generator) -> tuple[Any, ...]:
        return (*_numbers(count)(generator), np.linspace(0.1, 0.2, 20, dtype=np.float32))

    return inputs


def _decay(tx: Any) -> Function:
    """10 steps of a loop over a dictionary of arrays."""
    return lambda arrays: tx.lax.fori_loop(0, 10, lambda _, x: {k: 0.9 * v + 0.1 for k, v in x.items()}, arrays)


def _arrays(count: int, size: int) -> Inputs:
    return lambda generator: ({f"w{k}": generator.random(size, dtype=np.float32) for k in range(count)},)


# --- nests and sequences ----------------------------------------------------------------------------------------------


def _conditionals(depth: int) -> Callable[[Any], Function]:
    """Conditionals inside one another."""

    def make(tx: Any) -> Function:
        def level(depth: int, choices: Any) -> Function:
            if not depth:
                return lambda x: 2 * x
            inner = level(depth - 1, choices)
            other = lambda x: tx.numpy.sin(x) + depth  # noqa: E731
            return lambda x: tx.lax.cond(choices[depth - 1] > 0.1, inner, other, x + 1)

        return lambda x, choices: tx.numpy.sum(level(depth, choices)(x))

    return make


def _scans(depth: int) -> Callable[[Any], Function]:
    """Scans of two steps inside one another."""

    def make(tx: Any) -> Function:
        def level(depth: int) -> Function:
            if not depth:
                return lambda x: 1.1 * tx.numpy.sin(x)
            inner = level(depth - 1)
            return lambda x: tx.lax.scan(lambda x, _: (inner(x) + 0.1, None), x, None, length=2)[0]

        return lambda x: tx.numpy.sum(level(depth)(x))

    return make


def _switch(count: int) -> Callable[[Any], Function]:
    def make(tx: Any) -> Function:
        branches = [lambda x, k=k: tx.numpy.sin(k * x) + k for k in range(count)]
        return lambda choice, x: tx.lax.switch(choice, branches, x)

    return make


def _scans_in_sequence(count: int) -> Callable[[Any], Function]:
    def make(tx: Any) -> Function:
        def function(x: Any) -> Any:
            for k in range(count):
                x, _ = tx.lax.scan(lambda x, _, k=k: (0.9 * x + k, None), x, None, length=3)
            return x

        return function

    return make


def _conditionals_in_sequence(count: int) -> Callable[[Any], Function]:
    def make(tx: Any) -> Function:
        def function(x: Any, choices: Any) -> Any:
            for k in range(count):
                x = tx.lax.cond(choices[k] > 0.5, lambda x, k=k: 0.9 * x + k, lambda x, k=k: x - k, x)
            return x

        return function

    return make


# --- a differential equation ------------------------------------------------------------------------------------------

# Source: Dormand and Prince, "A family of embedded Runge-Kutta formulae", 1980
_STAGES = (
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)
_ERROR = (71 / 57600, 0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40)


def ode_solve(depth: int, base: int = 4) -> Callable[[Any], Function]:
    """The sum of squares of the solution of y' = tanh(W y + b) - y / 10 + sin t at t = 1, by adaptive steps of
    Dormand and Prince: at most base ** depth of them, in checkpointed scans inside one another whose steps are
    conditional on the time not being over. So the derivative in reverse mode exists, and takes little memory."""

    def make(tx: Any) -> Function:
        xp, lax = tx.numpy, tx.lax

        def solve(weights: Any, bias: Any, start: Any) -> Any:
            def slope(t: Any, y: Any) -> Any:
                return xp.tanh(weights @ y + bias) - 0.1 * y + xp.sin(t)

            def step(state: Any) -> Any:
                t, y, dt, first = state
                slopes, y_next = [first], y
                for row in _STAGES:
                    y_next = y + dt * sum(a * k for a, k in zip(row, slopes, strict=True) if a)
                    slopes.append(slope(t + dt * sum(row), y_next))
                error = dt * sum(a * k for a, k in zip(_ERROR, slopes, strict=True) if a)
                scale = 1e-3 + 1e-3 * xp.maximum(xp.abs(y), xp.abs(y_next))
                ratio = xp.sqrt(xp.mean((error / scale) ** 2))
                moved = (t + dt, y_next, slopes[-1])
                t, y, first = lax.cond(ratio <= 1, lambda: moved, lambda: (t, y, first))
                factor = xp.clip(0.9 * xp.where(ratio > 0, ratio, 1.0) ** -0.2, 0.2, 10.0)
                return t, y, xp.minimum(factor * dt, 1 - t), first

            def live(state: Any) -> Any:
                return state[0] < 1 - 1e-6

            def bounded(depth: int) -> Function:
                if not depth:
                    return step
                inner = bounded(depth - 1)

                def some(state: Any, _: Any) -> Any:
                    return lax.cond(live(state), inner, lambda state: state, state), None

                return lambda state: lax.scan(tx.checkpoint(some), state, None, length=base)[0]

            zero = xp.zeros(())
            return xp.sum(bounded(depth)((zero, start, zero + 0.01, slope(zero, start)))[1] ** 2)

        return solve

    return make


def _gradient(make: Callable[[Any], Function]) -> Callable[[Any], Function]:
    return lambda tx: tx.grad(make(tx))


_SIZES = (64, 256, 1000)

WORKLOADS: tuple[Workload | Calls | Once, ...] = (
    *(Workload(f"while of {n} numbers", _independent, _numbers(n)) for n in _SIZES),
    *(Workload(f"while of {n} numbers and their neighbours", _neighbours, _numbers(n)) for n in _SIZES),
    *(Workload(f"scan of {n} numbers", _scan, _carried(n)) for n in _SIZES),
    *(Workload(f"gradient of a scan of {n} numbers", _gradient(_scan), _carried(n)) for n in _SIZES),
    *(Workload(f"loop over {n} arrays of 4", _decay, _arrays(n, 4)) for n in (75, 300)),
    *(Workload(f"loop over {n} arrays of 100", _decay, _arrays(n, 100)) for n in _SIZES),
    *(Workload(f"{n} nested conditionals", _conditionals(n), uniform((3,), (n,))) for n in (10, 30)),
    *(
        Workload(f"gradient of {n} nested conditionals", _gradient(_conditionals(n)), uniform((3,), (n,)))
        for n in (5, 20)
    ),
    *(Workload(f"{n} nested scans", _scans(n), normal((3,))) for n in (3, 10)),
    *(Workload(f"gradient of {n} nested scans", _gradient(_scans(n)), normal((3,))) for n in (3, 6, 10)),
    *(
        Workload(f"switch between {n}", _switch(n), lambda generator: (np.int32(3), np.ones(3, np.float32)))
        for n in (12, 50)
    ),
    *(Workload(f"{n} scans in sequence", _scans_in_sequence(n), normal((3,))) for n in (25, 100)),
    *(Workload(f"{n} conditionals in sequence", _conditionals_in_sequence(n), uniform((3,), (n,))) for n in (300, 75)),
    *(Workload(f"ODE solve, {n} nested scans", ode_solve(n), normal((2, 2), (2,), (2,))) for n in (1, 3)),
    *(
        Workload(f"gradient of an ODE solve, {n} nested scans", _gradient(ode_solve(n)), normal((2, 2), (2,), (2,)))
        for n in (1, 3)
    ),
)
