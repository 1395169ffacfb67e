"""Functions that a kernel calls instead of taking their instructions in, and that LLVM calls with whole vectors.

An operation of a hundred instructions that occurs many times in a kernel makes the kernel long, and compiling it takes
as much longer. So LLVM is told of versions of the function for vectors (LLVM Language Reference Manual, "Vector
Function ABI variant"), which its loop vectoriser calls in the place of the function. Such a version is a loop over the
elements, which the vectoriser turns into instructions on vectors.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tinyxla.loopir.ir.llvm_templates import BYTES


def vector_lengths(register: str, widest: int, vector_bytes: int) -> list[int]:
    """The numbers of elements at a time that a loop may take which has this type and another one of `widest` bytes."""
    return sorted({vector_bytes // BYTES[register], vector_bytes // max(BYTES[register], widest)})


def callable_function(
    name: str, definition: str, registers: Sequence[str], lengths: Sequence[int], usual: str | None = None
) -> str:
    """The text of a function that is not taken in, from the text of one of the same name that is.

    `registers` are the types of its parameters, the first of which its result has, too. `usual` is the text of one that
    leaves out what is rarely needed, and says as a second result whether it was: vectors go through that first, and
    through the other one element by element if need be.
    """
    whole, shorter = f"{name}.whole", f"{name}.shorter"
    parameters = ", ".join(f"{register} %x{k}" for k, register in enumerate(registers))
    variants = ",".join(f"_ZGV_LLVM_N{n}{'v' * len(registers)}_{name}({name}.{n})" for n in lengths)
    scalar = f"""\
define internal {registers[0]} @{name}({parameters}) noinline nounwind willreturn memory(none) \
"vector-function-abi-variant"="{variants}" {{
  %result = call {registers[0]} @{whole}({parameters})
  ret {registers[0]} %result
}}"""
    text = _renamed(definition, whole)
    if usual and registers[0] == "double":  # whose rare cases LLVM makes no vectors of, but a copy for each element
        text = text.replace(" alwaysinline ", " noinline ", 1)
    texts = [text, *([_renamed(usual, shorter)] if usual else []), scalar]
    texts += [_of_vectors(f"{name}.{n}", whole, shorter if usual else None, registers, n) for n in lengths]
    return "\n".join(texts)


def _renamed(definition: str, name: str) -> str:
    return re.sub(r"@[\w.-]+\(", f"@{name}(", definition, count=1)


def _of_vectors(name: str, whole: str, usual: str | None, registers: Sequence[str], n: int) -> str:
    result = f"<{n} x {registers[0]}>"
    types = [f"<{n} x {register}>" for register in registers]
    lines = [
        f"define internal {result} @{name}({', '.join(f'{type} %x{k}' for k, type in enumerate(types))}) noinline"
        ' nounwind willreturn memory(none) "prefer-vector-width"="512" {',
        "entry:",
        f"  %out = alloca {result}, align 64",
    ]
    for k, type in enumerate(types):
        lines += [f"  %in{k} = alloca {type}, align 64", f"  store {type} %x{k}, ptr %in{k}, align 64"]
    if usual is not None:
        lines += ["  br label %usual", *_loop("usual", "entry", "decide", usual, registers, n, True), "decide:"]
        lines.append("  br i1 %usual.any, label %loop, label %end")
    else:
        lines.append("  br label %loop")
    lines += _loop("loop", "entry" if usual is None else "decide", "end", whole, registers, n, False)
    return "\n".join([*lines, "end:", f"  %all = load {result}, ptr %out, align 64", f"  ret {result} %all", "}"])


def _loop(
    label: str, before: str, after: str, function: str, registers: Sequence[str], n: int, leaves_out: bool
) -> list[str]:
    """From the elements of the arguments to those of the result."""
    type, i = registers[0], f"%{label}.i"
    lines = [f"{label}:", f"  {i} = phi i64 [ 0, %{before} ], [ {i}.next, %{label} ]"]
    if leaves_out:
        lines.append(f"  %{label}.before = phi i1 [ false, %{before} ], [ %{label}.any, %{label} ]")
    for k, register in enumerate(registers):
        lines.append(f"  %{label}.at{k} = getelementptr inbounds {register}, ptr %in{k}, i64 {i}")
        lines.append(f"  %{label}.y{k} = load {register}, ptr %{label}.at{k}")
    arguments = ", ".join(f"{register} %{label}.y{k}" for k, register in enumerate(registers))
    value = f"%{label}.result"
    if leaves_out:
        lines += [
            f"  %{label}.both = call {{ {type}, i1 }} @{function}({arguments})",
            f"  {value} = extractvalue {{ {type}, i1 }} %{label}.both, 0",
            f"  %{label}.needed = extractvalue {{ {type}, i1 }} %{label}.both, 1",
            f"  %{label}.any = or i1 %{label}.before, %{label}.needed",
        ]
    else:
        lines.append(f"  {value} = call {type} @{function}({arguments})")
    return [
        *lines,
        f"  %{label}.to = getelementptr inbounds {type}, ptr %out, i64 {i}",
        f"  store {type} {value}, ptr %{label}.to",
        f"  {i}.next = add nuw nsw i64 {i}, 1",
        f"  %{label}.more = icmp ult i64 {i}.next, {n}",
        f"  br i1 %{label}.more, label %{label}, label %{after}",
    ]


def kept(names: Sequence[str]) -> list[str]:
    """What makes LLVM leave these functions as they are, though nobody calls them yet."""
    pointers = ", ".join(f"ptr @{name}" for name in names)
    value = f"appending global [{len(names)} x ptr] [{pointers}]"
    return [f'@llvm.compiler.used = {value}, section "llvm.metadata"'] if names else []
