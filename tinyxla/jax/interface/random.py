"""`jax.random`: `tinyxla.random`, whose functions are primitives and compiled functions in jaxprs."""

from tinyxla.jax.jaxprs.primitives.catalogue import primitives as _primitives
from tinyxla.jax.jaxprs.primitives.random_primitives import (
    PRNGKey as PRNGKey,
    bits as bits,
    clone as clone,
    distributions as _distributions,
    fold_in as fold_in,
    key as key,
    key_data as key_data,
    split as split,
    wrap_key_data as wrap_key_data,
)

random_gamma_p = _primitives["random_gamma"]
globals().update(_distributions)
