"""The NumPy-like API: NumPy's functions with JAX's types, on arrays that may be traced.

Types promote as in JAX, Python numbers give way, and results are 32-bit unless 64-bit types are asked for or
`config.enable_x64` is set. Everything here works on concrete arrays at once and inside `jit`, `grad` and `vmap`.
"""

from tinyxla.numpy import indexing, protocols
from tinyxla.numpy.arithmetic import *  # noqa: F403
from tinyxla.numpy.contractions import *  # noqa: F403
from tinyxla.numpy.creation import *  # noqa: F403
from tinyxla.numpy.manipulation import *  # noqa: F403
from tinyxla.numpy.reductions import *  # noqa: F403
from tinyxla.numpy.transcendental import *  # noqa: F403
from tinyxla.numpy.types import *  # noqa: F403
from tinyxla.tracing.array import Array as ndarray
from tinyxla.tracing.array import set_namespace
import sys
set_namespace(sys.modules[__name__])
protocols.set_functions(dict(globals()))
