"""Custom calls by the name of their target: those that JAX writes for CPUs, and those that users register; composites.

A handler takes the operands, and as keywords what `backend_config` says; it gives the result, or a tuple. Handlers are
functions of traced arrays, so that what they do is differentiated and compiled with the program.

Source: LAPACK Users' Guide, for the routines' results; JAX's lowering rules write the targets.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import zip_longest
from typing import Any

import numpy as np

from tinyxla import lax
from tinyxla.errors import ArgumentError, InconclusiveDimensionOperation
from tinyxla.ops.host import custom_call as registered
from tinyxla.ops.linalg import lapack, linear_algebra
from tinyxla.ops.op import ops
from tinyxla.shapes import Shape, TupleShape, element_type
from tinyxla.shapes.window import WindowDimension
from tinyxla.stablehlo.importing.attributes import python_value
from tinyxla.stablehlo.importing.evaluation import Context, constant, known_ints, shape_of
from tinyxla.stablehlo.importing.rules import ALGORITHMS
from tinyxla.stablehlo.importing.sizes import as_arrays
from tinyxla.text.mlir.element_types import of_mlir
from tinyxla.text.mlir.ir import ArrayAttr, DialectAttr, DictAttr, StringAttr, TensorType, Type
from tinyxla.text.mlir.printer import attribute_text
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
    routine = lapack.routine_of(target)
    if routine is not None:
        return _lapack(context, routine, operands)
    if target in registered.targets:
        shapes, attributes = context.result_shapes, _attributes(context)
        return ops["custom-call"](
            *operands,
            custom_call_target=target,
            shape=shapes[0] if len(shapes) == 1 else TupleShape(tuple(shapes)),
            custom_call_has_side_effect=context.flag("has_side_effect"),
            backend_config=context.text("backend_config", "") if attributes is None else attribute_text(attributes),
            output_to_operand_aliasing=_aliasing(context),
            api_version="ORIGINAL" if attributes is None else "TYPED_FFI",
        )
    raise ArgumentError(
        f"stablehlo.custom_call: there is no handler for the target {target!r}; register a function of its operands "
        f"by stablehlo.register_custom_call({target!r}, function)."
    )


def _attributes(context: Context) -> DictAttr | None:
    """The attributes for a typed handler; None for another function."""
    found = (context.entries.get(name) for name in ("mhlo.backend_config", "backend_config"))
    return next((x for x in found if isinstance(x, DictAttr)), None)


def _aliasing(context: Context) -> tuple[tuple[tuple[int, ...], int], ...]:
    """The results that share memory with an operand."""
    given = context.entries.get("output_operand_aliases", ArrayAttr(()))
    assert isinstance(given, ArrayAttr)
    pairs = [x.parameters for x in given.elements if isinstance(x, DialectAttr)]
    return tuple((tuple(python_value(x["output_tuple_indices"])), python_value(x["operand_index"])) for x in pairs)


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


# --- LAPACK, of batches of matrices -----------------------------------------------------------------------------------


def _lapack(context: Context, routine: str, operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """The results of a call of LAPACK: by functions that have derivatives, if there are such. What these do not give,
    as `info`, is zero; so are singular vectors that are not computed, which have any shape."""
    settings = context.inner("mhlo.backend_config")
    options = tuple(chr(settings.integer(name)) for name in lapack.ROUTINES[routine].options)
    given = operands[: len(lapack.ROUTINES[routine].operands)]  # sizes of results may follow
    function = _DIFFERENTIABLE.get(routine)
    if function is None:
        return lapack.lapack(*given, routine=routine, options=options)
    results = function(lapack.options_of(routine, options), *given)
    shapes = lapack.results_of(routine, options, [Shape.of(x) for x in given])
    wanted = [x.type for x in context.operation.results]
    return tuple(_zeros(s, type) if x is None else x for x, s, type in zip_longest(results, shapes, wanted))


def _zeros(shape: Shape, type: Type) -> Any:
    if isinstance(type, TensorType) and None not in type.sizes:
        shape = shape_of(type)
    return ops["broadcast"](constant(np.zeros((), shape.dtype)), sizes=shape.dimensions, dimensions=())


def _potrf(options: dict[str, str], x: Any) -> Any:
    lower = x if options["uplo"] == "L" else linear_algebra.adjoint(x)
    return (lax.linalg.cholesky(lower, symmetrize_input=False),)


def _trsm(options: dict[str, str], a: Any, b: Any) -> Any:
    found = ops["triangular-solve"](
        a,
        b,
        left_side=options["side"] == "L",
        lower=options["uplo"] == "L",
        unit_diagonal=options["diag"] == "U",
        transpose_a=lapack.TRANSPOSED[options["trans_x"]],
    )
    return (found,)


def _getrf(options: dict[str, str], x: Any) -> Any:
    factors, pivots, _ = lax.linalg.lu(x)
    return factors, lax.add(pivots, lax.full_like(pivots, 1))


def _orgqr(options: dict[str, str], x: Any, taus: Any) -> Any:
    return (lax.linalg.householder_product(x, taus),)


def _gesdd(options: dict[str, str], x: Any) -> Any:
    if options["mode"] == "N":
        return x, lax.linalg.svd(x, compute_uv=False)
    u, s, vh = lax.linalg.svd(x, full_matrices=options["mode"] == "A")
    return x, s, u, vh


def _syevd(options: dict[str, str], x: Any) -> Any:
    return lax.linalg.eigh(x, lower=options["uplo"] == "L", symmetrize_input=False)


def _geev(options: dict[str, str], x: Any) -> Any:
    left, right = (options[f"compute_{side}"] == "V" for side in ("left", "right"))
    w, *found = lax.linalg.eig(
        x, compute_left_eigenvectors=left, compute_right_eigenvectors=right, enable_eigvec_derivs=True
    )
    numbers = [w] if x.dtype.kind == "c" else [lax.real(w), lax.imag(w)]
    return *numbers, found.pop(0) if left else None, found.pop(0) if right else None


def _gtsv(options: dict[str, str], lower: Any, diagonal: Any, upper: Any, b: Any) -> Any:
    n, last = diagonal.shape[-1], diagonal.ndim - 1
    sides = [lower, upper]
    if lower.shape[-1] == n - 1:
        zero = lax.full_like(lax.slice_in_dim(diagonal, 0, 1, axis=-1), 0)
        sides = [lax.concatenate([zero, lower], last), lax.concatenate([upper, zero], last)]
    return lower, diagonal, upper, lax.linalg.tridiagonal_solve(sides[0], diagonal, sides[1], b)


_DIFFERENTIABLE: dict[str, Handler] = {
    "potrf": _potrf,
    "trsm": _trsm,
    "getrf": _getrf,
    "orgqr": _orgqr,
    "gesdd": _gesdd,
    "gesvd": _gesdd,
    "syevd": _syevd,
    "geev": _geev,
    "gtsv": _gtsv,
}


def _ormqr(context: Context, a: Any, taus: Any, c: Any, *sizes: Any) -> Any:
    settings = context.inner("mhlo.backend_config")
    return lax.linalg.ormqr(a, taus, c, left=settings.flag("left"), transpose=settings.flag("transpose"))


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
    return _first_by_comparator(context, x, context.inner("mhlo.backend_config").integer("top_k"))


def _dynamic_approx_top_k(context: Context, x: Any, *others: Any) -> Any:
    k = others[3]  # after the places and two initial values, before the shapes of the results
    return _first_by_comparator(context, x, known_ints("dynamic_approx_top_k", k)[0])


def _first_by_comparator(context: Context, x: Any, k: int) -> Any:
    axis = context.inner("mhlo.backend_config").integer("reduction_dim")
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
    **{f"lapack_{name}_ffi": _ormqr for name in ("sormqr", "dormqr", "cunmqr", "zunmqr")},
    "ApproxTopK": _approx_top_k,
    "stablehlo.dynamic_approx_top_k": _dynamic_approx_top_k,
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
