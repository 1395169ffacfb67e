"""The cache on disk: shared by processes, private, bounded; nothing that is wrong with it stops a program."""

from __future__ import annotations

import ctypes
import errno
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tinyxla as tx
from tests.support import ROOT
from tinyxla import cache
from tinyxla.backends.numba.jit import engine
from tinyxla.errors import AttributeValueError
from tinyxla.ops import ops

ADD_ONE = "define i64 @add_one(i64 %x) {\n  %y = add i64 %x, 1\n  ret i64 %y\n}\n"
PROGRAM = """
import os, numpy as np
import tinyxla as tx
from tinyxla import cache
from tinyxla.backends.numba.jit import engine
found = tx.jit(lambda x: tx.numpy.tanh(x) * 2 + 1)(np.arange(5, dtype=np.float32))
np.testing.assert_allclose(np.asarray(found), np.tanh(np.arange(5)) * 2 + 1, 1e-5)
info, made = cache.info(), engine.cache_info()
print(info.directory, made.compilations > 0, made.disk_hits > 0, info.damaged, info.entries, info.reason, sep="|")
"""
posix = pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory for the cache that does not exist, and as in a new process nothing that is compiled."""
    path = tmp_path / "cache"
    monkeypatch.setenv("TINYXLA_CACHE_DIR", str(path))
    monkeypatch.setattr(cache, "counts", type(cache.counts)())
    forget(monkeypatch)
    return path


@pytest.fixture(autouse=True)
def restored_options() -> Iterator[None]:
    yield
    tx.config.update("compilation_cache_dir", None)
    tx.config.update("enable_compilation_cache", True)


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_addresses", {})


def add_one(x: int) -> int:
    """By native code, for which the cache is asked."""
    address = engine.compile_llvm(ADD_ONE, ["add_one"])["add_one"]
    return ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(address)(x)


def counted() -> tuple[int, int, int, int]:
    return cache.counts.hits, cache.counts.misses, cache.counts.damaged, cache.counts.writes


def start(program: str = PROGRAM, **environment: str | None) -> subprocess.Popen[str]:
    merged = {**os.environ, **environment}
    given = {name: value for name, value in merged.items() if value is not None}
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, env=given, stdout=pipe, stderr=pipe, text=True)


def finished(process: subprocess.Popen[str]) -> list[str]:
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    return output.strip().split("|")


# --- what is kept, and found again ------------------------------------------------------------------------------------


def test_an_entry_is_found_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert add_one(1) == 2
    assert counted() == (0, 1, 0, 1)
    forget(monkeypatch)
    assert add_one(2) == 3
    assert counted() == (1, 1, 0, 1)
    (entry,) = cache.entries()
    assert entry.bytes == (folder / f"{entry.key}.object").stat().st_size
    assert abs(entry.used - time.time()) < 60


def test_processes_share_what_they_compile(folder: Path) -> None:
    first, again = (finished(start()) for _ in range(2))
    assert first[:3] == [str(folder), "True", "False"]
    assert again[:3] == [str(folder), "False", "True"]


@pytest.mark.thorough
def test_processes_may_race_for_the_same_entries(folder: Path) -> None:
    """Whoever comes first: all compute the same, and what is left is whole."""
    racing = [start() for _ in range(4)]
    assert {finished(process)[3] for process in racing} == {"0"}
    assert cache.verify() == []
    assert cache.entries()
    assert not list(folder.glob("*.part"))


@pytest.mark.parametrize("part", ["processor", "version", "_emission_version"])
def test_other_processors_and_versions_have_other_entries(
    part: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def keys() -> tuple[str, str]:
        engine._environment.cache_clear()
        return engine._key("text"), engine._key("loops", engine._emission_version())

    before = keys()
    if part == "version":
        monkeypatch.setattr(engine.llvmlite, "__version__", "0.0.1")
    else:
        monkeypatch.setattr(engine, part, lambda: ("other", "other") if part == "processor" else "other")
    after = keys()
    monkeypatch.undo()
    assert keys() == before
    assert after[1] != before[1]
    assert (after[0] != before[0]) == (part != "_emission_version")


@pytest.mark.parametrize("change", [{"name": "sinh"}, {"slow_path": frozenset({"float"})}])
def test_other_scalar_math_of_an_op_has_other_entries(change: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    before = engine._emission_version.__wrapped__()
    scalar = ops["tanh"].scalar
    assert scalar is not None
    monkeypatch.setattr(ops["tanh"], "scalar", scalar._replace(**change))
    assert engine._emission_version.__wrapped__() != before


# --- damage -----------------------------------------------------------------------------------------------------------


def truncated(entry: Path) -> None:
    entry.write_bytes(entry.read_bytes()[:-9])


def flipped(entry: Path) -> None:
    data = bytearray(entry.read_bytes())
    data[len(data) // 2] ^= 1
    entry.write_bytes(data)


def header_flipped(entry: Path) -> None:
    data = bytearray(entry.read_bytes())
    data[20] ^= 1
    entry.write_bytes(data)


def lengthened(entry: Path) -> None:
    entry.write_bytes(entry.read_bytes() + b"\0")


def emptied(entry: Path) -> None:
    entry.write_bytes(b"")


def foreign(entry: Path) -> None:
    entry.write_bytes(b"\x7fELF" + bytes(500))


def linked(entry: Path) -> None:
    other = entry.parent.parent / "other"
    other.write_bytes(b"not an entry")
    entry.unlink()
    entry.symlink_to(other)


def linked_to_itself(entry: Path) -> None:
    entry.unlink()
    entry.symlink_to(entry)


DAMAGE = [truncated, flipped, header_flipped, lengthened, emptied, foreign, linked, linked_to_itself]


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_entries_are_compiled_again_and_replaced(
    damage: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert add_one(1) == 2
    (entry,) = folder.glob("*.object")
    good = entry.read_bytes()
    damage(entry)
    forget(monkeypatch)
    assert add_one(2) == 3
    assert counted() == (0, 1, 1, 2)
    assert entry.read_bytes()[:49] == good[:49]
    assert not entry.is_symlink()
    forget(monkeypatch)
    assert add_one(3) == 4
    assert counted() == (1, 1, 1, 2)


@pytest.mark.parametrize("damage", DAMAGE)
def test_verify_drops_damaged_entries(damage: Any, folder: Path) -> None:
    assert add_one(1) == 2
    cache.write("sound", b"code")
    (entry,) = [path for path in folder.glob("*.object") if path.stem != "sound"]
    damage(entry)
    assert cache.verify() == [entry.stem]
    assert [entry.key for entry in cache.entries()] == ["sound"]
    assert cache.verify() == []


def test_a_directory_in_the_place_of_an_entry(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert add_one(1) == 2
    (entry,) = folder.glob("*.object")
    entry.unlink()
    entry.mkdir()
    for x in (2, 3):
        forget(monkeypatch)
        assert add_one(x) == x + 1
    assert cache.verify() == [entry.stem]
    assert cache.clear() == 0
    assert [path.name for path in folder.glob("*.object")] == [entry.name]


def test_a_checksum_of_other_code_does_not_pass(folder: Path) -> None:
    cache.write("one", b"first")
    cache.write("two", b"second")
    one, two = folder / "one.object", folder / "two.object"
    header = len(cache.FORMAT) + 32
    one.write_bytes(two.read_bytes()[:header] + one.read_bytes()[header:])
    assert (cache.read("one"), cache.read("two")) == (None, b"second")


# --- directories that cannot be used ----------------------------------------------------------------------------------


def test_where_no_directory_can_be_made(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    obstacle = tmp_path / "file"
    obstacle.write_text("in the way")
    for path in (str(obstacle / "cache"), str(obstacle), "/proc/none/cache"):
        monkeypatch.setenv("TINYXLA_CACHE_DIR", path)
        forget(monkeypatch)
        assert cache.directory() is None
        assert "cannot be made" in cache.info().reason
        assert add_one(4) == 5
    assert cache.entries() == []
    assert str(cache.info()).startswith("There is no cache on disk: its directory cannot be made")


def test_a_directory_that_can_only_be_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert add_one(1) == 2

    def refuse(*_: Any, **__: Any) -> Any:
        raise PermissionError(errno.EROFS, "read-only")

    def open_to_read(path: Any, flags: int, *more: Any, really: Any = os.open) -> int:
        return refuse() if flags & (os.O_WRONLY | os.O_RDWR) else really(path, flags, *more)

    monkeypatch.setattr(cache.os, "open", open_to_read)
    for name in ("utime", "replace", "link"):
        monkeypatch.setattr(cache.os, name, refuse)
    forget(monkeypatch)
    assert add_one(1) == 2
    cache.write("another", b"code")
    assert counted() == (1, 1, 0, 1)
    assert len(list(folder.glob("*.object"))) == 1


@posix
@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() == 0, reason="the system refuses nothing to root")
def test_a_directory_that_the_system_lets_only_be_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert add_one(1) == 2
    folder.chmod(0o500)
    cache.write("another", b"code")
    forget(monkeypatch)
    assert add_one(1) == 2
    assert cache.info().entries == 1


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("home", [None, "/proc/none", "/dev/null"], ids=["missing", "not writable", "a file"])
def test_without_a_home(home: str | None) -> None:
    """Where HOME is not set the password file may name one, or not."""
    program = PROGRAM if home else "import pwd\npwd.getpwuid = lambda uid: {}[uid]\n" + PROGRAM
    found = finished(start(program, HOME=home, XDG_CACHE_HOME=None, TINYXLA_CACHE_DIR=None))
    assert found[:4] == ["None", "True", "False", "0"]
    assert "cannot be made" in found[5]


def test_the_directory_comes_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TINYXLA_CACHE_DIR")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache.directory() == tmp_path / "home" / ".cache" / "tinyxla"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache.directory() == tmp_path / "xdg" / "tinyxla"
    monkeypatch.setenv("TINYXLA_CACHE_DIR", str(tmp_path / "own"))
    assert cache.directory() == tmp_path / "own"


@posix
def test_what_others_may_have_written_is_not_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert add_one(1) == 2
    assert folder.stat().st_mode & 0o777 == 0o700
    assert [path.stat().st_mode & 0o777 for path in folder.glob("*.object")] == [0o600]
    for mode in (0o777, 0o770, 0o702):
        folder.chmod(mode)
        forget(monkeypatch)
        assert cache.directory() is None
        assert "others may write" in cache.info().reason
        assert add_one(1) == 2
    assert counted() == (0, 1, 0, 1)


@posix
def test_the_directory_of_another_user(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert add_one(1) == 2
    monkeypatch.setattr(cache.os, "getuid", lambda: os.stat(folder).st_uid + 1)
    forget(monkeypatch)
    assert cache.directory() is None
    assert "another user" in cache.info().reason
    assert add_one(1) == 2
    assert counted() == (0, 1, 0, 1)


def test_the_directory_is_deleted_while_a_program_runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for x in range(3):
        forget(monkeypatch)
        assert add_one(x) == x + 1
        (entry,) = folder.glob("*.object")
        entry.unlink()
        (folder / "secret").unlink()
        folder.rmdir()
    assert cache.entries() == []


# --- writing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["open", "write", "replace"])
def test_a_full_disk(where: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever step fails: nothing is left behind, and programs run."""

    class Full:
        def __init__(self, file: Any) -> None:
            self.file = file

        def __enter__(self) -> Full:
            return self

        def __exit__(self, *_: object) -> None:
            self.file.close()

        def write(self, data: bytes) -> None:
            self.file.write(data[:100])
            self.file.flush()
            full()

    def full(*_: Any, **__: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        if where == "write":
            patch.setattr(cache, "open", lambda *a, **k: Full(open(*a, **k)), raising=False)  # noqa: SIM115
        else:
            patch.setattr(cache.os, where, full)
        assert add_one(1) == 2
    assert counted() == (0, 1, 0, 0)
    assert list(folder.glob("*.object")) == []
    forget(monkeypatch)
    assert add_one(1) == 2
    assert counted() == (0, 2, 0, 1)


KILLED = """
import os, signal
from tinyxla import cache
cache.write("whole", b"code")
os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
cache.write("half", b"code")
"""


@posix
def test_what_killed_writers_leave_is_dropped(folder: Path) -> None:
    process = start(KILLED)
    process.communicate(timeout=60)
    assert process.returncode == -9
    (left,) = folder.glob("*.part")
    assert [entry.key for entry in cache.entries()] == ["whole"]
    cache.write("young", b"code")
    assert left.exists()  # its writer may still be at work
    os.utime(left, (time.time() - 2 * 3600,) * 2)
    cache._evict()
    assert not left.exists()
    assert {entry.key for entry in cache.entries()} == {"whole", "young"}


def test_old_entries_make_room(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir(mode=0o700)
    for age in range(10):
        path = folder / f"{age}.object"
        path.write_bytes(b"x" * 1000)
        os.utime(path, (1e9 - age, 1e9 - age))
    (folder / "notes.txt").write_text("not the cache's")
    monkeypatch.setenv("TINYXLA_CACHE_BYTES", "6000")
    add_one(1)
    left = {entry.key for entry in cache.entries()}
    assert "0" in left
    assert "9" not in left
    assert cache.info().bytes <= 4500
    assert (folder / "notes.txt").exists()


def test_what_is_used_stays(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        cache.write(str(number), b"x" * 1000)
        os.utime(folder / f"{number}.object", (1e9 + number,) * 2)
    assert cache.read("0") is not None
    monkeypatch.setenv("TINYXLA_CACHE_BYTES", "3000")
    cache._evict()
    assert {entry.key for entry in cache.entries()} == {"0", "4"}


def test_many_writes_stay_below_the_limit(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINYXLA_CACHE_BYTES", "100000")
    for number in range(300):
        cache.write(f"{number:03}", bytes(1000))
    assert cache.info().bytes < 100_000 + 64 * 1100


# --- options and the command ------------------------------------------------------------------------------------------


def test_options_with_the_names_of_jax(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "other"
    tx.config.update("jax_compilation_cache_dir", str(other))
    assert tx.config.jax_compilation_cache_dir == str(other)
    assert add_one(1) == 2
    assert cache.info().directory == str(other)
    assert len(list(other.glob("*.object"))) == 1
    assert not folder.exists()
    tx.config.update("jax_enable_compilation_cache", False)
    forget(monkeypatch)
    assert add_one(1) == 2
    assert cache.info().reason == "the option enable_compilation_cache is off"
    assert counted() == (0, 1, 0, 1)


@pytest.mark.parametrize(("option", "value"), [("compilation_cache_dir", 3), ("enable_compilation_cache", "no")])
def test_options_with_wrong_values(option: str, value: Any) -> None:
    with pytest.raises(AttributeValueError, match=option):
        tx.config.update(option, value)


def test_limits(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINYXLA_CACHE_BYTES", "0")
    assert add_one(1) == 2
    assert cache.info().reason == "TINYXLA_CACHE_BYTES is 0"
    assert not folder.exists()
    monkeypatch.setenv("TINYXLA_CACHE_BYTES", "much")
    with pytest.raises(AttributeValueError, match="must be a number of bytes, or 0 for no cache, but is 'much'"):
        cache.info()


def test_the_command(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def said(*arguments: str) -> tuple[int, list[str]]:
        code = cache.main(arguments)
        return code, capsys.readouterr().out.splitlines()

    cache.write("a" * 64, b"code")
    cache.write("b" * 64, b"code")
    size = len(cache.FORMAT) + 32 + 4
    summary = f"{folder}: 2 compiled kernels, {2 * size} bytes of at most 268,435,456"
    assert said() == said("info") == (0, [summary])
    code, lines = said("list")
    assert code == 0
    assert lines[-1] == summary
    assert {line.split()[0] for line in lines[:-1]} == {"a" * 16, "b" * 16}
    assert said("verify") == (0, ["0 damaged entries were dropped; 2 are as they were written.", summary])
    (folder / f"{'a' * 64}.object").write_bytes(b"")
    code, lines = said("verify")
    assert (code, lines[0]) == (1, "1 damaged entries were dropped; 1 are as they were written.")
    assert said("clear")[1][0] == "1 entries were dropped."
    assert list(folder.glob("*.object")) == []
    assert said("nonsense")[0] == said("list", "more")[0] == 2
    assert said("--help")[0] == 0


def test_the_command_runs_as_a_module(folder: Path) -> None:
    command = [sys.executable, "-W", "error", "-m", "tinyxla.cache", "info"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert result.stdout == f"{folder}: 0 compiled kernels, 0 bytes of at most 268,435,456\n"
    assert result.stderr == ""


@pytest.mark.thorough
def test_the_reader_of_the_command_has_enough(folder: Path) -> None:
    for number in range(2000):  # more than a pipe holds
        cache.write(f"{number:064}", b"code")
    command = [sys.executable, "-m", "tinyxla.cache", "list"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().endswith("\n")
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait() == 1


def test_default_directory_on_macos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    platformdirs = pytest.importorskip("platformdirs")
    macos = pytest.importorskip("platformdirs.macos")
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(platformdirs, "PlatformDirs", macos.MacOS)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache._default_directory() == tmp_path / "Library" / "Caches" / "tinyxla"
