"""`jax.extend.random`: the implementations of keys."""

from tinyxla.random import key as seed_with_impl
from tinyxla.random.threefry import words as threefry_2x32

__all__ = ["seed_with_impl", "threefry_2x32"]
