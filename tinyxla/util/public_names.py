"""What `dir()` of a module lists: public names only, so that completion offers nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

_HIDDEN = frozenset(("TYPE_CHECKING", "annotations"))


def listing(namespace: Mapping[str, Any], modules: Sequence[str] = ()) -> Callable[[], list[str]]:
    """The `__dir__` of a package that imports what it offers: its names without an underscore, and of modules, which
    are there as soon as something imports them, those that are named."""

    def names() -> list[str]:
        offered = {name for name, value in namespace.items() if not isinstance(value, ModuleType)}
        return sorted(name for name in {*offered, *modules} if not name.startswith("_") and name not in _HIDDEN)

    return names
