"""Compiled code on processors with fewer instructions than this one, as LLVM is told: right, and nothing crashes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

OLDEST = "sse sse2 mmx fxsr cmov cx8 64bit x87"
HASWELL = f"{OLDEST} sse3 ssse3 sse4.1 sse4.2 popcnt cx16 sahf avx avx2 fma f16c bmi bmi2 lzcnt movbe"
SKYLAKE = f"{HASWELL} adx aes avx512f avx512cd avx512bw avx512dq avx512vl"
PROCESSORS = {"x86-64": OLDEST, "haswell": HASWELL, "skylake-avx512": SKYLAKE}

PROGRAMS = """
import sys

import llvmlite.binding as llvm
import numpy as np

name, kept = sys.argv[1], sys.argv[2].split()
host = llvm.get_host_cpu_features()
for feature in host:
    host[feature] = host[feature] and feature in kept
llvm.get_host_cpu_name, llvm.get_host_cpu_features = (lambda: name), (lambda: host)

import tinyxla
import tinyxla.numpy as jnp
from tinyxla import lax, nn


def normalized(x):
    return nn.softmax((x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True))


def in_groups(x):
    kernel, numbers = x.ravel()[:3360].reshape(2, 3, 10, 56), ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(
        x.reshape(1, 7, 10, 70), kernel, (1, 1), "SAME", dimension_numbers=numbers, feature_group_count=7
    )


def compare(function, *arrays):
    found = np.asarray(tinyxla.jit(function)(*arrays)).astype(np.float64)
    with tinyxla.disable_jit():
        expected = np.asarray(function(*arrays)).astype(np.float64)
    kind = arrays[0].dtype
    tolerance = {"float16": 4e-3, "bfloat16": 4e-2}.get(kind.name, 1e-5)
    np.testing.assert_allclose(found, expected, tolerance, tolerance * np.abs(expected).max(), err_msg=str(kind))


random = np.random.default_rng(0)
numbers = random.standard_normal((70, 70))
for kind in ("float16", "bfloat16", "float32", "float64"):
    with tinyxla.enable_x64():
        x = jnp.asarray(numbers, kind)
        compare(lambda x: jnp.exp(-x * x) + jnp.sin(x) / (2 + jnp.cos(x)) + jnp.abs(x) ** 0.3, x)
        compare(normalized, x)
        compare(lambda x: x @ x.T - x, x)
        compare(lambda x: x[:5] @ x.T, x)
        if x.dtype.itemsize > 2:
            compare(lambda x: jnp.linalg.solve(x + 20 * jnp.eye(70), x[:, :9]), x)
            compare(lambda x: jnp.linalg.inv(jnp.tile(x + 20 * jnp.eye(70), (2, 2)) + 20 * jnp.eye(140)), x)
        compare(lambda x: jnp.cumsum(x[:9], 1), x)
        compare(lambda x: jnp.sort(x, 1) + jnp.sort(x, 0), x)
        compare(lambda x: x.at[jnp.argmax(x, 1)].add(x[::-1]), x)
        compare(lambda x: jnp.fft.irfft(jnp.fft.rfft(x.astype(jnp.promote_types(x.dtype, "float32")))), x)
        compare(lambda x: lax.conv(x[None, None], x[None, None, :3, :5], (1, 2), "SAME"), x)
        compare(in_groups, x)
        compare(lambda x: lax.conv(x[None, None], x[:4, None, None, :5], (1, 1), "SAME"), x)
        compare(lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (3, 2), (2, 1), "VALID"), x)
for kind in ("int8", "int16", "uint32", "int64"):
    with tinyxla.enable_x64():
        x = jnp.asarray(numbers * 40).astype("int32").astype(kind)
        compare(lambda x: (x * 3 - x // 7) ^ (x << 1), x)
        wide = "int32" if x.dtype.itemsize < 4 else x.dtype
        compare(lambda x: lax.dot(x, x.T, preferred_element_type=wide), x)
        compare(lambda x: lax.dot(jnp.full_like(x, jnp.iinfo(x.dtype).min), x[:, :5], preferred_element_type=wide), x)
        compare(lambda x: jnp.sort(x, 1) + lax.population_count(x), x)
key = tinyxla.random.key(3)
compare(lambda x: tinyxla.random.normal(key, (1000,)) + x, jnp.float32(0))
halves = jnp.arange(1 << 16, dtype=jnp.uint16)
wide = np.asarray(tinyxla.jit(lambda x: lax.bitcast_convert_type(x, jnp.float16).astype(jnp.float32))(halves))
np.testing.assert_array_equal(wide, np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32))
between = np.nextafter((wide[:-1] + wide[1:]) / 2, random.choice(np.float32([-np.inf, np.inf]), (3, 65535)))
floats = np.concatenate([wide, ((wide[:-1] + wide[1:]) / 2), between.ravel(), 1e5 * wide, 1e-5 * wide])
with np.errstate(over="ignore"):
    expected = floats.astype(np.float16)
np.testing.assert_array_equal(tinyxla.jit(lambda x: x.astype(jnp.float16))(floats), expected)
print("right")
"""


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("name", PROCESSORS)
def test_programs(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-c", PROGRAMS, name, PROCESSORS[name]]
    environment = os.environ | {"TINYXLA_CACHE_DIR": str(tmp_path)}
    finished = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert finished.stdout == "right\n", finished.stderr
