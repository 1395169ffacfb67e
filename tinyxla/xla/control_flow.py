"""Calls, loops and branches. Computations take and give nested tuples; in the graph they are taken apart.

Source: the sections of the XLA documents named after each function.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tinyxla.errors import ArgumentError, ShapeError
from tinyxla.hlo import Computation
from tinyxla.ops import Value, movement
from tinyxla.ops.barrier import opt_barrier
from tinyxla.ops.hlo_only import after_all
from tinyxla.ops.host.custom_call import custom_call
from tinyxla.ops.tuples import leaf_shapes, leaves, regrouped
from tinyxla.shapes import AnyShape, TupleShape
from tinyxla.tracing.core import trace
from tinyxla.transforms import batch, call, conditional, map_, while_
from tinyxla.transforms.calls import Composite
from tinyxla.transforms.computations import run
from tinyxla.xla.builder import Tree, XlaBuilder, shape_of
from tinyxla.xla.computation import XlaComputation
from tinyxla.xla.functions import Values, at_least_one, builder_function, checked_array, checked_instance, checked_trees


def _check_takes(what: str, computation: XlaComputation, operands: Sequence[Tree]) -> None:
    """Raise an error unless a computation takes such operands."""
    wanted, given = computation.GetProgramShape().parameter_shapes, tuple(map(shape_of, operands))
    if wanted != given:
        raise ShapeError(
            f"{what} {computation.name} must take {TupleShape(given)}, but takes {TupleShape(wanted)}; give it these "
            "parameters, or other operands."
        )


def _flat(computation: XlaComputation, shapes: Sequence[AnyShape] | None = None, first: int = 0) -> Computation:
    """A computation that gives a tuple, and takes parameters of those shapes, its own from the number `first` on."""
    inner = computation.computation
    wanted = inner.parameter_shapes
    chosen = slice(first, first + len(wanted))
    return trace(lambda *x: run(inner, x[chosen]), wanted if shapes is None else shapes, inner.name)[0]


@builder_function(args="operands")
def Call(builder: XlaBuilder, computation: XlaComputation, operands: list[Tree]) -> Tree:
    """The result of a computation for these operands.

    Args:
        computation: a computation.
        operands: its arguments.

    Returns:
        An `XlaOp`.

    Raises:
        ShapeError: operands of other shapes than the computation's parameters.

    >>> from tinyxla.xla import F32, Call, ShapeUtil, XlaBuilder
    >>> inner = XlaBuilder("double")
    >>> x = inner.Parameter(0, ShapeUtil.MakeShape(F32, []))
    >>> double = inner.Build(x + x)
    >>> b = XlaBuilder()
    >>> b.Build(Call(b, double, [Call(b, double, [b.Constant(1.5)])]))()
    Array(6., dtype=float32)
    """
    _check_takes("Call: the computation", computation, operands)
    result = call(*leaves(tuple(operands)), to_apply=computation.computation)
    return regrouped(computation.GetProgramShape().result_shape, iter(leaves(result)))


@builder_function()
def While(builder: XlaBuilder, condition: XlaComputation, body: XlaComputation, init: Tree) -> Tree:
    """`init`, replaced by the result of `body` for it as long as `condition` holds for it.

    Args:
        condition: a computation that gives a pred.
        body: a computation that gives the next value.
        init: the first value.

    Returns:
        An `XlaOp` of the shape of `init`.

    Raises:
        ShapeError: computations that do not take `init`, or a body that does not give its shape.

    >>> from tinyxla.xla import S32, ShapeUtil, While, XlaBuilder
    >>> condition, body, b = XlaBuilder("is_small"), XlaBuilder("double"), XlaBuilder()
    >>> x = condition.Parameter(0, ShapeUtil.MakeShape(S32, []))
    >>> is_small = condition.Build(condition.Lt(x, condition.Constant(100)))
    >>> x = body.Parameter(0, ShapeUtil.MakeShape(S32, []))
    >>> b.Build(While(is_small, body.Build(x + x), b.Constant(3)))()
    Array(192, dtype=int32)
    """
    _check_takes("While: the condition", condition, [init])
    _check_takes("While: the body", body, [init])
    shape = shape_of(init)
    if body.GetProgramShape().result_shape != shape:
        raise ShapeError(
            f"While: the body {body.name} must give what it takes, {shape}, but gives "
            f"{body.GetProgramShape().result_shape}."
        )
    results = while_(*leaves(init), condition=condition.computation, body=_flat(body))
    return regrouped(shape, iter(results))


_FORMS = {
    5: ("predicate", "true_operand", "true_computation", "false_operand", "false_computation"),
    3: ("branch_index", "branch_computations", "branch_operands"),
}


@builder_function(pred="predicate")
def Conditional(builder: XlaBuilder, *args: Any, **named: Any) -> Tree:
    """The result of the one computation that a value chooses; only that one runs.

    `Conditional(predicate, true_operand, true_computation, false_operand, false_computation)` for a scalar pred, or
    `Conditional(branch_index, branch_computations, branch_operands)` for a scalar s32, which chooses the last
    computation where there is none of its number. Each takes its operand as its only argument.

    Args:
        *args, **named: the value, and operands and computations.

    Returns:
        An `XlaOp`.

    Raises:
        ArgumentError: no operand, and no builder as the first argument.

    >>> from tinyxla.xla import F32, Conditional, ShapeUtil, XlaBuilder
    >>> sine, cosine, b = XlaBuilder("sine"), XlaBuilder("cosine"), XlaBuilder()
    >>> of_sine, of_cosine = (x.Parameter(0, ShapeUtil.MakeShape(F32, [])) for x in (sine, cosine))
    >>> branches = [sine.Build(sine.Sin(of_sine)), cosine.Build(cosine.Cos(of_cosine))]
    >>> zero = b.Constant(0.0)
    >>> b.Build(Conditional(b.Constant(False), zero, branches[0], zero, branches[1]))()
    Array(1., dtype=float32)
    """
    names = _FORMS.get(len(args) + len(named), ())
    given = dict(zip(names, args, strict=False)) | named
    if not names or set(given) != set(names):
        forms = " or ".join(f"({', '.join(form)})" for form in _FORMS.values())
        raise ArgumentError(
            f"Conditional: the arguments must be {forms}, but {len(args) + len(named)} others were given."
        )
    index, *rest = (given[name] for name in names)
    computations, operands = (rest[1::2], rest[::2]) if len(names) == 5 else rest
    return _conditional(
        checked_array(builder, f"Conditional: {names[0]}", index),
        [checked_instance("Conditional: a branch", x, XlaComputation) for x in computations],
        checked_trees(builder, "Conditional: branch operands", list(operands)),
    )


def _conditional(index: Value, branches: list[XlaComputation], operands: list[Tree]) -> Tree:
    """In the graph all branches take the same operands: those of all of them, one after the other."""
    if len(branches) != len(operands) or not branches:
        raise ArgumentError(
            f"Conditional: there must be an operand for each branch, but there are {len(branches)} branches and "
            f"{len(operands)} operands."
        )
    result = branches[0].GetProgramShape().result_shape
    for branch, operand in zip(branches, operands, strict=True):
        _check_takes("Conditional: the branch", branch, [operand])
        if branch.GetProgramShape().result_shape != result:
            raise ShapeError(
                f"Conditional: all branches must give the same, but {branches[0].name} gives {result} and "
                f"{branch.name} gives {branch.GetProgramShape().result_shape}."
            )
    shapes = [s for x in operands for s in leaf_shapes(shape_of(x))]
    flat: list[Computation] = []
    first = 0
    for branch in branches:
        flat.append(_flat(branch, shapes, first))
        first += len(branch.computation.parameters)
    found = conditional(index, *leaves(tuple(operands)), branch_computations=tuple(flat))
    return regrouped(result, iter(found))


@builder_function()
def Map(
    builder: XlaBuilder,
    operands: Values,
    computation: XlaComputation,
    dimensions: Sequence[int] | None = None,
    static_operands: list[Tree] | None = None,
) -> Value:
    """A computation of scalars applied to the elements of arrays at each index. `dimensions` are all of them;
    `static_operands` are further arguments, the same at each index.

    Args:
        operands: arrays of one shape.
        computation: a computation of as many scalars.
        dimensions: all dimensions of the operands.
        static_operands: further arguments.

    Returns:
        An `XlaOp` of the operands' shape.

    Raises:
        ArgumentError: no operand, and no builder as the first argument.

    >>> import numpy as np
    >>> from tinyxla.xla import F32, Map, ShapeUtil, XlaBuilder
    >>> inner = XlaBuilder("square")
    >>> x = inner.Parameter(0, ShapeUtil.MakeShape(F32, []))
    >>> b = XlaBuilder()
    >>> b.Build(Map(b, [b.Constant(np.float32([1, 2, 3]))], inner.Build(x * x), [0]))()
    Array([1., 4., 9.], dtype=float32)
    """
    sizes = at_least_one("Map", operands).shape
    found = tuple(range(len(sizes))) if dimensions is None else dimensions
    if not static_operands:
        return map_(*operands, dimensions=found, to_apply=computation.computation)
    scalars = [movement.full(0, x.dtype) for x in operands]
    _check_takes("Map: the computation", computation, [*scalars, *static_operands])
    flat = [movement.reshape_to(x, (x.size,)) for x in operands]
    fixed = list(leaves(tuple(static_operands)))
    axes = [0] * len(flat) + [None] * len(fixed)
    [(value, axis)] = batch(lambda *x: run(computation.computation, x), flat[0].size, [*flat, *fixed], axes)
    return movement.reshape_to(movement.align_axis(value, axis, 0, flat[0].size), sizes)


@builder_function()
def CompositeCall(
    builder: XlaBuilder,
    computation: XlaComputation,
    operands: list[Tree],
    name: str,
    attributes: str | None = None,
    version: int | None = None,
) -> Tree:
    """An operation of one's own, made of others: `computation` may always stand in its place.

    Args:
        computation: the decomposition.
        operands: its arguments.
        name: the name of the operation.
        attributes: its attributes, by name.
        version: the version of the operation.

    Returns:
        An `XlaOp`.

    Raises:
        ArgumentError: no operand, and no builder as the first argument.

    >>> from tinyxla.xla import F32, CompositeCall, ShapeUtil, XlaBuilder
    >>> inner = XlaBuilder("cube")
    >>> x = inner.Parameter(0, ShapeUtil.MakeShape(F32, []))
    >>> b = XlaBuilder()
    >>> b.Build(CompositeCall(b, inner.Build(x * x * x), [b.Constant(2.0)], name="my.cube", version=1))()
    Array(8., dtype=float32)
    """
    _check_takes("CompositeCall: the computation", computation, operands)
    says = Composite(name, attributes or "", version or 0)
    result = call(
        *leaves(tuple(operands)), to_apply=computation.computation, is_composite=True, frontend_attributes=says
    )
    return regrouped(computation.GetProgramShape().result_shape, iter(leaves(result)))


@builder_function(target_name="call_target_name", args="operands", opaque="backend_config")
def CustomCall(
    builder: XlaBuilder,
    call_target_name: str,
    operands: list[Tree],
    shape: AnyShape,
    backend_config: str = "",
    has_side_effect: bool = False,
) -> Tree:
    """A function of the host that was registered under a name, applied to arrays; `shape` is that of its result.

    Args:
        call_target_name: the name of the function.
        operands: its arguments.
        shape: the shape of its result.
        backend_config: a text that it is given.
        has_side_effect: whether it runs though nothing needs its result.

    Returns:
        An `XlaOp`.

    Raises:
        AttributeValueError: no function of that name is registered when the computation is called.

    >>> import numpy as np
    >>> from tinyxla import ffi
    >>> from tinyxla.xla import F32, CustomCall, ShapeUtil, XlaBuilder
    >>> ffi.register_ffi_target("docs.flip", lambda x: x[::-1])
    >>> b = XlaBuilder()
    >>> b.Build(CustomCall(b, "docs.flip", [b.Constant(np.float32([1, 2]))], ShapeUtil.MakeShape(F32, [2])))()
    Array([2., 1.], dtype=float32)
    """
    parts = leaf_shapes(shape)
    result = custom_call(
        *leaves(tuple(operands)),
        custom_call_target=call_target_name,
        shape=TupleShape(tuple(parts)) if isinstance(shape, TupleShape) else shape,
        custom_call_has_side_effect=has_side_effect,
        backend_config=backend_config,
    )
    return regrouped(shape, iter(leaves(result)))


@builder_function()
def OptimizationBarrier(builder: XlaBuilder, operand: Tree) -> Tree:
    """The operand, across which nothing is moved or merged.

    Args:
        operand: an array or a tuple.

    Returns:
        An `XlaOp` of the operand's shape.

    Raises:
        ArgumentError: no operand, and no builder as the first argument.

    >>> from tinyxla.xla import OptimizationBarrier, XlaBuilder
    >>> b = XlaBuilder()
    >>> b.Build(OptimizationBarrier(b.Constant((1.0, 2))))()
    (Array(1., dtype=float32), Array(2, dtype=int32))
    """
    return regrouped(shape_of(operand), iter(opt_barrier(*leaves(operand))))


@builder_function()
def CreateToken(builder: XlaBuilder) -> Value:
    """A token: what orders effects.

    Returns:
        An `XlaOp`, a token.

    Raises:
        ArgumentError: no operand, and no builder as the first argument.

    >>> from tinyxla.xla import CreateToken, XlaBuilder
    >>> CreateToken(XlaBuilder())
    <XlaOp token[] of computation>
    """
    return after_all()


@builder_function()
def AfterAll(builder: XlaBuilder, tokens: Values) -> Value:
    """A token that comes after all these.

    Args:
        tokens: tokens.

    Returns:
        An `XlaOp`, a token.

    Raises:
        ArgumentError: no operand, and no builder as the first argument.

    >>> from tinyxla.xla import AfterAll, CreateToken, XlaBuilder
    >>> b = XlaBuilder()
    >>> AfterAll(b, [CreateToken(b), CreateToken(b)])
    <XlaOp token[] of computation>
    """
    return after_all(*tokens)
