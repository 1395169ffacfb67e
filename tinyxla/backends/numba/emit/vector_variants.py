"""Vector variants of functions that are not inlined.

An operation of a hundred instructions that is inlined many times makes a kernel long, and its compilation slow. So the
function is called, and names variants for vectors (LLVM Language Reference Manual, "vector-function-abi-variant") that
LLVM's loop vectorizer calls in its place. Such a variant is a loop over the elements, which LLVM vectorizes in turn.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tinyxla.backends.numba.emit.llvm_types import BYTES


def vector_lengths(register: str, widest: int, vector_bytes: int) -> list[int]:
    """The vector lengths that the vectorizer may choose in a loop with this type and another one of `widest` bytes."""
    return sorted({vector_bytes // BYTES[register], vector_bytes // max(BYTES[register], widest)})


def callable_function(
    name: str, definition: str, registers: Sequence[str], lengths: Sequence[int], fast_definition: str | None = None
) -> str:
    """The text of a function with vector variants, from the text `definition` of one of the same name that is inlined.

    `registers` are the types of its parameters; the result has the first one. `fast_definition` is the text of a
    version without slow paths whose second result says whether one would have been needed: a variant runs it over all
    elements, and then `definition` if any of them needs it.
    """
    inlined, fast = f"{name}.inlined", f"{name}.inlined.fast"
    parameters = ", ".join(f"{register} %x{k}" for k, register in enumerate(registers))
    variants = ",".join(f"_ZGV_LLVM_N{n}{'v' * len(registers)}_{name}({name}.{n})" for n in lengths)
    scalar = f"""\
define internal {registers[0]} @{name}({parameters}) noinline nounwind willreturn memory(none) \
"vector-function-abi-variant"="{variants}" {{
  %result = call {registers[0]} @{inlined}({parameters})
  ret {registers[0]} %result
}}"""
    text = _renamed(definition, inlined)
    if fast_definition and registers[0] == "double":  # LLVM unrolls slow paths of f64 instead of vectorizing them
        text = text.replace(" alwaysinline ", " noinline ", 1)
    texts = [text, *([_renamed(fast_definition, fast)] if fast_definition else []), scalar]
    texts += [_of_vectors(f"{name}.{n}", inlined, fast if fast_definition else None, registers, n) for n in lengths]
    return "\n".join(texts)


def _renamed(definition: str, name: str) -> str:
    return re.sub(r"@[\w.-]+\(", f"@{name}(", definition, count=1)


def _of_vectors(name: str, inlined: str, fast: str | None, registers: Sequence[str], n: int) -> str:
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
    if fast is not None:
        lines += ["  br label %fast", *_loop("fast", "entry", "decide", fast, registers, n, True), "decide:"]
        lines.append("  br i1 %fast.any, label %loop, label %end")
    else:
        lines.append("  br label %loop")
    lines += _loop("loop", "entry" if fast is None else "decide", "end", inlined, registers, n, False)
    return "\n".join([*lines, "end:", f"  %all = load {result}, ptr %out, align 64", f"  ret {result} %all", "}"])


def _loop(
    label: str, before: str, after: str, function: str, registers: Sequence[str], n: int, omits_slow_path: bool
) -> list[str]:
    """The loop over the elements of a variant."""
    type, i = registers[0], f"%{label}.i"
    lines = [f"{label}:", f"  {i} = phi i64 [ 0, %{before} ], [ {i}.next, %{label} ]"]
    if omits_slow_path:
        lines.append(f"  %{label}.before = phi i1 [ false, %{before} ], [ %{label}.any, %{label} ]")
    for k, register in enumerate(registers):
        lines.append(f"  %{label}.at{k} = getelementptr inbounds {register}, ptr %in{k}, i64 {i}")
        lines.append(f"  %{label}.y{k} = load {register}, ptr %{label}.at{k}")
    arguments = ", ".join(f"{register} %{label}.y{k}" for k, register in enumerate(registers))
    value = f"%{label}.result"
    if omits_slow_path:
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


def compiler_used(names: Sequence[str]) -> list[str]:
    """The global that keeps LLVM from deleting variants before the vectorizer calls them."""
    pointers = ", ".join(f"ptr @{name}" for name in names)
    value = f"appending global [{len(names)} x ptr] [{pointers}]"
    return [f'@llvm.compiler.used = {value}, section "llvm.metadata"'] if names else []
