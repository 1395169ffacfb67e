"""`python -m tests.jax.meshes MODULE [PROGRAM ...]`: run programs of a module of this folder, by default all, and print
what each gives as JSON.

They are written as users of JAX write them. `python -m tinyxla.jax -m tests.jax.meshes MODULE` runs them with tinyxla.
"""

from __future__ import annotations

import importlib
import json
import sys
import traceback
from typing import Any

import jax
import numpy as np

_BUILTIN_ERRORS = (ValueError, TypeError, KeyError, NotImplementedError, RuntimeError, AssertionError, IndexError)


def described(x: Any) -> Any:
    """A value as JSON: of an array the elements, and the part that each device has."""
    if isinstance(x, jax.Array) and jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key):
        return described(jax.random.key_data(x))
    if isinstance(x, jax.Array):
        shards = [[s.device.id, _bounds(s.index, x.shape), s.replica_id] for s in x.addressable_shards]
        return {**described(np.asarray(x)), "shards": sorted(shards)}
    if isinstance(x, np.ndarray | np.generic):
        return {"shape": list(x.shape), "dtype": str(x.dtype), "values": _numbers(x)}
    if isinstance(x, jax.sharding.PartitionSpec):
        return {"spec": described(tuple(x))}
    if isinstance(x, jax.sharding.NamedSharding):
        return {"mesh": described(dict(x.mesh.shape)), **described(x.spec)}
    if isinstance(x, jax.sharding.SingleDeviceSharding):
        return {"device": min(device.id for device in x.device_set)}
    if isinstance(x, dict):
        return {str(k): described(v) for k, v in x.items()}
    if isinstance(x, tuple | list):
        return [described(v) for v in x]
    if isinstance(x, set | frozenset):
        return sorted(described(v) for v in x)
    if isinstance(x, slice):
        return repr(x)
    if isinstance(x, Exception):
        return {"errors": [kind.__name__ for kind in _BUILTIN_ERRORS if isinstance(x, kind)]}
    if x is None or isinstance(x, bool | int | float | str):
        return x
    return str(x)


def _bounds(index: Any, shape: Any) -> Any:
    return [list(s.indices(n)[:2]) for s, n in zip(index, shape, strict=True)]


def _numbers(x: Any) -> Any:
    if x.dtype.kind == "c":
        return [_numbers(x.real), _numbers(x.imag)]
    return (x if x.dtype.kind in "biu" else x.astype(np.float64)).tolist()


def main(module: str, *chosen: str) -> None:
    """Run the chosen programs of a module, or all."""
    programs = vars(importlib.import_module(f"tests.jax.meshes.{module}"))
    for name, program in list(programs.items()):
        if name.startswith("_") or getattr(program, "__module__", None) != f"tests.jax.meshes.{module}":
            continue
        if chosen and name not in chosen:
            continue
        try:
            found = {"name": name, "value": described(list(program()))}
        except Exception:
            found = {"name": name, "failure": traceback.format_exc()}
        print(json.dumps(found), flush=True)


main(*sys.argv[1:])
