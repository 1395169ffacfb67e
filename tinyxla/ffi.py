"""Functions of the host as operations: in C or C++, compiled by Numba, or in Python.

>>> from tinyxla import ShapeDtypeStruct
>>> from tinyxla.ffi import ffi_call, register_ffi_target
>>> import numpy as np
>>> register_ffi_target("example.cube", lambda x: x**3)
>>> ffi_call("example.cube", ShapeDtypeStruct((2,), "float32"))(np.array([2.0, 3.0]))
Array([ 8., 27.], dtype=float32)
"""

from __future__ import annotations

import ctypes
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tinyxla.api.functions import ShapeDtypeStruct, arrays_of
from tinyxla.errors import ArgumentError, DTypeError
from tinyxla.lax import map as map_examples
from tinyxla.ops.host import custom_call
from tinyxla.ops.host.callback import VMAP_METHODS, aligned_operands
from tinyxla.ops.host.custom_call import CustomCall, Target, results_of
from tinyxla.ops.op import Axes
from tinyxla.runtime import xla_ffi
from tinyxla.shapes import AnyShape, Shape, TupleShape, element_type
from tinyxla.text.mlir.element_types import of_mlir, to_mlir
from tinyxla.text.mlir.ir import (
    Attribute,
    DenseAttr,
    DictAttr,
    FloatAttr,
    IntegerAttr,
    StringAttr,
    TensorType,
)
from tinyxla.text.mlir.printer import attribute_text
from tinyxla.text.mlir.text_parser import parse_attribute
from tinyxla.tracing import pytrees

__all__ = ["ShapeDtypeStruct", "ffi_call", "pycapsule", "register_ffi_target", "register_ffi_type"]


def register_ffi_target(
    name: str,
    fn: Any,
    platform: str = "cpu",
    api_version: int = 1,
    *,
    jvp: Callable[..., Any] | None = None,
    vjp: Callable[..., Any] | None = None,
    batch: Callable[..., Any] | None = None,
) -> None:
    """Give a function a name for `ffi_call`, and for custom calls in HLO text.

    Args:
        name: another function with the name is replaced; what has been compiled calls the function that has the name
            when it runs.
        fn: a function of one of three kinds.
            A typed handler of XLA's foreign function interface, as a PyCapsule, or a dictionary of such by the stages
            "instantiate", "prepare", "initialize" and "execute"; see `pycapsule`.
            A C function `void f(void *out, void **in)` - by its address, as a ctypes function, a Numba `cfunc`, or a
            PyCapsule with `api_version=0`. `in` has a pointer to each operand, `out` is the memory of the result, or
            has a pointer to each of several; all are row-major.
            A Python function of NumPy arrays, which gives an array or a tuple of arrays. One with a parameter
            `backend_config` is given that text.
        platform: where the function runs; one that is for other platforms than "cpu" is not registered.
        api_version: of a PyCapsule: 1 is a typed handler, 0 a C function.
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
    if platform.lower() not in ("cpu", "host"):
        return
    address = _address(fn, api_version)
    if address is not None:
        compute = custom_call.native(address)
    elif xla_ffi.is_capsule(fn) or isinstance(fn, Mapping):
        compute = _Typed(xla_ffi.handler_of(name, fn))
    elif callable(fn):
        compute = _python(fn)
    else:
        raise ArgumentError(
            "register_ffi_target: the function must be a PyCapsule, an address, a ctypes function, a Numba cfunc or a "
            f"Python function, but is {fn!r}."
        )
    custom_call.targets[name] = Target(compute, jvp, vjp, batch)


def _address(fn: Any, api_version: int) -> int | None:
    if isinstance(fn, int):
        return fn
    if api_version == 0 and xla_ffi.is_capsule(fn):
        return xla_ffi.address_in(fn)
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


class _Typed:
    """A typed handler as a function of arrays; it has an instance for each text of attributes."""

    def __init__(self, handler: xla_ffi.Handler) -> None:
        self._instance = functools.cache(lambda text: handler.instance(_values_of(text)))

    def __call__(self, *operands: Any, attributes: CustomCall) -> Any:
        arguments, results = custom_call.memory_of(operands, attributes)
        self._instance(attributes.backend_config)(arguments, results)
        return tuple(results) if isinstance(attributes.shape, TupleShape) else results[0]


def pycapsule(funcptr: Any) -> Any:
    """A C function as a PyCapsule, for `register_ffi_target`.

    Args:
        funcptr: a function of a library that ctypes has loaded, or an address.

    Returns:
        A PyCapsule.

    Raises:
        ArgumentError: what has no address.

    >>> import ctypes
    >>> from tinyxla.ffi import pycapsule
    >>> type(pycapsule(ctypes.CFUNCTYPE(None)(print))).__name__
    'PyCapsule'
    """
    address = _address(funcptr, 1)
    if address is None:
        raise ArgumentError(f"pycapsule: {funcptr!r} is no C function; give one of a library loaded by ctypes.")
    return xla_ffi.capsule(address)


def register_ffi_type(name: str, type_registration: Mapping[str, Any], platform: str = "cpu") -> None:
    """Give a type of states, which the stages of typed handlers share, its number.

    Args:
        name: the name of the type.
        type_registration: PyCapsules by name: "type_id" points to the `XLA_FFI_TypeId` that gets the number.
        platform: where it is used; other platforms than "cpu" are passed by.

    Raises:
        ArgumentError: there is no "type_id".

    >>> import ctypes
    >>> from tinyxla import ffi
    >>> number = ctypes.c_int64()
    >>> ffi.register_ffi_type("docs.State", {"type_id": ffi.pycapsule(ctypes.addressof(number))})
    >>> number.value > 0
    True
    """
    if platform.lower() not in ("cpu", "host"):
        return
    if not xla_ffi.is_capsule(type_registration.get("type_id")):
        raise ArgumentError(f"register_ffi_type: {name} needs a PyCapsule 'type_id', but has {type_registration!r}.")
    xla_ffi.register_type(name, type_registration["type_id"])


# --- calls ------------------------------------------------------------------------------------------------------------


def ffi_call(
    target_name: str,
    result_shape_dtypes: Any,
    *,
    has_side_effect: bool = False,
    vmap_method: str | None = None,
    input_output_aliases: Mapping[int, int] | None = None,
    backend_config: str = "",
) -> Callable[..., Any]:
    """A registered function as a function of arrays.

    Args:
        target_name: the name it has been registered with.
        result_shape_dtypes: a `ShapeDtypeStruct` (or anything with shape and dtype), or a pytree of such.
        has_side_effect: it runs even if nothing needs its result, and calls with equal operands stay several.
        vmap_method: what `vmap` does, as for `pure_callback`: "sequential" calls the function for each example;
            "expand_dims" and "broadcast_all" call it once, with one more dimension in front of all arrays, of size 1 or
            of the examples' number where an operand is not mapped. By default the function's own rule decides.
        input_output_aliases: for arguments, by their number, the number of the result in whose memory a function in C
            finds the argument.
        backend_config: a text for the function.

    Returns:
        A function of pytrees of arrays with such a result. Its keywords are attributes for a typed handler: truth
        values, integers and floats (64 bits wide, or of a NumPy type), strings, arrays, and dictionaries of them.
        Derivatives need the rules the function was registered with.

    Raises:
        KernelError: when it runs, if there is no function with that name, or by an error of a handler.
        ArgumentError: an unknown `vmap_method`; when it is called, aliases of another shape or type.
        DTypeError: an attribute of another kind.

    Source: section "CustomCall" of the XLA documents, and "XLA Custom Calls" for typed handlers.

    >>> import numpy as np
    >>> from tinyxla import ShapeDtypeStruct, ffi
    >>> ffi.register_ffi_target("docs.divmod", lambda x, y: np.divmod(x, y))
    >>> like = ShapeDtypeStruct((2,), "int32")
    >>> ffi.ffi_call("docs.divmod", (like, like))(np.int32([7, -7]), np.int32([2, 2]))
    (Array([ 3, -4], dtype=int32), Array([1, 1], dtype=int32))
    """
    if vmap_method is not None and vmap_method not in VMAP_METHODS:
        raise ArgumentError(
            f"ffi_call: vmap_method must be one of {', '.join(map(repr, VMAP_METHODS))} or None, but is "
            f"{vmap_method!r}."
        )
    leaves, tree = pytrees.flatten(result_shape_dtypes)
    shapes = [Shape(element_type(x.dtype), tuple(x.shape)) for x in leaves]

    def function(*args: Any, **attributes: Any) -> Any:
        operands, _ = arrays_of(args, f"ffi_call of {target_name}: argument ")
        text = attribute_text(_dictionary(target_name, attributes)) if attributes else backend_config
        rule = None if vmap_method is None else _MappedBy(vmap_method)
        aliases = _aliases(target_name, input_output_aliases or {}, list(map(Shape.of, operands)), shapes)
        found = custom_call.targets.get(target_name)
        is_typed = bool(attributes) or (found is not None and isinstance(found.compute, _Typed))
        version = "TYPED_FFI" if is_typed else "ORIGINAL"
        call = CustomCall(target_name, _shape(shapes), has_side_effect, text, (), rule, aliases, version)
        return pytrees.unflatten(tree, _called(call, operands))

    return function


def _aliases(
    target: str, aliases: Mapping[int, int], operands: Sequence[AnyShape], results: Sequence[Shape]
) -> tuple[tuple[tuple[int, ...], int], ...]:
    """The pairs of a result's place and an operand that share memory."""
    for operand, result in aliases.items():
        what = f"ffi_call of {target!r}: input_output_aliases has {operand}: {result}, but "
        for kind, number, shapes in (("arguments", operand, operands), ("results", result, results)):
            if not 0 <= number < len(shapes):
                raise ArgumentError(f"{what}the {kind} are {len(shapes)}, counted from 0.")
        if operands[operand] != results[result]:
            raise ArgumentError(
                f"{what}argument {operand} is {operands[operand]} and result {result} is {results[result]}; both must "
                "have one shape and type."
            )
    return tuple(((result,) if len(results) > 1 else (), operand) for operand, result in aliases.items())


def _shape(shapes: Sequence[Shape]) -> AnyShape:
    return shapes[0] if len(shapes) == 1 else TupleShape(tuple(shapes))


def _called(call: CustomCall, operands: Sequence[Any]) -> Sequence[Any]:
    """The results of a call, one or several."""
    found = custom_call.custom_call(*operands, **call._asdict())
    return found if isinstance(call.shape, TupleShape) else [found]


@dataclass(frozen=True)
class _MappedBy:
    """The batch rule of a call with a `vmap_method`."""

    method: str

    def __call__(self, size: int, operands: tuple[Any, ...], axes: Axes, call: CustomCall) -> Any:
        mapped = [a is not None for a in axes]
        values = aligned_operands(self.method, size, operands, axes)
        is_single = not isinstance(call.shape, TupleShape)
        if self.method.startswith("sequential"):

            def of_example(rows: Sequence[Any]) -> Any:
                given = iter(rows)
                return _called(call, [next(given) if m else x for x, m in zip(values, mapped, strict=True)])

            results = map_examples(of_example, [x for x, m in zip(values, mapped, strict=True) if m])
        else:
            shapes = [s.with_dimensions((size, *s.dimensions)) for s in results_of(call.shape)]
            results = _called(call._replace(shape=_shape(shapes)), values)
        return (results[0], 0) if is_single else (tuple(results), (0,) * len(results))


# --- attributes -------------------------------------------------------------------------------------------------------


def _dictionary(target: str, attributes: Mapping[str, Any]) -> DictAttr:
    return DictAttr({name: _attribute(target, name, x) for name, x in sorted(attributes.items())})


def _attribute(target: str, name: str, x: Any) -> Attribute:
    """A value as an attribute of MLIR: a Python number has 64 bits."""
    if isinstance(x, str):
        return StringAttr(x.encode())
    if isinstance(x, Mapping):
        return _dictionary(target, x)
    if isinstance(x, bool | np.bool_):
        return IntegerAttr(int(x), "i1")
    if isinstance(x, int):
        return IntegerAttr(x)
    if not isinstance(x, float | np.generic | np.ndarray | list | tuple):
        raise DTypeError(
            f"ffi_call of {target!r}: the attribute {name!r} must be a number, a string, an array of NumPy's or a "
            f"dictionary of such, but is {x!r}."
        )
    value = np.asarray(x)
    kind = element_type(value.dtype)
    if value.ndim:
        return DenseAttr(value, TensorType(value.shape, to_mlir(kind)))
    if kind.kind == "float":
        bits = None if np.isfinite(value) else int(value.view(f"u{value.dtype.itemsize}"))
        return FloatAttr(float(value), to_mlir(kind), bits)
    return IntegerAttr(int(value), to_mlir(kind))


def _values_of(text: str) -> dict[str, Any]:
    """The attributes of a text, as values of NumPy's types."""
    return _value(parse_attribute(text or "{}"))


def _value(x: Attribute) -> Any:
    match x:
        case StringAttr():
            return x.text
        case DictAttr(entries):
            return {name: _value(entry) for name, entry in entries.items()}
        case IntegerAttr(value, type):
            return of_mlir(type).dtype.type(value)
        case FloatAttr(value, type, bits):
            dtype = of_mlir(type).dtype
            return dtype.type(value) if bits is None else np.asarray(bits, f"u{dtype.itemsize}").view(dtype)[()]
        case DenseAttr(value):
            return value
        case _:
            raise ArgumentError(f"ffi_call: a typed handler cannot be given the attribute {attribute_text(x)}.")


def __dir__() -> list[str]:
    return __all__
