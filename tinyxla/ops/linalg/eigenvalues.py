"""Eigenvalues and eigenvectors of general matrices, which XLA leaves to a custom call and LAPACK computes.

Vectors have length one. Their derivative leaves their phases as they are, and is for eigenvalues that differ.
"""

from __future__ import annotations

import numpy as np

from tinyxla.ops import elementwise, movement
from tinyxla.ops.linalg.factorizations import (
    by_lapack,
    columns_of,
    diagonal,
    identity,
    inverse_differences,
    of_type,
    rows_of,
    samples_of,
)
from tinyxla.ops.linalg.linear_algebra import in_lapack_type, matrix_product, square_operand, transposed
from tinyxla.ops.linalg.linear_solve import solve
from tinyxla.ops.op import Array, Op, Rules, Value, batches
from tinyxla.ops.reduction import reduce_sum
from tinyxla.shapes import AnyShape, Shape, TupleShape, element_type


def _eig_shape(a: AnyShape) -> TupleShape:
    shape = square_operand("Eig", a)
    kind = element_type(np.complex128 if shape.element_type.name in ("f64", "c128") else np.complex64)
    return TupleShape((Shape(kind, shape.dimensions), Shape(kind, shape.dimensions[:-1])))


def _eig_evaluate(a: Array) -> tuple[Array, ...]:
    wide = in_lapack_type(a)
    kind = np.result_type(wide.dtype, np.complex64)  # NumPy gives real numbers where all are
    return by_lapack(lambda x: tuple(part.astype(kind) for part in reversed(np.linalg.eig(x))), wide)


def _eig_jvp(tangents: tuple[Value], ans: tuple[Value, Value], a: Value) -> tuple[Value, Value]:
    """M. B. Giles, "An extended collection of matrix derivative results" (2008), section 3.1: with M = inv(V) dA V, the
    values change by its diagonal, the vectors by V times the other elements over differences of values. Of that, the
    part along a vector would change its length or its phase."""
    vectors, values = ans
    inside = solve(vectors, matrix_product(of_type(tangents[0], vectors), vectors), transpose_a=False)
    change = matrix_product(vectors, elementwise.chain_mul(inside, inverse_differences(values)))
    along = reduce_sum(elementwise.mul(elementwise.conj(vectors), change), (vectors.ndim - 2,))
    return elementwise.sub(change, elementwise.mul(vectors, columns_of(along, along.shape[-1]))), diagonal(inside)


def _eig_vjp(g: tuple[Value, Value], ans: tuple[Value, Value], a: Value) -> tuple[Value]:
    vectors, values = ans
    along = reduce_sum(elementwise.mul(g[0], vectors), (vectors.ndim - 2,))
    change = elementwise.sub(g[0], elementwise.mul(elementwise.conj(vectors), columns_of(along, along.shape[-1])))
    turn = matrix_product(transposed(vectors), change)
    inside = elementwise.add(
        elementwise.chain_mul(turn, inverse_differences(values)),
        elementwise.mul(rows_of(g[1], values.shape[-1]), identity(turn)),
    )
    whole = solve(vectors, matrix_product(inside, transposed(vectors)), transpose_a=True)
    return (of_type(whole if a.dtype.kind == "c" else elementwise.real(whole), a),)


eig = Op(
    "Eig",
    shape=_eig_shape,
    evaluate=_eig_evaluate,
    derivative=Rules(_eig_jvp, _eig_vjp),
    batch=movement.one_more_in_front(lambda: eig),
    sharding=lambda a: batches((a,), (2,), (2, 1)),
    samples=samples_of(((3, 3), (2, 2, 2), (0, 2, 2)), (np.float32, np.float16)),  # phases, a difference would see
)
