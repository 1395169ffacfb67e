"""Every documented precondition of every op, violated once: the error names the op, the attribute or operand, the
values and what to do.

A row of `VIOLATIONS` breaks one precondition and no other. Its last entry is the text of the error, without the op's
name before it and the user's line behind. Sources: the sections of the XLA documents named after each operation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest

import tinyxla as tx
from tests.support import collective_preconditions
from tinyxla import lax, xla
from tinyxla.errors import TinyxlaError
from tinyxla.ops import elementwise, ops, reduction
from tinyxla.ops.numerics.accuracy import ResultAccuracy, accurate_ops
from tinyxla.ops.products.convolution import ConvDimensionNumbers
from tinyxla.shapes import TOKEN, AnyShape, Shape, TupleShape, WindowDimension, element_type
from tinyxla.tracing.core import trace
from tinyxla.tracing.meshes import AbstractMesh
from tinyxla.transforms.computations import of_one


class Violation(NamedTuple):
    precondition: str
    operands: tuple[str, ...]  # shapes, as HLO text has them
    attributes: dict[str, Any]
    says: str


def shape(text: str) -> AnyShape:
    """`f32[2,3]`, or a tuple of such."""
    if text.startswith("("):
        return TupleShape(tuple(map(shape, re.findall(r"\w+\[[\d,]*\]", text))))
    name, sizes = text.removesuffix("]").split("[")
    return Shape(TOKEN if name == "token" else element_type(name), tuple(map(int, filter(None, sizes.split(",")))))


def scalars(*types: str) -> list[AnyShape]:
    return [Shape(element_type(name)) for name in types]


F32, F64, S32, PRED = map(element_type, ("f32", "f64", "s32", "pred"))
ADD, ADD_INTEGERS = (reduction.scalar_computation("add", t.dtype) for t in (F32, S32))
LESS = of_one(elementwise.lt, scalars("f32", "f32"), "less")
SINE = of_one(elementwise.sin, scalars("f32"), "sine")
PAIR = trace(lambda x, y: [x, y], scalars("f32", "s32"), "pair")[0]
SWAPPED = trace(lambda x, y: [y, x], scalars("f32", "s32"), "swapped")[0]
SINGLE = trace(lambda x: [x], scalars("f32"), "single")[0]
FIRST = of_one(lambda x, y: x, scalars("f32", "s32"), "first")
ABOVE = of_one(lambda x, y: elementwise.gt(x, x), scalars("f32", "s32"), "above")
PAIR_OF = ("f32[]", "s32[]")
EARLY = trace(lambda x: [elementwise.sin(x), elementwise.cos(x)], scalars("f32"), "early")[0]
LATE = trace(lambda t, r, g: [elementwise.mul(r, g)], scalars("s32", "f32", "f32"), "late")[0]
LANE = trace(lambda x: [elementwise.sin(x)], scalars("f32"), "lane")[0]
LANES = trace(lambda x: [elementwise.sin(x)], [shape("f32[3]")], "lanes")[0]
SUMS = trace(lambda x: [reduction.reduce_sum(x, (0,))], [shape("f32[3]")], "sums")[0]
FITS = {"type": "FLOAT"}
DOT = dict.fromkeys(("lhs_batch_dims", "rhs_batch_dims", "operand_precision"), ()) | {
    "lhs_contracting_dims": (1,),
    "rhs_contracting_dims": (0,),
    "preferred_element_type": None,
}
MATRICES = ("f32[2,3]", "f32[3,4]")
RAGGED = DOT | {"rhs_contracting_dims": (1,), "lhs_ragged_dims": (0,), "rhs_group_dims": (0,)}
GROUPED = ("f32[5,3]", "f32[2,3,4]", "s32[2]")
LABELS = ConvDimensionNumbers((0, 1, 2), (0, 1, 2), (0, 1, 2))
CONVOLUTION: dict[str, Any] = {"window": (WindowDimension(2),), "dim_labels": LABELS}
IMAGES = ("f32[4,6,5]", "f32[8,6,2]")
GATHER = {
    "offset_dims": (1,),
    "collapsed_slice_dims": (0,),
    "start_index_map": (0,),
    "index_vector_dim": 1,
    "slice_sizes": (1, 3),
    "operand_batching_dims": (),
    "start_indices_batching_dims": (),
    "indices_are_sorted": False,
}
ROWS = ("f32[5,3]", "s32[4,1]")
BATCHES = {"offset_dims": (), "slice_sizes": (1, 1), "operand_batching_dims": (1,), "start_indices_batching_dims": (0,)}
SCATTER = {
    "update_window_dims": (1,),
    "inserted_window_dims": (0,),
    "scatter_dims_to_operand_dims": (0,),
    "index_vector_dim": 1,
    "to_apply": ADD,
    "input_batching_dims": (),
    "scatter_indices_batching_dims": (),
    "indices_are_sorted": False,
    "unique_indices": False,
}
UPDATED = (*ROWS, "f32[4,3]")
WINDOW = {"window": (WindowDimension(2),), "to_apply": ADD}
SELECTED: dict[str, Any] = {"window": (WindowDimension(2, 2),), "select": LESS, "scatter": ADD}
SOLVE = {"left_side": True, "lower": True, "unit_diagonal": False, "transpose_a": "NO_TRANSPOSE"}
NORM = {"epsilon": 1e-3, "feature_index": 1}
V = Violation


def _matrix(*more: Violation, **attributes: Any) -> list[Violation]:
    """Of an op on matrices."""
    return [
        V(
            "a floating or complex type",
            ("s32[3,3]",),
            attributes,
            "a must have a floating or complex type… s32[3,3]; convert it.",
        ),
        V("two dimensions or more", ("f32[3]",), attributes, "a must be a matrix, or several… but got f32[3]."),
        *more,
    ]


def _square(**attributes: Any) -> list[Violation]:
    return _matrix(
        V("square", ("f32[3,2]",), attributes, "the last two dimensions of a must be equal, but got f32[3,2]."),
        **attributes,
    )


def _norm(*others: str) -> list[Violation]:
    """Of an op of batch normalisation that takes these operands after the first two."""
    return [
        V(
            "floats",
            ("s32[2,5]", "f32[5]", *others),
            NORM,
            "the operand must be of a floating-point type, but got s32[2,5]; convert it.",
        ),
        V(
            "feature_index is a dimension",
            ("f32[2,5]", "f32[5]", *others),
            NORM | {"feature_index": 2},
            "feature_index must be a dimension of f32[2,5], but got 2.",
        ),
        V(
            "one type",
            ("f32[2,5]", "f64[5]", *others),
            NORM,
            "operand 1 must have the element type of f32[2,5], but got f64[5]; convert it.",
        ),
        V(
            "one value for each feature",
            ("f32[2,5]", "f32[2]", *others),
            NORM,
            "operand 1 must be f32[5], but got f32[2].",
        ),
    ]


VIOLATIONS: dict[str, list[Violation]] = {
    # shape and data movement
    "broadcast": [
        V(
            "the operand is an array",
            ("(f32[2])",),
            {"sizes": (2,), "dimensions": (0,)},
            "the operand must be an array, but got the tuple (f32[2]); take its elements.",
        ),
        V(
            "a place for each dimension",
            ("f32[2]",),
            {"sizes": (2,), "dimensions": ()},
            "dimensions must say where each of those of f32[2] goes, but got ().",
        ),
        V(
            "dimensions in range",
            ("f32[2]",),
            {"sizes": (2,), "dimensions": (1,)},
            "dimensions must be from 0 to 0, but got 1 in (1,).",
        ),
        V(
            "dimensions distinct",
            ("f32[2,2]",),
            {"sizes": (2, 2), "dimensions": (1, 1)},
            "dimensions must be distinct, but got (1, 1); name each once.",
        ),
        V("equal sizes", ("f32[2]",), {"sizes": (3, 2), "dimensions": (0,)}, "dimension 0 of the … but it is 3"),
        V("sizes not negative", ("f32[]",), {"sizes": (-1,), "dimensions": ()}, "sizes must not be … but got (-1,)"),
    ],
    "reshape": [
        V(
            "the operand is an array",
            ("(f32[2])",),
            {"sizes": (2,)},
            "the operand must be an array, but got the tuple (f32[2]); take its elements.",
        ),
        V("as many elements", ("f32[2,3]",), {"sizes": (5,)}, "sizes must make the 6 elements of … but (5,) make 5"),
        V("sizes not negative", ("f32[2,3]",), {"sizes": (-2, -3)}, "sizes must not be negative, but got (-2, -3)."),
    ],
    "transpose": [
        V(
            "the operand is an array",
            ("(f32[2])",),
            {"permutation": (0,)},
            "the operand must be an array, but got the tuple (f32[2]); take its elements.",
        ),
        V("a permutation", ("f32[2,3]",), {"permutation": (0, 0)}, "permutation must name each … but got (0, 0)"),
        V("all dimensions", ("f32[2,3]",), {"permutation": (0,)}, "permutation must name each … but got (0,)"),
    ],
    "reverse": [
        V(
            "the operand is an array",
            ("(f32[2])",),
            {"dimensions": (0,)},
            "the operand must be an array, but got the tuple (f32[2]); take its elements.",
        ),
        V("dimensions in range", ("f32[2,3]",), {"dimensions": (2,)}, "dimensions must be from … but got 2 in (2,)"),
        V("dimensions not negative", ("f32[2,3]",), {"dimensions": (-1,)}, "dimensions must be … but got -1 in (-1,)"),
        V("dimensions distinct", ("f32[2,3]",), {"dimensions": (1, 1)}, "dimensions must be … but got (1, 1)"),
    ],
    "slice": [
        V(
            "the operand is an array",
            ("(f32[2])",),
            {"start_indices": (), "limit_indices": (), "strides": ()},
            "the operand must be an array, but got the tuple (f32[2]); take its elements.",
        ),
        V(
            "a start for each dimension",
            ("f32[2,3]",),
            {"start_indices": (0,), "limit_indices": (1, 1), "strides": (1, 1)},
            "start_indices must have an entry for each dimension of f32[2,3], but got (0,).",
        ),
        V(
            "a limit for each dimension",
            ("f32[3]",),
            {"start_indices": (0,), "limit_indices": (), "strides": (1,)},
            "limit_indices must have an entry for each dimension of f32[3], but got ().",
        ),
        V(
            "a stride for each dimension",
            ("f32[3]",),
            {"start_indices": (0,), "limit_indices": (2,), "strides": (1, 1)},
            "strides must have an entry for each dimension of f32[3], but got (1, 1).",
        ),
        V(
            "starts not negative",
            ("f32[3]",),
            {"start_indices": (-1,), "limit_indices": (2,), "strides": (1,)},
            "start_indices and limit_indices must have 0 <= start <= limit <= 3 in dimension 0 … but got [-1, 2)",
        ),
        V(
            "limits not below starts",
            ("f32[3]",),
            {"start_indices": (2,), "limit_indices": (1,), "strides": (1,)},
            "start_indices and limit_indices must have 0 <= start <= limit <= 3 in dimension 0 … but got [2, 1)",
        ),
        V(
            "limits inside",
            ("f32[3]",),
            {"start_indices": (0,), "limit_indices": (4,), "strides": (1,)},
            "start_indices and limit_indices must have 0 <= start <= limit <= 3 in dimension 0 … but got [0, 4)",
        ),
        V(
            "strides positive",
            ("f32[3]",),
            {"start_indices": (0,), "limit_indices": (2,), "strides": (0,)},
            "strides must be positive, but dimension 0 has 0 in (0,).",
        ),
    ],
    "pad": [
        V(
            "the operand is an array",
            ("(f32[3])", "f32[]"),
            {"padding_config": ((0, 0, 0),)},
            "the operand must be an array, but got the tuple (f32[3]); take its elements.",
        ),
        V(
            "a scalar as padding value",
            ("f32[3]", "f32[1]"),
            {"padding_config": ((0, 0, 0),)},
            "the padding value must be a scalar f32, but got f32[1].",
        ),
        V(
            "a padding value of the type",
            ("f32[3]", "s32[]"),
            {"padding_config": ((0, 0, 0),)},
            "the padding value must be a scalar f32, but got s32[].",
        ),
        V(
            "an entry for each dimension",
            ("f32[3]", "f32[]"),
            {"padding_config": ()},
            "padding_config must have (low, high, interior) for each dimension of f32[3], but got ().",
        ),
        V(
            "three numbers",
            ("f32[3]", "f32[]"),
            {"padding_config": ((0, 0),)},
            "padding_config must have (low, high, interior) for each dimension of f32[3], but got ((0, 0),).",
        ),
        V(
            "interior not negative",
            ("f32[3]", "f32[]"),
            {"padding_config": ((0, 0, -1),)},
            "interior padding must not be negative, but padding_config is ((0, 0, -1),).",
        ),
        V(
            "no more taken than there is",
            ("f32[3]", "f32[]"),
            {"padding_config": ((-2, -2, 0),)},
            "padding_config must not take away more than f32[3] has, but got ((-2, -2, 0),).",
        ),
    ],
    "concatenate": [
        V("one operand or more", (), {"dimension": 0}, "there must be at least one operand, but got none."),
        V(
            "operands are arrays",
            ("f32[2]", "(f32[2])"),
            {"dimension": 0},
            "the operand must be an array, but got the tuple (f32[2]); take its elements.",
        ),
        V("not of rank 0", ("f32[]", "f32[]"), {"dimension": 0}, "the operands must have at least … but got f32[]"),
        V("dimension in range", ("f32[2]", "f32[2]"), {"dimension": 1}, "dimension must be from … but got 1 in (1,)"),
        V("one type", ("f32[2]", "s32[2]"), {"dimension": 0}, "operands must have one … but got f32[2] and s32[2]"),
        V("one rank", ("f32[2]", "f32[2,1]"), {"dimension": 0}, "operands must be … but got f32[2] and f32[2,1]"),
        V(
            "other sizes equal",
            ("f32[2,3]", "f32[2,4]"),
            {"dimension": 0},
            "operands must be equal but for dimension 0, but got f32[2,3] and f32[2,4].",
        ),
    ],
    "iota": [
        V("numbers", (), {"shape": Shape(PRED, (3,)), "iota_dimension": 0}, "the element type must … but got pred[3]"),
        V(
            "iota_dimension in range",
            (),
            {"shape": Shape(F32, (3,)), "iota_dimension": 1},
            "iota_dimension must be from 0 to 0, but got 1 in (1,).",
        ),
    ],
    "get-tuple-element": [
        V("the operand is a tuple", ("f32[2]",), {"index": 0}, "the operand must be a tuple, but got f32[2]."),
        V("index in range", ("(f32[2], s32[])",), {"index": 2}, "index must be one of the 2 elements of … but got 2"),
    ],
    "get-dimension-size": [
        V(
            "the operand is an array",
            ("(f32[2])",),
            {"dimensions": (0,)},
            "the operand must be an array, but got the tuple (f32[2]); take its elements.",
        ),
        V("dimension in range", ("f32[2,3]",), {"dimensions": (2,)}, "dimensions must be … but got (2,) for f32[2,3]"),
        V("one dimension", ("f32[2,3]",), {"dimensions": (0, 1)}, "dimensions must be … but got (0, 1) for f32[2,3]"),
    ],
    "set-dimension-size": [
        V(
            "the operand is an array",
            ("(f32[2])", "s32[]"),
            {"dimensions": (0,)},
            "the operand must be an array, but got the tuple (f32[2]); take its elements.",
        ),
        V(
            "dimension in range",
            ("f32[2,3]", "s32[]"),
            {"dimensions": (-1,)},
            "dimensions must be one from 0 to 1, but got (-1,) for f32[2,3].",
        ),
        V("the size is s32[]", ("f32[2,3]", "s64[]"), {"dimensions": (0,)}, "a size must be s32[] … but got s64[]"),
    ],
    "dynamic-reshape": [
        V(
            "a size for each dimension",
            ("f32[6]", "s32[]"),
            {"sizes": (2, 3), "dims_are_dynamic": (True, False)},
            "there must be a size, … but got 1 dim_sizes, new_size_bounds (2, 3) and dims_are_dynamic (True, False)",
        ),
        V(
            "sizes are s32[]",
            ("f32[6]", "f32[]"),
            {"sizes": (6,), "dims_are_dynamic": (True,)},
            "a size must be s32[], but got f32[]; convert it.",
        ),
        V(
            "bounds not negative",
            ("f32[6]", "s32[]"),
            {"sizes": (-6,), "dims_are_dynamic": (True,)},
            "new_size_bounds must not be negative, but got (-6,).",
        ),
        V(
            "as many elements",
            ("f32[6]", "s32[]"),
            {"sizes": (5,), "dims_are_dynamic": (False,)},
            "sizes must make the 6 elements of f32[6], but got (5,).",
        ),
    ],
    "bitcast": [
        V(
            "an order of dimensions",
            ("f32[2,3]",),
            {"new_element_type": F32, "sizes": (6,), "operand_layout": (1, 1), "result_layout": (0,)},
            "the layout of the operand must be an order of 2 dimensions, but got (1, 1).",
        ),
        V(
            "as many elements",
            ("f32[6]",),
            {"new_element_type": F32, "sizes": (5,), "operand_layout": (0,), "result_layout": (0,)},
            "sizes must make the 6 elements of f32[6], but got (5,).",
        ),
        V(
            "equal widths",
            ("f32[6]",),
            {"new_element_type": F64, "sizes": (6,), "operand_layout": (0,), "result_layout": (0,)},
            "elements must keep their width, but got f32[6] to f64.",
        ),
    ],
    # element-wise with attributes
    "bitcast-convert": [
        V(
            "the operand is an array",
            ("(f32[2])",),
            {"new_element_type": S32},
            "the operand must be an array, but got the tuple (f32[2]); take its elements.",
        ),
        V(
            "no real parts of complex numbers",
            ("c64[2]",),
            {"new_element_type": element_type("u64")},
            "both types must be complex or neither, but got c64[2] to u64.",
        ),
        V(
            "the last dimension makes one element",
            ("u8[2,3]",),
            {"new_element_type": S32},
            "the last dimension must be 4, the u8 that make one s32, but got u8[2,3].",
        ),
    ],
    "convert": [
        V(
            "the operand is an array",
            ("(f32[2])",),
            {"new_element_type": S32},
            "the operand must be an array, but got the tuple (f32[2]); convert its elements.",
        ),
    ],
    "reduce-precision": [
        V(
            "floats",
            ("s32[3]",),
            {"exponent_bits": 5, "mantissa_bits": 10},
            "not defined for s32[3]; the element type must be of kind float.",
        ),
        V(
            "exponent_bits positive",
            ("f32[3]",),
            {"exponent_bits": 0, "mantissa_bits": 10},
            "exponent_bits must be at least 1, but got 0.",
        ),
        V(
            "mantissa_bits not negative",
            ("f32[3]",),
            {"exponent_bits": 5, "mantissa_bits": -1},
            "mantissa_bits must not be negative, but got -1.",
        ),
    ],
    "compare": [
        V(
            "equal shapes",
            ("f32[2]", "f32[3]"),
            {"direction": "EQ", **FITS},
            "operands must have one shape, but got f32[2] and f32[3]; broadcast one.",
        ),
        V(
            "one type",
            ("f32[2]", "f64[2]"),
            {"direction": "EQ", **FITS},
            "operands must have one element type, but got f32[2] and f64[2]; convert one of them.",
        ),
        V("a direction", ("f32[2]", "f32[2]"), {"direction": "LEQ", **FITS}, "direction must be one … but got 'LEQ'"),
        V(
            "a type of comparison that fits",
            ("f32[2]", "f32[2]"),
            {"direction": "EQ", "type": "SIGNED"},
            "type must fit operands f32[2], but got 'SIGNED'; use FLOAT.",
        ),
        V("an order", ("c64[2]", "c64[2]"), {"direction": "LT", **FITS}, "direction must be EQ or NE … but got LT"),
    ],
    "select": [
        V("a predicate", ("s32[2]", "f32[2]", "f32[2]"), {}, "the predicate must have element type … but got s32[2]"),
        V("a predicate for each element", ("pred[3]", "f32[2]", "f32[2]"), {}, "the predicate must … but got pred[3]"),
        V("equal shapes", ("pred[2]", "f32[2]", "f32[3]"), {}, "operands must have one … but got f32[2] and f32[3]"),
        V("one type", ("pred[2]", "f32[2]", "s32[2]"), {}, "operands must have one … but got f32[2] and s32[2]"),
    ],
    "clamp": [
        V("equal shapes", ("f32[2]", "f32[2]", "f32[3]"), {}, "operands must have one … but got f32[2] and f32[3]"),
        V("one type", ("s32[2]", "f32[2]", "f32[2]"), {}, "operands must have one … but got s32[2] and f32[2]"),
        V("an order", ("c64[2]", "c64[2]", "c64[2]"), {}, "not defined for c64[2]; the … pred, signed, unsigned."),
    ],
    # indexing
    "dynamic-slice": [
        V(
            "the operand is an array",
            ("(f32[2])", "s32[]"),
            {"dynamic_slice_sizes": (1,)},
            "the operand must be an array, but got the tuple (f32[2]); take its elements.",
        ),
        V(
            "a start for each dimension",
            ("f32[2,3]", "s32[]"),
            {"dynamic_slice_sizes": (1, 1)},
            "there must be 2 start indices for f32[2,3], but got 1; give one for each dimension.",
        ),
        V(
            "starts are integers",
            ("f32[3]", "f32[]"),
            {"dynamic_slice_sizes": (1,)},
            "indices must be integers, but got f32[]; convert them.",
        ),
        V(
            "starts are scalars",
            ("f32[3]", "s32[1]"),
            {"dynamic_slice_sizes": (1,)},
            "a start index must be a scalar, but got s32[1]; reshape it.",
        ),
        V(
            "starts of one type",
            ("f32[2,3]", "s32[]", "s64[]"),
            {"dynamic_slice_sizes": (1, 1)},
            "start indices must have one type, but got [s32[], s64[]]; convert them.",
        ),
        V(
            "a size for each dimension",
            ("f32[3]", "s32[]"),
            {"dynamic_slice_sizes": (1, 1)},
            "dynamic_slice_sizes must fit inside f32[3], but got (1, 1).",
        ),
        V("sizes fit", ("f32[3]", "s32[]"), {"dynamic_slice_sizes": (4,)}, "dynamic_slice_sizes must … but got (4,)"),
        V(
            "sizes not negative",
            ("f32[3]", "s32[]"),
            {"dynamic_slice_sizes": (-1,)},
            "dynamic_slice_sizes must fit inside f32[3], but got (-1,).",
        ),
    ],
    "dynamic-update-slice": [
        V("one type", ("f32[3]", "s32[2]", "s32[]"), {}, "operand and update must have … but got f32[3] and s32[2]"),
        V("the update fits", ("f32[3]", "f32[4]", "s32[]"), {}, "the update must fit inside f32[3], but got f32[4]."),
        V("one rank", ("f32[3]", "f32[]", "s32[]"), {}, "the update must fit inside f32[3], but got f32[]."),
        V("a start for each dimension", ("f32[3]", "f32[2]"), {}, "there must be 1 start indices for … but got 0"),
        V("starts are integers", ("f32[3]", "f32[2]", "f32[]"), {}, "indices must be integers … but got f32[]"),
        V("starts are scalars", ("f32[3]", "f32[2]", "s32[1]"), {}, "a start index must be a scalar … but got s32[1]"),
    ],
    "gather": [
        V("indices are integers", ("f32[5,3]", "f32[4,1]"), GATHER, "indices must be integers … but got f32[4,1]"),
        V("index_vector_dim in range", ROWS, GATHER | {"index_vector_dim": 3}, "index_vector_dim must … but got 3"),
        V(
            "a dimension for each index",
            ROWS,
            GATHER | {"start_index_map": (0, 1)},
            "there must be a dimension of the operand for each of the 1 entries of an index … but got (0, 1)",
        ),
        V(
            "start_index_map in range",
            ROWS,
            GATHER | {"start_index_map": (2,)},
            "start_index_map and operand_batching_dims must be from 0 to 1, but got 2 in (2,).",
        ),
        V(
            "collapsed_slice_dims in range",
            ROWS,
            GATHER | {"collapsed_slice_dims": (2,)},
            "collapsed_slice_dims and operand_batching_dims must be from 0 to 1, but got 2 in (2,).",
        ),
        V(
            "collapsed_slice_dims distinct",
            ROWS,
            GATHER | {"collapsed_slice_dims": (0, 0)},
            "collapsed_slice_dims and operand_batching_dims must be distinct, but got (0, 0); name each once.",
        ),
        V(
            "collapsed_slice_dims ascend",
            ROWS,
            GATHER | {"collapsed_slice_dims": (1, 0)},
            "collapsed_slice_dims must ascend, but got (1, 0); sort them.",
        ),
        V(
            "offset_dims ascend",
            ("f32[5,3,2]", "s32[4,1]"),
            GATHER | {"offset_dims": (2, 1), "slice_sizes": (1, 3, 2)},
            "offset_dims must ascend, but got (2, 1); sort them.",
        ),
        V("offset_dims in range", ROWS, GATHER | {"offset_dims": (2,)}, "offset_dims must be … but got 2 in (2,)"),
        V(
            "offset_dims for each dimension of a slice",
            ROWS,
            GATHER | {"offset_dims": ()},
            "offset_dims must be 1, one for each of (1,) in slices, but got ().",
        ),
        V(
            "slice_sizes for each dimension",
            ROWS,
            GATHER | {"slice_sizes": (1,)},
            "slice_sizes must fit inside f32[5,3], but got (1,).",
        ),
        V("slice_sizes fit", ROWS, GATHER | {"slice_sizes": (1, 4)}, "slice_sizes must fit inside … but got (1, 4)"),
        V(
            "collapsed dimensions have slice size 1",
            ROWS,
            GATHER | {"slice_sizes": (2, 3)},
            "slice_sizes must be 1 in dimension 0, which is collapsed or of a batch, but got (2, 3).",
        ),
        V(
            "as many batching dimensions",
            ROWS,
            GATHER | BATCHES | {"start_indices_batching_dims": ()},
            "the operand and the indices must have as many batching dimensions, but got (1,) and ().",
        ),
        V(
            "batching dimensions of one size",
            ROWS,
            GATHER | BATCHES,
            "batching dimension 1 of f32[5,3] and 0 of the indices s32[4,1] must have one size.",
        ),
        V(
            "index vectors are no batch",
            ("f32[5,1]", "s32[4,1]"),
            GATHER | BATCHES | {"start_indices_batching_dims": (1,)},
            "dimension 1 of the indices runs along index vectors and must not be a batching dimension.",
        ),
    ],
    "scatter": [
        V("arrays, indices, updates", ROWS, SCATTER, "operands must be arrays, indices, and as many … but got 2"),
        V("indices are integers", ("f32[5,3]", "f32[4,1]", "f32[4,3]"), SCATTER, "indices must be … but got f32[4,1]"),
        V(
            "index_vector_dim in range",
            UPDATED,
            SCATTER | {"index_vector_dim": -1},
            "index_vector_dim must be from 0 to the rank of the indices s32[4,1], but got -1.",
        ),
        V(
            "a dimension for each index",
            UPDATED,
            SCATTER | {"scatter_dims_to_operand_dims": ()},
            "there must be a dimension of the operand for each of the 1 entries of an index vector … but got ()",
        ),
        V(
            "scatter_dims_to_operand_dims in range",
            UPDATED,
            SCATTER | {"scatter_dims_to_operand_dims": (2,)},
            "scatter_dims_to_operand_dims and input_batching_dims must be from 0 to 1, but got 2 in (2,).",
        ),
        V(
            "inserted_window_dims in range",
            UPDATED,
            SCATTER | {"inserted_window_dims": (2,)},
            "inserted_window_dims and input_batching_dims must be from 0 to 1, but got 2 in (2,).",
        ),
        V(
            "inserted_window_dims ascend",
            UPDATED,
            SCATTER | {"inserted_window_dims": (1, 0)},
            "inserted_window_dims must ascend, but got (1, 0); sort them.",
        ),
        V(
            "update_window_dims for each dimension of a slice",
            UPDATED,
            SCATTER | {"update_window_dims": ()},
            "update_window_dims must be 1, one for each of (1,) in slices, but got ().",
        ),
        V(
            "update_window_dims in range",
            UPDATED,
            SCATTER | {"update_window_dims": (2,)},
            "update_window_dims must be from 0 to 1, but got 2 in (2,).",
        ),
        V(
            "updates of one type",
            ("f32[5,3]", "s32[4,1]", "f64[4,3]"),
            SCATTER,
            "updates of f32[5,3] must have its element type, but got f64[4,3]; convert them.",
        ),
        V("updates fit", ("f32[5,3]", "s32[4,1]", "f32[4,4]"), SCATTER, "updates must have the … but got f32[4,4]"),
        V(
            "updates for each index",
            ("f32[5,3]", "s32[4,1]", "f32[3,3]"),
            SCATTER,
            "updates must have the sizes (4,) of the indices s32[4,1], but got f32[3,3].",
        ),
        V(
            "operands of one shape",
            ("f32[5,3]", "f32[5,2]", "s32[4,1]", "f32[4,3]", "f32[4,3]"),
            SCATTER,
            "operands must have one shape, and updates … but got [f32[5,3], f32[5,2]] and [f32[4,3], f32[4,3]]",
        ),
        V(
            "a computation of the types",
            UPDATED,
            SCATTER | {"to_apply": ADD_INTEGERS},
            "to_apply must map [f32[], f32[]] to [f32[]], but got [s32[], s32[]] -> [s32[]].",
        ),
    ],
    # contractions
    "dot": [
        V("operands are arrays", ("(f32[2])", "f32[2]"), DOT, "the operand must be an … but got the tuple (f32[2])"),
        V("one type", ("f32[2,3]", "f64[3,4]"), DOT, "operands must have one … but got f32[2,3] and f64[3,4]"),
        V(
            "dimensions of lhs in range",
            MATRICES,
            DOT | {"lhs_contracting_dims": (2,)},
            "lhs dimensions must be from 0 to 1, but got 2 in (2,).",
        ),
        V(
            "dimensions of rhs in range",
            MATRICES,
            DOT | {"rhs_contracting_dims": (-1,)},
            "rhs dimensions must be from 0 to 1, but got -1 in (-1,).",
        ),
        V(
            "dimensions distinct",
            MATRICES,
            DOT | {"lhs_batch_dims": (1,), "rhs_batch_dims": (1,)},
            "lhs dimensions must be distinct, but got (1, 1); name each once.",
        ),
        V(
            "as many contracting dimensions",
            MATRICES,
            DOT | {"lhs_contracting_dims": ()},
            "there must be as many contracting dimensions on either side, but got () and (0,).",
        ),
        V(
            "as many batch dimensions",
            MATRICES,
            DOT | {"lhs_batch_dims": (0,)},
            "there must be as many batch dimensions on either side, but got (0,) and ().",
        ),
        V(
            "contracting sizes equal",
            MATRICES,
            DOT | {"rhs_contracting_dims": (1,)},
            "contracting … but dimension 1 of f32[2,3] has size 3, and dimension 1 of f32[3,4] has size 4",
        ),
        V(
            "batch sizes equal",
            MATRICES,
            DOT | {"lhs_batch_dims": (0,), "rhs_batch_dims": (1,)},
            "batch dimensions must … but dimension 0 of f32[2,3] has size 2, and dimension 1 of f32[3,4] has size 4",
        ),
        V(
            "a precision",
            MATRICES,
            DOT | {"operand_precision": ("low", "low")},
            "operand_precision must be default, high or highest for each operand, but got ('low', 'low').",
        ),
        V(
            "a type for sums",
            MATRICES,
            DOT | {"preferred_element_type": S32},
            "products of f32 cannot be summed in preferred_element_type s32; it must … or a float for integers.",
        ),
    ],
    "scaled-dot": [
        V("floats", ("f32[2,4]", "s32[2,2]", "f32[4,3]", "f32[2,3]"), DOT, "operands and scales … but got s32[2,2]"),
        V(
            "scales of blocks",
            ("f32[2,4]", "f32[2,3]", "f32[4,3]", "f32[2,3]"),
            DOT,
            "lhs_scale must have the sizes of f32[2,4], or in the contracting dimensions (1,) … but got f32[2,3]",
        ),
        V(
            "contracting sizes equal",
            ("f32[2,4]", "f32[2,4]", "f32[3,3]", "f32[3,3]"),
            DOT,
            "contracting … but dimension 1 of f32[2,4] has size 4, and dimension 0 of f32[3,3] has size 3",
        ),
    ],
    "ragged-dot": [
        V(
            "contracting sizes equal",
            ("f32[5,4]", *GROUPED[1:]),
            RAGGED,
            "contracting … but dimension 1 of f32[5,4] has size 4, and dimension 1 of f32[2,3,4] has size 3",
        ),
        V(
            "one ragged dimension",
            GROUPED,
            RAGGED | {"lhs_ragged_dims": (0, 1)},
            "lhs_ragged_dims must be one dimension, but got (0, 1).",
        ),
        V(
            "the ragged dimension in range",
            GROUPED,
            RAGGED | {"lhs_ragged_dims": (2,)},
            "lhs_ragged_dims must be from 0 to 1, but got 2 in (2,).",
        ),
        V("a group dimension", GROUPED, RAGGED | {"rhs_group_dims": ()}, "with a free dimension that … but got ()"),
        V("group sizes are integers", (*GROUPED[:2], "f32[2]"), RAGGED, "the group sizes must be … but got f32[2]"),
        V("one list of group sizes", (*GROUPED[:2], "s32[3,2]"), RAGGED, "the group sizes must … but got s32[3,2]"),
        V(
            "as many groups",
            (*GROUPED[:2], "s32[3]"),
            RAGGED,
            "f32[2,3,4] must have 3 … in dimension 0, as s32[3], but has 2.",
        ),
    ],
    "convolution": [
        V(
            "one type",
            ("f32[4,6,5]", "f64[8,6,2]"),
            CONVOLUTION,
            "the operands must have one element type, but got f32[4,6,5] and f64[8,6,2]; convert one.",
        ),
        V(
            "a window for each spatial dimension",
            IMAGES,
            CONVOLUTION | {"window": ()},
            "with a window of 0 dimensions the operands must have 2 … but got f32[4,6,5] and f32[8,6,2]",
        ),
        V(
            "each dimension once",
            IMAGES,
            CONVOLUTION | {"dim_labels": LABELS._replace(out_spec=(0, 1, 1))},
            "out_spec must name each of the 3 dimensions once, but got (0, 1, 1).",
        ),
        V(
            "strides positive",
            IMAGES,
            CONVOLUTION | {"window": (WindowDimension(2, stride=0),)},
            "stride must be positive, but got 0 in spatial dimension 0.",
        ),
        V(
            "dilations positive",
            IMAGES,
            CONVOLUTION | {"window": (WindowDimension(2, base_dilation=0),)},
            "base_dilation must be positive, but got 0 in spatial dimension 0.",
        ),
        V(
            "the window is the kernel's",
            IMAGES,
            CONVOLUTION | {"window": (WindowDimension(3),)},
            "the window must have the kernel's sizes (2,), but it has (3,).",
        ),
        V("features", ("f32[4,5,5]", "f32[8,6,2]"), CONVOLUTION, "the feature dimension of … but it has 5"),
        V(
            "counts positive",
            IMAGES,
            CONVOLUTION | {"feature_group_count": 0},
            "feature_group_count and batch_group_count must be positive and one of them 1, but got 0 and 1.",
        ),
        V(
            "one of the counts is 1",
            IMAGES,
            CONVOLUTION | {"feature_group_count": 2, "batch_group_count": 2},
            "feature_group_count and batch_group_count must be positive and one of them 1, but got 2 and 2.",
        ),
        V(
            "batch_group_count divides",
            ("f32[4,6,5]", "f32[9,6,2]"),
            CONVOLUTION | {"batch_group_count": 3},
            "batch_group_count must divide the elements of the batch, but got 3 and 4.",
        ),
        V(
            "feature_group_count divides",
            ("f32[4,6,5]", "f32[8,2,2]"),
            CONVOLUTION | {"feature_group_count": 3},
            "feature_group_count must divide the output features, but got 3 and 8.",
        ),
    ],
    # reductions, windows, order
    "reduce": [
        V(
            "arrays and initial values",
            ("f32[3]",),
            {"dimensions": (0,), "to_apply": ADD},
            "there must be as many initial values as arrays, but got 1 operands.",
        ),
        V(
            "dimensions in range",
            ("f32[3]", "f32[]"),
            {"dimensions": (1,), "to_apply": ADD},
            "dimensions must be from 0 to 0, but got 1 in (1,).",
        ),
        V(
            "dimensions distinct",
            ("f32[3]", "f32[]"),
            {"dimensions": (0, 0), "to_apply": ADD},
            "dimensions must be distinct, but got (0, 0); name each once.",
        ),
        V(
            "operands of one shape",
            ("f32[3]", "f32[2]", "f32[]", "f32[]"),
            {"dimensions": (0,), "to_apply": ADD},
            "the operands must have the same dimensions, but got f32[3] and f32[2].",
        ),
        V(
            "initial values are scalars",
            ("f32[3]", "f32[1]"),
            {"dimensions": (0,), "to_apply": ADD},
            "the initial value for f32[3] must be a scalar f32, but got f32[1].",
        ),
        V(
            "a computation of the types",
            ("s32[3]", "s32[]"),
            {"dimensions": (0,), "to_apply": ADD},
            "to_apply must map [s32[], s32[]] to [s32[]], but got [f32[], f32[]] -> [f32[]].",
        ),
    ],
    "reduce-window": [
        V("arrays and initial values", ("f32[3]",), WINDOW, "there must be as many initial … but got 1 operands"),
        V(
            "operands of one shape",
            ("f32[3]", "f32[2]", "f32[]", "f32[]"),
            WINDOW,
            "operands must have the same dimensions, but got f32[3] and f32[2].",
        ),
        V("initial values of the type", ("f32[3]", "s32[]"), WINDOW, "the initial value for f32[3] … but got s32[]"),
        V("a window for each dimension", ("f32[3,3]", "f32[]"), WINDOW, "window must have one entry for … but has 1"),
        V(
            "sizes positive",
            ("f32[3]", "f32[]"),
            WINDOW | {"window": (WindowDimension(0),)},
            "window must have a positive size in dimension 0, but got 0.",
        ),
        V(
            "strides positive",
            ("f32[3]", "f32[]"),
            WINDOW | {"window": (WindowDimension(2, stride=0),)},
            "window must have a positive stride in dimension 0, but got 0.",
        ),
        V(
            "dilations positive",
            ("f32[3]", "f32[]"),
            WINDOW | {"window": (WindowDimension(2, window_dilation=0),)},
            "window must have a positive window_dilation in dimension 0, but got 0.",
        ),
        V(
            "a computation of the types",
            ("s32[3]", "s32[]"),
            WINDOW,
            "to_apply must map [s32[], s32[]] to [s32[]], but got [f32[], f32[]] -> [f32[]].",
        ),
    ],
    "select-and-scatter": [
        V(
            "a window for each dimension",
            ("f32[4]", "f32[2]", "f32[]"),
            SELECTED | {"window": ()},
            "window must have one entry for each dimension of f32[4], but has 0.",
        ),
        V(
            "strides positive",
            ("f32[4]", "f32[2]", "f32[]"),
            SELECTED | {"window": (WindowDimension(2, stride=0),)},
            "window must have a positive stride in dimension 0, but got 0.",
        ),
        V(
            "no dilation",
            ("f32[4]", "f32[2]", "f32[]"),
            SELECTED | {"window": (WindowDimension(2, base_dilation=2),)},
            "window must not be dilated, but got {size=2 lhs_dilate=2}.",
        ),
        V("source of the type", ("f32[4]", "f64[2]", "f32[]"), SELECTED, "source must have the … but got f64[2]"),
        V("source for each window", ("f32[4]", "f32[3]", "f32[]"), SELECTED, "source must be … but got f32[3]"),
        V(
            "the initial value is a scalar",
            ("f32[4]", "f32[2]", "f32[1]"),
            SELECTED,
            "the initial value must be a scalar f32[], but got f32[1].",
        ),
        V(
            "select compares",
            ("f32[4]", "f32[2]", "f32[]"),
            SELECTED | {"select": ADD},
            "select must map [f32[], f32[]] to [pred[]], but got [f32[], f32[]] -> [f32[]].",
        ),
        V(
            "scatter combines",
            ("f32[4]", "f32[2]", "f32[]"),
            SELECTED | {"scatter": LESS},
            "scatter must map [f32[], f32[]] to [f32[]], but got [f32[], f32[]] -> [pred[]].",
        ),
    ],
    "map": [
        V("one operand or more", (), {"dimensions": (), "to_apply": SINE}, "the operands must be … but are ()"),
        V(
            "equal dimensions",
            ("f32[3]", "f32[2]"),
            {"dimensions": (0,), "to_apply": ADD},
            "the operands must have the same dimensions, but are [f32[3], f32[2]]; broadcast them first.",
        ),
        V(
            "all dimensions in order",
            ("f32[3,2]",),
            {"dimensions": (1, 0), "to_apply": SINE},
            "dimensions must be those of the operands in order, (0, 1), but are (1, 0).",
        ),
        V(
            "a computation of the types",
            ("s32[3]",),
            {"dimensions": (0,), "to_apply": SINE},
            "the computation sine must take scalars of the operands' types, [s32[]], but takes [f32[]].",
        ),
        V(
            "a computation with one result",
            ("f32[3]", "s32[3]"),
            {"dimensions": (0,), "to_apply": PAIR},
            "the computation pair must give one scalar, but gives (f32[], s32[]).",
        ),
    ],
    "sort": [
        V(
            "one operand or more",
            (),
            {"dimensions": (0,), "to_apply": LESS, "is_stable": True},
            "there must be at least one array, but got none.",
        ),
        V(
            "one dimension",
            ("f32[2,3]",),
            {"dimensions": (0, 1), "to_apply": LESS, "is_stable": True},
            "dimensions must be one, but got (0, 1).",
        ),
        V(
            "the dimension in range",
            ("f32[3]",),
            {"dimensions": (1,), "to_apply": LESS, "is_stable": True},
            "dimensions must be from 0 to 0, but got 1 in (1,).",
        ),
        V(
            "equal dimensions",
            ("f32[3]", "f32[2]"),
            {"dimensions": (0,), "to_apply": LESS, "is_stable": True},
            "the operands must have the same dimensions, but got f32[3] and f32[2].",
        ),
        V(
            "a comparator of the types",
            ("s32[3]",),
            {"dimensions": (0,), "to_apply": LESS, "is_stable": True},
            "the comparator must map [s32[], s32[]] to pred[], but got [f32[], f32[]] -> pred[].",
        ),
        V(
            "a comparator that compares",
            ("f32[3]",),
            {"dimensions": (0,), "to_apply": ADD, "is_stable": True},
            "the comparator must map [f32[], f32[]] to pred[], but got [f32[], f32[]] -> f32[].",
        ),
    ],
    "topk": [
        V("an order", ("c64[3]",), {"k": 1, "largest": True}, "the element type must have an order … but got c64[3]"),
        V("one dimension or more", ("f32[]",), {"k": 1, "largest": True}, "the operand must have a … but got f32[]"),
        V("k up to the size", ("f32[3]",), {"k": 4, "largest": True}, "k must be from 0 to the size of … but got 4"),
        V("k not negative", ("f32[3]",), {"k": -1, "largest": True}, "k must be from 0 to the size of … but got -1"),
    ],
    "batch-norm-training": _norm("f32[5]"),
    "batch-norm-inference": _norm("f32[5]", "f32[5]", "f32[5]"),
    "batch-norm-grad": _norm("f32[5]", "f32[5]", "f32[2,5]"),
    # linear algebra, transforms, random numbers
    "cholesky": _square(lower=True),
    "triangular-solve": [
        V("a floating or complex type", ("s32[3,3]", "s32[3,2]"), SOLVE, "a must have a floating … but got s32[3,3]"),
        V("a is square", ("f32[3,2]", "f32[3,2]"), SOLVE, "the last two dimensions of a must be … but got f32[3,2]"),
        V("b has two dimensions or more", ("f32[3,3]", "f32[3]"), SOLVE, "b must be a matrix, or … but got f32[3]"),
        V("one type", ("f32[3,3]", "f64[3,2]"), SOLVE, "a and b must have one … but got f32[3,3] and f64[3,2]"),
        V(
            "equal batches",
            ("f32[4,3,3]", "f32[5,3,2]"),
            SOLVE,
            "a and b must have equal batch dimensions, but got f32[4,3,3] and f32[5,3,2]; broadcast one.",
        ),
        V("equal sizes", ("f32[3,3]", "f32[2,3]"), SOLVE, "with left_side=True, … but got f32[3,3] and f32[2,3]"),
        V(
            "a way to transpose",
            ("f32[3,3]", "f32[3,2]"),
            SOLVE | {"transpose_a": "CONJUGATE"},
            "transpose_a must be one of NO_TRANSPOSE, TRANSPOSE, ADJOINT, but got 'CONJUGATE'.",
        ),
    ],
    "Eig": _square(),
    "Eigh": _square(lower=True),
    "LuDecomposition": _matrix(),
    "lapack": [
        V("a routine", ("f32[3,3]",), {"routine": "getri"}, "the routine must be one of potrf, … but is 'getri'."),
        V("all options", ("f32[3,3]",), {"routine": "sytrd"}, "sytrd has the options (uplo), but got ()."),
        V("a type of LAPACK's", ("f16[3,3]",), {"routine": "gehrd"}, "LAPACK has no routines for f16[3,3]; convert it"),
        V(
            "square matrices",
            ("f32[2,3]",),
            {"routine": "gehrd"},
            "gehrd takes operands of the shapes [..., n, n], but got (f32[2,3]).",
        ),
        V(
            "operands of one batch",
            ("f32[2,3,3]", "f32[3]"),
            {"routine": "orgqr"},
            "orgqr takes operands of the shapes [..., m, n], [..., t], but got (f32[2,3,3], f32[3]).",
        ),
    ],
    "LuPivotsToPermutation": [
        V("pivots are s32", ("s64[3]",), {"permutation_size": 3}, "pivots must be s32, but got s64[3]; convert them."),
        V(
            "no more pivots than rows",
            ("s32[3]",),
            {"permutation_size": 2},
            "permutation_size must not be below the number of pivots, but got 2 for s32[3].",
        ),
    ],
    "Qr": _matrix(full_matrices=False),
    "Solve": [
        V(
            "a is square",
            ("f32[3,2]", "f32[3,2]"),
            {"transpose_a": False},
            "the last two dimensions of a must be equal",
        ),
        V("one type", ("f32[3,3]", "f64[3,2]"), {"transpose_a": False}, "a and b must have one element type, but got"),
        V("equal batches", ("f32[4,3,3]", "f32[3,2]"), {"transpose_a": True}, "a and b must have equal batch dimens"),
        V("equal sizes", ("f32[3,3]", "f32[2,3]"), {"transpose_a": False}, "dimension -2 of b must have the size of a"),
    ],
    "Svd": _matrix(full_matrices=False),
    "fft": [
        V(
            "a type of transform",
            ("c64[4]",),
            {"fft_type": "DCT", "fft_length": (4,)},
            "fft_type must be one of FFT, IFFT, RFFT, IRFFT, but got 'DCT'.",
        ),
        V(
            "complex numbers",
            ("f32[4]",),
            {"fft_type": "FFT", "fft_length": (4,)},
            "the operand of FFT must be c64 or c128, but got f32[4]; convert it.",
        ),
        V(
            "real numbers",
            ("c64[4]",),
            {"fft_type": "RFFT", "fft_length": (4,)},
            "the operand of RFFT must be f32 or f64, but got c64[4]; convert it.",
        ),
        V(
            "one to three lengths",
            ("c64[2,2,2,2]",),
            {"fft_type": "FFT", "fft_length": (2, 2, 2, 2)},
            "fft_length must have 1, 2 or 3 lengths, but got (2, 2, 2, 2); do the rest by another fft.",
        ),
        V(
            "no more lengths than dimensions",
            ("c64[4]",),
            {"fft_type": "FFT", "fft_length": (4, 4)},
            "fft_length (4, 4) must not have more lengths than c64[4] has dimensions.",
        ),
        V(
            "lengths not negative",
            ("c64[4]",),
            {"fft_type": "FFT", "fft_length": (-4,)},
            "fft_length must not be negative, but got (-4,).",
        ),
        V(
            "the last dimensions",
            ("c64[4]",),
            {"fft_type": "FFT", "fft_length": (5,)},
            "for FFT of fft_length (5,) the last dimensions must be (5,) … but got c64[4]",
        ),
        V(
            "half of the last dimension",
            ("c64[4]",),
            {"fft_type": "IRFFT", "fft_length": (4,)},
            "for IRFFT of fft_length (4,) the last dimensions must be (3,) … but got c64[4]",
        ),
    ],
    "rng": [
        V(
            "a distribution",
            ("f32[]", "f32[]"),
            {"distribution": "rng_gamma", "shape": Shape(F32, (3,))},
            "distribution must be one of rng_uniform, rng_normal, but got 'rng_gamma'.",
        ),
        V(
            "a type for it",
            ("s32[]", "s32[]"),
            {"distribution": "rng_normal", "shape": Shape(S32, (3,))},
            "rng_normal must be of a type that it is defined for, but got s32[3]; convert it.",
        ),
        V(
            "parameters of the type",
            ("f32[]", "f64[]"),
            {"distribution": "rng_uniform", "shape": Shape(F32, (3,))},
            "the parameters of rng_uniform for f32[3] must be scalars f32, but got f64[].",
        ),
        V(
            "scalars",
            ("f32[]", "f32[3]"),
            {"distribution": "rng_uniform", "shape": Shape(F32, (3,))},
            "the parameters of rng_uniform for f32[3] must be scalars f32, but got f32[3].",
        ),
    ],
    "rng-bit-generator": [
        V(
            "an algorithm",
            ("u64[2]",),
            {"algorithm": "rng_xorshift", "shape": Shape(S32, (3,))},
            "algorithm must be one of rng_default, rng_three_fry, rng_philox, but got 'rng_xorshift'.",
        ),
        V(
            "a state of u64",
            ("u32[4]",),
            {"algorithm": "rng_three_fry", "shape": Shape(S32, (3,))},
            "the state must be of 64-bit unsigned integers, but got u32[4]; convert it.",
        ),
        V(
            "a state of its size",
            ("u64[3]",),
            {"algorithm": "rng_three_fry", "shape": Shape(S32, (3,))},
            "the state of rng_three_fry must be u64[2], but got u64[3].",
        ),
        V(
            "bits for its type",
            ("u64[2]",),
            {"algorithm": "rng_three_fry", "shape": Shape(PRED, (3,))},
            "the result must be of an integer or floating type, but got pred[3].",
        ),
    ],
    "rng-get-and-update-state": [
        V("delta not negative", (), {"delta": -1}, "delta must not be negative, but got -1."),
    ],
    "threefry-2x32": [
        V("words", ("u8[3]",) * 4, {}, "keys and counters must be 32-bit words u32, but got u8[3]; convert them."),
        V("one shape", (*("u32[3]",) * 3, "u32[2]"), {}, "operands must have one shape, but got u32[3] and u32[2]"),
    ],
    # control flow, calls and texts
    "call": [
        V(
            "operands of the parameters' shapes",
            ("f32[2]",),
            {"to_apply": SINE},
            "the operands of sine must be [f32[]], but got [f32[2]].",
        ),
        V("as many operands", ("f32[]", "f32[]"), {"to_apply": SINE}, "the operands of sine … but got [f32[], f32[]]"),
    ],
    "conditional": [
        V(
            "a predicate or an index",
            ("f32[]", *PAIR_OF),
            {"branch_computations": (PAIR, PAIR)},
            "what chooses the branch must be pred[] or s32[], but is f32[].",
        ),
        V(
            "two branches for a predicate",
            ("pred[]", *PAIR_OF),
            {"branch_computations": (PAIR,)},
            "with an index pred[] there must be two branches, but there are 1.",
        ),
        V(
            "one branch or more",
            ("s32[]", *PAIR_OF),
            {"branch_computations": ()},
            "with an index s32[] there must be at least one branch, but there are 0.",
        ),
        V(
            "branches of the operands' shapes",
            ("s32[]", "f32[]", "f32[]"),
            {"branch_computations": (PAIR,)},
            "a branch: the parameters of pair must have the … but number 1 is s32[] where f32[] is needed",
        ),
        V(
            "as many operands",
            ("s32[]", "f32[]"),
            {"branch_computations": (PAIR,)},
            "a branch must have a parameter for each of the 1 operands, but pair has 2.",
        ),
        V(
            "equal results",
            ("s32[]", *PAIR_OF),
            {"branch_computations": (PAIR, SWAPPED)},
            "all branches must give the same … but pair gives (f32[], s32[]) and swapped gives (s32[], f32[])",
        ),
        V(
            "results are tuples",
            ("s32[]", *PAIR_OF),
            {"branch_computations": (FIRST,)},
            "branches must give tuples, but first gives f32[].",
        ),
    ],
    "while": [
        V(
            "the condition takes the operands",
            ("s32[]", "f32[]"),
            {"condition": ABOVE, "body": PAIR},
            "the condition: the parameters of above must have the … but number 0 is f32[] where s32[] is needed",
        ),
        V("as many operands", ("f32[]",), {"condition": ABOVE, "body": PAIR}, "the condition must … but above has 2"),
        V(
            "the condition gives a predicate",
            PAIR_OF,
            {"condition": FIRST, "body": PAIR},
            "the condition first must give pred[], but it gives f32[].",
        ),
        V(
            "the body gives a tuple",
            PAIR_OF,
            {"condition": ABOVE, "body": FIRST},
            "the body first must give a tuple, but it gives f32[].",
        ),
        V(
            "the body gives the operands' shapes",
            PAIR_OF,
            {"condition": ABOVE, "body": SWAPPED},
            "the results of the body swapped must have the … but number 0 is s32[] where f32[] is needed",
        ),
        V(
            "known_trip_count not negative",
            PAIR_OF,
            {"condition": ABOVE, "body": PAIR, "known_trip_count": -1},
            "known_trip_count must not be negative, but is -1.",
        ),
    ],
    "lanes": [
        V(
            "mapped is of the operands",
            ("f32[3]",),
            {"to_apply": LANE, "in_lock_step": LANES, "mapped": (True, False)},
            "mapped must say of each of the 1 operands whether it has lanes … but mapped is (True, False).",
        ),
        V(
            "something is mapped",
            ("f32[3]",),
            {"to_apply": LANE, "in_lock_step": LANES, "mapped": (False,)},
            "at least one must, but mapped is (False,).",
        ),
        V(
            "operands have lanes",
            ("f32[]",),
            {"to_apply": LANE, "in_lock_step": LANES, "mapped": (True,)},
            "mapped operands must be arrays with the same first dimension, but are (f32[]).",
        ),
        V(
            "computations take the operands",
            ("f32[4]",),
            {"to_apply": LANE, "in_lock_step": LANES, "mapped": (True,)},
            "lane on lanes and lanes must take (f32[4]), but take (f32[4]) and (f32[3]).",
        ),
        V(
            "both give the same",
            ("f32[3]",),
            {"to_apply": LANE, "in_lock_step": SUMS, "mapped": (True,)},
            "sums must give what lane gives on lanes, (f32[3]), but gives (f32[]).",
        ),
    ],
    "sharding-constraint": [
        V(
            "an entry for each dimension",
            ("f32[2,3]",),
            {"mesh": AbstractMesh((2,), ("x",)), "spec": ("x",)},
            "spec must have an entry for each dimension of f32[2,3], but is ('x',).",
        ),
    ],
    "shard-map": [
        V(
            "parts are what the function takes",
            ("f32[4]",),
            {
                "to_apply": LANES,
                "mesh": AbstractMesh((2,), ("x",)),
                "in_specs": ((("x",),),),
                "out_specs": ((("x",),),),
                "check_vma": False,
            },
            "the parts of the operands must be [f32[3]], but are [f32[2]].",
        ),
        V(
            "specs have the dimensions of arrays",
            ("f32[4]",),
            {
                "to_apply": LANES,
                "mesh": AbstractMesh((2,), ("x",)),
                "in_specs": (),
                "out_specs": ((("x",),),),
                "check_vma": False,
            },
            "in_specs must have for each of the 1 arrays a tuple of axes for each dimension",
        ),
        V(
            "parts are equal",
            ("f32[5]",),
            {
                "to_apply": LANES,
                "mesh": AbstractMesh((2,), ("x",)),
                "in_specs": ((("x",),),),
                "out_specs": ((("x",),),),
                "check_vma": False,
            },
            "f32[5] has no equal parts under (('x',),) over AbstractMesh('x': 2, axis_types=(Auto,)); pad it.",
        ),
    ],
    "while-pullback": [
        V(
            "the number of steps",
            ("f32[]", "f32[]", "f32[]"),
            {"early": EARLY, "late": LATE, "given": ()},
            "the number of steps must be s32[], but is f32[].",
        ),
        V(
            "operands and cotangents",
            ("s32[]", "f32[]"),
            {"early": EARLY, "late": LATE, "given": ()},
            "the operands must be those of early and the cotangents … (f32[], f32[]), but are (f32[]).",
        ),
        V(
            "what is carried stays",
            ("s32[]", *PAIR_OF, "s32[]", "f32[]"),
            {"early": SWAPPED, "late": SWAPPED, "given": ()},
            "swapped must give what it takes, (f32[], s32[]), and then residuals, and given must be … given is ().",
        ),
        V(
            "given are operands",
            ("s32[]", "f32[]", "f32[]"),
            {"early": EARLY, "late": LATE, "given": (1,)},
            "given must be numbers of these; but it gives (f32[], f32[]), and given is (1,).",
        ),
        V(
            "what the way back takes",
            ("s32[]", "f32[]", "f32[]"),
            {"early": EARLY, "late": SINGLE, "given": ()},
            "single must take (s32[], f32[], f32[]), but takes (f32[]).",
        ),
    ],
    "callback": [
        V(
            "operands are arrays",
            ("(f32[])",),
            {"function": print, "shapes": ()},
            "callback: operands must be arrays, but are ((f32[]),); hand in their elements.",
        ),
    ],
    "custom-call": [
        V(
            "operands are arrays",
            ("(f32[])",),
            {"custom_call_target": "none", "shape": Shape(F32)},
            "operands and results must be arrays, but are ((f32[]),) and f32[].",
        ),
    ],
    "fusion": [
        V(
            "operands of the parameters' shapes",
            ("f32[2]",),
            {"kind": "kLoop", "calls": SINE},
            "sine must take the operands, (f32[2]), but it takes (f32[]).",
        ),
    ],
    "async-start": [
        V(
            "operands of the parameters' shapes",
            ("f32[2]",),
            {"calls": SINE, "state": ()},
            "sine must take the operands, (f32[2]), but it takes (f32[]).",
        ),
    ],
    "async-update": [
        V("what was begun", ("f32[2]",), {}, "the operand must be the tuple of what was begun, but got f32[2]."),
    ],
    "async-done": [
        V("what was begun", ("f32[2]",), {}, "the operand must be the tuple of what was begun, but got f32[2]."),
    ],
    "copy-done": [
        V("what was begun", ("f32[2]",), {}, "the operand must be the tuple of what was begun, but got f32[2]."),
    ],
    "copy-start": [
        V("the operand is an array", ("(f32[2])",), {}, "the operand must be an array … but got the tuple (f32[2])"),
    ],
    "after-all": [
        V("tokens", ("token[]", "f32[]"), {}, "what is waited for must be a token, but got f32[]."),
    ],
    "add-dependency": [
        V("the operand is an array", ("(f32[2])", "token[]"), {}, "the operand must be … but got the tuple (f32[2])"),
        V("a token", ("f32[2]", "f32[]"), {}, "what is waited for must be a token, but got f32[]."),
    ],
    "copy": [
        V("the operand is an array", ("(f32[2])",), {}, "the operand must be an array … but got the tuple (f32[2])"),
    ],
    "domain": [
        V(
            "the operand is an array",
            ("(f32[2])",),
            {"domain": ""},
            "the operand must be an array, but got the tuple (f32[2]); take its elements.",
        ),
    ],
}


def _element_wise(name: str, operands: int, refused: str, attributes: dict[str, Any] | None = None) -> list[Violation]:
    """Of an op on arrays of one shape and type; `refused` is a type that it is not defined for, if there is one."""
    given = attributes or {}
    rows = [
        V(
            "operands are arrays",
            ("(f32[2])",) * operands,
            given,
            "must be arrays, but one is the tuple (f32[2]); take its",
        )
    ]
    if operands == 2:
        rows += [
            V(
                "equal shapes",
                ("f32[2]", "f32[3]"),
                given,
                "must have one shape, but got f32[2] and f32[3]; broadcast one.",
            ),
            V(
                "one type",
                ("f32[2]", "f64[2]"),
                given,
                "must have one element type, but got f32[2] and f64[2]; convert",
            ),
        ]
    if refused:
        says = (
            "must be f32 or f64, but got f16; convert"
            if name == "complex"
            else f"not defined for {refused}[2]; … must be of kind"
        )
        rows.append(V("a type that the op is defined for", (f"{refused}[2]",) * operands, given, says))
    return rows


def _kinds(name: str) -> set[str]:
    return {element_type(x.operands[0].dtype).kind for x in ops[name].samples(np.random.default_rng(0))}


def _outside_domain(name: str) -> str:
    """A type that a function of floating-point numbers, or complex ones too, is not defined for."""
    return "s32" if "complex" in _kinds(name) else "c64"


# The ops with scalar math, and how many operands they have.
_SCALAR = {
    name: len(next(op.samples(np.random.default_rng(0))).operands) for name, op in ops.items() if op.scalar is not None
}
REFUSED = {  # a type that each op is not defined for
    1: dict.fromkeys(("abs", "negate", "sign"), "pred")
    | dict.fromkeys(("floor", "ceil", "round-nearest-afz", "round-nearest-even", "is-finite"), "s32")
    | dict.fromkeys(("not", "count-leading-zeros", "popcnt"), "f32")
    | dict.fromkeys(("real", "imag"), "s32")
    | {name: _outside_domain(name) for name, count in _SCALAR.items() if count == 1},
    2: dict.fromkeys(("add", "multiply", "maximum", "minimum"), "")
    | dict.fromkeys(("subtract", "divide", "power"), "pred")
    | dict.fromkeys(("chain-divide", "chain-multiply"), "s32")
    | {name: _outside_domain(name) for name, count in _SCALAR.items() if count == 2 and name != "power"}
    | {"complex": "f16"}
    | dict.fromkeys(
        ("and", "or", "xor", "mulhi", "shift-left", "shift-right-arithmetic", "shift-right-logical"), "f32"
    ),
}
for _count, _types in REFUSED.items():
    VIOLATIONS |= {_name: _element_wise(_name, _count, _type) for _name, _type in sorted(_types.items())}


def _accuracy(precondition: str, says: str, *wanted: Any, **more: Any) -> Violation:
    return V(precondition, ("f64[2]",), {"result_accuracy": ResultAccuracy(*wanted, **more)}, says)


for _name in accurate_ops():
    VIOLATIONS[_name] += [
        _accuracy(
            "a mode", "the mode of result_accuracy must be default, highest or tolerance, but got 'best'.", "best"
        ),
        _accuracy("tolerances not negative", "tolerances must be finite and not negative", "tolerance", rtol=-1.0),
        _accuracy("a tolerance", "must have at least one of atol, rtol and ulps in the mode tolerance", "tolerance"),
        _accuracy("no tolerance in other modes", "and none in others, but got the mode highest", "highest", ulps=1),
        _accuracy("what the implementation meets", "ask for ulps >= ", "tolerance", rtol=1e-30),
    ]

VIOLATIONS |= {name: [V(*row) for row in rows] for name, rows in collective_preconditions.VIOLATIONS.items()}
TAKES_ANYTHING = {
    "checkpoint-name": "what it is given, it gives",
    "constant": "its literal has a shape",
    "opt-barrier": "what it is given, it gives",
    **dict.fromkeys(("psum-invariant", "pvary", "recast"), "what it is given, it gives, or the sum of that"),
    "parameter": "its shape is an attribute",
    "symbolic-size": "its size is an attribute",
    "tuple": "of any values",
} | collective_preconditions.TAKES_ANYTHING


def violations_of(name: str) -> list[Violation]:
    return VIOLATIONS.get(name, [])


# --- the tests --------------------------------------------------------------------------------------------------------

ROWS_OF_ALL = [
    pytest.param(name, row, id=f"{name}: {row.precondition}") for name, rows in VIOLATIONS.items() for row in rows
]


def check_refused(name: str, row: Violation, run: Callable[[], Any]) -> TinyxlaError:
    with pytest.raises(TinyxlaError) as caught:
        run()
    sentence = str(caught.value).partition("\n  at ")[0]
    assert sentence.startswith(f"{name}: "), sentence
    assert sentence.endswith("."), sentence
    position = 0
    for part in row.says.split("…"):
        position = sentence.find(part.strip(), position)
        assert position >= 0, f"{sentence!r} is without {part!r}"
    return caught.value


def test_every_op_has_violations() -> None:
    assert [name for name in ops if bool(violations_of(name)) == (name in TAKES_ANYTHING)] == []


def test_preconditions_are_different() -> None:
    for name, rows in VIOLATIONS.items():
        texts = [row.precondition for row in rows]
        assert len(set(texts)) == len(texts), name


@pytest.mark.parametrize(("name", "row"), ROWS_OF_ALL)
def test_shape_rule(name: str, row: Violation) -> None:
    check_refused(name, row, lambda: ops[name].shape(*map(shape, row.operands), **row.attributes))


def is_of_arrays(name: str, row: Violation) -> bool:
    """Whether all operands are arrays, and the op is one that arrays are given to."""
    return not ops[name].structural and not any(x.startswith(("(", "token")) for x in row.operands)


OF_ARRAYS = [row for row in ROWS_OF_ALL if is_of_arrays(*row.values)]


def _zeros(texts: Sequence[str]) -> list[Any]:
    return [tx.numpy.zeros(x.dimensions, x.dtype) for x in map(shape, texts) if isinstance(x, Shape)]


@pytest.mark.parametrize(("name", "row"), OF_ARRAYS)
def test_on_arrays(name: str, row: Violation) -> None:
    """Computed at once or traced, what is refused names the line that asked for it."""
    operands = _zeros(row.operands)
    for run in (lambda *x: ops[name](*x, **row.attributes), tx.jit(lambda *x: ops[name](*x, **row.attributes))):
        error = check_refused(name, row, lambda: run(*operands))  # noqa: B023 - it is called here
        assert error.line is not None
        assert error.line.file == __file__
        assert "ops[name](*x, **row.attributes)" in str(error)


FUNCTIONS_OF_USERS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "reverse": ("dimensions must be", lambda x: lax.rev(x, (1, 1))),
    "transpose": ("permutation must name", lambda x: lax.transpose(x, (0, 0))),
    "slice": ("limit", lambda x: lax.slice(x, (0, 0), (3, 3))),
    "reshape": ("must make the 6 elements", lambda x: lax.reshape(x, (7,))),
    "pad": ("interior padding must not be negative", lambda x: lax.pad(x, np.float32(0), ((0, 0, -1), (0, 0, 0)))),
    "dynamic-slice": ("must fit inside", lambda x: lax.dynamic_slice(x, (0, 0), (3, 3))),
    "topk": ("k must be", lambda x: lax.top_k(x, 4)),
    "reduce-precision": ("exponent_bits must be", lambda x: lax.reduce_precision(x, 0, 3)),
    "cholesky": ("must be equal", lambda x: lax.linalg.cholesky(x)),
    "fft": ("fft_length", lambda x: lax.fft(x, "RFFT", (2, 2, 2, 2))),
}


@pytest.mark.parametrize("name", FUNCTIONS_OF_USERS)
def test_from_users(name: str) -> None:
    part, function = FUNCTIONS_OF_USERS[name]
    x = tx.numpy.ones((2, 3), np.float32)
    for run in (function, tx.jit(function)):
        with pytest.raises(TinyxlaError, match=part) as caught:
            run(x)
        assert caught.value.line is not None
        assert caught.value.line.file == __file__


BUILT: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "Rev": ("dimensions must be distinct, but got", lambda builder, x: xla.Rev(x, [1, 1])),
    "Transpose": ("permutation must name each dimension", lambda builder, x: xla.Transpose(x, [0, 0])),
    "Slice": ("0 <= start <= limit <= 2", lambda builder, x: xla.Slice(x, [0, 0], [3, 3], [1, 1])),
    "Reshape": ("must make the 6 elements", lambda builder, x: xla.Reshape(x, [7])),
    "Collapse": ("consecutive", lambda builder, x: xla.Collapse(x, [1, 0])),
    "ConcatInDim": (
        "must be equal but for",
        lambda builder, x: xla.ConcatInDim(builder, [x, xla.Reshape(x, [3, 2])], 0),
    ),
    "DynamicSlice": (
        "must fit inside",
        lambda builder, x: xla.DynamicSlice(x, [xla.ConstantLiteral(builder, np.int32(0))] * 2, [3, 3]),
    ),
    "TopK": ("k must be", lambda builder, x: xla.TopK(x, 4, True)),
    "ReducePrecision": ("exponent_bits must be", lambda builder, x: xla.ReducePrecision(x, 0, 3)),
    "Cholesky": ("must be equal", lambda builder, x: xla.Cholesky(x, True)),
    "Fft": ("fft_length", lambda builder, x: xla.Fft(x, "RFFT", [2, 2, 2, 2])),
    "Iota": ("iota_dimension must be", lambda builder, x: xla.Iota(builder, Shape(F32, (3,)), 1)),
}


@pytest.mark.parametrize("name", BUILT)
def test_from_the_builder(name: str) -> None:
    part, function = BUILT[name]
    builder = xla.XlaBuilder("test")
    x = xla.Parameter(builder, 0, Shape(F32, (2, 3)), "x")
    with pytest.raises(TinyxlaError, match=re.escape(part)) as caught:
        function(builder, x)
    assert caught.value.line is not None
    assert caught.value.line.file == __file__
