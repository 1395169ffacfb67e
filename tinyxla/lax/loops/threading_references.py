"""Loops and branches whose functions use mutable references: these are carried along.

Each decorator is that of one function of `lax`. It calls the function as it is; if a reference from around is used
there, it calls it again with functions that carry the reference's value, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import Any, TypeVar, cast

from tinyxla.api.functions import name_of, parameter_names
from tinyxla.tracing.references import (
    Carried,
    OuterReferenceError,
    Reference,
    check_aliases,
    check_whole,
    closed_over_error,
    discovered,
    filled,
    has_references,
    slotted,
    threaded,
    updated,
    values_of,
    write_all,
)
from tinyxla.util.wrapping import wraps

Function = Callable[..., Any]
_Map = TypeVar("_Map", bound=Function)


def scanning(scan: Function) -> Function:
    """`scan`, whose function takes and gives what is carried and elements."""

    @wraps(scan)
    def with_references(f: Any, init: Any, *args: Any, **kwargs: Any) -> Any:
        if not Reference.exist:
            return scan(f, init, *args, **kwargs)
        xs = args[0] if args else kwargs.get("xs")
        if has_references(init):
            check_aliases(f"lax.scan of {name_of(f)}", init, lambda: parameter_names(f, (init,), {}))
        if has_references(xs):
            given = kwargs if args else {name: x for name, x in kwargs.items() if name != "xs"}
            return over_references(f, init, xs, *args[1:], **given)

        def run(references: list[Reference]) -> Any:
            if not references:
                return scan(f, init, *args, **kwargs)
            carried, function = Carried(references), threaded(f, references)

            @wraps(f)
            def step(carry: Any, x: Any) -> Any:
                (following, y), values = function(carry[0], carry[1], x)
                return (values, following), y

            (values, last), ys = scan(step, (carried.values, init), *args, **kwargs)
            carried.write(values)
            return last, ys

        return discovered(run)

    def over_references(f: Any, init: Any, xs: Any, *args: Any, **kwargs: Any) -> Any:
        """References whose elements are scanned: each step has one of its own, and what these hold is written back."""
        check_whole("lax.scan", xs)
        others, passed = slotted(xs)

        @wraps(f)
        def step(carry: Any, given: Any) -> Any:
            own = [r.like(x) for r, x in zip(passed, given[0], strict=True)]
            following, y = f(carry, filled(given[1], own))
            return following, (y, [r.read() for r in own])

        last, (ys, values) = with_references(step, init, (values_of(passed), others), *args, **kwargs)
        write_all(passed, values)
        return last, ys

    return with_references


def mapping(scan: Function) -> Callable[[_Map], _Map]:
    """`map`, whose function is applied to one element after the other: with references by a scan."""

    def decorator(map_: _Map) -> _Map:
        @wraps(map_)
        def with_references(f: Any, xs: Any, *, batch_size: int | None = None) -> Any:
            try:
                return map_(f, xs, batch_size=batch_size)
            except OuterReferenceError:
                if batch_size is not None:
                    raise
                return scan(wraps(f)(lambda carry, x: (carry, f(x))), (), xs)[1]

        return cast(_Map, with_references)

    return decorator


def counting(fori_loop: Function) -> Function:
    """`fori_loop`, whose function takes a number and what is carried."""

    @wraps(fori_loop)
    def with_references(lower: Any, upper: Any, body_fun: Any, init_val: Any, **kwargs: Any) -> Any:
        if not Reference.exist:
            return fori_loop(lower, upper, body_fun, init_val, **kwargs)

        def run(references: list[Reference]) -> Any:
            if not references:
                return fori_loop(lower, upper, body_fun, init_val, **kwargs)
            carried, body = Carried(references), threaded(body_fun, references)

            @wraps(body_fun)
            def step(i: Any, carry: Any) -> Any:
                following, values = body(carry[0], i, carry[1])
                return values, following

            values, last = fori_loop(lower, upper, step, (carried.values, init_val), **kwargs)
            carried.write(values)
            return last

        return discovered(run)

    return with_references


def looping(while_loop: Function) -> Function:
    """`while_loop`, whose functions may read and replace references. What the condition writes is there for the body
    and later; what it writes before the loop ends, where no step follows, is dropped."""

    @wraps(while_loop)
    def with_references(cond_fun: Any, body_fun: Any, init_val: Any, **kwargs: Any) -> Any:
        if not Reference.exist:
            return while_loop(cond_fun, body_fun, init_val, **kwargs)

        def looped(references: list[Reference], values: Any, condition_writes: bool) -> Any:
            test, body = updated(cond_fun, references), threaded(body_fun, references)

            @wraps(cond_fun)
            def condition(carry: Any) -> Any:
                holds, written = test(*carry)
                if not condition_writes and any(x is not None for x in written):
                    raise _WritingCondition
                return holds

            @wraps(body_fun)
            def step(carry: Any) -> Any:
                values, held = carry
                written = test(values, held)[1] if condition_writes else [None] * len(references)
                following, values = body([x if y is None else y for x, y in zip(values, written, strict=True)], held)
                for r, y in zip(references, written, strict=True):
                    r.is_written |= y is not None
                return values, following

            return while_loop(condition, step, (values, init_val), **kwargs)

        def run(references: list[Reference]) -> Any:
            if not references:
                return while_loop(cond_fun, body_fun, init_val, **kwargs)
            carried = Carried(references)
            try:
                values, last = looped(references, carried.values, False)
            except _WritingCondition:
                values, last = looped(references, carried.values, True)
            carried.write(values)
            return last

        return discovered(run)

    return with_references


class _WritingCondition(Exception):
    """The condition of a loop replaces the value of a reference, so that the loop's steps evaluate it, too."""


def branching(choose: Function) -> Function:
    """A choice among functions of the same operands, of which some may be references."""

    @wraps(choose)
    def with_references(what: str, index: Any, functions: Sequence[Function], args: tuple[Any, ...]) -> Any:
        if not Reference.exist:
            return choose(what, index, functions, args)
        given, passed = slotted(args) if has_references(args) else (args, [])
        whole = f"{what} of {name_of(functions[0])}", args, lambda: parameter_names(functions[0], args, {})
        if passed:
            check_aliases(*whole)

        own = [copy(r) for r in passed]

        def of_slots(function: Function) -> Function:
            return wraps(function)(lambda *operands: function(*filled(operands, own))) if passed else function

        branches = [of_slots(f) for f in functions]

        def run(references: list[Reference]) -> Any:
            if not references:
                return choose(what, index, branches, given)
            for r in references:
                if any(r.target is x.target for x in passed):
                    raise closed_over_error(whole[0], r, *whole[1:])
            carried = Carried(references)
            chosen = [wraps(f)(threaded(f, references)) for f in branches]
            result, values = choose(what, index, chosen, (carried.values, *given))
            carried.write(values)
            return result

        result = discovered(run)
        for r, held in zip(passed, own, strict=True):
            if held.read() is not r.read():
                r.write(held.read())
        return result

    return with_references
