"""`jax.experimental.custom_partitioning`: functions that say how they are partitioned. What they are made of is
partitioned like all else, which gives the same values; so the rules are kept, and not called."""

from tinyxla.jax.partitioning.custom_partitioning import (
    BATCHING as BATCHING,
    ArrayMapping as ArrayMapping,
    CompoundFactor as CompoundFactor,
    SdyShardingRule as SdyShardingRule,
    custom_partitioning as custom_partitioning,
)
