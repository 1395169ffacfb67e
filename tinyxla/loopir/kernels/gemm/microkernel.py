"""Products of matrices that are gathered from memory: what all products and convolutions are made of.

    c[results[i] + j] (+)= sum over t of a[rows[i] + terms[t]] * b[factors[t] + j]

or, where an input makes only `each` columns, with `a[rows[i] + terms[t] + j / each]`. A tile of results stays in vector
registers while one loop goes over the terms. In each step it loads some vectors of `b`, and for each of its rows one
element of `a`, wherever that is. So what can be read in place is, at the speed of the multipliers. The last columns are
masked, in a loop of their own, since a masked load takes the place of a multiplication on Intel's processors; and the
last row is computed as often as it takes to fill the tile.

The inputs of a vector of columns are repeated as a whole: with its load a processor does so at no cost. So the columns
that they make come in another order, that of a turned matrix, in which factors are put and results are put back.

Rows whose elements of `a` lie equally far apart, as those of neighbouring places do, take one register for the
addresses of several of them: so a tile of one or two vectors has as many rows as there is room for sums. And where a
few terms, the *taps*, move the elements as far as the next row does, as neighbours in a window do, an element is loaded
once for all of them. A tile of one vector is fast only so: else each of its multiplications takes a load.

Where there are few rows, what takes time is how `b` comes from memory. A tile for so many has more vectors, and asks
for those of some terms later, which lie equally far apart.

A routine takes the addresses of c, a and b, of the four lists of places, and of six numbers: how many rows, columns and
terms there are, whether to add to what c has, how far apart the rows of a run are, and how far apart in b the taps or,
for few rows, the terms; of taps, a list of terms has the first. So a way to multiply has one routine for each number of
vectors that a tile is wide, each length of runs, each number of taps, and each of few rows. Where two factors at once
are multiplied and added, elements of a and b are words of them; and where a matrix unit sums the products, its routine
does (see `matrix_unit`).

Places are those of an array's elements along some axes, in order, which another routine lists: it takes the address of
the list and of numbers, which are the place of the first element of all, the number of the list's first element, how
many the list shall have, the number of axes, and for each axis from the innermost its size, its step, and room.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from string import Template

from tinyxla.loopir.kernels.gemm.amx import product_text
from tinyxla.loopir.kernels.gemm.packing import PAIRS, Arithmetic
from tinyxla.loopir.lower.routine_calls import declare_routine, load_arguments
from tinyxla.loopir.target import has_feature

LISTED = 8  # places that are written at once: a list has room for as many more
NUMBERS = ("m", "n", "k", "more", "between", "beside")
_EARLY, _EARLY_TERMS = 32, 8  # vectors, or at most terms, from what a tile of few rows loads to what it asks for
_WHOLE, _PART = "whole", "part"  # tiles
_SCALARS = {"f32": "float", "f64": "double", "s32": "i32", "s64": "i64"}


@functools.cache
def provide_list() -> str:
    """Let kernels of the loop IR call the routine that lists places; its name."""
    vector, numbers = f"<{LISTED} x i64>", ", ".join(f"i64 {k}" for k in range(LISTED))
    text = _LIST.substitute(
        vector=vector,
        given=load_arguments(_LIST_NUMBERS),
        numbers=numbers,
        count=LISTED,
        all=f"<{LISTED} x i32> zeroinitializer",
    )
    return declare_routine("places", text, is_cold=True)


_LIST_NUMBERS = ("start", "first", "count", "rank", "inner_size", "inner_step")  # then the innermost axis' index
_LIST = Template("""
define void @routine(ptr %into, ptr %numbers) nounwind {
entry:
$given
  %axes = getelementptr i64, ptr %numbers, i64 4
  %inner_whole = mul i64 %inner_size, %inner_step
  %one_step = insertelement $vector poison, i64 %inner_step, i64 0
  %steps = shufflevector $vector %one_step, $vector poison, $all
  %apart = mul $vector %steps, <$numbers>
  br label %split
split:  ; the first element's index along each axis
  %d = phi i64 [ 0, %entry ], [ %d_next, %split ]
  %rest = phi i64 [ %first, %entry ], [ %rest_next, %split ]
  %sum = phi i64 [ %start, %entry ], [ %sum_next, %split ]
  %axis = getelementptr [3 x i64], ptr %axes, i64 %d
  %size = load i64, ptr %axis
  %step = load i64, ptr %axis[1]
  %index = urem i64 %rest, %size
  store i64 %index, ptr %axis[2]
  %rest_next = udiv i64 %rest, %size
  %sum_next = add i64 %sum, (mul i64 %index, %step)
  %d_next = add i64 %d, 1
  br i1 (icmp slt i64 %d_next, %rank), label %split, label %begin
begin:
  %inner_index = load i64, ptr %axes[2]
  br label %run
run:  ; along the innermost axis
  %k = phi i64 [ 0, %begin ], [ %k_end, %carry_end ]
  %i = phi i64 [ %inner_index, %begin ], [ 0, %carry_end ]
  %place = phi i64 [ %sum_next, %begin ], [ %carried, %carry_end ]
  %k_end = call i64 @llvm.smin.i64(i64 (add i64 %k, (sub i64 %inner_size, %i)), i64 %count)
  %run_last = add i64 %place, (mul i64 (sub i64 %k_end, %k), %inner_step)
  br label %element
element:
  %e = phi i64 [ %k, %run ], [ %e_next, %element ]
  %here = phi i64 [ %place, %run ], [ %here_next, %element ]
  %one_here = insertelement $vector poison, i64 %here, i64 0
  %all_here = shufflevector $vector %one_here, $vector poison, $all
  store $vector (add $vector %all_here, %apart), ptr %into[%e], align 8
  %here_next = add i64 %here, (mul i64 %inner_step, $count)
  %e_next = add i64 %e, $count
  br i1 (icmp slt i64 %e_next, %k_end), label %element, label %run_end
run_end:
  %back = sub i64 %run_last, %inner_whole
  br i1 (icmp slt i64 %k_end, %count), label %carry, label %done
carry:  ; to the axis around, and where that is at its end, to the next
  %c = phi i64 [ 1, %run_end ], [ %c_next, %wrap ]
  %at = phi i64 [ %back, %run_end ], [ %wrapped, %wrap ]
  %outer = getelementptr [3 x i64], ptr %axes, i64 %c
  %outer_size = load i64, ptr %outer
  %outer_step = load i64, ptr %outer[1]
  %outer_index_at = getelementptr i64, ptr %outer, i64 2
  %moved = add i64 %at, %outer_step
  %following = add i64 (load i64, ptr %outer_index_at), 1
  %is_end = icmp eq i64 %following, %outer_size
  %kept = select i1 %is_end, i64 0, i64 %following
  store i64 %kept, ptr %outer_index_at
  br i1 %is_end, label %wrap, label %carry_end
wrap:
  %wrapped = sub i64 %moved, (mul i64 %outer_size, %outer_step)
  %c_next = add i64 %c, 1
  br label %carry
carry_end:
  %carried = phi i64 [ %moved, %carry ]
  br label %run
done:
  ret void
}

declare i64 @llvm.smin.i64(i64, i64)
""")

_TEXT = Template("""
define void @routine(ptr %c, ptr %a, ptr %b, ptr %rows, ptr %results, ptr %terms,
    ptr %factors, ptr %numbers) nounwind {
entry:
$numbers
  %m_less = sub i64 %m, $run
  %m_last = sub i64 %m, 1
  %is_more = icmp ne i64 %more, 0
  %ahead = mul i64 %beside, $ahead
  br label %columns
columns:
  %j = phi i64 [ 0, %entry ], [ %j_next, %columns_end ]
  %j_next = add i64 %j, $width
  %is_whole = icmp sle i64 %j_next, %n
  %b_first = getelementptr $word, ptr %b, i64 %j
$masks
  br label %tile
tile:
  %i = phi i64 [ 0, %columns ], [ %i_next, %tile_end ]
$begin
  br i1 %is_more, label %more_tile, label %new_tile
new_tile:
$new
  br label %begin
more_tile:  ; whose sums are here by now
$soon
$old
  br label %begin
begin:
$first
  br i1 %is_whole, label %whole, label %part
$loops
tile_end:
$totals
$end
  %i_next = add i64 %i, $height
  br i1 (icmp slt i64 %i_next, %m), label %tile, label %columns_end
columns_end:
  br i1 (icmp slt i64 %j_next, %n), label %columns, label %done
done:
  ret void
}

declare i64 @llvm.smin.i64(i64, i64)
declare void @llvm.prefetch.p0(ptr, i32, i32, i32)
declare $mask @llvm.get.active.lane.mask.v${lanes}i1.i64(i64, i64)
declare $total @llvm.masked.load.$suffix.p0(ptr, i32, $mask, $total)
declare void @llvm.masked.store.$suffix.p0($total, ptr, i32, $mask)
""")

_TERMS = Template("""
$name:
  %t$at = phi i64 [ 0, %begin ], [ %t_next$at, %$name ]
$sums
  %place$at = load i64, ptr %terms[%t$at]
  %b_row$at = getelementptr $word, ptr %b_first, i64 (load i64, ptr %factors[%t$at])
$step
  %t_next$at = add i64 %t$at, 1
  br i1 (icmp slt i64 %t_next$at, %k), label %$name, label %tile_end
""")

_OF_SOME = """
declare $some_mask @llvm.get.active.lane.mask.v${inputs}i1.i64(i64, i64)
declare $some @llvm.masked.load.$some_suffix.p0(ptr, i32, $some_mask, $some)
"""

_LOAD_SOME = "call $some @llvm.masked.load.$some_suffix.p0(ptr {}, i32 $size, $some_mask {}, $some zeroinitializer)"
_LOAD = "call $total @llvm.masked.load.$suffix.p0(ptr {}, i32 $size, $mask {}, $total zeroinitializer)"


@functools.cache
def provide_product(kind: Arithmetic, each: int = 0) -> str:
    """Let kernels of the loop IR call the routine for products with tiles of so many vectors; its name. Of one input,
    all columns are made, or so many."""
    if kind.in_unit:
        return declare_routine(f"unit_{kind.packed}", product_text(kind.packed, load_arguments(NUMBERS)))
    count, scalar, inputs, tile = kind.lanes, _SCALARS[kind.total], _inputs(kind, each), _Tile(kind, each)
    text = _TEXT.safe_substitute(
        _indented(tile.parts()), loops="".join(_terms(kind, each, name) for name in (_WHOLE, _PART))
    )
    _, declaration = _multiply_add(kind)
    declaration += _OF_SOME if each > 1 else ""
    names = {
        "scalar": scalar,
        "word": f"i{kind.bits}",
        "total": f"<{count} x {scalar}>",
        "mask": f"<{count} x i1>",
        "some": f"<{inputs} x {scalar}>",
        "some_mask": f"<{inputs} x i1>",
        "some_suffix": f"v{inputs}{kind.total}",
        "suffix": f"v{count}{kind.total.replace('s', 'i')}",
    }
    sizes = {"lanes": count, "size": kind.bits // 8, "height": kind.rows, "width": kind.width, "run": kind.run}
    sizes["ahead"] = min(_EARLY_TERMS, _EARLY // kind.vectors)
    whole = Template(text + declaration).substitute(names, **sizes, inputs=inputs, numbers=load_arguments(NUMBERS))
    form = f"columns{each}" if each else "product"
    return declare_routine(f"{form}_{kind.packed or kind.total}_{kind.width}_{kind.run}_{kind.taps}_{kind.few}", whole)


@dataclass(frozen=True)
class _Tile:
    """What stands around the loops over the terms: instructions for all rows and vectors of a tile."""

    kind: Arithmetic
    each: int

    def parts(self) -> dict[str, list[str]]:
        return {
            "masks": self.masks(),
            "begin": self.begin(),
            "new": [_claim(f"%c{r}_{v}") for r, v in self.places()],
            "soon": self.soon(),
            "old": self.old(),
            "first": self.either("first", "zeroinitializer, %new_tile", f"%old@{self.turned}, %more_tile"),
            "totals": self.either("total", f"%new@.{_WHOLE}, %{_WHOLE}", f"%new@.{_PART}, %{_PART}"),
            "end": self.end(),
        }

    @property
    def turned(self) -> str:
        return _suffix(self.kind, self.each)

    def places(self) -> Iterator[tuple[int, int]]:
        return product(range(self.kind.rows), range(self.kind.vectors))

    def masks(self) -> list[str]:
        """Which columns are there, and which inputs of these."""
        count, each, found = self.kind.lanes, self.each, list[str]()
        inputs = _inputs(self.kind, each)
        if each:
            found += [f"%input = udiv i64 %j, {each}", f"%inputs = udiv i64 %n, {each}"]
        for v in range(self.kind.vectors):
            if each > 1:
                found.append(f"%input{v} = add i64 %input, {v * count // each}")
                among = f"v{inputs}i1.i64(i64 %input{v}, i64 %inputs)"
                found.append(f"%some{v} = call $some_mask @llvm.get.active.lane.mask.{among}")
            found.append(f"%j{v} = add i64 %j, {v * count}")
            found.append(f"%mask{v} = call $mask @llvm.get.active.lane.mask.v{count}i1.i64(i64 %j{v}, i64 %n)")
        return found

    def begin(self) -> list[str]:
        """Where rows of the inputs and of the results begin."""
        kind, found = self.kind, list[str]()
        for r in range(kind.rows):
            if r % kind.run == 0:
                found.append(f"%i{r} = add i64 %i, {r}")
                found.append(f"%row{r} = call i64 @llvm.smin.i64(i64 %i{r}, i64 %m_less)")
                found.append(f"%row_at{r} = getelementptr i64, ptr %rows, i64 %row{r}")
                found.append(f"%start{r} = load i64, ptr %row_at{r}")
                found.append(f"%a_row{r} = getelementptr $word, ptr %a, i64 %start{r}")
                found.append(f"%a{r} = getelementptr $word, ptr %a_row{r}, i64 {'%input' if self.each else 0}")
            else:
                found.append(f"%row{r} = add i64 %row{r - 1}, 1")
            found.append(f"%result_at{r} = getelementptr i64, ptr %results, i64 %row{r}")
            found.append(f"%c_row{r} = load i64, ptr %result_at{r}")
            found.append(f"%c_place{r} = add i64 %c_row{r}, %j")
            found.append(f"%c{r} = getelementptr $word, ptr %c, i64 %c_place{r}")
            for v in range(kind.vectors):
                found.append(f"%c{r}_{v} = getelementptr $word, ptr %c{r}, i64 {v * kind.lanes}")
        return found

    def soon(self) -> list[str]:
        """Ask for what the next tile adds to."""
        kind, found = self.kind, list[str]()
        for r in range(kind.rows):
            found.append(f"%soon_row{r} = add i64 %i, {kind.rows + r}")
            found.append(f"%soon_in{r} = call i64 @llvm.smin.i64(i64 %soon_row{r}, i64 %m_last)")
            found.append(f"%soon_place{r} = add i64 (load i64, ptr %results[%soon_in{r}]), %j")
            for v in range(kind.vectors):
                found.append(f"%soon{r}_{v} = add i64 %soon_place{r}, {v * kind.lanes}")
                found.append(f"%soon_at{r}_{v} = getelementptr $word, ptr %c, i64 %soon{r}_{v}")
                found.append(_claim(f"%soon_at{r}_{v}"))
        return found

    def old(self) -> list[str]:
        """What this tile adds to."""
        found: list[str] = []
        for r, v in self.places():
            found.append(f"%old{r}_{v} = {_LOAD.format(f'%c{r}_{v}', f'%mask{v}')}")
            if self.turned:
                found += _turned(f"%old{r}_{v}", self.kind.lanes, _inputs(self.kind, self.each))
        return found

    def either(self, name: str, one: str, other: str) -> list[str]:
        """A value and the block it is from, or another; @ is the place in the tile."""
        choice = f"%{name}@ = phi $total [ {one} ], [ {other} ]"
        return [choice.replace("@", f"{r}_{v}") for r, v in self.places()]

    def end(self) -> list[str]:
        """Store the results."""
        kind, found = self.kind, list[str]()
        for r, v in self.places():
            if self.turned:
                found += _turned(f"%total{r}_{v}", kind.lanes, kind.lanes // _inputs(kind, self.each))
            given = f"$total %total{r}_{v}{self.turned}, ptr %c{r}_{v}, i32 $size, $mask %mask{v}"
            found.append(f"call void @llvm.masked.store.$suffix.p0({given})")
        return found


def _claim(address: str) -> str:
    """Ask for a line of memory that is written soon."""
    return f"call void @llvm.prefetch.p0(ptr {address}, i32 1, i32 3, i32 1)"


def _inputs(kind: Arithmetic, each: int) -> int:
    """Of how many inputs a vector of columns is made."""
    return max(1, kind.lanes // each) if each else 1


def _suffix(kind: Arithmetic, each: int) -> str:
    """Of the names of vectors that are turned, so that inputs are repeated as they stand in memory."""
    return ".turned" if 1 < _inputs(kind, each) < kind.lanes else ""


def _turned(x: str, count: int, rows: int) -> list[str]:
    """A vector as a matrix of so many rows, turned."""
    order = ", ".join(f"i32 {k % rows * (count // rows) + k // rows}" for k in range(count))
    return [f"{x}.turned = shufflevector $total {x}, $total poison, <{count} x i32> <{order}>"]


def _indented(parts: dict[str, list[str]]) -> dict[str, str]:
    return {part: "\n".join(f"  {line}" for line in lines) for part, lines in parts.items()}


def _terms(kind: Arithmetic, each: int, name: str) -> str:
    """The loop over the terms, of a tile that is whole, or of which only a part is there."""
    step = _Step(kind, each, name)
    steps = step.factors() + (step.by_rows() if kind.taps == 1 else step.sliding())
    sums = [
        f"%sum{r}_{v}$at = phi $total [ %first{r}_{v}, %begin ], [ %new{r}_{v}$at, %{name} ]"
        for r, v in product(range(kind.rows), range(kind.vectors))
    ]
    text = _TERMS.safe_substitute(_indented({"sums": sums, "step": steps}), name=name)
    return Template(text).safe_substitute(at=f".{name}")


@dataclass(frozen=True)
class _Step:
    """What that loop does: instructions for one term, or for several along which the rows slide."""

    kind: Arithmetic
    each: int
    name: str

    def factors(self) -> list[str]:
        kind, found = self.kind, list[str]()
        for k, v in product(range(kind.taps), range(kind.vectors)):
            row = f"%b_row{k or ''}$at"
            if k and not v:
                found.append(f"{row} = getelementptr $word, ptr %b_row{k - 1 or ''}$at, i64 %beside")
            found.append(f"%b{k}_{v}$at = getelementptr $word, ptr {row}, i64 {v * kind.lanes}")
            found += self._loaded(f"%right{k}_{v}$at", f"%b{k}_{v}$at", v)
            if kind.few:
                found.append(f"%early{v}$at = getelementptr $word, ptr %b{k}_{v}$at, i64 %ahead")
                found.append(f"call void @llvm.prefetch.p0(ptr %early{v}$at, i32 0, i32 3, i32 1)")
            if _suffix(kind, self.each):
                found += _turned(f"%right{k}_{v}$at", kind.lanes, _inputs(kind, self.each))
        return found

    def by_rows(self) -> list[str]:
        kind, each, found = self.kind, self.each, list[str]()
        for k in range(1, kind.run):
            found.append(f"%place$at.{k} = add i64 %place$at{f'.{k - 1}' if k > 1 else ''}, %between")
        for r in range(kind.rows):
            place = f"%place$at{f'.{r % kind.run}' if r % kind.run else ''}"
            found.append(f"%at{r}$at = getelementptr $word, ptr %a{r // kind.run * kind.run}, i64 {place}")
            if not each:
                found += self._inputs(f"%left{r}$at", f"%at{r}$at", 0)
            for v in range(kind.vectors):
                left = f"%left{r}$at"
                if each:
                    left, address = f"%left{r}_{v}$at", f"%at{r}_{v}$at"
                    found.append(f"{address} = getelementptr $word, ptr %at{r}$at, i64 {v * kind.lanes // each}")
                    found += self._inputs(left, address, v)
                found += self._multiplied(f"%new{r}_{v}$at", f"%sum{r}_{v}$at", left, f"%right0_{v}$at")
        return found

    def sliding(self) -> list[str]:
        """Each element is multiplied with as many factors as there are rows that it is for, one after the other."""
        kind, found = self.kind, list[str]()
        for i in range(kind.rows + kind.taps - 1):
            before, far = (f"%at{i - 1}$at", "%between") if i else ("%a0", "%place$at")
            found.append(f"%at{i}$at = getelementptr $word, ptr {before}, i64 {far}")
            found += self._inputs(f"%left{i}$at", f"%at{i}$at", 0)
            for k in range(max(0, i - kind.rows + 1), min(i + 1, kind.taps)):
                r = i - k
                new = f"%new{r}_0$at{f'.{k}' if k < kind.taps - 1 else ''}"
                old = f"%new{r}_0$at.{k - 1}" if k else f"%sum{r}_0$at"
                found += self._multiplied(new, old, f"%left{i}$at", f"%right{k}_0$at")
        return found

    def _loaded(self, into: str, address: str, v: int) -> list[str]:
        if self.name == _PART:
            return [f"{into} = {_LOAD.format(address, f'%mask{v}')}"]
        return [f"{into} = load $total, ptr {address}, align $size"]

    def _inputs(self, into: str, address: str, v: int) -> list[str]:
        """The inputs of a vector of columns, as often as they are needed."""
        if self.each == 1:
            return self._loaded(into, address, v)
        count = _inputs(self.kind, self.each)
        some = f"load $some, ptr {address}, align {self.kind.bits // 8 // self.kind.step}"
        if self.name == _PART and self.each:
            some = _LOAD_SOME.format(address, f"%some{v}")
        again = ", ".join(f"i32 {k % count}" for k in range(self.kind.lanes))
        repetition = f"shufflevector $some {into}.some, $some poison, <$lanes x i32> <{again}>"
        return [f"{into}.some = {some}", f"{into} = {repetition}"]

    def _multiplied(self, new: str, old: str, left: str, right: str) -> list[str]:
        multiply_add, _ = _multiply_add(self.kind)
        right += _suffix(self.kind, self.each)
        return [line.format(new=new, sum=old, x=left, y=right) for line in multiply_add]


def _multiply_add(kind: Arithmetic) -> tuple[list[str], str]:
    """Instructions for {new} = {sum} + {x} * {y}, and what they call."""
    halves = f"<{2 * kind.lanes} x bfloat>"
    if kind.packed == "bf16":
        name = "@llvm.x86.avx512bf16.dpbf16ps.512"
        return [
            f"{{new}}.x = bitcast $total {{x}} to {halves}",
            f"{{new}}.y = bitcast $total {{y}} to {halves}",
            f"{{new}} = call $total {name}($total {{sum}}, {halves} {{new}}.x, {halves} {{new}}.y)",
        ], f"declare $total {name}($total, {halves}, {halves})\n"
    if kind.packed and has_feature("avx512vnni"):
        name = "@llvm.x86.avx512.vpdpwssd.512"
        return [f"{{new}} = call $total {name}($total {{sum}}, $total {{x}}, $total {{y}})"], (
            f"declare $total {name}($total, $total, $total)\n"
        )
    if kind.packed:
        halves, name = f"<{2 * kind.lanes} x i16>", f"@llvm.x86.{PAIRS[4 * kind.lanes][1]}"
        return [
            f"{{new}}.a = bitcast $total {{x}} to {halves}",
            f"{{new}}.b = bitcast $total {{y}} to {halves}",
            f"{{new}}.x = call $total {name}({halves} {{new}}.a, {halves} {{new}}.b)",
            "{new} = add $total {sum}, {new}.x",
        ], f"declare $total {name}({halves}, {halves})\n"
    if kind.total[0] == "s":
        return ["{new}.x = mul $total {x}, {y}", "{new} = add $total {sum}, {new}.x"], ""
    name = f"@llvm.fmuladd.v{kind.lanes}{kind.total}"
    return [f"{{new}} = call $total {name}($total {{x}}, $total {{y}}, $total {{sum}})"], (
        f"declare $total {name}($total, $total, $total)\n"
    )
