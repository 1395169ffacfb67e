"""`jax.extend.random`: the implementations of keys."""

from tinyxla.jax.jaxprs.primitives.catalogue import primitives as _primitives
from tinyxla.jax.random_keys.key_implementations import define_prng_impl, set_attributes as _set_attributes
from tinyxla.random import key as _key, random_seed as _random_seed, wrap_key_data as random_wrap
from tinyxla.random.generators import threefry_2x32
from tinyxla.shapes.key_types import KEY_TYPES as _KEY_TYPES

_set_attributes()
threefry_prng_impl = _KEY_TYPES["threefry2x32"]
rbg_prng_impl = _KEY_TYPES["rbg"]
unsafe_rbg_prng_impl = _KEY_TYPES["unsafe_rbg"]
threefry2x32_p = _primitives["threefry2x32"]


def seed_with_impl(impl, seed):
    """A key of a generator, from an integer."""
    return _key(seed, impl=impl)


def random_seed(seeds, impl):
    """Keys of a generator, one for each integer."""
    return _random_seed(seeds, impl=impl)


__all__ = """define_prng_impl random_seed random_wrap rbg_prng_impl seed_with_impl threefry2x32_p threefry_2x32
    threefry_prng_impl unsafe_rbg_prng_impl""".split()
