"""`jax._src.partition_spec`."""

from tinyxla.sharding import PartitionSpec as PartitionSpec
