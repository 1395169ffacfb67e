"""The ops as JAX has them: what the values of `evaluate` are compared with.

`functions` maps an op's name to a function of its operands and attributes; `absent` names the ops that JAX has no
function for, so that an op in neither is an oversight.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.extend.random import threefry2x32_p

from tests.support import xla_oracle
from tinyxla.ops import indexing, ops, reduction
from tinyxla.ops.products import contraction, ragged
from tinyxla.shapes.window import dilated


def _scalar(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of scalars, with the accuracy that some take."""
    takes_accuracy = "accuracy" in inspect.signature(function).parameters

    def apply(*operands: Any, result_accuracy: Any = None) -> Any:
        if result_accuracy is None or not takes_accuracy:
            return function(*operands)
        if result_accuracy.mode != "tolerance":
            return function(*operands, accuracy=lax.AccuracyMode[result_accuracy.mode.upper()])
        return function(*operands, accuracy=lax.Tolerance(*result_accuracy[1:]))

    return apply


_SCALAR = {name: op.scalar.name for name, op in ops.items() if op.scalar}


functions: dict[str, Callable[..., Any]] = {
    **{name: _scalar(getattr(lax, function)) for name, function in _SCALAR.items() if hasattr(lax, function)},
    "abs": lambda x: x if np.issubdtype(x.dtype, np.unsignedinteger) else lax.abs(x),
    "add": lambda x, y: lax.bitwise_or(x, y) if x.dtype == np.bool_ else lax.add(x, y),
    "and": lax.bitwise_and,
    "bitcast-convert": lambda x, new_element_type: lax.bitcast_convert_type(x, new_element_type.dtype),
    "broadcast": lambda x, sizes, dimensions: lax.broadcast_in_dim(
        lax.transpose(x, np.argsort(dimensions)), sizes, sorted(dimensions)
    ),
    "ceil": lax.ceil,
    "chain-divide": lambda x, y: np.where(x == 0, x.dtype.type(0), lax.div(x, y)),
    "chain-multiply": lambda x, y, either=False: np.where(
        (x == 0) | (either & (y == 0)), x.dtype.type(0), lax.mul(x, y)
    ),
    "clamp": lax.clamp,
    "complex": lax.complex,
    "concatenate": lambda *operands, dimension: lax.concatenate(operands, dimension),
    "count-leading-zeros": lax.clz,
    "divide": lax.div,
    "floor": lax.floor,
    "imag": lambda x: lax.imag(x) if np.iscomplexobj(x) else np.zeros_like(x),
    "symbolic-size": lambda size: np.int32(size),
    "iota": lambda shape, iota_dimension: lax.broadcasted_iota(shape.dtype, shape.dimensions, iota_dimension),
    "is-finite": lax.is_finite,
    "maximum": lax.max,
    "minimum": lax.min,
    "mulhi": lax.mulhi,
    "multiply": lambda x, y: lax.bitwise_and(x, y) if x.dtype == np.bool_ else lax.mul(x, y),
    "negate": lax.neg,
    "not": lax.bitwise_not,
    "or": lax.bitwise_or,
    "pad": lambda x, value, padding_config: lax.pad(x, value, padding_config),
    "popcnt": lax.population_count,
    "real": lambda x: lax.real(x) if np.iscomplexobj(x) else x,
    "reduce-precision": lambda x, exponent_bits, mantissa_bits: lax.reduce_precision(x, exponent_bits, mantissa_bits),
    "reshape": lambda x, sizes: lax.reshape(x, sizes),
    "reverse": lambda x, dimensions: lax.rev(x, dimensions),
    "round-nearest-afz": lambda x: lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO),
    "round-nearest-even": lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN),
    "select": lax.select,
    "shift-left": lax.shift_left,
    "shift-right-arithmetic": lax.shift_right_arithmetic,
    "shift-right-logical": lax.shift_right_logical,
    "sign": lax.sign,
    "slice": lambda x, start_indices, limit_indices, strides: lax.slice(x, start_indices, limit_indices, strides),
    "subtract": lax.sub,
    "threefry-2x32": threefry2x32_p.bind,
    "transpose": lambda x, permutation: lax.transpose(x, permutation),
    "xor": lax.bitwise_xor,
}

elsewhere = {  # functions that something else than JAX computes
    "rng-bit-generator": "XLA",
    "select-and-scatter": "a loop over windows in NumPy",
}
absent = {
    **dict.fromkeys(_SCALAR.keys() - functions.keys(), "has no function; test_scalar_math compares with mpmath"),
    "batch-norm-grad": "has no function; test_windows runs XLA on it",
    "batch-norm-inference": "has no function; test_windows runs XLA on it",
    "batch-norm-training": "has no function; test_windows runs XLA on it",
    "parameter": "has no value of its own",
    "dynamic-reshape": "has no function; test_dynamic_sizes compares with NumPy",
    "get-dimension-size": "has no function; test_dynamic_sizes compares with NumPy",
    "set-dimension-size": "has no function; test_dynamic_sizes compares with NumPy",
    "constant": "is its value",
    "add-dependency": "stands in texts only",
    "after-all": "stands in texts only",
    "async-done": "stands in texts only",
    "async-start": "stands in texts only",
    "async-update": "stands in texts only",
    "bitcast": "stands in texts only",
    "copy": "stands in texts only",
    "copy-done": "stands in texts only",
    "copy-start": "stands in texts only",
    "domain": "stands in texts only",
    "fusion": "stands in texts only",
    "send-done": "only regroups",
    "tuple": "only regroups",
    "get-tuple-element": "only regroups",
    "call": "is what its computation is",
    "lapack": "has LAPACK's info among its results; test_export compares programs that have it with JAX",
    "callback": "calls a Python function; test_callbacks compares with JAX",
    "custom-call": "calls what is registered",
    "mpi-collective": "is compared with NumPy in tests/distributed",
    "lanes": "is what its computation in lock step is",
    "while-pullback": "is the derivative of loops that JAX cannot differentiate",
    **dict.fromkeys(
        ("all-gather all-reduce all-to-all collective-permute partition-id reduce-scatter replica-id").split(),
        "has a value on several devices; test_replicated_against_xla and test_named_axes compare",
    ),
    **dict.fromkeys(
        ("collective-broadcast", "ragged-all-to-all"),
        "is not there in XLA for CPUs; test_collectives and test_stablehlo_collectives have the documents' values",
    ),
    **dict.fromkeys(
        (
            "all-gather-done all-gather-start all-reduce-done all-reduce-start collective-permute-done "
            "collective-permute-start"
        ).split(),
        "stands in texts only",
    ),
    **dict.fromkeys("infeed outfeed recv recv-done send".split(), "has effects; test_transfers sees them"),
    "while": "is tested as lax.while_loop and lax.scan",
    "conditional": "is tested as lax.cond and lax.switch",
    "map": "is what its computation is",
    **dict.fromkeys(("checkpoint-name", "pvary", "psum-invariant", "recast", "sharding-constraint"), "is the identity"),
    "shard-map": "is compared with JAX in tests/jax/meshes",
    "opt-barrier": "is the identity",
    "rng": "draws other numbers",
    "rng-get-and-update-state": "has a state of its own",
}


def oracle(name: str) -> Callable[..., Any]:
    """The op with that name, at 64 bits where the operands are, as a function to a flat list of results."""

    def function(*operands: Any, **attributes: Any) -> list[Any]:
        with jax.enable_x64(True):
            result = functions[name](*jax.device_put(operands), **attributes)
            return [np.asarray(x) for x in (result if isinstance(result, (tuple, list)) else (result,))]

    return function


def results(name: str, samples: Sequence[Any]) -> list[list[Any]]:
    """What the op gives for all samples, as flat lists. They are one program, which compiles in a third of the time;
    but where the function looks at the values, it runs by itself."""
    if name == "rng-bit-generator":
        return _all_bits([(s.operands[0], s.attributes["algorithm"], s.attributes["shape"]) for s in samples])

    def apply(sample: Any, operands: tuple[Any, ...]) -> list[Any]:
        return jax.tree.leaves(functions[name](*operands, **sample.attributes))

    def traces(sample: Any) -> bool:
        try:
            jax.eval_shape(functools.partial(apply, sample), sample.operands)
        except jax.errors.JAXTypeError:
            return False
        return True

    with jax.enable_x64(True):
        together = [s for s in samples if traces(s)]
        program = jax.jit(lambda operands: [apply(s, x) for s, x in zip(together, operands, strict=True)])
        found = iter(program(jax.device_put([s.operands for s in together])))  # asarray compiles
    by_itself = oracle(name)
    chosen = {id(s) for s in together}
    return [next(found) if id(s) in chosen else by_itself(*s.operands, **s.attributes) for s in samples]


def _named(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        functions[name] = function
        return function

    return register


@_named("compare")
def _compare(x: Any, y: Any, *, direction: str, type: str) -> Any:
    if type != "TOTALORDER":
        return getattr(lax, direction.lower())(x, y)
    if direction in ("GT", "GE"):
        return _compare(y, x, direction=direction.replace("G", "L"), type=type)
    if direction == "NE":
        return ~lax.eq_to_p.bind(x, y)
    return {"EQ": lax.eq_to_p, "LE": lax.le_to_p, "LT": lax.lt_to_p}[direction].bind(x, y)


@_named("convert")
def _convert(x: Any, *, new_element_type: Any) -> Any:
    if np.iscomplexobj(x) and new_element_type.kind != "complex":  # JAX does it with a warning
        if new_element_type.kind == "pred":
            return lax.ne(x, lax.full_like(x, 0))
        x = lax.real(x)
    return lax.convert_element_type(x, new_element_type.dtype)


@_named("dot")
def _dot(
    x: Any,
    y: Any,
    *,
    lhs_contracting_dims: Sequence[int],
    rhs_contracting_dims: Sequence[int],
    lhs_batch_dims: Sequence[int],
    rhs_batch_dims: Sequence[int],
    preferred_element_type: Any,
    operand_precision: Sequence[str] = (),
) -> Any:
    numbers = ((lhs_contracting_dims, rhs_contracting_dims), (lhs_batch_dims, rhs_batch_dims))
    wanted = preferred_element_type.dtype if preferred_element_type else None
    return lax.dot_general(x, y, numbers, preferred_element_type=wanted)


@_named("convolution")
def _convolution(x: Any, y: Any, *, window: Any, dim_labels: Any, **attributes: Any) -> Any:
    """JAX has no reversal of the window, and refuses negative padding of more than there is."""
    wanted, _ = attributes.pop("preferred_element_type"), attributes.pop("operand_precision")
    y = lax.rev(y, [d for d, w in zip(dim_labels.rhs_spec[2:], window, strict=True) if w.window_reversal])
    sizes = zip(window, (x.shape[d] for d in dim_labels.lhs_spec[2:]), strict=True)
    return lax.conv_general_dilated(
        x,
        y,
        [w.stride for w in window],
        [(w.padding_low, w.padded(n) - w.padding_low - dilated(n, w.base_dilation)) for w, n in sizes],
        [w.base_dilation for w in window],
        [w.window_dilation for w in window],
        lax.ConvDimensionNumbers(*dim_labels),
        preferred_element_type=wanted.dtype if wanted else None,
        **attributes,
    )


def _dot_numbers(given: Any) -> Any:
    return (
        (given.lhs_contracting_dims, given.rhs_contracting_dims),
        (given.lhs_batch_dims, given.rhs_batch_dims),
    )


@_named("ragged-dot")
def _ragged_dot(x: Any, y: Any, group_sizes: Any, **attributes: Any) -> Any:
    given = ragged.RaggedDot(**attributes)
    numbers = lax.RaggedDotDimensionNumbers(_dot_numbers(given), given.lhs_ragged_dims, given.rhs_group_dims)
    wanted = given.preferred_element_type
    return lax.ragged_dot_general(
        x, y, group_sizes.astype(np.int32), numbers, preferred_element_type=wanted.dtype if wanted else None
    )


@_named("scaled-dot")
def _scaled_dot(x: Any, x_scale: Any, y: Any, y_scale: Any, **attributes: Any) -> Any:
    """JAX's has results of 16 or 32 bits from narrower operands."""
    given = contraction.Dot(**attributes)
    wanted = given.preferred_element_type
    if x.dtype.itemsize > 1:
        left, right = (
            v * np.kron(s, np.ones(np.floor_divide(v.shape, np.maximum(s.shape, 1)), s.dtype))
            for v, s in ((x, x_scale), (y, y_scale))
        )
        return lax.dot_general(left, right, _dot_numbers(given))
    return lax.scaled_dot(
        x,
        y,
        lhs_scale=x_scale,
        rhs_scale=y_scale,
        dimension_numbers=_dot_numbers(given),
        preferred_element_type=wanted.dtype if wanted else None,
    )


@_named("power")
def _power(x: Any, y: Any) -> Any:
    """For integers JAX has only fixed exponents."""
    if not np.issubdtype(x.dtype, np.integer):
        return lax.pow(x, y)
    flat = zip(np.ravel(x), np.ravel(y), strict=True)
    powers = [np.asarray(lax.integer_pow(jax.numpy.asarray(base), int(exponent))) for base, exponent in flat]
    return np.array(powers, x.dtype).reshape(x.shape)


@_named("reduce")
def _reduce(*operands: Any, dimensions: Sequence[int], to_apply: Any) -> Any:
    count = len(operands) // 2
    monoids = {
        "add": lax.add,
        "and": lax.bitwise_and,
        "maximum": lax.max,
        "minimum": lax.min,
        "multiply": lax.mul,
        "or": lax.bitwise_or,
        "xor": lax.bitwise_xor,
    }
    name = reduction.monoid(to_apply)
    if name is not None:
        return lax.reduce(operands[0], operands[1], monoids[name], dimensions)
    values, index = operands[:count]
    assert to_apply.name.startswith("argument_"), f"no function of JAX for a reduction with {to_apply.name}"
    (axis,) = dimensions
    at = lax.argmax(values, axis, index.dtype)
    return [np.max(values, axis), at]


@_named("dynamic-slice")
def _dynamic_slice(x: Any, *starts: Any, dynamic_slice_sizes: Sequence[int]) -> Any:
    return lax.dynamic_slice(
        x, [lax.max(s, np.int32(0)) for s in starts], dynamic_slice_sizes
    )  # where JAX counts from the end


@_named("dynamic-update-slice")
def _dynamic_update_slice(x: Any, update: Any, *starts: Any) -> Any:
    return lax.dynamic_update_slice(x, update, [lax.max(s, np.int32(0)) for s in starts])


def _vectors_last(indices: Any, vector_dim: int, others: Sequence[int]) -> tuple[Any, tuple[int, ...]]:
    """JAX has the index vectors in the last dimension."""
    if vector_dim == indices.ndim:
        indices = indices[..., None]
    return np.moveaxis(indices, vector_dim, -1), tuple(d - (d > vector_dim) for d in others)


@_named("gather")
def _gather(x: Any, indices: Any, **attributes: Any) -> Any:
    given = indexing.Gather(**attributes)
    indices, batching = _vectors_last(indices, given.index_vector_dim, given.start_indices_batching_dims)
    numbers = lax.GatherDimensionNumbers(
        given.offset_dims, given.collapsed_slice_dims, given.start_index_map, given.operand_batching_dims, batching
    )
    return lax.gather(x, indices, numbers, given.slice_sizes, mode="clip")


@_named("scatter")
def _scatter(x: Any, indices: Any, updates: Any, **attributes: Any) -> Any:
    given = indexing.Scatter(**attributes)
    functions_ = {
        "add": lax.scatter_add,
        "subtract": lax.scatter_sub,
        "multiply": lax.scatter_mul,
        "maximum": lax.scatter_max,
        "minimum": lax.scatter_min,
        "replacement": lax.scatter,
    }
    if given.to_apply.name not in functions_:  # for bits JAX has no function; one element after the other by NumPy
        ufunc = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}[given.to_apply.name]
        result = np.array(x)
        ufunc.at(result, tuple(np.moveaxis(indices, given.index_vector_dim, 0)), updates)
        return result
    indices, batching = _vectors_last(indices, given.index_vector_dim, given.scatter_indices_batching_dims)
    numbers = lax.ScatterDimensionNumbers(
        given.update_window_dims,
        given.inserted_window_dims,
        given.scatter_dims_to_operand_dims,
        given.input_batching_dims,
        batching,
    )
    return functions_[given.to_apply.name](x, indices, updates, numbers, mode="drop")


@_named("topk")
def _topk(x: Any, k: int, largest: bool) -> Any:
    if largest:
        return lax.top_k(x, k)
    numbers = np.broadcast_to(np.arange(x.shape[-1], dtype=np.int32), x.shape)
    return [y[..., :k] for y in lax.sort([x, numbers], num_keys=1)]


@_named("sort")
def _sort(*operands: Any, dimensions: Sequence[int], to_apply: Any, is_stable: bool) -> Any:
    if to_apply.name == "by_magnitude":
        order = jax.numpy.argsort(lax.abs(operands[0]), dimensions[0], stable=True)
        return jax.numpy.take_along_axis(operands[0], order, dimensions[0])
    if to_apply.name == "less":
        keys = len(operands) if len(to_apply.instructions) > 6 and len(operands) > 1 else 1
        return lax.sort(operands, dimension=dimensions[0], is_stable=is_stable, num_keys=keys)[
            slice(None) if len(operands) > 1 else 0
        ]
    return lax.rev(lax.sort(operands[0], dimension=dimensions[0]), dimensions)


def _in_single(function: Callable[..., Any]) -> Callable[..., Any]:
    """JAX has no linear algebra of 16-bit types."""

    def wide(*operands: Any, **attributes: Any) -> Any:
        if operands[0].dtype.itemsize >= 4:
            return function(*operands, **attributes)
        results = function(*(x.astype(np.float32) for x in operands), **attributes)
        return jax.tree.map(lambda x: x.astype(operands[0].dtype) if x.dtype == np.float32 else x, results)

    return wide


@_named("cholesky")
@_in_single
def _cholesky(a: Any, *, lower: bool) -> Any:
    if lower:
        return lax.linalg.cholesky(a, symmetrize_input=False)
    upper = lax.linalg.cholesky(lax.conj(a.mT) if np.iscomplexobj(a) else a.mT, symmetrize_input=False)
    return lax.conj(upper.mT) if np.iscomplexobj(a) else upper.mT


@_named("triangular-solve")
@_in_single
def _triangular_solve(a: Any, b: Any, *, transpose_a: str, **options: bool) -> Any:
    transposed, conjugated = transpose_a != "NO_TRANSPOSE", transpose_a == "ADJOINT"
    return lax.linalg.triangular_solve(a, b, transpose_a=transposed, conjugate_a=conjugated, **options)


@_named("Eig")
@_in_single
def _eig(a: Any) -> Any:
    values, vectors = lax.linalg.eig(a, compute_left_eigenvectors=False)
    return vectors, values


@_named("Eigh")
@_in_single
def _eigh(a: Any, *, lower: bool) -> Any:
    return tuple(lax.linalg.eigh(a, lower=lower, symmetrize_input=False))


@_named("LuDecomposition")
@_in_single
def _lu(a: Any) -> Any:
    return tuple(lax.linalg.lu(a))


@_named("Solve")
@_in_single
def _solve(a: Any, b: Any, *, transpose_a: bool) -> Any:
    return jax.numpy.linalg.solve(jax.numpy.swapaxes(a, -1, -2) if transpose_a else a, b)


@_named("LuPivotsToPermutation")
def _pivots_to_permutation(pivots: Any, *, permutation_size: int) -> Any:
    return lax.linalg.lu_pivots_to_permutation(pivots, permutation_size)


@_named("Qr")
@_in_single
def _qr(a: Any, *, full_matrices: bool) -> Any:
    return tuple(lax.linalg.qr(a, full_matrices=full_matrices))


@_named("Svd")
@_in_single
def _svd(a: Any, *, full_matrices: bool) -> Any:
    return tuple(lax.linalg.svd(a, full_matrices=full_matrices))


@_named("fft")
def _fft(x: Any, *, fft_type: str, fft_length: Sequence[int]) -> Any:
    if 0 not in fft_length:
        return lax.fft(x, fft_type, fft_length)
    real, single = fft_type == "IRFFT", x.dtype in (np.float32, np.complex64)  # where JAX and XLA disagree on the shape
    dtype = (np.float32 if real else np.complex64) if single else (np.float64 if real else np.complex128)
    return np.zeros((*x.shape[: x.ndim - len(fft_length)], *fft_length), dtype)


@_named("rng-bit-generator")
def _rng_bit_generator(state: Any, *, algorithm: str, shape: Any) -> Any:
    return _all_bits([(state, algorithm, shape)])[0]


def _all_bits(wanted: Sequence[tuple[Any, str, Any]]) -> list[list[Any]]:
    """States and bits for states, algorithms and shapes, by XLA itself, as one program: JAX asks for unsigned integers
    only."""
    lines: list[str] = []
    for n, (state, algorithm, shape) in enumerate(wanted):
        before, after = f"u64[{len(state)}]{{0}}", shape.text()
        lines += [
            f"given.{n} = {before} parameter({n})",
            f"both.{n} = ({before}, {after}) rng-bit-generator(given.{n}), algorithm={algorithm}",
            f"state.{n} = {before} get-tuple-element(both.{n}), index=0",
            f"bits.{n} = {after} get-tuple-element(both.{n}), index=1",
        ]
    states = [f"u64[{len(state)}]{{0}}" for state, *_ in wanted]
    pairs = ", ".join(f"{state}, {shape.text()}" for state, (*_, shape) in zip(states, wanted, strict=True))
    names = ", ".join(f"state.{n}, bits.{n}" for n in range(len(wanted)))
    layout = f"HloModule bits, entry_computation_layout={{({', '.join(states)})->({pairs})}}\n\n"
    body = "\n  ".join([*lines, f"ROOT r = ({pairs}) tuple({names})"])
    found = xla_oracle.run(f"{layout}ENTRY main {{\n  {body}\n}}\n", [state for state, *_ in wanted])
    return [
        [left, bits.view(shape.dtype)] for left, bits, (*_, shape) in zip(found[::2], found[1::2], wanted, strict=True)
    ]


def _scalar_function(computation: Any) -> Any:
    """The computation of a monoid, or of a sample, as a function of JAX."""
    monoids = {"add": lax.add, "maximum": lax.max, "minimum": lax.min, "multiply": lax.mul}
    if computation.name == "either":
        return lambda x, y: x + y - x * y
    bits = {"and": lax.bitwise_and, "or": lax.bitwise_or, "xor": lax.bitwise_xor}
    return {**monoids, **bits}[reduction.monoid(computation) or ""]


@_named("reduce-window")
def _reduce_window(*operands: Any, window: Any, to_apply: Any) -> Any:
    count = len(operands) // 2
    arrays, initial = operands[:count], operands[count:]
    if count == 1:
        arrays, initial, computation = arrays[0], initial[0], _scalar_function(to_apply)
    else:
        assert to_apply.name in ("affine", "argument_gt"), f"no function of JAX for {to_apply.name}"

        def computation(x: Any, y: Any) -> Any:
            if to_apply.name == "affine":
                return x[0] * y[0], x[1] * y[0] + y[1]
            first = (x[0] > y[0]) | ((x[0] == y[0]) & (x[1] < y[1]))
            return tuple(lax.select(first, a, b) for a, b in zip(x, y, strict=True))

    return lax.reduce_window(
        arrays,
        initial,
        computation,
        tuple(w.size for w in window),
        tuple(w.stride for w in window),
        [(w.padding_low, w.padding_high) for w in window],
        tuple(w.base_dilation for w in window),
        tuple(w.window_dilation for w in window),
    )


@_named("select-and-scatter")
def _select_and_scatter(x: Any, source: Any, initial: Any, *, window: Any, select: Any, scatter: Any) -> Any:
    """One window after the other."""
    compare = {"GE": np.greater_equal, "LE": np.less_equal, "GT": np.greater, "LT": np.less}
    first = compare[select.root.attributes.direction]
    combine = _scalar_function(scatter)
    x, result = np.asarray(x), np.full(x.shape, initial)
    for place in np.ndindex(*source.shape):
        chosen = None
        for offset in np.ndindex(*(w.size for w in window)):
            at = tuple(p * w.stride + o - w.padding_low for p, o, w in zip(place, offset, window, strict=True))
            inside = all(0 <= a < n for a, n in zip(at, x.shape, strict=True))
            if inside and (chosen is None or not first(x[chosen], x[at])):
                chosen = at
        if chosen is not None:
            result[chosen] = np.asarray(combine(result[chosen], source[place]))
    return result
