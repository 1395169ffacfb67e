"""Functions that users write: their arguments and results as arrays, and their graphs."""

from __future__ import annotations

import inspect
import math
import reprlib
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tinyxla.errors import ArgumentError, NumberRangeError
from tinyxla.hlo import Computation, Module
from tinyxla.ops import movement
from tinyxla.shapes import KeyType, Shape, element_type
from tinyxla.shapes.symbolic import index
from tinyxla.tracing import pytrees
from tinyxla.tracing.array import Array, converts
from tinyxla.tracing.config import config
from tinyxla.tracing.core import state, trace
from tinyxla.tracing.device import PlacementOf, check_placement
from tinyxla.tracing.float_zeros import is_float0, without_float0
from tinyxla.tracing.meshes import current_mesh
from tinyxla.tracing.promotion import MASKED, as_array, default_dtype
from tinyxla.tracing.references import (
    Reference,
    discovered,
    filled,
    has_references,
    slotted,
    threaded,
    values_of,
)
from tinyxla.tracing.shardings import NamedSharding, PartitionSpec
from tinyxla.transforms import key_arrays
from tinyxla.transforms.key_arrays import KeyArray
from tinyxla.transforms.sharding_types import sharding_in_type
from tinyxla.util.tracebacks import boundary
from tinyxla.util.wrapping import transformed, wraps

Function = Callable[..., Any]


@dataclass(frozen=True, init=False)
class ShapeDtypeStruct:
    """Shape and dtype of an array that need not exist, and where it would be; over an abstract mesh, too. Inside of
    `shard_map`, `vma` are the axes along which it varies among devices.

    Example:
        >>> import tinyxla as tx
        >>> tx.ShapeDtypeStruct((2, 3), "float32").update(dtype="int32")
        ShapeDtypeStruct(shape=(2, 3), dtype=int32)
    """

    shape: tuple[int, ...]
    dtype: Any
    sharding: Any = None
    weak_type: bool = False
    vma: frozenset[Hashable] = frozenset()

    def __new__(cls, *args: Any, **options: Any) -> ShapeDtypeStruct:
        dtype = args[1] if len(args) > 1 else options.get("dtype")
        return object.__new__(_KeysStruct if cls is ShapeDtypeStruct and isinstance(dtype, KeyType) else cls)

    def __init__(
        self,
        shape: Sequence[int],
        dtype: Any,
        *,
        sharding: Any = None,
        weak_type: bool = False,
        vma: Iterable[Hashable] | None = None,
        manual_axis_type: Any = None,
        **ignored: Any,
    ) -> None:
        if not isinstance(shape, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArgumentError(f"The shape of a ShapeDtypeStruct must be a tuple of integers, but is {shape!r}.")
        unknown = ignored.keys() - {"is_ref"}
        if unknown or dtype is None:
            said = f"does not know {sorted(unknown)}" if unknown else "needs a dtype"
            raise ArgumentError(f"ShapeDtypeStruct {said}; give shape, dtype, sharding and weak_type.")
        check_placement("ShapeDtypeStruct: sharding", sharding)
        if isinstance(sharding, PlacementOf):
            sharding.check_placed("ShapeDtypeStruct")
            sharding = sharding.sharding
        if isinstance(sharding, PartitionSpec) and not current_mesh().empty:
            sharding = NamedSharding(current_mesh(), sharding)
        object.__setattr__(self, "shape", as_integers(shape, "The shape of a ShapeDtypeStruct"))
        named = getattr(dtype, "dtype", None)  # of a scalar constructor, such as tinyxla.numpy.float32
        object.__setattr__(self, "dtype", element_type(named if isinstance(named, np.dtype) else dtype).dtype)
        object.__setattr__(self, "sharding", sharding)
        object.__setattr__(self, "weak_type", weak_type)
        varying = getattr(manual_axis_type, "varying", None) if vma is None else vma
        object.__setattr__(self, "vma", frozenset(varying or ()))

    @classmethod
    def like(cls, x: Any) -> ShapeDtypeStruct:
        """The shape, the type and its weakness, and the sharding over a mesh of an array, a number, or anything that
        has them.

        Args:
            x: an array, a number, or anything that has a shape and a dtype.

        Returns:
            A `ShapeDtypeStruct`.

        Raises:
            DTypeError: what has none.

        Example:
            >>> import tinyxla as tx
            >>> tx.ShapeDtypeStruct.like(tx.numpy.ones(3))
            ShapeDtypeStruct(shape=(3,), dtype=float32)
        """
        given = x if hasattr(x, "shape") and hasattr(x, "dtype") else as_array(x)
        sharding = getattr(given, "sharding", None)
        return cls(
            given.shape,
            given.dtype,
            sharding=sharding if isinstance(sharding, NamedSharding) else None,
            weak_type=bool(getattr(given, "weak_type", False)),
            vma=getattr(given, "vma", None),
        )

    def update(self, **changes: Any) -> ShapeDtypeStruct:
        """The same with other fields.

        Args:
            **changes: new values of shape, dtype, sharding, weak_type and vma.

        Returns:
            A `ShapeDtypeStruct`.

        Raises:
            ArgumentError: another field, or what is no shape.
            DTypeError: what is no element type.

        >>> from tinyxla import ShapeDtypeStruct
        >>> ShapeDtypeStruct((2, 3), "float32").update(shape=(4,))
        ShapeDtypeStruct(shape=(4,), dtype=float32)
        """
        names = ("shape", "dtype", "sharding", "weak_type", "vma")
        kept: dict[str, Any] = {name: getattr(self, name) for name in names}
        return ShapeDtypeStruct(**{**kept, **changes})

    def __len__(self) -> int:
        if not self.shape:
            raise ArgumentError("len() of a ShapeDtypeStruct without dimensions; use .size.")
        return self.shape[0]

    def __repr__(self) -> str:
        split = f", sharding={self.sharding}" if isinstance(self.sharding, NamedSharding) else ""
        weak = ", weak_type=True" if self.weak_type else ""
        return f"ShapeDtypeStruct(shape={self.shape}, dtype={self.dtype.name}{split}{weak})"

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)


class _KeysStruct(ShapeDtypeStruct):
    """The structure of an array of random keys: for the library a container of the structure of its words."""

    def flatten(self) -> tuple[tuple[ShapeDtypeStruct], Any]:
        return (ShapeDtypeStruct((*self.shape, self.dtype.words), np.uint32),), self.dtype


def _of_words(dtype: Any, children: Sequence[Any]) -> Any:
    (words,) = children
    if isinstance(words, ShapeDtypeStruct):
        return ShapeDtypeStruct(words.shape[:-1], dtype)
    return key_arrays.of_words(dtype, children)


_KeysStruct.__name__ = ShapeDtypeStruct.__name__
pytrees.register_leaf(KeyArray, lambda keys: ((keys.words,), keys.dtype), _of_words)
pytrees.register_leaf(_KeysStruct, _KeysStruct.flatten, _of_words)


def only_described(leaf: Any) -> bool:
    """Whether an object has a shape and an element type, but no values: it may stand for an array in `eval_shape`."""
    return hasattr(leaf, "shape") and hasattr(leaf, "dtype") and not converts(leaf) and not isinstance(leaf, type)


def as_argument(described: ShapeDtypeStruct) -> ShapeDtypeStruct:
    """The description of what a function gets where there is an array like that: 64 bits are 32 as the options say."""
    if config.explicit_x64_dtypes == "allow" or config.enable_x64 or not isinstance(described.dtype, np.dtype):
        return described
    narrow = default_dtype(described.dtype)
    return described if narrow is described.dtype else described.update(dtype=narrow)


def name_of(function: Function) -> str:
    """How to speak of a function."""
    return getattr(function, "__name__", type(function).__name__)


def check_callable(what: str, function: Any) -> None:
    """An error for what is no function."""
    if not callable(function):
        raise ArgumentError(f"{what} takes a function, but got {function!r} of type {type(function).__name__}.")


Names = Callable[[], Sequence[str]]  # how to speak of the leaves; asked only if there is something to say


def arrays_of(
    tree: Any, what: str, names: Names | None = None, *, float0: bool = False
) -> tuple[list[Array], pytrees.TreeDef]:
    """The leaves of a pytree as arrays; an error that names the leaf which is none. With `float0`, arrays of that
    element type are parts of the structure."""
    leaves, treedef = pytrees.flatten(tree)
    arrays: list[Array] = []
    for k, leaf in enumerate(leaves):
        try:
            arrays.append(as_array(leaf))
        except NumberRangeError:
            raise
        except TypeError:
            if float0 and is_float0(leaf):
                return arrays_of(without_float0(tree), what, names)
            found = names() if names else [f" at {name}" if name else "" for name in pytrees.leaf_names(tree)]
            raise ArgumentError(f"{what}{found[k]} {no_array(leaf)}.") from None
    return arrays, treedef


def no_array(leaf: Any) -> str:
    """What is wrong with a leaf that is no array."""
    if isinstance(leaf, Reference):
        made = f", made at {leaf.source}" if leaf.source else ""
        return f"is a Ref{made}, which is not an array; read it with ref[...]"
    if isinstance(leaf, np.ndarray) and isinstance(leaf, np.ma.MaskedArray):
        return f"is {MASKED}"
    dtype = getattr(leaf, "dtype", None)
    if isinstance(dtype, np.dtype) and hasattr(leaf, "shape"):
        return f"has the element type {dtype}, which arrays cannot have"
    kind = type(leaf)
    way = "" if kind.__module__ == "builtins" else " (tree_util.register_dataclass makes a class a container of arrays)"
    return f"is {reprlib.repr(leaf)} of type {kind.__name__}, which is not an array or a number{way}"


def argument_names(args: Sequence[Any], kwargs: dict[str, Any]) -> list[str]:
    """How to speak of each leaf among the arguments: `0['w'][1]`, `scale`."""
    given = [*enumerate(args), *sorted(kwargs.items())]
    return [f"{where}{name}" for where, x in given for name in pytrees.leaf_names(x)]


def parameter_names(function: Function, args: Sequence[Any], kwargs: dict[str, Any]) -> list[str]:
    """How the function itself speaks of each leaf among its arguments: `x`, `pair[0]`, `args[1]`. Where it is called
    with some of its arguments known, its attribute `free` has the positions of the others; None: they are unknown."""
    free = getattr(function, "free", range(len(args)))
    if free is None:
        return []
    try:
        parameters = inspect.signature(inspect.unwrap(function)).parameters.values()
    except (TypeError, ValueError):
        return argument_names(args, kwargs)
    kinds = {p.kind: p.name for p in parameters}
    positional = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    known = {p.name for p in parameters}

    def at(n: int) -> str:
        rest = kinds.get(inspect.Parameter.VAR_POSITIONAL, "args")
        return positional[n] if n < len(positional) else f"{rest}[{n - len(positional)}]"

    def named(name: str) -> str:
        return name if name in known else f"{kinds.get(inspect.Parameter.VAR_KEYWORD, 'kwargs')}[{name!r}]"

    given = [(at(n), x) for n, x in zip(free, args, strict=True)]
    given += [(named(name), x) for name, x in sorted(kwargs.items())]
    return [f"{where}{name}" for where, x in given for name in pytrees.leaf_names(x)]


def as_integers(given: int | Iterable[int], what: str) -> tuple[int, ...]:
    """One integer, or several, as a tuple."""
    try:
        return tuple(map(index, given if isinstance(given, Iterable) else (given,)))
    except TypeError:
        raise ArgumentError(f"{what} must be an integer or a tuple of integers, but is {given!r}.") from None


def pair_of(result: Any, name: str) -> tuple[Any, Any]:
    """The result and the auxiliary one of a function that must return both."""
    if not isinstance(result, tuple) or len(result) != 2:
        shown = f"the array {Shape.of(result)}" if isinstance(result, Array) else reprlib.repr(result)
        raise ArgumentError(
            f"With has_aux=True {name} must return a pair (result, auxiliary), but it returned {shown}."
        )
    return result


def lowered(aux: Any) -> Any:
    """Auxiliary results without the tracers of a differentiation that has ended."""

    def lower(x: Any) -> Any:
        while isinstance(value := getattr(x, "carried", None), Array) and not x.owner.active:
            x = value
        return x

    return pytrees.map_tree(lower, aux)


class OfLeaves:
    """A function of pytrees as one of their leaves, which gives those of its result. That had the structure `tree` in
    the last call, and beside it, with `has_aux`, there was `aux`."""

    tree: pytrees.TreeDef
    aux: Any = None

    def __init__(
        self,
        function: Function,
        structure: pytrees.TreeDef,
        has_aux: bool = False,
        named: bool = False,
        float0: bool = False,
    ) -> None:
        self.__wrapped__ = function  # which errors name
        self.float0 = float0  # whether the result may have leaves of this element type
        self.structure = structure  # of the arguments, or with `named` of `(args, kwargs)`
        self.has_aux = has_aux
        self.named = named

    def __call__(self, *leaves: Any) -> list[Array]:
        given = pytrees.unflatten(self.structure, leaves)
        args, kwargs = given if self.named else (given, {})
        result = self.__wrapped__(*args, **kwargs)
        if self.has_aux:
            result, self.aux = pair_of(result, name_of(self.__wrapped__))
        outputs, self.tree = arrays_of(result, f"The result of {name_of(self.__wrapped__)}", float0=self.float0)
        return outputs

    def result(self, leaves: Iterable[Any]) -> Any:
        """Values for the leaves of the last call's result, in its structure."""
        return pytrees.unflatten(self.tree, list(leaves))

    def with_aux(self, *values: Any) -> Any:
        """Values, and what was beside the result, if there is such."""
        return (*values, lowered(self.aux)) if self.has_aux else values


@boundary
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

    Raises:
        ArgumentError: what is no function.

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
    numbers = as_integers(static_argnums, f"make_graph of {name_of(fun)}: static_argnums")

    @transformed("make_graph", fun)
    def graph(*args: Any, **kwargs: Any) -> Any:
        held = {n % len(args): args[n % len(args)] for n in numbers if -len(args) <= n < len(args)}

        @wraps(fun)
        def of_others(*others: Any, **kwargs: Any) -> Any:
            values = iter(others)
            return fun(*[held[n] if n in held else next(values) for n in range(len(args))], **kwargs)

        others = tuple(x for n, x in enumerate(args) if n not in held)
        made, _, weak, tree = trace_tree(of_others if held else fun, others, kwargs)
        module = Module(name_of(fun), made)
        return (module, shapes_of(made, weak, tree)) if return_shape else module

    return graph


def shapes_of(made: Computation, weak: Sequence[bool], tree: pytrees.TreeDef) -> Any:
    """The results of a computation as `ShapeDtypeStruct`s."""
    shapes = [x.array_shape for x in made.outputs]
    found = [ShapeDtypeStruct(x.dimensions, x.dtype, weak_type=w) for x, w in zip(shapes, weak, strict=True)]
    return pytrees.unflatten(tree, found)


def trace_tree(
    function: Function,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    captures: Callable[[Array], bool] | None = None,
    names: Names | None = None,
) -> tuple[Any, Any, list[bool], Any]:
    """The computation of a function on pytrees: it, what it captured, which results are weak, and their structure.
    Concrete arrays are constants unless `captures` says that they are captured. Errors speak of the arguments' leaves
    by `names`."""
    leaves, treedef = pytrees.flatten((args, kwargs))
    if any(map(is_float0, leaves)):
        leaves, treedef = pytrees.flatten(without_float0((args, kwargs)))
    for k, leaf in enumerate(leaves):
        if isinstance(leaf, ShapeDtypeStruct):
            leaves[k] = as_argument(leaf)
        elif not isinstance(leaf, Array):
            if only_described(leaf):
                leaves[k] = as_argument(ShapeDtypeStruct.like(leaf))
                continue
            what = f"{name_of(function)}: argument "
            (leaves[k],), _ = arrays_of(leaf, what, lambda k=k: argument_names(args, kwargs)[k:])
    shapes = [Shape(element_type(x.dtype), tuple(x.shape)) for x in leaves]
    flat = OfLeaves(function, treedef, named=True, float0=True)
    weak = [x.weak_type for x in leaves]
    what = f"the traced function {name_of(function)}"
    made, captured, weak_results = trace(
        flat, shapes, name_of(function), weak, what, values=leaves, captures=captures, names=names
    )
    return made, captured, weak_results, flat.tree


@boundary
def eval_shape(fun: Function, *args: Any, **kwargs: Any) -> Any:
    """The shapes and dtypes of a function's result, as `ShapeDtypeStruct`s, without computing it. Arguments and leaves
    of the result may be such structures themselves.

    Args:
        fun: a function of pytrees of arrays.
        *args, **kwargs: its arguments, or `ShapeDtypeStruct`s.

    Returns:
        A pytree of `ShapeDtypeStruct`s; those of results that are split along explicit axes say so.

    Raises:
        ArgumentError: an argument that is no array, number, or pytree of them.

    Example:
        >>> import tinyxla as tx
        >>> tx.eval_shape(lambda x: x @ x, tx.ShapeDtypeStruct((2, 2), "float32")).shape
        (2, 2)
    """
    check_callable("eval_shape", fun)
    shardings: list[NamedSharding | None] = []

    @wraps(fun)
    def of_arrays(*args: Any, **kwargs: Any) -> Any:
        result = pytrees.map_tree(_zeros_of_struct, fun(*args, **kwargs))
        shardings[:] = map(sharding_in_type, pytrees.leaves(result))
        return result

    (given, named), passed = slotted((args, kwargs)) if has_references((args, kwargs)) else ((args, kwargs), [])

    def of_given(*args: Any, **kwargs: Any) -> Any:
        return of_arrays(*filled(args, passed), **filled(kwargs, passed))

    def run(outer: list[Reference]) -> Any:
        """References have their values, and what the function writes is dropped."""
        references = [*passed, *outer]
        of_values = threaded(of_given, references)
        values = values_of(references)
        traced = wraps(fun)(lambda *args, **kwargs: of_values(values, *args, **kwargs)[0])
        made, captured, weak, tree = trace_tree(traced if references else of_arrays, given, named)
        found = shapes_of(made, weak, tree)
        if state.manual is None:
            return found
        axes = state.manual.outputs_vary(made, [*pytrees.leaves((given, named)), *captured])
        typed = [x.update(vma=varies) for x, varies in zip(pytrees.leaves(found), axes, strict=True)]
        return pytrees.unflatten(tree, typed)

    found = discovered(run)
    return _with_types(found, shardings) if any(x is not None for x in shardings) else found


def _with_types(structs: Any, shardings: Sequence[NamedSharding | None]) -> Any:
    """Descriptions of arrays with their shardings along explicit axes, over a mesh without devices."""
    leaves, tree = pytrees.flatten(structs)
    typed = [
        x if layout is None else x.update(sharding=NamedSharding(layout.mesh.abstract_mesh, layout.spec))
        for x, layout in zip(leaves, shardings, strict=True)
    ]
    return pytrees.unflatten(tree, typed)


def _zeros_of_struct(x: Any) -> Any:
    """An array of the shape and type that a `ShapeDtypeStruct` says; anything else as it is."""
    if not isinstance(x, ShapeDtypeStruct):
        return x
    zeros: Any = movement.full(0, x.dtype, x.shape)
    return zeros.with_weak_type(x.weak_type)


def typeof(x: Any) -> ShapeDtypeStruct:
    """The shape and element type of an array, a tracer or a number; and how it is split along explicit axes.

    Args:
        x: an array or a number.

    Returns:
        The type: a `ShapeDtypeStruct`.

    Raises:
        DTypeError: what is no array or number.

    Example:
        >>> import tinyxla as tx
        >>> tx.typeof(tx.numpy.ones((2, 3)))
        ShapeDtypeStruct(shape=(2, 3), dtype=float32)
    """
    array = x if isinstance(x, ShapeDtypeStruct) else as_array(x, "typeof")
    return ShapeDtypeStruct(array.shape, array.dtype, sharding=sharding_in_type(array), weak_type=array.weak_type)
