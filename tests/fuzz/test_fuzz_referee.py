"""The fuzzer's referee: what it must accept, and what it must still object to."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import tinyxla
from tests.fuzz import catalogue, compare
from tests.fuzz.differences import Case, Difference
from tests.fuzz.intended import INFINITE, Intended
from tests.fuzz.programs import Program
from tests.fuzz.values import Input, draw
from tinyxla.tracing.core import GraphTracer


def gradient(x: Any) -> Any:
    """The gradient of a function that is x^2 above 0 and 0 below: it has a kink at 0."""
    return (jax.numpy.where(x > 0, 2 * x, 0.0),)


def test_second_derivative_at_a_kink_is_not_judged() -> None:
    x, direction = np.array([1.0, 0.0, -1.0]), np.ones(3)
    quotients = compare.Quotients(gradient, (0,), [x])
    assert quotients.agree_second([np.array([2.0, 0.5, 0.0])], [direction])
    assert not quotients.agree_second([np.array([1.0, 0.5, 0.0])], [direction])
    assert not quotients.agree_second([np.array([2.0, np.nan, 0.0])], [direction])


@pytest.mark.parametrize("name", ["lax.conv", "lax.scatter_min", "lax.conv_transpose"])
def test_arrays_of_several_shapes_are_not_elementwise(name: str) -> None:
    assert not catalogue.catalogue()[name].elementwise
    assert catalogue.catalogue()["numpy.sin"].elementwise


@pytest.mark.parametrize("dtype", ["uint32", "int8", "float16", "bfloat16"])
def test_sorted_values_are_in_order_in_their_type(dtype: str) -> None:
    values = draw(Input(dtype, (40,), "sorted"), "plain", np.random.default_rng(0))
    assert values.dtype == dtype
    assert (values[1:] >= values[:-1]).all()


def test_line_for_infinite_values_does_not_cover_finite_ones() -> None:
    line = Intended("numpy.sin", "nan jvp .*", "expected nan", "for this test", value=INFINITE)
    found = Difference("numpy.sin", "nan", "jvp jit", "nan: 0.0 at (), expected nan", "", value=INFINITE)
    assert line.covers(found)
    assert not line.covers(found._replace(value="finite"))


@pytest.mark.parametrize(("x", "value"), [(0.0, "infinite"), (1.0, "finite")])
def test_difference_of_derivatives_says_whether_the_value_is_finite(x: float, value: str) -> None:
    program = Program("numpy.log", "    return jx.numpy.log(x0)\n", (Input("float32", (1,)),), False)
    case = Case(program, np.random.default_rng(0), sets=1)
    case._add("nan", "jvp jit", "planted", [np.full(1, x, np.float32)])
    assert [d.value for d in case.found] == [value]


def test_numbers_that_a_scale_makes_subnormal_are_flushed() -> None:
    x = np.array([-1.5e-38, 1e-39, 1e-30], np.float32)
    assert compare.flushed(x).tolist() == [x[0], 0.0, x[2]]
    assert compare.flushed(x, 4.0).tolist() == [0.0, 0.0, x[2]]


_SINE = tinyxla.numpy.sin


def _loses_its_derivative_when_compiled(x: Any) -> Any:
    """The sine, which counts as constant where it is traced into a graph without derivatives: `grad(jit(f))` does so,
    `jit(grad(f))` does not."""
    return tinyxla.lax.stop_gradient(_SINE(x)) if isinstance(x, GraphTracer) else _SINE(x)


def _ways_of_differences(program: Program, seed: int) -> set[str]:
    found = Case(program, np.random.default_rng(seed), sets=3).run(("vjp",)).differences
    return {d.way.partition(" ")[2] for d in found}


def test_planted_defect_of_derivatives_of_compiled_functions_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    program = Program("numpy.sin", "    return jx.numpy.sin(x0)\n", (Input("float32", (3,)),), False, elementwise=True)
    seeds = (0, 3, 12)  # of which each draws a derivative of a compiled function
    assert [_ways_of_differences(program, seed) for seed in seeds] == [set()] * 3
    monkeypatch.setattr(tinyxla.numpy, "sin", _loses_its_derivative_when_compiled)
    assert set().union(*(_ways_of_differences(program, seed) for seed in seeds)) == {"eager of jit", "jit of jit"}
    assert _ways_of_differences(program, 1) == set()  # a compiled derivative, which the defect does not reach
