"""What JAX tells of the stages of a compiled function: types of arguments and results, and the jaxpr."""

from __future__ import annotations

from typing import Any

from tinyxla.jax.avals import ShapedArray
from tinyxla.jax.jaxprs import ClosedJaxpr
from tinyxla.jax.translation import of_computation
from tinyxla.tracing import pytrees


def _avals(tree: Any) -> Any:
    return pytrees.map_tree(lambda x: ShapedArray(x.shape, x.dtype, getattr(x, "weak_type", False)), tree)


def in_avals(stage: Any) -> Any:
    """`(args, kwargs)` with the abstract value of each array."""
    return _avals(stage.args_info)


def out_avals(stage: Any) -> Any:
    """The result with the abstract value of each array."""
    return _avals(stage.out_info)


def traced_jaxpr(stage: Any) -> ClosedJaxpr:
    """The jaxpr of a traced function."""
    program = stage._program
    made = program.computation
    jaxpr, constants = of_computation(
        made, len(made.parameters) - len(program.captured), stage.fun_name, list(program.weak)
    )
    return ClosedJaxpr(jaxpr, [*program.captured, *constants])


def cache_size(function: Any) -> int:
    """How many programs a compiled function has."""
    return len(function._programs)
