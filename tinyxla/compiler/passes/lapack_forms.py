"""Factorizations as calls of LAPACK's routines, for programs in StableHLO that others run on CPUs.

The forms are those of JAX's programs: the routine, NaN where its `info` says that there is no result, and constants
where a matrix has no elements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinyxla.compiler.rewriter import Rewriter, rewrite
from tinyxla.hlo import Computation, Instruction, map_computations
from tinyxla.ops import elementwise, movement, ops
from tinyxla.ops.linalg.factorizations import of_type
from tinyxla.ops.linalg.lapack import call
from tinyxla.ops.linalg.linear_algebra import triangle
from tinyxla.ops.reduction import reduce_sum
from tinyxla.shapes import Shape, TupleShape, element_type
from tinyxla.shapes.symbolic import min_dim
from tinyxla.tracing.core import trace, without_lines
from tinyxla.transforms.computations import of_one


def expand_factorizations(computation: Computation) -> Computation:
    """The computation with calls of LAPACK in the place of factorizations, in loops and branches too."""
    if computation.all_opcodes.isdisjoint(_FORMS):
        return computation

    def visit(rewriter: Rewriter, x: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        form = _FORMS.get(x.op.name)
        if form is not None:
            root = rewriter.splice(_form(form, x), operands, lambda *_: None)
            return root if isinstance(x.shape, TupleShape) else root.operands[0]
        if any(x.computations()):
            return rewriter.emit(x.op, *operands, **map_computations(x.attributes._asdict(), expand_factorizations))
        return None

    return rewrite(computation, visit)


def _form(form: Callable[..., Sequence[Any]], x: Instruction) -> Computation:
    shapes = [o.shape for o in x.operands]
    return without_lines(lambda: trace(lambda *values: form(*values, **x.attributes._asdict()), shapes, x.op.name)[0])


def _in_lapack_type(function: Callable[..., Sequence[Any]]) -> Callable[..., Sequence[Any]]:
    """The form for a type that LAPACK has; of a narrower one results are converted back."""

    def form(a: Any, **attributes: Any) -> Sequence[Any]:
        if a.dtype.itemsize >= 4:
            return function(a, **attributes)
        wide = elementwise.convert(a, new_element_type=element_type(np.float32))
        return [of_type(x, a) if x.dtype == np.float32 else x for x in function(wide, **attributes)]

    return form


def _eye(like: Any, rows: Any, columns: Any) -> Any:
    """Identity matrices with the batch dimensions and the type of an array."""
    sizes = (*like.shape[:-2], rows, columns)
    row, column = (
        movement.iota(shape=Shape(element_type(np.int32), sizes), iota_dimension=len(sizes) - k) for k in (2, 1)
    )
    return elementwise.convert(elementwise.eq(row, column), new_element_type=element_type(like.dtype))


def _lu(a: Any) -> Sequence[Any]:
    factors, pivots = call("getrf", a)
    pivots = elementwise.sub(pivots, elementwise.one_like(pivots))
    return factors, pivots, *_permutation(pivots, permutation_size=a.shape[-2])


def _permutation(pivots: Any, *, permutation_size: Any) -> Sequence[Any]:
    """The exchanges one after the other; elements are found and set where an index is theirs."""
    order = _indices((*pivots.shape[:-1], permutation_size))
    count = pivots.shape[-1]
    if isinstance(count, int) and count == 0:
        return (order,)
    counter = movement.full(0, np.int32)
    shapes = [Shape.of(x) for x in (counter, order, pivots)]

    def exchange(k: Any, order: Any, pivots: Any) -> Sequence[Any]:
        at = _spread(k, order.shape)
        there = _spread(_at(pivots, _spread(k, pivots.shape)), order.shape)
        first, second = (_spread(_at(order, index), order.shape) for index in (at, there))
        own = _indices(order.shape)
        moved = elementwise.select(elementwise.eq(own, there), first, order)
        moved = elementwise.select(elementwise.eq(own, at), second, moved)
        return [elementwise.add(k, elementwise.one_like(k)), moved, pivots]

    end = movement.symbolic_size(size=count) if not isinstance(count, int) else count
    condition = of_one(
        lambda k, *_: elementwise.lt(k, movement.full(end, np.int32) if isinstance(end, int) else end),
        shapes,
        "exchanges_remain",
    )
    body = trace(exchange, shapes, "exchange")[0]
    return (ops["while"](counter, order, pivots, condition=condition, body=body)[1],)


def _indices(sizes: Sequence[Any]) -> Any:
    """The index along the last dimension."""
    return movement.iota(shape=Shape(element_type(np.int32), tuple(sizes)), iota_dimension=len(sizes) - 1)


def _spread(x: Any, sizes: Sequence[Any]) -> Any:
    """An array along new dimensions behind its own."""
    return movement.broadcast(x, sizes=tuple(sizes), dimensions=tuple(range(x.ndim)))


def _at(x: Any, index: Any) -> Any:
    """The elements at an index along the last dimension."""
    chosen = elementwise.select(elementwise.eq(_indices(x.shape), index), x, elementwise.zeros_like(x))
    return reduce_sum(chosen, (x.ndim - 1,))


def _qr(a: Any, *, full_matrices: bool) -> Sequence[Any]:
    m, n = a.shape[-2:]
    inner = m if full_matrices else min_dim(m, n)
    if 0 in (m, n):
        return _eye(a, m, inner), movement.full(0, a.dtype, (*a.shape[:-2], inner, n))
    factors, taus = call("geqrf", a)
    wide = ((0, 0, 0),) * (a.ndim - 1)
    columns = movement.slice_axis(factors, a.ndim - 1, 0, min_dim(inner, n))
    grown = movement.pad(columns, movement.full(0, a.dtype), padding_config=(*wide, (0, inner - min_dim(inner, n), 0)))
    (q,) = call("orgqr", grown, taus)
    return q, triangle(movement.slice_axis(factors, a.ndim - 2, 0, inner), lower=False)


def _eigh(a: Any, *, lower: bool) -> Sequence[Any]:
    if a.shape[-1] == 0:
        return a, elementwise.real(reduce_sum(a, (a.ndim - 1,)))
    return call("syevd", a, options=("V", "L" if lower else "U"))


def _svd(a: Any, *, full_matrices: bool) -> Sequence[Any]:
    m, n = a.shape[-2:]
    if 0 in (m, n):
        left, right = (m, n) if full_matrices else (0, 0)
        none = movement.full(0, elementwise.real(a).dtype, (*a.shape[:-2], 0))
        return _eye(a, m, left), none, _eye(a, right, n)
    _, values, left, right = call("gesdd", a, options=("A" if full_matrices else "S",))
    return left, values, right


def _eig(a: Any) -> Sequence[Any]:
    *values, _, vectors = call("geev", a, options=("N", "V"))
    return vectors, values[0] if len(values) == 1 else elementwise.complex_(*values)


_FORMS: dict[str, Callable[..., Sequence[Any]]] = {
    "LuDecomposition": _in_lapack_type(_lu),
    "LuPivotsToPermutation": _permutation,
    "Qr": _in_lapack_type(_qr),
    "Eigh": _in_lapack_type(_eigh),
    "Svd": _in_lapack_type(_svd),
    "Eig": _in_lapack_type(_eig),
}
