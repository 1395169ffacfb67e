"""Arguments of the wrong kind: each function is called validly, and then with each argument in turn replaced by what it
hardly takes. What comes is a result, or a typed error with a text of one line that names the function.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinyxla as tx
from tinyxla.errors import ArgumentError, TinyxlaError

tnp, lax = tx.numpy, tx.lax

M = tnp.arange(6.0).reshape(2, 3)
V = tnp.arange(4.0)
N = tnp.array([2, 0, 1])
S = tnp.array([[4.0, 1.0, 0.0], [1.0, 3.0, 0.5], [0.0, 0.5, 2.0]])
NUMBERS = lax.GatherDimensionNumbers((), (0,), (0,))
PLACES = lax.ScatterDimensionNumbers((), (0,), (0,))

WRONG: dict[str, Any] = {
    "text": "no such",
    "None": None,
    "ragged lists": [[1, 2], [3]],
    "list": [1.0, 2.0],
    "complex": 1j,
    "fraction": 2.5,
    "negative": -7,
    "large": 7,
    "huge": 10**13,
    "beyond 64 bits": 2**70,
    "NaN": float("nan"),
    "infinity": float("inf"),
    "empty": tnp.zeros(0),
    "array of 3 dimensions": tnp.ones((2, 3, 2)),
    "array of integers": tnp.array([1, 2, 9]),
    "array without dimensions": tnp.array(1.5),
    "dict": {"a": 1},
    "set": {1, 2},
    "function": lambda *a: a,
    "no axes": (),
    "axis twice": (0, 0),
    "axes outside": (-9, 5),
    "tuple of text": ("a",),
    "nested tuples": ((1, 2), 3),
    "type": int,
    "object": object(),
}


def call(*args: Any, **options: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return args, options


# A valid call of each function.
CALLS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "numpy.apply_over_axes": call(tnp.sum, M, (0,)),
    "numpy.arange": call(0, 4, 1),
    "numpy.argmax": call(M, 0),
    "numpy.argsort": call(M, 0),
    "numpy.argwhere": call(M, size=2),
    "numpy.array": call([1.0], ndmin=2),
    "numpy.array_split": call(V, 2, 0),
    "numpy.bartlett": call(4),
    "numpy.bincount": call(N, None, 2, length=3),
    "numpy.can_cast": call("int8", "int16", "safe"),
    "numpy.choose": call(N, [N, N, N], None, "clip"),
    "numpy.concatenate": call([M, M], 0),
    "numpy.convolve": call(V, V, "full"),
    "numpy.delete": call(V, 1, 0),
    "numpy.diag": call(V, 1),
    "numpy.diag_indices": call(2, 2),
    "numpy.diagonal": call(M, 1, 0, 1),
    "numpy.diff": call(V, 1, 0),
    "numpy.expand_dims": call(M, 0),
    "numpy.extract": call(V > 1, V, size=2),
    "numpy.eye": call(2, 3, 1),
    "numpy.finfo": call("float32"),
    "numpy.flip": call(M, 0),
    "numpy.full": call((2,), 1.0),
    "numpy.geomspace": call(1.0, 4.0, 3, axis=0),
    "numpy.hamming": call(4),
    "numpy.histogram": call(V, 3, (0, 4)),
    "numpy.histogramdd": call(M, 2, ((0, 1),) * 3),
    "numpy.iinfo": call("int8"),
    "numpy.indices": call((2, 3)),
    "numpy.insert": call(V, 1, 5.0, 0),
    "numpy.kaiser": call(4, 2.0),
    "numpy.linspace": call(0.0, 1.0, 3, axis=0),
    "numpy.logspace": call(0.0, 1.0, 3, axis=0),
    "numpy.mean": call(M, 0),
    "numpy.meshgrid": call(V, indexing="xy"),
    "numpy.moveaxis": call(M, 0, 1),
    "numpy.nonzero": call(M, size=2, fill_value=0),
    "numpy.pad": call(V, 1, "constant"),
    "numpy.percentile": call(M, 50.0, 0, method="lower"),
    "numpy.polyadd": call(V, V),
    "numpy.polyder": call(V, 1),
    "numpy.polydiv": call(V + 1, V[1:]),
    "numpy.polyfit": call(V, V, 1),
    "numpy.polyint": call(V, 1),
    "numpy.polysub": call(V, V),
    "numpy.polyval": call(V, 2.0),
    "numpy.ravel": call(M, "C"),
    "numpy.ravel_multi_index": call((N, N), (3, 3), "wrap", "C"),
    "numpy.repeat": call(V, 2, 0),
    "numpy.reshape": call(M, (3, 2), "C"),
    "numpy.resize": call(M, (3, 3)),
    "numpy.roll": call(M, 1, 0),
    "numpy.rollaxis": call(M, 1, 0),
    "numpy.rot90": call(M, 1, (0, 1)),
    "numpy.round": call(V, 1),
    "numpy.searchsorted": call(V, 1.5, "left"),
    "numpy.select": call([V > 1], [V], 0),
    "numpy.sort": call(M, 0),
    "numpy.split": call(V, 2, 0),
    "numpy.squeeze": call(M[None], 0),
    "numpy.stack": call([V, V], 0),
    "numpy.sum": call(M, 0),
    "numpy.swapaxes": call(M, 0, 1),
    "numpy.take": call(M, N[1:], 0),
    "numpy.tensordot": call(M, M, 2),
    "numpy.tile": call(M, 2),
    "numpy.trace": call(M, 0, 0, 1),
    "numpy.transpose": call(M, (1, 0)),
    "numpy.tri": call(2, 3, 0),
    "numpy.tril": call(M, 0),
    "numpy.tril_indices": call(2, 0, 3),
    "numpy.tril_indices_from": call(M, 0),
    "numpy.triu_indices": call(2, 0, 3),
    "numpy.vander": call(V, 3),
    "numpy.zeros": call((2, 3)),
    "lax.broadcast": call(M, (2,)),
    "lax.broadcast_in_dim": call(V, (2, 4), (1,)),
    "lax.broadcast_shapes": call((2, 3), (3,)),
    "lax.broadcast_to_rank": call(V, 2),
    "lax.collapse": call(M, 0, 2),
    "lax.concatenate": call([V, V], 0),
    "lax.conv": call(tnp.ones((1, 1, 4)), tnp.ones((1, 1, 2)), (1,), "SAME"),
    "lax.conv_general_dilated_patches": call(tnp.ones((1, 1, 4)), (2,), (1,), "SAME"),
    "lax.dynamic_slice": call(V, (1,), (2,)),
    "lax.dynamic_slice_in_dim": call(V, 1, 2, 0),
    "lax.expand_dims": call(V, (0,)),
    "lax.fft": call(V, "RFFT", (4,)),
    "lax.full": call((2,), 1.0),
    "lax.gather": call(V, N[:, None], NUMBERS, (1,)),
    "lax.index_take": call(M, [N[1:]], (0,)),
    "lax.iota": call("int32", 3),
    "lax.pad": call(V, 0.0, ((1, 1, 0),)),
    "lax.padtype_to_pads": call((4,), (2,), (1,), "SAME"),
    "lax.reduce": call(V, 0.0, lax.add, (0,)),
    "lax.reduce_max": call(M, (0,)),
    "lax.reduce_precision": call(V, 5, 10),
    "lax.reshape": call(M, (3, 2)),
    "lax.rev": call(M, (0,)),
    "lax.scatter_add": call(V, N[:, None], V[1:], PLACES),
    "lax.slice": call(V, (1,), (3,), (1,)),
    "lax.split": call(V, (2, 2), 0),
    "lax.squeeze": call(M[None], (0,)),
    "lax.stack": call([V, V], 0),
    "lax.tile": call(M, (2, 1)),
    "lax.transpose": call(M, (1, 0)),
    "nn.celu": call(V, 1.0),
    "nn.elu": call(V, 1.0),
    "nn.leaky_relu": call(V, 0.1),
    "nn.one_hot": call(N, 3),
    "nn.softmax": call(M, 0),
    "nn.squareplus": call(V, 4.0),
    "nn.standardize": call(V, -1, 0.0, 1.0),
    "numpy.fft.fft": call(V, 4, 0, "ortho"),
    "numpy.fft.irfftn": call(M, (2, 3), (0, 1), "forward"),
    "numpy.fft.rfft2": call(M, (2, 3), (0, 1), None),
    "numpy.fft.rfftfreq": call(4, 0.5),
    "numpy.fft.fftshift": call(M, 0),
    "numpy.linalg.cond": call(S, 1),
    "numpy.linalg.eigh": call(S, "L"),
    "numpy.linalg.matrix_norm": call(M, ord="nuc"),
    "numpy.linalg.matrix_power": call(S, 3),
    "numpy.linalg.multi_dot": call([M, S, V[:3]]),
    "numpy.linalg.norm": call(M, 2, (0, 1)),
    "numpy.linalg.qr": call(M, "r"),
    "numpy.linalg.solve": call(S, V[:3]),
    "numpy.linalg.tensorinv": call(S, 1),
    "numpy.linalg.tensorsolve": call(S, V[:3], (0, 1)),
    "numpy.linalg.vector_norm": call(V, axis=0, ord=3),
    "numpy.trapezoid": call(V, V, 1.0, 0),
    "numpy.var": call(M, 0, ddof=1),
    "lax.linalg.symmetric_product": call(M, S[:2, :2], alpha=1.0, beta=0.0),
    "scipy.fft.dct": call(V, 2, 4, 0, "ortho"),
    "scipy.fft.idctn": call(M, 2, (2, 3), (0, 1)),
    "scipy.linalg.dft": call(3, "n"),
    "scipy.linalg.hadamard": call(4),
    "scipy.linalg.hilbert": call(3),
    "scipy.linalg.pascal": call(3, "lower"),
    "scipy.linalg.polar": call(M, "left"),
    "scipy.linalg.qr": call(M, "economic"),
    "scipy.linalg.solve": call(S, V[:3], assume_a="pos"),
    "scipy.linalg.solve_triangular": call(S, V[:3], "T"),
    "scipy.signal.convolve": call(V, V, "same", "direct"),
    "scipy.signal.correlate2d": call(M, M, "same", "fill", 0),
    "scipy.signal.csd": call(V, V, 1.0, "hann", 4, 1, 8, "linear", scaling="spectrum", average="median"),
    "scipy.signal.detrend": call(V, 0, "linear", [2]),
    "scipy.signal.fftconvolve": call(M, M, "full", 0),
    "scipy.signal.istft": call(tnp.ones((3, 4)), 1.0, ("kaiser", 2.0), 4, 2, 4),
    "scipy.signal.stft": call(V, 1.0, "hann", 4, 2, 8, boundary="even"),
    "scipy.signal.welch": call(V, 1.0, V + 1, None, 1, 8, "constant"),
    "scipy.stats.rankdata": call(V, "dense", axis=0),
    "scipy.stats.sem": call(M, 0, 1),
    "image.resize": call(V, (2,), "linear"),
    "image.scale_and_translate": call(V, (3,), (0,), tnp.ones(1), tnp.ones(1), "linear"),
}


def function_of(name: str) -> Callable[..., Any]:
    module, _, last = name.rpartition(".")
    return getattr(importlib.import_module(f"tinyxla.{module}"), last)


def check(name: str, function: Callable[..., Any], argument: str, kind: str) -> None:
    """A result, or an error that says what is wrong."""
    try:
        function()
    except TinyxlaError as error:
        sentence = str(error).rpartition("\n  at ")[0]
        line = error.line.file if error.line else None
        if line != __file__ or "\n" in sentence or not sentence.endswith("."):
            raise AssertionError(f"{name}, {argument} = {kind}: the text is {error}") from error
    except Exception as error:
        raise AssertionError(f"{name}, {argument} = {kind}: {type(error).__name__}: {error}") from error


@pytest.mark.parametrize("name", CALLS)
def test_arguments_of_a_wrong_kind(name: str) -> None:
    function = function_of(name)
    args, options = CALLS[name]
    function(*args, **options)
    names = list(inspect.signature(function).parameters)
    for kind, value in WRONG.items():
        for k, given in enumerate(args):
            if callable(given) and callable(value):
                continue  # what that does is its own affair
            changed = (*args[:k], value, *args[k + 1 :])
            check(name, functools.partial(function, *changed, **options), names[min(k, len(names) - 1)], kind)
        for option in options:
            check(name, functools.partial(function, *args, **{**options, option: value}), option, kind)


@pytest.mark.parametrize("name", CALLS)
def test_traced_values_where_known_ones_are_wanted(name: str) -> None:
    function = function_of(name)
    args, options = CALLS[name]
    for k, given in enumerate(args):
        if type(given) is int:
            traced = tx.jit(lambda x, k=k: (function(*args[:k], x, *args[k + 1 :], **options), 0)[1])
            check(name, functools.partial(traced, given), str(k), "traced")


def parameters(function: Any) -> dict[str, inspect.Parameter]:
    """Of a function; none of what has no signature."""
    try:
        return dict(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return {}


WRITES = [n for n in dir(tnp) if "out" in parameters(getattr(tnp, n))]


@pytest.mark.parametrize("name", WRITES)
def test_nothing_is_written_into(name: str) -> None:
    function = getattr(tnp, name)
    required = [p for p in parameters(function).values() if p.default is p.empty]
    with pytest.raises(ArgumentError, match="out must be None"):
        function(*[M] * len(required), out=M)


def test_complex_ends_of_a_geometric_sequence() -> None:
    np.testing.assert_allclose(tnp.geomspace(1j, 4, 3), np.geomspace(1j, 4, 3), atol=1e-5)


def test_bins_of_an_array_are_of_its_axes() -> None:
    points = np.arange(12.0, dtype=np.float32).reshape(6, 2)
    for bins in (np.array([2, 3]), tnp.array([2, 3])):
        np.testing.assert_array_equal(tnp.histogramdd(points, bins)[0], np.histogramdd(points, [2, 3])[0])
        assert tnp.histogram2d(points[:, 0], points[:, 1], bins)[0].shape == (2, 3)
    with pytest.raises(ArgumentError, match="each of 2 axes"):
        tnp.histogramdd(points, tnp.arange(4.0))
