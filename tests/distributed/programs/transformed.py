"""Collective operations among processes under transformations and in control flow: each process's result is the lane
of the same function under `vmap` with a named axis. Run by mpirun; the last line printed is the number of cases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tinyxla as tx
import tinyxla.numpy as jnp
from tinyxla import distributed, lax
from tinyxla.ops import reduction
from tinyxla.ops.distributed import collectives, exchanges
from tinyxla.ops.distributed.replica_groups import PROCESSES

Function = Callable[[Any, dict[str, Any]], Any]  # of an array, and of what says who takes part
F64 = np.float64


def sum_all(x: Any, among: dict[str, Any]) -> Any:
    return collectives.all_reduce(x, to_apply=collectives.sum_of(F64), **among)


def max_all(x: Any, among: dict[str, Any]) -> Any:
    return collectives.all_reduce(x, to_apply=reduction.scalar_computation("maximum", F64), **among)


def product_all(x: Any, among: dict[str, Any]) -> Any:
    return collectives.all_reduce(x, to_apply=reduction.scalar_computation("multiply", F64), **among)


def gathered(x: Any, among: dict[str, Any]) -> Any:
    count = len(among["replica_groups"][0])
    return collectives.all_gather(x, all_gather_dimension=1, shard_count=count, **among)


def scattered(x: Any, among: dict[str, Any]) -> Any:
    count = len(among["replica_groups"][0])
    return collectives.reduce_scatter(
        x, to_apply=collectives.sum_of(F64), scatter_dimension=0, shard_count=count, **among
    )


def exchanged(x: Any, among: dict[str, Any]) -> Any:
    return exchanges.all_to_all(x, dimensions=(1,), **among)


def from_first(x: Any, among: dict[str, Any]) -> Any:
    return exchanges.collective_broadcast(x, **among)


def shifted(x: Any, among: dict[str, Any]) -> Any:
    size = len(among["replica_groups"][0])
    pairs = tuple((k, k + 1) for k in range(size - 1))
    return exchanges.collective_permute(x, source_target_pairs=pairs, axis_name=among["axis_name"])


def in_loop(x: Any, among: dict[str, Any]) -> Any:
    return lax.fori_loop(0, 5, lambda k, y: jnp.sin(sum_all(y, among)) + x * k, x)


def in_scan(x: Any, among: dict[str, Any]) -> Any:
    def step(carry: Any, row: Any) -> Any:
        total = sum_all(carry * row, among)
        return jnp.tanh(total), shifted(total, among)

    return lax.scan(step, x[0], x)


def in_branch(x: Any, among: dict[str, Any]) -> Any:
    is_positive = sum_all(x, among).sum() > 0  # the same in all processes
    return lax.cond(is_positive, lambda y: sum_all(y, among), lambda y: max_all(y, among) * 2, x)


def halo(x: Any, among: dict[str, Any]) -> Any:
    left = shifted(x[:, -1:], among)
    wide = jnp.concatenate([left, x], axis=1)
    return wide[:, 1:] - wide[:, :-1]


def network(x: Any, among: dict[str, Any]) -> Any:
    mean = sum_all(x.mean(0), among) / len(among["replica_groups"][0])
    return jnp.tanh((x - mean) @ gathered(x, among).T[:4])


FUNCTIONS: list[Function] = [
    sum_all,
    max_all,
    product_all,
    gathered,
    scattered,
    exchanged,
    from_first,
    shifted,
    in_loop,
    in_scan,
    in_branch,
    halo,
    network,
]


def gradient(function: Function) -> Function:
    def total(x: Any, among: dict[str, Any]) -> Any:
        parts = function(x, among)
        return sum((jnp.cos(y) * y).sum() for y in (parts if isinstance(parts, tuple) else (parts,)))

    return lambda x, among: tx.grad(lambda y: total(y, among))(x)


def tangent(function: Function) -> Function:
    return lambda x, among: tx.jvp(lambda y: function(y, among), (x,), (jnp.cos(x),))[1]


def mapped(function: Function) -> Function:
    return lambda x, among: tx.vmap(lambda y: function(y, among), in_axes=2, out_axes=1)(
        jnp.stack([x, 2 * x, jnp.sin(x)], axis=2)
    )


def main() -> None:
    distributed.initialize()
    tx.config.update("enable_x64", True)
    rank, size = distributed.process_index(), distributed.process_count()
    everyone = (tuple(range(size)),)
    lanes = {"replica_groups": everyone, "axis_name": "processes"}
    processes = {"replica_groups": everyone, "axis_name": PROCESSES}
    x = np.random.default_rng(0).normal(size=(size, 8, 4)).astype(F64)
    count = 0
    for function in FUNCTIONS:
        for transformed in (function, gradient(function), tangent(function), mapped(function)):
            of_lanes = tx.jit(tx.vmap(lambda y, f=transformed: f(y, lanes), axis_name="processes"))(x)
            mine = tx.jit(lambda y, f=transformed: f(y, processes))(x[rank])
            for found, wanted in zip(tx.tree.leaves(mine), tx.tree.leaves(of_lanes), strict=True):
                np.testing.assert_allclose(found, wanted[rank], rtol=1e-9, atol=1e-11, err_msg=function.__name__)
            count += 1
    print(f"{count} cases\n", end="")


if __name__ == "__main__":
    main()
