"""What the tutorials of JAX teach of derivatives, as programs that give the same with both packages."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tests.programs.harness import Programs, error_of, floats

programs = Programs()


# --- gradients --------------------------------------------------------------------------------------------------------


class Model(NamedTuple):
    w: Any
    b: Any


def logistic(jax: Any) -> Callable[..., Any]:
    """The loss of a logistic regression on a few points."""
    jnp = jax.numpy
    inputs = jnp.array([[0.52, 1.12, 0.77], [0.88, -1.08, 0.15], [0.52, 0.06, -1.30], [0.74, -2.49, 1.39]])
    targets = jnp.array([True, True, False, True])

    def loss(w: Any, b: Any) -> Any:
        chances = 0.5 * (jnp.tanh((inputs @ w + b) / 2) + 1)
        return -jnp.sum(jnp.log(chances * targets + (1 - chances) * (1 - targets)))

    return loss


@programs(floats(3) / 4, np.float32(0.3))  # small, or `1 - chances` cancels
def gradients(jax: Any, w: Any, b: Any) -> Any:
    jnp, grad = jax.numpy, jax.grad
    loss = logistic(jax)

    def of_tree(p: Any) -> Any:
        return loss(p["w"], p["b"])

    def of_model(p: Model, scale: Any) -> Any:
        return scale * loss(p.w, p.b), {"norm": (p.w**2).sum()}

    def cubic(x: Any) -> Any:
        return x**3 + 2 * x**2 - 3 * x + 1

    derivatives = [cubic]
    for _ in range(4):
        derivatives.append(grad(derivatives[-1]))
    return (
        [f(b) for f in derivatives],
        grad(loss, argnums=0)(w, b),
        grad(loss)(w, b),
        grad(loss, (0, 1))(w, b),
        grad(loss, argnums=(1,))(w, b),
        grad(loss, argnums=-1)(w, b),
        grad(of_tree)({"w": w, "b": b}),
        jax.value_and_grad(of_tree)({"w": w, "b": b}),
        grad(of_model, has_aux=True)(Model(w, b), 2.0),
        jax.value_and_grad(of_model, has_aux=True)(Model(w, b), scale=2.0),
        grad(lambda x, *, k: (x * k).sum())(w, k=3.0),
        jax.hessian(of_tree)({"w": w, "b": b}),
        jax.jit(grad(jax.jit(loss)))(w, b),
        jax.vmap(grad(loss), (0, None))(jnp.stack([w, 2 * w]), b),
    )


@programs(floats(3), traced=False)
def what_grad_refuses(jax: Any, x: Any) -> Any:
    grad = jax.grad
    assert isinstance(error_of(grad(lambda x: x), x), TypeError)  # a vector
    assert isinstance(error_of(grad(lambda x: x), 3), TypeError)  # an integer
    assert isinstance(error_of(grad(lambda x: 1j * x), 3.0), TypeError)
    assert isinstance(error_of(grad(lambda x: x), 3.0 + 1j), TypeError)
    assert isinstance(error_of(grad(lambda x: (x, x)), 3.0), TypeError)
    assert isinstance(error_of(grad(lambda x: "text"), 3.0), TypeError)
    assert isinstance(error_of(grad(lambda x: x, has_aux=True), 3.0), TypeError)
    assert isinstance(error_of(grad(lambda x: x, argnums=2), 3.0), (TypeError, ValueError))
    assert isinstance(error_of(lambda: jax.jvp(lambda x: x, (x,), (x[:2],))), (TypeError, ValueError))
    assert isinstance(error_of(lambda: jax.jvp(lambda x: x, (x,), (np.arange(3),))), TypeError)
    assert isinstance(error_of(lambda: jax.vjp(lambda x: x, x)[1](x[:2])), ValueError)
    assert isinstance(error_of(lambda: jax.vjp(lambda x: x, x)[1]((x, x))), (TypeError, ValueError))
    allowed = grad(lambda x: 2.0 * x, allow_int=True)(3)
    return grad(lambda x: x.sum())(x), allowed.shape, allowed.dtype == jax.dtypes.float0


@programs(floats(3), floats(3), np.float32(1.5), floats(4, 3), floats(4, 3))
def where_gradients_stop(jax: Any, theta: Any, state: Any, reward: Any, states: Any, nexts: Any) -> Any:
    """Temporal differences, the straight-through estimator, and updates for each example."""
    jnp, stop = jax.numpy, jax.lax.stop_gradient

    def value(theta: Any, state: Any) -> Any:
        return jnp.dot(theta, state)

    def difference(theta: Any, before: Any, reward: Any, after: Any) -> Any:
        return -0.5 * (stop(reward + value(theta, after)) - value(theta, before)) ** 2

    def direct(theta: Any, before: Any, reward: Any, after: Any) -> Any:
        return (reward + value(theta, after) - value(theta, before)) * jax.grad(value)(theta, before)

    def straight_through(x: Any) -> Any:
        zero = x - stop(x)
        return zero + stop(jnp.round(x))

    updates = jax.vmap(jax.grad(difference), in_axes=(None, 0, 0, 0))
    rewards = jnp.arange(4.0)
    return (
        jax.grad(difference)(theta, state, reward, -state),
        direct(theta, state, reward, -state),
        jax.jit(updates)(theta, states, rewards, nexts),
        updates(theta, states, rewards, nexts).mean(0),
        jax.grad(lambda x: jnp.round(x))(3.2),
        jax.value_and_grad(straight_through)(3.2),
        jax.grad(lambda x: (stop({"a": x, "b": x**2})["b"] * x).sum())(theta),
        jax.jvp(lambda x: stop(x) * x, (theta,), (theta,)),
    )


@programs(np.float32(2), floats(2), floats(4), floats(4))
def learning_to_learn(jax: Any, theta: Any, w: Any, x: Any, y: Any) -> Any:
    """Gradients of what comes out of steps along gradients."""
    jnp, grad = jax.numpy, jax.grad

    def meta(theta: Any) -> Any:
        adapted = theta - 0.1 * grad(lambda t: jnp.sin(t) * t**2)(theta)
        return jnp.cos(adapted)

    def loss(w: Any, x: Any, y: Any) -> Any:
        return jnp.mean((jnp.tanh(w[0] * x) * w[1] - y) ** 2)

    def after(w: Any, x: Any, y: Any) -> Any:
        w = jax.lax.fori_loop(0, 2, lambda _, w: w - 0.1 * grad(loss)(w, x[:2], y[:2]), w)
        return loss(w, x[2:], y[2:])

    tasks = jnp.stack([x, -x, 2 * x])
    return (
        grad(meta)(theta),
        grad(lambda w: jax.vmap(after, (None, 0, None))(w, tasks, y).mean())(w),
        grad(lambda rate: loss(w - rate * grad(loss)(w, x, y), x, y))(0.1),
        jax.hessian(after)(w, x, y),
    )


# --- the cookbook -----------------------------------------------------------------------------------------------------


@programs(floats(3), floats(3), floats(2, 3))
def products_with_jacobians(jax: Any, w: Any, v: Any, rows: Any) -> Any:
    jnp, jvp, vjp, vmap = jax.numpy, jax.jvp, jax.vjp, jax.vmap
    inputs = jnp.arange(12.0).reshape(4, 3) / 10

    def f(w: Any) -> Any:
        return jax.nn.sigmoid(inputs @ w)

    y, push = jax.linearize(f, w)
    z, pull = vjp(f, w)
    value, pull_aux, aux = vjp(lambda w: (f(w), {"sum": w.sum()}), w, has_aux=True)
    seeds = jnp.eye(4)
    return (
        jax.jacfwd(f)(w),
        jax.jacrev(f)(w),
        jvp(f, (w,), (v,)),
        (y, push(v), push(2 * v)),
        (z, pull(jnp.ones(4))),
        vmap(push)(rows),
        vmap(pull)(seeds),
        vmap(lambda m: pull(m)[0])(seeds),
        (value, pull_aux(value), aux),
        jvp(lambda w: (f(w), {"sum": w.sum()}), (w,), (v,), has_aux=True),
        jax.linear_transpose(lambda w: inputs @ w, w)(jnp.ones(4)),
        vmap(lambda s: jvp(f, (w,), (s,))[1], out_axes=1)(jnp.eye(3)),
        jax.jacfwd(lambda p: p["a"] * p["b"], has_aux=False)({"a": w, "b": 2.0}),
        jax.jacrev(lambda a, b: {"ab": a * b, "a": (a, a.sum())}, (0, 1))(w, v),
        jax.jit(lambda w, v: jax.linearize(f, w)[1](v))(w, v),
        jax.jacfwd(jax.jacrev(f))(w),
        jax.jit(lambda w: jax.linearize(f, w))(w)[1](v),
        jax.jit(lambda push, v: push(v))(push, v),
        jax.vmap(lambda push, v: push(v))(jax.vmap(lambda w: jax.linearize(f, w)[1])(rows), rows),
    )


@programs(floats(2, 2), floats(2, 2))
def products_with_hessians(jax: Any, x: Any, v: Any) -> Any:
    jnp, grad, jvp, vjp = jax.numpy, jax.grad, jax.jvp, jax.vjp

    def f(x: Any) -> Any:
        return jnp.sum(jnp.tanh(x) ** 2) * jnp.sum(x)

    full = jax.hessian(f)(x)
    return (
        full,
        jax.jacfwd(jax.jacfwd(f))(x),
        jax.jacrev(jax.jacrev(f))(x),
        jax.jacrev(jax.jacfwd(f))(x),
        jnp.tensordot(full, v, 2),
        jvp(grad(f), (x,), (v,))[1],  # forward over reverse
        grad(lambda x: jvp(f, (x,), (v,))[1])(x),  # reverse over forward
        vjp(grad(f), x)[1](v)[0],  # reverse over reverse
        grad(lambda x: jnp.vdot(grad(f)(x), v))(x),
        jax.jit(jax.vmap(lambda v: jvp(grad(f), (x,), (v,))[1]))(jnp.stack([v, x])),
        jax.linearize(grad(f), x)[1](v),
        jnp.trace(full.reshape(4, 4)),
    )


@programs(np.complex64(2 + 3j), np.complex64([1 + 1j, 0.5 - 2j]))
def complex_derivatives(jax: Any, z: Any, u: Any) -> Any:
    """Holomorphic functions, functions of the plane with two real parts, real functions, and the rules that cross."""
    jnp, grad = jax.numpy, jax.grad

    def conjugating(z: Any) -> Any:
        x, y = jnp.real(z), jnp.imag(z)
        return x**2 * y + 1j * jnp.cos(x - y)

    def plane(x: Any, y: Any) -> Any:
        w = conjugating(x + 1j * y)
        return jnp.real(w), jnp.imag(w)

    matrix = jnp.array([[5.0, 2 - 3j, 5j], [2 + 3j, 7.0, 1 + 7j], [-5j, 1 - 7j, 12.0]])
    hermitian = matrix @ matrix.conj().T + jnp.eye(3)
    return (
        grad(jnp.sin, holomorphic=True)(z),
        grad(lambda z: jnp.exp(z) * z**3, holomorphic=True)(z),
        grad(jnp.conjugate, holomorphic=True)(z),
        grad(lambda z: jnp.real(z) ** 2 + jnp.abs(z))(z),
        grad(lambda x: jnp.real(jnp.exp(1j * x) * z))(0.7),
        jax.jvp(conjugating, (z,), (1 - 2j + 0 * z,)),
        jax.vjp(conjugating, z)[1](1 + 2j + 0 * z),
        jax.jacfwd(plane, (0, 1))(jnp.real(z), jnp.imag(z)),
        jax.jacrev(lambda u: u**2 * u[0], holomorphic=True)(u),
        jax.jacfwd(lambda u: u**2 * u[0], holomorphic=True)(u),
        jax.grad(lambda m: jnp.real(jnp.linalg.inv(m)[0, 1]))(hermitian),
        jax.grad(lambda m: jnp.abs(jnp.linalg.det(m)))(hermitian),
        jax.grad(lambda m: jnp.real(jnp.linalg.cholesky((m + m.conj().T) / 2)).sum())(hermitian),
        jax.grad(lambda m: jnp.linalg.eigvalsh(m)[-1])(hermitian),
        jax.vmap(grad(lambda z: jnp.abs(z) ** 2))(u),
        jax.grad(lambda u: jnp.abs(jnp.fft.fft(u)[1]))(u),
    )


@programs(floats(5), np.float32(0.4))
def derivatives_of_any_order(jax: Any, x: Any, t: Any) -> Any:
    jnp, grad, jvp = jax.numpy, jax.grad, jax.jvp

    def forward(f: Any) -> Any:
        return lambda x: jvp(f, (x,), (jnp.ones_like(x),))[1]

    def nth(f: Any, n: int) -> Any:
        for k in range(n):
            f = grad(f) if k % 2 else forward(f)
        return f

    def every(x: Any) -> Any:
        return jax.vmap(jax.vmap(grad(grad(jnp.sin))))(x)

    return (
        [nth(jnp.tanh, n)(t) for n in range(5)],
        jax.vmap(nth(lambda x: x * jnp.exp(-x), 3))(x),
        every(x[:4].reshape(2, 2)),
        jax.jacfwd(jax.jacrev(jax.jacfwd(lambda x: jnp.sum(x**4))))(x[:2]),
        grad(lambda x: jax.jacfwd(jnp.sin)(x) * x)(t),
    )


# --- derivatives of one's own -----------------------------------------------------------------------------------------


@programs(np.float32(100), floats(3))
def stability(jax: Any, large: Any, x: Any) -> Any:
    """log(1 + exp(x)), whose derivative overflows unless it is given."""
    jnp = jax.numpy

    def plain(x: Any) -> Any:
        return jnp.log(1.0 + jnp.exp(x))

    forward = jax.custom_jvp(plain)

    @forward.defjvp
    def forward_jvp(primals: Any, tangents: Any) -> Any:
        (x,), (t,) = primals, tangents
        return forward(x), (1 - 1 / (1 + jnp.exp(x))) * t

    short = jax.custom_jvp(plain)
    short.defjvps(lambda t, ans, x: (1 - 1 / (1 + jnp.exp(x))) * t)
    backward = jax.custom_vjp(plain)
    backward.defvjp(lambda x: (plain(x), x), lambda x, g: (g * (1 - 1 / (1 + jnp.exp(x))),))
    results = []
    for f in (forward, short, backward):
        results += [
            f(3.0),
            jax.grad(f)(3.0),
            jax.jit(jax.grad(f))(large),
            jax.vmap(jax.jit(f))(x),
            jax.vmap(jax.grad(f))(x),
        ]
    for f in (forward, short):
        results += [
            jax.jvp(f, (x,), (x,)),
            jax.grad(jax.grad(f))(3.0),
            jax.jacfwd(f)(x),
            jax.hessian(lambda x, f=f: f(x).sum())(x),
        ]
    return results, jax.grad(plain)(3.0)


@programs(np.float32(0), floats(3))
def conventions(jax: Any, zero: Any, x: Any) -> Any:
    """A derivative at a place where the formula gives 0/0, and one that is not defined everywhere."""
    jnp = jax.numpy

    def plain(x: Any) -> Any:
        return x / (1 + jnp.sqrt(x))

    f = jax.custom_jvp(plain)

    @f.defjvp
    def f_jvp(primals: Any, tangents: Any) -> Any:
        (x,), (t,) = primals, tangents
        root = jnp.sqrt(x)
        return f(x), ((root + 2) / (2 * (root + 1) ** 2)) * t

    return jax.grad(f)(zero), jax.grad(f)(2.0), jax.grad(plain)(2.0), jax.vmap(jax.grad(f))(x**2)


@programs(floats(4), np.float32(0.1))
def clipped_gradients(jax: Any, x: Any, bound: Any) -> Any:
    jnp = jax.numpy

    @functools.partial(jax.custom_vjp, nondiff_argnums=())
    def clip(lo: Any, hi: Any, x: Any) -> Any:
        return x

    clip.defvjp(lambda lo, hi, x: (x, (lo, hi)), lambda kept, g: (None, None, jnp.clip(g, *kept)))

    @functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
    def scaled(power: int, x: Any) -> Any:
        return x**power

    scaled.defvjp(lambda power, x: (x**power, x), lambda power, x, g: (jnp.clip(g * power * x ** (power - 1), -1, 1),))
    return (
        jax.vmap(jax.grad(jnp.sin))(x),
        jax.vmap(jax.grad(lambda x: clip(-0.75, 0.75, jnp.sin(x))))(x),
        jax.vmap(jax.grad(lambda x: jnp.sin(clip(-bound, bound, x))))(x),
        jax.jit(jax.grad(lambda x: scaled(3, x).sum()))(x),
        jax.grad(lambda x: (clip(-bound, bound, x) ** 2).sum())(x),
    )


def fixed_point(jax: Any) -> Callable[..., Any]:
    """x = f(a, x), differentiated by the implicit function theorem, the way back being a fixed point as well."""
    jnp, lax = jax.numpy, jax.lax

    @functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
    def solve(f: Any, a: Any, guess: Any) -> Any:
        def goes_on(state: Any) -> Any:
            before, x = state
            return jnp.max(jnp.abs(before - x)) > 1e-6

        return lax.while_loop(goes_on, lambda state: (state[1], f(a, state[1])), (guess, f(a, guess)))[1]

    def forward(f: Any, a: Any, guess: Any) -> Any:
        x = solve(f, a, guess)
        return x, (a, x)

    def rev_iter(f: Any, packed: Any, u: Any) -> Any:
        a, x, bar = packed
        return bar + jax.vjp(lambda x: f(a, x), x)[1](u)[0]

    def backward(f: Any, kept: Any, bar: Any) -> Any:
        a, x = kept
        _, pull = jax.vjp(lambda a: f(a, x), a)
        (a_bar,) = pull(solve(functools.partial(rev_iter, f), (a, x, bar), bar))
        return a_bar, jnp.zeros_like(x)

    solve.defvjp(forward, backward)
    return solve


@programs(np.float32(2), np.float32([2, 3, 5]))
def implicit_differentiation(jax: Any, a: Any, many: Any) -> Any:
    """Square roots: by the custom rule, and by `custom_root`."""
    jnp, lax = jax.numpy, jax.lax
    solve = fixed_point(jax)

    def root(a: Any) -> Any:
        return solve(lambda a, x: 0.5 * (x + a / x), a, a)

    def by_root(a: Any) -> Any:
        def newton(f: Any, x: Any) -> Any:
            return lax.fori_loop(0, 6, lambda _, x: x - f(x) / jax.grad(f)(x), x)

        return lax.custom_root(lambda x: x**2 - a, a, newton, lambda g, y: y / g(1.0))

    def linear(a: Any) -> Any:
        def product(v: Any) -> Any:
            return v * a + 0.1 * v.sum()

        matrix = jnp.diag(a) + 0.1
        solver = lambda _, b: jnp.linalg.solve(matrix, b)  # noqa: E731
        return lax.custom_linear_solve(product, jnp.ones(3), solver, symmetric=True)

    return (
        root(a),
        jax.grad(root)(a),
        jax.grad(jax.grad(root))(a),
        jax.jit(jax.vmap(jax.grad(root)))(many),
        jax.vmap(root)(many),
        by_root(a),
        jax.grad(by_root)(a),
        jax.jvp(by_root, (a,), (a,)),
        linear(many),
        jax.grad(lambda a: linear(a)[0])(many),
    )


@programs(floats(2), np.float32([0.2, 1.3]))
def adjoint_of_an_integrator(jax: Any, start: Any, args: Any) -> Any:
    """An integrator whose gradient is integrated backwards in time, with a function as a static argument."""
    jnp, lax = jax.numpy, jax.lax

    def velocity(y: Any, t: Any, args: Any) -> Any:
        return jnp.stack([y[1], -args[1] * jnp.sin(y[0]) - args[0] * y[1] + 0.1 * t])

    def euler(f: Any, y: Any, t0: Any, t1: Any, *args: Any) -> Any:
        h = (t1 - t0) / 8

        def step(k: Any, y: Any) -> Any:
            return jax.tree.map(lambda y, d: y + h * d, y, f(y, t0 + h * k, *args))

        return lax.fori_loop(0, 8, step, y)

    @functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
    def integrate(f: Any, y: Any, t: Any, args: Any) -> Any:
        return euler(f, y, 0.0, t, args)

    def forward(f: Any, y: Any, t: Any, args: Any) -> Any:
        end = integrate(f, y, t, args)
        return end, (end, t, args)

    def backward(f: Any, kept: Any, bar: Any) -> Any:
        end, t, args = kept

        def augmented(state: Any, s: Any, args: Any) -> Any:
            y, a, _ = state
            d, pull = jax.vjp(lambda y, args: f(y, -s, args), y, args)
            y_bar, args_bar = pull(a)
            return -d, y_bar, args_bar

        zero = jax.tree.map(jnp.zeros_like, args)
        _, y_bar, args_bar = euler(augmented, (end, bar, zero), -t, 0.0, args)
        return y_bar, jnp.vdot(bar, f(end, t, args)), args_bar

    integrate.defvjp(forward, backward)

    def loss(y: Any, t: Any, args: Any) -> Any:
        return (integrate(velocity, y, t, args) ** 2).sum()

    return (
        loss(start, 1.0, args),
        jax.grad(loss, (0, 1, 2))(start, 1.0, args),
        jax.jit(jax.grad(loss, 2))(start, 1.0, args),
    )


@programs(floats(3), np.float32(2))
def rules_of_every_form(jax: Any, x: Any, scale: Any) -> Any:
    """Trees in and out, static arguments, tangents that are missing, closures, and rules made by the function."""
    jnp = jax.numpy

    @jax.custom_jvp
    def pair(p: Any) -> Any:
        return {"hi": jnp.cos(p.w), "bye": p.w * p.b}

    @pair.defjvp
    def pair_jvp(primals: Any, tangents: Any) -> Any:
        (p,), (t,) = primals, tangents
        return pair(p), {"hi": 2.0 * t.w, "bye": p.b * t.w}

    @functools.partial(jax.custom_jvp, nondiff_argnums=(0, 2))
    def app(f: Any, x: Any, n: int) -> Any:
        return f(x) ** n

    @app.defjvp
    def app_jvp(f: Any, n: int, primals: Any, tangents: Any) -> Any:
        return app(f, primals[0], n), n * 10.0 * tangents[0]

    @jax.custom_jvp
    def product(x: Any, y: Any) -> Any:
        return jnp.sin(x) * y

    product.defjvps(lambda t, ans, x, y: jnp.cos(x) * t * y, None)

    @jax.custom_vjp
    def tupled(p: Any, k: Any) -> Any:
        return p["w"] * k, p["b"]

    tupled.defvjp(
        lambda p, k: (tupled(p, k), {"k": k}),
        lambda kept, g: ({"w": 3.0 * g[0] * kept["k"], "b": g[1]}, None),
    )

    @jax.custom_gradient
    def halved(x: Any) -> Any:
        return x**2, lambda g: (0.5 * g * x,)

    @jax.custom_vjp
    def second(x: Any) -> Any:
        return jnp.sin(x)

    second.defvjp(lambda x: (jnp.sin(x), x), lambda x, g: (jnp.cos(x) * g,))
    closed, captured = jax.closure_convert(lambda x: (x * scale).sum(), x)
    return (
        jax.grad(lambda p: jnp.sum(pair(p)["hi"] + pair(p)["bye"]))(Model(x, scale)),
        jax.jvp(lambda x: app(jnp.sin, x, 2), (x,), (x,)),
        jax.grad(lambda x: app(jnp.sin, x, 3).sum())(x),
        jax.grad(lambda x, y: product(x, y).sum(), (0, 1))(x, scale * x),
        jax.grad(lambda p: tupled(p, 2.0)[0].sum() + tupled(p, 2.0)[1])({"w": x, "b": scale}),
        jax.grad(halved)(scale),
        jax.vmap(jax.grad(jax.grad(second)))(x),
        closed(x, *captured),
        jax.vmap(jax.grad(product), (0, None))(x, scale),
        jax.lax.scan(lambda c, x: (second(c) + x, halved(c)), scale, x),
        jax.grad(lambda s: jax.lax.scan(lambda c, x: (second(c) + product(c, x), None), s, x)[0])(scale),
        jax.grad(lambda s: jax.lax.fori_loop(0, 3, lambda i, c: jax.lax.cond(c > 0, second, halved, c), s))(scale),
    )


@programs(floats(3), traced=False)
def what_rules_may_do(jax: Any, x: Any) -> Any:
    """Rules see values, and can stop or print; bad rules are errors."""
    jnp = jax.numpy
    seen: list[Any] = []

    @jax.custom_vjp
    def looked(x: Any) -> Any:
        return x

    def forward(x: Any) -> Any:
        return x, (float(x) if not isinstance(x, jax.core.Tracer) else None)

    def backward(kept: Any, g: Any) -> Any:
        seen.append((kept, float(g)))
        return (g,)

    looked.defvjp(forward, backward)
    found = jax.grad(lambda x: jnp.sin(looked(x * x)))(3.0)

    no_rule = jax.custom_jvp(lambda x: x * 2)
    assert isinstance(error_of(jax.grad(no_rule), 1.0), (AttributeError, TypeError))
    bad = jax.custom_jvp(lambda x: x * 2)
    bad.defjvp(lambda p, t: (p[0] * 2, jnp.ones(2)))
    assert isinstance(error_of(jax.grad(bad), 1.0), (TypeError, ValueError))
    few = jax.custom_vjp(lambda x, y: x * y)
    few.defvjp(lambda x, y: (x * y, (x, y)), lambda kept, g: (g,))
    assert isinstance(error_of(jax.grad(few), 1.0, 2.0), (TypeError, ValueError))
    shape = jax.custom_vjp(lambda x: x * 2)
    shape.defvjp(lambda x: (x * 2, None), lambda kept, g: (jnp.ones(3),))
    assert isinstance(error_of(jax.grad(shape), 1.0), (TypeError, ValueError))
    traced = jax.custom_jvp(lambda n, x: x * n, nondiff_argnums=(0,))
    traced.defjvp(lambda n, p, t: (p[0] * n, t[0] * n))
    return found, [g for _, g in seen], jax.grad(lambda x: traced(3, x))(2.0)


# --- checkpoints ------------------------------------------------------------------------------------------------------


def layers(jax: Any, wrap: Callable[..., Any] = lambda f: f) -> Callable[..., Any]:
    jnp = jax.numpy

    def layer(w: Any, x: Any) -> Any:
        return jnp.sin(jnp.dot(jnp.sin(jnp.dot(w, x)), x) * x)

    def chain(ws: Any, x: Any) -> Any:
        for w in ws:
            x = wrap(layer)(w, x)
        return x.sum()

    return chain


@programs(floats(3, 3, 3), floats(3))
def checkpoints(jax: Any, ws: Any, x: Any) -> Any:
    jnp, lax, policies = jax.numpy, jax.lax, jax.checkpoint_policies
    name = importlib.import_module(f"{jax.__name__}.ad_checkpoint").checkpoint_name

    def named(w: Any, x: Any) -> Any:
        return jnp.sin(name(jnp.dot(w, name(x, "x")), "product"))

    def predict(policy: Any) -> Any:
        @functools.partial(jax.checkpoint, policy=policy)
        def layer(w: Any, x: Any) -> Any:
            return named(w, x)

        return lambda ws: functools.reduce(lambda x, w: layer(w, x), ws, x).sum()

    def recursive(funs: Any) -> Any:
        if len(funs) == 1:
            return funs[0]
        half = len(funs) // 2
        first, second = recursive(funs[:half]), recursive(funs[half:])
        return lambda x: jax.checkpoint(second)(jax.checkpoint(first)(x))

    def scanned(ws: Any) -> Any:
        body = jax.checkpoint(lambda x, w: (named(w, x), None), policy=policies.dots_with_no_batch_dims_saveable)
        return lax.scan(body, x, ws)[0].sum()

    chosen = [
        None, policies.everything_saveable, policies.nothing_saveable, policies.dots_saveable,
        policies.save_only_these_names("product"),
        policies.save_any_names_but_these("x"),
        policies.save_from_both_policies(policies.dots_saveable, policies.save_only_these_names("x")),
    ]  # fmt: skip
    halved = jax.checkpoint(lambda x, is_on: jnp.sin(x) if is_on else x, static_argnums=(1,))
    return (
        [jax.grad(layers(jax, wrap))(ws, x) for wrap in (lambda f: f, jax.checkpoint, jax.remat)],
        [jax.grad(predict(policy))(ws) for policy in chosen],
        jax.grad(recursive([lambda x, k=k: jnp.sin(x) * k for k in range(1, 5)]))(0.7),
        jax.grad(scanned)(ws),
        jax.jit(jax.hessian(jax.checkpoint(lambda x: jnp.sum(jnp.sin(x) ** 2))))(x),
        jax.grad(lambda x: halved(x, True).sum())(x),
        jax.vmap(jax.grad(jax.checkpoint(jnp.sin)))(x),
        jax.linearize(jax.checkpoint(jnp.cos), x)[1](x),
    )


@programs(floats(3, 3, 3), floats(3), traced=False)
def how_much_checkpoints_keep(jax: Any, ws: Any, x: Any) -> Any:
    """Fewer values are kept with a checkpoint around each layer, and what is computed again is computed twice."""
    checkpoint = importlib.import_module(f"{jax.__name__}.ad_checkpoint")
    counts = [0]

    def counted(x: Any) -> Any:
        def add(x: Any) -> Any:
            counts[0] += 1
            return np.sin(np.asarray(x))

        y = jax.pure_callback(add, jax.ShapeDtypeStruct(x.shape, x.dtype), jax.lax.stop_gradient(x))
        return y * x * x

    for wrap in (lambda f: f, jax.checkpoint):
        jax.grad(lambda x, wrap=wrap: jax.numpy.sin(wrap(counted)(x)))(np.float32(2)).block_until_ready()
        counts.append(counts[0])
    checkpoint.print_saved_residuals(layers(jax), ws, x)
    return checkpoint.checkpoint_name(x, "x"), counts[1] < counts[2]
