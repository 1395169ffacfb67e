"""Graphs for readers: as HLO text, StableHLO, and pictures."""

import importlib as _importlib
from typing import TYPE_CHECKING, Any as _Any

from tinyxla.util.did_you_mean import missing as _missing

if TYPE_CHECKING:
    from tinyxla.text.graphviz import to_dot, to_svg
    from tinyxla.text.hlo_text import print_module
    from tinyxla.text.parser import parse_hlo
    from tinyxla.text.stablehlo import print_stablehlo

__all__ = ["parse_hlo", "print_module", "print_stablehlo", "to_dot", "to_svg"]

_MODULES = {
    "parse_hlo": "parser",
    "print_module": "hlo_text",
    "print_stablehlo": "stablehlo",
    "to_dot": "graphviz",
    "to_svg": "graphviz",
}


def __getattr__(name: str) -> _Any:
    """Compilation needs a few names of this package alone: the others are loaded by their first use."""
    if name not in _MODULES:
        return _missing(__name__)(name)
    return getattr(_importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
