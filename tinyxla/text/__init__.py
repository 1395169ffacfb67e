"""Graphs for readers: as HLO text, StableHLO, and pictures."""

from tinyxla.text.graphviz import to_dot, to_svg
from tinyxla.text.hlo_text import print_module
from tinyxla.text.parser import parse_hlo
from tinyxla.text.stablehlo import print_stablehlo

__all__ = ["parse_hlo", "print_module", "print_stablehlo", "to_dot", "to_svg"]
