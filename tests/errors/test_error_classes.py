"""Errors are caught as what NumPy and JAX raise for the same mistake."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinyxla as tx
from tinyxla import errors

jax = pytest.importorskip("jax")
jnp = jax.numpy

BUILT_IN = (
    IndexError, KeyError, OverflowError, ZeroDivisionError, NotImplementedError, AttributeError, NameError,
    FloatingPointError, AssertionError, MemoryError, ValueError, TypeError,
)  # fmt: skip

M = np.arange(6, dtype=np.float32).reshape(2, 3)
V = np.arange(4, dtype=np.float32)
N = np.array([2, 0, 1], np.int32)

# Wrong calls of a module like NumPy, with a function that makes its arrays.
NUMPY: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda m, a: m.add(a(M), a(V)),
    "operator": lambda m, a: a(M) + a(V),
    "comparison": lambda m, a: a(M) < a(V),
    "matmul": lambda m, a: a(M) @ a(M),
    "dot": lambda m, a: m.dot(a(M), a(V)),
    "tensordot": lambda m, a: m.tensordot(a(M), a(M), 1),
    "einsum": lambda m, a: m.einsum("ij,jk->ik", a(M), a(M)),
    "where": lambda m, a: m.where(a(M) > 0, a(V), 0),
    "broadcast_to": lambda m, a: m.broadcast_to(a(M), (3, 2)),
    "concatenate": lambda m, a: m.concatenate([a(M), a(V)]),
    "concatenate of nothing": lambda m, a: m.concatenate([]),
    "stack": lambda m, a: m.stack([a(M), a(V)]),
    "reshape": lambda m, a: a(M).reshape(4),
    "reshape to text": lambda m, a: m.reshape(a(M), "a"),
    "transpose": lambda m, a: a(M).transpose(0, 0),
    "squeeze": lambda m, a: m.squeeze(a(M), 0),
    "expand_dims": lambda m, a: m.expand_dims(a(M), 7),
    "split": lambda m, a: m.split(a(V), 3),
    "swapaxes": lambda m, a: m.swapaxes(a(M), 0, 3),
    "moveaxis": lambda m, a: m.moveaxis(a(M), 0, 3),
    "sum": lambda m, a: m.sum(a(M), 2),
    "sum twice": lambda m, a: m.sum(a(M), (0, 0)),
    "sum over text": lambda m, a: m.sum(a(M), "x"),
    "sum over a fraction": lambda m, a: m.sum(a(M), 1.5),
    "argmax": lambda m, a: m.argmax(a(M), 4),
    "sort": lambda m, a: m.sort(a(M), 4),
    "maximum of nothing": lambda m, a: m.max(a(V)[:0]),
    "negative size": lambda m, a: m.zeros((2, -1)),
    "fraction as size": lambda m, a: m.ones(2.5),
    "dtype": lambda m, a: m.zeros(2, "foo"),
    "ragged": lambda m, a: m.array([[1], [2, 3]]),
    "too many indices": lambda m, a: a(M)[0, 0, 0],
    "text as index": lambda m, a: a(M)["a"],
    "fraction as index": lambda m, a: a(V)[1.5],
    "array of fractions as index": lambda m, a: a(V)[a(V)],
    "mask": lambda m, a: a(V)[a(np.ones(3, bool))],
    "truth": lambda m, a: bool(a(V)),
    "float": lambda m, a: float(a(V)),
    "length": lambda m, a: len(a(V)[0]),
    "bits of floats": lambda m, a: ~a(V),
    "shift of floats": lambda m, a: a(V) << 1,
    "unknown name": lambda m, a: m.nonsense,
    "unknown attribute": lambda m, a: a(V).nonsense,
    "unknown keyword": lambda m, a: m.sum(a(V), nonsense=1),
    "hash": lambda m, a: hash(a(V)),
    "inverse": lambda m, a: m.linalg.inv(a(M)),
    "determinant of a vector": lambda m, a: m.linalg.det(a(V)),
    "solve": lambda m, a: m.linalg.solve(a(M), a(V)),
    "power of no square": lambda m, a: m.linalg.matrix_power(a(M), 2),
    "cholesky": lambda m, a: m.linalg.cholesky(a(V)),
    "norm": lambda m, a: m.linalg.norm(a(M), "wrong"),
    "fft": lambda m, a: m.fft.fft(a(V), axis=3),
    "fft of no length": lambda m, a: m.fft.fft(a(V), 0),
    "repeat": lambda m, a: m.repeat(a(V), -1),
    "linspace": lambda m, a: m.linspace(0, 1, -2),
    "take": lambda m, a: m.take(a(M), a(N), 5),
    "pad": lambda m, a: m.pad(a(V), 1, "wrong"),
    "polyfit": lambda m, a: m.polyfit(a(V), a(M), 1),
    "cross": lambda m, a: m.cross(a(V), a(V)),
    "meshgrid": lambda m, a: m.meshgrid(a(V), indexing="wrong"),
    "cov": lambda m, a: m.cov(a(np.ones((2, 2, 2), np.float32))),
    "None": lambda m, a: m.add(a(V), None),
    "text": lambda m, a: m.sin("a"),
    "dict": lambda m, a: m.sin({"a": 1}),
}


OTHERWISE_IN_JAX = {"sum over text": "a named axis", "pad": "a mode that is not implemented"}


def raised(function: Callable[[], Any]) -> Exception | None:
    try:
        function()
    except Exception as error:
        return error
    return None


def built_in(error: Exception | None) -> tuple[type[Exception], ...]:
    return tuple(kind for kind in BUILT_IN if isinstance(error, kind))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NUMPY)
def test_errors_are_of_the_classes_of_numpy_and_of_jax(name: str) -> None:
    call = NUMPY[name]
    mine = raised(lambda: call(tx.numpy, tx.numpy.asarray))
    assert mine is not None
    peers = [raised(lambda: call(np, np.asarray))]
    if name not in OTHERWISE_IN_JAX:
        peers.append(raised(lambda: call(jnp, jnp.asarray)))
    for theirs in peers:
        kinds = built_in(theirs)
        assert not kinds or isinstance(mine, kinds), f"{type(theirs).__name__}: {theirs}; ours is {mine!r}"


LAX: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda lax, a: lax.add(a(M), a(V)),
    "add of types": lambda lax, a: lax.add(a(V[:3]), a(N)),
    "dot": lambda lax, a: lax.dot(a(M), a(M)),
    "dot_general": lambda lax, a: lax.dot_general(a(M), a(M), (((7,), (1,)), ((), ()))),
    "concatenate": lambda lax, a: lax.concatenate([a(M), a(V)], 0),
    "reshape": lambda lax, a: lax.reshape(a(M), (7,)),
    "transpose": lambda lax, a: lax.transpose(a(M), (0, 2)),
    "broadcast_in_dim": lambda lax, a: lax.broadcast_in_dim(a(M), (2, 3), (0, 5)),
    "slice": lambda lax, a: lax.slice(a(M), (0, 0), (5, 5)),
    "pad": lambda lax, a: lax.pad(a(M), np.float32(0), ((0, 0, 0),)),
    "rev": lambda lax, a: lax.rev(a(M), (4,)),
    "dynamic_slice": lambda lax, a: lax.dynamic_slice(a(M), (0, 0), (3, 3)),
    "select": lambda lax, a: lax.select(a(V), a(V), a(V)),
    "reduce_sum": lambda lax, a: lax.reduce_sum(a(M), (4,)),
    "conv": lambda lax, a: lax.conv(a(M), a(M), (1,), "SAME"),
    "sort": lambda lax, a: lax.sort(a(M), dimension=4),
    "top_k": lambda lax, a: lax.top_k(a(V), 9),
    "while_loop": lambda lax, a: lax.while_loop(lambda x: x < 3, lambda x: (x, x), a(V)[0]),
    "scan": lambda lax, a: lax.scan(lambda c, x: (c, x), 0.0, (a(V), a(N))),
    "cond": lambda lax, a: lax.cond(a(V), lambda: 1, lambda: 2),
    "clamp": lambda lax, a: lax.clamp(a(V), a(M), a(V)),
}


@pytest.mark.parametrize("name", LAX)
def test_errors_of_lax_are_of_the_classes_of_jax(name: str) -> None:
    call = LAX[name]
    theirs, mine = raised(lambda: call(jax.lax, jnp.asarray)), raised(lambda: call(tx.lax, tx.numpy.asarray))
    kinds = built_in(theirs)
    assert kinds, theirs
    assert isinstance(mine, kinds), f"{type(theirs).__name__}: {theirs}; ours is {mine!r}"


def test_errors_of_axes_and_matrices_are_those_of_numpy_too() -> None:
    with pytest.raises(np.exceptions.AxisError, match="use one from -2 to 1"):
        tx.numpy.sum(tx.numpy.asarray(M), 2)
    with pytest.raises(np.linalg.LinAlgError, match="square"):
        tx.numpy.linalg.inv(tx.numpy.asarray(M))


@pytest.mark.parametrize("kind", [errors.ShapeError, errors.DTypeError, errors.ArgumentError, errors.PytreeError])
def test_errors_of_arguments_are_caught_either_way(kind: type[Exception]) -> None:
    assert issubclass(kind, TypeError)
    assert issubclass(kind, ValueError)


@pytest.mark.parametrize(
    "call",
    [
        lambda: tx.numpy.summ,
        lambda: tx.numpy.dot(M, M),
        lambda: tx.numpy.sum(M, axis=5),
        lambda: tx.numpy.ones(3)[7],
    ],
)
def test_errors_are_the_same_after_pickling(call: Callable[[], Any]) -> None:
    """A process of a pool hands its errors over as pickles."""
    with pytest.raises(errors.TinyxlaError) as found:
        call()
    again = pickle.loads(pickle.dumps(found.value))
    assert type(again) is type(found.value)
    assert (str(again), again.line) == (str(found.value), found.value.line)
