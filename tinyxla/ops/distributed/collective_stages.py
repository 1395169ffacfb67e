"""Collective operations as a compiler leaves them in HLO text: begun by one instruction, waited for by another.

As with the other operations of this kind (`tinyxla.ops.hlo_only`), beginning one does it, and waiting takes the
result. What lies between is the context: the result of AllReduce, and of the others the operands with the results.

Sources: sections "AllGather", "AllReduce" and "CollectivePermute" of the XLA documents.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tinyxla.hlo import Operation
from tinyxla.ops import movement
from tinyxla.ops.distributed.collectives import AllGather, AllReduce, all_gather, all_reduce
from tinyxla.ops.distributed.exchanges import collective_permute
from tinyxla.ops.distributed.replica_groups import REPLICAS, Pairs
from tinyxla.ops.hlo_only import regrouping
from tinyxla.ops.op import Decomposition, Op, Sample
from tinyxla.shapes import AnyShape, Shape, TupleShape

Tree = Any  # an array, a value, a shape or an instruction; or a tuple of such
Context = Callable[[tuple[Tree, ...], Tree, tuple[Tree, ...]], Tree]  # of operands, result and state


class CollectivePermuteStart(NamedTuple):
    source_target_pairs: Pairs
    channel_id: int | None = None
    axis_name: Hashable = REPLICAS
    state: tuple[Shape, ...] = ()  # what else there is in the context


class Start(NamedTuple):
    """What an operation begins, and the context that it gives."""

    begun: Op
    context: Context

    def attributes(self, given: Any) -> Any:
        """Those of what is begun."""
        values = given._asdict()
        values.pop("state", None)
        return self.begun.attributes(**values)


def _one_or_all(parts: Sequence[Tree]) -> Tree:
    return parts[0] if len(parts) == 1 else tuple(parts)


def _as_shape(tree: Tree) -> AnyShape:
    return TupleShape(tuple(map(_as_shape, tree))) if isinstance(tree, tuple) else tree


starts: dict[Operation, Start] = {}


def _start(begun: Op, attributes: type[Any], context: Context) -> Op:
    def shape(*operands: AnyShape, **attributes: Any) -> AnyShape:
        state = attributes.pop("state", ())
        result = begun.shape(*operands, **attributes)
        return _as_shape(context(operands, result, state))

    def evaluate(*operands: Any, **attributes: Any) -> Tree:
        state = attributes.pop("state", ())
        if all(isinstance(x, np.ndarray) for x in operands):
            result = begun.evaluate(*operands, **begun.defaults | attributes)
            return context(operands, result, tuple(np.zeros(s.dimensions, s.dtype) for s in state))
        filled = tuple(movement.full(0, s.dtype, s.dimensions) for s in state)
        return context(operands, begun(*operands, **attributes), filled)

    op = Op(
        f"{begun.name}-start",
        attributes=attributes,
        fill_defaults=True,
        shape=shape,
        evaluate=evaluate,
        derivative=Decomposition(evaluate),
        batch=begun.batch,
        samples=begun.samples,
        structural=True,
    )
    starts[op] = Start(begun, context)
    return op


all_reduce_start = _start(all_reduce, AllReduce, lambda operands, result, state: result)
all_gather_start = _start(all_gather, AllGather, lambda operands, result, state: (_one_or_all(operands), result))
collective_permute_start = _start(
    collective_permute,
    CollectivePermuteStart,
    lambda operands, result, state: (_one_or_all(operands), result, *state),
)


def _done_samples(random: np.random.Generator) -> Any:
    x = movement.sample_values((2, 3))
    yield Sample(((x, x + 1),))


all_reduce_done = regrouping("all-reduce-done", None, _done_samples, any_value=True)
all_gather_done = regrouping("all-gather-done", 1, _done_samples)
collective_permute_done = regrouping("collective-permute-done", 1, _done_samples)
