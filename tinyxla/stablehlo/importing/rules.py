"""Evaluation rules of StableHLO and `func`, one for each operation.

A rule takes the operation's context and operands, and gives its result, or a tuple of them. Most operations are ops
here under nearly the same names.

Source: StableHLO specification, https://openxla.org/stablehlo/spec.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tinyxla import lax
from tinyxla.errors import ArgumentError, AttributeValueError
from tinyxla.ops import movement
from tinyxla.ops.op import Op, ops
from tinyxla.shapes import Shape
from tinyxla.shapes.symbolic import is_symbolic
from tinyxla.shapes.window import WindowDimension
from tinyxla.stablehlo.importing.attributes import convolution_dimensions
from tinyxla.stablehlo.importing.evaluation import Context, Rule, constant, known_ints
from tinyxla.stablehlo.importing.sizes import scalar
from tinyxla.text.mlir.element_types import of_mlir
from tinyxla.text.mlir.ir import DenseAttr

RULES: dict[str, Rule] = {}


def rule(*names: str) -> Any:
    """Register the rule of operations of the dialect."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys((f"stablehlo.{name}" for name in names), function))
        return function

    return register


# --- element by element -----------------------------------------------------------------------------------------------


def _same(op: Op) -> Rule:
    return lambda context, *operands: op(*operands)


RULES.update({op.stablehlo: _same(op) for op in ops.values() if op.stablehlo.startswith("stablehlo.")})


@rule("compare")
def _compare(context: Context, x: Any, y: Any) -> Any:
    kind = {"b": "UNSIGNED", "u": "UNSIGNED", "i": "SIGNED"}.get(x.dtype.kind, "FLOAT")
    given = context.word("compare_type", kind)
    direction = context.word("comparison_direction")
    return ops["compare"](x, y, direction=direction, type=kind if given == "NOTYPE" else given)


@rule("select")
def _select(context: Context, which: Any, x: Any, y: Any) -> Any:
    if which.ndim < x.ndim:
        which = ops["broadcast"](which, sizes=x.shape, dimensions=())
    return ops["select"](which, x, y)


@rule("convert")
def _convert(context: Context, x: Any) -> Any:
    return ops["convert"](x, new_element_type=_element_type(context))


@rule("bitcast_convert")
def _bitcast_convert(context: Context, x: Any) -> Any:
    return ops["bitcast-convert"](x, new_element_type=_element_type(context))


def _element_type(context: Context) -> Any:
    return of_mlir(context.operation.result.type.element)  # type: ignore[union-attr] - of a tensor


@rule("reduce_precision")
def _reduce_precision(context: Context, x: Any) -> Any:
    exponent, mantissa = context.integer("exponent_bits"), context.integer("mantissa_bits")
    return ops["reduce-precision"](x, exponent_bits=exponent, mantissa_bits=mantissa)


# --- shapes -----------------------------------------------------------------------------------------------------------


@rule("constant")
def _constant(context: Context) -> Any:
    given = context.entries["value"]
    if not isinstance(given, DenseAttr):
        raise context.refuse("value", "dense<...>")
    value = given.value
    if value.size > 1 and not any(value.strides):  # one element for all
        scalar = constant(np.array(value[(0,) * value.ndim]))
        return ops["broadcast"](scalar, sizes=value.shape, dimensions=())
    return constant(np.ascontiguousarray(value).reshape(value.shape))


@rule("iota")
def _iota(context: Context) -> Any:
    return movement.iota(shape=context.result_shape, iota_dimension=context.integer("iota_dimension"))


@rule("dynamic_iota")
def _dynamic_iota(context: Context, sizes: Any) -> Any:
    shape = Shape(_element_type(context), known_ints("dynamic_iota", sizes))
    return movement.iota(shape=shape, iota_dimension=context.integer("iota_dimension"))


@rule("broadcast_in_dim")
def _broadcast_in_dim(context: Context, x: Any) -> Any:
    sizes, dimensions = context.result_shape.dimensions, context.ints("broadcast_dimensions")
    return lax.broadcast_in_dim(x, sizes, dimensions)


@rule("dynamic_broadcast_in_dim")
def _dynamic_broadcast_in_dim(context: Context, x: Any, sizes: Any) -> Any:
    known = known_ints("dynamic_broadcast_in_dim", sizes)
    return lax.broadcast_in_dim(x, known, context.ints("broadcast_dimensions"))


@rule("broadcast")
def _broadcast(context: Context, x: Any) -> Any:
    return lax.broadcast(x, context.ints("broadcast_sizes"))


@rule("reshape")
def _reshape(context: Context, x: Any) -> Any:
    return ops["reshape"](x, sizes=context.result_shape.dimensions)


@rule("dynamic_reshape")
def _dynamic_reshape(context: Context, x: Any, sizes: Any) -> Any:
    return ops["reshape"](x, sizes=known_ints("dynamic_reshape", sizes))


@rule("transpose")
def _transpose(context: Context, x: Any) -> Any:
    return ops["transpose"](x, permutation=context.ints("permutation"))


@rule("reverse")
def _reverse(context: Context, x: Any) -> Any:
    return ops["reverse"](x, dimensions=context.ints("dimensions"))


@rule("slice")
def _slice(context: Context, x: Any) -> Any:
    starts, limits = context.ints("start_indices"), context.ints("limit_indices")
    strides = context.ints("strides", (1,) * len(starts))
    return ops["slice"](x, start_indices=starts, limit_indices=limits, strides=strides)


@rule("real_dynamic_slice")
def _real_dynamic_slice(context: Context, x: Any, starts: Any, limits: Any, strides: Any) -> Any:
    bounds = [known_ints("real_dynamic_slice", b) for b in (starts, limits, strides)]
    return ops["slice"](x, start_indices=bounds[0], limit_indices=bounds[1], strides=bounds[2])


@rule("dynamic_slice")
def _dynamic_slice(context: Context, x: Any, *starts: Any) -> Any:
    return ops["dynamic-slice"](x, *starts, dynamic_slice_sizes=context.ints("slice_sizes"))


@rule("dynamic_update_slice")
def _dynamic_update_slice(context: Context, x: Any, update: Any, *starts: Any) -> Any:
    return ops["dynamic-update-slice"](x, update, *starts)


@rule("pad")
def _pad(context: Context, x: Any, value: Any) -> Any:
    low, high = context.ints("edge_padding_low"), context.ints("edge_padding_high")
    interior = context.ints("interior_padding", (0,) * len(low))
    return ops["pad"](x, value, padding_config=tuple(zip(low, high, interior, strict=True)))


@rule("dynamic_pad")
def _dynamic_pad(context: Context, x: Any, value: Any, low: Any, high: Any, interior: Any) -> Any:
    config = zip(*(known_ints("dynamic_pad", p) for p in (low, high, interior)), strict=True)
    return ops["pad"](x, value, padding_config=tuple(config))


@rule("concatenate")
def _concatenate(context: Context, *xs: Any) -> Any:
    return ops["concatenate"](*xs, dimension=context.integer("dimension"))


@rule("get_dimension_size")
def _get_dimension_size(context: Context, x: Any) -> Any:
    if Shape.of(x).is_dynamic:
        return ops["get-dimension-size"](x, dimensions=(context.integer("dimension"),))
    size = x.shape[context.integer("dimension")]
    return scalar(size, np.int32) if is_symbolic(size) else constant(np.array(size, np.int32))


@rule("set_dimension_size")
def _set_dimension_size(context: Context, x: Any, size: Any) -> Any:
    return ops["set-dimension-size"](x, size, dimensions=(context.integer("dimension"),))


@rule("tuple")
def _tuple(context: Context, *xs: Any) -> Any:
    return [tuple(xs)]


@rule("get_tuple_element")
def _get_tuple_element(context: Context, x: Any) -> Any:
    return x[context.integer("index")]


@rule("optimization_barrier")
def _optimization_barrier(context: Context, *xs: Any) -> Any:
    return tuple(lax.optimization_barrier(list(xs)))


# --- contractions, windows, indexing ----------------------------------------------------------------------------------


@rule("dot_general")
def _dot_general(context: Context, x: Any, y: Any) -> Any:
    numbers = context.inner("dot_dimension_numbers")
    return ops["dot"](
        x,
        y,
        lhs_contracting_dims=numbers.ints("lhs_contracting_dimensions", ()),
        rhs_contracting_dims=numbers.ints("rhs_contracting_dimensions", ()),
        lhs_batch_dims=numbers.ints("lhs_batching_dimensions", ()),
        rhs_batch_dims=numbers.ints("rhs_batching_dimensions", ()),
        preferred_element_type=_element_type(context),
        operand_precision=context.precisions(),
    )


@rule("dot")
def _dot(context: Context, x: Any, y: Any) -> Any:
    return ops["dot"](
        x,
        y,
        lhs_contracting_dims=(x.ndim - 1,),
        rhs_contracting_dims=(0,),
        preferred_element_type=_element_type(context),
        operand_precision=context.precisions(),
    )


def _pairs(context: Context, count: int) -> tuple[tuple[int, ...], ...]:
    if "padding" not in context:
        return ((0, 0),) * count
    given = context.entries["padding"]
    if isinstance(given, DenseAttr) and given.value.ndim == 1:  # pairs without the brackets of the rows
        flat = context.ints("padding")
        return tuple(zip(flat[::2], flat[1::2], strict=True))
    return context.matrix("padding")


def _convolved(context: Context, x: Any, kernel: Any, padding: Any) -> Any:
    dims = convolution_dimensions(context)
    spatial = [kernel.shape[d] for d in dims.rhs_spec[2:]]
    n = len(spatial)
    strides, ones = context.ints("window_strides", (1,) * n), (1,) * n
    lhs, rhs = context.ints("lhs_dilation", ones), context.ints("rhs_dilation", ones)
    reversal = context.flags("window_reversal", n)
    window = tuple(
        WindowDimension(size, strides[k], padding[k][0], padding[k][1], rhs[k], lhs[k], reversal[k])
        for k, size in enumerate(spatial)
    )
    return ops["convolution"](
        x,
        kernel,
        window=window,
        dim_labels=dims,
        feature_group_count=context.integer("feature_group_count", 1),
        batch_group_count=context.integer("batch_group_count", 1),
        preferred_element_type=_element_type(context),
        operand_precision=context.precisions(),
    )


@rule("convolution")
def _convolution(context: Context, x: Any, kernel: Any) -> Any:
    return _convolved(context, x, kernel, _pairs(context, kernel.ndim - 2))


@rule("dynamic_conv")
def _dynamic_convolution(context: Context, x: Any, kernel: Any, padding: Any) -> Any:
    flat = known_ints("dynamic_conv", padding)
    return _convolved(context, x, kernel, tuple(zip(flat[::2], flat[1::2], strict=True)))


def _window(context: Context, sizes: tuple[int, ...]) -> tuple[WindowDimension, ...]:
    ones = (1,) * len(sizes)
    strides, base = context.ints("window_strides", ones), context.ints("base_dilations", ones)
    dilation, padding = context.ints("window_dilations", ones), _pairs(context, len(sizes))
    return tuple(
        WindowDimension(size, strides[k], padding[k][0], padding[k][1], dilation[k], base[k])
        for k, size in enumerate(sizes)
    )


@rule("reduce_window")
def _reduce_window(context: Context, *operands: Any) -> Any:
    window = _window(context, context.ints("window_dimensions"))
    to_apply = context.computation(0, len(operands) == 2)
    return ops["reduce-window"](*operands, window=window, to_apply=to_apply)


@rule("select_and_scatter")
def _select_and_scatter(context: Context, x: Any, source: Any, init: Any) -> Any:
    window = _window(context, context.ints("window_dimensions", (1,) * x.ndim))
    select, scatter = context.computation(0, True), context.computation(1, True)
    return ops["select-and-scatter"](x, source, init, window=window, select=select, scatter=scatter)


@rule("reduce")
def _reduce(context: Context, *operands: Any) -> Any:
    to_apply = context.computation(0, len(operands) == 2)
    return ops["reduce"](*operands, dimensions=context.ints("dimensions"), to_apply=to_apply)


@rule("map")
def _map(context: Context, *operands: Any) -> Any:
    to_apply = context.computation(0, True)
    return ops["map"](*operands, dimensions=context.ints("dimensions"), to_apply=to_apply)


@rule("sort")
def _sort(context: Context, *operands: Any) -> Any:
    dimension = context.integer("dimension", -1) % max(1, operands[0].ndim)
    is_stable, to_apply = context.flag("is_stable"), context.computation(0, True)
    return ops["sort"](*operands, dimensions=(dimension,), to_apply=to_apply, is_stable=is_stable)


def _gathered(context: Context, x: Any, indices: Any, sizes: tuple[int, ...]) -> Any:
    numbers = context.inner("dimension_numbers")
    return ops["gather"](
        x,
        indices,
        offset_dims=numbers.ints("offset_dims", ()),
        collapsed_slice_dims=numbers.ints("collapsed_slice_dims", ()),
        start_index_map=numbers.ints("start_index_map", ()),
        index_vector_dim=numbers.integer("index_vector_dim", 0),
        slice_sizes=sizes,
        operand_batching_dims=numbers.ints("operand_batching_dims", ()),
        start_indices_batching_dims=numbers.ints("start_indices_batching_dims", ()),
        indices_are_sorted=context.flag("indices_are_sorted"),
    )


@rule("gather")
def _gather(context: Context, x: Any, indices: Any) -> Any:
    return _gathered(context, x, indices, context.ints("slice_sizes"))


@rule("dynamic_gather")
def _dynamic_gather(context: Context, x: Any, indices: Any, sizes: Any) -> Any:
    return _gathered(context, x, indices, known_ints("dynamic_gather", sizes))


@rule("scatter")
def _scatter(context: Context, *operands: Any) -> Any:
    numbers = context.inner("scatter_dimension_numbers")
    return ops["scatter"](
        *operands,
        update_window_dims=numbers.ints("update_window_dims", ()),
        inserted_window_dims=numbers.ints("inserted_window_dims", ()),
        scatter_dims_to_operand_dims=numbers.ints("scatter_dims_to_operand_dims", ()),
        index_vector_dim=numbers.integer("index_vector_dim", 0),
        to_apply=context.computation(0, len(operands) == 3),
        input_batching_dims=numbers.ints("input_batching_dims", ()),
        scatter_indices_batching_dims=numbers.ints("scatter_indices_batching_dims", ()),
        indices_are_sorted=context.flag("indices_are_sorted"),
        unique_indices=context.flag("unique_indices"),
    )


@rule("torch_index_select")
def _torch_index_select(context: Context, x: Any, index: Any) -> Any:
    dim, batch_dims = context.integer("dim"), context.integer("batch_dims", 0)
    if batch_dims:
        raise AttributeValueError("stablehlo.torch_index_select: batch_dims other than 0 are not supported.")
    return lax.index_take(x, (index.reshape(-1),), (dim,)).reshape(context.result_shape.dimensions)


# --- linear algebra, transforms, random numbers, normalization --------------------------------------------------------


@rule("cholesky")
def _cholesky(context: Context, x: Any) -> Any:
    return ops["cholesky"](x, lower=context.flag("lower"))


@rule("triangular_solve")
def _triangular_solve(context: Context, a: Any, b: Any) -> Any:
    return ops["triangular-solve"](
        a,
        b,
        left_side=context.flag("left_side"),
        lower=context.flag("lower"),
        unit_diagonal=context.flag("unit_diagonal"),
        transpose_a=context.word("transpose_a", "NO_TRANSPOSE"),
    )


@rule("fft")
def _fft(context: Context, x: Any) -> Any:
    return ops["fft"](x, fft_type=context.word("fft_type"), fft_length=context.ints("fft_length"))


ALGORITHMS = {"DEFAULT": "rng_default", "THREE_FRY": "rng_three_fry", "PHILOX": "rng_philox"}


@rule("rng_bit_generator")
def _rng_bit_generator(context: Context, x: Any) -> Any:
    algorithm = ALGORITHMS[context.word("rng_algorithm")]
    return ops["rng-bit-generator"](x, algorithm=algorithm, shape=context.result_shapes[1])


@rule("rng")
def _rng(context: Context, a: Any, b: Any, sizes: Any) -> Any:
    shape = Shape(_element_type(context), known_ints("rng", sizes))
    distribution = {"UNIFORM": "rng_uniform", "NORMAL": "rng_normal"}[context.word("rng_distribution")]
    return ops["rng"](a, b, distribution=distribution, shape=shape)


@rule("batch_norm_training", "batch_norm_inference", "batch_norm_grad")
def _batch_norm(context: Context, *operands: Any) -> Any:
    op = ops[context.operation.name.removeprefix("stablehlo.").replace("_", "-")]
    return op(*operands, epsilon=context.number("epsilon"), feature_index=context.integer("feature_index"))


# --- control flow and calls -------------------------------------------------------------------------------------------


@rule("while")
def _while(context: Context, *operands: Any) -> Any:
    condition, body = context.of_one(0), context.region(1)
    return lax.while_loop(lambda values: condition(*values), lambda values: body(*values), list(operands))


@rule("case")
def _case(context: Context, index: Any) -> Any:
    count = len(context.operation.regions)
    last = constant(np.array(count - 1, np.int32))
    is_inside = lax.bitwise_and(lax.ge(index, lax.full_like(index, 0)), lax.le(index, last))
    branches = [context.region(k) for k in range(count)]
    return lax.switch(lax.select(is_inside, index, lax.full_like(index, count - 1)), branches)


@rule("if")
def _if(context: Context, pred: Any) -> Any:
    return lax.cond(pred, context.region(0), context.region(1))


def _call(context: Context, *operands: Any) -> Any:
    return context.evaluation.shared_call(context.symbol("callee"), *operands)


RULES["func.call"] = _call


def _sharded(context: Context, x: Any) -> Any:
    """How an array is distributed does not change its values."""
    return x


RULES.update(dict.fromkeys(("sdy.sharding_constraint", "sdy.reshard", "sdy.propagation_barrier"), _sharded))


# --- among replicas, and with the host --------------------------------------------------------------------------------


def _meeting(context: Context) -> dict[str, Any]:
    """Who takes part in a collective operation."""
    channel = context.inner("channel_handle").integer("handle", 0)
    groups = context.matrix("replica_groups")
    return {
        "replica_groups": tuple(tuple(n for n in group if n >= 0) for group in groups if any(n >= 0 for n in group)),
        "channel_id": channel or None,
    }


def _with_ids(context: Context) -> dict[str, Any]:
    return {**_meeting(context), "use_global_device_ids": context.flag("use_global_device_ids")}


@rule("all_reduce")
def _all_reduce(context: Context, *operands: Any) -> Any:
    return ops["all-reduce"](*operands, to_apply=context.computation(0, True), **_with_ids(context))


@rule("all_gather")
def _all_gather(context: Context, *operands: Any) -> Any:
    dimension = context.integer("all_gather_dim")
    results = [
        ops["all-gather"](
            x,
            all_gather_dimension=dimension,
            shard_count=shape.dimensions[dimension] // max(1, x.shape[dimension]),
            **_with_ids(context),
        )
        for x, shape in zip(operands, context.result_shapes, strict=True)
    ]
    return tuple(results)


@rule("reduce_scatter")
def _reduce_scatter(context: Context, x: Any) -> Any:
    dimension = context.integer("scatter_dimension")
    return ops["reduce-scatter"](
        x,
        to_apply=context.computation(0, True),
        scatter_dimension=dimension,
        shard_count=x.shape[dimension] // max(1, context.result_shape.dimensions[dimension]),
        **_with_ids(context),
    )


@rule("all_to_all")
def _all_to_all(context: Context, *operands: Any) -> Any:
    split, joined = context.integer("split_dimension"), context.integer("concat_dimension")
    count = context.integer("split_count")
    results: list[Any] = []
    for x in operands:
        parts = ops["all-to-all"](
            *(
                lax.slice_in_dim(x, k * x.shape[split] // count, (k + 1) * x.shape[split] // count, axis=split)
                for k in range(count)
            ),
            **_meeting(context),
        )
        results.append(ops["concatenate"](*(parts if isinstance(parts, tuple) else (parts,)), dimension=joined))
    return tuple(results)


@rule("collective_permute")
def _collective_permute(context: Context, x: Any) -> Any:
    channel = context.inner("channel_handle").integer("handle", 0)
    return ops["collective-permute"](
        x, source_target_pairs=context.matrix("source_target_pairs"), channel_id=channel or None
    )


@rule("collective_broadcast")
def _collective_broadcast(context: Context, x: Any) -> Any:
    return ops["collective-broadcast"](x, **_meeting(context))


@rule("replica_id")
def _replica_id(context: Context) -> Any:
    return ops["replica-id"]()


@rule("partition_id")
def _partition_id(context: Context) -> Any:
    return ops["partition-id"]()


@rule("create_token", "after_all")
def _token(context: Context, *tokens: Any) -> Any:
    return ops["after-all"](*tokens)


@rule("uniform_quantize", "uniform_dequantize")
def _quantized(context: Context, x: Any) -> Any:
    raise ArgumentError(f"{context.operation.name}: quantized types are not supported.")
