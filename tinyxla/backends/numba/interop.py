"""Interoperation with Numba: kernels of compiled programs as Numba functions, and Numba functions as native code that
compiled programs call.

Numba itself is imported by the first of these that is asked for.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tinyxla.backends.numba.jit.engine import compile_kernel
from tinyxla.errors import ArgumentError, DTypeError
from tinyxla.loopir.ir.loop_ir import Kernel
from tinyxla.runtime.imports import requiring
from tinyxla.shapes import Shape

_BOUNDS = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


def import_numba() -> Any:
    """The package; a `MissingPackageError` that says what needs it, if it is not installed."""
    with requiring("numba", "Numba", "A kernel in Numba"):
        import numba
    return numba


def numba_type(shape: Shape, is_written: bool) -> Any:
    """Numba's type of a row-major array of that shape."""
    numba = import_numba()
    try:
        element = numba.from_dtype(shape.dtype)
    except numba.core.errors.NumbaNotImplementedError:
        element = None
    if element in (None, numba.types.float16):  # which Numba has for GPUs alone
        raise DTypeError(f"Numba does not compile {shape.element_type}, of {shape}; convert the array with astype.")
    return numba.types.Array(element, len(shape.dimensions), "C", readonly=not is_written)


def kernel_function(kernel: Kernel, shapes: Sequence[Shape], extent: int, parameters: Sequence[int]) -> Any:
    """A kernel as a function that Numba's code can call: of its arrays, in order; what is written comes in, too.

    Its arrays are row-major and of the kernel's shapes and types: another type is Numba's TypeError, another shape a
    ValueError.
    """
    numba = import_numba()
    types = [numba_type(s, b.written) for s, b in zip(shapes, kernel.arguments, strict=True)]
    native = ctypes.CFUNCTYPE(None, *_BOUNDS)(compile_kernel(kernel))
    names = [buffer.name for buffer in kernel.arguments]
    lines = [f"def {kernel.name}({', '.join(names)}):"]
    for name, shape in zip(names, shapes, strict=True):
        if shape.dimensions:
            lines.append(f"    if {name}.shape != {shape.dimensions!r}:")
            lines.append(f"        raise ValueError('{name} must have the shape {shape.dimensions}')")
    lines.append(f"    table = np.empty({len(names) + len(parameters)}, np.int64)")
    lines += [f"    table[{k}] = {name}.ctypes.data" for k, name in enumerate(names)]
    lines += [f"    table[{len(names) + k}] = {word}" for k, word in enumerate(parameters)]
    lines.append(f"    native(table.ctypes, 0, {extent})")
    namespace: dict[str, Any] = {"np": np, "native": native}
    exec("\n".join(lines), namespace)
    function = namespace[kernel.name]
    function.__doc__ = (
        f"The kernel {kernel.name}, of {', '.join(map(' '.join, zip(names, map(str, shapes), strict=True)))}."
    )
    return numba.njit(numba.void(*types))(function)


def compiled_function(function: Any) -> Any:
    """A function as one of Numba, compiled without Python objects."""
    numba = import_numba()
    if not isinstance(function, numba.core.dispatcher.Dispatcher):
        return numba.njit(function)
    if function.targetoptions.get("forceobj"):
        raise ArgumentError(
            f"kernel: {function.__name__} is compiled in object mode (forceobj=True), which runs Python; use njit."
        )
    return function


def native_function(
    function: Any,
    inputs: Sequence[Shape],
    outputs: Sequence[Shape],
    static: Mapping[str, Any],
    failed: Callable[[], None],
) -> Any:
    """The C function `void f(T *in0, ..., T *out0, ...)` that calls a Numba function with arrays of these shapes, as an
    object with an `address`. Inputs are read-only; `failed` is called where the function raises."""
    numba = import_numba()
    types = [numba_type(s, False) for s in inputs] + [numba_type(s, True) for s in outputs]
    shapes = [s.dimensions for s in (*inputs, *outputs)]
    pointers = [f"p{k}" for k in range(len(types))]
    arrays = [f"array{k}(p{k})" for k in range(len(types))]
    report = ctypes.CFUNCTYPE(None)(failed)
    namespace: dict[str, Any] = {"function": function, "report": report}
    for k, (type, shape) in enumerate(zip(types, shapes, strict=True)):
        namespace[f"array{k}"] = _array_at(numba, shape, not type.mutable)
    for name, value in static.items():
        namespace[f"static_{name}"] = value
    keywords = [f"{name}=static_{name}" for name in static]
    lines = [
        f"def native({', '.join(pointers)}):",
        "    try:",
        f"        function({', '.join([*arrays, *keywords])})",
        "    except Exception:",
        "        report()",
    ]
    exec("\n".join(lines), namespace)
    signature = numba.void(*(numba.types.CPointer(t.dtype) for t in types))
    made = numba.cfunc(signature)(namespace["native"])
    made.keeps = report  # as long as the code
    return made


def _array_at(numba: Any, shape: tuple[int, ...], readonly: bool) -> Any:
    """A Numba function from a pointer to the row-major array of that shape there."""

    @numba.njit
    def mutable(pointer: Any) -> Any:
        return numba.carray(pointer, shape)

    if not readonly:
        return mutable

    @numba.extending.intrinsic
    def sealed(context: Any, array: Any) -> Any:
        def code(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return numba.core.imputils.impl_ret_borrowed(target, builder, signature.return_type, arguments[0])

        return array.copy(readonly=True)(array), code

    @numba.njit
    def read_only(pointer: Any) -> Any:
        return sealed(mutable(pointer))

    return read_only
