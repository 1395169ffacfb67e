"""`pallas_call`: a kernel, which reads and writes references to blocks of arrays, as a function of arrays.

The programs of the grid run one after the other in loops; the compiler makes of that what it makes of any loops. The
values are those of JAX's interpreted form (`interpret=True`), also of memory that nothing was written to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import tinyxla
from tinyxla.errors import ArgumentError, PytreeError
from tinyxla.jax.jaxprs.refs import Ref, RefView, new_ref
from tinyxla.jax.pallas.blocks import Blocks, BlockSpec, GridSpec, NoBlockSpec, located, no_block_spec
from tinyxla.jax.pallas.costs import CostEstimate
from tinyxla.jax.pallas.grids import as_program, for_each_program
from tinyxla.jax.pallas.interpretation import check_interpreted, filling, uninitialized
from tinyxla.jax.pallas.memory import MemoryRef, allocate_scratch
from tinyxla.tracing import pytrees
from tinyxla.tracing.array import Array
from tinyxla.tracing.references import expecting


def pallas_call(
    kernel: Callable[..., None],
    out_shape: Any,
    *,
    grid_spec: GridSpec | None = None,
    grid: Any = (),
    in_specs: Any = no_block_spec,
    out_specs: Any = no_block_spec,
    scratch_shapes: Any = (),
    input_output_aliases: Mapping[int, int] = {},
    debug: bool = False,
    interpret: Any = False,
    name: str | None = None,
    compiler_params: Any = None,
    cost_estimate: CostEstimate | None = None,
    metadata: Mapping[str, str] | None = None,
) -> Callable[..., Any]:
    """The function of arrays that a kernel computes.

    Args:
        kernel: a function of references: to the prefetched scalars, to a block of each argument, to one of each
            result, and to scratch memory. It writes results and returns None.
        out_shape: the shape and element type of the result, or a pytree of them.
        grid_spec: the grid with its blocks, instead of the four arguments that follow.
        grid: the number of programs along each axis, or the name of the axis and that; an integer is one axis. Numbers
            may be traced.
        in_specs: the blocks of arguments, in a sequence as the arguments are; by default the kernel has whole arrays.
        out_specs: the same for results, as `out_shape` is.
        scratch_shapes: the types of memory that all programs share: a sequence, or by the names of arguments.
        input_output_aliases: for arguments, by their place among all arrays, the place of the result that is first
            what the argument is.
        debug: accepted, and changes nothing.
        interpret: that the kernel is interpreted, which is the only form on CPUs: True or `pltpu.InterpretParams()`.
        name: the name of the call, by default that of the kernel.
        compiler_params: for accelerators.
        cost_estimate: for accelerators.
        metadata: for accelerators.

    Returns:
        A function of arrays, which can be compiled, mapped and differentiated.

    Raises:
        ArgumentError: a grid of what is no integer, or `grid_spec` besides what it stands for. When the function is
            called: without `interpret`, specifications that do not fit the arguments, or a kernel that returns
            something.
        ShapeError: blocks with another number of dimensions than their arrays.

    Source: the values are those of JAX's interpreted form, "Pallas Quickstart" and "Grids and BlockSpecs" of its
    documentation.

    Example:
        >>> import tinyxla.jax
        >>> import jax
        >>> from jax.experimental import pallas as pl
        >>> def kernel(x, y):
        ...     y[...] = 10 * x[...] + pl.program_id(0)
        >>> block = pl.BlockSpec((2,), lambda i: (i,))
        >>> f = pl.pallas_call(
        ...     kernel, jax.ShapeDtypeStruct((4,), "float32"), grid=(2,), in_specs=[block], out_specs=block,
        ...     interpret=True,
        ... )
        >>> f(jax.numpy.arange(4.0))
        Array([ 0., 10., 21., 31.], dtype=float32)
    """
    if isinstance(in_specs, BlockSpec):
        raise ArgumentError(
            f"pallas_call: in_specs is one specification, {in_specs}; give a sequence of them, as the arguments are. "
            "`in_specs` must be a tuple or a list."
        )
    own = GridSpec(grid, in_specs, out_specs, scratch_shapes)
    if grid_spec is not None and own != GridSpec():
        raise ArgumentError(
            "pallas_call: give the grid, the specifications and the scratch memory in grid_spec or by arguments, not "
            "both. If `grid_spec` is specified, then the others must have their defaults."
        )
    spec = grid_spec or own
    label = name or getattr(kernel, "__name__", None) or "kernel"
    call = _Call(kernel, label, spec, out_shape, dict(input_output_aliases))

    def function(*args: Any) -> Any:
        check_interpreted(interpret, label)
        with filling(interpret):
            return call(*args)

    function.__name__ = function.__qualname__ = label
    return function


class _Call:
    """A call of a kernel: how its arrays are cut into blocks."""

    def __init__(self, kernel: Any, name: str, spec: GridSpec, out_shape: Any, aliases: dict[int, int]) -> None:
        self.kernel, self.name, self.spec, self.aliases = kernel, name, spec, aliases
        axes = [axis if isinstance(axis, tuple) else (None, axis) for axis in _as_tuple(spec.grid)]
        self.axis_names = [name for name, _ in axes]
        self.grid = [_grid_size(size) for _, size in axes]
        self.out_shape = tuple(out_shape) if isinstance(out_shape, list) else out_shape
        self.out_types, self.out_tree = pytrees.flatten(self.out_shape, is_leaf=lambda x: isinstance(x, MemoryRef))
        self._run = tinyxla.jit(self._traced)
        self._run.__name__ = name

    def __call__(self, *args: Any) -> Any:
        sizes = [size for size in self.grid if isinstance(size, Array)]
        return self._run(sizes, *args)

    def _traced(self, sizes: Sequence[Any], *args: Any) -> Any:
        dynamic = iter(sizes)
        grid = [next(dynamic) if isinstance(size, Array) else size for size in self.grid]
        scalars, operands = args[: self.spec.num_scalar_prefetch], args[self.spec.num_scalar_prefetch :]
        leaves, tree = pytrees.flatten(operands)
        names = [f"args{name}" for name in pytrees.leaf_names(operands)]
        ins = _blocks(names, self.spec.in_specs, tree, [x.shape for x in leaves], "in_specs", "inputs")
        names = [f"outputs[{k}]" for k in range(len(self.out_types))]
        shapes = [tuple(x.shape) for x in self.out_types]
        outs = _blocks(names, self.spec.out_specs, self.out_tree, shapes, "out_specs", "out_shape")
        in_refs = [new_ref(blocks.padded(x)) for blocks, x in zip(ins, leaves, strict=True)]
        out_refs = [new_ref(blocks.padded(x)) for blocks, x in zip(outs, self._initial(scalars, leaves), strict=True)]
        others, named = allocate_scratch(self.spec.scratch_shapes)
        shared = pytrees.leaves((others, named))

        def program(indices: tuple[Any, ...]) -> None:
            prefetched = _as_refs(scalars)  # what a program writes to them is gone after it
            inputs = [b.load(ref, indices, prefetched) for b, ref in zip(ins, in_refs, strict=True)]
            outputs = [b.load(ref, indices, prefetched) for b, ref in zip(outs, out_refs, strict=True)]
            given_inputs = pytrees.unflatten(tree, [block.local for block in inputs])
            results = pytrees.unflatten(self.out_tree, [block.local for block in outputs])
            results = results if isinstance(self.out_shape, tuple) else (results,)
            with expecting([*pytrees.leaves(prefetched), *shared, *(block.local for block in (*inputs, *outputs))]):
                given = self.kernel(*prefetched, *given_inputs, *results, *others, **named)
            if given is not None:
                raise ArgumentError(
                    f"pallas_call: the kernel {self.name} returns {given!r}; it should write to the references of its "
                    "results and return nothing. The kernel function in the pallas_call "
                    f"{located(self.kernel)} should return None."
                )
            for blocks, block in zip((*ins, *outs), (*inputs, *outputs), strict=True):
                blocks.store(block)

        with expecting([*in_refs, *out_refs, *shared]):
            for_each_program(grid, lambda indices: as_program(grid, self.axis_names, indices, lambda: program(indices)))
        results = [blocks.cropped(ref.freeze()) for blocks, ref in zip(outs, out_refs, strict=True)]
        return pytrees.unflatten(self.out_tree, results)

    def _initial(self, scalars: Sequence[Any], leaves: Sequence[Any]) -> list[Any]:
        """What results are before the first program."""
        arrays = [*pytrees.flatten(scalars)[0], *leaves]
        initial = [uninitialized(tuple(x.shape), x.dtype) for x in self.out_types]
        for source, target in self.aliases.items():
            if not (source < len(arrays) and target < len(initial)):
                is_source = source >= len(arrays)
                which = f"input index {source}" if is_source else f"output index {target}"
                raise ArgumentError(
                    f"pallas_call: input_output_aliases has {source}: {target}, but there are {len(arrays)} arguments "
                    f"and {len(initial)} results. input_output_aliases contains the mapping '{source}:{target}' with "
                    f"{which} outside the range [0, {len(arrays if is_source else initial)})."
                )
            x, y = arrays[source], initial[target]
            if (x.shape, x.dtype) != (y.shape, y.dtype):
                raise ArgumentError(
                    f"pallas_call: argument {source} is {x.dtype.name}{list(x.shape)} and cannot be result {target}, "
                    f"which is {y.dtype.name}{list(y.shape)}; input_output_aliases needs one shape and type. "
                    f"input_output_aliases contains the mapping '{source}:{target}' referring to input[{source}] with "
                    f"abstract value {_short(x)} and to output[{target}] with a different abstract value {_short(y)}."
                )
            initial[target] = x
        return initial


def _short(x: Any) -> str:
    return f"{x.dtype.name}[{','.join(map(str, x.shape))}]"


def _grid_size(size: Any) -> Any:
    """The number of programs along an axis: an integer, or a traced one."""
    if isinstance(size, Array):
        return size
    if not isinstance(size, int | np.integer):
        raise ArgumentError(
            f"pallas_call: the grid has {size!r} programs along an axis. Grid must be a tuple of integers or jax.Array."
        )
    return int(size)


def _as_tuple(x: Any) -> tuple[Any, ...]:
    return tuple(x) if isinstance(x, tuple | list) else (x,)


def _as_refs(x: Any) -> Any:
    leaves, tree = pytrees.flatten(x)
    return pytrees.unflatten(tree, [new_ref(leaf) for leaf in leaves])


def _blocks(
    names: Sequence[str], specs: Any, tree: Any, shapes: Sequence[tuple[int, ...]], what: str, of: str
) -> list[Blocks]:
    """The blocks of arrays by their specifications, which have to be a pytree as the arrays are."""
    if isinstance(specs, NoBlockSpec):
        leaves: list[Any] = [no_block_spec] * len(shapes)
    else:
        specs = tuple(specs) if isinstance(specs, list) else specs
        leaves, found = pytrees.flatten(specs, is_leaf=lambda x: isinstance(x, BlockSpec | NoBlockSpec))
        if found != tree:
            raise PytreeError(
                f"pallas_call: {what} must be a pytree like the {of}, but they are {found} and {tree}. Pytree for "
                f"`{what}` and `{of}` do not match."
            )
    return [Blocks(name, spec, shape) for name, spec, shape in zip(names, leaves, shapes, strict=True)]


def emit_pipeline(
    body: Callable[..., None], *, grid: Any, in_specs: Any = (), out_specs: Any = (), **_: Any
) -> Callable[..., None]:
    """A loop inside of a kernel over blocks of references, as `pallas_call` has one over blocks of arrays.

    Args:
        body: a function of references to blocks.
        grid: the number of iterations along each axis.
        in_specs: the blocks of the first references.
        out_specs: the blocks of the others.

    Returns:
        A function of the references; `scratches=` are given to the body after the blocks.
    """
    sizes = _as_tuple(grid)
    ins, outs = _as_tuple(in_specs), _as_tuple(out_specs)
    specs = (*ins, *outs)

    def run(*refs: Ref | RefView, scratches: Sequence[Any] = ()) -> None:
        if len(refs) != len(specs):
            raise ArgumentError(f"emit_pipeline: there are {len(specs)} specifications for {len(refs)} references.")
        blocks = [
            Blocks(f"args[{k}]", spec, tuple(ref.shape)) for k, (spec, ref) in enumerate(zip(specs, refs, strict=True))
        ]
        for k, b in enumerate(blocks):
            if not b.is_whole and any(map(any, b.padding)):
                raise ArgumentError(
                    f"emit_pipeline: the blocks of reference {k} do not divide its shape {tuple(refs[k].shape)}."
                )

        def iteration(indices: tuple[Any, ...]) -> None:
            loaded = [b.load(ref, indices, ()) for b, ref in zip(blocks, refs, strict=True)]
            body(*(block.local for block in loaded), *scratches)
            for b, block in zip(blocks[len(ins) :], loaded[len(ins) :], strict=True):
                b.store(block)

        for_each_program([_grid_size(size) for size in sizes], iteration)

    return run
