"""References of elementary functions in mpmath, on arrays of NumPy's: computed in the precision of the element type, or
in more, and rounded to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tinyxla.errors import ArgumentError

_PRECISION = {np.dtype(np.float32): 24, np.dtype(np.float64): 53}  # bits


def _real_type(dtype: Any) -> np.dtype[Any]:
    return np.zeros((), dtype).real.dtype


class vectorize_with_mpmath(np.vectorize):  # pyright: ignore[reportIncompatibleVariableOverride]
    """A function of mpmath's numbers as one of arrays of floats or complex numbers of NumPy's.

    Args:
        pyfunc: the function; other arguments are those of `numpy.vectorize`.
        mpmath: the module.
        extra_prec_multiplier, extra_prec: by how many of its own widths, and by how many bits, the precision is larger.

    Raises:
        ArgumentError: `mpmath` is missing.
    """

    def __init__(
        self,
        pyfunc: Callable[..., Any],
        *args: Any,
        mpmath: Any = None,
        extra_prec_multiplier: float = 0,
        extra_prec: int = 0,
        **kwargs: Any,
    ) -> None:
        if mpmath is None:
            raise ArgumentError("vectorize_with_mpmath: no mpmath argument specified; pass mpmath=mpmath.")
        super().__init__(pyfunc, *args, **kwargs)
        self.mpmath = mpmath
        self._more = extra_prec_multiplier, extra_prec
        self._contexts: dict[np.dtype[Any], Any] = {}
        for dtype, bits in _PRECISION.items():
            self._contexts[dtype] = mpmath.mp.clone()
            self._contexts[dtype].prec = bits

    def get_context(self, x: Any) -> Any:
        """The context of mpmath for an array.

        Raises:
            ArgumentError: an element type for which there is none.
        """
        dtype = _real_type(x.dtype)
        if dtype not in self._contexts:
            raise ArgumentError(f"mpmath functions take arrays of 32-bit and 64-bit floats, but got {x.dtype}.")
        return self._contexts[dtype]

    def nptomp(self, x: Any) -> Any:
        """An array or scalar of NumPy's in mpmath's numbers."""
        if isinstance(x, np.ndarray):
            found = np.empty(x.size, object)
            found[:] = [self.nptomp(value) for value in x.flat]
            return found.reshape(x.shape)
        context = self.get_context(x)
        return context.mpc(x.real.item(), x.imag.item()) if np.iscomplexobj(x) else context.mpf(x.item())

    def mptonp(self, x: Any) -> Any:
        """A number of mpmath's, or an array of them, in NumPy's; subnormal ones are 0."""
        if isinstance(x, np.ndarray):
            found = [self.mptonp(value) for value in x.flat]
            return np.array(found, found[0].dtype if found else None).reshape(x.shape)
        dtype = next(dtype for dtype, context in self._contexts.items() if context is x.context)
        if isinstance(x, x.context.mpc):
            return np.array([self.mptonp(x.real), self.mptonp(x.imag)], dtype).view(np.result_type(dtype, 1j))[0]
        with np.errstate(over="ignore"):
            value = dtype.type(float(+x))  # rounded to the precision of the context
        return dtype.type(0) if abs(value) < np.finfo(dtype).tiny / 2 else value

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        arrays = [x for x in args if isinstance(x, np.ndarray | np.floating | np.complexfloating)]
        context = self.get_context(arrays[0])
        given = [self.nptomp(x) if isinstance(x, np.ndarray | np.floating | np.complexfloating) else x for x in args]
        factor, more = self._more
        with context.extraprec(int(context.prec * factor) + more):
            result = super().__call__(*given, **kwargs)
        return tuple(map(self._in_numpy, result)) if isinstance(result, tuple) else self._in_numpy(result)

    def _in_numpy(self, x: Any) -> Any:
        is_array = isinstance(x, np.ndarray) and x.dtype == object
        return self.mptonp(x) if is_array or hasattr(x, "context") else x


# --- functions of mpmath's numbers, on branch cuts and at infinity as NumPy has them ---------------------------------


def _is_complex(x: Any) -> bool:
    return isinstance(x, x.context.mpc)


def _is_infinite(x: Any) -> bool:
    return x.context.isinf(x.real) or x.context.isinf(x.imag)


def _sign(x: Any) -> int:
    return -1 if x < 0 else 1


def _quarters(x: Any) -> int:
    """The absolute value of the argument of an infinite number, in multiples of pi / 4."""
    c = x.context
    if not c.isinf(x.real):
        return 2
    ahead = 1 if c.isinf(x.imag) else 0
    return ahead if x.real > 0 else 4 - ahead


def _sqrt(x: Any) -> Any:
    c = x.context
    return c.mpc(c.inf, x.imag) if _is_complex(x) and c.isinf(x.imag) else c.sqrt(x)


def _log1p(x: Any) -> Any:
    c = x.context
    if _is_complex(x) and c.isinf(x.real) and c.isinf(x.imag):
        return c.mpc(c.inf, _sign(x.imag) * _quarters(x) * c.pi / 4)
    return c.log1p(x)


def _tan(x: Any) -> Any:
    c = x.context
    if _is_complex(x) and c.isinf(x.imag) and not c.isnan(x.real):
        return c.mpc(0, _sign(x.imag))
    if _is_complex(x) and c.isinf(x.real) and c.isfinite(x.imag):
        return c.mpc(c.nan, c.nan)
    return c.tan(x)


def _tanh(x: Any) -> Any:
    c = x.context
    if _is_complex(x) and c.isinf(x.real) and not c.isnan(x.imag):
        return c.mpc(_sign(x.real), 0)
    if _is_complex(x) and c.isinf(x.imag) and c.isfinite(x.real):
        return c.mpc(c.nan, c.nan)
    return c.tanh(x)


def _arcsin(x: Any) -> Any:
    c = x.context
    if _is_complex(x) and c.isinf(x.real):
        return c.mpc(_sign(x.real) * c.pi / (4 if c.isinf(x.imag) else 2), _sign(x.imag) * c.inf)
    if _is_complex(x) and c.isinf(x.imag):
        return c.mpc(0, x.imag)
    return c.asin(x).conjugate() if _is_complex(x) and x.imag == 0 and x.real > 1 else c.asin(x)


def _arccos(x: Any) -> Any:
    c = x.context
    if _is_complex(x) and _is_infinite(x):
        return c.mpc(_quarters(x) * c.pi / 4, -_sign(x.imag) * c.inf)
    return -c.acos(x) if _is_complex(x) and x.imag == 0 and x.real > 1 else c.acos(x)


def _arcsinh(x: Any) -> Any:
    c = x.context
    if _is_complex(x) and c.isinf(x.imag):
        return c.mpc(_sign(x.real) * c.inf, _sign(x.imag) * c.pi / (4 if c.isinf(x.real) else 2))
    if _is_complex(x) and c.isinf(x.real):
        return c.mpc(x.real, 0)
    return (-c.asinh(x)).conjugate() if _is_complex(x) and x.real == 0 and x.imag < -1 else c.asinh(x)


def _arccosh(x: Any) -> Any:
    c = x.context
    if _is_complex(x) and _is_infinite(x):
        return c.mpc(c.inf, _sign(x.imag) * _quarters(x) * c.pi / 4)
    return c.acosh(x)


def _arctan(x: Any) -> Any:
    c = x.context
    if _is_complex(x) and _is_infinite(x):
        return c.mpc(_sign(x.real) * c.pi / 2, 0)
    return (-c.atan(x)).conjugate() if _is_complex(x) and x.real == 0 and x.imag < -1 else c.atan(x)


def _arctanh(x: Any) -> Any:
    c = x.context
    if _is_complex(x) and _is_infinite(x):
        return c.mpc(0, _sign(x.imag) * c.pi / 2)
    return c.atanh(x).conjugate() if _is_complex(x) and x.imag == 0 and x.real > 1 else c.atanh(x)


def _normalize(exact: Any, reference: Any, value: Any) -> Any:
    """The reference and the value as multiples of a unit beyond which the reference differs from the exact number: what
    is left of the two differs by the error in units of the reference's own."""
    c = exact.context
    size = abs(exact)
    if _is_complex(exact):
        real, imaginary = (
            _leading(c, size, e, r, v)
            for e, r, v in ((exact.real, reference.real, value.real), (exact.imag, reference.imag, value.imag))
        )
        return c.mpc(real[0], imaginary[0]), c.mpc(real[1], imaginary[1])
    return _leading(c, size, exact, reference, value)


def _leading(c: Any, size: Any, exact: Any, reference: Any, value: Any) -> tuple[Any, Any]:
    if not all(map(c.isfinite, (exact, reference, value))):
        return reference, value
    parts = [x._mpf_ for x in (size, exact, reference, value)]
    lowest = min(exponent for _, _, exponent, _ in parts)
    whole = [int(mantissa) << (exponent - lowest) for _, mantissa, exponent, _ in parts]
    width = max(1, *(x.bit_length() for x in whole))
    same = width - (whole[1] ^ whole[2]).bit_length()  # the leading bits that are equal
    left = width - same
    signed = [(-1 if sign else 1) * (x >> left) for (sign, *_), x in zip(parts[2:], whole[2:], strict=True)]
    return c.ldexp(c.mpf(signed[0]), -same), c.ldexp(c.mpf(signed[1]), -same)


_functions: dict[str, Callable[..., Any]] = {
    **{name: lambda x: x.context.absmin(x) for name in ("abs", "absolute")},
    "sqrt": _sqrt,
    "exp2": lambda x: x.context.exp(x * x.context.ln2),
    "log": lambda x: x.context.ln(x),
    "log1p": _log1p,
    "log2": lambda x: x.context.ln(x) / x.context.ln2,
    "log10": lambda x: x.context.ln(x) / x.context.ln10,
    "tan": _tan,
    "tanh": _tanh,
    "arcsin": _arcsin,
    "arccos": _arccos,
    "arctan": _arctan,
    "arcsinh": _arcsinh,
    "arccosh": _arccosh,
    "arctanh": _arctanh,
    "square": lambda x: x * x,
    "positive": lambda x: x,
    "negative": lambda x: -x,
    "normalize": _normalize,
}


def _of_context(name: str) -> Callable[[Any], Any]:
    return lambda x: getattr(x.context, name)(x)


_functions |= {name: _of_context(name) for name in "exp expm1 sin cos sinh cosh conjugate sign sinc".split()}


class numpy_with_mpmath:
    """Functions of arrays of NumPy's, computed by mpmath: `sin`, `arctanh` and so on.

    Args:
        mpmath: the module.
        extra_prec_multiplier, extra_prec: by how many widths of the element type and by how many bits more the
            precision is.

    >>> import mpmath
    >>> functions = numpy_with_mpmath(mpmath)
    >>> functions.sin(np.float32(1))
    np.float32(0.84147096)
    """

    def __init__(self, mpmath: Any, extra_prec_multiplier: float = 0, extra_prec: int = 0) -> None:
        self.mpmath = mpmath
        for name, function in _functions.items():
            options: dict[str, Any] = {"extra_prec_multiplier": extra_prec_multiplier, "extra_prec": extra_prec}
            setattr(self, name, vectorize_with_mpmath(function, mpmath=mpmath, **options))

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"numpy_with_mpmath has no function {name!r}; it has {', '.join(_functions)}.")
