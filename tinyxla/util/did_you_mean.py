""" "Did you mean": names like one that does not exist, and where else it does."""

from __future__ import annotations

import difflib
import importlib
import inspect
import re
from collections.abc import Callable, Iterable
from typing import Any

from tinyxla.errors import TracerError, UnknownNameError
from tinyxla.util.tracebacks import raw_traceback, set_explainer

# Modules whose names may be looked for in another one, the most likely first.
_PUBLIC = (
    "numpy nn scipy.special lax random numpy.linalg numpy.fft scipy.linalg scipy.signal scipy.stats scipy.ndimage "
    "image tree_util nn.initializers debug"
).split()


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Did you mean ...?, after a space, if a name is like one of the others; else nothing."""
    known = {other.lower().replace("_", ""): other for other in names}
    plain = name.lower().replace("_", "")
    found = [plain] if plain in known else difflib.get_close_matches(plain, known, 1, 0.66)
    return f" Did you mean {known[found[0]]!r}?" if found else ""


def elsewhere(name: str, module: str) -> str:
    """The public name of that spelling in another module, if there is one; else nothing."""
    for other in _PUBLIC:
        path = f"tinyxla.{other}"
        if path != module and name in getattr(importlib.import_module(path), "__dict__", {}):
            return f" There is {path}.{name}."
    return ""


def missing(module: str) -> Callable[[str], Any]:
    """A module's `__getattr__`: an error for a name that it does not have, which names those like it."""

    def __getattr__(name: str) -> Any:
        if name.startswith("_"):  # which Python and its tools look for
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        raise UnknownNameError(f"The module {module} has no {name!r}.", lambda: hint(name, module))

    return __getattr__


def hint(name: str, module: str) -> str:
    """What may be meant by a name that a module does not have."""
    names = [other for other in vars(importlib.import_module(module)) if not other.startswith("_")]
    return elsewhere(name, module) or did_you_mean(name, names)


# --- errors of Python and NumPy ---------------------------------------------------------------------------------------

_UNEXPECTED = re.compile(r"(?:\w+\.)*(\w+)\(\) got an unexpected keyword argument '(\w+)'$")
_OTHER_KEYWORDS = {"dim": "axis", "dims": "axis", "axes": "axis", "keepdim": "keepdims"}


def explain(error: BaseException) -> None:
    """Say more in an error of Python's or NumPy's that arose in a call of the library or in a traced function."""
    text = str(error.args[0]) if error.args else ""
    cause = error.__cause__
    if type(error) is ValueError and isinstance(cause, TracerError):
        if text.startswith("setting an array element"):  # NumPy's words for `a[0] = x`, which hide the reason
            error.args = (str(cause),)
            error.__cause__ = None
    elif type(error) is TypeError and (found := _UNEXPECTED.fullmatch(text)):
        error.args = (f"{text}.{_keyword_hint(found[1], found[2], _namespace_of(error))}",)
    elif type(error) is AttributeError and text.endswith("has no attribute " + repr(error.name)):
        kind, wanted = type(error.obj), str(error.name)
        if kind.__module__.startswith("tinyxla.") and not wanted.startswith("_"):
            names = [name for name in dir(kind) if not name.startswith("_")]
            error.args = (f"{text}.{elsewhere(wanted, '') or did_you_mean(wanted, names)}",)


def _namespace_of(error: BaseException) -> dict[str, Any]:
    """The global names where the error arose."""
    trace = raw_traceback(error)
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace.tb_frame.f_globals if trace is not None else {}


def _keyword_hint(function: str, keyword: str, namespace: dict[str, Any]) -> str:
    """The keyword that may be meant, if the function of that name is one of the library."""
    if not str(getattr(namespace.get(function), "__module__", "tinyxla")).startswith("tinyxla"):
        return ""
    for path in ("tinyxla", *(f"tinyxla.{other}" for other in _PUBLIC)):
        found = vars(importlib.import_module(path)).get(function)
        if callable(found) and not isinstance(found, type):
            names = list(inspect.signature(found).parameters)
            other = _OTHER_KEYWORDS.get(keyword)
            return f" Did you mean {other!r}?" if other in names else did_you_mean(keyword, names)
    return ""


set_explainer(explain)
