"""Transfers as HLO has them: with tuples where the graph has arrays.

In HLO an infeed gives the tuple of its data (itself a tuple, where it is one) and a token; an outfeed takes one operand
beside the token; what Recv gives goes to RecvDone whole; and what Send gives goes to SendDone, which gives the token.
"""

from __future__ import annotations

from typing import Any

from tinyxla.hlo import Computation, Instruction
from tinyxla.ops import calls
from tinyxla.ops.distributed import channels
from tinyxla.shapes import AnyShape, Shape, TupleShape

_TRANSFERS = (channels.infeed, channels.outfeed, channels.recv_done, channels.send)


def with_contexts(computation: Computation) -> Computation:
    """The computation with its transfers in the form of HLO; the same if there are none."""
    if not any(x.op in _TRANSFERS for x in computation.instructions):
        return computation
    writer = _Writer(computation)
    for x in computation.instructions:
        writer.visit(x)
    parameters = [writer.new[x] for x in computation.parameters]
    return Computation(computation.name, parameters, writer.instructions, writer.value(computation.root))


class _Writer:
    def __init__(self, computation: Computation) -> None:
        self.new: dict[Instruction, Instruction] = {}
        self.instructions: list[Instruction] = []
        self.data: dict[Instruction, Instruction] = {}  # of an infeed
        self.tokens: dict[Instruction, Instruction] = {}  # of an infeed or a send
        users: dict[Instruction, list[Instruction]] = {}
        for x in computation.instructions:
            for o in x.operands:
                users.setdefault(o, []).append(x)
        self.users = users
        self.root = computation.root

    def emit(
        self, op: Any, operands: list[Instruction], attributes: Any, shape: AnyShape, like: Instruction | None = None
    ) -> Instruction:
        if like is None:
            made = Instruction(op, operands, attributes, shape)
        else:
            made = Instruction(
                op, operands, attributes, shape, like.source, like.name, like.annotations, like.origin or like
            )
        self.instructions.append(made)
        return made

    def element(self, x: Instruction, index: int, like: Instruction | None = None) -> Instruction:
        assert isinstance(x.shape, TupleShape), "an array has no elements"
        return self.emit(calls.get_tuple_element, [x], calls.GetTupleElement(index), x.shape.elements[index], like)

    def tuple(self, parts: list[Instruction], like: Instruction | None = None) -> Instruction:
        shape = TupleShape(tuple(x.shape for x in parts))
        return self.emit(calls.tuple_, parts, calls.tuple_.attributes(), shape, like)

    def value(self, x: Instruction) -> Instruction:
        """What stands for an instruction: for an infeed of a tuple, the flat tuple that it is in the graph."""
        if x not in self.data:
            return self.new[x]
        data = self.data[x]
        assert isinstance(data.shape, TupleShape), "of arrays, that is kept as it is"
        return self.tuple([*(self.element(data, k) for k in range(len(data.shape.elements))), self.tokens[x]])

    def visit(self, x: Instruction) -> None:
        if x.op is calls.get_tuple_element and x.operands[0].op in (channels.infeed, channels.recv, channels.send):
            self._taken(x, x.operands[0], x.attributes.index)
        elif x.op is channels.infeed and isinstance(x.attributes.shape, TupleShape):
            self._infeed(x)
        elif x.op is channels.outfeed:
            self._outfeed(x)
        elif x.op is channels.recv_done:
            context = self._context(x)
            self.new[x] = self.emit(x.op, [context], x.attributes, x.shape, x)
        else:
            operands = [self.value(o) for o in x.operands]
            same = operands == list(x.operands)
            self.new[x] = x if same else self.emit(x.op, operands, x.attributes, x.shape, x)
            if same:
                self.instructions.append(x)
            if x.op is channels.send and not any(user.op is channels.send_done for user in self.users.get(x, ())):
                self.tokens[x] = self._sent(x)

    def _sent(self, x: Instruction) -> Instruction:
        done = channels.send_done
        made = self.emit(done, [self.new[x]], done.attributes(), x.shape.elements[2])  # pyright: ignore[reportAttributeAccessIssue]
        flag = {"is_host_transfer": "true"} if x.attributes.is_host_transfer else {}
        made.annotations = {"channel_id": str(x.attributes.channel_id), **flag}
        return made

    def _infeed(self, x: Instruction) -> None:
        token = x.shape.elements[-1]  # pyright: ignore[reportAttributeAccessIssue]
        shape = TupleShape((TupleShape(x.shape.elements[:-1]), token))  # pyright: ignore[reportAttributeAccessIssue]
        self.new[x] = self.emit(x.op, [self.value(o) for o in x.operands], x.attributes, shape, x)
        self.data[x] = self.element(self.new[x], 0)
        self.tokens[x] = self.element(self.new[x], 1)

    def _outfeed(self, x: Instruction) -> None:
        *arrays, token = [self.value(o) for o in x.operands]
        data = arrays[0] if len(arrays) == 1 else self.tuple(arrays)
        self.new[x] = self.emit(x.op, [data, token], x.attributes, x.shape, x)
        self.new[x].annotations = {"outfeed_shape": data.shape.text(), **x.annotations}

    def _context(self, x: Instruction) -> Instruction:
        """What Recv gave, where the operands are just its elements."""
        given = x.operands[0].operands[0] if x.operands[0].op is calls.get_tuple_element else None
        if given is not None and given.op is channels.recv and all(map(_is_element_of(given), x.operands)):
            return self.new[given]
        return self.tuple([self.value(o) for o in x.operands])

    def _taken(self, x: Instruction, given: Instruction, index: int) -> None:
        if given in self.data:
            last = index == len(given.shape.elements) - 1  # pyright: ignore[reportAttributeAccessIssue]
            if last:
                self.new[x] = self.tokens[given]
                self._name(self.new[x], x)
            else:
                self.new[x] = self.element(self.data[given], index, x)
        elif given in self.tokens and index == 2:
            self.new[x] = self.tokens[given]
            self._name(self.new[x], x)
        elif given.op is not channels.infeed and x is not self.root and self._is_context(x):
            self.new[x] = self.new[given]
        else:
            self.new[x] = self.element(self.new[given], index, x)

    def _is_context(self, x: Instruction) -> bool:
        """Whether nothing needs this element by itself."""
        return all(user.op is channels.recv_done for user in self.users.get(x, ()))

    @staticmethod
    def _name(made: Instruction, like: Instruction) -> None:
        made.name, made.source, made.origin = like.name, like.source, like.origin or like
        made.annotations = {**made.annotations, **like.annotations}


def _is_element_of(given: Instruction) -> Any:
    return lambda x: x.op is calls.get_tuple_element and x.operands[0] is given and isinstance(x.shape, Shape)
