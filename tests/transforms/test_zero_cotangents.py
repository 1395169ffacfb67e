"""A zero cotangent or tangent stays zero, whatever it is multiplied by: see docs/automatic-differentiation.md."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tinyxla as tx
import tinyxla.numpy as tnp
from tests.support import op_checks
from tinyxla.compiler.pipeline import GRAPH
from tinyxla.ops import Sample, elementwise, ops
from tinyxla.ops.op import NotDifferentiable, Partials, Zero
from tinyxla.tracing import wrap
from tinyxla.transforms import jvp, vjp

# --- every op ---------------------------------------------------------------------------------------------------------

PRODUCTS = "sums of products are the BLAS's, which looks for no zeros: an infinite factor counts"
SINGULAR = "the inverse of a singular or infinite matrix counts"
EXCEPTIONS = {
    **dict.fromkeys(("convolution", "custom-call", "dot", "ragged-dot", "scaled-dot"), PRODUCTS),
    **dict.fromkeys(("Eig", "Eigh", "LuDecomposition", "Qr", "Solve", "Svd", "cholesky", "triangular-solve"), SINGULAR),
    "reduce-window": "a recurrence carries its infinite factors along",
}
OTHER = ("while", "while-pullback", "bitcast-convert")  # loops need not end for other values; bits need their width


def awkward(sample: Sample) -> Iterator[list[Any]]:
    """The sample's arrays, with values at which derivatives may be infinite or NaN in the place of all inexact ones."""
    arrays = op_checks.flat(op_checks.lifted(sample).operands)
    for values in ((0.0,), (1.0,), (-1.0,), (np.nan,), (np.inf,), (0.0, np.inf, -1.0, np.nan, 1.0)):
        yield [
            np.resize(np.array(values), x.shape).astype(x.dtype) if op_checks.is_inexact(x) and x.size else x
            for x in arrays
        ]


def spoils(function: Callable[..., list[Any]], arrays: list[Any]) -> bool:
    """Whether some derivative of the function along zeros is not zero."""
    inputs = [wrap(np.asarray(x)) for x in arrays]
    zeros = [wrap(np.zeros(x.shape, x.dtype)) if op_checks.is_inexact(x) else None for x in inputs]
    values, tangents = jvp(function, inputs, zeros)
    _, pullback = vjp(function, inputs)
    seeds = [wrap(np.zeros(y.shape, y.dtype)) if op_checks.is_inexact(y) else None for y in values]
    return any(x is not None and np.any(x.numpy() != 0) for x in [*tangents, *pullback(seeds)])


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("name", sorted(set(ops) - set(OTHER)))
def test_derivatives_along_zero_are_zero(name: str) -> None:
    op, spoiled = ops[name], False
    random = np.random.default_rng(zlib.crc32(name.encode()))
    for sample in itertools.islice(op.samples(random), 12):
        if isinstance(op_checks.derivative_kind(op, sample), (NotDifferentiable, Zero)):
            continue
        function = op_checks.on_arrays(op, op_checks.lifted(sample))
        spoiled = spoiled or any(spoils(function, arrays) for arrays in awkward(sample))
    assert spoiled == (name in EXCEPTIONS)


def test_a_plain_product_with_the_derivative_is_objected_to() -> None:
    root = Partials((lambda g, ans, x: elementwise.div(g, elementwise.add(ans, ans)),))
    sqrt = ops["sqrt"]
    right, sqrt.derivative = sqrt.derivative, root
    try:
        with pytest.raises(AssertionError):
            test_derivatives_along_zero_are_zero("sqrt")
    finally:
        sqrt.derivative = right


# --- programs ---------------------------------------------------------------------------------------------------------

Function = Callable[..., Any]
SECOND: dict[str, Function] = {
    "forward over reverse": lambda f: tx.jacfwd(tx.jacrev(f)),
    "reverse over reverse": lambda f: tx.jacrev(tx.jacrev(f)),
    "forward over forward": lambda f: tx.jacfwd(tx.jacfwd(f)),
    "reverse over forward": lambda f: tx.jacrev(tx.jacfwd(f)),
}
COMPILED: dict[str, Function] = {
    "eager": lambda f: f,
    "compiled": tx.jit,
    "mapped": lambda f: lambda x: tx.vmap(f)(tnp.stack([x]))[0],
}


def length(x: Any) -> Any:
    return tnp.sqrt((x * x).sum())


UNTAKEN: dict[str, tuple[Function, Any]] = {  # functions that are constant around a place
    "square root": (lambda x: tnp.where(x > 0, tnp.sqrt(x), 0).sum(), [0.0]),
    "cube root": (lambda x: tnp.where(x > 0, tnp.cbrt(x), 0).sum(), [0.0]),
    "reciprocal": (lambda x: tnp.where(x > 0, 1 / x, 0).sum(), [0.0]),
    "quotient": (lambda x: tnp.where(x > 0, x / x, 0).sum(), [0.0]),
    "logarithm": (lambda x: tnp.where(x > 0, tnp.log(x), 0).sum(), [0.0, -1.0]),
    "entropy": (lambda x: tnp.where(x > 0, x * tnp.log(x), 0).sum(), [0.0]),
    "logarithm of a root": (lambda x: tnp.where(x > 0, tnp.log(tnp.sqrt(x)), 0).sum(), [0.0, -1.0]),
    "power": (lambda x: tnp.where(x > 0, x**0.5 + x**-1.5, 0).sum(), [0.0, -1.0]),
    "angle": (lambda x: tnp.where(x > 0, tnp.arctan2(x, x), 0).sum(), [0.0]),
    "hypotenuse": (lambda x: tnp.where(x > 0, tnp.hypot(x, x), 0).sum(), [0.0]),
    "inverse sine": (lambda x: tnp.where(x < 1, 0, tnp.arcsin(x)).sum() * 0, [0.5]),
    "overflow": (lambda x: tnp.where(x < 1, 0, tnp.exp(x * 1e30) * x).sum(), [0.5]),
    "missing data": (lambda x: tnp.where(tnp.isnan(x), 0, tnp.tanh(x) * x).sum(), [np.nan]),
    "length": (lambda x: tnp.where((x > 0).any(), length(x), 0), [0.0, 0.0]),
    "direction": (lambda x: tnp.where((x > 0).any(), (x / length(x)).sum(), 0), [0.0, 0.0]),
    "norm": (lambda x: tnp.where((x > 0).any(), tnp.linalg.norm(x), 0), [0.0, 0.0]),
    "size of complex numbers": (lambda x: tnp.where(x > 0, tnp.abs(tnp.sqrt(x + 0j)), 0).sum(), [0.0]),
    "product": (lambda x: tnp.where((x > 0).all(), tnp.log(tnp.prod(x)), 0), [0.0, 0.0]),
}


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("run", COMPILED)
@pytest.mark.parametrize("what", UNTAKEN)
def test_the_branch_not_taken_has_no_say(what: str, run: str) -> None:
    function, x = UNTAKEN[what]
    x = tnp.array(x)
    for derivative in (tx.grad(function), tx.jacfwd(function)):
        np.testing.assert_array_equal(COMPILED[run](derivative)(x), 0)
    if run == "eager":
        for order in SECOND:
            np.testing.assert_array_equal(SECOND[order](function)(x), 0, order)


@pytest.mark.parametrize("run", COMPILED)
@pytest.mark.parametrize("order", SECOND)
def test_the_second_derivative_where_the_first_is_zero(order: str, run: str) -> None:
    """A zero cotangent stays zero, but its own derivative is not."""
    x = np.array([0.5, 1.0], np.float32)
    constant = np.sin(x)
    found = COMPILED[run](SECOND[order](lambda x: ((tnp.sin(x) - constant) ** 2).sum()))(tnp.array(x))
    np.testing.assert_allclose(found, np.diag(2 * np.cos(x) ** 2), 1e-5, 1e-6)


@pytest.mark.parametrize("inner", SECOND)
@pytest.mark.parametrize("outer", [tx.jacfwd, tx.jacrev], ids=["jacfwd", "jacrev"])
def test_the_third_derivative_where_the_first_is_zero(inner: str, outer: Function) -> None:
    x = 0.5
    constant = np.sin(np.float32(x))
    found = outer(SECOND[inner](lambda x: (tnp.sin(x) - constant) ** 2))(x)
    np.testing.assert_allclose(found, -6 * np.sin(x) * np.cos(x), 1e-5)


def test_an_infinite_derivative_that_counts_stays() -> None:
    assert tx.grad(tnp.sqrt)(0.0) == np.inf
    assert tx.grad(tnp.cbrt)(0.0) == np.inf
    assert np.isnan(tx.grad(length)(tnp.zeros(2))).all()
    assert np.isnan(tx.grad(lambda x: tnp.sqrt(x) * np.nan)(1.0))


def test_a_mask_of_minus_infinity() -> None:
    mask = np.array([[True, False], [False, False]])

    def attend(x: Any) -> Any:
        weights = tx.nn.softmax(tnp.where(mask, x, -np.inf), -1)
        return (tnp.where(mask.any(-1, keepdims=True), weights, 0) ** 2).sum()

    np.testing.assert_array_equal(tx.grad(attend)(tnp.ones((2, 2))), 0)


def test_values_of_a_matrix_of_which_some_are_equal() -> None:
    """Only the vectors, on which nothing depends here, have no derivative."""
    found = tx.grad(lambda x: tnp.linalg.eigh(x)[0].sum())(tnp.eye(3))
    np.testing.assert_allclose(found, np.eye(3), atol=1e-6)
    found = tx.grad(lambda x: tnp.linalg.svd(x)[1].sum())(tnp.eye(3))
    np.testing.assert_allclose(found, np.eye(3), atol=1e-6)
    found = tx.grad(lambda x: tnp.where(False, tnp.linalg.eigh(x)[1], 0).sum())(tnp.zeros((2, 2)))
    np.testing.assert_array_equal(found, 0)


def chained(function: Function, *args: Any) -> list[str]:
    """The products of the chain rule that are left when the function is compiled."""
    computation = tx.make_graph(function)(*args).entry
    for _, simplify, *_ in GRAPH:
        computation = simplify(computation)
    return [x.op.name for x in computation.instructions if x.op.name.startswith("chain")]


def test_finite_factors_need_no_care() -> None:
    x = tnp.ones((2, 3))
    numbers = np.arange(3)
    assert chained(tx.grad(lambda x: (tnp.where(x > 0, 2 * x / 3, 0) * numbers).mean()), x) == []
    assert chained(tx.grad(lambda x: tnp.where(x > 0, x * np.float32(np.inf), 0).sum()), x) == ["chain-multiply"]
    assert chained(tx.grad(lambda x: tnp.where(x > 0, x / 0, 0).sum()), x) == ["chain-divide"]
    assert chained(tx.grad(lambda x: tnp.where(x > 0, x * x, 0).sum()), x) == ["chain-multiply"]
    assert chained(tx.grad(lambda x: (x * x).sum()), x) == []
