"""GEMM packing: row-major and transposing copies that convert elements to the type of packed panels, as LLVM text.

A routine takes the target's address, the source's address and an array of its arguments (`COPY_ARGUMENTS`): it copies
`rows` rows of `columns` elements with a pitch of `source_pitch` elements to rows with a pitch of `target_pitch`. The
text is vector code that needs none of LLVM's loop passes.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from string import Template

from tinyxla.loopir.kernels.gemm.arithmetic import Arithmetic, bits_of
from tinyxla.loopir.lower.routine_calls import declare_routine, load_arguments
from tinyxla.loopir.target import vector_bytes

COPY_ARGUMENTS = ("columns", "source_pitch", "rows", "target_pitch", "terms")  # of every routine here
_PREFETCH_ROWS = 16  # rows that prefetches run ahead of the copy
_FLOATS = {"f16": "half", "f32": "float", "f64": "double"}


def transpose_size() -> int:
    """Rows of the square tile that is transposed in registers."""
    return 8 if vector_bytes() == 64 else 4


@dataclass(frozen=True)
class _Conversion:
    """A conversion of elements from type `source` in memory to type `target` of a panel."""

    source: str
    target: str

    @property
    def memory_type(self) -> str:
        """The LLVM type in which elements are loaded."""
        is_moved = self.source == self.target
        return f"i{bits_of(self.source)}" if is_moved else _FLOATS.get(self.source, f"i{bits_of(self.source)}")

    @property
    def word(self) -> str:
        """The LLVM integer type in which elements are stored."""
        return f"i{bits_of(self.target)}"

    def convert(self, x: str, count: int) -> tuple[str, list[str]]:
        """LLVM text that converts a vector of `count` elements to words: the result's name and the instructions."""
        to = _FLOATS.get(self.target, self.word)
        type, name, code = self.memory_type, x, list[str]()

        def step(instruction: str, target: str) -> None:
            nonlocal type, name
            code.append(f"  {name}.c = {instruction} <{count} x {type}> {name} to <{count} x {target}>")
            type, name = target, f"{name}.c"

        if self.source == "bf16" and self.target in _FLOATS:
            step("zext", "i32")
            moved = ", ".join(["i32 16"] * count)
            code.append(f"  {name}.s = shl <{count} x i32> {name}, <{moved}>")
            name += ".s"
            if to != "float":
                step("bitcast", "float")
        if type in _FLOATS.values() and type != to:
            step("fpext" if bits_of(self.source) < bits_of(self.target) else "fptrunc", to)
        elif type.startswith("i") and not to.startswith("f") and to != "double" and type != to:
            widening = "sext" if self.source[0] == "s" else "zext"
            step(widening if bits_of(self.source) < bits_of(self.target) else "trunc", to)
        if type != self.word:
            step("bitcast", self.word)
        return name, code


def _conversion(source: str, target: str) -> _Conversion:
    """The conversion, or a copy of plain words where none is needed, so that equal routines share one name."""
    is_same = source == target or (source, target) == ("bf16", "u16")
    return _Conversion(*2 * (f"u{bits_of(source)}",)) if is_same else _Conversion(source, target)


# --- row-major copies -------------------------------------------------------------------------------------------------

_PACK_ROWS = Template("""
define void @routine(ptr noalias %to, ptr noalias readonly %from, ptr readonly %numbers) nounwind {
entry:
$numbers
  %prefetch_distance = mul i64 %source_pitch, $prefetch_rows
  br label %row
row:
  %i = phi i64 [ 0, %entry ], [ %i_next, %row_end ]
  %first = mul i64 %i, $factors
  %offset = mul i64 %first, %source_pitch
  %source0 = getelementptr $memory_type, ptr %from, i64 %offset
$starts
  %target = getelementptr $word, ptr %to, i64 (mul i64 %i, %target_pitch)
  br label %vector
vector:
  %j = phi i64 [ 0, %row ], [ %j_next, %loaded ]
$addresses
  %j_next = add nsw i64 %j, $lanes
  br i1 (icmp sle i64 %j_next, $complete), label %full, label %masked
full:
$full_loads
  br label %loaded
masked:
$masked_loads
  br label %loaded
loaded:
$conversions
  store <$lanes x $word> $packed, ptr %target[$word %j], align $bytes
  br i1 (icmp slt i64 %j_next, %columns), label %vector, label %row_end
row_end:
  %i_next = add nsw i64 %i, 1
  br i1 (icmp slt i64 %i_next, %rows), label %row, label %done
done:
  ret void
}

declare <$lanes x i1> @llvm.get.active.lane.mask.v${lanes}i1.i64(i64, i64)
declare <$lanes x $memory_type> @llvm.masked.load.v${lanes}$suffix.p0(ptr, i32, <$lanes x i1>, <$lanes x $memory_type>)
declare void @llvm.prefetch.p0(ptr, i32, i32, i32)
""")

_MASKED_LOAD = Template("""
  %$name.mask = call <$lanes x i1> @llvm.get.active.lane.mask.v${lanes}i1.i64(i64 $first, i64 %$end)
  %$name.at = getelementptr $memory_type, ptr %$source, i64 $first
  %$name = call <$lanes x $memory_type> @llvm.masked.load.v${lanes}$suffix.p0(
    ptr %$name.at, i32 $size, <$lanes x i1> %$name.mask, <$lanes x $memory_type> zeroinitializer)""")


def _suffix(memory_type: str) -> str:
    """An LLVM type as part of an intrinsic's name."""
    return {"half": "f16", "float": "f32", "double": "f64"}.get(memory_type, memory_type)


@functools.cache
def pack_rows(source: str, arithmetic: Arithmetic, combines: bool) -> str:
    """Declare `pack_rows(to, from, arguments)` and return its symbol: to[i, j] = from[i, j], zero-padded to a full
    vector.

    With `combines`, word to[i, j] combines elements j of as many successive source rows as the arithmetic has factors
    per word; of source rows there are `terms`. Only the last vector of a row is loaded with a mask: where processors
    have no masked loads of the type, LLVM loads element by element.
    """
    conversion, factors = _conversion(source, arithmetic.panel_type), arithmetic.factors_per_word if combines else 1
    count = (
        arithmetic.lanes
        if combines
        else 8 * vector_bytes() // bits_of(arithmetic.panel_type) // arithmetic.vector_divisor
    )
    memory_type = conversion.memory_type
    names = {"memory_type": memory_type, "lanes": count, "suffix": _suffix(memory_type), "size": bits_of(source) // 8}
    vector = f"<{count} x {conversion.memory_type}>"
    packed, starts, addresses = "", list[str](), list[str]()
    full_loads, masked_loads, conversions = list[str](), list[str](), list[str]()
    for k in range(factors):
        if k:
            starts.append(f"  %source{k} = getelementptr {memory_type}, ptr %source{k - 1}, i64 %source_pitch")
            starts.append(f"  %end{k} = select i1 (icmp slt i64 (add i64 %first, {k}), %terms), i64 %columns, i64 0")
        end = f"end{k}" if k else "columns"
        addresses.append(f"  %address{k} = getelementptr {memory_type}, ptr %source{k}, i64 %j")
        addresses.append(f"  %prefetch{k} = getelementptr {memory_type}, ptr %address{k}, i64 %prefetch_distance")
        addresses.append(f"  call void @llvm.prefetch.p0(ptr %prefetch{k}, i32 0, i32 3, i32 1)")
        full_loads.append(f"  %full{k} = load {vector}, ptr %address{k}, align {names['size']}")
        masked_loads.append(_MASKED_LOAD.substitute(names, name=f"masked{k}", source=f"source{k}", first="%j", end=end))
        conversions.append(f"  %x{k} = phi {vector} [ %full{k}, %full ], [ %masked{k}, %masked ]")
    for k in range(factors):
        value, instructions = conversion.convert(f"%x{k}", count)
        conversions += instructions
        if combines:
            bits = bits_of(arithmetic.panel_type)
            moved = ", ".join([f"i32 {k * bits}"] * count)
            conversions.append(f"  %x{k}.wide = zext <{count} x i{bits}> {value} to <{count} x i32>")
            conversions.append(f"  %x{k}.moved = shl <{count} x i32> %x{k}.wide, <{moved}>")
            value = f"%x{k}.moved"
        if k:
            conversions.append(f"  %combined{k} = or <{count} x i32> {packed}, {value}")
            value = f"%combined{k}"
        packed = value
    word = "i32" if combines else conversion.word
    names |= {"word": word, "bytes": int(word[1:]) // 8, "packed": packed, "factors": factors}
    names["prefetch_rows"] = _PREFETCH_ROWS
    blocks = {"starts": starts, "addresses": addresses, "full_loads": full_loads, "masked_loads": masked_loads}
    blocks |= {"conversions": conversions}
    names |= {name: "\n".join(block) for name, block in blocks.items()}
    names["complete"] = f"%end{factors - 1}" if factors > 1 else "%columns"  # the last row is the shortest
    routine = _PACK_ROWS.substitute(names, numbers=load_arguments(COPY_ARGUMENTS))
    return declare_routine(
        f"pack_rows_{conversion.source}_{conversion.target}_{factors}_{arithmetic.vector_divisor}", routine
    )


# --- transposing copies -----------------------------------------------------------------------------------------------

_TRANSPOSE = Template("""
define void @routine(ptr noalias %to, ptr noalias readonly %from, ptr readonly %numbers) nounwind {
entry:
$numbers
  %last = sub i64 %rows, 1
$starts
  %full_columns = and i64 $complete, -$height
  br i1 (icmp sgt i64 %full_columns, 0), label %square, label %remainder
square:
  %p = phi i64 [ 0, %entry ], [ %next, %square ]
  %term = mul i64 %p, $step
  %to0 = getelementptr $word, ptr %to, i64 (mul i64 %p, %target_pitch)
$square
  %next = add nsw i64 %p, $height
  br i1 (icmp slt i64 %next, %full_columns), label %square, label %remainder
remainder:
  br i1 (icmp slt i64 %full_columns, %columns), label %column, label %done
column:
  %q = phi i64 [ %full_columns, %remainder ], [ %q_next, %column ]
  %from_term = mul i64 %q, $step
  %into = getelementptr $word, ptr %to, i64 (mul i64 %q, %target_pitch)
$elements
  %q_next = add nsw i64 %q, 1
  br i1 (icmp slt i64 %q_next, %columns), label %column, label %done
done:
  ret void
}

declare i64 @llvm.smin.i64(i64, i64)
""")

_FULL_WORDS = Template("""
  %words = ashr i64 %terms, $shift
  %complete = call i64 @llvm.smin.i64(i64 %words, i64 %columns)""")

_MASKED_LOAD_DECLARATIONS = Template("""
declare <$lanes x i1> @llvm.get.active.lane.mask.v${lanes}i1.i64(i64, i64)
declare <$lanes x $memory_type> @llvm.masked.load.v${lanes}$suffix.p0(ptr, i32, <$lanes x i1>, <$lanes x $memory_type>)
""")


def transpose(bits: int, is_exact: bool = False) -> str:
    """Declare `transpose(to, from, arguments)` and return its symbol: to[j, i] = from[i, j] for `columns` j and a tile
    of i. Beyond `rows` the last row is repeated, or with `is_exact` nothing is stored."""
    return _declare_transpose(_conversion(f"u{bits}", f"u{bits}"), 1, is_exact)


def pack_transposed(source: str, arithmetic: Arithmetic) -> str:
    """The transposing copy with a conversion for a GEMM; where words combine several elements, a source row has `terms`
    elements."""
    return _declare_transpose(_conversion(source, arithmetic.panel_type), arithmetic.factors_per_word)


def _exchange_bits(vectors: list[str], type: str) -> tuple[list[str], list[str]]:
    """The transpose of n vectors of n elements by log2(n) butterfly steps: the values' names and the instructions."""
    rows, code = len(vectors), list[str]()
    for bit in (1 << k for k in range(rows.bit_length() - 1)):
        exchanged = list(vectors)
        for i in (i for i in range(rows) if not i & bit):
            pair = f"{type} {vectors[i]}, {type} {vectors[i | bit]}"
            for row in (i, i | bit):
                from_low = [k if not k & bit else k - bit + rows for k in range(rows)]
                order = ", ".join(f"i32 {k + bit * (row != i)}" for k in from_low)
                exchanged[row] = f"%w{bit}.{row}"
                code.append(f"  {exchanged[row]} = shufflevector {pair}, <{rows} x i32> <{order}>")
        vectors = exchanged
    return vectors, code


@functools.cache
def _declare_transpose(conversion: _Conversion, step: int, is_exact: bool = False) -> str:
    """In-register transposes of square tiles: rows whose numbers differ in one bit exchange half of their elements, bit
    by bit."""
    rows, bits = transpose_size(), bits_of(conversion.target) * step
    count, size = rows * step, bits_of(conversion.source) // 8
    word, vector = f"i{bits}", f"<{rows} x i{bits}>"
    memory_type = conversion.memory_type
    names = {"memory_type": memory_type, "lanes": count, "suffix": _suffix(memory_type), "size": size}
    starts, square, elements, vectors = list[str](), list[str](), list[str](), list[str]()
    lanes = rows * max(1, bits // 64)
    masked, masked_type = f"<{lanes} x i{min(bits, 64)}>", f"v{lanes}i{min(bits, 64)}"
    active_lanes = f"@llvm.get.active.lane.mask.v{lanes}i1.i64"
    if is_exact:
        starts.append(f"  %store_lanes = mul i64 %rows, {lanes // rows}")
        starts.append(f"  %mask = call <{lanes} x i1> {active_lanes}(i64 0, i64 %store_lanes)")

    def store(x: str, at: str) -> list[str]:
        if not is_exact:
            return [f"  store {vector} {x}, ptr {at}, align {bits // 8}"]
        operands = f"{masked} {x}.m, ptr {at}, i32 {min(bits, 64) // 8}, <{lanes} x i1> %mask"
        return [
            f"  {x}.m = bitcast {vector} {x} to {masked}",
            f"  call void @llvm.masked.store.{masked_type}.p0({operands})",
        ]

    for i in range(rows):
        starts += [
            f"  %source_row{i} = call i64 @llvm.smin.i64(i64 {i}, i64 %last)",
            f"  %start{i} = mul i64 %source_row{i}, %source_pitch",
            f"  %from{i} = getelementptr {memory_type}, ptr %from, i64 %start{i}",
        ]
        square.append(f"  %at{i} = getelementptr {memory_type}, ptr %from{i}, i64 %term")
        square.append(f"  %v{i} = load <{count} x {memory_type}>, ptr %at{i}, align {size}")
        loaded = count if step > 1 else 1
        if step > 1:
            operands = {"name": f"x{i}", "source": f"from{i}", "first": "%from_term", "end": "terms"}
            elements.append(_MASKED_LOAD.substitute(names, **operands))
        else:
            elements.append(f"  %one{i} = getelementptr {memory_type}, ptr %from{i}, i64 %q")
            elements.append(f"  %x{i} = load <1 x {memory_type}>, ptr %one{i}, align {size}")
        for name, length, text in ((f"%v{i}", count, square), (f"%x{i}", loaded, elements)):
            value, instructions = conversion.convert(name, length)
            text += instructions
            text.append(f"  {name}.w = bitcast <{length} x {conversion.word}> {value} to <{length // step} x {word}>")
        vectors.append(f"%v{i}.w")
        elements += [
            f"  %e{i} = extractelement <{loaded // step} x {word}> %x{i}.w, i64 0",
            f"  %full{i + 1} = insertelement {vector} {f'%full{i}' if i else 'poison'}, {word} %e{i}, i64 {i}",
        ]
    elements += store(f"%full{rows}", "%into")
    vectors, exchanges = _exchange_bits(vectors, vector)
    square += exchanges
    for i, column in enumerate(vectors):
        square += store(column, f"%to{i}")
        square.append(f"  %to{i + 1} = getelementptr {word}, ptr %to{i}, i64 %target_pitch")
    text = _TRANSPOSE.substitute(
        height=rows,
        word=word,
        step=step,
        complete="%columns" if step == 1 else "%complete",
        numbers=load_arguments(COPY_ARGUMENTS)
        + (_FULL_WORDS.substitute(shift=step.bit_length() - 1) if step > 1 else ""),
        starts="\n".join(starts),
        square="\n".join(square),
        elements="\n".join(elements),
    )
    if is_exact:
        text += f"declare <{lanes} x i1> {active_lanes}(i64, i64)\n"
        text += f"declare void @llvm.masked.store.{masked_type}.p0({masked}, ptr, i32, <{lanes} x i1>)\n"
    name = f"transpose_{conversion.source}_{conversion.target}_{step}_{is_exact}"
    return declare_routine(name, text + (_MASKED_LOAD_DECLARATIONS.substitute(names) if step > 1 else ""))
