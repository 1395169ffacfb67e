"""The calling convention of routines, in LLVM text and as kernels: scalar arguments are words of an array in scratch
memory."""

from __future__ import annotations

from collections.abc import Sequence

from tinyxla.loopir.ir.llvm_templates import load_words
from tinyxla.loopir.ir.loop_ir import INDEX, Buffer, Builder, Index, Value, operand_of
from tinyxla.loopir.ir.routines import declare_llvm


class ParametricBuilder(Builder):
    """A builder of a kernel whose sizes and strides are run-time parameters, so that one kernel serves all shapes."""

    def __init__(self, name: str, names: str) -> None:
        super().__init__(name)
        assert not {"first", "last"} & {*names.split()}, "a kernel's bounds have these names"
        self.kernel.parameters = [Value(INDEX, parameter) for parameter in names.split()]
        self.parameter = dict(zip(names.split(), self.kernel.parameters, strict=True))

    def list(self, target: Buffer, count: Index, stride: Index) -> None:
        """Store the arithmetic sequence 0, stride, 2 stride, ... of `count` offsets."""
        with self.loop(0, count, sequential=True) as (k, _):
            self.store(target, k, operand_of(self.mul(k, stride)))


def store_arguments(b: Builder, target: Buffer, names: Sequence[str], **values: Index) -> None:
    """Store scalar arguments in the words of a routine's argument array that `names` assigns."""
    for name, value in values.items():
        b.store(target, names.index(name), operand_of(value))


def declare_routine(name: str, text: str, is_cold: bool = False) -> str:
    """Declare a routine whose text defines the function `routine`; returns its name, for `Call`."""
    declare_llvm(name, text, "routine", is_optimized=True, is_cold=is_cold)
    return name


def load_arguments(names: tuple[str, ...]) -> str:
    """LLVM instructions that load a routine's scalar arguments."""
    return load_words("numbers", names)
