"""Types and primitives above arrays, as `jax.experimental.hijax` has them. A primitive is its implementation here:
traces see what that does. Values that change are references (`tinyxla.tracing.references`), whose value is a container
of arrays."""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Generator, Hashable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

from tinyxla.errors import user_line
from tinyxla.jax.jaxprs.avals import AbstractValue, hi_types
from tinyxla.jax.jaxprs.primitives.program_primitives import Primitive
from tinyxla.tracing import pytrees
from tinyxla.tracing.core import state
from tinyxla.tracing.references import OuterReferenceError, Reference, mutable_classes


class HiType(AbstractValue):
    """A type of values that are not arrays."""


class MutableHiType(HiType):
    """A type of values that change, by `read_loval`, `update_from_loval` and `new_from_loval`. What depends on a value
    and is known while functions are traced, as the structure of what it holds, is its `cur_qdd`."""


class _Held:
    """The arrays of a value of a mutable type, as a pytree."""

    def __init__(self, qdd: Any, arrays: Sequence[Any]) -> None:
        self.qdd = qdd
        self.arrays = arrays

    def differs(self, other: _Held) -> bool:
        """Whether an array is another one."""
        pairs = zip(self.arrays, other.arrays, strict=False)
        return len(self.arrays) != len(other.arrays) or any(x is not y for x, y in pairs) or self.qdd != other.qdd


pytrees.register(_Held, lambda x: (tuple(x.arrays), x.qdd), lambda qdd, arrays: _Held(qdd, arrays))


class HiReference(Reference):
    """A value of a mutable type, as transformations see it: a reference whose value is what it holds."""

    belonging: ClassVar[dict[int, HiReference]] = {}  # values of traced functions, by identity

    def __init__(self, target: Any, aval: Any) -> None:
        Reference.exist = True
        self._target = target
        self._aval = aval
        self.source = ""
        self.is_written = self._is_freed = False
        self._belongs_to = 0, None

    @staticmethod
    def of(target: Any) -> HiReference | None:
        """That of a value of a type which is registered; None if the type is not mutable."""
        aval = hi_types[type(target)](target)
        if not (isinstance(aval, MutableHiType) and getattr(aval, "has_qdd", True)):
            return None
        return HiReference.belonging.get(id(target)) or HiReference(target, aval)

    def made_here(self) -> HiReference:
        """The same, of a value that the function which is traced now has made."""
        self.source = user_line()
        self._scope = state.depth, state.staging
        return self

    @property
    def target(self) -> Any:
        return self._target

    @property
    def kind(self) -> Hashable:
        return self._aval

    @property
    def _scope(self) -> tuple[int, Any]:
        return self._belongs_to

    @_scope.setter
    def _scope(self, scope: tuple[int, Any]) -> None:
        belonging = HiReference.belonging
        self._belongs_to = scope
        if scope == (0, None):
            belonging.pop(id(self._target), None)
        else:
            for ended in [key for key, r in belonging.items() if not r.is_alive or r._belongs_to[0] > state.depth]:
                del belonging[ended]
            belonging[id(self._target)] = self

    @property
    def _value(self) -> _Held:
        with _looking_inside():
            qdd = self._target.cur_qdd()
            return _Held(qdd.normalize(), self._aval.read_loval(qdd, self._target))

    @_value.setter
    def _value(self, held: _Held) -> None:
        with _looking_inside():
            self._aval.update_from_loval(held.qdd, self._target, *held.arrays)

    def like(self, value: _Held) -> HiReference:
        return HiReference(self._aval.new_from_loval(value.qdd, *value.arrays), self._aval).made_here()

    def __copy__(self) -> HiReference:
        return self.like(self.read())

    def write(self, new: _Held) -> None:
        self.read()
        self._refuse_inner_arrays(new)
        self._value = new
        self.is_written = True

    def note_writing(self, before: _Held) -> None:
        """Remember that a primitive has replaced what there was before, or take it back if it may not."""
        after = self.read()
        if not before.differs(after):
            return
        try:
            self._refuse_inner_arrays(after)
        except OuterReferenceError:
            self._value = before
            raise
        self.is_written = True

    def _refuse_inner_arrays(self, held: _Held) -> None:
        for x in held.arrays:
            self._refuse_inner(x)


_looks_inside = contextvars.ContextVar("looks_inside", default=False)


@contextmanager
def _looking_inside() -> Generator[None]:
    """Primitives that are bound read and write a value whose reference is at work."""
    token = _looks_inside.set(True)
    try:
        yield
    finally:
        _looks_inside.reset(token)


class HiPrimitive(Primitive):
    """A primitive whose methods are its rules: `impl(*operands, **params)`, or `to_lojax`."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        for rule in ("impl", "abstract_eval"):  # the methods count, which attributes of an instance would hide
            if hasattr(type(self), rule):
                delattr(self, rule)

    def bind(self, *args: Any, **params: Any) -> Any:
        function: Any = self.impl if hasattr(type(self), "impl") else self.to_lojax  # type: ignore[attr-defined]
        if _looks_inside.get():
            return function(*args, **params)
        references = [r for x in args if type(x) in hi_types and (r := HiReference.of(x)) is not None]
        before = [r.read() for r in references]
        result = function(*args, **params)
        for r, held in zip(references, before, strict=True):
            r.note_writing(held)
        for x in result if self.multiple_results else [result]:
            if type(x) in hi_types and (made := HiReference.of(x)) is not None:
                made.made_here()
        return result


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


def register_hitype(kind: type, typeof: Callable[..., Any]) -> None:
    """Say which type the values of a class have."""
    hi_types[kind] = typeof
    mutable_classes[kind] = HiReference.of


def cur_qdd(x: Any) -> Any:
    """The quasi-dynamic data (QDD) of a mutable object: what is known of its value while functions are traced."""
    return x.cur_qdd()
