"""The operations: one file per family, all rules of an op in one place. `ops` is the registry, by HLO name.

Users also find `segment_sum`, `segment_prod`, `segment_max` and `segment_min` here, as in JAX: `tinyxla/__init__.py`
puts the functions of `tinyxla.numpy.segment_reductions`, a layer far above this one, into this name space.
"""

from tinyxla.ops import (
    barrier as barrier,
    batch_norm as batch_norm,
    bits as bits,
    calls as calls,
    checkpoint_name as checkpoint_name,
    dynamic_sizes as dynamic_sizes,
    dynamic_slices as dynamic_slices,
    elementwise as elementwise,
    fourier as fourier,
    hlo_only as hlo_only,
    indexing as indexing,
    movement as movement,
    random_bits as random_bits,
    reduction as reduction,
    sorting as sorting,
    tuples as tuples,
    windows as windows,
)
from tinyxla.ops.distributed import (
    channels as channels,
    collective_stages as collective_stages,
    collectives as collectives,
    exchanges as exchanges,
    process_collectives as process_collectives,
)
from tinyxla.ops.host import callback as callback, custom_call as custom_call, xla_targets as xla_targets
from tinyxla.ops.linalg import (
    eigenvalues as eigenvalues,
    factorizations as factorizations,
    lapack as lapack,
    linear_algebra as linear_algebra,
    linear_solve as linear_solve,
)
from tinyxla.ops.op import Op as Op, Sample as Sample, Value as Value, ops as ops
from tinyxla.ops.products import (
    contraction as contraction,
    convolution as convolution,
    ragged as ragged,
    scaled as scaled,
)
