"""Transformations of functions of flat lists of values: reverse, forward, batched; and calls, whose rules are made by
them."""

from tinyxla.transforms.batch import batch
from tinyxla.transforms.calls import call
from tinyxla.transforms.forward import jvp
from tinyxla.transforms.reverse import vjp

__all__ = ["batch", "call", "jvp", "vjp"]
