"""Measures tinyxla next to JAX and NumPy: `python -m benchmarks`."""
