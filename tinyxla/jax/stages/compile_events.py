"""Events of tracing and compiling as JAX tells them: messages of its loggers, and durations for the listeners of
`jax.monitoring`."""

from __future__ import annotations

import logging

from tinyxla.api import compile_log
from tinyxla.jax.errors.rows import in_jax
from tinyxla.jax.stages import monitoring

# JAX's loggers of messages by how these begin.
_LOGGERS = {
    "Compiling": "jax._src.interpreters.pxla",
    "Cache miss": "jax._src.interpreters.partial_eval",
}


def log(message: str, level: int = logging.WARNING) -> None:
    """A message of JAX's logger, with what JAX says."""
    name = next((name for start, name in _LOGGERS.items() if message.startswith(start)), "jax._src.dispatch")
    logging.getLogger(name).log(level, in_jax(message))


def _record(what: str, name: str, seconds: float) -> None:
    """Record the events of tracing or compiling a function. Lowering is a part of compiling, and takes no time."""
    durations = {"jaxpr_trace_duration": seconds}
    if what == "compile":
        durations = {"jaxpr_to_mlir_module_duration": 0.0, "backend_compile_duration": seconds}
        name = f"jit({name})"
    for event, duration in durations.items():
        monitoring.record_event_duration_secs(f"/jax/core/compile/{event}", duration, fun_name=name)


def tell_of_compiling() -> None:
    """Have the library tell of it so."""
    compile_log.work_done.observe(_record)
    compile_log.say_by(log, "jax._src.dispatch")
