"""Programs on eight devices, in the manner of JAX's tutorials, give the same with tinyxla as with JAX: numbers, and
the part that each device has."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support import ROOT

FOLDER = Path(__file__).parent
MODULES = [path.stem for path in sorted(FOLDER.glob("*.py")) if not path.stem.startswith(("_", "test_"))]
QUICK = {  # programs of the default run, of modules that take long
    "parallel_functions": (
        "cannon",
        "halo_exchange",
        "checks_of_what_varies",
        "some_axes_by_hand",
        "jaxprs_of_functions_of_parts",
        "kinds_of_axes",
        "values_of_parts",
    ),
}
ENVIRONMENT = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu"}


def names(module: str) -> Iterator[str]:
    """The programs of a module."""
    for x in ast.parse((FOLDER / f"{module}.py").read_text(encoding="utf-8")).body:
        if isinstance(x, ast.FunctionDef) and not x.name.startswith("_"):
            yield x.name


def results(module: str, programs: Sequence[str], *options: str) -> dict[str, Any]:
    """The results of programs of a module, by name."""
    found = subprocess.run(
        [sys.executable, *options, "-m", "tests.jax.meshes", module, *programs],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, **ENVIRONMENT},
        timeout=600,
    )
    assert found.returncode == 0, found.stderr
    read = [json.loads(line) for line in found.stdout.splitlines() if line.startswith('{"name"')]
    return {x["name"]: x for x in read}


def differences(found: Any, wanted: Any, where: str = "") -> Iterator[str]:
    """The differences between two described values."""
    if isinstance(wanted, dict) and isinstance(found, dict) and wanted.keys() == found.keys():
        if "values" in wanted and wanted["shape"] == found["shape"]:
            close = np.allclose(found["values"], wanted["values"], 2e-4, 2e-5, equal_nan=True)
            if not close:
                yield f"{where}: values {found['values']} instead of {wanted['values']}"
            found, wanted = ({k: v for k, v in x.items() if k != "values"} for x in (found, wanted))
        if "errors" in wanted and set(wanted["errors"]) <= set(found["errors"]):
            return
        for key in wanted:
            yield from differences(found[key], wanted[key], f"{where}.{key}")
    elif isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        for k, (x, y) in enumerate(zip(found, wanted, strict=True)):
            yield from differences(x, y, f"{where}[{k}]")
    elif isinstance(wanted, float) and isinstance(found, float):
        if not np.isclose(found, wanted, 2e-4, 2e-5, equal_nan=True):
            yield f"{where}: {found} instead of {wanted}"
    elif found != wanted:
        yield f"{where}: {found!r:.300} instead of {wanted!r:.300}"


@pytest.mark.jax
@pytest.mark.parametrize(
    ("module", "programs"),
    [
        *(pytest.param(module, QUICK.get(module, ()), id=module) for module in MODULES),
        *(pytest.param(module, (), id=f"all of {module}", marks=pytest.mark.thorough) for module in QUICK),
    ],
)
def test_programs_of_a_module_give_what_jax_gives(module: str, programs: tuple[str, ...]) -> None:
    """Programs of a module together, since they share a process of each library."""
    found, wanted = results(module, programs, "-m", "tinyxla.jax"), results(module, programs)
    wrong: list[str] = []
    for name in programs or names(module):
        both = {"tinyxla": found[name], "jax": wanted[name]}
        wrong += [f"{name}: {library}: {x['failure']}" for library, x in both.items() if "failure" in x]
        if all("value" in x for x in both.values()):
            wrong += [f"{name}{where}" for where in differences(found[name]["value"], wanted[name]["value"])]
    assert wrong == []


def test_differences_are_found() -> None:
    x = {"shape": [2], "dtype": "float32", "values": [1.0, 2.0], "shards": [[0, [[0, 2]], 0]]}
    for other in ({**x, "values": [1.0, 2.1]}, {**x, "shards": [[0, [[0, 1]], 0]]}, {**x, "dtype": "float64"}, [x]):
        assert list(differences(other, x))
    assert list(differences({"errors": ["TypeError"]}, {"errors": ["ValueError"]}))
    assert not list(differences(x, x))
