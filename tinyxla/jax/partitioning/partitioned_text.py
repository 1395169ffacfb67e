"""The text of programs over several devices as JAX has it: whole arrays, whose shardings are attributes of arguments
and of constraints, in the notations of XLA and of Shardy."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tinyxla.api.aot import Lowered
from tinyxla.api.programs import PartitionedProgram
from tinyxla.hlo import Computation, Instruction, Module
from tinyxla.jax.partitioning.hlo_shardings import HloSharding
from tinyxla.ops.host.custom_call import custom_call
from tinyxla.shapes import Shape
from tinyxla.tracing.core import trace
from tinyxla.tracing.meshes import AbstractMesh
from tinyxla.tracing.shardings import UNCONSTRAINED, axes_of, sums_of, with_sums
from tinyxla.transforms.computations import interpret, results

_TARGET = "Sharding"


def is_partitioned(lowered: Lowered) -> bool:
    """Whether a lowered program is over several devices."""
    return isinstance(lowered._program, PartitionedProgram) and lowered._program.mesh.size > 1  # pyright: ignore[reportPrivateUsage]


def global_text(lowered: Lowered, dialect: str, debug_info: bool = False) -> str:
    """The program of whole arrays as text, in the dialect "hlo" or "stablehlo"."""
    from tinyxla.text import print_module, print_stablehlo  # here, since few programs need it

    program: Any = lowered._program  # pyright: ignore[reportPrivateUsage]
    module = Module(lowered.module.name, _with_calls(program.computation))
    placed = [*program.are_placed, *[True] * len(program.captured)]
    specs = [spec if is_placed else None for spec, is_placed in zip(program.specs[0], placed, strict=True)]
    if dialect == "hlo":
        return _annotated_hlo(print_module(module, metadata=debug_info), program.mesh, specs)
    return _annotated_stablehlo(print_stablehlo(module), program.mesh, specs)


def _with_calls(computation: Computation) -> Computation:
    """A computation in XLA's operations, whose constraints are calls that name them."""
    from tinyxla.compiler.passes.expand import expand_to_hlo  # here: no compiler is loaded by `import jax`
    from tinyxla.compiler.passes.inline_calls import inline_calls

    inlined = inline_calls(computation)

    def apply(x: Instruction, operands: list[Any]) -> Any:
        if x.op.name != "sharding-constraint":
            return x.op(*operands, **x.attributes._asdict())
        spec = [None if part is UNCONSTRAINED else axes_of(part) for part in x.attributes.spec]
        wanted = with_sums(spec, sums_of(x.attributes.spec))
        configuration = f"{hlo_text(x.attributes.mesh, [part or () for part in spec])} {sdy_text(wanted)}"
        shape = Shape.of(operands[0])
        return custom_call(operands[0], custom_call_target=_TARGET, shape=shape, backend_config=configuration)

    def function(*arguments: Any) -> Any:
        return results(interpret(inlined, arguments, apply))

    made, _, _ = trace(function, inlined.parameter_shapes, inlined.name)
    return expand_to_hlo(made)


def hlo_text(mesh: AbstractMesh, spec: Sequence[Sequence[Any]]) -> str:
    """A sharding as XLA writes it: `{devices=[2,1]<=[2]}`."""
    return repr(HloSharding.of(mesh, spec))


def sdy_text(spec: Sequence[Sequence[Any] | None]) -> str:
    """A sharding as Shardy writes it: `<@mesh, [{"x"}, {?}], unreduced={"y"}>`; None leaves one open."""

    def listed(axes: Iterable[Any]) -> str:
        return "{" + ", ".join(f'"{name}"' for name in axes) + "}"

    parts = ["{?}" if axes is None else listed(axes) for axes in spec]
    unreduced = sorted(sums_of(spec).unreduced, key=str)
    return f"<@mesh, [{', '.join(parts)}]{f', unreduced={listed(unreduced)}' if unreduced else ''}>"


def _annotated_hlo(text: str, mesh: AbstractMesh, specs: Sequence[Any]) -> str:
    entry = text.index("ENTRY")
    call = re.compile(rf'custom_call_target="{_TARGET}"(.*?), backend_config="(\{{.*?\}}) .*"')
    parameter = re.compile(r"( = \S+ parameter\((\d+)\))")

    def with_sharding(found: re.Match[str]) -> str:
        spec = specs[int(found[2])]
        return found[1] if spec is None else f"{found[1]}, sharding={hlo_text(mesh, spec)}"

    body = call.sub(lambda m: f'custom_call_target="{_TARGET}"{m[1]}, sharding={m[2]}', text[entry:])
    return text[:entry] + parameter.sub(with_sharding, body)


def _annotated_stablehlo(text: str, mesh: AbstractMesh, specs: Sequence[Any]) -> str:
    call = re.compile(
        rf'"stablehlo.custom_call"\((%\w+)\) <\{{.*call_target_name = "{_TARGET}".*?\}}> : \(.*?\) -> \((.*)\)'
    )
    lines = text.splitlines()
    sizes = ", ".join(f'"{name}"={size}' for name, size in mesh.shape_tuple)
    counts = f"mhlo.num_partitions = {mesh.size} : i32, mhlo.num_replicas = 1 : i32"
    lines[0] = lines[0].replace(" {", f" attributes {{{counts}}} {{\n  sdy.mesh @mesh = <[{sizes}]>", 1)

    def constraint(found: re.Match[str]) -> str:
        sharding = re.search(r"<@mesh, \[.*?\].*?>", found[0].replace("\\22", '"').replace('\\"', '"'))
        assert sharding is not None
        return f"sdy.sharding_constraint {found[1]} {sharding[0]} : {found[2]}"

    def argument(found: re.Match[str]) -> str:
        spec = specs[int(found[1])]
        return found[0] if spec is None else f"{found[0]} {{sdy.sharding = #sdy.sharding{sdy_text(spec)}}}"

    for k, line in enumerate(lines):
        if "func.func public @main" in line:
            lines[k] = re.sub(r"%arg(\d+): tensor<[^>]*>", argument, line)
        else:
            lines[k] = call.sub(constraint, line)
    return "\n".join(lines) + "\n"


class GlobalModule:
    """The program of whole arrays as an object whose text it is."""

    def __init__(self, text: Callable[[], str]) -> None:
        self._text = text

    def __str__(self) -> str:
        return self._text()

    as_hlo_text = __str__
