"""Packages whose operations are functions in C++, called by XLA's foreign function interface."""

import jax
import jax.numpy as jnp

jax.config.update("jax_enable_x64", True)


def celerite2():
    """Gaussian processes of celerite2: likelihoods with their gradients, predictions."""
    from celerite2.jax import GaussianProcess, terms

    times = jnp.sort(10 * jax.random.uniform(jax.random.key(0), (50,)))
    values = jnp.sin(times)

    def process(p):
        kernel = terms.SHOTerm(sigma=p[0], rho=p[1], Q=0.3) + terms.RealTerm(a=p[2], c=0.5)
        made = GaussianProcess(kernel, mean=p[3])
        made.compute(times, diag=jnp.full(50, 0.1))
        return made

    p = jnp.array([1.0, 2.0, 0.3, 0.1])
    loss = jax.value_and_grad(lambda p: -process(p).log_likelihood(values))
    return loss(p), jax.jit(loss)(p), process(p).predict(values, return_var=True)


def klujax():
    """Sparse systems of klujax: solutions, mapped and differentiated, real and complex."""
    import klujax

    rows, columns = jnp.array([0, 1, 2, 2]), jnp.array([0, 1, 2, 0])
    entries = jnp.array([[2.0, 3.0, 4.0, 1.0], [1.0, 1.0, 1.0, 0.5]])
    right = jnp.array([[1.0, 2.0, 3.0], [0.0, 1.0, -1.0]])
    solve = lambda a, b: klujax.solve(rows, columns, a, b)
    gradient = jax.grad(lambda a, b: (solve(a, b) ** 2).sum(), (0, 1))
    return {
        "solve": solve(entries, right[..., None]),
        "complex": jax.jit(solve)(entries * (1 + 0.5j), right[..., None] + 0j),
        "mapped": jax.vmap(solve)(entries, right),
        "gradient": jax.vmap(gradient)(entries, right),
        "product": klujax.dot(rows, columns, entries[0], right[0]),
    }


PROGRAMS = [celerite2, klujax]
