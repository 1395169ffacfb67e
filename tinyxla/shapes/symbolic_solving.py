"""The variables of symbolic dimensions, found from the sizes of arrays.

Each dimension of an argument is an equation. They are solved one after the other: one in which a single variable is
unknown, and stands alone in a term of power 1, gives that variable. The others are checked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from tinyxla.errors import ArgumentError, InconclusiveDimensionOperation
from tinyxla.shapes.polynomials import Atom, Polynomial, evaluated, plus, shown, variables
from tinyxla.shapes.symbolic import Scope, is_symbolic


class Equation(NamedTuple):
    """The size of a dimension of an argument: a polynomial."""

    argument: int
    dimension: int
    polynomial: Polynomial


class Definition(NamedTuple):
    """A variable: (the size of `equation` - rest) / coefficient."""

    variable: str
    equation: Equation
    coefficient: int
    rest: Polynomial


class System(NamedTuple):
    """How variables follow from the sizes of arguments: the definitions in order, and the equations that are left."""

    scope: Scope | None
    definitions: tuple[Definition, ...]
    checks: tuple[Equation, ...]

    @property
    def variables(self) -> tuple[str, ...]:
        """The names of the variables, in order."""
        return tuple(d.variable for d in self.definitions)


def system_of(what: str, shapes: Sequence[Sequence[Any]]) -> System:
    """The equations of arguments' dimensions, solved for the variables.

    Raises:
        ArgumentError: a variable does not follow from the sizes, or dimensions are of different scopes.
    """
    equations = [
        Equation(k, d, size.polynomial)
        for k, shape in enumerate(shapes)
        for d, size in enumerate(shape)
        if is_symbolic(size)
    ]
    scopes = {id(size.scope): size.scope for shape in shapes for size in shape if is_symbolic(size)}
    if len(scopes) > 1:
        raise ArgumentError(
            f"{what}: the symbolic dimensions of its arguments are of different scopes; make them by one call of "
            "symbolic_shape, or pass a scope: symbolic_shape(..., scope=scope)."
        )
    scope = next(iter(scopes.values()), None)
    known: set[str] = set()
    definitions: list[Definition] = []
    while (found := next(_solvable(equations, known), None)) is not None:
        equations.remove(found.equation)
        known.add(found.variable)
        definitions.append(found)
    unknown = set().union(*(variables(e.polynomial) for e in equations)) - known
    if unknown:
        given = ", ".join(shown(e.polynomial) for e in equations)
        raise ArgumentError(
            f"{what}: the variable {sorted(unknown)[0]!r} does not follow from the sizes of the arguments, which are "
            f"{given}; let one dimension be the variable alone, or a multiple of it plus what is known."
        )
    return System(scope, tuple(definitions), tuple(equations))


def _solvable(equations: Sequence[Equation], known: set[str]) -> Any:
    """Definitions of unknown variables; those by the simplest equations first."""
    for equation in sorted(equations, key=lambda e: (len(e.polynomial), sum(abs(n) for _, n in e.polynomial))):
        unknown = variables(equation.polynomial) - known
        if len(unknown) != 1:
            continue
        (name,) = unknown
        monomial = ((Atom("variable", name), 1),)
        coefficient = dict(equation.polynomial).get(monomial, 0)
        rest = tuple(term for term in equation.polynomial if term[0] != monomial)
        if coefficient and name not in variables(rest):
            yield Definition(name, equation, coefficient, rest)


def solve(system: System, sizes: Sequence[Sequence[int]], name_of: Any) -> dict[str, int]:
    """The variables for arguments of these sizes.

    Args:
        system: the equations.
        sizes: the shapes of the arguments.
        name_of: how to speak of the argument of a number.

    Raises:
        ArgumentError: the sizes fit no values of the variables that are positive and obey the constraints.
    """
    found: dict[str, int] = {}
    for d in system.definitions:
        size = sizes[d.equation.argument][d.equation.dimension]
        value, left = divmod(size - evaluated(d.rest, found), d.coefficient)
        terms = f"({size} - ({shown(d.rest)}))" if d.rest else f"{size}"
        said = f"{d.variable} = {terms}" + (f" / {d.coefficient}" if d.coefficient != 1 else "")
        if _may_be(lambda left=left: left != 0):
            raise _misfit(
                d.equation, size, name_of, f"{said} leaves a remainder of {left}, which must be 0{_hint(left)}"
            )
        if _may_be(lambda value=value: value < 1):
            raise _misfit(d.equation, size, name_of, f"{said} is {value}, which must be positive{_hint(value)}")
        found[d.variable] = value
    for e in system.checks:
        size, wanted = sizes[e.argument][e.dimension], evaluated(e.polynomial, found)
        if _may_be(lambda size=size, wanted=wanted: size != wanted):
            raise _misfit(e, size, name_of, f"it must be {wanted}, since {_assignments(found)}")
    _check_constraints(system, found)
    return found


def _may_be(condition: Callable[[], bool]) -> bool:
    """Whether a condition on sizes holds, or may hold for some values of their variables."""
    try:
        return condition()
    except InconclusiveDimensionOperation:
        return True


def _hint(size: Any) -> str:
    return "; a constraint of symbolic_shape can say that it is" if is_symbolic(size) else ""


def _misfit(e: Equation, size: int, name_of: Any, why: str) -> ArgumentError:
    return ArgumentError(
        f"{name_of(e.argument)}: dimension {e.dimension} is {size}, which does not fit {shown(e.polynomial)}: {why}."
    )


def _assignments(found: Mapping[str, int]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in found.items())


def constraints_of(system: System) -> list[tuple[str, Polynomial, bool]]:
    """What the scope demands of the variables that are known: texts, polynomials, and whether these must be 0 and not
    just be not negative."""
    if system.scope is None:
        return []
    given = [(c, False) for c in system.scope.constraints]
    for term, p in system.scope.equalities.items():
        given.append((plus(term, p, -1), True))
    known = set(system.variables)
    return [(shown(p), p, exact) for p, exact in given if variables(p) <= known]


def _check_constraints(system: System, found: Mapping[str, int]) -> None:
    for text, p, exact in constraints_of(system):
        value = evaluated(p, found)
        if value < 0 or (exact and value):
            relation = "==" if exact else ">="
            raise ArgumentError(
                f"The sizes of the arguments, with {_assignments(found)}, do not obey the constraint {text} "
                f"{relation} 0."
            )
