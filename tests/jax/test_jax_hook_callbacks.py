"""Callbacks under `tinyxla.jax`: their exceptions are JAX's runtime errors. Each test runs in a process of its own."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tests.jax.test_jax_hook import lines, run

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


# --- debug.breakpoint -------------------------------------------------------------------------------------------------


def debugged(program: str, *commands: str) -> str:
    """What the debugger shows while a program, which calls `stop()`, runs under the hook."""
    start = f"""
        import functools, io, jax, jax.numpy as jnp
        shown = io.StringIO()
        given = io.StringIO({"".join(x + chr(10) for x in commands)!r})
        stop = functools.partial(jax.debug.breakpoint, backend="cli", stdin=given, stdout=shown)
    """
    return "\n".join(lines(textwrap.dedent(start) + textwrap.dedent(program) + "\nprint(shown.getvalue())"))


@pytest.mark.parametrize("transformed", ["f", "jax.jit(f)", "jax.grad(f)", "jax.checkpoint(f)"])
def test_breakpoint_shows_values_of_local_variables(transformed: str) -> None:
    program = f"""
        def f(x):
            y = 2 * x
            stop()
            return y
        {transformed}(jnp.float32(3.0))
    """
    assert debugged(program, "p y, 1 + 1", "z", "c") == (
        "Entering jdb:\n(jdb) (Array(6., dtype=float32), 2)\n(jdb) *** NameError: name 'z' is not defined\n(jdb) "
    )


def test_breakpoint_moves_between_frames() -> None:
    program = """
        def inner(x):
            y = x + 1
            stop(num_frames=2)
            return y

        @jax.jit
        @jax.vmap
        def outer(x):
            doubled = 2 * x
            return inner(doubled)

        outer(jnp.arange(2))
    """
    shown = debugged(program, "p x", "u", "p doubled", "u", "d", "d", "bt", "help", "c", "p y", "c")
    before, down, up = shown.split("(jdb) ")[1:4]
    assert before == "Array(0, dtype=int32)\n"
    assert down.startswith("> <string>(")
    assert up == "Array(0, dtype=int32)\n"
    for word in ("At topmost frame.", "At bottommost frame.", "Traceback:\n", "Documented commands"):
        assert word in shown
    assert shown.endswith("(jdb) Entering jdb:\n(jdb) Array(3, dtype=int32)\n(jdb) ")


def test_breakpoint_shows_lines_of_the_program(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import io, jax\n"
        "out = io.StringIO()\n"
        "@jax.jit\n"
        "def f(x):\n"
        "    jax.debug.breakpoint(stdin=io.StringIO('l\\nc\\n'), stdout=out, filter_frames=True)\n"
        "    return x\n"
        "f(1)\n"
        "print(out.getvalue())\n"
    )
    assert run("-m", "tinyxla.jax", str(tmp_path / "program.py")).stdout.splitlines()[2:6] == [
        "    @jax.jit",
        "    def f(x):",
        "->      jax.debug.breakpoint(stdin=io.StringIO('l\\nc\\n'), stdout=out, filter_frames=True)",
        "        return x",
    ]


def test_breakpoint_with_a_token_stops_where_its_value_is_used() -> None:
    program = """
        def f(x):
            y = stop(token=2 * x)
            return y + 1
        print(jax.jit(f)(3.0), jax.jit(lambda x: [f(x), x][1])(3.0))
        try:
            stop(token=1.0, ordered=True)
        except ValueError as error:
            print(str(error).split(";")[0])
        try:
            jax.jit(f)(jnp.arange(3))
        except SystemExit:
            print("left")
    """
    assert debugged(program, "p x", "c", "q").splitlines() == [
        "7.0 3.0",
        "debug.breakpoint: a token says when the program stops, and so does ordered",
        "left",
        "Entering jdb:",
        "(jdb) Array(3., dtype=float32)",
        "(jdb) Entering jdb:",
        "(jdb) ",
    ]
