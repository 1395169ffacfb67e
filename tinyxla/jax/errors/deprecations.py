"""Deprecations of JAX's interface by name. What is deprecated warns, and is an error once that is accelerated."""

from __future__ import annotations

import warnings

from tinyxla.errors import ArgumentError

_accelerated: dict[str, bool] = dict.fromkeys(
    """jax-array-numpy-dtype jax-nn-one-hot-float-input jax-numpy-astype-complex-to-real jax-array-positional-args
    jax-pallas-call-mgpu jax-pallas-mgpu-shapes-types""".split(),
    False,
)


def _known(deprecation_id: str) -> str:
    if deprecation_id not in _accelerated:
        raise ArgumentError(f"deprecation_id={deprecation_id!r} not registered; register it before.")
    return deprecation_id


def register(deprecation_id: str) -> None:
    """Know a deprecation of this name."""
    _accelerated[deprecation_id] = False


def unregister(deprecation_id: str) -> None:
    """Forget it."""
    del _accelerated[_known(deprecation_id)]


def accelerate(deprecation_id: str) -> None:
    """Let it be an error."""
    _accelerated[_known(deprecation_id)] = True


def is_accelerated(deprecation_id: str) -> bool:
    """Whether it is an error."""
    return _accelerated[_known(deprecation_id)]


def warn(deprecation_id: str, message: str, stacklevel: int, *, error_class: type[Exception] = ValueError) -> None:
    """Warn of it.

    Raises:
        Exception: of the given class, where it is accelerated.
    """
    if is_accelerated(deprecation_id):
        raise error_class(message)
    warnings.warn(message, DeprecationWarning, stacklevel + 1)
