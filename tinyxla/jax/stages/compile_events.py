"""Events of tracing and compiling as JAX tells them: messages of its loggers, and durations for the listeners of
`jax.monitoring`."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, TypeVar

from tinyxla.api import compile_log
from tinyxla.hlo import Computation
from tinyxla.jax.errors.rows import in_jax
from tinyxla.jax.stages import monitoring

T = TypeVar("T")

# JAX's loggers of messages by how these begin.
_LOGGERS = {
    "Compiling": "jax._src.interpreters.pxla",
    "Cache miss": "jax._src.interpreters.partial_eval",
}


def log(message: str) -> None:
    """A warning of JAX's logger for a message, with what JAX says."""
    name = next((name for start, name in _LOGGERS.items() if message.startswith(start)), "jax._src.dispatch")
    logging.getLogger(name).warning(in_jax(message))


def _timed(events: tuple[str, ...], name: str, work: Callable[[], T]) -> T:
    """The result of work, whose duration is that of the last event; the others are parts of it, and take no time."""
    start = time.perf_counter()
    made = work()
    seconds = time.perf_counter() - start
    for event in events:
        is_last = event == events[-1]
        monitoring.record_event_duration_secs(f"/jax/core/compile/{event}", seconds if is_last else 0.0, fun_name=name)
    return made


def tell_of_compiling() -> None:
    """Have the library tell of it so."""
    traced, compiled = compile_log.traced, compile_log.compiled
    compile_log.log = log

    def timed_trace(name: str, trace: Callable[[], Any], computation_of: Callable[[Any], Computation]) -> Any:
        return _timed(("jaxpr_trace_duration",), name, lambda: traced(name, trace, computation_of))

    def timed_compilation(computation: Computation, compile: Callable[[], Any]) -> Any:
        events = "jaxpr_to_mlir_module_duration", "backend_compile_duration"
        return _timed(events, f"jit({computation.name})", lambda: compiled(computation, compile))

    compile_log.traced, compile_log.compiled = timed_trace, timed_compilation
