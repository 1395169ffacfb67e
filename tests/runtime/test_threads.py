"""Threads: how many there are, that results do not depend on it, and that calls from many of the user's are safe, also
around forks and at the end of the interpreter."""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import re
import subprocess
import sys
import textwrap
import threading
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinyxla as tx
import tinyxla.numpy as jnp
from tests.support import ROOT, op_checks
from tinyxla import lax
from tinyxla.backends.numba.runtime.bytecode import Schedule, launch
from tinyxla.errors import AttributeValueError
from tinyxla.loopir.lower import axes
from tinyxla.ops.op import ops
from tinyxla.runtime import threads as thread_counts
from tinyxla.tracing import wrap
from tinyxla.tracing.config import setting

tnp = tx.numpy

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
linux = pytest.mark.skipif(sys.platform != "linux", reason="affinity and control groups of Linux")


@pytest.fixture(autouse=True)
def restored_number() -> Iterator[None]:
    with tx.num_threads(3):
        yield


def python(text: str, **environment: str) -> str:
    """What a program prints, in a process of its own."""
    command = [sys.executable, "-c", textwrap.dedent(text)]
    kept = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    merged = {**kept, **environment}
    result = subprocess.run(command, cwd=ROOT, env=merged, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    return result.stdout


# --- how many ---------------------------------------------------------------------------------------------------------


def test_number_of_threads() -> None:
    assert tx.get_num_threads() == 3
    with contextlib.suppress(KeyError), tx.num_threads(np.int64(1)):
        assert tx.get_num_threads() == 1
        assert type(tx.get_num_threads()) is int
        raise KeyError
    assert tx.get_num_threads() == 3
    tx.set_num_threads(2)
    assert tx.get_num_threads() == 2


@pytest.mark.parametrize("count", [0, -1, 1025, 1.0, True, "2", None, np.ones(2)], ids=repr)
def test_impossible_numbers(count: Any) -> None:
    with pytest.raises(AttributeValueError, match="number of threads must be a whole number from 1"):
        tx.set_num_threads(count)
    with pytest.raises(AttributeValueError, match="number of threads must be"), tx.num_threads(count):
        pass
    assert tx.get_num_threads() == 3


def test_setting_the_number_loads_no_compiler() -> None:
    output = python("""
        import sys, threading
        import tinyxla as tx
        tx.set_num_threads(2)
        with tx.num_threads(3):
            assert tx.get_num_threads() == 3
            print("llvmlite" in sys.modules, threading.active_count())
            tx.jit(lambda x: x + 1)(tx.numpy.ones(10_000_000))
            print(sorted(thread.name for thread in threading.enumerate() if thread.name.startswith("tinyxla")))
        """)
    assert output == "False 1\n['tinyxla-1', 'tinyxla-2']\n"


def test_one_thread_is_the_callers() -> None:
    output = python("""
        import threading
        import tinyxla as tx
        tx.set_num_threads(1)
        tx.jit(lambda x: x + 1)(tx.numpy.ones(10_000_000))
        x = tx.numpy.ones((1000, 1000))
        tx.jit(lambda x: x @ x)(x)
        print(threading.active_count())
        """)
    assert output == "1\n"


def test_default_number_of_threads() -> None:
    available = thread_counts.default_threads({})
    assert 1 <= available <= (os.cpu_count() or 1)
    assert thread_counts.default_threads({"OMP_NUM_THREADS": "1"}) == 1
    assert thread_counts.default_threads({"OMP_NUM_THREADS": "1,4"}) == 1
    assert thread_counts.default_threads({"OMP_NUM_THREADS": "many"}) == available
    assert thread_counts.default_threads({"OMP_NUM_THREADS": "0"}) == available
    assert thread_counts.default_threads({"OMP_NUM_THREADS": "1", "TINYXLA_NUM_THREADS": "1000"}) == available
    assert thread_counts.default_threads({"TINYXLA_NUM_THREADS": "1"}) == 1
    for wrong in ("0", "-1", "two", "1.5", ""):
        with pytest.raises(AttributeValueError, match=f"TINYXLA_NUM_THREADS must be .* at least 1, but is '{wrong}'"):
            thread_counts.default_threads({"TINYXLA_NUM_THREADS": wrong})


def test_the_error_of_a_wrong_variable_names_the_line_of_the_user() -> None:
    """And not one of Python's, which imports the compiler then."""
    command = [sys.executable, "-c", "import tinyxla as tx\ntx.jit(abs)(1)"]
    wrong = {**os.environ, "TINYXLA_NUM_THREADS": "none"}
    result = subprocess.run(command, env=wrong, capture_output=True, text=True, timeout=120)
    assert result.stderr.splitlines()[-1].startswith("  at <string>:2 (<module>)")


@pytest.mark.parametrize("variable", ["TINYXLA_NUM_THREADS", "OMP_NUM_THREADS"])
def test_the_environment_limits_the_number(variable: str) -> None:
    program = "import tinyxla as tx; print(tx.get_num_threads()); tx.set_num_threads(2); print(tx.get_num_threads())"
    assert python(program, **{variable: "1"}) == "1\n2\n"


@linux
def test_affinity_limits_the_number() -> None:
    output = python("""
        import os
        os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
        import tinyxla as tx
        print(tx.get_num_threads())
        """)
    assert output == "1\n"


@pytest.mark.parametrize(
    ("membership", "files", "expected"),
    [
        ("0::/a/b\n", {"a/cpu.max": "150000 100000\n", "a/b/cpu.max": "max 100000\n"}, 2),
        ("0::/\n", {"cpu.max": "50000 100000\n"}, 1),
        ("0::/a\n", {"a/cpu.max": "max 100000\n"}, sys.maxsize),
        ("0::/not/seen/from/inside\n", {"cpu.max": "200000 100000\n"}, 2),
        (
            "4:cpu,cpuacct:/a\n",
            {"cpu,cpuacct/a/cpu.cfs_quota_us": "300000", "cpu,cpuacct/a/cpu.cfs_period_us": "100000"},
            3,
        ),
        ("4:cpu:/docker/0a1b\n", {"cpu/cpu.cfs_quota_us": "150000", "cpu/cpu.cfs_period_us": "100000"}, 2),
        ("1:cpu:/\n", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, sys.maxsize),
        ("1:cpu:/\n", {"cpu/cpu.cfs_quota_us": "100000", "cpu/cpu.cfs_period_us": "0"}, sys.maxsize),
        ("3:memory:/a\n", {"memory/a/cpu.max": "100000 100000\n"}, sys.maxsize),
        ("nonsense\n", {"cpu.max": "nonsense\n"}, sys.maxsize),
    ],
)
def test_control_groups(tmp_path: Path, membership: str, files: dict[str, str], expected: int) -> None:
    (tmp_path / "membership").write_text(membership)
    for name, text in files.items():
        path = tmp_path / "root" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert thread_counts.control_group_limit(tmp_path / "root", tmp_path / "membership") == expected
    assert thread_counts.control_group_limit(tmp_path / "none", tmp_path / "none") == sys.maxsize


def test_the_blas_of_numpy_is_limited_too() -> None:
    found = thread_counts._blas_of_numpy()
    if found is None:
        pytest.skip("NumPy's BLAS is not OpenBLAS")
    _, most = found
    library = ctypes.CDLL(np._core._multiarray_umath.__file__)
    (get,) = [
        function
        for prefix in ("scipy_openblas_", "openblas_")
        for suffix in ("64_", "")
        if (function := getattr(library, f"{prefix}get_num_threads{suffix}", None))
    ]
    for count in (1, 2, 1000):
        with tx.num_threads(count):
            assert get() == min(count, most)


# --- results do not depend on it --------------------------------------------------------------------------------------


def normal(*sizes: int, dtype: Any = np.float32) -> Any:
    generator = np.random.default_rng(zlib.crc32(repr(sizes).encode()))
    return generator.standard_normal(sizes).astype(dtype)


def whole(most: int, *sizes: int) -> Any:
    return np.random.default_rng(most).integers(0, most, sizes).astype(np.int32)


def convolution(x: Any, w: Any, **attributes: Any) -> Any:
    numbers = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=numbers, **attributes)


def pooled(x: Any) -> Any:
    return lax.reduce_window(x, -tnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")


def attention(q: Any, k: Any, v: Any) -> Any:
    scores = tnp.einsum("hqd,hkd->hqk", q, k) / 8
    return tx.nn.softmax(scores) @ v


def collatz(start: Any) -> Any:
    def step(state: Any) -> Any:
        x, count = state
        return tnp.where(x % 2 == 0, x // 2, 3 * x + 1), count + 1

    return lax.while_loop(lambda state: state[0] > 1, step, (start, 0))[1]


def oscillation(start: Any) -> Any:
    def step(state: Any, _: Any) -> Any:
        x, v = state
        v = v - 0.01 * tnp.sin(x)
        return (x + 0.01 * v, v), x

    return lax.scan(step, (start, start), None, length=20)


def mlp(parameters: Any, x: Any, y: Any) -> Any:
    for w, b in parameters:
        x = tnp.tanh(x @ w + b)
    return tnp.mean((x - y) ** 2)


def layer_norm(x: Any) -> Any:
    centred = x - tnp.mean(x, -1, keepdims=True)
    return centred / tnp.sqrt(tnp.mean(centred**2, -1, keepdims=True) + 1e-5)


def squared(function: Callable[..., Any], *arguments: int) -> Callable[..., Any]:
    return tx.grad(lambda *x: tnp.sum(function(*x) ** 2), arguments or 0)


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "chain": (lambda x: tnp.exp(tnp.sin(x) * 2) + tnp.tanh(x) ** 3, (normal(300_007),)),
    "cast": (lambda x: (x.astype("bfloat16") * 3).astype("int8"), (normal(300_007),)),
    "complex": (lambda x: tnp.exp(x) / (x + 1), (normal(100_003, dtype=np.complex64),)),
    "predicates": (lambda x: (x > 0) & (x < 1) | tnp.isnan(x), (normal(300_007),)),
    "transpose": (lambda x: x.T + x[::-1].T, (normal(701, 503),)),
    "concatenate and pad": (lambda x: tnp.pad(tnp.concatenate([x, x * 2], 1), 3), (normal(501, 401),)),
    "sum": (tnp.sum, (normal(1_000_003),)),
    "sum in half precision": (tnp.sum, (normal(500_009, dtype=np.float16),)),
    "sum of rows": (lambda x: tnp.sum(x, 1), (normal(1003, 701),)),
    "sum of columns": (lambda x: tnp.sum(x, 0), (normal(1003, 701),)),
    "sum of middle": (lambda x: tnp.sum(x, 1), (normal(17, 401, 101),)),
    "variance": (lambda x: (tnp.mean(x), tnp.var(x, 0), tnp.var(x)), (normal(1003, 701),)),
    "argmax": (lambda x: (tnp.argmax(x), tnp.argmax(x, 0), tnp.argmin(x, 1)), (normal(1003, 701),)),
    "norms": (lambda x: (tnp.linalg.norm(x), tnp.prod(1 + x / 1e5), tnp.max(x)), (normal(500_009),)),
    "softmax": (tx.nn.softmax, (normal(1003, 501),)),
    "softmax of columns": (lambda x: tx.nn.softmax(x, 0), (normal(1003, 301),)),
    "logsumexp": (lambda x: tx.nn.logsumexp(x, 1), (normal(1003, 501),)),
    "layer norm backwards": (squared(layer_norm), (normal(1003, 301),)),
    "cumulative sum": (lambda x: (tnp.cumsum(x, 0), tnp.cumsum(x, 1)), (normal(301, 703),)),
    "long cumulative sum": (tnp.cumsum, (normal(500_009),)),
    "cumulative maximum": (lambda x: lax.cumlogsumexp(lax.cummax(x)), (normal(200_003),)),
    "sort": (tnp.sort, (normal(200_003),)),
    "sort of rows": (lambda x: (tnp.sort(x), tnp.argsort(x, 0)), (normal(301, 503),)),
    "sort with equals": (tnp.argsort, (whole(100, 200_003),)),
    "top k": (lambda x: lax.top_k(x, 7), (normal(301, 1003),)),
    "search": (lambda x, y: tnp.searchsorted(tnp.sort(x), y), (normal(10_007), normal(100_003))),
    "gather": (lambda x, i: x[i], (normal(5003, 33), whole(5003, 20_011))),
    "scatter add": (lambda x, i, u: x.at[i].add(u), (normal(503, 33), whole(503, 20_011), normal(20_011, 33))),
    "scatter set": (lambda x, i, u: x.at[i].set(u), (normal(503), whole(503, 100_003), normal(100_003))),
    "segments": (lambda x, i: tx.ops.segment_sum(x, i, 101), (normal(100_003), whole(101, 100_003))),
    "histogram": (lambda x: tnp.bincount(x, length=101), (whole(101, 300_007),)),
    "product": (lambda x, y: x @ y, (normal(501, 403), normal(403, 607))),
    "product of doubles": (lambda x: x @ x.T, (normal(301, 403, dtype=np.float64),)),
    "product of integers": (lambda x: x @ x.T, (whole(100, 201, 303),)),
    "product of short floats": (lambda x: x.astype("bfloat16") @ x.T.astype("bfloat16"), (normal(201, 303),)),
    "long dot": (lambda x: x @ x, (normal(1_000_003),)),
    "matrix and vector": (lambda x, y: (x @ y, y @ x.T), (normal(2003, 1001), normal(1001))),
    "many products": (lambda x, y: x @ y, (normal(64, 65, 33), normal(64, 33, 17))),
    "product with epilogue": (lambda x, w, b: tx.nn.gelu(x @ w + b), (normal(501, 303), normal(303, 401), normal(401))),
    "einsum": (lambda x, y: tnp.einsum("bij,bkj->ikb", x, y), (normal(8, 101, 65), normal(8, 77, 65))),
    "attention": (attention, (normal(4, 257, 33), normal(4, 257, 33), normal(4, 257, 33))),
    "attention backwards": (squared(attention, 0, 1, 2), (normal(4, 129, 33), normal(4, 129, 33), normal(4, 129, 33))),
    "Cholesky": (lambda x: tnp.linalg.cholesky(x @ x.T + 300 * tnp.eye(200)), (normal(200, 200),)),
    "solve": (tnp.linalg.solve, (normal(8, 65, 65), normal(8, 65, 7))),
    "QR": (tnp.linalg.qr, (normal(8, 65, 33),)),
    "FFT with a large prime": (tnp.fft.rfft, (normal(16, 10300),)),
    "FFT": (tnp.fft.fft, (normal(129, 501, dtype=np.complex64),)),
    "convolution": (convolution, (normal(4, 33, 31, 17), normal(3, 3, 17, 33))),
    "convolution backwards": (squared(convolution, 0, 1), (normal(4, 17, 15, 9), normal(3, 3, 9, 17))),
    "depthwise convolution": (
        lambda x, w: convolution(x, w, feature_group_count=32),
        (normal(4, 33, 31, 32), normal(3, 3, 1, 32)),
    ),
    "depthwise convolution backwards": (
        squared(lambda x, w: convolution(x, w, feature_group_count=16), 0, 1),
        (normal(4, 17, 15, 16), normal(3, 3, 1, 16)),
    ),
    "pooling": (pooled, (normal(8, 33, 31, 17),)),
    "pooling backwards": (squared(pooled), (normal(8, 33, 31, 17),)),
    "random normals": (lambda x: tx.random.normal(tx.random.key(3), x.shape), (normal(300_007),)),
    "random normals in short rows": (lambda x: x * tx.random.normal(tx.random.key(3), (30_011, 2)), (normal(2),)),
    "remainders": (lambda x, y: (x % y, x // y), (whole(1 << 30, 100_003), whole(1000, 100_003) - 500)),
    "permutation": (lambda x: tx.random.permutation(tx.random.key(3), x), (normal(50_021),)),
    "categorical": (lambda x: tx.random.categorical(tx.random.key(3), x), (normal(1003, 101),)),
    "lanes of a loop": (tx.vmap(collatz), (whole(1000, 5003) + 1,)),
    "scan": (oscillation, (normal(30_011),)),
    "scan backwards": (tx.grad(lambda x: tnp.sum(oscillation(x)[1] ** 2)), (normal(5003),)),
    "branches": (
        lambda x: lax.cond(tnp.sum(x) > 0, lambda x: tnp.sum(tnp.sin(x), 0), lambda x: tnp.sum(x, 0), x),
        (normal(503, 601),),
    ),
    "perceptron backwards": (
        tx.grad(mlp),
        ([(normal(301, 203), normal(203)), (normal(203, 101), normal(101))], normal(513, 301), normal(513, 101)),
    ),
    "batch norm backwards": (
        squared(lambda x: (x - tnp.mean(x, (0, 1, 2))) / tnp.sqrt(tnp.var(x, (0, 1, 2)) + 1e-5)),
        (normal(8, 31, 29, 17),),
    ),
}


def bits(results: Any) -> list[bytes]:
    return [np.asarray(x).tobytes() for x in tx.tree.leaves(results)]


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_the_same_for_any_number_of_threads(name: str) -> None:
    """A few times each: threads do not always take the same parts."""
    function, arguments = PROGRAMS[name]
    compiled = tx.jit(function)
    with tx.num_threads(1):
        expected = bits(compiled(*arguments))
    for count in (2, 3, 5):
        with tx.num_threads(count):
            for _ in range(3):
                assert bits(compiled(*arguments)) == expected, f"{count} threads"


_KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
_SAMPLES = 6  # of each operation
Order = Callable[[list[int], int], list[int]]


def in_order(chunks: list[int], _: int) -> list[int]:
    return chunks


def backwards(chunks: list[int], _: int) -> list[int]:
    return chunks[::-1]


def shuffled(chunks: list[int], seed: int) -> list[int]:
    return [chunks[k] for k in np.random.default_rng(seed).permutation(len(chunks))]


@contextlib.contextmanager
def cut_kernels(order: Order) -> Iterator[list[int]]:
    """Kernels that may be split run index by index, in an order as if threads had taken them. Gives the extents of the
    kernels that were cut."""
    step = Schedule.kernel
    kept: list[Any] = []
    extents: list[int] = []

    def cut(
        self: Schedule, given: Any, slots: Any, extent: int, grain: int = 0, constants: Any = (), in_order: bool = False
    ) -> None:
        address = given() if callable(given) else given
        if extent > 1 and grain > 0 and not in_order:
            kernel = _KERNEL(address)

            def run(table: int, first: int, last: int) -> None:
                for index in order(list(range(first, last)), extent):
                    kernel(table, index, index + 1)

            kept.append(_KERNEL(run))
            extents.append(extent)
            address = ctypes.cast(kept[-1], ctypes.c_void_p).value or 0
        step(self, address, slots, extent, 0, constants)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Schedule, "kernel", cut)
        tx.clear_caches()
        yield extents
        tx.clear_caches()


def cut_results(name: str, order: Order) -> tuple[list[Any], int]:
    """The bits of some samples of an operation, and how many of their kernels were cut."""
    seed = np.random.default_rng(zlib.crc32(name.encode()))
    samples = list(ops[name].samples(seed))
    found: list[Any] = []
    with cut_kernels(order) as extents:
        for k in sorted(seed.permutation(len(samples))[:_SAMPLES]):
            operands = [wrap(x) for x in op_checks.flat(samples[k].operands)]
            found.append(bits(tx.jit(op_checks.on_arrays(ops[name], samples[k]))(*operands)))
    return found, len(extents)


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("name", sorted(ops))
def test_parts_of_kernels_may_run_in_any_order(name: str) -> None:
    expected, count = cut_results(name, in_order)
    for order in (backwards, shuffled) if count else ():
        assert cut_results(name, order)[0] == expected, order.__name__


def test_an_order_that_matters_is_found() -> None:
    """A kernel of which the last part to run decides the result."""

    def kernel(table: int, first: int, last: int) -> None:
        ctypes.c_int64.from_address(ctypes.c_int64.from_address(table).value).value = first

    native = _KERNEL(kernel)
    kernel_address = ctypes.cast(native, ctypes.c_void_p).value or 0
    found: list[int] = []
    for order in (in_order, backwards, shuffled):
        with cut_kernels(order) as extents:
            schedule = Schedule()
            schedule.kernel(kernel_address, [0], 7, 3)
            assert extents == [7]
            result = ctypes.c_int64(-1)
            slots = (ctypes.c_int64 * 1)(ctypes.addressof(result))
            launch(schedule.finish().ctypes.data, ctypes.addressof(slots))
            found.append(result.value)
    assert found[:2] == [6, 0]
    assert found[2] not in (-1, 6)


# --- which kernels are cut --------------------------------------------------------------------------------------------


def _game(update: Callable[[Any], Any], go_on: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return tx.jit(
        lambda x: lax.while_loop(lambda s: go_on(s[0]) & (s[1] < 9), lambda s: (update(s[0]), s[1] + 1), (x, 0))
    )


@pytest.mark.parametrize(
    ("name", "go_on", "size", "is_cut"),
    [
        ("read again on one thread", lambda x: tnp.any(x < 9), 160, False),
        ("read by one thread in part", lambda x: x[3, 4] < 9, 160, True),
        ("more work than it costs to move the array", lambda x: tnp.any(x[:4] < 9), 160, True),
        ("more than a cache holds", lambda x: tnp.any(x < 9), 600, True),
    ],
)
def test_little_work_stays_where_its_arrays_are(
    name: str, go_on: Callable[[Any], Any], size: int, is_cut: bool
) -> None:
    f = _game(lambda x: x * x * 0.1 + tnp.roll(x, 1, 0) + tnp.roll(x, -1, 0) + 0.5 * x, go_on)
    x = np.random.default_rng(zlib.crc32(name.encode())).random((size, size), np.float32)
    (step,) = [line for line in f.lower(x).compile().as_text().splitlines() if f"loop over {size} by" in line]
    assert (f"loop over {size} by {size} " not in step) == is_cut


@pytest.mark.parametrize(
    ("name", "f", "is_cut"),
    [
        ("between kernels that threads share", lambda x: tnp.sort(tnp.sort(x) * 2 + 1), True),
        ("in a loop", lambda x: lax.fori_loop(0, 9, lambda _, y: tnp.sort(y) * 2 + 1, x), True),
        (
            "before rows are read on one thread",
            lambda x: lax.scan(lambda c, row: (c + row, c.sum()), tnp.zeros(128), tnp.sort(x) * 2 + 1),
            False,
        ),
    ],
)
def test_little_work_joins_what_is_shared_around_it(name: str, f: Callable[[Any], Any], is_cut: bool) -> None:
    x = np.random.default_rng(zlib.crc32(name.encode())).random((300, 128), np.float32)
    (loop,) = re.findall(r"loop over 38400 by (\d+) \(add\)", tx.jit(f).lower(x).compile().as_text())
    assert (int(loop) < 38400) == is_cut


def test_work_of_unknown_length_is_cut() -> None:
    """Lanes of a loop that ends when its body says so, between steps on one thread."""

    def escape(c: Any) -> Any:
        z, n = lax.while_loop(lambda s: (abs(s[0]) < 2) & (s[1] < 50), lambda s: (s[0] * s[0] + c, s[1] + 1), (c, 0))
        return z * n

    f = tx.jit(lambda c: tnp.any(tx.vmap(escape)(c * 1.5)[::-1] == 1))
    text = f.lower(np.ones(20_000, np.complex64)).compile().as_text()
    assert "small_lanes over 625 by " in text
    assert "small_lanes over 625 by 625" not in text


# --- many threads of the user's ---------------------------------------------------------------------------------------

SIZE = 100_003


def together(count: int, work: Callable[[int], Any]) -> list[Any]:
    """What `count` threads find that begin at the same moment."""
    barrier = threading.Barrier(count)

    def run(number: int) -> Any:
        barrier.wait(timeout=60)
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return [future.result(timeout=120) for future in [pool.submit(run, number) for number in range(count)]]


def test_one_function_called_at_once() -> None:
    """The first calls, which trace and compile it, too."""
    traces: list[int] = []

    def function(x: Any) -> Any:
        traces.append(1)
        return tnp.sum(tnp.sin(x)), tnp.cumsum(x), x @ x

    for _ in range(3):
        compiled = tx.jit(function)
        inputs = [normal(SIZE) + k for k in range(6)]
        found = together(6, lambda k, f=compiled, xs=inputs: [bits(f(xs[k])) for _ in range(10)])
        for x, results in zip(inputs, found, strict=True):
            assert all(result == results[0] for result in results)
            assert results[0] == bits(compiled(x))
        tx.clear_caches()


def test_different_functions_called_at_once() -> None:
    names = ["softmax", "product", "sort", "convolution", "scatter add", "variance", "scan", "random normals"]
    compiled = [(tx.jit(PROGRAMS[name][0]), PROGRAMS[name][1]) for name in names]
    found = together(len(names), lambda k: [bits(compiled[k][0](*compiled[k][1])) for _ in range(5)])
    for (function, arguments), results in zip(compiled, found, strict=True):
        assert set(map(tuple, results)) == {tuple(bits(function(*arguments)))}


def test_new_shapes_at_once() -> None:
    compiled = tx.jit(lambda x: tnp.sum(x * 2, 0))
    found = together(6, lambda k: [float(compiled(np.ones(1000 + 7 * n + k, np.float32))) for n in range(8)])
    assert found == [[2.0 * (1000 + 7 * n + k) for n in range(8)] for k in range(6)]


def test_transformations_at_once() -> None:
    """What is traced belongs to the thread."""

    def work(k: int) -> list[float]:
        gradient = tx.jit(tx.grad(lambda x: tnp.sum(tx.vmap(lambda row: tnp.tanh(row) * k)(x))))
        return [float(gradient(np.full((3, n), 0.5, np.float32))[0, 0]) for n in range(1, 5)]

    expected = 1 - np.tanh(0.5) ** 2
    np.testing.assert_allclose(together(6, work), [[expected * k] * 4 for k in range(6)], 1e-5)


def test_caches_are_cleared_while_others_make_functions() -> None:
    kept = [tx.jit(lambda x: x) for _ in range(1000)]
    finished = threading.Event()

    def make() -> None:
        while not finished.is_set():
            tx.jit(lambda x: x)

    maker = threading.Thread(target=make)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    maker.start()
    try:
        for _ in range(len(kept)):
            tx.clear_caches()
    finally:
        finished.set()
        maker.join()
        sys.setswitchinterval(interval)


def test_exceptions_belong_to_the_thread_that_caused_them() -> None:
    def host(x: Any) -> Any:
        if x[0] < 0:
            raise KeyError(f"thread {int(-x[0])}")
        return x + 1

    @tx.jit
    def function(x: Any) -> Any:
        return tx.pure_callback(host, tx.ShapeDtypeStruct((SIZE,), np.float32), x * 2)

    def work(k: int) -> list[str]:
        found: list[str] = []
        for _ in range(10):
            try:
                found.append(str(float(function(np.full(SIZE, -k if k % 2 else k, np.float32))[5])))
            except KeyError as error:
                found.append(error.args[0])
        return found

    assert together(6, work) == [[f"thread {2 * k}" if k % 2 else str(2.0 * k + 1)] * 10 for k in range(6)]


def test_compiled_functions_in_callbacks() -> None:
    """A callback calls compiled functions, some of them first there, while other threads do too."""
    inner = tx.jit(lambda x: tnp.sum(tnp.sin(x)))

    def host(x: Any) -> Any:
        fresh = tx.jit(lambda x: x * 3)
        return np.asarray(inner(x)) + np.asarray(fresh(x))[0]

    @tx.jit
    def outer(x: Any) -> Any:
        return tx.pure_callback(host, tx.ShapeDtypeStruct((), np.float32), x + 1) * 2

    inputs = [normal(SIZE) * (k + 1) for k in range(4)]
    found = together(4, lambda k: [float(outer(inputs[k])) for _ in range(5)])
    for x, results in zip(inputs, found, strict=True):
        assert results == [float((inner(x + 1) + np.float32(3) * (x[0] + 1)) * 2)] * 5


def test_the_number_changes_while_others_compute() -> None:
    function, arguments = PROGRAMS["perceptron backwards"]
    compiled = tx.jit(function)
    expected = bits(compiled(*arguments))
    done = threading.Event()

    def change() -> None:
        while not done.is_set():
            for count in (1, 4, 2, 3):
                tx.set_num_threads(count)

    changing = threading.Thread(target=change)
    changing.start()
    try:
        assert together(3, lambda _: [bits(compiled(*arguments)) == expected for _ in range(10)]) == [[True] * 10] * 3
    finally:
        done.set()
        changing.join()


# --- forks and other processes ----------------------------------------------------------------------------------------

_USED = """
    import os, sys, threading, warnings
    import numpy as np
    import tinyxla as tx
    warnings.simplefilter("ignore")  # of forks while there are threads
    tx.set_num_threads(3)
    x = np.arange(300_000, dtype=np.float32).reshape(500, 600) / 1e5
    f = tx.jit(lambda x: (tx.numpy.sum(tx.numpy.sin(x)), x @ x.T, tx.numpy.sort(x, 0)))
    def bits(x=x):
        return [np.asarray(y).tobytes() for y in f(x)]
    expected = bits()
"""


@forks
def test_forked_children_compute() -> None:
    """With what is compiled and with new functions; and their children do."""
    output = python(
        _USED
        + """
    for _ in range(5):
        child = os.fork()
        if child == 0:
            good = bits() == expected and float(tx.jit(lambda x: x[0, 0] + 1)(x)) == 1
            grandchild = os.fork()
            if grandchild == 0:
                os._exit(0 if bits() == expected else 1)
            os._exit(0 if good and os.waitpid(grandchild, 0)[1] == 0 else 1)
        print(os.waitpid(child, 0)[1], bits() == expected)
    """
    )
    assert output == "0 True\n" * 5


@forks
def test_forks_while_other_threads_compute_and_compile() -> None:
    output = python(
        _USED
        + """
    stop = threading.Event()
    def work(number):
        count = 0
        while not stop.is_set():
            bits()
            count += 1
            tx.jit(lambda x: x * (number + count))(x)
    workers = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for worker in workers:
        worker.start()
    codes = []
    for k in range(10):
        child = os.fork()
        if child == 0:
            os._exit(0 if bits() == expected and float(tx.jit(lambda x: x[0, 0] + k)(x)) == k else 1)
        codes.append(os.waitpid(child, 0)[1])
    stop.set()
    for worker in workers:
        worker.join()
    print(codes)
    """
    )
    assert output == f"{[0] * 10}\n"


def sine_sum(size: int) -> tuple[float, int]:
    """Of other processes, too."""
    return float(tx.jit(lambda x: tnp.sum(tnp.sin(x)))(np.ones(size, np.float32))), os.getpid()


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")  # of JAX, if another test has loaded it
def test_processes_started_in_any_way(method: str) -> None:
    expected, here = sine_sum(SIZE)
    context = multiprocessing.get_context(method)
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        found = list(pool.map(sine_sum, [SIZE] * 6, timeout=120))
    assert {value for value, _ in found} == {expected}
    assert here not in {process for _, process in found}
    with context.Pool(1) as processes:
        assert {value for value, _ in processes.map(sine_sum, [SIZE] * 4)} == {expected}


# --- the end of the interpreter ---------------------------------------------------------------------------------------

_ENDS = {
    "daemon threads compute": """
    executable = f.lower(x)._program.executable  # without optree, whose C++ such threads do not survive
    def work():
        while True:
            executable([x])
    for _ in range(3):
        threading.Thread(target=work, daemon=True).start()
    """,
    "a thread compiles": """
    tx.config.update("interpret_first", True)
    tx.jit(lambda x: tx.numpy.cumsum(tx.numpy.sin(x), 0) + tx.numpy.sort(x))(x)
    """,
    "threads finish": """
    import time
    def work():
        time.sleep(0.2)
        assert bits() == expected
        print("finished")
    threading.Thread(target=work).start()
    """,
    "an executor's threads": """
    from concurrent.futures import ThreadPoolExecutor
    pool = ThreadPoolExecutor(3)
    futures = [pool.submit(bits) for _ in range(10)]
    """,
    "handlers at exit": """
    import atexit
    atexit.register(lambda: print("finished" if bits() == expected else "wrong"))
    """,
    "a callback on the way": """
    import time
    def host(x):
        time.sleep(30)
        return x
    g = tx.jit(lambda x: tx.pure_callback(host, tx.ShapeDtypeStruct((), np.float32), x[0, 0]))
    threading.Thread(target=g, args=(x,), daemon=True).start()
    time.sleep(0.3)
    """,
    "an exception": """
    try:
        tx.jit(lambda x: tx.pure_callback(lambda x: 1 / 0, tx.ShapeDtypeStruct((), np.float32), x))(1.0)
    except ZeroDivisionError:
        print("finished")
    """,
}


@pytest.mark.parametrize("work", [1, 3, 40])
@pytest.mark.parametrize("extent", [100_000, 131_073, 300_001, 10_000_000])
def test_two_threads_get_as_much(extent: int, work: int) -> None:
    """Pieces of work are of nearly one size, and several are an even number."""
    grain = axes.parallel_grain(extent, work)
    pieces = -(-extent // grain)
    assert pieces == 1 or (pieces % 2 == 0 and extent - (pieces - 1) * grain > 0.9 * grain)


def test_where_something_is_read_is_no_work() -> None:
    """Slices and broadcasts leave a loop as long as it is: more pieces than its arithmetic is worth take longer."""

    def pieces(f: Callable[..., Any], rows: int, columns: int) -> int:
        arrays = [np.ones((rows, columns), np.float32)] * 3
        (loop,) = re.findall(r"over (\d+) by (\d+)", tx.jit(f).lower(*arrays).compile().as_text())
        return -(-int(loop[0]) // int(loop[1]))

    with setting("target", "processors=8"):
        plain = pieces(lambda x, y, z: x * y + z, 298, 298)
        assert plain == pieces(lambda x, y, z: x[:-2, 1:-1] * y[1:-1, 2:] + z[2:, :-2], 300, 300) == 4


def test_a_short_step_has_a_chunk_for_each_thread() -> None:
    def chunks(processors: int) -> int:
        with setting("target", f"processors={processors}"):
            text = tx.jit(lambda x: jnp.sin(x) * 2).lower(np.ones(200_000, np.float32)).compile().as_text()
        ((extent, grain),) = re.findall(r"over (\d+) by (\d+)", text)
        return -(-int(extent) // int(grain))

    assert chunks(2) == 2
    assert chunks(3) == 3
    assert chunks(64) > 8  # of the least work that pays for one more thread


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("what", _ENDS)
def test_the_interpreter_ends_while(what: str) -> None:
    output = python(_USED + _ENDS[what] + '\n    print("end")\n')
    assert sorted(output.split()) == (["end", "finished"] if "finished" in _ENDS[what] else ["end"])
