"""Frontend attributes of operations: what programs say to the compiler of what is recorded. They stand in the text of
programs and in the contexts of equations. On a CPU they change nothing that is computed."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, NamedTuple

from tinyxla.api.context_managers import Block
from tinyxla.errors import ArgumentError, SourceLine
from tinyxla.jax.jaxprs.primitives.catalogue import LaxPrimitive, primitives
from tinyxla.jax.jaxprs.traces.recording import is_recording, region, vectorized
from tinyxla.tracing import pytrees
from tinyxla.tracing.config import Config, config
from tinyxla.tracing.core import CarryingTracer, GraphTracer, state
from tinyxla.tracing.promotion import as_array

_COMPUTE_TYPES = {"device_host": "host", "device": "dense", "tpu_sparsecore": "sparse"}
_COMPUTE_TYPE = "_xla_compute_type"

primitives["xla_metadata_value"] = LaxPrimitive("xla_metadata_value", lambda x, xla_metadata_kvs: x)


class JaxprEqnContext(NamedTuple):
    """What is said of an equation to the compiler."""

    compute_type: str | None
    xla_metadata: dict[str, str] | None
    threefry_partitionable: bool = True


def context_of(source: SourceLine | None) -> JaxprEqnContext:
    """What is said of an instruction."""
    said = dict(source.frontend_attributes) if source is not None else {}
    place = said.pop(_COMPUTE_TYPE, None)
    names = {text: name for name, text in _COMPUTE_TYPES.items()}
    return JaxprEqnContext(None if place is None else names.get(place, place), said or None)


class attributed(Block):
    """Inside, and in functions that are called inside, all that is recorded has these attributes, too."""

    def __init__(self, said: dict[str, str]) -> None:
        self._said = said

    def __enter__(self) -> None:
        self._outer = state.frontend_attributes, config.special
        said = tuple(sorted((dict(state.frontend_attributes) | self._said).items()))
        state.frontend_attributes = said
        vars(config)["special"] = (*config.special, ("frontend_attributes", said))  # programs are traced anew

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        state.frontend_attributes, special = self._outer
        vars(config)["special"] = special
        if special == Config.special:
            vars(config).pop("special")


class _Attributed:
    """A function that runs inside, and so do its methods."""

    def __init__(self, function: Callable[..., Any], said: dict[str, str]) -> None:
        self.__wrapped__ = function
        self.__name__ = getattr(function, "__name__", "function")
        self._said = said

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with attributed(self._said):
            return self.__wrapped__(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.__wrapped__, name)
        return _Attributed(found, self._said) if callable(found) else found


class _Attributes(attributed):
    """The same, also a decorator."""

    def __call__(self, function: Callable[..., Any]) -> Any:
        return _Attributed(function, self._said)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def set_xla_metadata(x: Any = None, **metadata: Any) -> Any:
    """Attributes for the compiler: without `x` a context or decorator for all that is recorded inside, otherwise the
    values with attributes of the operation that gave each.

    Example:
        >>> import tinyxla.jax
        >>> import jax
        >>> from jax.experimental.xla_metadata import set_xla_metadata
        >>> with set_xla_metadata(kind="layer"):
        ...     text = jax.jit(jax.numpy.sin).lower(1.0).as_text()
        >>> 'kind="layer"' in text
        True
    """
    said = {name: _text(value) for name, value in metadata.items()}
    if x is None:
        return _Attributes(said)
    return pytrees.map_tree(lambda leaf: _attached(as_array(leaf, "set_xla_metadata"), said, metadata), x)


def _attached(x: Any, said: dict[str, str], metadata: dict[str, Any]) -> Any:
    """An array, with attributes of the instruction that gives it, if it is traced."""
    inner = x
    while isinstance(inner, CarryingTracer):
        inner = inner.carried
    if isinstance(inner, GraphTracer) and inner.instruction.source is not None:
        source = inner.instruction.source
        known = dict(source.frontend_attributes) | said
        inner.instruction.source = source._replace(frontend_attributes=tuple(sorted(known.items())))
    if not is_recording():
        return x
    params = {"xla_metadata_kvs": tuple(sorted(metadata.items()))}
    return region(primitives["xla_metadata_value"], params, lambda v: [v], [x], vectorized)[0]


def compute_on(compute_type: str) -> Any:
    """A context or decorator for what is to be computed on the host of an accelerator, which a CPU is itself.

    Args:
        compute_type: "device_host", "device", "tpu_sparsecore" or "gpu_stream:" and a number.
    """
    if not isinstance(compute_type, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"compute_on: compute_type must be a string, but got {compute_type!r}.")
    if compute_type not in _COMPUTE_TYPES and not compute_type.startswith("gpu_stream:"):
        kinds = ", ".join(map(repr, _COMPUTE_TYPES))
        raise ArgumentError(f"compute_on: compute_type must be {kinds} or 'gpu_stream:#', but got {compute_type!r}.")
    return _Attributes({_COMPUTE_TYPE: _COMPUTE_TYPES.get(compute_type, compute_type)})


def xla_metadata_call(f: Callable[..., Any] | None = None, **metadata: Any) -> Any:
    """A function inside of which all that is recorded has these attributes; without `f` a decorator."""
    return set_xla_metadata(**metadata) if f is None else set_xla_metadata(**metadata)(f)


def scheduling_group(name: str) -> Any:
    """A context or decorator: what is recorded inside is a group of the scheduler."""
    return set_xla_metadata(_scheduling_group_id=name)
