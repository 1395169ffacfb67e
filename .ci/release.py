"""Build and check a release: `python .ci/release.py DIRECTORY` (needs the extra `release`).

The source distribution and, from it, the wheel are made in DIRECTORY; their metadata and contents are checked. Then the
wheel is installed into a new environment that has only what it requires, where the README's example and the hook for
JAX's name are run.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = re.compile(r"<!-- example -->\n```python\n(.*?)```", re.DOTALL)
HOOK = "import jax, tinyxla; assert jax.jit is tinyxla.jit, jax.jit"


def run(*command: str | Path, cwd: Path = ROOT, **variables: str) -> None:
    print("+", *command, flush=True)
    subprocess.run([str(word) for word in command], check=True, cwd=cwd, env=clean_environment() | variables)


def clean_environment() -> dict[str, str]:
    """The environment without what would let Python find the checkout."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "TINYXLA_JAX"))}


def readme_example() -> str:
    found = EXAMPLE.search((ROOT / "README.md").read_text(encoding="utf-8"))
    if found is None:
        raise SystemExit("README.md has no example between <!-- example --> and <!-- end -->")
    return found[1]


def build(target: Path) -> Path:
    """Build both distributions; return the wheel."""
    run(sys.executable, "-m", "build", "--outdir", target)
    distributions = sorted(target.glob("tinyxla-*"))
    run(sys.executable, "-m", "twine", "check", "--strict", *distributions)
    (wheel,) = target.glob("tinyxla-*.whl")
    run(sys.executable, "-m", "check_wheel_contents", wheel)
    return wheel


def try_wheel(wheel: Path, scratch: Path) -> None:
    """Install a wheel into a bare environment, and run the README's example and the hook there."""
    venv.create(scratch / "bare", with_pip=True)
    scripts = "Scripts" if os.name == "nt" else "bin"
    python = scratch / "bare" / scripts / "python"
    run(python, "-m", "pip", "install", "--quiet", wheel, cwd=scratch)
    run(python, "-m", "pip", "check", cwd=scratch)
    (scratch / "example.py").write_text(readme_example(), encoding="utf-8")
    run(python, "example.py", cwd=scratch)
    run(python, "-c", HOOK, cwd=scratch, TINYXLA_JAX="1")


def main() -> None:
    target = Path(sys.argv[1]).resolve()
    if list(target.glob("tinyxla-*")):
        raise SystemExit(f"{target} has distributions already; name another directory")
    with tempfile.TemporaryDirectory() as scratch:
        try_wheel(build(target), Path(scratch))


if __name__ == "__main__":
    main()
