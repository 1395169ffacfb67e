"""Read-only views of arrays: NumPy views that cannot be made writable, and DLPack capsules."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinyxla.errors import ArgumentError, ExportError

_DEVICE = (1, 0)  # the CPU, in DLPack's numbers
_VERSIONED = np.lib.NumpyVersion(np.__version__) >= "2.1.0"  # older NumPy cannot say that memory is read-only


def _has_dlpack_type(dtype: np.dtype[Any]) -> bool:
    """Whether NumPy exports an element type: its own ones. (The kind does not say: that of float8_e5m2 is "f".)"""
    return dtype.isbuiltin == 1


def read_only_view(value: Any) -> np.ndarray[Any, Any]:
    """A view of an array, or of a NumPy scalar, that stays read-only.

    `setflags(write=True)` succeeds on an array whose base owns its memory, or gives away a writable buffer. The base of
    this one is a DLPack capsule, which is neither; so the same holds for all views of it, and for its bases.
    """
    array = value if type(value) is np.ndarray else np.asarray(value)
    if not _has_dlpack_type(array.dtype):  # bfloat16 and the like, which are shown as bits of the same width
        return read_only_view(array.view(f"u{array.dtype.itemsize}")).view(array.dtype)
    try:
        view = np.from_dlpack(array)
    except BufferError:  # NumPy before 2.1 does not export what is read-only
        view = np.from_dlpack(array.copy())
    view.setflags(write=False)  # which takes a fifth of the time of flags.writeable = False
    return view


def dlpack_capsule(value: Any, stream: Any, max_version: Any, dl_device: Any, copy: bool | None) -> Any:
    """What `__dlpack__` gives: a capsule whose memory is flagged as read-only, that of a copy unless `copy` is False.

    Consumers that leave the choice get a copy, too, since some, as PyTorch, take no notice of the flag. Those that do
    not say which version of DLPack they know cannot be told.
    """
    _check_request(stream, max_version, dl_device)
    view = read_only_view(value)
    if not _has_dlpack_type(view.dtype):
        raise ExportError(
            f"__dlpack__: NumPy has no DLPack type for {view.dtype.name}; export "
            f"x.view('uint{8 * view.dtype.itemsize}') and view that as {view.dtype.name} again."
        )
    if _VERSIONED and max_version is not None and max_version >= (1, 0):
        if copy is None:
            view = read_only_view(view.copy())
        return view.__dlpack__(max_version=max_version, copy=copy)
    if copy is False:
        raise ExportError(
            "__dlpack__: without max_version=(1, 0) or later, a consumer cannot be told that the array is read-only, "
            "so it gets a copy; but copy is False. Pass max_version, or leave out copy."
        )
    return view.copy().__dlpack__()


def _check_request(stream: Any, max_version: Any, dl_device: Any) -> None:
    if not (stream is None or type(stream) is int):
        raise ArgumentError(
            f"__dlpack__: stream must be an integer or None, but is {stream!r}; leave it out, as CPUs have no streams."
        )
    if not (dl_device is None or dl_device == _DEVICE):
        raise ExportError(
            f"__dlpack__: the array is on the CPU, {_DEVICE}, but dl_device is {dl_device!r}; leave it out."
        )
    is_version = isinstance(max_version, tuple) and all(isinstance(n, int) for n in max_version)
    if not (max_version is None or is_version):
        raise ArgumentError(f"__dlpack__: max_version must be two integers, as in (1, 0), but is {max_version!r}.")
