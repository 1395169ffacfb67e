"""Functions that a kernel calls instead of taking their instructions in, and that LLVM calls with whole vectors.

An operation of a hundred instructions that occurs many times in a kernel makes the kernel long, and compiling it takes
as much longer. So LLVM is told of versions of the function for vectors (LLVM Language Reference Manual, "Vector
Function ABI variant"), which its loop vectoriser calls in the place of the function. Such a version is a loop over the
elements, which the vectoriser turns into instructions on vectors.
"""

from __future__ import annotations

from collections.abc import Sequence

from tinyxla.backends.numba.llvm_operations import BYTES


def vector_lengths(register: str, widest: int, vector_bytes: int) -> list[int]:
    """The numbers of elements at a time that a loop may take which has this type and another one of `widest` bytes."""
    return sorted({vector_bytes // BYTES[register], vector_bytes // max(BYTES[register], widest)})


def callable_function(name: str, definition: str, registers: Sequence[str], lengths: Sequence[int]) -> str:
    """The text of a function that is not taken in, from the text of one of the same name that is.

    `registers` are the types of its parameters, the first of which its result has, too.
    """
    taken_in = f"{name}.inline"
    parameters = ", ".join(f"{register} %x{k}" for k, register in enumerate(registers))
    variants = ",".join(f"_ZGV_LLVM_N{n}{'v' * len(registers)}_{name}({name}.{n})" for n in lengths)
    scalar = f"""\
define internal {registers[0]} @{name}({parameters}) noinline nounwind willreturn memory(none) \
"vector-function-abi-variant"="{variants}" {{
  %result = call {registers[0]} @{taken_in}({parameters})
  ret {registers[0]} %result
}}"""
    inner = definition.replace(f"@{name}(", f"@{taken_in}(", 1)
    return "\n".join([inner, scalar, *(_of_vectors(name, taken_in, registers, n) for n in lengths)])


def _of_vectors(name: str, taken_in: str, registers: Sequence[str], n: int) -> str:
    result = f"<{n} x {registers[0]}>"
    types = [f"<{n} x {register}>" for register in registers]
    lines = [
        f"define internal {result} @{name}.{n}({', '.join(f'{type} %x{k}' for k, type in enumerate(types))}) noinline"
        ' nounwind willreturn memory(none) "prefer-vector-width"="512" {',
        "entry:",
        f"  %out = alloca {result}, align 64",
    ]
    for k, type in enumerate(types):
        lines += [f"  %in{k} = alloca {type}, align 64", f"  store {type} %x{k}, ptr %in{k}, align 64"]
    lines += ["  br label %loop", "loop:", "  %i = phi i64 [ 0, %entry ], [ %next, %loop ]"]
    for k, register in enumerate(registers):
        lines.append(f"  %at{k} = getelementptr inbounds {register}, ptr %in{k}, i64 %i")
        lines.append(f"  %y{k} = load {register}, ptr %at{k}")
    arguments = ", ".join(f"{register} %y{k}" for k, register in enumerate(registers))
    lines += [
        f"  %result = call {registers[0]} @{taken_in}({arguments})",
        f"  %to = getelementptr inbounds {registers[0]}, ptr %out, i64 %i",
        f"  store {registers[0]} %result, ptr %to",
        "  %next = add nuw nsw i64 %i, 1",
        f"  %more = icmp ult i64 %next, {n}",
        "  br i1 %more, label %loop, label %end",
        "end:",
        f"  %all = load {result}, ptr %out, align 64",
        f"  ret {result} %all",
        "}",
    ]
    return "\n".join(lines)


def kept(names: Sequence[str]) -> list[str]:
    """What makes LLVM leave these functions as they are, though nobody calls them yet."""
    pointers = ", ".join(f"ptr @{name}" for name in names)
    value = f"appending global [{len(names)} x ptr] [{pointers}]"
    return [f'@llvm.compiler.used = {value}, section "llvm.metadata"'] if names else []
