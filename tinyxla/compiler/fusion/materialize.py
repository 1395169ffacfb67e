"""Materialization: which instructions are computed once and kept in memory, rather than recomputed at every use.

`initially_materialized` decides before fusion: instructions that must have memory, and those that would be computed
many times at one element. `materialize_recomputed` decides after fusion: instructions that several nests would compute.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence, Set
from operator import itemgetter

from tinyxla.compiler.analysis.fusibility import (
    MOVEMENT,
    is_costly,
    is_index_payload,
    is_inlined,
    is_native_type,
    is_reduction,
    is_scalar_computation,
)
from tinyxla.compiler.costs import (
    CHUNK_OPS,
    COSTLY_OPS,
    LONG_ROW,
    MAX_INSTRUCTIONS,
    MAX_PRODUCERS,
    MIN_REUSE,
    OPS_PER_BYTE,
)
from tinyxla.compiler.fusion.plan import (
    Accesses,
    LoopNest,
    Step,
    buffer_of,
    is_leaf,
    is_wide_concatenate,
    materialized_inputs,
    producer_of,
    results_of,
)
from tinyxla.hlo import Computation, Instruction
from tinyxla.ops import calls, dynamic_slices, elementwise, indexing, movement, reduction, sorting
from tinyxla.shapes import Shape
from tinyxla.shapes.reshape import split_dimensions

MAX_INLINED_DEPTH = 80  # of a chain, such as the 20 rounds of Threefry
MAX_PATHS = 4  # access paths to an instruction, below another data movement
MAX_RECOMPUTED_OPS = OPS_PER_BYTE * 16  # per element: as long as 64 bits take to be written and read
MAX_CHEAP_PATHS = 6  # access paths to cheap instructions: components of a system in one loop
_OPS = {"divide": 2, "sqrt": 2, "rsqrt": 2, "gather": 1}  # simple operations of other ops

_Paths = set[tuple[Instruction, int]]  # producers of an element, each with a hash of the access path


def _through_movement(paths: _Paths, x: Instruction) -> _Paths:
    """The producers of x by way of an operand; a data movement makes their paths different from others."""
    if x.op.name not in MOVEMENT:
        return paths
    return {(y, hash((id(x), path))) for y, path in paths}


def _max_paths_to_one(paths: Iterable[tuple[Instruction, int]]) -> int:
    """The largest number of access paths to the same instruction."""
    return max(Counter(y for y, _ in paths).values(), default=0)


def _gather_recomputes(x: Instruction, operand: Instruction, paths: Iterable[tuple[Instruction, int]]) -> bool:
    """True if a gather reads elements of an operand or of the indices repeatedly, and these are expensive to
    compute."""
    if x.op is not indexing.gather or x.array_shape.size <= operand.array_shape.size:
        return False
    computed = {y for y, _ in paths}
    return len(computed) > COSTLY_OPS or any(map(is_costly, computed))


def _broadcast_recomputes(x: Instruction, operand: Instruction, paths: Iterable[tuple[Instruction, int]]) -> bool:
    """True if a broadcast recomputes the elements of its operand so often that materializing the operand is cheaper.

    Recomputing under a broadcast is free along trailing dimensions on which the operand does not depend, since the
    value is hoisted. Only hoisting out of the last dimension is certain; outer dimensions may be collapsed with others.
    """
    size = operand.array_shape.size
    if x.op is not movement.broadcast or size < 2:
        return False
    sizes = x.array_shape.dimensions
    operand_sizes = operand.array_shape.dimensions
    last_dim = max(result_dim for d, result_dim in enumerate(x.attributes.dimensions) if operand_sizes[d] > 1)
    computed = {y for y, _ in paths if y.array_shape.size > 1}
    ops = sum(
        min(y.array_shape.size, size) * (COSTLY_OPS if is_costly(y) else _OPS.get(y.op.name, 0)) for y in computed
    )
    ops += size * max(0, len(computed) - 8 * OPS_PER_BYTE)  # more than loading an element takes
    certain, possible = (
        math.prod(sizes[:end]) // size - 1 for end in (last_dim + 1, max(last_dim + 1, len(sizes) - 1))
    )
    nest_ops, store_ops = CHUNK_OPS // 4, 4 * OPS_PER_BYTE * size  # of one more nest, and of elements of 32 bits
    return max(certain, possible / MIN_REUSE) * ops >= max(nest_ops, store_ops)  # LLVM may hoist what is possible


def _is_piecewise(x: Instruction) -> bool:
    """True for a concatenation or a pad, whose elements come from several sources."""
    return x.op is movement.concatenate or x.op is movement.pad


def _gathers_from_piecewise(x: Instruction, operand: Instruction) -> bool:
    """True if many elements are read at computed indices from a concatenation or pad, so that each would test which
    source it comes from."""
    is_gather = x.op is dynamic_slices.dynamic_slice or x.op is indexing.gather
    if not is_gather or operand is not x.operands[0] or not _is_piecewise(operand):
        return False
    return x.array_shape.size >= max(2 * LONG_ROW, operand.array_shape.size // 2)


def _rereads_transposed(x: Instruction, operand: Instruction) -> bool:
    """True if a broadcast reads a transposed operand so often that materializing the transpose is cheaper."""
    is_transposed = x.op is movement.broadcast and operand.op is movement.transpose
    return is_transposed and x.array_shape.size >= MIN_REUSE * operand.array_shape.size


def _sorts_iota_payload(x: Instruction, operand: Instruction) -> bool:
    """True if an operand is the iota payload of a sort, whose kernel counts positions itself."""
    if x.op is not sorting.sort or operand is x.operands[0]:
        return False
    return is_scalar_computation(x.attributes.to_apply) and is_index_payload(operand, x.attributes.dimensions[0])


def _computes_operand(x: Instruction, operand_number: int, materialized: set[Instruction]) -> bool:
    """True if a scatter or dynamic-update-slice kernel computes an operand itself: an update or index that is cheap,
    and does not read the updated arrays."""
    if x.op is indexing.scatter:
        array_count = len(x.operands) // 2
        is_native = is_scalar_computation(x.attributes.to_apply) and is_native_type(x.operands[array_count].array_shape)
    else:
        array_count, is_native = 1, x.op is dynamic_slices.dynamic_update_slice
    if not is_native or operand_number < array_count:
        return False
    arrays = set(map(buffer_of, x.operands[:array_count]))
    seen: set[Instruction] = set()
    pending = [x.operands[operand_number]]
    while pending:
        producer = pending.pop()
        if buffer_of(producer) in materialized or is_leaf(buffer_of(producer)):
            if buffer_of(producer) in arrays:
                return False
        elif producer not in seen:
            seen.add(producer)
            if len(seen) > MAX_PRODUCERS or not _is_cheap_pointwise(producer):
                return False
            pending.extend(producer.operands)
    return True


def _is_cheap_pointwise(x: Instruction) -> bool:
    """True if an element is cheap to compute from few elements at the same index."""
    if x.op is movement.reshape:
        sizes = x.operands[0].array_shape.dimensions, x.array_shape.dimensions
        return all(len(source_dims) == len(result_dims) == 1 for source_dims, result_dims in split_dimensions(*sizes))
    is_cheap = x.op in (movement.broadcast, movement.iota, movement.constant) or x.op.name in elementwise.NAMES
    return is_cheap and is_inlined(x) and not is_costly(x)


def _is_better_materialized(x: Instruction, operand: Instruction, paths: Set[tuple[Instruction, int]]) -> bool:
    """True if an inlined operand would be recomputed or tested so often that materializing it is cheaper."""
    if x.op.name in MOVEMENT and (_max_paths_to_one(paths) >= MAX_PATHS or _gather_recomputes(x, operand, paths)):
        return True
    if _gathers_from_piecewise(x, operand) or _rereads_transposed(x, operand):
        return True
    return _broadcast_recomputes(x, operand, paths)


def initially_materialized(computation: Computation) -> set[Instruction]:
    """The instructions that are materialized whatever the nests are."""
    return _Materialization(computation).materialized


class _Materialization:
    """Decides, in the order of a computation, which instructions are materialized."""

    def __init__(self, computation: Computation) -> None:
        self.materialized: set[Instruction] = set()
        self._depth: dict[Instruction, int] = {}
        self._paths: dict[Instruction, _Paths] = {}
        self._piecewise_paths: dict[Instruction, _Paths] = {}  # the same for concatenations and pads
        for x in computation.outputs:
            self._materialize(x)
        for x in computation.instructions:
            if x is not computation.root or x.op is not calls.tuple_:
                self._visit(x)

    def _materialize(self, x: Instruction) -> None:
        x = buffer_of(x)
        if not is_leaf(x) and x.op is not movement.constant:  # constants have memory from the start if they need any
            self.materialized.add(x)

    def _visit(self, x: Instruction) -> None:
        self._depth[x] = 0
        if x.op is calls.get_tuple_element:
            self.materialized.add(x)
        elif is_leaf(x):
            pass
        elif is_reduction(x):
            if isinstance(x.shape, Shape):
                self.materialized.add(x)
        elif is_inlined(x):
            self._visit_inlined(x)
        else:
            if isinstance(x.shape, Shape):
                self.materialized.add(x)
            for k, operand in enumerate(x.operands):
                if not _sorts_iota_payload(x, operand) and not _computes_operand(x, k, self.materialized):
                    self._materialize(operand)

    def _visit_inlined(self, x: Instruction) -> None:
        paths, materialized = self._paths, self.materialized
        paths[x] = {(x, 0)} if x.op.name not in MOVEMENT or x.op.name in _OPS else set()
        is_long = _is_piecewise(x) and x.array_shape.size >= 2 * LONG_ROW
        self._piecewise_paths[x] = {(x, 0)} if is_long else set()
        for operand in x.operands:
            if _is_better_materialized(x, operand, paths.get(operand, set[tuple[Instruction, int]]())):
                self._materialize(operand)
            if buffer_of(operand) not in materialized:
                paths[x] |= _through_movement(paths.get(operand, set()), x)
                piecewise = {e for e in self._piecewise_paths.get(operand, ()) if e[0] not in materialized}
                self._piecewise_paths[x] |= _through_movement(piecewise, x)
        self._materialize_repeated(x)
        if len(paths[x]) > MAX_INSTRUCTIONS:  # LLVM's time is superlinear: split the kernel
            for operand in x.operands:
                if len(paths.get(operand, ())) > MAX_INSTRUCTIONS // 8:
                    self._materialize(operand)
            paths[x] = {(x, 0)}
        for y, count in Counter(y for y, _ in self._piecewise_paths[x] if y not in materialized).items():
            if count > MAX_CHEAP_PATHS**2:  # each path has bounds tests
                self._materialize(y)
        depth = self._depth
        depth[x] = 1 + max((0 if o in materialized else depth[o] for o in x.operands), default=0)
        if depth[x] > MAX_INLINED_DEPTH or is_wide_concatenate(x):
            self._materialize(x)

    def _materialize_repeated(self, x: Instruction) -> None:
        """Materialize producers of x that x would compute on many access paths. Of cheap producers that depend on
        each other, the last one suffices."""
        paths = self._paths
        if len(dict(paths[x])) == len(paths[x]):  # no instruction has two paths
            return
        covered: set[Instruction] = set()
        counts = Counter(map(itemgetter(0), paths[x]))
        # A rotation, for example, computes both components on two paths.
        counts = {y: n for y, n in counts.items() if n > 2 and y not in self.materialized}
        for y in sorted(counts, key=lambda y: len(paths[y]), reverse=True):
            recomputed_ops = (counts[y] - 1) * len(paths[y]) if counts[y] > MAX_CHEAP_PATHS and y not in covered else 0
            if is_costly(y) or recomputed_ops > MAX_RECOMPUTED_OPS:
                self._materialize(y)
                covered.update(z for z, _ in paths[y] if not is_costly(z))
        if covered:
            paths[x] = {(y, path) for y, path in paths[x] if y not in covered}


def materialize_recomputed(computation: Computation, steps: Sequence[Step], accesses: Accesses) -> set[Instruction]:
    """The instructions that several nests compute but that are better materialized: costly ones, and elementwise
    ones of so many arrays that the saved reads exceed the write, such as the running sum of a deep residual network."""
    nests: dict[Instruction, set[int]] = {}
    for k, step in enumerate(steps):
        if isinstance(step, LoopNest):
            for x, _, from_memory in accesses.read_by(step.roots):
                if not from_memory:
                    nests.setdefault(x, set()).add(k)
    result: set[Instruction] = set()
    computed = set(nests)
    inputs_of: dict[Instruction, frozenset[Instruction]] = {}  # producers of an element, down to arrays in memory
    for x in computation.instructions:
        inputs_of[x] = frozenset([x])
        if x in nests:
            inputs = frozenset[Instruction]().union(*(inputs_of[o] for o in x.operands))
            recomputations = len(nests[x]) - 1
            is_shared = recomputations and x.op.name in elementwise.NAMES
            if is_shared and _is_cheaper_materialized(x, recomputations, inputs, computed):
                result.add(x)
                computed.remove(x)
            else:
                inputs_of[x] = inputs | inputs_of[x]
    return result


def _is_cheaper_materialized(
    x: Instruction, recomputations: int, inputs: Iterable[Instruction], computed: Set[Instruction]
) -> bool:
    """True if writing x once and reading it is cheaper than recomputing it in other nests, from inputs some of which
    are computed, too."""
    if is_costly(x):
        return True
    size = x.array_shape.size
    large = [y for y in inputs if 2 * y.array_shape.size > size]
    saved_reads = recomputations * (sum(y not in computed for y in large) - 1)
    saved_ops = recomputations * sum(y in computed and y.op.name in elementwise.NAMES for y in large)
    return size > 1 and (saved_reads > 2 or saved_ops > MAX_RECOMPUTED_OPS)  # a write reads the line, too


def live_out(computation: Computation, steps: Sequence[Step], materialized: Set[Instruction]) -> set[Instruction]:
    """The instructions that are read outside of the nest that computes them."""
    result = {buffer_of(x) for x in computation.outputs}
    users = computation.users()
    for step in steps:
        if isinstance(step, LoopNest):
            own = set(step.roots)
            result.update(x for x in step.reads if producer_of(x) not in own)
            if step.kind == "row":  # later stages of the row read pointwise roots from memory
                result.update(x for x in step.reads if x in own and x.op is not reduction.reduce)
        else:
            result.update(materialized_inputs(step.root, materialized))
            result.update(results_of(step.root, users))
    return result
