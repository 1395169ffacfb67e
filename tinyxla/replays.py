"""Functions that are made of several operations, outside of traces: those of small arrays are recorded when they are
called for the second time with such arguments, and from then on replayed; those of large arrays are compiled.

What a replay saves is Python's work for each operation, which takes longer than a small array's elements do: promotion,
checks, choices by shapes. The operations are those of the first call, in the same order, each by its `evaluate`, so the
results are the same to the bit. What depends on no array was computed when the call was recorded.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from tinyxla.api import trace_tree
from tinyxla.compilation import jit
from tinyxla.errors import TinyxlaError
from tinyxla.hlo import Computation, Instruction
from tinyxla.ops import calls
from tinyxla.shapes import Shape
from tinyxla.tracing import pytrees
from tinyxla.tracing.array import ConcreteArray
from tinyxla.tracing.core import LARGE, state
from tinyxla.tracing.options import config

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Plan = Callable[[list[ConcreteArray]], Any]
_PLAIN = frozenset((int, bool, str, type(None), type, np.dtype))  # of arguments by whose value a recording is found
_MOST = 1 << 10  # recordings of a function

# Of each function: by its arguments' shapes, types and plain values; None for what was called once.
_recordings: list[dict[Any, _Plan | None]] = []


class _State(threading.local):
    recording: bool = False


_state = _State()


def is_recording() -> bool:
    """Whether a function is traced to be replayed, so that what is called here is run later, step by step."""
    return _state.recording


def replayed(function: _Function, limit: int = LARGE) -> _Function:
    """The function, which looks at shapes, types and plain values only, but not at arrays' elements; where all arrays
    have fewer elements than the limit."""
    recordings: dict[Any, _Plan | None] = {}
    _recordings.append(recordings)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if state.staging is not None or state.axes or config.special:
            return function(*args, **kwargs)
        key: list[Any] = [*kwargs]
        arrays: list[ConcreteArray] = []
        for x in (*args, *kwargs.values()) if kwargs else args:
            if not _describe(x, key, arrays):
                return function(*args, **kwargs)
        which = tuple(key)
        try:
            plan = recordings[which]
        except KeyError:
            if len(recordings) > _MOST:
                recordings.clear()
            plan = recordings[which] = None
            if all(x.size < LARGE for x in arrays):
                return function(*args, **kwargs)
        if plan is None:
            plan = recordings[which] = _recorded(function, args, kwargs, limit)
        return plan(arrays) if plan is not _direct else function(*args, **kwargs)

    return call  # type: ignore[return-value]


def _describe(x: Any, key: list[Any], arrays: list[ConcreteArray]) -> bool:
    """Append to the key what stands for an argument, and to the arrays those in it; False if nothing does."""
    kind = type(x)
    if kind is ConcreteArray:
        arrays.append(x)
        key.append(x.signature())
    elif kind in _PLAIN:
        key += kind, x
    elif kind is float:
        key += kind, x.hex()  # which tells zeros apart, and is equal for NaNs
    elif kind is list or kind is tuple:
        key += kind, len(x)
        for part in x:
            if not _describe(part, key, arrays):
                return False
    else:
        return False
    return True


def _direct(arrays: list[ConcreteArray]) -> Any:
    """Stands for a call that is not replayed."""


def _recorded(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], limit: int) -> _Plan:
    leaves, treedef = pytrees.flatten((args, kwargs))
    places = [k for k, x in enumerate(leaves) if type(x) is ConcreteArray]

    arrays_given = [leaves[k] for k in places]
    for k in places:
        leaves[k] = None  # the program shall not keep them alive

    def of_arrays(*arrays: Any) -> Any:
        given = list(leaves)
        for k, x in zip(places, arrays, strict=True):
            given[k] = x
        positional, named = pytrees.unflatten(treedef, given)
        return function(*positional, **named)

    _state.recording = True
    try:
        made, _, weak, tree = trace_tree(of_arrays, tuple(arrays_given), {})
    except TinyxlaError:  # it looks at elements, or the call itself is wrong, and says so
        return _direct
    finally:
        _state.recording = False
    sizes = [x.shape.size for x in made.instructions if isinstance(x.shape, Shape)]
    if any(x.has_side_effect for x in made.instructions):
        return _direct
    if max(sizes, default=0) >= LARGE:
        program = jit(of_arrays)  # which knows when options change, and when caches are cleared
        return lambda arrays: program(*arrays)
    return _plan(made, weak, tree) if max(sizes, default=0) < limit else _direct


def _plan(made: Computation, weak: list[bool], tree: pytrees.TreeDef) -> _Plan:
    """What runs a computation's instructions, those that depend on no parameter once for all."""
    numbers = {x: k for k, x in enumerate(made.parameters)}
    first = len(numbers)
    known: list[Any] = []
    steps: list[tuple[Callable[..., Any], list[int]]] = []
    fixed: dict[Instruction, Any] = {}
    with np.errstate(all="ignore"):
        for x in _needed(made):
            evaluate = functools.partial(x.op.evaluate, **x.attributes._asdict())
            if all(o in fixed for o in x.operands):
                fixed[x] = evaluate(*(fixed[o] for o in x.operands))
    for x in fixed:
        numbers[x] = first + len(known)
        known.append(fixed[x])
    for x in _needed(made):
        if x not in numbers:
            numbers[x] = first + len(known) + len(steps)
            evaluate = functools.partial(x.op.evaluate, **x.attributes._asdict())
            steps.append((evaluate, [numbers[o] for o in x.operands]))
    results = [(numbers[x], w) for x, w in zip(made.outputs, weak, strict=True)]
    is_single = tree.is_leaf()

    def run(arrays: list[ConcreteArray]) -> Any:
        values = [x.numpy() for x in arrays]
        values += known
        if steps:
            with np.errstate(all="ignore"):
                for evaluate, operands in steps:
                    values.append(evaluate(*[values[k] for k in operands]))
        found = [ConcreteArray(values[k], w) for k, w in results]
        return found[0] if is_single else tree.unflatten(found)

    return run


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
