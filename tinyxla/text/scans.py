"""The HLO instruction `scan` as a `while` loop.

`(outputs..., carries...) = scan(inputs..., initial carries...), dimensions={d}, num_carries=n, to_apply=f`: at each
index along dimension d of the inputs, f is given the slices of the inputs without that dimension and the carries, and
gives the slices of the outputs and the next carries. With `is_reverse` the last index comes first.

Source: the instruction as XLA parses it and runs it; its documents do not have it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tinyxla.hlo import Computation, Instruction, Literal
from tinyxla.ops import Op, calls, dynamic_slices, elementwise, movement, ops
from tinyxla.shapes import AnyShape, Shape, TupleShape


class Scan(NamedTuple):
    """The attributes of a scan; its dimension is the same one of all arrays."""

    dimension: int
    num_carries: int
    is_reverse: bool
    to_apply: Computation


class _Graph(list[Instruction]):
    """Instructions in the order in which they are made."""

    def add(self, op: Op, *operands: Instruction, **attributes: Any) -> Instruction:
        values = op.attributes(**attributes)
        shape = op.shape(*(x.shape for x in operands), **values._asdict())
        self.append(Instruction(op, operands, values, shape))
        return self[-1]

    def parameters(self, shapes: Sequence[AnyShape]) -> list[Instruction]:
        return [self.add(movement.parameter, parameter_number=k, shape=shape) for k, shape in enumerate(shapes)]

    def number(self, value: int) -> Instruction:
        return self.add(movement.constant, literal=Literal(np.asarray(value, np.int32)))

    def starts(self, array: Instruction, dimension: int, index: Instruction) -> list[Instruction]:
        zero = self.number(0)
        return [index if d == dimension else zero for d in range(array.array_shape.rank)]

    def computation(self, name: str, root: Instruction) -> Computation:
        parameters = [x for x in self if x.op is movement.parameter]
        return Computation(name, parameters, list(self), root)


def scan_as_while(scan: Scan, operands: Sequence[Instruction], result: AnyShape) -> list[Instruction]:
    """The instructions that compute the scan; the last one is the tuple of its results."""
    count = len(operands) - scan.num_carries
    shapes = result.elements if isinstance(result, TupleShape) else (result,)
    outputs = shapes[: len(shapes) - scan.num_carries]
    length = _length(scan, [x.shape for x in operands[:count]], outputs)
    graph = _Graph()
    empty = [_zeros(graph, shape) for shape in outputs]
    carried = [graph.number(0), *operands[:count], *empty, *operands[count:]]
    types = [x.shape for x in carried]
    body = _body(scan, types, count, len(outputs), length)
    loop = graph.add(ops["while"], *carried, condition=_condition(types, length), body=body, known_trip_count=length)
    results = [graph.add(calls.get_tuple_element, loop, index=k) for k in range(1 + count, len(carried))]
    graph.add(calls.tuple_, *results)
    return graph


def _length(scan: Scan, inputs: Sequence[AnyShape], outputs: Sequence[AnyShape]) -> int:
    arrays = [shape for shape in (*inputs, *outputs) if isinstance(shape, Shape) and scan.dimension < shape.rank]
    lengths = {shape.dimensions[scan.dimension] for shape in arrays}
    if len(arrays) != len(inputs) + len(outputs) or len(lengths) != 1:
        raise ValueError(f"inputs and outputs must have one size in dimension {scan.dimension}, but got {arrays}")
    return lengths.pop()


def _zeros(graph: _Graph, shape: AnyShape) -> Instruction:
    assert isinstance(shape, Shape)  # as `_length` has seen to
    zero = graph.add(movement.constant, literal=Literal(np.zeros((), shape.dtype)))
    return graph.add(movement.broadcast, zero, sizes=shape.dimensions, dimensions=())


def _condition(types: Sequence[AnyShape], length: int) -> Computation:
    graph = _Graph()
    index, *_ = graph.parameters(types)
    more = graph.add(elementwise.compare, index, graph.number(length), direction="LT", type="SIGNED")
    return graph.computation("scan_condition", more)


def _body(scan: Scan, types: Sequence[AnyShape], inputs: int, outputs: int, length: int) -> Computation:
    graph = _Graph()
    index, *carried = graph.parameters(types)
    at = graph.add(elementwise.sub, graph.number(length - 1), index) if scan.is_reverse else index
    buffers, carries = carried[inputs : inputs + outputs], carried[inputs + outputs :]
    slices = [_slice(graph, x, scan.dimension, at) for x in carried[:inputs]]
    found = graph.add(ops["call"], *slices, *carries, to_apply=scan.to_apply)
    values = _elements(graph, found)
    if len(values) != outputs + len(carries):
        raise ValueError(f"to_apply must give {outputs} outputs and {len(carries)} carries, but gives {found.shape}")
    written = [
        _updated(graph, buffer, x, scan.dimension, at) for buffer, x in zip(buffers, values[:outputs], strict=True)
    ]
    following = graph.add(elementwise.add, index, graph.number(1))
    root = graph.add(calls.tuple_, following, *carried[:inputs], *written, *values[outputs:])
    return graph.computation("scan_body", root)


def _elements(graph: _Graph, x: Instruction) -> list[Instruction]:
    if not isinstance(x.shape, TupleShape):
        return [x]
    return [graph.add(calls.get_tuple_element, x, index=k) for k in range(len(x.shape.elements))]


def _slice(graph: _Graph, x: Instruction, dimension: int, index: Instruction) -> Instruction:
    sizes = list(x.array_shape.dimensions)
    sizes[dimension] = 1
    part = graph.add(
        dynamic_slices.dynamic_slice, x, *graph.starts(x, dimension, index), dynamic_slice_sizes=tuple(sizes)
    )
    return graph.add(movement.reshape, part, sizes=(*sizes[:dimension], *sizes[dimension + 1 :]))


def _updated(graph: _Graph, x: Instruction, part: Instruction, dimension: int, index: Instruction) -> Instruction:
    sizes = list(x.array_shape.dimensions)
    sizes[dimension] = 1
    whole = graph.add(movement.reshape, part, sizes=tuple(sizes))
    return graph.add(dynamic_slices.dynamic_update_slice, x, whole, *graph.starts(x, dimension, index))
