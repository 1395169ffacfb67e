"""Templates of `lax` and `lax.linalg`, most of which take structured arguments."""

from __future__ import annotations

_WINDOW = "<<, window_strides={?(1, 2)|(2, 2)}>>, padding={?'SAME'|'VALID'|((1, 0), (0, 2))}"
_CONV = "({float 2,3,7}, {float 4,3,3}, window_strides={?(1,)|(2,)}, padding={?'SAME'|'VALID'|[(1, 2)]|[(-1, 0)]}"
_ROWS = (
    "jx.lax.ScatterDimensionNumbers(update_window_dims=(1,), inserted_window_dims=(0,),"
    " scatter_dims_to_operand_dims=(0,))"
)
_MODES = "<<, mode={?'clip'|'drop'|'promise_in_bounds'|None}>>"
_SCATTER = ("({%s 5,3}, {i32 4,1 index:5}, {%s 4,3}, " + _ROWS + "<<, mode={?'clip'|'drop'|None}>>)",)
_BINARY = ("({%s S}, {%s S})", "({%s S}, {number})")


def _binary(names: str, kind: str) -> dict[str, tuple[str, ...]]:
    return {n: tuple(t.replace("%s", kind) for t in _BINARY) for n in names.split()}


LAX: dict[str, tuple[str, ...]] = {
    **_binary("add sub mul div max min eq ne lt le gt ge pow rem atan2 nextafter", "number"),
    **{n: ("({bits S}, {bits S})",) for n in "bitwise_and bitwise_or bitwise_xor".split()},
    **{
        n: ("({int S}, {int S natural:7})",) for n in "shift_left shift_right_arithmetic shift_right_logical".split()
    },
    **{n: ("({int S}, {int S})",) for n in ("mulhi",)},
    **{n: ("({float S}, axes={axes})",) for n in "reduce_max reduce_min reduce_sum reduce_prod".split()},
    **{n: ("({bits S}, axes={axes})",) for n in "reduce_and reduce_or reduce_xor".split()},
    **dict.fromkeys("cummax cummin cumprod cumsum".split(), ("({number S}, axis={axis}<<, reverse={?True|False}>>)",)),
    "cumlogsumexp": ("({float S}, axis={axis}<<, reverse={?True|False}>>)",),
    **dict.fromkeys("argmax argmin".split(), ("({real S}, axis={axis}, index_dtype='{?int32|uint8}')",)),
    **dict.fromkeys("approx_max_k approx_min_k".split(), ("({float 3,9 distinct}, {?1|3})",)),
    "top_k": ("({real S}, {?0|1|2|3})", "({real 4,5}, 2, axis={?0|1})"),
    "associative_scan": (
        "(jx.lax.{?add|mul|max}, {number N,3}<<, reverse=True>>)",
        "(lambda p, q: (p[0] * q[0], p[1] * q[0] + q[1]), ({float N,2}, {float N,2}))",
        "(jx.numpy.add, {real 3,4}, axis={?1|-1})",
    ),
    "batch_matmul": ("({number 2,N,M}, {number 2,M,K})",),
    "betainc": ("({float S positive}, {float S positive}, {float S unit})", "({float S}, {float S}, {float S})"),
    "bitcast_convert_type": (
        "({f32 S}, '{?int32|uint32|float32}')",
        "({u32 S}, '{?float32|int32|uint8|uint16}')",
        "({u8 3,4}, '{?uint32|float32|int8}')",
    ),
    "broadcast": ("({any S}, {?()|(2,)|(0, 3)|(2, 3)})",),
    "broadcast_in_dim": ("({any 3}, {?(2, 3)|(3,)}, (-1 % {rank} if False else {?0|1},))", "({any 1,3}, (2, 4, 3), (1, 2))"),
    "broadcast_like": ("({any S~}, {any 2,3,4})",),
    "broadcast_shapes": ("({shape}, {shape})", "((2, 1), (3,))"),
    "broadcast_to_rank": ("({any S}, {?2|4|5})",),
    "broadcasted_iota": ("('{?int32|float32|uint8|complex64}', (3, 4), {?0|1})",),
    "iota": ("('{?int32|float32|uint8|bfloat16}', {?0|1|7})",),
    "clamp": ("({?-1.0|0.0}, {float S}, {?1.0|2.0})", "({real S}, {real S}, {real S})", "({float -}, {float S}, {float -})"),
    "collapse": ("({any 2,3,4}, {?0|1}<<, {?2|3}>>)",),
    "complex": ("({f32 S}, {f32 S})", "({float S}, {float S})"),
    "composite": ("(lambda u: u * 2, 'tx.twice')({number S})",),
    "concatenate": ("([{any N,3}, {any M,3}], 0)",),
    "cond": (
        "({bool -}, lambda u: u * 2, lambda u: u - 1, {number S})",
        "({float -} > 0, lambda u, v: (u + v, u), lambda u, v: (u * v, v), {float S}, {float S})",
    ),
    "switch": ("({i32 - small}, [lambda u: u * 2, lambda u: u - 1, lambda u: -u], {number S})",),
    "conv": ("({float 2,3,7}, {float 4,3,3}, {?(1,)|(2,)}, {?'SAME'|'VALID'})", "({float 1,2,5,6}, {float 3,2,2,3}, (1, {?1|2}), {?'SAME'|'VALID'})"),
    "conv_dimension_numbers": ("((2, 3, 7, 5), (4, 3, 3, 2), {?None|('NHWC', 'HWIO', 'NHWC')})",),
    "conv_general_dilated": (
        _CONV + "<<, lhs_dilation=(2,)>><<, rhs_dilation=(2,)>>)",
        "({float 2,4,7}, {float 6,2,3}, (1,), 'SAME', feature_group_count=2)",
        "({float 4,3,7}, {float 6,3,3}, (1,), 'VALID', batch_group_count=2)",
        "({float 2,6,5,3}, {float 3,2,3,4}, ({?1|2}, 1), {?'SAME'|'VALID'}, dimension_numbers=('NHWC', 'HWIO', 'NHWC'))",
        "({float 1,2,3,4,5}, {float 2,2,2,2,2}, (1, 1, 1), 'VALID')",
        "({inexact 0,3,7}, {inexact 4,3,3}, (1,), 'SAME')",
        "({complex 2,3,7}, {complex 4,3,3}, (1,), 'SAME')",
    ),
    "conv_general_dilated_local": ("({float 2,3,7}, {float 4,9,5}, (1,), 'VALID', (3,))",),
    "conv_general_dilated_patches": ("({float 2,3,7}, (3,), {?(1,)|(2,)}, {?'SAME'|'VALID'})",),
    "conv_general_permutations": ("({?('NHWC', 'HWIO', 'NHWC')|('NCH', 'OIH', 'NCH')})",),
    "conv_general_shape_tuple": ("((2, 3, 7), (4, 3, 3), (2,), 'SAME', ('NCH', 'OIH', 'NCH'))",),
    "conv_shape_tuple": ("((2, 3, 7), (4, 3, 3), (2,), [(1, 1)])",),
    "conv_transpose_shape_tuple": ("((2, 7, 3), (3, 3, 4), (2,), 'SAME', ('NHC', 'HIO', 'NHC'))",),
    "conv_transpose": ("({float 2,7,3}, {float 3,3,4}, {?(1,)|(2,)}, {?'SAME'|'VALID'}<<, rhs_dilation=(2,)>>)", "({float 2,5,4,3}, {float 3,2,4,3}, (2, 1), {?'SAME'|'VALID'}, transpose_kernel=True)"),
    "conv_with_general_padding": ("({float 2,3,7}, {float 4,3,3}, (1,), {?[(1, 1)]|[(0, 2)]}, {?None|(2,)}, {?None|(2,)})",),
    "convert_element_type": ("({any S}, {dtype})",),
    "custom_linear_solve": ("(lambda v: 2.0 * v, {float 3}, lambda mv, r: r / 2.0, symmetric=True)",),
    "custom_root": ("(lambda u: u * u * u - 8.0, {f32 -} * 0 + 1.5, lambda g, u: jx.lax.fori_loop(0, 30, lambda i, w: w - g(w) / (3 * w * w), u), lambda g, y: y / g(1.0))",),
    "dot": ("({number N,M}, {number M,K})", "({number M}, {number M})", "({number N,M}, {number M})", "({int N,M}, {int M,K}, preferred_element_type='int32')"),
    "dot_general": (
        "({number 2,N,M}, {number 2,M,K}, (((2,), (1,)), ((0,), (0,))))",
        "({number N,M}, {number K,M}, (((1,), (1,)), ((), ())))",
        "({number 3,N,2}, {number 2,3,M}, (((0, 2), (1, 0)), ((), ())))",
        "({real N,M}, {real M,K}, (((1,), (0,)), ((), ())), preferred_element_type='float32')",
    ),
    "scaled_dot": ("({f32 4,32}, {f32 5,32})",),
    "dtype": ("({any S}).name",),
    "dynamic_index_in_dim": ("({any 4,5}, {i32 -}<<, axis={?0|1}>><<, keepdims={?True|False}>>)",),
    "dynamic_slice": ("({any 4,5}, ({i32 -}, {i32 - small}), {?(2, 3)|(4, 5)|(0, 1)})", "({any 7}, [{i32 - small}], (3,))"),
    "dynamic_slice_in_dim": ("({any 4,5}, {i32 -}, {?2|0|4}<<, axis={?0|1|-1}>>)",),
    "dynamic_update_index_in_dim": ("({any 4,5}, {any 5}, {i32 -}, {?0|-2})",),
    "dynamic_update_slice": ("({any 4,5}, {any 2,3}, ({i32 -}, {i32 - small}))",),
    "dynamic_update_slice_in_dim": ("({any 4,5}, {any 4,2}, {i32 -}, {?1|-1})",),
    "empty": ("({shape}, {dtype}).shape",),
    "expand_dims": ("({any S}, {?(0,)|(-1,)|(0, 1)|()})",),
    "fft": ("({c64 *B,8}, jx.lax.FftType.{?FFT|IFFT}, (8,))", "({f32 *B,7}, jx.lax.FftType.RFFT, (7,))", "({c64 *B,4}, jx.lax.FftType.IRFFT, ({?6|7},))", "({c64 3,4}, jx.lax.FftType.FFT, (3, 4))"),
    "fori_loop": ("(0, {?0|3|7}, lambda i, c: c * 2 - i, {number S})", "(1, {i32 - small}, lambda i, c: c + i, {i32 S})", "(0, 4, lambda i, c: (c[1], c[0] + c[1] * i), ({float S}, {float S}))"),
    "full": ("({shape}, {?1|2.5|True}<<, {dtype}>>)",),
    "full_like": ("({any S}, {?1|2|0}<<, {dtype}>><<, shape={shape}>>)",),
    "gather": (
        "({any 5,3}, {i32 4,1 index:7}, jx.lax.GatherDimensionNumbers(offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0,)), (1, 3)<<, mode={?'clip'|'fill'}>>)",
        "({any 5,3}, {i32 4,2 natural:5}, jx.lax.GatherDimensionNumbers(offset_dims=(1, 2), collapsed_slice_dims=(), start_index_map=(0, 1)), (2, 2)<<, mode={?'clip'|'fill'}>><<, fill_value=1>>)",
    ),
    "igamma": ("({float S positive}, {float S positive})", "({float S}, {float S})"),
    "igammac": ("({float S positive}, {float S positive})", "({float S}, {float S})"),
    "igamma_grad_a": ("({float S positive}, {float S positive})",),
    "random_gamma_grad": ("({float S positive}, {float S positive})",),
    "index_in_dim": ("({any 4,5}, {?0|3|-1}<<, axis={?0|1}>><<, keepdims={?True|False}>>)",),
    "index_take": ("({any 4,5}, ({i32 3 index:4}, {i32 3 index:5}), (0, 1))",),
    "integer_pow": ("({number S}, {?0|1|2|3|7|-1|-2})",),
    "map": ("(lambda u: u * 2 + 1, {number N,3}<<, batch_size={?2|1}>>)", "(lambda u: (u.sum(), u), {real 4,3})"),
    "optimization_barrier": ("({any S})",),
    "pad": ("({any 3,4}, {any -}, {?((1, 1, 0), (0, 2, 1))|((0, 0, 0), (-1, 3, 2))|((-1, -1, 0), (0, 0, 0))})", "({any 0}, {any -}, ((1, 2, 0),))"),
    "padtype_to_pads": ("((7, 5), (3, 2), ({?1|2}, 1), '{?SAME|VALID}')",),
    "platform_dependent": ("({number S}, cpu=lambda u: u * 2, default=lambda u: u)",),
    "polygamma": ("({float S natural:4}, {float S positive})",),
    "zeta": ("({float S positive} + 1, {float S positive})", "({float S}, {float S})"),
    "ragged_dot": ("({float 7,3}, {float 3,3,4}, np.array([{?2, 0, 5|3, 3, 1}], 'int32'))",),
    "ragged_dot_general": ("({float 7,3}, {float 3,3,4}, np.array([2, 0, 5], 'int32'), jx.lax.RaggedDotDimensionNumbers((((1,), (1,)), ((), ())), [0], [0]))",),
    "reduce": ("({number S}, 0, jx.lax.add, {axes})", "({real S}, 1, jx.lax.mul, {axes})", "(({f32 3,4}, {f32 3,4}), (0.0, 1.0), lambda p, q: (p[0] + q[0], p[1] * q[1]), {?(0,)|(1,)|(0, 1)})"),
    "reduce_precision": ("({float S}, {?5|8|3}, {?10|7|3})",),
    "reduce_window": ("({float 6,7}, 0.0, jx.lax.add, {?(2, 3)|(1, 2)}" + _WINDOW + ")", "({float 6,7}, -np.inf, jx.lax.max, (3, 2)" + _WINDOW + "<<, window_dilation=(2, 1)>>)", "({float 6,7}, np.inf, jx.lax.min, (3, 2)<<, base_dilation=(1, 2)>>)", "({i32 6,7}, 1, jx.lax.mul, (2, 2))"),
    "reduce_window_shape_tuple": ("((7, 5), (3, 2), ({?1|2}, 1), ((0, 1), (1, 0)))",),
    "reshape": ("({any S}, {reshaped})", "({any 2,3}, (6,), (1, 0))"),
    "rev": ("({any S}, {axes})",),
    "rng_bit_generator": ("({u32 4 key}, (3, 4))[1]",),
    "round": ("({float S}<<, jx.lax.RoundingMethod.TO_NEAREST_EVEN>>)",),
    "scan": (
        "(lambda c, u: (c * 0.5 + u, c - u), {float -}, {float N})",
        "(lambda c, u: (c + u[0], c @ u[1]), {float 3}, ({float N,3}, {float N,3,3}))",
        "(lambda c, u: (c + 1, c), {i32 -}, None, length={?0|3|5})",
        "(lambda c, u: (c * u, c), {float 3}, {float 4,3}<<, reverse=True>><<, unroll={?2|True}>>)",
    ),
    **dict.fromkeys("scatter scatter_add scatter_mul scatter_sub".split(), tuple(t.replace("%s", "number") for t in _SCATTER)),
    **dict.fromkeys("scatter_max scatter_min".split(), tuple(t.replace("%s", "real") for t in _SCATTER)),
    "scatter_apply": ("({float 5,3}, {i32 4,1 places:5}, lambda u: u * 2 + 1, " + _ROWS + ", update_shape=(4, 3))",),
    "select": ("({bool S}, {any S}, {any S})", "({bool -}, {any S}, {any S})"),
    "select_n": ("({bool S}, {any S}, {any S})", "({i32 S natural:3}, {any S}, {any S}, {any S})"),
    "shape_as_value": ("({shape})",),
    "slice": ("({any 5,7}, {?(1, 2)|(0, 0)}, {?(4, 7)|(5, 2)}<<, {?(1, 2)|(3, 1)}>>)",),
    "slice_in_dim": ("({any 5,7}, {?0|1|None|-3}, {?4|None|-1}<<, {?1|2}>><<, axis={?0|1|-1}>>)",),
    "sort": ("({any S}<<, dimension={axis}>>)", "(({real 3,4 small}, {real 3,4})<<, num_keys={?1|2}>><<, dimension={?0|1}>>)"),
    "sort_key_val": ("({real S}, {any S}<<, {axis}>>)",),
    "split": ("({any 6,3}, {?(2, 4)|(1, 0, 5)}<<, axis=0>>)",),
    "squeeze": ("({any 1,3,1}, {?(0,)|(2,)|(0, 2)|(-1,)})",),
    "stack": ("([{any S}, {any S}]<<, axis={?0|-1}>>)",),
    "tile": ("({any S}, {?(2,)|(2, 1)|(1, 0, 2)|(2, 3)})",),
    "transpose": ("({any S}, {permutation})",),
    "unstack": ("({any S}<<, axis={axis}>>)",),
    "while_loop": ("(lambda c: c[0] < {?0|3|6}, lambda c: (c[0] + 1, c[1] * 0.5 + c[0]), (0, {float S}))", "(lambda c: c.sum() < 100, lambda c: c + 7, {i32 3 natural:9})"),
    "stage": ("({number S})",),
    "tan": ("({inexact S})",),
    "exp2": ("({inexact S})",),
}  # fmt: skip

_IN_VMAP = "jx.vmap(lambda u: jx.lax.%s, axis_name='i')({%s 4,4})"
COLLECTIVES: dict[str, tuple[str, ...]] = {
    **{n: (_IN_VMAP % (f"{n}(u, 'i')", "number"),) for n in "psum pmean".split()},
    **{n: (_IN_VMAP % (f"{n}(u, 'i')", "real"),) for n in "pmax pmin".split()},
    "all_gather": (_IN_VMAP % ("all_gather(u, 'i'<<, tiled=True>><<, axis={?0|-1}>>)", "any"),),
    "all_to_all": (_IN_VMAP % ("all_to_all(u, 'i', 0, 0<<, tiled=True>>)", "any"),),
    "axis_index": (_IN_VMAP % ("axis_index('i') + u", "number"),),
    "axis_size": (_IN_VMAP % ("axis_size('i') * u", "number"),),
    "ppermute": (_IN_VMAP % ("ppermute(u, 'i', [(0, 1), (1, 2), (3, 0)])", "number"),),
    "pshuffle": (_IN_VMAP % ("pshuffle(u, 'i', [1, 0, 3, 2])", "any"),),
    "psum_scatter": (_IN_VMAP % ("psum_scatter(u, 'i'<<, tiled=True>>)", "number"),),
    "pswapaxes": (_IN_VMAP % ("pswapaxes(u, 'i', 0)", "any"),),
    "pbroadcast": (_IN_VMAP % ("pbroadcast(u, 'i', 1)", "any"),),
}

LAX_LINALG: dict[str, tuple[str, ...]] = {
    "cholesky": ("({inexact *B,N,N spd})",),
    "eigh": ("({inexact *B,N,N hermitian}<<, lower={?True|False}>>)",),
    "lu": ("({inexact *B,N,M well})",),
    "lu_pivots_to_permutation": ("({i32 3 natural:3}, {?3|5})",),
    "qr": ("({inexact *B,N,M well}<<, full_matrices={?True|False}>>)",),
    "svd": ("({inexact *B,N,M well}<<, full_matrices={?True|False}>>)", "({inexact N,M well}, compute_uv=False)"),
    "symmetric_product": ("({float N,M}, {float N,N spd}<<, alpha=2.0>><<, beta={?0.5|1.0}>>, symmetrize_output=True)",),
    "triangular_solve": (
        "({inexact *B,N,N upper}, {inexact *B,N,K}, left_side=True<<, transpose_a={?True|False}>><<, unit_diagonal=True>>)",
        "({inexact N,N well}, {inexact K,N}, left_side=False, lower={?True|False}<<, transpose_a=True>><<, conjugate_a=True>>)",
    ),
    "tridiagonal_solve": ("({float 5 unit}, {float 5 positive} + 3, {float 5 unit}, {float 5,2})",),
}
