"""Derivatives of functions of sparse arrays: by the elements that these specify."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tinyxla import api, numpy as tnp
from tinyxla.api.functions import as_integers, check_callable, name_of
from tinyxla.errors import ArgumentError
from tinyxla.experimental.sparse.bcoo import BCOO
from tinyxla.experimental.sparse.util import JAXSparse
from tinyxla.tree_util import tree_flatten, tree_leaves, tree_unflatten
from tinyxla.util.wrapping import transformed


def _is_sparse(x: Any) -> bool:
    return isinstance(x, JAXSparse)


class _Elements:
    """The arguments of a call that are differentiated by, as the arrays of their elements."""

    def __init__(self, fun: Callable[..., Any], argnums: Any, args: tuple[Any, ...], what: str) -> None:
        self.fun = fun
        self.single = not isinstance(argnums, Sequence)
        self.numbers = tuple(n + len(args) if n < 0 else n for n in as_integers(argnums, f"{what}: argnums"))
        if any(not 0 <= n < len(args) for n in self.numbers):
            raise ArgumentError(f"{what}: argnums {argnums} must name arguments of the {len(args)} in the call.")
        self.args = args
        self.leaves, self.structures = zip(
            *(tree_flatten(args[n], is_leaf=_is_sparse) for n in self.numbers), strict=True
        )

    @property
    def values(self) -> list[list[Any]]:
        return [[x.data if _is_sparse(x) else x for x in leaves] for leaves in self.leaves]

    def __call__(self, values: list[list[Any]], **kwargs: Any) -> Any:
        args = list(self.args)
        for n, leaves, structure, new in zip(self.numbers, self.leaves, self.structures, values, strict=True):
            pairs = zip(leaves, new, strict=True)
            args[n] = tree_unflatten(structure, [_with_data(x, v) if _is_sparse(x) else v for x, v in pairs])
        return self.fun(*args, **kwargs)

    def result(self, found: Sequence[Sequence[Any]]) -> Any:
        """Derivatives by the elements, in the structure of the arguments."""
        made: list[Any] = []
        for leaves, structure, new in zip(self.leaves, self.structures, found, strict=True):
            pairs = zip(leaves, new, strict=True)
            made.append(tree_unflatten(structure, [_mapped(x, v) if _is_sparse(x) else v for x, v in pairs]))
        return made[0] if self.single else tuple(made)


def _with_data(mat: Any, data: Any) -> Any:
    """A sparse array with other elements."""
    children, static = mat.tree_flatten()
    return type(mat).tree_unflatten(static, (data, *children[1:]))


def _mapped(mat: Any, data: Any) -> Any:
    """A sparse array of derivatives, which may have the dimensions of a result before its own."""
    outer = data.shape[: data.ndim - mat.data.ndim]
    if not outer:
        return _with_data(mat, data)
    children, _ = mat.tree_flatten()
    others = [tnp.broadcast_to(x, (*outer, *x.shape)) for x in children[1:]]
    if isinstance(mat, BCOO):
        flags = {"indices_sorted": mat.indices_sorted, "unique_indices": mat.unique_indices}
        return BCOO((data, others[0]), shape=(*outer, *mat.shape), **flags)
    return type(mat).tree_unflatten(mat.tree_flatten()[1], (data, *others))


def value_and_grad(
    fun: Callable[..., Any], argnums: Any = 0, has_aux: bool = False, **options: Any
) -> Callable[..., Any]:
    """`tinyxla.value_and_grad` of a function of sparse arrays: the gradient by one has its indices.

    Args:
        fun: a function of sparse and dense arrays.
        argnums: the positions of the arguments by which derivatives are taken.
        has_aux: whether the function gives a pair (result, auxiliary).
        **options: options of the dense function of the same name.

    Returns:
        A function of the same arguments.

    Raises:
        ArgumentError: what is no function.

    Example:
        >>> from tinyxla.experimental.sparse import BCOO, value_and_grad
        >>> import tinyxla as tx
        >>> m = BCOO.fromdense(tx.numpy.array([0.0, 3.0]))
        >>> value, slope = value_and_grad(lambda m: (m.todense() ** 2).sum())(m)
        >>> slope.todense()
        Array([0., 6.], dtype=float32)
    """
    check_callable("sparse.value_and_grad", fun)

    @transformed("sparse.value_and_grad", fun)
    def function(*args: Any, **kwargs: Any) -> Any:
        elements = _Elements(fun, argnums, args, f"sparse.value_and_grad of {name_of(fun)}")
        value, found = api.value_and_grad(elements, has_aux=has_aux, **options)(elements.values, **kwargs)
        return value, elements.result(found)

    return function


def grad(fun: Callable[..., Any], argnums: Any = 0, has_aux: bool = False, **options: Any) -> Callable[..., Any]:
    """`tinyxla.grad` of a function of sparse arrays: the gradient by one has its indices.

    Args:
        fun: a function of sparse and dense arrays.
        argnums: the positions of the arguments by which derivatives are taken.
        has_aux: whether the function gives a pair (result, auxiliary).
        **options: options of the dense function of the same name.

    Returns:
        A function of the same arguments.

    Raises:
        ArgumentError: what is no function.

    Example:
        >>> from tinyxla.experimental.sparse import BCOO, grad
        >>> import tinyxla as tx
        >>> m = BCOO.fromdense(tx.numpy.array([0.0, 3.0]))
        >>> grad(lambda m: (m.todense() ** 2).sum())(m)
        BCOO(float32[2], nse=1)
    """
    both = value_and_grad(fun, argnums=argnums, has_aux=has_aux, **options)

    @transformed("sparse.grad", fun)
    def function(*args: Any, **kwargs: Any) -> Any:
        value, found = both(*args, **kwargs)
        return (found, value[1]) if has_aux else found

    return function


def _jacobian(transform: Callable[..., Any], name: str, text: str) -> Callable[..., Any]:
    def jacobian_of(
        fun: Callable[..., Any], argnums: Any = 0, has_aux: bool = False, **options: Any
    ) -> Callable[..., Any]:
        check_callable(f"sparse.{name}", fun)

        @transformed(f"sparse.{name}", fun)
        def function(*args: Any, **kwargs: Any) -> Any:
            elements = _Elements(fun, argnums, args, f"sparse.{name} of {name_of(fun)}")
            made = transform(elements, has_aux=has_aux, **options)(elements.values, **kwargs)
            found, aux = made if has_aux else (made, None)
            if not isinstance(found, list) or len(tree_leaves(found)) != len(tree_leaves(elements.values)):
                raise ArgumentError(f"sparse.{name} of {name_of(fun)}: the function must give one array.")
            return (elements.result(found), aux) if has_aux else elements.result(found)

        return function

    jacobian_of.__name__ = jacobian_of.__qualname__ = name
    jacobian_of.__doc__ = text
    return jacobian_of


_TEXT = """`tinyxla.{0}` of a function of sparse arrays that gives one array: by the elements that these specify. The
derivative by a BCOO array is one with further batch dimensions, those of the result.

Args:
    fun: a function of sparse and dense arrays.
    argnums: the positions of the arguments by which derivatives are taken.
    has_aux: whether the function gives a pair (result, auxiliary).
    **options: options of the dense function of the same name.

Returns:
    A function of the same arguments.

Raises:
    ArgumentError: a function that gives more than one array.

>>> import tinyxla.numpy as jnp
>>> from tinyxla.experimental import sparse
>>> m = sparse.BCOO.fromdense(jnp.array([[0.0, 3.0], [4.0, 0.0]]))
>>> sparse.{0}(lambda m: m.todense().sum(0))(m).todense()[1]
Array([[0., 1.],
       [0., 0.]], dtype=float32)
"""
jacfwd = _jacobian(api.jacfwd, "jacfwd", _TEXT.format("jacfwd"))
jacrev = _jacobian(api.jacrev, "jacrev", _TEXT.format("jacrev"))
jacobian = jacrev
