"""Integer polynomials in variables, the sizes of symbolic dimensions.

Polynomials are kept expanded: a sum of terms, each an integer times a product of powers of atoms. An atom is a
variable, which stands for a positive integer, or `floordiv`, `mod`, `max` or `min` of two polynomials.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tinyxla.errors import ArgumentError


class Atom(NamedTuple):
    """A variable, of the kind "variable", or an operation on two polynomials."""

    kind: str
    name: str = ""
    operands: tuple[Polynomial, ...] = ()

    def __str__(self) -> str:
        return self.name or f"{self.kind}({', '.join(map(shown, self.operands))})"


Monomial = tuple[tuple[Atom, int], ...]  # powers of atoms, in order; () stands for 1
Polynomial = tuple[tuple[Monomial, int], ...]  # coefficients of monomials, in order

_MAX_TERMS = 500


def shown(p: Polynomial) -> str:
    """The text of a polynomial, which can be parsed: `2*b^2 - b + 1`."""
    text = ""
    for monomial, coefficient in p:
        factors = "*".join(f"{atom}^{power}" if power != 1 else str(atom) for atom, power in monomial)
        size = abs(coefficient)
        term = f"{size}*{factors}" if factors and size != 1 else factors or str(size)
        sign = "-" if coefficient < 0 else "+"
        text += f" {sign} {term}" if text else term if sign == "+" else f"-{term}"
    return text or "0"


def _order(monomial: Monomial) -> tuple[Any, ...]:
    """Products of more factors stand before those of fewer."""
    return (-sum(power for _, power in monomial), [(str(atom), power) for atom, power in monomial])


def polynomial(coefficients: Mapping[Monomial, int]) -> Polynomial:
    """The polynomial with these coefficients."""
    if len(coefficients) > _MAX_TERMS:
        raise ArgumentError(f"A symbolic dimension has at most {_MAX_TERMS} terms; this one has {len(coefficients)}.")
    return tuple(sorted(((m, c) for m, c in coefficients.items() if c), key=lambda term: _order(term[0])))


def constant(n: int) -> Polynomial:
    """A number as a polynomial."""
    return (((), n),) if n else ()


def of_atom(atom: Atom) -> Polynomial:
    """An atom as a polynomial."""
    return ((((atom, 1),), 1),)


def as_number(p: Polynomial) -> int | None:
    """The value of a polynomial without variables; None for another."""
    if not p:
        return 0
    return p[0][1] if len(p) == 1 and p[0][0] == () else None


def plus(p: Polynomial, q: Polynomial, factor: int = 1) -> Polynomial:
    """p + factor q."""
    found = dict(p)
    for monomial, coefficient in q:
        found[monomial] = found.get(monomial, 0) + factor * coefficient
    return polynomial(found)


def times(p: Polynomial, q: Polynomial) -> Polynomial:
    """The product."""
    if len(p) * len(q) > _MAX_TERMS:
        raise ArgumentError(f"A symbolic dimension has at most {_MAX_TERMS} terms; a product has more.")
    found: dict[Monomial, int] = {}
    for m, a in p:
        for n, b in q:
            product = _product(m, n)
            found[product] = found.get(product, 0) + a * b
    return polynomial(found)


def _product(m: Monomial, n: Monomial) -> Monomial:
    powers = dict(m)
    for atom, power in n:
        powers[atom] = powers.get(atom, 0) + power
    return tuple(sorted(powers.items(), key=lambda factor: str(factor[0])))


def _ratio(m: Monomial, n: Monomial) -> Monomial | None:
    """m / n, if n divides m."""
    powers = dict(m)
    for atom, power in n:
        left = powers.get(atom, 0) - power
        if left < 0:
            return None
        powers[atom] = left
    return tuple((atom, power) for atom, power in powers.items() if power)


def divided(p: Polynomial, d: Polynomial) -> tuple[Polynomial, Polynomial]:
    """Long division, p = quotient d + remainder, where the coefficient of d's first term divides those of p."""
    if not d:
        raise ZeroDivisionError("A symbolic dimension is divided by zero.")
    quotient: Polynomial = ()
    remainder: Polynomial = ()
    left = p
    lead, leading = d[0]
    for _ in range(_MAX_TERMS):
        if not left:
            return quotient, remainder
        monomial, coefficient = left[0]
        ratio = _ratio(monomial, lead)
        divides = ratio is not None and (coefficient % leading == 0 or not monomial)
        share = coefficient // leading if divides else 0
        if ratio is not None and share:
            term = ((ratio, share),)
            quotient, left = plus(quotient, term), plus(left, times(term, d), -1)
        else:
            remainder, left = plus(remainder, left[:1]), left[1:]
    return (), p


def common_factor(*ps: Polynomial) -> int:
    """The greatest number that divides all coefficients."""
    return math.gcd(*(c for p in ps for _, c in p))


def variables(p: Polynomial) -> set[str]:
    """The names of the variables in a polynomial."""
    found: set[str] = set()
    for monomial, _ in p:
        for atom, _ in monomial:
            found |= {atom.name} if atom.name else set().union(*map(variables, atom.operands))
    return found


def evaluated(p: Polynomial, sizes: Mapping[str, int]) -> int:
    """The value of a polynomial for these values of the variables."""
    return sum(c * _value(monomial, sizes) for monomial, c in p)


def _value(monomial: Monomial, sizes: Mapping[str, int]) -> int:
    found = 1
    for atom, power in monomial:
        value = sizes[atom.name] if atom.name else OPERATIONS[atom.kind](*(evaluated(q, sizes) for q in atom.operands))
        found *= value**power
    return found


OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "max": max,
    "min": min,
}
