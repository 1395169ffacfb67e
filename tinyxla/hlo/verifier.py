"""The rules of graphs, checked: between all passes in tests, and on graphs built by hand or read from text."""

from __future__ import annotations

from tinyxla.errors import TinyxlaError, VerificationError
from tinyxla.hlo.graph import Computation, Instruction, Module


def verify(module: Module) -> None:
    """Raise `VerificationError` unless every instruction follows its operands, all parameters are among the
    instructions, and every shape is the one that its op infers.

    >>> from tinyxla.hlo import verify
    >>> from tinyxla.text import parse_hlo
    >>> verify(parse_hlo("HloModule m ENTRY main { x = f32[2] parameter(0) ROOT y = f32[2] negate(x) }"))
    """
    for computation in module.computations():
        _verify_computation(computation)


def _verify_computation(computation: Computation) -> None:
    seen: set[Instruction] = set()
    for instruction in computation.instructions:
        where = f"{computation.name}: {instruction!r}"
        if instruction in seen:
            raise VerificationError(f"{where} is listed twice.")
        for operand in instruction.operands:
            if operand not in seen:
                raise VerificationError(
                    f"{where} comes before its operand {operand!r}, or that is of another computation."
                )
        if instruction.op.name == "parameter" and instruction not in computation.parameters:
            raise VerificationError(f"{where} is not among the parameters of {computation.name}.")
        _verify_shape(instruction, where)
        seen.add(instruction)
    for number, parameter in enumerate(computation.parameters):
        if parameter not in seen or parameter.op.name != "parameter":
            raise VerificationError(
                f"{computation.name}: parameter {number} is not a parameter among the instructions."
            )
        if parameter.attributes.parameter_number != number:
            raise VerificationError(
                f"{computation.name}: parameter {number} has the number {parameter.attributes.parameter_number}."
            )
    if computation.root not in seen:
        raise VerificationError(f"{computation.name}: the root {computation.root!r} is not among the instructions.")


def _verify_shape(instruction: Instruction, where: str) -> None:
    try:
        shape = instruction.op.shape(*(x.shape for x in instruction.operands), **instruction.attributes._asdict())
    except (TinyxlaError, TypeError) as error:  # a TypeError: too few or too many operands
        raise VerificationError(f"{where} is not a valid instruction: {error}") from error
    if shape != instruction.shape:
        raise VerificationError(f"{where} has a wrong shape: its operands give {shape}.")
