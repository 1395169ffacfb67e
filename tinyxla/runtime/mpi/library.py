"""The MPI library of this process: addresses of routines, and handles as machine words, for native code and `ctypes`.

Handles are pointers in Open MPI, and 32-bit integers in MPICH and its relatives.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

from tinyxla.errors import MissingPackageError
from tinyxla.runtime.imports import import_shielded
from tinyxla.shapes import ElementType

MAX_COUNT = 1 << 30  # elements of one message: MPI counts in 32-bit integers

# XLA's element types, and the operations of MPI that fold them as XLA does. MPI's maximum and minimum of floats
# do not propagate NaN.
_INTEGERS = {
    f"{kind}{bits}": f"{prefix}{bits}_T" for kind, prefix in (("s", "INT"), ("u", "UINT")) for bits in (8, 16, 32, 64)
}
_DATATYPES = {
    **_INTEGERS,
    "pred": "UINT8_T",
    "f32": "FLOAT",
    "f64": "DOUBLE",
    "c64": "C_FLOAT_COMPLEX",
    "c128": "C_DOUBLE_COMPLEX",
}
_OPERATIONS = {
    "add": "SUM",
    "multiply": "PROD",
    "maximum": "MAX",
    "minimum": "MIN",
    "and": "BAND",
    "or": "BOR",
    "xor": "BXOR",
}
_FOLDED = {
    **dict.fromkeys(_INTEGERS, frozenset(_OPERATIONS)),
    "pred": frozenset({"and", "or", "xor"}),
    **dict.fromkeys(("f32", "f64", "c64", "c128"), frozenset({"add", "multiply"})),
}


def is_folded_natively(operation: str, type: ElementType) -> bool:
    """Whether MPI has an operation, by the name of its monoid, on elements of a type."""
    return operation in _FOLDED.get(type.name, ())


class Routine(NamedTuple):
    """A routine of MPI: its name in C, and its parameters in order, by these names."""

    name: str
    parameters: tuple[str, ...]


BUFFERS = frozenset({"send", "receive", "status", "request"})  # parameters that are addresses of memory
HANDLES = frozenset({"type", "operation", "communicator"})
ALL_REDUCE = Routine("MPI_Allreduce", ("send", "receive", "count", "type", "operation", "communicator"))


class Library:
    """The loaded library; making the first one initializes MPI."""

    def __init__(self) -> None:
        error = import_shielded("mpi4py.MPI")
        if error is not None:
            raise MissingPackageError(
                f"distributed.initialize: several processes need mpi4py and an MPI library, which cannot be loaded "
                f"({type(error).__name__}: {error}); install both by python -m pip install 'tinyxla[mpi]'."
            ) from error
        self.MPI: Any = import_module("mpi4py.MPI")  # which initializes MPI
        MPI = self.MPI
        self._routines = ctypes.CDLL(MPI.__file__)
        self.handle_bytes: int = MPI._sizeof(MPI.Comm)
        self.in_place = int(MPI.IN_PLACE)
        self.no_process = int(MPI.PROC_NULL)
        self.status_bytes: int = MPI._sizeof(MPI.Status)
        self._status = ctypes.create_string_buffer(self.status_bytes)
        self.status = ctypes.addressof(self._status)
        self.datatype = cache(self._datatype)
        self.block = cache(self._block)
        self.function = cache(self._function)

    def address(self, routine: str) -> int:
        """The address of a routine, by its name in C."""
        found = ctypes.cast(getattr(self._routines, routine), ctypes.c_void_p).value
        assert found is not None
        return found

    def _function(self, routine: Routine) -> Callable[..., int]:
        """A routine for calls from Python, which release the GIL."""
        handle = ctypes.c_int32 if self.handle_bytes == 4 else ctypes.c_int64
        types = [
            ctypes.c_void_p if name in BUFFERS else handle if name in HANDLES else ctypes.c_int
            for name in routine.parameters
        ]
        return ctypes.CFUNCTYPE(ctypes.c_int, *types)(self.address(routine.name))

    def handle(self, x: Any) -> int:
        """The handle of a communicator, type or operation as a machine word with a sign: those of MPICH that a program
        makes are negative."""
        return ctypes.c_int64(self.MPI._handleof(x)).value

    def operation(self, name: str) -> int:
        """The handle of the operation of a monoid."""
        return self.handle(getattr(self.MPI, _OPERATIONS[name]))

    def _datatype(self, type: ElementType) -> int:
        """The handle of the type whose elements MPI folds."""
        return self.handle(getattr(self.MPI, _DATATYPES[type.name]))

    def _block(self, nbytes: int) -> tuple[int, int]:
        """A count, and the handle of a type, that together are so many bytes: of the longest words that divide them, or
        of one type for a block of more elements than that."""
        MPI = self.MPI
        for words, name in ((8, "INT64_T"), (4, "INT32_T"), (2, "INT16_T"), (1, "INT8_T")):
            if nbytes % words == 0 and nbytes // words <= MAX_COUNT:
                return nbytes // words, self.handle(getattr(MPI, name))
        page = MPI.BYTE.Create_contiguous(_PAGE)
        whole, rest = divmod(nbytes, _PAGE)
        block = MPI.Datatype.Create_struct([whole, rest], [0, whole * _PAGE], [page, MPI.BYTE])
        block.Commit()
        return 1, self.handle(block)


_PAGE = 1 << 20  # bytes of what a long block is made of
