"""Measures tinyxla next to JAX, NumPy and PyTorch: `python -m benchmarks`."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
