"""`jax._src.lax`."""

from tinyxla import lax as _lax
from tinyxla.jax.interface import lax as _recorded

_names = {name: getattr(_lax, name) for name in _lax.__all__}
globals().update(_names | {name: x for name, x in vars(_recorded).items() if not name.startswith("_")})
