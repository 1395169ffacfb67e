"""Functions that were exported here, as functions of `jax.export`, which XLA compiles for the sizes of each call."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import export
from jax._src.interpreters import mlir
from jax._src.lib.mlir import ir
from jax._src.lib.mlir.dialects import hlo


def artifact(text: str) -> bytes:
    """A module as a portable artifact, by StableHLO's own writer."""
    with mlir.make_ir_context():
        module = ir.Module.parse(text)
        module.operation.verify()
        return hlo.serialize_portable_artifact(module, hlo.get_current_version())


def exported_of(exported: Any) -> Any:
    """The same as an `Exported` of JAX, of the leaves of the arguments, which gives the leaves of the result."""
    scope = export.SymbolicScope()

    def struct(t: Any) -> Any:
        shape = export.symbolic_shape(", ".join(map(str, t.shape)), scope=scope) if t.shape else ()
        return jax.ShapeDtypeStruct(shape, t.dtype)

    results = [struct(t) for t in exported.out_avals]
    zeros = jax.jit(lambda *_: [jnp.zeros(t.shape, t.dtype) for t in results], keep_unused=True)
    made = export.export(zeros)(*map(struct, exported.in_avals))
    return dataclasses.replace(made, mlir_module_serialized=artifact(exported.mlir_module()))
