"""Kernels that differ in sizes only are compiled once: new sizes of arrays compile nothing, and change no result."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

import tinyxla as tx
import tinyxla.numpy as jnp
from tinyxla import lax
from tinyxla.backends import compile_module
from tinyxla.backends.numba.emit.printer import print_llvm
from tinyxla.backends.numba.jit.engine import cache_info
from tinyxla.compiler.pipeline import compile_program
from tinyxla.loopir.ir.fingerprint import kernel_fingerprint
from tinyxla.loopir.ir.loop_ir import Builder, Kernel, Literal
from tinyxla.loopir.ir.print_python import print_python
from tinyxla.loopir.lower import equal_nests
from tinyxla.loopir.lower.emit import LoweredKernel
from tinyxla.loopir.passes import specialization


@pytest.fixture(autouse=True)
def _nothing_known() -> Iterator[None]:
    tx.clear_caches()
    yield
    tx.clear_caches()


def compilations(function: Callable[..., object], *arguments: object) -> int:
    """How many kernels a call compiles, or finds on disk."""
    before = cache_info()
    function(*arguments)
    after = cache_info()
    return after.compilations + after.disk_hits - before.compilations - before.disk_hits


def training_step() -> Callable[..., object]:
    def loss(parameters, inputs, labels):
        hidden, out = parameters
        logits = jnp.tanh(inputs @ hidden) @ out
        chosen = jnp.take_along_axis(logits, labels[:, None], axis=1)[:, 0]
        return jnp.mean(tx.nn.logsumexp(logits, axis=-1) - chosen)

    @tx.jit
    def step(parameters, inputs, labels):
        gradient = tx.grad(loss)(parameters, inputs, labels)
        return [p - 0.1 * g for p, g in zip(parameters, gradient, strict=True)]

    return step


def test_equal_programs_have_equal_kernels() -> None:
    """Also where rows of several intermediates are cached, whose order must not depend on where objects lie."""

    def scaled(x, y, z):
        return (x + y + z) / (x * y * z).sum(1, keepdims=True)

    def kernels(spacing: int) -> str:
        function = tx.jit(lambda x: scaled(jnp.exp(x), jnp.sin(x), jnp.log(x)))
        kept.append([object() for _ in range(37 * spacing)])
        kept.append(block := compile_program(function.lower(shape).module.entry, (), lambda *_: None)[0])
        works = [step.work for step in block.steps]
        return "".join(print_python(work.kernel) for work in works if isinstance(work, LoweredKernel))

    kept: list[object] = []
    shape = tx.ShapeDtypeStruct((40, 300), "float32")
    assert len({kernels(spacing) for spacing in range(12)}) == 1


def test_a_new_batch_size_compiles_nothing(generator: np.random.Generator) -> None:
    step = training_step()
    parameters = [jnp.array(generator.standard_normal(shape, np.float32)) for shape in ((64, 96), (96, 10))]

    def batch(size: int) -> tuple[object, ...]:
        inputs = jnp.array(generator.standard_normal((size, 64), np.float32))
        return parameters, inputs, jnp.array(generator.integers(0, 10, size, np.int32))

    assert compilations(step, *batch(72)) > 5
    assert [compilations(step, *batch(size)) for size in (80, 100, 97, 200)] == [0, 0, 0, 0]


PROGRAMS: dict[str, tuple[Callable[..., object], Callable[[int], tuple[tuple[int, ...], ...]]]] = {
    "softmax": (lambda x: tx.nn.softmax(x), lambda n: ((20, n),)),
    "variance": (lambda x: jnp.var(x, axis=0), lambda n: ((n, 33),)),
    "transpose": (lambda x: jnp.swapaxes(x, 0, 1) * 2, lambda n: ((n, 3, 40),)),
    "roll": (lambda x: jnp.roll(x, 17, axis=1) + jnp.pad(x, ((0, 0), (19, 0)))[:, : x.shape[1]], lambda n: ((5, n),)),
    "pairs": (lambda x: jnp.sum((x[:, None] - x[None]) ** 2, -1), lambda n: ((n, 3),)),
    "middle": (lambda x: jnp.max(x, 1), lambda n: ((3, n, 5),)),
    "diagonal": (lambda x: jnp.diag(x[0]), lambda n: ((1, n),)),
    "compared": (lambda x: jnp.where(jnp.arange(x.shape[1]) < x.shape[1] // 2, x, -x), lambda n: ((9, n),)),
    "windows": (lambda x: tx.lax.reduce_window(x, 0.0, tx.lax.add, (17,), (2,), "SAME"), lambda n: ((n,),)),
    "sorted": (lambda x: jnp.sort(x), lambda n: ((3, n),)),
    "cumulative": (lambda x: jnp.cumsum(x, 1), lambda n: ((3, n),)),
}


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("name", PROGRAMS)
def test_results_do_not_depend_on_the_sizes_met_before(name: str, generator: np.random.Generator) -> None:
    function, shapes = PROGRAMS[name]
    for size in (64, 96, 100, 17, 33, 512, 1030, 700):
        arguments = [generator.standard_normal(shape, np.float32) for shape in shapes(size)]
        lowered = tx.jit(function).lower(*arguments)
        expected = compile_module(lowered.module, "interpreter")(arguments)[0]
        np.testing.assert_allclose(lowered.compile()(*arguments).numpy(), expected, rtol=2e-5, atol=2e-5)


def rows(count: int, scale: float, divisor: int = 16) -> Kernel:
    b = Builder("rows")
    source, target = b.argument("f32"), b.argument("f32", True)
    with b.loop(b.kernel.first, b.kernel.last) as (i, _), b.loop(0, count) as (j, _):
        place = b.add(b.mul(i, count), j)
        value = b.compute("multiply", "f32", b.load(source, b.floordiv(place, divisor)), Literal("f32", scale))
        b.store(target, place, value)
    return b.kernel


def test_what_costs_nothing_comes_from_the_table() -> None:
    kernel, words = specialization.generalize(rows(1000, 1 / 64))
    assert [value.type for value in kernel.parameters] == ["s64", "f32"]  # the end of the loop and the float
    assert words == [1000, int(np.float32(1 / 64).view(np.int32))]
    again, others = specialization.generalize(rows(2000, 1 / 100))
    assert len(others) == 2
    assert kernel_fingerprint(again) != kernel_fingerprint(kernel)  # the stride is known
    assert "n1" in print_python(kernel)


def test_numbers_that_vary_are_known_no_longer() -> None:
    texts = [
        kernel_fingerprint(specialization.generalize(rows(count, 0.5))[0]) for count in (100, 101, 102, 103, 100, 104)
    ]
    assert len(set(texts[:2])) == 2
    assert len(set(texts[2:])) == 1


@pytest.mark.parametrize("dtype", [np.float32, np.uint8])
def test_short_rows_of_unknown_length_share_a_kernel(dtype: type, generator: np.random.Generator) -> None:
    """Those that leave no rest, too."""
    row_maxima = tx.jit(lambda x: jnp.max(x, 1))
    x = generator.integers(0, 200, (70, 500)).astype(dtype)
    for length in (100, 101, 102):
        assert compilations(row_maxima, x[:, :length]) == 1
    for length in (103, 128, 200, 31, 500):
        assert compilations(row_maxima, x[:, :length]) == 0
        np.testing.assert_array_equal(row_maxima(x[:, :length]), x[:, :length].max(1))


def test_the_rest_of_a_row_of_unknown_length_is_masked() -> None:
    texts = [
        print_llvm(specialization.generalize(rows(count, 0.5))[0], masked_tails=True) for count in (100, 101, 102, 128)
    ]
    assert [text.count(".tail.body:") for text in texts] == [0, 0, 1, 1]


def test_numbers_that_are_no_sizes_stay() -> None:
    assert specialization.generalize(rows(4, 0.37))[1] == []


def test_what_runs_once_knows_nothing() -> None:
    assert len(specialization.generalize(rows(100, 0.5), is_cold=True)[1]) == 3


def test_another_value_of_a_closed_number_is_another_kernel() -> None:
    """The key tells known numbers apart: code for 100 columns must not run for 101."""
    first, second = (specialization.generalize(rows(count, 0.5)) for count in (100, 101))
    assert kernel_fingerprint(first[0]) != kernel_fingerprint(second[0])
    assert first[1] == second[1] == []


def test_elements_of_an_unrolled_program_are_computed_by_few_kernels() -> None:
    def unrolled(x):
        for i in range(1, 160):
            x = x.at[i].set(x[i - 1] * 0.5 + x[i])
        return x

    x = np.linspace(1, 2, 200, dtype=np.float32)
    expected = x.copy()
    for i in range(1, 160):
        expected[i] = expected[i - 1] * np.float32(0.5) + expected[i]
    found = []
    assert compilations(lambda: found.append(tx.jit(unrolled)(x))) < 80
    np.testing.assert_allclose(np.asarray(found[0]), expected, rtol=1e-6)


def test_equal_nests_of_two_loops_are_lowered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def loop(x):
        return lax.fori_loop(0, 5, lambda i, y: jnp.sin(y) * 0.5 + jnp.cos(y).mean(), x)

    def nests_of(count: int) -> int:
        lowered = []
        original = equal_nests.lower
        with monkeypatch.context() as patch:
            patch.setattr(equal_nests, "lower", lambda nest, *more: lowered.append(nest) or original(nest, *more))
            tx.jit(lambda x: [loop(x[k]) for k in range(count)])(np.ones((count, 300), np.float32))
        tx.clear_caches()
        return len(lowered)

    assert nests_of(4) == nests_of(2)
    x = np.linspace(0, 1, 600, dtype=np.float32).reshape(2, 300)
    found = tx.jit(lambda x: [loop(x[k]) for k in range(2)])(x)
    for row, y in zip(x, found, strict=True):
        with tx.disable_jit():
            np.testing.assert_allclose(np.asarray(y), np.asarray(loop(jnp.asarray(row))), rtol=1e-5)


def test_indices_of_single_elements_stay_in_the_code_until_three_are_known() -> None:
    """Also in code that runs once: elements at known indices may be vectorized."""

    def kernel_of(index: int) -> Kernel:
        b = Builder("elements")
        x, y = b.argument("f32"), b.argument("f32", written=True)
        with b.loop(b.kernel.first, b.kernel.last):
            b.store(y, 0, b.load(x, index))
        return b.kernel

    found = [specialization.generalize(kernel_of(index), is_cold=True)[1] for index in (5, 6, 5, 900, 901)]
    assert found == [[], [], [], [900], [901]]
