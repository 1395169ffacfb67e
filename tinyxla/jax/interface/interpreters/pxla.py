"""`jax.interpreters.pxla`: there is one device; the mesh is the current one."""

from types import SimpleNamespace

from tinyxla.sharding import get_mesh


class _Resources:
    """What is active in this thread."""

    @property
    def env(self):
        """The current mesh."""
        return SimpleNamespace(physical_mesh=get_mesh())


thread_resources = _Resources()
