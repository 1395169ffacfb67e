"""What the functions do with their arguments: promotion to a common type, broadcasting, axes."""

from __future__ import annotations

import functools
import inspect
import math
import reprlib
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn, TypeGuard, TypeVar

import ml_dtypes
import numpy as np

from tinyxla.errors import (
    ArgumentError,
    DTypeError,
    NumberRangeError,
    RankPromotionWarning,
    ShapeError,
    SizeError,
    TinyxlaError,
    warn,
)
from tinyxla.hlo import Literal
from tinyxla.numpy.operations import movement, ops
from tinyxla.ops.numerics import integers
from tinyxla.partitioning.placement import placed_result
from tinyxla.runtime.allocation import after_shortage, allocated
from tinyxla.shapes import ElementType, KeyType, Shape, element_type
from tinyxla.shapes.key_types import numbers_only
from tinyxla.shapes.shape import canonical_axis
from tinyxla.shapes.symbolic import SymbolicDimension, has_symbolic, is_symbolic
from tinyxla.tracing.array import Array, ConcreteArray
from tinyxla.tracing.core import LARGE, innermost, state
from tinyxla.tracing.device import check_device
from tinyxla.tracing.meshes import context
from tinyxla.tracing.promotion import (
    as_array,
    checked_scalar,
    config,
    default_complex,
    default_dtype,
    default_float,
    default_int,
    join_types,
    promote_types,
    scalar_dtype,
)
from tinyxla.tracing.transfers import check_host_values

ArrayLike = Any
Axis = int | Sequence[int] | None
Type = tuple[np.dtype[Any], bool]  # dtype, and whether it is weak
SCALARS = (bool, int, float, complex)


def eager(*values: Any) -> bool:
    """Whether NumPy computes operations on these values at once: small arrays on the first device, of which nothing has
    to be checked."""
    if state.staging is not None or context.programs is not None or config.special:
        return False
    return all(isinstance(x, ConcreteArray) and x.size < LARGE for x in values)


_Function = TypeVar("_Function", bound=Callable[..., Any])


def with_device(function: _Function) -> _Function:
    """The function with keywords `device` and `out_sharding`: a device or a sharding of the result."""

    @functools.wraps(function)
    def call(*args: Any, device: Any = None, out_sharding: Any = None, **kwargs: Any) -> Any:
        if device is not None or out_sharding is not None:
            check_device(function.__name__, device)
            where = device if out_sharding is None else out_sharding
            what, is_type = f"{function.__name__}: out_sharding", out_sharding is not None
            return placed_result(what, lambda: function(*args, **kwargs), where, is_type)
        return function(*args, **kwargs)

    signature = inspect.signature(function)
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation="Any")
        for name in ("device", "out_sharding")
    ]
    call.__signature__ = signature.replace(parameters=[*signature.parameters.values(), *added])  # type: ignore[attr-defined]
    return call  # type: ignore[return-value]


def with_flags(function: _Function) -> _Function:
    """The function, whose parameters that are annotated as `bool` take flags alone (`flag_of`)."""
    code, kinds = function.__code__, function.__annotations__  # not `inspect.signature`, which takes longer
    names = enumerate(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
    flags = {name: k if k < code.co_argcount else math.inf for k, name in names if kinds.get(name) == "bool"}

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        for name, k in flags.items():
            value = args[int(k)] if k < len(args) else kwargs.get(name, False)
            if type(value) is not bool:
                flag_of(function.__name__, name, value)
        return function(*args, **kwargs)

    return call  # type: ignore[return-value]


# --- types ------------------------------------------------------------------------------------------------------------


def type_of(value: Any) -> Type:
    """The dtype and weakness with which a value takes part in promotion."""
    if isinstance(value, Array):
        return value.dtype, value.weak_type
    if type(value) is SymbolicDimension:
        return default_int(), True
    if isinstance(value, SCALARS) and not isinstance(value, np.generic):
        return scalar_dtype(value), not isinstance(value, bool)
    return default_dtype(value.dtype), False


def operand(value: Any, what: str) -> Any:
    """An argument that is an array, or a Python number, which keeps its exact value until its type is known."""
    if isinstance(value, Array):
        return value
    if isinstance(value, SCALARS) and not isinstance(value, np.generic) and not is_symbolic(value):
        return value
    return as_array(value, what)


def cast(value: Any, dtype: np.dtype[Any], weak: bool | None = None) -> Array:
    """A value (as `operand` gives it) with elements of that type; weakly typed as asked, or as it is."""
    if not isinstance(value, Array):
        return ConcreteArray(checked_scalar(value, dtype, may_wrap=True), bool(weak))
    if value.dtype != dtype:
        kept = value.weak_type if weak is None else weak
        if type(value) is ConcreteArray and state.staging is None and value.size < LARGE:
            return ConcreteArray(converted(value.buffer(), dtype), kept)
        if dtype.kind == "b" and value.dtype.kind == "c":  # the op drops imaginary parts
            value = ops.ne(value, ops.zeros_like(value))
        else:
            value = ops.convert(value, new_element_type=element_type(dtype))
    return value if weak is None else value.with_weak_type(weak)


def converted(value: Any, dtype: np.dtype[Any]) -> Any:
    """A NumPy array with elements of that type; what is not zero is true."""
    with np.errstate(all="ignore"):
        return value != 0 if dtype.kind == "b" else integers.convert(value, dtype)


def inexact(found: Type) -> Type:
    """The floating or complex type in which functions of real numbers compute for that type."""
    dtype, weak = found
    if element_type(dtype).is_inexact:
        return found
    if weak:
        return default_float(), True
    return np.dtype(np.float64 if dtype.itemsize == 8 else np.float32), False


def python_dtype(dtype: Any) -> np.dtype[Any]:
    """The dtype of an array that a user asks for by name; a 64-bit one without `enable_x64` as the option
    `explicit_x64_dtypes` says."""
    named = named_dtype(dtype)
    if named.itemsize < 8 or config.explicit_x64_dtypes == "allow" or config.enable_x64:
        return named
    narrow = default_dtype(named)
    if narrow is not named:
        text = f"Explicitly requested dtype {named.name} is not available without the option enable_x64"
        if config.explicit_x64_dtypes == "error":
            raise DTypeError(f"{text}; ask for {narrow.name}.")
        warn(f"{text}; the array has {narrow.name}.", UserWarning)
    return narrow


def named_dtype(dtype: Any) -> np.dtype[Any]:
    """The dtype that a user names: Python's int, float and complex are the default ones."""
    if dtype is int:
        return default_int()
    if dtype is float:
        return default_float()
    if dtype is complex:
        return default_complex()
    if type(dtype) is str:
        return element_type(dtype).dtype
    kind = getattr(dtype, "dtype", None)  # a scalar constructor, such as tinyxla.numpy.float32, has one
    if not isinstance(kind, np.dtype):
        if isinstance(dtype, KeyType):
            raise DTypeError(
                f"A dtype of numbers is wanted, but got {dtype.name}, that of random keys; random.wrap_key_data makes "
                "keys of numbers, and random.key_data numbers of keys."
            )
        return element_type(dtype).dtype
    if isinstance(dtype, (Array, np.ndarray)):
        raise DTypeError(f"A dtype is wanted, but got an array; give its dtype, {dtype.dtype.name}.")
    return element_type(kind).dtype


def promoted(
    what: str, *values: ArrayLike, to_inexact: bool = False, is_implicit: bool = True
) -> tuple[list[Array], Type]:
    """Arrays of one type, and that type with its weakness. The option `numpy_dtype_promotion` is about implicit
    promotion; a function that is defined for operands of different types does not ask it."""
    operands = [operand(x, what) for x in values]
    join = promote_types if is_implicit else join_types
    common = join(*(type_of(x) for x in operands))
    if to_inexact:
        common = inexact(common)
    return [cast(x, common[0]) for x in operands], common


def refuse_complex(what: str, *arrays: Array) -> None:
    """An error for complex arrays, in functions that need an order."""
    for x in arrays:
        if x.dtype.kind == "c":
            raise DTypeError(f"{what}: takes real numbers, but got {Shape.of(x)}; give the real or imaginary part.")


def preferred_type(dtype: Any) -> ElementType | None:
    """The element type that a user asks products to be summed in; None for that of the factors."""
    return None if dtype is None else element_type(python_dtype(dtype))


def summable(kind: ElementType | None, *factors: Array) -> list[Array]:
    """Factors whose products can be summed in that type, if one is wanted: integers are of it from the beginning if it
    has another sign and as many bits or more, which changes products by multiples of 2^bits alone."""

    def is_other(x: Array) -> bool:
        other = element_type(x.dtype)
        integers = other.name == "pred" or other.is_integer
        return integers and other.kind != wanted.kind and other.bits <= wanted.bits

    if kind is None or not kind.is_integer:
        return list(factors)
    wanted = kind
    return [cast(x, wanted.dtype) if is_other(x) else x for x in factors]


def array_of(value: ArrayLike, what: str) -> Array:
    """An array of an argument; for a list the advice to convert it."""
    if isinstance(value, Array):
        return value
    if config.special:
        check_host_values(what, (value,), only_arrays=True)
    return as_array(value, what)


def flat_array(a: ArrayLike, what: str) -> Array:
    """The elements in one dimension, also of nested lists."""
    x = listed(a, what)
    return movement.reshape_to(x, (x.size,))


def inexact_array(value: ArrayLike, what: str) -> Array:
    x = array_of(value, what)
    dtype, weak = inexact((x.dtype, x.weak_type))
    return cast(x, dtype, weak)


def default_inexact_array(value: ArrayLike, what: str) -> Array:
    """As `inexact_array`, for functions that combine integers with Python's floats: these are of the default type."""
    x = array_of(value, what)
    return x if element_type(x.dtype).is_inexact else cast(x, default_float(), False)


def constant(value: Any, dtype: Any) -> Array:
    """A scalar constant."""
    try:
        return movement.constant(literal=Literal(np.asarray(value).astype(dtype)))
    except TypeError:
        numbers_only(dtype)
        raise


def value_of(x: Any) -> Any:
    """The NumPy value of a concrete array."""
    return x.buffer()


def like(value: Any, x: Array) -> Array:
    """That value in the type and shape of x."""
    return movement.full(value, x.dtype, x.shape)


def named(function: Any, name: str, text: str) -> Any:
    """A function that is made by another one, with a name and a docstring of its own."""
    function.__name__ = function.__qualname__ = name
    function.__doc__ = text
    return function


def listed(value: Any, what: str) -> Array:
    """An array, also of a list."""
    return array_of(nested(what, value) if isinstance(value, (list, tuple)) else value, what)


def nested(what: str, value: Any) -> np.ndarray[Any, Any]:
    """A NumPy array of nested lists."""
    try:
        return np.asarray(value)
    except ValueError:
        raise ShapeError(f"{what}: rows of nested lists must be of one length, but got {shown(value)}.") from None


def vector_of(what: str, name: str, x: Array) -> Array:
    """The array, which has one dimension."""
    if x.ndim != 1:
        raise ShapeError(f"{what}: {name} must be a vector, but has the shape {x.shape}; reshape it.")
    return x


def along_axis(what: str, x: Array, axis: int | None) -> tuple[Any, int]:
    """An array and one of its axes; without one, the elements in a line."""
    if axis is None:
        return movement.reshape_to(x, (x.size,)), 0
    return x, canonical_axis(axis, x.ndim, what)


# --- shapes -----------------------------------------------------------------------------------------------------------


def broadcast_shapes(what: str, *shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that arrays of these shapes have in common: sizes align at the end, and 1 stretches."""
    rank = max(map(len, shapes), default=0)
    result: list[int] = []
    for k in range(rank):
        sizes = {s[len(s) - rank + k] for s in shapes if len(s) - rank + k >= 0}
        wide = sizes - {1}
        if len(wide) > 1:
            shown = " and ".join(str(s) for s in dict.fromkeys(shapes))
            raise ShapeError(
                f"{what}: Incompatible shapes for broadcasting: {shown}: sizes at dimension {k - rank} are "
                f"{' and '.join(map(str, sorted(wide)))}; they must be equal, or one of them 1."
            )
        result.append(wide.pop() if wide else 1)
    return tuple(result)


def broadcast_to_shape(what: str, x: Array, shape: tuple[int, ...]) -> Array:
    """x stretched to a shape."""
    if x.shape == shape:
        return x
    if broadcast_shapes(what, x.shape, shape) != shape:
        raise ShapeError(f"{what}: an array of shape {x.shape} does not broadcast to {shape}.")
    dimensions = tuple(range(len(shape) - x.ndim, len(shape)))
    return movement.broadcast_in_dim(x, shape, dimensions)


def of_rank(x: Array, rank: int) -> Array:
    """The array with leading dimensions of size 1, as many as give it that rank."""
    return movement.reshape_to(x, (1,) * (rank - x.ndim) + x.shape)


def broadcasted(what: str, arrays: Sequence[Array]) -> list[Array]:
    """Arrays stretched to their common shape."""
    first = arrays[0].shape
    if all(x.shape == first for x in arrays):
        return list(arrays)
    if config.numpy_rank_promotion != "allow" and len({x.ndim for x in arrays} - {0}) > 1:
        broadcast_shapes(what, *(x.shape for x in arrays))
        _rank_differs(what, [x.shape for x in arrays])
    return explicitly_broadcasted(what, arrays)


def is_as_written(arrays: Sequence[Array]) -> bool:
    """Whether an op on these is recorded by a trace that takes element-wise ops as the user writes them."""
    trace = state.staging
    return trace is not None and trace.as_written and innermost(arrays) is trace


def paired(what: str, arrays: Sequence[Array]) -> list[Array]:
    """The operands of an element-wise op, stretched to their common shape. Scalars stay what they are where the op is
    recorded by a trace that takes them so."""
    if not is_as_written(arrays):
        return broadcasted(what, arrays)
    wide = [x for x in arrays if x.ndim]
    stretched = iter(broadcasted(what, wide) if wide else ())
    return [next(stretched) if x.ndim else x for x in arrays]


def explicitly_broadcasted(what: str, arrays: Sequence[Array]) -> list[Array]:
    """Arrays stretched to their common shape, also where `numpy_rank_promotion` does not allow it unasked."""
    shape = broadcast_shapes(what, *(x.shape for x in arrays))
    return [broadcast_to_shape(what, x, shape) for x in arrays]


def _rank_differs(what: str, shapes: Sequence[tuple[int, ...]]) -> None:
    said = f"{what}: arrays of shapes {', '.join(map(str, shapes))} broadcast though they have different ranks"
    if config.numpy_rank_promotion == "raise":
        raise ShapeError(f"{said}, and numpy_rank_promotion is 'raise'; give them one rank with reshape.")
    warnings.warn(RankPromotionWarning(f"{said}."), stacklevel=5)


def canonical_axes(what: str, axis: Axis, rank: int) -> tuple[int, ...]:
    """Axes counted from the front, in ascending order; None means all."""
    if axis is None:
        return tuple(range(rank))
    if type(axis) is int and -rank <= axis < rank:  # as most are
        return (axis % rank,)
    axes = [canonical_axis(a, rank, what) for a in (axis if is_several(axis) else (axis,))]
    if len(set(axes)) != len(axes):
        raise ShapeError(f"{what}: the axes {axis} name a dimension twice.")
    return tuple(sorted(axes))


def is_several(x: Any) -> TypeGuard[Iterable[Any]]:
    """Whether an argument is several integers; an array without dimensions is one, and text none."""
    if isinstance(x, (str, bytes, dict)):
        return False
    is_sequence = hasattr(type(x), "__len__") and hasattr(type(x), "__getitem__")  # which Python iterates over, too
    return (isinstance(x, Iterable) or is_sequence) and getattr(x, "ndim", 1) != 0


def shown(value: Any) -> str:
    """An argument in an error: in one line, whatever it is."""
    return " ".join(reprlib.repr(value).split())


def _refuse(what: str, name: str, kind: str, value: Any) -> NoReturn:
    raise ArgumentError(f"{what}: {name} must be {kind}, but got {shown(value)} of type {type(value).__name__}.")


def integer_of(what: str, name: str, value: Any) -> int:
    """A static integer argument; a symbolic dimension is one, too."""
    given: Any = value
    try:
        return given if type(value) is SymbolicDimension else int(value.__index__())
    except TinyxlaError as error:
        error.add_prefix(f"{what}: {name}: ")
        raise
    except (AttributeError, TypeError):  # of an array of several
        raise ArgumentError(f"{what}: {name} is an integer, but got {shown(value)}.") from None


def integers_of(what: str, name: str, value: Any, count: int | None = None) -> tuple[int, ...]:
    """Static integers, of which there are `count`."""
    return tuple(integer_of(what, name, n) for n in several_of(what, name, value, count))


_MAX_ELEMENTS = 1 << 57  # no processor has longer addresses


def count_of(what: str, name: str, value: Any) -> int:
    """A static integer that is not negative."""
    count = integer_of(what, name, value)
    if count < 0:
        raise ShapeError(f"{what}: {name} must not be negative, but got {count}.")
    if count >= _MAX_ELEMENTS:
        raise SizeError(f"{what}: no memory can hold {count} elements; give a smaller {name}.")
    return count


def number_of(what: str, name: str, value: Any) -> float:
    """A static real number."""
    try:
        if not isinstance(value, str):
            return float(value)
    except TinyxlaError:
        raise
    except (TypeError, ValueError, OverflowError):
        pass
    _refuse(what, name, "a real number", value)


def flag_of(what: str, name: str, value: Any) -> bool:
    """A static truth value: a boolean, an integer, or None, which is false; no word, sequence or function, all of which
    Python takes for true."""
    if value is not None and not isinstance(value, (bool, int, np.bool_, np.integer)):
        kind = value.dtype.kind if isinstance(value, (Array, np.ndarray)) and value.ndim == 0 else ""
        if kind not in "biu" or not kind:
            _refuse(what, name, "True or False", value)
    return bool(value)


def choice_of(what: str, name: str, value: Any, choices: Iterable[str]) -> Any:
    """An argument that is one of several words."""
    if not isinstance(value, str) or value not in choices:
        known = ", ".join(map(repr, choices))
        raise ArgumentError(f"{what}: {name} must be one of {known}, but got {shown(value)}.")
    return value


def several_of(what: str, name: str, value: Any, count: int | None = None) -> list[Any]:
    """The elements of a sequence, of which there are `count`."""
    if not is_several(value):
        _refuse(what, name, "a sequence", value)
    found = list(value)
    if count is not None and len(found) != count:
        raise ArgumentError(f"{what}: {name} must have {count} elements, but got {shown(value)}.")
    return found


def refuse_out(what: str, out: Any) -> None:
    """An error if there is an array to write into."""
    if out is not None:
        raise ArgumentError(f"{what}: out must be None: arrays are immutable, so use the result instead.")


def refuse_options(what: str, out: Any, where: Any) -> None:
    """An error for the options of NumPy's ufuncs that arrays without memory of their own have no use for."""
    refuse_out(what, out)
    if where is not None:
        raise ArgumentError(
            f"{what}: where must be None, since it leaves elements without a value; use numpy.where on the result."
        )


def index_dtype(what: str, dtype: Any, count: int) -> np.dtype[Any]:
    """The integer type that a user asks indices of that many elements to have: the default one for None."""
    if dtype is None:
        return default_int()
    found = element_type(python_dtype(dtype))
    if not found.is_integer:
        raise DTypeError(f"{what}: indices have an integer type, but the dtype asked for is {found.dtype.name}.")
    if count - 1 > ml_dtypes.iinfo(found.dtype).max:
        raise NumberRangeError(f"{what}: {found.dtype.name} does not hold the indices of {count} elements.")
    return found.dtype


def function_of(what: str, name: str, value: Any) -> Callable[..., Any]:
    """An argument that is called."""
    if not callable(value):
        _refuse(what, name, "a function", value)
    return value


def check_memory(what: str, sizes: tuple[int, ...]) -> None:
    """An error if no memory can hold an array of these sizes, before it is worked on part by part."""
    if has_symbolic(sizes):
        return
    try:
        allocated(what, lambda: np.empty(sizes))
    except (MemoryError, ValueError):
        raise SizeError(f"{what}: no memory can hold the shape {sizes}; give it smaller sizes.") from None


def counted(what: str, length: int, start: int = 0) -> np.ndarray[Any, Any]:
    """So many integers from `start` on, if memory can hold them."""
    try:
        if length < _MAX_ELEMENTS:  # beyond, NumPy's count overflows
            try:
                return np.arange(start, start + length)
            except MemoryError:
                return after_shortage(what, lambda: np.arange(start, start + length))
    except (MemoryError, OverflowError, ValueError):
        pass
    raise SizeError(f"{what}: no memory can hold {length} elements; give it smaller sizes.")


def shape_of(what: str, shape: Any) -> tuple[int, ...]:
    """A shape argument: an integer, or several."""
    if not is_several(shape):
        shape = (shape,)
    sizes = tuple(integer_of(what, "a size", n) for n in shape)
    if any(n < 0 for n in sizes):
        raise ShapeError(f"{what}: the shape {sizes} has a negative size.")
    return sizes
