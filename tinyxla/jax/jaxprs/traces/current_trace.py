"""Traces that programs define, and the trace that is current: `jax.core.Trace`, `take_current_trace` and so on.

While a trace of a program is current, it is the one that records: all operations reach its `process_primitive`, which
runs while none is current. Loops, branches and compositions are recorded as in `make_jaxpr`.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Sequence
from types import MemberDescriptorType
from typing import Any

from tinyxla.errors import ConcretizationError
from tinyxla.jax.jaxprs.traces import recording
from tinyxla.tracing.array import Array
from tinyxla.tracing.core import GraphTrace, Trace, Tracer, state
from tinyxla.tracing.promotion import as_array
from tinyxla.tracing.shardings import Sharding, SingleDeviceSharding

Params = dict[str, Any]
_record: Callable[[Any, Any, tuple[Any, ...], Params], Any]
_operand: Callable[[Any], Any]


def set_record(record: Callable[[Any, Any, tuple[Any, ...], Params], Any], operand: Callable[[Any], Any]) -> None:
    """Say how an op is made of primitives that a trace processes, and what it is given for a known value, which is a
    matter of what jaxprs are."""
    global _record, _operand
    _record, _operand = record, operand


class ProgramTrace(Trace):
    """The base class of traces that programs define.

    A subclass has `process_primitive(primitive, tracers, params)`, which gives a tracer, or a list of them if the
    primitive has several results; and, for functions with rules of their own, `process_custom_jvp_call` and
    `process_custom_vjp_call`. Operands are tracers of the trace, and values from around it.

    Example:
        >>> import tinyxla.jax
        >>> import jax
        >>> class Named(jax.core.Tracer):
        ...     def __init__(self, trace, value):
        ...         super().__init__(trace, jax.typeof(value))
        ...         self.value = value
        >>> class Names(jax.core.Trace):
        ...     def process_primitive(self, primitive, tracers, params):
        ...         print(primitive)
        ...         values = [x.value if isinstance(x, Named) else x for x in tracers]
        ...         return Named(self, primitive.bind(*values, **params))
        >>> trace = Names()
        >>> with jax.extend.core.set_current_trace(trace):
        ...     result = jax.numpy.sin(Named(trace, 1.0)) * 2
        sin
        mul
    """

    what = "a trace that the program defines"
    staging = True
    as_written = True
    captures: Callable[[Array], bool] | None = None
    requires_low = True

    def __init__(self) -> None:
        super().__init__()
        self.recordings: dict[Any, Any] = {}  # functions that were traced inside
        self._invalidated = False

    def __repr__(self) -> str:
        return type(self).__name__

    @property
    def main(self) -> Any:
        """The tag, of traces that have one."""
        return getattr(self, "tag", None)

    def invalidate(self) -> None:
        """Say that the tracers are not used any more."""
        self._invalidated = True

    def is_valid(self) -> bool:
        """Whether the tracers may still be used."""
        return not self._invalidated

    def full_raise(self, x: Any) -> Any:
        """The value as it is."""
        return x

    def stage_value(self, val: Any) -> Any:
        """A tracer of a value from around."""
        raise NotImplementedError(f"{type(self).__name__} must define stage_value.")

    def process_primitive(self, primitive: Any, tracers: Sequence[Any], params: Params, /) -> Any:
        """The results of a primitive."""
        raise NotImplementedError(f"{type(self).__name__} must define process_primitive.")

    def process_call(self, call_primitive: Any, f: Any, tracers: Sequence[Any], params: Params, /) -> Any:
        """The results of a function that is called."""
        raise NotImplementedError(f"{type(self).__name__} must define process_call, for primitives that are calls.")

    def process_custom_jvp_call(
        self, primitive: Any, fun: Any, jvp: Any, tracers: Sequence[Any], /, *, symbolic_zeros: bool
    ) -> Any:
        """The results, as a list, of a function with a rule of `custom_jvp`: `fun(*primals)` gives a list of results,
        `jvp(*primals, *tangents)` that with the list of their tangents."""
        raise NotImplementedError(
            f"{type(self).__name__} must define process_custom_jvp_call, for functions with rules of custom_jvp."
        )

    def process_custom_vjp_call(
        self,
        primitive: Any,
        fun: Any,
        fwd: Any,
        bwd: Any,
        tracers: Sequence[Any],
        /,
        *,
        out_trees: Callable[[], Any],
        symbolic_zeros: bool,
    ) -> Any:
        """The results, as a list, of a function with a rule of `custom_vjp`. `fwd` takes each primal with whether a
        derivative by it is wanted, and gives residuals and results in one list; `bwd(*residuals, *cotangents)` gives
        the cotangents of the primals; `out_trees()` the structures of results and residuals, of which the second counts
        them, once `fwd` ran."""
        raise NotImplementedError(
            f"{type(self).__name__} must define process_custom_vjp_call, for functions with rules of custom_vjp."
        )

    def record(self, op: Any, operands: tuple[Any, ...], attributes: Params) -> Any:
        return _record(self, op, operands, attributes)

    def processed(self, primitive: Any, operands: Sequence[Any], params: Params) -> list[Any]:
        """The results of a primitive whose innermost trace this is, as a list."""
        with take_current_trace():
            avals = tuple(x.aval for x in operands)
            found = primitive.bind_with_trace(self, tuple(map(_operand, operands)), avals, params)
        return list(map(as_array, found if primitive.multiple_results else [found]))


class ProgramTracer(Tracer):
    """The base class of tracers that programs define. Its type is that of `aval`, which a subclass may define as a
    property."""

    __slots__ = ("_line_info", "_trace", "aval")

    _trace: ProgramTrace
    aval: Any

    def __init__(self, trace: ProgramTrace, aval: Any) -> None:
        self._trace = trace
        self.aval = aval

    def __init_subclass__(cls) -> None:
        """A class of the program's keeps its name."""

    owner = property(lambda self: self._trace)
    shape = property(lambda self: self.aval.shape)  # type: ignore[assignment]
    dtype = property(lambda self: self.aval.dtype)  # type: ignore[assignment]
    weak_type = property(lambda self: getattr(self.aval, "weak_type", False))  # type: ignore[assignment]

    @property
    def sharding(self) -> Sharding:
        return SingleDeviceSharding()

    def with_weak_type(self, weak: bool) -> Array:
        """The tracer as it is: whether its type is weak is what its `aval` says."""
        return self

    def full_lower(self) -> Any:
        """The value that the tracer stands for where there is one."""
        return self

    def to_concrete_value(self) -> Any:
        """The value, if it is known."""
        return None

    def concrete(self, wanted: str, error: type[ConcretizationError] = ConcretizationError) -> Any:
        value = self.to_concrete_value()
        return super().concrete(wanted, error) if value is None else as_array(value)

    def __copy__(self) -> Any:
        twin = object.__new__(type(self))
        for kind in type(self).__mro__:
            for slot in kind.__dict__.values():
                if isinstance(slot, MemberDescriptorType):
                    with contextlib.suppress(AttributeError):  # one that is not set
                        slot.__set__(twin, slot.__get__(self))
        getattr(twin, "__dict__", {}).update(getattr(self, "__dict__", {}))
        return twin

    def __repr__(self) -> str:
        return f"{type(self).__name__}<{self.aval.str_short()}>"


class _StandsForAll(type):
    """The type of JAX's base classes of traces and tracers, whose instances those of this library are, too."""

    all: type

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> None:
        cls.all = namespace.get("all", cls)

    def __instancecheck__(cls, instance: object) -> bool:
        return type.__instancecheck__(cls.all, instance)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return type.__subclasscheck__(cls.all, subclass)


class JaxTrace(ProgramTrace, metaclass=_StandsForAll):
    """`jax.core.Trace`."""

    all = Trace


class JaxTracer(ProgramTracer, metaclass=_StandsForAll):
    """`jax.core.Tracer`."""

    __slots__ = ()
    all = Tracer


class EvalTrace(ProgramTrace):
    """What was current before a trace of a program: binding a primitive with it means what it meant there. Without a
    trace that records, operations compute at once."""

    what = "a program that is not traced"

    def __init__(self, recorder: Trace | None = None, depth: int = 0) -> None:
        super().__init__()
        self._recorder = (lambda: None) if recorder is None else weakref.ref(recorder)
        self.depth = depth  # of functions whose jaxprs are recorded

    @property
    def recorder(self) -> Trace | None:
        """The trace that records, as long as it is there."""
        return self._recorder()

    def stage_value(self, val: Any) -> Any:
        return as_array(val)

    def process_primitive(self, primitive: Any, tracers: Sequence[Any], params: Params, /) -> Any:
        with set_current_trace(self):
            return primitive.bind(*tracers, **params)

    def process_call(self, call_primitive: Any, f: Any, tracers: Sequence[Any], params: Params, /) -> Any:
        with set_current_trace(self):
            return f.call_wrapped(*tracers)

    def process_custom_jvp_call(
        self, primitive: Any, fun: Any, jvp: Any, tracers: Sequence[Any], /, **params: Any
    ) -> Any:
        with set_current_trace(self):
            return primitive.bind(*tracers, subfuns=(fun, jvp), **params)

    def process_custom_vjp_call(
        self, primitive: Any, fun: Any, fwd: Any, bwd: Any, tracers: Sequence[Any], /, **params: Any
    ) -> Any:
        with set_current_trace(self):
            return primitive.bind(*tracers, subfuns=(fun, fwd, bwd), **params)


EVAL_TRACE = EvalTrace()
_known: weakref.WeakKeyDictionary[Trace, dict[int, EvalTrace]] = weakref.WeakKeyDictionary()  # by recorder and depth


def current_trace() -> Any:
    """The trace of a program that is current, or what stands for the one that records; `EVAL_TRACE` if none does."""
    if isinstance(state.staging, ProgramTrace):
        return state.staging
    recorder, depth = state.staging, recording.depth()
    if recorder is None:
        return EvalTrace(None, depth) if depth else EVAL_TRACE
    known = _known.setdefault(recorder, {})
    if depth not in known:
        known[depth] = EvalTrace(recorder, depth)
    return known[depth]


class TraceContext:
    """What tells the current trace: `trace`."""

    trace = property(lambda self: current_trace())


class set_current_trace:
    """A context in which a trace is the current one: of a program, or what `take_current_trace` gave."""

    def __init__(self, trace: Any, check_leaks: bool = False) -> None:
        self.trace = trace
        self._check_leaks = check_leaks

    def __enter__(self) -> Any:
        trace, depth = self.trace, recording.depth()
        recorder: Any = trace
        self._outer = state.depth, state.staging
        self._activates = False
        if trace is None or isinstance(trace, EvalTrace):
            recorder, depth = (None, 0) if trace is None else (trace.recorder, trace.depth)
        elif isinstance(trace, ProgramTrace):
            depth += 1
            if not trace.active:
                self._activates = trace.active = True
                trace.level = state.depth
                state.depth += 1
        elif not isinstance(trace, GraphTrace):  # the operands say what is an operation of this trace
            recorder = state.staging
        state.staging = recorder
        self._recording = recording.switch(depth)
        return trace

    def __exit__(self, *ignored: object) -> None:
        state.depth, state.staging = self._outer
        recording.switch_back(self._recording)
        if self._activates:
            self.trace.active = False
            if self._check_leaks:
                self.trace.invalidate()


class take_current_trace(set_current_trace):
    """A context that gives the current trace, and in which none is."""

    def __init__(self) -> None:
        super().__init__(None)

    def __enter__(self) -> Any:
        found = current_trace()
        super().__enter__()
        return found
