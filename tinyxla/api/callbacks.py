"""Python functions that programs call while they run: for their results, or for what they do.

They are called with NumPy arrays of their own, also under `jit`, in loops and in branches, and may use whatever Python
has: other libraries, files, compiled functions of this library. An exception ends the program and reaches the caller.
"""

from __future__ import annotations

import contextlib
import reprlib
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

import numpy as np

from tinyxla.api.functions import Function, argument_names, arrays_of, check_callable
from tinyxla.errors import ArgumentError, AttributeValueError, CallbackError, DTypeError
from tinyxla.ops.host import callback as ops
from tinyxla.shapes import Shape, element_type
from tinyxla.tracing import pytrees
from tinyxla.tracing.cache_keys import hashable
from tinyxla.tracing.config import config
from tinyxla.tracing.device import check_placement
from tinyxla.tracing.promotion import as_array, checked_scalar, default_dtype
from tinyxla.util.tracebacks import boundary

NumPyArray = np.ndarray[Any, Any]


class Host:
    """A function of pytrees as one of the arrays among their leaves. The others are `static`, by their numbers.

    Equal if function and static leaves are, so that what is traced again is not compiled again. `result` is the
    structure of what the function gives; with None that does not matter. `given` makes of arrays what it is given.
    """

    def __init__(
        self,
        what: str,
        function: Function,
        structure: pytrees.TreeDef,
        static: Mapping[int, Any],
        result: pytrees.TreeDef | None,
        given: Callable[[NumPyArray], Any] | None = None,
    ) -> None:
        check_callable(what, function)
        self._what = what
        self._function = function
        self._structure = structure
        self._static = static
        self._given = given
        self._result = result
        self._names = [] if result is None else pytrees.leaf_names(pytrees.with_placeholders(result))
        leaves = tuple((k, hashable(x)) for k, x in static.items())
        self._key = (what, hashable(function), structure, leaves, result)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Host) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __str__(self) -> str:
        code = getattr(self._function, "__code__", None)
        names = (getattr(self._function, each, None) for each in ("__qualname__", "__name__"))  # ufuncs have the second
        name = next(filter(None, names), str(self._function))
        return f"{self._what} of {name}" + (f" ({code.co_filename}:{code.co_firstlineno})" if code else "")

    def __call__(self, operands: Sequence[NumPyArray], shapes: tuple[Shape, ...]) -> tuple[NumPyArray, ...]:
        arrays = iter(operands if self._given is None else map(self._given, operands))
        count = self._structure.num_leaves
        leaves = [self._static[k] if k in self._static else next(arrays) for k in range(count)]
        args, kwargs = pytrees.unflatten(self._structure, leaves)
        found = self._function(*args, **kwargs)
        if self._result is None:
            return ()
        results, tree = pytrees.flatten(found)
        if tree != self._result and pytrees.leaf_names(found) != self._names:  # lists are as good as tuples
            raise CallbackError(
                f"{self} must give {pytrees.structure_text(self._result)}, where * stands for an array, as "
                f"result_shape_dtypes says, but it gave {pytrees.structure_text(tree)}: {reprlib.repr(found)}."
            )
        return tuple(self._array(x, shape) for x, shape in zip(results, shapes, strict=True))

    def _array(self, found: Any, shape: Shape) -> NumPyArray:
        """A result, which must be as declared. Python's numbers, and 64-bit ones where 32 bits are the default, take
        the type that is declared."""
        array = None
        try:
            if isinstance(found, (bool, int, float, complex)) and not isinstance(found, np.generic):
                least = _ORDER.index(np.asarray(found).dtype.kind)
                if least <= _ORDER.index(_KINDS[shape.element_type.kind]):
                    found = checked_scalar(found, shape.dtype)
            array = np.asarray(found)
            if default_dtype(array.dtype) == default_dtype(shape.dtype):
                array = array.astype(shape.dtype, copy=False)
        except (TypeError, ValueError):
            pass
        if array is None or array.dtype != shape.dtype or array.shape != shape.dimensions:
            raise CallbackError(
                f"{self} must give {shape}, as result_shape_dtypes says, but it gave {_in_words(found)}; convert "
                "the result, or declare another."
            )
        return array


def _in_words(found: Any) -> str:
    """A result for an error: its type and shape, or itself where it is no array."""
    try:
        return str(Shape.of(np.asarray(found)))
    except (TypeError, ValueError):
        return f"{reprlib.repr(found)} of type {type(found).__name__}"


_ORDER = "bifc"
_KINDS = {"pred": "b", "signed": "i", "unsigned": "i", "float": "f", "complex": "c"}


def _declared(what: str, result_shape_dtypes: Any) -> tuple[tuple[Shape, ...], pytrees.TreeDef]:
    """The shapes of a pytree of `ShapeDtypeStruct`s or arrays."""
    leaves, tree = pytrees.flatten(result_shape_dtypes)
    for leaf in leaves:
        if not (hasattr(leaf, "shape") and hasattr(leaf, "dtype")):
            raise ArgumentError(
                f"{what}: result_shape_dtypes must be a pytree of ShapeDtypeStructs or arrays, but has {leaf!r} of "
                f"type {type(leaf).__name__}."
            )
        is_numpy = isinstance(leaf, (np.ndarray, np.generic))
        if config.explicit_x64_dtypes != "allow" and not is_numpy and default_dtype(leaf.dtype) != leaf.dtype:
            raise DTypeError(
                f"{what}: result_shape_dtypes has the element type {leaf.dtype}, but without the option enable_x64 "
                f"programs have 32 bits; declare {default_dtype(leaf.dtype)}."
            )
    types = [default_dtype(x.dtype) if isinstance(x, (np.ndarray, np.generic)) else x.dtype for x in leaves]
    return tuple(Shape(element_type(t), tuple(x.shape)) for x, t in zip(leaves, types, strict=True)), tree


def _call(
    what: str, function: Function, result_shape_dtypes: Any, args: Any, kwargs: dict[str, Any], **attributes: Any
) -> Any:
    shapes, tree = _declared(what, result_shape_dtypes)
    leaves, structure = arrays_of((args, kwargs), f"{what}: argument ", lambda: argument_names(args, kwargs))
    host = Host(what, function, structure, {}, tree)
    return pytrees.unflatten(tree, ops.callback(*leaves, function=host, shapes=shapes, **attributes))


class _Copies(threading.local):
    """Whether a copy of a function that `pmap` maps is traced: each calls a function by itself."""

    are_traced = False


_copies = _Copies()


@contextlib.contextmanager
def for_each_copy() -> Generator[None]:
    """Inside, `pure_callback` is called for each example where it does not say how it is mapped."""
    outer = _copies.are_traced
    _copies.are_traced = True
    try:
        yield
    finally:
        _copies.are_traced = outer


@boundary
def pure_callback(
    callback: Function,
    result_shape_dtypes: Any,
    *args: Any,
    sharding: Any = None,
    vmap_method: str | None = None,
    **kwargs: Any,
) -> Any:
    """The result of a Python function that has no side effects, also inside compiled functions.

    It may run more or less often than it is called: not at all if nothing needs the result, once for equal calls.

    Args:
        callback: of pytrees of NumPy arrays; gives arrays or numbers.
        result_shape_dtypes: what it gives: a pytree of `ShapeDtypeStruct`s, or of arrays that are like the results.
        args, kwargs: pytrees of arrays for it.
        sharding: None, or the one device there is.
        vmap_method: what `vmap` does: "sequential" (or "sequential_unrolled") calls it for each example; with
            "expand_dims" it is called once, with a new first axis of all arrays, which is of size 1 where an argument
            is not mapped over, and gives results with that axis; with "broadcast_all" that axis has one size in all
            arguments; with "legacy_vectorized" what is not mapped over stays as it is.

    Returns:
        A pytree of arrays, as `result_shape_dtypes` says.

    Raises:
        ArgumentError: what it gives is not as declared; `vmap` without a `vmap_method`.
        DifferentiationError: a derivative is wanted; `custom_jvp` and `custom_vjp` can give the function one.

    >>> import numpy as np
    >>> from tinyxla import pure_callback
    >>> def on_host(x):
    ...     return np.fft.fft(x).real
    >>> pure_callback(on_host, np.zeros(2, np.float32), np.array([1.0, 2.0]))
    Array([ 3., -1.], dtype=float32)
    """
    check_placement("pure_callback: sharding", sharding)
    if vmap_method is not None and vmap_method not in ops.VMAP_METHODS:
        raise AttributeValueError(
            f"pure_callback: vmap_method must be one of {', '.join(map(repr, ops.VMAP_METHODS))} or None, but is "
            f"{vmap_method!r}."
        )
    method = vmap_method or ("sequential" if _copies.are_traced else None)
    return _call("pure_callback", callback, result_shape_dtypes, args, kwargs, vmap_method=method)


@boundary
def io_callback(
    callback: Function, result_shape_dtypes: Any, *args: Any, sharding: Any = None, ordered: bool = False, **kwargs: Any
) -> Any:
    """The result of a Python function that has side effects, also inside compiled functions.

    It runs exactly once wherever a program that calls it comes by, in the order of the program: once per step of a
    loop, in the branch that is taken, and with `vmap` once for each example.

    Args:
        callback: of pytrees of NumPy arrays; gives arrays or numbers.
        result_shape_dtypes: what it gives: a pytree of `ShapeDtypeStruct`s, or of arrays that are like the results;
            None for nothing.
        args, kwargs: pytrees of arrays for it.
        sharding: None, or the one device there is.
        ordered: the order matters, so that mapping over examples by `vmap` is an error. (Calls stay in order in any
            case.)

    Returns:
        A pytree of arrays, as `result_shape_dtypes` says.

    Raises:
        ArgumentError: what it gives is not as declared; `vmap` of an ordered call.
        DifferentiationError: a derivative is wanted.

    >>> from tinyxla import io_callback
    >>> seen = []
    >>> io_callback(lambda x: seen.append(float(x)), None, 2.0)
    >>> seen
    [2.0]
    """
    check_placement("io_callback: sharding", sharding)
    effects = {"custom_call_has_side_effect": True, "ordered": bool(ordered)}
    return _call("io_callback", callback, result_shape_dtypes, args, kwargs, **effects)


def look(what: str, function: Function, args: Any, kwargs: dict[str, Any], ordered: bool, given: Any = None) -> None:
    """Call a function for what it does with arguments, of which those that are no arrays are handed in as they are."""
    leaves, structure = pytrees.flatten((args, kwargs))
    arrays: list[Any] = []
    static: dict[int, Any] = {}
    for k, leaf in enumerate(leaves):
        try:
            arrays.append(as_array(leaf))
        except (TypeError, OverflowError):
            static[k] = leaf
    host = Host(what, function, structure, static, None, given)
    effects = {"custom_call_has_side_effect": True, "ordered": bool(ordered), "is_debug": True}
    ops.callback(*arrays, function=host, shapes=(), **effects)


def effects_barrier() -> None:
    """Wait until all side effects have happened. They have when the function that has them returns.

    Example:
        >>> import tinyxla as tx
        >>> tx.effects_barrier()
    """
