"""Random orders and random choices among given things."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tinyxla import numpy as tnp
from tinyxla.api.eager_replay import drawn
from tinyxla.errors import ArgumentError, AttributeValueError, ShapeError
from tinyxla.lax.sorting import sort_key_val, top_k
from tinyxla.numpy.arguments import ArrayLike, array_of, broadcast_shapes, inexact_array, of_rank, shape_of, with_flags
from tinyxla.ops import elementwise
from tinyxla.random.distributions import gumbel, randint, uniform
from tinyxla.random.keys import ShapeLike, checked_key, random_bits, split
from tinyxla.shapes import Shape, element_type
from tinyxla.shapes.shape import canonical_axis
from tinyxla.shapes.symbolic import is_symbolic, max_dim
from tinyxla.tracing.array import Array
from tinyxla.tracing.promotion import default_int

_WORD = np.dtype(np.uint32)
_LARGEST = 2**32 - 1

# --- orders -----------------------------------------------------------------------------------------------------------


@drawn("x", "axis", "independent")
@with_flags
def permutation(key: Array, x: int | ArrayLike, axis: int = 0, independent: bool = False) -> Array:
    """The elements of an array along an axis in random order, or the numbers below an integer.

    Args:
        key: a key.
        x: an array, or an integer n for 0 ... n - 1.
        axis: the axis along which elements change place.
        independent: every line along the axis gets an order of its own, instead of one for all.
        out_sharding: the sharding of the result, with explicit mesh axes.

    Returns:
        An array of the shape and type of x.

    Raises:
        ArgumentError: what is no key.
        AxisError: an axis that the array does not have.

    >>> from tinyxla.random import PRNGKey, permutation
    >>> permutation(PRNGKey(42), 3)
    Array([2, 0, 1], dtype=int32)
    """
    what = "tinyxla.random.permutation"
    source = checked_key(what, key)
    if isinstance(x, Array | np.ndarray) and not x.ndim and element_type(x.dtype).is_integer:
        x = int(array_of(x, what).concrete("the number of elements of a permutation").buffer())
    if isinstance(x, int | np.integer):
        canonical_axis(axis, 1, what)
        return _shuffled(source, tnp.arange(max_dim(x if is_symbolic(x) else int(x), 0)), 0)
    values = array_of(x, what)
    if not values.ndim:
        raise ArgumentError(f"{what}: x is an integer, or an array with at least one axis, but got {Shape.of(values)}.")
    d = canonical_axis(axis, values.ndim, what)
    if independent or values.ndim == 1:
        return _shuffled(source, values, d)
    return tnp.take(values, _shuffled(source, tnp.arange(values.shape[d]), 0), axis=d)


def _shuffled(key: Array, x: Any, axis: int) -> Any:
    """Sorted by random words. Words may coincide, and what they sort keeps its order then; so it is done again, until
    the expected number of pairs that never differed is far below one."""
    size = _LARGEST if is_symbolic(x.size) else x.size
    rounds = math.ceil(3 * math.log(max(1, size)) / math.log(2**32 - 1))
    drawing: Any
    for _ in range(rounds):
        key, drawing = split(key)
        _, x = sort_key_val(random_bits(drawing, x.shape, _WORD), x, axis)
    return x


# --- choices ----------------------------------------------------------------------------------------------------------


@drawn("a", "shape", "replace", "axis", "mode")
@with_flags
def choice(
    key: Array,
    a: int | ArrayLike,
    shape: ShapeLike = (),
    replace: bool = True,
    p: ArrayLike | None = None,
    axis: int = 0,
    mode: str | None = None,
) -> Array:
    """Elements of an array along an axis, or numbers below an integer, chosen at random.

    Args:
        key: a key.
        a: an array, or an integer n for 0 ... n - 1.
        shape: how many, and in what shape.
        replace: the same element may be chosen again.
        p: the elements' probabilities, which add up to 1; all equal unless given.
        axis: the axis along which `a` is chosen from; the shape takes its place in the result.
        mode: that of `gumbel`, by whose numbers is chosen with probabilities and without replacement.
        out_sharding: the sharding of the result, with explicit mesh axes.

    Returns:
        An array of the type of `a`.

    Raises:
        ArgumentError: what is no key.
        ShapeError: more elements than there are, without replacement, or `p` of another length.

    >>> from tinyxla.random import PRNGKey, choice
    >>> choice(PRNGKey(42), 10, (6,))
    Array([4, 4, 1, 9, 9, 9], dtype=int32)
    """
    what = "tinyxla.random.choice"
    source, sizes = checked_key(what, key), shape_of(what, shape)
    wanted = math.prod(sizes)
    values = None if isinstance(a, int | np.integer) else array_of(a, what)
    if values is not None and not values.ndim:
        raise ArgumentError(f"{what}: a is an integer, or an array with at least one axis, but got {Shape.of(values)}.")
    d = 0 if values is None else canonical_axis(axis, values.ndim, what)
    count = int(a) if values is None else values.shape[d]
    if wanted and count <= 0:
        raise ShapeError(f"{what}: there is nothing to choose from among {count} elements.")
    if not replace and wanted > count:
        raise ShapeError(f"{what}: {wanted} elements cannot be chosen among {count} without replacement.")
    weights = None if p is None else inexact_array(p, what)
    if weights is not None and weights.shape != (count,):
        raise ShapeError(f"{what}: p has one probability for each of {count} elements, but got shape {weights.shape}.")
    if weights is not None:
        index = _weighted(source, weights, sizes, replace, mode).astype(default_int())
    elif replace:
        index = randint(source, sizes, 0, max(count, 1))
    elif values is not None and wanted:
        return _first_of(permutation(source, values, d), wanted, d, sizes)
    else:
        index = permutation(source, count)[:wanted].reshape(sizes)
    return index.astype(default_int()) if values is None else tnp.take(values, index, axis=d)


def _first_of(values: Any, count: int, axis: int, sizes: tuple[int, ...]) -> Any:
    taken = values[(slice(None),) * axis + (slice(count),)]
    return taken.reshape((*values.shape[:axis], *sizes, *values.shape[axis + 1 :]))


def _weighted(key: Any, weights: Any, sizes: tuple[int, ...], replace: bool, mode: str | None) -> Any:
    if replace:
        ends = tnp.cumsum(weights)
        return _place(ends, ends[-1] * (1 - uniform(key, sizes, weights.dtype)))
    scores = gumbel(key, weights.shape, weights.dtype, mode) + tnp.log(weights)
    return top_k(scores, math.prod(sizes))[1].reshape(sizes)


def _place(ends: Any, x: Any) -> Any:
    """How many of the ascending numbers `ends` are smaller, for each element of x, by halving the interval."""
    count = ends.shape[0]
    found = tnp.zeros(x.shape, np.int32)
    step = 1 << max(count - 1, 0).bit_length()
    while step:
        further = found + step
        smaller = tnp.take(ends, tnp.minimum(further, count) - 1) < x
        found = tnp.where((further <= count) & smaller, further, found)
        step >>= 1
    return found


@drawn("axis", "shape", "replace", "mode")
def categorical(
    key: Array,
    logits: ArrayLike,
    axis: int = -1,
    shape: ShapeLike | None = None,
    replace: bool = True,
    mode: str | None = None,
) -> Array:
    """Indices chosen with probabilities proportional to exp(logits), by the largest of logits with Gumbel noise.

    Args:
        key: a key.
        logits: logarithms of probabilities, up to a constant.
        axis: the axis of logits that is chosen along.
        shape: of the result; it ends with the other axes of logits, or with what broadcasts with them.
        replace: the same index may be chosen again along the leading axes of the shape.
        mode: that of `gumbel`.
        out_sharding: the sharding of the result, with explicit mesh axes.

    Returns:
        Integers of this shape; by default that of logits without the axis.

    Raises:
        ArgumentError: what is no key.
        AxisError: an axis that the array does not have.

    >>> import numpy as np
    >>> from tinyxla.random import PRNGKey, categorical
    >>> categorical(PRNGKey(42), np.array([0.0, -np.inf]), shape=(3,))
    Array([0, 0, 0], dtype=int32)
    """
    what = "tinyxla.random.categorical"
    scores = inexact_array(logits, what)
    d = canonical_axis(axis, scores.ndim, what)
    batch = (*scores.shape[:d], *scores.shape[d + 1 :])
    sizes = batch if shape is None else shape_of(what, shape)
    if len(sizes) < len(batch) or broadcast_shapes(what, sizes, batch) != sizes:
        raise ShapeError(f"{what}: the shape {sizes} does not end with {batch}, the other axes of the logits.")
    leading = sizes[: len(sizes) - len(batch)]
    if not replace:
        return _without_replacement(what, key, scores, d, sizes, leading, mode)
    inner = (*sizes[len(leading) : len(leading) + d], scores.shape[d], *sizes[len(leading) + d :])
    noise = gumbel(checked_key(what, key), (*leading, *inner), scores.dtype, mode)
    return tnp.argmax(noise + of_rank(scores, noise.ndim), axis=len(leading) + d)


def _without_replacement(
    what: str,
    key: Array,
    scores: Any,
    axis: int,
    sizes: tuple[int, ...],
    leading: tuple[int, ...],
    mode: str | None,
) -> Any:
    count = math.prod(leading)
    if sizes[len(leading) :] != (*scores.shape[:axis], *scores.shape[axis + 1 :]):
        raise AttributeValueError(f"{what}: without replacement the shape ends with the other axes of the logits.")
    if count > scores.shape[axis]:
        raise ShapeError(f"{what}: {count} of {scores.shape[axis]} indices cannot be chosen without replacement.")
    noisy = elementwise.add(gumbel(checked_key(what, key), scores.shape, scores.dtype, mode), scores)
    return tnp.moveaxis(top_k(noisy, count, axis=axis)[1], axis, 0).reshape(sizes)
