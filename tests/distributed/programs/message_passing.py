"""Programs whose processes talk by hand, in the manner of users of mpi4py and mpi4jax: shallow water on strips with
halos, conjugate gradients, sample sort, and a pipeline of stages. Each gives what one process gives with NumPy.

Sources: Vallis, "Atmospheric and Oceanic Fluid Dynamics", chapter 3 (shallow water); Hestenes and Stiefel, "Methods of
Conjugate Gradients for Solving Linear Systems" (1952); Blelloch et al., "A Comparison of Sorting Algorithms for the
Connection Machine CM-2" (1991).
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

import tinyxla as tx
import tinyxla.numpy as jnp
from tinyxla import lax
from tinyxla.experimental import multihost_utils

P = tx.P
AXIS = "ranks"


def up(count: int) -> list[tuple[int, int]]:
    """Messages from each process to the next one, around the ring."""
    return [(k, (k + 1) % count) for k in range(count)]


def down(count: int) -> list[tuple[int, int]]:
    """Messages from each process to the one before."""
    return [(k, (k - 1) % count) for k in range(count)]


def whole(x: Any, mesh: Any) -> Any:
    """All of an array, on each process."""
    return np.asarray(tx.reshard(x, tx.NamedSharding(mesh, P())))


def split(x: Any, mesh: Any) -> Any:
    return tx.device_put(x, tx.NamedSharding(mesh, P(AXIS)))


# --- collective operations, as mpi4jax has them -----------------------------------------------------------------------


def check_collectives(mesh: Any) -> None:
    """allreduce, bcast, gather, scatter, sendrecv, allgather, alltoall, scan and barrier, and derivatives of them."""
    count, rows = mesh.size, np.arange(4.0 * mesh.size**2, dtype=np.float32).reshape(mesh.size**2, 4)

    def bcast(x: Any, root: int) -> Any:
        return lax.psum(jnp.where(lax.axis_index(AXIS) == root, x, 0), AXIS)

    def scan(x: Any) -> Any:
        return jnp.sum(
            jnp.where(jnp.arange(count)[:, None, None] <= lax.axis_index(AXIS), lax.all_gather(x, AXIS), 0), 0
        )

    def scatter(x: Any, root: int) -> Any:
        return lax.dynamic_slice_in_dim(bcast(x, root), lax.axis_index(AXIS), 1)

    blocks = rows.reshape(count, count, 4)
    cases: dict[str, tuple[Any, Any]] = {
        "allreduce": (lambda x: jnp.sin(x) * lax.psum(x, AXIS), np.sin(blocks) * blocks.sum(0)),
        "bcast": (lambda x: bcast(x, 1), np.broadcast_to(blocks[1], blocks.shape)),
        "allgather": (lambda x: lax.all_gather(x, AXIS).sum(0), np.broadcast_to(blocks.sum(0), blocks.shape)),
        "scatter": (lambda x: jnp.tile(scatter(x, 0), (count, 1)), np.repeat(blocks[0][:, None], count, 1)),
        "sendrecv": (lambda x: lax.ppermute(x, AXIS, up(count)), np.roll(blocks, 1, 0)),
        "alltoall": (lambda x: lax.all_to_all(x, AXIS, 0, 0, tiled=True), blocks.swapaxes(0, 1)),
        "scan": (scan, blocks.cumsum(0)),
        "rank": (lambda x: x + lax.axis_index(AXIS), blocks + np.arange(count)[:, None, None]),
    }
    weights = np.cos(rows)
    for name, (function, wanted) in cases.items():
        mapped = tx.shard_map(function, mesh=mesh, in_specs=P(AXIS), out_specs=P(AXIS))
        found = whole(tx.jit(mapped)(split(rows, mesh)), mesh)
        np.testing.assert_allclose(found, wanted.reshape(found.shape), rtol=1e-5, err_msg=name)
        tangent = whole(tx.jvp(mapped, (split(rows, mesh),), (split(0 * rows + 1, mesh),))[1], mesh)
        back = tx.jit(tx.grad(lambda x, f=mapped: jnp.sum(f(x) * weights)))(split(rows, mesh))
        np.testing.assert_allclose(
            whole(back, mesh).sum(), (tangent * weights).sum(), rtol=2e-3, atol=1e-2, err_msg=name
        )


# --- shallow water ----------------------------------------------------------------------------------------------------


def water_step(h: Any, u: Any, v: Any, above: Any, below: Any, xp: Any) -> tuple[Any, Any, Any]:
    """A step of the linear shallow water equations on rows: `above(x)` and `below(x)` are the rows around each."""
    dt, gravity, depth = 0.1, 1.0, 1.0
    left, right = (lambda x: xp.roll(x, 1, 1)), (lambda x: xp.roll(x, -1, 1))
    u = u - dt * gravity * (right(h) - left(h)) / 2
    v = v - dt * gravity * (below(h) - above(h)) / 2
    h = h - dt * depth * ((right(u) - left(u)) / 2 + (below(v) - above(v)) / 2)
    return h, u, v


def check_shallow_water(mesh: Any) -> None:
    """On strips with halos, and the sensitivity of the energy to the state at the start."""
    size, steps = 16, 20
    angle = 2 * np.pi * np.arange(size) / size
    h = np.exp(np.cos(angle)[:, None] + np.cos(2 * angle)).astype(np.float32)

    def above(x: Any) -> Any:
        return jnp.concatenate([lax.ppermute(x[-1:], AXIS, up(mesh.size)), x[:-1]])

    def below(x: Any) -> Any:
        return jnp.concatenate([x[1:], lax.ppermute(x[:1], AXIS, down(mesh.size))])

    @tx.shard_map(mesh=mesh, in_specs=P(AXIS), out_specs=(P(AXIS), P()))
    def simulate(h: Any) -> Any:
        def step(state: Any, _: Any) -> Any:
            h, u, v = state
            return water_step(h, u, v, above, below, jnp), None

        (h, u, v), _ = lax.scan(step, (h, jnp.zeros_like(h), jnp.zeros_like(h)), None, length=steps)
        return h, lax.psum(jnp.sum(h**2 + u**2 + v**2) / 2, AXIS)

    state = (h, 0 * h, 0 * h)
    for _ in range(steps):
        state = water_step(state[0], state[1], state[2], lambda x: np.roll(x, 1, 0), lambda x: np.roll(x, -1, 0), np)
    found, energy = tx.jit(simulate)(split(h, mesh))
    np.testing.assert_allclose(whole(found, mesh), state[0], rtol=2e-4, atol=2e-4)
    np.testing.assert_allclose(energy, sum(np.sum(x**2) for x in state) / 2, rtol=1e-4)
    gradient = tx.jit(tx.grad(lambda h: simulate(h)[1]))
    text = gradient.lower(split(h, mesh)).as_text()
    assert "collective-permute" in text, "halos are exchanged on the way back, too"
    assert "all-gather" not in text, "on the way back nothing is gathered"
    # The energy is quadratic in the state, so that its derivative along the state is twice the energy.
    along = np.sum(whole(gradient(split(h, mesh)), mesh) * h)
    np.testing.assert_allclose(along, 2 * np.asarray(energy), rtol=1e-3)


# --- conjugate gradients ----------------------------------------------------------------------------------------------


def check_conjugate_gradients(mesh: Any) -> None:
    """The solution of a Poisson problem whose rows are on the processes, in one loop on all of them."""
    size = 32
    b = np.sin(np.arange(size, dtype=np.float32) ** 2)

    def laplacian(x: Any) -> Any:
        """Three-point stencil, with one more on the diagonal."""
        before = lax.ppermute(x[-1:], AXIS, up(mesh.size)[:-1])  # zeros come to the first
        after = lax.ppermute(x[:1], AXIS, down(mesh.size)[1:])
        return 3 * x - jnp.concatenate([before, x[:-1]]) - jnp.concatenate([x[1:], after])

    def dot(x: Any, y: Any) -> Any:
        return lax.psum(jnp.vdot(x, y), AXIS)

    @tx.shard_map(mesh=mesh, in_specs=P(AXIS), out_specs=(P(AXIS), P()))
    def solve(b: Any) -> Any:
        def step(state: Any) -> Any:
            x, r, p, rr, count = state
            q = laplacian(p)
            alpha = rr / dot(p, q)
            r = r - alpha * q
            after = dot(r, r)
            return x + alpha * p, r, r + after / rr * p, after, count + 1

        start = (jnp.zeros_like(b), b, b, dot(b, b), 0)
        x, *_, count = lax.while_loop(lambda s: (s[3] > 1e-10) & (s[4] < 100), step, start)
        return x, count

    matrix = 3 * np.eye(size) - np.eye(size, k=1) - np.eye(size, k=-1)
    x, count = tx.jit(solve)(split(b, mesh))
    np.testing.assert_allclose(whole(x, mesh), np.linalg.solve(matrix, b), rtol=1e-4, atol=1e-5)
    assert 5 < int(count) < 100


# --- sample sort ------------------------------------------------------------------------------------------------------


def check_sample_sort(mesh: Any) -> None:
    """Numbers are sorted on each process, splitters are chosen of samples of all, and each number goes to the process
    of its bucket; buckets are padded by infinity."""
    count, each = mesh.size, 24
    keys = np.random.default_rng(0).normal(size=count * each).astype(np.float32)

    @tx.shard_map(mesh=mesh, in_specs=P(AXIS), out_specs=(P(AXIS), P(AXIS)))
    def sort(x: Any) -> Any:
        x = jnp.sort(x)
        samples = jnp.sort(lax.all_gather(x[:: each // count], AXIS, tiled=True))
        splitters = samples[len(samples) // count :: len(samples) // count][: count - 1]
        bucket = jnp.searchsorted(splitters, x)
        sent = jnp.where(bucket == jnp.arange(count)[:, None], x, jnp.inf)
        received = lax.all_to_all(sent, AXIS, 0, 0, tiled=True).reshape(-1)
        return jnp.sort(received), jnp.isfinite(received).sum()[None]

    found, sizes = (whole(x, mesh) for x in tx.jit(sort)(split(keys, mesh)))
    parts = [part[:n] for part, n in zip(found.reshape(count, -1), sizes, strict=True)]
    np.testing.assert_array_equal(np.concatenate(parts), np.sort(keys))


# --- pipeline ---------------------------------------------------------------------------------------------------------


def check_pipeline(mesh: Any) -> None:
    """Each process has the weights of a stage, microbatches go from one to the next, and gradients back."""
    count, width, batches = mesh.size, 6, 5
    random = np.random.default_rng(1)
    weights = random.normal(size=(count, width, width)).astype(np.float32) / width**0.5
    x = random.normal(size=(batches, 3, width)).astype(np.float32)

    @tx.shard_map(mesh=mesh, in_specs=(P(AXIS), P()), out_specs=P())
    def loss(weights: Any, x: Any) -> Any:
        rank = lax.axis_index(AXIS)

        def tick(carried: Any, k: Any) -> Any:
            first = lax.dynamic_index_in_dim(x, jnp.minimum(k, batches - 1), keepdims=False)
            y = jnp.tanh(jnp.where(rank == 0, first, carried) @ weights[0])
            done = (k >= count - 1) & (rank == count - 1)
            return lax.ppermute(y, AXIS, up(count)), jnp.where(done, jnp.sum(y**2), 0.0)

        start = lax.pvary(jnp.zeros(x.shape[1:]), AXIS)
        _, losses = lax.scan(tick, start, jnp.arange(batches + count - 1))
        return lax.psum(losses.sum(), AXIS)

    def alone(weights: Any, x: Any) -> Any:
        for w in weights:
            x = jnp.tanh(x @ w)
        return jnp.sum(x**2)

    gradients: Any = tx.jit(tx.value_and_grad(loss))
    value, gradient = gradients(split(weights, mesh), x)
    wanted, wanted_gradient = tx.value_and_grad(lambda weights: alone(weights, x))(jnp.asarray(weights))
    np.testing.assert_allclose(value, wanted, rtol=1e-4)
    np.testing.assert_allclose(whole(gradient, mesh), wanted_gradient, rtol=1e-3, atol=1e-5)
    text = tx.jit(tx.grad(loss)).lower(split(weights, mesh), x).as_text()
    assert "all-gather" not in text, "on the way back nothing is gathered"


def main() -> None:
    tx.config.update("num_cpu_devices", int(sys.argv[1]))
    tx.distributed.initialize()
    mesh = tx.make_mesh((tx.device_count(),), (AXIS,))
    checks = [check for name, check in globals().items() if name.startswith("check_")]
    for check in checks:
        check(mesh)
    multihost_utils.sync_global_devices("all programs have ended")
    print(f"{len(checks)} programs\n", end="")


if __name__ == "__main__":
    main()
