"""XLA's operations as functions, under the names of `jax.lax`: explicit about types and shapes, without promotion.

>>> import numpy as np
>>> from tinyxla import lax
>>> lax.add(np.array([1.0, 2.0]), 1.0)
Array([2., 3.], dtype=float32)
"""

from tinyxla.lax import elementwise as _elementwise, linalg as linalg, movement as _movement
from tinyxla.lax.collectives import (
    all_gather as all_gather,
    all_to_all as all_to_all,
    axis_index as axis_index,
    axis_size as axis_size,
    pbroadcast as pbroadcast,
    pcast as pcast,
    pmax as pmax,
    pmean as pmean,
    pmin as pmin,
    ppermute as ppermute,
    pshuffle as pshuffle,
    psum as psum,
    psum_scatter as psum_scatter,
    pswapaxes as pswapaxes,
    pvary as pvary,
)
from tinyxla.lax.contraction import (
    DotAlgorithm as DotAlgorithm,
    DotAlgorithmPreset as DotAlgorithmPreset,
    DotDimensionNumbers as DotDimensionNumbers,
    Precision as Precision,
    PrecisionLike as PrecisionLike,
    RaggedDotDimensionNumbers as RaggedDotDimensionNumbers,
    batch_matmul as batch_matmul,
    dot as dot,
    dot_general as dot_general,
    ragged_dot as ragged_dot,
    ragged_dot_general as ragged_dot_general,
    scaled_dot as scaled_dot,
)
from tinyxla.lax.convolution import (
    ConvDimensionNumbers as ConvDimensionNumbers,
    ConvGeneralDilatedDimensionNumbers as ConvGeneralDilatedDimensionNumbers,
    conv as conv,
    conv_dimension_numbers as conv_dimension_numbers,
    conv_general_dilated as conv_general_dilated,
    conv_general_dilated_local as conv_general_dilated_local,
    conv_general_dilated_patches as conv_general_dilated_patches,
    conv_transpose as conv_transpose,
    conv_with_general_padding as conv_with_general_padding,
)
from tinyxla.lax.elementwise import *  # noqa: F403 - its __all__
from tinyxla.lax.fourier import FftType as FftType, fft as fft
from tinyxla.lax.host import (
    after_all as after_all,
    create_token as create_token,
    infeed as infeed,
    outfeed as outfeed,
)
from tinyxla.lax.implicit_solve import custom_linear_solve as custom_linear_solve, custom_root as custom_root
from tinyxla.lax.indexing import (
    GatherDimensionNumbers as GatherDimensionNumbers,
    GatherScatterMode as GatherScatterMode,
    ScatterDimensionNumbers as ScatterDimensionNumbers,
    dynamic_index_in_dim as dynamic_index_in_dim,
    dynamic_slice as dynamic_slice,
    dynamic_slice_in_dim as dynamic_slice_in_dim,
    dynamic_update_index_in_dim as dynamic_update_index_in_dim,
    dynamic_update_slice as dynamic_update_slice,
    dynamic_update_slice_in_dim as dynamic_update_slice_in_dim,
    gather as gather,
    index_take as index_take,
    scatter as scatter,
    scatter_add as scatter_add,
    scatter_apply as scatter_apply,
    scatter_max as scatter_max,
    scatter_min as scatter_min,
    scatter_mul as scatter_mul,
    scatter_sub as scatter_sub,
)
from tinyxla.lax.loops import control_flow as _control_flow
from tinyxla.lax.loops.control_flow import (
    composite as composite,
    cond as cond,
    fori_loop as fori_loop,
    optimization_barrier as optimization_barrier,
    scan as scan,
    switch as switch,
    while_loop as while_loop,
)
from tinyxla.lax.movement import (
    broadcast as broadcast,
    broadcast_in_dim as broadcast_in_dim,
    broadcast_shapes as broadcast_shapes,
    broadcast_to_rank as broadcast_to_rank,
    broadcasted_iota as broadcasted_iota,
    collapse as collapse,
    concatenate as concatenate,
    expand_dims as expand_dims,
    full as full,
    full_like as full_like,
    index_in_dim as index_in_dim,
    iota as iota,
    pad as pad,
    reshape as reshape,
    rev as rev,
    slice_in_dim as slice_in_dim,
    split as split,
    squeeze as squeeze,
    transpose as transpose,
    zeros_like_array as zeros_like_array,
)
from tinyxla.lax.padding import padtype_to_pads as padtype_to_pads
from tinyxla.lax.random_bits import (
    RandomAlgorithm as RandomAlgorithm,
    rng_bit_generator as rng_bit_generator,
    rng_uniform as rng_uniform,
)
from tinyxla.lax.reductions import (
    argmax as argmax,
    argmin as argmin,
    reduce as reduce,
    reduce_and as reduce_and,
    reduce_max as reduce_max,
    reduce_min as reduce_min,
    reduce_or as reduce_or,
    reduce_prod as reduce_prod,
    reduce_sum as reduce_sum,
    reduce_xor as reduce_xor,
)
from tinyxla.lax.sorting import (
    approx_max_k as approx_max_k,
    approx_min_k as approx_min_k,
    associative_scan as associative_scan,
    sort as sort,
    sort_key_val as sort_key_val,
    top_k as top_k,
)
from tinyxla.lax.special import (
    bessel_i0e as bessel_i0e,
    bessel_i1e as bessel_i1e,
    betainc as betainc,
    digamma as digamma,
    erfc as erfc,
    igamma as igamma,
    igamma_grad_a as igamma_grad_a,
    igammac as igammac,
    lgamma as lgamma,
    polygamma as polygamma,
    random_gamma_grad as random_gamma_grad,
    zeta as zeta,
)
from tinyxla.lax.values import (
    broadcast_like as broadcast_like,
    conv_general_permutations as conv_general_permutations,
    conv_general_shape_tuple as conv_general_shape_tuple,
    conv_shape_tuple as conv_shape_tuple,
    conv_transpose_shape_tuple as conv_transpose_shape_tuple,
    dtype as dtype,
    empty as empty,
    mulhi as mulhi,
    platform_dependent as platform_dependent,
    shape_as_value as shape_as_value,
    stack as stack,
    stage as stage,
    tile as tile,
    unstack as unstack,
    with_sharding_constraint as with_sharding_constraint,
)
from tinyxla.lax.windows import (
    cumlogsumexp as cumlogsumexp,
    cummax as cummax,
    cummin as cummin,
    cumprod as cumprod,
    cumsum as cumsum,
    reduce_window as reduce_window,
    reduce_window_shape_tuple as reduce_window_shape_tuple,
)
from tinyxla.util.did_you_mean import missing as _missing
from tinyxla.util.public_names import listing as _listing

abs = _elementwise.abs_
complex = _elementwise.complex_
max = _elementwise.max_
min = _elementwise.min_
pow = _elementwise.pow_
round = _elementwise.round_
map = _control_flow.map_
slice = _movement.slice_

__getattr__ = _missing(__name__)
__dir__ = _listing(globals(), ("linalg",))
