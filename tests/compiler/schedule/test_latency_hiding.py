"""The latency-hiding scheduler: which messages are split, what runs meanwhile, and what must not touch their memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinyxla as tx
import tinyxla.numpy as jnp
from tinyxla import lax
from tinyxla.backends.numba.program.executable import CompiledModule
from tinyxla.compiler.fusion.plan import BlasCall, Collective, CollectiveDone, CollectiveStart
from tinyxla.compiler.schedule import latency_hiding
from tinyxla.compiler.schedule.blocks import Block, LoopBlocks, Pointer, Step, inner_blocks, shape_of, walk_steps
from tinyxla.compiler.stages import stages
from tinyxla.hlo import Instruction, Module
from tinyxla.loopir.lower.emit import LoweredKernel, Storage
from tinyxla.ops.distributed.process_collectives import mpi_collective
from tinyxla.shapes import Shape, element_type
from tinyxla.tracing import trace
from tinyxla.tracing.config import setting

Region = tuple[Any, int, int]  # a memory, and the first byte and the end of a part of it
N = 256


def total(x: Any, group: tuple[int, ...] = (0, 1)) -> Any:
    return mpi_collective(x, kind="all-reduce", groups=(group,), reduction="add")


def compiled(function: Callable[..., Any], *sizes: tuple[int, ...]) -> CompiledModule:
    computation, _, _ = trace(
        lambda *x: tx.tree.leaves(function(*x)), [Shape(element_type("f32"), x) for x in sizes], "program"
    )
    return CompiledModule(Module("program", computation))


def kinds(block: Block) -> list[str]:
    return ["kernel" if isinstance(x.work, LoweredKernel) else type(x.work).__name__ for x in block.steps]


def root_of(step: Step) -> Instruction:
    assert isinstance(step.work, Collective)
    return step.work.root


def training_step(*arrays: Any) -> list[Any]:
    *weights, x = arrays

    def loss(weights: list[Any]) -> Any:
        y = x
        for w in weights:
            y = jnp.tanh(y @ w)
        return jnp.sum(y**2)

    gradients = [total(g) for g in tx.grad(loss)(weights)]
    return [w - 0.1 * g for w, g in zip(weights, gradients, strict=True)]


def test_gradients_are_reduced_while_earlier_layers_go_back() -> None:
    layers = 4
    steps = compiled(training_step, *[(N, N)] * (layers + 1)).block.steps
    starts = [k for k, step in enumerate(steps) if isinstance(step.work, CollectiveStart)]
    assert len(starts) == layers
    for start in starts[:-1]:
        root = root_of(steps[start])
        done = next(k for k, x in enumerate(steps) if isinstance(x.work, CollectiveDone) and x.work.root is root)
        meanwhile = steps[start + 1 : done]
        assert sum(isinstance(x.work, LoweredKernel) and x.work.kernel.name == "product" for x in meanwhile) >= 1


def test_a_message_that_nothing_hides_is_not_split() -> None:
    assert kinds(compiled(lambda x: total(x * 2) + 1, (N, N)).block) == ["kernel", "Collective", "kernel"]


def test_a_short_message_is_not_split() -> None:
    block = compiled(lambda x, y: [total(y * 2), x @ x @ x], (N, N), (8,)).block
    assert "CollectiveStart" not in kinds(block)


def test_a_result_that_is_needed_late_is_waited_for_late() -> None:
    block = compiled(lambda x, y: total(y * 2) + jnp.tanh(x @ x) @ x, (N, N), (N, N)).block
    found = kinds(block)
    assert found.index("CollectiveStart") == 1
    assert found.index("CollectiveDone") == len(found) - 2


def test_consumers_are_put_off() -> None:
    """What needs the result comes first in the program."""
    block = compiled(lambda x, y: [jnp.sin(total(y * 2)), x @ x], (N, N), (N, N)).block
    found = kinds(block)
    assert found == ["kernel", "CollectiveStart", "kernel", "CollectiveDone", "kernel"]


def test_loops_and_calls_of_the_host_wait_for_messages() -> None:
    def looped(x: Any, y: Any) -> Any:
        sent = total(y * 2)
        return sent + lax.while_loop(lambda z: (z**2).sum() < 50, lambda z: jnp.tanh(z @ x) * 2, x @ x)

    def called(x: Any, y: Any) -> Any:
        sent = total(y * 2)
        return sent + tx.pure_callback(lambda z: z, tx.ShapeDtypeStruct((N, N), np.float32), x @ x) @ x

    for function, waits in ((looped, "LoopBlocks"), (called, "HostCall")):
        found = kinds(compiled(function, (N, N), (N, N)).block)
        assert found.index("CollectiveStart") < found.index("CollectiveDone") < found.index(waits)


def test_messages_of_an_iteration_end_in_it() -> None:
    def body(carry: Any, row: Any) -> tuple[Any, Any]:
        sent = total(jnp.sin(carry))
        return sent + jnp.tanh(row @ carry) @ carry, sent

    module = compiled(lambda x, rows: lax.scan(body, x, rows), (N, N), (3, N, N))
    (loop,) = (x.work for x in module.block.steps if isinstance(x.work, LoopBlocks))
    assert {"CollectiveStart", "CollectiveDone"} <= set(kinds(loop.body))
    check(module)


def test_the_pass_can_be_switched_off() -> None:
    with setting("disabled_passes", ("latency-hiding",)):
        assert "CollectiveStart" not in kinds(compiled(training_step, *[(N, N)] * 4).block)


def test_the_plan_shows_starts_and_dones() -> None:
    text = str(compiled(training_step, *[(N, N)] * 4).report())
    assert "all-reduce-start over 1 groups of 2, add" in text
    assert "all-reduce-done over 1 groups of 2, add" in text


def test_the_stages_show_the_pass() -> None:
    shapes = [Shape(element_type("f32"), (N, N))] * 4
    computation, _, _ = trace(training_step, shapes, "program")
    assert "CollectiveStart: dot f32[256,256]" in stages(Module("program", computation))["latency-hiding"]


# --- what must not be touched meanwhile -------------------------------------------------------------------------------


def check(module: CompiledModule) -> int:
    """From the start of a message to its done nothing writes its operand, or accesses its result; counts messages."""

    def regions(x: Storage) -> list[Region]:
        memory = module.aliases[x]
        if isinstance(memory, Pointer):
            return [region for target in memory.targets for region in regions(target)]
        place, offset = module.allocation_of(memory)
        size = shape_of(memory).size * shape_of(memory).dtype.itemsize
        return [(memory if place == "constant" else place, offset or 0, (offset or 0) + size)]

    def are_apart(one: list[Storage], other: list[Storage]) -> bool:
        pairs = [(a, b) for x in one for a in regions(x) for y in other for b in regions(y)]
        return all(a[0] != b[0] or a[2] <= b[1] or b[2] <= a[1] for a, b in pairs)

    def visit(block: Block) -> int:
        under_way: list[Step] = []
        count = 0
        for step in block.steps:
            assert not under_way or isinstance(step.work, LoweredKernel | BlasCall | Collective)
            count += sum(map(visit, inner_blocks(step)))
            if isinstance(step.work, CollectiveDone):
                (start,) = (x for x in under_way if root_of(x) is step.work.root)
                under_way.remove(start)
                continue
            for x in under_way:
                assert are_apart(step.reads, x.writes), "a result is read before it is there"
                assert are_apart(step.writes, [*x.reads, *x.writes]), "a message's memory is written"
            if isinstance(step.work, CollectiveStart):
                under_way.append(step)
                count += 1
        assert not under_way
        return count

    return visit(module.block)


def test_the_check_finds_what_is_wrong() -> None:
    module = compiled(training_step, *[(N, N)] * 4)
    assert check(module)
    steps = module.block.steps
    done = next(k for k, step in enumerate(steps) if isinstance(step.work, CollectiveDone))
    steps.insert(done + 1, steps.pop(done))  # behind what needs the result
    with pytest.raises(AssertionError, match="a result is read before it is there"):
        check(module)


def random_program(seed: int) -> Callable[..., list[Any]]:
    """A program of products, element-wise operations, loops, branches, updates in place, and messages of all kinds."""

    def message(random: Any, x: Any) -> Any:
        kind = random.choice(["all-reduce", "all-gather", "all-to-all", "collective-broadcast", "collective-permute"])
        if kind == "all-reduce":
            return total(x, (0,))
        if kind == "collective-permute":
            return mpi_collective(x, kind=str(kind), pairs=((0, 0),))
        return mpi_collective(x, kind=str(kind), groups=((0,),))

    def program(*values: Any) -> list[Any]:
        random = np.random.default_rng(seed)
        known = list(values)
        for _ in range(24):
            x, y = (known[k] for k in random.integers(max(0, len(known) - 6), len(known), 2))
            match int(random.integers(8)):
                case 0 | 1 | 2:
                    known.append(message(random, x))
                case 3:
                    known.append(jnp.tanh(x @ y))
                case 4:
                    known.append(x + jnp.sin(y))
                case 5:
                    known.append(x.at[1].set(y[0]))
                case 6:
                    known.append(lax.fori_loop(0, 3, lambda _, z, x=x: total(jnp.sin(z), (0,)) + jnp.tanh(x @ z), y))
                case _:
                    known.append(lax.cond(x.sum() > 0, lambda z: message(random, z) @ z, jnp.cos, y))
        return known[-int(random.integers(1, 8)) :]

    return program


@pytest.mark.parametrize("seed", range(30))
def test_random_programs_are_the_same_without_the_pass(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latency_hiding, "MESSAGE_START_BYTES", 1)
    monkeypatch.setattr(latency_hiding, "MIN_HIDDEN", 0.0)
    shapes = [(8, 8)] * 4
    values = [np.random.default_rng(k).normal(size=x).astype(np.float32) for k, x in enumerate(shapes)]
    program = random_program(seed)
    split = compiled(program, *shapes)
    messages = [x for x, *_ in walk_steps(split.block) if isinstance(x.work, Collective)]
    assert messages, "a program for another test"
    assert 2 * check(split) == len(messages)
    with setting("disabled_passes", ("latency-hiding",)):
        whole = compiled(program, *shapes)
    for found, wanted in zip(split(values), whole(values), strict=True):
        np.testing.assert_array_equal(found, wanted)
