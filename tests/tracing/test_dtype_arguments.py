"""Element types as arguments: NumPy's scalar classes and scalars, constructors of this library, arrays, names."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy
import ml_dtypes
import numpy as np
import pytest

import tinyxla as tx
import tinyxla.numpy as jnp
from tinyxla.errors import DTypeError

FLOATS: list[Any] = [np.float32, np.float32(3), jnp.float32, jnp.float32(3), np.dtype("float32"), "float32"]
FLOATS += [jnp.ones(2), tx.ShapeDtypeStruct((2,), np.float32)]


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: type(d).__name__)
def test_type_questions_take_whatever_has_a_dtype(dtype: Any) -> None:
    assert jnp.finfo(dtype).max == np.finfo(np.float32).max
    assert jnp.can_cast(dtype, np.float64)
    assert not jnp.can_cast(dtype, np.float16)
    assert jnp.isdtype(dtype, "real floating")
    assert jnp.issubdtype(dtype, jnp.floating)
    assert jnp.result_type(dtype) == jnp.promote_types(dtype, dtype) == np.float32
    assert not jnp.iscomplexobj(dtype)
    assert tx.dtypes.itemsize_bits(dtype) == 32
    assert tx.dtypes.scalar_type_of(dtype) is float


def test_iinfo_takes_numpy_scalar_classes() -> None:
    assert jnp.iinfo(np.int8).max == jnp.iinfo(jnp.int8).max == jnp.iinfo(np.int8(1)).max == 127
    assert jnp.finfo(ml_dtypes.bfloat16).bits == 16
    with pytest.raises(DTypeError, match="iinfo: takes an integer type"):
        jnp.iinfo(np.float32)
    with pytest.raises(DTypeError, match="finfo: takes a floating or complex type"):
        jnp.finfo(np.int32)


KINDS: list[Any] = [np.float32, "float32", float, int, bool, complex, ml_dtypes.bfloat16, "int4", np.bool_, object]
KINDS += [np.generic, np.number, np.floating, np.integer, np.complexfloating, np.character, np.void, np.str_, str, "S3"]
KINDS += [jax.dtypes.float0, np.datetime64, np.float64]


def test_issubdtype_matches_jax_for_all_pairs_of_types_and_kinds() -> None:
    differing = [(a, b) for a in KINDS for b in KINDS if jnp.issubdtype(a, b) is not bool(jax.numpy.issubdtype(a, b))]
    assert differing == []


def test_result_type_tells_weakness() -> None:
    assert jnp.result_type(1.0, return_weak_type_flag=True) == (np.float32, True)
    assert jnp.result_type(1.0, np.float16, return_weak_type_flag=True) == (np.float16, False)
    weak = tx.ShapeDtypeStruct((), np.float32, weak_type=True)
    assert jnp.result_type(weak, np.float16) == np.float16


def test_canonicalize_dtype_keeps_float0_if_extended_types_are_allowed() -> None:
    assert tx.dtypes.canonicalize_dtype(tx.dtypes.float0, allow_extended_dtype=True) == tx.dtypes.float0
    with pytest.raises(DTypeError):
        tx.dtypes.canonicalize_dtype(tx.dtypes.float0)
