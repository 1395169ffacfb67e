"""A function that was exported: a program in StableHLO with the types and the structure of arguments and results."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tinyxla.api.functions import ShapeDtypeStruct, argument_names, no_array
from tinyxla.errors import ArgumentError, DTypeError, ExportedPlatformError
from tinyxla.export.layouts import Layouts
from tinyxla.lax.values import platform_dependent
from tinyxla.shapes import KeyType, Shape, element_type
from tinyxla.shapes.symbolic import size_of
from tinyxla.shapes.symbolic_solving import System, solve, system_of
from tinyxla.stablehlo import bytecode
from tinyxla.stablehlo.importing.evaluation import check_argument
from tinyxla.stablehlo.program import Program
from tinyxla.text.mlir.ir import ModuleOp, walk
from tinyxla.text.mlir.printer import print_module_op
from tinyxla.text.stablehlo import type_of
from tinyxla.tracing import pytrees
from tinyxla.tracing.config import config
from tinyxla.tracing.meshes import AbstractMesh
from tinyxla.tracing.promotion import as_array, float0
from tinyxla.tracing.shardings import NamedSharding, spec_of
from tinyxla.transforms.key_arrays import KeyArray, of_words
from tinyxla.util.tracebacks import boundary

minimum_supported_calling_convention_version = 9
maximum_supported_calling_convention_version = 10
"""The conventions of `jax.export` by which arguments are passed to `@main`."""


class DisabledSafetyCheck:
    """A check that is not made: of the `platform` of a call, or of a `custom_call` when a function is exported.

    >>> import tinyxla
    >>> from tinyxla import export
    >>> check = export.DisabledSafetyCheck.custom_call("my.target")
    >>> exported = export.export(tinyxla.jit(lambda x: x + 1), disabled_checks=[check])(1.0)
    >>> exported.disabled_safety_checks
    (DisabledSafetyCheck(custom_call:my.target),)
    """

    def __init__(self, name: str) -> None:
        self._name = name

    @classmethod
    def platform(cls) -> DisabledSafetyCheck:
        """Programs run also on platforms for which they were not exported.

        Returns:
            A check, for `export(..., disabled_checks=...)`.

        >>> from tinyxla import export
        >>> export.DisabledSafetyCheck.platform()
        DisabledSafetyCheck(platform)
        """
        return cls("platform")

    @classmethod
    def custom_call(cls, target_name: str) -> DisabledSafetyCheck:
        """Functions are exported that call this target, which the reader must know.

        Args:
            target_name: the target of the calls.

        Returns:
            A check, for `export(..., disabled_checks=...)`.

        Raises:
            ArgumentError: a target that is no text.

        >>> from tinyxla import export
        >>> export.DisabledSafetyCheck.custom_call("my.target")
        DisabledSafetyCheck(custom_call:my.target)
        """
        if not isinstance(target_name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArgumentError(f"DisabledSafetyCheck.custom_call: the target must be a text, but got {target_name!r}.")
        return cls(f"custom_call:{target_name}")

    def is_custom_call(self) -> str | None:
        """The target whose calls are not checked; None if it is another check.

        Returns:
            The name of the target, or None.

        >>> from tinyxla import export
        >>> check = export.DisabledSafetyCheck
        >>> check.custom_call("my.target").is_custom_call(), check.platform().is_custom_call()
        ('my.target', None)
        """
        return self._name.removeprefix("custom_call:") if self._name.startswith("custom_call:") else None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DisabledSafetyCheck) and self._name == other._name

    def __hash__(self) -> int:
        return hash(self._name)

    def __str__(self) -> str:
        return self._name

    def __repr__(self) -> str:
        return f"DisabledSafetyCheck({self._name})"


@dataclass(frozen=True, eq=False)
class Exported:
    """An exported function, which `export` gives and `deserialize`.

    Attributes:
        fun_name: the name of the function.
        in_tree: the structure of `(args, kwargs)`.
        in_avals: the types of the leaves of the arguments, `ShapeDtypeStruct`s; dimensions may be symbolic.
        out_tree, out_avals: the same of the result.
        platforms: those on which the program may run.
        nr_devices: on how many devices it runs.
        layouts: where its arrays are, if these are several.
        module_kept_var_idx: the numbers of the leaves that `@main` takes.
        calling_convention_version: how `@main` is called, by the counting of `jax.export`.
        disabled_safety_checks: the checks that are not made.

    >>> import tinyxla
    >>> from tinyxla import export
    >>> exported = export.export(tinyxla.jit(lambda x: x + 1))(1.0)
    >>> exported.in_avals[0].dtype, exported.call(2.0)
    (dtype('float32'), Array(3., dtype=float32, weak_type=True))
    """

    fun_name: str
    in_tree: pytrees.TreeDef
    in_avals: tuple[ShapeDtypeStruct, ...]
    out_tree: pytrees.TreeDef
    out_avals: tuple[ShapeDtypeStruct, ...]
    platforms: tuple[str, ...]
    module_kept_var_idx: tuple[int, ...]
    module: ModuleOp = field(repr=False)
    disabled_safety_checks: tuple[DisabledSafetyCheck, ...] = ()
    nr_devices: int = 1
    layouts: Layouts | None = None
    calling_convention_version: int = maximum_supported_calling_convention_version
    get_vjp: Callable[[Exported], Exported] | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        return f"Exported(fun_name={self.fun_name}, in_avals={self.in_avals}, out_avals={self.out_avals})"

    # --- the program --------------------------------------------------------------------------------------------------

    def mlir_module(self) -> str:
        """The program in StableHLO's text.

        Returns:
            The text.

        >>> import tinyxla
        >>> from tinyxla import export
        >>> exported = export.export(tinyxla.jit(lambda x: x + 1))(1.0)
        >>> "stablehlo.add" in exported.mlir_module()
        True
        """
        return self._text

    @functools.cached_property
    def _text(self) -> str:
        return print_module_op(self.module)

    @functools.cached_property
    def mlir_module_serialized(self) -> bytes:
        """The program as bytes that XLA's users read: a portable artifact of StableHLO, or the text where it has an
        operation of CHLO, for which there is no portable form.

        >>> import tinyxla
        >>> from tinyxla import export
        >>> exported = export.export(tinyxla.jit(lambda x: x + 1))(1.0)
        >>> exported.mlir_module_serialized[:2]  # the number of MLIR's format
        b'ML'
        """
        functions = self.module.functions.values()
        if any(x.name.startswith("chlo.") for function in functions for x in walk(function.body)):
            return self._text.encode()
        return bytecode.write(self.module)

    @property
    def uses_global_constants(self) -> bool:
        """Whether the program has symbolic dimensions, or takes the number of the platform."""
        return bool(self._system.variables) or self._takes_platform

    @property
    def in_shardings_hlo(self) -> tuple[None, ...]:
        """None for each leaf of the arguments: `in_shardings_jax` says more."""
        return (None,) * len(self.in_avals)

    @property
    def out_shardings_hlo(self) -> tuple[None, ...]:
        """None for each leaf of the result."""
        return (None,) * len(self.out_avals)

    def in_shardings_jax(self, mesh: AbstractMesh) -> tuple[NamedSharding | None, ...]:
        """The shardings of the leaves of the arguments over a mesh with the axes of the one that the function was
        exported for.

        Args:
            mesh: a mesh.

        Returns:
            A sharding for each leaf; None for those that were not placed.

        Raises:
            ShapeError: the mesh lacks an axis.

        >>> import tinyxla
        >>> from tinyxla import export
        >>> exported = export.export(tinyxla.jit(lambda x: x + 1))(1.0)
        >>> exported.in_shardings_jax(tinyxla.make_mesh((1,), ("x",)))
        (None,)
        """
        inputs = (None,) * len(self.in_avals) if self.layouts is None else self.layouts.inputs
        return tuple(None if spec is None else NamedSharding(mesh, spec_of(spec)) for spec in inputs)

    def out_shardings_jax(self, mesh: AbstractMesh) -> tuple[NamedSharding | None, ...]:
        """The shardings of the leaves of the result over a mesh with the axes of the one that the function was exported
        for.

        Args:
            mesh: a mesh.

        Returns:
            A sharding for each leaf; None for those of which the function does not say where they are.

        Raises:
            ShapeError: the mesh lacks an axis.

        >>> import tinyxla
        >>> from tinyxla import export
        >>> exported = export.export(tinyxla.jit(lambda x: x + 1))(1.0)
        >>> exported.out_shardings_jax(tinyxla.make_mesh((1,), ("x",)))
        (None,)
        """
        if self.layouts is None:
            return (None,) * len(self.out_avals)
        pairs = zip(self.layouts.outputs, self.layouts.chosen, strict=True)
        return tuple(NamedSharding(mesh, spec_of(spec)) if is_chosen else None for spec, is_chosen in pairs)

    @property
    def ordered_effects(self) -> tuple[str, ...]:
        """There are none: what has effects is not exported."""
        return ()

    @property
    def unordered_effects(self) -> tuple[str, ...]:
        """There are none."""
        return ()

    @property
    def _takes_platform(self) -> bool:
        """Whether `@main` takes the number of the platform first."""
        return len(self.platforms) > 1

    @functools.cached_property
    def _program(self) -> Program:
        return Program(self.module)

    @functools.cached_property
    def _system(self) -> System:
        return system_of(self.fun_name, [x.shape for x in self.in_avals])

    # --- calls --------------------------------------------------------------------------------------------------------

    @boundary
    def call(self, *args: Any, **kwargs: Any) -> Any:
        """The result for arguments of the types with which the function was exported.

        Args:
            args, kwargs: in the structure of `in_tree`, with arrays of the types `in_avals`. The sizes in the place of
                symbolic dimensions must be those for some positive values of the variables that obey the constraints.

        Returns:
            The result, in the structure of `out_tree`. It can be compiled, differentiated and batched.

        Raises:
            ArgumentError: structure, types or sizes are others.
            ExportedPlatformError: the function was exported for other platforms than CPUs.

        Example:
            >>> import tinyxla as tx
            >>> from tinyxla import export
            >>> shape = export.symbolic_shape("b, 3")
            >>> exported = export.export(tx.jit(lambda x: x.sum(0)))(tx.ShapeDtypeStruct(shape, "float32"))
            >>> exported.call(tx.numpy.ones((5, 3)))
            Array([5., 5., 5.], dtype=float32)
        """
        self._check_platform()
        leaves, tree = pytrees.flatten_shown((args, kwargs))
        if tree != self.in_tree:
            raise ArgumentError(
                f"{self.fun_name} was exported for arguments of the structure {pytrees.structure_text(self.in_tree)}, "
                f"but is called with {pytrees.structure_text(tree)}, where * stands for an array."
            )
        names = argument_names(args, kwargs)
        arrays = [self._argument(names[k], x, t) for k, (x, t) in enumerate(zip(leaves, self.in_avals, strict=True))]
        sizes = [tuple(x.shape) for x in arrays]
        variables = solve(
            self._system,
            sizes,
            lambda k: f"{self.fun_name}: argument {names[k]} of the shape {self.in_avals[k].shape}",
        )
        for name, (x, size), t in zip(names, zip(arrays, sizes, strict=True), self.in_avals, strict=True):
            _check_size(f"{self.fun_name}: argument {name}", size, t, variables, x)
        mesh: Any = None
        if self.layouts is not None:
            mesh, arrays = self.layouts.placed_arguments(self.fun_name, arrays)
        given = [words_of(arrays[k]) for k in self.module_kept_var_idx]
        platform = [self._platform_index()] if self._takes_platform else []
        results = self._program.main(*platform, *given)
        return self._result(results if isinstance(results, tuple) else (results,), variables, mesh)

    def _check_platform(self) -> None:
        is_checked = DisabledSafetyCheck.platform() not in self.disabled_safety_checks
        for platform in config.lowering_platforms:
            if platform not in self.platforms and (is_checked or self._takes_platform):
                runs = "runs on a CPU" if platform == "cpu" else f"is part of a program for {platform}"
                raise ExportedPlatformError(
                    f"{self.fun_name} was exported for the platforms {', '.join(self.platforms)}, but {runs} here; "
                    f'export it with platforms=["{platform}"], or with '
                    "disabled_checks=[DisabledSafetyCheck.platform()]."
                )

    def _platform_index(self) -> Any:
        """The number of the platform of a call; in a program for several platforms it is traced."""
        numbers = {platform: self.platforms.index(platform) for platform in config.lowering_platforms}
        return platform_dependent(**{name: lambda n=n: as_array(np.int32(n)) for name, n in numbers.items()})

    def _argument(self, name: str, x: Any, wanted: ShapeDtypeStruct) -> Any:
        """An argument, which must be of the type that is wanted, whatever sizes stand for symbolic dimensions."""
        what = f"{self.fun_name}: argument {name}"
        if wanted.dtype == float0:
            return np.zeros(np.shape(x), float0)
        if isinstance(x, KeyArray) or isinstance(wanted.dtype, KeyType):
            if getattr(x, "dtype", None) != wanted.dtype:
                raise ArgumentError(f"{what} must be {wanted}, but is {x!r}.")
            return x
        try:
            shape = Shape(element_type(wanted.dtype), wanted.shape)
            return check_argument(what, x, type_of(shape), str(shape))
        except DTypeError:
            raise ArgumentError(f"{what} {no_array(x)}.") from None

    def _result(self, results: Sequence[Any], variables: dict[str, int], mesh: Any) -> Any:
        has_all = len(results) == len(self.out_avals)  # those of the type float0, too
        values, found = iter(results), []
        for t in self.out_avals:
            if t.dtype == float0:
                if has_all:
                    next(values)
                found.append(np.zeros([size_of(n, variables) for n in t.shape], float0))
                continue
            x = next(values)
            found.append(of_words(t.dtype, (x,)) if isinstance(t.dtype, KeyType) else x.with_weak_type(t.weak_type))
        if self.layouts is not None:
            found = self.layouts.placed_results(self.fun_name, mesh, found)
        return pytrees.unflatten(self.out_tree, found)

    # --- derivatives --------------------------------------------------------------------------------------------------

    def has_vjp(self) -> bool:
        """Whether there is a derivative in reverse mode as an exported function, `vjp()`. Functions of `call` can be
        differentiated in any case.

        Returns:
            True or False.

        >>> import tinyxla
        >>> from tinyxla import export
        >>> exported = export.export(tinyxla.jit(lambda x: x * x))(1.0)
        >>> exported.has_vjp(), export.deserialize(exported.serialize()).has_vjp()
        (True, False)
        """
        return self.get_vjp is not None

    def vjp(self) -> Exported:
        """The derivative in reverse mode, exported: a function of the leaves of the arguments and of cotangents for the
        leaves of the result, which gives cotangents for the leaves of the arguments. Those of integers are of the
        element type float0.

        Returns:
            An `Exported`.

        Raises:
            ArgumentError: the function was serialized without one (`vjp_order`).

        Example:
            >>> import tinyxla as tx
            >>> from tinyxla import export
            >>> exported = export.export(tx.jit(tx.numpy.square))(tx.numpy.ones(2))
            >>> exported.vjp().call(tx.numpy.ones(2), tx.numpy.ones(2))
            (Array([2., 2.], dtype=float32),)
        """
        if self.get_vjp is None:
            raise ArgumentError(
                f"{self.fun_name} was serialized without its derivative; serialize it with vjp_order=1, or take "
                "vjp or grad of its call."
            )
        return self._vjp

    @functools.cached_property
    def _vjp(self) -> Exported:
        assert self.get_vjp is not None
        return self.get_vjp(self)

    def serialize(self, vjp_order: int = 0) -> bytearray:
        """The exported function as bytes, for `deserialize`.

        Args:
            vjp_order: how many derivatives in reverse mode are written with it.

        Returns:
            The bytes, which `jax.export.deserialize` reads, too.

        Raises:
            ArgumentError: a container among arguments or results is not registered, or `vjp_order` is negative.

        Example:
            >>> import tinyxla as tx
            >>> from tinyxla import export
            >>> data = export.export(tx.jit(tx.numpy.sin))(0.0).serialize()
            >>> export.deserialize(data).call(0.0)
            Array(0., dtype=float32)
        """
        from tinyxla.export.container import serialized  # here, since that reads exported functions

        return serialized(self, vjp_order)


def words_of(x: Any) -> Any:
    """An array of numbers for an argument: the words of keys."""
    return x.words if isinstance(x, KeyArray) else x


def _check_size(what: str, size: tuple[int, ...], wanted: ShapeDtypeStruct, variables: dict[str, int], x: Any) -> None:
    expected = tuple(size_of(n, variables) for n in wanted.shape)
    if size != expected:
        raise ArgumentError(
            f"{what} must have the shape {wanted.shape}, but is {Shape.of(x) if wanted.dtype != float0 else size}."
        )
