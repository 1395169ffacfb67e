"""Valid calls of every public function: each of a list of argument tuples that the function takes."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

import tinyxla as tx
from tinyxla.numpy.types import ScalarType
from tinyxla.tracing import Array

MODULES = (
    "numpy numpy.fft numpy.linalg lax lax.linalg nn random image scipy.special scipy.linalg scipy.fft scipy.signal "
    "scipy.integrate scipy.cluster.vq"
).split()
DISTRIBUTIONS = "beta norm poisson".split()
MODULES += ["scipy.stats", *(f"scipy.stats.{n}" for n in DISTRIBUTIONS)]

generator = np.random.default_rng(5)
VECTOR = generator.uniform(0.2, 0.8, 6).astype(np.float32)
MATRIX = generator.uniform(0.2, 0.8, (3, 3)).astype(np.float32)
SYMMETRIC = (MATRIX + MATRIX.T + 3 * np.eye(3)).astype(np.float32)
CUBE = generator.uniform(0.2, 0.8, (2, 4, 3)).astype(np.float32)
WIDE = generator.uniform(0.2, 0.8, (2, 4)).astype(np.float32)
IMAGE = generator.uniform(0.2, 0.8, (1, 3, 8, 8)).astype(np.float32)
INTEGERS = np.array([2, 0, 1, 3], np.int32)
TABLE = np.array([[2, 0, 1], [3, 1, 2], [0, 2, 3]], np.int32)
COMPLEX = (MATRIX + 1j * MATRIX.T).astype(np.complex64)
SIGNAL = generator.uniform(0.2, 0.8, 64).astype(np.float32)

CANDIDATES: list[tuple[Any, ...]] = [
    (VECTOR,), (MATRIX,), (SYMMETRIC,), (CUBE,), (WIDE,), (INTEGERS,), (TABLE,), (COMPLEX,), (SIGNAL,),
    (VECTOR, VECTOR), (MATRIX, MATRIX), (SYMMETRIC, MATRIX), (WIDE, WIDE), (INTEGERS, INTEGERS), (TABLE, TABLE),
    (COMPLEX, COMPLEX),
    (np.stack([SYMMETRIC, 2 * SYMMETRIC]),), (COMPLEX.reshape(-1),),
    (VECTOR, VECTOR, VECTOR), (MATRIX, MATRIX, MATRIX), (INTEGERS, INTEGERS, INTEGERS), (MATRIX > 0.5, MATRIX, MATRIX),
    (VECTOR, VECTOR, VECTOR, VECTOR), (MATRIX,) * 4, (VECTOR,) * 5,
    (VECTOR, 0), (MATRIX, 1), (MATRIX, 0, 1), (CUBE, -1), (VECTOR, 0.5), (MATRIX, 0.5, 0), (INTEGERS, 2), (INTEGERS, 5),
    (0.5, VECTOR), (2, VECTOR), (2, INTEGERS), (4,), (4, 3), (0.0, 1.0), (0.0, 1.0, 5), ((2, 3),), ((2, 3), 0.5),
    ([VECTOR, VECTOR],), ([MATRIX, MATRIX],), ([VECTOR, VECTOR], 0), ([MATRIX, MATRIX], 0),
    (MATRIX, (3, 3)), (VECTOR, (2, 3)), (MATRIX, (0,)), (MATRIX, (1, 0)),
    (MATRIX, (0, 1)),
    (MATRIX, (6, 6), "linear"), (MATRIX, (2, 2), "nearest"), (MATRIX, (5, 2), "cubic"), (MATRIX, (5, 2), "lanczos3"),
    (MATRIX[..., None], (5, 4, 1), "linear"),
    (VECTOR, (1,), (3,)), (0.1, VECTOR, 0.5), (VECTOR, (1,), (2,)), (VECTOR, VECTOR[:2], (1,)),
    ("ij,jk->ik", MATRIX, MATRIX), (IMAGE, IMAGE[:, :, :3, :3], (1, 1), "SAME"),
    (lambda x: x * x, VECTOR), (np.sort(VECTOR), VECTOR), (SIGNAL, 2), (SIGNAL, SIGNAL),
    (MATRIX[:2], MATRIX), (VECTOR, 2, 1.0), (MATRIX, 2.0, 1),
]  # fmt: skip

KEYED: list[tuple[Any, ...]] = [
    (), ((3,),), (3,), (VECTOR[:2], (2,)), (VECTOR,), (MATRIX,),
    (0.5,), (VECTOR, (6,)), (MATRIX, (3,)), (VECTOR, VECTOR),
    (INTEGERS, 0, 5), ((3,), 0, 5), (VECTOR[:3], SYMMETRIC), (2.0, VECTOR), (-1.0, 1.0), (-1.0, 1.0, (3,)),
    (VECTOR, VECTOR, (6,)), (4, VECTOR), (2, (3,), np.float32), (INTEGERS, INTEGERS), ((4,), (3,)), (3, 2),
    (INTEGERS.astype(np.float32) + 1, VECTOR[:4]),
]  # fmt: skip


class Call(NamedTuple):
    """A function, by its name after `tinyxla.`, and its arguments."""

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(_described, self.arguments))})"


def _described(x: Any) -> str:
    if isinstance(x, np.ndarray | Array):
        return f"{x.dtype.name}{list(x.shape)}"
    return f"[{', '.join(map(_described, x))}]" if isinstance(x, list) else repr(x)


def functions(module: str) -> Iterator[tuple[str, Callable[..., Any]]]:
    """The public functions of a module or distribution, by their names after `tinyxla.`."""
    found = importlib.import_module(f"tinyxla.{module.partition('.stats.')[0]}" + ".stats" * (".stats." in module))
    if ".stats." in module:
        found = getattr(tx.scipy.stats, module.rpartition(".")[2])
    for name in dir(found):
        value = getattr(found, name)
        if not name.startswith("_") and callable(value) and not isinstance(value, type | ScalarType):
            yield f"{module}.{name}", value


def as_arrays(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments with arrays of this library in place of NumPy's."""
    return tuple(
        [tx.numpy.asarray(y) for y in x]
        if isinstance(x, list) and isinstance(x[0], np.ndarray)
        else tx.numpy.asarray(x)
        if isinstance(x, np.ndarray)
        else x
        for x in arguments
    )


def candidates(module: str) -> list[tuple[Any, ...]]:
    """Arguments that functions of a module may take."""
    if module != "random":
        return CANDIDATES
    key = np.asarray(tx.random.PRNGKey(3))
    return [(key, *more) for more in KEYED]
