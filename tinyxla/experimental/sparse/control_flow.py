"""Loops and branches of sparsified functions: computations of the buffers of sparse arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tinyxla.errors import ArgumentError
from tinyxla.experimental.sparse.bcoo import BCOO
from tinyxla.experimental.sparse.values import Values, plain
from tinyxla.hlo import Computation, Instruction
from tinyxla.shapes import Shape
from tinyxla.tracing import pytrees
from tinyxla.tracing.core import trace
from tinyxla.transforms import conditional, while_
from tinyxla.transforms.computations import of_one

Evaluate = Callable[[Computation, Sequence[Any]], Sequence[Any]]


def _of_buffers(evaluate: Evaluate, computation: Computation, structure: Any, kept: list[Any]) -> Callable[..., Any]:
    """A computation of values as one of their buffers. The structure of its results is appended to `kept`."""

    def function(*buffers: Any) -> list[Any]:
        outputs = [plain(x) for x in evaluate(computation, pytrees.unflatten(structure, buffers))]
        flat, found = pytrees.flatten(_without_flags(outputs))
        kept.append(found)
        return flat

    return function


def _without_flags(values: Sequence[Any]) -> list[Any]:
    """Values without promises about their indices, which steps of a loop may give or not."""
    return [BCOO((x.data, x.indices), shape=x.shape) if isinstance(x, BCOO) else x for x in values]


def while_rule(evaluate: Evaluate, x: Instruction, operands: Values) -> Any:
    """A loop that carries sparse arrays, whose number of elements must not change."""
    given = x.attributes
    buffers, structure = pytrees.flatten(_without_flags([plain(o) for o in operands]))
    shapes = [Shape.of(b) for b in buffers]
    kept: list[Any] = []
    body = trace(_of_buffers(evaluate, given.body, structure, kept), shapes, given.body.name)[0]
    if kept[0] != structure or [o.shape for o in body.outputs] != shapes:
        raise ArgumentError(
            "sparsify: what a loop carries must stay sparse or dense, with as many elements (nse) in the same layout, "
            f"but it begins with {structure} of {shapes} and a step gives {kept[0]} of "
            f"{[o.shape for o in body.outputs]}. Use sum_duplicates(nse=...) or todense in the step."
        )
    test = of_one(
        lambda *b: evaluate(given.condition, pytrees.unflatten(structure, b))[0], shapes, given.condition.name
    )
    outputs = while_(*buffers, condition=test, body=body, known_trip_count=given.known_trip_count)
    return tuple(pytrees.unflatten(structure, outputs))


def conditional_rule(evaluate: Evaluate, x: Instruction, operands: Values) -> Any:
    """Branches that give arrays of the same layouts."""
    index, *values = [plain(o) for o in operands]
    buffers, structure = pytrees.flatten(_without_flags(values))
    shapes, kept = [Shape.of(b) for b in buffers], list[Any]()
    branches = tuple(
        trace(_of_buffers(evaluate, b, structure, kept), shapes, b.name)[0] for b in x.attributes.branch_computations
    )
    if any(found != kept[0] for found in kept) or len({str(b.root.shape) for b in branches}) > 1:
        raise ArgumentError(
            "sparsify: all branches must give arrays of the same layouts, with as many elements (nse), but they give "
            f"{[str(b.root.shape) for b in branches]}. Use sum_duplicates(nse=...) or todense in the branches."
        )
    outputs = conditional(index, *buffers, branch_computations=branches)
    return tuple(pytrees.unflatten(kept[0], outputs))
