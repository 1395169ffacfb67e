"""The operations: one file per family, all rules of an op in one place. `ops` is the registry, by HLO name.

Users also find `segment_sum`, `segment_prod`, `segment_max` and `segment_min` here, as in JAX: `tinyxla/__init__.py`
puts the functions of `tinyxla.numpy.segment_reductions`, a layer far above this one, into this name space.
"""

from tinyxla.ops import (
    barrier as barrier,
    batch_norm as batch_norm,
    bits as bits,
    callback as callback,
    calls as calls,
    channels as channels,
    checkpoint_name as checkpoint_name,
    collective_stages as collective_stages,
    collectives as collectives,
    contraction as contraction,
    convolution as convolution,
    custom_call as custom_call,
    dynamic_sizes as dynamic_sizes,
    dynamic_slices as dynamic_slices,
    eigenvalues as eigenvalues,
    elementwise as elementwise,
    exchanges as exchanges,
    factorizations as factorizations,
    fourier as fourier,
    hlo_only as hlo_only,
    indexing as indexing,
    linear_algebra as linear_algebra,
    linear_solve as linear_solve,
    movement as movement,
    process_collectives as process_collectives,
    ragged as ragged,
    random_bits as random_bits,
    reduction as reduction,
    scaled as scaled,
    sorting as sorting,
    tuples as tuples,
    windows as windows,
    xla_targets as xla_targets,
)
from tinyxla.ops.op import Op as Op, Sample as Sample, Value as Value, ops as ops
