"""`jax`: the names of tinyxla, and those that only JAX's interface has."""

from tinyxla.api.sharding.devices import (
    process_count as host_count,
    process_index as host_id,
    process_indices as host_ids,
)
from tinyxla.jax.environment import print_environment_info as print_environment_info
from tinyxla.jax.finder import JAX_VERSION
from tinyxla.jax.host_calls.callbacks import pure_callback as pure_callback
from tinyxla.jax.jaxprs.avals import get_aval as _get_aval
from tinyxla.jax.jaxprs.refs import (
    Ref as Ref,
    empty_ref as empty_ref,
    free_ref as free_ref,
    freeze as freeze,
    new_ref as new_ref,
)
from tinyxla.jax.jaxprs.staging import make_jaxpr as make_jaxpr
from tinyxla.jax.jaxprs.traces.vmappables import vmap as vmap
from tinyxla.jax.options import set_from_environment as _set_from_environment, states as _states
from tinyxla.jax.tracing.checkpoint_policies import checkpoint as checkpoint
from tinyxla.tracing.config import setting as _setting
from tinyxla.tracing.meshes import AxisType as _AxisType, make_mesh as _make_mesh
from tinyxla.tracing.shardings import Shard as Shard

__version__ = JAX_VERSION
__version_info__ = tuple(map(int, JAX_VERSION.split(".")))

remat = checkpoint
typeof = _get_aval
allow_f16_reductions = _states["allow_f16_reductions"]
array_garbage_collection_guard = _states["array_garbage_collection_guard"]
enable_checks = _states["enable_checks"]
no_execution, no_tracing = _states["no_execution"], _states["no_tracing"]
softmax_custom_jvp = _states["softmax_custom_jvp"]
remove_size_one_mesh_axis_from_type = _states["remove_size_one_mesh_axis_from_type"]
thread_guard = _states["thread_guard"]
_set_from_environment()  # which a program may have changed before it imports jax


def make_mesh(axis_shapes, axis_names, axis_types=None, *, devices=None):
    """A mesh whose axes are explicit, if `axis_types` does not say otherwise."""
    return _make_mesh(axis_shapes, axis_names, axis_types or _AxisType.Explicit, devices=devices)


def debug_key_reuse(new_val=True):
    """Inside, a random key that is used a second time is a `KeyReuseError`."""
    return _setting("debug_key_reuse", new_val)
