"""Jaxprs: recording, printing, evaluation and partial evaluation, and their primitives."""
