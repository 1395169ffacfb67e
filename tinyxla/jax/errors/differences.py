"""What JAX says of differences between what a loop carries at the start and later, or between results of branches."""

from __future__ import annotations

from typing import Any

from tinyxla.lax.loops.control_flow import Differences
from tinyxla.shapes import Shape


def difference_words(found: Differences) -> str:
    """The places that differ, as JAX describes them: structures or types."""
    return _of_branches(found) if found.what in ("cond", "switch") else _of_carry(found)


def _of_carry(found: Differences) -> str:
    name = "scan" if found.what == "fori_loop" else found.what
    typed = isinstance(found.places[0][1], Shape)
    lines: list[str] = []
    for path, one, other in found.places:
        component = f"the input carry component {found.argument}{path}" if path else f"the input carry {found.argument}"
        if typed:
            lines.append(
                f"{component} has type {_type(one)} but the corresponding output carry component has type "
                f"{_type(other)}, so {_mismatch(one, other)}"
            )
        else:
            first, second, reason = _things(one, other)
            lines.append(
                f"{component} is a {first} but the corresponding component of the carry output is a {second}, so "
                f"{reason}"
            )
    wanted = "equal types" if typed else "the same pytree structure"
    head = f"{name} body function carry input and carry output must have {wanted}, but they differ:"
    return f"{head}\n\n{_listed(lines)}"


def _of_branches(found: Differences) -> str:
    names = ("true_fun", "false_fun") if found.what == "cond" else ("branch 0", f"branch{found.argument}")
    lines: list[str] = []
    for path, one, other in found.places:
        place = f" at path {path}" if path else ""
        if isinstance(one, Shape):
            lines.append(
                f"The output of {names[0]}{place} has type {_type(one)} but the corresponding output of {names[1]} has "
                f"type {_type(other)}, so {_mismatch(one, other)}"
            )
        else:
            first, second, reason = _things(one, other)
            lines.append(
                f"{names[0]} output{place} is a {first} but {names[1]} output{place} is a {second}, so {reason}"
            )
    if isinstance(found.places[0][1], Shape):
        return f"{found.what} branches must have equal output types but they differ.\n\n{_listed(lines)}"
    return f"{found.what} branch outputs must have the same pytree structure, but they differ:\n\n{'; '.join(lines)}."


def _listed(lines: list[str]) -> str:
    if len(lines) == 1:
        return f"{lines[0][:1].upper()}{lines[0][1:]}."
    return ";\n".join(f"  * {line}" for line in lines) + "."


def _type(x: Any) -> str:
    return f"{x.dtype.name}[{','.join(map(str, x.dimensions))}]"


def _mismatch(one: Any, other: Any) -> str:
    reasons = ["the dtypes do not match"] * (one.dtype != other.dtype)
    reasons += ["the shapes do not match"] * (one.dimensions != other.dimensions)
    return ", and ".join(reasons)


def _things(one: Any, other: Any) -> tuple[str, str, str]:
    """What two structures are, and how they differ."""
    if one.is_leaf() or other.is_leaf() or one.type is not other.type:
        first, second = ("pytree leaf" if x.is_leaf() else repr(x.type) for x in (one, other))
        return first, second, "their Python types differ"
    counts = one.num_children, other.num_children
    if counts[0] == counts[1]:
        first, second = (f"{x.type!r} with pytree metadata {tuple(x.entries())!r}" for x in (one, other))
        return first, second, "the pytree node metadata does not match"
    if one.type in (tuple, list):
        first, second = (f"{x.type.__name__} of length {n}" for x, n in zip((one, other), counts, strict=True))
        return first, second, "the lengths do not match"
    first, second = (f"{one.type!r} with {n} child{'' if n == 1 else 'ren'}" for n in counts)
    return first, second, "the numbers of children do not match"
