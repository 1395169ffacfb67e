"""`sparsify`: functions of dense arrays, run on sparse ones.

The function is recorded as a graph for the dense shapes of its arguments, and the graph's operations are applied to
BCOO arrays. In a chain of element-wise operations the elements that are not specified are one number, the background:
when such a value is used otherwise, the background must be zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinyxla import lax, numpy as tnp
from tinyxla.api.functions import OfLeaves, check_callable, name_of
from tinyxla.experimental.sparse import contraction, movement as moving
from tinyxla.experimental.sparse.api import DENSE
from tinyxla.experimental.sparse.bcoo import (
    BCOO,
    bcoo_sum_duplicates,
    bcoo_transpose,
    bcoo_update_layout,
    masked,
)
from tinyxla.experimental.sparse.bcsr import BCSR
from tinyxla.experimental.sparse.control_flow import conditional_rule, while_rule
from tinyxla.experimental.sparse.util import JAXSparse
from tinyxla.experimental.sparse.values import Spread, Values, Wide, dense, known_number, plain, refused
from tinyxla.hlo import Computation, Instruction
from tinyxla.ops import elementwise, reduction
from tinyxla.ops.calls import get_tuple_element, tuple_
from tinyxla.ops.movement import constant
from tinyxla.shapes import Shape
from tinyxla.shapes.window import WindowDimension
from tinyxla.tracing import pytrees, wrap
from tinyxla.tracing.array import Array
from tinyxla.tracing.core import state, trace
from tinyxla.tracing.promotion import as_array
from tinyxla.transforms.calls import grouped
from tinyxla.transforms.computations import results
from tinyxla.util.wrapping import transformed


def sparsify(f: Callable[..., Any], use_tracer: bool = False) -> Callable[..., Any]:
    """A function of dense arrays as one that also takes sparse arrays, and computes with their elements alone.

    Args:
        f: of pytrees of arrays. It is traced, as by `jit`.
        use_tracer: accepted for JAX's sake.

    Returns:
        A function of pytrees of arrays, BCOO and BCSR arrays. What it gives is sparse where that follows from sparse
        arguments: by element-wise functions that are zero at zero, products, sums over axes, transposes, slices and
        the like, also in loops and branches. Products with dense arrays and sums with such are dense.

    Raises:
        ArgumentError: an operation that has no sparse form, or whose result would have no zeros; `todense` says that
            a dense array is meant.

    Example:
        >>> import tinyxla as tx
        >>> from tinyxla.experimental import sparse
        >>> m = sparse.BCOO.fromdense(tx.numpy.array([[0.0, 1.0], [2.0, 0.0]]))
        >>> sparse.sparsify(lambda m, v: tx.numpy.dot(tx.numpy.log1p(m.T), v))(m, tx.numpy.ones(2))
        Array([1.0986123, 0.6931472], dtype=float32)
    """
    check_callable("sparsify", f)

    @transformed("sparsify", f)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return _applied(f, args, kwargs)

    return wrapped


def _applied(f: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    leaves, structure = pytrees.flatten((args, kwargs), lambda x: isinstance(x, JAXSparse))
    places = [k for k, x in enumerate(leaves) if isinstance(x, (JAXSparse, Array, np.ndarray, np.generic))]
    inputs = [_operand(leaves[k]) for k in places]
    flat = OfLeaves(f, structure, named=True)

    def function(*given: Any) -> list[Any]:
        whole = list(leaves)
        for k, x in zip(places, given, strict=True):
            whole[k] = x
        return flat(*whole)

    shapes = [Shape.of(x) for x in inputs]
    weak = [bool(getattr(x, "weak_type", False)) for x in inputs]
    name = name_of(f)
    computation, captured, _ = trace(function, shapes, name, weak, f"the sparsified function {name}")
    outputs = [plain(x) for x in evaluate(computation, [*inputs, *captured])]
    if any(isinstance(x, BCSR) for x in leaves) and not any(isinstance(x, BCOO) for x in leaves):
        outputs = [BCSR.from_bcoo(x) if isinstance(x, BCOO) and x.n_sparse == 2 else x for x in outputs]
    return flat.result(outputs)


def _operand(x: Any) -> Any:
    if isinstance(x, BCSR):
        return x.to_bcoo()
    if isinstance(x, JAXSparse):
        return x if isinstance(x, BCOO) else x.to_bcoo()  # type: ignore[attr-defined] - COO, CSR and CSC have it
    return as_array(x)


def _apply(function: Callable[..., Any], *operands: Any) -> Any:
    """The result of a function of dense arrays for operands that may be sparse: `sparsify(function)(*operands)`.

    Args:
        function: a function of arrays.
        *operands: arrays, dense or sparse.

    Returns:
        What the function gives, with sparse arrays where these are kept sparse.

    Raises:
        ArgumentError: what is no function, or one whose value at zero is not 0.
        DTypeError: an operand that is no array or number.

    >>> import tinyxla.numpy as jnp
    >>> from tinyxla.experimental import sparse
    >>> sparse.JAXSparse.apply(jnp.sin, sparse.BCOO.fromdense(jnp.array([0.0, 3.0])))
    BCOO(float32[2], nse=1)
    """
    check_callable("JAXSparse.apply", function)
    return _applied(function, operands, {})


JAXSparse.apply = staticmethod(_apply)


Unique = dict[int, tuple[BCOO, BCOO]]  # for arrays with duplicates, those without; the first outlives its id


def evaluate(computation: Computation, operands: Sequence[Any], unique: Unique | None = None) -> tuple[Any, ...]:
    """The results of a computation on values of which some are sparse."""
    values: dict[Instruction, Any] = dict(zip(computation.parameters, operands, strict=True))
    unique = {} if unique is None else unique
    outer = state.source
    try:
        for x in computation.instructions:
            if x not in values:
                state.source = x.source or outer
                values[x] = _value(x, [values[o] for o in x.operands], unique)
    finally:
        state.source = outer
    return results(values[computation.root])


def _value(x: Instruction, operands: Values, unique: Unique) -> Any:
    given = x.attributes._asdict()
    if x.op in (tuple_, get_tuple_element):
        return x.op(*operands, **given)
    if x.op.name == "broadcast" and not isinstance(operands[0], (BCOO, Wide)):
        return Spread.of(operands[0], **given)
    if x.op.name == "call":
        found = evaluate(x.attributes.to_apply, operands, unique)
        return grouped(x.attributes.to_apply, found)
    nested = _NESTED.get(x.op.name)
    if nested is not None:
        return nested(evaluate, x, operands)
    if not any(isinstance(o, (BCOO, Wide)) for o in operands):
        return _of_dense(x, operands)
    if x.op.name in elementwise.NAMES:
        return _elementwise(x, operands, unique)
    rule = _RULES.get(x.op.name)
    found = None if rule is None else rule(x, [plain(o) for o in operands])
    if found is None:
        raise refused(f"{x.op.name} has no form for sparse arrays")
    return found


def _of_dense(x: Instruction, operands: Values) -> Any:
    """An operation on dense values. Numbers that are known stay known, also in compiled functions."""
    given = x.attributes._asdict()
    if x.op is constant:
        return wrap(given["literal"].value)
    splats = [o.splat if isinstance(o, Spread) else known_number(o) for o in operands]
    if operands and x.op.name in elementwise.NAMES and all(s is not None for s in splats):
        with np.errstate(all="ignore"):
            number = x.op.evaluate(*(np.asarray(s, o.dtype) for s, o in zip(splats, operands, strict=True)), **given)
        sizes = x.array_shape.dimensions
        return Spread.of(wrap(np.asarray(number)), sizes=sizes, dimensions=()) if sizes else wrap(np.asarray(number))
    return x.op(*(dense(o) for o in operands), **given)


# --- element by element -----------------------------------------------------------------------------------------------

_LINEAR = ("negate", "real", "imag", "convert")


def _elementwise(x: Instruction, operands: Values, unique: Unique) -> Any:
    others = [o for o in operands if not isinstance(o, (BCOO, Wide))]
    splats = [o.splat if isinstance(o, Spread) else known_number(o) for o in others]
    if all(s is not None for s in splats):
        without_duplicates = [unique[id(o)][1] if id(o) in unique else o for o in operands]
        for versions in (operands, without_duplicates):
            if _have_equal_indices([o for o in versions if isinstance(o, (BCOO, Wide))]):
                return _with_background(x, versions, unique)
    values = [plain(o) if isinstance(o, (BCOO, Wide)) else o for o in operands]
    rule = _BINARY.get(x.op.name)
    if x.op is elementwise.select:
        found = _select(*values)
        if found is not None:
            return found
    if rule is None:
        raise refused(f"{x.op.name} of sparse and dense arrays, or of sparse arrays with other indices")
    return rule(*values)


def _have_equal_indices(values: Values) -> bool:
    mats = [o.mat if isinstance(o, Wide) else o for o in values]
    return all(m.indices is mats[0].indices and m.data.shape == mats[0].data.shape for m in mats)


def _with_background(x: Instruction, operands: Values, unique: Unique) -> Any:
    """The operation on the elements, and on the number that stands for all others."""
    first = next(o for o in operands if isinstance(o, (BCOO, Wide)))
    mat = first.mat if isinstance(first, Wide) else first
    linear = x.op.name in (*_LINEAR, "multiply") or (x.op.name == "divide" and first is operands[0])
    linear = (
        linear and not any(isinstance(o, Wide) for o in operands) and sum(isinstance(o, BCOO) for o in operands) == 1
    )
    if not linear and not mat.unique_indices:
        operands = [_unique(o, unique) if isinstance(o, BCOO) else o for o in operands]
        mat = next(o.mat if isinstance(o, Wide) else o for o in operands if isinstance(o, (BCOO, Wide)))
    data: list[Any] = []
    backgrounds: list[Any] = []
    for o in operands:
        if isinstance(o, (BCOO, Wide)):
            own = o.mat if isinstance(o, Wide) else o
            data.append(own.data)
            backgrounds.append(o.background if isinstance(o, Wide) else np.zeros((), own.dtype)[()])
        else:
            splat = o.splat if isinstance(o, Spread) else known_number(o)
            data.append(tnp.full(mat.data.shape, splat, o.dtype))
            backgrounds.append(splat)
    with np.errstate(all="ignore"):
        background = x.op.evaluate(*map(np.asarray, backgrounds), **x.attributes._asdict())
    made = mat.with_buffers(x.op(*data, **x.attributes._asdict()))
    return Wide.of(made, np.asarray(background)[()])


def _unique(mat: BCOO, unique: Unique) -> BCOO:
    found = unique.get(id(mat))
    if found is None:
        found = unique[id(mat)] = (mat, bcoo_sum_duplicates(mat, mat.nse if mat.n_sparse else 1))
    return found[1]


def _add(x: Any, y: Any) -> Any:
    if isinstance(x, BCOO) and isinstance(y, BCOO):
        if x.indices is y.indices and x.data.shape == y.data.shape:
            return x.with_buffers(x.data + y.data)
        if (x.n_batch, x.n_dense) != (y.n_batch, y.n_dense):
            x, y = (bcoo_update_layout(m, n_batch=0, n_dense=0) for m in (x, y))
        parts = [moving.whole_batches(m) for m in (x, y)]
        data = tnp.concatenate([m.data for m in parts], x.n_batch)
        return BCOO((data, tnp.concatenate([m.indices for m in parts], x.n_batch)), shape=x.shape)
    sparse, other = (x, y) if isinstance(x, BCOO) else (y, x)
    if isinstance(other, Spread):
        raise refused("the sum of a sparse array and one that is broadcast would be dense")
    return sparse.todense() + other


def _subtract(x: Any, y: Any) -> Any:
    if isinstance(y, BCOO):
        return _add(x, y.with_buffers(-y.data))
    if isinstance(y, Spread):
        raise refused("the difference of a sparse array and one that is broadcast would be dense")
    return x.todense() - y


def _multiply(x: Any, y: Any) -> Any:
    if isinstance(x, BCOO) and isinstance(y, BCOO):
        if x.indices is y.indices and x.unique_indices:
            return x.with_buffers(x.data * y.data)
        return contraction.bcoo_multiply_sparse(x, y)
    mat, other = (x, y) if isinstance(x, BCOO) else (y, x)
    factor = other.narrow if isinstance(other, Spread) else other
    data = contraction.bcoo_multiply_dense(mat, factor)
    return mat.with_buffers(data)


def _divide(x: Any, y: Any) -> Any:
    if isinstance(y, BCOO):
        raise refused("the quotient by a sparse array would be dense")
    divisor = y.narrow if isinstance(y, Spread) else y
    if tnp.issubdtype(divisor.dtype, tnp.inexact):
        return _multiply(x, 1 / divisor)
    raise refused("the quotient of integers")


_BINARY = {"add": _add, "subtract": _subtract, "multiply": _multiply, "divide": _divide}


# --- other operations -------------------------------------------------------------------------------------------------


def _dot(x: Instruction, operands: Values) -> Any:
    given = x.attributes
    contracted = (given.lhs_contracting_dims, given.rhs_contracting_dims)
    numbers = (contracted, (given.lhs_batch_dims, given.rhs_batch_dims))
    lhs, rhs = (o if isinstance(o, BCOO) else dense(o) for o in operands)
    kind = x.array_shape.dtype
    found = contraction.bcoo_dot_general(lhs, rhs, dimension_numbers=numbers, preferred_element_type=kind)
    return found.with_buffers(found.data.astype(kind)) if isinstance(found, BCOO) else found.astype(kind)


def _transpose(x: Instruction, operands: Values) -> Any:
    (mat,), order = operands, x.attributes.permutation
    n, s = mat.n_batch, mat.n_sparse
    if sorted(order[:n]) != list(range(n)) or sorted(order[n : n + s]) != list(range(n, n + s)):
        mat = bcoo_update_layout(mat, n_batch=0, n_dense=0)
    return bcoo_transpose(mat, permutation=order)


def _reshape(x: Instruction, operands: Values) -> Any:
    (mat,), sizes = operands, x.attributes.sizes
    if not moving.may_reshape(mat, sizes):
        mat = bcoo_update_layout(mat, n_batch=0, n_dense=0)
    return moving.bcoo_reshape(mat, new_sizes=sizes)


def _reduce(x: Instruction, operands: Values) -> Any:
    if len(operands) != 2 or isinstance(operands[1], BCOO):
        return None
    mat, initial = operands
    if reduction.monoid(x.attributes.to_apply) != "add" or known_number(initial) != 0:
        return None
    found = moving.bcoo_reduce_sum(mat, axes=x.attributes.dimensions)
    return found if found.ndim else found.todense()


def _concatenate(x: Instruction, operands: Values) -> Any:
    if not all(isinstance(o, BCOO) for o in operands):
        raise refused("concatenate of sparse and dense arrays")
    d = x.attributes.dimension
    same = {(o.n_batch, o.n_dense) for o in operands}
    if len(same) > 1 or any(d >= o.n_batch + o.n_sparse for o in operands):
        operands = [bcoo_update_layout(o, n_batch=0, n_dense=0) for o in operands]
    return moving.bcoo_concatenate(operands, dimension=d)


def _gather(x: Instruction, operands: Values) -> Any:
    given, (mat, indices) = x.attributes, operands
    if given.operand_batching_dims or isinstance(indices, BCOO):
        return None
    vectors = dense(indices)
    last = vectors.ndim - 1
    vectors = vectors[..., None] if given.index_vector_dim > last else tnp.moveaxis(vectors, given.index_vector_dim, -1)
    numbers = lax.GatherDimensionNumbers(given.offset_dims, given.collapsed_slice_dims, given.start_index_map)
    return moving.bcoo_gather(mat, vectors, numbers, given.slice_sizes, mode="clip")


def _convolution(x: Instruction, operands: Values) -> Any:
    given = x.attributes
    trivial = {"size": 0, "padding_low": 0, "padding_high": 0}
    plain_window = len(given.window) == 1 and given.window[0]._replace(**trivial) == WindowDimension(0)
    spatial_last = all(spec == (0, 1, 2) for spec in given.dim_labels)
    if not plain_window or not spatial_last or given.groups != 1:
        return None
    (w,) = given.window
    lhs, rhs = (o if isinstance(o, BCOO) else dense(o) for o in operands)
    return moving.bcoo_conv_general_dilated(
        lhs, rhs, window_strides=(w.stride,), padding=[(w.padding_low, w.padding_high)]
    )


def _named(x: Instruction, operands: Values) -> Any:
    return operands[0].todense() if x.attributes.name == DENSE else operands[0]


def _any(x: Instruction, operands: Values) -> Any:
    return operands[0]


def _select(mask: Any, on_true: Any, on_false: Any) -> Any:
    """Where a dense mask chooses between a sparse array and zeros."""
    if isinstance(mask, BCOO) or isinstance(on_false, BCOO) or not isinstance(on_true, BCOO):
        return None
    if known_number(on_false) != 0:
        return None
    inside = contraction.bcoo_multiply_dense(on_true.with_buffers(tnp.ones_like(on_true.data)), dense(mask).astype(int))
    return on_true.with_buffers(masked(on_true.data, inside != 0))


_RULES: dict[str, Callable[[Instruction, Values], Any]] = {
    "dot": _dot,
    "transpose": _transpose,
    "reshape": _reshape,
    "reduce": _reduce,
    "concatenate": _concatenate,
    "gather": _gather,
    "convolution": _convolution,
    "checkpoint-name": _named,
    "copy": _any,
    "convert": lambda x, o: o[0].with_buffers(x.op(o[0].data, **x.attributes._asdict())),
    "broadcast": lambda x, o: moving.bcoo_broadcast_in_dim(
        o[0], shape=x.attributes.sizes, broadcast_dimensions=x.attributes.dimensions
    ),
    "slice": lambda x, o: moving.bcoo_slice(o[0], **x.attributes._asdict()),
    "reverse": lambda x, o: moving.bcoo_rev(o[0], x.attributes.dimensions),
    "dynamic-slice": lambda x, o: moving.bcoo_dynamic_slice(
        o[0], [dense(s) for s in o[1:]], x.attributes.dynamic_slice_sizes
    ),
}


_NESTED: dict[str, Callable[[Any, Instruction, Values], Any]] = {
    "while": while_rule,
    "conditional": conditional_rule,
}
