"""Fourier transforms: values, gradients and errors, against JAX and NumPy."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy
import numpy as np
import pytest

import tinyxla as tx
import tinyxla.numpy as jnp
from tinyxla import lax
from tinyxla.errors import ArgumentError, AttributeValueError, DTypeError, ShapeError
from tinyxla.loopir.kernels.fft.complex_vectors import elements_per_row
from tinyxla.ops import fourier
from tinyxla.tracing import wrap

ONE = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
SEVERAL = ("fftn", "ifftn", "rfftn", "irfftn")
PLANES = ("fft2", "ifft2", "rfft2", "irfft2")
NORMS = (None, "backward", "ortho", "forward")


def signal(name: str, generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    real = generator.normal(size=shape)
    return real if name.startswith(("rfft", "ihfft")) else real + 1j * generator.normal(size=shape)


def same(name: str, x: Any, *args: Any, **options: Any) -> None:
    """The values of NumPy, in double and in single precision."""
    expected = getattr(np.fft, name)(x, *args, **options)
    single = x.astype(np.complex64 if x.dtype.kind == "c" else np.float32)
    found = getattr(jnp.fft, name)(single, *args, **options)
    assert found.dtype == (np.complex64 if expected.dtype.kind == "c" else np.float32)
    np.testing.assert_allclose(found, expected, 1e-5, 1e-5 * max(1, np.abs(expected).max(initial=0)))


@pytest.mark.parametrize("name", ONE)
def test_one_axis(name: str, generator: np.random.Generator) -> None:
    for norm in NORMS:
        for n in (None, 1, 3, 4, 9):
            for axis in (-1, 0, 1):
                same(name, signal(name, generator, (5, 4, 3)), n, axis, norm)


@pytest.mark.parametrize("name", SEVERAL)
def test_several_axes(name: str, generator: np.random.Generator) -> None:
    """Also more than the three that one operation has."""
    for norm in NORMS:
        for axes, s in ((None, None), ((0, 2), None), ((2, 0, 1), None), ((1, 0), (4, 5)), ((-1,), (7,))):
            same(name, signal(name, generator, (4, 3, 5)), s, axes, norm)
    for shape in ((3, 2, 4, 3), (2, 2, 3, 2, 3)):
        same(name, signal(name, generator, shape), axes=tuple(range(len(shape))))
    same(name, signal(name, generator, (2, 3, 4)), s=(3, 2, 5, 4)[:3], axes=(2, 1, 0))


@pytest.mark.parametrize("name", PLANES)
def test_planes(name: str, generator: np.random.Generator) -> None:
    x = signal(name, generator, (3, 4, 5))
    same(name, x)
    same(name, x, (5, 2), (0, 1), "ortho")


def test_lengths_alone_mean_the_last_axes(generator: np.random.Generator) -> None:
    x = generator.normal(size=(3, 4, 5)).astype(np.float32)
    np.testing.assert_allclose(jnp.fft.fftn(x, (2, 3)), np.fft.fftn(x, (2, 3), (-2, -1)), 1e-5, 1e-5)


def test_frequencies() -> None:
    for n in (1, 2, 5, 8):
        for d in (1.0, 0.25):
            np.testing.assert_allclose(jnp.fft.fftfreq(n, d), np.fft.fftfreq(n, d), 1e-6)
            np.testing.assert_allclose(jnp.fft.rfftfreq(n, d), np.fft.rfftfreq(n, d), 1e-6)
    assert jnp.fft.fftfreq(4, dtype=np.float16).dtype == np.float16


def test_shifts(generator: np.random.Generator) -> None:
    x = generator.normal(size=(4, 5)).astype(np.float32)
    for axes in (None, 0, (1,), (0, 1), -1):
        for name in ("fftshift", "ifftshift"):
            np.testing.assert_array_equal(getattr(jnp.fft, name)(x, axes), getattr(np.fft, name)(x, axes))


def test_numpy_dispatches_here() -> None:
    assert isinstance(np.fft.rfft(jnp.ones(4)), tx.Array)


def squared(gradient: Callable[..., Any], x: Any) -> Any:
    return (gradient(x).real ** 2).sum()


@pytest.mark.sample(every=2)
@pytest.mark.parametrize("kind", ["FFT", "IFFT", "RFFT", "IRFFT"])
def test_values_and_gradients_are_those_of_jax(kind: str, generator: np.random.Generator) -> None:
    """Through a nonlinear function, so that the second derivative is not zero; batched, compiled."""
    for lengths in ((5,), (3, 4)):
        sizes = (*lengths[:-1], lengths[-1] // 2 + 1) if kind == "IRFFT" else lengths
        x = signal("rfft" if kind == "RFFT" else "fft", generator, (2, *sizes))
        x = x.astype(np.complex64 if kind != "RFFT" else np.float32)

        def loss(lib: Any, xp: Any, y: Any, lengths: Any = lengths) -> Any:
            z = lib.fft(y, kind, lengths)
            return (xp.sin(xp.abs(z) ** 2)).sum()

        ours, theirs = partial(loss, lax, jnp), partial(loss, jax.lax, jax.numpy)
        np.testing.assert_allclose(lax.fft(x, kind, lengths), jax.lax.fft(x, kind, lengths), 1e-5, 1e-5)
        gradient = np.asarray(jax.grad(theirs)(x))
        for function in (tx.grad(ours), tx.jit(tx.grad(ours)), tx.vmap(tx.grad(ours))):
            np.testing.assert_allclose(function(x), gradient, 1e-3, 1e-3 * np.abs(gradient).max())
        twice = np.asarray(jax.jit(jax.grad(partial(squared, jax.grad(theirs))))(x))
        found = tx.jit(tx.grad(partial(squared, tx.grad(ours))))(x)
        np.testing.assert_allclose(found, twice, 1e-3, 1e-3 * np.abs(twice).max())


def test_kinds_of_transforms() -> None:
    x = np.arange(4.0)
    for kind in lax.FftType:
        given = x if kind == lax.FftType.RFFT else x[:3] if kind == lax.FftType.IRFFT else x
        for name in (kind.name, kind.name.lower()):
            np.testing.assert_array_equal(lax.fft(given, kind, (4,)), lax.fft(given, name, (4,)))
    assert [k.value for k in lax.FftType] == [k.value for k in jax.lax.FftType]
    assert lax.fft(x, "FFT", ()).dtype == np.complex64
    assert lax.fft(x.astype(np.float16), "RFFT", (4,)).dtype == np.complex64


def test_double_precision() -> None:
    x = jnp.arange(5, dtype=np.float64)
    assert jnp.fft.rfft(x).dtype == np.complex128
    assert jnp.fft.irfft(x).dtype == np.float64


X = np.ones((4, 4), np.float32)
Z = wrap(X.astype(np.complex64))


@pytest.mark.parametrize(
    ("error", "message", "call"),
    [
        (
            AttributeValueError,
            "fft_type must be one of FFT, IFFT, RFFT, IRFFT, but got 'DCT'",
            lambda: lax.fft(X, "DCT", (4,)),
        ),
        (AttributeValueError, "fft: fft_type must be one", lambda: fourier.fft(Z, fft_type="DCT", fft_length=(4,))),
        (ArgumentError, "lax.fft: the signal must be real", lambda: lax.fft(Z, "RFFT", (4,))),
        (
            DTypeError,
            "fft: the operand of RFFT must be f32 or f64, but got c64",
            lambda: fourier.fft(Z, fft_type="RFFT", fft_length=(4,)),
        ),
        (ShapeError, "1, 2 or 3 lengths, but got ", lambda: fourier.fft(Z, fft_type="FFT", fft_length=())),
        (ShapeError, "1, 2 or 3 lengths", lambda: lax.fft(np.ones((1, 1, 1, 1)), "FFT", (1, 1, 1, 1))),
        (ShapeError, "must not have more lengths", lambda: lax.fft(X, "FFT", (1, 4, 4))),
        (ShapeError, "must not be negative", lambda: lax.fft(X, "FFT", (-4,))),
        (ShapeError, r"the last dimensions must be \(3,\), but got c64\[4,4\]", lambda: lax.fft(X, "FFT", (3,))),
        (ShapeError, r"the last dimensions must be \(3,\), but got c64\[4,4\]", lambda: lax.fft(X, "IRFFT", (4,))),
        (ArgumentError, "fft.rfft: the signal must be real", lambda: jnp.fft.rfft(Z)),
        (
            ArgumentError,
            "norm must be one of 'backward', 'ortho', 'forward', but got 'l2'",
            lambda: jnp.fft.fft(X, norm="l2"),
        ),
        (ArgumentError, "fft.hfft: norm must be", lambda: jnp.fft.hfft(X, norm="l2")),
        (ShapeError, r"the lengths must be positive, but got \[0\]", lambda: jnp.fft.fft(X, 0)),
        (ShapeError, "as many lengths as axes", lambda: jnp.fft.fftn(X, (2,), (0, 1))),
        (ShapeError, "name a dimension twice", lambda: jnp.fft.fftn(X, axes=(0, 0))),
        (ShapeError, "out of range", lambda: jnp.fft.fft(X, axis=2)),
        (ShapeError, "there must be two axes", lambda: jnp.fft.fft2(X, axes=(0,))),
        (ShapeError, "n must be positive", lambda: jnp.fft.fftfreq(0)),
    ],
)
def test_errors(error: type[Exception], message: str, call: Callable[[], Any]) -> None:
    with pytest.raises(error, match=message):
        call()


# --- compiled ---------------------------------------------------------------------------------------------------------

# Rows side by side, more than a block and not whole squares of them, of real signals: with and without pairs of even
# and odd elements, of one factor, of several, and of primes; and two at a time.
LANES = [(3, 1), (9, 2), (5, 3), (7, 4), (130, 6), (67, 8), (150, 15), (70, 26), (20, 45), (75, 49), (11, 51), (90, 97)]
ROWS = [*LANES, (9, 128), (50, 640), (11, 144), (3, 1200)]


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("shape", ROWS)
def test_compiled_rows_of_real_signals(shape: tuple[int, int], double: bool, generator: np.random.Generator) -> None:
    length = shape[1]
    x = generator.normal(size=shape)
    spectrum = np.fft.rfft(x) * (1 + generator.normal(size=(shape[0], length // 2 + 1)))
    beside = spectrum.copy()
    beside.imag[:, [0, 0 if length % 2 else -1]] = np.nan  # which are not read
    with tx.enable_x64(double):
        real, complex_ = (np.float64, np.complex128) if double else (np.float32, np.complex64)
        tolerance = 1e-14 if double else 1e-6
        found = np.asarray(tx.jit(jnp.fft.rfft)(x.astype(real)))
        np.testing.assert_allclose(found, np.fft.rfft(x), 0, tolerance * max(1, np.abs(found).max()))
        found = np.asarray(tx.jit(partial(jnp.fft.irfft, n=length))(beside.astype(complex_)))
        np.testing.assert_allclose(found, np.fft.irfft(spectrum, length), 0, tolerance * max(1, np.abs(found).max()))


def test_rows_of_real_signals_are_apart(generator: np.random.Generator) -> None:
    """What is not finite stays in its row, and a small signal beside large ones keeps its bits."""
    for length in (8, 15, 17, 128):
        for name in ("rfft", "irfft"):
            x = generator.normal(size=(30, length)).astype(np.float32)
            x = np.fft.rfft(x).astype(np.complex64) if name == "irfft" else x
            function = tx.jit(partial(getattr(jnp.fft, name), n=length))
            alone = np.asarray(function(x))
            x[::2] *= 1e20
            x[4] = np.nan
            found = np.asarray(function(x))
            np.testing.assert_array_equal(found[1::2], alone[1::2])
            assert np.isnan(found[4]).all()


# Each radix; lanes of a batch, and rows of a long signal; larger primes, odd lengths, and primes that are too large.
COMPILED = (
    (3, 16),
    (17, 60),
    (8,),
    (1, 100),
    (2, 4096),
    (30, 1024),
    (40_000,),
    (7, 143),
    (5, 63),
    (2, 62),
    (4, 2 * 1009),
    (40, 17),
    (3, 10300),
    (5, 293 * 8),
    (2, 307),
    (2, 313 * 5),
    (3, 81),
    (7, 64),
    (9, 64 * 15),
    (5, 64 * 34),
    (7, 72),
    (5, 1000),
    (3, 8 * 33),
)


@pytest.mark.parametrize("double", [False, True])
def test_long_signals_are_transformed_in_three_steps(double: bool, generator: np.random.Generator) -> None:
    """One after the other, and side by side."""
    length, kind = 1 << 19, np.complex128 if double else np.complex64
    for shape, lengths, kernels in (((length,), (length,), 3), ((2, length, 2), (length, 2), 4)):
        axes = tuple(range(-len(lengths), 0))
        x = (generator.normal(size=shape) + 1j * generator.normal(size=shape)).astype(kind)
        with tx.enable_x64(double):
            compiled = tx.jit(partial(lax.fft, fft_type="IFFT", fft_lengths=lengths)).lower(x).compile()
            found = np.asarray(compiled(x))
        assert len(compiled.kernels) == kernels
        expected = np.fft.ifftn(x.astype(np.complex128), axes=axes)
        np.testing.assert_allclose(found, expected, 0, (1e-14 if double else 1e-6) * np.abs(expected).max())


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("name", ["fft", "ifft"])
def test_rows_with_a_large_prime_are_transformed_in_one_step(
    name: str, double: bool, generator: np.random.Generator
) -> None:
    """And in no other row than its own is what is not finite, or large."""
    for shape in ((5, 307), (8, 2 * 311)):
        x, function = signal(name, generator, shape), tx.jit(getattr(jnp.fft, name))
        expected = getattr(np.fft, name)(x)
        with tx.enable_x64(double):
            x = x.astype(np.complex128 if double else np.complex64)
            pairs_fit = elements_per_row("f64" if double else "f32") > 2  # of a register, so many numbers
            assert (len(function.lower(x).compile().kernels) == 1) == pairs_fit
            found = np.asarray(function(x))
            x[0], x[3] = np.nan, 1e20 * x[3]
            beside = np.asarray(function(x))
        np.testing.assert_allclose(found, expected, 0, (1e-14 if double else 2e-6) * np.abs(expected).max())
        np.testing.assert_array_equal(np.delete(beside, (0, 3), 0), np.delete(found, (0, 3), 0))
        assert np.isnan(beside[0]).all()


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("shape", COMPILED)
def test_compiled_lengths(shape: tuple[int, ...], double: bool, generator: np.random.Generator) -> None:
    tolerance = 1e-14 if double else 1e-6
    with tx.enable_x64(double):
        for name in ONE[:4]:
            length = shape[-1] if name != "irfft" else 2 * (shape[-1] - 1) + shape[-1] % 2
            x = signal(name, generator, shape)
            expected = getattr(np.fft, name)(x, length)
            narrow = x.astype(np.dtype(x.dtype.kind + str(x.dtype.itemsize // (1 if double else 2))))
            found = np.asarray(tx.jit(partial(getattr(jnp.fft, name), n=length))(narrow))
            np.testing.assert_allclose(found, expected, 0, tolerance * np.abs(expected).max())


@pytest.mark.parametrize("shape", [(16, 16), (2, 12, 20), (2048, 8), (3, 2048, 30), (2, 3, 4, 6), (2, 307, 9)])
def test_compiled_axes(shape: tuple[int, ...], generator: np.random.Generator) -> None:
    for name in (*PLANES, *SEVERAL[: 2 * (len(shape) == 3)]):
        x = signal(name, generator, shape)
        expected = getattr(np.fft, name)(x)
        found = tx.jit(getattr(jnp.fft, name))(x.astype(np.complex64 if x.dtype.kind == "c" else np.float32))
        np.testing.assert_allclose(np.asarray(found), expected, 0, 2e-6 * np.abs(expected).max())
    x = signal("fft", generator, shape).astype(np.complex64)
    found = np.asarray(tx.jit(lambda x: jnp.fft.fft(x, axis=0))(x))
    np.testing.assert_allclose(found, np.fft.fft(x, axis=0), 0, 1e-5 * np.abs(found).max())


def test_further_dimensions_are_transformed_in_place(generator: np.random.Generator) -> None:
    for shape in ((6, 130, 64), (5, 64, 1)):
        x = signal("fftn", generator, shape).astype(np.complex64)
        kept, compiled = x.copy(), tx.jit(jnp.fft.fftn).lower(x).compile()
        assert "3 steps, 0 bytes of temporaries" in compiled.as_text()
        np.testing.assert_allclose(compiled(x), np.fft.fftn(x), 0, 1e-3)
        np.testing.assert_array_equal(x, kept)


def test_bits_do_not_depend_on_threads(generator: np.random.Generator) -> None:
    function = tx.jit(lambda x, y: (jnp.fft.fft(x), jnp.fft.rfft2(y)))
    x, y = signal("fft", generator, (3, 6000)).astype(np.complex64), generator.normal(size=(100, 60)).astype(np.float32)
    found: list[list[bytes]] = []
    for count in (1, 2):
        with tx.num_threads(count):
            found.append([np.asarray(z).tobytes() for z in function(x, y)])
    assert found[0] == found[1]
