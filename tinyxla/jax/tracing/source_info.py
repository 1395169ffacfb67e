"""Where the equations of jaxprs come from: `eqn.source_info` and `jax.extend.source_info_util`."""

from __future__ import annotations

from tinyxla.errors import SourceLine, user_line
from tinyxla.tracing.core import state
from tinyxla.util.name_stacks import shown


class SourceInfo(SourceLine):
    """A line of the user's program, and the names of the scopes around it."""

    __slots__ = ()
    traceback = None

    @property
    def name_stack(self) -> str:
        """The names of the `named_scope`s and transformations, joined by "/"."""
        return shown(self.scope)


_NOWHERE = SourceInfo("", 0, "")


def source_info(source: SourceLine | None) -> SourceInfo:
    """What an equation says of the line that an instruction comes from."""
    return _NOWHERE if source is None else SourceInfo(*source)


def current() -> SourceInfo:
    """The user's line that is running, and the scopes that are open."""
    return source_info(user_line(state.scope))


def current_name_stack() -> str:
    """The names of the `named_scope`s and transformations that are open, joined by "/"."""
    return shown(state.scope)


def summarize(source_info: SourceLine) -> str:
    """The line of a `source_info`, as text."""
    return f"{source_info.file}:{source_info.line} ({source_info.function})" if source_info.file else "unknown"
