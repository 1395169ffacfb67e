"""StableHLO in the Shardy dialect: the mesh, shardings of arguments, `sdy.sharding_constraint`, and
`sdy.manual_computation` for functions of parts, whose collective operations are over groups of devices.

Source: the documentation of Shardy, section "Sharding Representation"; the specification of StableHLO, section
"Distribution".
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np

from tinyxla.compiler.passes.expand import expand_to_hlo
from tinyxla.compiler.rewriter import Rewriter, rewrite
from tinyxla.hlo import Computation, Instruction, Literal, Module, map_computations
from tinyxla.ops import elementwise, movement
from tinyxla.ops.distributed.exchanges import partition_id, replica_id
from tinyxla.ops.distributed.replica_groups import REPLICAS
from tinyxla.text.mlir.ir import IntegerAttr, ModuleOp, OpaqueAttr, Value
from tinyxla.text.stablehlo import Body, module_op
from tinyxla.tracing.meshes import AbstractMesh
from tinyxla.tracing.shardings import UNCONSTRAINED, axes_of, sums_of, with_sums
from tinyxla.transforms.sharded import shard_map, sharding_constraint

_CHANNEL = 1  # of collective operations, as JAX numbers it
_KEPT = frozenset({sharding_constraint.name, shard_map.name})
Dimensions = Sequence[Sequence[Any] | None]  # the axes that each dimension is split along; None leaves one open


def sharded_module_op(
    module: Module, mesh: AbstractMesh, specs: Sequence[Dimensions | None], has_locations: bool
) -> ModuleOp:
    """A program of whole arrays over a mesh.

    Args:
        module: the program, without calls.
        mesh: its mesh, which is `@mesh` in the text.
        specs: how arguments are split; None for one that is not placed.
        has_locations: whether operations have the places in the program that they come from.
    """
    expanded = Module(module.name, expand_to_hlo(module.entry, _KEPT))
    made = module_op(expanded, has_locations, {sharding_constraint.name: _constraint, shard_map.name: _manual})
    sizes = ", ".join(f'"{name}"={size}' for name, size in mesh.shape_tuple)
    counts = {"mhlo.num_partitions": mesh.size, "mhlo.num_replicas": 1}
    made.attributes = {name: IntegerAttr(n, "i32") for name, n in counts.items()}
    made.attributes["sdy.mesh.mesh"] = OpaqueAttr(f"<[{sizes}]>")
    made.functions["main"].argument_attributes = [
        {} if spec is None else {"sdy.sharding": OpaqueAttr(f"#sdy.sharding{sharding_text(spec)}")} for spec in specs
    ]
    return made


def sharding_text(spec: Dimensions, is_open: bool = False) -> str:
    """A sharding: `<@mesh, [{"x"}, {?}], unreduced={"y"}>`.

    Args:
        spec: the axes of each dimension.
        is_open: whether all dimensions may be split further.
    """
    parts = ["{?}" if axes is None else _listed(axes, is_open) for axes in spec]
    unreduced = sorted(sums_of(spec).unreduced, key=str)
    return f"<@mesh, [{', '.join(parts)}]{f', unreduced={_listed(unreduced)}' if unreduced else ''}>"


def _listed(axes: Iterable[Any], is_open: bool = False) -> str:
    return "{" + ", ".join([*(f'"{name}"' for name in axes), *["?"] * is_open]) + "}"


def _constraint(body: Body, x: Instruction, operands: list[Value]) -> list[Value]:
    spec = [None if part is UNCONSTRAINED else axes_of(part) for part in x.attributes.spec]
    text = sharding_text(with_sums(spec, sums_of(x.attributes.spec)))
    return body.of(x, "sdy.sharding_constraint", operands, {"sharding": OpaqueAttr(f"#sdy.sharding{text}")})


def _manual(body: Body, x: Instruction, operands: list[Value]) -> list[Value]:
    """Along further axes that are not explicit, dimensions of arguments and results are open."""
    a = x.attributes
    is_open = not {*a.own_axes, *a.mesh.explicit_axes} >= {*a.mesh.axis_names}

    def shardings(specs: Sequence[Dimensions]) -> OpaqueAttr:
        return OpaqueAttr(f"#sdy.sharding_per_value<[{', '.join(sharding_text(spec, is_open) for spec in specs)}]>")

    attributes = {
        "in_shardings": shardings(a.in_specs),
        "out_shardings": shardings(a.out_specs),
        "manual_axes": OpaqueAttr(f"#sdy<manual_axes{_listed(a.own_axes)}>"),
    }
    region = body.region(over_devices(expand_to_hlo(a.to_apply, _KEPT), a.mesh), terminator="sdy.return")
    return body.of(x, "sdy.manual_computation", operands, {**attributes}, region)


def over_devices(computation: Computation, mesh: AbstractMesh) -> Computation:
    """A function of parts whose collective operations name devices by their numbers in a mesh, not its axes; in loops
    and branches, too. Functions of parts inside of it stay."""

    def visit(rewriter: Rewriter, x: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if x.op is shard_map:
            return None
        attributes = map_computations(x.attributes._asdict(), lambda inner: over_devices(inner, mesh))
        name = attributes.get("axis_name", REPLICAS)
        if x.op is replica_id and name in mesh.shape:
            return _axis_index(rewriter, mesh, name)
        if name in mesh.shape:
            attributes |= {"axis_name": REPLICAS, "channel_id": _CHANNEL} | _replica_groups(mesh, name, attributes)
        elif not any(x.computations()):
            return None
        return rewriter.emit(x.op, *operands, **attributes)

    return rewrite(computation, visit)


def _axis_index(rewriter: Rewriter, mesh: AbstractMesh, name: Hashable) -> Instruction:
    """The index of a device along an axis: its number over the devices of later axes, modulo the size of the axis."""
    k = mesh.axis_names.index(name)
    stride = int(np.prod(mesh.axis_sizes[k + 1 :]))

    def constant(n: int) -> Instruction:
        return rewriter.emit(movement.constant, literal=Literal(np.asarray(n, np.uint32)))

    number = rewriter.emit(partition_id, axis_name=REPLICAS, partition_count=1)
    return rewriter.emit(
        elementwise.rem, rewriter.emit(elementwise.div, number, constant(stride)), constant(mesh.axis_sizes[k])
    )


def _replica_groups(mesh: AbstractMesh, name: Hashable, attributes: dict[str, Any]) -> dict[str, Any]:
    """The replica groups, or the source-target pairs, of devices for those of indices along an axis: for each index
    along the others."""
    numbers = np.arange(mesh.size).reshape(mesh.axis_sizes)
    rows = np.moveaxis(numbers, mesh.axis_names.index(name), -1).reshape(-1, mesh.shape[name]).tolist()
    if "source_target_pairs" in attributes:
        pairs = attributes["source_target_pairs"]
        return {"source_target_pairs": tuple((row[i], row[j]) for row in rows for i, j in pairs)}
    groups = attributes["replica_groups"] or (range(mesh.shape[name]),)
    found: dict[str, Any] = {"replica_groups": tuple(tuple(row[k] for k in g) for row in rows for g in groups)}
    return found | ({"use_global_device_ids": True} if "use_global_device_ids" in attributes else {})
