"""Transformations nest in any order, as JAX has them; integers and truth values have no derivative; errors are to the
point."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tinyxla.errors import ConcretizationError, DifferentiationError, LeakedTracerError, TinyxlaError
from tinyxla.ops import elementwise, movement, reduction
from tinyxla.ops.op import NotDifferentiable, Op, ops
from tinyxla.ops.products import contraction
from tinyxla.shapes import Shape, element_type
from tinyxla.tracing import wrap
from tinyxla.tracing.core import trace
from tinyxla.transforms import batch, call, jvp, vjp

Function = Callable[..., list[Any]]  # of values, to a flat list of values


# --- the transformations, each as a map from functions to functions of the same operands ------------------------------


def is_inexact(x: Any) -> bool:
    return element_type(x.dtype).is_inexact


def full_like(x: Any, value: float) -> Any:
    return movement.full(value, x.dtype, x.shape)


def or_zeros(tangents: Sequence[Any], templates: Sequence[Any]) -> list[Any]:
    return [full_like(x, 0) if t is None else t for t, x in zip(tangents, templates, strict=True)]


def pushed(function: Function) -> Function:
    """The derivative along ones."""

    def transformed(*operands: Any) -> list[Any]:
        values, tangents = jvp(function, operands, [full_like(x, 1) for x in operands])
        return or_zeros(tangents, values)

    return transformed


def pulled(function: Function) -> Function:
    """The gradient of the sum of all results."""

    def transformed(*operands: Any) -> list[Any]:
        values, pullback = vjp(function, operands)
        return or_zeros(pullback([full_like(y, 1) for y in values]), operands)

    return transformed


FACTORS = (1.0, -0.5, 2.0)


def mapped(function: Function) -> Function:
    """The sum over several multiples of the first operand, mapped over; the other operands are not."""

    def transformed(first: Any, *rest: Any) -> list[Any]:
        factors = wrap(np.array(FACTORS, first.dtype))
        sizes = (*first.shape, len(FACTORS))
        spread = movement.broadcast(factors, sizes=sizes, dimensions=(len(first.shape),))
        multiples = elementwise.mul(
            movement.broadcast(first, sizes=sizes, dimensions=tuple(range(len(first.shape)))), spread
        )
        pairs = batch(function, len(FACTORS), [multiples, *rest], [len(first.shape), *(None for _ in rest)])
        return [
            elementwise.mul(y, full_like(y, len(FACTORS))) if axis is None else reduction.reduce_sum(y, (axis,))
            for y, axis in pairs
        ]

    return transformed


def called(function: Function) -> Function:
    """The function as a call of its computation, which is what jit makes of it."""

    def transformed(*operands: Any) -> list[Any]:
        made, captured, _ = trace(function, [Shape.of(x) for x in operands], "inner")
        return list(call(*operands, *captured, to_apply=made))

    return transformed


def jax_pushed(function: Function) -> Function:
    return lambda *operands: jax.jvp(function, operands, tuple(map(jnp.ones_like, operands)))[1]


def jax_pulled(function: Function) -> Function:
    def transformed(*operands: Any) -> list[Any]:
        values, pullback = jax.vjp(function, *operands)
        return list(pullback([jnp.ones_like(y) for y in values]))

    return transformed


def jax_mapped(function: Function) -> Function:
    def transformed(first: Any, *rest: Any) -> list[Any]:
        multiples = first[..., None] * jnp.array(FACTORS)
        results = jax.vmap(function, (first.ndim, *(None for _ in rest)))(multiples, *rest)
        return [jnp.sum(y, 0) for y in results]

    return transformed


TRANSFORMATIONS: dict[str, tuple[Callable[[Function], Function], Callable[[Function], Function]]] = {
    "jvp": (pushed, jax_pushed),
    "vjp": (pulled, jax_pulled),
    "vmap": (mapped, jax_mapped),
    "call": (called, jax.jit),
}

# --- functions, here and in JAX ---------------------------------------------------------------------------------------


def matmul(x: Any, y: Any) -> Any:
    return contraction.dot(
        x,
        y,
        lhs_contracting_dims=(1,),
        rhs_contracting_dims=(0,),
        lhs_batch_dims=(),
        rhs_batch_dims=(),
        preferred_element_type=None,
    )


def arithmetic(x: Any, y: Any) -> list[Any]:
    product = elementwise.mul(elementwise.sin(x), elementwise.exp(y))
    return [elementwise.add(product, elementwise.div(x, elementwise.add(full_like(y, 3), y))), elementwise.tanh(x)]


def jax_arithmetic(x: Any, y: Any) -> list[Any]:
    return [jnp.sin(x) * jnp.exp(y) + x / (3 + y), jnp.tanh(x)]


def log_sum_exp(x: Any, y: Any) -> list[Any]:
    z = matmul(x, movement.transpose(y, permutation=(1, 0)))
    top = reduction.reduce_max(z, (1,))
    powers = elementwise.exp(elementwise.sub(z, movement.broadcast(top, sizes=z.shape, dimensions=(0,))))
    return [elementwise.add(elementwise.log(reduction.reduce_sum(powers, (1,))), top)]


def jax_log_sum_exp(x: Any, y: Any) -> list[Any]:
    return [jax.nn.logsumexp(x @ y.T, axis=1)]


def moves(x: Any, y: Any) -> list[Any]:
    square = elementwise.mul(x, x)
    part = movement.slice_(square, start_indices=(0, 1), limit_indices=(2, 3), strides=(1, 1))
    wide = movement.pad(part, movement.full(0.5, part.dtype), padding_config=((0, 0, 0), (1, -1, 1)))
    both = movement.concatenate(wide, movement.reverse(elementwise.mul(x, y), dimensions=(1,)), dimension=1)
    kept = elementwise.select(elementwise.gt(both, full_like(both, 0)), both, elementwise.mul(both, both))
    low, high = full_like(kept, -0.5), full_like(kept, 0.75)
    return [elementwise.clamp(low, movement.reshape(kept, sizes=kept.shape), high), movement.reshape(part, sizes=(4,))]


def jax_moves(x: Any, y: Any) -> list[Any]:
    part = (x * x)[0:2, 1:3]
    wide = jax.lax.pad(part, jnp.asarray(0.5, x.dtype), ((0, 0, 0), (1, -1, 1)))
    both = jnp.concatenate([wide, (x * y)[:, ::-1]], 1)
    return [jax.lax.clamp(-0.5, jnp.where(both > 0, both, both * both), 0.75), part.reshape(4)]


def closing(x: Any, y: Any) -> list[Any]:
    """The inner functions use values of the outer one."""

    def inner(z: Any) -> list[Any]:
        return [elementwise.mul(elementwise.sin(z), x)]

    (product,) = called(inner)(y)
    (slope,) = pulled(lambda z: [elementwise.mul(elementwise.mul(z, z), x)])(y)
    (sums,) = mapped(lambda z: [elementwise.mul(elementwise.cos(z), product)])(y)
    return [product, slope, sums]


def jax_closing(x: Any, y: Any) -> list[Any]:
    product = jnp.sin(y) * x
    return [product, 2 * y * x, sum(jnp.cos(f * y) for f in FACTORS) * product]


FUNCTIONS = {
    "arithmetic": (arithmetic, jax_arithmetic),
    "log_sum_exp": (log_sum_exp, jax_log_sum_exp),
    "moves": (moves, jax_moves),
    "closing": (closing, jax_closing),
}
OPERANDS = (np.array([[0.3, -0.7, 1.1], [0.5, 0.9, -0.2]]), np.array([[0.4, 0.8, -0.6], [1.2, -0.1, 0.7]]))


Names = tuple[str, ...]
PAIRS: list[Names] = [*((name,) for name in TRANSFORMATIONS), *itertools.product(TRANSFORMATIONS, repeat=2)]
TRIPLES: list[Names] = list(itertools.product(TRANSFORMATIONS, repeat=3))
CAPTURING: list[Names] = list(itertools.product(["jvp", "vjp", "vmap"], repeat=3))
CASES = {
    **dict.fromkeys(FUNCTIONS, PAIRS),
    "arithmetic": [*PAIRS, *TRIPLES],
    "closing": [*PAIRS, *CAPTURING],
}


def nested(names: Names, function: Any, which: int) -> Any:
    """The transformations of this package, or those of JAX."""
    for name in reversed(names):
        function = TRANSFORMATIONS[name][which](function)
    return function


PARTS = 5  # of the cases of a function: as JAX compiles a part at once, the sample of the default run needs few of them


@functools.cache
def expected(which: str, part: int) -> dict[Names, list[Any]]:
    """What JAX gives for a part of the cases of a function: one program, since they have much in common."""
    cases = CASES[which][part::PARTS]

    def program(*operands: Any) -> list[Any]:
        return [nested(names, FUNCTIONS[which][1], 1)(*operands) for names in cases]

    with jax.enable_x64(True):
        results = jax.jit(program)(*map(jnp.asarray, OPERANDS))
    return dict(zip(cases, results, strict=True))


def in_parts(which: str, cases: list[Names]) -> list[Any]:
    """Parameters for the cases of a function; the first part is in the default run."""
    marks = [pytest.mark.thorough if CASES[which].index(names) % PARTS else () for names in cases]
    return [pytest.param(which, c, marks=m, id="-".join([which, *c])) for c, m in zip(cases, marks, strict=True)]


def assert_like_jax(names: Names, which: str) -> None:
    results = [x.numpy() for x in nested(names, FUNCTIONS[which][0], 0)(*map(wrap, OPERANDS))]
    wanted = expected(which, CASES[which].index(names) % PARTS)[names]
    for x, y in zip(results, wanted, strict=True):
        assert x.shape == y.shape
        assert x.dtype == y.dtype
        np.testing.assert_allclose(x, y, 1e-11, 1e-11)


@pytest.mark.parametrize(("which", "names"), [case for which in FUNCTIONS for case in in_parts(which, PAIRS)])
def test_nested_pairs(which: str, names: Names) -> None:
    assert_like_jax(names, which)


@pytest.mark.parametrize(("which", "names"), in_parts("arithmetic", TRIPLES))
def test_nested_triples(which: str, names: Names) -> None:
    assert_like_jax(names, which)


@pytest.mark.parametrize(("which", "names"), in_parts("closing", CAPTURING))
def test_nested_triples_with_captured_values(which: str, names: Names) -> None:
    assert_like_jax(names, which)


@pytest.mark.parametrize("transform", [pushed, pulled])
def test_fifth_derivative(transform: Callable[[Function], Function]) -> None:
    def function(x: Any) -> list[Any]:
        return [elementwise.sin(x)]

    for _ in range(5):
        function = transform(function)
    x = np.array([0.3, 1.4])
    np.testing.assert_allclose(function(wrap(x))[0].numpy(), np.cos(x), 1e-14)


@pytest.mark.parametrize("outer", [pushed, pulled])
@pytest.mark.parametrize("inner", [pushed, pulled])
def test_nested_derivatives_keep_their_perturbations_apart(
    outer: Callable[[Function], Function], inner: Callable[[Function], Function]
) -> None:
    """d/dx (x d/dy (x + y)) = 1; 2 comes out if the two derivatives are confused (Siskind and Pearlmutter 2005)."""

    def function(x: Any) -> list[Any]:
        (slope,) = inner(lambda y: [elementwise.add(x, y)])(full_like(x, 1))
        return [elementwise.mul(x, slope)]

    assert outer(function)(wrap(np.float64(3)))[0].numpy() == 1


# --- integers, truth values, and results that do not depend -----------------------------------------------------------


def test_integers_and_truth_values_have_no_derivative() -> None:
    def function(x: Any, n: Any, flag: Any) -> list[Any]:
        scaled = elementwise.mul(x, elementwise.convert(n, new_element_type=element_type(x.dtype)))
        rounded = elementwise.convert(x, new_element_type=element_type("s32"))
        return [elementwise.select(flag, scaled, x), rounded, elementwise.not_(flag), elementwise.add(n, n)]

    operands = [wrap(np.array([1.5, 2.5])), wrap(np.array([3, 4])), wrap(np.array([True, False]))]
    values, tangents = jvp(function, operands, [wrap(np.ones(2)), None, None])
    assert [x.dtype.name for x in values] == ["float64", "int32", "bool", "int64"]
    assert [t is None for t in tangents] == [False, True, True, True]
    np.testing.assert_array_equal(tangents[0].numpy(), [3, 1])
    values, pullback = vjp(function, operands)
    cotangents = pullback([wrap(np.ones(2)), None, None, None])
    assert [c is None for c in cotangents] == [False, True, True]
    np.testing.assert_array_equal(cotangents[0].numpy(), [3, 1])


def test_the_same_through_a_call() -> None:
    def function(x: Any, n: Any) -> list[Any]:
        return [elementwise.mul(x, elementwise.convert(n, new_element_type=element_type("f64"))), elementwise.add(n, n)]

    operands = [wrap(np.array([1.5, 2.5])), wrap(np.array([3, 4]))]
    _, tangents = jvp(called(function), operands, [wrap(np.ones(2)), None])
    np.testing.assert_array_equal(tangents[0].numpy(), [3, 4])
    assert tangents[1] is None
    _, pullback = vjp(called(function), operands)
    cotangents = pullback([wrap(np.ones(2)), None])
    np.testing.assert_array_equal(cotangents[0].numpy(), [3, 4])
    assert cotangents[1] is None


def test_a_result_that_does_not_depend_on_an_operand() -> None:
    x, y = wrap(np.array([1.0, 2.0])), wrap(np.array([3.0]))

    def function(x: Any, y: Any) -> list[Any]:
        return [elementwise.mul(x, x), full_like(x, 7), y]

    for transformed in (function, called(function)):
        values, tangents = jvp(transformed, [x, y], [wrap(np.ones(2)), None])
        assert [t is None for t in tangents] == [False, True, True]
        values, pullback = vjp(transformed, [x, y])
        first, second = pullback([wrap(np.ones(2)), None, None])
        np.testing.assert_array_equal(first.numpy(), [2, 4])
        assert second is None or not second.numpy().any()
        assert all(c is None or not c.numpy().any() for c in pullback([None, wrap(np.ones(2)), None]))
        np.testing.assert_array_equal(values[2].numpy(), [3])


def test_an_operand_that_is_used_twice_gets_the_sum() -> None:
    x = wrap(np.array([1.0, 2.0]))
    _, pullback = vjp(lambda x: [elementwise.mul(x, x), x, x], [x])
    ones = wrap(np.ones(2))
    np.testing.assert_array_equal(pullback([ones, ones, ones])[0].numpy(), [4, 6])


def test_a_pullback_can_be_used_again() -> None:
    _, pullback = vjp(lambda x: [elementwise.sin(x)], [wrap(np.array([0.5]))])
    first, second = (pullback([wrap(np.array([scale]))])[0].numpy() for scale in (1.0, 3.0))
    np.testing.assert_allclose(second, 3 * first)


def test_a_result_of_a_batched_function_that_no_operand_reaches_is_not_mapped() -> None:
    shared = wrap(np.array([5.0]))
    pairs = batch(lambda x: [x, shared], 2, [wrap(np.zeros((2, 3)))], [0])
    assert [axis for _, axis in pairs] == [0, None]


# --- values inside ----------------------------------------------------------------------------------------------------


def absolute(x: Any) -> list[Any]:
    return [elementwise.neg(x)] if bool(elementwise.lt(x, full_like(x, 0))) else [x]


@pytest.mark.parametrize("transform", [pushed, pulled])
def test_outside_jit_python_sees_the_values(transform: Callable[[Function], Function]) -> None:
    for value, slope in ((-2.0, -1), (3.0, 1)):
        assert transform(absolute)(wrap(np.float64(value)))[0].numpy() == slope
        twice = transform(transform(lambda x: [elementwise.mul(*absolute(x), x)]))
        assert twice(wrap(np.float64(value)))[0].numpy() == 2 * slope


@pytest.mark.parametrize(
    ("transform", "where"), [(called, "inner"), (lambda f: pulled(called(f)), "inner"), (mapped, "vmap")]
)
def test_where_values_are_not_known_the_error_says_so_and_names_the_line(
    transform: Callable[[Function], Function], where: str
) -> None:
    with pytest.raises(ConcretizationError) as caught:
        transform(absolute)(wrap(np.float64(2)))
    message = str(caught.value)
    assert "A Python condition" in message
    assert where in message
    assert "lax.cond or tinyxla.numpy.where" in message
    assert "pred[]" in message
    assert_names_line(caught.value, "elementwise.lt(x, full_like(x, 0))")


def assert_names_line(error: TinyxlaError, text: str) -> None:
    assert error.line is not None
    assert error.line.file == __file__
    assert text in str(error)


@pytest.mark.parametrize("transform", [pushed, pulled, mapped, called])
def test_a_tracer_that_outlives_its_function_is_an_error(transform: Callable[[Function], Function]) -> None:
    kept: list[Any] = []

    def function(x: Any) -> list[Any]:
        kept.append(elementwise.sin(x))
        return [x]

    transform(function)(wrap(np.array([1.0, 2.0])))
    with pytest.raises(LeakedTracerError, match=r"has ended") as caught:
        elementwise.cos(kept[0])
    assert "f64[2]" in str(caught.value)
    assert_names_line(caught.value, "elementwise.cos(kept[0])")


def test_the_error_for_a_leaked_graph_tracer_says_where_it_was_made() -> None:
    kept: list[Any] = []

    def function(x: Any) -> list[Any]:
        kept.append(elementwise.sin(x))
        return [x]

    called(function)(wrap(np.array([1.0])))
    with pytest.raises(LeakedTracerError, match=r"It was made at .*kept\.append\(elementwise\.sin\(x\)\)"):
        elementwise.cos(kept[0])


def test_a_leaked_tracer_may_not_be_captured_either() -> None:
    kept: list[Any] = []
    mapped(lambda x: [kept.append(x) or x])(wrap(np.array([1.0])))
    with pytest.raises(LeakedTracerError, match="Return the value from the function"):
        called(lambda y: [elementwise.mul(y, kept[0])])(wrap(np.array([1.0])))


@pytest.mark.parametrize("transform", [pushed, pulled, mapped, called])
def test_errors_of_shape_name_the_users_line_inside_transformations(transform: Callable[[Function], Function]) -> None:
    def function(x: Any) -> list[Any]:
        return [movement.reshape(x, sizes=(7,))]

    with pytest.raises(TinyxlaError, match="must make the 2 elements of") as caught:
        transform(function)(wrap(np.array([1.0, 2.0])))
    assert_names_line(caught.value, "movement.reshape(x, sizes=(7,))")


def test_an_error_inside_leaves_no_trace_active() -> None:
    with pytest.raises(ZeroDivisionError):
        called(pulled(mapped(lambda x: [1 / 0])))(wrap(np.array([1.0])))
    value = elementwise.sin(wrap(np.array([1.0])))
    np.testing.assert_allclose(value.numpy(), np.sin([1.0]))


def test_a_derivative_that_does_not_exist_is_an_error_with_the_reason() -> None:
    op = Op(
        "planted",
        shape=lambda x: x,
        evaluate=lambda x: x,
        derivative=NotDifferentiable("it was made for a test"),
        batch=lambda size, operands, axes: (operands[0], axes[0]),
        samples=lambda random: iter(()),
    )
    ops.pop("planted")
    for transform in (pushed, pulled):
        with pytest.raises(DifferentiationError, match=r"planted has no derivative: it was made for a test\."):
            transform(lambda x: [op(x)])(wrap(np.array([1.0])))
