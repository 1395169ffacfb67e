"""Dead code elimination in control flow: loops and branches without results and carries that nothing needs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tinyxla.compiler.rewriter import Rewriter, for_opcodes, rewrite, to_fixed_point
from tinyxla.hlo import Computation, Instruction
from tinyxla.ops import calls
from tinyxla.shapes import TupleShape
from tinyxla.transforms.computations import effects, needed, subgraph

Indices = list[int]
Operands = tuple[Instruction, ...]


@for_opcodes("while", "conditional")
@to_fixed_point
def control_flow_dce(computation: Computation) -> Computation:
    """The computation with loops that carry, and branches that compute, only what is used outside or by the next
    iteration; uses of invariant carries read the initial value."""
    users = computation.users()
    new_index: dict[Instruction, dict[int, int]] = {}  # of loops and branches: remaining results and their new indices
    initial_value: dict[Instruction, dict[int, Instruction]] = {}  # of loops: initial values of invariant carries

    def visit(rewriter: Rewriter, x: Instruction, operands: Operands) -> Instruction | None:
        if x.op is calls.get_tuple_element and x.operands[0] in new_index:
            region, index = x.operands[0], x.attributes.index
            if index in initial_value[region]:
                return initial_value[region][index]
            return rewriter.emit(calls.get_tuple_element, operands[0], index=new_index[region][index])
        if x.op.name not in _DCE or any(u.op is not calls.get_tuple_element for u in users[x]):
            return None
        outputs, inputs, attributes = _DCE[x.op.name](x, {u.attributes.index for u in users[x]})
        new_index[x] = {index: k for k, index in enumerate(outputs)}
        invariant = _invariant_carries(x.attributes.body) if x.op.name == "while" else ()
        initial_value[x] = {k: operands[k] for k in invariant}
        return rewriter.emit(x.op, *(operands[k] for k in inputs), **attributes)

    return rewrite(computation, visit)


def _invariant_carries(body: Computation) -> set[int]:
    """The indices of values that a loop carries unchanged."""
    return {k for k, (x, p) in enumerate(zip(body.outputs, body.parameters, strict=True)) if x is p}


def _while(x: Instruction, used: set[int]) -> tuple[Indices, Indices, dict[str, Any]]:
    condition, body = control_flow_dce(x.attributes.condition), control_flow_dce(x.attributes.body)
    needed_outputs = used - _invariant_carries(x.attributes.body)
    carries = sorted(
        _needed_carries(body, needed_outputs | _read_parameters(condition, [condition.root, *effects(condition)]))
    )
    attributes = x.attributes._replace(
        condition=_with_subset(condition, carries), body=_with_subset(body, carries, carries)
    )
    return carries, carries, attributes._asdict()


def _needed_carries(body: Computation, used: set[int]) -> set[int]:
    """The indices of the values that must be carried for the used ones and for side effects."""
    index_of = {p: k for k, p in enumerate(body.parameters)}
    needed_carries, seen = set(used), set[Instruction]()
    pending = [*effects(body), *(body.outputs[k] for k in used)]
    while pending:
        x = pending.pop()
        if x in seen:
            continue
        seen.add(x)
        pending.extend(x.operands)
        if x in index_of and index_of[x] not in needed_carries:
            needed_carries.add(index_of[x])
            pending.append(body.outputs[index_of[x]])
    return needed_carries


def freeze_unneeded_carries(body: Computation, used: set[int]) -> Computation:
    """The body with carries that only a condition needs, such as a counter, passed on unchanged."""
    needed_carries = _needed_carries(body, used)
    outputs = [
        x if k in needed_carries else p for k, (x, p) in enumerate(zip(body.outputs, body.parameters, strict=True))
    ]
    return subgraph(body.name, body.parameters, outputs, effects=effects(body))


def _conditional(x: Instruction, used: set[int]) -> tuple[Indices, Indices, dict[str, Any]]:
    branches = [control_flow_dce(branch) for branch in x.attributes.branch_computations]
    outputs = sorted(used)
    read = [_read_parameters(b, [*(b.outputs[k] for k in outputs), *effects(b)]) for b in branches]
    inputs = sorted(set().union(*read))
    new_branches = tuple(_with_subset(branch, inputs, outputs) for branch in branches)
    return outputs, [0, *(k + 1 for k in inputs)], {"branch_computations": new_branches}


_DCE = {"while": _while, "conditional": _conditional}


def _read_parameters(computation: Computation, results: Iterable[Instruction]) -> set[int]:
    """The indices of the parameters on which some instructions depend."""
    reached = needed(results)
    return {k for k, p in enumerate(computation.parameters) if p in reached}


def _with_subset(computation: Computation, inputs: Indices, outputs: Indices | None = None) -> Computation:
    """The computation with a subset of its parameters and of its results (None: all results)."""
    parameters = [computation.parameters[k] for k in inputs]
    results = [computation.root] if outputs is None else [computation.outputs[k] for k in outputs]
    as_tuple = outputs is not None and isinstance(computation.root.shape, TupleShape)
    return subgraph(computation.name, parameters, results, as_tuple, effects(computation))
