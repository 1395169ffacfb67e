"""The functions of `tinyxla.tree_util` under short names, as `jax.tree` has them.

>>> from tinyxla.tree import map
>>> map(lambda x: 2 * x, [1, (2, 3)])
[2, (4, 6)]
"""

from __future__ import annotations

import dataclasses
from typing import Any

from tinyxla.tree_util import (
    tree_all as all,
    tree_broadcast as broadcast,
    tree_flatten as flatten,
    tree_flatten_with_path as flatten_with_path,
    tree_leaves as leaves,
    tree_leaves_with_path as leaves_with_path,
    tree_map as map,
    tree_map_with_path as map_with_path,
    tree_reduce as reduce,
    tree_reduce_associative as reduce_associative,
    tree_structure as structure,
    tree_transpose as transpose,
    tree_unflatten as unflatten,
)


def static(**options: Any) -> Any:
    """A dataclass field that belongs to the structure, for `tree_util.register_dataclass`; takes what
    `dataclasses.field` takes.

    Args:
        **options: arguments of `dataclasses.field`.

    Returns:
        A field.

    Raises:
        TypeError: an option that `dataclasses.field` does not have.
        ValueError: both `default` and `default_factory`.

    >>> from tinyxla.tree import static
    >>> static(default="add").metadata["static"]
    True
    """
    metadata = {**options.pop("metadata", {}), "static": True}
    return dataclasses.field(**options, metadata=metadata)


__all__ = [
    "all",
    "broadcast",
    "flatten",
    "flatten_with_path",
    "leaves",
    "leaves_with_path",
    "map",
    "map_with_path",
    "reduce",
    "reduce_associative",
    "static",
    "structure",
    "transpose",
    "unflatten",
]


def __dir__() -> list[str]:
    return __all__
