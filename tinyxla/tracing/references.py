"""Mutable references in traced functions.

A graph has no memory: a function that is recorded takes the values of the references which it uses as further
arguments, and gives their new values as further results. Which references these are is found by recording it: using
one that belongs to a surrounding function raises `OuterReferenceError`, and the transformation that records the
function then does so again with the reference bound to a parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from tinyxla.errors import ArgumentError, user_line
from tinyxla.tracing import pytrees
from tinyxla.tracing.core import Tracer, state
from tinyxla.tracing.promotion import as_array


class OuterReferenceError(ArgumentError):
    """A reference is used by a traced function inside of the one that it belongs to."""

    def __init__(self, reference: Reference, inside: str = "a transformed function") -> None:
        super().__init__(
            f"A Ref is used inside {inside}, but was made outside of it; make it inside, or give the array as an "
            "argument and the updated one as a result."
        )
        self.reference = reference


class Reference:
    """A value that can be replaced, by the function that made it or to which it is bound."""

    exist = False  # whether any has been made: else nobody need look for them
    in_rules = False  # whether any has been given to a function with derivative rules of its own

    def __init__(self, value: Any) -> None:
        Reference.exist = True
        self._value: Any = as_array(value)
        self.source = user_line()  # for errors
        self._scope = state.depth, state.staging
        self._is_freed = False
        self.is_written = False  # by the function that is traced now

    @property
    def is_alive(self) -> bool:
        """Whether it is not freed, and the function that made it has not ended."""
        staging = self._scope[1]
        return not self._is_freed and (staging is None or staging.active)

    @property
    def is_readable(self) -> bool:
        """Whether the function that is traced now may use it."""
        return not self._is_freed and self._scope[1] is state.staging

    @property
    def is_lasting(self) -> bool:
        """Whether it was made outside of all traced functions."""
        return self._scope[1] is None

    shape = property(lambda self: self._value.shape)
    dtype = property(lambda self: self._value.dtype)

    @property
    def held(self) -> Any:
        """The value, for questions about its type, also where it cannot be read."""
        return self._value

    @property
    def target(self) -> Any:
        """The object that users see."""
        return self

    @property
    def kind(self) -> Hashable:
        """What a function that takes it is traced for, beside its value."""
        return type(self)

    def like(self, value: Any) -> Reference:
        """Another one, made here, that holds a value."""
        return type(self)(value)

    def read(self) -> Any:
        """The value."""
        if self._is_freed:
            raise ArgumentError("This Ref has been frozen or freed; use the array that freeze gave.")
        if self._scope[1] is not state.staging:
            raise OuterReferenceError(self)
        return self._value

    def write(self, new: Any) -> None:
        """Replace the value by another one of its shape and type."""
        old = self.read()
        self._refuse_inner(new)
        self._value = new.with_weak_type(old.weak_type)
        self.is_written = True

    def _refuse_inner(self, new: Any) -> None:
        """An error for a tracer of a trace inside of the one that it belongs to."""
        if isinstance(new, Tracer) and new.owner.level >= self._scope[0]:
            raise OuterReferenceError(self, new.owner.what)

    def free(self) -> Any:
        """The value; the reference cannot be used any more."""
        value = self.read()
        self._is_freed = True
        return value

    def __jax_array__(self) -> Any:
        raise TypeError("a Ref is not an array; read it with ref[...]")


# Classes of objects that are references, too, and how to find that of an object; None is one that does not change.
mutable_classes: dict[type, Callable[[Any], Reference | None]] = {}


def reference_of(x: Any) -> Reference | None:
    """The reference that a leaf is; None for another one."""
    if isinstance(x, Reference):
        return x
    find = mutable_classes.get(type(x))
    return None if find is None else find(x)


@contextmanager
def bound(references: Sequence[Reference], values: Sequence[Any]) -> Generator[None]:
    """References with other values, which the function that is traced now may use and replace."""
    before = [(r._value, r._scope) for r in references]  # pyright: ignore[reportPrivateUsage]
    try:
        for r, value in zip(references, values, strict=True):
            r._value, r._scope = value, (state.depth, state.staging)  # pyright: ignore[reportPrivateUsage]
        yield
    finally:
        for r, (value, scope) in zip(references, before, strict=True):
            r._value, r._scope = value, scope  # pyright: ignore[reportPrivateUsage]


def threaded(function: Callable[..., Any], references: Sequence[Reference]) -> Callable[..., Any]:
    """`function(*args)` as a function of the references' values and the arguments, which gives the result and the
    references' new values."""

    def of_values(values: Sequence[Any], *args: Any, **kwargs: Any) -> tuple[Any, list[Any]]:
        with bound(references, values):
            result = function(*args, **kwargs)
            return result, [r.read() for r in references]

    return of_values


def updated(function: Callable[..., Any], references: Sequence[Reference]) -> Callable[..., Any]:
    """As `threaded`, with None in the place of values that the function leaves as they are."""

    def of_values(values: Sequence[Any], *args: Any, **kwargs: Any) -> tuple[Any, list[Any]]:
        before = [r.is_written for r in references]
        try:
            _set_written(references, [False] * len(references))
            result, after = threaded(function, references)(values, *args, **kwargs)
            return result, [x if r.is_written else None for r, x in zip(references, after, strict=True)]
        finally:
            _set_written(references, before)

    return of_values


def _set_written(references: Sequence[Reference], written: Sequence[bool]) -> None:
    for r, flag in zip(references, written, strict=True):
        r.is_written = flag


class Carried:
    """The values of references which a loop or a branch is given, and what becomes of them."""

    def __init__(self, references: Sequence[Reference]) -> None:
        self.references = references
        self.values = values_of(references)
        self._before = [r.is_written for r in references]
        _set_written(references, [False] * len(references))

    def write(self, values: Sequence[Any]) -> None:
        """Replace the values of those references that the loop's functions, which have been traced since, wrote."""
        written = [r.is_written for r in self.references]
        _set_written(self.references, self._before)
        write_all(self.references, [x if w else None for x, w in zip(values, written, strict=True)])


_MOST_REFERENCES = 1024  # of one function: an object that it makes anew whenever it is traced is never found


_expected: ContextVar[Sequence[Reference]] = ContextVar("references that are expected", default=())


@contextmanager
def expecting(references: Sequence[Reference]) -> Generator[None]:
    """References that loops and branches carry from the first time on that they are traced, since they probably use
    them: each one that has to be found takes another time, and that for each loop around."""
    before = _expected.set(references)
    try:
        yield
    finally:
        _expected.reset(before)


def expected() -> Sequence[Reference]:
    """These references."""
    return _expected.get()


def discovered(run: Callable[[list[Reference]], Any], known: list[Reference] | None = None) -> Any:
    """`run(references)` with all outer references that it uses; `known` ones are tried first, and others added."""
    references = [r for r in expected() if r.is_readable] if known is None else known
    while True:
        before = [r.is_written for r in references]
        try:
            return run(references)
        except OuterReferenceError as error:
            _set_written(references, before)
            found = error.reference
            is_known = any(r.target is found.target for r in references)
            if is_known or not found.is_alive or len(references) == _MOST_REFERENCES:
                raise
            references.append(found)


def values_of(references: Sequence[Reference]) -> list[Any]:
    """The values of references."""
    return [r.read() for r in references]


def write_all(references: Sequence[Reference], values: Sequence[Any]) -> None:
    """Replace the values of references; None leaves one as it is."""
    for r, value in zip(references, values, strict=True):
        if value is not None:
            r.write(value)


# --- references as arguments ------------------------------------------------------------------------------------------


class Slot:
    """The place of a reference among arguments: a container of nothing, so that it is part of their structure."""

    def __init__(self, number: int, kind: Hashable) -> None:
        self.number = number
        self.kind = kind


pytrees.register(Slot, lambda x: ((), (x.number, x.kind)), lambda rest, children: Slot(*rest))


def slotted(tree: Any) -> tuple[Any, list[Reference]]:
    """A pytree with slots in the place of its references, and these, each once."""
    references: list[Reference] = []

    def slot(x: Any) -> Any:
        found = reference_of(x)
        if found is None:
            return x
        numbers = [k for k, r in enumerate(references) if r.target is x]
        if not numbers:
            references.append(found)
        return Slot(numbers[0] if numbers else len(references) - 1, found.kind)

    return pytrees.map_tree(slot, tree), references


def check_aliases(what: str, tree: Any, names: Callable[[], Sequence[str]]) -> None:
    """An error for a reference that is two leaves; `names` are those of the leaves."""
    given = [(k, x) for k, x in enumerate(pytrees.leaves(tree)) if reference_of(x) is not None]
    pairs = ((j, k) for n, (k, x) in enumerate(given) for j, y in given[:n] if x is y)
    for j, k in pairs:
        raise ArgumentError(
            f"{what}: a Ref is passed twice, as the arguments {names()[j]} and {names()[k]}; a function takes it one "
            "way only."
        )


class Part:
    """The base of classes of parts of references: containers of a reference and what of it they are."""


def check_whole(what: str, tree: Any) -> None:
    """An error for a part of a reference, where those are mapped over that are arguments."""
    if any(isinstance(x, Part) for x in pytrees.flatten(tree, lambda x: isinstance(x, Part))[0]):
        raise ArgumentError(
            f"{what}: a part of a Ref, such as ref.at[index], is no argument that is mapped over; use it from around."
        )


def closed_over_error(what: str, reference: Reference, tree: Any, names: Callable[[], Sequence[str]]) -> ArgumentError:
    """For a reference that a function uses from around, and that is a leaf among its arguments."""
    (k, *_) = (k for k, x in enumerate(pytrees.leaves(tree)) if x is reference.target)
    return ArgumentError(
        f"{what}: a Ref is used from around and passed as the argument {names()[k]}; a function takes it one way only."
    )


def filled(tree: Any, values: Sequence[Any]) -> Any:
    """A pytree with values, of references these themselves, in the place of its slots."""
    found = [x.target if isinstance(x, Reference) else x for x in values]
    return pytrees.map_tree(
        lambda x: found[x.number] if isinstance(x, Slot) else x, tree, is_leaf=lambda x: isinstance(x, Slot)
    )


def has_references(tree: Any) -> bool:
    """Whether a leaf is a reference."""
    return Reference.exist and any(reference_of(x) is not None for x in pytrees.leaves(tree))
