"""Pytrees in files and sharded checkpoints that hold data and nothing that runs: `save` and `load`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, overload

from tinyxla.errors import ArgumentError, NestingError
from tinyxla.runtime.mpi.world import Process, world
from tinyxla.saving.checkpoint import INDEX, CheckpointReader, Tiles, write_checkpoint
from tinyxla.saving.container import Reader, write
from tinyxla.saving.trees import ABSENT, Decoder, encode, is_split_among_processes
from tinyxla.tracing.signatures import Tree
from tinyxla.util.tracebacks import boundary

_STRUCTURE = "tinyxla.structure"  # the name of the structure in the metadata


@boundary
def save(path: str | os.PathLike[str], tree: Any) -> None:
    """Write a pytree to a file in the safetensors format, which many libraries read. Nothing in it is a pickle.

    The file appears under its name when all of it is on the disk; until then, a file of that name stays as it was.

    A tree with an array that is split among processes becomes a sharded checkpoint: `path` is a folder in which each
    process writes its shards to a file of its own. All processes call `save` with the same tree and path, on a file
    system that they share; either all of the checkpoint takes the place of the one before, or all processes raise.

    Args:
        path: of the file, or of the checkpoint. The usual ending of a file is `.safetensors`. Where there is a
            checkpoint, a tree that is not split replaces it as a checkpoint, too.
        tree: of arrays (tinyxla's and NumPy's, of any element type, and random keys), numbers, strings and None, in
            dicts, lists, tuples, named tuples and registered classes.

    Raises:
        ArgumentError: a leaf is none of these, a key of a dict is neither string nor number, or there are too many
            arrays for the format.
        ConcretizationError: a leaf is an array of a function that is being traced.
        ProcessError: another process could not write its part, or saves another tree.
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

    def encoded() -> tuple[dict[str, str], dict[str, Tiles]]:
        structure, arrays = encode(tree)
        return {_STRUCTURE: json.dumps(structure, separators=(",", ":"))}, arrays

    try:
        if is_split_among_processes(tree):
            write_checkpoint(where, world(), encoded)
        elif (where / INDEX).exists():
            write_checkpoint(where, Process(), encoded)
        else:
            metadata, arrays = encoded()
            write(where, {name: value for name, x in arrays.items() for value in x.values.values()}, metadata)
    except RecursionError as error:
        raise _too_deep("save", error) from None


@overload
def load(path: str | os.PathLike[str], *, mmap: bool = False) -> Any: ...
@overload
def load(path: str | os.PathLike[str], like: Tree, *, mmap: bool = False) -> Tree: ...
@boundary
def load(path: str | os.PathLike[str], like: Any = ABSENT, *, mmap: bool = False) -> Any:
    """The pytree of a file or checkpoint that `save` wrote, with its structure and types; of another file in the
    safetensors format, a dict of its arrays.

    Args:
        path: of the file, or of the folder of a checkpoint.
        like: a tree whose structure, shapes and types the file's must have; leaves may be `ShapeDtypeStruct`s. Named
            tuples and registered classes are made only where there are some in `like`, whose static fields they get.
            An array gets the sharding of its leaf in `like`, and a process reads only the parts of its own devices,
            whatever the shardings and the number of processes were when it was saved.
        mmap: whether arrays stay in the file, whose pages are read when they are used. The file must then not be
            changed in place; `save` does not do that.

    Returns:
        The tree. Arrays are what they were when saved: tinyxla's, with weak types, or NumPy's.

    Raises:
        FileFormatError: the file is not in the format, or damaged; a checkpoint is incomplete.
        PytreeError: it has another structure, shape or type than `like`, or a class and there is no `like`.
        ShapeError: the sharding of a leaf of `like` does not fit its shape.
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
        >>> mesh = tx.make_mesh((1,), ("data",))
        >>> sharding = tx.NamedSharding(mesh, tx.P("data"))
        >>> like = state._replace(position=tx.ShapeDtypeStruct((3,), "float32", sharding=sharding))
        >>> tx.load(path, like=like).position
        Array([0., 1., 2.], dtype=float32)
    """
    where = _path("load", path)
    reader = CheckpointReader(where) if where.is_dir() else Reader(where)
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
    return Path(path)


def _too_deep(what: str, error: RecursionError) -> RecursionError:
    if isinstance(error, NestingError):
        return error
    return NestingError(f"{what}: containers are in each other deeper than Python's limit of recursion; use one list.")


__all__ = ["load", "save"]


def __dir__() -> list[str]:
    return __all__
