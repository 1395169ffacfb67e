"""Arrays are values: nothing that a user can get of one, or keeps after making one, writes to it."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tinyxla as tx
from tinyxla.errors import ArgumentError, DeletedError, ExportError, TinyxlaError
from tinyxla.tracing.core import ConcreteArray

tnp = tx.numpy
DTYPES = [
    *(np.bool_, np.int8, np.uint16, np.int32, np.float16, np.float32, np.complex64),
    *(ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.int4, ml_dtypes.uint2),
]
VIEWS: dict[str, Callable[[Any], Any]] = {
    "asarray": np.asarray,
    "asanyarray": np.asanyarray,
    "__array__": lambda x: x.__array__(),
    "numpy": lambda x: x.numpy(),
    "device_get": tx.device_get,
    "view": lambda x: np.asarray(x).view(),
    "slice": lambda x: np.asarray(x)[...],
    "transpose": lambda x: np.asarray(x).T,
    "reshape": lambda x: np.asarray(x).reshape(-1),
    "row": lambda x: next(iter(np.asarray(x).reshape(1, -1))),
    "memoryview": lambda x: np.asarray(memoryview(np.asarray(x))),
    "interface": lambda x: np.ndarray(x.shape, x.dtype, np.asarray(x)),
    "dlpack": np.from_dlpack,
    "dlpack without copy": lambda x: np.from_dlpack(x, copy=False),
    "dlpack of a view": lambda x: np.from_dlpack(np.asarray(x)),
}


def bases(view: Any) -> Iterator[np.ndarray[Any, Any]]:
    """An array, and those that it is a view of."""
    while isinstance(view, np.ndarray):
        yield view
        view = view.base


def assert_stays_read_only(view: Any) -> None:
    for array in bases(view):
        with pytest.raises(ValueError, match="cannot set WRITEABLE flag"):
            array.setflags(write=True)
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0


# --- what users get ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("look", VIEWS.values(), ids=VIEWS.keys())
@pytest.mark.parametrize("size", [10, 40_000], ids=["memory of NumPy", "memory of the pool"])
def test_views_of_results_stay_read_only(look: Callable[[Any], Any], size: int) -> None:
    x = tx.jit(lambda x: x + 1)(np.arange(size, dtype=np.float32))
    view = look(x)
    assert_stays_read_only(view)
    np.testing.assert_array_equal(view.reshape(-1), np.arange(1, size + 1))


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda t: np.dtype(t).name)
@pytest.mark.parametrize("shape", [(), (5,), (2, 3), (0, 2)], ids=str)
def test_views_of_all_types_stay_read_only(dtype: Any, shape: tuple[int, ...]) -> None:
    value = np.ones(shape, dtype)
    view = np.asarray(tnp.asarray(value))
    assert view.dtype == dtype
    assert view.tolist() == value.tolist()
    assert_stays_read_only(view)


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16], ids=["float32", "bfloat16"])
def test_views_of_strided_eager_results_stay_read_only(dtype: Any) -> None:
    value = np.arange(24).astype(dtype).reshape(4, 6)
    x = tnp.asarray(value)
    for made, expected in (
        (x.T, value.T),
        (x[::-1, ::2], value[::-1, ::2]),
        (tnp.broadcast_to(x[0], (3, 6)), value[:1]),
    ):
        view = np.asarray(made)
        assert_stays_read_only(view)
        assert (view == expected).all()


def test_a_constant_of_a_compiled_function_cannot_be_written() -> None:
    make = tx.jit(lambda: tnp.asarray(np.arange(5000, dtype=np.float32)))
    view = np.asarray(make())
    assert_stays_read_only(view)
    view.copy()[:] = 0
    np.testing.assert_array_equal(np.asarray(make()), np.arange(5000))


def test_asarray_of_another_type_and_copies_belong_to_the_user() -> None:
    x = tnp.arange(3.0)
    for mine in (np.asarray(x, np.float64), np.array(x), x.__array__(copy=True), np.copy(x), np.array(x, np.float32)):
        mine[:] = 7
    np.testing.assert_array_equal(np.asarray(x), [0, 1, 2])


def test_views_outlive_their_arrays() -> None:
    function = tx.jit(lambda x: x * 2)
    views = [np.asarray(function(np.full(9000, k, np.float32))) for k in range(20)]
    assert [float(view[-1]) for view in views] == [2.0 * k for k in range(20)]


# --- DLPack -----------------------------------------------------------------------------------------------------------


class Exported:
    """Hands in what `__dlpack__` gives for some arguments, as an old or a new consumer would ask for it."""

    def __init__(self, x: Any, **arguments: Any) -> None:
        self._capsule = x.__dlpack__(**arguments)

    def __dlpack__(self, **ignored: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


@pytest.mark.parametrize("arguments", [{}, {"max_version": None}, {"max_version": (0, 8)}, {"stream": None}])
def test_dlpack_without_version_is_a_copy(arguments: Any) -> None:
    x = tnp.arange(4.0)
    found = np.from_dlpack(Exported(x, **arguments))
    np.testing.assert_array_equal(found, [0, 1, 2, 3])
    assert not np.shares_memory(found, np.asarray(x))


def test_dlpack_with_version_shares_memory_and_says_read_only() -> None:
    x = tnp.arange(4.0)
    found = np.from_dlpack(Exported(x, max_version=(1, 0), copy=False))
    assert np.shares_memory(found, np.asarray(x))
    assert not found.flags.writeable


@pytest.mark.parametrize("copy", [True, None])
def test_dlpack_copy_is_another_array(copy: bool | None) -> None:
    x = tnp.arange(4.0)
    for arguments in ({"max_version": (1, 0)}, {}):
        found = np.from_dlpack(Exported(x, copy=copy, **arguments))
        assert not np.shares_memory(found, np.asarray(x))


@pytest.mark.parametrize("size", [4, 100_000])
def test_in_place_operation_of_pytorch_on_an_imported_array_leaves_the_array(size: int) -> None:
    torch = pytest.importorskip("torch")
    x = tx.jit(lambda x: x + 1)(tnp.zeros(size))
    torch.from_dlpack(x).add_(5)
    torch.utils.dlpack.from_dlpack(x).zero_()
    np.testing.assert_array_equal(x, np.ones(size))


@pytest.mark.parametrize("stream", [None, -1, 0, 1, 2])
def test_dlpack_takes_any_stream(stream: int | None) -> None:
    assert "dltensor" in repr(tnp.ones(2).__dlpack__(stream=stream))
    assert "dltensor" in repr(tnp.ones(2).__dlpack__(stream=stream, max_version=(1, 0), dl_device=(1, 0)))


@pytest.mark.parametrize(
    ("dtype", "arguments", "error", "words"),
    [
        ("float32", {"copy": False}, ExportError, "without max_version"),
        ("float32", {"dl_device": (2, 0)}, ExportError, "the array is on the CPU"),
        ("float32", {"dl_device": "gpu"}, ExportError, "the array is on the CPU"),
        ("float32", {"stream": "fast"}, ArgumentError, "stream must be an integer"),
        ("float32", {"max_version": 1}, ArgumentError, "max_version must be"),
        ("bfloat16", {}, ExportError, "no DLPack type for bfloat16"),
    ],
)
def test_dlpack_of_what_cannot_be_exported_is_a_typed_error(
    dtype: str, arguments: Any, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        tnp.ones(3, dtype).__dlpack__(**arguments)


def test_from_dlpack_copies_unless_told_to_share() -> None:
    mine = np.arange(4, dtype=np.float32)
    copied, shared = tnp.from_dlpack(mine), tnp.from_dlpack(mine, copy=False)
    assert np.shares_memory(np.asarray(shared), mine)
    mine[:] = 7
    np.testing.assert_array_equal(np.asarray(copied), [0, 1, 2, 3])
    x = tnp.arange(3.0)
    assert np.shares_memory(np.asarray(tnp.from_dlpack(x, copy=False)), np.asarray(x))


def test_from_dlpack_of_a_shared_array_that_is_donated_leaves_it_alone() -> None:
    mine = np.ones(70_000, np.float32)
    tx.jit(lambda x: x + 1, donate_argnums=0)(tnp.from_dlpack(mine, copy=False))
    np.testing.assert_array_equal(mine, 1)


@pytest.mark.parametrize("x", [3, np.array([object()]), np.ones(2, ml_dtypes.bfloat16)], ids=["int", "object", "bf16"])
def test_from_dlpack_of_what_has_none_is_a_typed_error(x: Any) -> None:
    with pytest.raises(ArgumentError, match="from_dlpack"):
        tnp.from_dlpack(x)


# --- what users keep --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        tnp.asarray,
        tnp.array,
        tx.device_put,
        tx.lax.stage,
        tx.jit(lambda x: x),
        tx.vmap(lambda x: x),
        lambda x: tx.vjp(lambda x: x, x)[0],
        lambda x: tnp.asarray(memoryview(x)),
        lambda x: tnp.frombuffer(x, np.float32),
        lambda x: tx.jit(lambda: tnp.asarray(x))(),
        lambda x: tx.pure_callback(lambda: x, x),
        lambda x: tx.jit(lambda: tx.pure_callback(lambda: x, x))(),
        lambda x: tx.ffi.ffi_call("test.kept", x)(x),
        lambda x: tx.tree.map(tnp.asarray, {"a": x})["a"],
    ],
)
def test_what_arrays_are_made_of_may_be_written_afterwards(make: Callable[[Any], Any]) -> None:
    mine = np.arange(6, dtype=np.float32)
    tx.ffi.register_ffi_target("test.kept", lambda x: mine)
    made = make(mine)
    before = np.array(made)
    mine[:] = 99
    np.testing.assert_array_equal(np.asarray(made), before)


def test_operands_of_callbacks_are_their_own() -> None:
    x = tnp.arange(3.0)

    def overwrite(values: Any) -> Any:
        values[:] = 7
        return values

    for function in (lambda x: x, tx.jit):
        call = function(lambda x: (tx.pure_callback(overwrite, x, x), x))
        changed, same = call(x)
        np.testing.assert_array_equal(np.asarray(changed), [7, 7, 7])
        np.testing.assert_array_equal(np.asarray(same), [0, 1, 2])


def test_out_of_band_pickles_share_no_memory() -> None:
    x = tnp.arange(6.0)
    buffers: list[pickle.PickleBuffer] = []
    data = pickle.dumps(x, protocol=5, buffer_callback=buffers.append)
    assert all(buffer.raw().readonly for buffer in buffers)
    owned = [bytearray(buffer.raw()) for buffer in buffers]
    found = pickle.loads(data, buffers=owned)
    for buffer in owned:
        buffer[:] = bytes(len(buffer))
    np.testing.assert_array_equal(np.asarray(found), np.arange(6))


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickles_keep_type_shape_and_weakness(protocol: int) -> None:
    for x in (tnp.float32(2) * 1, tnp.asarray(3.0), tnp.ones((2, 3), "bfloat16"), tnp.arange(6).reshape(2, 3).T):
        found = pickle.loads(pickle.dumps(x, protocol))
        assert (found.dtype, found.shape, found.weak_type) == (x.dtype, x.shape, x.weak_type)
        assert found.tolist() == x.tolist()
        assert type(found) is ConcreteArray


# --- copies and donation ----------------------------------------------------------------------------------------------

COPIES: dict[str, Callable[[Any], Any]] = {
    "method": lambda x: x.copy(),
    "function": tnp.copy,
    "array": tnp.array,
    "asarray": lambda x: tnp.asarray(x, copy=True),
    "copy.copy": copy.copy,
    "copy.deepcopy": copy.deepcopy,
    "flatten": lambda x: x.flatten(),
    "ravel": tnp.ravel,
    "positive": lambda x: +x,
    "real": lambda x: x.real,
    "conj": lambda x: x.conj(),
    "from_dlpack": tnp.from_dlpack,
    "to_device": lambda x: x.to_device("cpu"),
}


@pytest.mark.parametrize("make", COPIES.values(), ids=COPIES.keys())
def test_a_copy_survives_the_donation_of_its_original(make: Callable[[Any], Any]) -> None:
    x = tnp.arange(5.0)
    kept = make(x)
    tx.jit(lambda x: x + 1, donate_argnums=0)(x)
    assert x.is_deleted()
    np.testing.assert_array_equal(np.asarray(kept), np.arange(5))
    with pytest.raises(DeletedError):
        make(x)


def test_views_of_deleted_arrays_are_errors() -> None:
    x = tnp.arange(5.0)
    x.delete()
    looks: list[Callable[[Any], Any]] = [np.asarray, lambda x: x.__dlpack__(), lambda x: x.numpy(), pickle.dumps]
    for look in [*looks, copy.copy]:
        with pytest.raises(TinyxlaError, match="Array has been deleted"):
            look(x)
