"""Pallas, interpreted: a kernel is traced once into loops over its grid, whose blocks are slices of arrays."""
