"""Ops whose primitives in JAX have other parameters: gather and scatter, convolutions, windows and cumulative
reductions, sorting, factorizations. Each function gives the primitive, its parameters and its operands, or None where
JAX has no such primitive."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tinyxla import lax
from tinyxla.hlo import Computation, Instruction
from tinyxla.jax.jaxprs.jaxpr import Atom, Literal
from tinyxla.jax.jaxprs.primitives.catalogue import REDUCTIONS, identity, primitives
from tinyxla.jax.jaxprs.primitives.fold_primitives import FOLDS
from tinyxla.ops.sorting import order_computation
from tinyxla.shapes import element_type
from tinyxla.shapes.window import WindowDimension

Known = tuple[Any, dict[str, Any], list[Atom]]
Translated = Known | None

primitives.update(FOLDS)

KINDS = {combination: kind for kind, (combination, _) in REDUCTIONS.items()}  # of reductions, by what combines elements


def combination(computation: Computation) -> str | None:
    """The kind of reduction that a computation of two scalars is: "sum", "max", ..."""
    is_plain = len(computation.instructions) == 3 and set(computation.root.operands) == set(computation.parameters)
    return KINDS.get(computation.root.op.name) if is_plain else None


def starts_with(kind: str, init: Atom) -> bool:
    """Whether an initial value is the identity of a reduction."""
    if not isinstance(init, Literal):
        return False
    return np.asarray(init.val).tobytes() == np.asarray(identity(kind, init.aval.dtype)).tobytes()


def gather(x: Instruction, operands: list[Atom]) -> Translated:
    a = x.attributes
    if a.index_vector_dim < x.operands[1].array_shape.rank - 1:
        return None
    numbers = lax.GatherDimensionNumbers(
        a.offset_dims,
        a.collapsed_slice_dims,
        a.start_index_map,
        a.operand_batching_dims,
        a.start_indices_batching_dims,
    )
    params = {
        "dimension_numbers": numbers,
        "slice_sizes": a.slice_sizes,
        "unique_indices": False,
        "indices_are_sorted": a.indices_are_sorted,
        "mode": lax.GatherScatterMode.PROMISE_IN_BOUNDS if a.drops_gradients else lax.GatherScatterMode.CLIP,
        "fill_value": None,
    }
    return primitives["gather"], params, operands


_SCATTERED = {"sum": "-add", "prod": "-mul", "min": "-min", "max": "-max"}


def scatter(x: Instruction, operands: list[Atom]) -> Translated:
    a, called = x.attributes, x.attributes.to_apply
    replaces = len(called.parameters) == 2 and called.root is called.parameters[1]
    kind = "" if replaces else _SCATTERED.get(combination(called) or "")
    if len(operands) != 3 or kind is None or a.index_vector_dim < x.operands[1].array_shape.rank - 1:
        return None
    numbers = lax.ScatterDimensionNumbers(
        a.update_window_dims,
        a.inserted_window_dims,
        a.scatter_dims_to_operand_dims,
        a.input_batching_dims,
        a.scatter_indices_batching_dims,
    )
    params = {
        "update_jaxpr": None,
        "update_consts": (),
        "dimension_numbers": numbers,
        "indices_are_sorted": a.indices_are_sorted,
        "unique_indices": a.unique_indices,
        "mode": lax.GatherScatterMode.PROMISE_IN_BOUNDS if a.moves_gradients else lax.GatherScatterMode.FILL_OR_DROP,
    }
    return primitives[f"scatter{kind}"], params, operands


def precision_of(attributes: Any) -> tuple[lax.Precision, ...] | None:
    """The parameter of products: one for each operand, or None where none is asked for."""
    return tuple(lax.Precision[p.upper()] for p in attributes.operand_precision) or None


def convolution(x: Instruction, operands: list[Atom]) -> Translated:
    a = x.attributes
    if any(w.window_reversal for w in a.window):
        return None
    params = {
        "window_strides": tuple(w.stride for w in a.window),
        "padding": tuple((w.padding_low, w.padding_high) for w in a.window),
        "lhs_dilation": tuple(w.base_dilation for w in a.window),
        "rhs_dilation": tuple(w.window_dilation for w in a.window),
        "dimension_numbers": a.dim_labels,
        "feature_group_count": a.feature_group_count,
        "batch_group_count": a.batch_group_count,
        "precision": precision_of(a),
        "preferred_element_type": a.preferred_element_type and a.preferred_element_type.dtype,
        "out_sharding": None,
    }
    return primitives["conv_general_dilated"], params, operands


def reduce_window(x: Instruction, operands: list[Atom]) -> Translated:
    """A window that has all elements up to each one is a cumulative reduction."""
    a = x.attributes
    if len(operands) != 2:
        return None
    is_logarithmic = a.to_apply.name == "logaddexp"
    kind = "logsumexp" if is_logarithmic else combination(a.to_apply)
    if kind is None or not starts_with("max" if is_logarithmic else kind, operands[1]):
        return None
    along = _cumulative_axis(x)
    if along is not None and f"cum{kind}" in primitives:
        return primitives[f"cum{kind}"], {"axis": along[0], "reverse": along[1]}, operands[:1]
    if kind not in ("sum", "max", "min") or any(w.window_reversal for w in a.window):
        return None
    return primitives[f"reduce_window_{kind}"], window_params(a.window), operands[:1]


def window_params(window: Sequence[WindowDimension]) -> dict[str, Any]:
    """The parameters that say what a window is."""
    return {
        "window_dimensions": tuple(w.size for w in window),
        "window_strides": tuple(w.stride for w in window),
        "padding": tuple((w.padding_low, w.padding_high) for w in window),
        "base_dilation": tuple(w.base_dilation for w in window),
        "window_dilation": tuple(w.window_dilation for w in window),
    }


def _cumulative_axis(x: Instruction) -> tuple[int, bool] | None:
    """The dimension along which a window has all elements before, or in reverse behind, and whether it is reverse."""
    sizes = x.operands[0].array_shape.dimensions
    wide = [d for d, w in enumerate(x.attributes.window) if w != w._replace(size=1, padding_low=0, padding_high=0)]
    if len(wide) != 1 or any(w[1:2] + w[4:] != (1, 1, 1, False) for w in x.attributes.window):
        return None
    (d,) = wide
    window, n = x.attributes.window[d], sizes[d]
    if window.size != n or (window.padding_low, window.padding_high) not in ((n - 1, 0), (0, n - 1)):
        return None
    return d, window.padding_low == 0


def sort(x: Instruction, operands: list[Atom]) -> Translated:
    a = x.attributes
    dtypes = tuple(o.array_shape.dtype for o in x.operands)
    for keys in range(1, len(operands) + 1):
        if a.to_apply == order_computation(dtypes, keys):
            params = {"dimension": a.dimensions[0], "is_stable": a.is_stable, "num_keys": keys}
            return primitives["sort"], params, operands
    return None


def top_k(x: Instruction, operands: list[Atom]) -> Translated:
    a, shape = x.attributes, x.operands[0].array_shape
    if not a.largest or element_type(shape.dtype).kind == "complex":
        return None
    return primitives["top_k"], {"k": a.k, "axis": shape.rank - 1}, operands


def triangular_solve(x: Instruction, operands: list[Atom]) -> Translated:
    a = x.attributes
    params = {
        "left_side": a.left_side,
        "lower": a.lower,
        "transpose_a": a.transpose_a != "NO_TRANSPOSE",
        "conjugate_a": a.transpose_a == "ADJOINT",
        "unit_diagonal": a.unit_diagonal,
    }
    return primitives["triangular_solve"], params, operands


def cholesky(x: Instruction, operands: list[Atom]) -> Translated:
    return (primitives["cholesky"], {}, operands) if x.attributes.lower else None


def lu(x: Instruction, operands: list[Atom]) -> Translated:
    return primitives["lu"], {}, operands


def eigh(x: Instruction, operands: list[Atom]) -> Translated:
    params = {"lower": x.attributes.lower, "sort_eigenvalues": True, "subset_by_index": None, "algorithm": None}
    return primitives["eigh"], params, operands


def eig(x: Instruction, operands: list[Atom]) -> Translated:
    params = {"compute_left_eigenvectors": False, "compute_right_eigenvectors": True}
    return primitives["eig"], {**params, "enable_eigvec_derivs": False, "implementation": None}, operands


def svd(x: Instruction, operands: list[Atom]) -> Translated:
    params = {"full_matrices": x.attributes.full_matrices, "compute_uv": True}
    return primitives["svd"], {**params, "subset_by_index": None, "algorithm": None}, operands


def qr(x: Instruction, operands: list[Atom]) -> Translated:
    params = {"pivoting": False, "full_matrices": x.attributes.full_matrices, "use_magma": None}
    return primitives["qr"], params, operands


ARGUMENTS = {"argument_gt": "argmax", "argument_lt": "argmin"}  # by the computation that combines values and indices


def is_argument_reduction(x: Instruction) -> bool:
    """Whether an instruction finds where the largest or smallest elements are."""
    return x.op.name == "reduce" and len(x.operands) == 4 and x.attributes.to_apply.name in ARGUMENTS


def argument_reduction(x: Instruction, operands: list[Atom]) -> Known:
    params = {"axes": x.attributes.dimensions, "index_dtype": x.operands[1].array_shape.dtype}
    return primitives[ARGUMENTS[x.attributes.to_apply.name]], params, operands[:1]


def fft(x: Instruction, operands: list[Atom]) -> Translated:
    params = {"fft_type": lax.FftType[x.attributes.fft_type], "fft_lengths": tuple(x.attributes.fft_length)}
    return primitives["fft"], params, operands


OP_TRANSLATIONS = {
    "gather": gather,
    "scatter": scatter,
    "convolution": convolution,
    "sort": sort,
    "topk": top_k,
    "triangular-solve": triangular_solve,
    "cholesky": cholesky,
    "LuDecomposition": lu,
    "Eig": eig,
    "Eigh": eigh,
    "Svd": svd,
    "Qr": qr,
    "fft": fft,
}
# Where the results of JAX's primitive stand among those of the op.
RESULT_ORDERS = {"argmax": (1,), "argmin": (1,), "eig": (1, 0), "svd": (1, 0, 2)}
