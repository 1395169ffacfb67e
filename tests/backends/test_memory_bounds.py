"""Compiled programs stay inside of their arrays: each array ends, then starts, at a page that may not be touched.

These are random programs over sizes around those of vectors and tiles, whose values are those of the interpreter; the
samples of every op run in such memory in test_ops.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinyxla as tx
import tinyxla.numpy as tnp
from tests.support import ROOT, op_checks
from tests.support.guarded_memory import Guard, Region
from tinyxla import lax

pytestmark = pytest.mark.skipif(not hasattr(mmap, "MAP_PRIVATE"), reason="pages are protected by mprotect(2)")

Random = np.random.Generator
Stage = Callable[[Any], Any]


@pytest.fixture
def guard(monkeypatch: pytest.MonkeyPatch) -> Guard:
    return Guard(monkeypatch)


# --- the guard itself -------------------------------------------------------------------------------------------------

_OUTSIDE = """
import numpy as np, pytest, tinyxla as tx
from tests.support.guarded_memory import Guard
from tinyxla.backends.numba import CompiledModule
with pytest.MonkeyPatch.context() as patch:
    Guard(patch)
    program = CompiledModule(tx.jit(lambda x: x[:1000] * 2).lower(np.ones(2000, np.float32)).module)
    for _ in range(2):
        program([np.ones(1000, np.float32)])
    print("inside", flush=True)
    program([np.ones(999, np.float32)])
    print("outside", flush=True)
"""


def test_a_program_that_reads_outside_is_ended() -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", _OUTSIDE], capture_output=True, text=True, env=environment)
    assert (done.stdout, done.returncode) == ("inside\n", -signal.SIGSEGV), done.stderr


@pytest.mark.parametrize(("at_end", "place"), [(True, -1), (False, 24)])
def test_what_is_written_beside_an_array_is_found(at_end: bool, place: int) -> None:
    region = Region(24, at_end)
    ctypes.memset(region.address, 0, 24)
    region.check()
    ctypes.memset(region.address + place, 0, 1)
    with pytest.raises(AssertionError, match="beside"):
        region.check()


# --- random programs --------------------------------------------------------------------------------------------------

SIZES = (0, 1, 2, 3, 5, 7, 8, 13, 15, 16, 17, 31, 33, 63, 64, 65, 67, 127, 129, 251)
LARGEST = 4000  # elements of an operand
TYPES = ("float32", "float32", "float64", "int32", "int8", "uint16", "bfloat16", "complex64")


def _values(random: Random, sizes: tuple[int, ...], dtype: Any) -> Any:
    numbers = random.integers(0, 4, sizes)
    return numbers.astype(dtype) if np.dtype(dtype).kind in "iu" else (numbers / 4 - 0.3).astype(dtype)


def _sizes(random: Random) -> tuple[int, ...]:
    while True:
        sizes = tuple(int(n) for n in random.choice(SIZES, random.integers(1, 4)))
        if math.prod(sizes) <= LARGEST:
            return sizes


def _is(x: Any, kinds: str) -> bool:
    """Whether x is of the kinds s(igned or unsigned integer), f(loat) or c(omplex)."""
    kind = np.dtype(x.dtype).kind
    return {"i": "s", "u": "s", "f": "f", "V": "f", "c": "c"}.get(kind, "") in kinds


def _element_wise(random: Random, x: Any) -> Stage:
    stages: list[Stage] = [lambda x: x + x, lambda x: x * x - 1, lambda x: tnp.where(x == 1, x, -x)]
    if _is(x, "f"):
        stages += [tnp.tanh, tnp.sin, lambda x: 1 / (1 + x * x), lambda x: lax.erf(tnp.exp(-x * x))]
    return stages[random.integers(len(stages))]


def _moved(random: Random, x: Any) -> Stage:
    a, n = _axis(random, x)
    step, start = int(random.integers(1, 5)), int(random.integers(0, n + 1))
    config = [tuple(int(random.integers(low, 4)) for low in (-min(2, n), 0, 0)) for n in x.shape]
    order = tuple(int(d) for d in random.permutation(x.ndim))
    stages: list[Stage] = [
        lambda x: tnp.flip(x, a),
        lambda x: lax.slice_in_dim(x, start, n, step, a),
        lambda x: tnp.transpose(x, order),
        lambda x: tnp.concatenate([x, -x, x], a),
        lambda x: tnp.roll(x, start, a),
        lambda x: lax.pad(x, x.dtype.type(1), config),
        lambda x: x.reshape(-1),
    ]
    return stages[random.integers(len(stages))]


def _reduced(random: Random, x: Any) -> Stage | None:
    a, n = _axis(random, x)
    axes = tuple(d for d in range(x.ndim) if random.random() < 0.5)
    stages: list[Stage] = [lambda x: tnp.sum(x, axes), lambda x: tnp.cumsum(x, a)]
    if n and not _is(x, "c"):
        stages += [lambda x: tnp.max(x, a), lambda x: x - tnp.min(x, a, keepdims=True)]
    if n and _is(x, "f"):
        stages += [lambda x: tx.nn.softmax(x, a)]
    return stages[random.integers(len(stages))]


def _ordered(random: Random, x: Any) -> Stage | None:
    a, _ = _axis(random, x)
    stages: list[Stage] = [lambda x: tnp.sort(x, a), lambda x: lax.top_k(x, min(x.shape[-1], 3))[0]]
    return None if _is(x, "c") else stages[random.integers(len(stages))]


def _indexed(random: Random, x: Any) -> Stage | None:
    """By indices of which some are out of range."""
    a, n = _axis(random, x)
    if not n:
        return None
    count = int(random.choice(SIZES)) % 70
    where = (slice(None),) * a + (random.integers(-n, 2 * n + 3, count).astype(np.int32),)
    many = _values(random, (*x.shape[:a], count, *x.shape[a + 1 :]), x.dtype)
    starts = [np.int32(s) for s in random.integers(-5, 30, x.ndim)]
    part = tuple(slice(0, int(random.integers(0, n + 1))) for n in x.shape)
    stages: list[Stage] = [
        lambda x: tnp.take(x, where[-1], a, mode="clip"),
        lambda x: tnp.take(x, where[-1], a, mode="fill", fill_value=2),
        lambda x: x.at[where].add(many, mode="drop"),
        lambda x: lax.dynamic_update_slice(x, x[part], starts),
        lambda x: lax.dynamic_slice(x, starts, x[part].shape),
    ]
    return stages[random.integers(len(stages))]


def _windowed(random: Random, x: Any) -> Stage | None:
    if _is(x, "c"):
        return None
    window = [int(random.integers(1, min(max(n, 1), 5) + 1)) for n in x.shape]
    strides, base, dilation = (tuple(int(s) for s in random.integers(1, 4, x.ndim)) for _ in range(3))
    padding = [(int(low), int(high)) for low, high in random.integers(0, 4, (x.ndim, 2))]
    return lambda x: lax.reduce_window(x, x.dtype.type(0), lax.add, window, strides, padding, base, dilation)


def _convolved(random: Random, x: Any) -> Stage | None:
    """With x as the input's values, as many as there are; and the gradient of both operands."""
    if not _is(x, "f"):
        return None
    rank, groups = int(random.integers(1, 3)), int(random.choice([1, 1, 2, 3]))
    spatial, order = "HW"[:rank], int(random.integers(2))
    features, channels = (groups * int(n) for n in random.integers(1, 12, 2))
    sizes, kernel = random.integers(1, (60, 12)[rank - 1], rank), random.integers(1, 4, rank)
    strides, spread, dilation = (tuple(int(s) for s in random.integers(1, 3, rank)) for _ in range(3))
    padding = [(int(low), int(high)) for low, high in random.integers(0, 3, (rank, 2))]
    layouts = [("NC" + spatial, "OI" + spatial, "NC" + spatial), (f"N{spatial}C", spatial + "IO", f"N{spatial}C")][
        order
    ]
    image = (2, *sizes, channels) if order else (2, channels, *sizes)
    weights = (*kernel, channels // groups, features) if order else (features, channels // groups, *kernel)
    w, input = _values(random, weights, x.dtype), _values(random, image, x.dtype)

    def convolved(input: Any, w: Any) -> Any:
        made = lax.conv_general_dilated(input, w, strides, padding, spread, dilation, layouts, groups)
        return tnp.maximum(made + 1, 0)

    def gradients(x: Any) -> Any:
        made = tx.grad(lambda x, w: tnp.sum(tnp.sin(convolved(x, w))), (0, 1))(input + tnp.sum(x) * 0, w)
        return tnp.concatenate([part.reshape(-1) for part in made])

    return [gradients, lambda x: convolved(input + tnp.sum(x) * 0, w)][random.integers(2)]


def _multiplied(random: Random, x: Any) -> Stage:
    a, n = _axis(random, x)
    w = _values(random, (n, int(random.choice(SIZES))), x.dtype)
    stages: list[Stage] = [
        lambda x: tnp.tensordot(x, w, ((a,), (0,))),
        lambda x: tnp.tensordot(w, tnp.tanh(x) if _is(x, "f") else x, ((0,), (a,))) + 1,
        lambda x: tnp.einsum("...i,...i->...", x, x),
    ]
    return stages[random.integers(len(stages))]


def _transformed(random: Random, x: Any) -> Stage | None:
    a, n = _axis(random, x)
    if not n or x.dtype not in (np.float32, np.float64, np.complex64):
        return None
    length = int(random.choice(SIZES[1:]))
    return lambda x: abs(tnp.fft.fft(x, length, a))


def _repeated(random: Random, x: Any) -> Stage | None:
    steps = int(random.integers(0, 5))
    if not x.shape[0]:
        return None

    def scanned(x: Any) -> Any:
        return lax.scan(lambda c, row: ((c + row) / 2, c * row), tnp.zeros(x.shape[1:], x.dtype), x)[1]

    stages: list[Stage] = [
        lambda x: lax.fori_loop(0, steps, lambda i, c: c.at[i * 3].set(c[-1 - i % x.shape[0]], mode="drop"), x),
        lambda x: lax.fori_loop(0, steps, lambda i, c: tnp.roll(c, 1, 0) + x, x),
    ]
    if _is(x, "f"):
        stages += [scanned, tx.grad(lambda x: tnp.sum(scanned(x).astype(np.float32)))]
    return stages[random.integers(len(stages))]


def _axis(random: Random, x: Any) -> tuple[int, int]:
    a = int(random.integers(x.ndim))
    return a, x.shape[a]


STAGES = [
    *(_element_wise, _element_wise, _moved, _moved, _reduced, _ordered, _indexed, _indexed),
    *(_windowed, _convolved, _multiplied, _multiplied, _transformed, _repeated),
]


def program(random: Random) -> tuple[Stage, Any, list[Any]]:
    """A function of a few stages, an operand, which may be strided, and the values that the interpreter computes."""
    dtype = tnp.dtype(TYPES[random.integers(len(TYPES))])
    operand = _values(random, _sizes(random), dtype)
    if random.random() < 0.3:
        operand = np.repeat(operand, 2, -1)[..., ::2]
    stages: list[Stage] = []
    results = [tnp.asarray(operand)]
    while len(stages) < 3 and results[-1].ndim:
        stage = STAGES[random.integers(len(STAGES))](random, results[-1])
        if stage is not None:
            stages.append(stage)
            results.append(stage(results[-1]))
        if results[-1].size > 4 * LARGEST:
            break

    def function(x: Any) -> list[Any]:
        found = [x]
        for stage in stages:
            found.append(stage(found[-1]))
        return found[1:]

    return function, operand, [np.asarray(x) for x in results[1:]]


@pytest.mark.sample(every=5)
@pytest.mark.parametrize("number", range(5))
def test_random_programs(guard: Guard, number: int) -> None:
    for k in range(10):
        with np.errstate(all="ignore"):
            function, operand, expected = program(np.random.default_rng((number, k)))

        def check(found: list[Any], expected: list[Any] = expected) -> None:
            for x, y in zip(found, expected, strict=True):
                assert (x.shape, x.dtype) == (y.shape, y.dtype)
                scale = max(1.0, float(np.max(np.abs(op_checks.comparable(y)), initial=0)))
                op_checks.assert_close([x], [y], "", 100 * scale)

        compiled = tx.jit(function)
        for _ in range(2):
            check([np.asarray(x) for x in compiled(operand)])
    assert guard.calls >= 20  # the interpreter, too, has some things computed by compiled programs


@pytest.mark.parametrize(("dtype", "result"), [("bfloat16", "bfloat16"), ("int32", "int8")])
def test_one_narrow_element_beside_whole_vectors(guard: Guard, dtype: str, result: str) -> None:
    """The last one of 129 is part of the 32 bits that it is computed from."""
    x = np.random.default_rng(0).integers(0, 9, (3, 33, 129)).astype(dtype)
    total = tx.jit(lambda x: tnp.sum(x, axis=1).astype(result))
    for _ in range(2):
        np.testing.assert_array_equal(total(x), x.astype("float32").sum(1).astype("int32").astype(result))


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("dtype", [np.int8, np.float32, np.complex64])
def test_strips_of_short_rows(guard: Guard, dtype: Any) -> None:
    for width, rows in ((9, 1000), (12, 960), (17, 527), (63, 191)):
        x = np.arange(rows * width).reshape(rows, width).astype(dtype)
        total = tx.jit(lambda x: x - tnp.sum(x, 1, keepdims=True, dtype=x.dtype))
        for _ in range(2):
            np.testing.assert_allclose(total(x), x - x.sum(1, keepdims=True, dtype=dtype), 1e-5)
