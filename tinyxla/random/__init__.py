"""Random numbers from explicit keys, under the names of `jax.random`, with the same bits for the same key.

>>> from tinyxla import random
>>> first, second = random.split(random.key(0))
>>> random.uniform(first, (2,)).shape
(2,)
"""

from tinyxla.random.derived import (
    ball as ball,
    beta as beta,
    binomial as binomial,
    chisquare as chisquare,
    dirichlet as dirichlet,
    double_sided_maxwell as double_sided_maxwell,
    f as f,
    gamma as gamma,
    generalized_normal as generalized_normal,
    geometric as geometric,
    loggamma as loggamma,
    maxwell as maxwell,
    multinomial as multinomial,
    multivariate_normal as multivariate_normal,
    orthogonal as orthogonal,
    pareto as pareto,
    poisson as poisson,
    rayleigh as rayleigh,
    t as t,
    triangular as triangular,
    wald as wald,
    weibull_min as weibull_min,
)
from tinyxla.random.distributions import (
    bernoulli as bernoulli,
    cauchy as cauchy,
    exponential as exponential,
    gumbel as gumbel,
    laplace as laplace,
    logistic as logistic,
    lognormal as lognormal,
    normal as normal,
    rademacher as rademacher,
    randint as randint,
    truncated_normal as truncated_normal,
    uniform as uniform,
)
from tinyxla.random.keys import (
    KeyArray as KeyArray,
    PRNGKey as PRNGKey,
    bits as bits,
    clone as clone,
    fold_in as fold_in,
    key as key,
    key_data as key_data,
    key_dtype as key_dtype,
    key_impl as key_impl,
    random_seed as random_seed,
    split as split,
    wrap_key_data as wrap_key_data,
)
from tinyxla.random.permutation import (
    categorical as categorical,
    choice as choice,
    permutation as permutation,
)
from tinyxla.util.did_you_mean import missing as _missing
from tinyxla.util.public_names import listing as _listing

__getattr__ = _missing(__name__)
__dir__ = _listing(globals())
