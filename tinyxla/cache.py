"""The cache of compiled kernels on disk: what is in it, and how to clear it.

`python -m tinyxla.cache` shows where it is and how large; with `list`, `verify` or `clear` it names the entries, drops
those that are damaged, or drops all.

An entry is the machine code of one kernel, in a file named by a hash of all that the code depends on: the loops, the
processor, the versions of LLVM and of what emits code. It begins with a checksum: what fails it is compiled anew and
replaced. Entries are written aside and moved into place, so that processes may share a directory, and those not
used for longest make room for others. The directory is the option `compilation_cache_dir`, or `$TINYXLA_CACHE_DIR`, or
`tinyxla` in `$XDG_CACHE_HOME` or `~/.cache`. One that others may write to is not used, for what is in it is run. Where
there is none, or nothing can be written, everything works without. `$TINYXLA_CACHE_BYTES` is how large it may become,
256 MiB if it is not set; with 0, or the option `enable_compilation_cache` off, there is none.
"""

from __future__ import annotations

import hashlib
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tinyxla.errors import AttributeValueError
from tinyxla.tracing.options import config

__all__ = ["Entry", "Info", "clear", "directory", "entries", "info", "verify"]

FORMAT = b"tinyxla object 1\n"
_HEADER = len(FORMAT) + 32  # a SHA-256 follows
_LIMIT = 256 << 20
_ENTRY, _UNFINISHED = ".object", ".part"
_ABANDONED = 3600  # seconds after which whoever wrote an unfinished entry is taken for dead
_WRITES_BETWEEN_EVICTIONS = 64


@dataclass(frozen=True, slots=True)
class Entry:
    """The code of one kernel: its name in the cache, its size in bytes with the checksum, and when it was last used, in
    seconds since 1970."""

    key: str
    bytes: int
    used: float


@dataclass(frozen=True, slots=True)
class Info:
    """The cache as it is, and what this process did with it.

    `directory` is None where there is no cache, and `reason` says why. `entries` and `bytes` count what is there,
    `limit` is the most bytes that may be. Of the kernels that this process asked for, `hits` were found, `misses` were
    not, and `damaged` were there but not used; `writes` were added.
    """

    directory: str | None
    reason: str
    entries: int
    bytes: int
    limit: int
    hits: int
    misses: int
    damaged: int
    writes: int

    def __str__(self) -> str:
        if self.directory is None:
            return f"There is no cache on disk: {self.reason}."
        share = f"{self.bytes:,} bytes of at most {self.limit:,}"
        return f"{self.directory}: {self.entries:,} compiled kernels, {share}"


@dataclass(frozen=True, slots=True)
class _Counts:
    hits: int = 0
    misses: int = 0
    damaged: int = 0
    writes: int = 0


counts = _Counts()


def directory() -> Path | None:
    """Where the cache is; made, if need be. None where there is no cache.

    Example:
        >>> from tinyxla import cache
        >>> cache.directory() == cache.directory()
        True
    """
    return _find()[0]


def info() -> Info:
    """Where the cache is, how large, and what this process did with it.

    Raises:
        AttributeValueError: TINYXLA_CACHE_BYTES is not a number.

    Example:
        >>> from tinyxla import cache
        >>> cache.info().bytes <= cache.info().limit
        True
    """
    found, reason = _find()
    held = entries()
    size = sum(entry.bytes for entry in held)
    where = None if found is None else str(found)
    return Info(where, reason, len(held), size, _limit(), counts.hits, counts.misses, counts.damaged, counts.writes)


def entries() -> list[Entry]:
    """What is in the cache, the last used first.

    Example:
        >>> from tinyxla import cache
        >>> all(entry.bytes > 0 for entry in cache.entries())
        True
    """
    found = [Entry(path.stem, size, used) for path, size, used in _files() if path.suffix == _ENTRY]
    return sorted(found, key=lambda entry: -entry.used)


def verify() -> list[str]:
    """Drop the entries that are damaged, and give their names; such are never run, and replaced when they are needed.

    Example:
        >>> from tinyxla import cache
        >>> _ = cache.verify()
        >>> cache.verify()
        []
    """
    damaged: list[str] = []
    for path, _, _ in _files():
        if path.suffix == _ENTRY and _content(path) is None:
            damaged.append(path.stem)
            _remove(path)
    return damaged


def clear() -> int:
    """Empty the cache, and give the number of entries that were dropped. (What this process has compiled stays.)

    Example:
        >>> from tinyxla import cache
        >>> callable(cache.clear)
        True
    """
    return sum(_remove(path) and path.suffix == _ENTRY for path, _, _ in _files())


# What the compiler does with it.


def read(key: str) -> bytes | None:
    """The code of that name, if it is there and as it was written."""
    where = directory()
    if where is None:
        return None
    path = where / f"{key}{_ENTRY}"
    if not os.path.lexists(path):
        _count("misses")
        return None
    code = _content(path)
    _count("damaged" if code is None else "hits")
    try:
        os.utime(path)  # recently used
    except OSError as error:
        _check_is_of_system(error)
    return code


def write(key: str, code: bytes) -> None:
    """Add an entry, or replace it; where that cannot be done, nothing happens."""
    where = directory()
    if where is None:
        return
    aside = where / f"{key}.{os.getpid()}.{threading.get_ident()}{_UNFINISHED}"
    try:
        with open(aside, "xb", opener=_private) as file:
            file.write(FORMAT + hashlib.sha256(code).digest() + code)
        os.replace(aside, where / f"{key}{_ENTRY}")
    except BaseException as error:
        _remove(aside)
        if not isinstance(error, OSError):
            raise
        _check_is_of_system(error)  # a full disk, say
        return
    if counts.writes % _WRITES_BETWEEN_EVICTIONS == 0:
        _evict()
    _count("writes")


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _count(what: str) -> None:
    global counts
    counts = replace(counts, **{what: getattr(counts, what) + 1})


def _content(path: Path) -> bytes | None:
    """The code in a file, or None if it is not what was written."""
    try:
        data = path.read_bytes()
    except OSError as error:
        _check_is_of_system(error)
        return None
    code = data[_HEADER:]
    return code if data[:_HEADER] == FORMAT + hashlib.sha256(code).digest() else None


def _find() -> tuple[Path | None, str]:
    """The cache's directory, made if need be; or why there is none."""
    if not config.enable_compilation_cache:
        return None, "the option enable_compilation_cache is off"
    if _limit() == 0:
        return None, "TINYXLA_CACHE_BYTES is 0"
    named = config.compilation_cache_dir or os.environ.get("TINYXLA_CACHE_DIR")
    try:
        home = os.environ.get("XDG_CACHE_HOME")
        path = Path(named) if named else (Path(home) if home else Path.home() / ".cache") / "tinyxla"
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = path.stat()
    except (OSError, RuntimeError, ValueError) as error:
        if isinstance(error, OSError):
            _check_is_of_system(error)
        return None, f"its directory cannot be made ({error})"
    if os.name == "posix" and status.st_uid != os.getuid():
        return None, f"{path} belongs to another user"
    if os.name == "posix" and status.st_mode & 0o022:
        return None, f"others may write to {path}; take that right from them"
    return path, ""


def _limit() -> int:
    given = os.environ.get("TINYXLA_CACHE_BYTES")
    if given is None:
        return _LIMIT
    if not given.strip().isdecimal():
        raise AttributeValueError(
            f"TINYXLA_CACHE_BYTES must be a number of bytes, or 0 for no cache, but is {given!r}."
        )
    return int(given)


def _files() -> Iterator[tuple[Path, int, float]]:
    """The files of the cache, those among them that a process left unfinished, with size and time of last use."""
    where = directory()
    try:
        paths = list(where.iterdir()) if where else []
    except OSError as error:
        _check_is_of_system(error)
        return
    for path in paths:
        if path.suffix in (_ENTRY, _UNFINISHED):
            try:
                status = path.stat(follow_symlinks=False)
            except OSError as error:  # another process may have dropped it
                _check_is_of_system(error)
                continue
            yield path, status.st_size, status.st_mtime


def _remove(path: Path) -> bool:
    try:
        path.unlink()
    except OSError as error:
        _check_is_of_system(error)
        return False
    return True


def _check_is_of_system(error: OSError) -> None:
    """Raise an error that comes from outside: a TimeoutError of a signal's handler, say, has no number."""
    if error.errno is None:
        raise error


def _evict() -> None:
    """Drop what writers that died left behind; and, beyond the limit, what was not used for longest, until three
    quarters of it are left."""
    kept: list[tuple[float, int, Path]] = []
    for path, size, used in _files():
        if path.suffix == _UNFINISHED and used < time.time() - _ABANDONED:
            _remove(path)
        else:
            kept.append((used, size, path))
    limit, total = _limit(), sum(size for _, size, _ in kept)
    if total <= limit:
        return
    for _, size, path in sorted(kept):
        if total <= limit * 3 // 4:
            return
        total -= size if _remove(path) else 0


_COMMANDS = {
    "info": "where the cache is, and how large",
    "list": "its entries, the last used first",
    "verify": "drop those that are damaged",
    "clear": "drop all",
}


def main(arguments: Sequence[str]) -> int:
    """What the command does: 0 if all is well, 1 after damaged entries, 2 if there is no such command."""
    command = arguments[0] if arguments else "info"
    if command not in _COMMANDS or len(arguments) > 1:
        print("usage: python -m tinyxla.cache [command]\n")
        print("\n".join(f"  {name:7} {meaning}" for name, meaning in _COMMANDS.items()))
        return 0 if command in ("-h", "--help") else 2
    damaged: list[str] = []
    if command == "list":
        for entry in entries():
            when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(entry.used))
            print(f"{entry.key[:16]}  {entry.bytes:>10,} bytes  used {when}")
    elif command == "verify":
        damaged = verify()
        print(f"{len(damaged)} damaged entries were dropped; {len(entries())} are as they were written.")
    elif command == "clear":
        print(f"{clear()} entries were dropped.")
    print(info())
    return 1 if damaged else 0


def _run() -> int:
    """The command, whose reader may have enough before it ends (`list | head`), which is no error to report."""
    try:
        code = main(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush when Python ends
        return 1
    return code


if __name__ == "__main__":
    sys.exit(_run())
