"""Stages of compiled functions: what JAX tells of them, their events, and compiled programs as bytes."""
