"""Calls of the routines of SciPy's BLAS and LAPACK in kernels of the loop IR."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tinyxla.backends.numba.loops import INDEX, Buffer, Builder, Index, Literal, Operand, Value

PREFIXES = {"f32": "s", "f64": "d", "c64": "c", "c128": "z"}
REAL = {"c64": "f32", "c128": "f64"}

Place = tuple[Buffer, Index]


@dataclass(frozen=True)
class Workspace:
    """Memory that a routine asks for, of an element type: the place and the size, which are two arguments."""

    type: str


# A letter, a number of the element type, an integer, memory.
_Argument = str | float | Index | Place | Workspace


class Calls:
    """Calls of Fortran's routines, which take the addresses of all arguments, in a kernel for an element type."""

    def __init__(self, b: Builder, kind: str) -> None:
        self.b = b
        self.kind = kind
        self.status: Place = b.scratch("s32", 1), 0
        self._words: dict[tuple[str, float | Value], Buffer] = {}

    def call(self, routine: str, *arguments: _Argument) -> None:
        from tinyxla.backends.numba.blas_library import provide_routine  # here, since SciPy takes long to load

        provide_routine(routine)
        sizes = iter(_asked(routine, arguments) if any(isinstance(a, Workspace) for a in arguments) else ())
        places: list[Place] = []
        for argument in arguments:
            if isinstance(argument, Workspace):
                size = next(sizes)
                places += [self.temporary(size, argument.type), self._word("s32", size)]
            elif isinstance(argument, tuple):
                places.append(argument)
            elif isinstance(argument, str):
                places.append(self._word("u8", ord(argument)))
            else:
                places.append(self._word(self.kind if isinstance(argument, float) else "s32", argument))
        self.b.call(routine, *places)

    def temporary(self, size: int, kind: str | None = None) -> Place:
        """Memory for a routine, which kernels for all sizes have not."""
        raise NotImplementedError

    def blas(self, name: str, *arguments: _Argument) -> None:
        """The routine for the element type."""
        self.call(PREFIXES[self.kind] + name, *arguments)

    def _word(self, kind: str, value: float | Value) -> Place:
        """Memory that holds a number."""
        word = self._words.get((kind, value))
        if word is None:
            word = self._words[kind, value] = self.b.scratch(kind, 1)
        is_known = not isinstance(value, Value)
        self.b.store(word, 0, Literal(kind, value) if is_known else self.b.compute("convert", kind, value))
        return word, 0

    def failed(self) -> Operand:
        """Whether the last call says so."""
        zero_status = Literal("s32", 0)
        return self.b.compute(
            "compare", "pred", self.b.load(*self.status), zero_status, direction="NE", compare_type="SIGNED"
        )

    def times(self, condition: Operand, count: int) -> Index:
        """As many iterations if the condition holds, else none."""
        return self.b.compute("select", INDEX, condition, Literal(INDEX, count), Literal(INDEX, 0))

    def nan(self, place: Place) -> Literal:
        kind = place[0].type
        return Literal(kind, complex(math.nan, math.nan) if kind in REAL else math.nan)


def _asked(routine: str, arguments: Sequence[_Argument]) -> list[int]:
    """How large a routine wants its workspaces: that is what it says if it is told that they have -1 elements."""
    from tinyxla.backends.numba import blas_library

    given: list[Any] = []
    asked: list[tuple[Any, str]] = []
    for argument in arguments:
        if isinstance(argument, Workspace):
            number = {"s32": ctypes.c_int32, "f32": ctypes.c_float, "c64": ctypes.c_float}.get(
                argument.type, ctypes.c_double
            )
            asked.append(((number * 2)(), argument.type))
            given += [asked[-1][0], ctypes.c_int32(-1)]
        elif isinstance(argument, str):
            given.append(ctypes.c_char(argument.encode()))
        elif isinstance(argument, int):
            given.append(ctypes.c_int32(argument))
        else:
            given.append((ctypes.c_double * 4)())
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(given))(blas_library.routine(routine))
    function(*(ctypes.addressof(x) for x in given))
    return [max(1, math.ceil(memory[0])) for memory, _ in asked]
