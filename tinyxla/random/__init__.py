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
from tinyxla.random.keys import (
    KeyArray,
    PRNGKey,
    bits,
    clone,
    fold_in,
    key,
    key_data,
    split,
    wrap_key_data,
)
from tinyxla.random.selections import categorical, choice, permutation

__all__ = [
    "KeyArray",
    "PRNGKey",
    "bernoulli",
    "bits",
    "categorical",
    "cauchy",
    "choice",
    "clone",
    "exponential",
    "fold_in",
    "gumbel",
    "key",
    "key_data",
    "laplace",
    "logistic",
    "lognormal",
    "normal",
    "permutation",
    "rademacher",
    "randint",
    "split",
    "truncated_normal",
    "uniform",
    "wrap_key_data",
]
