"""The text of jaxprs."""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count, product
from typing import Any

import numpy as np

from tinyxla.hlo import Computation
from tinyxla.jax.jaxprs.avals import short_name
from tinyxla.jax.tracing.source_info import summarize
from tinyxla.tracing.meshes import AbstractMesh

_WIDTH = 80


def print_jaxpr(jaxpr: Any, *, source_info: bool = False, name_stack: bool = False, **options: Any) -> str:
    """`{ lambda ; a:f32[]. let b:f32[] = sin a in (b,) }`: in one line where it fits, else an equation in each.
    Functions that are called more than once stand in front. Comments behind equations have the user's lines
    (`source_info`) and the names of scopes (`name_stack`); options of colours and widths say nothing here."""
    names = _Names()
    comments = [(lambda info: summarize(info) if info.file else "")] if source_info else []
    names.comments = [*comments, *([lambda info: f"[{info.name_stack}]"] if name_stack else [])]
    called = list(_called(jaxpr))
    calls = Counter(_key(x) for _, x in called)
    shared = {_key(x): (name, x) for name, x in called if calls[_key(x)] > 1}
    lines: list[str] = []
    for key, (wanted, inner) in shared.items():
        text = _jaxpr(inner, names)
        name = names.of_function(key, wanted.strip("<>"))
        lines.append(f"let {name} = {text} in")
    return "\n".join([*lines, _jaxpr(jaxpr, names)])


def _key(jaxpr: Any) -> int:
    """A number that is the same for jaxprs of one traced function."""
    made = getattr(jaxpr, "computation", None)
    return id(jaxpr if made is None else made)


def _called(jaxpr: Any) -> Iterator[tuple[str, Any]]:
    """The names and jaxprs of compiled functions that a jaxpr calls, the inner ones first."""
    for eqn in jaxpr.eqns:
        for value in eqn.params.values():
            for inner in value if isinstance(value, tuple) else (value,):
                found = getattr(inner, "jaxpr", inner)
                if hasattr(found, "eqns"):
                    yield from _called(found)
                    if eqn.primitive.name == "jit":
                        yield eqn.params["name"], found


def print_equation(eqn: Any) -> str:
    """`b:f32[] = sin a`."""
    return _equation(eqn, _Names())


class _Names:
    """Variables are called a, b, ..., z, ba, bb, ... in the order in which they appear."""

    def __init__(self) -> None:
        self._names: dict[Any, str] = {}
        self._fresh = _letters()
        self._functions: dict[int, str] = {}  # by the numbers of jaxprs
        self.comments: list[Callable[[Any], str]] = []  # on the `source_info` of equations

    def of_function(self, key: int, name: str) -> str:
        """The name of a function that is called more than once."""
        taken = set(self._functions.values())
        self._functions[key] = next(x for k in count() if (x := f"{name}{k or ''}") not in taken)
        return self._functions[key]

    def function(self, jaxpr: Any) -> str | None:
        """The name of a jaxpr that stands in front."""
        return self._functions.get(_key(jaxpr))

    def share(self, variables: Iterable[Any], others: Iterable[Any]) -> None:
        """Let variables of a function have the names of what it is called with, and of its results."""
        taken: set[str] = set()
        for var, other in zip(variables, others, strict=True):
            name = self._names.get(other) if not hasattr(other, "val") else None
            if name is not None and name not in taken and not hasattr(var, "val"):
                taken.add(self._names.setdefault(var, name))

    def __call__(self, var: Any) -> str:
        if type(var).__name__ == "DropVar":
            return "_"
        if var not in self._names:
            self._names[var] = next(self._fresh)
        return self._names[var]


def _letters() -> Iterator[str]:
    yield from string.ascii_lowercase
    for length in count(1):
        for first, *rest in product(string.ascii_lowercase, repeat=length + 1):
            if first != "a":
                yield "".join([first, *rest])


def _typed(var: Any, names: _Names) -> str:
    return f"{names(var)}:{var.aval.str_short(short_dtypes=True)}"


def _atom(atom: Any, names: _Names) -> str:
    if not hasattr(atom, "val"):
        return names(atom)
    value = np.asarray(atom.val).item() if np.ndim(atom.val) == 0 else atom.val
    return f"{value}:{short_name(atom.aval.dtype)}[]"


def _jaxpr(jaxpr: Any, names: _Names) -> str:
    constants = " ".join(_typed(v, names) for v in jaxpr.constvars)
    inputs = " ".join(_typed(v, names) for v in jaxpr.invars)
    head = f"{{ lambda {constants}; {inputs}. let" if constants else f"{{ lambda ; {inputs}. let"
    equations = [_equation(eqn, names) for eqn in jaxpr.eqns]
    outputs = [_atom(v, names) for v in jaxpr.outvars]
    result = f"({', '.join(outputs)}{',' * (len(outputs) == 1)})"
    line = " ".join([head, "; ".join(equations), f"in {result} }}"])
    if "\n" not in line and len(line) <= _WIDTH and not names.comments:
        return line
    if names.comments:
        equations = _commented(equations, jaxpr.eqns, names.comments)
    body = "".join(f"\n{_indented(text, 4)}" for text in equations)
    return f"{head}{body}\n  in {result} }}"


def _commented(equations: Sequence[str], eqns: Sequence[Any], comments: Sequence[Callable[[Any], str]]) -> list[str]:
    """The texts of equations with a comment behind the first line of each."""
    parts = [text.partition("\n") for text in equations]
    width = max((len(first) for first, _, _ in parts), default=0)
    said = [" ".join(filter(None, (c(eqn.source_info) for c in comments if eqn.source_info))) for eqn in eqns]
    pairs = zip(parts, said, strict=True)
    return [f"{first:{width}} # {comment}{end}{others}" for (first, end, others), comment in pairs]


def _indented(text: str, spaces: int) -> str:
    return "\n".join(" " * spaces + line for line in text.split("\n"))


# Parameters that are not shown: of all primitives, and of some, where they have the value that says nothing.
_SILENT: dict[str, Any] = {"accuracy": None}
_SILENT_OF: dict[str, dict[str, Any]] = {
    "broadcast_in_dim": {"broadcast_dimensions": (), "sharding": None},
    "convert_element_type": {"sharding": None},
    "dot_general": {"precision": None, "out_sharding": None},
    "mul": {"out_dtype": None},
    "jit": {"inline": False, "keep_unused": False},
}


def _shown_parameters(eqn: Any) -> dict[str, Any]:
    silent = _SILENT | _SILENT_OF.get(eqn.primitive.name, {})
    shown = {name: x for name, x in sorted(eqn.params.items()) if name not in silent or x != silent[name]}
    if eqn.primitive.name == "broadcast_in_dim":
        shown.pop("shape", None)  # that of the result
    if eqn.primitive.name == "jit":
        shown = {"name": shown.pop("name"), **shown}
        if not any(shown.get("donated_invars", ())):
            shown.pop("donated_invars", None)
    if eqn.primitive.name in _RULES_OF:
        shown.pop("num_consts")
        shown = {"name": eqn.params[_RULES_OF[eqn.primitive.name][0]].name, **_with_rules(eqn, shown)}
    if eqn.primitive.name == "dot_general":
        shown["dimension_numbers"] = tuple(tuple(map(list, pair)) for pair in shown["dimension_numbers"])
    return shown


# Of primitives whose derivatives are the user's: the parameter that has the rule, and the names of its functions.
_RULES_OF = {"custom_jvp_call": ("jvp_jaxpr_fun", "jvp"), "custom_vjp_call": ("fwd_jaxpr_thunk", "fwd", "bwd")}


def _with_rules(eqn: Any, shown: dict[str, Any]) -> dict[str, Any]:
    """Parameters with the user's functions in the place of the rule."""
    parameter, *names = _RULES_OF[eqn.primitive.name]
    shown.pop(parameter)
    functions = eqn.params[parameter].looks_at
    return dict(sorted({**shown, **dict(zip(names, functions, strict=False))}.items()))


def _equation(eqn: Any, names: _Names) -> str:
    operands = " ".join(_atom(v, names) for v in eqn.invars)
    results = " ".join(_typed(v, names) for v in eqn.outvars)
    if eqn.primitive.name == "jit" and names.function(eqn.params["jaxpr"].jaxpr) is None:
        called = eqn.params["jaxpr"].jaxpr
        names.share(called.invars, eqn.invars)
        names.share(called.outvars, eqn.outvars)
    shown = [f"{name}={_parameter(value, names)}" for name, value in _shown_parameters(eqn).items()]
    line = f"[{' '.join(shown)}]" if shown else ""
    if "\n" in line or len(f"    {results} = {eqn.primitive}{line}") > _WIDTH:
        line = "[\n" + "\n".join(_indented(x, 2) for x in shown) + "\n]"
    return f"{results} = {eqn.primitive}{line} {operands}"


def _parameter(value: Any, names: _Names) -> str:
    jaxpr = getattr(value, "jaxpr", value)
    if hasattr(jaxpr, "eqns"):
        return names.function(jaxpr) or _jaxpr(jaxpr, names)
    if isinstance(value, tuple) and any(hasattr(getattr(x, "jaxpr", x), "eqns") for x in value):
        return "(\n" + "".join(_indented(_parameter(x, names), 2) + "\n" for x in value) + ")"
    if isinstance(value, np.dtype):
        return value.name
    if callable(value) and not isinstance(value, AbstractMesh):
        return getattr(value, "__name__", type(value).__name__)
    return f"<computation {value.name}>" if isinstance(value, Computation) else str(value)
