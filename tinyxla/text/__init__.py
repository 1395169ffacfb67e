"""Graphs for readers: as HLO text, and as pictures."""

from tinyxla.text.graphviz import to_dot, to_svg
from tinyxla.text.hlo_text import print_module
from tinyxla.text.parser import parse_hlo

__all__ = ["parse_hlo", "print_module", "to_dot", "to_svg"]
