"""Functions under the names of `jax.scipy`."""

from tinyxla.numpy.protocols import set_functions
from tinyxla.scipy import linalg, signal, special, stats

set_functions({f"special.{name}": function for name, function in vars(special).items()})

__all__ = ["linalg", "signal", "special", "stats"]
