"""Samples of operations on arrays that are large enough to be split, by family."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tinyxla.ops import indexing, movement, ops, reduction, sorting
from tinyxla.ops.op import Op, Sample
from tinyxla.ops.products import contraction
from tinyxla.ops.products.convolution import ConvDimensionNumbers
from tinyxla.ops.products.ragged import RaggedDot
from tinyxla.ops.windows import comparison
from tinyxla.shapes import WindowDimension as W, element_type

F32, S32 = np.float32, np.int32


def _array(*shape: int, dtype: Any = F32) -> Any:
    return movement.sample_values(shape, dtype)


def _movement() -> Iterator[tuple[Op, Sample]]:
    for dimensions in ((0,), (1,), (0, 1)):
        yield movement.reverse, Sample((_array(8, 12),), {"dimensions": dimensions})
    for starts, limits, strides in (
        ((1, 0), (16, 4), (1, 1)),
        ((0, 0), (15, 4), (1, 1)),
        ((3, 1), (16, 4), (2, 1)),
        ((5, 0), (6, 4), (1, 1)),
        ((9, 0), (11, 4), (1, 3)),
        ((4, 0), (12, 4), (1, 1)),
    ):
        attributes = {"start_indices": starts, "limit_indices": limits, "strides": strides}
        yield movement.slice_, Sample((_array(16, 4),), attributes)
    for config in (((1, 1, 0), (0, 0, 0)), ((0, 3, 1), (1, -1, 0)), ((-2, 1, 0), (0, 0, 1)), ((9, 7, 3), (0, 0, 0))):
        yield movement.pad, Sample((_array(8, 4), np.asarray(F32(2.5))), {"padding_config": config})
    for shapes, dimension in (
        (((15, 4), (1, 4)), 0),
        (((1, 4), (15, 4)), 0),
        (((8, 4), (8, 4)), 0),
        (((4, 8), (4, 3), (4, 5)), 1),
        (((8, 4), (6, 4)), 0),
    ):
        yield movement.concatenate, Sample(tuple(_array(*s) for s in shapes), {"dimension": dimension})
    for shape, sizes in (((8, 6), (48,)), ((48,), (8, 6)), ((4, 2, 8), (8, 8)), ((8, 8), (4, 16)), ((6, 8), (2, 3, 8))):
        yield movement.reshape, Sample((_array(*shape),), {"sizes": sizes})
    yield movement.broadcast, Sample((_array(8),), {"sizes": (4, 8), "dimensions": (1,)})
    yield movement.transpose, Sample((_array(8, 4, 2),), {"permutation": (2, 0, 1)})
    yield ops["bitcast-convert"], Sample((_array(8, 4),), {"new_element_type": element_type("u16")})


def _products() -> Iterator[tuple[Op, Sample]]:
    for lhs, rhs, dims in (
        ((8, 16), (16, 4), contraction.Dot((1,), (0,))),
        ((16, 8), (16, 4), contraction.Dot((0,), (0,))),
        ((4, 8, 8), (4, 8, 16), contraction.Dot((2,), (1,), (0,), (0,))),
    ):
        yield contraction.dot, Sample((_array(*lhs), _array(*rhs)), dims._asdict())
    rows = RaggedDot((1,), (1,), (0,), rhs_group_dims=(0,))
    sizes = np.array([3, 1, 4], S32)
    yield ops["ragged-dot"], Sample((_array(8, 4), _array(3, 4, 8), sizes), rows._asdict())
    depth = RaggedDot((1,), (0,), (1,))
    yield ops["ragged-dot"], Sample((_array(4, 8), _array(8, 4), sizes), depth._asdict())


def _folds() -> Iterator[tuple[Op, Sample]]:
    for op in ("add", "maximum", "multiply"):
        start = np.asarray(F32(2.0))
        for dimensions in ((0,), (1,), (0, 1)):
            attributes = {"dimensions": dimensions, "to_apply": reduction.scalar_computation(op, F32)}
            yield reduction.reduce, Sample((np.sin(_array(8, 4)), start), attributes)
    index = np.arange(32, dtype=S32).reshape(8, 4)
    pair = reduction.argument_computation("GT", F32, S32)
    start = (np.asarray(F32(-np.inf)), np.asarray(S32(0)))
    for dimensions in ((0,), (0, 1)):
        sample = Sample((np.floor(_array(8, 4) / 9), index, *start), {"dimensions": dimensions, "to_apply": pair})
        yield reduction.reduce, sample
    for window in (
        (W(3, 1, 1, 1), W(1)),
        (W(2, 2), W(2, 2)),
        (W(3, 2, 0, 1), W(1)),
        (W(2, 1, 3, 0, 2), W(1)),
        (W(3, 1, 2, 2, 1, 2), W(1)),
        (W(16, padding_low=15), W(1)),
        (W(16, padding_high=15), W(1)),
        (W(5), W(1)),
        (W(1), W(8, padding_low=7)),
    ):
        for op, initial in (("add", 1.0), ("maximum", -np.inf)):
            attributes = {"window": window, "to_apply": reduction.scalar_computation(op, F32)}
            yield ops["reduce-window"], Sample((np.sin(_array(16, 8)), np.asarray(F32(initial))), attributes)
    attributes = {"window": (W(2, 2), W(1)), "select": comparison("GE", F32)}
    attributes["scatter"] = reduction.scalar_computation("add", F32)
    source = Sample((_array(8, 4), _array(4, 4), np.asarray(F32(0))), attributes)
    yield ops["select-and-scatter"], source


_LABELS = ConvDimensionNumbers((0, 1, 2, 3), (0, 1, 2, 3), (0, 1, 2, 3))


def _convolutions() -> Iterator[tuple[Op, Sample]]:
    for lhs, rhs, window, features, batch in (
        ((4, 4, 16, 8), (8, 4, 3, 3), (W(3, 1, 1, 1), W(3, 1, 1, 1)), 1, 1),
        ((2, 4, 16, 8), (8, 4, 2, 2), (W(2, 2), W(2, 2)), 1, 1),
        ((2, 4, 16, 8), (4, 4, 3, 3), (W(3), W(3, 1, 0, 0, 1, 1, True)), 1, 1),
        ((2, 4, 8, 8), (4, 4, 2, 2), (W(2, 1, 1, 1, 1, 2), W(2, 1, 1, 1, 1, 2)), 1, 1),
        ((2, 4, 16, 8), (4, 4, 3, 1), (W(3, 1, 2, 2, 2), W(1)), 1, 1),
        ((2, 8, 8, 8), (8, 2, 3, 3), (W(3, 1, 1, 1), W(3, 1, 1, 1)), 4, 1),
        ((8, 4, 8, 8), (8, 4, 3, 3), (W(3, 1, 1, 1), W(3, 1, 1, 1)), 1, 4),
        ((2, 4, 16, 8), (4, 4, 16, 8), (W(16, 1, 1, 1), W(8, 1, 1, 1)), 1, 1),
        ((2, 4, 16, 8), (4, 4, 8, 8), (W(8, 1, 0, 1, 2), W(8, 1, 1, 1)), 1, 1),
    ):
        attributes = {
            "window": window,
            "dim_labels": _LABELS,
            "feature_group_count": features,
            "batch_group_count": batch,
            "preferred_element_type": None,
            "operand_precision": (),
        }
        yield ops["convolution"], Sample((np.sin(_array(*lhs)), np.cos(_array(*rhs))), attributes)


def _places() -> Iterator[tuple[Op, Sample]]:
    def number(value: int, dtype: Any = S32) -> Any:
        return np.asarray(value, dtype)

    for start in (0, 5, 15, -3):
        for length in (1, 3, 12):
            given = (_array(16, 4), number(start), number(0))
            yield ops["dynamic-slice"], Sample(given, {"dynamic_slice_sizes": (length, 4)})
            given = (_array(16, 4), _array(length, 4) + 50, number(start, np.int8), number(0, np.int8))
            yield ops["dynamic-update-slice"], Sample(given)
    rows = np.array([[3], [15], [-4], [8], [40], [0], [7], [8]], S32)
    lookup = indexing.Gather((1,), (0,), (0,), 1, (1, 8))
    yield indexing.gather, Sample((_array(16, 8), rows), lookup._asdict())
    yield indexing.gather, Sample((_array(16, 8), rows.clip(0).astype(np.uint8)), lookup._asdict())
    pairs = np.array([[3, 1], [15, 7], [2, 9], [8, 0]], S32)
    both = indexing.Gather((), (0, 1), (0, 1), 1, (1, 1))
    yield indexing.gather, Sample((_array(16, 8), pairs), both._asdict())
    blocks = indexing.Gather((1, 2), (), (0, 1), 1, (3, 8))
    yield indexing.gather, Sample((_array(16, 8), pairs), blocks._asdict())
    along = indexing.Gather((), (1,), (1,), 2, (1, 1), (0,), (0,))
    picks = (np.arange(16, dtype=S32).reshape(8, 2) * 5) % 16
    yield indexing.gather, Sample((_array(8, 16), picks[:, :, None]), along._asdict())
    for op in ("add", "maximum", "replacement"):
        to_apply = indexing.replacement(F32) if op == "replacement" else reduction.scalar_computation(op, F32)
        write = indexing.Scatter((1,), (0,), (0,), 1, to_apply)
        yield indexing.scatter, Sample((_array(16, 8), rows, _array(8, 8)), write._asdict())
        cells = indexing.Scatter((), (0, 1), (0, 1), 1, to_apply)
        yield indexing.scatter, Sample((_array(16, 8), pairs, _array(4)), cells._asdict())
        paired = indexing.Scatter((), (1,), (1,), 2, to_apply, (0,), (0,))
        yield indexing.scatter, Sample((_array(8, 16), picks[:, :, None], _array(8, 2)), paired._asdict())


def _others() -> Iterator[tuple[Op, Sample]]:
    for axis in (0, 1):
        comparator = sorting.order_computation((np.dtype(F32),))
        yield sorting.sort, Sample((_array(8, 16),), sorting.Sort((axis,), comparator)._asdict())
    yield sorting.topk, Sample((_array(8, 16),), {"k": 3, "largest": True})
    z = _array(8, 16, dtype=np.complex64)
    for x, kind, lengths in (
        (z, "FFT", (16,)),
        (z, "IFFT", (8, 16)),
        (_array(8, 16), "RFFT", (8, 16)),
        (_array(8, 9, dtype=np.complex64), "IRFFT", (8, 16)),
        (_array(4, 8, 16, dtype=np.complex64), "FFT", (8, 16)),
    ):
        yield ops["fft"], Sample((x,), {"fft_type": kind, "fft_length": lengths})
    square = np.sin(_array(8, 4, 4)) + 4 * np.eye(4, dtype=F32)
    sides = {"left_side": True, "lower": True, "unit_diagonal": False, "transpose_a": "NO_TRANSPOSE"}
    yield ops["triangular-solve"], Sample((square, _array(8, 4, 8)), sides)
    yield ops["cholesky"], Sample((square @ square.swapaxes(1, 2),), {"lower": True})
    yield ops["Solve"], Sample((square, _array(8, 4, 8)), {"transpose_a": False})
    yield ops["LuDecomposition"], Sample((square,))


def large_samples() -> Sequence[tuple[Op, Sample]]:
    """Operations with samples whose dimensions mostly divide by 2 and 4."""
    families = (_movement, _products, _folds, _convolutions, _places, _others)
    return [pair for family in families for pair in family()]
