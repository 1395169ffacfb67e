"""Pytrees in files that hold data and nothing that runs: `save` and `load`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, overload

from tinyxla.errors import ArgumentError, NestingError
from tinyxla.saving.container import Reader, write
from tinyxla.saving.trees import ABSENT, Decoder, encode
from tinyxla.tracing.signatures import Tree
from tinyxla.util.tracebacks import boundary

_STRUCTURE = "tinyxla.structure"  # the name of the structure in the metadata


@boundary
def save(path: str | os.PathLike[str], tree: Any) -> None:
    """Write a pytree to a file in the safetensors format, which many libraries read. Nothing in it is a pickle.

    The file appears under its name when all of it is on the disk; until then, a file of that name stays as it was.

    Args:
        path: of the file. The usual ending is `.safetensors`.
        tree: of arrays (tinyxla's and NumPy's, of any element type, and random keys), numbers, strings and None, in
            dicts, lists, tuples, named tuples and registered classes.

    Raises:
        ArgumentError: a leaf is none of these, a key of a dict is neither string nor number, or there are too many
            arrays for the format.
        ConcretizationError: a leaf is an array of a function that is being traced.
        OSError: the file cannot be written.

    Example:
        >>> import os, tempfile
        >>> import tinyxla as tx
        >>> path = os.path.join(tempfile.mkdtemp(), "state.safetensors")
        >>> tx.save(path, {"weights": tx.numpy.ones(2, "bfloat16"), "step": 3})
        >>> tx.load(path)
        {'weights': Array([1, 1], dtype=bfloat16), 'step': 3}
    """
    where = _path("save", path)
    try:
        structure, arrays = encode(tree)
    except RecursionError as error:
        raise _too_deep("save", error) from None
    write(where, arrays, {_STRUCTURE: json.dumps(structure, separators=(",", ":"))})


@overload
def load(path: str | os.PathLike[str], *, mmap: bool = False) -> Any: ...
@overload
def load(path: str | os.PathLike[str], like: Tree, *, mmap: bool = False) -> Tree: ...
@boundary
def load(path: str | os.PathLike[str], like: Any = ABSENT, *, mmap: bool = False) -> Any:
    """The pytree of a file that `save` wrote, with its structure and types; of another file in the safetensors format,
    a dict of its arrays.

    Args:
        path: of the file.
        like: a tree whose structure, shapes and types the file's must have; leaves may be `ShapeDtypeStruct`s. Named
            tuples and registered classes are made only where there are some in `like`, whose static fields they get.
        mmap: whether arrays stay in the file, whose pages are read when they are used. The file must then not be
            changed in place; `save` does not do that.

    Returns:
        The tree. Arrays are what they were when saved: tinyxla's, with weak types, or NumPy's.

    Raises:
        FileFormatError: the file is not in the format, or damaged.
        PytreeError: it has another structure, shape or type than `like`, or a class and there is no `like`.
        OSError: the file cannot be read.

    Example:
        >>> import os, tempfile
        >>> from typing import NamedTuple
        >>> import tinyxla as tx
        >>> class State(NamedTuple):
        ...     position: tx.Array
        ...     key: tx.Array
        >>> path = os.path.join(tempfile.mkdtemp(), "state.safetensors")
        >>> state = State(tx.numpy.arange(3.0), tx.random.key(0))
        >>> tx.save(path, state)
        >>> tx.load(path, like=state).position
        Array([0., 1., 2.], dtype=float32)
    """
    reader = Reader(_path("load", path))
    decoder = Decoder(reader, mmap)
    text = reader.metadata.get(_STRUCTURE)
    if text is None:
        return decoder.whole(like)
    try:
        return decoder.node(reader.json(text, "structure"), like)
    except RecursionError as error:
        raise _too_deep("load", error) from None


def _path(what: str, path: Any) -> Path:
    if not isinstance(path, str | os.PathLike):
        raise ArgumentError(f"{what}: path must be a string or a path, but is {path!r}; the path comes first.")
    return Path(path)  # pyright: ignore[reportUnknownArgumentType]


def _too_deep(what: str, error: RecursionError) -> RecursionError:
    if isinstance(error, NestingError):
        return error
    return NestingError(f"{what}: containers are in each other deeper than Python's limit of recursion; use one list.")


__all__ = ["load", "save"]


def __dir__() -> list[str]:
    return __all__
