"""What the tutorials of JAX teach of printing, looking, and calling Python from within, as programs that give the same
with both packages, and print the same."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from tests.programs.harness import Programs, error_of, floats

programs = Programs()
printing = Programs()


# --- what is printed --------------------------------------------------------------------------------------------------


@printing(np.float32([1, 2, 3]), traced=False)
def printed_values(jax: Any, x: Any) -> Any:
    show = jax.debug.print

    @jax.jit
    def f(x: Any) -> Any:
        show("x: {}", x)
        y = jax.numpy.sin(x)
        show("y: {y:.2f} {{braces}} {x}", y=y.sum(), x=x.shape)
        return y

    def g(x: Any) -> Any:
        show("g: {}", x)
        return x * x

    def in_order(x: Any) -> Any:
        for k in range(3):
            show("{} {}", k, x, ordered=True)
        return x

    jax.effects_barrier()
    f(x)
    jax.vmap(g)(x)
    jax.jit(jax.vmap(lambda x: [show("one"), g(x)][1]))(x[:2])
    jax.grad(g)(2.0)
    jax.jit(jax.grad(g))(3.0)
    jax.vmap(jax.grad(g))(x)
    jax.jvp(g, (1.0,), (2.0,))
    jax.lax.fori_loop(0, 3, lambda i, v: [show("step {}: {}", i, v), v + i][1], 0)
    jax.lax.scan(lambda c, x: (c + x, g(x)), 0.0, x)
    jax.lax.cond(True, lambda: [show("yes"), 1][1], lambda: [show("no"), 2][1])
    jax.lax.while_loop(lambda v: v < 8, lambda v: [show("while {}", v), v * 2][1], 1)
    jax.jit(in_order)(5)
    jax.vmap(lambda p: [show("p: {p}", p=p), p["a"]][1])({"a": x[:1]})
    jax.effects_barrier()
    return f(x)


@printing(np.float32([1, 2, 3]), traced=False)
def printed_gradients(jax: Any, x: Any) -> Any:
    """A function that does nothing but print the cotangent that passes."""

    @jax.custom_vjp
    def look(x: Any) -> Any:
        return x

    def backward(x: Any, g: Any) -> Any:
        jax.debug.print("x {} g {}", x, g)
        return (g,)

    look.defvjp(lambda x: (x, x), backward)
    found = jax.jit(jax.grad(lambda x: (look(x) ** 2).sum()))(x), jax.vmap(jax.grad(lambda x: look(x) ** 3))(x[:2])
    jax.effects_barrier()
    return found


# --- calls of the host ------------------------------------------------------------------------------------------------


@programs(floats(4), traced=False)
def debug_callbacks(jax: Any, x: Any) -> Any:
    seen: list[Any] = []

    @jax.jit
    def f(x: Any) -> Any:
        jax.debug.callback(lambda x, *, name: seen.append((name, float(np.sum(x)))), x, name="x")
        return x + 1

    y = f(x)
    jax.effects_barrier()
    jax.grad(lambda x: f(x).sum())(x)
    jax.effects_barrier()
    jax.vmap(f)(x[:2])
    jax.effects_barrier()
    kinds: list[bool] = []
    jax.jit(lambda x: jax.debug.callback(lambda x: kinds.append(isinstance(x, (np.ndarray, jax.Array))), x))(x)
    jax.effects_barrier()
    assert error_of(lambda: jax.jit(lambda x: jax.debug.callback(1, x))(x))
    return y, sorted(v for _, v in seen), {name for name, _ in seen} == {"x"}, kinds


@programs(np.float32([0.5, 1.5, 2.5]))
def pure_callbacks(jax: Any, x: Any) -> Any:
    """A host function with shapes, batching of every method, and derivatives by a rule and by further callbacks."""

    def host(x: Any) -> Any:
        return np.sin(np.asarray(x)).astype(np.float32)

    def shape(x: Any) -> Any:
        return jax.ShapeDtypeStruct(x.shape, x.dtype)

    def called(x: Any, method: str = "expand_dims") -> Any:
        return jax.pure_callback(host, shape(x), x, vmap_method=method)

    @jax.custom_jvp
    def sine(x: Any) -> Any:
        return called(x)

    @sine.defjvp
    def sine_jvp(primals: Any, tangents: Any) -> Any:
        (x,), (t,) = primals, tangents
        cosine = jax.pure_callback(lambda x: np.cos(np.asarray(x)), shape(x), x, vmap_method="expand_dims")
        return sine(x), cosine * t

    @jax.custom_vjp
    def square(x: Any) -> Any:
        return jax.pure_callback(lambda x: np.asarray(x) ** 2, shape(x), x, vmap_method="sequential")

    square.defvjp(lambda x: (square(x), x), lambda x, g: (2 * x * g,))

    def added(x: Any, y: Any) -> Any:
        return np.asarray(x) + np.asarray(y)

    def mapped(method: str) -> Any:
        add = lambda x, y: jax.pure_callback(added, shape(x), x, y, vmap_method=method)  # noqa: E731
        return jax.vmap(add, (0, None))(x, x[0])

    tree = jax.pure_callback(
        lambda p: {"sum": np.asarray(p["a"]) + np.asarray(p["b"]), "n": np.int32(3)},
        {"sum": shape(x), "n": jax.ShapeDtypeStruct((), np.int32)},
        {"a": x, "b": 2 * x},
    )
    return (
        called(x),
        [jax.vmap(lambda x, m=m: called(x, m))(x) for m in ("sequential", "expand_dims", "broadcast_all")],
        [mapped(m) for m in ("sequential", "expand_dims", "broadcast_all", "sequential_unrolled")],
        jax.grad(lambda x: sine(x).sum())(x),
        jax.vmap(jax.grad(sine))(x),
        jax.jacfwd(sine)(x),
        jax.grad(lambda x: square(x).sum())(x),
        jax.vmap(jax.grad(square))(x),
        tree,
        jax.lax.scan(lambda c, x: (c + called(x), called(c)), 0.0, x),
        jax.lax.cond(x[0] > 0, lambda x: sine(x), lambda x: -x, x),
        jax.lax.while_loop(lambda v: v[0] < 1, lambda v: v + called(v) ** 2 + 0.1, x),
    )


@programs(floats(3), traced=False)
def what_callbacks_refuse(jax: Any, x: Any) -> Any:
    shape = jax.ShapeDtypeStruct((3,), np.float32)
    bare = lambda x: jax.pure_callback(lambda x: np.asarray(x) + 1, shape, x)  # noqa: E731
    assert isinstance(error_of(jax.grad(lambda x: bare(x).sum()), x), (ValueError, TypeError))
    assert isinstance(error_of(jax.vmap(bare), jax.numpy.ones((2, 3))), (NotImplementedError, TypeError))
    wrong = lambda x: jax.pure_callback(lambda x: np.zeros(4, np.float32), shape, x)  # noqa: E731
    assert isinstance(error_of(lambda: np.asarray(jax.jit(wrong)(x))), Exception)

    def fails(x: Any) -> Any:
        raise KeyError("from within")

    failing = jax.jit(lambda x: jax.pure_callback(fails, shape, x))
    assert "from within" in str(error_of(lambda: np.asarray(failing(x))))
    return jax.jit(bare)(x)


@programs(np.int32(3), traced=False)
def ordered_effects(jax: Any, n: Any) -> Any:
    """A generator of the host's that a compiled program draws from, in order; a log that it writes."""
    io_callback = importlib.import_module(f"{jax.__name__}.experimental").io_callback
    generator, log = np.random.default_rng(0), []
    shape = jax.ShapeDtypeStruct((), np.float32)

    def draw() -> Any:
        return io_callback(lambda: generator.normal(size=()).astype(np.float32), shape, ordered=True)

    def write(text: str, x: Any) -> None:
        io_callback(lambda x: log.append((text, int(x))), None, x, ordered=True)

    @jax.jit
    def run(n: Any) -> Any:
        write("start", n)
        total = jax.lax.fori_loop(0, 3, lambda i, t: (write("step", i), t + draw() * (i + 1))[1], 0.0)
        first = draw()
        write("end", n)
        return total, first, draw()

    found = run(n)
    jax.effects_barrier()
    unordered = jax.vmap(lambda x: io_callback(lambda x: np.asarray(x) + 1, shape, x))(jax.numpy.arange(3.0))
    assert isinstance(
        error_of(jax.vmap(lambda x: io_callback(lambda x: x, shape, x, ordered=True)), np.ones(2)),
        (ValueError, TypeError),
    )
    return found, log, unordered


# --- looking inside ---------------------------------------------------------------------------------------------------


@programs(floats(3), traced=False)
def debugging_options(jax: Any, x: Any) -> Any:
    jnp = jax.numpy
    seen: list[float] = []

    @jax.jit
    def f(x: Any) -> Any:
        if isinstance(x, jax.core.Tracer):
            return x.sum()
        seen.append(float(x.sum()))  # there is a value
        return x.sum()

    with jax.disable_jit():
        f(x)
        jax.lax.fori_loop(0, 2, lambda i, v: (seen.append(float(v)), v + 1)[1], 0.0)
        jax.lax.cond(True, lambda: seen.append(1.0), lambda: seen.append(2.0))
        jax.lax.scan(lambda c, x: (c + x, seen.append(float(c) > -100)), 0.0, x)
    with jax.debug_nans(True):
        error = error_of(jax.jit(lambda x: jnp.log(x - 100.0)), x)
        assert isinstance(error, FloatingPointError)
        assert isinstance(error_of(jax.grad(lambda x: jnp.sqrt(x) * 0.0), -1.0), FloatingPointError)
    with jax.debug_infs(True):
        assert isinstance(error_of(jax.jit(lambda x: 1 / (x - x)), x), FloatingPointError)
    with jax.named_scope("part"):
        named = jnp.sin(x)
    with jax.checking_leaks():
        pass
    text = str(jax.make_jaxpr(lambda x: jnp.sin(x) * 2)(x))
    assert "sin" in text
    return seen, named, f(x)
