"""`jax._src.mesh`."""

from types import SimpleNamespace

from tinyxla.jax.interface.interpreters.pxla import thread_resources as thread_resources
from tinyxla.sharding import get_mesh as get_concrete_mesh, set_mesh as use_abstract_mesh
from tinyxla.tracing.meshes import AbstractMesh as _AbstractMesh

empty_abstract_mesh = _AbstractMesh((), ())
EMPTY_ENV = SimpleNamespace(physical_mesh=get_concrete_mesh())  # outside of all meshes

__all__ = ["EMPTY_ENV", "empty_abstract_mesh", "get_concrete_mesh", "thread_resources", "use_abstract_mesh"]
