"""How exactly products are asked to be computed, and the attribute of the ops of products that says so."""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

from tinyxla.errors import ArgumentError


class Precision(enum.Enum):
    """How exactly products are computed on hardware that has a choice.

    >>> import numpy as np
    >>> from tinyxla import lax
    >>> lax.dot(np.ones((2, 3)), np.ones((3, 4)), precision=lax.Precision.HIGHEST).shape
    (2, 4)
    """

    DEFAULT = 0
    HIGH = 1
    HIGHEST = 2

    def __repr__(self) -> str:
        return f"{type(self).__name__}.{self.name}"

    def __str__(self) -> str:
        return self.name


class DotAlgorithm(NamedTuple):
    """How hardware is asked to compute products: in which types, as sums of how many components. Products are always at
    least as exact here.

    >>> import numpy as np
    >>> from tinyxla import lax
    >>> algorithm = lax.DotAlgorithm(np.float16, np.float16, accumulation_type=np.float32)
    >>> lax.dot(np.ones(4, np.float16), np.ones(4, np.float16), precision=algorithm)
    Array(4., dtype=float16)
    """

    lhs_precision_type: Any
    rhs_precision_type: Any
    accumulation_type: Any
    lhs_component_count: int = 1
    rhs_component_count: int = 1
    num_primitive_operations: int = 1
    allow_imprecise_accumulation: bool = False


DotAlgorithmPreset = enum.Enum(
    "DotAlgorithmPreset",
    """
    DEFAULT ANY_F8_ANY_F8_F32 ANY_F8_ANY_F8_F32_FAST_ACCUM ANY_F8_ANY_F8_ANY ANY_F8_ANY_F8_ANY_FAST_ACCUM F16_F16_F16
    F16_F16_F32 BF16_BF16_BF16 BF16_BF16_F32 BF16_BF16_F32_X3 BF16_BF16_F32_X6 BF16_BF16_F32_X9 TF32_TF32_F32
    TF32_TF32_F32_X3 F32_F32_F32 F64_F64_F64
    """,
    module=__name__,
)
DotAlgorithmPreset.__doc__ = """Algorithms of products, under XLA's names. Products are always at least as exact here.

>>> import numpy as np
>>> from tinyxla import lax
>>> lax.dot(np.ones((2, 3)), np.ones((3, 4)), precision=lax.DotAlgorithmPreset.BF16_BF16_F32).dtype
dtype('float32')
"""


PrecisionLike = DotAlgorithm | DotAlgorithmPreset | Precision | str | None | tuple[Any, Any]
_PRECISIONS: dict[Any, str] = {
    None: "default",
    "fastest": "default",
    "bfloat16": "default",
    "bfloat16_3x": "high",
    "tensorfloat32": "high",
    "float32": "highest",
    **{p: p.name.lower() for p in Precision},
    **{p.name.lower(): p.name.lower() for p in Precision},
}


def operand_precision(what: str, precision: PrecisionLike) -> tuple[str, ...]:
    """The attribute of the op: a word for each operand, or nothing where all is default."""
    if precision is None:
        return ()
    if isinstance(precision, DotAlgorithm | DotAlgorithmPreset):
        return () if precision is DotAlgorithmPreset.DEFAULT else ("highest", "highest")
    if isinstance(precision, str) and precision.upper() in DotAlgorithmPreset.__members__:
        return operand_precision(what, None if precision in _PRECISIONS else DotAlgorithmPreset[precision.upper()])
    pair = tuple(precision) if isinstance(precision, (tuple, list)) else (precision, precision)
    try:
        lhs, rhs = (_PRECISIONS[p.lower() if isinstance(p, str) else p] for p in pair)
    except (KeyError, TypeError, ValueError):
        raise ArgumentError(
            f"{what}: precision must be None, {', '.join(p for p in _PRECISIONS if isinstance(p, str))}, a "
            f"lax.Precision, a pair of these, or a lax.DotAlgorithmPreset or the name of one, but got {precision!r}."
        ) from None
    return () if lhs == rhs == "default" else (lhs, rhs)
