"""`jax._src.numpy.setops`: the types of the results of `unique_all` and so on."""

from tinyxla.numpy.sets import (
    UniqueAll as _UniqueAllResult,
    UniqueCounts as _UniqueCountsResult,
    UniqueInverse as _UniqueInverseResult,
)

__all__ = ["_UniqueAllResult", "_UniqueCountsResult", "_UniqueInverseResult"]
