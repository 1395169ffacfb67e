"""Types and primitives above arrays, as `jax.experimental.hijax` has them. A primitive is its implementation here:
traces see what that does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tinyxla.jax.jaxprs.avals import AbstractValue
from tinyxla.jax.jaxprs.primitives.program_primitives import Primitive


class HiType(AbstractValue):
    """A type of values that are not arrays."""


class MutableHiType(HiType):
    """A type of values that change."""


class HiPrimitive(Primitive):
    """A primitive whose methods are its rules: `impl(*operands, **params)`."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        for rule in ("impl", "abstract_eval"):  # the methods count, which attributes of an instance would hide
            if hasattr(type(self), rule):
                delattr(self, rule)

    def bind(self, *args: Any, **params: Any) -> Any:
        return self.impl(*args, **params)


@dataclass(frozen=True)
class AvalQDD:
    """A type together with what depends on the value and is known."""

    aval: Any
    qdd: Any


@dataclass(frozen=True)
class AvalMutableQDD:
    """The same of a value that changes."""

    aval: Any
    mutable_qdd: Any


class aval_property:
    """A property of traced values of a type, given by a function of the value."""

    def __init__(self, fget: Callable[..., Any]) -> None:
        self.fget = fget


class aval_method:
    """A method of traced values of a type."""

    def __init__(self, fun: Callable[..., Any]) -> None:
        self.fun = fun


class _Effects:
    """Types of effects."""

    def __init__(self) -> None:
        self._types: list[type] = []

    def add_type(self, effect: type) -> None:
        """Allow a type of effects."""
        self._types.append(effect)

    def contains(self, effect: Any) -> bool:
        """Whether an effect is of a type that is allowed."""
        return isinstance(effect, tuple(self._types))


control_flow_allowed_effects = _Effects()
hi_types: dict[type, Callable[..., Any]] = {}


def register_hitype(kind: type, typeof: Callable[..., Any]) -> None:
    """Say which type the values of a class have."""
    hi_types[kind] = typeof


def cur_qdd(x: Any) -> Any:
    """What depends on the value of a mutable object and is known now."""
    return x.cur_qdd()
