"""The scalar math of kernels: every function that an element-wise operation needs, in one place.

All are branch-free and written against the `Scalar` protocol alone, so they vectorise. `exponentials`, `powers`,
`trigonometry`, `error_functions` and `integers` hold them by kind; those of complex numbers are in `complex_numbers`.
How accurate they are is in `accuracy`.
"""

from __future__ import annotations

from tinyxla.scalar_math.error_functions import *
from tinyxla.scalar_math.exponentials import *
from tinyxla.scalar_math.integers import *
from tinyxla.scalar_math.powers import *
from tinyxla.scalar_math.trigonometry import *
