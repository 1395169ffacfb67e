"""Dots with other types to sum in, ragged dots and scaled dots: against JAX, and errors."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest

import tinyxla
from tests.support import jax_oracle, op_checks, xla_oracle
from tinyxla import image, lax, numpy as tnp, scipy
from tinyxla.errors import ArgumentError, AttributeValueError, DTypeError, ShapeError, TinyxlaError
from tinyxla.hlo import Module
from tinyxla.ops import Sample, elementwise
from tinyxla.ops.products.contraction import Dot, dot
from tinyxla.ops.products.ragged import RaggedDot, ragged_dot
from tinyxla.ops.products.scaled import scaled_dot
from tinyxla.runtime.threads import num_threads
from tinyxla.shapes import element_type
from tinyxla.text import print_module

NumPyArray = np.ndarray[Any, Any]
MATRICES = Dot((1,), (0,))


def _arrays(random: np.random.Generator, dtype: Any, *shapes: tuple[int, ...]) -> tuple[NumPyArray, ...]:
    return tuple(elementwise.sample_array(random, dtype, shape, -100, 100) for shape in shapes)


# --- dot --------------------------------------------------------------------------------------------------------------

WIDENING = [
    ("s8", "s32"),
    ("s8", "s16"),
    ("u8", "u32"),
    ("s4", "s32"),
    ("s16", "f32"),
    ("bf16", "f32"),
    ("f16", "f64"),
    ("f32", "bf16"),
    ("f8e4m3fn", "f32"),
    ("c64", "c128"),
    ("s4", None),
    ("u4", None),
    ("s8", None),
    ("f8e5m2", None),
    ("f16", None),
]


@pytest.mark.sample(every=4)
@pytest.mark.parametrize(("given", "wanted"), WIDENING)
def test_the_type_that_is_summed_in(generator: np.random.Generator, given: str, wanted: str | None) -> None:
    operands = _arrays(generator, element_type(given).dtype, (3, 4), (4, 2))
    preferred = element_type(wanted) if wanted else None
    sample = Sample(operands, MATRICES._replace(preferred_element_type=preferred)._asdict())
    op_checks.check_shape(dot, sample)
    op_checks.check_compiled(tinyxla.jit, dot, sample)
    if (given, wanted) != ("s4", "s32"):  # which XLA does not compile
        op_checks.check_against(jax_oracle.oracle("dot"), dot, sample)


@pytest.mark.parametrize("functions", [(lax.dot, jax.lax.dot), (tnp.matmul, jax.numpy.matmul)])
@pytest.mark.parametrize(
    ("given", "wanted"), [("uint8", "int32"), ("int8", "uint32"), ("bool", "int32"), ("uint8", "int8")]
)
def test_integers_are_summed_in_a_type_of_another_sign(
    generator: np.random.Generator, functions: tuple[Any, Any], given: str, wanted: str
) -> None:
    x, y = (generator.integers(-9, 9, size).astype(given) for size in ((3, 40), (40, 2)))
    found, expected = (function(x, y, preferred_element_type=np.dtype(wanted)) for function in functions)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


def test_bool_products_are_whether_any_pair_is_true() -> None:
    x, y = np.array([[True, False], [False, False]]), np.array([[True], [True]])
    found = dot.evaluate(x, y, **MATRICES._asdict())
    assert found.dtype == np.bool_
    assert found.tolist() == [[True], [False]]


def test_precision_prints_as_xla_has_it() -> None:
    x = np.ones((2, 2), np.float32)
    call = tinyxla.jit(lambda a, b: lax.dot(a, b, precision=("highest", lax.Precision.HIGH)))
    text = call.lower(x, x).as_text()
    assert "operand_precision={highest,high}" in text
    op_checks.assert_close([2 * x], xla_oracle.run(text, [x, x]), text)
    assert "precision" not in tinyxla.jit(lambda a: lax.dot(a, a, precision="default")).lower(x).as_text()


# --- ragged -----------------------------------------------------------------------------------------------------------


def _random_ragged(random: np.random.Generator, mode: str, dtype: Any) -> Sample:
    """Two batch dimensions, two contracting and two free ones of lhs, in any order."""
    b, m, k, n, g = ([int(size) for size in random.integers(1, 4, 2)] for _ in range(5))
    groups = g[0]
    left, right = [int(d) for d in random.permutation(6)], [int(d) for d in random.permutation(6)]
    lhs_batch, lhs_free, lhs_contracting = left[:2], sorted(left[2:4]), left[4:]
    rhs_batch, rhs_free, rhs_contracting = right[:2], sorted(right[2:4]), right[4:]
    group_dims: tuple[int, ...] = ()
    sizes_rhs = dict(zip((*rhs_batch, *rhs_free, *rhs_contracting), (*b, *n, *k), strict=True))
    if mode == "free":
        group_dims = (rhs_free[int(random.integers(0, 2))],)
        sizes_rhs[group_dims[0]] = groups
    sizes_lhs = dict(zip((*lhs_batch, *lhs_free, *lhs_contracting), (*b, *m, *k), strict=True))
    kind = {"free": lhs_free, "contracting": lhs_contracting, "batch": lhs_batch}[mode]
    dims = RaggedDot(
        tuple(lhs_contracting),
        tuple(rhs_contracting),
        (kind[int(random.integers(0, 2))],),
        tuple(lhs_batch),
        tuple(rhs_batch),
        group_dims,
    )
    x, y = _arrays(random, dtype, *(tuple(sizes[d] for d in range(6)) for sizes in (sizes_lhs, sizes_rhs)))
    prefix = tuple(x.shape[d] for d in dims.prefix(6)) if random.integers(0, 2) else ()
    cuts = np.sort(random.integers(0, x.shape[dims.ragged] + 1, (*prefix, groups)), -1)
    group_sizes = np.diff(cuts, prepend=0, axis=-1).astype(np.int32)
    return Sample((x, y, group_sizes), dims._asdict())


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("mode", ["free", "contracting", "batch"])
def test_ragged_dot(generator: np.random.Generator, mode: str) -> None:
    for dtype in (np.float32, np.int16, ml_dtypes.bfloat16):
        sample = _random_ragged(generator, mode, dtype)
        op_checks.check_shape(ragged_dot, sample)
        op_checks.check_against(jax_oracle.oracle("ragged-dot"), ragged_dot, sample, scale=8)
        op_checks.check_compiled(tinyxla.jit, ragged_dot, sample)


@pytest.mark.parametrize("mode", ["free", "contracting", "batch"])
def test_ragged_dot_derivatives(generator: np.random.Generator, mode: str) -> None:
    for _ in range(3):
        operands, attributes = _random_ragged(generator, mode, np.float64)
        sample = Sample((operands[0] / 100, operands[1] / 100, operands[2]), attributes)
        op_checks.check_forward(ragged_dot, sample, generator)
        op_checks.check_reverse(ragged_dot, sample, generator)


@pytest.mark.parametrize("axes", [(0, None, None), (None, 1, None), (None, None, 0), (0, 2, None), (1, 0, 1)])
def test_ragged_dot_mapped(generator: np.random.Generator, axes: tuple[int | None, ...]) -> None:
    x, y = _arrays(generator, np.float32, (6, 3), (2, 3, 4))
    arrays = [
        v if axis is None else np.stack([v, np.flip(v), v], axis)
        for v, axis in zip((x, y, np.array([1, 4], np.int32)), axes, strict=True)
    ]
    found = np.asarray(tinyxla.jit(tinyxla.vmap(lax.ragged_dot, axes))(*arrays).numpy())
    for k in range(3):
        lane = [v if axis is None else np.take(v, k, axis) for v, axis in zip(arrays, axes, strict=True)]
        op_checks.assert_close([found[k]], [np.asarray(jax.lax.ragged_dot(*lane))], f"{axes}, lane {k}", scale=8)


SIZES = {"some": [200, 0, 310, 17], "too many": [300, 300, 300, 300], "none": [0, 0, 0, 0]}


@pytest.mark.parametrize("name", SIZES)
def test_large_ragged_dots(generator: np.random.Generator, name: str) -> None:
    """Value and cotangents, which are ragged dots of both kinds; natively, and with any number of threads."""
    x, y = (generator.normal(size=shape).astype(np.float32) for shape in ((600, 20), (4, 20, 30)))
    sizes = np.array(SIZES[name], np.int32)

    def all_of(x: Any, y: Any, sizes: Any) -> Any:
        value, pullback = tinyxla.vjp(lambda x, y: lax.ragged_dot(x, y, sizes), x, y)
        return (value, *pullback(value))

    compiled = tinyxla.jit(all_of)
    assert "host call" not in compiled.lower(x, y, sizes).compile().as_text()
    with num_threads(1):
        alone = [z.numpy() for z in compiled(x, y, sizes)]
    with num_threads(3):
        op_checks.assert_equal([z.numpy() for z in compiled(x, y, sizes)], alone, name)
    for a, b in zip(alone, all_of(*map(tinyxla.numpy.asarray, (x, y, sizes))), strict=True):
        np.testing.assert_allclose(a, b.numpy(), 1e-4, 1e-3)


def test_group_sizes_that_make_no_sense() -> None:
    """Nothing outside of the arrays is touched."""
    x, y = np.ones((40, 3), np.float32), np.ones((4, 3, 5), np.float32)
    for sizes in ([9, -3, 50, 1], [-1, -1, -1, 5], [2**31 - 1] * 4, [-(2**31), 7, 2**31 - 1, 1]):
        found = tinyxla.jit(lax.ragged_dot)(x, y, np.array(sizes, np.int32)).numpy()
        assert set(np.unique(found)) <= {0.0, 3.0}


def test_other_groups_do_not_matter() -> None:
    """Not even where they are infinite."""
    y = np.array([[[1.0]], [[np.inf]]], np.float32)
    found = tinyxla.jit(lax.ragged_dot)(np.ones((3, 1), np.float32), y, np.array([1, 1], np.int32))
    assert found.numpy().tolist() == [[1.0], [np.inf], [0.0]]


def test_ragged_dot_text(generator: np.random.Generator) -> None:
    (sample, *_) = ragged_dot.samples(generator)
    text = print_module(Module("sample", op_checks.graph_of(ragged_dot, sample)))
    assert "lhs_ragged_dims={0}, rhs_group_dims={0}" in text
    xla_oracle.parse(text)


# --- preferred types --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "subscripts", ["ij,jk->ik", "ij,kj->ki", "ij,ij->ij", "ij,ij->", "i,j->ij", "ij,k->j", "ij->i"]
)
@pytest.mark.parametrize(
    ("dtype", "wanted", "error"),
    [(ml_dtypes.bfloat16, np.float32, 2e-6), (np.float16, np.float32, 2e-6), (np.int8, np.int32, 0)],
)
def test_einsum_sums_in_the_preferred_type(
    subscripts: str, dtype: Any, wanted: Any, error: float, generator: np.random.Generator
) -> None:
    """Without being rounded to the operands' type first."""
    terms = subscripts.split("->")[0].split(",")
    operands = [(generator.normal(size=(40,) * len(t)) * 30).astype(dtype) for t in terms]
    exact = np.einsum(subscripts, *(x.astype(np.float64) for x in operands))
    sizes = np.einsum(subscripts, *(np.abs(x.astype(np.float64)) for x in operands))

    def function(*operands: Any) -> Any:
        return tnp.einsum(subscripts, *operands, preferred_element_type=wanted)

    for found in (function(*operands), tinyxla.jit(function)(*operands)):
        assert found.dtype == wanted
        assert np.all(np.abs(np.asarray(found, np.float64) - exact) <= error * sizes)


def test_einsum_of_three_sums_in_the_preferred_type(generator: np.random.Generator) -> None:
    operands = [generator.normal(size=s).astype(ml_dtypes.bfloat16) for s in ((20, 30), (30, 40), (40, 10))]

    def function(*operands: Any) -> Any:
        return tnp.einsum("ij,jk,kl->il", *operands, preferred_element_type=np.float32)

    expected = np.linalg.multi_dot([x.astype(np.float64) for x in operands])
    np.testing.assert_allclose(tinyxla.jit(function)(*operands), expected, 1e-5, 1e-4)
    slopes = tinyxla.grad(lambda *x: function(*x).sum(), (0, 2))(*operands)
    assert [g.dtype for g in slopes] == [ml_dtypes.bfloat16] * 2


# --- scaled -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sides", ["both", "left", "none"])
def test_scaled_dot(generator: np.random.Generator, sides: str) -> None:
    x, y = (v.astype(ml_dtypes.float8_e4m3fn) for v in (generator.normal(size=s) for s in ((2, 3, 64), (2, 64, 5))))
    scales = {
        "lhs_scale": generator.uniform(0.5, 4, (2, 3, 2)).astype(ml_dtypes.float8_e8m0fnu),
        "rhs_scale": generator.uniform(0.5, 4, (2, 4, 5)).astype(ml_dtypes.float8_e8m0fnu),
    }
    given = dict(list(scales.items())[: {"both": 2, "left": 1, "none": 0}[sides]])
    for options in ({}, {"preferred_element_type": np.float32}):
        call = functools.partial(_with_scales, options)
        found = tinyxla.jit(functools.partial(call, lax))(x, y, given)
        expected = jax.jit(functools.partial(call, jax.lax))(x, y, given)
        op_checks.assert_close([np.asarray(found.numpy())], [np.asarray(expected)], sides)


def _with_scales(options: dict[str, Any], ns: Any, x: Any, y: Any, scales: dict[str, Any]) -> Any:
    return ns.scaled_dot(x, y, **scales, **options)


def test_scaled_dot_text(generator: np.random.Generator) -> None:
    (sample, *_) = scaled_dot.samples(generator)
    text = print_module(Module("sample", op_checks.graph_of(scaled_dot, sample)))
    assert "scaled-dot(" in text
    xla_oracle.parse(text)


# --- errors -----------------------------------------------------------------------------------------------------------

X, Y, G = np.ones((4, 2), np.float32), np.ones((3, 2, 5), np.float32), np.array([1, 1, 2], np.int32)
ROWS = RaggedDot((1,), (1,), (0,), rhs_group_dims=(0,))


def _ragged(sizes: Any = G, y: Any = Y, **more: Any) -> Any:
    return ragged_dot(*map(tinyxla.numpy.asarray, (X, y, sizes)), **ROWS._replace(**more)._asdict())


def _scaled(x_scale: Any, x: Any = X) -> Any:
    return lax.scaled_dot(x, X.T, lhs_scale=x_scale)


_EXACT: Any = {"precision": "exact"}
_WITH_PRECISION: list[Callable[[], Any]] = [
    lambda: tnp.dot(2.0, 3.0, **_EXACT),
    lambda: tnp.matmul(X, X.T, **_EXACT),
    lambda: tnp.vdot(X, X, **_EXACT),
    lambda: tnp.vecdot(X, X, **_EXACT),
    lambda: tnp.inner(X, X, **_EXACT),
    lambda: tnp.tensordot(X, X.T, 1, **_EXACT),
    lambda: tnp.einsum("ij,kj", X, X, **_EXACT),
    lambda: tnp.convolve(X[0], X[0], **_EXACT),
    lambda: tnp.correlate(X[0], X[0], **_EXACT),
    lambda: tnp.linalg.matmul(X, X.T, **_EXACT),
    lambda: tnp.linalg.vecdot(X, X, **_EXACT),
    lambda: tnp.linalg.tensordot(X, X.T, axes=1, **_EXACT),
    lambda: tnp.linalg.multi_dot([X, X.T], **_EXACT),
    lambda: scipy.signal.convolve(X, X, **_EXACT),
    lambda: scipy.signal.convolve(X, X, method="fft", **_EXACT),
    lambda: scipy.signal.convolve2d(X, X, **_EXACT),
    lambda: scipy.signal.correlate(X, X, **_EXACT),
    lambda: scipy.signal.correlate2d(X, X, mode="same", **_EXACT),
    lambda: image.resize(X, (2, 2), "linear", **_EXACT),
]


@pytest.mark.parametrize(
    "product",
    [
        lambda x: tnp.dot(x, x.T, precision="highest"),
        lambda x: tnp.matmul(x[None], x.T, precision=lax.Precision.HIGHEST),
        lambda x: tnp.vecdot(x, x, precision=("highest", "highest")),
        lambda x: tnp.einsum("ij,kj", x, x, precision="float32"),
        lambda x: tnp.linalg.multi_dot([x, x.T, x], precision="highest"),
        lambda x: tnp.convolve(x[0], x[1], precision="highest"),
        lambda x: scipy.signal.correlate2d(x, x, precision="highest"),
        lambda x: image.resize(x, (2, 2), "linear", precision="highest"),
    ],
)
def test_precision_is_an_attribute_of_the_recorded_product(product: Callable[[Any], Any]) -> None:
    text = tinyxla.jit(product).lower(X).as_text()
    assert "operand_precision={highest,highest}" in text


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: lax.dot(X, X.T, preferred_element_type=np.int32), DTypeError, "products of f32 cannot be summed in"),
        (lambda: lax.dot(G, G, preferred_element_type=np.int16), DTypeError, "for integers not narrower"),
        (lambda: lax.dot(X, X.T, precision=("high",)), ArgumentError, "a pair of these"),
        (lambda: lax.dot(X, X.T, precision=3), ArgumentError, "precision must be None, fastest, .*, default, high"),
        *((call, ArgumentError, "precision must be None, .* but got 'exact'") for call in _WITH_PRECISION),
        (lambda: _ragged(lhs_ragged_dims=(0, 1)), AttributeValueError, r"must be one dimension, but got \(0, 1\)"),
        (lambda: _ragged(lhs_ragged_dims=(2,)), ShapeError, "lhs_ragged_dims"),
        (lambda: _ragged(rhs_group_dims=()), AttributeValueError, r"must name 1 of the free dimensions \(0, 2\)"),
        (lambda: _ragged(rhs_group_dims=(1,)), AttributeValueError, "must name 1 of the free"),
        (lambda: _ragged(lhs_ragged_dims=(1,)), AttributeValueError, "with a contracting dimension that is ragged"),
        (lambda: _ragged(X[0]), DTypeError, "group sizes must be integers"),
        (lambda: _ragged(G[None]), ShapeError, r"group sizes must be s32\[3\], but got s32\[1,3\]"),
        (lambda: _ragged(G[0]), ShapeError, "group sizes must be"),
        (lambda: _ragged(G[:2]), ShapeError, "must have 2 groups in dimension 0"),
        (lambda: _scaled(X[:, :0]), ShapeError, r"lhs_scale must have the sizes of f32\[4,2\]"),
        (lambda: _scaled(X[:2]), ShapeError, "or in the contracting dimensions"),
        (lambda: _scaled(G), DTypeError, r"must be floats, but got s32\[3\]; convert it"),
        (lambda: _scaled(X.astype(np.int32)), DTypeError, "operands and scales must be floats, but got s32"),
        (lambda: lax.scaled_dot(X[0], X[0]), ShapeError, "equal ranks of at least 2"),
    ],
)
def test_errors(call: Callable[[], Any], error: type[TinyxlaError], message: str) -> None:
    with pytest.raises(error, match=message):
        call()
