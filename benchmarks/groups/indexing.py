"""Workloads that read, write and order elements: gathers, scatters, sorts, selections, and movement of data."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.workload import Calls, Function, Inputs, Once, Workload, normal

MILLION = 10**6


def _integers(below: int, *shape: int) -> Inputs:
    return lambda generator: (generator.integers(0, below, shape, dtype=np.int32),)


def _indexed(below: int, count: int, *shape: int) -> Inputs:
    """An array and indices of its first axis."""

    def make(generator: np.random.Generator) -> tuple[Any, ...]:
        return (
            generator.standard_normal((below, *shape), dtype=np.float32),
            generator.integers(0, below, count, dtype=np.int32),
        )

    return make


def _rows(generator: np.random.Generator) -> tuple[Any, ...]:
    table = generator.standard_normal((10_000, 64), dtype=np.float32)
    updates = generator.standard_normal((20_000, 64), dtype=np.float32)
    return table, generator.integers(0, 10_000, 20_000, dtype=np.int32), updates


def _along(generator: np.random.Generator) -> tuple[Any, ...]:
    shape = (1000, 1000)
    return generator.standard_normal(shape, dtype=np.float32), generator.integers(0, 1000, shape, dtype=np.int32)


def _embedding(generator: np.random.Generator) -> tuple[Any, ...]:
    table = generator.standard_normal((30_000, 128), dtype=np.float32)
    return table, generator.integers(0, 30_000, (16, 128), dtype=np.int32)


def _segments(in_order: bool) -> Inputs:
    def make(generator: np.random.Generator) -> tuple[Any, ...]:
        numbers = generator.integers(0, 1000, 100_000, dtype=np.int32)
        return generator.standard_normal((100_000, 16), dtype=np.float32), np.sort(numbers) if in_order else numbers

    return make


def _pairs(generator: np.random.Generator) -> tuple[Any, ...]:
    return (
        generator.integers(0, 2**31 - 1, MILLION, dtype=np.int32),
        generator.standard_normal(MILLION, dtype=np.float32),
    )


def _searched(generator: np.random.Generator) -> tuple[Any, ...]:
    edges = np.sort(generator.standard_normal(10_000, dtype=np.float32))
    return edges, generator.standard_normal(MILLION, dtype=np.float32)


def _permutation(generator: np.random.Generator) -> tuple[Any, ...]:
    return generator.standard_normal(MILLION, dtype=np.float32), generator.permutation(MILLION).astype(np.int32)


def _overwritten(generator: np.random.Generator) -> tuple[Any, ...]:
    places = generator.permutation(10_000)[:2000].astype(np.int32)
    return (
        generator.standard_normal((10_000, 64), dtype=np.float32),
        places,
        generator.standard_normal((2000, 64), dtype=np.float32),
    )


def _compressed(tx: Any) -> Function:
    """The positive elements, in order, at the beginning of an array of the same size."""

    def compress(x: Any) -> Any:
        chosen = x > 0
        place = tx.numpy.where(chosen, tx.numpy.cumsum(chosen) - 1, x.shape[0])
        return tx.numpy.zeros_like(x).at[place].set(x, mode="drop")

    return compress


def _first_of_each(tx: Any) -> Function:
    """The sorted elements, and which of them differ from the one before."""

    def distinct(x: Any) -> Any:
        ordered = tx.numpy.sort(x)
        return ordered, tx.numpy.concatenate([tx.numpy.ones(1, bool), ordered[1:] != ordered[:-1]])

    return distinct


def _filled_rows(tx: Any) -> Function:
    def filled(x: Any) -> Any:
        def step(i: Any, rows: Any) -> Any:
            return tx.lax.dynamic_update_slice(rows, (x * i)[None], (i, 0))

        return tx.lax.fori_loop(0, 1000, step, tx.numpy.zeros((1000, 256), np.float32))

    return filled


def _windows(tx: Any) -> Function:
    def windows(x: Any, starts: Any) -> Any:
        return tx.vmap(lambda start: tx.lax.dynamic_slice(x, (start,), (256,)))(starts)

    return windows


def _window_inputs(generator: np.random.Generator) -> tuple[Any, ...]:
    return generator.standard_normal(MILLION, dtype=np.float32), generator.integers(
        0, MILLION - 256, 2000, dtype=np.int32
    )


def _transposed(*axes: int, shape: tuple[int, ...]) -> Workload:
    name = " x ".join(map(str, shape))
    return Workload(
        f"transpose to {', '.join(map(str, axes))}, {name}",
        lambda tx: lambda x: tx.numpy.transpose(x, axes),
        normal(shape),
        numpy=lambda x: np.ascontiguousarray(x.transpose(axes)),
        torch=lambda torch: lambda x: x.permute(axes).contiguous(),
    )


def _one_hot(torch: Any) -> Function:
    return lambda i: torch.nn.functional.one_hot(i.long(), 256).float()


def _added(torch: Any) -> Function:
    return lambda x, i, u: x.index_add(0, i, u)


def _summed(torch: Any) -> Function:
    return lambda x, i: torch.zeros(1000, 16).index_add(0, i, x)


def _chosen_gradient(tx: Any) -> Function:
    return tx.grad(lambda table, i: tx.numpy.sum(table[i] ** 2))


GATHERS = (
    Workload(
        "gather of 20000 rows",
        lambda tx: lambda x, i: x[i],
        _indexed(10_000, 20_000, 64),
        numpy=lambda x, i: x[i],
        torch=lambda torch: lambda x, i: x.index_select(0, i),
    ),
    Workload(
        "gather of 1e6 elements of 1e6",
        lambda tx: lambda x, i: x[i],
        _indexed(MILLION, MILLION),
        numpy=lambda x, i: x[i],
        torch=lambda torch: lambda x, i: x.index_select(0, i),
    ),
    Workload(
        "gather of 1e6 elements of 1e3",
        lambda tx: lambda x, i: x[i],
        _indexed(1000, MILLION),
        numpy=lambda x, i: x[i],
        torch=lambda torch: lambda x, i: x.index_select(0, i),
    ),
    Workload(
        "take along rows, 1000 x 1000",
        lambda tx: lambda x, i: tx.numpy.take_along_axis(x, i, 1),
        _along,
        numpy=lambda x, i: np.take_along_axis(x, i, 1),
        torch=lambda torch: lambda x, i: torch.gather(x, 1, i.long()),
    ),
    Workload(
        "embedding of 16 x 128 tokens",
        lambda tx: lambda table, i: table[i],
        _embedding,
        numpy=lambda table, i: table[i],
        torch=lambda torch: lambda table, i: torch.nn.functional.embedding(i, table),
    ),
    Workload("gradient of the embedding", _chosen_gradient, _embedding),
    Workload("2000 windows of 256", _windows, _window_inputs),
    Workload(
        "permutation by index, 1e6",
        lambda tx: lambda x, i: x[i],
        _permutation,
        numpy=lambda x, i: x[i],
        torch=lambda torch: lambda x, i: x.index_select(0, i),
    ),
)

SCATTERS = (
    Workload(
        "scatter-add of 20000 rows",
        lambda tx: lambda x, i, u: x.at[i].add(u),
        _rows,
        torch=_added,
    ),
    Workload(
        "counts of 1e6 in 256",
        lambda tx: lambda i: tx.numpy.bincount(i, length=256),
        _integers(256, MILLION),
        numpy=lambda i: np.bincount(i, minlength=256),
        torch=lambda torch: lambda i: torch.bincount(i, minlength=256),
    ),
    Workload(
        "segment sums in order, 1e5 x 16 to 1000",
        lambda tx: lambda x, i: tx.ops.segment_sum(x, i, 1000, indices_are_sorted=True),
        _segments(True),
        torch=_summed,
    ),
    Workload(
        "segment sums, 1e5 x 16 to 1000",
        lambda tx: lambda x, i: tx.ops.segment_sum(x, i, 1000),
        _segments(False),
        torch=_summed,
    ),
    Workload(
        "overwriting 2000 rows",
        lambda tx: lambda x, i, u: x.at[i].set(u),
        _overwritten,
        torch=lambda torch: lambda x, i, u: x.index_copy(0, i.long(), u),
    ),
    Workload("positive elements first, 1e6", _compressed, normal((MILLION,))),
    Workload("1000 rows in a loop", _filled_rows, normal((256,))),
    Workload(
        "one-hot, 1e4 to 256",
        lambda tx: lambda i: tx.nn.one_hot(i, 256),
        _integers(256, 10_000),
        numpy=lambda i: (i[:, None] == np.arange(256)).astype(np.float32),
        torch=_one_hot,
    ),
)


def _sort(name: str, inputs: Inputs, axis: int = -1) -> Workload:
    return Workload(
        name,
        lambda tx: lambda x: tx.numpy.sort(x, axis=axis),
        inputs,
        numpy=lambda x: np.sort(x, axis),
        torch=lambda torch: lambda x: torch.sort(x, axis)[0],
    )


def _argsort(name: str, size: int) -> Workload:
    return Workload(
        name,
        lambda tx: tx.numpy.argsort,
        normal((size,)),
        numpy=lambda x: np.argsort(x, kind="stable"),
        torch=lambda torch: lambda x: torch.argsort(x, stable=True),
    )


ORDER = (
    _sort("sort, 1e6", normal((MILLION,))),
    _sort("sort of integers, 1e6", _integers(2**31 - 1, MILLION)),
    _sort("sort of rows, 1000 x 1000", normal((1000, 1000))),
    _sort("sort of columns, 1000 x 1000", normal((1000, 1000)), axis=0),
    Workload("sort of keys with values, 1e6", lambda tx: lambda k, v: tx.lax.sort((k, v), num_keys=1), _pairs),
    _argsort("argsort, 1e5", 10**5),
    _argsort("argsort, 1e6", MILLION),
    Workload(
        "top 10 of rows, 64 x 10000",
        lambda tx: lambda x: tx.lax.top_k(x, 10),
        normal((64, 10_000)),
        torch=lambda torch: lambda x: torch.topk(x, 10),
    ),
    Workload(
        "top 10 of 1e6",
        lambda tx: lambda x: tx.lax.top_k(x, 10),
        normal((MILLION,)),
        torch=lambda torch: lambda x: torch.topk(x, 10),
    ),
    Workload(
        "search of 1e6 in 1e4",
        lambda tx: tx.numpy.searchsorted,
        _searched,
        numpy=np.searchsorted,
        torch=lambda torch: torch.searchsorted,
    ),
    Workload("distinct elements, 1e6 of 1000", _first_of_each, _integers(1000, MILLION)),
    Workload(
        "median, 1e6",
        lambda tx: tx.numpy.median,
        normal((MILLION,)),
        numpy=np.median,
        torch=lambda torch: torch.median,
    ),
    Workload(
        "quartiles of columns, 10000 x 32",
        lambda tx: lambda x: tx.numpy.percentile(x, np.array([25.0, 50.0, 75.0], np.float32), axis=0),
        normal((10_000, 32)),
        numpy=lambda x: np.percentile(x, [25.0, 50.0, 75.0], axis=0),
        torch=lambda torch: lambda x: torch.quantile(x, torch.tensor([0.25, 0.5, 0.75]), dim=0),
    ),
)

MOVEMENT = (
    _transposed(1, 0, shape=(2048, 2048)),
    _transposed(0, 2, 1, 3, shape=(8, 512, 8, 64)),
    _transposed(0, 3, 1, 2, shape=(16, 64, 64, 64)),
    _transposed(3, 2, 1, 0, shape=(32, 32, 32, 32)),
    Workload(
        "stack of 32 arrays of 1e5",
        lambda tx: lambda *x: tx.numpy.stack(x),
        normal(*[(10**5,)] * 32),
        numpy=lambda *x: np.stack(x),
        torch=lambda torch: lambda *x: torch.stack(x),
    ),
    Workload(
        "columns of 16 matrices side by side, 2000 x 64",
        lambda tx: lambda *x: tx.numpy.concatenate(x, axis=1),
        normal(*[(2000, 64)] * 16),
        numpy=lambda *x: np.concatenate(x, axis=1),
        torch=lambda torch: lambda *x: torch.cat(x, 1),
    ),
    Workload(
        "roll of both axes, 2000 x 1000",
        lambda tx: lambda x: tx.numpy.roll(x, (7, 13), (0, 1)),
        normal((2000, 1000)),
        numpy=lambda x: np.roll(x, (7, 13), (0, 1)),
        torch=lambda torch: lambda x: torch.roll(x, (7, 13), (0, 1)),
    ),
    Workload(
        "lower triangle, 2000 x 2000",
        lambda tx: tx.numpy.tril,
        normal((2000, 2000)),
        numpy=np.tril,
        torch=lambda torch: torch.tril,
    ),
    Workload(
        "each of 1e5 ten times",
        lambda tx: lambda x: tx.numpy.repeat(x, 10),
        normal((10**5,)),
        numpy=lambda x: np.repeat(x, 10),
        torch=lambda torch: lambda x: x.repeat_interleave(10),
    ),
    Workload(
        "tiles of 100 x 100, 10 x 10",
        lambda tx: lambda x: tx.numpy.tile(x, (10, 10)),
        normal((100, 100)),
        numpy=lambda x: np.tile(x, (10, 10)),
        torch=lambda torch: lambda x: x.repeat(10, 10),
    ),
)


WORKLOADS: tuple[Workload | Calls | Once, ...] = (*GATHERS, *SCATTERS, *ORDER, *MOVEMENT)
