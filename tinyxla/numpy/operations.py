"""The operations as functions of arrays.

The ops and their helpers are typed for any values that obey their protocol, as their rules need it. Here they are
applied to arrays, and give arrays.
"""

from __future__ import annotations

from typing import Any

from tinyxla import ops as families

bits: Any = families.bits
contraction: Any = families.contraction
convolution: Any = families.convolution
eigenvalues: Any = families.eigenvalues
ops: Any = families.elementwise
factorizations: Any = families.factorizations
fourier: Any = families.fourier
indexing_ops: Any = families.indexing
lapack: Any = families.lapack
linear_algebra: Any = families.linear_algebra
movement: Any = families.movement
reduction: Any = families.reduction
slices: Any = families.dynamic_slices
sorting_ops: Any = families.sorting
systems: Any = families.linear_solve
windows: Any = families.windows
