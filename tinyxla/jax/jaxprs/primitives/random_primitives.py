"""Primitives of random keys: `random_seed`, `random_split`, `random_fold_in`, `random_bits`, `random_wrap`,
`random_unwrap` and `random_clone`.

While a jaxpr is recorded, functions of keys are applications of these, and distributions are compiled functions, as in
JAX. Variables of jaxprs hold the words of keys. Outside of `make_jaxpr` nothing is added to a graph.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from tinyxla import numpy as jnp, random
from tinyxla.api.jit import jit
from tinyxla.jax.jaxprs.primitives.catalogue import LaxPrimitive, primitives
from tinyxla.jax.jaxprs.traces.recording import is_recording, region, vectorized
from tinyxla.jax.random_keys.consumed_keys import checked
from tinyxla.ops.random_bits import threefry
from tinyxla.random.generators import GENERATORS, Generator
from tinyxla.shapes import KeyType
from tinyxla.tracing import pytrees
from tinyxla.tracing.array import Array, ConcreteArray
from tinyxla.tracing.config import config
from tinyxla.tracing.promotion import as_array
from tinyxla.transforms.key_arrays import KeyArray

Function = Callable[..., Any]


def _typed(key: Any, impl: str | None = None) -> KeyArray:
    """Keys, of their words where these are given."""
    return key if isinstance(key, KeyArray) else random.wrap_key_data(as_array(key), impl=impl)


def _split(key: Any, *, shape: tuple[int, ...], impl: str | None = None) -> Any:
    return random.split(_typed(key, impl), shape)


def _fold_in(key: Any, data: Any, *, impl: str | None = None) -> Any:
    return random.fold_in(_typed(key, impl), data)


def _bits(key: Any, *, bit_width: int, shape: tuple[int, ...], impl: str | None = None) -> Any:
    return random.bits(_typed(key, impl), shape, f"uint{bit_width}")


def _gamma(key: Any, a: Any, *, log_space: bool = False, impl: str | None = None, **ignored: Any) -> Any:
    return (random.loggamma if log_space else random.gamma)(_typed(key, impl), a)


_FUNCTIONS: dict[str, Function] = {
    "random_seed": lambda seeds, impl: random.random_seed(seeds, impl=impl),
    "random_split": _split,
    "random_fold_in": _fold_in,
    "random_bits": _bits,
    "random_wrap": lambda words, impl: random.wrap_key_data(words, impl=impl),
    "random_unwrap": lambda key: random.key_data(key) if isinstance(key, KeyArray) else key,
    "random_clone": lambda key: random.clone(key) if isinstance(key, KeyArray) else key,
    "random_gamma": _gamma,
}


def _of_words(function: Function) -> Function:
    """The function, which gives the words of keys unless it is given keys: variables of jaxprs hold words."""

    def call(*operands: Any, **params: Any) -> Any:
        found = function(*operands, **params)
        has_keys = any(isinstance(x, KeyArray) for x in operands)
        return found.words if isinstance(found, KeyArray) and not has_keys else found

    return call


RANDOM = {name: LaxPrimitive(name, _of_words(function)) for name, function in _FUNCTIONS.items()}
RANDOM["threefry2x32"] = LaxPrimitive(
    "threefry2x32", lambda *words: list(threefry(*jnp.broadcast_arrays(*words))), True
)
primitives.update(RANDOM)


def _words(x: Any) -> Any:
    return x.words if isinstance(x, KeyArray) else x


def applied(name: str, params: dict[str, Any], function: Function, *operands: Any) -> Any:
    """The words of a function's result, recorded as an application of a primitive to the words of the operands."""
    (found,) = region(primitives[name], params, lambda *x: [_words(function(*x))], [*map(_words, operands)], vectorized)
    return found


def recorded(name: str, generator: Generator) -> Generator:
    """A generator whose functions are primitives while a jaxpr is recorded."""
    of_generator = {} if name == "threefry2x32" else {"impl": name}

    def split(words: Any, sizes: tuple[int, ...]) -> Any:
        if not is_recording():
            return generator.split(words, sizes)
        return applied("random_split", {"shape": sizes, **of_generator}, lambda w: generator.split(w, sizes), words)

    def fold_in(words: Any, data: Any) -> Any:
        if not is_recording():
            return generator.fold_in(words, data)
        return applied("random_fold_in", of_generator, generator.fold_in, words, data)

    def bits(words: Any, sizes: tuple[int, ...], dtype: Any) -> Any:
        if not is_recording():
            return generator.bits(words, sizes, dtype)
        params = {"bit_width": np.dtype(dtype).itemsize * 8, "shape": sizes, **of_generator}
        return applied("random_bits", params, lambda w: generator.bits(w, sizes, dtype), words)

    def clone(words: Any) -> Any:
        return applied("random_clone", {}, generator.clone, words) if is_recording() else words

    return Generator(generator.seed, split, fold_in, bits, clone)


def record_generators() -> None:
    """Let all generators' functions be primitives in jaxprs."""
    GENERATORS.update({name: recorded(name, generator) for name, generator in GENERATORS.items()})


# --- functions of keys ------------------------------------------------------------------------------------------------


@functools.wraps(random.key)
def key(seed: Any, *, impl: str | KeyType | None = None, dtype: str | KeyType | None = None) -> KeyArray:
    if not is_recording() or isinstance(seed, KeyArray):
        return random.key(seed, impl=impl, dtype=dtype)
    wanted = random.key(0, impl=impl, dtype=dtype).dtype
    number = seed if isinstance(seed, (Array, np.ndarray)) else _as_number(seed)
    if number is None:
        return random.key(seed, impl=impl, dtype=dtype)
    params = {"impl": wanted.implementation}
    words = applied("random_seed", params, lambda x: random.key(x, impl=wanted), as_array(number))
    return KeyArray(wanted, words)


def _as_number(seed: Any) -> Any:
    """A seed that fits 32 bits as an array; None for others."""
    is_small = isinstance(seed, (bool, int, np.integer)) and -(2**31) <= int(seed) < 2**32
    return np.asarray(int(seed), np.int32 if int(seed) < 2**31 else np.uint32) if is_small else None


@functools.wraps(random.PRNGKey)
def PRNGKey(seed: Any, *, impl: str | KeyType | None = None) -> Any:
    if not is_recording() or config.enable_custom_prng:
        return random.PRNGKey(seed, impl=impl)
    return key_data(key(seed, impl=impl))


@functools.wraps(random.key_data)
def key_data(keys: Any) -> Array:
    if not is_recording() or not isinstance(keys, KeyArray):
        return random.key_data(keys)
    return applied("random_unwrap", {}, lambda x: x, keys)


@functools.wraps(random.wrap_key_data)
def wrap_key_data(
    key_bits_array: Any, *, impl: str | KeyType | None = None, dtype: str | KeyType | None = None
) -> KeyArray:
    made = random.wrap_key_data(key_bits_array, impl=impl, dtype=dtype)
    if not is_recording():
        return made
    params = {"impl": made.dtype.implementation}
    return KeyArray(made.dtype, applied("random_wrap", params, lambda x: x, made.words))


@functools.wraps(random.clone)
def clone(key: Any) -> Any:
    if isinstance(key, KeyArray) and isinstance(key.words, ConcreteArray) and not is_recording():
        return KeyArray(key.dtype, ConcreteArray(np.array(key.words.buffer())))  # whose use is its own
    return random.clone(key)


def _of_typed_key(function: Function) -> Function:
    """A function of a key, in which words are wrapped while a jaxpr is recorded."""

    @functools.wraps(function)
    def call(key: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_recording() or isinstance(key, KeyArray):
            return function(key, *args, **kwargs)
        random.key_data(key)  # the error, if these are no keys
        found = function(wrap_key_data(key), *args, **kwargs)
        return key_data(found) if isinstance(found, KeyArray) and not config.enable_custom_prng else found

    return call


split = _of_typed_key(checked(random.split, "random_split"))
fold_in = _of_typed_key(random.fold_in)
bits = _of_typed_key(checked(random.bits, "random_bits"))


def _as_compiled(function: Function) -> Function:
    """A distribution, which is a compiled function in jaxprs."""
    inner, eager = _of_typed_key(function), checked(function, "random_bits")

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not is_recording():
            return eager(*args, **kwargs)
        leaves, treedef = pytrees.flatten((args, kwargs), is_leaf=lambda x: x is None or isinstance(x, KeyArray))
        places = [k for k, x in enumerate(leaves) if isinstance(x, (Array, np.ndarray))]

        def of_arrays(*arrays: Any) -> Any:
            values = list(leaves)
            for k, x in zip(places, arrays, strict=True):
                values[k] = x
            given, named = pytrees.unflatten(treedef, values)
            return inner(*given, **named)

        of_arrays.__name__ = f"_{function.__name__}"
        return jit(of_arrays)(*(leaves[k] for k in places))

    return call


_PLAIN = "KeyArray PRNGKey bits clone fold_in key key_data key_dtype key_impl random_seed split wrap_key_data".split()
distributions = {
    name: _as_compiled(function)
    for name, function in vars(random).items()
    if inspect.isfunction(function) and not name.startswith("_") and name not in _PLAIN
}
