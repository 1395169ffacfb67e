"""The NumPy-like API against jax.numpy (types, and values where the two libraries differ) and NumPy (values)."""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy
import ml_dtypes
import numpy as np
import pytest

import tinyxla as tx
import tinyxla.numpy as jnp
from tinyxla.errors import (
    ArgumentError,
    AttributeValueError,
    ConcretizationError,
    DTypeError,
    ShapeError,
    TinyxlaError,
    TracerError,
)

random = np.random.default_rng(7)


def floats(*shape: int, low: float = -2.0, high: float = 2.0, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    return random.uniform(low, high, shape).astype(dtype)


def integers(*shape: int, low: int = -5, high: int = 6, dtype: Any = np.int32) -> np.ndarray[Any, Any]:
    return random.integers(low, high, shape).astype(dtype)


def complexes(*shape: int) -> np.ndarray[Any, Any]:
    return (floats(*shape) + 1j * floats(*shape)).astype(np.complex64)


X, Y, M, N = floats(3, 4), floats(4), floats(4, 3), integers(3, 4)
V, W, P = floats(5), integers(5), floats(3, 4, low=0.2)
Z, B, K = complexes(3, 4), random.random((3, 4)) < 0.5, floats(2, 3, 4)
U = integers(3, 4, low=0, high=9, dtype=np.uint8)
SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5, -1.5, 1e30, -1e-30], np.float32)
INEXACT = np.array([np.nan, 1.0, np.nan, -2.0, 3.0], np.float32)


def leaves(result: Any) -> list[Any]:
    return list(result) if isinstance(result, (tuple, list)) else [result]


def apply(module: Any, name: str, args: Any, options: dict[str, Any]) -> Any:
    function = module
    for part in name.split("."):
        function = getattr(function, part)
    return function(*args, **options)


def as_arrays(module: Any, value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return module.asarray(value)
    if isinstance(value, (list, tuple)) and any(isinstance(v, np.ndarray) for v in value):
        return type(value)(as_arrays(module, v) for v in value)
    return value


def check(name: str, args: Any, options: dict[str, Any], oracle: str, tolerance: float = 2e-6) -> None:
    found = leaves(apply(jnp, name, [as_arrays(jnp, a) for a in args], options))

    def by_jax() -> list[Any]:
        return leaves(apply(jax.numpy, name, [as_arrays(jax.numpy, a) for a in args], options))

    try:
        expected_types = jax.eval_shape(by_jax)
    except (jax.errors.ConcretizationTypeError, jax.errors.TracerBoolConversionError):  # the shape depends on values
        expected_types = by_jax()
    if oracle == "jax":
        expected = by_jax()
    else:
        with np.errstate(all="ignore"):
            expected = leaves(apply(np, name, args, options))
    assert len(found) == len(expected) == len(expected_types)
    for mine, theirs, kind in zip(found, expected, expected_types, strict=True):
        assert isinstance(mine, tx.Array)
        assert (mine.shape, mine.dtype) == (kind.shape, kind.dtype), f"{name}: {mine} for {kind}"
        close(mine, theirs, name, tolerance)


def close(mine: Any, theirs: Any, what: str, tolerance: float = 2e-6) -> None:
    a, b = np.asarray(mine), np.asarray(theirs)
    if a.dtype.kind in "biu":
        np.testing.assert_array_equal(a, b.astype(a.dtype), what)
        return
    kind = ml_dtypes.finfo(a.dtype)
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    rtol = max(tolerance, 4 * float(kind.eps))
    np.testing.assert_allclose(a.astype(wide), b.astype(wide), rtol=rtol, atol=rtol / 10, err_msg=what)


Case = tuple[str, list[Any], dict[str, Any]]


def case(name: str, *args: Any, **options: Any) -> Case:
    return name, list(args), options


UNARY = """
sin cos tan sinh cosh tanh exp expm1 square sign floor ceil rint trunc negative absolute positive exp2 cbrt isnan
isinf isfinite signbit deg2rad rad2deg radians degrees logical_not arctan arcsinh sinc fabs isposinf isneginf
""".split()
POSITIVE = "log log2 log10 log1p sqrt reciprocal".split()
BINARY = """
add subtract multiply divide true_divide floor_divide remainder mod fmod maximum minimum fmax fmin hypot logaddexp
logaddexp2 arctan2 copysign heaviside equal not_equal less less_equal greater greater_equal logical_and logical_or
logical_xor float_power nextafter
""".split()

ELEMENTWISE = [case(name, x) for name in UNARY for x in (X, N, SPECIAL)]
ELEMENTWISE += [case(name, x) for name in POSITIVE for x in (P, np.abs(N) + 1, SPECIAL[3:])]
ELEMENTWISE += [
    case(name, x, y) for name in BINARY for x, y in ((X, Y), (N, X), (N, N.T[0][:3, None]), (SPECIAL, SPECIAL[::-1]))
]
ELEMENTWISE += [case(name, x) for name in ("arcsin", "arccos", "arctanh") for x in (X / 2, np.float32([-1, 1, 0, 2]))]
ELEMENTWISE += [
    case("arccosh", np.float32([1, 1.5, 3, 1e20, 3e38, 0.5])),
    case("arcsinh", np.float32([0, -0.0, 1e-20, 1e20, -3e38, 0.1, -3])),
    *(case(f, Z) for f in "exp sin cos tanh conjugate real imag square negative arcsin arccos arctan arcsinh".split()),
    *(case(f, Z) for f in "arccosh arctanh absolute sign isnan angle sqrt log".split()),
    case("angle", X),
    case("angle", Z, deg=True),
    *(case(f, N, N + 7) for f in ("bitwise_and", "bitwise_or", "bitwise_xor")),
    *(case(f, U, U % 7 + 1) for f in ("left_shift", "right_shift", "floor_divide", "remainder")),
    case("right_shift", N, np.abs(N)),
    case("left_shift", N, np.abs(N)),
    case("invert", N),
    case("invert", B),
    case("bitwise_count", U),
    case("add", B, B),
    case("multiply", B, B),
    case("power", P, Y),
    case("power", N, 3),
    case("power", X, 2),
    case("power", X, -3),
    case("power", N, np.abs(N)),
    case("power", X, 0),
    case("power", P, 0.5),
    case("clip", X, -1, 1),
    case("clip", X, None, 0.5),
    case("clip", N, -1, 2),
    case("round", X * 10),
    case("round", X * 100, 1),
    case("round", X * 1000, -2),
    case("round", Z * 10, 1),
    case("divmod", N, 3),
    case("divmod", X, 0.7),
    case("modf", SPECIAL),
    case("frexp", np.float32([0, 1, -3.5, 1e30, 1e-30, np.inf])),
    case("ldexp", X, N),
    case("ldexp", np.float32([0, 1e-20, 1e38, -1e-30, np.inf, np.nan]), np.int32([128, 150, -200, 1000, -400, 3])),
    case("floor_divide", np.float32([1, -1, 1, -1, -7]), np.float32([-np.inf, np.inf, np.inf, -np.inf, 2])),
    case("mod", np.int32([5, -5, 7]), np.int32([0, 0, -2])),
    case("fmod", np.int32([5, -5, 7]), np.int32([0, 0, -2])),
    case("nan_to_num", SPECIAL),
    case("nan_to_num", SPECIAL, nan=1.0, posinf=2.0, neginf=-2.0),
    case("isclose", SPECIAL, SPECIAL),
    case("isclose", SPECIAL, SPECIAL, equal_nan=True),
    case("isclose", X, X + np.float32(1e-7)),
    case("where", B, X, N),
    case("where", B, X, 1.0),
    case("where", X > 0),
    case("select", [X > 1, X > 0], [X, -X], 7.0),
    case("unwrap", np.cumsum(floats(9) * 3).astype(np.float32)),
    case("isreal", Z),
    case("iscomplex", Z),
    case("spacing", np.float32([1, 2, 1000])),
]

AXES: list[Any] = [None, 0, -1, (0, 2), ()]
REDUCED = "sum prod max min mean var std all any ptp count_nonzero nansum nanmax nanmean".split()
REDUCTIONS = [case(f, K, axis=a) for f in REDUCED for a in (*AXES[:4], *AXES[4:] * (f not in ("ptp",)))]
REDUCTIONS += [case(f, K, axis=1, keepdims=True) for f in REDUCED]
REDUCTIONS += [case(f, N) for f in ("sum", "prod", "max", "mean", "var", "any")]
REDUCTIONS += [case(f, B, axis=0) for f in ("sum", "mean", "max", "all", "prod")]
REDUCTIONS += [case(f, Z, axis=0) for f in ("sum", "mean", "var", "std", "prod")]
REDUCTIONS += [case(f, K, axis=a) for f in ("argmax", "argmin") for a in (None, 0, 1, -1)]
REDUCTIONS += [case(f, K, axis=a) for f in ("cumsum", "cumprod") for a in (None, 0, -1)]
REDUCTIONS += [
    case(f, INEXACT) for f in "sum max argmax argmin nansum nanprod nanmax nanmin nanmean nanvar nanstd".split()
]
REDUCTIONS += [case(f, INEXACT) for f in "nanargmax nanargmin nancumsum nancumprod nanmedian median".split()]
REDUCTIONS += [
    case("sum", K, axis=0, where=K > 0),
    case("mean", K, axis=0, where=K > -1.9),
    case("std", K, axis=0, where=K > -1.9),
    case("max", K, axis=0, where=K > 0, initial=-9.0),
    case("prod", K, axis=(1, 2), initial=2.0),
    case("sum", U, dtype=np.float32),
    case("var", K, ddof=1),
    case("std", K, axis=1, ddof=1, keepdims=True),
    case("average", K, axis=1),
    case("average", K, axis=1, weights=np.float32([1, 2, 3])),
    case("average", X, weights=P, returned=True),
    case("argmax", X, axis=0, keepdims=True),
    case("argmax", B, axis=1),
    case("argmin", U),
    case("sum", floats(0, 3), axis=0),
    case("cumsum", B),
    case("cumsum", N, dtype=np.float32),
    case("cumulative_sum", V, include_initial=True),
    case("diff", K, axis=1),
    case("diff", V, n=2),
    case("diff", V, prepend=0.0, append=X[0, :2]),
    case("ediff1d", V, to_begin=1.0),
    case("median", K, axis=(0, 2)),
    case("quantile", K, np.float32([0.1, 0.5, 0.9]), axis=1),
    case("quantile", K, 0.3, axis=(0, 1), keepdims=True),
    *(case("quantile", K, 0.37, axis=0, method=m) for m in ("lower", "higher", "midpoint", "nearest", "linear")),
    case("percentile", K, 30.0, axis=-1),
    case("nanquantile", np.where(K > 1, np.nan, K).astype(np.float32), 0.4, axis=1),
    case("array_equal", X, X),
    case("array_equal", X, Y),
    case("array_equiv", X, X[:1]),
    case("allclose", X, X + np.float32(1e-7)),
    case("trapezoid", X, axis=0),
    case("trapezoid", V, np.cumsum(np.abs(floats(5)))),
    case("cov", X),
    case("cov", X, rowvar=False, bias=True),
    case("corrcoef", X),
    case("histogram", V, 4),
    case("histogram", V, np.float32([-2, 0, 1, 2]), weights=np.abs(V), density=True),
    case("bincount", np.abs(W)),
    case("bincount", np.abs(W), weights=V, minlength=9),
    case("digitize", V, np.float32([-1, 0, 1])),
    case("digitize", V, np.float32([1, 0, -1]), right=True),
    case("digitize", N, np.float32([2, 1, 0, -1])),
    case("digitize", N, np.float32([2, 1, 0, -1]), right=True),
    case("gradient", V),
    case("gradient", K, axis=1),
    case("gradient", K, 2.0),
    case("gradient", V, np.float32([0, 1, 3, 4, 7])),
]

MOVED = [
    case("reshape", K, (4, -1)),
    case("reshape", K, (6, 4), order="F"),
    case("ravel", K),
    case("ravel", X, order="F"),
    case("transpose", K),
    case("transpose", K, (1, 0, 2)),
    case("swapaxes", K, 0, -1),
    case("moveaxis", K, (0, 1), (-1, 0)),
    case("moveaxis", K, 0, 2),
    case("rollaxis", K, 2),
    case("rollaxis", K, 0, 3),
    case("expand_dims", X, (0, 2)),
    case("squeeze", X[None, :, None]),
    case("squeeze", X[None, :, None], axis=0),
    case("broadcast_to", Y, (3, 4)),
    case("broadcast_to", X[:, :1], (2, 3, 4)),
    case("broadcast_arrays", X, Y, X[:, :1]),
    *(case(f"atleast_{n}d", x) for n in (1, 2, 3) for x in (X[0, 0], Y, X, K)),
    case("concatenate", [X, X], axis=1),
    case("concatenate", [X, Y], axis=None),
    case("concatenate", [N, X]),
    case("stack", [X, P], axis=1),
    case("hstack", [X, P]),
    case("hstack", [Y, Y]),
    case("vstack", [X, Y]),
    case("dstack", [X, P]),
    case("column_stack", [V, W]),
    case("block", [[X, P], [P, X]]),
    case("split", K, 2, axis=2),
    case("split", V, [1, 3]),
    case("array_split", V, 3),
    case("hsplit", K, 3),
    case("vsplit", K, 2),
    case("dsplit", K, [1]),
    case("unstack", X),
    case("append", X, Y),
    case("tile", X, 2),
    case("tile", X, (2, 1, 3)),
    case("repeat", X, 2, axis=1),
    case("repeat", X, 3),
    case("repeat", X, np.array([1, 0, 2]), axis=0),
    case("flip", K, axis=(0, 2)),
    case("flip", K),
    case("fliplr", X),
    case("flipud", X),
    *(case("rot90", K, k) for k in (0, 1, 2, 3)),
    case("rot90", K, 1, axes=(2, 1)),
    case("roll", X, 2),
    case("roll", X, np.int32(7)),
    case("roll", X, np.uint8([5, 2]), axis=(0, 1)),
    case("roll", X, np.int8([5, -7]), axis=1),
    case("roll", X, -1, axis=1),
    case("roll", X, (1, 2), axis=(0, 1)),
    case("diagonal", K, offset=1, axis1=0, axis2=2),
    case("diagonal", X, offset=-1),
    case("diagonal", X, offset=9),
    case("diag", V, 1),
    case("diag", V, -2),
    case("diag", X, 1),
    case("diagflat", X, 1),
    case("trace", X, 1),
    case("trace", K, axis1=1, axis2=2),
    case("tril", X),
    case("triu", K, 1),
    case("tril", X, -1),
    *(
        case("pad", X, ((1, 2), (0, 3)), mode=m)
        for m in ("constant", "edge", "reflect", "symmetric", "wrap", "maximum")
    ),
    *(case("pad", X, 2, mode=m) for m in ("mean", "minimum", "linear_ramp")),
    case("pad", X, (1, 2), constant_values=5),
    case("pad", X, 1, constant_values=((1, 2), (3, 4))),
    case("pad", V, 9, mode="reflect"),
    case("take", X, np.array([0, 2, -1]), axis=1),
    case("take", X, np.array([[0, 5], [11, 3]])),
    case("take_along_axis", X, np.argsort(X, 1), axis=1),
    case("sort", K, axis=1),
    case("sort", K, axis=None),
    case("sort", SPECIAL),
    case("argsort", K, axis=0),
    case("argsort", N, stable=True),
    case("lexsort", [N[0], N[1]]),
    case("searchsorted", np.sort(V), X),
    case("searchsorted", np.sort(W), N, side="right"),
    case("interp", X, np.float32([-1, 0, 1.5]), np.float32([3, -1, 2])),
    case("nonzero", N),
    case("flatnonzero", N),
    case("argwhere", N),
    case("unique", N),
    case("unique", N, return_index=True, return_inverse=True, return_counts=True),
    case("isin", N, W),
    case("union1d", N, W),
    case("intersect1d", N, W),
    case("setdiff1d", N, W),
    case("setxor1d", W, N),
    case("delete", X, 1, axis=0),
    case("delete", V, np.array([0, 3])),
    case("insert", X, 1, 5.0, axis=1),
    case("insert", V, np.array([1, 3]), 9.0),
    case("choose", N % 2, [X, P], mode="clip"),
    case("compress", np.array([True, False, True]), X, axis=0),
    case("extract", X > 0, X),
    case("unravel_index", np.array([1, 5, 11]), (3, 4)),
    case("ravel_multi_index", (np.array([1, 2]), np.array([0, 3])), (3, 4)),
    case("resize", X, (5, 4)),
    case("trim_zeros", np.float32([0, 0, 1, 0, 2, 0])),
    case("tril_indices", 3, 1),
    case("triu_indices", 3, -1, 4),
    case("diag_indices", 3),
]

MADE = [
    case("linspace", 0, 1, 7),
    case("linspace", 2.0, 3.0, 5, endpoint=False),
    case("linspace", 0, 10, 4, dtype=int),
    case("linspace", X[0], X[1], 3, axis=1),
    case("linspace", 0, 1, 1),
    case("linspace", 0, 1, 0),
    case("linspace", 0, 1, 5, retstep=True),
    case("logspace", 0, 2, 5),
    case("geomspace", 1, 1000, 4),
    case("arange", 5),
    case("arange", 2, 9, 3),
    case("arange", 5, 0, -2),
    case("arange", 0.5, 3.0, 0.5),
    case("arange", 3, dtype=np.float32),
    case("eye", 3),
    case("eye", 3, 4, 1),
    case("eye", 3, k=-1, dtype=np.int32),
    case("identity", 2),
    case("tri", 3, 4, 1),
    case("zeros", (2, 3)),
    case("ones", 3, dtype=np.int8),
    case("full", (2, 2), 7.5),
    case("full", (2, 4), Y),
    case("zeros_like", N),
    case("ones_like", X, dtype=np.int32),
    case("full_like", X, 3),
    case("meshgrid", V, W),
    case("meshgrid", V, W, indexing="ij"),
    case("meshgrid", V, W, sparse=True),
    case("indices", (2, 3)),
    case("vander", V),
    case("vander", V, 3, increasing=True),
    *(case(w, n) for w in ("bartlett", "hanning", "hamming", "blackman") for n in (0, 1, 2, 7)),
    case("i0", np.array([-3.0, 0.0, 0.5, 9.0, 20.0], np.float32)),
    case("kaiser", 6, 3.5),
    case("array", [[1, 2], [3, 4]]),
    case("array", [1, 2.5]),
    case("array", 3, ndmin=2),
]

PRODUCTS = [
    case("dot", X, M),
    case("dot", X, Y),
    case("dot", Y, M),
    case("dot", Y, Y),
    case("dot", K, M),
    case("dot", K, floats(2, 4, 3)),
    case("dot", 3.0, X),
    case("matmul", X, M),
    case("matmul", K, M),
    case("matmul", K, floats(2, 4, 5)),
    case("matmul", K, floats(5, 1, 4, 2)),
    case("matmul", Y, M),
    case("matmul", Y, floats(2, 4, 5)),
    case("matmul", X, floats(2, 4, 5)),
    case("matmul", K, Y),
    case("matmul", N, N.T),
    case("matmul", Z, Z.T),
    case("vdot", Z, Z),
    case("inner", K, X),
    case("outer", V, X),
    case("tensordot", K, floats(3, 4, 2)),
    case("tensordot", K, floats(4, 2, 5), axes=((0, 2), (1, 0))),
    case("tensordot", K, X, axes=0),
    case("kron", X, P[:2]),
    case("kron", V, X),
    case("cross", floats(4, 3), floats(4, 3)),
    case("vecdot", X, P),
    case("einsum", "ij,jk->ik", X, M),
    case("einsum", "ij,jk", X, M),
    case("einsum", "ii", X[:, :3]),
    case("einsum", "ii->i", X[:, :3]),
    case("einsum", "ij->ji", X),
    case("einsum", "ij->", X),
    case("einsum", "bij,bjk->bik", K, floats(2, 4, 5)),
    case("einsum", "...ij,jk->...ik", K, M),
    case("einsum", "i,j->ij", V, Y),
    case("einsum", "ij,kj,k->i", X, P, floats(3)),
    case("einsum", "bhqd,bhkd->bhqk", floats(2, 2, 3, 4), floats(2, 2, 5, 4)),
    case("einsum", "ijk,jil->kl", K, floats(3, 2, 2)),
    case("einsum", "i,i,i->i", V, V, V),
    case("einsum", "a,b,c->abc", V, Y, floats(2)),
    case("einsum", "ij,j->i", N, N[0]),
    case("einsum", "...i,...i", X, Y),
    case("convolve", V, Y),
    case("convolve", V, Y, mode="same"),
    case("convolve", Y, V, mode="valid"),
    case("correlate", V, Y),
    case("correlate", V, Y, mode="full"),
    case("polyval", V, X),
    case("polyadd", V, Y),
    case("polymul", V, Y),
    case("polyder", V),
    case("matvec", K, Y),
    case("vecmat", Z[:, :3], Z[:, :3].T),
    case("polyint", V),
    case("linalg.norm", X),
    case("linalg.norm", V, 3),
    case("linalg.norm", K, axis=(0, 1)),
    *(case("linalg.norm", X, o) for o in ("fro", 1, -1, np.inf, -np.inf)),
    *(case("linalg.norm", X, o, axis=1) for o in (0, 1, 2, np.inf, -np.inf, 2.5)),
    case("linalg.norm", Z),
    case("linalg.matrix_power", X[:, :3], 5),
    case("linalg.multi_dot", [X, M, X]),
]


def identify(value: Any) -> str:
    return value if isinstance(value, str) else ""


def named(cases: list[Case]) -> Any:
    return pytest.mark.parametrize(
        ("name", "args", "options"), cases, ids=[f"{n}-{k}" for k, (n, _, _) in enumerate(cases)]
    )


# Where NumPy has another result: names, other types of Python numbers, other modes.
BY_JAX = set("float_power reciprocal nextafter power unravel_index spacing sinc".split())
LOOSE = {"arctanh": 1e-5, "arccosh": 1e-5, "tan": 1e-5, "var": 1e-5, "std": 1e-5, "corrcoef": 1e-5, "geomspace": 1e-5}
LOOSE |= {
    "logspace": 1e-5,
    "einsum": 1e-5,
    "matmul": 1e-5,
    "dot": 1e-5,
    "tensordot": 1e-5,
    "polyval": 1e-5,
    "cov": 1e-5,
}
LOOSE |= {"linalg.matrix_power": 1e-5, "linalg.multi_dot": 1e-5, "arccos": 1e-5, "arcsin": 1e-5, "remainder": 1e-5}
LOOSE |= {"mod": 1e-5, "floor_divide": 1e-5, "divmod": 1e-5, "unwrap": 1e-5, "vander": 1e-5, "convolve": 1e-5}


@pytest.mark.sample(every=2)
@named([*ELEMENTWISE, *REDUCTIONS, *MOVED, *MADE, *PRODUCTS])
def test_function(name: str, args: Any, options: dict[str, Any]) -> None:
    check(name, args, options, "jax" if name in BY_JAX else "numpy", LOOSE.get(name, 2e-6))


def traceable(cases: list[Case]) -> list[Case]:
    refused = set(
        "nonzero flatnonzero argwhere unique union1d intersect1d setdiff1d setxor1d bincount trim_zeros".split()
    )
    refused |= set("extract compress repeat ravel_multi_index array delete insert unravel_index where".split())
    return [c for c in cases if c[0] not in refused and any(isinstance(a, np.ndarray) for a in c[1])]


@pytest.mark.sample(every=4)
@named(traceable([*ELEMENTWISE[::3], *REDUCTIONS[::2], *MOVED, *PRODUCTS]))
def test_traced_as_eager(name: str, args: Any, options: dict[str, Any]) -> None:
    """A graph of the function gives what the function gives at once, in the same types; so does mapping it."""
    where = [k for k, a in enumerate(args) if isinstance(a, np.ndarray)]
    arrays = [jnp.asarray(args[k]) for k in where]

    def function(*values: Any) -> Any:
        whole = list(args)
        for k, v in zip(where, values, strict=True):
            whole[k] = v
        return apply(jnp, name, whole, options)

    expected = leaves(function(*arrays))
    tx.make_graph(function)(*arrays)
    mapped = leaves(tx.vmap(function)(*(x[None] for x in arrays)))
    shapes = leaves(tx.eval_shape(function, *arrays))
    for mine, kind, other in zip(expected, shapes, mapped, strict=True):
        assert (mine.shape, mine.dtype, mine.weak_type) == (kind.shape, kind.dtype, kind.weak_type)
        close(other[0], mine, name, 1e-5)


@pytest.mark.sample(every=4)
@named(traceable([*ELEMENTWISE[::7], *REDUCTIONS[::5], *MOVED[::4], *PRODUCTS[::4]]))
def test_compiled_as_eager(name: str, args: Any, options: dict[str, Any]) -> None:
    where = [k for k, a in enumerate(args) if isinstance(a, np.ndarray)]
    arrays = [jnp.asarray(args[k]) for k in where]

    def function(*values: Any) -> Any:
        whole = list(args)
        for k, v in zip(where, values, strict=True):
            whole[k] = v
        return apply(jnp, name, whole, options)

    for found, expected in zip(leaves(tx.jit(function)(*arrays)), leaves(function(*arrays)), strict=True):
        assert (found.shape, found.dtype, found.weak_type) == (expected.shape, expected.dtype, expected.weak_type)
        close(found, expected, name, 2e-5)


# --- derivatives ------------------------------------------------------------------------------------------------------

SMOOTH: list[Case] = [
    *(case(f, X) for f in "sin cos tanh exp expm1 square arctan arcsinh sinc sinh exp2 deg2rad".split()),
    *(case(f, P) for f in "log log1p sqrt log2 log10 reciprocal cbrt".split()),
    *(case(f, X / 3) for f in "arcsin arccos arctanh tan".split()),
    case("arccosh", P + 1),
    case("power", X, 3),
    case("power", X, -2),
    case("absolute", X),
    case("clip", X, -1.0, 1.0),
    *(case(f, K, axis=1) for f in "sum mean var std max min prod median".split()),
    case("cumsum", X, axis=1),
    case("cumprod", X, axis=0),
    case("sort", X, axis=0),
    case("quantile", V, 0.3),
    case("linalg.norm", X),
    case("linalg.norm", X, axis=1),
    case("pad", X, 2, mode="reflect"),
    case("roll", X, 1, axis=0),
    case("diag", V),
    case("tril", X),
    case("interp", X, np.float32([-3, 0, 3]), np.float32([3, -1, 2])),
    case("diff", X),
    case("trapezoid", V),
    case("convolve", V, Y),
    case("nanmean", X),
    case("remainder", X, 0.7),
    case("polyval", Y, 1.3),
    case("take", X, np.array([0, 0, 2]), axis=0),
    case("repeat", V, 3),
]


@pytest.mark.sample(every=4)
@named(SMOOTH)
def test_gradient(name: str, args: Any, options: dict[str, Any]) -> None:
    def loss(module: Any) -> Callable[..., Any]:
        def function(x: Any) -> Any:
            found = apply(module, name, [x, *args[1:]], options)
            return (found * module.cos(module.arange(found.size, dtype="float32").reshape(found.shape))).sum()

        return function

    mine = tx.grad(loss(jnp))(args[0])
    close(mine, jax.jit(jax.grad(loss(jax.numpy)))(args[0]), name, 5e-5)


@pytest.mark.parametrize("name", "hypot logaddexp logaddexp2 arctan2 power maximum true_divide matmul dot".split())
def test_gradient_of_two(name: str) -> None:
    x, y = floats(3, 3, low=0.3), floats(3, 3, low=0.3)
    for k in (0, 1):
        mine = tx.grad(lambda x, y: (getattr(jnp, name)(x, y) * x).sum(), argnums=k)(x, y)
        theirs = jax.jit(jax.grad(lambda x, y: (getattr(jax.numpy, name)(x, y) * x).sum(), argnums=k))(x, y)
        close(mine, theirs, name, 1e-5)


def test_gradients_that_are_finite() -> None:
    """What is not chosen, and what has a subgradient, makes no NaN."""
    assert tx.grad(lambda x: jnp.where(x > 0, jnp.sqrt(jnp.where(x > 0, x, 1.0)), 0.0))(0.0) == 0
    assert tx.grad(lambda x: jnp.linalg.norm(x))(jnp.zeros(3)).tolist() == [0, 0, 0]
    assert tx.grad(lambda x: jnp.hypot(x, 0.0))(0.0) == jax.grad(lambda x: jax.numpy.hypot(x, 0.0))(0.0)
    assert tx.grad(lambda x: jnp.sinc(x))(0.0) == 0
    assert tx.grad(lambda x: jnp.logaddexp(x, -jnp.inf))(1.0) == 1
    assert tx.grad(lambda x: x**2)(0.0) == 0
    assert tx.grad(tx.grad(lambda x: x**2))(0.0) == 2


# --- narrow types -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_floats_are_summed_wide(dtype: str) -> None:
    x = jnp.full(5000, 0.1, dtype)
    exact = 5000 * float(x[0])
    assert x.sum().dtype == x.dtype
    assert abs(float(x.sum()) - exact) <= exact * float(jnp.finfo(dtype).eps)
    assert abs(float(x.mean()) - float(x[0])) < 1e-3
    assert abs(float(jnp.dot(x, jnp.ones(5000, dtype))) - exact) <= exact * float(jnp.finfo(dtype).eps)


def test_integer_arithmetic_wraps_and_never_traps() -> None:
    smallest = jnp.asarray(np.iinfo(np.int32).min)
    assert (smallest - 1) == np.iinfo(np.int32).max
    assert (smallest // -1) == smallest
    assert (jnp.asarray(5) // 0).dtype == np.int32
    assert (jnp.asarray(5) % 0).dtype == np.int32
    assert (jnp.uint8(250) + jnp.uint8(10)) == 4
    x = np.arange(-6, 7, dtype=np.int32)
    for y in (-3, -1, 2, 4):
        np.testing.assert_array_equal(jnp.asarray(x) // y, x // y)
        np.testing.assert_array_equal(jnp.asarray(x) % y, x % y)


# --- the short way ----------------------------------------------------------------------------------------------------


@pytest.mark.sample(every=4)
@pytest.mark.parametrize(
    "operator", "add sub mul truediv floordiv mod pow eq ne lt le gt ge and_ or_ xor lshift".split()
)
def test_operators_agree_with_the_long_way(operator: str) -> None:
    """Concrete arrays go a short way; under a trace that only records, the same operands go the long one."""
    import operator as operators

    apply_operator = getattr(operators, operator)
    integral = operator in ("and_", "or_", "xor", "lshift")
    left: list[Any] = [jnp.asarray(N), jnp.asarray(U), jnp.asarray(B), jnp.asarray(3), 2, True]
    if not integral:
        left += [jnp.asarray(X), jnp.asarray(P).astype("bfloat16"), jnp.asarray(1.5), 2.5]
    for x in left:
        for y in left:
            if operator == "pow" and isinstance(y, int) and not isinstance(y, bool) and y < 0:
                continue
            if not isinstance(x, tx.Array) and not isinstance(y, tx.Array):
                continue
            if operator == "sub" and all(np.result_type(v) == np.bool_ for v in (x, y)):
                continue
            for _ in range(2):  # the second time, the way is known
                try:
                    found = apply_operator(x, y)
                except OverflowError:
                    continue
                (expected,) = _recorded(lambda x=x, y=y: apply_operator(x, y))
                assert (found.dtype, found.weak_type, found.shape) == (
                    expected.dtype,
                    expected.weak_type,
                    expected.shape,
                )
                np.testing.assert_array_equal(np.asarray(found).astype(float), np.asarray(expected).astype(float))


def _recorded(function: Callable[[], Any]) -> list[Any]:
    """The result of a function by way of a graph."""
    from tinyxla.ops import calls
    from tinyxla.tracing import ConcreteArray, trace

    graph, _, weak = trace(lambda: [function()], [], "recorded")
    return [ConcreteArray(v, w) for v, w in zip(calls.evaluate(graph, []), weak, strict=True)]


def test_operators_of_all_kinds() -> None:
    x = jnp.asarray([5.0, -7.0])
    assert (+x).tolist() == [5, -7]
    assert (-x).tolist() == [-5, 7]
    assert abs(x).tolist() == [5, 7]
    assert (~jnp.asarray([1, 0])).tolist() == [-2, -1]
    assert [v.tolist() for v in divmod(x, 3)] == [[1, -3], [2, 2]]
    assert [v.tolist() for v in divmod(20, x)] == [[4, -3], [0, -1]]
    assert (1 - x).tolist() == [-4, 8]
    assert (2**x).tolist() == [32, 1 / 128]
    assert round(x / 3, 2).tolist() == pytest.approx([1.67, -2.33])
    assert (x @ x) == 74
    assert (x == None) is False  # noqa: E711
    assert (x != "a") is True
    with pytest.raises(TypeError, match="unsupported operand"):
        x + "a"
    with pytest.raises(DTypeError, match="takes arrays and numbers, but got \\[1, 2\\]"):
        x - [1, 2]


def test_methods() -> None:
    x = jnp.asarray(K)
    for name, options in (
        ("sum", {"axis": 0}),
        ("mean", {}),
        ("std", {"axis": 1}),
        ("var", {}),
        ("min", {"axis": -1}),
        ("max", {}),
        ("prod", {"axis": 2}),
        ("argmax", {"axis": 1}),
        ("argmin", {}),
        ("cumsum", {"axis": 0}),
        ("cumprod", {"axis": 1}),
        ("all", {}),
        ("any", {"axis": 0}),
        ("ravel", {}),
        ("flatten", {}),
        ("conj", {}),
        ("squeeze", {}),
        ("argsort", {"axis": 1}),
        ("trace", {}),
        ("diagonal", {"offset": 1}),
        ("round", {"decimals": 1}),
    ):
        close(getattr(x, name)(**options), getattr(K, name)(**options), name, 1e-5)
    close(x.sort(axis=1), np.sort(K, 1), "sort")
    close(x.ptp(), np.ptp(K), "ptp")
    close(x.clip(-1, 1), np.clip(K, -1, 1), "clip")
    close(x.T, K.T, "T")
    close(x.mT, np.swapaxes(K, 1, 2), "mT")
    close(x.reshape(4, 6), K.reshape(4, 6), "reshape")
    close(x.reshape((4, -1)), K.reshape(4, -1), "reshape")
    close(x.transpose(2, 0, 1), K.transpose(2, 0, 1), "transpose")
    close(x.swapaxes(0, 1), K.swapaxes(0, 1), "swapaxes")
    close(x.take(np.array([0, 1]), axis=1), K.take([0, 1], axis=1), "take")
    close(x.repeat(2, axis=0), K.repeat(2, axis=0), "repeat")
    close(x.compress([True, False, True], axis=1), K.compress([True, False, True], axis=1), "compress")
    close(jnp.array([1, 0, 1]).choose([x[0, :, 0], x[1, :, 0]]), np.choose([1, 0, 1], K[:, :, 0]), "choose")
    close(jnp.sort(x[0, 0][x[0, 0].argpartition(1)[:2]]), np.sort(K[0, 0])[:2], "argpartition")
    close(x.dot(M), K.dot(M), "dot")
    close(jnp.asarray(Z).real, Z.real, "real")
    close(jnp.asarray(Z).imag, Z.imag, "imag")
    assert x.astype(int).dtype == np.int32
    assert x[0, 0, 0].item() == K[0, 0, 0]
    assert x.tolist() == K.tolist()
    assert [v.shape for v in x] == [(3, 4)] * 2
    assert (len(x), x.ndim, x.size, x.nbytes, x.itemsize) == (2, 3, 24, 96, 4)
    assert x.copy() is not x
    assert x.device == "cpu"
    assert x.to_device("cpu").tolist() == K.tolist()
    assert x.is_ready()
    assert x.copy_to_host_async() is None
    assert (x.is_fully_addressable, x.is_fully_replicated, x.committed) == (True, True, False)
    assert x.__array_namespace__() is jnp
    assert f"{x[0, 0, 0]:.2f}" == f"{K[0, 0, 0]:.2f}"
    assert np.asarray(x.view(np.int32)).tolist() == K.view(np.int32).tolist()
    np.testing.assert_array_equal(np.from_dlpack(x), K)
    np.testing.assert_array_equal(jnp.from_dlpack(K), K)
    assert [int(v) for v in jnp.arange(3).flat] == [0, 1, 2]
    with pytest.raises(ValueError, match="read-only"):
        np.asarray(x)[0] = 1


def test_place() -> None:
    for mask, values in (
        (K > 0, [9.0, 8.0]),
        (K < 0.5, [7.0]),
        (K > 100, [1.0, 2.0]),
        (np.ones(24), np.arange(40, dtype=np.float32)),
    ):
        wanted = K.copy()
        np.place(wanted, mask, values)
        close(jnp.place(K, mask, jnp.array(values), inplace=False), wanted, "place")
        close(tx.jit(lambda *given: jnp.place(*given, inplace=False))(K, mask, jnp.array(values)), wanted, "place")
    with pytest.raises(ArgumentError, match="immutable"):
        jnp.place(K, K > 0, 1.0, inplace=True)
    with pytest.raises(ShapeError, match="24 elements"):
        jnp.place(K, K[0] > 0, 1.0)


def test_signs_of_single_numbers() -> None:
    for value in (-1.0, -0.0, 0.0, 2.5):
        close(jnp.signbit(value), np.signbit(np.float32(value)), "signbit")
        close(jnp.copysign(3.0, value), np.copysign(np.float32(3), np.float32(value)), "copysign")
        close(jnp.nextafter(value, 1.0), np.nextafter(np.float32(value), np.float32(1)), "nextafter")


def test_text() -> None:
    for value in (
        np.float32(3),
        np.ones((2, 3), np.float32),
        np.zeros((0, 3), np.float32),
        np.arange(200, dtype=np.int32),
        np.eye(4, dtype=np.float32) * 1.5,
        np.array([True, False]),
        np.complex64(1 + 2j),
        np.arange(23, dtype=np.float32),
        np.ones(3, ml_dtypes.bfloat16),
        np.array([1e-10, 1e10], np.float32),
        np.arange(2000, dtype=np.float32),
    ):
        assert repr(jnp.asarray(value)) == repr(jax.numpy.asarray(value))
        assert str(jnp.asarray(value)) == str(jax.numpy.asarray(value))
    assert repr(jnp.asarray(2.0)) == "Array(2., dtype=float32, weak_type=True)"
    wide = jnp.eye(12) * 1.5
    assert repr(wide).endswith(" 1.5]],\n      dtype=float32)")


@pytest.mark.parametrize("spec", [".2f", "d", ">10"])
def test_arrays_of_some_axes_refuse_format_specifications_as_in_jax(spec: str) -> None:
    for module in (jnp, jax.numpy):
        with pytest.raises(TypeError, match="unsupported format string"):
            format(module.ones(3), spec)
    assert f"{jnp.ones(3)}" == "[1. 1. 1.]"
    assert f"{jnp.float32(1.5):.2f}" == "1.50"


def test_grids() -> None:
    for grid in ("mgrid", "ogrid"):
        for index in (slice(0, 3), (slice(0, 3), slice(1, 2, 0.25)), (slice(0, 1, 5j), slice(2))):
            for mine, theirs in zip(leaves(getattr(jnp, grid)[index]), leaves(getattr(np, grid)[index]), strict=True):
                close(mine, theirs, grid)
    close(jnp.r_[0:3, 7.5, V], np.r_[0:3, 7.5, V], "r_")
    close(jnp.c_[V, W, X[:, :1].repeat(5)[:5]], np.c_[V, W, X[:, :1].repeat(5)[:5]], "c_")
    close(jnp.asarray(X)[jnp.s_[1:, ::2]], X[1:, ::2], "s_")


@pytest.mark.parametrize("directive", ["-1", "1,2", "0,2,0", "1,3,-2", "0,4,1", "r", "c"])
def test_rows_and_columns_are_joined_as_a_directive_says(directive: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PendingDeprecationWarning)  # of NumPy's matrices
        for name in ("r_", "c_"):
            close(getattr(jnp, name)[directive, V, V], getattr(np, name)[directive, V, V], directive)


def test_grids_of_nothing_are_empty_and_unknown_directives_and_bounds_are_named() -> None:
    assert jnp.mgrid[()].shape == jnp.mgrid[:].shape == jnp.ogrid[:].shape == (0,)
    with tx.numpy_dtype_promotion("strict"):
        assert jnp.mgrid[0:2, 0:1:0.5].dtype == "float32"
    with pytest.raises(ArgumentError, match="c_: 'x' is no directive"):
        jnp.c_["x", 1]
    with pytest.raises(ConcretizationError, match="the slice stop of mgrid needs the value"):
        tx.jit(lambda n: jnp.mgrid[:n])(3)


def test_vectorize() -> None:
    outer = jnp.vectorize(jnp.outer, signature="(m),(n)->(m,n)")
    theirs = np.vectorize(np.outer, signature="(m),(n)->(m,n)")
    for x, y in ((X, Y), (K, Y), (K, X), (K, K[:, :1]), (Y, V)):
        close(outer(x, y), theirs(x, y), "outer")
    close(jnp.vectorize(lambda a, b: a + 2 * b)(X, Y), X + 2 * Y, "scalars")
    close(jnp.vectorize(lambda a, k: a[..., k], excluded={1}, signature="(n)->()")(X, 2), X[:, 2], "excluded")
    with pytest.raises(ShapeError, match="argument 1 has size 4 in dimension n, but got size 5"):
        jnp.vectorize(jnp.dot, signature="(n),(n)->()")(X, V)
    with pytest.raises(ArgumentError, match="'n->n' is no signature"):
        jnp.vectorize(jnp.sin, signature="n->n")


def test_a_function_along_an_axis_is_traced_once() -> None:
    calls = 0

    def squares(vector: Any, power: int, scale: float = 1.0) -> Any:
        nonlocal calls
        calls += 1
        return scale * jnp.outer(vector, vector[:2]) ** power

    x = np.arange(24.0, dtype=np.float32).reshape(2, 3, 4)
    for axis in (0, 1, -1):
        expected = np.apply_along_axis(lambda v: 0.5 * np.outer(v, v[:2]) ** 2, axis, x)
        close(jnp.apply_along_axis(squares, axis, x, 2, scale=0.5), expected, "apply_along_axis")
    assert calls == 3
    assert jnp.apply_along_axis(jnp.sum, 0, np.ones((4, 0), np.float32)).shape == (0,)
    for axis in (0, 1):
        found = jnp.apply_along_axis(lambda v: [v[0], {"a": v}], axis, x[0])
        wanted = jax.numpy.apply_along_axis(lambda v: [v[0], {"a": v}], axis, x[0])
        jax.tree.map(np.testing.assert_array_equal, found, wanted)
    assert [float(x) for x in jnp.apply_along_axis(list, 0, np.arange(3.0))] == [0, 1, 2]


def test_files(tmp_path: Any) -> None:
    for value in (X, N, Z, B, X.astype(np.float64)):
        jnp.save(tmp_path / "x.npy", jnp.asarray(value, value.dtype))
        found = jnp.load(tmp_path / "x.npy")
        assert found.dtype == value.dtype
        np.testing.assert_array_equal(found, value)
    narrow = jnp.asarray(X, "bfloat16")
    jnp.save(tmp_path / "x.npy", narrow)
    np.testing.assert_array_equal(jnp.load(tmp_path / "x.npy"), narrow)
    for narrower in ("float8_e5m2", "int4"):
        jnp.save(tmp_path / "x.npy", jnp.asarray([1, 2], narrower))
        np.testing.assert_array_equal(jnp.load(tmp_path / "x.npy", narrower), jnp.asarray([1, 2], narrower))
        with pytest.raises(DTypeError, match="elements of 1 raw bytes"):
            jnp.load(tmp_path / "x.npy")
    for wide in (1 << 40, np.int64(1 << 40), np.arange(3.0) / 3):  # wider than this library's types by default
        jnp.save(tmp_path / "x.npy", wide)
        np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), wide, strict=isinstance(wide, np.ndarray))
    jnp.savez(tmp_path / "x.npz", a=jnp.asarray(X), b=N)
    found = jnp.load(tmp_path / "x.npz")
    np.testing.assert_array_equal(found["b"], N)
    np.testing.assert_array_equal(jnp.frombuffer(V.tobytes(), np.float32), V)
    np.testing.assert_array_equal(jnp.fromstring("1 2 3", int, sep=" "), [1, 2, 3])


# --- NumPy's own functions --------------------------------------------------------------------------------------------


def test_numpy_functions_dispatch() -> None:
    x = jnp.asarray(X)
    for function, args in (
        (np.sin, (x,)),
        (np.add, (x, X)),
        (np.add, (X, x)),
        (np.multiply, (2.0, x)),
        (np.true_divide, (x, x)),
        (np.sum, (x,)),
        (np.mean, (x, 0)),
        (np.dot, (x, M)),
        (np.matmul, (x, M)),
        (np.concatenate, ([x, X],)),
        (np.where, (x > 0, x, 0.0)),
        (np.transpose, (x,)),
        (np.linalg.norm, (x,)),
        (np.einsum, ("ij->j", x)),
        (np.maximum.reduce, (x,)),
        (np.add.reduce, (x, 1)),
        (np.multiply.outer, (x, x)),
        (np.conjugate, (x,)),
        (np.abs, (x,)),
        (np.invert, (x > 0,)),
        (np.reshape, (x, (4, 3))),
        (np.clip, (x, -1, 1)),
        (np.argsort, (x,)),
    ):
        found = function(*args)
        assert isinstance(found, tx.Array), function
        plain = [np.asarray(a) if isinstance(a, tx.Array) else a for a in args]
        if function is np.concatenate:
            plain = [[X, X]]
        close(found, function(*plain), str(function), 1e-5)
    assert isinstance(np.ones(3, np.float32) + jnp.ones(3), tx.Array)
    assert isinstance(np.float32(2) * jnp.ones(3), tx.Array)
    assert (np.float64(2) * jnp.ones(3)).dtype == np.float32


def test_numpy_functions_on_tracers() -> None:
    close(tx.grad(lambda x: np.sum(np.sin(x) * X))(X), np.cos(X) * X, "grad")
    close(tx.vmap(lambda x: np.dot(x, Y))(X), X @ Y, "vmap")


def test_numpy_does_what_has_no_counterpart_on_concrete_arrays() -> None:
    np.testing.assert_array_equal(np.packbits(jnp.asarray(U)), np.packbits(U))
    np.testing.assert_array_equal(np.linalg.eigvalsh(jnp.eye(2)), np.ones(2))
    np.testing.assert_array_equal(np.maximum(jnp.arange(3), [2, 0, 1]), [2, 1, 2])
    x = np.ones(3, np.float32)
    x += jnp.ones(3)
    np.testing.assert_array_equal(np.add(x, jnp.ones(3), out=x), np.full(3, 3.0))
    with pytest.raises(TracerError, match=r"numpy\.add\(out=...\) writes into an array"):
        np.add(x, x, out=jnp.ones(3))  # type: ignore[call-overload]


def test_numpy_functions_without_counterpart_on_tracers() -> None:
    with pytest.raises(ArgumentError, match=r"numpy\.real_if_close has no counterpart"):
        tx.jit(np.real_if_close)(jnp.asarray(U))
    with pytest.raises(ArgumentError, match=r"numpy\.isnat has no counterpart"):
        tx.jit(np.isnat)(jnp.arange(3))
    with pytest.raises(TracerError, match="writes into an array"):
        tx.jit(lambda x: np.add(x, 1.0, out=np.ones(3)))(jnp.ones(3))


# --- errors -----------------------------------------------------------------------------------------------------------


ERRORS: list[tuple[type[TinyxlaError], str, Callable[[], Any]]] = [
    (
        ShapeError,
        r"add: Incompatible shapes for broadcasting: \(3, 4\) and \(3,\): sizes at dimension -1 are 3 and 4",
        lambda: jnp.add(X, X[:, 0]),
    ),
    (ShapeError, r"multiply: shapes", lambda: jnp.asarray(X) * jnp.asarray(X[:, 0])),
    (
        ShapeError,
        r"sum: axis 2 is out of range for an array with 2 dimensions; use one from -2 to 1",
        lambda: jnp.sum(X, axis=2),
    ),
    (ShapeError, r"sum: the axes \(0, -2\) name a dimension twice", lambda: jnp.sum(X, axis=(0, -2))),
    (
        ShapeError,
        r"reshape: an array of shape \(3, 4\) has 12 elements, but \(5, 2\) takes 10",
        lambda: jnp.reshape(X, (5, 2)),
    ),
    (
        ShapeError,
        r"reshape: 12 elements of an array of shape \(3, 4\) do not fit \(5, -1\)",
        lambda: jnp.asarray(X).reshape(5, -1),
    ),
    (
        ShapeError,
        r"dot: shapes \(3, 4\) and \(3, 4\) do not fit: axis 1 of the first has size 4, axis 0 of the second 3",
        lambda: jnp.dot(X, X),
    ),
    (ShapeError, r"matmul: takes vectors and matrices", lambda: jnp.matmul(2.0, X)),
    (
        ShapeError,
        r"matmul of \(2, 3, 4\) and \(3, 4, 2\), before the last two axes: Incompatible .*: \(2,\) and \(3,\)",
        lambda: jnp.ones((2, 3, 4)) @ jnp.ones((3, 4, 2)),
    ),
    (ShapeError, r"concatenate: shapes \(3, 4\) and \(4, 3\) differ outside axis 0", lambda: jnp.concatenate([X, M])),
    (ShapeError, r"concatenate: arrays without dimensions", lambda: jnp.concatenate([1.0, 2.0])),
    (ArgumentError, r"concatenate: pass a list", lambda: jnp.concatenate(V, V)),
    (ArgumentError, r"concatenate: takes a sequence of at least one", lambda: jnp.concatenate(jnp.ones(()))),
    (ShapeError, r"stack: the arrays have one shape", lambda: jnp.stack([X, M])),
    (ShapeError, r"tensordot: axes must pair .*, but are \(\(0, 1\), 0\)", lambda: jnp.tensordot(X, X, ((0, 1), 0))),
    (ShapeError, r"max: axis 0 of shape \(0,\) is empty and has no max; give `initial`", lambda: jnp.max(jnp.zeros(0))),
    (ShapeError, r"argmax: axis 0 of shape \(0,\) is empty", lambda: jnp.argmax(jnp.zeros(0))),
    (ShapeError, r"split: axis 0 of size 5 does not divide into 2 equal sections", lambda: jnp.split(V, 2)),
    (ShapeError, r"squeeze: axis 0 of an array of shape \(3, 4\) has size 3, not 1", lambda: jnp.squeeze(X, 0)),
    (
        ShapeError,
        r"broadcast_to: an array of shape \(3, 4\) does not broadcast to \(4,\)",
        lambda: jnp.broadcast_to(X, (4,)),
    ),
    (ShapeError, r"einsum: in 'ij,jk' the axis 'j' has sizes 4 and 3", lambda: jnp.einsum("ij,jk", X, X)),
    (ShapeError, r"einsum: 'ijk' in 'ijk' does not fit an array of 2 dimensions", lambda: jnp.einsum("ijk", X)),
    (ArgumentError, r"einsum: 'ij,j' names 2 operands, but 1 are given", lambda: jnp.einsum("ij,j", X)),
    (
        ArgumentError,
        r"einsum: axes are named by letters and digits, but got 'i!' in 'i!->i'",
        lambda: jnp.einsum("i!->i", X),
    ),
    (ArgumentError, r"einsum: the result of 'ij->ik' names the axis 'k', which no", lambda: jnp.einsum("ij->ik", X)),
    (ArgumentError, r"einsum: the result of 'ij->ii' names the axis 'i', twice", lambda: jnp.einsum("ij->ii", X)),
    (ArgumentError, r"einsum: takes a text such .* but got Array, Array", lambda: jnp.einsum(X, X)),
    (ShapeError, r"array: nested lists have unequal lengths", lambda: jnp.array([[1, 2], [3]])),
    (ShapeError, r"zeros: the shape \(-1,\) has a negative size", lambda: jnp.zeros(-1)),
    (ShapeError, r"transpose: axes \(0, 0\) is no order of the 2 axes", lambda: jnp.transpose(X, (0, 0))),
    (DTypeError, r"array: 'a' is no number", lambda: jnp.array("a")),
    (DTypeError, r"'quark' is not an element type", lambda: jnp.zeros(3, "quark")),
    (DTypeError, r"bitwise_and|and: not defined for f32", lambda: jnp.bitwise_and(X, X)),
    (DTypeError, r"power: an integer array to the negative power -1 is not an integer", lambda: jnp.arange(3) ** -1),
    (DTypeError, r"sum takes arrays and numbers, but got \[1, 2\]", lambda: jnp.sum([1, 2])),
    (ArgumentError, r"arange: the step is 0", lambda: jnp.arange(0, 3, 0)),
    (ArgumentError, r"pad: mode is one of constant, empty", lambda: jnp.pad(X, 1, mode="mirror")),
    (ArgumentError, r"max: with `where`, everything may be masked out", lambda: jnp.max(X, where=X > 0)),
    (
        ArgumentError,
        r"Arrays are immutable: instead of x\[0\] = y write x = x.at\[0\].set\(y\)",
        lambda: jnp.zeros(3).__setitem__(0, 1),
    ),
    (
        ArgumentError,
        r"Arrays are immutable: instead of del x\[0\] write x = tinyxla.numpy.delete\(x, 0, axis=0\)",
        lambda: jnp.zeros(3).__delitem__(0),
    ),
    (
        ConcretizationError,
        r"arange, whose shape depends on its argument 'stop', needs the value",
        lambda: tx.vmap(jnp.arange)(jnp.ones(2)),
    ),
    (
        ConcretizationError,
        r"nonzero, whose result's shape depends on values \(or give `size`\)",
        lambda: tx.vmap(jnp.nonzero)(X),
    ),
    (ArgumentError, r"linalg|norm: the order of a matrix norm is 'fro'", lambda: jnp.linalg.norm(X, "max")),
]


def test_einsum_takes_digits_and_letters_beyond_ascii_for_axes() -> None:
    x, y = np.ones((2, 3, 4), np.float32), np.ones((2, 4), np.float32)
    assert jnp.einsum("k1d,kd->1k", x, y).tolist() == [[4.0, 4.0]] * 3
    assert jnp.einsum("α...,β->αβ...", x, y[0]).shape == (2, 4, 3, 4)


def test_einsum_tells_a_dot_general_of_the_user_the_type_of_the_sums() -> None:
    seen: list[Any] = []

    def dot_general(x: Any, y: Any, dimensions: Any, precision: Any, preferred_element_type: Any) -> Any:
        seen.append(preferred_element_type)
        return tx.lax.dot_general(x, y, dimensions, precision, preferred_element_type)

    jnp.einsum("ij,jk->ik", np.ones((2, 2), np.float32), np.ones((2, 2), np.int32), _dot_general=dot_general)
    assert seen == [np.float32]


def test_shape_ndim_and_size_of_what_only_describes_an_array() -> None:
    described = tx.ShapeDtypeStruct((2, 3), np.float32)
    assert (jnp.shape(described), jnp.ndim(described), jnp.size(described), jnp.size(described, 1)) == ((2, 3), 2, 6, 3)


@pytest.mark.parametrize(("kind", "text", "function"), ERRORS, ids=range(len(ERRORS)))
def test_errors(kind: type[TinyxlaError], text: str, function: Callable[[], Any]) -> None:
    with pytest.raises(kind, match=text) as caught:
        function()
    assert caught.value.line is not None
    assert caught.value.line.file == __file__


def test_values_for_python() -> None:
    assert round(jnp.array(1.5)).dtype == np.int32
    assert round(jnp.array(1.234), 2).dtype == np.float32
    assert jnp.bitwise_count(jnp.arange(4)).dtype == np.uint8
    assert np.isinf(jnp.ones(2) * 1e300).all()
    assert jnp.ones(2).tobytes() == np.ones(2, np.float32).tobytes()
    second = tx.grad(tx.grad(lambda x: jnp.logaddexp(x, 0.0)))
    assert second(0.0) == 0.25


@pytest.mark.sample(every=2)
@pytest.mark.parametrize("size", [3, 9])
@pytest.mark.parametrize("options", [{}, {"fill_value": 1, "equal_nan": False}], ids=repr)
def test_unique_of_a_given_size_takes_unknown_values(size: int, options: dict[str, Any]) -> None:
    for x in (np.where(N > 4, np.nan, N).astype(np.float32), B):

        def function(module: Any, a: Any) -> Any:
            return module.unique(a, True, True, True, size=size, **options)

        expected = function(jax.numpy, x)
        for found in (function(jnp, jnp.asarray(x)), tx.jit(lambda a: function(jnp, a))(x)):
            for mine, theirs in zip(found, expected, strict=True):
                assert mine.dtype == theirs.dtype
                np.testing.assert_array_equal(mine, theirs)


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("counts", [2, [1, 2, 0], [0, 3, 1]], ids=repr)
@pytest.mark.parametrize("length", [3, 8])
def test_repeat_to_a_length_takes_unknown_counts(counts: Any, length: int) -> None:
    expected = jax.numpy.repeat(X, np.asarray(counts), axis=0, total_repeat_length=length)
    found = tx.jit(lambda x, r: jnp.repeat(x, r, axis=0, total_repeat_length=length))(X, jnp.asarray(counts))
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(jnp.repeat(X, counts, axis=0, total_repeat_length=length), expected)


def test_complex_numbers_are_true_unless_zero() -> None:
    x = np.array([0, 1j, -1, complex(0, np.nan)], np.complex64)
    for function in (lambda v: v.astype(bool), lambda v: jnp.where(v, True, False), lambda v: jnp.logical_and(v, v)):
        np.testing.assert_array_equal(function(jnp.asarray(x)), x != 0)
        np.testing.assert_array_equal(tx.jit(function)(x), x != 0)


def test_the_namespace_describes_itself() -> None:
    info = jnp.__array_namespace_info__()
    assert info.default_device() == "cpu"
    assert info.devices() == tx.devices()
    assert info.dtypes(kind="bool") == {"bool": np.dtype(bool)}
    assert "int64" not in info.dtypes(kind=("integral", "real floating"))
    assert info.default_dtypes()["real floating"] == np.float32
    with tx.enable_x64():
        assert info.dtypes(kind="complex floating")["complex128"] == np.complex128
        assert info.default_dtypes()["indexing"] == np.int64
    with pytest.raises(AttributeValueError, match="kind must be one of 'bool'"):
        info.dtypes(kind="rational")


def test_counts_and_sizes_may_be_arrays_without_dimensions() -> None:
    one = jnp.asarray(1)
    np.testing.assert_array_equal(jnp.tensordot(X, X.T, axes=one), np.tensordot(X, X.T, axes=1))
    assert [int(k) for k in jnp.unravel_index(4, np.asarray(6))] == [4]
    np.testing.assert_array_equal(jnp.reshape(V, np.asarray(5)), V)
    np.testing.assert_array_equal(jnp.roll(V, one, axis=np.asarray(0)), np.roll(V, 1))


class Picture:
    """Shows its memory as Pillow's images do, and is no array otherwise."""

    def __init__(self) -> None:
        self.pixels = np.arange(6, dtype=np.uint8).reshape(2, 3)

    @property
    def __array_interface__(self) -> Any:
        return self.pixels.__array_interface__


@pytest.mark.parametrize("make", [Picture, lambda: (ctypes.c_uint8 * 3)(0, 1, 2)], ids=["interface", "buffer"])
def test_objects_that_show_their_memory_become_arrays(make: Any) -> None:
    for function in (jnp.asarray, jnp.array):
        np.testing.assert_array_equal(function(make()), np.asarray(make()))
        assert function(make(), dtype=jnp.float32).dtype == jnp.float32
        np.testing.assert_array_equal(function([make(), make()]), np.asarray([np.asarray(make())] * 2))
        assert function([make()]).dtype == jnp.uint8
    with pytest.raises(DTypeError, match="sin takes arrays and numbers"):
        jnp.sin(make())


@pytest.mark.parametrize("number", [float, np.float64])
def test_frequencies_of_one_period_are_integers(number: Any) -> None:
    for n in range(1, 130):
        found = np.asarray(jnp.fft.fftfreq(n, number(1 / n)))
        np.testing.assert_array_equal(found, np.fft.ifftshift(np.arange(n) - n // 2).astype(np.float32))
        np.testing.assert_array_equal(np.asarray(jnp.fft.rfftfreq(n, number(1 / n))), np.arange(n // 2 + 1))


def test_arrays_are_made_on_the_one_device() -> None:
    assert jnp.zeros(3, device="cpu").device == tx.devices()[0]
    assert jnp.linspace(0, 1, 3, device=tx.devices()[0]).shape == (3,)
    assert jnp.fft.fftfreq(4, device=None).shape == (4,)
    np.testing.assert_array_equal(jnp.from_dlpack(np.arange(3), copy=True), np.arange(3))
    with pytest.raises(ArgumentError, match="ones: the only device is 'cpu', but got 'gpu'"):
        jnp.ones(3, device="gpu")
    np.testing.assert_array_equal(jnp.from_dlpack(np.arange(3), copy=False), np.arange(3))


def test_functions_of_two_arrays_have_the_methods_of_ufuncs() -> None:
    x = np.arange(12).reshape(3, 4)
    for name, method, *rest in (
        ("add", "reduce"),
        ("add", "reduce", None),
        ("multiply", "accumulate", 1),
        ("bitwise_xor", "reduce", 1),
        ("maximum", "reduce", 1),
        ("add", "outer", np.arange(2)),
        ("add", "reduceat", np.array([0, 2])),
    ):
        expected = getattr(getattr(np, name), method)(x, *rest)
        np.testing.assert_array_equal(getattr(getattr(jnp, name), method)(x, *rest), expected)
    np.testing.assert_array_equal(tx.jit(jnp.add.reduce)(x), x.sum(0))
    np.testing.assert_array_equal(jnp.add.at(np.zeros(3), np.array([0, 0, 2]), 1.0, inplace=False), [2, 0, 1])
    np.testing.assert_array_equal(
        jnp.maximum.at(np.zeros(3), np.array([1, 1]), np.array([2.0, 1.0]), inplace=False), [0, 2, 0]
    )
    with pytest.raises(ArgumentError, match="arrays are immutable"):
        jnp.add.at(np.zeros(3), np.array([0]), 1.0, inplace=True)
    np.testing.assert_array_equal(jnp.hypot.at(np.full(2, 3.0), np.array([0]), 4.0, inplace=False), [5, 3])


@pytest.mark.parametrize("mode", ["reflect", "symmetric", "edge"])
def test_mirrored_edges_are_three_pieces(mode: Any) -> None:
    x = np.arange(18, dtype=np.float32).reshape(9, 2)
    graph = tx.make_graph(lambda x: jnp.pad(x, ((4, 4), (0, 0)), mode=mode))(x)
    (joined,) = (y for y in graph.entry.instructions if y.op.name == "concatenate")
    assert len(joined.operands) == 3
    for widths in (((4, 4), (0, 0)), ((20, 3), (0, 5)), ((0, 1), (7, 0))):
        np.testing.assert_array_equal(jnp.pad(x, widths, mode=mode), np.pad(x, widths, mode=mode))


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e4m3b11fnuz", "float8_e5m2", "float4_e2m1fn"])
def test_extrema_of_types_with_and_without_infinities(dtype: str) -> None:
    for values in ([2.0, -1.5, 3.0, -6.0, 3.0], [-4.0, -4.0]):
        x = np.array(values).astype(getattr(ml_dtypes, dtype))
        for name in ("max", "min", "argmax", "argmin", "nanmax", "nanmin"):
            assert float(tx.jit(getattr(jnp, name))(x)) == getattr(np, name)(np.array(values)), (name, values)
    if dtype != "float4_e2m1fn":
        partly = np.array([np.nan, 1.0, -2.0]).astype(getattr(ml_dtypes, dtype))
        assert (float(jnp.nanmax(partly)), float(jnp.nanmin(partly))) == (1.0, -2.0)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "uint32", "int32", "bool", "uint4"])
def test_exponents_of_any_integer_type(dtype: str) -> None:
    x, exponent = floats(5), np.array([0, 1, 2, 7, 1]).astype(getattr(ml_dtypes, dtype, dtype))
    np.testing.assert_array_equal(tx.jit(jnp.ldexp)(x, exponent), np.ldexp(x, exponent.astype(np.int32)))
    assert jnp.ldexp(2, exponent).dtype == np.float32
    with pytest.raises(DTypeError, match="ldexp: the exponent must be an array of integers, but got float32"):
        jnp.ldexp(x, x)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: jnp.argmax(X, axis=np.arange(2)), ShapeError, "argmax: an axis is an integer, but got array"),
        (lambda: jnp.eye(np.arange(3)), ArgumentError, "eye: .* is an integer, but got array"),
        (lambda: jnp.arange(np.arange(3)), ArgumentError, r"each argument is one number, but got .* shape \(3,\)"),
        (lambda: jnp.round(X, decimals=np.ones(3)), ArgumentError, "round: decimals is an integer, but got array"),
        (lambda: jnp.choose(0, 1.0), ArgumentError, "choose: takes a list of choices, but got 1.0"),
        (lambda: jnp.select(-1, []), ArgumentError, "select: takes a list of conditions and a list of choices"),
        (lambda: jnp.lexsort(3), ArgumentError, "lexsort: takes at least one key"),
    ],
)
def test_arguments_of_a_wrong_kind(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("name", ["floor_divide", "remainder", "left_shift", "right_shift"])
@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64])
def test_integers_with_a_sign_are_as_in_compiled_functions(name: str, dtype: type) -> None:
    """NumPy computes small arrays of them in one step: by zero, by -1, and shifted by any number of bits, too."""
    function, limits = getattr(jnp, name), np.iinfo(dtype)
    ends = [limits.min, limits.min + 1, limits.max - 1, limits.max]
    numbers = np.array([*range(-9, 10), 31, 32, 33, 63, 64, *ends], dtype)
    x, y = jnp.asarray(numbers[:, None], dtype), jnp.asarray(numbers[None], dtype)
    compiled = tx.jit(function)(x, y)
    for _ in range(2):  # the first call is how the others are found
        found = function(x, y)
        assert found.dtype == compiled.dtype == dtype
        np.testing.assert_array_equal(found, compiled)
    for number in (-7, 0, 7):
        np.testing.assert_array_equal(function(x, number), tx.jit(function)(x, jnp.asarray(number, dtype)))


def test_questions_about_shapes_take_lists() -> None:
    assert (jnp.shape([1, 2]), jnp.ndim([[1]]), jnp.size([1, 2]), jnp.size([[1, 2]], 1)) == ((2,), 2, 2, 2)
    assert jnp.array_equal([1], [1])
    assert jnp.array_equiv([1, 1], [1])


@pytest.mark.parametrize("name", ["int1", "uint1", "float6_e2m3fn", "float6_e3m2fn"])
def test_narrowest_types_are_types_of_arrays(name: str) -> None:
    """Their values are those of ml_dtypes, also where they are compiled; bits that fill no byte are refused."""
    dtype = np.dtype(getattr(ml_dtypes, name))
    x = np.array([0, 1, -1, 0.4, 3.3, -100]) if "float" in name else np.array([0, -1 if name == "int1" else 1])
    for convert in (lambda x: x.astype(dtype), tx.jit(lambda x: x.astype(dtype))):
        found = convert(jnp.asarray(x, np.float32))
        assert found.dtype == dtype
        np.testing.assert_array_equal(found.astype(np.float32), x.astype(dtype).astype(np.float32))
        assert np.array_equal(found == found, np.ones(x.shape, bool))
    assert repr(getattr(jnp, name)(0)) == f"Array(0, dtype={name})"
    if "float" in name:
        with pytest.raises(DTypeError, match="8 bits are no whole number of 6 bits"):
            tx.lax.bitcast_convert_type(found, jnp.uint8)


def test_functions_that_ask_for_a_shape_or_an_index_take_what_gives_an_array() -> None:
    class Held:
        def __init__(self, x: Any) -> None:
            self.x = x

        def __jax_array__(self) -> Any:
            return jnp.asarray(self.x)

    x, one = np.arange(5.0, dtype=np.float32), Held(1)
    assert jnp.zeros_like(Held(x)).shape == (5,)
    np.testing.assert_array_equal(jnp.roll(x, one), np.roll(x, 1))
    np.testing.assert_array_equal(jnp.delete(x, one), np.delete(x, 1))
    np.testing.assert_array_equal(jnp.insert(x, one, 7), np.insert(x, 1, 7))
    np.testing.assert_allclose(jnp.linalg.lstsq(Held(np.eye(5, dtype=np.float32)), Held(x))[0], x, 1e-6)


def test_complex_images_are_resized_without_promotion() -> None:
    image = np.arange(4.0, dtype=np.complex64)
    with tx.numpy_dtype_promotion("strict"):
        assert tx.image.resize(image, (2,), "linear").dtype == np.complex64


def test_type_of_none_is_the_default_one() -> None:
    assert jnp.result_type(None) == np.float32
    assert isinstance(np.float32(1), jnp.float32)
    assert not isinstance(np.float64(1), jnp.float32)


def test_views_of_complex_numbers_are_the_bytes_of_their_parts() -> None:
    z = np.array([[1 + 2j, -3j]], np.complex64)
    for dtype in ("float32", "uint8", "int16"):
        close(jnp.asarray(z).view(dtype), z.view(dtype), dtype)
        close(jnp.asarray(z.view(dtype)).view("complex64"), z, dtype)
    with tx.enable_x64(True):
        close(jnp.asarray(z).view("float64"), z.view(np.float64), "float64")
        close(jnp.asarray(z[0, 0]).view("float64"), z[0, 0].view(np.float64), "scalar")
    with pytest.raises(ShapeError, match="do not make up whole ones of c64"):
        jnp.ones(3).view("complex64")


def test_sizes_of_unravel_index_may_be_traced() -> None:
    for places in (np.array([5, -1, 7, -9]), np.array(3)):
        known, traced = (f(places, (2, 3)) for f in (jnp.unravel_index, tx.jit(jnp.unravel_index)))
        for mine, theirs in zip(traced, known, strict=True):
            close(mine, theirs, "unravel_index")


def test_histogram_has_the_type_of_its_values_and_weights() -> None:
    x, edges, weights = jnp.ones(3, "bfloat16"), np.arange(4), jnp.ones(3, "float32")
    with tx.numpy_dtype_promotion("strict"):
        assert [found.dtype.name for found in jnp.histogram(x, edges)] == ["bfloat16"] * 2
    assert [found.dtype.name for found in jnp.histogram(x, edges, weights=weights)] == ["float32"] * 2
    close(jnp.histogram(np.array([100_001, 3]), [0, 5, 100_002], weights=jnp.ones(2, "float16"))[0], [1, 1], "places")


def test_trapezoid_takes_places_and_widths_of_fewer_axes() -> None:
    y, x, widths = (np.arange(np.prod(s), dtype=np.float32).reshape(s) ** 2 for s in ((2, 3, 4), (3, 4), (2, 4)))
    with tx.numpy_rank_promotion("raise"):
        close(jnp.trapezoid(y, x, axis=-2), np.trapezoid(y, x, axis=-2), "x")
        close(jnp.trapezoid(y, dx=widths, axis=1), np.trapezoid(y, dx=widths, axis=1), "dx")
        for values in (np.arange(5.0) ** 2, np.arange(10.0).reshape(5, 2) ** 2):
            found, known = (m.polyfit(np.arange(5.0), values, 1, cov=True)[1] for m in (jnp, np))
            close(found, known, "polyfit")


def test_calls_that_numpy_takes_at_the_edges_of_their_arguments() -> None:
    assert jnp.take(jnp.arange(3.0), jnp.array([1, 5]), fill_value=9.0).tolist() == [1, 9]
    assert jnp.lexsort((1, 2)).tolist() == 0
    assert jnp.repeat(3, 2, axis=0).tolist() == jnp.repeat(3, 2, axis=-1).tolist() == [3, 3]
    assert [jnp.isscalar(np.array(x)) for x in (1, [1])] == [True, False]
    assert tx.jit(lambda z: jnp.zeros(()) + jnp.iscomplexobj([z, 1]))(1j) == 1
    assert jnp.diff(X, 0, prepend=1).shape == X.shape
    assert jnp.linspace(jnp.ones(2), 3, 1, retstep=True)[1].shape == ()
    assert jnp.ravel_multi_index((jnp.array([5]), jnp.array([-1])), (2, 3), mode="ignore").tolist() == [14]
    assert jnp.arange(4).searchsorted(2, method="sort", sorter=jnp.arange(4)) == 2
    assert jnp.asarray(X).tobytes("F") == X.tobytes("F")
    tx.jvp(lambda n: jnp.split(jnp.zeros(4), n)[0], (2.0,), (1.0,))
    with pytest.raises(DTypeError, match=r"ones: 3 is not an element type; .* write ones\(\(2, 3\)\)"):
        jnp.ones(2, 3)
    with pytest.raises(ConcretizationError, match="split, whose result's shape depends on this argument,"):
        tx.jit(lambda n: jnp.split(jnp.zeros(4), n))(2)
    with pytest.raises(ValueError, match="corrcoef: dtype must be floating-point or complex, but got s32"):
        jnp.corrcoef(X, dtype=int)


@pytest.mark.parametrize("dtype", [None, "float16", "bfloat16", "int8", "int32", "complex64"])
def test_arange_computes_in_the_element_type(dtype: Any) -> None:
    """As JAX: the first number and the step are rounded to it, or to 32 bits where it is narrower."""
    ranges = [
        (-20.8, 13.1, 1.99),
        (0.5, 7),
        (np.float32(7.51), 13, 0.29),
        (np.float32(0), np.float32(0.3), 0.1),
        (3, 90),
    ]
    for given in ranges:
        wanted = np.asarray(jax.numpy.arange(*given, dtype=dtype))
        for found in (jnp.arange(*given, dtype=dtype), tx.jit(lambda given=given: jnp.arange(*given, dtype=dtype))()):
            assert found.dtype == wanted.dtype, given
            np.testing.assert_array_equal(np.asarray(found), wanted, str(given))


def test_linspace_from_zero_has_multiples_of_the_step() -> None:
    """As compiled by XLA: 3 / 5 is rounded, but 25 / 5 is not."""
    for stop, num in [(25, 6), (7.4, 5), (3.3, 50), (-0.7, 12)]:
        wanted = np.asarray(jax.numpy.linspace(0, stop, num))
        np.testing.assert_array_equal(np.asarray(jnp.linspace(0, stop, num)), wanted)
        np.testing.assert_array_equal(np.asarray(tx.jit(lambda x, n=num: jnp.linspace(0, x, n))(stop)), wanted)
    assert jnp.linspace(1.0, np.inf, 1).tolist() == [1.0]


def test_numbers_between_ends_are_computed_in_the_type_of_the_result() -> None:
    points, step = jnp.linspace(5.69, -0.0016, 5, retstep=True, dtype="float16")
    wanted = jax.numpy.linspace(5.69, -0.0016, 5, retstep=True, dtype="float16")
    assert points.dtype == step.dtype == np.float16
    assert float(step) == float(wanted[1])
    assert jnp.logspace(0, 2, 3, dtype="float16").dtype == np.float16
    assert jnp.geomspace(1, 1000, 4).tolist() == [1.0, 10.0, 100.0, 1000.0]


def test_masked_arrays_are_refused_where_their_mask_would_be_lost() -> None:
    masked = np.ma.array([1.0, 2.0], mask=[False, True])
    assert jnp.array(masked).tolist() == [1, 2]  # as by np.array
    for call in (jnp.sin, jnp.asarray, tx.jit(lambda x: x), tx.device_put, jnp.ones(2).__add__):
        with pytest.raises(ValueError, match="a masked array, whose mask would be lost"):
            call(masked)


def test_tuples_with_operators_of_their_own_are_asked_for_them() -> None:
    class Pair(NamedTuple):
        x: Any

        def __mul__(self, other: Any) -> Any:
            return Pair(self.x * other)

        __rmul__ = __mul__  # type: ignore[assignment]

    found = jnp.ones(2) * Pair(jnp.ones(2))
    assert isinstance(found, Pair)
    assert found.x.tolist() == [1, 1]
    with pytest.raises(DTypeError, match=r"convert it with tinyxla\.numpy\.asarray"):
        _ = jnp.ones(2) * (1, 2)


def test_copies_inside_of_derivatives_and_maps_are_other_arrays() -> None:
    x, t = jnp.ones(2), jnp.ones(2)
    y, dy = tx.jvp(jnp.array, (x,), (t,))
    z = tx.vmap(jnp.array)(x)
    for copied in (y, dy, z, tx.vjp(jnp.array, x)[0]):
        copied.delete()  # type: ignore[attr-defined]
    assert x.tolist() == t.tolist() == [1, 1]


def test_quantile_by_the_nearest_element_breaks_ties_downwards() -> None:
    x = np.arange(7, dtype=np.float32)
    found = [m.numpy.percentile(x, np.float32([25, 50, 75]), method="nearest") for m in (tx, jax)]
    assert [np.asarray(f).tolist() for f in found] == [[1.0, 3.0, 4.0]] * 2


def test_the_polynomial_of_one_root() -> None:
    for root in (2.5, 3, np.float32(-1)):
        np.testing.assert_array_equal(np.asarray(jnp.poly(root)), np.asarray(jax.numpy.poly(root)))


@pytest.mark.parametrize("name", ["polyadd", "polysub"])
@pytest.mark.parametrize("shapes", [((1, 3), (2, 3)), ((2, 3), (1, 3)), ((2, 3), (1,)), ((2, 3), (2, 3))])
def test_sums_of_polynomials_along_the_first_axis(name: str, shapes: tuple[tuple[int, ...], ...]) -> None:
    x, y = (np.arange(np.prod(shape), dtype=np.float32).reshape(shape) + 1 for shape in shapes)
    expected = getattr(jax.numpy, name)(x, y)
    np.testing.assert_array_equal(np.asarray(getattr(jnp, name)(x, y)), np.asarray(expected))
    with pytest.raises(ShapeError):
        getattr(jnp, name)(np.ones(3), np.ones((2, 2)))


def test_polydiv_by_zero_is_nan_everywhere() -> None:
    assert np.isnan(jnp.polydiv(V, np.zeros(2), trim_leading_zeros=True)[1]).sum() == V.size


@pytest.mark.parametrize("mode", ["raise", "wrap", "clip"])
def test_choose_outside_of_the_choices_is_as_in_numpy(mode: str) -> None:
    numbers, choices = np.array([-5, -1, 0, 2, 4]), [np.arange(5), 10, np.arange(5) ** 2]
    if mode != "raise":
        return close(jnp.choose(numbers, choices, mode=mode), np.choose(numbers, choices, mode=mode), mode)
    with pytest.raises(ValueError, match="choose: invalid entry in choice array: not all are from 0 to 2"):
        jnp.choose(numbers, choices)
    with pytest.raises(ConcretizationError, match="choose with mode='raise' needs the value"):
        tx.jit(lambda n: jnp.choose(n, choices))(numbers)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "uint32"])
def test_unravel_index_of_narrow_and_unsigned_types(dtype: str) -> None:
    places = np.array([0, 7, 100, 127], dtype)
    for mine, theirs in zip(jnp.unravel_index(places, (20, 15)), np.unravel_index(places, (20, 15)), strict=True):
        close(mine, theirs.astype(dtype), dtype)
    assert [x.tolist() for x in jnp.unravel_index(places, (2, 3))] == [[0, 1, 1, 1], [0, 2, 2, 2]]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "complex64"])
def test_round_to_more_decimals_than_the_type_has_changes_nothing(dtype: str) -> None:
    x = jnp.array([8.89, -123.4, np.inf, 0.0], dtype)
    for decimals in (38, 39, 400):
        for found in (jnp.round(x, decimals), tx.jit(lambda x, d=decimals: jnp.round(x, d))(x)):
            assert found.tolist() == x.tolist()
    assert jnp.round(x[:2], -400).tolist() == [0, 0]


@pytest.mark.parametrize("side", ["left", "right"])
def test_compiled_searchsorted_of_complex_numbers_has_the_order_of_numpy(side: Any) -> None:
    parts = [-1.0, 0.0, 2.0, np.inf, np.nan]
    values = np.array([complex(x, y) for x in parts for y in parts], np.complex64)
    ordered = np.sort(values)
    found = tx.jit(lambda a, v: jnp.searchsorted(a, v, side=side))(ordered, values)
    close(found, np.searchsorted(ordered, values, side), side)
