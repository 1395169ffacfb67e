"""The stages of compiling a function ahead of its calls: `jit(f).trace(x).lower().compile()`."""

from tinyxla.ahead_of_time import Compiled, Lowered, Traced
from tinyxla.api import ShapeDtypeStruct as ArgInfo
from tinyxla.compilation import Jitted as Wrapped

__all__ = ["ArgInfo", "Compiled", "Lowered", "Traced", "Wrapped"]
