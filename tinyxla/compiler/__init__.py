"""From a graph to a plan: simplification, fusion into loop nests, and memory."""

from tinyxla.compiler.fusion import Fusion, HostCall, Plan, Product
from tinyxla.compiler.grouping import plan
from tinyxla.compiler.passes import optimize, write_out

__all__ = ["Fusion", "HostCall", "Plan", "Product", "optimize", "plan", "write_out"]
