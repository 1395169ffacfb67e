"""Executables: computations as native code. Equal ones share one; an operation that runs by itself has one, too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from tinyxla.api import compile_log
from tinyxla.backends import Executable, compile_module, default_backend
from tinyxla.hlo import Computation, Module
from tinyxla.ops.dynamic_sizes import has_dynamic_sizes
from tinyxla.ops.op import Op
from tinyxla.runtime.allocation import rarely_collected
from tinyxla.shapes import Shape
from tinyxla.tracing.config import cached_by_options, config
from tinyxla.tracing.core import set_compute_large
from tinyxla.transforms.calls import grouped, set_execute
from tinyxla.transforms.computations import effects, program_of_op


def compiled(computation: Computation, donated: tuple[int, ...] = ()) -> Executable:
    """The executable of a computation, which may overwrite some arguments; equal computations share one."""
    found = _compiled(computation, config.interpret_first, donated)
    return found if _observer is None else _observer(found)


_observer: Callable[[Executable], Executable] | None = None


def set_observer(observer: Callable[[Executable], Executable] | None) -> None:
    """Let `observer(executable)` run in place of each executable that is asked for from now on, until this is called
    with None."""
    global _observer
    _observer = observer


@cached_by_options(4096)
def _compiled(computation: Computation, interpret_first: bool, donated: tuple[int, ...]) -> Executable:
    _check_compilable(computation)
    module = Module(computation.name, computation)

    def compile() -> Executable:
        return compile_log.compiled(
            computation, lambda: rarely_collected(lambda: compile_module(module, donated=donated))
        )

    if not interpret_first or default_backend() == "interpreter" or has_dynamic_sizes(computation):
        return compile()
    from tinyxla.backends.tiered import TieredExecutable  # here, since few programs need it

    return cast(Executable, TieredExecutable(computation, compile))


def _check_compilable(computation: Computation) -> None:
    """An error for a callback that must not be in a compiled program, which its function says."""
    for x in effects(computation):
        refuse = getattr(getattr(x.attributes, "function", None), "refuse_compilation", None)
        if refuse is not None:
            refuse()
        for inner in x.computations():
            _check_compilable(inner)


def _execute(*operands: Any, to_apply: Computation) -> Any:
    results = compiled(to_apply)([np.ascontiguousarray(x) if np.ndim(x) else np.asarray(x) for x in operands])
    return grouped(to_apply, results)


set_execute(_execute)


def _compute_large(op: Op, values: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """An op alone, as a program."""
    program = program_of_op(op, tuple(map(Shape.of, values)), tuple(attributes.items()))
    return _execute(*values, to_apply=program)


set_compute_large(_compute_large)


def forget_executables() -> None:
    """Compile computations anew when they are asked for."""
    _compiled.cache_clear()
