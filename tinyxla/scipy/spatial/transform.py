"""Rotations in three dimensions as unit quaternions, under the names of `jax.scipy.spatial.transform`.

A quaternion is (x, y, z, w): the vector part, then the scalar part. `Rotation` and `Slerp` are named tuples of arrays
and therefore pytrees: transformations take and return them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise
from typing import Any, NamedTuple

from tinyxla import numpy as tnp, random
from tinyxla.errors import ArgumentError, ShapeError
from tinyxla.numpy.arguments import (
    ArrayLike,
    broadcast_shapes,
    broadcast_to_shape,
    cast,
    count_of,
    flag_of,
    inexact_array,
    python_dtype,
    refuse_complex,
    several_of,
    shown,
)
from tinyxla.shapes import Shape
from tinyxla.tracing.array import Array, ConcreteArray
from tinyxla.util.did_you_mean import missing as _missing

_SMALL_SQUARED_ANGLE = 1e-6  # up to which three terms of a Taylor series are exact to rounding of 64-bit floats
_GIMBAL_LOCK = 1e-7  # the distance of the second Euler angle from its ends at which only one other angle is determined


class Rotation(NamedTuple):
    """Rotations in three dimensions, of which `quat` holds the unit quaternions (x, y, z, w).

    Args:
        quat: unit quaternions of shape [..., 4]; `Rotation.from_quat` normalizes, this constructor does not.

    Example:
        >>> import numpy as np
        >>> from tinyxla.scipy.spatial.transform import Rotation
        >>> quarter = Rotation.from_euler("z", 90.0, degrees=True)
        >>> quarter.apply(np.array([1.0, 0.0, 0.0])).round(3)
        Array([0., 1., 0.], dtype=float32)
        >>> (quarter * quarter).as_rotvec().round(3)
        Array([0.   , 0.   , 3.142], dtype=float32)
    """

    quat: Any

    @classmethod
    def concatenate(cls, rotations: Iterable[Rotation]) -> Rotation:
        """The rotations of several objects, one after the other along the first axis.

        Args:
            rotations: rotations or arrays of them.

        Returns:
            An array of rotations.

        Raises:
            ArgumentError: no rotations, or what is no `Rotation`.

        >>> import tinyxla.numpy as jnp
        >>> from tinyxla.scipy.spatial.transform import Rotation
        >>> Rotation.concatenate([Rotation.identity(2), Rotation.identity(1)]).as_quat().shape
        (3, 4)
        """
        what = "Rotation.concatenate"
        given = several_of(what, "rotations", [rotations] if isinstance(rotations, Rotation) else rotations)
        for rotation in given:
            if not isinstance(rotation, Rotation):
                raise ArgumentError(f"{what}: takes Rotations, but got one of type {type(rotation).__name__}.")
        if not given:
            raise ArgumentError(f"{what}: takes at least one Rotation, but got none.")
        return cls(tnp.concatenate([tnp.atleast_2d(rotation.quat) for rotation in given]))

    @classmethod
    def from_euler(cls, seq: str, angles: ArrayLike, degrees: bool = False) -> Rotation:
        """Rotations about one to three coordinate axes.

        Args:
            seq: the axes, of `xyz` for axes that stay (extrinsic) or of `XYZ` for axes that move along (intrinsic);
                no axis stands twice in a row.
            angles: of shape [..., len(seq)], or one number.
            degrees: angles are in degrees instead of radians.

        Returns:
            Rotations of the shape of angles without its last axis.

        Raises:
            ArgumentError: another `seq`, or a `degrees` that is no boolean.
            DTypeError: angles that are no array or number.
            ShapeError: the number of angles does not fit.

        >>> import tinyxla.numpy as jnp
        >>> from tinyxla.scipy.spatial.transform import Rotation
        >>> turns = Rotation.from_euler("zx", jnp.array([90.0, 90.0]), degrees=True)  # about z, then about x
        >>> turns.apply(jnp.array([1.0, 0.0, 0.0])).round(3)
        Array([0., 0., 1.], dtype=float32)
        """
        what = "Rotation.from_euler"
        axes, intrinsic = _axes_of(what, seq)
        x = _radians(what, tnp.atleast_1d(inexact_array(angles, what)), degrees)
        if x.shape[-1] != len(axes):
            raise ShapeError(f"{what}: {seq!r} takes angles of shape [..., {len(axes)}], but got {Shape.of(x)}.")
        found = _about_axis(axes[0], x[..., 0])
        for k in range(1, len(axes)):
            other = _about_axis(axes[k], x[..., k])
            found = _product(found, other) if intrinsic else _product(other, found)
        return cls(found)

    @classmethod
    def from_matrix(cls, matrix: ArrayLike) -> Rotation:
        """The rotations of orthogonal matrices with determinant 1, of shape [..., 3, 3].

        Source: I. Bar-Itzhack, "New method for extracting the quaternion from a rotation matrix", Journal of Guidance,
        Control, and Dynamics 23 (2000); Markley, ibid. 31 (2008): of four equal formulas the one that divides by most.

        Args:
            matrix: orthogonal matrices, of shape [..., 3, 3].

        Returns:
            Rotations of shape [...].

        Raises:
            DTypeError: complex numbers, or what is no array.
            ShapeError: another shape.

        >>> import tinyxla.numpy as jnp
        >>> from tinyxla.scipy.spatial.transform import Rotation
        >>> exchange = jnp.array([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
        >>> Rotation.from_matrix(exchange).as_rotvec(degrees=True).round(3)
        Array([ 0.,  0., 90.], dtype=float32)
        """
        what = "Rotation.from_matrix"
        m: Any = inexact_array(matrix, what)
        refuse_complex(what, m)
        if m.shape[-2:] != (3, 3):
            raise ShapeError(f"{what}: takes matrices of shape [..., 3, 3], but got {Shape.of(m)}.")
        diagonal = [m[..., k, k] for k in range(3)]
        trace = diagonal[0] + diagonal[1] + diagonal[2]
        largest = tnp.argmax(tnp.stack([*diagonal, trace], -1), -1)
        skew = [m[..., 2, 1] - m[..., 1, 2], m[..., 0, 2] - m[..., 2, 0], m[..., 1, 0] - m[..., 0, 1]]
        found = _stacked(*skew, 1 + trace)
        for i in range(3):
            j, k = (i + 1) % 3, (i + 2) % 3
            parts: list[Any] = [None, None, None, skew[i]]
            parts[i] = 1 - trace + 2 * diagonal[i]
            parts[j], parts[k] = m[..., j, i] + m[..., i, j], m[..., k, i] + m[..., i, k]
            found = tnp.where((largest == i)[..., None], _stacked(*parts), found)
        return cls(_normalized(found))

    @classmethod
    def from_mrp(cls, mrp: ArrayLike) -> Rotation:
        """The rotations of modified Rodrigues parameters of shape [..., 3]: the axis times tan(angle / 4).

        Args:
            mrp: vectors, of shape [..., 3].

        Returns:
            Rotations of shape [...].

        Raises:
            DTypeError: complex numbers, or what is no array.
            ShapeError: another shape.

        >>> import tinyxla.numpy as jnp
        >>> from tinyxla.scipy.spatial.transform import Rotation
        >>> Rotation.from_mrp(jnp.array([0.0, 0.0, 1.0])).magnitude()  # tan(pi / 4) is 1
        Array(3.1415927, dtype=float32)
        """
        x = _vectors("Rotation.from_mrp", mrp, 3)
        squared = _squared_norm(x)
        return cls(tnp.concatenate([2 * x, 1 - squared], -1) / (1 + squared))

    @classmethod
    def from_quat(cls, quat: ArrayLike) -> Rotation:
        """The rotations of quaternions of shape [..., 4], which are normalized.

        Args:
            quat: quaternions, of shape [..., 4], in the order (x, y, z, w).

        Returns:
            Rotations of shape [...]; NaN for quaternions of length 0.

        Raises:
            DTypeError: complex numbers, or what is no array.
            ShapeError: another shape.

        >>> import tinyxla.numpy as jnp
        >>> from tinyxla.scipy.spatial.transform import Rotation
        >>> Rotation.from_quat(jnp.array([0.0, 0.0, 3.0, 4.0])).as_quat()
        Array([0. , 0. , 0.6, 0.8], dtype=float32)
        """
        return cls(_normalized(_vectors("Rotation.from_quat", quat, 4)))

    @classmethod
    def from_rotvec(cls, rotvec: ArrayLike, degrees: bool = False) -> Rotation:
        """The rotations of vectors of shape [..., 3] along the axes, as long as the angles.

        Args:
            rotvec: vectors, of shape [..., 3].
            degrees: lengths are in degrees instead of radians.

        Returns:
            Rotations of shape [...].

        Raises:
            ArgumentError: a `degrees` that is no boolean.
            DTypeError: complex numbers, or what is no array.
            ShapeError: another shape.

        >>> import tinyxla.numpy as jnp
        >>> from tinyxla.scipy.spatial.transform import Rotation
        >>> quarter = Rotation.from_rotvec(jnp.array([0.0, 0.0, 90.0]), degrees=True)
        >>> quarter.apply(jnp.array([1.0, 0.0, 0.0])).round(3)
        Array([0., 1., 0.], dtype=float32)
        """
        what = "Rotation.from_rotvec"
        x = _radians(what, _vectors(what, rotvec, 3), degrees)
        squared = _squared_norm(x)
        small = squared <= _SMALL_SQUARED_ANGLE
        angle = tnp.sqrt(tnp.where(small, 1, squared))
        near = tnp.where(small, squared, 0)
        sine = tnp.where(small, 0.5 - near / 48 + near * near / 3840, tnp.sin(angle / 2) / angle)
        cosine = tnp.where(small, 1 - near / 8 + near * near / 384, tnp.cos(angle / 2))
        return cls(tnp.concatenate([sine * x, cosine], -1))

    @classmethod
    def identity(cls, num: int | None = None, dtype: Any = float) -> Rotation:
        """The rotation that moves nothing; `num` of them, if given.

        Args:
            num: the number of rotations; None for a single one.
            dtype: the element type of the quaternions.

        Returns:
            A rotation, or an array of them.

        Raises:
            ArgumentError: a number that is no integer.
            DTypeError: what is no element type.
            ShapeError: a negative number.

        >>> import tinyxla.numpy as jnp
        >>> from tinyxla.scipy.spatial.transform import Rotation
        >>> Rotation.identity().as_quat(), Rotation.identity(5).as_quat().shape
        (Array([0., 0., 0., 1.], dtype=float32), (5, 4))
        """
        batch = () if num is None else (count_of("Rotation.identity", "num", num),)
        unit = tnp.asarray([0.0, 0.0, 0.0, 1.0], python_dtype(dtype))
        return cls(broadcast_to_shape("Rotation.identity", unit, (*batch, 4)))

    @classmethod
    def random(cls, random_key: Any, num: int | None = None) -> Rotation:
        """A uniformly distributed rotation; `num` of them, if given.

        Args:
            random_key: a random key.
            num: the number of rotations; None for a single one.

        Returns:
            A rotation, or an array of them.

        Raises:
            ArgumentError: what is no random key, or a number that is no integer.
            ShapeError: a negative number.

        >>> from tinyxla import random
        >>> from tinyxla.scipy.spatial.transform import Rotation
        >>> Rotation.random(random.key(0), num=5).as_matrix().shape
        (5, 3, 3)
        """
        batch = () if num is None else (count_of("Rotation.random", "num", num),)
        return cls(_normalized(random.normal(random_key, (*batch, 4))))

    def __getitem__(self, indexer: Any) -> Rotation:  # a rotation is indexed, not its fields
        if self.single:
            raise ArgumentError("Rotation: a single rotation cannot be indexed.")
        return Rotation(self.quat[indexer])

    def __len__(self) -> int:
        if self.single:
            raise ArgumentError("Rotation: a single rotation has no len().")
        return self.quat.shape[0]

    def __mul__(self, other: Any) -> Rotation:  # the composition of rotations
        """The composition: first `other`, then this rotation."""
        if not isinstance(other, Rotation):
            raise ArgumentError(f"Rotation: is composed with a Rotation, but got {type(other).__name__}.")
        return Rotation(_normalized(_product(self.quat, other.quat)))

    def apply(self, vectors: ArrayLike, inverse: Any = False) -> Array:
        """Vectors of shape [..., 3], rotated; or rotated back, if `inverse`. Batch axes broadcast.

        Args:
            vectors: of shape [..., 3].
            inverse: whether the inverse rotation is applied; it may be traced.

        Returns:
            Vectors of the shape of the batch axes of both, broadcast, and 3.

        Raises:
            ArgumentError: an `inverse` that is no boolean.
            DTypeError: complex numbers, or what is no array.
            ShapeError: another shape, or batch axes that do not broadcast.

        >>> import tinyxla.numpy as jnp
        >>> from tinyxla.scipy.spatial.transform import Rotation
        >>> quarter = Rotation.from_rotvec(jnp.array([0.0, 0.0, jnp.pi / 2]))
        >>> x = jnp.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
        >>> quarter.apply(x).round(3)
        Array([[ 0.,  1.,  0.],
               [-1.,  0.,  0.]], dtype=float32)
        >>> quarter.apply(quarter.apply(x), inverse=True).round(3)
        Array([[1., 0., 0.],
               [0., 1., 0.]], dtype=float32)
        """
        what = "Rotation.apply"
        x: Any = _vectors(what, vectors, 3)
        matrix = self.as_matrix()
        if not isinstance(inverse, Array):
            matrix = tnp.matrix_transpose(matrix) if flag_of(what, "inverse", inverse) else matrix
        else:
            matrix = tnp.where(inverse, tnp.matrix_transpose(matrix), matrix)
        batch = broadcast_shapes(what, matrix.shape[:-2], x.shape[:-1])
        matrix = broadcast_to_shape(what, matrix, (*batch, 3, 3))
        return (matrix @ broadcast_to_shape(what, x, (*batch, 3))[..., None])[..., 0]

    def as_euler(self, seq: str, degrees: bool = False) -> Array:
        """The three angles about the axes `seq`, as `from_euler` takes them, in (-pi, pi] and of shape [..., 3].

        The second angle is in [0, pi] if the first axis is the last one, else in [-pi/2, pi/2]. At its ends only the
        sum or the difference of the other two is determined; then the third is 0 (of moving axes the first).

        Source: E. Bernardes and S. Viollet, "Quaternion to Euler angles conversion: A direct, general and
        computationally efficient method", PLoS ONE 17 (2022).

        Args:
            seq: three axes, of `xyz` or of `XYZ`, none twice in a row.
            degrees: angles are in degrees instead of radians.

        Returns:
            Angles of shape [..., 3].

        Raises:
            ArgumentError: another `seq`, or a `degrees` that is no boolean.

        >>> import tinyxla.numpy as jnp
        >>> from tinyxla.scipy.spatial.transform import Rotation
        >>> turns = Rotation.from_euler("xyz", jnp.array([10.0, 20.0, 30.0]), degrees=True)
        >>> turns.as_euler("xyz", degrees=True).round(2)
        Array([10., 20., 30.], dtype=float32)
        """
        what = "Rotation.as_euler"
        axes, intrinsic = _axes_of(what, seq, 3)
        i, j, k = reversed(axes) if intrinsic else axes
        symmetric = i == k
        k = 3 - i - j if symmetric else k
        sign = (i - j) * (j - k) * (k - i) // 2
        x, y, z, w = (self.quat[..., d] for d in (i, j, k, 3))
        a, b, c, d = (w, x, y, sign * z) if symmetric else (w - y, x + sign * z, y + w, sign * z - x)
        middle = 2 * tnp.arctan2(tnp.hypot(c, d), tnp.hypot(a, b))
        half_sum, half_difference = tnp.arctan2(b, a), tnp.arctan2(d, c)
        at_zero, at_half_turn = tnp.abs(middle) <= _GIMBAL_LOCK, tnp.abs(middle - math.pi) <= _GIMBAL_LOCK
        locked = tnp.where(at_zero, 2 * half_sum, (2 if intrinsic else -2) * half_difference)
        first, third = half_sum - half_difference, half_sum + half_difference
        free, zero = at_zero | at_half_turn, tnp.zeros_like(first)
        kept, dropped = (third, first) if intrinsic else (first, third)
        kept, dropped = tnp.where(free, locked, kept), tnp.where(free, zero, dropped)
        first, third = (dropped, kept) if intrinsic else (kept, dropped)
        if not symmetric:
            third, middle = sign * third, middle - math.pi / 2
        found = tnp.stack([third, middle, first] if intrinsic else [first, middle, third], -1)
        found = (found + math.pi) % (2 * math.pi) - math.pi
        return tnp.rad2deg(found) if flag_of(what, "degrees", degrees) else found

    def as_matrix(self) -> Array:
        """The orthogonal matrices of shape [..., 3, 3].

        Returns:
            Matrices of shape [..., 3, 3].

        >>> import tinyxla.numpy as jnp
        >>> from tinyxla.scipy.spatial.transform import Rotation
        >>> Rotation.from_rotvec(jnp.array([0.0, 0.0, jnp.pi / 2])).as_matrix().round(3)
        Array([[ 0., -1.,  0.],
               [ 1.,  0.,  0.],
               [ 0.,  0.,  1.]], dtype=float32)
        """
        x, y, z, w = (self.quat[..., d] for d in range(4))
        rows = (
            (x * x - y * y - z * z + w * w, 2 * (x * y - z * w), 2 * (x * z + y * w)),
            (2 * (x * y + z * w), w * w - x * x + y * y - z * z, 2 * (y * z - x * w)),
            (2 * (x * z - y * w), 2 * (y * z + x * w), w * w - x * x - y * y + z * z),
        )
        return tnp.stack([tnp.stack(row, -1) for row in rows], -2)

    def as_mrp(self) -> Array:
        """The modified Rodrigues parameters of shape [..., 3], at most 1 long: the axis times tan(angle / 4).

        Returns:
            Vectors of shape [..., 3].

        >>> import tinyxla.numpy as jnp
        >>> from tinyxla.scipy.spatial.transform import Rotation
        >>> Rotation.from_rotvec(jnp.array([0.0, 0.0, jnp.pi / 2])).as_mrp().round(3)  # tan(pi / 8)
        Array([0.   , 0.   , 0.414], dtype=float32)
        """
        quat = tnp.where(self.quat[..., 3:] < 0, -self.quat, self.quat)
        return quat[..., :3] / (1 + quat[..., 3:])

    def as_rotvec(self, degrees: bool = False) -> Array:
        """The vectors of shape [..., 3] along the axes, as long as the angles, which are at most pi.

        Args:
            degrees: lengths are in degrees instead of radians.

        Returns:
            Vectors of shape [..., 3].

        Raises:
            ArgumentError: a `degrees` that is no boolean.

        >>> import tinyxla.numpy as jnp
        >>> from tinyxla.scipy.spatial.transform import Rotation
        >>> turn = Rotation.from_rotvec(jnp.array([100.0, 200.0, 200.0]), degrees=True)  # by 300 degrees
        >>> turn.as_rotvec(degrees=True).round(1)
        Array([-20., -40., -40.], dtype=float32)
        """
        quat = tnp.where(self.quat[..., 3:] < 0, -self.quat, self.quat)
        vector, w = quat[..., :3], quat[..., 3:]
        squared = _squared_norm(vector)
        small = 4 * squared <= _SMALL_SQUARED_ANGLE
        sine = tnp.sqrt(tnp.where(small, 1, squared))
        cosine = tnp.where(small, w, 1)
        ratio = tnp.where(small, squared, 0) / (cosine * cosine)
        scale = tnp.where(small, 2 * (1 - ratio / 3 + ratio * ratio / 5) / cosine, 2 * tnp.arctan2(sine, w) / sine)
        found = scale * vector
        return tnp.rad2deg(found) if flag_of("Rotation.as_rotvec", "degrees", degrees) else found

    def as_quat(self, canonical: bool = False, scalar_first: bool = False) -> Array:
        """The quaternions of shape [..., 4].

        Args:
            canonical: of a quaternion and its negative, which are one rotation, give that whose last part that is not
                0, of (w, x, y, z) from the front, is positive.
            scalar_first: the order is (w, x, y, z) instead of (x, y, z, w).

        Returns:
            Quaternions of shape [..., 4], of length 1.

        Raises:
            ArgumentError: an option that is no boolean.

        >>> import tinyxla.numpy as jnp
        >>> from tinyxla.scipy.spatial.transform import Rotation
        >>> turn = Rotation.from_quat(jnp.array([0.0, 3.0, 0.0, 4.0]))
        >>> turn.as_quat(), turn.as_quat(scalar_first=True)
        (Array([0. , 0.6, 0. , 0.8], dtype=float32), Array([0.8, 0. , 0.6, 0. ], dtype=float32))
        """
        what = "Rotation.as_quat"
        quat = self.quat
        if flag_of(what, "canonical", canonical):
            x, y, z, w = (quat[..., d : d + 1] for d in range(4))
            leading = tnp.where(w != 0, w, tnp.where(x != 0, x, tnp.where(y != 0, y, z)))
            quat = tnp.where(leading < 0, -quat, quat)
        return tnp.roll(quat, 1, -1) if flag_of(what, "scalar_first", scalar_first) else quat

    def inv(self) -> Rotation:
        """The inverse rotations.

        Returns:
            As many rotations.

        >>> import tinyxla.numpy as jnp
        >>> from tinyxla.scipy.spatial.transform import Rotation
        >>> turn = Rotation.from_rotvec(jnp.array([0.25, 0.5, 1.0]))
        >>> turn.inv().as_rotvec().round(3), (turn * turn.inv()).magnitude().round(3)
        (Array([-0.25, -0.5 , -1.  ], dtype=float32), Array(0., dtype=float32))
        """
        return Rotation(tnp.concatenate([-self.quat[..., :3], self.quat[..., 3:]], -1))

    def magnitude(self) -> Array:
        """The angles of the rotations, from 0 to pi.

        Returns:
            Angles in radians, of shape [...].

        >>> import tinyxla.numpy as jnp
        >>> from tinyxla.scipy.spatial.transform import Rotation
        >>> Rotation.from_rotvec(jnp.array([[0.0, 0.0, 1.5], [0.0, 4.0, 3.0]])).magnitude().round(3)
        Array([1.5  , 1.283], dtype=float32)
        """
        norm = tnp.linalg.vector_norm(self.quat[..., :3], axis=-1)
        return 2 * tnp.arctan2(norm, tnp.abs(self.quat[..., 3]))

    def mean(self, weights: ArrayLike | None = None) -> Rotation:
        """The mean of the rotations, which makes the weighted sum of squared chordal distances least.

        Source: F. L. Markley et al., "Averaging Quaternions", Journal of Guidance, Control, and Dynamics 30 (2007).

        Args:
            weights: a number for each rotation; None for equal ones.

        Returns:
            A single rotation.

        Raises:
            ArgumentError: a single rotation.
            DTypeError: weights that are no numbers.
            ShapeError: another number of weights.

        >>> import tinyxla.numpy as jnp
        >>> from tinyxla.scipy.spatial.transform import Rotation
        >>> turns = Rotation.from_rotvec(jnp.array([[0.0, 0.0, 0.25], [0.0, 0.0, 0.75]]))
        >>> turns.mean().as_rotvec().round(3)
        Array([0. , 0. , 0.5], dtype=float32)
        """
        what = "Rotation.mean"
        count = len(self)
        weighted = self.quat
        if weights is not None:
            w = cast(inexact_array(weights, what), self.quat.dtype)
            if w.shape != (count,):
                raise ShapeError(f"{what}: weights must be {count} numbers, but got {Shape.of(w)}.")
            weighted = w[:, None] * self.quat
        return Rotation(tnp.linalg.eigh(tnp.matmul(weighted.T, self.quat)).eigenvectors[:, -1])

    @property
    def single(self) -> bool:
        """Whether this is one rotation, and no array of them."""
        return self.quat.ndim == 1


class Slerp(NamedTuple):
    """Spherical linear interpolation of rotations: constant angular velocity between given times.

    `Slerp.init` makes one; called with times it gives the rotations then.

    Example:
        >>> import numpy as np
        >>> from tinyxla.scipy.spatial.transform import Rotation, Slerp
        >>> ends = Rotation.from_euler("z", np.array([[0.0], [90.0]]), degrees=True)
        >>> Slerp.init(np.array([0.0, 1.0]), ends)(0.5).as_euler("xyz", degrees=True).round(3)
        Array([ 0.,  0., 45.], dtype=float32)
    """

    times: Any
    timedelta: Any
    rotations: Rotation
    rotvecs: Any

    @classmethod
    def init(cls, times: ArrayLike, rotations: Any) -> Slerp:
        """The interpolation of rotations.

        Args:
            times: n times in ascending order.
            rotations: n rotations, at least two.

        Returns:
            An interpolation, which is called with times.

        Raises:
            ArgumentError: rotations that are no `Rotation`, or times that do not ascend.
            DTypeError: times that are no numbers.
            ShapeError: fewer than two rotations, or another number of times.

        >>> import tinyxla.numpy as jnp
        >>> from tinyxla.scipy.spatial.transform import Rotation, Slerp
        >>> turns = Rotation.from_rotvec(jnp.array([[0.0, 0.0, 0.0], [0.0, 0.0, 1.0]]))
        >>> Slerp.init(jnp.array([0.0, 2.0]), turns)(jnp.array([0.5, 1.0])).as_rotvec().round(3)
        Array([[0.  , 0.  , 0.25],
               [0.  , 0.  , 0.5 ]], dtype=float32)
        """
        what = "Slerp.init"
        if not isinstance(rotations, Rotation):
            raise ArgumentError(f"{what}: rotations must be a Rotation, but got {type(rotations).__name__}.")
        if rotations.single or len(rotations) < 2:
            raise ShapeError(f"{what}: takes at least two rotations, but got {Shape.of(rotations.quat)}.")
        x = _times(what, times, rotations.quat)
        if x.shape != (len(rotations),):
            raise ShapeError(f"{what}: takes {len(rotations)} times, one for each rotation, but got {Shape.of(x)}.")
        if isinstance(x, ConcreteArray) and not bool(tnp.all(x[1:] > x[:-1])):
            raise ArgumentError(f"{what}: times must ascend, but got {shown(times)}.")
        every: Any = rotations
        before, after = every[:-1], every[1:]
        return cls(x, tnp.diff(x), before, (before.inv() * after).as_rotvec())

    def __call__(self, times: ArrayLike) -> Rotation:
        """The rotations at a time, or at a vector of times; outside of those given, the nearest interval goes on."""
        x = _times("Slerp", times, self.times)
        if x.ndim > 1:
            raise ShapeError(f"Slerp: takes a number or a vector of times, but got {Shape.of(x)}.")
        index = tnp.clip(tnp.searchsorted(self.times, x) - 1, 0, self.rotvecs.shape[0] - 1)
        share = (x - self.times[index]) / self.timedelta[index]
        return self.rotations[index] * Rotation.from_rotvec(self.rotvecs[index] * share[..., None])


# --- quaternions ------------------------------------------------------------------------------------------------------


def _times(what: str, times: ArrayLike, like: Array) -> Any:
    x = inexact_array(tnp.asarray(times), what)
    return cast(x, like.dtype)


def _vectors(what: str, value: ArrayLike, size: int) -> Any:
    x = inexact_array(value, what)
    refuse_complex(what, x)
    if x.ndim < 1 or x.shape[-1] != size:
        raise ShapeError(f"{what}: takes an array of shape [..., {size}], but got {Shape.of(x)}.")
    return x


def _radians(what: str, angles: Any, degrees: bool) -> Any:
    return tnp.deg2rad(angles) if flag_of(what, "degrees", degrees) else angles


def _axes_of(what: str, seq: Any, count: int | None = None) -> tuple[list[int], bool]:
    """The indices of axes, and whether they move along (are intrinsic)."""
    wanted = "one to three" if count is None else str(count)
    if not isinstance(seq, str) or not 1 <= len(seq) <= 3 or (count is not None and len(seq) != count):
        raise ArgumentError(f"{what}: seq must be {wanted} axes, but got {seq!r}.")
    if not (set(seq) <= set("xyz") or set(seq) <= set("XYZ")):
        raise ArgumentError(f"{what}: the axes of seq are of 'xyz' or of 'XYZ', but got {seq!r}.")
    if any(a == b for a, b in pairwise(seq)):
        raise ArgumentError(f"{what}: consecutive axes of seq must be different, but got {seq!r}.")
    return ["xyz".index(axis) for axis in seq.lower()], seq.isupper()


def _stacked(*parts: Any) -> Any:
    return tnp.stack(parts, -1)


def _squared_norm(x: Any) -> Any:
    return tnp.sum(x * x, -1, keepdims=True)


def _normalized(quat: Any) -> Any:
    return quat / tnp.sqrt(_squared_norm(quat))


def _about_axis(axis: int, angle: Any) -> Any:
    """The quaternions of rotations about one coordinate axis."""
    parts: list[Any] = [tnp.zeros_like(angle)] * 3
    parts[axis] = tnp.sin(angle / 2)
    return _stacked(*parts, tnp.cos(angle / 2))


def _product(p: Any, q: Any) -> Any:
    """Hamilton's product of quaternions, whose batch axes broadcast."""
    batch = broadcast_shapes("Rotation", p.shape[:-1], q.shape[:-1])
    p, q = (broadcast_to_shape("Rotation", x, (*batch, 4)) for x in (p, q))
    (a, b, c, d), (x, y, z, w) = ([v[..., k] for k in range(4)] for v in (p, q))
    return _stacked(
        d * x + w * a + b * z - c * y,
        d * y + w * b + c * x - a * z,
        d * z + w * c + a * y - b * x,
        d * w - a * x - b * y - c * z,
    )


__getattr__ = _missing(__name__)
