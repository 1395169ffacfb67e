"""`jax.sharding.AbstractMesh`, which in JAX is no base of `Mesh`: programs tell meshes without devices by it."""

from __future__ import annotations

from typing import Any

from tinyxla.tracing import meshes


class _MeshesWithoutDevices(type):
    """The class of a class whose instances are this library's abstract meshes without those that have devices."""

    def __call__(cls, *args: Any, **options: Any) -> meshes.AbstractMesh:
        return meshes.AbstractMesh(*args, **options)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, meshes.AbstractMesh) and not isinstance(instance, meshes.Mesh)


class AbstractMesh(metaclass=_MeshesWithoutDevices):
    """A mesh without devices: named axes with sizes.

    Args:
        axis_sizes: the size of each axis.
        axis_names: a different name for each.
        axis_types: an `AxisType`, or one for each axis; by default the compiler decides.

    Returns:
        An `AbstractMesh` of `tinyxla.sharding`.

    Raises:
        ArgumentError: names or types that are not as many as the axes, a name that is there twice, or None.

    Example:
        >>> from tinyxla.jax.partitioning.abstract_mesh import AbstractMesh
        >>> import tinyxla
        >>> [isinstance(m, AbstractMesh) for m in (AbstractMesh((2,), ("x",)), tinyxla.make_mesh((1,), ("x",)))]
        [True, False]
    """
