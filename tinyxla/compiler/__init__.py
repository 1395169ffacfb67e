"""The compiler from graph to plan: graph passes, fusion into loop nests, and buffer assignment."""

from tinyxla.compiler.fusion.cluster import plan
from tinyxla.compiler.fusion.plan import Fusion, HostCall, Plan, Product
from tinyxla.compiler.passes.expand import expand_to_hlo
from tinyxla.compiler.pipeline import optimize

__all__ = ["Fusion", "HostCall", "Plan", "Product", "expand_to_hlo", "optimize", "plan"]
