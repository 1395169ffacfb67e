"""The attributes of VHLO's operations, by name and version.

Bytecode has the attributes that an operation declares without their names, in alphabetical order.

Source: `stablehlo/dialect/VhloOps.td` in https://github.com/openxla/stablehlo.
"""

from __future__ import annotations

_DOT = "lhs_batching_dimensions rhs_batching_dimensions lhs_contracting_dimensions rhs_contracting_dimensions"
_ALGORITHM = """lhs_precision_type rhs_precision_type accumulation_type lhs_component_count rhs_component_count
    num_primitive_operations allow_imprecise_accumulation"""
_CONVOLUTION = """window_strides lhs_dilation rhs_dilation window_reversal input_batch_dimension
    input_feature_dimension input_spatial_dimensions kernel_input_feature_dimension kernel_output_feature_dimension
    kernel_spatial_dimensions output_batch_dimension output_feature_dimension output_spatial_dimensions
    feature_group_count batch_group_count precision_config"""
_GATHER = "offset_dims collapsed_slice_dims start_index_map index_vector_dim indices_are_sorted"
_GATHER_BATCHES = "operand_batching_dims start_indices_batching_dims"
_SCATTER = """update_window_dims inserted_window_dims scatter_dims_to_operand_dims index_vector_dim indices_are_sorted
    unique_indices"""
_SCATTER_BATCHES = "input_batching_dims scatter_indices_batching_dims"
_CHANNEL = "channel_id channel_type is_host_transfer"
_ACCURATE = """cbrt cosine exponential exponential_minus_one log log_plus_one logistic rsqrt sine sqrt tan
    tanh""".split()

# The attributes of an operation in all of its versions.
_ALL: dict[str, str] = {
    "all_gather": "all_gather_dim replica_groups channel_id use_global_device_ids",
    "all_reduce": "replica_groups channel_id use_global_device_ids",
    "all_to_all": "split_dimension concat_dimension split_count replica_groups channel_id",
    "batch_norm_grad": "epsilon feature_index",
    "batch_norm_inference": "epsilon feature_index",
    "batch_norm_training": "epsilon feature_index",
    "broadcast": "broadcast_sizes",
    "broadcast_in_dim": "broadcast_dimensions",
    "call": "callee",
    "cholesky": "lower",
    "collective_broadcast": "replica_groups channel_id",
    "collective_permute": "source_target_pairs channel_id",
    "compare": "comparison_direction compare_type",
    "composite": "name composite_attributes decomposition version",
    "concatenate": "dimension",
    "constant": "value",
    "convolution": f"padding {_CONVOLUTION}",
    "cross-replica-sum": "replica_groups",
    "custom_call": """call_target_name has_side_effect backend_config api_version called_computations operand_layouts
        result_layouts output_operand_aliases""",
    "dot": "precision_config",
    "dot_general": f"{_DOT} precision_config",
    "dynamic_broadcast_in_dim": "broadcast_dimensions known_expanding_dimensions known_nonexpanding_dimensions",
    "dynamic_conv": _CONVOLUTION,
    "dynamic_gather": _GATHER,
    "dynamic_iota": "iota_dimension",
    "dynamic_slice": "slice_sizes",
    "einsum": "einsum_config",
    "fft": "fft_type fft_length",
    "func": "sym_name function_type sym_visibility arg_attrs res_attrs",
    "gather": f"{_GATHER} slice_sizes",
    "get_dimension_size": "dimension",
    "get_tuple_element": "index",
    "infeed": "infeed_config layout",
    "iota": "iota_dimension",
    "map": "dimensions",
    "outfeed": "outfeed_config",
    "pad": "edge_padding_low edge_padding_high interior_padding",
    "recv": _CHANNEL,
    "reduce": "dimensions",
    "reduce_precision": "exponent_bits mantissa_bits",
    "reduce_scatter": "scatter_dimension replica_groups channel_id use_global_device_ids",
    "reduce_window": "window_dimensions window_strides base_dilations window_dilations padding",
    "reverse": "dimensions",
    "rng": "rng_distribution",
    "rng_bit_generator": "rng_algorithm",
    "scatter": _SCATTER,
    "select_and_scatter": "window_dimensions window_strides padding",
    "send": _CHANNEL,
    "set_dimension_size": "dimension",
    "slice": "start_indices limit_indices strides",
    "sort": "dimension is_stable",
    "torch_index_select": "dim batch_dims",
    "transpose": "permutation",
    "triangular_solve": "left_side lower unit_diagonal transpose_a",
    "unary_einsum": "einsum_config",
}

# What one version has beside these.
_ONE: dict[str, str] = {
    **{f"{name}_v2": "result_accuracy" for name in _ACCURATE},
    "dot_general_v2": _ALGORITHM,
    "dynamic_conv_v1": "padding",
    "dynamic_gather_v2": _GATHER_BATCHES,
    "gather_v2": _GATHER_BATCHES,
    "recv_v2": "source_target_pairs",
    "scatter_v2": _SCATTER_BATCHES,
    "send_v2": "source_target_pairs",
}
# The operations with a second version; none has a third.
TWO_VERSIONS = frozenset(
    (
        *_ACCURATE,
        *"all_gather all_reduce all_to_all composite dot_general dynamic_conv dynamic_gather".split(),
        *"gather recv scatter send".split(),
    )
)

PROPERTIES: dict[str, tuple[str, ...]] = {
    f"{name}_v{k}": tuple(sorted((names + " " + _ONE.get(f"{name}_v{k}", "")).split()))
    for name, names in {**dict.fromkeys(_ACCURATE, ""), **_ALL}.items()
    for k in ((1, 2) if name in TWO_VERSIONS else (1,))
}
