"""Displays in notebooks: fragments of HTML that are well-formed, escaped, small, and of no colour of their own."""

from __future__ import annotations

import base64
import re
import struct
import xml.etree.ElementTree as ElementTree
import zlib
from typing import Any

import numpy as np
import pytest

import tinyxla as tx
import tinyxla.numpy as jnp
from tinyxla.text import html


def display(x: Any) -> str:
    """The display of an object, which is well-formed and fits any theme."""
    text = x._repr_mimebundle_()["text/html"] if isinstance(x, tx.Array) else x._repr_html_()
    ElementTree.fromstring(text)
    assert not re.search(r'background:(?!none|currentColor)|fill="white"|color:(?!inherit)', text)
    return text


def picture(text: str) -> np.ndarray[Any, Any]:
    """The pixels of the picture in a display."""
    data = base64.b64decode(re.findall(r"base64,([^\"]+)", text)[0])
    width, height, depth, colours = struct.unpack(">IIBB", data[16:26])
    assert depth == 8
    channels = {4: 2, 2: 3, 6: 4}[colours]
    start = data.index(b"IDAT")
    (length,) = struct.unpack(">I", data[start - 4 : start])
    rows = np.frombuffer(zlib.decompress(data[start + 4 : start + 4 + length]), np.uint8).reshape(height, -1)
    assert (rows[:, 0] == 0).all()
    return rows[:, 1:].reshape(height, width, channels)


# --- arrays -----------------------------------------------------------------------------------------------------------


def test_small_arrays_are_text() -> None:
    assert jnp.arange(16.0)._repr_mimebundle_() == {}
    assert jnp.float32(1)._repr_mimebundle_() == {}


def test_array_says_type_shape_and_values() -> None:
    text = display(jnp.arange(100.0))
    assert "<b>float32[100]</b>" in text
    assert "min 0, mean 49.5, max 99" in text
    assert "Array([ 0., " in text
    assert "<img" not in text


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "int4", "uint8", "bool", "complex64", "float16"])
def test_arrays_of_all_types_have_displays(dtype: str) -> None:
    assert f"<b>{dtype}[8, 8]</b>" in display(jnp.ones((8, 8), dtype))


def test_what_is_not_finite_is_counted_and_transparent() -> None:
    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    x[0, :3] = np.nan, np.inf, -np.inf
    text = display(jnp.asarray(x))
    assert "min 3, mean 33, max 63, 3 not finite" in text
    pixels = picture(text)
    assert (pixels[0, :4, 1] == [0, 0, 0, 255]).all()
    assert pixels[0, 3, 0] == 0
    assert pixels[7, 7, 0] == 255


def test_matrix_without_finite_values_has_a_display() -> None:
    assert "64 not finite" in display(jnp.full((8, 8), jnp.nan))


@pytest.mark.parametrize("channels", [3, 4])
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_images_are_shown_as_they_are(channels: int, dtype: str, generator: np.random.Generator) -> None:
    image = generator.integers(0, 256, (9, 10, channels)).astype(np.uint8)
    given = image if dtype == "uint8" else (image / 255).astype(np.float32)
    np.testing.assert_array_equal(picture(display(jnp.asarray(given))), image)


def test_points_in_space_are_no_image() -> None:
    assert "<img" not in display(jnp.full((9, 9, 3), 2.0))
    assert "<img" not in display(jnp.ones((9, 9, 3), int))


def test_pictures_are_small() -> None:
    pixels = picture(display(jnp.zeros((1000, 300))))
    assert pixels.shape[0] <= 192
    assert len(display(jnp.asarray(np.random.rand(2000, 2000).astype("f")))) < 120_000  # noqa: NPY002


def test_deleted_arrays_are_text() -> None:
    x = jnp.ones(100) + 1
    x.delete()
    assert x._repr_mimebundle_() == {}


# --- programs ---------------------------------------------------------------------------------------------------------


def loss(x: Any) -> Any:
    return (jnp.where(x < 1, x, 2) ** 2).sum()


def test_graph_is_a_picture() -> None:
    text = display(tx.jit(loss).lower(jnp.ones(3)))
    assert "<b>lowered loss(f32[3]) -&gt; f32[], " in text
    assert "<svg" in text
    assert "multiply" in text


def test_large_graph_is_text() -> None:
    def long(x: Any) -> Any:
        for _ in range(400):
            x = jnp.sin(x)
        return x

    text = display(tx.jit(long).lower(1.0))
    assert "<svg" not in text
    assert "sine" in text


def test_plan_is_a_table_with_bars() -> None:
    text = display(tx.jit(loss).lower(jnp.ones(3000)).compile())
    assert "<b>loss: 1 step, " in text
    assert "background:currentColor" in text
    assert "jnp.where(x &lt; 1, x, 2)" in text


def test_profile_is_a_table_with_bars() -> None:
    x = jnp.ones(3000)
    text = display(tx.jit(loss).lower(x).compile().profile(x, seconds=0.001))
    assert "background:currentColor" in text
    assert "jnp.where(x &lt; 1, x, 2)" in text


def test_text_in_tables_is_escaped() -> None:
    text = html.page("<&>", html.table(("<a>",), [("<b>",), (html.Bar(2.0, "<c>"),)]), html.preformatted("</pre>"))
    ElementTree.fromstring(text)
    assert "&lt;b&gt;" in text
    assert "width:8.00em" in text
