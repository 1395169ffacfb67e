"""What says the version and the requirements of a release says the same everywhere."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

import tinyxla as tx

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
RELATIVE = re.compile(r"\]\((?!https?://|#|mailto:)([^)\s#]+)")


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def hook() -> ModuleType:
    pytest.importorskip("hatchling")
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("tinyxla/util/version.py", r'^VERSION = "(.*)"$'),
        ("conda/recipe.yaml", r'^  version: "(.*)"$'),
        ("CITATION.cff", r"^version: (.*)$"),
        ("CHANGELOG.md", r"^## (\d\S*) - "),
    ],
)
def test_version_is_the_same_everywhere(name: str, pattern: str) -> None:
    found = re.search(pattern, text(name), re.MULTILINE)
    assert found is not None
    assert found[1] == tx.__version__


def test_conda_recipe_requires_what_the_wheel_requires() -> None:
    wheel = {line.partition(";")[0].strip() for line in PROJECT["dependencies"]}
    recipe = text("conda/recipe.yaml").partition("  run:\n")[2].partition("\ntests:")[0]
    conda = set(re.findall(r"^ +- (\S+ \S+)$", recipe, re.MULTILINE))
    assert {line.replace(" ", "") for line in conda} == wheel | {f"python{PROJECT['requires-python']}"}


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"])
def test_relative_links_lead_to_files(name: str) -> None:
    missing = [path for path in RELATIVE.findall(text(name)) if not (ROOT / path).exists()]
    assert not missing


def test_long_description_has_absolute_links() -> None:
    made = hook().with_absolute_links(text("README.md"), PROJECT["urls"]["Repository"], "1.2.3")
    assert not RELATIVE.findall(made)
    assert f"({PROJECT['urls']['Repository']}/blob/v1.2.3/CONTRIBUTING.md)" in made


def test_links_of_images_lead_to_raw_files() -> None:
    made = hook().with_absolute_links("![a](a.svg) [b](docs/b.md) [c](#c) [d](https://d.org)", "https://h/r", "1.0")
    assert made == "![a](https://h/r/raw/v1.0/a.svg) [b](https://h/r/blob/v1.0/docs/b.md) [c](#c) [d](https://d.org)"


def test_every_extra_is_documented() -> None:
    page = text("docs/start/install.md")
    assert [name for name in PROJECT["optional-dependencies"] if f"| `{name}` |" not in page] == []
