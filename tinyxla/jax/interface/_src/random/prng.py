"""`jax._src.random.prng`: keys and their primitives."""

from tinyxla.jax.interface._src.prng import (
    PRNGKeyArray as PRNGKeyArray,
    random_bits_p as random_bits_p,
    random_clone_p as random_clone_p,
    random_fold_in_p as random_fold_in_p,
    random_seed_p as random_seed_p,
    random_split_p as random_split_p,
    random_unwrap_p as random_unwrap_p,
    random_wrap_p as random_wrap_p,
    reuse_key as reuse_key,
    reuse_key_p as reuse_key_p,
)
