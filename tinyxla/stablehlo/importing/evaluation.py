"""Evaluation of MLIR functions on arrays of this library, traced ones included: one rule for each operation.

A rule applies ops of `tinyxla.ops` or functions of `tinyxla.lax` to the operands. So what a text says is traced,
differentiated and batched as any function is. Operations on known integers, from which the sizes of programs with
symbolic sizes are computed, are evaluated at once, also while a function is traced.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinyxla.errors import ArgumentError, DTypeError, ShapeError, TinyxlaError
from tinyxla.hlo import Computation
from tinyxla.shapes import Shape
from tinyxla.stablehlo.importing.attributes import Attributes
from tinyxla.stablehlo.importing.sizes import SymbolicInts, as_arrays, on_sizes
from tinyxla.text.mlir.element_types import of_mlir
from tinyxla.text.mlir.ir import Function, ModuleOp, Operation, Region, TensorType, Type, Value
from tinyxla.text.mlir.text_parser import type_text
from tinyxla.tracing.array import Array, ConcreteArray, wrap
from tinyxla.tracing.core import state, trace
from tinyxla.tracing.promotion import as_array
from tinyxla.transforms.calls import call
from tinyxla.transforms.computations import of_one

_TAKE_SIZES = """func.call stablehlo.composite stablehlo.custom_call stablehlo.dynamic_broadcast_in_dim
    stablehlo.dynamic_conv stablehlo.dynamic_gather stablehlo.dynamic_iota stablehlo.dynamic_pad
    stablehlo.dynamic_reshape stablehlo.real_dynamic_slice""".split()  # whose rules know of symbolic sizes
Environment = dict[Value, Any]
Rule = Callable[..., Any]
MAX_KNOWN = 64  # elements of an array of integers that is computed while a function is traced
MAX_CALLS = 150  # that are nested


class Evaluation:
    """Evaluates the functions of one module. `rules` are by the name of the operation."""

    def __init__(self, module: ModuleOp, rules: dict[str, Rule]) -> None:
        self.module = module
        self.rules = rules
        self._depth = 0
        self._traced: dict[Any, Computation] = {}

    # --- functions and regions ----------------------------------------------------------------------------------------

    def function(self, name: str) -> Function:
        found = self.module.functions.get(name)
        if found is None:
            raise ArgumentError(
                f"The module has no function @{name}; its functions are {', '.join(self.module.functions)}."
            )
        return found

    def call(self, name: str, *operands: Any) -> list[Any]:
        """The results of a function."""
        function = self.function(name)
        self._depth += 1
        if self._depth > MAX_CALLS:
            raise ArgumentError(f"@{name}: more than {MAX_CALLS} calls are nested; StableHLO has no recursion.")
        try:
            return self.region(function.body, operands, {})
        finally:
            self._depth -= 1

    def shared_call(self, name: str, *operands: Any) -> list[Any]:
        """The results of a function, which is traced once for operands of equal shapes, unless it needs their
        values."""
        if not operands or any(isinstance(x, ConcreteArray | SymbolicInts) for x in operands):
            return self.call(name, *operands)
        shapes = [Shape.of(x) for x in operands]
        key = (name, *shapes)
        if key not in self._traced:
            made, captured, _ = trace(lambda *x: self.call(name, *x), shapes, name)
            if captured:
                return self.call(name, *operands)
            self._traced[key] = made
        found = call(*operands, to_apply=self._traced[key])
        return list(found)

    def region(self, region: Region, operands: Sequence[Any], environment: Environment) -> list[Any]:
        """The operands of the terminator of a region. `environment` has the values of enclosing regions."""
        block = region.block
        if len(block.arguments) != len(operands):
            raise ArgumentError(f"A region takes {len(block.arguments)} values, but is given {len(operands)}.")
        inside = environment if not environment else dict(environment)
        inside.update(zip(block.arguments, operands, strict=True))
        for operation in block.operations:
            if operation.name.endswith(".return"):
                return [inside[x] for x in operation.operands]
            results = self.operation(operation, [inside[x] for x in operation.operands], inside)
            inside.update(zip(operation.results, results, strict=True))
        raise ArgumentError("A region does not end with a return.")

    def operation(self, operation: Operation, operands: Sequence[Any], environment: Environment) -> Sequence[Any]:
        """The results of one operation, whose regions see the environment."""
        rule = self.rules.get(operation.name)
        if rule is None:
            raise ArgumentError(f"The operation {operation.name} is not supported{_where(operation)}.")
        if operation.name not in _TAKE_SIZES and any(isinstance(x, SymbolicInts) for x in operands):
            found = on_sizes(Context(self, operation, environment), operands) if len(operation.results) == 1 else None
            if found is not None:
                return [found]
            operands = as_arrays(operands)
        at_once = operands and all(_is_known(x) for x in operands) and all(_is_index(x.type) for x in operation.results)
        outer = state.staging
        if at_once:
            state.staging = None
        try:
            found = rule(Context(self, operation, environment), *operands)
        except TinyxlaError as error:
            if operation.location is not None and not getattr(error, "is_located", False):
                error.is_located = True  # type: ignore[attr-defined]
                error.add_note(f"in {operation.name}{_where(operation)}")
            raise
        except (TypeError, ValueError, KeyError, IndexError) as error:
            given = ", ".join(str(Shape.of(x)) for x in operands if isinstance(x, Array))
            raise ArgumentError(
                f"{operation.name}{_where(operation)} is not as StableHLO has it: it cannot be applied to ({given})."
            ) from error
        finally:
            state.staging = outer
        results = list(found) if isinstance(found, tuple | list) else [found]
        if len(results) != len(operation.results):
            raise ArgumentError(f"{operation.name} has {len(operation.results)} results, but gives {len(results)}.")
        for x, wanted in zip(results, operation.results, strict=True):
            _check_type(operation, x, wanted.type)
        return results


class Context(Attributes):
    """An operation that is evaluated: its attributes, its regions as functions, and the types of its results."""

    def __init__(self, evaluation: Evaluation, operation: Operation, environment: Environment) -> None:
        super().__init__(operation)
        self.evaluation = evaluation
        self.environment = environment

    def region(self, number: int) -> Callable[..., list[Any]]:
        """A region as a function of arrays that gives a list."""
        region = self.operation.regions[number]
        return lambda *operands: as_arrays(self.evaluation.region(region, operands, self.environment))

    def of_one(self, number: int) -> Callable[..., Any]:
        """A region with one result as a function of arrays."""
        region = self.region(number)
        return lambda *operands: region(*operands)[0]

    def computation(self, number: int, is_single: bool) -> Computation:
        """A region as a computation, of one result or of a tuple."""
        shapes = [shape_of(x.type) for x in self.operation.regions[number].block.arguments]
        if is_single:
            return of_one(self.of_one(number), shapes, "region")
        made, captured, _ = trace(self.region(number), shapes, "region")
        if captured:
            raise ArgumentError(f"{self.operation.name}: its region uses a value of outside, which is not supported.")
        return made

    @property
    def result_shapes(self) -> list[Shape]:
        return [shape_of(x.type) for x in self.operation.results]

    @property
    def result_shape(self) -> Shape:
        return shape_of(self.operation.results[0].type)


def shape_of(type: Type) -> Shape:
    """The shape of a type whose sizes are known."""
    if not isinstance(type, TensorType) or not type.is_ranked:
        raise DTypeError(f"{type_text(type)} is not the type of an array with known dimensions.")
    if any(size is None for size in type.sizes):
        raise ShapeError(f"{type_text(type)} has a size that is not known.")
    return Shape(of_mlir(type.element), tuple(size or 0 for size in type.sizes))


def known_ints(what: str, x: Any) -> tuple[int, ...]:
    """The integers of an array, where these are known while a function is traced; they may be symbolic."""
    if isinstance(x, SymbolicInts):
        return tuple(x.elements.reshape(-1))
    if not isinstance(x, ConcreteArray):
        raise ShapeError(
            f"{what}: a size depends on the values of arguments; sizes must follow from the shapes of arguments."
        )
    return tuple(int(n) for n in np.asarray(x).reshape(-1))


def constant(value: np.ndarray[Any, Any]) -> Array:
    """An array of known values."""
    return wrap(value)


def check_argument(what: str, x: Any, type: Type, shown: str | None = None) -> Array:
    """An argument as an array of the type that a function declares, which errors show as the text `shown`."""
    if not isinstance(type, TensorType):
        raise ArgumentError(f"{what} is of type {type_text(type)}, which is not that of an array.")
    wanted = of_mlir(type.element)
    if isinstance(x, list | tuple):
        x = np.asarray(x, wanted.dtype)
    if isinstance(x, int | float | complex | bool) or (
        isinstance(x, np.ndarray | np.generic) and x.dtype.kind in "biufc"
    ):
        given = np.asarray(x)
        found: Any = wrap(given.astype(wanted.dtype)) if _fits(given, wanted.dtype) else as_array(x)
    else:
        found = as_array(x)
    sizes = type.sizes if type.is_ranked else (None,) * found.ndim
    fits = len(sizes) == found.ndim and all(s is None or s == n for s, n in zip(sizes, found.shape, strict=False))
    if found.dtype != wanted.dtype or not fits:
        raise ArgumentError(f"{what} must be {shown or type_text(type)}, but is {Shape.of(found)}.")
    return found


def _fits(given: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> bool:
    """Whether a Python number or NumPy array is of a type, or a number that stands for any type of its kind."""
    if given.dtype == dtype:
        return True
    return given.ndim == 0 and np.can_cast(given.dtype, dtype, "same_kind") and given.dtype.kind != "b"


def _is_known(x: Any) -> bool:
    return isinstance(x, ConcreteArray) and x.dtype.kind in "biu" and x.size <= MAX_KNOWN


def _is_index(type: Type) -> bool:
    """Whether a value can be part of the arithmetic of sizes: integers or truth values, at most a matrix."""
    return isinstance(type, TensorType) and type.element.lstrip("u")[:1] == "i" and len(type.sizes) <= 2


def _check_type(operation: Operation, x: Any, type: Type) -> None:
    if not isinstance(type, TensorType) or not type.is_ranked:
        return
    sizes = type.sizes
    fits = len(sizes) == x.ndim and all(s is None or s == n for s, n in zip(sizes, x.shape, strict=True))
    if not fits or x.dtype != of_mlir(type.element).dtype:
        raise ShapeError(
            f"{operation.name}: the text says that the result is {type_text(type)}, but it is {Shape.of(x)}"
            f"{_where(operation)}."
        )


def _where(operation: Operation) -> str:
    at = operation.location
    if at is None:
        return ""
    named = f" ({at.name})" if at.name else ""
    return f" at {at.file}:{at.line}{named}" if at.file else named
