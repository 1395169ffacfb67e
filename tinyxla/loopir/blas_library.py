"""Symbol resolution of the BLAS and LAPACK that SciPy brings: OpenBLAS in SciPy's wheels, otherwise the pointers that
SciPy's Cython modules export.

SciPy is imported by the first call of a routine, and only if there is no wheel's OpenBLAS.
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

from tinyxla.errors import requiring


@functools.cache
def library_routine(name: str) -> int:
    """The address of a BLAS or LAPACK routine, by its Fortran name in lower case (`dgemm`)."""
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
    """The OpenBLAS of a SciPy wheel; None if SciPy was built otherwise."""
    spec = find_spec("scipy")
    for package in (spec and spec.submodule_search_locations) or ():
        for path in Path(package).parent.glob("scipy.libs/libscipy_openblas*.so"):
            return ctypes.CDLL(str(path))
    return None


@functools.cache
def extension(name: str) -> ModuleType:
    """An extension module of `scipy.linalg`, without its package: importing the package takes half a second and 20
    MB."""
    with requiring("SciPy", "A compiled matrix product or factorization"):
        import scipy  # imported here, since a wheel's OpenBLAS does not need SciPy

    full = "scipy.linalg." + name
    spec = PathFinder.find_spec(full, [str(Path(path) / "linalg") for path in scipy.__path__])
    if full in sys.modules or spec is None or spec.loader is None:
        return import_module(full)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules.pop(full, None)  # the module registers itself; importing the package later must load it normally
    return module


def address_of(function: object) -> int:
    """The address of a function of a shared library."""
    address = ctypes.cast(function, ctypes.c_void_p).value  # pyright: ignore[reportArgumentType]
    assert address is not None
    return address
