"""Addresses of the BLAS and LAPACK that SciPy brings: OpenBLAS in its wheels, else what its Cython modules point to.

SciPy is imported by the first routine that is asked for, and only where a wheel's OpenBLAS is not found.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from types import ModuleType

from tinyxla.runtime.imports import requiring


@functools.cache
def library_routine(name: str) -> int:
    """The address of a routine of the BLAS or LAPACK, by its Fortran name in lower case (`dgemm`)."""
    scipy_symbol = getattr(openblas(), f"scipy_{name}_", None)
    if scipy_symbol is not None:
        return address_of(scipy_symbol)
    capsules = extension("cython_blas").__pyx_capi__
    capsule = capsules[name] if name in capsules else extension("cython_lapack").__pyx_capi__[name]
    name_of = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", ctypes.pythonapi))
    pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", ctypes.pythonapi)
    )
    address = pointer_of(capsule, name_of(capsule))
    assert address is not None
    return address


@functools.cache
def openblas() -> ctypes.CDLL | None:
    """The OpenBLAS of a wheel of SciPy; None if SciPy was built otherwise."""
    spec = find_spec("scipy")
    for package in (spec and spec.submodule_search_locations) or ():
        for path in Path(package).parent.glob("scipy.libs/libscipy_openblas*.so"):
            return ctypes.CDLL(str(path))
    return None


@functools.cache
def extension(name: str) -> ModuleType:
    """An extension module of `scipy.linalg` alone: importing the package around it takes half a second and 20 MB."""
    with requiring("scipy", "SciPy", "A compiled matrix product or factorization"):
        import scipy  # here, since a wheel's OpenBLAS does without it

    full = "scipy.linalg." + name
    spec = PathFinder.find_spec(full, [str(Path(path) / "linalg") for path in scipy.__path__])
    if full in sys.modules or spec is None or spec.loader is None:
        return import_module(full)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules.pop(full, None)  # it puts itself there; an import of the package must find it in its own way
    return module


def address_of(function: object) -> int:
    """The address of a function of a shared library."""
    address = ctypes.cast(function, ctypes.c_void_p).value  # pyright: ignore[reportArgumentType]
    assert address is not None
    return address
