"""All collective operations among processes: each type and group, compiled and interpreted, against NumPy's view of all
processes at once. Run by mpirun; the last line printed is the number of cases."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

import tinyxla as tx
from tinyxla import distributed
from tinyxla.ops import elementwise, reduction
from tinyxla.ops.distributed import collectives, exchanges
from tinyxla.ops.distributed.replica_groups import PROCESSES
from tinyxla.shapes import Shape, element_type
from tinyxla.tracing import trace

Array = np.ndarray[Any, Any]
Groups = tuple[tuple[int, ...], ...]
Rows = list[Array]  # one array for each process

TYPES: list[np.dtype[Any]] = [
    *(np.dtype(x) for x in "? i1 i2 i4 i8 u1 u2 u4 u8 f2 f4 f8 c8 c16".split()),
    *(np.dtype(x) for x in (ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, ml_dtypes.int4)),
]
SHAPES = [(), (4, 12)]


class Case(NamedTuple):
    name: str
    function: Callable[..., Any]
    operands: Rows
    expected: Rows


def groups_of(size: int) -> Iterator[Groups]:
    """Groups of equal sizes: all processes, each by itself, pairs, in other orders."""
    everyone = tuple(range(size))
    yield (everyone,)
    yield tuple((process,) for process in everyone)
    yield (everyone[::-1],)
    if size == 4:
        yield ((0, 1), (2, 3))
        yield ((3, 1), (0, 2))


def reductions(dtype: np.dtype[Any]) -> Iterator[str]:
    if dtype == np.bool_:
        yield from ("and", "or", "xor")
        return
    yield from ("add", "multiply")
    if dtype.kind != "c":
        yield from ("maximum", "minimum")
    if dtype.kind in "iu":
        yield from ("and", "or", "xor")


_NUMPY = {
    "add": np.add,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def folded(op: str, rows: Sequence[Array]) -> Array:
    total = rows[0]
    for row in rows[1:]:
        with np.errstate(all="ignore"):
            total = total_of(op, total, row)
    return total


def total_of(op: str, x: Array, y: Array) -> Array:
    if x.dtype == ml_dtypes.int4 and op in ("and", "or", "xor"):
        return _NUMPY[op](x.astype(np.int8), y.astype(np.int8)).astype(x.dtype)
    return np.asarray(_NUMPY[op](x, y)).astype(x.dtype)


def operands(size: int, shape: tuple[int, ...], dtype: np.dtype[Any], seed: int) -> Rows:
    """Small integers, which all types add without rounding."""
    random = np.random.default_rng(seed)
    low, high = (0, 2) if dtype == np.bool_ else (0, 2) if dtype.kind == "u" else (-1, 2)
    rows = [random.integers(low, high, shape).astype(dtype) for _ in range(size)]
    return [np.asarray(row * dtype.type(1 + 1j), dtype) if dtype.kind == "c" else row for row in rows]


def by_group(groups: Groups, rows: Rows, of: Callable[[Rows], Rows]) -> Rows:
    found: list[Any] = [None] * len(rows)
    for group in groups:
        for process, value in zip(group, of([rows[k] for k in group]), strict=True):
            found[process] = value
    return found


def cases(size: int) -> Iterator[Case]:
    everything = itertools.product(groups_of(size), TYPES, SHAPES)
    for seed, (groups, dtype, shape) in enumerate(everything):
        if (size > 2 or len(groups[0]) < size) and seed % 5:  # all types in the one group of two
            continue
        rows = operands(size, shape, dtype, seed)
        count, name = len(groups[0]), f"{dtype} {shape} {groups}"
        among = {"replica_groups": groups, "axis_name": PROCESSES}
        for op in reductions(dtype):
            to_apply = reduction.scalar_computation(op, dtype)
            yield Case(
                f"all-reduce {op} {name}",
                lambda x, to_apply=to_apply, among=among: collectives.all_reduce(x, to_apply=to_apply, **among),
                rows,
                by_group(groups, rows, lambda several, op=op: [folded(op, several)] * len(several)),
            )
            for d in range(len(shape)):
                if shape[d] % count:
                    continue
                yield Case(
                    f"reduce-scatter {op} {d} {name}",
                    lambda x, to_apply=to_apply, d=d, count=count, among=among: collectives.reduce_scatter(
                        x, to_apply=to_apply, scatter_dimension=d, shard_count=count, **among
                    ),
                    rows,
                    by_group(groups, rows, lambda s, op=op, d=d: np.split(folded(op, s), len(s), d)),
                )
        for d in range(len(shape)):
            yield Case(
                f"all-gather {d} {name}",
                lambda x, d=d, count=count, among=among: collectives.all_gather(
                    x, all_gather_dimension=d, shard_count=count, **among
                ),
                rows,
                by_group(groups, rows, lambda several, d=d: [np.concatenate(several, d)] * len(several)),
            )
            if shape[d] % count == 0:
                yield Case(
                    f"all-to-all {d} {name}",
                    lambda x, d=d, among=among: exchanges.all_to_all(x, dimensions=(d,), **among),
                    rows,
                    by_group(groups, rows, lambda several, d=d: exchanged(several, d)),
                )
        yield Case(
            f"collective-broadcast {name}",
            lambda x, among=among: exchanges.collective_broadcast(x, **among),
            rows,
            by_group(groups, rows, lambda several: [several[0]] * len(several)),
        )
        yield Case(
            f"all-to-all of several {name}",
            lambda x, among=among, count=count: exchanges.all_to_all(*[x] * count, **among)[-1],
            rows,
            by_group(groups, rows, lambda several: [several[-1]] * len(several)),
        )
    yield from permutations(size)
    yield from unequal(size)


def exchanged(several: Rows, d: int) -> Rows:
    parts = [np.split(row, len(several), d) for row in several]
    return [np.concatenate([part[k] for part in parts], d) for k in range(len(several))]


def permutations(size: int) -> Iterator[Case]:
    ring = tuple((k, (k + 1) % size) for k in range(size))
    for pairs, dtype in itertools.product((ring, ring[:-1], ((0, 0),), ((size - 1, 0),), ()), TYPES):
        rows = operands(size, (4, 3), dtype, 1)
        given = {target: source for source, target in pairs}
        yield Case(
            f"collective-permute {dtype} {pairs}",
            lambda x, pairs=pairs: exchanges.collective_permute(x, source_target_pairs=pairs, axis_name=PROCESSES),
            rows,
            [rows[given[k]] if k in given else np.zeros_like(rows[k]) for k in range(size)],
        )


def unequal(size: int) -> Iterator[Case]:
    """Groups of several sizes, and without some processes; a computation that is no monoid; large arrays of narrow
    floats; NaN."""
    groups: Groups = (tuple(range(size - 1)), (size - 1,))
    for dtype in TYPES:
        rows = operands(size, (4, 3), dtype, 2)
        to_apply = reduction.scalar_computation("xor" if dtype == np.bool_ else "add", dtype)
        op = "xor" if dtype == np.bool_ else "add"
        yield Case(
            f"all-reduce in unequal groups {dtype}",
            lambda x, to_apply=to_apply: collectives.all_reduce(
                x, to_apply=to_apply, replica_groups=groups, axis_name=PROCESSES
            ),
            rows,
            by_group(groups, rows, lambda several, op=op: [folded(op, several)] * len(several)),
        )
        yield Case(
            f"collective-broadcast to some {dtype}",
            lambda x: exchanges.collective_broadcast(x, replica_groups=groups[:1], axis_name=PROCESSES),
            rows,
            [*[rows[0]] * (size - 1), np.zeros_like(rows[0])],
        )
    everyone = (tuple(range(size)),)
    for elements, dtype in itertools.product((5, 40001), (ml_dtypes.bfloat16, np.float16)):
        rows = operands(size, (elements,), np.dtype(dtype), 3)
        yield Case(
            f"all-reduce of {elements} {dtype}",
            lambda x: collectives.all_reduce(
                x, to_apply=collectives.sum_of(x.dtype), replica_groups=everyone, axis_name=PROCESSES
            ),
            rows,
            [folded("add", rows)] * size,
        )
    scalar = Shape(element_type(np.float32))
    either = trace(lambda x, y: [elementwise.add(elementwise.mul(x, y), elementwise.add(x, y))], [scalar] * 2, "f")[0]
    rows = [np.full((3, 2), 0.25 * (k + 1), np.float32) for k in range(size)]
    total = rows[0]
    for row in rows[1:]:
        total = total * row + (total + row)
    yield Case(
        "all-reduce by a computation",
        lambda x: collectives.all_reduce(x, to_apply=either, replica_groups=everyone, axis_name=PROCESSES),
        rows,
        [total] * size,
    )
    floats = (np.float16, np.float32, np.float64, ml_dtypes.bfloat16)
    for dtype, op in itertools.product(floats, ("maximum", "minimum")):
        rows = [
            np.array([k, -k, np.inf, -np.inf, np.nan if k == 0 else 1, np.nan if k else -1, -0.5 * k], dtype)
            for k in range(size)
        ]
        yield Case(
            f"all-reduce {op} with NaN {np.dtype(dtype)}",
            lambda x, op=op: collectives.all_reduce(
                x, to_apply=reduction.scalar_computation(op, x.dtype), replica_groups=everyone, axis_name=PROCESSES
            ),
            rows,
            [folded(op, rows)] * size,
        )


def check(name: str, found: Any, wanted: Array) -> None:
    found = np.asarray(found)
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape), name
    if element_type(wanted.dtype).kind == "float":  # NumPy compares no NaN of ml_dtypes
        found, wanted = found.astype(np.float64), wanted.astype(np.float64)
    np.testing.assert_array_equal(found, wanted, name)


def main() -> None:
    distributed.initialize()
    rank, size = distributed.process_index(), distributed.process_count()
    tx.config.update("enable_x64", True)
    count = 0
    for _, group in itertools.groupby(cases(size), key=lambda case: id(case.operands)):  # one program for each
        several = list(group)
        x = tx.numpy.asarray(several[0].operands[rank])
        compiled = tx.jit(lambda x, several=several: [case.function(x) for case in several])(x)
        for number, case in enumerate(several):
            check(f"compiled {case.name}", compiled[number], case.expected[rank])
        check(f"eager {several[-1].name}", several[-1].function(x), several[-1].expected[rank])
        count += len(several)
    print(f"{count} cases\n", end="")


if __name__ == "__main__":
    main()
