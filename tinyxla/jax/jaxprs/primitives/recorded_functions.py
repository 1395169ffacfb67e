"""Functions that are compositions here and primitives in JAX: while a jaxpr is recorded, they are recorded as such.

Outside of `make_jaxpr` these are the functions of `tinyxla.lax`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tinyxla import lax, numpy
from tinyxla.jax.jaxprs.primitives.catalogue import COMPOSITIONS, primitives
from tinyxla.jax.jaxprs.traces.recording import Region, is_recording, region, vectorized
from tinyxla.numpy.arguments import paired, promoted
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
        own = {"input_dtype": values[0].dtype} if name == "conj" else {}
        return region(primitives[name], own, lambda *x: [function(*x)], values, vectorized)[0]

    return call


@dataclass(frozen=True, eq=False)
class _Power(Region):
    """`x ** y` of a whole number y, whose derivative has that power of x, and y times the power before."""

    exponent: int = 2
    has_derivatives: bool = field(default=True, init=False)

    def _slope(self, x: Any) -> Any:
        y = self.exponent
        return lax.mul(as_array(np.asarray(y, x.dtype)), x if y == 2 else integer_pow(x, y - 1))

    def forward(self, tangents: Any, *values: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        (t,), (x,) = tangents, values
        return apply(self, x), (None if t is None or not self.exponent else lax.mul(t, self._slope(x)),)

    def reverse(self, wanted: Any, *values: Any) -> tuple[tuple[Any, ...], Any]:
        (x,) = values
        outputs = apply(self, x)
        if not self.exponent:
            return outputs, lambda g: (None,)
        slope = self._slope(x)
        return outputs, lambda g: (None if g[0] is None else lax.mul(g[0], slope),)


def _power(name: str, params: dict[str, Any], exponent: int, function: Callable[..., Any], x: Any) -> Any:
    primitive = primitives[name]
    rule = _Power(name, (primitive, exponent), 1, lambda v: [function(v)], primitive, params, vectorized, exponent)
    return apply(rule, x)[0]


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


@functools.wraps(lax.square)
def square(x: Any) -> Any:
    return _power("square", {}, 2, lax.square, as_array(x, "lax.square")) if is_recording() else lax.square(x)


@functools.wraps(lax.reciprocal)
def reciprocal(x: Any) -> Any:
    return integer_pow(x, -1) if is_recording() else lax.reciprocal(x)


def _with_parameters(
    name: str, function: Callable[..., Any], count: int = 1, kind: Callable[[Any], Any] = tuple, **others: Any
) -> Callable[..., Any]:
    """A function of so many arrays and of parameters, which are those of the primitive; `kind` makes its result of the
    list of arrays."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not is_recording():
            found = function(*args, **kwargs)
            return list(found) if kind is list else found
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        given = list(bound.arguments.items())
        operands, options = [as_array(x, name) for _, x in given[:count]], dict(given[count:])
        params = {name: x for name, x in (options | others).items() if name != "use_magma"}

        def listed(*values: Any) -> list[Any]:
            found = function(*values, **options)
            return list(found) if primitives[name].multiple_results else [found]

        return kind(region(primitives[name], params, listed, operands, vectorized))

    return call


def _listed(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose results are a list, as they are in JAX."""
    return functools.wraps(function)(lambda *args, **kwargs: list(function(*args, **kwargs)))


factorizations = {
    "eig": _with_parameters("eig", lax.linalg.eig, kind=list),
    "hessenberg": _with_parameters("hessenberg", lax.linalg.hessenberg),
    "schur": _with_parameters("schur", lax.linalg.schur, kind=list),
    "tridiagonal": _with_parameters("tridiagonal", lax.linalg.tridiagonal),
}
compositions = {
    **{name: _recorded(name) for name in COMPOSITIONS},
    "stop_gradient": stop_gradient,
    "square": square,
    "reciprocal": reciprocal,
    "betainc": _with_parameters("regularized_incomplete_beta", lax.betainc, 3, lambda found: found[0]),
    "approx_max_k": _with_parameters("approx_top_k", lax.approx_max_k, kind=list, is_max_k=True),
    "approx_min_k": _with_parameters("approx_top_k", lax.approx_min_k, kind=list, is_max_k=False),
    "top_k": _listed(lax.top_k),
}


@functools.wraps(lax.integer_pow)
def integer_pow(x: Any, y: int) -> Any:
    if not is_recording():
        return lax.integer_pow(x, y)
    value = as_array(x, "lax.integer_pow")
    return _power("integer_pow", {"y": y}, y, lambda v: lax.integer_pow(v, y), value)


def recorded_power(power: Callable[..., Any]) -> Callable[..., Any]:
    """The operator `**` of arrays, which is `integer_pow` for a whole number."""

    def operator(self: Any, exponent: Any) -> Any:
        if type(exponent) is int and is_recording() and isinstance(self, Array) and self.dtype.kind != "b":
            return integer_pow(self, exponent)
        return power(self, exponent)

    return operator


def _recorded_square(square: Callable[..., Any]) -> Callable[..., Any]:
    """`jax.numpy.square`, which is `lax.square` but for booleans."""

    @functools.wraps(square)
    def call(x: Any, /) -> Any:
        if is_recording() and as_array(x, "square").dtype.kind != "b":
            return compositions["square"](x)
        return square(x)

    return call


def twins(module: Any, names: dict[str, str]) -> dict[str, Callable[..., Any]]:
    """Functions of a module that are one primitive in JAX, given with its name in `lax`, recorded as such."""
    return {name: _twin(getattr(module, name), compositions[twin]) for name, twin in names.items()}


def _twin(function: Callable[..., Any], primitive: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*operands: Any, **options: Any) -> Any:
        if not is_recording() or options:
            return function(*operands, **options)
        return primitive(*promoted(function.__name__, *operands, to_inexact=True)[0])

    return call


def recorded_modulus(operator: Callable[..., Any], is_reflected: bool) -> Callable[..., Any]:
    """The operator `%` of arrays, which is `jax.numpy.remainder`."""

    def call(self: Any, other: Any) -> Any:
        if not is_recording() or not isinstance(other, (Array, np.ndarray, np.generic, int, float)):
            return operator(self, other)
        operands: tuple[Any, Any] = (other, self) if is_reflected else (self, other)
        return numpy.remainder(*operands)

    return call


def _recorded_remainder(remainder: Callable[..., Any]) -> Callable[..., Any]:
    """`jax.numpy.remainder`, which of floating-point numbers is made of these primitives."""

    @functools.wraps(remainder)
    def call(x: Any, y: Any, /, **options: Any) -> Any:
        if not is_recording() or options:
            return remainder(x, y, **options)
        a, b = paired("remainder", promoted("remainder", x, y)[0])
        if a.dtype.kind in "biuc":
            return remainder(x, y)
        rest, zero = lax.rem(a, b), np.zeros((), a.dtype)
        differs = lax.ne(lax.lt(rest, zero), lax.lt(b, zero))
        shift = lax.bitwise_and(differs, lax.ne(rest, zero))
        return lax.select(shift, lax.add(rest, b), rest)

    return call


def _recorded_signbit(signbit: Callable[..., Any]) -> Callable[..., Any]:
    """`jax.numpy.signbit`, which is the highest of the bits."""

    @functools.wraps(signbit)
    def call(x: Any, /) -> Any:
        value = as_array(x, "signbit")
        if not is_recording() or value.dtype.kind != "f" or value.dtype.itemsize < 2:
            return signbit(x)
        bits = lax.bitcast_convert_type(value, np.dtype(f"int{8 * value.dtype.itemsize}"))
        return lax.lt(bits, np.zeros((), bits.dtype))

    return call


def _recorded_copysign(copysign: Callable[..., Any]) -> Callable[..., Any]:
    """`jax.numpy.copysign`, which chooses by the highest of the bits."""

    @functools.wraps(copysign)
    def call(x: Any, y: Any, /) -> Any:
        if not is_recording():
            return copysign(x, y)
        to, sign = promoted("copysign", x, y, to_inexact=True)[0]
        size = lax.abs(to)
        return numpy.where(numpy.signbit(sign), lax.neg(size), size)

    return call


def _recorded_integer_power(power: Callable[..., Any]) -> Callable[..., Any]:
    """`jax.numpy.power`, which is `integer_pow` for a whole number."""

    @functools.wraps(power)
    def call(x: Any, y: Any, /) -> Any:
        if isinstance(y, (int, np.integer)) and type(y) is not bool and is_recording():
            base = as_array(x, "power")
            if base.dtype.kind != "b":
                return integer_pow(base, int(y))
        return power(x, y)

    return call


_OF_NUMPY = {
    **{f"arc{name}": f"a{name}" for name in "cos cosh sin sinh tan tanh".split()},
    **{name: name for name in "acos acosh asin asinh atan atanh exp2 nextafter reciprocal".split()},
}
numpy_functions = {**twins(numpy, _OF_NUMPY), "square": _recorded_square(numpy.square)}
numpy_functions |= {name: _recorded_remainder(getattr(numpy, name)) for name in ("mod", "remainder")}
numpy_functions |= {"signbit": _recorded_signbit(numpy.signbit), "copysign": _recorded_copysign(numpy.copysign)}
numpy_functions |= {name: _recorded_integer_power(getattr(numpy, name)) for name in ("pow", "power")}
