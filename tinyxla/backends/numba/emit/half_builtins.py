"""Conversions of half precision, as functions: what LLVM calls on processors that have no instructions for them."""

from __future__ import annotations

CONVERSIONS = ("__extendhfsf2", "__truncsfhf2")

# Between the formats, bits move by 13 places, and exponents differ by 112. What is subnormal in half precision is a
# whole number times 2^-24; a sum with 1/2 of what will be is exact up to the rounding that is wanted.
TEXT = """
define float @__extendhfsf2(half %x) {
  %bits = bitcast half %x to i16
  %word = zext i16 %bits to i32
  %size = and i32 %word, 32767
  %moved = shl i32 %size, 13
  %normal = add i32 %moved, 939524096
  %count = uitofp i32 %size to float
  %small = fmul float %count, 0x3E70000000000000
  %subnormal = bitcast float %small to i32
  %is_small = icmp ult i32 %size, 1024
  %finite = select i1 %is_small, i32 %subnormal, i32 %normal
  %other = or i32 %moved, 2139095040
  %is_finite = icmp ult i32 %size, 31744
  %found = select i1 %is_finite, i32 %finite, i32 %other
  %sign = and i32 %word, 32768
  %high = shl i32 %sign, 16
  %both = or i32 %found, %high
  %result = bitcast i32 %both to float
  ret float %result
}

define half @__truncsfhf2(float %x) {
  %word = bitcast float %x to i32
  %size = and i32 %word, 2147483647
  %shifted = lshr i32 %size, 13
  %odd = and i32 %shifted, 1
  %rebased = add i32 %size, -939520001
  %rounded = add i32 %rebased, %odd
  %normal = lshr i32 %rounded, 13
  %positive = bitcast i32 %size to float
  %sum = fadd float %positive, 5.0e-01
  %sum_bits = bitcast float %sum to i32
  %subnormal = sub i32 %sum_bits, 1056964608
  %is_small = icmp ult i32 %size, 947912704
  %finite = select i1 %is_small, i32 %subnormal, i32 %normal
  %payload = and i32 %shifted, 1023
  %nan = or i32 %payload, 32256
  %is_nan = icmp ugt i32 %size, 2139095040
  %other = select i1 %is_nan, i32 %nan, i32 31744
  %is_finite = icmp ult i32 %size, 1199570944
  %found = select i1 %is_finite, i32 %finite, i32 %other
  %high = lshr i32 %word, 16
  %sign = and i32 %high, 32768
  %both = or i32 %found, %sign
  %bits = trunc i32 %both to i16
  %result = bitcast i16 %bits to half
  ret half %result
}
"""
