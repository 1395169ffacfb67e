"""What a step of a schedule reads and writes, for reading: arrays with access maps over the loops of its nest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tinyxla.compiler.analysis.access_maps import CONSTANT, AccessIndex, AccessMap, normalize
from tinyxla.compiler.fusion.plan import LoopNest, buffer_of, iteration_space, kept_dimensions, producer_of
from tinyxla.compiler.report import AccessInfo
from tinyxla.compiler.schedule.blocks import Block, Step, nest_of, shape_of
from tinyxla.hlo import Instruction
from tinyxla.loopir.lower.emit import LoweredKernel, Storage
from tinyxla.ops import reduction

Space = tuple[int, ...]  # the sizes of the loops of a nest


def accesses_of(step: Step, block: Block, name_of: Callable[[Storage], str]) -> Iterator[AccessInfo]:
    """The arrays of a step: those without maps, then for each space of its nest those that are accessed there."""
    nest = nest_of(step, block)
    roots = step.work.roots if nest is not None and isinstance(step.work, LoweredKernel) else []
    own = [x for x in roots if nest is not None and x in nest.roots]
    spaces = dict.fromkeys(map(iteration_space, own))
    found: dict[Space, list[AccessInfo]] = {space: [] for space in ((), *spaces)}
    for x, is_written in [*((x, False) for x in step.reads), *((x, True) for x in step.writes)]:
        shape = shape_of(x)
        size = shape.size * shape.dtype.itemsize
        maps = _maps(x, is_written, nest, own) if nest is not None and isinstance(x, Instruction) else {}
        for space, texts in (maps or {(): ()}).items():
            info = AccessInfo(name_of(x), str(shape), size, space if texts else (), tuple(texts), is_written)
            found[space if texts else ()].append(info)
    for infos in found.values():
        yield from infos


def _maps(x: Instruction, is_written: bool, nest: LoopNest, roots: Sequence[Instruction]) -> dict[Space, list[str]]:
    """The maps, as text, with which roots of a nest access an array, by the space of the root."""
    maps: dict[Space, dict[str, None]] = {}
    for root in roots:
        for access in _written(x, root) if is_written else _read(x, nest.access_maps.get(root, {})):
            maps.setdefault(iteration_space(root), {})[map_text(access)] = None
    return {space: list(texts) for space, texts in maps.items()}


def _read(x: Instruction, reads: dict[Instruction, list[AccessMap]]) -> Iterator[AccessMap]:
    for y, accesses in reads.items():
        if buffer_of(y) is x:
            yield from accesses


def _written(x: Instruction, root: Instruction) -> Iterator[AccessMap]:
    if producer_of(x) is producer_of(root):
        sizes = iteration_space(root)
        dims = kept_dimensions(root) if producer_of(root).op is reduction.reduce else range(len(sizes))
        yield normalize(dims, [sizes[d] for d in dims])


def map_text(access: AccessMap) -> str:
    """An access map as text: the index of each dimension."""
    return f"[{', '.join(map(_index_text, access))}]"


def _index_text(index: AccessIndex) -> str:
    if isinstance(index, frozenset):
        return f"f({', '.join(f'd{d}' for d in sorted(index))})"
    return "0" if index == CONSTANT else f"d{index}"
