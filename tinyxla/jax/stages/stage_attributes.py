"""What JAX tells of the stages of a compiled function: types of arguments and results, and the jaxpr."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

from tinyxla.api.programs import PartitionedProgram
from tinyxla.errors import ArgumentError
from tinyxla.hlo import Module
from tinyxla.jax.jaxprs.array_types import types_over_mesh
from tinyxla.jax.jaxprs.avals import AbstractRef, ShapedArray
from tinyxla.jax.jaxprs.jaxpr import ClosedJaxpr
from tinyxla.jax.jaxprs.staging import make_jaxpr
from tinyxla.jax.jaxprs.translation import of_computation
from tinyxla.jax.partitioning.partitioned_text import GlobalModule, global_text, is_partitioned
from tinyxla.tracing import pytrees
from tinyxla.tracing.surroundings import surroundings


class HloModule:
    """The program of a device, as text."""

    def __init__(self, text: str) -> None:
        self._text = text

    def to_string(self, *options: Any) -> str:
        return self._text


class RuntimeExecutable:
    """An executable, with what JAX's says of a compiled function."""

    def __init__(self, compiled: Any) -> None:
        self._compiled = compiled

    def __getattr__(self, name: str) -> Any:
        return getattr(self._compiled._executable, name)

    def get_output_memory_kinds(self) -> list[list[str]]:
        """The kinds of memory of the results."""
        shardings, _ = pytrees.flatten_shown(self._compiled.output_shardings)
        return [[sharding.memory_kind for sharding in shardings]]

    def hlo_modules(self) -> list[HloModule]:
        """The program of a device."""
        return [HloModule(self._compiled.as_text())]


@dataclass(frozen=True)
class ArgInfo:
    """The type of an array among the arguments, and whether it is donated."""

    _aval: ShapedArray | AbstractRef
    donated: bool

    @property
    def shape(self) -> tuple[int, ...]:
        return self._aval.shape

    @property
    def dtype(self) -> Any:
        return self._aval.dtype

    @property
    def weak_type(self) -> bool:
        return self._aval.weak_type


def args_info(stage: Any) -> Any:
    """`(args, kwargs)` with an `ArgInfo` for each array."""
    leaves, tree = pytrees.flatten_shown(stage.argument_types)
    numbers = stage.donate_argnums
    references = stage.reference_numbers
    avals = [AbstractRef(_aval(x)) if k in references else _aval(x) for k, x in enumerate(leaves)]
    infos = [ArgInfo(x, k in numbers) for k, x in enumerate(avals)]
    return pytrees.unflatten(tree, infos)


def _aval(x: Any) -> ShapedArray:
    return ShapedArray(x.shape, x.dtype, getattr(x, "weak_type", False))


def _avals(tree: Any) -> Any:
    leaves, structure = pytrees.flatten_shown(tree)
    return pytrees.unflatten(structure, map(_aval, leaves))


def in_avals(stage: Any) -> Any:
    """`(args, kwargs)` with the abstract value of each array."""
    leaves, structure = pytrees.flatten_shown(stage.args_info)
    return pytrees.unflatten(structure, [x._aval for x in leaves])


def out_avals(stage: Any) -> Any:
    """The result with the abstract value of each array."""
    return _avals(stage.out_info)


def exported_avals(name: str) -> property:
    """The attribute `in_avals` or `out_avals` of exported functions, with abstract values."""

    def avals(exported: Any) -> tuple[ShapedArray, ...]:
        return tuple(map(_aval, vars(exported)[name]))

    def keep(exported: Any, value: Any) -> None:
        vars(exported)[name] = value

    return property(avals, keep)


def traced_jaxpr(stage: Any) -> ClosedJaxpr:
    """The jaxpr of a traced function: that of `make_jaxpr`, which traces it again, or where options, axes or the mesh
    have changed since it was traced, a translation of its graph."""
    if stage._surroundings == surroundings():
        args, kwargs = stage._arguments
        return make_jaxpr(stage._function)(*args, **kwargs)
    program = stage._program
    made = program.computation
    types = types_over_mesh(program.mesh, program.argument_specs) if isinstance(program, PartitionedProgram) else None
    jaxpr, constants = of_computation(
        made, len(made.parameters) - len(program.captured), stage.fun_name, list(program.weak), types=types
    )
    return ClosedJaxpr(jaxpr, [*program.captured, *constants])


def in_stablehlo(as_text: Callable[..., str]) -> Callable[..., str]:
    """The text of a lowered function, which is StableHLO where no dialect is asked for; HLO where an operation, such as
    a callback, has no form there."""

    @wraps(as_text)
    def text(self: Any, dialect: str | None = None, *, debug_info: bool = False) -> str:
        if is_partitioned(self) and dialect in (None, "hlo", "stablehlo"):
            found = global_text(self, dialect or "stablehlo", debug_info)
        elif dialect is not None:
            found = as_text(self, dialect, debug_info=debug_info)
        else:
            try:
                found = as_text(self, "stablehlo", debug_info=debug_info)
            except ArgumentError:
                found = as_text(self, debug_info=debug_info)
        return _HEAD.sub(_as_headed, found, count=1)

    return text


_HEAD = re.compile(r"^module @(\w+)( attributes)?")
_COUNTS = "mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32"


def _as_headed(head: re.Match[str]) -> str:
    """The head of a module with the name that JAX gives to the program of a compiled function, and its counts."""
    return f"module @jit_{head[1].rstrip('_')} attributes" + ("" if head[2] else f" {{{_COUNTS}}}")


def global_ir(compiler_ir: Callable[..., Any]) -> Callable[..., Any]:
    """The program of a lowered function as an object; over several devices that of whole arrays."""

    @wraps(compiler_ir)
    def ir(self: Any, dialect: str | None = None) -> Any:
        if is_partitioned(self) and dialect in (None, "hlo", "stablehlo"):
            return GlobalModule(lambda: global_text(self, dialect or "stablehlo"))
        return compiler_ir(self, dialect)

    return ir


def hlo_of_device(compiled: Any) -> str:
    """The program that each device runs as HLO text."""
    from tinyxla.compiler.passes.expand import expand_to_hlo  # here: no compiler is loaded by `import jax`
    from tinyxla.text import print_module

    made = compiled._program.lowered
    return print_module(Module(made.name, expand_to_hlo(made)), metadata=True)


def cache_size(function: Any) -> int:
    """How many programs a compiled function has."""
    return len(function._programs)
