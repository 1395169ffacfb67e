"""`jax._src.lib`: the modules of `jaxlib`, which are this library's under the hook."""

import importlib as _importlib

xla_client = _importlib.import_module("jaxlib.xla_client")
