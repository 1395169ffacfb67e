"""Policies of `jax.checkpoint` as JAX has them: they are asked of primitives, avals and parameters, where those of this
library are asked of operations."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from tinyxla import ad_checkpoint, checkpoint_policies
from tinyxla.hlo import Computation, Instruction
from tinyxla.jax.jaxprs.jaxpr import JaxprEqn
from tinyxla.jax.jaxprs.translation import Translation
from tinyxla.ops import Op, movement
from tinyxla.tracing.core import infer_shape

Policy = Callable[..., bool]


class _State(threading.local):
    asked: tuple[tuple[Any, ...], dict[str, Any]] | None = None  # the operation that a user's policy is asked of


_state = _State()


@dataclass(frozen=True)
class OfPrimitives:
    """A policy of the user's as one of operations."""

    policy: Policy

    def __call__(self, op: Op, *shapes: Any, **attributes: Any) -> bool:
        equation = _equation(op, shapes, attributes)
        outer = _state.asked
        try:
            _state.asked = (op, *shapes), attributes
            return bool(self.policy(equation.primitive, *(v.aval for v in equation.invars), **equation.params))
        finally:
            _state.asked = outer

    @property
    def __name__(self) -> str:
        return getattr(self.policy, "__name__", type(self.policy).__name__)


def _equation(op: Op, shapes: Sequence[Any], attributes: dict[str, Any]) -> JaxprEqn:
    """That of an operation on operands of these shapes."""
    inputs = [
        Instruction(movement.parameter, (), movement.Parameter(k, shape), shape, None) for k, shape in enumerate(shapes)
    ]
    root = Instruction(op, inputs, op.attributes(**attributes), infer_shape(op, tuple(shapes), attributes), None)
    translation = Translation(Computation("asked", inputs, [*inputs, root], root))
    translation.outputs(())  # what repeats a scalar is an equation where that is a result
    return translation.equations[-1]


def of_operations(policy: Policy) -> Policy:
    """A policy of this library, which policies of users may call with what they are asked of."""

    @functools.wraps(policy)
    def asked(op: Any, *shapes: Any, **attributes: Any) -> bool:
        if _state.asked is not None:
            operation, attributes = _state.asked
            return policy(*operation, **attributes)
        return policy(op, *shapes, **attributes)

    asked.is_of_operations = True  # type: ignore[attr-defined]
    return asked


def making(factory: Callable[..., Policy]) -> Callable[..., Policy]:
    """A function that makes policies of this library, some of policies of users."""

    @functools.wraps(factory)
    def made(*args: Any, **kwargs: Any) -> Policy:
        return of_operations(factory(*map(_argument, args), **{name: _argument(x) for name, x in kwargs.items()}))

    return made


def _argument(x: Any) -> Any:
    policy: Any = x
    return of_primitives(policy) if callable(x) else x


def of_primitives(policy: Policy | None) -> Policy | None:
    """A policy that a user gives, for `tinyxla.checkpoint`."""
    if not callable(policy) or isinstance(policy, OfPrimitives) or getattr(policy, "is_of_operations", False):
        return policy
    return OfPrimitives(policy)


_MAKING = {
    "offload_dot_with_no_batch_dims",
    "save_and_offload_only_these_names",
    "save_any_names_but_these",
    "save_anything_except_these_names",
    "save_from_both_policies",
    "save_only_these_names",
}
_once = functools.cache(of_operations)  # some policies have two names
policies = SimpleNamespace(
    **{
        name: (making if name in _MAKING else _once)(getattr(checkpoint_policies, name))
        for name in checkpoint_policies.__all__
    }
)


@functools.wraps(ad_checkpoint.checkpoint)
def checkpoint(fun: Callable[..., Any] | None = None, *, policy: Policy | None = None, **options: Any) -> Any:
    return ad_checkpoint.checkpoint(fun, policy=of_primitives(policy), **options)  # type: ignore[arg-type]
