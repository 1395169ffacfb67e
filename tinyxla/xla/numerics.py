"""Linear algebra, Fourier transforms and random numbers.

Source: the sections of the XLA documents named after each function.
"""

from __future__ import annotations

from collections.abc import Sequence

from tinyxla.ops import Value, elementwise, fourier, movement, random_bits
from tinyxla.ops.linalg import linear_algebra
from tinyxla.shapes import Shape, element_type
from tinyxla.xla.builder import Tree, XlaBuilder
from tinyxla.xla.dimension_numbers import FftType, RandomAlgorithm, TriangularSolveOptions
from tinyxla.xla.functions import builder_function

# --- linear algebra, Fourier transforms -------------------------------------------------------------------------------


@builder_function()
def Cholesky(builder: XlaBuilder, a: Value, lower: bool = True) -> Value:
    """The triangular factors of positive definite matrices, lower or upper, of which only that triangle is read.

    Args:
        a: matrices, of shape [..., n, n].
        lower: whether to return the lower factor.

    Returns:
        An `XlaOp` of the shape of a.

    Raises:
        ShapeError: arrays whose last two dimensions differ in size.

    >>> import numpy as np
    >>> from tinyxla.xla import Cholesky, XlaBuilder
    >>> b = XlaBuilder()
    >>> b.Build(Cholesky(b.Constant(np.float32([[4, 0], [2, 5]]))))()  # the upper triangle is not read
    Array([[2., 0.],
           [1., 2.]], dtype=float32)
    """
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
    """The solutions x of op(a) x = b, or of x op(a) = b, for triangular matrices.

    Args:
        a: triangular matrices in the last two dimensions.
        b: right-hand sides, matrices with as many rows (columns, unless `left_side`).
        left_side: whether `a` is on the left of x.
        lower: which triangle of `a` is read.
        unit_diagonal: whether ones stand for the diagonal of `a`, which is not read then.
        transpose_a: op, a `TriangularSolveOptions.Transpose`.

    Returns:
        An `XlaOp` of the shape of b.

    Raises:
        ShapeError: right-hand sides that do not fit the matrices.

    >>> import numpy as np
    >>> from tinyxla.xla import TriangularSolve, TriangularSolveOptions, XlaBuilder
    >>> builder = XlaBuilder()
    >>> a, b = builder.Constant(np.float32([[2, 0], [1, 4]])), builder.Constant(np.float32([[2], [9]]))
    >>> builder.Build(TriangularSolve(a, b, True, True, False, TriangularSolveOptions.Transpose.NO_TRANSPOSE))()
    Array([[1.],
           [2.]], dtype=float32)
    """
    return linear_algebra.triangular_solve(
        a, b, left_side=left_side, lower=lower, unit_diagonal=unit_diagonal, transpose_a=str(transpose_a)
    )


@builder_function()
def Fft(builder: XlaBuilder, operand: Value, fft_type: FftType, fft_length: Sequence[int]) -> Value:
    """A Fourier transform of signals of these lengths along the last dimensions, up to three.

    Args:
        operand: an array.
        fft_type: an `FftType`.
        fft_length: the lengths of the signals.

    Returns:
        An `XlaOp`.

    Raises:
        ShapeError: lengths that are not those of the last dimensions.
        DTypeError: an operand that is not complex; for RFFT, one that is not real.

    >>> import numpy as np
    >>> from tinyxla.xla import Fft, FftType, XlaBuilder
    >>> b = XlaBuilder()
    >>> Fft(b.Constant(np.zeros((4, 8), np.float32)), FftType.RFFT, [8])
    <XlaOp c64[4,5] of computation>
    """
    return fourier.fft(operand, fft_type=str(fft_type), fft_length=fft_length)


# --- random numbers ---------------------------------------------------------------------------------------------------


@builder_function()
def RngUniform(builder: XlaBuilder, a: Value, b: Value, shape: Shape) -> Value:
    """Numbers drawn evenly from `a` up to, but without, `b`, others in each run.

    Args:
        a, b: scalars.
        shape: the shape of the result.

    Returns:
        An `XlaOp`.

    Raises:
        ArgumentError: no operand, and no builder as the first argument.

    >>> import numpy as np
    >>> from tinyxla.xla import F32, RngUniform, ShapeUtil, XlaBuilder
    >>> b = XlaBuilder()
    >>> x = np.asarray(b.Build(RngUniform(b.Constant(2.0), b.Constant(3.0), ShapeUtil.MakeShape(F32, [100])))())
    >>> bool((x >= 2).all() and (x < 3).all())
    True
    """
    return random_bits.rng(a, b, distribution="rng_uniform", shape=shape)


@builder_function(mean="mu")
def RngNormal(builder: XlaBuilder, mu: Value, sigma: Value, shape: Shape) -> Value:
    """Numbers drawn from the normal distribution with mean `mu` and standard deviation `sigma`, others in each run.

    Args:
        mu, sigma: scalars.
        shape: the shape of the result.

    Returns:
        An `XlaOp`.

    Raises:
        ArgumentError: no operand, and no builder as the first argument.

    >>> from tinyxla.xla import F32, RngNormal, ShapeUtil, XlaBuilder
    >>> b = XlaBuilder()
    >>> RngNormal(b.Constant(0.0), b.Constant(1.0), ShapeUtil.MakeShape(F32, [2, 3]))
    <XlaOp f32[2,3] of computation>
    """
    return random_bits.rng(mu, sigma, distribution="rng_normal", shape=shape)


@builder_function()
def RngBernoulli(builder: XlaBuilder, mean: Value, shape: Shape) -> Value:
    """Numbers that are 1 with the probability `mean`, else 0, others in each run.

    Args:
        mean: a scalar, the probability.
        shape: the shape of the result.

    Returns:
        An `XlaOp`.

    Raises:
        ArgumentError: no operand, and no builder as the first argument.

    >>> from tinyxla.xla import S32, RngBernoulli, ShapeUtil, XlaBuilder
    >>> b = XlaBuilder()
    >>> b.Build(RngBernoulli(b.Constant(1.0), ShapeUtil.MakeShape(S32, [3])))()
    Array([1, 1, 1], dtype=int32)
    """
    zero, one = (movement.full(x, mean.dtype) for x in (0, 1))
    of_mean = Shape(element_type(mean.dtype), shape.dimensions)
    draws = random_bits.rng(zero, one, distribution="rng_uniform", shape=of_mean)
    chosen = elementwise.lt(draws, movement.broadcast_in_dim(mean, shape.dimensions, ()))
    return elementwise.convert(chosen, new_element_type=shape.element_type)


@builder_function()
def RngBitGenerator(builder: XlaBuilder, algorithm: RandomAlgorithm, initial_state: Value, shape: Shape) -> Tree:
    """The next state of a generator, and an array of random bits.

    Args:
        algorithm: a `RandomAlgorithm`.
        initial_state: the state, u64[2] or u64[3].
        shape: the shape of the result.

    Returns:
        An `XlaOp`, a tuple of the next state and the bits.

    Raises:
        AttributeValueError: another algorithm.
        DTypeError: a state that is not of 64-bit unsigned integers.

    >>> import numpy as np
    >>> from tinyxla.xla import U32, RandomAlgorithm, RngBitGenerator, ShapeUtil, XlaBuilder
    >>> b = XlaBuilder()
    >>> state = b.Constant(np.zeros(2, np.uint64))
    >>> RngBitGenerator(RandomAlgorithm.RNG_THREE_FRY, state, ShapeUtil.MakeShape(U32, [5]))
    <XlaOp (u64[2], u32[5]) of computation>
    """
    return random_bits.rng_bit_generator(initial_state, algorithm=str(algorithm), shape=shape)
