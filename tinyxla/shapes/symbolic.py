"""Symbolic dimensions: sizes that are not known while a function is traced, as `2*b + 1`.

A symbolic dimension stands in shapes where an integer does, so that the rules of shapes compute polynomials from
polynomials. To `isinstance` it is an `int`, but C code does not get one from it: what needs its value, as `range(b)`
and `float(b)` do, is an error and never a wrong size. Comparisons give truth values where bounds and constraints decide
them, and else raise `InconclusiveDimensionOperation`; `==` is True only if both sides are the same polynomial, so that
shapes can be keys.

Source: "Shape polymorphism" of the JAX documentation, for what users expect of comparisons.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from tinyxla.errors import ArgumentError, InconclusiveDimensionOperation
from tinyxla.shapes import polynomials
from tinyxla.shapes.polynomial_bounds import Interval, interval
from tinyxla.shapes.polynomials import Atom, Monomial, Polynomial, as_number, constant, of_atom, plus, shown, times

_MAX_CONSTRAINTS = 100


class Scope:
    """What is known of the variables with which dimensions are computed: `constraints` that are not negative, and
    `equalities` of a term and a polynomial. `texts` are these as they were written."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.constraints: list[Polynomial] = []
        self.equalities: dict[Polynomial, Polynomial] = {}  # by polynomials of one term
        self._intervals: dict[Polynomial, Interval] = {}

    def add_constraint(self, p: Polynomial, text: str) -> None:
        """From here on, a polynomial is not negative."""
        if len(self.constraints) >= _MAX_CONSTRAINTS:
            raise ArgumentError(f"A scope of symbolic dimensions has at most {_MAX_CONSTRAINTS} constraints.")
        self.constraints.append(self.normal(p))
        self.texts.append(text)
        self._intervals.clear()

    def add_equality(self, term: Polynomial, p: Polynomial, text: str) -> None:
        """From here on, a term, and so what it divides, stands for a polynomial."""
        self.equalities[term] = p
        self.constraints[:] = [self.normal(c) for c in self.constraints]
        self.texts.append(text)
        self._intervals.clear()

    def normal(self, p: Polynomial) -> Polynomial:
        """A polynomial with terms replaced by what they are equal to, and known remainders."""
        for monomial, coefficient in p:
            for term, equal in self.equalities.items():
                quotient, remainder = polynomials.divided(((monomial, coefficient),), term)
                if quotient and not remainder:
                    return self.normal(plus(plus(p, ((monomial, coefficient),), -1), times(quotient, equal)))
            replaced = self._without_division(p, monomial, coefficient)
            if replaced is not None:
                return self.normal(plus(plus(p, ((monomial, coefficient),), -1), replaced))
        return p

    def _without_division(self, p: Polynomial, monomial: Monomial, coefficient: int) -> Polynomial | None:
        """k floordiv(x, k) as x - mod(x, k), where the remainder is known or cancels in p."""
        for atom, power in monomial:
            if atom.kind != "floordiv" or power != 1:
                continue
            x, divisor = atom.operands
            others: Polynomial = ((tuple(factor for factor in monomial if factor[0] != atom), coefficient),)
            quotient, remainder = polynomials.divided(others, divisor)
            if not quotient or remainder:
                continue
            modulus = self.operation("mod", x, divisor)
            subtracted = times(quotient, modulus)
            if as_number(modulus) is not None or all(dict(p).get(m) == c for m, c in subtracted):
                return plus(times(quotient, x), subtracted, -1)
        return None

    def interval(self, p: Polynomial) -> Interval:
        """The bounds of a polynomial."""
        found = self._intervals.get(p)
        if found is None:
            found = self._intervals[p] = interval(p, self.constraints)
        return found

    def operation(self, kind: str, p: Polynomial, q: Polynomial) -> Polynomial:
        """`floordiv`, `mod`, `max` or `min` of two polynomials."""
        p, q = self.normal(p), self.normal(q)
        a, b = as_number(p), as_number(q)
        if a is not None and b is not None:
            return constant(polynomials.OPERATIONS[kind](a, b))
        if kind in ("max", "min"):
            return self._extremum(kind, p, q)
        return self._quotient(p, q) if kind == "floordiv" else self._remainder(p, q)

    def _extremum(self, kind: str, p: Polynomial, q: Polynomial) -> Polynomial:
        low, high = self.interval(plus(p, q, -1))
        if low >= 0:
            return p if kind == "max" else q
        if high <= 0:
            return q if kind == "max" else p
        return self._atom(kind, *sorted((p, q), key=shown))

    def _quotient(self, p: Polynomial, d: Polynomial) -> Polynomial:
        quotient, remainder = self._division(p, d)
        if self._is_remainder(remainder, d):
            return quotient
        factor = polynomials.common_factor(remainder, d)
        reduced = (polynomials.divided(x, constant(factor))[0] for x in (remainder, d))
        return plus(quotient, self._atom("floordiv", *reduced))

    def _remainder(self, p: Polynomial, d: Polynomial) -> Polynomial:
        _, remainder = self._division(p, d)
        if self._is_remainder(remainder, d):
            return remainder
        factor = polynomials.common_factor(remainder, d)
        reduced = (polynomials.divided(x, constant(factor))[0] for x in (remainder, d))
        return times(constant(factor), self._atom("mod", *reduced))

    def _division(self, p: Polynomial, d: Polynomial) -> tuple[Polynomial, Polynomial]:
        """Polynomials with p = quotient d + remainder, where the remainder is from 0 to d - 1 if that can be seen."""
        quotient, remainder = polynomials.divided(p, d)
        above = plus(remainder, d)
        if remainder and self.interval(remainder)[1] < 0 <= self.interval(above)[0]:
            return plus(quotient, constant(-1)), above
        return quotient, remainder

    def _is_remainder(self, r: Polynomial, d: Polynomial) -> bool:
        """Whether 0 <= r < d for sure, or r is 0."""
        return not r or (self.interval(r)[0] >= 0 and self.interval(plus(d, r, -1))[0] >= 1)

    def _atom(self, kind: str, p: Polynomial, q: Polynomial) -> Polynomial:
        return self.normal(of_atom(Atom(kind, "", (p, q))))


class SymbolicDimension:
    """A size that is a polynomial in variables of a scope."""

    __slots__ = ("polynomial", "scope")

    def __init__(self, polynomial: Polynomial, scope: Scope) -> None:
        self.polynomial = polynomial
        self.scope = scope

    @property
    def __class__(self) -> type:  # type: ignore[override] - what takes a size asks for an int
        return int

    # --- arithmetic ---------------------------------------------------------------------------------------------------

    def _combined(self, other: Any, how: Callable[[Polynomial, Polynomial], Polynomial], what: str) -> Any:
        q = self._operand(other, what)
        if q is None:
            return _array_operation(what, self, other)
        return made(how(self.polynomial, q), self.scope)

    def _reflected(self, other: Any, how: Callable[[Polynomial, Polynomial], Polynomial], what: str) -> Any:
        p = self._operand(other, what)
        if p is None:
            return _array_operation(what, other, self)
        return made(how(p, self.polynomial), self.scope)

    def _operand(self, other: Any, what: str) -> Polynomial | None:
        """The other operand as a polynomial; None for what is no integer."""
        if is_symbolic(other):
            if other.scope is not self.scope:
                raise ArgumentError(
                    f"{what} of the symbolic dimensions {self} and {other} of different scopes; make them by one "
                    "symbolic_shape, or pass its scope to the other: symbolic_shape(..., scope=scope)."
                )
            return other.polynomial
        if isinstance(other, bool) or not hasattr(other, "__index__") or getattr(other, "shape", ()):
            return None
        return constant(operator.index(other)) if type(other) is int or hasattr(other, "item") else None

    def __add__(self, other: Any) -> Any:
        return self._combined(other, plus, "add")

    def __radd__(self, other: Any) -> Any:
        return self._reflected(other, plus, "add")

    def __sub__(self, other: Any) -> Any:
        return self._combined(other, _minus, "sub")

    def __rsub__(self, other: Any) -> Any:
        return self._reflected(other, _minus, "sub")

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, list | tuple):
            raise self._unknown("the length of a list")
        return self._combined(other, times, "mul")

    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> Any:
        return self._combined(other, lambda p, q: self.scope.operation("floordiv", p, q), "floordiv")

    def __rfloordiv__(self, other: Any) -> Any:
        return self._reflected(other, lambda p, q: self.scope.operation("floordiv", p, q), "floordiv")

    def __mod__(self, other: Any) -> Any:
        return self._combined(other, lambda p, q: self.scope.operation("mod", p, q), "mod")

    def __rmod__(self, other: Any) -> Any:
        return self._reflected(other, lambda p, q: self.scope.operation("mod", p, q), "mod")

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def __truediv__(self, other: Any) -> Any:
        return _array_operation("truediv", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return _array_operation("truediv", other, self)

    def __pow__(self, power: Any) -> Any:
        if type(power) is not int or power < 0:
            return _array_operation("pow", self, power)
        found: Any = 1
        for _ in range(power):
            found = self * found
        return found

    def __rpow__(self, base: Any) -> Any:
        return _array_operation("pow", base, self)

    def __neg__(self) -> Any:
        return made(plus((), self.polynomial, -1), self.scope)

    def __pos__(self) -> SymbolicDimension:
        return self

    def __abs__(self) -> Any:
        return self if self >= 0 else -self

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """Functions of NumPy: of its integers those of integers, and else those of arrays."""
        function = _INTEGER_UFUNCS.get(ufunc.__name__)
        if function is not None and method == "__call__" and not options:
            x, y = (int(x) if isinstance(x, np.integer) else x for x in inputs)
            if all(is_symbolic(n) or type(n) is int for n in (x, y)):
                return function(x, y)
        return getattr(ufunc, method)(*(array_of(x) if is_symbolic(x) else x for x in inputs), **options)

    # --- comparisons --------------------------------------------------------------------------------------------------

    def __eq__(self, other: Any) -> bool:
        if is_symbolic(other):
            return self is other or (self.scope is other.scope and self.polynomial == other.polynomial)
        return False

    def __hash__(self) -> int:
        return hash(self.polynomial)

    def _compared(self, name: str, symbol: str, other: Any) -> Any:
        """A comparison, if it has one truth value at both bounds of the difference, and so between them."""
        q = self._operand(other, symbol)
        if q is None:
            return _array_operation(name, self, other)
        bounds = self.scope.interval(self.scope.normal(_minus(self.polynomial, q)))
        at_least, at_most = (getattr(operator, name)(bound, 0) for bound in bounds)
        if at_least != at_most:
            raise self._inconclusive(symbol, other)
        return at_least

    def __ge__(self, other: Any) -> Any:
        return self._compared("ge", ">=", other)

    def __gt__(self, other: Any) -> Any:
        return self._compared("gt", ">", other)

    def __lt__(self, other: Any) -> Any:
        return self._compared("lt", "<", other)

    def __le__(self, other: Any) -> Any:
        return self._compared("le", "<=", other)

    def __bool__(self) -> bool:
        low, high = self.scope.interval(self.polynomial)
        if low > 0 or high < 0:
            return True
        raise self._inconclusive("!=", 0)

    def _inconclusive(self, comparison: str, other: Any) -> InconclusiveDimensionOperation:
        wanted = f"{self} >= {other + 1}" if comparison in (">", "<=", "!=") else f"{self} >= {other}"
        return InconclusiveDimensionOperation(
            f"Whether {self} {comparison} {other} depends on the size of symbolic dimensions. If it is always the "
            f'same, give symbolic_shape a constraint, such as constraints=["{wanted}"]; the greater and the smaller of '
            "two sizes are core.max_dim and core.min_dim."
        )

    # --- what is no value ---------------------------------------------------------------------------------------------

    def _unknown(self, wanted: str) -> InconclusiveDimensionOperation:
        return InconclusiveDimensionOperation(
            f"{wanted[0].upper()}{wanted[1:]} is wanted, but the symbolic dimension {self} has no value while a "
            "function is traced. Use functions of tinyxla.numpy and loops of tinyxla.lax on it, or export for a "
            "constant size."
        )

    def __index__(self) -> int:
        raise self._unknown("a Python integer")

    def __int__(self) -> int:
        raise self._unknown("a Python integer")

    def __float__(self) -> float:
        raise self._unknown("a Python float")

    def __complex__(self) -> complex:
        raise self._unknown("a Python complex number")

    def __tinyxla_array__(self) -> Any:
        return array_of(self)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        raise self._unknown("a NumPy array")

    def __str__(self) -> str:
        return shown(self.polynomial)

    __repr__ = __str__

    def __format__(self, spec: str) -> str:
        return format(str(self), spec if not spec or spec[-1] in "s<>^0123456789" else "")

    def __copy__(self) -> SymbolicDimension:
        return self

    def __deepcopy__(self, memo: Any) -> SymbolicDimension:
        return self

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise ArgumentError(f"The symbolic dimension {self} cannot be pickled; pickle its text, str(...).")


_INTEGER_UFUNCS: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "floor_divide": operator.floordiv,
    "remainder": operator.mod,
    "greater": operator.gt,
    "greater_equal": operator.ge,
    "less": operator.lt,
    "less_equal": operator.le,
    "equal": operator.eq,
    "not_equal": operator.ne,
}


def _minus(p: Polynomial, q: Polynomial) -> Polynomial:
    return plus(p, q, -1)


def made(p: Polynomial, scope: Scope) -> Any:
    """A polynomial as a dimension, or as an integer if it is one."""
    p = scope.normal(p)
    n = as_number(p)
    return SymbolicDimension(p, scope) if n is None else n


def is_symbolic(x: Any) -> bool:
    """Whether something is a symbolic dimension."""
    return type(x) is SymbolicDimension


def array_of(x: Any) -> Any:
    """A dimension as an array of the program that is traced."""
    if _as_array is None:
        raise x._unknown("an array")
    return _as_array(x)


_as_array: Callable[[SymbolicDimension], Any] | None = None


def set_as_array(function: Callable[[SymbolicDimension], Any]) -> None:
    """Say how a dimension becomes an array, which is a matter of other layers."""
    global _as_array
    _as_array = function


def _array_operation(name: str, x: Any, y: Any) -> Any:
    """An operation with a float or an array: that of arrays."""
    function = getattr(operator, name)
    if is_symbolic(x):
        return function(array_of(x), array_of(y) if is_symbolic(y) else y)
    return function(x, array_of(y))


def index(x: Any) -> Any:
    """`operator.index` that lets symbolic dimensions through."""
    return x if is_symbolic(x) else operator.index(x)


def max_dim(x: Any, y: Any) -> Any:
    """The greater of two sizes, also where their order is not known.

    Args:
        x, y: sizes: integers or symbolic dimensions.

    Returns:
        A size.

    Raises:
        ArgumentError: what is no size, or symbolic dimensions of different scopes.

    >>> from tinyxla import core, export
    >>> n, m = export.symbolic_shape("n, m")
    >>> core.max_dim(n, m), core.max_dim(n, n + 1), core.max_dim(2, 3)
    (max(m, n), n + 1, 3)
    """
    return _extremum("max", x, y)


def min_dim(x: Any, y: Any) -> Any:
    """The smaller of two sizes, also where their order is not known.

    Args:
        x, y: sizes: integers or symbolic dimensions.

    Returns:
        A size.

    Raises:
        ArgumentError: what is no size, or symbolic dimensions of different scopes.

    >>> from tinyxla import core, export
    >>> n, m = export.symbolic_shape("n, m")
    >>> core.min_dim(n, m), core.min_dim(n, n + 1), core.min_dim(2, 3)
    (min(m, n), n, 2)
    """
    return _extremum("min", x, y)


def _extremum(kind: str, x: Any, y: Any) -> Any:
    if not (is_symbolic(x) or is_symbolic(y)):
        try:
            return polynomials.OPERATIONS[kind](operator.index(x), operator.index(y))
        except TypeError:
            raise ArgumentError(f"{kind}_dim takes sizes, but got {x!r} and {y!r}.") from None
    known: SymbolicDimension = x if is_symbolic(x) else y
    p, q = (known._operand(z, kind) for z in (x, y))  # pyright: ignore[reportPrivateUsage]
    if p is None or q is None:
        raise ArgumentError(f"{kind}_dim takes sizes, but got {x!r} and {y!r}.")
    return made(known.scope.operation(kind, p, q), known.scope)


def may_exceed(size: Any, limit: int) -> bool:
    """Whether a size is above a limit for all that is known: what is done then must be right in any case."""
    return is_symbolic(size) or size > limit


def exceeds_int32(size: Any) -> bool:
    """Whether places below a size do not fit 32 bits. Symbolic sizes do: in StableHLO they are s32."""
    return not is_symbolic(size) and size > 0x7FFFFFFF


def slice_indices(entry: slice, size: Any) -> tuple[Any, Any, int]:
    """`slice.indices` for a size or bounds that may be symbolic."""
    if not has_symbolic((size, entry.start, entry.stop)):
        return entry.indices(size)
    step = 1 if entry.step is None else operator.index(entry.step)
    low, high = (0, size) if step > 0 else (-1, size - 1)

    def bound(given: Any, default: Any) -> Any:
        if given is None:
            return default
        return min_dim(given, high) if given >= 0 else max_dim(given + size, low)

    return bound(entry.start, low if step > 0 else high), bound(entry.stop, high if step > 0 else low), step


def length(start: Any, stop: Any, step: int) -> Any:
    """The length of `range(start, stop, step)`, whose bounds may be symbolic."""
    if not (is_symbolic(start) or is_symbolic(stop)):
        return len(range(start, stop, step))
    return max_dim((stop - start + step - 1) // step if step > 0 else (start - stop - step - 1) // -step, 0)


def size_of(x: Any, sizes: Mapping[str, int]) -> int:
    """The value of a size for these values of the variables."""
    return polynomials.evaluated(x.polynomial, sizes) if is_symbolic(x) else x


def has_symbolic(sizes: Iterable[Any]) -> bool:
    """Whether one of the sizes is symbolic."""
    return SymbolicDimension in map(type, sizes)
