"""Regions: the computations of loops and branches, which are programs of their own."""

from __future__ import annotations

REGIONS = ("while", "conditional")  # ops whose computations are programs of their own
