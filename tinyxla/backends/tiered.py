"""Answers at once: the interpreter runs a program while a thread compiles it. Compiling is mostly LLVM's work, which
does not hold Python's lock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tinyxla.compiler.passes.inline_calls import inline_calls
from tinyxla.hlo import Computation, Instruction
from tinyxla.runtime.threads import Task
from tinyxla.shapes import TupleShape
from tinyxla.tracing.config import config

if TYPE_CHECKING:
    from tinyxla.backends import Executable

Array = np.ndarray[Any, Any]

_LOOPS = ("while", "while-pullback", "lanes")


class TieredExecutable:
    """Calls before `compile()` is done are interpreted; one that still runs when it is done starts again, compiled.

    Programs with loops, which may take the interpreter longer than compiling takes, and those with side effects, which
    must not happen twice, wait instead. Whatever else is asked of the program is asked of the compiled one.
    """

    def __init__(self, entry: Computation, compile: Callable[[], Executable]) -> None:
        self._compile = compile
        self._compiled: Executable | None = None
        self._start()
        inlined = inline_calls(entry)
        self._interpreted = inlined if _is_interpreted(inlined) else None

    def _start(self) -> None:
        options = dict(vars(config))  # those of the block of `setting` that this thread is in

        def work() -> None:
            vars(config).update(options)
            self._compiled = self._compile()

        self._task = Task(work)
        if not self._task.start():
            self._compiled = self._compile()

    def __call__(self, arguments: Sequence[Array]) -> list[Array]:
        if self._compiled is not None:
            return self._compiled(arguments)
        results = None if self._interpreted is None else self._interpret(self._interpreted, arguments)
        return self.compiled()(arguments) if results is None else results

    def compiled(self) -> Executable:
        """The compiled program, once it is there."""
        if not self._task.wait() and self._compiled is None:  # there was no thread; or it is in the parent of a fork
            self._compiled = self._compile()
        if self._compiled is None:
            self._task.raise_error()
        assert self._compiled is not None
        return self._compiled

    def _interpret(self, computation: Computation, arguments: Sequence[Array]) -> list[Array] | None:
        """The results; or None if the compiled program is ready before them."""
        values: dict[Instruction, Any] = dict(zip(computation.parameters, arguments, strict=True))
        with np.errstate(all="ignore"):
            for x in computation.instructions:
                if self._task.is_over:
                    return None
                if x not in values:
                    values[x] = x.op.evaluate(*(values[o] for o in x.operands), **x.attributes._asdict())
        result = values[computation.root]
        parts = result if isinstance(computation.root.shape, TupleShape) else (result,)
        return [np.asarray(part, order="C") for part in parts]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.compiled(), name)


def _is_interpreted(computation: Computation) -> bool:
    return not any(
        x.op.name in _LOOPS or x.has_side_effect or not all(map(_is_interpreted, x.computations()))
        for x in computation.instructions
    )
