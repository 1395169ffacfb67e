"""Lists of element types that tests go through, and element types of references."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import ml_dtypes
import numpy as np

from tinyxla.errors import ArgumentError
from tinyxla.jax.options import states
from tinyxla.numpy import asarray
from tinyxla.numpy.arguments import inexact as inexact_type
from tinyxla.numpy.types import finfo, result_type
from tinyxla.tracing import pytrees
from tinyxla.tracing.config import config
from tinyxla.tracing.promotion import default_dtype

_WIDE = (np.uint64, np.int64, np.float64, np.complex128)


def supported_dtypes() -> set[Any]:
    """The element types that tests use on CPUs, without those of 64 bits unless `enable_x64` is set."""
    integers = {getattr(np, f"{sign}int{width}") for sign in ("", "u") for width in (8, 16, 32, 64)}
    others = {np.float16, np.float32, np.float64, np.complex64, np.complex128, ml_dtypes.bfloat16}
    found = {np.bool_, ml_dtypes.int4, ml_dtypes.uint4, *integers, *others}
    return found if config.enable_x64 else found.difference(_WIDE)


def _listed(*found: Any) -> Any:
    """A property: these element types, as far as they are supported when it is first asked for."""
    return functools.cached_property(lambda self: self.supported(found))


class _ElementTypes:
    """Lists of element types, which depend on options."""

    def supported(self, dtypes: Sequence[Any]) -> list[Any]:
        """Those that are supported."""
        supported = supported_dtypes()
        return [dtype for dtype in dtypes if dtype in supported]

    custom_floats = _listed(ml_dtypes.bfloat16)
    floating = _listed(np.float32, np.float64)
    all_floating = _listed(ml_dtypes.bfloat16, np.float16, np.float32, np.float64)
    integer = _listed(np.int32, np.int64)
    all_integer = _listed(np.int8, np.int16, np.int32, np.int64)
    unsigned = _listed(np.uint32, np.uint64)
    all_unsigned = _listed(np.uint8, np.uint16, np.uint32, np.uint64)
    complex = _listed(np.complex64, np.complex128)
    boolean = _listed(np.bool_)
    inexact = functools.cached_property(lambda self: self.floating + self.complex)
    all_inexact = functools.cached_property(lambda self: self.all_floating + self.complex)
    numeric = functools.cached_property(lambda self: self.floating + self.integer + self.unsigned + self.complex)
    all = functools.cached_property(
        lambda self: self.all_floating + self.all_integer + self.all_unsigned + self.complex + self.boolean
    )


dtypes = _ElementTypes()


def strict_promotion_if_dtypes_match(dtypes: Sequence[Any]) -> AbstractContextManager[None]:
    """A context in which types are not promoted, if all are one; else they are."""
    return states["numpy_dtype_promotion"]("strict" if all(x == dtypes[0] for x in dtypes) else "standard")


def num_float_bits(dtype: Any) -> int:
    """The width of a floating type, narrowed to 32 bits unless `enable_x64` is set."""
    return finfo(default_dtype(np.dtype(dtype))).bits


def _default(wide: Any) -> Callable[[], np.dtype[Any]]:
    return lambda: default_dtype(np.dtype(wide))


default_types = {
    kind: _default(wide)
    for kind, wide in zip("biufc", (np.bool_, np.int64, np.uint64, np.float64, np.complex128), strict=True)
}
"""Functions that give the default type of a kind of NumPy's: 32 bits wide unless `enable_x64` is set."""


def to_default_dtype(arr: Any) -> Any:
    """A NumPy array in the default type of its kind."""
    arr = np.asarray(arr)
    kind = arr.dtype.kind
    return arr.astype(default_types[kind]()) if kind in default_types else arr


def with_jax_dtype_defaults(func: Callable[..., Any], use_defaults: Any = True) -> Callable[..., Any]:
    """A function of NumPy's, whose results are in the default types.

    Args:
        func: the function.
        use_defaults: whether a result is; a boolean, or a pytree of these in the structure of the result.
    """

    @functools.wraps(func)
    def converted(*args: Any, **kwargs: Any) -> Any:
        result = func(*args, **kwargs)
        if isinstance(use_defaults, bool):
            return pytrees.map_tree(to_default_dtype, result) if use_defaults else result
        return pytrees.map_tree(lambda x, use: to_default_dtype(x) if use else x, result, use_defaults)

    return converted


def promote_like_jnp(fun: Callable[..., Any], inexact: bool = False) -> Callable[..., Any]:
    """A function whose arguments are promoted to one type before, an inexact one if asked for."""

    def promoted(*args: Any, **kwargs: Any) -> Any:
        leaves, tree = pytrees.flatten(args)
        dtype = result_type(*leaves)
        common = inexact_type((dtype, False))[0] if inexact else dtype
        return fun(*pytrees.unflatten(tree, [asarray(x, common) for x in leaves]), **kwargs)

    return promoted


def parse_version(v: str) -> tuple[int, ...]:
    """The numbers of a version.

    Raises:
        ArgumentError: what is no version.

    >>> parse_version("2.1.0rc1")
    (2, 1, 0)
    """
    found = re.match(r"(\d+(?:\.\d+)*)(?:(?:rc|dev).*)?", v)
    if found is None:
        raise ArgumentError(f"A version is like '1.2.3', but got {v!r}.")
    return tuple(map(int, found[1].split(".")))


def numpy_version() -> tuple[int, ...]:
    """The version of NumPy."""
    return parse_version(np.__version__)
