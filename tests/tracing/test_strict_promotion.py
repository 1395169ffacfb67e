"""The options `numpy_dtype_promotion="strict"` and `numpy_rank_promotion="raise"` are about the arguments a user mixes:
functions called with arrays of one type and rank work under both, and give the same values as without.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

import tinyxla as tx
from tests.support.public_calls import MODULES, Call, as_arrays, candidates, functions
from tinyxla.errors import TinyxlaError
from tinyxla.tracing import pytrees

tnp = tx.numpy

MOST = 4  # calls of one function; of one of `random`, whose samplers are slow op by op, there is one

# Functions whose further arguments are of another rank or type by their meaning, and how many are alike.
ALIKE = {"numpy.linalg.pinv": 1, "numpy.linalg.matrix_rank": 1, "numpy.linalg.lstsq": 2}

REAL = {"numpy.histogram", "numpy.histogramdd"}  # functions that need an order

# Functions without one value for the arguments here.
WITHOUT_VALUE = {
    "numpy.empty": "its elements are arbitrary",
    "numpy.empty_like": "its elements are arbitrary",
    "numpy.save": "writes a file",
    "numpy.savez": "writes a file",
    "numpy.searchsorted": "the first array must be sorted",
    "numpy.set_printoptions": "changes how arrays are printed",
    "lax.rng_uniform": "draws other numbers each time",
    "lax.empty": "its elements are arbitrary",
    **dict.fromkeys(("lax.after_all", "lax.create_token"), "a token has none"),
}


def values(result: Any) -> list[np.ndarray[Any, Any]]:
    return [np.asarray(x) for x in pytrees.leaves(result) if isinstance(x, (np.ndarray, tx.Array))]


def under_options(call: Call, function: Any) -> Any:
    """A call under the options that the arguments do not break themselves."""
    arrays = [x for a in call.arguments for x in (a if isinstance(a, list) else [a]) if isinstance(x, np.ndarray)]
    if call.name.startswith("random."):
        arrays = arrays[1:]  # without the key
    dtype = "strict" if len({x.dtype for x in arrays}) <= 1 else "standard"
    rank = "raise" if len({x.ndim for x in arrays}) <= 1 else "allow"
    with tx.numpy_dtype_promotion(dtype), tx.numpy_rank_promotion(rank):
        try:
            return function()
        except Exception as error:
            raise AssertionError(f"{call}: {error}") from error


def check(call: Call, expected: list[np.ndarray[Any, Any]], given: tuple[Any, ...]) -> None:
    found = under_options(call, lambda: values(call.function(*given)))
    for mine, plain in zip(found, expected, strict=True):
        assert (mine.dtype, mine.shape) == (plain.dtype, plain.shape), call
        np.testing.assert_allclose(mine, plain, rtol=1e-4, atol=1e-5, err_msg=str(call))
    traced = [k for k, x in enumerate(given) if isinstance(x, tx.Array)]

    def of_arrays(*arrays: Any) -> Any:
        whole = list(given)
        for k, x in zip(traced, arrays, strict=True):
            whole[k] = x
        return values_of_tracers(call.function(*whole))

    arrays = [given[k] for k in traced]
    try:
        plain_shapes = tx.eval_shape(of_arrays, *arrays)
    except Exception:  # some argument must be known
        return
    shapes = under_options(call, lambda: tx.eval_shape(of_arrays, *arrays))
    assert [(x.shape, x.dtype) for x in shapes] == [(x.shape, x.dtype) for x in plain_shapes], call


def values_of_tracers(result: Any) -> list[Any]:
    return [x for x in pytrees.leaves(result) if isinstance(x, tx.Array)]


def check_function(name: str, function: Any, module: str) -> int:
    """Check the first calls that the function takes; how many these are."""
    count = 0
    for arguments in candidates(module):
        given = as_arrays(arguments)
        arrays = sum(isinstance(x, tx.Array) for x in given)
        is_complex = any(isinstance(x, tx.Array) and x.dtype.kind == "c" for x in given)
        if (
            count == (1 if module == "random" else MOST)
            or arrays > ALIKE.get(name, arrays)
            or (is_complex and name in REAL)
        ):
            continue
        try:
            with tx.disable_jit():
                expected = values(function(*given))
        except Exception:
            continue
        check(Call(name, function, arguments), expected, given)
        count += 1
    return count


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("module", MODULES)
def test_public_functions_work_on_arguments_of_one_type_and_rank(module: str) -> None:
    theirs = pytest.importorskip("jax") and importlib.import_module(f"jax.{module}")
    failures: list[str] = []
    checked = 0
    for name, function in functions(module):
        if name in WITHOUT_VALUE or not hasattr(theirs, name.rpartition(".")[2]):
            continue
        try:
            checked += check_function(name, function, module) > 0
        except AssertionError as error:
            failures.append(str(error))
    assert not failures, "\n".join(failures)
    assert checked > 0


def test_a_mix_of_types_or_ranks_is_refused() -> None:
    with tx.numpy_dtype_promotion("strict"), pytest.raises(TinyxlaError, match="strict"):
        tnp.add(tnp.ones(3), tnp.arange(3))
    with tx.numpy_rank_promotion("raise"), pytest.raises(TinyxlaError, match="different ranks"):
        tnp.add(tnp.ones((2, 3)), tnp.ones(3))


def test_geomspace_of_vectors_has_signs_along_the_right_axis() -> None:
    ends = np.array([1.0, -2.0], np.float32)
    for axis in (0, -1):
        found = tnp.geomspace(ends, 8 * ends, 4, axis=axis)
        np.testing.assert_allclose(found, np.geomspace(ends, 8 * ends, 4, axis=axis), rtol=1e-5)


def test_pinv_takes_a_tolerance_for_each_matrix() -> None:
    x = np.stack([np.diag([1.0, 0.1]), np.diag([1.0, 0.5])]).astype(np.float32)
    bounds = np.array([0.2, 0.2], np.float32)
    np.testing.assert_allclose(tnp.linalg.pinv(x, bounds), np.linalg.pinv(x, bounds), atol=1e-6)
    assert tnp.linalg.matrix_rank(x, bounds).tolist() == [1, 2]
