"""Programs written as StableHLO: XLA compiles them and gives our numbers, and they read back as the same programs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tinyxla as tx
import tinyxla.numpy as tnp
from tests.support import xla_oracle
from tinyxla import lax, nn, random, stablehlo
from tinyxla.errors import ArgumentError, AttributeValueError

pytest.importorskip("jax")

X = np.linspace(0.1, 0.9, 16, dtype=np.float32).reshape(4, 4)
V = X[0].copy()
INDICES = np.array([2, 0, 3, 1], np.int32)
Z = (X + 1j * X.T).astype(np.complex64)
SPD = X @ X.T + 4 * np.eye(4, dtype=np.float32)


def loss(weights: Any, x: Any) -> Any:
    hidden = nn.relu(x @ weights[0])
    return ((hidden @ weights[1] - x) ** 2).mean()


def train(weights: Any, x: Any) -> Any:
    value, slopes = tx.value_and_grad(loss)(weights, x)
    return value, [w - 0.1 * s for w, s in zip(weights, slopes, strict=True)]


PROGRAMS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "elementwise": (
        lambda x: [f(x) for f in (tnp.sin, tnp.cos, tnp.tan, tnp.tanh, tnp.exp, tnp.expm1, tnp.log, tnp.log1p, tnp.sqrt)],
        (X,),
    ),
    "special functions": (lambda x: [f(x) for f in (lax.erf, lax.erf_inv, lax.erfc, lax.lgamma, tnp.sinh, tnp.cosh)], (X,)),
    "rounding": (lambda x: [f(x * 3) for f in (tnp.floor, tnp.ceil, tnp.round, lax.round, tnp.sign, tnp.abs)], (X,)),
    "binary": (lambda x, y: [x + y, x - y, x * y, x / y, x**y, tnp.arctan2(x, y), x % y, tnp.maximum(x, y)], (X, X.T.copy())),
    "comparisons": (lambda x, y: [x < y, x <= y, x == y, x != y, tnp.where(x > y, x, 0.0)], (X, X.T.copy())),
    "integers": (lambda i: [i & 3, i | 4, i ^ 1, ~i, i << 1, i >> 1, i * i, lax.population_count(i), lax.clz(i)], (INDICES,)),
    "complex": (lambda z: [z.real, z.imag, z * z, tnp.conj(z), tnp.abs(z)], (Z,)),
    "conversions": (lambda x: [x.astype(t) for t in ("int8", "bool", "float16", "bfloat16")], (X,)),
    "movement": (lambda x: [x.T, x[::-1], x[1:, ::2], tnp.pad(x, 1), tnp.stack([x, x]), x.reshape(2, 8), tnp.roll(x, 1)], (X,)),
    "contractions": (lambda x: [x @ x, tnp.einsum("ij,kj,kl->il", x, x, x), tnp.einsum("bi,bj->bij", x, x)], (X,)),
    "indexing": (lambda x, i: [x[i], x.at[i].add(1.0), x.at[i, i].set(2.0), lax.dynamic_slice(x, (i[0], i[1]), (2, 2))], (X, INDICES)),
    "reductions": (lambda x: [x.sum(), x.max(0), x.prod(1), (x > 0.5).all(), x.argmax(1), x.var(0)], (X,)),
    "cumulative": (lambda x: [tnp.cumsum(x, 0), lax.cummax(x, 1)], (X,)),
    "sorts": (lambda x: [tnp.sort(x), tnp.argsort(-x), *lax.top_k(x, 2)], (X,)),
    "windows": (lambda x: lax.reduce_window(x, -np.inf, lax.max, (2, 2), (1, 2), "SAME"), (X,)),
    "gradient of a window": (tx.grad(lambda x: lax.reduce_window(x, -np.inf, lax.max, (2, 2), (1, 1), "VALID").sum()), (X,)),
    "convolution": (
        tx.value_and_grad(lambda x: (lax.conv_general_dilated(x[None, None], x[None, None, :2, :3], (1, 2), "SAME") ** 2).sum()),
        (X,),
    ),
    "fft": (lambda x, z: [tnp.fft.fft(z), tnp.fft.rfft(x)], (X, Z)),
    "linear algebra": (lambda a, b: [tnp.linalg.cholesky(a), lax.linalg.triangular_solve(a, b, left_side=True, lower=True)], (SPD, X)),
    "loops": (
        lambda x: [lax.fori_loop(0, 3, lambda i, y: y * 2 + i, x), lax.scan(lambda c, a: (c + a, c * a), x[0], x)],
        (X,),
    ),
    "branches": (lambda x: [lax.cond(x.sum() > 0, tnp.sin, tnp.cos, x), lax.switch(1, [tnp.sin, tnp.cos], x)], (X,)),
    "gradient of a scan": (tx.grad(lambda x: (lax.scan(lambda c, a: (tnp.sin(c + a), c * a), x[0], x)[1] ** 2).sum()), (X,)),
    "calls": (lambda x: tx.jit(tnp.sin)(x) + tx.jit(tnp.sin)(2 * x), (X,)),
    "mapped function": (tx.vmap(lambda r: nn.softmax(r) @ X), (X,)),
    "random numbers": (lambda key: random.normal(key, (3,)), (np.array([0, 7], np.uint32),)),
    "constants": (lambda: [tnp.asarray(Z), tnp.asarray(np.arange(100.0, dtype=np.float32)), tnp.full((2, 2), np.inf)], ()),
    "training step": (train, ([X, X.T.copy()], X)),
}  # fmt: skip
# ruff: noqa: E501


def leaves(found: Any) -> list[np.ndarray[Any, Any]]:
    return [np.asarray(x) for x in tx.tree.leaves(found)]


def close(found: Any, expected: Any) -> None:
    for a, b in zip(leaves(found), leaves(expected), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        if a.dtype.kind in "biu":
            np.testing.assert_array_equal(a, b)
        else:
            np.testing.assert_allclose(a.astype(np.complex128), b.astype(np.complex128), rtol=5e-5, atol=5e-6)


@pytest.mark.parametrize("name", PROGRAMS)
def test_xla_gives_the_same_numbers(name: str) -> None:
    function, arguments = PROGRAMS[name]
    compiled = tx.jit(function)
    text = compiled.lower(*arguments).as_text("stablehlo")
    flat = tx.tree.leaves(arguments)
    close(xla_oracle.run_stablehlo(text, flat), leaves(compiled(*arguments)))


@pytest.mark.parametrize("name", PROGRAMS)
def test_text_reads_back_as_the_same_program(name: str) -> None:
    function, arguments = PROGRAMS[name]
    compiled = tx.jit(function)
    program = stablehlo.parse(compiled.lower(*arguments).as_text("stablehlo"))
    flat = [np.asarray(x) for x in tx.tree.leaves(arguments)]
    found = program(*flat)
    close(list(found) if isinstance(found, tuple) else [found], leaves(compiled(*arguments)))


def test_text_is_a_module_with_a_main_function() -> None:
    text = tx.jit(lambda x: tnp.sin(x) + 1).lower(V).as_text("stablehlo")
    assert text.startswith("module @")
    assert "func.func public @main(%arg0: tensor<4xf32>) -> (tensor<4xf32>) {" in text
    assert '"stablehlo.sine"(%arg0) : (tensor<4xf32>) -> (tensor<4xf32>)' in text


def test_what_has_no_form_is_refused() -> None:
    with pytest.raises(ArgumentError, match="StableHLO has no form of the operation"):
        tx.jit(lambda x: tx.pure_callback(lambda v: v, x, x)).lower(V).as_text("stablehlo")
    with pytest.raises(AttributeValueError, match="'hlo' or 'stablehlo'"):
        tx.jit(lambda x: x).lower(V).as_text("mhlo")


def test_composite_keeps_its_name_attributes_and_version() -> None:
    scale = lax.composite(lambda x, *, factor, **_: x * factor, "example.scale", version=2)
    given = {"factor": 3, "kind": np.dtype(np.float32), "none": None, "table": np.zeros(2, np.float32)}
    text = tx.jit(lambda x: scale(x, **given)).lower(V).as_text("stablehlo")
    assert '"stablehlo.composite"(%arg0) <{name = "example.scale"' in text
    assert "{factor = 3 : i64, kind = f32, table = dense<[0.000000000e+00, 0.000000000e+00]> : tensor<2xf32>}" in text
    assert "version = 2 : i32" in text
    np.testing.assert_array_equal(stablehlo.parse(text)(V), 3 * V)
