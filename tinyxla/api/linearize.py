"""Linear maps: a function's derivative as one, and a linear function's transpose."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, Literal, overload

import numpy as np

from tinyxla.api.derivatives import recorded_pullback, varies_error
from tinyxla.api.functions import (
    Function,
    OfLeaves,
    ShapeDtypeStruct,
    argument_names,
    arrays_of,
    check_callable,
    name_of,
    trace_tree,
)
from tinyxla.errors import ArgumentError, DifferentiationError, DTypeError, ShapeError
from tinyxla.hlo import Computation, Instruction
from tinyxla.ops import elementwise, movement
from tinyxla.shapes import Shape, element_type
from tinyxla.tracing import pytrees
from tinyxla.tracing.array import with_scalar_register
from tinyxla.tracing.axis_types import EVERY, with_auto_axes
from tinyxla.tracing.core import state, trace, within_scope
from tinyxla.tracing.float_zeros import is_float0
from tinyxla.tracing.promotion import as_array, float0
from tinyxla.tracing.signatures import Arguments, Aux, R
from tinyxla.transforms import vjp as vjp_flat
from tinyxla.transforms.calls import with_used_results
from tinyxla.transforms.computations import chosen, effects, reverse, run, subgraph
from tinyxla.transforms.custom import linear_part
from tinyxla.transforms.manual import dependent_results
from tinyxla.transforms.reverse import IntegerTape, TapeTrace, is_inexact, is_integer
from tinyxla.transforms.sharding_types import sharding_in_type, with_type_of
from tinyxla.tree_util import Partial
from tinyxla.util.name_stacks import JVP, TRANSPOSE
from tinyxla.util.tracebacks import boundary
from tinyxla.util.wrapping import named


class _State(threading.local):
    depth: int = 0  # of functions that are linearized in this thread


_state = _State()


def linearized_around() -> int:
    """How many functions are being linearized in this thread, in each other: users see what their derivatives hold."""
    return _state.depth


@overload
def linearize(
    fun: Callable[[*Arguments], R], *primals: *Arguments, has_aux: Literal[False] = False
) -> tuple[R, Callable[[*Arguments], R]]: ...
@overload
def linearize(fun: Callable[..., R], *primals: Any, has_aux: Literal[False] = False) -> tuple[R, Callable[..., R]]: ...
@overload
def linearize(
    fun: Callable[..., tuple[R, Aux]], *primals: Any, has_aux: Literal[True]
) -> tuple[R, Callable[..., R], Aux]: ...
@boundary
def linearize(fun: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """The value of a function, and its derivative there as a linear function of tangents.

    The derivative holds what it needs of the function's values, so that applying it to many tangents computes these
    once.

    Args:
        fun: of pytrees of arrays.
        primals: its arguments.
        has_aux: the function gives `(result, auxiliary)`.

    Returns:
        `(result, derivative)`, or `(result, derivative, auxiliary)`; `derivative(*tangents)` takes tangents structured
        and shaped as the arguments, and gives one structured as the result. It is a pytree: compiled and mapped
        functions can take and give it.

    Raises:
        ShapeError: in the linear function, a tangent that does not have the shape of its primal.

    Example:
        >>> import tinyxla as tx
        >>> y, derivative = tx.linearize(tx.numpy.sin, 0.0)
        >>> derivative(2.0)
        Array(2., dtype=float32, weak_type=True)
    """
    check_callable("linearize", fun)
    name = name_of(fun)
    inputs, treedef = arrays_of(primals, f"linearize of {name}: argument ", lambda: argument_names(primals, {}))
    flat = OfLeaves(fun, treedef, has_aux, float0=True)
    scalars: dict[int, Any] = {}
    _state.depth += 1
    try:
        values, pullback = with_scalar_register(scalars, lambda: vjp_flat(flat, inputs, scope=JVP))
        # The way back is recorded, with what it needs of the values. Its transpose is the derivative.
        made, captured, flows = recorded_pullback(name, pullback, values, scalars)
    finally:
        _state.depth -= 1
    seeded = [is_inexact(x) for x in values]
    shapes = [Shape.of(x) for x in chosen(values, seeded)]

    @functools.cache
    def forth() -> Computation:
        both = _reversed(made, len(shapes))  # which gives the results, too: the derivative is linear and needs none
        tangents = both.outputs[len(made.outputs) :]
        return with_used_results(subgraph(both.name, both.parameters, tangents, effects=effects(both)))

    def derivative(captured: list[Any], *tangents: Any) -> Any:
        zeros = [movement.full(0, s.dtype, s.dimensions) for s in shapes]  # where the way back is, since it is linear
        what = f"the derivative of {name}: a tangent"
        given = _leaves_like(inputs, treedef, tangents, what, is_strict=True)
        if state.manual is not None:
            for t, x in zip(given, inputs, strict=True):
                if t is not None and (beyond := state.manual.varies_beyond(t, x)):
                    raise varies_error(what, t, "an argument", beyond)
        operands = [*zeros, *captured, *chosen(given, flows)]
        is_typed = any(x.sharding is not None for x in outputs)  # what the way back computes has no types
        moves = iter(with_auto_axes(EVERY, lambda: run(forth(), operands)) if is_typed else run(forth(), operands))
        leaves = [
            with_type_of(next(moves), x).with_weak_type(x.weak_type) if moving else np.zeros(x.shape, float0)
            for x, moving in zip(outputs, seeded, strict=True)
        ]
        return flat.result(leaves)

    outputs = [ShapeDtypeStruct(x.shape, x.dtype, weak_type=x.weak_type, sharding=sharding_in_type(x)) for x in values]
    return flat.with_aux(flat.result(values), Partial(named("derivative", fun, derivative), captured))


def _reversed(made: Computation, count: int, tape: type[TapeTrace] = TapeTrace) -> Computation:
    """From the parameters and cotangents of the results: the results and cotangents of the first parameters."""
    seeded = tuple(tape.tracks(x.array_shape) for x in made.outputs)
    return reverse(made, tuple(k < count for k in range(len(made.parameters))), seeded, True, tape).both


def _leaves_like(
    templates: Any,
    treedef: pytrees.TreeDef,
    given: Any,
    what: str,
    is_strict: bool = False,
    tracks: Callable[[Any], bool] = is_inexact,
) -> list[Any]:
    """The leaves of tangents or cotangents, in the types of what they belong to; if `is_strict`, that of an integer is
    a float0, and no integer stands for a floating-point number."""
    leaves, tree = pytrees.flatten(given)
    if not pytrees.alike(tree, treedef):
        raise ArgumentError(
            f"{what} must have the structure {pytrees.structure_text(treedef)}, where * stands for an array, but has "
            f"{pytrees.structure_text(tree)}."
        )
    found: list[Any] = []
    for leaf, template in zip(leaves, templates, strict=True):
        if not tracks(template):
            if is_strict and not is_float0(leaf):
                raise DTypeError(
                    f"{what} must have the type dtypes.float0 where the argument is {Shape.of(template)}, but is "
                    f"{Shape.of(as_array(leaf))}; pass numpy.zeros({template.shape}, dtypes.float0)."
                )
            found.append(None)
            continue
        (x,), _ = arrays_of(leaf, what)
        if x.shape != template.shape:
            raise ShapeError(f"{what} must have the shape {template.shape}, but is {Shape.of(x)}.")
        if x.dtype != template.dtype:
            wanted = element_type(template.dtype)
            is_of_other_kind = (x.dtype.kind == "c") != (wanted.kind == "complex")
            loses_fraction = wanted.is_integer and not is_integer(x)
            if not x.weak_type or is_of_other_kind or loses_fraction or (is_strict and x.dtype.kind not in "fc"):
                raise DTypeError(
                    f"{what} must have the type {element_type(template.dtype).dtype.name}, but is {Shape.of(x)}; "
                    f"convert it with astype({element_type(template.dtype).dtype.name!r})."
                )
            x = elementwise.convert(x, new_element_type=element_type(template.dtype))
        found.append(x)
    return found


@boundary
def linear_transpose(fun: Function, *primals: Any, reduce_axes: Any = ()) -> Function:
    """The transpose of a linear function: with f(x) = A x, the function that gives A^T y (without conjugation).

    Args:
        fun: a function of pytrees of floating or complex arrays, which is linear in them together; or of integers,
            which gives integers.
        primals: arguments, or `ShapeDtypeStruct`s, that say their shapes; values are not used.
        reduce_axes: accepted for JAX's sake; must be empty.

    Returns:
        A function from a cotangent, structured as the result, to a tuple of those of the arguments. It is a pytree:
        compiled and mapped functions can take and give it.

    Raises:
        DifferentiationError: the function is not linear.

    Example:
        >>> import tinyxla as tx
        >>> (x,) = tx.linear_transpose(lambda x: 3 * x[:2], tx.ShapeDtypeStruct((3,), "float32"))(tx.numpy.ones(2))
        >>> x
        Array([3., 3., 0.], dtype=float32)
    """
    check_callable("linear_transpose", fun)
    name = name_of(fun)
    if reduce_axes:
        raise ArgumentError(f"linear_transpose of {name}: reduce_axes must be empty, but got {reduce_axes!r}.")
    templates, treedef = pytrees.flatten(primals)
    made, captured, _, tree = trace_tree(fun, primals, {})
    count = len(templates)
    given = made.parameter_shapes[:count]
    tape = IntegerTape if all(map(is_integer, [*given, *(x.array_shape for x in made.outputs)])) else TapeTrace
    for shape in given:
        if not tape.tracks(shape):
            raise DifferentiationError(
                f"linear_transpose of {name}: arguments must be floating or complex, but one is {shape}, where not all "
                "arguments and results are integers."
            )
    if any(x.op.name == "call" for x in made.instructions):  # whose residuals may depend on values, and may not
        whole = made
        made, _, _ = trace(lambda *x: run(whole, x, inline=True), whole.parameter_shapes, whole.name)
    both = _reversed(linear_part(made), count, tape)
    cotangents = both.outputs[len(made.outputs) :]
    values: set[Instruction] = set(both.parameters[:count])
    for x in both.instructions:
        if any(o in values for o in x.operands):
            values.add(x)
    depends = [False] * count
    if values.intersection(cotangents):
        marked = [k < count for k in range(len(both.parameters))]
        depends = dependent_results(both, marked)[len(made.outputs) :]
    for k, found in enumerate(depends):
        if found:
            raise DifferentiationError(
                f"linear_transpose of {name}: the function must be linear, but its derivative by the argument "
                f"{made.parameter_shapes[k]} depends on the arguments' values."
            )
    # In loops and branches cotangents do not depend on the arguments, but are computed beside what does.
    zeros = made.parameter_shapes[:count] if values.intersection(cotangents) else []
    transposed = subgraph(f"{name}_transpose", both.parameters[count - len(zeros) :], cotangents)
    if zeros:
        transposed = with_used_results(transposed)
    outputs = [x.array_shape for x in made.outputs]
    seeded = tuple(map(tape.tracks, outputs))

    def transpose(captured: list[Any], cotangent: Any) -> Any:
        results = [ShapeDtypeStruct(s.dimensions, s.dtype) for s in outputs]
        what = f"linear_transpose of {name}: the cotangent"
        given = _leaves_like(results, tree, cotangent, what, tracks=tape.tracks)
        arguments = [movement.full(0, s.dtype, s.dimensions) for s in zeros if isinstance(s, Shape)]
        found = within_scope(TRANSPOSE, lambda: run(transposed, [*arguments, *captured, *chosen(given, seeded)]))
        return pytrees.unflatten(treedef, found)

    return Partial(named("linear_transpose", fun, transpose), captured)
