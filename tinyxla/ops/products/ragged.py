"""RaggedDot: a product whose left operand has a dimension that is cut into groups of given sizes.

Source: section "RaggedDot" of the XLA documents and the operation `chlo.ragged_dot` that it refers to. What the groups
do depends on the dimension that is cut (`g` groups; `x` are dimensions of that kind before it):

- a free one, [b, m, k] x [g, b, k, n] -> [b, m, n]: each group of rows has a right operand of its own. Rows outside of
  all groups are zero;
- a contracting one, [b, m, k] x [b, k, n] -> [g, b, m, n]: the sum over each group is a result of its own;
- a batch dimension, [b, m, k] x [b, k, n] -> [b, m, n]: a plain product.

Group sizes are [g], or [b..., x..., g] where they differ ([x..., g] in the last case). They are
clamped between 0 and the size of that dimension.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import numpy as np

from tinyxla.errors import AttributeValueError, DTypeError, ShapeError
from tinyxla.ops import elementwise, movement, reduction
from tinyxla.ops.op import Array, Axes, Factors, Ints, Op, Rules, Sample, Value
from tinyxla.ops.products.contraction import (
    Dot,
    Precision,
    dot,
    dot_factors,
    dot_left,
    dot_right,
    dot_shape,
    free_dimensions,
)
from tinyxla.shapes import AnyShape, ElementType, Shape, element_type


class RaggedDot(NamedTuple):
    lhs_contracting_dims: Ints
    rhs_contracting_dims: Ints
    lhs_ragged_dims: Ints
    lhs_batch_dims: Ints = ()
    rhs_batch_dims: Ints = ()
    rhs_group_dims: Ints = ()
    preferred_element_type: ElementType | None = None
    operand_precision: Precision = ()

    @property
    def dot(self) -> Dot:
        """The product without groups; a group dimension of the right operand is one of its free ones."""
        contracting, batch = self[:2], (self.lhs_batch_dims, self.rhs_batch_dims)
        return Dot(*contracting, *batch, self.preferred_element_type, self.operand_precision)

    @property
    def ragged(self) -> int:
        return self.lhs_ragged_dims[0]

    @property
    def mode(self) -> Literal["contracting", "batch", "free"]:
        if self.ragged in self.lhs_contracting_dims:
            return "contracting"
        return "batch" if self.ragged in self.lhs_batch_dims else "free"

    def prefix(self, lhs_rank: int) -> Ints:
        """The dimensions of the left operand along which group sizes may differ."""
        if self.mode == "batch":
            return self.lhs_batch_dims[: self.lhs_batch_dims.index(self.ragged)]
        kind = self.lhs_contracting_dims
        if self.mode == "free":
            kind = free_dimensions(lhs_rank, self.lhs_contracting_dims, self.lhs_batch_dims)
        return (*self.lhs_batch_dims, *kind[: kind.index(self.ragged)])

    def on_rhs(self, lhs_dims: Ints) -> Ints:
        """The dimensions of the right operand that go with batch or contracting ones of the left."""
        pairs = dict(zip(self.lhs_batch_dims, self.rhs_batch_dims, strict=True))
        pairs |= zip(self.lhs_contracting_dims, self.rhs_contracting_dims, strict=True)
        return tuple(pairs[d] for d in lhs_dims)

    def result_groups(self, lhs_rank: int, rhs_rank: int) -> int:
        """Where the right operand's groups are in the result of the plain product."""
        free = free_dimensions(rhs_rank, self.rhs_contracting_dims, self.rhs_batch_dims)
        return lhs_rank - len(self.lhs_contracting_dims) + free.index(self.rhs_group_dims[0])


def _ragged_dot_shape(lhs: AnyShape, rhs: AnyShape, group_sizes: AnyShape, **attributes: Any) -> Shape:
    x, y, sizes = (movement.array_operand("ragged-dot", s) for s in (lhs, rhs, group_sizes))
    dims = RaggedDot(**attributes)
    plain = dot_shape(x, y, **dims.dot._asdict(), name="ragged-dot")
    movement.check_dimensions("ragged-dot", "lhs_ragged_dims", dims.lhs_ragged_dims, x.rank)
    movement.check_dimensions("ragged-dot", "rhs_group_dims", dims.rhs_group_dims, y.rank)
    if len(dims.lhs_ragged_dims) != 1:
        raise AttributeValueError(f"ragged-dot: lhs_ragged_dims must be one dimension, but got {dims.lhs_ragged_dims}.")
    wanted = 1 if dims.mode == "free" else 0
    free = free_dimensions(y.rank, dims.rhs_contracting_dims, dims.rhs_batch_dims)
    if len(dims.rhs_group_dims) != wanted or any(d not in free for d in dims.rhs_group_dims):
        raise AttributeValueError(
            f"ragged-dot: with a {dims.mode} dimension that is ragged, rhs_group_dims must name {wanted} of the free "
            f"dimensions {free} of {y}, but got {dims.rhs_group_dims}."
        )
    if not sizes.element_type.is_integer:
        raise DTypeError(f"ragged-dot: the group sizes must be integers, but got {sizes}; convert them.")
    full = tuple(x.dimensions[d] for d in dims.prefix(x.rank))
    if not sizes.rank or (sizes.rank > 1 and sizes.dimensions[:-1] != full):
        groups = (*sizes.dimensions[-1:], 1)[0] if dims.mode != "free" else y.dimensions[dims.rhs_group_dims[0]]
        wanted = " or ".join({str(sizes.with_dimensions((*rows, groups))): None for rows in ((), full)})
        raise ShapeError(f"ragged-dot: the group sizes must be {wanted}, but got {sizes}.")
    groups = sizes.dimensions[-1]
    if dims.mode == "free" and y.dimensions[dims.rhs_group_dims[0]] != groups:
        raise ShapeError(
            f"ragged-dot: {y} must have {groups} groups in dimension {dims.rhs_group_dims[0]}, as {sizes}, but has "
            f"{y.dimensions[dims.rhs_group_dims[0]]}."
        )
    if dims.mode == "contracting":
        return plain.with_dimensions((groups, *plain.dimensions))
    if dims.mode == "free":
        at = dims.result_groups(x.rank, y.rank)
        return plain.with_dimensions(plain.dimensions[:at] + plain.dimensions[at + 1 :])
    return plain


def _ragged_dot_evaluate(x: Array, y: Array, group_sizes: Array, **attributes: Any) -> Array:
    """Group by group: the product of all, where the ragged index is in the group."""
    dims = RaggedDot(**attributes)
    if dims.mode == "batch":
        return dot.evaluate(x, y, **dims.dot._asdict())
    shape = _ragged_dot_shape(Shape.of(x), Shape.of(y), Shape.of(group_sizes), **attributes)
    result = np.zeros(shape.dimensions, shape.dtype)
    inner = x.shape[dims.ragged]
    sizes = group_sizes.astype(np.int64).clip(0, inner)
    ends = np.cumsum(sizes, -1)
    prefix = dims.prefix(x.ndim) if group_sizes.ndim > 1 else ()
    for k in range(group_sizes.shape[-1]):
        last = ends[..., k, None]
        inside = (np.arange(inner) >= last - sizes[..., k, None]) & (np.arange(inner) < last)
        if dims.mode == "contracting":
            left = _where(inside, x, (*prefix, dims.ragged))
            right = _where(inside, y, dims.on_rhs((*prefix, dims.ragged)))
            result[k] = dot.evaluate(left, right, **dims.dot._asdict())
        else:
            part = dot.evaluate(x, np.take(y, [k], dims.rhs_group_dims[0]), **dims.dot._asdict())
            part = part.squeeze(dims.result_groups(x.ndim, y.ndim))
            result += _where(inside, part, _in_result((*prefix, dims.ragged), x.ndim, dims))
    return result


def _where(inside: Array, x: Array, dims: Ints) -> Array:
    """x where a mask over these dimensions is true, else 0."""
    others = tuple(d for d in range(x.ndim) if d not in dims)
    whole = np.broadcast_to(inside, tuple(x.shape[d] for d in (*others, *dims)))
    return np.where(whole.transpose(movement.inverse_permutation((*others, *dims))), x, x.dtype.type(0))


def _in_result(lhs_dims: Ints, lhs_rank: int, dims: RaggedDot) -> Ints:
    """Where batch and free dimensions of the left operand are in the result."""
    order = (*dims.lhs_batch_dims, *free_dimensions(lhs_rank, dims.lhs_contracting_dims, dims.lhs_batch_dims))
    return tuple(map(order.index, lhs_dims))


def _members(group_sizes: Value, count: int) -> Value:
    """[..., g, count]: whether an index of the ragged dimension is in a group."""
    wide = element_type("s64" if group_sizes.dtype.itemsize == 8 or group_sizes.dtype == np.uint32 else "s32")
    given = elementwise.convert(group_sizes, new_element_type=wide)
    least, most = (movement.full(n, wide.dtype, given.shape) for n in (0, count))
    sizes = elementwise.clamp(least, given, most)
    groups, rank = sizes.shape[-1], sizes.ndim
    square = Shape(wide, (groups, groups))
    earlier = elementwise.le(
        movement.iota(shape=square, iota_dimension=0), movement.iota(shape=square, iota_dimension=1)
    )
    ends = dot(sizes, elementwise.convert(earlier, new_element_type=wide), **Dot((rank - 1,), (0,))._asdict())
    whole = Shape(wide, (*sizes.shape, count))
    index = movement.iota(shape=whole, iota_dimension=rank)
    first, last = (
        movement.broadcast(v, sizes=whole.dimensions, dimensions=tuple(range(rank)))
        for v in (elementwise.sub(ends, sizes), ends)
    )
    return elementwise.and_(elementwise.ge(index, first), elementwise.lt(index, last))


def _kept(members: Value, x: Value, dimensions: Ints) -> Value:
    """x where the members of groups are, which has these dimensions of it; else 0."""
    whole = movement.broadcast(members, sizes=x.shape, dimensions=dimensions)
    return elementwise.select(whole, x, elementwise.zeros_like(x))


def expanded(x: Value, y: Value, group_sizes: Value, **attributes: Any) -> Value:
    """Products for all groups, of which those count whose group it is."""
    dims = RaggedDot(**attributes)
    if dims.mode == "batch":
        return dot(x, y, **dims.dot._asdict())
    members = _members(group_sizes, x.shape[dims.ragged])
    prefix = dims.prefix(x.ndim) if group_sizes.ndim > 1 else ()
    if dims.mode == "free":
        all_groups = dot(x, y, **dims.dot._asdict())
        at = dims.result_groups(x.ndim, y.ndim)
        *outer, ragged = _in_result((*prefix, dims.ragged), x.ndim, dims)
        return reduction.reduce_sum(_kept(members, all_groups, (*outer, at, ragged)), (at,))
    groups = group_sizes.shape[-1]
    parts: list[Value] = []
    for side, along in ((x, (*prefix, dims.ragged)), (y, dims.on_rhs((*prefix, dims.ragged)))):
        spread = movement.broadcast(side, sizes=(groups, *side.shape), dimensions=tuple(range(1, side.ndim + 1)))
        *outer, ragged = (d + 1 for d in along)
        parts.append(_kept(members, spread, (*outer, 0, ragged)))
    moved = [tuple(d + 1 for d in each) for each in dims.dot[:4]]
    each_group = dims.dot._replace(
        lhs_contracting_dims=moved[0],
        rhs_contracting_dims=moved[1],
        lhs_batch_dims=(0, *moved[2]),
        rhs_batch_dims=(0, *moved[3]),
    )
    return dot(*parts, **each_group._asdict())


# --- derivatives: ragged dots of the other modes ----------------------------------------------------------------------


def _jvp(
    tangents: tuple[Value | None, ...], ans: Value, x: Value, y: Value, group_sizes: Value, **attributes: Any
) -> Value | None:
    parts: list[Value] = []
    if tangents[0] is not None:
        parts.append(ragged_dot(tangents[0], y, group_sizes, **attributes))
    if tangents[1] is not None:
        parts.append(ragged_dot(x, tangents[1], group_sizes, **attributes))
    return elementwise.add(*parts) if len(parts) == 2 else parts[0] if parts else None


def _vjp(g: Value, ans: Value, x: Value, y: Value, group_sizes: Value, **attributes: Any) -> tuple[Value, Value, None]:
    dims = RaggedDot(**attributes)
    if g.dtype != x.dtype:
        g = elementwise.convert(g, new_element_type=element_type(x.dtype))
    if dims.mode == "batch":
        plain = dims.dot._asdict()
        return dot_left(g, x, y, **plain), dot_right(g, x, y, **plain), None
    cotangents = _vjp_of_free if dims.mode == "free" else _vjp_of_contracting
    return (*cotangents(g, x, y, group_sizes, dims._replace(preferred_element_type=None)), None)


def _vjp_of_free(g: Value, x: Value, y: Value, group_sizes: Value, dims: RaggedDot) -> tuple[Value, Value]:
    """g is [batch, free of x, free of y]. Each of its rows goes back through the part of y of its group; and for each
    group there is a product of the rows of x and of g."""
    count = len(dims.lhs_batch_dims)
    batch, end = tuple(range(count)), g.ndim
    x_free = free_dimensions(x.ndim, dims.lhs_contracting_dims, dims.lhs_batch_dims)
    y_free = free_dimensions(y.ndim, dims.rhs_contracting_dims, (*dims.rhs_batch_dims, *dims.rhs_group_dims))
    inner = tuple(range(count, count + len(x_free)))  # of g: the free dimensions of x
    to_left = dims._replace(
        lhs_contracting_dims=tuple(range(count + len(x_free), end)),
        rhs_contracting_dims=y_free,
        lhs_batch_dims=batch,
        lhs_ragged_dims=(inner[x_free.index(dims.ragged)],),
    )
    to_right = dims._replace(
        lhs_contracting_dims=x_free, rhs_contracting_dims=inner, rhs_batch_dims=batch, rhs_group_dims=()
    )
    pairs = list(zip(dims.lhs_contracting_dims, dims.rhs_contracting_dims, strict=True))
    left_stands = (*dims.lhs_batch_dims, *x_free, *(i for i, _ in sorted(pairs, key=lambda p: p[1])))
    right_stands = (*dims.rhs_group_dims, *dims.rhs_batch_dims, *(j for _, j in sorted(pairs)), *y_free)
    left = ragged_dot(g, y, group_sizes, **to_left._asdict())
    right = ragged_dot(x, g, group_sizes, **to_right._asdict())
    return (
        movement.transpose_to(left, movement.inverse_permutation(left_stands)),
        movement.transpose_to(right, movement.inverse_permutation(right_stands)),
    )


def _vjp_of_contracting(g: Value, x: Value, y: Value, group_sizes: Value, dims: RaggedDot) -> tuple[Value, Value]:
    """g is [groups, batch, free of x, free of y]: each index of the ragged dimension goes back through its group."""
    count, inner = len(dims.lhs_batch_dims), len(dims.lhs_contracting_dims)
    x_order = (*dims.lhs_batch_dims, *dims.lhs_contracting_dims)
    y_order = (*dims.rhs_batch_dims, *dims.rhs_contracting_dims)
    x_free, y_free = (free_dimensions(v.ndim, order, ()) for v, order in ((x, x_order), (y, y_order)))
    x_place = 1 + count  # where the free dimensions of x begin in g
    y_place = x_place + len(x_free)
    found: list[Value] = []
    for own, own_free, other, other_order, other_free, at in (
        (x_order, x_free, y, y_order, y_free, y_place),
        (y_order, y_free, x, x_order, x_free, x_place),
    ):
        back = RaggedDot(
            lhs_contracting_dims=tuple(range(count + inner, other.ndim)),
            rhs_contracting_dims=tuple(range(at, at + len(other_free))),
            lhs_batch_dims=tuple(range(count)),
            rhs_batch_dims=tuple(range(1, x_place)),
            lhs_ragged_dims=(x_order.index(dims.ragged),),
            rhs_group_dims=(0,),
            operand_precision=dims.operand_precision,
        )
        ordered = movement.transpose_to(other, (*other_order, *other_free))
        product = ragged_dot(ordered, g, group_sizes, **back._asdict())
        found.append(movement.transpose_to(product, movement.inverse_permutation((*own, *own_free))))
    return found[0], found[1]


def _ragged_dot_batch(
    size: int, operands: tuple[Value, Value, Value], axes: Axes, **attributes: Any
) -> tuple[Value, int]:
    """The mapped axis becomes the first batch dimension of both operands, and of group sizes that differ along it."""
    (x, y, group_sizes), dims = operands, RaggedDot(**attributes)
    prefix = dims.prefix(x.ndim - (axes[0] is not None))
    x, y = (movement.align_axis(v, axis, 0, size) for v, axis in zip((x, y), axes, strict=False))
    if axes[2] is not None or group_sizes.ndim > 1:
        group_sizes = movement.align_axis(group_sizes, axes[2], 0, size)
        if group_sizes.ndim == 2 and prefix:
            full = (size, *(x.shape[d + 1] for d in prefix), group_sizes.shape[-1])
            group_sizes = movement.broadcast(group_sizes, sizes=full, dimensions=(0, len(full) - 1))
    moved = dict(zip(dims._fields[:6], (tuple(d + 1 for d in each) for each in dims[:6]), strict=True))
    for side in ("lhs_batch_dims", "rhs_batch_dims"):
        moved[side] = (0, *moved[side])
    found = ragged_dot(x, y, group_sizes, **(attributes | moved))
    return found, 1 if dims.mode == "contracting" else 0


def _ragged_dot_samples(random: np.random.Generator) -> Iterator[Sample]:
    rows, depth, batch = RaggedDot((1,), (1,), (0,), rhs_group_dims=(0,)), RaggedDot((1,), (0,), (1,)), (0,)
    for lhs, rhs, sizes, dims in (
        ((4, 2), (3, 2, 2), [1, 0, 2], rows),
        ((2, 4), (4, 3), [2, 1], depth),
        ((2, 2, 2), (2, 2, 1), [1, 1], RaggedDot((2,), (1,), (0,), batch, batch)),
        ((2, 3, 2), (2, 1, 2, 2), [[1, 2], [3, 0]], RaggedDot((2,), (2,), (1,), batch, (0,), (3,))),
        ((2, 2, 3), (3, 2, 1), [[2], [1]], RaggedDot((1, 2), (1, 0), (2,))),
        ((0, 2), (1, 2, 2), [0], rows),
    ):
        for dtype in (np.float32, element_type("bf16").dtype, np.int32):
            x, y = (elementwise.sample_array(random, dtype, shape, -3, 3) for shape in (lhs, rhs))
            yield Sample((x, y, np.array(sizes, np.int32)), dims._asdict())
    x, y = (elementwise.sample_array(random, np.int8, shape, -100, 100) for shape in ((3, 2), (2, 2, 1)))
    wide = rows._replace(preferred_element_type=element_type("s32"), operand_precision=("default", "highest"))
    yield Sample((x, y, np.array([1, 2], np.uint8)), wide._asdict())


def _ragged_dot_factors(x: Shape, y: Shape, group_sizes: Shape, **attributes: Any) -> Factors:
    """Those of the product, where what is ragged and the groups are whole."""
    dims = RaggedDot(**attributes)
    plain = dot_factors(x, y, **dims.dot._asdict())
    (lhs, rhs), (result,) = plain.operands, plain.results
    prefix = tuple(lhs[d] for d in dims.prefix(x.rank)) if group_sizes.rank > 1 else ()
    if dims.mode == "free":
        at = dims.result_groups(x.rank, y.rank)
        result = (*result[:at], *result[at + 1 :])
    if dims.mode == "contracting":
        result = (None, *result)
    made = plain._replace(operands=(lhs, rhs, (*prefix, None)), results=(result,))
    whole = {lhs[dims.ragged], *(rhs[d] for d in dims.rhs_group_dims)}
    return made.without({factor for factor in whole if factor is not None})


ragged_dot = Op(
    "ragged-dot",
    sharding=_ragged_dot_factors,
    attributes=RaggedDot,
    shape=_ragged_dot_shape,
    evaluate=_ragged_dot_evaluate,
    derivative=Rules(_jvp, _vjp),
    batch=_ragged_dot_batch,
    samples=_ragged_dot_samples,
)
