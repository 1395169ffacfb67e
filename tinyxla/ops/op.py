"""What an operation is: its rules, side by side.

An `Op` is called on values - concrete arrays or tracers, of which this module knows only the `Value` protocol - with
its attributes as keywords, and binds itself through whatever the values are: concrete ones are computed, tracers
record. Rules are written in terms of ops, so they run on whatever values they are given, and have derivatives of their
own.

The rules, with `x, y, ...` the operands and attributes by keyword:

- `shape(*shapes, **attributes) -> shape`: infers the result's shape and checks every documented precondition;
- `evaluate(*arrays, **attributes) -> array`: the value, in NumPy (a tuple of arrays for a tuple shape);
- `derivative`: one of `Partials`, `Linear`, `Bilinear`, `Rules`, `Joint`, `Decomposition`, `Zero`,
  `NotDifferentiable`;
- `batch(size, operands, axes, **attributes) -> (result, axis)`: the op mapped over one axis of some operands
  (`None` for those without);
- `samples(random) -> Iterator[Sample]`: operands and attributes for the generated tests;
- `expand(*operands, **attributes) -> result`, where the op has one: the same made of other ops. The compiler puts it in
  the op's place;
- `sharding(*shapes, **attributes) -> Factors`, where the op has one: how its dimensions may be split over devices. One
  without it is computed whole by each device.

Facts that passes, printers and reports read: `cost` of an element, the `scalar` function that computes it, and the name
in `stablehlo`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from tinyxla.errors import ShapeError
from tinyxla.scalar_math.accuracy import Accuracy
from tinyxla.shapes import AnyShape, Shape, TupleShape

Array = np.ndarray[Any, Any]
Ints = tuple[int, ...]
Axes = tuple[int | None, ...]  # for each operand the one that is mapped, if any


class Value(Protocol):
    """A concrete array or a tracer: what rules may ask of it. What they compute they compute by ops."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    @property
    def ndim(self) -> int: ...
    @property
    def size(self) -> int: ...


Cotangent = Value | None  # None is zero


class Partials(NamedTuple):
    """An element-wise op: for each operand, `partial(g, ans, *operands, **attributes)` is g times the derivative by it
    (None where that is zero). Serves both modes, since element-wise maps are their own transposes."""

    partials: tuple[Callable[..., Value] | None, ...]


class Linear(NamedTuple):
    """Linear in some operands together (`operands` lists them; None means all).

    `transpose(g, *operands, **attributes)` gives a cotangent for each operand in `operands`; of these it may use only
    the shapes. With a linear op the tangent is the op applied to tangents.
    """

    transpose: Callable[..., Sequence[Cotangent]]
    operands: tuple[int, ...] | None = None


class Bilinear(NamedTuple):
    """Linear in either of two operands: `left(g, x, y, **attributes)` and `right(...)` are their cotangents."""

    left: Callable[..., Value]
    right: Callable[..., Value]


class Rules(NamedTuple):
    """Both modes spelled out.

    `jvp(tangents, ans, *operands, **attributes)` gives the tangent of the result (tangents may be None: zero), and
    `vjp(g, ans, *operands, **attributes)` a cotangent for each operand. For a tuple result `ans`, `g` and the tangent
    are tuples. `residuals`, if given, replaces the op in a reverse pass: `residuals(*operands, **attributes)` gives the
    result and a function from `g` to the cotangents. With `symbolic_zeros` members of a tuple `g` that are zero for
    sure are None, and else arrays of zeros.
    """

    jvp: Callable[..., Any]
    vjp: Callable[..., Sequence[Cotangent]]
    residuals: Callable[..., tuple[Any, Callable[[Any], Sequence[Cotangent]]]] | None = None
    symbolic_zeros: bool = False


class Joint(NamedTuple):
    """Both modes of an op that shares its work with its derivative: each gives the op's own result too.

    `forward(tangents, *operands, **attributes)` gives the result and its tangent (tangents may be None: zero), and
    `reverse(wanted, *operands, **attributes)` the result and a function from its cotangent to those of the operands,
    of which only those that are `wanted` (a bool for each) matter; None stands for this function where the derivative
    is zero. For a tuple result these are tuples, in which the cotangents that are zero for sure are None if the op
    takes `symbolic_zeros`, and else arrays of zeros.

    `flows(wanted, **attributes)`, if given, says to which results of a tuple a derivative can flow from those operands;
    None, as without it: to all of them.
    """

    forward: Callable[..., tuple[Any, Any]]
    reverse: Callable[..., tuple[Any, Callable[[Any], Sequence[Cotangent]] | None]]
    symbolic_zeros: bool = False
    flows: Callable[..., Sequence[bool] | None] | None = None


class Decomposition(NamedTuple):
    """The derivative is that of an equal function made of other ops, `decompose(*operands, **attributes)`; for a tuple
    result it gives a tuple."""

    decompose: Callable[..., Value | tuple[Value, ...]]


class Zero(NamedTuple):
    """The derivative is zero wherever it exists."""


class NotDifferentiable(NamedTuple):
    """There is no derivative; asking for one is an error that gives the reason."""

    reason: str


class ByAttributes(NamedTuple):
    """One of the other forms, chosen by the attributes: `choose(**attributes)`."""

    choose: Callable[..., Derivative]


class ByOperands(NamedTuple):
    """One of the other forms, chosen by the operands' shapes, too: `choose(*operands, **attributes)`."""

    choose: Callable[..., Derivative]


Derivative = (
    Partials | Linear | Bilinear | Rules | Joint | Decomposition | Zero | NotDifferentiable | ByAttributes | ByOperands
)


class Sample(NamedTuple):
    """Operands and attributes for a test.

    >>> import numpy as np
    >>> from tinyxla.ops.op import ops
    >>> sample = next(ops["sort"].samples(np.random.default_rng(0)))
    >>> sorted(sample.attributes)
    ['dimensions', 'is_stable', 'to_apply']
    """

    operands: tuple[Any, ...]
    attributes: dict[str, Any] = {}  # noqa: RUF012 - a default that nothing writes to


Dimensions = tuple[int | None, ...]


def _as_they_are(attributes: dict[str, Any], operands: Sequence[Ints], results: Sequence[Ints]) -> dict[str, Any]:
    return attributes


class Factors(NamedTuple):
    """The sharding rule of an instruction: its iteration space, as an einsum writes it.

    A factor is an index of this space, a number. `operands` and `results` have for each dimension its factor; None
    where each device must have all of the dimension. Dimensions of one factor are split alike; where their sizes
    differ, the factor is the major part of them. `sizes` has the size of a factor if no dimension has it alone. A
    factor that a result does not have is reduced over: where it is split, devices have partial results, which
    `reductions` combines by the binary op with this name. `localize(attributes, operands, results)` gives the
    attributes of the instruction on the parts, which have these sizes.

    Along `communicating` factors an element of a result depends on elements of other parts, too: such a dimension is
    whole unless the partitioner has a rule for the op.

    Source: "Shardy", section "Sharding rule"; "GSPMD: General and Scalable Parallelization for ML Computation Graphs"
    (Xu et al., 2021).
    """

    operands: tuple[Dimensions, ...]
    results: tuple[Dimensions, ...]
    reductions: tuple[tuple[int, str], ...] = ()
    localize: Callable[[dict[str, Any], Sequence[Ints], Sequence[Ints]], dict[str, Any]] = _as_they_are
    communicating: frozenset[int] = frozenset()
    sizes: tuple[tuple[int, int], ...] = ()

    def without(self, factors: Collection[int]) -> Factors:
        """The same where dimensions of some factors are whole."""
        if not factors:
            return self

        def kept(dimensions: Dimensions) -> Dimensions:
            return tuple(None if d in factors else d for d in dimensions)

        return self._replace(
            operands=tuple(map(kept, self.operands)),
            results=tuple(map(kept, self.results)),
            reductions=tuple(pair for pair in self.reductions if pair[0] not in factors),
            communicating=self.communicating.difference(factors),
        )


def same_dimensions(*shapes: Any, **attributes: Any) -> Factors:
    """The factors of an op whose result has the dimensions of its operands, element by element; scalars go with all."""
    rank = max((x.rank for x in shapes), default=0)
    every = tuple(range(rank))
    return Factors(tuple(every if x.rank == rank else () for x in shapes), (every,))


def but_for(dimensions: Collection[int], rank: int, operands: int = 1, results: int = 1) -> Factors:
    """The factors of an op of arrays of one rank that treats all elements along some dimensions together, and others
    alike."""
    own = tuple(None if d in dimensions else d for d in range(rank))
    return Factors((own,) * operands, (own,) * results)


def batches(operands: Sequence[Any], inner: Sequence[int], results: Sequence[int]) -> Factors:
    """The factors of an op of arrays whose first dimensions are of a batch.

    Args:
        operands: their shapes.
        inner, results: how many dimensions each operand, and each result, has after those of the batch.
    """
    batch = tuple(range(operands[0].rank - inner[0]))
    own = [(*batch, *(None,) * count) for count in (*inner, *results)]
    return Factors(tuple(own[: len(inner)]), tuple(own[len(inner) :]))


class NoAttributes(NamedTuple):
    """Of an op that has none."""


class Cost(NamedTuple):
    """Cost of an element: `work` in additions, by which fusion and loop-invariant code motion decide; and whether
    `cost_analysis` counts it as a transcendental function, as XLA's does."""

    work: int = 1
    is_transcendental: bool = False


ADDITION = Cost()
DIVISION = Cost(4)
SQUARE_ROOT = Cost(4, is_transcendental=True)
TRANSCENDENTAL = Cost(8, is_transcendental=True)


class ScalarFunction(NamedTuple):
    """The scalar math of an element-wise op.

    `name` is that in `tinyxla.scalar_math.elementary`, and in `complex_numbers` if the op is defined for complex types.
    `accuracy` has its largest errors, `largest_result` bounds its real results by magnitude. `python` is the
    expression over operands `{0}`, `{1}` that printed kernels have; by default it is NumPy's function of this name.
    `slow_path` has the kinds of element types of which few arguments need a second, slow path. `cost` is that of an
    element.
    """

    name: str
    accuracy: Accuracy
    largest_result: float = math.inf
    python: str = ""
    slow_path: frozenset[str] = frozenset()
    cost: Cost = TRANSCENDENTAL

    @property
    def expression(self) -> str:
        """The Python expression of the value."""
        return self.python or f"np.{self.name}({{0}})"


class _Own:
    """See `OWN`."""

    def __repr__(self) -> str:
        return "<the axis that is mapped>"


OWN = _Own()  # what stands for the name of the axis that is mapped, in the attributes which a rule `batch` gets

Bind = Callable[["Op", tuple[Any, ...], dict[str, Any]], Any]
ops: dict[str, Op] = {}


def _unbound(op: Op, operands: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
    raise RuntimeError("operations are called through tinyxla.tracing, which has not been imported")


_OF_PROGRAMS = ("call", "conditional", "while")  # whose attributes have computations of any operations


class Op:
    """An operation: its name in HLO and all its rules. Constructing one with a part missing fails.

    >>> from tinyxla.ops.op import ops
    >>> ops["floor"], ops["floor"].derivative, ops["transpose"].attributes(permutation=(1, 0))
    (<op floor>, Zero(), Transpose(permutation=(1, 0)))
    """

    bind: Bind = staticmethod(_unbound)  # set once by the tracing layer: what a call does
    dynamic_shape: Callable[
        ..., AnyShape
    ]  # set once by `dynamic_sizes`: the shape for operands with dynamic dimensions

    def __init__(
        self,
        name: str,
        *,
        shape: Callable[..., AnyShape],
        evaluate: Callable[..., Any],
        derivative: Derivative,
        batch: Callable[..., Any],
        samples: Callable[[np.random.Generator], Iterator[Sample]],
        attributes: type[Any] = NoAttributes,
        expand: Callable[..., Any] | None = None,
        structural: bool = False,
        fill_defaults: bool = False,
        scalar: ScalarFunction | None = None,
        cost: Cost = ADDITION,
        stablehlo: str = "",
        sharding: Callable[..., Factors] | None = None,
    ) -> None:
        self.name = name
        self.scalar = scalar
        self.cost = scalar.cost if scalar else cost
        self.stablehlo = stablehlo  # with the dialect; empty if StableHLO has no such op, or one of other attributes
        self.attributes = attributes
        self.defaults: dict[str, Any] = (
            attributes._field_defaults if fill_defaults else {}
        )  # that rules get in any case
        self._shape = shape
        self.evaluate = evaluate
        self.derivative = derivative
        self.batch = batch
        self.samples = samples
        self.expand = expand
        self.sharding = sharding
        self.may_have_mesh = "mesh" in attributes._fields or name in _OF_PROGRAMS
        self.structural = structural  # only regroups values, so it evaluates alike on arrays and tracers
        if name in ops:
            raise ValueError(f"there are two ops named {name}")
        ops[name] = self

    def shape(self, *shapes: AnyShape, **attributes: Any) -> AnyShape:
        """The shape of the result; an error where a documented precondition is not met.

        Args:
            *shapes: the shapes of the operands.
            **attributes: the attributes of the op.

        Returns:
            The shape of the result; of several a tuple's.

        Raises:
            ShapeError: shapes or attributes that do not fit the op.

        >>> from tinyxla.ops.op import ops
        >>> from tinyxla.xla import F32, Shape
        >>> ops["transpose"].shape(Shape(F32, (2, 3, 4)), permutation=(2, 0, 1))
        f32[4,2,3]
        """
        for shape in shapes:
            if not isinstance(shape, (Shape, TupleShape)):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ShapeError(f"{self.name}: the operands must be described by shapes, but got {shape!r}.")
            if shape.is_dynamic:
                given = self.attributes(**attributes)._asdict()
                return Op.dynamic_shape(self.name, self._shape, shapes, given)
        return self._shape(*shapes, **attributes)

    def __call__(self, *operands: Any, **attributes: Any) -> Any:
        if self.defaults:
            attributes = self.defaults | attributes
        return Op.bind(self, operands, attributes)

    def __repr__(self) -> str:
        return f"<op {self.name}>"
