"""The example and the README's program run as a user runs them: in a process of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT


def run_python(*arguments: str) -> str:
    """Return what Python prints when run with these arguments and this checkout's packages."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    finished = subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def require_demo() -> None:
    for module in ("matplotlib", "sklearn", "tqdm"):
        pytest.importorskip(module)


def test_digits_learns_and_draws(tmp_path: Path) -> None:
    require_demo()
    figure = tmp_path / "digits.png"
    printed = run_python(str(ROOT / "examples" / "digits.py"), "--epochs", "15", "--output", str(figure))
    found = re.search(r"held-out accuracy: ([\d.]+)% \((\d+) of (\d+)\)", printed)
    assert found, printed
    percent, correct, images = float(found[1]), int(found[2]), int(found[3])
    assert percent >= 97
    assert percent == pytest.approx(100 * correct / images, abs=0.01)
    assert figure.read_bytes().startswith(b"\x89PNG\r\n")


@pytest.mark.thorough
def test_digits_rejects_training_for_no_epoch(tmp_path: Path) -> None:
    require_demo()
    figure = tmp_path / "digits.png"
    with pytest.raises(AssertionError, match="--epochs must be at least 1, not 0"):
        run_python(str(ROOT / "examples" / "digits.py"), "--epochs", "0", "--output", str(figure))
    assert not figure.exists()


def test_the_readme_program_finds_the_weights() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    program = re.search(r"```python\n(.*?)```", readme, re.DOTALL)
    assert program
    printed = run_python("-c", program[1])
    weights = [float(number) for number in re.findall(r"-?\d+\.\d*", printed.partition("]")[0])]
    assert weights == pytest.approx([0.5, -1.0, 2.0], abs=0.02)
    assert "for " in printed.partition("]")[2], "the source of a kernel is a loop"
