"""The stages of a program's compilation as text: its graph, plan, schedule and kernels after each pass."""

from __future__ import annotations

from typing import Any

from tinyxla.compiler.fusion.plan import LoopNest, Plan, Step, producer_of
from tinyxla.compiler.pipeline import compile_program
from tinyxla.compiler.schedule.blocks import Block, walk_steps
from tinyxla.compiler.schedule.describe import map_text
from tinyxla.hlo import Instruction, Module
from tinyxla.loopir.ir.print_python import print_python
from tinyxla.loopir.lower.emit import LoweredKernel
from tinyxla.text import print_module


class Stages(dict[str, str]):
    """Texts by the name of the pass that they come after, in order; the first, "recorded", is the graph as it was
    traced. Passes that change nothing are left out."""

    def __str__(self) -> str:
        return "\n\n".join(f"== {name}\n{text}" for name, text in self.items())


def stages(module: Module) -> Stages:
    """Compile a module up to its kernels, and keep what each pass made of it."""
    found = Stages(recorded=print_module(module).rstrip())
    latest: dict[type, str] = {}

    def note(name: str, state: Any) -> None:
        text = _text(module.name, state)
        is_new = name == "lowering" or latest.get(type(state)) != text
        latest[type(state)] = text
        if is_new:
            kernels = isinstance(state, LoweredKernel) and name in found  # which are shown one after the other
            found[name] = f"{found[name]}\n\n{text}" if kernels else text

    compile_program(module.entry, (), lambda *_: None, note)
    return found


def _text(name: str, state: Any) -> str:
    if isinstance(state, Plan):
        return "\n".join(map(_planned, state.steps))
    if isinstance(state, Block):
        return "\n".join("  " * depth + _scheduled(step) for step, _, depth, _ in walk_steps(state))
    if isinstance(state, LoweredKernel):
        return f"# {state.extent} by {state.grain}\n{print_python(state.kernel).rstrip()}"
    return print_module(Module(name, state)).rstrip()


def _planned(step: Step) -> str:
    """A step of a plan: a loop nest with its outer sizes, what it computes and what it reads; or an instruction."""
    if not isinstance(step, LoopNest):
        return f"{type(step).__name__}: {_shown(step.root)}"
    reads = ", ".join(_read(x, step) for x in step.reads) or "nothing"
    return f"{step.kind} over {list(step.outer)}: {', '.join(map(_shown, step.roots))} of {reads}"


def _read(x: Instruction, nest: LoopNest) -> str:
    """An array that a nest reads, with its access maps."""
    maps = dict.fromkeys(map_text(access) for reads in nest.access_maps.values() for access in reads.get(x, ()))
    return f"{_shown(x)} at {' and '.join(maps)}" if maps else _shown(x)


def _scheduled(step: Any) -> str:
    reads, writes = (", ".join(map(_shown, side)) for side in (step.reads, step.writes))
    work = step.work
    kind = work.kernel.name if isinstance(work, LoweredKernel) else type(work).__name__
    return f"{kind}: {reads} -> {writes}"


def _shown(x: Any) -> str:
    return f"{producer_of(x).op.name} {x.shape}" if hasattr(x, "op") else str(x)
