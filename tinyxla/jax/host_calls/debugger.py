"""`jax.debug.breakpoint`: a debugger on the terminal over the frames of the call stack at a line of a traced function,
whose local variables have the values of the running program."""

from __future__ import annotations

import cmd
import inspect
import pprint
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any, NamedTuple

from tinyxla.api.callbacks import look, pure_callback
from tinyxla.errors import ArgumentError
from tinyxla.tracing import pytrees, wrap
from tinyxla.tracing.core import Tracer
from tinyxla.util.tracebacks import is_own

_one_at_a_time = threading.RLock()


class _Unknown:
    """What stands for a value whose class cannot be flattened."""

    def __repr__(self) -> str:
        return "<cant_flatten>"


class _Frame(NamedTuple):
    """A frame of the call stack: the line where it is, the source of its function from the line `first`, and its
    variables, in which a tracer is `_Traced`."""

    file: str
    line: int
    first: int
    source: tuple[str, ...]
    names: dict[str, Any]

    def marked(self, before: int, after: int) -> list[str]:
        """The lines around that where the frame is, which has an arrow."""
        here = self.line - self.first
        around = range(max(0, here - before), min(len(self.source), here + after + 1))
        return [("->  " if k == here else "    ") + self.source[k] for k in around]


@dataclass(frozen=True)
class _Traced:
    """The number of a tracer among the arguments of the callback."""

    number: int


def breakpoint(
    *,
    backend: str | None = None,
    filter_frames: bool = True,
    num_frames: int | None = None,
    ordered: bool = False,
    token: Any = None,
    stdin: Any = None,
    stdout: Any = None,
) -> Any:
    """Stop in a debugger when the program comes by: also in compiled functions, once for each step of a loop or each
    example.

    Args:
        backend: accepted for JAX's sake; the debugger is that on the terminal.
        filter_frames: leave out frames of the library, and those of files that packages hide from tracebacks.
        num_frames: how many frames there are to look at; all unless given.
        ordered: accepted for JAX's sake; stops come in the order of the program in any case.
        token: a pytree of arrays; the stop is where its value is computed, if the result is used.
        stdin, stdout: where commands are read and shown; by default the terminal.

    Returns:
        The token.

    Raises:
        ArgumentError: `ordered` together with a token.
        SystemExit: the debugger is left with `q`, or there are no more commands.
    """
    if token is not None and ordered:
        raise ArgumentError(
            "debug.breakpoint: a token says when the program stops, and so does ordered; give one of them."
        )
    frames: list[FrameType] = []
    frame: FrameType | None = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        if not (filter_frames and is_own(frame)):
            frames.append(frame)
        frame = frame.f_back
    tracers: list[Any] = []
    stack = [_frame(frame, tracers) for frame in frames[:num_frames]]

    def stop(*values: Any) -> None:
        def known(x: Any) -> Any:
            return values[x.number] if isinstance(x, _Traced) else x

        at_stop = [x._replace(names=pytrees.map_tree(known, x.names)) for x in stack]
        with _one_at_a_time:
            _Debugger(at_stop, stdin, stdout).cmdloop()

    if token is None:
        look("debug.breakpoint", stop, tuple(tracers), {}, ordered, wrap)
        return None

    def passing(token: Any, *values: Any) -> Any:
        stop(*map(wrap, values))
        return token

    return pure_callback(passing, token, token, *tracers)


def _frame(frame: FrameType, tracers: list[Any]) -> _Frame:
    try:
        source, first = inspect.getsource(frame), inspect.getsourcelines(frame)[1]
    except OSError:  # code without a file
        source, first = "", frame.f_lineno
    names = {name: _value(x, tracers) for name, x in frame.f_locals.items()}
    return _Frame(frame.f_code.co_filename, frame.f_lineno, max(first, 1), tuple(source.split("\n")), names)


def _value(x: Any, tracers: list[Any]) -> Any:
    """A value of a variable, with its tracers, which are added to the list, as `_Traced`."""

    def leaf(x: Any) -> Any:
        if not isinstance(x, Tracer):
            return x
        if not x.owner.active:
            return repr(x)
        tracers.append(x)
        return _Traced(len(tracers) - 1)

    try:
        return pytrees.map_tree(leaf, x)
    except (TypeError, ValueError):  # of a class that programs register
        return _Unknown()


class _Debugger(cmd.Cmd):
    """Commands about frames, of which the first is the innermost one."""

    prompt = "(jdb) "
    intro = "Entering jdb:"

    def __init__(self, frames: Sequence[_Frame], stdin: Any, stdout: Any) -> None:
        super().__init__(stdin=stdin, stdout=stdout)
        self.use_rawinput = stdin is None
        self._frames = frames
        self._position = 0

    def _write(self, text: str) -> None:
        self.stdout.write(text + "\n")

    def _show_place(self, before: int, after: int) -> None:
        frame = self._frames[self._position]
        self._write("\n".join([f"> {frame.file}({frame.line})", *frame.marked(before, after)]))

    def _evaluate(self, text: str, shown: Callable[[Any], str]) -> None:
        try:
            self._write(shown(eval(text, dict(self._frames[self._position].names))))
        except Exception as error:
            self._write("*** " + traceback.format_exception_only(error)[-1].strip())

    def _move(self, step: int, edge: str) -> None:
        if 0 <= self._position + step < len(self._frames):
            self._position += step
        else:
            self._write(edge)
        self._show_place(3, 2)

    def default(self, line: str) -> None:
        self._evaluate(line, repr)

    def do_p(self, arg: str) -> None:
        """p expression: its value."""
        self._evaluate(arg, repr)

    def do_pp(self, arg: str) -> None:
        """pp expression: its value, on several lines if it is long."""
        self._evaluate(arg, pprint.pformat)

    def do_up(self, arg: str) -> None:
        """u, up: to the caller."""
        self._move(1, "At topmost frame.")

    def do_down(self, arg: str) -> None:
        """d, down: to what is called."""
        self._move(-1, "At bottommost frame.")

    def do_list(self, arg: str) -> None:
        """l, list: the lines around."""
        self._show_place(6, 5)

    def do_where(self, arg: str) -> None:
        """w, where, bt: the frames, the innermost last."""
        self._write("Traceback:")
        for frame in reversed(self._frames):
            here = frame.marked(0, 0) or ["    <no source>"]
            self._write(f'  File "{frame.file}", line {frame.line}\n    {here[0][4:].strip()}')

    def do_continue(self, arg: str) -> bool:
        """c, cont, continue: on with the program."""
        return True

    def do_quit(self, arg: str) -> None:
        """q, quit, exit: end the program."""
        sys.exit(0)

    do_u, do_d, do_l = do_up, do_down, do_list
    do_w = do_bt = do_where
    do_c = do_cont = do_continue
    do_q = do_exit = do_EOF = do_quit
