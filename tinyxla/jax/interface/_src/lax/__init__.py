"""`jax._src.lax`."""

from types import ModuleType as _ModuleType

from tinyxla import lax as _lax
from tinyxla.jax.interface import lax as _recorded

for _module in (_lax, _recorded):
    # Modules in it are found by their own names: `linalg` here has primitives, too.
    _names = {name: x for name, x in vars(_module).items() if not (name.startswith("_") or isinstance(x, _ModuleType))}
    globals().update(_names)
