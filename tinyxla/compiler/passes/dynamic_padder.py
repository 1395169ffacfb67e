"""From dynamic dimensions to static ones: arrays get the sizes of their bounds, and their real sizes become scalars of
the program. Both backends run what comes out.

Every instruction is rewritten with the bounds; next to it stands, for each dynamic dimension, the s32 scalar that is
its size. Ops that would let padding through to their results see it replaced first: by the neutral element of a
reduction, zeros in a product, what sorts last in a sort. Parameters and results get their sizes as further parameters
and results.

`tinyxla.ops.dynamic_sizes` says which dimensions are dynamic.
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
from tinyxla.ops import calls, contraction, dynamic_slices, elementwise, indexing, movement, ops, reduction
from tinyxla.ops.dynamic_sizes import RULES, flags, static
from tinyxla.shapes import AnyShape, Shape, TupleShape, element_type

S32 = element_type("s32")
Size = Instruction | None  # None: as the shape says
Place = tuple[int, int]  # the number of a parameter or result, and of its dimension


@dataclass(frozen=True)
class StaticProgram:
    """`computation` takes the sizes at `parameters` after its own parameters, and gives those at `results` after its
    own results (all in one tuple)."""

    computation: Computation
    parameters: list[Place]
    results: list[Place]


def make_static(computation: Computation) -> StaticProgram:
    """The same program with static shapes."""
    return _Static(inline_calls(expand(computation))).program()


class _Static:
    def __init__(self, computation: Computation) -> None:
        self.source = computation
        self.rewriter = Rewriter()
        self.sizes: dict[Instruction, tuple[Size, ...]] = {}  # of the new instructions that have any

    def program(self) -> StaticProgram:
        source = self.source
        parameters = [self._parameter(k, static(p.shape)) for k, p in enumerate(source.parameters)]
        places = _places([p.shape for p in source.parameters])
        for k, d in places:
            size = self._parameter(len(parameters), Shape(S32))
            parameters.append(size)
            self.set_size(parameters[k], d, size)
        new = dict(zip(source.parameters, parameters, strict=False))
        for x in source.instructions:
            if x not in new:
                new[x] = self.visit(x, tuple(new[o] for o in x.operands))
        outputs = [new[x] for x in source.outputs]
        found = _places([x.shape for x in source.outputs])
        sizes = [self.size(outputs[k], d) for k, d in found]
        if isinstance(source.root.shape, TupleShape) or sizes:
            root = self.emit(calls.tuple_, *outputs, *sizes)
        else:
            (root,) = outputs
        made = Computation(source.name, parameters, self.rewriter.instructions, root)
        return StaticProgram(made, places, found)

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
        """x, with these sizes noted; those of a tuple are handed on to its elements."""
        if any(size is not None for size in sizes):
            self.sizes[x] = tuple(sizes)
        return x

    def inside(self, x: Instruction, dimensions: Sequence[int]) -> Instruction | None:
        """Which elements are none of the padding of these dimensions; None if all are."""
        found: Instruction | None = None
        for d in dimensions:
            size = self.sizes_of(x)[d]
            if size is not None:
                index = self.emit(movement.iota, shape=x.array_shape.with_type(np.int32), iota_dimension=d)
                limit = self.emit(movement.broadcast, size, sizes=x.array_shape.dimensions, dimensions=())
                hit = self.emit(elementwise.compare, index, limit, direction="LT", type="SIGNED")
                found = hit if found is None else self.emit(elementwise.and_, found, hit)
        return found

    def masked(self, x: Instruction, fill: Instruction, dimensions: Sequence[int] | None = None) -> Instruction:
        """x with its padding replaced by a scalar."""
        inside = self.inside(x, range(x.array_shape.rank) if dimensions is None else dimensions)
        if inside is None:
            return x
        filling = self.emit(movement.broadcast, fill, sizes=x.array_shape.dimensions, dimensions=())
        return self.with_sizes(self.emit(elementwise.select, inside, x, filling), self.sizes_of(x))

    def zero(self, x: Instruction) -> Instruction:
        return self.constant(0, x.array_shape.dtype)

    # --- instructions

    def visit(self, x: Instruction, operands: tuple[Instruction, ...]) -> Instruction:
        if x.op.name in _VISITS:
            return _VISITS[x.op.name](self, x, operands)
        made = self.emit(x.op, *operands, **x.attributes._asdict())
        return self.with_sizes(made, self.carried(x, operands)) if x.op.name in RULES else made

    def carried(self, x: Instruction, operands: Sequence[Instruction]) -> Sequence[Size]:
        """The sizes of the result's dimensions, as far as they are those of the operands' dimensions."""
        shapes = [o.array_shape for o in operands]
        sizes = [self.sizes_of(o) for o in operands]
        return RULES[x.op.name](sizes, shapes, static(x.shape), x.attributes._asdict())

    def arithmetic(self, op: Any, left: Instruction, right: Instruction | int) -> Instruction:
        return self.emit(op, left, self.constant(right) if isinstance(right, int) else right)


def _places(shapes: Sequence[AnyShape]) -> list[Place]:
    return [(k, d) for k, s in enumerate(shapes) if isinstance(s, Shape) for d, f in enumerate(flags(s)) if f]


Operands = tuple[Instruction, ...]


def _get_size(p: _Static, x: Instruction, operands: Operands) -> Instruction:
    return p.size(operands[0], x.attributes.dimensions[0])


def _set_size(p: _Static, x: Instruction, operands: Operands) -> Instruction:
    """Beyond 0 and the bound there is nothing: the size is moved between them."""
    operand, size = operands
    (d,) = x.attributes.dimensions
    inside = p.emit(elementwise.clamp, p.constant(0), size, p.constant(operand.array_shape.dimensions[d]))
    copy = ops["copy"]
    same = Instruction(copy, [operand], copy.attributes(), operand.shape)  # not shared: others have other sizes
    p.rewriter.instructions.append(same)
    sizes = list(p.sizes_of(operand))
    sizes[d] = inside
    return p.with_sizes(same, sizes)


def _reduce(p: _Static, x: Instruction, operands: Operands) -> Instruction:
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
    made = p.emit(x.op, *arrays, *initial, **x.attributes._asdict())
    return p.with_sizes(made, p.carried(x, operands))


def _element(p: _Static, x: Instruction, operands: Operands) -> Instruction:
    (whole,) = operands
    if whole.op is calls.tuple_:
        return whole.operands[x.attributes.index]
    made = p.emit(x.op, whole, **x.attributes._asdict())
    return p.with_sizes(made, p.sizes.get(whole, ()))


def _dot(p: _Static, x: Instruction, operands: Operands) -> Instruction:
    dims: contraction.Dot = x.attributes
    sides = [p.masked(o, p.zero(o), dims.contracting(side)) for side, o in enumerate(operands)]
    made = p.emit(x.op, *sides, **dims._asdict())
    return p.with_sizes(made, p.carried(x, operands))


def _concatenate(p: _Static, x: Instruction, operands: Operands) -> Instruction:
    """Each where the one before really ends: what it has too much is overwritten by the next."""
    d = x.attributes.dimension
    made = p.emit(x.op, *operands, **x.attributes._asdict())
    sizes = p.carried(x, operands)
    if all(p.sizes_of(o)[d] is None for o in operands):
        return p.with_sizes(made, sizes)
    zero = p.constant(0)
    total = zero
    for operand in operands:
        starts = [total if k == d else zero for k in range(made.array_shape.rank)]
        made = p.emit(dynamic_slices.dynamic_update_slice, made, operand, *starts)
        total = p.emit(elementwise.add, total, p.size(operand, d))
    return p.with_sizes(made, [total if k == d else s for k, s in enumerate(sizes)])


def _slice(p: _Static, x: Instruction, operands: Operands) -> Instruction:
    """As much of the slice as there is."""
    made = p.emit(x.op, *operands, **x.attributes._asdict())
    sizes = list(p.sizes_of(operands[0]))
    for d, size in enumerate(sizes):
        if size is not None:
            start, limit, stride = (values[d] for values in x.attributes)
            end = p.arithmetic(elementwise.min_, size, limit)
            length = p.arithmetic(elementwise.max_, p.arithmetic(elementwise.sub, end, start), 0)
            sizes[d] = p.arithmetic(elementwise.div, p.arithmetic(elementwise.add, length, stride - 1), stride)
    return p.with_sizes(made, sizes)


def _pad(p: _Static, x: Instruction, operands: Operands) -> Instruction:
    """What stands beyond the real end is replaced by the padding value first, so the edge may begin there."""
    operand, value = operands
    made = p.emit(x.op, p.masked(operand, value), value, **x.attributes._asdict())
    sizes = list(p.sizes_of(operand))
    for d, (size, (low, high, interior)) in enumerate(zip(sizes, x.attributes.padding_config, strict=True)):
        if size is not None:
            holes = p.arithmetic(elementwise.max_, p.arithmetic(elementwise.sub, size, 1), 0)
            length = p.emit(elementwise.add, size, p.arithmetic(elementwise.mul, holes, interior))
            sizes[d] = p.arithmetic(elementwise.max_, p.arithmetic(elementwise.add, length, low + high), 0)
    return p.with_sizes(made, sizes)


def _reverse(p: _Static, x: Instruction, operands: Operands) -> Instruction:
    """The padding comes first then: it is cut off, and as much put behind."""
    (operand,) = operands
    made = p.emit(x.op, operand, **x.attributes._asdict())
    rank, zero = made.array_shape.rank, p.constant(0)
    for d in x.attributes.dimensions:
        size = p.sizes_of(operand)[d]
        if size is not None:
            sizes = made.array_shape.dimensions
            twice = p.emit(movement.concatenate, made, made, dimension=d)
            first = p.emit(elementwise.sub, p.constant(sizes[d]), size)
            starts = [first if k == d else zero for k in range(rank)]
            made = p.emit(dynamic_slices.dynamic_slice, twice, *starts, dynamic_slice_sizes=sizes)
    return p.with_sizes(made, p.sizes_of(operand))


def _update(p: _Static, x: Instruction, operands: Operands) -> Instruction:
    """The padding of an update changes nothing."""
    operand, update, *starts = operands
    inside = p.inside(update, range(update.array_shape.rank))
    if inside is not None:
        old = p.emit(dynamic_slices.dynamic_slice, operand, *starts, dynamic_slice_sizes=update.array_shape.dimensions)
        update = p.emit(elementwise.select, inside, update, old)
    return p.with_sizes(p.emit(x.op, operand, update, *starts), p.sizes_of(operand))


def _sort(p: _Static, x: Instruction, operands: Operands) -> Instruction:
    """Padding comes after everything: whether an element is real is sorted along."""
    (d,) = x.attributes.dimensions
    inside = p.inside(operands[0], [d])
    if inside is None:
        made = p.emit(x.op, *operands, **x.attributes._asdict())
        return p.with_sizes(made, p.sizes_of(operands[0]))
    attributes = {**x.attributes._asdict(), "to_apply": _real_first(x.attributes.to_apply)}
    made = p.emit(x.op, *operands, inside, **attributes)
    parts = [p.emit(calls.get_tuple_element, made, index=k) for k in range(len(operands))]
    for part in parts:
        p.with_sizes(part, p.sizes_of(operands[0]))
    return p.emit(calls.tuple_, *parts) if isinstance(x.shape, TupleShape) else parts[0]


def _real_first(comparator: Computation) -> Computation:
    """A comparator of the same pairs and one more of preds: what is true comes first."""
    rewriter = Rewriter()
    shapes = [*comparator.parameter_shapes, *[Shape(element_type("pred"))] * 2]
    parameters = [rewriter.emit(movement.parameter, parameter_number=k, shape=s) for k, s in enumerate(shapes)]
    *own, left, right = parameters
    before = rewriter.splice(comparator, own, lambda rewriter, x, operands: None)
    both = rewriter.emit(
        elementwise.and_, left, rewriter.emit(elementwise.or_, before, rewriter.emit(elementwise.not_, right))
    )
    return Computation(comparator.name, parameters, rewriter.instructions, both)


def _reduce_window(p: _Static, x: Instruction, operands: Operands) -> Instruction:
    count = len(operands) // 2
    arrays = [p.masked(o, start) for o, start in zip(operands[:count], operands[count:], strict=True)]
    made = p.emit(x.op, *arrays, *operands[count:], **x.attributes._asdict())
    sizes = [_positions(p, s, w) for s, w in zip(p.sizes_of(operands[0]), x.attributes.window, strict=True)]
    return p.with_sizes(made, sizes)


def _positions(p: _Static, size: Size, window: Any) -> Size:
    """How many places a window has on so many elements."""
    if size is None:
        return None
    base = p.arithmetic(elementwise.mul, p.arithmetic(elementwise.sub, size, 1), window.base_dilation)
    base = p.arithmetic(elementwise.max_, p.arithmetic(elementwise.add, base, 1), 0)
    extent = (window.size - 1) * window.window_dilation + 1
    room = p.arithmetic(elementwise.add, base, window.padding_low + window.padding_high - extent + window.stride)
    return p.arithmetic(elementwise.div, p.arithmetic(elementwise.max_, room, 0), window.stride)


def _convolution(p: _Static, x: Instruction, operands: Operands) -> Instruction:
    lhs, rhs = operands
    labels, window = x.attributes.dim_labels, x.attributes.window
    made = p.emit(x.op, p.masked(lhs, p.zero(lhs)), p.masked(rhs, p.zero(rhs)), **x.attributes._asdict())
    sizes = list(p.carried(x, operands))
    for o, w in zip(labels.out_spec[2:], window, strict=True):
        sizes[o] = _positions(p, sizes[o], w)
    return p.with_sizes(made, sizes)


def _scatter(p: _Static, x: Instruction, operands: Operands) -> Instruction:
    """Indices that are padding point outside, where updates are left out."""
    count = len(operands) // 2
    arrays, indices, updates = operands[:count], operands[count], operands[count + 1 :]
    outside = p.constant(-1, indices.array_shape.dtype)
    if indices.array_shape.element_type.kind == "unsigned":
        outside = p.constant(np.iinfo(indices.array_shape.dtype).max, indices.array_shape.dtype)
    made = p.emit(x.op, *arrays, p.masked(indices, outside), *updates, **x.attributes._asdict())
    return p.with_sizes(made, p.sizes_of(arrays[0]))


def _topk(p: _Static, x: Instruction, operands: Operands) -> Instruction:
    """Padding counts as what comes last; it stands behind its equals."""
    (operand,) = operands
    last = reduction.identity_element("maximum" if x.attributes.largest else "minimum", operand.array_shape.dtype)
    filled = p.masked(operand, p.constant(last, operand.array_shape.dtype), [operand.array_shape.rank - 1])
    made = p.emit(x.op, filled, **x.attributes._asdict())
    return p.with_sizes(made, p.carried(x, operands))


def _dynamic_reshape(p: _Static, x: Instruction, operands: Operands) -> Instruction:
    """Each element by its number among the real ones."""
    operand, *given = operands
    bounds, dynamic = x.attributes
    limits = zip(given, bounds, dynamic, strict=True)
    sizes = [p.emit(elementwise.clamp, p.constant(0), s, p.constant(n)) if f else None for s, n, f in limits]
    result = operand.array_shape.with_dimensions(bounds)
    number = _numbers(p, result, sizes)
    strides: list[Instruction] = []
    stride = p.constant(1)
    for d in reversed(range(operand.array_shape.rank)):
        strides.insert(0, stride)
        stride = p.emit(elementwise.mul, stride, p.arithmetic(elementwise.max_, p.size(operand, d), 1))
    place = p.zero(number)
    linear = p.emit(movement.broadcast, place, sizes=bounds, dimensions=()) if bounds else place
    pitch = operand.array_shape.size
    for d, n in enumerate(operand.array_shape.dimensions):  # from the number to where it lies between the padding
        pitch //= max(n, 1)
        by = [strides[d], p.arithmetic(elementwise.max_, p.size(operand, d), 1), p.constant(pitch)]
        step, size, width = [p.emit(movement.broadcast, v, sizes=bounds, dimensions=()) if bounds else v for v in by]
        index = p.emit(elementwise.rem, p.emit(elementwise.div, number, step), size)
        linear = p.emit(elementwise.add, linear, p.emit(elementwise.mul, index, width))
    flat = p.emit(movement.reshape, operand, sizes=(operand.array_shape.size,))
    taken = indexing.Gather(
        offset_dims=(), collapsed_slice_dims=(0,), start_index_map=(0,), index_vector_dim=len(bounds), slice_sizes=(1,)
    )
    made = p.emit(indexing.gather, flat, linear, **taken._asdict())
    return p.with_sizes(made, sizes)


def _numbers(p: _Static, shape: Shape, sizes: Sequence[Size]) -> Instruction:
    """For each element its number in row-major order among those that are not padding."""
    kind = shape.with_type(np.int32)
    total = p.constant(0)
    if not shape.rank:
        return total
    total = p.emit(movement.broadcast, total, sizes=shape.dimensions, dimensions=())
    for d, size in enumerate(sizes):
        length = p.constant(shape.dimensions[d]) if size is None else size
        wide = p.emit(movement.broadcast, length, sizes=shape.dimensions, dimensions=())
        index = p.emit(movement.iota, shape=kind, iota_dimension=d)
        total = p.emit(elementwise.add, p.emit(elementwise.mul, total, wide), index)
    return total


def _while(p: _Static, x: Instruction, operands: Operands) -> Instruction:
    condition, body = make_static(x.attributes.condition), make_static(x.attributes.body)
    sizes = [p.size(operands[k], d) for k, d in body.parameters]
    computations = {"condition": condition.computation, "body": body.computation}
    made = p.emit(x.op, *operands, *sizes, **{**x.attributes._asdict(), **computations})
    return _with_results(p, made, len(operands), body.results)


def _conditional(p: _Static, x: Instruction, operands: Operands) -> Instruction:
    index, *given = operands
    branches = [make_static(branch) for branch in x.attributes.branch_computations]
    sizes = [p.size(given[k], d) for k, d in branches[0].parameters]
    made = p.emit(x.op, index, *given, *sizes, branch_computations=tuple(b.computation for b in branches))
    return _with_results(p, made, len(x.attributes.branch_computations[0].outputs), branches[0].results)


def _with_results(p: _Static, made: Instruction, count: int, places: Sequence[Place]) -> Instruction:
    """Note for the elements of a result which of those behind are their sizes."""
    for number, (k, d) in enumerate(places):
        element = p.emit(calls.get_tuple_element, made, index=k)
        p.set_size(element, d, p.emit(calls.get_tuple_element, made, index=count + number))
    return made


_VISITS: dict[str, Callable[[_Static, Instruction, Operands], Instruction]] = {
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
