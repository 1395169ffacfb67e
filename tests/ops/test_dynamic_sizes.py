"""Dimensions whose size the program learns when it runs, against NumPy on arrays of the real sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import tinyxla as tx
import tinyxla.numpy as jnp
from tinyxla import errors, lax
from tinyxla.backends import compile_module
from tinyxla.hlo import Computation, Module, verify
from tinyxla.ops import dynamic_sizes, movement, reduction, sorting, windows
from tinyxla.ops.products import contraction
from tinyxla.shapes import Shape, WindowDimension, element_type
from tinyxla.tracing.core import trace
from tinyxla.transforms import conditional, while_

Array = np.ndarray[Any, Any]
BOUND = Shape(element_type("f32"), (6, 3), None, (True, False))
S32, F32 = Shape(element_type("s32")), Shape(element_type("f32"))
SIZES = (0, 1, 4, 6)


def computation(function: Callable[..., Sequence[Any]], *shapes: Shape, as_tuple: bool = True) -> Computation:
    made, _, _ = trace(function, shapes, "test")
    if as_tuple:
        return made
    return Computation("test", made.parameters, made.instructions[:-1], made.root.operands[0])


def results(function: Callable[..., Sequence[Any]], *arguments: Array, backend: str) -> list[Array]:
    """What a program gives whose matrices are parameters with a dynamic first dimension."""
    shapes = [BOUND if x.ndim == 2 else Shape.of(x) for x in arguments]
    module = Module("test", computation(function, *shapes))
    verify(module)
    return compile_module(module, backend)(arguments)


def matrix(rows: int) -> Array:
    return np.random.default_rng(rows).normal(size=(rows, 3)).astype(np.float32) + 2


def length(x: Any, d: int = 0) -> Any:
    return dynamic_sizes.get_dimension_size(x, dimensions=(d,))


def with_length(x: Any, n: Any, d: int = 0) -> Any:
    return dynamic_sizes.set_dimension_size(x, n, dimensions=(d,))


def flattened(x: Any) -> Any:
    count = length(x, 0) * length(x, 1)
    return dynamic_sizes.dynamic_reshape(x, count, sizes=(18,), dims_are_dynamic=(True,))


def sums_of_three(x: Any) -> Any:
    window = (WindowDimension(3, padding_low=1, padding_high=1), WindowDimension(1))
    start = movement.full(0, np.float32)
    return windows.reduce_window(x, start, window=window, to_apply=reduction.scalar_computation("add", np.float32))


def sums_of_three_in_numpy(x: Array) -> Array:
    wide = np.pad(x, ((1, 1), (0, 0)))
    return wide[:-2] + wide[1:-1] + wide[2:] if len(x) else x


def by_first_column(x: Any) -> Any:
    """Whole rows sorted by a variadic sort: two operands, by the first."""
    comparator = computation(lambda a, b, c, d: [a < b], F32, F32, F32, F32, as_tuple=False)
    _, carried = sorting.sort(x, -x, dimensions=(0,), is_stable=True, to_apply=comparator)
    return carried


def convolved(x: Any) -> Any:
    """Along the dynamic dimension, with the columns as features."""
    kernel = jnp.reshape(jnp.arange(6.0), (2, 3, 1))
    return lax.conv_general_dilated(1 / x[None], kernel, (2,), [(1, 1)], dimension_numbers=("NWC", "WIO", "NWC"))


def convolved_in_numpy(x: Array) -> Array:
    wide, kernel = np.pad(1 / x, ((1, 1), (0, 0))), np.arange(6.0).reshape(2, 3)
    places = range(0, max(0, len(x) + 1), 2)
    return np.array([(wide[k : k + 2] * kernel).sum() for k in places], np.float32).reshape(1, -1, 1)


def counted(x: Any) -> Any:
    """How many rows begin with a number, scattered."""
    return jnp.zeros(9, jnp.int32).at[jnp.int32(x[:, 0])].add(1)


def counted_in_numpy(x: Array) -> Array:
    places = x[:, 0].astype(np.int32)
    return np.bincount(np.where(places < 0, places + 9, places), minlength=9)[:9].astype(np.int32)


PROGRAMS: dict[str, tuple[Callable[[Any], Any], Callable[[Array], Array]]] = {
    "sum": (jnp.sum, np.sum),
    "sum of columns": (lambda x: jnp.sum(x, 0), lambda x: x.sum(0)),
    "largest": (jnp.max, lambda x: x.max(initial=-np.inf)),
    "product of a quotient": (lambda x: jnp.prod(1 / (x * 0), 0), lambda x: np.prod(1 / (x * 0), 0)),
    "element by element": (lambda x: jnp.exp(x) * x, lambda x: np.exp(x) * x),
    "transposed": (jnp.transpose, np.transpose),
    "broadcast": (lambda x: jnp.broadcast_to(x, (2, 6, 3)), lambda x: np.broadcast_to(x, (2, *x.shape))),
    "size": (length, lambda x: np.asarray(len(x), np.int32)),
    "dot": (lambda x: jnp.dot((1 / x).T, x), lambda x: np.dot((1 / x).T, x)),
    "outer dot": (lambda x: jnp.dot(x, x.T), lambda x: np.dot(x, x.T)),
    "concatenate": (lambda x: movement.concatenate(x, 2 * x, dimension=0), lambda x: np.concatenate([x, 2 * x])),
    "concatenate across": (lambda x: movement.concatenate(x, x, dimension=1), lambda x: np.concatenate([x, x], 1)),
    "reverse": (lambda x: x[::-1], lambda x: x[::-1]),
    "slice": (lambda x: x[1:5:2], lambda x: x[1:5:2]),
    "pad": (lambda x: jnp.pad(x, ((1, 2), (0, 1))), lambda x: np.pad(x, ((1, 2), (0, 1)))),
    "sort": (lambda x: jnp.sort(x, 0), lambda x: np.sort(x, 0)),
    "sort along": (by_first_column, lambda x: -np.sort(x, 0)),
    "cumulative": (lambda x: jnp.cumsum(x, 0), lambda x: np.cumsum(x, 0)),
    "convolution": (convolved, convolved_in_numpy),
    "scatter": (counted, counted_in_numpy),
    "gather": (lambda x: jnp.arange(9.0)[jnp.int32(x)], lambda x: np.arange(9.0, dtype=np.float32)[x.astype(int)]),
    "windows": (sums_of_three, sums_of_three_in_numpy),
    "flattened": (flattened, np.ravel),
    "after a smaller size": (lambda x: flattened(with_length(x, jnp.int32(2), 1)), lambda x: x[:, :2].ravel()),
    "reduced after a smaller size": (lambda x: jnp.sum(with_length(x, jnp.int32(2), 1), 1), lambda x: x[:, :2].sum(1)),
}


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("backend", ["numba", "interpreter"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_padding_is_ignored(name: str, backend: str) -> None:
    function, expected = PROGRAMS[name]
    for rows in SIZES:
        x = matrix(rows)
        (found,) = results(lambda x: [function(x)], x, backend=backend)
        with np.errstate(all="ignore"):
            wanted = expected(x)
        assert found.shape == wanted.shape, (rows, found.shape, wanted.shape)
        np.testing.assert_allclose(found, wanted, 1e-5)


@pytest.mark.parametrize("backend", ["numba", "interpreter"])
def test_sizes_go_through_loops_and_branches(backend: str) -> None:
    index = computation(lambda i, x: [i < 3], S32, BOUND, as_tuple=False)
    body = computation(lambda i, x: [i + 1, x * 2 + 1], S32, BOUND)
    halves = tuple(computation(lambda x, k=k: [x / k], BOUND) for k in (2, 3))

    def program(x: Any) -> list[Any]:
        _, y = while_(jnp.int32(0), x, condition=index, body=body)
        (z,) = conditional(jnp.sum(y) > 0, y, branch_computations=halves)
        return [z, jnp.sum(z)]

    for rows in SIZES:
        x = matrix(rows)
        wanted = (((x * 2 + 1) * 2 + 1) * 2 + 1) / (2 if rows else 3)
        found = results(program, x, backend=backend)
        np.testing.assert_allclose(found[0], wanted, 1e-5)
        np.testing.assert_allclose(found[1], wanted.sum(), 1e-5)


@pytest.mark.parametrize("run", [tx.jit, lambda f: f], ids=["jit", "eager"])
def test_a_size_that_is_set_reaches_the_result(run: Any) -> None:
    x = jnp.arange(5.0)
    for size, wanted in ((3, 3), (0, 0), (5, 5), (9, 5), (-1, 0)):
        found = run(with_length)(x, jnp.int32(size))
        np.testing.assert_array_equal(found, np.arange(5.0)[:wanted])


def test_two_sizes_of_one_array_are_two_arrays() -> None:
    """The example of section "SetDimensionSize" of the XLA documents."""
    v = np.arange(1, 11, dtype=np.float32)

    def program(v: Any) -> list[Any]:
        five, six = (with_length(v, jnp.int32(n)) for n in (5, 6))
        return [jnp.sum(five), jnp.prod(five), jnp.sum(six)]

    for backend in ("numba", "interpreter"):
        assert [float(x) for x in results(program, v, backend=backend)] == [15, 120, 21]


@pytest.mark.parametrize("run", [tx.jit, lambda f: f], ids=["jit", "eager"])
def test_gradients_are_zero_where_nothing_was_read(run: Any) -> None:
    gradient = run(tx.grad(lambda x: jnp.sum(with_length(x, jnp.int32(3)) ** 2)))
    np.testing.assert_array_equal(gradient(jnp.arange(5.0)), [0, 2, 4, 0, 0])


def test_shapes_say_what_is_dynamic() -> None:
    made = computation(lambda x: [x.T, jnp.sum(x, 1), with_length(x, jnp.int32(1), 1)], BOUND)
    assert [str(x.shape) for x in made.outputs] == ["f32[3,<=6]", "f32[<=6]", "f32[<=6,<=3]"]


def test_what_takes_no_dynamic_dimensions_says_so() -> None:
    with pytest.raises(
        errors.ShapeError, match=r"reshape: dynamic dimensions \[0\] of f32\[<=6,3\] must stay .* use dyn"
    ):
        computation(lambda x: [movement.reshape(x, sizes=(18,))], BOUND)
    with pytest.raises(errors.ShapeError, match=r"cholesky: the operands must have static sizes, but got \[f32\[<=6,3"):
        computation(lambda x: [tx.ops.ops["cholesky"](x, lower=True)], BOUND)
    with pytest.raises(
        errors.ShapeError, match=r"set-dimension-size: dimensions must be one from 0 to 1, but got \(2,\) for"
    ):
        computation(lambda x: [with_length(x, jnp.int32(1), 2)], BOUND)
    with pytest.raises(errors.DTypeError, match=r"get|set-dimension-size: a size must be s32\[\], but got f32\[\]"):
        computation(lambda x: [with_length(x, jnp.float32(1), 0)], BOUND)
    with pytest.raises(errors.ShapeError, match=r"argument 0 must fit into f32\[<=6,3\], but it is f32\[7,3\]"):
        results(lambda x: [x], matrix(7), backend="interpreter")


def test_contracted_dimensions_are_masked_on_both_sides() -> None:
    """Padding that is infinite must not meet padding that is zero."""
    other = Shape(element_type("f32"), (6, 2), None, (True, False))
    dims = contraction.Dot((0,), (0,), (), ())
    made = computation(lambda x, y: [contraction.dot(1 / x, y, **dims._asdict())], BOUND, other)
    x, y = matrix(4), matrix(4)[:, :2]
    (found,) = compile_module(Module("test", made), "numba")([x, y])
    np.testing.assert_allclose(found, (1 / x).T @ y, 1e-5)
