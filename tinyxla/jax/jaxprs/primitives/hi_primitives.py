"""Primitives whose rules are methods: `jax.experimental.hijax.VJPHiPrimitive`.

A call is that of a function with rules of its own: `vjp_fwd` and `vjp_bwd` in reverse mode, `jvp` (or `lin` and
`linearized`) in forward mode, and `batch` (or `batch_dim_rule`) under `vmap`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

from tinyxla.api.batching import vmap
from tinyxla.custom_batching import custom_vmap
from tinyxla.custom_derivatives import BoundCall, SymbolicZero, custom_jvp, custom_vjp
from tinyxla.jax.jaxprs.avals import AbstractValue
from tinyxla.numpy.manipulation import moveaxis
from tinyxla.tracing import pytrees
from tinyxla.transforms.computations import Mask
from tinyxla.transforms.custom import CustomJvp, CustomVjp, Lanes, Pullback, Values


class AxisData(NamedTuple):
    """The axis that `vmap` maps."""

    name: Hashable
    size: int
    spmd_name: Hashable
    explicit_mesh_axis: Hashable


class Accumulator:
    """The sum of the cotangents of an argument, of the type `aval`."""

    def __init__(self, aval: Any) -> None:
        self.aval = aval
        self.total: Any = None

    def accum(self, cotangent: Any) -> None:
        """Add a cotangent; None is zero."""
        if cotangent is not None:
            self.total = cotangent if self.total is None else self.total + cotangent


def _is_type(x: Any) -> bool:
    return isinstance(x, AbstractValue)


class VJPHiPrimitive:
    """A primitive for programs to derive from, with its types, parameters and rules.

    `__init__` sets `in_avals`, `out_aval` (pytrees of types) and `params`, which become attributes, too, and ends with
    `super().__init__()`.

    Raises:
        AttributeError: one of them is missing, or there are both `vjp_bwd` and `vjp_bwd_retval`.
    """

    in_avals: tuple[Any, ...]
    out_aval: Any
    params: dict[str, Any]
    effects: frozenset[Any] = frozenset()

    def __init__(self) -> None:
        for name in ("in_avals", "out_aval", "params"):
            if not hasattr(self, name):
                raise AttributeError(f"subclass __init__ should set `self.{name}`")
        if self.has("vjp_bwd") and self.has("vjp_bwd_retval"):
            raise AttributeError(
                f"subclass {type(self)} should not override both `vjp_bwd` and `vjp_bwd_retval`; keep one of them."
            )
        self.in_avals_flat, self.in_tree = pytrees.flatten(self.in_avals, is_leaf=_is_type)
        self.out_avals_flat, self.out_tree = pytrees.flatten(self.out_aval, is_leaf=_is_type)
        self.__dict__.update(self.params)
        self.check(*self.in_avals)

    def has(self, rule: str) -> bool:
        """Whether a rule is there."""
        return getattr(type(self), rule) is not getattr(VJPHiPrimitive, rule)

    def _missing(self, what: str, rules: str) -> NotImplementedError:
        return NotImplementedError(f"for {what} support, subclass {type(self)} must implement {rules}")

    def expand(self, *args: Any) -> Any:
        """The result."""
        raise NotImplementedError(f"subclass {type(self)} must implement `expand`")

    def vjp_fwd(self, nzs_in: Any, /, *args: Any) -> Any:
        """The result and residuals; `nzs_in` says which arguments derivatives are by."""
        raise self._missing("grad", "`vjp_fwd`")

    def vjp_bwd(self, res: Any, outgrad: Any, /, *arg_accums: Any) -> None:
        """Give the accumulators the arguments' cotangents."""
        for accumulator, given in zip(arg_accums, self.vjp_bwd_retval(res, outgrad), strict=True):
            pytrees.map_tree(lambda a, x: a and a.accum(x), accumulator, given, is_leaf=lambda x: x is None)

    def vjp_bwd_retval(self, res: Any, outgrad: Any, /) -> Any:
        """The arguments' cotangents, as a tuple."""
        raise self._missing("grad", "`vjp_bwd` or `vjp_bwd_retval`")

    def jvp(self, primals: Any, tangents: Any) -> Any:
        """The result and its tangent."""
        raise self._missing("jvp", "`jvp`")

    def lin(self, nzs_in: Any, *primals: Any) -> Any:
        """The result and residuals for `linearized`."""
        raise self._missing("linearize", "`lin` and `linearized`")

    def linearized(self, residuals: Any, *tangents: Any) -> Any:
        """The tangent of the result, which is linear in those of the arguments."""
        raise self._missing("linearize", "`lin` and `linearized`")

    def batch(self, axis_data: AxisData, args: Any, dims: Any) -> Any:
        """The results of all examples, and their mapped axes; `dims` are those of the arguments."""
        out_dim = self.batch_dim_rule(axis_data, dims)
        return vmap(self.expand, in_axes=dims, out_axes=out_dim)(*args), out_dim

    def batch_dim_rule(self, axis_data: AxisData, dims: Any, /) -> Any:
        """The mapped axes of the results."""
        raise self._missing("vmap", "`batch` or `batch_dim_rule`")

    def check(self, *arg_tys: Any) -> None:
        """Refuse types of arguments by an exception."""

    def __call__(self, *args: Any) -> Any:
        return _function(self)(*args)

    def __repr__(self) -> str:
        return f"{type(self).__name__}[{self.params}]"

    def __hash__(self) -> int:
        return hash((type(self).__name__, tuple(self.params.items()), self.effects))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, VJPHiPrimitive)
            and type(self) is type(other)
            and (self.params, self.effects) == (other.params, other.effects)
        )


@functools.lru_cache(1024)
def _function(primitive: VJPHiPrimitive) -> Callable[..., Any]:
    """The function with these rules."""
    inner = custom_vmap(lambda *args: primitive.expand(*args))

    def rule(size: int, batched: Sequence[Any], *args: Any) -> tuple[Any, Any]:
        dims = tuple(pytrees.map_tree(lambda is_mapped: 0 if is_mapped else None, x) for x in batched)
        result, axes = primitive.batch(AxisData(None, size, None, None), args, dims)
        leaves, tree = pytrees.flatten(result)
        places = pytrees.flatten(axes, is_leaf=lambda x: x is None)[0]
        if len(places) == 1:
            places *= len(leaves)
        moved = [moveaxis(x, d, 0) if d else x for x, d in zip(leaves, places, strict=True)]
        return pytrees.unflatten(tree, moved), pytrees.unflatten(tree, [d is not None for d in places])

    inner.def_vmap(rule)
    return _Function(primitive, inner)


class _Function(custom_vjp[..., Any]):
    """A function with rules for both modes."""

    def __init__(self, primitive: VJPHiPrimitive, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self.__name__ = type(primitive).__name__
        self._primitive = primitive
        self.defvjp(self._there, self._back, symbolic_zeros=True)
        self._forward = custom_jvp(function)
        self._forward.defjvp(self._push)

    def _there(self, *args: Any) -> Any:
        is_leaf = lambda x: hasattr(x, "perturbed")  # noqa: E731
        perturbed = pytrees.map_tree(lambda x: x.perturbed, args, is_leaf=is_leaf)
        values = pytrees.map_tree(lambda x: x.value, args, is_leaf=is_leaf)
        return self._primitive.vjp_fwd(perturbed, *values)

    def _back(self, residuals: Any, cotangent: Any) -> Any:
        zero = lambda x: isinstance(x, SymbolicZero)  # noqa: E731
        full = pytrees.map_tree(lambda x: x.instantiate() if zero(x) else x, cotangent, is_leaf=zero)
        types = [aval.to_tangent_aval() for aval in self._primitive.in_avals_flat]
        sums = pytrees.unflatten(self._primitive.in_tree, map(Accumulator, types))
        self._primitive.vjp_bwd(residuals, full, *sums)
        return pytrees.map_tree(lambda x: x.total, sums)

    def _push(self, primals: Any, tangents: Any) -> Any:
        primitive = self._primitive
        if not primitive.has("lin") or primitive.has("jvp"):
            return primitive.jvp(primals, tangents)
        result, residuals = primitive.lin(pytrees.map_tree(lambda _: True, primals), *primals)
        return result, primitive.linearized(residuals, *tangents)

    def _rule(self, call: BoundCall, leaves: Values) -> CustomVjp:
        made = super()._rule(call, leaves)
        given = {f.name: getattr(made, f.name) for f in fields(made) if f.init}
        forward = self._forward._rule(call, leaves)  # pyright: ignore[reportPrivateUsage]
        return _Rule(**given, in_forward_mode=forward, has_way_back=self._primitive.has("vjp_fwd"))


@dataclass(frozen=True, eq=False)
class _Rule(CustomVjp):
    """Rules for reverse mode, and those for forward mode."""

    in_forward_mode: CustomJvp = field(kw_only=True)
    has_way_back: bool = field(kw_only=True)  # else reverse mode transposes forward mode

    def forward(self, tangents: Values, *values: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        return self.in_forward_mode.forward(tangents, *values)

    def reverse(self, wanted: Mask, *values: Any) -> tuple[tuple[Any, ...], Pullback]:
        return (super() if self.has_way_back else self.in_forward_mode).reverse(wanted, *values)

    def batched(self, lanes: Lanes, axes: tuple[int | None, ...]) -> CustomVjp:
        return replace(super().batched(lanes, axes), in_forward_mode=self.in_forward_mode.batched(lanes, axes))
