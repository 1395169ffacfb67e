"""Random sparse arrays."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

from tinyxla import numpy as tnp, random
from tinyxla.api import vmap
from tinyxla.errors import ArgumentError
from tinyxla.experimental.sparse.bcoo import BCOO
from tinyxla.experimental.sparse.util import canonical_shape


def random_bcoo(
    key: Any,
    shape: Sequence[int],
    *,
    dtype: Any = float,
    indices_dtype: Any = None,
    nse: float = 0.2,
    n_batch: int = 0,
    n_dense: int = 0,
    unique_indices: bool = True,
    sorted_indices: bool = False,
    generator: Callable[..., Any] = random.uniform,
    **kwds: Any,
) -> BCOO:
    """A BCOO array with random elements at random places.

    Args:
        key: a key of `random`.
        shape: of the array.
        dtype: the type of elements.
        indices_dtype: the type of indices, by default that of integers.
        nse: how many elements to specify for each batch, or below 1 their fraction of the sparse dimensions' sizes.
        n_batch, n_dense: the numbers of batch and dense dimensions.
        unique_indices: no element is there twice.
        sorted_indices: indices are in order.
        generator: of elements: a function of a key, shape and dtype, and of `kwds`.
        **kwds: keyword arguments of the generator.

    Returns:
        A BCOO array.

    Raises:
        ArgumentError: numbers that do not fit.

    Example:
        >>> from tinyxla.experimental.sparse import random_bcoo
        >>> import tinyxla as tx
        >>> random_bcoo(tx.random.key(0), (4, 5))
        BCOO(float32[4, 5], nse=4)
    """
    sizes = canonical_shape("random_bcoo", shape)
    n_batch, n_dense = operator.index(n_batch), operator.index(n_dense)
    n_sparse = len(sizes) - n_batch - n_dense
    if min(n_batch, n_dense, n_sparse) < 0:
        raise ArgumentError(f"random_bcoo: Invalid n_batch={n_batch}, n_dense={n_dense} for shape={sizes}.")
    batch, sparse, dense = sizes[:n_batch], sizes[n_batch : n_batch + n_sparse], sizes[n_batch + n_sparse :]
    room = math.prod(sparse)
    if not 0 <= nse < room:
        raise ArgumentError(f"random_bcoo: got nse={nse}, expected to be between 0 and {room}.")
    count = math.ceil(nse * room) if 0 < nse < 1 else operator.index(nse)  # type: ignore[arg-type]
    kind = tnp.asarray(0).dtype if indices_dtype is None else tnp.dtype(indices_dtype)
    if room > tnp.iinfo(kind).max:
        raise ArgumentError(f"random_bcoo: indices_dtype={kind} does not have enough range for {room} places.")

    def places(key: Any) -> Any:
        if not sparse:
            return tnp.zeros((count, 0), kind)
        flat = random.choice(key, room, (count,), replace=not unique_indices)
        return tnp.stack([c.astype(kind) for c in tnp.unravel_index(flat, sparse)], -1)

    keys = random.split(key, math.prod(batch) + 1)
    data = generator(keys[0], shape=(*batch, count, *dense), dtype=dtype, **kwds)
    indices = vmap(places)(keys[1:]).reshape(*batch, count, n_sparse)
    made = BCOO((data, indices), shape=sizes)
    return made.sort_indices() if sorted_indices else made
