"""Emission of fused instructions into a loop nest, element by element: the producers of an element are emitted at its
point of use.

The value of an instruction at a multi-index is computed from its operands' values at theirs (`Lowering.value`); data
movement is arithmetic on the index. A coordinate is an int or an `s64` value. `pointwise`, `row_reduction`,
`outer_reduction` and `reductions` emit the loops around.
"""

from __future__ import annotations

import functools
import math
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from tinyxla.compiler.analysis.access_maps import slices_of_one_array
from tinyxla.compiler.costs import ACCUMULATORS, LONG_ROW, MAX_UNROLLED
from tinyxla.compiler.fusion.plan import Plan, is_leaf
from tinyxla.hlo import Computation, Instruction
from tinyxla.loopir.ir.loop_ir import (
    INDEX,
    Buffer,
    Builder,
    Index,
    Kernel,
    Literal,
    Loop,
    Operand,
    Value,
    operand_of,
    storage_type,
)
from tinyxla.loopir.ir.schedule import Directive
from tinyxla.loopir.lower import storage_types
from tinyxla.ops import calls, elementwise, indexing, reduction
from tinyxla.ops.numerics.accuracy import working_type
from tinyxla.shapes import ElementType, Shape, element_type
from tinyxla.shapes.reshape import split_dimensions

_REASSOCIABLE = ("add", "multiply")
ROW_UNROLL_COUNTS = (8, 6, 5, 7, 4, 3, 4)  # of short rows, how many are unrolled in one pass over their accumulators
MAX_RECURSION_DEPTH = 50  # nested elements; operands of deeper ones are computed first


@dataclass(eq=False)
class Temporary:
    """Memory for partial results of a reduction."""

    shape: Shape


Storage = Instruction | Temporary


@dataclass
class LoweredKernel:
    """A kernel with its arguments, the range `extent` of its outermost index, and the `grain` of the chunks in which
    it runs. `parameters` are the values of the kernel's run-time parameters. A kernel that `is_builtin` belongs to
    the library and is the same for all programs. Chunks that wait for others set `starts_in_order`. `work` counts
    simple operations; 0 if unknown. `directives` are those of its schedule that the loops do not show, see
    `ir.schedule`."""

    kernel: Kernel
    arguments: list[Storage]
    extent: int
    grain: int
    roots: list[Instruction]
    parameters: tuple[int, ...] = ()
    is_builtin: bool = False
    starts_in_order: bool = False
    work: int = 0
    directives: tuple[Directive, ...] = ()


Coordinates = tuple[Index, ...]
MemoryLookup = Callable[[Coordinates], tuple[Buffer, Index] | None]
Users = dict[Instruction, list[Instruction]]


class Lowering:
    """Emits one kernel; `own` are the roots that the kernel computes."""

    def __init__(self, name: str, plan: Plan, own: Iterable[Instruction] = ()) -> None:
        self.builder = Builder(name)
        self.accesses = plan.accesses
        self.live_out = plan.live_out
        self.arguments: list[Storage] = []
        self.directives: list[Directive] = []
        self._buffers: dict[Storage, Buffer] = {}
        self._memory: dict[Instruction, MemoryLookup] = {}
        self._reductions: dict[Instruction, Operand] = {}  # results of the current row
        self._own_roots = set(own)  # roots that are not in memory yet
        self.index_terms: dict[str, tuple[Index, Index]] = {}  # index = start of the tile + position in it
        self._linear_forms: dict[Any, Index] = {}  # indices by their strides and coordinates
        self._values: list[dict[Any, Operand]] = [{}]
        self._tuple_values: list[dict[Any, list[Operand]]] = [{}]
        self._depth = 0  # recursion of `value`

    def note(self, name: str, *arguments: object) -> None:
        """Note a directive of the schedule (`ir.schedule`)."""
        self.directives.append(Directive(name, tuple(map(str, arguments))))

    # --- memory

    def buffer(self, x: Storage, written: bool = False, type: str = "") -> Buffer:
        """The argument of an array. `type` reinterprets the elements as another type of as many bits."""
        buffer = self._buffers.get(x)
        if buffer is None:
            shape = x.shape if isinstance(x, Temporary) else x.array_shape
            buffer = self._buffers[x] = self.builder.argument(type or shape.element_type.name, written)
            self.arguments.append(x)
        return buffer

    def linearize(self, sizes: Sequence[int], coordinates: Sequence[Index]) -> Index:
        """The row-major offset of an element."""
        b = self.builder
        offset: Index = 0
        stride = 1
        for k in range(len(sizes) - 1):
            index = self._linear_forms.get(_linear_form(sizes[k:], coordinates[k:]))
            if index is not None:
                offset, stride = index, math.prod(sizes[k:])
                sizes, coordinates = sizes[:k], coordinates[:k]
                break
        for size, c in zip(reversed(sizes), reversed(coordinates), strict=True):
            if size != 1:
                offset = b.add(b.mul(c, stride), offset)
            stride *= size
        return offset

    def load(self, x: Storage, coordinates: Sequence[Index]) -> Operand:
        shape = x.shape if isinstance(x, Temporary) else x.array_shape
        return self.builder.load(self.buffer(x), self.linearize(shape.dimensions, coordinates))

    def store(self, x: Storage, coordinates: Sequence[Index], value: Operand) -> None:
        """Store an element; not emitted for an instruction that is not live-out."""
        if isinstance(x, Instruction) and x not in self.live_out:
            return
        shape = x.shape if isinstance(x, Temporary) else x.array_shape
        self.builder.store(self.buffer(x, True), self.linearize(shape.dimensions, coordinates), value)

    # --- loops

    @contextmanager
    def loop(
        self, start: Index, stop: Index, carried: Sequence[Operand] = (), sequential: bool = False
    ) -> Generator[tuple[Index, Loop]]:
        """Open a loop. The statements of a single iteration become statements of the loop around it."""
        is_single = isinstance(start, int) and stop == start + 1 and not carried
        if is_single and self.builder.is_in_loop:
            with self.scope():
                yield start, Loop(Value(INDEX, ""), start, stop, [], [])
            return
        with self.scope(), self.builder.loop(start, stop, carried, sequential) as opened:
            yield opened

    @contextmanager
    def scope(self) -> Generator[None]:
        """A scope of known values: values bound within are dropped at its end."""
        self._values.append({})
        self._tuple_values.append({})
        yield
        self._tuple_values.pop()
        self._values.pop()

    def nest(
        self,
        bounds: Sequence[tuple[Index, Index]],
        carried: Sequence[Operand],
        body: Callable[[Coordinates, list[Operand]], Sequence[Operand]],
        sequential: bool = False,
        force_vectorize: bool = False,
    ) -> list[Operand]:
        """A nest of loops; `body(indices, carried)` returns the carried values of the next iteration."""
        if not bounds:
            return list(body((), list(carried)))
        (start, stop), *inner_bounds = bounds
        with self.loop(start, stop, carried, sequential) as (index, loop):
            loop.force_vectorize = force_vectorize
            arguments: list[Operand] = [c.arg for c in loop.carried]

            def inner_body(inner: Coordinates, values: list[Operand]) -> Sequence[Operand]:
                return body((index, *inner), values)

            next_values = self.nest(inner_bounds, arguments, inner_body, sequential, force_vectorize)
            for carry, value in zip(loop.carried, next_values, strict=True):
                carry.next = value
        return [c.result for c in loop.carried]

    def nest_unrolled(
        self,
        bounds: Sequence[tuple[Index, Index]],
        counts: Sequence[int],
        body: Callable[[Sequence[Coordinates]], None],
    ) -> None:
        """A nest of loops whose innermost loop is unrolled: `body` gets several indices at once. The unroll count is
        the first of `counts` that leaves no remainder, otherwise the last; then `body` gets the remaining indices
        one by one."""
        if not bounds:
            return body([()])
        b = self.builder
        *outer, (start, stop) = bounds
        size = b.sub(stop, start)
        count = next((k for k in counts if isinstance(size, int) and size % k == 0), counts[-1])

        def inner(indices: Coordinates, carried: list[Operand]) -> list[Operand]:
            remainder = start
            if count > 1:
                blocks = b.floordiv(size, count)
                with self.loop(0, blocks, sequential=True) as (k, _):
                    start_index = b.add(start, b.mul(k, count))
                    body([(*indices, b.add(start_index, offset)) for offset in range(count)])
                remainder = b.add(start, b.mul(blocks, count))
            if remainder != stop:
                with self.loop(remainder, stop, sequential=True) as (k, _):
                    body([(*indices, k)])
            return carried

        self.nest(outer, (), inner, sequential=True)

    def nest_with_accumulators(
        self,
        bounds: Sequence[tuple[Index, Index]],
        initial: Sequence[Operand],
        identity: Sequence[Operand],
        body: Callable[[Coordinates, list[Operand]], Sequence[Operand]],
        combine: Callable[[Sequence[Operand], Sequence[Operand]], Sequence[Operand]],
    ) -> list[Operand]:
        """A nest for a commutative reduction with explicit vectors: `ACCUMULATORS` elements of a row, or all of a
        short row, have accumulators of their own in scratch, which are combined by pairwise halving in the end."""
        b = self.builder
        *outer, (start, stop) = bounds
        size = stop - start if isinstance(start, int) and isinstance(stop, int) else LONG_ROW
        width = size if size < LONG_ROW else ACCUMULATORS
        accumulators = [b.scratch(x.type, width) for x in initial]

        def update(k: Index, change: Callable[[list[Operand]], Sequence[Operand]]) -> None:
            values = change([b.load(accumulator, k) for accumulator in accumulators])
            for accumulator, value in zip(accumulators, values, strict=True):
                b.store(accumulator, k, value)

        def tile(outer_indices: Sequence[Coordinates], tile_start: Index, count: Index) -> None:
            with self.loop(0, count) as (k, loop):
                loop.force_vectorize = True
                index = b.add(tile_start, k)
                if isinstance(index, Value):
                    self.index_terms[index.name] = (tile_start, k)

                def body_at(values: list[Operand]) -> Sequence[Operand]:
                    for outer_index in outer_indices:
                        values = list(body((*outer_index, index), values))
                    return values

                update(k, body_at)

        def tiles(outer_indices: Sequence[Coordinates]) -> None:
            count = b.sub(stop, start)
            tile_count = b.floordiv(count, width)
            with self.loop(0, tile_count) as (t, _):
                tile(outer_indices, b.add(start, b.mul(t, width)), width)
            remainder = b.remainder(count, width)
            if remainder != 0:
                tile(outer_indices, b.add(start, b.mul(tile_count, width)), remainder)

        with self.loop(0, width) as (k, _):
            update(k, lambda _: identity)
        # A short row does not fill vectors, and masked stores are slow to forward to loads.
        self.nest_unrolled(outer, [1] if width == ACCUMULATORS else ROW_UNROLL_COUNTS, tiles)
        halvings = (ACCUMULATORS // MAX_UNROLLED).bit_length() - 1 if width == ACCUMULATORS else 0
        with self.loop(0, halvings, [Literal(INDEX, ACCUMULATORS)], True) as (_, halving):
            half = b.floordiv(halving.carried[0].arg, 2)
            halving.carried[0].next = operand_of(half)
            with self.loop(0, half) as (k, _):
                partner = b.add(k, half)
                update(k, lambda values: combine(values, [b.load(x, partner) for x in accumulators]))
        return self.nest(
            [(0, MAX_UNROLLED if halvings else width)],
            initial,
            lambda indices, values: combine(values, [b.load(x, indices[0]) for x in accumulators]),
            sequential=halvings > 0,
        )

    def split_index(self, index: Index, sizes: Sequence[int]) -> Coordinates:
        """The multi-index of a row-major index."""
        if math.prod(sizes):
            self.builder.assume_range(index, 0, math.prod(sizes) - 1)
        coordinates = tuple(self.builder.delinearize(index, *sizes[1:])) if sizes else ()
        form = _linear_form(sizes, coordinates)
        if len(form) > 1:
            self._linear_forms[form] = index
        return coordinates

    # --- values

    def in_memory(self, x: Instruction) -> bool:
        """True if elements are loaded from an argument or are constants."""
        return (x in self.accesses.materialized and x not in self._own_roots) or is_leaf(x)

    def mark_materialized(self, roots: Iterable[Instruction]) -> None:
        """Record that roots of this kernel are in memory for the current row."""
        self._own_roots.difference_update(roots)

    def bind_memory(self, x: Instruction, where: MemoryLookup) -> None:
        """Bind x to memory of this kernel: `where(coordinates)` gives the buffer and index, or None if the element
        is not there."""
        self._memory[x] = where

    def has_memory(self, x: Instruction) -> bool:
        return x in self._memory

    def bind_reduction(self, x: Instruction, coordinates: Coordinates, value: Operand) -> None:
        """Bind the result of a reduction for all following uses, and store it."""
        self._reductions[x] = value
        self.store(x, coordinates, value)

    def emit_root(self, x: Instruction, coordinates: Coordinates) -> None:
        """Compute, bind and store an element of a root."""
        value = self.compute(x, coordinates)
        self.bind_value(x, coordinates, value)
        self.store(x, coordinates, value)

    def bind_value(self, x: Instruction, coordinates: Coordinates, value: Operand) -> None:
        """Bind the element of x to a value in the innermost scope."""
        self._values[-1][x, *map(_name, coordinates)] = value

    def value(self, x: Instruction, coordinates: Coordinates) -> Operand:
        """The element of x at these coordinates."""
        result = self._lookup(x, coordinates)
        if result is None:
            self._depth += 1
            if self._depth > MAX_RECURSION_DEPTH and self._is_scalar(x):  # avoid Python's recursion limit
                for operand in self._scalar_producers(x, coordinates):
                    self.value(operand, coordinates)
            result = self._load_or_compute(x, coordinates)
            self._depth -= 1
            self.bind_value(x, coordinates, result)
        return result

    def _lookup(self, x: Instruction, coordinates: Coordinates) -> Operand | None:
        if x in self._reductions:
            return self._reductions[x]
        key = (x, *map(_name, coordinates))
        for values in reversed(self._values):
            if key in values:
                return values[key]
        return None

    def _scalar_producers(self, x: Instruction, coordinates: Coordinates) -> list[Instruction]:
        """The unbound producers that are evaluated at the same coordinates, in post-order."""
        order: list[Instruction] = []
        visited: set[Instruction] = set()
        stack = [(x, iter(x.operands))]
        while stack:
            operands = stack[-1][1]
            for o in operands:
                if o not in visited and self._is_scalar(o) and self._lookup(o, coordinates) is None:
                    visited.add(o)
                    stack.append((o, iter(o.operands)))
                    break
            else:
                order.append(stack.pop()[0])
        return order[:-1]

    def _is_scalar(self, x: Instruction) -> bool:
        """True if an element is computed from the operands' elements at the same coordinates."""
        is_read = x in self._memory or self.in_memory(x) or x.op is calls.get_tuple_element
        return not (is_read or x.op.name in _MOVEMENT or x.op.name in _MULTI_RESULT)

    def _load_or_compute(self, x: Instruction, coordinates: Coordinates) -> Operand:
        location = self._memory[x](coordinates) if x in self._memory else None
        if location is not None:
            return self.builder.load(*location)
        if self.in_memory(x):
            return self.load(x, coordinates)
        return self.compute(x, coordinates)

    def compute(self, x: Instruction, coordinates: Coordinates) -> Operand:
        """The element, computed from elements of the operands."""
        special = _MOVEMENT.get(x.op.name)
        if special is not None:
            return special(self, x, coordinates)
        if x.op is calls.get_tuple_element:
            return self.tuple_elements(x.operands[0], coordinates)[x.attributes.index]
        if x.op.name in _MULTI_RESULT:
            return self.tuple_elements(x, coordinates)[0]
        operands = [self.value(o, coordinates) for o in x.operands]
        if x.op is elementwise.convert:
            source, target = x.operands[0].array_shape.element_type, x.array_shape.element_type
            if storage_types.is_narrow(source) or storage_types.is_narrow(target):
                return storage_types.convert(self, operands[0], source, target)
        return self.scalar(x, operands)

    def scalar(self, x: Instruction, operands: Sequence[Operand], **extra: Any) -> Operand:
        """An elementwise op on elements, in a wider type if `result_accuracy` requires more than the default."""
        attributes = dict(x.attributes._asdict())
        type = x.array_shape.element_type
        computed_type = working_type(x.op.name, type, attributes.pop("result_accuracy", None))
        if computed_type is not type:
            converted = [self.builder.convert(computed_type.name, operand) for operand in operands]
            result = self.builder.compute(x.op.name, computed_type.name, *converted)
            return self.builder.convert(type.name, result)
        attributes.pop("new_element_type", None)
        if "type" in attributes:  # of `compare`
            attributes["compare_type"] = attributes.pop("type")
        return self.builder.compute(x.op.name, type.name, *operands, **attributes, **extra)

    def apply(self, computation: Computation, operands: Sequence[Operand]) -> list[Operand]:
        """A computation of scalars, such as the combiner of a reduction."""
        (first, *_) = computation.outputs
        if reduction.monoid(computation) in _REASSOCIABLE and first.array_shape.element_type.is_inexact:
            return [self.scalar(first, operands, reassociate=True)]
        with self.scope():
            for parameter, operand in zip(computation.parameters, operands, strict=True):
                self.bind_value(parameter, (), operand)
            for x in computation.instructions:  # evaluate scalars once, outside of the loops that read them
                if isinstance(x.shape, Shape) and not x.shape.rank:
                    self.value(x, ())
            return [self.value(x, ()) for x in computation.outputs]

    def tuple_elements(self, x: Instruction, coordinates: Coordinates) -> list[Operand]:
        """The elements of all results of a `reduce`, `while` or `conditional` within a scalar computation."""
        key = (x, "parts", *map(_name, coordinates))
        for values in reversed(self._tuple_values):
            if key in values:
                return values[key]
        elements = self._tuple_values[-1][key] = _MULTI_RESULT[x.op.name](self, x, coordinates)
        return elements

    def initial(self, x: Instruction) -> list[Operand]:
        """The initial values of a reduction."""
        count = len(x.operands) // 2
        return [self.value(o, ()) for o in x.operands[count:]]

    def identity(self, x: Instruction) -> list[Operand]:
        """The initial values of a partial reduction: the combiner's identity if there is one, since the reduction's
        initial value counts once, where partial results are combined."""
        op = reduction.monoid(x.attributes.to_apply)
        if op is None:
            return self.initial(x)
        return [identity_literal(op, x.operands[0].array_shape.element_type)]

    def accumulate(self, x: Instruction, carried: Sequence[Operand], coordinates: Coordinates) -> list[Operand]:
        """The carried values of a reduction after the element at these coordinates."""
        count = len(x.operands) // 2
        elements = [self.value(o, coordinates) for o in x.operands[:count]]
        return self.apply(x.attributes.to_apply, [*carried, *elements])


def identity_literal(op: str, type: ElementType) -> Literal:
    """The identity of a monoid."""
    value = np.asarray(reduction.identity_element(op, type.dtype)).astype(type.dtype)
    return Literal(type.name, value.item())


def zero(shape: Shape) -> Literal:
    """The scalar 0 of a shape's type."""
    type = element_type(storage_type(shape.element_type.name))
    return Literal(type.name, np.zeros((), type.dtype).item())


def _linear_form(sizes: Sequence[int], coordinates: Sequence[Index]) -> tuple[tuple[int, int | str], ...]:
    """The nonzero terms (stride, coordinate) of a row-major offset."""
    terms: list[tuple[int, int | str]] = []
    stride = 1
    for size, c in zip(reversed(sizes), reversed(coordinates), strict=True):
        if size != 1 and c != 0:
            terms.append((stride, _name(c)))
        stride *= size
    return tuple(terms)


def _name(index: Index) -> int | str:
    return index if isinstance(index, int) else index.name


# --- data movement: index arithmetic ----------------------------------------------------------------------------------


def _constant(low: Lowering, x: Instruction, coordinates: Coordinates) -> Operand:
    shape = x.array_shape
    return Literal(shape.element_type.name, x.attributes.literal.splat.item())


def _iota(low: Lowering, x: Instruction, coordinates: Coordinates) -> Operand:
    index, type = coordinates[x.attributes.iota_dimension], x.array_shape.element_type
    convert = low.builder.compute
    if type.is_integer and isinstance(index, Value) and index.name in low.index_terms:
        # Convert the terms rather than the sum, so that vectors hold no 64-bit integers.
        terms = [convert("convert", type.name, operand_of(term)) for term in low.index_terms[index.name]]
        return convert("add", type.name, *terms)
    return convert("convert", type.name, operand_of(index))


def _broadcast(low: Lowering, x: Instruction, coordinates: Coordinates) -> Operand:
    (operand,) = x.operands
    sizes = operand.array_shape.dimensions
    index = tuple(0 if sizes[k] == 1 else coordinates[d] for k, d in enumerate(x.attributes.dimensions))
    return low.value(operand, index)


def _transpose(low: Lowering, x: Instruction, coordinates: Coordinates) -> Operand:
    index: list[Index] = [0] * len(coordinates)
    for d, source_dim in enumerate(x.attributes.permutation):
        index[source_dim] = coordinates[d]
    return low.value(x.operands[0], tuple(index))


def _reverse(low: Lowering, x: Instruction, coordinates: Coordinates) -> Operand:
    index = list(coordinates)
    for d in x.attributes.dimensions:
        index[d] = low.builder.sub(x.array_shape.dimensions[d] - 1, index[d])
    return low.value(x.operands[0], tuple(index))


def _slice(low: Lowering, x: Instruction, coordinates: Coordinates) -> Operand:
    b = low.builder
    starts, _, strides = x.attributes
    index = [b.add(b.mul(c, stride), start) for c, start, stride in zip(coordinates, starts, strides, strict=True)]
    return low.value(x.operands[0], tuple(index))


def _reshape(low: Lowering, x: Instruction, coordinates: Coordinates) -> Operand:
    (operand,) = x.operands
    result, source = x.array_shape.dimensions, operand.array_shape.dimensions
    index: list[Index] = [0] * len(source)
    for source_dims, result_dims in split_dimensions(source, result):
        if len(source_dims) == 1 and len(result_dims) == 1:
            index[source_dims[0]] = coordinates[result_dims[0]]
            continue
        linear = low.linearize([result[d] for d in result_dims], [coordinates[d] for d in result_dims])
        if low.in_memory(operand):
            index[source_dims[-1]] = linear  # row-major memory accepts a last index beyond its size
            continue
        for d, c in zip(source_dims, low.split_index(linear, [source[d] for d in source_dims]), strict=True):
            index[d] = c
    return low.value(operand, tuple(index))


def _bounds_check(low: Lowering, index: Index, size: int) -> Operand | None:
    """The predicate 0 <= index < size; None if it holds by the known range."""
    minimum, maximum = low.builder.bounds(index) or (-1, size)
    if maximum < 0 or minimum >= size:
        return Literal("pred", False)
    result: Operand | None = None
    for is_certain, limit, direction in ((minimum >= 0, 0, "GE"), (maximum < size, size, "LT")):
        if not is_certain:
            check = low.builder.compare(direction, index, limit)
            result = check if result is None else low.builder.and_(result, check)
    return result


def clamp_index(low: Lowering, index: Index, size: int) -> Index:
    """An index clamped to [0, size)."""
    return low.builder.min(low.builder.max(index, 0), size - 1)


def _pad(low: Lowering, x: Instruction, coordinates: Coordinates) -> Operand:
    b = low.builder
    operand, padding = x.operands
    padding_value = low.value(padding, ())
    if operand.array_shape.size == 0:
        return padding_value
    checks: list[Operand] = []
    operand_index: list[Index] = []
    sizes = operand.array_shape.dimensions
    for c, size, padding_of_dim in zip(coordinates, sizes, x.attributes.padding_config, strict=True):
        low_padding, high_padding, interior = padding_of_dim
        if (low_padding, high_padding, interior) == (0, 0, 0):
            operand_index.append(c)
            continue
        index = b.sub(c, low_padding)
        if interior:
            # nonnegative first, since a remainder has the sign of the dividend
            step = interior + 1
            shifted = b.add(index, step * (-(-max(low_padding, 0) // step)))
            phase = b.remainder(shifted, step)
            checks.append(low.builder.compare("EQ", phase, 0))
            index = b.sub(b.floordiv(shifted, step), -(-max(low_padding, 0) // step))
        is_certain = low_padding <= 0 and high_padding <= 0 and not interior
        check = None if is_certain else _bounds_check(low, index, size)
        if check == Literal("pred", False):
            return padding_value
        if check is not None:
            checks.append(check)
            index = clamp_index(low, index, size)
        operand_index.append(index)
    element = low.value(operand, tuple(operand_index))
    if not checks:
        return element
    return b.select(functools.reduce(b.and_, checks), element, padding_value)


def _concatenate(low: Lowering, x: Instruction, coordinates: Coordinates) -> Operand:
    b = low.builder
    d = x.attributes.dimension
    index = coordinates[d]
    operands = [o for o in x.operands if o.array_shape.dimensions[d]] or list(x.operands[:1])
    starts = [0]
    for o in operands:
        starts.append(starts[-1] + o.array_shape.dimensions[d])
    minimum, maximum = b.bounds(index) or (0, starts[-1])
    candidates = range(bisect_right(starts[:-1], max(minimum, 0)) - 1, bisect_right(starts[:-1], maximum))
    local_index = {k: b.sub(index, starts[k]) for k in candidates}
    slices = slices_of_one_array([operands[k] for k in candidates], d)
    if slices is not None and not any(low.in_memory(operands[k]) for k in candidates):
        # A roll, for example: select the index rather than the element.
        source, slice_starts, other_starts = slices
        indices = [b.add(local_index[k], first) for k, first in zip(candidates, slice_starts, strict=True)]
        selected = _select_range(low, index, [starts[k + 1] for k in candidates], [operand_of(p) for p in indices])
        assert not isinstance(selected, Literal) or isinstance(selected.value, int)
        source_index = selected.value if isinstance(selected, Literal) else selected
        b.assume_range(source_index, 0, source.array_shape.dimensions[d] - 1)
        outer = [b.add(c, start) for c, start in zip(coordinates, other_starts, strict=True)]
        return low.value(source, (*outer[:d], source_index, *outer[d + 1 :]))
    elements: list[Operand] = []
    for k in candidates:
        index_in_operand = local_index[k]
        if len(candidates) > 1:
            index_in_operand = clamp_index(low, index_in_operand, operands[k].array_shape.dimensions[d])
        elements.append(low.value(operands[k], (*coordinates[:d], index_in_operand, *coordinates[d + 1 :])))
    return _select_range(low, index, [starts[k + 1] for k in candidates], elements)


def _select_range(low: Lowering, index: Index, ends: Sequence[int], values: Sequence[Operand]) -> Operand:
    """The value of the range that contains the index; `ends` are the ends of the ranges."""
    result = values[-1]
    for end, value in zip(reversed(ends[:-1]), reversed(values[:-1]), strict=True):
        result = low.builder.select(low.builder.compare("LT", index, end), value, result)
    return result


def start_index(low: Lowering, indices: Instruction, vector: Coordinates, last: int) -> Index:
    """An index that is read from an array, clamped to [0, last]."""
    if last == 0:
        return 0
    value = low.value(indices, vector)
    type = indices.array_shape.element_type
    if storage_types.is_narrow(type):
        value = storage_types.convert(low, value, type, element_type(INDEX))
    if isinstance(value, Literal):
        return min(max(value.value, 0), last)
    if value.type == "u64":  # large values would be negative as an index
        value = low.builder.compute("minimum", "u64", value, Literal("u64", last))
    if value.type == "s32" and last < 1 << 31:  # 32 bits, so that vectors hold twice as many
        value = low.builder.compute("maximum", "s32", value, Literal("s32", 0))
        value = low.builder.compute("minimum", "s32", value, Literal("s32", last))
        clamped = low.builder.convert(INDEX, value)
        low.builder.assume_range(clamped, 0, last)
        return clamped
    return clamp_index(low, low.builder.convert(INDEX, value), last + 1)


def _dynamic_slice(low: Lowering, x: Instruction, coordinates: Coordinates) -> Operand:
    operand, *starts = x.operands
    sizes = zip(operand.array_shape.dimensions, x.attributes.dynamic_slice_sizes, strict=True)
    first = [start_index(low, start, (), size - extent) for start, (size, extent) in zip(starts, sizes, strict=True)]
    return low.value(operand, tuple(low.builder.add(start, c) for start, c in zip(first, coordinates, strict=True)))


def _gather(low: Lowering, x: Instruction, coordinates: Coordinates) -> Operand:
    operand, indices = x.operands
    sizes = operand.array_shape.dimensions
    a: indexing.Gather = x.attributes
    if operand.array_shape.size == 0:
        return zero(operand.array_shape)
    batch, window_index = a.parted(coordinates)
    operand_index: list[Index] = [0] * len(sizes)
    for k, d in enumerate(a.start_index_map):
        vector = a.vector(batch, k, indices.array_shape.rank)
        operand_index[d] = start_index(low, indices, vector, sizes[d] - a.slice_sizes[d])
    for d, c in a.pairs():
        operand_index[d] = batch[c]
    for d, c in zip(a.window(len(sizes)), window_index, strict=True):
        operand_index[d] = low.builder.add(operand_index[d], c)
    return low.value(operand, tuple(operand_index))


_MOVEMENT: dict[str, Callable[[Lowering, Instruction, Coordinates], Operand]] = {
    "constant": _constant,
    "iota": _iota,
    "broadcast": _broadcast,
    "transpose": _transpose,
    "reverse": _reverse,
    "slice": _slice,
    "reshape": _reshape,
    "pad": _pad,
    "concatenate": _concatenate,
    "dynamic-slice": _dynamic_slice,
    "gather": _gather,
}


# --- ops with several results, within a scalar computation ------------------------------------------------------------

UNBOUNDED = 1 << 62  # iterations


def _reduce(low: Lowering, x: Instruction, coordinates: Coordinates) -> list[Operand]:
    sizes, reduced = x.operands[0].array_shape.dimensions, x.attributes.dimensions
    kept_dims = [d for d in range(len(sizes)) if d not in reduced]

    def body(indices: Coordinates, carried: list[Operand]) -> Sequence[Operand]:
        index_of = dict(zip((*kept_dims, *reduced), (*coordinates, *indices), strict=True))
        return low.accumulate(x, carried, tuple(index_of[d] for d in range(len(sizes))))

    return low.nest([(0, sizes[d]) for d in reduced], low.initial(x), body)


def _while(low: Lowering, x: Instruction, coordinates: Coordinates) -> list[Operand]:
    initial = [low.value(o, ()) for o in x.operands]
    condition, body = x.attributes.condition, x.attributes.body
    (is_entered,) = low.apply(condition, initial)
    with low.loop(0, low.builder.select(is_entered, UNBOUNDED), initial, sequential=True) as (_, loop):
        next_values = low.apply(body, [c.arg for c in loop.carried])
        for carry, value in zip(loop.carried, next_values, strict=True):
            carry.next = value
        (loop.continue_while,) = low.apply(condition, next_values)
    return [c.result for c in loop.carried]


def _conditional(low: Lowering, x: Instruction, coordinates: Coordinates) -> list[Operand]:
    index, *operands = [low.value(o, ()) for o in x.operands]
    branches = x.attributes.branch_computations
    results: list[Operand] = [zero(o.array_shape) for o in branches[0].outputs]
    for branch_index, branch in enumerate(branches):
        count = low.builder.select(selects_branch(low, index, branch_index, len(branches)), 1)
        with low.loop(0, count, results, sequential=True) as (_, loop):
            for carry, value in zip(loop.carried, low.apply(branch, operands), strict=True):
                carry.next = value
        results = [c.result for c in loop.carried]
    return results


def selects_branch(low: Lowering, index: Operand, branch: int, branches: int) -> Operand:
    """True if a conditional takes the branch; an index out of range takes the last one."""
    b = low.builder
    if index.type == "pred":
        return index if branch == 0 else b.compute("not", "pred", index)
    if branch < branches - 1:
        return b.compare("EQ", index, Literal(index.type, branch))
    is_negative = b.compare("LT", index, Literal(index.type, 0))
    return b.or_(is_negative, b.compare("GE", index, Literal(index.type, branch)))


_MULTI_RESULT: dict[str, Callable[[Lowering, Instruction, Coordinates], list[Operand]]] = {
    "conditional": _conditional,
    "reduce": _reduce,
    "while": _while,
}
