"""`jax.experimental.pallas` under the hook. `packages/programs/pallas_programs.py` is compared with JAX."""

from __future__ import annotations

from tests.jax.test_jax_hook import lines

HEAD = """
    import functools, numpy as np, jax, jax.numpy as jnp
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import tpu as pltpu, triton

    call, F, x = functools.partial(pl.pallas_call, interpret=True), jax.ShapeDtypeStruct, jnp.arange(8.0)
    block = pl.BlockSpec((4,), lambda i: (i,))

    def refused(function):
        try:
            print(function())
        except Exception as error:
            print(type(error).__name__, str(error).splitlines()[0])
"""


def test_programs_of_a_grid_have_their_blocks_and_indices() -> None:
    assert lines(
        HEAD
        + """
    def kernel(x, y):
        y[...] = 10 * x[...] + pl.program_id(0) + 100 * pl.num_programs(0)
    f = call(kernel, F((8,), x.dtype), grid=2, in_specs=[block], out_specs=block)
    print(f(x).tolist())
    print(jax.vmap(f)(jnp.stack([x, -x]))[1].tolist())
    print(jax.jvp(f, (x,), (x,))[1].tolist(), jax.grad(lambda x: f(x)[3])(x).tolist())
    ruled = jax.custom_vjp(f)
    ruled.defvjp(lambda x: (f(x), None), lambda _, cotangent: (f(cotangent),))
    print(jax.grad(lambda x: ruled(x)[7])(x).tolist())
    print(call(kernel, F((8,), x.dtype), grid=1, in_specs=[block], out_specs=block)(x[:4]).tolist())

    def squeezed(x, y):
        y[...] = x[...] * (pl.program_id(0) - pl.program_id(1))
    row = pl.BlockSpec((None, 2), lambda i, j: (i, j))
    print(call(squeezed, F((2, 4), x.dtype), grid=(2, 2), in_specs=[row], out_specs=row)(x.reshape(2, 4)).tolist())

    @jax.jit
    def inner(x):
        return x + pl.num_programs(0)
    def nested(x, y):
        y[...] = inner(x[...])
    print([call(nested, F((8,), x.dtype), grid=(n,))(x)[0].item() for n in (1, 2, 3)])

    def counted(y):
        y[pl.program_id(0)] = pl.num_programs(0)
    print(jax.jit(lambda n: call(counted, F((4,), np.int32), grid=(n,))())(3).tolist())
    """
    ) == [
        "[200.0, 210.0, 220.0, 230.0, 241.0, 251.0, 261.0, 271.0]",
        "[200.0, 190.0, 180.0, 170.0, 161.0, 151.0, 141.0, 131.0]",
        "[0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0] [0.0, 0.0, 0.0, 10.0, 0.0, 0.0, 0.0, 0.0]",
        "[200.0, 200.0, 200.0, 200.0, 201.0, 201.0, 201.0, 211.0]",
        "[100.0, 110.0, 120.0, 130.0, nan, nan, nan, nan]",
        "[[0.0, 0.0, -2.0, -3.0], [4.0, 5.0, 0.0, 0.0]]",
        "[1.0, 2.0, 3.0]",
        "[3, 3, 3, -2147483648]",
    ]


def test_references_have_parts_masks_and_copies() -> None:
    assert lines(
        HEAD
        + """
    def views(x, y):
        y[...] = x[...]
        y.at[pl.ds(2, 4)].at[1:3][...] = 5.0
        y.reshape(2, 4)[1, 3] = -1.0
        y.reshape(2, 4).T.at[0].set(jnp.array([7.0, 8.0]))
        y.bitcast(np.int32)[1] = 0x40000000
    print(call(views, F((8,), x.dtype))(x).tolist())

    def masked(x, y):
        start = pl.program_id(0) * 4
        part = triton.load(x.at[pl.ds(start, 4)], mask=start + jnp.arange(4) < 6, other=-1.0)
        triton.store(y.at[pl.ds(start, 4)], part, mask=start + jnp.arange(4) < 7)
    print(call(masked, F((7,), x.dtype), grid=2)(x[:6]).tolist())

    def scratch(x, y, *, total, ready):
        @pl.loop(0, 8, step=3)
        def _(i):
            total[0] += jnp.where(pl.program_id(0) == 0, x[i], 0)
        pl.semaphore_signal(ready, 2)
        pltpu.sync_copy(total, y.at[pl.ds(pl.program_id(0), 1)])
        y[7] = pl.semaphore_read(ready).astype(x.dtype)
    memory = dict(total=pltpu.SMEM((1,), x.dtype), ready=pltpu.SemaphoreType.REGULAR)
    print(call(scratch, F((8,), x.dtype), grid=2, scratch_shapes=memory, input_output_aliases={0: 0})(x).tolist())

    def pipeline(x, y):
        pltpu.emit_pipeline(views_of_blocks, grid=(2,), in_specs=[block], out_specs=[block])(x, y)
    def views_of_blocks(x, y):
        y[...] = jnp.flip(x[...])
    print(call(pipeline, F((8,), x.dtype))(x).tolist())
    print(pl.run_state(lambda ref: ref.set(ref[...] + 1))(x)[7].item(), triton.atomic_max.__doc__ is not None)
    """
    ) == [
        "[7.0, 2.0, 2.0, 5.0, 8.0, 5.0, 6.0, -1.0]",
        "[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, -1.0]",
        "[nan, nan, 2.0, 3.0, 4.0, 5.0, 6.0, 4.0]",
        "[3.0, 2.0, 1.0, 0.0, 7.0, 6.0, 5.0, 4.0]",
        "8.0 True",
    ]


def test_kernels_see_pytrees_of_scalars_writes_to_inputs_and_indices_along_named_axes() -> None:
    assert lines(
        HEAD
        + """
    def prefetched(scalars, nothing, x, y):
        y[...] = x[...] + scalars["add"][0]
        scalars["add"][0] = 100  # gone after the program
    grid = pltpu.PrefetchScalarGridSpec(2, (2,), [pl.BlockSpec((4,), lambda i, s, _: (s["order"][i],))], block)
    grid.out_specs = pl.BlockSpec((4,), lambda i, s, _: (i,))
    scalars = dict(order=jnp.array([1, 0]), add=jnp.array([10]))
    print(call(prefetched, F((8,), x.dtype), grid_spec=grid)(scalars, None, x).tolist())

    def written(x, y):
        y[...] = x[...]
        x[...] += 1
    first = pl.BlockSpec((2,), lambda i: (0,))
    row = pl.BlockSpec((None, 2), lambda i: (i, 0))
    print(call(written, F((3, 2), x.dtype), grid=3, in_specs=[first], out_specs=row)(x).tolist())

    times = []
    def loops(x, y):
        @pl.when(pl.program_id(0) == 0)
        def _():
            def step(i, carry):
                times.append(i)
                y[i] = x[i] + jax.lax.axis_index("j")
                return carry
            jax.lax.fori_loop(0, 8, step, None)
    print(call(loops, F((8,), x.dtype), grid=(("i", 2), ("j", 3)))(x).tolist(), len(times))

    def beyond(x, y):  # the slice is longer than the array
        part = triton.load(x.at[pl.ds(0, 16)], mask=jnp.arange(16) < 8, other=-1.0)
        triton.store(y.at[pl.ds(pl.program_id(0) + 4, 16)], part, mask=jnp.arange(16) < 9)
    print(call(beyond, F((8,), x.dtype), grid=2, input_output_aliases={0: 0})(x).tolist())
    print(pl.estimate_cost(lambda x, power: jnp.exp(x) @ x**power, x, power=5))
    """
    ) == [
        "[14.0, 15.0, 16.0, 17.0, 10.0, 11.0, 12.0, 13.0]",
        "[[0.0, 1.0], [1.0, 2.0], [2.0, 3.0]]",
        "[2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0] 1",
        "[0.0, 1.0, 2.0, 3.0, 0.0, 0.0, 1.0, 2.0]",
        "CostEstimate(flops=48, transcendentals=8, bytes_accessed=36, remote_bytes_transferred=0)",
    ]


def test_kernels_run_on_the_cores_of_a_mesh() -> None:
    assert lines(
        HEAD
        + """
    mesh = pltpu.create_tensorcore_mesh("core", num_cores=2)
    memory = dict(part=pltpu.VMEM((4,), x.dtype))
    @pl.kernel(out_type=[F((8,), x.dtype)], mesh=mesh, scratch_types=memory, interpret=True)
    def shifted(x, y, part):
        core = jax.lax.axis_index("core")
        pltpu.sync_copy(x.at[pl.ds(4 * core, 4)], part)
        pltpu.sync_copy(part, y.at[pl.ds(4 - 4 * core, 4)])
    print(jax.jit(shifted)(x)[0].tolist())

    def counted(refs):
        @pl.core_map(mesh, interpret=pltpu.InterpretParams())
        def _():
            refs[jax.lax.axis_index("core")] += jax.lax.axis_size("core") + 0.0
    print(pl.run_state(counted)(x[:3]).tolist())

    def unwritten(y, z):
        pltpu.prng_seed(3)
    for params in (True, pltpu.InterpretParams(), pltpu.InterpretParams(uninitialized_memory="zero")):
        found = pl.pallas_call(unwritten, [F((1,), "int8"), F((1,), x.dtype)], interpret=params)()
        print(found[0].item(), found[1].item())
    print(pltpu.einshape("a(bc)->b(ca)", jnp.arange(8).reshape(2, 4), b=2).tolist())
    refused(lambda: pltpu.einshape("a(bc)->b(ca)", jnp.arange(8).reshape(2, 4), b=3))
    refused(lambda: pl.core_map(mesh)(lambda: None))
    """
    ) == [
        "[4.0, 5.0, 6.0, 7.0, 0.0, 1.0, 2.0, 3.0]",
        "[2.0, 3.0, 2.0]",
        "-128 nan",
        "127 nan",
        "0 0.0",
        "[[0, 4, 1, 5], [2, 6, 3, 7]]",
        "ArgumentError einshape: a dimension of 4 is no (bc) with the sizes {'b': 3, 'a': 2}.",
        "ArgumentError pallas_call: give interpret=True to the call of <lambda>; there is no accelerator. Only "
        "interpret mode is supported on CPU backend.",
    ]


def test_calls_that_do_not_fit_are_refused() -> None:
    found = lines(
        HEAD
        + """
    def kernel(x, y):
        y[...] = x[...]
    result = F((8,), x.dtype)
    refused(lambda: pl.pallas_call(kernel, result)(x))
    refused(lambda: call(lambda x, y: x[...], result)(x))
    refused(lambda: call(kernel, result, in_specs=[block, block])(x))
    refused(lambda: call(kernel, result, in_specs=[pl.BlockSpec((2, 4), lambda: (0, 0))])(x))
    refused(lambda: call(kernel, result, in_specs=[pl.BlockSpec((4,), lambda: (0, 0))])(x))
    refused(lambda: call(kernel, result, in_specs=[pl.BlockSpec((-4,), lambda: 0)])(x))
    refused(lambda: call(kernel, F((8,), np.int32), input_output_aliases={0: 0})(x))
    refused(lambda: call(kernel, result, input_output_aliases={1: 0})(x))
    refused(lambda: call(kernel, result, grid=(1.5,)))
    refused(lambda: call(kernel, result, grid=2, grid_spec=pl.GridSpec(3)))
    refused(lambda: call(kernel, F((8,), np.int32))(x))
    refused(lambda: call(lambda x, y: y.set(pl.program_id(1)), result, grid=2)(x))
    refused(lambda: pl.program_id(0))
    with pltpu.force_tpu_interpret_mode():
        print(pl.pallas_call(kernel, result)(x)[7].item())
    """
    )
    assert [line.split(":")[0] for line in found] == [
        "ArgumentError pallas_call",
        "ArgumentError pallas_call",
        "PytreeError pallas_call",
        "ShapeError pallas_call",
        "ArgumentError pallas_call",
        "ArgumentError pallas_call",
        "ArgumentError pallas_call",
        "ArgumentError pallas_call",
        "ArgumentError pallas_call",
        "ArgumentError pallas_call",
        "DTypeError A Ref of int32 cannot hold a value of float32; convert it with astype('int32').",
        "ArgumentError program_id",
        "ArgumentError program_id",
        "7.0",
    ]
