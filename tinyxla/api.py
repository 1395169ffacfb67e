"""The transformations users call: derivatives, batching, and looking at graphs.

All take functions of pytrees of arrays and give such functions, and nest in any order. Compilation is in
`tinyxla.compilation`.
"""

from __future__ import annotations

import functools
import operator
import reprlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tinyxla.errors import ArgumentError, DifferentiationError, DTypeError, ShapeError
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


@dataclass(frozen=True, init=False)
class ShapeDtypeStruct:
    """Shape and dtype of an array that need not exist."""

    shape: tuple[int, ...]
    dtype: Any
    weak_type: bool = False

    def __init__(self, shape: Sequence[int], dtype: Any, weak_type: bool = False) -> None:
        object.__setattr__(self, "shape", as_integers(shape, "The shape of a ShapeDtypeStruct"))
        object.__setattr__(self, "dtype", element_type(dtype).dtype)
        object.__setattr__(self, "weak_type", weak_type)

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


Names = Callable[[], Sequence[str]]  # how to speak of the leaves; asked only if there is something to say


def arrays_of(tree: Any, what: str, names: Names | None = None) -> tuple[list[Array], pytrees.TreeDef]:
    """The leaves of a pytree as arrays; an error that names the leaf which is none."""
    leaves, treedef = pytrees.flatten(tree)
    arrays: list[Array] = []
    for k, leaf in enumerate(leaves):
        try:
            arrays.append(as_array(leaf))
        except TypeError:
            found = names() if names else [f" at {name}" if name else "" for name in pytrees.leaf_names(tree)]
            raise ArgumentError(f"{what}{found[k]} {no_array(leaf)}.") from None
    return arrays, treedef


def no_array(leaf: Any) -> str:
    """What is wrong with a leaf that is no array."""
    dtype = getattr(leaf, "dtype", None)
    if dtype is not None:
        return f"has the element type {dtype}, which arrays cannot have"
    return f"is {reprlib.repr(leaf)} of type {type(leaf).__name__}, which is not an array or a number"


def argument_names(args: Sequence[Any], kwargs: dict[str, Any]) -> list[str]:
    """How to speak of each leaf among the arguments: `0['w'][1]`, `scale`."""
    given = [*enumerate(args), *sorted(kwargs.items())]
    return [f"{where}{name}" for where, x in given for name in pytrees.leaf_names(x)]


def as_integers(given: int | Iterable[int], what: str) -> tuple[int, ...]:
    """One integer, or several, as a tuple."""
    try:
        return tuple(map(operator.index, given if isinstance(given, Iterable) else (given,)))
    except TypeError:
        raise ArgumentError(f"{what} must be an integer or a tuple of integers, but is {given!r}.") from None


# --- reverse mode -----------------------------------------------------------------------------------------------------


def vjp(function: Function, *primals: Any, has_aux: bool = False) -> Any:
    """The value of a function, and the map from cotangents of the result to cotangents of the arguments.

    Args:
        function: of pytrees of arrays, with a pytree of arrays as its result.
        primals: its arguments.
        has_aux: the function gives `(result, auxiliary)`; the second is passed through undifferentiated.

    Returns:
        `(result, pullback)`, or `(result, pullback, auxiliary)`; `pullback(cotangent)` gives a tuple of cotangents,
        one for each argument and of its structure.

    Example:
        >>> import tinyxla as tx
        >>> y, pullback = tx.vjp(tx.numpy.sin, 0.0)
        >>> pullback(1.0)
        (Array(1., dtype=float32, weak_type=True),)
    """
    _check_callable("vjp", function)
    inputs, treedef = _arguments(primals, f"vjp of {_name(function)}")
    found: dict[str, Any] = {}

    def flat(*leaves: Any) -> list[Any]:
        result = function(*pytrees.unflatten(treedef, leaves))
        if has_aux:
            result, found["aux"] = _pair(result, _name(function))
        outputs, found["tree"] = arrays_of(result, f"The result of {_name(function)}")
        return outputs

    outputs, flat_pullback = vjp_flat(flat, inputs)
    result = pytrees.unflatten(found["tree"], outputs)

    def pullback(cotangent: Any) -> Any:
        seeds, tree = arrays_of(cotangent, "The cotangent")
        typed = _matched("cotangent", seeds, tree, f"result of {_name(function)}", outputs, found["tree"])
        return pytrees.unflatten(treedef, _with_zeros(flat_pullback(typed), inputs))

    return (result, pullback, _lowered(found["aux"])) if has_aux else (result, pullback)


def _pair(result: Any, name: str) -> tuple[Any, Any]:
    if not isinstance(result, tuple) or len(result) != 2:  # pyright: ignore[reportUnknownArgumentType]
        shown = f"the array {Shape.of(result)}" if isinstance(result, Array) else reprlib.repr(result)
        raise ArgumentError(
            f"With has_aux=True {name} must return a pair (result, auxiliary), but it returned {shown}."
        )
    return result  # pyright: ignore[reportUnknownVariableType]


def _lowered(aux: Any) -> Any:
    """Auxiliary results without the tracers of a differentiation that has ended."""

    def lower(x: Any) -> Any:
        value = getattr(x, "value", None)
        return lower(value) if isinstance(value, Array) and not x.owner.active else x

    return pytrees.map_tree(lower, aux)


def _arguments(args: tuple[Any, ...], what: str) -> tuple[list[Array], pytrees.TreeDef]:
    return arrays_of(args, f"{what}: argument ", lambda: argument_names(args, {}))


def _matched(
    what: str,
    given: Sequence[Array],
    given_tree: pytrees.TreeDef,
    where: str,
    templates: Sequence[Array],
    tree: pytrees.TreeDef,
) -> list[Array]:
    """Tangents or cotangents in the types of what they belong to."""
    if given_tree != tree:
        raise ArgumentError(
            f"The {what} must have the structure of the {where}, which is {pytrees.structure_text(tree)} where * "
            f"stands for an array, but it has the structure {pytrees.structure_text(given_tree)}."
        )
    found: list[Array] = []
    for x, template in zip(given, templates, strict=True):
        if x.shape != template.shape:
            raise ShapeError(
                f"A {what} must have the shape of the {where}, {Shape.of(template)}, but has the shape {Shape.of(x)}."
            )
        if element_type(x.dtype).kind == "complex" and element_type(template.dtype).kind != "complex":
            raise DTypeError(f"A {what} is complex, {Shape.of(x)}, but the {where} is not: {Shape.of(template)}.")
        if x.dtype != template.dtype:
            x = elementwise.convert(x, new_element_type=element_type(template.dtype))  # type: ignore[assignment]
        found.append(x)
    return found


def _with_zeros(cotangents: Sequence[Any], inputs: Sequence[Array]) -> list[Any]:
    """Derivatives as arrays, as weakly typed as what they belong to."""
    found = [movement.full(0, x.dtype, x.shape) if c is None else c for c, x in zip(cotangents, inputs, strict=True)]
    return [c.with_weak_type(x.weak_type) for c, x in zip(found, inputs, strict=True)]  # type: ignore[attr-defined]


def grad(
    function: Function, argnums: int | Sequence[int] = 0, has_aux: bool = False, holomorphic: bool = False
) -> Function:
    """The gradient of a scalar function.

    Args:
        function: gives a scalar of a floating type; its arguments `argnums` are pytrees of floating arrays.
        argnums: the argument to differentiate by, or several.
        has_aux: the function gives `(result, auxiliary)`; the gradient function then gives `(gradient, auxiliary)`.
        holomorphic: arguments and result are complex, and the function is complex-differentiable. Without it, the
            gradient of a real function by x + iy is its derivative by x minus i times that by y, as in JAX.

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
    numbers = as_integers(argnums, f"grad of {_name(function)}: argnums")
    single = not isinstance(argnums, Iterable)

    @functools.wraps(function)
    def both(*args: Any, **kwargs: Any) -> Any:
        of_chosen, chosen = _partial("grad", function, numbers, args, kwargs, holomorphic)
        result = vjp(of_chosen, *chosen, has_aux=has_aux)
        value, pullback = result[0], result[1]
        _check_scalar(value, function, holomorphic)
        found = pullback(ConcreteArray(np.ones((), value.dtype)))
        gradient = found[0] if single else found
        return ((value, result[2]) if has_aux else value), gradient

    return both


def _partial(
    what: str,
    function: Function,
    numbers: tuple[int, ...],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    holomorphic: bool,
) -> tuple[Function, tuple[Any, ...]]:
    """The function of its chosen arguments alone, and these, which must have a derivative."""
    what = f"{what} of {_name(function)}"
    for n in numbers:
        if not -len(args) <= n < len(args):
            raise ArgumentError(
                f"{what}: argnums names argument {n}, but the call has {len(args)} positional arguments."
            )
    chosen = [n % len(args) for n in numbers]
    reverse = not what.startswith("jacfwd")  # a complex argument has as many directions as its parts have together
    values = tuple(_differentiable(args[n], f"{what}: argument ", str(n), holomorphic, reverse) for n in chosen)

    @functools.wraps(function)
    def of_chosen(*values: Any) -> Any:
        whole = list(args)
        for n, value in zip(chosen, values, strict=True):
            whole[n] = value
        return function(*whole, **kwargs)

    return of_chosen, values


def _differentiable(tree: Any, what: str, name: str, holomorphic: bool, complex_too: bool = False) -> Any:
    """A pytree of arrays by which, or of which, there is a derivative."""

    def names() -> list[str]:
        return [f"{name}{path}" for path in pytrees.leaf_names(tree)]

    arrays, treedef = arrays_of(tree, what, names)
    wanted = "complex" if holomorphic else "float"
    for k, x in enumerate(arrays):
        kind = element_type(x.dtype).kind
        if kind == wanted or (complex_too and kind == "complex"):
            continue
        where = f"{what}{names()[k]} is {Shape.of(x)}, of element type {x.dtype.name}"
        if kind == "complex":
            raise DifferentiationError(
                f"{where}; if the function is complex-differentiable pass holomorphic=True, else make it a function of "
                "real and imaginary part."
            )
        if kind == "float":
            raise DifferentiationError(f"{where}, but with holomorphic=True it must be complex.")
        raise DifferentiationError(
            f"{where}, for which there is no derivative; convert it to a floating type, or choose other arguments by "
            "argnums."
        )
    return pytrees.unflatten(treedef, arrays)


def _check_scalar(value: Any, function: Function, holomorphic: bool) -> None:
    what = f"grad of {_name(function)}: the function must return one "
    wanted = "complex number" if holomorphic else "floating-point number"
    if not isinstance(value, Array):
        raise DifferentiationError(
            f"{what}{wanted}, but returned a {type(value).__name__}. For further results return (result, auxiliary) "
            "and pass has_aux=True; for derivatives of several results use jacrev or vjp."
        )
    if value.shape != ():
        raise DifferentiationError(
            f"{what}{wanted}, but returned {Shape.of(value)}. Return its sum or mean, or use jacrev or vjp."
        )
    if element_type(value.dtype).kind != ("complex" if holomorphic else "float"):
        raise DifferentiationError(
            f"{what}{wanted}, but returned {Shape.of(value)}, of element type {value.dtype.name}."
        )


# --- forward mode and Jacobians ---------------------------------------------------------------------------------------


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
    for name, given in (("primals", primals), ("tangents", tangents)):
        if not isinstance(given, (tuple, list)):
            raise ArgumentError(
                f"jvp of {_name(function)}: {name} must be a tuple with an entry for each argument, but got {given!r}."
            )
    inputs, treedef = _arguments(tuple(primals), f"jvp of {_name(function)}")
    directions, tangent_tree = arrays_of(tuple(tangents), "The tangent")
    typed = _matched("tangent", directions, tangent_tree, f"argument of {_name(function)}", inputs, treedef)
    found: dict[str, Any] = {}

    def flat(*leaves: Any) -> list[Any]:
        result = function(*pytrees.unflatten(treedef, leaves))
        if has_aux:
            result, found["aux"] = _pair(result, _name(function))
        outputs, found["tree"] = arrays_of(result, f"The result of {_name(function)}")
        return outputs

    values, moves = jvp_flat(flat, inputs, typed)
    tree = found["tree"]
    pair = pytrees.unflatten(tree, values), pytrees.unflatten(tree, _with_zeros(moves, values))
    return (*pair, _lowered(found["aux"])) if has_aux else pair


def jacfwd(
    function: Function, argnums: int | Sequence[int] = 0, has_aux: bool = False, holomorphic: bool = False
) -> Function:
    """The Jacobian by forward mode, one column at a time (batched): cheap for functions of few numbers.

    Args:
        function: of floating arrays, with floating arrays as its result.
        argnums: the argument to differentiate by, or several.
        has_aux: the function gives `(result, auxiliary)`; the Jacobian function then gives `(jacobian, auxiliary)`.
        holomorphic: arguments and result are complex, and the function is complex-differentiable.

    Returns:
        A function whose result has, for every leaf of `function`'s result, the structure of the argument; each array
        has the result's dimensions followed by the argument's.

    Example:
        >>> import tinyxla as tx
        >>> tx.jacfwd(lambda x: x * x)(tx.numpy.array([1.0, 2.0]))
        Array([[2., 0.],
               [0., 4.]], dtype=float32)
    """
    _check_callable("jacfwd", function)
    numbers = as_integers(argnums, f"jacfwd of {_name(function)}: argnums")
    single = not isinstance(argnums, Iterable)

    @functools.wraps(function)
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        of_chosen, chosen = _partial("jacfwd", function, numbers, args, kwargs, holomorphic)
        inputs, treedef = arrays_of(chosen, "")

        def push(*directions: Any) -> Any:
            result = jvp(of_chosen, chosen, pytrees.unflatten(treedef, directions), has_aux=has_aux)
            return result[1:]

        columns, *aux = vmap(push, out_axes=(-1, None) if has_aux else -1)(*_basis(inputs))
        found = pytrees.map_tree(lambda x: _in_parts(x, inputs, treedef, single), columns)
        return (found, *aux) if has_aux else found

    return jacobian


def jacrev(
    function: Function, argnums: int | Sequence[int] = 0, has_aux: bool = False, holomorphic: bool = False
) -> Function:
    """The Jacobian by reverse mode, one row at a time (batched): cheap for functions with few results.

    Arguments and result are as for `jacfwd`.

    Example:
        >>> import tinyxla as tx
        >>> tx.jacrev(lambda x: x.sum())(tx.numpy.ones(2))
        Array([1., 1.], dtype=float32)
    """
    _check_callable("jacrev", function)
    numbers = as_integers(argnums, f"jacrev of {_name(function)}: argnums")
    single = not isinstance(argnums, Iterable)

    @functools.wraps(function)
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        of_chosen, chosen = _partial("jacrev", function, numbers, args, kwargs, holomorphic)
        result, pullback, *aux = vjp(of_chosen, *chosen, has_aux=has_aux)
        outputs, treedef = arrays_of(result, "")
        _differentiable(result, f"jacrev of {_name(function)}: the result", "", holomorphic)
        rows = vmap(lambda *seeds: pullback(pytrees.unflatten(treedef, seeds)))(*_basis(outputs))
        leaves, inner = pytrees.flatten(rows[0] if single else rows)
        parts = [_split_rows(x, outputs) for x in leaves]
        of_outputs = [pytrees.unflatten(inner, [of[k] for of in parts]) for k in range(len(outputs))]
        found = pytrees.unflatten(treedef, of_outputs)
        return (found, *aux) if has_aux else found

    return jacobian


def hessian(
    function: Function, argnums: int | Sequence[int] = 0, has_aux: bool = False, holomorphic: bool = False
) -> Function:
    """The matrix of second derivatives of a function, forward over reverse mode; structured as `jacfwd` of `jacrev`.

    Example:
        >>> import tinyxla as tx
        >>> tx.hessian(lambda x: (x**3).sum())(tx.numpy.array([1.0, 2.0]))
        Array([[ 6.,  0.],
               [ 0., 12.]], dtype=float32)
    """
    return jacfwd(jacrev(function, argnums, has_aux, holomorphic), argnums, has_aux, holomorphic)


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


def _in_parts(columns: Any, inputs: Sequence[Array], treedef: Any, single: bool) -> Any:
    """The last axis, which runs over all elements of the inputs, as a pytree of arrays with the inputs' dimensions."""
    start = 0
    parts: list[Any] = []
    for x in inputs:
        part = movement.slice_axis(columns, columns.ndim - 1, start, start + x.size)
        parts.append(movement.reshape_to(part, (*columns.shape[:-1], *x.shape)))
        start += x.size
    tree = pytrees.unflatten(treedef, parts)
    return tree[0] if single else tree


def _split_rows(rows: Any, outputs: Sequence[Array]) -> list[Any]:
    start = 0
    parts: list[Any] = []
    for x in outputs:
        part = movement.slice_axis(rows, 0, start, start + x.size)
        parts.append(movement.reshape_to(part, (*x.shape, *rows.shape[1:])))
        start += x.size
    return parts


# --- batching ---------------------------------------------------------------------------------------------------------


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
            raise ArgumentError(
                f"{what}: in_axes must have one entry for each positional argument, but {in_axes} has {len(in_axes)} "  # pyright: ignore[reportUnknownArgumentType]
                f"and the call has {len(args)}."
            )
        leaves, treedef = pytrees.flatten((args, kwargs))
        wanted = pytrees.broadcast_prefix(in_axes, args, f"{what}: in_axes")
        wanted += [0] * (len(leaves) - len(wanted))

        def name(k: int) -> str:
            return f"argument {argument_names(args, kwargs)[k]}"

        inputs: list[Any] = []
        axes: list[int | None] = []
        for k, (leaf, axis) in enumerate(zip(leaves, wanted, strict=True)):
            if axis is not None:  # what is not mapped over may be anything
                (leaf,), _ = arrays_of(leaf, f"{what}: ", lambda k=k: [name(k)])
                if not isinstance(axis, int) or not -leaf.ndim <= axis < leaf.ndim:
                    axis = canonical_axis(axis, leaf.ndim, f"{what}: in_axes for {name(k)}")
                axis = axis % leaf.ndim
            inputs.append(leaf)
            axes.append(axis)
        size = _batch_size(inputs, axes, name, axis_size, what)
        found: dict[str, Any] = {}

        def flat(*leaves: Any) -> list[Any]:
            inner_args, inner_kwargs = pytrees.unflatten(treedef, leaves)
            result = function(*inner_args, **inner_kwargs)
            outputs, found["tree"] = arrays_of(result, f"The result of {_name(function)}")
            return outputs

        results = batch_flat(flat, size, inputs, axes)
        whole = pytrees.unflatten(found["tree"], [value for value, _ in results])
        targets = pytrees.broadcast_prefix(out_axes, whole, f"{what}: out_axes")
        placed = [_placed(v, a, to, size, what) for (v, a), to in zip(results, targets, strict=True)]
        return pytrees.unflatten(found["tree"], placed)

    return mapped


def _batch_size(
    inputs: Sequence[Any], axes: Sequence[int | None], name: Callable[[int], str], given: int | None, what: str
) -> int:
    mapped = [(k, x, a) for k, (x, a) in enumerate(zip(inputs, axes, strict=True)) if a is not None]
    sizes = {x.shape[a] for _, x, a in mapped}
    if given is not None:
        if not hasattr(given, "__index__"):
            raise ArgumentError(f"{what}: axis_size must be an integer, but is {given!r}.")
        if given < 0:
            raise ShapeError(f"{what}: axis_size must not be negative, but is {given}.")
        sizes.add(operator.index(given))
    if not sizes:
        raise ArgumentError(f"{what}: no argument is mapped over; name an axis in in_axes, or pass axis_size.")
    if len(sizes) > 1:
        told = [f"{name(k)} is {Shape.of(x)} and mapped over its axis {a}" for k, x, a in mapped]
        told += [f"axis_size is {given}"] if given is not None else []
        raise ShapeError(f"{what}: the mapped axes must have one size, but have {sorted(sizes)}: {', '.join(told)}.")
    return sizes.pop()


def _placed(value: Any, axis: int | None, to: int | None, size: int, what: str) -> Any:
    if to is None:
        if axis is not None:
            raise ArgumentError(
                f"{what}: out_axes is None for a result that differs between examples; give the axis along which to "
                "stack them."
            )
        return value
    rank = value.ndim + (axis is None)
    return movement.align_axis(value, axis, canonical_axis(to, rank, f"{what}: out_axes"), size)


# --- graphs -----------------------------------------------------------------------------------------------------------


def make_graph(function: Function) -> Callable[..., Module]:
    """The graph of operations that a function records for arguments of given shapes.

    Example:
        >>> import tinyxla as tx
        >>> graph = tx.make_graph(lambda x: x + 1)(0.0)
        >>> [x.op.name for x in graph.entry.instructions]
        ['parameter', 'constant', 'add', 'tuple']
    """
    _check_callable("make_graph", function)

    @functools.wraps(function)
    def graph(*args: Any, **kwargs: Any) -> Module:
        return Module(_name(function), trace_tree(function, args, kwargs)[0])

    return graph


def trace_tree(function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any, list[bool], Any]:
    """The computation of a function on pytrees: it, what it captured, which results are weak, and their structure."""
    leaves, treedef = pytrees.flatten((args, kwargs))
    for k, leaf in enumerate(leaves):
        if not isinstance(leaf, (Array, ShapeDtypeStruct)):
            what = f"{_name(function)}: argument "
            (leaves[k],), _ = arrays_of(leaf, what, lambda k=k: argument_names(args, kwargs)[k:])
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
    """The shapes and dtypes of a function's result, as `ShapeDtypeStruct`s, without computing it. The arguments may be
    such structures themselves.

    Example:
        >>> import tinyxla as tx
        >>> tx.eval_shape(lambda x: x @ x, tx.ShapeDtypeStruct((2, 2), "float32")).shape
        (2, 2)
    """
    _check_callable("eval_shape", function)
    made, _, weak, tree = trace_tree(function, args, kwargs)
    outputs = [
        ShapeDtypeStruct(x.array_shape.dimensions, x.array_shape.dtype, w)
        for x, w in zip(made.outputs, weak, strict=True)
    ]
    return pytrees.unflatten(tree, outputs)


# --- stand-ins for devices --------------------------------------------------------------------------------------------


def block_until_ready(tree: Any) -> Any:
    """The argument: results are ready when a call returns."""
    return tree


def device_put(tree: Any, device: Any = None) -> Any:
    """The leaves of a pytree as arrays; there is one device."""
    arrays, treedef = arrays_of(tree, "device_put: the value")
    return pytrees.unflatten(treedef, arrays)


def device_get(tree: Any) -> Any:
    """The leaves of a pytree as NumPy arrays."""
    return pytrees.map_tree(np.asarray, tree)
