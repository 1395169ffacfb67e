"""The types of functions that constructors make, by which a type checker knows their arguments and results.

They are classes, not protocols, so that a transformation can tell such a function from one of a user's with the same
signature: the gradient of `jnp.sin` is a function of the same type, that of a user's function one of its own.
"""

from __future__ import annotations

from typing import Any, ParamSpec, Protocol, TypeVar, TypeVarTuple

from tinyxla.tracing.array import Array, Operand

P = ParamSpec("P")
"""The parameters of a function."""

R = TypeVar("R")
"""Its result."""

Tree = TypeVar("Tree")
"""A pytree."""

Aux = TypeVar("Aux")
"""What it gives besides, with `has_aux`."""

Argument = TypeVar("Argument", bound=Any)
"""The argument by which there is a derivative. It is bound by Any, so that a lambda of it may have any body."""

SomeArray = TypeVar("SomeArray", bound=Array)
"""An argument that is an array."""

Arguments = TypeVarTuple("Arguments")
"""Positional arguments."""


class Transformed(Protocol[P]):
    """A function with the parameters of another one, and a result that has no type: it depends on values."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any: ...


class Unary:
    """An element-wise function of one array."""

    def __call__(self, x: Operand, /) -> Array:
        raise NotImplementedError


class Binary:
    """An element-wise function of two arrays."""

    def __call__(self, x: Operand, y: Operand, /, out: None = None, where: None = None) -> Array:
        raise NotImplementedError
