"""`jax.extend.source_info_util`."""

from tinyxla.jax.tracing.source_info import (
    SourceInfo as SourceInfo,
    current as current,
    current_name_stack as current_name_stack,
    summarize as summarize,
)
from tinyxla.util.tracebacks import hide_file as register_exclusion

__all__ = ["SourceInfo", "current", "current_name_stack", "register_exclusion", "summarize"]
