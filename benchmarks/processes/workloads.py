"""Workloads over a mesh: computations of sharded arrays, each written once for tinyxla and JAX."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from benchmarks.groups.training import block_step, digits_step

Function = Callable[..., Any]


class Argument(NamedTuple):
    """An array of normal numbers with this deviation, or of labels from 0 to 9, and how it is split."""

    shape: tuple[int, ...]
    spec: tuple[str | None, ...] = ()
    dtype: str = "float32"
    deviation: float = 1.0

    def value(self, generator: np.random.Generator) -> np.ndarray[Any, Any]:
        """The whole array."""
        if self.dtype == "int32":
            return np.asarray(generator.integers(0, 10, self.shape, dtype=np.int32))
        return np.asarray(self.deviation * generator.standard_normal(self.shape, np.float32), np.float32)


@dataclass(frozen=True)
class ShardedWorkload:
    """A function of arrays over the mesh axis "d" that both libraries compile.

    `make(tx, mesh)` gives the function, and `arguments(scale)` its arguments, in containers: `scale` times as large as
    the part of a process in dimensions that are split. A measurement is of `repeats` calls. `in_mpi(everyone, x)` gives
    the same for mpi4py, of a process's part; a call has so many `operations`, for each of which the time is shown.
    """

    name: str
    make: Callable[[Any, Any], Function]
    arguments: Callable[[int], tuple[Any, ...]]
    repeats: int
    in_mpi: Callable[[Any, np.ndarray[Any, Any]], Callable[[], object]] | None = None
    operations: int = 1

    def placed(self, tx: Any, mesh: Any, scale: int) -> tuple[Any, ...]:
        """The arguments as a library's arrays, the same numbers for all; each process makes its parts."""
        generator = np.random.default_rng(0)

        def put(x: Argument) -> Any:
            whole = x.value(generator)
            sharding = tx.sharding.NamedSharding(mesh, tx.sharding.PartitionSpec(*x.spec))
            return tx.make_array_from_callback(x.shape, sharding, lambda index: whole[index])

        return self._mapped(tx, put, scale)

    def described(self, tx: Any, mesh: Any, scale: int) -> tuple[Any, ...]:
        """Descriptions of the arguments, over a mesh that may be abstract."""

        def describe(x: Argument) -> Any:
            sharding = tx.sharding.NamedSharding(mesh, tx.sharding.PartitionSpec(*x.spec))
            return tx.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding)

        return self._mapped(tx, describe, scale)

    def _mapped(self, tx: Any, function: Callable[[Argument], Any], scale: int) -> tuple[Any, ...]:
        def is_argument(x: Any) -> bool:
            return isinstance(x, Argument)

        return tx.tree_util.tree_map(function, self.arguments(scale), is_leaf=is_argument)


def mesh_of(tx: Any) -> Any:
    """All devices along the axis "d"."""
    return tx.sharding.Mesh(np.array(tx.devices()), ("d",))


# Training steps, each process with a share of the batch.


def _perceptron(batch: int, sizes: tuple[int, ...]) -> tuple[Any, ...]:
    """The arguments of `digits_step`: layers, the state of Adam, images and labels."""
    weights = [(Argument((i, o), deviation=i**-0.5), Argument((o,), deviation=0.0)) for i, o in pairwise(sizes)]
    zeros = [tuple(x._replace(deviation=0.0) for x in layer) for layer in weights]
    state = (Argument((), deviation=0.0), zeros, zeros)
    return weights, state, Argument((batch, sizes[0]), ("d",)), Argument((batch,), ("d",), "int32")


def _transformer(batch: int, length: int, width: int) -> tuple[Any, ...]:
    """The arguments of `block_step`."""
    shapes = (width, 3 * width), (width, width), (width, 4 * width), (4 * width, width)
    parameters = (Argument(shape, deviation=shape[0] ** -0.5) for shape in shapes)
    return Argument((batch, length, width), ("d",)), *parameters


# The heat equation on a plate in strips of rows, as in examples/heat.py.

STEPS = 100
_COURANT = 0.2


def _heat(tx: Any, mesh: Any) -> Function:
    xp, lax, count = tx.numpy, tx.lax, mesh.size
    spec = tx.sharding.PartitionSpec("d")

    def step(_: Any, strip: Any) -> Any:
        above = lax.ppermute(strip[-1:], "d", [(k, k + 1) for k in range(count - 1)])
        below = lax.ppermute(strip[:1], "d", [(k + 1, k) for k in range(count - 1)])
        tall = xp.concatenate([above, strip, below])
        wide = xp.pad(strip, ((0, 0), (1, 1)))
        return strip + _COURANT * (tall[2:] + tall[:-2] + wide[:, 2:] + wide[:, :-2] - 4 * strip)

    def solve(strip: Any) -> Any:
        return lax.fori_loop(0, STEPS, step, strip)

    return tx.shard_map(solve, mesh=mesh, in_specs=spec, out_specs=spec)


# Matrix products: of which the compiler finds what processes exchange.

_ROWS, _COLUMNS, _WHOLE = ("d", None), (None, "d"), (None, None)


def _product(tx: Any, mesh: Any, result: tuple[str | None, ...]) -> Function:
    sharding = tx.sharding.NamedSharding(mesh, tx.sharding.PartitionSpec(*result))
    return lambda x, y: tx.lax.with_sharding_constraint(x @ y, sharding)


def _matmul(name: str, left: Any, right: Any, result: Any, part: int, size: int) -> ShardedWorkload:
    """A product of two matrices of these splits; the dimension along which the first is split grows with the scale."""

    def arguments(scale: int) -> tuple[Any, ...]:
        rows, inner = (2 * part * scale, size) if left[0] == "d" else (16 * part, 2 * part * scale)
        return Argument((rows, inner), left), Argument((inner, 16 * part), right)

    return ShardedWorkload(f"matmul, {name}", lambda tx, mesh: _product(tx, mesh, result), arguments, 20)


def programs(part: int = 64, width: int = 512) -> Mapping[str, ShardedWorkload]:
    """The programs by name: with so many rows of a batch or a plate in each process, and rows of such a length."""
    layers = (784, width, width, 10)
    found = (
        ShardedWorkload(
            "perceptron, loss, gradient and Adam",
            lambda tx, mesh: digits_step(tx),
            lambda scale: _perceptron(part * scale, layers),
            20,
        ),
        ShardedWorkload(
            "transformer block, loss, gradient and descent",
            lambda tx, mesh: block_step(tx),
            lambda scale: _transformer(part * scale, 16, width // 4),
            20,
        ),
        ShardedWorkload(
            f"heat equation, {STEPS} steps", _heat, lambda scale: (Argument((part * scale, 2 * width), ("d",)),), 5
        ),
        _matmul("rows by whole", _ROWS, _WHOLE, _ROWS, part, width),
        _matmul("rows by columns to rows", _ROWS, _COLUMNS, _ROWS, part, width),
        _matmul("columns by rows to whole", _COLUMNS, _ROWS, _WHOLE, part, width),
        _matmul("columns by rows to rows", _COLUMNS, _ROWS, _ROWS, part, width),
    )
    return {x.name: x for x in found}
