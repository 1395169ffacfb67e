"""The long description of a distribution: README.md with absolute links, as package indices show it alone."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

RELATIVE_LINK = re.compile(r"(!?\[[^\]]*\])\((?!https?://|#)([^)\s]+)\)")
IMAGES = (".svg", ".png")


def with_absolute_links(text: str, repository: str, version: str) -> str:
    """Markdown whose relative links lead to the files of a version's tag: to raw ones for images, else to pages."""

    def absolute(link: re.Match[str]) -> str:
        label, path = link.groups()
        kind = "raw" if path.endswith(IMAGES) else "blob"
        return f"{label}({repository}/{kind}/v{version}/{path})"

    return RELATIVE_LINK.sub(absolute, text)


class ReadmeHook(MetadataHookInterface):
    """Sets the field `readme`, which pyproject.toml declares dynamic."""

    def update(self, metadata: dict[str, Any]) -> None:
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        text = with_absolute_links(text, metadata["urls"]["Repository"], metadata["version"])
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
