"""Modules in XLA's HLO text form."""

from __future__ import annotations

from tinyxla.hlo import Module


def print_module(module: Module) -> str:
    """The text of a module."""
    lines = [f"HloModule {module.name}"]
    for computation in module.computations():
        for x in computation.instructions:
            mark = "ROOT " if x is computation.root else ""
            number = x.attributes[0] if x.op.name == "parameter" else ""
            lines.append(f"  {mark}{x.shape.text()} {x.op.name}({number})")
    return "\n".join(lines) + "\n"
