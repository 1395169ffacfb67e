"""LAPACK's routines as XLA's programs for CPUs call them: operands, options and results of each in one table.

`lapack` is the op of such a call, with all of the call's results, among them LAPACK's `info`. Programs in StableHLO and
HLO text have it as a custom call: reading, writing and evaluation of these follow from the table.

Matrices are the last two dimensions, the others are batch dimensions. Where a matrix is not finite, or an iteration
does not converge, results are what LAPACK leaves, and `info` is not 0.

Source: "LAPACK Users' Guide" for the routines; JAX's lowering rules for the order of operands and results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from tinyxla.errors import AttributeValueError, ShapeError
from tinyxla.ops import elementwise, movement
from tinyxla.ops.linalg import linear_algebra
from tinyxla.ops.linalg.factorizations import lapack_functions, samples_of
from tinyxla.ops.op import Array, Axes, Factors, NotDifferentiable, Op, Sample, batches
from tinyxla.shapes import AnyShape, ElementType, Shape, TupleShape, element_type
from tinyxla.shapes.symbolic import max_dim, min_dim

Compute = Callable[..., Sequence[Any]]  # of LAPACK's function for a type, the options and one matrix of each operand


class Routine(NamedTuple):
    """A routine of LAPACK.

    Attributes:
        compute: the results for one matrix of each operand.
        operands: the dimensions of each operand behind those of the batch, a letter for each.
        results: the same of the results, with `:real`, `:complex` or `:integer` where the element type is not that of
            the operands. Beside the operands' letters, `k` is the smaller of `m` and `n`, and `h` is `n - 1`.
        options: the names of options, which are letters.
        sizes: other attributes of the call, and the letters of the sizes that they are.
        of_complex, complex_results: the name and the results for complex matrices, where they are others.
        takes_infinities: whether it is called for matrices with infinities or NaNs, too.
    """

    compute: Compute
    operands: tuple[str, ...]
    results: tuple[str, ...]
    options: tuple[str, ...] = ()
    sizes: tuple[tuple[str, str], ...] = ()
    of_complex: str = ""
    complex_results: tuple[str, ...] = ()
    takes_infinities: bool = False


# --- results for one matrix -------------------------------------------------------------------------------------------


def _potrf(_: Any, options: dict[str, str], a: Array) -> Sequence[Any]:
    factor = linear_algebra.cholesky.evaluate(a, lower=options["uplo"] == "L")
    return factor, np.isnan(factor).any()


TRANSPOSED = {"N": "NO_TRANSPOSE", "T": "TRANSPOSE", "C": "ADJOINT"}


def _trsm(_: Any, options: dict[str, str], a: Array, b: Array) -> Sequence[Any]:
    found = linear_algebra.triangular_solve.evaluate(
        a,
        b,
        left_side=options["side"] == "L",
        lower=options["uplo"] == "L",
        unit_diagonal=options["diag"] == "U",
        transpose_a=TRANSPOSED[options["trans_x"]],
    )
    return (found,)


def _getrf(getrf: Any, options: dict[str, str], a: Array) -> Sequence[Any]:
    factors, pivots, info = getrf(a)
    return factors, pivots + 1, info


def _geqrf(geqrf: Any, options: dict[str, str], a: Array) -> Sequence[Any]:
    return geqrf(a)[:2]


def _geqp3(geqp3: Any, options: dict[str, str], a: Array, fixed: Array) -> Sequence[Any]:
    if fixed.any():
        raise AttributeValueError("lapack: geqp3 with columns that stay in front is not supported; pass zeros.")
    if not a.size:
        return a, np.arange(1, a.shape[1] + 1), 0
    factors, order, taus, *_ = geqp3(a)
    return factors, order, taus


def _orgqr(orgqr: Any, options: dict[str, str], a: Array, taus: Array) -> Sequence[Any]:
    return orgqr(a, taus)[:1]


def _syevd(syevd: Any, options: dict[str, str], a: Array) -> Sequence[Any]:
    values, vectors, info = syevd(a, compute_v=options["mode"] == "V", lower=options["uplo"] == "L")
    return vectors, values, info


def _gesdd(gesdd: Any, options: dict[str, str], a: Array) -> Sequence[Any]:
    mode = options["mode"]
    if not a.size:
        return a, np.zeros(0), *(np.eye(n) for n in a.shape), 0
    left, values, right, info = gesdd(a, compute_uv=mode != "N", full_matrices=mode == "A")
    return (a, values, 0, 0, info) if mode == "N" else (a, values, left, right, info)


def _geev(geev: Any, options: dict[str, str], a: Array) -> Sequence[Any]:
    *values, left, right, info = geev(a)
    if len(values) == 2:
        left, right = (_of_pairs(vectors, values[1]) for vectors in (left, right))
    return *values, left, right, info


def _of_pairs(vectors: Array, imaginary: Array) -> Array:
    """Complex vectors of real and imaginary parts in neighbouring columns, as geev has conjugate pairs."""
    found = vectors.astype(np.result_type(vectors.dtype, np.complex64))
    for k in np.flatnonzero(imaginary > 0):
        found[:, k] = vectors[:, k] + 1j * vectors[:, k + 1]
        found[:, k + 1] = found[:, k].conj()
    return found


def _gees(gees: Any, options: dict[str, str], a: Array) -> Sequence[Any]:
    form, selected, *values, vectors, _, info = gees(lambda *_: None, a)
    return form, vectors, *values, selected, info


def _gehrd(gehrd: Any, options: dict[str, str], a: Array) -> Sequence[Any]:
    return gehrd(a) if len(a) > 1 else (a, 0, 0)


def _sytrd(sytrd: Any, options: dict[str, str], a: Array) -> Sequence[Any]:
    if len(a) < 2:
        return a.real, a.real.diagonal(), 0, 0, 0
    return sytrd(a, lower=options["uplo"] == "L")


def _gtsv(gtsv: Any, options: dict[str, str], low: Array, main: Array, high: Array, b: Array) -> Sequence[Any]:
    shift = len(low) - len(main) + 1
    *_, found, info = gtsv(low[shift:], main, high[: len(main) - 1], b)
    return low, main, high, found, info


_INFO = ":integer"
ROUTINES: dict[str, Routine] = {
    "potrf": Routine(_potrf, ("nn",), ("nn", _INFO), ("uplo",), takes_infinities=True),
    "trsm": Routine(_trsm, ("aa", "mn"), ("mn",), ("diag", "side", "trans_x", "uplo"), takes_infinities=True),
    "getrf": Routine(_getrf, ("mn",), ("mn", "k:integer", _INFO), takes_infinities=True),
    "geqrf": Routine(_geqrf, ("mn",), ("mn", "k")),
    "geqp3": Routine(_geqp3, ("mn", "n"), ("mn", "n:integer", "k")),
    "orgqr": Routine(_orgqr, ("mn", "t"), ("mn",), of_complex="ungqr"),
    "syevd": Routine(_syevd, ("nn",), ("nn", "n:real", _INFO), ("mode", "uplo"), of_complex="heevd"),
    "gesdd": Routine(_gesdd, ("mn",), ("mn", "k:real", "mm", "nn", _INFO), ("mode",)),
    "gesvd": Routine(_gesdd, ("mn",), ("mn", "k:real", "mm", "nn", _INFO), ("mode",)),
    "geev": Routine(
        _geev,
        ("nn",),
        ("n", "n", "nn:complex", "nn:complex", _INFO),
        ("compute_left", "compute_right"),
        complex_results=("n", "nn", "nn", _INFO),
    ),
    "gees": Routine(
        _gees,
        ("nn",),
        ("nn", "nn", "n", "n", _INFO, _INFO),
        ("mode", "sort"),
        complex_results=("nn", "nn", "n", _INFO, _INFO),
    ),
    "gehrd": Routine(_gehrd, ("nn",), ("nn", "h", _INFO), sizes=(("low", "1"), ("high", "n"))),
    "sytrd": Routine(_sytrd, ("nn",), ("nn", "n:real", "h:real", "h", _INFO), ("uplo",), of_complex="hetrd"),
    "gtsv": Routine(_gtsv, ("l", "n", "u", "nr"), ("l", "n", "u", "nr", _INFO), takes_infinities=True),
}
_LETTERS = {"f32": "s", "f64": "d", "c64": "c", "c128": "z"}
_BY_NAME = {name: key for key, routine in ROUTINES.items() for name in (key, routine.of_complex) if name}

# --- custom calls -----------------------------------------------------------------------------------------------------


def target_of(routine: str, element: ElementType) -> str:
    """The target of the custom call: `lapack_sgetrf_ffi`."""
    name = ROUTINES[routine].of_complex if element.kind == "complex" else ""
    return f"lapack_{_LETTERS[element.name]}{name or routine}_ffi"


def routine_of(target: str) -> str | None:
    """The routine of a target; None if it is another one."""
    name = target.removeprefix("lapack_").removesuffix("_ffi")
    return _BY_NAME.get(name[1:]) if target.startswith("lapack_") and name[:1] in "sdcz" else None


TARGETS = tuple(
    target_of(routine, element_type(kind))
    for routine in ROUTINES
    for kind in (np.float32, np.float64, np.complex64, np.complex128)
)
# the targets that readers of exported programs know for as long as there are such programs
STABLE_TARGETS = frozenset(target for target in TARGETS if routine_of(target) not in ("geqp3", "gesvd"))


def options_of(routine: str, given: Sequence[str]) -> dict[str, str]:
    """The options by their names."""
    return dict(zip(ROUTINES[routine].options, given, strict=True))


# --- the op -----------------------------------------------------------------------------------------------------------


class Lapack(NamedTuple):
    routine: str  # without the letter of the type, and as it is called for real matrices
    options: tuple[str, ...] = ()


def _batch_of(operands: Sequence[Shape], routine: Routine) -> tuple[int, ...]:
    return operands[0].dimensions[: operands[0].rank - len(routine.operands[0])]


def sizes_of(routine: str, operands: Sequence[Shape]) -> dict[str, Any]:
    """The sizes that the letters of the table stand for.

    Raises:
        ShapeError: the shapes of the operands do not fit.
    """
    letters = ROUTINES[routine].operands
    batch = _batch_of(operands, ROUTINES[routine]) if len(operands) == len(letters) else None
    sizes: dict[str, Any] = {"1": 1}
    for names, x in zip(letters, operands, strict=False):
        own = x.dimensions[-len(names) :]
        if x.rank < len(names) or x.dimensions[: -len(names)] != batch or len(own) != len(names):
            batch = None
            break
        for name, size in zip(names, own, strict=True):
            if sizes.setdefault(name, size) != size:
                batch = None
    if batch is None:
        wanted = ", ".join(f"[..., {', '.join(names)}]" for names in letters)
        raise ShapeError(
            f"lapack: {routine} takes operands of the shapes {wanted}, but got {TupleShape(tuple(operands))}."
        )
    if "m" in sizes:
        sizes.setdefault("k", min_dim(sizes["m"], sizes["n"]))
    if "n" in sizes:
        sizes.setdefault("h", max_dim(sizes["n"] - 1, 0))
    return sizes


def results_of(routine: str, options: Sequence[str], operands: Sequence[Shape]) -> tuple[Shape, ...]:
    """The shapes of all results of a call."""
    known, element = ROUTINES[routine], operands[0].element_type
    sizes, batch = sizes_of(routine, operands), _batch_of(operands, known)
    notations = known.complex_results if element.kind == "complex" and known.complex_results else known.results
    if "mode" in known.options and options_of(routine, options)["mode"] == "S":
        notations = tuple({"mm": "mk", "nn": "kn"}.get(notation, notation) for notation in notations)
    kinds = {
        "real": element_type({"c64": np.float32, "c128": np.float64}.get(element.name, element.dtype)),
        "complex": element_type({"f32": np.complex64, "f64": np.complex128}.get(element.name, element.dtype)),
        "integer": element_type(np.int32),
    }
    found: list[Shape] = []
    for notation in notations:
        letters, _, kind = notation.partition(":")
        found.append(Shape(kinds.get(kind, element), (*batch, *(sizes[letter] for letter in letters))))
    return tuple(found)


def _shape(*operands: AnyShape, routine: str, options: tuple[str, ...] = ()) -> TupleShape:
    if routine not in ROUTINES:
        raise AttributeValueError(f"lapack: the routine must be one of {', '.join(ROUTINES)}, but is {routine!r}.")
    if len(options) != len(ROUTINES[routine].options):
        raise AttributeValueError(
            f"lapack: {routine} has the options ({', '.join(ROUTINES[routine].options)}), but got {options}."
        )
    first = movement.array_operand("lapack", operands[0])
    if first.element_type.name not in _LETTERS:
        raise AttributeValueError(f"lapack: LAPACK has no routines for {first}; convert it to f32, f64, c64 or c128.")
    return TupleShape(results_of(routine, options, [movement.array_operand("lapack", x) for x in operands]))


def evaluate(*operands: Array, routine: str, options: tuple[str, ...] = ()) -> tuple[Array, ...]:
    """The results of a call for arrays, matrix by matrix."""
    known, given = ROUTINES[routine], options_of(routine, options)
    shapes = [Shape.of(x) for x in operands]
    results = [np.zeros(s.dimensions, s.dtype) for s in results_of(routine, options, shapes)]
    batch = _batch_of(shapes, known)
    is_complex = operands[0].dtype.kind == "c"
    if not any(x.size for x in results if x.ndim > len(batch)):
        return tuple(results)
    name = known.of_complex if is_complex and known.of_complex else routine
    function = None if routine in ("potrf", "trsm") else lapack_functions(name, (name,), operands[0].dtype)[0]
    for index in np.ndindex(*batch):
        matrices = [x[index] for x in operands]
        if known.takes_infinities or all(np.isfinite(x).all() for x in matrices):
            parts: Sequence[Any] = known.compute(function, given, *matrices)
        else:
            parts = [1 if x.dtype.kind == "i" else np.nan for x in results]
        for result, part in zip(results, parts, strict=True):
            if result.size:
                result[index] = part
    return tuple(results)


def _batch(size: int, operands: tuple[Any, ...], axes: Axes, **attributes: Any) -> Any:
    found = lapack(*movement.in_front(operands, axes, size), **attributes)
    return found, (0,) * len(found)


def _factors(*operands: Shape, routine: str, options: tuple[str, ...] = ()) -> Factors:
    known = ROUTINES[routine]
    count = len(_batch_of(operands, known))
    results = results_of(routine, options, operands)
    return batches(operands, [len(x) for x in known.operands], [x.rank - count for x in results])


def _samples(random: np.random.Generator) -> Iterator[Sample]:
    for routine, options in (("gehrd", ()), ("sytrd", ("L",)), ("sytrd", ("U",)), ("gees", ("V", "N")), ("geqrf", ())):
        square = ((3, 3), (2, 2, 2), (1, 1), (0, 2, 2), (2, 0, 0))
        shapes = ((3, 2), (2, 2, 3), (0, 2, 2), (0, 2)) if routine == "geqrf" else square
        yield from samples_of(shapes, (np.float32, np.complex64), routine=routine, options=options)(random)
    for dtype in (np.float64, np.complex128):
        a = elementwise.sample_array(random, dtype, (2, 3, 2), -1, 1)
        yield Sample((a, np.zeros((2, 2), np.int32)), {"routine": "geqp3", "options": ()})


lapack = Op(
    "lapack",
    attributes=Lapack,
    shape=_shape,
    evaluate=evaluate,
    derivative=NotDifferentiable(
        "reflectors and Schur vectors have none here; of an exported function that calls such a routine (QR is made of "
        "reflectors), take the derivative by vjp() of one that was serialized with vjp_order=1"
    ),
    batch=_batch,
    sharding=_factors,
    samples=_samples,
)


def call(routine: str, *operands: Any, options: tuple[str, ...] = ()) -> tuple[Any, ...]:
    """The results of a call without `info`: NaN where that is not 0, for LU factorization where it is negative."""
    results = lapack(*operands, routine=routine, options=options)
    if ROUTINES[routine].results[-1] != _INFO:
        return results
    *values, info = results
    is_valid = (elementwise.ge if routine == "getrf" else elementwise.eq)(info, elementwise.zeros_like(info))
    found: list[Any] = []
    for x in values:
        if x.dtype.kind != "i":
            mask = movement.broadcast(is_valid, sizes=x.shape, dimensions=tuple(range(info.ndim)))
            x = elementwise.select(mask, x, movement.full(np.nan, x.dtype, x.shape))
        found.append(x)
    return tuple(found)
