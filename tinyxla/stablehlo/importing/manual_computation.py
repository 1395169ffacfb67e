"""`sdy.manual_computation`: a function of the parts that the devices of a mesh have, as the operation `shard-map`.

Inside, collective operations name devices by their numbers in the mesh. Their groups are those along axes of the mesh,
over which the operations of this library are.

Source: the documentation of Shardy, section "sdy.manual_computation"; the specification of StableHLO, section
"Distribution".
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinyxla import lax
from tinyxla.errors import ArgumentError
from tinyxla.ops.op import ops
from tinyxla.stablehlo.importing.evaluation import Context, Evaluation, Rule, shape_of
from tinyxla.text.mlir.ir import OpaqueAttr
from tinyxla.tracing.core import trace, with_axes
from tinyxla.tracing.meshes import AbstractMesh
from tinyxla.tracing.shardings import Spec
from tinyxla.transforms.sharded import shard_map

Pairs = Sequence[tuple[int, ...]]
_AXIS = r'"([^"]+)"'


def _manual_computation(context: Context, *operands: Any) -> Any:
    """The function of parts, over the axes that it is manual along; along others arrays are whole."""
    ins, outs = _text(context, "in_shardings"), _text(context, "out_shardings")
    axes = tuple(re.findall(_AXIS, _text(context, "manual_axes")))
    mesh = _mesh(context, ins + outs)
    made, captured = _function(context, mesh, axes)
    whole = tuple(((),) * x.ndim for x in captured)
    return shard_map(
        *operands,
        *captured,
        to_apply=made,
        mesh=mesh,
        in_specs=(*_specs(context, ins, axes), *whole),
        out_specs=_specs(context, outs, axes),
        manual_axes=axes if len(axes) < len(mesh.axis_names) else (),
    )


def _function(context: Context, mesh: AbstractMesh, axes: tuple[str, ...]) -> Any:
    """The region as a computation, and the values of outside that it uses."""
    outer = context.evaluation
    region = context.operation.regions[0]
    evaluation = Evaluation(outer.module, {**outer.rules, **_rules(mesh)})
    shapes = [shape_of(x.type) for x in region.block.arguments]

    def function(*parts: Any) -> list[Any]:
        return evaluation.region(region, parts, context.environment)

    made, captured, _ = with_axes({name: mesh.shape[name] for name in axes}, lambda: trace(function, shapes, "parts"))
    return made, captured


def _text(context: Context, name: str) -> str:
    """An attribute of Shardy without spaces between its tokens."""
    given = context.entries.get(name)
    if not isinstance(given, OpaqueAttr):
        raise context.refuse(name, "an attribute of Shardy")
    return re.sub(r"\s*([<>\[\]{},@:=()])\s*", r"\1", given.text)


def _mesh(context: Context, shardings: str) -> AbstractMesh:
    """The mesh of the module that shardings name; without arrays, the first one."""
    meshes = {k: v for k, v in context.evaluation.module.attributes.items() if k.startswith("sdy.mesh.")}
    names = re.findall(r"@([\w$.]+)", shardings)
    found = meshes.get(f"sdy.mesh.{names[0]}") if names else next(iter(meshes.values()), None)
    if not isinstance(found, OpaqueAttr):
        raise ArgumentError(f"{context.operation.name}: the module has no mesh {names[0] if names else ''}.")
    axes = re.findall(_AXIS + r"\s*=\s*(\d+)", found.text)
    return AbstractMesh(tuple(int(size) for _, size in axes), tuple(name for name, _ in axes))


def _specs(context: Context, text: str, axes: Sequence[str]) -> tuple[Spec, ...]:
    """How arrays are split along the manual axes, from `[<@mesh, [{"x", ?}, {}]>, ...]`."""
    for what, pattern in (("parts of axes", _AXIS + r":\("), ("unreduced arrays", "unreduced=")):
        if re.search(pattern, text):
            raise ArgumentError(f"{context.operation.name}: {what} are not supported, but there is {text}.")
    found: list[Spec] = []
    for dimensions in re.findall(r"<@[\w$.]+,\[(.*?)\][^\]\[<>]*>", text):
        parts = re.findall(r"\{([^}]*)\}", dimensions)
        found.append(tuple(tuple(name for name in re.findall(_AXIS, part) if name in axes) for part in parts))
    return tuple(found)


# --- collective operations of parts -----------------------------------------------------------------------------------


def _rules(mesh: AbstractMesh) -> dict[str, Rule]:
    """The rules of operations that name the devices of a mesh."""
    named = {
        "all_reduce": _all_reduce,
        "all_gather": _all_gather,
        "reduce_scatter": _reduce_scatter,
        "all_to_all": _all_to_all,
    }

    def of_groups(rule: Callable[..., Any]) -> Rule:
        return lambda context, *operands: rule(context, _axes_of_groups(context, mesh), *operands)

    found: dict[str, Rule] = {f"stablehlo.{name}": of_groups(rule) for name, rule in named.items()}
    found["stablehlo.collective_permute"] = lambda context, x: _permute(context, mesh, x)
    found["stablehlo.partition_id"] = lambda context: lax.convert_element_type(
        lax.axis_index(tuple(mesh.axis_names)), np.uint32
    )
    return found


def _axes_of_groups(context: Context, mesh: AbstractMesh) -> tuple[str, ...]:
    """The axes along which the devices of each group lie, the first one varying slowest."""
    groups = sorted(tuple(n for n in group if n >= 0) for group in context.matrix("replica_groups"))
    sizes = mesh.axis_sizes
    numbers = np.arange(mesh.size).reshape(sizes)
    places = np.array(np.unravel_index(groups[0], sizes)) if groups else np.zeros((len(sizes), 1))
    moving = [k for k in range(len(sizes)) if len({*places[k]}) > 1]
    others = [k for k in range(len(sizes)) if k not in moving]
    for order in itertools.permutations(moving):
        rows = numbers.transpose(*others, *order).reshape(-1, math.prod(sizes[k] for k in moving))
        if sorted(map(tuple, rows.tolist())) == groups:
            return tuple(mesh.axis_names[k] for k in order)
    raise ArgumentError(
        f"{context.operation.name}: groups must be the devices along axes of {mesh}, but are {groups}; others are not "
        "supported in sdy.manual_computation."
    )


def _all_reduce(context: Context, axes: tuple[str, ...], *operands: Any) -> Any:
    to_apply = context.computation(0, True)
    for name in axes:
        found = ops["all-reduce"](*operands, to_apply=to_apply, axis_name=name)
        operands = found if isinstance(found, tuple) else (found,)
    return operands


def _all_gather(context: Context, axes: tuple[str, ...], *operands: Any) -> Any:
    dimension = context.integer("all_gather_dim")
    return tuple(lax.all_gather(x, axes, axis=dimension, tiled=True) if axes else x for x in operands)


def _reduce_scatter(context: Context, axes: tuple[str, ...], x: Any) -> Any:
    given = {"to_apply": context.computation(0, True), "scatter_dimension": context.integer("scatter_dimension")}
    for name in axes:
        x = ops["reduce-scatter"](x, shard_count=lax.axis_size(name), axis_name=name, **given)
    return x


def _all_to_all(context: Context, axes: tuple[str, ...], *operands: Any) -> Any:
    split, joined = context.integer("split_dimension"), context.integer("concat_dimension")
    return tuple(lax.all_to_all(x, axes, split, joined, tiled=True) if axes else x for x in operands)


def _permute(context: Context, mesh: AbstractMesh, x: Any) -> Any:
    """Pairs of devices as pairs along axes, if they are alike along the others; else along all axes."""
    pairs = context.matrix("source_target_pairs")
    sizes = mesh.axis_sizes
    ends = [np.array(np.unravel_index([pair[k] for pair in pairs], sizes)) for k in range(2)]
    moving = [k for k in range(len(sizes)) if (ends[0][k] != ends[1][k]).any()] if pairs else []
    if not moving:
        return x
    own = [np.ravel_multi_index(tuple(end[moving]), tuple(sizes[k] for k in moving)).tolist() for end in ends]
    along = sorted({*zip(*own, strict=True)})
    if len(along) * mesh.size == len(pairs) * math.prod(sizes[k] for k in moving):
        return lax.ppermute(x, tuple(mesh.axis_names[k] for k in moving), along)
    return lax.ppermute(x, tuple(mesh.axis_names), [(source, target) for source, target in pairs])


MANUAL_RULES: dict[str, Rule] = {"sdy.manual_computation": _manual_computation}
