"""Canonical form of convolutions. Canonical convolutions have strides, window dilation or base dilation (holes in the
input), and groups only, so that every index is a linear form in loop indices.

- Padding becomes a `pad`, which fuses with the input's producer. So does base dilation, unless there are neither
  strides nor window dilation: transposed convolutions, and input gradients of strided ones, keep theirs, so that no
  products with holes are computed (`is_canonical` defines the remaining padding).
- A reversed window becomes a `reverse` of the kernel.
- Ungrouped 8-bit integers are copied to a matrix of windows (im2col) and multiplied by a GEMM.
- Other narrow types are widened to their accumulator, except bf16 with an even number of input features: these become
  the minor dimension, two per 32-bit word.
- Groups of few features become columns of the minor dimension, which vectors hold: depthwise convolutions with one
  input feature per group and some multipliers. With few such columns, output positions become the vectors. Where no
  data movement is needed for that, padding stays: positions with different windows are separate ranges
  (`window_ranges`).
- Few output features of many input features: a GEMM of all elements with the kernel, then sums of shifted slices.
- A window larger than the result, with few output features and a large batch, as in kernel gradients with few features:
  input and kernel are swapped.
- Windows of one element, and windows with one position, are dots; so are disjoint windows of types without an implicit
  GEMM. Base dilation of windows of one element becomes padding of the result.

For implicit GEMMs, features become the minor dimension of kernel and result, where vectors are. The transposes of
results sink through elementwise consumers to the next convolution, which reads its input in any order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tinyxla.compiler.costs import ACCUMULATORS, MAX_PIECES, MIN_GEMM_FEATURES, VECTOR_ELEMENTS
from tinyxla.compiler.passes.sink_transposes import sink_through
from tinyxla.compiler.rewriter import Rewriter, for_opcodes, rewrite
from tinyxla.hlo import Computation, Instruction, Literal
from tinyxla.ops import barrier, calls, elementwise, indexing, movement
from tinyxla.ops.products import contraction, convolution
from tinyxla.ops.products.convolution import ConvDimensionNumbers, Convolution
from tinyxla.shapes import ElementType, WindowDimension, element_type
from tinyxla.shapes.window import dilated

Ints = tuple[int, ...]

MIN_RANGE_POSITIONS = ACCUMULATORS  # of a range, on the average
VECTOR_MULTIPLIERS = (1, 2, 4, 8)  # depth multipliers for which vectors hold several groups
GEMM_TYPES = ("f32", "f64")  # types of the backend's implicit GEMM


@for_opcodes("convolution", "transpose")
def canonicalize_convolutions(computation: Computation) -> Computation:
    """The computation with canonical convolutions, where these are no dots."""

    def visit(rewriter: Rewriter, x: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if x.op is convolution.convolution:
            return _Convolution(rewriter, x, operands).canonical()
        # The transposes of results sink to the next convolution, which reads its input in any order.
        return sink_through(rewriter, x, operands)

    return rewrite(computation, visit)


class _Convolution:
    """One convolution during rewriting: operands and attributes change together."""

    def __init__(self, rewriter: Rewriter, x: Instruction, operands: Sequence[Instruction]) -> None:
        self.rewriter = rewriter
        self.result = x.array_shape
        self.dims: Convolution = x.attributes
        self.lhs, self.rhs = operands
        if self.lhs.op is movement.transpose:
            permutation, labels = self.lhs.attributes.permutation, self.dims.dim_labels
            self.lhs = self.lhs.operands[0]
            labels = labels._replace(lhs_spec=tuple(permutation[d] for d in labels.lhs_spec))
            self.dims = self.dims._replace(dim_labels=labels)

    def canonical(self) -> Instruction:
        """Emit the canonical form."""
        type = self.result.element_type
        emit = self.rewriter.emit
        if 0 in (self.result.size, self.lhs.array_shape.size, self.rhs.array_shape.size):
            zero = emit(movement.constant, literal=Literal(np.zeros((), self.result.dtype)))
            return emit(movement.broadcast, zero, sizes=self.result.dimensions, dimensions=())
        sum_type = element_type(contraction.accumulator(type.dtype))
        if self._uses_im2col_of_bytes():
            return self._convert_to(self._im2col_gemm(sum_type), type)
        has_bf16_pairs = self._uses_bf16_pairs()
        if not has_bf16_pairs:
            self.lhs, self.rhs = (self._convert_to(x, sum_type) for x in (self.lhs, self.rhs))
        self.dims = self.dims._replace(
            preferred_element_type=sum_type if has_bf16_pairs else None, operand_precision=()
        )
        self._reverse_kernel()
        result_padding = self._split_off_result_dilation()
        if self._swaps_operands():
            return self._convert_to(self._zero_pad(self._with_swapped_operands(), result_padding), type)
        is_tiled = self._is_tiled_result()
        has_columns = None if has_bf16_pairs or is_tiled else self._choose_grouped_layout()
        if not has_columns and not is_tiled:
            self._make_padding_explicit()
        if has_columns is not None:
            result = self._as_depthwise_columns() if has_columns else self._as_spatial_rows()
        elif is_tiled or self._is_dot():
            result = self._as_dot()
        elif has_bf16_pairs:
            result = self._as_bf16_pairs()
        else:
            result = self._as_elementwise_dot() if self._uses_elementwise_dot() else self._as_convolution()
        return self._convert_to(self._zero_pad(result, result_padding), type)

    def _uses_bf16_pairs(self) -> bool:
        """True if operands stay bf16 and are read two input features at a time."""
        spec, sizes, groups = self.dims.dim_labels.rhs_spec, self.rhs.array_shape.dimensions, self.dims.groups
        features, inputs = (sizes[d] for d in spec[:2])
        has_few = (
            features // groups < MIN_GEMM_FEATURES
            or math.prod(sizes) // features < MIN_GEMM_FEATURES
            or inputs % 2 == 1
        )
        is_narrow = self._types() == {"bf16"} and self.result.element_type.name in ("bf16", "f32")
        return is_narrow and not has_few and not _has_base_dilation(self.dims)

    def _uses_im2col_of_bytes(self) -> bool:
        """True if operands stay 8-bit integers: GEMMs of these are fast enough to pay for copies of the elements of
        each window."""
        copies = math.prod(w.size for w in self.dims.window) / math.prod(w.stride for w in self.dims.window)
        features = self._size(self.rhs, self.dims.dim_labels.rhs_spec[0])
        has_few = features < VECTOR_ELEMENTS or self.rhs.array_shape.size // features < VECTOR_ELEMENTS
        is_narrow = self._types() in ({"s8"}, {"u8"}) and self.result.element_type.name in ("s32", "u32")
        is_plain = self.dims.groups == 1 and not _has_base_dilation(self.dims)
        return is_narrow and is_plain and copies <= 64 and not has_few

    def _types(self) -> set[str]:
        """The element types of the operands."""
        return {x.array_shape.element_type.name for x in (self.lhs, self.rhs)}

    def _im2col_gemm(self, wide: ElementType) -> Instruction:
        """im2col: the elements of each window as a row, in the kernel's order with features last, times the kernel
        as a matrix."""
        emit, labels = self.rewriter.emit, self.dims.dim_labels
        self._reverse_kernel()
        self._make_padding_explicit()
        batch, features, *spatial_dims = labels.lhs_spec
        lhs = emit(movement.transpose, self.lhs, permutation=(batch, *spatial_dims, features))
        outputs, inputs, *spatial = labels.rhs_spec
        kernel = emit(movement.transpose, self.rhs, permutation=(*spatial, inputs, outputs))
        rank = len(labels.lhs_spec)
        for d in range(rank - 2, 0, -1):
            lhs = self._window_columns(lhs, d, self.dims.window[d - 1])
        count = kernel.array_shape.dimensions[-1]
        matrix = emit(movement.reshape, kernel, sizes=(kernel.array_shape.size // count, count))
        product = emit(contraction.dot, lhs, matrix, **contraction.Dot((rank - 1,), (0,), (), (), wide)._asdict())
        dim_of = dict(zip((labels.out_spec[0], *labels.out_spec[2:], labels.out_spec[1]), range(rank), strict=True))
        return emit(movement.transpose, product, permutation=tuple(dim_of[d] for d in range(rank)))

    def _window_columns(self, x: Instruction, dim: int, w: WindowDimension) -> Instruction:
        """The elements of the window along one dimension, for each position, before the minor dimension."""
        last, extent = x.array_shape.rank - 1, (w.positions(self._size(x, dim)) - 1) * w.stride + 1
        slices: list[Instruction] = []
        for k in range(w.size):
            starts, limits, strides = [0] * (last + 1), list(x.array_shape.dimensions), [1] * (last + 1)
            starts[dim] = k * w.window_dilation
            limits[dim], strides[dim] = starts[dim] + extent, w.stride
            attributes = {"start_indices": tuple(starts), "limit_indices": tuple(limits), "strides": tuple(strides)}
            slices.append(self.rewriter.emit(movement.slice_, x, **attributes))
        if w.size == 1:
            return slices[0]
        columns = self.rewriter.emit(movement.concatenate, *slices, dimension=last)
        # Materialized, so that no element is read through nested concatenations.
        materialized = self.rewriter.emit(barrier.opt_barrier, columns)
        return self.rewriter.emit(calls.get_tuple_element, materialized, index=0)

    def _convert_to(self, x: Instruction, type: object) -> Instruction:
        if x.array_shape.element_type is type:
            return x
        return self.rewriter.emit(elementwise.convert, x, new_element_type=type)

    def _size(self, x: Instruction, dim: int) -> int:
        return x.array_shape.dimensions[dim]

    def _reverse_kernel(self) -> None:
        """Reverse the kernel where the window is reversed."""
        labels, window = self.dims.dim_labels, self.dims.window
        reversed_dims = tuple(
            d for d, w in zip(labels.rhs_spec[2:], window, strict=True) if w.window_reversal and w.size > 1
        )
        if reversed_dims:
            self.rhs = self.rewriter.emit(movement.reverse, self.rhs, dimensions=reversed_dims)
        self.dims = self.dims._replace(window=tuple(w._replace(window_reversal=False) for w in window))

    def _split_off_result_dilation(self) -> dict[int, tuple[int, int, int]]:
        """Remove base dilation that is dilation of the result; returns the padding of the result."""
        padding: dict[int, tuple[int, int, int]] = {}
        window = list(self.dims.window)
        for d, w in enumerate(window):
            if w.size == w.stride == 1 and w.base_dilation > 1:
                padding[self.dims.dim_labels.out_spec[2 + d]] = (w.padding_low, w.padding_high, w.base_dilation - 1)
                window[d] = WindowDimension(1)
        self.dims = self.dims._replace(window=tuple(window))
        return padding

    def _zero_pad(self, x: Instruction, padding: dict[int, tuple[int, int, int]]) -> Instruction:
        """x padded with zeros. A short minor part is collapsed with the last padded dimension, so that loops are
        long."""
        padding = {d: c for d, c in padding.items() if c != (0, 0, 0)}
        if not padding:
            return x
        emit, sizes, last_dim = self.rewriter.emit, x.array_shape.dimensions, max(padding)
        inner_size = math.prod(sizes[last_dim + 1 :])
        low, high, interior = padding[last_dim]
        if 1 < inner_size < VECTOR_ELEMENTS and not interior:
            x = emit(movement.reshape, x, sizes=(*sizes[:last_dim], sizes[last_dim] * inner_size))
            padding[last_dim] = (low * inner_size, high * inner_size, 0)
        zero = emit(movement.constant, literal=Literal(np.zeros((), x.array_shape.dtype)))
        full_padding = tuple(padding.get(d, (0, 0, 0)) for d in range(x.array_shape.rank))
        result = emit(movement.pad, x, zero, padding_config=full_padding)
        if x.array_shape.rank == len(sizes):
            return result
        *outer, joined = result.array_shape.dimensions
        return emit(movement.reshape, result, sizes=(*outer, joined // inner_size, *sizes[last_dim + 1 :]))

    def _strided_slice(self, x: Instruction, limits: dict[int, tuple[int, int]]) -> Instruction:
        """Slices from 0 to a limit with a stride, for some dimensions."""
        sizes = x.array_shape.dimensions
        limits_and_strides = [limits.get(d, (size, 1)) for d, size in enumerate(sizes)]
        if all(limit == size and stride == 1 for (limit, stride), size in zip(limits_and_strides, sizes, strict=True)):
            return x
        return self.rewriter.emit(
            movement.slice_,
            x,
            start_indices=(0,) * len(sizes),
            limit_indices=tuple(limit for limit, _ in limits_and_strides),
            strides=tuple(stride for _, stride in limits_and_strides),
        )

    def _make_padding_explicit(self) -> None:
        """Make padding explicit, and base dilation if there are strides or window dilation."""
        padding: dict[int, tuple[int, int, int]] = {}
        window: list[WindowDimension] = []
        for w, d in zip(self.dims.window, self.dims.dim_labels.lhs_spec[2:], strict=True):
            size, dilation = self._size(self.lhs, d), w.base_dilation
            if dilation == 1 or w.stride > 1 or w.window_dilation > 1:
                (padding[d],) = convolution.padded_config((w,), (size,))
                window.append(WindowDimension(w.size, w.stride, window_dilation=w.window_dilation))
                continue
            end = w.positions(size) + w.size - 1
            elements_before = -(-w.padding_low // dilation)
            low = w.padding_low - elements_before * dilation
            needed = (
                end - 1 + -w.positions(size) % dilation - low
            ) // dilation + 1  # the same number of positions for all residues
            padding[d] = (elements_before, needed - size - elements_before, 0)
            window.append(WindowDimension(w.size, 1, low, end - low - dilated(needed, dilation), 1, dilation))
        self.lhs = self._zero_pad(self.lhs, padding)
        self.dims = self.dims._replace(window=tuple(window))

    # --- matrix products

    def _positions(self) -> Ints:
        spatial = self.dims.dim_labels.lhs_spec[2:]
        return tuple(w.positions(self._size(self.lhs, d)) for w, d in zip(self.dims.window, spatial, strict=True))

    def _is_dot(self) -> bool:
        """True if the convolution is a dot of its operands, or of copies if the backend has no implicit GEMM."""
        allows_copies = self.result.element_type.name not in GEMM_TYPES
        return all(
            w.base_dilation == 1
            and (n == 1 or w.size == 1 or (allows_copies and w.window_dilation == 1 and w.stride >= w.size))
            for w, n in zip(self.dims.window, self._positions(), strict=True)
        )

    def _is_tiled_result(self) -> bool:
        """True if each input element contributes to a disjoint tile of the result, of the size of the window."""
        sizes = (self._size(self.lhs, d) for d in self.dims.dim_labels.lhs_spec[2:])
        return self.dims.groups == 1 and all(
            w == WindowDimension(w.size, 1, w.size - 1, w.size - 1, 1, w.size) and n == w.size * size
            for w, n, size in zip(self.dims.window, self._positions(), sizes, strict=True)
        )

    def _as_dot(self) -> Instruction:
        """A dot over named dimensions: names of both operands are contracting or group dimensions."""
        emit = self.rewriter.emit
        window = zip(self.dims.dim_labels.rhs_spec[2:], self.dims.window, strict=True)
        tiled_dims = [d for d, w in window if w.base_dilation > 1]
        if tiled_dims:
            self.rhs = emit(movement.reverse, self.rhs, dimensions=tuple(tiled_dims))
        lhs, lhs_names = self._named_lhs()
        rhs, rhs_names = self._named_rhs()
        groups = [name for name in lhs_names if name == "group"]
        contracting = [name for name in lhs_names if name in rhs_names and name != "group"]
        dims = contraction.Dot(
            tuple(map(lhs_names.index, contracting)),
            tuple(map(rhs_names.index, contracting)),
            tuple(map(lhs_names.index, groups)),
            tuple(map(rhs_names.index, groups)),
            self.dims.preferred_element_type,
        )
        product = emit(contraction.dot, lhs, rhs, **dims._asdict())
        names = [*groups, *(n for n in lhs_names if n not in rhs_names), *(n for n in rhs_names if n not in lhs_names)]
        result_names: list[str] = []
        feature_names = {0: ["batch"], 1: [*groups, "output"]}
        for k in sorted(range(len(self.dims.dim_labels.out_spec)), key=self.dims.dim_labels.out_spec.__getitem__):
            result_names += feature_names.get(k) or [n for n in (f"place{k}", f"window{k}") if n in names]
        product = emit(movement.transpose, product, permutation=tuple(map(names.index, result_names)))
        return emit(movement.reshape, product, sizes=self._result_sizes())

    def _named_lhs(self) -> tuple[Instruction, list[str]]:
        """The input with separate dimensions for positions, window elements and groups; and their names."""
        spec, positions, lhs = self.dims.dim_labels.lhs_spec, self._positions(), self.lhs
        sizes: list[int] = []
        names: list[str] = []
        slices: dict[int, tuple[int, int]] = {}
        for k in sorted(range(len(spec)), key=spec.__getitem__):
            size = self._size(lhs, spec[k])
            if k > 1:
                w, n = self.dims.window[k - 2], positions[k - 2]
                if w.base_dilation > 1:
                    sizes.append(size)
                    names.append(f"place{k}")
                    continue
                dilation = w.window_dilation if n == 1 else 1
                extent = dilated(w.size, dilation)
                step = extent if n == 1 else w.stride
                slices[len(sizes) + 1] = (extent, dilation)
                lhs = self._zero_pad(lhs, {spec[k]: (0, n * step - size, 0)})
                sizes += [n, step]
                names += [f"place{k}", f"window{k}"]
                continue
            groups = self.dims.feature_group_count if k else self.dims.batch_group_count
            if groups > 1:
                sizes.append(groups)
                names.append("group")
            sizes.append(size // groups)
            names.append("input" if k else "batch")
        return self._strided_slice(self.rewriter.emit(movement.reshape, lhs, sizes=tuple(sizes)), slices), names

    def _named_rhs(self) -> tuple[Instruction, list[str]]:
        spec, groups = self.dims.dim_labels.rhs_spec, self.dims.groups
        sizes: list[int] = []
        names: list[str] = []
        for k in sorted(range(len(spec)), key=spec.__getitem__):
            size = self._size(self.rhs, spec[k])
            if k == 0 and groups > 1:
                sizes.append(groups)
                names.append("group")
                size //= groups
            sizes.append(size)
            names.append("output" if k == 0 else "input" if k == 1 else f"window{k}")
        return self.rewriter.emit(movement.reshape, self.rhs, sizes=tuple(sizes)), names

    def _result_sizes(self) -> Ints:
        labels = self.dims.dim_labels
        batch = self._size(self.lhs, labels.lhs_spec[0]) // self.dims.batch_group_count
        sizes_by_dim = [0] * len(labels.out_spec)
        sizes = (batch, self._size(self.rhs, labels.rhs_spec[0]), *self._positions())
        for d, size in zip(labels.out_spec, sizes, strict=True):
            sizes_by_dim[d] = size
        return tuple(sizes_by_dim)

    # --- groups of few features

    def _choose_grouped_layout(self) -> bool | None:
        """Groups of few features become columns (True) or rows of output positions (False); None for other
        convolutions."""
        (lhs, rhs, out), kind, groups = self.dims.dim_labels, self.result.element_type.name, self.dims.groups
        features = self._size(self.rhs, rhs[0])
        terms, inputs = math.prod(self.rhs.array_shape.dimensions) // features, self._size(self.rhs, rhs[1])
        multiplier = features // groups
        is_small = (
            multiplier < MIN_GEMM_FEATURES
            or multiplier in VECTOR_MULTIPLIERS
            or terms < MIN_GEMM_FEATURES
            or (inputs < MIN_GEMM_FEATURES and multiplier < VECTOR_ELEMENTS)
        )
        positions, last = self._positions(), len(lhs) - 1
        moves = any(w.size > 1 and n > 1 for w, n in zip(self.dims.window, positions, strict=True))
        if kind not in GEMM_TYPES or groups == 1 or not is_small or not moves:
            return None
        row_dims = [k for k in range(2, last + 1) if lhs[k] == out[k] == last and positions[k - 2] >= VECTOR_ELEMENTS]
        strides = any(w.stride * w.base_dilation > 1 for w in self.dims.window)
        if row_dims and not strides and terms <= VECTOR_ELEMENTS:
            return None
        if features >= VECTOR_ELEMENTS:
            return True
        uses_spatial_rows = self.dims.batch_group_count == 1 and lhs[1] == last and max(positions) >= VECTOR_ELEMENTS
        return False if uses_spatial_rows else None

    def _as_depthwise_columns(self) -> Instruction:
        """Depthwise columns: one input feature per output feature or per few neighbouring ones, all features last."""
        emit, (lhs, rhs, out) = self.rewriter.emit, self.dims.dim_labels
        features, rank = self._size(self.rhs, rhs[0]), len(out)
        is_canonical_already = has_depthwise_columns(self._current())
        is_strided = lhs[0 if self.dims.batch_group_count > 1 else 1] != rank - 1
        if not is_canonical_already:
            self._put_features_last(features)
        current = self._current()
        dims = zip(self.dims.window, self.dims.dim_labels.lhs_spec[2:], self._positions(), strict=True)
        range_count = math.prod(len(window_ranges(w, self._size(self.lhs, d), n)) for w, d, n in dims)
        is_profitable = (
            is_canonical_already or features == self.dims.groups
        ) and range_count * MIN_RANGE_POSITIONS <= self.result.size // features
        if not is_canonical(current) or range_count > 4 * MAX_PIECES or not is_profitable:
            if self.lhs.op is movement.transpose and is_strided:  # a separate transpose is fast
                self.lhs = emit(calls.get_tuple_element, emit(barrier.opt_barrier, self.lhs), index=0)
            self._make_padding_explicit()
        result = emit(convolution.convolution, self.lhs, self.rhs, **self.dims._asdict())
        if is_canonical_already:
            return result
        result = emit(movement.reshape, result, sizes=(*result.array_shape.dimensions[: rank - 1], features))
        return self._transpose_result(result, rank - 1, out)

    def _current(self) -> Instruction:
        return Instruction(convolution.convolution, (self.lhs, self.rhs), self.dims, self.result)

    def _put_features_last(self, features: int) -> None:
        """One input feature per group: several become a window dimension before the features. If vectors cannot hold
        a group's output features, the input feature is repeated for each."""
        emit, (a, b, _), groups = self.rewriter.emit, self.dims.dim_labels, self.dims.groups
        rank, group = len(a), a[0] if self.dims.batch_group_count > 1 else a[1]
        inputs = self._size(self.rhs, b[1])
        rhs = emit(movement.transpose, self.rhs, permutation=(*b[2:], b[1], b[0]))
        self.rhs = emit(movement.reshape, rhs, sizes=(*rhs.array_shape.dimensions[:-1], 1, features))
        sizes = self.lhs.array_shape.dimensions
        sizes = (*sizes[:group], groups, sizes[group] // groups, *sizes[group + 1 :])
        lhs = emit(movement.reshape, self.lhs, sizes=sizes)
        batch, inner, *spatial_dims = (d + (d >= group) for d in a)  # the inner part of the split dimension
        self.lhs = emit(movement.transpose, lhs, permutation=(batch, *spatial_dims, inner, group))
        if features // groups not in VECTOR_MULTIPLIERS:
            input_of_feature = np.arange(features, dtype=np.int32) // (features // groups)
            groups = features
            indices = emit(movement.constant, literal=Literal(input_of_feature))
            slice_sizes = (*self.lhs.array_shape.dimensions[:-1], 1)
            gather = indexing.Gather(tuple(range(rank)), (rank,), (rank,), 1, slice_sizes)
            self.lhs = emit(indexing.gather, self.lhs, indices, **gather._asdict())
        spec = (0, rank, *range(1, rank))
        labels = ConvDimensionNumbers(spec, (rank, rank - 1, *range(rank - 1)), spec)
        self.dims = Convolution((*self.dims.window, WindowDimension(inputs)), labels, feature_group_count=groups)

    def _as_spatial_rows(self) -> Instruction:
        """The canonical dimension order with spatial dimensions last."""
        emit, (a, b, out) = self.rewriter.emit, self.dims.dim_labels
        lhs, rhs = (emit(movement.transpose, x, permutation=s) for x, s in ((self.lhs, a), (self.rhs, b)))
        spec = tuple(range(len(a)))
        dims = self.dims._replace(dim_labels=ConvDimensionNumbers(spec, spec, spec))
        return self._transpose_result(emit(convolution.convolution, lhs, rhs, **dims._asdict()), 1, out)

    def _transpose_result(self, x: Instruction, feature: int, spec: Ints) -> Instruction:
        """A result with batch first and features at dimension `feature`, transposed to the required order."""
        names = [0, *range(2, x.array_shape.rank)]
        names.insert(feature, 1)
        return self.rewriter.emit(movement.transpose, x, permutation=tuple(names.index(k) for k in np.argsort(spec)))

    # --- few features and a large window

    def _swaps_operands(self) -> bool:
        """True if the kernel should be the input: for kernel gradients with few output features, the window is the
        full image, and the batch, which is contracted, makes better columns."""
        labels, type = self.dims.dim_labels, self.result.element_type.name
        batch, features = self._size(self.lhs, labels.lhs_spec[0]), self._size(self.rhs, labels.rhs_spec[0])
        is_dense = all(w.stride == w.base_dilation == 1 for w in self.dims.window)
        is_large_window = math.prod(w.size for w in self.dims.window) > math.prod(self._positions())
        return (
            type in GEMM_TYPES
            and self.dims.groups == 1
            and features < MIN_GEMM_FEATURES <= batch
            and is_dense
            and is_large_window
        )

    def _with_swapped_operands(self) -> Instruction:
        """The convolution with operands swapped, whose output positions come in reverse order."""
        (batch, inputs, *spatial_dims), (features, inputs_of_kernel, *window_dims), out = self.dims.dim_labels
        window: list[WindowDimension] = []
        for w, positions, dim in zip(self.dims.window, self._positions(), spatial_dims, strict=True):
            size, low = self._size(self.lhs, dim), positions - 1 - w.padding_low
            high = positions + size - 1 - dilated(w.size, w.window_dilation) - low
            window.append(WindowDimension(size, 1, low, high, base_dilation=w.window_dilation))
        labels = ConvDimensionNumbers(
            (features, inputs_of_kernel, *window_dims), (batch, inputs, *spatial_dims), (out[1], out[0], *out[2:])
        )
        x = Instruction(convolution.convolution, (self.rhs, self.lhs), Convolution(tuple(window), labels), self.result)
        result = _Convolution(self.rewriter, x, x.operands).canonical()
        return self.rewriter.emit(movement.reverse, result, dimensions=tuple(sorted(out[2:])))

    # --- products of elements

    def _uses_elementwise_dot(self) -> bool:
        """True if output features are so few and input features so many that a GEMM of all elements with the kernel,
        followed by sums, is faster than sums per output feature."""
        labels, type = self.dims.dim_labels, self.result.element_type.name
        features, terms = (self._size(self.rhs, d) for d in labels.rhs_spec[:2])
        is_dense = all(w.stride == 1 and w.size <= VECTOR_ELEMENTS for w in self.dims.window)
        return (
            type in GEMM_TYPES
            and self.dims.groups == 1
            and features < MIN_GEMM_FEATURES
            and terms >= VECTOR_ELEMENTS
            and is_dense
        )

    def _as_elementwise_dot(self) -> Instruction:
        lhs, rhs, out = self.dims.dim_labels
        dims = contraction.Dot((rhs[1],), (lhs[1],), (), ())
        result = self.rewriter.emit(contraction.dot, self.rhs, self.lhs, **dims._asdict())
        window_names = {d: f"window{k}" for k, d in enumerate(rhs[2:])} | {rhs[0]: "output"}
        position_names = {d: f"place{k}" for k, d in enumerate(lhs[2:])} | {lhs[0]: "batch"}
        names = [name for _, name in (*sorted(window_names.items()), *sorted(position_names.items()))]
        for k, w in enumerate(self.dims.window):
            result = self._sum_over_window(result, names.index(f"window{k}"), names.index(f"place{k}"), w)
            names.remove(f"window{k}")
        result_names = {out[0]: "batch", out[1]: "output"} | {d: f"place{k}" for k, d in enumerate(out[2:])}
        order = tuple(names.index(result_names[d]) for d in range(len(out)))
        return self.rewriter.emit(movement.transpose, result, permutation=order)

    def _sum_over_window(self, x: Instruction, window_dim: int, position_dim: int, w: WindowDimension) -> Instruction:
        """Sums over a window dimension, which precedes its position dimension, of slices shifted by the window
        index."""
        emit, dilation = self.rewriter.emit, w.base_dilation
        sizes, positions = x.array_shape.dimensions, w.positions(self._size(x, position_dim))
        count = -(-positions // dilation)
        summed_sizes = (
            *sizes[:window_dim],
            *sizes[window_dim + 1 : position_dim],
            count,
            1,
            *sizes[position_dim + 1 :],
        )
        sums: list[Instruction] = []
        for residue in range(dilation):
            first = (w.padding_low - residue) % dilation
            start = (residue + first - w.padding_low) // dilation
            total: Instruction | None = None
            for step, k in enumerate(range(first, w.size, dilation)):
                starts, limits = [0] * len(sizes), list(sizes)
                starts[window_dim], limits[window_dim] = k, k + 1
                starts[position_dim] = start + step * w.window_dilation
                limits[position_dim] = starts[position_dim] + count
                term = emit(
                    movement.slice_,
                    x,
                    start_indices=tuple(starts),
                    limit_indices=tuple(limits),
                    strides=(1,) * len(sizes),
                )
                total = term if total is None else emit(elementwise.add, total, term)
            if total is None:
                zero = emit(movement.constant, literal=Literal(np.zeros((), x.array_shape.dtype)))
                total = emit(movement.broadcast, zero, sizes=summed_sizes, dimensions=())
            sums.append(emit(movement.reshape, total, sizes=summed_sizes))
        interleaved = sums[0] if dilation == 1 else emit(movement.concatenate, *sums, dimension=position_dim)
        flat = emit(
            movement.reshape,
            interleaved,
            sizes=(*summed_sizes[: position_dim - 1], count * dilation, *summed_sizes[position_dim + 1 :]),
        )
        return self._strided_slice(flat, {position_dim - 1: (positions, 1)})

    def _as_convolution(self) -> Instruction:
        """The convolution that remains."""
        emit, labels = self.rewriter.emit, self.dims.dim_labels
        result = emit(convolution.convolution, self.lhs, self.rhs, **self.dims._asdict())
        if not is_gemm(result):
            return result if self.dims.groups > 1 else self._with_contiguous_terms()
        last = len(labels.rhs_spec) - 1
        kernel_spec, result_spec = _spec_with_last(labels.rhs_spec, 0), _spec_with_last(labels.out_spec, 1)
        rhs = emit(movement.transpose, self.rhs, permutation=_permutation_to_last(labels.rhs_spec[0], last))
        dims = self.dims._replace(dim_labels=ConvDimensionNumbers(labels.lhs_spec, kernel_spec, result_spec))
        result = emit(convolution.convolution, self.lhs, rhs, **dims._asdict())
        inverse = np.argsort(_permutation_to_last(labels.out_spec[1], last))
        return emit(movement.transpose, result, permutation=tuple(map(int, inverse)))

    def _as_bf16_pairs(self) -> Instruction:
        """Features last, and in the kernel the input features before them."""
        emit, (a, b, c) = self.rewriter.emit, self.dims.dim_labels
        last = len(a) - 1
        lhs = emit(movement.transpose, self.lhs, permutation=_permutation_to_last(a[1], last))
        rhs = emit(movement.transpose, self.rhs, permutation=(*b[2:], b[1], b[0]))
        labels = ConvDimensionNumbers(_spec_with_last(a, 1), (last, last - 1, *range(last - 1)), _spec_with_last(c, 1))
        dims = self.dims._replace(dim_labels=labels)
        result = emit(convolution.convolution, lhs, rhs, **dims._asdict())
        inverse = np.argsort(_permutation_to_last(c[1], last))
        return emit(movement.transpose, result, permutation=tuple(map(int, inverse)))

    def _with_contiguous_terms(self) -> Instruction:
        """Few output features: the kernel's output features first, and its other dimensions in the input's order, so
        that sums are contiguous in both operands."""
        labels = self.dims.dim_labels
        inner = sorted(range(1, len(labels.rhs_spec)), key=labels.lhs_spec.__getitem__)
        order = (labels.rhs_spec[0], *(labels.rhs_spec[k] for k in inner))
        spec = tuple(map(order.index, labels.rhs_spec))
        dims = self.dims._replace(dim_labels=ConvDimensionNumbers(labels.lhs_spec, spec, labels.out_spec))
        rhs = self.rewriter.emit(movement.transpose, self.rhs, permutation=order)
        return self.rewriter.emit(convolution.convolution, self.lhs, rhs, **dims._asdict())


def _permutation_to_last(dim: int, last: int) -> Ints:
    """The permutation that moves one dimension to the end."""
    return (*(d for d in range(last + 1) if d != dim), dim)


def _spec_with_last(spec: Ints, k: int) -> Ints:
    """A dimension spec after its k-th dimension was moved to the end."""
    permutation = _permutation_to_last(spec[k], len(spec) - 1)
    return tuple(map(permutation.index, spec))


class WindowRange(NamedTuple):
    """Output positions along a dimension whose windows overlap the array in the same elements: the first position,
    the stride and number of positions, and the range of window elements."""

    first_position: int
    position_stride: int
    positions: int
    first_element: int
    element_stride: int
    elements: int


def window_ranges(w: WindowDimension, size: int, positions: int) -> list[WindowRange]:
    """The ranges of a dimension: by residue for base dilation, by overlap with the edges for padding."""
    ranges: list[WindowRange] = []
    if w.base_dilation > 1:
        for residue in range(min(w.base_dilation, positions)):
            first = (w.padding_low - residue) % w.base_dilation  # the first window element on an input element
            elements = max(0, -(-(w.size - first) // w.base_dilation))
            count = -(-(positions - residue) // w.base_dilation)
            ranges.append(WindowRange(residue, w.base_dilation, count, first, w.base_dilation, elements))
        return ranges
    position = 0
    while position < positions:
        padding_before = w.padding_low - position * w.stride
        first = min(max(-(-padding_before // w.window_dilation), 0), w.size)
        end = max(first, min((size - 1 + padding_before) // w.window_dilation + 1, w.size))
        # The end of the range without padding.
        interior_end = (size - 1 - (w.size - 1) * w.window_dilation + w.padding_low) // w.stride + 1
        count = min(interior_end, positions) - position if (first, end) == (0, w.size) else 1
        if ranges and (ranges[-1].first_element, ranges[-1].elements) == (first, end - first):
            ranges[-1] = ranges[-1]._replace(positions=ranges[-1].positions + count)
        else:
            ranges.append(WindowRange(position, 1, count, first, 1, end - first))
        position += count
    return ranges


def has_depthwise_columns(x: Instruction) -> bool:
    """True if groups have one input feature, and all features are minor."""
    dims: Convolution = x.attributes
    lhs, rhs = (o.array_shape for o in x.operands)
    group = dims.dim_labels.lhs_spec[0 if dims.batch_group_count > 1 else 1]
    has_features_last = {group, dims.dim_labels.rhs_spec[0], dims.dim_labels.out_spec[1]} == {lhs.rank - 1}
    features = rhs.dimensions[dims.dim_labels.rhs_spec[0]]
    has_one_input = lhs.dimensions[group] == dims.groups and features // dims.groups in VECTOR_MULTIPLIERS
    return (
        has_features_last
        and has_one_input
        and features > MIN_GEMM_FEATURES
        and x.array_shape.element_type.name in GEMM_TYPES
    )


def is_canonical(x: Instruction) -> bool:
    """True if a convolution is in canonical form. With base dilation, the first window position begins at an element
    or in the holes after it, and the last ends before the successor of the last element."""
    dims: Convolution = x.attributes
    if dims.preferred_element_type is not None and not has_bf16_pairs(x):
        return False
    if any(w.window_reversal for w in dims.window):
        return False
    for w, d in zip(dims.window, dims.dim_labels.lhs_spec[2:], strict=True):
        size, dilation = x.operands[0].array_shape.dimensions[d], w.base_dilation
        if dilation == 1:
            if (w.padding_low, w.padding_high) != (0, 0) and not has_depthwise_columns(x):
                return False
            continue
        end = w.positions(size) + w.size - 1 - w.padding_low
        if w.stride > 1 or w.window_dilation > 1 or not -dilation < w.padding_low <= 0 or end > size * dilation:
            return False
    return True


def has_bf16_pairs(x: Instruction) -> bool:
    """True if operands are bf16 in the dimension order of pairs, and the result is f32."""
    labels, last = x.attributes.dim_labels, x.operands[0].array_shape.rank - 1
    in_order = labels.lhs_spec[1] == labels.rhs_spec[0] == labels.out_spec[1] == last == labels.rhs_spec[1] + 1
    types = tuple(array.array_shape.element_type.name for array in (*x.operands, x))
    is_even = x.operands[1].array_shape.dimensions[labels.rhs_spec[1]] % 2 == 0
    return in_order and is_even and types == ("bf16", "bf16", "f32") and is_gemm(x)


def _min_features(x: Instruction) -> int:
    """The smallest number of output features for which an implicit GEMM pays off. Smaller where sums can be
    vectorized neither over terms nor over positions."""
    sizes, labels = x.operands[0].array_shape.dimensions, x.attributes.dim_labels
    spec, count = labels.lhs_spec, 1
    wide_dims = [d for d in reversed(range(len(sizes))) if sizes[d] != 1]
    is_last = labels.out_spec[1] == len(sizes) - 1 or x.array_shape.dimensions[labels.out_spec[1]] == 1
    if not is_last or not wide_dims:
        return MIN_GEMM_FEATURES
    for d in wide_dims:
        k = spec.index(d)
        if k > 1 and x.attributes.window[k - 2].window_dilation == 1:
            count *= x.attributes.window[k - 2].size
        if k != 1:
            break
        count *= sizes[d]
    return MIN_GEMM_FEATURES if count >= 2 * VECTOR_ELEMENTS else 1 if spec.index(wide_dims[0]) < 2 else 2


def _has_base_dilation(dims: Convolution) -> bool:
    """True if the input has holes."""
    return any(w.base_dilation > 1 for w in dims.window)


def is_gemm(x: Instruction) -> bool:
    """True if a canonical convolution has enough features and terms per group for an implicit GEMM."""
    dims: Convolution = x.attributes
    sizes = x.operands[1].array_shape.dimensions
    features = sizes[dims.dim_labels.rhs_spec[0]]
    groups = dims.groups
    has_holes = _has_base_dilation(dims)  # few terms are contiguous then
    min_features = (
        min(MIN_GEMM_FEATURES - has_holes, _min_features(x)) if groups == 1 else MIN_GEMM_FEATURES - has_holes
    )
    is_small = features // groups < min_features or math.prod(sizes) // features < MIN_GEMM_FEATURES
    return not is_small and x.array_shape.element_type.name in GEMM_TYPES
