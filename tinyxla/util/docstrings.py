"""Docstrings that are put together: of functions that are made of tables, whose rows say what differs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def docstring(
    text: str, arguments: Mapping[str, str], returns: str, raises: Mapping[str, str], example: Sequence[str] = ()
) -> str:
    """The text, and the sections of arguments, result, errors and example (its lines) that are there."""
    sections = [
        ("Args", [f"{name}: {what}" for name, what in arguments.items()]),
        ("Returns", [returns]),
        ("Raises", [f"{name}: {when}" for name, when in raises.items()]),
        ("Example", list(example)),
    ]
    parts = [f"{title}:\n    " + "\n".join(lines).replace("\n", "\n    ") for title, lines in sections if lines]
    return "\n\n".join([text, *parts])


def example_of(call: str, shown: str, *before: str) -> list[str]:
    """The lines of an example: imports that `call` uses, other lines before it, the call and what is printed."""
    imports = ["import numpy as np"] if "np." in call else []
    return [*(f">>> {line}" for line in (*imports, *before, call)), shown]
