"""In-register prefix scan of contiguous lines, in either direction, as LLVM text.

In a vector, each element is combined with the element 1, 2, 4, ... before it, so that it holds the prefix within the
vector (Hillis and Steele, Data parallel algorithms, CACM 29 (1986)); then all are combined with the prefix before the
vector. So the dependence between vectors is one operation.
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

_PREFETCH_BYTES = 1 << 18  # prefetch distance in bytes: far enough to be in no other thread's part

_SCAN = Template("""
@identity = global $vector $identity  ; not a constant, for suffix_name LLVM would select slower shuffles

define void @scan(ptr %from, ptr %to, ptr %end, ptr %carry) {
entry:
  %start = ptrtoint ptr %to to i64
  %stop = ptrtoint ptr %end to i64
  %count = sdiv exact i64 (sub i64 %stop, %start), $element_bytes
  %full_count = and i64 %count, -$n
  %identity_vector = load $vector, ptr @identity
  %first_lane = insertelement $vector poison, $type (load $type, ptr %carry), i32 0
  %broadcast = shufflevector $vector %first_lane, $vector poison, <$n x i32> zeroinitializer
  br i1 (icmp ne i64 %full_count, 0), label %vectors, label %remainder
vectors:
  %k = phi i64 [ 0, %entry ], [ %next, %vectors ]
  %prefix = phi $vector [ %broadcast, %entry ], [ %prefix_next, %vectors ]
  %next = add i64 %k, $n
  %offset = $offset
  %source = getelementptr $type, ptr %from, i64 %offset
  call void @llvm.prefetch.p0(ptr %source[i8 $prefetch_bytes], i32 0, i32 2, i32 1)
  %v0 = load $vector, ptr %source, align $element_bytes
$steps
  $result
  store $vector %result, ptr %to[$type %offset], align $element_bytes
  %total = shufflevector $vector %v$log2_step, $vector poison, <$n x i32> <$last>
  $prefix_next
  br i1 (icmp ult i64 %next, %full_count), label %vectors, label %remainder
remainder:
  %final_prefix = phi $vector [ %broadcast, %entry ], [ %prefix_next, %vectors ]
  %prefix_value = extractelement $vector %final_prefix, i32 0
  br i1 (icmp ult i64 %full_count, %count), label %element, label %done
element:
  %i = phi i64 [ %full_count, %remainder ], [ %i_next, %element ]
  %running = phi $type [ %prefix_value, %remainder ], [ %sum, %element ]
  %i_next = add i64 %i, 1
  %at = $at
  %x = load $type, ptr %from[$type %at]
  $sum
  store $type %sum, ptr %to[$type %at]
  br i1 (icmp ult i64 %i_next, %count), label %element, label %done
done:
  %end_value = phi $type [ %prefix_value, %remainder ], [ %sum, %element ]
  store $type %end_value, ptr %carry
  ret void
}
$declarations
declare void @llvm.prefetch.p0(ptr, i32, i32, i32)
""")


def supports(op: str | None, type: str) -> bool:
    """Whether there is a scan of this monoid and element type."""
    return op is not None and type != "pred" and type in REGISTER_TYPES


@functools.cache
def declare_scan(op: str, type: str, backward: bool) -> str:
    """Declare `scan(from, to, end of to, carry)` and return its symbol. `carry` holds the prefix before the line, and
    afterwards the prefix of the whole line."""
    name = "_".join(["scan", op, type, *["backward"] * backward])
    declare_llvm(name, _scan_text(op, type, backward), "scan", is_optimized=True)
    return name


def _scan_text(op: str, type: str, backward: bool) -> str:
    """LLVM text of the scan."""
    register = REGISTER_TYPES[type]
    element_bytes = BYTES[register]
    n = vector_bytes() // element_bytes
    vector = f"<{n} x {register}>"
    is_float, sign_index = type[0] == "f", "suf".index(type[0])
    identity = constant(
        type,
        float(reduction.identity_element(op, element_type(type).dtype))
        if is_float
        else int(reduction.identity_element(op, element_type(type).dtype)),
    )
    suffix = f"v{n}{'f' if is_float else 'i'}{8 * element_bytes}", f"{'f' if is_float else 'i'}{8 * element_bytes}"

    def combine(result: str, x: str, y: str, operand_type: str = vector) -> str:
        if op in _INSTRUCTIONS:
            return f"%{result} = {_INSTRUCTIONS[op][-1 if is_float else 0]} {operand_type} {x}, {y}"
        flags = "nsz " if is_float else ""
        intrinsic = f"@llvm.{_INTRINSICS[op][sign_index]}.{suffix[operand_type == register]}"
        return f"%{result} = call {flags}{operand_type} {intrinsic}({operand_type} {x}, {operand_type} {y})"

    steps: list[str] = []
    step, log = 1, 0
    while step < n:
        lanes = [j + step if backward else j - step for j in range(n)]
        mask = ", ".join(f"i32 {j if 0 <= j < n else n + k}" for k, j in enumerate(lanes))
        steps += [
            f"  %shifted{log} = shufflevector {vector} %v{log}, {vector} %identity_vector, <{n} x i32> <{mask}>",
            f"  {combine(f'v{log + 1}', f'%shifted{log}', f'%v{log}')}",
        ]
        step, log = 2 * step, log + 1
    return _SCAN.substitute(
        element_bytes=element_bytes,
        n=n,
        type=register,
        vector=vector,
        identity=f"<{', '.join([f'{register} {identity}'] * n)}>",
        prefetch_bytes=-_PREFETCH_BYTES if backward else _PREFETCH_BYTES,
        offset="sub i64 %count, %next" if backward else "add i64 %k, 0",
        at="sub i64 %count, %i_next" if backward else "add i64 %i, 0",
        steps="\n".join(steps),
        log2_step=log,
        last=", ".join([f"i32 {0 if backward else n - 1}"] * n),
        result=combine("result", "%prefix", f"%v{log}"),
        prefix_next=combine("prefix_next", "%prefix", "%total"),
        sum=combine("sum", "%running", "%x", register),
        declarations=""
        if op in _INSTRUCTIONS
        else "\n".join(
            f"declare {operand_type} @llvm.{_INTRINSICS[op][sign_index]}.{suffix_name}({operand_type}, {operand_type})"
            for operand_type, suffix_name in zip((vector, register), suffix, strict=True)
        ),
    )
