"""The notebooks run from top to bottom, and are kept with their results."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.support import ROOT

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
for demo_module in ("ipykernel", "matplotlib", "sklearn", "tqdm"):
    pytest.importorskip(demo_module)

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
OF_PACKAGES = ("bayesian_regression", "neural_ode")  # packages/notebooks.py runs them, where their packages are
GALLERY = [
    path for path in NOTEBOOKS if path.stem not in ("quickstart", "kernels_in_numba", "to_xla_and_back", *OF_PACKAGES)
]
MAX_LINES = 100


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)


def executed(path: Path) -> Any:
    """Return the notebook as it is after running every cell; an error in a cell is raised here."""
    notebook = read(path)
    client = nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(ROOT)}})
    return client.execute()


def outputs(notebook: Any) -> list[Any]:
    return [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]


def printed(notebook: Any) -> str:
    return "".join(o.text for o in outputs(notebook) if o.output_type == "stream" and o.name == "stdout")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_with_its_results(path: Path) -> None:
    cells = [cell for cell in read(path).cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))


@pytest.mark.thorough
def test_quickstart_learns_and_shows_graph_and_kernels() -> None:
    notebook = executed(ROOT / "notebooks" / "quickstart.ipynb")
    text = printed(notebook)
    accuracy = re.search(r"held-out accuracy: ([\d.]+)%", text)
    assert accuracy
    assert float(accuracy[1]) >= 97

    kinds = {kind for output in outputs(notebook) for kind in output.get("data", {})}
    assert {"image/png", "image/svg+xml"} <= kinds
    assert "HloModule" in text
    assert re.search(r"^ *for \w+ in ", text, re.MULTILINE), "a kernel is printed as Python loops"


@pytest.mark.thorough
def test_kernels_in_numba_conduct_measure_and_order() -> None:
    pytest.importorskip("numba")
    notebook = executed(ROOT / "notebooks" / "kernels_in_numba.ipynb")
    text = printed(notebook)
    behind, whole = map(float, re.search(r"behind the wall: ([\d.]+) of ([\d.]+)", text).groups())  # type: ignore[union-attr]
    assert 0 < behind < whole / 10, "heat passes the slit only"
    assert re.search(r"largest fall [\d.]+, from day \d+ to day \d+", text)
    assert sum("image/png" in output.get("data", {}) for output in outputs(notebook)) == 2


def source(notebook: Any) -> str:
    return "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")


@pytest.mark.parametrize("path", GALLERY, ids=lambda path: path.stem)
def test_a_notebook_of_the_gallery_is_short_shows_a_figure_and_checks_its_result(path: Path) -> None:
    notebook = read(path)
    code = [line for line in source(notebook).splitlines() if line.strip()]
    assert len(code) < MAX_LINES
    assert any(line.startswith("assert ") for line in code)
    assert any("image/png" in output.get("data", {}) for output in outputs(notebook))
    assert not any(output.get("name") == "stderr" for output in outputs(notebook))


@pytest.mark.thorough
@pytest.mark.parametrize("path", GALLERY, ids=lambda path: path.stem)
def test_a_notebook_of_the_gallery_finds_what_it_asserts(path: Path) -> None:
    notebook = executed(path)
    assert any("image/png" in output.get("data", {}) for output in outputs(notebook))


@pytest.mark.thorough
def test_to_xla_and_back_trains_exports_and_agrees_with_xla() -> None:
    notebook = executed(ROOT / "notebooks" / "to_xla_and_back.ipynb")
    text = printed(notebook)
    assert "found [1.51 0.15 2.  ]" in text
    assert "5 True\n" in text
    assert "120 True\n" in text
    assert "Whether m > 10 depends on the size of symbolic dimensions" in text
    assert "the same step: True" in text
    assert any("image/png" in output.get("data", {}) for output in outputs(notebook))
