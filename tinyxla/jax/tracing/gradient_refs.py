"""`jax.ad`: what becomes of the gradients that the pullback of `vjp` gives: they are added to mutable arrays, given, or
not wanted.

Source: the tests of JAX's `vjp`; there is no documentation of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tinyxla.api.derivatives import Pullback
from tinyxla.errors import ArgumentError
from tinyxla.jax.jaxprs.refs import Ref
from tinyxla.tracing import pytrees


@dataclass(frozen=True)
class GradValue:
    """The gradient is given."""


@dataclass(frozen=True)
class DontWant:
    """The gradient is not wanted."""


@dataclass(frozen=True)
class DidntWant:
    """Stands in the result for a gradient that was not wanted."""


@dataclass(frozen=True)
class GradRef:
    """Stands in the result for a gradient that was added to a Ref."""


for _kind in (DidntWant, GradRef):  # which compiled functions may give
    pytrees.register(_kind, lambda _: ((), None), lambda _, children, kind=_kind: kind())


def with_refs(self: Pullback, *wanted: Any) -> Callable[[Any], tuple[Any, ...]]:
    """A pullback that does with each gradient what stands in its place: a Ref, `GradValue()` or `DontWant()`.

    Args:
        wanted: for each argument, structured as it or as a part of it that begins at its root.

    Example:
        >>> import tinyxla.jax
        >>> import jax
        >>> y, pullback = jax.vjp(lambda x, y: x * y, 2.0, 3.0)
        >>> total = jax.new_ref(jax.numpy.float32(1))
        >>> pullback.with_refs(total, jax.ad.DontWant())(1.0)
        (GradRef(), DidntWant())
        >>> total[...]
        Array(4., dtype=float32)
    """

    def pullback(cotangent: Any) -> tuple[Any, ...]:
        leaves, tree = pytrees.flatten_shown(self(cotangent))
        whole = pytrees.unflatten(tree, [0] * len(leaves))
        targets = pytrees.broadcast_prefix(wanted, whole, f"vjp of {self.__name__}: with_refs")
        return pytrees.unflatten(tree, [_given(self, x, to) for x, to in zip(leaves, targets, strict=True)])

    return pullback


def _given(pullback: Pullback, gradient: Any, to: Any) -> Any:
    """What stands in the result for a gradient."""
    if isinstance(to, GradValue):
        return gradient
    if isinstance(to, DontWant):
        return DidntWant()
    if isinstance(to, Ref):
        to.addupdate(gradient)
        return GradRef()
    raise ArgumentError(
        f"vjp of {pullback.__name__}: with_refs takes a Ref, GradValue() or DontWant() for each gradient, but got "
        f"{to!r}."
    )
