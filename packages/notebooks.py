"""Runs the notebooks whose first line is `import tinyxla.jax`, and checks what they print.

python packages/notebooks.py           # run and check
python packages/notebooks.py --write   # and keep them with their results
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

import nbclient
import nbformat
from run import ROOT

# what a notebook prints, with a number in it, and the least and the most that this may be
CHECKS = {
    "bayesian_regression": [(r"largest r_hat: ([\d.]+)", 0.99, 1.02), (r"([\d.]+) by the model", 0, 1)],
    "neural_ode": [(r"([\d.]+) at the end", 0, 0.01)],
}


def executed(path: Path) -> Any:
    """The notebook with its results; an error in a cell is raised here."""
    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(ROOT)}}).execute()
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.outputs = [x for x in cell.outputs if x.get("name") != "stderr"]  # progress and warnings of tools
    return notebook


def wrong(name: str, printed: str) -> list[str]:
    """The checks that a notebook's output does not pass."""
    found: list[str] = []
    for pattern, least, most in CHECKS[name]:
        match = re.search(pattern, printed)
        if match is None or not least <= float(match[1]) <= most:
            found.append(f"{pattern}: {match[0] if match else 'missing'}")
    return found


def main() -> int:
    """Print a line for each notebook; exits with 1 where one fails its checks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="keep the notebooks with their results")
    options = parser.parse_args()
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    failed = False
    for name in CHECKS:
        path = ROOT / "notebooks" / f"{name}.ipynb"
        started = time.perf_counter()
        notebook = executed(path)
        outputs = [x for cell in notebook.cells if cell.cell_type == "code" for x in cell.outputs]
        said = wrong(name, "".join(x.text for x in outputs if x.output_type == "stream"))
        print(f"{name:>20} {time.perf_counter() - started:6.1f} s {'; '.join(said) or 'as expected'}", flush=True)
        failed |= bool(said)
        if options.write:
            nbformat.write(notebook, path)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
