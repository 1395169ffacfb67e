"""The calling convention of routines: scalar arguments are words of an array in scratch memory."""

from __future__ import annotations

from collections.abc import Sequence

from tinyxla.loopir.ir.loop_ir import INDEX, Buffer, Builder, Index, Value, operand_of


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
