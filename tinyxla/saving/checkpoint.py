"""Sharded checkpoints: a folder of files in the safetensors format, written by several processes, committed atomically.

Each array is a grid of tiles of one shape, and each tile is written by one process. The folder has a file for each
process, with its tiles under names such as `w[0:4, 2:4]`, and an index: a file without arrays whose metadata has the
structure of the tree and, for each array, its element type, shape, the shape of a tile, and the files of its tiles in
row-major order. So an index that is consistent covers each array once.

Files of a process have names that are never used again. Replacing the index is the commit: until then the previous
index and its files are what they were; after that those files are deleted.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tinyxla.errors import FileFormatError, ProcessError
from tinyxla.runtime.mpi.world import Process
from tinyxla.saving.container import DTYPES, MAX_DIMENSIONS, NAMES, Box, Reader, are_sizes, write

INDEX = "index.safetensors"
_TILES, _FILES = "tinyxla.tiles", "tinyxla.files"  # names of the grids and of the files in the index's metadata
_OF_A_PROCESS = re.compile(r"[0-9a-f]{16}-\d{5}-of-\d{5}\.safetensors")

Offset = tuple[int, ...]


@dataclass(frozen=True)
class Tiles:
    """An array as a grid of tiles.

    Attributes:
        dtype: of the array.
        shape: of the array.
        tile: the shape of a tile.
        owners: for the offset of each tile the rank of the process that writes it.
        values: the tiles that this process has, by offset.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    tile: tuple[int, ...]
    owners: Mapping[Offset, int]
    values: Mapping[Offset, np.ndarray[Any, Any]]


def one_tile(value: np.ndarray[Any, Any]) -> Tiles:
    """An array that all processes have."""
    offset = (0,) * value.ndim
    return Tiles(value.dtype, value.shape, value.shape, {offset: 0}, {offset: value})


def offsets(shape: Sequence[int], tile: Sequence[int]) -> list[Offset]:
    """The offsets of the tiles in row-major order."""
    return list(itertools.product(*(range(0, n, t) if n else (0,) for n, t in zip(shape, tile, strict=True))))


def tile_name(array: str, offset: Offset, tile: Sequence[int]) -> str:
    return f"{array}[{', '.join(f'{k}:{k + n}' for k, n in zip(offset, tile, strict=True))}]"


# --- writing ----------------------------------------------------------------------------------------------------------


def write_checkpoint(
    folder: Path, processes: Process, encode: Callable[[], tuple[dict[str, str], Mapping[str, Tiles]]]
) -> None:
    """Write metadata and arrays, which `encode` gives, to a folder. All of `processes` call it; if one of them fails,
    all raise, and a checkpoint that is there stays."""
    token = processes.all_gather_bytes(secrets.token_hex(8).encode())[0].decode()
    files = [f"{token}-{rank:05}-of-{processes.size:05}.safetensors" for rank in range(processes.size)]
    own = folder / files[processes.rank]
    index: dict[str, str] = {}
    grids = ""

    def write_own() -> None:
        nonlocal grids
        metadata, arrays = encode()
        grids = _text({name: _grid(x) for name, x in arrays.items()})
        index.update({**metadata, _TILES: grids, _FILES: _text(files)})
        folder.mkdir(exist_ok=True)
        write(own, dict(_owned(arrays, processes.rank)), {})

    def commit() -> None:
        if processes.rank == 0:
            write(folder / INDEX, {}, index)

    failure = _by_all(folder, processes, write_own, lambda: grids)
    if failure is not None:
        with contextlib.suppress(OSError):
            own.unlink(missing_ok=True)
            folder.rmdir()  # unless a checkpoint is there
        processes.barrier()
        raise failure
    failure = _by_all(folder, processes, commit, lambda: grids)
    if failure is not None:
        raise failure
    if processes.rank == 0:
        for other in folder.iterdir():
            if _OF_A_PROCESS.fullmatch(other.name) and other.name not in files:
                other.unlink(missing_ok=True)
    processes.barrier()


def _by_all(folder: Path, processes: Process, run: Callable[[], None], agreed: Callable[[], str]) -> Exception | None:
    """Run something in all processes. If one of them fails, or if `agreed` is not the same in all of them afterwards,
    all get an error."""
    failure: Exception | None = None
    try:
        run()
    except Exception as error:
        failure = error
    outcome = {"error": failure and f"{type(failure).__name__}: {failure}", "agreed": agreed()}
    outcomes = [json.loads(given) for given in processes.all_gather_bytes(_text(outcome).encode())]
    if failure is not None:
        return failure
    for rank, other in enumerate(outcomes):
        if other["error"] is not None:
            return ProcessError(f"save: process {rank} could not write its part of {folder}: {other['error']}")
    for rank, other in enumerate(outcomes):
        if other["agreed"] != outcomes[0]["agreed"]:
            return ProcessError(
                f"save: processes 0 and {rank} save trees whose arrays have different names, types, shapes or "
                "shardings; all processes must save the same tree."
            )
    return None


def _owned(arrays: Mapping[str, Tiles], rank: int) -> list[tuple[str, np.ndarray[Any, Any]]]:
    """The tiles that a process writes, by the names that they have in its file."""
    return [
        (tile_name(name, offset, x.tile), x.values[offset])
        for name, x in arrays.items()
        for offset, owner in x.owners.items()
        if owner == rank
    ]


def _grid(x: Tiles) -> dict[str, Any]:
    """The description of an array in the index."""
    owners = [x.owners[offset] for offset in offsets(x.shape, x.tile)]
    return {"dtype": NAMES[x.dtype], "shape": list(x.shape), "tile": list(x.tile), "files": owners}


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


# --- reading ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Grid:
    """An array in the index, as in the head of the module."""

    dtype: str
    shape: tuple[int, ...]
    tile: tuple[int, ...]
    files: Mapping[Offset, int]


class CheckpointReader:
    """A checkpoint, with the interface of the `Reader` of one file. Files are opened when tiles of them are read.

    Attributes:
        path: of the folder.
        entries: the arrays, by name.
        metadata: strings, by name.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder
        try:
            self._index = Reader(folder / INDEX)
        except FileNotFoundError:
            raise FileFormatError(f"{folder} is a folder without {INDEX}, so it is no complete checkpoint.") from None
        self.metadata = self._index.metadata
        self.damaged = self._index.damaged
        self.json = self._index.json
        self._readers: dict[int, Reader] = {}
        names = self._parsed(_FILES, list)
        if not all(isinstance(name, str) and _OF_A_PROCESS.fullmatch(name) for name in names):
            raise self.damaged(f"the files {names!r} are not those of a checkpoint")
        self._names: list[str] = names
        self.entries = {name: self._entry(name, described) for name, described in self._parsed(_TILES, dict).items()}

    def read(self, name: str, box: Box | None = None) -> np.ndarray[Any, Any]:
        """An array, or the part of it in a box. It is a view of a file if one tile has all of it."""
        grid = self.entries[name]
        begin, end = [0] * len(grid.shape), list(grid.shape)
        for k, along in enumerate(box or ()):
            begin[k], end[k], _ = along.indices(grid.shape[k])
        pieces: list[tuple[Box, np.ndarray[Any, Any]]] = []
        for offset in _overlapping(grid, begin, end):
            lower = [max(a, o) for a, o in zip(begin, offset, strict=True)]
            upper = [min(b, o + t) for b, o, t in zip(end, offset, grid.tile, strict=True)]
            tile = self._tile(name, grid, offset)
            pieces.append((_box(lower, upper, begin), tile[_box(lower, upper, offset)]))
        if len(pieces) == 1:
            return pieces[0][1]
        made = np.empty([b - a for a, b in zip(begin, end, strict=True)], DTYPES[grid.dtype])
        for where, piece in pieces:
            made[where] = piece
        return made

    def _tile(self, name: str, grid: _Grid, offset: Offset) -> np.ndarray[Any, Any]:
        number = grid.files[offset]
        if number not in self._readers:
            path = self.path / self._names[number]
            try:
                self._readers[number] = Reader(path)
            except FileNotFoundError:
                raise FileFormatError(f"{self.path} is damaged: its file {path.name} is missing.") from None
        reader, tile = self._readers[number], tile_name(name, offset, grid.tile)
        entry = reader.entries.get(tile)
        if entry is None or (entry.dtype, entry.shape) != (grid.dtype, grid.tile):
            raise reader.damaged(f"it does not have {tile!r} of the type {grid.dtype} and the shape {grid.tile}")
        return reader.read(tile)

    def _parsed(self, name: str, kind: type) -> Any:
        found = self.json(self.metadata.get(name, "null"), name)
        if not isinstance(found, kind):
            raise self.damaged(f"{name} in its metadata is no {kind.__name__}")
        return found

    def _entry(self, name: str, described: Any) -> _Grid:
        if not isinstance(described, dict) or described.keys() != {"dtype", "shape", "tile", "files"}:
            raise self.damaged(f"the array {name!r} must have dtype, shape, tile and files")
        dtype, shape, tile, files = (described[key] for key in ("dtype", "shape", "tile", "files"))
        is_right = (
            isinstance(dtype, str)
            and dtype in DTYPES
            and all(map(are_sizes, (shape, tile, files)))
            and len(shape) == len(tile) <= MAX_DIMENSIONS
            and all(n % t == 0 if t else n == 0 for n, t in zip(shape, tile, strict=True))
            and math.prod(n // t if n else 1 for n, t in zip(shape, tile, strict=True)) == len(files)
            and all(number < len(self._names) for number in files)
        )
        if not is_right:
            raise self.damaged(f"the array {name!r} of shape {shape!r} and type {dtype!r} is not covered by its tiles")
        return _Grid(dtype, tuple(shape), tuple(tile), dict(zip(offsets(shape, tile), files, strict=True)))


def _overlapping(grid: _Grid, begin: Sequence[int], end: Sequence[int]) -> list[Offset]:
    """The offsets of the tiles that have elements of a box; of an empty box, one."""
    ranges = [range(a // t * t, max(b, a + 1), t) if t else (0,) for a, b, t in zip(begin, end, grid.tile, strict=True)]
    return list(itertools.product(*ranges))


def _box(lower: Sequence[int], upper: Sequence[int], origin: Sequence[int]) -> Box:
    """A box in coordinates relative to an origin."""
    return tuple(slice(a - o, b - o) for a, b, o in zip(lower, upper, origin, strict=True))
