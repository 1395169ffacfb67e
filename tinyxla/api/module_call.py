"""Modules that are called with arrays: what `Module.__call__` does.

A module that was read from text may take and give tuples, and tuples of tuples. Arrays are what runs, so tuples are
taken apart before and put together after.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tinyxla.api.executables import compiled
from tinyxla.backends import Executable, compile_module
from tinyxla.backends.layouts import compile_laid_out, dimension_orders
from tinyxla.errors import ArgumentError
from tinyxla.hlo import Computation, Module, is_constant
from tinyxla.ops import tuples
from tinyxla.replicas import Program, execute_replicated, mesh_of
from tinyxla.shapes import AnyShape, Shape, TupleShape
from tinyxla.text.shapes import read_program_shape
from tinyxla.tracing import wrap
from tinyxla.tracing.array import Array, ConcreteArray
from tinyxla.tracing.core import state
from tinyxla.tracing.promotion import as_array, checked_scalar
from tinyxla.transforms import call


def run_module(module: Module, arguments: Sequence[Any], backend: str | None) -> Any:
    """The results of a module for these arguments, as its root groups them."""
    shapes = module.entry.parameter_shapes
    if len(arguments) != len(shapes):
        raise ArgumentError(
            f"The module {module.name} takes {len(shapes)} arguments, {TupleShape(tuple(shapes))}, but got "
            f"{len(arguments)}."
        )
    leaves = [leaf for k, (x, shape) in enumerate(zip(arguments, shapes, strict=True)) for leaf in _leaves(k, x, shape)]
    if state.staging is None and all(isinstance(x, ConcreteArray) for x in leaves):
        executable = module.prepared.get(backend) or _prepare(module, backend)
        found = executable([_dense(x.concrete("A module")) for x in leaves])
        results: Iterator[Any] = map(wrap, found)
    else:
        outputs = call(*leaves, to_apply=_flattened(module))
        results = iter(outputs if isinstance(outputs, tuple) else (outputs,))
    return tuples.regrouped(module.entry.root.shape, results)


def run_replicated(
    module: Module,
    arguments: Sequence[Sequence[Any]],
    replica_count: int | None,
    partition_count: int | None,
    backend: str | None,
) -> list[Any]:
    """The results of a module on each device."""
    what = f"execute_replicated: {module.name}"
    said = {name: int(module.attributes.get(name, "0")) or None for name in ("replica_count", "num_partitions")}
    mesh = mesh_of(
        what, arguments, replica_count or said["replica_count"], partition_count or said["num_partitions"] or 1
    )
    shapes = module.entry.parameter_shapes
    given: list[list[Array]] = []
    for device, values in enumerate(arguments):
        if len(values) != len(shapes):
            raise ArgumentError(f"{what}: device {device} takes {len(shapes)} arguments, but got {len(values)}.")
        pairs = zip(values, shapes, strict=True)
        given.append([leaf for k, (x, shape) in enumerate(pairs) for leaf in _leaves(k, x, shape)])
    orders = dimension_orders(_result_shape(module))
    results = execute_replicated(Program(module.name, _flattened(module), orders), given, mesh, backend)
    return [tuples.regrouped(module.entry.root.shape, iter(several)) for several in results]


def _dense(x: ConcreteArray) -> np.ndarray[Any, Any]:
    return np.ascontiguousarray(x.buffer()).reshape(x.shape)


def _prepare(module: Module, backend: str | None) -> Executable:
    computation = _flattened(module)
    if backend == "interpreter":  # calls are compiled wherever they are evaluated, so there must be none
        from tinyxla.compiler.passes.inline_calls import inline_calls  # here: no compiler is loaded by `import tinyxla`

        computation = inline_calls(computation)

    def compile_(changed: Computation) -> Executable:
        return compiled(changed) if backend is None else compile_module(Module(module.name, changed), backend)

    made = module.prepared[backend] = compile_laid_out(computation, _result_shape(module), compile_)
    return made


def _result_shape(module: Module) -> AnyShape:
    """The shape of the result with the layouts that are asked for: in the head of the text, else at the root."""
    asked = module.attributes.get("entry_computation_layout")
    return module.entry.root.shape if asked is None else read_program_shape(asked)[1]


def _flattened(module: Module) -> Computation:
    """The entry on arrays; an error if the text that the module is of has left something out."""
    for computation in module.computations():
        for x in computation.instructions:
            if is_constant(x) and x.attributes.literal.elided:
                raise ArgumentError(
                    f"The module {module.name} cannot be run: the text that it was read from leaves out the value of "
                    f"the constant {x.name} of shape {x.shape}; have constants printed whole."
                )
    return tuples.Flatten()(module.entry)


def _leaves(number: int, argument: Any, shape: AnyShape) -> Iterator[Array]:
    """The arrays of an argument, checked against the parameter."""
    if isinstance(shape, Shape):
        yield _checked(number, argument, shape)
        return
    if not isinstance(argument, (tuple, list)) or len(argument) != len(shape.elements):
        raise ArgumentError(f"A module's argument {number} must be a tuple {shape}, but got {argument!r}.")
    for part, element in zip(argument, shape.elements, strict=True):
        yield from _leaves(number, part, element)


def _checked(number: int, argument: Any, shape: Shape) -> Array:
    x: Array
    if isinstance(argument, np.ndarray) and argument.dtype == shape.dtype:  # also of 64 bits
        x = wrap(np.array(argument))
    elif isinstance(argument, (bool, int, float, complex)) and not isinstance(argument, np.generic):
        x = wrap(np.asarray(checked_scalar(argument, shape.dtype)))
    else:
        x = as_array(argument, "A module")
    if x.dtype != shape.dtype or not shape.admits(x.shape):
        raise ArgumentError(f"A module's argument {number} must be {shape}, but got {Shape.of(x)}; convert it.")
    return x
