"""The operations as functions of arrays.

The ops and their helpers are typed for any values that obey their protocol, as their rules need it. Here they are
applied to arrays, and give arrays.
"""

from __future__ import annotations

from typing import Any

import tinyxla.ops.bits
import tinyxla.ops.contraction
import tinyxla.ops.convolution
import tinyxla.ops.elementwise
import tinyxla.ops.factorizations
import tinyxla.ops.fourier
import tinyxla.ops.indexing
import tinyxla.ops.linear_algebra
import tinyxla.ops.movement
import tinyxla.ops.reduction
import tinyxla.ops.sorting
import tinyxla.ops.systems
import tinyxla.ops.windows

bits: Any = tinyxla.ops.bits
contraction: Any = tinyxla.ops.contraction
convolution: Any = tinyxla.ops.convolution
ops: Any = tinyxla.ops.elementwise
factorizations: Any = tinyxla.ops.factorizations
fourier: Any = tinyxla.ops.fourier
indexing_ops: Any = tinyxla.ops.indexing
linear_algebra: Any = tinyxla.ops.linear_algebra
movement: Any = tinyxla.ops.movement
reduction: Any = tinyxla.ops.reduction
sorting_ops: Any = tinyxla.ops.sorting
systems: Any = tinyxla.ops.systems
windows: Any = tinyxla.ops.windows
