"""The scalar that appends LLVM instructions instead of computing: with it, `scalar_math.elementary` makes kernels.

Instructions are LLVM's text form (LLVM Language Reference Manual), put together with f-strings: several times faster
than building objects for them, and what is written here is what one reads in a printed kernel.

No instruction carries a fast-math flag unless a caller asks for it, so that NaN, infinities, signed zeros and the exact
cancellations that argument reduction relies on keep their meaning; a fused multiply-add is made only by `fma`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Literal

from tinyxla.backends.numba.emit.llvm_types import BYTES, REGISTER_TYPES, constant
from tinyxla.scalar_math.float_formats import FORMATS, power_of_two
from tinyxla.scalar_math.scalar import Operand, Scalar

_FLOATS = ("f32", "f64")
_FLOAT_SUFFIXES = {"half": "f16", "float": "f32", "double": "f64"}
SlowPath = Literal["select", "branch", "omit"]
_UNSIGNED_OF_WIDTH = {"s8": "u8", "s16": "u16", "s32": "u32", "s64": "u64", "f32": "u32", "f64": "u64"}


class Emitter:
    """The body of one LLVM function, and the declarations it needs.

    Slow paths are computed always and selected; or branched around, where no loop around is vectorized; or omitted:
    then `omitted` collects their conditions. `has_scalef` says that the processor has an instruction that multiplies
    vectors by powers of two.
    """

    __slots__ = ("block", "count", "declarations", "has_scalef", "lines", "omitted", "slow_path")

    def __init__(self, slow_path: SlowPath = "select", has_scalef: bool = False) -> None:
        self.has_scalef = has_scalef
        self.slow_path = slow_path
        self.omitted: list[str] = []
        self.lines: list[str] = []
        self.declarations: set[str] = set()
        self.count = 0
        self.block = "entry"

    def value(self, instruction: str) -> str:
        """Append an instruction that has a result; the name of the result."""
        self.count += 1
        name = f"%t{self.count}"
        self.lines.append(f"  {name} = {instruction}")
        return name

    def line(self, instruction: str) -> None:
        self.lines.append(f"  {instruction}")

    def start_block(self, label: str) -> None:
        self.block = label
        self.lines.append(f"{label}:")

    def intrinsic(self, name: str, result: str, arguments: str, parameters: str, flags: str = "") -> str:
        """Append a call of the intrinsic `llvm.<name>`; `parameters` are its types alone, for the declaration."""
        self.declarations.add(f"declare {result} @llvm.{name}({parameters})")
        return self.value(f"call {flags}{result} @llvm.{name}({arguments})")


class LlvmScalar:
    """An SSA register or a constant (`text`) of the element type `type`, inside the function that `emitter` builds."""

    __slots__ = ("emitter", "register", "text", "type")

    def __init__(self, emitter: Emitter, type: str, text: str) -> None:
        self.emitter = emitter
        self.type = type
        self.text = text
        self.register = REGISTER_TYPES[type]

    def __repr__(self) -> str:
        return f"LlvmScalar({self.type} {self.text})"

    def known(self) -> float | None:
        """The value of a constant float, or of all lanes."""
        digits = self.text.removeprefix(f"splat ({REGISTER_TYPES[self.type]} ").removesuffix(")")
        is_constant = self.type in _FLOATS and digits.startswith("0x")
        return struct.unpack(">d", bytes.fromhex(digits[2:]))[0] if is_constant else None

    def _text(self, other: Operand) -> str:
        if isinstance(other, float | int):
            return self._constant(other)
        if isinstance(other, LlvmScalar) and other.type == self.type:
            return other.text
        raise TypeError(f"{self!r} and {other!r} have different types; convert one of them with to().")

    def _constant(self, value: float) -> str:
        return constant(self.type, value)

    def of(self, type: str, text: str) -> LlvmScalar:
        """Of as many lanes."""
        return LlvmScalar(self.emitter, type, text)

    def literal(self, value: float) -> LlvmScalar:
        """A constant of this type, in as many lanes."""
        return self._same(self._constant(value))

    def _same(self, text: str) -> LlvmScalar:
        return self.of(self.type, text)

    def _binary(self, opcode: str, left: str, right: str) -> LlvmScalar:
        return self._same(self.emitter.value(f"{opcode} {self.register} {left}, {right}"))

    def _arithmetic(self, opcode: str, left: str, right: str) -> LlvmScalar:
        return self._binary("f" + opcode if self.type in _FLOATS else opcode, left, right)

    def _signed(self) -> bool:
        return self.type[0] == "s"

    def _suffix(self) -> str:
        """How an intrinsic's name mentions this type."""
        return self.type if self.type in _FLOATS else self.register

    def intrinsic(self, name: str, *others: Operand, flags: str = "") -> LlvmScalar:
        """An intrinsic over operands of this type, with a result of this type."""
        register = self.register
        texts = [self.text, *(self._text(x) for x in others)]
        arguments = ", ".join(f"{register} {text}" for text in texts)
        parameters = ", ".join([register] * len(texts))
        return self._same(self.emitter.intrinsic(f"{name}.{self._suffix()}", register, arguments, parameters, flags))

    def flagged(self, opcode: str, flags: str, other: Operand) -> LlvmScalar:
        """One arithmetic instruction with flags (`fadd` with `reassoc`, `add` with `nsw`, ...)."""
        return self._binary(f"{opcode} {flags}", self.text, self._text(other))

    def __add__(self, other: Operand) -> LlvmScalar:
        return self._arithmetic("add", self.text, self._text(other))

    def __radd__(self, other: Operand) -> LlvmScalar:
        return self._arithmetic("add", self._text(other), self.text)

    def __sub__(self, other: Operand) -> LlvmScalar:
        return self._arithmetic("sub", self.text, self._text(other))

    def __rsub__(self, other: Operand) -> LlvmScalar:
        return self._arithmetic("sub", self._text(other), self.text)

    def __mul__(self, other: Operand) -> LlvmScalar:
        return self._arithmetic("mul", self.text, self._text(other))

    def __rmul__(self, other: Operand) -> LlvmScalar:
        return self._arithmetic("mul", self._text(other), self.text)

    def __truediv__(self, other: Operand) -> LlvmScalar:
        return self._binary("fdiv", self.text, self._text(other))

    def __rtruediv__(self, other: Operand) -> LlvmScalar:
        return self._binary("fdiv", self._text(other), self.text)

    def __floordiv__(self, other: Operand) -> LlvmScalar:
        return self._binary("sdiv" if self._signed() else "udiv", self.text, self._text(other))

    def __mod__(self, other: Operand) -> LlvmScalar:
        opcode = "frem" if self.type in _FLOATS else "srem" if self._signed() else "urem"
        return self._binary(opcode, self.text, self._text(other))

    def __neg__(self) -> LlvmScalar:
        if self.type in _FLOATS:
            return self._same(self.emitter.value(f"fneg {self.register} {self.text}"))
        return self._binary("sub", self._constant(0), self.text)

    def __and__(self, other: Operand) -> LlvmScalar:
        return self._binary("and", self.text, self._text(other))

    def __or__(self, other: Operand) -> LlvmScalar:
        return self._binary("or", self.text, self._text(other))

    def __xor__(self, other: Operand) -> LlvmScalar:
        return self._binary("xor", self.text, self._text(other))

    def __invert__(self) -> LlvmScalar:
        return self._binary("xor", self.text, self._constant(-1))

    __rand__ = __and__
    __ror__ = __or__
    __rxor__ = __xor__

    def __lshift__(self, other: Operand) -> LlvmScalar:
        return self._binary("shl", self.text, self._text(other))

    def __rshift__(self, other: Operand) -> LlvmScalar:
        return self._binary("ashr" if self._signed() else "lshr", self.text, self._text(other))

    def _compare(self, floating: str, integer: str, other: Operand) -> LlvmScalar:
        if self.type in _FLOATS:
            opcode = f"fcmp {floating}"
        elif integer in ("eq", "ne"):
            opcode = f"icmp {integer}"
        else:
            opcode = f"icmp {'s' if self._signed() else 'u'}{integer}"
        text = self.emitter.value(f"{opcode} {self.register} {self.text}, {self._text(other)}")
        return self.of("pred", text)

    def __lt__(self, other: Operand) -> LlvmScalar:
        return self._compare("olt", "lt", other)

    def __le__(self, other: Operand) -> LlvmScalar:
        return self._compare("ole", "le", other)

    def __gt__(self, other: Operand) -> LlvmScalar:
        return self._compare("ogt", "gt", other)

    def __ge__(self, other: Operand) -> LlvmScalar:
        return self._compare("oge", "ge", other)

    def equal(self, other: Operand) -> LlvmScalar:
        return self._compare("oeq", "eq", other)

    def not_equal(self, other: Operand) -> LlvmScalar:
        return self._compare("une", "ne", other)

    def fma(self, factor: Operand, addend: Operand) -> LlvmScalar:
        return self.intrinsic("fma", factor, addend)

    def abs(self) -> LlvmScalar:
        if self.type in _FLOATS:
            return self.intrinsic("fabs")
        return (self < 0).where(-self, self) if self._signed() else self

    def sqrt(self) -> LlvmScalar:
        return self.intrinsic("sqrt")

    def rint(self) -> LlvmScalar:
        return self.intrinsic("rint")

    def floor(self) -> LlvmScalar:
        return self.intrinsic("floor")

    def ceil(self) -> LlvmScalar:
        return self.intrinsic("ceil")

    def trunc(self) -> LlvmScalar:
        return self.intrinsic("trunc")

    def copysign(self, sign: Operand) -> LlvmScalar:
        return self.intrinsic("copysign", sign)

    def minimum(self, other: Operand) -> LlvmScalar:
        return self.intrinsic(self._extremum("min"), other)

    def maximum(self, other: Operand) -> LlvmScalar:
        return self.intrinsic(self._extremum("max"), other)

    def _extremum(self, which: str) -> str:
        if self.type in _FLOATS:
            return f"{which}imum"
        return f"{'s' if self._signed() else 'u'}{which}"

    def clip(self, low: float, high: float) -> LlvmScalar:
        """Two compare-and-selects, each of which x86 does with one `max` or `min` instruction."""
        raised = (self > low).where(self, low)
        return (raised < high).where(raised, high)

    def where(self, on_true: Operand, on_false: Operand) -> LlvmScalar:
        branch = on_true if isinstance(on_true, LlvmScalar) else on_false
        if not isinstance(branch, LlvmScalar):
            raise TypeError(f"where({on_true}, {on_false}) needs a scalar as one of its branches to know the type.")
        register = branch.register
        texts = f"{register} {branch._text(on_true)}, {register} {branch._text(on_false)}"
        return branch._same(self.emitter.value(f"select {self.register} {self.text}, {texts}"))

    @property
    def branches(self) -> bool:
        return self.emitter.slow_path == "branch"

    def slow_path(self, on_true: Callable[[], Sequence[Scalar]], on_false: Sequence[Scalar]) -> Sequence[Scalar]:
        emitter = self.emitter
        if emitter.slow_path == "omit":
            emitter.omitted.append(self.text)
            return on_false
        if emitter.slow_path == "select":
            return [self.where(x, y) for x, y in zip(on_true(), on_false, strict=True)]
        usual, number = emitter.block, len(emitter.lines)
        emitter.line(f"br i1 {self.text}, label %rare{number}, label %both{number}")
        emitter.start_block(f"rare{number}")
        found = on_true()
        rare = emitter.block
        emitter.line(f"br label %both{number}")
        emitter.start_block(f"both{number}")
        merged: list[Scalar] = []
        for x, y in zip(found, on_false, strict=True):
            assert isinstance(x, LlvmScalar)
            text = f"phi {x.register} [ {x.text}, %{rare} ], [ {x._text(y)}, %{usual} ]"
            merged.append(x._same(emitter.value(text)))
        return merged

    def to(self, type: str) -> LlvmScalar:
        if type == self.type:
            return self
        if type == "pred":
            return self.not_equal(0)
        if self.type == "pred" and type in _FLOATS:  # a vector's mask chooses quicker than it becomes numbers
            return self.where(self.of(type, "").literal(1), 0)
        opcode, target = _conversion(self.type, type), self.of(type, self.text)
        if opcode is None:
            return target
        return self.of(type, self.emitter.value(f"{opcode} {self.register} {self.text} to {target.register}"))

    def bits(self) -> LlvmScalar:
        return self.bitcast(_UNSIGNED_OF_WIDTH.get(self.type, self.type))

    def bitcast(self, type: str) -> LlvmScalar:
        target = self.of(type, self.text)
        if target.register == self.register:
            return target
        return self.of(type, self.emitter.value(f"bitcast {self.register} {self.text} to {target.register}"))

    def ldexp(self, exponent: Scalar) -> LlvmScalar:
        """By the processor's instruction where there is one; else in two steps, of which the first is exact."""
        assert isinstance(exponent, LlvmScalar)
        if self.emitter.has_scalef:
            integer, register = exponent.register, self.register
            arguments, parameters = f"{register} {self.text}, {integer} {exponent.text}", f"{register}, {integer}"
            name = f"ldexp.{self._suffix()}.{exponent._suffix()}"
            return self._same(self.emitter.intrinsic(name, register, arguments, parameters))
        form = FORMATS[self.type]
        half = (exponent.bitcast(form.signed) >> 1).bits()
        return self * power_of_two(half, form) * power_of_two(exponent - half, form)

    def count_leading_zeros(self) -> LlvmScalar:
        register = self.register
        arguments, parameters = f"{register} {self.text}, i1 false", f"{register}, i1"
        return self._same(self.emitter.intrinsic(f"ctlz.{self._suffix()}", register, arguments, parameters))

    def population_count(self) -> LlvmScalar:
        return self.intrinsic("ctpop")


class LlvmVector(LlvmScalar):
    """A vector of `lanes` elements."""

    __slots__ = ("lanes",)

    def __init__(self, emitter: Emitter, type: str, text: str, lanes: int) -> None:
        super().__init__(emitter, type, text)
        self.lanes, self.register = lanes, f"<{lanes} x {self.register}>"

    def _constant(self, value: float) -> str:
        return splat(self.type, constant(self.type, value))

    def of(self, type: str, text: str) -> LlvmVector:
        return LlvmVector(self.emitter, type, text, self.lanes)

    def bitcast(self, type: str) -> LlvmScalar:
        """The same bits as lanes of a type: fewer if they are wider, or one scalar."""
        bytes_before, bytes_after = (BYTES[REGISTER_TYPES[x]] for x in (self.type, type))
        lanes = self.lanes * bytes_before // bytes_after
        target = LlvmVector(self.emitter, type, self.text, lanes) if lanes > 1 else LlvmScalar(self.emitter, type, "")
        if target.register == self.register:
            return target
        return target.of(type, self.emitter.value(f"bitcast {self.register} {self.text} to {target.register}"))

    def _suffix(self) -> str:
        return mangled(REGISTER_TYPES[self.type], self.lanes)


def mangled(type: str, lanes: int) -> str:
    """How an intrinsic's name mentions the vector of so many elements of an LLVM type."""
    return f"v{lanes}{_FLOAT_SUFFIXES.get(type, type)}"


def splat(type: str, text: str) -> str:
    """A constant vector of equal elements, which are constants."""
    return f"splat ({REGISTER_TYPES[type]} {text})"


def broadcast(x: LlvmScalar, lanes: int) -> LlvmVector:
    """A vector of equal elements."""
    emitter, register = x.emitter, f"<{lanes} x {x.register}>"
    if not x.text.startswith("%"):
        return LlvmVector(emitter, x.type, splat(x.type, x.text), lanes)
    one = emitter.value(f"insertelement {register} poison, {x.register} {x.text}, i64 0")
    text = emitter.value(f"shufflevector {register} {one}, {register} poison, <{lanes} x i32> zeroinitializer")
    return LlvmVector(emitter, x.type, text, lanes)


def _conversion(source: str, target: str) -> str | None:
    """The instruction that converts by value; None where the register stays the same."""
    if source in _FLOATS and target in _FLOATS:
        return "fpext" if target == "f64" else "fptrunc"
    if source in _FLOATS:
        return "fptosi" if target[0] == "s" else "fptoui"
    if target in _FLOATS:
        return "sitofp" if source[0] == "s" else "uitofp"
    if source == "pred":
        return "zext"
    narrow, wide = int(source[1:]), int(target[1:])
    if narrow == wide:
        return None
    if narrow > wide:
        return "trunc"
    return "sext" if source[0] == "s" else "zext"
