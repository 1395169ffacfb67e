"""Arrays: the type users see, and the concrete one that holds a NumPy buffer.

`Array` has all operators and methods. They are those of the NumPy-like API and live there; that module tells this one
of itself when it is imported (`set_namespace`), since it is built on arrays.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np

from tinyxla.errors import (
    ArgumentError,
    AttributeValueError,
    ConcretizationError,
    DeletedError,
    OutOfBoundsError,
    ShapeError,
    TracerArrayConversionError,
    TracerBoolConversionError,
    TracerError,
    TracerIntegerConversionError,
)
from tinyxla.runtime.allocation import allocated
from tinyxla.tracing.config import config
from tinyxla.tracing.device import Device, check_device
from tinyxla.tracing.shardings import Shard, Sharding, default_sharding
from tinyxla.tracing.updates import IndexedUpdates
from tinyxla.tracing.views import dlpack_capsule, read_only_view
from tinyxla.util.docstrings import example_of
from tinyxla.util.tracebacks import filter_error

_Result = TypeVar("_Result")
_namespace: Any = None
_operators: dict[str, Callable[..., Any]] = {}


def set_namespace(module: Any) -> None:
    """Say where the functions are that methods and operators are made of."""
    global _namespace
    _namespace = module
    for name in _OPERATORS:
        function = getattr(module, name)
        _operators[name] = getattr(function, "__wrapped__", function)


def namespace() -> Any:
    """The module of the operators' functions."""
    return _namespace


_OPERATORS: list[str] = []

Operand: TypeAlias = "Array | np.ndarray | np.bool_ | np.number | bool | int | float | complex"
_PairOperator: TypeAlias = "Callable[[Array, Operand], tuple[Array, Array]]"


def _operator(name: str) -> tuple[Callable[[Array, Operand], Array], Callable[[Array, Operand], Array]]:
    """The operator that a function is, and the same with its operands exchanged."""
    _OPERATORS.append(name)

    def operator(self: Any, other: Any) -> Any:
        try:
            return _operators[name](self, other) if _is_operand(other) else NotImplemented
        except Exception as error:
            filter_error(error)
            raise

    def reflected(self: Any, other: Any) -> Any:
        try:
            return _operators[name](other, self) if _is_operand(other) else NotImplemented
        except Exception as error:
            filter_error(error)
            raise

    return operator, reflected


_SECTIONS = """Args:
    axis: an axis, or several where the function takes several; None for all elements.
    **options: those of `numpy.{0}`, by name.

Returns:
    An array, as `numpy.{0}` gives it.

Raises:
    AxisError: an axis that the array does not have.
    DTypeError: elements or a `dtype` that the function does not take.
    ShapeError: no elements, where the function has no value for none.

"""


def _reduction(name: str, text: str, example: str, shown: str) -> Callable[..., Array]:
    """The method that a function of an array, an axis and further options is."""

    def method(self: Any, axis: Any = None, **options: Any) -> Any:
        try:
            return getattr(_namespace, name)(self, axis, **options)
        except Exception as error:
            filter_error(error)
            raise

    method.__name__, method.__qualname__ = name, f"Array.{name}"
    lines = [text, "", *_SECTIONS.format(name).splitlines(), *example_of(example, shown, "import tinyxla.numpy as jnp")]
    method.__doc__ = "\n".join(lines)
    return method


_API_VERSIONS = (
    "2021.12",
    "2022.12",
    "2023.12",
    "2024.12",
)  # of the Python array API standard, each a part of the next


class Array:
    """An immutable n-dimensional array: concrete, or a tracer that stands for one inside a transformed function.

    Arithmetic promotes types and broadcasts as `tinyxla.numpy` does; indexing gives arrays; `x.at[index]` updates
    copies.

    >>> import tinyxla.numpy as jnp
    >>> x = jnp.array([[1, 2, 3], [4, 5, 6]])
    >>> x.shape, x.dtype, x.ndim, x.size
    ((2, 3), dtype('int32'), 2, 6)
    >>> x[:, 1] + 0.5
    Array([2.5, 5.5], dtype=float32, weak_type=True)
    >>> x.at[0, 0].set(9)  # x itself does not change
    Array([[9, 2, 3],
           [4, 5, 6]], dtype=int32)
    """

    __slots__ = ("__weakref__",)
    __array_priority__ = 100

    weak_type: bool

    def __init__(self, *args: Any) -> None:
        raise ArgumentError("Array is not called directly; use tinyxla.numpy.array or asarray.")

    # --- what it is

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the dimensions."""
        raise NotImplementedError

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type."""
        raise NotImplementedError

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        count = 1
        for n in self.shape:
            count *= n
        return count

    @property
    def nbytes(self) -> int:
        """The size of the elements in bytes."""
        return self.size * self.dtype.itemsize

    @property
    def strides(self) -> tuple[int, ...]:
        """The distances in bytes between neighbours along each axis."""
        return np.asarray(self.primal("strides").buffer()).strides

    def tobytes(self, order: str = "C") -> bytes:
        """The bytes of the elements, in row-major order, or column-major for `order="F"`.

        Args:
            order: "C" for row-major order, "F" for column-major order; "A" and "K" are row-major here.

        Returns:
            The bytes, `nbytes` of them.

        Raises:
            AttributeValueError: another order.
            ConcretizationError: the array is traced.

        >>> import tinyxla.numpy as jnp
        >>> list(jnp.array([1, 256], jnp.int16).tobytes())
        [1, 0, 0, 1]
        """
        if order not in ("C", "F", "A", "K"):
            raise AttributeValueError(f"tobytes(): order must be 'C', 'F', 'A' or 'K', but got {order!r}.")
        return self.concrete("tobytes()").buffer().tobytes(order)

    def __bytes__(self) -> bytes:
        return self.tobytes()

    @property
    def itemsize(self) -> int:
        """The size of an element in bytes."""
        return self.dtype.itemsize

    def concrete(self, wanted: str, error: type[ConcretizationError] = ConcretizationError) -> ConcreteArray:
        """This array as a constant, if it is one; else an error that says what `wanted` it. It is none where its value
        is unknown, and where a derivative by it is taken, which a constant would lose.

        Args:
            wanted: what wants the value, for the text of the error.
            error: the class of the error.

        Returns:
            The array with its value.

        Raises:
            ConcretizationError: the value is unknown (or `error`, if that is given).

        >>> import tinyxla.numpy as jnp
        >>> jnp.array([1, 2]).concrete("my function")
        Array([1, 2], dtype=int32)
        """
        raise NotImplementedError

    def primal(self, wanted: str, error: type[ConcretizationError] = ConcretizationError) -> ConcreteArray:
        """The value without its derivative, if it is known: for conditions, shapes and text, through which no
        derivative flows. Else an error that says what `wanted` it.

        Args:
            wanted: what wants the value, for the text of the error.
            error: the class of the error.

        Returns:
            The array with its value, without a derivative.

        Raises:
            ConcretizationError: the value is unknown (or `error`, if that is given).

        >>> import tinyxla.numpy as jnp
        >>> import tinyxla
        >>> tinyxla.grad(lambda x: x * float(x.primal("my function").item()))(3.0)  # the second factor is a constant
        Array(3., dtype=float32, weak_type=True)
        """
        return self.concrete(wanted, error)

    @property
    def sharding(self) -> Sharding:
        """Where the elements are: on the one device."""
        return default_sharding()

    is_fully_addressable = True
    is_fully_replicated = True

    def block_until_ready(self) -> Array:
        """This array; results are always ready.

        Returns:
            The array itself.

        >>> import tinyxla.numpy as jnp
        >>> jnp.ones(2).block_until_ready()
        Array([1., 1.], dtype=float32)
        """
        return self

    # --- values for Python

    def __bool__(self) -> bool:
        if self.size != 1:
            self._check_usable()
            raise ShapeError(
                f"An array of shape {self.shape} is neither true nor false; use .any() or .all(), or "
                "tinyxla.numpy.where for a choice for each element."
            )
        value = self.primal("A Python condition (if, while, and, or, not, bool())", TracerBoolConversionError)
        return bool(value.buffer())

    def __int__(self) -> int:
        return int(self._single("int()"))

    def __float__(self) -> float:
        return float(self._single("float()"))

    def __complex__(self) -> complex:
        return complex(self._single("complex()"))

    def __index__(self) -> int:
        if self.dtype.kind not in "iu":
            raise ArgumentError(
                f"A Python index must be an integer, but the array is of {self.dtype.name}; use astype(int)."
            )
        value = self._single("A Python integer (an index, a size, the end of a range)", TracerIntegerConversionError)
        return value.__index__()

    def _check_usable(self) -> None:
        """An error for a tracer of a function that has ended."""

    def _single(self, wanted: str, error: type[ConcretizationError] = ConcretizationError) -> Any:
        """The value of an array without dimensions."""
        if self.shape:
            self._check_usable()
            raise ArgumentError(
                f"{wanted} takes an array without dimensions, but this one has the shape {self.shape}; choose an "
                "element by indexing, or use tolist()."
            )
        return self.concrete(wanted, error).buffer()

    def item(self, *index: int) -> Any:
        """The only element (or the one at `index`) as a Python number.

        Args:
            *index: nothing, one number into the flattened array, or an integer for each axis.

        Returns:
            A Python number or boolean.

        Raises:
            ShapeError: more elements than one, and no index.
            OutOfBoundsError: an index that names no element.

        >>> import tinyxla.numpy as jnp
        >>> jnp.array([[2.5]]).item(), jnp.array([1, 2, 3]).item(1)
        (2.5, 2)
        """
        value = self.concrete("item()")
        if index in ((), ((),)) and value.size != 1:
            raise ShapeError(
                "item(): can only convert an array of size 1 to a Python scalar, but this one has the shape "
                f"{value.shape}; use tolist()."
            )
        try:
            return value.buffer().item(*(index if index != ((),) else ()))
        except (IndexError, TypeError, ValueError, OverflowError):
            raise OutOfBoundsError(
                f"item(): {index} is no place in an array of shape {value.shape}; give one integer for each axis."
            ) from None

    def tolist(self) -> Any:
        """Nested lists of Python numbers.

        Returns:
            Lists nested as deeply as the array has dimensions; a number for an array without dimensions.

        Raises:
            ConcretizationError: the array is traced.

        >>> import tinyxla.numpy as jnp
        >>> jnp.array([[1, 2], [3, 4]]).tolist(), jnp.array(1.5).tolist()
        ([[1, 2], [3, 4]], 1.5)
        """
        return self.concrete("tolist()").buffer().tolist()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        value = self.concrete("A NumPy array", TracerArrayConversionError).buffer()
        if copy:
            return np.array(value, dtype=dtype)
        if dtype is None or value.dtype == dtype:
            return read_only_view(value)
        return np.array(value, dtype=dtype, copy=copy)

    def __len__(self) -> int:
        if not self.shape:
            raise ArgumentError("len() of an array without dimensions; use .size.")
        return self.shape[0]

    def __iter__(self) -> Iterator[Array]:
        if not self.shape:
            raise ArgumentError("An array without dimensions cannot be iterated over.")
        return (self[k] for k in range(self.shape[0]))

    __hash__ = None  # pyright: ignore[reportAssignmentType]  # equality is element by element

    def __setitem__(self, index: Any, value: Any) -> None:
        raise ArgumentError(f"Arrays are immutable: instead of x[{index!r}] = y write x = x.at[{index!r}].set(y).")

    def __delitem__(self, index: Any) -> None:
        raise ArgumentError(
            f"Arrays are immutable: instead of del x[{index!r}] write x = tinyxla.numpy.delete(x, {index!r}, axis=0)."
        )

    def __format__(self, spec: str) -> str:
        if self.shape and not spec:
            return str(self)
        return format(self.primal("format()").buffer()[()], spec)

    def with_weak_type(self, weak: bool) -> Array:
        """This array, weakly typed or not.

        Args:
            weak: whether the element type gives way to those of other operands.

        Returns:
            An array of the same elements, shape and type.

        >>> import tinyxla.numpy as jnp
        >>> x, y = jnp.float32(2.0), jnp.ones(3, jnp.float16)
        >>> (x + y).dtype, (x.with_weak_type(True) + y).dtype
        (dtype('float32'), dtype('float16'))
        """
        if self.weak_type == weak:
            return self
        twin: Any = copy.copy(self)
        value = getattr(twin, "carried", None)
        if isinstance(value, Array):  # a tracer that carries a value: that is where the weakness is
            twin.carried = value.with_weak_type(weak)
        else:
            twin.weak_type = weak
        return twin

    # --- protocols

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return _namespace.protocols.apply_ufunc(ufunc, method, inputs, kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return _namespace.protocols.apply_function(function, args, kwargs)

    def __array_namespace__(self, /, *, api_version: str | None = None) -> Any:
        """The module of functions on arrays, as the Python array API standard names it."""
        if api_version is not None and api_version not in _API_VERSIONS:
            raise AttributeValueError(
                f"__array_namespace__: api_version is one of {', '.join(_API_VERSIONS)}, but got {api_version!r}."
            )
        return _namespace

    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: bool | None = None
    ) -> Any:
        return dlpack_capsule(self.concrete("DLPack").buffer(), stream, max_version, dl_device, copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)  # the CPU

    @property
    def device(self) -> Device:
        """The device that has the elements; of one with parts on several, the first."""
        return min(self.sharding.device_set)

    def devices(self) -> set[Device]:
        """The devices that have the elements, or parts of them.

        Returns:
            A set of devices.

        >>> import tinyxla.numpy as jnp
        >>> jnp.ones(2).devices()
        {CpuDevice(id=0)}
        """
        return set(self.sharding.device_set)

    @property
    def committed(self) -> bool:
        """Whether it was put on its device, where there are several: else it goes where other arguments are."""
        return False

    @property
    def addressable_shards(self) -> list[Shard]:
        """The parts on the devices of this process: all of it on the one it is on."""
        return [Shard(device, (slice(None),) * self.ndim, 0, lambda: self) for device in self.sharding.device_set]

    @property
    def global_shards(self) -> list[Shard]:
        """The parts on all devices."""
        return self.addressable_shards

    def addressable_data(self, index: int) -> Array:
        """The part on the device of that number among those of this process.

        Args:
            index: the number of the part, from 0 on, or from -1 downwards.

        Returns:
            An array of the shape of the part.

        Raises:
            ArgumentError: there is no such device.

        >>> import tinyxla.numpy as jnp
        >>> jnp.ones(2).addressable_data(0)
        Array([1., 1.], dtype=float32)
        """
        parts = self.addressable_shards
        if not -len(parts) <= index < len(parts):
            raise ArgumentError(f"addressable_data: this process has {len(parts)} parts, but got number {index}.")
        return parts[index].data

    def is_ready(self) -> bool:
        """True: calls return when they are done.

        Returns:
            True.

        >>> import tinyxla.numpy as jnp
        >>> jnp.ones(2).is_ready()
        True
        """
        return True

    def copy_to_host_async(self) -> None:
        """Does nothing: the elements are in the memory of the host.

        >>> import tinyxla.numpy as jnp
        >>> x = jnp.ones(2)
        >>> x.copy_to_host_async()
        >>> x.tolist()
        [1.0, 1.0]
        """

    def to_device(self, device: Any, *, stream: Any = None) -> Array:
        """A copy of this array on a device; see `device_put`.

        Args:
            device: a device, a sharding, or None.
            stream: accepted for compatibility.

        Returns:
            An array of the same elements.

        Raises:
            ArgumentError: what is no device of this process.

        >>> import tinyxla.numpy as jnp
        >>> import tinyxla
        >>> jnp.ones(2).to_device(tinyxla.devices()[0])
        Array([1., 1.], dtype=float32)
        """
        check_device("to_device", device)
        return self.copy() if device is None else _namespace.array(self, device=device)

    # --- operators

    __add__, __radd__ = _operator("add")
    __sub__, __rsub__ = _operator("subtract")
    __mul__, __rmul__ = _operator("multiply")
    __truediv__, __rtruediv__ = _operator("true_divide")
    __floordiv__, __rfloordiv__ = _operator("floor_divide")
    __mod__, __rmod__ = _operator("remainder")
    __divmod__, __rdivmod__ = cast(tuple[_PairOperator, _PairOperator], _operator("divmod"))
    __pow__, __rpow__ = _operator("power")
    __matmul__, __rmatmul__ = _operator("matmul")
    __and__, __rand__ = _operator("bitwise_and")
    __or__, __ror__ = _operator("bitwise_or")
    __xor__, __rxor__ = _operator("bitwise_xor")
    __lshift__, __rlshift__ = _operator("left_shift")
    __rshift__, __rrshift__ = _operator("right_shift")
    __lt__ = _operator("less")[0]
    __le__ = _operator("less_equal")[0]
    __gt__ = _operator("greater")[0]
    __ge__ = _operator("greater_equal")[0]

    def __eq__(self, other: Operand) -> Array:  # type: ignore[override]
        return _namespace.equal(self, other) if _is_operand(other) else NotImplemented

    def __ne__(self, other: Operand) -> Array:  # type: ignore[override]
        return _namespace.not_equal(self, other) if _is_operand(other) else NotImplemented

    def __neg__(self) -> Array:
        return _namespace.negative(self)

    def __pos__(self) -> Array:
        return _namespace.positive(self)

    def __abs__(self) -> Array:
        return _namespace.absolute(self)

    def __invert__(self) -> Array:
        return _namespace.invert(self)

    def __round__(self, ndigits: int | None = None) -> Array:
        found = _namespace.round(self, ndigits or 0)
        return found if ndigits is not None else found.astype(int)  # as round() of a float gives an int

    def __getitem__(self, index: Any) -> Array:
        try:
            return _namespace.indexing.indexed.take_index(self, index)
        except Exception as error:
            filter_error(error)
            raise

    @property
    def at(self) -> IndexedUpdates:
        """Updated copies: `x.at[index].set(y)`, also `add`, `multiply`, `divide`, `power`, `min`, `max`, `apply`."""
        return _namespace.indexing.indexed.At(self)

    # --- methods

    @property
    def T(self) -> Array:
        """The axes in reverse order."""
        return _namespace.transpose(self)

    @property
    def mT(self) -> Array:
        """The last two axes exchanged."""
        return _namespace.matrix_transpose(self)

    @property
    def real(self) -> Array:
        """The real part."""
        return _namespace.real(self)

    @property
    def imag(self) -> Array:
        """The imaginary part."""
        return _namespace.imag(self)

    @property
    def flat(self) -> Iterator[Array]:
        """The elements in row-major order."""
        return iter(self.ravel())

    def astype(self, dtype: Any, copy: bool = False) -> Array:
        """The array with its elements converted to another type by value.

        Args:
            dtype: an element type.
            copy: whether the result has memory of its own also where the type stays.

        Returns:
            An array of the same shape and of that type.

        Raises:
            DTypeError: what is no element type.

        >>> import tinyxla.numpy as jnp
        >>> jnp.array([1.7, -1.7]).astype(int)
        Array([ 1, -1], dtype=int32)
        """
        return _namespace.astype(self, dtype, copy=copy)

    def view(self, dtype: Any = None) -> Array:
        """The bits of the elements as elements of another type. A wider one takes the last dimension, a narrower one
        lengthens it.

        Args:
            dtype: an element type; None for that of the array.

        Returns:
            An array of that type, of the same shape but for the last dimension.

        Raises:
            DTypeError: what is no element type.
            ShapeError: the elements of the last dimension do not make up whole wider ones.

        >>> import tinyxla.numpy as jnp
        >>> jnp.array([1.0, -1.0]).view("int32"), jnp.array([1], jnp.int16).view("int8")
        (Array([ 1065353216, -1082130432], dtype=int32), Array([1, 0], dtype=int8))
        """
        return _namespace.view(self, dtype)

    def byteswap(self) -> Array:
        """The elements with their bytes in the opposite order, as `numpy.ndarray.byteswap`.

        Returns:
            An array of the same shape and type.

        Raises:
            DTypeError: an array of random keys.

        >>> import tinyxla.numpy as jnp
        >>> jnp.array([1, 256], jnp.int16).byteswap()
        Array([256,   1], dtype=int16)
        """
        return _namespace.elementwise.float_bits.byteswapped(self)

    def copy(self) -> Array:
        """An array of the same elements. They share memory, but deleting one, by donating it say, leaves the other.

        Returns:
            An array of the same elements, shape and type.

        Raises:
            DeletedError: the array was deleted or donated.

        >>> import tinyxla.numpy as jnp
        >>> x = jnp.ones(2)
        >>> y = x.copy()
        >>> x.delete()
        >>> y
        Array([1., 1.], dtype=float32)
        """
        return self

    def reshape(self, *shape: Any, order: str = "C", out_sharding: Any = None) -> Array:
        """The elements, in row-major order, in another shape; one size may be -1.

        Args:
            *shape: the sizes, as several integers or as one sequence; one may be -1, which takes what is left.
            order: "C" for row-major order of elements, "F" for column-major order.
            out_sharding: how the result is sharded.

        Returns:
            An array of that shape and of the same type.

        Raises:
            ShapeError: a shape for another number of elements.

        >>> import tinyxla.numpy as jnp
        >>> jnp.arange(6).reshape(2, -1)
        Array([[0, 1, 2],
               [3, 4, 5]], dtype=int32)
        """
        return _namespace.reshape(self, shape[0] if len(shape) == 1 else shape, order, out_sharding=out_sharding)

    def ravel(self, order: str = "C", *, out_sharding: Any = None) -> Array:
        """The elements in one dimension.

        Args:
            order: "C" for row-major order of elements, "F" for column-major order.
            out_sharding: how the result is sharded.

        Returns:
            An array of one dimension.

        Raises:
            ArgumentError: another order.

        >>> import tinyxla.numpy as jnp
        >>> x = jnp.array([[1, 2], [3, 4]])
        >>> x.ravel(), x.ravel(order="F")
        (Array([1, 2, 3, 4], dtype=int32), Array([1, 3, 2, 4], dtype=int32))
        """
        return _namespace.ravel(self, order, out_sharding=out_sharding)

    flatten = ravel

    def transpose(self, *axes: Any) -> Array:
        """The axes in another order (reversed if none is given).

        Args:
            *axes: the axes in their new order, as several integers or as one sequence.

        Returns:
            An array with its dimensions in that order.

        Raises:
            AxisError: an axis that the array does not have.
            ShapeError: axes that do not name each dimension once.

        >>> import tinyxla.numpy as jnp
        >>> x = jnp.zeros((2, 3, 4))
        >>> x.transpose().shape, x.transpose(0, 2, 1).shape
        ((4, 3, 2), (2, 4, 3))
        """
        return _namespace.transpose(self, (axes[0] if len(axes) == 1 else axes) or None)

    def swapaxes(self, axis1: int, axis2: int) -> Array:
        """Two axes exchanged.

        Args:
            axis1, axis2: two axes.

        Returns:
            An array with these dimensions exchanged.

        Raises:
            AxisError: an axis that the array does not have.

        >>> import tinyxla.numpy as jnp
        >>> jnp.zeros((2, 3, 4)).swapaxes(0, 2).shape
        (4, 3, 2)
        """
        return _namespace.swapaxes(self, axis1, axis2)

    def squeeze(self, axis: Any = None) -> Array:
        """Without axes of size 1.

        Args:
            axis: an axis, or several; None for all of size 1.

        Returns:
            An array without these dimensions.

        Raises:
            AxisError: an axis that the array does not have.
            ShapeError: an axis of another size than 1.

        >>> import tinyxla.numpy as jnp
        >>> x = jnp.zeros((1, 3, 1))
        >>> x.squeeze().shape, x.squeeze(0).shape
        ((3,), (3, 1))
        """
        return _namespace.squeeze(self, axis)

    def repeat(self, repeats: Any, axis: int | None = None, *, total_repeat_length: int | None = None) -> Array:
        """Each element several times.

        Args:
            repeats: how often, for all elements or for each along the axis.
            axis: the axis; None for the flattened array.
            total_repeat_length: the size of the result along the axis: for compiled functions, which must know it.

        Returns:
            An array, longer along the axis, or of one dimension.

        Raises:
            AxisError: an axis that the array does not have.
            ConcretizationError: `repeats` are traced, and `total_repeat_length` is not given.
            ShapeError: negative repeats, or ones that do not fit the axis.

        >>> import tinyxla.numpy as jnp
        >>> jnp.array([1, 2]).repeat(2), jnp.array([1, 2]).repeat(jnp.array([0, 3]), total_repeat_length=3)
        (Array([1, 1, 2, 2], dtype=int32), Array([2, 2, 2], dtype=int32))
        """
        return _namespace.repeat(self, repeats, axis, total_repeat_length=total_repeat_length)

    def take(self, indices: Any, axis: int | None = None, **options: Any) -> Array:
        """The elements at `indices` of an axis.

        Args:
            indices: integers, of any shape.
            axis: the axis; None for the flattened array.
            **options: those of `numpy.take`: mode, fill_value, unique_indices and indices_are_sorted.

        Returns:
            An array with the shape of the indices in place of the axis.

        Raises:
            AttributeValueError: another mode.
            AxisError: an axis that the array does not have.
            DTypeError: indices that are no integers.

        >>> import tinyxla.numpy as jnp
        >>> x = jnp.array([[1, 2], [3, 4]])
        >>> x.take(jnp.array([0, 3])), x.take(1, axis=0)
        (Array([1, 4], dtype=int32), Array([3, 4], dtype=int32))
        """
        return _namespace.take(self, indices, axis, **options)

    def diagonal(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Array:
        """The elements whose indices along two axes are equal, up to an offset.

        Args:
            offset: which diagonal: 0 is the main one, positive numbers are above it.
            axis1, axis2: the two axes.

        Returns:
            An array without these axes, and with the diagonal as its last one.

        Raises:
            ArgumentError: an offset that is no integer.
            AxisError: an axis that the array does not have.
            ShapeError: the same axis twice.

        >>> import tinyxla.numpy as jnp
        >>> jnp.arange(9).reshape(3, 3).diagonal(offset=1)
        Array([1, 5], dtype=int32)
        """
        return _namespace.diagonal(self, offset, axis1, axis2)

    def trace(self, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None) -> Array:
        """The sum of the diagonal.

        Args:
            offset: which diagonal: 0 is the main one, positive numbers are above it.
            axis1, axis2: the two axes.
            dtype: the element type of the sum.

        Returns:
            An array without these axes.

        Raises:
            AxisError: an axis that the array does not have.
            DTypeError: what is no element type.

        >>> import tinyxla.numpy as jnp
        >>> jnp.arange(9).reshape(3, 3).trace()
        Array(12, dtype=int32)
        """
        return _namespace.trace(self, offset, axis1, axis2, dtype)

    def sort(self, axis: int | None = -1, **options: Any) -> Array:
        """The elements in ascending order along an axis.

        Args:
            axis: the axis; None for the flattened array.
            **options: those of `numpy.sort`, such as descending.

        Returns:
            A new array of the same shape and type.

        Raises:
            AxisError: an axis that the array does not have.
            ShapeError: an array without dimensions.

        >>> import tinyxla.numpy as jnp
        >>> jnp.array([3.0, jnp.nan, 1.0]).sort()  # a new array, NaN last
        Array([ 1.,  3., nan], dtype=float32)
        """
        return _namespace.sort(self, axis, **options)

    def argsort(self, axis: int | None = -1, **options: Any) -> Array:
        """The indices that would sort along an axis.

        Args:
            axis: the axis; None for the flattened array.
            **options: those of `numpy.argsort`, such as descending.

        Returns:
            Integers of the shape of the array.

        Raises:
            AxisError: an axis that the array does not have.

        >>> import tinyxla.numpy as jnp
        >>> jnp.array([30, 10, 20]).argsort()
        Array([1, 2, 0], dtype=int32)
        """
        return _namespace.argsort(self, axis, **options)

    def searchsorted(self, values: Any, side: str = "left", sorter: Any = None, **options: Any) -> Array:
        """Where values would be inserted into this sorted array.

        Args:
            values: an array or a number.
            side: "left" for the first place that keeps the order, "right" for the last one.
            sorter: indices that sort the array, if it is not sorted.
            **options: those of `numpy.searchsorted`, such as method.

        Returns:
            Integers of the shape of values, from 0 to the size of the array.

        Raises:
            ArgumentError: another side.
            ShapeError: an array of more or fewer dimensions than one.

        >>> import tinyxla.numpy as jnp
        >>> x = jnp.array([1, 2, 2, 3])
        >>> x.searchsorted(2), x.searchsorted(2, side="right")
        (Array(1, dtype=int32), Array(3, dtype=int32))
        """
        return _namespace.searchsorted(self, values, side, sorter, **options)

    def argpartition(self, kth: int, axis: int = -1) -> Array:
        """The indices in an order of which the first `kth` are those of the smallest elements along an axis.

        Args:
            kth: the number of an element along the axis.
            axis: the axis.

        Returns:
            Integers of the shape of the array.

        Raises:
            AxisError: an axis or a `kth` that the array does not have.

        >>> import tinyxla.numpy as jnp
        >>> x = jnp.array([30, 10, 20, 40])
        >>> sorted(x[x.argpartition(2)[:2]].tolist())
        [10, 20]
        """
        return _namespace.argpartition(self, kth, axis)

    def choose(self, choices: Any, **options: Any) -> Array:
        """Of several arrays, at each place the element of the one that this array names.

        Args:
            choices: a list of arrays, which broadcast against this one.
            **options: those of `numpy.choose`: mode, which says what numbers outside do.

        Returns:
            An array of the shape of all broadcast.

        Raises:
            ArgumentError: no choices, or another mode.
            NumberRangeError: a number of no choice, with the mode "raise".

        >>> import tinyxla.numpy as jnp
        >>> jnp.array([0, 1, 0]).choose([jnp.array([1, 2, 3]), jnp.array([10, 20, 30])])
        Array([ 1, 20,  3], dtype=int32)
        """
        return _namespace.choose(self, choices, **options)

    def compress(self, condition: Any, axis: int | None = None, **options: Any) -> Array:
        """The elements, or slices along an axis, where a condition holds.

        Args:
            condition: a vector of booleans; what lies behind its end is left out.
            axis: the axis; None for the flattened array.
            **options: those of `numpy.compress`: size and fill_value, for compiled functions.

        Returns:
            An array, shorter along the axis, or of one dimension.

        Raises:
            AxisError: an axis that the array does not have.
            ConcretizationError: the condition is traced, and `size` is not given.
            OutOfBoundsError: the condition holds behind the end.
            ShapeError: a condition of more dimensions than one.

        >>> import tinyxla.numpy as jnp
        >>> jnp.array([[1, 2], [3, 4], [5, 6]]).compress(jnp.array([True, False, True]), axis=0)
        Array([[1, 2],
               [5, 6]], dtype=int32)
        """
        return _namespace.compress(condition, self, axis, **options)

    def nonzero(self, **options: Any) -> tuple[Array, ...]:
        """The indices of the elements that are not zero.

        Args:
            **options: those of `numpy.nonzero`: size and fill_value, for compiled functions.

        Returns:
            A vector of integers for each dimension.

        Raises:
            ConcretizationError: the array is traced, and `size` is not given.
            ShapeError: a negative `size`.

        >>> import tinyxla.numpy as jnp
        >>> jnp.array([[0, 7], [8, 0]]).nonzero()
        (Array([0, 1], dtype=int32), Array([1, 0], dtype=int32))
        """
        return _namespace.nonzero(self, **options)

    def dot(self, other: Any, **options: Any) -> Array:
        """The dot product with another array.

        Args:
            other: an array or a number.
            **options: those of `numpy.dot`: precision, preferred_element_type and out_sharding.

        Returns:
            An array: of this array without its last dimension, then of the other without its last but one.

        Raises:
            DTypeError: what is no array or number.
            ShapeError: sizes that do not fit.

        >>> import tinyxla.numpy as jnp
        >>> jnp.array([[1, 2], [3, 4]]).dot(jnp.array([10, 1]))
        Array([12, 34], dtype=int32)
        """
        return _namespace.dot(self, other, **options)

    def conj(self) -> Array:
        """The complex conjugate.

        Returns:
            An array of the same shape and type; real numbers stay as they are.

        >>> import tinyxla.numpy as jnp
        >>> jnp.array([1 + 2j, 3.0]).conj()
        Array([1.-2.j, 3.-0.j], dtype=complex64)
        """
        return _namespace.conjugate(self)

    conjugate = conj

    def clip(self, min: Any = None, max: Any = None) -> Array:
        """The elements, none below `min` and none above `max`.

        Args:
            min, max: limits: numbers, or arrays that broadcast against this one; None for no limit.

        Returns:
            An array of the shape of all broadcast.

        Raises:
            DTypeError: complex numbers, or a limit that is no array or number.
            ShapeError: shapes that do not broadcast.

        >>> import tinyxla.numpy as jnp
        >>> jnp.array([-1.0, 0.5, 2.0]).clip(0, 1)
        Array([0. , 0.5, 1. ], dtype=float32)
        """
        return _namespace.clip(self, min, max)

    def round(self, decimals: int = 0, out: None = None) -> Array:
        """The elements rounded to a number of decimals, half-way ones to the even neighbour.

        Args:
            decimals: how many decimals stay; if negative, how many digits before the point become 0.
            out: must be None.

        Returns:
            An array of the same shape and type.

        Raises:
            ArgumentError: decimals that are no integer, or an `out`.

        >>> import tinyxla.numpy as jnp
        >>> jnp.array([0.5, 1.5, 2.345]).round(), jnp.array([2.345]).round(1)
        (Array([0., 2., 2.], dtype=float32), Array([2.3], dtype=float32))
        """
        return _namespace.round(self, decimals, out)

    # --- reductions, over all axes or over `axis`; the options are those of the function of the same name

    sum = _reduction(
        "sum",
        "The sum of the elements, of all or along axes.",
        "jnp.array([[1, 2], [3, 4]]).sum(axis=0)",
        "Array([4, 6], dtype=int32)",
    )
    prod = _reduction(
        "prod",
        "The product of the elements, of all or along axes.",
        "jnp.array([[1, 2], [3, 4]]).prod(axis=1, keepdims=True)",
        "Array([[ 2],\n       [12]], dtype=int32)",
    )
    mean = _reduction(
        "mean",
        "The arithmetic mean of the elements, of all or along axes, in floating point.",
        "jnp.array([[1, 2], [3, 5]]).mean(axis=0)",
        "Array([2. , 3.5], dtype=float32)",
    )
    var = _reduction(
        "var",
        "The variance of the elements, of all or along axes: divided by their number minus `ddof`.",
        "jnp.array([1.0, 3.0]).var(), jnp.array([1.0, 3.0]).var(ddof=1)",
        "(Array(1., dtype=float32), Array(2., dtype=float32))",
    )
    std = _reduction(
        "std",
        "The standard deviation of the elements, of all or along axes: the root of `var`.",
        "jnp.array([[1.0, 3.0], [2.0, 6.0]]).std(axis=1)",
        "Array([1., 2.], dtype=float32)",
    )
    min = _reduction(
        "min",
        "The smallest element, of all or along axes; NaN if there is one.",
        "jnp.array([1.0, jnp.nan]).min()",
        "Array(nan, dtype=float32)",
    )
    max = _reduction(
        "max",
        "The largest element, of all or along axes; NaN if there is one.",
        "jnp.array([[1, 4], [3, 2]]).max(axis=1)",
        "Array([4, 3], dtype=int32)",
    )
    ptp = _reduction(
        "ptp",
        "The largest element minus the smallest, of all or along axes.",
        "jnp.array([[1, 4], [9, 2]]).ptp(axis=0)",
        "Array([8, 2], dtype=int32)",
    )
    all = _reduction(
        "all",
        "Whether all elements are true (not zero), of all or along axes.",
        "jnp.array([[1, 0], [1, 2]]).all(axis=1)",
        "Array([False,  True], dtype=bool)",
    )
    any = _reduction(
        "any",
        "Whether any element is true (not zero), of all or along axes.",
        "jnp.array([[0, 0], [0, 2]]).any(axis=1)",
        "Array([False,  True], dtype=bool)",
    )
    argmax = _reduction(
        "argmax",
        "The index of the first largest element, in the array as a vector or along an axis.",
        "jnp.array([[1, 4], [4, 2]]).argmax(), jnp.array([[1, 4], [4, 2]]).argmax(axis=1)",
        "(Array(1, dtype=int32), Array([1, 0], dtype=int32))",
    )
    argmin = _reduction(
        "argmin",
        "The index of the first smallest element, in the array as a vector or along an axis.",
        "jnp.array([[3, 1], [1, 2]]).argmin(), jnp.array([[3, 1], [1, 2]]).argmin(axis=0)",
        "(Array(1, dtype=int32), Array([1, 0], dtype=int32))",
    )
    cumsum = _reduction(
        "cumsum",
        "The cumulative sums, of the array as a vector or along an axis.",
        "jnp.array([[1, 2], [3, 4]]).cumsum(axis=1)",
        "Array([[1, 3],\n       [3, 7]], dtype=int32)",
    )
    cumprod = _reduction(
        "cumprod",
        "The cumulative products, of the array as a vector or along an axis.",
        "jnp.array([[1, 2], [3, 4]]).cumprod()",
        "Array([ 1,  2,  6, 24], dtype=int32)",
    )


_OPERANDS: set[type] = {bool, int, float, complex, list, tuple, np.ndarray}


def converts(value: Any) -> bool:
    """Whether an object has a method that gives its array. NumPy's and this library's own are looked up on the type: a
    proxy of an array (Flax's `Cursor`) has all attributes of the array, but operators of its own."""
    kind = type(value)
    return hasattr(kind, "__array__") or hasattr(value, "__jax_array__") or hasattr(kind, "__tinyxla_array__")


def _is_operand(value: Any) -> bool:
    """Whether an operator takes it, or leaves it to the other operand. Lists it takes, to say what is wrong."""
    kind = type(value)
    if kind in _OPERANDS:
        return True
    if (
        isinstance(value, (Array, np.ndarray, np.generic, int, float, complex))
        or hasattr(value, "__jax_array__")
        or hasattr(kind, "__tinyxla_array__")
    ):
        _OPERANDS.add(kind)
        return True
    return config.array_protocol_operands == "convert" and hasattr(kind, "__array__")


class ConcreteArray(Array):
    """An array with a value."""

    __slots__ = ("_signature", "_value", "weak_type")

    def __init__(self, value: Any, weak_type: bool = False) -> None:
        self._value = value  # an ndarray, or the NumPy scalar that NumPy makes of one without dimensions
        self.weak_type = weak_type
        if _scalar_registers:
            _register_scalar(self)

    def buffer(self) -> Any:
        """The value itself, for the library: an ndarray, or a NumPy scalar. It must not be written to."""
        return self._value

    def numpy(self) -> Any:
        """The value for users: a read-only ndarray, or a NumPy scalar."""
        return self._value if isinstance(self._value, np.generic) else read_only_view(self._value)

    @property
    def shape(self) -> tuple[int, ...]:
        return self._value.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._value.dtype

    @property
    def ndim(self) -> int:
        return self._value.ndim

    @property
    def size(self) -> int:
        return self._value.size

    @property
    def sharding(self) -> Sharding:
        """The one device."""
        return default_sharding()

    def concrete(self, wanted: str, error: type[ConcretizationError] = ConcretizationError) -> ConcreteArray:
        return self

    primal = concrete

    def with_weak_type(self, weak: bool) -> ConcreteArray:
        return self if self.weak_type == weak else ConcreteArray(self._value, weak)

    def __repr__(self) -> str:
        value = np.asarray(self._value)
        kind = f"dtype={value.dtype.name}" + (", weak_type=True)" if self.weak_type else ")")
        if value.size == 0 and value.ndim:
            return f"Array([], shape={value.shape}, {kind}"
        text = np.array2string(value, separator=", ", prefix="Array(", suffix=",")
        last = len(text) - text.rfind("\n") - 1 + ("\n" not in text) * len("Array(")
        gap = " " if last + len(kind) + 2 <= np.get_printoptions()["linewidth"] else "\n" + " " * len("Array(")
        return f"Array({text},{gap}{kind}"

    def __str__(self) -> str:
        return str(self._value)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """For notebooks: a summary, and a picture of images and matrices. (Not as `_repr_html_`, by which treescope
        takes an object for one with a view of its own, which arrays of JAX do not have.)"""
        from tinyxla.text import html  # here, since few programs need it

        picture = html.array(repr(self), np.asarray(self._value))
        return {} if picture is None else {"text/html": picture}

    def __reduce__(self) -> Any:  # without the signature, which is a number of this process alone
        return _restored, (self.numpy(), self.weak_type)

    def __copy__(self) -> ConcreteArray:
        return self.copy()

    def copy(self) -> ConcreteArray:
        return ConcreteArray(self._value, self.weak_type)

    def signature(self) -> int:
        """A number that stands for element type, shape and weakness: what compiled functions are looked up by.

        An array that has one (in `_signature`) is dense.
        """
        try:
            return self._signature
        except AttributeError:
            value = self.dense()
            self._signature = signature_of(value.dtype, value.shape, self.weak_type)
            return self._signature

    def dense(self) -> np.ndarray[Any, Any]:
        """The value as a row-major ndarray without gaps."""
        value = self._value
        if type(value) is not np.ndarray or not value.flags.c_contiguous or not value.flags.aligned:
            value = self._value = allocated("An array", functools.partial(np.array, value, order="C"))
        return value

    def is_deleted(self) -> bool:
        return False

    def delete(self) -> None:
        """Let go of the memory; the array has no value any more."""
        delete_all([self], [without_memory(self.dtype, self.shape)])


ConcreteArray.__name__ = "Array"  # which Python's own messages show


def _restored(value: Any, weak_type: bool) -> ConcreteArray:
    """An array from a pickle. One whose buffers are kept apart from it belongs to whoever loads it."""
    return ConcreteArray(np.array(value) if isinstance(value, np.ndarray) else value, weak_type)


@functools.lru_cache(1024)
def without_memory(dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """What remains of a deleted array: its type and shape."""
    return np.broadcast_to(np.zeros((), dtype), shape)


def delete_all(arrays: Sequence[Any], remains: Sequence[np.ndarray[Any, Any]]) -> None:
    """Delete arrays of which is known what remains."""
    for x, value in zip(arrays, remains):  # noqa: B905 - strict takes time
        if x.__class__ is ConcreteArray:  # else the same array was among those before
            x._value = value
            x.__class__ = _DeletedArray


_held_value: Any = ConcreteArray.__dict__["_value"]


class _DeletedArray(ConcreteArray):
    """An array that was deleted: its memory may hold other values already."""

    __slots__ = ()

    @property
    def _value(self) -> Any:
        raise DeletedError(
            f"Array has been deleted with shape={self._described()}: it was donated to a compiled function, or deleted "
            "by name. Use what that function returned, or do not donate it."
        )

    def _described(self) -> str:
        return f"{self.dtype.name}[{','.join(map(str, self.shape))}]"

    def block_until_ready(self) -> Array:
        return self._value  # an error

    def __getitem__(self, index: Any) -> Array:
        return self._value[index]  # an error, also for `...`

    def __repr__(self) -> str:
        return f"<deleted Array {self._described()}>"

    __str__ = __repr__

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {}

    @property
    def _signature(self) -> int:
        raise AttributeError("a deleted array has no signature")

    @property
    def shape(self) -> tuple[int, ...]:
        return _held_value.__get__(self).shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return _held_value.__get__(self).dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return _held_value.__get__(self).size

    def is_deleted(self) -> bool:
        return True

    def delete(self) -> None:
        return None


_DeletedArray.__name__ = "Array"
_signatures: dict[Any, int] = {}


def signature_of(dtype: Any, shape: tuple[int, ...], weak_type: bool) -> int:
    """The number that stands for these."""
    return _signatures.setdefault((dtype, shape, weak_type), len(_signatures))


def described_signature(signature: Any) -> tuple[Any, tuple[int, ...], bool]:
    """Element type, shape and weakness: those that a number stands for, or that are given."""
    if isinstance(signature, tuple):
        return cast("tuple[Any, tuple[int, ...], bool]", signature)
    return next(described for described, number in _signatures.items() if number == signature)


def wrap_dense(value: np.ndarray[Any, Any], weak_type: bool, signature: int) -> ConcreteArray:
    """A concrete array of a dense ndarray with a known signature."""
    array = _new(ConcreteArray)
    array._value = value
    array.weak_type = weak_type
    array._signature = signature
    if _scalar_registers:
        _register_scalar(array)
    return array


_new: Any = ConcreteArray.__new__

# Of each jaxpr that is being recorded, the concrete arrays without axes that were made since it began, by their id.
_scalar_registers: list[dict[int, ConcreteArray]] = []


def _register_scalar(array: ConcreteArray) -> None:
    if array.ndim == 0:
        for register in _scalar_registers:
            register[id(array)] = array


def with_scalar_register(register: dict[int, ConcreteArray], function: Callable[[], _Result]) -> _Result:
    """Call a function, and enter all concrete arrays without axes that are made meanwhile into a register."""
    _scalar_registers.append(register)
    try:
        return function()
    finally:
        _scalar_registers[:] = [r for r in _scalar_registers if r is not register]


def dense_array(value: np.ndarray[Any, Any]) -> ConcreteArray:
    """A concrete array of a dense ndarray."""
    return wrap_dense(value, False, signature_of(value.dtype, value.shape, False))


def wrap(value: Any) -> ConcreteArray:
    """A concrete array that holds a NumPy array, which nobody writes to from here on."""
    return ConcreteArray(value)


def no_numpy_out(function: str) -> TracerError:
    """The error for NumPy functions that would write into an array."""
    return TracerError(
        f"{function} writes into an array, but traced arrays and those of tinyxla cannot be written "
        "to or into; use its result instead: a = a + x in place of a += x."
    )
