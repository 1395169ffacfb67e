"""Vector quantization, under the names of `jax.scipy.cluster.vq`."""

from __future__ import annotations

from typing import Any

from tinyxla import numpy as tnp
from tinyxla.errors import ShapeError
from tinyxla.numpy.arguments import ArrayLike, promoted
from tinyxla.shapes import Shape
from tinyxla.tracing.array import Array


def vq(obs: ArrayLike, code_book: ArrayLike, check_finite: Any = True) -> tuple[Array, Array]:
    """For each observation the nearest of the codes, and the distance to it.

    Args:
        obs: observations, one in each row; a vector is one of numbers.
        code_book: codes, one in each row, of the same length.
        check_finite: accepted for compatibility.

    Returns:
        The indices of the codes, and the distances.

    Raises:
        DTypeError: what is no array or number.

    >>> import numpy as np
    >>> from tinyxla.scipy.cluster.vq import vq
    >>> vq(np.array([[0.0, 1.0], [4.0, 4.0]]), np.array([[5.0, 4.0], [0.0, 0.0]]))
    (Array([1, 0], dtype=int32), Array([1., 1.], dtype=float32))
    """
    (rows, codes), _ = promoted("scipy.cluster.vq.vq", obs, code_book, to_inexact=True)
    if rows.ndim not in (1, 2) or rows.ndim != codes.ndim or rows.shape[1:] != codes.shape[1:]:
        raise ShapeError(
            f"scipy.cluster.vq.vq: obs and code_book must be two vectors, or two matrices whose rows have one length, "
            f"but got {Shape.of(rows)} and {Shape.of(codes)}."
        )
    rows, codes = rows.reshape(rows.shape[0], -1), codes.reshape(codes.shape[0], -1)
    distances = tnp.linalg.norm(rows[:, None] - codes[None], axis=-1)
    return tnp.argmin(distances, 1), tnp.min(distances, 1)


__all__ = ["vq"]


def __dir__() -> list[str]:
    return __all__
