"""Figures of notebooks as pictures: small ones for the gallery, and by `python docs/pictures.py` the README's."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
STRIP = ("gaussian_process", "heat_and_waves", "deconvolution", "molecular_dynamics")
WIDTH = 220


def figures(notebook: Path) -> list[Image.Image]:
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    outputs = [output.get("data", {}).get("image/png") for cell in cells for output in cell.get("outputs", [])]
    return [flat(Image.open(io.BytesIO(base64.b64decode("".join(data))))) for data in outputs if data]


def flat(image: Image.Image) -> Image.Image:
    """On a white ground, which figures with transparent parts are meant for."""
    ground = Image.new("RGBA", image.size, "white")
    return Image.alpha_composite(ground, image.convert("RGBA")).convert("RGB")


def scaled(picture: Image.Image, width: int, height: int) -> Image.Image:
    return picture.resize((width, height), Image.Resampling.LANCZOS)


def write_small(notebooks: Path, target: Path) -> None:
    """The first figure of each notebook, as wide as a column of the gallery."""
    target.mkdir(exist_ok=True)
    for notebook in notebooks.glob("*.ipynb"):
        path = target / f"{notebook.stem}.png"
        if path.exists() and path.stat().st_mtime >= notebook.stat().st_mtime:
            continue
        picture = figures(notebook)[0]
        scaled(picture, WIDTH, round(picture.height * WIDTH / picture.width)).save(path)


def strip(height: int = 210, gap: int = 16, columns: int = 2) -> Image.Image:
    """Figures of four notebooks at one height, two side by side."""
    found = [figures(ROOT / "notebooks" / f"{name}.ipynb")[0] for name in STRIP]
    found = [scaled(picture, round(picture.width * height / picture.height), height) for picture in found]
    rows = [found[k : k + columns] for k in range(0, len(found), columns)]
    width = max(sum(figure.width + gap for figure in row) for row in rows) - gap
    ground = Image.new("RGB", (width, len(rows) * (height + gap) - gap), "white")
    for k, row in enumerate(rows):
        left = 0
        for figure in row:
            ground.paste(figure, (left, k * (height + gap)))
            left += figure.width + gap
    return ground


if __name__ == "__main__":
    strip().save(ROOT / "docs" / "static" / "figures.png", optimize=True)
