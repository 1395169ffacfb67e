"""Loops and branches, eager ones, and loops with references or progress bars."""
