"""Manual axis types of loops and branches: what a loop carries varies among devices along the same axes after a step as
before it, and so do the results of all branches. JAX refuses others; `tinyxla.lax` makes them vary.

Source: the documentation of `jax.shard_map`, section "Tracking how values vary over manual mesh axes".
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

from tinyxla.errors import ResultTypeError
from tinyxla.jax.jaxprs.avals import get_aval
from tinyxla.tracing import pytrees
from tinyxla.tracing.array import Array
from tinyxla.tracing.core import state, varying_axes
from tinyxla.transforms.manual import kinds_of_axes
from tinyxla.util.wrapping import wraps

Function = Callable[..., Any]
_SEE = "See https://docs.jax.dev/en/latest/notebooks/shard_map.html#scan-vma for more information."


class _Leaf(NamedTuple):
    """A leaf: its path, its type as JAX writes it, and the axes along which it varies, if they are known."""

    path: str
    type: str
    axes: frozenset[Hashable]
    is_known: bool


def _leaves(tree: Any) -> list[_Leaf]:
    pairs = zip(pytrees.leaf_names(tree), pytrees.leaves(tree), strict=True)
    return [
        _Leaf(name, str(get_aval(x)).lstrip("~"), *_axes_of(x) if isinstance(x, Array) else (frozenset(), True))
        for name, x in pairs
    ]


def _axes_of(x: Array) -> tuple[frozenset[Hashable], bool]:
    return kinds_of_axes(x)[0], varying_axes(x) is not None


def _differing(one: Sequence[_Leaf], other: Sequence[_Leaf]) -> list[tuple[_Leaf, _Leaf]]:
    """The leaves that vary along other axes; none if the structures differ, which others check."""
    if len(one) != len(other):
        return []
    return [(x, y) for x, y in zip(one, other, strict=True) if x.is_known and y.is_known and x.axes != y.axes]


def _listed(lines: Sequence[str], head: str = "") -> str:
    if len(lines) == 1:
        return f"{head}{lines[0][:1].upper() if not head else lines[0][:1]}{lines[0][1:]}."
    before = f"{head.rstrip()}:\n" if head else ""
    return before + ";\n".join(f"  * {line}" for line in lines) + "."


def _fix(axes: frozenset[Hashable], where: str) -> str:
    return f"applying `jax.lax.pcast(..., {tuple(sorted(axes, key=str))}, to='varying')`{where}"


def _refused(own: str, said: str) -> ResultTypeError:
    error = ResultTypeError(own)
    error.in_jax = said  # type: ignore[attr-defined]
    return error


def keeping_axes(what: str, step: Function, position: int = 0) -> Function:
    """A loop's step that must keep the axes along which what is carried varies; its argument at a position is that.

    Args:
        what: the name of the loop, such as "scan", whose step gives a pair.
        step: the step.
        position: the position of what is carried.
    """
    if state.manual is None or not callable(step):
        return step

    @wraps(step)
    def checked(*args: Any) -> Any:
        found = step(*args)
        is_pair = isinstance(found, tuple | list) and len(found) == 2
        after = found[0] if what == "scan" and is_pair else found
        differing = _differing(_leaves(args[position]), _leaves(after))
        if differing:
            raise _carry_error(what, _parameter(step, position), differing)
        return found

    return checked


def _parameter(step: Function, position: int) -> str:
    try:
        return [*inspect.signature(step).parameters][position]
    except (TypeError, ValueError, IndexError):
        return ""


def _carry_error(what: str, name: str, differing: Sequence[tuple[_Leaf, _Leaf]]) -> ResultTypeError:
    loop = "scan" if what == "fori_loop" else what
    name = "loop_carry[1]" if what == "fori_loop" else name
    is_whole = len(differing) == 1 and not differing[0][0].path and what != "fori_loop"
    components = [f"the input carry {'' if is_whole else 'component '}{name}{x.path}" for x, _ in differing]
    lines = [
        f"{component} has type {x.type} but the corresponding output carry component has type {y.type}, so the manual "
        "axis types do not match"
        for component, (x, y) in zip(components, differing, strict=True)
    ]
    fixes = [
        _fix(y.axes - x.axes, f" to the initial carry value corresponding to {component}")
        for component, (x, y) in zip(components, differing, strict=True)
        if y.axes - x.axes
    ]
    fix = f"\n\n{_listed(fixes, 'This might be fixed by ')}\n{_SEE}" if fixes else ""
    x, y = differing[0]
    return _refused(
        f"lax.{what}: what is carried varies otherwise after a step, {y.type}, than before it, {x.type}; use lax.pcast "
        "for what is carried at the start.",
        f"{loop} body function carry input and carry output must have equal types, but they differ:\n\n"
        f"{_listed(lines)}{fix}\n\nRevise the function so that all output types match the corresponding input types.",
    )


def alike_branches(what: str, branches: Sequence[Function]) -> list[Function]:
    """Branches whose results must vary along the same axes.

    Args:
        what: "cond" or "switch".
        branches: functions, of a `cond` that of a true predicate first.
    """
    if state.manual is None or not all(map(callable, branches)):
        return [*branches]
    found: dict[int, list[_Leaf]] = {}
    made: dict[int, Function] = {}

    def checked(number: int, branch: Function) -> Function:
        @wraps(branch)
        def run(*args: Any, **kwargs: Any) -> Any:
            result = branch(*args, **kwargs)
            found[number] = _leaves(result)
            first = min(found)
            differing = _differing(found[first], found[number])
            if differing:
                raise _branch_error(what, number, differing)
            return result

        return run

    return [made.setdefault(id(branch), checked(k, branch)) for k, branch in enumerate(branches)]


def _branch_error(what: str, number: int, differing: Sequence[tuple[_Leaf, _Leaf]]) -> ResultTypeError:
    names = ("true_fun", "false_fun") if what == "cond" else ("branch 0", f"branch{number}")
    lines: list[str] = []
    fixes: list[str] = []
    for x, y in differing:
        place = f" at path {x.path}" if x.path else ""
        lines.append(
            f"the output of {names[0]}{place} has type {x.type} but the corresponding output of {names[1]} has type "
            f"{y.type}, so the manual axis types do not match"
        )
        sides = ((y.axes - x.axes, names[0]), (x.axes - y.axes, names[1]))
        fixes += [_fix(axes, f" to the output of {name}{place}") for axes, name in sides if axes]
    x, y = differing[0]
    return _refused(
        f"lax.{what}: the results of all functions must vary along the same axes, but one is {x.type} and another "
        f"{y.type}; use lax.pcast.",
        f"{what} branches must have equal output types but they differ.\n\n{_listed(lines)}\n\n"
        f"{_listed(fixes, 'This might be fixed by ')}\n{_SEE}",
    )
