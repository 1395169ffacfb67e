"""Primitives that programs define: their rules, and how calls of them are traced, differentiated and batched.

`Primitive.bind` looks at its operands as an op of this library does. Concrete arrays go to the implementation;
otherwise the call is one with a `Rule`, which finds the JVP, transpose, batching and lowering rules in the registries
below, under JAX's names.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from tinyxla.errors import ArgumentError, ConcretizationError, PlatformError
from tinyxla.jax.jaxprs.avals import UndefinedPrimal, Zero, get_aval, instantiate_zeros
from tinyxla.jax.jaxprs.traces.current_trace import ProgramTrace
from tinyxla.jax.jaxprs.traces.recording import region, vectorized
from tinyxla.numpy import broadcast_to, moveaxis as moveaxis, zeros
from tinyxla.ops.host.callback import callback
from tinyxla.ops.op import Axes
from tinyxla.shapes import Shape, element_type
from tinyxla.tracing.array import Array
from tinyxla.tracing.cache_keys import hashable
from tinyxla.tracing.core import innermost, state
from tinyxla.tracing.promotion import as_array, float0
from tinyxla.tracing.surroundings import surroundings
from tinyxla.transforms.computations import Mask, chosen, spread
from tinyxla.transforms.custom import Lanes, Pullback, Rule, Traced, Values, apply, transposed
from tinyxla.transforms.key_arrays import KeyArray
from tinyxla.transforms.reverse import is_inexact

RuleTable = dict[Any, Callable[..., Any]]

primitive_jvps: RuleTable = {}
primitive_transposes: RuleTable = {}
primitive_batchers: RuleTable = {}
axis_primitive_batchers: RuleTable = {}  # of rules that are also told the size and name of the axis
fancy_primitive_batchers: RuleTable = {}  # the same as one `AxisData`
lowerings: RuleTable = {}

not_mapped = None


class Primitive:
    """An operation with a name, whose rules are given one by one.

    Args:
        name: what it is called in jaxprs.

    Attributes:
        multiple_results: `bind` and the rules give lists of results.

    Example:
        >>> double_p = Primitive("double")
        >>> rule = double_p.def_impl(lambda x: 2 * x)
        >>> double_p.bind(3.0)
        6.0
    """

    multiple_results = False
    call_primitive = False
    map_primitive = False

    def __init__(self, name: str) -> None:
        self.name = name
        self.impl: Callable[..., Any] = self.apply_lowering
        self.abstract_eval: Callable[..., Any] | None = None

    def __repr__(self) -> str:
        return self.name

    @property
    def can_run(self) -> bool:
        """Whether there is an implementation or a lowering; linear primitives need none if they are transposed."""
        return self in lowerings or self.impl != self.apply_lowering or self.abstract_eval is None

    def apply_lowering(self, *args: Any, **params: Any) -> Any:
        """The results by the lowering rule."""
        lowering = lowerings.get(self)
        if lowering is not None:
            return _lowered(self, lowering, args, params)
        if state.staging is None:
            raise NotImplementedError(f"Evaluation rule for {self.name!r} not implemented; define one with def_impl.")
        if self.abstract_eval is None:
            raise NotImplementedError(
                f"Abstract evaluation for {self.name!r} not implemented; define it with def_abstract_eval."
            )
        return _called(self, args, params, _Unlowered(self))

    def def_impl(self, impl: Callable[..., Any]) -> Callable[..., Any]:
        """Set what computes the results for concrete arrays."""
        self.impl = impl
        return impl

    def def_abstract_eval(self, abstract_eval: Callable[..., Any]) -> Callable[..., Any]:
        """Set what gives the abstract values of the results for those of the operands."""
        self.abstract_eval = abstract_eval
        return abstract_eval

    def def_effectful_abstract_eval(self, abstract_eval: Callable[..., Any]) -> Callable[..., Any]:
        """The same, of a function that gives the effects beside the abstract values."""
        self.abstract_eval = lambda *avals, **params: abstract_eval(*avals, **params)[0]
        return abstract_eval

    def def_custom_bind(self, bind: Callable[..., Any]) -> Callable[..., Any]:
        """Set what a call does."""
        self.bind = bind
        return bind

    def get_bind_params(self, params: dict[str, Any]) -> dict[str, Any]:
        """The parameters that `bind` takes, for those of an equation."""
        return params

    def bind_with_trace(self, trace: ProgramTrace, args: Sequence[Any], avals: Sequence[Any], params: Any, /) -> Any:
        """The results for these operands where a trace is the current one."""
        return trace.process_primitive(self, args, params)

    def bind(self, *args: Any, **params: Any) -> Any:
        """The results for these operands."""
        if any(isinstance(x, KeyArray) for x in args):
            return self._bind_keys(args, params)
        if innermost(args) is None:
            return self.impl(*args, **params)
        values = [as_array(x, self.name) for x in args]
        outputs = apply(PrimitiveRule.of_call(self, len(values), params), *values)
        return list(outputs) if self.multiple_results else outputs[0]

    def _bind_keys(self, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        """The same where operands are random keys: the primitive is applied to their words, and is the same under
        vmap."""
        types = [x.dtype if isinstance(x, KeyArray) else None for x in args]
        words = [x.words if isinstance(x, KeyArray) else as_array(x, self.name) for x in args]
        if innermost(words) is None:
            return self.impl(*args, **params)
        made: list[Any] = []

        def function(*values: Any) -> list[Any]:
            given = [x if t is None else KeyArray(t, x) for x, t in zip(values, types, strict=True)]
            found = _lists(self, _staged(self, given, params))
            made[:] = [x.dtype if isinstance(x, KeyArray) else None for x in found]
            return [x.words if isinstance(x, KeyArray) else x for x in found]

        outputs = region(self, params, function, words, vectorized)
        results = [x if t is None else KeyArray(t, x) for x, t in zip(outputs, made, strict=True)]
        return results if self.multiple_results else results[0]


class AxisData(NamedTuple):
    """What rules in `fancy_primitive_batchers` are told of the mapped axis."""

    name: Any
    size: int
    spmd_name: Any = None
    explicit_mesh_axis: Any = None


@dataclass(frozen=True, eq=False, repr=False)
class PrimitiveRule(Rule):
    """A call of a primitive, as an op whose rules are those of the registries.

    `is_linear` marks one that is applied to tangents in the linear part of another rule, where the transpose rule is
    meant."""

    primitive: Primitive
    params: dict[str, Any]
    is_linear: bool = False
    has_derivatives: bool = field(default=True, init=False)

    @classmethod
    def of_call(cls, primitive: Primitive, count: int, params: dict[str, Any]) -> PrimitiveRule:
        key = (primitive, tuple((name, hashable(value)) for name, value in sorted(params.items())))

        def function(*values: Any) -> list[Any]:
            return _lists(primitive, _staged(primitive, values, params))

        return cls(primitive.name, key, count, function, primitive, params)

    def traced(self, shapes: Sequence[Shape], weak_types: Sequence[bool], known: dict[Any, Any]) -> Traced:
        """The lowering, which is traced once for operands of the same types."""
        key = self, *shapes, *weak_types, surroundings()
        found: Traced | None = known.get(key)
        if found is None:
            found = super().traced(shapes, weak_types, known)
            if not found[1]:  # it captured nothing of a trace that will end
                known[key] = found
        return found

    def linear(self) -> PrimitiveRule:
        return replace(self, is_linear=True)

    def _push(self, values: Values, tangents: Values) -> tuple[list[Any], list[Any]]:
        rule = primitive_jvps.get(self.primitive)
        if rule is None:
            raise NotImplementedError(
                f"Differentiation rule for {self.name!r} not implemented; define one in "
                "jax.interpreters.ad.primitive_jvps."
            )
        given = [
            Zero.from_primal_value(x) if t is None or not is_inexact(x) else t
            for x, t in zip(values, tangents, strict=True)
        ]
        outputs, moves = rule(tuple(values), tuple(given), **self.params)
        outputs = [as_array(x) for x in _lists(self.primitive, outputs)]
        moves = list(moves) if self.primitive.multiple_results and not isinstance(moves, Zero) else [moves]
        if len(moves) != len(outputs):
            moves = [moves[0]] * len(outputs)
        return outputs, [_tangent(t) for t in moves]

    def forward(self, tangents: Values, *values: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        outputs, moves = self._push(values, tangents)
        return tuple(outputs), tuple(moves)

    def reverse(self, wanted: Mask, *values: Any) -> tuple[tuple[Any, ...], Pullback]:
        has_transpose = self.primitive in primitive_transposes
        if has_transpose and (self.is_linear or self.primitive not in primitive_jvps):
            return self._transposed(wanted, values)
        try:
            outputs, pullback = transposed(lambda tangents: self._push(values, tangents), wanted, values)
        except RecursionError:  # the derivative is the primitive again
            raise NotImplementedError(
                f"Transpose rule (for reverse-mode differentiation) for {self.name!r} not implemented; define one in "
                "jax.interpreters.ad.primitive_transposes."
            ) from None
        return tuple(outputs), pullback

    def _transposed(self, wanted: Mask, values: Values) -> tuple[tuple[Any, ...], Pullback]:
        if self.is_linear and not self.primitive.can_run:  # the tangents are zeros here
            results = _avals_of_results(self.primitive, list(map(get_aval, values)), self.params)
            outputs = tuple(zeros(a.shape, a.dtype) for a in results)
        else:
            outputs = apply(replace(self, is_linear=False), *values)
        avals: list[Any] = [get_aval(x) for x in outputs]

        def pullback(cotangents: Any) -> list[Any]:
            given = [Zero(a) if g is None else g for g, a in zip(cotangents, avals, strict=True)]
            operands = [UndefinedPrimal(get_aval(x)) if w else x for x, w in zip(values, wanted, strict=True)]
            rule = primitive_transposes[self.primitive]
            found = rule(given if self.primitive.multiple_results else given[0], *operands, **self.params)
            if found is Zero or isinstance(found, Zero) or found is None:
                found = [None] * len(values)
            return spread(chosen(map(_tangent, found), wanted), wanted)

        return outputs, pullback

    def batch(self, lanes: Lanes, operands: tuple[Any, ...], axes: Axes) -> tuple[tuple[Any, ...], Axes]:
        axis = AxisData(lanes.names[0] if lanes.names else None, lanes.size)
        if self.primitive in fancy_primitive_batchers:
            rule = functools.partial(fancy_primitive_batchers[self.primitive], axis)
        elif self.primitive in axis_primitive_batchers:
            rule = functools.partial(axis_primitive_batchers[self.primitive], axis.size, axis.name, None)
        elif self.primitive in primitive_batchers:
            rule = primitive_batchers[self.primitive]
        else:
            raise NotImplementedError(
                f"Batching rule for {self.name!r} not implemented; define one in "
                "jax.interpreters.batching.primitive_batchers."
            )
        found, places = rule(tuple(operands), tuple(axes), **self.params)
        if not self.primitive.multiple_results:
            return (as_array(found),), (places,)
        outputs = tuple(map(as_array, found))
        return outputs, (places,) * len(outputs) if places is None or isinstance(places, int) else tuple(places)

    def batched(self, lanes: Lanes, axes: Axes) -> Rule:
        raise AssertionError("primitives are batched by their own rules")


def _lists(primitive: Primitive, found: Any) -> list[Any]:
    return list(found) if primitive.multiple_results else [found]


def _avals_of_results(primitive: Primitive, avals: Sequence[Any], params: dict[str, Any]) -> list[Any]:
    """The abstract values of a primitive's results, by its `abstract_eval`."""
    assert primitive.abstract_eval is not None
    found = primitive.abstract_eval(*avals, **params)
    if isinstance(found, list | tuple) != primitive.multiple_results:
        wanted = "a list" if primitive.multiple_results else "one aval"
        raise ArgumentError(
            f"{primitive.name}: abstract_eval must return {wanted}, since multiple_results is "
            f"{primitive.multiple_results}, but gave {found!r}."
        )
    return _lists(primitive, found)


def _tangent(t: Any) -> Any:
    """A tangent or cotangent as this library has it: None for zero."""
    if t is None or isinstance(t, Zero) or getattr(t, "dtype", None) == float0:
        return None
    return as_array(t)


def _staged(primitive: Primitive, values: Values, params: dict[str, Any]) -> Any:
    """The results of a primitive while a graph is recorded: of its lowering, or without one of its implementation. One
    that needs values, as NumPy's functions do, is called when the program runs."""
    lowering = lowerings.get(primitive)
    if lowering is not None:
        return _lowered(primitive, lowering, values, params)
    try:
        return primitive.impl(*values, **params)
    except ConcretizationError:
        if primitive.abstract_eval is None:
            raise
    return _called(primitive, values, params, _Implementation(primitive, params))


@dataclass(frozen=True, eq=False)
class _Implementation:
    """A primitive's implementation, of the values of arrays."""

    primitive: Primitive
    params: dict[str, Any]

    def __call__(self, values: Values, shapes: tuple[Shape, ...]) -> Any:
        found = _lists(self.primitive, self.primitive.impl(*values, **self.params))
        return [np.asarray(x, shape.dtype) for x, shape in zip(found, shapes, strict=True)]


@dataclass(frozen=True)
class _Unlowered:
    """Stands for a primitive with neither a lowering nor an implementation: transformations and jaxprs know what it
    gives, but nothing computes it."""

    primitive: Primitive

    def __call__(self, *ignored: Any) -> Any:
        raise NotImplementedError(
            f"MLIR translation rule for primitive {self.primitive.name!r} not found for platform cpu; define an "
            "implementation with def_impl."
        )


def _called(primitive: Primitive, values: Sequence[Any], params: dict[str, Any], function: Callable[..., Any]) -> Any:
    """Results of the types that the primitive's abstract evaluation gives, of a function of values."""
    avals = _avals_of_results(primitive, list(map(get_aval, values)), params)
    shapes = tuple(Shape(element_type(a.dtype), tuple(a.shape)) for a in avals)
    found = _typed_as(avals, callback(*map(as_array, values), function=function, shapes=shapes))
    return found if primitive.multiple_results else found[0]


def _typed_as(avals: Sequence[Any], outputs: Sequence[Any]) -> list[Any]:
    """Results that are weakly typed where the abstract values are."""
    return [
        x if isinstance(x, KeyArray) else as_array(x).with_weak_type(bool(getattr(a, "weak_type", False)))
        for x, a in zip(outputs, avals, strict=True)
    ]


def _lowered(primitive: Primitive, lowering: Callable[..., Any], values: Values, params: dict[str, Any]) -> Any:
    avals = [get_aval(x) for x in values]
    outputs = None if primitive.abstract_eval is None else _avals_of_results(primitive, avals, params)
    module = SimpleNamespace(platforms=("cpu",), add_keepalive=lambda kept: None)
    context = SimpleNamespace(primitive=primitive, avals_in=avals, avals_out=outputs, module_context=module)
    found = lowering(context, *values, **params)
    if outputs is not None:
        found = _typed_as(outputs, found)
    return list(found) if primitive.multiple_results else found[0]


# --- registering rules ------------------------------------------------------------------------------------------------


_PLATFORMS = ("cpu", "cuda", "gpu", "oneapi", "rocm", "tpu")


def register_lowering(
    prim: Primitive, rule: Callable[..., Any], platform: str | None = None, **ignored: Any
) -> Callable[..., Any]:
    """Set what a primitive is made of in compiled programs: a rule that `lower_fun` makes of a function, or one that
    calls such.

    Raises:
        PlatformError: an unknown platform.
    """
    if platform not in (None, *_PLATFORMS):
        raise PlatformError(
            f"register_lowering of {prim}: the platform is one of {', '.join(_PLATFORMS)}, but is {platform}."
        )
    if platform in (None, "cpu"):
        lowerings[prim] = rule
    return rule


def lower_fun(fun: Callable[..., Any], multiple_results: bool = True) -> Callable[..., list[Any]]:
    """A lowering rule of a function of arrays: what it does is recorded."""

    def rule(context: Any, *values: Any, **params: Any) -> list[Any]:
        found = fun(*values, **params)
        return list(found) if multiple_results else [found]

    return rule


def defjvp(primitive: Primitive, *jvps: Callable[..., Any] | None) -> None:
    """Set the JVP rule by a function `(tangent, *operands, **params)` for each operand (None: zero); they are added."""
    own = [None if f is None else lambda t, ans, *x, f=f, **params: f(t, *x, **params) for f in jvps]
    defjvp2(primitive, *own)


def defjvp2(primitive: Primitive, *jvps: Callable[..., Any] | None) -> None:
    """The same with functions `(tangent, result, *operands, **params)`."""

    def rule(primals: Any, tangents: Any, **params: Any) -> tuple[Any, Any]:
        ans = primitive.bind(*primals, **params)
        total: Any = None
        for f, t in zip(jvps, tangents, strict=True):
            if f is not None and not isinstance(t, Zero):
                part = f(t, ans, *primals, **params)
                total = part if total is None else total + part
        return ans, Zero.from_primal_value(ans) if total is None else total

    primitive_jvps[primitive] = rule


def deflinear(primitive: Primitive, transpose: Callable[..., Any]) -> None:
    """Set the rules of a primitive that is linear in all operands: `transpose(cotangent, **params)` gives a list."""
    deflinear2(primitive, lambda cotangent, *operands, **params: transpose(cotangent, **params))


def deflinear2(primitive: Primitive, transpose: Callable[..., Any]) -> None:
    """The same with `transpose(cotangent, *operands, **params)`, where operands are `UndefinedPrimal`."""

    def rule(primals: Any, tangents: Any, **params: Any) -> tuple[Any, Any]:
        ans = primitive.bind(*primals, **params)
        if all(isinstance(t, Zero) for t in tangents):
            zeros = [Zero.from_primal_value(x) for x in _lists(primitive, ans)]
            return ans, zeros if primitive.multiple_results else zeros[0]
        return ans, primitive.bind(*map(instantiate_zeros, tangents), **params)

    def back(cotangent: Any, *operands: Any, **params: Any) -> Any:
        whole = [*map(instantiate_zeros, cotangent)] if primitive.multiple_results else instantiate_zeros(cotangent)
        return transpose(whole, *operands, **params)

    primitive_jvps[primitive] = rule
    primitive_transposes[primitive] = back


def defbilinear(primitive: Primitive, left: Callable[..., Any], right: Callable[..., Any]) -> None:
    """Set the rules of a primitive that is linear in either operand: `left(cotangent, x, y)` and `right(...)` are the
    cotangents of the first and the second."""

    def back(cotangent: Any, x: Any, y: Any, **params: Any) -> tuple[Any, Any]:
        if isinstance(x, UndefinedPrimal):
            return left(cotangent, x, y, **params), None
        return None, right(cotangent, x, y, **params)

    defjvp(
        primitive,
        lambda t, x, y, **params: primitive.bind(t, y, **params),
        lambda t, x, y, **params: primitive.bind(x, t, **params),
    )
    primitive_transposes[primitive] = back


def defvectorized(primitive: Primitive) -> None:
    """Set the batching rule of a primitive that treats elements alike: all operands are mapped over one axis."""

    def rule(operands: Any, axes: Any, **params: Any) -> tuple[Any, Any]:
        return primitive.bind(*operands, **params), axes[0]

    primitive_batchers[primitive] = rule


def defbroadcasting(primitive: Primitive) -> None:
    """The same where some operands are not mapped: these are broadcast."""

    def rule(operands: Any, axes: Any, **params: Any) -> tuple[Any, Any]:
        rank = max(np.ndim(x) - (a is not None) for x, a in zip(operands, axes, strict=True))
        moved = [_leading(x, a, rank) for x, a in zip(operands, axes, strict=True)]
        return primitive.bind(*moved, **params), 0

    primitive_batchers[primitive] = rule


def _leading(x: Array, axis: int | None, rank: int) -> Any:
    from_front = x if axis is None else bdim_at_front(x, axis, x.shape[axis])
    if axis is None:
        return from_front
    return from_front.reshape(x.shape[axis], *(1,) * (rank - x.ndim + 1), *from_front.shape[1:])


def bdim_at_front(x: Any, axis: int | None, size: int) -> Any:
    """An array with the mapped axis first; one that is not mapped is repeated along it."""
    return broadcast_to(x, (size, *np.shape(x))) if axis is None else moveaxis(x, axis, 0)


def defreducer(primitive: Primitive, *ignored: Any) -> None:
    """Set the batching rule of a reduction over `axes`: these count without the mapped axis."""

    def rule(operands: Any, axes: Any, **params: Any) -> tuple[Any, Any]:
        (x,), (axis,) = operands, axes
        over = tuple(a + (a >= axis) for a in params.pop("axes"))
        return primitive.bind(x, axes=over, **params), axis - sum(a < axis for a in over)

    primitive_batchers[primitive] = rule
