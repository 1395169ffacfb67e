"""Arithmetic of sizes that are symbolic: what programs compute from `get_dimension_size` while a function is traced for
symbolic dimensions.

`SymbolicInts` stands for an array of integers or truth values, of which some are symbolic. The rules here give such
again; where one does not apply, since a comparison is not decided or another operand is not known, the operation is
recorded on arrays.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinyxla.errors import InconclusiveDimensionOperation
from tinyxla.ops.op import ops
from tinyxla.shapes import element_type
from tinyxla.shapes.symbolic import array_of, has_symbolic, is_symbolic, max_dim, min_dim
from tinyxla.tracing.array import ConcreteArray, wrap


class SymbolicInts:
    """Integers or truth values, some of them symbolic: `elements` is a NumPy array of objects."""

    def __init__(self, elements: Any, dtype: Any) -> None:
        self.elements = elements
        self.dtype = np.dtype(dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes, which are known."""
        return self.elements.shape

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return self.elements.ndim

    def as_array(self) -> Any:
        """The array of the program that is traced."""
        kind = element_type(self.dtype)
        parts = [
            ops["reshape"](ops["convert"](array_of(n), new_element_type=kind), sizes=(1,))
            if is_symbolic(n)
            else wrap(np.array([n], self.dtype))
            for n in self.elements.reshape(-1)
        ]
        flat = ops["concatenate"](*parts, dimension=0) if len(parts) > 1 else parts[0]
        return ops["reshape"](flat, sizes=self.shape)


def scalar(size: Any, dtype: Any) -> SymbolicInts:
    """A size as a value."""
    return SymbolicInts(_objects(size), dtype)


def as_arrays(values: Sequence[Any]) -> list[Any]:
    """Values with arrays in the place of symbolic sizes."""
    return [x.as_array() if isinstance(x, SymbolicInts) else x for x in values]


def on_sizes(context: Any, operands: Sequence[Any]) -> Any:
    """The result of an operation on sizes that are all known or symbolic; None if there is no rule."""
    rule = _RULES.get(context.operation.name)
    if rule is None or not all(isinstance(x, SymbolicInts | ConcreteArray) for x in operands):
        return None
    result = context.operation.result.type
    try:
        found = rule(context, *(_elements(x) for x in operands))
    except InconclusiveDimensionOperation:
        return None
    if found is None:
        return None
    elements = found if isinstance(found, np.ndarray) else _objects(found)
    dtype = np.dtype({"i1": "bool", "i32": "int32", "i64": "int64"}.get(result.element, "V1"))
    if dtype.kind == "V":
        return None
    if has_symbolic(elements.reshape(-1)):
        return SymbolicInts(elements, dtype)
    return wrap(elements.astype(dtype))


def _objects(x: Any) -> Any:
    found = np.empty((), object)
    found[()] = x
    return found


def _elements(x: Any) -> Any:
    return x.elements if isinstance(x, SymbolicInts) else np.asarray(x).astype(object)


def _each(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of integers, element by element."""

    def rule(context: Any, *operands: Any) -> Any:
        shape = operands[0].shape
        found = np.empty(shape, object)
        for at in np.ndindex(shape):
            found[at] = function(*(x[at] for x in operands))
        return found

    return rule


def _divided(x: Any, y: Any) -> Any:
    """The quotient towards zero, which is that towards minus infinity if neither is negative."""
    return x // y if x >= 0 and y > 0 else -(-x // y) if x <= 0 and y > 0 else _undecided(x)


def _remainder(x: Any, y: Any) -> Any:
    return x % y if x >= 0 and y > 0 else -(-x % y) if x <= 0 and y > 0 else _undecided(x)


def _undecided(x: Any) -> Any:
    raise InconclusiveDimensionOperation(f"The sign of {x} is not known.")


def _sign(x: Any) -> int:
    return 1 if x > 0 else -1 if x < 0 else 0 if x >= 0 else _undecided(x)


_COMPARISONS = {"GE": operator.ge, "GT": operator.gt, "LE": operator.le, "LT": operator.lt}


def _compared(context: Any, x: Any, y: Any) -> Any:
    direction = context.word("comparison_direction")

    def compare(a: Any, b: Any) -> bool:
        if direction in _COMPARISONS:
            return _COMPARISONS[direction](a, b)
        difference = a - b
        is_equal = not difference if not is_symbolic(difference) else not bool(difference)
        return is_equal == (direction == "EQ")

    return _each(compare)(context, x, y)


def _selected(context: Any, which: Any, x: Any, y: Any) -> Any:
    chosen = np.broadcast_to(which, x.shape)
    return _each(lambda c, a, b: a if c else b)(context, chosen, x, y)


def _converted(context: Any, x: Any) -> Any:
    return x if context.operation.result.type.element in ("i32", "i64") else None


def _broadcast(context: Any, x: Any) -> Any:
    sizes, dimensions = context.result_shape.dimensions, context.ints("broadcast_dimensions")
    spread = [1] * len(sizes)
    for n, d in zip(x.shape, dimensions, strict=True):
        spread[d] = n
    return np.broadcast_to(x.reshape(spread), sizes)


def _sliced(context: Any, x: Any) -> Any:
    bounds = (context.ints(name) for name in ("start_indices", "limit_indices", "strides"))
    return x[tuple(map(slice, *bounds))]


_RULES: dict[str, Callable[..., Any]] = {
    f"stablehlo.{name}": rule
    for name, rule in {
        "add": _each(operator.add),
        "subtract": _each(operator.sub),
        "multiply": _each(operator.mul),
        "negate": _each(operator.neg),
        "divide": _each(_divided),
        "remainder": _each(_remainder),
        "maximum": _each(max_dim),
        "minimum": _each(min_dim),
        "sign": _each(_sign),
        "clamp": _each(lambda low, x, high: min_dim(max_dim(low, x), high)),
        "compare": _compared,
        "select": _selected,
        "convert": _converted,
        "reshape": lambda context, x: x.reshape(context.result_shape.dimensions),
        "broadcast_in_dim": _broadcast,
        "concatenate": lambda context, *xs: np.concatenate(xs, context.integer("dimension")),
        "slice": _sliced,
    }.items()
}
