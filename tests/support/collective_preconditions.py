"""Preconditions of collective operations and transfers, each violated once, for `test_preconditions`: what it is, the
operands' shapes, the attributes, and what the error says."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tinyxla.ops import reduction
from tinyxla.ops.distributed import channels, collectives, exchanges
from tinyxla.shapes import Shape, TupleShape, element_type

Row = tuple[str, tuple[str, ...], dict[str, Any], str]

ADD, ADD_INTEGERS = (reduction.scalar_computation("add", kind) for kind in (np.float32, np.int32))
F32 = Shape(element_type("f32"), (2,))
TWICE, UNEQUAL = ((0, 1), (1,)), ((0, 1), (2,))


def _given(kind: type[Any], **attributes: Any) -> dict[str, Any]:
    found: NamedTuple = kind(**attributes)
    return found._asdict()


def _reduced(**attributes: Any) -> dict[str, Any]:
    return _given(collectives.AllReduce, **{"to_apply": ADD, **attributes})


def _gathered(**attributes: Any) -> dict[str, Any]:
    return _given(collectives.AllGather, **{"all_gather_dimension": 0, "shard_count": 2, **attributes})


def _scattered(**attributes: Any) -> dict[str, Any]:
    return _given(
        collectives.ReduceScatter, **{"to_apply": ADD, "scatter_dimension": 0, "shard_count": 2, **attributes}
    )


def _exchanged(*dimensions: int, **attributes: Any) -> dict[str, Any]:
    return _given(exchanges.AllToAll, dimensions=dimensions, **attributes)


def _reductions() -> list[Row]:
    return [
        ("an operand", (), _reduced(), "there must be at least one operand."),
        ("arrays", ("(f32[2])",), _reduced(), "the operand must be an array, but got the tuple (f32[2])"),
        ("one type", ("f32[2]", "s32[2]"), _reduced(), "the operands must be arrays of one element type… s32[2]"),
        ("numbers", ("token[]",), _reduced(), "the operand must be an array of numbers, but is a token."),
        ("a computation of the type", ("s32[2]",), _reduced(), "to_apply must map [s32[], s32[]] to [s32[]], but"),
        ("a replica at most once", ("f32[2]",), _reduced(replica_groups=TWICE), "at most once, but is ((0, 1), (1,))."),
        (
            "a channel between devices",
            ("f32[2]",),
            _reduced(use_global_device_ids=True),
            "use_global_device_ids=True needs a channel_id above 0, but it is None; give one.",
        ),
    ]


def _gatherings() -> list[Row]:
    return [
        ("an operand", (), _gathered(), "there must be at least one operand."),
        ("arrays", ("(f32[2])",), _gathered(), "the operand must be an array, but got the tuple (f32[2])"),
        (
            "a dimension",
            ("f32[2]",),
            _gathered(all_gather_dimension=1),
            "all_gather_dimension must be from 0 to 0, but",
        ),
        ("groups of one size", ("f32[2]",), _gathered(replica_groups=UNEQUAL), "must all be of the same size, but is"),
        (
            "shards for all of a group",
            ("f32[2]",),
            _gathered(replica_groups=((0, 1, 2),)),
            "shard_count must be 3, the size of each of ((0, 1, 2),), but is 2.",
        ),
        ("shards", ("f32[2]",), _gathered(shard_count=-1), "shard_count must be the number of replicas, but is -1."),
        (
            "shards for all partitions of a group",
            ("f32[2]",),
            _gathered(replica_groups=((0, 1),), shard_count=3, channel_id=1),
            "shard_count must be 2",
        ),
    ]


def _scatterings() -> list[Row]:
    return [
        ("an operand", (), _scattered(), "there must be at least one operand."),
        ("a dimension", ("f32[2]",), _scattered(scatter_dimension=1), "scatter_dimension must be from 0 to 0"),
        (
            "a multiple",
            ("f32[3]",),
            _scattered(),
            "dimension 0 of f32[3] must be a multiple of shard_count, 2; pad it.",
        ),
        ("shards", ("f32[3]",), _scattered(shard_count=0), "must be a multiple of shard_count, 0; pad it."),
        ("groups of one size", ("f32[2]",), _scattered(replica_groups=UNEQUAL), "must all be of the same size, but is"),
        ("a computation of the type", ("s32[2]",), _scattered(), "to_apply must map [s32[], s32[]] to [s32[]], but"),
        (
            "shards for all of a group",
            ("f32[2]",),
            _scattered(replica_groups=((0,),)),
            "shard_count must be 1, the size of each of ((0,),), but is 2.",
        ),
    ]


def _exchanges() -> list[Row]:
    return [
        ("one array along one dimension", ("f32[2]", "f32[2]"), _exchanged(0), "there are 2 operands and the dim"),
        ("a dimension", ("f32[2]",), _exchanged(1), "dimensions must be from 0 to 0, but got 1 in (1,)."),
        (
            "a multiple",
            ("f32[3]",),
            _exchanged(0, replica_groups=((0, 1),)),
            "the size of dimension 0 of f32[3] must be a multiple of the 2 replicas of a group; pad it.",
        ),
        ("an operand for each", ("f32[2]",), _exchanged(replica_groups=((0, 1),)), "an operand for each of the 2 repl"),
        ("operands of one shape", ("f32[2]", "f32[3]"), _exchanged(), "all of one shape, but got"),
        ("groups of one size", ("f32[2]",), _exchanged(0, replica_groups=UNEQUAL), "must all be of the same size, but"),
    ]


def _permuted() -> list[Row]:
    return [
        (
            "an operand",
            (),
            _given(exchanges.CollectivePermute, source_target_pairs=()),
            "there must be at least one operand.",
        ),
        (
            "a source at most once",
            ("f32[2]",),
            _given(exchanges.CollectivePermute, source_target_pairs=((0, 1), (0, 2))),
            "the sources of source_target_pairs must be distinct replicas, but are (0, 0).",
        ),
        (
            "a target at most once",
            ("f32[2]",),
            _given(exchanges.CollectivePermute, source_target_pairs=((0, 1), (2, 1))),
            "the targets of source_target_pairs must be distinct replicas, but are (1, 1).",
        ),
    ]


RAGGED = ("f32[5,3]", "f32[4,3]", "s32[2]", "s32[2]", "s32[2]", "s32[2]")


def _raggeds() -> list[Row]:
    plain, pair = _given(exchanges.RaggedAllToAll), _given(exchanges.RaggedAllToAll, replica_groups=((0, 1),))
    return [
        ("six operands", RAGGED[:5], plain, "output_offsets and recv_sizes, but there are 5."),
        ("rows of one shape", ("f32[5,2]", *RAGGED[1:]), plain, "must be alike but for their first dimension, but are"),
        ("one type", ("f64[5,3]", *RAGGED[1:]), plain, "must have one element type, but are f64[5,3] and f32[4,3]."),
        ("integers", (*RAGGED[:5], "f32[2]"), plain, "must be integers, all of one shape [replicas] or"),
        (
            "updates for each",
            (*RAGGED[:2], *("s32[3]",) * 4),
            pair,
            "as many elements for each of the 2 replicas of a group, but have 3; give one for each.",
        ),
        (
            "a row of updates for each",
            (*RAGGED[:2], *("s32[4,1]",) * 4),
            pair,
            "for each of the 2 replicas … but have 4",
        ),
    ]


def _receives() -> list[Row]:
    return [
        (
            "a context",
            ("f32[2]", "f32[]", "token[]"),
            _given(channels.Channel, channel_id=1),
            "must be what recv gives, (data, u32[], token[]), but has f32[].",
        ),
        (
            "a token",
            ("f32[2]", "u32[]", "f32[]"),
            _given(channels.Channel, channel_id=1),
            "the last operand must be a token, but is f32[]; make one with after_all.",
        ),
    ]


_INFEED = _given(channels.Infeed, shape=F32)
_NESTED = _given(channels.Infeed, shape=TupleShape((TupleShape((F32,)),)))
_NO_TOKEN = "the last operand must be a token, but is f32[]; make one with after_all."

VIOLATIONS: dict[str, list[Row]] = {
    "all-gather": _gatherings(),
    "all-reduce": _reductions(),
    "all-to-all": _exchanges(),
    "collective-broadcast": [
        ("an operand", (), _given(exchanges.CollectiveBroadcast), "there must be at least one operand."),
        (
            "a replica at most once",
            ("f32[2]",),
            _given(exchanges.CollectiveBroadcast, replica_groups=TWICE),
            "at most once, but is ((0, 1), (1,)).",
        ),
    ],
    "collective-permute": _permuted(),
    "mpi-collective": [
        (
            "non-empty groups",
            ("f32[2]",),
            {"kind": "all-gather", "groups": ((),)},
            "must be non-empty groups which have a replica at most once, but is ((),).",
        ),
        (
            "groups of one size",
            ("f32[2]",),
            {"kind": "all-to-all", "groups": ((0, 1), (2,))},
            "must all be of the same size, but is ((0, 1), (2,)).",
        ),
        (
            "a first dimension",
            ("f32[]",),
            {"kind": "reduce-scatter", "groups": ((0, 1),), "reduction": "add"},
            "reduce-scatter takes groups and an array with a first dimension, but got f32[].",
        ),
        (
            "rows for each",
            ("f32[3,2]",),
            {"kind": "all-to-all", "groups": ((0, 1),)},
            "all-to-all among 2 takes a multiple of so many rows, but got f32[3,2].",
        ),
    ],
    "infeed": [
        ("a token", ("f32[]",), _INFEED, _NO_TOKEN),
        ("a flat tuple", ("token[]",), _NESTED, "nested tuple shapes are not supported, but got ((f32[2]))"),
    ],
    "outfeed": [
        ("operands", (), _given(channels.Outfeed), "the operands must be arrays and a token, but there is none."),
        ("a token", ("f32[2]", "f32[]"), _given(channels.Outfeed), _NO_TOKEN),
        ("arrays", ("(f32[2])", "token[]"), _given(channels.Outfeed), "the operand must be an array, but got"),
    ],
    "ragged-all-to-all": _raggeds(),
    "recv": [
        ("a token", ("f32[]",), _given(channels.Receiver, shape=F32, channel_id=1), _NO_TOKEN),
        (
            "a channel",
            ("token[]",),
            _given(channels.Receiver, shape=F32, channel_id=-1),
            "channel_id must not be negative, but is -1.",
        ),
    ],
    "recv-done": _receives(),
    "reduce-scatter": _scatterings(),
    "send": [
        ("a token", ("f32[2]", "f32[]"), _given(channels.Channel, channel_id=1), _NO_TOKEN),
        ("an array", ("(f32[2])", "token[]"), _given(channels.Channel, channel_id=1), "must be an array, but got"),
        (
            "a channel",
            ("f32[2]", "token[]"),
            _given(channels.Channel, channel_id=-1),
            "channel_id must not be negative, but is -1.",
        ),
        (
            "a source at most once",
            ("f32[2]", "token[]"),
            _given(channels.Channel, channel_id=1, source_target_pairs=((0, 1), (0, 2))),
            "the sources of source_target_pairs must be distinct replicas, but are (0, 0).",
        ),
    ],
    **{
        f"{name}-done": [
            ("what was begun", ("f32[2]",), {}, "the operand must be the tuple of what was begun, but got f32[2].")
        ]
        for name in ("all-gather", "collective-permute", "send")
    },
}
TAKES_ANYTHING = {
    **{f"{name}-start": f"what {name} takes" for name in ("all-gather", "all-reduce", "collective-permute")},
    "all-reduce-done": "what it is given, it gives",
    "partition-id": "takes nothing",
    "replica-id": "takes nothing",
}
