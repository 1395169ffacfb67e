"""`jax._src.numpy.vectorize`: the parts that `jax.numpy.vectorize` has, for functions like it."""

from tinyxla.numpy.arguments import broadcast_shapes as _broadcast_shapes
from tinyxla.numpy.vectorization import (
    check_results as _check_results,
    check_sizes as _check_sizes,
    core_dimensions as _parse_gufunc_signature,
)


def _apply_excluded(func, excluded, args, kwargs):
    """The function of the arguments that are not excluded, and these."""

    def of_others(*given, **named):
        values = iter(given)
        whole = [x if k in excluded else next(values) for k, x in enumerate(args)]
        return func(*whole, *values, **{**kwargs, **named})

    others = [x for k, x in enumerate(args) if k not in excluded]
    return of_others, others, {name: x for name, x in kwargs.items() if name not in excluded}


def _parse_input_dimensions(args, input_core_dims, error_context=""):
    """The shape of the outer dimensions of arguments, and the sizes of the core dimensions by name."""
    if len(args) != len(input_core_dims):
        raise TypeError(
            f"wrong number of positional arguments: expected {len(input_core_dims)}, got {len(args)} {error_context}"
        )
    sizes = {}
    for x, names in zip(args, input_core_dims, strict=True):
        _check_sizes(f"the signature an argument {error_context}", names, x, sizes, exactly=False)
    outer = [x.shape[: x.ndim - len(names)] for x, names in zip(args, input_core_dims, strict=True)]
    return _broadcast_shapes("vectorize", *outer), sizes


def _check_output_dims(func, dim_sizes, expected_output_core_dims, error_context=""):
    """The function, whose results are checked for their core dimensions."""

    def checked(*args):
        found = func(*args)
        _check_results(error_context, expected_output_core_dims, found, dict(dim_sizes))
        return found

    return checked


__all__ = ["_apply_excluded", "_check_output_dims", "_parse_gufunc_signature", "_parse_input_dimensions"]
