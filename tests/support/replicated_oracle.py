"""XLA itself on eight devices of the CPU: what it computes for programs of several replicas and partitions.

`python -m tests.support.replicated_oracle programs results` reads a pickled list of `Replicated` and writes the list of
what they give: for each device a flat list of arrays, or the text of XLA's error. The number of devices is set before
JAX is imported, so this is a process of its own. It uses entry points of jaxlib that nobody promises to keep.
"""

from __future__ import annotations

import os
import pickle
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

DEVICES = 8


class Replicated(NamedTuple):
    """A program's text in HLO or StableHLO, the arguments of each device, and how many replicas and partitions run
    it."""

    text: str
    arguments: list[list[Any]]
    replicas: int
    partitions: int


def partitioned(text: str) -> str:
    """The text with all instructions of the entry computation marked as those of one partition, which the partitioner
    leaves as they are."""
    head, entry = text.split("\nENTRY ", 1)

    def mark(line: re.Match[str]) -> str:
        shape = line[2]
        count = len(re.findall(r"\w+\[", shape))
        marks = "{" + ", ".join(["{manual}"] * count) + "}" if shape.startswith("(") else "{manual}"
        return f"{line[0]}, sharding={marks}"

    return (
        head + "\nENTRY " + re.sub(r"^( +(?:ROOT )?\S+ = (\(.*?\)|\S+) [a-z-]+\(.*)$", mark, entry, flags=re.MULTILINE)
    )


def run(program: Replicated) -> list[list[Any]]:
    import jax
    import numpy as np
    from jaxlib import _hlo as hlo, _jax as extension

    count = program.replicas * program.partitions
    text = program.text
    if text.startswith("module"):
        text = extension.mlir.mlir_module_to_xla_computation(text, False, False).as_hlo_text()
    if program.partitions > 1:
        text = partitioned(text)
    computation = hlo.XlaComputation(hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto())
    devices = jax.devices("cpu")[:count]
    options: Any = extension.CompileOptions()
    build = options.executable_build_options
    for target in (options, build):
        target.num_replicas, target.num_partitions = program.replicas, program.partitions
        numbers = np.arange(count).reshape(program.replicas, program.partitions)
        target.device_assignment = extension.DeviceAssignment.create(numbers)
    build.use_spmd_partitioning = program.partitions > 1
    stable = extension.mlir.xla_computation_to_mlir_module(computation)
    executable = devices[0].client.compile_and_load(stable, extension.DeviceList(tuple(devices)), options)
    mesh = jax.sharding.Mesh(np.array(devices), ("device",))
    operands = []
    for several in zip(*program.arguments, strict=True):
        arrays = [jax.device_put(x, device) for x, device in zip(several, devices, strict=True)]
        shape = several[0].shape
        along = jax.sharding.PartitionSpec(*["device"][: len(shape)])
        whole = (count * shape[0], *shape[1:]) if shape else ()
        sharding = jax.sharding.NamedSharding(mesh, along)
        operands.append(jax.make_array_from_single_device_arrays(whole, sharding, arrays))
    results = executable.execute_sharded(operands).disassemble_into_single_device_arrays()
    return [[np.asarray(shards[device]) for shards in results] for device in range(count)]


def main() -> None:
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={DEVICES}"
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["JAX_ENABLE_X64"] = "1"
    programs, results = map(Path, sys.argv[1:])
    found: list[Any] = []
    for program in pickle.loads(programs.read_bytes()):
        try:
            found.append(run(program))
        except Exception as error:  # XLA's refusal, which the test knows of
            found.append(f"{type(error).__name__}: {error}")
    results.write_bytes(pickle.dumps(found))


if __name__ == "__main__":
    main()
