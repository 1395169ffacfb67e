"""Target: read from the system, replaced by the option `target`; cuts of kernels for many processors, the bound on
parallel efficiency by them, and results that depend on neither."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinyxla as tx
import tinyxla.numpy as jnp
from tinyxla.backends.numba.program import parallel_efficiency
from tinyxla.errors import AttributeValueError
from tinyxla.loopir.lower.axes import parallel_grain
from tinyxla.loopir.target import (
    Target,
    _macos_caches,  # pyright: ignore[reportPrivateUsage]
    _windows_caches,  # pyright: ignore[reportPrivateUsage]
    current_target,
    host,
)

UseTarget = Callable[[str], None]


def _normal(*shape: int, dtype: str = "float32") -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


# --- what is read from the system ---------------------------------------------------------------------------------


def _write_cache(folder: Path, **files: str) -> None:
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(f"{text}\n", encoding="ascii")


def test_caches_are_read_from_the_system(tmp_path: Path) -> None:
    line = {"coherency_line_size": "128", "ways_of_associativity": "16"}
    _write_cache(tmp_path / "index0", level="1", type="Instruction", size="192K", **line)
    _write_cache(tmp_path / "index1", level="1", type="Data", size="48K", **line)
    _write_cache(tmp_path / "index2", level="2", type="Unified", size="2M", **line)
    _write_cache(tmp_path / "index3", level="3", type="Unified", size="7168K", **line)
    found = host(tmp_path)
    assert (found.line_bytes, found.l1_bytes, found.l2_bytes, found.l2_ways) == (128, 48 << 10, 2 << 20, 16)
    assert found.last_level_bytes == 7 << 20
    assert found.processors == host().processors >= 1


def test_caches_of_macos_are_those_of_performance_cores() -> None:
    system = {
        "hw.perflevel0.l1dcachesize": 128 << 10,
        "hw.l1dcachesize": 64 << 10,
        "hw.l2cachesize": 4 << 20,
        "hw.cachelinesize": 128,
    }
    found = dict(_macos_caches(lambda name: system.get(name, 0)))
    assert found == {(1, "size"): 128 << 10, (2, "size"): 4 << 20, (1, "coherency_line_size"): 128}


def test_caches_of_windows_are_those_of_the_first_core() -> None:
    def cache(level: int, ways: int, size: int, kind: int) -> bytes:
        return struct.pack("<QI4xBBHII4x", 1, 2, level, ways, 64, size, kind)

    core, instructions = struct.pack("<QI4x16x", 3, 0), cache(1, 8, 32 << 10, 1)
    first = [cache(1, 12, 48 << 10, 2), cache(2, 16, 2 << 20, 0), cache(3, 255, 32 << 20, 0)]
    found = dict(_windows_caches(b"".join([core, instructions, *first, cache(2, 4, 4 << 20, 0)])))
    assert (found[1, "size"], found[1, "ways_of_associativity"]) == (48 << 10, 12)
    assert (found[2, "size"], found[2, "ways_of_associativity"], found[3, "size"]) == (2 << 20, 16, 32 << 20)
    assert (3, "ways_of_associativity") not in found
    assert {value for (_, name), value in found.items() if name == "coherency_line_size"} == {64}


def test_numbers_that_the_system_hides_have_defaults(tmp_path: Path) -> None:
    _write_cache(
        tmp_path / "index1", level="1", type="Data", size="0K", coherency_line_size="0", ways_of_associativity="0"
    )
    _write_cache(tmp_path / "index2", level="2", type="Unified")
    found = host(tmp_path)
    assert (found.line_bytes, found.l1_bytes, found.l2_bytes, found.l2_ways) == (64, 32 << 10, 1 << 20, 8)


def test_option_replaces_sizes(use_target: UseTarget) -> None:
    use_target(" l2_bytes = 4096, processors=64,")
    assert current_target() == Target(**{**vars(host()), "l2_bytes": 4096, "processors": 64})
    use_target("")
    assert current_target() is host()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("l2_byte=3", "'l2_byte' is no size of a target. Did you mean 'l2_bytes'?"),
        ("processors=0", "processors must be a positive integer, but got '0'"),
        ("processors", "processors must be a positive integer, but got ''"),
        ("l1_bytes=-1", "l1_bytes must be a positive integer, but got '-1'"),
    ],
)
def test_wrong_sizes_are_errors(text: str, message: str, use_target: UseTarget) -> None:
    use_target(text)
    with pytest.raises(AttributeValueError, match=r"^config.target: .*") as caught:
        tx.jit(lambda x: x * 2 + 1).lower(np.ones(3, np.float32)).compile()
    assert message in str(caught.value)


def test_option_is_text() -> None:
    with pytest.raises(AttributeValueError, match="The option 'target' is text such as 'l2_bytes=65536', but got 3"):
        tx.config.update("target", 3)


# --- cuts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("processors", [1, 2, 3, 8, 48, 64, 96, 128])
@pytest.mark.parametrize("ops", [1, 9, 1000])
@pytest.mark.parametrize("extent", [1 << 24, 10_000_019, 262_144 * 77])
def test_much_work_keeps_all_processors_busy(extent: int, ops: int, processors: int, use_target: UseTarget) -> None:
    use_target(f"processors={processors}")
    grain = parallel_grain(extent, ops)
    assert 1 / (processors * parallel_efficiency.span(extent, grain, processors)) > 0.9


def test_cuts_for_few_processors_do_not_depend_on_their_number(use_target: UseTarget) -> None:
    def grains() -> list[int]:
        return [parallel_grain(extent, ops) for extent in (10, 1000, 10**5, 10**7) for ops in (1, 50, 10**4)]

    use_target("processors=1")
    expected = grains()
    use_target("processors=2")
    assert grains() == expected
    use_target("processors=64")
    assert grains() != expected


def _busiest(extent: int, grain: int, threads: int) -> int:
    """Iterations of the busiest thread, by simulation."""
    loads = [0] * threads
    for first in range(0, extent, grain):
        loads[loads.index(min(loads))] += min(grain, extent - first)
    return max(loads)


@pytest.mark.parametrize("threads", [1, 2, 5, 64])
@pytest.mark.parametrize("grain", [1, 3, 10, 200])
@pytest.mark.parametrize("extent", [1, 6, 100, 131])
def test_span_is_that_of_the_busiest_thread(extent: int, grain: int, threads: int) -> None:
    assert parallel_efficiency.span(extent, grain, threads) == pytest.approx(_busiest(extent, grain, threads) / extent)


LONG: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "softmax": (lambda x: tx.nn.softmax(x), ((4096, 8192),)),
    "sum of columns": (lambda x: x.sum(0), ((8192, 4096),)),
    "gradient of layer norm": (
        tx.grad(lambda x, w: jnp.sum(((x - x.mean(1, keepdims=True)) * w) ** 3), (0, 1)),
        ((32768, 1024), (1024,)),
    ),
    "product": (lambda x, y: x @ y, ((300, 3000), (3000, 3000))),
    "square product": (lambda x: x @ x, ((1024, 1024),)),
    "transpose and sum": (lambda x: x + x.T, ((5500, 5500),)),
    "sort": (lambda x: jnp.sort(x), ((1 << 22,),)),
    "gradient of a convolution": (
        tx.grad(
            lambda w, x: jnp.sum(
                tx.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")) ** 2
            ),
            (0, 1),
        ),
        ((3, 3, 64, 64), (8, 32, 32, 64)),
    ),
}


@pytest.mark.parametrize("name", LONG)
def test_long_programs_keep_64_threads_busy(name: str) -> None:
    function, shapes = LONG[name]
    lowered = tx.jit(function).lower(*(tx.ShapeDtypeStruct(shape, "float32") for shape in shapes))
    assert parallel_efficiency.parallel_efficiency(lowered.module, (), [64])[64] >= 0.9


def test_parallel_efficiency_counts_steps_on_one_thread() -> None:
    compiled = tx.jit(lambda x: x * 2 + 1).lower(np.ones(100, np.float32)).compile()
    assert compiled.parallel_efficiency() == {n: 1 / n for n in (2, 8, 32, 64, 128)}
    assert compiled.parallel_efficiency([1]) == {1: 1.0}
    interpreted = tx.jit(lambda x: x[:0]).lower(np.ones(3, np.float32)).compile()
    assert interpreted.parallel_efficiency([2])[2] <= 1


@pytest.mark.parametrize("count", [0, 1025, 2.0, True])
def test_parallel_efficiency_of_impossible_numbers_is_an_error(count: Any) -> None:
    compiled = tx.jit(lambda x: x * 2).lower(1.0).compile()
    with pytest.raises(AttributeValueError, match="must be a whole number from 1 to 1024, but got"):
        compiled.parallel_efficiency([count])


# --- results ------------------------------------------------------------------------------------------------------

CONVOLUTION: dict[str, Any] = {
    "window_strides": (1, 1),
    "padding": "SAME",
    "dimension_numbers": ("NHWC", "HWIO", "NHWC"),
}

PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "element-wise": (lambda x: jnp.sin(x) * 2 + x, (_normal(300_007),)),
    "softmax": (lambda x: tx.nn.softmax(x), (_normal(515, 300),)),
    "sums": (lambda x: (x.sum(), x.sum(0), x.sum(1), x.var(0)), (_normal(4099, 130),)),
    "gradient of layer norm": (
        tx.grad(lambda x, w: jnp.sum(((x - x.mean(1, keepdims=True)) * w) ** 3), (0, 1)),
        (_normal(5001, 65), _normal(65)),
    ),
    "products": (lambda x, y: (x @ y, y.T @ x.T, x[0] @ y), (_normal(301, 407), _normal(407, 515))),
    "deep product": (lambda x, y: x @ y, (_normal(20, 30_011), _normal(30_011, 25))),
    "product of float64": (lambda x: x @ x.T, (_normal(203, 301, dtype="float64"),)),
    "batched products": (lambda x: x @ x.swapaxes(1, 2), (_normal(9, 130, 70),)),
    "convolution": (
        lambda x, w: tx.lax.conv_general_dilated(x, w, **CONVOLUTION),
        (_normal(6, 33, 31, 17), _normal(3, 3, 17, 70)),
    ),
    "gradient of a convolution": (
        tx.grad(lambda w, x: jnp.sum(tx.lax.conv_general_dilated(x, w, **CONVOLUTION) ** 2), (0, 1)),
        (_normal(3, 3, 9, 33), _normal(7, 40, 31, 9)),
    ),
    "padding": (lambda x: jnp.pad(x, ((0, 0), (5, 3), (0, 0))), (_normal(8, 4000, 32),)),
    "transposes": (lambda x: (x.T + 1, x + x.T), (_normal(777, 777),)),
    "sorts": (lambda x: (jnp.sort(x), jnp.argsort(-x), tx.lax.top_k(x, 9)), (_normal(200_003),)),
    "rows in order": (lambda x: jnp.sort(x, 1), (_normal(203, 501),)),
    "cumulative sums": (lambda x: (jnp.cumsum(x, 0), jnp.cumsum(x, 1)), (_normal(501, 603),)),
    "scatter": (lambda x, k: jnp.zeros((50, 77)).at[k].add(x), (_normal(3001, 77), np.arange(3001) * 7 % 50)),
    "Cholesky factors": (
        lambda x: jnp.linalg.cholesky(x @ x.swapaxes(1, 2) + 9 * jnp.eye(20)),
        (_normal(60, 20, 20),),
    ),
    "solve": (lambda x, y: jnp.linalg.solve(x + 30 * jnp.eye(200), y), (_normal(200, 200), _normal(200, 9))),
    "loop per element": (
        lambda x: tx.lax.fori_loop(0, 9, lambda _, y: jnp.sin(y) + x, x),
        (_normal(30_011),),
    ),
}


def _bits(results: Any) -> list[bytes]:
    return [np.asarray(x).tobytes() for x in tx.tree.leaves(results)]


@pytest.mark.sample(every=2)
@pytest.mark.parametrize("name", PROGRAMS)
def test_results_depend_neither_on_processors_nor_on_threads(name: str, use_target: UseTarget) -> None:
    function, arguments = PROGRAMS[name]
    with tx.enable_x64():
        expected = _bits(tx.jit(function)(*arguments))
        for processors in (1, 3, 64, 128):
            tx.clear_caches()
            use_target(f"processors={processors}")
            compiled = tx.jit(function).lower(*arguments).compile()
            for threads in (1, 2, 3, 8):
                with tx.num_threads(threads):
                    assert _bits(compiled(*arguments)) == expected, (processors, threads)
    tx.clear_caches()


SMALL = "last_level_bytes=512"


@pytest.mark.sample(every=2)
@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_the_same_beyond_the_caches(name: str, use_target: UseTarget) -> None:
    """Sums of rows that are prefetched are in blocks; all else has the same bits."""
    function, arguments = PROGRAMS[name]
    with tx.enable_x64():
        expected = tx.tree.leaves(tx.jit(function)(*arguments))
        tx.clear_caches()
        use_target(SMALL)
        found = tx.tree.leaves(tx.jit(function)(*arguments))
    tx.clear_caches()
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=3e-5, atol=3e-5 * float(np.abs(np.asarray(y)).max()))


def test_small_caches_reach_the_code_for_large_arrays(use_target: UseTarget) -> None:
    use_target(SMALL)
    sources = ""
    for name in ("element-wise", "softmax", "transposes"):
        function, arguments = PROGRAMS[name]
        sources += "".join(kernel.source for kernel in tx.jit(function).lower(*arguments).compile().kernels)
    tx.clear_caches()
    for part in ("stream(", "prefetch_read(", "fence("):
        assert part in sources
