"""The site in all versions: each is built from its own tree, listed newest first, and the newest release is shown."""

from __future__ import annotations

import functools
import http.server
import json
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.modules import load
from tests.support import ROOT

versions = load("versions")
BROWSER = shutil.which("chromium") or shutil.which("google-chrome")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository of three releases and a change that is not committed."""
    root = tmp_path / "repository"
    root.mkdir()
    git(root, "init", "--quiet")
    for tag in ("v0.2.0", "v0.10.0", "v0.9.1", "nightly"):
        (root / "text").write_text(tag)
        git(root, "add", "text")
        git(root, "-c", "user.name=n", "-c", "user.email=e", "commit", "--quiet", "--message", tag)
        git(root, "tag", tag)
    (root / "text").write_text("changed")
    return root


def git(root: Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", str(root), *arguments], check=True)


def build(source: Path, target: Path) -> None:
    target.mkdir(parents=True)
    (target / "index.html").write_text((source / "text").read_text())


def test_each_version_is_built_from_its_own_tree(repository: Path, tmp_path: Path) -> None:
    versions.write(tmp_path / "site", repository, build)
    folders = json.loads((tmp_path / "site" / "versions.json").read_text())
    assert folders == ["dev", "0.10.0", "0.9.1", "0.2.0"]
    built = [(tmp_path / "site" / folder / "index.html").read_text() for folder in folders]
    assert built == ["changed", "v0.10.0", "v0.9.1", "v0.2.0"]
    assert "url=0.10.0/" in (tmp_path / "site" / "index.html").read_text()
    assert subprocess.check_output(["git", "-C", str(repository), "worktree", "list"]).count(b"\n") == 1


def test_before_the_first_release_the_checkout_is_shown(repository: Path, tmp_path: Path) -> None:
    git(repository, "tag", "--delete", "v0.2.0", "v0.10.0", "v0.9.1")
    versions.write(tmp_path / "site", repository, build)
    assert json.loads((tmp_path / "site" / "versions.json").read_text()) == ["dev"]
    assert "url=dev/" in (tmp_path / "site" / "index.html").read_text()


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """Where a folder of the test is served."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=tmp_path))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def switcher(page: str) -> tuple[bool, list[str]]:
    """Whether the switcher of a page is hidden in a browser, and what it offers."""
    assert BROWSER is not None
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=5000", "--dump-dom"]
    shown = subprocess.run([BROWSER, *options, page], check=True, capture_output=True, text=True, timeout=60).stdout
    label = re.search(r"<label.*?</label>", shown, re.DOTALL)
    assert label is not None
    return "hidden" in label[0], re.findall(r"<option[^>]*>(.*?)</option>", label[0])


@pytest.mark.skipif(BROWSER is None, reason="there is no browser")
def test_the_switcher_is_shown_where_there_are_versions(tmp_path: Path, address: str) -> None:
    template = (ROOT / "docs" / "templates" / "versions.html").read_text()
    page = re.sub("{%.*?%}", "", template).replace("{{ pathto('', 1) }}", "../").replace("{{ pagename }}", "start/page")
    folder = tmp_path / "dev" / "start"
    folder.mkdir(parents=True)
    shutil.copy(ROOT / "docs" / "static" / "versions.js", folder)
    (folder / "page.html").write_text(f'<!doctype html>{page}<script src="versions.js"></script>')
    assert switcher(f"{address}/dev/start/page.html") == (True, [])
    (tmp_path / "versions.json").write_text('["dev", "1.0.0"]')
    assert switcher(f"{address}/dev/start/page.html") == (False, ["dev", "1.0.0"])
