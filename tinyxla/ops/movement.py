"""Operations that make arrays or move their elements: constants, iota, broadcasting, reshaping, slicing, padding.

Sources: the sections of the XLA documents named after each operation.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from tinyxla.errors import AttributeValueError, DTypeError, ShapeError
from tinyxla.hlo import Literal
from tinyxla.ops import elementwise, reduction
from tinyxla.ops.op import Array, Axes, Factors, Ints, Linear, Op, Sample, Value, Zero, but_for
from tinyxla.shapes import AnyShape, Shape, element_type
from tinyxla.shapes.key_types import numbers_only
from tinyxla.shapes.reshape import split_dimensions
from tinyxla.shapes.symbolic import is_symbolic, max_dim


def array_operand(name: str, shape: AnyShape) -> Shape:
    if not isinstance(shape, Shape):
        raise ShapeError(f"{name}: the operand must be an array, but got the tuple {shape}; take its elements.")
    return shape


def check_dimensions(name: str, attribute: str, dimensions: Ints, rank: int) -> None:
    """Distinct dimension numbers of an array of that rank."""
    for d in dimensions:
        if not 0 <= d < rank:
            valid = f"from 0 to {rank - 1}" if rank else "none, for a scalar"
            raise ShapeError(f"{name}: {attribute} must be {valid}, but got {d} in {dimensions}.")
    if len(set(dimensions)) != len(dimensions):
        raise ShapeError(f"{name}: {attribute} must be distinct, but got {dimensions}; name each once.")


def sample_values(shape: Ints, dtype: Any = np.float32) -> Array:
    """Distinct values in no order."""
    size = math.prod(shape)
    order = (np.arange(size) * 7 + 3) % (size + (size % 7 == 0)) if size else np.arange(0)
    return (order - size / 3).astype(dtype).reshape(shape)


def samples_at(attributes: type[Any], *rows: Any) -> Callable[[np.random.Generator], Iterator[Sample]]:
    """Samples of an op of one array: of each row the array's shape and the attributes."""

    def samples(random: np.random.Generator) -> Iterator[Sample]:
        for shape, *values in rows:
            yield Sample((sample_values(shape),), attributes(*values)._asdict())

    return samples


# --- parameter, constant, iota ----------------------------------------------------------------------------------------


class Parameter(NamedTuple):
    parameter_number: int
    shape: AnyShape


def _nullary_batch(size: int, operands: tuple[Value, ...], axes: Axes, **attributes: Any) -> tuple[Any, int]:
    raise AssertionError("an op without operands is never batched")


def _parameter_evaluate(*, parameter_number: int, shape: AnyShape) -> Any:
    raise AssertionError("parameters are given values, not evaluated")


parameter = Op(
    "parameter",
    attributes=Parameter,
    shape=lambda *, parameter_number, shape: shape,
    evaluate=_parameter_evaluate,
    derivative=Zero(),
    batch=_nullary_batch,
    samples=lambda random: iter(()),
)


class Constant(NamedTuple):
    literal: Literal


constant = Op(
    "constant",
    attributes=Constant,
    shape=lambda *, literal: Shape.of(literal.value),
    evaluate=lambda *, literal: literal.value,
    derivative=Zero(),
    batch=_nullary_batch,
    samples=lambda random: iter([Sample((), {"literal": Literal(sample_values((2, 3)))})]),
)


class SymbolicSize(NamedTuple):
    size: int


def _symbolic_size_shape(*, size: Any) -> Shape:
    if not is_symbolic(size) and (type(size) is not int or not -(2**31) <= size < 2**31):
        raise AttributeValueError(f"symbolic-size: a size must be an integer of 32 bits, but is {size!r}.")
    return Shape(element_type("s32"))


symbolic_size = Op(
    "symbolic-size",  # the value of a dimension that may be symbolic: of a program which is exported for all its sizes
    attributes=SymbolicSize,
    shape=_symbolic_size_shape,
    evaluate=lambda *, size: np.asarray(operator.index(size), np.int32),
    derivative=Zero(),
    batch=_nullary_batch,
    samples=lambda random: iter((Sample((), {"size": 3}),)),
    expand=lambda *, size: constant(literal=Literal(np.asarray(operator.index(size), np.int32))),
)


class Iota(NamedTuple):
    shape: Shape
    iota_dimension: int


def _iota_shape(*, shape: Shape, iota_dimension: int) -> Shape:
    if shape.element_type.kind == "pred":
        raise DTypeError(f"iota: the element type must be a number type, but got {shape}; compare numbers for pred.")
    check_dimensions("iota", "iota_dimension", (iota_dimension,), shape.rank)
    return shape


def _iota_evaluate(*, shape: Shape, iota_dimension: int) -> Array:
    length = shape.dimensions[iota_dimension]
    counts = np.arange(length).astype(shape.dtype)
    spread = [1] * shape.rank
    spread[iota_dimension] = length
    return np.broadcast_to(counts.reshape(spread), shape.dimensions)


def _iota_samples(random: np.random.Generator) -> Iterator[Sample]:
    for dtype in (np.int32, np.float32, np.complex64, np.uint8):
        for dimension in (0, 1):
            yield Sample((), {"shape": Shape(element_type(dtype), (3, 4)), "iota_dimension": dimension})


iota = Op(
    "iota",
    attributes=Iota,
    shape=_iota_shape,
    evaluate=_iota_evaluate,
    derivative=Zero(),
    batch=_nullary_batch,
    samples=_iota_samples,
)


def full(value: Any, dtype: Any, shape: Sequence[int] = ()) -> Value:
    """One value everywhere: a scalar constant or a symbolic size, broadcast."""
    if is_symbolic(value):
        size = elementwise.convert(symbolic_size(size=value), new_element_type=element_type(dtype))
        return broadcast(size, sizes=tuple(shape), dimensions=()) if shape else size
    try:
        scalar = np.asarray(value).astype(dtype)
    except TypeError:
        numbers_only(dtype)
        raise
    scalar.setflags(write=False)
    x = constant(literal=Literal(scalar))
    return broadcast(x, sizes=tuple(shape), dimensions=()) if shape else x


# --- broadcast --------------------------------------------------------------------------------------------------------


class Broadcast(NamedTuple):
    sizes: Ints  # of the result
    dimensions: Ints  # where the operand's dimensions stand in the result


def _broadcast_shape(x: AnyShape, *, sizes: Ints, dimensions: Ints) -> Shape:
    shape = array_operand("broadcast", x)
    if len(dimensions) != shape.rank:
        raise ShapeError(f"broadcast: dimensions must say where each of those of {shape} goes, but got {dimensions}.")
    check_dimensions("broadcast", "dimensions", dimensions, len(sizes))
    for d, size in zip(dimensions, shape.dimensions, strict=True):
        if sizes[d] != size:
            raise ShapeError(
                f"broadcast: dimension {d} of the sizes {sizes} must be {size} as in the operand {shape}, but it is "
                f"{sizes[d]}."
            )
    if any(size < 0 for size in sizes):
        raise ShapeError(f"broadcast: sizes must not be negative, but got {sizes}.")
    return shape.with_dimensions(sizes)


def _broadcast_evaluate(x: Array, *, sizes: Ints, dimensions: Ints) -> Array:
    spread = [1] * len(sizes)
    for d, size in zip(dimensions, x.shape, strict=True):
        spread[d] = size
    ordered = x.transpose(sorted(range(x.ndim), key=lambda k: dimensions[k])) if x.ndim > 1 else x
    return np.broadcast_to(ordered.reshape(spread), sizes)


def _broadcast_transpose(g: Value, x: Value, *, sizes: Ints, dimensions: Ints) -> tuple[Value]:
    summed = reduction.reduce_sum(g, tuple(d for d in range(len(sizes)) if d not in dimensions))
    order = sorted(range(len(dimensions)), key=lambda k: dimensions[k])
    return (transpose_to(summed, tuple(order.index(k) for k in range(len(order)))),)


def _broadcast_batch(size: int, operands: tuple[Value], axes: tuple[int], *, sizes: Ints, dimensions: Ints) -> Any:
    (x,), (axis,) = operands, axes
    inner = [d + 1 for d in dimensions]
    inner.insert(axis, 0)
    return broadcast(x, sizes=(size, *sizes), dimensions=tuple(inner)), 0


def with_result_sizes(attributes: dict[str, Any], operands: Any, results: Sequence[Ints]) -> dict[str, Any]:
    """Attributes whose `sizes` are those of the result, for parts."""
    return {**attributes, "sizes": results[0]}


def _broadcast_factors(x: Shape, *, sizes: Ints, dimensions: Ints) -> Factors:
    return Factors((dimensions,), (tuple(range(len(sizes))),), localize=with_result_sizes)


broadcast = Op(
    "broadcast",
    attributes=Broadcast,
    shape=_broadcast_shape,
    evaluate=_broadcast_evaluate,
    derivative=Linear(_broadcast_transpose),
    batch=_broadcast_batch,
    sharding=_broadcast_factors,
    samples=samples_at(
        Broadcast,
        ((), (2, 3), ()),
        ((3,), (2, 3), (1,)),
        ((2,), (2, 3), (0,)),
        ((2, 3), (3, 4, 2), (2, 0)),
        ((0,), (2, 0), (1,)),
    ),
)


def broadcast_in_dim(x: Value, sizes: Sequence[int], dimensions: Sequence[int]) -> Value:
    """Broadcast in the documents' sense, which also expands dimensions of size 1."""
    sizes, dimensions = tuple(sizes), tuple(dimensions)
    if x.ndim != len(dimensions):
        raise ShapeError(
            f"broadcast_in_dim: an operand of shape {x.shape} needs {x.ndim} dimensions, but got {dimensions}."
        )
    if x.ndim > len(sizes):
        raise ShapeError(f"broadcast_in_dim: the shape {sizes} has fewer dimensions than the operand's, {x.shape}.")
    check_dimensions("broadcast_in_dim", "broadcast_dimensions", dimensions, len(sizes))
    kept = [k for k in range(x.ndim) if x.shape[k] != 1 or sizes[dimensions[k]] == 1]
    x = reshape_to(x, tuple(x.shape[k] for k in kept))
    dimensions = tuple(dimensions[k] for k in kept)
    if sizes == x.shape and dimensions == tuple(range(x.ndim)):
        return x
    return broadcast(x, sizes=sizes, dimensions=dimensions)


def align_axis(x: Value, axis: int | None, to: int, size: int) -> Value:
    """x with its mapped axis at `to`; spread along a new axis there if it has none."""
    if axis is None:
        sizes = (*x.shape[:to], size, *x.shape[to:])
        return broadcast(x, sizes=sizes, dimensions=_shifted(tuple(range(x.ndim)), to))
    return move_axis(x, axis, to)


def in_front(operands: Sequence[Value], axes: Sequence[int | None], size: int) -> list[Value]:
    """The operands with their mapped axes in front, as `align_axis` puts them."""
    return [align_axis(x, a, 0, size) for x, a in zip(operands, axes, strict=True)]


def one_more_in_front(op: Callable[[], Op]) -> Callable[..., tuple[Any, Any]]:
    """The rule of an op of one array whose first dimensions are of a batch: the mapped one is one more of these."""

    def rule(size: int, operands: tuple[Value], axes: tuple[int], **attributes: Any) -> tuple[Any, Any]:
        found = op()(move_axis(operands[0], axes[0], 0), **attributes)
        return found, (0,) * len(found) if isinstance(found, tuple) else 0

    return rule


def move_axis(x: Value, axis: int, to: int) -> Value:
    order = [d for d in range(x.ndim) if d != axis]
    order.insert(to, axis)
    return transpose_to(x, tuple(order))


# --- reshape, transpose, reverse --------------------------------------------------------------------------------------


class Reshape(NamedTuple):
    sizes: Ints


def _reshape_shape(x: AnyShape, *, sizes: Ints) -> Shape:
    shape = array_operand("reshape", x)
    if any(size < 0 for size in sizes):
        raise ShapeError(f"reshape: sizes must not be negative, but got {sizes}.")
    if math.prod(sizes) != shape.size:
        raise ShapeError(
            f"reshape: sizes must make the {shape.size} elements of {shape}, but {sizes} make {math.prod(sizes)}."
        )
    return shape.with_dimensions(sizes)


def _reshape_batch(size: int, operands: tuple[Value], axes: tuple[int], *, sizes: Ints) -> tuple[Value, int]:
    return reshape_to(move_axis(operands[0], axes[0], 0), (size, *sizes)), 0


def _reshape_factors(x: Shape, *, sizes: Ints) -> Factors:
    """Dimensions that stay have a factor; of those that become others together the first ones have: a part of the major
    one is a part of what it is merged to."""
    operand: list[int | None] = [None] * x.rank
    result: list[int | None] = [None] * len(sizes)
    groups = split_dimensions(x.dimensions, sizes) if x.size else ()
    for factor, (inputs, outputs) in enumerate(groups):
        operand[inputs[0]] = result[outputs[0]] = factor
    return Factors((tuple(operand),), (tuple(result),), localize=with_result_sizes)


reshape = Op(
    "reshape",
    attributes=Reshape,
    sharding=_reshape_factors,
    shape=_reshape_shape,
    evaluate=lambda x, *, sizes: x.reshape(sizes),
    derivative=Linear(lambda g, x, *, sizes: (reshape_to(g, x.shape),)),
    batch=_reshape_batch,
    samples=samples_at(
        Reshape,
        ((2, 6), (3, 4)),
        ((4,), (2, 2)),
        ((1, 1), ()),
        ((), (1,)),
        ((0, 3), (5, 0)),
        ((2, 3, 4), (6, 4)),
    ),
)


def reshape_to(x: Value, sizes: Sequence[int]) -> Value:
    """Reshape unless x has that shape."""
    return x if x.shape == tuple(sizes) else reshape(x, sizes=tuple(sizes))


class Transpose(NamedTuple):
    permutation: Ints


def _transpose_shape(x: AnyShape, *, permutation: Ints) -> Shape:
    shape = array_operand("transpose", x)
    if sorted(permutation) != list(range(shape.rank)):
        raise ShapeError(f"transpose: permutation must name each dimension of {shape} once, but got {permutation}.")
    return shape.with_dimensions([shape.dimensions[d] for d in permutation])


def _transpose_transpose(g: Value, x: Value, *, permutation: Ints) -> tuple[Value]:
    return (transpose(g, permutation=inverse_permutation(permutation)),)


def _transpose_batch(size: int, operands: tuple[Value], axes: tuple[int], *, permutation: Ints) -> tuple[Value, int]:
    return transpose(operands[0], permutation=(axes[0], *_shifted(permutation, axes[0]))), 0


def inverse_permutation(permutation: Ints) -> Ints:
    return tuple(sorted(range(len(permutation)), key=lambda k: permutation[k]))


transpose = Op(
    "transpose",
    attributes=Transpose,
    sharding=lambda x, *, permutation: Factors((tuple(range(x.rank)),), (permutation,)),
    shape=_transpose_shape,
    evaluate=lambda x, *, permutation: x.transpose(permutation),
    derivative=Linear(_transpose_transpose),
    batch=_transpose_batch,
    samples=samples_at(
        Transpose, ((2, 3), (1, 0)), ((2, 3, 4), (2, 0, 1)), ((2, 3, 4), (0, 2, 1)), ((), ()), ((0, 2), (1, 0))
    ),
)


def transpose_to(x: Value, permutation: Ints) -> Value:
    """Transpose unless the permutation changes nothing."""
    return x if permutation == tuple(range(len(permutation))) else transpose(x, permutation=permutation)


class Reverse(NamedTuple):
    dimensions: Ints


def _reverse_shape(x: AnyShape, *, dimensions: Ints) -> Shape:
    shape = array_operand("reverse", x)
    check_dimensions("reverse", "dimensions", dimensions, shape.rank)
    return shape


def _shifted(dimensions: Ints, axis: int) -> Ints:
    """Dimension numbers of an array, once it has one more at `axis`."""
    return tuple(d + (d >= axis) for d in dimensions)


reverse = Op(
    "reverse",
    attributes=Reverse,
    shape=_reverse_shape,
    evaluate=lambda x, *, dimensions: np.flip(x, dimensions),
    derivative=Linear(lambda g, x, *, dimensions: (reverse(g, dimensions=dimensions),)),
    batch=lambda size, operands, axes, *, dimensions: (
        reverse(operands[0], dimensions=_shifted(dimensions, axes[0])),
        axes[0],
    ),
    sharding=lambda x, *, dimensions: but_for((), x.rank)._replace(communicating=frozenset(dimensions)),
    samples=samples_at(Reverse, ((4,), (0,)), ((2, 3), (1,)), ((2, 3), (0, 1)), ((2, 3), ())),
)

# --- slice, pad, concatenate ------------------------------------------------------------------------------------------


class Slice(NamedTuple):
    start_indices: Ints
    limit_indices: Ints
    strides: Ints


def _slice_shape(x: AnyShape, *, start_indices: Ints, limit_indices: Ints, strides: Ints) -> Shape:
    shape = array_operand("slice", x)
    for name, values in (("start_indices", start_indices), ("limit_indices", limit_indices), ("strides", strides)):
        if len(values) != shape.rank:
            raise ShapeError(f"slice: {name} must have an entry for each dimension of {shape}, but got {values}.")
    sizes: list[int] = []
    for d, (size, start, limit, stride) in enumerate(
        zip(shape.dimensions, start_indices, limit_indices, strides, strict=True)
    ):
        if stride <= 0:
            raise ShapeError(f"slice: strides must be positive, but dimension {d} has {stride} in {strides}.")
        if not 0 <= start <= limit <= size:
            raise ShapeError(
                f"slice: start_indices and limit_indices must have 0 <= start <= limit <= {size} in dimension {d} of "
                f"{shape}, but got [{start}, {limit})."
            )
        sizes.append(-(-(limit - start) // stride))
    return shape.with_dimensions(sizes)


def _slice_evaluate(x: Array, *, start_indices: Ints, limit_indices: Ints, strides: Ints) -> Array:
    return x[tuple(map(slice, start_indices, limit_indices, strides))]


def _slice_transpose(g: Value, x: Value, *, start_indices: Ints, limit_indices: Ints, strides: Ints) -> tuple[Value]:
    config = tuple(
        (start, size - (start + (n - 1) * stride + 1), stride - 1) if stride == 1 or n else (0, size, 0)
        for start, stride, n, size in zip(start_indices, strides, g.shape, x.shape, strict=True)
    )
    return (pad(g, full(0, g.dtype), padding_config=config),)


def _slice_batch(
    size: int, operands: tuple[Value], axes: tuple[int], *, start_indices: Ints, limit_indices: Ints, strides: Ints
) -> tuple[Value, int]:
    axis = axes[0]
    whole = [_inserted(v, axis, new) for v, new in ((start_indices, 0), (limit_indices, size), (strides, 1))]
    return slice_(operands[0], start_indices=whole[0], limit_indices=whole[1], strides=whole[2]), axis


def _inserted(values: tuple[Any, ...], at: int, value: Any) -> tuple[Any, ...]:
    return (*values[:at], value, *values[at:])


def _slice_factors(x: Shape, *, start_indices: Ints, limit_indices: Ints, strides: Ints) -> Factors:
    windows = zip(x.dimensions, start_indices, limit_indices, strides, strict=True)
    touched = frozenset(d for d, (n, *window) in enumerate(windows) if window != [0, n, 1])
    return but_for((), x.rank)._replace(communicating=touched, localize=_slice_of_part)


def _slice_of_part(attributes: dict[str, Any], operands: Sequence[Ints], results: Sequence[Ints]) -> dict[str, Any]:
    """Dimensions that are smaller in the part are taken whole."""
    pairs = zip(attributes["limit_indices"], operands[0], strict=True)
    return {**attributes, "limit_indices": tuple(min(pair) for pair in pairs)}


slice_ = Op(
    "slice",
    sharding=_slice_factors,
    attributes=Slice,
    shape=_slice_shape,
    evaluate=_slice_evaluate,
    derivative=Linear(_slice_transpose),
    batch=_slice_batch,
    samples=samples_at(
        Slice,
        ((5,), (1,), (4,), (1,)),
        ((7, 4), (1, 0), (7, 3), (3, 2)),
        ((3, 3), (2, 0), (2, 3), (1, 1)),
        ((), (), (), ()),
    ),
)


def slice_axis(x: Value, axis: int, start: int, limit: int, stride: int = 1) -> Value:
    """A slice of one axis, whole in the others."""
    rank = x.ndim
    return slice_(
        x,
        start_indices=tuple(start if d == axis else 0 for d in range(rank)),
        limit_indices=tuple(limit if d == axis else x.shape[d] for d in range(rank)),
        strides=tuple(stride if d == axis else 1 for d in range(rank)),
    )


class Pad(NamedTuple):
    padding_config: tuple[tuple[int, int, int], ...]  # (edge low, edge high, interior) of each dimension


PaddingConfig = tuple[tuple[int, int, int], ...]


def _pad_shape(x: AnyShape, value: AnyShape, *, padding_config: PaddingConfig) -> Shape:
    shape, scalar = array_operand("pad", x), array_operand("pad", value)
    if scalar.rank != 0 or scalar.element_type is not shape.element_type:
        raise ShapeError(f"pad: the padding value must be a scalar {shape.element_type}, but got {scalar}.")
    if [len(entry) for entry in padding_config] != [3] * shape.rank:
        raise ShapeError(
            f"pad: padding_config must have (low, high, interior) for each dimension of {shape}, but got "
            f"{padding_config}."
        )
    sizes: list[int] = []
    for size, (low, high, interior) in zip(shape.dimensions, padding_config, strict=True):
        if interior < 0:
            raise ShapeError(f"pad: interior padding must not be negative, but padding_config is {padding_config}.")
        result = low + high + size + (max_dim(size - 1, 0) * interior if interior else 0)
        if result < 0:
            raise ShapeError(f"pad: padding_config must not take away more than {shape} has, but got {padding_config}.")
        sizes.append(result)
    return shape.with_dimensions(sizes)


def _pad_evaluate(x: Array, value: Array, *, padding_config: PaddingConfig) -> Array:
    shape = _pad_shape(Shape.of(x), Shape.of(value), padding_config=padding_config)
    out = np.full(shape.dimensions, value, x.dtype)
    into: list[slice] = []
    taken: list[slice] = []
    for size, total, (low, _, interior) in zip(x.shape, shape.dimensions, padding_config, strict=True):
        step = interior + 1
        first = max(0, -(low // step))  # the first element whose place is not before the edge
        last = min(size, -((low - total) // step))  # and the first whose place is past the end
        taken.append(slice(first, max(first, last)))
        into.append(
            slice(low + first * step, max(low + (last - 1) * step + 1, 0), step) if last > first else slice(0, 0)
        )
    out[tuple(into)] = x[tuple(taken)]
    return out


def _pad_transpose(g: Value, x: Value, value: Value, *, padding_config: PaddingConfig) -> tuple[Value, Value]:
    negative = tuple((-low, -high, 0) for low, high, _ in padding_config)
    kept = pad(g, full(0, g.dtype), padding_config=negative)
    if any(interior for _, _, interior in padding_config):
        zero = (0,) * kept.ndim
        strides = tuple(interior + 1 for _, _, interior in padding_config)
        kept = slice_(kept, start_indices=zero, limit_indices=kept.shape, strides=strides)
    axes = tuple(range(g.ndim))
    return kept, elementwise.sub(reduction.reduce_sum(g, axes), reduction.reduce_sum(kept, axes))


def _pad_batch(
    size: int, operands: tuple[Value, Value], axes: Axes, *, padding_config: PaddingConfig
) -> tuple[Value, int]:
    (x, value), (axis, value_axis) = operands, axes
    if value_axis is None:
        assert axis is not None
        return pad(x, value, padding_config=_inserted(padding_config, axis, (0, 0, 0))), axis
    x = align_axis(x, axis, 0, size)
    config = ((0, 0, 0), *padding_config)
    padded = pad(x, full(0, x.dtype), padding_config=config)
    inside = pad(full(True, np.bool_, x.shape), full(False, np.bool_), padding_config=config)
    return elementwise.select(inside, padded, broadcast(value, sizes=padded.shape, dimensions=(0,))), 0


def _pad_samples(random: np.random.Generator) -> Iterator[Sample]:
    value = np.float32(2.5).reshape(())
    for shape, config in (
        ((3,), ((1, 2, 0),)),
        ((3,), ((-1, 2, 1),)),
        ((4,), ((-2, -1, 2),)),
        ((2, 3), ((1, 0, 2), (0, -1, 0))),
        ((0, 2), ((1, 1, 1), (0, 0, 0))),
        ((), ()),
    ):
        yield Sample((sample_values(shape), value), {"padding_config": config})


def _pad_factors(x: Shape, value: Shape, *, padding_config: PaddingConfig) -> Factors:
    own = tuple(range(x.rank))
    touched = frozenset(d for d, padding in enumerate(padding_config) if any(padding))
    return Factors((own, ()), (own,), communicating=touched)


pad = Op(
    "pad",
    sharding=_pad_factors,
    attributes=Pad,
    shape=_pad_shape,
    evaluate=_pad_evaluate,
    derivative=Linear(_pad_transpose),
    batch=_pad_batch,
    samples=_pad_samples,
)


class Concatenate(NamedTuple):
    dimension: int


def _concatenate_shape(*shapes: AnyShape, dimension: int) -> Shape:
    if not shapes:
        raise ShapeError("concatenate: there must be at least one operand, but got none.")
    first = array_operand("concatenate", shapes[0])
    if first.rank == 0:
        raise ShapeError(
            f"concatenate: the operands must have at least one dimension, but got {first}; reshape them to [1]."
        )
    check_dimensions("concatenate", "dimension", (dimension,), first.rank)
    total = 0

    def others(x: Shape) -> Ints:
        return x.dimensions[:dimension] + x.dimensions[dimension + 1 :]

    for shape in shapes:
        shape = array_operand("concatenate", shape)
        if shape.element_type is not first.element_type:
            raise DTypeError(f"concatenate: operands must have one type, but got {first} and {shape}; convert one.")
        if shape.rank != first.rank or others(shape) != others(first):
            raise ShapeError(
                f"concatenate: operands must be equal but for dimension {dimension}, but got {first} and {shape}."
            )
        total += shape.dimensions[dimension]
    return first.with_dimensions(_inserted(others(first), dimension, total))


def _concatenate_transpose(g: Value, *operands: Value, dimension: int) -> list[Value]:
    cotangents: list[Value] = []
    start = 0
    for x in operands:
        cotangents.append(slice_axis(g, dimension, start, start + x.shape[dimension]))
        start += x.shape[dimension]
    return cotangents


def _concatenate_batch(size: int, operands: tuple[Value, ...], axes: Axes, *, dimension: int) -> tuple[Value, int]:
    return concatenate(*in_front(operands, axes, size), dimension=dimension + 1), 0


def _concatenate_samples(random: np.random.Generator) -> Iterator[Sample]:
    for shapes, dimension in ((((2,), (3,)), 0), (((2, 3), (2, 1), (2, 0)), 1), (((1, 2), (3, 2)), 0), (((2, 2),), 0)):
        yield Sample(tuple(sample_values(s) + k for k, s in enumerate(shapes)), {"dimension": dimension})


concatenate = Op(
    "concatenate",
    sharding=lambda *shapes, dimension: but_for((), shapes[0].rank, len(shapes))._replace(
        communicating=frozenset((dimension,))
    ),
    attributes=Concatenate,
    shape=_concatenate_shape,
    evaluate=lambda *operands, dimension: np.concatenate(operands, dimension),
    derivative=Linear(_concatenate_transpose),
    batch=_concatenate_batch,
    samples=_concatenate_samples,
)
