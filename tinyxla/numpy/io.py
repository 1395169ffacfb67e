"""Arrays in files, in NumPy's formats, and as text."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from tinyxla.errors import ArgumentError, DTypeError
from tinyxla.numpy.arguments import ArrayLike, array_of, integer_of, python_dtype
from tinyxla.numpy.creation import array
from tinyxla.tracing.array import Array
from tinyxla.util.tracebacks import boundary

set_printoptions = np.set_printoptions
get_printoptions = np.get_printoptions
printoptions = np.printoptions


def _known(what: str, x: ArrayLike) -> np.ndarray[Any, Any]:
    """The array as NumPy writes it: elements of types that it lacks are raw bytes. Arrays of NumPy and numbers have the
    types that these have there."""
    value = np.asarray(x) if isinstance(x, (np.ndarray, np.generic, int, float, complex)) else None
    if value is None or value.dtype.kind not in "biufc":
        value = np.asarray(array_of(x, what).concrete(what).buffer())
    return value if value.dtype.isbuiltin == 1 else value.view(f"V{value.dtype.itemsize}")


def _of_bytes(found: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array that was read. Elements of two raw bytes are bfloat16: of the types that NumPy lacks, only that one is
    so wide."""
    if found.dtype.kind != "V":
        return found
    if found.dtype.itemsize != 2:
        raise DTypeError(
            f"load: the file has elements of {found.dtype.itemsize} raw bytes. NumPy's formats do not name types that "
            'NumPy lacks: give the type, as dtype="float8_e4m3fn", or use tinyxla.save and tinyxla.load, which keep it.'
        )
    return found.view(ml_dtypes.bfloat16)


@boundary
def save(file: Any, arr: ArrayLike, allow_pickle: bool = True) -> None:
    """Write an array to a file in NumPy's binary format. Arrays of numbers need no pickles, whatever `allow_pickle`.

    Types that NumPy lacks (bfloat16, those of 8 bits and less) are written as raw bytes; `load` knows bfloat16 again,
    others it takes by its `dtype`. `tinyxla.save` keeps all types, and whole trees.

    Args:
        file: a path, or a file that is open for writing.
        arr: an array.
        allow_pickle: accepted for compatibility.

    Raises:
        FileNotFoundError: there is no such folder.

    Example:
        >>> import os, tempfile
        >>> import tinyxla.numpy as jnp
        >>> path = os.path.join(tempfile.mkdtemp(), "x.npy")
        >>> jnp.save(path, jnp.arange(3.0))
        >>> jnp.load(path)
        Array([0., 1., 2.], dtype=float32)
    """
    np.save(file, _known("save", arr))


def savez(file: Any, *args: ArrayLike, allow_pickle: bool = True, **kwargs: ArrayLike) -> None:
    """Write several arrays to one file, by name. Arrays of numbers need no pickles, whatever `allow_pickle`.

    Args:
        file: a path, or a file that is open for writing.
        *args: arrays, which are named `arr_0`, `arr_1` and so on.
        allow_pickle: accepted for compatibility.
        **kwargs: arrays by name.

    Raises:
        ArgumentError: an array that is given by name has the name of one that is not.
        ConcretizationError: an array that is traced.
        DTypeError: what is no array or number.
        FileNotFoundError: there is no such folder.

    Example:
        >>> import os, tempfile
        >>> import tinyxla.numpy as jnp
        >>> path = os.path.join(tempfile.mkdtemp(), "model.npz")
        >>> jnp.savez(path, weights=jnp.ones(2), bias=jnp.zeros(1))
        >>> jnp.load(path)["weights"]
        Array([1., 1.], dtype=float32)
    """
    clash = sorted(set(kwargs) & {f"arr_{k}" for k in range(len(args))})
    if clash:
        raise ArgumentError(f"savez: {', '.join(clash)} names an array without a name, too; give all arrays names.")
    np.savez(
        file,
        *(_known("savez", x) for x in args),
        allow_pickle=False,
        **{name: _known("savez", x) for name, x in kwargs.items()},
    )


@boundary
def load(file: Any, dtype: Any = None, *, allow_pickle: bool = False, **options: Any) -> Any:
    """The array of a file that `save` wrote, in its own element type; of one that `savez` wrote, all, by name.

    Args:
        file: a path, or a file that is open for reading.
        dtype: the element type of the array. One that NumPy lacks must be named, unless it is bfloat16.
        allow_pickle: whether arrays of numbers that were written as objects are read, which runs code of the file.
        options: those of `numpy.load`.

    Returns:
        An array, or a mapping of names to arrays.

    Raises:
        DTypeError: the elements are raw bytes, and `dtype` is not given.

    Example:
        >>> import io
        >>> import tinyxla.numpy as jnp
        >>> file = io.BytesIO()
        >>> jnp.save(file, jnp.array([1.5, 2.5], "bfloat16"))
        >>> _ = file.seek(0)
        >>> jnp.load(file)
        Array([1.5, 2.5], dtype=bfloat16)
    """
    found = np.load(file, allow_pickle=allow_pickle, **options)
    if not isinstance(found, np.ndarray):
        arrays = {name: _of_bytes(found[name]) for name in found.files}
        return {name: array(value, value.dtype) for name, value in arrays.items()}
    if dtype is None:
        found = _of_bytes(found)
    kind = found.dtype if dtype is None else python_dtype(dtype)
    return array(found.view(kind) if found.dtype.kind == "V" else found, kind)


def fromfile(*args: Any, **kwargs: Any) -> Array:
    """An array of the numbers in a file, by `numpy.fromfile`.

    Args:
        *args, **kwargs: arguments of `numpy.fromfile`.

    Returns:
        A vector.

    Raises:
        FileNotFoundError: there is no such file.

    Example:
        >>> import os, tempfile
        >>> import numpy as np
        >>> import tinyxla.numpy as jnp
        >>> path = os.path.join(tempfile.mkdtemp(), "numbers")
        >>> np.arange(3, dtype=np.float32).tofile(path)
        >>> jnp.fromfile(path, dtype=np.float32)
        Array([0., 1., 2.], dtype=float32)
    """
    return array(np.fromfile(*args, **kwargs))


def fromiter(*args: Any, **kwargs: Any) -> Array:
    """An array of the numbers of an iterator, by `numpy.fromiter`.

    Args:
        *args, **kwargs: arguments of `numpy.fromiter`.

    Returns:
        A vector.

    Raises:
        ValueError: fewer numbers than `count`.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.fromiter((k * k for k in range(4)), dtype="int32")
        Array([0, 1, 4, 9], dtype=int32)
    """
    return array(np.fromiter(*args, **kwargs))


@boundary
def fromstring(string: Any, dtype: Any = float, count: int = -1, *, sep: Any) -> Array:
    """An array of the numbers in a text, between separators.

    Args:
        string: the text.
        dtype: the element type.
        count: the number of elements; -1 for all.
        sep: the separator.

    Returns:
        A vector.

    Raises:
        ArgumentError: text that is not of numbers with `sep` between them.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.fromstring("1 2 3", sep=" ")
        Array([1., 2., 3.], dtype=float32)
    """
    kind = python_dtype(dtype)
    number = integer_of("fromstring", "count", count)
    if not isinstance(string, str) or not isinstance(sep, str) or not sep:
        raise ArgumentError("fromstring: string and sep must be text, and sep not empty.")
    try:
        return array(np.fromstring(string, kind, number, sep=sep), kind)
    except (ValueError, MemoryError):
        wanted = "numbers" if number < 0 else f"{number} numbers"
        raise ArgumentError(
            f"fromstring: the text must be {wanted} {kind} with {sep!r} between them, but is {string[:80]!r}."
        ) from None


@boundary
def array_repr(
    arr: ArrayLike, max_line_width: int | None = None, precision: int | None = None, suppress_small: bool | None = None
) -> str:
    """The array as Python would show it; options are NumPy's.

    Args:
        arr: an array.
        max_line_width: the number of characters of a line.
        precision: the number of digits.
        suppress_small: whether numbers that are close to 0 are shown as 0.

    Returns:
        The text.

    Raises:
        DTypeError: what is no array or number.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.array_repr(jnp.array([1, 2]))
        'Array([1, 2], dtype=int32)'
    """
    with _shown_with(max_line_width, precision, suppress_small):
        return repr(array_of(arr, "array_repr"))


@boundary
def array_str(
    a: ArrayLike, max_line_width: int | None = None, precision: int | None = None, suppress_small: bool | None = None
) -> str:
    """The elements of the array as text; options are NumPy's.

    Args:
        a: an array.
        max_line_width: the number of characters of a line.
        precision: the number of digits.
        suppress_small: whether numbers that are close to 0 are shown as 0.

    Returns:
        The text.

    Raises:
        DTypeError: what is no array or number.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.array_str(jnp.array([1, 2]))
        '[1 2]'
    """
    with _shown_with(max_line_width, precision, suppress_small):
        return str(array_of(a, "array_str"))


def _shown_with(width: int | None, precision: int | None, suppress: bool | None) -> Any:
    given = {"linewidth": width, "precision": precision, "suppress": suppress}
    return np.printoptions(**{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]
