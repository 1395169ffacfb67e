"""`jax._src.prng`."""

from tinyxla.jax.jaxprs.primitives.catalogue import primitives as _primitives
from tinyxla.jax.jaxprs.primitives.random_primitives import clone as random_clone
from tinyxla.transforms.key_arrays import KeyArray as PRNGKeyArray

random_bits_p = _primitives["random_bits"]
random_clone_p = reuse_key_p = _primitives["random_clone"]
random_fold_in_p = _primitives["random_fold_in"]
random_seed_p = _primitives["random_seed"]
random_split_p = _primitives["random_split"]
random_unwrap_p = _primitives["random_unwrap"]
random_wrap_p = _primitives["random_wrap"]
threefry2x32_p = _primitives["threefry2x32"]
reuse_key = random_clone

__all__ = ["PRNGKeyArray"]
