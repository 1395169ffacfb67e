"""Automatic checks: what can go wrong in an operation of a graph - NaNs, divisions by zero, indices out of bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tinyxla import numpy as tnp
from tinyxla.experimental.checkify.errors import (
    Description,
    DivisionByZeroError,
    JaxException,
    NaNError,
    OOBError,
    Slot,
    State,
    failed,
)
from tinyxla.hlo import Instruction
from tinyxla.ops import dynamic_slices, elementwise, indexing, ops, reduction
from tinyxla.ops.op import Ints
from tinyxla.shapes import Shape, element_type

Errors = frozenset[type[JaxException]]

# operations that can make a NaN, by the names that JAX has for them
_NAN_NAMES = {
    **{name: op.scalar.name for name, op in ops.items() if op.scalar},
    "add": "add",
    "subtract": "sub",
    "multiply": "mul",
    "divide": "div",
    "chain-multiply": "mul",
    "chain-divide": "div",
    "dot": "dot_general",
    "convolution": "conv_general_dilated",
    "fft": "fft",
    "pad": "pad",
    "reduce-window": "reduce_window",
    "Solve": "linear_solve",
    "cholesky": "cholesky",
    "all-reduce": "psum",
    "rng": "rng_uniform",
}
_REDUCTIONS = {"add": "reduce_sum", "multiply": "reduce_prod", None: "reduce"}
_SCATTERS = {"add": "scatter_add", "multiply": "scatter_mul", "maximum": "scatter_max", "minimum": "scatter_min"}
_PAYLOAD: Slot = (Shape(element_type("s32"), (3,)),)


def checks(x: Instruction, values: dict[Instruction, Any], results: Sequence[Any], errors: Errors) -> Iterator[State]:
    """The states of the checks of one operation, in the order of their precedence. `values` has its operands."""
    operands = [values[o] for o in x.operands]
    if DivisionByZeroError in errors and x.op in (elementwise.div, elementwise.chain_div):
        yield failed((operands[1] == 0).any(), Description(DivisionByZeroError, (), (), x.source))
    if OOBError in errors and x.op in _BOUNDS:
        yield from _bounds_check(x, operands)
        if x.op is indexing.gather:
            yield from _clamped_bounds_checks(x, values)
    name = _nan_name(x) if NaNError in errors else None
    found = [tnp.isnan(r).any() for r in results if name and tnp.issubdtype(r.dtype, tnp.inexact)]
    if found:
        has_nan = found[0] if len(found) == 1 else tnp.stack(found).any()
        yield failed(has_nan, Description(NaNError, (name,), (), x.source))


def _nan_name(x: Instruction) -> str | None:
    if x.op is reduction.reduce:
        return _REDUCTIONS.get(reduction.monoid(x.attributes.to_apply))
    if x.op is indexing.scatter:
        return _scatter_name(x)
    return _NAN_NAMES.get(x.op.name)


def _scatter_name(x: Instruction) -> str:
    return _SCATTERS.get(reduction.monoid(x.attributes.to_apply) or "", "scatter")


def _dynamic_slice(x: Instruction, operands: Sequence[Any]) -> tuple[str, Any, Sequence[int], Sequence[int]]:
    shape, starts = operands[0].shape, operands[1:]
    return "dynamic_slice", tnp.stack(starts), x.attributes.dynamic_slice_sizes, range(len(shape))


def _dynamic_update_slice(x: Instruction, operands: Sequence[Any]) -> tuple[str, Any, Sequence[int], Sequence[int]]:
    whole, update, *starts = operands
    return "dynamic_update_slice", tnp.stack(starts), update.shape, range(whole.ndim)


def _gather(x: Instruction, operands: Sequence[Any]) -> tuple[str, Any, Sequence[int], Sequence[int]]:
    indices = _vectors_last(operands[1], x.attributes.index_vector_dim)
    return "gather", indices, x.attributes.slice_sizes, x.attributes.start_index_map


def _scatter(x: Instruction, operands: Sequence[Any]) -> tuple[str, Any, Sequence[int], Sequence[int]]:
    given, (whole, indices, updates) = x.attributes, operands
    window = given.gather().window(whole.ndim)
    sizes = [1] * whole.ndim
    for d, w in zip(window, given.update_window_dims, strict=True):
        sizes[d] = updates.shape[w]
    vectors = _vectors_last(indices, given.index_vector_dim)
    return _scatter_name(x), vectors, sizes, given.scatter_dims_to_operand_dims


def _vectors_last(indices: Any, dimension: int) -> Any:
    if dimension == indices.ndim:
        return indices[..., None]
    return tnp.moveaxis(indices, dimension, -1)


_BOUNDS: dict[Any, Callable[..., tuple[str, Any, Sequence[int], Sequence[int]]]] = {
    dynamic_slices.dynamic_slice: _dynamic_slice,
    dynamic_slices.dynamic_update_slice: _dynamic_update_slice,
    indexing.gather: _gather,
    indexing.scatter: _scatter,
}


def _bounds_check(x: Instruction, operands: Sequence[Any]) -> Iterator[State]:
    """Whether index vectors (along the last dimension) leave no room for slices of these sizes. The payload is the
    first such index, its axis and the size of that."""
    if x.op is indexing.scatter and len(operands) != 3:
        return
    shape = operands[0].shape
    name, indices, sizes, axes = _BOUNDS[x.op](x, operands)
    if not indices.size:
        return
    axes = np.asarray(axes, np.int32)
    limits = np.asarray([shape[a] - sizes[a] for a in axes], np.int64)
    highest = tnp.asarray(np.minimum(limits, tnp.iinfo(indices.dtype).max).astype(indices.dtype))
    outside = (indices < 0) | (indices > highest)
    yield _outside(x, name, shape, indices, outside, np.asarray(axes))


def _outside(x: Instruction, name: str, shape: Ints, indices: Any, outside: Any, axes: Any) -> State:
    """The state of a check of indices, of which some are outside; their last dimension runs along `axes`."""
    first = tnp.argmax(outside.reshape(-1))
    axis = tnp.take(tnp.asarray(axes), first % len(axes), mode="clip")
    index = tnp.take(indices.reshape(-1), first, mode="clip")
    size = tnp.take(tnp.asarray(np.asarray(shape, np.int32)), axis, mode="clip")
    payload = tnp.stack([index.astype(tnp.int32), axis.astype(tnp.int32), size])
    return failed(outside.any(), Description(OOBError, (name, shape), _PAYLOAD, x.source), [payload])


# what numbers of elements in neighbouring axes are computed with, from indices that are clamped (numpy.indexing)
_LINEAR = frozenset({"add", "multiply", "broadcast", "reshape", "concatenate", "convert"})


def _clamped_bounds_checks(x: Instruction, values: dict[Instruction, Any]) -> Iterator[State]:
    """The same for indices that the graph clamps itself before a gather."""
    whole = x.operands[0]
    shape = (whole.operands[0] if whole.op.name == "reshape" else whole).array_shape.dimensions
    found: list[tuple[Any, Any, int]] = []
    for number, clamp in enumerate(_clamps(x.operands[1])):
        axis = x.attributes.start_index_map[0] + number
        low, given, high = (values[o] for o in clamp.operands)
        if axis < len(shape) and given.size:
            found.append((given.astype(tnp.int32), (given < low) | (given > high), axis))
    if found:
        indices, outside = (tnp.stack(tnp.broadcast_arrays(*part), -1) for part in list(zip(*found, strict=True))[:2])
        yield _outside(x, "gather", shape, indices, outside, np.asarray([axis for *_, axis in found], np.int32))


def _clamps(x: Instruction) -> list[Instruction]:
    if x.op is elementwise.clamp:
        return [x]
    return [c for o in x.operands for c in _clamps(o)] if x.op.name in _LINEAR else []
