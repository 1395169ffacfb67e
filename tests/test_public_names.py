"""`dir()` of the modules users import lists public names only, and each of them is there."""

from __future__ import annotations

import importlib
import typing
from types import ModuleType

import pytest

PUBLIC = """
ad_checkpoint checkpoint_policies core custom_batching custom_derivatives debug distributed dtypes errors
example_libraries.optimizers example_libraries.stax experimental
experimental.checkify experimental.custom_partitioning experimental.jet experimental.ode experimental.sparse ffi
flatten_util image kernels lax lax.linalg nn nn.initializers numpy numpy.fft numpy.linalg profiler random scipy
scipy.cluster.vq scipy.fft scipy.interpolate scipy.linalg scipy.ndimage scipy.optimize scipy.signal scipy.sparse.linalg
scipy.special scipy.stats sharding stablehlo stages test_util tree tree_util typing
""".split()


@pytest.mark.parametrize("name", ["tinyxla", *(f"tinyxla.{name}" for name in PUBLIC)])
def test_dir_lists_public_names_only(name: str) -> None:
    module = importlib.import_module(name)
    listed = dir(module)
    assert listed
    assert len(set(listed)) == len(listed)
    for each in listed:
        value = getattr(module, each)
        assert not each.startswith("_"), f"{name}.{each} is private"
        assert each not in typing.__all__, f"{name}.{each} is of the module typing"
        if isinstance(value, ModuleType):
            assert value.__name__.startswith("tinyxla."), f"{name}.{each} is a module of another package"


def test_dir_of_numpy_lists_functions_types_and_constants_but_not_the_files_they_are_in() -> None:
    listed = dir(importlib.import_module("tinyxla.numpy"))
    assert {"sin", "float32", "pi", "linalg", "fft", "ndarray", "newaxis"} <= set(listed)
    assert not {"arithmetic", "ufuncs", "annotations", "np", "protocols"} & set(listed)


def test_dir_of_linalg_lists_no_helpers() -> None:
    listed = dir(importlib.import_module("tinyxla.numpy.linalg"))
    assert "svd" in listed
    assert not {"matrices", "ShapeError", "Array", "with_flags"} & set(listed)
