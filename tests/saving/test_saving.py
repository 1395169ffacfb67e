"""`save` and `load`: trees come back as they were, and damaged files are errors."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest

import tinyxla as tx
import tinyxla.numpy as jnp
from tinyxla.errors import ArgumentError, ConcretizationError, FileFormatError, NestingError, PytreeError
from tinyxla.saving.container import MAX_HEADER, Reader, replacing
from tinyxla.shapes import KEY_TYPES
from tinyxla.shapes.element_types import element_types


class State(NamedTuple):
    step: Any
    weights: Any


@tx.tree_util.register_dataclass
@dataclasses.dataclass
class Layer:
    weight: Any
    name: str = dataclasses.field(default="", metadata={"static": True})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tree.safetensors"


def again(path: Path, tree: Any, **options: Any) -> Any:
    tx.save(path, tree)
    return tx.load(path, **options)


# --- round trips ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize("name", element_types)
def test_arrays_of_every_element_type_come_back(path: Path, name: str, mmap: bool) -> None:
    of = element_types[name]
    values = np.array([[1, 0, 1], [2, 1, 4]]) if of.bits >= 8 else np.array([[1, 0, 1], [1, 1, 0]])
    if of.kind in ("signed", "float") and name != "f8e8m0fnu":
        values = -values
    expected = (values * (1 + 2j) if of.kind == "complex" else values).astype(of.dtype)
    arrays = [jnp.asarray(expected), jnp.asarray(expected[0, 1]), jnp.asarray(expected[:0])]
    for x, y in zip(arrays, again(path, arrays, mmap=mmap), strict=True):
        assert isinstance(y, tx.Array)
        assert (y.dtype, y.shape, y.weak_type) == (x.dtype, x.shape, x.weak_type)
        assert y.tobytes() == x.tobytes()


@pytest.mark.parametrize("implementation", KEY_TYPES)
def test_random_keys_come_back(path: Path, implementation: str) -> None:
    keys = tx.random.split(tx.random.key(7, impl=implementation), 3)
    found = again(path, {"keys": keys, "one": keys[1]})
    assert found["keys"].dtype is keys.dtype
    assert (found["keys"] == keys).all()
    assert found["one"] == keys[1]


@pytest.mark.parametrize(
    "leaf",
    [True, -3, 10**6000, 1.5, -0.0, float("inf"), 2 - 0.0j, complex(-0.0, 3), "naïve\n\ud800", ""],
    ids=lambda leaf: type(leaf).__name__,
)
def test_scalars_of_python_come_back(path: Path, leaf: Any) -> None:
    found = again(path, leaf)
    assert type(found) is type(leaf)
    assert found == leaf
    assert type(leaf) is int or repr(found) == repr(leaf)  # zeros have signs


def test_nan_comes_back(path: Path) -> None:
    assert np.isnan(again(path, float("nan")))


def test_containers_come_back_with_their_order(path: Path) -> None:
    tree = {"b": [1, (2, None)], "a": {}, 3: [], 1.5: (), True: {"x": [[]]}}
    found = again(path, tree)
    assert found == tree
    assert [*map(repr, found)] == [*map(repr, tree)]
    assert type(found["b"][1]) is tuple


def test_weak_types_and_numpy_arrays_come_back(path: Path) -> None:
    weak, array, scalar = again(path, (jnp.asarray(1.0), np.arange(3, dtype=">i8"), np.float32(2)))
    assert weak.weak_type == jnp.asarray(1.0).weak_type
    assert isinstance(array, np.ndarray)
    assert array.dtype == np.int64
    assert array.flags.writeable
    assert type(scalar) is np.float32


def test_names_that_would_be_equal_are_told_apart(path: Path) -> None:
    tree = {"a": {"b": jnp.ones(1)}, "a.b": jnp.zeros(2), "__metadata__": jnp.ones(3)}
    found = again(path, tree)
    assert tx.tree.map(jnp.shape, found) == tx.tree.map(jnp.shape, tree)


def test_arrays_without_a_copy_are_the_files(path: Path) -> None:
    tx.save(path, {"w": jnp.arange(6.0).reshape(2, 3)})
    part = Reader(path).read("w", (slice(1, 2), slice(0, 2)))[0]
    np.testing.assert_array_equal(part, [3, 4])
    assert not part.flags.writeable
    donating = tx.jit(lambda x: x + 1, donate_argnums=0)
    mapped = tx.load(path, mmap=True)["w"]
    np.testing.assert_array_equal(donating(mapped), np.arange(1.0, 7).reshape(2, 3))
    np.testing.assert_array_equal(tx.load(path)["w"], np.arange(6.0).reshape(2, 3))


# --- classes and `like` -----------------------------------------------------------------------------------------------


def test_classes_are_made_as_in_like(path: Path) -> None:
    tree = State(3, {"layers": [Layer(jnp.ones((2, 3)), "first")], "counts": OrderedDict(a=1)})
    like = tx.tree.map(lambda x: x if isinstance(x, int) else tx.ShapeDtypeStruct(x.shape, x.dtype), tree)
    found = again(path, tree, like=like)
    assert type(found) is State
    assert found.weights["layers"][0].name == "first"
    assert type(found.weights["counts"]) is OrderedDict
    np.testing.assert_array_equal(found.weights["layers"][0].weight, np.ones((2, 3)))


@pytest.mark.parametrize(
    ("like", "message"),
    [
        (State(3, jnp.ones(2)), r"load: \.weights is an array f32\[3\] in .*, but an array f32\[2\] in `like`"),
        (State(3, jnp.ones(3, int)), r"load: \.weights is an array f32\[3\] in .*, but an array s32\[3\] in `like`"),
        (State(3.0, jnp.ones(3)), r"load: \.step is a Python int in .*, but of type float in `like`"),
        (State(None, jnp.ones(3)), r"load: \.step is a Python int in .*, but None in `like`"),
        (State(3, [jnp.ones(3)]), r"load: \.weights is an array f32\[3\] in .*, but a list of \[0\] in `like`"),
        ((3, jnp.ones(3)), r"load: the tree is a .*\.State in .*, but a tuple of \[0\], \[1\] in `like`"),
        (None, r"load: the tree is a .*\.State in .*, but None in `like`"),
    ],
)
def test_like_of_another_structure_is_an_error(path: Path, like: Any, message: str) -> None:
    tx.save(path, State(3, jnp.ones(3)))
    with pytest.raises(PytreeError, match=message):
        tx.load(path, like=like)


def test_dicts_with_other_keys_are_an_error(path: Path) -> None:
    tx.save(path, {"a": 1})
    with pytest.raises(PytreeError, match=r"the tree is a dict of \['a'\] in .*, but a dict of \['b'\] in `like`"):
        tx.load(path, like={"b": 1})


def test_class_without_like_is_an_error_that_names_it(path: Path) -> None:
    tx.save(path, {"state": State(3, None)})
    with pytest.raises(PytreeError, match=r"\['state'\] of .* is a tests\.saving\.test_saving\.State\. Give a tree"):
        tx.load(path)


# --- what cannot be saved ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"a": object()}, r"save: the leaf \['a'\] is of type object"),
        ([np.array(["x"])], r"save: the leaf \[0\] is a NumPy array of <U1"),
        ({(1, 2): 3}, r"save: the dict tree has the key \(1, 2\) of type tuple"),
    ],
)
def test_other_leaves_and_keys_are_an_error(path: Path, tree: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        tx.save(path, tree)
    assert os.listdir(path.parent) == []


def test_saving_a_tracer_is_an_error(path: Path) -> None:
    with pytest.raises(ConcretizationError, match="save: the leaf"):
        tx.jit(lambda x: tx.save(path, {"x": x}))(1.0)


def test_path_must_come_first() -> None:
    with pytest.raises(ArgumentError, match="path must be a string or a path"):
        tx.save({"a": 1}, "x")  # type: ignore[arg-type]


def test_deep_trees_are_an_error(path: Path) -> None:
    tree: Any = 1
    for _ in range(5000):
        tree = [tree]
    with pytest.raises(NestingError):
        tx.save(path, tree)


# --- atomicity --------------------------------------------------------------------------------------------------------


def test_failure_leaves_the_old_file(path: Path) -> None:
    tx.save(path, 1)

    def fail() -> None:
        with replacing(path) as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert tx.load(path) == 1
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.skipif(os.name != "posix", reason="links and permissions are those of POSIX")
def test_links_stay_and_permissions_are_usual(path: Path) -> None:
    link = path.with_name("link")
    link.symlink_to(path)
    tx.save(link, 2)
    assert link.is_symlink()
    assert tx.load(path) == 2
    mask = os.umask(0)
    os.umask(mask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~mask


# --- damaged files ----------------------------------------------------------------------------------------------------


def of_header(header: Any, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def entry(dtype: Any = "F32", shape: Any = (1,), offsets: Any = (0, 4)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def of_structure(structure: str) -> bytes:
    return of_header({"__metadata__": {"tinyxla.structure": structure}, "x": entry()}, b"\0\0\x80?")


DAMAGED = {
    "empty": (b"", "it has 0 bytes"),
    "long header": (b"\xff" * 8, "its header should have"),
    "header beyond the limit": ((MAX_HEADER + 1).to_bytes(8, "little") + b"{}", "its header should have"),
    "no JSON": (of_header(b"{"), "its header is no JSON"),
    "no UTF-8": (of_header(b'{"\xff": 1}'), "its header is no JSON"),
    "list": (of_header([]), "no JSON object"),
    "deep header": (of_header(b"[" * 100_000), "nested too deeply"),
    "name twice": (of_header(b'{"a":1,"a":1}'), "a name occurs twice"),
    "metadata": (of_header({"__metadata__": {"a": 1}}), "map strings to strings"),
    "field missing": (of_header({"x": {"dtype": "F32"}}), "must have dtype, shape and data_offsets"),
    "element type": (of_header({"x": entry("F31")}, bytes(4)), "'F31', which is none of BOOL"),
    "element type no text": (of_header({"x": entry([])}, bytes(4)), "has the element type"),
    "negative size": (of_header({"x": entry(shape=[-1])}, bytes(4)), r"has the shape \[-1\]"),
    "boolean size": (of_header({"x": entry(shape=[True])}, bytes(4)), r"has the shape \[True\]"),
    "one offset": (of_header({"x": entry(offsets=[0])}, bytes(4)), "has the shape"),
    "range too short": (of_header({"x": entry(shape=[2])}, bytes(4)), r"has the range \[0, 4\]"),
    "range backwards": (of_header({"x": entry(shape=[1], offsets=[4, 0])}, bytes(4)), "has the range"),
    "huge sizes": (of_header({"x": entry(shape=[0, 1 << 80], offsets=[0, 0])}), "has the range"),
    "many dimensions": (of_header({"x": entry(shape=[1] * 99)}, bytes(4)), "has the range"),
    "overlap": (of_header({"x": entry(), "y": entry()}, bytes(4)), "begins at byte 0 of the data, not at 4"),
    "gap": (of_header({"x": entry(offsets=[4, 8])}, bytes(8)), "begins at byte 4 of the data, not at 0"),
    "truncated": (of_header({"x": entry()}, bytes(3)), "its arrays take 4 bytes, but it has 3"),
    "bytes behind": (of_header({"x": entry()}, bytes(5)), "its arrays take 4 bytes, but it has 5"),
    "boolean bytes": (of_header({"x": entry("BOOL", offsets=[0, 1])}, b"\2"), "other bytes than 0 and 1"),
    "structure no JSON": (of_structure("["), "its structure is no JSON"),
    "deep structure": (of_structure('{"list":[' * 100_000), "nested too deeply"),
    "node no object": (of_structure("[]"), r"\[\] is out of place"),
    "node of two names": (of_structure('{"int":"1","str":"1"}'), "is out of place"),
    "unknown kind": (of_structure('{"set":["x","f32"]}'), "can be a leaf of the kind 'set'"),
    "no number": (of_structure('{"int":"x"}'), "'x' is no int"),
    "number no text": (of_structure('{"float":[]}'), "is no float"),
    "key no scalar": (of_structure('{"dict":[[null,null]]}'), "None is out of place"),
    "key twice": (of_structure('{"dict":[[{"str":"a"},null],[{"str":"a"},null]]}'), "a key twice"),
    "unknown array": (of_structure('{"array":["y","f32"]}'), "'y' is no array of it"),
    "name no text": (of_structure('{"array":[[],"f32"]}'), r"\[\] is no array of it"),
    "unknown type": (of_structure('{"array":["x","f31"]}'), "no array of the type 'f31'"),
    "other type": (of_structure('{"array":["x","s32"]}'), "does not hold elements s32"),
    "complex without parts": (of_structure('{"array":["x","c128"]}'), "does not hold elements c128"),
    "unknown generator": (of_structure('{"key":["x","dice"]}'), "no key of the type 'dice'"),
    "no key": (of_structure('{"key":["x","threefry2x32"]}'), "does not hold words of keys threefry2x32"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_file_is_an_error(path: Path, name: str) -> None:
    data, message = DAMAGED[name]
    path.write_bytes(data)
    with pytest.raises(FileFormatError, match=message):
        tx.load(path)


@pytest.mark.parametrize("change", [lambda b: b[:-1], lambda b: b + b"\0", lambda b: b[:9]])
def test_truncated_and_longer_files_are_errors(path: Path, change: Callable[[bytes], bytes]) -> None:
    tx.save(path, {"w": jnp.ones(100)})
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(FileFormatError):
        tx.load(path)


# --- other libraries --------------------------------------------------------------------------------------------------


def test_file_without_a_structure_is_a_dict(path: Path) -> None:
    path.write_bytes(of_header({"x": entry("BF16", [2], [0, 4]), "y": entry(offsets=[4, 8])}, bytes(8)))
    found = tx.load(path)
    assert {name: (x.dtype.name, x.shape) for name, x in found.items()} == {
        "x": ("bfloat16", (2,)),
        "y": ("float32", (1,)),
    }
    assert tx.load(path, like=found).keys() == found.keys()


@pytest.mark.skipif(importlib.util.find_spec("safetensors") is None, reason="safetensors is not installed")
def test_safetensors_reads_what_is_saved(path: Path) -> None:
    import safetensors.numpy  # pyright: ignore[reportMissingImports]

    tree = {"layers": [{"w": jnp.arange(6.0).reshape(2, 3), "n": jnp.array([-1, 3], "int4")}], "step": 3}
    tx.save(path, tree)
    found = safetensors.numpy.load_file(path)
    np.testing.assert_array_equal(found["layers.0.w"], np.arange(6.0).reshape(2, 3))
    np.testing.assert_array_equal(found["layers.0.n"], [-1, 3])
    safetensors.numpy.save_file({"a": np.ones(2, ml_dtypes.bfloat16), "b": np.zeros((2, 0))}, path)
    assert {name: str(x.dtype) for name, x in tx.load(path).items()} == {"a": "bfloat16", "b": "float64"}
