"""Graphs for readers: as HLO text, and as pictures."""

from tinyxla.text.hlo_text import print_module

__all__ = ["print_module"]
