"""The communication of partitioned programs: numbers of collective operations of each kind, as textbooks count them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest

import tinyxla as tx
import tinyxla.numpy as jnp
from tests.support.partitioned import Mesh, check_partitioned, collectives_of
from tinyxla.compiler.passes.inline_calls import inline_calls
from tinyxla.hlo import Computation
from tinyxla.partitioning.spmd import partition
from tinyxla.tracing.shardings import Spec, axes_of

GRID: Mesh = {"data": 2, "model": 2}
LINE: Mesh = {"x": 4}


class Case(NamedTuple):
    """A program, its arguments as shapes or arrays, how they are split, and what devices tell each other."""

    function: Callable[..., Any]
    arguments: Sequence[Any]
    mesh: Mesh
    specs: Sequence[tuple[Any, ...]]
    expected: dict[str, int]

    def arrays(self) -> list[Any]:
        random = np.random.default_rng(0)
        return [
            random.normal(size=x).astype(np.float32) if isinstance(x, tuple) else np.asarray(x) for x in self.arguments
        ]

    def graph(self) -> Computation:
        return tx.jit(self.function).lower(*self.arrays()).module.entry

    def splits(self) -> list[Spec]:
        return [tuple(axes_of(part) for part in spec) for spec in self.specs]


# --- networks ---------------------------------------------------------------------------------------------------------


def _perceptron(x: Any, w: Any, v: Any) -> Any:
    return jnp.tanh(x @ w) @ v


def _loss(weights: Any, x: Any, y: Any) -> Any:
    return jnp.mean((_perceptron(x, *weights) - y) ** 2)


def _gradients(w: Any, v: Any, x: Any, y: Any) -> Any:
    return tx.value_and_grad(_loss)((w, v), x, y)


def _step(w: Any, v: Any, x: Any, y: Any) -> Any:
    _, (dw, dv) = tx.value_and_grad(_loss)((w, v), x, y)
    return w - 0.1 * dw, v - 0.1 * dv


def _normalized(x: Any) -> Any:
    centred = x - jnp.mean(x, -1, keepdims=True)
    return centred / jnp.sqrt(jnp.mean(centred**2, -1, keepdims=True) + 1e-5)


def _attention(x: Any, q: Any, k: Any, v: Any, o: Any) -> Any:
    batch, length, width = x.shape
    query, key, value = ((x @ w).reshape(batch, length, 4, width // 4) for w in (q, k, v))
    weights = tx.nn.softmax(jnp.einsum("bshd,bthd->bhst", query, key) / 2, -1)
    return jnp.einsum("bhst,bthd->bshd", weights, value).reshape(batch, length, width) @ o


def _block(x: Any, *weights: Any) -> Any:
    x = x + _attention(_normalized(x), *weights[:4])
    return x + _perceptron(_normalized(x), *weights[4:])


def _block_gradients(x: Any, *weights: Any) -> Any:
    return tx.value_and_grad(lambda w: jnp.mean(_block(x, *w) ** 2))(weights)


def _adam(x: Any, *arrays: Any) -> Any:
    weights, means, squares = arrays[:6], arrays[6:12], arrays[12:]
    _, gradients = _block_gradients(x, *weights)
    means = [0.9 * m + 0.1 * g for m, g in zip(means, gradients, strict=True)]
    squares = [0.99 * s + 0.01 * g * g for s, g in zip(squares, gradients, strict=True)]
    triples = zip(weights, means, squares, strict=True)
    return [w - 0.1 * m / (jnp.sqrt(s) + 1e-8) for w, m, s in triples], means, squares


WEIGHTS = (*((16, 16),) * 4, (16, 64), (64, 16))
BY_COLUMN, BY_ROW = (None, "model"), ("model", None)
TENSOR = (BY_COLUMN, BY_COLUMN, BY_COLUMN, BY_ROW, BY_COLUMN, BY_ROW)
PAIR = ((16, 32), (32, 16), (8, 16), (8, 16))
BATCH = ("data", None, None)
LONG = ((16, 32), (32, 16), (512, 16), (512, 16))
LABELS = np.arange(16, dtype=np.int32) * 3

NETWORKS = {
    "data parallel": Case(_gradients, PAIR, {"data": 4}, [(None, None)] * 2 + [("data", None)] * 2, {"all-reduce": 3}),
    "tensor parallel": Case(
        _perceptron, ((8, 16), (16, 32), (32, 16)), GRID, [("data", None), BY_COLUMN, BY_ROW], {"all-reduce": 1}
    ),
    "tensor parallel gradients": Case(
        _gradients, PAIR, GRID, [BY_COLUMN, BY_ROW, ("data", None), ("data", None)], {"all-reduce": 4}
    ),
    "fully sharded weights": Case(
        _step, LONG, {"data": 4}, [("data", None)] * 4, {"all-gather": 2, "reduce-scatter": 2}
    ),
    "transformer block": Case(_block, ((4, 8, 16), *WEIGHTS), GRID, [BATCH, *TENSOR], {"all-reduce": 2}),
    "its gradients": Case(_block_gradients, ((4, 8, 16), *WEIGHTS), GRID, [BATCH, *TENSOR], {"all-reduce": 10}),
    "its training step": Case(_adam, ((4, 8, 16), *WEIGHTS * 3), GRID, [BATCH, *TENSOR * 3], {"all-reduce": 9}),
}

# --- simulations and arrays -------------------------------------------------------------------------------------------


def _convolved(x: Any, kernel: Any) -> Any:
    return tx.lax.conv(x, kernel, (1, 1), "SAME")


def _kernel_gradient(x: Any, kernel: Any) -> Any:
    return tx.grad(lambda k: jnp.sum(_convolved(x, k) ** 2))(kernel)


IMAGES = ((4, 3, 32, 32), (8, 3, 3, 3))
BY_IMAGE_AND_ROW = [("data", None, "model", None), (None,) * 4]
ROWS = [("x", None)]

ARRAYS = {
    "differences": Case(
        lambda u: jnp.sum((u[1:] - u[:-1]) ** 2), ((64, 8),), LINE, ROWS, {"all-reduce": 1, "collective-permute": 1}
    ),
    "padded stencil": Case(
        lambda u: u + 0.1 * jnp.pad(u[2:] - 2 * u[1:-1] + u[:-2], ((1, 1), (0, 0))),
        ((64, 8),),
        LINE,
        ROWS,
        {"collective-permute": 3},
    ),
    "stencil in place": Case(
        lambda u: u.at[1:-1].add(0.1 * (u[2:] - 2 * u[1:-1] + u[:-2])),
        ((64, 8),),
        LINE,
        ROWS,
        {"collective-permute": 3},
    ),
    "convolution": Case(_convolved, IMAGES, GRID, BY_IMAGE_AND_ROW, {"collective-permute": 2}),
    "gradient of a kernel": Case(
        _kernel_gradient, IMAGES, GRID, BY_IMAGE_AND_ROW, {"all-reduce": 2, "collective-permute": 4}
    ),
    "lookup": Case(lambda e, i: e[i], ((64, 8), LABELS), LINE, [("x", None), (None,)], {"all-reduce": 1}),
    "gradient of a lookup": Case(
        lambda e, i: tx.grad(lambda e: jnp.sum(e[i] ** 2))(e),
        ((64, 8), LABELS),
        GRID,
        [BY_ROW, ("data",)],
        {"all-reduce": 2},
    ),
    "cumulative sum": Case(jnp.cumsum, ((64,),), LINE, [("x",)], {"all-gather": 1}),
    "argmax": Case(jnp.argmax, ((64,),), LINE, [("x",)], {"all-gather": 2}),
    "two-dimensional transform": Case(jnp.fft.fft2, ((64, 64),), LINE, ROWS, {"all-to-all": 2}),
    "sort": Case(lambda x: jnp.sort(x, 0), ((64, 64),), LINE, ROWS, {"all-to-all": 1}),
    "random numbers": Case(lambda x: x + tx.random.normal(tx.random.PRNGKey(0), x.shape), ((64, 64),), LINE, ROWS, {}),
}
CASES = NETWORKS | ARRAYS


@pytest.mark.parametrize("name", CASES)
def test_collectives_of_a_program(name: str) -> None:
    case = CASES[name]
    assert collectives_of(case.graph(), case.mesh, case.splits()) == case.expected


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("name", CASES)
def test_values_of_a_program(name: str) -> None:
    case = CASES[name]
    check_partitioned(case.graph(), case.mesh, case.splits(), case.arrays())


def test_a_program_says_what_it_gathers() -> None:
    case = Case(lambda x: jnp.sort(x.ravel()), ((8, 8),), LINE, ROWS, {})
    (gather,) = partition(inline_calls(case.graph()), LINE, case.splits()).gathers
    assert (gather.instruction and gather.instruction.op.name, str(gather.shape), gather.axes) == (
        "sort",
        "f32[64]",
        ("x",),
    )
    assert "sort" in str(gather)
    assert str(gather).endswith("gathers f32[64] along x")


def test_a_program_with_rules_gathers_nothing() -> None:
    for name in ("its training step", "stencil in place", "lookup"):
        case = CASES[name]
        assert not partition(inline_calls(case.graph()), case.mesh, case.splits()).gathers
