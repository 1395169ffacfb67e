"""Tolerances of comparisons by element type, and derivatives against finite differences, with JAX's defaults."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np

from tinyxla.numpy.types import issubdtype
from tinyxla.shapes import element_type
from tinyxla.test_util import DerivativeChecks, differences
from tinyxla.tracing import pytrees
from tinyxla.tracing.config import config
from tinyxla.tracing.promotion import default_dtype, float0

Function = Callable[..., Any]
ToleranceDict = dict[np.dtype[Any], float]
Tolerance = float | Mapping[Any, float] | None
Dtypes = tuple[Any, ...]

EPS = 1e-4
"""The step of finite differences."""

_INTEGERS: Dtypes = (
    np.bool_,
    *(getattr(np, f"{sign}int{width}") for sign in ("", "u") for width in (8, 16, 32, 64)),
    *(
        getattr(ml_dtypes, name)
        for name in (f"{sign}int{width}" for sign in ("", "u") for width in (1, 2, 4))
        if hasattr(ml_dtypes, name)  # not the narrowest ones in old versions
    ),
)
_ONE_DIGIT: Dtypes = (ml_dtypes.float4_e2m1fn, ml_dtypes.float8_e8m0fnu)
_NARROW: Dtypes = (
    *_ONE_DIGIT,
    ml_dtypes.float8_e3m4,
    ml_dtypes.float8_e4m3,
    ml_dtypes.float8_e4m3b11fnuz,
    ml_dtypes.float8_e4m3fn,
    ml_dtypes.float8_e4m3fnuz,
    ml_dtypes.float8_e5m2,
    ml_dtypes.float8_e5m2fnuz,
)


def _by_type(*rows: tuple[float, Dtypes]) -> ToleranceDict:
    return {np.dtype(dtype): value for value, dtypes in rows for dtype in dtypes}


_narrow = ((1e-1, _NARROW), (1.0, _ONE_DIGIT))
_default_tolerance = {float0: 0} | _by_type(
    (0, _INTEGERS),
    *_narrow,
    (1e-2, (ml_dtypes.bfloat16,)),
    (1e-3, (np.float16,)),
    (1e-6, (np.float32, np.complex64)),
    (1e-15, (np.float64, np.complex128)),
)
default_gradient_tolerance = _by_type(
    *_narrow,
    (1e-1, (ml_dtypes.bfloat16,)),
    (1e-2, (np.float16,)),
    (2e-3, (np.float32,)),
    (1e-3, (np.complex64,)),
    (1e-5, (np.float64, np.complex128)),
)


def default_tolerance() -> ToleranceDict:
    """The tolerances of values by element type."""
    return _default_tolerance


def tolerance(dtype: Any, tol: Tolerance = None) -> float:
    """The tolerance for an element type: the given one, that of the type in a given dict, or the default."""
    if tol is not None and not isinstance(tol, Mapping):
        return tol
    found = default_dtype(np.dtype(dtype))
    by_type = {np.dtype(kind): value for kind, value in (tol or {}).items()}
    return by_type.get(found, default_tolerance()[found])


def _as_dict(tol: Tolerance) -> ToleranceDict:
    if isinstance(tol, Mapping):
        return {np.dtype(kind): value for kind, value in tol.items()}
    return dict.fromkeys(_default_tolerance, tol or 0)


def join_tolerance(tol1: Tolerance, tol2: Tolerance) -> ToleranceDict:
    """The larger one of two tolerances for each element type."""
    first, second = _as_dict(tol1), _as_dict(tol2)
    return first | {kind: max(value, first.get(kind, 0)) for kind, value in second.items()}


def dtype_of(x: Any) -> Any:
    """The element type of an array; that of a number of Python's is the widest one."""
    return x.dtype if hasattr(x, "dtype") else np.asarray(x).dtype


def canonical(dtype: Any) -> Any:
    """An element type as values have it where none is asked for; what is no type of numbers stays."""
    is_number = isinstance(dtype, np.dtype) and dtype != float0
    return default_dtype(dtype) if is_number else dtype


def _in_numpy(x: Any) -> Any:
    """An array in a type that NumPy compares."""
    if x.dtype in map(np.dtype, (*_NARROW, ml_dtypes.bfloat16)):
        return x.astype(np.float32)
    if x.dtype.kind == "V" and x.dtype != float0:
        return x.astype(np.int8 if element_type(x.dtype).kind == "int" else np.uint8)
    return x


def assert_numpy_allclose(
    a: Any, b: Any, atol: float | None = None, rtol: float | None = None, err_msg: str = ""
) -> None:
    """Compare arrays.

    Raises:
        AssertionError: they differ.
    """
    if a.dtype == b.dtype == float0:
        np.testing.assert_array_equal(a, b, err_msg=err_msg)
        return
    given: dict[str, Any] = {name: value for name, value in (("atol", atol), ("rtol", rtol)) if value}
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(_in_numpy(a), _in_numpy(b), **given, err_msg=err_msg)


def _assert_close(a: Any, b: Any, atol: Tolerance, rtol: Tolerance, err_msg: str) -> None:
    """Compare arrays, with tolerances that grow with the number of elements, as those of sums do."""
    a, b = np.asarray(a), np.asarray(b)
    assert a.shape == b.shape, f"{err_msg}: the shapes are {a.shape} and {b.shape}"
    absolute, relative = (max(tolerance(a.dtype, tol), tolerance(b.dtype, tol)) for tol in (atol, rtol))
    assert_numpy_allclose(a, b, absolute * a.size, relative * b.size, err_msg)


def check_close(xs: Any, ys: Any, atol: Tolerance = None, rtol: Tolerance = None, err_msg: str = "") -> None:
    """Compare pytrees of arrays within tolerances times the number of elements.

    Raises:
        AssertionError: they differ.
    """
    pytrees.map_tree(lambda x, y: _assert_close(x, y, atol, rtol, err_msg), xs, ys)


def check_eq(xs: Any, ys: Any, err_msg: str = "") -> None:
    """Compare pytrees of arrays.

    Raises:
        AssertionError: they differ.
    """
    pytrees.map_tree(lambda x, y: assert_numpy_allclose(np.asarray(x), np.asarray(y), err_msg=err_msg), xs, ys)


def check_dtypes_match(xs: Any, ys: Any) -> None:
    """Compare the element types of pytrees of arrays, 64-bit ones as what they become without `enable_x64`.

    Raises:
        AssertionError: they differ.
    """

    def compare(x: Any, y: Any) -> None:
        found = dtype_of(x), dtype_of(y)
        first, second = found if config.enable_x64 else map(canonical, found)
        assert first == second, f"the element types are {first} and {second}"

    pytrees.map_tree(compare, xs, ys)


# --- derivatives


def _is_number(x: Any) -> bool:
    return isinstance(x, bool | int | float | complex) and not isinstance(x, np.generic)


def rand_like(rng: Any, x: Any) -> Any:
    """Normal numbers of the shape and type of an array or number."""
    dtype = dtype_of(x)

    def part() -> Any:
        return np.asarray(rng.randn(*np.shape(x)), dtype=dtype)

    found = part()
    if issubdtype(dtype, np.complexfloating):
        found = found + dtype.type(1.0j) * part()
    return found.item() if _is_number(x) else found


def numerical_jvp(f: Function, primals: Any, tangents: Any, eps: float = EPS) -> Any:
    """The derivative along a direction by the central difference."""
    return differences(f, primals, tangents, eps, _Checks.stencil)


class _Checks(DerivativeChecks):
    """Derivatives against differences with the steps, the directions and the functions of higher order of JAX."""

    stencil = (0.5,)

    def direction(self, random: Any, x: Any) -> Any:
        return rand_like(random, x)

    def product(self, x: Any, y: Any) -> Any:
        """In the type of the arrays, by which tolerances are chosen."""
        products = pytrees.map_tree(lambda a, b: np.real(np.dot(np.ravel(a), np.ravel(b))), x, y)
        return functools.reduce(np.add, pytrees.leaves(products))

    def assert_close(self, found: Any, expected: Any, what: str) -> None:
        check_close(found, expected, self.atol, self.rtol, what)

    def of_jvp(self, f_jvp: Function, args: Any) -> tuple[Function, Any]:
        return f_jvp, (args, args)

    def of_vjp(self, f_vjp: Function, args: Any) -> tuple[Function, Any]:
        def pulled(*primals: Any) -> Any:
            value, pullback = f_vjp(*primals)
            return pullback(value)

        return pulled, args

    def check_jvp(self, f: Function, f_jvp: Function, args: Any, what: str = "") -> None:
        def checked(primals: Any, tangents: Any) -> Any:
            value, tangent = f_jvp(primals, tangents)
            check_dtypes_match(value, tangent)
            check_dtypes_match(value, f(*primals))
            return value, tangent

        super().check_jvp(f, checked, args, what)


def _checks(atol: Tolerance, rtol: Tolerance, eps: float | None) -> _Checks:
    def or_default(tol: Tolerance) -> Tolerance:
        if tol is None or isinstance(tol, Mapping):
            return default_gradient_tolerance | {np.dtype(kind): value for kind, value in (tol or {}).items()}
        return tol

    return _Checks(or_default(atol), or_default(rtol), eps or EPS)


def check_jvp(
    f: Function,
    f_jvp: Function,
    args: Any,
    atol: Tolerance = None,
    rtol: Tolerance = None,
    eps: float = EPS,
    err_msg: str = "",
) -> None:
    """Compare `f_jvp(args, tangents)` with a finite difference along a random direction.

    Raises:
        AssertionError: the values, the derivatives or their types differ.
    """
    _checks(atol, rtol, eps).check_jvp(f, f_jvp, args, err_msg)


def check_vjp(
    f: Function,
    f_vjp: Function,
    args: Any,
    atol: Tolerance = None,
    rtol: Tolerance = None,
    eps: float = EPS,
    err_msg: str = "",
) -> None:
    """Compare `f_vjp(*args)`, a value and its pullback, with a finite difference: the product of a random cotangent
    with the difference along a random direction is that of the pulled-back cotangent with the direction.

    Raises:
        AssertionError: the values or the products differ.
    """
    _checks(atol, rtol, eps).check_vjp(f, f_vjp, args, err_msg)


def check_grads(
    f: Function,
    args: Any,
    order: int,
    modes: Any = ("fwd", "rev"),
    atol: Tolerance = None,
    rtol: Tolerance = None,
    eps: float | None = None,
) -> None:
    """Compare derivatives with finite differences.

    Args:
        f: a function of arrays.
        args: its arguments.
        order: derivatives up to this order, each mode applied to those of the orders below.
        modes: "fwd" (`jvp`), "rev" (`vjp`) and "lin" (`linearize`).
        atol, rtol: tolerances, numbers or dicts by element type.
        eps: the step.

    Raises:
        AssertionError: a derivative differs.
    """
    _checks(atol, rtol, eps).check_grads(f, tuple(args), order, modes)
