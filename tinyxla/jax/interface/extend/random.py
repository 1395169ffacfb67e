"""`jax.extend.random`: the implementations of keys."""

from tinyxla.jax.random_keys.key_implementations import define_prng_impl, set_attributes as _set_attributes
from tinyxla.random import key as _key, wrap_key_data as random_wrap
from tinyxla.random.generators import threefry_2x32
from tinyxla.shapes.key_types import KEY_TYPES as _KEY_TYPES

_set_attributes()
threefry_prng_impl = _KEY_TYPES["threefry2x32"]
rbg_prng_impl = _KEY_TYPES["rbg"]
unsafe_rbg_prng_impl = _KEY_TYPES["unsafe_rbg"]


def seed_with_impl(impl, seed):
    """A key of a generator, from an integer."""
    return _key(seed, impl=impl)


__all__ = """define_prng_impl random_wrap rbg_prng_impl seed_with_impl threefry_2x32 threefry_prng_impl
    unsafe_rbg_prng_impl""".split()
