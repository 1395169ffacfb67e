"""Modules in XLA's HLO text form.

Source: the text that XLA itself prints and parses ("HLO dumps" in the XLA documents). An op's name is its opcode, and
its attributes print as `tinyxla.text.attributes` says. An op that HLO lacks prints as a custom call with the op's name
as its target. `tinyxla.text.parser` reads all this back.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from tinyxla.errors import ArgumentError
from tinyxla.hlo import Computation, Instruction, Literal, Module
from tinyxla.text.attributes import attributes_text, quoted
from tinyxla.text.control_flow import as_written
from tinyxla.text.literals import literal_text
from tinyxla.text.op_names import op_name, with_paths

OPCODES = frozenset(
    """
    abs acos acosh add add-dependency after-all all-gather all-gather-done all-gather-start all-reduce all-reduce-done
    all-reduce-start all-to-all and asin asinh async-done async-start async-update atan2 atanh batch-norm-grad
    batch-norm-inference batch-norm-training bitcast bitcast-convert broadcast call cbrt ceil cholesky clamp
    collective-broadcast collective-permute collective-permute-done collective-permute-start compare complex concatenate
    conditional constant convert convolution copy copy-done copy-start cosh cosine count-leading-zeros custom-call
    divide domain dot dynamic-reshape dynamic-slice dynamic-update-slice erf exponential exponential-minus-one fft floor
    fusion gather get-dimension-size get-tuple-element imag infeed iota is-finite log log-plus-one logistic map maximum
    minimum mulhi multiply negate not opt-barrier or outfeed pad parameter partition-id popcnt power ragged-all-to-all
    ragged-dot real recv recv-done reduce reduce-precision reduce-scatter reduce-window remainder replica-id reshape
    reverse rng rng-bit-generator rng-get-and-update-state round-nearest-afz round-nearest-even rsqrt scaled-dot scatter
    select select-and-scatter send send-done set-dimension-size shift-left shift-right-arithmetic shift-right-logical
    sign sine sinh slice sort sqrt stochastic-convert subtract tan tanh topk transpose triangular-solve tuple while xor
    """.split()
)


def print_module(module: Module, *, metadata: bool = False, largest_constant: int | None = None) -> str:
    """The HLO text of a module.

    `metadata` adds to each instruction the user's line that it came from. Constants of more than `largest_constant`
    elements print as `{...}`, as in XLA's own dumps; without it all constants are whole and the text can be parsed.

    Args:
        module: a module.
        metadata: whether to print the user's lines.
        largest_constant: the largest number of elements of a constant that is printed.

    Returns:
        The text.

    Raises:
        ArgumentError: what is no module, or a largest constant that is no integer.

    >>> from tinyxla.text import parse_hlo, print_module
    >>> module = parse_hlo("HloModule m ENTRY e { ROOT c = f32[2] constant({1, 2}) }")
    >>> print(print_module(module, largest_constant=1), end="")
    HloModule m, entry_computation_layout={()->f32[2]{0}}
    <BLANKLINE>
    ENTRY e {
      ROOT c = f32[2]{0} constant({...})
    }
    """
    if not isinstance(module, Module):  # pyright: ignore[reportUnnecessaryIsInstance]
        kind = type(module).__name__
        raise ArgumentError(f"text.print_module: takes a module, such as lowered.module, but got one of type {kind}.")
    if largest_constant is not None and not isinstance(largest_constant, int):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ArgumentError(f"text.print_module: largest_constant is an integer or None, but got {largest_constant!r}.")
    return _Printer(metadata, largest_constant).module(as_written(with_paths(module) if metadata else module))


def instruction_names(module: Module) -> dict[Instruction, str]:
    """The names that the text of a module gives to its instructions."""
    printer = _Printer(metadata=False, largest_constant=0)
    printer.module(as_written(module))
    return printer.names


_NOT_OF_SCALARS = ("dynamic-slice", "pad")  # XLA does not take them there; they change nothing, so they print as copies
TABLES = ("FileNames", "FunctionNames", "FileLocations", "StackFrames")  # that metadata refers to
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")


class _Names:
    """Unique names: the first choice, else with a number behind it."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def plain(self, wanted: str) -> str:
        """The name itself where it is free."""
        base = wanted
        if not _NAME.fullmatch(wanted):
            base = re.sub(r"[^A-Za-z0-9_.-]+", "_", wanted).strip("_.-") or "unnamed"
            base = f"_{base}" if base[0].isdigit() else base
        return self.numbered(base) if base in self._counts else self._taken(base)

    def numbered(self, base: str) -> str:
        while True:
            self._counts[base] = self._counts.get(base, 0) + 1
            name = f"{base}.{self._counts[base]}"
            if name not in self._counts:
                return self._taken(name)

    def _taken(self, name: str) -> str:
        self._counts[name] = 0
        return name


class _Printer:
    def __init__(self, metadata: bool, largest_constant: int | None) -> None:
        self.metadata = metadata
        self.largest_constant = largest_constant
        self.computations: dict[tuple[str, Computation], str] = {}  # equal ones of one name are printed once
        self.computation_names = _Names()
        self.instruction_names = _Names()
        self.names: dict[Instruction, str] = {}

    def module(self, module: Module) -> str:
        entry = module.entry
        fields = dict(module.attributes)
        tables = [fields.pop(name) for name in TABLES if name in fields]
        if "entry_computation_layout" not in fields:
            parameters = ", ".join(shape.text() for shape in entry.parameter_shapes)
            fields["entry_computation_layout"] = f"{{({parameters})->{entry.root.shape.text()}}}"
        blocks = [f"HloModule {_Names().plain(module.name)}{_listed(fields)}", *(tables if self.metadata else ())]
        for computation in module.computations():
            if computation is entry or (computation.name, computation) not in self.computations:
                blocks.append(self.computation(computation, "ENTRY " if computation is entry else ""))
        return "\n\n".join(blocks) + "\n"

    def computation(self, computation: Computation, mark: str) -> str:
        name = self.computation_names.plain(computation.name)
        self.computations[computation.name, computation] = name
        names: dict[Instruction, str] = {}
        lines: list[str] = []
        for x in computation.instructions:
            unique = self.instruction_names
            names[x] = unique.plain(x.name) if x.name else unique.numbered(x.op.name)
            root = "ROOT " if x is computation.root else ""
            lines.append(f"  {root}{names[x]} = {self.instruction(x, names)}")
        self.names.update((x.origin or x, name) for x, name in names.items())
        return "\n".join([f"{mark}{name} {{", *lines, "}"])

    def instruction(self, x: Instruction, names: Mapping[Instruction, str]) -> str:
        if x.op.name in _NOT_OF_SCALARS and x.array_shape.rank == 0:
            return f"{x.shape.text()} copy({names[x.operands[0]]})"
        inside = ", ".join(names[o] for o in x.operands)
        if x.op.name == "parameter":
            inside = str(x.attributes.parameter_number)
        elif x.op.name == "constant":
            inside = self.constant(x.attributes.literal)
        opcode, fields = x.op.name, attributes_text(x, lambda called: self.computations[called.name, called])
        if opcode not in OPCODES:
            opcode, fields = "custom-call", {"custom_call_target": quoted(x.op.name), **_as_custom(fields)}
        fields |= x.annotations
        if x.source is not None and x.source.frontend_attributes and "frontend_attributes" not in fields:
            said = ",".join(f"{name}={quoted(text)}" for name, text in x.source.frontend_attributes)
            fields["frontend_attributes"] = f"{{{said}}}"
        if "control-predecessors" in fields:
            fields["control-predecessors"] = _renamed(fields["control-predecessors"], names)
        if not self.metadata:
            fields.pop("metadata", None)
        elif x.source is not None:
            fields.setdefault("metadata", _metadata(x))
        return f"{x.shape.text()} {opcode}({inside}){_listed(fields)}"

    def constant(self, literal: Literal) -> str:
        limit = self.largest_constant
        return "{...}" if limit is not None and literal.value.size > limit else literal_text(literal)


def _listed(fields: Mapping[str, str]) -> str:
    return "".join(f", {name}={text}" for name, text in fields.items())


def _renamed(listed: str, names: Mapping[Instruction, str]) -> str:
    """A list of instructions by the names that they were read with, as they are printed."""
    printed = {x.name: name for x, name in names.items()}
    found = (printed[name] for name in re.findall(r"[\w.-]+", listed) if name in printed)
    return "{" + ", ".join(found) + "}"


def _as_custom(fields: Mapping[str, str]) -> dict[str, str]:
    """Attributes of a custom call: computations it calls stay references, the rest is its configuration, but for what
    all custom calls may have."""
    called = {"called_computations": f"{{{fields['to_apply']}}}"} if "to_apply" in fields else {}
    called |= {name: text for name, text in fields.items() if name == "custom_call_has_side_effect"}
    rest = ", ".join(f"{name}={text}" for name, text in fields.items() if name != "to_apply" and name not in called)
    return {**called, **({"backend_config": quoted(rest)} if rest else {})}


def _metadata(x: Instruction) -> str:
    source = x.source
    assert source is not None
    name = quoted(op_name(x))
    file = quoted(source.file)
    return f"{{op_name={name} source_file={file} source_line={source.line}}}"
