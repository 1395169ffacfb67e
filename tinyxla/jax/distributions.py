"""The distributions `jax` and `jaxlib`, as `importlib.metadata` knows them."""

from __future__ import annotations

from importlib.metadata import Distribution
from pathlib import Path
from typing import Any


class JaxDistribution(Distribution):
    """A distribution of a name and version, whose files are in a folder."""

    def __init__(self, name: str, version: str, folder: Path) -> None:
        self._text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        self._folder = folder

    def read_text(self, filename: str) -> str | None:
        return self._text if filename == "METADATA" else None

    def locate_file(self, path: Any) -> Any:
        return self._folder / path
