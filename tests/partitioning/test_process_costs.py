"""What programs cost processes, on abstract meshes, and how plans say it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tinyxla as tx
import tinyxla.numpy as jnp
from tinyxla import lax
from tinyxla.compiler.fusion.plan import Collective, CollectiveDone, CollectiveStart
from tinyxla.compiler.pipeline import compile_program
from tinyxla.compiler.schedule.blocks import Step
from tinyxla.compiler.schedule.costs import communication_of_step, cost_of_step
from tinyxla.compiler.step_costs import Cost
from tinyxla.errors import ArgumentError
from tinyxla.ops.distributed import exchanges
from tinyxla.ops.distributed.communication import Communication, communication_by
from tinyxla.ops.distributed.replica_groups import PROCESSES
from tinyxla.partitioning.simulation import process_cost
from tinyxla.runtime import mpi
from tinyxla.shapes import Shape, element_type
from tinyxla.tracing.core import trace

P = tx.P


pytestmark = pytest.mark.usefixtures("four_devices")


def described(mesh: Any, shape: tuple[int, ...], *spec: Any) -> Any:
    return tx.ShapeDtypeStruct(shape, "float32", sharding=tx.NamedSharding(mesh, P(*spec)))


def line(count: int) -> Any:
    return tx.sharding.AbstractMesh((count,), ("x",))


def loss(w: Any, x: Any, y: Any) -> Any:
    return jnp.mean((jnp.tanh(x @ w) - y) ** 2)


def gradient(count: int) -> Any:
    """Data parallel, 8 rows on each device."""
    mesh = line(count)
    arguments = (
        described(mesh, s, *p) for s, p in (((16, 4), ()), ((8 * count, 16), ("x",)), ((8 * count, 4), ("x",)))
    )
    return tx.jit(tx.grad(loss)).lower(*arguments)


# --- programs on abstract meshes --------------------------------------------------------------------------------------


def test_a_program_on_an_abstract_mesh_is_that_of_a_device() -> None:
    text = gradient(4).as_text()
    assert "f32[8,16]{1,0} parameter(1)" in text
    assert "all-reduce" in text


def test_a_program_on_an_abstract_mesh_is_not_compiled() -> None:
    with pytest.raises(ArgumentError, match=r"loss is partitioned over AbstractMesh.*has no devices; lower it"):
        gradient(4).compile()


def test_shardings_of_a_program_on_an_abstract_mesh() -> None:
    x = described(line(8), (16, 4), "x")
    lowered = tx.jit(lambda x: (x + 1, x.sum(0))).lower(x)
    assert lowered.input_shardings == ((x.sharding,), {})
    assert lowered.output_shardings == (x.sharding, tx.NamedSharding(line(8), P()))


def test_constraints_hold_on_an_abstract_mesh() -> None:
    mesh = line(4)
    x, y = described(mesh, (8, 64), None, "x"), described(mesh, (64, 8), "x")

    def kinds(spec: Any) -> list[str]:
        product = tx.jit(lambda x, y: lax.with_sharding_constraint(x @ y, tx.NamedSharding(mesh, spec)))
        return [c.name for c in product.lower(x, y).process_cost().collectives]

    assert kinds(P()) == ["all-reduce"]
    assert kinds(P("x")) == ["reduce-scatter"]


# --- costs ------------------------------------------------------------------------------------------------------------


def test_a_gradient_is_reduced_once() -> None:
    cost = gradient(4).process_cost()
    assert [(c.name, c.among, c.times) for c in cost.collectives] == [("all-reduce", "1 groups of 4, add", 1)]
    assert cost.communication == communication_by("all-reduce", 16 * 4 * 4, 4)
    assert cost.processes == 4


def test_weak_scaling_changes_messages_alone() -> None:
    """For a thousand processes a program has the size that it has for two."""
    two, many = gradient(2).process_cost(), gradient(1024).process_cost()
    assert (two.kernels, two.cost, len(two.collectives)) == (many.kernels, many.cost, len(many.collectives))
    assert (two.communication.messages, many.communication.messages) == (1, 10)
    for count in (2, 1024):
        assert len(gradient(count).module.entry.instructions) == len(gradient(2).module.entry.instructions)


def test_messages_of_a_loop_count_as_often_as_it_runs() -> None:
    mesh = line(4)
    x = described(mesh, (64, 8), "x")

    def total(x: Any) -> Any:
        return lax.fori_loop(0, 10, lambda _, x: x + lax.ppermute(x[:1], "x", [(0, 1), (1, 2)]), x)

    cost = tx.jit(tx.shard_map(total, mesh=mesh, in_specs=P("x"), out_specs=P("x"))).lower(x).process_cost()
    assert [(c.name, c.times) for c in cost.collectives] == [("collective-permute", 10)]
    assert cost.communication == Communication(10 * 32, 10 * 32, 10)


def test_axes_of_a_mesh_have_groups_of_their_own() -> None:
    mesh = tx.sharding.AbstractMesh((4, 8), ("x", "y"))
    cost = tx.jit(lambda x: x.sum(0)).lower(described(mesh, (4, 8), "x", "y")).process_cost()
    assert [c.among for c in cost.collectives] == ["8 groups of 4, add"]
    assert cost.processes == 32


def test_a_program_without_a_mesh_sends_nothing() -> None:
    cost = tx.jit(lambda x: x * 2).lower(jnp.ones(1000)).process_cost()
    assert cost == (1, 1, Cost(4000, 4000, 1000, 0), Communication(), ())


def test_cost_analysis_is_of_a_device() -> None:
    x = described(line(4), (400, 10), "x")
    found = tx.jit(lambda x: jnp.sin(x).sum(0)).lower(x).cost_analysis()
    sent = communication_by("all-reduce", 40, 4)
    assert found["transcendentals"] == 1000
    assert [found[k] for k in ("bytes sent", "bytes received", "messages")] == [sent.sent, sent.received, sent.messages]
    alone = tx.jit(jnp.sin).lower(jnp.ones(3)).cost_analysis()
    assert [alone[k] for k in ("bytes sent", "bytes received", "messages")] == [0, 0, 0]


# --- plans ------------------------------------------------------------------------------------------------------------


def test_the_plan_of_lanes_says_what_their_processes_would_send() -> None:
    mesh = tx.make_mesh((4,), ("x",))
    x = tx.device_put(jnp.ones((64, 256)), tx.NamedSharding(mesh, P("x")))
    compiled = tx.jit(lambda x: x.sum(0)).lower(x).compile()
    lines = compiled.as_text().splitlines()
    assert lines[2] == "each of 4 devices, as a process, sends 2.05 kB in 2 messages, receives 2.05 kB"
    assert lines[4].split() == "all-reduce 1 groups of 4, add 1 2.05 kB 2.05 kB 2".split()
    report = compiled.report()
    assert report.devices is not None
    assert report.devices == compiled.process_cost()
    assert report.communication == Communication()
    np.testing.assert_array_equal(compiled(x), np.full(256, 64.0))


def test_the_plan_of_devices_that_send_nothing_says_nothing() -> None:
    mesh = tx.make_mesh((4,), ("x",))
    x = tx.device_put(jnp.ones((8, 4)), tx.NamedSharding(mesh, P("x")))
    report = tx.jit(lambda x: x + 1).lower(x).compile().report()
    assert report.devices is None
    assert "sends" not in report.text()


# --- planning for other processes -------------------------------------------------------------------------------------


def ranks(count: int) -> Any:
    def number() -> list[Any]:
        return [exchanges.collective_permute(exchanges.replica_id(axis_name=PROCESSES), **pairs)]

    pairs = {"source_target_pairs": ((0, count - 1),), "axis_name": PROCESSES}
    return trace(number, [], "ranks")[0]


def test_simulated_processes_are_there_while_planned_only() -> None:
    with pytest.raises(tx.errors.AttributeValueError, match="numbers below 1"):
        process_cost(ranks(1000), 1)
    assert process_cost(ranks(1000), 1000).communication == Communication(4, 4, 1)
    assert mpi.world().size == 1


def test_expansions_for_one_number_of_processes_are_not_used_for_another() -> None:
    shape = Shape(element_type("f32"), (2,))

    def program(x: Any) -> list[Any]:
        return [exchanges.collective_broadcast(x, replica_groups=((0,),), axis_name=PROCESSES)]

    made = trace(program, [shape], "broadcast")[0]
    assert len(process_cost(made, 2).collectives) == 1
    assert len(process_cost(made, 1).collectives) == 0


def test_split_messages_count_once() -> None:
    """The start of a message counts, and not the wait for it."""

    def program(x: Any) -> list[Any]:
        return [exchanges.collective_broadcast(x, replica_groups=((0, 1),), axis_name=PROCESSES)]

    with mpi.simulated(2):
        block, _ = compile_program(
            trace(program, [Shape(element_type("f32"), (2,))], "broadcast")[0], (), lambda *_: None
        )
    (step,) = (x for x in block.steps if type(x.work) is Collective)
    work: Any = step.work
    halves = [
        Step(kind(work.root), step.reads, step.writes, step.planned) for kind in (CollectiveStart, CollectiveDone)
    ]
    once = communication_of_step(step)
    assert once == Communication(8, 8, 1)
    assert [communication_of_step(x) for x in halves] == [once, Communication()]
    assert [cost_of_step(x) for x in halves] == [cost_of_step(step), Cost()]
