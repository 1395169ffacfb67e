"""Symbolic sizes in StableHLO: the variables, and integer arithmetic on them, as operations on `tensor<i32>`.

In the function `@main` the variables are computed from the sizes of its arguments, which are checked by calls of the
target `shape_assertion`, as XLA's users do. The other functions take them as first arguments; regions see those of the
function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinyxla.shapes.polynomials import Atom, Polynomial, as_number, of_atom, shown
from tinyxla.shapes.symbolic import Scope, has_symbolic, is_symbolic
from tinyxla.shapes.symbolic_solving import Equation, System, constraints_of
from tinyxla.text.mlir.ir import (
    Attribute,
    DenseAttr,
    IntegerAttr,
    StringAttr,
    TensorType,
    Type,
    Value,
    enumeration,
)

I32 = TensorType((), "i32")
_I1 = TensorType((), "i1")
Emit = Callable[[str, Sequence[Value], Sequence[Type], dict[str, Attribute]], list[Value]]
_EXTREMA = {"max": "stablehlo.maximum", "min": "stablehlo.minimum"}


class Sizes:
    """The sizes that are known in a block, by their polynomials; `emit` adds an operation to the block."""

    def __init__(
        self, emit: Emit, variables: dict[str, Value], scope: Scope | None, outer: Sizes | None = None
    ) -> None:
        self._emit = emit
        self.scope = scope
        self.variables = variables
        self._known: dict[Any, Value] = {} if outer is None else dict(outer._known)

    def value(self, size: Any) -> Value:
        """A size, as a scalar."""
        return self._polynomial(size.polynomial) if is_symbolic(size) else self.constant(size)

    def vector(self, sizes: Sequence[Any]) -> Value:
        """Sizes, as a vector."""
        if not has_symbolic(sizes):
            numbers = np.asarray(sizes, np.int32).reshape(-1)
            return self._constant(numbers)
        rows = [self._one("stablehlo.reshape", [self.value(n)], TensorType((1,), "i32")) for n in sizes]
        if len(rows) == 1:
            return rows[0]
        whole = TensorType((len(rows),), "i32")
        return self._one("stablehlo.concatenate", rows, whole, {"dimension": IntegerAttr(0)})

    def matrix(self, rows: Sequence[Sequence[Any]], width: int) -> Value:
        """Rows of sizes, as a matrix."""
        flat = self.vector([n for row in rows for n in row])
        return self._one("stablehlo.reshape", [flat], TensorType((len(rows), width), "i32"))

    def constant(self, n: int) -> Value:
        """A number."""
        if n not in self._known:
            self._known[n] = self._constant(np.array(n, np.int32))
        return self._known[n]

    def _constant(self, numbers: np.ndarray[Any, Any]) -> Value:
        type = TensorType(numbers.shape, "i32")
        return self._one("stablehlo.constant", [], type, {"value": DenseAttr(numbers, type)})

    def _one(self, name: str, operands: Sequence[Value], type: Type, attributes: Any = None) -> Value:
        return self._emit(name, operands, [type], attributes or {})[0]

    def _binary(self, name: str, x: Value, y: Value) -> Value:
        return self._one(name, [x, y], I32)

    def _polynomial(self, p: Polynomial) -> Value:
        if p not in self._known:
            self._known[p] = self._sum(p)
        return self._known[p]

    def _sum(self, p: Polynomial) -> Value:
        number = as_number(p)
        if number is not None:
            return self.constant(number)
        found: Value | None = None
        for monomial, coefficient in p:
            factors = [self._atom(atom) for atom, power in monomial for _ in range(power)]
            term = factors.pop(0) if factors else self.constant(coefficient)
            for factor in factors:
                term = self._binary("stablehlo.multiply", term, factor)
            if monomial and coefficient != 1:
                term = self._binary("stablehlo.multiply", term, self.constant(coefficient))
            found = term if found is None else self._binary("stablehlo.add", found, term)
        assert found is not None
        return found

    def _atom(self, atom: Atom) -> Value:
        if atom.name:
            return self.variables[atom.name]
        key = of_atom(atom)
        if key not in self._known:
            x, y = map(self._polynomial, atom.operands)
            if atom.kind in _EXTREMA:
                found = self._binary(_EXTREMA[atom.kind], x, y)
            elif self._is_positive(atom):
                name = "stablehlo.divide" if atom.kind == "floordiv" else "stablehlo.remainder"
                found = self._binary(name, x, y)
            else:
                found = self._remainder(x, y)
                if atom.kind == "floordiv":
                    found = self._binary("stablehlo.divide", self._binary("stablehlo.subtract", x, found), y)
            self._known[key] = found
        return self._known[key]

    def _is_positive(self, atom: Atom) -> bool:
        """Whether rounding towards zero and towards minus infinity are the same."""
        if self.scope is None:
            return False
        dividend, divisor = map(self.scope.interval, atom.operands)
        return dividend[0] >= 0 and divisor[0] > 0

    def _remainder(self, x: Value, y: Value) -> Value:
        """The remainder with the sign of y; that of StableHLO has the sign of x."""
        first = self._binary("stablehlo.remainder", x, y)
        return self._binary("stablehlo.remainder", self._binary("stablehlo.add", first, y), y)

    # --- variables from the sizes of arguments ------------------------------------------------------------------------

    def define(self, system: System, arguments: Sequence[Value]) -> None:
        """Compute the variables from the arguments of `@main`, and check what the sizes must be."""
        for d in system.definitions:
            size = self._size(d.equation, arguments)
            left = self._binary("stablehlo.subtract", size, self._polynomial(d.rest)) if d.rest else size
            coefficient = self.constant(d.coefficient)
            value = left if d.coefficient == 1 else self._binary("stablehlo.divide", left, coefficient)
            self.variables[d.variable] = value
            where = f"dimension {d.equation.dimension} of argument {d.equation.argument}, which is {{0}}"
            self._assert("GE", value, self.constant(1), f"{d.variable} must be positive: it follows from {where}", size)
            if d.coefficient != 1:
                again = self._binary("stablehlo.remainder", left, coefficient)
                wanted = f"{where}, must be {shown(d.equation.polynomial)} for an integer {d.variable}"
                self._assert("EQ", again, self.constant(0), wanted, size)
        for e in system.checks:
            size, wanted = self._size(e, arguments), self._polynomial(e.polynomial)
            said = (
                f"dimension {e.dimension} of argument {e.argument} is {{0}}, but must be {{1}}, {shown(e.polynomial)}"
            )
            self._assert("EQ", size, wanted, said, size, wanted)
        for text, p, exact in constraints_of(system):
            value = self._polynomial(p)
            said = f"the sizes do not obey the constraint {text} {'==' if exact else '>='} 0: it is {{0}}"
            self._assert("EQ" if exact else "GE", value, self.constant(0), said, value)

    def _size(self, e: Equation, arguments: Sequence[Value]) -> Value:
        attributes: dict[str, Attribute] = {"dimension": IntegerAttr(e.dimension)}
        return self._one("stablehlo.get_dimension_size", [arguments[e.argument]], I32, attributes)

    def _assert(self, direction: str, x: Value, y: Value, message: str, *shown: Value) -> None:
        attributes = {"comparison_direction": enumeration("comparison_direction", direction)}
        attributes["compare_type"] = enumeration("comparison_type", "SIGNED")
        holds = self._one("stablehlo.compare", [x, y], _I1, attributes)
        call: dict[str, Attribute] = {
            "call_target_name": StringAttr(b"shape_assertion"),
            "api_version": IntegerAttr(2, "i32"),
            "error_message": StringAttr(message.encode()),
            "has_side_effect": IntegerAttr(1, "i1"),
        }
        self._emit("stablehlo.custom_call", [holds, *shown], [], call)
