"""Functions that are compositions here and primitives in JAX: while a jaxpr is recorded, they are recorded as such.

Outside of `make_jaxpr` these are the functions of `tinyxla.lax`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tinyxla import lax
from tinyxla.jax.jaxprs.catalogue import COMPOSITIONS, primitives
from tinyxla.jax.jaxprs.recording import Region, is_recording, region, vectorized
from tinyxla.tracing import pytrees
from tinyxla.tracing.array import Array
from tinyxla.tracing.promotion import as_array
from tinyxla.transforms.custom import apply


def _recorded(name: str) -> Callable[..., Any]:
    function = getattr(lax, name)

    @functools.wraps(function)
    def call(*operands: Any, **params: Any) -> Any:
        if not is_recording() or params:
            return function(*operands, **params)
        values = [as_array(x, f"lax.{name}") for x in operands]
        return region(primitives[name], {}, lambda *x: [function(*x)], values, vectorized)[0]

    return call


class _StopGradient(Region):
    """Its result has no tangent, rather than one that is zero: rules of `custom_jvp` functions tell these apart."""

    def forward(self, tangents: Any, *values: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        return apply(self, *values), (None,)

    def reverse(self, wanted: Any, *values: Any) -> tuple[tuple[Any, ...], Any]:
        return apply(self, *values), None


def _stop_gradient_of_array(x: Any) -> Any:
    primitive = primitives["stop_gradient"]
    rule = _StopGradient("stop_gradient", primitive, 1, lambda v: [lax.stop_gradient(v)], primitive, {}, vectorized)
    return apply(rule, as_array(x, "lax.stop_gradient"))[0]


@functools.wraps(lax.stop_gradient)
def stop_gradient(x: Any) -> Any:
    return pytrees.map_tree(_stop_gradient_of_array, x) if is_recording() else lax.stop_gradient(x)


compositions = {"stop_gradient": stop_gradient, **{name: _recorded(name) for name in COMPOSITIONS}}


@functools.wraps(lax.integer_pow)
def integer_pow(x: Any, y: int) -> Any:
    if not is_recording():
        return lax.integer_pow(x, y)
    value = as_array(x, "lax.integer_pow")
    return region(primitives["integer_pow"], {"y": y}, lambda v: [lax.integer_pow(v, y)], [value], vectorized)[0]


def recorded_power(power: Callable[..., Any]) -> Callable[..., Any]:
    """The operator `**` of arrays, which is `integer_pow` for a whole number."""

    def operator(self: Any, exponent: Any) -> Any:
        if type(exponent) is int and is_recording() and isinstance(self, Array) and self.dtype.kind != "b":
            return integer_pow(self, exponent)
        return power(self, exponent)

    return operator


def recorded_square(square: Callable[..., Any]) -> Callable[..., Any]:
    """`jax.numpy.square`, which is `lax.square` but for booleans."""

    @functools.wraps(square)
    def call(x: Any, /) -> Any:
        if is_recording() and as_array(x, "square").dtype.kind != "b":
            return compositions["square"](x)
        return square(x)

    return call
