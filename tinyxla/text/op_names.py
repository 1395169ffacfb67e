"""The `op_name`s of XLA's metadata: the path to an instruction through functions, scopes, transformations and loops,
such as `jit(f)/layer/while/body/add`.

An instruction keeps the scopes inside of its computation. The path has those of loops and branches around it; that of
an instruction in a called function begins there, until the call is inlined.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tinyxla.hlo import Computation, Instruction, Module
from tinyxla.util.name_stacks import extended, shown


def op_name(x: Instruction) -> str:
    """The path to an instruction of a module that `with_paths` gave."""
    return shown(extended(x.source.scope if x.source else "", _own_name(x))).lstrip("/")


def _own_name(x: Instruction) -> str:
    if x.op.name == "call":
        called = f"jit({function_name(x.attributes.to_apply)})"
        return "/checkpoint" if x.attributes.checkpoint is not None else called  # transformations go around functions
    return f"/{x.attributes.direction.lower() if x.op.name == 'compare' else x.op.name}"


def function_name(computation: Computation) -> str:
    """The name of the function that a computation was made of, also by transformations."""
    return _MADE_BY.sub("", computation.name) or computation.name


_MADE_BY = re.compile(r"(_jvp|_vmap|_vjp(_forward|_backward)?)+$")


def with_inner(x: Instruction, scope: str, change: Callable[[Computation, str], Computation]) -> Any:
    """The attributes of an instruction in a scope, with its computations changed: `change` gets the scope of each."""

    def changed(name: str, value: Any) -> Any:
        if isinstance(value, Computation):
            return change(value, _inner_scope(x, name, scope))
        if name == "branch_computations":
            is_flag = x.operands[0].array_shape.element_type.kind == "pred"  # true comes first there
            numbers = (1, 0) if is_flag else range(len(value))
            return tuple(map(change, value, [extended(scope, f"/cond/branch_{k}_fun") for k in numbers]))
        return value

    return x.attributes._replace(**{name: changed(name, value) for name, value in x.attributes._asdict().items()})


def _inner_scope(x: Instruction, attribute: str, scope: str) -> str:
    if x.op.name == "while":
        return extended(scope, "/while/cond" if attribute == "condition" else "/while/body")
    is_checkpoint = getattr(x.attributes, "checkpoint", None) is not None
    return extended(scope, "/checkpoint") if is_checkpoint else ""


def with_paths(module: Module) -> Module:
    """The module whose instructions have all that is around them as their scope, for printing."""
    made: dict[tuple[int, str], Computation] = {}

    def located(computation: Computation, scope: str) -> Computation:
        key = id(computation), scope
        if key not in made:
            new: dict[Instruction, Instruction] = {}
            for x in computation.instructions:
                source = x.source and (x.source.inside(scope) if x.source.function else x.source)
                attributes = with_inner(x, source.scope if source else scope, located)
                operands = [new[o] for o in x.operands]
                new[x] = Instruction(x.op, operands, attributes, x.shape, source, x.name, x.annotations, x.origin or x)
            parameters = [new[p] for p in computation.parameters]
            made[key] = Computation(computation.name, parameters, list(new.values()), new[computation.root])
        return made[key]

    return Module(module.name, located(module.entry, f"jit({module.name})"), module.attributes)
