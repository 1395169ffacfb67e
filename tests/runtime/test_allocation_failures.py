"""Where there is no memory, what is kept for later is given back first; then there is one typed error, and the next
call works."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinyxla as tx
from tests.support import ROOT
from tinyxla import lax
from tinyxla.backends.numba.runtime import buffer_pool
from tinyxla.errors import AttributeValueError, SizeError, TinyxlaError
from tinyxla.runtime import allocation
from tinyxla.tracing import core

tnp = tx.numpy
posix = pytest.mark.skipif(os.name != "posix", reason="limits of address space are POSIX's")

# --- a process without room -------------------------------------------------------------------------------------------

SHORTAGE = """
import resource
import numpy as np
import tinyxla as tx
from tinyxla.backends.numba.runtime.buffer_pool import pool
from tinyxla.errors import SizeError
from tinyxla.runtime.threads import set_num_threads

set_num_threads(1)
MiB = 1 << 20
double = tx.jit(lambda x: x * 2)
double(np.ones(MiB // 4, np.float32))
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 700 * MiB,) * 2)

def fill():
    "Most of what is left is free memory of the pool, of a size that nothing else asks for."
    held = [pool.allocate(50 * MiB) for _ in range(12)]
    del held
    assert pool.free_bytes() >= 600 * MiB

def ones(megabytes):
    return np.ones(megabytes * MiB // 4, np.float32)
"""

NEEDS = {
    "results": "mine = tx.numpy.asarray(ones(20)); fill(); double(mine), pool.allocate(300 * MiB)",
    "arguments": "mine = np.broadcast_to(np.float32(1), 200 * MiB // 4); fill(); double(mine)",
    "arrays": "mine = np.broadcast_to(np.float32(1), 200 * MiB // 4); fill(); tx.numpy.asarray(mine)",
    "broadcasts": "fill(); double(tx.numpy.ones(200 * MiB // 4))",
    "eager": "fill(); tx.numpy.ones(100 * MiB // 4) + 1.0",
    "counting": "fill(); tx.numpy.arange(100 * MiB // 4)",
    "operators": "mine = tx.numpy.ones((6000, 1)); fill(); mine + mine.T",
    "indices": "mine = tx.numpy.ones(4); fill(); mine[tx.numpy.zeros(16 * MiB, np.int32)]",
    "gathers": "mine = tx.numpy.ones(4); fill(); mine[np.broadcast_to(0, 20 * MiB)]",
    "choices": "fill(); tx.numpy.where(tx.numpy.ones((8000, 1), bool), 1.0, tx.numpy.ones(8000))",
    "products": "mine = tx.numpy.ones((8000, 1)); fill(); mine @ mine.T",
    "constants": "fill(); tx.jit(lambda: tx.numpy.ones(200 * MiB // 4) * 2)()",
}


def run(program: str, **environment: str) -> str:
    given = {**os.environ, "TINYXLA_POOL_BYTES": str(1 << 40), **environment}
    given["MALLOC_ARENA_MAX"] = "1"  # each more that glibc makes takes 64 MiB of address space for good
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=given, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.thorough
@posix
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="Linux says there how much is used")
def test_memory_that_the_pool_keeps_is_given_back_to_what_needs_it() -> None:
    steps = [f"print({need!r}, flush=True)\n{code}\nmine = None\npool.release()" for need, code in NEEDS.items()]
    assert run("\n".join([SHORTAGE, *steps])).split() == list(NEEDS)


@posix
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="Linux says there how much is used")
def test_calls_go_on_after_one_that_failed() -> None:
    program = f"""{SHORTAGE}
kept = []
for _ in range(3):
    fill()
    for size in (800, 5000):
        try:
            double(tx.numpy.ones(size * MiB // 4))
        except SizeError as error:
            kept.append(str(error))
        else:
            raise AssertionError(size)
    assert float(double(ones(60))[-1]) == 2
    assert float((tx.numpy.ones(60 * MiB // 4) + 1)[-1]) == 2
assert len(kept) == 6 and all("MiB" in text or "GiB" in text or "bytes" in text for text in kept), kept
"""
    run(program)


@pytest.mark.parametrize(
    "call",
    [
        lambda one: one[np.broadcast_to(0, 1 << 43)],
        lambda one: one[tnp.broadcast_to(tnp.int32(0), (1 << 43,))],
        lambda one: tnp.take(one, np.broadcast_to(0, 1 << 43)),
        lambda one: tnp.where(np.broadcast_to(True, (1 << 22, 1)), one, np.broadcast_to(1.0, 1 << 22)),
        lambda one: tnp.broadcast_to(one, (1 << 22, 1)) @ tnp.broadcast_to(one, (1, 1 << 22)),
        lambda one: tnp.broadcast_to(one, (1 << 22, 1)) + tnp.broadcast_to(one, (1, 1 << 22)),
    ],
    ids=["index", "array as index", "take", "where", "matmul", "add"],
)
def test_results_that_no_memory_holds_are_the_typed_error(call: Callable[[Any], Any]) -> None:
    with pytest.raises(SizeError, match="give it smaller sizes"):
        call(tnp.ones(1))


@posix
def test_the_pool_respects_the_limit_of_address_space() -> None:
    program = """
import resource
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
from tinyxla.backends.numba.runtime.buffer_pool import pool
print(pool.limit)
"""
    given = {name: value for name, value in os.environ.items() if name != "TINYXLA_POOL_BYTES"}
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=given, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) <= 512 << 20


@pytest.mark.parametrize(
    ("membership", "files", "expected"),
    [
        ("0::/user/mine", {"user/mine/memory.max": "8000\n"}, 8000),
        ("0::/user/mine", {"user/mine/memory.max": "max\n", "user/memory.max": "9000\n"}, 9000),
        ("0::/user/mine", {"user/mine/memory.max": "8000\n", "user/mine/memory.high": "7000\n"}, 7000),
        ("0::/user/mine", {"user/mine/memory.max": "8000\n", "user/memory.max": "100\n"}, 100),
        ("4:memory:/mine", {"memory/mine/memory.limit_in_bytes": "5000\n"}, 5000),
        ("4:cpu:/mine", {"memory/mine/memory.limit_in_bytes": "5000\n"}, sys.maxsize),
        ("0::/", {"memory.max": "6000\n"}, 6000),
        ("0::/mine", {"mine/memory.max": "nonsense"}, sys.maxsize),
        ("0::/mine", {}, sys.maxsize),
    ],
)
def test_control_group_bytes_are_the_least_of_all_ancestors(
    membership: str, files: dict[str, str], expected: int, tmp_path: Path
) -> None:
    for name, content in files.items():
        path = tmp_path / "root" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    (tmp_path / "membership").write_text(membership + "\n")
    assert buffer_pool.control_group_bytes(tmp_path / "root", tmp_path / "membership") == expected
    assert buffer_pool.control_group_bytes(tmp_path / "none", tmp_path / "none") == sys.maxsize


def test_the_pool_takes_an_eighth_of_the_least_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffer_pool, "control_group_bytes", lambda: 8000)
    assert buffer_pool.default_limit({}) == 1000
    monkeypatch.setattr(buffer_pool, "address_space_bytes", lambda: 4000)
    assert buffer_pool.default_limit({}) == 500
    assert buffer_pool.default_limit({"TINYXLA_POOL_BYTES": "123"}) == 123


@pytest.mark.parametrize("given", ["1GB", "", "-1", "1.5", "²"])
def test_a_wrong_size_of_the_pool_is_a_typed_error(given: str) -> None:
    with pytest.raises(AttributeValueError, match="TINYXLA_POOL_BYTES must be a number of bytes"):
        buffer_pool.default_limit({"TINYXLA_POOL_BYTES": given})


def test_a_wrong_size_of_the_pool_is_an_error_of_each_call() -> None:
    program = """
import tinyxla as tx
from tinyxla.errors import AttributeValueError
for _ in range(2):
    try:
        tx.jit(lambda x: x + 1)(1.0)
    except AttributeValueError as error:
        assert "TINYXLA_POOL_BYTES must be a number of bytes" in str(error)
    else:
        raise AssertionError("it was taken")
"""
    run(program, TINYXLA_POOL_BYTES="1GB")


# --- allocations that fail once, or always ----------------------------------------------------------------------------


class Failing:
    """Stands for a function that allocates: the first calls fail."""

    def __init__(self, function: Callable[..., Any], failures: int) -> None:
        self._function = function
        self.left = failures

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.left:
            self.left -= 1
            raise MemoryError("Unable to allocate")
        return self._function(*args, **kwargs)


@pytest.fixture
def releases(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is noted when memory is given back."""
    seen: list[str] = []
    monkeypatch.setattr(allocation, "_releases", [lambda: seen.append("released")])
    return seen


def fail_evaluation(monkeypatch: pytest.MonkeyPatch, failures: int) -> None:
    monkeypatch.setattr(core, "_evaluated", Failing(core._evaluated, failures))


def test_an_eager_operation_is_tried_again(releases: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    x = tnp.arange(6.0).reshape(2, 3)
    fail_evaluation(monkeypatch, 1)
    np.testing.assert_array_equal(np.asarray(lax.rev(x, (0,))), [[3, 4, 5], [0, 1, 2]])
    assert releases == ["released"]
    fail_evaluation(monkeypatch, 2)
    with pytest.raises(SizeError, match="reverse: Unable to allocate"):
        lax.rev(x, (0,))
    np.testing.assert_array_equal(np.asarray(lax.rev(x, (0,))), [[3, 4, 5], [0, 1, 2]])


def test_small_results_of_compiled_functions_are_tried_again(
    releases: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tx.jit(lambda x: x + 1).lower(tnp.ones(3)).compile()
    inner: Any = program._executable  # type: ignore[attr-defined]
    inner._allocators = [Failing(inner._allocators[0], 1)]
    np.testing.assert_array_equal(np.asarray(program(tnp.ones(3))), [2, 2, 2])
    assert releases == ["released"]
    inner._allocators[0].left = 2
    with pytest.raises(SizeError, match="Unable to allocate"):
        program(tnp.ones(3))


def test_the_pool_is_tried_again(releases: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    failing = Failing(np.empty, 1)
    monkeypatch.setattr(buffer_pool.np, "empty", failing)
    assert buffer_pool.BufferPool(1 << 20).allocate(100)[0].nbytes >= 100
    assert releases == ["released"]
    failing.left = 2
    with pytest.raises(SizeError, match="There is no memory"):
        buffer_pool.BufferPool(1 << 20).allocate(100)


def test_callbacks_run_once_and_keep_their_error(releases: list[str]) -> None:
    calls: list[int] = []

    def exhausted(x: Any) -> Any:
        calls.append(1)
        raise MemoryError("mine")

    for function in (lambda x: x, tx.jit):
        calls.clear()
        with pytest.raises(MemoryError, match="mine") as caught:
            function(lambda x: tx.pure_callback(exhausted, x, x))(tnp.ones(3))
        assert not isinstance(caught.value, TinyxlaError)
        assert len(calls) == 1
    assert releases == []


# --- sizes that no memory holds ---------------------------------------------------------------------------------------

X = tnp.arange(3.0)
KEY = tx.random.key(0)
SIZED: dict[str, Callable[[int], Any]] = {
    "zeros": tnp.zeros,
    "ones": tnp.ones,
    "empty": tnp.empty,
    "full": lambda n: tnp.full(n, 2.0),
    "full_like": lambda n: tnp.full_like(X, 1, shape=(n,)),
    "arange": tnp.arange,
    "linspace": lambda n: tnp.linspace(0, 1, n),
    "logspace": lambda n: tnp.logspace(0, 1, n),
    "geomspace": lambda n: tnp.geomspace(1, 2, n),
    "eye": tnp.eye,
    "identity": tnp.identity,
    "tri": tnp.tri,
    "tril_indices": tnp.tril_indices,
    "indices": lambda n: tnp.indices((n, 2)),
    "diag": lambda n: tnp.diag(X, n),
    "vander": lambda n: tnp.vander(X, n),
    "mgrid": lambda n: tnp.mgrid[0:n],
    "broadcast_to": lambda n: tnp.broadcast_to(X, (n, 3)),
    "square": lambda n: tnp.broadcast_to(1.0, (n, n)),
    "tile": lambda n: tnp.tile(X, n),
    "repeat": lambda n: tnp.repeat(X, n),
    "repeat to": lambda n: tnp.repeat(X, 2, total_repeat_length=n),
    "resize": lambda n: tnp.resize(X, n),
    "pad": lambda n: tnp.pad(X, n),
    "pad wrap": lambda n: tnp.pad(X, n, mode="wrap"),
    "pad edge": lambda n: tnp.pad(X, (0, n), mode="edge"),
    "pad ramp": lambda n: tnp.pad(X, (0, n), mode="linear_ramp"),
    "lax.pad": lambda n: lax.pad(X, np.float32(0), [(0, n, 0)]),
    "lax.pad between": lambda n: lax.pad(X, np.float32(0), [(0, 0, n)]),
    "lax.iota": lambda n: lax.iota("int32", n),
    "lax.broadcasted_iota": lambda n: lax.broadcasted_iota("int32", (n, 2), 0),
    "lax.broadcast": lambda n: lax.broadcast(X, (n,)),
    "random bits": lambda n: tx.random.bits(KEY, (n,)),
    "random normal": lambda n: tx.random.normal(KEY, (n,)),
    "random integers": lambda n: tx.random.randint(KEY, (n,), 0, 5),
    "random split": lambda n: tx.random.split(KEY, n),
    "random permutation": lambda n: tx.random.permutation(KEY, n),
    "unique": lambda n: tnp.unique(X, size=n),
    "nonzero": lambda n: tnp.nonzero(X, size=n),
    "bincount": lambda n: tnp.bincount(tnp.arange(3), length=n),
    "histogram": lambda n: tnp.histogram(X, bins=n),
    "fft": lambda n: tnp.fft.fft(X, n),
    "fftfreq": tnp.fft.fftfreq,
    "hanning": tnp.hanning,
    "one_hot": lambda n: tx.nn.one_hot(tnp.arange(3), n),
    "segment_sum": lambda n: tx.ops.segment_sum(X, tnp.arange(3), n),
    "image.resize": lambda n: tx.image.resize(X, (n,), "nearest"),
    "vmap": lambda n: tx.vmap(lambda: tnp.sin(1.0) + tnp.zeros(()), axis_size=n)(),
}
WAYS: dict[str, Callable[[Callable[[], Any]], Any]] = {
    "eager": lambda make: make(),
    "jit": lambda make: tx.jit(make)(),
    "vmap": lambda make: tx.vmap(lambda x: tx.tree.map(lambda y: y + x, make()))(X),
}


@pytest.mark.parametrize("name", SIZED)
@pytest.mark.parametrize(
    ("way", "size"), [("eager", 2**57), ("eager", 2**62), ("eager", 2**70), ("jit", 2**62), ("vmap", 2**62)]
)
def test_absurd_sizes_are_size_errors(name: str, way: str, size: int) -> None:
    with pytest.raises(SizeError):
        WAYS[way](lambda: SIZED[name](size))
