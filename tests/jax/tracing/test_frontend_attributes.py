"""What programs say to the compiler under the hook: metadata, places of computation, and callbacks that write into
buffers."""

from __future__ import annotations

from tests.jax.test_jax_hook import lines as printed


def test_metadata_and_places_are_attributes_of_operations() -> None:
    program = """
        import jax, jax.numpy as jnp
        from jax.experimental.compute_on import compute_on
        from jax.experimental.xla_metadata import set_xla_metadata

        @jax.jit
        def f(x):
            with compute_on("device_host"):
                y = jnp.sin(x)
            return set_xla_metadata(y * 2, step=3)

        def said(lowered):
            for dialect in ("stablehlo", "hlo"):
                for line in lowered.as_text(dialect=dialect).splitlines():
                    if "frontend_attributes" in line:
                        print(line.partition("frontend_attributes")[2].replace(" ", "").partition("}")[0])

        said(f.lower(1.0))
        print(bool(jnp.isclose(f(1.0), 2 * jnp.sin(1.0))), bool(jnp.isclose(jax.grad(f)(1.0), 2 * jnp.cos(1.0))))
        inner = jax.make_jaxpr(f)(1.0).eqns[0].params["jaxpr"]
        print(*(f"{e.primitive} {e.ctx.compute_type} {e.ctx.xla_metadata}" for e in inner.eqns), sep="; ")
        g = jax.jit(jnp.cos)
        g(1.0)
        said(set_xla_metadata(a=True, b=1)(g).lower(1.0))  # a program that was traced before has none of that
        said(g.lower(1.0))
        try:
            compute_on("moon")
        except ValueError as error:
            print(str(error).splitlines()[0])
        """
    assert printed(program) == [
        '={_xla_compute_type="host"',
        '={step="3"',
        '={_xla_compute_type="host"',
        '={step="3"',
        "True True",
        "sin device_host None; mul None {'step': '3'}; xla_metadata_value None None",
        '={a="true",b="1"',
        '={a="true",b="1"',
        "compute_on: compute_type must be 'device_host', 'device', 'tpu_sparsecore' or 'gpu_stream:#', but got 'moon'.",
    ]


def test_buffer_callback_writes_results() -> None:
    """Its results are writable, and have what aliased arguments have; the arguments are not."""
    program = """
        import jax, jax.numpy as jnp, numpy as np
        from jax.experimental.buffer_callback import buffer_callback
        from jax.experimental.shard_alike import shard_alike

        def double(context, out, x):
            print(context.stage.name, out["y"].writeable, x.writeable, np.asarray(out["z"]).tolist())
            np.asarray(out["y"])[...] = 2 * np.asarray(x)

        struct = jax.ShapeDtypeStruct((2,), np.float32)
        results, options = {"y": struct, "z": struct}, {"input_output_aliases": {0: 1}, "vmap_method": "sequential"}
        call = buffer_callback(double, results, **options)
        x = jnp.array([1.0, 3.0])
        print({name: y.tolist() for name, y in jax.jit(call)(x).items()}, x.tolist())
        print(jax.vmap(call)(jnp.stack([x, x]))["y"].tolist())
        print([y.tolist() for y in shard_alike(x, 2 * x)])
        for wrong in (
            lambda: buffer_callback(double, struct, input_output_aliases={0: 1}), lambda: shard_alike(x, x[:1])
        ):
            try:
                wrong()
            except ValueError as error:
                print(str(error).splitlines()[0])
        """
    assert printed(program) == [
        "EXECUTE True False [1.0, 3.0]",
        "{'y': [2.0, 6.0], 'z': [1.0, 3.0]} [1.0, 3.0]",
        *["EXECUTE True False [1.0, 3.0]"] * 2,
        "[[2.0, 6.0], [2.0, 6.0]]",
        "[[1.0, 3.0], [2.0, 6.0]]",
        "buffer_callback: input_output_aliases gives argument 0 the result 1, but there are 1 results.",
        "shard_alike: the arrays must have one shape and element type, but are float32[2] and float32[1].",
    ]
