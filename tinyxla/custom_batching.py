"""Functions whose batching the user gives: `custom_vmap` and `sequential_vmap`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tinyxla.api.functions import check_callable, name_of
from tinyxla.custom_derivatives import BoundCall, CustomFunction
from tinyxla.errors import ArgumentError, PytreeError, ShapeError
from tinyxla.lax.loops.control_flow import map_
from tinyxla.shapes import Shape
from tinyxla.tracing import pytrees
from tinyxla.tracing.signatures import P, R
from tinyxla.transforms.custom import CustomVmap, Values
from tinyxla.util.wrapping import wraps

Function = Callable[..., Any]


class custom_vmap(CustomFunction[P, R]):
    """A function that says itself what it is under `vmap`.

    The rule is set by `def_vmap` (also a decorator): `rule(axis_size, in_batched, *args)` gets the arguments, those
    that are mapped with the mapped axis first, and for each a pytree of bools that says which of its leaves are mapped;
    it gives the results of all examples and the like pytree of bools for them. Derivatives are those of the function.

    Example:
        >>> import tinyxla as tx
        >>> @tx.custom_batching.custom_vmap
        ... def f(x):
        ...     return x + 1
        >>> @f.def_vmap
        ... def rule(axis_size, in_batched, x):
        ...     return 10 * x, True
        >>> tx.vmap(f)(tx.numpy.array([1.0, 2.0]))
        Array([10., 20.], dtype=float32)
    """

    what = "custom_vmap"

    _setter = "def_vmap"
    _keeps_numbers = False

    def __init__(self, fun: Callable[P, R]) -> None:
        super().__init__(fun)  # without the arguments of the others

    def def_vmap(self, vmap_rule: Function) -> Function:
        """Set the rule.

        The rule takes the size of the mapped axis, for each argument whether it is batched, and the arguments; it gives
        the result and whether that is batched.

        Args:
            vmap_rule: the rule.

        Returns:
            The rule.

        Raises:
            ArgumentError: what is no function.

        >>> import tinyxla.numpy as jnp
        >>> import tinyxla
        >>> @tinyxla.custom_batching.custom_vmap
        ... def total(x):
        ...     return x.sum()
        >>> @total.def_vmap
        ... def rule(size, batched, x):
        ...     return x.sum(axis=-1), True
        >>> tinyxla.vmap(total)(jnp.ones((2, 3)))
        Array([3., 3.], dtype=float32)
        """
        check_callable(f"{self.__name__}.def_vmap", vmap_rule)
        self._rules = (vmap_rule,)
        return vmap_rule

    def _rule(self, call: BoundCall, leaves: Values) -> CustomVmap:
        shapes, weak = [Shape.of(x) for x in leaves], [x.weak_type for x in leaves]

        def rule(size: int, values: Values, mapped: Sequence[bool]) -> tuple[Values, Sequence[bool]]:
            (function,) = self._rules
            name = f"the rule {name_of(function)}"
            in_batched = list(pytrees.unflatten(call.tree, mapped))
            pair = function(size, in_batched, *pytrees.unflatten(call.tree, values))
            if not isinstance(pair, (tuple, list)) or len(pair) != 2:
                raise ArgumentError(f"{self}: {name} must give a pair (results, batched), but gives {pair!r}.")
            result, over = pair
            batched = pytrees.broadcast_prefix(over, result, f"{self}: what {name} says is batched")
            own = call.structure(shapes, weak)
            outputs = call.outputs(result)
            if call.result_tree != own:
                raise PytreeError(
                    f"{self}: {name} must give what has the structure of the function's result, "
                    f"{pytrees.structure_text(own)}, but gives {pytrees.structure_text(call.result_tree)}."
                )
            for x, is_batched in zip(outputs, batched, strict=True):
                if is_batched and x.shape[:1] != (size,):
                    raise ShapeError(
                        f"{self}: what the rule says is batched must have a first axis of the {size} examples, but a "
                        f"result is {Shape.of(x)}."
                    )
            return outputs, batched

        return CustomVmap(self.__name__, (call.key, self._rules), len(leaves), call.function, rule)


def sequential_vmap(f: Callable[P, R], *, lax_map: Function = map_) -> Callable[P, R]:
    """A function that under `vmap` runs for one example after the other, by `lax.map`.

    Args:
        f: a function of pytrees of arrays.
        lax_map: applies a function to the rows of a pytree of arrays, as `lax.map` does.

    Returns:
        A function of the same arguments.

    Raises:
        ArgumentError: what is no function.

    Example:
        >>> import tinyxla as tx
        >>> tx.vmap(tx.custom_batching.sequential_vmap(lambda x: x * x))(tx.numpy.array([1.0, 2.0]))
        Array([1., 4.], dtype=float32)
    """
    found: Any = custom_vmap(f)

    @found.def_vmap
    def rule(axis_size: int, in_batched: Sequence[Any], *args: Any) -> tuple[Any, Any]:
        leaves, tree = pytrees.flatten(args)
        mapped = pytrees.leaves(in_batched)

        def one(rows: Sequence[Any]) -> Any:
            given = iter(rows)
            whole = [next(given) if m else x for x, m in zip(leaves, mapped, strict=True)]
            return found(*pytrees.unflatten(tree, whole))

        result = lax_map(one, [x for x, m in zip(leaves, mapped, strict=True) if m])
        return result, True

    return wraps(f)(found)


__all__ = ["custom_vmap", "sequential_vmap"]


def __dir__() -> list[str]:
    return __all__
