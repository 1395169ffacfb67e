"""Triangular systems by routines of this library, in place of their right-hand sides, whose rows lie in memory.

From some rows what the unknowns before them make is subtracted, which is a product; then their unknowns are found, one
after the other. A triangle that is solved from its end, or as it lies transposed, is the same with other distances
between its elements. Right-hand sides are taken some at a time, so threads share them; how many depends on sizes alone.
"""

from __future__ import annotations

import functools
import math

from tinyxla.hlo import Instruction
from tinyxla.loopir.ir.loop_ir import INDEX, Kernel
from tinyxla.loopir.kernels.gemm import packing as routines
from tinyxla.loopir.kernels.gemm.microkernel import NUMBERS, provide_product
from tinyxla.loopir.kernels.gemm.packed import step_of
from tinyxla.loopir.kernels.gemm.packing import Arithmetic
from tinyxla.loopir.kernels.linalg import panel_kernels as own
from tinyxla.loopir.lower.emit import LoweredKernel
from tinyxla.loopir.lower.routine_calls import ParametricBuilder, store_arguments
from tinyxla.ops.linear_algebra import TriangularSolve

_BLOCK = 16  # unknowns
_TERMS = 256  # unknowns that are multiplied at once
_SMALLEST, _FEWEST = 8, 4  # systems, and right-hand sides of them, for which this is worth it


def supports(x: Instruction) -> bool:
    shape = x.array_shape
    options = TriangularSolve(*x.attributes)
    *_, size, sides = shape.dimensions
    return shape.element_type.name in ("f32", "f64") and options.left_side and size >= _SMALLEST and sides >= _FEWEST


def _most_sides(kind: str) -> int:
    """That are done at once: vectors of them, side by side."""
    return own.TOGETHER * own.lanes(kind)


@functools.cache
def _kernel(kind: str, arithmetic: Arithmetic, together: int) -> Kernel:
    b = ParametricBuilder("substitution", "size sides parts row_first row factor_first down along unit")
    n, most = b.parameter, _most_sides(kind)
    factors, sides, sizes = b.argument(kind), b.argument(kind, True), b.scratch(INDEX, len(NUMBERS))
    sums = b.scratch(kind, _BLOCK * most)
    counts, apart = (_BLOCK, _BLOCK, _TERMS, _TERMS), (n["down"], most, n["along"], n["row"])
    lists = [b.scratch(INDEX, count) for count in counts]
    for places, count, distance in zip(lists, counts, apart, strict=True):
        b.list(places, b.min(count, n["size"]), distance)
    with b.loop(b.kernel.first, b.kernel.last) as (index, _):
        matrix, part = b.delinearize(index, n["parts"])
        side, width = b.tile_start_and_size(part, most, n["sides"])
        first = b.add(b.mul(matrix, n["size"], n["sides"]), n["row_first"], side)
        first_factor = b.add(b.mul(matrix, n["size"], n["size"]), n["factor_first"])
        with b.loop(0, b.ceil_div(n["size"], _BLOCK), sequential=True) as (block, _):
            start, steps = b.tile_start_and_size(block, _BLOCK, n["size"])
            here = b.add(first, b.mul(start, n["row"]))
            beside = b.add(first_factor, b.mul(start, n["down"]))
            store_arguments(b, sizes, NUMBERS, m=steps, n=width)
            with b.loop(0, b.ceil_div(start, _TERMS), sequential=True) as (chunk, _):
                begin, terms = b.tile_start_and_size(chunk, _TERMS, start)
                store_arguments(b, sizes, NUMBERS, k=terms, more=b.min(chunk, 1))
                left = factors, b.add(beside, b.mul(begin, n["along"]))
                right = sides, b.add(first, b.mul(begin, n["row"]))
                b.call(provide_product(arithmetic), (sums, 0), left, right, *((x, 0) for x in (*lists, sizes)))
            known = b.select(b.compare("GT", start, 0), steps)
            with b.loop(0, known, sequential=True) as (k, _), b.loop(0, width) as (j, _):
                place = b.add(here, b.mul(k, n["row"]), j)
                made = b.load(sums, b.add(b.mul(k, most), j))
                b.store(sides, place, b.compute("subtract", kind, b.load(sides, place), made))
            store_arguments(b, sizes, own.SUBSTITUTE, steps=steps, columns=width)
            store_arguments(b, sizes, own.SUBSTITUTE, **{name: n[name] for name in own.SUBSTITUTE[2:]})
            diagonal = factors, b.add(beside, b.mul(start, n["along"]))
            b.call(own.substitute(kind, together), (sides, here), diagonal, (sizes, 0))
    return b.kernel


def triangular_solve(x: Instruction) -> list[LoweredKernel]:
    options = TriangularSolve(*x.attributes)
    *batch, size, sides = x.array_shape.dimensions
    kind = x.array_shape.element_type.name
    is_turned = options.transpose_a != "NO_TRANSPOSE"
    down, along = (1, size) if is_turned else (size, 1)
    most = _most_sides(kind)
    parts, width = -(-sides // most), min(sides, most)
    unit = int(options.unit_diagonal)
    numbers = (size, sides, parts, 0, sides, 0, down, along, unit)
    if options.lower == is_turned:  # from the last row on
        numbers = (size, sides, parts, (size - 1) * sides, -sides, size * size - 1, -down, -along, unit)
    arithmetic = routines.Arithmetic(kind).fitting(_BLOCK, width, _TERMS)
    kernel = _kernel(kind, arithmetic, 1 if width <= own.lanes(kind) else own.TOGETHER)
    return [step_of(kernel, [x.operands[0], x], numbers, math.prod(batch) * parts, size * size * width, x)]
