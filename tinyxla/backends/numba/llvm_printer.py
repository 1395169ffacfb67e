"""A kernel of the loop IR as LLVM text.

The text has one public function, `void name(ptr table, i64 first, i64 last)`: `table` holds the addresses of the kernel's
arguments, in order. It hands them to a body whose parameters say that they do not overlap, which is what lets LLVM
vectorise. Loops come out rotated (a guard, then a loop that tests at its end), as LLVM's loop passes want them.

| element type | in memory | in registers |
|---|---|---|
| `pred` | a byte, 0 or 1 | `i1` |
| integers | as such | as such |
| `f16`, `bf16` | `half`; the upper half of a `float` | `float`, rounded to the type after every operation |
| `f32`, `f64` | `float`, `double` | as such |
| `c64`, `c128` | real, imaginary, interleaved | two registers |

Rounding after every operation gives the 16-bit floats the results that evaluation operation by operation gives.
Operations that take more than a few instructions become functions of their own, which LLVM inlines: their text is made
once in a process.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tinyxla.backends.numba.llvm_scalar import REGISTERS, Emitter, LlvmScalar, constant
from tinyxla.backends.numba.loops import Buffer, Carried, Compute, Index, Kernel, Literal, Load, Loop, Operand
from tinyxla.backends.numba.loops import Statement, Store, Value
from tinyxla.errors import TinyxlaError
from tinyxla_kernels import elementary
from tinyxla_kernels.complex_numbers import Complex

SCRATCH_LIMIT = 256 * 1024  # bytes: scratch lives on the stack of whichever thread runs the kernel

_VECTOR = 16  # a loop count that is no multiple of this leaves a tail
_LONG = 512  # from this count on, the tail matters less than what masks cost in every iteration

_NARROW = ("f16", "bf16")
_PARTS = {"c64": "f32", "c128": "f64"}
_MEMORY = {**REGISTERS, "pred": "i8", "f16": "half", "bf16": "i16"}
_BYTES = {"i8": 1, "i16": 2, "half": 2, "i32": 4, "float": 4, "i64": 8, "double": 8}

Number = LlvmScalar | Complex


class UnsupportedKernel(TinyxlaError):
    """A kernel that cannot be compiled: an element type or operation without native code, or too much scratch."""


def print_llvm(kernel: Kernel, name: str | None = None, masked_tails: bool = False) -> str:
    """The module that defines the kernel as `name` (by default its own name).

    `masked_tails` asks that short loops end in a masked vector rather than in single elements: for processors with masks.
    """
    return _Printer(kernel, masked_tails).module(name or kernel.name)


# Emission of scalar operations. Each table is one class of types; a row takes the operands, and attributes by name.


def _compare(x: Any, y: Any, direction: str, compare_type: str = "") -> Any:
    if compare_type == "TOTALORDER" and x.type in ("f32", "f64"):
        x, y = elementary.total_order(x), elementary.total_order(y)
    return _COMPARISONS[direction](x, y)


_COMPARISONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "EQ": lambda x, y: x.equal(y),
    "NE": lambda x, y: x.not_equal(y),
    "GE": operator.ge,
    "GT": operator.gt,
    "LE": operator.le,
    "LT": operator.lt,
}


def _add(x: Any, y: Any, reassociate: bool = False) -> Any:
    return x.flagged("fadd", "reassoc contract", y) if reassociate else x + y


def _multiply(x: Any, y: Any, reassociate: bool = False) -> Any:
    """`contract` here and in `_add` together make the accumulation of a product one fused multiply-add."""
    return x.flagged("fmul", "reassoc contract" if reassociate else "contract", y)


def _minimum(x: Any, y: Any, reassociate: bool = False) -> Any:
    """NaN if either is; which of two zeros is the lesser is left open (`nsz`), which makes it half as long on x86."""
    return x.intrinsic("minimum", y, flags="nsz ")


def _maximum(x: Any, y: Any, reassociate: bool = False) -> Any:
    return x.intrinsic("maximum", y, flags="nsz ")


def _clamp(low: Any, x: Any, high: Any) -> Any:
    return _minimum(_maximum(x, low), high)


def _imaginary_of_real(x: Any) -> Any:
    return LlvmScalar(x.emitter, x.type, constant(x.type, 0))


_FLOAT: Mapping[str, Callable[..., Any]] = {
    "abs": lambda x: x.abs(),
    "add": _add,
    "atan2": elementary.atan2,
    "cbrt": elementary.cbrt,
    "ceil": lambda x: x.ceil(),
    "clamp": _clamp,
    "compare": _compare,
    "complex": Complex,
    "cosh": elementary.cosh,
    "cosine": elementary.cos,
    "divide": operator.truediv,
    "erf": elementary.erf,
    "erf-inv": elementary.erf_inv,
    "exponential": elementary.exp,
    "exponential-minus-one": elementary.expm1,
    "floor": lambda x: x.floor(),
    "imag": _imaginary_of_real,
    "is-finite": lambda x: x.abs() < float("inf"),
    "log": elementary.log,
    "log-plus-one": elementary.log1p,
    "logistic": elementary.logistic,
    "maximum": _maximum,
    "minimum": _minimum,
    "multiply": _multiply,
    "negate": operator.neg,
    "power": elementary.pow,
    "real": lambda x: x,
    "reduce-precision": elementary.reduce_precision,
    "remainder": elementary.rem,
    "round-nearest-afz": elementary.round_afz,
    "round-nearest-even": elementary.round_even,
    "rsqrt": elementary.rsqrt,
    "sign": elementary.sign,
    "sine": elementary.sin,
    "sinh": elementary.sinh,
    "sqrt": elementary.sqrt,
    "subtract": operator.sub,
    "tan": elementary.tan,
    "tanh": elementary.tanh,
}


def _first_two(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """Integer arithmetic is associative as it is: leave to reassociate says nothing."""
    return lambda x, y, reassociate=False: function(x, y)


_INTEGER: Mapping[str, Callable[..., Any]] = {
    "abs": lambda x: x.abs(),
    "add": _first_two(operator.add),
    "and": _first_two(operator.and_),
    "clamp": lambda low, x, high: x.maximum(low).minimum(high),
    "compare": _compare,
    "count-leading-zeros": elementary.count_leading_zeros,
    "divide": elementary.divide,
    "imag": _imaginary_of_real,
    "maximum": _first_two(lambda x, y: x.maximum(y)),
    "minimum": _first_two(lambda x, y: x.minimum(y)),
    "multiply": _first_two(operator.mul),
    "negate": operator.neg,
    "not": operator.invert,
    "or": _first_two(operator.or_),
    "popcnt": elementary.population_count,
    "power": elementary.power,
    "real": lambda x: x,
    "remainder": elementary.remainder,
    "shift-left": elementary.shift_left,
    "shift-right-arithmetic": elementary.shift_right_arithmetic,
    "shift-right-logical": elementary.shift_right_logical,
    "sign": elementary.sign,
    "subtract": operator.sub,
    "xor": _first_two(operator.xor),
}

_PRED: Mapping[str, Callable[..., Any]] = {
    "add": _first_two(operator.or_),
    "and": _first_two(operator.and_),
    "clamp": lambda low, x, high: (x | low) & high,
    "compare": _compare,
    "maximum": _first_two(operator.or_),
    "minimum": _first_two(operator.and_),
    "multiply": _first_two(operator.and_),
    "not": operator.invert,
    "or": _first_two(operator.or_),
    "xor": _first_two(operator.xor),
}


def _each_part(function: Callable[..., Any]) -> Callable[..., Any]:
    def both(x: Complex, y: Complex, **attributes: Any) -> Complex:
        return Complex(function(x.real, y.real, **attributes), function(x.imag, y.imag, **attributes))

    return both


_COMPLEX: Mapping[str, Callable[..., Any]] = {
    "abs": abs,
    "add": _each_part(_add),
    "compare": _compare,
    "imag": lambda x: x.imag,
    "real": lambda x: x.real,
    "subtract": _each_part(operator.sub),
}

# Index arithmetic never overflows, and its operands are not negative where it divides.
_INDEX: Mapping[str, Callable[[Any, Any], Any]] = {
    "add": lambda x, y: x.flagged("add", "nsw", y),
    "subtract": lambda x, y: x.flagged("sub", "nsw", y),
    "multiply": lambda x, y: x.flagged("mul", "nsw", y),
    "divide": lambda x, y: x.bitcast("u64") // y.bitcast("u64"),
    "remainder": lambda x, y: x.bitcast("u64") % y.bitcast("u64"),
    "minimum": lambda x, y: x.minimum(y),
    "maximum": lambda x, y: x.maximum(y),
}

# What is one to three instructions is written where it is used, all else is a function.
_INLINE = frozenset(
    "abs add and ceil clamp compare complex divide floor imag is-finite maximum minimum multiply negate not or real"
    " round-nearest-even select sqrt subtract xor copy".split()
)

# The results of these are operands or small integers, which a 16-bit float holds as they are.
_EXACT = frozenset(
    "abs ceil clamp copy floor maximum minimum negate round-nearest-afz round-nearest-even select sign real imag".split()
)


def _emit(op: str, operands: Sequence[Number], types: Sequence[str], result: str, attributes: Mapping[str, Any]) -> Number:
    """The instructions of one operation, rounded to the result's type."""
    if op == "copy":
        return operands[0]
    if op == "select":
        return _select(*operands)
    if op == "convert":
        value = _convert(operands[0], types[0], result)
    elif op == "bitcast-convert":
        return _widen(_narrow(operands[0], types[0]).bitcast(_carrier(result)), result)
    else:
        function = _table(types[-1]).get(op)
        if function is None:
            raise UnsupportedKernel(f"{op} of {', '.join(types)} has no native code; run it in the interpreter.")
        value = function(*operands, **attributes)
    return _round(value, result) if result in _NARROW and op not in _EXACT else value


def _table(type: str) -> Mapping[str, Callable[..., Any]]:
    if type in _PARTS:
        return _COMPLEX
    if type == "pred":
        return _PRED
    return _FLOAT if type in ("f32", "f64", *_NARROW) else _INTEGER


def _select(chosen: Any, on_true: Any, on_false: Any) -> Number:
    if isinstance(on_true, Complex):
        return Complex(chosen.where(on_true.real, on_false.real), chosen.where(on_true.imag, on_false.imag))
    return chosen.where(on_true, on_false)


def _convert(x: Any, source: str, target: str) -> Number:
    """By value, as XLA does. An integer or bf16 comes and goes through f32; f64 becomes f16 with a single rounding."""
    if isinstance(x, Complex):
        if target not in _PARTS:
            return _convert(x.real, _PARTS[source], target)
        return Complex(x.real.to(_PARTS[target]), x.imag.to(_PARTS[target]))
    if target in _PARTS:
        real = _convert(x, source, _PARTS[target])
        return Complex(real, LlvmScalar(x.emitter, _PARTS[target], constant(_PARTS[target], 0)))
    if target == "f16" and source == "f64":
        return _to_odd_f32(x)
    return elementary.convert(x, "f32" if target in _NARROW else target)


def _to_odd_f32(x: Any) -> Any:
    """f64 to f32, where a value between two becomes the one whose last bit is odd: rounding that to a type with at least two
    bits less is as rounding the f64 (Boldo and Melquiond, Emulation of FMA and correctly rounded sums, 2008)."""
    nearest = x.to("f32")
    back = nearest.to("f64")
    too_far = (back.abs() > x.abs()).to("u32")
    inexact = ((back > x) | (back < x)).to("u32")
    return ((nearest.bits() - too_far) | inexact).bitcast("f32")


# 16-bit floats: `_carrier` is the integer or float type that holds one in memory and in conversions of bits.


def _round(x: Any, type: str) -> Any:
    """An f32 rounded to `type`, still as an f32."""
    emitter = x.emitter
    if type == "f16":
        half = emitter.value(f"fptrunc float {x.text} to half")
        return LlvmScalar(emitter, "f32", emitter.value(f"fpext half {half} to float"))
    bits = x.bits()
    up = bits + 0x7FFF + ((bits >> 16) & 1)
    return (x.not_equal(x).where(bits | 0x400000, up) & 0xFFFF0000).bitcast("f32")


def _narrow(x: Any, type: str) -> Any:
    """The bits of a scalar that holds a value of `type`, without the padding that registers have."""
    if type == "bf16":
        return (x.bits() >> 16).to("u16")
    if type == "f16":
        emitter = x.emitter
        half = emitter.value(f"fptrunc float {x.text} to half")
        return LlvmScalar(emitter, "u16", emitter.value(f"bitcast half {half} to i16"))
    return x


def _widen(x: Any, type: str) -> Any:
    """The inverse of `_narrow`."""
    if type == "bf16":
        return (x.to("u32") << 16).bitcast("f32")
    if type == "f16":
        emitter = x.emitter
        half = emitter.value(f"bitcast i16 {x.text} to half")
        return LlvmScalar(emitter, "f32", emitter.value(f"fpext half {half} to float"))
    return x


def _carrier(type: str) -> str:
    return "u16" if type in _NARROW else type


def _register_type(type: str) -> str:
    """The type of the scalar, or of each of the two, that holds a value of `type`."""
    held = "f32" if type in _NARROW else _PARTS.get(type, type)
    if held not in REGISTERS:
        raise UnsupportedKernel(f"{type} has no native code; run the operation in the interpreter.")
    return held


def _scalars(x: Any) -> tuple[Any, ...]:
    return (x.real, x.imag) if isinstance(x, Complex) else (x,)


def _number(emitter: Emitter, type: str, texts: Sequence[str]) -> Number:
    parts = [LlvmScalar(emitter, _register_type(type), text) for text in texts]
    return Complex(*parts) if len(parts) == 2 else parts[0]


def _named(emitter: Emitter, type: str, name: str) -> Number:
    """Registers called after `name`."""
    return _number(emitter, type, [f"%{name}.real", f"%{name}.imag"] if type in _PARTS else [f"%{name}"])


@dataclass(frozen=True, slots=True)
class _Function:
    """An operation as an LLVM function, and the declarations that it needs."""

    name: str
    text: str
    result: str
    declarations: frozenset[str]


@functools.cache
def _function(op: str, types: tuple[str, ...], result: str, attributes: tuple[tuple[str, Any], ...]) -> _Function:
    emitter = Emitter()
    operands = [_named(emitter, type, f"x{position}") for position, type in enumerate(types)]
    returned = _scalars(_emit(op, operands, types, result, dict(attributes)))
    register = returned[0].register
    if len(returned) == 1:
        emitter.line(f"ret {register} {returned[0].text}")
    else:
        register = f"{{ {register}, {register} }}"
        pair = emitter.value(f"insertvalue {register} poison, {returned[0].register} {returned[0].text}, 0")
        pair = emitter.value(f"insertvalue {register} {pair}, {returned[1].register} {returned[1].text}, 1")
        emitter.line(f"ret {register} {pair}")
    name = ".".join([op, *dict.fromkeys(types), result, *(str(value) for _, value in attributes)])
    parameters = ", ".join(f"{x.register} {x.text}" for operand in operands for x in _scalars(operand))
    head = f"define internal {register} @{name}({parameters}) alwaysinline nounwind memory(none) {{"
    return _Function(name, "\n".join([head, *emitter.lines, "}"]), register, frozenset(emitter.declarations))


class _Printer:
    """Prints one kernel; `values` maps the names of the loop IR to scalars."""

    def __init__(self, kernel: Kernel, masked_tails: bool) -> None:
        self.kernel = kernel
        self.masked_tails = masked_tails
        self.emitter = Emitter()
        self.values: dict[str, Number] = {}
        self.functions: dict[str, str] = {}
        self.metadata: list[str] = []
        self.parallel = ""  # the access group of the loop whose statements are printed now, as an instruction's suffix

    def module(self, name: str) -> str:
        kernel, emitter = self.kernel, self.emitter
        for bound in (kernel.first, kernel.last):
            self.values[bound.name] = _named(emitter, bound.type, bound.name)
        self._scratch(kernel.scratch)
        self._block(kernel.body)
        emitter.line("ret void")
        parameters = [_parameter(buffer) for buffer in kernel.arguments] + [
            f"i64 %{kernel.first.name}",
            f"i64 %{kernel.last.name}",
        ]
        return "\n".join(
            [
                *_entry(name, kernel),
                f"define internal void @{name}.body({', '.join(parameters)}) #0 {{",
                "entry:",
                *emitter.lines,
                "}",
                *self.functions.values(),
                *sorted(emitter.declarations),
                'attributes #0 = { noinline nounwind "prefer-vector-width"="512" "no-trapping-math"="true" }',
                *self.metadata,
                "",
            ]
        )

    def _scratch(self, buffers: Sequence[Buffer]) -> None:
        total = 0
        for buffer in buffers:
            size = buffer.size or 0
            memory, count = _memory(buffer.type), size * (2 if buffer.type in _PARTS else 1)
            total += count * _BYTES[memory]
            self.emitter.line(f"%{buffer.name} = alloca [{count} x {memory}], align 64")
        if total > SCRATCH_LIMIT:
            raise UnsupportedKernel(
                f"The scratch of a kernel takes {total} bytes, and may take {SCRATCH_LIMIT}; fuse less into the kernel."
            )

    def _block(self, statements: Sequence[Statement]) -> None:
        for statement in statements:
            if isinstance(statement, Compute):
                self.values[statement.result.name] = self._compute(statement)
            elif isinstance(statement, Load):
                self.values[statement.result.name] = self._load(statement)
            elif isinstance(statement, Store):
                self._store(statement)
            else:
                self._loop(statement)

    def _operand(self, operand: Operand) -> Number:
        if isinstance(operand, Value):
            return self.values[operand.name]
        held = _register_type(operand.type)
        parts = (operand.value.real, operand.value.imag) if operand.type in _PARTS else (operand.value,)
        return _number(self.emitter, operand.type, [constant(held, part) for part in parts])

    def _index(self, index: Index) -> str:
        return str(index) if isinstance(index, int) else self._operand(index).text

    def _compute(self, compute: Compute) -> Number:
        op, result, attributes = compute.op, compute.result.type, compute.attributes
        operands = [self._operand(x) for x in compute.operands]
        if attributes == _INDEXING:
            return _INDEX[op](*operands).bitcast("s64")
        types = tuple(x.type for x in compute.operands)
        for type in (*types, result):
            _register_type(type)
        if op in _INLINE:
            return _emit(op, operands, types, result, dict(attributes))
        function = _function(op, types, result, attributes)
        self.functions[function.name] = function.text
        self.emitter.declarations |= function.declarations
        arguments = ", ".join(f"{x.register} {x.text}" for operand in operands for x in _scalars(operand))
        value = self.emitter.value(f"call {function.result} @{function.name}({arguments})")
        if result not in _PARTS:
            return _number(self.emitter, result, [value])
        parts = [self.emitter.value(f"extractvalue {function.result} {value}, {k}") for k in (0, 1)]
        return _number(self.emitter, result, parts)

    def _addresses(self, buffer: Buffer, index: Index) -> list[str]:
        """Of the element; of its real and its imaginary part."""
        memory, position = _memory(buffer.type), self._index(index)
        address = self.emitter.value
        if buffer.type not in _PARTS:
            return [address(f"getelementptr inbounds {memory}, ptr %{buffer.name}, i64 {position}")]
        pair = f"{{ {memory}, {memory} }}"
        return [
            address(f"getelementptr inbounds {pair}, ptr %{buffer.name}, i64 {position}, i32 {part}") for part in (0, 1)
        ]

    def _load(self, load: Load) -> Number:
        emitter, type = self.emitter, load.buffer.type
        memory = _memory(type)
        addresses = self._addresses(load.buffer, load.index)
        texts = [
            emitter.value(f"load {memory}, ptr {address}, align {_BYTES[memory]}{self.parallel}") for address in addresses
        ]
        if type == "pred":
            return LlvmScalar(emitter, "pred", emitter.value(f"icmp ne i8 {texts[0]}, 0"))
        if type == "bf16":
            return _widen(LlvmScalar(emitter, "u16", texts[0]), type)
        if type == "f16":
            return LlvmScalar(emitter, "f32", emitter.value(f"fpext half {texts[0]} to float"))
        return _number(emitter, type, texts)

    def _store(self, store: Store) -> None:
        emitter, type = self.emitter, store.buffer.type
        memory = _memory(type)
        value: Any = self._operand(store.value)
        addresses = self._addresses(store.buffer, store.index)
        if type == "pred":
            value = value.to("u8")
        elif type == "bf16":
            value = _narrow(value, type)
        texts = [x.text for x in _scalars(value)]
        if type == "f16":
            texts = [emitter.value(f"fptrunc float {value.text} to half")]
        for text, address in zip(texts, addresses, strict=True):
            emitter.line(f"store {memory} {text}, ptr {address}, align {_BYTES[memory]}{self.parallel}")

    def _loop(self, loop: Loop) -> None:
        start, stop = loop.start, loop.stop
        if isinstance(start, int) and isinstance(stop, int) and start >= stop:
            for carried in loop.carried:
                self.values[carried.result.name] = self._operand(carried.initial)
            return
        guarded = not (isinstance(start, int) and isinstance(stop, int))
        emitter, name = self.emitter, loop.index.name
        before, body, end = emitter.block, f"{name}.body", f"{name}.end"
        first, limit = self._index(start), self._index(stop)
        if guarded:
            some = emitter.value(f"icmp slt i64 {first}, {limit}")
            emitter.line(f"br i1 {some}, label %{body}, label %{end}")
        else:
            emitter.line(f"br label %{body}")
        emitter.start_block(body)
        phis = len(emitter.lines)
        self.values[name] = _named(emitter, loop.index.type, name)
        initials = [self._operand(carried.initial) for carried in loop.carried]
        for carried in loop.carried:
            self.values[carried.inside.name] = _named(emitter, carried.inside.type, carried.inside.name)
        annotation = self._annotate(loop)
        self._block(loop.body)
        self.parallel = ""
        updates = [self._operand(_updated(carried)) for carried in loop.carried]
        emitter.line(f"%{name}.next = add nsw i64 %{name}, 1")
        emitter.line(f"%{name}.more = icmp slt i64 %{name}.next, {limit}")
        emitter.line(f"br i1 %{name}.more, label %{body}, label %{end}{annotation}")
        latch = emitter.block
        emitter.start_block(end)
        merged = [f"  %{name} = phi i64 [ {first}, %{before} ], [ %{name}.next, %{latch} ]"]
        for carried, initial, updated in zip(loop.carried, initials, updates, strict=True):
            merged += _phis(self.values[carried.inside.name], (initial, before), (updated, latch))
            if guarded:
                result = _named(emitter, carried.result.type, carried.result.name)
                emitter.lines += _phis(result, (initial, before), (updated, latch))
            else:
                result = updated
            self.values[carried.result.name] = result
        emitter.lines[phis:phis] = merged

    def _annotate(self, loop: Loop) -> str:
        """What LLVM should know of an innermost loop, as the suffix of its branch: that its iterations do not meet in memory,
        and whether to mask its tail."""
        if any(isinstance(statement, Loop) for statement in loop.body):
            return ""
        facts: list[str] = []
        if not loop.sequential:
            group = self._describe("distinct !{}")
            self.parallel = f", !llvm.access.group {group}"
            facts.append(self._describe(f'!{{!"llvm.loop.parallel_accesses", {group}}}'))
        if self.masked_tails and isinstance(loop.start, int) and isinstance(loop.stop, int):
            count = loop.stop - loop.start
            if count % _VECTOR and count < _LONG:
                facts.append(self._describe('!{!"llvm.loop.vectorize.predicate.enable", i1 true}'))
        if not facts:
            return ""
        itself = f"!{len(self.metadata)}"  # LLVM tells loops apart by a node that begins with itself
        self._describe(f"distinct !{{{', '.join([itself, *facts])}}}")
        return f", !llvm.loop {itself}"

    def _describe(self, content: str) -> str:
        """Append a line of metadata; its name."""
        name = f"!{len(self.metadata)}"
        self.metadata.append(f"{name} = {content}")
        return name


_INDEXING = (("index", True),)


def _updated(carried: Carried) -> Operand:
    return carried.inside if carried.updated is None else carried.updated


def _phis(result: Number, *incoming: tuple[Number, str]) -> list[str]:
    """Merge what comes from each block, for each register of the result."""
    lines: list[str] = []
    for part, scalar in enumerate(_scalars(result)):
        sources = ", ".join(f"[ {_scalars(number)[part].text}, %{block} ]" for number, block in incoming)
        lines.append(f"  {scalar.text} = phi {scalar.register} {sources}")
    return lines


def _memory(type: str) -> str:
    return _MEMORY["f16" if type == "f16" else "bf16" if type == "bf16" else _register_type(type)]


def _parameter(buffer: Buffer) -> str:
    return f"ptr noalias {'' if buffer.written else 'readonly '}%{buffer.name}"


def _entry(name: str, kernel: Kernel) -> list[str]:
    """The public function: it reads the table and calls the body."""
    lines = [f"define void @{name}(ptr %table, i64 %first, i64 %last) nounwind {{"]
    for position in range(len(kernel.arguments)):
        lines.append(f"  %entry{position} = getelementptr inbounds ptr, ptr %table, i64 {position}")
        lines.append(f"  %argument{position} = load ptr, ptr %entry{position}, align 8")
    arguments = [f"ptr %argument{position}" for position in range(len(kernel.arguments))]
    lines.append(f"  tail call void @{name}.body({', '.join([*arguments, 'i64 %first', 'i64 %last'])})")
    return [*lines, "  ret void", "}"]
