"""`result_accuracy`: how accurate the result of an element-wise function has to be, and what meets that.

Every function is there twice: computed in the operand's type, and, where there is a type with twice the bits, computed
in that one and rounded. An op's `scalar.accuracy` says how large the errors of the first kind are.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import ml_dtypes

from tinyxla.errors import AttributeValueError
from tinyxla.ops.op import ScalarFunction, ops
from tinyxla.shapes import ElementType, element_type


class ResultAccuracy(NamedTuple):
    """What is asked for: `default`, `highest`, or `tolerance`, with one or more bounds of which one has to be met.

    `atol` bounds the distance from the exact result, `rtol` that relative to the exact result (where this is no
    subnormal number), and `ulps` that in units in the last place of the exact result, of complex numbers of its
    magnitude.

    >>> from tinyxla.xla import ResultAccuracy, XlaBuilder
    >>> b = XlaBuilder()
    >>> b.Build(b.Sin(b.Constant(1.0), ResultAccuracy("tolerance", ulps=1)))()
    Array(0.84147096, dtype=float32)
    """

    mode: str = "default"
    atol: float = 0.0
    rtol: float = 0.0
    ulps: int = 0

    def __str__(self) -> str:
        if self.mode != "tolerance":
            return f"mode {self.mode}"
        bounds = {"atol": self.atol, "rtol": self.rtol, "ulps": self.ulps}
        return " or ".join(f"{name} {value:g}" for name, value in bounds.items() if value)


_WIDE = {"f32": "f64", "c64": "c128"}


def scalar_function(op: str) -> ScalarFunction:
    """The scalar math of an op, which has to have one."""
    found = ops[op].scalar
    assert found is not None, op
    return found


def accurate_ops() -> dict[str, ScalarFunction]:
    """The ops that take a `result_accuracy`, by name, and their scalar math."""
    takes = (name for name, op in sorted(ops.items()) if "result_accuracy" in op.attributes.__annotations__)
    return {name: scalar_function(name) for name in takes}


def largest_error(op: str, kind: ElementType, working: ElementType) -> float:
    """The largest error of an op in units in the last place, computed in the type `working`."""
    if kind.bits < 32:
        return 0.51  # computed in f32 and rounded
    if kind is not working:
        return 0.51 if kind.kind == "float" else 0.72  # half a place in either part
    return getattr(scalar_function(op).accuracy, kind.name)


def working_type(op: str, kind: ElementType, wanted: ResultAccuracy | None) -> ElementType:
    """The type to compute in. An error if the result would not be as accurate as wanted, or nothing sensible is."""
    if wanted is None:
        return kind
    _check(op, wanted)
    wide = element_type(_WIDE.get(kind.name, kind.name))
    if wanted.mode != "tolerance":
        return wide if wanted.mode == "highest" else kind
    for working in (kind, wide):
        if _meets(op, kind, largest_error(op, kind, working), wanted):
            return working
    best = largest_error(op, kind, wide)
    raise AttributeValueError(
        f"{op}: result_accuracy asks for {wanted} of {kind}, but the best implementation is within {best:g} ulps; ask "
        f"for ulps >= {math.ceil(best)}, or for the mode highest, or leave it out."
    )


def _meets(op: str, kind: ElementType, places: float, wanted: ResultAccuracy) -> bool:
    place = float(ml_dtypes.finfo(kind.dtype).eps)  # the largest unit in the last place of numbers up to 1
    largest = scalar_function(op).largest_result if kind.kind == "float" else math.inf
    return places <= wanted.ulps or places * place <= wanted.rtol or places * place * largest <= wanted.atol


def _check(op: str, wanted: ResultAccuracy) -> None:
    bounds = (wanted.atol, wanted.rtol, wanted.ulps)
    if wanted.mode not in ("default", "highest", "tolerance"):
        raise AttributeValueError(
            f"{op}: the mode of result_accuracy must be default, highest or tolerance, but got {wanted.mode!r}."
        )
    if not all(0 <= bound < math.inf for bound in bounds):
        raise AttributeValueError(f"{op}: tolerances must be finite and not negative, but got {wanted}.")
    if any(bounds) != (wanted.mode == "tolerance"):
        raise AttributeValueError(
            f"{op}: result_accuracy must have at least one of atol, rtol and ulps in the mode tolerance, and none in "
            f"others, but got the mode {wanted.mode} with atol {wanted.atol:g}, rtol {wanted.rtol:g} and ulps "
            f"{wanted.ulps}."
        )
