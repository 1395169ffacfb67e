"""`lax`'s special functions, `lax.values`, attention, and the smaller NumPy functions against JAX and SciPy."""

from __future__ import annotations

import math
from typing import Any

import jax
import ml_dtypes
import mpmath
import numpy as np
import pytest
import scipy.special
from jax import numpy as jnp

import tinyxla as tx
from tinyxla import errors, lax, numpy as tnp
from tinyxla.scipy import special

ONE = ("lgamma", "digamma", "erfc", "bessel_i0e", "bessel_i1e")
POSITIVE = np.array([0.2, 0.5, 1.0, 1.7, 3.3, 10.0, 50.0], np.float32)
ALL = np.concatenate([POSITIVE, np.array([-2.5, -0.3, -1.0, 0.0, np.inf], np.float32)])
A, B = np.array([0.3, 1.0, 2.5, 7.0], np.float32), np.array([0.5, 2.0, 1.0, 3.0], np.float32)
X = np.array([0.2, 0.5, 0.7, 0.9], np.float32)


def same(ours: Any, theirs: Any, **tolerance: float) -> None:
    mine, yours = list(map(np.asarray, tx.tree.leaves(ours))), list(map(np.asarray, jax.tree.leaves(theirs)))
    assert [(x.shape, x.dtype) for x in mine] == [(y.shape, y.dtype) for y in yours]
    for x, y in zip(mine, yours, strict=True):
        np.testing.assert_allclose(x, y, **{"rtol": 2e-4, "atol": 2e-4, **tolerance})


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("name", ONE)
def test_functions_of_one_argument(name: str) -> None:
    ours, theirs = getattr(lax, name), getattr(jax.lax, name)
    slope = jax.grad(theirs)
    value, first, second = jax.jit(lambda x, y: (theirs(x), jax.vmap(slope)(y), jax.vmap(jax.grad(slope))(y)))(
        ALL, POSITIVE
    )
    same(ours(ALL), value, rtol=3e-6, atol=1e-6)
    same(tx.jit(tx.vmap(tx.grad(ours)))(POSITIVE), first, rtol=2e-5, atol=1e-6)
    same(tx.vmap(tx.grad(tx.grad(ours)))(POSITIVE), second, rtol=5e-4, atol=1e-5)
    assert ours(tnp.ones(2, "bfloat16")).dtype == tnp.bfloat16
    with pytest.raises(errors.DTypeError, match=f"lax.{name}: not defined for int32"):
        ours(np.arange(3, dtype=np.int32))


@pytest.mark.parametrize(
    ("dtype", "error"), [(np.float32, 6e-7), (np.float64, 2e-13)]
)  # SciPy's own error in the second
def test_complementary_error_function_in_its_tails(dtype: Any, error: float) -> None:
    x = np.linspace(-7, 9 if dtype == np.float32 else 26, 2001).astype(dtype)
    with tx.enable_x64():
        found = np.asarray(tx.jit(lax.erfc)(x))
        ends = np.asarray(lax.erfc(np.array([0.0, np.inf, -np.inf, np.nan, 60.0], dtype)))
    np.testing.assert_allclose(found, scipy.special.erfc(x.astype(np.float64)), error)
    assert found.dtype == dtype
    np.testing.assert_array_equal(ends, np.array([1.0, 0.0, 2.0, np.nan, 0.0], dtype))


def test_log_gamma_in_double_precision() -> None:
    x = np.linspace(-3.7, 30, 50)
    with tx.enable_x64():
        np.testing.assert_allclose(np.asarray(lax.lgamma(x)), scipy.special.gammaln(x), 1e-13, 1e-13)
        np.testing.assert_allclose(np.asarray(lax.digamma(x)), scipy.special.digamma(x), 1e-12, 1e-13)


@pytest.mark.sample(every=3)
@pytest.mark.parametrize(
    ("name", "operands", "by"),
    [
        ("igamma", (A, B), (0, 1)),
        ("igammac", (A, B), (0, 1)),
        ("betainc", (A, B, X), 2),
        ("zeta", (A + 1.5, B), ()),
        ("polygamma", (np.arange(4, dtype=np.float32), B), 1),
        ("igamma_grad_a", (A, B), ()),
        ("random_gamma_grad", (A, B), ()),
    ],
)
def test_functions_of_several_arguments(name: str, operands: tuple[Any, ...], by: Any) -> None:
    ours, theirs = getattr(lax, name), getattr(jax.lax, name)
    slopes = jax.grad(lambda *x: theirs(*x).sum(), by) if by != () else lambda *x: ()
    value, expected = jax.jit(lambda *x: (theirs(*x), slopes(*x)))(*operands)
    same(tx.jit(ours)(*operands), value, rtol=2e-5)
    if by != ():
        same(tx.grad(lambda *x: ours(*x).sum(), by)(*operands), expected, rtol=5e-5)


@pytest.mark.parametrize(("dtype", "error"), [(np.float32, 2e-6), (np.float64, 5e-12)])
def test_in_compiled_functions(dtype: Any, error: float) -> None:
    """They are loops and sums there, and SciPy's outside."""
    random = np.random.default_rng(0)
    a = (10 ** random.uniform(-2, 4, 500)).astype(dtype)
    near = (a * np.exp(random.normal(size=500) * np.minimum(2 / np.sqrt(a), 2))).astype(dtype)
    order, positive = random.uniform(1.05, 30, 500).astype(dtype), (10 ** random.uniform(-0.5, 4, 500)).astype(dtype)
    both = np.concatenate([np.linspace(-30, 30, 500), [0, 8, -8, 1e6]]).astype(dtype)
    edges = np.array([[0, 0, 1, -1, 1, np.inf, np.inf, 1, np.nan], [0, 1, 0, 1, -1, 1, np.inf, np.inf, 1]], dtype)
    with tx.enable_x64():
        for name, other, operands in (
            ("igamma", "gammainc", (a, near)),
            ("igammac", "gammaincc", (a, near)),
            ("zeta", "zeta", (order, positive)),
            ("bessel_i0e", "i0e", (both,)),
            ("bessel_i1e", "i1e", (both,)),
        ):
            found = np.asarray(tx.jit(getattr(lax, name))(*operands))
            assert found.dtype == dtype
            wanted = getattr(scipy.special, other)(*(x.astype(np.float64) for x in operands))
            np.testing.assert_allclose(found, wanted, error, 1e-30)
            if len(operands) == 2 and name != "zeta":
                np.testing.assert_array_equal(tx.jit(getattr(lax, name))(*edges), getattr(scipy.special, other)(*edges))


@pytest.mark.thorough
def test_derivatives_of_the_incomplete_gamma_function() -> None:
    """Also where a is a whole number, for which the continued fraction ends, but not that of the derivative."""
    at = np.array([[1, 1, 2, 3, 1.0001, 0.5, 10, 30, 1], [1.01, 5, 2.5, 3.1, 1.2, 1.5, 12, 31, 0.3]])
    with tx.enable_x64(), mpmath.workdps(40):
        wanted = [
            float(mpmath.diff(lambda a, x=x: mpmath.gammainc(a, 0, x, regularized=True), mpmath.mpf(a)))
            for a, x in at.T
        ]
        np.testing.assert_allclose(tx.jit(lax.igamma_grad_a)(*at), wanted, 1e-13)
        np.testing.assert_allclose(tx.jit(tx.vmap(tx.grad(lax.igammac)))(*at), -np.array(wanted), 1e-13)
        second = tx.jit(tx.grad(tx.grad(lax.igamma)))(2.5, 3.0)
        step = 1e-5
        moved = float(lax.igamma_grad_a(2.5 + step, 3.0)) - float(lax.igamma_grad_a(2.5 - step, 3.0))
        np.testing.assert_allclose(second, moved / (2 * step), 1e-4)


def test_signs_of_zeros() -> None:
    zeros = np.array([0.0, -0.0], np.float32)
    for odd in (special.i1, special.i1e, lax.bessel_i1e):
        for found in (odd(zeros), tx.jit(odd)(zeros)):
            np.testing.assert_array_equal(found, 0)
            np.testing.assert_array_equal(np.signbit(np.asarray(found)), [False, True])
    for gamma in (special.gamma, tx.jit(special.gamma)):
        np.testing.assert_array_equal(gamma(zeros), [np.inf, -np.inf])
    assert np.isnan(float(special.gammasgn(np.nan)))


def test_zeta_is_infinite_at_poles_however_far_below_zero() -> None:
    found = np.asarray(tx.jit(lax.zeta)(np.full(3, 2.0, np.float32), np.array([-np.inf, -1e30, 1.0], np.float32)))
    np.testing.assert_allclose(found, [np.inf, np.inf, np.pi**2 / 6], 1e-6)


def test_trigamma_below_zero() -> None:
    x = np.array([-0.5, -12.5, -30.3, 0.0, -3.0], np.float32)
    wanted = [float(mpmath.psi(1, v)) for v in x[:3]]
    np.testing.assert_allclose(tx.jit(lambda x: lax.polygamma(1.0, x))(x), [*wanted, np.inf, np.inf], 2e-6)
    np.testing.assert_allclose(tx.jit(tx.vmap(tx.grad(lax.digamma)))(x[:3]), wanted, 2e-6)


@pytest.mark.parametrize("transform", [lambda f: f, tx.jit, tx.vmap])
def test_polygamma_far_below_zero_is_that_of_its_fraction(transform: Any) -> None:
    """The sum over all numbers up to zero would take ten thousand million terms."""
    x = np.array([-1e10 - 0.25, -7.25, 3.0, -1e-20])
    with tx.enable_x64(True):
        for order in (1, 2):
            wanted = [float(mpmath.psi(order, v)) for v in x[1:]]
            found = transform(lambda x, m=order: lax.polygamma(float(m), x))(x)
            np.testing.assert_allclose(found[1:], wanted, 1e-13)
            np.testing.assert_allclose(found[0], wanted[0], 0.02)


def test_polygamma_of_a_number() -> None:
    """Its powers are products then, and its derivatives too."""
    x = np.array([1e-3, 0.3, 1.0, 2.5, 40.0, 1e4, -0.7, -7.3])
    for order in (0, 1, 2.0, 25):
        wanted, slopes = ([float(mpmath.psi(int(order) + more, v)) for v in x] for more in (0, 1))
        both = tx.jit(tx.vmap(tx.value_and_grad(lambda x, m=order: special.polygamma(m, x))))
        found = both(tnp.asarray(x, np.float64))
        np.testing.assert_allclose(found, (wanted, slopes), 1e-12, 1e-300)


def test_a_number_beside_doubles() -> None:
    """Both are doubles then, also where numbers of 32 bits are the default."""
    x = np.array([0.3, 1.5, 20.0])
    array = tnp.asarray(x, np.float64)
    np.testing.assert_allclose(special.betaln(2.5, array), scipy.special.betaln(2.5, x), 1e-13)
    np.testing.assert_allclose(tx.jit(special.betaln)(2.5, array), scipy.special.betaln(2.5, x), 1e-13)
    assert not lax.add(array, 1.0).weak_type
    assert lax.add(2.0, 1.0).weak_type


def test_derivatives_that_jax_lacks() -> None:
    with tx.enable_x64():
        for function, at in ((lax.zeta, (2.5, 1.5)), (lax.betainc, (1.5, 2.0, 0.3))):
            found = tx.grad(function)(*at)
            step = 1e-5
            expected = (function(at[0] + step, *at[1:]) - function(at[0] - step, *at[1:])) / (2 * step)
            np.testing.assert_allclose(float(found), float(expected), 1e-8)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.uint32, np.int64, np.uint64])
def test_mulhi(dtype: Any) -> None:
    limits = np.iinfo(dtype)
    x, y = np.random.default_rng(0).integers(limits.min, limits.max, (2, 20), dtype=dtype, endpoint=True)
    expected = [(int(a) * int(b)) >> limits.bits for a, b in zip(x, y, strict=True)]
    with tx.enable_x64():
        assert lax.mulhi(x, y).tolist() == expected
    with pytest.raises(errors.DTypeError, match="mulhi"):
        lax.mulhi(1.0, 2.0)


def test_values_and_shapes() -> None:
    same(lax.stack([X, A], 1), jax.lax.stack([X, A], 1))
    same(lax.unstack(np.ones((2, 3), np.float32), 1), jax.lax.unstack(np.ones((2, 3), np.float32), 1))
    same(lax.tile(X, [2]), jax.lax.tile(X, [2]))
    assert (lax.dtype(1), lax.dtype(float), lax.dtype(np.float64(1))) == (np.int32, np.float32, np.float32)
    assert lax.platform_dependent(3, default=lambda x: x + 1) == 4
    letters = ("NHWC", "HWIO", "NHWC")
    for name in ("conv_general_shape_tuple", "conv_transpose_shape_tuple"):
        given = ((1, 8, 8, 3), (2, 2, 3, 4), (2, 2), "SAME", letters)
        assert getattr(lax, name)(*given) == getattr(jax.lax, name)(*given)
    given = ((1, 3, 8, 8), (4, 3, 2, 2), (1, 2), "VALID")
    assert lax.conv_shape_tuple(*given[:3], "VALID") == (1, 4, 7, 4)
    assert lax.conv_general_permutations(letters) == jax.lax.conv_general_permutations(letters)
    with pytest.raises(errors.ShapeError, match="one number for each of 1 dimensions"):
        lax.tile(X, [2, 2])
    with pytest.raises(errors.PlatformError, match="neither a default"):
        lax.platform_dependent(3, cuda=lambda x: x)


ATTENTION: list[dict[str, Any]] = [
    {},
    {"is_causal": True},
    {"bias": np.linspace(0, 1, 120, dtype=np.float32).reshape(1, 4, 5, 6)},
    {"mask": np.arange(60).reshape(2, 1, 5, 6) % 3 > 0},
    {"scale": 0.3, "local_window_size": (1, 2)},
    {"local_window_size": 1, "is_causal": True},
    {"query_seq_lengths": np.array([3, 5]), "key_value_seq_lengths": np.array([6, 2])},
    {"return_residual": True},
]


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("options", ATTENTION, ids=lambda options: " ".join(options))
def test_attention(options: dict[str, Any]) -> None:
    random = np.random.default_rng(0)
    q = random.normal(size=(2, 5, 4, 8)).astype(np.float32)
    k, v = random.normal(size=(2, 2, 6, 2, 8)).astype(np.float32)

    def value(m: Any) -> Any:
        return lambda *x: m.nn.dot_product_attention(*x, **options)

    def gradient(m: Any) -> Any:
        return m.grad(lambda *x: m.tree.leaves(value(m)(*x))[0].sum(), (0, 1))

    expected, expected_gradient = jax.jit(lambda *x: (value(jax)(*x), gradient(jax)(*x)))(q, k, v)
    same(value(tx)(q, k, v), expected, rtol=1e-4, atol=1e-5)
    same(tx.jit(gradient(tx))(q, k, v), expected_gradient, rtol=1e-3, atol=1e-4)


def test_attention_without_batch_and_of_wrong_shapes() -> None:
    x = np.random.default_rng(0).normal(size=(5, 2, 4)).astype(np.float32)
    same(tx.nn.dot_product_attention(x, x, x), jax.nn.dot_product_attention(x, x, x), rtol=1e-4)
    with pytest.raises(errors.ShapeError, match="heads must be a multiple of groups"):
        tx.nn.dot_product_attention(x, x[:, :1], x)


def test_sparse_activations() -> None:
    x = np.linspace(-2, 2, 10, dtype=np.float32)
    for name in ("sparse_plus", "sparse_sigmoid"):
        ours, theirs = getattr(tx.nn, name), getattr(jax.nn, name)
        same(ours(x), theirs(x), rtol=1e-6)
        same(tx.vmap(tx.grad(ours))(x), jax.jit(jax.vmap(jax.grad(theirs)))(x), rtol=1e-6)


# --- numpy ------------------------------------------------------------------------------------------------------------


def test_divisors() -> None:
    a, b = np.random.default_rng(0).integers(-50, 50, (2, 12)).astype(np.int32)
    for name in ("gcd", "lcm"):
        ours, expected = getattr(tnp, name), getattr(np, name)(a, b)
        for f in (ours, tx.jit(ours), tx.vmap(ours)):
            same(f(a, b), expected)
    same(tnp.gcd(np.uint8(12), np.uint8(18)), jnp.gcd(np.uint8(12), np.uint8(18)))
    with pytest.raises(errors.DTypeError, match="gcd"):
        tnp.gcd(1.5, 2)


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("order", ["big", "little"])
def test_bits_of_bytes(axis: int | None, order: str) -> None:
    random = np.random.default_rng(0)
    bits, data = random.integers(0, 2, (3, 11)), random.integers(0, 256, (3, 4)).astype(np.uint8)
    counts = (None, 5, -3, 100)

    def results(numpy: Any) -> list[Any]:
        return [numpy.packbits(bits, axis, order), *(numpy.unpackbits(data, axis, n, order) for n in counts)]

    same(results(tnp), jax.jit(lambda: results(jnp))())


@pytest.mark.parametrize(("shape", "axis", "kind"), [((40, 1000), 1, "row"), ((1000, 64), 0, "column")])
def test_bits_of_bytes_by_vectors(shape: tuple[int, ...], axis: int, kind: str) -> None:
    """Groups of eight are reduced where they are: what lies in between is no reason to turn the array, and that rows
    are no whole number of vectors none to go through them one by one."""
    bits = np.random.default_rng(0).integers(0, 3, shape).astype(np.uint8)
    compiled = tx.jit(lambda x: tnp.packbits(x, axis)).lower(bits).compile()
    np.testing.assert_array_equal(compiled(bits), np.packbits(bits, axis))
    assert [step.kind for step in compiled.report().steps] == [kind]
    assert "vectorize.predicate.enable" not in compiled.kernels[0].llvm


def test_polynomials() -> None:
    p = np.array([0, 1.0, 2, -3, 0])
    np.testing.assert_allclose(np.sort_complex(np.asarray(tnp.roots(p))), np.sort_complex(np.roots(p)), 1e-5, 1e-6)
    given = np.array([1.0, 5, 6, 1]), np.array([1.0, 2])
    x = np.linspace(0, 1, 10, dtype=np.float32)
    y = (x**2 + np.sin(7 * x) / 10).astype(np.float32)
    both = np.stack([y, 2 * y], 1)

    def results(numpy: Any) -> tuple[list[Any], list[Any]]:
        fits = [((x, y, 2), {}), ((x, y, 2), {"cov": True}), ((x, both, 1), {"w": x + 1, "cov": "unscaled"})]
        exact = [numpy.poly(np.array([1.0, 2, 3])), numpy.polydiv(*given)]
        return exact, [numpy.polyfit(*arguments, **options) for arguments, options in fits]

    (found, fitted), (expected, near) = results(tnp), jax.jit(lambda: results(jnp))()
    same(found, expected)
    same(fitted, near, rtol=1e-2)


def test_histograms_of_points() -> None:
    points = np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32)
    x, y = points.T

    def results(numpy: Any) -> list[Any]:
        return [
            numpy.histogramdd(points, 3),
            numpy.histogram2d(x, y, [3, 4], density=True),
            numpy.histogramdd(points, (2, 3), range=((-1, 1), None), weights=x),
            numpy.sort_complex(points),
        ]

    same(results(tnp), jax.jit(lambda: results(jnp))())
    same(tnp.mask_indices(3, tnp.triu, 1), jnp.mask_indices(3, jnp.triu, 1))
    assert [tnp.iterable(x) for x in ([1], 1, np.ones(1), tnp.ones(()))] == [True, False, True, False]


@pytest.mark.parametrize("function", [lax.bessel_i0e, lax.bessel_i1e])
def test_series_in_single_precision_end_where_nothing_is_left(function: Any) -> None:
    text = tx.jit(function).lower(A).as_text()
    assert text.count(" multiply(") < 50, "each term of one of the two series is a product"


@pytest.mark.parametrize(
    ("name", "exact", "at"),
    [
        ("hyp1f1", mpmath.hyp1f1, (3.7, 3.3, 0.4)),
        ("hyp2f1", mpmath.hyp2f1, (0.5, 1.3, 2.2, 0.3)),
        ("betainc", lambda a, b, x: mpmath.betainc(a, b, 0, x, regularized=True), (2.5, 1.3, 0.4)),
        ("zeta", mpmath.zeta, (2.5, 1.3)),
    ],
)
def test_second_derivatives_by_parameters_equal_those_of_mpmath(name: str, exact: Any, at: tuple[float, ...]) -> None:
    function, values = getattr(tx.scipy.special, name), [np.float64(x) for x in at]
    with tx.enable_x64(True):
        rows = [tx.jacfwd(tx.grad(function, k), tuple(range(len(at))))(*values) for k in range(len(at))]
    for k, row in enumerate(rows):
        for m, found in enumerate(row):
            expected = mpmath.diff(exact, at, tuple((n == k) + (n == m) for n in range(len(at))))
            np.testing.assert_allclose(found, float(expected), rtol=2e-6, atol=1e-8)


@pytest.mark.parametrize("name", ["xlogy", "xlog1py", "rel_entr", "zeta", "betaln"])
def test_derivatives_of_compiled_functions_of_two_arguments_are_those_of_the_function(name: str) -> None:
    function = getattr(special, name)
    x, y = np.float32(2.5), np.float32(1.25)
    for derivative in (tx.jacfwd, tx.jacrev):
        expected = derivative(function, (0, 1))(x, y)
        np.testing.assert_allclose(derivative(tx.jit(function), (0, 1))(x, y), expected, rtol=1e-6)
        np.testing.assert_allclose(derivative(tx.jit(lambda y: function(2.5, y)))(y), expected[1], rtol=1e-6)


def _gamma_share(a: float, x: float, upper: bool) -> Any:
    """The regularized incomplete gamma functions with many digits; the lower one by its power series, where mpmath is
    slow."""
    mpmath.mp.dps = 30
    if a < 1e5:
        ends = (x, mpmath.inf) if upper else (0, x)
        return mpmath.gammainc(mpmath.mpf(a), *ends, regularized=True)
    term = total = mpmath.mpf(1)
    k = 1
    while term > total * mpmath.mpf(10) ** -22:
        term *= mpmath.mpf(x) / (mpmath.mpf(a) + k)
        total += term
        k += 1
    lower = mpmath.exp(a * mpmath.log(x) - x - mpmath.loggamma(mpmath.mpf(a) + 1)) * total
    return 1 - lower if upper else lower


@pytest.mark.thorough
@pytest.mark.parametrize("upper", [False, True])
def test_compiled_incomplete_gamma_functions_of_tiny_and_huge_parameters(upper: bool) -> None:
    """The upper share without the cancellation of 1 - P, and Temme's expansion above 1e6, against mpmath."""
    small = [(a, x) for a in (1e-300, 1e-10, 1e-3, 0.049, 0.051, 0.2, 0.49, 0.51) for x in (1e-3, 0.1, 0.99, 1.0, 1.01)]
    huge = [(a, a + d * math.sqrt(a)) for a in (0.99e6, 1.01e6) for d in (-5, -0.1, 0, 1, 3)]
    with tx.enable_x64():
        a, x = np.array([*small, *huge]).T
        found = np.asarray(tx.jit(lax.igammac if upper else lax.igamma)(a, x))
        for u, v, value in zip(a, x, found, strict=True):
            expected = _gamma_share(u, v, upper)
            assert abs(mpmath.mpf(float(value)) - expected) <= 1e-11 * abs(expected), (u, v)
        # The limit for a large parameter is the normal distribution; SciPy loses it here.
        at = 1e15 - 5 * math.sqrt(1e15)
        np.testing.assert_allclose(tx.jit(lax.igamma)(1e15, at), 2.866515718791939e-07, rtol=1e-5)
        # The median is 1/3 below a large parameter, so a - 1/2 is 1/6 below the median.
        huge_a = 2.0**31 + 0.5
        expected = 0.5 + 1 / (6 * math.sqrt(2 * math.pi * huge_a))
        np.testing.assert_allclose(tx.jit(lax.igammac)(huge_a, 2.0**31), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_normal_quantiles_and_slopes_of_narrow_types(dtype: Any) -> None:
    p, tolerance = np.array([0.01, 0.25, 0.5, 0.9], dtype), 2 * float(ml_dtypes.finfo(dtype).eps)
    for transform in (lambda f: f, tx.jit):
        found = transform(special.ndtri)(p)
        assert found.dtype == dtype
        np.testing.assert_allclose(np.float32(found), scipy.special.ndtri(np.float64(p)), tolerance, tolerance)
        x = np.array([-3.0, 0.0, 3.0], dtype)
        hazard = [math.exp(-v * v / 2 - scipy.special.log_ndtr(v)) / math.sqrt(2 * math.pi) for v in np.float64(x)]
        slope = transform(tx.vmap(tx.grad(special.log_ndtr)))(x)
        np.testing.assert_allclose(np.float32(slope), hazard, 4 * tolerance)


def test_scaled_bessel_function_has_its_second_derivative_next_to_zero() -> None:
    assert float(tx.grad(tx.grad(special.i0e))(np.float32(1e-38))) == pytest.approx(1.5)
    assert float(tx.grad(tx.grad(special.i1e))(np.float32(-1e-20))) == pytest.approx(1.0)


@pytest.mark.parametrize("function", [special.erfcx, special.dawsn])
def test_slopes_of_large_arguments_do_not_overflow(function: Any) -> None:
    for x in (np.float32(3e38), np.float16(60000.0)):
        for transform in (lambda f: f, tx.jit):
            assert abs(float(transform(tx.grad(function))(x))) < 1e-2


def test_derivatives_of_fresnel_integrals_are_exact_at_integers() -> None:
    for part, wanted in ((0, [1, 0, -1]), (1, [0, 1, 0])):
        slope = tx.vmap(tx.grad(lambda x, k=part: special.fresnel(x)[k]))(np.float32([1, 2, 3**0.5]))
        np.testing.assert_allclose(slope, wanted, atol=1e-6)


def test_slope_of_boxcox1p_keeps_the_digits_of_small_numbers() -> None:
    x, power = np.float32(1e-3), np.float32(1e4)
    expected = (1 + float(x)) ** (float(power) - 1)
    assert float(tx.grad(special.boxcox1p)(x, power)) == pytest.approx(expected, rel=1e-5)
    np.testing.assert_array_equal(tx.vmap(tx.grad(special.boxcox1p), (None, 0))(-1.0, np.float32([1, 2])), [1, 0])


def test_multigammaln_of_narrow_types_is_computed_in_32_bits() -> None:
    x = ml_dtypes.bfloat16(1e-3)
    assert math.isfinite(tx.grad(lambda x: special.multigammaln(x, 3))(x))


def test_slope_of_gamma_samples_where_the_density_underflows() -> None:
    """References by mpmath: that of the series or the continued fraction, divided by the density."""
    a = np.float32([1, 0.5, 10, 100, 3, 1000, 100, 316.22775, 100])
    x = np.float32([200, 150, 1e-30, 1e-3, 1000, 1, 500, 158.11388, 50])
    wanted = [
        5.8805075,
        6.9577063,
        7.14293e-30,
        1.1518032e-4,
        5.9979557,
        6.9151644e-3,
        2.0148903,
        0.69350682,
        0.69428493,
    ]
    for f in (lax.random_gamma_grad, tx.jit(lax.random_gamma_grad)):
        np.testing.assert_allclose(f(a, x), wanted, rtol=2e-6)
        np.testing.assert_allclose(f(np.float32([1e7, 2.0]), np.float32([1e7, 0])), [1, 0], rtol=1e-6)
        assert np.isnan(f(np.float32([1, -1, 2]), np.float32([np.inf, 1, -1]))).all()


def test_slope_of_boxcox_by_its_exponent_overflows_to_infinity() -> None:
    slope = tx.grad(special.boxcox, 1)
    assert [float(slope(x, p)) for x, p in [(1e30, 2.0), (1e-30, -2.0)]] == [np.inf, np.inf]
    assert float(slope(0.0, 2.0)) == 0.25
