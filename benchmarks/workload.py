"""What a workload is: one computation, written once against the interface that the libraries share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from benchmarks.libraries import NUMPY, TORCH, Library

Function = Callable[..., Any]
Inputs = Callable[[np.random.Generator], tuple[Any, ...]]


@dataclass(frozen=True)
class Workload:
    """A function of arrays that each library compiles, and then calls again and again with the same inputs.

    `make(tx)` gives the function, for a library with the interface of JAX. `inputs(generator)` gives its arguments:
    NumPy arrays, or containers of them where NumPy and PyTorch do not take part. `numpy`, a function of the arrays, and
    `torch(torch)`, which gives one of tensors, are there where a user of NumPy or PyTorch would write the same
    computation with functions of theirs.

    For the limit that the machine sets, `operations` is how many floating-point operations a call takes, and `moved`
    how many bytes it must at least read and write. Where they are not given, they are counted on the graph, in which
    the body of a loop counts once, and on the arguments and results.
    """

    name: str
    make: Callable[[Any], Function]
    inputs: Inputs
    numpy: Function | None = None
    torch: Callable[[Any], Function] | None = None
    operations: float | None = None
    moved: float | None = None
    wait_each: bool = True

    def runs_in(self, library: Library) -> bool:
        """Whether a library takes part."""
        if library.name == NUMPY:
            return self.numpy is not None
        return library.name != TORCH or self.torch is not None

    def function(self, library: Library) -> Function:
        """A new function, which no cache in memory knows."""
        if library.name == NUMPY:
            assert self.numpy is not None
            return self.numpy
        if library.name == TORCH:
            assert self.torch is not None
            return self.torch(library.tx)
        return library.tx.jit(self.make(library.tx))

    def arguments(self, library: Library) -> tuple[Any, ...]:
        """The inputs as the library's arrays, the same numbers for all."""
        return library.arrays(self.inputs(np.random.default_rng(0)))

    def build(self, library: Library) -> Callable[[], object]:
        """The call that is measured."""
        return partial(self.function(library), *self.arguments(library))


@dataclass(frozen=True)
class Calls:
    """A call that is repeated warm, which `build` makes for a library among `libraries`.

    With `wait_each` every result is waited for before the next call; without, the rate at which calls can be issued is
    measured.
    """

    name: str
    build: Callable[[Library], Callable[[], object]]
    libraries: tuple[str, ...] = ("tinyxla", "jax")
    wait_each: bool = True

    def runs_in(self, library: Library) -> bool:
        """Whether a library takes part."""
        return library.name in self.libraries


@dataclass(frozen=True)
class Once:
    """Something that can happen only once per sample; `sample` does it and returns the seconds it took."""

    name: str
    sample: Callable[[Library], float]
    libraries: tuple[str, ...] = ("tinyxla", "jax")

    def runs_in(self, library: Library) -> bool:
        """Whether a library takes part."""
        return library.name in self.libraries


def everywhere(name: str, function: Function, inputs: Inputs) -> Workload:
    """A function `function(xp, *arrays)` that reads the same in all libraries."""

    def bound(xp: Any) -> Function:
        return lambda *arrays: function(xp, *arrays)

    return Workload(name, lambda tx: bound(tx.numpy), inputs, bound(np), bound)


def moved_bytes(library: Library, tree: Any) -> float:
    """The memory of all arrays in a container."""
    return float(sum(getattr(leaf, "nbytes", 0) for leaf in library.tx.tree_util.tree_leaves(tree)))


def normal(*shapes: tuple[int, ...]) -> Inputs:
    """Standard normal numbers of these shapes."""
    return lambda generator: tuple(generator.standard_normal(shape, dtype=np.float32) for shape in shapes)


def uniform(*shapes: tuple[int, ...]) -> Inputs:
    """Numbers between 0 and 1 of these shapes."""
    return lambda generator: tuple(generator.random(shape, dtype=np.float32) for shape in shapes)


def summed_gradient(function: Function, tx: Any, arguments: tuple[int, ...] = (0,)) -> Function:
    """The gradient of the sum of squares of a function's result."""
    return tx.grad(lambda *x: tx.numpy.sum(function(*x) ** 2), arguments)
