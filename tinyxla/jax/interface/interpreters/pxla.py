"""`jax.interpreters.pxla`: there is one device, and no mesh is active."""

from types import SimpleNamespace

thread_resources = SimpleNamespace(env=SimpleNamespace(physical_mesh=SimpleNamespace(empty=True, devices=(), axis_names=(), shape={})))
