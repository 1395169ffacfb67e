"""Universal functions: element-wise functions with the methods `reduce`, `accumulate`, `reduceat`, `outer` and `at`.

Folds of associative functions with an operation of XLA's are that operation. Others apply the function to one row after
the other: written out if there are few rows, else in a loop.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from tinyxla.api import eval_shape
from tinyxla.api.functions import ShapeDtypeStruct
from tinyxla.errors import ArgumentError, ConcretizationError, DTypeError, OutOfBoundsError, ShapeError
from tinyxla.numpy import reductions
from tinyxla.numpy.arguments import (
    ArrayLike,
    Axis,
    array_of,
    broadcast_to_shape,
    canonical_axes,
    cast,
    count_of,
    function_of,
    integer_of,
    is_several,
    like,
    listed,
    python_dtype,
    refuse_options,
    refuse_out,
    value_of,
)
from tinyxla.numpy.elementwise import arithmetic, transcendental
from tinyxla.numpy.indexing.indexed import At
from tinyxla.numpy.indexing.take_where import where as choose
from tinyxla.numpy.joining import concatenate, stack
from tinyxla.numpy.manipulation import expand_dims, moveaxis
from tinyxla.numpy.operations import movement, ops, reduction, windows
from tinyxla.numpy.vectorization import vectorize
from tinyxla.shapes.shape import canonical_axis
from tinyxla.tracing.array import Array
from tinyxla.tracing.promotion import default_int
from tinyxla.tracing.signatures import Binary, Unary
from tinyxla.util.tracebacks import boundary

_MAX_UNROLLED_APPLICATIONS = 32  # so many applications of a function are written out
_MONOIDS = ("add", "multiply", "maximum", "minimum")
_UPDATES = {name: name for name in ("add", "subtract", "multiply", "divide", "power")} | {
    "true_divide": "divide",
    "maximum": "max",
    "minimum": "min",
}


class ufunc:
    """A universal function: a function of elements, applied to arrays that broadcast.

    Args:
        func: takes `nin` arrays and gives `nout`; it is called with whole arrays.
        nin: the number of arguments.
        nout: the number of results.
        name: how to speak of it; that of `func` if not given.
        nargs: the number of arguments and results, which is `nin + nout` whatever is said.
        identity: the value that changes no other one, if there is one: what a reduction of no elements gives.

    The methods are those of NumPy's ufuncs. `at` returns the updated array, since arrays are immutable.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.add.nin, jnp.add.identity
        (2, 0)
        >>> jnp.subtract.reduce(jnp.array([9, 3, 1]))
        Array(5, dtype=int32)
    """

    _is_own = False  # whether it is one of this package's, some of whose folds are single operations

    def __init__(
        self,
        func: Callable[..., Any],
        /,
        nin: int,
        nout: int,
        *,
        name: str | None = None,
        nargs: int | None = None,
        identity: Any = None,
    ) -> None:
        self._function = function_of("ufunc", "func", func)
        self._nin, self._nout = count_of("ufunc", "nin", nin), count_of("ufunc", "nout", nout)
        self._identity = identity
        self.__name__ = self.__qualname__ = name or getattr(func, "__name__", type(func).__name__)
        self.__doc__ = getattr(func, "__doc__", None)

    @property
    def nin(self) -> int:
        """The number of arguments."""
        return self._nin

    @property
    def nout(self) -> int:
        """The number of results."""
        return self._nout

    @property
    def nargs(self) -> int:
        """The number of arguments and results."""
        return self._nin + self._nout

    @property
    def identity(self) -> Any:
        """The value that changes no other one; None if there is none."""
        return self._identity

    def __repr__(self) -> str:
        return f"<tinyxla.numpy.ufunc {self.__name__!r}>"

    def __eq__(self, other: object) -> bool:
        return self is other or (type(other) is type(self) and self._key() == other._key())

    def __hash__(self) -> int:
        return hash(self._key()[:3])

    def _key(self) -> tuple[Any, ...]:
        return self._function, self._nin, self._nout, self.__name__, repr(self._identity)

    def __reduce__(self) -> Any:
        named = partial(ufunc, name=self.__name__, identity=self._identity)
        return named, (self._function, self._nin, self._nout)

    def __call__(self, *args: ArrayLike, out: None = None, where: None = None) -> Any:
        refuse_options(self.__name__, out, where)
        return self._function(*args)

    def reduce(
        self,
        a: ArrayLike,
        axis: Axis = 0,
        dtype: Any = None,
        out: None = None,
        keepdims: bool = False,
        initial: ArrayLike | None = None,
        where: ArrayLike | None = None,
    ) -> Array:
        """The function applied along an axis (over all elements if None): f(f(x[0], x[1]), x[2]) and so on.

        With `where`, only of elements where that is true; then the function needs an identity, or `initial`, which is
        put in front.

        Args:
            a: an array.
            axis: an axis, or several; None for all.
            dtype: the element type of the result.
            out: must be None.
            keepdims: whether the result keeps the axes, with size 1.
            initial: what is put in front of the elements.
            where: booleans that broadcast against a.

        Returns:
            An array of the shape of a without the axes.

        Raises:
            ArgumentError: a function that does not make one array of two, an `out`, or a `where` without an initial
                value.
            AxisError: an axis that the array does not have.
            DTypeError: what is no array or number, or no element type.
            ShapeError: no elements, where the function has no identity.

        >>> import tinyxla.numpy as jnp
        >>> x = jnp.array([[1, 2], [3, 4]])
        >>> jnp.add.reduce(x), jnp.subtract.reduce(x, axis=1)
        (Array([4, 6], dtype=int32), Array([-1, -1], dtype=int32))
        """
        fold = self._fold("reduce", out)
        return fold.reduce(listed(a, fold.what), axis, dtype, keepdims, initial, where)

    def accumulate(self, a: ArrayLike, axis: int = 0, dtype: Any = None, out: None = None) -> Array:
        """All intermediate results of `reduce` along an axis.

        Args:
            a: an array.
            axis: the axis.
            dtype: the element type of the result.
            out: must be None.

        Returns:
            An array of the shape of a.

        Raises:
            ArgumentError: a function that does not make one array of two, an `out`, or an axis that is no integer.
            AxisError: an axis that the array does not have.

        >>> import tinyxla.numpy as jnp
        >>> jnp.multiply.accumulate(jnp.array([2, 3, 4]))
        Array([ 2,  6, 24], dtype=int32)
        """
        fold = self._fold("accumulate", out)
        return fold.accumulate(listed(a, fold.what), axis, dtype)

    def reduceat(self, a: ArrayLike, indices: ArrayLike, axis: int = 0, dtype: Any = None, out: None = None) -> Array:
        """`reduce` over slices, from each index to the next one, of the last to the end; a single element where the
        next index is not larger.

        Args:
            a: an array.
            indices: a vector of integers.
            axis: the axis.
            dtype: the element type of the result.
            out: must be None.

        Returns:
            An array of the shape of a, with the number of indices in place of the size of the axis.

        Raises:
            ArgumentError: a function that does not make one array of two, or an `out`.
            AxisError: an axis that the array does not have.
            OutOfBoundsError: an index outside of the axis.
            ShapeError: what is no vector of integers.

        >>> import tinyxla.numpy as jnp
        >>> jnp.add.reduceat(jnp.arange(6), jnp.array([0, 4, 1]))
        Array([ 6,  4, 15], dtype=int32)
        """
        fold = self._fold("reduceat", out)
        return fold.reduceat(listed(a, fold.what), indices, axis, dtype)

    def outer(self, A: ArrayLike, B: ArrayLike, /) -> Array:
        """The function of all pairs of an element of A and one of B; the shape is A's, then B's.

        Args:
            A, B: arrays.

        Returns:
            An array of the shape of A, then that of B.

        Raises:
            ArgumentError: a function that does not make one array of two.
            DTypeError: what is no array or number.

        >>> import tinyxla.numpy as jnp
        >>> jnp.subtract.outer(jnp.array([10, 20]), jnp.array([1, 2, 3]))
        Array([[ 9,  8,  7],
               [19, 18, 17]], dtype=int32)
        """
        self._fold("outer")
        return outer_of(self, f"{self.__name__}.outer", A, B)

    def at(self, a: ArrayLike, indices: Any, b: ArrayLike | None = None, /, *, inplace: bool = True) -> Array:
        """The array with the function applied to the elements that an index names, and to those of `b`; as often as the
        index names an element. `inplace` must be False: arrays are immutable.

        Args:
            a: an array.
            indices: an index, as in `a[indices]`.
            b: an array that broadcasts against `a[indices]`, for functions of two arrays.
            inplace: must be False.

        Returns:
            An array of the shape of a.

        Raises:
            ArgumentError: `inplace` is not False, or b does not fit the function.
            IndexTypeError: indices that are neither integers nor booleans.
            OutOfBoundsError: an index outside of the array.
            ShapeError: a b that does not broadcast.

        >>> import tinyxla.numpy as jnp
        >>> jnp.add.at(jnp.zeros(3), jnp.array([0, 0, 2]), 1.0, inplace=False)
        Array([2., 0., 1.], dtype=float32)
        """
        what = f"{self.__name__}.at"
        if inplace:
            raise ArgumentError(f"{what}: arrays are immutable; pass inplace=False and use the result.")
        if self._nout != 1 or self._nin not in (1, 2) or (b is None) != (self._nin == 1):
            raise ArgumentError(
                f"{what}: takes one array and an index, and a second array if the function does; but the function has "
                f"{self._nin} arguments and {self._nout} results, and b is {'not ' if b is None else ''}given."
            )
        return updated_at(self, what, a, indices, b)

    def _fold(self, method: str, out: Any = None) -> Fold:
        what = f"{self.__name__}.{method}"
        refuse_out(what, out)
        if (self._nin, self._nout) != (2, 1):
            raise ArgumentError(
                f"{what}: needs a function of two arrays with one result, but this one has {self._nin} and "
                f"{self._nout}."
            )
        return Fold(what, self.__name__ if self._is_own else "", self, self._identity)


if TYPE_CHECKING:

    class UnaryUfunc(Unary, ufunc):
        """An element-wise function of one array, with the methods of ufuncs."""

    class BinaryUfunc(Binary, ufunc):
        """An element-wise function of two arrays, with the methods of ufuncs."""


@overload
def of_elements(function: Unary, name: str, nin: Literal[1], identity: Any = None) -> UnaryUfunc: ...
@overload
def of_elements(
    function: Binary | Callable[..., Array], name: str, nin: Literal[2], identity: Any = None
) -> BinaryUfunc: ...
def of_elements(function: Callable[..., Any], name: str, nin: int, identity: Any = None) -> Any:
    """A ufunc that costs as little to call as the function itself: it is called in place of a method."""
    namespace = {"__call__": staticmethod(function), "__reduce__": lambda self: name, "_is_own": True}
    found: Any = type("ufunc", (ufunc,), namespace)(function, nin, 1, name=name, identity=identity)
    found.__module__ = "tinyxla.numpy"
    found.__wrapped__ = function  # for `inspect.signature`
    return found


@boundary
def frompyfunc(func: Callable[..., Any], /, nin: int, nout: int, *, identity: Any = None) -> ufunc:
    """The ufunc of a function of scalars, which is traced: it is applied to all elements at once.

    Args:
        func: takes `nin` arrays without dimensions, and gives an array, or a tuple of `nout` ones.
        nin: the number of arguments.
        nout: the number of results.
        identity: the value that changes no other one, if there is one.

    Returns:
        A ufunc.

    Raises:
        ArgumentError: numbers of arguments and results that do not fit the function.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> shifted = jnp.frompyfunc(lambda x, y: x + 10 * y, 2, 1, identity=0)
        >>> shifted.reduce(jnp.arange(4))
        Array(60, dtype=int32)
    """
    function_of("frompyfunc", "func", func)
    takes, gives = count_of("frompyfunc", "nin", nin), count_of("frompyfunc", "nout", nout)
    mapped = vectorize(func)
    name = getattr(func, "__name__", type(func).__name__)

    def call(*args: Any) -> Any:
        if len(args) != takes:
            raise ArgumentError(f"{name}: takes {takes} arrays, as frompyfunc was told, but got {len(args)}.")
        found = mapped(*args)
        count = len(found) if isinstance(found, (tuple, list)) else 1
        if count != gives:
            raise ArgumentError(f"{name}: gives {count} results, but frompyfunc was told that there are {gives}.")
        return found

    call.__doc__ = func.__doc__
    return _OfScalars(call, takes, gives, name=name, identity=identity, scalar=func)


class _OfScalars(ufunc):
    """What `frompyfunc` makes: two of one function are equal."""

    def __init__(self, call: Any, nin: int, nout: int, *, name: str, identity: Any, scalar: Any) -> None:
        super().__init__(call, nin, nout, name=name, identity=identity)
        self._scalar = scalar

    def _key(self) -> tuple[Any, ...]:
        return self._scalar, *super()._key()[1:]

    def __reduce__(self) -> Any:
        return partial(frompyfunc, identity=self._identity), (self._scalar, self._nin, self._nout)


# --- folds ------------------------------------------------------------------------------------------------------------


def _reduced_bits(op: Any, x: Array, axes: tuple[int, ...]) -> Array:
    if x.dtype.kind not in "biu":
        raise DTypeError(f"A fold of bits takes integers and booleans, but got an array of {x.dtype.name}.")
    return op(x, axes)


def _log_sum_exp(base: float, x: Array, axes: tuple[int, ...]) -> Array:
    """log(sum(base ** x)) in that base, relative to the largest element."""
    largest = reductions.max(x, axes, keepdims=True, initial=-np.inf)
    finite = ops.select(ops.is_finite(largest), largest, like(0, largest))
    finite = movement.broadcast_in_dim(finite, x.shape, tuple(range(x.ndim)))
    scale = like(np.log(base), x)
    total = reductions.sum(ops.exp(ops.mul(ops.sub(x, finite), scale)), axes)
    first = reductions.max(finite, axes, initial=-np.inf)
    return ops.add(ops.div(ops.log(total), like(np.log(base), total)), first)


_REDUCED: dict[str, Callable[[Array, tuple[int, ...]], Array]] = {
    "logical_and": reductions.all,
    "logical_or": reductions.any,
    "logical_xor": lambda x, axes: reduction.reduce_xor(x.astype(bool), axes),
    "bitwise_and": partial(_reduced_bits, reduction.reduce_and),
    "bitwise_or": partial(_reduced_bits, reduction.reduce_or),
    "bitwise_xor": partial(_reduced_bits, reduction.reduce_xor),
    "logaddexp": partial(_log_sum_exp, np.e),
    "logaddexp2": partial(_log_sum_exp, 2.0),
}
_WITH_OPTIONS: dict[str, Callable[..., Array]] = {"add": reductions.sum, "multiply": reductions.prod}
_EXTREMA: dict[str, Callable[..., Array]] = {"maximum": reductions.max, "minimum": reductions.min}


class Fold:
    """The folds of a function of two arrays: `name` is that of a function with a reduction of its own, or empty."""

    def __init__(self, what: str, name: str, function: Callable[..., Any], identity: Any = None) -> None:
        self.what, self.name, self.function, self.identity = what, name, function, identity

    def reduce(self, x: Array, axis: Axis, dtype: Any, keepdims: bool, initial: Any, where: Any) -> Array:
        """`ufunc.reduce` of an array."""
        if self.name in _WITH_OPTIONS:
            options = {"keepdims": keepdims, "initial": initial, "where": where}
            return _WITH_OPTIONS[self.name](x, axis, dtype, **options)
        x = self._converted(x, dtype)
        if self.name in _EXTREMA:
            return _EXTREMA[self.name](x, axis, keepdims=keepdims, initial=initial, where=where)
        if self.name in _REDUCED:
            return self._reduced(x, canonical_axes(self.what, axis, x.ndim), keepdims, initial, where)
        return self._in_order(x, axis, keepdims, initial, where)

    def _reduced(self, x: Array, axes: tuple[int, ...], keepdims: bool, initial: Any, where: Any) -> Array:
        """A reduction by an operation, of an array whose masked elements are the identity."""
        if self.name.startswith("logaddexp"):
            x = self.function(x, -np.inf)  # which makes floats of integers
        if where is not None:
            x = choose(where, x, like(self.identity, x))
        found = _REDUCED[self.name](x, axes)
        if initial is not None:
            found = self.function(initial, found)
        return expand_dims(found, axes) if keepdims else found

    def _in_order(self, x: Array, axis: Any, keepdims: bool, initial: Any, where: Any) -> Array:
        mask = None if where is None else broadcast_to_shape(self.what, array_of(where, self.what), x.shape)
        rank = x.ndim
        if axis is None:
            x, mask, along = x.reshape(-1), None if mask is None else mask.reshape(-1), 0
        else:
            along = canonical_axis(self._one_axis(axis), rank, self.what)
        rows = moveaxis(x, along, 0)
        begin = self.identity if initial is None else initial
        if mask is not None and begin is None:
            raise ArgumentError(f"{self.what}: the function has no identity; with where, give initial.")
        if len(rows) == 0 and begin is None:
            raise ArgumentError(
                f"{self.what}: there is nothing to reduce along axis {along}; its size must be positive, or give "
                "initial."
            )
        dtype = self._result_type(x)
        if begin is None:
            start, rows = cast(rows[0], dtype, False), rows[1:]
        else:
            start = movement.broadcast_in_dim(cast(array_of(begin, self.what), dtype, False), rows.shape[1:], ())
        found = self._folded(start, rows, None if mask is None else moveaxis(mask, along, 0))
        if not keepdims:
            return found
        return expand_dims(found, tuple(range(rank)) if axis is None else along)

    def _converted(self, x: Array, dtype: Any) -> Array:
        """The array in the type that is folded: booleans are counted, and truth values combined."""
        if dtype is not None:
            x = cast(x, python_dtype(dtype), False)
        if self.name in ("add", "multiply") and x.dtype.kind == "b":
            return cast(x, default_int(), False)
        return x.astype(bool) if self.name.startswith("logical_") else x

    def _one_axis(self, axis: Any) -> int:
        if is_several(axis):
            axes = tuple(axis)
            if len(axes) != 1:
                raise ArgumentError(
                    f"{self.what}: only an integer axis may be given, since the order of several matters, but got "
                    f"{axes}."
                )
            return integer_of(self.what, "axis", axes[0])
        return integer_of(self.what, "axis", axis)

    def _result_type(self, x: Array) -> np.dtype[Any]:
        element = ShapeDtypeStruct((), x.dtype)
        return eval_shape(self.function, element, element).dtype

    def _step(self, total: Any, row: Any, mask: Any = None) -> Any:
        found = cast(self.function(total, row), total.dtype, False)
        return found if mask is None else choose(mask, found, total)

    def _folded(self, start: Any, rows: Any, mask: Any) -> Any:
        if len(rows) <= _MAX_UNROLLED_APPLICATIONS:
            masks = [None] * len(rows) if mask is None else list(mask)
            return reduce(lambda total, row: self._step(total, *row), zip(rows, masks, strict=True), start)
        return _scan(lambda total, row: (self._step(total, *row), None), start, (rows, mask))[0]

    def accumulate(self, x: Array, axis: Any, dtype: Any) -> Array:
        """`ufunc.accumulate` of an array."""
        if axis is None or (is_several(axis) and len(tuple(axis)) != 1):
            raise ArgumentError(f"{self.what}: axis is an integer, but got {axis}.")
        along = canonical_axis(self._one_axis(axis), x.ndim, self.what)
        x = self._converted(x, dtype)
        if self.name in _MONOIDS and x.dtype.kind != "b":
            return windows.cumulative_monoid(x, along, self.name)
        rows = moveaxis(x, along, 0)
        kind = self._result_type(x)
        if len(rows) == 0:
            return cast(x, kind, False)
        start = cast(rows[0], kind, False)
        if len(rows) <= _MAX_UNROLLED_APPLICATIONS:
            found = stack(list(itertools.accumulate([start, *rows[1:]], self._step)))
        else:
            later = _scan(lambda total, row: (self._step(total, row),) * 2, start, rows[1:])[1]
            found = concatenate([start[None], later])
        return moveaxis(found, 0, along)

    def reduceat(self, x: Array, indices: Any, axis: int, dtype: Any) -> Array:
        """`ufunc.reduceat` of an array."""
        along = canonical_axis(integer_of(self.what, "axis", axis), x.ndim, self.what)
        rows = moveaxis(self._converted(x, dtype), along, 0)
        starts = listed(indices, self.what)
        if starts.ndim != 1 or starts.dtype.kind not in "iu":
            raise ShapeError(
                f"{self.what}: indices must be a vector of integers, but got shape {starts.shape} of "
                f"{starts.dtype.name}."
            )
        try:
            known = value_of(starts.concrete(self.what)).tolist()
        except ConcretizationError:
            return moveaxis(self._over_traced_slices(rows, starts), 0, along)
        return moveaxis(self._over_slices(rows, known), 0, along)

    def _over_slices(self, rows: Array, starts: Sequence[int]) -> Array:
        beyond = [k for k in starts if not 0 <= k < len(rows)]
        if beyond:
            raise OutOfBoundsError(f"{self.what}: indices must be from 0 to {len(rows) - 1}, but got {beyond[0]}.")
        fold = Fold(self.what, self.name, self.function, self.identity if self.name else None)
        parts = [
            fold.reduce(rows[i:j] if i < j else rows[i : i + 1], 0, None, False, None, None)
            for i, j in zip(starts, [*starts[1:], len(rows)], strict=False)
        ]
        return stack(parts) if parts else cast(rows[:0], self._result_type(rows), False)

    def _over_traced_slices(self, rows: Array, starts: Array) -> Array:
        """All slices at once: each row is folded into those that have it."""
        kind = self._result_type(rows)
        first = cast(rows.at[starts].get(mode="clip"), kind, False)
        end = movement.full(len(rows), starts.dtype, (1,))
        ends = concatenate([starts[1:], end]) if len(starts) else starts
        shape = (len(starts), *(1,) * (rows.ndim - 1))

        def step(total: Any, numbered: Any) -> Any:
            number, row = numbered
            inside = ops.and_(ops.gt(like_number(number, starts), starts), ops.lt(like_number(number, starts), ends))
            row = movement.broadcast_in_dim(row, total.shape, tuple(range(1, total.ndim)))
            return self._step(total, row, inside.reshape(shape)), None

        numbers = cast(array_of(np.arange(len(rows), dtype=np.int32), self.what), starts.dtype, False)
        return _scan(step, first, (numbers, rows))[0]


def like_number(number: Any, x: Array) -> Array:
    """A scalar stretched to the shape of a vector."""
    return movement.broadcast_in_dim(number, x.shape, ())


def _scan(step: Callable[..., Any], start: Any, rows: Any) -> Any:
    from tinyxla.lax.loops.control_flow import scan  # here, since that package is made of functions of this one

    return scan(step, start, rows)


# --- outer products and updates ---------------------------------------------------------------------------------------


def outer_of(function: Callable[..., Any], what: str, a: ArrayLike, b: ArrayLike) -> Any:
    """A function of two arrays of all pairs of elements."""
    x, y = listed(a, what), listed(b, what)
    rank = x.ndim + y.ndim
    shapes = (*x.shape, *(1,) * y.ndim), (*(1,) * x.ndim, *y.shape)
    first, second = (v if rank == v.ndim else movement.reshape_to(v, s) for v, s in zip((x, y), shapes, strict=True))
    return function(first, second)


def updated_at(function: Callable[..., Any], what: str, a: ArrayLike, indices: Any, b: ArrayLike | None) -> Array:
    """`ufunc.at` as an updated copy; of a function that is no update of XLA's, one element after the other."""
    x = listed(a, what)
    if b is None:
        return At(x)[indices].apply(function)
    update = _UPDATES.get(getattr(function, "__name__", ""))
    is_own = not isinstance(function, ufunc) or function._is_own  # pyright: ignore[reportPrivateUsage]
    if update is not None and is_own and not (update == "subtract" and x.dtype.kind == "b"):
        return getattr(At(x)[indices], update)(b)
    count = x.size
    numbers = array_of(np.arange(count, dtype=np.int32).reshape(x.shape), what)
    places = At(numbers)[indices].get(mode="fill", fill_value=count)
    values = broadcast_to_shape(what, listed(b, what), places.shape)

    def step(flat: Any, pair: Any) -> Any:
        place, value = pair
        old = At(flat)[place].get(mode="clip")
        return At(flat)[place].set(cast(function(old, value), flat.dtype, False), mode="drop"), None

    return _scan(step, x.reshape(-1), (places.reshape(-1), values.reshape(-1)))[0].reshape(x.shape)


# --- the ufuncs of this package ---------------------------------------------------------------------------------------

add = of_elements(arithmetic.add, "add", 2, 0)
subtract = of_elements(arithmetic.subtract, "subtract", 2)
multiply = of_elements(arithmetic.multiply, "multiply", 2, 1)
maximum = of_elements(arithmetic.maximum, "maximum", 2)
minimum = of_elements(arithmetic.minimum, "minimum", 2)
negative = of_elements(arithmetic.negative, "negative", 1)
bitwise_and = of_elements(arithmetic.bitwise_and, "bitwise_and", 2, -1)
bitwise_or = of_elements(arithmetic.bitwise_or, "bitwise_or", 2, 0)
bitwise_xor = of_elements(arithmetic.bitwise_xor, "bitwise_xor", 2, 0)
logical_and = of_elements(arithmetic.logical_and, "logical_and", 2, True)
logical_or = of_elements(arithmetic.logical_or, "logical_or", 2, False)
logical_xor = of_elements(arithmetic.logical_xor, "logical_xor", 2, False)
logaddexp = of_elements(transcendental.logaddexp, "logaddexp", 2, -np.inf)
logaddexp2 = of_elements(transcendental.logaddexp2, "logaddexp2", 2, -np.inf)
