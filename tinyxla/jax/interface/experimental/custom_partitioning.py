"""`jax.experimental.custom_partitioning`: functions that say how they are partitioned."""

from tinyxla.jax.partitioning.custom_partitioning import custom_partitioning as custom_partitioning
from tinyxla.partitioning.sharding_rules import (
    BATCHING as BATCHING,
    ArrayMapping as ArrayMapping,
    CompoundFactor as CompoundFactor,
    SdyShardingRule as SdyShardingRule,
)
