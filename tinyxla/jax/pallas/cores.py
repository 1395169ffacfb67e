"""Kernels over the cores of a device (`kernel`, `core_map`): the cores run one after the other."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tinyxla.errors import ArgumentError
from tinyxla.jax.jaxprs.refs import Ref, new_ref
from tinyxla.jax.pallas.grids import as_program, for_each_program
from tinyxla.jax.pallas.interpretation import InterpretParams, check_interpreted, filling
from tinyxla.jax.pallas.memory import MemoryRef, allocate, allocate_scratch
from tinyxla.tracing import pytrees
from tinyxla.tracing.references import expecting


@dataclass(frozen=True)
class TensorCoreMesh:
    """Cores along one axis."""

    axis_name: Any
    num_cores: int

    @property
    def axis_names(self) -> tuple[Any]:
        """The name of the axis."""
        return (self.axis_name,)

    @property
    def shape(self) -> Mapping[Any, int]:
        """The number of cores along the axis."""
        return OrderedDict({self.axis_name: self.num_cores})


def create_tensorcore_mesh(
    axis_name: Any, devices: Sequence[Any] | None = None, num_cores: int | None = None
) -> TensorCoreMesh:
    """A mesh of cores along an axis of this name; by default of one, which a CPU counts for.

    Raises:
        ArgumentError: devices and a number of cores.
    """
    if devices is not None and num_cores is not None:
        raise ArgumentError("create_tensorcore_mesh: give devices or num_cores; one cannot specify both.")
    return TensorCoreMesh(axis_name, 1 if num_cores is None else num_cores)


def _for_each_core(mesh: Any, scratch_types: Any, body: Callable[..., None]) -> None:
    """Call a function on each core of a mesh, with its own scratch memory."""
    if not isinstance(mesh, TensorCoreMesh):
        raise ArgumentError(
            f"kernel: the mesh is {mesh!r}; kernels run over a mesh of create_tensorcore_mesh, one at a time."
        )
    grid = [mesh.num_cores]

    def core() -> None:
        others, named = allocate_scratch(scratch_types)
        with expecting(pytrees.leaves((others, named))):
            body(*others, **named)

    for_each_program(grid, lambda indices: as_program(grid, mesh.axis_names, indices, core))


def core_map(
    mesh: TensorCoreMesh, *, interpret: Any = False, name: str | None = None, scratch_shapes: Any = (), **_: Any
) -> Callable[[Callable[..., None]], None]:
    """A decorator: the function, which writes to references, is called at once on each core of a mesh.

    Args:
        mesh: the cores, of `create_tensorcore_mesh`.
        interpret: that the function is interpreted, which is the only form on CPUs.
        name: the name of the kernel.
        scratch_shapes: the types of the references that the function gets, in a sequence or by their names.

    Returns:
        The decorator.
    """

    def decorate(body: Callable[..., None]) -> None:
        check_interpreted(interpret, name or getattr(body, "__name__", "core_map"))
        with filling(interpret):
            _for_each_core(mesh, scratch_shapes, body)

    return decorate


def kernel(
    body: Callable[..., None] | None = None,
    out_type: Any = (),
    *,
    mesh: TensorCoreMesh,
    scratch_types: Any = (),
    interpret: bool | InterpretParams = False,
    name: str | None = None,
    **_: Any,
) -> Any:
    """The function of arrays and references that a kernel computes, which runs on each core of a mesh.

    Args:
        body: a function of references: to the arguments, to the results, and to scratch memory of the core. Without
            it the result is a decorator of one.
        out_type: the shape and element type of the result, or a pytree of them.
        mesh: the cores, of `create_tensorcore_mesh`, along whose axis `lax.axis_index` is the core.
        scratch_types: the types of scratch memory, in a sequence or by their names.
        interpret: that the kernel is interpreted, which is the only form on CPUs.
        name: the name of the kernel.

    Returns:
        The function; references among its arguments are given to the kernel as they are.

    Raises:
        ArgumentError: when it is called: without `interpret`, or over another kind of mesh.

    Example:
        >>> import tinyxla.jax
        >>> import jax
        >>> from jax.experimental import pallas as pl
        >>> from jax.experimental.pallas import tpu as pltpu
        >>> mesh = pltpu.create_tensorcore_mesh("core", num_cores=2)
        >>> @pl.kernel(out_type=jax.ShapeDtypeStruct((4,), "float32"), mesh=mesh, interpret=True)
        ... def shifted(x, y):
        ...     core = jax.lax.axis_index("core")
        ...     part = pl.ds(2 * core, 2)
        ...     y[part] = x[part] + 10 * core
        >>> shifted(jax.numpy.arange(4.0))
        Array([ 0.,  1., 12., 13.], dtype=float32)
    """
    if body is None:
        return lambda f: kernel(f, out_type, mesh=mesh, scratch_types=scratch_types, interpret=interpret, name=name)
    types, tree = pytrees.flatten(out_type, is_leaf=lambda x: isinstance(x, MemoryRef))
    function = body

    def call(*args: Any) -> Any:
        check_interpreted(interpret, name or getattr(function, "__name__", "kernel"))
        with filling(interpret):
            given = pytrees.map_tree(lambda x: x if isinstance(x, Ref) else new_ref(x), args)
            results = [allocate(x) for x in types]
            targets = pytrees.unflatten(tree, results)
            targets = tuple(targets) if isinstance(targets, tuple | list) else (targets,)
            with expecting([*pytrees.leaves(given), *results]):
                _for_each_core(mesh, scratch_types, lambda *refs, **named: function(*given, *targets, *refs, **named))
        return pytrees.unflatten(tree, [ref.freeze() for ref in results])

    return call
