"""What all sparse formats share: their base class, warnings, and mapping over batch dimensions."""

from __future__ import annotations

import abc
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tinyxla import numpy as tnp
from tinyxla.api import vmap
from tinyxla.errors import ArgumentError, ShapeError
from tinyxla.tracing.array import Array
from tinyxla.tracing.core import Tracer

Shape = tuple[int, ...]


def check_scipy(what: str, mat: Any) -> None:
    if not hasattr(mat, "tocoo"):
        raise ArgumentError(f"{what} takes a matrix of scipy.sparse, but got {type(mat).__name__}.")


def check_format(what: str, kind: type, mat: Any) -> None:
    if not isinstance(mat, kind):
        raise ArgumentError(f"{what} takes a {kind.__name__} array, but got {type(mat).__name__}.")


class SparseEfficiencyError(ValueError):
    """A conversion would store many zeros.

    >>> import tinyxla.numpy as jnp
    >>> from tinyxla.experimental import sparse
    >>> sparse.BCOO.fromdense(jnp.eye(100)).update_layout(n_dense=1)
    Traceback (most recent call last):
        ...
    tinyxla.experimental.sparse.util.SparseEfficiencyError: For matrix of shape (100, 100), increasing n_dense ...
    """


class SparseEfficiencyWarning(UserWarning):
    """A conversion stores many zeros.

    >>> import warnings
    >>> import tinyxla.numpy as jnp
    >>> from tinyxla.experimental import sparse
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     dense_rows = sparse.BCOO.fromdense(jnp.eye(3)).update_layout(n_dense=1, on_inefficient="warn")
    >>> caught[0].category.__name__
    'SparseEfficiencyWarning'
    """


class CuSparseEfficiencyWarning(SparseEfficiencyWarning):
    """Of a library for graphics processors; never given here.

    >>> import warnings
    >>> from tinyxla.experimental.sparse import CuSparseEfficiencyWarning
    >>> warnings.simplefilter("ignore", CuSparseEfficiencyWarning)  # as programs for JAX do
    """


class SparseInfo(NamedTuple):
    """What is static of a sparse array."""

    shape: Shape
    indices_sorted: bool = False
    unique_indices: bool = False


def nfold_vmap(function: Callable[..., Any], count: int) -> Callable[..., Any]:
    """A function mapped over the leading `count` dimensions of its arguments; sizes of 1 broadcast."""
    for _ in range(count):
        function = _broadcasting_vmap(function)
    return function


def _broadcasting_vmap(function: Callable[..., Any]) -> Callable[..., Any]:
    def mapped(*args: Any) -> Any:
        sizes = [x.shape[0] for x in args]
        if all(n == 1 for n in sizes):
            return vmap(function)(*args)
        axes = tuple(None if n == 1 else 0 for n in sizes)
        return vmap(function, in_axes=axes)(*(x[0] if a is None else x for x, a in zip(args, axes, strict=True)))

    return mapped


def canonical_shape(what: str, shape: Sequence[int]) -> Shape:
    try:
        found = tuple(map(operator.index, shape))
    except TypeError:
        raise ShapeError(f"{what}: a shape is a sequence of integers, but got {shape!r}.") from None
    if any(n < 0 for n in found):
        raise ShapeError(f"{what}: sizes must not be negative, but got {found}.")
    return found


class JAXSparse(abc.ABC):
    """Base of the sparse arrays.

    `apply(function, *operands)` is a function of the library on operands that may be sparse; it is set by `transform`.

    >>> import tinyxla.numpy as jnp
    >>> from tinyxla.experimental import sparse
    >>> [isinstance(m, sparse.JAXSparse) for m in (sparse.eye(2), sparse.CSR.fromdense(jnp.eye(2)), jnp.eye(2))]
    [True, True, False]
    """

    apply: ClassVar[Callable[..., Any]]
    data: Any
    shape: Shape
    __hash__ = None  # type: ignore[assignment]
    __array_priority__ = 1000
    __array_ufunc__ = None  # so that NumPy arrays leave operators to this class

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.data.dtype

    @property
    @abc.abstractmethod
    def nse(self) -> int:
        """The number of specified elements, of each batch."""

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def T(self) -> Any:
        return self.transpose()

    @abc.abstractmethod
    def transpose(self, axes: Any = None) -> Any:
        """The array with its axes in another order, by default reversed.

        Args:
            axes: the axes in their new order; None reverses them.

        Returns:
            A sparse array.

        Raises:
            ArgumentError: axes that do not name each dimension once.

        >>> import tinyxla.numpy as jnp
        >>> from tinyxla.experimental import sparse
        >>> sparse.BCOO.fromdense(jnp.ones((2, 3, 4))).transpose((0, 2, 1)).shape
        (2, 4, 3)
        """

    @abc.abstractmethod
    def todense(self) -> Array:
        """The dense array.

        Returns:
            An array of the same shape and dtype.

        >>> from tinyxla.experimental import sparse
        >>> sparse.eye(2).todense()
        Array([[1., 0.],
               [0., 1.]], dtype=float32)
        """

    @abc.abstractmethod
    def tree_flatten(self) -> tuple[tuple[Any, ...], Any]:
        """Its buffers, and what is static of it."""

    def block_until_ready(self) -> Any:
        """The array, when its buffers are computed.

        Returns:
            The array itself.

        >>> from tinyxla.experimental import sparse
        >>> sparse.eye(2).block_until_ready()
        BCOO(float32[2, 2], nse=2)
        """
        for x in self.tree_flatten()[0]:
            x.block_until_ready()
        return self

    def _extra(self) -> str:
        return ""

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a sparse array without dimensions")
        return self.shape[0]

    def __repr__(self) -> str:
        name = type(self).__name__
        try:
            text = f"{name}({self.dtype}{list(self.shape)}, nse={self.nse}{self._extra()})"
        except (AttributeError, IndexError, TypeError):
            return f"{name}(<invalid>)"
        return f"{type(self.data).__name__}[{text}]" if isinstance(self.data, Tracer) else text


class SparseArithmetic(JAXSparse):
    """The operators and methods of sparse arrays, which are the library's functions on them."""

    def astype(self, *args: Any, **kwargs: Any) -> Any:
        return self.apply(lambda x: x.astype(*args, **kwargs), self)

    def reshape(self, *args: Any, **kwargs: Any) -> Any:
        return self.apply(lambda x: x.reshape(*args, **kwargs), self)

    def sum(self, *args: Any, **kwargs: Any) -> Any:
        return self.apply(lambda x: x.sum(*args, **kwargs), self)

    def __abs__(self) -> Any:
        return self.apply(tnp.abs, self)

    def __neg__(self) -> Any:
        return self.apply(tnp.negative, self)

    def __pos__(self) -> Any:
        return self

    def __matmul__(self, other: Any) -> Any:
        return self.apply(tnp.matmul, self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return self.apply(tnp.matmul, other, self)

    def __mul__(self, other: Any) -> Any:
        return self.apply(tnp.multiply, self, other)

    def __rmul__(self, other: Any) -> Any:
        return self.apply(tnp.multiply, other, self)

    def __truediv__(self, other: Any) -> Any:
        return self.apply(tnp.divide, self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return self.apply(tnp.divide, other, self)

    def __add__(self, other: Any) -> Any:
        return self.apply(tnp.add, self, other)

    def __radd__(self, other: Any) -> Any:
        return self.apply(tnp.add, other, self)

    def __sub__(self, other: Any) -> Any:
        return self.apply(tnp.subtract, self, other)

    def __rsub__(self, other: Any) -> Any:
        return self.apply(tnp.subtract, other, self)

    def __pow__(self, other: Any) -> Any:
        return self.apply(lambda x: tnp.power(x, other), self)

    def __getitem__(self, index: Any) -> Any:
        return self.apply(lambda x: x[index], self)

    def __iter__(self) -> Iterator[Any]:
        return (self[k] for k in range(self.shape[0]))

    def __gt__(self, other: Any) -> Any:
        return self.apply(tnp.greater, self, other)

    def __ge__(self, other: Any) -> Any:
        return self.apply(tnp.greater_equal, self, other)

    def __lt__(self, other: Any) -> Any:
        return self.apply(tnp.less, self, other)

    def __le__(self, other: Any) -> Any:
        return self.apply(tnp.less_equal, self, other)

    def __eq__(self, other: Any) -> Any:
        return self.apply(tnp.equal, self, other)

    def __ne__(self, other: Any) -> Any:
        return self.apply(tnp.not_equal, self, other)
