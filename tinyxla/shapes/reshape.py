"""Dimensions of a reshape's operand and result."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def split_dimensions(source: Sequence[int], result: Sequence[int]) -> Iterator[tuple[list[int], list[int]]]:
    """The smallest groups of dimensions of a reshape's operand and result that hold the same elements; size 1 is
    left out."""
    left = [d for d, size in enumerate(source) if size != 1]
    right = [d for d, size in enumerate(result) if size != 1]
    i = j = 0
    while i < len(left) and j < len(right):
        source_dims, result_dims = [left[i]], [right[j]]
        a, b = source[left[i]], result[right[j]]
        i, j = i + 1, j + 1
        while a != b:
            if a < b:
                a *= source[left[i]]
                source_dims.append(left[i])
                i += 1
            else:
                b *= result[right[j]]
                result_dims.append(right[j])
                j += 1
        yield source_dims, result_dims
