"""HLO text of instructions that XLA prints and runs, read and run here: values against XLA's."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tinyxla
from tests.support import xla_oracle
from tinyxla.errors import HloSyntaxError
from tinyxla.shapes import element_types
from tinyxla.text import parse_hlo, print_module


def _module(entry: str, called: str = "") -> str:
    return f"HloModule m\n{called}\nENTRY e {{\n{entry}\n}}\n"


def _operands(text: str) -> list[Any]:
    """Values for the parameters of the entry, with the ends of the range of integers."""
    random = np.random.default_rng(0)
    found: list[Any] = []
    for name, sizes in re.findall(r"= (\w+)\[([\d,]*)\]\S* parameter", text.partition("ENTRY")[2]):
        kind = element_types[name]
        shape = tuple(int(n) for n in sizes.split(",") if n)
        if kind.is_integer:
            info = ml_dtypes.iinfo(kind.dtype)
            signed = info.min < 0
            drawn = np.dtype(f"{'i' if signed else 'u'}{kind.dtype.itemsize}")
            values = random.integers(int(info.min), int(info.max), shape, drawn, endpoint=True)
            values.reshape(-1)[:2] = [int(info.min), int(info.max)]
        else:
            values = random.normal(size=shape) + (1j * random.normal(size=shape) if kind.kind == "complex" else 0)
        found.append(values.astype(kind.dtype))
    return found


def _values(text: str, operands: list[Any], compiled: bool = True) -> list[Any]:
    with tinyxla.enable_x64(True):
        module = parse_hlo(text)
        found = (tinyxla.jit(module) if compiled else module)(*operands)
        return [np.asarray(x) for x in tinyxla.tree.leaves(found)]


def _same_as_xla(text: str, rtol: float = 0.0) -> None:
    operands = _operands(text)
    wanted = xla_oracle.run(text, operands)
    for compiled in (True, False):
        found = _values(text, operands, compiled)
        for mine, theirs in zip(found, wanted, strict=True):
            assert mine.dtype == theirs.dtype
            np.testing.assert_allclose(mine, theirs, rtol)


@pytest.mark.parametrize("kind", ["s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64"])
def test_mulhi_is_upper_half_of_exact_product(kind: str) -> None:
    text = _module(f" a = {kind}[20] parameter(0)\n b = {kind}[20] parameter(1)\n ROOT r = {kind}[20] mulhi(a, b)")
    x, y = _operands(text)
    y[0] = x[0]
    bits = 8 * x.itemsize
    wanted = np.array([int(a) * int(b) >> bits for a, b in zip(x, y, strict=True)], x.dtype)
    for compiled in (True, False):
        np.testing.assert_array_equal(_values(text, [x, y], compiled)[0], wanted)
    assert "mulhi" in print_module(parse_hlo(text))


@pytest.mark.parametrize("kind", ["c64", "c128"])
def test_atan2_of_complex_numbers(kind: str) -> None:
    entry = f" a = {kind}[9] parameter(0)\n b = {kind}[9] parameter(1)\n ROOT r = {kind}[9] atan2(a, b)"
    _same_as_xla(_module(entry), 1e-5 if kind == "c64" else 1e-12)


def test_atan2_of_large_complex_numbers_does_not_overflow() -> None:
    text = _module(" a = c64[1] parameter(0)\n b = c64[1] parameter(1)\n ROOT r = c64[1] atan2(a, b)")
    y, x = np.array([2e30 + 1e30j], np.complex64), np.array([1e30 - 3e30j], np.complex64)
    for compiled in (True, False):
        (large,) = _values(text, [y, x], compiled)
        np.testing.assert_allclose(large, _values(text, [y / 1e30, x / 1e30], compiled)[0], 1e-5)


@pytest.mark.parametrize(
    ("old", "new"),
    [("s4[2,2]", "s8[2]"), ("s8[3]", "s4[3,2]"), ("s4[2,4]", "s16[2]"), ("u2[2,4]", "u8[2]"), ("u16[3]", "u4[3,4]")],
)
def test_bitcast_convert_below_a_byte_changes_width(old: str, new: str) -> None:
    _same_as_xla(_module(f" a = {old} parameter(0)\n ROOT r = {new} bitcast-convert(a)"))


def test_bitcast_convert_of_truth_values_takes_bytes() -> None:
    x = np.array([[True, False, True, True]])
    for compiled in (True, False):
        (octets,) = _values(_module(" a = pred[1,4] parameter(0)\n ROOT r = u8[1,4] bitcast-convert(a)"), [x], compiled)
        np.testing.assert_array_equal(octets, [[1, 0, 1, 1]])
        (word,) = _values(_module(" a = pred[1,4] parameter(0)\n ROOT r = u32[1] bitcast-convert(a)"), [x], compiled)
        assert word == [0x01010001]
        text = _module(" a = u16[2] parameter(0)\n ROOT r = pred[2,2] bitcast-convert(a)")
        (truth,) = _values(text, [np.array([0x0100, 1], np.uint16)], compiled)
        np.testing.assert_array_equal(truth, [[False, True], [True, False]])
        text = _module(" a = u8[3] parameter(0)\n b = pred[3] bitcast-convert(a)\n ROOT r = u8[3] bitcast-convert(b)")
        np.testing.assert_array_equal(_values(text, [np.array([0, 1, 4], np.uint8)], compiled)[0], [0, 1, 1])


def test_bitcast_convert_of_complex_numbers_keeps_bytes() -> None:
    x = np.arange(8, dtype=np.float32).view(np.complex64).reshape(2, 2)
    for compiled in (True, False):
        (wide,) = _values(_module(" a = c64[2,2] parameter(0)\n ROOT r = c128[2] bitcast-convert(a)"), [x], compiled)
        assert wide.dtype == np.complex128
        assert wide.tobytes() == x.tobytes()
    with pytest.raises(HloSyntaxError, match="both types must be complex or neither"):
        parse_hlo(_module(" a = c64[2] parameter(0)\n ROOT r = u64[2] bitcast-convert(a)"))


@pytest.mark.parametrize("kind", ["f8e5m2", "f8e4m3", "f8e3m4"])
def test_nan_payloads_of_8_bit_floats_are_kept(kind: str) -> None:
    text = _module(f" ROOT r = {kind}[4] constant({{nan, -nan, nan(0x1), -nan(0x1)}})")
    (wanted,) = xla_oracle.run(text, [])
    module = parse_hlo(text)
    assert np.asarray(module()).tobytes() == wanted.tobytes()
    assert np.asarray(parse_hlo(print_module(module))()).tobytes() == wanted.tobytes()


def test_nan_payloads_of_8_bit_floats_without_them_are_refused() -> None:
    with pytest.raises(HloSyntaxError, match=r"'nan\(0x1\)' is not a number of type f8e4m3fn"):
        parse_hlo(_module(" ROOT r = f8e4m3fn[1] constant({nan(0x1)})"))


def test_nan_payloads_of_complex_numbers_are_kept() -> None:
    text = _module(" ROOT r = c64[3] constant({(nan(0x400001), nan(0x1)), (-nan, -nan), (1, -nan(0x3))})")
    module = parse_hlo(text)
    wanted = np.array([0x7FC00001, 0x7F800001, 0xFFC00000, 0xFFC00000, 0x3F800000, 0xFF800003], np.uint32)
    np.testing.assert_array_equal(np.asarray(module()).view(np.uint32), wanted)
    assert "(nan(0x400001), nan(0x1))" in print_module(module)


def test_ragged_dot_without_batch_dimensions() -> None:
    text = _module(""" a = f32[6,3] parameter(0)
 b = f32[2,3,4] parameter(1)
 g = s32[2] parameter(2)
 ROOT r = f32[6,4] ragged-dot(a, b, g), lhs_contracting_dims={1}, rhs_contracting_dims={1}, lhs_ragged_dims={0},
   rhs_group_dims={0}""")
    x, y, _ = _operands(text)
    wanted = np.concatenate([x[:2] @ y[0], x[2:5] @ y[1], np.zeros((1, 4))])
    for compiled in (True, False):
        found = _values(text, [x, y, np.array([2, 3], np.int32)], compiled)[0]
        np.testing.assert_allclose(found, wanted, 1e-5)


SUMS = """s {
  x = f32[3] parameter(0)
  c = f32[3] parameter(1)
  d = f32[3] add(x, c)
  m = f32[3] multiply(d, x)
  ROOT t = (f32[3], f32[3]) tuple(m, d)
}"""


@pytest.mark.parametrize("reverse", ["", "is_reverse=true, "])
def test_scan_carries_along_a_dimension(reverse: str) -> None:
    entry = f""" a = f32[3,4] parameter(0)
 z = f32[3] parameter(1)
 ROOT r = (f32[3,4], f32[3]) scan(a, z), dimensions={{1}}, num_carries=1, {reverse}to_apply=s"""
    _same_as_xla(_module(entry, SUMS), 1e-6)


def test_scan_with_two_inputs_and_without_outputs() -> None:
    called = """s {
  x = f32[] parameter(0)
  y = s32[2] parameter(1)
  c = f32[] parameter(2)
  n = s32[2] parameter(3)
  d = f32[] add(x, c)
  k = s32[2] add(y, n)
  ROOT t = (f32[], s32[2]) tuple(d, k)
}"""
    entry = """ a = f32[5] parameter(0)
 b = s32[5,2] parameter(1)
 c = f32[] constant(1)
 n = s32[2] constant({0, 1})
 ROOT r = (f32[], s32[2]) scan(a, b, c, n), dimensions={0}, num_carries=2, is_associative=true, to_apply=s"""
    _same_as_xla(_module(entry, called), 1e-6)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ("dimensions={1}, to_apply=s", "scan needs num_carries, a number"),
        ("dimensions={2}, num_carries=1, to_apply=s", "one size in dimension 2"),
        ("dimensions={1}, num_carries=5, to_apply=s", "expected 5 initial carries, but found 2 operands"),
        ("dimensions={1}, num_carries=1, is_reverse=2, to_apply=s", "is_reverse must be true or false"),
        ("dimensions={1}, num_carries=1, order=2, to_apply=s", "has no attribute order"),
        ("dimensions={1}, num_carries=0, to_apply=s", "one size in dimension 1"),
    ],
)
def test_scan_with_wrong_attributes_is_refused(attributes: str, message: str) -> None:
    entry = f""" a = f32[3,4] parameter(0)
 z = f32[3] parameter(1)
 ROOT r = (f32[3,4], f32[3]) scan(a, z), {attributes}"""
    with pytest.raises(HloSyntaxError, match=message):
        parse_hlo(_module(entry, SUMS))


def test_bitcast_of_a_scalar_to_elements_below_a_byte_has_one_dimension() -> None:
    x = np.float64(4.0)
    with tinyxla.enable_x64(True):
        parts = np.asarray(tinyxla.lax.bitcast_convert_type(x, "int4"))
    assert parts.shape == (16,)
    whole = sum((int(v) & 15) << (4 * k) for k, v in enumerate(parts))
    assert whole == int(x.view(np.uint64))
