"""Results that go past the caches: the same bits as with usual stores, wherever rows, blocks and arrays begin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinyxla as tx
from tinyxla.loopir.passes import nontemporal_stores
from tinyxla.tracing.config import setting

jnp = tx.numpy

PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "one loop": (lambda x, y: 2 * x + y, ((5003,), (5003,))),
    "several results": (lambda x, y: (x + y, x > y, jnp.maximum(x, y)), ((3000,), (3000,))),
    "rows": (lambda x, row: (x - row) * jnp.abs(x), ((7, 999), (999,))),
    "many rows": (lambda x, column: x * column[:, None], ((300, 257), (300,))),
    "rows of a block": (lambda x, column: x * column[:, None], ((31, 1024), (31,))),
    "several results of rows": (lambda x, column: (x * column[:, None], x + 1), ((70, 200), (70,))),
    "a softmax": (lambda x: tx.nn.softmax(x, 1), ((70, 1300),)),
    "rows of several": (lambda x, y: tx.nn.softmax(x, 1) * y, ((70, 1300), (70, 1300))),
    "narrow to wide": (lambda x: tx.nn.softmax(x.astype("float64"), 1), ((70, 300),)),
    "wide to narrow": (lambda x: tx.nn.softmax(x, 1).astype("bfloat16"), ((70, 300),)),
    "turned and more": (lambda x: jnp.where(x.T > 3, x.T, x.T + 1), ((301, 513),)),
    "joined": (lambda x, y: jnp.concatenate([x, 2 * y, x[:5]]), ((2001,), (1030,))),
    "padded": (lambda x: jnp.pad(x * 2, ((1, 3), (2, 5))), ((5, 700),)),
    "turned": (lambda x: x.T, ((301, 513),)),
    "reversed": (lambda x: x[::-1] * 2, ((3001,),)),
    "every second one": (lambda x: x[::2] + 1, ((4002,),)),
    "beginnings": (lambda x: jnp.cumsum(x), ((40_003,),)),
    "beginnings of rows": (lambda x: jnp.cumsum(x, 1), ((20, 301),)),
    "ends of columns": (lambda x: tx.lax.cumsum(x, 0, reverse=True), ((600, 301),)),
    "ends of few columns": (lambda x: tx.lax.cumsum(x, 0, reverse=True), ((20_001, 3),)),
    "sums of rows of two lengths": (lambda x: (jnp.abs(x).sum(1), jnp.abs(x[:, :9]).sum(1)), ((700, 12),)),
    "short rows": (lambda x, y: x + y[:, None, :], ((50, 60, 3), (50, 3))),
}
DTYPES = ["float32", "float64", "bfloat16", "int8", "uint16", "complex64"]


def _types(name: str) -> list[str]:
    """Those that a program is defined for."""
    if name.endswith((" to narrow", " to wide")):
        return DTYPES[:1]
    if name in ("a softmax", "rows of several"):
        return DTYPES[:3]
    return DTYPES[:5] if name in ("several results", "rows", "turned and more") else DTYPES


def compiled(function: Callable[..., Any], arguments: list[Any]) -> tuple[list[Any], bool]:
    """The results, and whether a kernel streams them."""
    program = tx.jit(function).lower(*arguments).compile()
    results = tx.tree_util.tree_leaves(program(*arguments))
    return [np.asarray(x) for x in results], any("stream(" in kernel.source for kernel in program.kernels)


@pytest.mark.sample(every=4)
@pytest.mark.parametrize(("name", "dtype"), [(name, dtype) for name in PROGRAMS for dtype in _types(name)])
def test_the_same_bits(name: str, dtype: str, use_target: Callable[[str], None]) -> None:
    function, shapes = PROGRAMS[name]
    random = np.random.default_rng(0)
    with tx.enable_x64(True):
        arguments = [jnp.asarray(random.integers(0, 99, shape)).astype(dtype) for shape in shapes]
        usual, is_streamed = compiled(function, arguments)
        assert not is_streamed
        tx.clear_caches()
        use_target("last_level_bytes=512")
        with setting("disabled_passes", ("prefetch-rows",)):  # which sums rows block by block
            found, is_streamed = compiled(function, arguments)
        tx.clear_caches()
    assert is_streamed == (name != "short rows")
    for x, y in zip(found, usual, strict=True):
        assert x.tobytes() == y.tobytes()


def test_what_stays_in_caches(monkeypatch: pytest.MonkeyPatch, use_target: Callable[[str], None]) -> None:
    """Small results, and on AMD's Zen those of kernels that only write."""
    x = jnp.ones(5000, np.float32)
    assert not compiled(lambda x: 2 * x, [x])[1]
    tx.clear_caches()
    use_target("last_level_bytes=512")
    assert compiled(lambda x: 2 * x, [x])[1]
    for processor in ("znver4", "sapphirerapids"):
        tx.clear_caches()
        monkeypatch.setattr(nontemporal_stores, "processor_name", lambda processor=processor: processor)
        is_streamed = compiled(lambda a: a + jnp.arange(5000, dtype=np.float32), [jnp.float32(2)])[1]
        assert is_streamed == (processor != "znver4")
    tx.clear_caches()


@pytest.mark.parametrize(
    ("function", "asks"), [(lambda x: x.astype("bfloat16"), True), (lambda x: tx.nn.gelu(x, approximate=False), False)]
)
def test_little_work_asks_for_what_follows(
    function: Callable[..., Any], asks: bool, use_target: Callable[[str], None]
) -> None:
    use_target("last_level_bytes=512")
    program = tx.jit(function).lower(jnp.ones(5000)).compile()
    assert any("prefetch_read(" in kernel.source for kernel in program.kernels) == asks
    tx.clear_caches()
