"""Stockham FFT kernels for one dimension: read a block of signals into lanes, run the passes, write the results.

Source: C. Van Loan, Computational Frameworks for the Fast Fourier Transform, section 1.7.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

from tinyxla.loopir.ir.loop_ir import INDEX, Buffer, Index, Kernel
from tinyxla.loopir.kernels.fft import codelets as codelets
from tinyxla.loopir.kernels.gemm import packed
from tinyxla.shapes import element_type

_LANE_ARRAY_BYTES = (
    64_960  # of each array of lanes: full vectors, and no power of two, so that arrays do not share cache sets
)

Address = tuple[Buffer, Index]


def lane_capacity(real_type: str) -> int:
    """Elements of an array of lanes."""
    return _LANE_ARRAY_BYTES // element_type(real_type).dtype.itemsize


_PARAMETERS = (
    "rows written lanes width blocks outer middle from_step to_step "
    "source0 source1 source2 source_lane target0 target1 target2 target_lane "
    "result_offset by_middle by_block final"
)


class LaneForm(NamedTuple):
    """What distinguishes kernels of interleaved signals. The first pass may read and the last pass may write columns of
    complex numbers; without a radix for that, lanes are rows of memory, which are transposed. Real signals need sums
    before or after the passes; they are no pairs if their length is odd."""

    real_type: str
    types: tuple[str, str]
    in_place: bool
    first: int
    passes: tuple[str, ...]
    last: int
    backward: bool
    is_column: bool
    before: int
    after: int
    is_odd: bool


class RowPairForm(NamedTuple):
    """What distinguishes kernels of pairs of rows: what the first pass of each transform reads and the last pass of all
    writes (`rows`), and the element types of both."""

    real_type: str
    types: tuple[str, str]
    rows: tuple[codelets.RowForm, ...]
    passes: tuple[str, ...]
    last: int
    backward: bool


@functools.cache
def row_pair_kernel(form: RowPairForm) -> Kernel:
    """The kernel that reads pairs of rows in its first pass and writes them in its last one. The inverse transform of a
    convolution reads its operand from the lanes."""
    b = packed.ParametricBuilder("fourier", " ".join(["read written lanes width final factor_stride", *form.passes]))
    n, real_type = b.parameter, form.real_type
    source, target = b.argument(form.types[0]), b.argument(form.types[1], True)
    words_per_element = [1 if type == real_type else 2 for type in form.types]
    roots, factors, plans = b.argument(real_type), b.argument(real_type), [b.argument("s64") for _ in form.rows[1:]]
    lanes = b.scratch(real_type, 4 * lane_capacity(real_type))
    arguments = b.scratch(INDEX, len(codelets.ROW_PAIR_ARGUMENTS))
    end = b.mul(n["final"], len(codelets.PASS_ARGUMENTS))
    with b.loop(b.kernel.first, b.kernel.last) as (block, _):
        first = b.mul(block, n["width"])
        count = b.min(b.sub(n["lanes"], first), n["width"])
        packed.store_arguments(
            b,
            arguments,
            codelets.ROW_PAIR_ARGUMENTS,
            line_pitch=b.mul(n["read"], words_per_element[0]),
            count=count,
            width=n["width"],
        )
        for k, plan in enumerate(plans):
            if k:
                b.call(codelets.stockham_pass(real_type, form.last), (lanes, 0), (roots, 0), (plans[0], end))
            first_pass = codelets.first_pass_of_row_pairs(real_type, form.rows[k], form.backward or k > 0)
            read, factor = b.mul(first, n["read"]), b.mul(n["factor_stride"], k)
            b.call(first_pass, (source, read), (lanes, 0), (roots, 0), (plan, 0), (factors, factor), (arguments, 0))
            _passes(b, real_type, form.passes, 1, lanes, roots, plan)
        packed.store_arguments(
            b, arguments, codelets.ROW_PAIR_ARGUMENTS, line_pitch=b.mul(n["written"], words_per_element[1])
        )
        if form.rows[-1] == "half":
            last_pass = codelets.split_real_row_pairs(real_type)
        else:
            last_pass = codelets.last_pass_of_row_pairs(
                real_type, form.last, form.rows[-1], form.backward or len(plans) > 1
            )
        written, factor = b.mul(first, n["written"]), b.mul(n["factor_stride"], len(plans) % 2)
        b.call(
            last_pass, (target, written), (lanes, 0), (roots, 0), (plans[-1], end), (factors, factor), (arguments, 0)
        )
    return b.kernel


def _passes(
    b: packed.ParametricBuilder,
    real_type: str,
    names: tuple[str, ...],
    start: Index,
    lanes: Buffer,
    roots: Buffer,
    plan: Buffer,
) -> None:
    """The passes of each radix, up to the index that a parameter holds."""
    for name in names:
        with b.loop(start, b.parameter[name], sequential=True) as (k, _):
            arguments = plan, b.mul(k, len(codelets.PASS_ARGUMENTS))
            radix = int(name.removeprefix("passes"))
            b.call(codelets.stockham_pass(real_type, radix), (lanes, 0), (roots, 0), arguments)
        start = b.parameter[name]


@functools.cache
def lane_kernel(form: LaneForm) -> Kernel:
    """The kernel that transforms blocks of interleaved signals."""
    return _LaneKernel(form).kernel()


class _LaneKernel:
    """The builder of the kernel."""

    def __init__(self, form: LaneForm) -> None:
        self.form, self.real_type, types = form, form.real_type, form.types
        self.b = b = packed.ParametricBuilder("fourier", " ".join([_PARAMETERS, *form.passes]))
        source = None if form.in_place else b.argument(types[0])
        self.target = b.argument(types[1], True)
        self.source = source or self.target
        self.roots, self.plan, self.scale = b.argument(form.real_type), b.argument("s64"), b.argument(form.real_type)
        self.twiddles = [b.argument(form.real_type), b.argument(form.real_type)] if form.is_column else []
        self.lanes = b.scratch(form.real_type, 4 * lane_capacity(form.real_type))
        self.is_single_real = [form.is_odd and type == form.real_type for type in types]
        self.words_per_element = [2 if type == form.real_type and not form.is_odd else 1 for type in types]
        self.lane_arguments = b.scratch(INDEX, len(codelets.LANE_ARGUMENTS))

    def kernel(self) -> Kernel:
        """The kernel: read a block, sums, passes, sums, write the block."""
        b, n, form = self.b, self.b.parameter, self.form
        with b.loop(b.kernel.first, b.kernel.last) as (index, _):
            *outer, block = b.delinearize(index, n["outer"], n["middle"], n["blocks"])
            first = b.mul(block, n["width"])
            self.count = b.min(b.sub(n["lanes"], first), n["width"])
            begin, end = (
                b.add(*(b.mul(i, n[f"{x}{k}"]) for k, i in enumerate(outer)), b.mul(first, n[f"{x}_lane"]))
                for x in ("source", "target")
            )
            source = (self.source, b.mul(begin, self.words_per_element[0]))
            target = (self.target, b.mul(end, self.words_per_element[1]))
            if not form.first:
                self._transpose_lines(0, codelets.load_transposed(self.real_type), 0, source)
            else:
                self._end_pass(
                    codelets.first_pass_of_lanes(self.real_type, form.first, form.backward), "from_step", source
                )
            for _ in range(form.before):
                self._combine()
            _passes(b, self.real_type, form.passes, min(form.first, 1), self.lanes, self.roots, self.plan)
            for _ in range(form.after):
                self._combine()
            if not form.last:
                self._transpose_lines(
                    1, codelets.store_transposed(self.real_type), n["result_offset"], target, ((self.scale, 0),)
                )
            else:
                column = b.add(b.mul(outer[-1], n["by_middle"]), b.mul(block, n["by_block"]))
                twiddles = (self.twiddles[0], b.mul(column, n["rows"], 2)) if form.is_column else (self.scale, 0)
                last_pass = codelets.last_pass_of_lanes(self.real_type, form.last, form.backward, form.is_column)
                self._end_pass(
                    last_pass, "to_step", target, n["final"], twiddles, tuple((x, 0) for x in self.twiddles[1:])
                )
        return b.kernel

    def _combine(self) -> None:
        """Weighted sums of rows before or after the passes."""
        offsets, factors = self.b.argument("s64"), self.b.argument(self.real_type)
        self.b.call(codelets.combine_rows(self.real_type), (self.lanes, 0), (offsets, 0), (factors, 0))

    def _transpose_lines(
        self, side: int, routine: str, start: Index, lines: Address, extra: tuple[Address, ...] = ()
    ) -> None:
        """Transpose lines of the source to lanes, or lanes to lines of the target. In a line, real and imaginary parts
        alternate, or even and odd elements of a real signal."""
        b, n = self.b, self.b.parameter
        size, line_pitch, pitch = n[("rows", "written")[side]], n[("source_lane", "target_lane")[side]], n["width"]
        if self.is_single_real[side]:
            odd_offset, pitch = pitch, b.mul(pitch, 2)
        else:
            size, line_pitch, odd_offset = b.mul(size, 2), b.mul(line_pitch, 2), lane_capacity(self.real_type)
        packed.store_arguments(
            b,
            self.lane_arguments,
            codelets.LINE_ARGUMENTS,
            words=size,
            line_pitch=line_pitch,
            count=self.count,
            pitch=pitch,
        )
        b.call(
            routine,
            (self.lanes, start),
            (self.lanes, b.add(start, odd_offset)),
            lines,
            *extra,
            (self.lane_arguments, 0),
        )

    def _end_pass(
        self,
        routine: str,
        step: str,
        columns: Address,
        stage: Index = 0,
        roots: Address | None = None,
        extra: tuple[Address, ...] = (),
    ) -> None:
        """The first or the last pass, which reads or writes columns."""
        b, n = self.b, self.b.parameter
        packed.store_arguments(
            b,
            self.lane_arguments,
            codelets.LANE_ARGUMENTS,
            rows=n["rows"],
            step=n[step],
            count=self.count,
            width=n["width"],
        )
        plan = self.plan, b.mul(stage, len(codelets.PASS_ARGUMENTS))
        b.call(routine, columns, (self.lanes, 0), roots or (self.roots, 0), plan, *extra, (self.lane_arguments, 0))
