"""`jax._src.traceback_util`."""

from tinyxla.jax.errors.filtered_tracebacks import UnfilteredStackTrace as UnfilteredStackTrace
from tinyxla.util.tracebacks import (
    boundary as api_boundary,
    hidden_files as _exclude_paths,
    hide_file as register_exclusion,
    is_own as _is_own,
)


def include_frame(frame):
    """Whether tracebacks show a frame."""
    return not _is_own(frame)


__all__ = ["UnfilteredStackTrace", "api_boundary", "include_frame", "register_exclusion"]
