"""The graph as StableHLO: one function for the program, and one for each computation that is called.

Instructions become operations of StableHLO or CHLO, in order. A tuple of an instruction with several results is these
results. Operations that only this library has must be written out before (`compiler.passes.expand.expand_to_hlo`).

Source: StableHLO specification, https://openxla.org/stablehlo/spec; XLA's operation semantics for the graph's side.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tinyxla.errors import ArgumentError
from tinyxla.hlo import Computation, Instruction, Module
from tinyxla.ops import ops
from tinyxla.ops.linalg import lapack
from tinyxla.shapes import TOKEN, AnyShape, Shape, TupleShape
from tinyxla.shapes.symbolic import has_symbolic, is_symbolic
from tinyxla.shapes.symbolic_solving import System, system_of
from tinyxla.text.mlir.element_types import to_mlir
from tinyxla.text.mlir.ir import (
    ArrayAttr,
    Attribute,
    Block,
    DenseAttr,
    DialectAttr,
    DictAttr,
    FloatAttr,
    Function,
    FunctionType,
    IntegerAttr,
    Location,
    ModuleOp,
    OpaqueAttr,
    Operation,
    OtherType,
    Region,
    StringAttr,
    SymbolAttr,
    TensorType,
    Type,
    UnitAttr,
    Value,
    enumeration,
)
from tinyxla.text.mlir.printer import print_module_op
from tinyxla.text.mlir.text_parser import parse_attribute
from tinyxla.text.op_names import op_name, with_paths
from tinyxla.text.stablehlo_dynamic import (
    OF_ATTRIBUTES,
    OF_RESULT,
    RNG_ALGORITHMS,
    has_symbolic_attributes,
    has_symbolic_result,
    integers,
)
from tinyxla.text.stablehlo_sizes import I32, Sizes
from tinyxla.text.stablehlo_transfers import TRANSFER_RULES

_WITHOUT_SIZES = ("gather", "convolution", "while")  # their rules know of symbolic sizes
Attributes = dict[str, Attribute]
Rule = Callable[["Body", Instruction, list[Value]], list[Value]]


class StableHloModule(ModuleOp):
    """A module of StableHLO, whose `str` is its text."""

    def __str__(self) -> str:
        return print_module_op(self)


def print_stablehlo(module: Module, debug_info: bool = False) -> str:
    """The text of a graph in StableHLO.

    Args:
        module: a module.
        debug_info: whether operations have their scopes and the user's line, `loc("jit(f)/scope/sine"("file.py":3:0))`.

    Returns:
        The text.

    Raises:
        ArgumentError: an operation has no form in StableHLO.

    >>> import tinyxla
    >>> from tinyxla.text import print_stablehlo
    >>> print(print_stablehlo(tinyxla.jit(lambda x: x * x).lower(1.0).module), end="")
    module @_lambda_ {
      func.func public @main(%arg0: tensor<f32>) -> (tensor<f32>) {
        %0 = "stablehlo.multiply"(%arg0, %arg0) : (tensor<f32>, tensor<f32>) -> (tensor<f32>)
        "func.return"(%0) : (tensor<f32>) -> ()
      }
    }
    """
    return print_module_op(module_op(with_paths(module) if debug_info else module, debug_info), debug_info)


def module_op(module: Module, has_locations: bool = False, rules: Mapping[str, Rule] | None = None) -> ModuleOp:
    """The graph as a module of MLIR, whose operations have the places in the program that they come from, if those are
    wanted; with rules for operations of further dialects."""
    shapes = [p.shape.dimensions if isinstance(p.shape, Shape) else () for p in module.entry.parameters]
    made = _Module(StableHloModule(_plain(module.name)), system_of(module.name, shapes), has_locations, rules or {})
    if made.system.variables:
        made.module.attributes["jax.uses_shape_polymorphism"] = IntegerAttr(1, "i1")
    made.function(module.entry, "main", is_public=True)
    functions = made.module.functions
    made.module.functions = {"main": functions.pop("main"), **functions}
    return made.module


def _plain(name: str) -> str:
    return "".join(c if c.isalnum() or c == "_" else "_" for c in name) or "module"


def type_of(shape: AnyShape) -> Type:
    """The type of an array or token; symbolic sizes are `?` there."""
    if isinstance(shape, Shape) and shape.element_type is not TOKEN:
        if shape.is_dynamic:
            raise ArgumentError(f"StableHLO: {shape} has a dynamic size, which is not written.")
        sizes = tuple(None if is_symbolic(n) else n for n in shape.dimensions)
        return TensorType(sizes, to_mlir(shape.element_type))
    return OtherType("!stablehlo.token")


class _Module:
    """The functions that have been written, by computation. Their first arguments are the variables of `system`."""

    def __init__(self, module: ModuleOp, system: System, has_locations: bool, rules: Mapping[str, Rule]) -> None:
        self.module = module
        self.rules = {**_RULES, **rules}
        self.has_locations = has_locations
        self.system = system
        self._names: dict[int, str] = {}  # of functions that are written or being written
        self._taken: set[str] = set()

    def function(self, computation: Computation, name: str, is_public: bool = False, has_variables: bool = True) -> str:
        """The function of a computation, which is written once; gives its name."""
        known = self._names.get(id(computation))
        if known is not None:
            return known
        name = base = _plain(name)
        count = 0
        while name in self._taken or (name == "main" and not is_public):
            count += 1
            name = f"{base}_{count}"
        self._names[id(computation)] = name
        self._taken.add(name)
        arguments = [Value(type_of(p.shape)) for p in computation.parameters]
        names = self.system.variables if has_variables and not is_public else ()
        variables = {name: Value(I32) for name in names}
        body = Body(self, dict(zip(computation.parameters, ([x] for x in arguments), strict=True)), variables)
        if is_public:
            body.sizes.define(self.system, arguments)
        results = body.run(computation)
        body.emit("func.return", results, [], {})
        inputs = [*variables.values(), *arguments]
        types = FunctionType(tuple(x.type for x in inputs), tuple(x.type for x in results))
        attributes: list[Attributes] = [{"jax.global_constant": StringAttr(name.encode())} for name in names]
        attributes += [{} for _ in arguments if names]
        region = Region([Block(inputs, body.operations)])
        self.module.functions[name] = Function(name, types, region, attributes, is_public=is_public)
        return name


class Body:
    """The operations of one block; `values` are those of the instructions, `sizes` the symbolic ones."""

    def __init__(
        self,
        module: _Module,
        values: dict[Instruction, list[Value]],
        variables: dict[str, Value],
        outer: Sizes | None = None,
    ) -> None:
        self.module = module
        self.values = values
        self.operations: list[Operation] = []
        self.sizes = Sizes(self.emit, dict(variables), module.system.scope, outer)

    def run(self, computation: Computation) -> list[Value]:
        """Write a computation's instructions; gives its results."""
        for x in computation.instructions:
            if x not in self.values:
                self.values[x] = self._instruction(x)
        return self.values[computation.root]

    def _instruction(self, x: Instruction) -> list[Value]:
        name = x.op.name
        if name == "tuple":
            return [value for o in x.operands for value in self.values[o]]
        if name == "get-tuple-element":
            return [self.values[x.operands[0]][x.attributes.index]]
        operands = [value for o in x.operands for value in self.values[o]]
        if name in _SILENT:
            return operands[:1]
        rule = self.module.rules.get(name)
        if name in OF_RESULT and has_symbolic_result(x):
            rule = OF_RESULT[name]
        elif self.module.system.variables and has_symbolic_attributes(x):
            rule = OF_ATTRIBUTES.get(name, rule if name in _WITHOUT_SIZES else None)
            if rule is None:
                raise ArgumentError(
                    f"StableHLO has no form of the operation {name!r} with the symbolic size {x.shape}."
                )
        if rule is None:
            raise ArgumentError(f"StableHLO has no form of the operation {name!r}.")
        start = len(self.operations)
        results = rule(self, x, operands)
        if x.source is not None and x.source.frontend_attributes:
            said = DictAttr({name: StringAttr(text.encode()) for name, text in x.source.frontend_attributes})
            for made in self.operations[start:]:
                made.attributes["mhlo.frontend_attributes"] = said
        if self.module.has_locations and x.source is not None:
            location = Location(x.source.file, x.source.line, name=op_name(x))
            for made in self.operations[start:]:
                made.location = location
        return results

    def emit(
        self, name: str, operands: Sequence[Value], results: Sequence[Type], attributes: Attributes, *regions: Region
    ) -> list[Value]:
        """Add an operation; gives its results."""
        made = [Value(t) for t in results]
        self.operations.append(Operation(name, list(operands), made, attributes, list(regions)))
        return made

    def of(self, x: Instruction, name: str, operands: Sequence[Value], attributes: Attributes, *regions: Region) -> Any:
        """Add an operation with the results of an instruction."""
        shapes = x.shape.elements if isinstance(x.shape, TupleShape) else (x.shape,)
        return self.emit(name, operands, [type_of(s) for s in shapes], attributes, *regions)

    @staticmethod
    def group(name: str, **parameters: Any) -> DialectAttr:
        """A dialect's attribute of integers and lists of integers."""
        return _group(name, **parameters)

    def region(
        self,
        computation: Computation,
        captured: Sequence[Value] | None = None,
        terminator: str = "stablehlo.return",
    ) -> Region:
        """A computation as a region: of block arguments, or of values of outside."""
        if captured is None:
            arguments = [Value(type_of(p.shape)) for p in computation.parameters]
            given = arguments
        else:
            arguments, given = [], list(captured)
        values = {p: [v] for p, v in zip(computation.parameters, given, strict=True)}
        body = Body(self.module, values, self.sizes.variables, self.sizes)
        results = body.run(computation)
        body.emit(terminator, results, [], {})
        return Region([Block(arguments, body.operations)])


# --- attributes -------------------------------------------------------------------------------------------------------


def _matrix(rows: Sequence[Sequence[int]], width: int) -> DenseAttr:
    found = np.array(rows, np.int64).reshape(len(rows), width)
    return DenseAttr(found, TensorType(found.shape, "i64"))


def _flags(values: Sequence[bool]) -> DenseAttr:
    found = np.array(values, np.bool_).reshape(-1)
    return DenseAttr(found, TensorType((found.size,), "i1"), is_array=True)


def _ints(values: Sequence[int]) -> ArrayAttr:
    return ArrayAttr(tuple(IntegerAttr(int(n)) for n in values))


def _group(name: str, **parameters: Any) -> DialectAttr:
    """A dialect's attribute of integers and lists of integers."""
    entries = {
        key: IntegerAttr(value) if isinstance(value, int) else _ints(value)
        for key, value in parameters.items()
        if isinstance(value, int) or value
    }
    return DialectAttr(f"stablehlo.{name}", entries)


def _precisions(precisions: Sequence[str]) -> Attributes:
    if not precisions:
        return {}
    return {"precision_config": ArrayAttr(tuple(enumeration("precision", p.upper()) for p in precisions))}


# --- rules ------------------------------------------------------------------------------------------------------------

_SILENT = ("copy", "checkpoint-name", "add-dependency", "domain")  # their value is the first operand


def _same(name: str) -> Rule:
    return lambda body, x, operands: body.of(x, name, operands, {})


def _compare(body: Body, x: Instruction, operands: list[Value]) -> list[Value]:
    a = x.attributes
    attributes: Attributes = {
        "comparison_direction": enumeration("comparison_direction", a.direction),
        "compare_type": enumeration("comparison_type", a.type),
    }
    return body.of(x, "stablehlo.compare", operands, attributes)


def _constant(body: Body, x: Instruction, operands: list[Value]) -> list[Value]:
    type = type_of(x.shape)
    assert isinstance(type, TensorType)
    return body.of(x, "stablehlo.constant", [], {"value": DenseAttr(np.asarray(x.attributes.literal.value), type)})


def _with(name: str, attributes: Callable[[Instruction, Any], Attributes]) -> Rule:
    return lambda body, x, operands: body.of(x, name, operands, attributes(x, x.attributes))


def _dot(body: Body, x: Instruction, operands: list[Value]) -> list[Value]:
    a = x.attributes
    numbers = _group(
        "dot",
        lhs_batching_dimensions=a.lhs_batch_dims,
        rhs_batching_dimensions=a.rhs_batch_dims,
        lhs_contracting_dimensions=a.lhs_contracting_dims,
        rhs_contracting_dimensions=a.rhs_contracting_dims,
    )
    return body.of(
        x, "stablehlo.dot_general", operands, {"dot_dimension_numbers": numbers, **_precisions(a.operand_precision)}
    )


def _labels(spec: Sequence[int], first: str) -> str:
    """The labels of dimensions: `[b, f, 0, 1]` for the specification (0, 1, 2, 3)."""
    names = [""] * len(spec)
    for k, d in enumerate(spec):
        names[d] = first[k] if k < 2 else str(k - 2)
    return f"[{', '.join(names)}]"


def _convolution(body: Body, x: Instruction, operands: list[Value]) -> list[Value]:
    a = x.attributes
    lhs, rhs, out = a.dim_labels
    text = f"<{_labels(lhs, 'bf')}x{_labels(rhs, 'oi')}->{_labels(out, 'bf')}>"
    attributes: Attributes = {
        "window_strides": integers([w.stride for w in a.window]),
        "lhs_dilation": integers([w.base_dilation for w in a.window]),
        "rhs_dilation": integers([w.window_dilation for w in a.window]),
        "window_reversal": _flags([w.window_reversal for w in a.window]),
        "dimension_numbers": DialectAttr("stablehlo.conv", {"text": StringAttr(text.encode())}),
        "feature_group_count": IntegerAttr(a.feature_group_count),
        "batch_group_count": IntegerAttr(a.batch_group_count),
        **_precisions(a.operand_precision),
    }
    padding = [(w.padding_low, w.padding_high) for w in a.window]
    if any(map(has_symbolic, padding)):
        return body.of(x, "stablehlo.dynamic_conv", [*operands, body.sizes.matrix(padding, 2)], attributes)
    return body.of(x, "stablehlo.convolution", operands, {**attributes, "padding": _matrix(padding, 2)})


def _window(window: Sequence[Any]) -> Attributes:
    return {
        "window_dimensions": integers([w.size for w in window]),
        "window_strides": integers([w.stride for w in window]),
        "padding": _matrix([(w.padding_low, w.padding_high) for w in window], 2),
    }


def _reduce_window(body: Body, x: Instruction, operands: list[Value]) -> list[Value]:
    a = x.attributes
    if any(w.window_reversal for w in a.window):
        raise ArgumentError("StableHLO: a reduce-window with a reversed window has no form there.")
    attributes = {
        **_window(a.window),
        "base_dilations": integers([w.base_dilation for w in a.window]),
        "window_dilations": integers([w.window_dilation for w in a.window]),
    }
    return body.of(x, "stablehlo.reduce_window", operands, attributes, body.region(a.to_apply))


def _select_and_scatter(body: Body, x: Instruction, operands: list[Value]) -> list[Value]:
    a = x.attributes
    regions = body.region(a.select), body.region(a.scatter)
    return body.of(x, "stablehlo.select_and_scatter", operands, _window(a.window), *regions)


def _reduce(body: Body, x: Instruction, operands: list[Value]) -> list[Value]:
    a = x.attributes
    return body.of(x, "stablehlo.reduce", operands, {"dimensions": integers(a.dimensions)}, body.region(a.to_apply))


def _map(body: Body, x: Instruction, operands: list[Value]) -> list[Value]:
    a = x.attributes
    return body.of(x, "stablehlo.map", operands, {"dimensions": integers(a.dimensions)}, body.region(a.to_apply))


def _sort(body: Body, x: Instruction, operands: list[Value]) -> list[Value]:
    a = x.attributes
    attributes: Attributes = {
        "dimension": IntegerAttr(a.dimensions[0]),
        "is_stable": IntegerAttr(int(a.is_stable), "i1"),
    }
    return body.of(x, "stablehlo.sort", operands, attributes, body.region(a.to_apply))


def _gather(body: Body, x: Instruction, operands: list[Value]) -> list[Value]:
    a = x.attributes
    numbers = _group(
        "gather",
        offset_dims=a.offset_dims,
        collapsed_slice_dims=a.collapsed_slice_dims,
        operand_batching_dims=a.operand_batching_dims,
        start_indices_batching_dims=a.start_indices_batching_dims,
        start_index_map=a.start_index_map,
        index_vector_dim=a.index_vector_dim,
    )
    attributes: Attributes = {
        "dimension_numbers": numbers,
        "indices_are_sorted": IntegerAttr(int(a.indices_are_sorted), "i1"),
    }
    if has_symbolic(a.slice_sizes):
        return body.of(x, "stablehlo.dynamic_gather", [*operands, body.sizes.vector(a.slice_sizes)], attributes)
    return body.of(x, "stablehlo.gather", operands, {**attributes, "slice_sizes": integers(a.slice_sizes)})


def _scatter(body: Body, x: Instruction, operands: list[Value]) -> list[Value]:
    a = x.attributes
    numbers = _group(
        "scatter",
        update_window_dims=a.update_window_dims,
        inserted_window_dims=a.inserted_window_dims,
        input_batching_dims=a.input_batching_dims,
        scatter_indices_batching_dims=a.scatter_indices_batching_dims,
        scatter_dims_to_operand_dims=a.scatter_dims_to_operand_dims,
        index_vector_dim=a.index_vector_dim,
    )
    attributes: Attributes = {
        "scatter_dimension_numbers": numbers,
        "indices_are_sorted": IntegerAttr(int(a.indices_are_sorted), "i1"),
        "unique_indices": IntegerAttr(int(a.unique_indices), "i1"),
    }
    return body.of(x, "stablehlo.scatter", operands, attributes, body.region(a.to_apply))


def _pad(body: Body, x: Instruction, operands: list[Value]) -> list[Value]:
    low, high, interior = zip(*x.attributes.padding_config, strict=True) if x.attributes.padding_config else ((),) * 3
    attributes: Attributes = {
        "edge_padding_low": integers(low),
        "edge_padding_high": integers(high),
        "interior_padding": integers(interior),
    }
    return body.of(x, "stablehlo.pad", operands, attributes)


def _triangular_solve(body: Body, x: Instruction, operands: list[Value]) -> list[Value]:
    a = x.attributes
    attributes: Attributes = {
        name: IntegerAttr(int(getattr(a, name)), "i1") for name in ("left_side", "lower", "unit_diagonal")
    }
    attributes["transpose_a"] = enumeration("transpose", a.transpose_a)
    return body.of(x, "stablehlo.triangular_solve", operands, attributes)


def _rng_bit_generator(body: Body, x: Instruction, operands: list[Value]) -> list[Value]:
    attributes: Attributes = {"rng_algorithm": enumeration("rng_algorithm", RNG_ALGORITHMS[x.attributes.algorithm])}
    return body.of(x, "stablehlo.rng_bit_generator", operands, attributes)


def _while(body: Body, x: Instruction, operands: list[Value]) -> list[Value]:
    a = x.attributes
    return body.of(x, "stablehlo.while", operands, {}, body.region(a.condition), body.region(a.body))


def _conditional(body: Body, x: Instruction, operands: list[Value]) -> list[Value]:
    index, *given = operands
    branches = x.attributes.branch_computations
    if x.operands[0].array_shape.element_type.name == "pred":
        return body.of(x, "stablehlo.if", [index], {}, *(body.region(b, given) for b in branches))
    return body.of(x, "stablehlo.case", [index], {}, *(body.region(b, given) for b in branches))


def _call(body: Body, x: Instruction, operands: list[Value]) -> list[Value]:
    name = body.module.function(x.attributes.to_apply, x.attributes.to_apply.name)
    variables = [body.sizes.variables[v] for v in body.module.system.variables]
    said = x.attributes.frontend_attributes
    if x.attributes.is_composite and said is not None and not variables:
        attributes: Attributes = {"name": StringAttr(said.name.encode()), "decomposition": SymbolAttr((name,))}
        if said.attributes not in ("", "{}"):
            attributes["composite_attributes"] = OpaqueAttr(said.attributes)
        if said.version:
            attributes["version"] = IntegerAttr(said.version, "i32")
        return body.of(x, "stablehlo.composite", operands, attributes)
    return body.of(x, "func.call", [*variables, *operands], {"callee": SymbolAttr((name,))})


def _top_k(body: Body, x: Instruction, operands: list[Value]) -> list[Value]:
    if not x.attributes.largest:
        raise ArgumentError("StableHLO: top-k of the smallest elements has no form there.")
    return body.of(x, "chlo.top_k", operands, {"k": IntegerAttr(x.attributes.k)})


def _custom_call(body: Body, x: Instruction, operands: list[Value]) -> list[Value]:
    a = x.attributes
    if a.custom_call_target == "AllocateBuffer":  # memory that is written before it is read
        type = type_of(x.shape)
        assert isinstance(type, TensorType)
        zeros = np.broadcast_to(np.zeros((), x.array_shape.dtype), x.array_shape.dimensions)
        return body.of(x, "stablehlo.constant", [], {"value": DenseAttr(zeros, type)})
    attributes: Attributes = {"call_target_name": StringAttr(a.custom_call_target.encode())}
    if a.custom_call_has_side_effect:
        attributes["has_side_effect"] = IntegerAttr(1, "i1")
    if a.api_version == "TYPED_FFI":
        given = parse_attribute(a.backend_config or "{}")
        attributes |= {"backend_config": StringAttr(b""), "mhlo.backend_config": given}
    elif a.backend_config:
        attributes["backend_config"] = StringAttr(a.backend_config.encode())
    if a.output_to_operand_aliasing:
        attributes["output_operand_aliases"] = ArrayAttr(tuple(_alias(*pair) for pair in a.output_to_operand_aliasing))
    return body.of(x, "stablehlo.custom_call", operands, attributes)


def _alias(path: Sequence[int], operand: int) -> DialectAttr:
    parameters: dict[str, Attribute] = {
        "output_tuple_indices": ArrayAttr(tuple(map(IntegerAttr, path))),
        "operand_index": IntegerAttr(operand),
        "operand_tuple_indices": ArrayAttr(()),
    }
    return DialectAttr("stablehlo.output_operand_alias", parameters)


def _lapack(body: Body, x: Instruction, operands: list[Value]) -> list[Value]:
    """A call of LAPACK, whose matrices are in columns; sizes that are symbolic follow the operands, for each result."""
    a, routine = x.attributes, lapack.ROUTINES[x.attributes.routine]
    inputs = [o.array_shape for o in x.operands]
    sizes = lapack.sizes_of(a.routine, inputs)
    options: Attributes = {
        name: IntegerAttr(ord(letter), "ui8") for name, letter in lapack.options_of(a.routine, a.options).items()
    }
    if any(is_symbolic(sizes[letter]) for _, letter in routine.sizes):
        raise ArgumentError(f"StableHLO: a call of {a.routine} with the symbolic size {inputs[0]} has no form there.")
    options |= {name: IntegerAttr(sizes[letter], "i32") for name, letter in routine.sizes}
    batch = inputs[0].rank - len(routine.operands[0])
    results = x.shape.elements if isinstance(x.shape, TupleShape) else (x.shape,)
    shapes = [s for s in results if isinstance(s, Shape)]
    layouts = [_columns_first(s, batch) for s in inputs]
    attributes: Attributes = {
        "call_target_name": StringAttr(lapack.target_of(a.routine, inputs[0].element_type).encode()),
        "backend_config": StringAttr(b""),
        "mhlo.backend_config": DictAttr(dict(sorted(options.items()))),
        "result_layouts": ArrayAttr(tuple(_columns_first(s, batch) for s in shapes)),
    }
    if has_symbolic_result(x):
        numbers = np.arange(len(operands), len(operands) + len(shapes))
        attributes["indices_of_shape_operands"] = DenseAttr(numbers, TensorType((len(shapes),), "i64"))
        operands = [*operands, *(body.sizes.vector(s.dimensions) for s in shapes)]
        layouts += [DenseAttr(np.zeros(1, np.int64), TensorType((1,), "index")) for _ in shapes]
    attributes["operand_layouts"] = ArrayAttr(tuple(layouts))
    return body.of(x, "stablehlo.custom_call", operands, attributes)


def _columns_first(shape: Shape, batch: int) -> DenseAttr:
    """The layout, from the minor dimension on: matrices in columns, and the batch around them."""
    order = list(range(shape.rank))[::-1]
    if shape.rank == batch + 2:
        order[:2] = order[1::-1]
    return DenseAttr(np.array(order, np.int64), TensorType((shape.rank,), "index"))


def _batch_norm(name: str) -> Rule:
    return _with(
        name, lambda x, a: {"epsilon": FloatAttr(a.epsilon, "f32"), "feature_index": IntegerAttr(a.feature_index)}
    )


def _meeting(a: Any) -> Attributes:
    groups = a.replica_groups
    width = max((len(group) for group in groups), default=0)
    rows = [[*group, *[-1] * (width - len(group))] for group in groups]
    attributes: Attributes = {"replica_groups": _matrix(rows, width)}
    if a.channel_id is not None:
        attributes["channel_handle"] = _group("channel_handle", handle=a.channel_id, type=1)
    if getattr(a, "use_global_device_ids", False):
        attributes["use_global_device_ids"] = UnitAttr()
    return attributes


def _all_reduce(body: Body, x: Instruction, operands: list[Value]) -> list[Value]:
    return body.of(x, "stablehlo.all_reduce", operands, _meeting(x.attributes), body.region(x.attributes.to_apply))


def _each(name: str, attributes: Callable[[Any], Attributes]) -> Rule:
    """A collective of one operand: an operation for each, with the computation that is applied, if there is one."""

    def rule(body: Body, x: Instruction, operands: list[Value]) -> list[Value]:
        results: list[Value] = []
        shapes = x.shape.elements if isinstance(x.shape, TupleShape) else (x.shape,)
        for operand, shape in zip(operands, shapes, strict=True):
            regions = [body.region(c) for c in x.computations()]
            results += body.emit(name, [operand], [type_of(shape)], attributes(x.attributes), *regions)
        return results

    return rule


def _pairs(a: Any) -> Attributes:
    attributes: Attributes = {"source_target_pairs": _matrix(a.source_target_pairs, 2)}
    if a.channel_id is not None:
        attributes["channel_handle"] = _group("channel_handle", handle=a.channel_id, type=1)
    return attributes


def _all_to_all(body: Body, x: Instruction, operands: list[Value]) -> list[Value]:
    """Blocks of one array along a dimension; or operands, one for each member, which are stacked for it."""
    a = x.attributes
    if a.dimensions and not a.replica_groups:
        raise ArgumentError("StableHLO: an all-to-all along a dimension has groups; give it replica_groups.")
    count = len(a.replica_groups[0]) if a.dimensions else len(operands)
    dimension = a.dimensions[0] if a.dimensions else 0
    attributes: Attributes = {
        "split_dimension": IntegerAttr(dimension),
        "concat_dimension": IntegerAttr(dimension),
        "split_count": IntegerAttr(count),
        **_meeting(a),
    }
    if a.dimensions:
        return body.of(x, "stablehlo.all_to_all", operands, attributes)
    shape = x.operands[0].array_shape
    one, all_ = (type_of(shape.with_dimensions((n, *shape.dimensions))) for n in (1, count))
    rows = [body.emit("stablehlo.reshape", [operand], [one], {})[0] for operand in operands]
    stacked = body.emit("stablehlo.concatenate", rows, [all_], {"dimension": IntegerAttr(0)})
    (exchanged,) = body.emit("stablehlo.all_to_all", stacked, [all_], attributes)
    results: list[Value] = []
    for k in range(count):
        bounds = {
            "start_indices": integers((k, *(0 for _ in shape.dimensions))),
            "limit_indices": integers((k + 1, *shape.dimensions)),
            "strides": integers((1,) * (shape.rank + 1)),
        }
        row = body.emit("stablehlo.slice", [exchanged], [one], {**bounds})
        results += body.emit("stablehlo.reshape", row, [type_of(shape)], {})
    return results


def _sign(body: Body, x: Instruction, operands: list[Value]) -> list[Value]:
    """Of unsigned integers, for which StableHLO has no sign: the smaller of the value and 1."""
    shape = x.array_shape
    if shape.element_type.kind != "unsigned":
        return body.of(x, "stablehlo.sign", operands, {})
    type = type_of(shape)
    assert isinstance(type, TensorType)
    ones = np.broadcast_to(np.ones((), shape.dtype), shape.dimensions)
    one = body.emit("stablehlo.constant", [], [type], {"value": DenseAttr(ones, type)})
    return body.of(x, "stablehlo.minimum", [*operands, *one], {})


def _abs(body: Body, x: Instruction, operands: list[Value]) -> list[Value]:
    is_unsigned = x.array_shape.element_type.kind == "unsigned"
    return operands if is_unsigned else body.of(x, "stablehlo.abs", operands, {})


_RULES: dict[str, Rule] = {
    **{name: _same(op.stablehlo) for name, op in ops.items() if op.stablehlo},
    **{
        name: _same(f"stablehlo.{name.replace('-', '_')}")
        for name in "bitcast-convert reshape dynamic-update-slice".split()
    },
    "abs": _abs,
    "sign": _sign,
    "get-dimension-size": _with("stablehlo.get_dimension_size", lambda x, a: {"dimension": IntegerAttr(*a.dimensions)}),
    "chain-multiply": _same("stablehlo.multiply"),
    "chain-divide": _same("stablehlo.divide"),
    "opt-barrier": _same("stablehlo.optimization_barrier"),
    "after-all": _same("stablehlo.after_all"),
    "compare": _compare,
    "constant": _constant,
    "reduce-precision": _with(
        "stablehlo.reduce_precision",
        lambda x, a: {
            "exponent_bits": IntegerAttr(a.exponent_bits, "i32"),
            "mantissa_bits": IntegerAttr(a.mantissa_bits, "i32"),
        },
    ),
    "iota": _with("stablehlo.iota", lambda x, a: {"iota_dimension": IntegerAttr(a.iota_dimension)}),
    "broadcast": _with("stablehlo.broadcast_in_dim", lambda x, a: {"broadcast_dimensions": integers(a.dimensions)}),
    "transpose": _with("stablehlo.transpose", lambda x, a: {"permutation": integers(a.permutation)}),
    "reverse": _with("stablehlo.reverse", lambda x, a: {"dimensions": integers(a.dimensions)}),
    "slice": _with(
        "stablehlo.slice",
        lambda x, a: {
            "start_indices": integers(a.start_indices),
            "limit_indices": integers(a.limit_indices),
            "strides": integers(a.strides),
        },
    ),
    "dynamic-slice": _with("stablehlo.dynamic_slice", lambda x, a: {"slice_sizes": integers(a.dynamic_slice_sizes)}),
    "concatenate": _with("stablehlo.concatenate", lambda x, a: {"dimension": IntegerAttr(a.dimension)}),
    "fft": _with(
        "stablehlo.fft",
        lambda x, a: {"fft_type": enumeration("fft_type", a.fft_type), "fft_length": integers(a.fft_length)},
    ),
    "cholesky": _with("stablehlo.cholesky", lambda x, a: {"lower": IntegerAttr(int(a.lower), "i1")}),
    "pad": _pad,
    "dot": _dot,
    "convolution": _convolution,
    "reduce": _reduce,
    "reduce-window": _reduce_window,
    "select-and-scatter": _select_and_scatter,
    "map": _map,
    "sort": _sort,
    "gather": _gather,
    "scatter": _scatter,
    "triangular-solve": _triangular_solve,
    "rng-bit-generator": _rng_bit_generator,
    "while": _while,
    "conditional": _conditional,
    "call": _call,
    "topk": _top_k,
    "custom-call": _custom_call,
    "lapack": _lapack,
    "batch-norm-training": _batch_norm("stablehlo.batch_norm_training"),
    "batch-norm-inference": _batch_norm("stablehlo.batch_norm_inference"),
    "batch-norm-grad": _batch_norm("stablehlo.batch_norm_grad"),
    "all-reduce": _all_reduce,
    "reduce-scatter": _each(
        "stablehlo.reduce_scatter", lambda a: {"scatter_dimension": IntegerAttr(a.scatter_dimension), **_meeting(a)}
    ),
    "all-to-all": _all_to_all,
    "all-gather": _with(
        "stablehlo.all_gather",
        lambda x, a: {"all_gather_dim": IntegerAttr(a.all_gather_dimension), **_meeting(a)},
    ),
    "collective-permute": _each("stablehlo.collective_permute", _pairs),
    "collective-broadcast": _each("stablehlo.collective_broadcast", _meeting),
    **TRANSFER_RULES,
    "replica-id": _same("stablehlo.replica_id"),
    "partition-id": _same("stablehlo.partition_id"),
}
