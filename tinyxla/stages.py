"""The stages of compiling a function ahead of its calls: `jit(f).trace(x).lower().compile()`."""

from tinyxla.api import ShapeDtypeStruct as ArgInfo
from tinyxla.api.aot import Compiled, Lowered, Traced
from tinyxla.api.jit import Jitted as Wrapped

__all__ = ["ArgInfo", "Compiled", "Lowered", "Traced", "Wrapped"]


def __dir__() -> list[str]:
    return __all__
