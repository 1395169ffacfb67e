"""The text of programs over several devices as JAX has it: whole arrays, whose shardings are attributes of arguments
and of constraints, in the notations of XLA and of Shardy."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from tinyxla.api.aot import Lowered
from tinyxla.api.programs import PartitionedProgram
from tinyxla.hlo import Computation, Instruction, Module
from tinyxla.jax.partitioning.hlo_shardings import HloSharding
from tinyxla.ops.host.custom_call import custom_call
from tinyxla.shapes import Shape
from tinyxla.tracing.core import trace
from tinyxla.tracing.meshes import AbstractMesh
from tinyxla.tracing.shardings import UNCONSTRAINED, axes_of
from tinyxla.transforms.computations import interpret, results
from tinyxla.transforms.sharded import sharding_constraint

_TARGET = "Sharding"


def is_partitioned(lowered: Lowered) -> bool:
    """Whether a lowered program is over several devices."""
    return isinstance(lowered._program, PartitionedProgram) and lowered._program.mesh.size > 1  # pyright: ignore[reportPrivateUsage]


def global_text(lowered: Lowered, dialect: str, debug_info: bool = False) -> str:
    """The program of whole arrays as text, in the dialect "hlo" or "stablehlo"."""
    from tinyxla.compiler.passes.expand import expand_to_hlo  # here: no compiler is loaded by `import jax`
    from tinyxla.compiler.passes.inline_calls import inline_calls
    from tinyxla.jax.partitioning.shardy import sharded_module_op  # here, since few programs need it
    from tinyxla.text import print_module
    from tinyxla.text.mlir.printer import print_module_op
    from tinyxla.text.op_names import with_paths

    program: Any = lowered._program  # pyright: ignore[reportPrivateUsage]
    placed = [*program.are_placed, *[True] * len(program.captured)]
    specs = [spec if is_placed else None for spec, is_placed in zip(program.specs[0], placed, strict=True)]
    inlined = inline_calls(program.computation)
    if dialect == "hlo":
        module = Module(lowered.module.name, expand_to_hlo(_with_calls(inlined)))
        return _annotated_hlo(print_module(module, metadata=debug_info), program.mesh, specs)
    module = Module(lowered.module.name, inlined)
    module = with_paths(module) if debug_info else module
    return print_module_op(sharded_module_op(module, program.mesh, specs, debug_info), debug_info)


def _with_calls(computation: Computation) -> Computation:
    """A computation whose constraints are calls that name their shardings."""

    def apply(x: Instruction, operands: list[Any]) -> Any:
        if x.op is not sharding_constraint:
            return x.op(*operands, **x.attributes._asdict())
        spec = [() if part is UNCONSTRAINED else axes_of(part) for part in x.attributes.spec]
        configuration = hlo_text(x.attributes.mesh, spec)
        shape = Shape.of(operands[0])
        return custom_call(operands[0], custom_call_target=_TARGET, shape=shape, backend_config=configuration)

    def function(*arguments: Any) -> Any:
        return results(interpret(computation, arguments, apply))

    return trace(function, computation.parameter_shapes, computation.name)[0]


def hlo_text(mesh: AbstractMesh, spec: Sequence[Sequence[Any]]) -> str:
    """A sharding as XLA writes it: `{devices=[2,1]<=[2]}`."""
    return repr(HloSharding.of(mesh, spec))


def _annotated_hlo(text: str, mesh: AbstractMesh, specs: Sequence[Any]) -> str:
    entry = text.index("ENTRY")
    call = re.compile(rf'custom_call_target="{_TARGET}"(.*?), backend_config=(\{{.*?\}})')
    parameter = re.compile(r"( = \S+ parameter\((\d+)\))")

    def with_sharding(found: re.Match[str]) -> str:
        spec = specs[int(found[2])]
        return found[1] if spec is None else f"{found[1]}, sharding={hlo_text(mesh, spec)}"

    body = call.sub(lambda m: f'custom_call_target="{_TARGET}"{m[1]}, sharding={m[2]}', text[entry:])
    return text[:entry] + parameter.sub(with_sharding, body)


class GlobalModule:
    """The program of whole arrays as an object whose text it is."""

    def __init__(self, text: Callable[[], str]) -> None:
        self._text = text

    def __str__(self) -> str:
        return self._text()

    as_hlo_text = __str__
