"""The site in all versions: `python docs/versions.py site` makes a folder for each release and one for the checkout.

Releases are the tags such as `v1.2.3`; the checkout, with its changes, is "dev". `versions.json` lists the folders,
newest first: the switcher in the sidebar of each page is made of it (`static/versions.js`). `index.html` leads to the
newest release.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DEVELOPMENT = "dev"
RELEASE = re.compile(r"v(\d+)\.(\d+)\.(\d+)")
Build = Callable[[Path, Path], None]


def git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", str(root), *arguments], check=True, capture_output=True, text=True).stdout


def releases(root: Path) -> list[str]:
    """The tags of releases, newest first."""
    found = [match for tag in git(root, "tag", "--list").split() if (match := RELEASE.fullmatch(tag))]
    return [match[0] for match in sorted(found, key=lambda match: [int(part) for part in match.groups()], reverse=True)]


def build(source: Path, target: Path) -> None:
    """Build the site of a checkout into a folder."""
    options = ["-W", "--keep-going", "-q", "-A", "has_versions=1"]  # templates/versions.html
    subprocess.run([sys.executable, "-m", "sphinx", *options, str(source / "docs"), str(target)], check=True)


def write(target: Path, root: Path = ROOT, build: Build = build) -> None:
    """Build all versions into folders of `target`, which has a list of them and leads to the newest release."""
    tags = releases(root)
    build(root, target / DEVELOPMENT)
    for tag in tags:
        with tempfile.TemporaryDirectory() as scratch:
            checkout = Path(scratch) / "tinyxla"
            git(root, "worktree", "add", "--detach", str(checkout), tag)
            try:
                build(checkout, target / tag.removeprefix("v"))
            finally:
                git(root, "worktree", "remove", "--force", str(checkout))
    folders = [DEVELOPMENT, *(tag.removeprefix("v") for tag in tags)]
    newest = folders[1] if tags else DEVELOPMENT
    (target / "versions.json").write_text(json.dumps(folders) + "\n", encoding="utf-8")
    (target / "index.html").write_text(
        f'<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={newest}/">'
        f'<a href="{newest}/">tinyxla {newest}</a>\n',
        encoding="utf-8",
    )


if __name__ == "__main__":
    write(Path(sys.argv[1]))
