"""What compiled code makes of NumPy arrays, to the last bit: where an instruction is computed before it is compiled, or
instead."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from tinyxla.hlo import Instruction
from tinyxla.shapes import Shape, TupleShape

_ORDINARY = ("f16", "bf16", "f32", "f64")
# What has one result only, to the bit: of types that are neither complex nor of less than 32 bits; of exact types.
_EXACT = frozenset(
    """abs add bitcast-convert broadcast ceil chain-multiply compare concatenate constant convert divide dynamic-slice
    floor gather get-tuple-element iota is-finite multiply negate pad parameter reshape reverse select sign slice sort
    subtract transpose tuple""".split()
)
_EXACT_OF_INTEGERS = frozenset(
    """and clamp maximum minimum mulhi not or reduce remainder shift-left shift-right-arithmetic shift-right-logical
    xor""".split()
)


def evaluator(x: Instruction, as_compiled: bool = True) -> Callable[..., Any]:
    """What computes an instruction on arrays, `as_compiled` code does or else as NumPy does."""
    scalar, attributes = x.op.scalar, x.attributes._asdict()
    # IEEE 754 leaves a function open that is not exact or correctly rounded, so NumPy's is another.
    is_open = scalar is not None and scalar.accuracy.f32 > 0.5 and not any(attributes.values())
    if scalar and is_open and as_compiled and x.array_shape.element_type.name in _ORDINARY:
        return functools.partial(_computed, scalar.name, x.array_shape.dtype)
    return functools.partial(x.op.evaluate, **attributes)


def is_settled(x: Instruction) -> bool:
    """Whether NumPy and compiled code give the same bits."""
    parts = x.shape.elements if isinstance(x.shape, TupleShape) else (x.shape,)
    kinds = [part.element_type for part in parts if isinstance(part, Shape)]
    if x.op.name in _EXACT:
        return all(kind.name in ("f32", "f64") or not kind.is_inexact for kind in kinds)
    return x.op.name in _EXACT_OF_INTEGERS and not any(kind.is_inexact for kind in kinds)


def _computed(name: str, dtype: np.dtype[Any], *operands: Any) -> Any:
    from tinyxla.scalar_math import elementary  # here, since eager programs may do without
    from tinyxla.scalar_math.numpy_scalar import NumpyScalar

    working = np.float32 if dtype.itemsize < 4 else dtype
    return getattr(elementary, name)(*(NumpyScalar(x.astype(working)) for x in operands)).array.astype(dtype)
