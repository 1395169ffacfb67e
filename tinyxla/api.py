"""The transformations users call: derivatives, batching, and looking at graphs. Compilation is in `tinyxla.compilation`.

All take functions of pytrees of arrays and give such functions, and nest in any order.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tinyxla.errors import ArgumentError, DifferentiationError, ShapeError
from tinyxla.hlo import Module
from tinyxla.ops import elementwise, movement
from tinyxla.shapes import Shape, element_type
from tinyxla.shapes.shape import canonical_axis
from tinyxla.tracing import pytrees
from tinyxla.tracing.array import Array, ConcreteArray
from tinyxla.tracing.core import trace
from tinyxla.tracing.promotion import as_array
from tinyxla.transforms import batch as batch_flat
from tinyxla.transforms import jvp as jvp_flat
from tinyxla.transforms import vjp as vjp_flat

Function = Callable[..., Any]


@dataclass(frozen=True)
class ShapeDtypeStruct:
    """Shape and dtype of an array that need not exist."""

    shape: tuple[int, ...]
    dtype: Any
    weak_type: bool = False

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return int(np.prod(self.shape))


def _name(function: Function) -> str:
    return getattr(function, "__name__", type(function).__name__)


def _check_callable(what: str, function: Any) -> None:
    if not callable(function):
        raise ArgumentError(f"{what} takes a function, but got {function!r} of type {type(function).__name__}.")


def arrays_of(tree: Any, what: str) -> tuple[list[Array], pytrees.TreeDef]:
    """The leaves of a pytree as arrays; an error that names the leaf which is none."""
    leaves, treedef = pytrees.flatten(tree)
    arrays: list[Array] = []
    for k, leaf in enumerate(leaves):
        try:
            arrays.append(as_array(leaf, what))
        except TypeError as error:
            name = pytrees.leaf_names(tree)[k]
            raise ArgumentError(f"{what}: the leaf {name or 'itself'} is not an array: {error}") from None
    return arrays, treedef


# --- reverse mode -------------------------------------------------------------------------------------------------------


def vjp(function: Function, *primals: Any, has_aux: bool = False) -> Any:
    """The value of a function, and the map from cotangents of the result to cotangents of the arguments.

    Args:
        function: of pytrees of arrays, with a pytree of arrays as its result.
        primals: its arguments.
        has_aux: the function gives `(result, auxiliary)`; the second is passed through undifferentiated.

    Returns:
        `(result, pullback)`, or `(result, pullback, auxiliary)`; `pullback(cotangent)` gives a tuple of cotangents, one for
        each argument and of its structure.

    Example:
        >>> import tinyxla as tx
        >>> y, pullback = tx.vjp(tx.numpy.sin, 0.0)
        >>> pullback(1.0)
        (Array(1., dtype=float32, weak_type=True),)
    """
    _check_callable("vjp", function)
    inputs, treedef = arrays_of(primals, f"vjp of {_name(function)}")
    found: dict[str, Any] = {}

    def flat(*leaves: Any) -> list[Any]:
        result = function(*pytrees.unflatten(treedef, leaves))
        if has_aux:
            result, found["aux"] = _pair(result, "vjp")
        outputs, found["tree"] = arrays_of(result, f"The result of {_name(function)}")
        return outputs

    outputs, flat_pullback = vjp_flat(flat, inputs)
    result = pytrees.unflatten(found["tree"], outputs)

    def pullback(cotangent: Any) -> Any:
        seeds, tree = arrays_of(cotangent, "A cotangent")
        if tree != found["tree"]:
            raise ArgumentError(f"The cotangent has the structure {tree}, but the result has {found['tree']}.")
        for seed, output in zip(seeds, outputs, strict=True):
            if seed.shape != output.shape:
                raise ShapeError(f"A cotangent has shape {seed.shape}, but the result it belongs to has {output.shape}.")
        typed = [_as_type(s, o.dtype) for s, o in zip(seeds, outputs, strict=True)]
        return pytrees.unflatten(treedef, _with_zeros(flat_pullback(typed), inputs))

    return (result, pullback, _lowered(found["aux"])) if has_aux else (result, pullback)


def _pair(result: Any, what: str) -> tuple[Any, Any]:
    if not isinstance(result, tuple) or len(result) != 2:  # pyright: ignore[reportUnknownArgumentType]
        raise ArgumentError(f"{what} with has_aux=True: the function returns (result, auxiliary), but got {result!r}.")
    return result  # pyright: ignore[reportUnknownVariableType]


def _lowered(aux: Any) -> Any:
    """Auxiliary results without the tracers of a differentiation that has ended."""

    def lower(x: Any) -> Any:
        value = getattr(x, "value", None)
        return lower(value) if isinstance(value, Array) and not x.owner.active else x

    return pytrees.map_tree(lower, aux)


def _as_type(x: Array, dtype: Any) -> Any:
    return x if x.dtype == dtype else elementwise.convert(x, new_element_type=element_type(dtype))


def _with_zeros(cotangents: Sequence[Any], inputs: Sequence[Array]) -> list[Any]:
    return [
        movement.full(0, x.dtype, x.shape) if c is None else c for c, x in zip(cotangents, inputs, strict=True)
    ]


def grad(
    function: Function, argnums: int | Sequence[int] = 0, has_aux: bool = False, holomorphic: bool = False
) -> Function:
    """The gradient of a scalar function.

    Args:
        function: gives a scalar of a floating type; its arguments `argnums` are pytrees of floating arrays.
        argnums: the argument to differentiate by, or several.
        has_aux: the function gives `(result, auxiliary)`; the gradient function then gives `(gradient, auxiliary)`.
        holomorphic: arguments and result are complex, and the function is complex-differentiable.

    Returns:
        A function of the same arguments whose result has the structure of the argument (a tuple for several).

    Outside `jit` the function may look at values: `if`, `while`, `float(x)` and `print(x)` work as in plain Python.

    Example:
        >>> import tinyxla as tx
        >>> tx.grad(lambda x: x**3)(2.0)
        Array(12., dtype=float32, weak_type=True)
    """
    both = value_and_grad(function, argnums, has_aux, holomorphic)

    @functools.wraps(function)
    def gradient(*args: Any, **kwargs: Any) -> Any:
        value, found = both(*args, **kwargs)
        return (found, value[1]) if has_aux else found

    return gradient


def value_and_grad(
    function: Function, argnums: int | Sequence[int] = 0, has_aux: bool = False, holomorphic: bool = False
) -> Function:
    """The value of a scalar function together with its gradient; arguments as for `grad`.

    Returns:
        A function that gives `(value, gradient)`, or `((value, auxiliary), gradient)`.

    Example:
        >>> import tinyxla as tx
        >>> tx.value_and_grad(lambda x: x**2)(3.0)
        (Array(9., dtype=float32, weak_type=True), Array(6., dtype=float32, weak_type=True))
    """
    _check_callable("grad", function)
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)

    @functools.wraps(function)
    def both(*args: Any, **kwargs: Any) -> Any:
        chosen = [_argument_number(n, args, function) for n in numbers]

        def of_chosen(*values: Any) -> Any:
            whole = list(args)
            for n, value in zip(chosen, values, strict=True):
                whole[n] = value
            return function(*whole, **kwargs)

        for n in chosen:
            _check_differentiable(args[n], n, function, holomorphic)
        result = vjp(of_chosen, *(args[n] for n in chosen), has_aux=has_aux)
        value, pullback = result[0], result[1]
        _check_scalar(value, function, holomorphic)
        found = pullback(_one(value))
        gradient = found[0] if isinstance(argnums, int) else found
        return ((value, result[2]) if has_aux else value), gradient

    return both


def _argument_number(number: int, args: tuple[Any, ...], function: Function) -> int:
    if not -len(args) <= number < len(args):
        raise ArgumentError(
            f"grad of {_name(function)}: argnums names argument {number}, but the call has {len(args)} positional arguments."
        )
    return number % len(args)


def _check_differentiable(argument: Any, number: int, function: Function, holomorphic: bool) -> None:
    leaves, _ = arrays_of(argument, f"grad of {_name(function)}")
    names = pytrees.leaf_names(argument)
    for leaf, name in zip(leaves, names, strict=True):
        kind = element_type(leaf.dtype).kind
        where = f"grad of {_name(function)}: argument {number}{name} has element type {leaf.dtype.name}"
        if kind not in ("float", "complex"):
            raise DifferentiationError(f"{where}, which has no derivative; use a floating type, or another argnums.")
        if kind == "complex" and not holomorphic:
            raise DifferentiationError(f"{where}; pass holomorphic=True, or differentiate by real and imaginary parts.")
        if kind == "float" and holomorphic:
            raise DifferentiationError(f"{where}, but holomorphic=True takes complex arguments.")


def _check_scalar(value: Any, function: Function, holomorphic: bool) -> None:
    if not isinstance(value, Array):
        raise DifferentiationError(
            f"grad of {_name(function)}: the result is a scalar, but got {type(value).__name__}; "
            "use has_aux=True for further results, or vjp."
        )
    if value.shape != ():
        raise DifferentiationError(
            f"grad of {_name(function)}: the result is a scalar, but got {Shape.of(value)}; sum it, or use jacrev or vjp."
        )
    kind = element_type(value.dtype).kind
    if kind != ("complex" if holomorphic else "float"):
        wanted = "complex" if holomorphic else "of a floating type"
        raise DifferentiationError(f"grad of {_name(function)}: the result is {wanted}, but got {Shape.of(value)}.")


def _one(value: Array) -> Any:
    return ConcreteArray(np.ones((), value.dtype))


# --- forward mode and Jacobians -----------------------------------------------------------------------------------------


def jvp(function: Function, primals: Sequence[Any], tangents: Sequence[Any], has_aux: bool = False) -> Any:
    """The value of a function and its derivative along `tangents`, which have the structure of the arguments `primals`.

    Returns:
        `(result, tangent)`, or `(result, tangent, auxiliary)` with `has_aux`.

    Example:
        >>> import tinyxla as tx
        >>> tx.jvp(tx.numpy.sin, (0.0,), (1.0,))[1]
        Array(1., dtype=float32, weak_type=True)
    """
    _check_callable("jvp", function)
    inputs, treedef = arrays_of(tuple(primals), f"jvp of {_name(function)}")
    directions, tangent_tree = arrays_of(tuple(tangents), "A tangent")
    if tangent_tree != treedef:
        raise ArgumentError(f"jvp: the tangents have the structure {tangent_tree}, but the arguments have {treedef}.")
    for x, t in zip(inputs, directions, strict=True):
        if x.shape != t.shape:
            raise ShapeError(f"jvp: a tangent has shape {t.shape}, but its argument has {x.shape}.")
    found: dict[str, Any] = {}

    def flat(*leaves: Any) -> list[Any]:
        result = function(*pytrees.unflatten(treedef, leaves))
        if has_aux:
            result, found["aux"] = _pair(result, "jvp")
        outputs, found["tree"] = arrays_of(result, f"The result of {_name(function)}")
        return outputs

    typed = [_as_type(t, x.dtype) for t, x in zip(directions, inputs, strict=True)]
    values, moves = jvp_flat(flat, inputs, typed)
    tree = found["tree"]
    pair = pytrees.unflatten(tree, values), pytrees.unflatten(tree, _with_zeros(moves, values))
    return (*pair, _lowered(found["aux"])) if has_aux else pair


def jacfwd(function: Function, argnums: int | Sequence[int] = 0) -> Function:
    """The Jacobian by forward mode, one column at a time (batched): cheap for functions of few numbers.

    Returns:
        A function whose result has, for every leaf of `function`'s result, the structure of the argument; each array has
        the result's dimensions followed by the argument's.

    Example:
        >>> import tinyxla as tx
        >>> tx.jacfwd(lambda x: x * x)(tx.numpy.array([1.0, 2.0]))
        Array([[2., 0.],
               [0., 4.]], dtype=float32)
    """

    @functools.wraps(function)
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        of_chosen, chosen = _partial(function, argnums, args, kwargs)
        inputs, treedef = arrays_of(chosen, f"jacfwd of {_name(function)}")

        def push(*directions: Any) -> Any:
            return jvp(of_chosen, chosen, pytrees.unflatten(treedef, directions))[1]

        columns = vmap(push, out_axes=-1)(*_basis(inputs))
        return pytrees.map_tree(lambda x: _in_parts(x, inputs, treedef, -1, argnums), columns)

    return jacobian


def jacrev(function: Function, argnums: int | Sequence[int] = 0) -> Function:
    """The Jacobian by reverse mode, one row at a time (batched): cheap for functions with few results.

    Returns:
        As `jacfwd`.

    Example:
        >>> import tinyxla as tx
        >>> tx.jacrev(lambda x: x.sum())(tx.numpy.ones(2))
        Array([1., 1.], dtype=float32)
    """

    @functools.wraps(function)
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        of_chosen, chosen = _partial(function, argnums, args, kwargs)
        result, pullback = vjp(of_chosen, *chosen)
        outputs, treedef = arrays_of(result, f"jacrev of {_name(function)}")
        rows = vmap(lambda *seeds: pullback(pytrees.unflatten(treedef, seeds)))(*_basis(outputs))
        found = rows[0] if isinstance(argnums, int) else rows
        parts = pytrees.map_tree(lambda x: _split_rows(x, outputs), found)
        leaves, inner = pytrees.flatten(found)
        lists = pytrees.flatten(parts, is_leaf=lambda x: isinstance(x, list))[0] if leaves else []
        return pytrees.unflatten(
            treedef, [pytrees.unflatten(inner, [of[k] for of in lists]) for k in range(len(outputs))]
        )

    return jacobian


def hessian(function: Function, argnums: int | Sequence[int] = 0) -> Function:
    """The matrix of second derivatives of a function, forward over reverse mode; structured as `jacfwd` of `jacrev`.

    Example:
        >>> import tinyxla as tx
        >>> tx.hessian(lambda x: (x**3).sum())(tx.numpy.array([1.0, 2.0]))
        Array([[ 6.,  0.],
               [ 0., 12.]], dtype=float32)
    """
    return jacfwd(jacrev(function, argnums), argnums)


def _partial(
    function: Function, argnums: int | Sequence[int], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Function, tuple[Any, ...]]:
    """The function of its chosen arguments alone, and these."""
    _check_callable("A Jacobian", function)
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    chosen = [_argument_number(n, args, function) for n in numbers]

    def of_chosen(*values: Any) -> Any:
        whole = list(args)
        for n, value in zip(chosen, values, strict=True):
            whole[n] = value
        return function(*whole, **kwargs)

    return of_chosen, tuple(args[n] for n in chosen)


def _basis(arrays: Sequence[Array]) -> list[Any]:
    """For each array the unit vectors of all arrays together, along a new first axis."""
    total = sum(x.size for x in arrays)
    start = 0
    found: list[Any] = []
    for x in arrays:
        unit = np.eye(total, x.size, k=-start, dtype=x.dtype)
        found.append(ConcreteArray(unit.reshape((total, *x.shape))))
        start += x.size
    return found


def _in_parts(columns: Any, inputs: Sequence[Array], treedef: Any, axis: int, argnums: int | Sequence[int]) -> Any:
    """The last axis, which runs over all elements of the inputs, as a pytree of arrays with the inputs' dimensions."""
    start = 0
    parts: list[Any] = []
    for x in inputs:
        part = movement.slice_axis(columns, columns.ndim - 1, start, start + x.size)
        parts.append(movement.reshape_to(part, (*columns.shape[:-1], *x.shape)))
        start += x.size
    tree = pytrees.unflatten(treedef, parts)
    return tree[0] if isinstance(argnums, int) else tree


def _split_rows(rows: Any, outputs: Sequence[Array]) -> list[Any]:
    start = 0
    parts: list[Any] = []
    for x in outputs:
        part = movement.slice_axis(rows, 0, start, start + x.size)
        parts.append(movement.reshape_to(part, (*x.shape, *rows.shape[1:])))
        start += x.size
    return parts


# --- batching -----------------------------------------------------------------------------------------------------------


def vmap(function: Function, in_axes: Any = 0, out_axes: Any = 0, axis_size: int | None = None) -> Function:
    """Map a function over an axis of its arguments, at the cost of one call.

    Args:
        function: written for one example.
        in_axes: for each argument (or for all) the axis to map over, or None; may be a pytree that is a prefix of the
            arguments.
        out_axes: where the mapped axis stands in the results; may be a prefix of the result. None says that a result is
            the same for all examples.
        axis_size: the number of examples, needed only where no argument has the axis. Keyword arguments are mapped over
            their first axis.

    Example:
        >>> import tinyxla as tx
        >>> tx.vmap(lambda x, y: x @ y, in_axes=(0, None))(tx.numpy.ones((2, 3)), tx.numpy.ones(3))
        Array([3., 3.], dtype=float32)
    """
    _check_callable("vmap", function)
    if isinstance(in_axes, list):
        in_axes = tuple(in_axes)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]

    @functools.wraps(function)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        what = f"vmap of {_name(function)}"
        if isinstance(in_axes, tuple) and len(in_axes) != len(args):  # pyright: ignore[reportUnknownArgumentType]
            raise ArgumentError(f"{what}: in_axes {in_axes} has {len(in_axes)} entries, but got {len(args)} arguments.")  # pyright: ignore[reportUnknownArgumentType]
        inputs, treedef = arrays_of((args, kwargs), what)
        axes = pytrees.broadcast_prefix((in_axes, 0), (args, kwargs), f"{what}: in_axes")
        axes = [None if a is None else canonical_axis(a, x.ndim, what) for a, x in zip(axes, inputs, strict=True)]
        size = _batch_size(inputs, axes, axis_size, what)
        found: dict[str, Any] = {}

        def flat(*leaves: Any) -> list[Any]:
            inner_args, inner_kwargs = pytrees.unflatten(treedef, leaves)
            result = function(*inner_args, **inner_kwargs)
            outputs, found["tree"] = arrays_of(result, f"The result of {_name(function)}")
            return outputs

        results = batch_flat(flat, size, inputs, axes)
        whole = pytrees.unflatten(found["tree"], [value for value, _ in results])
        wanted = pytrees.broadcast_prefix(out_axes, whole, f"{what}: out_axes")
        placed = [_placed(v, a, to, size, what) for (v, a), to in zip(results, wanted, strict=True)]
        return pytrees.unflatten(found["tree"], placed)

    return mapped


def _batch_size(inputs: Sequence[Array], axes: Sequence[int | None], given: int | None, what: str) -> int:
    sizes = {x.shape[a] for x, a in zip(inputs, axes, strict=True) if a is not None}
    if given is not None:
        sizes.add(given)
    if not sizes:
        raise ArgumentError(f"{what}: no argument has an axis to map over; name one in in_axes, or pass axis_size.")
    if len(sizes) > 1:
        shapes = ", ".join(f"{Shape.of(x)} over axis {a}" for x, a in zip(inputs, axes, strict=True) if a is not None)
        raise ShapeError(f"{what}: the mapped axes have different sizes, {sorted(sizes)}: {shapes}.")
    return sizes.pop()


def _placed(value: Any, axis: int | None, to: int | None, size: int, what: str) -> Any:
    if to is None:
        if axis is not None:
            raise ArgumentError(f"{what}: out_axes is None for a result that differs between examples.")
        return value
    rank = value.ndim + (axis is None)
    return movement.align_axis(value, axis, canonical_axis(to, rank, f"{what}: out_axes"), size)


# --- graphs -------------------------------------------------------------------------------------------------------------


def make_graph(function: Function) -> Callable[..., Module]:
    """The graph of operations that a function records for arguments of given shapes.

    Example:
        >>> import tinyxla as tx
        >>> graph = tx.make_graph(lambda x: x + 1)(0.0)
        >>> [x.op.name for x in graph.entry.instructions]
        ['parameter', 'constant', 'add', 'tuple']
    """

    @functools.wraps(function)
    def graph(*args: Any, **kwargs: Any) -> Module:
        return Module(_name(function), trace_tree(function, args, kwargs)[0])

    return graph


def trace_tree(function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any, list[bool], Any]:
    """The computation of a function on pytrees: it, what it captured, which results are weak, and their structure."""
    leaves, treedef = pytrees.flatten((args, kwargs))
    leaves = [
        x if isinstance(x, ShapeDtypeStruct) else as_array(x, f"An argument of {_name(function)}") for x in leaves
    ]
    shapes = [Shape(element_type(x.dtype), tuple(x.shape)) for x in leaves]
    found: dict[str, Any] = {}

    def flat(*tracers: Any) -> list[Any]:
        inner_args, inner_kwargs = pytrees.unflatten(treedef, tracers)
        outputs, found["tree"] = arrays_of(function(*inner_args, **inner_kwargs), f"The result of {_name(function)}")
        return outputs

    weak = [x.weak_type for x in leaves]
    made, captured, weak_results = trace(flat, shapes, _name(function), weak, f"the traced function {_name(function)}")
    return made, captured, weak_results, found["tree"]


def eval_shape(function: Function, *args: Any, **kwargs: Any) -> Any:
    """The shapes and dtypes of a function's result, as `ShapeDtypeStruct`s, without computing it. The arguments may be such
    structures themselves.

    Example:
        >>> import tinyxla as tx
        >>> tx.eval_shape(lambda x: x @ x, tx.ShapeDtypeStruct((2, 2), "float32")).shape
        (2, 2)
    """
    made, _, weak, tree = trace_tree(function, args, kwargs)
    outputs = [
        ShapeDtypeStruct(x.array_shape.dimensions, x.array_shape.dtype, w)
        for x, w in zip(made.outputs, weak, strict=True)
    ]
    return pytrees.unflatten(tree, outputs)


# --- stand-ins for devices ----------------------------------------------------------------------------------------------


def block_until_ready(tree: Any) -> Any:
    """The argument: results are ready when a call returns."""
    return tree


def device_put(tree: Any, device: Any = None) -> Any:
    """The leaves of a pytree as arrays; there is one device."""
    arrays, treedef = arrays_of(tree, "device_put")
    return pytrees.unflatten(treedef, arrays)


def device_get(tree: Any) -> Any:
    """The leaves of a pytree as NumPy arrays."""
    return pytrees.map_tree(np.asarray, tree)
