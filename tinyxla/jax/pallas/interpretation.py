"""Whether and how kernels are interpreted."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np

from tinyxla import numpy as jnp
from tinyxla.errors import ArgumentError
from tinyxla.shapes import element_type


@dataclass(frozen=True)
class InterpretParams:
    """How kernels for TPUs are interpreted, as `interpret=` of `pallas_call`. Programs run one after the other here,
    without races; of these parameters `uninitialized_memory` counts, which is "nan" or "zero"."""

    detect_races: bool = False
    out_of_bounds_reads: str = "raise"
    skip_floating_point_ops: bool = False
    uninitialized_memory: str = "nan"
    num_cores_or_threads: int = 1
    vector_clock_size: int | None = None
    logging_mode: Any = None
    dma_execution_mode: str = "on_wait"
    random_seed: int | None = None
    grid_point_recorder: Any = None
    allow_hbm_allocation_in_run_scoped: bool = False
    buffer_bounds: str = "logical"


class _Interpreted:
    """Whether kernels are interpreted that do not say so: in a block, or from now on."""

    depth = 0

    def __init__(self, params: InterpretParams | None = None) -> None:
        self._is_on = params is not None

    def __enter__(self) -> None:
        _Interpreted.depth += self._is_on

    def __exit__(self, *_: Any) -> None:
        _Interpreted.depth -= self._is_on


def force_tpu_interpret_mode(params: InterpretParams = InterpretParams()) -> _Interpreted:
    """A context in which kernels are interpreted without saying so."""
    return _Interpreted(params)


def set_tpu_interpret_mode(params: InterpretParams | None = InterpretParams()) -> None:
    """Have kernels interpreted from now on, without saying so; not, if `params` is None."""
    _Interpreted.depth = int(params is not None)


def reset_tpu_interpret_mode_state() -> None:
    """Forget what interpreted kernels left behind, which is nothing here."""


def check_interpreted(interpret: Any, name: str) -> None:
    """An error for a kernel that is not to be interpreted."""
    if not (interpret or _Interpreted.depth > 0):
        raise ArgumentError(
            f"pallas_call: give interpret=True to the call of {name}; there is no accelerator. Only interpret "
            "mode is supported on CPU backend."
        )


_filling: ContextVar[str] = ContextVar("what integers are that nothing was written to", default="least")


@contextmanager
def filling(interpret: Any) -> Generator[None]:
    """Have memory that nothing is written to filled as `interpret=` of a kernel says."""
    kind = "least"
    if isinstance(interpret, InterpretParams):
        kind = "zero" if interpret.uninitialized_memory == "zero" else "largest"
    before = _filling.set(kind)
    try:
        yield
    finally:
        _filling.reset(before)


def uninitialized(shape: Any, dtype: Any) -> Any:
    """What memory holds that nothing was written to: NaN, and the least integer, or False; with `InterpretParams` the
    largest integer, or True, or zeros."""
    kind = element_type(dtype).kind
    if _filling.get() == "zero":
        return jnp.zeros(shape, dtype)
    if kind == "pred":
        return jnp.full(shape, _filling.get() == "largest", dtype)
    if kind in ("float", "complex"):
        return jnp.full(shape, np.nan, dtype)
    limits = jnp.iinfo(dtype)
    return jnp.full(shape, limits.max if _filling.get() == "largest" else limits.min, dtype)
