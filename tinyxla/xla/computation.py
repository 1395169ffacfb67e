"""Computations that builders make: functions of arrays and tuples, to be called or handed to operations."""

from __future__ import annotations

import functools
import reprlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from tinyxla import text
from tinyxla.backends import Executable, compile_module
from tinyxla.backends.layouts import compile_laid_out, dimension_orders
from tinyxla.compiler.passes.inline_calls import inline_calls
from tinyxla.errors import ArgumentError, DTypeError, ShapeError
from tinyxla.hlo import Computation, Module
from tinyxla.ops.tuples import leaves, regrouped
from tinyxla.replicas import Program, execute_parallel as run_parallel, execute_replicated, mesh_of
from tinyxla.shapes import AnyShape, Shape
from tinyxla.tracing.array import Array, ConcreteArray, wrap
from tinyxla.tracing.core import state
from tinyxla.tracing.promotion import checked_scalar
from tinyxla.transforms import call


class ProgramShape(NamedTuple):
    """The shapes of a computation's parameters and result.

    >>> from tinyxla.xla import F32, ProgramShape, ShapeUtil
    >>> print(ProgramShape((ShapeUtil.MakeShape(F32, [2]),), ShapeUtil.MakeShape(F32, []), ("x",)))
    (x: f32[2]) -> f32[]
    """

    parameter_shapes: tuple[AnyShape, ...]
    result_shape: AnyShape
    parameter_names: tuple[str, ...]

    def __str__(self) -> str:
        named = zip(self.parameter_names, self.parameter_shapes, strict=True)
        return f"({', '.join(f'{name}: {shape}' for name, shape in named)}) -> {self.result_shape}"


class XlaComputation:
    """A function of arrays and tuples. Call it on arrays, or hand it to an operation that applies it.

    >>> import numpy as np
    >>> from tinyxla.xla import F32, ShapeUtil, XlaBuilder
    >>> b = XlaBuilder("double")
    >>> x = b.Parameter(0, ShapeUtil.MakeShape(F32, [2]))
    >>> double = b.Build(x + x)
    >>> double(np.float32([1, 2]))
    Array([2., 4.], dtype=float32)
    """

    def __init__(self, computation: Computation, program_shape: ProgramShape) -> None:
        self.computation = computation
        self._program_shape = program_shape
        self._executables: dict[str | None, Executable] = {}

    @property
    def name(self) -> str:
        return self.computation.name

    def GetProgramShape(self) -> ProgramShape:
        """The shapes of the parameters and of the result, with their tuples.

        Returns:
            A `ProgramShape`.

        >>> from tinyxla.xla import F32, ShapeUtil, XlaBuilder
        >>> b = XlaBuilder("double")
        >>> x = b.Parameter(0, ShapeUtil.MakeShape(F32, [2]), "x")
        >>> print(b.Build(x + x).GetProgramShape())
        (x: f32[2]) -> f32[2]
        """
        return self._program_shape

    program_shape = GetProgramShape

    def as_hlo_text(self) -> str:
        """The computation in XLA's HLO text form, tuples taken apart.

        Returns:
            The text.

        >>> from tinyxla.xla import F32, ShapeUtil, XlaBuilder
        >>> b = XlaBuilder("double")
        >>> x = b.Parameter(0, ShapeUtil.MakeShape(F32, [2]), "x")
        >>> print(b.Build(x + x).as_hlo_text(), end="")
        HloModule double, entry_computation_layout={(f32[2]{0})->f32[2]{0}}
        <BLANKLINE>
        ENTRY double {
          x = f32[2]{0} parameter(0)
          ROOT add.1 = f32[2]{0} add(x, x)
        }
        """
        return text.print_module(Module(self.name, self.computation))

    __str__ = as_hlo_text

    def as_hlo_dot_graph(self) -> str:
        """The graph as Graphviz text.

        Returns:
            The text.

        >>> from tinyxla.xla import XlaBuilder
        >>> b = XlaBuilder("one")
        >>> b.Build(b.Constant(1.0)).as_hlo_dot_graph().splitlines()[0]
        'digraph {'
        """
        return text.to_dot(self.computation)

    def __repr__(self) -> str:
        return f"<XlaComputation {self.name}{self._program_shape}>"

    def __call__(self, *args: Any, backend: str | None = None) -> Any:
        """The result for arguments of exactly the parameters' shapes.

        Args:
            args: an array for each parameter, a nested tuple of arrays where that is one; a Python number stands for
                a scalar of any type that has it.
            backend: `numba` or `interpreter`; the first where it is installed, unless one is asked for.

        Returns:
            An array, or a nested tuple of arrays.

        Raises:
            ArgumentError: another number or structure of arguments.
            ShapeError, DTypeError: an argument of another shape or element type; nothing is converted.
        """
        given = self._flat_arguments(self.name, args)
        concrete = [x for x in given if isinstance(x, ConcreteArray)]
        if state.staging is None and len(concrete) == len(given):
            results = map(wrap, self._executable(backend)([x.dense() for x in concrete]))
        else:
            results = iter(leaves(call(*given, to_apply=self.computation)))
        return regrouped(self._program_shape.result_shape, results)

    def execute_replicated(
        self,
        arguments: Sequence[Sequence[Any]],
        replica_count: int | None = None,
        partition_count: int = 1,
        backend: str | None = None,
    ) -> list[Any]:
        """Run the computation on several replicas, which its collective operations connect.

        Args:
            arguments: for each device the list of its arguments; device `replica * partition_count + partition`. An
                object that all devices are given is not copied.
            replica_count: how many replicas there are; by default as many as there are arguments for.
            partition_count: how many partitions each replica has.
            backend: as for a call.

        Returns:
            The result of each device, in order.

        Raises:
            ArgumentError: another number of devices or arguments.
            ShapeError, DTypeError: an argument of another shape or element type.
            AttributeValueError: groups that do not fit the number of replicas.
            DeadlockError: replicas wait for one another, or for one that has ended.

        Source: sections "AllReduce", "ReplicaId" and "Send" of the XLA documents.

        >>> import numpy as np
        >>> from tinyxla import xla
        >>> builder = xla.XlaBuilder("total")
        >>> x = xla.Parameter(builder, 0, xla.ShapeUtil.MakeShape(xla.F32, (2,)), "x")
        >>> total = xla.CrossReplicaSum(x)
        >>> builder.Build().execute_replicated([[np.float32([1.0, 2.5])], [np.float32([3.0, 5.25])]])
        [Array([4.  , 7.75], dtype=float32), Array([4.  , 7.75], dtype=float32)]
        """
        what = f"execute_replicated: {self.name}"
        mesh = mesh_of(what, arguments, replica_count, partition_count)
        given = [self._flat_arguments(f"{what}: device {k}", args) for k, args in enumerate(_shared(arguments))]
        results = execute_replicated(self._program, given, mesh, backend)
        return [regrouped(self._program_shape.result_shape, iter(several)) for several in results]

    def _flat_arguments(self, what: str, args: Sequence[Any]) -> list[Array]:
        """The arrays of arguments for the parameters."""
        shapes, names = self._program_shape.parameter_shapes, self._program_shape.parameter_names
        if not isinstance(args, (tuple, list)) or len(args) != len(shapes):
            found = str(len(args)) if isinstance(args, (tuple, list)) else reprlib.repr(args)
            raise ArgumentError(f"{what} takes {len(shapes)} arguments {self._program_shape}, but got {found}.")
        return [
            x
            for arg, shape, name in zip(args, shapes, names, strict=True)
            for x in _arguments(arg, shape, f"{what}: argument {name}")
        ]

    @functools.cached_property
    def _program(self) -> Program:
        orders = dimension_orders(self._program_shape.result_shape)
        return Program(self.name, self.computation, orders)

    def _executable(self, backend: str | None) -> Executable:
        if backend not in self._executables:
            pure = backend == "interpreter"  # calls are compiled wherever they are evaluated, so there must be none
            computation = inline_calls(self.computation) if pure else self.computation
            self._executables[backend] = compile_laid_out(
                computation,
                self._program_shape.result_shape,
                lambda changed: compile_module(Module(self.name, changed), backend),
            )
        return self._executables[backend]


def execute_parallel(
    computations: Sequence[tuple[XlaComputation, Sequence[Any]]], backend: str | None = None
) -> list[Any]:
    """Run several computations at once, each in a thread: they talk by Send and Recv over channels.

    Args:
        computations: pairs of a computation and the list of its arguments; the k-th is replica k.
        backend: as for a call.

    Returns:
        Their results, in order.

    Raises:
        ArgumentError: something else than such pairs.
        DeadlockError: computations wait for one another, or for one that has ended.
        ChannelError: a channel with two senders or two receivers, or operations over one channel that differ.

    Source: sections "Send" and "Recv" of the XLA documents.

    >>> import numpy as np
    >>> from tinyxla.xla import F32, CreateChannelHandle, ShapeUtil, XlaBuilder, execute_parallel
    >>> channel, sender, receiver = CreateChannelHandle(), XlaBuilder("sender"), XlaBuilder("receiver")
    >>> token = sender.Send(sender.Constant(3.0), channel)
    >>> x = receiver.Recv(ShapeUtil.MakeShape(F32, []), channel)
    >>> execute_parallel([(sender.Build(sender.Constant(True)), []), (receiver.Build(x * x), [])])
    [Array(True, dtype=bool), Array(9., dtype=float32)]
    """
    for k, pair in enumerate(computations):
        if not (isinstance(pair, (tuple, list)) and len(pair) == 2 and isinstance(pair[0], XlaComputation)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArgumentError(
                f"execute_parallel: number {k} must be a pair of an XlaComputation and the list of its arguments, but "
                f"is {reprlib.repr(pair)}."
            )
    given = [c._flat_arguments(f"execute_parallel: {c.name}", args) for c, args in computations]  # pyright: ignore[reportPrivateUsage]
    results = run_parallel([c._program for c, _ in computations], given, backend)  # pyright: ignore[reportPrivateUsage]
    return [
        regrouped(c.GetProgramShape().result_shape, iter(several))
        for (c, _), several in zip(computations, results, strict=True)
    ]


def _shared(arguments: Sequence[Any]) -> list[Any]:
    """The arguments of all devices; what is one object (or number) for all of them becomes one array for all."""
    known: dict[Any, Any] = {}

    def as_one(x: Any) -> Any:
        if isinstance(x, (tuple, list)):
            return tuple(map(as_one, x))
        if not isinstance(x, (np.ndarray, np.generic)):
            return x
        # Bits, not values: zeros of either sign are two numbers.
        key = id(x) if isinstance(x, np.ndarray) else (x.dtype, x.tobytes())
        if key not in known:
            known[key] = wrap(np.array(x))
        return known[key]

    return [list(map(as_one, x)) if isinstance(x, (tuple, list)) else x for x in arguments]


def _arguments(given: Any, shape: AnyShape, what: str) -> Iterator[Array]:
    """The arrays of an argument, which must have this shape."""
    if isinstance(shape, Shape):
        yield checked_argument(given, shape, what)
        return
    if not isinstance(given, (tuple, list)) or len(given) != len(shape.elements):
        raise ArgumentError(f"{what} must be a tuple of {len(shape.elements)}, {shape}, but is {reprlib.repr(given)}.")
    for k, (x, part) in enumerate(zip(given, shape.elements, strict=True)):
        yield from _arguments(x, part, f"{what}[{k}]")


_KINDS: dict[type, tuple[str, ...]] = {  # the element types of which a Python number may be
    bool: ("pred",),
    int: ("signed", "unsigned", "float", "complex"),
    float: ("float", "complex"),
    complex: ("complex",),
}


def checked_argument(given: Any, shape: Shape, what: str) -> Array:
    """An argument for a parameter of this shape; nothing is converted but Python's numbers."""
    if isinstance(given, (bool, int, float, complex)) and not isinstance(given, np.generic):
        if shape.element_type.kind not in next(kinds for kind, kinds in _KINDS.items() if isinstance(given, kind)):
            raise DTypeError(f"{what} must be {shape}, but is the Python number {given!r}; give one of that type.")
        given = checked_scalar(given, shape.dtype)
    elif not isinstance(given, Array):
        if not hasattr(given, "__array__"):
            raise ArgumentError(
                f"{what} must be an array {shape}, but is {reprlib.repr(given)} of type {type(given).__name__}; "
                "convert it with numpy.asarray."
            )
        given = np.asarray(given)
    found = Shape.of(given)
    if found.element_type is not shape.element_type:
        raise DTypeError(f"{what} must be {shape}, but is {found}; convert it with astype({shape.dtype.name!r}).")
    if not shape.admits(found.dimensions):
        raise ShapeError(f"{what} must be {shape}, but is {found}; give an array of these dimensions.")
    return given if isinstance(given, Array) else wrap(np.array(given, shape.dtype))
