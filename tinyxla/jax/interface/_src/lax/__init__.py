"""`jax._src.lax`."""

from tinyxla import lax as _lax
from tinyxla.jax.interface import lax as _recorded

for _module in (_lax, _recorded):
    globals().update({name: x for name, x in vars(_module).items() if not name.startswith("_")})
