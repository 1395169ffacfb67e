"""The builder: instructions are added one by one, and `Build` makes a computation of them.

A builder records into a graph as a trace does, so its functions are one call of an operation each. Tuples are tuples of
Python here: only arrays are in the graph, where what takes tuples takes their arrays in order.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from tinyxla.errors import ArgumentError, ShapeError
from tinyxla.hlo import Computation, Instruction
from tinyxla.ops import calls, hlo_only, movement
from tinyxla.ops.tuples import leaf_shapes, leaves, regrouped
from tinyxla.shapes import AnyShape, Shape, TupleShape
from tinyxla.tracing.core import GraphTrace, GraphTracer
from tinyxla.xla.computation import ProgramShape, XlaComputation

Tree = Any  # the value of an `XlaOp` that may be a tuple: a nested tuple of values
BuilderFunction = Callable[..., "XlaOp"]

functions: dict[str, BuilderFunction] = {}  # by name: those of this package, which are also methods of builders


def shape_of(tree: Tree) -> AnyShape:
    """The shape of a value."""
    return TupleShape(tuple(map(shape_of, tree))) if isinstance(tree, tuple) else tree.instruction.shape


def _operator(name: str) -> Callable[..., XlaOp]:
    return lambda *operands: functions[name](*operands)


class XlaOp:
    """The result of an instruction of a builder: an array, or a tuple. Python's arithmetic operators add instructions;
    `==` compares by identity.

    >>> import numpy as np
    >>> from tinyxla.xla import XlaBuilder
    >>> b = XlaBuilder("quadratic")
    >>> x = b.Constant(np.float32([1, 2]))
    >>> x * x - x
    <XlaOp f32[2] of quadratic>
    """

    __slots__ = ("builder", "value")

    def __init__(self, builder: XlaBuilder, value: Tree) -> None:
        self.builder = builder
        self.value = value

    @property
    def shape(self) -> AnyShape:
        return shape_of(self.value)

    def __repr__(self) -> str:
        return f"<XlaOp {self.shape} of {self.builder.name}>"

    __add__ = _operator("Add")
    __sub__ = _operator("Sub")
    __mul__ = _operator("Mul")
    __truediv__ = _operator("Div")
    __mod__ = _operator("Rem")
    __neg__ = _operator("Neg")
    __and__ = _operator("And")
    __or__ = _operator("Or")
    __xor__ = _operator("Xor")
    __invert__ = _operator("Not")
    __lshift__ = _operator("ShiftLeft")
    __rshift__ = _operator("ShiftRightArithmetic")


class XlaBuilder:
    """Instructions of a computation in the making.

    All functions of `tinyxla.xla` that add an instruction are its methods too: `builder.Add(x, y)` is `Add(x, y)`.

    >>> from tinyxla.xla import Add, F32, ShapeUtil, XlaBuilder
    >>> b = XlaBuilder("sum")
    >>> x, y = (b.Parameter(k, ShapeUtil.MakeShape(F32, [])) for k in range(2))
    >>> total = Add(x, y)  # or b.Add(x, y), or x + y
    >>> b.Build(total)(1.0, 2.0)
    Array(3., dtype=float32)
    """

    def __init__(self, name: str = "computation") -> None:
        self.name = name
        self.trace = GraphTrace(f"the builder {name}")  # runs only while a function adds to it
        self._parameters: dict[int, tuple[str, Tree]] = {}
        self._last: XlaOp | None = None

    def __getattr__(self, name: str) -> BuilderFunction:
        if name not in functions:
            raise AttributeError(f"there is no builder function {name!r}", name=name, obj=self)
        return functools.partial(functions[name], self)

    def __repr__(self) -> str:
        return f"<XlaBuilder {self.name}>"

    def wrap(self, value: Tree) -> XlaOp:
        """A value as the newest operation.

        Args:
            value: a value of the graph, or a tuple of such.

        Returns:
            An `XlaOp` of this builder.

        Raises:
            ArgumentError: what is no value of the graph; `Constant` takes numbers and arrays.

        >>> from tinyxla.xla import XlaBuilder
        >>> b = XlaBuilder()
        >>> x = b.Constant(1.0)
        >>> b.wrap((x.value, x.value))
        <XlaOp (f32[], f32[]) of computation>
        """
        if not isinstance(value, (GraphTracer, tuple)):
            raise ArgumentError(f"wrap: the value must be one of the graph or a tuple of such, but is {value!r}.")
        self._last = XlaOp(self, value)
        return self._last

    def add_parameter(self, number: int, shape: AnyShape, name: str) -> Tree:
        """The value of a parameter: one parameter of the graph for each array in it.

        Args:
            number: the number of the parameter, from 0 on.
            shape: its shape.
            name: its name.

        Returns:
            The value, or for the shape of a tuple a tuple of values.

        Raises:
            ArgumentError: a number that is negative or given already, or what is no shape.

        >>> from tinyxla.xla import F32, ShapeUtil, XlaBuilder
        >>> b = XlaBuilder()
        >>> b.wrap(b.add_parameter(0, ShapeUtil.MakeShape(F32, [2]), "x"))
        <XlaOp f32[2] of computation>
        """
        if not isinstance(number, int) or not isinstance(shape, (Shape, TupleShape)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArgumentError(f"Parameter: takes an integer and a shape, but got {number!r} and {shape!r}.")
        if number in self._parameters:
            raise ArgumentError(
                f"Parameter: {self.name} already has a parameter {number}; number each one differently."
            )
        if number < 0:
            raise ArgumentError(f"Parameter: parameters must be numbered from 0 on, but got {number}.")
        value = regrouped(shape, iter([self.trace.parameter(x) for x in leaf_shapes(shape)]))
        self._parameters[number] = (name or f"p{number}", value)
        return value

    def _root(self, root: XlaOp | None) -> XlaOp:
        found = root if root is not None else self._last
        if found is None:
            raise ArgumentError(f"Build: {self.name} has no instructions; add one.")
        if not isinstance(found, XlaOp) or found.builder is not self:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArgumentError(f"Build: the root must be an XlaOp of {self!r}, but is {found!r}.")
        return found

    def GetShape(self, op: XlaOp) -> AnyShape:
        """The shape of an operation.

        Args:
            op: an operation.

        Returns:
            The shape.

        Raises:
            ArgumentError: what is no `XlaOp`.

        >>> from tinyxla.xla import XlaBuilder
        >>> b = XlaBuilder()
        >>> b.GetShape(b.Constant((1.0, True)))
        (f32[], pred[])
        """
        if not isinstance(op, XlaOp):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArgumentError(f"GetShape: takes an XlaOp, but got {op!r}.")
        return op.shape

    def GetProgramShape(self, root: XlaOp | None = None) -> ProgramShape:
        """The shapes of the parameters, and of the root (the newest operation unless one is given).

        Args:
            root: the result; None for the newest operation.

        Returns:
            A `ProgramShape`.

        Raises:
            ArgumentError: numbers of parameters with a gap, no operations, or a root of another builder.

        >>> from tinyxla.xla import F32, ShapeUtil, XlaBuilder
        >>> b = XlaBuilder()
        >>> x = b.Parameter(0, ShapeUtil.MakeShape(F32, [2, 3]), "x")
        >>> print(b.GetProgramShape(b.Transpose(x, [1, 0])))
        (x: f32[2,3]) -> f32[3,2]
        """
        missing = [n for n in range(len(self._parameters)) if n not in self._parameters]
        if missing:
            raise ArgumentError(
                f"{self.name}: parameters must be numbered from 0 on without gaps, but there is no parameter "
                f"{missing[0]} beside {sorted(self._parameters)}."
            )
        ordered = [self._parameters[n] for n in range(len(self._parameters))]
        names, values = tuple(name for name, _ in ordered), tuple(shape_of(value) for _, value in ordered)
        return ProgramShape(values, self._root(root).shape, names)

    def Build(self, root: XlaOp | None = None, result_layout: AnyShape | None = None) -> XlaComputation:
        """The computation of a root (the newest operation unless one is given) from the parameters.

        Args:
            root: the result.
            result_layout: the root's shape, with the layouts in which results are to be; without it they are in those
                that the root's shape has.

        Returns:
            The computation, which can be called.

        Raises:
            ArgumentError: numbers of parameters with a gap, a root of another builder, or another use of the context
                that `Send` and `Recv` give for the number of a channel than by one `SendDone` or `RecvDone`.
            ShapeError: a `result_layout` that is not the root's shape.

        >>> from tinyxla.xla import XlaBuilder
        >>> b = XlaBuilder()
        >>> x, y = b.Constant(1.0), b.Constant(2.0)
        >>> b.Build()(), b.Build(x)()
        (Array(2., dtype=float32), Array(1., dtype=float32))
        """
        program, chosen = self.GetProgramShape(root), self._root(root)
        if result_layout is not None:
            if result_layout != program.result_shape:
                raise ShapeError(
                    f"Build: result_layout must be the shape {program.result_shape} of the root in some layout, but is "
                    f"{result_layout}."
                )
            program = program._replace(result_shape=result_layout)
        new: dict[Instruction, Instruction] = {}
        flat = [(name, x) for _, (name, value) in sorted(self._parameters.items()) for x in leaves(value)]
        for number, (name, x) in enumerate(flat):
            attributes = movement.Parameter(number, x.instruction.shape)
            new[x.instruction] = Instruction(movement.parameter, (), attributes, attributes.shape, name=name)
        parameters = list(new.values())
        for x in self.trace.instructions:
            if x not in new:
                new[x] = Instruction(x.op, [new[o] for o in x.operands], x.attributes, x.shape, x.source)
        instructions = list(new.values())
        results = [new[self.trace.lift(x)] for x in leaves(chosen.value)]
        check_contexts(instructions, results)
        for k, (x, asked) in enumerate(zip(results, leaf_shapes(program.result_shape), strict=True)):
            if asked.layout != x.array_shape.layout:
                results[k] = Instruction(hlo_only.copy, (x,), hlo_only.copy.attributes(), asked, x.source)
                instructions.append(results[k])
        if isinstance(program.result_shape, TupleShape):
            shape = TupleShape(tuple(x.shape for x in results))
            results = [Instruction(calls.tuple_, results, calls.tuple_.attributes(), shape)]
            instructions += results
        return XlaComputation(Computation(self.name, parameters, instructions, results[0]), program)

    build, get_shape, get_program_shape = Build, GetShape, GetProgramShape  # in XLA's Python bindings


def check_contexts(instructions: Sequence[Instruction], results: Sequence[Instruction]) -> None:
    """What begins a transfer gives the data's buffer and a request, which only what waits for the transfer may use, and
    once. Source: sections "RecvDone" and "Send" of the XLA documents."""
    users: dict[Instruction, list[str]] = {}
    for x in instructions:
        for operand in dict.fromkeys(x.operands):
            users.setdefault(operand, []).append(x.op.name)
    for x in results:
        users.setdefault(x, []).append("the result")
    for x in instructions:
        if x.op is calls.get_tuple_element and x.operands[0].op.name in ("recv", "send") and x.attributes.index < 2:
            name, used = x.operands[0].op.name, users.get(x, [])
            if used not in ([], [f"{name}-done"]):
                raise ArgumentError(
                    f"Build: the context that {name} gives must be used once, by {name}-done, but that at "
                    f"{x.operands[0].source} is used by {' and '.join(used)}."
                )
