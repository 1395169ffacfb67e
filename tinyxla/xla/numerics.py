"""Linear algebra, Fourier transforms and random numbers.

Source: the sections of the XLA documents named after each function.
"""

from __future__ import annotations

from collections.abc import Sequence

from tinyxla.ops import Value, elementwise, fourier, linear_algebra, movement, random_bits
from tinyxla.shapes import Shape, element_type
from tinyxla.xla.builder import Tree, XlaBuilder
from tinyxla.xla.dimension_numbers import FftType, RandomAlgorithm, TriangularSolveOptions
from tinyxla.xla.functions import builder_function

# --- linear algebra, Fourier transforms -------------------------------------------------------------------------------


@builder_function()
def Cholesky(builder: XlaBuilder, a: Value, lower: bool = True) -> Value:
    """The triangular factors of positive definite matrices, lower or upper, of which only that triangle is read."""
    return linear_algebra.cholesky(a, lower=lower)


@builder_function()
def TriangularSolve(
    builder: XlaBuilder,
    a: Value,
    b: Value,
    left_side: bool,
    lower: bool,
    unit_diagonal: bool,
    transpose_a: TriangularSolveOptions.Transpose,
) -> Value:
    """The solutions x of op(a) x = b, or of x op(a) = b, for triangular matrices."""
    return linear_algebra.triangular_solve(
        a, b, left_side=left_side, lower=lower, unit_diagonal=unit_diagonal, transpose_a=str(transpose_a)
    )


@builder_function()
def Fft(builder: XlaBuilder, operand: Value, fft_type: FftType, fft_length: Sequence[int]) -> Value:
    """A Fourier transform of signals of these lengths along the last dimensions, up to three."""
    return fourier.fft(operand, fft_type=str(fft_type), fft_length=fft_length)


# --- random numbers ---------------------------------------------------------------------------------------------------


@builder_function()
def RngUniform(builder: XlaBuilder, a: Value, b: Value, shape: Shape) -> Value:
    """Numbers drawn evenly from `a` up to, but without, `b`, others in each run."""
    return random_bits.rng(a, b, distribution="rng_uniform", shape=shape)


@builder_function(mean="mu")
def RngNormal(builder: XlaBuilder, mu: Value, sigma: Value, shape: Shape) -> Value:
    """Numbers drawn from the normal distribution with mean `mu` and standard deviation `sigma`, others in each run."""
    return random_bits.rng(mu, sigma, distribution="rng_normal", shape=shape)


@builder_function()
def RngBernoulli(builder: XlaBuilder, mean: Value, shape: Shape) -> Value:
    """Numbers that are 1 with the probability `mean`, else 0, others in each run."""
    zero, one = (movement.full(x, mean.dtype) for x in (0, 1))
    of_mean = Shape(element_type(mean.dtype), shape.dimensions)
    draws = random_bits.rng(zero, one, distribution="rng_uniform", shape=of_mean)
    chosen = elementwise.lt(draws, movement.broadcast_in_dim(mean, shape.dimensions, ()))
    return elementwise.convert(chosen, new_element_type=shape.element_type)


@builder_function()
def RngBitGenerator(builder: XlaBuilder, algorithm: RandomAlgorithm, initial_state: Value, shape: Shape) -> Tree:
    """The next state of a generator, and an array of random bits."""
    return random_bits.rng_bit_generator(initial_state, algorithm=str(algorithm), shape=shape)
