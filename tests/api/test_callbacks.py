"""Python functions that programs call: what they are given, what they give, and what happens if they fail. Where JAX
has the same, beside JAX."""

from __future__ import annotations

import io
import threading
import traceback
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from jax.experimental import io_callback as jax_io_callback

import tinyxla as tx
import tinyxla.numpy as tnp
from tinyxla.errors import ArgumentError, AttributeValueError, BatchingError, DifferentiationError
from tinyxla.ops.host import callback as ops

X = np.arange(3, dtype=np.float32)
F32 = tx.ShapeDtypeStruct((), np.float32)


def like(x: Any) -> tx.ShapeDtypeStruct:
    return tx.ShapeDtypeStruct(x.shape, x.dtype)


# --- arguments and results --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", [tx.pure_callback, tx.io_callback, tx.experimental.io_callback])
@pytest.mark.parametrize("wrap", [lambda f: f, tx.jit, lambda f: tx.jit(tx.jit(f))])
def test_pytrees_go_in_and_out(call: Any, wrap: Any) -> None:
    given: list[Any] = []

    def on_host(tree: Any, *, scale: Any) -> Any:
        given.append((tree, scale))
        return {"sum": tree["a"] + tree["b"][0], "both": [np.float64(2.5), tree["b"][0] * scale]}

    result = {"sum": like(X), "both": (F32, like(X))}
    found = wrap(lambda x, y: call(on_host, result, {"a": x, "b": [y]}, scale=y[0]))(X, X + 1)
    np.testing.assert_array_equal(found["sum"], X + X + 1)
    assert float(found["both"][0]) == 2.5
    np.testing.assert_array_equal(found["both"][1], X + 1)
    (tree, scale), *_ = given
    assert all(type(x) is np.ndarray for x in (tree["a"], tree["b"][0], scale))
    assert scale.shape == ()
    tree["a"][:] = 0  # its own


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint32", "float16", "bfloat16", "float32", "complex64", "float64"])
@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (2, 3)])
def test_types_and_shapes(dtype: str, shape: tuple[int, ...]) -> None:
    x = tnp.ones(shape, dtype)
    found = tx.jit(lambda x: tx.pure_callback(lambda v: v, x, x))(x)
    assert found.dtype == x.dtype
    np.testing.assert_array_equal(np.asarray(found), np.asarray(x))


def test_other_libraries_take_the_arguments() -> None:
    import scipy.special

    f = tx.jit(lambda v, x: tx.pure_callback(scipy.special.jv, like(x), v, x))
    g = jax.jit(lambda v, x: jax.pure_callback(scipy.special.jv, jax.ShapeDtypeStruct(x.shape, x.dtype), v, x))
    np.testing.assert_allclose(f(X, X), g(X, X), 1e-6)


@pytest.mark.parametrize(
    ("found", "declared"),
    [
        (2, np.float32(0)),
        (True, np.int32(0)),
        (np.float64(2), np.float32(0)),
        (np.arange(3), np.zeros(3, np.int32)),
        (X, tx.ShapeDtypeStruct((3,), np.float64)),
        (tnp.ones(2), np.zeros(2, np.float32)),
        ([1.0, 2], (F32, F32)),
        ((1.0, 2), [F32, F32]),
        (None, None),
    ],
)
def test_results_take_the_type_that_is_declared(found: Any, declared: Any) -> None:
    values = tx.tree_util.tree_leaves(tx.jit(lambda: tx.io_callback(lambda: found, declared))())
    leaves = tx.tree_util.tree_leaves(declared)
    assert [x.dtype for x in values] == [x.dtype for x in leaves]
    for x, y in zip(values, tx.tree_util.tree_leaves(found), strict=True):
        np.testing.assert_array_equal(x, np.asarray(y))


@pytest.mark.parametrize(
    ("found", "declared", "message"),
    [
        (X[:1], X, r"must give f32\[3\], as result_shape_dtypes says, but it gave f32\[1\]"),
        (X.astype(int), X, r"must give f32\[3\].*gave s64\[3\]"),
        (1.5, np.int32(0), r"must give s32\[\].*gave f64\[\]"),
        ("no", X, r"must give f32\[3\].*gave 'no' of type str"),
        ((X, X), X, r"must give \*, where \* stands for an array.*gave \(\*, \*\)"),
        ({"a": X}, {"b": X}, r"must give \{'b': \*\}.*gave \{'a': \*\}"),
        (None, X, r"must give \*.*gave None"),
        (X, None, "must give None.*gave "),
    ],
)
@pytest.mark.parametrize("wrap", [lambda f: f, tx.jit])
def test_other_results_are_errors(wrap: Any, found: Any, declared: Any, message: str) -> None:
    def named() -> Any:
        return found

    with pytest.raises(ArgumentError, match=rf"(?s)io_callback of .*named \(.*test_callbacks.py:\d+\) {message}"):
        wrap(lambda: tx.io_callback(named, declared))()


def test_results_as_declared_are_not_put_into_words() -> None:
    class Silent(np.ndarray[Any, Any]):
        def __repr__(self) -> str:
            raise AssertionError("the text of a result is for errors")

    found = tx.jit(lambda x: tx.pure_callback(lambda v: np.asarray(v).view(Silent), x, x))(X)
    np.testing.assert_array_equal(found, X)


def test_what_is_no_function_or_shape() -> None:
    with pytest.raises(ArgumentError, match="pure_callback takes a function, but got 3 of type int"):
        tx.pure_callback(3, F32, 1.0)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="result_shape_dtypes must be a pytree of ShapeDtypeStructs or arrays, but"):
        tx.pure_callback(np.sin, "f32", 1.0)
    with pytest.raises(ArgumentError, match=r"io_callback: argument 1\['a'\] is 'text' of type str"):
        tx.io_callback(np.sin, None, 1.0, {"a": "text"})
    with pytest.raises(AttributeValueError, match=r"vmap_method must be one of 'sequential'.* but is 'parallel'"):
        tx.pure_callback(np.sin, F32, 1.0, vmap_method="parallel")


# --- failures ---------------------------------------------------------------------------------------------------------


class OwnError(Exception):
    pass


@pytest.mark.parametrize("error", [OwnError, KeyboardInterrupt, SystemExit, ZeroDivisionError, MemoryError])
@pytest.mark.parametrize("deep", [False, True])
def test_exceptions_reach_the_caller(error: type[BaseException], deep: bool) -> None:
    failing = [True]
    raised = error("from the host")

    def on_host(x: Any) -> Any:
        if failing[0]:
            raise raised
        return x

    def call(x: Any) -> Any:
        return tx.io_callback(on_host, like(x), x)

    def nested(x: Any) -> Any:
        inner = tx.jit(lambda c, i: tx.lax.cond(i > 2, call, lambda c: c + 1, c))
        return tx.lax.while_loop(lambda s: s[0] < 5, lambda s: (s[0] + 1, inner(s[1], s[0])), (0, x))[1]

    f = tx.jit(nested if deep else call)
    for _ in range(2):
        failing[0] = True
        with pytest.raises(error) as caught:
            f(1.0)
        assert caught.value is raised
        assert "raise raised" in "".join(traceback.format_tb(caught.value.__traceback__))
        failing[0] = False
        assert float(f(1.0)) == (4.0 if deep else 1.0)


def test_an_exception_ends_the_program_there() -> None:
    seen: list[int] = []

    def note(k: Any) -> None:
        seen.append(int(k))
        if k == 2:
            raise OwnError

    with pytest.raises(OwnError):
        tx.jit(lambda: tx.lax.fori_loop(0, 5, lambda k, s: (tx.debug.callback(note, k), s)[1], 0))()
    assert seen == [0, 1, 2]


# --- re-entrancy and threads ------------------------------------------------------------------------------------------


def test_callbacks_call_compiled_functions() -> None:
    large = tx.jit(lambda x: tnp.sum(tnp.sin(x) * x))

    def outer(x: Any) -> Any:
        gradient = tx.jit(tx.grad(lambda z: (z**3).sum()))
        return np.asarray(tx.jit(lambda v: tx.pure_callback(lambda u: gradient(u), v, v) * 2)(x)) + large(
            np.zeros(300_000, np.float32)
        )

    found = tx.jit(lambda x: tx.pure_callback(outer, x, x).sum() + large(tnp.ones(300_000)) * 0)(tnp.ones(4))
    assert float(found) == 24


def test_a_function_that_calls_itself_through_the_host() -> None:
    @tx.jit
    def factorial(n: Any) -> Any:
        again = lambda n: tx.pure_callback(lambda m: factorial(m - 1), n, n)  # noqa: E731
        return n * tx.lax.cond(n > 1, again, lambda n: n * 0 + 1, n)

    assert int(factorial(np.int32(6))) == 720


def test_many_threads() -> None:
    seen: list[float] = []
    errors: list[BaseException] = []

    @tx.jit
    def f(x: Any) -> Any:
        y = tx.lax.fori_loop(0, 20, lambda k, s: tx.io_callback(lambda v: v + 1, s, s), x)
        tx.debug.callback(lambda v: seen.append(float(v[0])), y)
        return tnp.sum(y) + tx.pure_callback(lambda v: np.asarray(tx.jit(tnp.sum)(v)), F32, y)

    f(X)
    seen.clear()

    def work(k: int) -> None:
        try:
            for n in range(10):
                assert float(f(X + 100 * k + n)) == float(2 * (X + 100 * k + n + 20).sum())
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert errors == []
    assert sorted(seen) == sorted(float(100 * k + n + 20) for k in range(8) for n in range(10))


# --- vmap -------------------------------------------------------------------------------------------------------------


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("method", ops.VMAP_METHODS)
@pytest.mark.parametrize("wrap", ["plain", "jit", "jit inside"])
@pytest.mark.parametrize("twice", [False, True])
def test_vmap_methods(method: str, wrap: str, twice: bool) -> None:
    """The shapes of the arguments, how often it is called, and the results: those of JAX."""

    def run(lib: Any) -> tuple[Any, Any]:
        seen: list[Any] = []

        def on_host(a: Any, b: Any) -> Any:
            seen.append((a.shape, b.shape))
            a, b = np.asarray(a), np.asarray(b)
            return (np.sin(a) + b, (a * b).sum(-1))

        def function(a: Any, b: Any) -> Any:
            results = lib.ShapeDtypeStruct(a.shape, a.dtype), lib.ShapeDtypeStruct(a.shape[:-1], a.dtype)
            return lib.pure_callback(on_host, results, a, b, vmap_method=method)

        if wrap == "jit inside":
            function = lib.jit(function)
        both = twice and method != "legacy_vectorized"
        mapped = lib.vmap(function, in_axes=(0, None), out_axes=(1, 0))
        if twice:
            mapped = lib.vmap(mapped, in_axes=(0, 0) if both else (0, None))
        if wrap == "jit":
            mapped = lib.jit(mapped)
        a = np.arange(24, dtype=np.float32).reshape(4, 3, 2)
        b = np.arange(1, 9, dtype=np.float32).reshape(4, 2)
        found = mapped(a if twice else a[0], b if both else b[0])
        return [np.asarray(x) for x in found], seen

    (found, seen), (expected, expected_seen) = run(tx), run(jax)
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, y, 1e-6)
    assert sorted(seen) == sorted(expected_seen)


def test_vmap_without_a_method() -> None:
    f = tx.vmap(lambda x: tx.pure_callback(np.sin, x, x))
    with pytest.raises(
        ArgumentError, match="vmap: the call of pure_callback of sin does not say how it is mapped; pass"
    ):
        f(X)
    with pytest.raises(NotImplementedError):
        jax.vmap(lambda x: jax.pure_callback(np.sin, x, x))(X)
    tx.vmap(lambda x: x + tx.pure_callback(np.sin, F32, 1.0))(X)  # the same for all examples


def test_copies_of_pmap_call_each_by_itself() -> None:
    shapes: list[tuple[int, ...]] = []

    def on_host(x: Any) -> Any:
        shapes.append(x.shape)
        return 2 * x

    x = tnp.arange(4.0).reshape(2, 2)
    assert tx.pmap(lambda x: tx.pure_callback(on_host, x, x))(x).tolist() == (2 * x).tolist()
    assert shapes == [(2,), (2,)]
    with pytest.raises(BatchingError, match="pass vmap_method"):
        tx.vmap(lambda x: tx.pure_callback(on_host, x, x))(x)


def test_vmap_of_no_examples() -> None:
    f = tx.jit(tx.vmap(tx.vmap(lambda x: tx.pure_callback(np.sin, x, x, vmap_method="sequential"))))
    assert f(np.zeros((0, 2, 3), np.float32)).shape == (0, 2, 3)
    assert f(np.zeros((2, 0, 3), np.float32)).shape == (2, 0, 3)


def test_io_callback_is_called_for_each_example() -> None:
    def run(lib: Any, call: Any) -> Any:
        seen: list[Any] = []

        def note(a: Any, b: Any) -> Any:
            seen.append((float(a), float(b)))
            return np.asarray(a + b)

        f = lib.vmap(lambda a, b: call(note, lib.ShapeDtypeStruct((), np.float32), a, b), in_axes=(0, None))
        f = lib.jit(lib.vmap(f, in_axes=(None, 0)))
        return np.asarray(f(X, X[:2] * 10)).tolist(), sorted(seen)

    assert run(tx, tx.io_callback) == run(jax, jax_io_callback)


def test_ordered_io_callback_is_not_mapped() -> None:
    f = lambda x: tx.io_callback(lambda v: v, x, x, ordered=True)  # noqa: E731
    for g in (tx.vmap(f), tx.jit(tx.vmap(f)), tx.vmap(tx.jit(f))):
        with pytest.raises(ArgumentError, match=r"vmap: io_callback of .* is called with ordered=True"):
            g(X)
    np.testing.assert_array_equal(tx.lax.map(f, X), X)


def test_effects_are_not_those_of_examples_that_do_not_get_there() -> None:
    """Branches and loops of examples that part are computed together, so an effect would be that of all examples."""
    seen: list[float] = []
    note = lambda x: tx.io_callback(lambda v: (seen.append(float(v)), v)[1], x, x)  # noqa: E731
    branch = lambda p, x: tx.lax.cond(p, note, lambda x: x, x)  # noqa: E731
    loop = lambda p, x: tx.lax.while_loop(lambda y: y < p, lambda y: note(y + 1), x)  # noqa: E731
    for f, p, message in ((branch, X > 0, "a branch that not all"), (loop, X + 2, "a loop whose examples end")):
        for g in (tx.vmap(f), tx.jit(tx.vmap(f))):
            with pytest.raises(ArgumentError, match=f"is called for its effect in {message}"):
                g(p, X)
    assert seen == []
    np.testing.assert_array_equal(tx.vmap(branch, in_axes=(None, 0))(X[0] < 9, X), X)  # all take the same branch
    assert sorted(seen) == sorted(X.tolist())


# --- derivatives ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", [tx.pure_callback, tx.io_callback])
@pytest.mark.parametrize(
    "transform",
    [
        tx.grad,
        tx.value_and_grad,
        lambda f: lambda x: tx.jvp(f, (x,), (1.0,)),
        lambda f: lambda x: tx.vjp(f, x),
        tx.jacfwd,
        tx.hessian,
        lambda f: tx.jit(tx.grad(f)),
        lambda f: tx.grad(tx.jit(f)),
        lambda f: tx.grad(lambda x: tx.lax.scan(lambda c, _: (f(c), None), x, None, length=2)[0]),
        lambda f: tx.grad(lambda x: tx.lax.cond(x > 0, f, lambda x: x, x)),
    ],
)
def test_no_derivative(call: Any, transform: Callable[..., Any]) -> None:
    with pytest.raises(
        DifferentiationError, match=r"_callback of sin computes.*custom_jvp or custom_vjp.*stop_gradient"
    ):
        transform(lambda x: call(np.sin, F32, x))(1.0)


def test_a_derivative_of_its_own() -> None:
    def make(lib: Any) -> Any:
        @lib.custom_vjp
        def f(x: Any) -> Any:
            return lib.pure_callback(
                lambda v: np.sin(v), lib.ShapeDtypeStruct(x.shape, x.dtype), x, vmap_method="sequential"
            )

        cos = lambda x: lib.pure_callback(lambda v: np.cos(v), x, x, vmap_method="sequential")  # noqa: E731
        f.defvjp(lambda x: (f(x), cos(x)), lambda r, g: (g * r,))
        return lib.jit(lib.vmap(lib.value_and_grad(lambda x: f(f(x)))))

    np.testing.assert_allclose(np.stack(make(tx)(X)), np.stack(make(jax)(X)), 1e-6)
    constant = tx.grad(lambda x: x * tx.pure_callback(np.sin, F32, tx.lax.stop_gradient(x)))
    assert float(constant(2.0)) == pytest.approx(np.sin(2))


# --- what may be left out ---------------------------------------------------------------------------------------------


def test_pure_calls_run_only_if_needed() -> None:
    seen: list[float] = []

    def note(x: Any) -> Any:
        seen.append(float(x))
        return x

    @tx.jit
    def f(x: Any) -> Any:
        tx.pure_callback(note, F32, x + 1)
        return tx.pure_callback(note, F32, x) + tx.pure_callback(note, F32, x)

    assert float(f(1.0)) == 2
    assert seen == [1.0]


def test_traced_again_it_is_not_compiled_again() -> None:
    from tinyxla.api.executables import _compiled  # pyright: ignore[reportPrivateUsage]

    def step(c: Any, x: Any) -> Any:
        tx.debug.print("{c}", c=c)
        return c + tx.io_callback(np.sin, F32, x), None

    with np.printoptions():
        tx.lax.scan(step, 0.0, X)
        before = _compiled.cache_info().misses
        tx.lax.scan(step, 0.0, X)
        assert _compiled.cache_info().misses == before


def test_text() -> None:
    def note(x: Any) -> None:
        pass

    text = tx.jit(lambda x: (tx.debug.callback(note, x), tx.pure_callback(np.sin, x, x))[1]).lower(X).as_text()
    assert '() custom-call(parameter.1), custom_call_target="callback", custom_call_has_side_effect=true' in text
    assert "debug.callback of test_text.<locals>.note" in text
    assert "pure_callback of sin" in text


# --- debug.print ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrap", ["plain", "jit", "vmap", "grad"])
def test_what_is_printed(wrap: str, capfd: pytest.CaptureFixture[str]) -> None:
    """JAX prints the same lines."""

    def run(lib: Any) -> str:
        def function(x: Any) -> Any:
            y = x * 1.5
            lib.debug.print("plain")
            lib.debug.print("{} {}", x, y)
            lib.debug.print("{x} {0}", y, x=x)
            lib.debug.print("{x:.3f} {x:>8} {y!r:>12}", x=x, y="text")
            lib.debug.print("{t} {{}} {}", None, t={"a": [x, 3], "b": ("text", 2.5)})
            lib.debug.print("{x.shape} {t[a]}", x=x, t={"a": x})
            lib.debug.print("{} {} {}", True, 7, lib.numpy.bfloat16(0.5))
            lib.debug.print(ordered=True)("{x} later", x=y)
            return y

        argument: Any = lib.numpy.float32(2)
        if wrap == "vmap":
            function, argument = lib.vmap(function), lib.numpy.arange(2.0)
        function = {"jit": lib.jit, "grad": lib.grad}.get(wrap, lambda f: f)(function)
        function(argument)
        if lib is jax:
            jax.effects_barrier()
        return capfd.readouterr().out.replace(", weak_type=True", "")

    assert sorted(run(tx).splitlines()) == sorted(run(jax).splitlines())


def test_numpys_options_are_those_of_the_call(capsys: pytest.CaptureFixture[str]) -> None:
    def f(x: Any) -> None:
        with np.printoptions(precision=2):
            tx.debug.print("{x}", x=x)
        tx.debug.print("{x:.1f}", x=x)

    tx.jit(f)(X / 7)
    assert capsys.readouterr().out == "[0.   0.14 0.29]\n[0.0 0.1 0.3]\n"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda x: tx.debug.print("{}"),
            "'{}' does not fit its arguments: it has more places than there are arguments",
        ),
        (lambda x: tx.debug.print("{y}", x=x), "there is no argument 'y'"),
        (lambda x: tx.debug.print("{}", x, x), "it has no place for 1. Write {} for each positional one"),
        (lambda x: tx.debug.print("{x}", x=x, z=x), "it has no place for 'z'"),
        (lambda x: tx.debug.print("{", x), "Single '{' encountered"),
        (lambda x: tx.debug.print("{x.foo}", x=x), "has no attribute 'foo'"),
    ],
)
def test_texts_that_do_not_fit(call: Any, message: str) -> None:
    for wrap in (lambda f: f, tx.jit):
        with pytest.raises(AttributeValueError) as caught:
            wrap(call)(1.0)
        assert message in str(caught.value)
        assert "debug.print: the text" in str(caught.value)


def test_debug_callback_takes_anything() -> None:
    seen: list[Any] = []
    settings = object()

    def note(*args: Any, **kwargs: Any) -> str:
        seen.append((args, kwargs))
        return "ignored"

    def f(x: Any) -> Any:
        assert tx.debug.callback(note, x, "text", {"a": (x, None)}, k=settings, ordered=True) is None
        tx.debug.callback(ordered=True)(note, 2**40)
        return x

    tx.jit(f)(1.0)
    (args, kwargs), (big, _) = seen
    assert args == (1.0, "text", {"a": (1.0, None)})
    assert kwargs == {"k": settings}
    assert big == (2**40,)


# --- debug.breakpoint -------------------------------------------------------------------------------------------------


def test_breakpoint_has_concrete_values() -> None:
    out = io.StringIO()

    def f(x: Any) -> Any:
        doubled, name = x * 2, "text"  # noqa: F841
        tx.debug.breakpoint(stdin=io.StringIO("p doubled\np name\nl\nc\n"), stdout=out)
        return doubled

    np.testing.assert_array_equal(tx.jit(f)(X), X * 2)
    shown = out.getvalue()
    assert "array([0., 2., 4.], dtype=float32)" in shown
    assert "'text'" in shown
    assert "test_callbacks.py(" in shown
    assert "->" in shown


def test_breakpoint_in_a_loop_and_quit() -> None:
    import bdb

    out, commands = io.StringIO(), io.StringIO("p carry\nc\np carry\nq\n")

    def step(carry: Any, x: Any) -> Any:
        tx.debug.breakpoint(stdin=commands, stdout=out)
        return carry + x, None

    with pytest.raises(bdb.BdbQuit):
        tx.jit(lambda x: tx.lax.scan(step, 0.0, x)[0])(X + 1)
    assert "array(0., dtype=float32)" in out.getvalue()
    assert "array(1., dtype=float32)" in out.getvalue()


def test_effects_barrier() -> None:
    assert tx.effects_barrier() is None


def test_log_writes_values_to_the_logger_each_time(caplog: pytest.LogCaptureFixture) -> None:
    f = tx.jit(lambda x: tx.debug.log("x is {x:.1f}", x=x))
    with caplog.at_level("INFO", logger="tinyxla"):
        f(tnp.ones(2))
        tx.debug.log(ordered=True)("done {}", 1)
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [("INFO", "x is [1.0 1.0]"), ("INFO", "done 1")]
    with pytest.raises(AttributeValueError, match=r"debug.log: the text '\{\}' does not fit its arguments"):
        tx.debug.log("{}")
