"""Rows of few elements that move together: the values, and that they are joined."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import tinyxla as tx
from tinyxla.compiler.pipeline import optimize
from tinyxla.hlo import Computation

Function = Callable[[Any], Callable[..., Any]]


def _crops(tx: Any) -> Callable[..., Any]:
    def crop(x: Any, start: Any) -> Any:
        return tx.lax.dynamic_slice(tx.numpy.pad(x, ((2, 2), (1, 3), (0, 0))), (start[0], start[1], 0), (6, 6, 3))

    return tx.vmap(crop)


CASES: dict[str, Function] = {
    "pad": lambda tx: lambda x, i: 2 * tx.numpy.pad(x, ((0, 0), (1, 2), (3, 0), (0, 0)), constant_values=7),
    "negative pad": lambda tx: lambda x, i: tx.lax.pad(x, 0.0, ((0, 0, 0), (1, 0, 1), (-2, 1, 0), (0, 0, 0))),
    "slice": lambda tx: lambda x, i: tx.lax.dynamic_slice(x, (0, i[0, 0], i[1, 1], 0), (4, 5, 6, 3)) + 1,
    "slice from far": lambda tx: lambda x, i: tx.lax.dynamic_slice(x, (0, 0, i[0, 0] + 2**30, 0), (4, 5, 6, 3)),
    "crops": _crops,
    "rows": lambda tx: lambda x, i: x[0, i[:, 0]],
    "patches": lambda tx: lambda x, i: tx.vmap(lambda s: tx.lax.dynamic_slice(x[0], (s[0], s[1], 0), (2, 6, 3)))(i),
}


@pytest.mark.parametrize("name", CASES)
def test_values(name: str, generator: np.random.Generator) -> None:
    x = generator.standard_normal((4, 7, 8, 3), dtype=np.float32)
    i = generator.integers(-9, 9, (4, 2), dtype=np.int32)
    found, wanted = (np.asarray(m.jit(CASES[name](m))(m.numpy.asarray(x), i)) for m in (tx, jax))
    np.testing.assert_array_equal(found, wanted, strict=True)


@pytest.mark.parametrize("name", ["pad", "slice", "crops", "patches"])
def test_no_row_is_short(name: str) -> None:
    seen: dict[str, Computation] = {}
    shapes = np.zeros((4, 7, 8, 3), np.float32), np.zeros((4, 2), np.int32)
    entry = tx.jit(CASES[name](tx)).lower(*shapes).module.entry
    optimize(entry, lambda pass_, computation: seen.__setitem__(pass_, computation))
    moved = [x for x in seen["collapse-minor-dims"].instructions if x.op.name in ("pad", "dynamic-slice", "gather")]
    assert moved
    assert all(x.operands[0].array_shape.dimensions[-1] != 3 for x in moved)


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("size", [2, 3, 4, 7, 8])
def test_long_chains_run_over_all_elements(size: int, generator: np.random.Generator) -> None:
    """One loop, whose vectors hold several short rows; what has other dimensions is read where it belongs."""

    def moved(m: Any) -> Callable[..., Any]:
        return lambda key, x, w, s: x + m.random.normal(key, x.shape) * w + s[:, None]

    sizes = ((701, size), (size,), (701,))
    operands = (np.array([1, 2], np.uint32), *(generator.standard_normal(n, dtype=np.float32) for n in sizes))
    compiled = tx.jit(moved(tx)).lower(*operands).compile()
    assert f"loop over {701 * size} " in compiled.as_text()
    found, wanted = np.asarray(compiled(*operands)), np.asarray(jax.jit(moved(jax))(*operands))
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-6)


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("size", [4, 5, 10, 25])
def test_much_work_on_short_rows_is_done_for_several_at_once(size: int, generator: np.random.Generator) -> None:
    """What is computed, and read by its row alone, lies side by side in strips."""
    key, x = np.array([1, 2], np.uint32), generator.standard_normal((4001, size), dtype=np.float32)
    compiled = tx.jit(tx.random.categorical).lower(key, x).compile()
    assert f"row over {4001 // 64} " in compiled.as_text()
    np.testing.assert_array_equal(compiled(key, x), jax.jit(jax.random.categorical)(key, x))


@pytest.mark.parametrize(
    ("size", "before", "after"), [(1000, 3, 5), (1003, 0, 0), (241, 0, 7), (4096, 8, 8), (900, 97, 3)]
)
def test_rows_of_what_is_padded_do_not_ask_where_they_are(
    size: int, before: int, after: int, generator: np.random.Generator
) -> None:
    """But for those in which an edge is."""
    x = generator.random(size) < 0.5
    compiled = tx.jit(lambda x: tx.numpy.packbits(tx.numpy.pad(x, (before, after)))).lower(x).compile()
    assert np.array_equal(compiled(x), np.packbits(np.pad(x, (before, after))))
    first, last = -(-before // 8), (before + size) // 8
    (kernel,) = compiled.kernels
    ends = f"{first}, {last}" if first else f"{last}"
    (inside,) = (part for part in kernel.source.split("for ") if f"range({ends}):" in part)
    assert "= in" in inside
    assert "min(" not in inside
