"""Derivatives of functions of pytrees: reverse and forward mode, gradients and Jacobians."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Concatenate, Literal, overload

import numpy as np

from tinyxla.api.batching import vmap
from tinyxla.api.functions import (
    Function,
    OfLeaves,
    ShapeDtypeStruct,
    argument_names,
    arrays_of,
    as_integers,
    check_callable,
    name_of,
    pair_of,
)
from tinyxla.errors import ArgumentError, DifferentiationError, DTypeError, ShapeError
from tinyxla.hlo import Computation
from tinyxla.ops import elementwise, movement, ops
from tinyxla.shapes import Shape, element_type
from tinyxla.shapes.symbolic import is_symbolic
from tinyxla.tracing import pytrees
from tinyxla.tracing.array import Array, ConcreteArray, Operand, with_scalar_register
from tinyxla.tracing.core import state, trace, varying_like
from tinyxla.tracing.promotion import as_array, float0
from tinyxla.tracing.references import filled, has_references, slotted, values_of, write_all
from tinyxla.tracing.signatures import Argument, Arguments, Aux, P, R, SomeArray, Transformed, Unary
from tinyxla.transforms import jvp as jvp_flat, vjp as vjp_flat
from tinyxla.transforms.computations import chosen, run, spread
from tinyxla.transforms.reverse import is_inexact, zeros_like
from tinyxla.transforms.sharding_types import with_type_of
from tinyxla.util.name_stacks import JVP, TRANSPOSE
from tinyxla.util.tracebacks import boundary
from tinyxla.util.wrapping import transformed, wraps

_Leaves = tuple[Sequence[Any], pytrees.TreeDef]

# --- reverse mode -----------------------------------------------------------------------------------------------------


@overload
def vjp(fun: Unary, primal: Operand, /) -> tuple[Array, Callable[[Operand], tuple[Array]]]: ...
@overload
def vjp(
    fun: Callable[[*Arguments], R], *primals: *Arguments, reduce_axes: Sequence[Any] = ()
) -> tuple[R, Callable[[R], tuple[*Arguments]]]: ...
@overload
def vjp(
    fun: Callable[[*Arguments], tuple[R, Aux]],
    *primals: *Arguments,
    has_aux: Literal[True],
    reduce_axes: Sequence[Any] = (),
) -> tuple[R, Callable[[R], tuple[*Arguments]], Aux]: ...
@overload
def vjp(fun: Callable[..., Any], *primals: Any, has_aux: bool, reduce_axes: Sequence[Any] = ()) -> Any: ...
@boundary
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
        It is a pytree: compiled and mapped functions can take and give it. The values that it needs are in its lists
        `args_res`, of the arguments, and `opaque_residuals`, and can be replaced there.

    Raises:
        ShapeError: in the VJP function, a cotangent that does not have the shape of the result.

    Example:
        >>> import tinyxla as tx
        >>> y, pullback = tx.vjp(tx.numpy.sin, 0.0)
        >>> pullback(1.0)
        (Array(1., dtype=float32, weak_type=True),)
    """
    check_callable("vjp", fun)
    _check_no_axes("vjp", reduce_axes)
    if has_references(primals):
        return _vjp_with_references(fun, primals, has_aux)
    inputs, treedef = _arguments(primals, f"vjp of {name_of(fun)}")
    flat = OfLeaves(fun, treedef, has_aux)
    outputs, flat_pullback = vjp_flat(flat, inputs, scope=JVP, back_scope=TRANSPOSE)

    def typed(cotangents: Sequence[Any]) -> list[Any]:
        pairs = zip(flat_pullback(cotangents), inputs, strict=True)
        return [c if c is None else with_type_of(c, x, is_cotangent=True) for c, x in pairs]

    pullback = Pullback(name_of(fun), typed, (inputs, treedef), (outputs, flat.tree))
    return flat.with_aux(flat.result(outputs), pullback)


def _vjp_with_references(fun: Function, primals: tuple[Any, ...], has_aux: bool) -> Any:
    """`vjp` by the other arguments. In the place of the gradient of a reference stands one that holds zeros."""
    others, references = slotted(primals)
    of_slots = wraps(fun)(lambda *args: fun(*filled(args, references)))
    value, pullback, *aux = vjp(of_slots, *others, has_aux=has_aux)

    def with_references(cotangent: Any) -> Any:
        return filled(pullback(cotangent), [r.like(pytrees.map_tree(zeros_like, r.read())) for r in references])

    return (value, with_references, *aux)


@dataclass(frozen=True)
class NotNeeded:
    """Stands among the residuals of a pullback for an argument whose value it does not need."""


pytrees.register(NotNeeded, lambda _: ((), None), lambda _, children: NotNeeded())


class Pullback:
    """The way back of `vjp`. It is a pytree of the values that it needs: it is recorded when that is asked for."""

    def __init__(self, name: str, flat: Function, inputs: _Leaves, outputs: _Leaves, recorded: Any = None) -> None:
        self.__name__ = name
        self.flat: Function = flat
        self.inputs: _Leaves = inputs
        self.outputs: _Leaves = outputs
        self.recorded: tuple[list[Any], Any] | None = recorded
        self.residuals: tuple[list[Any], list[Any]] | None = None

    def __repr__(self) -> str:
        return f"<vjp of {self.__name__.strip('<>')}>"

    @boundary
    def __call__(self, cotangent: Any, *more: Any) -> Any:
        if more:
            raise ArgumentError(
                f"vjp of {self.__name__}: the pullback takes one argument, the cotangent of the result, but got "
                f"{1 + len(more)}; put those of several results into the container that the function returns."
            )
        if self.residuals is not None:
            captured, rest = self.flatten()
            return Pullback.unflatten(rest, captured)(cotangent)
        typed = _matched("cotangent", cotangent, f"result of {self.__name__}", *self.outputs)
        if state.manual is not None:
            for c, y in zip(typed, self.outputs[0], strict=True):
                if beyond := state.manual.wrong_axes(c, y):
                    raise varies_error(f"vjp of {self.__name__}: the cotangent", c, "a result", beyond)
        return pytrees.unflatten(self.inputs[1], _with_zeros(self.flat(typed), self.inputs[0]))

    def flatten(self) -> tuple[list[Any], Any]:
        """The values that it needs, and what it does with them."""
        if self.recorded is None:
            made, captured, flows = recorded_pullback(self.__name__, self.flat, self.outputs[0])
            described = [
                (tuple(ShapeDtypeStruct(x.shape, x.dtype, weak_type=x.weak_type) for x in leaves), tree)
                for leaves, tree in (self.inputs, self.outputs)
            ]
            number = {id(x): k for k, x in enumerate(captured)}
            places = tuple(number.get(id(x)) for x in self.inputs[0])
            self.recorded = captured, (self.__name__, made, tuple(flows), *described, places)
        if self.residuals is None:
            return self.recorded
        return self._current_residuals(*self.recorded), self.recorded[1]

    @staticmethod
    def unflatten(rest: Any, needed: Iterable[Any]) -> Pullback:
        """The way back by what `flatten` gives."""
        name, made, flows, inputs, outputs, _ = rest
        captured = list(needed)

        def flat(cotangents: list[Any]) -> list[Any]:
            return spread(run(made, [*(c for c in cotangents if c is not None), *captured]), flows)

        return Pullback(name, flat, inputs, outputs, (captured, rest))

    @property
    def args_res(self) -> list[Any]:
        """For each argument its value where the pullback needs it, and `NotNeeded()` elsewhere. What is put in the
        place of a value counts instead of it: so a program may drop an array between the passes, and give it again."""
        return self._residuals()[0]

    @property
    def opaque_residuals(self) -> list[Any]:
        """The other values that the pullback needs; what is put in their places counts, too."""
        return self._residuals()[1]

    def _residuals(self) -> tuple[list[Any], list[Any]]:
        if self.residuals is None:
            captured, rest = self.flatten()
            _, _, _, self.inputs, self.outputs, places = rest
            leaves = [NotNeeded() if k is None else captured[k] for k in places]
            others = [x for k, x in enumerate(captured) if k not in places]
            self.residuals = [*pytrees.unflatten(self.inputs[1], leaves)], others
            # These lists alone hold the values from now on.
            self.recorded = [ShapeDtypeStruct(x.shape, x.dtype, weak_type=x.weak_type) for x in captured], rest
            self.flat = lambda _: None
        return self.residuals

    def _current_residuals(self, described: list[Any], rest: Any) -> list[Any]:
        """The values that it needs, as they are in the lists of residuals now."""
        assert self.residuals is not None
        arguments, others = self.residuals
        places = rest[-1]
        tree = self.inputs[1]
        given: Any = tuple(arguments)
        try:
            leaves = tree.flatten_up_to(given)
        except ValueError:
            raise ArgumentError(
                f"vjp of {self.__name__}: args_res must have the structure of the arguments, "
                f"{pytrees.structure_text(tree)}, but is {arguments!r}."
            ) from None
        given = {k: x for k, x in zip(places, leaves, strict=True) if k is not None}
        rest_of = iter(others)
        now = [given[k] if k in given else next(rest_of) for k in range(len(described))]
        return [self._residual(x, old) for x, old in zip(now, described, strict=True)]

    def _residual(self, given: Any, old: Any) -> Array:
        """A value that stands for one of that shape and type."""
        what = f"vjp of {self.__name__}: a residual"
        found, _ = arrays_of([given], what)
        if [(x.shape, x.dtype) for x in found] != [(old.shape, old.dtype)]:
            texts = ", ".join(str(Shape.of(x)) for x in found) or "None"
            raise ShapeError(f"{what} must be {Shape.of(old)}, as the value that it replaces, but is {texts}.")
        return found[0].with_weak_type(old.weak_type)


pytrees.register(Pullback, Pullback.flatten, Pullback.unflatten)


def recorded_pullback(
    name: str, flat: Function, outputs: Sequence[Any], scalars: dict[int, Any] | None = None
) -> tuple[Computation, list[Any], list[bool]]:
    """A way back as a computation, from the cotangents of floating results and what it captures to those of arguments;
    what it captures; and which arguments have a cotangent. It captures arrays that were there before, known ones, too:
    so other values have the same computation. Constants of it are Python's numbers, and of arrays without axes the
    `scalars`, which the function made, and what the way back makes."""
    flows: list[bool] = []
    new_scalars = {} if scalars is None else scalars
    seeded = [is_inexact(x) for x in outputs]

    def is_residual(x: Array) -> bool:
        return x.ndim > 0 or not (x.weak_type or id(x) in new_scalars)

    def back(*cotangents: Any) -> list[Any]:
        whole = flat(spread(cotangents, seeded))
        flows[:] = [c is not None for c in whole]
        return chosen(whole, flows)

    shapes = [Shape.of(x) for x in chosen(outputs, seeded)]
    what = f"the derivative of {name}"
    made, captured, _ = with_scalar_register(
        new_scalars, lambda: trace(back, shapes, name, what=what, staging=False, captures=is_residual)
    )
    return made, list(captured), flows


def _arguments(args: tuple[Any, ...], what: str) -> tuple[list[Array], pytrees.TreeDef]:
    return arrays_of(args, f"{what}: argument ", lambda: argument_names(args, {}))


def _matched(
    what: str, given: Any, where: str, templates: Sequence[Array], tree: pytrees.TreeDef, strict: bool = False
) -> list[Array | None]:
    """Tangents or cotangents, of the shapes and types of what they belong to; None for what has no derivative, which
    must be a float0 if `strict`."""
    leaves, given_tree = pytrees.flatten(given)
    if not pytrees.alike(given_tree, tree):
        raise ArgumentError(
            f"The {what} must have the structure of the {where}, which is {pytrees.structure_text(tree)} where * "
            f"stands for an array, but it has the structure {pytrees.structure_text(given_tree)}."
        )

    def name(k: int) -> str:
        found = pytrees.leaf_names(given)[k]
        return f" at {found}" if found else ""

    pairs = enumerate(zip(leaves, templates, strict=True))
    return [_matched_leaf(what, x, where, like, functools.partial(name, k), strict) for k, (x, like) in pairs]


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
        exact = isinstance(leaf, Array) and not element_type(x.dtype).is_inexact  # a number that Python has is any
        if x.weak_type and inexact and not exact and (x.dtype.kind != "c" or template.dtype.kind == "c"):
            return elementwise.convert(x, new_element_type=element_type(template.dtype))
    if not inexact:
        raise DTypeError(
            f"The {what}{name()} must have the type dtypes.float0, since what it belongs to is {Shape.of(template)}, "
            f"by which there is no derivative, but is {given}; pass numpy.zeros({template.shape}, dtypes.float0)."
        )
    raise DTypeError(
        f"The {what}{name()} must have the type of the {where}, {Shape.of(template)}, but is {given}; convert it with "
        f"astype({template.dtype.name!r})."
    )


def varies_error(what: str, x: Any, template: str, axes: Iterable[Hashable]) -> DifferentiationError:
    """A tangent or cotangent that devices have different ones of belongs to what all have alike."""
    names = ", ".join(map(repr, sorted(axes, key=str)))
    return DifferentiationError(
        f"{what} {Shape.of(x)} varies along {names}, but belongs to {template} that does not; make that vary by "
        f"lax.pcast(..., ({names},), to='varying'), or sum what varies by lax.psum.",
        state.source,
    )


def _with_zeros(cotangents: Sequence[Any], inputs: Sequence[Array]) -> list[Any]:
    """Derivatives as arrays, as weakly typed as what they belong to; zeros of type float0 where there is none."""
    found: list[Any] = []
    for c, x in zip(cotangents, inputs, strict=True):
        if element_type(x.dtype).is_inexact:
            found.append((varying_like(zeros_like(x), x) if c is None else c).with_weak_type(x.weak_type))
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


@overload
def grad(fun: Unary, argnums: Literal[0] = 0) -> Unary: ...
@overload
def grad(
    fun: Callable[Concatenate[Argument, P], Any],
    argnums: Literal[0] = 0,
    has_aux: Literal[False] = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    reduce_axes: Sequence[Any] = (),
) -> Callable[Concatenate[Argument, P], Argument]: ...
@overload
def grad(
    fun: Callable[Concatenate[Argument, P], tuple[Any, Aux]],
    argnums: Literal[0] = 0,
    *,
    has_aux: Literal[True],
    holomorphic: bool = False,
    allow_int: bool = False,
    reduce_axes: Sequence[Any] = (),
) -> Callable[Concatenate[Argument, P], tuple[Argument, Aux]]: ...
@overload
def grad(
    fun: Callable[P, Any],
    argnums: int | Sequence[int],
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    reduce_axes: Sequence[Any] = (),
) -> Callable[P, Any]: ...
@boundary
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

    Outside `jit` the function may look at values: `if`, `while` and `print(x)` work as in plain Python. A Python number
    has no derivative, so `float(x)` and `math.sin(x)` are errors; `float(lax.stop_gradient(x))` is a constant.

    Raises:
        DifferentiationError: a result that is not one floating-point number, or an argument of integers.
        ArgumentError: `argnums` that the call does not have.

    Example:
        >>> import tinyxla as tx
        >>> tx.grad(lambda x: x**3)(2.0)
        Array(12., dtype=float32, weak_type=True)
    """
    both = _value_and_grad("grad", fun, argnums, has_aux, holomorphic, allow_int, reduce_axes)

    @transformed("grad", fun)
    def gradient(*args: Any, **kwargs: Any) -> Any:
        value, found = both(*args, **kwargs)
        return (found, value[1]) if has_aux else found

    return gradient


@overload
def value_and_grad(fun: Unary, argnums: Literal[0] = 0) -> Callable[[Operand], tuple[Array, Array]]: ...
@overload
def value_and_grad(
    fun: Callable[Concatenate[Argument, P], R],
    argnums: Literal[0] = 0,
    has_aux: Literal[False] = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    reduce_axes: Sequence[Any] = (),
) -> Callable[Concatenate[Argument, P], tuple[R, Argument]]: ...
@overload
def value_and_grad(
    fun: Callable[Concatenate[Argument, P], tuple[R, Aux]],
    argnums: Literal[0] = 0,
    *,
    has_aux: Literal[True],
    holomorphic: bool = False,
    allow_int: bool = False,
    reduce_axes: Sequence[Any] = (),
) -> Callable[Concatenate[Argument, P], tuple[tuple[R, Aux], Argument]]: ...
@overload
def value_and_grad(
    fun: Callable[P, R],
    argnums: int | Sequence[int],
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    reduce_axes: Sequence[Any] = (),
) -> Callable[P, tuple[R, Any]]: ...
@boundary
def value_and_grad(
    fun: Function,
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    reduce_axes: Sequence[Any] = (),
) -> Function:
    """The value of a scalar function together with its gradient; arguments as for `grad`.

    Args:
        fun: a function whose result is a scalar.
        argnums: the positions of the arguments by which derivatives are taken: an integer, or a tuple.
        has_aux: whether the function gives a pair (result, auxiliary), of which the second has no derivative.
        holomorphic: whether arguments and results are complex, and the function is holomorphic.
        allow_int: whether arguments may be integers; their derivatives are of type `dtypes.float0`.
        reduce_axes: accepted for compatibility; it must be empty.

    Returns:
        A function that gives `(value, gradient)`, or `((value, auxiliary), gradient)`.

    Raises:
        DifferentiationError: a result that is not one floating-point number, or an argument of integers.
        ArgumentError: `argnums` that the call does not have.

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
    by = Chosen(what, fun, argnums, holomorphic, allow_int)
    _check_no_axes(what, reduce_axes)

    @transformed(what, fun)
    def both(*args: Any, **kwargs: Any) -> Any:
        of_chosen, chosen = by.parted(args, kwargs)
        value, pullback, *aux = vjp(of_chosen, *chosen, has_aux=has_aux)
        _check_scalar(by.what, value, holomorphic)
        gradient = by.only(pullback(ConcreteArray(np.ones((), value.dtype))))
        return ((value, *aux) if has_aux else value), gradient

    return both


class Chosen:
    """What a function is differentiated by: some of its arguments, one or several."""

    def __init__(
        self, what: str, fun: Function, argnums: int | Sequence[int], holomorphic: bool, allow_int: bool = False
    ) -> None:
        check_callable(what, fun)
        self.what, self.function = f"{what} of {name_of(fun)}", fun
        self.numbers = as_integers(argnums, f"{self.what}: argnums")
        self.is_single = not isinstance(argnums, Iterable)
        self.holomorphic, self.allow_int = holomorphic, allow_int
        self.complex_too = what != "jacfwd"  # a complex argument has as many directions as its parts have together

    def parted(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Function, tuple[Any, ...]]:
        """The function of these arguments alone, and these, which must have a derivative."""
        chosen = self.positions(args, kwargs)
        how = (self.holomorphic, self.complex_too, self.allow_int)
        values = tuple(_differentiable(args[n], f"{self.what}: argument ", str(n), *how) for n in chosen)
        return self.partial(chosen, args, kwargs), values

    def positions(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[int]:
        """Their positions in a call."""
        for n in self.numbers:
            if not -len(args) <= n < len(args):
                raise ArgumentError(
                    f"{self.what}: argnums names argument {n}, but the call has {len(args)} positional arguments."
                    + (" Choose another one." if args and not kwargs else " Pass it by position.")
                )
        chosen = [n % len(args) for n in self.numbers]
        if len(set(chosen)) != len(chosen):
            raise ArgumentError(f"{self.what}: argnums must name each argument once, but is {self.numbers}.")
        return chosen

    def partial(self, chosen: list[int], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Function:
        """The function of the arguments at these positions alone."""

        @wraps(self.function)
        def of_chosen(*values: Any) -> Any:
            whole = list(args)
            for n, value in zip(chosen, values, strict=True):
                whole[n] = value
            return self.function(*whole, **kwargs)

        return of_chosen

    def only(self, found: Any) -> Any:
        """What there is for each of them: for one, just that."""
        return found[0] if self.is_single else found


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


def _check_scalar(what: str, value: Any, holomorphic: bool) -> None:
    what = f"{what}: the function must return one "
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


@overload
def elementwise_grad(fun: Unary, argnums: Literal[0] = 0) -> Unary: ...
@overload
def elementwise_grad(
    fun: Callable[Concatenate[Argument, P], Any], argnums: Literal[0] = 0
) -> Callable[Concatenate[Argument, P], Argument]: ...
@overload
def elementwise_grad(fun: Callable[P, Any], argnums: int | Sequence[int]) -> Callable[P, Any]: ...
@boundary
def elementwise_grad(fun: Function, argnums: int | Sequence[int] = 0) -> Function:
    """The derivative of a function that works on each element by itself, at all elements; for any other function the
    gradient of the sum of its results.

    Args:
        fun: a function of pytrees of arrays.
        argnums: the positions of the arguments by which derivatives are taken: an integer, or a tuple.

    Returns:
        A function of the same arguments whose result has the structure of the argument (a tuple for several).

    Raises:
        ArgumentError: what is no function.

    Example:
        >>> import tinyxla as tx
        >>> tx.elementwise_grad(lambda x: x**3)(tx.numpy.array([1.0, 2.0]))
        Array([ 3., 12.], dtype=float32)
    """
    by = Chosen("elementwise_grad", fun, argnums, False)

    @transformed("elementwise_grad", fun)
    def derivative(*args: Any, **kwargs: Any) -> Any:
        of_chosen, chosen = by.parted(args, kwargs)
        value, pullback = vjp(of_chosen, *chosen)
        return by.only(pullback(pytrees.map_tree(lambda x: movement.full(1, x.dtype, x.shape), value)))

    return derivative


# --- forward mode and Jacobians ---------------------------------------------------------------------------------------


@overload
def jvp(
    fun: Callable[..., R], primals: Sequence[Any], tangents: Sequence[Any], has_aux: Literal[False] = False
) -> tuple[R, R]: ...
@overload
def jvp(
    fun: Callable[..., tuple[R, Aux]], primals: Sequence[Any], tangents: Sequence[Any], has_aux: Literal[True]
) -> tuple[R, R, Aux]: ...
@boundary
def jvp(fun: Function, primals: Sequence[Any], tangents: Sequence[Any], has_aux: bool = False) -> Any:
    """The value of a function and its derivative along `tangents`, which have the structure of the arguments `primals`,
    their shapes and types; the tangent of an integer is a zero of type `dtypes.float0`.

    Args:
        fun: a function of pytrees of arrays.
        primals, tangents: tuples of the arguments and of their tangents.
        has_aux: whether the function gives a pair (result, auxiliary), of which the second has no derivative.

    Returns:
        `(result, tangent)`, or `(result, tangent, auxiliary)` with `has_aux`.

    Raises:
        ArgumentError: primals or tangents that are not tuples with an entry for each argument.
        ShapeError: a tangent that does not have the shape of its primal.
        DTypeError: a tangent that does not have the element type of its primal.

    Example:
        >>> import tinyxla as tx
        >>> tx.jvp(tx.numpy.sin, (0.0,), (1.0,))[1]
        Array(1., dtype=float32, weak_type=True)
    """
    check_callable("jvp", fun)
    types = [type(primals).__name__, type(tangents).__name__]
    for name, given in (("primals", primals), ("tangents", tangents)):
        if not isinstance(given, (tuple, list)):
            raise ArgumentError(
                f"jvp of {name_of(fun)}: {name} must be a tuple with an entry for each argument, but got {given!r} "
                f"(primals is a {types[0]}, and tangents a {types[1]})."
            )
    if isinstance(primals, list) != isinstance(tangents, list):
        trees = (pytrees.structure_text(pytrees.flatten(given)[1]) for given in (primals, tangents))
        raise ArgumentError(
            f"jvp of {name_of(fun)}: primals and tangents must be both tuples or both lists, but have the structures "
            f"{' and '.join(trees)} where * stands for an array."
        )
    if has_references(primals):
        return _jvp_with_references(fun, primals, tangents, has_aux)
    inputs, treedef = _arguments(tuple(primals), f"jvp of {name_of(fun)}")
    typed = _matched("tangent", tuple(tangents), f"argument of {name_of(fun)}", inputs, treedef, strict=True)
    flat = OfLeaves(fun, treedef, has_aux, float0=True)
    values, moves = jvp_flat(flat, inputs, typed, JVP)
    return flat.with_aux(flat.result(values), flat.result(_with_zeros(moves, values)))


def _jvp_with_references(fun: Function, primals: Sequence[Any], tangents: Sequence[Any], has_aux: bool) -> Any:
    """The tangent of a reference is one, too: both are left with what the function writes."""
    (given, references), (moves, moving) = slotted(tuple(primals)), slotted(tuple(tangents))
    if pytrees.flatten(given)[1] != pytrees.flatten(moves)[1]:
        raise ArgumentError(f"jvp of {name_of(fun)}: the tangent of a Ref must be a Ref, and one for each.")

    @wraps(fun)
    def of_values(values: Sequence[Any], *args: Any) -> Any:
        own = [r.like(x) for r, x in zip(references, values, strict=True)]
        result = fun(*filled(args, own))
        value, aux = pair_of(result, name_of(fun)) if has_aux else (result, None)
        return (value, [r.read() for r in own]), aux

    inputs, directions = (values_of(references), *given), (values_of(moving), *moves)
    (value, after), (tangent, after_tangents), aux = jvp(of_values, inputs, directions, has_aux=True)
    write_all(references, after)
    write_all(moving, after_tangents)
    return (value, tangent, aux) if has_aux else (value, tangent)


@overload
def jacfwd(fun: Unary, argnums: Literal[0] = 0) -> Unary: ...
@overload
def jacfwd(
    fun: Callable[Concatenate[Argument, P], Array],
    argnums: Literal[0] = 0,
    has_aux: Literal[False] = False,
    holomorphic: bool = False,
) -> Callable[Concatenate[Argument, P], Argument]: ...
@overload
def jacfwd(
    fun: Callable[P, Any],
    argnums: int | Sequence[int],
    has_aux: bool = False,
    holomorphic: bool = False,
) -> Transformed[P]: ...
@overload
def jacfwd(
    fun: Callable[..., Any],
    argnums: Literal[0] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
) -> Any: ...
@boundary
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

    Raises:
        DifferentiationError: an argument of integers.
        ArgumentError: `argnums` that the call does not have.

    Example:
        >>> import tinyxla as tx
        >>> tx.jacfwd(lambda x: x * x)(tx.numpy.array([1.0, 2.0]))
        Array([[2., 0.],
               [0., 4.]], dtype=float32)
    """
    by = Chosen("jacfwd", fun, argnums, holomorphic)

    @transformed("jacfwd", fun)
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        of_chosen, chosen = by.parted(args, kwargs)
        inputs, treedef = arrays_of(chosen, "")

        def push(*directions: Any) -> Any:
            value, tangent, *aux = jvp(of_chosen, chosen, pytrees.unflatten(treedef, directions), has_aux=has_aux)
            if holomorphic:
                _differentiable(value, f"{by.what}: the result", "", holomorphic)
            return pytrees.map_tree(lambda t, y: zeros_like(as_array(y)) if _is_float0(t) else t, tangent, value), *aux

        columns, *aux = vmap(push, out_axes=(-1, None) if has_aux else -1)(*_basis(inputs))

        def in_parts(x: Any) -> Any:
            return by.only(pytrees.unflatten(treedef, _parts(x, x.ndim - 1, inputs)))

        found = pytrees.map_tree(in_parts, columns)
        return (found, *aux) if has_aux else found

    return jacobian


@overload
def jacrev(fun: Unary, argnums: Literal[0] = 0) -> Unary: ...
@overload
def jacrev(
    fun: Callable[Concatenate[Argument, P], Array],
    argnums: Literal[0] = 0,
    has_aux: Literal[False] = False,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Callable[Concatenate[Argument, P], Argument]: ...
@overload
def jacrev(
    fun: Callable[P, Any],
    argnums: int | Sequence[int],
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Transformed[P]: ...
@overload
def jacrev(
    fun: Callable[..., Any],
    argnums: Literal[0] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Any: ...
@boundary
def jacrev(
    fun: Function,
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Function:
    """The Jacobian by reverse mode, one row at a time (batched): cheap for functions with few results.

    Arguments and result are as for `jacfwd`.

    Args:
        fun: a function of pytrees of arrays.
        argnums: the positions of the arguments by which derivatives are taken: an integer, or a tuple.
        has_aux: whether the function gives a pair (result, auxiliary), of which the second has no derivative.
        holomorphic: whether arguments and results are complex, and the function is holomorphic.
        allow_int: whether arguments may be integers; their derivatives are of type `dtypes.float0`.

    Returns:
        A function of the same arguments.

    Raises:
        ArgumentError: what is no function.

    Example:
        >>> import tinyxla as tx
        >>> tx.jacrev(lambda x: x.sum())(tx.numpy.ones(2))
        Array([1., 1.], dtype=float32)
    """
    by = Chosen("jacrev", fun, argnums, holomorphic, allow_int)

    @transformed("jacrev", fun)
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        of_chosen, chosen = by.parted(args, kwargs)
        result, pullback, *aux = vjp(of_chosen, *chosen, has_aux=has_aux)
        outputs, treedef = arrays_of(result, "")
        _differentiable(result, f"{by.what}: the result", "", holomorphic)
        inputs, inner = arrays_of(by.only(chosen), "")
        exact = [not element_type(x.dtype).is_inexact for x in inputs]

        def pull(*seeds: Any) -> list[Any]:
            found, _ = pytrees.flatten(pullback(pytrees.unflatten(treedef, seeds)))
            return [None if none else x for x, none in zip(found, exact, strict=True)]

        rows = vmap(pull)(*_basis(outputs))
        parts = [
            [np.zeros((*y.shape, *x.shape), float0) for y in outputs] if row is None else _parts(row, 0, outputs)
            for x, row in zip(inputs, rows, strict=True)
        ]
        of_outputs = [pytrees.unflatten(inner, [of[k] for of in parts]) for k in range(len(outputs))]
        found = pytrees.unflatten(treedef, of_outputs)
        return (found, *aux) if has_aux else found

    return jacobian


@overload
def hessian(fun: Unary, argnums: Literal[0] = 0) -> Unary: ...
@overload
def hessian(
    fun: Callable[Concatenate[SomeArray, P], Array],
    argnums: Literal[0] = 0,
    has_aux: Literal[False] = False,
    holomorphic: bool = False,
) -> Callable[Concatenate[SomeArray, P], Array]: ...
@overload
def hessian(
    fun: Callable[P, Any],
    argnums: int | Sequence[int],
    has_aux: bool = False,
    holomorphic: bool = False,
) -> Transformed[P]: ...
@overload
def hessian(
    fun: Callable[..., Any],
    argnums: Literal[0] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
) -> Any: ...
@boundary
def hessian(
    fun: Function, argnums: int | Sequence[int] = 0, has_aux: bool = False, holomorphic: bool = False
) -> Function:
    """The matrix of second derivatives of a function, forward over reverse mode; structured as `jacfwd` of `jacrev`.

    Args:
        fun: a function of pytrees of arrays.
        argnums: the positions of the arguments by which derivatives are taken: an integer, or a tuple.
        has_aux: whether the function gives a pair (result, auxiliary), of which the second has no derivative.
        holomorphic: whether arguments and results are complex, and the function is holomorphic.

    Returns:
        A function of the same arguments.

    Raises:
        DifferentiationError: an argument of integers.
        ArgumentError: `argnums` that the call does not have.

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
    start: Any = 0
    found: list[Any] = []
    for x in arrays:
        if is_symbolic(total):
            found.append(_symbolic_units(total, x, start))
            start += x.size
            continue
        unit = np.eye(total, x.size, k=-start, dtype=x.dtype)
        found.append(ConcreteArray(unit.reshape((total, *x.shape))))
        start += x.size
    return found


def _symbolic_units(total: Any, x: Array, start: Any) -> Any:
    """The rows of `_basis` for one array, where sizes are symbolic."""
    whole = Shape(element_type("s32"), (total, x.size))
    row, column = (movement.iota(shape=whole, iota_dimension=d) for d in (0, 1))
    is_unit = ops["compare"](
        row, elementwise.add(column, movement.full(start, np.int32, whole.dimensions)), direction="EQ", type="SIGNED"
    )
    return movement.reshape_to(ops["convert"](is_unit, new_element_type=element_type(x.dtype)), (total, *x.shape))


def _parts(x: Any, axis: int, arrays: Sequence[Array]) -> list[Any]:
    """An axis that runs over all elements of some arrays in pieces: for each of these, with its dimensions there."""
    start = 0
    parts: list[Any] = []
    for y in arrays:
        part = movement.slice_axis(x, axis, start, start + y.size)
        parts.append(movement.reshape_to(part, (*x.shape[:axis], *y.shape, *x.shape[axis + 1 :])))
        start += y.size
    return parts
