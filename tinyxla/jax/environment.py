"""`jax.print_environment_info`: versions as reports of errors to JAX have them."""

from __future__ import annotations

import numpy as np

from tinyxla.api.sharding.devices import print_environment_info as own_info
from tinyxla.jax.finder import JAX_VERSION


def print_environment_info(return_string: bool = False) -> str | None:
    """Print versions, and the machine: first JAX's interface that is followed, then this library."""
    versions = [f"jax:    {JAX_VERSION}", f"jaxlib: {JAX_VERSION}", f"numpy:  {np.__version__}"]
    text = "\n".join([*versions, own_info(return_string=True) or ""])
    if return_string:
        return text
    print(text)
    return None
