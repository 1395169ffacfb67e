"""absl's classes of tests and parametrized tests, from which those of JAX are derived."""

from __future__ import annotations

import importlib
from typing import Any

from tinyxla.runtime.imports import requiring

with requiring("absl.testing.parameterized", "absl-py", "jax._src.test_util"):
    parameterized: Any = importlib.import_module("absl.testing.parameterized")
    absltest: Any = importlib.import_module("absl.testing.absltest")
