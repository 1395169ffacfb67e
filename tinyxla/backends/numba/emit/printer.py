"""Code generation: a kernel of the loop IR as LLVM text.

The text has one public function, `void name(ptr table, i64 first, i64 last)`, where `table` holds the addresses of the
kernel's arguments, in order. It calls the body, whose parameters are `noalias`, so that LLVM vectorizes without checks
at run time. Loops are rotated (a guard, then a loop that tests at its end), as LLVM's loop passes expect.

Operations of more than a few instructions become functions of their own, which LLVM inlines, unless that would make the
kernel long. Their text is made once in a process.

Loop versioning: a vectorized loop omits the slow paths of its functions, and records whether an iteration would have
needed one. If so, the loop runs again, scalar, with branches around the slow paths. A function that such a loop calls
more than once is not inlined.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tinyxla.backends.numba.emit import matrix_unit
from tinyxla.backends.numba.emit.llvm_types import BYTES, REGISTER_TYPES, constant
from tinyxla.backends.numba.emit.operations import (
    INDICES,
    PARTS,
    Number,
    UnsupportedKernel,
    emit,
    memory_type,
    named,
    narrow,
    number,
    register_type,
    scalars,
    widen,
)
from tinyxla.backends.numba.emit.scalar import Emitter, LlvmScalar, LlvmVector, SlowPath, broadcast, mangled, splat
from tinyxla.backends.numba.emit.vector_variants import callable_function, compiler_used, vector_lengths
from tinyxla.compiler.costs import (
    INTERLEAVED,
    LONG_ROW,
    MAX_UNROLLED,
    PARALLEL_CHUNK_ELEMENTS,
    SCRATCH_BYTES,
    VECTOR_ELEMENTS,
)
from tinyxla.loopir.ir.affine import stride_of
from tinyxla.loopir.ir.loop_ir import (
    INDEX,
    LONG_LOOP_ITERATIONS,
    VECTOR_ITERATIONS,
    Address,
    Buffer,
    Call,
    Compute,
    Copy,
    Fence,
    Fill,
    Gather,
    If,
    Index,
    Kernel,
    Literal,
    Load,
    Loop,
    LoopCarried,
    Matrix,
    Multiply,
    Operand,
    Prefetch,
    SelectBuffer,
    Shuffle,
    Statement,
    Store,
    Tile,
    TileLoad,
    TileMultiplyAdd,
    TileOperation,
    TileZero,
    Value,
    View,
    lanes_of,
    leaves_remainder,
)
from tinyxla.loopir.ir.operations import (
    INLINE,
    is_division_by_floats,
    is_function,
    is_index_arithmetic,
    is_vector_code,
    max_element_bytes,
)
from tinyxla.loopir.ir.routines import multiply_symbol, routine_symbol
from tinyxla.loopir.passes.split_nan_check import split_nan_check
from tinyxla.loopir.target import is_x86

POLL = "tinyxla_poll"  # the function of the run-time that returns 1 when a signal ends the program, else 0

_MAX_UNROLLED_BY_LLVM = LONG_ROW  # iterations up to which LLVM's unroller runs before its vectorizer
_LONG_BODY_LINES = 45  # of functions in a loop whose latency two interleaved vectors hide
_ALWAYS_INLINED_CALLS = 3  # of a function in a kernel
_MAX_INLINED_LINES = 200  # of the text of all calls of a function in a kernel
_SHORT_FUNCTION_LINES = 16  # of a function of vectors that takes less than a call, before which all vectors are spilled
_MAX_STRAIGHT_LINES = 2000  # the same where nothing is vectorized,
_MAX_VECTORIZED_LINES = 5000  # and in loops of fewer iterations than a vector has elements
_ITERATIONS_PER_POLL = PARALLEL_CHUNK_ELEMENTS
_MASKED = ['vectorize.predicate.enable", i1 true']


def print_llvm(
    kernel: Kernel,
    name: str | None = None,
    masked_tails: bool = False,
    vector_bytes: int | None = None,
    inlines_functions: bool = True,
    is_routine: bool = False,
) -> str:
    """The module that defines the kernel as `name` (by default its own name).

    `masked_tails`: short loops end in a masked vector rather than in a scalar loop, for processors with mask registers.
    `vector_bytes`: the size of vector registers; if it is known, long functions that are called often are not inlined.
    `inlines_functions`: what is more than a few instructions becomes a function, which LLVM inlines.
    `is_routine`: the function takes the addresses of its arguments, and that of its parameters, and runs once.
    """
    return _Printer(kernel, masked_tails, vector_bytes, inlines_functions).module(name or kernel.name, is_routine)


@dataclass(frozen=True, slots=True)
class _Function:
    """An operation as an LLVM function, and the declarations that it needs."""

    name: str
    text: str
    registers: tuple[str, ...]  # the types of its parameters
    result: str
    declarations: frozenset[str]
    omits_slow_path: bool  # if so, its last result says whether the slow path would have been needed


@functools.cache
def _function(
    op: str,
    types: tuple[str, ...],
    result: str,
    attributes: tuple[tuple[str, Any], ...],
    slow_path: SlowPath,
    has_scalef: bool = False,
    lanes: int = 1,
) -> _Function:
    emitter = Emitter(slow_path, has_scalef)
    operands = [named(emitter, type, f"x{position}", lanes) for position, type in enumerate(types)]
    returned = scalars(emit(op, operands, types, result, dict(attributes)))
    if emitter.omitted:
        returned = (
            *returned,
            functools.reduce(operator.or_, (LlvmScalar(emitter, "pred", x) for x in emitter.omitted)),
        )
    register = returned[0].register
    if len(returned) == 1:
        emitter.line(f"ret {register} {returned[0].text}")
    else:
        register = f"{{ {', '.join(x.register for x in returned)} }}"
        together = "poison"
        for k, x in enumerate(returned):
            together = emitter.value(f"insertvalue {register} {together}, {x.register} {x.text}, {k}")
        emitter.line(f"ret {register} {together}")
    name = ".".join([op, *dict.fromkeys(types), result, *(str(value) for _, value in attributes)])
    name += (
        f".v{lanes}" if lanes > 1 else ".branching" if emitter.block != "entry" else ".fast" if emitter.omitted else ""
    )
    parameters = ", ".join(f"{x.register} {x.text}" for operand in operands for x in scalars(operand))
    head = f"define internal {register} @{name}({parameters}) alwaysinline nounwind memory(none) {{"
    text = "\n".join([head, "entry:", *emitter.lines, "}"])
    registers = tuple(x.register for operand in operands for x in scalars(operand))
    return _Function(name, text, registers, register, frozenset(emitter.declarations), bool(emitter.omitted))


@dataclass(slots=True)
class _Use:
    """The calls of a function in a kernel, and the least known trip count of a loop around one."""

    function: _Function
    operation: tuple[str, tuple[str, ...], str, tuple[tuple[str, Any], ...]]
    times: int = 0
    repeated: int = 0  # calls in the second versions of loops
    iterations: float = math.inf


class _Printer:
    """Prints one kernel; `values` maps the names of the loop IR to scalars, `views` those of views to addresses."""

    def __init__(
        self,
        kernel: Kernel,
        masked_tails: bool,
        vector_bytes: int | None,
        inlines_functions: bool,
    ) -> None:
        self.kernel = kernel
        self.inlines_functions = inlines_functions
        self.masked_tails = masked_tails
        self.is_tail = False  # whether the loop that is printed is the remainder of a vectorized one
        self.vector_bytes = vector_bytes
        self.has_scalef = vector_bytes == 64  # an instruction of AVX-512
        self.emitter = Emitter(has_scalef=self.has_scalef)
        self.values: dict[str, Number] = {}
        self.views: dict[str, str] = {}
        self.tiles: dict[str, int] = {}  # numbers of registers
        self.functions: dict[str, _Use] = {}
        self.iterations = math.inf  # the trip count of the loop that is printed, if it is known
        self.widest = 1  # bytes of an element in memory
        self.metadata: list[str] = []
        self.parallel = ""  # the access group of the loop that is printed, as an instruction's suffix
        self.counter: Value | None = None  # its index
        self.omitted: list[Any] | None = None  # conditions of omitted slow paths, in the first version of a loop
        self.repeats = False  # whether the loop that is printed is the second version, with slow paths

    def module(self, name: str, is_routine: bool) -> str:
        kernel, emitter = self.kernel, self.emitter
        scalar_values = [kernel.first, kernel.last, *kernel.parameters]
        for value in scalar_values:
            self.values[value.name] = named(emitter, value.type, value.name)
        parameters = [_parameter(buffer) for buffer in kernel.arguments]
        if is_routine:
            for value, bound in ((kernel.first, "0"), (kernel.last, "1")):
                self.values[value.name] = LlvmScalar(emitter, value.type, bound)
            emitter.lines += _words([(REGISTER_TYPES[value.type], value.name) for value in kernel.parameters])
            head = [f"define void @{name}({', '.join([*parameters, 'ptr %table'])}) #0 {{"]
        else:
            parameters += [f"{REGISTER_TYPES[value.type]} %{value.name}" for value in scalar_values]
            head = [*_entry(name, kernel), f"define internal void @{name}.body({', '.join(parameters)}) #0 {{"]
        self._scratch(kernel.scratch)
        if kernel.tiles:
            self._configure_tiles(kernel.tiles)
        self._block(kernel.body)
        if kernel.tiles:
            self._call("llvm.x86.tilerelease", [])
        emitter.line("ret void")
        return "\n".join(
            [
                *head,
                "entry:",
                *emitter.lines,
                "}",
                *self._functions(),
                *sorted(emitter.declarations),
                'attributes #0 = { noinline nounwind "prefer-vector-width"="512" "no-trapping-math"="true" }',
                *self.metadata,
                "",
            ]
        )

    def _functions(self) -> list[str]:
        texts: list[str] = []
        called: list[str] = []
        for use in self.functions.values():
            function, lengths = use.function, self._vector_lengths(use)
            if lengths:
                called += [function.name, *(f"{function.name}.{n}" for n in lengths)]
                fast, branching = (
                    _function(*use.operation, slow_path, self.has_scalef) for slow_path in ("omit", "branch")
                )
                texts.append(
                    callable_function(
                        function.name,
                        branching.text if fast.omits_slow_path else function.text,
                        function.registers,
                        lengths,
                        fast.text if fast.omits_slow_path else None,
                    )
                )
            elif (use.times == 0 and use.repeated > 1) or self._is_long(use):
                texts.append(function.text.replace(" alwaysinline ", " noinline ", 1))
            else:
                texts.append(function.text)
        return texts + compiler_used(called)

    def _vector_lengths(self, use: _Use) -> list[int]:
        """The lengths of vectors that a function is called with; none if it is inlined. Functions with slow paths count
        together, since a loop omits those of all or of none."""
        function, register = use.function, use.function.result
        alike = [u for u in self.functions.values() if self._has_slow_path(u)] if self._has_slow_path(use) else [use]
        times = sum(u.times for u in alike)
        total = sum(u.times * u.function.text.count("\n") for u in alike)
        if self.vector_bytes is None or times <= _ALWAYS_INLINED_CALLS or total <= _MAX_INLINED_LINES:
            return []
        if register not in ("float", "double") or {register} != {*function.registers}:
            return []
        lengths = vector_lengths(register, self.widest, self.vector_bytes)
        if use.iterations >= max(lengths):
            return lengths
        parts = [max(lengths) >> k for k in (1, 2)] if self._is_long(use) else []
        return [n for n in parts if 1 < n <= use.iterations][:1]

    def _is_long(self, use: _Use) -> bool:
        """Whether inlining a function makes a kernel too long for LLVM. In straight-line code nothing is vectorized, so
        a call costs less than the operation; in loops of few iterations some of LLVM's passes are quadratic. A
        function of vectors is called if it is repeated and not short, since nothing remains to be vectorized."""
        if use.function.result.startswith("<"):
            lines, is_repeated = use.function.text.count("\n"), use.times > _ALWAYS_INLINED_CALLS
            return is_repeated and lines > _SHORT_FUNCTION_LINES and use.times * lines > _MAX_INLINED_LINES
        most = _MAX_STRAIGHT_LINES if use.iterations == 1 else _MAX_VECTORIZED_LINES
        return use.iterations < VECTOR_ELEMENTS and use.times * use.function.text.count("\n") > most

    def _has_slow_path(self, use: _Use) -> bool:
        return _function(*use.operation, "omit", self.has_scalef).omits_slow_path

    def _scratch(self, buffers: Sequence[Buffer]) -> None:
        total = 0
        for buffer in buffers:
            size = buffer.size or 0
            memory, count = memory_type(buffer.type), size * (2 if buffer.type in PARTS else 1)
            total += count * BYTES[memory]
            self.emitter.line(f"%{buffer.name} = alloca [{count} x {memory}], align 64")
        if total > SCRATCH_BYTES:
            raise UnsupportedKernel(
                f"The scratch of a kernel takes {total} bytes, and may take {SCRATCH_BYTES}; fuse less into the kernel."
            )

    def _configure_tiles(self, tiles: Sequence[Tile]) -> None:
        """Set up the matrix unit for the kernel's tiles, whose registers have their ordinals."""
        self.tiles = {tile.name: number for number, tile in enumerate(tiles)}
        values = matrix_unit.configuration(tiles)
        held = _in_lanes("i8", len(values))
        self.emitter.line(f"%tiles = alloca {held}, align 64")
        self.emitter.line(f"store {held} <{', '.join(f'i8 {x}' for x in values)}>, ptr %tiles, align 64")
        self._call("llvm.x86.ldtilecfg", ["ptr %tiles"])

    def _block(self, statements: Sequence[Statement]) -> None:
        for statement in statements:
            if isinstance(statement, Compute):
                self.values[statement.result.name] = self._compute(statement)
            elif isinstance(statement, Load):
                self.values[statement.result.name] = self._load(statement)
            elif isinstance(statement, Store):
                self._store(statement)
            elif isinstance(statement, Shuffle):
                self.values[statement.result.name] = self._shuffle(statement)
            elif isinstance(statement, View):
                self.views[statement.result.name] = self._view(statement)
            elif isinstance(statement, Prefetch):
                self._prefetch(statement)
            elif isinstance(statement, Multiply):
                self._multiply(statement)
            elif isinstance(statement, Call):
                addresses = [self._addresses(buffer, index)[0] for buffer, index in statement.arguments]
                self._call(routine_symbol(statement.routine), [f"ptr {address}" for address in addresses])
            elif isinstance(statement, Address):
                address = self._addresses(statement.buffer, statement.index)[0]
                text = self.emitter.value(f"ptrtoint ptr {address} to i64")
                self.values[statement.result.name] = LlvmScalar(self.emitter, INDEX, text)
            elif isinstance(statement, Fence):
                self._fence()
            elif isinstance(statement, (Copy, Fill)):
                self._copy(statement)
            elif isinstance(statement, If):
                self._branch(statement)
            elif isinstance(statement, SelectBuffer):
                x = statement
                addresses = f"ptr {self._base(x.on_true)}, ptr {self._base(x.on_false)}"
                condition = self._operand(x.condition).text
                self.views[x.result.name] = self.emitter.value(f"select i1 {condition}, {addresses}")
            elif isinstance(statement, Gather):
                self.values[statement.result.name] = self._gather(statement)
            elif isinstance(statement, TileOperation):
                self._tile_operation(statement)
            else:
                before, loop, after = split_nan_check(statement, self.kernel.first)
                self._block(before)
                (self._versioned_loop if self._is_versioned(loop) else self._loop)(loop)
                self._block(after)

    def _operand(self, operand: Operand) -> Any:
        if isinstance(operand, Value):
            return self.values[operand.name]
        held = register_type(operand.type)
        parts = (operand.value.real, operand.value.imag) if operand.type in PARTS else (operand.value,)
        return number(self.emitter, operand.type, [constant(held, part) for part in parts])

    def _index(self, index: Index) -> str:
        return str(index) if isinstance(index, int) else self._operand(index).text

    def _compute(self, compute: Compute) -> Number:
        op, result, attributes = compute.op, compute.result.type, compute.attributes
        operands = [self._operand(x) for x in compute.operands]
        mask = self._mask(compute)
        if mask:
            return operands[0] & (-self._operand(self.kernel.first)).maximum(mask)  # `first` is not negative
        if LlvmVector in map(type, operands):
            operands = [x if isinstance(x, LlvmVector) else broadcast(x, compute.result.lanes) for x in operands]
        if is_index_arithmetic(compute):
            return INDICES[dict(attributes)["index"]][op](*operands).bitcast("s64")
        types = tuple(x.type for x in compute.operands)
        for x in (*types, result):
            register_type(x)
        if self.parallel and not self.repeats and is_division_by_floats(compute):
            op = f"{op}-in-vectors"
            compute = replace(compute, op=op)
        if op in INLINE or not self.inlines_functions:
            return emit(op, operands, types, result, dict(attributes))
        operation = (op, types, result, attributes)
        function = self._function_of(compute)
        use = self.functions.setdefault(function.name, _Use(function, operation))
        if self.repeats:
            use.repeated += 1
        else:
            use.times += 1
            use.iterations = min(use.iterations, self.iterations)
        self.emitter.declarations |= function.declarations
        arguments = ", ".join(f"{x.register} {x.text}" for operand in operands for x in scalars(operand))
        value = self.emitter.value(f"call {function.result} @{function.name}({arguments})")
        count = (2 if result in PARTS else 1) + function.omits_slow_path
        if count == 1:
            return number(self.emitter, result, [value], compute.result.lanes)
        parts = [self.emitter.value(f"extractvalue {function.result} {value}, {k}") for k in range(count)]
        if function.omits_slow_path and self.omitted is not None:
            self.omitted.append(LlvmScalar(self.emitter, "pred", parts.pop()))
        return number(self.emitter, result, parts, compute.result.lanes)

    def _mask(self, x: Compute) -> int:
        """The mask of the index of a vectorized loop modulo a power of two, or else 0. LLVM would take the remainder
        for a counter of few bits, and vectorize only if that does not wrap, so the mask must be no constant to it."""
        if x.op != "remainder" or not is_index_arithmetic(x) or not self.parallel or x.operands[0] is not self.counter:
            return 0
        size = x.operands[1].value if isinstance(x.operands[1], Literal) else 0
        return size - 1 if size.bit_count() == 1 and size < self.iterations else 0

    def _function_of(self, x: Compute) -> _Function:
        types, lanes = tuple(operand.type for operand in x.operands), x.result.lanes
        slow_path = self._slow_path() if lanes == 1 else "select"
        return _function(x.op, types, x.result.type, x.attributes, slow_path, self.has_scalef, lanes)

    def _slow_path(self) -> SlowPath:
        return "omit" if self.omitted is not None else "branch" if self.iterations == 1 else "select"

    def _addresses(self, buffer: Buffer, index: Index) -> list[str]:
        """The addresses of an element: of its real and its imaginary part if it is complex; or those of a vector of
        indices."""
        memory, base = memory_type(buffer.type), self._base(buffer)
        position = f"{_in_lanes('i64', lanes_of(index)) if isinstance(index, Value) else 'i64'} {self._index(index)}"
        self.widest = max(self.widest, BYTES[memory])
        address = self.emitter.value
        if buffer.type not in PARTS:
            return [address(f"getelementptr inbounds {memory}, ptr {base}, {position}")]
        pair = f"{{ {memory}, {memory} }}"
        return [address(f"getelementptr inbounds {pair}, ptr {base}, {position}, i32 {part}") for part in (0, 1)]

    def _view(self, x: View) -> str:
        """The address of a view's first element, which may lie outside of the buffer if no element there is used."""
        memory = memory_type(x.buffer.type)
        held = f"{{ {memory}, {memory} }}" if x.buffer.type in PARTS else memory
        return self.emitter.value(f"getelementptr {held}, ptr {self._base(x.buffer)}, i64 {self._index(x.index)}")

    def _base(self, buffer: Buffer) -> str:
        """The address of a buffer's first element."""
        return self.views.get(buffer.name, f"%{buffer.name}")

    def _load(self, load: Load) -> Number:
        memory, lanes = memory_type(load.buffer.type), load.result.lanes
        addresses = self._addresses(load.buffer, load.index)
        suffix = f"align {BYTES[memory]}{self.parallel}"
        held = _in_lanes(memory, lanes)
        if load.mask is None:
            texts = [self.emitter.value(f"load {held}, ptr {address}, {suffix}") for address in addresses]
        else:
            texts = [self._masked_load(memory, lanes, addresses[0], load.mask)]
        return self._loaded(load.buffer.type, texts, lanes)

    def _gather(self, x: Gather) -> Number:
        memory, lanes = memory_type(x.buffer.type), x.result.lanes
        held, masks = _in_lanes(memory, lanes), f"<{lanes} x i1>"
        chosen = splat("pred", "true") if x.mask is None else self._operand(x.mask).text
        texts = [
            self.emitter.intrinsic(
                f"masked.gather.{mangled(memory, lanes)}.v{lanes}p0",
                held,
                f"<{lanes} x ptr> {addresses}, i32 {BYTES[memory]}, {masks} {chosen}, {held} zeroinitializer",
                f"<{lanes} x ptr>, i32, {masks}, {held}",
            )
            for addresses in self._addresses(x.buffer, x.indices)
        ]
        return self._loaded(x.buffer.type, texts, lanes)

    def _loaded(self, type: str, texts: list[str], lanes: int) -> Number:
        """The value of elements in memory."""
        emitter, held = self.emitter, _in_lanes(memory_type(type), lanes)
        if type == "pred":
            return scalars(number(emitter, "u8", texts, lanes))[0].not_equal(0)
        if type == "bf16":
            return widen(number(emitter, "u16", texts, lanes), type)
        if type == "f16":
            texts = [emitter.value(f"fpext {held} {texts[0]} to {_in_lanes('float', lanes)}")]
        return number(emitter, type, texts, lanes)

    def _store(self, store: Store) -> None:
        emitter, type = self.emitter, store.buffer.type
        memory = memory_type(type)
        value: Any = self._operand(store.value)
        addresses = self._addresses(store.buffer, store.index)
        if type == "pred":
            value = value.to("u8")
        elif type == "bf16":
            value = narrow(value, type)
        texts, held = [x.text for x in scalars(value)], _in_lanes(memory, lanes_of(store.value))
        if type == "f16":
            texts = [emitter.value(f"fptrunc {value.register} {value.text} to {held}")]
        if store.mask is not None:
            return self._masked_store(memory, texts[0], addresses[0], store.mask)
        suffix = f"align {BYTES[memory]}{self.parallel}"
        if store.is_nontemporal:
            suffix = f"align {BYTES[memory] * lanes_of(store.value)}, !nontemporal {self._describe('!{i32 1}')}"
        for text, address in zip(texts, addresses, strict=True):
            emitter.line(f"store {held} {text}, ptr {address}, {suffix}")
        return None

    def _masked_load(self, memory: str, lanes: int, address: str, mask: Value) -> str:
        held, masks = _in_lanes(memory, lanes), self._operand(mask)
        arguments = f"ptr {address}, i32 {BYTES[memory]}, {masks.register} {masks.text}, {held} zeroinitializer"
        parameters = f"ptr, i32, {masks.register}, {held}"
        return self.emitter.intrinsic(f"masked.load.{mangled(memory, lanes)}.p0", held, arguments, parameters)

    def _masked_store(self, memory: str, text: str, address: str, mask: Value) -> None:
        held, masks = _in_lanes(memory, mask.lanes), self._operand(mask)
        name = f"llvm.masked.store.{mangled(memory, mask.lanes)}.p0"
        self.emitter.declarations.add(f"declare void @{name}({held}, ptr, i32, {masks.register})")
        arguments = f"{held} {text}, ptr {address}, i32 {BYTES[memory]}, {masks.register} {masks.text}"
        self.emitter.line(f"call void @{name}({arguments})")

    def _shuffle(self, x: Shuffle) -> Number:
        operands = [self._operand(operand) for operand in x.operands]
        first, count = operands[0], x.result.lanes
        if lanes_of(x.operands[0]) == 1:
            if not any(x.order):
                return broadcast(first, count) if count > 1 else first
            operands = [broadcast(operand, 1) for operand in operands]
            first = operands[0]
        if count == 1:
            operand, lane = divmod(x.order[0], first.lanes)
            text = f"extractelement {first.register} {operands[operand].text}, i64 {lane}"
            return number(self.emitter, x.result.type, [self.emitter.value(text)])
        second = operands[1].text if len(operands) > 1 else "poison"
        mask = ", ".join(f"i32 {k}" for k in x.order)
        pair = f"{first.register} {first.text}, {first.register} {second}"
        text = self.emitter.value(f"shufflevector {pair}, <{count} x i32> <{mask}>")
        return number(self.emitter, x.result.type, [text], count)

    def _tile_operation(self, x: TileOperation) -> None:
        if isinstance(x, TileMultiplyAdd):
            operands = [f"i8 {self.tiles[tile.name]}" for tile in (x.accumulator, x.left, x.right)]
            return self._call(f"llvm.x86.{matrix_unit.PRODUCTS[x.factors]}", operands)
        number = f"i8 {self.tiles[x.tile.name]}"
        if isinstance(x, TileZero):
            return self._call("llvm.x86.tilezero", [number])
        name = "llvm.x86.tileloadd64" if isinstance(x, TileLoad) else "llvm.x86.tilestored64"
        address = self._addresses(x.buffer, x.index)[0]
        pitch = self.emitter.value(f"mul i64 {self._index(x.pitch)}, {BYTES[memory_type(x.buffer.type)]}")
        return self._call(name, [number, f"ptr {address}", f"i64 {pitch}"])

    def _prefetch(self, x: Prefetch) -> None:
        memory, base, position = memory_type(x.buffer.type), self._base(x.buffer), self._index(x.index)
        address = self.emitter.value(f"getelementptr {memory}, ptr {base}, i64 {position}")  # may lie outside
        hints = f"i32 {int(x.for_writing)}, i32 {4 - x.cache_level}"
        self.emitter.declarations.add("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        self.emitter.line(f"call void @llvm.prefetch.p0(ptr {address}, {hints}, i32 1)")

    def _copy(self, x: Copy | Fill) -> None:
        buffer, index = (x.target, x.target_index) if isinstance(x, Copy) else (x.buffer, x.index)
        target = self._addresses(buffer, index)[0]
        element_bytes = BYTES[memory_type(buffer.type)] * (2 if buffer.type in PARTS else 1)
        count = self.emitter.value(f"mul i64 {self._index(x.count)}, {element_bytes}")
        if isinstance(x, Copy):
            source = self._addresses(x.source, x.source_index)[0]
            name, arguments = "memcpy.p0.p0.i64", f"ptr {target}, ptr {source}, i64 {count}"
            self.emitter.declarations.add(f"declare void @llvm.{name}(ptr, ptr, i64, i1)")
        else:
            name, arguments = "memset.p0.i64", f"ptr {target}, i8 0, i64 {count}"
            self.emitter.declarations.add(f"declare void @llvm.{name}(ptr, i8, i64, i1)")
        self.emitter.line(f"call void @llvm.{name}({arguments}, i1 false)")

    def _fence(self) -> None:
        """Order non-temporal stores before what follows: x86 has an instruction for that alone."""
        if is_x86():
            self._call("llvm.x86.sse.sfence", [])
        else:
            self.emitter.line("fence seq_cst")

    def _multiply(self, x: Multiply) -> None:
        """Call the function that `blas_gemm.declare_gemm` defines."""

        def address(matrix: Matrix) -> str:
            return self._addresses(matrix.buffer, matrix.start)[0]

        matrices = (x.result, x.left, x.right)
        integers: list[Index] = [*x.sizes, *(m.pitch for m in matrices), *(int(m.transposed) for m in matrices[1:])]
        arguments = [f"ptr {address(m)}" for m in matrices] + [
            f"i64 {self._index(i)}" for i in (*integers, x.accumulate)
        ]
        self._call(multiply_symbol(x.result.buffer.type), arguments)

    def _call(self, name: str, arguments: Sequence[str]) -> None:
        self.emitter.line(f"call void @{name}({', '.join(arguments)})")
        types = ", ".join(argument.split()[0] for argument in arguments)
        self.emitter.declarations.add(f"declare void @{name}({types})")

    def _is_versioned(self, loop: Loop) -> bool:
        """Whether a loop is printed in two versions, the first one without slow paths. The second version must read
        what the first one read."""
        if _iterations(loop) == 1 or any(isinstance(x, (Loop, Multiply, Call)) for x in loop.body):
            return False
        stored = {id(x.buffer) for x in loop.body if isinstance(x, Store)}
        if any(isinstance(x, Load) and id(x.buffer) in stored for x in loop.body):
            return False
        if all(x.buffer.size is not None for x in loop.body if isinstance(x, (Load, Store))):
            return False  # scratch memory that LLVM promotes to registers, unless a second loop reads it
        lines = [n for x in loop.body if isinstance(x, Compute) and (n := _fast_path_lines(x))]
        return bool(lines) and (len(lines) <= _ALWAYS_INLINED_CALLS or sum(lines) <= _MAX_INLINED_LINES)

    def _versioned_loop(self, loop: Loop) -> None:
        """The loop without slow paths, and then again with them, if an iteration would have needed one."""
        emitter, name = self.emitter, loop.index.name
        needed = [Value("pred", f"{name}.{which}") for which in ("before", "needed", "so_far")]
        before, any_needed, so_far = needed
        self.omitted = []
        self._loop(
            replace(loop, carried=[*loop.carried, LoopCarried(before, Literal("pred", False), any_needed, so_far)])
        )
        self.omitted = None
        usual, found = emitter.block, [self.values[carried.result.name] for carried in loop.carried]
        emitter.line(f"br i1 {self._index(any_needed)}, label %{name}.repeat, label %{name}.done")
        emitter.start_block(f"{name}.repeat")
        self.repeats = True
        self._loop(loop)
        self.repeats = False
        emitter.line(f"br label %{name}.done")
        repeated = emitter.block
        emitter.start_block(f"{name}.done")
        for carried, value in zip(loop.carried, found, strict=True):
            again = self.values[carried.result.name]
            result = self.values[carried.result.name] = named(
                emitter, carried.result.type, f"{carried.result.name}.done", carried.result.lanes
            )
            emitter.lines += _phis(result, (value, usual), (again, repeated))

    def _branch(self, x: If) -> None:
        emitter = self.emitter
        label = f"if{len(emitter.lines)}"
        blocks = [f"{label}.true", f"{label}.false"]
        condition = self._operand(x.condition)
        emitter.line(f"br i1 {condition.text}, label %{blocks[0]}, label %{blocks[1]}")
        ends: list[str] = []
        chosen: list[list[Number]] = []
        for block, body, operands in (
            (blocks[0], x.on_true, [choice.on_true for choice in x.choices]),
            (blocks[1], x.on_false, [choice.on_false for choice in x.choices]),
        ):
            emitter.start_block(block)
            self._block(body)
            chosen.append([self._operand(operand) for operand in operands])
            ends.append(emitter.block)
            emitter.line(f"br label %{label}.end")
        emitter.start_block(f"{label}.end")
        for choice, *values in zip(x.choices, *chosen, strict=True):
            result = named(emitter, choice.result.type, choice.result.name, choice.result.lanes)
            emitter.lines += _phis(result, *zip(values, ends, strict=True))
            self.values[choice.result.name] = result

    def _loop(self, loop: Loop) -> None:
        has_tail = (loop.has_remainder or leaves_remainder(loop)) and not _has_pairs(loop)
        if not (self.masked_tails and has_tail) or self.repeats or self.omitted is not None:
            return self._one_loop(loop, ".repeated" if self.repeats else "")
        middle: Index = Value(loop.index.type, f"{loop.index.name}.middle")
        if isinstance(loop.stop, int):
            middle = loop.stop // VECTOR_ITERATIONS * VECTOR_ITERATIONS
        else:
            self.values[middle.name] = named(self.emitter, middle.type, middle.name)
            self.emitter.line(f"%{middle.name} = and i64 {self._index(loop.stop)}, {-VECTOR_ITERATIONS}")
        self._one_loop(replace(loop, stop=middle), "")
        self.is_tail = True
        self._one_loop(replace(loop, start=middle, carried=[replace(c, init=c.result) for c in loop.carried]), ".tail")
        self.is_tail = False

    def _one_loop(self, loop: Loop, suffix: str) -> None:
        start, stop = loop.start, loop.stop
        if isinstance(start, int) and isinstance(stop, int) and start >= stop:
            for carried in loop.carried:
                self.values[carried.result.name] = self._operand(carried.init)
            return
        guarded = not loop.nonempty and not (isinstance(start, int) and isinstance(stop, int))
        emitter, name = self.emitter, loop.index.name + suffix
        entry, body, end = emitter.block, f"{name}.body", f"{name}.end"
        first, limit = self._index(start), self._index(stop)
        is_short = isinstance(start, int) and isinstance(stop, int) and stop - start <= _ITERATIONS_PER_POLL
        due = self._next_poll(first, limit) if loop.continue_while is not None and not is_short else ""
        if guarded:
            is_nonempty = emitter.value(f"icmp slt i64 {first}, {limit}")
            emitter.line(f"br i1 {is_nonempty}, label %{body}, label %{end}")
        else:
            emitter.line(f"br label %{body}")
        emitter.start_block(body)
        phis = len(emitter.lines)
        self.values[loop.index.name] = named(emitter, loop.index.type, name)
        initials = [self._operand(carried.init) for carried in loop.carried]
        for carried in loop.carried:
            self.values[carried.arg.name] = named(
                emitter, carried.arg.type, carried.arg.name + suffix, carried.arg.lanes
            )
            self.widest = max(self.widest, BYTES[memory_type(carried.arg.type)])
        annotation = self._annotate(loop)
        around, self.iterations = self.iterations, 1 if self.repeats else _iterations(loop)
        self._block(loop.body)
        self.iterations = around
        if self.omitted is not None:
            before: Any = self.values[f"{loop.index.name}.before"]
            self.values[f"{loop.index.name}.so_far"] = functools.reduce(operator.or_, self.omitted, before)
        self.parallel = ""
        updates = [self._operand(carried.updated) for carried in loop.carried]
        emitter.line(f"%{name}.next = add nsw i64 %{name}, {loop.step}")
        latch = emitter.block
        again = "" if loop.continue_while is None else self._operand(loop.continue_while).text
        if due:
            merged, latches, exits = self._polled(name, (due, entry), limit, again, annotation)
        else:
            more = emitter.value(f"icmp slt i64 %{name}.next, {limit}")
            more = emitter.value(f"and i1 {more}, {again}") if again else more
            emitter.line(f"br i1 {more}, label %{body}, label %{end}{annotation}")
            merged, latches, exits = [], [latch], [latch]
        emitter.start_block(end)
        nexts = "".join(f", [ %{name}.next, %{block} ]" for block in latches)
        merged.append(f"  %{name} = phi i64 [ {first}, %{entry} ]{nexts}")
        for carried, initial, updated in zip(loop.carried, initials, updates, strict=True):
            following = [(updated, block) for block in latches]
            merged += _phis(self.values[carried.arg.name], (initial, entry), *following)
            if guarded:
                result = named(emitter, carried.result.type, carried.result.name + suffix, carried.result.lanes)
                emitter.lines += _phis(result, (initial, entry), *((updated, block) for block in exits))
            else:
                result = updated
            self.values[carried.result.name] = result
        emitter.lines[phis:phis] = merged

    def _polled(
        self, name: str, before: tuple[str, str], limit: str, again: str, annotation: str
    ) -> tuple[list[str], list[str], list[str]]:
        """The latch of a loop without a bound, which polls for signals now and then. `before` is the index of the first
        poll, and the block before the loop. Returns the phis of the header, the latches and the exiting blocks."""
        emitter, latch, check, ask = self.emitter, self.emitter.block, f"{name}.check", f"{name}.ask"
        emitter.declarations.add(f"declare i64 @{POLL}() nounwind memory(inaccessiblemem: readwrite)")
        due = f"%{name}.due"
        early = emitter.value(f"icmp slt i64 %{name}.next, {due}")
        more = emitter.value(f"and i1 {early}, {again}")
        emitter.line(f"br i1 {more}, label %{name}.body, label %{check}{annotation}")
        emitter.start_block(check)
        left = emitter.value(f"icmp slt i64 %{name}.next, {limit}")
        more = emitter.value(f"and i1 {left}, {again}")
        emitter.line(f"br i1 {more}, label %{ask}, label %{name}.end")
        emitter.start_block(ask)
        status = emitter.value(f"call i64 @{POLL}()")
        quiet = emitter.value(f"icmp eq i64 {status}, 0")
        later = self._next_poll(f"%{name}.next", limit)
        emitter.line(f"br i1 {quiet}, label %{name}.body, label %{name}.end")
        first, entry = before
        phi = f"  {due} = phi i64 [ {first}, %{entry} ], [ {due}, %{latch} ], [ {later}, %{ask} ]"
        return [phi], [latch, ask], [check, ask]

    def _next_poll(self, index: str, limit: str) -> str:
        """The index of the next poll."""
        later = self.emitter.value(f"add nsw i64 {index}, {_ITERATIONS_PER_POLL}")
        return self.emitter.intrinsic("smin.i64", "i64", f"i64 {later}, i64 {limit}", "i64, i64")

    def _annotate(self, loop: Loop) -> str:
        """Loop metadata, as the suffix of the loop's branch: that unrolling gains nothing; of an innermost loop, that
        its iterations access different memory, and how it is vectorized."""
        if is_vector_code(loop.body):  # no pass over loops follows
            return ""
        facts: list[str] = []
        count = loop.trip_count
        innermost = not any(isinstance(statement, (Loop, Multiply, Call)) for statement in loop.body)
        if innermost and (self.repeats or (loop.sequential and not loop.carried)):
            facts.append(self._describe('!{!"llvm.loop.vectorize.enable", i1 false}'))
        if innermost and not loop.sequential:
            self.counter = loop.index
            group = self._describe("distinct !{}")
            self.parallel = f", !llvm.access.group {group}"
            facts.append(self._describe(f'!{{!"llvm.loop.parallel_accesses", {group}}}'))
        if self.is_tail:  # a masked tail of bytes takes more than single ones
            rolled = max_element_bytes(loop) > 1
        elif loop.sequential or not innermost:
            rolled = count is None or count >= VECTOR_ELEMENTS or any(isinstance(x, Call) for x in loop.body)
        else:  # LLVM unrolls before it vectorizes
            unrolled = 0 if loop.force_vectorize else _max_unrolled(loop)
            rolled = not loop.carried and count is not None and unrolled < count <= _MAX_UNROLLED_BY_LLVM
        if rolled:
            facts.append(self._describe('!{!"llvm.loop.unroll.disable"}'))
        if innermost:
            facts += [self._describe(f'!{{!"llvm.loop.{fact}}}') for fact in self._vectors(loop, count)]
        if not facts:
            return ""
        itself = f"!{len(self.metadata)}"  # the node of a loop begins with itself
        self._describe(f"distinct !{{{', '.join([itself, *facts])}}}")
        return f", !llvm.loop {itself}"

    def _vectors(self, loop: Loop, count: int | None) -> list[str]:
        """Metadata for the vectorizer of an innermost loop."""
        if self.is_tail:
            return [*([] if _leaves_one(loop, count) else _MASKED), 'interleave.count", i32 1']
        lines = sum(self._function_of(x).text.count("\n") for x in loop.body if is_function(x))
        in_any_order, pairs = not loop.sequential and not self.repeats, _has_pairs(loop)
        masks = _MASKED if self.masked_tails and _may_be_masked(loop, count) else []
        if lines > _LONG_BODY_LINES and in_any_order and _has_many_iterations(loop, count):
            tail = [] if loop.carried or lines <= 2 * _LONG_BODY_LINES else masks  # less to compile than a scalar one
            return [*tail, 'interleave.count", i32 2']
        if count is None:  # four vectors hold more than `VECTOR_ITERATIONS` narrow elements
            widest = max_element_bytes(loop)
            return [f'interleave.count", i32 {widest}'] if loop.has_remainder and widest < INTERLEAVED else []
        if pairs and in_any_order and not loop.carried and _max_unrolled(loop) < count < VECTOR_ELEMENTS:
            return ['vectorize.enable", i1 true', 'vectorize.width", i32 4', 'interleave.count", i32 1']
        if masks and count % VECTOR_ELEMENTS and count < LONG_LOOP_ITERATIONS:
            return masks
        return _interleaved(loop, count) if lines <= _LONG_BODY_LINES else []

    def _describe(self, content: str) -> str:
        """Append a line of metadata; its name."""
        name = f"!{len(self.metadata)}"
        self.metadata.append(f"{name} = {content}")
        return name


def _in_lanes(type: str, lanes: int) -> str:
    """An LLVM type, or the vector type of several lanes."""
    return type if lanes == 1 else f"<{lanes} x {type}>"


def _may_be_masked(loop: Loop, count: int | None) -> bool:
    """Whether the last vectors of a loop may be masked. Complex numbers would be gathered one by one."""
    return not (_has_pairs(loop) or _leaves_one(loop, count) or _skips_bytes(loop))


def _has_many_iterations(loop: Loop, count: int | None) -> bool:
    """Whether a loop has many iterations, as a chunk does."""
    return not isinstance(loop.start, int) if count is None else count >= LONG_LOOP_ITERATIONS


def _interleaved(loop: Loop, count: int) -> list[str]:
    """The number of interleaved vectors of narrow elements: a divisor of the loop's, so that the remainder is short."""
    widest = max_element_bytes(loop)
    vectors = count * widest // (4 * VECTOR_ELEMENTS)
    is_narrow = widest == 1 or (widest == 2 and not loop.carried)
    if not vectors or not is_narrow or loop.sequential:
        return []
    return [f'interleave.count", i32 {math.gcd(vectors, INTERLEAVED)}']


def _leaves_one(loop: Loop, count: int | None) -> bool:
    """Whether the last vector of a loop has one element, which is narrower than what it is computed from. If LLVM
    unrolls the loop and so knows the mask, it stores the wide value (LLVM 22, on x86): more than the element."""
    wide = max(4, max_element_bytes(loop))
    is_narrow = any(isinstance(x, Store) and BYTES[memory_type(x.buffer.type)] < wide for x in loop.body)
    return is_narrow and count is not None and count % (VECTOR_ELEMENTS // 2) == 1


def _skips_bytes(loop: Loop) -> bool:
    """Whether a loop accesses narrow elements with a stride: LLVM does not vectorize these under masks."""
    narrow = [x for x in loop.body if isinstance(x, (Load, Store)) and BYTES[memory_type(x.buffer.type)] < BYTES["i32"]]
    indices = (x.index for x in narrow if isinstance(x.index, Value))
    return any(abs(stride_of(loop.index, index, loop.body)) > 1 for index in indices)


def _has_pairs(loop: Loop) -> bool:
    return any(x.buffer.type in ("c64", "c128") for x in loop.body if isinstance(x, (Load, Store)))


def _fast_path_lines(x: Compute) -> int:
    """The lines of an operation's code without its slow path; 0 if it has none."""
    if not is_function(x):
        return 0
    function = _function(x.op, tuple(o.type for o in x.operands), x.result.type, x.attributes, "omit")
    return function.text.count("\n") if function.omits_slow_path else 0


def _iterations(loop: Loop) -> float:
    """The trip count, infinite if it is unknown; 1 for a loop that is not vectorized."""
    if loop.sequential:
        return 1
    return math.inf if loop.trip_count is None else loop.trip_count


def _max_unrolled(loop: Loop) -> int:
    return MAX_UNROLLED // 2 if _has_pairs(loop) else MAX_UNROLLED  # of pairs


def _phis(result: Number, *incoming: tuple[Number, str]) -> list[str]:
    """The phis of a value: one for each register of the result."""
    lines: list[str] = []
    for part, scalar in enumerate(scalars(result)):
        sources = ", ".join(f"[ {scalars(number)[part].text}, %{block} ]" for number, block in incoming)
        lines.append(f"  {scalar.text} = phi {scalar.register} {sources}")
    return lines


def _parameter(buffer: Buffer) -> str:
    return f"ptr noalias {'' if buffer.written else 'readonly '}%{buffer.name}"


def _entry(name: str, kernel: Kernel) -> list[str]:
    """The public function of a kernel: it reads the table and calls the body."""
    words = [("ptr", f"argument{k}") for k in range(len(kernel.arguments))]
    words += [(REGISTER_TYPES[value.type], f"number{k}") for k, value in enumerate(kernel.parameters)]
    arguments = [f"{type} %{word}" for type, word in words]
    arguments[len(kernel.arguments) : len(kernel.arguments)] = ["i64 %first", "i64 %last"]
    return [
        f"define void @{name}(ptr %table, i64 %first, i64 %last) nounwind {{",
        *_words(words),
        f"  tail call void @{name}.body({', '.join(arguments)})",
        "  ret void",
        "}",
    ]


def _words(words: Sequence[tuple[str, str]]) -> list[str]:
    """Loads of the 64-bit words of a table, by type and name."""
    lines: list[str] = []
    for position, (type, word) in enumerate(words):
        lines.append(f"  %entry{position} = getelementptr inbounds i64, ptr %table, i64 {position}")
        lines.append(f"  %{word} = load {type}, ptr %entry{position}, align 8")
    return lines
