"""Sharding propagation: from the shardings of arguments, results and constraints those of all values of a program.

The sharding rules of instructions (`tinyxla.ops.op.Factors`) say which dimensions are split alike. What is known of one
of them holds for the others, forwards and backwards to a fixed point; in loops and branches, what is handed on has one
sharding everywhere. What is known first stays: so instructions that only hand dimensions on come before those that
combine arrays, and these before those that need elements of other parts.

Source: "GSPMD: General and Scalable Parallelization for ML Computation Graphs" (Xu et al., 2021), section 3.5.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from tinyxla.compiler.passes.inline_calls import inline_calls
from tinyxla.hlo import Computation, Instruction
from tinyxla.ops import calls
from tinyxla.ops.op import Dimensions, Factors
from tinyxla.ops.tuples import leaf_shapes
from tinyxla.shapes import Shape
from tinyxla.tracing.meshes import AbstractMesh
from tinyxla.tracing.shardings import UNCONSTRAINED, Spec, axes_of
from tinyxla.transforms.calls import Partitioning

Leaf = tuple[Instruction, int]  # an array: the result of an instruction, or an element of its tuple


class Link(NamedTuple):
    """Arrays whose dimensions of one factor are split alike; `even` factors only where all of them divide. With `infer`
    a function gives the shardings of the last ones from those of the first `known` ones."""

    leaves: tuple[Leaf, ...]
    dimensions: tuple[Dimensions, ...]
    even: Mapping[int, Sequence[int]] = MappingProxyType({})  # their sizes
    infer: Callable[[Sequence[Spec]], Sequence[Spec]] | None = None
    known: int = 0


def _link(operands: Sequence[Leaf], results: Sequence[Leaf], factors: Factors) -> Link:
    """The link of an instruction with a sharding rule."""
    leaves, dimensions = (*operands, *results), (*factors.operands, *factors.results)
    first: dict[int, int] = {}
    sizes: dict[int, set[int]] = {factor: {n} for factor, n in factors.sizes}
    for leaf, own in zip(leaves, dimensions, strict=True):
        for factor, n in zip(own, _sizes(leaf), strict=True):
            if factor is None or factor in factors.communicating:
                continue
            if factor in sizes or first.setdefault(factor, n) != n:
                sizes.setdefault(factor, {first.get(factor, n)}).add(n)
    return Link(leaves, dimensions, {factor: tuple(found) for factor, found in sizes.items()})


# Collective operations of functions of parts, whose dimensions may be split along axes of others: all of them, but for
# one that an attribute names.
_COLLECTIVES = {
    **dict.fromkeys(("all-reduce", "collective-permute", "psum-invariant", "pvary", "recast"), None),
    "all-gather": "all_gather_dimension",
    "reduce-scatter": "scatter_dimension",
}


def factors_of(x: Instruction) -> Factors:
    """The sharding rule of an instruction; without one everything is whole."""
    shapes = [o.shape for o in x.operands]
    if x.op.name in _COLLECTIVES and len(shapes) == 1 and isinstance(shapes[0], Shape):
        name = _COLLECTIVES[x.op.name]
        moved = None if name is None else getattr(x.attributes, name)
        own = tuple(None if d == moved else d for d in range(shapes[0].rank))
        return Factors((own,), (own,))
    if x.op.sharding is not None and all(isinstance(s, Shape) for s in shapes):
        return x.op.sharding(*shapes, **x.attributes._asdict())
    whole = tuple((None,) * s.rank for o in x.operands for s in leaf_shapes(o.shape))
    return Factors(whole, tuple((None,) * s.rank for s in leaf_shapes(x.shape)))


def leaves_of(x: Instruction) -> list[Leaf]:
    """The arrays that a value consists of."""
    if x.op is calls.tuple_:
        return [leaf for o in x.operands for leaf in leaves_of(o)]
    if x.op is calls.get_tuple_element:
        return [leaves_of(x.operands[0])[x.attributes.index]]
    return [(x, k) for k in range(len(leaf_shapes(x.shape)))]


def _sizes(leaf: Leaf) -> tuple[int, ...]:
    shape = leaf[0].shape
    if isinstance(shape, Shape):
        return shape.dimensions
    return leaf_shapes(leaf[0].shape)[leaf[1]].dimensions


def propagate(
    computation: Computation,
    mesh: Mapping[Hashable, int],
    inputs: Sequence[Spec],
    devices: AbstractMesh,
) -> dict[Leaf, Spec]:
    """The sharding of each array in a computation and those that it calls.

    Args:
        mesh: the sizes of the axes.
        inputs: the shardings of the parameters.
        devices: the mesh itself.
    """
    return _Propagation(mesh, devices).run(computation, inputs)


class PartsOfParts(NamedTuple):
    """Shardings around and inside of a `shard-map` that is about some axes of the mesh: along the others, which the
    compiler decides about, the parts that its function is of are split further.

    Attributes:
        mesh: the sizes of these others.
        operands: the shardings of the operands, by the specs and then along others.
        parameters: those of the function's parameters, along others.
    """

    mesh: Mapping[Hashable, int]
    operands: tuple[Spec, ...]
    parameters: tuple[Spec, ...]

    @classmethod
    def of(cls, x: Instruction, mesh: Mapping[Hashable, int], given: Sequence[Spec]) -> PartsOfParts:
        """Of operands that have these shardings. Parts are split along others only where these divide them evenly."""
        others = {name: n for name, n in mesh.items() if name not in x.attributes.own_axes}

        def kept(axes: Sequence[Hashable], n: int) -> tuple[Hashable, ...]:
            found = tuple(name for name in axes if name in others)
            return found if n % math.prod(others[name] for name in found) == 0 else ()

        shapes = [p.array_shape.dimensions for p in x.attributes.to_apply.parameters]
        parameters = tuple(tuple(map(kept, spec, sizes)) for spec, sizes in zip(given, shapes, strict=True))
        return cls(others, joined_specs(x.attributes.in_specs, parameters), parameters)


def joined_specs(outer: Sequence[Spec], inner: Sequence[Spec]) -> tuple[Spec, ...]:
    """The shardings of arrays that are split by outer specs, and whose parts are by inner ones."""
    return tuple(
        tuple((*a, *b) for a, b in zip(one, other, strict=True)) for one, other in zip(outer, inner, strict=True)
    )


class _Propagation:
    def __init__(self, mesh: Mapping[Hashable, int], devices: AbstractMesh) -> None:
        self.mesh = mesh
        self.devices = devices
        self.specs: dict[Leaf, list[tuple[Any, ...]]] = {}
        self.closed: set[Leaf] = set()  # whose whole dimensions stay whole
        self.initial: dict[Leaf, Spec] = {}  # the shardings that results of a `shard-map` have at least
        self.links: tuple[list[Link], ...] = ([], [], [])  # those that hand on, that combine, and that communicate

    def run(self, computation: Computation, inputs: Sequence[Spec]) -> dict[Leaf, Spec]:
        self._collect(computation)
        for parameter, spec in zip(computation.parameters, inputs, strict=True):
            self._close((parameter, 0), spec)
        using: dict[Leaf, list[int]] = {}
        links: list[Link] = []
        for more in self.links:
            for k, link in enumerate(more, len(links)):
                for leaf in dict.fromkeys(link.leaves):
                    using.setdefault(leaf, []).append(k)
            known = len(links)
            links += more
            self._to_fixed_point(links, using, known)
        return {leaf: tuple(spec) for leaf, spec in self.specs.items()}

    def _to_fixed_point(self, links: Sequence[Link], using: Mapping[Leaf, list[int]], known: int) -> None:
        """Sweeps forwards and backwards, over links of which something new is known; at first, of links after the first
        `known`, whose arrays are split."""
        split = (leaf for leaf, spec in self.specs.items() if any(spec))
        waiting, sign = {k for leaf in split for k in using.get(leaf, ()) if k >= known}, 1
        while waiting:
            sweep, later = [sign * k for k in waiting], set[int]()
            heapq.heapify(sweep)
            queued = set(waiting)
            while sweep:
                k = sign * heapq.heappop(sweep)
                queued.discard(k)
                for leaf in self._spread(links[k]):
                    for other in using[leaf]:
                        if (other - k) * sign <= 0:
                            later.add(other)
                        elif other not in queued:
                            queued.add(other)
                            heapq.heappush(sweep, sign * other)
            waiting, sign = later, -sign

    def _close(self, leaf: Leaf, spec: Spec) -> None:
        self.specs[leaf] = list(spec)
        self.closed.add(leaf)

    def _collect(self, computation: Computation) -> None:
        for x in computation.instructions:
            if x.op in (calls.tuple_, calls.get_tuple_element):
                continue
            for leaf in leaves_of(x):
                self.specs.setdefault(leaf, [()] * len(_sizes(leaf)))
            for inner in x.computations():
                if x.op.name in _CALLING and _partitioning(x) is None:
                    self._collect(inner)
            self._add_links(x)

    def _add_links(self, x: Instruction) -> None:
        operands = [leaf for o in x.operands for leaf in leaves_of(o)]
        results = leaves_of(x)
        partitioning = _partitioning(x)
        if partitioning is not None:
            self._add_call(x, partitioning, operands, results)
        elif x.op.name in _CALLING:
            for group in _CALLING[x.op.name](x, operands, results):
                self.links[0].append(Link(tuple(group), (tuple(range(len(_sizes(group[0])))),) * len(group)))
        elif x.op.name == "sharding-constraint":
            self._constrain(x, operands[0], results[0])
        elif x.op.name == "shard-map":
            self._add_parts(x, operands, results)
        else:
            self._add_factors(factors_of(x), operands, results)

    def _add_factors(self, factors: Factors, operands: Sequence[Leaf], results: Sequence[Leaf]) -> None:
        plain = factors.without(factors.communicating)
        self.links[bool(plain.reductions)].append(_link(operands, results, plain))
        if factors.communicating:
            self.links[2].append(_link(operands, results, factors))

    def _add_call(
        self, x: Instruction, partitioning: Partitioning, operands: Sequence[Leaf], results: Sequence[Leaf]
    ) -> None:
        """The links of a call that says itself how it is partitioned."""
        given = [s for o in x.operands for s in leaf_shapes(o.shape)]
        shapes = leaf_shapes(x.shape)
        infer = partitioning.infer
        if infer is None:
            self._add_factors(partitioning.factors(self.devices, given, shapes), operands, results)
            return

        def inferred(specs: Sequence[Spec]) -> Sequence[Spec]:
            return infer(self.devices, list(zip(given, specs, strict=True)), shapes)

        self.links[0].append(Link((*operands, *results), (), infer=inferred, known=len(operands)))

    def _add_parts(self, x: Instruction, operands: Sequence[Leaf], results: Sequence[Leaf]) -> None:
        """A `shard-map`: its specs say how results are split, and along axes that it is not about its function."""
        for leaf, spec in zip(results, x.attributes.out_specs, strict=True):
            self._close(leaf, spec)
        if self.mesh.keys() <= {*x.attributes.own_axes}:
            return
        inner = inline_calls(x.attributes.to_apply)

        def inferred(specs: Sequence[Spec]) -> Sequence[Spec]:
            parts = PartsOfParts.of(x, self.mesh, specs)
            found = propagate(inner, parts.mesh, parts.parameters, self.devices)
            return joined_specs(x.attributes.out_specs, [found[leaf] for leaf in leaves_of(inner.root)])

        self.closed.difference_update(results)
        self.initial.update(zip(results, x.attributes.out_specs, strict=True))
        self.links[0].append(Link((*operands, *results), (), infer=inferred, known=len(operands)))

    def _constrain(self, x: Instruction, operand: Leaf, result: Leaf) -> None:
        spec = x.attributes.spec
        self.specs[result] = [axes_of(part) for part in spec]
        free = [d for d, part in enumerate(spec) if part is UNCONSTRAINED]
        if not free:
            self.closed.add(result)
        names = tuple(range(len(spec)))
        self.links[0].append(Link((result, operand), (names, names)))

    def _spread(self, link: Link) -> list[Leaf]:
        """Hand on what is known of a factor to all its dimensions; the arrays of which that says something new."""
        if link.infer is not None:
            return self._infer(link, link.infer)
        known: dict[int, tuple[Any, ...]] = {}
        specs = [self.specs[leaf] for leaf in link.leaves]
        for spec, dimensions in zip(specs, link.dimensions, strict=True):
            for axes, factor in zip(spec, dimensions, strict=True):
                if axes and factor is not None and len(axes) > len(known.get(factor, ())):
                    known[factor] = axes
        changed: list[Leaf] = []
        if not known:
            return changed
        for leaf, dimensions in zip(link.leaves, link.dimensions, strict=True):
            if leaf in self.closed:
                continue
            spec, sizes = self.specs[leaf], _sizes(leaf)
            for d, factor in enumerate(dimensions):
                if factor is None or factor not in known:
                    continue
                axes, own = known[factor], spec[d]
                if len(axes) <= len(own) or axes[: len(own)] != own:
                    continue
                used = {name for k, other in enumerate(spec) if k != d for name in other}
                if used.isdisjoint(axes) and self._fits(axes, sizes[d], link.even.get(factor, ())):
                    spec[d] = axes
                    changed.append(leaf)
        return changed

    def _infer(self, link: Link, infer: Callable[[Sequence[Spec]], Sequence[Spec]]) -> list[Leaf]:
        """The shardings of results of which nothing is known, from those of operands."""
        given, results = link.leaves[: link.known], link.leaves[link.known :]
        specs = [tuple(self.specs[leaf]) for leaf in given]
        unknown = [leaf for leaf in results if leaf not in self.closed and self._is_unknown(leaf)]
        if not unknown or not any(map(any, specs)):
            return []
        found = dict(zip(results, infer(specs), strict=True))
        changed = [leaf for leaf in unknown if any(found[leaf]) and list(found[leaf]) != self.specs[leaf]]
        for leaf in changed:
            self.specs[leaf] = list(found[leaf])
        return changed

    def _is_unknown(self, leaf: Leaf) -> bool:
        """Whether an array is split by no more than what it is at least."""
        least = self.initial.get(leaf)
        return not any(self.specs[leaf]) if least is None else self.specs[leaf] == list(least)

    def _fits(self, axes: tuple[Any, ...], size: int, even: Sequence[int]) -> bool:
        """Whether a dimension can be split: it has an element for each part, and sizes that must be divide."""
        count = math.prod(self.mesh[name] for name in axes)
        return size >= count and all(n % count == 0 for n in even)


def _partitioning(x: Instruction) -> Partitioning | None:
    """How a call is partitioned, if it says that itself."""
    return x.attributes.partitioning if x.op.name == "call" else None


def _of_while(x: Instruction, operands: list[Leaf], results: list[Leaf]) -> Iterator[tuple[Leaf, ...]]:
    condition, body = x.attributes.condition, x.attributes.body
    parameters = (((p, 0) for p in c.parameters) for c in (condition, body))
    return zip(operands, results, *parameters, leaves_of(body.root), strict=True)


def _of_conditional(x: Instruction, operands: list[Leaf], results: list[Leaf]) -> Iterator[tuple[Leaf, ...]]:
    branches = x.attributes.branch_computations
    yield from zip(operands[1:], *([(p, 0) for p in b.parameters] for b in branches), strict=True)
    yield from zip(results, *(leaves_of(b.root) for b in branches), strict=True)


def _of_call(x: Instruction, operands: list[Leaf], results: list[Leaf]) -> Iterator[tuple[Leaf, ...]]:
    yield from zip(operands, ((p, 0) for p in x.attributes.to_apply.parameters), strict=True)
    yield from zip(results, leaves_of(x.attributes.to_apply.root), strict=True)


_CALLING = {"while": _of_while, "conditional": _of_conditional, "call": _of_call}
