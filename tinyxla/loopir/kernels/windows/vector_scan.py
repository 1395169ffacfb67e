"""A routine that folds all beginnings of a line, or all its ends, a vector at a time.

In a vector, each element is combined with the one 1, 2, 4, ... before it, so that it holds the fold of all up to it
(Hillis and Steele, Data parallel algorithms, 1986); what comes before the vector is combined with all. So only one
operation for each vector waits for the one before.
"""

from __future__ import annotations

import functools
from string import Template

from tinyxla.loopir.ir.llvm_templates import BYTES, REGISTER_TYPES, constant
from tinyxla.loopir.ir.routines import declare_llvm
from tinyxla.loopir.target import vector_bytes
from tinyxla.ops import reduction
from tinyxla.shapes import element_type

_INSTRUCTIONS = {"add": ("add", "fadd"), "multiply": ("mul", "fmul"), "and": ("and",), "or": ("or",), "xor": ("xor",)}
_INTRINSICS = {"maximum": ("smax", "umax", "maximum"), "minimum": ("smin", "umin", "minimum")}

_AHEAD = 1 << 18  # bytes from what is read to what will be: a piece that no other thread has begun with

_TEXT = Template("""
@neutral = global $vector $neutral  ; no constant, of which LLVM would make instructions that take longer

define void @scan(ptr %from, ptr %to, ptr %end, ptr %carry) {
entry:
  %start = ptrtoint ptr %to to i64
  %stop = ptrtoint ptr %end to i64
  %count = sdiv exact i64 (sub i64 %stop, %start), $each
  %whole = and i64 %count, -$n
  %empty = load $vector, ptr @neutral
  %one = insertelement $vector poison, $type (load $type, ptr %carry), i32 0
  %all = shufflevector $vector %one, $vector poison, <$n x i32> zeroinitializer
  br i1 (icmp ne i64 %whole, 0), label %vectors, label %rest
vectors:
  %k = phi i64 [ 0, %entry ], [ %next, %vectors ]
  %known = phi $vector [ %all, %entry ], [ %after, %vectors ]
  %next = add i64 %k, $n
  %place = $place
  %source = getelementptr $type, ptr %from, i64 %place
  call void @llvm.prefetch.p0(ptr %source[i8 $ahead], i32 0, i32 2, i32 1)
  %v0 = load $vector, ptr %source, align $each
$steps
  $result
  store $vector %result, ptr %to[$type %place], align $each
  %total = shufflevector $vector %v$log, $vector poison, <$n x i32> <$last>
  $after
  br i1 (icmp ult i64 %next, %whole), label %vectors, label %rest
rest:
  %past = phi $vector [ %all, %entry ], [ %after, %vectors ]
  %reached = extractelement $vector %past, i32 0
  br i1 (icmp ult i64 %whole, %count), label %element, label %done
element:
  %i = phi i64 [ %whole, %rest ], [ %following, %element ]
  %so_far = phi $type [ %reached, %rest ], [ %found, %element ]
  %following = add i64 %i, 1
  %at = $at
  %x = load $type, ptr %from[$type %at]
  $found
  store $type %found, ptr %to[$type %at]
  br i1 (icmp ult i64 %following, %count), label %element, label %done
done:
  %end_value = phi $type [ %reached, %rest ], [ %found, %element ]
  store $type %end_value, ptr %carry
  ret void
}
$declarations
declare void @llvm.prefetch.p0(ptr, i32, i32, i32)
""")


def supports(op: str | None, type: str) -> bool:
    """Whether there is a routine for the monoid of an operation, and elements of a type."""
    return op is not None and type != "pred" and type in REGISTER_TYPES


@functools.cache
def provide(op: str, type: str, backward: bool) -> str:
    """Let kernels call the routine; its name. It takes the addresses of the line, of its results, of the end of these,
    and of what comes before the line, in whose place it puts what comes after it."""
    name = "_".join(["scan", op, type, *["backward"] * backward])
    declare_llvm(name, _text(op, type, backward), "scan", is_optimized=True)
    return name


def _text(op: str, type: str, backward: bool) -> str:
    register = REGISTER_TYPES[type]
    each = BYTES[register]
    n = vector_bytes() // each
    vector = f"<{n} x {register}>"
    is_float, kind = type[0] == "f", "suf".index(type[0])
    neutral = constant(
        type,
        float(reduction.identity_element(op, element_type(type).dtype))
        if is_float
        else int(reduction.identity_element(op, element_type(type).dtype)),
    )
    suffix = f"v{n}{'f' if is_float else 'i'}{8 * each}", f"{'f' if is_float else 'i'}{8 * each}"

    def combined(result: str, x: str, y: str, of: str = vector) -> str:
        if op in _INSTRUCTIONS:
            return f"%{result} = {_INSTRUCTIONS[op][-1 if is_float else 0]} {of} {x}, {y}"
        flags = "nsz " if is_float else ""
        return (
            f"%{result} = call {flags}{of} @llvm.{_INTRINSICS[op][kind]}.{suffix[of == register]}({of} {x}, {of} {y})"
        )

    steps: list[str] = []
    step, log = 1, 0
    while step < n:
        lanes = [j + step if backward else j - step for j in range(n)]
        mask = ", ".join(f"i32 {j if 0 <= j < n else n + k}" for k, j in enumerate(lanes))
        steps += [
            f"  %moved{log} = shufflevector {vector} %v{log}, {vector} %empty, <{n} x i32> <{mask}>",
            f"  {combined(f'v{log + 1}', f'%moved{log}', f'%v{log}')}",
        ]
        step, log = 2 * step, log + 1
    return _TEXT.substitute(
        each=each,
        n=n,
        type=register,
        vector=vector,
        neutral=f"<{', '.join([f'{register} {neutral}'] * n)}>",
        ahead=-_AHEAD if backward else _AHEAD,
        place="sub i64 %count, %next" if backward else "add i64 %k, 0",
        at="sub i64 %count, %following" if backward else "add i64 %i, 0",
        steps="\n".join(steps),
        log=log,
        last=", ".join([f"i32 {0 if backward else n - 1}"] * n),
        result=combined("result", "%known", f"%v{log}"),
        after=combined("after", "%known", "%total"),
        found=combined("found", "%so_far", "%x", register),
        declarations=""
        if op in _INSTRUCTIONS
        else "\n".join(
            f"declare {of} @llvm.{_INTRINSICS[op][kind]}.{which}({of}, {of})"
            for of, which in zip((vector, register), suffix, strict=True)
        ),
    )
