"""What the kernels of an instruction that folds windows, or the beginnings of lines, have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tinyxla.compiler.fusion.plan import Plan, buffer_of, results_of
from tinyxla.hlo import Computation, Instruction
from tinyxla.loopir import target
from tinyxla.loopir.ir.loop_ir import Index, Operand
from tinyxla.loopir.lower.emit import Lowering, Storage, Temporary, Users
from tinyxla.loopir.lower.reductions import is_commutative
from tinyxla.ops import reduction
from tinyxla.shapes import Shape
from tinyxla.shapes.window import WindowDimension

STILL = WindowDimension(1)


class Dimension(NamedTuple):
    """A dimension over which windows move, or several together over which they do not."""

    size: int  # of the operand
    positions: int  # of the window: the size of the result
    window: WindowDimension

    @property
    def places(self) -> int:
        """How many elements a window has in the array, at most."""
        return -(-self.window.size // self.window.base_dilation)

    @property
    def is_inside(self) -> bool:
        """Whether all windows are inside an array without holes."""
        w = self.window
        last = (self.positions - 1) * w.stride + (w.size - 1) * w.window_dilation - w.padding_low
        return w.base_dilation == 1 and w.padding_low <= 0 and last < self.size

    @property
    def is_touched(self) -> bool:
        """Whether the elements that are there and nearest to those of a window are its own."""
        w = self.window
        edges = w.padding_low < w.size and (self.positions - 1) * w.stride - w.padding_low < self.size
        return edges and (w.window_dilation, w.base_dilation) == (1, 1)


def load(low: Lowering, x: Storage, sizes: Sequence[int], place: Sequence[Index]) -> Operand:
    """An element of memory, seen as an array of these sizes."""
    return low.builder.load(low.buffer(x), low.linearize(sizes, place))


def store(low: Lowering, x: Storage, sizes: Sequence[int], place: Sequence[Index], value: Operand) -> None:
    low.builder.store(low.buffer(x, True), low.linearize(sizes, place), value)


class Fold(NamedTuple):
    """What all kernels of one instruction need."""

    x: Instruction
    plan: Plan
    users: Users

    @property
    def computation(self) -> Computation:
        return self.x.attributes.to_apply

    @property
    def arrays(self) -> list[Storage]:
        return [buffer_of(o) for o in self.x.operands[: len(self.x.operands) // 2]]

    @property
    def is_commutative(self) -> bool:
        return reduction.monoid(self.computation) is not None or is_commutative(self.computation)

    @property
    def is_large(self) -> bool:
        """Whether what it reads and writes is more than the caches can hold."""
        return sum(o.array_shape.size * o.array_shape.dtype.itemsize for o in self.x.operands) >= target.last_cache()

    def lowering(self, name: str, more: Sequence[Instruction] = ()) -> Lowering:
        return Lowering(name, self.plan, [*results_of(self.x, self.users), *more])

    def partials(self, sizes: Sequence[int]) -> list[Storage]:
        types = [o.array_shape.element_type for o in self.x.operands[: len(self.x.operands) // 2]]
        return [Temporary(Shape(t, tuple(sizes))) for t in types]

    def results(self, sizes: Sequence[int]) -> list[Storage]:
        """Where the results go; one that nobody takes needs memory all the same."""
        taken = {r.attributes.index if r is not self.x else 0: r for r in results_of(self.x, self.users)}
        return [taken.get(k, partial) for k, partial in enumerate(self.partials(sizes))]

    def apply(self, low: Lowering, left: Sequence[Operand], right: Sequence[Operand]) -> list[Operand]:
        return low.apply(self.computation, [*left, *right])


class Line(NamedTuple):
    """Arrays seen as lines along one dimension: `outer` and `inner` are the sizes around it."""

    outer: int
    along: Dimension
    inner: int

    @property
    def sizes(self) -> tuple[int, int, int]:
        return self.outer, self.along.size, self.inner

    @property
    def counts(self) -> tuple[int, int, int]:
        return self.outer, self.along.positions, self.inner
