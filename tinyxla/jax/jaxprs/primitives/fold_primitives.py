"""Primitives of folds by functions that are jaxprs: `reduce`, `reduce_window`, `select_and_scatter`,
`select_and_scatter_add` and `select_and_gather_add`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tinyxla import lax
from tinyxla.hlo import Computation
from tinyxla.jax.jaxprs.jaxpr import ClosedJaxpr, jaxpr_as_fun
from tinyxla.jax.jaxprs.primitives.catalogue import LaxPrimitive, primitives
from tinyxla.ops import movement, windows
from tinyxla.ops.reduction import halves, scalar_computation
from tinyxla.shapes import Shape
from tinyxla.shapes.window import WindowDimension
from tinyxla.tracing.promotion import as_array
from tinyxla.transforms.computations import of_one
from tinyxla.transforms.forward import jvp

Ints = Sequence[int]


def _combination(jaxpr: ClosedJaxpr, consts: Sequence[Any] = ()) -> Callable[..., list[Any]]:
    """A jaxpr of constants and two lists of scalars as a function of the lists."""
    function = jaxpr_as_fun(jaxpr)
    return lambda a, b: function(*consts, *a, *b)


def _reduce(*args: Any, jaxpr: ClosedJaxpr, dimensions: Ints, **ignored: Any) -> list[Any]:
    return list(lax.reduce(*halves(args), _combination(jaxpr), tuple(dimensions)))


def _reduce_window(*args: Any, jaxpr: ClosedJaxpr, consts: Sequence[Any] = (), **window: Any) -> list[Any]:
    return list(lax.reduce_window(*halves(args), _combination(jaxpr, consts), **window))


def _window(sizes: Ints, strides: Ints, padding: Sequence[tuple[int, int]]) -> tuple[WindowDimension, ...]:
    return tuple(
        WindowDimension(size, stride, low, high)
        for size, stride, (low, high) in zip(sizes, strides, padding, strict=True)
    )


def _of_scalars(jaxpr: ClosedJaxpr, consts: Sequence[Any], x: Any) -> Computation:
    function = jaxpr_as_fun(jaxpr)
    return of_one(lambda a, b: function(*consts, a, b)[0], [Shape.of(x).with_dimensions(())] * 2, "fold")


def _select_and_scatter(
    operand: Any,
    source: Any,
    init_value: Any,
    select_jaxpr: ClosedJaxpr,
    scatter_jaxpr: ClosedJaxpr,
    window_dimensions: Ints,
    window_strides: Ints,
    padding: Sequence[tuple[int, int]],
    select_consts: Sequence[Any] = (),
    scatter_consts: Sequence[Any] = (),
) -> Any:
    x, values, start = map(as_array, (operand, source, init_value))
    select = _of_scalars(select_jaxpr, select_consts, x)
    scatter = _of_scalars(scatter_jaxpr, scatter_consts, x)
    window = _window(window_dimensions, window_strides, padding)
    return windows.select_and_scatter(x, values, start, window=window, select=select, scatter=scatter)


def _select_and_scatter_add(
    source: Any,
    operand: Any,
    select_prim: Any,
    window_dimensions: Ints,
    window_strides: Ints,
    padding: Sequence[tuple[int, int]],
) -> Any:
    x, values = as_array(operand), as_array(source)
    select, scatter = windows.comparison(select_prim.name.upper(), x.dtype), scalar_computation("add", x.dtype)
    window, zero = _window(window_dimensions, window_strides, padding), movement.full(0, x.dtype)
    return windows.select_and_scatter(x, values, zero, window=window, select=select, scatter=scatter)


def _select_and_gather_add(tangents: Any, operand: Any, select_prim: Any, **window: Any) -> Any:
    """The tangents of the largest or smallest elements of windows."""
    extremum = primitives["reduce_window_max" if select_prim.name == "ge" else "reduce_window_min"]
    return jvp(lambda x: [extremum.bind(x, **window)], [as_array(operand)], [as_array(tangents)])[1][0]


FOLDS = {
    "reduce": LaxPrimitive("reduce", _reduce, True),
    "reduce_window": LaxPrimitive("reduce_window", _reduce_window, True),
    "select_and_scatter": LaxPrimitive("select_and_scatter", _select_and_scatter),
    "select_and_scatter_add": LaxPrimitive("select_and_scatter_add", _select_and_scatter_add),
    "select_and_gather_add": LaxPrimitive("select_and_gather_add", _select_and_gather_add),
}
