"""The options and the server of `jax.profiler`: traces are files, so both change nothing."""

from __future__ import annotations

from typing import Any

from tinyxla.errors import ProfilerError, warn


class ProfileOptions:
    """Options of `jax.profiler.start_trace`, which change nothing here.

    >>> options = ProfileOptions()
    >>> options.python_tracer_level = 0
    """

    def __init__(self) -> None:
        self.advanced_configuration: dict[str, Any] = {}
        self.duration_ms = 0
        self.enable_hlo_proto = True
        self.host_tracer_level = 2
        self.include_dataset_ops = True
        self.python_tracer_level = 1
        self.raise_error_on_start_failure = False
        self.repository_path = self.session_id = ""
        self.start_timestamp_ns = 0


class ProfilerServer:
    """The result of `start_server`: no server, since nothing listens at its port."""

    def __init__(self, port: int) -> None:
        self.port = port


_servers: list[ProfilerServer] = []


def start_server(port: int, requires_backend: bool = True) -> ProfilerServer:
    """Say that there is no server; a program that starts one runs without it.

    Args:
        port: at which a client would ask.
        requires_backend: changes nothing.

    Returns:
        An object for `stop_server` to forget.

    Raises:
        ProfilerError: it was called before.
    """
    if _servers:
        raise ProfilerError(
            f"start_server: Only one profiler server can be active at a time. One is, of port {_servers[0].port}; "
            "call stop_server first."
        )
    warn(
        f"jax.profiler.start_server has no effect here: nothing listens at port {port}. Write a trace into a file by "
        "jax.profiler.start_trace and stop_trace."
    )
    _servers.append(ProfilerServer(port))
    return _servers[0]


def stop_server() -> None:
    """Undo `start_server`.

    Raises:
        ProfilerError: it was not called.
    """
    if not _servers:
        raise ProfilerError("stop_server: No active profiler server. Call start_server first.")
    _servers.clear()
