"""What JAX says where the mapped axes of arguments have different sizes: each size, with an argument that has it."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from tinyxla.tracing import pytrees


def size_words(fun: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], in_axes: Any, given: Any) -> str:
    """JAX's message for a call of `vmap(fun, in_axes, axis_size=given)`; nothing if its sizes agree."""
    leaves = pytrees.leaves((args, kwargs))
    axes = pytrees.broadcast_prefix(in_axes, args, "vmap: in_axes")
    axes += [0] * (len(leaves) - len(axes))
    mapped = [(x, axis, name) for x, axis, name in zip(leaves, axes, _names(fun, args, kwargs), strict=True)]
    examples: dict[int, str] = {}
    counts: Counter[int] = Counter()
    for x, axis, name in mapped:
        if axis is not None:
            size = np.shape(x)[axis]
            counts[size] += 1
            examples.setdefault(size, f"axis {axis} of {name} of type {_type_name(x)}")
    if len({*counts, *([] if given is None else [given])}) < 2:
        return ""
    lines = [] if given is None else [f"the `axis_size` argument was {given}"]
    for number, (size, count) in enumerate(counts.most_common()):
        amount = "most" if number == 0 else "some"
        which = (
            f"one axis had size {size}: " if count == 1 else f"{amount} axes ({count} of them) had size {size}, e.g. "
        )
        lines.append(which + examples[size])
    return "vmap got inconsistent sizes for array axes to be mapped:\n  * " + ";\n  * ".join(lines)


def _type_name(x: Any) -> str:
    return f"{getattr(x, 'dtype', type(x).__name__)}[{','.join(map(str, np.shape(x)))}]"


def _names(fun: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
    """How JAX speaks of each leaf among the arguments."""
    names = _parameters(fun, args, kwargs)
    given = [f"argument {names[k]}" if k < len(names) else f"args[{k}]" for k in range(len(args))]
    whole = [*zip(given, args, strict=True), *((f"kwargs[{name!r}]", kwargs[name]) for name in sorted(kwargs))]
    return [f"{where}{path}" for where, x in whole for path in pytrees.leaf_names(x)]


def _parameters(fun: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
    """The parameters of a function; none where the call does not fit them."""
    try:
        signature = inspect.signature(fun)
        signature.bind(*args, **kwargs)
    except (TypeError, ValueError):
        return []
    return list(signature.parameters)
