"""What type checkers see of the public functions: results that are not `Any`, and wrong calls.

The programs in `tests/typed_programs` are checked by pyright and mypy, both strict, where these are installed.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent
ROOT = PROGRAMS.parents[1]
CHECKERS = ("pyright", "mypy")


def reported(checker: str, cache: Path, *programs: str) -> dict[str, set[int]]:
    """The lines of each program of which a type checker reports an error."""
    executable = shutil.which(checker, path=str(Path(sys.executable).parent)) or shutil.which(checker)
    if executable is None:
        pytest.skip(f"{checker} is not installed")
    python = ["--pythonpath" if checker == "pyright" else "--python-executable", sys.executable]
    options = [] if checker == "pyright" else ["--strict", "--follow-imports=silent", f"--cache-dir={cache}"]
    files = [str(PROGRAMS / name) for name in programs]
    done = subprocess.run([executable, *python, *options, *files], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    print(done.stdout)  # shown where a test fails
    found: dict[str, set[int]] = {name: set() for name in programs}
    for name, line in re.findall(r"(\w+\.py):(\d+):.*error", done.stdout):
        found[name].add(int(line))
    return found


def marked(name: str) -> set[int]:
    """The lines that are wrong on purpose."""
    lines = (PROGRAMS / name).read_text().splitlines()
    return {number for number, line in enumerate(lines, 1) if line.endswith("# wrong")}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mypy")


@pytest.mark.parametrize("checker", CHECKERS)
def test_results_have_types_and_wrong_calls_are_reported(checker: str, cache: Path) -> None:
    found = reported(checker, cache, "results.py", "lambdas.py", "wrong_calls.py")
    assert found == {"results.py": set(), "lambdas.py": set(), "wrong_calls.py": marked("wrong_calls.py")}


def test_pyright_sees_types_of_partial_applications(cache: Path) -> None:
    assert reported("pyright", cache, "partials.py") == {"partials.py": set()}


def test_programs_ask_for_types_and_plant_mistakes() -> None:
    assert (PROGRAMS / "results.py").read_text().count("assert_type(") >= 30
    assert len(marked("wrong_calls.py")) >= 20
