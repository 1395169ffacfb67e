"""When functions that are made of several operations are compiled, outside of compiled functions.

Those of small arrays are recorded, and from then on replayed: that saves Python's work for each operation, which takes
longer than a small array's elements do. What depends on no array was computed when the call was recorded. Those of
large arrays are compiled. The sizes alone decide where numbers are added up, in an order that is NumPy's or the
compiler's: so the same call gives the same bits, whenever it is made.

Functions of random keys, which are called again and again with arrays of the same shapes, are replayed by the
arithmetic of compiled code. So their bits are the same under transformations and in compiled functions, too; and those
that are called often can be compiled in the end. So can functions of many steps whose bits are the same either way.
In functions that are traced, a draw is one call, whose computation is traced once for all draws of the same types.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from tinyxla.api.jit import jit
from tinyxla.backends import default_backend
from tinyxla.errors import TinyxlaError, user_line
from tinyxla.hlo import Computation, Instruction
from tinyxla.ops import calls, movement
from tinyxla.ops.numerics import arithmetic
from tinyxla.partitioning.placement import placed_result
from tinyxla.shapes import Shape
from tinyxla.tracing import pytrees
from tinyxla.tracing.array import Array, ConcreteArray
from tinyxla.tracing.config import config
from tinyxla.tracing.core import LARGE, Tracer, state
from tinyxla.tracing.float_zeros import is_float0
from tinyxla.tracing.meshes import context
from tinyxla.tracing.promotion import as_array
from tinyxla.tracing.shardings import NO_SUMS, sums_of
from tinyxla.tracing.transfers import check_host_values
from tinyxla.transforms.key_arrays import KeyArray
from tinyxla.util.tracebacks import filter_error

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Plan = Callable[[list[Any]], Any]
_plain: tuple[type, ...] = (int, bool, str, type(None), type, np.dtype, np.integer)  # by whose value calls are known
_MAX_RECORDINGS = 1 << 10  # recordings of a function
MIN_COMPILED_DRAWS = 1 << 12  # random numbers of a draw that is compiled at once
MAX_REPLAYED_DRAWS = 32  # replays of a draw before it is compiled
STEPS_PER_COMPILATION = 1 << 15  # replayed steps that take as long as the compilation of a function
_MIN_COMPILED_STEPS = 8  # of a function that is compiled, rather than replayed
_SUMS = frozenset(("dot", "reduce", "reduce-window"))  # of floats, in an order that is left open

# Of each function: by its arguments' shapes, types and plain values; None for what was called once.
_recordings: list[dict[Any, _Plan | None]] = []


def know_by_value(kind: type) -> None:
    """Have calls be known by the values of arguments of a type, which are hashable."""
    global _plain
    _plain = (*_plain, kind)


def replayed(function: _Function) -> _Function:
    """The function, which looks at shapes, types and plain values only, but not at arrays' elements."""
    return _recording(function, None, True)


def drawn(*static: str, inline: bool = False) -> Callable[[_Function], _Function]:
    """Of a function of random keys. The arguments that are `static` stay Python values; other numbers become arrays.
    With `inline`, functions that are traced get its operations, which are few, rather than a call. The function gets a
    keyword `out_sharding`, which may name the one device."""
    return lambda function: _recording(function, static, inline)


def _recording(function: _Function, static: Sequence[str] | None, inline: bool) -> _Function:
    signature = None if static is None else inspect.signature(function)
    names = [] if signature is None else list(signature.parameters)
    recordings: dict[Any, _Plan | None] = {}
    _recordings.append(recordings)

    @functools.wraps(function)
    def call(*args: Any, out_sharding: Any = None, **kwargs: Any) -> Any:
        try:
            if out_sharding is not None:
                takes_it = "out_sharding" in inspect.signature(function).parameters
                if takes_it and sums_of(getattr(out_sharding, "spec", out_sharding)) != NO_SUMS:
                    return function(*args, out_sharding=out_sharding, **kwargs)  # which knows what is summed
                what = _what_is_placed(function, static is not None, takes_it)
                return placed_result(what, lambda: call(*args, **kwargs), out_sharding)
            is_traced = state.staging is not None
            is_direct = (inline and is_traced) or (static is not None and config.disable_jit)
            if config.special:
                check_host_values(function.__name__, (*args, *kwargs.values()), only_arrays=True)
                is_direct |= not is_traced
            if is_direct or context.programs is not None:
                return function(*args, **kwargs)
            given: Any = args
            if static is not None:
                given = [
                    *(x if n in static else _array(x) for n, x in zip(names, args, strict=False)),
                    *args[len(names) :],
                ]
            key: list[Any] = [is_traced, len(args), *kwargs]
            arrays: list[Any] = []
            for name in kwargs:
                given = (*given, kwargs[name] if static is None or name in static else _array(kwargs[name]))
            for x in given:
                if not _describe(x, key, arrays, static is not None):
                    return function(*args, **kwargs)
            which = tuple(key)
            plan = recordings.get(which)
            if plan is None:
                if len(recordings) > _MAX_RECORDINGS:
                    recordings.clear()
                if static is None and which not in recordings and all(x.size < LARGE for x in arrays):
                    recordings[which] = None
                    return function(*args, **kwargs)
                plan = recordings[which] = _recorded(function, given, list(kwargs), static is not None)
            return plan(arrays) if plan is not _direct else function(*args, **kwargs)
        except Exception as error:
            filter_error(error)
            raise

    if signature is not None:
        sharding = inspect.Parameter("out_sharding", inspect.Parameter.KEYWORD_ONLY, default=None, annotation="Any")
        call.__signature__ = signature.replace(parameters=[*signature.parameters.values(), sharding])  # type: ignore[attr-defined]
    return call  # type: ignore[return-value]


def _what_is_placed(function: Callable[..., Any], draws: bool, takes_it: bool) -> str:
    """The name, for errors, of the keyword `out_sharding`: functions of random keys have it, and those that say so."""
    if not draws and not takes_it:
        raise TypeError(f"{function.__name__}() got an unexpected keyword argument 'out_sharding'")
    return f"{'tinyxla.random.' * draws}{function.__name__}: out_sharding"


def _array(x: Any) -> Any:
    """A number or an array of NumPy's as an array; else what it is."""
    try:
        return as_array(x) if isinstance(x, (int, float, np.ndarray, np.generic)) else x
    except TinyxlaError:
        return x


def _describe(x: Any, key: list[Any], arrays: list[Any], traced: bool = False) -> bool:
    """Append to the key what stands for an argument, and to the arrays those in it; False if nothing does."""
    kind = type(x)
    if kind is ConcreteArray:
        arrays.append(x)
        key.append(x.signature())
    elif isinstance(x, _plain):
        key += kind, x
    elif kind is float:
        key += kind, x.hex()  # which tells zeros apart, and is equal for NaNs
    elif kind is list or kind is tuple:
        key += kind, len(x)
        for part in x:
            if not _describe(part, key, arrays):
                return False
    elif traced and isinstance(x, Tracer):
        arrays.append(x)
        key += x.dtype, x.shape, x.weak_type
    elif kind is KeyArray and type(x.words) is ConcreteArray:
        arrays.append(x.words)
        key += x.dtype, x.words.signature()
    elif kind is KeyArray:
        key.append(x.dtype)
        return _describe(x.words, key, arrays, traced)
    else:
        return False
    return True


def _direct(arrays: list[Any]) -> Any:
    """Stands for a call that is not replayed."""


def _recorded(function: Callable[..., Any], given: Sequence[Any], names: list[str], draws: bool) -> _Plan:
    """What a call does from here on, whose last arguments have names."""
    leaves, treedef = pytrees.flatten(list(given))
    places = [k for k, x in enumerate(leaves) if isinstance(x, Array)]
    arrays_given = [leaves[k] for k in places]
    for k in places:
        leaves[k] = None  # the program shall not keep them alive

    def of_arrays(*arrays: Any) -> Any:
        values = list(leaves)
        for k, x in zip(places, arrays, strict=True):
            values[k] = x
        whole = pytrees.unflatten(treedef, values)
        count = len(whole) - len(names)
        return function(*whole[:count], **dict(zip(names, whole[count:], strict=True)))

    of_arrays.__name__ = f"_{function.__name__}"
    program = jit(of_arrays)  # which knows when options change, and when caches are cleared

    def compiled(arrays: list[Any]) -> Any:
        return program(*arrays)

    if state.staging is not None or any(isinstance(x, Tracer) for x in arrays_given):
        return compiled
    outer, state.source = state.source, state.source or user_line()  # looked for once
    try:
        traced = program.trace(*arrays_given)
    except TinyxlaError:  # it looks at elements, or the call itself is wrong, and says so
        return _direct
    finally:
        state.source = outer
    from tinyxla.compiler.passes.inline_calls import inline_calls  # here, since compiled functions need no replays

    made = inline_calls(traced.lower().module.entry)
    if made.has_side_effect:
        return _direct
    sizes = [x.shape.size for x in made.instructions if isinstance(x.shape, Shape) and x.op is not movement.broadcast]
    largest = max(sizes, default=0)
    if largest >= (MIN_COMPILED_DRAWS if draws else LARGE) or (draws and _has_loop(made)):
        return compiled
    results = pytrees.leaves(traced.out_info)
    if any(map(is_float0, results)):  # NumPy's arrays without elements
        return _direct
    weak = [x.weak_type for x in results]
    alike = draws and default_backend() != "interpreter"
    plan, steps = _plan(made, weak, traced.result_tree, alike)
    most = _replays(made, steps, draws)
    if most is None:
        return plan
    left = iter(range(most))
    return lambda arrays: plan(arrays) if next(left, None) is not None else compiled(arrays)


def _replays(made: Computation, steps: int, draws: bool) -> int | None:
    """How many calls are replayed before they are compiled; None if all are replayed."""
    results = [x for x in made.instructions if isinstance(x.shape, Shape)]
    if default_backend() == "interpreter" or (draws and any(x.op.name in _SUMS for x in results)):
        return None
    if draws:
        return MAX_REPLAYED_DRAWS
    gains = steps >= _MIN_COMPILED_STEPS and all(map(arithmetic.is_settled, made.instructions))
    return max(1, STEPS_PER_COMPILATION // steps) if gains else None


def _has_loop(made: Computation) -> bool:
    return any(x.op.name in ("while", "lanes") or any(map(_has_loop, x.computations())) for x in made.instructions)


def _plan(made: Computation, weak: list[bool], tree: pytrees.TreeDef, as_compiled: bool) -> tuple[_Plan, int]:
    """What runs a computation's instructions, those that depend on no parameter once for all; and how many are left."""
    places = {x: k for k, x in enumerate((*made.parameters, *_needed(made)))}
    count = len(made.parameters)
    known: list[Any] = [None] * len(places)
    varying = set(made.parameters)
    steps: list[tuple[Callable[..., Any], list[int], int]] = []
    with np.errstate(all="ignore"):
        for x, place in list(places.items())[count:]:
            evaluate, operands = arithmetic.evaluator(x, as_compiled), [places[o] for o in x.operands]
            if varying.isdisjoint(x.operands):
                known[place] = evaluate(*[known[k] for k in operands])
            else:
                varying.add(x)
                steps.append((evaluate, operands, place))
    results = [(places[x], w) for x, w in zip(made.outputs, weak, strict=True)]
    is_single = tree.is_leaf()

    def run(arrays: list[ConcreteArray]) -> Any:
        values = known.copy()
        values[:count] = [x._value for x in arrays]  # pyright: ignore[reportPrivateUsage] - saves calls
        if steps:
            with np.errstate(all="ignore"):
                for evaluate, operands, place in steps:
                    values[place] = evaluate(*[values[k] for k in operands])
        found = [ConcreteArray(values[k], w) for k, w in results]
        return found[0] if is_single else tree.unflatten(found)

    return run, len(steps)


def _needed(made: Computation) -> list[Instruction]:
    """The instructions on which the results depend, in order, without parameters."""
    needed = set(made.outputs)
    for x in reversed(made.instructions):
        if x in needed:
            needed.update(x.operands)
    return [x for x in made.instructions if x in needed and x not in made.parameters and x.op is not calls.tuple_]


def forget_recordings() -> None:
    """Record anew: options decide what a function does."""
    for recordings in _recordings:
        recordings.clear()


config.watch(forget_recordings)
