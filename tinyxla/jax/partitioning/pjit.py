"""`pjit`: `jit` whose functions, inside of a `with` block of a mesh, run over it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from tinyxla.api.jit import PlacingJitted, jit
from tinyxla.api.jit_arguments import check_constrained, chosen_arguments
from tinyxla.partitioning.placement import is_placement
from tinyxla.tracing import pytrees
from tinyxla.tracing.device import check_placement
from tinyxla.tracing.meshes import Mesh, context, set_mesh
from tinyxla.tracing.shardings import PartitionSpec
from tinyxla.util.tracebacks import boundary

UNSPECIFIED = object()


class _OverMesh(PlacingJitted[..., Any]):
    """A compiled function of which None among the shardings means, in a block of a mesh, that each device has all."""

    @property
    def in_shardings(self) -> Any:
        return _in_block(self._given[0])

    @property
    def out_shardings(self) -> Any:
        return _in_block(self._given[1])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with _over_mesh():
            return super().__call__(*args, **kwargs)

    @boundary
    def trace(self, *args: Any, **kwargs: Any) -> Any:
        """Trace for arguments of these shapes."""
        with _over_mesh():
            return super().trace(*args, **kwargs)


def _over_mesh() -> AbstractContextManager[Any]:
    """Where programs are over the mesh of the block, if it has devices."""
    is_block = isinstance(context.mesh, Mesh) and not context.mesh.empty and not context.is_set
    return set_mesh(context.mesh) if is_block else nullcontext()


def _in_block(shardings: Any) -> Any:
    """Shardings as they are meant here."""
    if shardings is UNSPECIFIED:
        return None
    if context.mesh.empty:
        return shardings
    leaves, structure = pytrees.flatten_shown(shardings, is_placement)
    return pytrees.unflatten(structure, [PartitionSpec() if x is None else x for x in leaves])


@boundary
def pjit(
    fun: Callable[..., Any] | None = None,
    in_shardings: Any = UNSPECIFIED,
    out_shardings: Any = UNSPECIFIED,
    static_argnums: Any = None,
    static_argnames: Any = None,
    donate_argnums: Any = None,
    donate_argnames: Any = None,
    **options: Any,
) -> Any:
    """`jit`, whose functions run over the mesh of the `with` block around a call.

    Args:
        fun: of pytrees of arrays.
        in_shardings, out_shardings: pytrees of shardings and `PartitionSpec`s that may stop earlier than the arguments
            and results. In a block of a mesh None says that each device has all; elsewhere it leaves that open.
        static_argnums, static_argnames, donate_argnums, donate_argnames: as for `jit`.
        options: further ones of `jit`.

    Returns:
        A compiled function.

    Raises:
        ArgumentError: a function that cannot be compiled, or a device that there is not.

    Example:
        >>> import tinyxla as tx
        >>> from tinyxla.jax.partitioning.pjit import pjit
        >>> with tx.make_mesh((1,), ("x",)):
        ...     pjit(lambda x: 2 * x, in_shardings=tx.P("x"), out_shardings=None)(tx.numpy.ones(2)).sharding.spec
        PartitionSpec()
    """
    chosen = (static_argnums, static_argnames, donate_argnums, donate_argnames)
    if fun is None:
        return functools.partial(
            pjit, in_shardings=in_shardings, out_shardings=out_shardings, **_named(chosen), **options
        )
    if options.get("device") is not None or options.get("backend") is not None:
        given = {"in_shardings": in_shardings, "out_shardings": out_shardings}
        specified = {name: x for name, x in given.items() if x is not UNSPECIFIED}
        return jit(fun, **_named(chosen), **specified, **options)
    for side in (in_shardings, out_shardings):
        check_placement("pjit", None if side is UNSPECIFIED else side)
        check_constrained(shardings=None if side is UNSPECIFIED else side)
    static, donated = chosen_arguments(fun, *chosen)
    return _OverMesh(in_shardings, out_shardings, fun, *static, *donated, bool(options.get("inline")))


def _named(chosen: tuple[Any, ...]) -> dict[str, Any]:
    return dict(zip(("static_argnums", "static_argnames", "donate_argnums", "donate_argnames"), chosen, strict=True))
