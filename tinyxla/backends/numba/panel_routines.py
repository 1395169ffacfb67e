"""What products by panels are made of, as routines for any sizes: the product of a tile, and copies to panels.

Each routine takes addresses, the last of which is that of its numbers.
"""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass, replace
from string import Template

from tinyxla.backends.numba.llvm_printer import routine_name
from tinyxla.backends.numba.native import compile_llvm, has_feature, provide_function, vector_bytes

TILE = ("steps", "b_step", "a_step", "a_row", "rows", "columns", "c_row", "more")
COPY = ("steps", "row", "rows", "pitch")
_SCALARS = {"f32": "float", "f64": "double", "s32": "i32", "s64": "i64"}
_BYTES = {"f32": 4, "f64": 8, "s32": 4, "s64": 8}


@dataclass(frozen=True)
class Arithmetic:
    """What is summed in, how many factors are multiplied and added at once - one, or a pair in a word of 32 bits -, and
    how many vectors are a row of a tile."""

    total: str
    pairs: str = ""  # the type of the factors of a pair
    vectors: int = 2

    @property
    def step(self) -> int:
        return 2 if self.pairs else 1

    @property
    def held(self) -> str:
        """The type of what panels hold."""
        return "u16" if self.pairs == "bf16" else self.pairs or self.total

    @property
    def bits(self) -> int:
        """Of what a step takes of a row: an element or a pair."""
        return 8 * _BYTES[self.total]

    @property
    def lanes(self) -> int:
        return vector_bytes() // _BYTES[self.total]

    @property
    def width(self) -> int:
        """Columns of a tile."""
        return self.vectors * self.lanes


def arithmetic(operands: str, result: str, columns: int) -> Arithmetic | None:
    """How products of operands of one type are summed in another, if they can be, with so many columns."""
    kind = _arithmetic(operands, result)
    return replace(kind, vectors=1) if kind is not None and columns <= kind.lanes else kind


def _arithmetic(operands: str, result: str) -> Arithmetic | None:
    if result == "f32" and operands == "bf16" and has_feature("avx512bf16"):
        return Arithmetic("f32", "bf16")
    if result in ("f32", "f64") and operands in ("f64", "f32", "f16", "bf16"):
        return Arithmetic(result)
    if result in ("s32", "u32") and operands in ("s8", "u8", "s16") and has_feature("avx512vnni"):
        return Arithmetic("s32", "s16")
    integers = {"s32": "s32", "u32": "s32", "s64": "s64", "u64": "s64"}
    return Arithmetic(integers[result]) if result in integers and operands[0] in "su" else None


def tile_rows() -> int:
    return 8 if vector_bytes() == 64 else 4


def _provided(name: str, text: str) -> str:
    provide_function(routine_name(name), compile_llvm(text, ("routine",))["routine"])
    return name


def _loads(names: tuple[str, ...]) -> list[str]:
    lines: list[str] = []
    for k, name in enumerate(names):
        lines.append(f"  %{name}_word = getelementptr i64, ptr %numbers, i64 {k}")
        lines.append(f"  %{name} = load i64, ptr %{name}_word")
    return lines


def _row_starts(word: str, array: str, stride: str) -> list[str]:
    """Where the rows of a tile begin; beyond the last row that there is, that one again."""
    lines = ["  %last = sub i64 %rows, 1"]
    for i in range(tile_rows()):
        lines += [
            f"  %row{i} = call i64 @llvm.smin.i64(i64 {i}, i64 %last)",
            f"  %start{i} = mul i64 %row{i}, %{stride}",
            f"  %{array}{i} = getelementptr {word}, ptr %{array}, i64 %start{i}",
        ]
    return lines


# --- the tile ---------------------------------------------------------------------------------------------------------

_TILE = Template("""
define void @routine(ptr %c, ptr noalias readonly %a, ptr noalias readonly %b, ptr readonly %numbers) nounwind {
entry:
$numbers
$starts
$prefetches
  br label %step
step:
  %p = phi i64 [ 0, %entry ], [ %next, %step ]
$sums
  %in_a = mul i64 %p, %a_step
  %in_b = mul i64 %p, %b_step
  %b_at = getelementptr $factor, ptr %b, i64 %in_b
$loads
$products
  %next = add nsw i64 %p, 1
  %again = icmp slt i64 %next, %steps
  br i1 %again, label %step, label %store
store:
$masks
  %adds = icmp ne i64 %more, 0
  br label %store0
$stores
done:
  ret void
}

declare i64 @llvm.smin.i64(i64, i64)
declare void @llvm.prefetch.p0(ptr, i32, i32, i32)
declare $mask @llvm.get.active.lane.mask.v${lanes}i1.i64(i64, i64)
declare $vector @llvm.masked.load.$suffix.p0(ptr, i32, $mask, $vector)
declare void @llvm.masked.store.$suffix.p0($vector, ptr, i32, $mask)
""")

_FACTOR = Template("""  %at$i = getelementptr $factor, ptr %a$i, i64 %in_a
  %x$i = load $factor, ptr %at$i
  %one$i = insertelement $factors poison, $factor %x$i, i64 0
  %all$i = shufflevector $factors %one$i, $factors poison, <$lanes x i32> zeroinitializer""")

_PREFETCH = Template("""  %in_c$i = mul i64 %row$i, %c_row
  %c$i = getelementptr $scalar, ptr %c, i64 %in_c$i
  %line$i = getelementptr i8, ptr %c$i, i64 64
  call void @llvm.prefetch.p0(ptr %c$i, i32 1, i32 3, i32 1)
  call void @llvm.prefetch.p0(ptr %line$i, i32 1, i32 3, i32 1)""")

_LOAD = Template("""  %b${v}_at = getelementptr $factor, ptr %b_at, i64 $first
  %b$v = load $factors, ptr %b${v}_at, align $bytes""")

_MASK = Template("  %mask$v = call $mask @llvm.get.active.lane.mask.v${lanes}i1.i64(i64 $first, i64 %columns)")

_STORE = Template("""store$i:
  br i1 %adds, label %add$i, label %put$i
add$i:
$added
  br label %put$i
put$i:
$put
  %more$i = icmp sgt i64 %rows, $following
  br i1 %more$i, label %$after, label %done""")

_ADDED = Template("""  %in$i.$v = getelementptr $scalar, ptr %c$i, i64 $first
  %old$i.$v = call $vector @llvm.masked.load.$suffix.p0(ptr %in$i.$v, i32 $bytes, $mask %mask$v, $vector poison)
  %both$i.$v = $add $vector %old$i.$v, %new$i.$v""")

_OUT = Template("  %out$i.$v = phi $vector [ %new$i.$v, %store$i ], [ %both$i.$v, %add$i ]")

_PUT = Template("""  %to$i.$v = getelementptr $scalar, ptr %c$i, i64 $first
  call void @llvm.masked.store.$suffix.p0($vector %out$i.$v, ptr %to$i.$v, i32 $bytes, $mask %mask$v)""")


@functools.cache
def tile(kind: Arithmetic) -> str:
    """(c, a, b, numbers): C[rows, columns] = or += A[rows, steps] @ B[steps, columns]; the routine's name."""
    rows, lanes, scalar = tile_rows(), kind.lanes, _SCALARS[kind.total]
    vector = f"<{lanes} x {scalar}>"
    factor = "i32" if kind.pairs else scalar
    names = {
        "lanes": lanes,
        "scalar": scalar,
        "vector": vector,
        "mask": f"<{lanes} x i1>",
        "bytes": _BYTES[kind.total],
        "factor": factor,
        "factors": f"<{lanes} x {factor}>",
        "suffix": f"v{lanes}{kind.total.replace('s', 'i')}",
        "add": "fadd" if kind.total[0] == "f" else "add",
    }
    columns = [{**names, "v": v, "first": v * lanes} for v in range(kind.vectors)]
    cells = list(itertools.product(range(rows), range(kind.vectors)))
    sums = [f"  %sum{i}.{v} = phi {vector} [ zeroinitializer, %entry ], [ %new{i}.{v}, %step ]" for i, v in cells]
    products: list[str] = []
    stores: list[str] = []
    for i in range(rows):
        products.append(_FACTOR.substitute(names, i=i))
        for v in range(kind.vectors):
            products += _multiply_add(kind, f"%new{i}.{v}", f"%sum{i}.{v}", f"%all{i}", f"%b{v}")
        added = [_ADDED.substitute(column, i=i) for column in columns]
        put = [part.substitute(column, i=i) for part in (_OUT, _PUT) for column in columns]
        after = f"store{i + 1}" if i + 1 < rows else "done"
        where = {"i": i, "following": i + 1, "after": after}
        stores.append(_STORE.substitute(where, added="\n".join(added), put="\n".join(put)))
    text = _TILE.substitute(
        names,
        numbers="\n".join(_loads(TILE)),
        starts="\n".join(_row_starts(factor, "a", "a_row")),
        prefetches="\n".join(_PREFETCH.substitute(names, i=i) for i in range(rows)),
        sums="\n".join(sums),
        loads="\n".join(_LOAD.substitute(column) for column in columns),
        masks="\n".join(_MASK.substitute(column) for column in columns),
        products="\n".join(products),
        stores="\n".join(stores),
    )
    return _provided(f"tile_{kind.pairs or kind.total}_{kind.vectors}", text + _declaration(kind))


def _multiply_add(kind: Arithmetic, result: str, total: str, x: str, y: str) -> list[str]:
    """total + x * y."""
    lanes = kind.lanes
    vector, words = f"<{lanes} x {_SCALARS[kind.total]}>", f"<{lanes} x i32>"
    if kind.pairs == "bf16":
        halves = f"<{2 * lanes} x bfloat>"
        given = f"{vector} {total}, {halves} {result}.x, {halves} {result}.y"
        return [
            f"  {result}.x = bitcast {words} {x} to {halves}",
            f"  {result}.y = bitcast {words} {y} to {halves}",
            f"  {result} = call {vector} @llvm.x86.avx512bf16.dpbf16ps.512({given})",
        ]
    if kind.pairs:
        return [f"  {result} = call {words} @llvm.x86.avx512.vpdpwssd.512({words} {total}, {words} {x}, {words} {y})"]
    if kind.total[0] == "s":
        return [f"  {result}.x = mul {vector} {x}, {y}", f"  {result} = add {vector} {total}, {result}.x"]
    given = f"{vector} {x}, {vector} {y}, {vector} {total}"
    return [f"  {result} = call {vector} @llvm.fmuladd.v{lanes}{kind.total}({given})"]


def _declaration(kind: Arithmetic) -> str:
    lanes = kind.lanes
    vector, halves = f"<{lanes} x {_SCALARS[kind.total]}>", f"<{2 * lanes} x bfloat>"
    if kind.pairs == "bf16":
        return f"declare {vector} @llvm.x86.avx512bf16.dpbf16ps.512({vector}, {halves}, {halves})\n"
    if kind.pairs:
        return f"declare {vector} @llvm.x86.avx512.vpdpwssd.512({vector}, {vector}, {vector})\n"
    if kind.total[0] == "s":
        return ""
    return f"declare {vector} @llvm.fmuladd.v{lanes}{kind.total}({vector}, {vector}, {vector})\n"


# --- copies to panels -------------------------------------------------------------------------------------------------

_LIFT = Template("""
define void @routine(ptr noalias %to, ptr noalias readonly %from, ptr readonly %numbers) nounwind {
entry:
$numbers
  %mask = call <$height x i1> @llvm.get.active.lane.mask.v${height}i1.i64(i64 0, i64 %rows)
  br label %step
step:
  %p = phi i64 [ 0, %entry ], [ %next, %step ]
  %place = mul i64 %p, %row
  %at = getelementptr i$bits, ptr %from, i64 %place
  %x = call $vector @llvm.masked.load.v${height}i$bits.p0(ptr %at, i32 $bytes, <$height x i1> %mask, $vector poison)
  %target = mul i64 %p, %pitch
  %into = getelementptr i$bits, ptr %to, i64 %target
  store $vector %x, ptr %into, align $bytes
  %next = add nsw i64 %p, 1
  %more = icmp slt i64 %next, %steps
  br i1 %more, label %step, label %done
done:
  ret void
}

declare <$height x i1> @llvm.get.active.lane.mask.v${height}i1.i64(i64, i64)
declare $vector @llvm.masked.load.v${height}i$bits.p0(ptr, i32, <$height x i1>, $vector)
""")

_TURN = Template("""
define void @routine(ptr noalias %to, ptr noalias readonly %from, ptr readonly %numbers) nounwind {
entry:
$numbers
$starts
  %whole = and i64 %steps, -$height
  %any = icmp sgt i64 %whole, 0
  br i1 %any, label %square, label %rest
square:
  %p = phi i64 [ 0, %entry ], [ %next, %square ]
$loads
$weaving
  %place = mul i64 %p, %pitch
  %to0 = getelementptr i$bits, ptr %to, i64 %place
$stores
  %next = add nsw i64 %p, $height
  %more = icmp slt i64 %next, %whole
  br i1 %more, label %square, label %rest
rest:
  %left = icmp slt i64 %whole, %steps
  br i1 %left, label %step, label %done
step:
  %q = phi i64 [ %whole, %rest ], [ %following, %step ]
  %line = mul i64 %q, %pitch
  %into = getelementptr i$bits, ptr %to, i64 %line
$elements
  %following = add nsw i64 %q, 1
  %another = icmp slt i64 %following, %steps
  br i1 %another, label %step, label %done
done:
  ret void
}

declare i64 @llvm.smin.i64(i64, i64)
""")


@functools.cache
def lift(bits: int) -> str:
    """(to, from, numbers): to[step * pitch + i] = from[step * row + i], for as many i as a tile has rows; beyond `rows`
    anything. The routine's name."""
    names = {"height": tile_rows(), "bits": bits, "bytes": bits // 8, "vector": f"<{tile_rows()} x i{bits}>"}
    return _provided(f"lift_{bits}", _LIFT.substitute(names, numbers="\n".join(_loads(COPY))))


@functools.cache
def turn(bits: int) -> str:
    """(to, from, numbers): to[step * pitch + i] = from[i * row + step], for as many i as a tile has rows; beyond `rows`
    the last one again. The routine's name.

    Squares of so many steps at a time: interleaving the vectors of a square, the first with that in the middle and so
    on, as often as its size can be halved, turns it.
    """
    rows, bytes_ = tile_rows(), bits // 8
    word, vector = f"i{bits}", f"<{rows} x i{bits}>"
    loads: list[str] = []
    weaving: list[str] = []
    stores: list[str] = []
    elements: list[str] = []
    vectors = [f"%v{i}" for i in range(rows)]
    for i in range(rows):
        loads.append(f"  %at{i} = getelementptr {word}, ptr %from{i}, i64 %p")
        loads.append(f"  %v{i} = load {vector}, ptr %at{i}, align {bytes_}")
    for stage in range(rows.bit_length() - 1):
        woven: list[str] = []
        for i, half in itertools.product(range(rows // 2), range(2)):
            first = half * rows // 2
            order = ", ".join(f"i32 {first + k}, i32 {first + k + rows}" for k in range(rows // 2))
            pair = f"{vector} {vectors[i]}, {vector} {vectors[i + rows // 2]}"
            woven.append(f"%w{stage}.{i}.{half}")
            weaving.append(f"  {woven[-1]} = shufflevector {pair}, <{rows} x i32> <{order}>")
        vectors = woven
    for i, turned in enumerate(vectors):
        stores.append(f"  store {vector} {turned}, ptr %to{i}, align {bytes_}")
        stores.append(f"  %to{i + 1} = getelementptr {word}, ptr %to{i}, i64 %pitch")
        elements += [
            f"  %one{i} = getelementptr {word}, ptr %from{i}, i64 %q",
            f"  %x{i} = load {word}, ptr %one{i}",
            f"  %into{i} = getelementptr {word}, ptr %into, i64 {i}",
            f"  store {word} %x{i}, ptr %into{i}",
        ]
    text = _TURN.substitute(
        height=rows,
        bits=bits,
        numbers="\n".join(_loads(COPY)),
        starts="\n".join(_row_starts(word, "from", "row")),
        loads="\n".join(loads),
        weaving="\n".join(weaving),
        stores="\n".join(stores),
        elements="\n".join(elements),
    )
    return _provided(f"turn_{bits}", text)
