"""Callbacks under `tinyxla.jax`: their exceptions are JAX's runtime errors. Each test runs in a process of its own."""

from __future__ import annotations

import pytest

from tests.jax.test_jax_hook import lines

PROGRAM = """
    import jax, jax.numpy as jnp
    from jax.experimental import io_callback

    class Refused(KeyError): pass
    def refuse(*x): raise Refused("no")
    struct = jax.ShapeDtypeStruct((), jnp.float32)
    try:
        {call}
        jax.effects_barrier()
    except jax.errors.JaxRuntimeError as error:
        print(isinstance(error, RuntimeError), isinstance(error, Refused), "Refused: 'no'" in str(error))
        print(type(error.__cause__).__name__)
"""

CALLS = {
    "eager": "jax.pure_callback(refuse, struct, 1.0)",
    "keyword": "jax.pure_callback(callback=refuse, result_shape_dtypes=struct)",
    "jit": "jax.jit(lambda x: jax.pure_callback(refuse, struct, x))(1.0)",
    "loop": "jax.lax.fori_loop(0, 3, lambda i, x: jax.pure_callback(refuse, struct, x), 1.0)",
    "vmap": 'jax.vmap(lambda x: jax.pure_callback(refuse, struct, x, vmap_method="sequential"))(jnp.ones(2))',
    "io": "jax.jit(lambda x: io_callback(refuse, struct, x))(1.0)",
    "debug": "jax.jit(lambda x: jax.debug.callback(refuse, x))(1.0)",
}


@pytest.mark.parametrize("name", CALLS)
def test_callback_that_raises_gives_a_runtime_error_that_names_the_exception(name: str) -> None:
    assert lines(PROGRAM.format(call=CALLS[name])) == ["True False True", "Refused"]


def test_debug_callback_outside_of_compiled_functions_raises_what_the_function_raises() -> None:
    found = lines("""
        import jax, jax.numpy as jnp

        class Refused(KeyError): pass
        def refuse(*x): raise Refused("no")
        def look(x):
            jax.debug.callback(refuse, x)
            return x
        for call in (look, jax.grad(look), lambda x: jax.vmap(look)(jnp.ones(2))):
            try:
                call(1.0)
            except Refused as error:
                print(error)
    """)
    assert found == ["'no'"] * 3


def test_callbacks_take_arrays_of_the_library_and_have_effects_of_their_own_in_jaxprs() -> None:
    found = lines("""
        import jax, jax.numpy as jnp, numpy as np
        from jax.experimental import io_callback

        seen = []
        def look(*x):
            seen.extend(isinstance(value, jax.Array) for value in x)
        def program(x):
            jax.debug.callback(look, x, np.ones(2))
            jax.debug.callback(look, x, ordered=True)
            io_callback(look, None, x)
            jax.lax.cond(x > 0, lambda: io_callback(look, None, x, ordered=True), lambda: None)
            return x
        print(*sorted(map(str, jax.make_jaxpr(program)(1.0).effects)))
        program(1.0), jax.jit(program)(1.0)
        print(set(seen), len(seen))
        shardings = []
        jax.jit(lambda x: jax.debug.inspect_array_sharding(x, callback=shardings.append))(1.0)
        print(len(shardings))
        for wrong in (
            lambda: jax.vmap(lambda x: jax.pure_callback(np.sin, x, x))(jnp.ones(2)),
            lambda: jax.vmap(lambda x: jax.lax.cond(x > 0, lambda: io_callback(look, None), lambda: None))(jnp.ones(2)),
            lambda: jax.pure_callback(np.sin, jax.core.ShapedArray((), np.dtype("float64")), 1.0),
        ):
            try:
                wrong()
            except (NotImplementedError, ValueError) as error:
                print(isinstance(error, NotImplementedError), str(error).split("In JAX: ")[1].split()[0])
    """)
    assert found == [
        "Debug IO OrderedDebug OrderedIO",
        "{True} 10",
        "1",
        "True vmap",
        "True IO",
        "False result_shape_dtypes",
    ]


def test_callback_of_equal_functions_is_traced_without_compiling_again() -> None:
    found = lines("""
        import jax, jax.numpy as jnp, numpy as np
        from tinyxla.jax.host_calls.callbacks import pure_callback, _Callback

        def double(x): return 2 * x
        one, other = _Callback(double, True), _Callback(double, True)
        print(one == other, hash(one) == hash(other))
        print(one == _Callback(lambda x: x, True) or one == _Callback(double, False), one.__name__)
        print(jax.pure_callback(double, jnp.ones(2), jnp.ones(2)))
    """)
    assert found == ["True True", "False double", "[2. 2.]"]


def test_callback_of_wrong_shape_still_names_the_function_and_its_line() -> None:
    found = lines("""
        import jax, jax.numpy as jnp
        def three(x): return jnp.ones(3)
        try:
            jax.pure_callback(three, jax.ShapeDtypeStruct((), jnp.float32), 1.0)
        except ValueError as error:
            print(str(error).splitlines()[0])
    """)
    assert found[0].startswith("pure_callback of three (<string>:3) must give f32[]")
