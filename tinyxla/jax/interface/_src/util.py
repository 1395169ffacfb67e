"""`jax._src.util`."""

from tinyxla.jax.tracing.linear_util import safe_map as safe_map, safe_zip as safe_zip
from tinyxla.jax.tracing.lists import (
    canonicalize_axis as canonicalize_axis,
    ceil_of_ratio as ceil_of_ratio,
    foreach as foreach,
    merge_lists as merge_lists,
    partition_list as partition_list,
    split_list as split_list,
    tuple_delete as tuple_delete,
    tuple_insert as tuple_insert,
    tuple_update as tuple_update,
    unzip2 as unzip2,
    unzip3 as unzip3,
)
from tinyxla.numpy import ComplexWarning as NumpyComplexWarning
