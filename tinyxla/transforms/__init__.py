"""Transformations of functions of flat lists of values: reverse, forward, batched; and the ops whose rules are made by
them: calls, loops, branches, maps."""

from tinyxla.transforms.batch import batch
from tinyxla.transforms.calls import call
from tinyxla.transforms.control_flow import conditional, while_
from tinyxla.transforms.forward import jvp
from tinyxla.transforms.mapping import map_
from tinyxla.transforms.reverse import vjp

__all__ = ["batch", "call", "conditional", "jvp", "map_", "vjp", "while_"]
