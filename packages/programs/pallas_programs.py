"""Kernels in Pallas, interpreted."""

import functools

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu, triton

pallas_call = functools.partial(pl.pallas_call, interpret=True)
X = jax.random.normal(jax.random.key(0), (16, 24))
Y = jax.random.normal(jax.random.key(1), (24, 12))


def like(*arrays):
    return [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in arrays]


def matmul_kernel(x, y, out, sums):
    @pl.when(pl.program_id(2) == 0)
    def _():
        sums[...] = jnp.zeros_like(sums)

    sums[...] += x[...] @ y[...]

    @pl.when(pl.program_id(2) == pl.num_programs(2) - 1)
    def _():
        out[...] = jax.nn.relu(sums[...])


def matmul():
    """A blocked product with a sum in scratch memory, also mapped, and with scalars that choose the blocks."""
    out = jax.ShapeDtypeStruct((16, 12), X.dtype)
    blocks = [pl.BlockSpec((8, 8), lambda i, j, k: (i, k)), pl.BlockSpec((8, 4), lambda i, j, k: (k, j))]
    target, scratch = pl.BlockSpec((8, 4), lambda i, j, k: (i, j)), [pltpu.VMEM((8, 4), X.dtype)]
    product = pallas_call(matmul_kernel, out, grid=(2, 3, 3), in_specs=blocks, out_specs=target, scratch_shapes=scratch)
    mapped = jax.vmap(product, (0, None))(jnp.stack([X, -X]), Y)

    def gathered(order, x, out):
        out[...] = x[...] + order[pl.program_id(0)]

    grid = pltpu.PrefetchScalarGridSpec(
        1, (4,), [pl.BlockSpec((4, 24), lambda i, order: (order[i], 0))], pl.BlockSpec((4, 24), lambda i, _: (i, 0))
    )
    rows = pallas_call(gathered, *like(X), grid_spec=grid)(jnp.array([2, 0, 3, 3]), X)
    return jax.jit(product)(X, Y), mapped, rows


def attention_kernel(q, k, v, out, *, block):
    queries = q[...]

    def step(i, carry):
        largest, total, sums = carry
        keys, values = k[pl.ds(i * block, block), :], v[pl.ds(i * block, block), :]
        logits = queries @ keys.T
        new = jnp.maximum(largest, logits.max(1))
        weights, factor = jnp.exp(logits - new[:, None]), jnp.exp(largest - new)
        return new, total * factor + weights.sum(1), sums * factor[:, None] + weights @ values

    rows = queries.shape[0]
    first = jnp.full(rows, -jnp.inf), jnp.zeros(rows), jnp.zeros_like(queries)
    _, total, sums = lax.fori_loop(0, k.shape[0] // block, step, first)
    out[...] = sums / total[:, None]


def flash_attention():
    """Attention whose softmax is computed in one pass over the keys."""
    q, k, v = jax.random.normal(jax.random.key(2), (3, 2, 16, 8))
    part, whole = (
        pl.BlockSpec((None, 4, 8), lambda b, i: (b, i, 0)),
        pl.BlockSpec((None, 16, 8), lambda b, i: (b, 0, 0)),
    )
    kernel = functools.partial(attention_kernel, block=4)
    return pallas_call(kernel, *like(q), grid=(2, 4), in_specs=[part, whole, whole], out_specs=part)(q, k, v)


def layer_norm():
    """A layer norm whose derivative is a kernel, too, that sums over the programs."""
    row, vector = pl.BlockSpec((4, 24), lambda i: (i, 0)), pl.BlockSpec((24,), lambda i: (0,))

    def forward_kernel(x, scale, out):
        centred = x[...] - x[...].mean(1, keepdims=True)
        out[...] = centred * lax.rsqrt((centred**2).mean(1, keepdims=True) + 1e-5) * scale[...]

    def backward_kernel(x, scale, cotangent, dx, dscale):
        @pl.when(pl.program_id(0) == 0)
        def _():
            dscale[...] = jnp.zeros_like(dscale)

        centred = x[...] - x[...].mean(1, keepdims=True)
        factor = lax.rsqrt((centred**2).mean(1, keepdims=True) + 1e-5)
        unit, g = centred * factor, cotangent[...] * scale[...]
        dx[...] = factor * (g - g.mean(1, keepdims=True) - unit * (g * unit).mean(1, keepdims=True))
        dscale[...] += (cotangent[...] * unit).sum(0)

    @jax.custom_vjp
    def normalized(x, scale):
        return pallas_call(forward_kernel, *like(x), grid=(4,), in_specs=[row, vector], out_specs=row)(x, scale)

    def backward(saved, cotangent):
        call = pallas_call(
            backward_kernel, like(*saved), grid=(4,), in_specs=[row, vector, row], out_specs=[row, vector]
        )
        return tuple(call(*saved, cotangent))

    normalized.defvjp(lambda x, scale: (normalized(x, scale), (x, scale)), backward)
    scale = jnp.linspace(0.5, 2, 24)
    return jax.jit(jax.value_and_grad(lambda *args: (normalized(*args) ** 3).sum(), (0, 1)))(X, scale)


def memory():
    """Masks at the ends, blocks that do not divide them, aliases, copies, scoped memory, atomic operations."""
    x = jnp.arange(10.0)

    def masked(x, out):
        start = pl.program_id(0) * 4
        inside = start + jnp.arange(4) < 10
        part = triton.load(x.at[pl.ds(start, 4)], mask=inside, other=0.0)
        triton.store(out.at[pl.ds(start, 4)], 2 * part, mask=inside)

    def uneven(x, out, first):
        out[...] = x[...] + 1
        first[pl.program_id(0)] = x[0]

    def copied(x, out, buffer, semaphore):
        pltpu.make_async_copy(x, buffer, semaphore).start()
        pltpu.make_async_copy(x, buffer, semaphore).wait()

        def scoped(local):
            local[...] = buffer[...] + out[...]
            out[...] = local[...]

        pl.run_scoped(scoped, pltpu.VMEM((10,), jnp.float32))

    def counted(_, x, out, before):
        before[pl.program_id(0)] = triton.atomic_add(out, (pl.program_id(0) % 3,), x[pl.program_id(0)])

    block = pl.BlockSpec((4,), lambda i: (i,))
    everywhere = pl.BlockSpec(memory_space=pl.ANY)
    window = pl.BlockSpec((pl.Element(4, (1, 1)),), lambda i: (2 * i,))
    return {
        "masked": pallas_call(masked, *like(x), grid=3)(x),
        "uneven": pallas_call(uneven, like(x, x), grid=(3,), in_specs=[block], out_specs=[block, everywhere])(x),
        "copied": pallas_call(
            copied,
            *like(x),
            in_specs=[everywhere],
            scratch_shapes=[pltpu.VMEM((10,), jnp.float32), pltpu.SemaphoreType.DMA],
            input_output_aliases={0: 0},
        )(x),
        "windows": pallas_call(
            lambda x, out: out.__setitem__(0, x[1:3].sum()),
            jax.ShapeDtypeStruct((5,), x.dtype),
            grid=(5,),
            in_specs=[window],
            out_specs=pl.BlockSpec((1,), lambda i: (i,)),
        )(x),
        "counted": pallas_call(counted, like(x[:3], x), grid=(10,), input_output_aliases={0: 0})(jnp.zeros(3), x),
    }


PROGRAMS = [matmul, flash_attention, layer_norm, memory]
