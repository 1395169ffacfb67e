"""Calls of functions with rules of `custom_jvp` and `custom_vjp`, as primitives take them: `subfuns`.

JAX's functions take and give flat lists, in which zeros are arrays or `SymbolicZero` objects; a rule of this library
has None for them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tinyxla.custom_derivatives import SymbolicZero, instantiated
from tinyxla.jax.jaxprs.avals import Zero
from tinyxla.jax.tracing.linear_util import Store, WrappedFun, wrap_init
from tinyxla.tracing import pytrees
from tinyxla.tracing.promotion import as_array, float0
from tinyxla.transforms.custom import CustomJvp, CustomVjp, Rule, Values, apply

Params = dict[str, Any]


def jvp_call(rule: Rule, function: Callable[..., Any]) -> Params:
    """The parameters of a call of a function with a rule of `custom_jvp`. What the function takes besides the arguments
    of the rule has no derivatives."""
    symbolic, count = isinstance(rule, CustomJvp) and rule.symbolic_zeros, rule.count

    def jvp(*given: Any) -> list[Any]:
        primals, tangents = given[: len(given) // 2], given[len(given) // 2 :]
        outputs, moves = rule.forward(tuple(map(_derivative, tangents[:count])), *primals[:count])
        return [*outputs, *(instantiated(t, x, symbolic) for t, x in zip(moves, outputs, strict=True))]

    return {"subfuns": (_flat(function), wrap_init(jvp)), "symbolic_zeros": symbolic}


def vjp_call(rule: CustomVjp, function: Callable[..., Any]) -> Params:
    """The parameters of a call of a function with a rule of `custom_vjp`."""
    trees, rest, own = Store(), Store(), rule.count

    def fwd(*pairs: Any) -> list[Any]:
        wanted, values = tuple(map(bool, pairs[1::2])), pairs[::2]
        outputs, residuals, kept = rule.there(wanted[:own], values[:own])
        trees.store((pytrees.flatten(list(outputs))[1], pytrees.flatten(list(residuals))[1], [None] * len(residuals)))
        rest.store((values, len(residuals), kept))
        return [*residuals, *outputs]

    def bwd(*given: Any) -> list[Any]:
        primals, count, kept = rest()
        cotangents = list(map(_derivative, given[count:]))
        found = [*rule.back(kept, given[:count], cotangents), *(None for _ in primals[own:])]
        return [instantiated(c, x, False) for c, x in zip(found, primals, strict=True)]

    subfuns = (_flat(function), wrap_init(fwd), wrap_init(bwd))
    return {"subfuns": subfuns, "out_trees": trees, "symbolic_zeros": False}


def bound_jvp_call(args: Sequence[Any], fun: WrappedFun, jvp: WrappedFun, symbolic_zeros: bool = False) -> list[Any]:
    """The results of a function with a rule of `custom_jvp` that is given so."""

    def push(values: Values, tangents: Values) -> tuple[Values, Values]:
        given = [instantiated(t, x, symbolic_zeros) for t, x in zip(tangents, values, strict=True)]
        found = jvp.call_wrapped(*values, *given)
        outputs, moves = found[: len(found) // 2], found[len(found) // 2 :]
        return list(map(as_array, outputs)), list(map(_derivative, moves))

    rule = CustomJvp("custom_jvp_call", (fun, jvp), len(args), _arrays(fun), push, symbolic_zeros)
    return list(apply(rule, *map(as_array, args)))


def bound_vjp_call(
    args: Sequence[Any],
    fun: WrappedFun,
    fwd: WrappedFun,
    bwd: WrappedFun,
    out_trees: Callable[[], Any],
    symbolic_zeros: bool = False,
) -> list[Any]:
    """The same with a rule of `custom_vjp`."""

    def there(wanted: Sequence[bool], values: Values) -> tuple[Values, Values, Any]:
        found = fwd.call_wrapped(*(part for pair in zip(values, wanted, strict=True) for part in pair))
        _, tree, forwarded = out_trees()
        count = tree.num_leaves - sum(place is not None for place in forwarded)
        computed = iter(found[:count])
        residuals = [next(computed) if place is None else values[place] for place in forwarded]
        outputs = list(map(as_array, found[count:]))
        return outputs, list(map(as_array, residuals)), outputs

    def back(outputs: Values, residuals: Values, cotangents: Values) -> Values:
        seeds = [instantiated(c, x, symbolic_zeros) for c, x in zip(cotangents, outputs, strict=True)]
        return list(map(_derivative, bwd.call_wrapped(*residuals, *seeds)))

    rule = CustomVjp("custom_vjp_call", (fun, fwd, bwd), len(args), _arrays(fun), there, back)
    return list(apply(rule, *map(as_array, args)))


def _flat(function: Callable[..., Any]) -> WrappedFun:
    return wrap_init(lambda *values: list(function(*values)))


def _arrays(fun: WrappedFun) -> Callable[..., list[Any]]:
    return lambda *values: list(map(as_array, fun.call_wrapped(*values)))


def _derivative(x: Any) -> Any:
    """A tangent or cotangent as this library has it: None for zero."""
    if x is None or isinstance(x, (SymbolicZero, Zero)) or getattr(x, "dtype", None) == float0:
        return None
    return as_array(x)
