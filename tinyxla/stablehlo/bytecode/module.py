"""A module from bytecode: its functions, out of the operations of the artifact."""

from __future__ import annotations

from tinyxla.errors import BytecodeError
from tinyxla.runtime.allocation import rarely_collected
from tinyxla.stablehlo.bytecode.builtin import BUILTIN
from tinyxla.stablehlo.bytecode.operations import Operations
from tinyxla.stablehlo.bytecode.sdy import SDY
from tinyxla.stablehlo.bytecode.tables import MAGIC as MAGIC, Tables
from tinyxla.stablehlo.bytecode.vhlo import VHLO
from tinyxla.text.mlir.ir import (
    ArrayAttr,
    Attribute,
    DictAttr,
    Function,
    FunctionType,
    ModuleOp,
    OpaqueAttr,
    Operation,
    StringAttr,
    TypeAttr,
)


def read(data: bytes | bytearray | memoryview) -> ModuleOp:
    """A module from a portable artifact: MLIR bytecode of VHLO, as `jax.export` and StableHLO's
    `serialize_portable_artifact` write it.

    Args:
        data: the bytes, which begin with `ML\\xefR`.

    Returns:
        The module as `parse` has it from text: operations of StableHLO, in their current form.

    Raises:
        BytecodeError: the bytes are no such artifact, or damaged; it says the offset.

    Example:
        >>> from tinyxla import stablehlo
        >>> text = "func.func @main(%x: tensor<f32>) -> tensor<f32> { return %x : tensor<f32> }"
        >>> module = stablehlo.bytecode.read(stablehlo.parse(text).serialize())
        >>> list(module.functions)
        ['main']
    """
    tables = Tables(bytes(data), {"builtin": BUILTIN, "vhlo": VHLO, "sdy": SDY})
    operations = rarely_collected(Operations(tables).top_level)
    if len(operations) != 1 or operations[0].name != "builtin.module" or len(operations[0].regions) != 1:
        raise BytecodeError("an artifact consists of one module", tables.operations.at)
    (outer,) = operations
    module = ModuleOp(attributes=outer.attributes)
    named = module.attributes.pop("sym_name", None)
    module.name = _text(named) if named is not None else ""
    for block in outer.regions[0].blocks:
        for operation in block.operations:
            if operation.name == "func.func":
                function = _function(operation)
                if function.name in module.functions:
                    raise BytecodeError(f"the function @{function.name} is there twice", operation.offset)
                module.functions[function.name] = function
            elif operation.name == "sdy.mesh":
                mesh = operation.attributes.get("mesh", OpaqueAttr(""))
                text = mesh.text.removeprefix("#sdy.mesh") if isinstance(mesh, OpaqueAttr) else ""
                module.attributes[f"sdy.mesh.{_text(operation.attributes.get('sym_name'))}"] = OpaqueAttr(text)
            else:
                raise BytecodeError(f"expected a function, but found {operation.name}", operation.offset)
    return module


def _function(operation: Operation) -> Function:
    a = operation.attributes
    typed = a.get("function_type")
    type = typed.type if isinstance(typed, TypeAttr) else None
    if not isinstance(type, FunctionType) or len(operation.regions) != 1 or not operation.regions[0].blocks:
        raise BytecodeError("a function has a type and a body", operation.offset)
    body = operation.regions[0]
    arguments = tuple(x.type for x in body.block.arguments)
    if arguments != type.inputs:
        raise BytecodeError("the body of a function does not take what its type says", operation.offset)
    if body.block.operations and body.block.operations[-1].name == "stablehlo.return":
        body.block.operations[-1].name = "func.return"
    name = _text(a.get("sym_name"))
    if not name:
        raise BytecodeError("a function has no name", operation.offset)
    return Function(
        name,
        type,
        body,
        _dictionaries(a.get("arg_attrs"), len(type.inputs)),
        _dictionaries(a.get("res_attrs"), len(type.results)),
        a,
        a.get("sym_visibility") != StringAttr(b"private"),
        operation.location,
        operation.offset,
    )


def _text(x: Attribute | None) -> str:
    return x.value.decode(errors="replace") if isinstance(x, StringAttr) else ""


def _dictionaries(x: Attribute | None, count: int) -> list[dict[str, Attribute]]:
    given = x.elements if isinstance(x, ArrayAttr) else ()
    found = [dict(entry.entries) if isinstance(entry, DictAttr) else {} for entry in given]
    return found if len(found) == count else [{} for _ in range(count)]
