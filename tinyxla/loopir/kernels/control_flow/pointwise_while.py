"""Time tiling of pointwise loops: a `while` of known trip count whose carried elements are independent runs block by
block.

Without this each iteration reads and writes all of memory. Here a block of elements stays in the cache, in scratch
rows, for all iterations; threads share the blocks. An iteration may also read scalars, loop-invariant arrays and rows
of sequences anywhere, and writes rows of stacked outputs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from tinyxla.compiler.analysis.access_maps import CONSTANT, AccessMap, normalize
from tinyxla.compiler.analysis.fusibility import is_inlined, is_native_type
from tinyxla.compiler.costs import MAX_UNINTERRUPTED_OPS, VECTOR_ELEMENTS
from tinyxla.compiler.fusion.plan import Accesses, Plan, results_of
from tinyxla.hlo import Computation, Instruction
from tinyxla.loopir.ir.loop_ir import VECTOR_ITERATIONS, Index, Operand
from tinyxla.loopir.kernels.control_flow.lock_step import LockStepLoop
from tinyxla.loopir.kernels.scatter import copy_kernel
from tinyxla.loopir.lower.axes import Axis, collapse_axes, expand_indices, make_kernel, ops_per_element
from tinyxla.loopir.lower.emit import Coordinates, LoweredKernel, Lowering, Storage, Temporary, Users, start_index
from tinyxla.loopir.target import current_target
from tinyxla.ops import dynamic_slices, movement
from tinyxla.shapes import Shape
from tinyxla.transforms.computations import effects, needed
from tinyxla.transforms.invariants import is_cheap

MIN_ROW_ELEMENTS = VECTOR_ELEMENTS * 2  # of a block, and of the innermost loop
MAX_ARRAYS = 64  # arrays in one kernel: with more, rows do not fill vectors, and some LLVM passes take quadratic time


class CarriedState(NamedTuple):
    """The carried values of a loop by position: `arrays` of `sizes`, scalar `counters`, and `stacked` outputs with the
    updates of an iteration and the elements that they write; all others are loop-invariant.

    `scalars` are instructions that an iteration computes once for all elements, and `work` is the number of operations
    for one element.
    """

    body: Computation
    sizes: tuple[int, ...]
    arrays: list[int]
    counters: list[int]
    stacked: dict[int, list[tuple[Instruction, Instruction]]]
    scalars: list[Instruction]
    axes: list[Axis]
    work: int
    stores_counters: bool = True


def aliased_operands(x: Instruction, state: CarriedState) -> dict[int, int]:
    """Stacked outputs begin as their operands, and loop-invariant values are their operands."""
    return {k: k for k in range(len(x.operands)) if k not in (*state.arrays, *state.counters)}


def lower(x: Instruction, state: CarriedState, plan: Plan, users: Users) -> list[LoweredKernel]:
    """The kernels of the loop, one for each group of arrays after loop distribution."""
    kernels: list[LoweredKernel] = []
    for loop_state in _distribute(state):
        low = _BlockedLoop(x, loop_state, plan, users)
        kernels += [copy_kernel(x.operands[k], y, plan) for k, y in low.stacked.items() if isinstance(y, Temporary)]
        kernels.append(low.kernel())
    return kernels


def carried_state(x: Instruction) -> CarriedState | None:
    """The carried values of a `while`; None if it is not pointwise, has no known trip count, or is too long for a block
    of elements."""
    count = x.attributes.known_trip_count
    if not count or effects(x.attributes.condition) or not all(isinstance(o.shape, Shape) for o in x.operands):
        return None
    state = _analyze(x.attributes.body)
    return state if state is not None and MIN_ROW_ELEMENTS * count * state.work <= MAX_UNINTERRUPTED_OPS else None


def _distribute(state: CarriedState) -> list[CarriedState]:
    """Loop distribution: if there are many arrays, independent ones have loops of their own. Each of these computes the
    counters, and the first one stores them."""
    if len(state.arrays) + len(state.stacked) <= MAX_ARRAYS:
        return [state]
    result: list[CarriedState] = []
    arrays: list[int] = []
    for component in [*_dependent_components(state), []]:
        if arrays and (not component or len(arrays) + len(component) > MAX_ARRAYS):
            selected = set(arrays)
            stacked = {k: writes for k, writes in state.stacked.items() if k in selected}
            own_arrays = [k for k in state.arrays if k in selected]
            work = max(1, state.work * len(selected) // (len(state.arrays) + len(state.stacked)))
            result.append(state._replace(arrays=own_arrays, stacked=stacked, stores_counters=not result, work=work))
            arrays = []
        arrays += component
    return result


def _dependent_components(state: CarriedState) -> list[list[int]]:
    """Positions of arrays, grouped by dependences on each other or on one costly operation."""
    body = state.body
    roots = {k: [body.outputs[k]] for k in state.arrays}
    roots |= {k: [y for write in writes for y in write] for k, writes in state.stacked.items()}
    array_of = {body.parameters[k]: k for k in roots}
    parent = {k: k for k in roots}  # union-find forest
    first_user: dict[Instruction, int] = {}

    def root_of(k: int) -> int:
        while parent[k] != k:
            parent[k] = k = parent[parent[k]]
        return k

    for k, outputs in roots.items():
        for y in needed(outputs):
            if y in array_of:
                parent[root_of(k)] = root_of(array_of[y])
            elif y.op is not movement.parameter and not is_cheap(y):
                parent[root_of(k)] = root_of(first_user.setdefault(y, k))
    result: dict[int, list[int]] = {}
    for k in roots:
        result.setdefault(root_of(k), []).append(k)
    return list(result.values())


def _carried_by(body: Computation) -> tuple[list[int], list[int], dict[int, list[Instruction]]]:
    """The numbers of the carried values that a body changes: arrays, scalars, and those whose rows it updates, with
    the updates."""
    arrays: list[int] = []
    counters: list[int] = []
    chains: dict[int, list[Instruction]] = {}
    for k, (p, y) in enumerate(zip(body.parameters, body.outputs, strict=True)):
        if y.op is dynamic_slices.dynamic_update_slice:
            chains[k] = _update_chain(p, y)
        elif y is not p:
            (arrays if p.array_shape.rank else counters).append(k)
    return arrays, counters, chains


def _common_space(
    body: Computation, arrays: Sequence[int], chains: Iterable[Sequence[Instruction]]
) -> tuple[int, ...] | None:
    """The sizes of all carried arrays, rows of which the updates in `chains` write; None if these differ."""
    sizes = {body.parameters[k].array_shape.dimensions for k in arrays}
    space = next(iter(sizes), ())
    are_rows = all(chain and all(_is_row_update(u, space) for u in chain) for chain in chains)
    return space if len(sizes) == 1 and math.prod(space) >= MIN_ROW_ELEMENTS and are_rows else None


@lru_cache(256)
def _analyze(body: Computation) -> CarriedState | None:
    """The carried values of a loop body; None if it is not pointwise."""
    if effects(body) or not _has_pointwise_ops_only(body):
        return None
    arrays, counters, chains = _carried_by(body)
    space = _common_space(body, arrays, chains.values())
    if space is None:
        return None
    stacked = {k: [(u, _reshaped(u.operands[1], space)) for u in reversed(chain)] for k, chain in chains.items()}
    written = [write for writes in stacked.values() for write in writes]
    roots = [body.outputs[k] for k in arrays] + [element for _, element in written]
    scalars = [body.outputs[k] for k in counters] + [start for update, _ in written for start in update.operands[2:]]
    in_registers, identity_map = Accesses(frozenset()), normalize(range(len(space)), space)
    reads = [*((y, identity_map) for y in roots), *((y, ()) for y in scalars)]
    reads += [(y, access) for y, access, _ in in_registers.read_by([*roots, *scalars])]
    own_maps = _own_maps(body, arrays, chains, space)
    if not all(_reads_own_element(y, access, own_maps) for y, access in reads):
        return None
    axes = collapse_axes(
        roots, in_registers, space, extra_accesses=[(update, _write_map(update, space)) for update, _ in written]
    )
    if axes[-1].size < MIN_ROW_ELEMENTS:
        return None
    work = ops_per_element([*roots, *scalars], in_registers)
    visited = {y for y, _ in reads}
    scalars = [y for y in body.instructions if y in visited and not y.array_shape.rank]
    result = CarriedState(body, space, arrays, counters, stacked, scalars, axes, work)
    return result if _fits_kernels(result) else None


def _fits_kernels(state: CarriedState) -> bool:
    """Whether the kernels of a loop have few arrays each."""
    return all(len(s.arrays) + len(s.stacked) <= MAX_ARRAYS for s in _distribute(state))


def _own_maps(
    body: Computation, arrays: Sequence[int], chains: dict[int, list[Instruction]], space: tuple[int, ...]
) -> dict[Instruction, set[AccessMap]]:
    """The maps with which an iteration may read carried arrays: where it writes them."""
    own_maps = {body.parameters[k]: {normalize(range(len(space)), space)} for k in arrays}
    for k, chain in chains.items():
        own_maps[body.parameters[k]] = {_write_map(update, space) for update in chain}
    return own_maps


def _has_pointwise_ops_only(body: Computation) -> bool:
    """A quick test: all operations are fusible ones or updates of rows."""
    structure = ("parameter", "tuple", "get-tuple-element", "dynamic-update-slice")
    return all(x.op.name in structure or is_inlined(x) for x in body.instructions)


def _update_chain(parameter: Instruction, y: Instruction) -> list[Instruction]:
    """The updates that produce an array from a parameter, the last one first; empty if it is produced otherwise."""
    result: list[Instruction] = []
    while y.op is dynamic_slices.dynamic_update_slice:
        result.append(y)
        y = y.operands[0]
    return result if y is parameter else []


def _is_row_update(update: Instruction, space: Sequence[int]) -> bool:
    """Whether an update writes one element for each of the space, along whole dimensions."""
    row, sizes = update.operands[1].array_shape.dimensions, update.array_shape.dimensions
    return _non_unit(row) == _non_unit(space) and all(n in (1, size) for n, size in zip(row, sizes, strict=True))


def _non_unit(sizes: Sequence[int]) -> list[int]:
    """Sizes without ones."""
    return [size for size in sizes if size != 1]


def _reshaped(x: Instruction, sizes: tuple[int, ...]) -> Instruction:
    return Instruction(movement.reshape, (x,), movement.Reshape(sizes), x.array_shape.with_dimensions(sizes))


def _write_map(update: Instruction, space: Sequence[int]) -> AccessMap:
    """The access map of the elements that an update writes."""
    dimensions = iter([d for d, size in enumerate(space) if size != 1])
    sizes = zip(update.operands[1].array_shape.dimensions, update.array_shape.dimensions, strict=True)
    return tuple(next(dimensions) if n != 1 else CONSTANT if size == 1 else frozenset() for n, size in sizes)


def _reads_own_element(x: Instruction, access: AccessMap, own_maps: dict[Instruction, set[AccessMap]]) -> bool:
    """Whether the instruction is fusible, and reads of carried arrays are of the loop's own element or row."""
    if not isinstance(x.shape, Shape) or not is_native_type(x.shape):
        return False
    if x in own_maps:
        return {normalize(access, x.shape.dimensions)} == own_maps[x]
    return x.op is movement.parameter or is_inlined(x)


class _BlockedLoop(Lowering):
    """Emits the kernel. Parameters of the body are operands of the loop, or have current elements."""

    def __init__(self, x: Instruction, state: CarriedState, plan: Plan, users: Users) -> None:
        outputs = {*state.arrays, *state.stacked, *(state.counters if state.stores_counters else ())}
        self.results = {r.attributes.index: r for r in results_of(x, users) if r.attributes.index in outputs}
        super().__init__("elements", plan, self.results.values())
        self.count, self.initial_values, self.carried = x.attributes.known_trip_count, x.operands, state
        self.operands = dict(zip(state.body.parameters, x.operands, strict=True))
        self.stacked: dict[int, Storage] = {
            k: self.results.get(k) or Temporary(x.operands[k].array_shape) for k in state.stacked
        }
        self.written = {state.body.parameters[k]: self.buffer(y, True) for k, y in self.stacked.items()}
        self.current: dict[Instruction, Operand] = {}

    def value(self, x: Instruction, coordinates: Coordinates) -> Operand:
        """An element of an instruction of the body."""
        if x in self.current:
            return self.current[x]
        if x in self.written:
            return self.builder.load(self.written[x], self.linearize(x.array_shape.dimensions, coordinates))
        return super().value(self.operands.get(x, x), coordinates)

    def kernel(self) -> LoweredKernel:
        """The kernel: for each block of elements, all iterations."""
        b, state = self.builder, self.carried
        *outer, inner = state.axes
        arrays = [self.initial_values[k] for k in state.arrays]
        outer_size = math.prod(axis.size for axis in outer)
        element_bytes = sum(x.array_shape.dtype.itemsize for x in arrays)
        target = current_target()
        max_width = min(target.l1_bytes // 4 // element_bytes, inner.size * outer_size // target.tasks)
        width = min(inner.size, max(VECTOR_ITERATIONS, max_width // VECTOR_ITERATIONS * VECTOR_ITERATIONS))
        blocks = -(-inner.size // width)
        block = LockStepLoop(self, [x.array_shape.element_type.name for x in arrays], width)
        with self.loop(b.kernel.first, b.kernel.last) as (chunk, _):
            *indices, tile = self.split_index(chunk, (*(axis.size for axis in outer), blocks))
            first, count = b.tile_start_and_size(tile, width, inner.size)

            def index_of(j: Index) -> Coordinates:
                return expand_indices(state.axes, (*indices, b.add(first, j)), len(state.sizes))

            counters = block.iterate(
                count,
                self.count,
                initial=lambda j: [self.value(x, index_of(j)) for x in arrays],
                step=lambda t, j: self._step(block.load(j), index_of(j)),
                counters=[self.value(self.initial_values[k], ()) for k in state.counters],
                next_counters=self._step_counters,
            )
            for k, counter in zip(state.counters, counters, strict=True):
                if k in self.results:
                    self.store(self.results[k], (), counter)
            with self.loop(0, count) as (j, _):
                for k, value in zip(state.arrays, block.load(j), strict=True):
                    if k in self.results:
                        self.store(self.results[k], index_of(j), value)
        return make_kernel(self, outer_size * blocks, width * self.count * state.work, list(self.results.values()))

    def _step_counters(self, values: Sequence[Operand]) -> list[Operand]:
        """Compute the scalars of an iteration; the next values of the counters."""
        parameters, outputs = self.carried.body.parameters, self.carried.body.outputs
        self.current = {parameters[k]: value for k, value in zip(self.carried.counters, values, strict=True)}
        for x in self.carried.scalars:
            self.value(x, ())
        return [self.value(outputs[k], ()) for k in self.carried.counters]

    def _step(self, values: Sequence[Operand], index: Coordinates) -> list[Operand]:
        """Compute one element and store the rows that it stacks; the next values of the carried arrays."""
        state = self.carried
        self.current.update(zip((state.body.parameters[k] for k in state.arrays), values, strict=True))
        new = [self.value(state.body.outputs[k], index) for k in state.arrays]
        written = [(self.stacked[k], *write) for k, writes in state.stacked.items() for write in writes]
        elements = [self.value(element, index) for _, _, element in written]
        for (storage, update, _), element in zip(written, elements, strict=True):
            self.store(storage, self._write_index(update, index), element)
        return new

    def _write_index(self, update: Instruction, index: Coordinates) -> Coordinates:
        """The index at which an update writes an element."""
        indices = iter([c for c, size in zip(index, self.carried.sizes, strict=True) if size != 1])
        row, sizes = update.operands[1].array_shape.dimensions, update.array_shape.dimensions
        return tuple(
            next(indices) if n != 1 else start_index(self, start, (), size - 1)
            for n, size, start in zip(row, sizes, update.operands[2:], strict=True)
        )
