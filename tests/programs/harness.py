"""One harness for programs that take the package, `jax` or `tinyxla`, and give the same with both.

A table of programs is a `Programs`; `check` runs one of them at once, compiled and in the interpreter,
and compares what comes out with JAX's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy
import numpy as np

import tinyxla
from tinyxla.backends import compile_module

generator = np.random.default_rng(11)


def floats(*shape: int) -> np.ndarray[Any, Any]:
    return generator.normal(size=shape).astype(np.float32)


class Program(NamedTuple):
    run: Callable[..., Any]
    arrays: tuple[Any, ...]
    traced: bool


class Programs(dict[str, Program]):
    """Called as a decorator, it takes a function of the package and of the arrays.

    What is not `traced` looks at values, raises or prints: it is run as it stands, and is itself never compiled.
    """

    def __call__(self, *arrays: Any, traced: bool = True) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            assert function.__name__ not in self
            self[function.__name__] = Program(function, arrays, traced)
            return function

        return register


def check(program: Program) -> None:
    """The results at once, compiled and interpreted are those of JAX."""
    run, arrays, traced = program
    mine = [tinyxla.numpy.asarray(x) for x in arrays]
    if not traced:
        same(run(tinyxla, *mine), run(jax, *map(jax.numpy.asarray, arrays)))
        return
    theirs = jax.jit(lambda *x: run(jax, *x), compiler_options={"xla_backend_optimization_level": 0})(*arrays)
    same(run(tinyxla, *mine), theirs)
    compiled = tinyxla.jit(lambda *x: run(tinyxla, *x))
    same(compiled(*mine), theirs)
    interpreted = compile_module(compiled.lower(*mine).module, "interpreter")
    same(interpreted([np.asarray(x) for x in mine]), jax.tree.leaves(theirs))


def same(mine: Any, theirs: Any) -> None:
    """Values with the same structure, shapes, types and, but for rounding, numbers; texts are equal."""
    expected, tree = jax.tree.flatten(theirs)
    found, found_tree = jax.tree.flatten(mine)
    assert found_tree == tree
    for place, (a, b) in enumerate(zip(found, expected, strict=True)):
        if isinstance(b, str | bytes):
            assert a == b
            continue
        a, b = np.asarray(a), np.asarray(b)
        assert (a.shape, a.dtype) == (b.shape, b.dtype), place
        scale = float(np.abs(b.astype(np.complex128)).max(initial=0)) if np.isfinite(b).all() else 1.0
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=2e-5 * scale, err_msg=f"result {place}")


def error_of(function: Callable[..., Any], *args: Any) -> BaseException:
    """What a call raises."""
    try:
        function(*args)
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")
