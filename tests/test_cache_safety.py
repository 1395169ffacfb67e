"""What is in the cache's directory but was not written by this library, for this name, is never run."""

from __future__ import annotations

import ctypes
import errno
import hmac
import os
import platform
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tinyxla import cache
from tinyxla.backends.numba.emit.operations import UnsupportedKernel
from tinyxla.backends.numba.jit import engine
from tinyxla.backends.numba.jit.object_files import is_native_object, packed, unpacked

posix = pytest.mark.skipif(os.name != "posix", reason="files have other owners and kinds there")
elf = pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="objects are no ELF files there")
HEADER = len(cache.FORMAT) + 32


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "cache"
    monkeypatch.setenv("TINYXLA_CACHE_DIR", str(path))
    monkeypatch.setattr(cache, "counts", type(cache.counts)())
    return path


def text(constant: int) -> str:
    return f"define i64 @add(i64 %x) {{\n  ret i64 (add i64 %x, {constant})\n}}\n"


def add(constant: int, x: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """By native code, for which the cache is asked."""
    monkeypatch.setattr(engine, "_addresses", {})
    address = engine.compile_llvm(text(constant), ["add"])["add"]
    return ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(address)(x)


def entries(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.object"))


def sign(path: Path, content: bytes) -> None:
    """Write an entry as the library would: what somebody does who has the secret."""
    secret = (path.parent / "secret").read_bytes()
    path.write_bytes(cache.FORMAT + hmac.digest(secret, path.stem.encode() + b"\0" + content, "sha256") + content)


def content(path: Path) -> bytes:
    return path.read_bytes()[HEADER:]


# --- names, checksums, secrets ----------------------------------------------------------------------------------------


def test_an_entry_under_the_name_of_another_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (add(1, 1, monkeypatch), add(2, 1, monkeypatch)) == (2, 3)
    one, two = entries(folder)
    one.write_bytes(two.read_bytes())
    assert (add(1, 1, monkeypatch), add(2, 1, monkeypatch)) == (2, 3)
    assert cache.counts.damaged == 1
    assert cache.verify() == []  # it was replaced


def test_a_checksum_without_the_secret_is_refused(folder: Path) -> None:
    cache.write("name", b"code")
    (path,) = entries(folder)
    for key in (b"", bytes(32)):
        path.write_bytes(cache.FORMAT + hmac.digest(key, b"name\0evil", "sha256") + b"evil")
        assert cache.read("name") is None


def test_entries_of_another_directory_are_refused(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.write("name", b"code")
    other = tmp_path / "other"
    monkeypatch.setenv("TINYXLA_CACHE_DIR", str(other))
    cache.write("another", b"code")
    (other / "name.object").write_bytes((folder / "name.object").read_bytes())
    assert cache.read("name") is None
    monkeypatch.setenv("TINYXLA_CACHE_DIR", str(folder))
    assert cache.read("name") == b"code"


@pytest.mark.parametrize(
    "spoil", [Path.unlink, lambda path: path.write_bytes(b"short"), lambda path: path.chmod(0o644)]
)
def test_without_a_private_secret_nothing_is_read_and_writing_makes_a_new_one(
    spoil: Callable[[Path], Any], folder: Path
) -> None:
    if os.name != "posix" and spoil is not Path.unlink:
        pytest.skip("files have no such rights there")
    cache.write("name", b"code")
    before = (folder / "secret").read_bytes()
    spoil(folder / "secret")
    assert cache.read("name") is None
    cache.write("name", b"code")
    assert cache.read("name") == b"code"
    assert (folder / "secret").read_bytes() != before


@posix
def test_the_secret_is_random_and_private(folder: Path) -> None:
    cache.write("name", b"code")
    assert (folder / "secret").stat().st_mode & 0o777 == 0o600
    assert (folder / "secret").stat().st_size == 32
    cache.clear()
    assert sorted(path.name for path in folder.iterdir()) == ["secret"]
    cache.write("again", b"code")
    assert cache.read("again") == b"code"


def test_a_secret_that_another_process_makes_first_is_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.write("name", b"code")
    found: list[Any] = [None]
    really = cache._secret
    monkeypatch.setattr(cache, "_secret", lambda where: found.pop() if found else really(where))
    cache.write("another", b"code")
    assert (cache.read("name"), cache.read("another")) == (b"code", b"code")
    assert not list(folder.glob("*.part"))


def test_where_there_are_no_hard_links_a_secret_is_made_all_the_same(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise PermissionError(errno.EPERM, "no links")

    monkeypatch.setattr(cache.os, "link", refuse)
    cache.write("name", b"code")
    assert cache.read("name") == b"code"


# --- files of other kinds and owners ----------------------------------------------------------------------------------


def fifo(path: Path) -> None:
    os.mkfifo(path, 0o600)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def link(path: Path) -> None:
    twin = path.with_suffix(".twin")
    twin.write_bytes(SAVED[path.name])
    twin.chmod(0o600)
    path.symlink_to(twin)


def writable(path: Path) -> None:
    path.write_bytes(SAVED[path.name])
    path.chmod(0o620)


SAVED: dict[str, bytes] = {}


@posix
@pytest.mark.parametrize("make", [fifo, device, link, writable])
@pytest.mark.parametrize("name", ["entry", "secret"])
def test_what_is_no_file_of_the_users_own_neither_hangs_nor_is_read(
    make: Callable[[Path], None], name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert add(1, 1, monkeypatch) == 2
    (entry,) = entries(folder)
    path = entry if name == "entry" else folder / "secret"
    SAVED[path.name] = path.read_bytes()
    path.unlink()
    make(path)
    assert cache.read(entry.stem) is None
    assert add(1, 5, monkeypatch) == 6
    assert add(1, 6, monkeypatch) == 7
    assert cache.counts.hits == 1  # what was written again
    assert cache.verify() == []


@posix
def test_files_of_another_owner_are_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.write("name", b"code")
    really = os.fstat

    class Foreign:
        def __init__(self, descriptor: int) -> None:
            status = really(descriptor)
            self.st_uid, self.st_mode, self.st_size = status.st_uid + 1, status.st_mode, status.st_size

    monkeypatch.setattr(cache.os, "fstat", Foreign)
    assert cache.read("name") is None


# --- formats and machines ---------------------------------------------------------------------------------------------


def test_what_the_compiler_makes_is_a_native_object(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert add(1, 1, monkeypatch) == 2
    (entry,) = entries(folder)
    found = unpacked(content(entry))
    assert found is not None
    assert is_native_object(found[0])
    assert found[1] == []


@elf
@pytest.mark.parametrize(
    ("offset", "value"),
    [
        (0, b"\x7eELF"),
        (4, b"\x01"),  # 32 bits
        (5, b"\x02"),  # big-endian
        (16, struct.pack("=H", 2)),  # an executable
        (16, struct.pack("=H", 3)),  # a shared object
        (18, struct.pack("=H", 20)),  # PowerPC
        (18, struct.pack("=H", 183 if platform.machine() == "x86_64" else 62)),
    ],
)
def test_objects_of_other_formats_and_machines_are_compiled_again(
    offset: int, value: bytes, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert add(1, 1, monkeypatch) == 2
    (entry,) = entries(folder)
    good = content(entry)
    code = bytearray(good[good.index(b"\0") + 1 :])
    code[offset : offset + len(value)] = value
    assert not is_native_object(bytes(code))
    sign(entry, packed(bytes(code), []))
    assert add(1, 5, monkeypatch) == 6
    assert content(entry) == good


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\x7fELF", b"no separator", b"\0" + b"\x7fELF\x02\x01\x01" + bytes(9)])
def test_entries_that_are_too_short_are_compiled_again(
    data: bytes, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert unpacked(data) is None
    assert add(1, 1, monkeypatch) == 2
    (entry,) = entries(folder)
    sign(entry, data)
    assert add(1, 5, monkeypatch) == 6


CALLS = """
declare i64 @tinyxla_test_missing(i64)
define i64 @add(i64 %x) {
  %y = call i64 @tinyxla_test_missing(i64 %x)
  ret i64 %y
}
"""


def test_what_an_entry_calls_must_be_there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LLVM would end the process."""
    engine.define_symbol("tinyxla_test_missing", ctypes.cast(ctypes.CDLL(None).labs, ctypes.c_void_p).value or 0)
    engine.compile_llvm(CALLS, ["add"])
    (entry,) = entries(folder)
    names, code = content(entry).split(b"\0", 1)
    assert names == b"tinyxla_test_missing"
    sign(entry, packed(code, ["tinyxla_test_such"]))
    monkeypatch.setattr(engine, "_addresses", {})
    with pytest.raises(UnsupportedKernel, match="tinyxla_test_such"):
        engine.compile_llvm(CALLS, ["add"])


PROGRAM = """
import tinyxla as tx
print(float(tx.jit(lambda x: x * 2 + 1)(3.0)))
"""


@pytest.mark.thorough
def test_a_process_survives_entries_that_were_exchanged(folder: Path) -> None:
    programs = [PROGRAM, PROGRAM.replace("x * 2 + 1", "(x * 5 + 1).sum()")]
    run = lambda program: subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)  # noqa: E731
    assert [float(run(program).stdout) for program in programs] == [7, 16]
    found = entries(folder)
    data = [path.read_bytes() for path in found]
    for path, other in zip(found, [*data[1:], data[0]], strict=True):
        path.write_bytes(other)
    assert [float(run(program).stdout) for program in programs] == [7, 16]
