"""The reference: every public function is on a page, and docstrings become Markdown without losing anything."""

from __future__ import annotations

import re

import pytest

import tinyxla as tx
import tinyxla.numpy
import tinyxla.scipy.integrate
from tests.docs.modules import load

reference = load("reference")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    target = tmp_path_factory.mktemp("api")
    reference.write(target)
    return {path.stem: path.read_text(encoding="utf-8") for path in target.glob("*.md")}


@pytest.mark.parametrize(
    "name",
    [
        "tinyxla.jit",
        "tinyxla.Array",
        "tinyxla.numpy.mean",
        "tinyxla.numpy.add",
        "tinyxla.numpy.linalg.svd",
        "tinyxla.lax.scan",
        "tinyxla.random.normal",
        "tinyxla.scipy.integrate.trapezoid",
        "tinyxla.scipy.special.erf",
        "tinyxla.errors.ShapeError",
    ],
)
def test_public_name_has_an_entry(pages: dict[str, str], name: str) -> None:
    module, _, last = name.rpartition(".")
    own = [text for stem, text in pages.items() if stem == module or stem.startswith(f"{module}-")]
    assert sum(len(re.findall(rf"^:+{{py:(?!method)\w+}} {last}\b", text, re.MULTILINE)) for text in own) == 1


def test_every_function_of_numpy_is_there_once(pages: dict[str, str]) -> None:
    own = [text for stem, text in pages.items() if stem == "tinyxla.numpy" or stem.startswith("tinyxla.numpy-")]
    found = [name for text in own for name in re.findall(r"^:+{py:(?!method)\w+} (\w+)", text, re.MULTILINE)]
    found = [name for name in found if hasattr(tinyxla.numpy, name)]
    assert len(found) == len(set(found))
    assert {item.name for item in reference.public_items(tx.numpy)} <= set(found)


def test_internal_names_have_none(pages: dict[str, str]) -> None:
    names = {name for text in pages.values() for name in re.findall(r"^:+{py:(?!method)\w+} (\w+)", text, re.MULTILINE)}
    assert not [name for name in names if name.startswith("_")]
    assert not names & {"annotations", "Any", "Callable", "np"}


def test_sections_of_a_docstring_become_lists_and_fences() -> None:
    made = reference.markdown(
        "Sum of *all* elements: `a_b` and a_b.\n\nArgs:\n    x: an array,\n        of any shape.\n    *rest: more.\n\n"
        "Returns:\n    A number.\n\nExample:\n    >>> total(1)\n    1\n\n>>> total(2)\n2"
    )
    assert r"Sum of \*all\* elements: `a_b` and a\_b." in made
    assert "**Arguments**\n\n- `x`: an array,\n  of any shape.\n- `*rest`: more." in made
    assert "**Returns**\n\nA number." in made
    assert made.count("```pycon\n>>> total(1)\n1\n```") == 1
    assert made.count("```pycon\n>>> total(2)\n2\n```") == 1


def test_words_of_docstrings_are_all_on_pages() -> None:
    for function in (tx.jit, tx.vmap, tx.kernel, tinyxla.numpy.pad, tx.lax.scan):
        text = function.__doc__ or ""
        made = reference.markdown(reference.documentation(function)).replace("\\", "")
        titles = set(reference.SECTIONS)
        missing = [word for word in re.findall(r"[A-Za-z]+", text) if word not in made and word not in titles]
        assert not missing
