"""Traces: where the operations that a function applies to tracers go.

Calling an op looks at its operands. Concrete arrays are computed at once; a tracer belongs to a `Trace`, which decides
what the op means there: a `GraphTrace` appends an instruction, the traces of `tinyxla.transforms` differentiate or
batch. Traces nest, and an op goes to the innermost trace among its operands' and those that map an axis which it
names; values of outer traces are constants to inner ones. While a staging trace (that of `jit`) is active, everything
inside it is recorded, also what depends on no tracer.
"""

from __future__ import annotations

import copy
import dis
import gc
import inspect
import math
import reprlib
import sys
import threading
from collections.abc import Callable, Container, Hashable, Mapping, Sequence
from contextvars import ContextVar
from functools import cache
from types import FrameType, MappingProxyType
from typing import Any, NamedTuple, Protocol, Self, TypeVar

import numpy as np

from tinyxla.errors import (
    ArgumentError,
    ConcretizationError,
    LeakedTracerError,
    NonFiniteError,
    ShapeError,
    SizeError,
    SourceLine,
    TracerArrayConversionError,
    user_line,
)
from tinyxla.hlo import Computation, Instruction, Literal, Operation, axis_names
from tinyxla.ops import Op, calls, elementwise, movement
from tinyxla.runtime.allocation import after_shortage
from tinyxla.shapes import AnyShape, Shape, TupleShape, element_type
from tinyxla.shapes.symbolic import has_symbolic
from tinyxla.tracing.advice import advice_for
from tinyxla.tracing.array import Array, ConcreteArray, wrap
from tinyxla.tracing.config import config
from tinyxla.tracing.meshes import context
from tinyxla.tracing.shardings import Sharding, default_sharding
from tinyxla.util.name_stacks import extended

_Result = TypeVar("_Result")


class Kinds(NamedTuple):
    """Axes that are left to the compiler here, and those that are part of types."""

    auto: Container[Hashable]
    explicit: Container[Hashable]


class _State(threading.local):
    """The traces that are active in this thread."""

    depth: int = 0
    staging: GraphTrace | None = None
    source: SourceLine | None = None  # of what is recorded, if that stands for instructions that have one
    axes: Mapping[Hashable, tuple[Trace | None, int]] = MappingProxyType({})  # named: what maps them, and their sizes
    manual: ManualAxes | None = None  # those of the innermost `shard_map`
    kinds: Kinds | None = None  # of axes, where they are not as their mesh says
    scope: str = ""  # the `named_scope`s and transformations that are open, as `util.name_stacks` says
    frontend_attributes: tuple[tuple[str, str], ...] = ()  # of what is recorded


state = _State()


class Trace:
    """One run of a function on tracers.

    >>> import tinyxla
    >>> tinyxla.jit(lambda x: print(x.owner.what))(1.0)
    the traced function <lambda>
    """

    what = "a transformed function"
    as_written = False  # whether scalars stay scalars beside arrays, and products with booleans are products
    function: Callable[..., Any] | None = None  # that runs: for errors to name
    scope: str = ""  # how name stacks call it, if a user asked for it

    def __init__(self) -> None:
        self.level = state.depth
        self.active = False

    def record(self, op: Op, operands: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
        """The result of an op of which this trace has an operand.

        Args:
            op: the op.
            operands: arrays and tracers, of which some are of this trace.
            attributes: the attributes of the op.

        Returns:
            A tracer of this trace, or a tuple of them.

        >>> import tinyxla
        >>> traced = tinyxla.jit(lambda x: 2 * x).trace(1.0)  # operations on x are recorded
        >>> [x.op.name for x in traced.jaxpr.entry.instructions]
        ['parameter', 'constant', 'multiply', 'tuple']
        """
        raise NotImplementedError

    def run(self, function: Callable[[], _Result]) -> _Result:
        """Call a function while the trace is active.

        A context manager would not do: an exception that comes from outside, as Ctrl-C's, may come on its way in or
        out. In `finally` stand assignments alone: Python raises such exceptions at calls and jumps.

        Args:
            function: a function without arguments.

        Returns:
            What the function gives.

        Raises:
            Exception: what the function raises; the trace is not active afterwards.

        >>> import tinyxla
        >>> tinyxla.jit(lambda x: print(x.owner.active))(1.0)
        True
        """
        outer = state.depth, state.staging, state.axes, state.manual, state.scope, state.source
        is_new = not self.active
        try:
            state.depth += 1
            self.active = True
            self._enter()
            if is_new and self.scope:
                state.scope = extended(state.scope, self.scope)
            return function()
        finally:
            self.active = False
            state.depth, state.staging, state.axes, state.manual, state.scope, state.source = outer

    def _enter(self) -> None:
        """What else changes in this thread while the trace is active."""


class Interpreted(Array):
    """An array whose operations go to a trace, its `owner`."""

    __slots__ = ()

    owner: Trace


class Tracer(Interpreted):
    """Stands for an array while a function is traced: its shape and type are known, its value in general not.

    >>> import tinyxla
    >>> from tinyxla.core import Tracer
    >>> tinyxla.jit(lambda x: print(isinstance(x, Tracer), x.shape, x.dtype))(1.0)
    True () float32
    >>> isinstance(tinyxla.numpy.ones(2), Tracer)
    False
    """

    __slots__ = ("owner",)

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.__name__ = "Tracer"  # which Python's own messages show

    def concrete(self, wanted: str, error: type[ConcretizationError] = ConcretizationError) -> ConcreteArray:
        """The value, where the trace has one; else an error that says what wanted it.

        Args:
            wanted: what wants the value, for the text of the error.
            error: the class of the error.

        Returns:
            An array with the value, of a trace that has one.

        Raises:
            ConcretizationError: always, of a tracer whose value is unknown (or `error`, if that is given).

        >>> import tinyxla
        >>> tinyxla.jit(lambda x: x.concrete("my function"))(1.0)
        Traceback (most recent call last):
            ...
        tinyxla.errors.ConcretizationError: my function needs the value of a traced array f32[], but inside the ...
        """
        check_active(self)
        raise error(
            f"{wanted} needs the value of a traced array {self.described()}, but inside {self.owner.what} only its "
            "shape and element type are known",
            ending=lambda: self._ending(wanted, error),
        )

    def _ending(self, wanted: str, error: type[ConcretizationError]) -> str:
        """What the value depends on, and what to do about that."""
        cause = self._cause()
        return f"{cause}. {advice_for(wanted, error, not cause.startswith(_COMPUTED))}"

    def _cause(self) -> str:
        """What the value depends on, for errors."""
        return ""

    def described(self) -> str:
        """The element type and shape as text, for errors.

        Returns:
            A text such as "f32[2,3]".

        >>> import tinyxla
        >>> tinyxla.jit(lambda x: print(x.described()))(tinyxla.numpy.ones((2, 3)))
        f32[2,3]
        """
        return f"{Shape.of(self)}"

    def __repr__(self) -> str:
        return f"Tracer<{self.described()} of {self.owner.what}>"

    def __format__(self, spec: str) -> str:
        return super().__format__(spec) if spec else str(self)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        index = "; to index one by a traced array, make it one of tinyxla by asarray" * (self.dtype.kind in "biu")
        wanted = f"A NumPy array (functions of tinyxla.numpy take traced arrays{index})"
        self.primal(wanted, TracerArrayConversionError)
        raise _no_numpy_array(self)

    def __float__(self) -> float:
        caller = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
        if _is_at(caller, _STORE):
            raise _no_numpy_array(self)
        if _is_at(caller, *_FORMAT):
            return float(self.primal("A format").buffer())
        return super().__float__()

    def __complex__(self) -> complex:
        if _is_at(sys._getframe(1), _STORE):  # pyright: ignore[reportPrivateUsage]
            raise _no_numpy_array(self)
        return super().__complex__()

    def __int__(self) -> int:
        if _is_at(sys._getframe(1), *_FORMAT):  # pyright: ignore[reportPrivateUsage]
            return int(self.primal("A format").buffer())
        return super().__int__()

    def _check_usable(self) -> None:
        check_active(self)

    def __copy__(self) -> Tracer:
        twin: Any = object.__new__(type(self))
        for kind in type(self).__mro__:
            for name in kind.__dict__.get("__slots__", ()):
                if name != "__weakref__":
                    object.__setattr__(twin, name, getattr(self, name))
        return twin

    def __deepcopy__(self, memo: dict[int, Any]) -> Tracer:
        return self  # a copy of what it refers to would belong to no trace

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.concrete("pickle").__reduce_ex__(protocol)


_CONSTANT = (
    "Use a function of tinyxla.numpy, which keeps it (tinyxla.numpy.sin(x) for math.sin(x)); or lax.stop_gradient(x), "
    "as in float(lax.stop_gradient(x)), where a constant is meant."
)
_STORE = bytes([dis.opmap["STORE_SUBSCR"]])
_FORMATTING = compile("s % x\ns %= x", "", "exec")
_FORMAT = tuple(bytes([i.opcode, i.arg or 0]) for i in dis.get_instructions(_FORMATTING) if i.opname == "BINARY_OP")


def _is_at(caller: FrameType, *instructions: bytes) -> bool:
    """Whether a line wants a number by one of these instructions: `a[k] = x` on a NumPy array or `"%f" % x`, and not by
    a call, as `float(x)`."""
    at = caller.f_lasti
    return at >= 0 and caller.f_code.co_code.startswith(instructions, at)


def _no_numpy_array(tracer: Tracer) -> ConcretizationError:
    """NumPy would take the value, and the derivative would silently be zero."""
    return TracerArrayConversionError(
        f"A traced array {tracer.described()} of {tracer.owner.what} cannot become part of a NumPy array, which has no "
        "derivative. Put traced values together with numpy.stack, numpy.concatenate or tinyxla.numpy.array, collect "
        "them in a list instead of writing them into an array, or use x.at[k].set(y); for functions of SciPy use those "
        "of tinyxla.scipy; lax.stop_gradient(x) is the value without its derivative."
    )


def _lost_derivative(tracer: Tracer, wanted: str, error: type[ConcretizationError]) -> ConcretizationError:
    return error(
        f"{wanted} would take the value of a traced array {tracer.described()} of {tracer.owner.what} as a constant, "
        f"and its derivative would be lost. {_CONSTANT}"
    )


class CarryingTracer(Tracer):
    """Carries a value of the enclosing level: a concrete array, or a tracer of an outer trace. (Not as `value`, which
    programs look for to tell boxes of arrays from arrays.)"""

    __slots__ = ("carried",)

    carried: Array

    @property
    def shape(self) -> tuple[int, ...]:
        return self.carried.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.carried.dtype

    @property
    def weak_type(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.carried.weak_type

    @property
    def sharding(self) -> Sharding:
        return self.carried.sharding

    @property
    def committed(self) -> bool:
        return self.carried.committed

    def concrete(self, wanted: str, error: type[ConcretizationError] = ConcretizationError) -> ConcreteArray:
        self.primal(wanted, error)  # where that is not known either, its error says more
        raise _lost_derivative(self, wanted, error)

    def primal(self, wanted: str, error: type[ConcretizationError] = ConcretizationError) -> ConcreteArray:
        check_active(self)
        return self.carried.primal(wanted, error)

    def copy(self) -> Self:
        twin = copy.copy(self)
        twin.carried = self.carried.copy()
        return twin

    def __str__(self) -> str:
        return str(self.carried)


_MAX_LINES = 5  # that an error lists
_COMPUTED = "; it is computed"  # of no argument


class GraphTracer(Tracer):
    """The result of an instruction."""

    __slots__ = ("instruction", "weak_type")

    owner: GraphTrace

    def __init__(self, trace: GraphTrace, instruction: Instruction, weak_type: bool) -> None:
        self.owner = trace
        self.instruction = instruction
        self.weak_type = weak_type

    def _cause(self) -> str:
        """The arguments of the traced function that the value is computed from, or the lines that compute it."""
        seen = {self.instruction}
        waiting = [self.instruction]
        while waiting:
            new = [x for x in waiting.pop().operands if x not in seen]
            seen.update(new)
            waiting += new
        parameters = [k for k, x in enumerate(self.owner.parameters) if x in seen]
        names = self.owner.parameter_names() if self.owner.parameter_names and parameters else []
        found = list(dict.fromkeys(names[k] for k in parameters if k < len(names)))
        if found:
            listed = " and ".join([", ".join(found[:-1]), found[-1]] if found[1:] else found)
            return f"; it depends on the argument{'s' * bool(found[1:])} {listed}"
        if parameters:
            return ""
        lines = [str(x.source) for x in self.owner.instructions if x in seen and x.source]
        shown = ", ".join(list(dict.fromkeys(lines))[:_MAX_LINES])
        return f"{_COMPUTED} by {len(lines)} operation{'s' * bool(lines[1:])}, at {shown}" if lines else ""

    @property
    def shape(self) -> tuple[int, ...]:
        return self.instruction.array_shape.dimensions

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.instruction.array_shape.dtype

    @property
    def sharding(self) -> Sharding:
        return self.owner.sharding_of(self.instruction)

    def concrete(self, wanted: str, error: type[ConcretizationError] = ConcretizationError) -> ConcreteArray:
        value = self.primal(wanted, error)
        if self.owner.carries_tracers:
            raise _lost_derivative(self, wanted, error)
        return value

    def primal(self, wanted: str, error: type[ConcretizationError] = ConcretizationError) -> ConcreteArray:
        check_active(self)
        value = self.owner.value_of(self.instruction)
        return super().concrete(wanted, error) if value is None else value

    def __repr__(self) -> str:
        text = self.owner.text_of(self.instruction) if self.owner.active else None
        return super().__repr__() if text is None else text


class GraphTrace(Trace):
    """Records a graph. What it captures from outside becomes constants (arrays) or further parameters (tracers, and
    arrays for which `captures` says so)."""

    captures: Callable[[Array], bool] | None = None
    parameter_names: Callable[[], Sequence[str]] | None = None  # of the function's own ones: for errors
    memory_kinds: Any = None  # what is known of the memory of results

    @property
    def carries_tracers(self) -> bool:
        """Whether values that are known are those of tracers."""
        return False

    def __init__(self, what: str, staging: bool = True) -> None:
        super().__init__()
        self.what = what
        self.staging = staging
        self.instructions: list[Instruction] = []
        self.parameters: list[Instruction] = []
        self.captured: dict[int, Array] = {}
        self._lifted: dict[int, tuple[Any, Instruction]] = {}  # the value too: it must outlive its id
        outer = state.staging
        self.recordings: dict[Any, Any] = {} if outer is None else outer.recordings  # functions that were traced inside

    def _enter(self) -> None:
        if self.staging:
            state.staging = self
        state.scope = ""  # what is recorded may be used elsewhere: its scopes are those inside of it
        if state.source is not None:
            state.source = state.source.moved("")

    def parameter(self, shape: AnyShape, weak_type: bool = False) -> GraphTracer:
        attributes = movement.Parameter(len(self.parameters), shape)
        instruction = self._append(movement.parameter, (), attributes, shape, None)
        self.parameters.append(instruction)
        return GraphTracer(self, instruction, weak_type)

    def _append(
        self, op: Op, operands: Sequence[Instruction], attributes: Any, shape: AnyShape, source: SourceLine | None
    ) -> Instruction:
        instruction = Instruction(op, operands, attributes, shape, source)
        self.instructions.append(instruction)
        return instruction

    def sharding_of(self, x: Instruction) -> Sharding:
        """How an array is split, as far as its type says that."""
        return default_sharding()

    def value_of(self, x: Instruction) -> ConcreteArray | None:
        """The value of an instruction's result, if it is known already."""
        return None

    def text_of(self, x: Instruction) -> str | None:
        """The value as text, if it is known already."""
        return None

    def lift(self, value: Any) -> Instruction:
        """The instruction that stands for a value here."""
        if isinstance(value, GraphTracer) and value.owner is self:
            return value.instruction
        found = self._lifted.get(id(value))
        if found is not None:
            return found[1]
        if isinstance(value, GraphTracer) and value.instruction.op is movement.constant and not value.ndim:
            check_active(value)
            instruction = self._append(
                movement.constant, (), value.instruction.attributes, value.instruction.shape, None
            )
        elif isinstance(value, Interpreted) or (self.captures is not None and self.captures(value)):
            if isinstance(value, Interpreted):
                check_active(value)
            instruction = self.parameter(Shape.of(value)).instruction
            self.captured[len(self.parameters) - 1] = value
        else:
            literal = Literal(np.asarray(value.buffer()))
            attributes = movement.Constant(literal)
            instruction = self._append(movement.constant, (), attributes, Shape.of(literal.value), None)
        self._lifted[id(value)] = (value, instruction)
        return instruction

    def record(self, op: Op, operands: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
        inputs = [self.lift(x) for x in operands]
        shape = infer_shape(op, tuple(x.shape for x in inputs), attributes)
        source = _source()
        instruction = self._append(op, inputs, op.attributes(**attributes), shape, source)
        if isinstance(shape, Shape):
            return GraphTracer(self, instruction, weak_result(operands))
        parts: list[GraphTracer] = []
        for index, part in enumerate(shape.elements):
            taken = calls.GetTupleElement(index)
            element = self._append(calls.get_tuple_element, (instruction,), taken, part, source)
            parts.append(GraphTracer(self, element, False))
        return tuple(parts)

    def finish(self, name: str, outputs: Sequence[Any], as_tuple: bool = True) -> Computation:
        """The computation that was recorded, with these results."""
        results = [self.lift(x) for x in outputs]
        if as_tuple:
            shape = TupleShape(tuple(x.shape for x in results))
            root = self._append(calls.tuple_, results, calls.tuple_.attributes(), shape, None)
        else:
            (root,) = results
        return Computation(name, self.parameters, self.instructions, root)


def current_scope() -> str:
    """The name stack of what is recorded here: an instruction that is recorded again has its own inside of those that
    are open."""
    return extended(state.scope, state.source.scope) if state.source else state.scope


def within_scope(name: str, function: Callable[[], _Result]) -> _Result:
    """Call a function inside of a scope or transformation."""
    outer = state.scope
    try:
        state.scope = extended(outer, name)
        return function()
    finally:
        state.scope = outer


def without_lines(function: Callable[[], _Result]) -> _Result:
    """Call a function whose operations belong to no line of the user's, but for instructions that it records again."""
    outer = state.source
    try:
        state.source = _NOWHERE
        return function()
    finally:
        state.source = outer


_NOWHERE = SourceLine("", 0, "")


def _source() -> SourceLine | None:
    """The line of what is recorded, in the open scopes, with what is said to the compiler."""
    if state.source is _NOWHERE:
        return None
    source = state.source.inside(state.scope) if state.source else user_line(state.scope)
    if source is not None and state.frontend_attributes:
        known = dict(state.frontend_attributes) | dict(source.frontend_attributes)
        source = source._replace(frontend_attributes=tuple(sorted(known.items())))
    return source


class ManualAxes(Protocol):
    """Mesh axes over which a function is one of parts, and what varies along them."""

    names: frozenset[Hashable]

    def unified(
        self, op: Op, operands: tuple[Any, ...], attributes: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Operands that vary along the same axes, and attributes in whose computations they do."""
        ...

    def varying(self, x: Any) -> frozenset[Hashable] | None:
        """The axes along which a value varies; None if that is not known."""
        ...

    def like(self, value: Any, x: Any) -> Any:
        """A value that varies as x does."""
        ...

    def varying_like(self, value: Any, x: Any) -> Any:
        """A value that varies along the axes along which x varies."""
        ...

    def outputs_vary(self, computation: Computation, operands: Sequence[Any]) -> list[frozenset[Hashable]]:
        """The axes along which the results of a computation of these values vary."""
        ...

    def varies_beyond(self, value: Any, x: Any) -> frozenset[Hashable]:
        """The axes along which a value varies and x does not."""
        ...

    def wrong_axes(self, cotangent: Any, x: Any) -> frozenset[Hashable]:
        """The axes along which a cotangent is none of x."""
        ...

    def settled(self, carry: list[Any], step: Computation, operands: Sequence[Any]) -> list[Any]:
        """What a loop carries, varying along the axes along which the results of its step do."""
        ...

    def inner(self, what: str, staging: bool, values: Sequence[Any]) -> GraphTrace:
        """A trace of a function inside of the one of parts, whose parameters vary as these values do."""
        ...


def outside_of_traces(function: Callable[[], _Result]) -> _Result:
    """Call a function of known values, while others are traced."""
    outer = state.staging, state.axes, state.manual
    try:
        state.staging, state.axes, state.manual = None, MappingProxyType({}), None
        return function()
    finally:
        state.staging, state.axes, state.manual = outer


def varying_axes(x: Any) -> frozenset[Hashable] | None:
    """The axes of functions of parts around along which a value varies among devices; None where that is not known."""
    return None if state.manual is None else state.manual.varying(x)


def varying_like(value: Any, x: Any) -> Any:
    """A value that varies among devices along the axes along which x does, inside of functions of parts."""
    return value if state.manual is None else state.manual.varying_like(value, x)


axis_indices: ContextVar[Mapping[Hashable, Any]] = ContextVar(
    "indices along axes that loops run over", default=MappingProxyType({})
)


def with_axes(
    sizes: Mapping[Hashable, int], function: Callable[[], _Result], indices: Mapping[Hashable, Any] | None = None
) -> _Result:
    """Call a function inside of which there are axes of these names and sizes that nothing maps: operations over them
    are recorded with their names, which something resolves later. Where a loop runs over an axis, `indices` has the
    index along it."""
    outer, known = state.axes, axis_indices.get()
    before = axis_indices.set({**known, **indices} if indices else known)
    try:
        state.axes = {**outer, **{name: (None, size) for name, size in sizes.items()}}
        return function()
    finally:
        state.axes = outer
        axis_indices.reset(before)


# --- binding ----------------------------------------------------------------------------------------------------------


def check_active(tracer: Any) -> None:
    if not tracer.owner.active:
        raise LeakedTracerError(
            f"A tracer {tracer.described()} is used after {tracer.owner.what}, to which it belongs, has ended."
            f"{_origin(tracer)} Return the value from the function instead of storing it in an outer variable, "
            "attribute or container."
        )


def check_leaks(trace: Trace) -> None:
    """An error for a trace of a user's function that has ended, of which a tracer is kept."""
    if not config.check_tracer_leaks or not hasattr(trace.function, "__wrapped__"):
        return
    if not _kept_tracers(trace):
        return
    gc.collect()  # what is left in cycles nobody keeps
    for tracer in _kept_tracers(trace):
        holders = [x for x in gc.get_referrers(tracer) if not isinstance(x, (FrameType, Interpreted, _Kept))]
        named = [f"a {type(x).__name__}" for x in holders] or ["another tracer"]
        what = f"{trace.what[:1].upper()}{trace.what[1:]}"
        raise LeakedTracerError(
            f"{what} has ended, but a tracer {tracer.described()} of it is left in {' and '.join(named)}."
            f"{_origin(tracer)} Return the value from the function instead of storing it in an outer variable, "
            "attribute or container."
        )


class _Kept(list[Any]):
    """Tracers that are looked at here, which is no reason for them to be there."""


def _kept_tracers(trace: Trace) -> _Kept:
    return _Kept(x for x in gc.get_referrers(trace) if isinstance(x, Tracer) and x.owner is trace)


def _origin(tracer: Tracer) -> str:
    """Where a tracer was made, as far as that is known."""
    inner: Any = tracer
    while isinstance(inner, CarryingTracer):
        inner = inner.carried
    if isinstance(inner, GraphTracer) and inner.instruction.source:
        return f" It was made at {inner.instruction.source}."
    function = inspect.unwrap(tracer.owner.function) if tracer.owner.function else None
    code = getattr(function, "__code__", None)
    return f" It was made in {code.co_name}, {code.co_filename}:{code.co_firstlineno}." if code else ""


def bind(op: Op, operands: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
    """The application of an op, which calling it is: the innermost trace among those of the operands records it, and
    without one it is evaluated.

    Args:
        op: the op.
        operands: arrays and tracers.
        attributes: the attributes of the op.

    Returns:
        An array or a tracer, or a tuple of them.

    Raises:
        ShapeError: operands that do not fit the op.

    >>> import tinyxla.numpy as jnp
    >>> from tinyxla.ops.op import ops
    >>> ops["transpose"](jnp.array([[1, 2], [3, 4]]), permutation=(1, 0))
    Array([[1, 3],
           [2, 4]], dtype=int32)
    """
    if op.structural:
        return op.evaluate(*operands, **attributes)
    trace = innermost(operands)
    if state.axes:
        if state.manual is not None:
            operands, attributes = state.manual.unified(op, operands, attributes)
            trace = innermost(operands)
        for name in axis_names(attributes):
            owner, _ = state.axes.get(name, (None, 0))
            if owner is not None and (trace is None or owner.level > trace.level):
                trace = owner
    if trace is None and op.may_have_mesh:
        trace = _trace_of_meshes(attributes)
    if trace is not None:
        return trace.record(op, operands, attributes)
    return on_current_mesh(compute(op, operands, attributes))


def innermost(operands: Sequence[Any]) -> Trace | None:
    """The trace that decides what an op on these operands means; None if that is computing it at once."""
    trace: Trace | None = state.staging
    for x in operands:
        if isinstance(x, Interpreted):
            check_active(x)
            if trace is None or x.owner.level > trace.level:
                trace = x.owner
    return trace


_on_current_mesh: Callable[[Any], Any]


def on_current_mesh(found: Any) -> Any:
    """Results that were computed at once: where they are wanted if `set_mesh` or `default_device` says that."""
    return found if context.programs is None or state.staging is not None else _on_current_mesh(found)


_trace_of_meshes: Callable[[Mapping[str, Any]], Trace | None]


def set_trace_of_meshes(function: Callable[[Mapping[str, Any]], Trace | None]) -> None:
    """Say where operations with these attributes go, which may be over a mesh: that is a matter of other layers."""
    global _trace_of_meshes
    _trace_of_meshes = function


def set_on_current_mesh(function: Callable[[Any], Any]) -> None:
    """Say how results come onto the devices of the current mesh, which is a matter of other layers."""
    global _on_current_mesh
    _on_current_mesh = function


LARGE = 1 << 16  # elements, from which on an op of these is compiled: that is several times as fast as NumPy
_COMPILED = elementwise.NAMES | {
    "concatenate",
    "convolution",
    "dot",
    "fft",
    "gather",
    "pad",
    "reduce",
    "reduce-window",
    "scatter",
    "select-and-scatter",
    "sort",
    "topk",
}
FOREIGN = ("callback", "custom-call")  # functions of the user's, which must not run twice; their errors are their own
_compute_large: Callable[[Op, Sequence[Any], dict[str, Any]], Any]


def set_compute_large(function: Callable[[Op, Sequence[Any], dict[str, Any]], Any]) -> None:
    """Say how an op on large arrays is compiled and computed, which is a matter of other layers."""
    global _compute_large
    _compute_large = function


def compute(op: Op, operands: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
    """An op on concrete arrays."""
    values = [x._value for x in operands]  # saves calls
    check_once(op, values, attributes)
    try:
        result = _evaluated(op, values, attributes)
    except SizeError:
        raise
    except TypeError:
        check_kinds(op, attributes)  # of another kind, but equal to what was checked, as 2.0 is to 2
        raise
    except MemoryError:
        if op.name in FOREIGN:
            raise
        result = after_shortage(op.name, lambda: _evaluated(op, values, attributes))
    if config.special:
        check_finite(op, values, attributes, result)
    if isinstance(result, tuple):
        return tuple(map(wrap, result))
    return ConcreteArray(result, weak_result(operands))


def _evaluated(op: Op, values: list[Any], attributes: dict[str, Any]) -> Any:
    if op.name in _COMPILED and max([x.size for x in values]) >= LARGE and not config.special:
        return _compute_large(op, values, attributes)
    with np.errstate(all="ignore"):
        return op.evaluate(*values, **attributes)


def check_finite(
    op: Operation, operands: Sequence[Any], attributes: dict[str, Any], result: Any, source: Any = None
) -> None:
    """With `debug_nans` or `debug_infs`, an error for a NaN or infinity in the result of operands that have none. What
    has no operands is a constant, or memory that nothing was written to."""
    found = unwanted(result) if operands else ""
    if found and not any(map(unwanted, operands)):
        if op.name == "call":
            check_computation(attributes["to_apply"], operands)
        name = op.name
        raise NonFiniteError(f"{name}: the result has {found}, while no operand has any.", source)


def check_computation(computation: Computation, operands: Sequence[Any]) -> None:
    """The same for the first instruction of which it is true: the computation is run once more, op by op."""
    values: dict[Instruction, Any] = dict(zip(computation.parameters, operands, strict=True))
    for x in computation.instructions:
        if x not in values:
            inputs, attributes = [values[o] for o in x.operands], x.attributes._asdict()
            with np.errstate(all="ignore"):
                values[x] = x.op.evaluate(*inputs, **attributes)
            check_finite(x.op, inputs, attributes, values[x], x.source)


def unwanted(value: Any) -> str:
    """What an array, or one of a tuple of arrays, has that it should not."""
    if isinstance(value, tuple):
        return next(filter(None, map(unwanted, value)), "")
    if not element_type(value.dtype).is_inexact:
        return ""
    if config.debug_nans and np.isnan(value).any():
        return "a NaN"
    return "an infinity" if config.debug_infs and np.isinf(value).any() else ""


def weak_result(operands: Sequence[Any]) -> bool:
    """Whether the result of operands that have a `weak_type` is weakly typed: if all of them are. Parts of a tuple are
    not."""
    for x in operands:
        if not x.weak_type:
            return False
    return len(operands) > 0


def check_kinds(op: Operation, attributes: dict[str, Any]) -> None:
    """An error for an attribute of another kind than the op declares, where that is integers."""
    declared = _declared(op.attributes)
    for name, value in attributes.items():
        kind, said = declared[name], ""
        if kind == "int":
            said = "" if _is_integer(value) else "an integer"
        elif kind in ("Ints", "tuple[int, ...]"):
            fits = isinstance(value, tuple | range) and all(map(_is_integer, value))
            said = "" if fits else "a tuple of integers"
        elif isinstance(value, Shape):
            said = "" if all(map(_is_integer, value.dimensions)) else "of integer sizes"
            value = value.dimensions if said else value
        elif isinstance(value, (list, dict, set, np.ndarray, Array)):
            said = f"static ({kind})"
        if said:
            shown = " ".join(reprlib.repr(value).split())
            raise ArgumentError(f"{op.name}: {name} must be {said}, but got {shown}.")


@cache
def _declared(attributes: type[Any]) -> dict[str, str]:
    """The attributes' names and their kinds, as they are written."""
    return {name: getattr(kind, "__forward_arg__", str(kind)) for name, kind in attributes.__annotations__.items()}


def _is_integer(value: Any) -> bool:
    return isinstance(value, (int, np.integer))


_checked: dict[Any, AnyShape] = {}
_MAX_CHECKED = 1 << 16


def check_once(op: Op, values: Sequence[Any], attributes: dict[str, Any]) -> None:
    """Run the op's shape rule, which checks its preconditions, unless it has seen such operands before."""
    key = (op, *[(x.dtype, x.shape) for x in values], *attributes.values())
    try:
        known = key in _checked
    except TypeError:  # what has no hash is of another kind
        known = False
    if not known:
        if op is not movement.constant:  # of which each is seen once
            check_kinds(op, attributes)
        if len(_checked) > _MAX_CHECKED:
            _checked.clear()
        _checked[key] = checked_size(op.name, op.shape(*map(Shape.of, values), **attributes))


_inferred: dict[Any, AnyShape] = {}


def infer_shape(op: Op, shapes: tuple[AnyShape, ...], attributes: dict[str, Any]) -> AnyShape:
    if op is movement.constant:
        return op.shape(*shapes, **attributes)
    key = (op, shapes, *attributes.values())
    try:
        found = _inferred.get(key)
    except TypeError:
        found = None
    if found is None:
        check_kinds(op, attributes)
        if len(_inferred) > _MAX_CHECKED:
            _inferred.clear()
        found = _inferred[key] = checked_size(op.name, op.shape(*shapes, **attributes))
    return found


_MAX_DIMENSIONS = 64  # as in NumPy
_MAX_BYTES = 1 << 57  # no processor has longer addresses, and indices may take eight times the bytes of elements


def checked_size(what: str, shape: AnyShape) -> AnyShape:
    """The shape, unless no memory can be addressed that would hold it (without its sizes of 0: so NumPy counts)."""
    for part in shape.elements if isinstance(shape, TupleShape) else (shape,):
        if isinstance(part, Shape) and part.rank > _MAX_DIMENSIONS:
            raise ShapeError(f"{what}: arrays have at most {_MAX_DIMENSIONS} dimensions, but got {part.rank}.")
        if isinstance(part, Shape) and has_symbolic(part.dimensions):
            continue
        if isinstance(part, Shape) and math.prod(n or 1 for n in part.dimensions) * part.dtype.itemsize > _MAX_BYTES:
            raise SizeError(
                f"{what}: an array {part} has more bytes than a computer can address; give it smaller sizes."
            )
    return shape


Op.bind = staticmethod(bind)
_trace_of_values: Callable[[str, bool, Sequence[Any]], GraphTrace]


def set_trace_of_values(function: Callable[[str, bool, Sequence[Any]], GraphTrace]) -> None:
    """Say what records a function of known values, which is a matter of what their types are."""
    global _trace_of_values
    _trace_of_values = function


def trace(
    function: Callable[..., Sequence[Any]],
    shapes: Sequence[AnyShape],
    name: str,
    weak_types: Sequence[bool] | None = None,
    what: str | None = None,
    staging: bool = True,
    values: Sequence[Any] = (),
    captures: Callable[[Array], bool] | None = None,
    names: Callable[[], Sequence[str]] | None = None,
) -> tuple[Computation, list[Array], list[bool]]:
    """Run `function(*tracers)`, which returns a flat list of results. The tracers stand for `values`, where these are
    known.

    Gives the computation, the tracers of outer traces and the arrays for which `captures` is true that it captured (its
    last parameters, in order), and which results are weakly typed.
    """
    if state.manual is not None and len(values) == len(shapes):
        graph = state.manual.inner(what or name, staging, values)
    elif len(values) == len(shapes):
        graph = _trace_of_values(what or name, staging, values)
    else:
        graph = GraphTrace(what or name, staging)
    graph.function = function
    graph.captures = captures
    graph.parameter_names = names

    def record() -> tuple[Computation, Sequence[Any]]:
        weak = weak_types or [False] * len(shapes)
        tracers = [graph.parameter(shape, w) for shape, w in zip(shapes, weak, strict=True)]
        outputs = function(*tracers)
        return graph.finish(name, outputs), outputs

    computation, outputs = graph.run(record)
    weak_results = [x.weak_type for x in outputs]
    del outputs
    check_leaks(graph)
    return computation, list(graph.captured.values()), weak_results
