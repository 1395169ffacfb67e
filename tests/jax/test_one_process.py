"""JAX's functions for arrays over several processes, under the hook, where there is one."""

from __future__ import annotations

import subprocess
import sys
import textwrap

from tests.support import ROOT

PROGRAM = """
import numpy as np
import tinyxla.jax
import jax, jax.memory

place = jax.sharding.SingleDeviceSharding(jax.devices()[0])
asked = []

def part(index):
    asked.append(index)
    return np.arange(6.0).reshape(2, 3)[index]

print(jax.make_array_from_callback((2, 3), place, part).tolist(), asked)
print(jax.make_array_from_single_device_arrays((2,), place, [jax.numpy.ones(2)]).tolist())
found = jax.make_array_from_process_local_data(place, {"a": np.ones(2), "b": np.zeros((1, 2))})
print({k: v.tolist() for k, v in found.items()})
print(jax.host_count(), jax.host_id(), jax.host_ids(), list(jax.memory.Space))

for refused in (
    lambda: jax.make_array_from_callback((2, 3), place, lambda index: np.ones((2, 2))),
    lambda: jax.make_array_from_single_device_arrays((2,), place, []),
    lambda: jax.make_array_from_process_local_data(place, np.ones((2, 3)), (4, 3)),
    lambda: jax.make_array_from_callback((1,), 3, lambda index: np.ones(1)),
):
    try:
        refused()
    except (TypeError, ValueError) as error:
        print(str(error).splitlines()[0])
"""


def test_arrays_of_several_processes_are_whole_in_one() -> None:
    command = [sys.executable, "-c", textwrap.dedent(PROGRAM)]
    found = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300)
    assert found.returncode == 0, found.stderr
    *values, shape, count, whole, device = found.stdout.splitlines()
    assert values == [
        "[[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]] [(slice(None, None, None), slice(None, None, None))]",
        "[1.0, 1.0]",
        "{'a': [1.0, 1.0], 'b': [[0.0, 0.0]]}",
        "1 0 [0] [MemorySpace.Device, MemorySpace.Host, MemorySpace.Any]",
    ]
    assert shape.endswith("the part of the one device must be all, of shape (2, 3), not (2, 2).")
    assert count.startswith("make_array_from_single_device_arrays: there must be an array for each of the 1 devices")
    assert whole.endswith("the part of the one device must be all, of shape (4, 3), not (2, 3).")
    assert device.startswith("make_array_from_callback: sharding")


def test_array_api_compat_knows_under_the_hook_that_arrays_are_immutable() -> None:
    code = """
    import tinyxla.jax
    import jax, jax.numpy as jnp
    from scipy._lib import array_api_compat as compat
    x = jnp.ones(2)
    print(compat.is_jax_array(x), compat.is_writeable_array(x), compat.array_namespace(x) is jnp)
    jax.jit(lambda y: print(compat.is_writeable_array(y)))(x)
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    found = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300)
    assert found.returncode == 0, found.stderr
    first, second = found.stdout.splitlines()
    assert first.startswith("True False")
    assert second == "False"
