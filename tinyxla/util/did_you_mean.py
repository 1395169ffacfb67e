""" "Did you mean": names like one that does not exist, and where else it does."""

from __future__ import annotations

import difflib
import importlib
import inspect
import itertools
import linecache
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
        raise UnknownNameError(f"The module {module} has no {name!r}.", ending=lambda: hint(name, module))

    return __getattr__


def hint(name: str, module: str) -> str:
    """What may be meant by a name that a module does not have."""
    names = [other for other in vars(importlib.import_module(module)) if not other.startswith("_")]
    return elsewhere(name, module) or did_you_mean(name, names)


# --- errors of Python and NumPy ---------------------------------------------------------------------------------------

_UNEXPECTED = re.compile(r"(?:\w+\.)*(\w+)\(\) got an unexpected keyword argument '(\w+)'$")
_OTHER_KEYWORDS = {"dim": "axis", "dims": "axis", "axes": "axis", "keepdim": "keepdims"}


# What other libraries say of an array that they do not take, and what to give them.
_NOT_TAKEN: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(r"a bytes-like object is required, not 'Array'$"),
        " An array of tinyxla shows its memory as NumPy's: give numpy.asarray(x), or x.tobytes() for a copy.",
    ),
    (
        re.compile(r"unsupported type 'Array' for the `\w+` parameter$|literal for value of type ConcreteArray"),
        " Give it numpy.asarray(x), which copies nothing; an array of bfloat16 or 8-bit floats by "
        "x.astype('float32') first.",
    ),
    (re.compile(r"Object of type Array is not JSON serializable$"), " Give x.tolist(), or x.item() for one number."),
)


def explain(error: BaseException) -> None:
    """Say more in an error of Python's or NumPy's that arose in a call of the library or in a traced function."""
    text = str(error.args[0]) if error.args else ""
    cause = error.__cause__
    if type(error) is ValueError and isinstance(cause, TracerError):
        if text.startswith("setting an array element"):  # NumPy's words for `a[0] = x`, which hide the reason
            error.args = (str(cause),)
            error.__cause__ = None
    elif type(error) is TypeError and (found := _UNEXPECTED.fullmatch(text)):
        function = _callee(error)
        if str(getattr(function, "__module__", "")).startswith("tinyxla"):
            error.args = (f"{text}.{_keyword_meant(function, found[2])}",)
    elif type(error) is TypeError and (advice := next((a for p, a in _NOT_TAKEN if p.search(text)), "")):
        error.args = (f"{text}{'' if text.endswith('.') else '.'}{advice}",)
    elif type(error) is AttributeError and text.endswith("has no attribute " + repr(error.name)):
        kind, wanted = type(error.obj), str(error.name)
        if any(base.__module__.startswith("tinyxla.") for base in kind.__mro__) and not wanted.startswith("_"):
            names = [name for name in dir(kind) if not name.startswith("_")]
            error.args = (f"{text}.{elsewhere(wanted, '') or did_you_mean(wanted, names)}",)


_CALL = re.compile(r"([A-Za-z_]\w*(?:\s*\.\s*[A-Za-z_]\w*)*)\s*\(")


def _callee(error: BaseException) -> Any:
    """The function whose call an error arose in, by the call's source line; None where that is not known."""
    trace = raw_traceback(error)
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return None
    frame, code = trace.tb_frame, trace.tb_frame.f_code
    positions = next(itertools.islice(code.co_positions(), trace.tb_lasti // 2, None), (None,) * 4)
    number, _, start, _ = positions
    if number is None or start is None:
        return None
    line = linecache.getline(code.co_filename, number, frame.f_globals).encode()
    found = _CALL.match(line[start:].decode(errors="replace"))
    if found is None:
        return None
    first, *rest = (part.strip() for part in found[1].split("."))
    value = frame.f_locals.get(first, frame.f_globals.get(first))
    for name in rest:
        value = getattr(value, name, None)
    return value


def _keyword_meant(function: Any, keyword: str) -> str:
    """The keyword of a function that may be meant."""
    try:
        names = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return ""
    other = _OTHER_KEYWORDS.get(keyword)
    return f" Did you mean {other!r}?" if other in names else did_you_mean(keyword, names)


set_explainer(explain)
