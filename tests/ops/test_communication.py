"""What collective operations cost a process, against the formulas of Thakur, Rabenseifner and Gropp by hand."""

from __future__ import annotations

import pytest

from tinyxla.ops.distributed.communication import ALGORITHMS, Communication, communication_by, communication_of
from tinyxla.runtime.mpi.calls import Message
from tinyxla.shapes import Shape, element_type

KB, MB = 1 << 10, 1 << 20

# kind, bytes of the operand, processes: bytes sent, bytes received, messages, bytes combined
CASES = [
    # recursive doubling: log2 p messages of n bytes, each combined
    ("all-reduce", 8, 4, (16, 16, 2, 16)),
    ("all-reduce", 2 * KB, 8, (6 * KB, 6 * KB, 3, 6 * KB)),
    ("all-reduce", 8, 5, (24, 24, 3, 24)),
    # Rabenseifner: 2 log2 p messages, 2 n (p - 1) / p bytes, half of them combined
    ("all-reduce", MB, 4, (1536 * KB, 1536 * KB, 4, 768 * KB)),
    ("all-reduce", MB, 1024, (2 * MB - 2 * KB, 2 * MB - 2 * KB, 20, MB - KB)),
    # recursive doubling up to 512 KB of the result, or Bruck up to 80 KB; then a ring
    ("all-gather", KB, 8, (7 * KB, 7 * KB, 3, 0)),
    ("all-gather", 64 * KB, 8, (448 * KB, 448 * KB, 7, 0)),
    ("all-gather", 10 * KB, 6, (50 * KB, 50 * KB, 3, 0)),
    ("all-gather", 20 * KB, 6, (100 * KB, 100 * KB, 5, 0)),
    # recursive halving, pairwise exchange
    ("reduce-scatter", 8 * KB, 4, (6 * KB, 6 * KB, 2, 6 * KB)),
    ("reduce-scatter", MB, 4, (768 * KB, 768 * KB, 3, 768 * KB)),
    # Bruck: n / 2 bytes log2 p times; pairwise exchange
    ("all-to-all", 64, 4, (64, 64, 2, 0)),
    ("all-to-all", MB, 4, (768 * KB, 768 * KB, 3, 0)),
    ("collective-permute", 100, 16, (100, 100, 1, 0)),
    # binomial tree: the root sends log2 p times; scatter and ring
    ("collective-broadcast", KB, 16, (4 * KB, KB, 4, 0)),
    ("collective-broadcast", MB, 16, (1920 * KB, 1920 * KB, 19, 0)),
]


@pytest.mark.parametrize(("kind", "size", "count", "expected"), CASES)
def test_costs_are_those_of_the_algorithm(kind: str, size: int, count: int, expected: tuple[int, ...]) -> None:
    assert communication_by(kind, size, count) == Communication(*expected)


@pytest.mark.parametrize("kind", ALGORITHMS)
def test_one_process_and_empty_arrays_send_nothing(kind: str) -> None:
    assert communication_by(kind, MB, 1) == communication_by(kind, 0, 8) == Communication()


@pytest.mark.parametrize("kind", ALGORITHMS)
def test_each_algorithm_sends_at_least_what_any_must(kind: str) -> None:
    """Nobody can receive what it does not have in fewer bytes, nor from p others in fewer than log2 p rounds."""
    for count in (2, 3, 16, 1000):
        for size in (8 * count, 64 * count, KB * count, 64 * KB * count):
            found = communication_by(kind, size, count)
            least = {"all-gather": size * (count - 1), "all-reduce": size, "reduce-scatter": size // count}
            assert found.received >= least.get(kind, size // count)
            assert found.messages >= (1 if kind == "collective-permute" else (count - 1).bit_length())


def test_messages_count_by_their_largest_group() -> None:
    shape = Shape(element_type("f32"), (256,))
    message = Message("all-reduce", groups=((0, 1), (2, 3, 4, 5)), reduction="add")
    assert communication_of(message, shape) == communication_by("all-reduce", KB, 4)
    permutation = Message("collective-permute", pairs=((0, 1),))
    assert communication_of(permutation, shape) == communication_by("collective-permute", KB, 2)


def test_sums_count_how_often() -> None:
    assert Communication(1, 2, 3, 4).plus(Communication(1, 1, 1, 1), 10) == Communication(11, 12, 13, 14)
