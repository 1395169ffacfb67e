"""`jax._src.lib`: the modules of `jaxlib`."""

from jaxlib import xla_client as xla_client  # pyright: ignore[reportMissingTypeStubs]
