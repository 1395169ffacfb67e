"""Every function of the fuzzer's catalogue under `numpy_dtype_promotion="strict"` and `numpy_rank_promotion="raise"`:
with arrays of one type (and of one rank) there is nothing to promote, so that a result has the type and shape that it
has without these options.
"""

from __future__ import annotations

import contextlib
import re
import zlib
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")

import tinyxla as tx
from tests.fuzz.catalogue import catalogue, resolve
from tests.fuzz.catalogue_methods import EXPRESSIONS
from tests.fuzz.templates import Drawn
from tests.fuzz.values import draw
from tinyxla.errors import TracerError

TRIES = 1

# Calls whose text holds a Python number or a function that mixes types by itself.
MIXING = {
    "numpy.apply_along_axis": "the function's sum widens small integers",
    "numpy.array": "a list with a Python float",
    "numpy.diff": "a Python float before integers",
    "numpy.linspace": "a Python float beside integers",
    "numpy.where": "a Python number beside booleans",
    "numpy.select": "a Python number beside booleans",
    "numpy.piecewise": "functions and numbers",
    "numpy.vectorize": "a function of the caller",
    "nn.hard_tanh": "integers beside booleans, which it has as in JAX",
    "nn.dot_product_attention": "weights of 32 bits beside a bias of 16, as in JAX",
}
NAMES = sorted(n for n in catalogue() if n not in MIXING and n not in EXPRESSIONS)
GROUPS = 24


class _Captured(Exception):
    """The call's arguments are known."""


def arguments(text: str, arrays: list[Any]) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """The positional and keyword arguments of a call that is given as text."""
    found: list[Any] = []

    def record(*args: Any, **kwargs: Any) -> None:
        found.append((args, kwargs))
        raise _Captured

    space = {"np": np, "jx": tx, "record": record, **{f"x{i}": x for i, x in enumerate(arrays)}}
    with contextlib.suppress(_Captured):
        eval("record" + text, space)
    return found[0] if found else None


def checked_call(name: str, seed: int) -> bool:
    """Check one call, if its arrays have one type; whether there was one."""
    entry, function = catalogue()[name], resolve(tx, name)
    drawn = Drawn(np.random.default_rng([seed, zlib.crc32(name.encode())]), False, small=True)
    text = drawn.text(entry.templates[seed % len(entry.templates)])
    if text.startswith("jx.") or re.search(r"dtype=|x\d+ \*|\+|-5", text):
        return False
    arrays = [draw(given, "plain", drawn.random) for given in drawn.inputs]
    given = [tx.numpy.asarray(x) if isinstance(x, np.ndarray) else x for x in arrays]
    mixed = [x for x, i in zip(given, drawn.inputs, strict=True) if isinstance(x, tx.Array) and i.kind != "key"]
    if len({x.dtype for x in mixed}) > 1 or (mixed and any(not isinstance(x, tx.Array) for x in given)):
        return False
    found = arguments(text, given)
    if found is None:
        return False
    args, kwargs = found
    try:
        expected = tx.tree_util.tree_leaves(tx.eval_shape(lambda: function(*args, **kwargs)))
    except Exception:  # not a call that the function takes, or not one that can be traced
        return False
    rank = "raise" if len({x.ndim for x in mixed}) < 2 else "allow"
    with tx.numpy_dtype_promotion("strict"), tx.numpy_rank_promotion(rank):
        try:
            result = tx.tree_util.tree_leaves(tx.eval_shape(lambda: function(*args, **kwargs)))
        except TracerError:
            return False
        except Exception as error:
            raise AssertionError(f"{name}{text} of {', '.join(map(str, drawn.inputs))}: {error}") from error
    assert [(x.shape, x.dtype) for x in result] == [(x.shape, x.dtype) for x in expected], name
    return True


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("group", range(GROUPS))
def test_functions_of_arrays_of_one_type_promote_nothing(group: int) -> None:
    names = NAMES[group::GROUPS]
    checked = {name for seed in range(TRIES) for name in names if checked_call(name, seed)}
    assert len(checked) > len(names) // 3
