"""Research programs, heavy in transformations and control flow, as users of JAX write them: each takes the package,
`jax` or `tinyxla`, and gives the same with both."""

from __future__ import annotations

import contextlib
import functools
import io
from typing import Any, NamedTuple

import jax.experimental
import jax.flatten_util  # noqa: F401 - programs take it from the package
import numpy as np
import scipy.optimize
import scipy.special

from tests.programs.harness import Programs, floats

programs = Programs()


# --- equations and derivatives ----------------------------------------------------------------------------------------


@programs(floats(2), floats(2, 8) * 0.5, floats(8, 2) * 0.5)
def neural_ode_adjoint(jax: Any, y0: Any, w1: Any, w2: Any) -> Any:
    """Neural ODE with a continuous adjoint written by custom_vjp."""
    jnp, lax = (jax.numpy, jax.lax)

    def field(p: Any, y: Any, t: Any) -> Any:
        return jnp.tanh(y @ p["w1"] + t) @ p["w2"]

    def rk4(f: Any, y: Any, t0: Any, t1: Any, n: Any, args: Any) -> Any:
        h = (t1 - t0) / n

        def step(i: Any, y: Any) -> Any:
            t = t0 + i * h
            k1 = f(args, y, t)

            def add(a: Any, s: Any, b: Any) -> Any:
                return jax.tree_util.tree_map(lambda u, v: u + s * v, a, b)

            k2 = f(args, add(y, h / 2, k1), t + h / 2)
            k3 = f(args, add(y, h / 2, k2), t + h / 2)
            k4 = f(args, add(y, h, k3), t + h)
            return jax.tree_util.tree_map(lambda y, a, b, c, d: y + h / 6 * (a + 2 * b + 2 * c + d), y, k1, k2, k3, k4)

        return lax.fori_loop(0, n, step, y)

    @functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
    def odeint(f: Any, y0: Any, ts: Any, p: Any) -> Any:
        return solve(f, y0, ts, p)

    def solve(f: Any, y0: Any, ts: Any, p: Any) -> Any:

        def piece(y: Any, span: Any) -> Any:
            y = rk4(f, y, span[0], span[1], 4, p)
            return (y, y)

        _, ys = lax.scan(piece, y0, (ts[:-1], ts[1:]))
        return jnp.concatenate([y0[None], ys])

    def fwd(f: Any, y0: Any, ts: Any, p: Any) -> Any:
        ys = solve(f, y0, ts, p)
        return (ys, (ys, ts, p))

    def bwd(f: Any, res: Any, g: Any) -> Any:
        ys, ts, p = res

        def augmented(p: Any, state: Any, t: Any) -> Any:
            y, a, _, _ = state
            dy, pull = jax.vjp(f, p, y, t)
            gp, gy, gt = pull(-a)
            return (dy, gy, gp, gt)

        def piece(carry: Any, i: Any) -> Any:
            a, gp, gt = carry
            g_t = jnp.vdot(f(p, ys[i], ts[i]), g[i])
            _y, a, gp, gt = rk4(augmented, (ys[i], a, gp, gt), ts[i], ts[i - 1], 4, p)
            return ((a + g[i - 1], gp, gt), g_t)

        zeros = jax.tree_util.tree_map(jnp.zeros_like, p)
        (a, gp, _gt), _ = lax.scan(piece, (g[-1], zeros, jnp.zeros(())), jnp.arange(len(ts) - 1, 0, -1))
        return (a, jnp.zeros_like(ts), gp)

    odeint.defvjp(fwd, bwd)
    ts = jnp.linspace(0.0, 1.0, 5)
    p = {"w1": w1, "w2": w2}

    def loss(y0: Any, p: Any) -> Any:
        return jnp.sum(odeint(field, y0, ts, p)[1:] ** 2)

    def direct(y0: Any, p: Any) -> Any:
        return jnp.sum(solve(field, y0, ts, p)[1:] ** 2)

    batch = jnp.stack([y0, -y0, 2 * y0])
    per_example = jax.vmap(jax.grad(loss, argnums=1), in_axes=(0, None))(batch, p)
    return (jax.value_and_grad(loss, argnums=(0, 1))(y0, p), jax.grad(direct)(y0, p), per_example)


@programs(floats(4, 4) * 0.2, floats(4))
def deep_equilibrium(jax: Any, w: Any, x: Any) -> Any:
    """Fixed point by while_loop; gradient by the implicit function theorem, vmapped and hessian'd."""
    jnp, lax = (jax.numpy, jax.lax)

    def f(a: Any, z: Any) -> Any:
        return jnp.tanh(a[0] @ z + a[1])

    @functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
    def fixed_point(f: Any, a: Any, z0: Any) -> Any:

        def cond(c: Any) -> Any:
            prev, now, n = c
            return (jnp.max(jnp.abs(prev - now)) > 1e-06) & (n < 100)

        def body(c: Any) -> Any:
            _, now, n = c
            return (now, f(a, now), n + 1)

        return lax.while_loop(cond, body, (z0, f(a, z0), 0))[1]

    def fwd(f: Any, a: Any, z0: Any) -> Any:
        z = fixed_point(f, a, z0)
        return (z, (a, z))

    def bwd(f: Any, res: Any, g: Any) -> Any:
        a, z = res
        _, pull_a = jax.vjp(lambda a: f(a, z), a)
        return (pull_a(fixed_point(functools.partial(rev, f), (a, z, g), jnp.zeros_like(z)))[0], jnp.zeros_like(z))

    def rev(f: Any, packed: Any, u: Any) -> Any:
        a, z, g = packed
        _, pull = jax.vjp(lambda z: f(a, z), z)
        return g + pull(u)[0]

    fixed_point.defvjp(fwd, bwd)

    def loss(w: Any, x: Any) -> Any:
        return jnp.sum(fixed_point(f, (w, x), jnp.zeros_like(x)) ** 2)

    g = jax.grad(loss, (0, 1))(w, x)
    gg = jax.grad(lambda x: jnp.sum(jax.grad(loss, 1)(w, x) ** 2))(x)
    return (g, gg, jax.vmap(jax.grad(loss, 1), (None, 0))(w, jnp.stack([x, 2 * x])))


@programs(np.float32(2.0), np.float32([0.5, 3.0, 9.0]))
def implicit_roots(jax: Any, a: Any, many: Any) -> Any:
    """custom_root with Newton and a bisection; nth derivative."""
    jnp, lax = (jax.numpy, jax.lax)

    def newton(f: Any, x0: Any) -> Any:

        def cond(s: Any) -> Any:
            x, n = s
            return (jnp.abs(f(x)) > 1e-06) & (n < 50)

        def body(s: Any) -> Any:
            x, n = s
            return (x - f(x) / jax.grad(f)(x), n + 1)

        return lax.while_loop(cond, body, (x0, 0))[0]

    def tangent_solve(g: Any, y: Any) -> Any:
        return y / g(jnp.ones_like(y))

    def cubic(a: Any) -> Any:
        return lax.custom_root(lambda x: x**3 + x - a, a / 2, newton, tangent_solve)

    def with_aux(a: Any) -> Any:

        def solve(f: Any, x0: Any) -> Any:
            x = newton(f, x0)
            return (x, {"residual": f(x) * 0, "start": x0})

        return lax.custom_root(lambda x: x**3 - a, a / 2 + 0.5, solve, tangent_solve, has_aux=True)

    return (
        cubic(a),
        jax.grad(cubic)(a),
        jax.grad(jax.grad(cubic))(a),
        jax.jvp(cubic, (a,), (1.0,)),
        jax.vmap(cubic)(many),
        jax.vmap(jax.grad(cubic))(many),
        jax.jit(jax.hessian(cubic))(a),
        jax.value_and_grad(with_aux, has_aux=True)(a),
    )


@programs(floats(5, 5), floats(5), floats(3, 5))
def implicit_linear_solves(jax: Any, m: Any, b: Any, bs: Any) -> Any:
    """custom_linear_solve with CG by while_loop; symmetric; transposed; batched."""
    jnp, lax = (jax.numpy, jax.lax)
    a = m @ m.T + 2 * jnp.eye(5)

    def cg(matvec: Any, b: Any) -> Any:

        def body(s: Any) -> Any:
            x, r, p, rr, k = s
            ap = matvec(p)
            alpha = rr / jnp.vdot(p, ap)
            x, r = (x + alpha * p, r - alpha * ap)
            new = jnp.vdot(r, r)
            return (x, r, r + new / rr * p, new, k + 1)

        s = lax.while_loop(lambda s: (s[3] > 1e-10) & (s[4] < 10), body, (jnp.zeros_like(b), b, b, jnp.vdot(b, b), 0))
        return s[0]

    def solve(a: Any, b: Any) -> Any:
        return lax.custom_linear_solve(lambda x: a @ x, b, cg, symmetric=True)

    def general(m: Any, b: Any) -> Any:
        m = m + 4 * jnp.eye(5)
        return lax.custom_linear_solve(
            lambda x: m @ x, b, lambda _, b: jnp.linalg.solve(m, b), lambda _, b: jnp.linalg.solve(m.T, b)
        )

    def f(a: Any, b: Any) -> Any:
        return jnp.sum(jnp.sin(solve(a, b)))

    def g(m: Any, b: Any) -> Any:
        return jnp.sum(jnp.sin(general(m, b)))

    return (
        solve(a, b),
        jax.grad(f, (0, 1))(a, b),
        jax.vmap(solve, (None, 0))(a, bs),
        jax.jvp(lambda b: general(m, b), (b,), (b,)),
        jax.grad(g, (0, 1))(m, b),
        jax.vmap(jax.grad(g, 1), (None, 0))(m, bs),
        jax.jacfwd(jax.grad(g, 1), 1)(m, b),
    )


@programs(floats(20, 4), floats(20), floats(8, 4), floats(8))
def hypergradients(jax: Any, x: Any, y: Any, xv: Any, yv: Any) -> Any:
    """Ridge penalties tuned through the implicit solution and through unrolled SGD with momentum."""
    jnp, lax = (jax.numpy, jax.lax)

    def inner(w: Any, lam: Any) -> Any:
        return jnp.mean((x @ w - y) ** 2) + jnp.sum(jnp.exp(lam) * w**2)

    def outer(w: Any) -> Any:
        return jnp.mean((xv @ w - yv) ** 2)

    def solved(lam: Any) -> Any:
        h = jax.hessian(inner)(jnp.zeros(4), lam)
        return -jnp.linalg.solve(h, jax.grad(inner)(jnp.zeros(4), lam))

    def implicit(lam: Any) -> Any:
        w = lax.stop_gradient(solved(lam))
        v = jax.grad(outer)(w)

        def hvp(u: Any) -> Any:
            return jax.jvp(jax.grad(lambda w: inner(w, lam)), (w,), (u,))[1]

        u = jnp.linalg.solve(jax.vmap(hvp)(jnp.eye(4)), v)
        return -jax.vjp(lambda lam: jax.grad(inner)(w, lam), lam)[1](u)[0]

    def unrolled(lam: Any) -> Any:

        def step(s: Any, _: Any) -> Any:
            w, m = s
            m = 0.5 * m + jax.grad(inner)(w, lam)
            return ((w - 0.1 * m, m), None)

        return outer(lax.scan(jax.checkpoint(step), (jnp.zeros(4), jnp.zeros(4)), None, length=30)[0][0])

    lam = jnp.full(4, -1.0)
    return (
        jax.value_and_grad(lambda part: outer(solved(part)))(lam),
        implicit(lam),
        jax.value_and_grad(unrolled)(lam),
        jax.hessian(unrolled)(lam),
    )


@programs(floats(12, 3), floats(3, 4), floats(4, 2))
def natural_gradient(jax: Any, x: Any, w1: Any, w2: Any) -> Any:
    """Fisher-vector products by linearize and linear_transpose, CG in a while_loop."""
    jnp, lax = (jax.numpy, jax.lax)
    params = {"a": w1, "b": w2}
    flat, unravel = jax.flatten_util.ravel_pytree(params)

    def logits(v: Any) -> Any:
        p = unravel(v)
        return jax.nn.log_softmax(jnp.tanh(x @ p["a"]) @ p["b"])

    y = jnp.arange(12) % 2

    def loss(v: Any) -> Any:
        return -jnp.mean(jnp.take_along_axis(logits(v), y[:, None], axis=1))

    out, push = jax.linearize(logits, flat)
    pull = jax.linear_transpose(push, flat)

    def fisher(v: Any) -> Any:
        u = push(v)
        p = jnp.exp(out)
        u = p * u - p * jnp.sum(p * u, -1, keepdims=True)
        return pull(u)[0] / 12 + 0.1 * v

    def gn(v: Any) -> Any:
        _, vjp = jax.vjp(logits, flat)
        _, t = jax.jvp(logits, (flat,), (v,))
        return vjp(jnp.exp(out) * t)[0] / 12

    g = jax.grad(loss)(flat)

    def cg(b: Any) -> Any:

        def body(c: Any) -> Any:
            x, r, p, k = c
            ap = fisher(p)
            alpha = r @ r / (p @ ap)
            r2 = r - alpha * ap
            return (x + alpha * p, r2, r2 + r2 @ r2 / (r @ r) * p, k + 1)

        return lax.while_loop(
            lambda c: (c[3] < 30) & (jnp.linalg.norm(c[1]) > 1e-05), body, (jnp.zeros_like(b), b, b, 0)
        )

    step = cg(g)
    return (g, step[0], unravel(flat - step[0]), jax.vmap(gn)(jnp.eye(flat.size)), fisher(g))


class State(NamedTuple):
    x: Any
    f: Any
    g: Any
    s: Any
    y: Any
    rho: Any
    k: Any
    failed: Any


@programs(floats(4))
def lbfgs(jax: Any, start: Any) -> Any:
    """L-BFGS with two-loop recursion and backtracking by while and cond."""
    jnp, lax = (jax.numpy, jax.lax)

    def rosenbrock(x: Any) -> Any:
        return jnp.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2) / 10

    m, n = (3, 4)

    def direction(st: Any) -> Any:

        def first(i: Any, c: Any) -> Any:
            q, alpha = c
            j = (st.k - 1 - i) % m
            a = jnp.where(i < jnp.minimum(st.k, m), st.rho[j] * (st.s[j] @ q), 0.0)
            return (q - a * st.y[j], alpha.at[j].set(a))

        q, alpha = lax.fori_loop(0, m, first, (st.g, jnp.zeros(m)))
        last = (st.k - 1) % m
        gamma = jnp.where(st.k > 0, st.s[last] @ st.y[last] / jnp.maximum(st.y[last] @ st.y[last], 1e-10), 0.1)

        def second(i: Any, r: Any) -> Any:
            j = (st.k - jnp.minimum(st.k, m) + i) % m
            b = st.rho[j] * (st.y[j] @ r)
            return lax.cond(i < st.k, lambda r: r + st.s[j] * (alpha[j] - b), lambda r: r, r)

        return -lax.fori_loop(0, m, second, gamma * q)

    def body(st: Any) -> Any:
        d = direction(st)
        slope = st.g @ d

        def search(c: Any) -> Any:
            t, _, i = c
            return (t * 0.5, rosenbrock(st.x + t * 0.5 * d), i + 1)

        t, f, i = lax.while_loop(
            lambda c: (c[1] > st.f + 0.0001 * c[0] * slope) & (c[2] < 20),
            search,
            (jnp.float32(1.0), rosenbrock(st.x + d), 0),
        )
        x = st.x + t * d
        g = jax.grad(rosenbrock)(x)
        s, y = (x - st.x, g - st.g)
        j = st.k % m
        return State(
            x,
            f,
            g,
            st.s.at[j].set(s),
            st.y.at[j].set(y),
            st.rho.at[j].set(1 / jnp.maximum(s @ y, 1e-10)),
            st.k + 1,
            i >= 20,
        )

    start = jnp.tanh(start)
    f, g = jax.value_and_grad(rosenbrock)(start)
    init = State(start, f, g, jnp.zeros((m, n)), jnp.zeros((m, n)), jnp.zeros(m), 0, False)
    return lax.while_loop(lambda s: (s.k < 4) & (jnp.linalg.norm(s.g) > 0.001) & ~s.failed, body, init)


# --- inference --------------------------------------------------------------------------------------------------------


@programs(floats(4, 4), floats(4, 6), np.int32([0, 3, 5, 1, 2, 2, 4, 0]))
def hmm_parallel(jax: Any, t: Any, e: Any, obs: Any) -> Any:
    """Forward-backward as associative scans of log matrices; Baum-Welch gradient."""
    jnp, lax = (jax.numpy, jax.lax)
    lse = jax.scipy.special.logsumexp

    def matmul(a: Any, b: Any) -> Any:
        return lse(a[..., :, :, None] + b[..., None, :, :], axis=-2)

    def posteriors(t: Any, e: Any) -> Any:
        lt, le = (jax.nn.log_softmax(t, -1), jax.nn.log_softmax(e, -1))
        like = le[:, obs].T
        elems = lt[None] + like[:, None, :]
        elems = elems.at[0].set(jnp.broadcast_to(like[0] - jnp.log(4.0), (4, 4)))
        alpha = lax.associative_scan(matmul, elems)[:, 0]
        ends = jnp.where(jnp.eye(4, dtype=bool), 0.0, -1000000000.0)
        back = jnp.concatenate([elems[1:], ends[None]])
        beta = lse(lax.associative_scan(lambda a, b: matmul(b, a), back, reverse=True), axis=-1)
        z = lse(alpha[-1])
        return (z, jnp.exp(alpha + beta - z))

    (z, post), g = jax.value_and_grad(posteriors, (0, 1), has_aux=True)(t, e)
    return (z, post, post.sum(-1), g)


@programs(floats(15, 2), floats(3, 2))
def gmm_em(jax: Any, x: Any, mu: Any) -> Any:
    """EM by while_loop on the likelihood; stick-breaking parameters by gradient."""
    jnp, lax = (jax.numpy, jax.lax)

    def logpdf(x: Any, m: Any, S: Any) -> Any:
        L = jnp.linalg.cholesky(S)
        z = jax.scipy.linalg.solve_triangular(L, x - m, lower=True)
        return -0.5 * z @ z - jnp.log(jnp.diag(L)).sum() - jnp.log(2 * jnp.pi)

    every = jax.vmap(jax.vmap(logpdf, (None, 0, 0)), (0, None, None))

    def e_step(s: Any) -> Any:
        logits = every(x, s["mu"], s["S"]) + jnp.log(s["pi"])
        return (jax.nn.softmax(logits), jax.nn.logsumexp(logits, axis=-1).sum())

    def m_step(R: Any) -> Any:
        n = R.sum(0)
        mu = R.T @ x / n[:, None]
        d = x[:, None] - mu
        S = jnp.einsum("nk,nki,nkj->kij", R, d, d) / n[:, None, None] + 0.1 * jnp.eye(2)
        return {"mu": mu, "S": S, "pi": n / n.sum()}

    init = {"mu": mu, "S": jnp.tile(jnp.eye(2), (3, 1, 1)), "pi": jnp.ones(3) / 3}

    def body(c: Any) -> Any:
        s, _old, now, n = c
        R, ll = e_step(s)
        return (m_step(R), now, ll, n + 1)

    out = lax.while_loop(
        lambda c: (c[2] - c[1] > 0.001) & (c[3] < 15), body, (init, -jnp.inf, jnp.float32(-1000000000.0), 0)
    )
    return (out, jax.grad(lambda m: e_step({**init, "mu": m})[1])(mu))


@programs(floats(5, 2), floats(6, 2))
def sinkhorn(jax: Any, x: Any, y: Any) -> Any:
    """Entropic OT in log space by while_loop, implicit differentiation of the dual by custom_vjp; unrolled too."""
    jnp, lax = (jax.numpy, jax.lax)
    lse = jax.scipy.special.logsumexp
    eps = 0.5

    def cost(x: Any, y: Any) -> Any:
        return jnp.sum((x[:, None] - y[None]) ** 2, -1)

    loga, logb = (jnp.full(5, -jnp.log(5.0)), jnp.full(6, -jnp.log(6.0)))

    def update(C: Any, f: Any) -> Any:
        g = eps * (logb - lse((f[:, None] - C) / eps, axis=0))
        return (eps * (loga - lse((g[None] - C) / eps, axis=1)), g)

    @jax.custom_vjp
    def ot(C: Any) -> Any:
        f, g = solve(C)
        P = jnp.exp((f[:, None] + g[None] - C) / eps)
        return jnp.sum(f * jnp.exp(loga)) + jnp.sum(g * jnp.exp(logb)) - eps * (P.sum() - 1)

    def solve(C: Any) -> Any:

        def cond(s: Any) -> Any:
            f, prev, _g, n = s
            return (jnp.max(jnp.abs(f - prev)) > 1e-05) & (n < 200)

        def body(s: Any) -> Any:
            f, _, _, n = s
            new, g = update(C, f)
            return (new, f, g, n + 1)

        f, _, g, _n = lax.while_loop(cond, body, (jnp.zeros(5), jnp.ones(5), jnp.zeros(6), 0))
        return (f, g)

    def fwd(C: Any) -> Any:
        f, g = solve(C)
        return (ot(C), jnp.exp((f[:, None] + g[None] - C) / eps))

    ot.defvjp(fwd, lambda P, t: (t * P,))

    def unrolled(x: Any) -> Any:
        C = cost(x, y)

        def it(f: Any, _: Any) -> Any:
            f, g = update(C, f)
            return (f, g)

        f, g = lax.scan(it, jnp.zeros(5), None, length=40)
        return jnp.mean(f) + jnp.mean(g[-1])

    return (
        jax.value_and_grad(lambda x: ot(cost(x, y)))(x),
        jax.grad(unrolled)(x),
        jax.vmap(lambda s: ot(cost(s * x, y)))(jnp.array([0.5, 1.0])),
    )


# --- simulation -------------------------------------------------------------------------------------------------------


@programs(np.float32([1.2, 0.4]), np.float32([0.1, -0.3]))
def lagrangian(jax: Any, q: Any, qd: Any) -> Any:
    """A double pendulum from its Lagrangian, and the Hamiltonian by a Legendre transform."""
    jnp, lax = (jax.numpy, jax.lax)

    def L(q: Any, v: Any) -> Any:
        t = 0.5 * v[0] ** 2 + 0.5 * (v[0] ** 2 + v[1] ** 2 + 2 * v[0] * v[1] * jnp.cos(q[0] - q[1]))
        return t + 9.8 * (2 * jnp.cos(q[0]) + jnp.cos(q[1]))

    def acceleration(q: Any, v: Any) -> Any:
        M = jax.hessian(L, 1)(q, v)
        return jnp.linalg.solve(M, jax.grad(L, 0)(q, v) - jax.jvp(lambda q: jax.grad(L, 1)(q, v), (q,), (v,))[1])

    def rk4(s: Any, _: Any) -> Any:

        def f(s: Any) -> Any:
            return (s[1], acceleration(*s))

        def add(s: Any, k: Any, h: Any) -> Any:
            return jax.tree.map(lambda a, b: a + h * b, s, k)

        k1 = f(s)
        k2 = f(add(s, k1, 0.01))
        k3 = f(add(s, k2, 0.01))
        k4 = f(add(s, k3, 0.02))
        s = jax.tree.map(lambda y, a, b, c, d: y + 0.02 / 6 * (a + 2 * b + 2 * c + d), s, k1, k2, k3, k4)
        return (s, s)

    def H(q: Any, p: Any) -> Any:
        v = jnp.linalg.solve(jax.hessian(L, 1)(q, qd * 0), p)
        return p @ v - L(q, v)

    p = jax.grad(L, 1)(q, qd)
    dq, dp = (jax.grad(H, 1)(q, p), -jax.grad(H, 0)(q, p))
    path = lax.scan(rk4, (q, qd), None, length=5)[1]
    sens = jax.jacrev(lambda q: lax.scan(rk4, (q, qd), None, length=3)[0][0])(q)
    return (acceleration(q, qd), path, jax.vmap(H)(path[0], path[1]), (dq, dp), sens)


@programs(np.random.default_rng(0).uniform(0, 4, (12, 2)).astype(np.float32), np.uint32(2))
def molecular_dynamics(jax: Any, r: Any, seed: Any) -> Any:
    """Lennard-Jones in a periodic box with cutoff masks and neighbour lists by top_k."""
    jnp, lax, random = (jax.numpy, jax.lax, jax.random)
    box = 4.0

    def displacement(a: Any, b: Any) -> Any:
        d = a - b
        return d - box * jnp.round(d / box)

    pair = jax.vmap(jax.vmap(displacement, (None, 0)), (0, None))

    def safe_norm(d: Any, axis: Any = -1) -> Any:
        d2 = jnp.sum(d**2, axis)
        ok = d2 > 0
        return jnp.where(ok, jnp.sqrt(jnp.where(ok, d2, 1.0)), 0.0)

    def energy(r: Any, scale: Any = 1.0) -> Any:
        d = safe_norm(pair(r, r)) * scale
        mask = (d > 0) & (d < 1.8)
        d = jnp.where(mask, jnp.maximum(d, 0.7), 1.0)
        return 0.5 * jnp.sum(jnp.where(mask, 4 * (d ** (-12) - d ** (-6)), 0.0))

    def neighbours(r: Any) -> Any:
        d = safe_norm(pair(r, r)) + jnp.where(jnp.eye(12, dtype=bool), jnp.inf, 0)
        nd, idx = lax.top_k(-d, 6)
        return jnp.where(-nd < 1.8, idx, 12)

    def energy_nl(r: Any, idx: Any) -> Any:
        rn = r.at[idx].get(mode="fill", fill_value=0.0)
        d = safe_norm(jax.vmap(jax.vmap(displacement, (None, 0)))(r, rn))
        mask = (idx < 12) & (d < 1.8)
        d = jnp.where(mask, jnp.maximum(d, 0.7), 1.0)
        return 0.5 * jnp.sum(jnp.where(mask, 4 * (d ** (-12) - d ** (-6)), 0.0))

    force = jax.grad(lambda r: -energy(r))
    v = random.normal(random.PRNGKey(seed), r.shape) * 0.1

    def step(s: Any, _: Any) -> Any:
        r, v, f = s
        v = v + 0.0005 * f
        r = jnp.mod(r + 0.001 * v, box)
        f = force(r)
        v = v + 0.0005 * f
        return ((r, v, f), (energy(r), 0.5 * jnp.sum(v**2)))

    idx = neighbours(r)
    pressure = -jax.grad(lambda s: energy(r, s))(1.0)
    return (lax.scan(step, (r, v, force(r)), None, length=4), jnp.sort(idx), jax.grad(energy_nl)(r, idx), pressure)


@programs(np.linspace(-1, 1, 6, dtype=np.float32))
def ray_marching(jax: Any, xs: Any) -> Any:
    """Sphere tracing by while_loop, normals by grad, shading, gradient by scene via implicit custom_jvp."""
    jnp, lax = (jax.numpy, jax.lax)

    def sdf(scene: Any, p: Any) -> Any:
        sphere = jnp.linalg.norm(p - scene["centre"]) - scene["radius"]
        plane = p[1] + 1.0
        kk = 0.3
        h = jnp.clip(0.5 + 0.5 * (plane - sphere) / kk, 0.0, 1.0)
        return plane * (1 - h) + sphere * h - kk * h * (1 - h)

    @jax.custom_jvp
    def march(scene: Any, o: Any, d: Any) -> Any:

        def cond(s: Any) -> Any:
            t, dist, n = s
            return (dist > 0.0001) & (t < 10.0) & (n < 64)

        def body(s: Any) -> Any:
            t, _, n = s
            dist = sdf(scene, o + t * d)
            return (t + dist, dist, n + 1)

        return lax.while_loop(cond, body, (jnp.float32(0), jnp.float32(1), 0))[0]

    @march.defjvp
    def march_jvp(primals: Any, tangents: Any) -> Any:
        scene, o, d = primals
        t = march(scene, o, d)
        _, num = jax.jvp(lambda s, o, d: sdf(s, o + t * d), primals, tangents)
        den = jax.grad(lambda t: sdf(scene, o + t * d))(t)
        return (t, -num / jnp.where(jnp.abs(den) < 0.001, 0.001, den))

    def shade(scene: Any, x: Any, y: Any) -> Any:
        o = jnp.array([0.0, 0.0, 3.0])
        d = jnp.stack([x, y, -2.0])
        d = d / jnp.linalg.norm(d)
        t = march(scene, o, d)
        p = o + t * d
        n = jax.grad(sdf, argnums=1)(scene, p)
        light = jnp.array([0.577, 0.577, 0.577])
        return (jnp.where(t < 10, jnp.maximum(n @ light, 0.1), 0.0), t)

    def render(scene: Any) -> Any:
        return jax.vmap(jax.vmap(functools.partial(shade, scene), (0, None)), (None, 0))(xs, xs)

    scene = {"centre": jnp.array([0.1, 0.2, 0.0]), "radius": jnp.float32(0.7)}
    image, depth = render(scene)

    def loss(s: Any) -> Any:
        return jnp.sum(jnp.where(render(s)[1] < 5, render(s)[1], 0.0))

    return (image, jnp.where(depth < 5, depth, 9.0), jax.grad(loss)(scene))


# --- sequences --------------------------------------------------------------------------------------------------------


@programs(floats(7, 4), np.int32([1, 3, 3]))
def ctc(jax: Any, logits: Any, labels: Any) -> Any:
    """CTC loss by scan over time; gradient, vmap with lengths; Viterbi."""
    jnp, lax = (jax.numpy, jax.lax)
    L = 2 * 3 + 1
    ext = jnp.zeros(L, jnp.int32).at[1::2].set(labels)
    skip = jnp.concatenate([jnp.zeros(2, bool), (ext[2:] != ext[:-2]) & (ext[2:] != 0)])
    NEG = -100000.0

    def loss(logits: Any, length: Any) -> Any:
        logp = jax.nn.log_softmax(logits)
        a0 = jnp.full(L, NEG).at[0].set(logp[0, 0]).at[1].set(logp[0, ext[1]])

        def step(a: Any, ti: Any) -> Any:
            t, row = ti
            s1 = jnp.pad(a[:-1], (1, 0), constant_values=NEG)
            s2 = jnp.where(skip, jnp.pad(a[:-2], (2, 0), constant_values=NEG), NEG)
            new = jnp.logaddexp(jnp.logaddexp(a, s1), s2) + row[ext]
            return (jnp.where(t < length, new, a), None)

        a, _ = lax.scan(step, a0, (jnp.arange(1, 7), logp[1:]))
        return -jnp.logaddexp(a[-1], a[-2])

    grads = jax.vmap(jax.value_and_grad(loss), (None, 0))(logits, jnp.array([5, 6, 7]))
    return (grads, jax.vmap(loss, (0, None))(jnp.stack([logits, -logits]), 7))


@programs(np.int32([3, 1, 4, 1]), np.uint32(1))
def transformer_kv_cache(jax: Any, prompt: Any, seed: Any) -> Any:
    """A causal transformer: the whole pass, decoding with a cache, and training."""
    jnp, lax, random = (jax.numpy, jax.lax, jax.random)
    V, D, H, T, NL = (7, 8, 2, 8, 2)

    def init(key: Any) -> Any:
        ks = random.split(key, 3)

        def layer(k: Any) -> Any:
            return {
                n: random.normal(kk, s) * s[0] ** (-0.5)
                for n, kk, s in zip(
                    ("qkv", "o", "up", "down"),
                    random.split(k, 4),
                    ((D, 3 * D), (D, D), (D, 2 * D), (2 * D, D)),
                    strict=False,
                )
            }

        return {
            "emb": random.normal(ks[0], (V, D)),
            "pos": random.normal(ks[1], (T, D)) * 0.1,
            "layers": jax.vmap(layer)(random.split(ks[2], NL)),
        }

    p = init(random.key(seed))

    def norm(x: Any) -> Any:
        return (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-05)

    def heads(x: Any) -> Any:
        return x.reshape(*x.shape[:-1], H, D // H)

    def block(x: Any, part: Any) -> Any:
        q, k, v = map(heads, jnp.split(norm(x) @ part["qkv"], 3, -1))
        s = jnp.einsum("thd,shd->hts", q, k) / np.sqrt(D // H)
        n = x.shape[0]
        s = jnp.where(jnp.tril(jnp.ones((n, n), bool)), s, jnp.finfo(s.dtype).min)
        x = x + jnp.einsum("hts,shd->thd", jax.nn.softmax(s), v).reshape(n, D) @ part["o"]
        return (x + jax.nn.gelu(norm(x) @ part["up"]) @ part["down"], None)

    def full(p: Any, tokens: Any) -> Any:
        x = p["emb"][tokens] + p["pos"][: tokens.shape[0]]
        x, _ = lax.scan(
            jax.checkpoint(block, policy=jax.checkpoint_policies.dots_with_no_batch_dims_saveable), x, p["layers"]
        )
        return norm(x) @ p["emb"].T

    def decode_one(p: Any, cache: Any, token: Any, i: Any) -> Any:
        x = p["emb"][token] + lax.dynamic_index_in_dim(p["pos"], i, keepdims=False)

        def layer(x: Any, lc: Any) -> Any:
            part, kc, vc = lc
            q, k, v = map(heads, jnp.split(norm(x) @ part["qkv"], 3, -1))
            kc = lax.dynamic_update_slice(kc, k[None], (i, 0, 0))
            vc = lax.dynamic_update_slice_in_dim(vc, v[None], i, axis=0)
            s = jnp.einsum("hd,shd->hs", q, kc) / np.sqrt(D // H)
            s = jnp.where(jnp.arange(T) <= i, s, -jnp.inf)
            x = x + jnp.einsum("hs,shd->hd", jax.nn.softmax(s), vc).reshape(D) @ part["o"]
            return (x + jax.nn.gelu(norm(x) @ part["up"]) @ part["down"], (kc, vc))

        x, cache = lax.scan(layer, x, (p["layers"], *cache))
        return (norm(x) @ p["emb"].T, cache)

    def generate(p: Any, prompt: Any) -> Any:
        tokens = jnp.zeros(T, jnp.int32).at[:4].set(prompt)
        cache = (jnp.zeros((NL, T, H, D // H)),) * 2

        def body(i: Any, c: Any) -> Any:
            tokens, cache, logits = c
            out, cache = decode_one(p, cache, tokens[i], i)
            nxt = jnp.argmax(out).astype(jnp.int32)
            tokens = tokens.at[i + 1].set(jnp.where(i + 1 < 4, tokens[i + 1], nxt), mode="drop")
            return (tokens, cache, logits.at[i].set(out))

        return lax.fori_loop(0, T, body, (tokens, cache, jnp.zeros((T, V))))

    tokens, _cache, logits = generate(p, prompt)
    same = jnp.max(jnp.abs(full(p, tokens) - logits)) < 0.001

    def loss(p: Any) -> Any:
        lp = jax.nn.log_softmax(full(p, prompt[:-1]))
        return -jnp.take_along_axis(lp, prompt[1:, None], 1).mean()

    return (tokens, logits, same, jax.value_and_grad(loss)(p))


@programs(floats(5, 5), floats(5))
def beam_search(jax: Any, t: Any, start: Any) -> Any:
    """Beam search by while_loop with top_k, finished masks and backpointers; vmap over starts."""
    jnp, lax = (jax.numpy, jax.lax)
    K, V, T = (3, 5, 6)

    def search(start: Any) -> Any:
        lp = jax.nn.log_softmax(t, axis=-1)
        scores, tok = lax.top_k(jax.nn.log_softmax(start), K)
        seqs = jnp.zeros((K, T), jnp.int32).at[:, 0].set(tok)

        def cond(s: Any) -> Any:
            i, _seqs, _scores, done = s
            return jnp.logical_and(i < T, jnp.logical_not(jnp.all(done)))

        def body(s: Any) -> Any:
            i, seqs, scores, done = s
            last = lax.dynamic_index_in_dim(seqs, i - 1, axis=1, keepdims=False)
            step = jnp.where(done[:, None], jnp.where(jnp.arange(V) == 0, 0.0, -jnp.inf), lp[last])
            total = scores[:, None] + step
            scores, flat = lax.top_k(total.reshape(-1), K)
            beam, tok = jnp.divmod(flat, V)
            seqs = seqs[beam].at[:, i].set(tok)
            return (i + 1, seqs, scores, done[beam] | (tok == 0))

        return lax.while_loop(cond, body, (1, seqs, scores, tok == 0))

    return (search(start), jax.vmap(search)(jnp.stack([start, -start, start[::-1]])))


@programs(floats(7, 3))
def decision_tree(jax: Any, x: Any) -> Any:
    """A tree of nested conds and a table of leaves by switch; soft tree's gradient; vmapped switch."""
    jnp, lax = (jax.numpy, jax.lax)
    feature, threshold = (jnp.array([0, 1, 2, 0, 1, 2, 0]), jnp.linspace(-0.5, 0.5, 7))
    leaves = [
        lambda v: v.sum(),
        lambda v: v.prod(),
        lambda v: jnp.max(v),
        lambda v: -v[0],
        lambda v: jnp.sin(v[1]),
        lambda v: v @ v,
        lambda v: jnp.float32(1),
        lambda v: jnp.linalg.norm(v),
    ]

    def leaf(v: Any) -> Any:
        return lax.fori_loop(0, 3, lambda _, n: 2 * n + 1 + (v[feature[n]] > threshold[n]).astype(jnp.int32), 0) - 7

    def predict(v: Any) -> Any:
        return lax.switch(leaf(v), leaves, v)

    def nested(v: Any) -> Any:
        return lax.cond(
            v[0] > 0,
            lambda v: lax.cond(v[1] > 0, jnp.sum, jnp.prod, v),
            lambda v: lax.cond(v[2] > 0, lambda v: v @ v, jnp.max, v),
            v,
        )

    return (
        jax.vmap(leaf)(x),
        jax.vmap(jax.value_and_grad(predict))(x),
        jax.vmap(nested)(x),
        jax.vmap(jax.hessian(nested))(x),
        lax.map(predict, x),
    )


# --- learning ---------------------------------------------------------------------------------------------------------


@programs(floats(3, 5, 1), floats(3, 5, 1), floats(1, 8), floats(8, 1))
def maml(jax: Any, xs: Any, noise: Any, w1: Any, w2: Any) -> Any:
    """Two inner steps by scan, meta gradient through them, vmap over tasks, Adam outside."""
    jnp, lax = (jax.numpy, jax.lax)
    tree_map = jax.tree_util.tree_map

    def net(p: Any, x: Any) -> Any:
        (w, b), (v, c) = p
        return jnp.tanh(x @ w + b) @ v + c

    def loss(p: Any, batch: Any) -> Any:
        x, y = batch
        return jnp.mean((net(p, x) - y) ** 2)

    def adapt(p: Any, batch: Any, rate: Any) -> Any:

        def inner(p: Any, _: Any) -> Any:
            value, g = jax.value_and_grad(loss)(p, batch)
            return (tree_map(lambda p, g: p - rate * g, p, g), value)

        return lax.scan(inner, p, None, length=2)

    def meta(p: Any, rate: Any, train: Any, test: Any) -> Any:
        adapted, values = adapt(p, train, rate)
        return (loss(adapted, test), values)

    params = [(w1, jnp.zeros(8)), (w2, jnp.zeros(1))]
    amplitudes = jnp.array([0.5, 1.0, 2.0])
    ys = amplitudes[:, None, None] * jnp.sin(xs)

    def batched(p: Any, rate: Any) -> Any:
        part, v = jax.vmap(meta, (None, None, 0, 0))(
            p, rate, (xs, ys), (xs + noise, amplitudes[:, None, None] * jnp.sin(xs + noise))
        )
        return (part.mean(), v)

    @jax.jit
    def outer(p: Any, rate: Any) -> Any:
        (value, aux), (g, gr) = jax.value_and_grad(batched, (0, 1), has_aux=True)(p, rate)
        return (tree_map(lambda p, g: p - 0.01 * g, p, g), value, gr, aux)

    results = []
    for _ in range(3):
        params, value, gr, aux = outer(params, 0.1)
        results.append((value, gr, aux))
    return (params, results)


@programs(floats(8, 2), floats(3, 6), floats(6, 2), floats(2, 6), floats(6, 1), np.uint32(0))
def gan(jax: Any, data: Any, g1: Any, g2: Any, d1: Any, d2: Any, seed: Any) -> Any:
    """Alternating updates with tree-wise Adam; critic steps in a fori_loop; gradient penalty."""
    jnp, lax, random = (jax.numpy, jax.lax, jax.random)

    def gen(p: Any, z: Any) -> Any:
        return jnp.tanh(z @ p[0]) @ p[1]

    def disc(p: Any, x: Any) -> Any:
        return (jax.nn.leaky_relu(x @ p[0], 0.2) @ p[1])[..., 0]

    def adam(p: Any, g: Any, s: Any, lr: Any = 0.01) -> Any:
        m, v, t = s
        t = t + 1
        m = jax.tree_util.tree_map(lambda m, g: 0.5 * m + 0.5 * g, m, g)
        v = jax.tree_util.tree_map(lambda v, g: 0.9 * v + 0.1 * g * g, v, g)
        return (
            jax.tree_util.tree_map(
                lambda p, m, v: p - lr * m / (1 - 0.5**t) / (jnp.sqrt(v / (1 - 0.9**t)) + 1e-08), p, m, v
            ),
            (m, v, t),
        )

    def d_loss(d: Any, g: Any, key: Any) -> Any:
        k1, k2 = random.split(key)
        fake = lax.stop_gradient(gen(g, random.normal(k1, (8, 3))))
        mix = random.uniform(k2, (8, 1))
        between = mix * data + (1 - mix) * fake
        slopes = jax.vmap(jax.grad(disc, argnums=1), in_axes=(None, 0))(d, between)
        penalty = jnp.mean((jnp.linalg.norm(slopes, axis=-1) - 1) ** 2)
        return disc(d, fake).mean() - disc(d, data).mean() + penalty

    def g_loss(g: Any, d: Any, key: Any) -> Any:
        return -disc(d, gen(g, random.normal(key, (8, 3)))).mean()

    def step(s: Any, key: Any) -> Any:
        g, d, sg, sd = s
        keys = random.split(key, 3)

        def critic(i: Any, c: Any) -> Any:
            d, sd = c
            return adam(d, jax.grad(d_loss)(d, g, keys[i]), sd)

        d, sd = lax.fori_loop(0, 2, critic, (d, sd))
        part, gg = jax.value_and_grad(g_loss)(g, d, keys[2])
        g, sg = adam(g, gg, sg)
        return ((g, d, sg, sd), part)

    g, d = ((g1, g2), (d1, d2))

    def z(p: Any) -> Any:
        return (jax.tree.map(jnp.zeros_like, p), jax.tree.map(jnp.zeros_like, p), 0)

    return lax.scan(step, (g, d, z(g), z(d)), random.split(random.PRNGKey(seed), 3))


@programs(floats(5, 2), floats(2, 1, 8) * 0.3, floats(2, 8, 2) * 0.3)
def real_nvp(jax: Any, x: Any, w1: Any, w2: Any) -> Any:
    """Coupling flow stacked by scan; log-det agrees with jacfwd's slogdet; inverse; training."""
    jnp, lax = (jax.numpy, jax.lax)

    def shift_scale(p: Any, a: Any) -> Any:
        h = jnp.tanh(a @ p["w1"]) @ p["w2"]
        s, t = jnp.split(h, 2, -1)
        return (jnp.tanh(s), t)

    def couple(p: Any, x: Any) -> Any:
        a, b = jnp.split(x, 2)
        s, t = shift_scale(p, a)
        return (jnp.concatenate([b * jnp.exp(s) + t, a]), s.sum())

    def forward(p: Any, x: Any) -> Any:

        def step(c: Any, p: Any) -> Any:
            x, ld = c
            x, d = couple(p, x)
            return ((x, ld + d), None)

        return lax.scan(step, (x, 0.0), p)[0]

    def inverse(p: Any, y: Any) -> Any:

        def step(y: Any, p: Any) -> Any:
            b, a = jnp.split(y, 2)
            s, t = shift_scale(p, a)
            return (jnp.concatenate([a, (b - t) * jnp.exp(-s)]), None)

        return lax.scan(step, y, p, reverse=True)[0]

    p = {"w1": w1, "w2": w2}
    y, ld = jax.vmap(forward, (None, 0))(p, x)
    dets = jax.vmap(lambda x: tuple(jnp.linalg.slogdet(jax.jacfwd(lambda x: forward(p, x)[0])(x))))(x)

    def nll(p: Any) -> Any:
        return -jnp.mean(jax.vmap(lambda x: (lambda z, part: part - 0.5 * z @ z)(*forward(p, x)))(x))

    return (y, ld, dets, jax.vmap(inverse, (None, 0))(p, y), jax.value_and_grad(nll)(p))


@programs(floats(6, 3), floats(3, 8) * 0.5, floats(8, 3) * 0.5, np.uint32(5))
def score_matching(jax: Any, x: Any, w1: Any, w2: Any, seed: Any) -> Any:
    """Exact score matching by jacobian trace, sliced by jvp, denoising; Langevin sampling."""
    jnp, lax, random = (jax.numpy, jax.lax, jax.random)

    def score(p: Any, x: Any) -> Any:
        return jax.nn.softplus(x @ p["a"]) @ p["b"] - x

    p = {"a": w1, "b": w2}

    def exact(p: Any) -> Any:

        def one(x: Any) -> Any:
            return jnp.trace(jax.jacrev(score, argnums=1)(p, x)) + 0.5 * jnp.sum(score(p, x) ** 2)

        return jax.vmap(one)(x).mean()

    def sliced(p: Any, key: Any) -> Any:

        def one(x: Any, v: Any) -> Any:
            s, jv = jax.jvp(lambda x: score(p, x), (x,), (v,))
            return v @ jv + 0.5 * (v @ s) ** 2

        return jax.vmap(one)(x, random.normal(key, x.shape)).mean()

    def energy_based(p: Any) -> Any:

        def e(x: Any) -> Any:
            return -0.5 * jnp.sum(jnp.tanh(x @ p["a"]) ** 2) - 0.5 * x @ x

        def one(x: Any) -> Any:
            return jnp.trace(jax.hessian(e)(x)) + 0.5 * jnp.sum(jax.grad(e)(x) ** 2)

        return jax.vmap(one)(x).mean()

    key = random.PRNGKey(seed)

    def langevin(key: Any, x: Any) -> Any:

        def step(x: Any, k: Any) -> Any:
            return (x + 0.05 * score(p, x) + jnp.sqrt(0.1) * random.normal(k, x.shape), None)

        return lax.scan(step, x, random.split(key, 5))[0]

    return (
        jax.value_and_grad(exact)(p),
        jax.value_and_grad(sliced)(p, key),
        jax.value_and_grad(energy_based)(p),
        jax.vmap(langevin)(random.split(key, 6), x),
    )


@programs(floats(1, 8), floats(8), floats(8, 1), floats(6), floats(6))
def pinn(jax: Any, w1: Any, b1: Any, w2: Any, xs: Any, ts: Any) -> Any:
    """Burgers' residual by grad of grad of vmap; loss by two optimisers."""
    jnp, lax = (jax.numpy, jax.lax)

    def u(p: Any, t: Any, x: Any) -> Any:
        h = jnp.tanh(jnp.array([t, x]) @ p["w1"] + p["b1"])
        return jnp.dot(h, p["w2"])[0]

    def residual(p: Any, t: Any, x: Any) -> Any:
        u_t = jax.grad(u, 1)(p, t, x)
        u_x = jax.grad(u, 2)
        u_xx = jax.grad(u_x, 2)
        return u_t + u(p, t, x) * u_x(p, t, x) - 0.01 / jnp.pi * u_xx(p, t, x)

    p = {"w1": jnp.vstack([w1, -w1]), "b1": b1, "w2": w2}

    def loss(p: Any) -> Any:
        f = jax.vmap(residual, (None, 0, 0))(p, ts, xs)
        i = jax.vmap(u, (None, None, 0))(p, 0.0, xs) + jnp.sin(jnp.pi * xs)
        return jnp.mean(f**2) + jnp.mean(i**2)

    flat, un = jax.flatten_util.ravel_pytree(p)

    def gauss_newton(flat: Any, _: Any) -> Any:

        def r(v: Any) -> Any:
            return jax.vmap(residual, (None, 0, 0))(un(v), ts, xs)

        J = jax.jacrev(r)(flat)
        d = J.T @ jnp.linalg.solve(J @ J.T + 0.1 * jnp.eye(6), r(flat))
        return (flat - 0.1 * d, jnp.sum(r(flat) ** 2))

    v, g = jax.jit(jax.value_and_grad(loss))(p)
    return (v, g, lax.scan(gauss_newton, flat, None, length=3))


@programs(floats(4, 2), np.uint32(7))
def actor_critic(jax: Any, w: Any, seed: Any) -> Any:
    """Rollouts by scan with resets, advantages by reverse scan, clipped objective, minibatches by permutation."""
    jnp, lax, random = (jax.numpy, jax.lax, jax.random)

    def env_step(s: Any, a: Any, key: Any) -> Any:
        pos, vel, t = s
        vel = vel + 0.1 * (2.0 * a - 1)
        pos = pos + 0.1 * vel
        done = (jnp.abs(pos) > 0.3) | (t >= 4)
        fresh = (random.uniform(key, minval=-0.1, maxval=0.1), jnp.zeros(()), 0)
        nxt = jax.tree.map(lambda a, b: jnp.where(done, a, b), fresh, (pos, vel, t + 1))
        return (nxt, -jnp.abs(pos), done)

    def feats(s: Any) -> Any:
        return jnp.stack([s[0], s[1], jnp.sin(s[0]), jnp.ones_like(s[0])], -1)

    p = {"pi": w, "v": jnp.zeros(4)}

    def rollout(p: Any, key: Any) -> Any:

        def step(s: Any, key: Any) -> Any:
            ka, ke = random.split(key)
            logits = feats(s) @ p["pi"]
            a = random.categorical(ka, logits)
            nxt, r, d = env_step(s, a, ke)
            return (nxt, (feats(s), a, jax.nn.log_softmax(logits)[a], r, d, feats(s) @ p["v"]))

        return lax.scan(step, (jnp.zeros(()), jnp.zeros(()), 0), random.split(key, 12))

    def gae(v: Any, r: Any, d: Any, last: Any) -> Any:

        def back(c: Any, x: Any) -> Any:
            adv, nxt = c
            v, r, d = x
            delta = r + 0.9 * nxt * (1 - d) - v
            adv = delta + 0.9 * 0.95 * (1 - d) * adv
            return ((adv, v), adv)

        return lax.scan(back, (jnp.zeros(()), last), (v, r, d.astype(jnp.float32)), reverse=True)[1]

    def loss(p: Any, f: Any, a: Any, old: Any, adv: Any, ret: Any) -> Any:
        lp = jax.nn.log_softmax(f @ p["pi"])
        ratio = jnp.exp(jnp.take_along_axis(lp, a[:, None], 1)[:, 0] - old)
        clip = jnp.minimum(ratio * adv, jnp.clip(ratio, 0.8, 1.2) * adv)
        return -clip.mean() + 0.5 * jnp.mean((f @ p["v"] - ret) ** 2) + 0.01 * jnp.sum(jnp.exp(lp) * lp, -1).mean()

    def update(p: Any, key: Any) -> Any:
        kr, kp = random.split(key)
        s, (f, a, old, r, d, v) = rollout(p, kr)
        adv = gae(v, r, d, feats(s) @ p["v"])
        data = (f, a, old, (adv - adv.mean()) / (adv.std() + 1e-06), adv + v)
        perm = random.permutation(kp, 12)
        batches = jax.tree.map(lambda x: x[perm].reshape(3, 4, *x.shape[1:]), data)

        def mini(p: Any, b: Any) -> Any:
            part, g = jax.value_and_grad(loss)(p, *b)
            norm = jnp.sqrt(sum(jnp.sum(x**2) for x in jax.tree.leaves(g)))
            g = jax.tree.map(lambda x: x * jnp.minimum(1.0, 0.5 / (norm + 1e-06)), g)
            return (jax.tree.map(lambda a, b: a - 0.1 * b, p, g), part)

        p, ls = lax.scan(mini, p, batches)
        return (p, (ls, r.sum(), d.sum()))

    return lax.scan(update, p, random.split(random.PRNGKey(seed), 3))


@programs(floats(6, 4), floats(4, 3), floats(6, 3))
def quantised_training(jax: Any, x: Any, w: Any, y: Any) -> Any:
    """Straight-through rounding by custom_vjp and by stop_gradient; int8 matmul; per-channel scales."""
    jnp, lax = (jax.numpy, jax.lax)

    @functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
    def fake_quant(x: Any, scale: Any, bits: Any) -> Any:
        n = 2 ** (bits - 1) - 1
        return jnp.clip(jnp.round(x / scale), -n, n) * scale

    def fwd(x: Any, scale: Any, bits: Any) -> Any:
        n = 2 ** (bits - 1) - 1
        return (fake_quant(x, scale, bits), (jnp.abs(x / scale) <= n, x, scale))

    def bwd(bits: Any, res: Any, g: Any) -> Any:
        inside, x, scale = res
        return (
            jnp.where(inside, g, 0),
            jnp.sum(jnp.where(inside, jnp.round(x / scale) - x / scale, jnp.sign(x)) * g, 0),
        )

    fake_quant.defvjp(fwd, bwd)

    def ste(x: Any) -> Any:
        return x + lax.stop_gradient(jnp.sign(x) - x)

    def loss(p: Any, bits: Any) -> Any:
        wq = fake_quant(p["w"], p["s"], bits)
        return jnp.mean((jnp.tanh(x @ wq) * ste(x[:, :3]) - y) ** 2)

    p = {"w": w, "s": jnp.max(jnp.abs(w), 0) / 7.3}  # no weight is at the limit, where rounding decides

    @functools.partial(jax.jit, static_argnums=1)
    def step(p: Any, bits: Any) -> Any:
        v, g = jax.value_and_grad(loss)(p, bits)
        return (jax.tree.map(lambda a, b: a - 0.1 * b, p, g), v)

    out = []
    for bits in (4, 4, 8):
        p, v = step(p, bits)
        out.append(v)
    xi = jnp.clip(jnp.round(x * 20), -128, 127).astype(jnp.int8)
    wi = jnp.clip(jnp.round(w * 20), -128, 127).astype(jnp.int8)
    acc = lax.dot(xi, wi, preferred_element_type=jnp.int32)
    return (
        p,
        out,
        acc,
        lax.dot_general(xi, wi, (((1,), (0,)), ((), ())), preferred_element_type=jnp.int32),
        jax.vmap(jax.grad(loss), ({"w": 0, "s": None}, None))({"w": jnp.stack([w, 2 * w]), "s": p["s"]}, 4),
    )


@programs(floats(8, 5), floats(5), floats(8), np.uint32(1))
def private_accumulated_sgd(jax: Any, x: Any, w: Any, y: Any, seed: Any) -> Any:
    """Per-example clipping and noise; gradient accumulation by scan of microbatches; global norms."""
    jnp, lax, random = (jax.numpy, jax.lax, jax.random)

    def loss(p: Any, x: Any, y: Any) -> Any:
        return jnp.mean((jnp.tanh(x @ p["w"]) * p["scale"] - y) ** 2)

    def gnorm(t: Any) -> Any:
        return jnp.sqrt(jax.tree_util.tree_reduce(lambda a, b: a + jnp.vdot(b, b), t, 0.0))

    def private(p: Any, key: Any) -> Any:

        def one(x: Any, y: Any) -> Any:
            g = jax.grad(loss)(p, x, y)
            n = gnorm(g)
            return (jax.tree.map(lambda part: part / jnp.maximum(1.0, n / 0.5), g), n)

        g, n = jax.vmap(one)(x, y)
        leaves, treedef = jax.tree.flatten(jax.tree.map(lambda part: part.sum(0), g))
        noisy = [
            part + 0.1 * random.normal(k, part.shape)
            for part, k in zip(leaves, random.split(key, len(leaves)), strict=False)
        ]
        return (jax.tree.unflatten(treedef, noisy), n)

    def accumulated(p: Any) -> Any:
        micro = (x.reshape(4, 2, 5), y.reshape(4, 2))

        def body(c: Any, b: Any) -> Any:
            v, g = jax.value_and_grad(loss)(p, *b)
            return ((c[0] + v, jax.tree.map(jnp.add, c[1], g)), None)

        (v, g), _ = lax.scan(body, (0.0, jax.tree.map(jnp.zeros_like, p)), micro)
        return (jax.tree.map(lambda part: part / 4, g), v / 4)

    p = {"w": w, "scale": jnp.float32(1.0)}
    g1, _v1 = accumulated(p)
    _v2, g2 = jax.value_and_grad(loss)(p, x, y)
    ok = jnp.array(
        [jnp.allclose(a, b, atol=1e-05) for a, b in zip(jax.tree.leaves(g1), jax.tree.leaves(g2), strict=False)]
    )

    def clip_by_global_norm(g: Any, m: Any) -> Any:
        n = gnorm(g)
        return lax.cond(n > m, lambda g: jax.tree.map(lambda part: part * (m / n), g), lambda g: g, g)

    return (private(p, random.key(seed)), g1, ok, clip_by_global_norm(g2, 0.1))


@programs(floats(10, 4), floats(4), np.float32([0, 1] * 5))
def sam_and_influence(jax: Any, x: Any, w: Any, y: Any) -> Any:
    """Sharpness-aware steps; influence of each training point on a test loss via inverse Hessian-vector products."""
    jnp, lax = (jax.numpy, jax.lax)

    def one(w: Any, x: Any, y: Any) -> Any:
        z = x @ w
        return jax.nn.softplus(z) - y * z + 0.05 * w @ w

    def loss(w: Any) -> Any:
        return jax.vmap(one, (None, 0, 0))(w, x, y).mean()

    def sam(w: Any, _: Any) -> Any:
        g = jax.grad(loss)(w)
        e = 0.05 * g / (jnp.linalg.norm(g) + 1e-12)
        return (w - 0.5 * jax.grad(loss)(w + e), loss(w))

    w, path = lax.scan(sam, w, None, length=20)

    def hvp(v: Any) -> Any:
        return jax.jvp(jax.grad(loss), [w], [v])[1]

    test = jax.grad(one)(w, x[0] * 0.5, 1.0)

    def lissa(v: Any) -> Any:
        return lax.fori_loop(0, 30, lambda _, h: v + h - hvp(h), v)

    s = lissa(test)
    exact = jnp.linalg.solve(jax.hessian(loss)(w), test)
    each = jax.vmap(jax.grad(one), (None, 0, 0))(w, x, y)
    jac = jax.jacobian(lambda v: jax.vmap(one, (None, 0, 0))(v, x, y))(w)
    return (w, path, s, exact, -each @ exact, jac)


@programs(floats(5, 3), floats(5))
def optax_like(jax: Any, x: Any, y: Any) -> Any:
    """Chained gradient transformations; schedules; masked weight decay; lookahead."""
    jnp, lax = (jax.numpy, jax.lax)
    tm = jax.tree.map

    def scale_by_adam(b1: Any = 0.9, b2: Any = 0.99, eps: Any = 1e-08) -> Any:

        def init(p: Any) -> Any:
            return (jnp.zeros([], jnp.int32), tm(jnp.zeros_like, p), tm(jnp.zeros_like, p))

        def update(g: Any, s: Any, p: Any = None) -> Any:
            c, m, v = s
            c = c + 1
            m = tm(lambda m, g: b1 * m + (1 - b1) * g, m, g)
            v = tm(lambda v, g: b2 * v + (1 - b2) * jnp.square(g), v, g)
            u = tm(lambda m, v: m / (1 - b1**c) / (jnp.sqrt(v / (1 - b2**c)) + eps), m, v)
            return (u, (c, m, v))

        return (init, update)

    def schedule(fn: Any) -> Any:
        return (lambda p: jnp.zeros([], jnp.int32), lambda g, s, p=None: (tm(lambda g: -fn(s) * g, g), s + 1))

    def decay(rate: Any, mask: Any) -> Any:
        return (lambda p: (), lambda g, s, p: (tm(lambda g, p, m: g + rate * p if m else g, g, p, mask), s))

    def chain(*ts: Any) -> Any:

        def init(p: Any) -> Any:
            return tuple(t[0](p) for t in ts)

        def update(g: Any, s: Any, p: Any) -> Any:
            out = []
            for (_, up), st in zip(ts, s, strict=False):
                g, st = up(g, st, p)
                out.append(st)
            return (g, tuple(out))

        return (init, update)

    def warmup_cosine(t: Any) -> Any:
        return jnp.where(t < 3, 0.1 * (t + 1) / 3, 0.05 * (1 + jnp.cos(jnp.pi * (t - 3) / 10)))

    init, update = chain(scale_by_adam(), decay(0.01, {"w": True, "b": False}), schedule(warmup_cosine))

    def loss(p: Any) -> Any:
        return jnp.mean(jnp.square(x @ p["w"] + p["b"] - y))

    def step(c: Any, i: Any) -> Any:
        p, slow, s = c
        v, g = jax.value_and_grad(loss)(p)
        u, s = update(g, s, p)
        p = tm(jnp.add, p, u)
        slow, p = lax.cond(
            i % 2 == 1, lambda: (lambda n: (n, n))(tm(lambda a, b: a + 0.5 * (b - a), slow, p)), lambda: (slow, p)
        )
        return ((p, slow, s), v)

    p = {"w": jnp.zeros(3), "b": jnp.zeros(())}
    return lax.scan(step, (p, p, init(p)), jnp.arange(6))


# --- packages around --------------------------------------------------------------------------------------------------


@programs(floats(4, 6, 3), floats(3, 2), floats(2))
def ensembles_with_axes(jax: Any, x: Any, w: Any, b: Any) -> Any:
    """Gradients and batch norm over a named axis; axis_index, all_gather, ppermute."""
    jnp, lax = (jax.numpy, jax.lax)

    def bn(h: Any, axis: Any) -> Any:
        mean = lax.pmean(h.mean(0), axis)
        var = lax.pmean(((h - mean) ** 2).mean(0), axis)
        return (h - mean) * lax.rsqrt(var + 1e-05)

    def loss(p: Any, x: Any) -> Any:
        h = bn(x @ p["w"] + p["b"], "data")
        return jnp.mean(jnp.sin(h))

    def step(p: Any, x: Any) -> Any:
        v, g = jax.value_and_grad(loss)(p, x)
        g = jax.tree.map(lambda part: lax.pmean(part, "data"), g)
        i = lax.axis_index("data")
        everyone = lax.all_gather(v, "data")
        nxt = lax.ppermute(v, "data", [(j, (j + 1) % 4) for j in range(4)])
        return (
            jax.tree.map(lambda a, b: a - 0.1 * b, p, g),
            (lax.psum(1, "data"), i, everyone[i], nxt, lax.pmax(v, "data")),
        )

    p = {"w": w, "b": b}
    new, aux = jax.vmap(step, in_axes=(None, 0), out_axes=(None, 0), axis_name="data")(p, x)
    models = jax.tree.map(lambda part: jnp.stack([part, part * 0.5]), p)
    both = jax.vmap(jax.vmap(step, (None, 0), axis_name="data"), (0, None), axis_name="model")(models, x)
    return (new, aux, both)


@programs(np.float32([1.5, 2.5, 4.0]), np.float32(1.5), traced=False)
def host_functions(jax: Any, x: Any, a: Any) -> Any:
    """pure_callback to SciPy with custom_jvp, vmapped; io_callback and debug prints with captured output."""
    jnp, lax = (jax.numpy, jax.lax)

    @jax.custom_jvp
    def jv(v: Any, z: Any) -> Any:
        shape = jax.ShapeDtypeStruct(jnp.broadcast_shapes(v.shape, z.shape), z.dtype)
        return jax.pure_callback(
            lambda v, z: scipy.special.jv(np.asarray(v), np.asarray(z)).astype(np.float32),
            shape,
            v,
            z,
            vmap_method="broadcast_all",
        )

    @jv.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        v, z = primals
        _, dz = tangents
        return (jv(v, z), dz * (jv(v - 1, z) - jv(v + 1, z)) / 2)

    def f(z: Any) -> Any:
        return jv(a, z)

    results = [f(x), jax.jit(jax.vmap(jax.grad(f)))(x), jax.vmap(jax.grad(jax.grad(f)))(x)]
    log = []

    @jax.jit
    def train(w: Any) -> Any:

        def body(i: Any, w: Any) -> Any:
            w = w - 0.1 * jax.grad(lambda w: jnp.sum(w**2))(w)
            jax.experimental.io_callback(
                lambda i, v: log.append((int(i), round(float(v), 4))), None, i, w.sum(), ordered=True
            )
            return w

        return lax.fori_loop(0, 3, body, w)

    results.append(train(x))
    jax.effects_barrier()
    out = io.StringIO()
    with contextlib.redirect_stdout(out):

        @jax.jit
        def g(x: Any) -> Any:
            jax.debug.print("sum={s:.3f} shape={sh}", s=x.sum(), sh=x.shape, ordered=True)
            jax.debug.callback(lambda m: log.append(("max", float(m))), x.max())
            return lax.cond(
                x[0] > 0, lambda x: (jax.debug.print("positive {}", x[0], ordered=True), x)[1], lambda x: x, x
            )

        results.append(g(x))
        jax.effects_barrier()
    return (results, str(log), out.getvalue())


@programs(floats(4, 3), floats(3), traced=False)
def ahead_of_time(jax: Any, x: Any, w: Any) -> Any:
    """lower and compile, initialisers by eval_shape, donation, static arguments."""
    jnp, lax = (jax.numpy, jax.lax)

    @functools.partial(jax.jit, static_argnames=("act", "depth"), donate_argnames=("state",))
    def run(state: Any, x: Any, *, act: Any, depth: Any = 2) -> Any:
        for _ in range(depth):
            state = getattr(jnp, act)(state + x.sum())
        return (state, x * 2)

    lowered = run.lower(
        jax.ShapeDtypeStruct((3,), jnp.float32), jax.ShapeDtypeStruct((4, 3), np.float32), act="tanh", depth=3
    )
    compiled = lowered.compile()
    a = compiled(w + 0.0, x)
    b = run(w + 0.0, x, act="tanh", depth=3)
    c = run(w + 0.0, x, act="sin")
    run(w + 0.0, x, act="sin")

    def init(key: Any, n: Any) -> Any:
        k1, k2 = jax.random.split(key)
        return {
            "w": jax.random.normal(k1, (n, 3)),
            "b": jnp.zeros((3,), jnp.bfloat16),
            "k": jax.random.randint(k2, (2,), 0, 5),
        }

    shapes = jax.eval_shape(functools.partial(init, n=4), jax.random.PRNGKey(0))
    sizes = sorted(((n, s.shape, str(s.dtype)) for n, s in shapes.items()))
    zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
    try:
        compiled(w[:2], x)
        err = ""
    except Exception as e:
        err = str(isinstance(e, TypeError))
    out = jax.eval_shape(
        lambda z: jax.jit(lambda z: lax.scan(lambda c, t: (c, c["w"] @ t), z, jnp.ones((5, 3))))(z), shapes
    )
    return (a, b, c, str(sizes), zeros, err, str(jax.tree.map(lambda s: s.shape, jax.tree.leaves(out))))


@programs(floats(6, 3), floats(6), traced=False)
def scipy_minimize(jax: Any, x: Any, y: Any) -> Any:
    """ravel_pytree with SciPy's L-BFGS, Newton-CG with hvp, least_squares with jacfwd, root."""
    jnp = jax.numpy
    p0 = {"w": jnp.zeros(3), "b": (jnp.zeros(()), jnp.ones(2))}
    flat, unravel = jax.flatten_util.ravel_pytree(p0)

    @jax.jit
    def loss(v: Any) -> Any:
        p = unravel(v)
        return jnp.mean((x @ p["w"] + p["b"][0] - y) ** 2) + jnp.sum((p["b"][1] - 2) ** 4)

    vg = jax.jit(jax.value_and_grad(loss))
    hvp = jax.jit(lambda v, t: jax.jvp(jax.grad(loss), (v,), (t,))[1])
    r1 = scipy.optimize.minimize(
        lambda v: [np.asarray(o, np.float64) for o in vg(v.astype(np.float32))],
        np.asarray(flat, np.float64),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 4},
    )
    r2 = scipy.optimize.minimize(
        lambda v: float(loss(v)),
        np.asarray(flat),
        jac=lambda v: np.array(jax.grad(loss)(v)),
        hessp=lambda v, t: np.array(hvp(v, t)),
        method="Newton-CG",
        options={"maxiter": 3},
    )

    def res(v: Any) -> Any:
        return jnp.stack([v[0] ** 2 + v[1] - 11, v[0] + v[1] ** 2 - 7])

    r3 = scipy.optimize.root(
        lambda v: np.asarray(res(v)), np.array([2.5, 1.5]), jac=lambda v: np.asarray(jax.jacfwd(res)(v))
    )
    return (
        np.float32(np.round(r1.x, 1)),
        np.float32(np.round(r2.fun, 1)),
        np.float32(np.round(r3.x, 2)),
        jax.tree.map(jnp.shape, unravel(jnp.arange(6.0))),
    )


@programs(floats(5, 4), floats(4, 4), floats(4), floats(3, 4, 4), traced=False)
def module_system(jax: Any, x: Any, w: Any, b: Any, ws: Any) -> Any:
    """Modules that are pytrees: filtered arrays, mapped initialisers, scan over layers, frozen parts."""
    jnp, lax, tu = (jax.numpy, jax.lax, jax.tree_util)

    class Module:
        def __init_subclass__(cls, **kw: Any) -> Any:

            def flatten(self) -> Any:
                return (tuple(getattr(self, n) for n in cls.fields), tuple((n, getattr(self, n)) for n in cls.static))

            def unflatten(aux: Any, children: Any) -> Any:
                out = object.__new__(cls)
                for n, v in zip(cls.fields, children, strict=False):
                    object.__setattr__(out, n, v)
                for n, v in aux:
                    object.__setattr__(out, n, v)
                return out

            tu.register_pytree_node(cls, flatten, unflatten)

    class Dense(Module):
        fields, static = (("w", "b"), ("act",))

        def __init__(self, w: Any, b: Any, act: Any) -> None:
            self.w, self.b, self.act = (w, b, act)

        def __call__(self, x: Any) -> Any:
            return self.act(x @ self.w + self.b)

    class Net(Module):
        fields, static = (("layers", "head"), ("name",))

        def __init__(self, layers: Any, head: Any, name: Any) -> None:
            self.layers, self.head, self.name = (layers, head, name)

        def __call__(self, x: Any) -> Any:

            def body(x: Any, layer: Any) -> Any:
                return (x + layer(x), None)

            return self.head(lax.scan(body, x, self.layers)[0])

    layers = jax.vmap(lambda w: Dense(w, jnp.zeros(4), jnp.tanh))(ws)
    net = Net(layers, Dense(w, b, jax.nn.relu), "net")

    def is_array(v: Any) -> Any:
        return isinstance(v, jax.Array)

    def partition(tree: Any, pred: Any) -> Any:
        return (
            tu.tree_map(lambda part: part if pred(part) else None, tree),
            tu.tree_map(lambda part: None if pred(part) else part, tree),
        )

    def combine(a: Any, b: Any) -> Any:
        return tu.tree_map(lambda p, q: q if p is None else p, a, b, is_leaf=lambda v: v is None)

    frozen = tu.tree_map_with_path(
        lambda path, part: (
            "head" in tu.keystr(path) or path[0] == tu.GetAttrKey("head") or getattr(path[0], "key", None) == 1
        ),
        net,
    )
    paths = [tu.keystr(p) for p, _ in tu.tree_flatten_with_path(net)[0]]
    arrays, rest = partition(net, is_array)

    @jax.jit
    def step(arrays: Any) -> Any:

        def loss(a: Any) -> Any:
            return jnp.mean(jax.vmap(combine(a, rest))(x) ** 2)

        v, g = jax.value_and_grad(loss)(arrays)
        new = tu.tree_map(lambda p, g, f: p - 0.1 * g * (0 if f else 1), arrays, g, frozen)
        return (new, v)

    new, v = step(arrays)
    return (tu.tree_leaves(new), v, str(paths), str(tu.tree_map(jnp.shape, tu.tree_leaves(net))))
