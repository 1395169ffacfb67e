"""Functions whose derivatives the user gives: `custom_jvp`, `custom_vjp`, `custom_gradient`, `closure_convert`.

The function runs for its value; where a derivative is wanted, the user's rule runs in its place. Rules are made of the
same operations as everything else, so that they have derivatives, are batched and compiled. Outside `jit` rules see
concrete values.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, Generic, ParamSpec, Self, cast, overload

import numpy as np

from tinyxla.api.functions import (
    Function,
    ShapeDtypeStruct,
    arrays_of,
    as_integers,
    check_callable,
    name_of,
    parameter_names,
    trace_tree,
)
from tinyxla.errors import ArgumentError, DifferentiationError, DTypeError, MissingRuleError, ShapeError
from tinyxla.ops import elementwise, movement
from tinyxla.shapes import Shape, element_type
from tinyxla.tracing import pytrees
from tinyxla.tracing.array import Array
from tinyxla.tracing.axis_types import with_kinds
from tinyxla.tracing.cache_keys import hashable
from tinyxla.tracing.core import GraphTrace, innermost, state, trace
from tinyxla.tracing.promotion import float0
from tinyxla.tracing.references import Reference, check_aliases, filled, has_references, reference_of, slotted
from tinyxla.tracing.signatures import P, R
from tinyxla.transforms.batch import BatchTracer
from tinyxla.transforms.computations import run
from tinyxla.transforms.custom import CustomJvp, CustomVjp, LinearCall, Values, apply
from tinyxla.transforms.reverse import is_inexact, zeros_like
from tinyxla.transforms.sharding_types import sharding_in_type, with_type_of
from tinyxla.util.binding import bind
from tinyxla.util.tracebacks import boundary
from tinyxla.util.wrapping import Described, transformed, wraps


def _are_numbers(leaves: Sequence[Any]) -> bool:
    return bool(leaves) and all(type(x) in (bool, int, float, complex) for x in leaves)


def _is_integer(x: Any) -> bool:
    return type(x) in (bool, int)


class SymbolicZero:
    """A derivative that is zero whatever the values are; `shape` and `dtype` are those of what it belongs to.

    >>> import numpy as np
    >>> from tinyxla.custom_derivatives import SymbolicZero
    >>> zero = SymbolicZero(np.ones((2, 3), np.float32))
    >>> zero.shape, zero.dtype
    ((2, 3), dtype('float32'))
    """

    def __init__(self, x: Any) -> None:
        self.shape: tuple[int, ...] = tuple(x.shape)
        self.dtype: Any = x.dtype

    @property
    def aval(self) -> ShapeDtypeStruct:
        """The shape and dtype."""
        return ShapeDtypeStruct(self.shape, self.dtype)

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    def instantiate(self) -> Any:
        """An array of zeros.

        Returns:
            An array of its shape and dtype.

        >>> import numpy as np
        >>> from tinyxla.custom_derivatives import SymbolicZero
        >>> SymbolicZero(np.float32([1, 2])).instantiate()
        Array([0., 0.], dtype=float32)
        """
        return movement.full(0, self.dtype, self.shape)

    def __repr__(self) -> str:
        return f"SymbolicZero({Shape.of(self)})"


class CustomVJPPrimal:
    """An argument of a forward rule with `symbolic_zeros`: its `value`, and whether a derivative by it is wanted.

    >>> import tinyxla
    >>> @tinyxla.custom_vjp
    ... def product(x, y):
    ...     return x * y
    >>> def forward(x, y):
    ...     print(x.perturbed, y.perturbed)
    ...     return x.value * y.value, y.value
    >>> product.defvjp(forward, lambda y, g: (g * y, None), symbolic_zeros=True)
    >>> tinyxla.grad(product)(2.0, 3.0)
    True False
    Array(3., dtype=float32, weak_type=True)
    """

    def __init__(self, value: Any, perturbed: bool) -> None:
        self.value = value
        self.perturbed = perturbed


Rest = ParamSpec("Rest")  # the parameters of a method but the first


class CustomFunction(Described, Generic[P, R]):
    """A function with a rule of its own, called with some arguments that the rule is about and others that are just
    handed on."""

    what: str
    _setter: str  # the method that sets the rule
    _hands_tracers_on = False  # whether tracers of vmap may be among the arguments that are just handed on
    _keeps_numbers = True  # outside of transformations the function gets numbers of Python as they are

    def __init__(
        self, fun: Callable[P, R], nondiff_argnums: Sequence[int] = (), nondiff_argnames: str | Sequence[str] = ()
    ) -> None:
        check_callable(self.what, fun)
        wraps(fun)(self)
        self.__name__: str = getattr(fun, "__name__", type(fun).__name__)
        self.fun = fun
        self.describe(self.what, fun)
        self._rules: tuple[Function, ...] = ()
        self._symbolic = False  # whether rules are given `SymbolicZero` objects
        try:
            self._signature = inspect.signature(fun)
        except (TypeError, ValueError):
            self._signature = None
        names = (nondiff_argnames,) if isinstance(nondiff_argnames, str) else tuple(nondiff_argnames)
        parameters = list(self._signature.parameters) if self._signature else []
        for name in names:
            if name not in parameters:
                raise ArgumentError(f"{self}: nondiff_argnames has {name!r}, but there is no such parameter.")
        numbers = as_integers(nondiff_argnums, f"{self}: nondiff_argnums")
        self._fixed = tuple(sorted({*numbers, *map(parameters.index, names)}))

    def __str__(self) -> str:
        return f"{self.what} of {self.__name__}"

    @overload
    def __get__(self, instance: None, owner: Any = None) -> Self: ...
    @overload
    def __get__(
        self: CustomFunction[Concatenate[Any, Rest], R], instance: object, owner: Any = None
    ) -> Callable[Rest, R]: ...
    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __getattr__(self, name: str) -> Any:
        """The methods that set rules of another kind are those of the function, if it has rules itself."""
        if name in ("defjvp", "defjvps", "defvjp", "def_vmap") and isinstance(vars(self).get("fun"), CustomFunction):
            return getattr(self.fun, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """All arguments by position, with defaults."""
        if self._signature is None:
            if kwargs:
                raise ArgumentError(f"{self}: pass arguments by position, since its parameters are not known by name.")
            return args
        bound = bind(str(self), self._signature, args, kwargs)
        bound.apply_defaults()
        by_name = [
            name for name in bound.kwargs if name in kwargs
        ]  # others have their defaults, as by functools.partial
        if by_name:
            raise ArgumentError(
                f"{self}: the function must take its arguments by position, since rules do, but {by_name} "
                "can only be passed by name; bind them by functools.partial or make them positional."
            )
        return bound.args

    def _parts(self, args: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...], tuple[int, ...]]:
        """Arguments that are handed on, the others, and the places of the first."""
        fixed = tuple(sorted({n % len(args) if -len(args) <= n < len(args) else n for n in self._fixed}))
        if fixed and fixed[-1] >= len(args):
            raise ArgumentError(f"{self}: nondiff_argnums has {fixed[-1]}, but the call has {len(args)} arguments.")
        return (tuple(args[n] for n in fixed), tuple(x for n, x in enumerate(args) if n not in fixed), fixed)

    @boundary
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        handed_on, others, fixed = self._parts(self._arguments(args, kwargs))
        if not self._rules:
            raise MissingRuleError(f"{self} has no rule; define one with {self.__name__}.{self._setter}.")
        if self._keeps_numbers and state.depth == 0:  # outside of all transformations
            numbers = pytrees.leaves(others)
            if _are_numbers(numbers):
                return self.fun(*args, **kwargs)
        references: list[Reference] = []
        if has_references(others):
            check_aliases(f"{self}", others, lambda: parameter_names(self.fun, others, {}))
            others, references = slotted(others)
            Reference.in_rules = True
        leaves, tree = arrays_of(others, f"{self}: argument ")
        traced = _Traced.among(handed_on) if self._hands_tracers_on else _Traced(handed_on)
        integers = {k: x for k, x in enumerate(pytrees.leaves(others)) if _is_integer(x)}
        leaves = [*leaves, *traced.values]
        if integers and isinstance(innermost(leaves), GraphTrace):
            integers = {}
        call = BoundCall(self, traced, fixed, tree, references, integers)
        outputs = apply(self._rule(call, leaves), *leaves)
        return pytrees.unflatten(call.result_tree, outputs)

    def _rule(self, call: BoundCall, leaves: Values) -> Any:
        """What a call is for transformations."""
        raise NotImplementedError


class _Traced:
    """Arguments that are just handed on, of which some leaves are tracers of `vmap`: these are operands of the call, by
    which there are no derivatives. Else `vmap` would know nothing of the call, where no other argument is mapped."""

    def __init__(self, arguments: tuple[Any, ...], places: Sequence[int] = ()) -> None:
        self._leaves, self._tree = pytrees.flatten_shown(arguments if places else ())
        self._arguments = arguments
        self._places = places
        self.values = [self._leaves[k] for k in places]
        self.key = tuple(map(hashable, self.filled([None] * len(places))))

    @classmethod
    def among(cls, arguments: tuple[Any, ...]) -> _Traced:
        leaves = pytrees.flatten_shown(arguments)[0]
        return cls(arguments, [k for k, x in enumerate(leaves) if isinstance(x, BatchTracer)])

    def filled(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """The arguments with these values in the place of the tracers."""
        if not self._places:
            return self._arguments
        leaves = list(self._leaves)
        for k, x in zip(self._places, values, strict=True):
            leaves[k] = x
        return pytrees.unflatten(self._tree, leaves)


def _whole(fixed: tuple[int, ...], handed_on: Sequence[Any], others: Sequence[Any]) -> list[Any]:
    """All arguments, in the function's order, where those at `fixed` are handed on."""
    found = list(others)
    for n, x in zip(fixed, handed_on, strict=True):
        found.insert(n, x)
    return found


class BoundCall:
    """One call: functions of pytrees as functions of leaves."""

    result_tree: pytrees.TreeDef  # known when the function or a rule has run
    expected: tuple[pytrees.TreeDef, list[Shape]] | None = None  # the function's result, if it has run

    def __init__(
        self,
        of: CustomFunction[..., Any],
        traced: _Traced,
        fixed: tuple[int, ...],
        tree: pytrees.TreeDef,
        references: Sequence[Reference],
        integers: dict[int, int],
    ) -> None:
        self.of = of
        self.traced = traced
        self.fixed = fixed
        self.tree = tree
        self.references = references  # among the other arguments, which have slots in their places
        self.integers = integers  # of Python, by their number among the leaves: functions may take them for sizes
        self.key = (of, tree, traced.key, tuple(id(r.target) for r in references), tuple(integers.items()))

    def parted(self, values: Sequence[Any]) -> tuple[tuple[Any, ...], Sequence[Any]]:
        """The arguments that are handed on, and the leaves of the others, for operands."""
        own = len(values) - len(self.traced.values)
        return self.traced.filled(values[own:]), values[:own]

    def others(self, own: Sequence[Any]) -> Any:
        """The arguments that are not handed on, of these leaves, with integers of Python as they were given."""
        return pytrees.unflatten(self.tree, [self.integers.get(k, x) for k, x in enumerate(own)])

    def whole(self, handed_on: tuple[Any, ...], others: Sequence[Any]) -> list[Any]:
        """All arguments, in the function's order."""
        return _whole(self.fixed, handed_on, filled(others, self.references) if self.references else others)

    def function(self, *leaves: Any) -> list[Array]:
        handed_on, own = self.parted(leaves)
        found = self.outputs(self.of.fun(*self.whole(handed_on, self.others(own))))
        self.expected = self.result_tree, [Shape.of(x) for x in found]
        return found

    def outputs_of_rule(self, what: str, result: Any) -> list[Array]:
        """The leaves of the result that a rule gives; an error if it is not like the function's."""
        found = self.outputs(result)
        shapes = [Shape.of(x) for x in found]
        if self.expected is not None and (self.result_tree, shapes) != self.expected:
            kind = "structure" if self.result_tree != self.expected[0] else "shapes and types"
            given, wanted = pytrees.unflatten(self.result_tree, shapes), pytrees.unflatten(*self.expected)
            raise ShapeError(
                f"{self.of}: {what} must give the function's result first, of the {kind} {wanted}, but gives {given}."
            )
        return found

    def check_references(self, what: str, residuals: Any) -> None:
        """An error for a reference among residuals that is no argument."""
        for name, x in zip(pytrees.leaf_names(residuals), pytrees.leaves(residuals), strict=True):
            if reference_of(x) is not None and not any(x is r.target for r in self.references):
                raise ArgumentError(
                    f"{self.of}: the residuals{name} of {what} have a Ref that is no argument; give it as one, or the "
                    "array, ref[...]."
                )

    def structure(self, shapes: Sequence[Shape], weak: Sequence[bool]) -> pytrees.TreeDef:
        """That of the function's result, for arguments with leaves of these shapes."""
        trace(self.function, shapes, str(self.of), weak)
        return self.result_tree

    def outputs(self, result: Any) -> list[Array]:
        """The leaves of a result."""
        found, self.result_tree = arrays_of(result, f"{self.of}: the result")
        return found

    def derivatives(self, what: str, given: Any, tree: pytrees.TreeDef, templates: Values) -> list[Any]:
        """The leaves of a tangent or cotangent that a rule gives for `templates`, in their types; None for zero."""
        leaves, found = pytrees.flatten(given, is_leaf=_is_zero)
        if found != tree:
            try:
                leaves = pytrees.broadcast_prefix(given, pytrees.unflatten(tree, templates), what)
            except ArgumentError:
                raise DifferentiationError(
                    f"{self.of}: {what} must have the structure {pytrees.structure_text(tree)}, where * stands for an "
                    f"array, but has the structure {pytrees.structure_text(pytrees.flatten(given)[1])}."
                ) from None

        def named(k: int) -> str:
            return f"{self.of}: {what}{pytrees.leaf_names(pytrees.unflatten(tree, templates))[k]}"

        return [self._typed(lambda k=k: named(k), x, templates[k]) for k, x in enumerate(leaves)]

    def _typed(self, what: Callable[[], str], x: Any, template: Any) -> Any:
        if isinstance(x, SymbolicZero) and x.shape != template.shape:
            raise ShapeError(
                f"{what()} must have the shape of what it belongs to, {Shape.of(template)}, but is a {x!r}; give None "
                "for zero."
            )
        if _is_zero(x) or not is_inexact(template) or getattr(x, "dtype", None) == float0:
            return None
        (value,), _ = arrays_of(x, what())
        if value.shape != template.shape:
            raise ShapeError(
                f"{what()} must have the shape of what it belongs to, {Shape.of(template)}, but is {Shape.of(value)}."
            )
        if value.dtype != template.dtype:
            if not is_inexact(value) and not value.weak_type:
                raise DTypeError(
                    f"{what()} must have the type of what it belongs to, {Shape.of(template)}, but is "
                    f"{Shape.of(value)}; convert it with astype({template.dtype.name!r})."
                )
            return elementwise.convert(value, new_element_type=element_type(template.dtype))
        return value


def _described(values: Values) -> list[ShapeDtypeStruct]:
    return [ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding_in_type(x)) for x in values]


def _pair(what: str, names: str, given: Any, fits: Callable[[Any], bool] = lambda pair: True) -> Any:
    """What a rule gives, if it is a pair."""
    if not isinstance(given, (tuple, list)) or len(given) != 2 or not fits(given):
        raise DifferentiationError(f"{what} must give a pair {names}, but gives {given!r}.")
    return given


def _is_zero(x: Any) -> bool:
    return x is None or isinstance(x, SymbolicZero)


def instantiated(derivative: Any, x: Any, symbolic: bool) -> Any:
    """A tangent or cotangent as a rule is given it: zeros are arrays unless it takes them as symbolic ones."""
    if derivative is not None and is_inexact(x):
        return derivative
    if symbolic:
        return SymbolicZero(x)
    return zeros_like(x) if is_inexact(x) else np.zeros(x.shape, float0)


# --- forward ----------------------------------------------------------------------------------------------------------


class custom_jvp(CustomFunction[P, R]):
    """A function whose derivatives, in both modes, are what a rule says.

    Args:
        fun: of pytrees of arrays.
        nondiff_argnums: positions of arguments that are no arrays, or that there are no derivatives by. The rule gets
            them first.
        nondiff_argnames: the same by name.

    The rule is set by `defjvp` (also a decorator): `jvp(*nondiff, primals, tangents)` takes the other arguments and
    their tangents as tuples and gives `(result, tangent)`. It must be linear in the tangents: reverse mode transposes
    it. Or by `defjvps`, with a function `(tangent, result, *primals)` for each argument (None where the derivative is
    zero), whose results are added.

    Raises:
        DifferentiationError: there is no rule, or it gives something else.

    Example:
        >>> import tinyxla as tx
        >>> @tx.custom_jvp
        ... def log1pexp(x):
        ...     return tx.numpy.log(1 + tx.numpy.exp(x))
        >>> @log1pexp.defjvp
        ... def log1pexp_jvp(primals, tangents):
        ...     (x,), (t,) = primals, tangents
        ...     return log1pexp(x), (1 - 1 / (1 + tx.numpy.exp(x))) * t
        >>> tx.grad(log1pexp)(100.0)
        Array(1., dtype=float32, weak_type=True)
    """

    what = "custom_jvp"
    _setter = "defjvp"
    _hands_tracers_on = True

    def defjvp(self, jvp: Function, symbolic_zeros: bool = False) -> Function:
        """Set the rule. With `symbolic_zeros` tangents that are zero for sure are `SymbolicZero` objects.

        The rule takes a tuple of primals and one of tangents, and gives the result and its tangent.

        Args:
            jvp: the rule.
            symbolic_zeros: whether tangents may be `SymbolicZero` objects.

        Returns:
            The rule.

        Raises:
            ArgumentError: what is no function.

        >>> import tinyxla.numpy as jnp
        >>> import tinyxla
        >>> @tinyxla.custom_jvp
        ... def clipped(x):
        ...     return jnp.clip(x, -1, 1)
        >>> @clipped.defjvp
        ... def rule(primals, tangents):
        ...     return clipped(*primals), tangents[0]  # the gradient passes, also outside
        >>> tinyxla.grad(clipped)(5.0)
        Array(1., dtype=float32, weak_type=True)
        """
        check_callable(f"{self.__name__}.defjvp", jvp)
        self._rules = (jvp,)
        self._symbolic = symbolic_zeros
        return jvp

    def defjvps(self, *jvps: Function | None) -> None:
        """Set the rule by a function for each argument.

        Each takes the argument's tangent, the result and all arguments, and gives its part of the result's tangent;
        None stands for zero.

        Args:
            *jvps: a function for each argument, or None.

        Raises:
            ArgumentError: what is neither a function nor None, or a function with `nondiff_argnums`.
            DifferentiationError: when a derivative is taken, another number of functions than of arguments.

        >>> import tinyxla
        >>> @tinyxla.custom_jvp
        ... def product(x, y):
        ...     return x * y
        >>> product.defjvps(lambda t, ans, x, y: t * y, None)
        >>> tinyxla.grad(product, argnums=(0, 1))(2.0, 3.0)
        (Array(3., dtype=float32, weak_type=True), Array(0., dtype=float32, weak_type=True))
        """
        for rule in jvps:
            if rule is not None:
                check_callable(f"{self.__name__}.defjvps", rule)
        if self._fixed:
            raise ArgumentError(f"{self}: defjvps takes no nondiff_argnums; use defjvp.")

        def jvp(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, Any]:
            result = cast(Any, self)(*primals)
            if len(jvps) != len(tangents):
                raise DifferentiationError(
                    f"{self}: defjvps must get a function, or None, for each of the {len(tangents)} arguments, but got "
                    f"{len(jvps)}."
                )
            parts = [f(t, result, *primals) for f, t in zip(jvps, tangents, strict=True) if f is not None]
            zeros = pytrees.map_tree(zeros_like, result)
            return result, pytrees.map_tree(lambda *x: functools.reduce(elementwise.add, x), *parts) if parts else zeros

        self.defjvp(jvp)

    def _rule(self, call: BoundCall, leaves: Values) -> CustomJvp:
        def push(values: Values, tangents: Values) -> tuple[Values, Values]:
            handed_on, own = call.parted(values)
            if any(t is not None for t in tangents[len(own) :]):
                raise DifferentiationError(
                    f"{self}: a derivative is wanted by an argument of nondiff_argnums, by which there is none; pass "
                    "lax.stop_gradient of it, or let the rule be about it."
                )
            given = [instantiated(t, x, self._symbolic) for t, x in zip(tangents, own, strict=False)]
            pair = self._rules[0](*handed_on, call.others(own), pytrees.unflatten(call.tree, given))
            name = f"the rule {name_of(self._rules[0])}"
            result, tangent = _pair(f"{self}: {name}", "(result, tangent)", pair)
            outputs = call.outputs_of_rule(name, result)
            tangents = call.derivatives(f"the tangent of {name}", tangent, call.result_tree, outputs)
            return outputs, tangents

        looks_at = () if call.traced.values else self._rules
        keys = call.key, self._rules
        return CustomJvp(
            self.__name__, keys, len(leaves), call.function, push, symbolic_zeros=self._symbolic, looks_at=looks_at
        )


# --- reverse ----------------------------------------------------------------------------------------------------------


class custom_vjp(CustomFunction[P, R]):
    """A function whose derivatives are what two rules say: one that keeps what the way back needs, and the way back.

    Args:
        fun: of pytrees of arrays.
        nondiff_argnums: positions of arguments that are no arrays, or that there are no derivatives by.
        nondiff_argnames: the same by name.

    The rules are set by `defvjp(fwd, bwd)`: `fwd(*args)` takes all arguments and gives `(result, residuals)`;
    `bwd(*nondiff, residuals, cotangent)` gives a tuple with a cotangent for each of the other arguments (None for
    zero). It must be linear in the cotangent: forward mode transposes it, unless the option
    `custom_vjp_forward_mode` is "refuse".

    Raises:
        DifferentiationError: there are no rules, or they give something else.

    Example:
        >>> import tinyxla as tx
        >>> @tx.custom_vjp
        ... def clipped(x):
        ...     return x
        >>> clipped.defvjp(lambda x: (x, None), lambda _, g: (tx.numpy.clip(g, -1, 1),))
        >>> tx.grad(lambda x: 5 * clipped(x))(2.0)
        Array(1., dtype=float32, weak_type=True)
    """

    what = "custom_vjp"
    _setter = "defvjp"

    def defvjp(self, fwd: Function, bwd: Function, symbolic_zeros: bool = False, optimize_remat: bool = False) -> None:
        """Set the rules.

        With `symbolic_zeros`, `fwd` gets `CustomVJPPrimal` objects. `optimize_remat` is accepted for JAX's sake: where
        a checkpointed function keeps nothing for the way back, this function runs there and not `fwd`, always.

        Args:
            fwd: takes the arguments, and gives the result and residuals.
            bwd: takes the residuals and the result's cotangent, and gives a tuple of a cotangent for each argument.
            symbolic_zeros: whether `fwd` gets `CustomVJPPrimal` objects.
            optimize_remat: accepted for compatibility.

        Raises:
            ArgumentError: what is no function.

        >>> import tinyxla
        >>> @tinyxla.custom_vjp
        ... def bounded(x):
        ...     return x * x
        >>> bounded.defvjp(lambda x: (x * x, x), lambda x, g: ((2 * x * g).clip(-1, 1),))
        >>> tinyxla.grad(bounded)(5.0)
        Array(1., dtype=float32, weak_type=True)
        """
        for rule in (fwd, bwd):
            check_callable(f"{self.__name__}.defvjp", rule)
        self._rules = (fwd, bwd)
        self._symbolic = symbolic_zeros

    def _rule(self, call: BoundCall, leaves: Values) -> CustomVjp:
        def there(wanted: Sequence[bool], values: Values) -> tuple[Values, Values, Any]:
            given = call.others(values)
            if self._symbolic:
                leaves = zip(pytrees.leaves(given), wanted, strict=True)
                given = pytrees.unflatten(call.tree, [CustomVJPPrimal(*x) for x in leaves])
            handed_on, _ = call.parted(())
            pair = self._rules[0](*call.whole(handed_on, given))
            name = f"the forward rule {name_of(self._rules[0])}"
            result, residuals = _pair(f"{self}: {name}", "(result, residuals)", pair)
            outputs = call.outputs_of_rule(name, result)
            references: list[Reference] = []
            if has_references(residuals):
                call.check_references(name, residuals)
                residuals, references = slotted(residuals)
            kept, tree = pytrees.flatten(residuals)
            sizes = [x if _is_integer(x) else None for x in kept]
            kept = [x for x in kept if not _is_integer(x)]
            return outputs, kept, (tree, sizes, _described(outputs), _described(values), references, state.kinds)

        def back(rest: Any, residuals: Values, cotangents: Values) -> Values:
            """The backward rule: axes are explicit in it that are so around the call, unlike on the rest of the way
            back."""
            return with_kinds(rest[-1], lambda: by_rule(rest, residuals, cotangents))

        def by_rule(rest: Any, residuals: Values, cotangents: Values) -> Values:
            tree, sizes, outputs, values, references, _ = rest
            seeds = [
                instantiated(None if c is None else with_type_of(c, x, is_cotangent=True), x, self._symbolic)
                for c, x in zip(cotangents, outputs, strict=True)
            ]
            arrays = iter(residuals)
            kept = pytrees.unflatten(tree, [next(arrays) if x is None else x for x in sizes])
            kept = filled(kept, references) if references else kept
            found = self._rules[1](*call.parted(())[0], kept, pytrees.unflatten(call.result_tree, seeds))
            if not isinstance(found, (tuple, list)) or len(found) != len(call.tree.children()):
                raise DifferentiationError(
                    f"{self}: the backward rule {name_of(self._rules[1])} must give a tuple with a cotangent for each "
                    f"of the {len(call.tree.children())} arguments that there are derivatives by, but gives {found!r}."
                )
            return call.derivatives("the cotangent", tuple(found), call.tree, values)

        looks_at = () if call.references else (*self._rules, call.traced)
        key = (call.key, self._rules)
        return CustomVjp(self.__name__, key, len(leaves), call.function, there, back, looks_at=looks_at)


def custom_gradient(fun: Callable[P, tuple[R, Any]]) -> Callable[P, R]:
    """A function that gives its result together with how to go back.

    Args:
        fun: of pytrees of arrays; gives `(result, pullback)`, where `pullback(cotangent)` is the cotangent of the
            argument, or a tuple of those of several.

    Returns:
        A function of the same arguments that gives the result alone, with this derivative.

    Raises:
        ArgumentError: what is no function.
        DifferentiationError: a function that does not give such a pair, or a pullback that gives another structure than
            that of the arguments.
        ShapeError: a cotangent of another shape than that of its argument.

    Example:
        >>> import tinyxla as tx
        >>> @tx.custom_gradient
        ... def f(x):
        ...     return x**2, lambda g: 10 * g * x
        >>> tx.grad(f)(3.0)
        Array(30., dtype=float32, weak_type=True)
    """
    check_callable("custom_gradient", fun)

    @custom_vjp
    @wraps(fun)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        return both(*args)[0]

    def both(*args: Any) -> Any:
        what = f"custom_gradient of {wrapped.__name__}: the function"
        return _pair(what, "(result, pullback)", cast(Any, fun)(*args), lambda pair: callable(pair[1]))

    def fwd(*args: Any) -> Any:
        result, pullback = both(*args)
        converted, captured = closure_convert(pullback, result)
        return result, (converted, captured, len(args))

    def bwd(residuals: Any, cotangent: Any) -> Any:
        converted, captured, count = residuals
        found = converted(cotangent, *captured)
        return found if isinstance(found, (tuple, list)) and len(found) == count else (found,)

    wrapped.defvjp(fwd, bwd)
    return wrapped


@boundary
def closure_convert(fun: Function, *example_args: Any) -> tuple[Function, list[Any]]:
    """A function without what it captures from around it, and that: arrays which transformations are at work on.

    Args:
        fun: of pytrees of arrays.
        example_args: arguments of the shapes that it will be called with.

    Returns:
        `(converted, captured)`: `converted(*args, *captured)` is `fun(*args)`, and does not use tracers of a function
        that may have ended by then.

    Raises:
        ArgumentError: what is no function, example arguments that are no arrays or numbers, or the converted function
            is called with arguments of another structure.

    Example:
        >>> import tinyxla as tx
        >>> def f(y):
        ...     g, captured = tx.closure_convert(lambda x: x * y, 1.0)
        ...     return g(2.0, *captured)
        >>> tx.grad(f)(3.0)
        Array(2., dtype=float32, weak_type=True)
    """
    check_callable("closure_convert", fun)
    made, captured, weak, tree = trace_tree(fun, example_args, {})
    _, args_tree = pytrees.flatten(example_args)

    @transformed("closure_convert", fun)
    def converted(*args: Any) -> Any:
        own = len(args) - len(captured)
        leaves, found = arrays_of(args[:own], "The converted function: argument ")
        if found != args_tree:
            raise ArgumentError(
                f"The converted function takes arguments of the structure {pytrees.structure_text(args_tree)} and the "
                f"{len(captured)} captured values, but got {pytrees.structure_text(found)}."
            )
        outputs = run(made, [*leaves, *args[own:]])
        return pytrees.unflatten(tree, [x.with_weak_type(w) for x, w in zip(outputs, weak, strict=True)])

    return converted, list(captured)


# --- linear functions -------------------------------------------------------------------------------------------------


@boundary
def linear_call(fun: Function, fun_transpose: Function, residual_args: Any, linear_args: Any) -> Any:
    """`fun(residual_args, linear_args)`, a function that is linear in its second argument, with a transpose of its own.

    Args:
        fun: of two pytrees of arrays, linear in the second one.
        fun_transpose: its transpose, of the residual arguments and a cotangent of the result; it gives one of the
            linear arguments. The transpose of that is `fun` again.
        residual_args: what the function need not be linear in. There is no derivative by them.
        linear_args: what it is linear in.

    Returns:
        The result of the function.

    Raises:
        DifferentiationError: a derivative by the residual arguments is wanted, or the transpose gives another structure
            than that of the linear arguments.

    Example:
        >>> import tinyxla as tx
        >>> def f(x):
        ...     return tx.custom_derivatives.linear_call(lambda r, x: x / r, lambda r, t: 10 * t / r, 2.0, x)
        >>> f(4.0), tx.grad(f)(4.0)
        (Array(2., dtype=float32, weak_type=True), Array(5., dtype=float32, weak_type=True))
    """
    for given in (fun, fun_transpose):
        check_callable("linear_call", given)
    name = f"linear_call of {getattr(fun, '__name__', type(fun).__name__)}"
    residuals, residual_tree = arrays_of(residual_args, f"{name}: residual_args")
    linear, linear_tree = arrays_of(linear_args, f"{name}: linear_args")
    count = len(residuals)
    shapes = [Shape.of(x) for x in linear]
    trees: list[pytrees.TreeDef] = []

    def forward(*leaves: Any) -> list[Array]:
        given = pytrees.unflatten(residual_tree, leaves[:count]), pytrees.unflatten(linear_tree, leaves[count:])
        outputs, tree = arrays_of(fun(*given), f"{name}: the result")
        trees[:] = [tree]
        return outputs

    def transpose(*leaves: Any) -> list[Array]:
        given = pytrees.unflatten(residual_tree, leaves[:count]), pytrees.unflatten(trees[0], leaves[count:])
        found, tree = arrays_of(fun_transpose(*given), f"{name}: the result of fun_transpose")
        if tree != linear_tree:
            raise DifferentiationError(
                f"{name}: fun_transpose must give the structure of linear_args, "
                f"{pytrees.structure_text(linear_tree)}, but gives {pytrees.structure_text(tree)}."
            )
        for x, shape in zip(found, shapes, strict=True):
            if x.shape != shape.dimensions:
                raise ShapeError(
                    f"{name}: fun_transpose must give {shape} for a linear argument, but gives {Shape.of(x)}."
                )
        return [elementwise.convert(x, new_element_type=s.element_type) for x, s in zip(found, shapes, strict=True)]

    key = (hashable(fun), hashable(fun_transpose), residual_tree, linear_tree)
    rule = LinearCall(name, key, count + len(linear), forward, count, transpose)
    outputs = apply(rule, *residuals, *linear)
    return pytrees.unflatten(trees[0], outputs)


__all__ = [
    "CustomVJPPrimal",
    "SymbolicZero",
    "closure_convert",
    "custom_gradient",
    "custom_jvp",
    "custom_vjp",
    "linear_call",
]


def __dir__() -> list[str]:
    return __all__
