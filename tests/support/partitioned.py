"""Partitioned programs run on all devices of a mesh side by side, as lanes, next to the unpartitioned ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tests.support.op_checks import RELATIVE, comparable
from tinyxla.compiler.passes.inline_calls import inline_calls
from tinyxla.hlo import Computation
from tinyxla.ops import calls
from tinyxla.partitioning.spmd import partition
from tinyxla.shapes import Shape, element_type
from tinyxla.tracing.core import trace
from tinyxla.tracing.shardings import Spec, splitting
from tinyxla.transforms.sharded import over_axes

Mesh = Mapping[Hashable, int]
MESHES: tuple[Mesh, ...] = ({"x": 4}, {"x": 2, "y": 2}, {"x": 3, "y": 2})
COLLECTIVES = ("all-gather", "all-reduce", "all-to-all", "collective-permute", "reduce-scatter")


def random_spec(random: np.random.Generator, sizes: Sequence[int], mesh: Mesh) -> Spec:
    """Axes for some of the dimensions that they divide."""
    free = list(mesh)
    random.shuffle(free)
    spec: list[tuple[Any, ...]] = []
    for n in sizes:
        axes: list[Any] = []
        while free and n and n % (np.prod([mesh[a] for a in axes], dtype=int) * mesh[free[-1]]) == 0:
            if random.random() < 0.3:
                break
            axes.append(free.pop())
        spec.append(tuple(axes))
    return tuple(spec)


def on_devices(computation: Computation, mesh: Mesh, specs: Sequence[Spec], arrays: Sequence[Any]) -> list[Any]:
    """The results of a partitioned program, put together from the parts of all devices."""
    axes = tuple(mesh.items())
    program = partition(inline_calls(computation), mesh, specs)
    blocks: list[Any] = []
    for x, spec in zip(arrays, specs, strict=True):
        made = splitting(x.shape, spec, axes)
        blocks.append(np.array(np.asarray(x).reshape(made.sizes).transpose(made.permutation), order="C"))
    shapes = [Shape.of(x) for x in blocks]
    side_by_side, _, _ = trace(
        lambda *x: over_axes(program.computation, axes, x, specs, program.outputs), shapes, "devices"
    )
    found = calls.evaluate(side_by_side, blocks)
    outputs = [x.array_shape.dimensions for x in computation.outputs]
    return [_joined(np.asarray(x), n, s, axes) for x, n, s in zip(found, outputs, program.outputs, strict=True)]


def _joined(x: Any, sizes: Sequence[int], spec: Spec, axes: Sequence[tuple[Any, int]]) -> Any:
    permutation, split = splitting(sizes, spec, axes).inverse
    return x.reshape(tuple(x.shape[k] for k in permutation)).reshape(split).transpose(permutation).reshape(sizes)


def check_partitioned(computation: Computation, mesh: Mesh, specs: Sequence[Spec], arrays: Sequence[Any]) -> None:
    """A partitioned program gives what the unpartitioned one does: exactly, but for the rounding of sums of floats."""
    with np.errstate(all="ignore"):
        expected = calls.evaluate(computation, arrays)
        actual = on_devices(computation, mesh, specs, arrays)
    expected = expected if isinstance(expected, tuple) else (expected,)
    what = f"{computation.name} over {dict(mesh)} from {list(specs)}"
    for x, y in zip(actual, expected, strict=True):
        assert x.dtype == y.dtype, what
        bound = 30 * RELATIVE.get(element_type(x.dtype).name, 0.0)
        scale = max(1.0, float(np.abs(comparable(y)[np.isfinite(comparable(y))]).max(initial=0)))
        np.testing.assert_allclose(comparable(x), comparable(y), bound, bound * scale, err_msg=what)


def collectives_of(computation: Computation, mesh: Mesh, specs: Sequence[Spec]) -> dict[str, int]:
    """How many collective operations of each kind the program of a device has, in loops and branches too."""
    return dict(Counter(_opcodes(partition(inline_calls(computation), mesh, specs).computation)))


def _opcodes(computation: Computation) -> Iterator[str]:
    for x in computation.instructions:
        if x.op.name in COLLECTIVES:
            yield x.op.name
        for inner in x.computations():
            yield from _opcodes(inner)
