"""Pictures of shardings: which part of an array is on which devices, as text with boxes, and as SVG in notebooks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from tinyxla.errors import ArgumentError, ConcretizationError, ShapeError
from tinyxla.tracing import pytrees
from tinyxla.tracing.array import Array
from tinyxla.tracing.core import Tracer
from tinyxla.tracing.device import all_devices
from tinyxla.tracing.shardings import Sharding, SingleDeviceSharding

_HEIGHT = 10  # in lines, of a picture of scale 1
_WIDTH_OF_LINE = 2.5  # in characters: a square of an array has as many for each line
_COLORS = ("#8dd3c7", "#ffffb3", "#bebada", "#fb8072", "#80b1d3", "#fdb462", "#b3de69", "#fccde5")


class SizeLimits(NamedTuple):
    """Sizes of a picture in characters: how it is scaled, and the width of a part and of all at least and at most."""

    scale: float = 1.0
    min_width: int = 9
    max_width: int = 80


class ShardingPicture:
    """The parts of a matrix or vector, each with the devices that have it.

    Args:
        shape: of the array.
        sharding: which part is on which device.

    Raises:
        ShapeError: the array has no dimension, or more than two.
    """

    def __init__(self, shape: Sequence[int], sharding: Sharding, limits: SizeLimits | None = None) -> None:
        if len(shape) not in (1, 2):
            raise ShapeError(f"visualize_sharding: the array must have 1 or 2 dimensions, but has the shape {shape}.")
        self.shape = (1, *shape) if len(shape) == 1 else tuple(shape)
        self.limits = limits or SizeLimits()
        self._is_vector = len(shape) == 1
        devices: dict[tuple[int, ...], list[str]] = {}
        for device, index in sharding.devices_indices_map(shape).items():
            starts = tuple(s.start or 0 for s in index)
            devices.setdefault((0, *starts) if self._is_vector else starts, []).append(str(device.id))
        self._rows = sorted({row for row, _ in devices})
        self._columns = sorted({column for _, column in devices})
        self._labels = {place: f"CPU {','.join(numbers)}" for place, numbers in devices.items()}

    def __str__(self) -> str:
        rows, columns = len(self._rows), len(self._columns)
        lines = int(_HEIGHT * self.limits.scale)
        ratio = self.shape[1] / max(self.shape[0], 1) * _WIDTH_OF_LINE
        width = min(0 if self._is_vector else int(lines * ratio), self.limits.max_width)
        inner = max(width // columns - 2, self.limits.min_width - 2, *map(len, self._labels.values()))
        height = 1 if self._is_vector else max(lines // rows - 1, 1)

        def border(left: str, between: str, right: str) -> str:
            return left + between.join(["─" * inner] * columns) + right

        def row(start: int, line: int) -> str:
            is_middle = line == (height - 1) // 2
            labels = [self._labels[start, column] if is_middle else "" for column in self._columns]
            return f"│{'│'.join(_centered(label, inner) for label in labels)}│"

        blocks = ["\n".join(row(start, line) for line in range(height)) for start in self._rows]
        inside = f"\n{border('├', '┼', '┤')}\n".join(blocks)
        return f"{border('┌', '┬', '┐')}\n{inside}\n{border('└', '┴', '┘')}"

    def _repr_html_(self) -> str:
        width, height = 84 * len(self._columns), 32 * len(self._rows)
        boxes: list[str] = []
        for number, ((row, column), label) in enumerate(sorted(self._labels.items())):
            x, y = 84 * self._columns.index(column), 32 * self._rows.index(row)
            boxes.append(
                f'<rect x="{x}" y="{y}" width="84" height="32" fill="{_COLORS[number % len(_COLORS)]}" stroke="#333"/>'
                f'<text x="{x + 42}" y="{y + 20}" text-anchor="middle" font-size="11">{label}</text>'
            )
        return f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}">{"".join(boxes)}</svg>'


def _centered(label: str, width: int) -> str:
    left = (width - len(label)) // 2
    return f"{'':{left}}{label}{'':{width - len(label) - left}}"


def visualize_sharding(
    shape: Sequence[int],
    sharding: Sharding,
    *,
    use_color: bool = True,
    scale: float = 1.0,
    min_width: int = 9,
    max_width: int = 80,
    color_map: Any = None,
) -> None:
    """Show which part of an array of a shape is on which devices: printed as boxes, drawn in a notebook.

    Args:
        shape: of the array, of one or two dimensions.
        sharding: which part is on which device.
        scale: how large the boxes are.
        min_width, max_width: of a box and of all, in characters.
        use_color, color_map: accepted for JAX's sake; text has no colors.

    Raises:
        ShapeError: the array has no dimension or more than two, or the sharding does not fit it.

    Example:
        >>> import tinyxla as tx
        >>> sharding = tx.NamedSharding(tx.make_mesh((1,), ("x",)), tx.P("x"))
        >>> tx.debug.visualize_sharding((8,), sharding)
        ┌───────┐
        │ CPU 0 │
        └───────┘
    """
    picture = ShardingPicture(shape, sharding, SizeLimits(scale, min_width, max_width))
    interactive: Any = sys.modules.get("IPython")
    if interactive is not None and getattr(interactive.get_ipython(), "kernel", None) is not None:
        interactive.display.display(picture)
    else:
        print(picture)


def visualize_array_sharding(arr: Array, **kwargs: Any) -> None:
    """Show which part of an array is on which devices; see `visualize_sharding`.

    Args:
        arr: an array of one or two dimensions.
        **kwargs: arguments of `visualize_sharding`.

    Raises:
        ConcretizationError: the array is traced.
        ShapeError: it has no dimension, or more than two.

    >>> import tinyxla
    >>> from tinyxla.debug import visualize_array_sharding
    >>> mesh = tinyxla.make_mesh((1,), ("x",))
    >>> visualize_array_sharding(tinyxla.device_put(tinyxla.numpy.ones(8), tinyxla.NamedSharding(mesh, tinyxla.P("x"))))
    ┌───────┐
    │ CPU 0 │
    └───────┘
    """
    inspect_array_sharding(arr, callback=lambda sharding: visualize_sharding(arr.shape, sharding, **kwargs))


def inspect_array_sharding(value: Array, *, callback: Callable[[Sharding], None]) -> None:
    """Call a function with the sharding of an array.

    Args:
        value: an array, or a pytree of one.
        callback: a function of a sharding.

    Raises:
        ArgumentError: it is no array.
        ConcretizationError: the array is traced and there are several devices; its sharding is known after compilation
            only.

    Example:
        >>> import tinyxla as tx
        >>> tx.debug.inspect_array_sharding(tx.numpy.ones(2), callback=print)
        SingleDeviceSharding(device=CpuDevice(id=0), memory_kind=device)
    """
    with suppress(ValueError):  # a container of one array
        (value,) = pytrees.leaves(value)
    if not isinstance(value, Array):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ArgumentError(f"inspect_array_sharding: there must be an array, but got {value!r}.")
    if isinstance(value, Tracer) and len(all_devices()) > 1:
        raise ConcretizationError(
            "inspect_array_sharding: the sharding of a traced array is found when the function is compiled; return the "
            "array and look at its sharding, or look at output_shardings of the compiled function."
        )
    callback(SingleDeviceSharding() if isinstance(value, Tracer) else value.sharding)
