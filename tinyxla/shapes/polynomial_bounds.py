"""Bounds of polynomials in dimension variables, from the bounds of atoms and the constraints of a scope.

Interval arithmetic over the terms comes first. Where it does not decide, a multiple of a constraint `c >= 0` that
cancels a term is taken off, a few times: from e = e' + k c with k > 0 follows e >= e'. What is known of the atoms
themselves is used in the same way: `max(x, y) >= x`, `min(x, y) <= x`, `0 <= x - k floordiv(x, k) < k`;
and `max` and `min` are one of their operands, so that both cases are looked at.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from tinyxla.shapes.polynomials import Atom, Monomial, Polynomial, as_number, constant, of_atom, plus, times

_DEPTH = 3  # constraints that are combined, at most
_MAX_COMBINED_CONSTRAINTS = 16  # constraints of which several are combined; of more just one is used at a time

Interval = tuple[float, float]


def interval(p: Polynomial, constraints: Sequence[Polynomial]) -> Interval:
    """The least and the greatest value that a polynomial may have, infinite where nothing is known."""
    return _lowest(p, constraints), -_lowest(plus((), p, -1), constraints)


def _lowest(p: Polynomial, constraints: Sequence[Polynomial]) -> float:
    depth = _DEPTH if len(constraints) <= _MAX_COMBINED_CONSTRAINTS else 1
    best = _lower(p, constraints, depth)
    for divisor in _divisors(p):
        low = _lower(times(constant(divisor), p), constraints, depth)
        best = max(best, low if math.isinf(low) else float(math.ceil(low / divisor)))
    return best


def _lower(p: Polynomial, constraints: Sequence[Polynomial], depth: int) -> float:
    best = float(sum(_term(monomial, c, constraints)[0] for monomial, c in p)) if p else 0.0
    if depth == 0 or best >= 0:
        return best
    known = [*constraints, *_known(p)]
    for c in known:
        if as_number(c) is not None:
            continue
        for reduced in _cancelled(p, c):
            best = max(best, _lower(reduced, constraints, depth - 1))
            if best >= 0:
                return best
    for atom in _extrema(p):
        cases = (_lower(_substituted(p, atom, x), constraints, depth - 1) for x in atom.operands)
        best = max(best, min(cases))
    return best


def _term(monomial: Monomial, coefficient: int, constraints: Sequence[Polynomial]) -> Interval:
    low, high = 1.0, 1.0
    for atom, power in monomial:
        for _ in range(power):
            low, high = _product((low, high), _of_atom(atom, constraints))
        if power % 2 == 0:
            low = max(low, 0.0) if len(monomial) == 1 else low
    return _product((low, high), (float(coefficient), float(coefficient)))


def _product(a: Interval, b: Interval) -> Interval:
    corners = [0.0 if 0 in (x, y) else x * y for x in a for y in b]
    return min(corners), max(corners)


def _of_atom(atom: Atom, constraints: Sequence[Polynomial]) -> Interval:
    if atom.name:
        return _of_variable(atom, constraints)
    a, b = (interval(q, ()) if _is_nested(q) else interval(q, constraints) for q in atom.operands)
    if atom.kind == "max":
        return max(a[0], b[0]), max(a[1], b[1])
    if atom.kind == "min":
        return min(a[0], b[0]), min(a[1], b[1])
    if atom.kind == "mod":
        return (0.0, max(0.0, min(a[1], b[1] - 1) if a[0] >= 0 else b[1] - 1)) if b[0] > 0 else (-math.inf, math.inf)
    if b[0] <= 0:
        return -math.inf, math.inf
    corners = [_quotient(x, y) for x in a for y in b]
    return min(corners), max(corners)


def _of_variable(atom: Atom, constraints: Sequence[Polynomial]) -> Interval:
    """A variable is at least 1; constraints on it alone say more."""
    low, high = 1.0, math.inf
    for c in constraints:
        found = dict(c)
        slope = found.pop(((atom, 1),), 0)
        if not slope or any(monomial for monomial in found):
            continue
        rest = found.get((), 0)
        if slope > 0:
            low = max(low, float(-(rest // slope)))
        else:
            high = min(high, float(rest // -slope))
    return low, high


def _is_nested(p: Polynomial) -> bool:
    return any(atom.operands for monomial, _ in p for atom, _ in monomial)


def _quotient(x: float, y: float) -> float:
    if math.isinf(y):
        return 0.0 if x >= 0 else -1.0 if not math.isinf(x) else -math.inf
    return x if math.isinf(x) else float(x // y)


def _cancelled(p: Polynomial, c: Polynomial) -> Iterator[Polynomial]:
    """What is left of p when multiples of c, which is not negative, are taken off so that a term cancels."""
    coefficients = dict(p)
    for monomial, coefficient in c:
        if monomial == ():
            continue
        found = coefficients.get(monomial, 0)
        if found and found % coefficient == 0 and found // coefficient > 0:
            yield plus(p, c, -(found // coefficient))


def _known(p: Polynomial) -> Iterator[Polynomial]:
    """What is not negative, by what the atoms of p are."""
    for monomial, _ in p:
        for atom, _ in monomial:
            if atom.kind in ("max", "min"):
                for operand in atom.operands:
                    yield plus(of_atom(atom), operand, -1) if atom.kind == "max" else plus(operand, of_atom(atom), -1)
            divisor = as_number(atom.operands[1]) if atom.kind == "floordiv" else None
            if divisor is not None and divisor > 0:  # x = divisor floordiv(x, divisor) + one from 0 to divisor - 1
                rest = plus(atom.operands[0], of_atom(atom), -divisor)
                yield rest
                yield plus(constant(divisor - 1), rest, -1)


def _divisors(p: Polynomial) -> set[int]:
    """The positive numbers by which p has divisions: what is known of these is a multiple."""
    found = (as_number(a.operands[1]) for monomial, _ in p for a, _ in monomial if a.kind == "floordiv")
    return {n for n in found if n is not None and n > 1}


def _extrema(p: Polynomial) -> list[Atom]:
    """The greater or smaller of two in p: it is one of them."""
    return [atom for monomial, _ in p for atom, _ in monomial if atom.kind in ("max", "min")]


def _substituted(p: Polynomial, atom: Atom, x: Polynomial) -> Polynomial:
    """p with a polynomial in the place of an atom."""
    found: Polynomial = ()
    for monomial, coefficient in p:
        term: Polynomial = ((tuple(factor for factor in monomial if factor[0] != atom), coefficient),)
        for _ in range(dict(monomial).get(atom, 0)):
            term = times(term, x)
        found = plus(found, term)
    return found
