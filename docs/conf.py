"""The site: `python -m sphinx -W --keep-going docs site`, with the extra `docs`.

Pages are the files here. The reference is made from docstrings, the gallery of the notebooks, and the pages on the
project of the files that a repository has at its root.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path[:0] = [str(HERE), str(ROOT)]

import pictures  # noqa: E402
import reference  # noqa: E402

from tinyxla.util.version import VERSION  # noqa: E402

project = "tinyxla"
author = "The tinyxla authors"
copyright = author
version = release = VERSION

extensions = ["myst_nb", "sphinx_copybutton", "sphinx_design"]
myst_enable_extensions = ["colon_fence", "html_image"]
myst_heading_anchors = 4
nb_execution_mode = "off"  # notebooks are kept with their results, which the tests make again
nb_merge_streams = True  # a progress bar is one output, not one for each step
exclude_patterns = ["Thumbs.db", ".DS_Store", "templates"]
suppress_warnings = ["myst.xref_ambiguous", "ref.python"]  # types in signatures, which several modules have
python_maximum_signature_line_length = 90
add_module_names = False
toc_object_entries_show_parents = "hide"
copybutton_prompt_text = r">>> |\.\.\. |\$ |In \[\d*\]: "
copybutton_prompt_is_regexp = True

html_theme = "furo"
html_title = f"tinyxla {version}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_js_files = ["versions.js"]
templates_path = ["templates"]
SIDEBAR = (
    "sidebar/brand",
    "versions",
    "sidebar/search",
    "sidebar/scroll-start",
    "sidebar/navigation",
    "sidebar/scroll-end",
)
html_sidebars = {"**": [f"{part}.html" for part in SIDEBAR]}
html_copy_source = False
html_show_sphinx = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b5fa5", "color-brand-content": "#0b5fa5"},
    "dark_css_variables": {"color-brand-primary": "#6cb6ff", "color-brand-content": "#6cb6ff"},
    "source_repository": "https://github.com/tinyxla/tinyxla",
    "source_branch": "main",
    "source_directory": "docs/",
}

PROJECT_PAGES = ("CHANGELOG", "CONTRIBUTING", "SECURITY")


def place_gallery(target: Path) -> None:
    target.mkdir(exist_ok=True)
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        place(target / path.name, path.read_text(encoding="utf-8"))
    pictures.write_small(ROOT / "notebooks", target / "pictures")


def place_project(target: Path) -> None:
    target.mkdir(exist_ok=True)
    for name in PROJECT_PAGES:
        text = (ROOT / f"{name}.md").read_text(encoding="utf-8")
        text = text.replace("](docs/", "](../").replace("](notebooks/", "](../gallery/")
        for other in PROJECT_PAGES:
            text = text.replace(f"]({other}.md)", f"]({other.lower()}.md)")
        place(target / f"{name.lower()}.md", text)


def place(path: Path, text: str) -> None:
    """Write a file unless it is there already, so that it counts as changed only if it is."""
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def generate(app: Any) -> None:
    reference.write(HERE / "api")
    place_gallery(HERE / "gallery")
    place_project(HERE / "project")


def link_notebooks(app: Any, name: str, source: list[str]) -> None:
    """Links to notebooks lead to their pages, with pictures in the gallery; in the repository they lead to files."""
    depth = name.count("/")
    if name == "gallery":
        row = r"^\| (\[.*?\]\(\.\./notebooks/(\w+)\.ipynb\)) "
        source[0] = re.sub(row, r"| ![](gallery/pictures/\2.png) | \1 ", source[0], flags=re.MULTILINE)
        source[0] = source[0].replace("| notebook |", "| | notebook |").replace("|---|---|", "|---|---|---|")
    source[0] = re.sub(r"\]\((\.\./)+notebooks/", f"]({'../' * depth}gallery/", source[0])


def setup(app: Any) -> dict[str, bool]:
    app.connect("builder-inited", generate)
    app.connect("source-read", link_notebooks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
