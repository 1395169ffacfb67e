"""The operations of `jax.lax` that tests go through: their arguments, random numbers and tolerances, and those of
reductions. Cases of a test are drawn from the lists in this order."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from tinyxla import lax
from tinyxla.jax.jaxprs.primitives.catalogue import primitives
from tinyxla.jax.testing import random_arrays as random
from tinyxla.jax.testing.element_types import dtypes
from tinyxla.numpy.types import iinfo

float_dtypes = dtypes.all_floating
complex_elem_dtypes = dtypes.floating
complex_dtypes = dtypes.complex
inexact_dtypes = dtypes.all_inexact
int_dtypes = dtypes.all_integer
uint_dtypes = dtypes.all_unsigned
bool_dtypes = dtypes.boolean
default_dtypes = float_dtypes + int_dtypes
number_dtypes = float_dtypes + complex_dtypes + int_dtypes + uint_dtypes
all_dtypes = number_dtypes + bool_dtypes
python_scalar_types = [bool, int, float, complex]
compatible_shapes = [[(3,)], [(3, 4), (3, 1), (1, 4)], [(2, 3, 4), (2, 1, 4)]]

_integers = int_dtypes + uint_dtypes
_numbers = default_dtypes + complex_dtypes
_wide_floats = [x for x in float_dtypes if x not in (ml_dtypes.bfloat16, np.float16)]


class OpRecord(NamedTuple):
    """An operation, the number of its arguments, their element types and samplers, and the tolerance."""

    op: str
    nargs: int
    dtypes: list[Any]
    rng_factory: Callable[..., Any]
    tol: Any


def op_record(op: str, nargs: int, dtypes: list[Any], rng_factory: Callable[..., Any], tol: Any = None) -> OpRecord:
    """An operation to test."""
    return OpRecord(op, nargs, dtypes, rng_factory, tol)


class ReducerOpRecord(NamedTuple):
    """A binary function, NumPy's, its identity, element types, and the primitive of its reduction."""

    op: Callable[..., Any]
    reference_op: Callable[..., Any]
    init_val: Any
    dtypes: list[Any]
    primitive: Any


class NamedReducerOpRecord(NamedTuple):
    """A reduction, NumPy's, and element types."""

    op: Callable[..., Any]
    reference_op: Callable[..., Any]
    dtypes: list[Any]


def lax_ops() -> list[OpRecord]:
    """The element-wise operations."""
    small, usual, positive = random.rand_small, random.rand_default, random.rand_positive
    f, fc = float_dtypes, inexact_dtypes
    f64, c128 = np.float64, np.complex128
    rows: list[tuple[Any, ...]] = [
        ("neg", 1, _numbers, small),
        ("sign", 1, default_dtypes + uint_dtypes, small),
        ("floor", 1, f, small),
        ("ceil", 1, f, small),
        ("round", 1, f, usual),
        ("nextafter", 2, [x for x in f if x != ml_dtypes.bfloat16], usual, 0),
        ("is_finite", 1, f, small),
        ("exp", 1, fc, small),
        ("exp2", 1, fc, small),
        ("expm1", 1, fc, small, {f64: 1e-8}),
        ("log", 1, fc, positive),
        ("log1p", 1, fc, positive),
        ("tanh", 1, fc, small, {f64: 1e-9, c128: 1e-7}),
        ("logistic", 1, fc, usual),
        ("sin", 1, fc, usual),
        ("cos", 1, fc, usual),
        ("atan2", 2, f, usual),
        ("sqrt", 1, f, positive),
        ("sqrt", 1, complex_dtypes, usual),
        ("rsqrt", 1, f, positive),
        ("rsqrt", 1, complex_dtypes, usual),
        ("cbrt", 1, f, usual),
        ("square", 1, fc, usual),
        ("reciprocal", 1, fc, positive),
        ("tan", 1, fc, usual, {np.float32: 3e-5}),
        ("asin", 1, fc, small, {c128: 5e-12}),
        ("acos", 1, fc, small),
        ("atan", 1, fc, small),
        ("asinh", 1, fc, usual, {np.complex64: 1e-4, c128: 1e-5}),
        ("acosh", 1, fc, positive),
        ("atanh", 1, fc, small, {f64: 1e-9}),
        ("sinh", 1, fc, usual),
        ("cosh", 1, fc, usual),
        ("lgamma", 1, f, positive, {np.float32: 1e-5, f64: 1e-14}),
        ("digamma", 1, f, positive, {f64: 1e-14}),
        ("betainc", 3, f, random.rand_uniform, {np.float32: 2e-5, f64: 1e-12}),
        ("igamma", 2, _wide_floats, positive, {f64: 1e-14}),
        ("igammac", 2, _wide_floats, positive, {f64: 1e-14}),
        ("erf", 1, f, small),
        ("erfc", 1, f, small),
        ("erf_inv", 1, f, small, {f64: 1e-9}),
        ("bessel_i0e", 1, f, usual),
        ("bessel_i1e", 1, f, usual),
        ("real", 1, complex_dtypes, usual),
        ("imag", 1, complex_dtypes, usual),
        ("complex", 2, complex_elem_dtypes, usual),
        ("conj", 1, complex_elem_dtypes + complex_dtypes, usual),
        ("abs", 1, _numbers, usual),
        ("pow", 2, fc, positive),
        ("bitwise_and", 2, bool_dtypes, small),
        ("bitwise_not", 1, bool_dtypes, small),
        ("bitwise_or", 2, bool_dtypes, small),
        ("bitwise_xor", 2, bool_dtypes, small),
        ("population_count", 1, _integers, random.rand_int),
        ("clz", 1, _integers, random.rand_int),
        ("add", 2, _numbers, small),
        ("sub", 2, _numbers, small),
        ("mul", 2, _numbers, small),
        ("mulhi", 2, _integers, random.rand_fullrange),
        ("div", 2, _numbers, random.rand_nonzero),
        ("rem", 2, default_dtypes, random.rand_nonzero),
        ("max", 2, all_dtypes, small),
        ("min", 2, all_dtypes, small),
        ("eq", 2, all_dtypes, random.rand_some_equal),
        ("ne", 2, all_dtypes, small),
        *((name, 2, default_dtypes, small) for name in ("ge", "gt", "le", "lt")),
    ]
    return [op_record(*row) for row in rows]


def lax_out_dtype_ops() -> list[OpRecord]:
    """The element-wise operations with an element type of the result."""
    return [op_record("mul", 2, _numbers, random.rand_small)]


def lax_reduce_ops() -> list[ReducerOpRecord]:
    """The binary functions of `lax.reduce` that have primitives."""
    bits = _integers + bool_dtypes
    widths = (np.int32, np.int64)
    return [
        ReducerOpRecord(lax.add, np.add, 0, default_dtypes, primitives["reduce_sum"]),
        ReducerOpRecord(lax.mul, np.multiply, 1, default_dtypes, primitives["reduce_prod"]),
        ReducerOpRecord(lax.max, np.maximum, 0, uint_dtypes + bool_dtypes, primitives["reduce_max"]),
        ReducerOpRecord(lax.max, np.maximum, -np.inf, float_dtypes, primitives["reduce_max"]),
        *(ReducerOpRecord(lax.max, np.maximum, iinfo(x).min, [x], primitives["reduce_max"]) for x in widths),
        ReducerOpRecord(lax.min, np.minimum, np.inf, float_dtypes, primitives["reduce_min"]),
        *(
            ReducerOpRecord(lax.min, np.minimum, iinfo(x).max, [x], primitives["reduce_min"])
            for x in (*widths, np.uint32, np.uint64)
        ),
        ReducerOpRecord(lax.bitwise_and, np.bitwise_and, -1, bits, primitives["reduce_and"]),
        ReducerOpRecord(lax.bitwise_or, np.bitwise_or, 0, bits, primitives["reduce_or"]),
        ReducerOpRecord(lax.bitwise_xor, np.bitwise_xor, 0, bits, primitives["reduce_xor"]),
    ]


def lax_named_reduce_ops() -> list[NamedReducerOpRecord]:
    """The reductions with names of their own."""
    bits = bool_dtypes + int_dtypes + uint_dtypes
    return [
        NamedReducerOpRecord(lax.reduce_sum, np.sum, number_dtypes),
        NamedReducerOpRecord(lax.reduce_prod, np.prod, number_dtypes),
        NamedReducerOpRecord(lax.reduce_max, np.max, all_dtypes),
        NamedReducerOpRecord(lax.reduce_min, np.min, all_dtypes),
        NamedReducerOpRecord(lax.reduce_and, np.bitwise_and.reduce, bits),
        NamedReducerOpRecord(lax.reduce_or, np.bitwise_or.reduce, bits),
        NamedReducerOpRecord(lax.reduce_xor, np.bitwise_xor.reduce, bits),
    ]


# --- examples of a batch


def all_bdims(*shapes: Sequence[int]) -> Iterator[tuple[int | None, ...]]:
    """The ways to map over arrays of these shapes, in which one at least has a batch dimension."""
    choices = ([None, *range(len(shape) + 1)] for shape in shapes)
    return (found for found in itertools.product(*choices) if any(x is not None for x in found))


def add_bdim(bdim_size: int, bdim: int | None, shape: Sequence[int]) -> tuple[int, ...]:
    """A shape with a batch dimension."""
    return tuple(shape) if bdim is None else (*shape[:bdim], bdim_size, *shape[bdim:])


def slicer(x: Any, bdim: int | None) -> Callable[[int], Any]:
    """A function that gives an example of a batch; None for an array that is the same for all."""
    return lambda i: x if bdim is None else lax.index_in_dim(x, i, bdim, keepdims=False)


def args_slicer(args: Sequence[Any], bdims: Sequence[int | None]) -> Callable[[int], list[Any]]:
    """A function that gives an example of several batches."""
    slicers = [slicer(x, bdim) for x, bdim in zip(args, bdims, strict=True)]
    return lambda i: [example(i) for example in slicers]
