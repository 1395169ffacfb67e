"""`jax.experimental.array_serialization.serialization`: arrays in files of tensorstore, which is installed beside."""

import abc
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

import tinyxla as tx
from tinyxla.runtime.imports import requiring


def get_tensorstore_spec(ckpt_path, ocdbt=False):
    """Where and how tensorstore keeps an array: in a folder of the zarr format, or a key of a database if `ocdbt`."""
    if not ocdbt:
        return {"driver": "zarr", "kvstore": {"driver": "file", "path": ckpt_path}}
    folder, _, name = ckpt_path.rstrip("/").rpartition("/")
    return {"driver": "zarr", "kvstore": {"driver": "ocdbt", "base": f"file://{folder}", "path": name}}


class GlobalAsyncCheckpointManagerBase(abc.ABC):
    """What saves and restores arrays in threads of its own."""

    @abc.abstractmethod
    def check_for_errors(self):
        """Raise what saving raised."""

    @abc.abstractmethod
    def wait_until_finished(self):
        """Wait until everything is saved."""

    @abc.abstractmethod
    def serialize(self, arrays, tensorstore_specs, *, on_commit_callback):
        """Begin to save arrays, and call `on_commit_callback` at the end."""

    @abc.abstractmethod
    def deserialize(self, shardings, tensorstore_specs, global_shapes=None, dtypes=None):
        """Arrays that were saved, with these shardings."""


class GlobalAsyncCheckpointManager(GlobalAsyncCheckpointManagerBase):
    """Saves arrays of this process in a thread; one set of arrays after the other."""

    def __init__(self, timeout_secs=300):
        self._thread = ThreadPoolExecutor(1, "checkpoint")
        self._timeout = timeout_secs
        self._saving = Future()
        self._saving.set_result(None)

    def check_for_errors(self):
        """Raise what saving raised, if that has ended."""
        if self._saving.done():
            self._saving.result()

    def wait_until_finished(self):
        """Wait until everything is saved, and raise what saving raised."""
        self._saving.result(self._timeout)

    def serialize(self, arrays, tensorstore_specs, *, on_commit_callback):
        """Begin to save arrays where the specifications say, and call `on_commit_callback` at the end."""
        self.wait_until_finished()
        values = [np.asarray(x) for x in arrays]

        def save():
            opened = [
                _open(s, create=True, delete_existing=True, dtype=x.dtype.name, shape=x.shape)
                for x, s in zip(values, tensorstore_specs, strict=True)
            ]
            for writing in [file.write(x) for file, x in zip(opened, values, strict=True)]:
                writing.result()
            on_commit_callback()

        self._saving = self._thread.submit(save)

    def serialize_with_paths(self, arrays, paths, *, on_commit_callback):
        """Begin to save arrays in these folders."""
        self.serialize(arrays, [get_tensorstore_spec(p) for p in paths], on_commit_callback=on_commit_callback)

    def deserialize(self, shardings, tensorstore_specs, global_shapes=None, dtypes=None):
        """Arrays that were saved, with these shardings, cut or filled with zeros to the shapes, in the types."""
        self.wait_until_finished()
        values = [reading.result() for reading in [_open(s).read() for s in tensorstore_specs]]
        shapes, types = global_shapes or [None] * len(values), dtypes or [None] * len(values)
        return [
            tx.device_put(_in_shape(x, shape).astype(x.dtype if kind is None else kind), sharding)
            for x, sharding, shape, kind in zip(values, shardings, shapes, types, strict=True)
        ]

    def deserialize_with_paths(self, shardings, paths, global_shapes=None, dtypes=None):
        """The arrays in these folders."""
        return self.deserialize(shardings, [get_tensorstore_spec(p) for p in paths], global_shapes, dtypes)


def _open(spec, **options):
    with requiring("tensorstore", "tensorstore", "array_serialization"):
        import tensorstore
    return tensorstore.open(dict(spec), **options).result()


def _in_shape(value, shape):
    if shape is None or tuple(shape) == value.shape:
        return value
    found = np.zeros(shape, value.dtype)
    common = tuple(slice(min(n, m)) for n, m in zip(shape, value.shape, strict=True))
    found[common] = value[common]
    return found
