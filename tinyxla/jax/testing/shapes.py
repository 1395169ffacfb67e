"""Shapes of arguments of tests: besides tuples two that stand for scalars of NumPy's and of Python's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from tinyxla.errors import ArgumentError


class ScalarShape:
    """The shape of a scalar that is no array."""

    def __len__(self) -> int:
        return 0

    def __getitem__(self, index: Any) -> NoReturn:
        raise IndexError(f"a scalar has no dimension {index}")


class _NumpyScalar(ScalarShape):
    """Of a scalar of NumPy's."""


class _PythonScalar(ScalarShape):
    """Of a number of Python's."""


NUMPY_SCALAR_SHAPE = _NumpyScalar()
PYTHON_SCALAR_SHAPE = _PythonScalar()


def is_valid_shape(shape: Any, dtype: Any) -> bool:
    """Whether there are values of that shape and element type: numbers of Python's have four types only."""
    return shape != PYTHON_SCALAR_SHAPE or dtype == np.dtype(type(np.zeros((), dtype).item()))


def dimensions(shape: Any) -> Sequence[int]:
    """The sizes of a shape, which may be one number.

    Raises:
        ArgumentError: what is no shape.
    """
    if isinstance(shape, ScalarShape):
        return ()
    if type(shape) in (list, tuple):
        return shape
    if np.ndim(shape) == 0:
        return (shape,)
    raise ArgumentError(f"A shape is a tuple, a list or a number, but got {shape!r}.")


def in_shape(value: Any, shape: Any, dtype: Any) -> Any:
    """The value as what a shape stands for: an array, a scalar of NumPy's or a number.

    Raises:
        ArgumentError: the value has another shape.
    """
    if shape is NUMPY_SCALAR_SHAPE:
        return np.dtype(dtype).type(value)
    if shape is PYTHON_SCALAR_SHAPE:
        return np.asarray(value).item()
    if np.shape(value) != tuple(dimensions(shape)):
        raise ArgumentError(f"The value has the shape {np.shape(value)}, but must have {shape!r}.")
    return value


def dtype_str(dtype: Any) -> str:
    """The name of an element type."""
    return np.dtype(dtype).name


def format_shape_dtype_string(shape: Any, dtype: Any) -> str:
    """A shape and element type in the names of tests.

    >>> format_shape_dtype_string((2, 3), "float32"), format_shape_dtype_string(PYTHON_SCALAR_SHAPE, "int32")
    ('float32[2,3]', 'pyint32')
    """
    name = dtype_str(dtype)
    if isinstance(shape, ScalarShape):
        return f"py{name}" if shape is PYTHON_SCALAR_SHAPE else name
    if isinstance(shape, np.ndarray):
        return f"{name}[{shape}]"
    if type(shape) is int:
        return f"{name}[{shape},]"
    return f"{name}[{','.join(map(str, dimensions(shape)))}]"
