"""Factorizations of matrices, eigenvalues, and systems of equations."""
