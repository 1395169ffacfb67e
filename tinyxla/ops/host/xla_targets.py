"""The functions that programs of XLA's CPU backend call by name: LAPACK's, and a few of the compiler's own.

They are found when no function of that name has been registered. Matrices are read and written as a whole here, so what
the text says of layouts and of memory that is shared does not matter.

Source: the names and their attributes are those in the HLO text of programs for CPU; "LAPACK Users' Guide" for the
functions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinyxla.errors import AttributeValueError
from tinyxla.ops import sorting
from tinyxla.ops.host.custom_call import CustomCall, Target, known_targets
from tinyxla.ops.linalg import linear_algebra
from tinyxla.ops.op import Array
from tinyxla.runtime.imports import requiring
from tinyxla.shapes import Shape, TupleShape


def _options(attributes: CustomCall) -> dict[str, str]:
    """The letters that LAPACK takes for what to do, from `{uplo = 76 : ui8}`."""
    return {name: chr(int(code)) for name, code in re.findall(r"(\w+) = (\d{1,3}) : ui8", attributes.backend_config)}


def _each(compute: Callable[..., Sequence[Any]], *operands: Array, ranks: Sequence[int]) -> tuple[Array, ...]:
    """The results for each of the operands, whose last dimensions are a matrix, or as many as `ranks` say; stacked."""
    batch = operands[0].shape[: operands[0].ndim - ranks[0]]
    found = [compute(*(x[k] for x in operands)) for k in np.ndindex(*batch)]
    if not found:
        raise AttributeValueError("custom-call: LAPACK's functions take at least one matrix, but got an empty batch.")
    return tuple(np.stack(column).reshape((*batch, *np.shape(column[0]))) for column in zip(*found, strict=True))


def _lapack(name: str) -> Callable[..., Any]:
    with requiring("scipy.linalg.lapack", "SciPy", f"custom-call of LAPACK's {name}"):
        import scipy.linalg.lapack  # here, since importing it costs more than importing this package

    return getattr(scipy.linalg.lapack, name)


def _info(code: Any) -> Array:
    return np.asarray(code, np.int32)


def _potrf(name: str, a: Array, attributes: CustomCall) -> Any:
    factor = linear_algebra.cholesky.evaluate(a, lower=_options(attributes)["uplo"] == "L")
    return factor, np.any(np.isnan(factor), axis=(-2, -1)).astype(np.int32)


_TRANSPOSED = {"N": "NO_TRANSPOSE", "T": "TRANSPOSE", "C": "ADJOINT"}


def _trsm(name: str, a: Array, b: Array, attributes: CustomCall) -> Any:
    options = _options(attributes)
    return linear_algebra.triangular_solve.evaluate(
        a,
        b,
        left_side=options["side"] == "L",
        lower=options["uplo"] == "L",
        unit_diagonal=options["diag"] == "U",
        transpose_a=_TRANSPOSED[options["trans_x"]],
    )


def _getrf(name: str, a: Array, attributes: CustomCall) -> Any:
    def one(x: Array) -> Sequence[Any]:
        factors, pivots, code = _lapack(name)(x)
        return factors, (pivots + 1).astype(np.int32), _info(max(code, 0))

    return _each(one, a, ranks=[2])


def _geqrf(name: str, a: Array, attributes: CustomCall) -> Any:
    return _each(lambda x: _lapack(name)(x)[:2], a, ranks=[2])


def _orgqr(name: str, a: Array, tau: Array, attributes: CustomCall) -> Any:
    return _each(lambda x, t: _lapack(name)(x, t)[:1], a, tau, ranks=[2, 1])[0]


def _syevd(name: str, a: Array, attributes: CustomCall) -> Any:
    options = _options(attributes)

    def one(x: Array) -> Sequence[Any]:
        values, vectors, code = _lapack(name)(x, compute_v=options["mode"] == "V", lower=options["uplo"] == "L")
        return vectors, values, _info(code)

    return _each(one, a, ranks=[2])


def _gesdd(name: str, a: Array, attributes: CustomCall) -> Any:
    mode = _options(attributes)["mode"]
    assert isinstance(attributes.shape, TupleShape), "it has several results"
    unused = [x.dimensions[-2:] for x in attributes.shape.elements[2:4]]  # pyright: ignore[reportAttributeAccessIssue]

    def one(x: Array) -> Sequence[Any]:
        left, values, right, code = _lapack(name)(x, compute_uv=mode != "N", full_matrices=mode == "A")
        if mode == "N":
            left, right = (np.zeros(sizes, x.dtype) for sizes in unused)
        return x, values, left, right, _info(code)

    return _each(one, a, ranks=[2])


def _geev(name: str, a: Array, attributes: CustomCall) -> Any:
    with requiring("scipy.linalg", "SciPy", f"custom-call of LAPACK's {name}"):
        import scipy.linalg  # here, since importing it costs more than importing this package

    def one(x: Array) -> Sequence[Any]:
        found: Any = scipy.linalg.eig(x, left=True, right=True)
        values, left, right = found
        kind = np.result_type(x.dtype, np.complex64)
        numbers = (values.real, values.imag) if x.dtype.kind == "f" else (values,)
        return *(v.astype(x.dtype) for v in numbers), left.astype(kind), right.astype(kind), _info(0)

    return _each(one, a, ranks=[2])


def _top_k(x: Array, attributes: CustomCall) -> Any:
    assert isinstance(attributes.shape, TupleShape), "it gives values and indices"
    count: int = attributes.shape.elements[0].dimensions[-1]  # pyright: ignore[reportAttributeAccessIssue]
    return sorting.topk.evaluate(x, k=count, largest=True)


def _same(x: Array, attributes: CustomCall) -> Any:
    return x


def _memory(attributes: CustomCall) -> Any:
    """Elements are arbitrary: who asks for them writes before reading."""
    assert isinstance(attributes.shape, Shape), "it gives one array"
    return np.empty(attributes.shape.dimensions, attributes.shape.dtype)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{f"{letter}potrf": _potrf for letter in "sdcz"},
    **{f"{letter}trsm": _trsm for letter in "sdcz"},
    **{f"{letter}getrf": _getrf for letter in "sdcz"},
    **{f"{letter}geqrf": _geqrf for letter in "sdcz"},
    **dict.fromkeys(("sorgqr", "dorgqr", "cungqr", "zungqr"), _orgqr),
    **dict.fromkeys(("ssyevd", "dsyevd", "cheevd", "zheevd"), _syevd),
    **{f"{letter}gesdd": _gesdd for letter in "sdcz"},
    **{f"{letter}geev": _geev for letter in "sdcz"},
}


def _named(name: str, function: Callable[..., Any]) -> Target:
    return Target(lambda *operands, attributes: function(name, *operands, attributes=attributes))


known_targets.update({f"lapack_{name}_ffi": _named(name, function) for name, function in _FUNCTIONS.items()})
known_targets["TopK"] = Target(_top_k)
known_targets["AllocateBuffer"] = Target(_memory)
for _name in ("Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "annotate_device_placement"):
    known_targets[_name] = Target(_same)
