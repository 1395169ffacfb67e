"""Functions with rules of their own for derivatives and batching.

A `Rule` is a function of flat lists of values, with what stands in for the rules of the ops in it. `apply` treats it as
an op: a trace that carries values asks it for the rule that it needs, and runs that on the values it carries; one that
records a graph writes a call of the function's computation that keeps the rule, for transformations of the graph.

Tangents and cotangents are None where they are zero for sure; rules may give None, too.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple

from tinyxla.errors import ClosedOverTracerError, DifferentiationError
from tinyxla.hlo import Computation, map_computations
from tinyxla.ops import dynamic_slices, elementwise, movement, reduction
from tinyxla.ops.op import OWN, Axes, Bilinear, Joint, Partials
from tinyxla.shapes import Shape, element_type
from tinyxla.tracing.closures import reaches_tracer
from tinyxla.tracing.config import config
from tinyxla.tracing.core import CarryingTracer, GraphTrace, Interpreted, Tracer, innermost, state, trace
from tinyxla.transforms.batch import BatchTrace, active, batch
from tinyxla.transforms.calls import call, closed_over_error, has_rules, unsummed_error
from tinyxla.transforms.computations import Mask, chosen, flowing, leading, run, spread, with_parameters
from tinyxla.transforms.forward import TangentTracer, jvp
from tinyxla.transforms.reverse import PartialPullback, TapeTrace, TapeTracer, is_inexact, vjp, zeros_like

Values = Sequence[Any]
Pullback = Callable[[Any], list[Any]]
Traced = tuple[Computation, list[Any], list[bool]]  # a computation, what it captured, which results are weakly typed


@dataclass(frozen=True, eq=False, repr=False)
class Rule:
    """A function whose derivatives and batching are its own matter; unless a subclass says so they are what its ops
    give.

    `key` tells rules apart: those with equal keys stand for the same, so that graphs traced again are equal. What
    stands in may use all named axes that are there when the function is called, and is mapped where these are.
    """

    name: str
    key: Any
    count: int  # of values
    function: Callable[..., Sequence[Any]]
    has_derivatives: bool = field(default=False, init=False)  # of its own
    has_batching: bool = field(default=False, init=False)  # of its own
    maps_zeros: bool = field(default=False, init=False)  # whether cotangents may come of ones that are zero
    gives_cotangents: bool = field(default=False, init=False)  # of its values as they are, not by a transpose
    closes_over_tracers: bool = field(
        default=False, init=False
    )  # of a `vmap` around, whether or not operands are mapped
    looks_at: tuple[Any, ...] = field(default=(), kw_only=True)  # functions of the user's that stand in, for closures
    closed: int = field(default=0, kw_only=True)  # operands of its call, the last ones, that these close over
    axes: tuple[Hashable, ...] = field(default_factory=lambda: tuple(state.axes), kw_only=True)
    own: tuple[Hashable, ...] = field(default=(), kw_only=True)  # of `axes`: the names of the axis that is mapped

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rule) and (self.key, self.axes, self.own) == (other.key, other.axes, other.own)

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name})"

    @property
    def has_tangents(self) -> bool:
        """Whether its derivative in forward mode is its own."""
        return self.has_derivatives

    @property
    def axis_names(self) -> frozenset[Hashable]:
        return frozenset(self.axes)

    def lanes(self, size: int) -> Lanes:
        """The axis that is mapped."""
        return Lanes(size, self.own)

    def with_own_axis(self, name: Hashable) -> Rule:
        return replace(self, axes=(*self.axes, OWN), own=(name, OWN))

    @property
    def derivative(self) -> Joint:
        return Joint(self.forward, self.reverse, symbolic_zeros=True)

    def forward(self, tangents: Values, *values: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Results and their tangents."""
        outputs, moves = jvp(self.function, values, tangents)
        return tuple(outputs), tuple(moves)

    def reverse(self, wanted: Mask, *values: Any) -> tuple[tuple[Any, ...], Pullback]:
        """Results, and the map from their cotangents to those of the values that are wanted."""
        outputs, pullback = vjp(lambda *moved: self.function(*spread(moved, wanted, values)), chosen(values, wanted))
        return tuple(outputs), PartialPullback(lambda g: spread(pullback(g), wanted), pullback.flows)

    def flows(self, computation: Computation, wanted: Mask) -> Mask | None:
        """Which results of a recorded call derivatives flow to from the operands that are wanted; None: that is not
        known."""
        return None if self.has_derivatives else flowing(computation, wanted)

    def batched(self, lanes: Lanes, axes: Axes) -> Rule:
        """The same mapped over these axes of the values, and over the first one of all results."""
        raise NotImplementedError

    def batch(self, lanes: Lanes, operands: tuple[Any, ...], axes: Axes) -> tuple[tuple[Any, ...], Axes]:
        """The results of the function mapped over axes of the operands, and their mapped axes."""
        if self.closes_over_tracers and all(axis is None for axis in axes):
            lanes.is_mapped.clear()
        mapped = self.batched(lanes, axes)
        others = tuple(name for name in self.axes if name not in lanes.names)
        outputs = apply(replace(mapped, axes=others, own=()), *operands)
        return outputs, (0 if lanes.is_mapped[0] else None,) * len(outputs)

    def over(self, size: int, axes: Axes) -> Rule | None:
        """The rule of a call that is mapped over these axes of its operands, of those that the function captured, too;
        and over the first one of all results."""
        if not self.closes_over_tracers:
            return None
        own = (*axes[: self.count], *axes[len(axes) - self.closed :])
        whole = replace(self, count=len(own), closed=0)
        others = tuple(name for name in self.axes if name not in self.own)
        mapped = whole.batched(self.lanes(size), own)
        return replace(mapped, count=self.count, closed=self.closed, axes=others, own=())

    def closing(self, shapes: Sequence[Shape], weak_types: Sequence[bool]) -> tuple[Rule, Sequence[Any]]:
        """The rule of a call that is recorded, and the traced arrays from around that it closes over: these are further
        values, by which there are no derivatives."""
        return self, ()

    def captured(self, operands: Sequence[Any]) -> Sequence[Any]:
        """Of what belongs to the operands of a recorded call, that of those which the function captured."""
        return operands[self.count : len(operands) - self.closed]

    def bound(self, closed: Values) -> Rule:
        """The rule with these values in the place of what it closes over."""
        return self

    def traced(self, shapes: Sequence[Shape], weak_types: Sequence[bool], known: dict[Any, Any]) -> Traced:
        """The function as a computation. `known` are those that the traces around have."""
        return trace(self.function, shapes, self.name, weak_types)

    def linear(self) -> Rule | None:
        """The rule that counts where the function is applied to tangents in the linear part of another rule; None: the
        ops of the function count."""
        return self

    def of(self, computation: Computation, captured: Values) -> Rule:
        """The rule of a recorded call: its function is the computation, which also takes what the function captured."""
        return self.with_function(lambda *values: run(computation, [*values, *captured]), captured)

    def with_function(self, function: Callable[..., Sequence[Any]], captured: Values) -> Rule:
        """The rule of a recorded call, of these operands besides its own, with another function."""
        return replace(self.bound(captured[len(captured) - self.closed :]), function=function, closed=0)


def apply(rule: Rule, *values: Any) -> tuple[Any, ...]:
    """The results of a function with rules of its own."""
    owner = innermost(values)
    if owner is None or owner.level < 0:  # outside of all traces
        outputs = tuple(rule.function(*values))
        if rule.closes_over_tracers:
            _check_undifferentiated(rule, outputs, -1)
        return outputs
    if rule.closes_over_tracers and active.innermost is not None and active.innermost.level > owner.level:
        owner = active.innermost
    if isinstance(owner, BatchTrace):
        return _apply_batched(rule, owner, values)
    if not isinstance(owner, GraphTrace):
        outputs = owner.record(rule, values, {})  # type: ignore[arg-type] - a rule has what a trace needs of an op
        if rule.closes_over_tracers:
            _check_undifferentiated(rule, outputs, owner.level)
        return outputs
    weak = [x.weak_type for x in values]
    shapes = [Shape.of(x) for x in values]
    made, captured, weakness = rule.traced(shapes, weak, owner.recordings)
    if rule.looks_at and reaches_tracer(rule.looks_at, owner.level):
        rule, closed = _closing(rule, shapes, weak, owner.level)
        made = with_parameters(made, [*made.parameter_shapes, *map(Shape.of, closed)], keeps_unused=True)
        captured = [*captured, *closed]
    outputs = call(*values, *captured, to_apply=made, rule=rule)
    return tuple(x.with_weak_type(w) for x, w in zip(outputs, weakness, strict=True))


class _Closing(threading.local):
    keys: tuple[Any, ...] = ()  # of rules that are traced for what they close over, in each other


_closing_now = _Closing()
_MAX_ORDER = 2  # a rule that calls its own function closes over the same again: there are so many derivatives


def _closing(
    rule: Rule, shapes: Sequence[Shape], weak: Sequence[bool], level: int
) -> tuple[Rule, Sequence[Interpreted]]:
    """The rule of a call that is recorded at this level, and what it closes over: nothing, if it cannot be traced for
    derivatives by all arguments. It may refuse some of them, and is not asked for any so far."""
    outer = _closing_now.keys
    if outer.count(rule.key) == _MAX_ORDER:
        return rule, ()
    try:
        _closing_now.keys = (*outer, rule.key)
        found, closed = rule.closing(shapes, weak)
    except Exception:
        return rule, ()
    finally:
        _closing_now.keys = outer
    return (found, closed) if all(x.owner.level <= level for x in closed) else (rule, ())


def _check_undifferentiated(rule: Rule, outputs: Sequence[Any], level: int) -> None:
    """An error for results that depend on a tracer of a derivative other than through the arguments."""
    for x in outputs:
        inner = x.carried if isinstance(x, CarryingTracer) and x.owner.level == level else x
        if isinstance(inner, TapeTracer | TangentTracer) and inner.owner.level > level:
            raise closed_over_error(rule.name)


def _apply_batched(rule: Rule, owner: BatchTrace, values: Sequence[Any]) -> tuple[Any, ...]:
    pairs = [owner.split(x) for x in values]
    outer = active.innermost
    try:
        active.innermost = owner.enclosing
        inner, axes = tuple(x for x, _ in pairs), tuple(axis for _, axis in pairs)
        outputs, places = rule.batch(Lanes(owner.size, tuple(owner.names), owner), inner, axes)
    finally:
        active.innermost = outer
    return tuple(map(owner.join, outputs, places))


@dataclass(frozen=True)
class Lanes:
    """A mapped axis: its size, the names that it has inside, and the trace whose tracers functions may close over."""

    size: int
    names: tuple[Any, ...]
    trace: BatchTrace | None = field(default=None, compare=False)
    is_mapped: list[bool] = field(default_factory=lambda: [True], compare=False)  # whether results are; [] if unknown

    def map(self, function: Callable[[Values], Values], values: Values, axes: Sequence[int | None]) -> _Mapped:
        """A function of a list mapped over axes of its values; these and the results may be None."""
        present = [x is not None for x in values]
        flows: list[bool] = []

        def flat(*inputs: Any) -> list[Any]:
            found = function(spread(inputs, present))
            flows.extend(x is not None for x in found)
            return chosen(found, flows)

        inputs = chosen(values, present)
        pairs = batch(flat, self.size, inputs, chosen(axes, present), *self.names, trace=self.trace)
        return _Mapped(self.size, spread((x for x, _ in pairs), flows), spread((a for _, a in pairs), flows))

    def mapped(self, function: Callable[..., Values], axes: Axes) -> Callable[..., Values]:
        """A function mapped over axes of its arguments, and over the first one of its results."""
        return lambda *values: self.results(self.map(lambda inputs: function(*inputs), values, axes))

    def results(self, found: _Mapped, count: int | None = None) -> list[Any]:
        """The first `count`, with the mapped axis first, unless what ran first has no mapped argument or result."""
        over = any(axis is not None for axis in found.axes)
        if not self.is_mapped:
            self.is_mapped.append(over)
        if self.is_mapped[0]:
            return _Mapped(self.size, found.values[:count], found.axes[:count]).first
        if over:
            raise ClosedOverTracerError(
                "The rule of a custom_jvp or custom_vjp function closes over an array that is mapped by vmap, but the "
                "function itself does not; pass the array as an argument.",
                state.source,
            )
        return list(found.values[:count])


class _Mapped(NamedTuple):
    size: int
    values: Values
    axes: Sequence[int | None]

    @property
    def first(self) -> list[Any]:
        """With the mapped axis first."""
        return [self._at(x, a, 0) for x, a in zip(self.values, self.axes, strict=True)]

    def gathered(self, wanted: Axes) -> list[Any]:
        """As cotangents of values that are mapped over those axes, or the same for all lanes: then of all together."""
        return [
            self._at(x, a, to) if to is not None or x is None else reduction.reduce_sum(self._at(x, a, 0), (0,))
            for x, a, to in zip(self.values, self.axes, wanted, strict=True)
        ]

    def _at(self, x: Any, axis: int | None, to: int | None) -> Any:
        return None if x is None else movement.align_axis(x, axis, to or 0, self.size)


class LinearTracer(TapeTracer):
    """A tangent in a rule. The value that it carries is zero, not the tangent's, which is unknown."""

    __slots__ = ()

    primal = Tracer.concrete
    __str__ = Tracer.__repr__


_NOT_LINEAR = (elementwise.abs_, elementwise.sign, elementwise.compare)  # besides ops with partial derivatives


class LinearTape(TapeTrace):
    """The tape of what a rule does with tangents. All of that is linear and gets transposed, so that functions stand
    for themselves there, without `CustomJvp` rules: a rule may apply its own function to a tangent."""

    what = "the linear part of a custom rule (its tangents)"

    def track(self, value: Any) -> LinearTracer:
        return LinearTracer(self, value, super().track(value).number)

    def record(self, op: Any, operands: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
        rule: Any = op
        if isinstance(op, Rule):
            rule = op.linear()
            if rule is None or not rule.has_derivatives:
                return tuple(op.function(*operands))
        self._check_linear(op, [self.number(x) is not None for x in operands])
        return super().record(rule, operands, _with_linear_rules(attributes))

    def _check_linear(self, op: Any, tracked: Sequence[bool]) -> None:
        """An error for an op that is not linear in the tangents: at zero, the value that they carry, its derivative
        would be that of another function."""
        count, derivative = sum(tracked), op.derivative
        if isinstance(derivative, Bilinear) or op in (elementwise.mul, elementwise.chain_mul):
            linear = count <= 1
        elif op in (elementwise.div, elementwise.chain_div):
            linear = not tracked[1]
        elif op in (elementwise.add, elementwise.sub):
            linear = True
        else:
            linear = not count or not (isinstance(derivative, Partials) or op in _NOT_LINEAR)
        if not linear:
            raise DifferentiationError(
                f"custom_jvp: {op.name} of a tangent is not linear, so that the rule has no transpose for a gradient; "
                "let the rule multiply tangents by derivatives, or give a custom_vjp rule.",
                state.source,
            )


def _with_linear_rules(attributes: dict[str, Any]) -> dict[str, Any]:
    """Attributes with the rules of calls replaced by those that count in a linear part."""
    found = map_computations(attributes, linear_part) if attributes else attributes
    rule = found.get("rule")
    return found if rule is None else {**found, "rule": rule.linear()}


@lru_cache(1024)
def linear_part(computation: Computation) -> Computation:
    """The computation with the rules of calls in it replaced."""
    if not has_rules(computation):
        return computation
    made, _ = computation.copy()
    for x in made.instructions:
        x.attributes = x.attributes._replace(**_with_linear_rules(x.attributes._asdict()))
    return made


class _Transposing(threading.local):
    depth = 0  # functions of tangents that are being recorded to be transposed, in each other


_transposing = _Transposing()


def transposed(
    push: Callable[[Values], tuple[Values, Values]], wanted: Mask, values: Values
) -> tuple[list[Any], Pullback]:
    """What a function of tangents of the values gives besides the tangents of its results, in which it is linear; and
    the way back, from cotangents of the results to those of the values that are wanted."""
    found: list[Any] = []
    moving: list[bool] = []

    def linear(*tangents: Any) -> list[Any]:
        outputs, moves = push(spread(tangents, wanted))
        found.extend(outputs)
        moving.extend(t is not None and is_inexact(t) for t in moves)
        return chosen(moves, moving)

    try:
        _transposing.depth += 1
        _, pullback = vjp(linear, [zeros_like(x) for x in chosen(values, wanted)], LinearTape())
    finally:
        _transposing.depth -= 1
    return found, lambda g: spread(pullback(chosen(g, moving)), wanted)


@dataclass(frozen=True, eq=False, repr=False)
class CustomJvp(Rule):
    """`push(values, tangents)` gives results and tangents. It is linear in the tangents, so that the way back is its
    transpose."""

    push: Callable[[Values, Values], tuple[Values, Values]]
    symbolic_zeros: bool = False  # whether the user's rule is given `SymbolicZero` objects
    has_derivatives: bool = field(default=True, init=False)
    closes_over_tracers: bool = field(default=True, init=False)

    def linear(self) -> Rule | None:
        return None

    def forward(self, tangents: Values, *values: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        outputs, moves = self.push(values, tangents)
        return tuple(outputs), tuple(moves)

    def reverse(self, wanted: Mask, *values: Any) -> tuple[tuple[Any, ...], Pullback]:
        moving: list[bool] = []

        def push(tangents: Values) -> tuple[Values, Values]:
            outputs, moves = self.push(values, tangents)
            moving.extend(t is not None for t in moves)
            return outputs, moves

        outputs, pullback = transposed(push, wanted, values)
        return tuple(outputs), PartialPullback(pullback, moving)

    def batched(self, lanes: Lanes, axes: Axes) -> CustomJvp:
        def push(values: Values, tangents: Values) -> tuple[Values, Values]:
            def flat(inputs: Values) -> Values:
                outputs, moves = self.push(inputs[: self.count], inputs[self.count :])
                return [*outputs, *moves]

            found = lanes.results(lanes.map(flat, [*values, *tangents], [*axes, *axes]))
            return found[: len(found) // 2], found[len(found) // 2 :]

        return replace(self, key=(self.key, lanes, axes), function=lanes.mapped(self.function, axes), push=push)

    def closing(self, shapes: Sequence[Shape], weak_types: Sequence[bool]) -> tuple[Rule, Sequence[Any]]:
        moves = tuple(map(is_inexact, shapes))
        flows: list[bool] = []

        def flat(*inputs: Any) -> Values:
            outputs, found = self.push(inputs[: self.count], spread(inputs[self.count :], moves))
            flows[:] = [t is not None for t in found]
            return [*outputs, *chosen(found, flows)]

        taken = [*shapes, *chosen(shapes, moves)]
        made, closed, _ = trace(flat, taken, self.name, [*weak_types, *chosen(weak_types, moves)])
        if not closed:
            return self, ()

        def push(values: Values, tangents: Values) -> tuple[Values, Values]:
            own = values[: self.count]
            given = [zeros_like(x) if t is None else t for x, t in zip(own, tangents, strict=False)]
            found = run(made, [*own, *chosen(given, moves), *values[self.count :]])
            return found[: len(flows)], spread(found[len(flows) :], flows)

        return replace(self, key=(self.key, made), push=push, closed=len(closed)), closed

    def only(self, used: Mask) -> CustomJvp:
        """The same of those results that are used."""

        def push(values: Values, tangents: Values) -> tuple[Values, Values]:
            outputs, moves = self.push(values, tangents)
            return chosen(outputs, used), chosen(moves, used)

        function = lambda *values: chosen(self.function(*values), used)  # noqa: E731
        return replace(self, key=(self.key, used), function=function, push=push)

    def bound(self, closed: Values) -> Rule:
        if not self.closed:
            return self
        without = [None] * self.closed
        return replace(self, push=lambda values, tangents: self.push([*values, *closed], [*tangents, *without]))


@dataclass(frozen=True, eq=False, repr=False)
class Implicit(Rule):
    """A function whose derivatives follow from its results, however these were found.

    `push(values, results, tangents)` gives the tangents of the results. `pull(values, results, cotangents)` gives the
    cotangents of the values; without it they are the transpose of `push`.
    """

    push: Callable[[Values, Values, Values], Values]
    pull: Callable[[Values, Values, Values], Values] | None = None
    has_derivatives: bool = field(default=True, init=False)

    def forward(self, tangents: Values, *values: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        outputs = apply(self, *values)
        return outputs, tuple(self.push(values, outputs, tangents))

    def reverse(self, wanted: Mask, *values: Any) -> tuple[tuple[Any, ...], Pullback]:
        outputs = apply(self, *values)
        pull = self.pull
        if pull is None:
            return outputs, transposed(lambda t: ((), self.push(values, outputs, t)), wanted, values)[1]
        return outputs, lambda g: spread(chosen(pull(values, outputs, g), wanted), wanted)

    def batched(self, lanes: Lanes, axes: Axes) -> Implicit:
        def over(rule: Any, values: Values, outputs: Values, given: Values, places: Axes) -> _Mapped:
            first, second = len(values), len(values) + len(outputs)
            return lanes.map(
                lambda x: rule(x[:first], x[first:second], x[second:]),
                [*values, *outputs, *given],
                [*axes, *(0 for _ in outputs), *places],
            )

        def push(values: Values, outputs: Values, tangents: Values) -> Values:
            return over(self.push, values, outputs, tangents, axes).first

        def pull(values: Values, outputs: Values, cotangents: Values) -> Values:
            return over(self.pull, values, outputs, cotangents, (0,) * len(outputs)).gathered(axes)

        return replace(
            self,
            key=(self.key, lanes, axes),
            function=lanes.mapped(self.function, axes),
            push=push,
            pull=None if self.pull is None else pull,
        )


@dataclass(frozen=True, eq=False, repr=False)
class CustomVjp(Rule):
    """`there(wanted, values)` gives results, what the way back needs (a list), and whatever else it needs; and
    `back(rest, residuals, cotangents)`, which is linear in the cotangents, those of the values."""

    there: Callable[[Mask, Values], tuple[Values, Values, Any]]
    back: Callable[[Any, Values, Values], Values]
    has_derivatives: bool = field(default=True, init=False)
    maps_zeros: bool = field(default=True, init=False)
    gives_cotangents: bool = field(default=True, init=False)
    closes_over_tracers: bool = field(default=True, init=False)

    def forward(self, tangents: Values, *values: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """The derivative forward is the transpose of the way back."""
        if config.custom_vjp_forward_mode == "refuse" and not _transposing.depth:
            raise DifferentiationError(
                f"{self.name}: a custom_vjp function has no derivative in forward mode (jvp, jacfwd, hessian) where "
                "custom_vjp_forward_mode is 'refuse'; differentiate it by grad, vjp or jacrev, or give it a rule by "
                "custom_jvp.",
                state.source,
            )
        given = tuple(t is not None for t in tangents)
        outputs, residuals, rest = self.there(given, values)
        inexact = tuple(map(is_inexact, outputs))
        _, transpose = transposed(
            lambda cotangents: ((), chosen(self.back(rest, residuals, cotangents), given)), inexact, outputs
        )
        return tuple(outputs), tuple(transpose(chosen(tangents, given)))

    def reverse(self, wanted: Mask, *values: Any) -> tuple[tuple[Any, ...], Pullback]:
        outputs, residuals, rest = self.there(wanted, values)

        def pull(g: Any) -> list[Any]:
            found = chosen(self.back(rest, residuals, g), wanted)
            if state.manual is not None:
                for x, cotangent in zip(chosen(values, wanted), found, strict=True):
                    if beyond := state.manual.wrong_axes(cotangent, x):
                        raise unsummed_error(f"{self.name}: the backward rule", Shape.of(cotangent), beyond)
            return spread(found, wanted)

        return tuple(outputs), pull

    def batched(self, lanes: Lanes, axes: Axes) -> CustomVjp:
        def there(wanted: Mask, values: Values) -> tuple[Values, Values, Any]:
            kept: list[Any] = []

            def flat(inputs: Values) -> Values:
                outputs, residuals, rest = self.there(wanted, inputs)
                kept.extend((len(outputs), rest))
                return [*outputs, *residuals]

            found = lanes.map(flat, values, axes)
            count, rest = kept
            outputs = lanes.results(found, count)
            return outputs, found.values[count:], (rest, tuple(found.axes[count:]))

        def back(rest: Any, residuals: Values, cotangents: Values) -> Values:
            inner, places = rest
            count = len(residuals)
            axis = 0 if lanes.is_mapped[0] else None
            found = lanes.map(
                lambda x: self.back(inner, x[:count], x[count:]),
                [*residuals, *cotangents],
                [*places, *(axis for _ in cotangents)],
            )
            return found.gathered(axes) if lanes.is_mapped[0] else lanes.results(found)

        key = (self.key, lanes, axes)
        return replace(self, key=key, function=lanes.mapped(self.function, axes), there=there, back=back)

    def closing(self, shapes: Sequence[Shape], weak_types: Sequence[bool]) -> tuple[Rule, Sequence[Any]]:
        kept: list[Any] = []
        flows: list[bool] = []

        def flat_there(*values: Any) -> Values:
            outputs, residuals, rest = self.there(tuple(map(is_inexact, values)), values)
            kept[:] = [len(outputs), rest]
            return [*outputs, *residuals]

        def flat_back(*inputs: Any) -> Values:
            found = self.back(
                kept[1], inputs[: len(inputs) - sum(seeds)], spread(inputs[len(inputs) - sum(seeds) :], seeds)
            )
            flows[:] = [x is not None for x in found]
            return chosen(found, flows)

        forth, around_forth, _ = trace(flat_there, shapes, self.name, weak_types)
        results = [x.array_shape for x in forth.outputs]
        outputs, residuals = results[: kept[0]], results[kept[0] :]
        seeds = tuple(map(is_inexact, outputs))
        pulled, around_back, _ = trace(flat_back, [*residuals, *chosen(outputs, seeds)], self.name)
        closed = [*around_forth, *around_back]
        if not closed:
            return self, ()

        def there(wanted: Mask, values: Values) -> tuple[Values, Values, Any]:
            first = self.count + len(around_forth)
            found = run(forth, values[:first])
            return found[: len(outputs)], [*found[len(outputs) :], *values[first:]], None

        def back(rest: Any, kept: Values, cotangents: Values) -> Values:
            own, around = kept[: len(residuals)], kept[len(residuals) :]
            pairs = chosen(zip(outputs, cotangents, strict=True), seeds)
            given = [movement.full(0, s.dtype, s.dimensions) if c is None else c for s, c in pairs]
            return [*spread(run(pulled, [*own, *given, *around]), flows), *[None] * len(closed)]

        return replace(self, key=(self.key, forth, pulled), there=there, back=back, closed=len(closed)), closed

    def only(self, used: Mask) -> CustomVjp:
        """The same of those results that are used."""

        def there(wanted: Mask, values: Values) -> tuple[Values, Values, Any]:
            outputs, residuals, rest = self.there(wanted, values)
            return chosen(outputs, used), residuals, rest

        function = lambda *values: chosen(self.function(*values), used)  # noqa: E731
        back = lambda rest, residuals, g: self.back(rest, residuals, spread(g, used))  # noqa: E731
        return replace(self, key=(self.key, used), function=function, there=there, back=back)

    def bound(self, closed: Values) -> Rule:
        if not self.closed:
            return self
        without = (False,) * self.closed
        return replace(
            self,
            there=lambda wanted, values: self.there((*wanted, *without), [*values, *closed]),
            back=lambda rest, residuals, cotangents: self.back(rest, residuals, cotangents)[: self.count],
        )


def _with_tangents(function: Callable[..., Values], values: Values, tangents: Values) -> list[Any]:
    """The results of a function and the tangents of all of them, zeros where there is none."""
    outputs, moves = jvp(function, values, tangents)
    return [*outputs, *(zeros_like(x) if t is None else t for x, t in zip(outputs, moves, strict=True))]


def _row(x: Any, number: Any) -> Any:
    zero = movement.full(0, number.dtype, ())
    row = dynamic_slices.dynamic_slice(x, number, *[zero] * (x.ndim - 1), dynamic_slice_sizes=(1, *x.shape[1:]))
    return movement.reshape_to(row, x.shape[1:])


@dataclass(frozen=True, eq=False, repr=False)
class LinearCall(Rule):
    """A function that is linear in its values from number `residuals` on; `transpose` takes the values before these and
    cotangents of the results, and gives the cotangents of the others. The transpose is such a call, too."""

    residuals: int
    transpose: Callable[..., Values]
    has_derivatives: bool = field(default=True, init=False)

    def forward(self, tangents: Values, *values: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        self._check_residuals([t is not None for t in tangents])
        constants, linear = values[: self.residuals], values[self.residuals :]
        moving = [zeros_like(x) if t is None else t for x, t in zip(linear, tangents[self.residuals :], strict=True)]
        return apply(self, *values), apply(self, *constants, *moving)

    def reverse(self, wanted: Mask, *values: Any) -> tuple[tuple[Any, ...], Pullback]:
        self._check_residuals(wanted)
        outputs = apply(self, *values)
        constants = values[: self.residuals]
        back = replace(
            self,
            key=(self.key, "transpose"),
            count=self.residuals + len(outputs),
            function=self.transpose,
            transpose=self.function,
        )

        def pull(g: Any) -> list[Any]:
            cotangents = [zeros_like(x) if c is None else c for x, c in zip(outputs, g, strict=True)]
            found = [*[None] * self.residuals, *apply(back, *constants, *cotangents)]
            return spread(chosen(found, wanted), wanted)

        return outputs, pull

    def _check_residuals(self, wanted: Sequence[bool]) -> None:
        if any(wanted[: self.residuals]):
            raise DifferentiationError(
                f"{self.name}: there is no derivative by the residual arguments, but one is differentiated; pass it as "
                "a linear argument, or apply lax.stop_gradient to it.",
                state.source,
            )

    def batch(self, lanes: Lanes, operands: tuple[Any, ...], axes: Axes) -> tuple[tuple[Any, ...], Axes]:
        """Linear arguments are mapped over the first axis all together, so that the transpose is, too."""
        linear = zip(operands[self.residuals :], axes[self.residuals :], strict=True)
        aligned = [movement.align_axis(x, axis, 0, lanes.size) for x, axis in linear]
        mapped_axes = (*axes[: self.residuals], *(0 for _ in aligned))
        return super().batch(lanes, (*operands[: self.residuals], *aligned), mapped_axes)

    def batched(self, lanes: Lanes, axes: Axes) -> LinearCall:
        def transpose(*values: Any) -> list[Any]:
            mapped_axes = (*axes[: self.residuals], *(0 for _ in values[self.residuals :]))
            return list(lanes.mapped(self.transpose, mapped_axes)(*values))

        key = (self.key, lanes, axes)
        return replace(self, key=key, function=lanes.mapped(self.function, axes), transpose=transpose)


@dataclass(frozen=True, eq=False, repr=False)
class CustomVmap(Rule):
    """`rule(size, values, mapped)`, with the first axis mapped of the values that are, gives results and says which
    are mapped over their first axis. Derivatives are those of the function, and mapped in forward mode of the rule."""

    rule: Callable[[int, Values, Mask], tuple[Values, Sequence[bool]]]
    has_batching: bool = field(default=True, init=False)

    @property
    def has_tangents(self) -> bool:
        return True

    def forward(self, tangents: Values, *values: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Mapped over examples, values and tangents are those of the rule."""
        moving = tuple(t is not None for t in tangents)

        def function(*given: Any) -> list[Any]:
            return _with_tangents(self.function, given[: self.count], spread(given[self.count :], moving))

        def rule(size: int, given: Values, mapped: Mask) -> tuple[Values, Sequence[bool]]:
            halves = [(x[: self.count], spread(x[self.count :], moving)) for x in (given, mapped)]
            return self._rule_with_tangents(size, halves[0], halves[1])

        own = CustomVmap(self.name, (self.key, moving), self.count + sum(moving), function, rule, axes=self.axes)
        found = apply(own, *values, *chosen(tangents, moving))
        outputs, moves = found[: len(found) // 2], found[len(found) // 2 :]
        return outputs, tuple(t if is_inexact(x) else None for x, t in zip(outputs, moves, strict=True))

    def _rule_with_tangents(
        self, size: int, values: Sequence[Values], mapped: Sequence[Sequence[bool | None]]
    ) -> tuple[Values, Sequence[bool]]:
        """The rule and its derivative, of values and tangents. It is told that a value is mapped where its tangent is,
        too; by the others it is mapped over the examples."""
        both = tuple(m and t is not False for m, t in zip(*mapped, strict=True))
        only = [0 if m and not b else None for half in mapped for m, b in zip(half, both, strict=True)]
        over: list[bool] = []

        def of_values(*inputs: Any) -> Values:
            outputs, batched = self.rule(size, inputs, both)
            over[:] = batched
            return outputs

        def at(number: Any, inputs: Values) -> list[Any]:
            found = _with_tangents(of_values, inputs[: self.count], inputs[self.count :])
            if number is None:
                return found
            return [_row(x, number) if b else x for x, b in zip(found, [*over, *over], strict=True)]

        inputs = [*values[0], *values[1]]
        if all(axis is None for axis in only):
            return at(None, inputs), [*over, *over]
        numbers = movement.iota(shape=Shape(element_type("s32"), (size,)), iota_dimension=0)
        found = Lanes(size, ()).map(lambda x: at(x[0], x[1:]), [numbers, *inputs], [0, *only])
        moving = [axis is not None for axis in found.axes]
        return [x if m else y for x, y, m in zip(found.first, found.values, moving, strict=True)], moving

    def batch(self, lanes: Lanes, operands: tuple[Any, ...], axes: Axes) -> tuple[tuple[Any, ...], Axes]:
        mapped = tuple(a is not None for a in axes)
        size, pairs = lanes.size, zip(operands, axes, strict=True)
        values = [x if a is None else movement.align_axis(x, a, 0, size) for x, a in pairs]
        outputs, over = self.rule(size, values, mapped)
        return tuple(outputs), leading(over)
