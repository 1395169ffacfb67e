"""Operations that stand in HLO text only: what a compiler leaves there, and tokens, which order effects.

They are run, but no function makes them: copies and views of memory, fusions, and computations that are begun at one
place and waited for at another. Here all happens in order: beginning something does it, and waiting takes the result.

Sources: sections "Copy", "Bitcast", "Domain", "AddDependency", "AfterAll", "Fusion", "AsyncStart" and those that follow
it, of the XLA documents; "Shapes and Layout" for what lies where in memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from tinyxla.errors import DTypeError, ShapeError
from tinyxla.hlo import Computation, Instruction
from tinyxla.ops import bits, calls, elementwise, movement
from tinyxla.ops.op import Array, Decomposition, Ints, Linear, NoAttributes, Op, Sample, Value, Zero
from tinyxla.shapes import TOKEN, AnyShape, ElementType, Layout, Shape, TupleShape, element_type

_CONTEXT = Shape(element_type("u32"))  # of what is begun: its state, which there is none of


def _identity(name: str, attributes: type[Any] = NoAttributes, sample: dict[str, Any] | None = None) -> Op:
    """The operand as it is."""

    def samples(random: np.random.Generator) -> Iterator[Sample]:
        for dtype in (np.float32, np.int8, np.bool_, np.complex128, element_type("bf16").dtype):
            for shape in ((), (2, 3), (0, 2)):
                yield Sample((movement.sample_values(shape, dtype),), sample or {})

    op = Op(
        name,
        attributes=attributes,
        shape=lambda x, **attributes: movement.array_operand(name, x),
        evaluate=lambda x, **attributes: x,
        derivative=Linear(lambda g, x, **attributes: (g,)),
        batch=lambda size, operands, axes, **attributes: (op(*operands, **attributes), axes[0]),
        samples=samples,
        expand=lambda x, **attributes: x,
    )
    return op


class Domain(NamedTuple):
    domain: str


copy = _identity("copy")
domain = _identity("domain", Domain, {"domain": '{kind="sharding", entry={replicated}, exit={replicated}}'})

# --- bitcast ----------------------------------------------------------------------------------------------------------


class Bitcast(NamedTuple):
    """The same bytes read as an array of other dimensions, layout or type. Layouts list the dimension that varies
    fastest first."""

    new_element_type: ElementType
    sizes: Ints
    operand_layout: Ints
    result_layout: Ints


def _bitcast_shape(x: AnyShape, **attributes: Any) -> Shape:
    shape, a = movement.array_operand("bitcast", x), Bitcast(**attributes)
    for what, layout, rank in (("operand", a.operand_layout, shape.rank), ("result", a.result_layout, len(a.sizes))):
        if sorted(layout) != list(range(rank)):
            raise ShapeError(
                f"bitcast: the layout of the {what} must be an order of {rank} dimensions, but got {layout}."
            )
    if math.prod(a.sizes) != shape.size:
        raise ShapeError(f"bitcast: sizes must make the {shape.size} elements of {shape}, but got {a.sizes}.")
    if a.new_element_type.bits != shape.element_type.bits:
        raise DTypeError(f"bitcast: elements must keep their width, but got {shape} to {a.new_element_type}.")
    return Shape(a.new_element_type, a.sizes, Layout(a.result_layout))


def _bitcast_expand(x: Value, **attributes: Any) -> Value:
    """In the order of memory, the operand's elements are the result's."""
    a = Bitcast(**attributes)
    in_memory = movement.transpose_to(x, a.operand_layout[::-1])
    sizes = tuple(a.sizes[d] for d in reversed(a.result_layout))
    found = movement.transpose_to(
        movement.reshape_to(in_memory, sizes), movement.inverse_permutation(a.result_layout[::-1])
    )
    if a.new_element_type.dtype == x.dtype:
        return found
    return bits.bitcast_convert(found, new_element_type=a.new_element_type)


def _bitcast_evaluate(x: Array, **attributes: Any) -> Array:
    a = Bitcast(**attributes)
    sizes = [a.sizes[d] for d in reversed(a.result_layout)]
    found = x.transpose(a.operand_layout[::-1]).reshape(sizes)
    found = found.transpose(movement.inverse_permutation(a.result_layout[::-1]))
    return found if a.new_element_type.dtype == x.dtype else found.view(a.new_element_type.dtype)


def _bitcast_batch(size: int, operands: tuple[Value], axes: tuple[int], **attributes: Any) -> tuple[Value, int]:
    """The mapped dimension varies slowest, before and after."""
    a = Bitcast(**attributes)
    moved = a._replace(
        sizes=(size, *a.sizes),
        operand_layout=(*(d + 1 for d in a.operand_layout), 0),
        result_layout=(*(d + 1 for d in a.result_layout), 0),
    )
    return bitcast(movement.move_axis(operands[0], axes[0], 0), **moved._asdict()), 0


def _bitcast_samples(random: np.random.Generator) -> Iterator[Sample]:
    for shape, sizes, layout in (
        ((2, 3), (3, 2), (0, 1)),
        ((6,), (1, 2, 3), (2, 1, 0)),
        ((2, 3, 2), (2, 6), (0, 1)),
        ((), (1, 1), (1, 0)),
        ((0, 2), (2, 0), (0, 1)),
    ):
        own = tuple(reversed(range(len(shape))))
        for dtype, target in ((np.float32, "f32"), (np.int16, "u16")):
            kind = element_type(target)
            yield Sample((movement.sample_values(shape, dtype),), Bitcast(kind, sizes, own, layout)._asdict())


bitcast = Op(
    "bitcast",
    attributes=Bitcast,
    shape=_bitcast_shape,
    evaluate=_bitcast_evaluate,
    derivative=Decomposition(_bitcast_expand),
    batch=_bitcast_batch,
    samples=_bitcast_samples,
    expand=_bitcast_expand,
)

# --- fusion -----------------------------------------------------------------------------------------------------------


class Fusion(NamedTuple):
    kind: str  # kLoop, kInput, kOutput or kCustom: how the compiler that made it meant to run it
    calls: Computation


def _check_called(name: str, operands: Sequence[AnyShape], computation: Computation) -> None:
    if list(operands) != computation.parameter_shapes:
        raise ShapeError(
            f"{name}: {computation.name} must take the operands, {TupleShape(tuple(operands))}, but it takes "
            f"{TupleShape(tuple(computation.parameter_shapes))}."
        )


def _fusion_shape(*operands: AnyShape, kind: str, calls: Computation) -> AnyShape:
    _check_called("fusion", operands, calls)
    return calls.root.shape


def _inline(*operands: Value, kind: str, calls: Computation) -> Any:
    return _run_values(calls, operands)


_run_arrays, _run_values, _run_batched = calls.evaluate, calls.inline, calls.inline_batched


def _sample_computation(both: bool) -> Computation:
    """sin(x) * y, and -y if both are wanted."""
    shape = Shape(element_type("f32"), (2, 3))
    made = [Instruction(movement.parameter, (), movement.Parameter(k, shape), shape) for k in (0, 1)]

    def emit(op: Op, *operands: Instruction) -> Instruction:
        made.append(Instruction(op, operands, op.attributes(), op.shape(*(x.shape for x in operands))))
        return made[-1]

    x, y = made
    root = emit(elementwise.mul, emit(elementwise.sin, x), y)
    if both:
        root = emit(calls.tuple_, root, emit(elementwise.neg, y))
    return Computation("fused", [x, y], made, root)


def _computation_samples(**attributes: Any) -> Callable[[np.random.Generator], Iterator[Sample]]:
    def samples(random: np.random.Generator) -> Iterator[Sample]:
        x = movement.sample_values((2, 3))
        for both in (False, True):
            yield Sample((x, x + 1), {**attributes, "calls": _sample_computation(both)})

    return samples


fusion = Op(
    "fusion",
    attributes=Fusion,
    shape=_fusion_shape,
    evaluate=lambda *operands, kind, calls: _run_arrays(calls, operands),
    derivative=Decomposition(_inline),
    batch=lambda size, operands, axes, *, kind, calls: _run_batched(calls, size, operands, axes),
    samples=_computation_samples(kind="kLoop"),
    expand=_inline,
)

# --- what is begun at one place and waited for at another -------------------------------------------------------------


def _copy_start_shape(x: AnyShape) -> TupleShape:
    shape = movement.array_operand("copy-start", x)
    return TupleShape((shape, shape, _CONTEXT))


def _copy_start_expand(x: Value) -> Any:
    return x, x, movement.full(0, np.uint32)


def _array_samples(random: np.random.Generator) -> Iterator[Sample]:
    yield Sample((movement.sample_values((2, 3)),))
    yield Sample((movement.sample_values((), np.int32),))


copy_start = Op(
    "copy-start",
    shape=_copy_start_shape,
    evaluate=lambda x: (x, x, np.zeros((), np.uint32)),
    derivative=Decomposition(_copy_start_expand),
    batch=lambda size, operands, axes: (copy_start(*operands), (axes[0], axes[0], None)),
    samples=_array_samples,
    expand=_copy_start_expand,
)


def _begun(name: str, x: AnyShape) -> tuple[AnyShape, ...]:
    if not isinstance(x, TupleShape) or len(x.elements) < 2:
        raise ShapeError(f"{name}: the operand must be the tuple of what was begun, but got {x}.")
    return x.elements


def regrouping(
    name: str, index: int | None, samples: Callable[..., Iterator[Sample]], *, any_value: bool = False
) -> Op:
    """An element of what was begun, or all of it; `any_value`: that need not be a tuple."""

    def shape(x: AnyShape) -> AnyShape:
        if any_value:
            return x
        begun = _begun(name, x)
        return x if index is None else begun[index]

    return Op(
        name,
        shape=shape,
        evaluate=lambda x: x if index is None else x[index],
        derivative=Linear(lambda g, x: (g,)),
        batch=_never_batched,
        samples=samples,
        structural=True,
    )


def _never_batched(size: int, operands: Any, axes: Any, **attributes: Any) -> Any:
    raise AssertionError("ops that only regroup values are not batched")


def _begun_samples(random: np.random.Generator) -> Iterator[Sample]:
    x = movement.sample_values((2, 3))
    yield Sample(((x, x + 1, np.zeros((), np.uint32)),))


class AsyncStart(NamedTuple):
    calls: Computation
    state: tuple[Shape, ...] = ()  # what else there is of what was begun, besides operands and result


def _async_shape(*operands: AnyShape, calls: Computation, state: tuple[Shape, ...]) -> TupleShape:
    _check_called("async-start", operands, calls)
    return TupleShape((TupleShape(operands), calls.root.shape, *state))


def _async_evaluate(*operands: Any, calls: Computation, state: tuple[Shape, ...]) -> Any:
    """Of arrays, or of any values."""
    if all(isinstance(x, np.ndarray) for x in operands):
        return operands, _run_arrays(calls, operands), *(np.zeros(s.dimensions, s.dtype) for s in state)
    return operands, _run_values(calls, operands), *(movement.full(0, s.dtype, s.dimensions) for s in state)


copy_done = regrouping("copy-done", 0, _begun_samples)
async_start = Op(
    "async-start",
    attributes=AsyncStart,
    shape=_async_shape,
    evaluate=_async_evaluate,
    derivative=Linear(lambda g, *operands, **attributes: g[0]),
    batch=_never_batched,
    samples=_computation_samples(state=(_CONTEXT,)),
    structural=True,
)
async_update = regrouping("async-update", None, _begun_samples)
async_done = regrouping("async-done", 1, _begun_samples)

# --- tokens -----------------------------------------------------------------------------------------------------------

_TOKEN = Shape(TOKEN)


def _check_tokens(name: str, tokens: Sequence[AnyShape]) -> None:
    for token in tokens:
        if token != _TOKEN:
            raise ShapeError(f"{name}: what is waited for must be a token, but got {token}.")


def _after_all_shape(*tokens: AnyShape) -> Shape:
    _check_tokens("after-all", tokens)
    return _TOKEN


def _add_dependency_shape(x: AnyShape, token: AnyShape) -> AnyShape:
    _check_tokens("add-dependency", (token,))
    return movement.array_operand("add-dependency", x)


def _after_all_samples(random: np.random.Generator) -> Iterator[Sample]:
    for count in (0, 1, 2):
        yield Sample((np.zeros((), TOKEN.dtype),) * count)


def _add_dependency_samples(random: np.random.Generator) -> Iterator[Sample]:
    for sample in _array_samples(random):
        yield Sample((*sample.operands, np.zeros((), TOKEN.dtype)))


after_all = Op(
    "after-all",
    shape=_after_all_shape,
    evaluate=lambda *tokens: np.zeros((), TOKEN.dtype),
    derivative=Zero(),
    batch=lambda size, operands, axes: (after_all(), None),
    samples=_after_all_samples,
)
add_dependency = Op(
    "add-dependency",
    shape=_add_dependency_shape,
    evaluate=lambda x, token: x,
    derivative=Linear(lambda g, x, token: (g,), operands=(0,)),
    batch=lambda size, operands, axes: (operands[0], axes[0]),
    samples=_add_dependency_samples,
    expand=lambda x, token: x,
)
