"""What functions close over."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from types import FunctionType, MethodType, ModuleType
from typing import Any

from tinyxla.tracing.core import Interpreted

_MAX_LOOKED_AT = 1024  # objects


def reaches_tracer(functions: Iterable[Any], level: int) -> bool:
    """Whether functions refer to an array that is traced at this level or around it: in closures, defaults, bound
    arguments, attributes and containers."""
    seen: set[int] = set()
    waiting = list(functions)
    while waiting and len(seen) < _MAX_LOOKED_AT:
        x = waiting.pop()
        if isinstance(x, Interpreted):
            if x.owner.active and 0 <= x.owner.level <= level:
                return True
        elif id(x) not in seen:
            seen.add(id(x))
            waiting.extend(_referred(x))
    return False


def _referred(x: Any) -> Iterable[Any]:
    if isinstance(x, FunctionType):
        cells = [cell.cell_contents for cell in x.__closure__ or () if _is_filled(cell)]
        return [*cells, *(x.__defaults__ or ()), *(x.__kwdefaults__ or {}).values()]
    if isinstance(x, MethodType):
        return x.__self__, x.__func__
    if isinstance(x, partial):
        return x.func, *x.args, *x.keywords.values()
    if isinstance(x, (tuple, list, set, frozenset)):
        return x
    if isinstance(x, dict):
        return x.values()
    try:
        return () if isinstance(x, (type, ModuleType)) else object.__getattribute__(x, "__dict__").values()
    except AttributeError:  # it has none; `getattr` might run code of the user's
        return ()


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:  # nothing has been assigned yet
        return False
