"""Element types of results: JAX's promotion lattice with weakly typed Python scalars, and the default types.

Source: "Type promotion semantics" of the JAX documentation: each type points to those it promotes to; a result has the
least type that all operands reach. Python scalars are weak: they stand below every type of their kind, and give way.
"""

from __future__ import annotations

import reprlib
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

import numpy as np

from tinyxla.errors import DTypeError, NumberRangeError, PromotionError
from tinyxla.ops import movement, ops
from tinyxla.ops.numerics import integers
from tinyxla.runtime.allocation import allocated
from tinyxla.shapes import KeyType, element_type
from tinyxla.shapes.key_types import numbers_only
from tinyxla.shapes.symbolic import SymbolicDimension, array_of, is_symbolic, set_as_array
from tinyxla.tracing.array import Array, dense_array, namespace, signature_of, wrap_dense
from tinyxla.tracing.config import config

float0 = np.dtype([("float0", np.void, 0)])
"""The element type of derivatives by integers: there is none, and its elements have no bytes."""

_LINE = 64  # bytes of the cache
_LARGE = 1 << 16  # bytes from which on it matters where an array begins
_ABOVE: dict[str, tuple[str, ...]] = {
    "pred": ("int*",),
    "int*": ("u8", "s8", "u4", "s4", "u2", "s2", "u1", "s1"),
    "u1": (), "s1": (), "u2": (), "s2": (), "u4": (), "s4": (),
    "u8": ("u16", "s16"), "u16": ("u32", "s32"), "u32": ("u64", "s64"), "u64": ("float*",),
    "s8": ("s16",), "s16": ("s32",), "s32": ("s64",), "s64": ("float*",),
    "float*": (
        "f8e3m4", "f8e4m3", "f8e4m3b11fnuz", "f8e4m3fn", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz", "f8e8m0fnu",
        "f6e2m3fn", "f6e3m2fn", "f4e2m1fn", "bf16", "f16", "complex*",
    ),
    "bf16": ("f32",), "f16": ("f32",), "f32": ("f64", "c64"), "f64": ("c128",),
    "complex*": ("c64",), "c64": ("c128",), "c128": (),
}  # fmt: skip


@cache
def _reach(node: str) -> frozenset[str]:
    return frozenset({node}).union(*(_reach(above) for above in _ABOVE.get(node, ())))


def default_int() -> np.dtype[Any]:
    return np.dtype(np.int64 if config.enable_x64 else np.int32)


def default_float() -> np.dtype[Any]:
    return np.dtype(np.float64 if config.enable_x64 else np.float32)


def default_complex() -> np.dtype[Any]:
    return np.dtype(np.complex128 if config.enable_x64 else np.complex64)


_NARROW = {
    np.dtype(np.int64): np.dtype(np.int32),
    np.dtype(np.uint64): np.dtype(np.uint32),
    np.dtype(np.float64): np.dtype(np.float32),
    np.dtype(np.complex128): np.dtype(np.complex64),
}


def default_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """What an array of that dtype becomes when no type is asked for: 32-bit, unless `enable_x64`, and in the machine's
    byte order."""
    native = dtype if dtype.isnative else dtype.newbyteorder("=")
    return native if config.enable_x64 else _NARROW.get(native, native)


def _node(dtype: np.dtype[Any], weak: bool) -> str:
    kind = element_type(dtype)
    if not weak or kind.kind == "pred":
        return kind.name
    return {"signed": "int*", "unsigned": "int*", "float": "float*", "complex": "complex*"}[kind.kind]


def _of_node(node: str) -> tuple[np.dtype[Any], bool]:
    if node == "int*":
        return default_int(), True
    if node == "float*":
        return default_float(), True
    if node == "complex*":
        return default_complex(), True
    return element_type(node).dtype, False


_promoted: dict[Any, tuple[np.dtype[Any], bool]] = {}


def promote_types(*types: tuple[np.dtype[Any], bool]) -> tuple[np.dtype[Any], bool]:
    """The dtype and weakness that (dtype, weak) pairs have in common; 64-bit only if one is, unless `enable_x64`."""
    key = (types, config.enable_x64, config.numpy_dtype_promotion)
    found = _promoted.get(key)
    if found is None:
        if config.numpy_dtype_promotion == "strict":
            _check_strictly(types)
        found = _promoted[key] = join_types(*types)
    return found


def _check_strictly(types: tuple[tuple[np.dtype[Any], bool], ...]) -> None:
    """An error unless arrays keep their types, and only numbers, which are weak, are converted."""
    strong: set[Any] = {dtype for dtype, weak in types if not weak}
    if any(isinstance(dtype, KeyType) for dtype in strong):
        return  # which there is no promotion of in any case
    if len(strong) > 1 or (strong and _joined(types) not in strong):
        names = " and ".join(sorted({_node(*t) for t in types}))
        raise PromotionError(
            f"The element types {names} differ, and numpy_dtype_promotion is 'strict'; convert one with astype."
        )


def _joined(types: tuple[tuple[np.dtype[Any], bool], ...]) -> np.dtype[Any] | None:
    """The dtype that types have in common, if there is one."""
    try:
        return join_types(*types)[0]
    except PromotionError:
        return None


def join_types(*types: tuple[np.dtype[Any], bool]) -> tuple[np.dtype[Any], bool]:
    """The join in the promotion lattice, also where `numpy_dtype_promotion` is "strict": for types to which a function
    converts explicitly."""
    if not types:
        raise PromotionError("No types have none in common; there must be at least one array or number.")
    nodes = {_node(*t) for t in types}
    if len(nodes) == 1:
        if len({t[0] for t in types}) == 1:
            return types[0][0], all(t[1] for t in types)
        return _of_node(nodes.pop())
    common = frozenset.intersection(*map(_reach, nodes))
    least = [n for n in common if common <= _reach(n)]
    if not least:
        names = " and ".join(sorted(nodes))
        given: list[Any] = [t[0] for t in types]
        if any(isinstance(dtype, KeyType) for dtype in given):
            raise PromotionError(f"{names} differ, and random keys are no numbers; take random.key_data(keys).")
        raise PromotionError(f"There is no implicit promotion between {names}; convert one of them with astype.")
    dtype, weak = _of_node(least[0])
    if all(default_dtype(t[0]) == t[0] for t in types):  # int32 and uint32 meet in 64 bits, which nobody asked for
        dtype = default_dtype(dtype)
    return dtype, weak


def scalar_dtype(value: Any) -> np.dtype[Any]:
    """The dtype that a Python scalar has by itself."""
    if isinstance(value, bool):
        return np.dtype(np.bool_)
    if isinstance(value, int):
        return default_int()
    return default_float() if isinstance(value, float) else default_complex()


class _Lists(threading.local):
    """Whether lists are arrays in this thread."""

    arrays: bool = False


_lists = _Lists()


def with_lists_as_arrays(function: Callable[[], Any]) -> Any:
    """Call a function inside of which functions take lists where they take arrays, as NumPy's do."""
    before = _lists.arrays
    try:
        _lists.arrays = True
        return function()
    finally:
        _lists.arrays = before


def copied(value: Any, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """A dense copy. A large one begins where a line of the cache does: lines with whole vectors are quicker to read."""
    size = value.size * dtype.itemsize
    if size < _LARGE:
        return np.array(value, dtype, order="C")
    memory = allocated("A copy of a NumPy array", lambda: np.empty(size + _LINE, np.uint8))
    start = -memory.ctypes.data % _LINE
    found = memory[start : start + size].view(dtype).reshape(value.shape)
    found[...] = value
    return found


MASKED = "a masked array, whose mask would be lost; pass what its method filled() returns, or its data and its mask"


def refuse_masked(value: Any, what: str) -> None:
    """An error for one of NumPy's masked arrays."""
    if type(value) is not np.ndarray and isinstance(value, np.ndarray) and isinstance(value, np.ma.MaskedArray):
        raise DTypeError(f"{what} takes arrays and numbers, but got {MASKED}.")


def as_array(value: Any, what: str = "An operation") -> Array:
    """An array of anything that is one: arrays, NumPy arrays and scalars (64-bit ones become 32-bit), Python scalars
    (weakly typed)."""
    if isinstance(value, Array):
        return value
    if isinstance(value, (np.ndarray, np.generic)):  # first: NumPy's float64 is a Python float too
        refuse_masked(value, what)
        dtype = default_dtype(value.dtype)
        element_type(dtype)
        return dense_array(copied(value, dtype))
    if is_symbolic(value):
        return array_of(value)
    if isinstance(value, (bool, int, float, complex)):
        dtype, weak, signature = _scalar_kind(type(value), config.enable_x64)
        number = np.array(value, dtype) if abs(value) < 2**31 else np.asarray(checked_scalar(value, dtype))
        return wrap_dense(number, weak, signature)
    convert = getattr(value, "__jax_array__", None)
    if convert is None and hasattr(type(value), "__tinyxla_array__"):
        convert = value.__tinyxla_array__
    if convert is not None:
        return as_array(convert(), what)
    if hasattr(value, "__array__"):
        return as_array(np.asarray(value), what)
    if _lists.arrays and isinstance(value, (list, tuple)):
        return namespace().asarray(value)
    said = f"{what} takes arrays and numbers, but got {reprlib.repr(value)} of type {type(value).__name__}"
    raise DTypeError(f"{said}{_way_to_an_array(value)}.")


def _way_to_an_array(value: Any) -> str:
    """How a user makes an array of what is none, if there is a way."""
    if isinstance(value, (list, tuple, range)):
        return "; convert it with tinyxla.numpy.asarray"
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes, Mapping)):
        return "; make a list of its elements, and an array of that by tinyxla.numpy.asarray"
    return ""


@cache
def _scalar_kind(kind: type[Any], enable_x64: bool) -> tuple[np.dtype[Any], bool, int]:
    """The dtype, the weakness and the signature of the arrays that Python scalars of a type become."""
    dtype = scalar_dtype(next(base() for base in (bool, int, float, complex) if issubclass(kind, base)))
    weak = not issubclass(kind, bool)
    return dtype, weak, signature_of(dtype, (), weak)


def checked_scalar(value: Any, dtype: np.dtype[Any], may_wrap: bool = False) -> Any:
    """A Python number as a NumPy scalar of that dtype; an error for an integer or a complex one that does not fit. A
    float becomes an integer as an element of an array does: it saturates, and NaN is 0.

    With `may_wrap`, the option `weak_integer_overflow` says whether an integer of the default type wraps around.
    """
    try:
        with np.errstate(over="ignore"):  # a float that is too large becomes infinite
            return dtype.type(value)
    except TypeError:
        numbers_only(dtype)
        raise DTypeError(
            f"The complex number {value} does not fit the element type {dtype.name}; take its real part."
        ) from None
    except (OverflowError, ValueError):
        if isinstance(value, float) and element_type(dtype).is_integer:
            return integers.convert(np.asarray(value, np.float64), dtype)[()]
        if isinstance(value, int) and element_type(dtype).is_integer:
            usual = np.iinfo(scalar_dtype(0))
            if may_wrap and config.weak_integer_overflow == "wrap" and usual.min <= value <= usual.max:
                return integers.convert(np.asarray(value, usual.dtype), dtype)[()]
            raise NumberRangeError(f"The Python integer {value} does not fit the element type {dtype.name}.") from None
        return dtype.type(np.inf if value > 0 else -np.inf)


def _dimension(x: SymbolicDimension) -> Array:
    """A symbolic dimension as an array of the default integer type, weakly typed as Python's integers."""
    size = movement.symbolic_size(size=x)
    wanted = default_int()
    found = size if size.dtype == wanted else ops["convert"](size, new_element_type=element_type(wanted))
    return found.with_weak_type(True)


set_as_array(_dimension)
