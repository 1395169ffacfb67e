"""The functions of `tinyxla.tree_util` under short names, as `jax.tree` has them.

>>> map(lambda x: 2 * x, [1, (2, 3)])
[2, (4, 6)]
"""

from __future__ import annotations

import dataclasses
from typing import Any

from tinyxla.tree_util import tree_all as all
from tinyxla.tree_util import tree_broadcast as broadcast
from tinyxla.tree_util import tree_flatten as flatten
from tinyxla.tree_util import tree_flatten_with_path as flatten_with_path
from tinyxla.tree_util import tree_leaves as leaves
from tinyxla.tree_util import tree_leaves_with_path as leaves_with_path
from tinyxla.tree_util import tree_map as map
from tinyxla.tree_util import tree_map_with_path as map_with_path
from tinyxla.tree_util import tree_reduce as reduce
from tinyxla.tree_util import tree_reduce_associative as reduce_associative
from tinyxla.tree_util import tree_structure as structure
from tinyxla.tree_util import tree_transpose as transpose
from tinyxla.tree_util import tree_unflatten as unflatten


def static(**options: Any) -> Any:
    """A dataclass field that belongs to the structure, for `tree_util.register_dataclass`; takes what
    `dataclasses.field` takes.

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
