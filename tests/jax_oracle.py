"""The ops as JAX has them: what the values of `evaluate` are compared with.

`functions` maps an op's name to a function of its operands and attributes; `absent` names the ops that JAX has no
function for, so that an op in neither is an oversight.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax import lax

from tinyxla.ops import indexing, reduction

functions: dict[str, Callable[..., Any]] = {
    "abs": lambda x: x if np.issubdtype(x.dtype, np.unsignedinteger) else lax.abs(x),
    "add": lambda x, y: lax.bitwise_or(x, y) if x.dtype == np.bool_ else lax.add(x, y),
    "and": lax.bitwise_and,
    "atan2": lax.atan2,
    "bitcast-convert": lambda x, new_element_type: lax.bitcast_convert_type(x, new_element_type.dtype),
    "broadcast": lambda x, sizes, dimensions: lax.broadcast_in_dim(
        lax.transpose(x, np.argsort(dimensions)), sizes, sorted(dimensions)
    ),
    "cbrt": lax.cbrt,
    "ceil": lax.ceil,
    "clamp": lax.clamp,
    "complex": lax.complex,
    "concatenate": lambda *operands, dimension: lax.concatenate(operands, dimension),
    "cosh": lax.cosh,
    "cosine": lax.cos,
    "count-leading-zeros": lax.clz,
    "divide": lax.div,
    "erf": lax.erf,
    "erf-inv": lax.erf_inv,
    "exponential": lax.exp,
    "exponential-minus-one": lax.expm1,
    "floor": lax.floor,
    "imag": lambda x: lax.imag(x) if np.iscomplexobj(x) else np.zeros_like(x),
    "iota": lambda shape, iota_dimension: lax.broadcasted_iota(shape.dtype, shape.dimensions, iota_dimension),
    "is-finite": lax.is_finite,
    "log": lax.log,
    "log-plus-one": lax.log1p,
    "logistic": lax.logistic,
    "maximum": lax.max,
    "minimum": lax.min,
    "multiply": lambda x, y: lax.bitwise_and(x, y) if x.dtype == np.bool_ else lax.mul(x, y),
    "negate": lax.neg,
    "not": lax.bitwise_not,
    "or": lax.bitwise_or,
    "pad": lambda x, value, padding_config: lax.pad(x, value, padding_config),
    "popcnt": lax.population_count,
    "real": lambda x: lax.real(x) if np.iscomplexobj(x) else x,
    "reduce-precision": lambda x, exponent_bits, mantissa_bits: lax.reduce_precision(x, exponent_bits, mantissa_bits),
    "remainder": lax.rem,
    "reshape": lambda x, sizes: lax.reshape(x, sizes),
    "reverse": lambda x, dimensions: lax.rev(x, dimensions),
    "round-nearest-afz": lambda x: lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO),
    "round-nearest-even": lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN),
    "rsqrt": lax.rsqrt,
    "select": lax.select,
    "shift-left": lax.shift_left,
    "shift-right-arithmetic": lax.shift_right_arithmetic,
    "shift-right-logical": lax.shift_right_logical,
    "sign": lax.sign,
    "sine": lax.sin,
    "sinh": lax.sinh,
    "slice": lambda x, start_indices, limit_indices, strides: lax.slice(x, start_indices, limit_indices, strides),
    "sqrt": lax.sqrt,
    "subtract": lax.sub,
    "tan": lax.tan,
    "tanh": lax.tanh,
    "transpose": lambda x, permutation: lax.transpose(x, permutation),
    "xor": lax.bitwise_xor,
}

absent = {
    "parameter": "has no value of its own",
    "constant": "is its value",
    "tuple": "only regroups",
    "get-tuple-element": "only regroups",
    "call": "is what its computation is",
}


def oracle(name: str) -> Callable[..., Any]:
    """The op with that name, at 64 bits where the operands are, as a function to a flat list of results."""

    def function(*operands: Any, **attributes: Any) -> list[Any]:
        with jax.enable_x64(True):
            result = functions[name](*map(jax.numpy.asarray, operands), **attributes)
            return [np.asarray(x) for x in (result if isinstance(result, (tuple, list)) else (result,))]

    return function


def _named(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        functions[name] = function
        return function

    return register


@_named("compare")
def _compare(x: Any, y: Any, *, direction: str, type: str) -> Any:
    if type != "TOTALORDER":
        return getattr(lax, direction.lower())(x, y)
    if direction in ("GT", "GE"):
        return _compare(y, x, direction=direction.replace("G", "L"), type=type)
    if direction == "NE":
        return ~lax.eq_to_p.bind(x, y)
    return {"EQ": lax.eq_to_p, "LE": lax.le_to_p, "LT": lax.lt_to_p}[direction].bind(x, y)


@_named("convert")
def _convert(x: Any, *, new_element_type: Any) -> Any:
    if np.iscomplexobj(x) and new_element_type.kind != "complex":  # JAX does it with a warning
        if new_element_type.kind == "pred":
            return lax.ne(x, lax.full_like(x, 0))
        x = lax.real(x)
    return lax.convert_element_type(x, new_element_type.dtype)


@_named("dot")
def _dot(
    x: Any,
    y: Any,
    *,
    lhs_contracting_dims: Sequence[int],
    rhs_contracting_dims: Sequence[int],
    lhs_batch_dims: Sequence[int],
    rhs_batch_dims: Sequence[int],
    preferred_element_type: Any,
) -> Any:
    numbers = ((lhs_contracting_dims, rhs_contracting_dims), (lhs_batch_dims, rhs_batch_dims))
    wanted = preferred_element_type.dtype if preferred_element_type else None
    return lax.dot_general(x, y, numbers, preferred_element_type=wanted)


@_named("power")
def _power(x: Any, y: Any) -> Any:
    """For integers JAX has only fixed exponents."""
    if not np.issubdtype(x.dtype, np.integer):
        return lax.pow(x, y)
    flat = zip(np.ravel(x), np.ravel(y), strict=True)
    powers = [np.asarray(lax.integer_pow(jax.numpy.asarray(base), int(exponent))) for base, exponent in flat]
    return np.array(powers, x.dtype).reshape(x.shape)


@_named("reduce")
def _reduce(*operands: Any, dimensions: Sequence[int], to_apply: Any) -> Any:
    count = len(operands) // 2
    monoids = {
        "add": lax.add,
        "and": lax.bitwise_and,
        "maximum": lax.max,
        "minimum": lax.min,
        "multiply": lax.mul,
        "or": lax.bitwise_or,
        "xor": lax.bitwise_xor,
    }
    name = reduction.monoid(to_apply)
    if name is not None:
        return lax.reduce(operands[0], operands[1], monoids[name], dimensions)
    values, index = operands[:count]
    assert to_apply.name.startswith("argument_"), f"no function of JAX for a reduction with {to_apply.name}"
    (axis,) = dimensions
    at = lax.argmax(values, axis, index.dtype)
    return [np.max(values, axis), at]


@_named("dynamic-slice")
def _dynamic_slice(x: Any, *starts: Any, dynamic_slice_sizes: Sequence[int]) -> Any:
    return lax.dynamic_slice(
        x, [lax.max(s, np.int32(0)) for s in starts], dynamic_slice_sizes
    )  # where JAX counts from the end


@_named("dynamic-update-slice")
def _dynamic_update_slice(x: Any, update: Any, *starts: Any) -> Any:
    return lax.dynamic_update_slice(x, update, [lax.max(s, np.int32(0)) for s in starts])


def _vectors_last(indices: Any, vector_dim: int, others: Sequence[int]) -> tuple[Any, tuple[int, ...]]:
    """JAX has the index vectors in the last dimension."""
    if vector_dim == indices.ndim:
        indices = indices[..., None]
    return np.moveaxis(indices, vector_dim, -1), tuple(d - (d > vector_dim) for d in others)


@_named("gather")
def _gather(x: Any, indices: Any, **attributes: Any) -> Any:
    given = indexing.Gather(**attributes)
    indices, batching = _vectors_last(indices, given.index_vector_dim, given.start_indices_batching_dims)
    numbers = lax.GatherDimensionNumbers(
        given.offset_dims, given.collapsed_slice_dims, given.start_index_map, given.operand_batching_dims, batching
    )
    return lax.gather(x, indices, numbers, given.slice_sizes, mode="clip")


@_named("scatter")
def _scatter(x: Any, indices: Any, updates: Any, **attributes: Any) -> Any:
    given = indexing.Scatter(**attributes)
    functions_ = {
        "add": lax.scatter_add,
        "subtract": lax.scatter_sub,
        "multiply": lax.scatter_mul,
        "maximum": lax.scatter_max,
        "minimum": lax.scatter_min,
        "replacement": lax.scatter,
    }
    if given.to_apply.name not in functions_:  # for bits JAX has no function; one element after the other by NumPy
        ufunc = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}[given.to_apply.name]
        result = np.array(x)
        ufunc.at(result, tuple(np.moveaxis(indices, given.index_vector_dim, 0)), updates)
        return result
    indices, batching = _vectors_last(indices, given.index_vector_dim, given.scatter_indices_batching_dims)
    numbers = lax.ScatterDimensionNumbers(
        given.update_window_dims,
        given.inserted_window_dims,
        given.scatter_dims_to_operand_dims,
        given.input_batching_dims,
        batching,
    )
    return functions_[given.to_apply.name](x, indices, updates, numbers, mode="drop")


@_named("sort")
def _sort(*operands: Any, dimensions: Sequence[int], to_apply: Any, is_stable: bool) -> Any:
    if to_apply.name == "by_magnitude":
        order = np.argsort(np.abs(operands[0]), dimensions[0], kind="stable")
        return np.take_along_axis(operands[0], order, dimensions[0])
    if to_apply.name == "less":
        keys = len(operands) if len(to_apply.instructions) > 6 and len(operands) > 1 else 1
        return lax.sort(operands, dimension=dimensions[0], is_stable=is_stable, num_keys=keys)[
            slice(None) if len(operands) > 1 else 0
        ]
    return np.flip(lax.sort(operands[0], dimension=dimensions[0]), dimensions[0])
