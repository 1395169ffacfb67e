"""Element types under NumPy's names, as callables that make arrays; questions about types; constants."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np

from tinyxla.api.eager_replay import know_by_value
from tinyxla.errors import ArgumentError, DTypeError
from tinyxla.numpy.arguments import (
    SCALARS,
    ArrayLike,
    cast,
    choice_of,
    named_dtype,
    operand,
    python_dtype,
    shown,
    type_of,
)
from tinyxla.numpy.creation import array
from tinyxla.shapes import ElementType, KeyType, element_type, element_types
from tinyxla.shapes.key_types import extended
from tinyxla.tracing.array import Array
from tinyxla.tracing.promotion import (
    as_array,
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

    def __instancecheck__(self, instance: Any) -> bool:
        return isinstance(instance, self.dtype.type)

    def __hash__(self) -> int:
        return hash(self.dtype.type)  # as in JAX: of the types in a set NumPy's scalar types are found

    def __repr__(self) -> str:
        return f"tinyxla.numpy.{self.__name__}"

    def __reduce__(self) -> tuple[Any, ...]:
        return _scalar_type, (element_type(self.dtype).name,)  # pickled, it is itself


know_by_value(ScalarType)


@lru_cache(None)
def _scalar_type(name: str) -> ScalarType:
    return ScalarType(element_type(name).dtype)


class _DefaultType(ScalarType):
    """The type that Python's numbers of a kind have by default: 32-bit, or 64-bit if `enable_x64`."""

    def __init__(self, name: str, default: Callable[[], np.dtype[Any]]) -> None:
        self.__name__ = name
        self._default = default

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._default()


int_ = _DefaultType("int_", default_int)
uint = _DefaultType("uint", lambda: np.dtype(f"u{default_int().name}"))
float_ = _DefaultType("float_", default_float)
complex_ = _DefaultType("complex_", default_complex)
bool_ = _scalar_type("pred")
int2, int4, int8, int16, int32, int64 = (_scalar_type(f"s{n}") for n in (2, 4, 8, 16, 32, 64))
uint2, uint4, uint8, uint16, uint32, uint64 = (_scalar_type(f"u{n}") for n in (2, 4, 8, 16, 32, 64))
if "s1" in element_types:  # of the installed ml_dtypes
    int1, uint1 = _scalar_type("s1"), _scalar_type("u1")
bfloat16, float16, float32, float64 = (_scalar_type(name) for name in ("bf16", "f16", "f32", "f64"))
float8_e3m4, float8_e4m3, float8_e4m3b11fnuz, float8_e4m3fn = (
    _scalar_type(name) for name in ("f8e3m4", "f8e4m3", "f8e4m3b11fnuz", "f8e4m3fn")
)
float8_e4m3fnuz, float8_e5m2, float8_e5m2fnuz, float8_e8m0fnu = (
    _scalar_type(name) for name in ("f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz", "f8e8m0fnu")
)
float6_e2m3fn, float6_e3m2fn, float4_e2m1fn = (_scalar_type(name) for name in ("f6e2m3fn", "f6e3m2fn", "f4e2m1fn"))
complex64, complex128 = _scalar_type("c64"), _scalar_type("c128")
single, double, csingle, cdouble = float32, float64, complex64, complex128

number, generic, inexact, floating = np.number, np.generic, np.inexact, np.floating
complexfloating, integer = np.complexfloating, np.integer
signedinteger, unsignedinteger = np.signedinteger, np.unsignedinteger
character, flexible, object_ = np.character, np.flexible, np.object_  # of which no array is
ComplexWarning = np.exceptions.ComplexWarning
dtype = np.dtype


def finfo(dtype: Any) -> Any:
    """The limits of a floating type, or of the type of an array: max, min, eps, tiny, bits, ...

    Args:
        dtype: a floating-point or complex type, or an array.

    Returns:
        An object with the limits as attributes.

    Raises:
        DTypeError: a type that is not floating-point or complex.

    >>> from tinyxla.numpy import finfo
    >>> import numpy as np
    >>> finfo(np.float32).bits
    32
    """
    found = dtype_of(dtype, "finfo")
    if element_type(found).kind not in ("float", "complex"):
        raise DTypeError(f"finfo: takes a floating or complex type, but got {found}; use iinfo for integers.")
    return ml_dtypes.finfo(found)


def iinfo(int_type: Any) -> Any:
    """The limits of an integer type, or of the type of an array: max, min, bits.

    Args:
        int_type: an integer type, or an array.

    Returns:
        An object with the limits as attributes.

    Raises:
        DTypeError: a type of no integers.

    >>> from tinyxla.numpy import iinfo
    >>> import numpy as np
    >>> iinfo(np.int8).max
    127
    """
    found = dtype_of(int_type, "iinfo")
    if not element_type(found).is_integer:
        raise DTypeError(f"iinfo: takes an integer type, but got {found}; use finfo for floats.")
    return ml_dtypes.iinfo(found)


def dtype_of(value: Any, what: str) -> np.dtype[Any]:
    """The element type that a type names, or that a value has: an array, a number, or anything with a `dtype`."""
    if isinstance(value, (type, np.dtype, str, ScalarType, ElementType)):
        return named_dtype(value)
    found: Any = value if isinstance(value, KeyType) else getattr(value, "dtype", None)
    if isinstance(found, KeyType):
        return found  # type: ignore[return-value]
    return named_dtype(found) if isinstance(found, np.dtype) else type_of(operand(value, what))[0]


_ABSTRACT = {
    "pred": (np.bool_, np.generic),
    "signed": (np.signedinteger, np.integer, np.number, np.generic),
    "unsigned": (np.unsignedinteger, np.integer, np.number, np.generic),
    "float": (np.floating, np.inexact, np.number, np.generic),
    "complex": (np.complexfloating, np.inexact, np.number, np.generic),
}


def issubdtype(arg1: Any, arg2: Any) -> bool:
    """Whether a type is another, or of a kind such as `floating`; bfloat16 and the 8-bit types are floating.

    Python's `float` and `int` mean 64 bits here, as in NumPy. Types that arrays cannot have are of no numeric kind.

    Args:
        arg1, arg2: element types, or abstract ones such as `floating`.

    Returns:
        True or False.

    Raises:
        DTypeError: what is no type.

    >>> from tinyxla.numpy import floating, issubdtype
    >>> issubdtype("bfloat16", floating), issubdtype("float32", "float64")
    (True, False)
    """
    if isinstance(arg1, KeyType) or isinstance(arg2, KeyType):
        kinds = isinstance(arg1, KeyType) and isinstance(arg2, type) and issubclass(arg1.type, arg2)
        return arg1 is arg2 or kinds
    if isinstance(arg1, type) and issubclass(arg1, extended):
        return isinstance(arg2, type) and issubclass(arg1, arg2)
    if isinstance(arg2, type) and issubclass(arg2, extended):
        return False  # kinds of which no array of numbers is
    kind = _array_type(arg1)
    if kind is None:
        return _is_subclass(arg1, arg2)
    if isinstance(arg2, type) and arg2 in _KINDS:
        return arg2 in _ABSTRACT[kind.kind]
    return kind is _array_type(arg2)


def _array_type(found: Any) -> ElementType | None:
    """The element type that a type names as NumPy understands it; None for kinds, and what arrays cannot have."""
    if found is None or (isinstance(found, type) and found in _KINDS):
        return None
    try:
        return element_type(np.dtype(found) if found in (int, float, complex) else dtype_of(found, "issubdtype"))
    except TypeError:
        return None


def _is_subclass(kind: Any, other: Any) -> bool:
    """`numpy.issubdtype` of a kind of types, or of a type that arrays cannot have."""
    kinds = [k if isinstance(k, type) and issubclass(k, np.generic) else _generic_type(k) for k in (kind, other)]
    return issubclass(*kinds)


def _generic_type(found: Any) -> type:
    try:
        return np.dtype(found).type
    except TypeError:
        raise DTypeError(f"issubdtype: {shown(found)} is not a type.") from None


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
    """Whether a type is of a kind, by the names of the array API standard, or of one of several.

    Args:
        dtype: an element type.
        kind: an element type, a name such as "real floating", or a tuple of them.

    Returns:
        True or False.

    Raises:
        DTypeError: what is no element type, nor a kind of them.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.isdtype("float32", "real floating")
        True
    """
    kinds = kind if isinstance(kind, tuple) else (kind,)
    found = element_type(dtype_of(dtype, "isdtype"))
    for k in kinds:
        if isinstance(k, str) and k in _NAMED_KINDS:
            if found.kind in _NAMED_KINDS[k]:
                return True
        elif found is element_type(k if isinstance(k, KeyType) else named_dtype(k)):
            return True
    return False


def promote_types(a: Any, b: Any) -> np.dtype[Any]:
    """The type that values of two types are brought to. Python's `int`, `float` and `complex` give way.

    Args:
        a, b: element types.

    Returns:
        A NumPy dtype.

    Raises:
        DTypeError: what is no element type.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.promote_types("int32", "float16")
        dtype('float16')
    """
    return promote(*((dtype_of(t, "promote_types"), _is_weak(t)) for t in (a, b)))[0]


def _is_weak(t: Any) -> bool:
    return isinstance(t, type) and t in (int, float, complex)


def result_type(*args: Any, return_weak_type_flag: bool = False) -> Any:
    """The type that arrays, numbers, types and anything else with a `dtype` have in common; with
    `return_weak_type_flag` a pair of it and of whether it gives way to other types.

    Args:
        *args: arrays, numbers, or element types.
        return_weak_type_flag: whether to return the flag, too.

    Returns:
        A NumPy dtype, or a pair of it and a flag.

    Raises:
        ArgumentError: no arguments.

    >>> from tinyxla.numpy import result_type
    >>> import tinyxla as tx
    >>> result_type(tx.ShapeDtypeStruct((2,), "bfloat16"), 1.0)
    dtype(bfloat16)
    """
    if not args:
        raise ArgumentError("result_type: takes at least one array, number or type, but got none.")
    found = [_type_and_weakness(x) for x in args]
    common, weak = promote(*((d if w else default_dtype(d), w) for d, w in found))
    return (common, weak) if return_weak_type_flag else common


def _type_and_weakness(x: Any) -> tuple[np.dtype[Any], bool]:
    if isinstance(x, SCALARS) and not isinstance(x, np.generic):
        return type_of(x)
    if x is None:  # NumPy's default type
        return default_float(), False
    return dtype_of(x, "result_type"), _is_weak(x) or bool(getattr(x, "weak_type", False))


def can_cast(from_: Any, to: Any, casting: str = "safe") -> bool:
    """Whether a type converts to another under NumPy's casting rule of that name.

    Args:
        from_, to: element types, or arrays.
        casting: "no", "equiv", "safe", "same_kind" or "unsafe".

    Returns:
        True or False.

    Raises:
        DTypeError: what is no element type.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.can_cast("int8", "int32")
        True
    """
    rule: Any = choice_of("can_cast", "casting", casting, ("no", "equiv", "safe", "same_kind", "unsafe"))
    return np.can_cast(dtype_of(from_, "can_cast"), named_dtype(to), casting=rule)


def astype(x: ArrayLike, dtype: Any, /, *, copy: bool = False, device: Any = None) -> Array:
    """The array with elements of another type, also where that is a 64-bit one.

    Args:
        x: an array.
        dtype: the element type of the result.
        copy: accepted for compatibility.
        device: a device, or a sharding.

    Returns:
        An array of the shape of x.

    Raises:
        DTypeError: what is no array or number.
        DTypeError: what is no element type.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.astype(jnp.array([1.7, -1.7]), "int32")
        Array([ 1, -1], dtype=int32)
    """
    given = x if isinstance(x, Array) else array(x)
    if isinstance(dtype, KeyType):
        return of_key_type("astype", given, dtype)
    found = cast(given, python_dtype(dtype), False)
    return found.copy() if copy and found is x else found


def isscalar(element: Any) -> bool:
    """Whether it is a number or an array without dimensions.

    Args:
        element: any object.

    Returns:
        True or False.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.isscalar(3.0)
        True
    """
    if hasattr(element, "__jax_array__") or hasattr(type(element), "__tinyxla_array__"):
        element = as_array(element)
    return np.isscalar(element) or (isinstance(element, (Array, np.ndarray)) and element.ndim == 0)


def iscomplexobj(x: Any) -> bool:
    """Whether the type is complex.

    Args:
        x: an array, a number, or an element type.

    Returns:
        True or False.

    Raises:
        DTypeError: what is no array, number or element type.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.iscomplexobj(jnp.array([1j]))
        True
    """
    if x is None or isinstance(x, str):
        return False
    if isinstance(x, (list, tuple)):
        return any(map(iscomplexobj, x))
    return dtype_of(x, "iscomplexobj").kind == "c"


def isrealobj(x: Any) -> bool:
    """Whether the type is not complex.

    Args:
        x: an array, a number, or an element type.

    Returns:
        True or False.

    Raises:
        DTypeError: what is no array, number or element type.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.isrealobj(jnp.array([1j]))
        False
    """
    return not iscomplexobj(x)


def iterable(y: Any) -> bool:
    """Whether one can go through the elements.

    Args:
        y: any object.

    Returns:
        True or False.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.iterable(jnp.ones(3))
        True
    """
    return np.iterable(y) and not (isinstance(y, Array) and y.ndim == 0)
