"""Solutions of equations, with the derivatives that the equations give: the way there is never differentiated.

Source: the implicit function theorem; Christianson, "Reverse accumulation and attractive fixed points", 1994.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tinyxla.api.functions import Function, arrays_of, check_callable, trace_tree
from tinyxla.api.linearize import linearize
from tinyxla.errors import ArgumentError, ConcretizationError, DifferentiationError, ShapeError
from tinyxla.hlo import Computation
from tinyxla.lax.elementwise import stop_gradient
from tinyxla.numpy.arguments import with_flags
from tinyxla.ops import elementwise
from tinyxla.shapes import Shape
from tinyxla.tracing import pytrees
from tinyxla.tracing.cache_keys import hashable
from tinyxla.tracing.core import state, trace
from tinyxla.transforms import jvp, vjp
from tinyxla.transforms.computations import run
from tinyxla.transforms.custom import Implicit, Values, apply
from tinyxla.transforms.reverse import zeros_like
from tinyxla.util.tracebacks import boundary

Solver = Callable[..., list[Any]]  # of leaves


class _Equation:
    """A function of a pytree, which it gives the like of, and of what it captured: of leaves and captured values."""

    def __init__(self, what: str, name: str, function: Function, example: Any) -> None:
        check_callable(what, function)
        self.leaves, self.tree = arrays_of(example, f"{what}: argument ")
        made, captured, _, tree = trace_tree(function, (pytrees.unflatten(self.tree, self.leaves),), {})
        self.computation: Computation = made
        self.captured: list[Any] = captured
        shapes = [Shape.of(x) for x in self.leaves]
        found = [x.array_shape for x in made.outputs]
        if tree != self.tree or [x.dimensions for x in shapes] != [x.dimensions for x in found]:
            raise ShapeError(
                f"{what}: {name} must give what has the structure and shapes of its argument, "
                f"{pytrees.structure_text(self.tree)} of {shapes}, but gives {pytrees.structure_text(tree)} of {found}."
            )

    def __call__(self, leaves: Values, captured: Values) -> list[Any]:
        return list(run(self.computation, [*leaves, *captured]))

    def at(self, captured: Values) -> Function:
        """The function of pytrees, for values of what it captured."""

        def function(x: Any) -> Any:
            leaves, _ = arrays_of(x, "The function: argument ")
            return pytrees.unflatten(self.tree, self(leaves, captured))

        return function

    def solved(
        self, what: str, name: str, solution: Any, has_aux: bool
    ) -> tuple[list[Any], list[Any], pytrees.TreeDef | None]:
        """The leaves of what the solver `name` gives, those of what it gives besides, and the latter's structure."""
        aux_leaves: list[Any] = []
        aux_tree = None
        if has_aux:
            if not isinstance(solution, tuple) or len(solution) != 2:
                raise ArgumentError(f"{what}: with has_aux=True {name} must give a pair, but gives {solution!r}.")
            solution, aux = solution
            aux_leaves, aux_tree = arrays_of(aux, f"{what}: what the solver gives besides")
        leaves, tree = arrays_of(solution, f"{what}: the solution")
        if tree != self.tree:
            raise ArgumentError(
                f"{what}: what {name} gives must have the structure {pytrees.structure_text(self.tree)}, but has "
                f"{pytrees.structure_text(tree)}."
            )
        for x, like in zip(leaves, self.leaves, strict=True):
            if x.shape != like.shape:
                raise ShapeError(f"{what}: what {name} gives must have the shape {like.shape}, but is {Shape.of(x)}.")
        return leaves, aux_leaves, aux_tree


def _closed(name: str, function: Solver, values: Values) -> tuple[Solver, list[Any]]:
    """A function that also takes what it captured of transformed functions around, and that: there are no derivatives
    by it, and the way back asks for it after these functions have ended."""
    if not state.depth:
        return function, []
    try:
        made, captured, weak = trace(function, [Shape.of(x) for x in values], name, [x.weak_type for x in values])
    except ConcretizationError:  # it looks at values, as it can without `jit`
        return function, []
    if not captured:
        return function, []

    def closed(*inputs: Any) -> list[Any]:
        return [x.with_weak_type(w) for x, w in zip(run(made, inputs), weak, strict=True)]

    return closed, list(stop_gradient(captured))


@boundary
def custom_root(
    f: Function, initial_guess: Any, solve: Function, tangent_solve: Function, has_aux: bool = False
) -> Any:
    """An x with f(x) = 0, with derivatives by what f captures that follow from the equation.

    Args:
        f: of a pytree of arrays; gives the like.
        initial_guess: where to start.
        solve: `solve(f, initial_guess)` gives x.
        tangent_solve: `tangent_solve(g, y)` gives the x with g(x) = y for a linear g: `lambda g, y: y / g(1.0)` for
            numbers. Reverse mode transposes it.
        has_aux: `solve` gives `(x, auxiliary)`, of which there are no derivatives.

    Returns:
        What `solve` gives.

    Raises:
        ShapeError: a solution that does not have the shape of the initial guess.

    Example:
        >>> from tinyxla.lax import custom_root
        >>> import tinyxla as tx
        >>> def newton(f, x):
        ...     return tx.lax.fori_loop(0, 10, lambda _, x: x - f(x) / tx.grad(f)(x), x)
        >>> def root(a):
        ...     return custom_root(lambda x: x**2 - a, 1.0, newton, lambda g, y: y / g(1.0))
        >>> tx.grad(root)(4.0)
        Array(0.25, dtype=float32, weak_type=True)
    """
    what = "lax.custom_root"
    for given in (solve, tangent_solve):
        check_callable(what, given)
    equation = _Equation(what, "f", f, initial_guess)
    count = len(equation.leaves)
    end = count + len(equation.captured)
    box: dict[str, Any] = {}

    def solution(*values: Any) -> list[Any]:
        guess = pytrees.unflatten(equation.tree, values[:count])
        found, aux, box["aux"] = equation.solved(what, "solve", solve(equation.at(values[count:end]), guess), has_aux)
        return [*found, *aux]

    def moved(*values: Any) -> list[Any]:
        """The solution of the linear equation at x, of x, of what f captured, and of the right side."""
        x, right = pytrees.unflatten(equation.tree, values[:count]), pytrees.unflatten(equation.tree, values[end:])
        _, derivative = linearize(equation.at(values[count:end]), x)
        return equation.solved(what, "tangent_solve", tangent_solve(derivative, right), False)[0]

    def push(values: Values, outputs: Values, tangents: Values) -> Values:
        x, captured = outputs[:count], values[count:end]
        _, residual = jvp(lambda *c: equation(x, c), captured, tangents[count:end])
        if all(r is None for r in residual):
            return [None] * len(outputs)
        right = [zeros_like(v) if r is None else elementwise.neg(r) for v, r in zip(x, residual, strict=True)]
        moves = tangent_solver(*x, *captured, *right, *values[end + len(kept) :])
        return [*moves, *(None for _ in outputs[count:])]

    values = [*stop_gradient(equation.leaves), *equation.captured]
    tangent_solver, others = _closed("tangent_solve", moved, [*values, *equation.leaves])
    solver, kept = _closed("solve", solution, values)
    values += [*kept, *others]
    key = (hashable(f), hashable(solve), hashable(tangent_solve), equation.computation)
    found = Implicit("custom_root", key, len(values), lambda *v: solver(*v[: end + len(kept)]), push)
    outputs = apply(found, *values)
    x = pytrees.unflatten(equation.tree, outputs[:count])
    return (x, pytrees.unflatten(box["aux"], outputs[count:])) if has_aux else x


# --- linear equations -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _System:
    """A linear equation A x = b, as a function of the leaves of b, of what A captures and of what the solvers capture;
    or the one with A's transpose."""

    what: str
    equation: _Equation
    solve: Function
    transpose_solve: Function | None
    has_aux: bool
    box: dict[str, Any]
    transposed: bool = False
    solvers: tuple[Solver, ...] = ()  # of the equation and of the transposed one, of all values

    def split(self, values: Values) -> tuple[Values, Values, Values]:
        """The leaves of b, what A captures, and what the solvers capture."""
        count = len(self.equation.leaves)
        end = count + len(self.equation.captured)
        return values[:count], values[count:end], values[end:]

    def product(self, x: Values, captured: Values) -> list[Any]:
        """A x."""
        if not self.transposed:
            return self.equation(x, captured)
        _, transpose = vjp(lambda *v: self.equation(v, captured), [zeros_like(v) for v in x])
        return _filled(transpose(x), x)

    def solution(self, *values: Any) -> list[Any]:
        right, captured, _ = self.split(values)
        tree = self.equation.tree
        solve = self.transpose_solve if self.transposed else self.solve
        if solve is None:
            raise DifferentiationError(
                f"{self.what}: a derivative in reverse mode needs a solver of the transposed equation; give "
                "transpose_solve, or symmetric=True."
            )

        def matvec(x: Any) -> Any:
            leaves, _ = arrays_of(x, f"{self.what}: the argument of matvec")
            return pytrees.unflatten(tree, self.product(leaves, captured))

        found = solve(matvec, pytrees.unflatten(tree, right))
        name = "transpose_solve" if self.transposed else "solve"
        x, aux, self.box["aux"] = self.equation.solved(self.what, name, found, self.has_aux)
        return [*x, *aux]

    def pull(self, values: Values, outputs: Values, cotangents: Values) -> Values:
        right, captured, kept = self.split(values)
        x = outputs[: len(right)]
        other = replace(self, transposed=not self.transposed)
        y = apply(other.rule(len(values)), *_filled(cotangents[: len(x)], x), *captured, *kept)[: len(x)]
        _, transpose = vjp(lambda *c: self.product(x, c), captured)
        return [*y, *transpose([elementwise.neg(v) for v in y]), *(None for _ in kept)]

    def push(self, values: Values, outputs: Values, tangents: Values) -> Values:
        _, captured, kept = self.split(values)
        right, moves, _ = self.split(tangents)
        x = outputs[: len(right)]
        _, change = jvp(lambda *c: self.product(x, c), captured, moves)
        right = [b if c is None else elementwise.sub(b, c) for b, c in zip(_filled(right, x), change, strict=True)]
        found = apply(self.rule(len(values)), *right, *captured, *kept)
        return [*found[: len(x)], *(None for _ in outputs[len(x) :])]

    def rule(self, count: int) -> Implicit:
        functions = (hashable(self.solve), hashable(self.transpose_solve))
        key = (*functions, self.transposed, self.equation.computation)
        return Implicit("custom_linear_solve", key, count, self.solvers[self.transposed], self.push, self.pull)


def _filled(derivatives: Values, like: Values) -> list[Any]:
    return [zeros_like(x) if d is None else d for d, x in zip(derivatives, like, strict=True)]


@boundary
@with_flags
def custom_linear_solve(
    matvec: Function,
    b: Any,
    solve: Function,
    transpose_solve: Function | None = None,
    symmetric: bool = False,
    has_aux: bool = False,
) -> Any:
    """The x with A x = b for a linear function A, with derivatives by b and by what A captures.

    Args:
        matvec: A, of a pytree of arrays; gives the like.
        b: the right side, a pytree of arrays.
        solve: `solve(matvec, b)` gives x.
        transpose_solve: the same for the transpose of A, `transpose_solve(vecmat, b)`; reverse mode needs it.
        symmetric: A is its own transpose, and `solve` solves both.
        has_aux: the solvers give `(x, auxiliary)`, of which there are no derivatives.

    Returns:
        What `solve` gives.

    Raises:
        DifferentiationError: a derivative in reverse mode without `transpose_solve`.

    Example:
        >>> from tinyxla.lax import custom_linear_solve
        >>> import tinyxla as tx
        >>> def x(a):
        ...     return custom_linear_solve(lambda x: a * x, 6.0, lambda mv, b: b / mv(1.0), symmetric=True)
        >>> tx.value_and_grad(x)(2.0)
        (Array(3., dtype=float32, weak_type=True), Array(-1.5, dtype=float32, weak_type=True))
    """
    what = "lax.custom_linear_solve"
    equation = _Equation(what, "matvec", matvec, b)
    count = len(equation.leaves)
    system = _System(what, equation, solve, solve if symmetric else transpose_solve, has_aux, {})
    values = [*equation.leaves, *equation.captured]
    end = len(values)
    other = replace(system, transposed=True, box={})
    backward, others = (
        _closed("transpose_solve", other.solution, values) if other.transpose_solve else (other.solution, [])
    )
    forward, kept = _closed("solve", system.solution, values)
    middle = end + len(kept)
    solvers = (lambda *v: forward(*v[:middle]), lambda *v: backward(*v[:end], *v[middle:]))
    system, values = replace(system, solvers=solvers), [*values, *kept, *others]
    outputs = apply(system.rule(len(values)), *values)
    x = pytrees.unflatten(equation.tree, outputs[:count])
    return (x, pytrees.unflatten(system.box["aux"], outputs[count:])) if has_aux else x
