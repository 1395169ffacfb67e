"""Dynamic padder (XLA's name): programs with dynamic dimensions become static. Arrays are padded to the bounds of their
dimensions; the real sizes become s32 scalars of the program. Both backends run the result.

Every instruction is rewritten with the bounds; for each dynamic dimension the padder tracks the scalar of its size.
Where an op would let padding reach its result, the padding is replaced first: by the identity of a reduction, zeros in
a product, the last element in sort order. Parameters and results get their sizes as additional parameters and results.

`tinyxla.ops.dynamic_sizes` tells which dimensions are dynamic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tinyxla.compiler.passes.expand import expand
from tinyxla.compiler.passes.inline_calls import inline_calls
from tinyxla.compiler.rewriter import Rewriter
from tinyxla.hlo import Computation, Instruction, Literal
from tinyxla.ops import calls, dynamic_slices, elementwise, indexing, movement, ops, reduction
from tinyxla.ops.dynamic_sizes import RULES, flags, static
from tinyxla.ops.products import contraction
from tinyxla.shapes import AnyShape, Shape, TupleShape, element_type

S32 = element_type("s32")
Size = Instruction | None  # None: the static size of the shape
DimensionIndex = tuple[int, int]  # indices of a parameter or result and of its dimension


@dataclass(frozen=True)
class PaddedProgram:
    """`computation` takes the sizes at `parameters` after its own parameters, and returns those at `results` after
    its own results, all in one tuple."""

    computation: Computation
    parameters: list[DimensionIndex]
    results: list[DimensionIndex]


def pad_dynamic_dimensions(computation: Computation) -> PaddedProgram:
    """The program with static shapes."""
    return _DynamicPadder(inline_calls(expand(computation))).program()


class _DynamicPadder:
    def __init__(self, computation: Computation) -> None:
        self.source = computation
        self.rewriter = Rewriter()
        self.sizes: dict[Instruction, tuple[Size, ...]] = {}  # of new instructions with dynamic dimensions

    def program(self) -> PaddedProgram:
        source = self.source
        parameters = [self._parameter(k, static(p.shape)) for k, p in enumerate(source.parameters)]
        dynamic_parameters = _dynamic_dimensions([p.shape for p in source.parameters])
        for k, d in dynamic_parameters:
            size = self._parameter(len(parameters), Shape(S32))
            parameters.append(size)
            self.set_size(parameters[k], d, size)
        new = dict(zip(source.parameters, parameters, strict=False))
        for x in source.instructions:
            if x not in new:
                new[x] = self.visit(x, tuple(new[o] for o in x.operands))
        outputs = [new[x] for x in source.outputs]
        dynamic_results = _dynamic_dimensions([x.shape for x in source.outputs])
        sizes = [self.size(outputs[k], d) for k, d in dynamic_results]
        if isinstance(source.root.shape, TupleShape) or sizes:
            root = self.emit(calls.tuple_, *outputs, *sizes)
        else:
            (root,) = outputs
        padded = Computation(source.name, parameters, self.rewriter.instructions, root)
        return PaddedProgram(padded, dynamic_parameters, dynamic_results)

    def _parameter(self, number: int, shape: AnyShape) -> Instruction:
        return self.rewriter.emit(movement.parameter, parameter_number=number, shape=shape)

    # --- sizes

    def emit(self, op: Any, *operands: Instruction, **attributes: Any) -> Instruction:
        return self.rewriter.emit(op, *operands, **attributes)

    def constant(self, value: Any, dtype: Any = np.int32) -> Instruction:
        return self.emit(movement.constant, literal=Literal(np.asarray(value).astype(dtype)))

    def set_size(self, x: Instruction, d: int, size: Size) -> None:
        sizes = list(self.sizes_of(x))
        sizes[d] = size
        self.sizes[x] = tuple(sizes)

    def sizes_of(self, x: Instruction) -> tuple[Size, ...]:
        return self.sizes.get(x) or (None,) * (x.shape.rank if isinstance(x.shape, Shape) else 0)

    def size(self, x: Instruction, d: int) -> Instruction:
        return self.sizes_of(x)[d] or self.constant(x.array_shape.dimensions[d])

    def with_sizes(self, x: Instruction, sizes: Sequence[Size]) -> Instruction:
        """x, with its sizes recorded; the sizes of a tuple are those of its elements."""
        if any(size is not None for size in sizes):
            self.sizes[x] = tuple(sizes)
        return x

    def is_real(self, x: Instruction, dimensions: Sequence[int]) -> Instruction | None:
        """A mask of the elements outside of the padding of these dimensions; None if all elements are."""
        mask: Instruction | None = None
        for d in dimensions:
            size = self.sizes_of(x)[d]
            if size is not None:
                index = self.emit(movement.iota, shape=x.array_shape.with_type(np.int32), iota_dimension=d)
                limit = self.emit(movement.broadcast, size, sizes=x.array_shape.dimensions, dimensions=())
                is_inside = self.emit(elementwise.compare, index, limit, direction="LT", type="SIGNED")
                mask = is_inside if mask is None else self.emit(elementwise.and_, mask, is_inside)
        return mask

    def masked(self, x: Instruction, fill: Instruction, dimensions: Sequence[int] | None = None) -> Instruction:
        """x with its padding replaced by a scalar."""
        mask = self.is_real(x, range(x.array_shape.rank) if dimensions is None else dimensions)
        if mask is None:
            return x
        filling = self.emit(movement.broadcast, fill, sizes=x.array_shape.dimensions, dimensions=())
        return self.with_sizes(self.emit(elementwise.select, mask, x, filling), self.sizes_of(x))

    def zero(self, x: Instruction) -> Instruction:
        return self.constant(0, x.array_shape.dtype)

    # --- instructions

    def visit(self, x: Instruction, operands: tuple[Instruction, ...]) -> Instruction:
        if x.op.name in _VISITS:
            return _VISITS[x.op.name](self, x, operands)
        result = self.emit(x.op, *operands, **x.attributes._asdict())
        return self.with_sizes(result, self.carried(x, operands)) if x.op.name in RULES else result

    def carried(self, x: Instruction, operands: Sequence[Instruction]) -> Sequence[Size]:
        """The sizes of the result's dimensions, as far as they are those of the operands' dimensions."""
        shapes = [o.array_shape for o in operands]
        sizes = [self.sizes_of(o) for o in operands]
        return RULES[x.op.name](sizes, shapes, static(x.shape), x.attributes._asdict())

    def arithmetic(self, op: Any, left: Instruction, right: Instruction | int) -> Instruction:
        return self.emit(op, left, self.constant(right) if isinstance(right, int) else right)


def _dynamic_dimensions(shapes: Sequence[AnyShape]) -> list[DimensionIndex]:
    return [(k, d) for k, s in enumerate(shapes) if isinstance(s, Shape) for d, f in enumerate(flags(s)) if f]


Operands = tuple[Instruction, ...]


def _get_size(p: _DynamicPadder, x: Instruction, operands: Operands) -> Instruction:
    return p.size(operands[0], x.attributes.dimensions[0])


def _set_size(p: _DynamicPadder, x: Instruction, operands: Operands) -> Instruction:
    """The size is clamped to [0, bound]."""
    operand, size = operands
    (d,) = x.attributes.dimensions
    clamped = p.emit(elementwise.clamp, p.constant(0), size, p.constant(operand.array_shape.dimensions[d]))
    copy = ops["copy"]
    copy_of_operand = Instruction(
        copy, [operand], copy.attributes(), operand.shape
    )  # not shared: others have other sizes
    p.rewriter.instructions.append(copy_of_operand)
    sizes = list(p.sizes_of(operand))
    sizes[d] = clamped
    return p.with_sizes(copy_of_operand, sizes)


def _reduce(p: _DynamicPadder, x: Instruction, operands: Operands) -> Instruction:
    count = len(operands) // 2
    initial = operands[count:]
    op = reduction.monoid(x.attributes.to_apply)
    arrays: list[Instruction] = []
    for operand, start in zip(operands[:count], initial, strict=True):
        fill = start
        if op is not None:
            dtype = operand.array_shape.dtype
            fill = p.constant(reduction.identity_element(op, dtype), dtype)
        arrays.append(p.masked(operand, fill, x.attributes.dimensions))
    result = p.emit(x.op, *arrays, *initial, **x.attributes._asdict())
    return p.with_sizes(result, p.carried(x, operands))


def _element(p: _DynamicPadder, x: Instruction, operands: Operands) -> Instruction:
    (tuple_,) = operands
    if tuple_.op is calls.tuple_:
        return tuple_.operands[x.attributes.index]
    result = p.emit(x.op, tuple_, **x.attributes._asdict())
    return p.with_sizes(result, p.sizes.get(tuple_, ()))


def _dot(p: _DynamicPadder, x: Instruction, operands: Operands) -> Instruction:
    dims: contraction.Dot = x.attributes
    sides = [p.masked(o, p.zero(o), dims.contracting(side)) for side, o in enumerate(operands)]
    result = p.emit(x.op, *sides, **dims._asdict())
    return p.with_sizes(result, p.carried(x, operands))


def _concatenate(p: _DynamicPadder, x: Instruction, operands: Operands) -> Instruction:
    """Each operand starts at the real end of the previous one and overwrites its padding."""
    d = x.attributes.dimension
    result = p.emit(x.op, *operands, **x.attributes._asdict())
    sizes = p.carried(x, operands)
    if all(p.sizes_of(o)[d] is None for o in operands):
        return p.with_sizes(result, sizes)
    zero = p.constant(0)
    total = zero
    for operand in operands:
        starts = [total if k == d else zero for k in range(result.array_shape.rank)]
        result = p.emit(dynamic_slices.dynamic_update_slice, result, operand, *starts)
        total = p.emit(elementwise.add, total, p.size(operand, d))
    return p.with_sizes(result, [total if k == d else s for k, s in enumerate(sizes)])


def _slice(p: _DynamicPadder, x: Instruction, operands: Operands) -> Instruction:
    """The size is that of the slice's intersection with the real elements."""
    result = p.emit(x.op, *operands, **x.attributes._asdict())
    sizes = list(p.sizes_of(operands[0]))
    for d, size in enumerate(sizes):
        if size is not None:
            start, limit, stride = (values[d] for values in x.attributes)
            end = p.arithmetic(elementwise.min_, size, limit)
            length = p.arithmetic(elementwise.max_, p.arithmetic(elementwise.sub, end, start), 0)
            sizes[d] = p.arithmetic(elementwise.div, p.arithmetic(elementwise.add, length, stride - 1), stride)
    return p.with_sizes(result, sizes)


def _pad(p: _DynamicPadder, x: Instruction, operands: Operands) -> Instruction:
    """Padding beyond the real end is replaced by the padding value first, so that the high edge may begin there."""
    operand, value = operands
    result = p.emit(x.op, p.masked(operand, value), value, **x.attributes._asdict())
    sizes = list(p.sizes_of(operand))
    for d, (size, (low, high, interior)) in enumerate(zip(sizes, x.attributes.padding_config, strict=True)):
        if size is not None:
            holes = p.arithmetic(elementwise.max_, p.arithmetic(elementwise.sub, size, 1), 0)
            length = p.emit(elementwise.add, size, p.arithmetic(elementwise.mul, holes, interior))
            sizes[d] = p.arithmetic(elementwise.max_, p.arithmetic(elementwise.add, length, low + high), 0)
    return p.with_sizes(result, sizes)


def _reverse(p: _DynamicPadder, x: Instruction, operands: Operands) -> Instruction:
    """The reversed padding, which comes first, is rotated to the end."""
    (operand,) = operands
    result = p.emit(x.op, operand, **x.attributes._asdict())
    rank, zero = result.array_shape.rank, p.constant(0)
    for d in x.attributes.dimensions:
        size = p.sizes_of(operand)[d]
        if size is not None:
            sizes = result.array_shape.dimensions
            twice = p.emit(movement.concatenate, result, result, dimension=d)
            first = p.emit(elementwise.sub, p.constant(sizes[d]), size)
            starts = [first if k == d else zero for k in range(rank)]
            result = p.emit(dynamic_slices.dynamic_slice, twice, *starts, dynamic_slice_sizes=sizes)
    return p.with_sizes(result, p.sizes_of(operand))


def _update(p: _DynamicPadder, x: Instruction, operands: Operands) -> Instruction:
    """Padding of an update does not change the operand."""
    operand, update, *starts = operands
    is_real = p.is_real(update, range(update.array_shape.rank))
    if is_real is not None:
        old = p.emit(dynamic_slices.dynamic_slice, operand, *starts, dynamic_slice_sizes=update.array_shape.dimensions)
        update = p.emit(elementwise.select, is_real, update, old)
    return p.with_sizes(p.emit(x.op, operand, update, *starts), p.sizes_of(operand))


def _sort(p: _DynamicPadder, x: Instruction, operands: Operands) -> Instruction:
    """A payload tells which elements are real; padding sorts last."""
    (d,) = x.attributes.dimensions
    is_real = p.is_real(operands[0], [d])
    if is_real is None:
        result = p.emit(x.op, *operands, **x.attributes._asdict())
        return p.with_sizes(result, p.sizes_of(operands[0]))
    attributes = {**x.attributes._asdict(), "to_apply": _real_elements_first(x.attributes.to_apply)}
    result = p.emit(x.op, *operands, is_real, **attributes)
    elements = [p.emit(calls.get_tuple_element, result, index=k) for k in range(len(operands))]
    for element in elements:
        p.with_sizes(element, p.sizes_of(operands[0]))
    return p.emit(calls.tuple_, *elements) if isinstance(x.shape, TupleShape) else elements[0]


def _real_elements_first(comparator: Computation) -> Computation:
    """The comparator with an additional pair of preds; real elements precede padding."""
    rewriter = Rewriter()
    shapes = [*comparator.parameter_shapes, *[Shape(element_type("pred"))] * 2]
    parameters = [rewriter.emit(movement.parameter, parameter_number=k, shape=s) for k, s in enumerate(shapes)]
    *own, left, right = parameters
    is_before = rewriter.splice(comparator, own, lambda rewriter, x, operands: None)
    precedes = rewriter.emit(
        elementwise.and_, left, rewriter.emit(elementwise.or_, is_before, rewriter.emit(elementwise.not_, right))
    )
    return Computation(comparator.name, parameters, rewriter.instructions, precedes)


def _reduce_window(p: _DynamicPadder, x: Instruction, operands: Operands) -> Instruction:
    count = len(operands) // 2
    arrays = [p.masked(o, start) for o, start in zip(operands[:count], operands[count:], strict=True)]
    result = p.emit(x.op, *arrays, *operands[count:], **x.attributes._asdict())
    sizes = [_window_positions(p, s, w) for s, w in zip(p.sizes_of(operands[0]), x.attributes.window, strict=True)]
    return p.with_sizes(result, sizes)


def _window_positions(p: _DynamicPadder, size: Size, window: Any) -> Size:
    """The number of window positions over `size` elements."""
    if size is None:
        return None
    base = p.arithmetic(elementwise.mul, p.arithmetic(elementwise.sub, size, 1), window.base_dilation)
    base = p.arithmetic(elementwise.max_, p.arithmetic(elementwise.add, base, 1), 0)
    extent = (window.size - 1) * window.window_dilation + 1
    room = p.arithmetic(elementwise.add, base, window.padding_low + window.padding_high - extent + window.stride)
    return p.arithmetic(elementwise.div, p.arithmetic(elementwise.max_, room, 0), window.stride)


def _convolution(p: _DynamicPadder, x: Instruction, operands: Operands) -> Instruction:
    lhs, rhs = operands
    labels, window = x.attributes.dim_labels, x.attributes.window
    result = p.emit(x.op, p.masked(lhs, p.zero(lhs)), p.masked(rhs, p.zero(rhs)), **x.attributes._asdict())
    sizes = list(p.carried(x, operands))
    for o, w in zip(labels.out_spec[2:], window, strict=True):
        sizes[o] = _window_positions(p, sizes[o], w)
    return p.with_sizes(result, sizes)


def _scatter(p: _DynamicPadder, x: Instruction, operands: Operands) -> Instruction:
    """Padding of the indices becomes out of bounds, where updates are skipped."""
    count = len(operands) // 2
    arrays, indices, updates = operands[:count], operands[count], operands[count + 1 :]
    out_of_bounds = p.constant(-1, indices.array_shape.dtype)
    if indices.array_shape.element_type.kind == "unsigned":
        out_of_bounds = p.constant(np.iinfo(indices.array_shape.dtype).max, indices.array_shape.dtype)
    result = p.emit(x.op, *arrays, p.masked(indices, out_of_bounds), *updates, **x.attributes._asdict())
    return p.with_sizes(result, p.sizes_of(arrays[0]))


def _topk(p: _DynamicPadder, x: Instruction, operands: Operands) -> Instruction:
    """Padding becomes the last element in order; it comes after its equals."""
    (operand,) = operands
    last = reduction.identity_element("maximum" if x.attributes.largest else "minimum", operand.array_shape.dtype)
    filled = p.masked(operand, p.constant(last, operand.array_shape.dtype), [operand.array_shape.rank - 1])
    result = p.emit(x.op, filled, **x.attributes._asdict())
    return p.with_sizes(result, p.carried(x, operands))


def _dynamic_reshape(p: _DynamicPadder, x: Instruction, operands: Operands) -> Instruction:
    """Each element by its row-major position among the real elements."""
    operand, *given_sizes = operands
    bounds, dynamic = x.attributes
    limits = zip(given_sizes, bounds, dynamic, strict=True)
    sizes = [p.emit(elementwise.clamp, p.constant(0), s, p.constant(n)) if f else None for s, n, f in limits]
    result_shape = operand.array_shape.with_dimensions(bounds)
    position = _row_major_positions(p, result_shape, sizes)
    strides: list[Instruction] = []
    stride = p.constant(1)
    for d in reversed(range(operand.array_shape.rank)):
        strides.insert(0, stride)
        stride = p.emit(elementwise.mul, stride, p.arithmetic(elementwise.max_, p.size(operand, d), 1))
    zero = p.zero(position)
    linear = p.emit(movement.broadcast, zero, sizes=bounds, dimensions=()) if bounds else zero
    pitch = operand.array_shape.size
    for d, n in enumerate(operand.array_shape.dimensions):  # from the number to where it lies between the padding
        pitch //= max(n, 1)
        factors = [strides[d], p.arithmetic(elementwise.max_, p.size(operand, d), 1), p.constant(pitch)]
        divisor, size, padded_stride = [
            p.emit(movement.broadcast, v, sizes=bounds, dimensions=()) if bounds else v for v in factors
        ]
        index = p.emit(elementwise.rem, p.emit(elementwise.div, position, divisor), size)
        linear = p.emit(elementwise.add, linear, p.emit(elementwise.mul, index, padded_stride))
    flat = p.emit(movement.reshape, operand, sizes=(operand.array_shape.size,))
    gather = indexing.Gather(
        offset_dims=(), collapsed_slice_dims=(0,), start_index_map=(0,), index_vector_dim=len(bounds), slice_sizes=(1,)
    )
    result = p.emit(indexing.gather, flat, linear, **gather._asdict())
    return p.with_sizes(result, sizes)


def _row_major_positions(p: _DynamicPadder, shape: Shape, sizes: Sequence[Size]) -> Instruction:
    """The row-major position of each element among the real elements."""
    shape_s32 = shape.with_type(np.int32)
    position = p.constant(0)
    if not shape.rank:
        return position
    position = p.emit(movement.broadcast, position, sizes=shape.dimensions, dimensions=())
    for d, size in enumerate(sizes):
        length = p.constant(shape.dimensions[d]) if size is None else size
        length_everywhere = p.emit(movement.broadcast, length, sizes=shape.dimensions, dimensions=())
        index = p.emit(movement.iota, shape=shape_s32, iota_dimension=d)
        position = p.emit(elementwise.add, p.emit(elementwise.mul, position, length_everywhere), index)
    return position


def _while(p: _DynamicPadder, x: Instruction, operands: Operands) -> Instruction:
    condition, body = pad_dynamic_dimensions(x.attributes.condition), pad_dynamic_dimensions(x.attributes.body)
    sizes = [p.size(operands[k], d) for k, d in body.parameters]
    computations = {"condition": condition.computation, "body": body.computation}
    result = p.emit(x.op, *operands, *sizes, **{**x.attributes._asdict(), **computations})
    return _with_results(p, result, len(operands), body.results)


def _conditional(p: _DynamicPadder, x: Instruction, operands: Operands) -> Instruction:
    index, *arguments = operands
    branches = [pad_dynamic_dimensions(branch) for branch in x.attributes.branch_computations]
    sizes = [p.size(arguments[k], d) for k, d in branches[0].parameters]
    result = p.emit(x.op, index, *arguments, *sizes, branch_computations=tuple(b.computation for b in branches))
    return _with_results(p, result, len(x.attributes.branch_computations[0].outputs), branches[0].results)


def _with_results(
    p: _DynamicPadder, result: Instruction, count: int, dynamic_results: Sequence[DimensionIndex]
) -> Instruction:
    """Record the additional results as sizes of the elements of a result."""
    for position, (k, d) in enumerate(dynamic_results):
        element = p.emit(calls.get_tuple_element, result, index=k)
        p.set_size(element, d, p.emit(calls.get_tuple_element, result, index=count + position))
    return result


_VISITS: dict[str, Callable[[_DynamicPadder, Instruction, Operands], Instruction]] = {
    "concatenate": _concatenate,
    "conditional": _conditional,
    "convolution": _convolution,
    "dot": _dot,
    "dynamic-reshape": _dynamic_reshape,
    "dynamic-update-slice": _update,
    "get-dimension-size": _get_size,
    "get-tuple-element": _element,
    "pad": _pad,
    "reduce": _reduce,
    "reduce-window": _reduce_window,
    "reverse": _reverse,
    "scatter": _scatter,
    "set-dimension-size": _set_size,
    "slice": _slice,
    "sort": _sort,
    "topk": _topk,
    "while": _while,
}
