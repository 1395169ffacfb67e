"""Sharded checkpoints: parts of arrays are written by several processes and read under other shardings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinyxla as tx
import tinyxla.numpy as jnp
from tinyxla.errors import FileFormatError, ProcessError, PytreeError, ShapeError
from tinyxla.runtime.mpi.world import Process
from tinyxla.saving import checkpoint, container
from tinyxla.saving.checkpoint import INDEX, CheckpointReader, Tiles, write_checkpoint

P = tx.P
SPECS = (P(), P("x"), P("y", "x"), P(None, ("x", "y")), P(("y", "x")))
VALUES: dict[str, Any] = {
    "f32": np.arange(32, dtype=np.float32).reshape(4, 8),
    "c128": (np.arange(32) * (1 + 2j)).reshape(4, 8),
    "bool": np.arange(32).reshape(4, 8) % 3 == 0,
    "empty": np.zeros((4, 0), np.float32),
}


pytestmark = pytest.mark.usefixtures("four_devices")


def sharding(spec: Any, sizes: tuple[int, int] = (2, 2)) -> tx.NamedSharding:
    return tx.NamedSharding(tx.make_mesh(sizes, ("x", "y")), spec)


def in_tiles(value: np.ndarray[Any, Any], *tile: int, owners: int = 1, rank: int = 0) -> Tiles:
    """An array in tiles, which go round all processes."""
    grid = checkpoint.offsets(value.shape, tile)
    boxes = {o: tuple(slice(k, k + n) for k, n in zip(o, tile, strict=True)) for o in grid}
    return Tiles(
        value.dtype,
        value.shape,
        tile,
        {o: k % owners for k, o in enumerate(grid)},
        {o: value[boxes[o]] for k, o in enumerate(grid) if k % owners == rank},
    )


STRUCTURE = {"tinyxla.structure": json.dumps({"dict": [[{"str": "w"}, {"array": ["w", "f32"]}]]})}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state"


def tiled(path: Path, *tile: int) -> np.ndarray[Any, Any]:
    """A checkpoint of one array in tiles."""
    value = np.asarray(VALUES["f32"])
    write_checkpoint(path, Process(), lambda: (STRUCTURE, {"w": in_tiles(value, *tile)}))
    return value


# --- one process ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_sharded_array_of_one_process_is_saved_as_one_file_and_read_under_any_sharding(
    path: Path, spec: Any, name: str
) -> None:
    value = VALUES[name] if name != "c128" else jnp.asarray(VALUES[name])
    x = tx.device_put(value, sharding(spec))
    tx.save(path, x)
    assert path.is_file()
    whole = tx.load(path)
    np.testing.assert_array_equal(whole, x)
    assert whole.sharding.num_devices == 1
    for other in (P(), P("x"), P(("y", "x"))):
        for like in (
            tx.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding(other)),
            tx.device_put(x, sharding(other)),
        ):
            found = tx.load(path, like=like)
            assert found.sharding == sharding(other)
            np.testing.assert_array_equal(found, x)


def test_keys_are_read_under_a_sharding(path: Path) -> None:
    keys = tx.random.split(tx.random.key(3), 4)
    tx.save(path, keys)
    like = tx.ShapeDtypeStruct(keys.shape, keys.dtype, sharding=sharding(P("x")))
    assert (np.asarray(tx.random.key_data(tx.load(path, like=like))) == np.asarray(tx.random.key_data(keys))).all()


@pytest.mark.parametrize("tile", [(4, 8), (2, 4), (1, 8), (4, 2)], ids=str)
@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_tiles_of_any_shape_are_read_under_any_sharding(path: Path, tile: tuple[int, int], spec: Any) -> None:
    value = tiled(path, *tile)
    np.testing.assert_array_equal(tx.load(path)["w"], value)
    found = tx.load(path, like={"w": tx.ShapeDtypeStruct(value.shape, value.dtype, sharding=sharding(spec))})["w"]
    assert found.sharding == sharding(spec)
    np.testing.assert_array_equal(found, value)


def test_box_within_a_tile_is_a_view_of_the_file(path: Path) -> None:
    value = tiled(path, 2, 8)
    part = CheckpointReader(path).read("w", (slice(2, 4), slice(1, 3)))
    np.testing.assert_array_equal(part, value[2:4, 1:3])
    assert not part.flags.owndata
    assert not part.flags.writeable


def test_only_files_with_parts_of_a_box_are_opened(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_by_two(path, np.asarray(VALUES["f32"]), monkeypatch)
    next(path.glob("*-00001-of-00002.*")).unlink()
    reader = CheckpointReader(path)
    np.testing.assert_array_equal(reader.read("w", (slice(0, 2),)), VALUES["f32"][:2])
    with pytest.raises(FileFormatError, match=r"its file \w+-00001-of-00002.safetensors is missing"):
        reader.read("w")


def test_tree_that_is_not_split_replaces_a_checkpoint(path: Path) -> None:
    tiled(path, 2, 4)
    tree = {"step": 3, "w": jnp.ones((2, 3), "bfloat16"), "k": tx.random.key(1), "n": np.float64(2), "z": jnp.array(1j)}
    tx.save(path, tree)
    assert path.is_dir()
    found = tx.load(path)
    assert found["step"] == 3
    assert found["k"] == tree["k"]
    assert found["z"] == tree["z"]
    assert type(found["n"]) is np.float64
    assert found["w"].dtype == jnp.bfloat16
    assert len(list(path.iterdir())) == 2, "files of the checkpoint before are deleted"


def test_like_of_another_shape_or_an_indivisible_sharding_is_an_error(path: Path) -> None:
    tiled(path, 2, 4)
    with pytest.raises(PytreeError, match=r"is an array f32\[4,8\] in"):
        tx.load(path, like={"w": tx.ShapeDtypeStruct((4, 4), "float32", sharding=sharding(P("x")))})
    tx.save(path.with_name("odd"), jnp.ones(3))
    with pytest.raises(ShapeError, match="load: the tree: the size of dimension 0"):
        tx.load(path.with_name("odd"), like=tx.ShapeDtypeStruct((3,), "float32", sharding=sharding(P("x"))))


# --- several processes ------------------------------------------------------------------------------------------------


class OneOfTwo(Process):
    """Process 0 of two, the other of which runs `other` to say what it gives."""

    size = 2

    def __init__(self, other: Any) -> None:
        self._other = other

    def all_gather_bytes(self, data: bytes) -> list[bytes]:
        return [data, self._other(data)]


def save_by_two(path: Path, value: np.ndarray[Any, Any], monkeypatch: pytest.MonkeyPatch, other: Any = None) -> None:
    token = "0123456789abcdef"
    monkeypatch.setattr(checkpoint.secrets, "token_hex", lambda n: token)
    path.mkdir(exist_ok=True)
    tiles = in_tiles(value, 2, 8, owners=2, rank=1)
    written = {checkpoint.tile_name("w", o, tiles.tile): x for o, x in tiles.values.items()}
    container.write(path / f"{token}-00001-of-00002.safetensors", written, {})
    arrays = {"w": in_tiles(value, 2, 8, owners=2)}
    write_checkpoint(path, OneOfTwo(other or (lambda data: data)), lambda: (STRUCTURE, arrays))


def test_failure_of_another_process_leaves_the_old_checkpoint(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    value = tiled(path, 2, 4)

    def fails(data: bytes) -> bytes:
        return json.dumps({"error": "OSError: the disk is full", "agreed": ""}).encode() if b"{" in data else data

    with pytest.raises(ProcessError, match=r"process 1 could not write its part of .*state: OSError: the disk is full"):
        save_by_two(path, value + 1, monkeypatch, fails)
    np.testing.assert_array_equal(tx.load(path)["w"], value)
    assert not list(path.glob("0123456789abcdef-00000-*"))


def test_processes_with_other_trees_are_an_error(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def differs(data: bytes) -> bytes:
        return json.dumps({"error": None, "agreed": "other"}).encode() if b"{" in data else data

    with pytest.raises(ProcessError, match="processes 0 and 1 save trees whose arrays have different names"):
        save_by_two(path, np.asarray(VALUES["f32"]), monkeypatch, differs)
    assert not (path / INDEX).exists()


# --- damaged checkpoints ----------------------------------------------------------------------------------------------


def test_folder_without_an_index_is_an_error(path: Path) -> None:
    path.mkdir()
    with pytest.raises(FileFormatError, match=r"is a folder without index\.safetensors"):
        tx.load(path)


GRID = {"dtype": "F32", "shape": [4, 8], "tile": [2, 4], "files": [0, 0, 0, 0]}
DAMAGED: dict[str, Any] = {
    "too few tiles": {**GRID, "files": [0, 0, 0]},
    "tiles that do not divide": {**GRID, "tile": [3, 4]},
    "tile of size 0": {**GRID, "tile": [0, 4]},
    "another number of dimensions": {**GRID, "tile": [2]},
    "unknown file": {**GRID, "files": [0, 0, 0, 1]},
    "negative file": {**GRID, "files": [0, 0, 0, -1]},
    "unknown type": {**GRID, "dtype": "F33"},
    "another type": {**GRID, "dtype": "I32"},
    "other tiles than in the files": {**GRID, "tile": [4, 2]},
    "another shape": {**GRID, "shape": [8, 4]},
    "a list": [],
    "missing tiles": {k: v for k, v in GRID.items() if k != "tile"},
}


@pytest.mark.parametrize("case", DAMAGED)
def test_damaged_index_is_an_error(path: Path, case: str) -> None:
    tiled(path, 2, 4)
    metadata = container.Reader(path / INDEX).metadata
    container.write(path / INDEX, {}, {**metadata, "tinyxla.tiles": json.dumps({"w": DAMAGED[case]})})
    with pytest.raises(FileFormatError):
        tx.load(path)


@pytest.mark.parametrize("files", ["", "{}", "null", "[1]", '["../x.safetensors"]'])
def test_index_with_other_files_is_an_error(path: Path, files: str) -> None:
    tiled(path, 2, 4)
    metadata = container.Reader(path / INDEX).metadata
    container.write(path / INDEX, {}, {**metadata, "tinyxla.files": files})
    with pytest.raises(FileFormatError):
        tx.load(path)


@pytest.mark.parametrize("which", ["index", "part"])
def test_truncated_file_is_an_error(path: Path, which: str) -> None:
    tiled(path, 2, 4)
    file = path / INDEX if which == "index" else next(path.glob("*-of-*"))
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(FileFormatError):
        tx.load(path)
