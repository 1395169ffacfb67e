"""Arrays in pandas, Polars, memoryviews and bytes, and what errors say where these do not take them."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinyxla as tx
import tinyxla.numpy as jnp
from tinyxla.errors import ConcretizationError
from tinyxla.util.did_you_mean import explain

x = jnp.arange(3.0)


def test_bytes_are_those_of_the_elements() -> None:
    assert bytes(x) == x.tobytes() == np.arange(3, dtype=np.float32).tobytes()
    with pytest.raises(ConcretizationError):
        tx.jit(bytes)(x)


def test_memoryview_is_that_of_the_numpy_array() -> None:
    view = memoryview(np.asarray(x))
    assert (view.readonly, view.format, view.tolist()) == (True, "f", [0.0, 1.0, 2.0])


@pytest.mark.parametrize(
    ("use", "advice"),
    [
        (lambda: io.BytesIO().write(x), "numpy.asarray(x), or x.tobytes()"),  # type: ignore[arg-type]
        (lambda: json.dumps({"loss": x}), "x.tolist(), or x.item()"),
    ],
    ids=["bytes", "JSON"],
)
def test_errors_say_what_to_give_instead(use: Callable[[], Any], advice: str) -> None:
    with pytest.raises(TypeError) as caught:
        use()
    explain(caught.value)
    assert advice in str(caught.value)


def test_pandas_takes_arrays_as_columns_and_copies_what_it_writes() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": x, "n": x.astype(int)})
    assert [str(dtype) for dtype in frame.dtypes] == ["float32", "int32"]
    frame.iloc[0, 0] = 7.0
    frame["b"] = x
    frame.loc[1, "b"] = x[2]
    np.testing.assert_array_equal(frame["b"], [0, 2, 2])
    np.testing.assert_array_equal(x, [0, 1, 2])
    assert list(pandas.DataFrame(jnp.ones((2, 2)), columns=["p", "q"]).columns) == ["p", "q"]


def test_pandas_selects_rows_by_arrays() -> None:
    pandas = pytest.importorskip("pandas")
    series = pandas.Series(x)
    assert series.iloc[jnp.array([0, 2])].tolist() == [0, 2]
    assert series[np.asarray(x > 0)].tolist() == [1, 2]
    assert series.isin(np.asarray(x[:2])).tolist() == [True, True, False]


def test_columns_and_frames_of_pandas_are_arrays() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0]})
    np.testing.assert_array_equal(jnp.asarray(frame), [[1, 3], [2, 4]])
    np.testing.assert_array_equal(tx.jit(lambda x: x + 1)(frame["a"]), [2, 3])
    np.testing.assert_array_equal(x[:2] * frame["a"], [0, 2])


def test_polars_takes_numpy_arrays_and_gives_columns() -> None:
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"a": np.asarray(x), "b": np.asarray(x > 0)})
    assert frame["a"].to_list() == [0, 1, 2]
    np.testing.assert_array_equal(jnp.asarray(frame["a"]), x)
    np.testing.assert_array_equal(jnp.asarray(polars.from_numpy(np.asarray(jnp.ones((2, 2))))), np.ones((2, 2)))


def test_polars_does_not_take_arrays_and_the_error_says_what_to_give() -> None:
    polars = pytest.importorskip("polars")
    for use in (lambda: polars.Series("a", x), lambda: polars.DataFrame({"a": [1, 2, 3]}).with_columns(b=x)):
        with pytest.raises(TypeError) as caught:
            use()
        explain(caught.value)
        assert "numpy.asarray(x), which copies nothing" in str(caught.value)
