"""The examples in the docstrings run and give what they say."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
from collections.abc import Iterator

import pytest

import tinyxla as tx

HAVE_EXAMPLES = """
api.callbacks api.jit api.context_managers api.devices cache debug dtypes ffi flatten_util lax lax.contraction
lax.control_flow lax.convolution lax.elementwise lax.fourier lax.indexing lax.linalg lax.movement lax.sorting
lax.padding lax.random_bits lax.reductions lax.values nn nn.activations nn.attention nn.initializers nn.normalization
numpy.fft numpy.linalg numpy.index_tricks numpy.polynomials numpy.sorting numpy.integer_functions profiler random
random.distributions random.derived random.keys random.permutation image experimental.ode experimental.jet
experimental.checkify.api experimental.checkify.errors experimental.sparse.bcoo scipy.cluster.vq scipy.fft
scipy.interpolate scipy.linalg scipy.ndimage scipy.optimize scipy.signal scipy.sparse.linalg scipy.special scipy.stats
numpy.segment_reductions text.parser runtime.threads tree tree_util xla xla.layouts xla.shapes
""".split()


EACH_FUNCTION_HAS_ONE = """
numpy numpy.fft numpy.linalg random nn nn.initializers tree ops scipy.linalg scipy.special scipy.fft scipy.signal
scipy.interpolate scipy.ndimage scipy.integrate scipy.cluster.vq image flatten_util
""".split()


def modules() -> Iterator[str]:
    """All modules but those that need a compiler to be imported, and the hook, after which `import jax` is tinyxla: its
    examples run in a process of their own (`test_jax_hook`)."""
    for found in pkgutil.iter_modules(tx.__path__, "tinyxla."):
        if found.name == "tinyxla.jax":
            continue
        yield found.name
        if found.ispkg:
            package = importlib.import_module(found.name)
            inner = pkgutil.walk_packages(package.__path__, f"{found.name}.")
            yield from (x.name for x in inner if not x.name.startswith("tinyxla.backends.numba"))


MODULES = ["tinyxla", *modules()]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    """Examples run as pasted into a new interpreter: they import what they use."""
    module = importlib.import_module(name)
    found = doctest.testmod(module, globs={"__name__": "__main__"}, report=True)
    assert found.failed == 0, f"{found.failed} of {found.attempted} examples of {name} fail; see the output"
    assert found.attempted > 0 or name.removeprefix("tinyxla.") not in HAVE_EXAMPLES


@pytest.mark.parametrize("name", ["tinyxla", *(f"tinyxla.{name}" for name in EACH_FUNCTION_HAS_ONE)])
def test_each_public_function_has_an_example(name: str) -> None:
    module = importlib.import_module(name)
    public = [each for each in dir(module) if not each.startswith("_")]
    functions = {each: x for each in public if inspect.isfunction(x := getattr(module, each))}
    assert functions
    assert [each for each, x in functions.items() if ">>> " not in (x.__doc__ or "")] == []


def test_modules_with_examples_are_modules() -> None:
    assert {f"tinyxla.{name}" for name in HAVE_EXAMPLES} <= set(MODULES)
