"""Callbacks and foreign functions."""
