"""Properties of the loop IR's operations, against what the LLVM printer emits."""

from __future__ import annotations

from typing import Any

import pytest

from tinyxla.backends.numba.emit import operations, printer
from tinyxla.loopir.ir.loop_ir import Compute, Value
from tinyxla.loopir.ir.operations import has_slow_path, is_function

TYPES = {
    "f32 f64 f16 bf16": operations._FLOAT,  # pyright: ignore[reportPrivateUsage]
    "s8 s16 s32 s64 u8 u16 u32 u64": operations._INTEGER,  # pyright: ignore[reportPrivateUsage]
    "c64 c128": operations._COMPLEX,  # pyright: ignore[reportPrivateUsage]
    "pred": operations._PRED,  # pyright: ignore[reportPrivateUsage]
}
CASES = [(type, op) for types, table in TYPES.items() for type in types.split() for op in table]


def emitted(x: Compute) -> Any:
    """The function of an operation with its slow path left out; None for operands that it does not take."""
    types = tuple(o.type for o in x.operands)
    try:
        return printer._function(x.op, types, x.result.type, x.attributes, "omit")  # pyright: ignore[reportPrivateUsage]
    except (TypeError, AttributeError, IndexError, KeyError):  # another number of operands, or attributes that it needs
        return None


@pytest.mark.parametrize(("type", "op"), CASES, ids="-".join)
def test_has_slow_path_agrees_with_printer(type: str, op: str) -> None:
    for count in (1, 2, 3):
        x = Compute(Value(type, "y"), op, tuple(Value(type, f"x{k}") for k in range(count)))
        function = emitted(x)
        if function is not None and is_function(x):
            assert has_slow_path(x) == function.omits_slow_path, count
