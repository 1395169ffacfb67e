"""Random arguments of tests. Each function takes a `numpy.random.RandomState` and gives a function of a shape and an
element type; it draws what JAX's function of that name draws, so that a test has the same arguments on both."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinyxla.errors import ArgumentError
from tinyxla.jax.testing.shapes import PYTHON_SCALAR_SHAPE, dimensions, dtype_str, in_shape
from tinyxla.numpy.types import issubdtype
from tinyxla.tracing.config import config

Values = np.ndarray[Any, Any]
Sampler = Callable[..., Any]


def _scaled(draw: Callable[..., Any], scale: float = 1.0, change: Callable[[Values], Any] | None = None) -> Sampler:
    """A sampler of `draw(*dimensions) * scale`, as absolute values if they are to be unsigned, with an imaginary part
    drawn after the real one if they are to be complex, and then changed."""

    def sample(shape: Any, dtype: Any, scale: float = scale, post: Callable[[Values], Any] | None = change) -> Any:
        is_unsigned = issubdtype(dtype, np.unsignedinteger)

        def part() -> Values:
            drawn = draw(*dimensions(shape))
            return np.asarray(scale * (abs(drawn) if is_unsigned else drawn)).astype(dtype)

        values = part()
        if issubdtype(dtype, np.complexfloating):
            values = values + 1.0j * part()
        return in_shape(np.asarray(values if post is None else post(values), dtype), shape, dtype)

    return sample


def rand_default(rng: Any, scale: float = 3) -> Sampler:
    """Normal numbers."""
    return _scaled(rng.randn, scale)


def rand_nonzero(rng: Any) -> Sampler:
    """Normal numbers, with 1 for 0."""
    return _scaled(rng.randn, 3, lambda x: np.where(x == 0, np.ones((), x.dtype), x))


def rand_positive(rng: Any) -> Sampler:
    """Numbers from 1 to 3."""
    return _scaled(rng.rand, 2, lambda x: x + 1)


def rand_small(rng: Any) -> Sampler:
    """Normal numbers of some thousandths."""
    return _scaled(rng.randn, 1e-3)


def rand_not_small(rng: Any, offset: float = 10.0) -> Sampler:
    """Numbers whose absolute value is larger than the offset."""
    return _scaled(rng.randn, 3.0, lambda x: x + np.where(x > 0, offset, -offset))


def rand_small_positive(rng: Any) -> Sampler:
    """Numbers from 0 to 2e-5."""
    return _scaled(rng.rand, 2e-5)


def rand_uniform(rng: Any, low: float = 0.0, high: float = 1.0) -> Sampler:
    """Numbers between two bounds.

    Raises:
        ArgumentError: the bounds are not in order.
    """
    if not low < high:
        raise ArgumentError(f"rand_uniform: low must be less than high, but they are {low} and {high}.")
    return _scaled(rng.rand, change=lambda x: x * (high - low) + low)


def rand_some_equal(rng: Any) -> Sampler:
    """Numbers of which about half are equal to the first one."""

    def repeated(x: Values) -> Any:
        if not x.size:
            return x
        return np.where(rng.rand(*x.shape) < 0.5, x.ravel()[0], x)

    return _scaled(rng.randn, 100.0, repeated)


def _with_special(rng: Any, *replaced: tuple[float, Any]) -> Callable[[Any, Any], Any]:
    """A sampler of normal numbers in which some are replaced: a value each, and the part that it has. What is replaced
    is drawn first."""
    usual = rand_default(rng)

    def sample(shape: Any, dtype: Any) -> Any:
        chosen = [rng.rand(*dimensions(shape)) < part for part, _ in replaced]
        found = usual(shape, dtype)
        for where, (_, value) in zip(chosen, replaced, strict=True):
            found = np.where(where, np.array(value, dtype), found)
        return in_shape(np.asarray(found, dtype), shape, dtype)

    return sample


def _of_floats(rng: Any, special: Callable[[Any, Any], Any]) -> Sampler:
    """A sampler which is the special one for floats, and that of normal numbers for others."""
    usual = rand_default(rng)
    return lambda shape, dtype: (special if issubdtype(dtype, np.floating) else usual)(shape, dtype)


def rand_some_inf(rng: Any) -> Sampler:
    """Floats of which about a fifth are infinite; other numbers as usual."""
    return _of_floats(rng, _with_special(rng, (0.1, np.inf), (0.1, -np.inf)))


def rand_some_inf_and_nan(rng: Any) -> Sampler:
    """Floats of which some are infinite and some NaN; other numbers as usual."""
    return _of_floats(rng, _with_special(rng, (0.1, np.inf), (0.1, -np.inf), (0.1, np.nan)))


def rand_some_zero(rng: Any) -> Sampler:
    """Numbers of which about half are 0."""
    return _with_special(rng, (0.5, 0))


def rand_some_nan(rng: Any) -> Sampler:
    """Floats and complex numbers with parts of which about a tenth are NaN, half of these negative; other numbers as
    usual."""
    usual = rand_default(rng)

    def of_floats(shape: Any, dtype: Any) -> Any:
        chances = rng.rand(*dimensions(shape))
        found = usual(shape, dtype)
        for part, value in ((0.1, np.nan), (0.05, -np.nan)):
            found = np.where(chances < part, np.array(value, dtype), found)
        return in_shape(np.asarray(found, dtype), shape, dtype)

    def sample(shape: Any, dtype: Any) -> Any:
        if not issubdtype(dtype, np.complexfloating):
            return (of_floats if issubdtype(dtype, np.floating) else usual)(shape, dtype)
        kind = np.zeros((), dtype).real.dtype
        real = of_floats(shape, kind)
        return in_shape(real + np.array(1j, dtype) * of_floats(shape, kind), shape, dtype)

    return sample


def rand_fullrange(rng: Any, standardize_nans: bool = False) -> Sampler:
    """Numbers with random bits, all NaNs as one if asked for."""

    def sample(shape: Any, dtype: Any, post: Callable[[Values], Values] = lambda x: x) -> Any:
        dtype = np.dtype(dtype)
        count = dtype.itemsize * math.prod(dimensions(shape))
        values = post(rng.randint(0, np.iinfo(np.uint8).max, size=count, dtype=np.uint8)).view(dtype)
        if shape is PYTHON_SCALAR_SHAPE:  # which holds no large unsigned number
            if dtype == np.uint64:
                values = values.astype(np.int64)
            elif dtype == np.uint32 and not config.enable_x64:
                values = values.astype(np.int32)
        values = values.reshape(tuple(dimensions(shape)))
        if standardize_nans and np.issubdtype(dtype, np.floating):
            values[np.isnan(values)] = np.nan
        return in_shape(values, shape, dtype)

    return sample


def rand_int(rng: Any, low: int = 0, high: int | None = None) -> Sampler:
    """Integers from `low` to below `high`, by default to the largest one of the first type that is asked for.

    Raises:
        ArgumentError: no bound, and a type that is no integer.
    """
    bound = high

    def sample(shape: Any, dtype: Any) -> Any:
        nonlocal bound
        is_integer = np.issubdtype(dtype, np.integer)
        if low == 0 and bound is None:
            if not is_integer:
                raise ArgumentError(f"rand_int needs `high` for {dtype_str(dtype)}, which is no type of integers.")
            bound = np.iinfo(dtype).max
        return rng.randint(low, high=bound, size=shape, dtype=dtype if is_integer else np.int64).astype(dtype)

    return sample


def rand_unique_int(rng: Any, high: int | None = None) -> Sampler:
    """Different integers below a bound, by default the number of elements."""

    def sample(shape: Any, dtype: Any) -> Any:
        return rng.choice(np.arange(high or math.prod(shape), dtype=dtype), size=shape, replace=False)

    return sample


def rand_indices_unique_along_axis(rng: Any) -> Callable[..., Values]:
    """A sampler of indices below `dim` that are different along an axis, some of them counted from the end."""

    def sample(dim: int, shape: Sequence[int], axis: int, allow_negative: bool = True) -> Values:
        others = [*shape[:axis], *shape[axis:][1:]]
        rows = [rng.choice(dim, size=shape[axis], replace=False) for _ in range(math.prod(others))]
        found = np.moveaxis(np.array(rows).reshape(*others, shape[axis]), -1, axis)
        if allow_negative:
            found[rng.choice([False, True], found.shape)] -= dim
        return found

    return sample


def rand_bool(rng: Any) -> Sampler:
    """Booleans."""

    def sample(shape: Any, dtype: Any) -> Any:
        return in_shape(np.asarray(rng.rand(*dimensions(shape)) < 0.5, dtype=dtype), shape, dtype)

    return sample
