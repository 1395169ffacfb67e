"""Costs of functions, estimated from their jaxprs, for the schedulers of accelerators."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from tinyxla.jax.jaxprs.staging import make_jaxpr
from tinyxla.tracing import pytrees

_UNITS = frozenset("add mul sub div min max and or xor neg floor ceil round not".split())
_TRANSCENDENTAL = frozenset("cos sin tan sinh cosh tanh acos asin atan exp log logistic sqrt".split())


class CostEstimate(NamedTuple):
    """What a call computes and moves, for the scheduler of an accelerator."""

    flops: int
    transcendentals: int
    bytes_accessed: int
    remote_bytes_transferred: int = 0


def estimate_cost(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> CostEstimate:
    """What a function computes and moves: element-wise operations count one for each element, products of matrices two
    for each product of elements, other operations nothing; bytes are those of arguments and results.

    Args:
        fun: a function of arrays.
        args: arrays, or their shapes and types.
        kwargs: keyword arguments, of which nothing is computed.

    Returns:
        The estimate.

    Example:
        >>> import tinyxla.jax
        >>> import jax
        >>> from jax.experimental import pallas as pl
        >>> pl.estimate_cost(jax.numpy.exp, jax.numpy.ones(10))
        CostEstimate(flops=0, transcendentals=10, bytes_accessed=80, remote_bytes_transferred=0)
    """
    closed = make_jaxpr(lambda *given: fun(*given, **kwargs))(*args)
    flops, transcendentals = _cost(closed.jaxpr)
    arrays = [*pytrees.leaves(args), *closed.out_avals]
    return CostEstimate(flops, transcendentals, sum(math.prod(x.shape) * x.dtype.itemsize for x in arrays))


def _cost(jaxpr: Any) -> tuple[int, int]:
    """The operations and the transcendental functions of a jaxpr."""
    flops = transcendentals = 0
    for equation in jaxpr.eqns:
        name, elements = equation.primitive.name, math.prod(equation.outvars[0].aval.shape) if equation.outvars else 0
        inner = equation.params.get("jaxpr", equation.params.get("call_jaxpr"))
        if name in _UNITS:
            flops += elements
        elif name in _TRANSCENDENTAL:
            transcendentals += elements
        elif name == "integer_pow":  # by squaring: a product for each bit, and one for each bit that is set
            power = abs(equation.params["y"])
            flops += elements * (power.bit_length() - 1 + power.bit_count() if power > 1 else 0)
        elif name == "dot_general":
            (contracting, _), _ = equation.params["dimension_numbers"]
            flops += 2 * elements * math.prod(equation.invars[0].aval.shape[axis] for axis in contracting)
        elif inner is not None:
            inside = _cost(getattr(inner, "jaxpr", inner))
            times = equation.params.get("length", 1)
            flops, transcendentals = flops + times * inside[0], transcendentals + times * inside[1]
    return flops, transcendentals
