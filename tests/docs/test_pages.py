"""The examples of the site's pages run, and give what the pages say; links lead to pages."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted([*DOCS.glob("start/*.md"), *DOCS.glob("tutorials/*.md")])
NUMBER = re.compile(r"-?\d+\.\d*(?:e[+-]?\d+)?|-?\d+e[+-]?\d+")
MADE = ("api", "gallery", "project")  # by the build of the site


class Checker(doctest.OutputChecker):
    """Floats may differ in the last digits, which depend on the processor; errors do not say where they were raised."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        want, got = (re.sub(r"\n  at .*", "", text) for text in (want, got))
        if super().check_output(NUMBER.sub("_", want), NUMBER.sub("_", got), optionflags):
            pairs = zip(NUMBER.findall(want), NUMBER.findall(got), strict=True)
            return all(float(a) == pytest.approx(float(b), rel=1e-4, abs=1e-6) for a, b in pairs)
        return False


def failures(text: str, name: str) -> list[str]:
    test = doctest.DocTestParser().get_doctest(re.sub(r"^```.*", "", text, flags=re.MULTILINE), {}, name, name, 0)
    messages: list[str] = []
    doctest.DocTestRunner(Checker(), optionflags=doctest.NORMALIZE_WHITESPACE).run(test, out=messages.append)
    return messages


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_examples_of_a_page_run(path: Path) -> None:
    assert not failures(path.read_text(encoding="utf-8"), path.stem)


def test_a_wrong_example_is_found() -> None:
    assert failures("```python\n>>> 1.0 / 3\n0.3334\n```", "wrong")
    assert failures("```python\n>>> [1.0]\n[1.0, 2.0]\n```", "wrong")
    assert not failures("```python\n>>> 1.0 / 3\n0.333333\n```", "right")


@pytest.mark.parametrize("path", sorted(DOCS.rglob("*.md")), ids=lambda path: path.stem)
def test_links_of_a_page_lead_to_files(path: Path) -> None:
    inside = path.relative_to(DOCS).parts
    if inside[0] in MADE:
        return
    for link in re.findall(r"\]\((?!https?:|#|mailto:)([^)\s#]+)", path.read_text(encoding="utf-8")):
        target = (path.parent / link).resolve()
        made = target.is_relative_to(DOCS) and target.relative_to(DOCS).parts[0] in MADE
        assert made or target.exists(), link


def test_every_page_is_in_the_contents() -> None:
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    pages = {path.relative_to(DOCS).with_suffix("").as_posix() for path in DOCS.rglob("*.md")}
    wanted = {page for page in pages if page.partition("/")[0] not in MADE} - {"index"}
    assert wanted <= set(index.split())
