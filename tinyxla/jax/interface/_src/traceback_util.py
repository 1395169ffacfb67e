"""`jax._src.traceback_util`."""

from tinyxla.tracebacks import boundary as api_boundary, hide_file as register_exclusion

__all__ = ["api_boundary", "register_exclusion"]
