"""Functions that make arrays. Eagerly NumPy makes them; inside a compiled function they become operations, not data."""

from __future__ import annotations

import builtins
import math
import reprlib
from collections.abc import Sequence
from types import NoneType
from typing import Any, Literal, cast as cast_to, overload

import numpy as np

from tinyxla.api.eager_replay import replayed
from tinyxla.errors import ArgumentError, DTypeError, NumberRangeError, ShapeError
from tinyxla.numpy.arguments import (
    SCALARS,
    ArrayLike,
    array_of,
    broadcast_shapes,
    broadcast_to_shape,
    broadcasted,
    cast,
    choice_of,
    converted,
    counted,
    function_of,
    inexact,
    integer_of,
    operand,
    promoted,
    python_dtype,
    shape_of,
    type_of,
    value_of,
    with_device,
)
from tinyxla.numpy.elementwise import arithmetic as arith
from tinyxla.numpy.elementwise.transcendental import log10
from tinyxla.numpy.operations import movement, ops
from tinyxla.partitioning.array import layout_of
from tinyxla.partitioning.placement import placed
from tinyxla.shapes import KeyType, Shape, element_type
from tinyxla.shapes.shape import canonical_axis
from tinyxla.shapes.symbolic import has_symbolic, is_symbolic, length, max_dim, may_exceed
from tinyxla.tracing.array import Array, ConcreteArray
from tinyxla.tracing.config import config
from tinyxla.tracing.core import Tracer, on_current_mesh, state, varying_like
from tinyxla.tracing.float_zeros import is_float0
from tinyxla.tracing.meshes import Mesh, context, current_mesh
from tinyxla.tracing.promotion import (
    as_array,
    checked_scalar,
    copied,
    default_dtype,
    default_float,
    default_int,
    float0,
    promote_types,
    refuse_masked,
)
from tinyxla.tracing.shardings import NamedSharding
from tinyxla.tracing.transfers import check_constant, check_host_values
from tinyxla.tracing.views import read_only_view
from tinyxla.transforms.key_arrays import KeyArray, check_same_keys, filled, of_key_type
from tinyxla.util.tracebacks import boundary

# --- from data --------------------------------------------------------------------------------------------------------


@with_device
def array(object: Any, dtype: Any = None, copy: bool | None = True, order: str | None = "K", ndmin: int = 0) -> Array:
    """An array of numbers, arrays, or nested lists of them.

    Args:
        object: a number, an array of any library, or nested lists or tuples of numbers and arrays.
        dtype: the element type; if not given, that of the data, with 64-bit types made 32-bit unless `enable_x64`.
        copy: whether an array of this library becomes another one. They share memory, as arrays never change; but
            deleting one, by donating it say, leaves the other.
        order: accepted for NumPy's sake; it makes no difference.
        ndmin: axes of size 1 are put in front until there are that many.
        device: a device, or a sharding.
        out_sharding: the sharding of the result, with explicit mesh axes.

    Returns:
        An array.

    Raises:
        DTypeError: what holds something else than numbers.
        ShapeError: nested lists of unequal lengths.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.array([[1, 2], [3, 4]])
        Array([[1, 2],
               [3, 4]], dtype=int32)
    """
    found = _from_data(object, None) if dtype is None else _of_type(object, dtype)
    if ndmin:
        found = _led_by_ones(found, integer_of("array", "ndmin", ndmin))
    return found.copy() if found is object and copy else found


def _led_by_ones(x: Array, rank: int) -> Array:
    """With axes of size 1 in front, so that there are that many."""
    missing = min(rank, 65) - x.ndim  # no array has so many
    return movement.reshape_to(x, (1,) * missing + x.shape) if missing > 0 else x


@with_device
def asarray(a: Any, dtype: Any = None, order: str | None = None, *, copy: bool | None = None) -> Array:
    """An array of numbers, arrays, or nested lists of them; see `array`.

    Args:
        a: a number, an array of any library, or nested lists or tuples of numbers and arrays.
        dtype: the element type of the result; by default it follows from the other arguments.
        order: accepted for compatibility; it makes no difference.
        copy: whether an array of this library becomes another one.
        device: a device, or a sharding.
        out_sharding: the sharding of the result, with explicit mesh axes.

    Returns:
        An array.

    Raises:
        DTypeError: what is no array or number.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.asarray([1, 2, 3], dtype="float32")
        Array([1., 2., 3.], dtype=float32)
    """
    if isinstance(a, np.ndarray) and type(a) is not np.ndarray:
        refuse_masked(a, "asarray")
    found = _from_data(a, None) if dtype is None else _of_type(a, dtype)
    if context.programs is not None and found is not a and type(found) is ConcreteArray:
        return on_current_mesh(found)
    return found.copy() if copy and found is a else found


def _of_type(value: Any, dtype: Any) -> Array:
    """An array of anything that is one, of the type that a user asks for."""
    if isinstance(dtype, KeyType):
        return of_key_type("array", _from_data(value, None), dtype)
    return _from_data(value, python_dtype(dtype))


def _from_data(value: Any, dtype: np.dtype[Any] | None) -> Array:
    if is_symbolic(value):
        value = as_array(value)
    if isinstance(value, Array):
        return value if dtype is None else cast(value, dtype, False)
    if isinstance(value, (bool, int, float, complex)) and not isinstance(value, np.generic):
        if config.special:
            check_host_values("array", (value,))
        if dtype is None:
            return as_array(value)
        return ConcreteArray(_scalar(value, dtype))
    if isinstance(value, (np.ndarray, np.generic)):
        if value.dtype == object:
            raise DTypeError("array: a NumPy array of Python objects is no array of numbers; give it a number type.")
        if config.special:
            check_host_values("array", (value,))
        given = element_type(value.dtype).dtype
        target = default_dtype(given) if dtype is None else dtype
        held = copied(value, value.dtype)
        if state.staging is not None:  # its value is known now: a constant, which no conversion waits for
            return ConcreteArray(held if held.dtype == target else converted(held, target))
        return cast(ConcreteArray(held), target, False)
    if isinstance(value, (list, tuple)):
        return _from_list(value, dtype)
    if isinstance(value, (str, bytes)) or value is None:
        raise DTypeError(f"array: {value!r} is no number, and arrays hold only numbers.")
    if isinstance(value, range) or _is_memory(value):
        return _from_data(np.asarray(value), dtype)
    found = as_array(value, "array")
    return found if dtype is None else cast(found, dtype, False)


def _is_memory(value: Any) -> bool:
    """Whether an object is no array, but shows its memory: by the buffer protocol, or as Pillow's images by NumPy's."""
    if hasattr(value, "__jax_array__") or hasattr(value, "__array__"):
        return False
    if hasattr(value, "__array_interface__"):
        return True
    try:
        memoryview(value)
    except TypeError:
        return False
    return True


def _with_memory(value: Any) -> Any:
    """An element of a list, or the NumPy array of the memory that it shows."""
    if isinstance(value, (*SCALARS, Array, np.ndarray, np.generic, str, bytes)) or not _is_memory(value):
        return value
    return np.asarray(value)


def _scalar(value: Any, dtype: np.dtype[Any], may_wrap: bool = False) -> Any:
    if element_type(dtype).is_integer and isinstance(value, float):
        return converted(np.asarray(value, np.float64), dtype)
    return checked_scalar(value, dtype, may_wrap)


def _leaves(value: Any, found: list[Any]) -> None:
    for element in value:
        if isinstance(element, (list, tuple)):
            _leaves(element, found)
        elif is_symbolic(element):
            found.append(as_array(element))
        else:
            found.append(element)


def _is_of_keys(dtype: Any) -> bool:
    return isinstance(dtype, KeyType)


def _from_list(value: Sequence[Any], dtype: Any) -> Array:
    leaves: list[Any] = []
    _leaves(value, leaves)
    if dtype is None:
        kinds = [type_of(operand(_with_memory(x), "array")) for x in leaves] or [(default_float(), False)]
        dtype = promote_types(*kinds)[0]
    if _is_of_keys(dtype):
        check_same_keys("array", *leaves)
    if builtins.all(not isinstance(x, Array) or isinstance(x, ConcreteArray) for x in leaves) and (
        state.staging is None or not builtins.any(isinstance(x, Array) for x in leaves)
    ):
        return on_current_mesh(ConcreteArray(_nested(value, dtype)))
    parts = [movement.reshape_to(x, (1, *x.shape)) for x in (_from_data(element, dtype) for element in value)]
    for part in parts:
        if part.shape != parts[0].shape:
            raise ShapeError(f"array: rows differ in shape, {parts[0].shape[1:]} and {part.shape[1:]}.")
    return movement.concatenate(*parts, dimension=0)


def _nested(value: Any, dtype: np.dtype[Any]) -> Any:
    """A NumPy array of nested lists; elements are converted one by one, so that overflow is found."""
    if not isinstance(value, (list, tuple)):
        return _element(value, dtype)
    if value and builtins.all(type(x) in (bool, int, float) for x in value) and element_type(dtype).kind == "float":
        return converted(np.array(value, np.float64), dtype)
    rows = [_nested(x, dtype) for x in value]
    for row in rows:
        if row.shape != rows[0].shape:
            raise ShapeError(
                f"array: nested lists have unequal lengths, {rows[0].shape} and {row.shape}; arrays are rectangular."
            )
    return np.stack(rows).astype(dtype, copy=False) if rows else np.zeros((0,), dtype)


def _element(value: Any, dtype: np.dtype[Any]) -> Any:
    """An element of nested lists as a NumPy array. It is known now, so it is converted now, also during tracing."""
    if isinstance(value, (bool, int, float, complex)) and not isinstance(value, np.generic):
        return np.asarray(_scalar(value, dtype))
    found = _from_data(value, None)
    return converted(value_of(found), dtype)


@with_device
def from_dlpack(x: Any, /, *, copy: bool | None = None) -> Array:
    """An array of anything that speaks DLPack on the CPU.

    Args:
        copy: by default the array is a copy, so that it stays what it is when its exporter writes to its own. With
            False the memory is shared, and nobody may write to it from then on.
        x: an object with `__dlpack__`.
        device: a device, or a sharding.
        out_sharding: the sharding of the result, with explicit mesh axes.

    Returns:
        An array.

    Raises:
        ArgumentError: not an array that exports its elements.

    Example:
        >>> import numpy as np
        >>> import tinyxla.numpy as jnp
        >>> jnp.from_dlpack(np.arange(3, dtype=np.float32))
        Array([0., 1., 2.], dtype=float32)
    """
    if isinstance(x, ConcreteArray):
        return x.copy()
    if not hasattr(x, "__dlpack__"):
        raise ArgumentError(f"from_dlpack: takes an array with __dlpack__, but got a {type(x).__name__}; use asarray.")
    try:
        value = np.from_dlpack(x)
    except (BufferError, RuntimeError, TypeError) as error:
        raise ArgumentError(f"from_dlpack: {reprlib.repr(x)} cannot be exported ({error}); use asarray.") from None
    return ConcreteArray(read_only_view(value)) if copy is False else array(value, value.dtype)


@boundary
def frombuffer(buffer: Any, dtype: Any = float, count: int = -1, offset: int = 0) -> Array:
    """An array of the bytes of a buffer.

    Args:
        buffer: an object with the buffer protocol.
        dtype: the element type of the result; by default it follows from the other arguments.
        count: the number of elements; -1 for all.
        offset: the bytes that are skipped.

    Returns:
        A vector.

    Raises:
        ShapeError: a buffer that is too short, or whose size is no multiple of that of an element.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.frombuffer(b"\\x01\\x02", dtype="uint8")
        Array([1, 2], dtype=uint8)
    """
    kind, number, start = python_dtype(dtype), integer_of("frombuffer", "count", count), offset
    try:
        return ConcreteArray(np.frombuffer(buffer, kind, number, integer_of("frombuffer", "offset", start)).copy())
    except (TypeError, BufferError, OverflowError):
        raise ArgumentError(f"frombuffer: takes bytes or another buffer, but got a {type(buffer).__name__}.") from None
    except ValueError as error:
        raise ShapeError(f"frombuffer: {number} elements {kind} from byte {start} on do not fit: {error}.") from None


@boundary
def fromfunction(function: Any, shape: Any, *, dtype: Any = float, **options: Any) -> Array:
    """`function` of the index arrays of a shape.

    Args:
        function: a function of an index array for each axis.
        shape: the sizes of the result.
        dtype: the element type of the result; by default it follows from the other arguments.
        **options: keyword arguments of the function.

    Returns:
        The result of the function.

    Raises:
        ShapeError: a negative size.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.fromfunction(lambda i, j: 10 * i + j, (2, 2))
        Array([[ 0.,  1.],
               [10., 11.]], dtype=float32)
    """
    sizes = shape_of("fromfunction", shape)
    grids = [
        movement.iota(shape=Shape(element_type(python_dtype(dtype)), sizes), iota_dimension=d)
        for d in range(len(sizes))
    ]
    return function_of("fromfunction", "function", function)(*grids, **options)


def copy(a: ArrayLike, order: str | None = None) -> Array:
    """An array of the same elements; deleting one of the two, by donating it say, leaves the other.

    Args:
        a: an array.
        order: accepted for compatibility; it makes no difference.

    Returns:
        An array.

    Raises:
        DTypeError: what holds something else than numbers.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.copy(jnp.array([1, 2]))
        Array([1, 2], dtype=int32)
    """
    if order is not None:
        choice_of("copy", "order", order, ("C", "F", "A", "K"))
    return array(a)


# --- one value --------------------------------------------------------------------------------------------------------


@with_device
@replayed
def full(shape: Any, fill_value: ArrayLike, dtype: Any = None) -> Array:
    """An array with one value everywhere (or a value that broadcasts to the shape).

    Args:
        shape: the sizes of the result.
        fill_value: a number, or an array that broadcasts to the shape.
        dtype: the element type of the result; by default it follows from the other arguments.
        device: a device, or a sharding.
        out_sharding: the sharding of the result, with explicit mesh axes.

    Returns:
        An array of the element type of the value, unless a `dtype` is given.

    Raises:
        ShapeError: a negative size, or a value that does not broadcast to the shape.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.full((2, 2), 7)
        Array([[7, 7],
               [7, 7]], dtype=int32, weak_type=True)
    """
    sizes = shape_of("full", shape)
    if isinstance(dtype, KeyType) or isinstance(fill_value, KeyArray):
        return _full_of_keys(fill_value, dtype, sizes)
    if isinstance(dtype, np.dtype) and dtype == float0:
        return cast_to(Array, np.zeros(sizes, float0))  # NumPy's, as what has no derivative gets from `grad`
    return _full(sizes, fill_value, None if dtype is None else python_dtype(dtype))


def _full(sizes: tuple[int, ...], fill_value: Any, dtype: np.dtype[Any] | None) -> Array:
    """The same for numbers; without a type in that of the value."""
    value = operand(fill_value, "full") if not isinstance(fill_value, (list, tuple)) else array(fill_value)
    found, weak = type_of(value)
    if dtype is not None:
        found, weak = dtype, False
    if isinstance(value, Array):
        return broadcast_to_shape("full", cast(value, found, weak), sizes)
    return movement.full(_scalar(value, found, may_wrap=True), found, sizes).with_weak_type(weak)


def _full_of_keys(fill_value: Any, dtype: Any, sizes: tuple[int, ...]) -> Any:
    """One key everywhere: the one that is given, or that of which all words are a number."""
    if not isinstance(fill_value, KeyArray):
        return filled(dtype, integer_of("full", "the words of a key", fill_value), sizes)
    if dtype not in (None, fill_value.dtype):
        raise DTypeError(f"full: got keys {fill_value.dtype.name}, which cannot be converted to {dtype}.")
    return broadcast_to_shape("full", fill_value, sizes)


@with_device
@replayed
def zeros(shape: Any, dtype: Any = None) -> Array:
    """An array of zeros, of the default floating-point type unless a `dtype` is given.

    Args:
        shape: the sizes of the result.
        dtype: the element type of the result; by default it follows from the other arguments.
        device: a device, or a sharding.
        out_sharding: the sharding of the result, with explicit mesh axes.

    Returns:
        An array.

    Raises:
        ShapeError: a negative size.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.zeros((2, 2))
        Array([[0., 0.],
               [0., 0.]], dtype=float32)
    """
    return _constant("zeros", shape, 0, dtype)


def _constant(what: str, shape: Any, value: int, dtype: Any) -> Array:
    if isinstance(dtype, (int, np.integer)):
        sizes = f"{shape}, {dtype}"
        raise DTypeError(
            f"{what}: {dtype} is not an element type; for an array of shape ({sizes}) write {what}(({sizes}))."
        )
    if config.special:
        check_constant(what, value)
    return full(shape_of(what, shape), value, default_float() if dtype is None else dtype)


@with_device
@replayed
def ones(shape: Any, dtype: Any = None) -> Array:
    """An array of ones, of the default floating-point type unless a `dtype` is given.

    Args:
        shape: the sizes of the result.
        dtype: the element type of the result; by default it follows from the other arguments.
        device: a device, or a sharding.
        out_sharding: the sharding of the result, with explicit mesh axes.

    Returns:
        An array.

    Raises:
        ShapeError: a negative size.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.ones((2, 2))
        Array([[1., 1.],
               [1., 1.]], dtype=float32)
    """
    return _constant("ones", shape, 1, dtype)


@with_device
def empty(shape: Any, dtype: Any = None) -> Array:
    """Zeros: there is no array with undefined elements.

    Args:
        shape: the sizes of the result.
        dtype: the element type of the result; by default it follows from the other arguments.
        device: a device, or a sharding.
        out_sharding: the sharding of the result, with explicit mesh axes.

    Returns:
        An array of zeros.

    Raises:
        ShapeError: a negative size.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.empty((2, 3)).shape
        (2, 3)
    """
    return _constant("empty", shape, 0, dtype)


@with_device
def full_like(a: ArrayLike, fill_value: ArrayLike, dtype: Any = None, shape: Any = None) -> Array:
    """One value everywhere, in the shape and type of another array.

    Args:
        a: an array.
        fill_value: a number, or an array that broadcasts to the shape.
        dtype: the element type of the result; by default it follows from the other arguments.
        shape: the sizes of the result.
        device: a device, or a sharding.
        out_sharding: the sharding of the result, with explicit mesh axes.

    Returns:
        An array.

    Raises:
        DTypeError: what is no array or number.
        ShapeError: shapes that do not broadcast.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.full_like(jnp.array([1.0, 2.0]), 7)
        Array([7., 7.], dtype=float32)
    """
    if not (hasattr(a, "dtype") and hasattr(a, "shape")) and hasattr(a, "__jax_array__"):
        a = operand(a, "full_like")
    found, weak = _template(a)
    sizes = np.shape(a) if shape is None and not hasattr(a, "shape") else a.shape if shape is None else shape
    if dtype is None and found.kind in "iufc" and found.itemsize >= 8 and not isinstance(fill_value, KeyArray):
        made = _full(shape_of("full_like", sizes), fill_value, found)  # no type is named, which could be narrowed
    else:
        made = full(sizes, fill_value, found if dtype is None else dtype)
    made = varying_like(made, a)
    if shape is None and (layout_of(a) is not None or _is_over_current_mesh(a)):
        made = placed("full_like", made, a.sharding)
    return made if is_float0(made) else made.with_weak_type(weak and dtype is None)


def _is_over_current_mesh(a: Any) -> bool:
    """Whether it is a description of an array over an abstract mesh, of which the current one has the devices."""
    layout = None if isinstance(a, Array) else getattr(a, "sharding", None)
    current = current_mesh()
    return (
        isinstance(layout, NamedSharding)
        and isinstance(current, Mesh)
        and layout.mesh.shape_tuple == current.shape_tuple
        and not current.empty
    )


def _template(a: Any) -> tuple[np.dtype[Any], bool]:
    """The type of an array, or of anything with shape and dtype."""
    if isinstance(getattr(a, "dtype", None), KeyType):
        return a.dtype, False
    if not isinstance(a, Array) and hasattr(a, "dtype") and hasattr(a, "shape") and not isinstance(a, np.generic):
        return default_dtype(np.dtype(a.dtype)), bool(getattr(a, "weak_type", False))
    return type_of(operand(a, "full_like"))


@with_device
def zeros_like(a: ArrayLike, dtype: Any = None, shape: Any = None) -> Array:
    """Zeros in the shape and type of another array.

    Args:
        a: an array.
        dtype: the element type of the result; by default it follows from the other arguments.
        shape: the sizes of the result.
        device: a device, or a sharding.
        out_sharding: the sharding of the result, with explicit mesh axes.

    Returns:
        An array.

    Raises:
        DTypeError: what is no array or number.
        DTypeError: what is no element type.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.zeros_like(jnp.array([5, 6]))
        Array([0, 0], dtype=int32)
    """
    return full_like(a, 0, dtype, shape)


@with_device
def ones_like(a: ArrayLike, dtype: Any = None, shape: Any = None) -> Array:
    """Ones in the shape and type of another array.

    Args:
        a: an array.
        dtype: the element type of the result; by default it follows from the other arguments.
        shape: the sizes of the result.
        device: a device, or a sharding.
        out_sharding: the sharding of the result, with explicit mesh axes.

    Returns:
        An array.

    Raises:
        DTypeError: what is no array or number.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.ones_like(jnp.array([5, 6]))
        Array([1, 1], dtype=int32)
    """
    return full_like(a, 1, dtype, shape)


@with_device
def empty_like(prototype: ArrayLike, dtype: Any = None, shape: Any = None) -> Array:
    """Zeros in the shape and type of another array.

    Args:
        prototype: an array.
        dtype: the element type of the result; by default it follows from the other arguments.
        shape: the sizes of the result.
        device: a device, or a sharding.
        out_sharding: the sharding of the result, with explicit mesh axes.

    Returns:
        An array of zeros.

    Raises:
        ShapeError: a negative size.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.empty_like(jnp.ones((2, 3))).shape
        (2, 3)
    """
    return full_like(prototype, 0, dtype, shape)


# --- sequences --------------------------------------------------------------------------------------------------------


def _iota(length: int, dtype: np.dtype[Any]) -> Any:
    return movement.iota(shape=Shape(element_type(dtype), (length,)), iota_dimension=0)


def _static(what: str, name: str, value: Any) -> Any:
    """The number of an argument that determines a shape: one of Python's, or of the floating point type that it has."""
    if type(value) in (int, float, NoneType) or is_symbolic(value):
        return value
    if getattr(value, "ndim", 0):
        raise ArgumentError(f"{what}: each argument is one number, but got an array of shape {value.shape}.")
    if isinstance(value, Array):
        value = value.primal(f"{what}, whose shape depends on its argument {name!r},").buffer()[()]
    return value.item() if isinstance(value, (np.generic, np.ndarray)) and value.dtype.kind != "f" else value


@np.errstate(all="ignore")
def _steps_between(first: Any, last: Any, by: Any) -> Any:
    return (last - first) / by


def _kind_of_steps(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type in which multiples of a step are computed: 32 bits for floats of fewer."""
    kind = element_type(dtype)
    return np.dtype(np.float32) if kind.kind == "float" and kind.bits < 32 else dtype


def _symbolic_range(first: Any, last: Any, by: Any, dtype: np.dtype[Any]) -> Array:
    if is_symbolic(by) or not builtins.all(isinstance(x, int) for x in (first, last, by)) or by == 0:
        raise ArgumentError(
            f"arange: a range to a symbolic dimension counts in integer steps, but got {first}, {last} and {by}."
        )
    counted = _iota(length(first, last, by), dtype)
    return arith.add(arith.multiply(counted, by), first).astype(dtype) if by != 1 or first != 0 else counted


@with_device
def arange(start: ArrayLike, stop: ArrayLike | None = None, step: ArrayLike | None = None, dtype: Any = None) -> Array:
    """The numbers start, start + step, ... below stop; `arange(stop)` counts from 0.

    Args:
        start: the first number.
        stop: the end, which is not included.
        step: the distance of numbers.
        dtype: the element type of the result; by default it follows from the other arguments.
        device: a device, or a sharding.
        out_sharding: the sharding of the result, with explicit mesh axes.

    Returns:
        A vector, of integers if all arguments are, unless a `dtype` is given; it may be empty.

    Raises:
        ArgumentError: the step is 0.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.arange(1, 10, 3)
        Array([1, 4, 7], dtype=int32)
    """
    if start is None:
        raise ArgumentError("arange: start must be a number, but got None; arange(n) counts from 0.")
    given = [x for x in (start, stop, step) if x is not None]
    kinds = [type_of(x if isinstance(x, SCALARS) else operand(x, "arange")) for x in given]
    found = promote_types(*kinds)[0] if dtype is None else python_dtype(dtype)
    if stop is None:
        start, stop = 0, start
    first, last, by = (_static("arange", *x) for x in (("start", start), ("stop", stop), ("step", step)))
    by = 1 if by is None else by
    if has_symbolic((first, last, by)):
        return _symbolic_range(first, last, by, found)
    if any(isinstance(x, complex) for x in (first, last, by)):
        raise DTypeError(
            "Passing complex start/stop/step to jnp.arange is no longer supported: they must be real; take the real "
            "parts."
        )
    if by == 0:
        raise ArgumentError("arange: the step is 0; it must be positive or negative.")
    are_integers = type(first) is type(last) is type(by) is int
    count = (last - first) / by if are_integers else _steps_between(first, last, by)
    if not math.isfinite(count):
        raise ArgumentError(f"arange: start, stop and step must be finite, but got {first}, {last} and {by}.")
    if max(abs(first), abs(by)) >= 1 << 63 and isinstance(first + by, int):
        raise NumberRangeError(f"arange: the integers {first} and {by} do not both fit 64 bits.")
    length = max(0, math.ceil(count))
    kind = found if step is None else _kind_of_steps(found)
    if isinstance(start, Tracer) or isinstance(step, Tracer):  # the numbers have a derivative; their count has none
        origin, distance = (cast(as_array(x), kind) for x in (start, 1 if step is None else step))
        return cast(arith.add(origin, arith.multiply(_iota(length, kind), distance)), found)
    is_traced_range = by == 1 and state.staging is not None
    if kind.kind == "b" or (are_integers and kind.kind in "iu" and not is_traced_range):
        return on_current_mesh(ConcreteArray(np.asarray(counted("arange", length) * by + first).astype(found)))
    with np.errstate(all="ignore"):
        origin, distance = (np.asarray(x).astype(kind) for x in (first, by))
        if distance == 1 and state.staging is not None and (kind.kind in "iu" or origin == 0):
            return cast(arith.add(_iota(length, kind), origin) if origin else _iota(length, kind), found)
        numbers = origin + distance * counted("arange", length).astype(kind)
    return on_current_mesh(ConcreteArray(np.asarray(numbers).astype(found)))


@overload
def linspace(
    start: ArrayLike,
    stop: ArrayLike,
    num: int = 50,
    endpoint: bool = True,
    retstep: Literal[False] = False,
    dtype: Any = None,
    axis: int = 0,
) -> Array: ...
@overload
def linspace(
    start: ArrayLike,
    stop: ArrayLike,
    num: int = 50,
    endpoint: bool = True,
    *,
    retstep: Literal[True],
    dtype: Any = None,
    axis: int = 0,
) -> tuple[Array, Array]: ...
@with_device
@replayed
def linspace(
    start: ArrayLike,
    stop: ArrayLike,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: Any = None,
    axis: int = 0,
) -> Any:
    """`num` evenly spaced numbers from start to stop, along a new axis; with `retstep` also their distance.

    Args:
        start: the first number.
        stop: the end.
        num: the number of numbers.
        endpoint: whether `stop` is the last number; else the one after it.
        retstep: whether to return the distance, too.
        dtype: the element type of the result; by default it follows from the other arguments.
        axis: the position of the new axis, if `start` and `stop` are arrays.
        device: a device, or a sharding.
        out_sharding: the sharding of the result, with explicit mesh axes.

    Returns:
        An array in floating point unless there is a `dtype`, with an axis of size `num` beside those of the ends.

    Raises:
        ShapeError: a negative `num`.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.linspace(0.0, 1.0, 5)
        Array([0.  , 0.25, 0.5 , 0.75, 1.  ], dtype=float32)
    """
    count = integer_of("linspace", "num", num)
    if count < 0:
        raise ShapeError(f"linspace: num is not negative, but got {count}.")
    first, last, found, wanted = _ends("linspace", start, stop, dtype)
    shape = broadcast_shapes("linspace", first.shape, last.shape)
    at = canonical_axis(axis, 1 + len(shape), "linspace")
    first, last = (broadcast_to_shape("linspace", x, shape) for x in (first, last))
    steps = count - 1 if endpoint else count
    distance = ops.div(ops.sub(last, first), movement.full(max_dim(steps, 1), found, shape))
    if not may_exceed(steps, 0):
        distance = movement.full(np.nan, found, ())
    whole = (count, *shape)

    def along(x: Any) -> Any:
        return movement.broadcast(x, sizes=whole, dimensions=tuple(range(1, len(whole))))

    # A convex combination, so that neither end is missed by rounding, with a multiple of the last one's share: integers
    # from 0 stay such.
    number = movement.broadcast(_iota(count, found), sizes=whole, dimensions=(0,))
    part = ops.div(movement.full(1, found, shape), movement.full(max_dim(steps, 1), found, shape))
    rest = ops.sub(movement.full(1, found, whole), ops.mul(number, along(part)))
    points = along(first)
    if may_exceed(count, 1):
        points = ops.add(ops.mul(points, rest), ops.mul(number, along(ops.mul(last, part))))
    if endpoint and may_exceed(count, 1):
        at_end = ops.eq(number, movement.full(count - 1, found, whole))
        points = ops.select(at_end, along(last), points)
    if element_type(wanted).is_integer:
        points = ops.floor(points)
    result = cast(movement.move_axis(points, 0, at), wanted, False)
    return (result, distance) if retstep else result


def _ends(what: str, start: ArrayLike, stop: ArrayLike, dtype: Any) -> tuple[Any, Any, np.dtype[Any], np.dtype[Any]]:
    """Both ends in the type in which the numbers between them are computed, that type, and that of the result."""
    (first, last), (found, _) = promoted(what, start, stop, to_inexact=True)
    wanted = found if dtype is None else python_dtype(dtype)
    if dtype is not None:
        found = inexact((wanted, False))[0]
        first, last = cast(first, found, False), cast(last, found, False)
    return first, last, found, wanted


@replayed
def logspace(
    start: ArrayLike,
    stop: ArrayLike,
    num: int = 50,
    endpoint: bool = True,
    base: ArrayLike = 10.0,
    dtype: Any = None,
    axis: int = 0,
) -> Array:
    """base to the powers of `num` evenly spaced exponents from start to stop.

    Args:
        start: the first number.
        stop: the last exponent.
        num: the number of numbers.
        endpoint: whether `stop` is the last number; else the one after it.
        base: the base of the powers.
        dtype: the element type of the result; by default it follows from the other arguments.
        axis: the position of the new axis, if `start` and `stop` are arrays.

    Returns:
        An array with an axis of size `num` beside those of the ends.

    Raises:
        ShapeError: a negative number of points.
        ArgumentError: a number of points that is no integer.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.logspace(0.0, 2.0, 3)
        Array([  1.,  10., 100.], dtype=float32)
    """
    first, last, _, wanted = _ends("logspace", start, stop, dtype)
    return cast(arith.power(base, linspace(first, last, num, endpoint, axis=axis)), wanted, False)


@replayed
def geomspace(
    start: ArrayLike, stop: ArrayLike, num: int = 50, endpoint: bool = True, dtype: Any = None, axis: int = 0
) -> Array:
    """`num` numbers from start to stop of which each is the same multiple of the one before.

    Args:
        start, stop: the first and the last number.
        num: the number of numbers.
        endpoint: whether `stop` is the last number; else the one after it.
        dtype: the element type of the result; by default it follows from the other arguments.
        axis: the position of the new axis, if `start` and `stop` are arrays.

    Returns:
        An array with an axis of size `num` beside those of the ends.

    Raises:
        ShapeError: a negative number of points.
        ArgumentError: a number of points that is no integer.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.geomspace(1.0, 1000.0, 4)
        Array([   1.,   10.,  100., 1000.], dtype=float32)
    """
    first, last, found, wanted = _ends("geomspace", start, stop, dtype)
    first, last = broadcasted("geomspace", (first, last))
    sign = arith.sign(first)
    back = arith.conjugate(sign)  # which divides by the sign, also a complex one
    begin, end = (log10(arith.multiply(x, back)) for x in (first, last))
    numbers = logspace(begin, end, num, endpoint, dtype=found, axis=axis)
    at = canonical_axis(axis, numbers.ndim, "geomspace")
    sign = movement.reshape_to(sign, (*sign.shape[:at], 1, *sign.shape[at:]))
    return cast(arith.multiply(numbers, sign), wanted, False)


@boundary
def meshgrid(*xi: ArrayLike, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> list[Array]:
    """The coordinate arrays of a grid, from the coordinates along each axis.

    Args:
        xi: vectors.
        copy: has no effect: arrays are immutable.
        sparse: whether each array has size 1 along the axes of the others.
        indexing: "xy", where the first vector runs along axis 1, or "ij", where it runs along axis 0.

    Returns:
        A list of arrays, one for each vector.

    Raises:
        ShapeError: what are no vectors.
        ArgumentError: another `indexing`.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.meshgrid(jnp.array([1, 2]), jnp.array([10, 20]))[0]
        Array([[1, 2],
               [1, 2]], dtype=int32)
    """
    choice_of("meshgrid", "indexing", indexing, ("xy", "ij"))
    arrays = [array_of(x, "meshgrid") for x in xi]
    arrays = [movement.reshape_to(x, (1,)) if x.ndim == 0 else x for x in arrays]
    for x in arrays:
        if x.ndim != 1:
            raise ShapeError(f"meshgrid: takes arrays of one dimension, but got shape {x.shape}.")
    rank = len(arrays)
    places = list(range(rank))
    if indexing == "xy" and rank >= 2:
        places[0], places[1] = 1, 0
    sizes = [0] * rank
    for x, place in zip(arrays, places, strict=True):
        sizes[place] = x.shape[0]
    grids: list[Any] = []
    for x, place in zip(arrays, places, strict=True):
        if sparse:
            grids.append(movement.reshape_to(x, tuple(x.shape[0] if d == place else 1 for d in range(rank))))
        else:
            grids.append(movement.broadcast(x, sizes=tuple(sizes), dimensions=(place,)))
    return grids


@overload
def indices(dimensions: Any, dtype: Any = None, sparse: Literal[False] = False) -> Array: ...
@overload
def indices(dimensions: Any, dtype: Any = None, *, sparse: Literal[True]) -> tuple[Array, ...]: ...
@replayed
def indices(dimensions: Any, dtype: Any = None, sparse: bool = False) -> Any:
    """The index arrays of a shape, stacked (or, if `sparse`, each along its own axis).

    Args:
        dimensions: the sizes of the grid.
        dtype: the element type of the result; by default it follows from the other arguments.
        sparse: whether each array has size 1 along the axes of the others.

    Returns:
        An array with a new first axis, or a tuple of arrays.

    Raises:
        ShapeError: a negative size.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.indices((2, 2))[0]
        Array([[0, 0],
               [1, 1]], dtype=int32)
    """
    sizes = shape_of("indices", dimensions)
    found = default_int() if dtype is None else python_dtype(dtype)
    if sparse:
        return tuple(
            movement.reshape_to(_iota(n, found), tuple(n if d == k else 1 for k in range(len(sizes))))
            for d, n in enumerate(sizes)
        )
    if not sizes:
        return zeros((0,), found)
    grids = [
        movement.iota(shape=Shape(element_type(found), (1, *sizes)), iota_dimension=d + 1) for d in range(len(sizes))
    ]
    return movement.concatenate(*grids, dimension=0)
