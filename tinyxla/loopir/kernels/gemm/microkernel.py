"""Register-blocked GEMM microkernel with indirection: GEMM and implicit-GEMM convolution read A and B through offset
lists.

    c[c_row_offsets[i] + j] (+)= sum over t of a[a_row_offsets[i] + a_k_offsets[t]] * b[b_k_offsets[t] + j]

or, for a depthwise convolution with `depth_multiplier` outputs per input channel, a[... + j / depth_multiplier]. An mr
x nr tile of C stays in vector registers while one loop runs over the terms t. Each iteration loads some vectors of B
and broadcasts one element of A for each row, so whatever can be addressed is read in place. The last columns are
masked, in a loop of their own, since a masked load takes an issue slot of a multiplication on Intel's processors. The
last rows overlap those before, so that the tile is full.

Depthwise case: the vector of inputs is loaded with a free subvector broadcast. Columns therefore appear in transposed
order [multiplier, channel]; factors are permuted to that order, and results permuted back.

Strided rows: successive rows of A with one stride, as neighbouring output positions of a convolution have, share an
address register, so tiles of one or two vectors have as many rows as there are registers for accumulators. Shared
terms: if successive terms move in A as far as the next row does, as in a sliding window, an element is loaded once for
all rows and terms that use it; only so is a tile of one vector not bound by its loads.

Skinny A: the time is that of reading B from memory, so a tile for few rows has more vectors, and prefetches B.

A routine takes the addresses of c, a and b, of the four offset lists and of its arguments: m, n, k, whether to
accumulate into C, the stride in A of strided rows, and the stride in B of shared terms (whose lists have the first term
only) or, for a skinny A, of successive terms. There is one routine for each instruction and tile (see `Arithmetic`).
Dot-product instructions read words of several factors. AMX has a routine of its own (see `amx`).

An offset list has the offsets of an array's elements in row-major order over some dimensions. Another routine fills it:
its arguments are the offset of the first element of all, the ordinal of the list's first element, the length of the
list, the rank, and for each dimension from the innermost on its size, its stride and a word of scratch.

Source: K. Goto and R. van de Geijn, Anatomy of high-performance matrix multiplication, ACM TOMS 34 (2008); M. Dukhan,
The indirect convolution algorithm (2019).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from string import Template

from tinyxla.loopir.kernels.gemm.amx import microkernel_text
from tinyxla.loopir.kernels.gemm.arithmetic import PAIR_INSTRUCTIONS, Arithmetic
from tinyxla.loopir.lower.routine_calls import declare_routine, load_arguments
from tinyxla.loopir.target import has_feature

OFFSETS_PER_VECTOR = 8  # offsets that one store writes: a list has room for as many beyond its end
MICROKERNEL_ARGUMENTS = ("m", "n", "k", "accumulate", "a_row_stride", "b_k_stride")
_PREFETCH_VECTORS = 32  # prefetch distance of a tile for a skinny A, in vectors of B
_MAX_PREFETCH_TERMS = 8  # the same, in terms of k
_FULL, _MASKED = "full", "masked"  # of the loop over k: full tiles, and masked ones of the last columns
_SCALARS = {"f32": "float", "f64": "double", "s32": "i32", "s64": "i64"}


@functools.cache
def declare_offset_list() -> str:
    """Declare the routine that fills an offset list and return its symbol."""
    vector, numbers = f"<{OFFSETS_PER_VECTOR} x i64>", ", ".join(f"i64 {k}" for k in range(OFFSETS_PER_VECTOR))
    text = _OFFSET_LIST.substitute(
        vector=vector,
        arguments=load_arguments(_OFFSET_LIST_ARGUMENTS),
        numbers=numbers,
        count=OFFSETS_PER_VECTOR,
        all=f"<{OFFSETS_PER_VECTOR} x i32> zeroinitializer",
    )
    return declare_routine("offset_list", text, is_cold=True)


# Followed by the innermost axis' index.
_OFFSET_LIST_ARGUMENTS = ("start", "first", "count", "rank", "inner_size", "inner_step")
_OFFSET_LIST = Template("""
define void @routine(ptr %into, ptr %numbers) nounwind {
entry:
$arguments
  %dimensions = getelementptr i64, ptr %numbers, i64 4
  %inner_extent = mul i64 %inner_size, %inner_step
  %first_stride = insertelement $vector poison, i64 %inner_step, i64 0
  %strides = shufflevector $vector %first_stride, $vector poison, $all
  %lane_offsets = mul $vector %strides, <$numbers>
  br label %delinearize
delinearize:  ; the first element's index in depth_multiplier dimension
  %d = phi i64 [ 0, %entry ], [ %d_next, %delinearize ]
  %remainder = phi i64 [ %first, %entry ], [ %remainder_next, %delinearize ]
  %sum = phi i64 [ %start, %entry ], [ %sum_next, %delinearize ]
  %dimension = getelementptr [3 x i64], ptr %dimensions, i64 %d
  %size = load i64, ptr %dimension
  %step = load i64, ptr %dimension[1]
  %index = urem i64 %remainder, %size
  store i64 %index, ptr %dimension[2]
  %remainder_next = udiv i64 %remainder, %size
  %sum_next = add i64 %sum, (mul i64 %index, %step)
  %d_next = add i64 %d, 1
  br i1 (icmp slt i64 %d_next, %rank), label %delinearize, label %begin
begin:
  %inner_index = load i64, ptr %dimensions[2]
  br label %run
run:  ; in the innermost dimension
  %k = phi i64 [ 0, %begin ], [ %k_end, %carry_end ]
  %i = phi i64 [ %inner_index, %begin ], [ 0, %carry_end ]
  %offset = phi i64 [ %sum_next, %begin ], [ %carried, %carry_end ]
  %k_end = call i64 @llvm.smin.i64(i64 (add i64 %k, (sub i64 %inner_size, %i)), i64 %count)
  %run_last = add i64 %offset, (mul i64 (sub i64 %k_end, %k), %inner_step)
  br label %element
element:
  %e = phi i64 [ %k, %run ], [ %e_next, %element ]
  %element_offset = phi i64 [ %offset, %run ], [ %element_offset_next, %element ]
  %first_lane = insertelement $vector poison, i64 %element_offset, i64 0
  %all_lanes = shufflevector $vector %first_lane, $vector poison, $all
  store $vector (add $vector %all_lanes, %lane_offsets), ptr %into[%e], align 8
  %element_offset_next = add i64 %element_offset, (mul i64 %inner_step, $count)
  %e_next = add i64 %e, $count
  br i1 (icmp slt i64 %e_next, %k_end), label %element, label %run_end
run_end:
  %back = sub i64 %run_last, %inner_extent
  br i1 (icmp slt i64 %k_end, %count), label %carry, label %done
carry:  ; to the next outer dimension, and on if that is at its end
  %c = phi i64 [ 1, %run_end ], [ %c_next, %wrap ]
  %rewound = phi i64 [ %back, %run_end ], [ %wrapped, %wrap ]
  %outer = getelementptr [3 x i64], ptr %dimensions, i64 %c
  %outer_size = load i64, ptr %outer
  %outer_step = load i64, ptr %outer[1]
  %outer_index_at = getelementptr i64, ptr %outer, i64 2
  %advanced = add i64 %rewound, %outer_step
  %outer_index_next = add i64 (load i64, ptr %outer_index_at), 1
  %is_end = icmp eq i64 %outer_index_next, %outer_size
  %wrapped_index = select i1 %is_end, i64 0, i64 %outer_index_next
  store i64 %wrapped_index, ptr %outer_index_at
  br i1 %is_end, label %wrap, label %carry_end
wrap:
  %wrapped = sub i64 %advanced, (mul i64 %outer_size, %outer_step)
  %c_next = add i64 %c, 1
  br label %carry
carry_end:
  %carried = phi i64 [ %advanced, %carry ]
  br label %run
done:
  ret void
}

declare i64 @llvm.smin.i64(i64, i64)
""")

_MICROKERNEL = Template("""
define void @routine(ptr %c, ptr %a, ptr %b, ptr %a_row_offsets, ptr %c_row_offsets, ptr %a_k_offsets,
    ptr %b_k_offsets, ptr %numbers) nounwind {
entry:
$numbers
  %last_run = sub i64 %m, $strided_rows
  %m_last = sub i64 %m, 1
  %accumulates = icmp ne i64 %accumulate, 0
  %prefetch_distance = mul i64 %b_k_stride, $prefetch_terms
  br label %columns
columns:
  %j = phi i64 [ 0, %entry ], [ %j_next, %columns_end ]
  %j_next = add i64 %j, $nr
  %is_full = icmp sle i64 %j_next, %n
  %b_first = getelementptr $word, ptr %b, i64 %j
$masks
  br label %tile
tile:
  %i = phi i64 [ 0, %columns ], [ %i_next, %tile_end ]
$addresses
  br i1 %accumulates, label %loaded_tile, label %new_tile
new_tile:
$write_prefetches
  br label %begin
loaded_tile:  ; adds to the values of C
$prefetches
$loads
  br label %begin
begin:
$initial_sums
  br i1 %is_full, label %full, label %masked
$loops
tile_end:
$final_sums
$stores
  %i_next = add i64 %i, $mr
  br i1 (icmp slt i64 %i_next, %m), label %tile, label %columns_end
columns_end:
  br i1 (icmp slt i64 %j_next, %n), label %columns, label %done
done:
  ret void
}

declare i64 @llvm.smin.i64(i64, i64)
declare void @llvm.prefetch.p0(ptr, i32, i32, i32)
declare $mask @llvm.get.active.lane.mask.v${lanes}i1.i64(i64, i64)
declare $vector @llvm.masked.load.$suffix.p0(ptr, i32, $mask, $vector)
declare void @llvm.masked.store.$suffix.p0($vector, ptr, i32, $mask)
""")

_K_LOOP = Template("""
$label:
  %t$at = phi i64 [ 0, %begin ], [ %t_next$at, %$label ]
$sums
  %offset$at = load i64, ptr %a_k_offsets[%t$at]
  %b_row$at = getelementptr $word, ptr %b_first, i64 (load i64, ptr %b_k_offsets[%t$at])
$step
  %t_next$at = add i64 %t$at, 1
  br i1 (icmp slt i64 %t_next$at, %k), label %$label, label %tile_end
""")

_SUBVECTOR_DECLARATIONS = """
declare $subvector_mask @llvm.get.active.lane.mask.v${inputs}i1.i64(i64, i64)
declare $subvector @llvm.masked.load.$subvector_suffix.p0(ptr, i32, $subvector_mask, $subvector)
"""

_MASKED_SUBVECTOR_LOAD = (
    "call $subvector @llvm.masked.load.$subvector_suffix.p0("
    "ptr {}, i32 $size, $subvector_mask {}, $subvector zeroinitializer)"
)
_MASKED_LOAD = "call $vector @llvm.masked.load.$suffix.p0(ptr {}, i32 $size, $mask {}, $vector zeroinitializer)"


@functools.cache
def declare_microkernel(arithmetic: Arithmetic, depth_multiplier: int = 0) -> str:
    """Declare the microkernel of this instruction and tile and return its symbol. A `depth_multiplier` other than 0 is
    that of a depthwise convolution."""
    if arithmetic.uses_amx:
        text = microkernel_text(arithmetic.packed_type, load_arguments(MICROKERNEL_ARGUMENTS))
        return declare_routine(f"amx_{arithmetic.packed_type}", text)
    count, scalar = arithmetic.lanes, _SCALARS[arithmetic.accumulator]
    inputs, tile = _inputs_per_vector(arithmetic, depth_multiplier), _Tile(arithmetic, depth_multiplier)
    text = _MICROKERNEL.safe_substitute(
        _indented(tile.fragments()),
        loops="".join(_k_loop(arithmetic, depth_multiplier, name) for name in (_FULL, _MASKED)),
    )
    _, declaration = _multiply_add_text(arithmetic)
    declaration += _SUBVECTOR_DECLARATIONS if depth_multiplier > 1 else ""
    names = {
        "scalar": scalar,
        "word": f"i{arithmetic.word_bits}",
        "vector": f"<{count} x {scalar}>",
        "mask": f"<{count} x i1>",
        "subvector": f"<{inputs} x {scalar}>",
        "subvector_mask": f"<{inputs} x i1>",
        "subvector_suffix": f"v{inputs}{arithmetic.accumulator}",
        "suffix": f"v{count}{arithmetic.accumulator.replace('s', 'i')}",
    }
    sizes = {"lanes": count, "size": arithmetic.word_bits // 8, "inputs": inputs}
    sizes |= {"mr": arithmetic.mr, "nr": arithmetic.nr, "strided_rows": arithmetic.strided_rows}
    sizes["prefetch_terms"] = min(_MAX_PREFETCH_TERMS, _PREFETCH_VECTORS // arithmetic.vectors)
    numbers = load_arguments(MICROKERNEL_ARGUMENTS)
    text = Template(text + declaration).substitute(names, **sizes, numbers=numbers)
    form = f"depthwise{depth_multiplier}" if depth_multiplier else "product"
    tile_name = f"{arithmetic.nr}_{arithmetic.strided_rows}_{arithmetic.shared_terms}_{arithmetic.skinny_rows}"
    return declare_routine(f"{form}_{arithmetic.packed_type or arithmetic.accumulator}_{tile_name}", text)


@dataclass(frozen=True)
class _Tile:
    """LLVM text around the loop over k: addresses, prefetches, loads and stores of the tile of C."""

    arithmetic: Arithmetic
    depth_multiplier: int

    def fragments(self) -> dict[str, list[str]]:
        """The text for each slot of the template."""
        loaded = f"%old@{self.transposed_suffix}, %loaded_tile"
        return {
            "masks": self.masks(),
            "addresses": self.addresses(),
            "write_prefetches": [_prefetch_for_write(f"%c{r}_{v}") for r, v in self.tile_positions()],
            "prefetches": self.prefetches(),
            "loads": self.loads(),
            "initial_sums": self.phi("first", "zeroinitializer, %new_tile", loaded),
            "final_sums": self.phi("total", f"%new@.{_FULL}, %{_FULL}", f"%new@.{_MASKED}, %{_MASKED}"),
            "stores": self.stores(),
        }

    @property
    def transposed_suffix(self) -> str:
        return _transposed_suffix(self.arithmetic, self.depth_multiplier)

    def tile_positions(self) -> Iterator[tuple[int, int]]:
        return product(range(self.arithmetic.mr), range(self.arithmetic.vectors))

    def masks(self) -> list[str]:
        """Masks of valid columns, and of valid inputs of a depthwise convolution."""
        count, depth_multiplier, code = self.arithmetic.lanes, self.depth_multiplier, list[str]()
        inputs = _inputs_per_vector(self.arithmetic, depth_multiplier)
        if depth_multiplier:
            code += [f"%input = udiv i64 %j, {depth_multiplier}", f"%inputs = udiv i64 %n, {depth_multiplier}"]
        for v in range(self.arithmetic.vectors):
            if depth_multiplier > 1:
                code.append(f"%input{v} = add i64 %input, {v * count // depth_multiplier}")
                among = f"v{inputs}i1.i64(i64 %input{v}, i64 %inputs)"
                code.append(f"%input_mask{v} = call $subvector_mask @llvm.get.active.lane.mask.{among}")
            code.append(f"%j{v} = add i64 %j, {v * count}")
            code.append(f"%mask{v} = call $mask @llvm.get.active.lane.mask.v{count}i1.i64(i64 %j{v}, i64 %n)")
        return code

    def addresses(self) -> list[str]:
        """Addresses of the tile's rows in A and C."""
        arithmetic, code = self.arithmetic, list[str]()
        for r in range(arithmetic.mr):
            if r % arithmetic.strided_rows == 0:
                code.append(f"%i{r} = add i64 %i, {r}")
                code.append(f"%row{r} = call i64 @llvm.smin.i64(i64 %i{r}, i64 %last_run)")
                code.append(f"%row_at{r} = getelementptr i64, ptr %a_row_offsets, i64 %row{r}")
                code.append(f"%start{r} = load i64, ptr %row_at{r}")
                code.append(f"%a_row{r} = getelementptr $word, ptr %a, i64 %start{r}")
                first_input = "%input" if self.depth_multiplier else 0
                code.append(f"%a{r} = getelementptr $word, ptr %a_row{r}, i64 {first_input}")
            else:
                code.append(f"%row{r} = add i64 %row{r - 1}, 1")
            code.append(f"%c_row_at{r} = getelementptr i64, ptr %c_row_offsets, i64 %row{r}")
            code.append(f"%c_row{r} = load i64, ptr %c_row_at{r}")
            code.append(f"%c_offset{r} = add i64 %c_row{r}, %j")
            code.append(f"%c{r} = getelementptr $word, ptr %c, i64 %c_offset{r}")
            for v in range(arithmetic.vectors):
                code.append(f"%c{r}_{v} = getelementptr $word, ptr %c{r}, i64 {v * arithmetic.lanes}")
        return code

    def prefetches(self) -> list[str]:
        """Prefetch the next tile of C."""
        arithmetic, code = self.arithmetic, list[str]()
        for r in range(arithmetic.mr):
            code.append(f"%next_row{r} = add i64 %i, {arithmetic.mr + r}")
            code.append(f"%next_row_in{r} = call i64 @llvm.smin.i64(i64 %next_row{r}, i64 %m_last)")
            code.append(f"%next_offset{r} = add i64 (load i64, ptr %c_row_offsets[%next_row_in{r}]), %j")
            for v in range(arithmetic.vectors):
                code.append(f"%next{r}_{v} = add i64 %next_offset{r}, {v * arithmetic.lanes}")
                code.append(f"%next_at{r}_{v} = getelementptr $word, ptr %c, i64 %next{r}_{v}")
                code.append(_prefetch_for_write(f"%next_at{r}_{v}"))
        return code

    def loads(self) -> list[str]:
        """Load the tile of C to which products are added."""
        code: list[str] = []
        for r, v in self.tile_positions():
            code.append(f"%old{r}_{v} = {_MASKED_LOAD.format(f'%c{r}_{v}', f'%mask{v}')}")
            if self.transposed_suffix:
                inputs = _inputs_per_vector(self.arithmetic, self.depth_multiplier)
                code += _transpose_vector(f"%old{r}_{v}", self.arithmetic.lanes, inputs)
        return code

    def phi(self, name: str, one: str, other: str) -> list[str]:
        """A phi of two values and their blocks for each vector of the tile, whose position replaces `@`."""
        choice = f"%{name}@ = phi $vector [ {one} ], [ {other} ]"
        return [choice.replace("@", f"{r}_{v}") for r, v in self.tile_positions()]

    def stores(self) -> list[str]:
        """Store the tile of C."""
        arithmetic, code = self.arithmetic, list[str]()
        for r, v in self.tile_positions():
            if self.transposed_suffix:
                columns = arithmetic.lanes // _inputs_per_vector(arithmetic, self.depth_multiplier)
                code += _transpose_vector(f"%total{r}_{v}", arithmetic.lanes, columns)
            arguments = f"$vector %total{r}_{v}{self.transposed_suffix}, ptr %c{r}_{v}, i32 $size, $mask %mask{v}"
            code.append(f"call void @llvm.masked.store.$suffix.p0({arguments})")
        return code


def _prefetch_for_write(address: str) -> str:
    """Prefetch a cache line for writing."""
    return f"call void @llvm.prefetch.p0(ptr {address}, i32 1, i32 3, i32 1)"


def _inputs_per_vector(arithmetic: Arithmetic, depth_multiplier: int) -> int:
    """Inputs that a vector of columns depends on."""
    return max(1, arithmetic.lanes // depth_multiplier) if depth_multiplier else 1


def _transposed_suffix(arithmetic: Arithmetic, depth_multiplier: int) -> str:
    """Suffix of the names of vectors in transposed order; empty if columns are in memory's order."""
    return ".transposed" if 1 < _inputs_per_vector(arithmetic, depth_multiplier) < arithmetic.lanes else ""


def _transpose_vector(x: str, count: int, rows: int) -> list[str]:
    """The transpose of a vector as a matrix of `rows` rows."""
    order = ", ".join(f"i32 {k % rows * (count // rows) + k // rows}" for k in range(count))
    return [f"{x}.transposed = shufflevector $vector {x}, $vector poison, <{count} x i32> <{order}>"]


def _indented(fragments: dict[str, list[str]]) -> dict[str, str]:
    return {name: "\n".join(f"  {line}" for line in lines) for name, lines in fragments.items()}


def _k_loop(arithmetic: Arithmetic, depth_multiplier: int, name: str) -> str:
    """The loop over the terms, of a full tile or of a masked one."""
    step = _KStep(arithmetic, depth_multiplier, name)
    instructions = step.factors() + (step.by_rows() if arithmetic.shared_terms == 1 else step.by_terms())
    sums = [
        f"%sum{r}_{v}$at = phi $vector [ %first{r}_{v}, %begin ], [ %new{r}_{v}$at, %{name} ]"
        for r, v in product(range(arithmetic.mr), range(arithmetic.vectors))
    ]
    text = _K_LOOP.safe_substitute(_indented({"sums": sums, "step": instructions}), label=name)
    return Template(text).safe_substitute(at=f".{name}")


@dataclass(frozen=True)
class _KStep:
    """LLVM text of one iteration of the loop over k: one term, or several shared ones."""

    arithmetic: Arithmetic
    depth_multiplier: int
    name: str

    def factors(self) -> list[str]:
        """Load vectors of B."""
        arithmetic, code = self.arithmetic, list[str]()
        for k, v in product(range(arithmetic.shared_terms), range(arithmetic.vectors)):
            row = f"%b_row{k or ''}$at"
            if k and not v:
                code.append(f"{row} = getelementptr $word, ptr %b_row{k - 1 or ''}$at, i64 %b_k_stride")
            code.append(f"%b{k}_{v}$at = getelementptr $word, ptr {row}, i64 {v * arithmetic.lanes}")
            code += self._load(f"%right{k}_{v}$at", f"%b{k}_{v}$at", v)
            if arithmetic.skinny_rows:
                code.append(f"%prefetch{v}$at = getelementptr $word, ptr %b{k}_{v}$at, i64 %prefetch_distance")
                code.append(f"call void @llvm.prefetch.p0(ptr %prefetch{v}$at, i32 0, i32 3, i32 1)")
            if _transposed_suffix(arithmetic, self.depth_multiplier):
                inputs = _inputs_per_vector(arithmetic, self.depth_multiplier)
                code += _transpose_vector(f"%right{k}_{v}$at", arithmetic.lanes, inputs)
        return code

    def by_rows(self) -> list[str]:
        """Multiply-adds of one term: an element of A for each row."""
        arithmetic, depth_multiplier, code = self.arithmetic, self.depth_multiplier, list[str]()
        for k in range(1, arithmetic.strided_rows):
            code.append(f"%offset$at.{k} = add i64 %offset$at{f'.{k - 1}' if k > 1 else ''}, %a_row_stride")
        for r in range(arithmetic.mr):
            within = r % arithmetic.strided_rows
            offset = f"%offset$at{f'.{within}' if within else ''}"
            code.append(f"%at{r}$at = getelementptr $word, ptr %a{r - within}, i64 {offset}")
            if not depth_multiplier:
                code += self._broadcast_inputs(f"%left{r}$at", f"%at{r}$at", 0)
            for v in range(arithmetic.vectors):
                left = f"%left{r}$at"
                if depth_multiplier:
                    left, address = f"%left{r}_{v}$at", f"%at{r}_{v}$at"
                    first_input = v * arithmetic.lanes // depth_multiplier
                    code.append(f"{address} = getelementptr $word, ptr %at{r}$at, i64 {first_input}")
                    code += self._broadcast_inputs(left, address, v)
                code += self._multiply(f"%new{r}_{v}$at", f"%sum{r}_{v}$at", left, f"%right0_{v}$at")
        return code

    def by_terms(self) -> list[str]:
        """Multiply-adds of shared terms: each loaded element of A is used by all rows and terms that read it."""
        arithmetic, code = self.arithmetic, list[str]()
        for i in range(arithmetic.mr + arithmetic.shared_terms - 1):
            before, far = (f"%at{i - 1}$at", "%a_row_stride") if i else ("%a0", "%offset$at")
            code.append(f"%at{i}$at = getelementptr $word, ptr {before}, i64 {far}")
            code += self._broadcast_inputs(f"%left{i}$at", f"%at{i}$at", 0)
            for k in range(max(0, i - arithmetic.mr + 1), min(i + 1, arithmetic.shared_terms)):
                r = i - k
                new = f"%new{r}_0$at{f'.{k}' if k < arithmetic.shared_terms - 1 else ''}"
                old = f"%new{r}_0$at.{k - 1}" if k else f"%sum{r}_0$at"
                code += self._multiply(new, old, f"%left{i}$at", f"%right{k}_0$at")
        return code

    def _load(self, into: str, address: str, v: int) -> list[str]:
        if self.name == _MASKED:
            return [f"{into} = {_MASKED_LOAD.format(address, f'%mask{v}')}"]
        return [f"{into} = load $vector, ptr {address}, align $size"]

    def _broadcast_inputs(self, into: str, address: str, v: int) -> list[str]:
        """Load inputs of a vector of columns and repeat each as often as columns use it."""
        if self.depth_multiplier == 1:
            return self._load(into, address, v)
        count = _inputs_per_vector(self.arithmetic, self.depth_multiplier)
        alignment = self.arithmetic.word_bits // 8 // self.arithmetic.factors_per_word
        load = f"load $subvector, ptr {address}, align {alignment}"
        if self.name == _MASKED and self.depth_multiplier:
            load = _MASKED_SUBVECTOR_LOAD.format(address, f"%input_mask{v}")
        order = ", ".join(f"i32 {k % count}" for k in range(self.arithmetic.lanes))
        broadcast = f"shufflevector $subvector {into}.inputs, $subvector poison, <$lanes x i32> <{order}>"
        return [f"{into}.inputs = {load}", f"{into} = {broadcast}"]

    def _multiply(self, new: str, old: str, left: str, right: str) -> list[str]:
        multiply_add, _ = _multiply_add_text(self.arithmetic)
        right += _transposed_suffix(self.arithmetic, self.depth_multiplier)
        return [line.format(new=new, sum=old, x=left, y=right) for line in multiply_add]


def _multiply_add_text(arithmetic: Arithmetic) -> tuple[list[str], str]:
    """LLVM text of {new} = {sum} + {x} * {y} and the declaration of its intrinsic."""
    halves = f"<{2 * arithmetic.lanes} x bfloat>"
    if arithmetic.packed_type == "bf16":
        name = "@llvm.x86.avx512bf16.dpbf16ps.512"
        return [
            f"{{new}}.x = bitcast $vector {{x}} to {halves}",
            f"{{new}}.y = bitcast $vector {{y}} to {halves}",
            f"{{new}} = call $vector {name}($vector {{sum}}, {halves} {{new}}.x, {halves} {{new}}.y)",
        ], f"declare $vector {name}($vector, {halves}, {halves})\n"
    if arithmetic.packed_type and has_feature("avx512vnni"):
        name = "@llvm.x86.avx512.vpdpwssd.512"
        return [f"{{new}} = call $vector {name}($vector {{sum}}, $vector {{x}}, $vector {{y}})"], (
            f"declare $vector {name}($vector, $vector, $vector)\n"
        )
    if arithmetic.packed_type:
        halves, name = f"<{2 * arithmetic.lanes} x i16>", f"@llvm.x86.{PAIR_INSTRUCTIONS[4 * arithmetic.lanes][1]}"
        return [
            f"{{new}}.a = bitcast $vector {{x}} to {halves}",
            f"{{new}}.b = bitcast $vector {{y}} to {halves}",
            f"{{new}}.x = call $vector {name}({halves} {{new}}.a, {halves} {{new}}.b)",
            "{new} = add $vector {sum}, {new}.x",
        ], f"declare $vector {name}({halves}, {halves})\n"
    if arithmetic.accumulator[0] == "s":
        return ["{new}.x = mul $vector {x}, {y}", "{new} = add $vector {sum}, {new}.x"], ""
    name = f"@llvm.fmuladd.v{arithmetic.lanes}{arithmetic.accumulator}"
    return [f"{{new}} = call $vector {name}($vector {{x}}, $vector {{y}}, $vector {{sum}})"], (
        f"declare $vector {name}($vector, $vector, $vector)\n"
    )
