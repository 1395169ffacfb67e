"""What tests share: oracles, checks of operations, random graphs, programs that run in processes of their own."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]  # of the repository
