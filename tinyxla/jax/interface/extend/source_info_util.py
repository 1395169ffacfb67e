"""`jax.extend.source_info_util`."""

from tinyxla.errors import user_line as current
from tinyxla.util.tracebacks import hide_file as register_exclusion

__all__ = ["current", "register_exclusion"]
