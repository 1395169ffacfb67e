"""`jax.experimental.pallas.triton`, interpreted on the CPU."""

from dataclasses import dataclass

from tinyxla.jax.pallas.control import dot as dot, multiple_of as max_contiguous
from tinyxla.jax.pallas.memory import (
    atomic_add as atomic_add,
    atomic_and as atomic_and,
    atomic_cas as atomic_cas,
    atomic_max as atomic_max,
    atomic_min as atomic_min,
    atomic_or as atomic_or,
    atomic_xchg as atomic_xchg,
    atomic_xor as atomic_xor,
    load as load,
    store as store,
)
from tinyxla.numpy import tanh as approx_tanh


def debug_barrier() -> None:
    """Wait for the threads of a program, which has one here."""


@dataclass(frozen=True)
class CompilerParams:
    """Parameters of Triton, the compiler of kernels for GPUs; interpreted kernels pass them by."""

    num_warps: int | None = None
    num_stages: int | None = None
