"""Functions of the host as operations: in C, compiled by Numba, or in Python.

>>> from tinyxla import ShapeDtypeStruct
>>> from tinyxla.ffi import ffi_call, register_ffi_target
>>> import numpy as np
>>> register_ffi_target("example.cube", lambda x: x**3)
>>> ffi_call("example.cube", ShapeDtypeStruct((2,), "float32"))(np.array([2.0, 3.0]))
Array([ 8., 27.], dtype=float32)
"""

from __future__ import annotations

import ctypes
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from tinyxla.api.functions import ShapeDtypeStruct, arrays_of
from tinyxla.errors import ArgumentError
from tinyxla.ops.host import custom_call
from tinyxla.ops.host.custom_call import CustomCall, Target
from tinyxla.shapes import AnyShape, Shape, TupleShape, element_type
from tinyxla.tracing import pytrees

__all__ = ["ShapeDtypeStruct", "ffi_call", "register_ffi_target"]


def register_ffi_target(
    name: str,
    fn: Any,
    *,
    jvp: Callable[..., Any] | None = None,
    vjp: Callable[..., Any] | None = None,
    batch: Callable[..., Any] | None = None,
) -> None:
    """Give a function a name for `ffi_call`, and for custom calls in HLO text.

    Args:
        name: another function with the name is replaced; what has been compiled calls the function that has the name
            when it runs.
        fn: a C function `void f(void *out, void **in)` - by its address, as a ctypes function or a Numba `cfunc` - or a
            Python function of NumPy arrays, which gives an array or a tuple of arrays. `in` has a pointer to each
            operand, `out` is the memory of the result, or has a pointer to each of several; all are row-major. A Python
            function with a parameter `backend_config` is given that text.
        jvp: `jvp(tangents, ans, *operands)` gives the result's tangent; a tangent may be None, which is zero.
        vjp: `vjp(g, ans, *operands)` gives the operands' cotangents (None: zero), from the result's, `g`.
        batch: `batch(size, operands, axes)` gives the result for operands of which some have one more dimension, of
            that size, at their entry of `axes` (None: none), and the axis at which the result has it. For several
            results `ans`, `g`, tangents, results and axes are tuples.

    Raises:
        ArgumentError: `fn` is none of these.

    >>> import numpy as np
    >>> from tinyxla import ShapeDtypeStruct, ffi
    >>> ffi.register_ffi_target("docs.cumsum", lambda x: np.cumsum(x, dtype=x.dtype))
    >>> ffi.ffi_call("docs.cumsum", ShapeDtypeStruct((3,), "float32"))(np.float32([1, 2, 3]))
    Array([1., 3., 6.], dtype=float32)
    """
    address = _address(fn)
    if address is not None:
        compute = custom_call.native(address)
    elif callable(fn):
        compute = _python(fn)
    else:
        raise ArgumentError(
            "register_ffi_target: the function must be an address, a ctypes function, a Numba cfunc or a Python "
            f"function, but is {fn!r}."
        )
    custom_call.targets[name] = Target(compute, jvp, vjp, batch)


def _address(fn: Any) -> int | None:
    if isinstance(fn, int):
        return fn
    if hasattr(fn, "restype"):  # a ctypes function, whose type has no public name
        return ctypes.cast(fn, ctypes.c_void_p).value
    found = getattr(fn, "address", None)
    return found if isinstance(found, int) else None


def _python(fn: Callable[..., Any]) -> Callable[..., Any]:
    try:
        configured = "backend_config" in inspect.signature(fn).parameters
    except ValueError:  # functions in C may have no signature
        configured = False

    def compute(*operands: Any, attributes: CustomCall) -> Any:
        own = [np.array(x) for x in operands]  # the function may keep them, and the program's memory is used again
        found = fn(*own, backend_config=attributes.backend_config) if configured else fn(*own)
        if isinstance(found, (tuple, list)):
            return tuple(map(np.array, found))  # the function may write to its own results later
        return np.array(found)

    return compute


def ffi_call(
    target_name: str, result_shape_dtypes: Any, *, has_side_effect: bool = False, backend_config: str = ""
) -> Callable[..., Any]:
    """A registered function as a function of arrays.

    Args:
        target_name: the name it has been registered with.
        result_shape_dtypes: a `ShapeDtypeStruct` (or anything with shape and dtype), or a pytree of such.
        has_side_effect: it runs even if nothing needs its result, and calls with equal operands stay several.
        backend_config: a text for the function.

    Returns:
        A function of pytrees of arrays with such a result. Derivatives and `vmap` need the rules the function was
        registered with.

    Raises:
        AttributeValueError: when it runs, if there is no function with that name.

    >>> import numpy as np
    >>> from tinyxla import ShapeDtypeStruct, ffi
    >>> ffi.register_ffi_target("docs.divmod", lambda x, y: np.divmod(x, y))
    >>> like = ShapeDtypeStruct((2,), "int32")
    >>> ffi.ffi_call("docs.divmod", (like, like))(np.int32([7, -7]), np.int32([2, 2]))
    (Array([ 3, -4], dtype=int32), Array([1, 1], dtype=int32))
    """
    leaves, tree = pytrees.flatten(result_shape_dtypes)
    shapes: list[AnyShape] = [Shape(element_type(x.dtype), tuple(x.shape)) for x in leaves]
    single = len(leaves) == 1
    shape = shapes[0] if single else TupleShape(tuple(shapes))

    def function(*args: Any) -> Any:
        operands, _ = arrays_of(args, f"ffi_call of {target_name}: argument ")
        found = custom_call.custom_call(
            *operands,
            custom_call_target=target_name,
            shape=shape,
            custom_call_has_side_effect=has_side_effect,
            backend_config=backend_config,
        )
        return pytrees.unflatten(tree, [found] if single else found)

    return function


def __dir__() -> list[str]:
    return __all__
