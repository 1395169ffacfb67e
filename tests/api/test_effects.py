"""Side effects run once each, in the order of the program, whatever is done to it: transformed, compiled, both, in any
order. Where JAX promises the same, calls are compared with its."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np
import pytest

import tinyxla as tx
import tinyxla.numpy as tnp
from tinyxla.backends.numba.program.executable import CompiledModule
from tinyxla.compiler.pipeline import optimize
from tinyxla.errors import ArgumentError, DifferentiationError, LeakedTracerError
from tinyxla.hlo import Module
from tinyxla.tracing.core import trace

X = np.arange(3, dtype=np.float32)


class Log:
    """What callbacks have seen."""

    def __init__(self, lib: Any) -> None:
        self.lib = lib
        self.calls: list[tuple[Any, ...]] = []

    def __call__(self, tag: str, *values: Any) -> None:
        def note(*values: Any) -> None:
            self.calls.append((tag, *(round(float(np.asarray(v).sum()), 3) for v in values)))

        self.lib.debug.callback(note, *values)

    def of(self, function: Callable[..., Any], *args: Any) -> list[tuple[Any, ...]]:
        self.calls.clear()
        function(*args)
        if self.lib is jax:
            jax.effects_barrier()
        return list(self.calls)


# --- programs ---------------------------------------------------------------------------------------------------------


def straight(lib: Any, log: Log) -> Any:
    def f(x: Any) -> Any:
        log("before", x)
        y = lib.numpy.sin(x) * 2
        log("after", y)
        return y

    return f


def scan(lib: Any, log: Log) -> Any:
    def step(c: Any, x: Any) -> Any:
        log("step", c, x)
        return lib.numpy.sin(c) + x, c * x

    return lambda x: lib.lax.scan(step, x, X)[0]


def unrolled(lib: Any, log: Log) -> Any:
    def step(c: Any, x: Any) -> Any:
        log("step", c, x)
        return lib.numpy.cos(c) * x, None

    return lambda x: lib.lax.scan(step, x, X, unroll=2)[0]


def fori(lib: Any, log: Log) -> Any:
    return lambda x: lib.lax.fori_loop(0, 3, lambda k, c: (log("fori", k, c), c * c + 0.5)[1], x)


def loop(lib: Any, log: Log) -> Any:
    def step(s: Any) -> Any:
        log("while", *s)
        return s[0] + 1, lib.numpy.sin(s[1]) * 2

    return lambda x: lib.lax.while_loop(lambda s: s[0] < 3, step, (0, x))[1]


def cond(lib: Any, log: Log) -> Any:
    def taken(x: Any) -> Any:
        log("true", x)
        return x * x

    def other(x: Any) -> Any:
        log("false", x)
        return lib.numpy.sin(x)

    return lambda x: lib.lax.cond(x > 1, taken, other, x)


def switch(lib: Any, log: Log) -> Any:
    branches = [lambda x, k=k: (log(f"branch {k}", x), x**k)[1] for k in (1, 2, 3)]
    return lambda x: lib.lax.switch(2, branches, x)


def nested(lib: Any, log: Log) -> Any:
    inner_cond, inner_scan = cond(lib, log), lib.jit(scan(lib, log))

    def f(x: Any) -> Any:
        log("first", x)
        y = inner_scan(x)
        log("second")
        z = lib.jit(inner_cond)(y + 3)
        return lib.lax.map(lambda v: (log("map", v), v * z)[1], X).sum()

    return f


def checkpointed(lib: Any, log: Log) -> Any:
    return lib.checkpoint(lambda x: lib.numpy.sin(straight(lib, log)(x)))


PROGRAMS = [straight, scan, unrolled, fori, loop, cond, switch, nested]
COMPILED = {"plain": lambda lib, f: f, "jit": lambda lib, f: lib.jit(f)}


def run(lib: Any, program: Any, transform: Callable[[Any, Any], Any], argument: Any = X[2]) -> list[Any]:
    log = Log(lib)
    return log.of(transform(lib, program(lib, log)), argument)


@functools.cache
def plainly(program: Any) -> list[Any]:
    return run(tx, program, COMPILED["plain"])


# --- forward mode, reverse mode ---------------------------------------------------------------------------------------

DERIVATIVES: dict[str, Callable[[Any, Any], Any]] = {
    "grad": lambda lib, f: lib.grad(f),
    "value_and_grad": lambda lib, f: lib.value_and_grad(f),
    "jvp": lambda lib, f: lambda x: lib.jvp(f, (x,), (x,)),
    "vjp": lambda lib, f: lambda x: [pull(x) for pull in [lib.vjp(f, x)[1]] for _ in range(2)],
    "jacfwd": lambda lib, f: lib.jacfwd(f),
    "jacrev": lambda lib, f: lib.jacrev(f),
    "hessian": lambda lib, f: lib.hessian(f),
    "grad of grad": lambda lib, f: lib.grad(lib.grad(f)),
    "jvp of grad": lambda lib, f: lambda x: lib.jvp(lib.grad(f), (x,), (x,)),
    "grad of jvp": lambda lib, f: lib.grad(lambda x: lib.jvp(f, (x,), (x,))[1]),
    "checkpoint": lambda lib, f: lib.grad(lib.checkpoint(f)),
}


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("program", [straight, scan, loop, cond, nested, checkpointed], ids=lambda f: f.__name__)
@pytest.mark.parametrize("derivative", DERIVATIVES)
@pytest.mark.parametrize("where", ["outside", "compiled of compiled"])
def test_derivatives_pass_effects_by(program: Any, derivative: str, where: str) -> None:
    """They happen as if there were no derivative: once, in order. The way back through a checkpoint repeats them."""

    def transform(lib: Any, f: Any) -> Any:
        return (
            DERIVATIVES[derivative](lib, f) if where == "outside" else lib.jit(DERIVATIVES[derivative](lib, lib.jit(f)))
        )

    found, expected = run(tx, program, transform), plainly(program)
    assert expected
    is_checkpointed = program is checkpointed or derivative == "checkpoint"
    assert found == expected or (is_checkpointed and len(found) % len(expected) == 0 and {*found} == {*expected})


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("compiled", COMPILED)
def test_jax_calls_the_same(program: Any, compiled: str) -> None:
    assert sorted(run(tx, program, COMPILED[compiled])) == sorted(run(jax, program, COMPILED[compiled]))


@pytest.mark.parametrize("program", [straight, scan, fori, cond, switch], ids=lambda f: f.__name__)
def test_jax_calls_the_same_in_gradients(program: Any) -> None:
    transform = lambda lib, f: lib.jit(lib.grad(f))  # noqa: E731
    assert sorted(run(tx, program, transform)) == sorted(run(jax, program, transform))


# --- vmap -------------------------------------------------------------------------------------------------------------


EXAMPLES = np.array([0.5, 2.0], np.float32)


def mapped(lib: Any, f: Any) -> Any:
    return lib.vmap(f)


@functools.cache
def for_each_example(program: Any) -> list[Any]:
    return run(tx, program, mapped, EXAMPLES)


def summed(function: Any) -> Any:
    return lambda x: function(x).sum()


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("order", [*itertools.permutations(["jit", "vmap", "grad"]), ("vmap",), ("jit", "vmap", "jvp")])
def test_once_for_each_example(program: Any, order: tuple[str, ...]) -> None:
    """With a mapped predicate both branches run, as in JAX."""
    steps: dict[str, Callable[[Any, Any], Any]] = {
        "jit": lambda lib, f: lib.jit(f),
        "vmap": lambda lib, f: lib.vmap(f),
        "grad": lambda lib, f: lib.grad(f),
        "jvp": DERIVATIVES["jvp"],
    }

    def transform(lib: Any, f: Any) -> Any:
        total = order.index("grad") < order.index("vmap") if "grad" in order else False
        for name in reversed(order):
            f = steps[name](lib, f)
            if name == "vmap" and total:
                f = summed(f)
        return f

    found = run(tx, program, transform, EXAMPLES)
    assert found == for_each_example(program)
    if order == ("vmap",):
        assert sorted(found) == sorted(run(jax, program, mapped, EXAMPLES))


def test_lanes_that_end_one_by_one() -> None:
    """The condition runs once before each step, for all lanes, as if it were not mapped."""
    log = Log(tx)

    def f(x: Any) -> Any:
        ahead = lambda s: (log("test", s), s < 30)[1]  # noqa: E731
        return tx.lax.while_loop(ahead, lambda s: (log("step", s), s * 2)[1], x)

    expected = [("test", 1.0)]
    for n in (1.0, 2.0, 4.0, 8.0, 16.0):
        expected += [("step", n), ("test", 2 * n)]
    for g in (f, tx.jit(f), tx.grad(f), tx.jit(tx.grad(f)), lambda x: tx.jvp(f, (x,), (x,)), tx.grad(tx.grad(f))):
        assert log.of(g, 1.0) == expected
    both = np.array([1, 20], np.float32)
    for g in (tx.vmap(f), tx.jit(tx.vmap(f)), tx.vmap(tx.grad(f)), tx.grad(lambda x: tx.vmap(f)(x).sum())):
        found = log.of(g, both)
        assert found[::2] == expected
        assert len(found) == 2 * len(expected)
    np.testing.assert_array_equal(tx.vmap(f)(both), [32, 40])
    np.testing.assert_array_equal(tx.vmap(tx.grad(f))(both), [32, 2])


def test_the_host_decides_when_a_loop_ends() -> None:
    left = [3]

    def go_on() -> Any:
        left[0] -= 1
        return left[0] >= 0

    f = tx.jit(lambda: tx.lax.while_loop(lambda k: tx.io_callback(go_on, np.bool_(0)), lambda k: k + 1, 0))
    assert int(f()) == 3
    left[0] = 5
    assert int(f()) == 5


# --- custom rules -----------------------------------------------------------------------------------------------------


def test_effects_of_rules() -> None:
    """Those of the way back happen there, also those that need nothing of it."""
    log = Log(tx)

    @tx.custom_vjp
    def f(x: Any) -> Any:
        log("function", x)
        return tnp.sin(x)

    def forward(x: Any) -> Any:
        log("there", x)
        return tnp.sin(x), x

    def backward(x: Any, g: Any) -> Any:
        log("back")
        log("residual", x)
        log("cotangent", g)
        return (g * tnp.cos(x),)

    f.defvjp(forward, backward)
    expected = [("there", 0.0), ("after",), ("back",), ("residual", 0.0), ("cotangent", 1.0)]

    def program(x: Any) -> Any:
        y = f(x)
        log("after")
        return y

    whole = {
        "plain": program,
        "jit": tx.jit(program),
        "cond": lambda x: tx.lax.cond(x < 1, program, lambda x: x, x),
        "scan": lambda x: tx.lax.scan(lambda c, _: (program(c), None), x, None, length=1)[0],
        "checkpoint": tx.checkpoint(lambda x: program(x)),
    }
    for name, g in whole.items():
        for compiled in (False, True):
            gradient = tx.jit(tx.grad(g)) if compiled else tx.grad(g)
            found = log.of(gradient, 0.0)
            if name == "checkpoint":  # whose way back may go there again
                found = [*dict.fromkeys(found)]
            assert found == expected, (name, compiled)
        assert log.of(g, 0.0) == [("function", 0.0), ("after",)]


_POLICIES = tx.checkpoint_policies


@pytest.mark.parametrize(
    ("policy", "count"),
    [
        (None, 2),
        (_POLICIES.nothing_saveable, 2),
        (_POLICIES.everything_saveable, 1),
        (_POLICIES.save_anything_except_these_names("y"), 1),
        (_POLICIES.save_anything_except_these_names("y", "z"), 2),
        (_POLICIES.save_any_names_but_these("z"), 2),
    ],
)
@pytest.mark.parametrize("inner", COMPILED)
def test_what_looks_at_values_that_are_computed_again_is_repeated(policy: Any, count: int, inner: str) -> None:
    log, named = Log(tx), tx.ad_checkpoint.checkpoint_name

    def f(x: Any) -> Any:
        y = named(x + 1, "y")
        z = named(y * 2, "z")
        log("seen", y, z)
        return named(tnp.exp(z), "w")

    g = tx.checkpoint(COMPILED[inner](tx, f), policy=policy)
    assert log.of(tx.grad(g), 2.0) == [("seen", 3.0, 6.0)] * count


def test_io_callbacks_are_not_repeated_by_a_checkpoint() -> None:
    seen: list[float] = []

    def f(x: Any) -> Any:
        tx.io_callback(lambda x: seen.append(float(x)), None, tx.lax.stop_gradient(x))
        return tnp.sin(tnp.sin(x))

    tx.jit(tx.grad(tx.checkpoint(f)))(1.0)
    assert seen == [1.0]


# --- loops whose length is not known ----------------------------------------------------------------------------------


def test_the_way_back_through_a_loop_does_not_repeat_effects() -> None:
    """It runs the steps again, but not their side effects, also not those inside inner loops and branches."""
    log = Log(tx)

    def step(x: Any) -> Any:
        log("step", x)
        inner = tx.lax.fori_loop(0, 2, lambda k, s: (log("inner", k), s * 1.0625)[1], x)
        return tx.lax.cond(inner > 3, lambda x: (log("large"), x + 1)[1], lambda x: x, inner)

    f = lambda x: tx.lax.while_loop(lambda x: x < 30, step, x)  # noqa: E731
    expected = log.of(f, 1.0)
    assert len(expected) > 30
    for g in (tx.grad(f), tx.jit(tx.grad(f))):
        assert log.of(g, 1.0) == expected
    assert log.of(tx.vmap(tx.grad(f)), np.ones(1, np.float32)) == log.of(tx.vmap(f), np.ones(1, np.float32))


def test_results_of_effects_in_a_loop_that_is_run_again() -> None:
    def step(x: Any) -> Any:
        return x * 2 + tx.lax.stop_gradient(tx.io_callback(lambda: np.float32(1), np.float32(0)))

    f = lambda x: tx.lax.while_loop(lambda x: x < 60, step, x)  # noqa: E731
    with pytest.raises(DifferentiationError, match="runs its steps again, but a step needs what io_callback of"):
        tx.grad(f)(1.0)
    known = lambda x: tx.lax.fori_loop(0, 3, lambda k, c: step(c), x)  # noqa: E731
    assert float(tx.grad(known)(1.0)) == 8


# --- order ------------------------------------------------------------------------------------------------------------


def in_order(log: Log) -> Callable[..., Any]:
    def f(x: Any) -> Any:
        log("1")
        y = tnp.sin(x) * 2
        log("2", y)
        z = tx.lax.fori_loop(0, 2, lambda k, s: (log("3", k), s + y.sum())[1], 0.0)
        log("4", z)
        w = tx.lax.cond(z > 0, lambda: (log("5"), 1.0)[1], lambda: (log("6"), 2.0)[1])
        number = tx.io_callback(lambda: (log.calls.append(("7",)), np.float32(1))[1], np.float32(0))
        log("8")
        v = tx.vmap(lambda a: (log("9", a), a * number)[1])(y)

        @tx.jit
        def inner(q: Any) -> Any:
            log("10", q)
            r = tnp.cos(q)
            log("11", r)
            return r

        inner(number)
        a = inner(number + 1)
        tx.lax.scan(lambda c, x: (log("12", c, x), (c + x, None))[1], a, X, unroll=2)
        tx.lax.map(lambda c: (log("13", c), c)[1], X)
        log("14", v)
        return v.sum() * w

    return f


def test_order_of_one_program() -> None:
    log = Log(tx)
    f = in_order(log)
    expected = log.of(tx.jit(f), X)
    tags = [int(tag) for tag, *_ in expected]
    assert sorted(set(tags) - {11, 10}) == [1, 2, 3, 4, 5, 7, 8, 9, 12, 13, 14]
    assert [t for t in tags if t not in (10, 11)] == sorted(t for t in tags if t not in (10, 11))
    assert [t for t in tags if t in (10, 11)] == [10, 11, 10, 11]
    for g in (tx.grad(f), tx.jit(tx.grad(f)), tx.grad(tx.jit(f)), lambda x: tx.jvp(tx.jit(f), (x,), (x,))):
        assert log.of(g, X) == expected


@contextmanager
def without_jit() -> Iterator[None]:
    tx.config.update("disable_jit", True)
    try:
        yield
    finally:
        tx.config.update("disable_jit", False)


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("seed", range(20))
def test_order_of_random_programs(seed: int) -> None:
    """Loops, branches, kernels, updates in place and calls that need each other's results or not: the order is that of
    Python."""
    log = Log(tx)

    def f(x: Any) -> Any:
        random = np.random.default_rng(seed)
        values = [x, x + 1, x * 2]
        for number in range(12):
            a, b = (values[random.integers(len(values))] for _ in range(2))
            kind = random.integers(7)
            if kind == 0:
                log(f"{number}", a)
            elif kind == 1:
                values.append(tx.io_callback(lambda v, n=number: (log.calls.append((f"io {n}",)), v)[1], a, a))
            elif kind == 2:
                values.append(tnp.sin(a) @ b * tnp.ones(3))
            elif kind == 3:
                step = lambda k, s, n=number, b=b: (log(f"{n}", k), s.at[k].add(b[k]))[1]  # noqa: E731
                values.append(tx.lax.fori_loop(0, 3, step, a))
            elif kind == 4:
                one = lambda a, b, n=number: (log(f"{n} true", a), a + b)[1]  # noqa: E731
                two = lambda a, b, n=number: (log(f"{n} false"), b)[1]  # noqa: E731
                values.append(tx.lax.cond(bool(random.integers(2)), one, two, a, b))
            elif kind == 5:
                values.append(tx.jit(lambda a, n=number: (log(f"{n} call", a), a.at[0].set(n))[1])(a))
            else:
                values.append(tnp.cumsum(a) + b)
        return sum(v.sum() for v in values[: 1 + random.integers(len(values))])

    with without_jit():
        expected = log.of(f, tnp.asarray(X))
    assert [t for t, *_ in log.of(tx.jit(f), tnp.asarray(X))] == [t for t, *_ in expected]


# --- passes -----------------------------------------------------------------------------------------------------------


def test_passes_keep_effects() -> None:
    """What nothing needs, equal calls, branches with a known predicate, loops that never run."""
    log = Log(tx)

    def f(x: Any) -> Any:
        log("same", x)
        log("same", x)
        tx.jit(lambda x: log("dead", x))(x)
        tx.lax.cond(True, lambda: log("taken"), lambda: log("not taken"))
        tx.lax.fori_loop(0, 0, lambda k, s: (log("never"), s)[1], x)
        tx.lax.fori_loop(0, 1, lambda k, s: (log("once"), s + 1)[1], x)
        tx.lax.while_loop(lambda s: (log("asked"), s < 0)[1], lambda s: (log("never"), s)[1], 1.0)
        return x

    expected = ["same", "same", "dead", "taken", "once", "asked"]
    for g in (f, tx.jit(f), tx.jit(tx.grad(f)), tx.jit(lambda x: tx.jvp(f, (x,), (x,)))):
        assert [tag for tag, *_ in log.of(g, 1.0)] == expected
    computation = trace(lambda x: [f(x)], [tx.make_graph(f)(1.0).entry.parameters[0].shape], "f")[0]
    counts: list[int] = []
    optimize(computation, lambda name, made: counts.append(sum(x.has_side_effect for x in made.instructions)))
    assert set(counts[1:]) == {counts[-1]}
    log.calls.clear()
    CompiledModule(Module("f", computation))([np.array(1, np.float32)])
    assert [tag for tag, *_ in log.calls] == expected
    log.calls.clear()
    Module("f", computation)(np.float32(1), backend="interpreter")
    assert [tag for tag, *_ in log.calls] == expected


def test_shapes_alone_have_no_effects() -> None:
    log = Log(tx)
    f = lambda x: (log("no", x), x + 1)[1]  # noqa: E731
    assert log.of(lambda: tx.eval_shape(f, 1.0)) == []
    assert log.of(lambda: tx.make_graph(f)(1.0)) == []
    assert log.of(lambda: tx.jit(f).lower(1.0).compile()) == []


# --- tracers that are stored ------------------------------------------------------------------------------------------

stored: dict[str, Any] = {}


class Holder:
    attribute: Any = None
    items: list[Any] = []  # noqa: RUF012


def store_global(x: Any) -> Any:
    global leaked
    y = x * 2
    leaked = y
    return y.sum()


def store_item(x: Any) -> Any:
    y = x * 2
    Holder.items[:] = [y]
    return y.sum()


def store_attribute(x: Any) -> Any:
    y = x * 2
    Holder.attribute = y
    return y.sum()


def store_in_cache(x: Any) -> Any:
    y = stored.setdefault("cached", x * 2)
    return y.sum()


leaked: Any = None
STORES: dict[Callable[..., Any], Callable[[], Any]] = {
    store_global: lambda: leaked,
    store_item: lambda: Holder.items[0],
    store_attribute: lambda: Holder.attribute,
    store_in_cache: lambda: stored["cached"],
}
PLACES: dict[str, Callable[[Any], Any]] = {
    "jit": lambda f: tx.jit(f)(X),
    "grad": lambda f: tx.grad(f)(X),
    "jvp": lambda f: tx.jvp(f, (X,), (X,)),
    "vmap": lambda f: tx.vmap(f)(np.ones((2, 3), np.float32)),
    "jit of grad": lambda f: tx.jit(tx.grad(f))(X),
    "scan": lambda f: tx.lax.scan(lambda c, _: (c + f(c), None), X, None, length=2),
    "while": lambda f: tx.lax.while_loop(lambda c: c.sum() < 5, lambda c: c + f(c) + 1, X),
    "cond": lambda f: tx.lax.cond(True, f, lambda x: x.sum(), X),
    "checkpoint": lambda f: tx.grad(tx.checkpoint(f))(X),
}
NO_LINES = ("grad", "jvp", "vmap")  # outside jit each operation runs at once, and nobody notes where it stood


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("store", STORES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("place", PLACES)
def test_a_tracer_that_is_stored(store: Any, place: str) -> None:
    stored.clear()
    PLACES[place](store)
    with pytest.raises(LeakedTracerError) as caught:
        STORES[store]() + 1
    message = str(caught.value)
    assert "has ended" in message
    assert "Return the value from the function instead of storing it in an outer variable, attribute or" in message
    assert f"at {__file__}" in message.splitlines()[-1]  # where it is used
    made = "made in" if place in NO_LINES else "made at"
    assert f"It was {made}" in message
    assert store.__name__ in message
    assert f"{__file__}:{store.__code__.co_firstlineno if place in NO_LINES else ''}" in message
    if place not in NO_LINES:
        assert "x * 2" in message
    with pytest.raises(LeakedTracerError):
        float(STORES[store]())
    with pytest.raises(LeakedTracerError):
        tx.jit(lambda x: x + STORES[store]())(X)


def test_ordered_debugging_is_mapped() -> None:
    log: list[float] = []
    f = lambda x: tx.debug.callback(lambda v: log.append(float(v)), x, ordered=True)  # noqa: E731
    tx.jit(tx.vmap(f))(X)
    assert log == [0, 1, 2]
    with pytest.raises(ArgumentError):
        tx.vmap(lambda x: tx.io_callback(lambda v: v, x, x, ordered=True))(X)
