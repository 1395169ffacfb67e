"""Events that programs record, and functions that are called for them: by name, duration, time span or scalar value."""

from __future__ import annotations

from tinyxla.util.observers import Event

# Observers are called as `observer(name, *values, **tags)`.
_events: Event[...] = Event()
_durations: Event[...] = Event()
_spans: Event[...] = Event()
_scalars: Event[...] = Event()

record_event = _events.notify
register_event_listener = _events.observe
unregister_event_listener = _events.unobserve
record_event_duration_secs = _durations.notify
register_event_duration_secs_listener = _durations.observe
unregister_event_duration_listener = _durations.unobserve
record_event_time_span = _spans.notify
register_event_time_span_listener = _spans.observe
unregister_event_time_span_listener = _spans.unobserve
record_scalar = _scalars.notify
register_scalar_listener = _scalars.observe
unregister_scalar_listener = _scalars.unobserve


def clear_event_listeners() -> None:
    """Have no function called any more."""
    for event in (_events, _durations, _spans, _scalars):
        event.observers.clear()
