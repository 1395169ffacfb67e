"""Fortran calling convention for BLAS and LAPACK routines that kernels of the loop IR call: all arguments by
reference."""

from __future__ import annotations

import math

from tinyxla.loopir.ir.loop_ir import Buffer, Builder, Index, Literal, Operand, Value
from tinyxla.loopir.ir.routines import FortranRoutine, declare

PREFIXES = {"f32": "s", "f64": "d", "c64": "c", "c128": "z"}
REAL = {"c64": "f32", "c128": "f64"}

Address = tuple[Buffer, Index]


Argument = str | float | Index | Address  # a character, a scalar, an integer, an address


class FortranCalls:
    """Emits calls of Fortran routines for one element type; `status` is the routine's INFO."""

    def __init__(self, b: Builder, type: str) -> None:
        self.b = b
        self.type = type
        self.status: Address = b.scratch("s32", 1), 0
        self._scalars: dict[tuple[str, float | Value], Buffer] = {}

    def call(self, routine: str, *arguments: Argument) -> None:
        """Call a routine."""
        declare(FortranRoutine(routine))
        addresses: list[Address] = []
        for argument in arguments:
            if isinstance(argument, tuple):
                addresses.append(argument)
            elif isinstance(argument, str):
                addresses.append(self._by_reference("u8", ord(argument)))
            else:
                addresses.append(self._by_reference(self.type if isinstance(argument, float) else "s32", argument))
        self.b.call(routine, *addresses)

    def blas(self, name: str, *arguments: Argument) -> None:
        """Call the routine of this name for the element type."""
        self.call(PREFIXES[self.type] + name, *arguments)

    def _by_reference(self, type: str, value: float | Value) -> Address:
        """The address of scratch memory that holds the scalar."""
        memory = self._scalars.get((type, value))
        if memory is None:
            memory = self._scalars[type, value] = self.b.scratch(type, 1)
        is_constant = not isinstance(value, Value)
        self.b.store(memory, 0, Literal(type, value) if is_constant else self.b.convert(type, value))
        return memory, 0

    def failed(self) -> Operand:
        """Whether the last call reported an error (INFO is not 0)."""
        return self.b.compare("NE", self.b.load(*self.status), Literal("s32", 0))

    def nan(self, address: Address) -> Literal:
        """NaN of the element type at an address."""
        type = address[0].type
        return Literal(type, complex(math.nan, math.nan) if type in REAL else math.nan)
