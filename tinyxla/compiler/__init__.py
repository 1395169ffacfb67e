"""From a graph to a plan: simplification, fusion into loop nests, and memory."""

from tinyxla.compiler.fusion.cluster import plan
from tinyxla.compiler.fusion.plan import Fusion, HostCall, Plan, Product
from tinyxla.compiler.passes.expand import write_out
from tinyxla.compiler.pipeline import optimize

__all__ = ["Fusion", "HostCall", "Plan", "Product", "optimize", "plan", "write_out"]
