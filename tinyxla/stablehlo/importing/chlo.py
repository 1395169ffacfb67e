"""Evaluation rules of CHLO: mathematical functions, and operations that broadcast their operands.

Source: the CHLO dialect, https://openxla.org/stablehlo/generated/chlo.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tinyxla import lax
from tinyxla.ops.op import ops
from tinyxla.stablehlo.importing.evaluation import Context, Rule, known_ints
from tinyxla.stablehlo.importing.rules import RULES

_FUNCTIONS = {
    **{name: name for name in "acos acosh asin asinh atan atanh bessel_i1e conj cosh digamma erf erf_inv erfc".split()},
    **{name: name for name in "lgamma mulhi polygamma sinh square tan zeta".split()},
    "next_after": "nextafter",
}
_BROADCASTING = """add and atan2 complex divide maximum minimum multiply or power remainder shift_left
    shift_right_arithmetic shift_right_logical subtract xor""".split()


def _function(name: str) -> Rule:
    function = getattr(lax, name)
    return lambda context, *operands: function(*operands)


def _broadcast(context: Context, x: Any, y: Any) -> tuple[Any, Any]:
    """Two operands of one shape. That with fewer dimensions has those of `broadcast_dimensions`, or the last ones."""
    long, short = (x, y) if x.ndim >= y.ndim else (y, x)
    dims = context.ints("broadcast_dimensions", tuple(range(long.ndim - short.ndim, long.ndim)))
    sizes = list(long.shape)
    for d, n in zip(dims, short.shape, strict=True):
        sizes[d] = n if sizes[d] == 1 else sizes[d]
    whole = tuple(range(long.ndim))
    return tuple(  # type: ignore[return-value] - two of them
        lax.broadcast_in_dim(v, tuple(sizes), dims if v is short and long.ndim != short.ndim else whole) for v in (x, y)
    )


def _broadcasting(name: str) -> Rule:
    function = getattr(lax, name) if hasattr(lax, name) else ops[name.replace("_", "-")]
    return lambda context, x, y: function(*_broadcast(context, x, y))


def _broadcast_compare(context: Context, x: Any, y: Any) -> Any:
    return RULES["stablehlo.compare"](context, *_broadcast(context, x, y))


def _broadcast_select(context: Context, which: Any, x: Any, y: Any) -> Any:
    sizes = np.broadcast_shapes(which.shape, x.shape, y.shape)
    return ops["select"](
        *(lax.broadcast_in_dim(v, sizes, range(len(sizes) - v.ndim, len(sizes))) for v in (which, x, y))
    )


def _is_inf(context: Context, x: Any) -> Any:
    kind = context.operation.name.removeprefix("chlo.is_").removesuffix("inf").strip("_")
    if kind:
        return lax.eq(x, lax.full_like(x, np.inf if kind == "pos" else -np.inf))
    return lax.eq(lax.abs(x), lax.full_like(x, np.inf))


def _constant_like(context: Context, x: Any) -> Any:
    return lax.full_like(x, context.value("value"))


def _top_k(context: Context, x: Any) -> Any:
    return tuple(lax.top_k(x, context.integer("k")))


def _dynamic_reshape(context: Context, x: Any, sizes: Any) -> Any:
    return ops["reshape"](x, sizes=known_ints("dynamic_reshape", sizes))


def _ragged_dot(context: Context, x: Any, y: Any, group_sizes: Any) -> Any:
    numbers = context.inner("ragged_dot_dimension_numbers")
    return ops["ragged-dot"](
        x,
        y,
        group_sizes,
        lhs_contracting_dims=numbers.ints("lhs_contracting_dimensions", ()),
        rhs_contracting_dims=numbers.ints("rhs_contracting_dimensions", ()),
        lhs_ragged_dims=numbers.ints("lhs_ragged_dimensions", ()),
        lhs_batch_dims=numbers.ints("lhs_batching_dimensions", ()),
        rhs_batch_dims=numbers.ints("rhs_batching_dimensions", ()),
        rhs_group_dims=numbers.ints("rhs_group_dimensions", ()),
        operand_precision=context.precisions(),
    )


CHLO_RULES: dict[str, Rule] = {
    **{f"chlo.{name}": _function(function) for name, function in _FUNCTIONS.items() if hasattr(lax, function)},
    **{f"chlo.broadcast_{name}": _broadcasting(name) for name in _BROADCASTING if name.replace("_", "-") in ops},
    "chlo.broadcast_next_after": _broadcasting("nextafter"),
    "chlo.broadcast_polygamma": _broadcasting("polygamma"),
    "chlo.broadcast_zeta": _broadcasting("zeta"),
    "chlo.broadcast_compare": _broadcast_compare,
    "chlo.broadcast_select": _broadcast_select,
    **{f"chlo.is_{kind}": _is_inf for kind in ("inf", "pos_inf", "neg_inf")},
    "chlo.constant": RULES["stablehlo.constant"],
    "chlo.constant_like": _constant_like,
    "chlo.top_k": _top_k,
    "chlo.dynamic_reshape": _dynamic_reshape,
    "chlo.ragged_dot": _ragged_dot,
}
