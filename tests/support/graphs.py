"""Large random graphs for the compiler's tests, each with operands, the interpreter's values and how far to trust them.

Where `random_graphs` keeps to a few elements that hypothesis can shrink, these reach every kind of loop nest: arrays
beyond one piece of work, patterns such as softmax and layer norm, narrow and complex types, several results. A graph is
a function of its seed.

With every value goes a bound of its rounding error, grown operation by operation, so that a comparison is as sharp as
the arithmetic allows; sums are trusted as far as one running total is. Only *exact* values - integers, and floats that
were moved and chosen but never computed - decide anything: they are compared, rounded and used as places.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from tinyxla.hlo import Computation, Instruction, Literal
from tinyxla.ops import Op, bits, calls, dynamic_slices, elementwise, indexing, movement, ops, reduction, sorting
from tinyxla.ops.products import contraction
from tinyxla.shapes import AnyShape, ElementType, Shape, element_type
from tinyxla.transforms.calls import call

Array = np.ndarray[Any, Any]
Node = Instruction

F32, F64, BF16, C64, S32, PRED = (element_type(name) for name in ("f32", "f64", "bf16", "c64", "s32", "pred"))
LARGEST = 200_000  # elements of a value
LARGEST_SUM = 64  # elements of a sum in bf16, where more would be lost


_KINDS = [[F32], [F32], [F32, F64], [F32, S32, PRED], [F32, BF16], [F32, C64], [F64, S32], [S32, PRED]]


class Regime(NamedTuple):
    """What the arrays of a graph are like."""

    sizes: tuple[int, ...]
    most_elements: int
    highest_rank: int
    steps: int


REGIMES = (
    Regime((1, 2, 3, 4), 60, 6, 30),
    Regime((1, 2, 3, 5, 17, 64, 70, 300), LARGEST, 3, 24),
    Regime((3, 64, 70, 300, 700), LARGEST, 3, 20),
    Regime((0, 1, 2, 3, 5), 200, 4, 24),
    Regime((7, 40_000, 90_000), LARGEST, 2, 16),
)


class Case(NamedTuple):
    """A graph, operands for it, the interpreter's results and their error bounds."""

    computation: Computation
    operands: list[Array]
    expected: list[Array]
    bounds: list[float]

    def check(self, results: Sequence[Any], what: str = "") -> None:
        """These are the results, in shape, type and value."""
        assert len(results) == len(self.expected), what
        for k, (found, wanted, bound) in enumerate(zip(results, self.expected, self.bounds, strict=True)):
            where = f"{what}: result {k}, {self.computation.outputs[k]}"
            assert Shape.of(found) == Shape.of(wanted), where
            if bound == 0:
                np.testing.assert_array_equal(_plain(found), _plain(wanted), where)
            else:
                np.testing.assert_allclose(_plain(found), _plain(wanted), 0, bound, err_msg=where)


def _size(shape: AnyShape) -> int:
    return shape.size if isinstance(shape, Shape) else 0


def _plain(x: Array) -> Array:
    """In a type that NumPy compares."""
    return np.asarray(x, np.float32) if x.dtype == ml_dtypes.bfloat16 else np.asarray(x)


def random_case(seed: int) -> Case:
    """The graph of a seed."""
    return _Builder(seed).case()


def _largest(x: Array) -> float:
    """The largest finite size of an element."""
    if x.dtype.kind == "b" or not x.size:
        return float(x.any())
    sizes = np.abs(x.astype(np.complex128 if x.dtype.kind == "c" else np.float64))
    return float(np.max(sizes, initial=0, where=np.isfinite(sizes)))


def _epsilon(kind: ElementType) -> float:
    """The largest relative rounding error."""
    return float(ml_dtypes.finfo(kind.dtype).eps) / 2 if kind.is_inexact else 0.0


class _Builder:
    """Makes one graph, evaluating as it goes."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.regime = REGIMES[seed % len(REGIMES)]
        self.special = self.random.random() < 0.15  # infinities and NaNs among the operands
        self.instructions: list[Node] = []
        self.values: dict[Node, Array] = {}
        self.bounds: dict[Node, float] = {}
        self.exact: set[Node] = set()
        self.usable: list[Node] = []

    def case(self) -> Case:
        shapes = [self.dimensions() for _ in range(3)]
        kinds = self.choose(_KINDS)
        for _ in range(self.below(4) + 1):
            self.parameter(Shape(self.choose(kinds), self.choose(shapes)))
        parameters = list(self.instructions)
        for _ in range(self.below(self.regime.steps) + 2):
            larger = max(self.choose(self.usable), self.choose(self.usable), key=lambda x: x.array_shape.size)
            made = self.choose(_STEPS)(self, larger)
            if made is not None:
                self.usable.append(self.tame(made))
        outputs = [self.usable[-1], *(x for x in self.usable[:-1] if self.random.random() < 0.2)]
        root = self._append(calls.tuple_, outputs, {})
        computation = Computation("random", parameters, self.instructions, root)
        return Case(
            computation,
            [self.values[p] for p in parameters],
            [self.values[x] for x in outputs],
            [0.0 if x in self.exact else 4 * self.bounds[x] + 1e-30 for x in outputs],
        )

    # --- choices

    def below(self, n: int) -> int:
        return int(self.random.integers(n))

    def choose(self, options: Sequence[Any]) -> Any:
        return options[self.below(len(options))]

    def dimensions(self) -> tuple[int, ...]:
        while True:
            rank = self.below(self.regime.highest_rank) + 1 if self.below(8) else 0
            found = tuple(int(self.choose(self.regime.sizes)) for _ in range(rank))
            if math.prod(found) <= self.regime.most_elements:
                return found

    def some_dimensions(self, x: Node) -> tuple[int, ...]:
        rank = x.array_shape.rank
        if self.random.random() < 0.5:
            return tuple(range(self.below(rank + 1), rank))
        return tuple(d for d in range(rank) if self.random.random() < 0.5)

    def like(self, x: Node) -> Node:
        return self.choose([y for y in self.usable if y.shape == x.shape])

    def exact_like(self, x: Node) -> Node:
        return self.choose([y for y in self.usable if y.shape == x.shape and y in self.exact])

    # --- instructions

    def parameter(self, shape: Shape) -> None:
        x = Instruction(movement.parameter, (), movement.Parameter(len(self.instructions), shape), shape)
        self.instructions.append(x)
        self.values[x] = self.operand(shape)
        self.bounds[x] = 0.0
        self.exact.add(x)
        self.usable.append(x)

    def operand(self, shape: Shape) -> Array:
        kind, sizes = shape.element_type.kind, shape.dimensions
        if kind == "pred":
            return np.asarray(self.random.random(sizes) < 0.5)
        if kind == "signed":
            return np.asarray(self.random.integers(-5, 6, sizes)).astype(shape.dtype)
        values = np.asarray(self.random.uniform(-1, 1, sizes))
        if kind == "complex":
            values = values + 1j * self.random.uniform(-1, 1, sizes)
        elif self.special and shape.size:
            where = self.random.integers(0, shape.size, 2)
            values.reshape(-1)[where] = self.choose([np.nan, np.inf, -np.inf, -0.0])
        return np.asarray(values).astype(shape.dtype)

    def _append(self, op: Any, operands: Sequence[Node], attributes: dict[str, Any]) -> Node:
        shape = op.shape(*(x.shape for x in operands), **attributes)
        self.instructions.append(Instruction(op, tuple(operands), op.attributes(**attributes), shape))
        return self.instructions[-1]

    def emit(self, op: Any, *operands: Node, gain: float = 1.0, fresh: float = 0.0, **attributes: Any) -> Node:
        """An instruction. Errors of the operands add up, times `gain`; `fresh` counts the units of rounding that the op
        adds. Without these, and of exact operands, it is exact."""
        x = self._append(op, operands, attributes)
        with np.errstate(all="ignore"):
            self.values[x] = value = op.evaluate(*(self.values[o] for o in operands), **attributes)
        if isinstance(value, tuple):
            self.exact.add(x)
            return x
        integer = x.array_shape.element_type.kind not in ("float", "complex")
        if integer or (not fresh and all(o in self.exact for o in operands)):
            self.exact.add(x)
        unit = fresh * _epsilon(x.array_shape.element_type) * max(_largest(value), 1e-3)
        self.bounds[x] = 0.0 if x in self.exact else gain * sum(self.bounds[o] for o in operands) + unit
        return x

    def full(self, value: Any, like: Node) -> Node:
        """A constant, spread over the shape of another value."""
        shape = like.array_shape
        scalar = self.emit(movement.constant, literal=Literal(np.asarray(value).astype(shape.dtype)))
        return self.emit(movement.broadcast, scalar, sizes=shape.dimensions, dimensions=())

    def multiply(self, x: Node, y: Node) -> Node:
        sizes = [max(_largest(self.values[v]), 1e-3) for v in (x, y)]
        product = self.emit(elementwise.mul, x, y, fresh=1)
        if product not in self.exact:
            self.bounds[product] += sizes[1] * self.bounds[x] + sizes[0] * self.bounds[y]
        return product

    def tame(self, x: Node) -> Node:
        """Scaled down where values have grown."""
        if not x.array_shape.element_type.is_inexact or _largest(self.values[x]) < 8:
            return x
        scaled = self.emit(elementwise.mul, x, self.full(1 / _largest(self.values[x]), x), fresh=1)
        self.bounds[scaled] = self.bounds[x] / _largest(self.values[x]) + _epsilon(x.array_shape.element_type)
        return scaled

    def spread(self, small: Node, x: Node, dimensions: Sequence[int]) -> Node:
        kept = tuple(d for d in range(x.array_shape.rank) if d not in dimensions)
        return self.emit(movement.broadcast, small, sizes=x.array_shape.dimensions, dimensions=kept)

    def fold(self, op: str, x: Node, dimensions: tuple[int, ...], start: Any = None) -> Node:
        """A reduction by one op."""
        kind = x.array_shape.element_type
        neutral = reduction.identity_element(op, kind.dtype) if start is None else start
        first = self.emit(movement.constant, literal=Literal(np.asarray(neutral).astype(kind.dtype)))
        attributes: dict[str, Any] = {
            "dimensions": dimensions,
            "to_apply": reduction.scalar_computation(op, kind.dtype),
        }
        if op in ("maximum", "minimum"):
            return self.emit(reduction.reduce, x, first, **attributes)
        count = math.prod(x.array_shape.dimensions[d] for d in dimensions)
        found = self.emit(reduction.reduce, x, first, gain=count, fresh=1, **attributes)
        values = self.values[x]
        if kind.is_inexact and values.size:
            wide = np.abs(values.astype(np.complex128))
            total = np.sum(wide, axis=dimensions, where=np.isfinite(wide)).max()
            self.bounds[found] += _epsilon(kind) * float(total) * (4 + count / 20)
        return found

    def mean(self, x: Node, dimensions: tuple[int, ...]) -> Node:
        total = self.fold("add", x, dimensions)
        count = max(1, math.prod(x.array_shape.dimensions[d] for d in dimensions))
        found = self.emit(elementwise.mul, total, self.full(1 / count, total), fresh=1)
        self.bounds[found] = self.bounds[total] / count + _epsilon(x.array_shape.element_type)
        return found

    def can_sum(self, x: Node, dimensions: Sequence[int]) -> bool:
        shape = x.array_shape
        count = math.prod(shape.dimensions[d] for d in dimensions)
        return shape.element_type.kind != "pred" and (shape.element_type is not BF16 or count <= LARGEST_SUM)

    def smooth(self, x: Node, op: Op) -> Node:
        """A function whose derivative is at most about 1."""
        return self.emit(op, x, gain=1.5, fresh=4)


# --- steps: each adds to the graph, or finds nothing to do ------------------------------------------------------------

Made = Instruction | None

_SMOOTH = {
    "float": ["tanh", "sine", "cosine", "logistic", "erf"],
    "complex": ["sine", "tanh"],
}
_EXACT_UNARY = {
    "float": ["negate", "abs", "sign", "floor", "ceil", "round-nearest-even", "round-nearest-afz"],
    "signed": ["negate", "abs", "sign", "not", "popcnt", "count-leading-zeros"],
    "pred": ["not"],
}
_EXACT_BINARY = {
    "float": ["maximum", "minimum"],
    "signed": [
        *("add", "subtract", "multiply", "divide", "remainder", "maximum", "minimum", "and", "or", "xor"),
        *("shift-left", "shift-right-logical", "shift-right-arithmetic"),
    ],
    "pred": ["and", "or", "xor"],
}


_FOLDS = {
    "float": ["maximum", "minimum"],
    "signed": ["add", "maximum", "minimum", "xor", "multiply"],
    "pred": ["and", "or"],
}


def _arithmetic(b: _Builder, x: Node) -> Made:
    y = b.like(x)
    if not x.array_shape.element_type.is_inexact:
        return b.emit(ops[b.choose(_EXACT_BINARY[x.array_shape.element_type.kind])], x, y)
    name = b.choose(["add", "subtract", "multiply"])
    return b.multiply(x, y) if name == "multiply" else b.emit(ops[name], x, y, fresh=1)


def _smooth(b: _Builder, x: Node) -> Made:
    names = _SMOOTH.get(x.array_shape.element_type.kind)
    if x.array_shape.element_type is C64:
        x = b.emit(elementwise.mul, x, b.full(0.125, x), fresh=1)
    return b.smooth(x, ops[b.choose(names)]) if names else None


def _exact_unary(b: _Builder, x: Node) -> Made:
    if x not in b.exact or x.array_shape.element_type is C64:
        return None
    return b.emit(ops[b.choose(_EXACT_UNARY[x.array_shape.element_type.kind])], x)


def _roots_and_logarithms(b: _Builder, x: Node) -> Made:
    if x.array_shape.element_type.kind != "float":
        return None
    positive = b.emit(elementwise.add, b.emit(elementwise.abs_, x), b.full(1, x), fresh=1)
    kind = b.below(4)
    if kind == 0:
        return b.emit(elementwise.div, x, positive, gain=8, fresh=2)
    return b.smooth(positive, [elementwise.sqrt, elementwise.log, elementwise.rsqrt][kind - 1])


def _extremum(b: _Builder, x: Node) -> Made:
    kind = x.array_shape.element_type.kind
    if kind == "complex":
        return None
    if kind == "pred":
        return b.emit(elementwise.not_, x)
    if b.random.random() < 0.3:
        return b.emit(elementwise.clamp, b.full(-0.5 if kind == "float" else -2, x), x, b.like(x), gain=2)
    return b.emit(b.choose([elementwise.max_, elementwise.min_]), x, b.like(x))


def _compare(b: _Builder, x: Node) -> Made:
    if x not in b.exact:
        return None
    directions = ["EQ", "NE"] if x.array_shape.element_type is C64 else ["EQ", "NE", "LT", "LE", "GT", "GE"]
    kind = elementwise.comparison_type(x.array_shape.dtype)
    return b.emit(elementwise.compare, x, b.exact_like(x), direction=b.choose(directions), type=kind)


def _select(b: _Builder, x: Node) -> Made:
    flags = [p for p in b.usable if p.shape == x.array_shape.with_type(PRED)]
    return b.emit(elementwise.select, b.choose(flags), x, b.like(x)) if flags else None


def _convert(b: _Builder, x: Node) -> Made:
    kind = x.array_shape.element_type
    targets = {PRED: [S32, F32], S32: [F32, F64, PRED], F32: [F64, BF16, C64], F64: [F32], BF16: [F32], C64: []}[kind]
    if kind.kind == "float" and x in b.exact:
        targets = [*targets, S32, PRED]
    if b.special:  # products of complex infinities are not defined
        targets = [t for t in targets if t is not C64]
    if not targets:
        return None
    target = b.choose(targets)
    return b.emit(elementwise.convert, x, new_element_type=target, fresh=0 if x in b.exact else 1)


def _complex_parts(b: _Builder, x: Node) -> Made:
    if x.array_shape.element_type is C64:
        return b.emit(b.choose([elementwise.real, elementwise.imag]), x)
    if x.array_shape.element_type is F32 and not b.special:
        return b.emit(elementwise.complex_, x, b.like(x))
    return None


def _reduce(b: _Builder, x: Node) -> Made:
    dimensions = b.some_dimensions(x)
    kind = x.array_shape.element_type
    if kind.kind == "complex" or (kind.kind == "float" and b.below(2)):
        return b.mean(x, dimensions) if b.can_sum(x, dimensions) else None
    start = b.choose([None, None, 1]) if kind is not PRED else None
    return b.fold(b.choose(_FOLDS[kind.kind]), x, dimensions, start)


def _argument(b: _Builder, x: Node) -> Made:
    """The extremum and its index at once."""
    shape = x.array_shape
    if x not in b.exact or not shape.rank or shape.element_type.kind not in ("float", "signed"):
        return None
    d = b.below(shape.rank)
    direction = b.choose(["GT", "LT"])
    index = b.emit(movement.iota, shape=shape.with_type(S32), iota_dimension=d)
    neutral = reduction.identity_element("maximum" if direction == "GT" else "minimum", shape.dtype)
    first = b.emit(movement.constant, literal=Literal(np.asarray(neutral).astype(shape.dtype)))
    zero = b.emit(movement.constant, literal=Literal(np.zeros((), np.int32)))
    body = reduction.argument_computation(direction, shape.dtype, np.dtype(np.int32))
    both = b.emit(reduction.reduce, x, index, first, zero, dimensions=(d,), to_apply=body)
    parts = [b.emit(calls.get_tuple_element, both, index=k) for k in b.choose([(0,), (1,), (0, 1)])]
    b.usable += parts[:-1]
    return parts[-1]


def _center(b: _Builder, x: Node) -> Made:
    """Less the mean, over a deviation: what normalisation does."""
    dimensions = b.some_dimensions(x)
    if x.array_shape.element_type.kind != "float" or not b.can_sum(x, dimensions):
        return None
    centered = b.emit(elementwise.sub, x, b.spread(b.mean(x, dimensions), x, dimensions), fresh=1)
    if b.random.random() < 0.5:
        return centered
    variance = b.mean(b.multiply(centered, centered), dimensions)
    safe = b.emit(elementwise.add, variance, b.full(1, variance), fresh=1)
    return b.multiply(centered, b.spread(b.smooth(safe, elementwise.rsqrt), x, dimensions))


def _softmax(b: _Builder, x: Node) -> Made:
    dimensions = b.some_dimensions(x)
    if x.array_shape.element_type.kind != "float" or not x.array_shape.size or not b.can_sum(x, dimensions):
        return None
    most = b.fold("maximum", x, dimensions)
    shifted = b.emit(elementwise.sub, x, b.spread(most, x, dimensions), fresh=1)
    weights = b.smooth(shifted, elementwise.exp)
    total = b.fold("add", weights, dimensions)
    if b.random.random() < 0.5:
        return b.emit(elementwise.add, b.smooth(total, elementwise.log), most, fresh=1)
    return b.emit(elementwise.div, weights, b.spread(total, x, dimensions), gain=2, fresh=2)


def _transpose(b: _Builder, x: Node) -> Made:
    permutation = tuple(map(int, b.random.permutation(x.array_shape.rank)))
    return b.emit(movement.transpose, x, permutation=permutation)


def _reshape(b: _Builder, x: Node) -> Made:
    sizes: list[int] = []
    left = x.array_shape.size
    if left == 0:
        return b.emit(movement.reshape, x, sizes=b.choose([(0,), (0, 2), (3, 0)]))
    while left > 1 and len(sizes) < 4:
        factor = b.choose([f for f in (2, 3, 4, 5, 7, 10, 17, 64, left) if left % f == 0])
        sizes.append(factor)
        left //= factor
    sizes += [left] if left > 1 else []
    if b.random.random() < 0.3:
        sizes.insert(b.below(len(sizes) + 1), 1)
    return b.emit(movement.reshape, x, sizes=tuple(int(sizes[k]) for k in b.random.permutation(len(sizes))))


def _broadcast(b: _Builder, x: Node) -> Made:
    sizes = list(x.array_shape.dimensions)
    at = b.below(len(sizes) + 1)
    dimensions = tuple(d + (d >= at) for d in range(len(sizes)))
    sizes.insert(at, b.choose(b.regime.sizes))
    if math.prod(sizes) > LARGEST:
        return None
    return b.emit(movement.broadcast, x, sizes=tuple(sizes), dimensions=dimensions)


def _reverse(b: _Builder, x: Node) -> Made:
    return b.emit(movement.reverse, x, dimensions=b.some_dimensions(x))


def _slice(b: _Builder, x: Node) -> Made:
    bounds = [sorted((b.below(n + 1), b.below(n + 1))) if b.below(2) else [0, n] for n in x.array_shape.dimensions]
    return b.emit(
        movement.slice_,
        x,
        start_indices=tuple(start for start, _ in bounds),
        limit_indices=tuple(stop for _, stop in bounds),
        strides=tuple(b.below(3) + 1 for _ in bounds),
    )


def _pad(b: _Builder, x: Node) -> Made:
    """By edges of either sign, also past what there is, and between elements."""
    config: list[tuple[int, int, int]] = []
    for n in x.array_shape.dimensions:
        interior = b.choose([0, 0, 1, 2]) if n < 1000 else 0
        spaced = n + max(n - 1, 0) * interior
        low = b.below(5) - 2
        config.append((low, max(b.below(5) - 2, -spaced - low), interior) if b.below(2) else (0, 0, 0))
    scalar = x.array_shape.with_dimensions(())
    if _size(movement.pad.shape(x.shape, scalar, padding_config=tuple(config))) > LARGEST:
        return None
    scalars = [y for y in b.usable if y.shape == scalar]
    one = b.emit(movement.constant, literal=Literal(np.ones((), x.array_shape.dtype)))
    return b.emit(movement.pad, x, b.choose([*scalars, one]), padding_config=tuple(config))


def _concatenate(b: _Builder, x: Node) -> Made:
    shape = x.array_shape
    if not shape.rank:
        return None
    d = b.below(shape.rank)

    def rest(y: Node) -> Any:
        sizes = y.array_shape.dimensions
        return y.array_shape.element_type, len(sizes), sizes[:d], sizes[d + 1 :]

    others = [y for y in b.usable if rest(y) == rest(x)]
    parts = [x, *(b.choose(others) for _ in range(b.below(3)))]
    total = sum(y.array_shape.size for y in parts)
    return None if total > LARGEST else b.emit(movement.concatenate, *parts, dimension=d)


def _iota(b: _Builder, x: Node) -> Made:
    shape = x.array_shape
    if not shape.rank or shape.element_type not in (F32, F64, S32):
        return None
    index = b.emit(movement.iota, shape=shape, iota_dimension=b.below(shape.rank))
    if shape.element_type is S32:
        return b.emit(elementwise.add, x, index)
    return b.emit(elementwise.max_, x, b.tame(index))


def _constant(b: _Builder, x: Node) -> Made:
    if x.array_shape.size > 1000 or b.random.random() < 0.5:
        return b.full(b.choose([0, 1, -1, 2]), x)
    return b.emit(movement.constant, literal=Literal(b.operand(x.array_shape)))


_NEUTRAL = [("add", 0), ("add", -0.0), ("subtract", 0), ("multiply", 1), ("divide", 1), ("power", 2), ("power", 1)]


def _neutral(b: _Builder, x: Node) -> Made:
    """What simplification takes away, or must not."""
    kind = x.array_shape.element_type
    if kind is PRED:
        return b.emit(elementwise.select, b.full(b.below(2), x), x, b.like(x))
    op, value = b.choose(_NEUTRAL)
    if op == "power":
        if kind.kind != "float":
            return None
        scale = max(1.0, _largest(b.values[x]))
        return b.emit(elementwise.pow_, x, b.full(value, x), gain=2 * scale, fresh=2)
    found = b.emit(ops[op], x, b.full(value, x), fresh=0 if kind.kind != "complex" else 1)
    return b.emit(elementwise.neg, b.emit(elementwise.neg, found)) if b.below(2) else found


def _dot(b: _Builder, x: Node) -> Made:
    shape = x.array_shape
    if not 1 <= shape.rank <= 3 or shape.element_type is PRED:
        return None
    c = b.below(shape.rank)
    partners = [
        (y, d)
        for y in b.usable
        if y.array_shape.element_type is shape.element_type and y.array_shape.rank <= 3
        for d, size in enumerate(y.array_shape.dimensions)
        if size == shape.dimensions[c]
    ]
    y, d = b.choose(partners)
    other = y.array_shape
    left = [k for k in range(shape.rank) if k != c]
    right = [k for k in range(other.rank) if k != d]
    pairs = [(i, j) for i in left for j in right if shape.dimensions[i] == other.dimensions[j]]
    batch = [b.choose(pairs)] if pairs and b.below(2) else []
    dims = contraction.Dot((c,), (d,), tuple(i for i, _ in batch), tuple(j for _, j in batch))
    count = max(1, shape.dimensions[c])
    size = _size(contraction.dot.shape(shape, other, **dims._asdict()))
    if size > LARGEST or shape.size * other.size > 3e7 * count:
        return None
    if shape.element_type is BF16 and count > LARGEST_SUM:
        return None
    scale = _largest(b.values[x]) + _largest(b.values[y])
    units = (4 + count / 20) * count * _largest(b.values[x]) * _largest(b.values[y])
    found = b.emit(contraction.dot, x, y, gain=count * scale, fresh=4, **dims._asdict())
    if found not in b.exact:
        b.bounds[found] += units * _epsilon(shape.element_type)
    return found


def _call(b: _Builder, x: Node) -> Made:
    """A computation of its own, of two results or one."""
    if x.array_shape.element_type.kind not in ("float", "signed"):
        return None
    shape = x.array_shape
    first, second = (Instruction(movement.parameter, (), movement.Parameter(k, shape), shape) for k in (0, 1))
    most = Instruction(elementwise.max_, (first, second), elementwise.max_.attributes(), shape)
    least = Instruction(elementwise.min_, (first, second), elementwise.min_.attributes(), shape)
    if b.below(2):
        return b.emit(call, x, b.like(x), to_apply=Computation("most", [first, second], [first, second, most], most))
    y = b.like(x)
    root = Instruction(calls.tuple_, (most, least), calls.tuple_.attributes(), calls.tuple_.shape(shape, shape))
    both = Computation("sorted", [first, second], [first, second, most, least, root], root)
    pair = b.emit(call, x, y, to_apply=both)
    bound = b.bounds[x] + b.bounds[y]
    parts = [b.emit(calls.get_tuple_element, pair, gain=0, index=k) for k in (0, 1)]
    for part in parts:
        b.bounds[part] = bound
        if x not in b.exact or y not in b.exact:
            b.exact.discard(part)
    b.usable.append(parts[0])
    return parts[1]


def _dynamic(b: _Builder, x: Node) -> Made:
    """A slice at a computed place, taken out or put in."""
    shape = x.array_shape
    scalars = [y for y in b.usable if y.shape == Shape(S32)]
    fixed = b.emit(movement.constant, literal=Literal(np.asarray(b.below(5) - 1, np.int32)))
    starts = [b.choose([*scalars, fixed]) for _ in shape.dimensions]
    sizes = tuple(b.below(n + 1) for n in shape.dimensions)
    part = b.emit(dynamic_slices.dynamic_slice, x, *starts, dynamic_slice_sizes=sizes)
    return part if b.below(2) else b.emit(dynamic_slices.dynamic_update_slice, x, part, *starts)


def _rows(b: _Builder, x: Node) -> Made:
    """Rows that a vector of integers names: taken, or added to."""
    shape = x.array_shape
    vectors = [y for y in b.usable if y.array_shape.rank == 1 and y.array_shape.element_type is S32]
    if not shape.rank or not vectors or not shape.dimensions[0] or not shape.size:
        return None
    index = b.choose(vectors)
    count = index.array_shape.dimensions[0]
    if count * shape.size // shape.dimensions[0] > LARGEST:
        return None
    vector = b.emit(movement.reshape, index, sizes=(count, 1))
    inner = tuple(range(1, shape.rank))
    sizes = (1, *shape.dimensions[1:])
    taken = b.emit(indexing.gather, x, vector, **indexing.Gather(inner, (0,), (0,), 1, sizes)._asdict())
    b.bounds[taken] = b.bounds[x]
    if x in b.exact:
        b.exact.add(taken)
    if b.below(2) or shape.element_type is PRED:
        return taken
    body = reduction.scalar_computation("maximum" if shape.element_type is not C64 else "add", shape.dtype)
    attributes = indexing.Scatter(inner, (0,), (0,), 1, body)._asdict()
    return b.emit(indexing.scatter, x, vector, taken, gain=count, fresh=count, **attributes)


def _sort(b: _Builder, x: Node) -> Made:
    shape = x.array_shape
    if x not in b.exact or not shape.rank or shape.element_type is C64:
        return None
    body = sorting.order_computation((shape.dtype,), descending=bool(b.below(2)))
    return b.emit(sorting.sort, x, dimensions=(b.below(shape.rank),), to_apply=body)


def _bits(b: _Builder, x: Node) -> Made:
    """As another type of the same width, and a change there that keeps floats away from NaN."""
    kind = x.array_shape.element_type
    if x not in b.exact or kind is not F32:
        return None
    number = b.emit(bits.bitcast_convert, x, new_element_type=S32)
    return number if b.below(2) else b.emit(bits.bitcast_convert, number, new_element_type=F32)


_STEPS: list[Callable[[_Builder, Node], Made]] = [
    *(_arithmetic, _arithmetic, _arithmetic, _arithmetic, _smooth, _smooth, _exact_unary, _roots_and_logarithms),
    *(
        _extremum,
        _compare,
        _select,
        _select,
        _convert,
        _convert,
        _complex_parts,
        _reduce,
        _reduce,
        _reduce,
        _argument,
        _center,
    ),
    *(_center, _softmax, _softmax, _transpose, _transpose, _reshape, _reshape, _broadcast, _reverse, _slice, _pad),
    *(_concatenate, _iota, _constant, _neutral, _dot, _dot, _call, _dynamic, _rows, _sort, _bits),
]
