"""The text of symbolic dimensions and constraints: `2*b + 1`, `floordiv(b, 2)`, `a >= b`.

Grammar: a sum of terms, each a product of factors; a factor is an integer, a variable, `floordiv`, `mod`, `max` or
`min` of two sums, a sum in parentheses, or one of these to the power `^n`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from tinyxla.errors import ArgumentError
from tinyxla.shapes.polynomials import OPERATIONS, Atom, Polynomial, constant, divided, of_atom, plus, shown, times
from tinyxla.shapes.symbolic import Scope, is_symbolic, made

_TOKEN = re.compile(r"\s*(\d+|[A-Za-z_]\w*|\.\.\.|>=|<=|==|[-+*^(),_])")
_DEEPEST = 50
_GREATEST_POWER = 100
_MAX_DIGITS = 18


class DimensionParser:
    """Reads a text from left to right; `what` names it in errors."""

    def __init__(self, text: str, scope: Scope, what: str) -> None:
        self.text = text
        self.scope = scope
        self.what = what
        self.tokens: list[str] = []
        self._depth = 0
        at = 0
        while at < len(text.rstrip()):
            found = _TOKEN.match(text, at)
            if found is None:
                raise self.error(f"there is {text[at:].strip()[:1]!r}, which is no part of one")
            self.tokens.append(found[1])
            at = found.end()
        self.tokens.reverse()

    def error(self, what: str) -> ArgumentError:
        return ArgumentError(f"{self.what} {self.text!r} is not a list of dimensions such as 'b, 2*c + 1, 4': {what}.")

    @property
    def next(self) -> str:
        return self.tokens[-1] if self.tokens else ""

    def take(self, token: str = "") -> str:
        """The next token, which must be the one given."""
        if not self.tokens or (token and self.next != token):
            raise self.error(f"{token or 'a dimension'!r} is wanted, but there is {self.next or 'the end'!r}")
        return self.tokens.pop()

    def sum(self) -> Polynomial:
        """A sum of terms."""
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self.error(f"more than {_DEEPEST} parentheses are nested")
        negative = self.next == "-" and self.take() == "-"
        found = self._term()
        if negative:
            found = plus((), found, -1)
        while self.next in ("+", "-"):
            found = plus(found, *self._signed())
        self._depth -= 1
        return self.scope.normal(found)

    def _signed(self) -> tuple[Polynomial, int]:
        sign = -1 if self.take() == "-" else 1
        return self._term(), sign

    def _term(self) -> Polynomial:
        found = self._factor()
        while self.next == "*":
            self.take()
            found = times(found, self._factor())
        return found

    def _factor(self) -> Polynomial:
        negative = self.next == "-" and self.take() == "-"
        found = self._atom()
        if self.next == "^":
            self.take()
            power = self.take()
            if not power.isdigit() or len(power) > _MAX_DIGITS or int(power) > _GREATEST_POWER:
                raise self.error(f"the power {power!r} is not an integer up to {_GREATEST_POWER}")
            base, found = found, constant(1)
            for _ in range(int(power)):
                found = times(found, base)
        return plus((), found, -1) if negative else found

    def _atom(self) -> Polynomial:
        token = self.take()
        if token.isdigit():
            if len(token) > _MAX_DIGITS:
                raise self.error(f"a number has more than {_MAX_DIGITS} digits")
            return constant(int(token))
        if token == "(":
            found = self.sum()
            self.take(")")
            return found
        if not (token[0].isalpha() or (token[0] == "_" and len(token) > 1)):
            raise self.error(f"a dimension is wanted, but there is {token!r}")
        if self.next != "(":
            return of_atom(Atom("variable", token))
        if token not in OPERATIONS:
            raise self.error(f"there is no function {token!r}, but {', '.join(OPERATIONS)}")
        self.take("(")
        p = self.sum()
        self.take(",")
        q = self.sum()
        self.take(")")
        if token in ("floordiv", "mod") and not q:
            raise self.error(f"{token} divides by zero")
        return self.scope.operation(token, p, q)


def parse_dimensions(text: str, scope: Scope, like: Sequence[Any] | None, what: str) -> tuple[Any, ...]:
    """The dimensions that a text says. `_` stands for that of `like` at its position, and a final `...` for the others
    of `like`."""
    parser = DimensionParser(_without_parentheses(text), scope, what)
    found: list[Any] = []
    while parser.next:
        if parser.next == "...":
            parser.take()
            if parser.tokens:
                raise parser.error("'...' must come last")
            if like is None:
                raise parser.error("'...' needs the shape of an argument")
            found.extend(_known(parser, x) for x in like[len(found) :])
            break
        if parser.next == "_":
            parser.take()
            if like is None or len(found) >= len(like):
                raise parser.error("'_' needs the shape of an argument")
            found.append(_known(parser, like[len(found)]))
        else:
            found.append(made(parser.sum(), scope))
        if parser.next:
            parser.take(",")
    if like is not None and len(found) != len(like):
        raise parser.error(f"it has {len(found)} dimensions, but the argument has {len(like)}")
    _check_matches(parser, found, like)
    return tuple(found)


def _without_parentheses(text: str) -> str:
    """`(b, 4)` as `b, 4`."""
    text = text.strip()
    if not (text.startswith("(") and text.endswith(")")):
        return text
    depth = 0
    for k, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if depth == 0 and k < len(text) - 1:
            return text
    return text[1:-1]


def _known(parser: DimensionParser, x: Any) -> Any:
    if x is None:
        raise parser.error("a dimension is left open that the argument does not know")
    return x


def _check_matches(parser: DimensionParser, found: Sequence[Any], like: Sequence[Any] | None) -> None:
    for k, (given, size) in enumerate(zip(found, like or (), strict=False)):
        if not is_symbolic(given) and size is not None and not is_symbolic(size) and given != size:
            raise parser.error(f"dimension {k} is {given}, but the argument has {size} there")


def parse_constraint(text: Any, scope: Scope) -> None:
    """Add a constraint `a >= b`, `a <= b` or `a == b` to a scope. Of an equality the left side is a product of
    variables, operations and positive numbers, which is from here on replaced by the right side."""
    if not isinstance(text, str):
        raise ArgumentError(f"A constraint is a string such as 'b >= 8', but got {text!r}.")
    parser = DimensionParser(text, scope, "The constraint")
    left = parser.sum()
    relation = parser.next
    if relation not in (">=", "<=", "=="):
        raise ArgumentError(f"The constraint {text!r} is not of the form 'a >= b', 'a <= b' or 'a == b'.")
    parser.take()
    right = parser.sum()
    if parser.next:
        raise parser.error(f"there is {parser.next!r} after its end")
    if relation == "==":
        _add_equality(text, left, right, scope)
    else:
        scope.add_constraint(plus(left, right, -1) if relation == ">=" else plus(right, left, -1), text)


def _add_equality(text: str, left: Polynomial, right: Polynomial, scope: Scope) -> None:
    if len(left) != 1 or not left[0][0] or left[0][1] < 1:
        raise ArgumentError(
            f"The constraint {text!r}: the left side of an equality must be a product of variables, operations and "
            "positive numbers, such as 'a * b == c' or 'mod(b, 8) == 0'."
        )
    factors = left[0][0]
    is_atom = len(factors) == 1 and factors[0][1] == left[0][1] == 1
    if any(divided((term,), left)[0] for term in right) or (is_atom and _holds(factors[0][0], right)):
        raise ArgumentError(f"The constraint {text!r}: {shown(left)} is equal to something that it is a part of.")
    scope.add_equality(left, right, text)


def _holds(atom: Atom, p: Polynomial) -> bool:
    return any(a == atom or any(_holds(atom, q) for q in a.operands) for monomial, _ in p for a, _ in monomial)
