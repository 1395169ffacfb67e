"""Computations whose parameters and results are tuples, brought to arrays.

In HLO a loop carries one tuple, and a tuple may hold tuples. Here what is run takes arrays and gives arrays: `Flatten`
puts the leaves of tuples in their place. Calls are flattened with what they call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tinyxla.hlo import Computation, Instruction, Literal
from tinyxla.ops import calls, hlo_only, movement
from tinyxla.ops.distributed import channels, collective_stages
from tinyxla.shapes import AnyShape, Shape, TupleShape

Tree = Instruction | tuple[Any, ...]  # a tuple whose elements are known is a tuple of trees
_CALLS = ("call", "fusion")
_DONE = (
    hlo_only.async_update,
    hlo_only.async_done,
    hlo_only.copy_done,
    collective_stages.all_gather_done,
    collective_stages.all_reduce_done,
    collective_stages.collective_permute_done,
    channels.send_done,
)
_STRUCTURAL = {hlo_only.async_start, *collective_stages.starts, *_DONE}


def leaf_shapes(shape: AnyShape) -> list[Shape]:
    """The arrays of a shape, in order."""
    return [shape] if isinstance(shape, Shape) else [leaf for part in shape.elements for leaf in leaf_shapes(part)]


def leaves(value: Any) -> list[Any]:
    """The leaves of nested tuples."""
    return [leaf for part in value for leaf in leaves(part)] if isinstance(value, tuple) else [value]


def regrouped(shape: AnyShape, parts: Iterator[Any]) -> Any:
    """Leaves as nested tuples of a shape."""
    return next(parts) if isinstance(shape, Shape) else tuple(regrouped(element, parts) for element in shape.elements)


def _gives_arrays(root: Instruction) -> bool:
    """Whether a result is an array, or a tuple that is made of arrays there."""
    if isinstance(root.shape, Shape):
        return True
    return root.op is calls.tuple_ and all(isinstance(element, Shape) for element in root.shape.elements)


class _Flattened:
    """The instructions of a new computation; the values of old ones are trees of them."""

    def __init__(self, flatten: Flatten) -> None:
        self.flatten = flatten
        self.instructions: list[Instruction] = []
        self._elements: dict[tuple[Instruction, int], Instruction] = {}

    def emit(self, op: Any, operands: Sequence[Instruction], attributes: Any, like: Instruction | None) -> Instruction:
        shape = op.shape(*(o.shape for o in operands), **attributes._asdict())
        if like is None:
            x = Instruction(op, operands, attributes, shape)
        else:  # the shape as it was, with its layout
            same = like.shape if like.shape == shape else shape
            x = Instruction(op, operands, attributes, same, like.source, like.name, like.annotations)
        self.instructions.append(x)
        return x

    def element(self, tree: Tree, index: int, like: Instruction | None = None) -> Tree:
        """One element of a tuple, taken out where it is not known."""
        if isinstance(tree, tuple):
            return tree[index]
        found = self._elements.get((tree, index))
        if found is None:
            found = self.emit(calls.get_tuple_element, (tree,), calls.GetTupleElement(index), like)
            self._elements[tree, index] = found
        return found

    def leaves(self, tree: Tree) -> list[Instruction]:
        """The arrays of a tree, each taken out of its tuple."""
        if isinstance(tree, Instruction) and isinstance(tree.shape, Shape):
            return [tree]
        return [leaf for part in self.taken_apart(tree) for leaf in self.leaves(part)]

    def taken_apart(self, tree: Tree) -> tuple[Tree, ...]:
        """The elements of a tuple."""
        count = len(tree) if isinstance(tree, tuple) else len(_elements(tree.shape))
        return tuple(self.element(tree, k) for k in range(count))

    def tree(self, tree: Tree) -> Tree:
        """The elements of a tuple, or an array as it is."""
        is_array = isinstance(tree, Instruction) and isinstance(tree.shape, Shape)
        return tree if is_array else self.taken_apart(tree)

    def _zeros(self, shapes: Sequence[Shape]) -> tuple[Instruction, ...]:
        literals = [Literal(np.zeros(s.dimensions, s.dtype)) for s in shapes]
        return tuple(self.emit(movement.constant, (), movement.Constant(x), None) for x in literals)

    def whole(self, tree: Tree, like: Instruction | None = None) -> Instruction:
        """A tree as one instruction."""
        if isinstance(tree, Instruction):
            return tree
        return self.emit(calls.tuple_, [self.whole(part) for part in tree], calls.tuple_.attributes(), like)

    def visit(self, x: Instruction, operands: Sequence[Tree]) -> Tree:
        """What stands for an instruction."""
        if x.op is calls.tuple_:
            return tuple(operands)
        if x.op is calls.get_tuple_element:
            return self.element(operands[0], x.attributes.index, x)
        if x.op is hlo_only.async_start:
            begun = self.visit(_as_fusion(x), operands)
            return (tuple(operands), begun, *self._zeros(x.attributes.state))
        start = collective_stages.starts.get(x.op)
        if start is not None:
            arrays = [self.whole(tree) for tree in operands]
            result = self.emit(start.begun, arrays, start.attributes(x.attributes), x)
            state = self._zeros(getattr(x.attributes, "state", ()))
            return start.context(tuple(operands), self.tree(result), state)
        if x.op in _DONE:
            return x.op.evaluate(*map(self.tree, operands))
        if x.op.name in _CALLS and not all(map(self.flatten.is_flat, x.computations())):
            flat = [leaf for tree in operands for leaf in self.leaves(tree)]
            changed = {
                name: self.flatten(value) if isinstance(value, Computation) else value
                for name, value in x.attributes._asdict().items()
            }
            made = self.emit(x.op, flat, x.op.attributes(**changed), x)
            return made if x.shape == made.shape else regrouped(x.shape, iter(self.leaves(made)))
        return self.emit(x.op, [self.whole(tree) for tree in operands], x.attributes, x)


def _as_fusion(x: Instruction) -> Instruction:
    """What an instruction begins, as one that does it."""
    attributes = hlo_only.Fusion("kCustom", x.attributes.calls)
    return Instruction(hlo_only.fusion, x.operands, attributes, x.attributes.calls.root.shape, x.source)


def _elements(shape: AnyShape) -> tuple[AnyShape, ...]:
    assert isinstance(shape, TupleShape), "an array has no elements"
    return shape.elements


class Flatten:
    """Computations brought to arrays: they take the leaves of all parameters in order, and give those of the result as
    one tuple (or the array that the result is). Each is done once, however often it is called."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[Computation, Computation]] = {}  # by identity: names matter here

    def is_flat(self, computation: Computation) -> bool:
        return self(computation) is computation

    def __call__(self, computation: Computation) -> Computation:
        if id(computation) not in self._found:
            made = computation if self._takes_and_gives_arrays(computation) else self._flattened(computation)
            self._found[id(computation)] = (computation, made)
        return self._found[id(computation)][1]

    def _takes_and_gives_arrays(self, computation: Computation) -> bool:
        if not all(isinstance(shape, Shape) for shape in computation.parameter_shapes):
            return False
        called = [c for x in computation.instructions if x.op.name in _CALLS for c in x.computations()]
        regroups = any(x.op in _STRUCTURAL for x in computation.instructions)
        return _gives_arrays(computation.root) and not regroups and all(map(self.is_flat, called))

    def _flattened(self, computation: Computation) -> Computation:
        flat = _Flattened(self)
        names = _elements_taken(computation)
        values: dict[Instruction, Tree] = {}
        parameters: dict[Instruction, list[Instruction]] = {}
        number = 0
        for p in computation.parameters:
            parameters[p] = [
                Instruction(movement.parameter, (), movement.Parameter(number + k, shape), shape)
                for k, shape in enumerate(leaf_shapes(p.shape))
            ]
            number += len(parameters[p])
        for x in computation.instructions:
            if x in parameters:
                flat.instructions += parameters[x]
                values[x] = regrouped(x.shape, iter(parameters[x]))
                _name(x, parameters[x], names)
            elif x is not computation.root or x.op is not calls.tuple_:
                values[x] = flat.visit(x, [values[o] for o in x.operands])
        root = computation.root
        result = tuple(values[o] for o in root.operands) if root not in values else values[root]
        if isinstance(root.shape, TupleShape):
            found = tuple(flat.leaves(result))
            made = flat.whole(found, root if root.op is calls.tuple_ else None)
        else:
            made = flat.whole(result)
        new = [x for p in computation.parameters for x in parameters[p]]
        return Computation(computation.name, new, flat.instructions, made)


def _elements_taken(computation: Computation) -> dict[tuple[Instruction, int], Instruction]:
    """Where the elements of parameters are taken out first: what they are called there is what they are called."""
    names: dict[tuple[Instruction, int], Instruction] = {}
    for x in computation.instructions:
        if x.op is calls.get_tuple_element and x.operands[0].op is movement.parameter:
            names.setdefault((x.operands[0], x.attributes.index), x)
    return names


def _name(x: Instruction, found: list[Instruction], names: dict[tuple[Instruction, int], Instruction]) -> None:
    if isinstance(x.shape, Shape):
        (only,) = found
        only.name, only.annotations, only.source = x.name, x.annotations, x.source
    elif all(isinstance(element, Shape) for element in x.shape.elements):
        for k, leaf in enumerate(found):
            taken = names.get((x, k))
            if taken is not None:
                leaf.name, leaf.annotations, leaf.source = taken.name, taken.annotations, taken.source
