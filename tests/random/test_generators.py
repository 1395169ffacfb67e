"""The generators of random keys: their bits are JAX's, and options choose among them."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import tinyxla as tx
from tinyxla import errors, random
from tinyxla.nn import initializers
from tinyxla.shapes import KEY_TYPES

GENERATORS = list(KEY_TYPES)
KEY = random.key(7)


def jax_with(options: dict[str, Any]) -> Any:
    """JAX, and both libraries with options of JAX's names until the test ends."""
    jax = pytest.importorskip("jax")
    for module in (jax, tx):
        for name, value in options.items():
            module.config.update(name, value)
    return jax


def words(library: Any, keys: Any) -> Any:
    return np.asarray(library.random.key_data(keys))


@pytest.fixture
def options() -> Any:
    """Sets options of both libraries, and takes them back."""
    changed: dict[str, Any] = {}

    def change(**values: Any) -> Any:
        changed.update(values)
        return jax_with(values)

    yield change
    usual = {"jax_enable_x64": False, "jax_threefry_partitionable": True, "jax_default_prng_impl": "threefry2x32"}
    jax_with({name: usual[name] for name in changed})


@pytest.mark.parametrize("name", GENERATORS)
def test_keys_and_bits_are_those_of_jax(name: str) -> None:
    jax = pytest.importorskip("jax")

    def results(library: Any) -> Any:
        key = library.random.key(5, impl=name)
        yield words(library, key)
        yield words(library, library.random.key(-3, impl=name))
        yield words(library, library.random.split(key, (2, 3)))
        yield words(library, library.random.fold_in(key, 17))
        yield library.random.PRNGKey(5, impl=name)
        for dtype in ("uint8", "uint16", "uint32"):
            yield library.random.bits(key, (3, 5), dtype)

    for ours, theirs in zip(results(tx), results(jax), strict=True):
        np.testing.assert_array_equal(ours, np.asarray(theirs))
    assert str(random.key_dtype(name)) == str(jax.random.key(5, impl=name).dtype)


@pytest.mark.parametrize("name", GENERATORS)
def test_keys_and_bits_of_64_bits_are_those_of_jax(name: str, options: Any) -> None:
    jax = options(jax_enable_x64=True)
    for seed in (2**40 + 5, -5):
        ours, theirs = (x.random.key(seed, impl=name) for x in (tx, jax))
        np.testing.assert_array_equal(words(tx, ours), words(jax, theirs))
    np.testing.assert_array_equal(random.bits(ours, (3,)), jax.random.bits(theirs, (3,)))


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32"])
def test_bits_that_are_not_partitionable_are_those_of_jax(dtype: str, options: Any) -> None:
    jax = options(jax_threefry_partitionable=False)
    key, theirs = KEY, jax.random.key(7)
    for shape in ((), (3,), (5, 3)):
        np.testing.assert_array_equal(random.bits(key, shape, dtype), jax.random.bits(theirs, shape, dtype))
    np.testing.assert_array_equal(words(tx, random.split(key, 3)), words(jax, jax.random.split(theirs, 3)))
    rbg = [words(x, x.random.split(x.random.key(7, impl="rbg"), 3)) for x in (tx, jax)]
    np.testing.assert_array_equal(*rbg)


def test_default_generator_is_that_of_raw_keys(options: Any) -> None:
    jax = options(jax_default_prng_impl="rbg")
    key = random.PRNGKey(3)
    assert key.shape == (4,)
    assert random.key(3).dtype is random.key_dtype("rbg")
    np.testing.assert_array_equal(random.split(key), jax.random.split(jax.random.PRNGKey(3)))
    np.testing.assert_array_equal(random.bits(key, (3,)), jax.random.bits(jax.random.PRNGKey(3), (3,)))
    with pytest.raises(errors.ArgumentError, match=r"u32\[4\] array of the words of key<rbg>, but got u32\[2\]"):
        random.bits(np.zeros(2, np.uint32))


def test_contexts_of_generators() -> None:
    with tx.default_prng_impl("philox2x32"):
        assert random.PRNGKey(3).shape == (1,)
    with tx.enable_custom_prng():
        assert random.PRNGKey(3).dtype is random.split(np.array([0, 3], np.uint32)).dtype is random.key_dtype()
    usual = random.bits(KEY, (3,), "uint8")
    with tx.threefry_partitionable(False):
        assert (random.bits(KEY, (3,), "uint8") != usual).any()
    raw = random.PRNGKey(0)
    with tx.legacy_prng_key("error"), pytest.raises(errors.ArgumentError, match="legacy_prng_key is 'error'"):
        random.uniform(raw)
    with tx.legacy_prng_key("warn"), pytest.warns(UserWarning, match="legacy_prng_key"):
        random.uniform(raw)
    with warnings.catch_warnings(action="error"), tx.legacy_prng_key("error"):
        random.uniform(KEY)


@pytest.mark.parametrize("name", GENERATORS)
def test_results_are_the_same_compiled_and_mapped(name: str) -> None:
    keys = random.split(random.key(3, impl=name), 3)
    one_by_one = [random.bits(k, (4,)) for k in keys]
    np.testing.assert_array_equal(tx.vmap(lambda k: random.bits(k, (4,)))(keys), one_by_one)
    np.testing.assert_array_equal(tx.jit(lambda k: random.bits(k, (4,)))(keys[0]), one_by_one[0])
    folded = tx.vmap(random.fold_in, (None, 0))(keys[0], np.arange(2))
    assert bool(folded[1] == random.fold_in(keys[0], 1))
    assert bool(folded[1] != folded[0])
    assert random.key_impl(tx.vmap(random.clone)(keys)) == name
    several = tx.vmap(lambda seed: random.key(seed, impl=name))(np.arange(2))
    assert bool(several[1] == random.key(1, impl=name))
    assert bool((random.random_seed(np.arange(2), impl=name) == several).all())
    assert np.isfinite(random.normal(keys[0]))


def test_rejection_takes_keys_of_any_generator() -> None:
    assert 0 <= random.poisson(random.key(3, impl="rbg"), 3.0) < 30


def test_functions_keep_the_kind_of_keys() -> None:
    raw = random.PRNGKey(7)
    for change in (random.split, random.clone, lambda k: random.fold_in(k, 1)):
        assert change(raw).dtype == np.uint32
        np.testing.assert_array_equal(change(raw), random.key_data(change(KEY)))
    np.testing.assert_array_equal(random.normal(raw, (3,)), random.normal(KEY, (3,)))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: random.key(0, impl="mersenne"), "impl must be one of 'threefry2x32', .*'mersenne'"),
        (lambda: random.key(0, impl=3), "impl must be the name of a generator"),
        (lambda: random.key(0, impl="rbg", dtype="rbg"), "give one of them"),
        (lambda: random.key(KEY), "the seed is one integer, but got key<fry>"),
        (lambda: random.key(np.arange(2)), "use vmap over seeds"),
        (lambda: random.wrap_key_data(np.zeros(3, np.uint32)), r"u32\[..., 2\] arrays, but got u32\[3\]"),
        (lambda: random.wrap_key_data(np.zeros(2, np.int32)), "but got s32"),
        (lambda: random.split(random.split(KEY)), r"takes a single key, but got key<fry>\[2\]; use vmap"),
        (lambda: random.normal(random.split(KEY)), "use vmap over keys"),
        (lambda: random.uniform(3), "made by tinyxla.random.key"),
        (lambda: random.bits(KEY, dtype="int8"), "unsigned integers"),
        (lambda: random.normal(KEY, out_sharding="gpu"), "out_sharding"),
        (lambda: random.gumbel(KEY, mode="lower"), "mode must be 'low', 'high' or 'highest'"),
    ],
)
def test_wrong_keys_are_errors(call: Any, said: str) -> None:
    with pytest.raises(errors.TinyxlaError, match=said):
        call()


# --- distributions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["low", "high", "highest"])
def test_modes_of_gumbel_numbers_are_those_of_jax(mode: str) -> None:
    jax = pytest.importorskip("jax")
    theirs = jax.random.key(7)
    found = random.gumbel(KEY, (100,), mode=mode)
    np.testing.assert_allclose(found, jax.random.gumbel(theirs, (100,), mode=mode), rtol=1e-5, atol=1e-5)
    logits = np.arange(5, dtype=np.float32)
    assert (
        random.categorical(KEY, logits, shape=(20,), mode=mode).tolist()
        == jax.random.categorical(theirs, logits, shape=(20,), mode=mode).tolist()
    )
    p = np.array([0.1, 0.2, 0.3, 0.2, 0.2], np.float32)
    ours, wanted = (x.random.choice(k, 5, (3,), False, p, mode=mode) for x, k in ((tx, KEY), (jax, theirs)))
    assert ours.tolist() == wanted.tolist()


def test_bernoulli_of_high_mode_is_that_of_jax() -> None:
    jax = pytest.importorskip("jax")
    wanted = jax.random.bernoulli(jax.random.key(7), 0.3, (50,), mode="high")
    np.testing.assert_array_equal(random.bernoulli(KEY, 0.3, (50,), mode="high"), wanted)


def test_out_sharding_may_name_the_one_device() -> None:
    for draw in (random.normal, random.bits, lambda *args, **more: random.permutation(args[0], 3, **more)):
        np.testing.assert_array_equal(draw(KEY, (3,), out_sharding=tx.devices()[0]), draw(KEY, (3,)))


def test_out_sharding_of_no_mesh_says_nothing() -> None:
    layout = tx.sharding.NamedSharding(tx.sharding.get_abstract_mesh(), tx.P(None))
    assert not tx.jit(lambda: random.bernoulli(KEY, 0.5, (3,), out_sharding=layout))().committed


@pytest.mark.parametrize(("n", "m"), [(3, 3), (2, 4), (4, 2)])
def test_complex_orthogonal_matrices_are_unitary(n: int, m: int) -> None:
    x = np.asarray(random.orthogonal(KEY, n, (2,), "complex64", m))
    assert x.shape == (2, n, m)
    assert np.abs(x.imag).max() > 0.1
    adjoint = np.swapaxes(x.conj(), -1, -2)
    product = x @ adjoint if n <= m else adjoint @ x
    np.testing.assert_allclose(product, np.broadcast_to(np.eye(min(n, m)), product.shape), atol=1e-5)


@pytest.mark.parametrize("distribution", ["uniform", "normal", "truncated_normal"])
def test_complex_weights_have_the_variance_that_is_asked_for(distribution: str) -> None:
    make = initializers.variance_scaling(1.0, "fan_in", distribution)
    x = np.asarray(make(KEY, (200, 300), "complex64"))
    assert x.dtype == np.complex64
    np.testing.assert_allclose(np.mean(np.abs(x) ** 2) * 200, 1, rtol=0.02)
    np.testing.assert_allclose(np.mean(x.real**2) * 200, 0.5, rtol=0.03)
    assert abs(x.mean()) < 1e-3


@pytest.mark.parametrize("shape", [0.5, 2.0, 7.0])
def test_second_derivatives_of_gamma_numbers_by_shape_are_those_of_quantiles(shape: float) -> None:
    special = pytest.importorskip("scipy.special")
    with tx.enable_x64():
        sample = float(random.gamma(KEY, shape))
        probability, step = special.gammainc(shape, sample), 1e-3 * shape
        around = [special.gammaincinv(shape + k * step, probability) for k in (-1, 0, 1)]
        for draw, values in ((random.gamma, around), (random.loggamma, np.log(around))):
            wanted = (values[0] - 2 * values[1] + values[2]) / step**2
            found = tx.grad(tx.grad(lambda a, draw=draw: draw(KEY, a)))(shape)
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-6)
