"""The operations by the examples of StableHLO: those of its specification (`docs/spec.md`) and the data of its
interpreter's tests (`stablehlo/tests/interpret`), as HLO text, on both backends.

Where StableHLO calls a result implementation-defined (integer division by zero, say), XLA's is in test_against_xla.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
import pytest

from tinyxla.hlo.verifier import verify
from tinyxla.shapes import Shape, element_type
from tinyxla.text import parse_hlo

S64, U64, F32, F64, C64, C128, PRED = np.int64, np.uint64, np.float32, np.float64, np.complex64, np.complex128, np.bool_
NAN, INF = np.nan, np.inf
MINUS_NAN = np.copysign(np.nan, -1)


class Vector(NamedTuple):
    body: str  # the last line makes the result; the parameters are p0, p1, ...
    operands: tuple[Any, ...]
    expected: Any
    tolerance: float


VECTORS: dict[str, Vector] = {}


def vector(name: str, body: str, *operands: Any, gives: Any, tolerance: float = 0.0) -> None:
    assert name not in VECTORS
    VECTORS[name] = Vector(body, tuple(map(np.asarray, operands)), gives, tolerance)


def a(dtype: Any, values: Any) -> np.ndarray[Any, Any]:
    return np.array(values, dtype)


def region(name: str, op: str, type: str) -> str:
    """A computation of two scalars: an op, or a comparison by its direction."""
    compared = op in ("GE", "GT", "LE", "LT")
    line = f"pred[] compare(x, y), direction={op}" if compared else f"{type}[] {op}(x, y)"
    return f"{name} {{\n  x = {type}[] parameter(0)\n  y = {type}[] parameter(1)\n  ROOT r = {line}\n}}\n\n"


REGIONS = "".join(
    region(f"{op}_{type}", op, type)
    for op, type in itertools.product(("add", "maximum", "GE", "GT", "LT"), ("s64", "s32", "f32"))
)
REGIONS += """pairs {
  x = s64[] parameter(0)
  y = s64[] parameter(1)
  v = s64[] parameter(2)
  w = s64[] parameter(3)
  ROOT r = pred[] compare(x, y), direction=GT
}

small {
  i = (s64[], s64[]) parameter(0)
  n = s64[] get-tuple-element(i), index=0
  ten = s64[] constant(10)
  ROOT r = pred[] compare(n, ten), direction=LT
}

counted {
  i = (s64[], s64[]) parameter(0)
  n = s64[] get-tuple-element(i), index=0
  sum = s64[] get-tuple-element(i), index=1
  one = s64[] constant(1)
  more = s64[] add(n, one)
  total = s64[] add(sum, one)
  ROOT r = (s64[], s64[]) tuple(more, total)
}

zeros {
  i = s64[2] parameter(0)
  z = s64[] constant(0)
  ROOT r = s64[2] broadcast(z), dimensions={}
}

same {
  ROOT i = s64[2] parameter(0)
}

"""

# --- element-wise -----------------------------------------------------------------------------------------------------

PARTS = a(C128, [1.5 + 2.5j, 7.5 + 5.5j]), a(C128, [2.5 + 1.5j, 5.5 + 7.5j])
vector("abs", "s64[3] abs(p0)", a(S64, [-2, 0, 2]), gives=a(S64, [2, 0, 2]))
vector("abs: complex", "f64[1] abs(p0)", a(C128, [3 + 4j]), gives=a(F64, [5]))
vector("and", "s64[4] and(p0, p1)", a(S64, [1, 2, 3, 4]), a(S64, [5, 6, 7, 8]), gives=a(S64, [1, 2, 3, 0]))
vector("or", "s64[4] or(p0, p1)", a(S64, [1, 2, 3, 4]), a(S64, [5, 6, 7, 8]), gives=a(S64, [5, 6, 7, 12]))
vector("xor", "s64[4] xor(p0, p1)", a(S64, [1, 2, 3, 4]), a(S64, [5, 6, 7, 8]), gives=a(S64, [4, 4, 4, 12]))
vector("not", "s64[3] not(p0)", a(S64, [0, 1, -5]), gives=a(S64, [-1, -2, 4]))
vector("atan2", "f64[3] atan2(p0, p1)", a(F64, [0, 1, -1]), a(F64, [0, 0, 0]), gives=a(F64, [0, np.pi / 2, -np.pi / 2]))
vector("cbrt", "f64[4] cbrt(p0)", a(F64, [0, 1, 8, 27]), gives=a(F64, [0, 1, 2, 3]), tolerance=1e-14)
vector("ceil", "f32[5] ceil(p0)", a(F32, [-0.8166, -0.2530, 0.2530, 0.8166, 2]), gives=a(F32, [0, 0, 1, 1, 2]))
vector("floor", "f32[5] floor(p0)", a(F32, [-0.8166, -0.2530, 0.2530, 0.8166, 2]), gives=a(F32, [-1, -1, 0, 0, 2]))
_TIES = a(F64, [-2.5, 0.4, 0.5, 0.6, 2.5])
vector("round: even", "f64[5] round-nearest-even(p0)", _TIES, gives=a(F64, [-2, 0, 0, 1, 2]))
vector("round: away", "f64[5] round-nearest-afz(p0)", _TIES, gives=a(F64, [-3, 0, 1, 1, 3]))
vector(
    "clamp",
    "s64[3] clamp(p0, p1, p2)",
    a(S64, [5, 10, 15]),
    a(S64, [3, 13, 23]),
    a(S64, [10, 15, 20]),
    gives=a(S64, [5, 13, 20]),
)
vector("clz", "s64[4] count-leading-zeros(p0)", a(S64, [0, 1, 128, -1]), gives=a(S64, [64, 63, 56, 0]))
vector("popcnt", "s64[4] popcnt(p0)", a(S64, [0, 1, 2, 127]), gives=a(S64, [0, 1, 1, 7]))
vector("popcnt: negative", "s8[2] popcnt(p0)", a(np.int8, [-1, -128]), gives=a(np.int8, [8, 1]))
vector(
    "divide", "s64[4] divide(p0, p1)", a(S64, [17, -17, 17, -17]), a(S64, [3, 3, -3, -3]), gives=a(S64, [5, -5, -5, 5])
)
vector(
    "remainder",
    "s64[4] remainder(p0, p1)",
    a(S64, [17, -17, 17, -17]),
    a(S64, [3, 3, -3, -3]),
    gives=a(S64, [2, -2, 2, -2]),
)
vector(
    "divide: unsigned",
    "u64[4] divide(p0, p1)",
    a(U64, [17, 18, 19, 20]),
    a(U64, [3, 4, 5, 7]),
    gives=a(U64, [5, 4, 3, 2]),
)
vector(
    "remainder: unsigned",
    "u64[4] remainder(p0, p1)",
    a(U64, [17, 18, 19, 20]),
    a(U64, [3, 4, 5, 7]),
    gives=a(U64, [2, 2, 4, 6]),
)
vector(
    "divide: float",
    "f64[2] divide(p0, p1)",
    a(F64, [17.1, -17.1]),
    a(F64, [3, -3]),
    gives=a(F64, [5.7, 5.7]),
    tolerance=1e-15,
)
vector(
    "remainder: float",
    "f64[2] remainder(p0, p1)",
    a(F64, [17.1, -17.1]),
    a(F64, [3, -3]),
    gives=a(F64, [2.1000000000000014, -2.1000000000000014]),
)
_QUOTIENTS = [0.88235294117647056 + 0.4705882352941177j, 0.95375722543352603 - 0.30057803468208094j]
vector("divide: complex", "c128[2] divide(p0, p1)", *PARTS, gives=a(C128, _QUOTIENTS), tolerance=1e-14)
_POWERS = [-1.5679313814305016 - 2.6674775446623613j, 392.89270835580857 + 1801.8249193362644j]
vector("power: complex", "c128[2] power(p0, p1)", *PARTS, gives=a(C128, _POWERS), tolerance=1e-12)
vector(
    "power",
    "s64[6] power(p0, p1)",
    a(S64, [-1, -1, -3, 1, -3, 0]),
    a(S64, [1, 0, -3, -3, 3, 2]),
    gives=a(S64, [-1, 1, 0, 1, -27, 0]),
)
vector(
    "power: unsigned",
    "u64[5] power(p0, p1)",
    a(U64, [0, 0, 1, 1, 5]),
    a(U64, [0, 1, 0, 2, 5]),
    gives=a(U64, [1, 0, 1, 1, 3125]),
)
_BASES, _EXPONENTS = a(F64, [-2, -0.0, -36, 5, 3, 10000]), a(F64, [2, 2, 1.1, 2, -1, 10])
vector(
    "power: float",
    "f64[6] power(p0, p1)",
    _BASES,
    _EXPONENTS,
    gives=a(F64, [4, 0, NAN, 25, 1 / 3, 1e40]),
    tolerance=1e-15,
)
vector("sign", "f64[5] sign(p0)", a(F64, [NAN, -1, -0.0, 0, 1]), gives=a(F64, [NAN, -1, -0.0, 0, 1]))
_BROKEN = a(C128, [complex(NAN, 0), complex(0, NAN), 0, 1j])
vector("sign: complex", "c128[4] sign(p0)", _BROKEN, gives=a(C128, [complex(NAN, NAN), complex(NAN, NAN), 0, 1j]))
vector(
    "is-finite",
    "pred[7] is-finite(p0)",
    a(F64, [NAN, INF, -INF, 3, 5e-324, 0, -0.0]),
    gives=a(PRED, [0, 0, 0, 1, 1, 1, 1]),
)
vector("shift-left", "s64[3] shift-left(p0, p1)", a(S64, [-1, 0, 1]), a(S64, [1, 2, 3]), gives=a(S64, [-2, 0, 8]))
vector(
    "shift-right-arithmetic",
    "s64[3] shift-right-arithmetic(p0, p1)",
    a(S64, [-1, 0, 8]),
    a(S64, [1, 2, 3]),
    gives=a(S64, [-1, 0, 1]),
)
vector(
    "shift-right-logical",
    "s64[3] shift-right-logical(p0, p1)",
    a(S64, [-1, 0, 8]),
    a(S64, [1, 2, 3]),
    gives=a(S64, [2**63 - 1, 0, 1]),
)
vector(
    "maximum: pred",
    "pred[4] maximum(p0, p1)",
    a(PRED, [0, 0, 1, 1]),
    a(PRED, [0, 1, 0, 1]),
    gives=a(PRED, [0, 1, 1, 1]),
)
vector("add: pred", "pred[4] add(p0, p1)", a(PRED, [0, 0, 1, 1]), a(PRED, [0, 1, 0, 1]), gives=a(PRED, [0, 1, 1, 1]))
vector(
    "multiply: pred",
    "pred[4] multiply(p0, p1)",
    a(PRED, [0, 0, 1, 1]),
    a(PRED, [0, 1, 0, 1]),
    gives=a(PRED, [0, 0, 0, 1]),
)
vector("maximum: NaN", "f32[3] maximum(p0, p1)", a(F32, [NAN, 1, 2]), a(F32, [1, NAN, 3]), gives=a(F32, [NAN, NAN, 3]))
vector(
    "clamp: NaN",
    "f32[3] clamp(p0, p1, p2)",
    a(F32, [0, NAN, 0]),
    a(F32, [NAN, 1, 1]),
    a(F32, [1, 1, NAN]),
    gives=a(F32, [NAN] * 3),
)
_FROM, _LARGE = a(F64, [INF, NAN, 5e-324, 0, 65505, 65520]), a(F64, [INF, NAN, 0, 0, 65504, INF])
vector("reduce-precision", "f64[6] reduce-precision(p0), exponent_bits=5, mantissa_bits=10", _FROM, gives=_LARGE)
vector("convert: complex", "s64[3] convert(p0)", a(C128, [-1, 1j, 1]), gives=a(S64, [-1, 0, 1]))
vector("convert: to pred", "pred[3] convert(p0)", a(C128, [-1, 1j, 0]), gives=a(PRED, [1, 0, 0]))
vector(
    "bitcast-convert",
    "s64[] bitcast-convert(p0)",
    a(np.uint16, [0xCDEF, 0x89AB, 0x4567, 0x0123]),
    gives=a(S64, 0x0123456789ABCDEF),
)
vector(
    "bitcast-convert: narrower",
    "u16[4] bitcast-convert(p0)",
    a(U64, 0x0123456789ABCDEF).view(F64),
    gives=a(np.uint16, [0xCDEF, 0x89AB, 0x4567, 0x0123]),
)

_ORDERED = [MINUS_NAN, MINUS_NAN, -INF, -INF, -2.0, -2.0, -0.0, -0.0, 0.0, 1.0, 2.0, INF, NAN]
_AGAINST = [MINUS_NAN, NAN, -INF, INF, -2.0, -1.0, -0.0, 0.0, 0.0, 2.0, 2.0, INF, NAN]
for _direction, _float, _total in (
    ("EQ", "0010101110110", "1010101010111"),
    ("NE", "1101010001001", "0101010101000"),
    ("GE", "0010101110110", "1010101010111"),
    ("GT", "0000000000000", "0000000000000"),
    ("LE", "0011111111110", "1111111111111"),
    ("LT", "0001010001000", "0101010101000"),
):
    for _type, _bits in (("FLOAT", _float), ("TOTALORDER", _total)):
        vector(
            f"compare: {_direction} {_type}",
            f"pred[13] compare(p0, p1), direction={_direction}, type={_type}",
            a(F64, _ORDERED),
            a(F64, _AGAINST),
            gives=a(PRED, [bit == "1" for bit in _bits]),
        )

# --- movement ---------------------------------------------------------------------------------------------------------

vector("iota", "s32[4,5] iota(), iota_dimension=0", gives=np.repeat(np.arange(4, dtype=np.int32), 5).reshape(4, 5))
vector(
    "concatenate",
    "s64[3,2] concatenate(p0, p1), dimensions={0}",
    a(S64, [[1, 2], [3, 4]]),
    a(S64, [[5, 6]]),
    gives=a(S64, [[1, 2], [3, 4], [5, 6]]),
)
_PADDED = [
    [-1] * 5,
    [-1, 0, -1, 0, -1],
    [-1, 1, -1, 2, -1],
    [-1, 3, -1, 4, -1],
    [-1, 5, -1, 6, -1],
    [-1, 0, -1, 0, -1],
    [-1] * 5,
]
_BORDERED = a(S64, [[0, 0, 0, 0], [0, 1, 2, 0], [0, 3, 4, 0], [0, 5, 6, 0], [0, 0, 0, 0]])
vector("pad", "s64[7,5] pad(p0, p1), padding=1_1x-1_-1_1", _BORDERED, a(S64, -1), gives=a(S64, _PADDED))
_SLICED = a(S64, [[0, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])
vector("slice", "s64[2,2] slice(p0), slice={[1:3:1], [2:4:1]}", _SLICED, gives=a(S64, [[1, 0], [0, 1]]))
_ONES = a(S64, [[0, 0, 1, 1], [0, 0, 1, 1], [0, 0, 0, 0], [0, 0, 0, 0]])
vector(
    "dynamic-slice",
    "s64[2,2] dynamic-slice(p0, p1, p2), dynamic_slice_sizes={2,2}",
    _ONES,
    a(S64, -1),
    a(S64, 3),
    gives=a(S64, [[1, 1], [1, 1]]),
)
_UPDATED = a(S64, [[1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 1, 1], [1, 1, 1, 1]])
vector(
    "dynamic-update-slice",
    "s64[4,4] dynamic-update-slice(p0, p1, p2, p3)",
    _UPDATED,
    a(S64, [[1, 1], [1, 1]]),
    a(S64, -1),
    a(S64, 3),
    gives=np.ones((4, 4), S64),
)
vector(
    "reverse",
    "s64[3,2] reverse(p0), dimensions={1}",
    a(S64, [[1, 2], [3, 4], [5, 6]]),
    gives=a(S64, [[2, 1], [4, 3], [6, 5]]),
)
_STACK = np.arange(1, 13).reshape(2, 3, 2)
vector(
    "transpose",
    "s32[2,3,2] transpose(p0), dimensions={2,1,0}",
    _STACK.astype(np.int32),
    gives=a(np.int32, [[[1, 7], [3, 9], [5, 11]], [[2, 8], [4, 10], [6, 12]]]),
)
vector(
    "broadcast",
    "s32[2,3,2] broadcast(p0), dimensions={2,1}",
    a(np.int32, [[1, 2, 3]] * 2),
    gives=np.broadcast_to(a(np.int32, [[[1, 1], [2, 2], [3, 3]]]), (2, 3, 2)),
)

_TABLE = np.arange(1, 25).reshape(3, 4, 2)
_PLACES = a(S64, [[[0, 0], [1, 0], [2, 1]], [[0, 1], [1, 1], [0, 9]]])
_ROWS = [
    [[[1, 2], [3, 4]], [[3, 4], [5, 6]], [[13, 14], [15, 16]]],
    [[[9, 10], [11, 12]], [[11, 12], [13, 14]], [[17, 18], [19, 20]]],
]
vector(
    "gather",
    "s64[2,3,2,2] gather(p0, p1), offset_dims={2,3}, collapsed_slice_dims={0}, start_index_map={1,0},"
    " index_vector_dim=2, slice_sizes={1,2,2}",
    _TABLE,
    _PLACES,
    gives=a(S64, _ROWS),
)
vector(
    "scatter",
    "s64[3,4,2] scatter(p0, p1, p2), update_window_dims={2,3}, inserted_window_dims={0}, "
    "scatter_dims_to_operand_dims={1,0}, index_vector_dim=2, to_apply=add_s64",
    _TABLE,
    a(S64, [[[0, 2], [1, 0], [2, 1]], [[0, 1], [1, 0], [0, 9]]]),
    np.ones((2, 3, 2, 2), S64),
    gives=a(
        S64, [[1, 2, 5, 6, 7, 8, 7, 8], [10, 11, 12, 13, 14, 15, 16, 17], [18, 19, 20, 21, 21, 22, 23, 24]]
    ).reshape(3, 4, 2),
)
_BATCHED = [3, 4, 6, 7, 6, 7, 7, 8, 9, 10, 11, 12, 15, 16, 17, 18, 17, 18, 19, 20, 22, 23, 24, 25]
_BATCHED += [25, 26, 28, 29, 30, 31, 31, 32, 35, 36, 38, 39, 38, 39, 39, 40, 41, 42, 44, 45, 46, 47, 47, 48]
vector(
    "scatter: batching dimensions",
    "s64[2,3,4,2] scatter(p0, p1, p2), update_window_dims={3,4}, inserted_window_dims={1}, input_batching_dims={0},"
    " scatter_indices_batching_dims={1}, scatter_dims_to_operand_dims={2,1}, index_vector_dim=3, to_apply=add_s64",
    np.arange(1, 49).reshape(2, 3, 4, 2),
    a(
        S64,
        [[[[0, 0], [1, 0], [2, 1]], [[0, 1], [1, 1], [0, 9]]], [[[0, 0], [2, 1], [2, 2]], [[1, 2], [0, 1], [1, 0]]]],
    ),
    np.ones((2, 2, 3, 2, 2), S64),
    gives=a(S64, _BATCHED).reshape(2, 3, 4, 2),
)

# --- reductions, windows, order ---------------------------------------------------------------------------------------

vector(
    "reduce",
    "s64[1] reduce(p0, p1), dimensions={1}, to_apply=add_s64",
    a(S64, [[0, 1, 2, 3, 4, 5]]),
    a(S64, 0),
    gives=a(S64, [15]),
)
_COLUMN = a(S64, [[1, 2], [3, 4], [5, 6]])
vector(
    "reduce-window",
    "s64[2,2] reduce-window(p0, p1), window={size=2x1 stride=4x1 pad=2_1x0_0 lhs_dilate=2x1 rhs_dilate=3x1},"
    " to_apply=add_s64",
    _COLUMN,
    a(S64, 0),
    gives=a(S64, [[0, 0], [3, 4]]),
)
vector(
    "reduce-window: one",
    "s64[1,2] reduce-window(p0, p1), window={size=3x1 stride=4x1 pad=2_1x0_0 lhs_dilate=2x1 rhs_dilate=3x1},"
    " to_apply=add_s64",
    _COLUMN,
    a(S64, 0),
    gives=a(S64, [[5, 6]]),
)
vector(
    "select-and-scatter",
    "s64[4,2] select-and-scatter(p0, p1, p2), window={size=3x1 stride=2x1 pad=0_1x0_0}, select=GE_s64, scatter=add_s64",
    a(S64, [[1, 5], [2, 5], [3, 6], [4, 4]]),
    a(S64, [[5, 6], [7, 8]]),
    a(S64, 0),
    gives=a(S64, [[0, 0], [0, 0], [5, 14], [7, 0]]),
)
_ANY_ORDER = [
    [0, 1, 1, -3, -3, -2, 0],
    [4, -1, 3, 0, 4, 0, -3],
    [1, 0, 0, 0, 0, 2, 3],
    [-3, -4, -4, -2, 0, 3, 3],
    [0, 5, 2, -2, 0, -2, 0],
]
vector(
    "sort",
    "s64[5,7] sort(p0), dimensions={0}, to_apply=LT_s64",
    a(S64, _ANY_ORDER),
    gives=np.sort(a(S64, _ANY_ORDER), 0),
)
vector(
    "sort: several",
    "(s64[2,3], s64[2,3]) sort(p0, p1), dimensions={0}, is_stable=true, to_apply=pairs",
    a(S64, [[1, 2, 3], [3, 2, 1]]),
    a(S64, [[3, 2, 1], [1, 2, 3]]),
    gives=(a(S64, [[3, 2, 3], [1, 2, 1]]), a(S64, [[1, 2, 1], [3, 2, 3]])),
)
_FEATURES = a(F64, [[[1, 2], [3, 4]], [[3, 4], [1, 2]]])
_TWO, _NORMAL = np.ones(2), a(F64, [[[0, 0], [2, 2]], [[2, 2], [0, 0]]])
vector(
    "batch-norm-training",
    "(f64[2,2,2], f64[2], f64[2]) batch-norm-training(p0, p1, p2), epsilon=0, feature_index=2",
    _FEATURES,
    _TWO,
    _TWO,
    gives=(_NORMAL, a(F64, [2, 3]), _TWO),
)
vector(
    "batch-norm-inference",
    "f64[2,2,2] batch-norm-inference(p0, p1, p2, p3, p4), epsilon=0, feature_index=2",
    _FEATURES,
    _TWO,
    _TWO,
    a(F64, [2, 3]),
    _TWO,
    gives=_NORMAL,
)
vector(
    "batch-norm-grad",
    "(f64[2,2,2], f64[2], f64[2]) batch-norm-grad(p0, p1, p2, p3, p4), epsilon=0, feature_index=2",
    _FEATURES,
    _TWO,
    a(F64, [2, 3]),
    _TWO,
    np.full((2, 2, 2), 0.1),
    gives=(np.zeros((2, 2, 2)), np.zeros(2), a(F64, [0.4, 0.4])),
    tolerance=1e-15,
)

# --- contractions -----------------------------------------------------------------------------------------------------

_CUBE, _UNITS = np.arange(1, 9).reshape(2, 2, 2), a(S64, [[[1, 0], [0, 1]]] * 2)
vector(
    "dot",
    "s64[2,2,2] dot(p0, p1), lhs_batch_dims={0}, lhs_contracting_dims={2},"
    " rhs_batch_dims={0}, rhs_contracting_dims={1}",
    _CUBE,
    _UNITS,
    gives=_CUBE,
)
vector(
    "dot: outer",
    "s64[2,2,2,2] dot(p0, p1), lhs_contracting_dims={}, rhs_contracting_dims={}",
    _CUBE[0],
    _UNITS[0],
    gives=np.multiply.outer(_CUBE[0], _UNITS[0]),
)
_IMAGE = a(S64, [[1, 2, 5, 6], [3, 4, 7, 8], [10, 11, 14, 15], [12, 13, 16, 17]])
_B01F = "dim_labels=b01f_01io->b01f"
vector(
    "convolution",
    f"s64[1,2,2,1] convolution(p0, p1), window={{size=3x3 stride=4x4 lhs_dilate=2x2}}, {_B01F}",
    _IMAGE.reshape(1, 4, 4, 1),
    np.ones((3, 3, 1, 1), S64),
    gives=a(S64, [10, 26, 46, 62]).reshape(1, 2, 2, 1),
)
vector(
    "convolution: wide sums",
    f"s32[1,2,2,1] convolution(p0, p1), window={{size=3x3 stride=4x4 lhs_dilate=2x2}}, {_B01F}",
    _IMAGE.reshape(1, 4, 4, 1).astype(np.int8),
    np.full((3, 3, 1, 1), 10, np.int8),
    gives=a(np.int32, [100, 260, 460, 620]).reshape(1, 2, 2, 1),
)
vector(
    "convolution: padding",
    f"s64[1,2,2,1] convolution(p0, p1), window={{size=3x3 stride=4x4 pad=1_1x1_1 lhs_dilate=2x2}}, {_B01F}",
    _IMAGE.reshape(1, 4, 4, 1),
    np.ones((3, 3, 1, 1), S64),
    gives=a(S64, [1, 5, 10, 14]).reshape(1, 2, 2, 1),
)
vector(
    "convolution: batch groups",
    "s64[1,1,2,4] convolution(p0, p1), window={size=1x2 stride=4x4 lhs_dilate=2x2}, dim_labels=0b1f_01io->b01f,"
    " batch_group_count=4",
    _IMAGE.reshape(1, 4, 4, 1),
    np.ones((1, 2, 1, 4), S64),
    gives=a(S64, [[1, 3, 10, 12], [5, 7, 14, 16]]).reshape(1, 1, 2, 4),
)
vector(
    "convolution: feature groups",
    "s64[1,2,1,4] convolution(p0, p1), window={size=1x1 stride=4x4 lhs_dilate=2x2}, dim_labels=b0f1_0i1o->b01f,"
    " feature_group_count=2",
    _IMAGE.reshape(1, 4, 4, 1),
    np.ones((1, 2, 1, 4), S64),
    gives=a(S64, [[3, 3, 11, 11], [21, 21, 29, 29]]).reshape(1, 2, 1, 4),
)
vector(
    "convolution: features first",
    "f32[2,2,1] convolution(p0, p1), window={size=1}, dim_labels=0fb_0io->0fb",
    a(F32, [[[1]], [[2]]]),
    a(F32, [[[3, 4]]]),
    gives=a(F32, [[[3], [4]], [[6], [8]]]),
)

# --- linear algebra, transforms ---------------------------------------------------------------------------------------

_FACTOR = a(F64, [[1, 0, 0], [2, 4, 0], [3, 5, 6]])
vector("cholesky", "f64[3,3] cholesky(p0), lower=true", _FACTOR @ _FACTOR.T, gives=_FACTOR, tolerance=1e-14)
vector("cholesky: upper", "f64[3,3] cholesky(p0), lower=false", _FACTOR @ _FACTOR.T, gives=_FACTOR.T, tolerance=1e-14)
vector(
    "cholesky: complex",
    "c128[2,2] cholesky(p0), lower=true",
    a(C128, [[1, 2j], [-2j, 5]]),
    gives=a(C128, [[1, 0], [-2j, 1]]),
    tolerance=1e-14,
)
_LOWER, _COLUMNS = a(F32, [[1, 0, 0], [2, 3, 0], [4, 5, 6]]), a(F32, [[7], [8], [9]])
_COMPLEX, _RIGHT = (
    a(C64, [[1 + 1j, 0, 0], [2 - 2j, 3 + 4j, 0], [4 - 3j, 5 + 5j, 6 - 8j]]),
    a(C64, [[7 - 2j], [8 + 4j], [9 - 5j]]),
)
for _transpose, _plain, _complex in (
    ("NO_TRANSPOSE", [7, -2, -1.5], [2.5 - 4.5j, 4.32 + 0.24j, -0.29 - 0.77j]),
    ("TRANSPOSE", [2 / 3, 1 / 6, 1.5], None),
    ("ADJOINT", [2 / 3, 1 / 6, 1.5], [7.18 + 2.68j, -0.08 + 3.16j, 0.14 - 1.02j]),
):
    _solve = f"triangular-solve(p0, p1), left_side=true, lower=true, transpose_a={_transpose}"
    vector(
        f"triangular-solve: {_transpose}",
        f"f32[3,1] {_solve}",
        _LOWER,
        _COLUMNS,
        gives=a(F32, _plain).reshape(3, 1),
        tolerance=1e-6,
    )
    if _complex:
        vector(
            f"triangular-solve: complex {_transpose}",
            f"c64[3,1] {_solve}",
            _COMPLEX,
            _RIGHT,
            gives=a(C64, _complex).reshape(3, 1),
            tolerance=1e-5,
        )
vector(
    "triangular-solve: unit",
    "f32[3,1] triangular-solve(p0, p1), left_side=true, lower=true, unit_diagonal=true, transpose_a=NO_TRANSPOSE",
    a(F32, np.diag([2, 4, 5])),
    _COLUMNS,
    gives=_COLUMNS,
)
vector(
    "fft",
    "c128[2,2] fft(p0), fft_type=FFT, fft_length={2,2}",
    a(C128, [[1 + 2j, 3 - 4j], [-5 + 6j, -7 - 8j]]),
    gives=a(C128, [[-8 - 4j, 20j], [16, -4 - 8j]]),
    tolerance=1e-12,
)
vector(
    "ifft",
    "c128[2] fft(p0), fft_type=IFFT, fft_length={2}",
    a(C128, [4 - 2j, -2 + 6j]),
    gives=a(C128, [1 + 2j, 3 - 4j]),
    tolerance=1e-12,
)
vector(
    "rfft",
    "c128[3] fft(p0), fft_type=RFFT, fft_length={4}",
    a(F64, [1, 2, 3, 4]),
    gives=a(C128, [10, -2 + 2j, -2]),
    tolerance=1e-12,
)
vector(
    "irfft",
    "f64[4] fft(p0), fft_type=IRFFT, fft_length={4}",
    a(C128, [10, -2 + 2j, -2]),
    gives=a(F64, [1, 2, 3, 4]),
    tolerance=1e-12,
)

# --- control flow -----------------------------------------------------------------------------------------------------

vector(
    "while",
    "p = (s64[], s64[]) tuple(p0, p1)\n  (s64[], s64[]) while(p), condition=small, body=counted",
    a(S64, 0),
    a(S64, 0),
    gives=(a(S64, 10), a(S64, 10)),
)
for _index, _taken in ((0, [0, 0]), (1, [3, 4]), (-1, [3, 4]), (7, [3, 4])):
    vector(
        f"case: {_index}",
        "s64[2] conditional(p0, p1, p1), branch_computations={zeros, same}",
        a(np.int32, _index),
        a(S64, [3, 4]),
        gives=a(S64, _taken),
    )
vector(
    "if",
    "s64[2] conditional(p0, p1, p1), true_computation=zeros, false_computation=same",
    a(PRED, False),
    a(S64, [3, 4]),
    gives=a(S64, [3, 4]),
)
vector(
    "optimization-barrier",
    "t = (s64[2], pred[]) tuple(p1, p0)\n  b = (s64[2], pred[]) opt-barrier(t)\n  s64[2] get-tuple-element(b), index=0",
    a(PRED, False),
    a(S64, [3, 4]),
    gives=a(S64, [3, 4]),
)
vector(
    "map", "s64[2] map(p0, p1), dimensions={0}, to_apply=add_s64", a(S64, [1, 2]), a(S64, [3, 4]), gives=a(S64, [4, 6])
)
vector(
    "get-dimension-size", "s32[] get-dimension-size(p0), dimensions={1}", np.zeros((2, 3), S64), gives=a(np.int32, 3)
)


def module_text(v: Vector) -> str:
    parameters = [f"  p{k} = {Shape.of(x)} parameter({k})" for k, x in enumerate(v.operands)]
    *before, last = v.body.split("\n")
    lines = [*parameters, *(f"  {line.strip()}" for line in before), f"  ROOT result = {last.strip()}"]
    return "\n".join([f"HloModule vector\n\n{REGIONS}ENTRY main {{", *lines, "}\n"])


@pytest.mark.parametrize("backend", ["interpreter", "numba"])
@pytest.mark.parametrize("name", VECTORS)
def test_vector(name: str, backend: str) -> None:
    v = VECTORS[name]
    module = parse_hlo(module_text(v))
    verify(module)
    found = module(*v.operands, backend=backend)
    expected = v.expected if isinstance(v.expected, tuple) else (v.expected,)
    for x, y in zip(found if isinstance(found, tuple) else (found,), expected, strict=True):
        x = np.asarray(x)
        assert x.shape == y.shape
        assert element_type(x.dtype) is element_type(y.dtype)
        np.testing.assert_allclose(x, y, v.tolerance, v.tolerance)
