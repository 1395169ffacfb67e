"""The transformations users call: derivatives, batching, and looking at graphs.

All take functions of pytrees of arrays and give such functions, and nest in any order. Compilation is in
`tinyxla.compilation`.
"""

from __future__ import annotations

import functools
import operator
import reprlib
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tinyxla.errors import (
    ArgumentError,
    AttributeValueError,
    DifferentiationError,
    DTypeError,
    PytreeError,
    ShapeError,
)
from tinyxla.hlo import Computation, Module
from tinyxla.ops import elementwise, movement, reduction
from tinyxla.shapes import Shape, element_type
from tinyxla.shapes.shape import canonical_axis
from tinyxla.tracing import pytrees
from tinyxla.tracing.array import Array, ConcreteArray
from tinyxla.tracing.core import trace
from tinyxla.tracing.promotion import as_array, float0
from tinyxla.transforms import batch as batch_flat
from tinyxla.transforms import jvp as jvp_flat
from tinyxla.transforms import vjp as vjp_flat
from tinyxla.transforms.reverse import zeros_like

Function = Callable[..., Any]


@dataclass(frozen=True, init=False)
class ShapeDtypeStruct:
    """Shape and dtype of an array that need not exist. (`sharding` is accepted and kept; there is one device.)

    Example:
        >>> import tinyxla as tx
        >>> tx.ShapeDtypeStruct((2, 3), "float32").update(dtype="int32")
        ShapeDtypeStruct(shape=(2, 3), dtype=int32)
    """

    shape: tuple[int, ...]
    dtype: Any
    sharding: Any = None
    weak_type: bool = False

    def __init__(
        self, shape: Sequence[int], dtype: Any, *, sharding: Any = None, weak_type: bool = False, **ignored: Any
    ) -> None:
        unknown = ignored.keys() - {"vma", "is_ref", "manual_axis_type"}
        if unknown or dtype is None:
            said = f"does not know {sorted(unknown)}" if unknown else "needs a dtype"
            raise ArgumentError(f"ShapeDtypeStruct {said}; give shape, dtype, sharding and weak_type.")
        object.__setattr__(self, "shape", as_integers(shape, "The shape of a ShapeDtypeStruct"))
        named = getattr(dtype, "dtype", None)  # of a scalar constructor, such as tinyxla.numpy.float32
        object.__setattr__(self, "dtype", element_type(named if isinstance(named, np.dtype) else dtype).dtype)  # pyright: ignore[reportUnknownArgumentType]
        object.__setattr__(self, "sharding", sharding)
        object.__setattr__(self, "weak_type", weak_type)

    def update(self, **changes: Any) -> ShapeDtypeStruct:
        """The same with other fields."""
        kept: dict[str, Any] = {name: getattr(self, name) for name in ("shape", "dtype", "sharding", "weak_type")}
        return ShapeDtypeStruct(**{**kept, **changes})

    def __len__(self) -> int:
        if not self.shape:
            raise ArgumentError("len() of a ShapeDtypeStruct without dimensions; use .size.")
        return self.shape[0]

    def __repr__(self) -> str:
        weak = ", weak_type=True" if self.weak_type else ""
        return f"ShapeDtypeStruct(shape={self.shape}, dtype={self.dtype.name}{weak})"

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


def check_callable(what: str, function: Any) -> None:
    """An error for what is no function."""
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
    if isinstance(dtype, np.dtype) and hasattr(leaf, "shape"):
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


def vjp(fun: Function, *primals: Any, has_aux: bool = False, reduce_axes: Sequence[Any] = ()) -> Any:
    """The value of a function, and the map from cotangents of the result to cotangents of the arguments.

    Args:
        fun: of pytrees of arrays, with a pytree of arrays as its result.
        primals: its arguments.
        has_aux: the function gives `(result, auxiliary)`; the second is passed through undifferentiated.
        reduce_axes: accepted for JAX's sake; must be empty.

    Returns:
        `(result, pullback)`, or `(result, pullback, auxiliary)`; `pullback(cotangent)` gives a tuple of cotangents,
        one for each argument and of its structure. That of an integer is a zero of type `dtypes.float0`, as in JAX.

    Example:
        >>> import tinyxla as tx
        >>> y, pullback = tx.vjp(tx.numpy.sin, 0.0)
        >>> pullback(1.0)
        (Array(1., dtype=float32, weak_type=True),)
    """
    check_callable("vjp", fun)
    _check_no_axes("vjp", reduce_axes)
    inputs, treedef = _arguments(primals, f"vjp of {_name(fun)}")
    found: dict[str, Any] = {}

    def flat(*leaves: Any) -> list[Any]:
        result = fun(*pytrees.unflatten(treedef, leaves))
        if has_aux:
            result, found["aux"] = pair_of(result, _name(fun))
        outputs, found["tree"] = arrays_of(result, f"The result of {_name(fun)}")
        return outputs

    flat.__wrapped__ = fun  # type: ignore[attr-defined]
    outputs, flat_pullback = vjp_flat(flat, inputs)
    result = pytrees.unflatten(found["tree"], outputs)

    def pullback(cotangent: Any, *more: Any) -> Any:
        if more:
            raise ArgumentError(
                f"vjp of {_name(fun)}: the pullback takes one argument, the cotangent of the result, but got "
                f"{1 + len(more)}; put those of several results into the container that the function returns."
            )
        typed = _matched("cotangent", cotangent, f"result of {_name(fun)}", outputs, found["tree"])
        return pytrees.unflatten(treedef, _with_zeros(flat_pullback(typed), inputs))

    return (result, pullback, lowered(found["aux"])) if has_aux else (result, pullback)


def pair_of(result: Any, name: str) -> tuple[Any, Any]:
    """The result and the auxiliary one of a function that must return both."""
    if not isinstance(result, tuple) or len(result) != 2:  # pyright: ignore[reportUnknownArgumentType]
        shown = f"the array {Shape.of(result)}" if isinstance(result, Array) else reprlib.repr(result)
        raise ArgumentError(
            f"With has_aux=True {name} must return a pair (result, auxiliary), but it returned {shown}."
        )
    return result  # pyright: ignore[reportUnknownVariableType]


def lowered(aux: Any) -> Any:
    """Auxiliary results without the tracers of a differentiation that has ended."""

    def lower(x: Any) -> Any:
        value = getattr(x, "value", None)
        return lower(value) if isinstance(value, Array) and not x.owner.active else x

    return pytrees.map_tree(lower, aux)


def _arguments(args: tuple[Any, ...], what: str) -> tuple[list[Array], pytrees.TreeDef]:
    return arrays_of(args, f"{what}: argument ", lambda: argument_names(args, {}))


def _matched(
    what: str, given: Any, where: str, templates: Sequence[Array], tree: pytrees.TreeDef, strict: bool = False
) -> list[Array | None]:
    """Tangents or cotangents, of the shapes and types of what they belong to; None for what has no derivative, which
    must be a float0 if `strict`."""
    leaves, given_tree = pytrees.flatten(given)
    if given_tree != tree:
        raise ArgumentError(
            f"The {what} must have the structure of the {where}, which is {pytrees.structure_text(tree)} where * "
            f"stands for an array, but it has the structure {pytrees.structure_text(given_tree)}."
        )

    def name(k: int) -> str:
        found = pytrees.leaf_names(given)[k]
        return f" at {found}" if found else ""

    pairs = enumerate(zip(leaves, templates, strict=True))
    return [_matched_leaf(what, x, where, like, lambda k=k: name(k), strict) for k, (x, like) in pairs]


def _matched_leaf(
    what: str, leaf: Any, where: str, template: Array, name: Callable[[], str], strict: bool
) -> Array | None:
    inexact = element_type(template.dtype).is_inexact
    given = "float0" if _is_float0(leaf) else ""
    if not inexact and (given or not strict):
        return None
    if not given:
        (x,), _ = arrays_of(leaf, f"The {what}", lambda: [name()])
        given = str(Shape.of(x))
        if x.shape != template.shape:
            raise ShapeError(
                f"The {what}{name()} must have the shape of the {where}, {Shape.of(template)}, but has the shape "
                f"{given}."
            )
        if x.dtype == template.dtype and inexact:
            return x
        if x.weak_type and inexact and (x.dtype.kind != "c" or template.dtype.kind == "c"):
            return elementwise.convert(x, new_element_type=element_type(template.dtype))  # type: ignore[return-value]
    if not inexact:
        raise DTypeError(
            f"The {what}{name()} must have the type dtypes.float0, since what it belongs to is {Shape.of(template)}, "
            f"by which there is no derivative, but is {given}; pass numpy.zeros({template.shape}, dtypes.float0)."
        )
    raise DTypeError(
        f"The {what}{name()} must have the type of the {where}, {Shape.of(template)}, but is {given}; convert it with "
        f"astype({template.dtype.name!r})."
    )


def _with_zeros(cotangents: Sequence[Any], inputs: Sequence[Array]) -> list[Any]:
    """Derivatives as arrays, as weakly typed as what they belong to; zeros of type float0 where there is none."""
    found: list[Any] = []
    for c, x in zip(cotangents, inputs, strict=True):
        if element_type(x.dtype).is_inexact:
            found.append((zeros_like(x) if c is None else c).with_weak_type(x.weak_type))
        else:
            found.append(np.zeros(x.shape, float0))
    return found


def _is_float0(x: Any) -> bool:
    return getattr(x, "dtype", None) == float0


def _check_no_axes(what: str, reduce_axes: Sequence[Any]) -> None:
    if tuple(reduce_axes):
        raise ArgumentError(
            f"{what}: reduce_axes must be empty, but is {reduce_axes!r}; sum the cotangents with lax.psum."
        )


def grad(
    fun: Function,
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    reduce_axes: Sequence[Any] = (),
) -> Function:
    """The gradient of a scalar function.

    Args:
        fun: gives a scalar of a floating type; its arguments `argnums` are pytrees of floating arrays.
        argnums: the argument to differentiate by, or several.
        has_aux: the function gives `(result, auxiliary)`; the gradient function then gives `(gradient, auxiliary)`.
        holomorphic: arguments and result are complex, and the function is complex-differentiable. Without it, the
            gradient of a real function by x + iy is its derivative by x minus i times that by y, as in JAX.
        allow_int: arguments may be integers and bools; their gradients are zeros of type `dtypes.float0`.
        reduce_axes: accepted for JAX's sake; must be empty.

    Returns:
        A function of the same arguments whose result has the structure of the argument (a tuple for several).

    Outside `jit` the function may look at values: `if`, `while`, `float(x)` and `print(x)` work as in plain Python.

    Example:
        >>> import tinyxla as tx
        >>> tx.grad(lambda x: x**3)(2.0)
        Array(12., dtype=float32, weak_type=True)
    """
    both = _value_and_grad("grad", fun, argnums, has_aux, holomorphic, allow_int, reduce_axes)

    @functools.wraps(fun)
    def gradient(*args: Any, **kwargs: Any) -> Any:
        value, found = both(*args, **kwargs)
        return (found, value[1]) if has_aux else found

    return gradient


def value_and_grad(
    fun: Function,
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    reduce_axes: Sequence[Any] = (),
) -> Function:
    """The value of a scalar function together with its gradient; arguments as for `grad`.

    Returns:
        A function that gives `(value, gradient)`, or `((value, auxiliary), gradient)`.

    Example:
        >>> import tinyxla as tx
        >>> tx.value_and_grad(lambda x: x**2)(3.0)
        (Array(9., dtype=float32, weak_type=True), Array(6., dtype=float32, weak_type=True))
    """
    return _value_and_grad("value_and_grad", fun, argnums, has_aux, holomorphic, allow_int, reduce_axes)


def _value_and_grad(
    what: str,
    fun: Function,
    argnums: int | Sequence[int],
    has_aux: bool,
    holomorphic: bool,
    allow_int: bool,
    reduce_axes: Sequence[Any],
) -> Function:
    check_callable(what, fun)
    _check_no_axes(what, reduce_axes)
    numbers = as_integers(argnums, f"{what} of {_name(fun)}: argnums")
    single = not isinstance(argnums, Iterable)

    @functools.wraps(fun)
    def both(*args: Any, **kwargs: Any) -> Any:
        of_chosen, chosen = _partial(what, fun, numbers, args, kwargs, holomorphic, allow_int)
        result = vjp(of_chosen, *chosen, has_aux=has_aux)
        value, pullback = result[0], result[1]
        _check_scalar(what, value, fun, holomorphic)
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
    allow_int: bool = False,
) -> tuple[Function, tuple[Any, ...]]:
    """The function of its chosen arguments alone, and these, which must have a derivative."""
    what = f"{what} of {_name(function)}"
    for n in numbers:
        if not -len(args) <= n < len(args):
            raise ArgumentError(
                f"{what}: argnums names argument {n}, but the call has {len(args)} positional arguments."
                + (" Choose another one." if args and not kwargs else " Pass it by position.")
            )
    chosen = [n % len(args) for n in numbers]
    if len(set(chosen)) != len(chosen):
        raise ArgumentError(f"{what}: argnums must name each argument once, but is {numbers}.")
    reverse = not what.startswith("jacfwd")  # a complex argument has as many directions as its parts have together
    values = tuple(
        _differentiable(args[n], f"{what}: argument ", str(n), holomorphic, reverse, allow_int) for n in chosen
    )

    @functools.wraps(function)
    def of_chosen(*values: Any) -> Any:
        whole = list(args)
        for n, value in zip(chosen, values, strict=True):
            whole[n] = value
        return function(*whole, **kwargs)

    return of_chosen, values


def _differentiable(
    tree: Any, what: str, name: str, holomorphic: bool, complex_too: bool = False, allow_int: bool = False
) -> Any:
    """A pytree of arrays by which, or of which, there is a derivative."""

    def names() -> list[str]:
        return [f"{name}{path}" for path in pytrees.leaf_names(tree)]

    arrays, treedef = arrays_of(tree, what, names)
    wanted = "complex" if holomorphic else "float"
    for k, x in enumerate(arrays):
        kind = element_type(x.dtype).kind
        inexact = kind in ("float", "complex")
        if kind == wanted or (complex_too and kind == "complex") or (allow_int and not inexact):
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


def _check_scalar(what: str, value: Any, function: Function, holomorphic: bool) -> None:
    what = f"{what} of {_name(function)}: the function must return one "
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


def elementwise_grad(fun: Function, argnums: int | Sequence[int] = 0) -> Function:
    """The derivative of a function that works on each element by itself, at all elements; for any other function the
    gradient of the sum of its results.

    Returns:
        A function of the same arguments whose result has the structure of the argument (a tuple for several).

    Example:
        >>> import tinyxla as tx
        >>> tx.elementwise_grad(lambda x: x**3)(tx.numpy.array([1.0, 2.0]))
        Array([ 3., 12.], dtype=float32)
    """
    check_callable("elementwise_grad", fun)
    numbers = as_integers(argnums, f"elementwise_grad of {_name(fun)}: argnums")

    @functools.wraps(fun)
    def derivative(*args: Any, **kwargs: Any) -> Any:
        of_chosen, chosen = _partial("elementwise_grad", fun, numbers, args, kwargs, False)
        value, pullback = vjp(of_chosen, *chosen)
        found = pullback(pytrees.map_tree(lambda x: movement.full(1, x.dtype, x.shape), value))
        return found if isinstance(argnums, Iterable) else found[0]

    return derivative


# --- forward mode and Jacobians ---------------------------------------------------------------------------------------


def jvp(fun: Function, primals: Sequence[Any], tangents: Sequence[Any], has_aux: bool = False) -> Any:
    """The value of a function and its derivative along `tangents`, which have the structure of the arguments `primals`,
    their shapes and types; the tangent of an integer is a zero of type `dtypes.float0`.

    Returns:
        `(result, tangent)`, or `(result, tangent, auxiliary)` with `has_aux`.

    Example:
        >>> import tinyxla as tx
        >>> tx.jvp(tx.numpy.sin, (0.0,), (1.0,))[1]
        Array(1., dtype=float32, weak_type=True)
    """
    check_callable("jvp", fun)
    for name, given in (("primals", primals), ("tangents", tangents)):
        if not isinstance(given, (tuple, list)):
            raise ArgumentError(
                f"jvp of {_name(fun)}: {name} must be a tuple with an entry for each argument, but got {given!r}."
            )
    inputs, treedef = _arguments(tuple(primals), f"jvp of {_name(fun)}")
    typed = _matched("tangent", tuple(tangents), f"argument of {_name(fun)}", inputs, treedef, strict=True)
    found: dict[str, Any] = {}

    def flat(*leaves: Any) -> list[Any]:
        result = fun(*pytrees.unflatten(treedef, leaves))
        if has_aux:
            result, found["aux"] = pair_of(result, _name(fun))
        outputs, found["tree"] = arrays_of(result, f"The result of {_name(fun)}")
        return outputs

    flat.__wrapped__ = fun  # type: ignore[attr-defined]
    values, moves = jvp_flat(flat, inputs, typed)
    tree = found["tree"]
    pair = pytrees.unflatten(tree, values), pytrees.unflatten(tree, _with_zeros(moves, values))
    return (*pair, lowered(found["aux"])) if has_aux else pair


def jacfwd(
    fun: Function, argnums: int | Sequence[int] = 0, has_aux: bool = False, holomorphic: bool = False
) -> Function:
    """The Jacobian by forward mode, one column at a time (batched): cheap for functions of few numbers.

    Args:
        fun: of floating arrays, with floating arrays as its result.
        argnums: the argument to differentiate by, or several.
        has_aux: the function gives `(result, auxiliary)`; the Jacobian function then gives `(jacobian, auxiliary)`.
        holomorphic: arguments and result are complex, and the function is complex-differentiable.

    Returns:
        A function whose result has, for every leaf of `fun`'s result, the structure of the argument; each array
        has the result's dimensions followed by the argument's.

    Example:
        >>> import tinyxla as tx
        >>> tx.jacfwd(lambda x: x * x)(tx.numpy.array([1.0, 2.0]))
        Array([[2., 0.],
               [0., 4.]], dtype=float32)
    """
    check_callable("jacfwd", fun)
    numbers = as_integers(argnums, f"jacfwd of {_name(fun)}: argnums")
    single = not isinstance(argnums, Iterable)

    @functools.wraps(fun)
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        of_chosen, chosen = _partial("jacfwd", fun, numbers, args, kwargs, holomorphic)
        inputs, treedef = arrays_of(chosen, "")

        def push(*directions: Any) -> Any:
            value, tangent, *aux = jvp(of_chosen, chosen, pytrees.unflatten(treedef, directions), has_aux=has_aux)
            if holomorphic:
                _differentiable(value, f"jacfwd of {_name(fun)}: the result", "", holomorphic)
            return pytrees.map_tree(lambda t, y: zeros_like(as_array(y)) if _is_float0(t) else t, tangent, value), *aux

        columns, *aux = vmap(push, out_axes=(-1, None) if has_aux else -1)(*_basis(inputs))
        found = pytrees.map_tree(lambda x: _in_parts(x, inputs, treedef, single), columns)
        return (found, *aux) if has_aux else found

    return jacobian


def jacrev(
    fun: Function,
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Function:
    """The Jacobian by reverse mode, one row at a time (batched): cheap for functions with few results.

    Arguments and result are as for `jacfwd`.

    Example:
        >>> import tinyxla as tx
        >>> tx.jacrev(lambda x: x.sum())(tx.numpy.ones(2))
        Array([1., 1.], dtype=float32)
    """
    check_callable("jacrev", fun)
    numbers = as_integers(argnums, f"jacrev of {_name(fun)}: argnums")
    single = not isinstance(argnums, Iterable)

    @functools.wraps(fun)
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        of_chosen, chosen = _partial("jacrev", fun, numbers, args, kwargs, holomorphic, allow_int)
        result, pullback, *aux = vjp(of_chosen, *chosen, has_aux=has_aux)
        outputs, treedef = arrays_of(result, "")
        _differentiable(result, f"jacrev of {_name(fun)}: the result", "", holomorphic)
        inputs, inner = arrays_of(chosen[0] if single else chosen, "")
        exact = [not element_type(x.dtype).is_inexact for x in inputs]

        def pull(*seeds: Any) -> list[Any]:
            found, _ = pytrees.flatten(pullback(pytrees.unflatten(treedef, seeds)))
            return [None if none else x for x, none in zip(found, exact, strict=True)]

        rows = vmap(pull)(*_basis(outputs))
        parts = [
            [np.zeros((*y.shape, *x.shape), float0) for y in outputs] if row is None else _split_rows(row, outputs)
            for x, row in zip(inputs, rows, strict=True)
        ]
        of_outputs = [pytrees.unflatten(inner, [of[k] for of in parts]) for k in range(len(outputs))]
        found = pytrees.unflatten(treedef, of_outputs)
        return (found, *aux) if has_aux else found

    return jacobian


def hessian(
    fun: Function, argnums: int | Sequence[int] = 0, has_aux: bool = False, holomorphic: bool = False
) -> Function:
    """The matrix of second derivatives of a function, forward over reverse mode; structured as `jacfwd` of `jacrev`.

    Example:
        >>> import tinyxla as tx
        >>> tx.hessian(lambda x: (x**3).sum())(tx.numpy.array([1.0, 2.0]))
        Array([[ 6.,  0.],
               [ 0., 12.]], dtype=float32)
    """
    return jacfwd(jacrev(fun, argnums, has_aux, holomorphic), argnums, has_aux, holomorphic)


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


def vmap(
    fun: Function,
    in_axes: Any = 0,
    out_axes: Any = 0,
    axis_name: Hashable | None = None,
    axis_size: int | None = None,
    spmd_axis_name: Hashable | None = None,
    sum_match: bool = False,
) -> Function:
    """Map a function over an axis of its arguments, at the cost of one call.

    Args:
        fun: written for one example.
        in_axes: for each positional argument (or for all) the axis to map over, or None; may be a pytree that is a
            prefix of the arguments. Keyword arguments are mapped over their first axis.
        out_axes: where the mapped axis stands in the results; may be a prefix of the result. None says that a result is
            the same for all examples.
        axis_name: a name of the axis, over which examples can talk to each other: `lax.psum(x, axis_name)` and the
            like. Where a name is given twice, the inner axis has it.
        axis_size: the number of examples, needed only where no argument has the axis.
        spmd_axis_name: accepted for JAX's sake; there is one device.
        sum_match: where `out_axes` is None for a result that differs between examples, give their sum.

    Raises:
        ArgumentError: an argument or result that is no array.
        PytreeError: axes in another structure than the arguments or results.
        AttributeValueError: no argument is mapped over, or `out_axes` is None for a result that differs.
        ShapeError: an axis that an array does not have, or axes of different sizes.

    Example:
        >>> import tinyxla as tx
        >>> tx.vmap(lambda x, y: x @ y, in_axes=(0, None))(tx.numpy.ones((2, 3)), tx.numpy.ones(3))
        Array([3., 3.], dtype=float32)
    """
    check_callable("vmap", fun)
    if isinstance(in_axes, list):
        in_axes = tuple(in_axes)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    names = () if axis_name is None else (axis_name,)
    if not isinstance(axis_name, Hashable):
        raise ArgumentError(f"vmap of {_name(fun)}: axis_name must be hashable, as a string is, but is {axis_name!r}.")

    @functools.wraps(fun)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        what = f"vmap of {_name(fun)}"
        if isinstance(in_axes, tuple) and len(in_axes) != len(args):  # pyright: ignore[reportUnknownArgumentType]
            raise PytreeError(
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
            result = fun(*inner_args, **inner_kwargs)
            outputs, found["tree"] = arrays_of(result, f"The result of {_name(fun)}")
            return outputs

        flat.__wrapped__ = fun  # type: ignore[attr-defined]
        results = batch_flat(flat, size, inputs, axes, *names)
        whole = pytrees.unflatten(found["tree"], [value for value, _ in results])
        targets = pytrees.broadcast_prefix(out_axes, whole, f"{what}: out_axes")

        def place(k: int) -> Any:
            (value, axis), to = results[k], targets[k]
            if to is None and axis is not None and sum_match:
                return reduction.reduce_sum(value, (axis,))
            return _placed(value, axis, to, size, lambda: f"{what}: the result{pytrees.leaf_names(whole)[k]}")

        return pytrees.unflatten(found["tree"], [place(k) for k in range(len(results))])

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
        raise AttributeValueError(f"{what}: no argument is mapped over; name an axis in in_axes, or pass axis_size.")
    if len(sizes) > 1:
        told = [f"{name(k)} is {Shape.of(x)} and mapped over its axis {a}" for k, x, a in mapped]
        told += [f"axis_size is {given}"] if given is not None else []
        raise ShapeError(f"{what}: the mapped axes must have one size, but have {sorted(sizes)}: {', '.join(told)}.")
    return sizes.pop()


def _placed(value: Any, axis: int | None, to: Any, size: int, name: Callable[[], str]) -> Any:
    if to is None:
        if axis is not None:
            raise AttributeValueError(
                f"{name()} differs between examples, but out_axes is None for it; give the axis along which to stack "
                "the examples, or return what is the same for all, such as lax.psum of it over a named axis."
            )
        return value
    rank = value.ndim + (axis is None)
    if not isinstance(to, int) or not -rank <= to < rank:
        to = canonical_axis(to, rank, f"{name()}, with the axis of examples: out_axes")
    return movement.align_axis(value, axis, to % rank, size)


# --- graphs -----------------------------------------------------------------------------------------------------------


def make_graph(
    fun: Function, static_argnums: int | Sequence[int] = (), return_shape: bool = False
) -> Callable[..., Any]:
    """The graph of operations that a function records for arguments of given shapes; also called `make_jaxpr`.

    Args:
        fun: of pytrees of arrays.
        static_argnums: positions of arguments that stay Python values.
        return_shape: also give the result's shapes, as `eval_shape` does.

    Returns:
        A function of the same arguments that gives the graph, a `Module`. Printed, it is its HLO text.

    Example:
        >>> import tinyxla as tx
        >>> tx.make_graph(lambda x: x + 1)(0.0)
        HloModule lambda, entry_computation_layout={(f32[])->(f32[])}
        <BLANKLINE>
        ENTRY lambda {
          parameter.1 = f32[] parameter(0)
          constant.1 = f32[] constant(1)
          add.1 = f32[] add(parameter.1, constant.1)
          ROOT tuple.1 = (f32[]) tuple(add.1)
        }
        <BLANKLINE>
    """
    check_callable("make_graph", fun)
    numbers = as_integers(static_argnums, f"make_graph of {_name(fun)}: static_argnums")

    @functools.wraps(fun)
    def graph(*args: Any, **kwargs: Any) -> Any:
        held = {n % len(args): args[n % len(args)] for n in numbers if -len(args) <= n < len(args)}

        @functools.wraps(fun)
        def of_others(*others: Any, **kwargs: Any) -> Any:
            values = iter(others)
            return fun(*[held[n] if n in held else next(values) for n in range(len(args))], **kwargs)

        others = tuple(x for n, x in enumerate(args) if n not in held)
        made, _, weak, tree = trace_tree(of_others if held else fun, others, kwargs)
        module = Module(_name(fun), made)
        return (module, shapes_of(made, weak, tree)) if return_shape else module

    return graph


def shapes_of(made: Computation, weak: Sequence[bool], tree: pytrees.TreeDef) -> Any:
    """The results of a computation as `ShapeDtypeStruct`s."""
    shapes = [x.array_shape for x in made.outputs]
    found = [ShapeDtypeStruct(x.dimensions, x.dtype, weak_type=w) for x, w in zip(shapes, weak, strict=True)]
    return pytrees.unflatten(tree, found)


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

    flat.__wrapped__ = function  # type: ignore[attr-defined]
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
    check_callable("eval_shape", function)
    made, _, weak, tree = trace_tree(function, args, kwargs)
    return shapes_of(made, weak, tree)


def typeof(x: Any) -> ShapeDtypeStruct:
    """The shape and element type of an array, a tracer or a number.

    Example:
        >>> import tinyxla as tx
        >>> tx.typeof(tx.numpy.ones((2, 3)))
        ShapeDtypeStruct(shape=(2, 3), dtype=float32)
    """
    array = x if isinstance(x, ShapeDtypeStruct) else as_array(x, "typeof")
    return ShapeDtypeStruct(array.shape, array.dtype, weak_type=array.weak_type)


# --- stand-ins for devices --------------------------------------------------------------------------------------------


def block_until_ready(x: Any) -> Any:
    """The argument: results are ready when a call returns."""
    return x


def device_put(x: Any, device: Any = None, *, src: Any = None, donate: Any = False, may_alias: Any = None) -> Any:
    """The leaves of a pytree as arrays. There is one device, so it does not matter which is named, or from where."""
    arrays, treedef = arrays_of(x, "device_put: the value")
    return pytrees.unflatten(treedef, arrays)


def device_get(x: Any) -> Any:
    """The leaves of a pytree as NumPy arrays."""
    return pytrees.map_tree(lambda leaf: np.asarray(leaf) if hasattr(leaf, "__array__") else leaf, x)
