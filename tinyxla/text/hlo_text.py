"""Modules in XLA's HLO text form.

Source: the text that XLA itself prints and parses ("HLO dumps" in the XLA documents). An op's name is its opcode and
its attributes print under their own names, by the type of their values, so most ops need nothing here. `_SPELLINGS` has
those whose text differs; attributes that only repeat the result's shape are left out (`_IMPLIED`). An op that HLO lacks
prints as a custom call with the op's name as its target.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tinyxla.hlo import Computation, Instruction, Literal, Module
from tinyxla.shapes import ElementType, Shape, element_type, window_text

OPCODES = frozenset(
    """
    abs acos acosh add add-dependency after-all all-gather all-gather-done all-gather-start all-reduce
    all-reduce-done all-reduce-start all-to-all and asin asinh async-done async-start async-update atan2 atanh
    batch-norm-grad batch-norm-inference batch-norm-training bitcast bitcast-convert broadcast call cbrt ceil
    cholesky clamp collective-broadcast collective-permute collective-permute-done collective-permute-start
    compare complex concatenate conditional constant convert convolution copy copy-done copy-start cosh cosine
    count-leading-zeros custom-call divide domain dot dynamic-reshape dynamic-slice dynamic-update-slice erf
    exponential exponential-minus-one fft floor fusion gather get-dimension-size get-tuple-element imag infeed
    iota is-finite log log-plus-one logistic map maximum minimum multiply negate not opt-barrier or outfeed pad
    parameter partition-id popcnt power ragged-all-to-all ragged-dot real recv recv-done reduce reduce-precision
    reduce-scatter reduce-window remainder replica-id reshape reverse rng rng-bit-generator
    rng-get-and-update-state round-nearest-afz round-nearest-even rsqrt scatter select select-and-scatter send
    send-done set-dimension-size shift-left shift-right-arithmetic shift-right-logical sign sine sinh slice sort
    sqrt stochastic-convert subtract tan tanh topk transpose triangular-solve tuple while xor
    """.split()
)


def print_module(module: Module, *, metadata: bool = False, largest_constant: int | None = None) -> str:
    """The HLO text of a module.

    `metadata` adds to each instruction the user's line that it came from. Constants of more than `largest_constant`
    elements print as `{...}`, as in XLA's own dumps; without it all constants are whole and the text can be parsed.
    """
    return _Printer(metadata, largest_constant).module(module)


class _Names:
    """Unique names: the first choice, else with a number behind it."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def plain(self, wanted: str) -> str:
        """The name itself where it is free."""
        base = re.sub(r"[^\w.-]+", "_", wanted).strip("_.-") or "unnamed"
        base = base if not base[0].isdigit() else f"_{base}"
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
        self.computations: dict[Computation, str] = {}  # equal ones share a name, and are printed once
        self.computation_names = _Names()
        self.instruction_names = _Names()

    def module(self, module: Module) -> str:
        entry = module.entry
        parameters = ", ".join(shape.text() for shape in entry.parameter_shapes)
        layout = f"{{({parameters})->{entry.root.shape.text()}}}"
        blocks = [f"HloModule {_Names().plain(module.name)}, entry_computation_layout={layout}"]
        for computation in module.computations():
            if computation is entry or computation not in self.computations:
                blocks.append(self.computation(computation, "ENTRY " if computation is entry else ""))
        return "\n\n".join(blocks) + "\n"

    def computation(self, computation: Computation, mark: str) -> str:
        name = self.computation_names.plain(computation.name)
        self.computations[computation] = name
        names: dict[Instruction, str] = {}
        lines: list[str] = []
        for x in computation.instructions:
            names[x] = self.instruction_names.numbered(x.op.name)
            root = "ROOT " if x is computation.root else ""
            lines.append(f"  {root}{names[x]} = {self.instruction(x, names)}")
        return "\n".join([f"{mark}{name} {{", *lines, "}"])

    def instruction(self, x: Instruction, names: Mapping[Instruction, str]) -> str:
        if x.op.name in _NOT_OF_SCALARS and x.array_shape.rank == 0:
            return f"{x.shape.text()} copy({names[x.operands[0]]})"
        inside = ", ".join(names[o] for o in x.operands)
        if x.op.name == "parameter":
            inside = str(x.attributes.parameter_number)
        elif x.op.name == "constant":
            inside = self.constant(x.attributes.literal)
        opcode, fields = x.op.name, attributes_text(x, self.computations)
        if opcode not in OPCODES:
            opcode, fields = "custom-call", {"custom_call_target": f'"{x.op.name}"', **_as_custom(fields)}
        if self.metadata and x.source is not None:
            fields["metadata"] = _metadata(x)
        attributes = "".join(f", {name}={text}" for name, text in fields.items())
        return f"{x.shape.text()} {opcode}({inside}){attributes}"

    def constant(self, literal: Literal) -> str:
        limit = self.largest_constant
        return "{...}" if limit is not None and literal.value.size > limit else literal_text(literal)


def attributes_text(x: Instruction, computations: Mapping[Computation, str]) -> dict[str, str]:
    """The attributes as HLO text, by their names; `computations` has the names of those that are called."""
    spelling = _SPELLINGS.get(x.op.name)
    return spelling(x) if spelling else _group(x.attributes, computations, _IMPLIED.get(x.op.name, ()))


def _group(attributes: Any, computations: Mapping[Computation, str], implied: Sequence[str] = ()) -> dict[str, str]:
    """The attributes but for those left empty or false; a group inside, such as dimension numbers, is spread out."""
    found: dict[str, str] = {}
    for name, value in attributes._asdict().items():
        empty = value == () and attributes._field_defaults.get(name) == ()
        if name in implied or value is None or value is False or empty:
            continue
        if name == "window":
            found[name] = window_text(value)
        elif hasattr(value, "_asdict"):
            found |= _group(value, computations)
        else:
            found[name] = _value(value, computations)
    return found


def _value(value: Any, computations: Mapping[Computation, str]) -> str:
    if isinstance(value, Computation):
        return computations[value]
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        elements: Iterable[Any] = value
        return "{" + ",".join(_value(element, computations) for element in elements) + "}"
    if isinstance(value, Shape):
        return value.text()
    return _number(value) if isinstance(value, float) else str(value)


def _as_custom(fields: Mapping[str, str]) -> dict[str, str]:
    """Attributes of a custom call: computations it calls stay references, the rest is its configuration."""
    called = {"called_computations": f"{{{fields['to_apply']}}}"} if "to_apply" in fields else {}
    rest = ", ".join(f"{name}={text}" for name, text in fields.items() if name != "to_apply")
    return {**called, **({"backend_config": f'"{rest}"'} if rest else {})}


def _metadata(x: Instruction) -> str:
    source = x.source
    assert source is not None
    file = source.file.replace("\\", "\\\\").replace('"', '\\"')
    return f'{{op_name="{source.function}/{x.op.name}" source_file="{file}" source_line={source.line}}}'


# --- ops whose text differs -------------------------------------------------------------------------------------------


def _integers(values: Iterable[int]) -> str:
    return "{" + ",".join(map(str, values)) + "}"


def _nothing(x: Instruction) -> dict[str, str]:
    return {}


def _compare(x: Instruction) -> dict[str, str]:
    direction, kind = x.attributes
    return {"direction": direction, "type": kind} if kind == "TOTALORDER" else {"direction": direction}


def _concatenate(x: Instruction) -> dict[str, str]:
    return {"dimensions": _integers([x.attributes.dimension])}


def _pad(x: Instruction) -> dict[str, str]:
    config = x.attributes.padding_config
    whole = any(interior for _, _, interior in config)
    return {"padding": "x".join("_".join(map(str, edge if whole else edge[:2])) for edge in config)}


def _slice(x: Instruction) -> dict[str, str]:
    ranges = zip(x.attributes.start_indices, x.attributes.limit_indices, x.attributes.strides, strict=True)
    texts = (f"[{start}:{limit}]" if stride == 1 else f"[{start}:{limit}:{stride}]" for start, limit, stride in ranges)
    return {"slice": "{" + ", ".join(texts) + "}"}


def _transpose(x: Instruction) -> dict[str, str]:
    return {"dimensions": _integers(x.attributes.permutation)}


_SPELLINGS: dict[str, Callable[[Instruction], dict[str, str]]] = {
    "compare": _compare,
    "concatenate": _concatenate,
    "constant": _nothing,
    "pad": _pad,
    "parameter": _nothing,
    "slice": _slice,
    "transpose": _transpose,
}
_IMPLIED: dict[str, tuple[str, ...]] = {
    "bitcast-convert": ("new_element_type",),
    "broadcast": ("sizes",),
    "convert": ("new_element_type",),
    "dot": ("preferred_element_type",),
    "iota": ("shape",),
    "reshape": ("sizes",),
}
_NOT_OF_SCALARS = ("dynamic-slice", "pad")  # XLA does not take them there; they change nothing, so they print as copies

# --- constants --------------------------------------------------------------------------------------------------------


def literal_text(literal: Literal) -> str:
    """A constant's value: a number, or nested braces."""
    kind = element_type(literal.value.dtype)
    return _nested(literal.value, _element_text(kind))


def _nested(value: np.ndarray[Any, Any], text: Callable[[Any], str]) -> str:
    if value.ndim == 0:
        return text(value[()])
    if value.ndim == 1:
        return "{" + ", ".join(map(text, value)) + "}"
    return "{ " + ", ".join(_nested(row, text) for row in value) + " }"


def _element_text(kind: ElementType) -> Callable[[Any], str]:
    if kind.kind == "pred":
        return lambda x: "true" if x else "false"
    if kind.is_integer:
        return lambda x: str(int(x))
    if kind.kind == "complex":
        return lambda x: f"({_number(x.real)}, {_number(x.imag)})"
    return _number if kind.bits >= 32 else lambda x: _number(float(x))


def _number(x: Any) -> str:
    """The shortest decimal that reads back as the same number; `-0.0`, since `-0` reads back as the integer."""
    if np.isnan(x):
        return "-nan" if np.signbit(x) else "nan"
    text = str(x)
    return text if text == "-0.0" else text.removesuffix(".0")
