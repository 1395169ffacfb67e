"""Random numbers from explicit keys, under the names of `jax.random`, with the same bits for the same key.

>>> from tinyxla import random
>>> first, second = random.split(random.key(0))
>>> random.uniform(first, (2,)).shape
(2,)
"""

from tinyxla.random.distributions import (
    bernoulli,
    cauchy,
    exponential,
    gumbel,
    laplace,
    logistic,
    lognormal,
    normal,
    rademacher,
    randint,
    truncated_normal,
    uniform,
)
from tinyxla.random.families import (
    ball,
    beta,
    chisquare,
    dirichlet,
    double_sided_maxwell,
    f,
    gamma,
    generalized_normal,
    geometric,
    loggamma,
    maxwell,
    multivariate_normal,
    orthogonal,
    pareto,
    poisson,
    rayleigh,
    t,
    triangular,
    wald,
    weibull_min,
)
from tinyxla.random.keys import (
    KeyArray,
    PRNGKey,
    bits,
    clone,
    fold_in,
    key,
    key_data,
    key_impl,
    split,
    wrap_key_data,
)
from tinyxla.random.programs import MANY_BY_LOOPS, drawn
from tinyxla.random.selections import categorical, choice, permutation

bits = drawn(bits)
uniform = drawn(uniform)
normal = drawn(normal)
truncated_normal = drawn(truncated_normal)
bernoulli = drawn(bernoulli)
rademacher = drawn(rademacher)
randint = drawn(randint)
categorical = drawn(categorical)
exponential = drawn(exponential)
gumbel = drawn(gumbel)
laplace = drawn(laplace)
logistic = drawn(logistic)
cauchy = drawn(cauchy)
lognormal = drawn(lognormal)
maxwell = drawn(maxwell)
rayleigh = drawn(rayleigh)
pareto = drawn(pareto)
weibull_min = drawn(weibull_min)
geometric = drawn(geometric)
permutation = drawn(permutation, elements="x")
choice = drawn(choice, elements="a")
gamma = drawn(gamma, MANY_BY_LOOPS)
loggamma = drawn(loggamma, MANY_BY_LOOPS)
beta = drawn(beta, MANY_BY_LOOPS)
dirichlet = drawn(dirichlet, MANY_BY_LOOPS)
chisquare = drawn(chisquare, MANY_BY_LOOPS)
t = drawn(t, MANY_BY_LOOPS)
poisson = drawn(poisson, MANY_BY_LOOPS)

__all__ = [
    "KeyArray",
    "PRNGKey",
    "ball",
    "bernoulli",
    "beta",
    "bits",
    "categorical",
    "cauchy",
    "chisquare",
    "choice",
    "clone",
    "dirichlet",
    "double_sided_maxwell",
    "exponential",
    "f",
    "fold_in",
    "gamma",
    "generalized_normal",
    "geometric",
    "gumbel",
    "key",
    "key_data",
    "key_impl",
    "laplace",
    "loggamma",
    "logistic",
    "lognormal",
    "maxwell",
    "multivariate_normal",
    "normal",
    "orthogonal",
    "pareto",
    "permutation",
    "poisson",
    "rademacher",
    "randint",
    "rayleigh",
    "split",
    "t",
    "triangular",
    "truncated_normal",
    "uniform",
    "wald",
    "weibull_min",
    "wrap_key_data",
]
