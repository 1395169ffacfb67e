"""Calls of routines in LLVM text: their parameters are words of an array in scratch memory."""

from __future__ import annotations

from collections.abc import Sequence

from tinyxla.loopir.ir.llvm_templates import load_words
from tinyxla.loopir.ir.loop_ir import INDEX, Buffer, Builder, Index, Value, operand_of
from tinyxla.loopir.ir.routines import declare_llvm


class ParametricBuilder(Builder):
    """A builder of a kernel that takes sizes and strides from its table, so that one serves all shapes."""

    def __init__(self, name: str, names: str) -> None:
        super().__init__(name)
        self.kernel.parameters = [Value(INDEX, number) for number in names.split()]
        self.parameter = dict(zip(names.split(), self.kernel.parameters, strict=True))

    def list(self, into: Buffer, count: Index, apart: Index) -> None:
        """Places that lie equally far apart."""
        with self.loop(0, count, sequential=True) as (k, _):
            self.store(into, k, operand_of(self.mul(k, apart)))


def store_arguments(b: Builder, sizes: Buffer, names: Sequence[str], **values: Index) -> None:
    """Put numbers where a routine reads them."""
    for name, value in values.items():
        b.store(sizes, names.index(name), operand_of(value))


def declare_routine(name: str, text: str, is_cold: bool = False) -> str:
    """The name, by which kernels of the loop IR can call the routine that a text defines as `routine`."""
    declare_llvm(name, text, "routine", is_optimized=True, is_cold=is_cold)
    return name


def load_arguments(names: tuple[str, ...]) -> str:
    """Instructions that read a routine's numbers."""
    return load_words("numbers", names)
