"""The transformations that users call, against JAX: derivatives, batching, graphs, and all of them nested."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import tinyxla as tx
from tinyxla.errors import ConcretizationError, DifferentiationError

tnp = tx.numpy

RTOL, ATOL = 2e-4, 1e-5


class Point(NamedTuple):
    x: Any
    y: Any


def assert_close(actual: Any, expected: Any, rtol: float = RTOL, atol: float = ATOL) -> None:
    """Equal pytrees of arrays, to rounding, with equal element types and shapes."""
    leaves, tree = tx.tree_util.tree_flatten(actual)
    wanted, wanted_tree = tx.tree_util.tree_flatten(expected)
    assert tree == wanted_tree
    for x, y in zip(leaves, wanted, strict=True):
        assert x.dtype == y.dtype
        assert x.shape == y.shape
        kind = np.complex128 if np.iscomplexobj(y) else np.float64
        np.testing.assert_allclose(np.asarray(x).astype(kind), np.asarray(y).astype(kind), rtol, atol)


def both(function: Callable[[Any, Any], Any], rtol: float = RTOL, atol: float = ATOL) -> Any:
    """What `function(tinyxla, tinyxla.numpy)` gives, which is what `function(jax, jax.numpy)` gives."""
    actual, expected = (
        function(tx, tnp),
        jax.jit(lambda: function(jax, jnp))(),
    )  # one program is compiled sooner than many
    assert_close(actual, expected, rtol, atol)
    return actual


@pytest.fixture
def x(generator: np.random.Generator) -> np.ndarray[Any, Any]:
    return generator.normal(size=4).astype(np.float32)


@pytest.fixture
def matrix(generator: np.random.Generator) -> np.ndarray[Any, Any]:
    return generator.normal(size=(3, 4)).astype(np.float32)


@pytest.fixture
def parameters(generator: np.random.Generator) -> dict[str, Any]:
    def normal(*sizes: int) -> np.ndarray[Any, Any]:
        return generator.normal(size=sizes).astype(np.float32)

    return {
        "layers": [(normal(4, 5), normal(5)), (normal(5, 2), normal(2))],
        "scale": normal(),
        "point": Point(normal(2), None),
    }


def network(np_: Any) -> Callable[..., Any]:
    """A loss of nested parameters and a batch of inputs."""

    def loss(parameters: Any, inputs: Any, shift: Any = 0.0) -> Any:
        for weight, bias in parameters["layers"]:
            inputs = np_.tanh(inputs @ weight + bias)
        return np_.sum((inputs * parameters["scale"] - parameters["point"].x - shift) ** 2)

    return loss


# --- grad and value_and_grad ------------------------------------------------------------------------------------------


def polynomial(a: Any, b: Any, c: Any = 2.0) -> Any:
    return (a * a * b + b * b * b * c + a * c).sum()


@pytest.mark.parametrize("argnums", [0, 1, 2, -1, -3, (0,), (1, 0), (0, 1, 2), [2, 0], (-1, 0)], ids=str)
def test_argnums(argnums: Any, x: np.ndarray[Any, Any]) -> None:
    y, z = x + 1, np.float32(1.5)
    wanted = tuple(argnums) if isinstance(argnums, list) else argnums
    assert_close(tx.grad(polynomial, argnums)(x, y, z), jax.grad(polynomial, wanted)(x, y, z))
    assert_close(tx.value_and_grad(polynomial, argnums)(x, y, z), jax.value_and_grad(polynomial, wanted)(x, y, z))
    assert_close(tx.jit(tx.grad(polynomial, argnums))(x, y, z), jax.grad(polynomial, wanted)(x, y, z))


def test_gradients_of_pytrees(parameters: Any, matrix: np.ndarray[Any, Any]) -> None:
    both(lambda lib, np_: lib.grad(network(np_))(parameters, matrix))
    both(lambda lib, np_: lib.value_and_grad(network(np_))(parameters, matrix))
    both(lambda lib, np_: lib.grad(network(np_), (1, 0))(parameters, matrix))
    both(lambda lib, np_: lib.jit(lib.grad(network(np_)))(parameters, matrix))


def test_gradients_with_keyword_arguments(parameters: Any, matrix: np.ndarray[Any, Any]) -> None:
    both(lambda lib, np_: lib.grad(network(np_))(parameters, inputs=matrix, shift=1.0))
    both(lambda lib, np_: lib.jit(lib.value_and_grad(network(np_)))(parameters, inputs=matrix, shift=1.0))


def test_has_aux(x: np.ndarray[Any, Any]) -> None:
    def function_of(np_: Any) -> Callable[[Any], Any]:
        return lambda x: (np_.sum(np_.sin(x)), {"double": 2 * x, "all": [np_.cos(x)]})

    both(lambda lib, np_: lib.grad(function_of(np_), has_aux=True)(x))
    both(lambda lib, np_: lib.value_and_grad(function_of(np_), has_aux=True)(x))
    both(lambda lib, np_: lib.jit(lib.value_and_grad(function_of(np_), has_aux=True))(x))
    both(lambda lib, np_: lib.vmap(lib.grad(function_of(np_), has_aux=True))(np.stack([x, 2 * x])))
    both(lambda lib, np_: lib.jacfwd(function_of(np_), has_aux=True)(x))
    both(lambda lib, np_: lib.jacrev(function_of(np_), has_aux=True)(x))


def test_auxiliary_results_may_be_anything(x: np.ndarray[Any, Any]) -> None:
    seen = object()
    gradient, aux = tx.grad(lambda x: (x.sum(), ("text", seen, x[0], None)), has_aux=True)(x)
    assert_close(gradient, np.ones(4, np.float32))
    assert aux[:2] == ("text", seen)
    assert aux[3] is None
    assert float(aux[2]) == x[0]
    assert float(tx.numpy.sin(aux[2])) == pytest.approx(np.sin(x[0]))  # no tracer of a trace that has ended


def test_auxiliary_results_of_nested_derivatives(x: np.ndarray[Any, Any]) -> None:
    """The inner auxiliary result depends on what the outer derivative is taken by."""

    def function_of(lib: Any, np_: Any) -> Callable[[Any], Any]:
        def inner(x: Any) -> Any:
            return np_.sum(x**3), np_.sum(x**2)

        def outer(x: Any) -> Any:
            gradient, aux = lib.grad(inner, has_aux=True)(x)
            return np_.sum(gradient) * aux

        return outer

    both(lambda lib, np_: lib.grad(function_of(lib, np_))(x))
    both(lambda lib, np_: lib.jit(lib.grad(function_of(lib, np_)))(x))


def test_gradients_keep_the_type_of_their_argument() -> None:
    for dtype in (np.float16, ml_dtypes.bfloat16, np.float32):
        x = np.asarray([1.0, 2.0], dtype)
        both(lambda lib, np_, x=x: lib.value_and_grad(lambda x: np_.sum(x * x))(x), 1e-2)
        both(lambda lib, np_, x=x: lib.grad(lambda x: np_.sum(x.astype("float32") ** 2))(x), 1e-2)
    x = tnp.asarray([1.0, 2.0], "float64")
    assert tx.grad(lambda x: (x * x).sum())(x).dtype == np.float64
    assert tx.grad(lambda x: (x.astype("float32") ** 2).sum())(x).dtype == np.float64


@pytest.mark.parametrize(
    "function", [lambda x: x**3, lambda x: 3.0, lambda x: x, lambda x: x * np.float32(2)], ids=range(4)
)
def test_gradients_are_weak_where_jaxs_are(function: Callable[[Any], Any]) -> None:
    for value in (2.0, np.float32(2.0)):
        actual, expected = tx.value_and_grad(function)(value), jax.value_and_grad(function)(value)
        assert_close([tnp.asarray(x) for x in actual], [jnp.asarray(x) for x in expected])
        assert actual[1].weak_type == expected[1].weak_type


def test_bfloat16_trains_as_in_jax(generator: np.random.Generator) -> None:
    w, v = (generator.normal(size=(4, 4)).astype(ml_dtypes.bfloat16) for _ in range(2))

    def loss_of(np_: Any) -> Callable[[Any], Any]:
        return lambda w: np_.mean(np_.tanh(v @ w) ** 2)

    both(lambda lib, np_: lib.value_and_grad(loss_of(np_))(w), 4e-2, 2e-2)
    both(lambda lib, np_: lib.jit(lib.value_and_grad(loss_of(np_)))(w), 4e-2, 2e-2)


def test_what_does_not_depend_has_a_zero_gradient(x: np.ndarray[Any, Any]) -> None:
    both(lambda lib, np_: lib.grad(lambda t: np_.sum(t["used"]))({"used": x, "unused": x}))
    both(lambda lib, np_: lib.grad(lambda a, b: np_.sum(a), (0, 1))(x, x))
    both(lambda lib, np_: lib.grad(lambda a: np_.sum(np_.floor(a) + np_.round(a) + np_.sign(a)))(x))


def test_integers_may_take_part(x: np.ndarray[Any, Any]) -> None:
    indices = np.arange(4)[::-1]
    both(lambda lib, np_: lib.grad(lambda x, k: np_.sum(x * k * (k > 1)))(x, indices))
    both(lambda lib, np_: lib.grad(lambda x: np_.sum(x * x.astype("int32")))(x * 3))
    both(lambda lib, np_: lib.vjp(lambda x: (x * 2, x > 0), x)[0])
    with pytest.raises(DifferentiationError, match="argument 1 is s32"):
        tx.grad(lambda x, k: (x * k).sum(), 1)(x, indices)


def test_stop_gradient(x: np.ndarray[Any, Any]) -> None:
    both(lambda lib, np_: lib.grad(lambda x: np_.sum(x * lib.lax.stop_gradient(x * x)))(x))
    both(lambda lib, np_: lib.jvp(lambda x: x * lib.lax.stop_gradient(x), (x,), (x,)))
    both(lambda lib, np_: lib.grad(lambda t: np_.sum(lib.lax.stop_gradient(t)["a"] * t["a"]))({"a": x, "b": 1.0}))
    both(lambda lib, np_: lib.jit(lib.grad(lambda x: np_.sum(x * lib.lax.stop_gradient(np_.sin(x)))))(x))


# --- Python control flow on values ------------------------------------------------------------------------------------


def test_python_control_flow_under_grad() -> None:
    def function(lib: Any, x: Any) -> Any:
        while x < 10:
            x = x * 2
        if x > 12:
            return x * x
        total = 0.0
        for k in range(int(lib.lax.stop_gradient(x))):
            total = total + x * k
        return total

    own, theirs = partial(function, tx), partial(function, jax)
    for value in (0.7, 3.0, 11.0, 12.0):
        value = np.float32(value)
        assert_close(tx.grad(own)(value), jax.grad(theirs)(value))
        assert_close(tx.grad(tx.grad(own))(value), jax.grad(jax.grad(theirs))(value))
        assert_close(tx.jvp(own, (value,), (1.0,))[1], jax.jvp(theirs, (value,), (np.float32(1),))[1])


def test_values_can_be_looked_at_under_grad(capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[Any] = []

    def function(x: Any) -> Any:
        seen.extend(
            [
                float(tx.lax.stop_gradient(x[0])),
                int(tx.lax.stop_gradient(x[1])),
                bool(x[0] > 0),
                tx.lax.stop_gradient(x).tolist(),
                tx.lax.stop_gradient(x)[1].item(),
                f"{x[0]:.2f}",
                np.asarray(tx.lax.stop_gradient(x)).sum(),
            ]
        )
        print(x[0] * 2)
        for part in x:
            seen.append(float(tx.lax.stop_gradient(part)))
        return x.sum() * [1.0, 2.0, 3.0][x[1].astype("int32")]

    gradient = tx.grad(function)(np.array([0.5, 2.0], np.float32))
    assert_close(gradient, np.full(2, 3.0, np.float32))
    assert seen == [0.5, 2, True, [0.5, 2.0], 2.0, "0.50", 2.5, 0.5, 2.0]
    assert "1.0" in capsys.readouterr().out


def test_numpy_functions_under_grad(x: np.ndarray[Any, Any]) -> None:
    assert_close(tx.grad(lambda x: np.sum(np.sin(x) * x))(x), jax.grad(lambda x: jnp.sum(jnp.sin(x) * x))(x))


@pytest.mark.parametrize(
    "look",
    [
        lambda x: 1.0 if x > 0 else 2.0,
        lambda x: [0][int(x)],
        lambda x: float(x),
        lambda x: range(10)[x.astype("int32")],
        lambda x: np.asarray(x),
        lambda x: x.item(),
        lambda x: x and 1.0,
        lambda x: complex(x),
        lambda x: x.tolist(),
        lambda x: f"{x:.3f}",
        lambda x: sum(range(x.astype("int32"))),
    ],
    ids=["if", "int", "float", "index", "numpy", "item", "and", "complex", "tolist", "format", "range"],
)
@pytest.mark.parametrize(
    "around",
    [tx.jit, lambda f: tx.jit(tx.grad(f)), lambda f: tx.grad(tx.jit(f)), tx.make_graph],
    ids=["jit", "jit of grad", "grad of jit", "graph"],
)
def test_values_cannot_be_looked_at_inside_jit(around: Callable[..., Any], look: Callable[[Any], Any]) -> None:
    def function(x: Any) -> Any:
        look(x)
        return x * 1.0

    with pytest.raises(ConcretizationError, match=r"(?s)needs the value .* f|s.*test_api.py"):
        around(function)(1.0)
    assert float(tx.grad(lambda x: x * 2)(1.0)) == 2.0


def test_values_cannot_be_looked_at_inside_vmap(x: np.ndarray[Any, Any]) -> None:
    with pytest.raises(ConcretizationError, match=r"vmap"):
        tx.vmap(lambda x: x if x > 0 else -x)(x)
    with pytest.raises(ConcretizationError, match=r"vmap"):
        tx.vmap(tx.grad(lambda x: x if x > 0 else -x))(x)
    assert_close(tx.vmap(lambda y: y * (1.0 if tnp.asarray(2.0) > 1 else 0.0))(x), x)  # what is not mapped has a value


# --- vjp and jvp ------------------------------------------------------------------------------------------------------


def tree_function(np_: Any) -> Callable[..., Any]:
    def function(first: Any, second: Any) -> Any:
        return {
            "product": np_.outer(first["a"], second[0]),
            "sum": (np_.sum(np_.sin(first["a"])), first["b"] * second[1]),
            "none": None,
        }

    return function


@pytest.fixture
def trees(generator: np.random.Generator) -> tuple[Any, Any]:
    def normal(*sizes: int) -> np.ndarray[Any, Any]:
        return np.asarray(generator.normal(size=sizes), np.float32)

    return {"a": normal(3), "b": normal()}, (normal(2), normal(2, 2))


def test_vjp_of_pytrees(trees: tuple[Any, Any]) -> None:
    def run(lib: Any, np_: Any) -> Any:
        value, pullback = lib.vjp(tree_function(np_), *trees)
        cotangent = {
            "product": np.ones((3, 2), np.float32),
            "sum": (np.float32(2), np.ones((2, 2), np.float32)),
            "none": None,
        }
        return value, pullback(cotangent), pullback(value)

    both(run)


def test_jvp_of_pytrees(trees: tuple[Any, Any]) -> None:
    def run(lib: Any, np_: Any) -> Any:
        return lib.jvp(tree_function(np_), trees, tx.tree_util.tree_map(lambda x: x * 2 + 1, trees))

    both(run)
    both(lambda lib, np_: lib.jit(lambda p, t: lib.jvp(tree_function(np_), p, t))(trees, trees))


def test_has_aux_of_vjp_and_jvp(x: np.ndarray[Any, Any]) -> None:
    def function_of(np_: Any) -> Callable[[Any], Any]:
        return lambda x: (np_.sin(x), {"cosine": np_.cos(x)})

    def by_vjp(lib: Any, np_: Any) -> Any:
        value, pullback, aux = lib.vjp(function_of(np_), x, has_aux=True)
        return value, pullback(x), aux

    both(by_vjp)
    both(lambda lib, np_: lib.jvp(function_of(np_), (x,), (x,), has_aux=True))


def test_a_pullback_can_be_used_again_and_transformed(x: np.ndarray[Any, Any]) -> None:
    def run(lib: Any, np_: Any) -> Any:
        _, pullback = lib.vjp(lambda x: np_.sin(x) * x, x)
        return pullback(x), pullback(x), lib.vmap(pullback)(np.eye(4, dtype=np.float32)), lib.jit(pullback)(x)

    both(run)


def test_vjp_and_jvp_are_transposes(parameters: Any, matrix: np.ndarray[Any, Any]) -> None:
    function = lambda inputs: network(tnp)(parameters, inputs) * inputs  # noqa: E731
    _, tangent = tx.jvp(function, (matrix,), (matrix + 1,))
    _, pullback = tx.vjp(function, matrix)
    left = float(tnp.sum(tangent * np.cos(matrix)))
    right = float(tnp.sum(pullback(np.cos(matrix))[0] * (matrix + 1)))
    assert left == pytest.approx(right, 1e-4)


# --- Jacobians --------------------------------------------------------------------------------------------------------

JACOBIANS: dict[str, Callable[[Any], Callable[..., Any]]] = {
    "vector": lambda np_: lambda a, b: np_.sin(a) * np_.sum(b) + a[::-1],
    "matrix": lambda np_: lambda a, b: np_.outer(a, b * b),
    "scalar": lambda np_: lambda a, b: np_.sum(a) * np_.prod(b),
    "several": lambda np_: lambda a, b: {"x": a * 2, "y": (np_.sum(b), np_.outer(b, a))},
    "constant": lambda np_: lambda a, b: a * 0 + 1,
}


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("argnums", [0, 1, (0, 1), (1,), -1], ids=str)
@pytest.mark.parametrize("function_of", JACOBIANS.values(), ids=JACOBIANS)
@pytest.mark.parametrize("mode", ["jacfwd", "jacrev"])
def test_jacobians(mode: str, function_of: Callable[[Any], Any], argnums: Any, x: np.ndarray[Any, Any]) -> None:
    both(lambda lib, np_: getattr(lib, mode)(function_of(np_), argnums)(x, x[:3]))


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("mode", ["jacfwd", "jacrev", "hessian"])
def test_jacobians_of_pytrees(mode: str, trees: tuple[Any, Any]) -> None:
    def scalar(np_: Any) -> Callable[..., Any]:
        def function(first: Any, second: Any) -> Any:
            parts = tree_function(np_)(first, second)
            return np_.sum(parts["product"]) ** 2 + parts["sum"][0] * np_.sum(parts["sum"][1] ** 2)

        return function

    function_of = scalar if mode == "hessian" else tree_function
    for argnums in (0, 1, (0, 1)):
        both(lambda lib, np_, n=argnums: getattr(lib, mode)(function_of(np_), n)(*trees), 1e-3, 1e-4)
    both(lambda lib, np_: lib.jit(getattr(lib, mode)(function_of(np_)))(*trees), 1e-3, 1e-4)


def test_hessians(x: np.ndarray[Any, Any]) -> None:
    both(lambda lib, np_: lib.hessian(lambda x: np_.sum(np_.sin(x)) * np_.prod(x))(x))
    both(lambda lib, np_: lib.hessian(lambda a, b: np_.sum(a * a * b), (0, 1))(x, x + 1))
    both(lambda lib, np_: lib.jacrev(lib.jacfwd(lambda x: np_.exp(x) * x[0]))(x))
    both(lambda lib, np_: lib.vmap(lib.hessian(lambda x: np_.sum(x**3)))(np.stack([x, 2 * x])))


def test_jacobians_with_keyword_arguments(x: np.ndarray[Any, Any]) -> None:
    both(lambda lib, np_: lib.jacfwd(lambda x, power: x**power)(x, power=2))
    both(lambda lib, np_: lib.jacrev(lambda x, power: x**power)(x, power=2))


# --- higher derivatives -----------------------------------------------------------------------------------------------

SMOOTH: dict[str, Callable[[Any, Any], Any]] = {
    "power": lambda np_, x: x**4,
    "sine": lambda np_, x: np_.sin(2 * x),
    "tanh": lambda np_, x: np_.tanh(x),
    "exponential of square": lambda np_, x: np_.exp(-x * x),
    "quotient": lambda np_, x: x / (1 + x * x),
    "logarithm": lambda np_, x: np_.log(1 + x * x),
    "root": lambda np_, x: np_.sqrt(2 + np_.cos(x)),
    "power with variable exponent": lambda np_, x: (x * x + 1) ** x,
}


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("function", SMOOTH.values(), ids=SMOOTH)
def test_derivatives_up_to_the_third(function: Callable[[Any, Any], Any]) -> None:
    def run(lib: Any, np_: Any) -> Any:
        forward = reverse = jitted = lambda x: function(np_, x)
        found: list[Any] = []
        for _ in range(3):
            reverse = lib.grad(reverse)
            forward = lib.jacfwd(forward)
            jitted = lib.jit(lib.grad(jitted))
            found += [f(np.float32(0.6)) for f in (forward, reverse, jitted)]
        return found

    both(run, 1e-3, 1e-4)


# --- complex numbers --------------------------------------------------------------------------------------------------


def test_complex_functions_of_real_numbers(x: np.ndarray[Any, Any]) -> None:
    def function_of(np_: Any) -> Callable[[Any], Any]:
        return lambda x: np_.sum(np_.abs(np_.exp(1j * x) + x) ** 2) + np_.sum(np_.real((x + 1j) ** 2))

    both(lambda lib, np_: lib.grad(function_of(np_))(x))
    both(lambda lib, np_: lib.jit(lib.grad(function_of(np_)))(x))


def test_holomorphic_gradients(x: np.ndarray[Any, Any]) -> None:
    z = (x + 0.5j * x[::-1]).astype(np.complex64)

    def function_of(np_: Any) -> Callable[[Any], Any]:
        return lambda z: np_.sum(z**3 + np_.sin(z) * 2j)

    both(lambda lib, np_: lib.grad(function_of(np_), holomorphic=True)(z))
    both(lambda lib, np_: lib.jacfwd(lambda z: np_.exp(z) * z[0], holomorphic=True)(z))
    both(lambda lib, np_: lib.jacrev(lambda z: np_.exp(z) * z[0], holomorphic=True)(z))
    both(lambda lib, np_: lib.vjp(lambda z: np_.real(z * np_.conj(z)), z)[1](x))
    both(lambda lib, np_: lib.jvp(lambda z: z * np_.conj(z), (z,), (z,)))
    with pytest.raises(DifferentiationError, match="must return one floating-point number"):
        tx.grad(function_of(tnp))(z)
    for derivative in (tx.jacfwd, tx.jacrev):
        with pytest.raises(DifferentiationError, match="pass holomorphic=True"):
            derivative(function_of(tnp))(z)
    for derivative in (tx.grad, tx.jacfwd, tx.jacrev):
        with pytest.raises(DifferentiationError, match="with holomorphic=True it must be complex"):
            derivative(lambda x: tnp.sum(x), holomorphic=True)(x)


def test_gradients_of_real_functions_of_complex_numbers(x: np.ndarray[Any, Any]) -> None:
    z = (x + 0.5j * x[::-1]).astype(np.complex64)
    both(lambda lib, np_: lib.grad(lambda z: np_.sum(np_.abs(np_.sin(z)) ** 2 + np_.imag(np_.exp(z))))(z))
    both(lambda lib, np_: lib.jacrev(lambda z: np_.real(z * np_.conj(z) * z))(z))


# --- vmap -------------------------------------------------------------------------------------------------------------


def test_in_axes_and_out_axes(generator: np.random.Generator) -> None:
    a = generator.normal(size=(2, 3, 4)).astype(np.float32)
    b = generator.normal(size=(3,)).astype(np.float32)

    def function_of(np_: Any) -> Callable[..., Any]:
        return lambda x, y: np_.sum(x, 0) * y if np.ndim(y) == 0 else x @ (y if y.shape == x.shape[-1:] else x.T)

    for in_axes in (0, (0, None), (1, 0), [1, None], (-1, None), (2, None), (-2, 0)):
        for out_axes in (0, 1, -1):
            shape = (
                jax.eval_shape(
                    jax.vmap(function_of(jnp), tuple(in_axes) if isinstance(in_axes, list) else in_axes), a, b
                )
                if in_axes != 0
                else None
            )
            if shape is not None:
                axes = tuple(in_axes) if isinstance(in_axes, list) else in_axes
                assert_close(
                    tx.vmap(function_of(tnp), in_axes, out_axes)(a, b), jax.vmap(function_of(jnp), axes, out_axes)(a, b)
                )


def test_in_axes_as_a_prefix(generator: np.random.Generator) -> None:
    tree = {"w": generator.normal(size=(3, 2)).astype(np.float32), "b": (np.float32(2.0), np.ones((2, 3), np.float32))}
    y = generator.normal(size=3).astype(np.float32)

    def function(tree: Any, y: Any) -> Any:
        return {"product": tree["w"] * y.sum(), "sum": tree["b"][0] + tree["b"][1] + y.sum()}

    for in_axes in (
        ({"w": 0, "b": (None, 1)}, 0),
        ({"w": 0, "b": (None, -1)}, None),
        ({"w": None, "b": None}, 0),
        (None, 0),
    ):
        for out_axes in (0, {"product": 1, "sum": 0}, {"product": -1, "sum": -1}):
            both(lambda lib, np_, i=in_axes, o=out_axes: lib.vmap(function, i, o)(tree, y))


def test_results_that_are_the_same_for_all(x: np.ndarray[Any, Any]) -> None:
    both(lambda lib, np_: lib.vmap(lambda x: (x, np_.ones(2)), out_axes=(0, None))(x))
    both(lambda lib, np_: lib.vmap(lambda x: (x, np_.ones(2)), out_axes=(0, 1))(x))
    both(lambda lib, np_: lib.vmap(lambda x, y: y * 2, (0, None), None)(x, np.float32(3)))
    both(lambda lib, np_: lib.vmap(lambda x: 1.0)(x))


def test_axis_size() -> None:
    both(lambda lib, np_: lib.vmap(lambda: np_.arange(3), axis_size=2)())
    both(lambda lib, np_: lib.vmap(lambda x: x * 2, in_axes=None, axis_size=3)(np.ones(2, np.float32)))
    both(lambda lib, np_: lib.vmap(lambda x: x * 2, axis_size=3)(np.ones(3, np.float32)))
    both(lambda lib, np_: lib.vmap(lambda x: x.sum())(np.ones((0, 3), np.float32)))


def test_keyword_arguments_of_vmap(x: np.ndarray[Any, Any]) -> None:
    both(lambda lib, np_: lib.vmap(lambda x, y, z: x * y + z, in_axes=(0, None))(x, np.float32(2), z=x))
    both(lambda lib, np_: lib.vmap(lambda t: t["a"] + t["b"])(t={"a": x, "b": x}))


def test_what_is_not_mapped_over_may_be_anything(x: np.ndarray[Any, Any]) -> None:
    both(lambda lib, np_: lib.vmap(lambda x, n: x * sum(range(n)), (0, None))(x, 3))
    both(lambda lib, np_: lib.vmap(lambda x, t: x * t["a"] + len(t["b"]), (0, None))(x, {"a": 2, "b": "text"}))
    powered = lambda x, n: x**n if isinstance(n, int) else None  # noqa: E731
    both(lambda lib, np_: lib.vmap(lib.jit(powered, static_argnums=1), (0, None))(x, 3))
    both(lambda lib, np_: lib.vmap(lib.grad(lib.jit(powered, static_argnums=1)), (0, None))(x, 3))


def test_nested_vmap(matrix: np.ndarray[Any, Any]) -> None:
    y = matrix[:, :3].T @ matrix[:, :3]
    both(lambda lib, np_: lib.vmap(lib.vmap(lambda a, b: a * b, (0, None)), (None, 0))(matrix[0], matrix[1]))
    both(lambda lib, np_: lib.vmap(lambda a: lib.vmap(lambda b: a @ b, in_axes=1)(y))(y))
    both(lambda lib, np_: lib.vmap(lib.vmap(lib.vmap(np_.sin)), 1, 2)(np.ones((2, 3, 4), np.float32)))


def test_vmap_of_functions_with_reductions_and_indices(matrix: np.ndarray[Any, Any]) -> None:
    both(lambda lib, np_: lib.vmap(lambda r: np_.stack([r.sum(), r.max(), r[1:].prod(), r[::-1][0]]))(matrix))
    both(lambda lib, np_: lib.vmap(lambda r, k: r[k], (0, None))(matrix, np.int32(2)))
    both(lambda lib, np_: lib.vmap(lambda r, k: r[k])(matrix, np.array([0, 3, 1], np.int32)))
    both(lambda lib, np_: lib.vmap(lambda r: np_.where(r > 0, r, -r) / np_.linalg.norm(r))(matrix))


# --- every order ------------------------------------------------------------------------------------------------------


def summed(lib: Any, function: Callable[[Any], Any], np_: Any) -> Callable[[Any], Any]:
    return lambda x: np_.sum(function(x))


STEPS: dict[str, Callable[[Any, Any, Callable[[Any], Any]], Callable[[Any], Any]]] = {
    "jit": lambda lib, np_, f: lib.jit(f),
    "grad": lambda lib, np_, f: lib.grad(summed(lib, f, np_)),
    "vmap": lambda lib, np_, f: lib.vmap(f),
    "jvp": lambda lib, np_, f: lambda x: lib.jvp(f, (x,), (np_.ones_like(x),))[1],
}


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("names", list(itertools.product(STEPS, repeat=3)), ids="-".join)
def test_transformations_in_any_order(names: tuple[str, ...], generator: np.random.Generator) -> None:
    x = generator.normal(size=(2, 3, 2, 2)).astype(np.float32)

    def run(lib: Any, np_: Any) -> Any:
        function: Callable[[Any], Any] = lambda x: np_.sin(x) @ np_.exp(-x) * x  # noqa: E731
        for name in reversed(names):
            function = STEPS[name](lib, np_, function)
        return function(x)

    both(run, 1e-3, 1e-4)


def test_per_example_gradients(parameters: Any, matrix: np.ndarray[Any, Any]) -> None:
    both(lambda lib, np_: lib.jit(lib.vmap(lib.grad(network(np_)), (None, 0)))(parameters, matrix))


def test_hessian_vector_products(parameters: Any, matrix: np.ndarray[Any, Any]) -> None:
    def run(lib: Any, np_: Any) -> Any:
        gradient = lib.grad(lambda p: network(np_)(p, matrix))
        forward = lib.jvp(gradient, (parameters,), (parameters,))[1]
        reverse = lib.vjp(gradient, parameters)[1](parameters)[0]
        return forward, reverse, lib.jit(lambda p: lib.jvp(gradient, (p,), (p,))[1])(parameters)

    both(run, 1e-3, 1e-3)


def test_a_training_loop(parameters: Any, matrix: np.ndarray[Any, Any]) -> None:
    def run(lib: Any, np_: Any) -> Any:
        @lib.jit
        def step(p: Any) -> Any:
            value, gradient = lib.value_and_grad(network(np_))(p, matrix)
            return tx.tree_util.tree_map(lambda x, g: x - 0.01 * g, p, gradient), value

        p, values = parameters, []
        for _ in range(10):
            p, value = step(p)
            values.append(value)
        return p, values

    _, values = both(run, 2e-3, 1e-3)
    assert float(values[-1]) < float(values[0])


# --- graphs and shapes ------------------------------------------------------------------------------------------------


def test_eval_shape(parameters: Any, matrix: np.ndarray[Any, Any]) -> None:
    def function_of(np_: Any) -> Callable[..., Any]:
        return lambda p, m: {"loss": network(np_)(p, m), "parts": (m.astype("int32"), m[0] > 0, p["scale"])}

    found = tx.eval_shape(function_of(tnp), parameters, matrix)
    expected = jax.eval_shape(function_of(jnp), parameters, matrix)
    pairs = zip(tx.tree_util.tree_leaves(found), tx.tree_util.tree_leaves(expected), strict=True)
    assert all(x.shape == y.shape and x.dtype == y.dtype for x, y in pairs)
    structures = tx.tree_util.tree_map(lambda x: tx.ShapeDtypeStruct(x.shape, x.dtype), (parameters, matrix))
    assert tx.eval_shape(function_of(tnp), *structures) == found


def test_eval_shape_computes_nothing() -> None:
    huge = tx.ShapeDtypeStruct((1 << 20, 1 << 20), "float32")
    found = tx.eval_shape(lambda x: x @ x.T, huge)
    assert found.shape == (1 << 20, 1 << 20)
    assert (found.ndim, found.size) == (2, 1 << 40)
    assert tx.eval_shape(lambda x: x * 2, 1.0).weak_type


def test_make_graph(x: np.ndarray[Any, Any]) -> None:
    module = tx.make_graph(lambda x, scale: tnp.sin(x) * scale)(x, scale=2.0)
    names = [instruction.op.name for instruction in module.entry.instructions]
    assert names.count("parameter") == 2
    assert {"sine", "multiply", "broadcast"} <= set(names)
    gradient = tx.make_graph(tx.grad(lambda x: tnp.sin(x)))(1.0)
    assert "cosine" in [instruction.op.name for instruction in gradient.entry.instructions]
    lines = {instruction.source.file for instruction in module.entry.instructions if instruction.source}
    assert lines == {__file__}


def test_device_functions(x: np.ndarray[Any, Any]) -> None:
    put = tx.device_put({"a": x, "b": [1.0, np.arange(2)]})
    assert all(isinstance(leaf, tx.Array) for leaf in tx.tree_util.tree_leaves(put))
    assert tx.block_until_ready(put) is put
    back = tx.device_get(put)
    assert type(back["a"]) is np.ndarray
    np.testing.assert_array_equal(back["a"], x)
    assert back["b"][1].dtype == np.int32


# --- documentation ----------------------------------------------------------------------------------------------------


def test_public_functions_are_documented() -> None:
    for module in (tx, tx.lax, tx.nn, tx.random, tx.tree_util):
        for name in dir(module):
            found = getattr(module, name)
            ours = str(getattr(found, "__module__", "")).startswith("tinyxla")
            if ours and not name.startswith("_") and callable(found):
                assert found.__doc__, f"{module.__name__}.{name} has no docstring"
