"""Passes can be switched off one by one, and each stage can be looked at."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tinyxla as tx
import tinyxla.numpy as tnp
from tinyxla import lax
from tinyxla.compiler import pipeline
from tinyxla.compiler.fusion.plan import Plan
from tinyxla.compiler.schedule.blocks import Block, walk_steps
from tinyxla.errors import AttributeValueError
from tinyxla.hlo import Computation, Module
from tinyxla.hlo.verifier import verify
from tinyxla.loopir.lower.emit import LoweredKernel
from tinyxla.tracing.config import setting

ALL = (*pipeline.GRAPH, *pipeline.PLAN, *pipeline.SCHEDULE, *pipeline.LOOP_IR, *pipeline.MACHINE)
OPTIONAL = [x.name for x in ALL if not x.is_required]
X = np.sin(np.arange(48, dtype=np.float32)).reshape(6, 8)
W = np.cos(np.arange(64, dtype=np.float32)).reshape(8, 8)


def step(carry: Any, row: Any) -> tuple[Any, Any]:
    carry = tnp.tanh(carry @ W + row)
    return carry, carry * 2


def updated(x: Any) -> Any:
    return lax.fori_loop(0, 5, lambda i, y: y.at[i].set(y[i] + y.sum()), x)


PROGRAMS = {
    "softmax of a product": lambda x: tx.nn.softmax(x @ W, axis=-1),
    "gradient of a scan": tx.grad(lambda x: (lax.scan(step, x[0], x)[1] ** 2).sum()),
    "updates in a loop": updated,
    "transposes": lambda x: ((x.T + 1) * (x * 0 + x).T).T + x.sum(0) - x.sum(0),
    "branches": lambda x: lax.cond(x.sum() > 0, tnp.sin, lambda y: y @ W, x),
    "mapped loop": tx.vmap(lambda r: lax.while_loop(lambda y: (y**2).sum() < 50, lambda y: y * 1.5 + 0.1, r)),
    "convolution and windows": lambda x: lax.reduce_window(
        tnp.convolve(x.ravel(), W[0]), -np.inf, lax.max, (3,), (2,), "SAME"
    ),
    "sort and cumulative sum": lambda x: tnp.sort(x, 0) + tnp.cumsum(x, 1),
}


@pytest.mark.parametrize("name", OPTIONAL)
def test_programs_are_right_without_a_pass(name: str) -> None:
    for program in PROGRAMS.values():
        with tx.disable_jit():
            expected = np.asarray(program(X))
        with setting("disabled_passes", (name,)):
            found = tx.jit(lambda x, program=program: program(x))(X)
        np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-4)


def test_a_pass_that_is_switched_off_does_not_run() -> None:
    lowered = tx.jit(lambda x: tnp.sin(x) + tnp.sin(x * 1)).lower(X)
    for name in ("cse", "algebraic-simplifier"):
        with setting("disabled_passes", (name,)):
            assert name not in lowered.stages()


def test_loops_are_left_to_llvm() -> None:
    lowered = tx.jit(lambda x: tnp.exp(x) * 3).lower(np.ones(1000, np.float32))
    for disabled in (False, True):
        with setting("disabled_passes", ("vectorize-loops",) if disabled else ()):
            (kernel,) = lowered.compile().kernels
            assert ("load <" not in kernel.llvm) == disabled


def test_names_that_are_no_optional_passes_are_refused() -> None:
    for name in ("expand", "nothing"):
        with (
            setting("disabled_passes", (name,)),
            pytest.raises(AttributeValueError, match=f"'{name}' is no pass that can be left out"),
        ):
            tx.jit(lambda x: x + 1).lower(X).compile()
    with pytest.raises(AttributeValueError, match="is a tuple of names"):
        tx.config.update("disabled_passes", "cse")


def test_names_of_passes_are_unique_and_say_what_they_do() -> None:
    names = [x.name for x in ALL]
    assert len(set(names)) == len(names)
    assert all(x.what.endswith(".") and x.name == x.name.lower() for x in ALL)


@pytest.mark.parametrize("program", PROGRAMS)
def test_each_stage_is_valid(program: str) -> None:
    """Graphs are those that the verifier takes; steps read what is written before; kernels name their buffers once."""
    lowered = tx.jit(PROGRAMS[program]).lower(X)

    def check(name: str, state: Any) -> None:
        seen.add(name)
        if isinstance(state, Computation):
            verify(Module(name, state))
        elif isinstance(state, Plan):
            roots = [root for step in state.steps for root in getattr(step, "roots", [getattr(step, "root", None)])]
            assert len(set(map(id, roots))) == len(roots), "an instruction is computed twice"
        elif isinstance(state, Block):
            assert all(step.writes or not isinstance(step.work, LoweredKernel) for step, *_ in walk_steps(state))
        else:
            buffers = [b.name for b in (*state.kernel.arguments, *state.kernel.scratch)]
            assert len(set(buffers)) == len(buffers)
            assert len(state.arguments) == len(state.kernel.arguments)

    seen: set[str] = set()
    pipeline.compile_program(lowered.module.entry, (), lambda *_: None, check)
    assert {"cse", "fusion", "alias-in-place"} <= seen


def test_stages_show_graph_plan_schedule_and_kernels() -> None:
    stages = tx.jit(PROGRAMS["softmax of a product"]).lower(X).stages()
    assert next(iter(stages)) == "recorded"
    assert stages["recorded"].startswith("HloModule")
    assert "row over [6]: " in stages["fusion"]
    assert " -> " in stages["early-last-uses"]
    assert "def row(" in stages["lowering"]
    order = [x.name for x in ALL]
    shown = [name for name in stages if name in order]
    assert shown == sorted(shown, key=order.index)
    assert "== lowering\n" in str(stages)


def test_equal_programs_are_compiled_again_with_other_options() -> None:
    """Compiled programs are kept, for the options that they were compiled with."""

    def program() -> str:
        return tx.jit(lambda x: tnp.tanh(x) * 2).lower(np.ones((600, 80), np.float32)).compile().as_text()

    with setting("target", "last_level_bytes=4096"):
        assert "nontemporal" in program()
        with setting("disabled_passes", ("nontemporal-stores",)):
            assert "nontemporal" not in program()
    assert "nontemporal" not in program()
