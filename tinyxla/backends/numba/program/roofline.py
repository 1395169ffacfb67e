"""Roofline measurement: memory bandwidths, multiply-adds and exponentials per second that kernels of this compiler
reach on this machine, with the threads that compiled functions use.

Source: S. Williams, A. Waterman and D. Patterson, Roofline: an insightful visual performance model (2009).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from string import Template

import numpy as np

from tinyxla.backends.numba.jit.engine import compile_kernel, start_function
from tinyxla.backends.numba.runtime.bytecode import Schedule, launch
from tinyxla.compiler.costs import L2_BYTES
from tinyxla.compiler.report import Machine
from tinyxla.loopir.ir.loop_ir import Builder, Literal, Operand
from tinyxla.loopir.target import vector_bytes
from tinyxla.runtime.threads import get_num_threads

_SIZES = (L2_BYTES // 2, 4 << 20, 16 << 20, 128 << 20)  # bytes; the first one for each thread
_ACCUMULATORS = 10  # enough to hide the latency of a multiply-add, and fewer than there are registers


def measure() -> Machine:
    """Measure the machine with the threads that are set; takes half a second."""
    threads = get_num_threads()
    sizes = [_SIZES[0] * threads, *_SIZES[1:]]
    bandwidths = tuple((float(size), _bandwidth(size, threads)) for size in sizes)
    return Machine(threads, bandwidths, _operations(threads), _exponentials(threads))


def _bandwidth(size: int, threads: int) -> float:
    """Bytes per second of x = x / 2 + y, with x and y of so many bytes together: two are read, one is written."""
    elements = size // (8 * threads)
    repeats = max(1, (1 << 28) // (12 * elements * threads))  # long enough for the clock

    def update(b: Builder, x: Operand, y: Operand) -> Operand:
        return b.compute("add", "f32", b.compute("multiply", "f32", x, Literal("f32", 0.5)), y)

    kernel = _repeated(elements, repeats, update)
    x, y = (np.ones(elements * threads, np.float32) for _ in range(2))
    return 12 * elements * threads * repeats / _seconds(kernel, [x, y], threads)


def _exponentials(threads: int) -> float:
    elements, repeats = 1024, 200

    def update(b: Builder, x: Operand, y: Operand) -> Operand:
        return b.compute("exponential", "f32", b.compute("negate", "f32", x))

    kernel = _repeated(elements, repeats, update)
    x, y = (np.ones(elements * threads, np.float32) for _ in range(2))
    return elements * threads * repeats / _seconds(kernel, [x, y], threads)


def _repeated(elements: int, repeats: int, update: Callable[[Builder, Operand, Operand], Operand]) -> int:
    """A kernel whose chunks update a block of an array repeatedly."""
    b = Builder("repeated")
    x, y = b.argument("f32", True), b.argument("f32")
    with b.loop(b.kernel.first, b.kernel.last) as (block, _):
        start = b.mul(block, elements)
        with b.loop(0, repeats, sequential=True), b.loop(0, elements) as (k, _):
            index = b.add(start, k)
            b.store(x, index, update(b, b.load(x, index), b.load(y, index)))
    return compile_kernel(b.kernel)


_FUSED = Template("""
define void @fused(ptr %table, i64 %first, i64 %last) {
entry:
  %result = load ptr, ptr %table
  br label %loop
loop:
  %k = phi i64 [ 0, %entry ], [ %next, %loop ]
  $phis
  $steps
  %next = add i64 %k, 1
  %more = icmp slt i64 %next, $ITERATIONS
  br i1 %more, label %loop, label %done
done:
  $sums
  %at = getelementptr $VECTOR, ptr %result, i64 %first
  store $VECTOR %sum$LAST, ptr %at, align 4
  ret void
}

declare $VECTOR @llvm.fma.$TYPE($VECTOR, $VECTOR, $VECTOR)
""")


def _operations(threads: int) -> float:
    """Additions and multiplications per second in independent fused multiply-adds."""
    width, iterations = vector_bytes() // 4, 100_000
    vector, names = f"<{width} x float>", range(_ACCUMULATORS)
    half = f"{vector} splat (float 5.0e-1)"
    phis = [f"%x{n} = phi {vector} [ splat (float {n}.0), %entry ], [ %y{n}, %loop ]" for n in names]
    steps = [f"%y{n} = call {vector} @llvm.fma.v{width}f32({vector} %x{n}, {half}, {half})" for n in names]
    sums = [f"%sum0 = fadd {vector} %y0, %y0"]
    sums += [f"%sum{n} = fadd {vector} %sum{n - 1}, %y{n}" for n in names[1:]]
    text = _FUSED.substitute(
        phis="\n  ".join(phis),
        steps="\n  ".join(steps),
        sums="\n  ".join(sums),
        ITERATIONS=iterations,
        VECTOR=vector,
        TYPE=f"v{width}f32",
        LAST=_ACCUMULATORS - 1,
    )
    kernel = start_function(text, "fused")()
    result = np.zeros(threads * width, np.float32)
    return 2 * width * _ACCUMULATORS * iterations * threads / _seconds(kernel, [result], threads)


def _seconds(kernel: int, arrays: Sequence[np.ndarray], threads: int) -> float:
    """The shortest time of a run in which each thread has one chunk."""
    schedule = Schedule()
    schedule.kernel(kernel, list(range(len(arrays))), threads, 1)
    words = schedule.finish()
    slots = np.array([x.ctypes.data for x in arrays], np.int64)
    found: list[float] = []
    for _ in range(4):
        start = time.perf_counter()
        launch(words.ctypes.data, slots.ctypes.data)
        found.append(time.perf_counter() - start)
    return min(found)
