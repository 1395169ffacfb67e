"""The operations: one file per family, all rules of an op in one place. `ops` is the registry, by HLO name."""

from tinyxla.ops import bits, calls, contraction, elementwise, indexing, movement, reduction, sorting
from tinyxla.ops.op import Op, Sample, Value, ops

__all__ = [
    "Op",
    "Sample",
    "Value",
    "bits",
    "calls",
    "contraction",
    "elementwise",
    "indexing",
    "movement",
    "ops",
    "reduction",
    "sorting",
]
