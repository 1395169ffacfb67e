"""Common subexpression elimination and dead code elimination: the rewriter does both."""

from __future__ import annotations

from tinyxla.compiler.rewriter import rewrite
from tinyxla.hlo import Computation


def eliminate_common_subexpressions(computation: Computation) -> Computation:
    """The computation with equal instructions merged and unused ones removed."""
    return rewrite(computation, lambda rewriter, x, operands: None)
