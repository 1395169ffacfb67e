"""Functions under the names of `jax.scipy`."""

from tinyxla.numpy.protocols import set_functions
from tinyxla.scipy import linalg, special

set_functions({f"special.{name}": function for name, function in vars(special).items()})

__all__ = ["linalg", "special"]
