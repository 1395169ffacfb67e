"""Convolutions made simple, as a pass from graph to graph. What is left of them afterwards has nothing but strides,
distances between elements of the window or holes in the input, and groups, so that every index is a sum of multiples
of loop indices:

- padding is made explicit by a `pad`, which fuses with what made the input; and so are holes in the input, unless there
  are neither strides nor distances: a transposed convolution, and the gradient of one with strides, keep theirs, and
  no product with a hole is computed (`is_simple` says how far the input is padded then);
- a window that is reversed becomes a `reverse` of the kernel;
- 8-bit integers without groups are copied so that the windows are the rows of a matrix, which is multiplied;
- other narrow types are widened to what products of them are summed in, except bf16 with an even number of input
  features, which are then last, two of them in a word;
- groups of few features are put side by side as the last dimension, where vectors are made of them: of an input feature
  of each group, one feature of the result or some are made. Of a few such columns, places are made vectors.
  Where nothing has to be moved for that, padding stays: places that differ in which elements of the window are in the
  array are computed apart (`parts`);
- few features of the result are sums of products of each element with the whole kernel: a matrix product, and then sums
  of parts of it that lie apart as the window's elements do, which are loops over places;
- where the window is larger than the result and makes few features of a batch of many, as in the gradient by a kernel
  that has few, the input and the kernel change their parts;
- windows of one element, and those that have one place only, are matrix products; so are others that do not overlap, of
  types that kernels of convolutions do not have. Holes in the input of those of one element are holes in the result.

Of what is close to a matrix product, features are put last in the kernel and in the result, where they are not: they
are what vectors are made of (see the backend). The transposes that give a result the wanted order go on behind what is
made of its elements, to the next convolution, which reads its input in any order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tinyxla.compiler.passes.sink_transposes import sink_through
from tinyxla.compiler.rewriter import Rewriter, for_opcodes, rewrite
from tinyxla.hlo import Computation, Instruction, Literal
from tinyxla.ops import barrier, calls, contraction, convolution, elementwise, indexing, movement
from tinyxla.ops.convolution import ConvDimensionNumbers, Convolution
from tinyxla.shapes import ElementType, WindowDimension, element_type
from tinyxla.shapes.window import dilated

Ints = tuple[int, ...]

FEW = 4  # features or terms
SHORT = 16  # iterations of a loop
MOST_COPIES = 64  # of an element
MOST_PARTS = 32  # of places
LEAST_PLACES = 64  # of a part, on the average
SHARED = (1, 2, 4, 8)  # features of the result that each of the input makes, for which vectors hold several groups
PRODUCTS = ("f32", "f64")  # types of which the backend makes products


@for_opcodes("convolution", "transpose")
def canonicalize_convolutions(computation: Computation) -> Computation:
    """Leave only convolutions of the simplest kind, and only where they are no matrix products."""

    def visit(rewriter: Rewriter, x: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if x.op is convolution.convolution:
            return _Convolution(rewriter, x, operands).simpler()
        return sink_through(
            rewriter, x, operands
        )  # the transposes of results, which the next convolution takes as they are

    return rewrite(computation, visit)


class _Convolution:
    """One convolution while it is rewritten: operands and attributes change together."""

    def __init__(self, rewriter: Rewriter, x: Instruction, operands: Sequence[Instruction]) -> None:
        self.rewriter = rewriter
        self.result = x.array_shape
        self.dims: Convolution = x.attributes
        self.lhs, self.rhs = operands
        if self.lhs.op is movement.transpose:
            order, labels = self.lhs.attributes.permutation, self.dims.dim_labels
            self.lhs = self.lhs.operands[0]
            labels = labels._replace(lhs_spec=tuple(order[d] for d in labels.lhs_spec))
            self.dims = self.dims._replace(dim_labels=labels)

    def simpler(self) -> Instruction:
        kind = self.result.element_type
        emit = self.rewriter.emit
        if 0 in (self.result.size, self.lhs.array_shape.size, self.rhs.array_shape.size):
            zero = emit(movement.constant, literal=Literal(np.zeros((), self.result.dtype)))
            return emit(movement.broadcast, zero, sizes=self.result.dimensions, dimensions=())
        wide = element_type(contraction.accumulator(kind.dtype))
        if self._is_of_bytes():
            return self._converted(self._product_of_bytes(wide), kind)
        is_paired = self._is_paired()
        if not is_paired:
            self.lhs, self.rhs = (self._converted(x, wide) for x in (self.lhs, self.rhs))
        self.dims = self.dims._replace(preferred_element_type=wide if is_paired else None, operand_precision=())
        self._turn()
        holes = self._holes_of_the_result()
        if self._is_turned_round():
            return self._converted(self._padded(self._turned_round(), holes), kind)
        is_tiled = self._is_tiled()
        columns = None if is_paired or is_tiled else self._columns()
        if not columns and not is_tiled:
            self._pad()
        if columns is not None:
            found = self._in_columns() if columns else self._in_rows()
        elif is_tiled or self._is_product():
            found = self._product()
        elif is_paired:
            found = self._in_pairs()
        else:
            found = self._by_elements() if self._has_few_features() else self._plain()
        return self._converted(self._padded(found, holes), kind)

    def _is_paired(self) -> bool:
        """Whether operands stay bf16, and are read two features of the input at a time."""
        spec, sizes, groups = self.dims.dim_labels.rhs_spec, self.rhs.array_shape.dimensions, self.dims.groups
        features, inputs = (sizes[d] for d in spec[:2])
        has_few = features // groups < FEW or math.prod(sizes) // features < FEW or inputs % 2 == 1
        is_narrow = self._types() == {"bf16"} and self.result.element_type.name in ("bf16", "f32")
        return is_narrow and not has_few and not _has_holes(self.dims)

    def _is_of_bytes(self) -> bool:
        """Whether operands stay 8-bit integers: products of matrices multiply many of these at once, which is worth
        copies of each element for the windows that it is in."""
        copies = math.prod(w.size for w in self.dims.window) / math.prod(w.stride for w in self.dims.window)
        features = self._size(self.rhs, self.dims.dim_labels.rhs_spec[0])
        has_few = features < SHORT or self.rhs.array_shape.size // features < SHORT
        is_narrow = self._types() in ({"s8"}, {"u8"}) and self.result.element_type.name in ("s32", "u32")
        is_one = self.dims.groups == 1 and not _has_holes(self.dims)
        return is_narrow and is_one and copies <= MOST_COPIES and not has_few

    def _types(self) -> set[str]:
        """Of the operands."""
        return {x.array_shape.element_type.name for x in (self.lhs, self.rhs)}

    def _product_of_bytes(self, wide: ElementType) -> Instruction:
        """The elements of each window side by side in the order of the kernel's, features last: a row of a matrix."""
        emit, labels = self.rewriter.emit, self.dims.dim_labels
        self._turn()
        self._pad()
        batch, features, *places = labels.lhs_spec
        lhs = emit(movement.transpose, self.lhs, permutation=(batch, *places, features))
        outputs, inputs, *spatial = labels.rhs_spec
        kernel = emit(movement.transpose, self.rhs, permutation=(*spatial, inputs, outputs))
        rank = len(labels.lhs_spec)
        for d in range(rank - 2, 0, -1):
            lhs = self._side_by_side(lhs, d, self.dims.window[d - 1])
        count = kernel.array_shape.dimensions[-1]
        matrix = emit(movement.reshape, kernel, sizes=(kernel.array_shape.size // count, count))
        product = emit(contraction.dot, lhs, matrix, **contraction.Dot((rank - 1,), (0,), (), (), wide)._asdict())
        found = dict(zip((labels.out_spec[0], *labels.out_spec[2:], labels.out_spec[1]), range(rank), strict=True))
        return emit(movement.transpose, product, permutation=tuple(found[d] for d in range(rank)))

    def _side_by_side(self, x: Instruction, dim: int, w: WindowDimension) -> Instruction:
        """At each place of a window along a dimension what it has there, before what is last."""
        last, end = x.array_shape.rank - 1, (w.positions(self._size(x, dim)) - 1) * w.stride + 1
        found: list[Instruction] = []
        for k in range(w.size):
            starts, limits, strides = [0] * (last + 1), list(x.array_shape.dimensions), [1] * (last + 1)
            starts[dim] = k * w.window_dilation
            limits[dim], strides[dim] = starts[dim] + end, w.stride
            places = {"start_indices": tuple(starts), "limit_indices": tuple(limits), "strides": tuple(strides)}
            found.append(self.rewriter.emit(movement.slice_, x, **places))
        if w.size == 1:
            return found[0]
        joined = self.rewriter.emit(movement.concatenate, *found, dimension=last)
        # Stored: else each element of pieces of pieces would be asked for its place.
        stored = self.rewriter.emit(barrier.opt_barrier, joined)
        return self.rewriter.emit(calls.get_tuple_element, stored, index=0)

    def _converted(self, x: Instruction, kind: object) -> Instruction:
        if x.array_shape.element_type is kind:
            return x
        return self.rewriter.emit(elementwise.convert, x, new_element_type=kind)

    def _size(self, x: Instruction, dim: int) -> int:
        return x.array_shape.dimensions[dim]

    def _turn(self) -> None:
        """Reverse the kernel where the window is."""
        labels, window = self.dims.dim_labels, self.dims.window
        turned = tuple(d for d, w in zip(labels.rhs_spec[2:], window, strict=True) if w.window_reversal and w.size > 1)
        if turned:
            self.rhs = self.rewriter.emit(movement.reverse, self.rhs, dimensions=turned)
        self.dims = self.dims._replace(window=tuple(w._replace(window_reversal=False) for w in window))

    def _holes_of_the_result(self) -> dict[int, tuple[int, int, int]]:
        """Leave holes in the input away where they are also holes in the result; gives how that is then padded."""
        found: dict[int, tuple[int, int, int]] = {}
        window = list(self.dims.window)
        for d, w in enumerate(window):
            if w.size == w.stride == 1 and w.base_dilation > 1:
                found[self.dims.dim_labels.out_spec[2 + d]] = (w.padding_low, w.padding_high, w.base_dilation - 1)
                window[d] = WindowDimension(1)
        self.dims = self.dims._replace(window=tuple(window))
        return found

    def _padded(self, x: Instruction, config: dict[int, tuple[int, int, int]]) -> Instruction:
        """x padded with zeros. A few elements inside of the last dimension that is padded become part of it, so that
        loops along it are long."""
        config = {d: c for d, c in config.items() if c != (0, 0, 0)}
        if not config:
            return x
        emit, sizes, last = self.rewriter.emit, x.array_shape.dimensions, max(config)
        inside = math.prod(sizes[last + 1 :])
        low, high, interior = config[last]
        if 1 < inside < SHORT and not interior:
            x = emit(movement.reshape, x, sizes=(*sizes[:last], sizes[last] * inside))
            config[last] = (low * inside, high * inside, 0)
        zero = emit(movement.constant, literal=Literal(np.zeros((), x.array_shape.dtype)))
        whole = tuple(config.get(d, (0, 0, 0)) for d in range(x.array_shape.rank))
        found = emit(movement.pad, x, zero, padding_config=whole)
        if x.array_shape.rank == len(sizes):
            return found
        *outer, joined = found.array_shape.dimensions
        return emit(movement.reshape, found, sizes=(*outer, joined // inside, *sizes[last + 1 :]))

    def _sliced(self, x: Instruction, limits: dict[int, tuple[int, int]]) -> Instruction:
        """From the start to a limit with a stride, for some dimensions."""
        sizes = x.array_shape.dimensions
        whole = [limits.get(d, (size, 1)) for d, size in enumerate(sizes)]
        if all(limit == size and stride == 1 for (limit, stride), size in zip(whole, sizes, strict=True)):
            return x
        return self.rewriter.emit(
            movement.slice_,
            x,
            start_indices=(0,) * len(sizes),
            limit_indices=tuple(limit for limit, _ in whole),
            strides=tuple(stride for _, stride in whole),
        )

    def _pad(self) -> None:
        """Make padding explicit, and holes where they stand in the way of strides."""
        config: dict[int, tuple[int, int, int]] = {}
        window: list[WindowDimension] = []
        for w, d in zip(self.dims.window, self.dims.dim_labels.lhs_spec[2:], strict=True):
            size, apart = self._size(self.lhs, d), w.base_dilation
            if apart == 1 or w.stride > 1 or w.window_dilation > 1:
                (config[d],) = convolution.padded_config((w,), (size,))
                window.append(WindowDimension(w.size, w.stride, window_dilation=w.window_dilation))
                continue
            end = w.positions(size) + w.size - 1
            before = -(-w.padding_low // apart)
            low = w.padding_low - before * apart
            needed = (end - 1 + -w.positions(size) % apart - low) // apart + 1  # for all residues as many places
            config[d] = (before, needed - size - before, 0)
            window.append(WindowDimension(w.size, 1, low, end - low - dilated(needed, apart), 1, apart))
        self.lhs = self._padded(self.lhs, config)
        self.dims = self.dims._replace(window=tuple(window))

    # --- matrix products

    def _positions(self) -> Ints:
        spatial = self.dims.dim_labels.lhs_spec[2:]
        return tuple(w.positions(self._size(self.lhs, d)) for w, d in zip(self.dims.window, spatial, strict=True))

    def _is_product(self) -> bool:
        """Whether it is a product of matrices as they stand; or of copies, if the backend has nothing better."""
        copied = self.result.element_type.name not in PRODUCTS
        return all(
            w.base_dilation == 1
            and (n == 1 or w.size == 1 or (copied and w.window_dilation == 1 and w.stride >= w.size))
            for w, n in zip(self.dims.window, self._positions(), strict=True)
        )

    def _is_tiled(self) -> bool:
        """Whether each element of the input makes a tile of the result as large as the window, and all of that."""
        sizes = (self._size(self.lhs, d) for d in self.dims.dim_labels.lhs_spec[2:])
        return self.dims.groups == 1 and all(
            w == WindowDimension(w.size, 1, w.size - 1, w.size - 1, 1, w.size) and n == w.size * size
            for w, n, size in zip(self.dims.window, self._positions(), sizes, strict=True)
        )

    def _product(self) -> Instruction:
        """A product over dimensions with names: those that both operands have are terms, or groups."""
        emit = self.rewriter.emit
        window = zip(self.dims.dim_labels.rhs_spec[2:], self.dims.window, strict=True)
        tiled = [d for d, w in window if w.base_dilation > 1]
        if tiled:
            self.rhs = emit(movement.reverse, self.rhs, dimensions=tuple(tiled))
        lhs, left = self._named_lhs()
        rhs, right = self._named_rhs()
        groups = [name for name in left if name == "group"]
        terms = [name for name in left if name in right and name != "group"]
        dims = contraction.Dot(
            tuple(map(left.index, terms)),
            tuple(map(right.index, terms)),
            tuple(map(left.index, groups)),
            tuple(map(right.index, groups)),
            self.dims.preferred_element_type,
        )
        product = emit(contraction.dot, lhs, rhs, **dims._asdict())
        found = [*groups, *(n for n in left if n not in right), *(n for n in right if n not in left)]
        wanted: list[str] = []
        of_features = {0: ["batch"], 1: [*groups, "output"]}
        for k in sorted(range(len(self.dims.dim_labels.out_spec)), key=self.dims.dim_labels.out_spec.__getitem__):
            wanted += of_features.get(k) or [n for n in (f"place{k}", f"window{k}") if n in found]
        product = emit(movement.transpose, product, permutation=tuple(map(found.index, wanted)))
        return emit(movement.reshape, product, sizes=self._result_sizes())

    def _named_lhs(self) -> tuple[Instruction, list[str]]:
        """The input, with places and what is inside of the window as dimensions of their own, and groups too."""
        spec, positions, lhs = self.dims.dim_labels.lhs_spec, self._positions(), self.lhs
        sizes: list[int] = []
        names: list[str] = []
        taken: dict[int, tuple[int, int]] = {}
        for k in sorted(range(len(spec)), key=spec.__getitem__):
            size = self._size(lhs, spec[k])
            if k > 1:
                w, n = self.dims.window[k - 2], positions[k - 2]
                if w.base_dilation > 1:
                    sizes.append(size)
                    names.append(f"place{k}")
                    continue
                inside = w.window_dilation if n == 1 else 1
                extent = dilated(w.size, inside)
                step = extent if n == 1 else w.stride
                taken[len(sizes) + 1] = (extent, inside)
                lhs = self._padded(lhs, {spec[k]: (0, n * step - size, 0)})
                sizes += [n, step]
                names += [f"place{k}", f"window{k}"]
                continue
            groups = self.dims.feature_group_count if k else self.dims.batch_group_count
            if groups > 1:
                sizes.append(groups)
                names.append("group")
            sizes.append(size // groups)
            names.append("input" if k else "batch")
        return self._sliced(self.rewriter.emit(movement.reshape, lhs, sizes=tuple(sizes)), taken), names

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
        found = [0] * len(labels.out_spec)
        sizes = (batch, self._size(self.rhs, labels.rhs_spec[0]), *self._positions())
        for d, size in zip(labels.out_spec, sizes, strict=True):
            found[d] = size
        return tuple(found)

    # --- groups of few features

    def _columns(self) -> bool | None:
        """Whether they should become columns (True), or rows of places (False)."""
        (lhs, rhs, out), kind, groups = self.dims.dim_labels, self.result.element_type.name, self.dims.groups
        features = self._size(self.rhs, rhs[0])
        terms, inputs = math.prod(self.rhs.array_shape.dimensions) // features, self._size(self.rhs, rhs[1])
        each = features // groups
        few = each < FEW or each in SHARED or terms < FEW or (inputs < FEW and each < SHORT)
        positions, last = self._positions(), len(lhs) - 1
        moves = any(w.size > 1 and n > 1 for w, n in zip(self.dims.window, positions, strict=True))
        if kind not in PRODUCTS or groups == 1 or not few or not moves:
            return None
        in_rows = [k for k in range(2, last + 1) if lhs[k] == out[k] == last and positions[k - 2] >= SHORT]
        strides = any(w.stride * w.base_dilation > 1 for w in self.dims.window)
        if in_rows and not strides and terms <= SHORT:
            return None
        if features >= SHORT:
            return True
        by_places = self.dims.batch_group_count == 1 and lhs[1] == last and max(positions) >= SHORT
        return False if by_places else None

    def _in_columns(self) -> Instruction:
        """With an input feature for each of the result, or for some that are neighbours, and all features last."""
        emit, (lhs, rhs, out) = self.rewriter.emit, self.dims.dim_labels
        features, rank = self._size(self.rhs, rhs[0]), len(out)
        is_so = is_by_columns(self._made())
        is_turned = lhs[0 if self.dims.batch_group_count > 1 else 1] != rank - 1
        if not is_so:
            self._put_features_last(features)
        made = self._made()
        along = zip(self.dims.window, self.dims.dim_labels.lhs_spec[2:], self._positions(), strict=True)
        edges = math.prod(len(parts(w, self._size(self.lhs, d), n)) for w, d, n in along)
        is_worth = (is_so or features == self.dims.groups) and edges * LEAST_PLACES <= self.result.size // features
        if not is_simple(made) or edges > MOST_PARTS or not is_worth:
            if self.lhs.op is movement.transpose and is_turned:  # which is quick by itself
                self.lhs = emit(calls.get_tuple_element, emit(barrier.opt_barrier, self.lhs), index=0)
            self._pad()
        found = emit(convolution.convolution, self.lhs, self.rhs, **self.dims._asdict())
        if is_so:
            return found
        found = emit(movement.reshape, found, sizes=(*found.array_shape.dimensions[: rank - 1], features))
        return self._ordered(found, rank - 1, out)

    def _made(self) -> Instruction:
        return Instruction(convolution.convolution, (self.lhs, self.rhs), self.dims, self.result)

    def _put_features_last(self, features: int) -> None:
        """An input feature for each group: of several, a dimension of the window is made, which comes before the
        features. Where vectors cannot be made of a group's features of the result, it is repeated for each of them."""
        emit, (a, b, _), groups = self.rewriter.emit, self.dims.dim_labels, self.dims.groups
        rank, group = len(a), a[0] if self.dims.batch_group_count > 1 else a[1]
        inputs = self._size(self.rhs, b[1])
        rhs = emit(movement.transpose, self.rhs, permutation=(*b[2:], b[1], b[0]))
        self.rhs = emit(movement.reshape, rhs, sizes=(*rhs.array_shape.dimensions[:-1], 1, features))
        sizes = self.lhs.array_shape.dimensions
        sizes = (*sizes[:group], groups, sizes[group] // groups, *sizes[group + 1 :])
        lhs = emit(movement.reshape, self.lhs, sizes=sizes)
        batch, inner, *places = (d + (d >= group) for d in a)  # of the dimension that is parted, the second part
        self.lhs = emit(movement.transpose, lhs, permutation=(batch, *places, inner, group))
        if features // groups not in SHARED:
            of_which = np.arange(features, dtype=np.int32) // (features // groups)
            groups = features
            indices = emit(movement.constant, literal=Literal(of_which))
            whole = (*self.lhs.array_shape.dimensions[:-1], 1)
            repeated = indexing.Gather(tuple(range(rank)), (rank,), (rank,), 1, whole)
            self.lhs = emit(indexing.gather, self.lhs, indices, **repeated._asdict())
        spec = (0, rank, *range(1, rank))
        labels = ConvDimensionNumbers(spec, (rank, rank - 1, *range(rank - 1)), spec)
        self.dims = Convolution((*self.dims.window, WindowDimension(inputs)), labels, feature_group_count=groups)

    def _in_rows(self) -> Instruction:
        """With the places last."""
        emit, (a, b, out) = self.rewriter.emit, self.dims.dim_labels
        lhs, rhs = (emit(movement.transpose, x, permutation=s) for x, s in ((self.lhs, a), (self.rhs, b)))
        spec = tuple(range(len(a)))
        dims = self.dims._replace(dim_labels=ConvDimensionNumbers(spec, spec, spec))
        return self._ordered(emit(convolution.convolution, lhs, rhs, **dims._asdict()), 1, out)

    def _ordered(self, x: Instruction, feature: int, spec: Ints) -> Instruction:
        """A result with the batch first and the features there, in the order that is wanted."""
        names = [0, *range(2, x.array_shape.rank)]
        names.insert(feature, 1)
        return self.rewriter.emit(movement.transpose, x, permutation=tuple(names.index(k) for k in np.argsort(spec)))

    # --- few features and a large window

    def _is_turned_round(self) -> bool:
        """Whether the kernel should be the input: in the gradient by the kernel of a convolution to few features, the
        window is the whole image, and the batch, which are the features of the input, makes the better columns."""
        labels, kind = self.dims.dim_labels, self.result.element_type.name
        batch, features = self._size(self.lhs, labels.lhs_spec[0]), self._size(self.rhs, labels.rhs_spec[0])
        is_dense = all(w.stride == w.base_dilation == 1 for w in self.dims.window)
        is_whole = math.prod(w.size for w in self.dims.window) > math.prod(self._positions())
        return kind in PRODUCTS and self.dims.groups == 1 and features < FEW <= batch and is_dense and is_whole

    def _turned_round(self) -> Instruction:
        """A place's window begins where the place is. Seen from the other operand, it ends there: so the places come in
        the opposite order."""
        (batch, inputs, *places), (features, terms, *inside), out = self.dims.dim_labels
        window: list[WindowDimension] = []
        for w, positions, place in zip(self.dims.window, self._positions(), places, strict=True):
            size, low = self._size(self.lhs, place), positions - 1 - w.padding_low
            high = positions + size - 1 - dilated(w.size, w.window_dilation) - low
            window.append(WindowDimension(size, 1, low, high, base_dilation=w.window_dilation))
        labels = ConvDimensionNumbers((features, terms, *inside), (batch, inputs, *places), (out[1], out[0], *out[2:]))
        x = Instruction(convolution.convolution, (self.rhs, self.lhs), Convolution(tuple(window), labels), self.result)
        found = _Convolution(self.rewriter, x, x.operands).simpler()
        return self.rewriter.emit(movement.reverse, found, dimensions=tuple(sorted(out[2:])))

    # --- products of elements

    def _has_few_features(self) -> bool:
        """Whether it has so few features of the result, and so many of the input, that products of all elements with
        the whole kernel, of which each result is a sum, are done faster than sums for each feature."""
        labels, kind = self.dims.dim_labels, self.result.element_type.name
        features, terms = (self._size(self.rhs, d) for d in labels.rhs_spec[:2])
        is_dense = all(w.stride == 1 and w.size <= SHORT for w in self.dims.window)
        return kind in PRODUCTS and self.dims.groups == 1 and features < FEW and terms >= SHORT and is_dense

    def _by_elements(self) -> Instruction:
        lhs, rhs, out = self.dims.dim_labels
        dims = contraction.Dot((rhs[1],), (lhs[1],), (), ())
        found = self.rewriter.emit(contraction.dot, self.rhs, self.lhs, **dims._asdict())
        inside = {d: f"window{k}" for k, d in enumerate(rhs[2:])} | {rhs[0]: "output"}
        around = {d: f"place{k}" for k, d in enumerate(lhs[2:])} | {lhs[0]: "batch"}
        names = [name for _, name in (*sorted(inside.items()), *sorted(around.items()))]
        for k, w in enumerate(self.dims.window):
            found = self._summed(found, names.index(f"window{k}"), names.index(f"place{k}"), w)
            names.remove(f"window{k}")
        wanted = {out[0]: "batch", out[1]: "output"} | {d: f"place{k}" for k, d in enumerate(out[2:])}
        order = tuple(names.index(wanted[d]) for d in range(len(out)))
        return self.rewriter.emit(movement.transpose, found, permutation=order)

    def _summed(self, x: Instruction, inside: int, place: int, w: WindowDimension) -> Instruction:
        """Sums over a dimension of the window, which comes before that of its places: of places moved by as much."""
        emit, apart = self.rewriter.emit, w.base_dilation
        sizes, positions = x.array_shape.dimensions, w.positions(self._size(x, place))
        count = -(-positions // apart)
        whole = (*sizes[:inside], *sizes[inside + 1 : place], count, 1, *sizes[place + 1 :])
        found: list[Instruction] = []
        for residue in range(apart):
            first = (w.padding_low - residue) % apart
            begin = (residue + first - w.padding_low) // apart
            total: Instruction | None = None
            for step, k in enumerate(range(first, w.size, apart)):
                starts, limits = [0] * len(sizes), list(sizes)
                starts[inside], limits[inside] = k, k + 1
                starts[place] = begin + step * w.window_dilation
                limits[place] = starts[place] + count
                part = emit(
                    movement.slice_,
                    x,
                    start_indices=tuple(starts),
                    limit_indices=tuple(limits),
                    strides=(1,) * len(sizes),
                )
                total = part if total is None else emit(elementwise.add, total, part)
            if total is None:
                zero = emit(movement.constant, literal=Literal(np.zeros((), x.array_shape.dtype)))
                total = emit(movement.broadcast, zero, sizes=whole, dimensions=())
            found.append(emit(movement.reshape, total, sizes=whole))
        together = found[0] if apart == 1 else emit(movement.concatenate, *found, dimension=place)
        flat = emit(movement.reshape, together, sizes=(*whole[: place - 1], count * apart, *whole[place + 1 :]))
        return self._sliced(flat, {place - 1: (positions, 1)})

    def _plain(self) -> Instruction:
        """What stays a convolution."""
        emit, labels = self.rewriter.emit, self.dims.dim_labels
        found = emit(convolution.convolution, self.lhs, self.rhs, **self.dims._asdict())
        if not is_product(found):
            return found if self.dims.groups > 1 else self._by_terms()
        last = len(labels.rhs_spec) - 1
        kernel, result = (_with_last(spec, feature) for spec, feature in ((labels.rhs_spec, 0), (labels.out_spec, 1)))
        rhs = emit(movement.transpose, self.rhs, permutation=_order(labels.rhs_spec[0], last))
        dims = self.dims._replace(dim_labels=ConvDimensionNumbers(labels.lhs_spec, kernel, result))
        found = emit(convolution.convolution, self.lhs, rhs, **dims._asdict())
        back = np.argsort(_order(labels.out_spec[1], last))
        return emit(movement.transpose, found, permutation=tuple(map(int, back)))

    def _in_pairs(self) -> Instruction:
        """With all features last, and in the kernel those of the input before them."""
        emit, (a, b, c) = self.rewriter.emit, self.dims.dim_labels
        last = len(a) - 1
        lhs = emit(movement.transpose, self.lhs, permutation=_order(a[1], last))
        rhs = emit(movement.transpose, self.rhs, permutation=(*b[2:], b[1], b[0]))
        labels = ConvDimensionNumbers(_with_last(a, 1), (last, last - 1, *range(last - 1)), _with_last(c, 1))
        dims = self.dims._replace(dim_labels=labels)
        found = emit(convolution.convolution, lhs, rhs, **dims._asdict())
        back = np.argsort(_order(c[1], last))
        return emit(movement.transpose, found, permutation=tuple(map(int, back)))

    def _by_terms(self) -> Instruction:
        """Of few features, with the kernel's features first and all else in the input's order: sums run along both."""
        labels = self.dims.dim_labels
        inner = sorted(range(1, len(labels.rhs_spec)), key=labels.lhs_spec.__getitem__)
        order = (labels.rhs_spec[0], *(labels.rhs_spec[k] for k in inner))
        spec = tuple(map(order.index, labels.rhs_spec))
        dims = self.dims._replace(dim_labels=ConvDimensionNumbers(labels.lhs_spec, spec, labels.out_spec))
        rhs = self.rewriter.emit(movement.transpose, self.rhs, permutation=order)
        return self.rewriter.emit(convolution.convolution, self.lhs, rhs, **dims._asdict())


def _order(dim: int, last: int) -> Ints:
    """The dimensions up to the last with one of them at the end."""
    return (*(d for d in range(last + 1) if d != dim), dim)


def _with_last(spec: Ints, k: int) -> Ints:
    """Where the dimensions are when the k-th of them was put last."""
    order = _order(spec[k], len(spec) - 1)
    return tuple(map(order.index, spec))


class Part(NamedTuple):
    """Places along a dimension whose windows have the same elements in the array: the first, how far they are apart,
    and how many; and these elements of the window."""

    place: int
    apart: int
    places: int
    element: int
    further: int
    elements: int


def parts(w: WindowDimension, size: int, positions: int) -> list[Part]:
    """Those of a dimension: by the residue where the input has holes, by the edges where it is padded."""
    found: list[Part] = []
    if w.base_dilation > 1:
        for residue in range(min(w.base_dilation, positions)):
            first = (w.padding_low - residue) % w.base_dilation  # of the elements, the one that meets the input
            elements = max(0, -(-(w.size - first) // w.base_dilation))
            places = -(-(positions - residue) // w.base_dilation)
            found.append(Part(residue, w.base_dilation, places, first, w.base_dilation, elements))
        return found
    place = 0
    while place < positions:
        before = w.padding_low - place * w.stride
        first = min(max(-(-before // w.window_dilation), 0), w.size)
        end = max(first, min((size - 1 + before) // w.window_dilation + 1, w.size))
        inside = (size - 1 - (w.size - 1) * w.window_dilation + w.padding_low) // w.stride + 1  # to here, from here on
        places = min(inside, positions) - place if (first, end) == (0, w.size) else 1
        if found and (found[-1].element, found[-1].elements) == (first, end - first):
            found[-1] = found[-1]._replace(places=found[-1].places + places)
        else:
            found.append(Part(place, 1, places, first, 1, end - first))
        place += places
    return found


def is_by_columns(x: Instruction) -> bool:
    """Whether the features of the result are made of one feature of the input for each group, and all are last."""
    dims: Convolution = x.attributes
    lhs, rhs = (o.array_shape for o in x.operands)
    group = dims.dim_labels.lhs_spec[0 if dims.batch_group_count > 1 else 1]
    last = {group, dims.dim_labels.rhs_spec[0], dims.dim_labels.out_spec[1]} == {lhs.rank - 1}
    features = rhs.dimensions[dims.dim_labels.rhs_spec[0]]
    alone = lhs.dimensions[group] == dims.groups and features // dims.groups in SHARED
    return last and alone and features > FEW and x.array_shape.element_type.name in PRODUCTS


def is_simple(x: Instruction) -> bool:
    """Whether a convolution is what the pass makes. In an input with holes the first place of the window begins at an
    element or in holes after it, and the last ends before the last element's successor."""
    dims: Convolution = x.attributes
    if dims.preferred_element_type is not None and not is_paired(x):
        return False
    if any(w.window_reversal for w in dims.window):
        return False
    for w, d in zip(dims.window, dims.dim_labels.lhs_spec[2:], strict=True):
        size, apart = x.operands[0].array_shape.dimensions[d], w.base_dilation
        if apart == 1:
            if (w.padding_low, w.padding_high) != (0, 0) and not is_by_columns(x):
                return False
            continue
        end = w.positions(size) + w.size - 1 - w.padding_low
        if w.stride > 1 or w.window_dilation > 1 or not -apart < w.padding_low <= 0 or end > size * apart:
            return False
    return True


def is_paired(x: Instruction) -> bool:
    """Whether operands are bf16 in the order that pairs need, and the result is f32."""
    labels, last = x.attributes.dim_labels, x.operands[0].array_shape.rank - 1
    in_order = labels.lhs_spec[1] == labels.rhs_spec[0] == labels.out_spec[1] == last == labels.rhs_spec[1] + 1
    types = tuple(y.array_shape.element_type.name for y in (*x.operands, x))
    is_even = x.operands[1].array_shape.dimensions[labels.rhs_spec[1]] % 2 == 0
    return in_order and is_even and types == ("bf16", "bf16", "f32") and is_product(x)


def _least_features(x: Instruction) -> int:
    """Of how many features on products are worth it. Fewer are where sums can be loops along memory neither over terms
    nor over places: features of the result are last, and few terms are side by side in the input."""
    sizes, labels = x.operands[0].array_shape.dimensions, x.attributes.dim_labels
    spec, count = labels.lhs_spec, 1
    wide = [d for d in reversed(range(len(sizes))) if sizes[d] != 1]
    is_last = labels.out_spec[1] == len(sizes) - 1 or x.array_shape.dimensions[labels.out_spec[1]] == 1
    if not is_last or not wide:
        return FEW
    for d in wide:
        k = spec.index(d)
        if k > 1 and x.attributes.window[k - 2].window_dilation == 1:
            count *= x.attributes.window[k - 2].size
        if k != 1:
            break
        count *= sizes[d]
    return FEW if count >= 2 * SHORT else 1 if spec.index(wide[0]) < 2 else 2


def _has_holes(dims: Convolution) -> bool:
    """Whether there are holes between the elements of the input."""
    return any(w.base_dilation > 1 for w in dims.window)


def is_product(x: Instruction) -> bool:
    """Whether a convolution of the simplest kind has so many features and terms in a group that it is worth being done
    as a product of matrices."""
    dims: Convolution = x.attributes
    sizes = x.operands[1].array_shape.dimensions
    features = sizes[dims.dim_labels.rhs_spec[0]]
    groups = dims.groups
    has_holes = _has_holes(dims)  # then few terms are contiguous
    least = min(FEW - has_holes, _least_features(x)) if groups == 1 else FEW - has_holes
    few = features // groups < least or math.prod(sizes) // features < FEW
    return not few and x.array_shape.element_type.name in PRODUCTS
