"""The cache of compiled kernels on disk: what is in it, and how to clear it.

`python -m tinyxla.cache` shows where it is and how large; with `list`, `verify` or `clear` it names the entries, drops
those that are damaged, or drops all.

An entry is the machine code of one kernel, in a file named by a hash of all that the code depends on: the loops, the
processor, the versions of LLVM and of what emits code. It begins with an HMAC-SHA-256 (RFC 2104) of name and code,
whose key is a random secret of the directory, in a file that its owner alone may read: what fails it is compiled anew
and replaced. Entries are written aside and moved into place, so that processes may share a directory, and those not
used for longest make room for others.

The directory is the option `compilation_cache_dir`, or `$TINYXLA_CACHE_DIR`, or `tinyxla` in the user's folder of
caches: `$XDG_CACHE_HOME` or `~/.cache`, on macOS `~/Library/Caches`, on Windows `%LOCALAPPDATA%`. What is in it is run,
so a directory, an entry or a secret that belongs to another user, or that others may write to, is not used; nor is
anything but a regular file. Where there is no directory, or nothing can be written, everything works without.
`$TINYXLA_CACHE_BYTES` is how large it may become, 256 MiB if it is not set; with 0, or the option
`enable_compilation_cache` off, there is none.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tinyxla.errors import AttributeValueError
from tinyxla.tracing.config import config

__all__ = ["Entry", "Info", "clear", "directory", "entries", "info", "verify"]

FORMAT = b"tinyxla object 2\n"
_HEADER = len(FORMAT) + 32  # a SHA-256 follows
_SECRET, _SECRET_BYTES = "secret", 32
# A file is opened neither through a symbolic link, nor to wait for whoever writes into a pipe.
_READ = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_NONBLOCK", "O_NOFOLLOW", "O_CLOEXEC", "O_BINARY"))
_LIMIT = 256 << 20
_ENTRY, _UNFINISHED = ".object", ".part"
_LARGEST = 1 << 30  # bytes of an entry: code of that size no compiler makes
_ABANDONED = 3600  # seconds after which whoever wrote an unfinished entry is taken for dead
_WRITES_BETWEEN_EVICTIONS = 64


@dataclass(frozen=True, slots=True)
class Entry:
    """The code of one kernel: its name in the cache, its size in bytes with the checksum, and when it was last used, in
    seconds since 1970.

    >>> from tinyxla.cache import Entry
    >>> Entry("kernel", bytes=1024, used=0.0).bytes
    1024
    """

    key: str
    bytes: int
    used: float


@dataclass(frozen=True, slots=True)
class Info:
    """The cache as it is, and what this process did with it.

    `directory` is None where there is no cache, and `reason` says why. `entries` and `bytes` count what is there,
    `limit` is the most bytes that may be. Of the kernels that this process asked for, `hits` were found, `misses` were
    not, and `damaged` were there but not used; `writes` were added.

    >>> from tinyxla import cache
    >>> info = cache.info()
    >>> info.hits + info.misses >= 0, info.bytes <= info.limit
    (True, True)
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

    Returns:
        The directory, which exists; None if there is no cache.

    Example:
        >>> from tinyxla import cache
        >>> cache.directory() == cache.directory()
        True
    """
    return _find()[0]


def info() -> Info:
    """Where the cache is, how large, and what this process did with it.

    Returns:
        The directory, its size, and counts of this process.

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

    Returns:
        The entries, the last used first.

    Example:
        >>> from tinyxla import cache
        >>> all(entry.bytes > 0 for entry in cache.entries())
        True
    """
    found = [Entry(path.stem, size, used) for path, size, used in _files() if path.suffix == _ENTRY]
    return sorted(found, key=lambda entry: -entry.used)


def verify() -> list[str]:
    """Drop the entries that are damaged, and give their names; such are never run, and replaced when they are needed.

    Returns:
        The names of the entries that were dropped.

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

    Returns:
        The number of entries that were dropped.

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
    if code is None:
        _count("damaged")
        return None
    _count("hits")
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
    secret = _secret(where) or _new_secret(where)
    if secret is None or not _write_aside(where / f"{key}{_ENTRY}", _header(secret, key, code) + code, os.replace):
        return
    if counts.writes % _WRITES_BETWEEN_EVICTIONS == 0:
        _evict()
    _count("writes")


def _write_aside(path: Path, data: bytes, move: Callable[[Path, Path], None]) -> bool:
    """Write a file that only its owner may read, and move it into place once it is whole. False where that cannot be
    done, on a full disk, say."""
    aside = path.parent / f"{path.stem}.{os.getpid()}.{threading.get_ident()}{_UNFINISHED}"
    try:
        with open(aside, "xb", opener=_private) as file:
            file.write(data)
        move(aside, path)
    except BaseException as error:
        _remove(aside)
        if not isinstance(error, OSError):
            raise
        _check_is_of_system(error)  # a full disk, say
        return False
    return True


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _count(what: str) -> None:
    global counts
    counts = replace(counts, **{what: getattr(counts, what) + 1})


def _content(path: Path) -> bytes | None:
    """The code in a file, or None if it is not what was written under that name."""
    secret, data = _secret(path.parent), _owned_bytes(path)
    if secret is None or data is None:
        return None
    code = data[_HEADER:]
    return code if hmac.compare_digest(data[:_HEADER], _header(secret, path.stem, code)) else None


def _header(secret: bytes, key: str, code: bytes) -> bytes:
    """What an entry begins with. A name has no zero, so no other name and code give the same message."""
    return FORMAT + hmac.digest(secret, key.encode() + b"\0" + code, hashlib.sha256)


def _secret(where: Path) -> bytes | None:
    found = _owned_bytes(where / _SECRET, is_private=True)
    return found if found is not None and len(found) == _SECRET_BYTES else None


def _new_secret(where: Path) -> bytes | None:
    """A secret for a directory that has none, or the one that another process is quicker to make."""
    path = where / _SECRET
    if os.path.lexists(path) and _secret(where) is None:
        _remove(path)
    _write_aside(path, secrets.token_bytes(_SECRET_BYTES), _move_unless_there)
    return _secret(where)


def _move_unless_there(aside: Path, path: Path) -> None:
    try:
        os.link(aside, path)
    except FileExistsError as error:
        _check_is_of_system(error)
    except OSError as error:  # a file system without hard links
        _check_is_of_system(error)
        os.replace(aside, path)
        return
    os.unlink(aside)


def _owned_bytes(path: Path, is_private: bool = False) -> bytes | None:
    """What is in a regular file of this user that others may not write to, nor read if it `is_private`; else None."""
    try:
        with open(path, "rb", opener=_unfollowed) as file:
            status = os.fstat(file.fileno())
            forbidden = 0o077 if is_private else 0o022
            is_owned = os.name != "posix" or (status.st_uid == os.getuid() and not status.st_mode & forbidden)
            if stat.S_ISREG(status.st_mode) and is_owned and status.st_size <= _LARGEST:
                return file.read(status.st_size)
    except OSError as error:
        _check_is_of_system(error)
    return None


def _unfollowed(path: str, flags: int) -> int:
    return os.open(path, _READ)


def _find() -> tuple[Path | None, str]:
    """The cache's directory, made if need be; or why there is none."""
    if not config.enable_compilation_cache:
        return None, "the option enable_compilation_cache is off"
    if _limit() == 0:
        return None, "TINYXLA_CACHE_BYTES is 0"
    named = config.compilation_cache_dir or os.environ.get("TINYXLA_CACHE_DIR")
    try:
        path = Path(named) if named else _default_directory()
        if not path.is_dir():
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


def _default_directory() -> Path:
    """The directory for caches of the user, by the conventions of the system."""
    if sys.platform in ("darwin", "win32"):
        from platformdirs import user_cache_path  # here, since it is no requirement elsewhere

        return user_cache_path("tinyxla", appauthor=False)
    home = os.environ.get("XDG_CACHE_HOME")  # the XDG Base Directory Specification
    return (Path(home) if home else Path.home() / ".cache") / "tinyxla"


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


def __dir__() -> list[str]:
    return __all__
