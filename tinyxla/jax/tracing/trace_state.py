"""What programs ask of the traces that are active, and the types of tokens."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from tinyxla.jax.jaxprs.avals import AbstractValue
from tinyxla.jax.jaxprs.traces.current_trace import EVAL_TRACE
from tinyxla.shapes import element_type
from tinyxla.tracing.array import Array
from tinyxla.tracing.core import Trace, Tracer, innermost, state
from tinyxla.tracing.promotion import as_array, float0

array_types = (Array, np.ndarray, np.generic)


class TraceTag:
    """A tag of traces that belong together."""


class _TokenType(type):
    """The type of `Token`, whose instances are arrays of the element type of tokens."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, Array) and element_type(instance.dtype).name == "token"


class Token(metaclass=_TokenType):
    """Orders effects; nothing else is known of one."""


class AbstractToken(AbstractValue):
    """The type of tokens."""


class OpaqueTraceState:
    """Equal to another one if no transformation has begun or ended between the two."""

    def __init__(self) -> None:
        self._state = (state.depth, state.staging, tuple(state.axes))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OpaqueTraceState) and self._state == other._state

    __hash__ = None  # pyright: ignore[reportAssignmentType]


def get_opaque_trace_state(convention: str | None = None) -> OpaqueTraceState:
    """What to compare with what it is later."""
    return OpaqueTraceState()


def find_top_trace(values: Iterable[Any]) -> Trace:
    """The trace that decides what an operation on these values means."""
    return innermost([x for x in values if isinstance(x, Array)]) or EVAL_TRACE


def trace_state_clean() -> bool:
    """Whether no transformation is active."""
    return state.depth == 0


def is_under_jit() -> bool:
    """Whether what is called now is recorded."""
    return state.staging is not None


def is_under_vmap() -> bool:
    """Whether an axis is mapped."""
    return bool(state.axes)


def named_axes() -> list[Any]:
    """The names of the axes that are mapped."""
    return [name for name in state.axes if isinstance(name, str)]


def nonempty_axis_env() -> bool:
    """Whether an axis is mapped."""
    return bool(state.axes)


def valid_jaxtype(x: Any) -> bool:
    """Whether a value is an array or number that operations take."""
    try:
        as_array(x)
    except TypeError:
        return False
    return True


def primal_dtype_to_tangent_dtype(dtype: Any) -> Any:
    """The element type of tangents of arrays of an element type."""
    return dtype if element_type(dtype).is_inexact else float0


def concrete_or_error(kind: Any, value: Any, context: str = "") -> Any:
    """The value as a Python number, or the error that says that it is not known while it is traced."""
    if isinstance(value, Tracer):
        value = value.primal(context or "A Python value")
    return kind(value) if kind is not None else value
