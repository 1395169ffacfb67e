"""`checkify` and the checks that users write."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from tinyxla.api.functions import OfLeaves, check_callable, name_of
from tinyxla.errors import ArgumentError, OutOfBoundsError, user_line
from tinyxla.experimental.checkify.errors import (
    Description,
    DivisionByZeroError,
    Error,
    FailedCheckError,
    JaxException,
    NaNError,
    OOBError,
    State,
    assert_ok,
    failed,
)
from tinyxla.experimental.checkify.functionalization import Checked, checked, interpret
from tinyxla.hlo import Computation
from tinyxla.ops import elementwise
from tinyxla.shapes import Shape
from tinyxla.tracing import pytrees
from tinyxla.tracing.array import Array
from tinyxla.tracing.config import setting
from tinyxla.tracing.core import trace
from tinyxla.tracing.promotion import as_array
from tinyxla.transforms import call
from tinyxla.util.wrapping import transformed

ErrorCategory = type[JaxException]

user_checks: frozenset[ErrorCategory] = frozenset({FailedCheckError})
nan_checks: frozenset[ErrorCategory] = frozenset({NaNError})
index_checks: frozenset[ErrorCategory] = frozenset({OOBError})
div_checks: frozenset[ErrorCategory] = frozenset({DivisionByZeroError})
float_checks = nan_checks | div_checks
automatic_checks = float_checks | index_checks
all_checks = automatic_checks | user_checks
init_error = Error()


def checkify(f: Callable[..., Any], errors: Iterable[ErrorCategory] = user_checks) -> Callable[..., Any]:
    """A function that returns an error value beside its result, instead of raising: calls of `check` inside it, and
    the checks of operations that are asked for, become part of what is computed.

    Args:
        f: of pytrees of arrays; other arguments are handed in as they are. It is traced, as by `jit`.
        errors: the categories of checks, a union of `user_checks` (calls of `check`), `nan_checks` (a NaN is made),
            `div_checks` (a divisor is zero) and `index_checks` (an index is out of bounds); `float_checks`,
            `automatic_checks` and `all_checks` are such unions.

    Returns:
        A function of the same arguments that gives `(error, result)`. `error.get()` is the message of the first check
        that failed or None, and `error.throw()` raises it as `JaxRuntimeError`. It may be compiled, mapped and
        differentiated.

    Raises:
        ArgumentError: f is not callable, or `errors` has what is no category.

    Example:
        >>> import tinyxla as tx
        >>> from tinyxla.experimental import checkify
        >>> def root(x):
        ...     checkify.check(x >= 0, "{x} is negative", x=x)
        ...     return tx.numpy.sqrt(x)
        >>> error, y = tx.jit(checkify.checkify(root))(tx.numpy.array(-4.0))
        >>> error.get()
        '-4.0 is negative (`check` failed)'
    """
    check_callable("checkify", f)
    kinds = frozenset(errors)
    if not all(isinstance(k, type) and issubclass(k, JaxException) for k in kinds):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ArgumentError(
            f"checkify of {name_of(f)}: errors is a set of categories, such as float_checks, but is {errors!r}."
        )

    @transformed("checkify", f)
    def checked_function(*args: Any, **kwargs: Any) -> tuple[Error, Any]:
        try:
            return _checked(f, args, kwargs, kinds, (Array, np.ndarray))
        except OutOfBoundsError:
            # an index that is known raises while it is traced; as one that is not it is checked instead
            with setting("out_of_bounds_indices", "trace"):
                return _checked(f, args, kwargs, kinds, (Array, np.ndarray, np.generic, int))

    return checked_function


def _checked(f: Callable[..., Any], args: Any, kwargs: Any, kinds: Any, traced: tuple[type, ...]) -> tuple[Error, Any]:
    leaves, structure = pytrees.flatten((args, kwargs))
    places = [k for k, x in enumerate(leaves) if isinstance(x, traced) and not isinstance(x, bool)]
    arrays = [as_array(leaves[k]) for k in places]
    flat = OfLeaves(f, structure, named=True)

    def function(*given: Any) -> list[Any]:
        whole = list(leaves)
        for k, x in zip(places, given, strict=True):
            whole[k] = x
        return flat(*whole)

    shapes, weak = [Shape.of(x) for x in arrays], [x.weak_type for x in arrays]
    what = f"the checked function {name_of(f)}"
    computation, captured, weakness = trace(function, shapes, name_of(f), weak, what)
    error, values = _run(computation, [*arrays, *captured], kinds)
    return Error(error), flat.result(x.with_weak_type(w) for x, w in zip(values, weakness, strict=True))


def _run(computation: Computation, operands: list[Any], kinds: frozenset[ErrorCategory]) -> tuple[State | None, Any]:
    inner: Checked | None = checked(computation, kinds)
    program = computation if inner is None else inner.computation
    if program.has_side_effect:  # of callbacks, or of checks that are to raise
        return interpret(computation, operands, kinds)
    outputs = call(*operands, to_apply=program)
    return (None, outputs) if inner is None else inner.split(outputs)


def check(pred: Any, msg: str, *fmt_args: Any, debug: bool = False, **fmt_kwargs: Any) -> None:
    """Check that a predicate holds: an error if it does not, which `checkify` turns into a value.

    Outside of compiled functions it raises at once. A compiled function with a check must be checkified.

    Args:
        pred: a scalar of type bool.
        msg: the message, a text with places for the arguments, as for `str.format`.
        fmt_args, fmt_kwargs: pytrees of arrays for the message.
        debug: check under `checkify` only, and do nothing otherwise.

    Raises:
        JaxRuntimeError: the predicate is false.
        ArgumentError: `pred` is no boolean scalar, or an argument of the message is no array.

    Example:
        >>> import tinyxla as tx
        >>> from tinyxla.experimental import checkify
        >>> checkify.check(tx.numpy.array(2.0) > 1, "must be larger")
    """
    name = "debug_check" if debug else "check"
    is_bool = isinstance(pred, (bool, np.bool_))
    if not is_bool and not (isinstance(pred, (Array, np.ndarray)) and pred.shape == () and pred.dtype == np.bool_):
        raise ArgumentError(f"{name} takes a scalar pred as argument, got {pred}; reduce it with .all() or .any().")
    if not isinstance(msg, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ArgumentError(f"{name} takes a message after the predicate, but got {msg!r}.")
    leaves, structure = pytrees.flatten((fmt_args, fmt_kwargs))
    for x in leaves:
        if not isinstance(x, (Array, np.ndarray)):
            raise ArgumentError(
                "Formatting arguments to checkify.check need to be PyTrees of arrays, but got "
                f"{x!r} of type {type(x).__name__}; make an array of it with tinyxla.numpy.asarray."
            )
    payload = [as_array(x) for x in leaves]
    slot = tuple(Shape.of(x) for x in payload)
    description = Description(FailedCheckError, (msg, structure), slot, user_line())
    assert_ok(failed(elementwise.not_(as_array(pred)), description, payload), debug)


def debug_check(pred: Any, msg: str, *fmt_args: Any, **fmt_kwargs: Any) -> None:
    """A `check` in functions that are checkified; elsewhere it does nothing. Arguments and errors as of `check`.

    Args:
        pred, msg: as for `check`.
        *fmt_args, **fmt_kwargs: as for `check`.

    Raises:
        ArgumentError: a predicate that is no boolean scalar, a message that is no text, or in a function that is
            checked a value for it that is no array.

    Example:
        >>> from tinyxla.experimental import checkify
        >>> checkify.debug_check(False, "only under checkify")
    """
    check(pred, msg, *fmt_args, debug=True, **fmt_kwargs)


def check_error(error: Error) -> None:
    """Raise `JaxRuntimeError` if an error value stands for one. In a function that is checkified this is a check.

    Args:
        error: what a checkified function gave.

    Raises:
        JaxRuntimeError: there is an error.
        ArgumentError: the argument is no `Error`.

    Example:
        >>> from tinyxla.experimental import checkify
        >>> error, _ = checkify.checkify(lambda: None)()
        >>> checkify.check_error(error)
    """
    if not isinstance(error, Error):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ArgumentError(f"check_error takes an Error as argument, got type {type(error)} instead.")
    error.throw()
