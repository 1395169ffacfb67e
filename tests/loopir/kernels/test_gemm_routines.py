"""Routines of the packed GEMM: compiled, as Python, and by NumPy."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinyxla as tx
from tests.loopir.test_loop_ir import run_native, run_python
from tests.loopir.test_vectors import run_both
from tests.support.matrix_unit import FACTORS, matrix_unit
from tinyxla.loopir.ir.loop_ir import Kernel
from tinyxla.loopir.ir.print_python import print_python
from tinyxla.loopir.kernels.gemm import microkernel, offset_list, packing, small_gemm
from tinyxla.loopir.kernels.gemm.amx import SIDE, amx_microkernel
from tinyxla.loopir.kernels.gemm.arithmetic import Arithmetic
from tinyxla.loopir.kernels.gemm.microkernel import MICROKERNEL_ARGUMENTS
from tinyxla.loopir.target import is_x86
from tinyxla.shapes.element_types import element_types


@pytest.mark.parametrize(("source", "target"), [("bf16", "f32"), ("f16", "f64"), ("f64", "f32"), ("u8", "s32")])
def test_pack_rows(source: str, target: str, generator: np.random.Generator) -> None:
    rows, columns, pitch = 3, 41, 64
    x = generator.integers(0, 100, (rows, 50)).astype(element_types[source].dtype)
    packed = np.zeros((rows, pitch), element_types[target].dtype)
    routine = packing.pack_rows(source, Arithmetic(target), False)
    for found, _ in run_both(routine, [packed.ravel(), x.ravel()], (columns, 50, rows, pitch, rows)):
        np.testing.assert_array_equal(found.reshape(packed.shape)[:, :columns], x[:, :columns])
        assert not found.reshape(packed.shape)[:, columns:].any()


@pytest.mark.parametrize("source", ["s8", "s16"])
def test_packed_rows_combine_pairs(source: str, generator: np.random.Generator) -> None:
    """Of an odd number of rows the last one is paired with zeros."""
    terms, columns, pitch = 5, 41, 64
    x = generator.integers(-100, 100, (terms, columns)).astype(element_types[source].dtype)
    expected = np.zeros((3, pitch, 2), np.int16)
    expected[:, :columns] = np.concatenate((x, 0 * x[:1])).reshape(3, 2, columns).transpose(0, 2, 1)
    routine = packing.pack_rows(source, Arithmetic("s32", "s16"), True)
    for found, _ in run_both(routine, [np.zeros(3 * pitch, np.uint32), x.ravel()], (columns, columns, 3, pitch, terms)):
        np.testing.assert_array_equal(found.view(np.int16).reshape(expected.shape), expected)


@pytest.mark.parametrize(("source", "kind"), [("f16", Arithmetic("f32")), ("s8", Arithmetic("s32", "s16"))])
def test_pack_transposed(source: str, kind: Arithmetic, generator: np.random.Generator) -> None:
    """Rows past the last one repeat it, and terms past the last one are zeros."""
    rows, terms, factors, height = 3, 37, kind.factors_per_word, packing.transpose_size()
    words = -(-terms // factors)
    x = generator.integers(-100, 100, (rows, terms)).astype(element_types[source].dtype)
    wide = np.pad(x[[*range(rows), *[rows - 1] * (height - rows)]], ((0, 0), (0, words * factors - terms)))
    expected = wide.reshape(height, words, factors).transpose(1, 0, 2).astype(element_types[kind.panel_type].dtype)
    packed = np.zeros(expected.size * expected.itemsize * 8 // kind.word_bits, f"u{kind.word_bits // 8}")
    packed = packed if factors > 1 else packed.view(expected.dtype)
    arguments = (words, terms, rows, height, terms)
    for found, _ in run_both(packing.pack_transposed(source, kind), [packed, x.ravel()], arguments):
        np.testing.assert_array_equal(found.view(expected.dtype).reshape(expected.shape), expected)


@pytest.mark.parametrize("bits", [16, 64, 128])
def test_exact_transpose_stores_no_other_rows(bits: int, generator: np.random.Generator) -> None:
    rows, columns, pitch, words = 3, 13, 10, max(1, bits // 64)
    x = generator.integers(0, 100, (rows, columns, words)).astype(f"u{bits // words // 8}")
    expected = np.full((columns, pitch, words), 7, x.dtype)
    expected[:, :rows] = x.transpose(1, 0, 2)
    target, arguments = np.full(expected.size, 7, x.dtype), (columns, columns, rows, pitch, 0)
    for found, _ in run_both(packing.transpose(bits, is_exact=True), [target, x.ravel()], arguments):
        np.testing.assert_array_equal(found.reshape(expected.shape), expected)


def operands(generator: np.random.Generator, dtype: np.dtype[Any], *shapes: int | tuple[int, ...]) -> list[Any]:
    """Small integers, whose sums are exact."""
    return [generator.integers(-9, 10, shape).astype(dtype) for shape in shapes]


@pytest.mark.parametrize(
    "kind",
    [
        Arithmetic("f32", vectors=2),
        Arithmetic("f64"),
        Arithmetic("s32", vectors=2, strided_rows=2),
        Arithmetic("s64", strided_rows=6, shared_terms=3),
        Arithmetic("f32", skinny_rows=4, vectors=2),
    ],
)
@pytest.mark.parametrize("accumulate", [0, 1])
def test_microkernel(kind: Arithmetic, accumulate: int, generator: np.random.Generator) -> None:
    """Full tiles and one with a mask; rows of A in order, as far apart as shared terms are."""
    m, n, k, stride, dtype = 2 * kind.mr, kind.nr + 3, 4, 5, element_types[kind.accumulator].dtype
    terms, c_pitch = k * kind.shared_terms, n + 2
    a, b, c = operands(generator, dtype, (m + terms) * stride, terms * n, m * c_pitch)
    rows = np.arange(m) * stride
    columns = rows[:1] + np.arange(k) * stride * kind.shared_terms
    lists = [rows, np.arange(m) * c_pitch, columns, np.arange(k) * n * kind.shared_terms]
    arguments = (m, n, k, accumulate, stride, n)
    wanted = c.reshape(m, c_pitch).copy()
    left = a[rows[:, None] + np.arange(terms) * stride]
    wanted[:, :n] = accumulate * wanted[:, :n] + left @ b.reshape(terms, n)
    for found, *_ in run_both(microkernel.declare_microkernel(kind), [c, a, b, *lists], arguments):
        np.testing.assert_array_equal(found.reshape(wanted.shape), wanted)


def test_microkernel_multiplies_pairs(generator: np.random.Generator) -> None:
    kind = Arithmetic("s32", "s16")
    m, n, k = kind.mr + 1, kind.nr + 3, 5
    a, b = operands(generator, np.dtype(np.int16), (m, k, 2), (k, n, 2))
    lists = [np.arange(m) * k, np.arange(m) * n, np.arange(k), np.arange(k) * n]
    arrays = [np.zeros(m * n, np.int32), *(x.ravel().view(np.uint32) for x in (a, b)), *lists]
    wanted = np.einsum("mkp,knp->mn", a.astype(np.int32), b.astype(np.int32))
    for found, *_ in run_both(microkernel.declare_microkernel(kind), arrays, (m, n, k, 0, 0, 0)):
        np.testing.assert_array_equal(found.reshape(m, n), wanted)


def test_printed_microkernel_multiplies_pairs_of_bf16(generator: np.random.Generator) -> None:
    """As Python, since few processors have the instruction."""
    kind = Arithmetic("f32", "bf16")
    m, n, k = kind.mr, kind.nr + 3, 5
    a, b = operands(generator, element_types["bf16"].dtype, (m, k, 2), (k, n, 2))
    lists = [np.arange(m) * k, np.arange(m) * n, np.arange(k), np.arange(k) * n]
    found = np.ones(m * n, np.float32)
    builder = microkernel._MicrokernelBuilder(kind, 0)  # pyright: ignore[reportPrivateUsage]
    builder.build()
    arrays = [found, *(x.ravel().view(np.uint32) for x in (a, b)), *lists]
    run_python(builder.kernel, arrays, 0, 1, (m, n, k, 1, 0, 0))
    wanted = 1 + np.einsum("mkp,knp->mn", a.astype(np.float32), b.astype(np.float32))
    np.testing.assert_array_equal(found.reshape(m, n), wanted)


def offsets(layout: str, count: int, pitch: int, generator: np.random.Generator) -> np.ndarray[Any, Any]:
    """Of rows: in order, or of two rows that were swapped, if there are."""
    found = np.arange(count) * pitch
    if layout == "scattered" and count > 1:
        i, j = generator.choice(count, 2, replace=False)
        found[[i, j]] = found[[j, i]]
    return found


@functools.cache
def amx_kernel(factors: str) -> tuple[Kernel, Callable[..., None]]:
    """The microkernel, and what it is as Python."""
    kernel = amx_microkernel(factors, FACTORS[factors], MICROKERNEL_ARGUMENTS)
    namespace: dict[str, Any] = {}
    exec(print_python(kernel), namespace)
    return kernel, namespace[kernel.name]


@pytest.mark.parametrize("factors", FACTORS)
@pytest.mark.parametrize(
    ("a_layout", "b_layout", "c_layout"),
    [
        ("rows", "rows", "rows"),
        ("columns", "rows", "scattered"),
        ("scattered", "scattered", "rows"),
        ("scattered terms", "rows", "rows"),
    ],
)
@pytest.mark.parametrize("printer", ["python", *["llvm"] * is_x86()])
def test_amx_microkernel(
    factors: str, a_layout: str, b_layout: str, c_layout: str, printer: str, generator: np.random.Generator
) -> None:
    """As Python, and as LLVM with NumPy for the unit. Elements beside the matrices do not matter, and stay as they
    are."""
    dtype, wide = element_types[factors].dtype, element_types[FACTORS[factors]].dtype
    group, (kernel, printed) = 4 // dtype.itemsize, amx_kernel(factors)
    sizes = [(1, 1, 1), (1, 40, 17), (16, 16, 16), (17, 15, 33), (31, 33, 15), (32, 32, 32), (33, 48, 31), (64, 47, 49)]
    for (m, n, k), accumulate in zip(sizes, [0, 1] * 4, strict=True):
        a_sides, b_pitch, c_pitch = (k, m) if a_layout == "columns" else (m, k), -(-n // SIDE) * SIDE + 1, n + 2
        a = np.full((a_sides[0], a_sides[1] + 3, group), 127, dtype)
        b, c = np.full((k, b_pitch, group), 127, dtype), generator.integers(-9, 10, (m, c_pitch)).astype(wide)
        a[:, : a_sides[1]], b[:, :n] = operands(generator, dtype, (*a_sides, group), (k, n, group))
        if factors == "bf16":
            b[-1, 0] = np.inf  # what completes the terms of a tile must not repeat it
        rows, terms = offsets(a_layout, a_sides[0], a.shape[1], generator), np.arange(a_sides[1])
        if a_layout == "columns":
            rows, terms = terms, rows
        if a_layout == "scattered terms":
            terms = terms[::-1].copy()
        b_rows, c_rows = offsets(b_layout, k, b_pitch, generator), offsets(c_layout, m, c_pitch, generator)
        a_words, b_words = (x.view(np.uint32).ravel() for x in (a, b))
        left = a_words[rows[:, None] + terms].view(dtype).reshape(m, k, group).astype(wide)
        right = b_words[b_rows[:, None] + np.arange(n)].view(dtype).reshape(k, n, group).astype(wide)
        wanted, at = c.copy().ravel(), c_rows[:, None] + np.arange(n)
        with np.errstate(invalid="ignore"):
            wanted[at] = accumulate * wanted[at] + np.einsum("mkp,knp->mn", left, right)
        arrays, parameters = [c.ravel(), a_words, b_words, rows, c_rows, terms, b_rows], (m, n, k, accumulate, 0, 0)
        if printer == "python":
            with np.errstate(all="ignore"):  # rows of tiles that are not used hold anything
                printed(*arrays, 0, 1, *parameters)
        else:
            matrix_unit.run(kernel, arrays, parameters)
        np.testing.assert_array_equal(arrays[0], wanted)


@pytest.mark.parametrize("depth_multiplier", [1, 2, 8, 16])
def test_depthwise_microkernel(depth_multiplier: int, generator: np.random.Generator) -> None:
    kind = Arithmetic("f32", vectors=2)
    inputs = -(-kind.nr // depth_multiplier) + 1
    m, n, k, dtype = kind.mr, inputs * depth_multiplier, 3, np.dtype(np.float32)
    a, b, c = operands(generator, dtype, (m + k, inputs), (k, n), (m, n))
    lists = [np.arange(m) * inputs, np.arange(m) * n, np.arange(k) * inputs, np.arange(k) * n]
    repeated = a.repeat(depth_multiplier, axis=1)
    wanted = c + sum(repeated[t : t + m] * b[t] for t in range(k))
    routine = microkernel.declare_microkernel(kind, depth_multiplier)
    for found, *_ in run_both(routine, [c.ravel(), a.ravel(), b.ravel(), *lists], (m, n, k, 1, 0, 0)):
        np.testing.assert_array_equal(found.reshape(m, n), wanted)


@pytest.mark.parametrize("sizes", [(9,), (3, 4), (2, 3, 2, 5)])
def test_offset_list(sizes: tuple[int, ...]) -> None:
    """From any element on, by strides of both signs."""
    strides, start = [(-7) ** d for d in range(len(sizes))], 100
    dimensions = np.array([(*pair, 0) for pair in zip(sizes, strides, strict=True)])
    index = np.unravel_index(np.arange(np.prod(sizes)), sizes[::-1])
    wanted = start + np.tensordot(strides[::-1], index, 1)
    for ordinal, count in ((0, len(wanted)), (1, 1), (len(wanted) // 3, len(wanted) // 2)):
        offsets = np.zeros(count + offset_list.OFFSETS_PER_VECTOR, np.int64)
        arguments = (start, ordinal, count, len(sizes))
        for found, _ in run_both(offset_list.declare_offset_list(), [offsets, dimensions.ravel()], arguments):
            np.testing.assert_array_equal(found[:count], wanted[ordinal : ordinal + count])


@pytest.mark.parametrize("type", ["f32", "f64"])
@pytest.mark.parametrize(("m", "n", "k"), [(3, 3, 3), (5, 13, 9)])
@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
def test_small_gemm(
    type: str, m: int, n: int, k: int, transpose_a: bool, transpose_b: bool, generator: np.random.Generator
) -> None:
    batch, dtype = 2, element_types[type].dtype
    a, b = operands(generator, dtype, (batch, k, m) if transpose_a else (batch, m, k), (batch, k, n))
    stored = b.transpose(0, 2, 1) if transpose_b else b
    kernel = small_gemm.small_kernel(type, m, n, k, transpose_a, transpose_b)
    wanted = (a.transpose(0, 2, 1) if transpose_a else a) @ b
    for run in (run_native, run_python):
        found = np.zeros(wanted.size, dtype)
        parameters = (m * k, k * n, m * n, a.shape[-1], stored.shape[-1], n)
        run(kernel, [a.ravel(), stored.ravel(), found], 0, batch, parameters)
        np.testing.assert_array_equal(found.reshape(wanted.shape), wanted)


@pytest.mark.parametrize(("m", "k"), [(3, 9), (17, 21)])
def test_small_matrix_vector_product(m: int, k: int, generator: np.random.Generator) -> None:
    a, x = operands(generator, np.dtype(np.float32), (2, m, k), (2, k))
    wanted = np.einsum("bmk,bk->bm", a, x)
    for run in (run_native, run_python):
        found = np.zeros(wanted.size, a.dtype)
        run(small_gemm.row_kernel("f32", m, k), [a.ravel(), x.ravel(), found], 0, 2, (m * k, k, m, k, 1, 1))
        np.testing.assert_array_equal(found.reshape(wanted.shape), wanted)


def test_printed_microkernels_read_before_their_argument(generator: np.random.Generator) -> None:
    """Substitution from the last row on has offsets below zero."""
    n, rhs = 40, 5
    a = np.triu(generator.normal(size=(n, n)) / n + np.eye(n)).astype(np.float32)
    b = generator.normal(size=(n, rhs)).astype(np.float32)
    compiled = tx.jit(lambda a, b: tx.lax.linalg.triangular_solve(a, b, left_side=True)).lower(a, b).compile()
    (kernel,) = [k for k in compiled.kernels if "trsm" in k.source]
    assert "ctypes" not in kernel.source
    namespace: dict[str, Any] = {}
    exec(kernel.source, namespace)
    found = b.ravel().copy()
    strides = (n * rhs - rhs, -rhs, n * n - 1, -n, -1)
    namespace[kernel.name](a.ravel(), found, 0, 1, n, rhs, 1, *strides, 0)
    np.testing.assert_allclose(found.reshape(b.shape), np.asarray(compiled(a, b)), rtol=1e-4, atol=1e-5)
