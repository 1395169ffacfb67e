"""Flush-to-zero mode (FTZ, DAZ): compiled code treats subnormal numbers as zeros, as XLA's does.

A processor may take a hundred times as long for an operation with a subnormal operand or result, which exponentials and
decays produce. While compiled code runs, its floating-point control register makes such results and operands zeros.
Callbacks run in the mode of the caller.
"""

from __future__ import annotations

import platform

# Bits of the register: FZ and DAZ of x86's MXCSR, FZ of ARM's FPCR.
_X86 = """
define internal i64 @float_mode() alwaysinline {
  %word = alloca i32, align 4
  call void @llvm.x86.sse.stmxcsr(ptr %word)
  %mode = load i32, ptr %word
  %wide = zext i32 %mode to i64
  ret i64 %wide
}

define internal void @set_float_mode(i64 %mode) alwaysinline {
  %word = alloca i32, align 4
  %narrow = trunc i64 %mode to i32
  store i32 %narrow, ptr %word
  call void @llvm.x86.sse.ldmxcsr(ptr %word)
  ret void
}

declare void @llvm.x86.sse.stmxcsr(ptr)
declare void @llvm.x86.sse.ldmxcsr(ptr)
"""
_ARM = """
define internal i64 @float_mode() alwaysinline {
  %mode = call i64 @llvm.aarch64.get.fpcr()
  ret i64 %mode
}

define internal void @set_float_mode(i64 %mode) alwaysinline {
  call void @llvm.aarch64.set.fpcr(i64 %mode)
  ret void
}

declare i64 @llvm.aarch64.get.fpcr()
declare void @llvm.aarch64.set.fpcr(i64)
"""
_OTHER = """
define internal i64 @float_mode() alwaysinline {
  ret i64 0
}

define internal void @set_float_mode(i64 %mode) alwaysinline {
  ret void
}
"""
_SUBNORMALS = """
define internal i64 @flush_subnormals() alwaysinline {  ; returns the mode before
  %mode = call i64 @float_mode()
  %flushing = or i64 %mode, $BITS
  call void @set_float_mode(i64 %flushing)
  ret i64 %mode
}

define internal void @keep_subnormals() alwaysinline {
  %mode = call i64 @float_mode()
  %keeping = and i64 %mode, $OTHERS
  call void @set_float_mode(i64 %keeping)
  ret void
}
"""
_MACHINES = {
    "x86_64": (_X86, 0x8040),
    "amd64": (_X86, 0x8040),
    "aarch64": (_ARM, 1 << 24),
    "arm64": (_ARM, 1 << 24),
}


def source() -> str:
    """The LLVM text of `flush_subnormals`, `keep_subnormals` and `set_float_mode` for this machine."""
    text, bits = _MACHINES.get(platform.machine().lower(), (_OTHER, 0))
    return text + _SUBNORMALS.replace("$BITS", str(bits)).replace("$OTHERS", str(~bits))
