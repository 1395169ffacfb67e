"""Jaxprs: programs in A-normal form, and their evaluation.

A jaxpr is made of a recorded computation (`translation`), under JAX's names of primitives and parameters.
`eval_jaxpr` runs or calls that computation; of a jaxpr that was put together otherwise it binds the primitives one by
one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from tinyxla.api.jit import jit
from tinyxla.errors import ArgumentError
from tinyxla.hlo import Computation, Instruction
from tinyxla.jax.jaxprs.primitives.program_primitives import Primitive
from tinyxla.jax.jaxprs.printing import print_equation, print_jaxpr
from tinyxla.jax.jaxprs.traces.current_trace import ProgramTrace
from tinyxla.jax.jaxprs.traces.recording import is_recording_operations
from tinyxla.ops import calls
from tinyxla.shapes import TupleShape
from tinyxla.tracing.core import innermost, state, weak_result
from tinyxla.tracing.promotion import as_array
from tinyxla.transforms.calls import call
from tinyxla.transforms.computations import interpret, results, run
from tinyxla.transforms.key_arrays import KeyArray


class Var:
    """A variable of a jaxpr. Compared by identity."""

    __slots__ = ("aval",)

    def __init__(self, aval: Any, *ignored: Any) -> None:
        self.aval = aval

    def __repr__(self) -> str:
        return f"Var(id={id(self)}):{self.aval.str_short()}"


class DropVar(Var):
    """A result that nothing uses."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "_"


class Literal:
    """A scalar constant among the operands."""

    __slots__ = ("aval", "val")

    def __init__(self, val: Any, aval: Any) -> None:
        self.val = val
        self.aval = aval

    @property
    def hash(self) -> int:
        return hash((np.asarray(self.val).tobytes(), self.aval.dtype))

    def __repr__(self) -> str:
        return f"Literal({self.val})"


Atom = Var | Literal


class Effect:
    """Something that an equation does besides computing its results."""

    def __repr__(self) -> str:
        return type(self).__name__

    def __str__(self) -> str:
        return type(self).__name__.removesuffix("Effect")


class IOEffect(Effect):
    """A callback or a transfer."""


class OrderedIOEffect(Effect):
    """A callback whose calls stay in order."""


class DebugEffect(Effect):
    """A callback that looks at values."""


class OrderedDebugEffect(Effect):
    """A callback that looks at values in order."""


class RefEffect(Effect):
    """A mutable array is read or written."""


REF_EFFECT = RefEffect()
_CALLBACK_EFFECTS = {  # by whether it is for debugging, and ordered
    (False, False): IOEffect(),
    (False, True): OrderedIOEffect(),
    (True, False): DebugEffect(),
    (True, True): OrderedDebugEffect(),
}
SIDE_EFFECTS: frozenset[Effect] = frozenset(_CALLBACK_EFFECTS.values())
no_effects: frozenset[Effect] = frozenset()


def side_effects_of(x: Instruction | Computation) -> frozenset[Effect]:
    """What an instruction or a computation does besides computing its results."""
    if not x.has_side_effect:
        return no_effects
    parts = x.instructions if isinstance(x, Computation) else [*x.computations()]
    if parts:
        return no_effects.union(*map(side_effects_of, parts))
    a = cast(Instruction, x).attributes
    return frozenset({_CALLBACK_EFFECTS[getattr(a, "is_debug", False), getattr(a, "ordered", False)]})


class DebugInfo(NamedTuple):
    """Of which function a jaxpr is."""

    traced_for: str
    func_src_info: str
    arg_names: tuple[str, ...] | None = None
    result_paths: tuple[str, ...] | None = None


class JaxprEqn:
    """One application of a primitive: `outvars = primitive[params] invars`."""

    def __init__(
        self,
        invars: Sequence[Atom],
        outvars: Sequence[Var],
        primitive: Primitive,
        params: dict[str, Any],
        effects: Any = no_effects,
        source_info: Any = None,
        ctx: Any = None,
    ) -> None:
        self.invars = list(invars)
        self.outvars = list(outvars)
        self.primitive = primitive
        self.params = params
        self.effects = effects
        self.source_info = source_info
        self.ctx = ctx

    def replace(self, **changes: Any) -> JaxprEqn:
        """The same with other fields."""
        return JaxprEqn(**(vars(self) | changes))

    def __repr__(self) -> str:
        return print_equation(self)


class Jaxpr:
    """A program: `{ lambda constvars ; invars. let eqns in outvars }`."""

    def __init__(
        self,
        constvars: Sequence[Var],
        invars: Sequence[Var],
        outvars: Sequence[Atom],
        eqns: Sequence[JaxprEqn],
        effects: Any = no_effects,
        debug_info: Any = None,
        is_high: bool = False,
        computation: Computation | None = None,
    ) -> None:
        self.constvars = list(constvars)
        self.invars = list(invars)
        self.outvars = list(outvars)
        self.eqns = list(eqns)
        self.effects = effects
        self.debug_info = debug_info
        self.is_high = is_high
        self._computation = computation  # of the inputs and then the constants, as long as nothing was replaced

    @property
    def in_avals(self) -> list[Any]:
        return [v.aval for v in self.invars]

    @property
    def out_avals(self) -> list[Any]:
        return [v.aval for v in self.outvars]

    def replace(self, **changes: Any) -> Jaxpr:
        """The same with other fields."""
        names = ("constvars", "invars", "outvars", "eqns", "effects", "debug_info", "is_high")
        return Jaxpr(**({name: getattr(self, name) for name in names} | changes))

    @property
    def computation(self) -> Computation | None:
        """The recorded computation that the equations were made of, if there is one."""
        return self._computation

    def pretty_print(self, **options: Any) -> str:
        """The text of the jaxpr, with the options of `print_jaxpr`."""
        return print_jaxpr(self, **options)

    __str__ = __repr__ = pretty_print


class ClosedJaxpr:
    """A jaxpr with the values of its constants."""

    def __init__(self, jaxpr: Jaxpr, consts: Sequence[Any]) -> None:
        if len(consts) != len(jaxpr.constvars):
            raise ArgumentError(
                f"ClosedJaxpr: the jaxpr has {len(jaxpr.constvars)} constants, but got {len(consts)} values."
            )
        self.jaxpr = jaxpr
        self.consts = list(consts)

    eqns = property(lambda self: self.jaxpr.eqns)
    effects = property(lambda self: self.jaxpr.effects)
    in_avals = property(lambda self: self.jaxpr.in_avals)
    out_avals = property(lambda self: self.jaxpr.out_avals)
    literals = property(lambda self: self.consts)

    def replace(self, *, jaxpr: Jaxpr | None = None, consts: Sequence[Any] | None = None) -> ClosedJaxpr:
        """The same with other fields."""
        return ClosedJaxpr(jaxpr or self.jaxpr, self.consts if consts is None else consts)

    def map_jaxpr(self, f: Callable[[Jaxpr], Jaxpr]) -> ClosedJaxpr:
        return ClosedJaxpr(f(self.jaxpr), self.consts)

    @functools.cached_property
    def compiled(self) -> Callable[..., list[Any]]:
        """The program as a compiled function of its inputs, which gives a list."""
        return jit(jaxpr_as_fun(self))

    def pretty_print(self, **options: Any) -> str:
        """The text of the jaxpr, with the options of `print_jaxpr`."""
        return print_jaxpr(self.jaxpr, **options)

    __str__ = __repr__ = pretty_print


# --- running ----------------------------------------------------------------------------------------------------------


def eval_jaxpr(jaxpr: Jaxpr, consts: Sequence[Any], *args: Any, propagate_source_info: bool = True) -> list[Any]:
    """The results of a jaxpr, as a list, for these values of its constants and inputs. Random keys are taken for their
    words, which is what results are. Types are weak where they are in the jaxpr, unless it is for weak types of inputs
    that are not. Inputs of other shapes go through the equations one by one, as far as these take them."""
    if REF_EFFECT in jaxpr.effects:
        raise ArgumentError("eval_jaxpr: the jaxpr is of a function that uses a Ref: it can be looked at, but not run.")
    if len(args) != len(jaxpr.invars):
        raise ArgumentError(f"eval_jaxpr: the jaxpr has {len(jaxpr.invars)} inputs, but got {len(args)} values.")
    args = tuple(x.words if isinstance(x, KeyArray) else x for x in args)
    operands = [as_array(x) for x in (*args, *consts)]
    variables = (*jaxpr.invars, *jaxpr.constvars)
    has_shapes = all(x.shape == v.aval.shape for v, x in zip(variables, operands, strict=True))
    if jaxpr.computation is not None and has_shapes:
        is_weak = all(x.weak_type or not _is_weak(v) for v, x in zip(variables, operands, strict=True))
        outputs = (_called if _is_call(jaxpr, operands) else run)(jaxpr.computation, operands)
        found = zip(jaxpr.outvars, outputs, strict=True)
        return [x.with_weak_type(True) if _is_weak(v) and (is_weak or isinstance(v, Literal)) else x for v, x in found]
    values: dict[Var, Any] = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *args], strict=True))

    def read(atom: Atom) -> Any:
        return atom.val if isinstance(atom, Literal) else values[atom]

    for eqn in jaxpr.eqns:
        params = eqn.primitive.get_bind_params(eqn.params)
        found = eqn.primitive.bind(*map(read, eqn.invars), **params)
        values.update(zip(eqn.outvars, found if eqn.primitive.multiple_results else [found], strict=True))
    outputs = [(v, as_array(read(v))) for v in jaxpr.outvars]
    return [x.with_weak_type(_is_weak(v)) if isinstance(v, Literal) else x for v, x in outputs]


def _is_weak(atom: Atom) -> bool:
    return getattr(atom.aval, "weak_type", False)


_MIN_CALLED = 8  # operations: fewer are recorded in the time of a call


def _is_call(jaxpr: Jaxpr, operands: Sequence[Any]) -> bool:
    """Whether the evaluation of a jaxpr in a traced function is recorded as one call, which is differentiated and
    batched once however often it occurs. Jaxprs, and traces that programs define, get the operations themselves, but
    not `linearize` inside of a jaxpr: what its derivative holds is to be what it holds outside. So do operands of other
    types than the jaxpr's inputs, as far as the operations take them."""
    avals = [v.aval for v in (*jaxpr.invars, *jaxpr.constvars)]
    return (
        state.staging is not None
        and len(jaxpr.eqns) >= _MIN_CALLED
        and not is_recording_operations()
        and not isinstance(innermost(operands), ProgramTrace)
        and all(x.shape == a.shape and x.dtype == a.dtype for x, a in zip(operands, avals, strict=True))
    )


def _called(computation: Computation, operands: Sequence[Any]) -> list[Any]:
    """The results of a call, whose types are weak as those of the operations would be."""
    outputs = results(call(*operands, to_apply=computation))
    weak_types = _weak_types(computation, tuple(_Weakness(x.weak_type) for x in operands))
    return [x.with_weak_type(found.weak_type) for x, found in zip(outputs, weak_types, strict=True)]


class _Weakness(NamedTuple):
    """The type of a value, as `weak_result`, the rule by which tracing finds weak types, takes it."""

    weak_type: bool


@functools.lru_cache(1024)
def _weak_types(computation: Computation, operands: tuple[_Weakness, ...]) -> tuple[_Weakness, ...]:
    """Whether the results of a computation are weakly typed."""

    def apply(x: Instruction, operands: list[Any]) -> Any:
        if x.op is calls.tuple_:
            return tuple(operands)
        if x.op is calls.get_tuple_element:
            return operands[0][x.attributes.index]
        if isinstance(x.shape, TupleShape):
            return (_Weakness(False),) * len(x.shape.elements)
        return _Weakness(weak_result(operands))

    return results(interpret(computation, operands, apply))


def jaxpr_as_fun(closed: ClosedJaxpr) -> Callable[..., list[Any]]:
    """A closed jaxpr as a function of its inputs, which gives a list."""
    return functools.partial(eval_jaxpr, closed.jaxpr, closed.consts)


def jaxprs_in_params(params: dict[str, Any]) -> Iterator[Jaxpr]:
    """The jaxprs among an equation's parameters."""
    for value in params.values():
        for x in value if isinstance(value, (tuple, list)) else (value,):
            if isinstance(x, Jaxpr):
                yield x
            elif isinstance(x, ClosedJaxpr):
                yield x.jaxpr


def subjaxprs(jaxpr: Jaxpr) -> Iterator[Jaxpr]:
    """The jaxprs in the parameters of a jaxpr's equations."""
    for eqn in jaxpr.eqns:
        yield from jaxprs_in_params(eqn.params)


def check_jaxpr(jaxpr: Jaxpr) -> None:
    """An error where a jaxpr uses a variable that is not defined before."""
    known: set[Var] = {*jaxpr.constvars, *jaxpr.invars}
    for eqn in jaxpr.eqns:
        for atom in eqn.invars:
            if isinstance(atom, Var) and atom not in known:
                raise ArgumentError(f"check_jaxpr: {eqn} uses a variable that is not defined before.")
        known.update(eqn.outvars)
    for atom in jaxpr.outvars:
        if isinstance(atom, Var) and atom not in known:
            raise ArgumentError("check_jaxpr: a result is a variable that is not defined.")
    for inner in subjaxprs(jaxpr):
        check_jaxpr(inner)


def gensym(*ignored: Any) -> Callable[[Any], Var]:
    """A function that makes new variables."""
    return lambda aval: Var(aval)
