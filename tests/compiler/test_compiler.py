"""The compiler on random graphs: every pass and the compiled program keep what the interpreter computes, on any number
of threads, and the kernels do what their Python text says. Then its parts: memory for temporaries, and products.

That these tests can fail is tested too: with passes, fusion and lowering broken on purpose.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tests.support import graphs
from tinyxla.backends.numba import CompiledModule
from tinyxla.backends.numba.program import executable
from tinyxla.compiler import pipeline
from tinyxla.compiler.analysis import reachability
from tinyxla.compiler.buffers import arena
from tinyxla.compiler.costs import LINE_BYTES, PARALLEL_CHUNK_ELEMENTS
from tinyxla.compiler.fusion import plan as fusion_plan
from tinyxla.compiler.fusion.cluster import plan
from tinyxla.compiler.fusion.plan import BlasCall, LoopNest, SingleOp
from tinyxla.compiler.passes import algebraic_simplifier
from tinyxla.compiler.rewriter import rewrite
from tinyxla.errors import VerificationError
from tinyxla.hlo import Computation, Instruction, Module, verify
from tinyxla.loopir.ir.print_python import print_python
from tinyxla.loopir.kernels.registry import step_for
from tinyxla.loopir.lower import emit, pointwise
from tinyxla.loopir.lower.emit import LoweredKernel, Storage, Temporary
from tinyxla.ops import calls, elementwise, movement, reduction
from tinyxla.ops.products import contraction
from tinyxla.runtime.threads import num_threads
from tinyxla.shapes import Shape, element_type
from tinyxla.tracing.core import trace

Array = np.ndarray[Any, Any]

SEEDS = range(200)
F32 = element_type("f32")


def compiled(computation: Computation) -> CompiledModule:
    return CompiledModule(Module("test", computation))


def traced(function: Callable[..., Any], *operands: Array) -> Computation:
    return trace(lambda *x: [function(*x)], [Shape.of(x) for x in operands], "test")[0]


# --- random graphs ----------------------------------------------------------------------------------------------------


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("seed", SEEDS)
def test_passes_keep_values(seed: int) -> None:
    case = graphs.random_case(seed)
    last = case.computation
    verify(Module("random", last))

    def check(name: str, computation: Computation) -> None:
        nonlocal last
        if computation != last:  # many a pass finds nothing to do
            verify(Module(name, computation))
            case.check(calls.evaluate(computation, case.operands), name)
            last = computation

    pipeline.optimize(case.computation, check)


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("seed", SEEDS[:20])
@pytest.mark.parametrize("number", range(len(pipeline.GRAPH)), ids=[x.name for x in pipeline.GRAPH])
def test_each_pass_keeps_values_by_itself(number: int, seed: int) -> None:
    case = graphs.random_case(seed)
    name, apply, *_ = pipeline.GRAPH[number]
    computation = apply(case.computation)
    verify(Module(name, computation))
    case.check(calls.evaluate(computation, case.operands), name)


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("seed", SEEDS)
def test_compiled_is_interpreted(seed: int) -> None:
    """Twice, since the second call finds used memory; with the same bits, on one thread and on two."""
    case = graphs.random_case(seed)
    module = compiled(case.computation)
    before = [x.tobytes() for x in case.operands]
    with num_threads(1):
        first = module(case.operands)
    with num_threads(2):
        second = module(case.operands)
    case.check(first, "first call")
    assert [x.tobytes() for x in first] == [x.tobytes() for x in second]
    assert before == [x.tobytes() for x in case.operands], "operands were written to"


def test_random_graphs_reach_every_kind_of_step() -> None:
    """With many of each, or the tests above would not say much."""
    found: dict[str, int] = {}
    for seed in SEEDS:
        case = graphs.random_case(seed)
        for step in plan(pipeline.optimize(case.computation), step_for).steps:
            name = step.kind if isinstance(step, LoopNest) else type(step).__name__
            found[name] = found.get(name, 0) + 1
    least = {"loop": 200, "row": 40, "column": 12, "split": 5, "LibraryKernel": 30}
    assert all(found.get(name, 0) >= count for name, count in least.items()), found
    assert found.get("BlasCall", 0) + found["LibraryKernel"] >= 40, found


def test_random_graphs_have_every_type_and_are_large_and_empty() -> None:
    cases = [graphs.random_case(seed) for seed in SEEDS]
    shapes = [x.shape for case in cases for x in case.computation.instructions if isinstance(x.shape, Shape)]
    assert {shape.element_type.name for shape in shapes} == {"f32", "f64", "bf16", "c64", "s32", "pred"}
    assert {0, 1, 2, 3, 4, 5} <= {shape.rank for shape in shapes}
    assert any(shape.size == 0 for shape in shapes)
    assert any(shape.size > 4 * PARALLEL_CHUNK_ELEMENTS for shape in shapes)


# --- kernels as Python ------------------------------------------------------------------------------------------------


class InPython:
    """A computation run by the Python text of its kernels, with memory of its own for each value."""

    def __init__(self, computation: Computation) -> None:
        self.computation = pipeline.optimize(computation)
        self.plan = plan(self.computation, step_for)
        self.users = self.computation.users()

    def __call__(self, operands: Sequence[Array]) -> list[Array]:
        self.memory: dict[Storage, Array] = {}
        for parameter, x in zip(self.computation.parameters, operands, strict=True):
            self.memory[parameter] = np.ascontiguousarray(x).ravel()
        for step in self.plan.steps:
            if isinstance(step, LoopNest):
                for lowered in pointwise.lower(step, self.plan, self.users):
                    self._run(lowered)
            else:
                self._evaluate(step)
        return [self._array(x) for x in self.computation.outputs]

    def _run(self, lowered: LoweredKernel) -> None:
        namespace: dict[str, Any] = {}
        exec(print_python(lowered.kernel, "kernel"), namespace)
        arrays = [self._flat(x) for x in lowered.arguments]
        with np.errstate(all="ignore"):
            for first in range(0, lowered.extent, lowered.grain):
                namespace["kernel"](*arrays, first, min(first + lowered.grain, lowered.extent))

    def _evaluate(self, step: SingleOp) -> None:
        x = step.root
        with np.errstate(all="ignore"):
            found = x.op.evaluate(*map(self._array, x.operands), **x.attributes._asdict())  # type: ignore[attr-defined]
        for target in fusion_plan.results_of(x, self.users):
            value = found[target.attributes.index] if target is not x else found
            self.memory[target] = np.array(value).ravel()

    def _flat(self, x: Storage) -> Array:
        if isinstance(x, Instruction) and x.op is movement.constant:
            return np.ascontiguousarray(x.attributes.literal.value).ravel()
        if x not in self.memory:
            shape = x.shape if isinstance(x, Temporary) else x.array_shape
            self.memory[x] = np.empty(shape.size, shape.dtype)
        return self.memory[x]

    def _array(self, x: Instruction) -> Array:
        return self._flat(fusion_plan.buffer_of(x)).reshape(x.array_shape.dimensions)


@pytest.mark.parametrize(
    "seed", [seed for seed in SEEDS if graphs.REGIMES[seed % len(graphs.REGIMES)].most_elements < 1000]
)
def test_kernels_do_what_their_python_text_says(seed: int) -> None:
    case = graphs.random_case(seed)
    case.check(InPython(case.computation)(case.operands), "in Python")


@pytest.mark.parametrize(
    ("kind", "sizes", "dimensions"),
    [("row", (70, 5), (1,)), ("column", (70, 5), (0,)), ("split", (40_000,), (0,)), ("split", (2, 20_000), (1,))],
)
def test_reductions_in_python_and_compiled(kind: str, sizes: tuple[int, ...], dimensions: tuple[int, ...]) -> None:
    """Sums, the largest, and products of signs, from initial values that count once."""
    x = np.random.default_rng(0).integers(-9, 9, sizes).astype(np.int32)

    def function(x: Any) -> list[Any]:
        start = movement.full(3, np.int32)
        body = [reduction.scalar_computation(op, np.dtype(np.int32)) for op in ("add", "maximum", "xor")]
        return [reduction.reduce(x, start, dimensions=dimensions, to_apply=b) for b in body]

    computation = trace(function, [Shape.of(x)], "test")[0]
    module = compiled(computation)
    assert {step.kind for step in module.plan.steps if isinstance(step, LoopNest)} == {kind}
    expected = calls.evaluate(computation, [x])
    for run in (module, InPython(computation)):
        for found, wanted in zip(run([x]), expected, strict=True):
            np.testing.assert_array_equal(found, wanted)


def test_a_reduction_without_a_known_neutral_element_counts_its_initial_value_once() -> None:
    """x, y -> x + y + x * y, which is associative, from 2, which is not neutral: pieces must not all start there."""
    shape = Shape(element_type("s32"))
    x, y = (Instruction(movement.parameter, (), movement.Parameter(k, shape), shape) for k in (0, 1))
    none = elementwise.add.attributes()
    total = Instruction(elementwise.add, (x, y), none, shape)
    product = Instruction(elementwise.mul, (x, y), none, shape)
    root = Instruction(elementwise.add, (total, product), none, shape)
    body = Computation("circle", [x, y], [x, y, total, product, root], root)
    values = np.random.default_rng(0).integers(-3, 3, 90_000).astype(np.int32)
    computation = traced(
        lambda v: reduction.reduce(v, movement.full(2, np.int32), dimensions=(0,), to_apply=body), values
    )
    np.testing.assert_array_equal(compiled(computation)([values])[0], calls.evaluate(computation, [values])[0])


def test_what_is_made_of_column_sums_reads_other_arrays_where_it_should() -> None:
    """The columns are several dimensions, which are one loop unless something reads them in another order."""
    rng = np.random.default_rng(0)
    x, y, z = (rng.normal(size=sizes).astype(np.float32) for sizes in ((50, 30, 40), (30, 40), (40, 30)))

    def function(x: Any, y: Any, z: Any) -> Any:
        sums = reduction.reduce_sum(x, (0,))
        turned = elementwise.add(movement.reverse(y, dimensions=(1,)), movement.transpose(z, permutation=(1, 0)))
        return elementwise.add(sums, turned)

    computation = traced(function, x, y, z)
    np.testing.assert_allclose(compiled(computation)([x, y, z])[0], x.sum(0) + y[:, ::-1] + z.T, 1e-4, 1e-4)


def test_padding_several_dimensions_of_size_one() -> None:
    x = np.full((2, 1, 1), 5, np.float32)
    config = ((0, 0, 0), (1, 1, 0), (2, 0, 0))
    computation = traced(lambda x: movement.pad(x, movement.full(0, np.float32), padding_config=config), x)
    expected = np.zeros((2, 3, 3))
    expected[:, 1, 2] = 5
    np.testing.assert_array_equal(compiled(computation)([x])[0], expected)


def test_a_costly_row_that_loops_of_different_ranks_read() -> None:
    x = np.random.default_rng(0).normal(size=(64, 2, 5)).astype(np.float32)

    def function(x: Any) -> list[Any]:
        sines = elementwise.sin(x)
        repeated = movement.broadcast(sines, sizes=(64, 2, 5, 3), dimensions=(0, 1, 2))
        most = reduction.reduce_max(sines, (1, 2))
        total = reduction.reduce_sum(elementwise.mul(sines, sines), (1, 2))
        return [repeated, most, elementwise.mul(most, total)]

    computation = trace(function, [Shape.of(x)], "test")[0]
    found = compiled(computation)([x])
    for one, wanted in zip(found, calls.evaluate(computation, [x]), strict=True):
        np.testing.assert_allclose(one, wanted, 1e-5, 1e-6)


# --- memory for temporaries -------------------------------------------------------------------------------------------

_LIVES = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12), st.integers(0, 5000)), max_size=30)


def _assigned(temporaries: list[tuple[int, int, int]]) -> tuple[dict[int, tuple[int, int]], dict[int, int]]:
    lives = {k: (min(a, b), max(a, b)) for k, (a, b, _) in enumerate(temporaries)}
    return lives, {k: size for k, (_, _, size) in enumerate(temporaries)}


@settings(max_examples=300)
@given(_LIVES, st.integers(0, 5))
def test_temporaries_that_live_together_do_not_overlap(temporaries: list[tuple[int, int, int]], hosts: int) -> None:
    """The first are hosts, in whose memory the others may be."""
    lives, sizes = _assigned(temporaries)
    first = [k for k in lives if k < hosts]
    places, total = arena.arena_offsets(lives, sizes, first)
    assert places.keys() == lives.keys() - set(first)
    for k, (host, offset) in places.items():
        assert offset % LINE_BYTES == 0
        assert 0 <= offset <= offset + sizes[k] <= (total if host is None else sizes[host])
    places.update({k: (k, 0) for k in first})
    for j, k in itertools.combinations(places, 2):
        together = lives[j][0] <= lives[k][1] and lives[k][0] <= lives[j][1]
        (one, at_j), (other, at_k) = places[j], places[k]
        apart = one != other or at_j + sizes[j] <= at_k or at_k + sizes[k] <= at_j
        assert apart or not together or not (sizes[j] and sizes[k])


def test_temporaries_are_in_a_result_before_it_is_made() -> None:
    places, total = arena.arena_offsets(
        {"result": (3, 9), "early": (0, 2), "late": (2, 4)},
        dict.fromkeys(("result", "early", "late"), 4096),
        ["result"],
    )
    assert places == {"early": ("result", 0), "late": (None, 0)}
    assert total == 4096


@settings(max_examples=300)
@given(_LIVES)
def test_the_arena_is_as_small_as_it_should_be(temporaries: list[tuple[int, int, int]]) -> None:
    """Between what lives at one time and all of it, counted in aligned pieces."""
    lives, sizes = _assigned(temporaries)
    _, total = arena.arena_offsets(lives, sizes)
    aligned = {k: -(-max(size, 1) // LINE_BYTES) * LINE_BYTES for k, size in sizes.items()}
    at_once = [sum(aligned[k] for k, (a, b) in lives.items() if a <= step <= b) for step in range(13)]
    assert max(at_once, default=0) <= total <= sum(aligned.values())


def test_temporaries_in_a_row_share_two_places() -> None:
    """Each lives until the next is made."""
    lives = {k: (k, k + 1) for k in range(20)}
    _, total = arena.arena_offsets(lives, dict.fromkeys(lives, 1000))
    assert total == 2 * 1024


# --- products ---------------------------------------------------------------------------------------------------------


def _layouts(batches: int) -> list[tuple[int, ...]]:
    """Orders in memory of batch dimensions, then the two of a matrix, that the BLAS takes as they are."""
    batch = tuple(range(batches))
    return [(*batch, batches, batches + 1), (*batch, batches + 1, batches)]


def _product(operands: Sequence[Array], orders: Sequence[tuple[int, ...]], batches: int) -> Computation:
    """Transposes of operands that lie in memory in these orders, and the product of matrices."""

    def function(x: Any, y: Any) -> Any:
        turned = [
            movement.transpose(v, permutation=tuple(int(d) for d in np.argsort(order)))
            for v, order in zip((x, y), orders, strict=True)
        ]
        batch = tuple(range(batches))
        return contraction.dot(*turned, **contraction.Dot((batches + 1,), (batches,), batch, batch)._asdict())

    return traced(function, *operands)


def _operands(
    sizes: Sequence[int], orders: Sequence[tuple[int, ...]], dtype: Any, batch: Sequence[int] = ()
) -> tuple[list[Array], Array]:
    """Operands in these orders, and their product."""
    m, k, n = sizes
    rng = np.random.default_rng(0)
    plain = [rng.normal(size=(*batch, *pair)) for pair in ((m, k), (k, n))]
    if np.dtype(dtype).kind == "c":
        plain = [x + 1j * rng.normal(size=x.shape) for x in plain]
    laid = [np.ascontiguousarray(x.transpose(order)).astype(dtype) for x, order in zip(plain, orders, strict=True)]
    return laid, np.matmul(*plain)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
@pytest.mark.parametrize("batch", [(), (4,), (2, 3)], ids=str)
def test_products_of_all_layouts_without_a_copy(batch: tuple[int, ...], dtype: Any) -> None:
    for orders in itertools.product(_layouts(len(batch)), repeat=2):
        operands, expected = _operands((5, 7, 6), orders, dtype, batch)
        module = compiled(_product(operands, orders, len(batch)))
        assert [type(step) for step in module.plan.steps] == [BlasCall], orders
        np.testing.assert_allclose(module(operands)[0], expected, 1e-4, 1e-4)


def test_a_batch_that_is_the_middle_dimension_is_not_copied() -> None:
    orders = [(1, 0, 2), (1, 0, 2)]
    operands, expected = _operands((5, 7, 6), orders, np.float32, (4,))
    module = compiled(_product(operands, orders, 1))
    assert [type(step) for step in module.plan.steps] == [BlasCall]
    np.testing.assert_allclose(module(operands)[0], expected, 1e-4, 1e-4)


@pytest.mark.parametrize("sizes", [(1, 7, 6), (5, 1, 6), (5, 7, 1), (1, 1, 1), (1, 7, 1), (0, 3, 2), (3, 0, 2)])
def test_thin_and_empty_products(sizes: tuple[int, int, int]) -> None:
    for batch in ((), (1,), (3,)):
        for orders in itertools.product(_layouts(len(batch)), repeat=2):
            operands, expected = _operands(sizes, orders, np.float32, batch)
            module = compiled(_product(operands, orders, len(batch)))
            np.testing.assert_allclose(module(operands)[0], expected, 1e-4, 1e-4)


@pytest.mark.parametrize("dtype", ["f32", "c128", "s32", "bf16"])
def test_products_over_any_dimensions(dtype: str) -> None:
    """All ways to contract one or two dimensions of arrays of rank three, with and without a batch: against einsum."""
    rng = np.random.default_rng(0)
    x = rng.integers(-4, 5, (2, 3, 4)).astype(element_type(dtype).dtype)
    kind = np.complex128 if dtype == "c128" else np.float64
    for count, batched in ((1, False), (2, False), (1, True)):
        for left in itertools.permutations(range(3), count + batched):
            for right in itertools.permutations(range(3), count + batched):
                place = dict(zip(right, left, strict=True))
                rest = iter([2, 4, 3])
                sizes = [x.shape[place[d]] if d in place else next(rest) for d in range(3)]
                y = rng.integers(-4, 5, sizes).astype(x.dtype)
                dims = contraction.Dot(left[batched:], right[batched:], left[:batched], right[:batched])
                computation = traced(lambda x, y, d=dims: contraction.dot(x, y, **d._asdict()), x, y)
                names = ["ijk"[place[d]] if d in place else "abc"[d] for d in range(3)]
                kept = [n for d, n in enumerate("ijk") if d in left[:batched]]
                kept += [n for d, n in enumerate("ijk") if d not in left]
                kept += [n for d, n in enumerate(names) if d not in right]
                expected = np.einsum(f"ijk,{''.join(names)}->{''.join(kept)}", x.astype(kind), y.astype(kind))
                found = compiled(computation)([x, y])[0].astype(kind)
                np.testing.assert_allclose(found, expected, 2e-2 if dtype == "bf16" else 1e-6, 1e-6)


# --- planted errors ---------------------------------------------------------------------------------------------------


def _found() -> bool:
    """Whether the test of compiled graphs notices something on any of the seeds."""
    for seed in SEEDS:
        case = graphs.random_case(seed)
        try:
            case.check(compiled(case.computation)(case.operands))
        except AssertionError:
            return True
    return False


def _swapped(computation: Computation) -> Computation:
    def visit(rewriter: Any, x: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        return rewriter.emit(elementwise.sub, *operands[::-1]) if x.op is elementwise.sub else None

    return rewrite(computation, visit)


def _drops_zero(r: Any, x: Instruction, o: tuple[Instruction, ...]) -> Instruction | None:
    return o[0]


def _not_reversed(low: Any, x: Instruction, coordinates: Any) -> Any:
    return low.value(x.operands[0], coordinates)


def _half_as_far(*memory: Any) -> tuple[dict[Any, tuple[Any, int]], int]:
    places, total = arena.arena_offsets(*memory)
    return {k: (host, offset // 2 // 64 * 64) for k, (host, offset) in places.items()}, total


def test_random_graphs_are_right_unless_something_is_broken() -> None:
    assert not _found()


@pytest.mark.parametrize(
    ("where", "name", "broken"),
    [
        (pipeline, "GRAPH", [*pipeline.GRAPH, pipeline.Pass("swap", _swapped, "Exchanges operands.")]),
        (algebraic_simplifier, "RULES", {**algebraic_simplifier.RULES, "add": (_drops_zero,)}),
        (emit, "_MOVEMENT", {**emit._MOVEMENT, "reverse": _not_reversed}),  # pyright: ignore[reportPrivateUsage]
        (executable, "arena_offsets", _half_as_far),
        (reachability.Reachability, "reaches", lambda graph, a, b: False),
    ],
    ids=["a pass", "an identity", "a lowering", "memory", "fusion"],
)
def test_planted_errors_are_found(where: Any, name: str, broken: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """None of them lets a kernel leave its memory: the wrong values have to be noticed, not a crash."""
    monkeypatch.setattr(where, name, broken)
    assert _found()


def test_a_pass_that_breaks_the_graph_is_found() -> None:
    def broken(computation: Computation) -> Computation:
        made = computation.copy()[0]
        made.instructions.reverse()
        return made

    case = graphs.random_case(0)
    with pytest.raises(VerificationError, match="comes before its operand"):
        verify(Module("broken", broken(case.computation)))
