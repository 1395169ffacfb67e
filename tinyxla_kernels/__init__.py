"""Scalar math and hand-written kernels for tinyxla's backends. Knows nothing of tinyxla."""
