"""`jax.extend.random`: the implementations of keys."""

from tinyxla.random import key as _key
from tinyxla.random.generators import threefry_2x32


def seed_with_impl(impl, seed):
    """A key of a generator, from an integer."""
    return _key(seed, impl=impl)


__all__ = ["seed_with_impl", "threefry_2x32"]
