"""Regions: the computations of loops and branches, which are compiled as programs of their own."""

from __future__ import annotations

REGIONS = ("while", "conditional")  # ops with regions
