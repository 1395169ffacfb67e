"""`jax._src.util`."""

from tinyxla.jax.tracing.linear_util import safe_map as safe_map, safe_zip as safe_zip
from tinyxla.jax.tracing.lists import (
    foreach as foreach,
    merge_lists as merge_lists,
    partition_list as partition_list,
    split_list as split_list,
    unzip2 as unzip2,
    unzip3 as unzip3,
)
