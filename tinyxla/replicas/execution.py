"""Running a program on several replicas: as lanes of one compiled program, or each in a thread.

Lanes are the faster way: values that differ among replicas have one more dimension, and collective operations are
ordinary ones along it. All replicas must do the same then; programs with Send and Recv, those with dynamic sizes, and
those where a loop or branch with a collective operation depends on what differs among replicas, run as threads, and so
do those that call functions of the host which know nothing of lanes.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from tinyxla.backends import Executable, compile_module
from tinyxla.backends.layouts import LaidOut, laid_out
from tinyxla.compiler.passes.inline_calls import inline_calls
from tinyxla.errors import ArgumentError, DeadlockError, TracerError
from tinyxla.hlo import Computation, Instruction, Module
from tinyxla.ops import movement
from tinyxla.ops.distributed.replica_groups import REPLICAS, Mesh
from tinyxla.ops.dynamic_sizes import has_dynamic_sizes
from tinyxla.ops.host.custom_call import find_target
from tinyxla.ops.op import Ints
from tinyxla.replicas.divergence import analyse
from tinyxla.replicas.meetings import ends_in, in_thread
from tinyxla.replicas.resolution import CHANNELS, Same, resolved
from tinyxla.runtime.rendezvous import Rendezvous, running
from tinyxla.runtime.threads import Task
from tinyxla.shapes import AnyShape, Shape
from tinyxla.tracing.array import Array, ConcreteArray, wrap
from tinyxla.tracing.config import cached_by_options
from tinyxla.tracing.core import state, trace
from tinyxla.transforms.batch import batch
from tinyxla.transforms.computations import run

Axes = tuple[int | None, ...]


class Program(NamedTuple):
    """A computation of arrays, and what it was made of.

    The results have their dimensions in memory in these orders, from major to minor; row-major if there are none.
    """

    name: str
    computation: Computation
    orders: tuple[Ints, ...] = ()


def execute_replicated(
    program: Program, arguments: Sequence[Sequence[Array]], mesh: Mesh, backend: str | None
) -> list[list[Array]]:
    """The results of a program on each device of a mesh.

    Args:
        program: what all devices run.
        arguments: for each device the arrays, which must have the shapes of the parameters.
        mesh: how many replicas and partitions there are.
        backend: of each.
    """
    made = _laid_out(program, arguments)
    whole = resolved(made.computation, mesh)
    uniform = tuple(all(x is first for x in several) for first, *several in zip(*arguments, strict=True))
    if _run_as_lanes(whole, uniform):
        results = _as_lanes(program.name, whole, arguments, uniform, backend)
    else:
        programs = [Program(program.name, made.computation)] * mesh.device_count
        results = _as_threads(f"execute_replicated: {program.name}", programs, arguments, mesh, backend)
    return _viewed(results, [made] * len(results))


def execute_parallel(
    programs: Sequence[Program], arguments: Sequence[Sequence[Array]], backend: str | None
) -> list[list[Array]]:
    """The results of several programs that run at once and talk over channels; number k is replica k."""
    made = [_laid_out(program, arguments) for program in programs]
    own = [Program(program.name, x.computation) for program, x in zip(programs, made, strict=True)]
    return _viewed(_as_threads("execute_parallel", own, arguments, Mesh(len(programs), 1), backend), made)


def _is_concrete(arguments: Sequence[Sequence[Array]]) -> bool:
    return state.staging is None and all(isinstance(x, ConcreteArray) for given in arguments for x in given)


def _laid_out(program: Program, arguments: Sequence[Sequence[Array]]) -> LaidOut:
    """Traced values have no layout."""
    if not program.orders or not _is_concrete(arguments):
        return LaidOut(program.computation, ())
    return _transposing(Same(program.computation), program.orders)


@lru_cache(256)
def _transposing(same: Same, orders: tuple[Ints, ...]) -> LaidOut:
    return laid_out(same.computation, orders)


def _viewed(results: list[list[Array]], made: Sequence[LaidOut]) -> list[list[Array]]:
    """The results of each device in their layouts; what is one array stays one."""
    if not any(program.views for program in made):
        return results
    known: dict[int, Array] = {}
    for several, program in zip(results, made, strict=True):
        arrays: list[Any] = [x.dense() for x in several]  # pyright: ignore[reportAttributeAccessIssue]
        for x, viewed in zip(several, program.view(arrays), strict=True):
            known.setdefault(id(x), wrap(viewed))
    return [[known[id(x)] for x in several] for several in results]


def _run_as_lanes(computation: Computation, uniform: tuple[bool, ...]) -> bool:
    if computation.all_opcodes & {"callback", "custom-call"} and _calls_host_one_by_one(computation):
        return False
    return _takes_one_way(computation, uniform)


def _calls_host_one_by_one(computation: Computation) -> bool:
    """Whether there are functions of the host that each replica must call by itself: for their effect, or because they
    are known for one example only."""
    for x in computation.instructions:
        is_call = x.op.name in ("callback", "custom-call")
        if is_call and (x.has_side_effect or (x.op.name == "custom-call" and not _has_batch_rule(x))):
            return True
        if any(map(_calls_host_one_by_one, x.computations())):
            return True
    return False


def _has_batch_rule(x: Instruction) -> bool:
    return find_target(x.attributes.custom_call_target).batch is not None


@lru_cache(256)
def _takes_one_way(computation: Computation, uniform: tuple[bool, ...]) -> bool:
    if computation.all_opcodes & CHANNELS or has_dynamic_sizes(computation):  # arrays of one size are lanes of one
        return False
    return not analyse(computation, [not x for x in uniform]).diverges


# --- lanes ------------------------------------------------------------------------------------------------------------


def _as_lanes(
    name: str,
    computation: Computation,
    arguments: Sequence[Sequence[Array]],
    uniform: tuple[bool, ...],
    backend: str | None,
) -> list[list[Array]]:
    count = len(arguments)
    per_argument = list(zip(*arguments, strict=True)) if uniform else []
    if _is_concrete(arguments):
        axes, executable = _lanes_program(name, computation, count, uniform, backend)
        inputs = [
            several[0].dense() if same else _stacked([x.dense() for x in several])
            for several, same in zip(per_argument, uniform, strict=True)
        ]
        values: list[Any] = executable(inputs)
    else:
        inputs = [
            several[0]
            if same
            else movement.concatenate(*(movement.reshape_to(x, (1, *x.shape)) for x in several), dimension=0)
            for several, same in zip(per_argument, uniform, strict=True)
        ]
        values, axes = _mapped(computation, count, uniform, inputs)
    # What is the same for all lanes is one array, by which the next execution knows that.
    whole = [wrap(x) if isinstance(x, np.ndarray) and axis is None else x for x, axis in zip(values, axes, strict=True)]
    return [[_of_lane(x, axis, lane) for x, axis in zip(whole, axes, strict=True)] for lane in range(count)]


def _stacked(lanes: list[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """The arrays as rows of one; without a copy if they are that already, as the results of another execution are."""
    first = lanes[0]
    whole = first.base
    if isinstance(whole, np.ndarray) and whole.flags.c_contiguous and first.nbytes:
        start = first.ctypes.data
        in_order = all(
            x.base is whole and x.shape == first.shape and x.ctypes.data == start + k * first.nbytes
            for k, x in enumerate(lanes)
        )
        if in_order:
            shape = (len(lanes), *first.shape)
            return np.ndarray(shape, first.dtype, whole, start - whole.ctypes.data)
    return np.stack(lanes)


def _of_lane(value: Any, axis: int | None, lane: int) -> Array:
    if axis is None:
        return value
    if isinstance(value, np.ndarray):
        return wrap(value[lane])
    row: Any = movement.reshape_to(movement.slice_axis(value, 0, lane, lane + 1), value.shape[1:])
    return row


def _mapped(
    computation: Computation, count: int, uniform: tuple[bool, ...], inputs: Sequence[Any]
) -> tuple[list[Any], Axes]:
    """The results for all replicas, those that differ with the replicas in front."""
    pairs = batch(lambda *x: run(computation, x), count, inputs, [None if same else 0 for same in uniform], REPLICAS)
    aligned = [(x if axis is None else movement.move_axis(x, axis, 0), axis) for x, axis in pairs]
    return [x for x, _ in aligned], tuple(None if axis is None else 0 for _, axis in aligned)


@cached_by_options(256)
def _lanes_program(
    name: str, computation: Computation, count: int, uniform: tuple[bool, ...], backend: str | None
) -> tuple[Axes, Executable]:
    found: list[Axes] = []

    def function(*inputs: Any) -> list[Any]:
        values, axes = _mapped(computation, count, uniform, inputs)
        found.append(axes)
        return values

    shapes: list[AnyShape] = []
    for parameter, same in zip(computation.parameters, uniform, strict=True):
        shape = parameter.array_shape
        shapes.append(shape if same else Shape(shape.element_type, (count, *shape.dimensions)))
    made, _, _ = trace(function, shapes, name)
    return found[0], _compiled(Program(name, made), backend)


# --- threads ----------------------------------------------------------------------------------------------------------


def _as_threads(
    name: str, programs: Sequence[Program], arguments: Sequence[Sequence[Array]], mesh: Mesh, backend: str | None
) -> list[list[Array]]:
    if not _is_concrete(arguments):
        raise TracerError(
            f"{name}: replicas that send to one another, have dynamic sizes, call the host, or part at a loop or "
            "branch, run at once, so their arguments must be arrays, not traced values; call it outside of jit, grad "
            "and vmap."
        )
    own = [Program(p.name, in_thread(p.computation, mesh)) for p in programs]
    executables = [_compiled(program, backend) for program in own]
    inputs = [[x.dense() for x in given] for given in arguments]  # pyright: ignore[reportAttributeAccessIssue]
    meeting = Rendezvous(name, len(programs), _described(mesh), lambda number: ends_in(own[number].computation))
    found: list[Any] = [None] * len(programs)

    def device(number: int) -> Callable[[], None]:
        def body() -> None:
            with running(meeting, number):
                found[number] = executables[number](inputs[number])

        return body

    tasks = [Task(device(number)) for number in range(len(programs))]
    try:
        for number, task in enumerate(tasks):
            if not task.start():
                meeting.abandon(f"{name}: there is no thread to be had for replica {number}.")
                meeting.end(number)
        for task in tasks:
            task.wait()
    except BaseException:
        meeting.abandon(f"{name} was interrupted.")
        raise
    _raise_first(tasks, meeting)
    return [[wrap(x) for x in results] for results in found]


def _described(mesh: Mesh) -> Callable[[int], str]:
    def words(device: int) -> str:
        replica, partition = divmod(device, mesh.partition_count)
        return f"replica {replica}" + (f", partition {partition}" if mesh.partition_count > 1 else "")

    return words


def _raise_first(tasks: Sequence[Task], meeting: Rendezvous) -> None:
    """Raise what ended a replica; that others have waited for it in vain follows from it."""
    errors = [(number, task.error) for number, task in enumerate(tasks) if task.error is not None]
    for number, error in sorted(errors, key=lambda pair: isinstance(pair[1], DeadlockError)):
        if not isinstance(error, DeadlockError):
            error.add_note(f"{meeting.name}: raised by {meeting.described(number)}")
        tasks[number].raise_error()


@cached_by_options(256)
def _compiled(program: Program, backend: str | None) -> Executable:
    pure = backend == "interpreter"  # calls are compiled wherever they are evaluated, so there must be none
    computation = inline_calls(program.computation) if pure else program.computation
    return compile_module(Module(program.name, computation), backend)


def mesh_of(what: str, arguments: Sequence[Any], replica_count: int | None, partition_count: int) -> Mesh:
    """The mesh for arguments of all devices."""
    if not isinstance(arguments, (list, tuple)):
        raise ArgumentError(
            f"{what}: arguments must be a list with the arguments of each device, but is {reprlib.repr(arguments)}."
        )
    for key, count in (("replica_count", replica_count), ("partition_count", partition_count)):
        if count is not None and (not isinstance(count, (int, np.integer)) or isinstance(count, bool)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArgumentError(f"{what}: {key} must be an integer, but is {count!r}.")
    if partition_count < 1 or (replica_count is not None and replica_count < 1):
        raise ArgumentError(
            f"{what}: replica_count and partition_count must be at least 1, but are {replica_count} and "
            f"{partition_count}."
        )
    replicas = max(len(arguments) // partition_count, 1) if replica_count is None else replica_count
    if len(arguments) != replicas * partition_count:
        raise ArgumentError(
            f"{what}: arguments must have one tuple for each of the {replicas} x {partition_count} devices, but has "
            f"{len(arguments)}."
        )
    return Mesh(int(replicas), int(partition_count))
