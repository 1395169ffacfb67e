"""Dimensions whose size is known only when the program runs: how they are made, asked for, and carried on by other ops.

A dynamic dimension has a bound, which is what shapes and all rules of ops count with; what is beyond the real size is
padding, which no op lets through to a result. `dynamic_dimensions` says which dimensions of an op's result are dynamic;
`tinyxla.compiler.passes.dynamic_padder` has what the sizes are. An op that is not in the table takes no dynamic
dimensions.

Sources: sections "GetDimensionSize", "SetDimensionSize" and "DynamicReshape" of the XLA documents.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from tinyxla.errors import DTypeError, ShapeError
from tinyxla.hlo import Computation
from tinyxla.ops import dynamic_slices, elementwise, movement
from tinyxla.ops.op import Array, Ints, Linear, Op, Sample, Value, Zero
from tinyxla.shapes import AnyShape, Shape, TupleShape, element_type

Flags = tuple[bool, ...]
S32 = Shape(element_type("s32"))


def flags(shape: Shape) -> Flags:
    """For each dimension whether it is dynamic."""
    return shape.dynamic or (False,) * shape.rank


def _check_size(name: str, size: AnyShape) -> None:
    if size != S32:
        raise DTypeError(f"{name}: a size must be s32[], but got {size}; convert it.")


def _check_dimension(name: str, dimensions: Ints, shape: Shape) -> None:
    if len(dimensions) != 1 or not 0 <= dimensions[0] < shape.rank:
        raise ShapeError(
            f"{name}: dimensions must be one from 0 to {shape.rank - 1}, but got {dimensions} for {shape}."
        )


# --- get-dimension-size -----------------------------------------------------------------------------------------------


class GetDimensionSize(NamedTuple):
    dimensions: Ints  # one


def _get_shape(x: AnyShape, *, dimensions: Ints) -> Shape:
    _check_dimension("get-dimension-size", dimensions, movement.array_operand("get-dimension-size", x))
    return S32


def _get_batch(size: int, operands: Any, axes: Any, *, dimensions: Ints) -> tuple[Value, None]:
    ((x,), (axis,), (d,)) = operands, axes, dimensions
    return get_dimension_size(x, dimensions=(d + (axis <= d),)), None


get_dimension_size = Op(
    "get-dimension-size",
    attributes=GetDimensionSize,
    shape=_get_shape,
    evaluate=lambda x, *, dimensions: np.asarray(x.shape[dimensions[0]], np.int32),
    derivative=Zero(),
    batch=_get_batch,
    samples=movement.samples_at(GetDimensionSize, ((3, 4), (1,)), ((0,), (0,))),
)

# --- set-dimension-size -----------------------------------------------------------------------------------------------


class SetDimensionSize(NamedTuple):
    dimensions: Ints  # one


def _set_shape(x: AnyShape, size: AnyShape, *, dimensions: Ints) -> Shape:
    shape = movement.array_operand("set-dimension-size", x)
    _check_dimension("set-dimension-size", dimensions, shape)
    _check_size("set-dimension-size", size)
    return shape.with_dynamic([f or k == dimensions[0] for k, f in enumerate(flags(shape))])


def _set_evaluate(x: Array, size: Array, *, dimensions: Ints) -> Array:
    (d,) = dimensions
    return x[(slice(None),) * d + (slice(max(0, int(size))),)]


def _set_transpose(g: Value, x: Value, size: Value, *, dimensions: Ints) -> tuple[Value]:
    """Zero for what was cut off."""
    starts = [movement.full(0, np.int32)] * x.ndim
    return (dynamic_slices.dynamic_update_slice(movement.full(0, g.dtype, x.shape), g, *starts),)


def _set_batch(size: int, operands: Any, axes: Any, *, dimensions: Ints) -> tuple[Value, int]:
    ((x, length), (axis, length_axis), (d,)) = operands, axes, dimensions
    if length_axis is not None:
        raise ShapeError(
            "set-dimension-size: under vmap the size must be the same for all examples, but it is mapped; use a mask "
            "(numpy.where) for sizes that differ."
        )
    return set_dimension_size(x, length, dimensions=(d + (axis <= d),)), axis


def _set_samples(random: np.random.Generator) -> Iterator[Sample]:
    for shape, d, size in (((3, 4), 1, 4), ((3, 4), 0, 2), ((5,), 0, 0)):
        yield Sample((movement.sample_values(shape), np.asarray(size, np.int32)), {"dimensions": (d,)})


set_dimension_size = Op(
    "set-dimension-size",
    attributes=SetDimensionSize,
    shape=_set_shape,
    evaluate=_set_evaluate,
    derivative=Linear(_set_transpose, operands=(0,)),
    batch=_set_batch,
    samples=_set_samples,
)

# --- dynamic-reshape --------------------------------------------------------------------------------------------------


class DynamicReshape(NamedTuple):
    sizes: Ints  # bounds of the result
    dims_are_dynamic: Flags


def _reshape_shape(x: AnyShape, *dim_sizes: AnyShape, sizes: Ints, dims_are_dynamic: Flags) -> Shape:
    shape = movement.array_operand("dynamic-reshape", x)
    if not len(dim_sizes) == len(sizes) == len(dims_are_dynamic):
        raise ShapeError(
            f"dynamic-reshape: there must be a size, a bound and a flag for each dimension of the result, but got "
            f"{len(dim_sizes)} dim_sizes, new_size_bounds {sizes} and dims_are_dynamic {dims_are_dynamic}."
        )
    for size in dim_sizes:
        _check_size("dynamic-reshape", size)
    if any(n < 0 for n in sizes):
        raise ShapeError(f"dynamic-reshape: new_size_bounds must not be negative, but got {sizes}.")
    made = shape.with_dimensions(sizes)
    if not any(dims_are_dynamic) and not shape.dynamic and made.size != shape.size:
        raise ShapeError(f"dynamic-reshape: sizes must make the {shape.size} elements of {shape}, but got {sizes}.")
    return made.with_dynamic(dims_are_dynamic)


def _reshape_evaluate(x: Array, *dim_sizes: Array, sizes: Ints, dims_are_dynamic: Flags) -> Array:
    real = [int(s) if f else n for s, n, f in zip(dim_sizes, sizes, dims_are_dynamic, strict=True)]
    if np.prod(real, dtype=np.int64) != x.size or any(s > n for s, n in zip(real, sizes, strict=True)):
        raise ShapeError(f"dynamic-reshape: {x.size} elements do not make an array of sizes {real} within {sizes}.")
    return x.reshape(real)


def _reshape_transpose(g: Value, x: Value, *dim_sizes: Value, **attributes: Any) -> tuple[Value]:
    sizes = (movement.full(n, np.int32) for n in x.shape)
    return (dynamic_reshape(g, *sizes, sizes=x.shape, dims_are_dynamic=(False,) * x.ndim),)


def _reshape_batch(size: int, operands: Any, axes: Any, *, sizes: Ints, dims_are_dynamic: Flags) -> tuple[Value, int]:
    x, *dim_sizes = operands
    if any(a is not None for a in axes[1:]):
        raise ShapeError("dynamic-reshape: under vmap the sizes must be the same for all examples, but one is mapped.")
    first = movement.full(size, np.int32)
    x = movement.move_axis(x, axes[0], 0)
    wide = {"sizes": (size, *sizes), "dims_are_dynamic": (False, *dims_are_dynamic)}
    return dynamic_reshape(x, first, *dim_sizes, **wide), 0


def _reshape_samples(random: np.random.Generator) -> Iterator[Sample]:
    for shape, sizes, dynamic in (
        ((6,), (2, 3), (False, False)),
        ((2, 3), (6,), (True,)),
        ((4,), (2, 2), (True, False)),
    ):
        lengths = (np.asarray(n, np.int32) for n in sizes)
        yield Sample((movement.sample_values(shape), *lengths), {"sizes": sizes, "dims_are_dynamic": dynamic})


dynamic_reshape = Op(
    "dynamic-reshape",
    attributes=DynamicReshape,
    shape=_reshape_shape,
    evaluate=_reshape_evaluate,
    derivative=Linear(_reshape_transpose, operands=(0,)),
    batch=_reshape_batch,
    samples=_reshape_samples,
)

# --- what other ops do with dynamic dimensions ------------------------------------------------------------------------

Marks = Sequence[Any]  # for each dimension something that says it is dynamic (its size, say), or None
Rule = Callable[..., Marks]  # of the operands' marks, the operands' static shapes, the result's, and the attributes


def _any(operands: Sequence[Marks], shapes: Sequence[Shape], result: Shape, attributes: Any) -> Marks:
    """Dimension by dimension the first mark that there is; scalars have none."""
    wide = [marks for marks in operands if marks]
    return [next((m for m in column if m is not None), None) for column in zip(*wide, strict=True)]


def _broadcast(operands: Sequence[Marks], shapes: Sequence[Shape], result: Shape, attributes: Any) -> Marks:
    place = dict(zip(attributes["dimensions"], operands[0], strict=True))
    return [place.get(d) for d in range(result.rank)]


def _same_dimensions(source: Ints, result: Ints) -> dict[int, int]:
    """For dimensions of a reshape's result that are one of the operand's: which."""
    found: dict[int, int] = {}
    rows = [d for d, size in enumerate(source) if size != 1]
    before = 1
    for j, size in enumerate(result):
        for i in rows:
            if size == source[i] and before == math.prod(source[:i]):
                found[j] = i
        before *= size
    return found


def _reshape(operands: Sequence[Marks], shapes: Sequence[Shape], result: Shape, attributes: Any) -> Marks:
    same = _same_dimensions(shapes[0].dimensions, result.dimensions)
    lost = [d for d, m in enumerate(operands[0]) if m is not None and d not in same.values()]
    if lost:
        raise ShapeError(
            f"reshape: dynamic dimensions {lost} of {_marked(shapes[0], operands[0])} must stay dimensions of "
            f"{result}; use dynamic-reshape, which takes the sizes."
        )
    return [operands[0][same[d]] if d in same else None for d in range(result.rank)]


def _dot(operands: Sequence[Marks], shapes: Sequence[Shape], result: Shape, attributes: Any) -> Marks:
    found = [operands[0][d] for d in attributes["lhs_batch_dims"]]
    for side, name in enumerate(("lhs", "rhs")):
        bound = (*attributes[f"{name}_contracting_dims"], *attributes[f"{name}_batch_dims"])
        found += [m for d, m in enumerate(operands[side]) if d not in bound]
    return found


def _convolution(operands: Sequence[Marks], shapes: Sequence[Shape], result: Shape, attributes: Any) -> Marks:
    labels = attributes["dim_labels"]
    lhs, rhs, out = labels
    if any(operands[1][d] is not None for d in rhs[2:]) or attributes["batch_group_count"] > 1:
        raise ShapeError(
            f"convolution: with dynamic dimensions the window must be static and batch_group_count 1, but got "
            f"{_marked(shapes[1], operands[1])} and {attributes['batch_group_count']}; pad the kernel with zeros."
        )
    place = {out[0]: operands[0][lhs[0]], out[1]: operands[1][rhs[0]]}
    place |= {o: operands[0][d] for o, d in zip(out[2:], lhs[2:], strict=True)}
    return [place[d] for d in range(result.rank)]


def _gather(operands: Sequence[Marks], shapes: Sequence[Shape], result: Shape, attributes: Any) -> Marks:
    """Dimensions of the indices, and those of the operand that slices have whole."""
    batch = iter([m for d, m in enumerate(operands[1]) if d != attributes["index_vector_dim"]])
    out = (*attributes["collapsed_slice_dims"], *attributes["operand_batching_dims"])
    whole = zip(operands[0], shapes[0].dimensions, attributes["slice_sizes"], strict=True)
    inner = iter([m if n == size else None for d, (m, n, size) in enumerate(whole) if d not in out])
    return [next(inner) if d in attributes["offset_dims"] else next(batch) for d in range(result.rank)]


def _dynamic_slice(operands: Sequence[Marks], shapes: Sequence[Shape], result: Shape, attributes: Any) -> Marks:
    """A part has a static size."""
    whole = zip(operands[0], shapes[0].dimensions, result.dimensions, strict=True)
    return [m if n == size else None for m, n, size in whole]


def _marked(shape: Shape, marks: Marks) -> Shape:
    """The shape with the marked dimensions dynamic."""
    return shape.with_dynamic([m is not None for m in marks])


_AS_THE_FIRST = (  # whose results have the dynamic dimensions of the first operand
    "bitcast-convert copy dynamic-update-slice pad reduce-precision reduce-window reverse scatter slice sort".split()
)
RULES: dict[str, Rule] = {
    **dict.fromkeys([*elementwise.NAMES, "concatenate"], _any),
    **dict.fromkeys(_AS_THE_FIRST, lambda operands, *rest: operands[0]),
    "broadcast": _broadcast,
    "convolution": _convolution,
    "dot": _dot,
    "dynamic-slice": _dynamic_slice,
    "gather": _gather,
    "get-dimension-size": lambda *rest: (),
    "reduce": lambda operands, shapes, result, a: [m for d, m in enumerate(operands[0]) if d not in a["dimensions"]],
    "reshape": _reshape,
    "topk": lambda operands, *rest: (*operands[0][:-1], None),
    "transpose": lambda operands, shapes, result, a: [operands[0][d] for d in a["permutation"]],
}
_WHOLE = frozenset(
    "tuple get-tuple-element while conditional call map set-dimension-size dynamic-reshape fusion".split()
)


def has_dynamic_sizes(computation: Computation) -> bool:
    """Whether any shape in it is dynamic, or sizes are asked for."""
    for x in computation.instructions:
        if x.shape.is_dynamic or x.op.name == "get-dimension-size" or any(map(has_dynamic_sizes, x.computations())):
            return True
    return False


def static(shape: AnyShape) -> AnyShape:
    """The shape with the bounds as sizes."""
    if isinstance(shape, TupleShape):
        return TupleShape(tuple(map(static, shape.elements)))
    return Shape(shape.element_type, shape.dimensions, shape.layout) if shape.dynamic else shape


def dynamic_shape(name: str, infer: Callable[..., AnyShape], shapes: Sequence[AnyShape], attributes: Any) -> AnyShape:
    """The shape of an op's result, where an operand has dynamic dimensions; `infer` is the op's own rule.

    Args:
        name: the name of the op.
        infer: the op's own rule, for shapes whose sizes are known.
        shapes: the shapes of the operands.
        attributes: the attributes of the op.

    Returns:
        The shape of the result, with its dynamic dimensions.

    Raises:
        ShapeError: an op that takes operands of known sizes alone.

    >>> from tinyxla.ops.op import ops
    >>> from tinyxla.xla import F32, Shape
    >>> x = Shape(F32, (2, 3)).with_dynamic([False, True])
    >>> ops["transpose"].shape(x, permutation=(1, 0))
    f32[<=3,2]
    """
    if name in _WHOLE:
        return infer(*shapes, **attributes)
    if name not in RULES:
        raise ShapeError(
            f"{name}: the operands must have static sizes, but got {list(shapes)}; pad to the bound and use a mask."
        )
    plain: list[Any] = [static(s) for s in shapes]
    result = infer(*plain, **attributes)
    marks = [[f or None for f in flags(s)] for s in shapes if isinstance(s, Shape)]
    found = RULES[name](marks, plain, result, attributes)
    if isinstance(result, TupleShape):
        return TupleShape(tuple(_marked(x, found) for x in result.elements if isinstance(x, Shape)))
    return _marked(result, found)


Op.dynamic_shape = staticmethod(dynamic_shape)
