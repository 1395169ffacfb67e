"""Inlining of called computations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinyxla.compiler.rewriter import Rewriter, rewrite, to_fixed_point
from tinyxla.hlo import Computation, Instruction, Literal, map_computations
from tinyxla.ops import calls, elementwise, movement
from tinyxla.ops.numerics.arithmetic import evaluator
from tinyxla.shapes import Shape, TupleShape
from tinyxla.text.op_names import function_name
from tinyxla.util.name_stacks import extended


@to_fixed_point
def inline_calls(computation: Computation) -> Computation:
    """The computation with calls replaced by the instructions of their computations, in loops and branches too;
    elements of tuples are forwarded. Scalars of constants are folded on the way, so that calls with constant arguments,
    of which there may be many, need not be inlined."""
    return _inlined(computation, inline_calls, lambda x: False)


@to_fixed_point
def inline_unpartitioned_calls(computation: Computation) -> Computation:
    """The same but for calls that say themselves how they are partitioned, which stay."""
    return _inlined(computation, inline_unpartitioned_calls, lambda x: x.attributes.partitioning is not None)


def _inlined(
    computation: Computation, inner_pass: Callable[[Computation], Computation], stays: Callable[[Instruction], bool]
) -> Computation:
    if "call" not in computation.all_opcodes and not computation.opcodes.issuperset(("tuple", "get-tuple-element")):
        return computation

    def visit(rewriter: Rewriter, x: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if operands and all(o.op is movement.constant for o in operands):
            folded = _folded_scalars(rewriter, x, operands)
            if folded is not None:
                return folded
        if x.op.name == "call":
            if stays(x):
                return None
            called = x.attributes.to_apply
            scope = rewriter.scope and extended(rewriter.scope, f"jit({function_name(called)})")
            return rewriter.splice(called, operands, rewriter.visit, scope, is_program_code=True)
        if x.op is calls.get_tuple_element and operands[0].op is calls.tuple_:
            return operands[0].operands[x.attributes.index]
        if any("call" in inner.all_opcodes for inner in x.computations()):
            return rewriter.emit(x.op, *operands, **map_computations(x.attributes._asdict(), inner_pass))
        return None

    return rewrite(computation, visit)


def _folded_scalars(rewriter: Rewriter, x: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
    """Constant folding of an instruction or a call whose operands are constants, if all that it computes is scalars."""
    with np.errstate(all="ignore"):
        found = _scalars(x, [o.attributes.literal.value for o in operands])
    if found is None:
        return None
    constants = [rewriter.emit(movement.constant, literal=Literal(np.asarray(value))) for value in found]
    return rewriter.emit(calls.tuple_, *constants) if isinstance(x.shape, TupleShape) else constants[0]


def _scalars(x: Instruction, operands: Sequence[Any]) -> list[Any] | None:
    """The results of an instruction, or of all that a call computes; None if these are no scalars."""
    if x.op.name == "call":
        computation = x.attributes.to_apply
        values: dict[Instruction, Any] = {p: [value] for p, value in zip(computation.parameters, operands, strict=True)}
        for y in computation.instructions:
            if y not in values:
                inputs = [value for o in y.operands for value in values[o]]
                found = inputs if y.op is calls.tuple_ and len(inputs) == len(y.operands) else _scalars(y, inputs)
                if found is None:
                    return None
                values[y] = found
        return values[computation.root]
    if x.op is calls.get_tuple_element and isinstance(x.shape, Shape):
        return [operands[x.attributes.index]]
    if x.op.name not in _OF_SCALARS or not isinstance(x.shape, Shape) or x.shape.rank:
        return None
    return [evaluator(x)(*operands)]


_OF_SCALARS = elementwise.NAMES | {"bitcast-convert", "broadcast", "constant", "reshape"}
