"""Taylor mode: tracers that carry a truncated Taylor series, x(t) = x_0 + x_1 t + ... + x_K t^K.

Operations for which there is a recurrence of coefficients have it here. Every other operation has that which its
derivative gives: y'(t) is the tangent of y along x'(t), a product of series of order K - 1, whose integral is y. So
whatever has a derivative in forward mode has a Taylor series of any order.

Source: A. Griewank and A. Walther, "Evaluating Derivatives", 2nd edition, SIAM (2008), chapter 13.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from tinyxla.errors import DifferentiationError
from tinyxla.hlo import Computation
from tinyxla.ops import Op, elementwise, movement
from tinyxla.ops.op import Bilinear, Decomposition, Joint, Linear, NotDifferentiable, Partials, Rules, Zero
from tinyxla.shapes import Shape
from tinyxla.tracing.array import Array
from tinyxla.tracing.core import CarryingTracer, Trace, state, trace
from tinyxla.transforms.calls import call, grouped
from tinyxla.transforms.computations import of_one, run
from tinyxla.transforms.control_flow import conditional, while_
from tinyxla.transforms.custom import Implicit, Rule
from tinyxla.transforms.reverse import derivative_of, is_inexact, zeros_like

Series = tuple[Any, ...]  # the coefficients of t, t^2, ...


class TaylorTracer(CarryingTracer):
    """`value` is the constant coefficient; `series`, the others, may be computed when they are first asked for."""

    __slots__ = ("_series",)

    def __init__(self, trace: TaylorTrace, value: Array, series: Series | Callable[[], Series]) -> None:
        self.owner = trace
        self.carried = value
        self._series = series

    @property
    def series(self) -> Series:
        if callable(self._series):
            self._series = self._series()
        return self._series


class TaylorTrace(Trace):
    what = "a function differentiated in Taylor mode (jet)"

    def split(self, x: Any) -> tuple[Any, Series | None]:
        """The constant coefficient and the others (None: zero)."""
        return (x.carried, x.series) if isinstance(x, TaylorTracer) and x.owner is self else (x, None)

    def join(self, value: Any, series: Series | None) -> Any:
        return TaylorTracer(self, value, series) if series and is_inexact(value) else value

    def record(self, op: Op, operands: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
        if isinstance(op, Rule):
            return _by_function_or_rule(self, op, operands)
        rule = _RULES.get(op.name)
        if rule is None:
            rule = _RULES_BY_FORM.get(type(derivative_of(op, operands, attributes)), _by_tangent)
        return rule(self, op, operands, attributes)

    def apart(self, operands: Sequence[Any]) -> tuple[list[Any], list[Series | None], int]:
        """The constant coefficients, the others, and the order to which these are known."""
        pairs = [self.split(x) for x in operands]
        lengths = [len(s) for _, s in pairs if s is not None]
        order = min(lengths, default=0)
        return [v for v, _ in pairs], [None if s is None else s[:order] for _, s in pairs], order


def taylor(
    function: Callable[..., Sequence[Any]], primals: Sequence[Any], series: Sequence[Series | None]
) -> tuple[list[Any], list[Series | None]]:
    """`function(*primals)`, which returns a flat list, and the further coefficients of the results (None: zero)."""
    forward = TaylorTrace()
    forward.function = function

    def apply() -> list[tuple[Any, Series | None]]:
        inputs = [forward.join(x, s) for x, s in zip(primals, series, strict=True)]
        return [forward.split(x) for x in function(*inputs)]

    outputs = forward.run(apply)
    return [value for value, _ in outputs], [terms for _, terms in outputs]


# --- arithmetic of coefficients ---------------------------------------------------------------------------------------


def scaled(x: Any, factor: float) -> Any:
    return x if factor == 1 else elementwise.mul(x, movement.full(factor, x.dtype, x.shape))


def _total(terms: Sequence[Any]) -> Any:
    total = terms[0]
    for x in terms[1:]:
        total = elementwise.add(total, x)
    return total


def _slopes(series: Series) -> Series:
    """The coefficients of x'(t), from the constant one on."""
    return tuple(scaled(x, k) for k, x in enumerate(series, 1))


def _integral(slopes: Sequence[Any]) -> Series:
    return tuple(scaled(x, 1 / k) for k, x in enumerate(slopes, 1))


def _convolved(x: Sequence[Any], y: Sequence[Any], k: int, product: Callable[[Any, Any], Any]) -> Any:
    """The k-th coefficient of a product."""
    return _total([product(x[j], y[k - j]) for j in range(k + 1)])


# --- by the derivative ------------------------------------------------------------------------------------------------


def _by_tangent(taylor: TaylorTrace, op: Any, operands: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
    """y(t) as the integral of its tangent along x'(t), which the derivative's rule gives as a series."""
    values, series, order = taylor.apart(operands)
    if order == 0:
        return op(*values, **attributes)
    lower = [taylor.join(v, s and s[:-1]) for v, s in zip(values, series, strict=True)]
    tangents: list[Any] = []
    for s in series:
        slopes = None if s is None else _slopes(s)
        tangents.append(None if slopes is None else taylor.join(slopes[0], slopes[1:]))
    derivative = op.derivative if isinstance(op, Rule) else derivative_of(op, operands, attributes)
    if isinstance(op, Rule) or isinstance(derivative, Joint):
        assert isinstance(derivative, Joint)
        results, moves = derivative.forward(tuple(tangents), *lower, **attributes)
        ans = tuple(taylor.split(x)[0] for x in results) if isinstance(results, tuple) else taylor.split(results)[0]
    else:
        ans = op(*values, **attributes)
        known = _of_lower_order(taylor, op, lower, attributes, ans, order - 1)
        moves = _tangent(derivative, tangents, known, lower, attributes)
    if isinstance(ans, tuple):
        return tuple(_integrated(taylor, a, t, order) for a, t in zip(ans, moves or [None] * len(ans), strict=True))
    return _integrated(taylor, ans, moves, order)


def _of_lower_order(
    taylor: TaylorTrace, op: Op, lower: Sequence[Any], attributes: dict[str, Any], ans: Any, order: int
) -> Any:
    """The result with its series up to a lower order, which is computed if the derivative's rule uses it."""
    if order == 0:
        return ans

    def part(k: int | None, value: Any) -> Any:
        def series() -> Series:
            found = op(*lower, **attributes)
            terms = taylor.split(found if k is None else found[k])[1]
            return terms or (zeros_like(value),) * order

        return TaylorTracer(taylor, value, series) if is_inexact(value) else value

    return tuple(part(k, x) for k, x in enumerate(ans)) if isinstance(ans, tuple) else part(None, ans)


def _tangent(derivative: Any, tangents: Sequence[Any], ans: Any, values: Sequence[Any], attributes: Any) -> Any:
    if isinstance(derivative, Rules):
        return derivative.jvp(tuple(tangents), ans, *values, **attributes)
    assert isinstance(derivative, Partials)
    terms = [
        partial(t, ans, *values, **attributes)
        for t, partial in zip(tangents, derivative.partials, strict=True)
        if t is not None and partial is not None
    ]
    return _total(terms) if terms else None


def _integrated(taylor: TaylorTrace, ans: Any, tangent: Any, order: int) -> Any:
    if tangent is None:
        return ans
    first, others = taylor.split(tangent)
    others = others or (zeros_like(first),) * (order - 1)
    return taylor.join(ans, _integral([first, *others[: order - 1]]))


# --- by the form of the derivative ------------------------------------------------------------------------------------


def _linear(taylor: TaylorTrace, op: Op, operands: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
    derivative = derivative_of(op, operands, attributes)
    assert isinstance(derivative, Linear)
    values, series, order = taylor.apart(operands)
    ans = op(*values, **attributes)
    linear = range(len(values)) if derivative.operands is None else derivative.operands
    if all(series[k] is None for k in linear):
        return ans
    coefficients: list[Any] = []
    for number in range(order):
        inputs = list(values)
        for k in linear:
            terms = series[k]
            inputs[k] = zeros_like(values[k]) if terms is None else terms[number]
        coefficients.append(op(*inputs, **attributes))
    if isinstance(ans, tuple):
        return tuple(taylor.join(a, s) for a, s in zip(ans, zip(*coefficients, strict=True), strict=True))
    return taylor.join(ans, tuple(coefficients))


def _bilinear(taylor: TaylorTrace, op: Op, operands: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
    (x0, y0), (xs, ys), order = taylor.apart(operands)
    product = lambda x, y: op(x, y, **attributes)  # noqa: E731
    ans = product(x0, y0)
    if ys is None:
        return taylor.join(ans, tuple(product(x, y0) for x in xs or ()))
    if xs is None:
        return taylor.join(ans, tuple(product(x0, y) for y in ys))
    x, y = (x0, *xs), (y0, *ys)
    return taylor.join(ans, tuple(_convolved(x, y, k, product) for k in range(1, order + 1)))


def _decomposed(taylor: TaylorTrace, op: Op, operands: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
    derivative = derivative_of(op, operands, attributes)
    assert isinstance(derivative, Decomposition)
    return derivative.decompose(*operands, **attributes)


def _constant(taylor: TaylorTrace, op: Op, operands: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
    return op(*taylor.apart(operands)[0], **attributes)


def _refused(taylor: TaylorTrace, op: Op, operands: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
    derivative = derivative_of(op, operands, attributes)
    assert isinstance(derivative, NotDifferentiable)
    raise DifferentiationError(f"{op.name} has no derivative: {derivative.reason}.", state.source)


# --- recurrences ------------------------------------------------------------------------------------------------------

Recurrence = Callable[[TaylorTrace, Any, tuple[Any, ...], dict[str, Any]], Any]


def _sum(taylor: TaylorTrace, op: Op, operands: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
    """Of a sum or difference."""
    (x0, y0), (xs, ys), _ = taylor.apart(operands)
    ans = op(x0, y0)
    if ys is None:
        return taylor.join(ans, xs)
    if xs is None:
        return taylor.join(ans, ys if op is elementwise.add else tuple(map(elementwise.neg, ys)))
    return taylor.join(ans, tuple(op(x, y) for x, y in zip(xs, ys, strict=True)))


def _quotient(taylor: TaylorTrace, op: Op, operands: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
    """z = x / y: z_k = (x_k - sum of y_j z_(k-j)) / y_0."""
    (x0, y0), (xs, ys), order = taylor.apart(operands)
    z = [op(x0, y0)]
    if ys is None:
        return taylor.join(z[0], tuple(op(x, y0) for x in xs or ()))
    for k in range(1, order + 1):
        known = _total([elementwise.mul(ys[j - 1], z[k - j]) for j in range(1, k + 1)])
        z.append(op(elementwise.neg(known) if xs is None else elementwise.sub(xs[k - 1], known), y0))
    return taylor.join(z[0], tuple(z[1:]))


def _of_one(coefficients: Callable[[Any, Series, Any], Series]) -> Recurrence:
    """The rule of an operation with one operand: from x_0, the coefficients of x'(t) and y_0 to y_1, y_2, ..."""

    def rule(taylor: TaylorTrace, op: Op, operands: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
        (x0,), (xs,), _ = taylor.apart(operands)
        ans = op(x0, **attributes)
        return taylor.join(ans, coefficients(x0, _slopes(xs or ()), ans))

    return rule


def _exponential(x0: Any, slopes: Series, y0: Any) -> Series:
    """y' = y x'."""
    y = [y0]
    for k in range(len(slopes)):
        y.append(scaled(_convolved(y, slopes, k, elementwise.chain_mul), 1 / (k + 1)))
    return tuple(y[1:])


def _by_square(derivative: Callable[[list[Any], int], Any]) -> Callable[[Any, Series, Any], Series]:
    """y' = g(y) x', where `derivative(y, k)` is the k-th coefficient of g."""

    def coefficients(x0: Any, slopes: Series, y0: Any) -> Series:
        y, g = [y0], list[Any]()
        for k in range(len(slopes)):
            g.append(derivative(y, k))
            y.append(scaled(_convolved(g, slopes, k, elementwise.chain_mul), 1 / (k + 1)))
        return tuple(y[1:])

    return coefficients


def _square(y: list[Any], k: int) -> Any:
    return _convolved(y, y, k, elementwise.mul)


def _tanh_slope(y: list[Any], k: int) -> Any:
    squared = elementwise.neg(_square(y, k))
    return squared if k else elementwise.add(elementwise.one_like(squared), squared)


def _logistic_slope(y: list[Any], k: int) -> Any:
    if k == 0:
        return elementwise.mul(y[0], elementwise.sub(elementwise.one_like(y[0]), y[0]))
    return elementwise.sub(y[k], _square(y, k))


def _circular(other: Op, signs: tuple[int, int]) -> Callable[[Any, Series, Any], Series]:
    """A pair y' = a z x', z' = b y x', of which y is wanted."""

    def coefficients(x0: Any, slopes: Series, y0: Any) -> Series:
        y, z = [y0], [other(x0)]
        for k in range(len(slopes)):
            dy = _convolved(z, slopes, k, elementwise.chain_mul)
            dz = _convolved(y, slopes, k, elementwise.chain_mul)
            y.append(scaled(dy, signs[0] / (k + 1)))
            z.append(scaled(dz, signs[1] / (k + 1)))
        return tuple(y[1:])

    return coefficients


def _power(taylor: TaylorTrace, op: Op, operands: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
    """With a constant exponent, x^p is the integral of p x^(p-1) x', which is right at zeros of x, too."""
    (x0, p), (xs, ps), order = taylor.apart(operands)
    if ps is not None or xs is None:
        return _by_tangent(taylor, op, operands, attributes)
    slopes = _slopes(xs)
    one, zero = elementwise.one_like(p), zeros_like(p)
    constant = elementwise.eq(p, zero)
    below = elementwise.select(constant, one, elementwise.sub(p, one))
    factor = op(taylor.join(x0, xs[:-1]), below)
    tangent = elementwise.chain_mul(taylor.join(slopes[0], slopes[1:]), elementwise.mul(factor, p))
    return _integrated(taylor, op(x0, p), tangent, order)


# --- calls, branches, loops -------------------------------------------------------------------------------------------


def _called(taylor: TaylorTrace, op: Op, operands: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
    computation: Computation = attributes["to_apply"]
    rule: Rule | None = attributes.get("rule")
    if rule is None:
        found = run(computation, operands)
    else:
        found = _by_function_or_rule(taylor, rule.of(computation, operands[rule.count :]), operands[: rule.count])
    return grouped(computation, found)


def _by_function_or_rule(taylor: TaylorTrace, rule: Rule, operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """A function with rules of its own, by its operations, as in JAX; or by its rule where these have no derivative, or
    where the results do not depend on the arguments by operations."""
    if not isinstance(rule, Implicit):
        try:
            return tuple(rule.function(*operands))
        except DifferentiationError:
            if not rule.has_derivatives:
                raise
    return _by_tangent(taylor, rule, operands, {})


@lru_cache(256)
def _expanded(computation: Computation, present: tuple[bool, ...], order: int) -> Computation:
    """From operands and the coefficients of those that are `present`: results, and the coefficients of all results that
    can have any."""

    def function(*inputs: Any) -> list[Any]:
        values, series = _taken(inputs, present, order)
        outputs, terms = taylor(lambda *x: run(computation, x), values, series)
        return _flat(outputs, terms, order)

    shapes = list(computation.parameter_shapes)
    shapes += [s for s, p in zip(computation.parameter_shapes, present, strict=True) if p for _ in range(order)]
    return trace(function, shapes, f"{computation.name}_jet")[0]


def _taken(inputs: Sequence[Any], present: Sequence[bool], order: int) -> tuple[list[Any], list[Series | None]]:
    """Values and their series, from a flat list."""
    values, others = list(inputs[: len(present)]), iter(inputs[len(present) :])
    return values, [tuple(next(others) for _ in range(order)) if p else None for p in present]


def _flat(values: Sequence[Any], series: Sequence[Series | None], order: int) -> list[Any]:
    """Values, and the series of those that can have any."""
    pairs = [(v, s) for v, s in zip(values, series, strict=True) if is_inexact(v)]
    return [*values, *(x for v, s in pairs for x in (s or (zeros_like(v),) * order)[:order])]


def _conditional(taylor: TaylorTrace, op: Op, operands: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
    (index, *values), (_, *series), order = taylor.apart(operands)
    branches: tuple[Computation, ...] = attributes["branch_computations"]
    present = tuple(s is not None for s in series)
    made = tuple(_expanded(b, present, order) for b in branches)
    given = [x for s in series if s is not None for x in s]
    outputs = conditional(index, *values, *given, branch_computations=made)
    flags = [is_inexact(x) for x in outputs[: len(branches[0].outputs)]]
    return tuple(map(taylor.join, *_taken(outputs, flags, order)))


def _while(taylor: TaylorTrace, op: Op, operands: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
    values, series, order = taylor.apart(operands)
    flags = tuple(map(is_inexact, values))
    body: Computation = attributes["body"]
    made = _expanded(body, flags, order)
    count, test = len(values), attributes["condition"]
    carried = _flat(values, series, order)
    condition = of_one(lambda *x: run(test, x[:count])[0], made.parameter_shapes, test.name)
    assert [Shape.of(x) for x in carried] == made.parameter_shapes
    outputs = while_(*carried, condition=condition, body=made, known_trip_count=attributes.get("known_trip_count"))
    return tuple(map(taylor.join, *_taken(outputs, flags, order)))


_RULES_BY_FORM: dict[Any, Recurrence] = {
    Linear: _linear,
    Bilinear: _bilinear,
    Decomposition: _decomposed,
    Zero: _constant,
    NotDifferentiable: _refused,
}
_RULES: dict[str, Recurrence] = {
    "add": _sum,
    "subtract": _sum,
    "multiply": _bilinear,
    "chain-multiply": _bilinear,
    "divide": _quotient,
    "chain-divide": _quotient,
    "power": _power,
    "exponential": _of_one(_exponential),
    "tanh": _of_one(_by_square(_tanh_slope)),
    "logistic": _of_one(_by_square(_logistic_slope)),
    "sine": _of_one(_circular(elementwise.cos, (1, -1))),
    "cosine": _of_one(_circular(elementwise.sin, (-1, 1))),
    "sinh": _of_one(_circular(elementwise.cosh, (1, 1))),
    "cosh": _of_one(_circular(elementwise.sinh, (1, 1))),
    call.name: _called,
    conditional.name: _conditional,
    while_.name: _while,
}
