"""Long functions that occur many times in a kernel are called with whole vectors, and give what they give otherwise."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tinyxla as tx
import tinyxla.numpy as jnp
from tinyxla import lax
from tinyxla.backends.numba.emit import printer, vector_variants
from tinyxla.backends.numba.jit import engine

CALL = r"call (?:fastcc )?<\d+ x (float|double)> @[\w.-]+\.v?\d+\("


def chain(op: Callable[[Any], Any], length: int) -> Callable[[Any], Any]:
    def function(x: Any) -> Any:
        for _ in range(length):
            x = op(x)
        return x

    return function


def run(monkeypatch: pytest.MonkeyPatch, path: Path, vectors: bool, function: Any, *arrays: Any) -> tuple[Any, str]:
    """The result, and what LLVM made of the kernels."""
    texts: list[str] = []
    object_code = engine._object_code

    def watched(text: str, *how: Any) -> Any:
        texts.append(text)
        return object_code(text, *how)

    with monkeypatch.context() as patch:
        patch.setenv("TINYXLA_CACHE_DIR", str(path / str(vectors)))
        patch.setattr(engine, "_object_code", watched)
        if not vectors:
            patch.setattr(printer, "_MAX_INLINED_LINES", 10**9)
        tx.clear_caches()
        result = np.asarray(tx.jit(lambda *xs: function(*xs))(*(tx.numpy.asarray(x, x.dtype) for x in arrays)))
        tx.clear_caches()
    assert texts
    return result, "\n".join(map(engine.optimized_text, texts))


def x_of(dtype: Any, *shape: int) -> Any:
    return np.random.default_rng(len(shape)).uniform(0.1, 1.5, shape).astype(dtype)


def power(x: Any) -> Any:
    return lax.pow(x, lax.convert_element_type(0.7, x.dtype))


def mixed(x: Any, y: Any) -> Any:
    return chain(lax.sin, 12)(x).astype(np.float64) + y


CASES: dict[str, tuple[Any, list[Any]]] = {
    "f32": (chain(lax.sin, 12), [x_of(np.float32, 1000)]),
    "f64": (chain(lax.cos, 12), [x_of(np.float64, 515)]),
    "f16": (chain(lax.tan, 12), [x_of(np.float16, 300)]),
    "bf16": (chain(lax.sin, 12), [x_of(ml_dtypes.bfloat16, 300)]),
    "two operands": (chain(power, 8), [x_of(np.float32, 100)]),
    "two types": (mixed, [x_of(np.float32, 200), x_of(np.float64, 200)]),
    "sum": (lambda x: tx.numpy.sum(chain(lax.sin, 12)(x), axis=1), [x_of(np.float32, 30, 70)]),
    "transposed": (lambda x, y: chain(lax.sin, 12)(x.T + y), [x_of(np.float32, 90, 40), x_of(np.float32, 40, 90)]),
}


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("case", CASES)
def test_called_functions_give_the_same(case: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    function, arrays = CASES[case]
    called, text = run(monkeypatch, tmp_path, True, function, *arrays)
    taken_in, plain = run(monkeypatch, tmp_path, False, function, *arrays)
    assert re.search(CALL, text)
    assert not re.search(CALL, plain)
    if case == "sum":  # of as many vectors at once as LLVM finds registers for: on some processors more, with calls
        np.testing.assert_allclose(called, taken_in, rtol=1e-6)
    else:
        np.testing.assert_array_equal(called, taken_in)


def test_rare_cases_of_doubles_are_compiled_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Few of either function, but many together, as they have so in common; huge arguments give what others do."""
    x = x_of(np.float64, 515)
    x[[3, 200, 514]] = 1e22, -3e7, np.inf

    def function(x: Any) -> Any:
        return sum(f(x * k) for k in (0.5, 1.5, 2.5) for f in (lax.sin, lax.cos))

    called, text = run(monkeypatch, tmp_path, True, function, x)
    taken_in, _ = run(monkeypatch, tmp_path, False, function, x)
    for name in ("sine", "cosine"):
        assert re.search(rf"call <\d+ x double> @{name}.f64.f64.\d+\(", text)
        assert len(re.findall(rf"define .*@{name}.f64.f64.inlined\(", text)) == 1
    np.testing.assert_array_equal(called, taken_in)
    with np.errstate(invalid="ignore"):
        expected = sum(f(x * k) for k in (0.5, 1.5, 2.5) for f in (np.sin, np.cos))
    np.testing.assert_allclose(called, expected, 1e-12, 1e-12)


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (chain(lax.sin, 2), (1000,)),
        (chain(lax.exp, 4), (1000,)),
        (lambda x: tx.numpy.sum(chain(lax.sin, 12)(x), 1), (99, 3)),
    ],
    ids=["few", "short", "short loop"],
)
def test_other_functions_are_taken_in(
    function: Any, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _, text = run(monkeypatch, tmp_path, True, function, x_of(np.float32, *shape))
    assert "noinline nounwind willreturn" not in text


@pytest.mark.parametrize(("size", "called"), [(3, "@sine.f32.f32("), (5, "@sine.f32.f32.4("), (8, "@sine.f32.f32.8(")])
def test_long_chains_in_short_loops_are_calls(
    size: int, called: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """LLVM's time would grow with the square of the length, if all were inlined and vectorized."""
    monkeypatch.setattr(printer, "_MAX_VECTORIZED_LINES", 1000)
    x = x_of(np.float32, size)
    result, text = run(monkeypatch, tmp_path, True, chain(lax.sin, 12), x)
    assert text.count(called) > 12
    monkeypatch.undo()
    inlined, _ = run(monkeypatch, tmp_path / "inlined", True, chain(lax.sin, 12), x)
    np.testing.assert_array_equal(result, inlined)


@pytest.mark.parametrize("steps", [1, 5])
def test_variants_are_of_two_elements_or_more(steps: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where a vector has few elements, a quarter of it is one, or none."""
    monkeypatch.setattr(printer, "_MAX_STRAIGHT_LINES", 1000)
    monkeypatch.setattr(printer, "_MAX_VECTORIZED_LINES", 1000)
    monkeypatch.setattr(engine, "vector_bytes", lambda: 16)
    x = x_of(np.float32, 3)
    in_order = lambda x: lax.fori_loop(0, steps, lambda _, c: chain(lax.sin, 12)(c), x)  # noqa: E731
    result, text = run(monkeypatch, tmp_path, True, in_order, x)
    assert not re.search(r"_ZGV_LLVM_N[01]v", text)
    np.testing.assert_allclose(result, chain(np.sin, 12 * steps)(x), rtol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("divisor", [3.0, -0.02, 49.0, 365.25, 1e9, 1e-9])
def test_quotients_by_known_numbers_are_rounded_as_any(divisor: float, dtype: Any) -> None:
    """As long as the product with what the reciprocal lacks, 2**-53 of the quotient or less, is not subnormal."""
    random = np.random.default_rng(round(abs(divisor) * 100))
    wide, whole = random.standard_normal(9_999) * 10.0 ** random.integers(-8, 8, 9_999), random.integers(-999, 999, 999)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, np.finfo(dtype).max / 1e10, -np.finfo(dtype).tiny * 1e30]
    x = np.concatenate([wide, whole * divisor, special]).astype(dtype)
    f = tx.jit(lambda x: x / dtype(divisor))
    with tx.enable_x64(dtype is np.float64):
        y, expected = np.asarray(f(x)), x / dtype(divisor)
        assert "fdiv" not in f.lower(x).compile().kernels[0].llvm
    np.testing.assert_array_equal(y, expected)
    np.testing.assert_array_equal(np.signbit(y[x == 0]), np.signbit(expected[x == 0]))


@pytest.mark.parametrize("divisor", [0.0, np.inf, np.nan, 1e-33, 1e33, -0.25])
def test_quotients_by_numbers_without_a_reciprocal(divisor: float) -> None:
    """Or with an exact one, which LLVM takes."""
    x = np.array([0.0, -0.0, 1.5, -7, np.inf, np.nan, 1e-3], np.float32)
    with np.errstate(all="ignore"):
        expected = x / np.float32(divisor)
    np.testing.assert_array_equal(tx.jit(lambda x: x / np.float32(divisor))(x), expected)


def test_functions_of_variants_have_names_of_their_own() -> None:
    """A kernel may also have a loop version that calls the function without its slow path."""
    usual, fast = (printer._function("sine", ("f64",), "f64", (), path) for path in ("select", "omit"))  # pyright: ignore[reportPrivateUsage]
    text = vector_variants.callable_function(usual.name, usual.text, usual.registers, [8], fast.text)
    defined = re.findall(r"^define .*@([\w.]+)\(", text, re.MULTILINE)
    assert len(defined) == len({*defined, fast.name}) - 1


def test_short_functions_of_vectors_are_inlined_however_often_they_are_repeated() -> None:
    """All vector registers are spilled before a call, so that shifts would take several times as long."""

    def hashed(x: Any) -> Any:
        for k in range(60):
            x = (x ^ (x << 3)) + (x >> 5) * k
        return x

    x = np.arange(1000, dtype=np.int32)
    (kernel,) = tx.jit(hashed).lower(x).compile().kernels
    assert "@shift-left" in kernel.llvm
    assert "shift-left" not in kernel.assembly
    with tx.disable_jit():
        expected = np.asarray(hashed(tx.numpy.asarray(x)))
    np.testing.assert_array_equal(np.asarray(tx.jit(hashed)(x)), expected)


@pytest.mark.parametrize("size", [4, 16, 100])
def test_functions_of_scalars_and_of_vectors_in_one_kernel(size: int) -> None:
    """Scalars of which there are so many calls that their function has variants for vectors, beside vectors."""

    def step(state: Any) -> Any:
        i, number, x = state
        for k in range(4):
            number = jnp.log(number + 2.0 + k)
        x = jnp.log(x * number + 2.0)
        return i + 1, number + x.sum(), x

    def program(number: Any, x: Any) -> Any:
        return lax.while_loop(lambda state: state[0] < 9, step, (0, number, x))

    x = np.linspace(1, 2, size, dtype=np.float32)
    for found, expected in zip(tx.jit(program)(1.0, x), program(1.0, jnp.asarray(x)), strict=True):
        np.testing.assert_allclose(found, expected, 1e-5)
