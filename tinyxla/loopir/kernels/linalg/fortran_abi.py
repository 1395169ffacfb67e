"""Calls of the routines of SciPy's BLAS and LAPACK in kernels of the loop IR."""

from __future__ import annotations

import math

from tinyxla.loopir.ir.loop_ir import Buffer, Builder, Index, Literal, Operand, Value
from tinyxla.loopir.ir.routines import FortranRoutine, declare

PREFIXES = {"f32": "s", "f64": "d", "c64": "c", "c128": "z"}
REAL = {"c64": "f32", "c128": "f64"}

Place = tuple[Buffer, Index]


Argument = str | float | Index | Place  # a letter, a number of the element type, an integer, memory


class Calls:
    """Calls of Fortran's routines, which take the addresses of all arguments, in a kernel for an element type."""

    def __init__(self, b: Builder, kind: str) -> None:
        self.b = b
        self.kind = kind
        self.status: Place = b.scratch("s32", 1), 0
        self._words: dict[tuple[str, float | Value], Buffer] = {}

    def call(self, routine: str, *arguments: Argument) -> None:
        declare(FortranRoutine(routine))
        places: list[Place] = []
        for argument in arguments:
            if isinstance(argument, tuple):
                places.append(argument)
            elif isinstance(argument, str):
                places.append(self._word("u8", ord(argument)))
            else:
                places.append(self._word(self.kind if isinstance(argument, float) else "s32", argument))
        self.b.call(routine, *places)

    def blas(self, name: str, *arguments: Argument) -> None:
        """The routine for the element type."""
        self.call(PREFIXES[self.kind] + name, *arguments)

    def _word(self, kind: str, value: float | Value) -> Place:
        """Memory that holds a number."""
        word = self._words.get((kind, value))
        if word is None:
            word = self._words[kind, value] = self.b.scratch(kind, 1)
        is_known = not isinstance(value, Value)
        self.b.store(word, 0, Literal(kind, value) if is_known else self.b.convert(kind, value))
        return word, 0

    def failed(self) -> Operand:
        """Whether the last call says so."""
        return self.b.compare("NE", self.b.load(*self.status), Literal("s32", 0))

    def nan(self, place: Place) -> Literal:
        kind = place[0].type
        return Literal(kind, complex(math.nan, math.nan) if kind in REAL else math.nan)
