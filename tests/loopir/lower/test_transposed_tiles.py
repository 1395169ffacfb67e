"""Matrices that are read along and across, in pairs of squares that mirror each other; and arrays side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import tinyxla as tx
import tinyxla.numpy as jnp
from tinyxla.loopir.ir.loop_ir import INDEX, Builder, Compute, Literal, Value
from tinyxla.loopir.lower import transposed_tiles

_COMPUTED = {
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y,
    "multiply": lambda x, y: x * y,
    "select": lambda c, x, y: x if c else y,
}
_COMPARED = {"GE": lambda x, y: x >= y, "GT": lambda x, y: x > y, "EQ": lambda x, y: x == y}


def value_of(b: Builder, index: Any, known: dict[str, Any]) -> Any:
    """What statements that a builder collected compute from known numbers."""
    for x in b.kernel.body:
        assert isinstance(x, Compute)
        operands = [y.value if isinstance(y, Literal) else known[y.name] for y in x.operands]
        compute = _COMPARED[dict(x.attributes)["direction"]] if x.op == "compare" else _COMPUTED[x.op]
        known[x.result.name] = compute(*operands)
    return index if isinstance(index, int) else known[index.name]


@pytest.mark.parametrize("squares", range(1, 8))
def test_each_strip_comes_once_and_with_its_mirror_image(squares: int) -> None:
    pairs, end = transposed_tiles._MirroredTiles(squares, columns=2, rows=3), 99
    b = Builder("pairs")
    place = [Value(INDEX, f"p{k}") for k in range(5)]
    found = pairs.tile(b, place, end)
    seen: Counter[tuple[int, int]] = Counter()
    order: list[frozenset[int]] = []
    for at in np.ndindex(*pairs.counts):
        known = dict(zip((x.name for x in place), map(int, at), strict=True))
        strip, column = (value_of(b, x, known) for x in found)
        if strip != end:
            seen[column, strip] += 1
            order.append(frozenset([column // 2, strip // 3]))
    assert seen == {(column, strip): 1 for column in range(2 * squares) for strip in range(3 * squares)}
    assert sum(x != y for x, y in pairwise(order)) == squares * (squares + 1) // 2 - 1


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int16", "int8", "complex64", "complex128", "bfloat16"])
@pytest.mark.parametrize("size", [777, 1030])
def test_values(size: int, dtype: str, monkeypatch: pytest.MonkeyPatch, use_target: Callable[[str], None]) -> None:
    use_target("last_level_bytes=4096")
    made: list[transposed_tiles._MirroredTiles | None] = []
    pairs = transposed_tiles._mirrored_tiles

    def noted(*args: Any) -> transposed_tiles._MirroredTiles | None:
        made.append(pairs(*args))
        return made[-1]

    monkeypatch.setattr(transposed_tiles, "_mirrored_tiles", noted)
    with tx.enable_x64():
        x, y = np.random.default_rng(size).integers(-9, 9, (2, size, size)).astype(jnp.dtype(dtype))
        found = tx.jit(lambda x, y: (x + y - x.T, jnp.stack([x, y]) - jnp.swapaxes(jnp.stack([y, x]), 1, 2)))(x, y)
        np.testing.assert_array_equal(np.asarray(found[0]), x + y - x.T)
        np.testing.assert_array_equal(np.asarray(found[1]), np.stack([x - y.T, y - x.T]))
    assert any(made)


def test_a_wrong_place_shows(monkeypatch: pytest.MonkeyPatch, use_target: Callable[[str], None]) -> None:
    use_target("last_level_bytes=4096")
    right = transposed_tiles._MirroredTiles.tile
    monkeypatch.setattr(
        transposed_tiles._MirroredTiles, "tile", lambda self, b, at, end: right(self, b, [*at[:2], 0, *at[3:]], end)
    )
    x = jnp.arange(600.0 * 600).reshape(600, 600)
    result = tx.jit(lambda x: x - 3 * x.T)(x)
    assert not np.array_equal(np.asarray(result), np.asarray(x) - 3 * np.asarray(x).T)


TURNED: dict[str, Callable[[Any, Any], tuple[Any, ...]]] = {
    "alone": lambda x, y: (x.T,),
    "and straight": lambda x, y: (x.T + y,),
    "several": lambda x, y: (x.T - y, y * 2, x.T * y),
    "of two sizes": lambda x, y: (x.T + (x > 3).T, y),
}


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("dtype", ["float32", "float64", "uint8", "complex128", "bfloat16"])
@pytest.mark.parametrize(
    "sizes", [(100, 200), (1, 9000), (97, 129), (33, 1001), (48, 300), (513, 17), (1030, 97), (2000, 5)], ids=str
)
def test_results_that_are_claimed_before_they_are_written(
    sizes: tuple[int, int], dtype: str, use_target: Callable[[str], None]
) -> None:
    random = np.random.default_rng(sum(sizes))
    x = random.integers(0, 9, sizes).astype(jnp.dtype(dtype))
    y = random.integers(0, 9, sizes[::-1]).astype(x.dtype)
    for name, function in TURNED.items():
        if dtype.startswith("complex") and name == "of two sizes":
            continue
        found: list[list[bytes]] = []
        for far in (1, 1 << 28):
            use_target(f"l2_bytes={far}")
            tx.clear_caches()
            with tx.enable_x64():
                compiled = tx.jit(function).lower(x, y).compile()
                found.append([np.asarray(z).tobytes() for z in tx.tree_util.tree_leaves(compiled(x, y))])
            claims = any("prefetch_write(" in kernel.source for kernel in compiled.kernels)
            assert not claims or far == 1
            assert claims or far != 1 or sizes[0] < 1000 or name == "of two sizes"
        assert found[0] == found[1] == [np.asarray(z).astype(z.dtype).tobytes() for z in function(x, y)]
    tx.clear_caches()


def test_what_passes_the_caches_is_not_claimed(use_target: Callable[[str], None]) -> None:
    use_target("last_level_bytes=512")
    tx.clear_caches()
    x = np.arange(301 * 513, dtype=np.float32).reshape(301, 513)
    compiled = tx.jit(lambda x: x.T).lower(x).compile()
    np.testing.assert_array_equal(np.asarray(compiled(x)), x.T)
    (kernel,) = compiled.kernels
    assert "stream(" in kernel.source
    assert "prefetch_write(" not in kernel.source
    tx.clear_caches()


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("last", range(1, 40))
def test_the_last_strip_has_what_the_others_leave(last: int) -> None:
    x = np.arange((64 + last) * 150, dtype=np.float32).reshape(150, 64 + last)
    np.testing.assert_array_equal(np.asarray(tx.jit(lambda x: x.T)(x)), x.T)


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("count", [7, 8, 32, 33])
@pytest.mark.parametrize(("shape", "axis"), [((5, 3), 1), ((4, 70), 1), ((3, 2, 5), 1), ((2, 3, 1), 2), ((6, 300), 1)])
def test_short_rows_of_many_arrays_stand_side_by_side(count: int, shape: tuple[int, ...], axis: int) -> None:
    arrays = np.random.default_rng(count).normal(size=(count, *shape)).astype(np.float32)
    found = tx.jit(lambda *xs: jnp.concatenate(xs, axis))(*arrays)
    np.testing.assert_array_equal(np.asarray(found), np.concatenate(arrays, axis))
    computed = tx.jit(lambda *xs: jnp.concatenate([x * k for k, x in enumerate(xs)], axis))(*arrays)
    np.testing.assert_array_equal(
        np.asarray(computed), np.concatenate([x * np.float32(k) for k, x in enumerate(arrays)], axis)
    )


@pytest.mark.parametrize("dtype", ["float32", "int16", "uint8", "complex64"])
@pytest.mark.parametrize("shape", [(3, 24, 1000), (2, 61, 333), (1, 40, 329)])
def test_many_short_lines_from_memory(
    shape: tuple[int, ...], dtype: str, monkeypatch: pytest.MonkeyPatch, use_target: Callable[[str], None]
) -> None:
    use_target("last_level_bytes=512")
    chosen: list[int] = []
    lines = transposed_tiles._tile_rows

    def noted(*arguments: Any) -> int:
        chosen.append(lines(*arguments))
        return chosen[-1]

    monkeypatch.setattr(transposed_tiles, "_tile_rows", noted)
    tx.clear_caches()
    x = np.random.default_rng(0).integers(0, 100, shape).astype(dtype)
    found = tx.jit(lambda x: jnp.swapaxes(x, 1, 2) + jnp.ones((), x.dtype))(x)
    tx.clear_caches()
    assert np.asarray(found).tobytes() == (np.swapaxes(x, 1, 2) + np.ones((), x.dtype)).tobytes()
    assert chosen == [128]
