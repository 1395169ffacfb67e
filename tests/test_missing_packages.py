"""Packages that are not installed, or are broken: without LLVM functions run in the interpreter, and what needs SciPy
says so."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support import ROOT
from tinyxla.errors import MissingPackageError, TinyxlaError
from tinyxla.runtime.imports import requiring


def run(program: str, folder: Path, *options: str, arguments: Sequence[str] = ()) -> str:
    """What a program prints; modules in a folder stand before those that are installed."""
    path = os.pathsep.join([str(folder), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": path, "TINYXLA_CACHE_DIR": str(folder / "cache")}
    command = [sys.executable, *options, "-c", program, *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def broken(folder: Path, package: str, text: str) -> None:
    (folder / package).mkdir()
    (folder / package / "__init__.py").write_text(text)


INTERPRETED = """
import warnings
import numpy as np
import tinyxla as tx

def example():
    f = tx.jit(lambda x: x * 2 + 1)
    assert float(f(3.0)) == 7
    assert float(tx.jit(tx.grad(lambda x: tx.numpy.sum(x @ x)))(tx.numpy.eye(2)).sum()) == 8
    assert float(tx.numpy.sum(tx.numpy.ones(100_000) * 2)) == 200_000
    tx.clear_caches()
    assert float(f(3.0)) == 7

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    example()
for x in caught:
    print(x.category.__name__, x.message, sep="|")
"""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("raise OSError('libLLVM.so: no such file')", "OSError: libLLVM.so: no such file"),
        ("", "ModuleNotFoundError: No module named 'llvmlite.binding'"),
    ],
    ids=["an error", "no binding"],
)
def test_llvmlite_that_cannot_be_imported_leaves_the_interpreter_with_one_warning(
    text: str, reason: str, tmp_path: Path
) -> None:
    broken(tmp_path, "llvmlite", text)
    (said,) = run(INTERPRETED, tmp_path).splitlines()
    assert said.startswith(f"RuntimeWarning|llvmlite is installed, but cannot be imported ({reason})")
    assert "run in the interpreter" in said


MISSING = """
import tinyxla as tx
from tinyxla.errors import MissingPackageError

tnp = tx.numpy
matrix, v = tnp.eye(64) * 3 + 0.01, tnp.arange(5.0)
for name, function, ways in (
    ("erf", lambda: tx.scipy.special.erf(v), "eager"),
    ("erfinv", lambda: tx.scipy.special.erfinv(v / 9), "eager"),
    ("fft", lambda: tnp.fft.fft(v), "eager"),
    ("A linear solve", lambda: tnp.linalg.solve(matrix, matrix[0]), "eager"),
    ("lu-decomposition", lambda: tx.scipy.linalg.lu(matrix), "eager"),
    ("triangular-solve", lambda: tx.scipy.linalg.solve_triangular(matrix, matrix[0]), "eager"),
    ("A compiled matrix product or factorization", lambda: tnp.linalg.svd(matrix), "jit"),
    ("betainc", lambda: tx.scipy.special.betainc(1.0, 2.0, 0.5), "eager jit"),
    ("hyp1f1", lambda: tx.scipy.special.hyp1f1(1.0, 2.0, 0.5), "eager jit"),
    ("scipy.linalg.sqrtm", lambda: tx.scipy.linalg.sqrtm(matrix), "eager jit"),
    ("scipy.special.bernoulli", lambda: tx.scipy.special.bernoulli(4), "eager jit"),
):
    for way in ways.split():
        try:
            (tx.jit(function) if way == "jit" else function)()
        except MissingPackageError as error:
            assert str(error).startswith(f"{name} needs SciPy, which cannot be imported ("), (name, way, str(error))
            assert "python -m pip install scipy" in str(error)
        else:
            raise AssertionError((name, way))
assert float((matrix @ matrix).sum()) > 0  # what needs no SciPy works
assert float(tx.jit(lambda x: tx.scipy.special.erf(x) + tnp.sin(x))(0.0)) == 0
"""


@pytest.mark.parametrize(
    "text", ["raise ModuleNotFoundError(\"No module named 'scipy'\")", "raise ValueError('numpy.dtype size changed')"]
)
def test_what_needs_scipy_says_so_where_it_cannot_be_imported(text: str, tmp_path: Path) -> None:
    broken(tmp_path, "scipy", text)
    run(MISSING, tmp_path)


def test_the_error_of_a_missing_package_can_be_caught_as_pythons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(tmp_path, "such_a_package", "raise OSError('no such file')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ImportError, match="f needs Such, which") as caught, requiring("such_a_package", "Such", "f"):
        pass
    assert isinstance(caught.value, MissingPackageError)
    assert isinstance(caught.value, TinyxlaError)
    assert isinstance(caught.value.__cause__, OSError)


INTERRUPTED = """
import signal, sys, threading, time
import numpy as np
import tinyxla as tx

class Slow:  # an import that a signal meets
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            sys.meta_path.remove(self)
            signal.pthread_kill(threading.main_thread().ident, signal.SIGALRM)
            time.sleep(0.2)

def handler(*_):
    raise TimeoutError("too slow")

x = np.linspace(-1, 1, 5, dtype=np.float32)
programs = {
    "scipy.fft._pocketfft": lambda: tx.numpy.fft.fft(x),
    "scipy.special._ufuncs": lambda: tx.scipy.special.erf(x),
    "scipy.linalg.lapack": lambda: tx.scipy.linalg.lu(np.eye(64, dtype=np.float32)),
    "llvmlite.binding.module": lambda: tx.jit(lambda x: tx.numpy.sin(x) + 1)(x),
    "tinyxla.backends.numba.runtime": lambda: tx.jit(lambda x: tx.numpy.sin(x) + 1)(x),
}
signal.signal(signal.SIGALRM, handler)
sys.meta_path.insert(0, Slow())
try:
    programs[sys.argv[1]]()
except TimeoutError as error:
    print(error)
programs[sys.argv[1]]()
print(tx.jit(lambda x: x + 1).lower(x).compile().kernels != [])
"""


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="the system has no such signals")
@pytest.mark.parametrize(
    "module",
    [
        "scipy.fft._pocketfft",
        "scipy.special._ufuncs",
        "scipy.linalg.lapack",
        "llvmlite.binding.module",
        "tinyxla.backends.numba.runtime",
    ],
)
def test_import_during_which_an_exception_comes_from_outside_is_of_no_broken_package(
    module: str, tmp_path: Path
) -> None:
    assert run(INTERRUPTED, tmp_path, arguments=[module]).splitlines() == ["too slow", "True"]


WITHIN = """
import builtins, os, sys, threading
threading.Timer(60, lambda: os._exit(1)).start()
found = builtins.__import__

def call_first(name, *arguments):  # calls a compiled function before one of the last modules is imported
    if name == "tinyxla.api.sharding.pmap":
        builtins.__import__ = found
        from tinyxla.api.jit import jit
        print(float(jit(lambda x: x + 1)(1.0)), sys.modules["tinyxla"].__spec__._initializing)
    return found(name, *arguments)

builtins.__import__ = call_first
import tinyxla
os._exit(0)
"""


def test_compiled_function_called_while_the_package_is_imported_works(tmp_path: Path) -> None:
    assert run(WITHIN, tmp_path, "-u") == "2.0 True\n"


WITHOUT_MPI = """
import os
from tinyxla import distributed
os.environ["OMPI_COMM_WORLD_SIZE"] = "2"
try:
    distributed.initialize()
except ImportError as error:
    print(type(error).__name__, error)
"""


def test_processes_say_what_to_install(tmp_path: Path) -> None:
    broken(tmp_path, "mpi4py", "raise ImportError('no MPI')")
    found = run(WITHOUT_MPI, tmp_path)
    assert found.startswith(
        "MissingPackageError distributed.initialize: several processes need mpi4py and an MPI library"
    )
    assert "python -m pip install 'tinyxla[mpi]'" in found
