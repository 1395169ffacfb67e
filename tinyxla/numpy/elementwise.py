"""How element-wise functions are made of operations: promote, broadcast, apply; with a short way for concrete arrays.

The types of a result depend only on the types of the operands, so how to compute it is decided once for each
combination (a `_Plan`) and kept. A call on concrete arrays then costs little more than NumPy's own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np

from tinyxla.numpy.arguments import ArrayLike, Type, broadcasted, cast, inexact, operand, promoted, type_of
from tinyxla.ops import Op, integers
from tinyxla.shapes import Shape, element_type
from tinyxla.tracing.array import Array, ConcreteArray
from tinyxla.tracing.core import state
from tinyxla.tracing.promotion import checked_scalar, config, promote_types


class Unary(Protocol):
    """An element-wise function of one array."""

    def __call__(self, x: ArrayLike, /) -> Array: ...


class Binary(Protocol):
    """An element-wise function of two arrays."""

    def __call__(self, x: ArrayLike, y: ArrayLike, /) -> Array: ...


class _Plan(NamedTuple):
    """How operands are brought to their common type (None: they have it), and the weakness of the result."""

    x: Callable[[Any], Any] | None
    y: Callable[[Any], Any] | None
    weak: bool


_PYTHON = frozenset((bool, int, float, complex))


def _converter(found: Type, dtype: np.dtype[Any], scalar: bool) -> Callable[[Any], Any] | None:
    if scalar:
        return lambda value: checked_scalar(value, dtype)
    return None if found[0] == dtype else lambda value: integers.convert(value, dtype)


def _named(function: Any, name: str, text: str) -> Any:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = text
    function.__module__ = "tinyxla.numpy"
    return function


def unary(name: str, op: Op, text: str, *, to_inexact: bool = False, to_integer: bool = False) -> Unary:
    """The function that applies an op; on integers as on floats if `to_inexact`."""
    plans: dict[Any, _Plan] = {}
    evaluate = op.evaluate

    def common(x: Any) -> Type:
        found = type_of(x)
        if to_integer and found[0].kind == "b":
            found = promote_types(found, type_of(0))[0], False
        return inexact(found) if to_inexact else found

    def slow(x: ArrayLike) -> Array:
        x = operand(x, name)
        dtype, weak = common(x)
        result = op(cast(x, dtype, weak))
        if type(x) is ConcreteArray and state.staging is None:
            plans[x.dtype, x.weak_type, config.enable_x64] = _Plan(_converter(type_of(x), dtype, False), None, weak)
        return result

    def apply(x: ArrayLike, /) -> Array:
        if type(x) is ConcreteArray and state.staging is None:
            value = x.numpy()
            plan = plans.get((value.dtype, x.weak_type, config.enable_x64))
            if plan is not None:
                with np.errstate(all="ignore"):
                    return ConcreteArray(evaluate(plan.x(value) if plan.x else value), plan.weak)
        return slow(x)

    return _named(apply, name, text)


def binary(
    name: str,
    op: Op,
    text: str,
    *,
    to_inexact: bool = False,
    to_integer: bool = False,
    attributes: Callable[[np.dtype[Any]], dict[str, Any]] | None = None,
    of_complex: Callable[[Any, Any], Any] | None = None,
) -> Binary:
    """The function that applies an op to two arrays of one type and shape, with attributes that depend on that type.

    `of_complex` replaces the op for complex numbers.
    """
    plans: dict[Any, tuple[_Plan, Callable[..., Any]]] = {}

    def common(x: Any, y: Any) -> Type:
        found = promote_types(type_of(x), type_of(y))
        if to_integer and found[0].kind == "b":
            found = promote_types(found, type_of(0))[0], False
        return inexact(found) if to_inexact else found

    def plan_for(x: Any, y: Any, dtype: np.dtype[Any], weak: bool) -> tuple[_Plan, Callable[..., Any]]:
        given = attributes(dtype) if attributes else {}
        scalar = Shape(element_type(dtype))
        op.shape(scalar, scalar, **given)  # the op is defined for that type
        evaluate: Callable[..., Any] = op.evaluate
        converters = [_converter(type_of(v), dtype, type(v) in _PYTHON) for v in (x, y)]
        compute = (lambda a, b: evaluate(a, b, **given)) if given else evaluate
        return _Plan(*converters, weak), compute

    def slow(x: ArrayLike, y: ArrayLike, key: Any) -> Array:
        x, y = operand(x, name), operand(y, name)
        dtype, weak = common(x, y)
        pair = broadcasted(name, [cast(x, dtype), cast(y, dtype)])
        if of_complex is not None and dtype.kind == "c":
            return of_complex(*pair)
        result = op(*pair, **(attributes(dtype) if attributes else {})).with_weak_type(weak)
        if key is not None:
            plans[key] = plan_for(x, y, dtype, weak)
        return result

    def apply(x: ArrayLike, y: ArrayLike, /) -> Array:
        key = None
        if state.staging is None:
            kind, other = type(x), type(y)
            if kind is ConcreteArray:
                a = x.numpy()
                if other is ConcreteArray:
                    b = y.numpy()
                    key = (a.dtype, x.weak_type, b.dtype, y.weak_type, config.enable_x64)
                elif other in _PYTHON:
                    b = y
                    key = (a.dtype, x.weak_type, other, config.enable_x64)
            elif other is ConcreteArray and kind in _PYTHON:
                a, b = x, y.numpy()
                key = (kind, b.dtype, y.weak_type, config.enable_x64)
            found = plans.get(key) if key is not None else None
            if found is not None:
                plan, evaluate = found
                if plan.x:
                    a = plan.x(a)  # pyright: ignore[reportPossiblyUnboundVariable]
                if plan.y:
                    b = plan.y(b)  # pyright: ignore[reportPossiblyUnboundVariable]
                try:
                    with np.errstate(all="ignore"):
                        return ConcreteArray(evaluate(a, b), plan.weak)  # pyright: ignore[reportPossiblyUnboundVariable]
                except ValueError:
                    pass  # shapes that do not broadcast: the long way says so
        return slow(x, y, key)

    return _named(apply, name, text)


def composed(
    name: str, function: Callable[..., Array], text: str, *, to_inexact: bool = True, to_integer: bool = False
) -> Callable[..., Array]:
    """The function that promotes and broadcasts its operands and then combines ops on them."""

    def apply(*operands: ArrayLike) -> Array:
        arrays, (_, weak) = promoted(name, *operands, to_inexact=to_inexact)
        if to_integer and arrays[0].dtype.kind == "b":
            arrays, (_, weak) = promoted(name, *arrays, 0)
            arrays = arrays[:-1]
            weak = False
        return function(*broadcasted(name, arrays)).with_weak_type(weak)

    return _named(apply, name, text)
