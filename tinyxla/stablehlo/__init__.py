"""StableHLO programs: read, run, and written.

>>> from tinyxla.stablehlo import parse
>>> program = parse("func.func @main(%x: tensor<f32>) -> tensor<f32> { return %x : tensor<f32> }")
>>> program(2.0)
Array(2., dtype=float32)
"""

from tinyxla.stablehlo import bytecode as bytecode
from tinyxla.stablehlo.program import (
    Function as Function,
    Program as Program,
    parse as parse,
    register_composite as register_composite,
    register_custom_call as register_custom_call,
)

__all__ = ["Function", "Program", "bytecode", "parse", "register_composite", "register_custom_call"]


def __dir__() -> list[str]:
    return __all__
