"""`jax._src.random.threefry2x32`: the generator of this name, as functions of the words of a key."""

from tinyxla import random as _random
from tinyxla.jax.jaxprs.primitives.random_primitives import RANDOM as _RANDOM
from tinyxla.random.generators import threefry_2x32 as threefry_2x32

threefry2x32_p = _RANDOM["threefry2x32"]


def _key(words):
    return _random.wrap_key_data(words, impl="threefry2x32")


def threefry_seed(seed):
    """The words of the key of a seed."""
    return _random.key_data(_random.key(seed, impl="threefry2x32"))


def threefry_split(key, shape):
    """The words of new keys."""
    return _random.key_data(_random.split(_key(key), shape))


def threefry_fold_in(key, data):
    """The words of the key that a number makes of a key."""
    return _random.key_data(_random.fold_in(_key(key), data))


def threefry_random_bits(key, bit_width, shape):
    """Random bits, as unsigned integers."""
    return _random.bits(_key(key), tuple(shape), f"uint{bit_width}")
