"""Checkpoints: what the way back of a derivative needs is computed again instead of kept. Memory for time.

Source: Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any, NamedTuple, overload

from tinyxla.api.functions import argument_names, arrays_of, as_integers, check_callable, parameter_names, trace_tree
from tinyxla.api.kept_traces import traced
from tinyxla.errors import ArgumentError
from tinyxla.hlo import Computation, Instruction
from tinyxla.ops.checkpoint_name import checkpoint_name as named
from tinyxla.shapes import Shape
from tinyxla.tracing import pytrees
from tinyxla.tracing.core import state
from tinyxla.tracing.references import Carried, Reference, discovered, filled, has_references, slotted, threaded
from tinyxla.tracing.signatures import P, R
from tinyxla.transforms.calls import Checkpoint, call, grouped
from tinyxla.transforms.computations import inexact, interpret, partition, program_of_op, results, reverse
from tinyxla.transforms.control_flow import conditional, while_
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

    It is traced, as by `jit`: once for each structure, shapes and element types of the arguments, and values of static
    ones. So what Python does in it, such as printing or looking at variables from around, happens when it is traced.
    Where no transformation calls it, it is then computed operation by operation.

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
        ConcretizationError: the function needs the value of an argument that is not static.

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

    def remat(fun: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        return _called(*_without_static_arguments(fun, args, kwargs, numbers, names), kept)

    @transformed("checkpoint", fun)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        function = fun
        if has_references((args, kwargs)):
            (args, kwargs), passed = slotted((args, kwargs))
            function = wraps(fun)(lambda *args, **kwargs: fun(*filled(args, passed), **filled(kwargs, passed)))
        return discovered(lambda references: _threaded(remat, function, references, args, kwargs))

    return wrapped


def _threaded(
    remat: Callable[..., Any], fun: Callable[..., Any], references: list[Reference], args: Any, kwargs: Any
) -> Any:
    """The result of a function that uses references from around: their values go in and come out."""
    if not references:
        return remat(fun, args, kwargs)
    carried, function = Carried(references), threaded(fun, references)
    of_values = wraps(fun)(lambda *args, **kwargs: function(carried.values, *args, **kwargs))
    result, values = remat(of_values, args, kwargs)
    carried.write(values)
    return result


class _Split(NamedTuple):
    """A function of its arguments that are arrays, these, and those that are Python values, with their places."""

    fun: Callable[..., Any]
    of_arrays: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    static: tuple[tuple[Any, Any], ...]


def _without_static_arguments(
    fun: Callable[..., Any], args: Any, kwargs: Any, static_argnums: Sequence[int], static_argnames: Container[str]
) -> _Split:
    if any(not -len(args) <= n < len(args) for n in static_argnums):
        raise ArgumentError(
            f"checkpoint of {getattr(fun, '__name__', fun)}: static_argnums is {static_argnums}, but the call has "
            f"{len(args)} positional arguments."
        )
    fixed = {n % len(args) for n in static_argnums}
    named_values = {name: x for name, x in kwargs.items() if name in static_argnames}

    @wraps(fun)
    def of_arrays(*others: Any, **more: Any) -> Any:
        rest = iter(others)
        return fun(*(args[n] if n in fixed else next(rest) for n in range(len(args))), **named_values, **more)

    of_arrays.free = free = [n for n in range(len(args)) if n not in fixed]  # type: ignore[attr-defined]
    more = {name: x for name, x in kwargs.items() if name not in static_argnames}
    static = (*((n, args[n]) for n in fixed), *named_values.items())
    return _Split(fun, of_arrays, tuple(args[n] for n in free), more, static)


def _called(
    fun: Callable[..., Any],
    of_arrays: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    static: Sequence[tuple[Any, Any]],
    checkpoint: Checkpoint,
) -> Any:
    """The result of a function of arrays, as a call with a checkpoint where it is traced."""
    what = f"checkpoint of {getattr(fun, '__name__', fun)}: argument "
    leaves, tree = arrays_of((args, kwargs), what, lambda: argument_names(args, kwargs))
    made = traced(fun, static, of_arrays, leaves, tree)
    operands = [*leaves, *made.captured]
    if state.depth:
        outputs = call(*operands, to_apply=made.computation, checkpoint=checkpoint)
    else:
        outputs = _evaluated(made.computation, operands)
    return pytrees.unflatten(made.tree, [x.with_weak_type(w) for x, w in zip(outputs, made.weak, strict=True)])


def _evaluated(computation: Computation, operands: Sequence[Any]) -> tuple[Any, ...]:
    """The results of a computation on arrays, operation by operation; loops, branches and calls of compiled functions
    are compiled."""

    def apply(x: Instruction, inputs: list[Any]) -> Any:
        attributes = x.attributes._asdict()
        if x.op is call and (attributes["rule"] or attributes["checkpoint"]):
            return grouped(attributes["to_apply"], _evaluated(attributes["to_apply"], inputs))
        if x.op in (while_, conditional):
            program = program_of_op(x.op, tuple(map(Shape.of, inputs)), tuple(attributes.items()))
            return call(*inputs, to_apply=program)
        return x.op(*inputs, **attributes)

    return results(interpret(computation, operands, apply))


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
    for shape, origin in saved_residuals(fun, args, kwargs):
        print(f"{shape} {origin}")


def saved_residuals(fun: Callable[..., Any], args: Any, kwargs: Any) -> list[tuple[Shape, str]]:
    """The residuals that the way back of a derivative of a function keeps: their shapes, and where they come from."""
    made = trace_tree(fun, args, kwargs)[0]
    count = len(made.parameters)
    active = tuple(map(is_inexact, made.parameter_shapes))
    both = reverse(made, active, inexact(made), False)[0]
    early, _ = partition(both, count, len(made.outputs))
    names = [f"the argument {name}" for name in parameter_names(fun, args, kwargs)]
    names += ["a constant of the function"] * (count - len(names))
    told: list[tuple[Shape, str]] = []
    for x in early.outputs[len(made.outputs) :]:
        if x in early.parameters:
            told.append((x.array_shape, f"from {names[early.parameters.index(x)]}"))
        else:
            told.append((x.array_shape, f"from {x.op.name}" + (f" at {x.source}" if x.source else "")))
    return told


__all__ = ["checkpoint", "checkpoint_name", "print_saved_residuals", "remat"]


def __dir__() -> list[str]:
    return __all__
