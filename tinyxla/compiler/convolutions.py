"""Convolutions made simple, as a pass from graph to graph. What is left of them afterwards has nothing but strides,
distances between elements of the window, and groups, so that every index is a sum of multiples of loop indices:

- padding and holes in the input are made explicit by a `pad`, which fuses with what made the input;
- a window that is reversed becomes a `reverse` of the kernel;
- narrow types are widened to what products of them are summed in;
- holes in the input without strides - a transposed convolution, and the gradient of one with strides - are no holes at
  all, but a convolution for each residue of the result's index by the distance of elements, with every so-many-th
  element of the kernel. All of these are one convolution, whose output features are those of all residues;
- windows that do not overlap, those of one element and those that have one place only among them, are matrix products.

The kernel's dimensions are put in the order of the input's, and its output features first or last, where they are not,
since kernels want to be matrices (see the backend).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tinyxla.compiler.rewriting import Rewriter, rewrite
from tinyxla.hlo import Computation, Instruction, Literal
from tinyxla.ops import contraction, convolution, elementwise, movement
from tinyxla.ops.convolution import ConvDimensionNumbers, Convolution
from tinyxla.shapes import WindowDimension, element_type
from tinyxla.shapes.window import dilated

Ints = tuple[int, ...]


def canonicalize_convolutions(computation: Computation) -> Computation:
    """Leave only convolutions of the simplest kind, and only where they are no matrix products."""

    def visit(rewriter: Rewriter, x: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        return _Convolution(rewriter, x, operands).simpler() if x.op is convolution.convolution else None

    return rewrite(computation, visit)


class _Convolution:
    """One convolution while it is rewritten: operands and attributes change together."""

    def __init__(self, rewriter: Rewriter, x: Instruction, operands: Sequence[Instruction]) -> None:
        self.rewriter = rewriter
        self.result = x.array_shape
        self.dims: Convolution = x.attributes
        self.lhs, self.rhs = operands

    def simpler(self) -> Instruction:
        kind = self.result.element_type
        emit = self.rewriter.emit
        if 0 in (self.result.size, self.lhs.array_shape.size, self.rhs.array_shape.size):
            zero = emit(movement.constant, literal=Literal(np.zeros((), self.result.dtype)))
            return emit(movement.broadcast, zero, sizes=self.result.dimensions, dimensions=())
        wide = element_type(contraction.accumulator(kind.dtype))
        self.lhs, self.rhs = (self._converted(x, wide) for x in (self.lhs, self.rhs))
        self.dims = self.dims._replace(preferred_element_type=None, operand_precision=())
        self._turn()
        residues = self._without_holes()
        self._pad()
        found = self._product() if self._is_product() else self._plain()
        for d, (count, size) in residues.items():
            found = self._interleaved(found, d, count, size)
        return self._converted(found, kind)

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

    def _without_holes(self) -> dict[int, tuple[int, int]]:
        """Turn holes into output features; for each spatial dimension the number of residues and the result's size."""
        found: dict[int, tuple[int, int]] = {}
        labels = self.dims.dim_labels
        for d, w in enumerate(self.dims.window):
            if w.base_dilation == 1 or w.stride > 1 or w.window_dilation > 1:
                continue
            count, dim = w.base_dilation, labels.rhs_spec[2 + d]
            places = self._size(self.lhs, labels.lhs_spec[2 + d])
            positions = w.positions(places)
            first, last = -(w.padding_low // count), (w.size - 1 + count - 1 - w.padding_low) // count
            size = last - first + 1
            low = count - 1 - w.padding_low % count
            split = self._padded(self.rhs, {dim: (low, size * count - low - w.size, 0)})
            out = labels.rhs_spec[0]
            sizes = split.array_shape.dimensions
            split = self.rewriter.emit(movement.reshape, split, sizes=(*sizes[:dim], size, count, *sizes[dim + 1 :]))
            split = self.rewriter.emit(movement.reverse, split, dimensions=(dim + 1,))
            self.rhs = self._joined(split, dim + 1, out + (out > dim))
            wanted = -(-positions // count)
            high = wanted + size - 1 - places + first
            window = list(self.dims.window)
            window[d] = WindowDimension(size, 1, -first, high)
            self.dims = self.dims._replace(window=tuple(window))
            found[d] = (count, positions)
        return dict(reversed(found.items()))

    def _joined(self, x: Instruction, axis: int, into: int) -> Instruction:
        """x with one dimension as the inner part of another."""
        order = [k for k in range(x.array_shape.rank) if k != axis]
        at = order.index(into)
        order.insert(at + 1, axis)
        moved = self.rewriter.emit(movement.transpose, x, permutation=tuple(order))
        sizes = moved.array_shape.dimensions
        return self.rewriter.emit(
            movement.reshape, moved, sizes=(*sizes[:at], sizes[at] * sizes[at + 1], *sizes[at + 2 :])
        )

    def _interleaved(self, x: Instruction, d: int, count: int, size: int) -> Instruction:
        """The inverse: output features of residues as places in dimension d, of which so many are kept."""
        labels = self.dims.dim_labels
        feature, dim = labels.out_spec[1], labels.out_spec[2 + d]
        sizes = x.array_shape.dimensions
        split = self.rewriter.emit(
            movement.reshape, x, sizes=(*sizes[:feature], sizes[feature] // count, count, *sizes[feature + 1 :])
        )
        whole = self._joined(split, feature + 1, dim + (dim > feature))
        return self._sliced(whole, {dim: (size, 1)})

    def _padded(self, x: Instruction, config: dict[int, tuple[int, int, int]]) -> Instruction:
        if all(c == (0, 0, 0) for c in config.values()):
            return x
        zero = self.rewriter.emit(movement.constant, literal=Literal(np.zeros((), x.array_shape.dtype)))
        whole = tuple(config.get(d, (0, 0, 0)) for d in range(x.array_shape.rank))
        return self.rewriter.emit(movement.pad, x, zero, padding_config=whole)

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
        """Make holes and padding explicit."""
        spatial = self.dims.dim_labels.lhs_spec[2:]
        sizes = tuple(self._size(self.lhs, d) for d in spatial)
        config = convolution.padded_config(self.dims.window, sizes)
        self.lhs = self._padded(self.lhs, dict(zip(spatial, config, strict=True)))
        plain = tuple(WindowDimension(w.size, w.stride, window_dilation=w.window_dilation) for w in self.dims.window)
        self.dims = self.dims._replace(window=plain)

    # --- matrix products

    def _positions(self) -> Ints:
        spatial = self.dims.dim_labels.lhs_spec[2:]
        return tuple(w.positions(self._size(self.lhs, d)) for w, d in zip(self.dims.window, spatial, strict=True))

    def _is_product(self) -> bool:
        return all(
            n == 1 or w.size == 1 or (w.window_dilation == 1 and w.stride >= w.size)
            for w, n in zip(self.dims.window, self._positions(), strict=True)
        )

    def _product(self) -> Instruction:
        """A product over dimensions with names: those that both operands have are terms, or groups."""
        emit = self.rewriter.emit
        lhs, left = self._named_lhs()
        rhs, right = self._named_rhs()
        groups = [name for name in left if name == "group"]
        terms = [name for name in left if name in right and name != "group"]
        dims = contraction.Dot(
            tuple(map(left.index, terms)),
            tuple(map(right.index, terms)),
            tuple(map(left.index, groups)),
            tuple(map(right.index, groups)),
        )
        product = emit(contraction.dot, lhs, rhs, **dims._asdict())
        found = [*groups, *(n for n in left if n not in right), *(n for n in right if n not in left)]
        wanted: list[str] = []
        for k in sorted(range(len(self.dims.dim_labels.out_spec)), key=self.dims.dim_labels.out_spec.__getitem__):
            wanted += ["batch"] if k == 0 else [*groups, "output"] if k == 1 else [f"place{k}"]
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

    def _plain(self) -> Instruction:
        """What stays a convolution, with a kernel that is a matrix."""
        labels = self.dims.dim_labels
        rank = len(labels.rhs_spec)
        inner = sorted(range(1, rank), key=lambda k: labels.lhs_spec[k])
        order = [labels.rhs_spec[k] for k in inner]
        out = labels.rhs_spec[0]
        if out not in (0, rank - 1) or order != sorted(order):
            self.rhs = self.rewriter.emit(movement.transpose, self.rhs, permutation=(*order, out))
            spec = [0] * rank
            spec[0] = rank - 1
            for place, k in enumerate(inner):
                spec[k] = place
            self.dims = self.dims._replace(
                dim_labels=ConvDimensionNumbers(labels.lhs_spec, tuple(spec), labels.out_spec)
            )
        return self.rewriter.emit(convolution.convolution, self.lhs, self.rhs, **self.dims._asdict())
