"""Custom calls by the name of their target: those that JAX writes for CPUs, and those that users register; composites.

A handler takes the operands, and as keywords what `backend_config` says; it gives the result, or a tuple. Handlers are
functions of traced arrays, so that what they do is differentiated and compiled with the program.

Source: LAPACK Users' Guide, for the routines' results; JAX's lowering rules write the targets.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np

from tinyxla import lax, numpy
from tinyxla.errors import ArgumentError, InconclusiveDimensionOperation
from tinyxla.ops.host import custom_call as registered
from tinyxla.ops.op import ops
from tinyxla.shapes import Shape, TupleShape, element_type
from tinyxla.shapes.window import WindowDimension
from tinyxla.stablehlo.importing.attributes import python_value
from tinyxla.stablehlo.importing.evaluation import Context, constant, known_ints
from tinyxla.stablehlo.importing.rules import ALGORITHMS
from tinyxla.stablehlo.importing.sizes import as_arrays
from tinyxla.text.mlir.element_types import of_mlir
from tinyxla.text.mlir.ir import DictAttr, StringAttr
from tinyxla.tracing.array import ConcreteArray
from tinyxla.tracing.core import trace
from tinyxla.transforms.computations import of_one

Handler = Callable[..., Any]
handlers: dict[str, Handler] = {}  # by the name of the target
composites: dict[str, Handler] = {}  # by the name of the composite


def custom_call(context: Context, *operands: Any) -> Any:
    """The results of a custom call."""
    target = context.text("call_target_name")
    if not target.startswith(("shape_assertion", "stablehlo.dynamic_")):
        operands = tuple(as_arrays(operands))
    if target in handlers:
        return handlers[target](*operands, **handler_arguments(context, "mhlo.backend_config", "backend_config"))
    if target in _KNOWN:
        return _KNOWN[target](context, *operands)
    routine = target.removeprefix("lapack_").removesuffix("_ffi")
    if target.startswith("lapack_") and routine[1:] in _LAPACK:
        return _LAPACK[routine[1:]](context, *operands)
    if target in registered.targets:
        shapes = context.result_shapes
        return ops["custom-call"](
            *operands,
            custom_call_target=target,
            shape=shapes[0] if len(shapes) == 1 else TupleShape(tuple(shapes)),
            custom_call_has_side_effect=context.flag("has_side_effect"),
            backend_config=context.text("backend_config", "") if not _is_dictionary(context) else "",
        )
    raise ArgumentError(
        f"stablehlo.custom_call: there is no handler for the target {target!r}; register a function of its operands "
        f"by stablehlo.register_custom_call({target!r}, function)."
    )


def _is_dictionary(context: Context) -> bool:
    return isinstance(context.entries.get("backend_config"), DictAttr)


def handler_arguments(context: Context, *names: str) -> dict[str, Any]:
    """The entries of the first of these attributes that is there: a dictionary, or JSON in a string."""
    for name in names:
        given = context.entries.get(name)
        if isinstance(given, DictAttr):
            return {key: python_value(value) for key, value in given.entries.items()}
        if isinstance(given, StringAttr) and given.text.startswith("{"):
            try:
                return dict(json.loads(given.text))
            except ValueError:
                return {"backend_config": given.text}
        if isinstance(given, StringAttr) and given.text:
            return {"backend_config": given.text}
    return {}


def _option(context: Context, name: str) -> str:
    """An option of LAPACK, which is the code of a letter."""
    return chr(context.inner("mhlo.backend_config").integer(name))


def _info(context: Context, number: int) -> Any:
    """That all went well: zeros."""
    shape = context.result_shapes[number]
    return ops["broadcast"](constant(np.zeros((), shape.dtype)), sizes=shape.dimensions, dimensions=())


# --- LAPACK, of batches of matrices -----------------------------------------------------------------------------------


def _potrf(context: Context, x: Any) -> Any:
    return lax.linalg.cholesky(_lower(x, _option(context, "uplo")), symmetrize_input=False), _info(context, 1)


def _lower(x: Any, uplo: str) -> Any:
    return x if uplo == "L" else lax.conj(_swapped(x)) if x.dtype.kind == "c" else _swapped(x)


def _swapped(x: Any) -> Any:
    return lax.transpose(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


def _trsm(context: Context, a: Any, b: Any) -> Any:
    transpose = {"N": "NO_TRANSPOSE", "T": "TRANSPOSE", "C": "ADJOINT"}[_option(context, "trans_x")]
    return ops["triangular-solve"](
        a,
        b,
        left_side=_option(context, "side") == "L",
        lower=_option(context, "uplo") == "L",
        unit_diagonal=_option(context, "diag") == "U",
        transpose_a=transpose,
    )


def _getrf(context: Context, x: Any) -> Any:
    factors, pivots, _ = lax.linalg.lu(x)
    return factors, lax.add(pivots, lax.full_like(pivots, 1)), _info(context, 2)


def _geqrf(context: Context, x: Any) -> Any:
    columns, taus = numpy.linalg.qr(x, mode="raw")
    return _swapped(columns), taus


def _orgqr(context: Context, x: Any, taus: Any) -> Any:
    return lax.linalg.householder_product(x, taus)


def _gesdd(context: Context, x: Any) -> Any:
    mode = _option(context, "mode")
    if mode == "N":
        s = lax.linalg.svd(x, compute_uv=False)
        u, vh = (_info(context, k) for k in (2, 3))
    else:
        u, s, vh = lax.linalg.svd(x, full_matrices=mode == "A")
    return x, s, u, vh, _info(context, 4)


def _syevd(context: Context, x: Any) -> Any:
    lower = _option(context, "uplo") == "L"
    v, w = lax.linalg.eigh(x, lower=lower, symmetrize_input=False)
    return v, w, _info(context, 2)


def _geev(context: Context, x: Any) -> Any:
    left, right = (_option(context, f"compute_{side}") == "V" for side in ("left", "right"))
    found = list(lax.linalg.eig(x, compute_left_eigenvectors=left, compute_right_eigenvectors=right))
    w = found.pop(0)
    real = [w] if x.dtype.kind == "c" else [lax.real(w), lax.imag(w)]
    count = len(real)
    vl = found.pop(0) if left else _info(context, count)
    vr = found.pop(0) if right else _info(context, count + 1)
    return (*real, vl, vr, _info(context, count + 2))


def _gees(context: Context, x: Any) -> Any:
    t, z = lax.linalg.schur(x)
    rest = tuple(_info(context, k) for k in range(2, len(context.result_shapes)))
    return (t, z, *rest)


def _gehrd(context: Context, x: Any) -> Any:
    return (*lax.linalg.hessenberg(x), _info(context, 2))


def _sytrd(context: Context, x: Any) -> Any:
    return (*lax.linalg.tridiagonal(x, lower=_option(context, "uplo") == "L"), _info(context, 4))


def _gtsv(context: Context, lower: Any, diagonal: Any, upper: Any, b: Any) -> Any:
    n, last = diagonal.shape[-1], diagonal.ndim - 1
    sides = [lower, upper]
    if lower.shape[-1] == n - 1:
        zero = lax.full_like(lax.slice_in_dim(diagonal, 0, 1, axis=-1), 0)
        sides = [lax.concatenate([zero, lower], last), lax.concatenate([upper, zero], last)]
    return lower, diagonal, upper, lax.linalg.tridiagonal_solve(sides[0], diagonal, sides[1], b), _info(context, 4)


_LAPACK: dict[str, Handler] = {
    "potrf": _potrf,
    "trsm": _trsm,
    "getrf": _getrf,
    "geqrf": _geqrf,
    "orgqr": _orgqr,
    "ungqr": _orgqr,
    "gesdd": _gesdd,
    "syevd": _syevd,
    "heevd": _syevd,
    "geev": _geev,
    "gees": _gees,
    "gehrd": _gehrd,
    "sytrd": _sytrd,
    "hetrd": _sytrd,
    "gtsv": _gtsv,
}

# --- others -----------------------------------------------------------------------------------------------------------


def _identity(context: Context, *xs: Any) -> Any:
    return xs


def _shape_assertion(context: Context, holds: Any, *numbers: Any) -> Any:
    if not isinstance(holds, ConcreteArray):
        message = context.text("error_message", "a shape is not as the program needs it")
        raise InconclusiveDimensionOperation(
            f"Whether the program's demand on sizes holds is not known for these symbolic dimensions: {message}. Give "
            "symbolic_shape constraints from which it follows."
        )
    if 0 in known_ints("shape_assertion", holds):
        values = [int(n) for number in numbers for n in known_ints("shape_assertion", number)]
        raise ArgumentError(context.text("error_message", "a shape is not as the program needs it").format(*values))
    return ()


def _dynamic_reduce_window(context: Context, *operands: Any) -> Any:
    *arrays, sizes, strides, base, dilations, padding = operands
    numbers = [known_ints("dynamic_reduce_window", x) for x in (sizes, strides, dilations, base, padding)]
    pairs = zip(numbers[4][::2], numbers[4][1::2], strict=True)
    window = tuple(
        WindowDimension(size, stride, low, high, dilation, base)
        for size, stride, dilation, base, (low, high) in zip(*numbers[:4], pairs, strict=True)
    )
    name = context.value("called_computations")[0]
    shapes = [Shape(element_type(x.dtype), ()) for x in arrays]
    if len(arrays) == 2:
        to_apply = of_one(lambda *x: context.evaluation.call(name, *x)[0], shapes, name)
    else:
        to_apply, _, _ = trace(lambda *x: context.evaluation.call(name, *x), shapes, name)
    return ops["reduce-window"](*arrays, window=window, to_apply=to_apply)


def _dynamic_top_k(context: Context, x: Any, k: Any) -> Any:
    return tuple(lax.top_k(x, known_ints("dynamic_top_k", k)[0]))


def _dynamic_rng_bit_generator(context: Context, words: Any, sizes: Any) -> Any:
    shape = Shape(of_mlir(context.operation.results[1].type.element), known_ints("dynamic_rng_bit_generator", sizes))  # type: ignore[union-attr]
    return ops["rng-bit-generator"](words, algorithm=ALGORITHMS[context.word("rng_algorithm")], shape=shape)


def _approx_top_k(context: Context, x: Any, *others: Any) -> Any:
    settings = context.inner("mhlo.backend_config")
    k, axis = settings.integer("top_k"), settings.integer("reduction_dim")
    name = context.value("called_computations")[0]
    moved = lax.neg(x) if "lt" in name.split("_") else x
    values, places = lax.top_k(moved, k, axis=axis)
    return lax.neg(values) if moved is not x else values, places


def _top_k(context: Context, x: Any) -> Any:
    attributes = context.inner("mhlo.attributes")
    k, largest = attributes.integer("k"), attributes.flag("largest", True)
    values, places = lax.top_k(x if largest else lax.neg(x), k)
    return values if largest else lax.neg(values), places


def _unary(name: str) -> Handler:
    return lambda context, *xs: getattr(lax, name)(*xs)


_KNOWN: dict[str, Handler] = {
    **dict.fromkeys(
        ("Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "xla.sdy.FuncResultSharding"), _identity
    ),
    **dict.fromkeys(("annotate_device_placement", "LayoutConstraint", "xla.sdy.Sharding"), _identity),
    "shape_assertion": _shape_assertion,
    "ApproxTopK": _approx_top_k,
    "stablehlo.dynamic_reduce_window": _dynamic_reduce_window,
    "stablehlo.dynamic_rng_bit_generator": _dynamic_rng_bit_generator,
    "stablehlo.dynamic_top_k": _dynamic_top_k,
    "mhlo.topk": _top_k,
    **{
        f"mhlo.{name}": _unary(name)
        for name in ("erf", "tan", "asin", "acos", "sinh", "cosh", "atanh", "acosh", "asinh")
    },
}


def composite(context: Context, *operands: Any) -> Any:
    """The results of a composite: of the function that is registered for its name, or of its decomposition."""
    handler = composites.get(context.text("name"))
    if handler is not None:
        return handler(*operands, **handler_arguments(context, "composite_attributes"))
    return context.evaluation.shared_call(context.symbol("decomposition"), *operands)


CALL_RULES = {"stablehlo.custom_call": custom_call, "stablehlo.composite": composite}
