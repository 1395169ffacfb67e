"""`scipy.spatial.transform`: rotations and their interpolation, against JAX and against their definitions."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinyxla as tx
from tinyxla.errors import ArgumentError, ShapeError, TinyxlaError
from tinyxla.scipy.spatial.transform import Rotation, Slerp

SEQUENCES = ["".join(s) for s in itertools.product("xyz", repeat=3) if s[0] != s[1] != s[2]]
SHAPES = [(), (3,), (2, 3), (0,)]
OF_VECTORS: list[Callable[[Any, Any], Any]] = [
    lambda rotation, v: rotation.from_rotvec(v).as_matrix(),
    lambda rotation, v: rotation.from_euler("xyz", v).as_rotvec(),
    lambda rotation, v: rotation.from_mrp(v).as_euler("ZXY"),
    lambda rotation, v: rotation.from_matrix(rotation.from_rotvec(v).as_matrix()).as_mrp(),
    lambda rotation, v: rotation.from_rotvec(v).inv().apply(v + 1.0),
    lambda rotation, v: (rotation.from_rotvec(v) * rotation.from_euler("xz", v[:2])).magnitude(),
]


def close(found: Any, wanted: Any, tolerance: float = 3e-5) -> None:
    found, wanted = np.asarray(found), np.asarray(wanted)
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


def jax_transform() -> Any:
    pytest.importorskip("jax")
    import jax.scipy.spatial.transform as transform

    return transform


def quaternions(shape: tuple[int, ...], size: int = 4) -> Any:
    return np.random.default_rng(0).normal(size=(*shape, size)).astype(np.float32)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("method", ["as_matrix", "as_mrp", "as_rotvec", "as_quat", "magnitude"])
def test_rotation_converters_equal_jax(method: str, shape: tuple[int, ...]) -> None:
    theirs = jax_transform().Rotation.from_quat(quaternions(shape))
    close(getattr(Rotation.from_quat(quaternions(shape)), method)(), getattr(theirs, method)())


@pytest.mark.thorough
@pytest.mark.parametrize("shape", SHAPES)
def test_rotation_constructors_equal_jax(shape: tuple[int, ...]) -> None:
    other, v = jax_transform().Rotation, quaternions(shape, 3)
    matrix = other.from_quat(quaternions(shape)).as_matrix()
    close(Rotation.from_matrix(np.asarray(matrix)).quat, other.from_matrix(matrix).quat)
    for name in ("from_mrp", "from_rotvec"):
        close(getattr(Rotation, name)(v).quat, getattr(other, name)(v).quat)
    close(Rotation.from_rotvec(v, degrees=True).quat, other.from_rotvec(v, degrees=True).quat)
    close(Rotation.from_euler("ZX", v[..., :2], True).quat, other.from_euler("ZX", v[..., :2], True).quat)
    quat = Rotation.from_quat(quaternions(shape))
    close(quat.as_quat(True, True), other.from_quat(quaternions(shape)).as_quat(True, True))


@pytest.mark.parametrize("seq", SEQUENCES[::2] + [s.upper() for s in SEQUENCES[1::2]])
def test_euler_angles_equal_jax(seq: str) -> None:
    other, v = jax_transform().Rotation, quaternions((2, 3), 3)
    close(Rotation.from_euler(seq, v).quat, other.from_euler(seq, v).quat)
    close(Rotation.from_euler(seq, v).as_euler(seq), other.from_euler(seq, v).as_euler(seq), 2e-4)


@pytest.mark.parametrize("middle", [0.0, 90.0, -90.0, 180.0])
@pytest.mark.parametrize("seq", ["xyz", "XYZ", "zxz", "ZXZ", "YXZ"])
def test_euler_angles_of_gimbal_lock_are_of_the_same_rotation(seq: str, middle: float) -> None:
    rotation = Rotation.from_euler(seq, np.array([30.0, middle, 20.0]), degrees=True)
    again = Rotation.from_euler(seq, rotation.as_euler(seq))
    assert float((again.inv() * rotation).magnitude()) < 2e-3


def test_composition_and_application_broadcast_over_batch_axes() -> None:
    p, q = Rotation.from_quat(quaternions((2, 1))), Rotation.from_quat(quaternions((3,)))
    v = quaternions((3,), 3)
    assert (p * q).quat.shape == (2, 3, 4)
    close((p * q).apply(v), p.apply(q.apply(v)))
    close(q.apply(q.apply(v), inverse=True), v)
    with tx.numpy_rank_promotion("raise"):
        close((p * q).apply(v), p.apply(q.apply(v)))


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("function", OF_VECTORS)
def test_rotation_derivatives_and_transformations_equal_jax(function: Callable[[Any, Any], Any]) -> None:
    other = jax_transform().Rotation
    import jax

    v = np.array([0.1, 0.2, 0.3], np.float32)
    wanted = jax.jacobian(lambda v: function(other, v))(v)
    close(tx.jacrev(lambda v: function(Rotation, v))(v), wanted)
    close(tx.jacfwd(lambda v: function(Rotation, v))(v), wanted)
    close(tx.jit(lambda v: function(Rotation, v))(v), function(other, v))
    batch = np.stack([v, 2 * v])
    close(tx.vmap(lambda v: function(Rotation, v))(batch), jax.vmap(lambda v: function(other, v))(batch))


def test_derivatives_of_rotation_vectors_at_the_identity_are_finite() -> None:
    """Where formulas with the length of the vector alone give 0 / 0."""
    close(tx.jacobian(lambda v: Rotation.from_rotvec(v).as_rotvec())(np.zeros(3, np.float32)), np.eye(3, dtype="f"))
    halves = np.eye(4, 3, dtype=np.float32) / 2
    close(tx.jacfwd(lambda v: Rotation.from_rotvec(v).quat)(np.zeros(3, np.float32)), halves)


def test_slerp_equals_jax() -> None:
    theirs = jax_transform()
    q, times = quaternions((3,)), np.array([0.0, 1.0, 3.0], np.float32)
    ours = Slerp.init(times, Rotation.from_quat(q))
    other = theirs.Slerp.init(times, theirs.Rotation.from_quat(q))
    for at in (np.float32(0.3), np.array([-0.5, 0.0, 0.5, 1.0, 2.5, 3.0], np.float32)):
        close(ours(at).quat, other(at).quat, 1e-4)
        close(tx.jit(lambda t: ours(t).quat)(at), other(at).quat, 1e-4)


def test_slerp_after_the_last_time_goes_on_with_the_last_velocity() -> None:
    ends = Rotation.from_euler("z", np.array([[0.0], [10.0], [30.0]]), degrees=True)
    close(Slerp.init(np.arange(3.0), ends)(3.0).as_rotvec(degrees=True)[2], np.float32(50), 1e-4)


def test_mean_of_rotations_equals_jax() -> None:
    other = jax_transform().Rotation
    ours, theirs = Rotation.from_quat(quaternions((5,))), other.from_quat(quaternions((5,)))
    for weights in (None, np.arange(5, dtype=np.float32)):
        off = (ours.mean(weights).inv() * Rotation(np.asarray(theirs.mean(weights).quat))).magnitude()
        assert float(off) < 1e-3


def test_rotations_are_pytrees_and_sequences() -> None:
    rotations = Rotation.from_quat(quaternions((3,)))
    assert len(rotations) == 3
    assert rotations[0].single
    assert not rotations.single
    close(tx.jit(lambda r: r.inv())(rotations).quat, rotations.inv().quat)
    close(Rotation.concatenate([rotations, rotations[1:]]).quat, np.concatenate([rotations.quat, rotations.quat[1:]]))
    close(tx.numpy.linalg.norm(Rotation.random(tx.random.key(0), 5).quat, axis=-1), np.ones(5, np.float32))
    assert Rotation.identity(2).quat.shape == (2, 4)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda r: Rotation.from_euler("xq", np.ones(2)), ArgumentError, "the axes of seq"),
        (lambda r: Rotation.from_euler("xx", np.ones(2)), ArgumentError, "consecutive axes"),
        (lambda r: Rotation.from_euler("xyzx", np.ones(4)), ArgumentError, "one to three"),
        (lambda r: Rotation.from_euler("xyz", np.ones(2)), ShapeError, r"\[\.\.\., 3\]"),
        (lambda r: Rotation.from_quat(np.ones(3)), ShapeError, r"\[\.\.\., 4\]"),
        (lambda r: Rotation.from_matrix(np.ones((2, 2))), ShapeError, r"\[\.\.\., 3, 3\]"),
        (lambda r: r.as_euler("xy"), ArgumentError, "seq must be 3 axes"),
        (lambda r: r[0][0], ArgumentError, "single rotation"),
        (lambda r: len(r[0]), ArgumentError, "single rotation"),
        (lambda r: r * 2, ArgumentError, "composed with a Rotation"),
        (lambda r: r.mean(np.ones(2)), ShapeError, "weights must be 3 numbers"),
        (lambda r: Slerp.init(np.ones(2), r), ShapeError, "takes 3 times"),
        (lambda r: Slerp.init(np.ones(2), r[0]), ShapeError, "at least two rotations"),
        (lambda r: Slerp.init(np.ones(2), r.quat), ArgumentError, "must be a Rotation"),
        (lambda r: Slerp.init(np.arange(3.0), r)(np.ones((1, 1))), ShapeError, "vector of times"),
    ],
)
def test_wrong_rotations_raise_typed_errors(call: Callable[[Any], Any], error: type, text: str) -> None:
    with pytest.raises(error, match=text):
        call(Rotation.from_quat(quaternions((3,))))


WRONG: Any = [3]


def test_single_rotations_are_concatenated_to_an_array() -> None:
    one = Rotation.identity()
    assert Rotation.concatenate([one, one]).as_quat().shape == (2, 4)
    assert Rotation.concatenate([one, Rotation.identity(2)]).as_quat().shape == (3, 4)


@pytest.mark.parametrize(
    ("message", "function"),
    [
        ("takes Rotations, but got one of type int", lambda: Rotation.concatenate(WRONG)),
        ("takes at least one Rotation", lambda: Rotation.concatenate([])),
        ("from_matrix: takes real numbers", lambda: Rotation.from_matrix(1j * np.eye(3))),
        ("from_quat: takes real numbers", lambda: Rotation.from_quat(1j * np.ones(4))),
        ("times must ascend", lambda: Slerp.init(np.array([2.0, 1.0]), Rotation.identity(2))),
    ],
)
def test_arguments_that_are_no_rotations_raise(message: str, function: Callable[[], Any]) -> None:
    with pytest.raises(TinyxlaError, match=message):
        function()
