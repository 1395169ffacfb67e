"""Events that programs record, and functions that are called for them: by name, duration, time span or scalar value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Listener = Callable[..., Any]


class _Kind:
    """One kind of event and its listeners."""

    def __init__(self) -> None:
        self.listeners: list[Listener] = []

    def record(self, event: str, *values: Any, **tags: Any) -> None:
        """Call the listeners: `listener(event, *values, **tags)`."""
        for listener in list(self.listeners):
            listener(event, *values, **tags)

    def register(self, listener: Listener) -> None:
        """Have a function called for each event of this kind."""
        self.listeners.append(listener)

    def unregister(self, listener: Listener) -> None:
        """Have it called no more."""
        self.listeners.remove(listener)


_events, _durations, _spans, _scalars = _Kind(), _Kind(), _Kind(), _Kind()

record_event = _events.record
register_event_listener = _events.register
unregister_event_listener = _events.unregister
record_event_duration_secs = _durations.record
register_event_duration_secs_listener = _durations.register
unregister_event_duration_listener = _durations.unregister
record_event_time_span = _spans.record
register_event_time_span_listener = _spans.register
unregister_event_time_span_listener = _spans.unregister
record_scalar = _scalars.record
register_scalar_listener = _scalars.register
unregister_scalar_listener = _scalars.unregister


def clear_event_listeners() -> None:
    """Have no function called any more."""
    for kind in (_events, _durations, _spans, _scalars):
        kind.listeners.clear()
