"""What a Python in a browser lacks, taken away: the interpreter needs no LLVM, no threads and no modules of Unix.

Pyodide is such a Python (https://pyodide.org/en/stable/usage/wasm-constraints.html): no thread starts, there is one
process, and the modules of `ABSENT` cannot be imported.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.test_pages import DOCS
from tests.support import ROOT

ABSENT = "curses fcntl grp llvmlite lzma multiprocessing numba pwd resource sqlite3 ssl syslog termios _posixshmem"
TUTORIALS = "arrays gradients vmap control-flow random".split()  # that of `jit` shows compiled loops
PAGES = [DOCS / "start" / "ten-minutes.md", *(DOCS / "tutorials" / f"{name}.md" for name in TUTORIALS)]
RESTRICTED = """
import os, sys, threading
from pathlib import Path

from tests.docs.test_pages import failures

class Without:
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in absent else self.finder.find_spec(name, path, target)

def start(thread):
    raise RuntimeError("can't start new thread")

absent = sys.argv[1].split()
for name in [name for name in sys.modules if name.partition(".")[0] in absent]:
    del sys.modules[name]
sys.meta_path[:] = map(Without, sys.meta_path)
threading.Thread.start = start
del os.sched_getaffinity
assert "tinyxla" not in sys.modules
for page in map(Path, sys.argv[2:]):
    print(*failures(page.read_text(encoding="utf-8"), page.stem), sep="\\n")
import tinyxla as tx
print(type(tx.jit(lambda x: x + 1).lower(1.0).compile()).__name__, sorted(set(absent) & set(sys.modules)))
"""


def run(*pages: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error"}
    command = [sys.executable, "-c", RESTRICTED, ABSENT, *map(str, pages)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="there is no such function to be taken away")
def test_pages_run_without_what_a_browser_lacks(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.md"
    wrong.write_text(">>> 1 + 1\n3\n")
    assert "Expected:\n    3\nGot:\n    2" in run(wrong)
    assert run(*PAGES) == "Compiled []"
