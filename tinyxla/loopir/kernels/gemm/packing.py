"""How products are summed, and copies for them: routines for any sizes, as text that needs none of LLVM's passes.

Each routine takes two addresses, and that of its numbers: it copies lines that lie `row` elements apart to lines that
lie `pitch` apart, and gives elements the type that products have.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from string import Template

from tinyxla.loopir.kernels.gemm.amx import BLOCK, FEATURES, SIDE
from tinyxla.loopir.lower.routine_calls import declare_routine, load_arguments
from tinyxla.loopir.target import has_feature, has_tiles, vector_bytes

FEW_ROWS = 16  # for which tiles are chosen: how many more there are shall not matter for which code is needed
COPY = ("steps", "row", "rows", "pitch", "terms")
_SOON = 16  # lines from the one that is copied to what is asked for meanwhile
_MANY_PRODUCTS = 1 << 13  # for which a matrix unit takes less time than vectors, even if they are of few terms
_SHORT_RUN, _LONG_RUN = 6, 16  # rows of a tile of one vector that slide along terms
_MOST_BLOCKS = 4  # of a matrix unit side by side, for which the left operand stays in the first cache
_BITS = {"f32": 32, "f64": 64, "f16": 16, "bf16": 16, "pred": 8}
PAIRS = {  # what multiplies pairs of s16 and adds both, by the bytes of a vector: the feature, and LLVM's name
    64: ("avx512bw", "avx512.pmaddw.d.512"),
    32: ("avx2", "avx2.pmadd.wd"),
    16: ("sse2", "sse2.pmadd.wd"),
}
_FLOATS = {"f16": "half", "f32": "float", "f64": "double"}


def bits_of(type: str) -> int:
    """Of an element in memory."""
    return _BITS[type] if type in _BITS else int(type[1:])


@dataclass(frozen=True)
class Arithmetic:
    """What is summed in, how many factors are multiplied and added at once - one, or those in a word of 32 bits -, how
    many vectors, or which part of one, are a row of a tile, how many of its rows lie equally far apart in the left
    operand, and along how many terms they slide: each of these moves what is read of it by a row."""

    total: str
    packed: str = ""  # the type of the factors in a word
    vectors: int = 1
    part: int = 1  # 2 for half a vector
    run: int = 1
    taps: int = 1
    few: int = 0  # rows of a tile that is for few of them, and asks early for what it reads of the right operand
    in_unit: bool = False  # whether tiles are those of a matrix unit, in which it computes blocks

    @property
    def step(self) -> int:
        return 32 // bits_of(self.packed) if self.packed else 1

    @property
    def held(self) -> str:
        """The type of what panels hold."""
        return "u16" if self.packed == "bf16" else self.packed or self.total

    @property
    def bits(self) -> int:
        """Of what a step takes of a row: an element or a word of several."""
        return bits_of(self.total)

    @property
    def lanes(self) -> int:
        return 8 * vector_bytes() // self.bits // self.part

    @property
    def width(self) -> int:
        """Columns of a tile."""
        return self.vectors * self.lanes

    @property
    def rows(self) -> int:
        """Of a tile: beyond, their sums or their addresses do not fit into registers."""
        if self.in_unit:
            return BLOCK
        if self.taps > 1:
            return self.run
        if self.few:
            return self.few
        most = (24 if vector_bytes() == 64 else 12) // self.vectors
        return min(8 * self.run, most // self.run * self.run)

    @property
    def whole(self) -> int:
        """Steps of the sum that are done at once."""
        return SIDE if self.in_unit else 1

    def fitting(self, rows: int, columns: int, steps: int, run: int = 1) -> Arithmetic:
        """With tiles that take the least time: what of them is outside of so many rows, columns and steps of the sum is
        in vain. Of the rows, so many may lie equally apart."""

        def time(kind: Arithmetic) -> float:
            down = -(-rows // kind.rows) if rows <= FEW_ROWS else rows / kind.rows
            return down * -(-columns // kind.width) * (max(kind.rows * kind.vectors, kind.rows + kind.vectors) + 2)

        if self._has_unit() and (steps >= SIDE or rows * columns * steps >= _MANY_PRODUCTS):
            blocks = min(_MOST_BLOCKS, -(-columns // BLOCK))
            return replace(self, vectors=BLOCK // SIDE * (1 << (blocks - 1).bit_length()), in_unit=True)
        part, counts = 1, [v for v in (4, 3, 2, 1) if vector_bytes() == 64 or v < 3]
        if vector_bytes() == 64 and not self.packed and 2 * columns <= self.lanes:
            part, counts = 2, [1]  # of which processors may add two at once
        kinds = (replace(self, vectors=v, part=part, run=r, in_unit=False) for v in counts for r in sorted({1, run}))
        return min((kind for kind in kinds if kind.rows), key=time)

    def streaming(self, rows: int, columns: int) -> Arithmetic:
        """With a tile of few rows: what takes time is how the right operand comes from memory."""
        tiles = ((8, 2), (6, 4), (4, 4), (2, 8)) if vector_bytes() == 64 else ((6, 2), (4, 2), (2, 4))
        across = -(-columns // self.lanes)
        kinds = [replace(self, few=r, vectors=v) for r, v in tiles if v <= across]

        def time(kind: Arithmetic) -> int:
            loads = kind.rows + 2 * kind.vectors + 2
            return -(-rows // kind.rows) * -(-columns // kind.width) * (max(kind.rows * kind.vectors, loads) + 2)

        return min(kinds, key=time, default=self)

    def sliding(self, places: int, taps: int) -> Arithmetic:
        """With a tile of one vector whose rows, which divide so many places, slide along so many terms."""
        most = min(_LONG_RUN, (32 if vector_bytes() == 64 else 16) - taps - 2)
        run = next((run for run in range(most, _SHORT_RUN - 1, -1) if places % run == 0), 0)
        if not run or taps == 1 or self.packed or self.in_unit:
            return self
        return replace(self, vectors=1, run=run, taps=taps)

    def _has_unit(self) -> bool:
        is_there = self.packed in FEATURES and has_feature(FEATURES[self.packed])
        return is_there and vector_bytes() == 4 * SIDE and has_tiles()


def arithmetic(operands: str, result: str, rows: int, columns: int, terms: int) -> Arithmetic | None:
    """How products of operands of one type are summed in another, if they can be: a matrix product of these sizes."""
    if result in ("s32", "u32") and operands in ("s8", "u8"):
        kind = Arithmetic("s32", operands)
        kind = kind.fitting(rows, columns, -(-terms // kind.step))
        if kind.in_unit:
            return kind
    kind = _arithmetic(operands, result)
    return kind and kind.fitting(rows, columns, -(-terms // kind.step))


def _multiplies_pairs() -> bool:
    return vector_bytes() in PAIRS and has_feature(PAIRS[vector_bytes()][0])


def _arithmetic(operands: str, result: str) -> Arithmetic | None:
    if result == "f32" and operands == "bf16" and has_feature("avx512bf16"):
        return Arithmetic("f32", "bf16")
    if result in ("f32", "f64") and operands in ("f64", "f32", "f16", "bf16"):
        return Arithmetic(result)
    if result in ("s32", "u32") and operands in ("s8", "u8", "s16") and _multiplies_pairs():
        return Arithmetic("s32", "s16")
    integers = {"s32": "s32", "u32": "s32", "s64": "s64", "u64": "s64"}
    return Arithmetic(integers[result]) if result in integers and operands[0] in "su" else None


def tile_rows() -> int:
    """Lines that are turned at once."""
    return 8 if vector_bytes() == 64 else 4


@dataclass(frozen=True)
class _Change:
    """What becomes of elements on the way."""

    source: str
    held: str

    @property
    def memory(self) -> str:
        """The LLVM type in which elements are loaded."""
        is_moved = self.source == self.held
        return f"i{bits_of(self.source)}" if is_moved else _FLOATS.get(self.source, f"i{bits_of(self.source)}")

    @property
    def word(self) -> str:
        return f"i{bits_of(self.held)}"

    def changed(self, x: str, count: int) -> tuple[str, list[str]]:
        """What makes vectors of so many words of elements; their name."""
        to = _FLOATS.get(self.held, self.word)
        type, name, lines = self.memory, x, list[str]()

        def step(instruction: str, target: str) -> None:
            nonlocal type, name
            lines.append(f"  {name}.c = {instruction} <{count} x {type}> {name} to <{count} x {target}>")
            type, name = target, f"{name}.c"

        if self.source == "bf16" and self.held in _FLOATS:
            step("zext", "i32")
            moved = ", ".join(["i32 16"] * count)
            lines.append(f"  {name}.s = shl <{count} x i32> {name}, <{moved}>")
            name += ".s"
            if to != "float":
                step("bitcast", "float")
        if type in _FLOATS.values() and type != to:
            step("fpext" if bits_of(self.source) < bits_of(self.held) else "fptrunc", to)
        elif type.startswith("i") and not to.startswith("f") and to != "double" and type != to:
            widening = "sext" if self.source[0] == "s" else "zext"
            step(widening if bits_of(self.source) < bits_of(self.held) else "trunc", to)
        if type != self.word:
            step("bitcast", self.word)
        return name, lines


def _change(source: str, held: str) -> _Change:
    """Where nothing changes, that of words, so that equal routines have one name."""
    is_same = source == held or (source, held) == ("bf16", "u16")
    return _Change(*2 * (f"u{bits_of(source)}",)) if is_same else _Change(source, held)


# --- lines as they are ------------------------------------------------------------------------------------------------

_LINES = Template("""
define void @routine(ptr noalias %to, ptr noalias readonly %from, ptr readonly %numbers) nounwind {
entry:
$numbers
  %soon = mul i64 %row, $soon
  br label %line
line:
  %i = phi i64 [ 0, %entry ], [ %i_next, %line_end ]
  %first = mul i64 %i, $lines
  %place = mul i64 %first, %row
  %source0 = getelementptr $memory, ptr %from, i64 %place
$starts
  %target = getelementptr $word, ptr %to, i64 (mul i64 %i, %pitch)
  br label %vector
vector:
  %j = phi i64 [ 0, %line ], [ %j_next, %loaded ]
$places
  %j_next = add nsw i64 %j, $lanes
  br i1 (icmp sle i64 %j_next, $complete), label %all, label %some
all:
$all
  br label %loaded
some:
$some
  br label %loaded
loaded:
$loads
  store <$lanes x $word> $found, ptr %target[$word %j], align $bytes
  br i1 (icmp slt i64 %j_next, %steps), label %vector, label %line_end
line_end:
  %i_next = add nsw i64 %i, 1
  br i1 (icmp slt i64 %i_next, %rows), label %line, label %done
done:
  ret void
}

declare <$lanes x i1> @llvm.get.active.lane.mask.v${lanes}i1.i64(i64, i64)
declare <$lanes x $memory> @llvm.masked.load.v${lanes}$suffix.p0(ptr, i32, <$lanes x i1>, <$lanes x $memory>)
declare void @llvm.prefetch.p0(ptr, i32, i32, i32)
""")

_MASKED_LOAD = Template("""
  %$name.mask = call <$lanes x i1> @llvm.get.active.lane.mask.v${lanes}i1.i64(i64 $first, i64 %$end)
  %$name.at = getelementptr $memory, ptr %$source, i64 $first
  %$name = call <$lanes x $memory> @llvm.masked.load.v${lanes}$suffix.p0(
    ptr %$name.at, i32 $size, <$lanes x i1> %$name.mask, <$lanes x $memory> zeroinitializer)""")


def _suffix(memory: str) -> str:
    """An LLVM type in the name of an intrinsic."""
    return {"half": "f16", "float": "f32", "double": "f64"}.get(memory, memory)


@functools.cache
def lines(source: str, kind: Arithmetic, is_packed: bool) -> str:
    """(to, from, numbers): to[i * pitch + j] = from[i * row + j] for `rows` lines of `steps` elements, and zeros up to
    a whole vector; or, where they are packed, the elements of a word to[i * pitch + j] come from as many lines that
    follow one another, of which there are `terms`. The routine's name.

    Only what a whole vector does not fit into is loaded with a mask: where processors have none for the type, LLVM
    loads element by element."""
    change, together = _change(source, kind.held), kind.step if is_packed else 1
    count = kind.lanes if is_packed else 8 * vector_bytes() // bits_of(kind.held) // kind.part
    names = {"memory": change.memory, "lanes": count, "suffix": _suffix(change.memory), "size": bits_of(source) // 8}
    vector = f"<{count} x {change.memory}>"
    found, starts, places = "", list[str](), list[str]()
    whole, part, text = list[str](), list[str](), list[str]()
    for k in range(together):
        if k:
            starts.append(f"  %source{k} = getelementptr {change.memory}, ptr %source{k - 1}, i64 %row")
            starts.append(f"  %end{k} = select i1 (icmp slt i64 (add i64 %first, {k}), %terms), i64 %steps, i64 0")
        end = f"end{k}" if k else "steps"
        places.append(f"  %place{k} = getelementptr {change.memory}, ptr %source{k}, i64 %j")
        places.append(f"  %soon{k} = getelementptr {change.memory}, ptr %place{k}, i64 %soon")
        places.append(f"  call void @llvm.prefetch.p0(ptr %soon{k}, i32 0, i32 3, i32 1)")
        whole.append(f"  %all{k} = load {vector}, ptr %place{k}, align {names['size']}")
        part.append(_MASKED_LOAD.substitute(names, name=f"some{k}", source=f"source{k}", first="%j", end=end))
        text.append(f"  %x{k} = phi {vector} [ %all{k}, %all ], [ %some{k}, %some ]")
    for k in range(together):
        value, more = change.changed(f"%x{k}", count)
        text += more
        if is_packed:
            bits = bits_of(kind.held)
            moved = ", ".join([f"i32 {k * bits}"] * count)
            text.append(f"  %x{k}.wide = zext <{count} x i{bits}> {value} to <{count} x i32>")
            text.append(f"  %x{k}.moved = shl <{count} x i32> %x{k}.wide, <{moved}>")
            value = f"%x{k}.moved"
        if k:
            text.append(f"  %found{k} = or <{count} x i32> {found}, {value}")
            value = f"%found{k}"
        found = value
    word = "i32" if is_packed else change.word
    names |= {"word": word, "bytes": int(word[1:]) // 8, "found": found, "lines": together, "soon": _SOON}
    blocks = {"starts": starts, "places": places, "all": whole, "some": part, "loads": text}
    names |= {name: "\n".join(block) for name, block in blocks.items()}
    names["complete"] = f"%end{together - 1}" if together > 1 else "%steps"  # where the last line is, all are
    routine = _LINES.substitute(names, numbers=load_arguments(COPY))
    return declare_routine(f"lines_{change.source}_{change.held}_{together}_{kind.part}", routine)


# --- lines that become columns ----------------------------------------------------------------------------------------

_TURN = Template("""
define void @routine(ptr noalias %to, ptr noalias readonly %from, ptr readonly %numbers) nounwind {
entry:
$numbers
  %last = sub i64 %rows, 1
$starts
  %whole = and i64 $complete, -$height
  br i1 (icmp sgt i64 %whole, 0), label %square, label %rest
square:
  %p = phi i64 [ 0, %entry ], [ %next, %square ]
  %term = mul i64 %p, $step
  %to0 = getelementptr $word, ptr %to, i64 (mul i64 %p, %pitch)
$square
  %next = add nsw i64 %p, $height
  br i1 (icmp slt i64 %next, %whole), label %square, label %rest
rest:
  br i1 (icmp slt i64 %whole, %steps), label %step, label %done
step:
  %q = phi i64 [ %whole, %rest ], [ %following, %step ]
  %from_term = mul i64 %q, $step
  %into = getelementptr $word, ptr %to, i64 (mul i64 %q, %pitch)
$elements
  %following = add nsw i64 %q, 1
  br i1 (icmp slt i64 %following, %steps), label %step, label %done
done:
  ret void
}

declare i64 @llvm.smin.i64(i64, i64)
""")

_COMPLETE = Template("""
  %words = ashr i64 %terms, $shift
  %complete = call i64 @llvm.smin.i64(i64 %words, i64 %steps)""")

_MASKS = Template("""
declare <$lanes x i1> @llvm.get.active.lane.mask.v${lanes}i1.i64(i64, i64)
declare <$lanes x $memory> @llvm.masked.load.v${lanes}$suffix.p0(ptr, i32, <$lanes x i1>, <$lanes x $memory>)
""")


def turn(bits: int, is_exact: bool = False) -> str:
    """(to, from, numbers): to[step * pitch + i] = from[i * row + step], for `steps` steps and as many i as are turned
    at once; beyond `rows` the last one again, or where it `is_exact` nothing. The routine's name."""
    return _turn(_change(f"u{bits}", f"u{bits}"), 1, is_exact)


def turn_for(source: str, kind: Arithmetic) -> str:
    """The same for elements of products; where words of several are, a line has `terms` of them."""
    return _turn(_change(source, kind.held), kind.step)


@functools.cache
def _turn(change: _Change, step: int, is_exact: bool = False) -> str:
    """Squares of so many steps at a time: where the number of a line and that of a step differ in a bit, they change
    places, bit by bit."""
    rows, bits = tile_rows(), bits_of(change.held) * step
    count, size = rows * step, bits_of(change.source) // 8
    word, vector = f"i{bits}", f"<{rows} x i{bits}>"
    names = {"memory": change.memory, "lanes": count, "suffix": _suffix(change.memory), "size": size}
    starts: list[str] = []
    square: list[str] = []
    elements: list[str] = []
    vectors: list[str] = []
    parts = rows * max(1, bits // 64)
    masked = f"<{parts} x i{min(bits, 64)}>"
    if is_exact:
        starts.append(f"  %parts = mul i64 %rows, {parts // rows}")
        starts.append(f"  %mask = call <{parts} x i1> @llvm.get.active.lane.mask.v{parts}i1.i64(i64 0, i64 %parts)")

    def put(x: str, at: str) -> list[str]:
        if not is_exact:
            return [f"  store {vector} {x}, ptr {at}, align {bits // 8}"]
        given = f"{masked} {x}.m, ptr {at}, i32 {min(bits, 64) // 8}, <{parts} x i1> %mask"
        return [
            f"  {x}.m = bitcast {vector} {x} to {masked}",
            f"  call void @llvm.masked.store.v{parts}i{min(bits, 64)}.p0({given})",
        ]

    for i in range(rows):
        starts += [
            f"  %row{i} = call i64 @llvm.smin.i64(i64 {i}, i64 %last)",
            f"  %start{i} = mul i64 %row{i}, %row",
            f"  %from{i} = getelementptr {change.memory}, ptr %from, i64 %start{i}",
        ]
        square.append(f"  %at{i} = getelementptr {change.memory}, ptr %from{i}, i64 %term")
        square.append(f"  %v{i} = load <{count} x {change.memory}>, ptr %at{i}, align {size}")
        one = count if step > 1 else 1
        if step > 1:
            given = {"name": f"x{i}", "source": f"from{i}", "first": "%from_term", "end": "terms"}
            elements.append(_MASKED_LOAD.substitute(names, **given))
        else:
            elements.append(f"  %one{i} = getelementptr {change.memory}, ptr %from{i}, i64 %q")
            elements.append(f"  %x{i} = load <1 x {change.memory}>, ptr %one{i}, align {size}")
        for name, length, text in ((f"%v{i}", count, square), (f"%x{i}", one, elements)):
            value, more = change.changed(name, length)
            text += more
            text.append(f"  {name}.w = bitcast <{length} x {change.word}> {value} to <{length // step} x {word}>")
        vectors.append(f"%v{i}.w")
        elements += [
            f"  %e{i} = extractelement <{one // step} x {word}> %x{i}.w, i64 0",
            f"  %all{i + 1} = insertelement {vector} {f'%all{i}' if i else 'poison'}, {word} %e{i}, i64 {i}",
        ]
    elements += put(f"%all{rows}", "%into")
    for bit in (1 << k for k in range(rows.bit_length() - 1)):
        woven = list(vectors)
        for i in (i for i in range(rows) if not i & bit):
            pair = f"{vector} {vectors[i]}, {vector} {vectors[i | bit]}"
            for line in (i, i | bit):
                from_low = [k if not k & bit else k - bit + rows for k in range(rows)]
                order = ", ".join(f"i32 {k + bit * (line != i)}" for k in from_low)
                woven[line] = f"%w{bit}.{line}"
                square.append(f"  {woven[line]} = shufflevector {pair}, <{rows} x i32> <{order}>")
        vectors = woven
    for i, turned in enumerate(vectors):
        square += put(turned, f"%to{i}")
        square.append(f"  %to{i + 1} = getelementptr {word}, ptr %to{i}, i64 %pitch")
    text = _TURN.substitute(
        height=rows,
        word=word,
        step=step,
        complete="%steps" if step == 1 else "%complete",
        numbers=load_arguments(COPY) + (_COMPLETE.substitute(shift=step.bit_length() - 1) if step > 1 else ""),
        starts="\n".join(starts),
        square="\n".join(square),
        elements="\n".join(elements),
    )
    if is_exact:
        text += f"declare <{parts} x i1> @llvm.get.active.lane.mask.v{parts}i1.i64(i64, i64)\n"
        text += f"declare void @llvm.masked.store.v{parts}i{min(bits, 64)}.p0({masked}, ptr, i32, <{parts} x i1>)\n"
    name = f"turn_{change.source}_{change.held}_{step}_{is_exact}"
    return declare_routine(name, text + (_MASKS.substitute(names) if step > 1 else ""))
