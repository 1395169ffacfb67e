"""Element types under NumPy's names, as callables that make arrays; questions about types; constants."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from tinyxla.errors import ArgumentError, DTypeError
from tinyxla.numpy.arguments import ArrayLike, cast, choice_of, operand, python_dtype, type_of
from tinyxla.numpy.creation import array
from tinyxla.shapes import KeyType, element_type
from tinyxla.shapes.key_types import extended
from tinyxla.tracing.array import Array
from tinyxla.tracing.promotion import (
    default_complex,
    default_dtype,
    default_float,
    default_int,
    promote_types as promote,
)
from tinyxla.transforms.key_arrays import of_key_type

e = math.e
pi = math.pi
euler_gamma = 0.577215664901532860606512090082402431
inf = math.inf
nan = math.nan
newaxis = None


class ScalarType:
    """A type as users write it: `float32(3)` makes an array of it, and `dtype=float32` asks for it.

    It equals its NumPy counterpart, and NumPy takes it as a dtype.
    """

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self.dtype = dtype
        self.__name__ = dtype.name

    def __call__(self, value: ArrayLike = 0) -> Array:
        return array(value, self.dtype)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, ScalarType):
            return self.dtype == other.dtype
        try:
            return bool(self.dtype == other)
        except TypeError:
            return False

    def __hash__(self) -> int:
        return hash(self.dtype)

    def __repr__(self) -> str:
        return f"tinyxla.numpy.{self.__name__}"


def _scalar_type(name: str) -> ScalarType:
    return ScalarType(element_type(name).dtype)


class _DefaultType(ScalarType):
    """The type that Python's numbers of a kind have by default: 32-bit, or 64-bit if `enable_x64`."""

    def __init__(self, name: str, default: Callable[[], np.dtype[Any]]) -> None:
        self.__name__ = name
        self._default = default

    @property
    def dtype(self) -> np.dtype[Any]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self._default()


int_ = _DefaultType("int_", default_int)
uint = _DefaultType("uint", lambda: np.dtype(f"u{default_int().name}"))
float_ = _DefaultType("float_", default_float)
complex_ = _DefaultType("complex_", default_complex)
bool_ = _scalar_type("pred")
int2, int4, int8, int16, int32, int64 = (_scalar_type(f"s{n}") for n in (2, 4, 8, 16, 32, 64))
uint2, uint4, uint8, uint16, uint32, uint64 = (_scalar_type(f"u{n}") for n in (2, 4, 8, 16, 32, 64))
bfloat16, float16, float32, float64 = (_scalar_type(name) for name in ("bf16", "f16", "f32", "f64"))
float8_e3m4, float8_e4m3, float8_e4m3b11fnuz, float8_e4m3fn = (
    _scalar_type(name) for name in ("f8e3m4", "f8e4m3", "f8e4m3b11fnuz", "f8e4m3fn")
)
float8_e4m3fnuz, float8_e5m2, float8_e5m2fnuz, float8_e8m0fnu = (
    _scalar_type(name) for name in ("f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz", "f8e8m0fnu")
)
float4_e2m1fn = _scalar_type("f4e2m1fn")
complex64, complex128 = _scalar_type("c64"), _scalar_type("c128")
single, double, csingle, cdouble = float32, float64, complex64, complex128

number, generic, inexact, floating = np.number, np.generic, np.inexact, np.floating
complexfloating, integer = np.complexfloating, np.integer
signedinteger, unsignedinteger = np.signedinteger, np.unsignedinteger
dtype = np.dtype


def finfo(type: Any) -> Any:
    """The limits of a floating type: max, min, eps, tiny, bits, ..."""
    found = python_dtype(getattr(type, "dtype", type))
    if element_type(found).kind not in ("float", "complex"):
        raise DTypeError(f"finfo: takes a floating or complex type, but got {found}; use iinfo for integers.")
    return ml_dtypes.finfo(found)


def iinfo(type: Any) -> Any:
    """The limits of an integer type: max, min, bits."""
    found = python_dtype(getattr(type, "dtype", type))
    if not element_type(found).is_integer:
        raise DTypeError(f"iinfo: takes an integer type, but got {found}; use finfo for floats.")
    return ml_dtypes.iinfo(found)


_ABSTRACT = {
    "pred": (np.bool_, np.generic),
    "signed": (np.signedinteger, np.integer, np.number, np.generic),
    "unsigned": (np.unsignedinteger, np.integer, np.number, np.generic),
    "float": (np.floating, np.inexact, np.number, np.generic),
    "complex": (np.complexfloating, np.inexact, np.number, np.generic),
}


def issubdtype(arg1: Any, arg2: Any) -> bool:
    """Whether a type is another, or of a kind such as `floating`; bfloat16 and the 8-bit types are floating."""
    if isinstance(arg1, type) and issubclass(arg1, np.generic) and arg1 in _KINDS:
        return isinstance(arg2, type) and issubclass(arg1, arg2)
    if isinstance(arg1, KeyType) or isinstance(arg2, KeyType):
        kinds = isinstance(arg1, KeyType) and isinstance(arg2, type) and issubclass(arg1.type, arg2)
        return arg1 is arg2 or kinds
    if isinstance(arg1, type) and issubclass(arg1, extended):
        return isinstance(arg2, type) and issubclass(arg1, arg2)
    if isinstance(arg2, type) and issubclass(arg2, extended):
        return False  # kinds of which no array of numbers is
    kind = element_type(python_dtype(arg1))
    if isinstance(arg2, type) and arg2 in _KINDS:
        return arg2 in _ABSTRACT[kind.kind]
    return kind is element_type(python_dtype(arg2))


_KINDS = (number, generic, inexact, floating, complexfloating, integer, signedinteger, unsignedinteger)

_NAMED_KINDS = {
    "bool": ("pred",),
    "signed integer": ("signed",),
    "unsigned integer": ("unsigned",),
    "integral": ("signed", "unsigned"),
    "real floating": ("float",),
    "complex floating": ("complex",),
    "numeric": ("signed", "unsigned", "float", "complex"),
}


def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether a type is of a kind, by the names of the array API standard, or of one of several."""
    kinds = kind if isinstance(kind, tuple) else (kind,)
    found = element_type(python_dtype(dtype))
    for k in kinds:
        if isinstance(k, str) and k in _NAMED_KINDS:
            if found.kind in _NAMED_KINDS[k]:
                return True
        elif found is element_type(python_dtype(k)):
            return True
    return False


def promote_types(a: Any, b: Any) -> np.dtype[Any]:
    """The type that values of two types are brought to. Python's `int`, `float` and `complex` give way."""
    return promote(*(_typed(t) for t in (a, b)))[0]


def _typed(t: Any) -> tuple[np.dtype[Any], bool]:
    return python_dtype(t), t in (int, float, complex) if isinstance(t, type) else False


def result_type(*args: Any) -> np.dtype[Any]:
    """The type that arrays, numbers and types have in common."""
    found: list[tuple[np.dtype[Any], bool]] = []
    for x in args:
        is_type = isinstance(x, (type, np.dtype, str, ScalarType))
        found.append(_typed(x) if is_type else type_of(operand(x, "result_type")))
    if not found:
        raise ArgumentError("result_type: takes at least one array, number or type, but got none.")
    common, _ = promote(*((default_dtype(d) if not w else d, w) for d, w in found))
    return common


def can_cast(from_: Any, to: Any, casting: str = "safe") -> bool:
    """Whether a type converts to another under NumPy's casting rule of that name."""
    source = from_.dtype if hasattr(from_, "dtype") else from_
    rule: Any = choice_of("can_cast", "casting", casting, ("no", "equiv", "safe", "same_kind", "unsafe"))
    return np.can_cast(python_dtype(source), python_dtype(to), casting=rule)


def astype(x: ArrayLike, dtype: Any, /, *, copy: bool = False, device: Any = None) -> Array:
    """The array with elements of another type, also where that is a 64-bit one."""
    given = x if isinstance(x, Array) else array(x)
    if isinstance(dtype, KeyType):
        return of_key_type("astype", given, dtype)
    found = cast(given, python_dtype(dtype), False)
    return found.copy() if copy and found is x else found


def isscalar(element: Any) -> bool:
    """Whether it is a number or an array without dimensions."""
    return np.isscalar(element) or (isinstance(element, Array) and element.ndim == 0)


def iscomplexobj(x: Any) -> bool:
    """Whether the type is complex."""
    return type_of(operand(x, "iscomplexobj"))[0].kind == "c"


def isrealobj(x: Any) -> bool:
    """Whether the type is not complex."""
    return not iscomplexobj(x)


def iterable(y: Any) -> bool:
    """Whether one can go through the elements."""
    return np.iterable(y) and not (isinstance(y, Array) and y.ndim == 0)
