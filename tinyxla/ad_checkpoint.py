"""Checkpoints: what the way back of a derivative needs is computed again instead of kept. Memory for time.

Source: Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, overload

from tinyxla.api.functions import argument_names, arrays_of, as_integers, check_callable, parameter_names, trace_tree
from tinyxla.errors import ArgumentError
from tinyxla.ops.checkpoint_name import checkpoint_name as named
from tinyxla.tracing import pytrees
from tinyxla.tracing.core import state
from tinyxla.tracing.references import Carried, Reference, discovered, filled, has_references, slotted, threaded
from tinyxla.tracing.signatures import P, R
from tinyxla.transforms.calls import Checkpoint, call
from tinyxla.transforms.computations import inexact, partition, reverse
from tinyxla.transforms.reverse import is_inexact
from tinyxla.util.tracebacks import boundary
from tinyxla.util.wrapping import transformed, wraps

Policy = Callable[..., bool]


@overload
def checkpoint(
    fun: Callable[P, R],
    *,
    prevent_cse: Any = True,
    policy: Policy | None = None,
    static_argnums: int | Iterable[int] = (),
    static_argnames: str | Iterable[str] = (),
) -> Callable[P, R]: ...
@overload
def checkpoint(
    *,
    prevent_cse: Any = True,
    policy: Policy | None = None,
    static_argnums: int | Iterable[int] = (),
    static_argnames: str | Iterable[str] = (),
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
@boundary
def checkpoint(
    fun: Callable[..., Any] | None = None,
    *,
    prevent_cse: Any = True,
    policy: Policy | None = None,
    static_argnums: int | Iterable[int] = (),
    static_argnames: str | Iterable[str] = (),
) -> Any:
    """A function of which a derivative in reverse mode keeps the arguments alone, and computes the rest again.

    Args:
        fun: of pytrees of arrays.
        prevent_cse: keep the compiler from using a value of the way there, which would have to be kept, for the same
            value of the way back. Not needed inside of `lax.scan`. A pytree of bools, for arguments, counts as True if
            one of them is.
        policy: what to keep all the same: `policy(op, *shapes, **attributes)` of each operation; `checkpoint_policies`
            has the usual ones.
        static_argnums: positions of arguments that are Python values.
        static_argnames: the same by name.

    Returns:
        A function of the same arguments with the same results and derivatives.

    Raises:
        ArgumentError: what is no function, or a position in `static_argnums` that a call does not have.

    Example:
        >>> import tinyxla as tx
        >>> f = tx.checkpoint(lambda x: tx.numpy.sin(tx.numpy.sin(x)))
        >>> tx.grad(f)(0.0)
        Array(1., dtype=float32, weak_type=True)
    """
    if fun is None:
        return functools.partial(
            checkpoint,
            prevent_cse=prevent_cse,
            policy=policy,
            static_argnums=static_argnums,
            static_argnames=static_argnames,
        )
    check_callable("checkpoint", fun)
    if policy is not None and not callable(policy):
        raise ArgumentError(f"checkpoint takes a policy of tinyxla.checkpoint_policies, but got {policy!r}.")
    numbers = as_integers(static_argnums, "checkpoint: static_argnums")
    names = {static_argnames} if isinstance(static_argnames, str) else set(static_argnames)
    kept = Checkpoint(policy, any(pytrees.leaves(prevent_cse)))

    @transformed("checkpoint", fun)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        function = fun
        if has_references((args, kwargs)):
            (args, kwargs), passed = slotted((args, kwargs))
            function = wraps(fun)(lambda *args, **kwargs: fun(*filled(args, passed), **filled(kwargs, passed)))
        if not state.depth:  # nothing is transformed
            return called(function, args, kwargs)
        return discovered(lambda references: with_references(function, references, args, kwargs))

    def with_references(fun: Callable[..., Any], references: list[Reference], args: Any, kwargs: Any) -> Any:
        if not references:
            return called(fun, args, kwargs)
        carried, function = Carried(references), threaded(fun, references)
        of_values = wraps(fun)(lambda *args, **kwargs: function(carried.values, *args, **kwargs))
        result, values = called(of_values, args, kwargs)
        carried.write(values)
        return result

    def called(fun: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        if any(not -len(args) <= n < len(args) for n in numbers):
            raise ArgumentError(
                f"checkpoint of {getattr(fun, '__name__', fun)}: static_argnums is {numbers}, but the call has "
                f"{len(args)} positional arguments."
            )
        fixed = {n % len(args) for n in numbers}
        named_values = {name: x for name, x in kwargs.items() if name in names}

        @wraps(fun)
        def of_arrays(*others: Any, **more: Any) -> Any:
            rest = iter(others)
            return fun(*(args[n] if n in fixed else next(rest) for n in range(len(args))), **named_values, **more)

        others = tuple(x for n, x in enumerate(args) if n not in fixed)
        more = {name: x for name, x in kwargs.items() if name not in names}
        what = f"checkpoint of {getattr(fun, '__name__', fun)}: argument "
        leaves, tree = arrays_of((others, more), what, lambda: argument_names(others, more))
        inner, inner_named = pytrees.unflatten(tree, leaves)
        if not state.depth:  # nothing is transformed
            return of_arrays(*inner, **inner_named)
        captures = None if state.staging is None else state.staging.captures  # as the function around
        made, captured, weak, result = trace_tree(of_arrays, inner, inner_named, captures)
        outputs = call(*leaves, *captured, to_apply=made, checkpoint=kept)
        return pytrees.unflatten(result, [x.with_weak_type(w) for x, w in zip(outputs, weak, strict=True)])

    return wrapped


remat = checkpoint


def checkpoint_name(x: Any, name: str) -> Any:
    """The argument, a pytree of arrays, under a name by which a policy can speak of it.

    Args:
        x: a pytree of arrays.
        name: the name.

    Returns:
        The pytree.

    Raises:
        ArgumentError: what is no array or number.

    Example:
        >>> import tinyxla as tx
        >>> keep = tx.checkpoint_policies.save_only_these_names("hidden")
        >>> f = tx.checkpoint(lambda x: tx.ad_checkpoint.checkpoint_name(x * x, "hidden") ** 2, policy=keep)
        >>> tx.grad(f)(1.0)
        Array(4., dtype=float32, weak_type=True)
    """
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance] - users may pass anything
        raise ArgumentError(f"checkpoint_name: the name must be a string, but got {name!r}.")
    leaves, tree = arrays_of(x, "checkpoint_name: the value")
    return pytrees.unflatten(tree, [named(leaf, name=name).with_weak_type(leaf.weak_type) for leaf in leaves])


@boundary
def print_saved_residuals(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """Print what the way back of a derivative of a function keeps: shape, and the line that it comes from.

    Args:
        fun: the function.
        *args, **kwargs: its arguments, or `ShapeDtypeStruct`s.

    Raises:
        ArgumentError: what is no function, or an argument that is no array or number.

    Example:
        >>> import tinyxla as tx
        >>> tx.ad_checkpoint.print_saved_residuals(tx.checkpoint(lambda x: tx.numpy.sin(tx.numpy.sin(x))), 1.0)
        f32[] from the argument x
    """
    check_callable("print_saved_residuals", fun)
    for line in _saved_residuals(fun, args, kwargs):
        print(line)


def _saved_residuals(fun: Callable[..., Any], args: Any, kwargs: Any) -> list[str]:
    made = trace_tree(fun, args, kwargs)[0]
    count = len(made.parameters)
    active = tuple(map(is_inexact, made.parameter_shapes))
    both = reverse(made, active, inexact(made), False)[0]
    early, _ = partition(both, count, len(made.outputs))
    names = [f"the argument {name}" for name in parameter_names(fun, args, kwargs)]
    names += ["a constant of the function"] * (count - len(names))
    told: list[str] = []
    for x in early.outputs[len(made.outputs) :]:
        if x in early.parameters:
            told.append(f"{x.shape} from {names[early.parameters.index(x)]}")
        else:
            told.append(f"{x.shape} from {x.op.name}" + (f" at {x.source}" if x.source else ""))
    return told


__all__ = ["checkpoint", "checkpoint_name", "print_saved_residuals", "remat"]


def __dir__() -> list[str]:
    return __all__
