"""`jax.scipy.special`: that of tinyxla, whose functions are primitives in jaxprs."""

from tinyxla.jax.jaxprs.primitives.recorded_functions import twins as _twins
from tinyxla.jax.numerics.legendre import lpmn_values as lpmn_values
from tinyxla.scipy import special as _special

_NAMES = {
    **{name: name for name in "digamma erfc".split()},
    "gammainc": "igamma",
    "gammaincc": "igammac",
    "gammaln": "lgamma",
    "i0e": "bessel_i0e",
    "i1e": "bessel_i1e",
}
globals().update(_twins(_special, _NAMES))
