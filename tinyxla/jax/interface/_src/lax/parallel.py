"""`jax._src.lax.parallel`: collectives, and those from and to one kind of values along axes."""

from tinyxla.lax import (
    all_gather as all_gather,
    all_to_all as all_to_all,
    axis_index as axis_index,
    pcast as pcast,
    pmax as pmax,
    pmean as pmean,
    pmin as pmin,
    ppermute as ppermute,
    psum as psum,
    psum as unreduced_psum,
    psum_scatter as psum_scatter,
    psum_scatter as unreduced_psum_scatter,
    pvary as pvary,
)


def preduced(x, axis_name):
    """A value that all devices have as one whose cotangent is unreduced."""
    return pcast(x, axis_name, to="reduced")


def vary_unreduced_cast(x, axis_name):
    """A value that varies as a summand of each device."""
    return pcast(x, axis_name, to="unreduced")


def all_gather_reduced(x, axis_name, *, axis=0, tiled=False):
    """The values of all devices, whose cotangent is unreduced."""
    return all_gather(x, axis_name, axis=axis, tiled=tiled, to="reduced")


def all_gather_invariant(x, axis_name, *, axis=0, tiled=False):
    """The values of all devices, known to be the same on all."""
    return all_gather(x, axis_name, axis=axis, tiled=tiled, to="invarying")


__all__ = [
    "all_gather",
    "all_gather_invariant",
    "all_gather_reduced",
    "all_to_all",
    "axis_index",
    "pcast",
    "pmax",
    "pmean",
    "pmin",
    "ppermute",
    "preduced",
    "psum",
    "psum_scatter",
    "pvary",
    "unreduced_psum",
    "unreduced_psum_scatter",
    "vary_unreduced_cast",
]
