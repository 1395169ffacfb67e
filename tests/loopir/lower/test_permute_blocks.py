"""Arrays in another order within short blocks of memory."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest

import tinyxla as tx
import tinyxla.numpy as jnp
from tinyxla.loopir.lower import permute_blocks

DTYPES = ["bool", "uint8", "bfloat16", "float32", "float64", "complex64", "complex128"]
SIZES = [(700, 3, 3), (1001, 4, 4), (333, 2, 8), (257, 11, 2), (1000, 2, 3, 5), (33, 20, 2, 2, 2), (300, 1, 5, 6)]


def values(sizes: tuple[int, ...], dtype: str) -> Any:
    return (np.arange(np.prod(sizes)) * 7 % 251).reshape(sizes).astype(jnp.dtype(dtype))


def is_shuffled(compiled: Any) -> bool:
    return any("permute_" in kernel.source for kernel in compiled.kernels)


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("width", [16, 32, 64])
@pytest.mark.parametrize("dtype", DTYPES)
def test_all_orders_in_blocks(dtype: str, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(permute_blocks, "vector_bytes", lambda: width)
    tx.clear_caches()
    found: list[bool] = []
    for sizes in SIZES:
        x = values(sizes, dtype)
        for order in permutations(range(1, len(sizes))):
            with tx.enable_x64():
                compiled = tx.jit(lambda x, order=order: x.transpose(0, *order)).lower(x).compile()
                np.testing.assert_array_equal(np.asarray(compiled(x)), x.transpose(0, *order))
            found.append(is_shuffled(compiled))
    assert any(found)
    tx.clear_caches()


@pytest.mark.parametrize("count", [*range(60, 75), 12_345])
def test_blocks_that_are_left(count: int) -> None:
    x = values((count + 1, 3, 3), "uint8")
    compiled = tx.jit(lambda x: x.transpose(0, 2, 1)).lower(x[1:]).compile()
    for start in (0, 1):
        part = x[start : start + count]
        np.testing.assert_array_equal(np.asarray(compiled(part)), part.transpose(0, 2, 1))
    assert is_shuffled(compiled) == (count * 9 >= 4 * 64)


@pytest.mark.parametrize("groups", [2, 3, 4])
def test_groups_of_channels_are_interleaved(groups: int) -> None:
    def shuffled(x: Any) -> Any:
        return x.reshape(*x.shape[:-1], groups, -1).swapaxes(-1, -2).reshape(x.shape)

    x = values((5, 14, 14, 24), "float32")
    compiled = tx.jit(shuffled).lower(x).compile()
    np.testing.assert_array_equal(np.asarray(compiled(x)), shuffled(x))
    assert is_shuffled(compiled)


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("width", [16, 32, 64])
@pytest.mark.parametrize("dtype", DTYPES)
def test_some_elements_of_each_block(dtype: str, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(permute_blocks, "vector_bytes", lambda: width)
    tx.clear_caches()
    for sizes in ((30, 41, 4), (777, 3), (331, 7)):
        x = values(sizes, dtype)
        for part in (slice(3), slice(None, None, -1), slice(2, None, -1), slice(1, 3), slice(None, None, 2)):
            with tx.enable_x64():
                compiled = tx.jit(lambda x, part=part: x[..., part]).lower(x).compile()
                np.testing.assert_array_equal(np.asarray(compiled(x)), x[..., part])
            assert is_shuffled(compiled) or part.indices(sizes[-1]) == (0, sizes[-1], 1)
    tx.clear_caches()


def test_few_elements_of_long_blocks_are_taken_one_by_one() -> None:
    x = values((1000, 32), "float32")
    for part, expected in ((slice(2, 6), False), (slice(2, 12), True)):
        compiled = tx.jit(lambda x, part=part: x[:, part]).lower(x).compile()
        np.testing.assert_array_equal(np.asarray(compiled(x)), x[:, part])
        assert is_shuffled(compiled) == expected


def test_what_is_not_just_another_order() -> None:
    x = values((700, 4, 3), "float32")
    for function in (
        lambda x: x.transpose(0, 2, 1) + 1,
        lambda x: x.transpose(0, 2, 1)[:, ::-1],
        lambda x: x.transpose(0, 2, 1)[:, :2],
        lambda x: jnp.broadcast_to(x[:, None].transpose(0, 1, 3, 2), (700, 2, 3, 4)),
        lambda x: x.transpose(1, 0, 2),
        lambda x: x.transpose(0, 2, 1).astype(np.int32),
    ):
        compiled = tx.jit(function).lower(x).compile()
        assert not is_shuffled(compiled)
        np.testing.assert_array_equal(np.asarray(compiled(x)), np.asarray(function(jnp.asarray(x))))


def test_a_wrong_order_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    right = permute_blocks._order
    monkeypatch.setattr(permute_blocks, "_order", lambda *args: right(*args)[::-1])
    tx.clear_caches()
    x = values((700, 3, 5), "float32")
    assert not np.array_equal(np.asarray(tx.jit(lambda x: x.transpose(0, 2, 1))(x)), x.transpose(0, 2, 1))
    tx.clear_caches()


def test_donated_memory_and_threads() -> None:
    x = values((5000, 4, 4), "float32")
    turned = x.transpose(0, 2, 1).copy()
    for threads in (1, 2):
        with tx.num_threads(threads):
            mine = jnp.asarray(x.copy())
            found = tx.jit(lambda x: x.transpose(0, 2, 1), donate_argnums=0)(mine)
            np.testing.assert_array_equal(np.asarray(found), turned)
