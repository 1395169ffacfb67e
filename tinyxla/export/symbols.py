"""Symbolic dimensions for the shapes of arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tinyxla.api.functions import ShapeDtypeStruct
from tinyxla.errors import ArgumentError
from tinyxla.shapes.symbolic import Scope, is_symbolic
from tinyxla.shapes.symbolic_text import parse_constraint, parse_dimensions
from tinyxla.tracing import pytrees
from tinyxla.tracing.promotion import default_dtype


class SymbolicScope(Scope):
    """Where variables of symbolic dimensions have their meaning: `b` of one scope is another one than `b` of another.

    Args:
        constraints: what is known of the variables beside that they are positive: texts such as "b >= 8", "a <= 2*b"
            or "mod(b, 8) == 0". On the left of "==" stands a variable or an operation, which is replaced by the right
            side.

    Raises:
        ArgumentError: a constraint cannot be read.

    Example:
        >>> from tinyxla import export
        >>> scope = export.SymbolicScope(["b >= 8"])
        >>> (b,) = export.symbolic_shape("b", scope=scope)
        >>> b >= 8
        True
    """

    def __init__(self, constraints: Sequence[str] = ()) -> None:
        super().__init__()
        if isinstance(constraints, str):
            raise ArgumentError(
                f"constraints must be a list of strings, but is {constraints!r}; write [{constraints!r}]."
            )
        for text in constraints:
            parse_constraint(text, self)

    def __repr__(self) -> str:
        return f"SymbolicScope({self.texts})"


def symbolic_shape(
    shape_spec: Any,
    *,
    constraints: Sequence[str] = (),
    scope: SymbolicScope | None = None,
    like: Sequence[int | None] | None = None,
) -> tuple[Any, ...]:
    """Dimensions from a text, in which names are sizes that are not known: "b, 2*c, 4".

    Args:
        shape_spec: dimensions with commas between: sums, differences and products of integers and variables, powers
            (`b^2`), and `floordiv`, `mod`, `max` and `min` of two. `_` stands for the dimension of `like` there, and
            `...` at the end for the others.
        constraints: as for a `SymbolicScope`, which is made of them.
        scope: in which the variables are; by default a new one.
        like: a shape that the dimensions have to fit.

    Returns:
        A tuple of integers and symbolic dimensions. On these `+`, `-`, `*`, `//` and `%` give such again, and
        comparisons truth values; one that depends on the sizes raises `InconclusiveDimensionOperation`.

    Raises:
        ArgumentError: the text cannot be read, does not fit `like`, or there are both a scope and constraints.

    Example:
        >>> from tinyxla import export
        >>> b, c = export.symbolic_shape("b, 2*c")
        >>> (2 * b + c) // 2, b >= 1
        (b + c, True)
    """
    if not isinstance(shape_spec, str):
        raise ArgumentError(f"symbolic_shape takes a text such as 'b, 4', but got {shape_spec!r}.")
    return parse_dimensions(shape_spec, _scope("symbolic_shape", constraints, scope), like, "The shape")


def _scope(what: str, constraints: Sequence[str], scope: SymbolicScope | None) -> SymbolicScope:
    if scope is None:
        return SymbolicScope(constraints)
    if constraints:
        raise ArgumentError(f"{what}: give the constraints to the SymbolicScope that is passed as scope.")
    return scope


def symbolic_args_specs(
    args: Any, shapes_specs: Any, constraints: Sequence[str] = (), scope: SymbolicScope | None = None
) -> Any:
    """The types of arguments with symbolic dimensions in the place of some sizes.

    Args:
        args: a pytree of arrays or `ShapeDtypeStruct`s.
        shapes_specs: a text as `symbolic_shape` takes it for all arrays, or a pytree of them whose leaves may stand
            for whole containers; None leaves a shape as it is.
        constraints, scope: as for `symbolic_shape`.

    Returns:
        A pytree of `ShapeDtypeStruct`s.

    Raises:
        ArgumentError: a text does not fit a shape, or the specs do not fit the arguments.

    Example:
        >>> import tinyxla as tx
        >>> from tinyxla import export
        >>> export.symbolic_args_specs((tx.numpy.ones((3, 4)), tx.numpy.ones(4)), ("b, _", None))
        (ShapeDtypeStruct(shape=(b, 4), dtype=float32), ShapeDtypeStruct(shape=(4,), dtype=float32))
    """
    scope = _scope("symbolic_args_specs", constraints, scope)
    leaves, tree = pytrees.flatten_shown(args)
    specs = pytrees.broadcast_prefix(shapes_specs, args, "symbolic_args_specs: shapes_specs")
    names = pytrees.leaf_names(args)
    found: list[ShapeDtypeStruct] = []
    for leaf, spec, name in zip(leaves, specs, names, strict=True):
        given = ShapeDtypeStruct.like(leaf)
        if isinstance(leaf, np.ndarray):  # as compiled functions take it
            given = given.update(dtype=default_dtype(leaf.dtype))
        text = "..." if spec is None else spec
        if not isinstance(text, str):
            raise ArgumentError(f"symbolic_args_specs: a shape is a text such as 'b, 4', but got {text!r}.")
        found.append(given.update(shape=parse_dimensions(text, scope, given.shape, f"The shape of args{name}")))
    return pytrees.unflatten(tree, found)


def is_symbolic_dim(p: Any) -> bool:
    """Whether a dimension is symbolic.

    Args:
        p: a dimension, from a shape or of `symbolic_shape`.

    Returns:
        False for integers and whatever else.

    Example:
        >>> from tinyxla import export
        >>> [export.is_symbolic_dim(d) for d in export.symbolic_shape("b, 4")]
        [True, False]
    """
    return is_symbolic(p)
