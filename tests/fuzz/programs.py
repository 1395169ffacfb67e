"""Programs: source text that runs with either package, what is derived from it, and the ways to run that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from unittest import mock

import jax
import jax.image
import jax.ops
import jax.scipy
import numpy as np
import scipy
import scipy.special
import scipy.stats

import tinyxla
from tinyxla.backends import compile_module
from tinyxla.hlo import Module

from .catalogue import CONCRETE, SMALL, Entry
from .catalogue_methods import EXPRESSIONS
from .templates import Drawn
from .values import Input, is_inexact

Function = Callable[..., Any]
HERMITIAN = ("spd", "hermitian")  # kinds of inputs
DERIVED = ("value", "jvp", "vjp", "linearize", "forward_over_reverse", "reverse_over_reverse")


class _Lax:
    """NumPy's or SciPy's functions by the names that they have in `lax`."""

    def __getattr__(self, name: str) -> Any:
        name = {"lgamma": "gammaln", "igamma": "gammainc", "igammac": "gammaincc"}.get(name, name)
        return getattr(np, name) if hasattr(np, name) else getattr(scipy.special, name)


class SciPy:
    """The oracle of what JAX does not have."""

    scipy, numpy, lax = scipy, np, _Lax()


class Program(NamedTuple):
    """A function of arrays, as the body of a Python function of the package `jx`."""

    name: str
    body: str
    inputs: tuple[Input, ...]
    x64: bool
    oracle: str = "jax"
    concrete: bool = False
    elementwise: bool = False

    @property
    def source(self) -> str:
        parameters = "".join(f", x{i}" for i in range(len(self.inputs)))
        return f"def program(jx, np{parameters}):\n{self.body}"

    def function(self, package: Any) -> Function:
        """The function of the arrays, with the package given."""
        space: dict[str, Any] = {}
        exec(compile(self.source, "<program>", "exec"), space)
        return lambda *arrays: space["program"](package, np, *arrays)

    def reference(self) -> Function:
        return self.function(jax if self.oracle == "jax" else SciPy)

    @property
    def differentiable(self) -> tuple[int, ...]:
        """The numbers of the inputs that have derivatives."""
        return tuple(
            i for i, given in enumerate(self.inputs) if is_inexact(given.dtype) and not given.scalar and _wide(given)
        )


def _wide(given: Input) -> bool:
    """Derivatives are compared in types in which they have digits enough."""
    return given.dtype in ("float32", "float64", "complex64", "complex128")


def single(entry: Entry, random: np.random.Generator, x64: bool, small: bool = False) -> Program:
    """One call of a function."""
    drawn = Drawn(random, x64, small=small or entry.name in SMALL or random.random() < 0.5)
    template = entry.templates[random.integers(len(entry.templates))]
    text = drawn.text(template)
    module, _, last = entry.name.rpartition(".")
    head = "" if entry.name in EXPRESSIONS or text.startswith("jx.") else f"jx.{module}.{last}"
    return Program(
        name=entry.name,
        body=f"    return {head}{text}\n",
        inputs=tuple(drawn.inputs),
        x64=x64,
        oracle=entry.oracle,
        concrete=entry.name in CONCRETE,
        elementwise=entry.elementwise,
    )


def derive(program: Program, what: str, package: Any, compiled: bool = False) -> Function:
    """What is compared: the value, or derivatives of the inexact results by the inexact inputs.

    Derivatives are functions of the arrays, of tangents for those that are differentiated, and of one cotangent for
    each inexact result. `compiled`: the derivatives of the compiled function, and of its compiled gradient.
    """
    function = program.reference() if package is jax else program.function(package)
    function = package.jit(function) if compiled else function
    if what == "value":
        return function
    which = program.differentiable

    def of(arrays: Sequence[Any], chosen: Sequence[Any]) -> list[Any]:
        given = list(arrays)
        for i, x in zip(which, chosen, strict=True):
            given[i] = x
        return _inexact_leaves(package, function(*given))

    def weighted(arrays: Sequence[Any], weights: Sequence[Any], chosen: Sequence[Any]) -> Any:
        results = of(arrays, chosen)
        return sum(package.numpy.real(r * w).sum() for r, w in zip(results, weights, strict=False))

    def derived(*given: Any) -> Any:
        arrays, tangents = given[: len(program.inputs)], given[len(program.inputs) :][: len(which)]
        weights = given[len(program.inputs) + len(which) :]
        chosen = tuple(arrays[i] for i in which)

        def gradient(*x: Any) -> Any:
            found = package.grad(lambda *y: weighted(arrays, weights, y), argnums=tuple(range(len(which))))
            return (package.jit(found) if compiled else found)(*x)

        if what == "jvp":
            return package.jvp(lambda *x: of(arrays, x), chosen, tuple(tangents))
        if what == "linearize":
            results, linear = package.linearize(lambda *x: of(arrays, x), *chosen)
            return results, linear(*tangents)
        if what == "vjp":
            results, pullback = package.vjp(lambda *x: of(arrays, x), *chosen)
            return projected(pullback([w.astype(r.dtype) for r, w in zip(results, weights, strict=True)]))
        if what == "forward_over_reverse":
            return projected(package.jvp(gradient, chosen, tuple(tangents))[1])

        def along(*x: Any) -> Any:
            return sum(package.numpy.real(g * t).sum() for g, t in zip(gradient(*x), tangents, strict=True))

        return projected(package.grad(along, argnums=tuple(range(len(which))))(*chosen))

    def projected(gradients: Sequence[Any]) -> list[Any]:
        return [_projected(program.inputs[i], g, package) for i, g in zip(which, gradients, strict=True)]

    return derived


def _projected(given: Input, g: Any, package: Any) -> Any:
    """Of Hermitian matrices the Hermitian part of a gradient, which is all that Hermitian tangents meet: the other part
    depends on whether one triangle is read or both."""
    if given.kind not in HERMITIAN:
        return g
    return (g + package.numpy.conj(package.numpy.swapaxes(g, -1, -2))) / 2


def _inexact_leaves(package: Any, tree: Any) -> list[Any]:
    leaves = package.tree_util.tree_leaves(tree)
    return [x for x in leaves if hasattr(x, "dtype") and package.numpy.issubdtype(x.dtype, package.numpy.inexact)]


def _interpreted(function: Function) -> Function:
    """A compiled function that is run operation by operation on NumPy, as where llvmlite is not installed."""

    def compiled(computation: Any, *_: Any) -> Any:
        return compile_module(Module(computation.name, computation), "interpreter")

    def call(*arrays: Any) -> Any:
        with mock.patch("tinyxla.api.executables._compiled", compiled):
            return function(*arrays)

    return call


def wrapped(function: Function, way: str, in_axes: Any = None) -> Function:
    """The function run in a way: as it stands, compiled, mapped, recomputed. Of a derivative of a compiled function
    (`derive`), which the function given is, the name of the way ends in " of jit"."""
    way = way.removesuffix(" of jit")
    if way == "eager":
        return function
    if way == "jit":
        return tinyxla.jit(function)
    if way == "vmap":
        return tinyxla.vmap(function, in_axes)
    if way == "vmap(jit)":
        return tinyxla.vmap(tinyxla.jit(function), in_axes)
    if way == "jit(vmap)":
        return tinyxla.jit(tinyxla.vmap(function, in_axes))
    if way == "interpreter":
        return _interpreted(tinyxla.jit(lambda *arrays: function(*arrays)))
    if way == "jit(checkpoint)":
        return tinyxla.jit(tinyxla.checkpoint(function))
    raise ValueError(f"There is no way {way!r} to run a program.")
