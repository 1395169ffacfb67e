"""The examples in the docstrings run and give what they say."""

from __future__ import annotations

import doctest
import importlib

import numpy as np
import pytest

from tinyxla import lax, random

MODULES = {
    "tinyxla.cache": {},
    "tinyxla.callbacks": {},
    "tinyxla.compilation": {},
    "tinyxla.contexts": {},
    "tinyxla.debug": {},
    "tinyxla.devices": {},
    "tinyxla.dtypes": {},
    "tinyxla.ffi": {},
    "tinyxla.flatten_util": {},
    "tinyxla.lax": {},
    "tinyxla.lax.contraction": vars(lax),
    "tinyxla.lax.control_flow": vars(lax),
    "tinyxla.lax.convolution": vars(lax),
    "tinyxla.lax.elementwise": vars(lax),
    "tinyxla.lax.fourier": vars(lax),
    "tinyxla.lax.indexing": vars(lax),
    "tinyxla.lax.linalg": {},
    "tinyxla.lax.movement": vars(lax),
    "tinyxla.lax.ordering": vars(lax),
    "tinyxla.lax.padding": vars(lax),
    "tinyxla.lax.random_bits": vars(lax),
    "tinyxla.lax.reductions": vars(lax),
    "tinyxla.lax.values": {},
    "tinyxla.nn": {},
    "tinyxla.nn.activations": {},
    "tinyxla.nn.attention": {},
    "tinyxla.nn.initializers": {"random": random},
    "tinyxla.nn.normalization": {},
    "tinyxla.numpy.fft": {},
    "tinyxla.numpy.linalg": {},
    "tinyxla.numpy.places": {},
    "tinyxla.numpy.polynomials": {},
    "tinyxla.numpy.sorting": {},
    "tinyxla.numpy.whole_numbers": {},
    "tinyxla.profiler": {},
    "tinyxla.random": {},
    "tinyxla.random.distributions": vars(random),
    "tinyxla.random.families": vars(random),
    "tinyxla.random.keys": {},
    "tinyxla.random.selections": vars(random),
    "tinyxla.image": {},
    "tinyxla.experimental.ode": {},
    "tinyxla.scipy.cluster.vq": {},
    "tinyxla.scipy.fft": {},
    "tinyxla.scipy.interpolate": {},
    "tinyxla.scipy.linalg": {},
    "tinyxla.scipy.ndimage": {},
    "tinyxla.scipy.optimize": {},
    "tinyxla.scipy.signal": {},
    "tinyxla.scipy.sparse.linalg": {},
    "tinyxla.scipy.special": {},
    "tinyxla.scipy.stats": {},
    "tinyxla.segments": {},
    "tinyxla.text.parser": {},
    "tinyxla.threads": {},
    "tinyxla.tree": {},
    "tinyxla.tree_util": {},
    "tinyxla.xla": {},
    "tinyxla.xla.layouts": {},
    "tinyxla.xla.shapes": {},
}


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    module = importlib.import_module(name)
    names = {**vars(module), "np": np, **MODULES[name]}
    names.pop("__name__", None)
    result = doctest.testmod(module, globs=names)
    assert result.attempted > 0
    assert result.failed == 0
