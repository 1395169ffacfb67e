"""Control flow and small functions of kernels."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tinyxla import lax, numpy as jnp
from tinyxla.errors import ArgumentError
from tinyxla.experimental import checkify
from tinyxla.tracing.array import Array


def when(condition: Any) -> Callable[[Callable[[], None]], None]:
    """A decorator: the function is called at once, if the condition holds.

    Args:
        condition: a truth value, which may be traced.

    Returns:
        The decorator.

    Example:
        >>> import tinyxla.jax
        >>> import jax
        >>> from jax.experimental import pallas as pl
        >>> def kernel(x, y):
        ...     @pl.when(x[0] > 1)
        ...     def _():
        ...         y[...] = x[...] / 2
        >>> halved = pl.pallas_call(kernel, jax.ShapeDtypeStruct((2,), "float32"), interpret=True)
        >>> halved(jax.numpy.array([2.0, 3.0]))
        Array([1. , 1.5], dtype=float32)
    """

    def decorate(f: Callable[[], None]) -> None:
        if isinstance(condition, bool | np.bool_):
            if condition:
                f()
            return

        def then() -> None:
            f()

        lax.cond(condition, then, lambda: None)

    return decorate


def loop(
    lower: Any, upper: Any, *, init_carry: Any = None, step: Any = 1, unroll: int | bool | None = None
) -> Callable[[Callable[..., Any]], Any]:
    """A decorator: the function is called in a loop at once.

    Args:
        lower: the first index.
        upper: where the loop ends, exclusive.
        init_carry: what the first call gets after the index; each call gives what the next one gets.
        step: the distance of indices.
        unroll: how many calls an iteration makes, or whether all of them are made without a loop.

    Returns:
        The decorator, which gives what the last call gave; without `init_carry` None.
    """

    def decorate(body: Callable[..., Any]) -> Any:
        count = (upper - lower + step - 1) // step
        if isinstance(count, Array):
            count = jnp.maximum(count, 0)

        def one(k: Any, carry: Any) -> Any:
            i = lower + k * step
            if init_carry is not None:
                return body(i, carry)
            body(i)
            return None

        return lax.fori_loop(0, count, one, init_carry, unroll=unroll)

    return decorate


def debug_print(fmt: str, *args: Any) -> None:
    """Print values, in the places of `{}` in the text."""
    import tinyxla.debug

    tinyxla.debug.print(fmt, *args)


def debug_check(condition: Any, message: str) -> None:
    """A check that `checkify` looks at; without it nothing is checked."""
    checkify.debug_check(condition, message)


@contextmanager
def enable_debug_checks(enabled: bool = True) -> Generator[None]:
    """A block in which an accelerator would look at checks; `checkify` does anyway."""
    yield


def multiple_of(x: Any, values: Sequence[int] | int) -> Any:
    """x, which a kernel for an accelerator may take for a multiple of these numbers."""
    return x


def cdiv(a: Any, b: Any) -> Any:
    """a / b, rounded up."""
    if isinstance(a, int) and isinstance(b, int):
        return -(-a // b)
    return (a + b - 1) // b


def align_to(a: Any, alignment: Any) -> Any:
    """The least multiple of `alignment` that is not below a."""
    return cdiv(a, alignment) * alignment


def next_power_of_2(x: int) -> int:
    """The least power of two that is not below x.

    Raises:
        ArgumentError: a negative number.
    """
    if x < 0:
        raise ArgumentError(f"next_power_of_2: the number must not be negative, but got {x}.")
    return 1 << max(0, x - 1).bit_length()


def strides_from_shape(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a row-major array, in elements."""
    return tuple(int(np.prod(shape[k + 1 :], dtype=np.int64)) for k in range(len(shape)))


def broadcast_to(a: Any, shape: Sequence[int]) -> Any:
    """An array repeated along new and unit dimensions."""
    return jnp.broadcast_to(a, shape)


def reciprocal(x: Any, *, approx: bool = False, full_range: bool = True) -> Any:
    """1 / x; an approximate one is as good here."""
    return 1 / x


def dot(
    a: Any, b: Any, trans_a: bool = False, trans_b: bool = False, allow_tf32: bool | None = None, precision: Any = None
) -> Any:
    """The product of two matrices, summed in f32 at least, or in s32.

    Raises:
        ArgumentError: what are no two matrices.
    """
    if a.ndim != 2 or b.ndim != 2:
        raise ArgumentError(f"dot: the operands must be matrices, but have {a.ndim} and {b.ndim} dimensions.")
    a, b = a.T if trans_a else a, b.T if trans_b else b
    is_integer = jnp.issubdtype(a.dtype, jnp.integer)
    wide = np.int32 if is_integer else jnp.promote_types(jnp.result_type(a, b), np.float32)
    return jnp.matmul(a, b, preferred_element_type=wide, precision=precision)


def roll(x: Any, shift: Any, axis: int, *, stride: int | None = None, stride_axis: int | None = None) -> Any:
    """An array whose elements are moved along an axis, in a circle.

    Args:
        x: an array.
        shift: by how many places; not negative.
        axis: the axis.
        stride: by how many places more for each further index along `stride_axis`.
        stride_axis: that axis.

    Returns:
        An array.

    Raises:
        ArgumentError: a negative shift, or one of `stride` and `stride_axis` without the other.
    """
    if isinstance(shift, int) and shift < 0:
        raise ArgumentError(f"roll: the shift must not be negative, but got {shift}.")
    if (stride is None) != (stride_axis is None):
        raise ArgumentError("roll: stride and stride_axis are given together.")
    if stride is None or stride_axis is None:
        return jnp.roll(x, shift, axis)
    rows = range(x.shape[stride_axis])
    moved = [jnp.roll(lax.index_in_dim(x, k, stride_axis), shift + k * stride, axis) for k in rows]
    return jnp.concatenate(moved, stride_axis)


def einshape(equation: str, x: Any, assert_is_tile_preserving: bool = False, **sizes: int) -> Any:
    """An array with its dimensions split, transposed and merged: `einshape("a(bc)->b(ac)", x, b=2)`.

    Args:
        equation: the dimensions of the array and of the result, each a letter, or several in parentheses.
        x: the array.
        assert_is_tile_preserving: for accelerators.
        sizes: the sizes of letters, of which those in one pair of parentheses may lack one.

    Returns:
        An array.

    Raises:
        ArgumentError: an equation that does not fit the array, or sizes that do not.
    """
    sides = [re.findall(r"\(\w*\)|\w", side) for side in equation.split("->")]
    if len(sides) != 2 or len(sides[0]) != x.ndim:
        raise ArgumentError(f"einshape: {equation!r} must have an arrow and {x.ndim} dimensions before it.")
    given, wanted = ([group.strip("()") for group in side] for side in sides)
    if sorted("".join(given)) != sorted(set("".join(wanted))):
        raise ArgumentError(f"einshape: {equation!r} must have each letter once on both sides.")
    found = dict(sizes)
    for group, size in zip(given, x.shape, strict=True):
        unknown = [letter for letter in group if letter not in found]
        rest, left = divmod(size, math.prod(found[letter] for letter in group if letter in found))
        if len(unknown) > 1 or left or (not unknown and rest != 1):
            raise ArgumentError(f"einshape: a dimension of {size} is no ({group}) with the sizes {found}.")
        found.update(dict.fromkeys(unknown, rest))
    order = [*"".join(given)]
    parts = x.reshape([found[letter] for letter in order])
    moved = parts.transpose([order.index(letter) for letter in "".join(wanted)])
    return moved.reshape([math.prod(found[letter] for letter in group) for group in wanted])


def prng_seed(*seeds: Any) -> None:
    """Set the seed of the random bits of the core, which a CPU does not have."""


def prng_random_bits(shape: Sequence[int]) -> Any:
    """Random bits of the core, as int32: zeros, as in JAX's interpreted form."""
    return jnp.zeros(shape, np.int32)


def is_tpu_device() -> bool:
    """Whether there is a TPU: no."""
    return False


def bitcast(x: Any, ty: Any) -> Any:
    """The bits of an array as another type: narrower elements lie along the next to last dimension."""
    old, new = jnp.dtype(x.dtype).itemsize, jnp.dtype(ty).itemsize
    if old == new:
        return lax.bitcast_convert_type(x, ty)
    if x.ndim < 2:
        raise ArgumentError(
            f"bitcast: to a type of another width the array must have two dimensions, but has {x.ndim}."
        )
    *outer, rows, columns = x.shape
    if old > new:
        bits = lax.bitcast_convert_type(x, ty)  # [..., rows, columns, ratio]
        return jnp.moveaxis(bits, -1, -2).reshape(*outer, rows * (old // new), columns)
    ratio = new // old
    if rows % ratio:
        raise ArgumentError(f"bitcast: {rows} rows of {old} bytes make no whole elements of {new}.")
    return lax.bitcast_convert_type(jnp.moveaxis(x.reshape(*outer, rows // ratio, ratio, columns), -2, -1), ty)
