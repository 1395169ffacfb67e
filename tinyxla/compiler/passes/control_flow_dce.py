"""Loops and branches without what nothing needs: values that are carried or computed for no one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tinyxla.compiler.rewriter import Rewriter, of_opcodes, rewrite, to_fixed_point
from tinyxla.hlo import Computation, Instruction
from tinyxla.ops import calls
from tinyxla.shapes import TupleShape
from tinyxla.transforms.computations import effects, needed, subgraph

Numbers = list[int]
Operands = tuple[Instruction, ...]


@of_opcodes("while", "conditional")
@to_fixed_point
def prune(computation: Computation) -> Computation:
    """Let loops carry, and branches compute, what is needed outside or for the next step; what a loop only hands on is
    taken from before it."""
    users = computation.users()
    kept: dict[Instruction, dict[int, int]] = {}  # of loops and branches: results they still have, and where
    before: dict[Instruction, dict[int, Instruction]] = {}  # and what goes into a loop and comes out as it is

    def visit(rewriter: Rewriter, x: Instruction, operands: Operands) -> Instruction | None:
        if x.op is calls.get_tuple_element and x.operands[0] in kept:
            whole, number = x.operands[0], x.attributes.index
            if number in before[whole]:
                return before[whole][number]
            return rewriter.emit(calls.get_tuple_element, operands[0], index=kept[whole][number])
        if x.op.name not in _PRUNED or any(u.op is not calls.get_tuple_element for u in users[x]):
            return None
        numbers, inputs, attributes = _PRUNED[x.op.name](x, {u.attributes.index for u in users[x]})
        kept[x] = {number: k for k, number in enumerate(numbers)}
        same = _handed_on(x.attributes.body) if x.op.name == "while" else ()
        before[x] = {k: operands[k] for k in same}
        return rewriter.emit(x.op, *(operands[k] for k in inputs), **attributes)

    return rewrite(computation, visit)


def _handed_on(body: Computation) -> set[int]:
    """The numbers of the values that a loop carries and never changes."""
    return {k for k, (x, p) in enumerate(zip(body.outputs, body.parameters, strict=True)) if x is p}


def _while(x: Instruction, used: set[int]) -> tuple[Numbers, Numbers, dict[str, Any]]:
    condition, body = prune(x.attributes.condition), prune(x.attributes.body)
    wanted = used - _handed_on(x.attributes.body)
    numbers = sorted(_wanted(body, wanted | _read(condition, [condition.root, *effects(condition)])))
    attributes = x.attributes._replace(condition=_with(condition, numbers), body=_with(body, numbers, numbers))
    return numbers, numbers, attributes._asdict()


def _wanted(body: Computation, used: set[int]) -> set[int]:
    """The numbers of the values to carry for these, and for side effects."""
    numbers = {p: k for k, p in enumerate(body.parameters)}
    wanted, seen = set(used), set[Instruction]()
    waiting = [*effects(body), *(body.outputs[k] for k in used)]
    while waiting:
        x = waiting.pop()
        if x in seen:
            continue
        seen.add(x)
        waiting.extend(x.operands)
        if x in numbers and numbers[x] not in wanted:
            wanted.add(numbers[x])
            waiting.append(body.outputs[numbers[x]])
    return wanted


def resting(body: Computation, used: set[int]) -> Computation:
    """With what only a condition would need, such as a counter, handed on as it is."""
    wanted = _wanted(body, used)
    outputs = [x if k in wanted else p for k, (x, p) in enumerate(zip(body.outputs, body.parameters, strict=True))]
    return subgraph(body.name, body.parameters, outputs, effects=effects(body))


def _conditional(x: Instruction, used: set[int]) -> tuple[Numbers, Numbers, dict[str, Any]]:
    branches = [prune(branch) for branch in x.attributes.branch_computations]
    numbers = sorted(used)
    read = [_read(b, [*(b.outputs[k] for k in numbers), *effects(b)]) for b in branches]
    inputs = sorted(set().union(*read))
    made = tuple(_with(branch, inputs, numbers) for branch in branches)
    return numbers, [0, *(k + 1 for k in inputs)], {"branch_computations": made}


_PRUNED = {"while": _while, "conditional": _conditional}


def _read(computation: Computation, results: Iterable[Instruction]) -> set[int]:
    """The numbers of the parameters that some instructions depend on."""
    found = needed(results)
    return {k for k, p in enumerate(computation.parameters) if p in found}


def _with(computation: Computation, inputs: Numbers, outputs: Numbers | None = None) -> Computation:
    """With some of the parameters and some of the results (None: as it is)."""
    parameters = [computation.parameters[k] for k in inputs]
    results = [computation.root] if outputs is None else [computation.outputs[k] for k in outputs]
    as_tuple = outputs is not None and isinstance(computation.root.shape, TupleShape)
    return subgraph(computation.name, parameters, results, as_tuple, effects(computation))
