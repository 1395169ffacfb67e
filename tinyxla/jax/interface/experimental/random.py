"""`jax.experimental.random`: random numbers by an object that counts its draws, as NumPy's generators do."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tinyxla import dtypes, numpy as _numpy, random as _random
from tinyxla.errors import ArgumentError
from tinyxla.jax.jaxprs.refs import Ref, new_ref
from tinyxla.tracing.core import state as _state
from tinyxla.tree_util import register_dataclass

__all__ = ["StatefulPRNG", "stateful_rng"]

Size = int | Sequence[int] | None


def _shape(size: Size, *parameters: Any) -> tuple[int, ...]:
    """The shape of a draw: that which is asked for, or that of the parameters together."""
    if size is None:
        return np.broadcast_shapes(*(np.shape(x) for x in parameters))
    return (operator.index(size),) if hasattr(size, "__index__") else tuple(map(operator.index, size))


@register_dataclass
@dataclass(frozen=True)
class StatefulPRNG:
    """A generator of random numbers: a key, and a counter in a `Ref`, which each draw increments. Draw n is that of the
    key with n folded in. Make one with `stateful_rng`.

    Example:
        >>> import tinyxla.jax
        >>> from jax.experimental import random
        >>> rng = random.stateful_rng(42)
        >>> rng.uniform(), rng.uniform()
        (Array(0.5302608, dtype=float32), Array(0.72766423, dtype=float32))
    """

    _base_key: Any
    _counter: Ref

    def key(self, shape: int | Sequence[int] = ()) -> Any:
        """A new key, or an array of keys of this shape."""
        if self._base_key.shape:
            raise ArgumentError(
                "StatefulPRNG: a generator that was split into several draws nothing; map over it with vmap."
            )
        key = _random.fold_in(self._base_key, self._counter[...])
        self._counter.addupdate(1)
        sizes = _shape(shape)
        return _random.split(key, sizes) if sizes else key

    def random(self, size: Size = None, dtype: Any = float) -> Any:
        """Numbers that are uniform from 0 to 1."""
        return _random.uniform(self.key(), _shape(size), dtype=dtype)

    def uniform(self, low: Any = 0, high: Any = 1, size: Size = None, *, dtype: Any = float) -> Any:
        """Numbers that are uniform from `low` to `high`."""
        return _random.uniform(self.key(), _shape(size, low, high), dtype=dtype, minval=low, maxval=high)

    def normal(self, loc: Any = 0, scale: Any = 1, size: Size = None, *, dtype: Any = float) -> Any:
        """Normally distributed numbers of mean `loc` and standard deviation `scale`."""
        drawn = _random.normal(self.key(), _shape(size, loc, scale), dtype)
        return (_numpy.asarray(loc) + _numpy.asarray(scale) * drawn).astype(dtypes.canonicalize_dtype(dtype))

    def integers(self, low: Any, high: Any = None, size: Size = None, *, dtype: Any = int) -> Any:
        """Integers from `low` to below `high`, or from 0 to below `low`."""
        first, end = (0, low) if high is None else (low, high)
        return _random.randint(self.key(), _shape(size, first, end), first, end, dtype=dtype)

    def split(self, num: int | Sequence[int]) -> StatefulPRNG:
        """Independent generators as one object, to be mapped over with `vmap`."""
        return StatefulPRNG(self.key(num), new_ref(_numpy.zeros(num, int)))

    def spawn(self, n_children: int) -> list[StatefulPRNG]:
        """A list of independent generators."""
        return [StatefulPRNG(key, new_ref(0)) for key in self.key(n_children)]


def stateful_rng(seed: Any = None, *, impl: Any = None) -> StatefulPRNG:
    """A generator of random numbers that changes with each draw, in compiled functions, loops and branches, too.

    Args:
        seed: an integer. Outside of transformed functions it may be left out: then each generator is another one.
        impl: the kind of its keys, as `random.key` takes it.

    Raises:
        ArgumentError: there is no seed inside a transformed function.
    """
    if seed is None:
        if _state.staging is not None or _state.depth:
            raise ArgumentError("stateful_rng: inside a transformed function there must be a seed; pass one.")
        seed = np.random.SeedSequence().generate_state(1)[0] >> 1
    return StatefulPRNG(_random.key(seed, impl=impl), new_ref(0))
