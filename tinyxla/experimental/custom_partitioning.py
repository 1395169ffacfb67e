"""Functions that say themselves what each device of a mesh computes, and sharding rules."""

from tinyxla.api.custom_partitioning import custom_partitioning
from tinyxla.partitioning.sharding_rules import BATCHING, ArrayMapping, CompoundFactor, SdyShardingRule

__all__ = ["BATCHING", "ArrayMapping", "CompoundFactor", "SdyShardingRule", "custom_partitioning"]


def __dir__() -> list[str]:
    return __all__
