"""The all-reduce combiner: which all-reduces become one, and in which order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tinyxla.compiler.passes.all_reduce_combiner import MAX_COMBINED_BYTES, combine_all_reduces
from tinyxla.hlo import Computation, Module
from tinyxla.hlo.verifier import verify
from tinyxla.ops import calls, elementwise, movement
from tinyxla.ops.distributed.process_collectives import is_message, mpi_collective
from tinyxla.shapes import Shape, element_type
from tinyxla.tracing import trace

ONE = ((0,),)


def total(x: Any, groups: Any = ONE, reduction: str = "add") -> Any:
    return mpi_collective(x, kind="all-reduce", groups=groups, reduction=reduction)


def sizes_after(function: Callable[..., Any], *shapes: tuple[int, ...]) -> list[int]:
    """The sizes of all-reduces after the pass, which leaves values as they are."""
    before, _, _ = trace(function, [Shape(element_type("f32"), shape) for shape in shapes], "program")
    after = combine_all_reduces(before)
    verify(Module("program", after))
    values = [np.random.default_rng(k).normal(size=shape).astype(np.float32) for k, shape in enumerate(shapes)]
    for found, wanted in zip(*(results(c, values) for c in (after, before)), strict=True):
        np.testing.assert_array_equal(found, wanted)
    return [x.array_shape.size for x in after.instructions if is_message(x)]


def results(computation: Computation, values: list[Any]) -> list[Any]:
    return [np.asarray(x) for x in calls.evaluate(computation, values)]


def test_independent_all_reduces_become_one() -> None:
    assert sizes_after(lambda x, y, z: [total(x), total(y), total(z)], (3,), (2, 2), ()) == [8]


def test_an_all_reduce_of_another_is_ready_later() -> None:
    def program(x: Any, y: Any) -> list[Any]:
        first = total(x)
        second = total(elementwise.mul(first, first))
        return [second, total(y), first]

    assert sizes_after(program, (3,), (4,)) == [7, 3]


def test_pairs_that_depend_on_each_other_crosswise_are_combined_by_depth() -> None:
    def program(x: Any, y: Any) -> list[Any]:
        a1, b1 = total(x), total(y, reduction="multiply")
        return [total(elementwise.neg(b1)), total(elementwise.neg(a1), reduction="multiply")]

    assert sizes_after(program, (3,), (4,)) == [3, 4, 4, 3]


def test_other_groups_operations_and_types_stay_apart() -> None:
    def program(x: Any, y: Any) -> list[Any]:
        integers = elementwise.convert(x, new_element_type=element_type("s32"))
        return [total(x), total(y, reduction="multiply"), total(integers)]

    assert sizes_after(program, (3,), (4,)) == [3, 4, 3]


def test_large_arrays_are_not_copied() -> None:
    many = MAX_COMBINED_BYTES // 4
    assert sizes_after(lambda x, y, z: [total(x), total(y), total(z)], (3,), (many + 1,), (5,)) == [8, many + 1]
    assert sizes_after(lambda x, y, z: [total(x), total(y), total(z)], (many,), (many - 5,), (5,)) == [many, many]


def test_nothing_to_combine_leaves_the_computation() -> None:
    shape = Shape(element_type("f32"), (3,))
    computation, _, _ = trace(lambda x: [total(x), movement.reshape_to(x, (1, 3))], [shape], "program")
    assert combine_all_reduces(computation) is computation
