"""Functions that were exported here, as functions of `jax.export`, which XLA compiles for the sizes of each call."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import export
from jax._src.interpreters import mlir
from jax._src.lib.mlir import ir


def _artifact(exported: Any) -> bytes:
    """The module as a portable artifact, whose text StableHLO's own tools verify."""
    with mlir.make_ir_context():
        assert ir.Module.parse(exported.mlir_module()).operation.verify()
    return exported.mlir_module_serialized


def exported_of(exported: Any) -> Any:
    """The same as an `Exported` of JAX, of the leaves of the arguments, which gives the leaves of the result."""
    scope = export.SymbolicScope()

    def struct(t: Any) -> Any:
        shape = export.symbolic_shape(", ".join(map(str, t.shape)), scope=scope) if t.shape else ()
        return jax.ShapeDtypeStruct(shape, t.dtype)

    results = [struct(t) for t in exported.out_avals]
    zeros = jax.jit(lambda *_: [jnp.zeros(t.shape, t.dtype) for t in results], keep_unused=True)
    made = export.export(zeros)(*map(struct, exported.in_avals))
    return dataclasses.replace(made, mlir_module_serialized=_artifact(exported))
