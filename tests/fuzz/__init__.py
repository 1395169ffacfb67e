"""Differential fuzzer: every public function, drawn from its signature, against JAX, NumPy and SciPy."""
