"""`experimental.jet`: Taylor series of fourth order, next to nested forward derivatives."""

import math

import numpy as np
import pytest

import tinyxla as tx
import tinyxla.numpy as tnp
from tinyxla import lax
from tinyxla.errors import ArgumentError, DifferentiationError, ShapeError
from tinyxla.experimental.jet import jet

ORDER = 4

ELEMENTWISE = (
    "exp log sin cos tan sinh cosh tanh sqrt expm1 log1p arctan arcsin arccos arcsinh arctanh abs square reciprocal "
    "negative cbrt exp2 log2 cumsum cumprod sort sum prod max mean var floor sign"
)
SPECIAL = "logistic erf erfc erf_inv rsqrt digamma lgamma bessel_i0e"
BINARY = "add subtract multiply divide power arctan2 maximum minimum remainder hypot logaddexp dot outer"


def _numbers(*sizes, seed=0, low=0.2, high=0.8):
    return np.random.default_rng(seed).uniform(low, high, sizes)


def _newton(f, x0):
    return lax.fori_loop(0, 30, lambda i, y: y - f(y) / tx.grad(f)(y), x0)


def _root(x):
    return lax.custom_root(lambda y: y**3 - x, 1.0, _newton, lambda g, y: y / g(1.0))


def _matrix(seed):
    return _numbers(3, 3, seed=seed) + 3 * np.eye(3)


FUNCTIONS = {
    **{name: (getattr(tnp, name), [_numbers(3)]) for name in ELEMENTWISE.split()},
    **{name: (getattr(lax, name), [_numbers(3)]) for name in SPECIAL.split()},
    **{name: (getattr(tnp, name), [_numbers(3), _numbers(3, seed=1)]) for name in BINARY.split()},
    "arccosh": (tnp.arccosh, [_numbers(3, low=1.2, high=1.8)]),
    "cube_at_zero": (lambda x: x**3, [np.array([0.0, 1, -2])]),
    "inverse_square": (lambda x: x**-2, [np.array([3.0, 1, 2])]),
    "root_cubed": (lambda x: x**1.5, [np.array([3.0, 1, 2])]),
    "power_of_two": (lambda x: 2**x, [np.array([3.0, 1, 2])]),
    "where": (lambda x: tnp.where(x > 0.5, x**2, tnp.sin(x)), [_numbers(4)]),
    "clip": (lambda x: tnp.clip(x * x, 0.2, 0.6), [_numbers(4)]),
    "gather": (lambda x: x[tnp.array([1, 1, 0])] * x[0], [_numbers(4)]),
    "scatter": (lambda x: x.at[tnp.array([1, 1, 0])].add(x[:3] ** 2), [_numbers(4)]),
    "convolution": (
        lambda x, y: lax.conv_general_dilated(x, y, (1,), "SAME"),
        [_numbers(1, 2, 5), _numbers(2, 2, 3)],
    ),
    "softmax": (tx.nn.softmax, [_numbers(4)]),
    "relu": (tx.nn.relu, [_numbers(4) - 0.5]),
    "jit": (tx.jit(lambda x: {"a": tnp.sin(x) * x, "b": tnp.cos(x)}), [_numbers(4)]),
    "det": (tnp.linalg.det, [_matrix(2)]),
    "inv": (tnp.linalg.inv, [_matrix(3)]),
    "solve": (tnp.linalg.solve, [_matrix(4), _numbers(3)]),
    "cholesky": (lambda x: tnp.linalg.cholesky(x @ x.T), [_matrix(5)]),
    "eigenvalues": (lambda x: tnp.linalg.eigh(x + x.T)[0], [_matrix(6)]),
    "fourier": (lambda x: tnp.abs(tnp.fft.fft(x)), [_numbers(4)]),
    "complex": (lambda x: tnp.exp(1j * x) * x, [_numbers(4)]),
    "scan": (lambda x: lax.scan(lambda c, a: (tnp.sin(c * a), c), 1.0, x), [_numbers(4)]),
    "fori": (lambda x: lax.fori_loop(0, 3, lambda i, c: tnp.sin(c) * x, x), [_numbers(4)]),
    "while": (lambda x: lax.while_loop(lambda c: c < 10, lambda c: c * c + x, x), [np.array(1.7)]),
    "cond": (lambda x: lax.cond(x > 0, tnp.sin, lambda x: x**3, x), [np.array(1.7)]),
    "vmap": (tx.vmap(lambda x: tnp.sin(x).sum() * x), [_numbers(4, 2)]),
    "grad": (tx.grad(lambda x: tnp.sum(tnp.sin(x) ** 3)), [_numbers(4)]),
    "custom_root": (_root, [np.array(1.7)]),
}


def _series(arrays, seed=7):
    random = np.random.default_rng(seed)
    return [[tnp.array(random.normal(size=x.shape)) for _ in range(ORDER)] for x in arrays]


def _nested(function, primals, series):
    """The derivatives along the curve, by nested `jvp`."""

    def along(t):
        curves = [
            p + sum(c / math.factorial(k) * t**k for k, c in enumerate(s, 1))
            for p, s in zip(primals, series, strict=True)
        ]
        return tx.tree_util.tree_leaves(function(*curves))

    found = []
    for _ in range(ORDER):
        along = (lambda f: lambda t: tx.jvp(f, (t,), (tnp.ones_like(t),))[1])(along)
        found.append(along(tnp.array(0.0)))
    return list(zip(*found, strict=True))


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_jet_is_nested_forward_mode(name):
    function, arrays = FUNCTIONS[name]
    with tx.enable_x64(True):
        primals = [tnp.array(x) for x in arrays]
        series = _series(arrays)
        values, coefficients = jet(function, primals, series)
        np.testing.assert_allclose(*(tx.tree_util.tree_leaves(x)[0] for x in (values, function(*primals))))
        found = tx.tree_util.tree_leaves(coefficients, is_leaf=lambda x: isinstance(x, list))
        for terms, wanted in zip(found, _nested(function, primals, series), strict=True):
            for k, (x, y) in enumerate(zip(terms, wanted, strict=True), 1):
                np.testing.assert_allclose(x, y, rtol=1e-7, atol=1e-8, err_msg=f"order {k}")


@pytest.mark.parametrize("factorial_scaled", [True, False])
@pytest.mark.parametrize("name", ["exp", "log", "tanh", "power", "divide", "arctan2", "erf_inv", "softmax"])
def test_jet_has_the_factors_of_jax(name, factorial_scaled):
    jax = pytest.importorskip("jax")
    from jax.experimental.jet import jet as jax_jet

    function, arrays = FUNCTIONS[name]
    of_jax = getattr(jax.numpy, name, None) or getattr(jax.lax, name, None) or getattr(jax.nn, name)
    primals = [x.astype(np.float32) for x in arrays]
    series = [[np.asarray(c, np.float32) for c in terms] for terms in _series(arrays)]
    wanted, terms = jax_jet(of_jax, primals, series, factorial_scaled=factorial_scaled)
    value, found = jet(function, primals, series, factorial_scaled=factorial_scaled)
    np.testing.assert_allclose(value, wanted, rtol=1e-5)
    assert isinstance(found, list)
    for x, y in zip(found, terms, strict=True):
        assert x.dtype == np.float32
        np.testing.assert_allclose(x, y, rtol=2e-4, atol=1e-4)


def test_jet_power_with_constant_exponent_is_finite_at_zero():
    _, terms = jet(lambda x: tnp.power(x, 2.0), (tnp.array(0.0),), ([1.0, 0.0, 0.0],))
    np.testing.assert_allclose(terms, [0, 2, 0])


def test_jet_under_jit_grad_and_vmap():
    def second(x):
        return jet(tnp.sin, (x,), ([tnp.ones_like(x), tnp.zeros_like(x)],))[1][1]

    x = tnp.array([0.3, 0.7])
    np.testing.assert_allclose(tx.jit(second)(x), -np.sin(x), rtol=1e-6)
    np.testing.assert_allclose(tx.vmap(second)(x), -np.sin(x), rtol=1e-6)
    np.testing.assert_allclose(tx.vmap(tx.grad(second))(x), -np.cos(x), rtol=1e-6)


def test_jet_of_a_constant_and_of_integers_is_zero():
    value, terms = jet(lambda x: (tnp.ones(3), x.astype(int)), (1.0,), ([1.0, 2.0],))
    np.testing.assert_allclose(terms[0], np.zeros((2, 3)))
    assert terms[1] == [0, 0]
    assert value[1] == 1


def test_jet_of_order_zero_has_no_terms():
    value, terms = jet(tnp.sin, (0.0,), ([],))
    assert (float(value), terms) == (0.0, [])


def test_jet_of_wrong_arguments_raises():
    with pytest.raises(ValueError, match="jet terms have inconsistent lengths"):
        jet(tnp.add, (1.0, 2.0), ([1.0], [1.0, 2.0]))
    with pytest.raises(ValueError, match="primal value at position 0 is not an array"):
        jet(lambda x: x[0], ([1.0],), ([1.0],))
    with pytest.raises(ValueError, match="term 0 for argument 0 is not an array"):
        jet(lambda x: x, (1.0,), ([[1.0]],))
    with pytest.raises(ArgumentError, match="one for each"):
        jet(lambda x: x, (1.0,), ())
    with pytest.raises(ShapeError, match="argument's shape"):
        jet(lambda x: x, (1.0,), ([tnp.ones(2)],))
    with pytest.raises(DifferentiationError, match="no derivative"):
        jet(lambda x: tx.pure_callback(np.sin, x, x), (1.0,), ([1.0],))


def test_jet_of_a_call_grows_by_its_order_only():
    """The graph of order 8 has at most a few times the instructions of order 4, as recurrences are quadratic."""

    def size(order):
        graph = tx.make_graph(lambda x: jet(lambda x: tnp.tanh(tnp.sin(x) * x), (x,), ([1.0] * order,)))(0.5)
        return len(graph.entry.instructions)

    assert size(8) < 5 * size(4)
