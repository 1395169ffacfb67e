"""Compile work grows with the size of a program: each computation goes through the passes once, and many carried values
or deep nests take no more than in proportion. Work is counted, never timed."""

from __future__ import annotations

import gc
import random
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest

import tinyxla as tx
from benchmarks.groups.large_control_flow import WORKLOADS, ode_solve
from benchmarks.workload import Workload
from tinyxla import lax
from tinyxla.api import linearize
from tinyxla.backends.numba.jit import engine
from tinyxla.backends.numba.program import executable
from tinyxla.backends.numba.program.executable import CompiledModule
from tinyxla.compiler import pipeline, rewriter
from tinyxla.compiler.buffers import arena
from tinyxla.compiler.costs import LINE_BYTES
from tinyxla.compiler.passes.control_flow_dce import control_flow_dce
from tinyxla.compiler.passes.licm import hoist_loop_invariants
from tinyxla.compiler.schedule import blocks
from tinyxla.hlo import Computation, Module
from tinyxla.loopir.ir.loop_ir import Loop
from tinyxla.loopir.kernels import registry
from tinyxla.loopir.kernels.control_flow import pointwise_while
from tinyxla.ops import Op, calls
from tinyxla.text import parse_hlo
from tinyxla.tracing.core import GraphTrace

NAMED = {workload.name: workload for workload in WORKLOADS}


def lowered(name: str) -> Module:
    workload = NAMED[name]
    assert isinstance(workload, Workload)
    return tx.jit(workload.make(tx)).lower(*workload.inputs(np.random.default_rng(0))).module


def regions(computation: Computation) -> dict[int, Computation]:
    """The computation and those of its loops and branches, each once."""
    found = {id(computation): computation}
    for x in computation.instructions:
        if x.op.name in pipeline.REGIONS:
            for inner in x.computations():
                found |= regions(inner)
    return found


# Each computation once.


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[Computation]:
    """The computations on which the list of passes is run."""
    found: list[Computation] = []

    def recorded(computation: Computation) -> Computation:
        found.append(computation)
        return computation

    monkeypatch.setattr(pipeline, "GRAPH", [pipeline.Pass("record", recorded, "Records."), *pipeline.GRAPH])
    return found


NESTS = ["gradient of an ODE solve, 1 nested scans", "gradient of 5 nested conditionals", "gradient of 3 nested scans"]


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("name", NESTS)
def test_compile_nested_control_flow_optimizes_each_computation_once(name: str, runs: list[Computation]) -> None:
    module = lowered(name)
    optimized = pipeline.optimize(module.entry)
    expected = len(regions(optimized))
    assert len(runs) == expected == len({id(x) for x in runs}) > 5
    runs.clear()
    CompiledModule(module)
    assert len(runs) == expected


def test_compile_vmap_of_a_while_loop_optimizes_each_lane_once(runs: list[Computation]) -> None:
    def root(x: Any) -> Any:
        return lax.while_loop(lambda s: abs(s[0] * s[0] - x) > 1e-5 * x, lambda s: (0.5 * (s[0] + x / s[0]),), (x,))[0]

    module = tx.jit(tx.vmap(root)).lower(np.ones(50, np.float32)).module
    tx.clear_caches()
    CompiledModule(module)
    assert len(runs) == 4  # the entry, what a lane computes, and its condition and body


CONTROL_FLOW: dict[str, Callable[..., Any]] = {
    "vmap of a while loop": tx.vmap(lambda r: lax.while_loop(lambda y: (y**2).sum() < 50, lambda y: y * 1.5 + 0.1, r)),
    "gradient of a scan": tx.grad(lambda x: (lax.scan(lambda c, r: (c * r, c + r), x[0], x)[1] ** 2).sum()),
    "conditional": lambda x: lax.cond(x.sum() > 0, tx.numpy.sin, lambda y: y @ y.T @ y, x),
}


@pytest.mark.parametrize("name", CONTROL_FLOW)
def test_predicates_of_lowerings_are_asked_once_and_run_no_passes(
    name: str, runs: list[Computation], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    passes: list[int] = []

    def watched(lowering: registry.OpLowering) -> registry.OpLowering:
        def supports(x: Any) -> bool:
            before = len(runs)
            answer = lowering.supports(x)
            asked.append((lowering.supports, x))
            passes.append(len(runs) - before)
            return answer

        fallback = lowering.fallback and watched(lowering.fallback)
        return replace(lowering, supports=supports, fallback=fallback)

    for op, lowering in list(registry.OP_LOWERINGS.items()):
        monkeypatch.setitem(registry.OP_LOWERINGS, op, watched(lowering))
    module = tx.jit(lambda x: CONTROL_FLOW[name](x)).lower(np.ones((6, 8), np.float32)).module
    tx.clear_caches()
    CompiledModule(module)
    assert passes
    assert not any(passes)
    assert len(asked) == len(set(asked))


def test_optimized_program_is_a_fixed_point_of_the_passes_that_visit_regions() -> None:
    optimized = pipeline.optimize(lowered("gradient of 3 nested scans").entry)
    for computation in regions(optimized).values():
        assert pipeline.eliminate_common_subexpressions(computation) is computation
        assert pipeline.inline_calls(computation) is computation
        pruned, hoisted = control_flow_dce(computation), hoist_loop_invariants(computation)
        assert control_flow_dce(pruned) is pruned
        assert hoist_loop_invariants(hoisted) is hoisted


def test_inline_calls_folds_calls_of_scalar_constants() -> None:
    @tx.jit
    def below(x: Any) -> Any:
        return tx.numpy.nextafter(x, -np.inf)

    def f(x: Any) -> Any:
        bound = tx.numpy.asarray(4.0)
        for _ in range(100):
            bound = below(bound)
        return x + bound

    inlined = pipeline.inline_calls(tx.make_graph(f)(np.float32(0)).entry)
    assert [x.op.name for x in inlined.instructions if x.operands] == ["add", "tuple"]
    assert float(tx.jit(f)(0.0)) == 4 - 100 * 2.0**-22


def test_inline_calls_writes_out_calls_of_scalar_constants_that_compute_arrays() -> None:
    f = tx.jit(lambda x: (tx.numpy.full(3, x), x + 1))
    inlined = pipeline.inline_calls(tx.make_graph(lambda y: (f(tx.numpy.asarray(2.0)), y))(np.float32(0)).entry)
    assert {"call", "get-tuple-element"}.isdisjoint(inlined.all_opcodes)
    found = calls.evaluate(inlined, [np.float32(5)])
    np.testing.assert_array_equal(found[0], [2, 2, 2])
    assert found[1:] == (3, 5)


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the ops that are recorded into graphs."""
    found: list[str] = []
    record = GraphTrace.record

    def counting(trace: GraphTrace, op: Op, operands: Any, attributes: Any) -> Any:
        found.append(op.name)
        return record(trace, op, operands, attributes)

    monkeypatch.setattr(GraphTrace, "record", counting)
    return found


def test_while_loop_records_its_functions_once(recorded: list[str]) -> None:
    def f(x: Any, limit: Any) -> Any:
        return lax.while_loop(lambda x: tx.numpy.cos(x) < limit, lambda x: tx.numpy.sin(x) * limit, x)

    tx.make_graph(f)(np.float32(1), np.float32(2))
    assert (recorded.count("cosine"), recorded.count("sine")) == (1, 1)


def test_applied_derivative_of_linearize_records_what_it_needs_alone() -> None:
    def f(x: Any, t: Any) -> Any:
        value, derivative = tx.linearize(lambda x: tx.numpy.sin(x) * x, x)
        return value, derivative(t)

    made = tx.make_graph(f)(np.float32(1), np.float32(2)).entry
    users = made.users()
    assert [x.op.name for x in made.instructions if x.operands and x is not made.root and not users[x]] == []


def test_linearize_does_not_transpose_what_is_not_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    transposed: list[Computation] = []
    monkeypatch.setattr(linearize, "_reversed", lambda made, count: transposed.append(made))
    value, _ = tx.linearize(tx.numpy.sin, np.float32(0))
    assert float(value) == 0
    assert transposed == []


def test_rewrite_without_a_match_gives_the_computation_itself() -> None:
    shared = pipeline.eliminate_common_subexpressions(lowered("gradient of 3 nested scans").entry)
    assert rewriter.rewrite(shared, lambda rewriter, x, operands: None) is shared
    again = rewriter.rewrite(shared, lambda rewriter, x, operands: rewriter.copy(x, operands))
    assert again is shared


def test_optimize_walks_a_computation_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passes without an instruction to match are skipped, and nests are not walked from every level."""
    walks = 0
    original = rewriter.rewrite

    def counted(computation: Computation, visit: Any) -> Computation:
        nonlocal walks
        walks += 1
        return original(computation, visit)

    for module in [
        x for name, x in sys.modules.items() if name.startswith("tinyxla") and vars(x).get("rewrite") is original
    ]:
        monkeypatch.setattr(module, "rewrite", counted)
    module = lowered("gradient of an ODE solve, 3 nested scans")
    walks = 0
    optimized = pipeline.optimize(module.entry)
    assert walks < 12 * len(regions(optimized))


def test_a_body_shared_by_two_loops_has_memory_of_its_own_in_each() -> None:
    text = """HloModule twice
body {
  p = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[4] get-tuple-element(p), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  y = f32[4] add(x, x)
  ROOT r = (s32[], f32[4]) tuple(next, y)
}
test {
  p = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  three = s32[] constant(3)
  ROOT less = pred[] compare(i, three), direction=LT
}
ENTRY main {
  x = f32[4] parameter(0)
  y = f32[4] parameter(1)
  zero = s32[] constant(0)
  one = s32[] constant(1)
  a = (s32[], f32[4]) tuple(zero, x)
  b = (s32[], f32[4]) tuple(one, y)
  first = (s32[], f32[4]) while(a), condition=test, body=body
  second = (s32[], f32[4]) while(b), condition=test, body=body
  u = f32[4] get-tuple-element(first), index=1
  v = f32[4] get-tuple-element(second), index=1
  ROOT r = (f32[4], f32[4]) tuple(u, v)
}
"""
    module = parse_hlo(text)
    x, y = np.arange(4, dtype=np.float32), np.ones(4, np.float32)
    first, second = module(x, y)
    np.testing.assert_array_equal(first, 8 * x)
    np.testing.assert_array_equal(second, 4 * y)


# Growth.


def calls_of(function: Callable[[], object]) -> int:
    """How many calls of functions a call takes, without those of the garbage collection of what came before it."""
    count = 0

    def profile(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    gc.collect()
    gc.disable()
    sys.setprofile(profile)
    try:
        function()
    finally:
        sys.setprofile(None)
        gc.enable()
    return count


def step_of(values: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(0.5 * x + y for x, y in zip(values, (*values[1:], values[0]), strict=True))


def tuple_loop(count: int) -> tuple[Any, Any]:
    values = tuple(np.float32(k) for k in range(count))
    return lambda x: lax.while_loop(lambda s: s[0] < 10, lambda s: (s[0] + 1, step_of(s[1])), (0, x)), (values,)


def scan_gradient(count: int) -> tuple[Any, Any]:
    def total(values: Any, factors: Any) -> Any:
        def step(values: Any, factor: Any) -> Any:
            made = step_of(values)
            return made, factor * made[0]

        return tx.numpy.sum(lax.scan(step, values, factors)[1])

    return tx.grad(total), (tuple(np.float32(k) for k in range(count)), np.ones(20, np.float32))


def dictionary(count: int) -> tuple[Any, Any]:
    arrays = {k: np.ones(100, np.float32) for k in range(count)}
    return lambda x: lax.fori_loop(0, 10, lambda _, y: {k: 0.9 * v + 0.1 for k, v in y.items()}, x), (arrays,)


def nested_conditionals(count: int) -> tuple[Any, Any]:
    def level(depth: int, choices: Any) -> Any:
        if not depth:
            return lambda x: 2 * x
        inner = level(depth - 1, choices)
        return lambda x: lax.cond(choices[depth - 1] > 0, inner, lambda x: x - depth, x + 1)

    return lambda x, choices: level(count, choices)(x), (np.ones(3, np.float32), np.ones(count, np.float32))


def conditionals(count: int) -> tuple[Any, Any]:
    def function(x: Any, choices: Any) -> Any:
        for k in range(count):
            x = lax.cond(choices[k] > 0, lambda x, k=k: 0.9 * x + k, lambda x: x, x)
        return x

    return function, (np.ones(3, np.float32), np.ones(count, np.float32))


def scans(count: int) -> tuple[Any, Any]:
    def function(x: Any) -> Any:
        for k in range(count):
            x, _ = lax.scan(lambda x, _, k=k: (0.9 * x + k, None), x, None, length=3)
        return x

    return function, (np.ones(3, np.float32),)


def switches(count: int) -> tuple[Any, Any]:
    branches = [lambda x, k=k: x * k + 1 for k in range(count)]
    return lambda i, x: lax.switch(i, branches, x), (np.int32(1), np.ones(3, np.float32))


GROWING = {
    "tuple of numbers": (tuple_loop, 24),
    "gradient of a scan": (scan_gradient, 12),
    "dictionary of arrays": (dictionary, 24),
    "nested conditionals": (nested_conditionals, 5),
    "conditionals in sequence": (conditionals, 10),
    "scans in sequence": (scans, 12),
    "switch": (switches, 12),
}


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("name", GROWING)
def test_compile_four_times_as_large_takes_four_times_as_many_calls(name: str) -> None:
    make, size = GROWING[name]

    def compile_of(count: int) -> int:
        tx.clear_caches()
        function, arguments = make(count)
        return calls_of(lambda: CompiledModule(tx.jit(function).lower(*arguments).module))

    for count in (size, 4 * size):
        compile_of(count)  # what happens once in a process
    assert compile_of(4 * size) < 4.6 * compile_of(size)


# Values.


@pytest.mark.parametrize("count", [20, 130, 600])
def test_while_of_many_numbers_computes_what_numpy_does(count: int) -> None:
    function, (values,) = tuple_loop(count)
    found = tx.jit(function)(values)[1]
    wanted = np.asarray(values, np.float32)
    for _ in range(10):
        wanted = np.float32(0.5) * wanted + np.roll(wanted, -1)
    np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-5)


@pytest.mark.sample(every=2)
@pytest.mark.parametrize("name", ["gradient of an ODE solve, 1 nested scans", "gradient of 5 nested conditionals"])
def test_large_control_flow_computes_what_jax_does(name: str) -> None:
    workload = NAMED[name]
    assert isinstance(workload, Workload)
    inputs = workload.inputs(np.random.default_rng(1))
    wanted = jax.jit(workload.make(jax))(*inputs)
    found = tx.jit(workload.make(tx))(*inputs)
    np.testing.assert_allclose(np.asarray(found), np.asarray(wanted), rtol=2e-4, atol=1e-5)


def test_gradient_of_an_ode_solve_is_its_difference_quotient() -> None:
    solve = ode_solve(2)(tx)
    weights = np.array([[0.3, -0.2], [0.1, 0.4]], np.float32)
    bias, start = np.array([0.2, -0.1], np.float32), np.array([0.5, 1.0], np.float32)
    found = np.asarray(tx.jit(tx.grad(solve, 1))(weights, bias, start))
    run = tx.jit(solve)
    for k in range(2):
        change = np.zeros(2, np.float32)
        change[k] = 0.05
        quotient = (float(run(weights, bias + change, start)) - float(run(weights, bias - change, start))) / 0.1
        assert found[k] == pytest.approx(quotient, rel=2e-2)


def test_element_loop_of_many_arrays_is_distributed_by_what_depends_on_each_other() -> None:
    """Pairs of arrays that read each other stay in one loop; a counter is made in each, and given once."""
    count, size = 90, 200

    def step(_: int, state: Any) -> Any:
        steps, arrays = state
        mixed = [arrays[k ^ 1] + 0.5 * arrays[k] * steps for k in range(count)]
        return steps + 0.25, mixed

    arrays = [np.linspace(-1, 1, size, dtype=np.float32) * (k + 1) / count for k in range(count)]
    start = (np.float32(1), arrays)
    function = tx.jit(lambda state: lax.fori_loop(0, 4, step, state))
    kernels = function.lower(start).compile().kernels
    assert [kernel.name for kernel in kernels].count("elements") == 2
    steps, found = function(start)
    wanted: Any = start
    for _ in range(4):
        wanted = step(0, wanted)
    assert float(steps) == float(wanted[0]) == 2
    np.testing.assert_allclose(np.asarray(found), np.asarray(wanted[1]), rtol=1e-5, atol=1e-6)


def test_element_loop_of_many_arrays_in_one_component_is_left_to_the_schedule() -> None:
    count = pointwise_while.MAX_ARRAYS + 10
    arrays = tuple(np.linspace(0, 1, 150, dtype=np.float32) + k for k in range(count))
    function = tx.jit(lambda x: lax.fori_loop(0, 3, lambda _, y: step_of(y), x))
    assert all(kernel.name != "elements" for kernel in function.lower(arrays).compile().kernels)
    wanted: Any = arrays
    for _ in range(3):
        wanted = step_of(wanted)
    np.testing.assert_allclose(np.asarray(function(arrays)), np.asarray(wanted), rtol=1e-5)


# Parts.


def chained_loop() -> tuple[Any, Any]:
    """A loop that carries 24 numbers, each the result of 60 operations."""

    def step(_: Any, state: Any) -> Any:
        for k in range(30):
            state = tuple(x * (1 + 0.001 * k) + 0.1 for x in state)
        return state[1:] + state[:1]

    return lambda x: lax.fori_loop(0, 3, step, x), (tuple(np.float32(k) for k in range(24)),)


@pytest.mark.parametrize(
    ("function", "size", "scalar"),
    [
        (lambda x: x * 2.5 + 1, 1, True),
        (lambda x: x * 2.5 + 1, 2, False),
        (lambda x: tx.numpy.sum(x * 2.5), 100, False),
    ],
)
def test_kernel_of_one_iteration_without_a_loop_skips_the_passes_over_loops(
    function: Any, size: int, scalar: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    original = engine._object_code
    monkeypatch.setattr(
        engine, "_object_code", lambda text, passes, m: seen.append(passes) or original(text, passes, m)
    )
    monkeypatch.setattr(engine.cache, "read", lambda key: None)
    tx.clear_caches()
    x = np.full(size, 0.375, np.float32)
    np.testing.assert_allclose(np.asarray(tx.jit(function)(x)), np.asarray(function(tx.numpy.asarray(x))), rtol=1e-6)
    assert ("straight-line" in seen) == scalar


def test_kernel_of_long_scalar_code_is_compiled_as_straight_line_code() -> None:
    function, arguments = chained_loop()
    (kernel,) = CompiledModule(tx.jit(function).lower(*arguments).module).kernels
    assert engine._pipeline(kernel._kernel.body, False) == "straight-line"


def pipelines_of(function: Any, arguments: Any) -> set[str]:
    """How the loops of scalars of a program are compiled."""
    kernels = CompiledModule(tx.jit(function).lower(*arguments).module).kernels
    return {engine._pipeline(x._kernel.body, False) for x in kernels if x.name == "small_while"}


def test_kernels_with_many_carried_values_are_compiled_as_straight_line_code() -> None:
    found = {count: pipelines_of(*tuple_loop(count)) for count in (4, 24, 200)}
    assert found == {4: {"loops"}, 24: {"straight-line"}, 200: {"straight-line"}}


def test_scalars_that_are_elements_of_arrays_are_vectorized_if_they_fill_vectors() -> None:
    def loop(size: int) -> set[str]:
        def step(s: Any) -> Any:
            return s[0] + 1, tuple(0.5 * x + y for x, y in zip(s[1], (*s[1][1:], s[1][0]), strict=True))

        arrays = tuple(np.full(size, k, np.float32) for k in range(9))
        return pipelines_of(lambda x: lax.while_loop(lambda s: s[0] < s[1][0][0] + 9, step, (0, x)), (arrays,))

    assert (loop(3), loop(8)) == ({"straight-line"}, {"slp"})


def test_kernels_of_little_work_skip_the_passes_over_loops() -> None:
    """Those that cannot be vectorized here: columns with a stride."""

    def column(size: int) -> str:
        (kernel,) = tx.jit(lambda x: x[:, 3] * 2).lower(np.ones((size, 7), np.uint8)).compile().kernels
        return engine._pipeline(kernel._kernel.body, False, kernel.extent, kernel._work)

    assert (column(50), column(5000)) == ("straight-line", "loops")


def test_kernels_of_loops_are_compiled_while_the_rest_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    start, assign, interval = executable.start_kernel, executable.assign_parallelism, sys.getswitchinterval()
    monkeypatch.setattr(executable, "start_kernel", lambda *given: events.append("kernel") or start(*given))
    monkeypatch.setattr(executable, "assign_parallelism", lambda *given: events.append("built") or assign(*given))
    monkeypatch.setattr(engine.cache, "read", lambda key: None)

    def function(x: Any) -> Any:
        return lax.fori_loop(0, 3, lambda i, x: tx.numpy.sin(x).sum() + x[::-1], x) * 2

    found = tx.jit(function)(np.ones(377, np.float32))
    assert 0 < events.index("built") < len(events) - 1
    np.testing.assert_allclose(found, function(tx.numpy.ones(377)), 1e-5)
    assert sys.getswitchinterval() == interval


def test_single_iterations_have_no_loop_of_their_own() -> None:
    """The pieces of a row that is a concatenation."""
    (kernel,) = tx.jit(lambda x: tx.numpy.stack([x + 1, x * 2], -1)).lower(np.ones(100, np.float32)).compile().kernels
    (loop,) = kernel._kernel.body
    assert isinstance(loop, Loop)
    assert not any(isinstance(x, Loop) for x in loop.body)


def test_arena_offsets_are_those_of_first_fit() -> None:
    generator = random.Random(0)
    for _ in range(100):
        lives = {k: tuple(sorted(generator.choices(range(12), k=2))) for k in range(19)}
        sizes = {k: generator.choice([1, 64, 100, 500, 4096]) for k in lives}
        hosts = [k for k in lives if k % 9 == 0]
        lives |= {k: (lives[k][0], 11) for k in hosts}  # results are in use until the end
        placed, total = arena.arena_offsets(lives, sizes, hosts)
        wanted, size = first_fit(lives, sizes, hosts)
        assert placed == wanted
        assert total == size


def first_fit(lives: Any, sizes: Any, hosts: Any) -> Any:
    """Each temporary, the largest first, at the lowest offset at which it meets no other one."""
    found: dict[int, tuple[int | None, int]] = {}
    spaces = [*sorted(hosts, key=lambda k: sizes[k]), None]
    total = 0
    for key in sorted((k for k in lives if k not in hosts), key=lambda k: -sizes[k]):
        need = -(-max(sizes[key], 1) // LINE_BYTES) * LINE_BYTES
        for host in spaces:
            own = [] if host is None else [(0, sizes[host], host)]
            others = own + [(o, o + -(-max(sizes[k], 1) // 64) * 64, k) for k, (h, o) in found.items() if h == host]
            taken = [(a, b) for a, b, k in others if lives[k][0] <= lives[key][1] and lives[key][0] <= lives[k][1]]
            offset = min(o for o in [0, *(b for _, b in taken)] if all(o + need <= a or b <= o for a, b in taken))
            if host is None or offset + need <= sizes[host]:
                found[key] = host, offset
                total = max(total, offset + need) if host is None else total
                break
    return found, total


def test_results_are_written_over_operands_of_the_same_kernel_pair_by_pair() -> None:
    """Two temporaries die where two results of their size are made: no further memory is needed."""

    def function(x: Any) -> Any:
        a, b = tx.numpy.cumsum(x), tx.numpy.cumsum(2 * x)
        return tx.numpy.sort(a * 3 + b), tx.numpy.sort(b * 5 - a)

    module = CompiledModule(tx.jit(function).lower(np.ones(5000, np.float32)).module)
    steps = [step for step, *_ in blocks.walk_steps(module.block)]
    both = [{module.aliases[x] for x in step.reads} & {module.aliases[x] for x in step.writes} for step in steps]
    assert 2 in map(len, both)
    x = np.linspace(0, 1, 5000, dtype=np.float32)
    found = tx.jit(function)(x)
    a, b = np.cumsum(x), np.cumsum(2 * x)
    np.testing.assert_allclose(found[0], np.sort(a * 3 + b), rtol=1e-3)
    np.testing.assert_allclose(found[1], np.sort(b * 5 - a), rtol=1e-3)


def long_loop() -> tuple[Any, Any]:
    """Element by element the sum of 300 products, in one loop."""
    return lambda x: sum(x * float(k + 2) + x for k in range(300)), (np.linspace(0, 1, 5000, dtype=np.float32),)


@pytest.mark.parametrize("program", [tuple_loop(131), long_loop()])
def test_units_are_compiled_with_options_for_fast_compilation_which_are_set_back(
    program: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool | None] = []
    options: list[str] = []
    original, set_option = engine._object_code, engine.binding.set_option

    def compiled(text: str, passes: Any, machines: Any) -> Any:
        seen.append(engine._is_fast)
        return original(text, passes, machines)

    def recorded(option: str) -> None:
        options.append(option)
        set_option(option)

    monkeypatch.setattr(engine, "_object_code", compiled)
    monkeypatch.setattr(engine.binding, "set_option", recorded)
    monkeypatch.setattr(engine.cache, "read", lambda key: None)
    tx.clear_caches()
    function, (values,) = program
    tx.jit(lambda x, y: (function(x), tx.numpy.sin(y) * 0.731 + y))(values, np.ones(4000, np.float32))
    assert set(seen) == {True}
    assert engine._is_fast is False
    assert [x for x in options if "lsr" in x] == ["-disable-lsr=true", "-disable-lsr=false"]


def test_equal_loops_of_the_same_lines_are_optimized_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loops of other lines are optimized by themselves, so that reports name these."""

    def decay(x: Any) -> Any:
        return lax.while_loop(lambda x: x.sum() > 1, lambda x: tx.numpy.sin(x) * 0.5, x)

    def decay_elsewhere(x: Any) -> Any:
        return lax.while_loop(lambda x: x.sum() > 1, lambda x: tx.numpy.sin(x) * 0.5, x)

    def bodies_of(*loops: Any) -> int:
        seen: list[Any] = []
        run = pipeline._run_passes
        with monkeypatch.context() as patch:
            patch.setattr(pipeline, "_run_passes", lambda c, check: seen.append(c) or run(c, check))
            x = np.ones(70, np.float32)
            found = tx.jit(lambda x: [loop(x + k) for k, loop in enumerate(loops)])(x)
        for k, y in enumerate(found):
            with tx.disable_jit():
                np.testing.assert_allclose(np.asarray(y), np.asarray(decay(tx.numpy.asarray(x + k))), rtol=1e-5)
        return len(seen) - 1

    assert (bodies_of(decay), bodies_of(decay, decay, decay), bodies_of(decay, decay_elsewhere)) == (2, 2, 4)
