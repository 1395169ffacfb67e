"""What stays of compiled code in the memory of a process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT

PROGRAM = """
import ctypes, gc, resource
from tinyxla.backends.numba.jit import engine

def compiled(numbers):
    for k in numbers:
        engine.compile_llvm(f"define i64 @f(i64 %x) {{\\n  ret i64 (add i64 %x, {k})\\n}}\\n", ["f"])
    engine.forget()
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()

before = compiled(range(40))
print((compiled(range(40, 240)) - before) // 200)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux says how much memory is resident")
def test_compiling_keeps_little_more_than_the_code(tmp_path: Path) -> None:
    """Two pages, and LLVM's tables; its pass managers take 50 KB each."""
    environment = {**os.environ, "TINYXLA_CACHE_BYTES": "0"}
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 30_000
