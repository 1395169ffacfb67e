"""Progress bars of compiled loops, by strip-mining: a loop of n steps becomes one over at most 100 chunks of equal
length, each a loop of its own, and the bar is told of each chunk. So the steps are compiled as without a bar."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, cast

from tinyxla import numpy as jnp
from tinyxla.api.callbacks import look
from tinyxla.errors import ArgumentError
from tinyxla.lax.loops.control_flow import fori_loop, scan
from tinyxla.tracing.array import Array
from tinyxla.tracing.core import Tracer
from tinyxla.tree_util import tree_leaves, tree_map
from tinyxla.util.tracebacks import boundary
from tinyxla.util.wrapping import transformed

Loop = TypeVar("Loop", bound=Callable[..., Any])

_MAX_CHUNKS = 100
_INTERVAL = 0.05  # seconds between two states of a bar
_CELLS = 10
_BLOCKS = " ▏▎▍▌▋▊▉█"


@boundary
def progress(loop: Loop, description: str = "") -> Loop:
    """The loop, with a progress bar on stderr while it runs, compiled or not. Under `vmap` and in derivatives there is
    one bar, of the way there.

    Args:
        loop: `lax.fori_loop` or `lax.scan`.
        description: what stands before the bar.

    Returns:
        A function with the arguments and results of the loop.

    Raises:
        ArgumentError: another loop.

    Example:
        >>> import tinyxla as tx
        >>> tx.progress(tx.lax.fori_loop, "adding")(0, 1000, lambda i, x: x + i, 0)
        Array(499500, dtype=int32, weak_type=True)
    """
    chunked = next((made for one, made in ((fori_loop, _fori_loop), (scan, _scan)) if loop is one), None)
    if chunked is None:
        raise ArgumentError(f"progress takes lax.fori_loop or lax.scan, but got {loop!r}.")
    if not isinstance(description, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ArgumentError(f"progress: description must be a string, but is {description!r}.")
    return cast(Loop, transformed("progress", loop)(partial(chunked, _Bar(description))))


def _fori_loop(bar: _Bar, lower: Any, upper: Any, body_fun: Callable[..., Any], init_val: Any, **options: Any) -> Any:
    is_known = not (isinstance(lower, Tracer) or isinstance(upper, Tracer))
    if is_known:
        lower, upper = int(lower), int(upper)
    count = max(0, upper - lower) if is_known else jnp.maximum(0, upper - lower)
    every = _chunk_size(count)

    def chunk(c: Any, carry: Any, size: Any) -> Any:
        bar.show(c * every, count)
        return fori_loop(0, size, lambda j, x: body_fun(lower + c * every + j, x), carry, **options)

    if is_known:
        full, rest = divmod(count, every)
        carry = fori_loop(0, full, lambda c, x: chunk(c, x, every), init_val)
        carry = chunk(full, carry, rest) if rest else carry
    else:
        number = (count + every - 1) // every
        carry = fori_loop(0, number, lambda c, x: chunk(c, x, jnp.minimum(every, count - c * every)), init_val)
    bar.show(count, count)
    return carry


def _scan(
    bar: _Bar,
    f: Callable[..., Any],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
    **options: Any,
) -> Any:
    sizes = {length, *(jnp.shape(x)[:1] and jnp.shape(x)[0] for x in tree_leaves(xs))} - {None}
    if len(sizes) != 1 or sizes == {()} or 0 in sizes:  # there is no step, or `scan` says what is wrong
        return scan(f, init, xs, length, reverse, unroll, **options)
    (count,) = cast("set[int]", sizes)
    every = _chunk_size(count)
    full, rest = divmod(count, every)
    arrays = tree_map(_as_array, xs)
    inner = partial(scan, f, length=every, reverse=reverse, unroll=unroll, **options)

    def chunk(carry: Any, numbered: Any) -> Any:
        c, rows = numbered
        bar.show(c * every + (rest if reverse else 0), count)
        return inner(carry, rows)

    def chunks(carry: Any) -> Any:
        rows = tree_map(lambda x: x[: full * every].reshape((full, every, *x.shape[1:])), arrays)
        numbers = jnp.arange(full)
        carry, ys = scan(chunk, carry, (numbers[::-1] if reverse else numbers, rows), reverse=reverse)
        return carry, tree_map(lambda y: y.reshape((full * every, *y.shape[2:])), ys)

    def remainder(carry: Any) -> Any:
        bar.show(0 if reverse else full * every, count)
        return inner(carry, tree_map(lambda x: x[full * every :], arrays), length=rest)

    parts = [chunks, remainder] if rest else [chunks]
    found: list[Any] = []
    for part in reversed(parts) if reverse else parts:
        init, ys = part(init)
        found.append(ys)
    bar.show(count, count)
    if not rest:
        return init, found[0]
    first, last = reversed(found) if reverse else found
    return init, tree_map(lambda x, y: jnp.concatenate([x, y]), first, last)


def _as_array(x: Any) -> Array:
    return x if isinstance(x, Array) else jnp.asarray(x)


def _chunk_size(count: Any) -> Any:
    """The steps of a chunk, so that there are at most so many."""
    size = (count + _MAX_CHUNKS - 1) // _MAX_CHUNKS
    return max(1, size) if isinstance(count, int) else jnp.maximum(1, size)


class _Bar:
    """A bar on stderr, as tqdm draws it."""

    def __init__(self, description: str) -> None:
        self._description = description
        self._start = self._last = 0.0

    def show(self, done: Any, count: Any) -> None:
        """Have the program show that so many of the steps are done whenever it comes by."""
        look("progress", self, (done, count), {}, ordered=True)

    def __call__(self, done: Any, count: Any) -> None:
        now = time.perf_counter()
        steps, total = int(done), int(count)
        if not steps:
            self._start = now
        if total and (steps in (0, total) or now - self._last >= _INTERVAL):
            self._last = now
            end = "\n" if steps == total else ""
            text = line(self._description, steps, total, now - self._start)
            print(f"\r{text}", end=end, file=sys.stderr, flush=True)


def line(description: str, done: int, count: int, seconds: float) -> str:
    """The state of a bar: `fit:  45%|████▌     | 45/100 [00:01<00:01, 30.00it/s]`."""
    eighths = 8 * _CELLS * done // count
    cells = ("█" * (eighths // 8) + _BLOCKS[eighths % 8]).strip().ljust(_CELLS)
    speed = done / seconds if seconds > 0 else 0.0
    rest = _clock((count - done) / speed) if speed else "?"
    rate = "?it/s" if not speed else f"{speed:.2f}it/s" if speed >= 1 else f"{1 / speed:.2f}s/it"
    head = f"{description}: " if description else ""
    return f"{head}{done / count:4.0%}|{cells}| {done}/{count} [{_clock(seconds)}<{rest}, {rate}]"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes:02}:{rest:02}"
