"""Programs in StableHLO as functions of arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tinyxla.api.jit import jit
from tinyxla.errors import ArgumentError, BytecodeError
from tinyxla.stablehlo import bytecode
from tinyxla.stablehlo.importing.chlo import CHLO_RULES
from tinyxla.stablehlo.importing.custom_calls import CALL_RULES, composites, handlers
from tinyxla.stablehlo.importing.evaluation import Evaluation, check_argument
from tinyxla.stablehlo.importing.manual_computation import MANUAL_RULES
from tinyxla.stablehlo.importing.rules import RULES
from tinyxla.stablehlo.importing.sizes import as_arrays
from tinyxla.stablehlo.importing.transfers import TRANSFER_RULES
from tinyxla.text.mlir.assembly import parse_module
from tinyxla.text.mlir.ir import ModuleOp
from tinyxla.text.mlir.text_parser import type_text

_RULES = {**RULES, **CHLO_RULES, **CALL_RULES, **TRANSFER_RULES, **MANUAL_RULES}


class Function:
    """A function of a module. Called with arrays it gives one, or a tuple; it can be transformed as any function.

    >>> from tinyxla import stablehlo
    >>> program = stablehlo.parse("func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> { return %x : tensor<2xf32> }")
    >>> program.functions["main"], program.main.in_types
    (<stablehlo function @main: (tensor<2xf32>) -> tensor<2xf32>>, ('tensor<2xf32>',))
    """

    def __init__(self, module: ModuleOp, name: str) -> None:
        self._module = module
        self._function = module.functions[name]
        self.__name__ = name
        self._compiled = jit(self._evaluated)

    @property
    def in_types(self) -> tuple[str, ...]:
        """The types of the arguments, in MLIR's form: `tensor<2x3xf32>`."""
        return tuple(map(type_text, self._function.type.inputs))

    @property
    def out_types(self) -> tuple[str, ...]:
        """The types of the results."""
        return tuple(map(type_text, self._function.type.results))

    def __call__(self, *args: Any) -> Any:
        types = self._function.type.inputs
        if len(args) != len(types):
            raise ArgumentError(f"@{self.__name__} takes {len(types)} arguments, but got {len(args)}.")
        values = [
            check_argument(f"@{self.__name__}: argument {k}", x, t)
            for k, (x, t) in enumerate(zip(args, types, strict=True))
        ]
        found = self._compiled(*values)
        return found[0] if len(found) == 1 else found

    def _evaluated(self, *values: Any) -> tuple[Any, ...]:
        return tuple(as_arrays(Evaluation(self._module, _RULES).call(self.__name__, *values)))

    def __repr__(self) -> str:
        results = self.out_types
        shown = results[0] if len(results) == 1 else f"({', '.join(results)})"
        return f"<stablehlo function @{self.__name__}: ({', '.join(self.in_types)}) -> {shown}>"


class Program:
    """A module of StableHLO: a function of arrays, which is `@main`, and others by name.

    Attributes:
        name: of the module.
        functions: by name.

    >>> from tinyxla import stablehlo
    >>> program = stablehlo.parse(
    ...     "func.func @main(%x: tensor<f32>) -> tensor<f32> { "
    ...     "%y = stablehlo.add %x, %x : tensor<f32> return %y : tensor<f32> }"
    ... )
    >>> list(program.functions), program(1.5)
    (['main'], Array(3., dtype=float32))
    """

    def __init__(self, module: ModuleOp) -> None:
        self.module = module
        self.name = module.name
        self.functions: Mapping[str, Function] = {name: Function(module, name) for name in module.functions}

    @property
    def main(self) -> Function:
        """The function `@main`, or the only public one."""
        public = [name for name, f in self.module.functions.items() if f.is_public]
        name = "main" if "main" in self.functions else public[0] if len(public) == 1 else None
        if name is None:
            raise ArgumentError(f"The module has no function @main; call one of {', '.join(self.functions)} by name.")
        return self.functions[name]

    def __call__(self, *args: Any) -> Any:
        return self.main(*args)

    def serialize(self) -> bytes:
        """The program as a portable artifact: MLIR bytecode, which `parse`, JAX, XLA and StableHLO's tools read.

        Returns:
            The bytes. Shardings of Shardy are left out.

        Raises:
            ArgumentError: an operation has no portable form, such as CHLO's but those that XLA knows as custom calls.

        Example:
            >>> from tinyxla import stablehlo
            >>> text = "func.func @main(%x: tensor<f32>) -> tensor<f32> { return %x : tensor<f32> }"
            >>> data = stablehlo.parse(text).serialize()
            >>> stablehlo.parse(data)(2.0)
            Array(2., dtype=float32)
        """
        return bytecode.write(self.module)

    def __repr__(self) -> str:
        return f"<stablehlo module {self.name}: {', '.join(map(repr, self.functions.values()))}>"


def parse(text: str | bytes | bytearray | memoryview) -> Program:
    """A program from StableHLO's text, in the pretty or the generic form, or from a portable artifact.

    Args:
        text: a module, such as JAX's `jit(f).lower(x).as_text()` or a compiler's dump. `stablehlo`, `chlo` and `func`
            operations; custom calls go to registered functions (`register_custom_call`), and those that JAX writes for
            CPUs are known. Bytes are a portable artifact, which is MLIR bytecode, or what `jax.export`'s `serialize`
            gave, of which the function `@main` is taken as it is: it takes the leaves of the arguments.

    Returns:
        A program that can be called, compiled, differentiated and batched.

    Raises:
        MlirSyntaxError: the text cannot be read; it says the line.
        BytecodeError: the bytes cannot be read; it says the offset.

    Example:
        >>> from tinyxla import stablehlo
        >>> program = stablehlo.parse('''
        ... func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {
        ...   %y = stablehlo.sine %x : tensor<3xf32>
        ...   return %y : tensor<3xf32>
        ... }
        ... ''')
        >>> program([0.0, 1.0, 2.0])
        Array([0.        , 0.84147096, 0.9092974 ], dtype=float32)
    """
    if isinstance(text, str):
        return Program(parse_module(text))
    data = bytes(text)
    return Program(bytecode.read(data if data[:4] == bytecode.MAGIC else _exported_module(data)))


def _exported_module(data: bytes) -> bytes:
    try:
        return bytecode.read_exported(data).mlir_module_serialized
    except BytecodeError as error:
        raise BytecodeError(
            f"neither an artifact, which begins with ML\\xefR, nor one of jax.export: {error.reason}", error.offset
        ) from None


def _check_registered(what: str, name: Any, function: Any) -> None:
    if not isinstance(name, str):
        raise ArgumentError(f"stablehlo.{what}: the name must be a text, but got {name!r}.")
    if not callable(function):
        raise ArgumentError(f"stablehlo.{what}: takes a function, but got {function!r} for {name!r}.")


def register_custom_call(target: str, function: Callable[..., Any]) -> None:
    """Give the custom calls of a target a function: of its operands, and with the entries of its `backend_config` as
    keywords. It gives the result or a tuple, and is traced, so it must be made of functions of this library (for
    functions of the host see `ffi.register_ffi_target`).

    Args:
        target: the target.
        function: a function of arrays, which is traced.

    Raises:
        ArgumentError: a target that is no text, or what is no function.

    >>> from tinyxla import stablehlo
    >>> stablehlo.register_custom_call("docs.double", lambda x: 2 * x)
    >>> program = stablehlo.parse(
    ...     "func.func @main(%x: tensor<f32>) -> tensor<f32> { "
    ...     "%y = stablehlo.custom_call @docs.double(%x) : (tensor<f32>) -> tensor<f32> return %y : tensor<f32> }"
    ... )
    >>> program(1.5)
    Array(3., dtype=float32)
    """
    _check_registered("register_custom_call", target, function)
    handlers[target] = function


def register_composite(name: str, function: Callable[..., Any]) -> None:
    """Give composites of a name a function in place of their decomposition: of the operands, with
    `composite_attributes` as keywords.

    Args:
        name: the name of the composites.
        function: a function of arrays, which is traced.

    Raises:
        ArgumentError: a name that is no text, or what is no function.

    >>> from tinyxla import stablehlo
    >>> stablehlo.register_composite("docs.half", lambda x: x / 2)
    >>> program = stablehlo.parse(
    ...     "func.func @main(%x: tensor<f32>) -> tensor<f32> { "
    ...     '%y = stablehlo.composite "docs.half" %x {decomposition = @slow} : (tensor<f32>) -> tensor<f32> '
    ...     "return %y : tensor<f32> } "
    ...     "func.func private @slow(%x: tensor<f32>) -> tensor<f32> { return %x : tensor<f32> }"
    ... )
    >>> program(3.0)
    Array(1.5, dtype=float32)
    """
    _check_registered("register_composite", name, function)
    composites[name] = function
