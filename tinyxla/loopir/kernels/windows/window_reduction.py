"""Set-up shared by the kernels of reduce-window and of prefix scans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tinyxla.compiler.fusion.plan import Plan, buffer_of, results_of
from tinyxla.hlo import Computation, Instruction
from tinyxla.loopir.ir.loop_ir import Index, Operand
from tinyxla.loopir.lower.emit import Lowering, Storage, Temporary, Users
from tinyxla.loopir.lower.reductions import is_commutative
from tinyxla.loopir.target import current_target
from tinyxla.ops import reduction
from tinyxla.shapes import Shape
from tinyxla.shapes.window import WindowDimension

IDENTITY_WINDOW = WindowDimension(1)


class Dimension(NamedTuple):
    """A dimension over which windows move, or adjacent dimensions over which they do not."""

    size: int  # of the operand
    positions: int  # of the window: the size of the result
    window: WindowDimension

    @property
    def max_elements(self) -> int:
        """The most elements of the array that a window holds."""
        return -(-self.window.size // self.window.base_dilation)

    @property
    def has_all_in_bounds(self) -> bool:
        """Whether all windows are in bounds of an array that is not dilated."""
        w = self.window
        last = (self.positions - 1) * w.stride + (w.size - 1) * w.window_dilation - w.padding_low
        return w.base_dilation == 1 and w.padding_low <= 0 and last < self.size

    @property
    def clamps_to_window(self) -> bool:
        """Whether clamping an index of a window to the array's bounds gives an element of the same window."""
        w = self.window
        edges = w.padding_low < w.size and (self.positions - 1) * w.stride - w.padding_low < self.size
        return edges and (w.window_dilation, w.base_dilation) == (1, 1)


def load(low: Lowering, x: Storage, sizes: Sequence[int], index: Sequence[Index]) -> Operand:
    """An element of memory, seen as an array of these sizes."""
    return low.builder.load(low.buffer(x), low.linearize(sizes, index))


def store(low: Lowering, x: Storage, sizes: Sequence[int], index: Sequence[Index], value: Operand) -> None:
    """Store an element of memory, seen as an array of these sizes."""
    low.builder.store(low.buffer(x, True), low.linearize(sizes, index), value)


class WindowReduction(NamedTuple):
    """An instruction that reduces windows with a combiner, and what its kernels need."""

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
    def exceeds_cache(self) -> bool:
        """Whether operands and results exceed the last-level cache."""
        size = sum(o.array_shape.size * o.array_shape.dtype.itemsize for o in self.x.operands)
        return size >= current_target().last_level_bytes

    def lowering(self, name: str, roots: Sequence[Instruction] = ()) -> Lowering:
        return Lowering(name, self.plan, [*results_of(self.x, self.users), *roots])

    def temporaries(self, sizes: Sequence[int]) -> list[Storage]:
        types = [o.array_shape.element_type for o in self.x.operands[: len(self.x.operands) // 2]]
        return [Temporary(Shape(t, tuple(sizes))) for t in types]

    def results(self, sizes: Sequence[int]) -> list[Storage]:
        """Memory of the results; one that is not read needs memory, too."""
        read = {r.attributes.index if r is not self.x else 0: r for r in results_of(self.x, self.users)}
        return [read.get(k, temporary) for k, temporary in enumerate(self.temporaries(sizes))]

    def apply(self, low: Lowering, left: Sequence[Operand], right: Sequence[Operand]) -> list[Operand]:
        return low.apply(self.computation, [*left, *right])


class LineLayout(NamedTuple):
    """Arrays as lines along one dimension, with the sizes of the dimensions around it."""

    outer: int
    dimension: Dimension
    inner: int

    @property
    def sizes(self) -> tuple[int, int, int]:
        return self.outer, self.dimension.size, self.inner

    @property
    def result_sizes(self) -> tuple[int, int, int]:
        return self.outer, self.dimension.positions, self.inner
