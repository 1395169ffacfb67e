"""FFT codelets as Python: the kernels of Fourier transforms are printed with the routines that they call, and run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tinyxla.hlo import Instruction
from tinyxla.loopir.ir.print_python import print_python
from tinyxla.loopir.kernels.fft.complex_vectors import elements_per_row
from tinyxla.loopir.kernels.fft.plan import lower
from tinyxla.loopir.lower.emit import Storage
from tinyxla.ops import movement
from tinyxla.ops.fourier import fft
from tinyxla.shapes import Shape
from tinyxla.shapes.element_types import element_types

# Transforms, and routines that they call where vectors hold more than two complex numbers.
CASES = [
    ("FFT", "c64", (3, 64), (64,), "first last"),
    ("IFFT", "c64", (5, 256), (256,), "first pass last"),
    ("RFFT", "f32", (3, 256), (256,), "first halves"),
    ("IRFFT", "c64", (3, 129), (256,), "first last"),
    ("RFFT", "f64", (3, 128), (128,), "pass"),
    ("FFT", "c64", (3, 307), (307,), "first last"),
    ("IFFT", "c64", (19, 12), (12,), "in pass out"),
    ("FFT", "c64", (22, 5), (22, 5), "enter pass leave in out"),
    ("IFFT", "c128", (8, 9), (8, 9), "enter leave in out"),
    ("FFT", "c64", (2, 7, 20), (7, 20), "enter leave"),
    ("RFFT", "f32", (17, 15), (15,), "in combine pass out"),
    ("IRFFT", "c64", (17, 8), (15,), "in combine pass out"),
    ("IRFFT", "c128", (17, 8), (14,), "in combine pass out"),
    ("FFT", "c128", (17, 26), (26,), "in pass out"),
    ("IFFT", "c64", (1, 2100), (2100,), "enter pass leave in"),
    ("FFT", "c128", (1, 2048), (2048,), "first pass last"),
]
NUMPY = {"FFT": np.fft.fftn, "IFFT": np.fft.ifftn, "RFFT": np.fft.rfftn, "IRFFT": np.fft.irfftn}


def transform(fft_type: str, type: str, shape: tuple[int, ...], lengths: tuple[int, ...]) -> Instruction:
    array_shape, attributes = Shape(element_types[type], shape), {"fft_type": fft_type, "fft_length": lengths}
    operand = Instruction(movement.parameter, (), movement.Parameter(0, array_shape), array_shape)
    return Instruction(fft, (operand,), fft.attributes(**attributes), fft.shape(array_shape, **attributes))


def run_python(x: Instruction, operand: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], str]:
    """The value of a transform by the Python text of its kernels, and that text."""
    memory: dict[int, np.ndarray[Any, Any]] = {id(x.operands[0]): operand.ravel()}
    sources: list[str] = []

    def array(storage: Storage) -> np.ndarray[Any, Any]:
        if isinstance(storage, Instruction) and storage.op is movement.constant:
            return storage.attributes.literal.value.ravel()
        shape = storage.array_shape if isinstance(storage, Instruction) else storage.shape
        return memory.setdefault(id(storage), np.full(shape.size, np.nan, shape.dtype))

    plan: Any = None  # which Fourier transforms do not ask
    for lowered in lower(x, plan, {}):
        sources.append(print_python(lowered.kernel))
        namespace: dict[str, Any] = {}
        exec(sources[-1], namespace)
        arrays = map(array, lowered.arguments)
        namespace[lowered.kernel.name](*arrays, 0, lowered.extent, *lowered.parameters)
    return memory[id(x)].reshape(x.array_shape.dimensions), "\n".join(sources)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[1]}-{'x'.join(map(str, case[2]))}")
def test_printed_kernels_run(
    case: tuple[str, str, tuple[int, ...], tuple[int, ...], str], generator: np.random.Generator
) -> None:
    fft_type, type, shape, lengths, routines = case
    operand = generator.normal(size=shape) + (1j * generator.normal(size=shape) if type[0] == "c" else 0)
    x = transform(fft_type, type, shape, lengths)
    found, source = run_python(x, operand.astype(element_types[type].dtype))
    expected = NUMPY[fft_type](operand, lengths, range(-len(lengths), 0))
    tolerance = 1e-14 if type in ("f64", "c128") else 2e-6
    np.testing.assert_allclose(found, expected, 0, tolerance * np.abs(expected).max())
    assert "ctypes" not in source
    if elements_per_row("f64") > 2:
        assert all(f"def fourier_{name}_" in source for name in routines.split())
