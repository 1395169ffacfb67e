"""The safetensors format: named arrays of bytes behind a JSON header, written atomically and read from a memory map.

A file is the length of the header (8 bytes, little-endian), the header, and the data. The header is an object that
gives each name its element type, shape and range of bytes in the data; `__metadata__` maps strings to strings. Ranges
neither overlap nor leave gaps. Everything in a header is checked before it is used.

Source: https://huggingface.co/docs/safetensors, section Format.
"""

from __future__ import annotations

import contextlib
import json
import math
import mmap
import os
import secrets
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import ml_dtypes
import numpy as np

from tinyxla.errors import ArgumentError, FileFormatError

METADATA = "__metadata__"
MAX_HEADER = 100_000_000  # bytes, as the format has it
_LENGTH = 8  # bytes of the length of the header
_ALIGNMENT = 64  # bytes, of the data: a line of the cache
_MAX_ELEMENTS, MAX_DIMENSIONS = 1 << 58, 32  # of an array in NumPy

Box = tuple[slice, ...]  # a part of an array, by the range along each dimension

_NUMPY = "BOOL ? U8 u1 I8 i1 U16 u2 I16 i2 U32 u4 I32 i4 U64 u8 I64 i8 F16 f2 F32 f4 F64 f8 C64 c8".split()
DTYPES: dict[str, np.dtype[Any]] = {
    **{name: np.dtype(code).newbyteorder("<") for name, code in zip(_NUMPY[::2], _NUMPY[1::2], strict=True)},
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "F8_E4M3FNUZ": np.dtype(ml_dtypes.float8_e4m3fnuz),
    "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "F8_E5M2FNUZ": np.dtype(ml_dtypes.float8_e5m2fnuz),
    "F8_E8M0": np.dtype(ml_dtypes.float8_e8m0fnu),
}
NAMES: dict[np.dtype[Any], str] = {dtype: name for name, dtype in DTYPES.items()}


@dataclass(frozen=True)
class Entry:
    """An array in a file: its element type by the format's name, its shape, and its range of bytes in the data."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


# --- writing ----------------------------------------------------------------------------------------------------------


def write(path: Path, arrays: Mapping[str, np.ndarray[Any, Any]], metadata: Mapping[str, str]) -> None:
    """Write arrays, of element types in `NAMES`, and metadata to a file, which appears whole or not at all."""
    names = sorted(arrays, key=lambda name: -arrays[name].dtype.itemsize)  # so that each is aligned after the last
    entries: dict[str, Entry] = {}
    stop = 0
    for name in names:
        start, stop = stop, stop + arrays[name].nbytes
        entries[name] = Entry(NAMES[arrays[name].dtype], arrays[name].shape, start, stop)
    header = _header(entries, metadata)
    with replacing(path) as file:
        file.write(header)
        for name in names:
            file.write(np.ascontiguousarray(arrays[name]).reshape(-1).view(np.uint8).data)


def _header(entries: Mapping[str, Entry], metadata: Mapping[str, str]) -> bytes:
    """The length and the header, with spaces so that the data is aligned."""
    described: dict[str, Any] = {METADATA: dict(metadata)}
    for name, entry in entries.items():
        offsets = [entry.start, entry.stop]
        described[name] = {"dtype": entry.dtype, "shape": list(entry.shape), "data_offsets": offsets}
    text = json.dumps(described, separators=(",", ":")).encode()
    text += b" " * (-(_LENGTH + len(text)) % _ALIGNMENT)
    if len(text) > MAX_HEADER:
        raise ArgumentError(
            f"save: the names and shapes of {len(entries)} arrays and the structure take {len(text)} bytes, but at "
            f"most {MAX_HEADER} are possible; stack arrays of one shape, or write several files."
        )
    return len(text).to_bytes(_LENGTH, "little") + text


@contextlib.contextmanager
def replacing(path: Path) -> Generator[BinaryIO]:
    """A file under another name in the same folder, which takes the place of `path` when all of it is on the disk. If
    the block fails, `path` stays as it was."""
    target = Path(os.path.realpath(path))  # a link stays one
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(target.parent)


def _sync_folder(folder: Path) -> None:
    """Have the new name of a file on the disk, where folders are files."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


# --- reading ----------------------------------------------------------------------------------------------------------


class Reader:
    """A file that is mapped into memory. Pages are read when an array is looked at.

    Attributes:
        entries: the arrays, by name.
        metadata: strings, by name.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size < _LENGTH:
                raise self.damaged(f"it has {size} bytes, which is less than the length of a header")
            length = int.from_bytes(file.read(_LENGTH), "little")
            if length > min(size - _LENGTH, MAX_HEADER):
                raise self.damaged(
                    f"its header should have {length} bytes, but at most {min(size - _LENGTH, MAX_HEADER)} are possible"
                )
            parsed = self.json(file.read(length), "header")
            if not isinstance(parsed, dict):
                raise self.damaged("its header is no JSON object")
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._data = np.frombuffer(mapped, np.uint8)[_LENGTH + length :]  # views of it keep the map
        self.metadata = self._metadata(parsed.pop(METADATA, {}))
        self.entries = {name: self._entry(name, described) for name, described in parsed.items()}
        self._check_ranges(self._data.size)

    def read(self, name: str, box: Box | None = None) -> np.ndarray[Any, Any]:
        """An array, or the part of it in a box, in the file's own memory, which cannot be written. The pages that hold
        it are read when they are looked at."""
        entry = self.entries[name]
        value = self._data[entry.start : entry.stop].view(DTYPES[entry.dtype]).reshape(entry.shape)
        return value if box is None else value[box]

    def damaged(self, reason: str) -> FileFormatError:
        """The error that says what is wrong with the file."""
        return FileFormatError(f"{self.path} is no file of arrays in the safetensors format, or damaged: {reason}.")

    def json(self, text: bytes | str, what: str) -> Any:
        """The value of a text, which must be JSON without repeated names."""

        def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
            found = dict(pairs)
            if len(found) < len(pairs):
                raise ValueError("a name occurs twice")
            return found

        try:
            return json.loads(text, object_pairs_hook=unique)
        except RecursionError:
            raise self.damaged(f"its {what} is nested too deeply") from None
        except ValueError as error:
            raise self.damaged(f"its {what} is no JSON: {error}") from None

    def _metadata(self, found: Any) -> dict[str, str]:
        if not isinstance(found, dict) or not all(isinstance(text, str) for text in found.values()):
            raise self.damaged(f"{METADATA} must map strings to strings")
        return found

    def _entry(self, name: str, described: Any) -> Entry:
        if not isinstance(described, dict) or described.keys() != {"dtype", "shape", "data_offsets"}:
            raise self.damaged(f"the array {name!r} must have dtype, shape and data_offsets")
        dtype, shape, offsets = (described[key] for key in ("dtype", "shape", "data_offsets"))
        if not isinstance(dtype, str) or dtype not in DTYPES:
            raise self.damaged(
                f"the array {name!r} has the element type {dtype!r}, which is none of {', '.join(DTYPES)}"
            )
        if not are_sizes(shape) or not are_sizes(offsets) or len(offsets) != 2:
            raise self.damaged(f"the array {name!r} has the shape {shape!r} and the range {offsets!r}")
        size = DTYPES[dtype].itemsize * math.prod(shape)
        is_possible = len(shape) <= MAX_DIMENSIONS and math.prod(n or 1 for n in shape) <= _MAX_ELEMENTS
        if size != offsets[1] - offsets[0] or not is_possible:
            raise self.damaged(f"the array {name!r} of shape {shape!r} and type {dtype} has the range {offsets!r}")
        return Entry(dtype, tuple(shape), *offsets)

    def _check_ranges(self, size: int) -> None:
        stop = 0
        for name, entry in sorted(self.entries.items(), key=lambda item: (item[1].start, item[1].stop)):
            if entry.start != stop:
                raise self.damaged(f"the array {name!r} begins at byte {entry.start} of the data, not at {stop}")
            stop = entry.stop
        if stop != size:
            raise self.damaged(f"its arrays take {stop} bytes, but it has {size}")


def are_sizes(found: Any) -> bool:
    """Whether a value of JSON is a list of sizes."""
    return isinstance(found, list) and all(type(n) is int and n >= 0 for n in found)


def unique_names(wanted: Iterable[str]) -> list[str]:
    """The names, those that occur again with a number behind."""
    used = {METADATA}
    found: list[str] = []
    for name in wanted:
        free, k = name, 2
        while free in used:
            free, k = f"{name}~{k}", k + 1
        used.add(free)
        found.append(free)
    return found
