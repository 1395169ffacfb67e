"""Functions under the names of `jax.scipy`."""

from tinyxla.numpy.protocols import set_functions
from tinyxla.scipy import (
    cluster as cluster,
    fft as fft,
    integrate as integrate,
    interpolate as interpolate,
    linalg as linalg,
    ndimage as ndimage,
    optimize as optimize,
    signal as signal,
    sparse as sparse,
    spatial as spatial,
    special as special,
    stats as stats,
)

__all__ = [
    "cluster",
    "fft",
    "integrate",
    "interpolate",
    "linalg",
    "ndimage",
    "optimize",
    "signal",
    "sparse",
    "spatial",
    "special",
    "stats",
]

set_functions({f"special.{name}": function for name, function in vars(special).items()})


def __dir__() -> list[str]:
    return __all__
