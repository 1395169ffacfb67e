"""`jax.extend.ifrt_programs`: only to be imported, by packages with programs for remote devices."""

from types import SimpleNamespace

ifrt_programs = SimpleNamespace()
