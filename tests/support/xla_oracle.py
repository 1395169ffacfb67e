"""XLA itself, from jaxlib: it parses the HLO text that is printed here, and runs it.

These are entry points of jaxlib that nobody promises to keep, so without them the tests that want them are skipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import pytest


def parse(text: str) -> Any:
    """XLA's module of an HLO text; an error if its parser objects."""
    hlo = pytest.importorskip("jaxlib._hlo")
    return hlo.hlo_module_from_text(text)


def run(text: str, operands: Sequence[Any]) -> list[Any]:
    """What XLA computes for a module in HLO text, as a flat list."""
    hlo, extension = pytest.importorskip("jaxlib._hlo"), pytest.importorskip("jaxlib._jax")
    computation = hlo.XlaComputation(parse(text).as_serialized_hlo_module_proto())
    return _run(extension.mlir.xla_computation_to_mlir_module(computation), operands)


def run_stablehlo(text: str, operands: Sequence[Any]) -> list[Any]:
    """The results of a module in StableHLO's text, compiled and run by XLA, as a flat list."""
    return _run(text.encode(), operands)


def _run(stable: Any, operands: Sequence[Any]) -> list[Any]:
    extension = pytest.importorskip("jaxlib._jax")
    devices = jax.devices("cpu")[:1]
    options = extension.CompileOptions()  # quick to compile: it runs once
    options.executable_build_options.debug_options.xla_backend_optimization_level = 0
    options.executable_build_options.debug_options.xla_llvm_disable_expensive_passes = True
    executable = devices[0].client.compile_and_load(stable, extension.DeviceList(tuple(devices)), options)
    with jax.enable_x64(True):
        given = [jax.device_put(np.asarray(x), devices[0]) for x in operands]
        results = executable.execute_sharded(given).disassemble_into_single_device_arrays()
    return [np.asarray(shards[0]) for shards in results]
