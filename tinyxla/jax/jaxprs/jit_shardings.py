"""Shardings of the arguments and results of compiled functions as parameters of their equations, as JAX has them.

Such a sharding is recorded as a constraint of what the call takes or gives, and as one inside of the function.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from tinyxla.jax.jaxprs.jaxpr import Atom, ClosedJaxpr, JaxprEqn, Var


def with_jit_shardings(equations: Sequence[JaxprEqn], outputs: Sequence[Atom]) -> list[JaxprEqn]:
    """Equations in which constraints both around a `jit` and inside of it are its `in_shardings` and
    `out_shardings`."""
    if not any(map(_is_constraint, equations)) or not any(map(_is_jit, equations)):
        return list(equations)
    scope, dropped = _Scope(equations, outputs), set[int]()
    found = [_folded(eqn, scope, dropped) if _is_jit(eqn) else eqn for eqn in equations]
    return [eqn for eqn in found if id(eqn) not in dropped]


def _is_constraint(eqn: JaxprEqn | None) -> bool:
    return eqn is not None and eqn.primitive.name == "sharding_constraint"


def _is_jit(eqn: JaxprEqn) -> bool:
    return eqn.primitive.name == "jit"


class _Scope:
    """By which equation of a program a value is made, and which ones use it."""

    def __init__(self, equations: Iterable[JaxprEqn], outputs: Sequence[Atom]) -> None:
        self._makers: dict[Var, JaxprEqn] = {}
        self._users: dict[Var, JaxprEqn] = {}
        self._uses: Counter[Var] = Counter(v for v in outputs if isinstance(v, Var))
        for eqn in equations:
            self._makers.update((v, eqn) for v in eqn.outvars)
            self._users.update((v, eqn) for v in eqn.invars if isinstance(v, Var))
            self._uses.update(v for v in eqn.invars if isinstance(v, Var))

    def constraint_of(self, v: Atom) -> JaxprEqn | None:
        """The constraint whose result a value is, which is used once."""
        maker = self._makers.get(v) if isinstance(v, Var) and self._uses[v] == 1 else None
        return maker if _is_constraint(maker) else None

    def constraint_on(self, v: Atom) -> JaxprEqn | None:
        """The constraint that alone uses a value."""
        user = self._users.get(v) if isinstance(v, Var) and self._uses[v] == 1 else None
        return user if _is_constraint(user) else None


def _is_same(one: JaxprEqn | None, other: JaxprEqn | None) -> bool:
    return one is not None and other is not None and one.params == other.params


def _folded(eqn: JaxprEqn, scope: _Scope, dropped: set[int]) -> JaxprEqn:
    """A `jit` with its shardings; the constraints around it that these stand for are added to `dropped`."""
    closed: ClosedJaxpr = eqn.params["jaxpr"]
    called = closed.jaxpr
    own, inside = _Scope(called.eqns, called.outvars), set[int]()
    shardings: dict[str, list[Any]] = {
        "in_shardings": [None] * len(eqn.invars),
        "out_shardings": [None] * len(eqn.outvars),
    }
    invars, outvars = list(eqn.invars), list(eqn.outvars)
    parameters, results = list(called.invars), list(called.outvars)
    for k, (given, parameter) in enumerate(zip(eqn.invars, called.invars, strict=True)):
        around, first = scope.constraint_of(given), own.constraint_on(parameter)
        if around is not None and first is not None and _is_same(around, first):
            invars[k], parameters[k] = around.invars[0], first.outvars[0]
            shardings["in_shardings"][k] = around.params["sharding"]
            dropped.add(id(around))
            inside.add(id(first))
    for k, (result, output) in enumerate(zip(eqn.outvars, called.outvars, strict=True)):
        around, last = scope.constraint_on(result), own.constraint_of(output)
        if around is not None and last is not None and _is_same(around, last) and id(last) not in inside:
            outvars[k], results[k] = around.outvars[0], last.invars[0]
            shardings["out_shardings"][k] = around.params["sharding"]
            dropped.add(id(around))
            inside.add(id(last))
    if not inside:
        return eqn
    left = [e for e in called.eqns if id(e) not in inside]
    inner = called.replace(invars=parameters, outvars=results, eqns=left)
    params = {**eqn.params, **{name: tuple(x) for name, x in shardings.items()}, "jaxpr": closed.replace(jaxpr=inner)}
    return eqn.replace(invars=invars, outvars=outvars, params=params)
