"""HLO text read back into a module: what `print_module` prints, and what XLA prints.

Source: the grammar is that of the text in XLA's dumps. Comments, white space, computations that the entry does not
reach, the signatures of computations (which repeat their parameters and root) and what a layout says besides order and
tiles are dropped; all else is kept and prints again: names, attributes of the module, and attributes of instructions
that are not the op's own, as annotations.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tinyxla.errors import HloSyntaxError, SourceLine, TinyxlaError
from tinyxla.hlo import Computation, Instruction, Literal, Module
from tinyxla.ops import Op, calls, hlo_only, movement, ops, tuples
from tinyxla.ops.distributed import channels
from tinyxla.shapes import AnyShape, Shape, TupleShape
from tinyxla.text.attributes import Context, UnreadableError, read_attributes, read_fields, unquoted
from tinyxla.text.hlo_text import OPCODES, TABLES
from tinyxla.text.lexer import Lexer, Raw, inside, parts, without_comments
from tinyxla.text.literals import read_literal
from tinyxla.text.replica_groups import read_groups
from tinyxla.text.scans import Scan, scan_as_while
from tinyxla.text.shapes import read_program_shape, read_shape

_DEEPEST = 100  # computations that call one another

# What any instruction may have. It means nothing to the graph, or repeats what the graph says.
_ANNOTATIONS = frozenset(
    """
    algorithm api_version async_execution_thread backend_config channel_id constrain_layout control-predecessors
    cross_program_prefetch_index custom_call_has_side_effect custom_call_schedule execution_threads frontend_attributes
    is_composite is_cross_program_prefetch is_host_transfer literal metadata operand_layout_constraints
    operand_precision origin original_value outfeed_shape output_to_operand_aliasing padding_type parameter_replication
    raw_backend_config_string result_accuracy schedule sharding sparsity statistics use_global_device_ids
    """.split()
)


def parse_hlo(text: str) -> Module:
    """The module that an HLO text describes; call it with arrays to run it.

    Args:
        text: a whole module: what `print_module` gives, or XLA's own dumps, before or after its optimisation.

    Returns:
        The verified module, in which every instruction has the name that it has in the text.

    Raises:
        HloSyntaxError: a text that is not HLO or that describes no valid program. `lineno` and `column` say where.

    Source:
        "HLO dumps" in the XLA documents.

    Example:
        >>> from tinyxla.text import parse_hlo
        >>> module = parse_hlo('''
        ... HloModule square
        ...
        ... ENTRY main {
        ...   x = f32[] parameter(0)
        ...   ROOT y = f32[] multiply(x, x)
        ... }
        ... ''')
        >>> module(3.0)
        Array(9., dtype=float32)
    """
    return _Parser(text).module()


class _Frame(NamedTuple):
    """What stands for a computation while it is read."""

    values: dict[str, Instruction]
    instructions: list[Instruction]
    parameters: dict[int, Instruction]
    absorbed: list[Instruction]  # tuples that may not be needed, since the arrays are
    regrouped: set[Instruction]  # tuples that stand for flat ones of the graph

    def add(self, x: Instruction) -> Instruction:
        self.instructions.append(x)
        return x


class _Parser:
    def __init__(self, text: str) -> None:
        self.lexer = Lexer(text)
        self.computations: dict[str, Computation] = {}
        self.depths: dict[str, int] = {}  # how deep computations call others
        self.flatten = tuples.Flatten()
        self.depth = 0  # of the computation that is read
        self.lines: dict[str, SourceLine] = {}  # by the number of a stack frame

    # --- modules and computations

    def module(self) -> Module:
        lexer = self.lexer
        lexer.expect("HloModule")
        name = lexer.reference("the module's name")
        fields = self.fields()
        attributes = {key: raw.text for key, raw in fields.items()}
        attributes |= self.tables()
        self.lines = _stack_frames(attributes)
        entry: Computation | None = None
        while not lexer.at_end():
            place = lexer.place
            marked = lexer.accept("ENTRY")
            computation = self.computation()
            if marked and entry is not None:
                lexer.error("a module has one ENTRY computation", place)
            entry = computation if marked else entry
        if entry is None:
            lexer.expected("a computation marked ENTRY")
        if "entry_computation_layout" in fields:
            self.check_program_shape(fields["entry_computation_layout"], entry)
        return Module(name, entry, attributes)

    def check_program_shape(self, written: Raw, entry: Computation) -> None:
        """What the head says of the entry must be so, but for layouts: those are what a caller asks for."""
        try:
            shapes = read_program_shape(written.text)
        except HloSyntaxError as error:
            self.lexer.error(error.reason, written.place)
        except ValueError as error:
            self.lexer.error(str(error), written.place)
        found = (TupleShape(tuple(entry.parameter_shapes)), entry.root.shape)
        if shapes != found:
            self.lexer.error(
                f"entry_computation_layout must be of {found[0]}->{found[1]}, what {entry.name} takes and gives, but "
                f"is of {shapes[0]}->{shapes[1]}",
                written.place,
            )

    def fields(self) -> dict[str, Raw]:
        """`, name=value` as often as it comes."""
        found: dict[str, Raw] = {}
        while self.lexer.accept(","):
            place = self.lexer.place
            name = self.lexer.name("the name of an attribute")
            if name in found:
                self.lexer.error(f"the attribute {name} is there twice", place)
            self.lexer.expect("=")
            is_mesh = name == "replica_groups" and self.lexer.at("mesh[")
            found[name] = self.lexer.mesh_axes() if is_mesh else self.lexer.value()
        return found

    def tables(self) -> dict[str, str]:
        found: dict[str, str] = {}
        while name := next((name for name in TABLES if self.lexer.accept(name)), None):
            rows = [name]
            while self.lexer.at_digit():
                rows.append(self.lexer.line())
            found[name] = "\n".join(rows)
        return found

    def computation(self) -> Computation:
        lexer = self.lexer
        place = lexer.place
        name = lexer.reference("a computation")
        if name in self.computations:
            lexer.error(f"there are two computations named {name}", place)
        if lexer.accept("("):
            self.signature()
        lexer.expect("{")
        frame = _Frame({}, [], {}, [], set())
        root: Instruction | None = None
        self.depth = 0
        while not lexer.accept("}"):
            marked = lexer.accept("ROOT")
            if marked and root is not None:
                lexer.error("a computation has one ROOT")
            x = self.instruction(frame)
            root = x if marked else root
        if not frame.instructions:
            lexer.error(f"the computation {name} has no instructions", place)
        self.fields()  # of the whole computation: the thread that runs it
        parameters = frame.parameters
        if sorted(parameters) != list(range(len(parameters))):
            lexer.error(f"the parameters of {name} have the numbers {sorted(parameters)}, which leave one out", place)
        root = root or frame.instructions[-1]
        instructions = _without(frame.absorbed, frame.instructions, root)
        found = Computation(name, [parameters[k] for k in range(len(parameters))], instructions, root)
        self.computations[name] = found
        self.depths[name] = self.depth + 1
        if self.depth >= _DEEPEST:
            lexer.error(f"more than {_DEEPEST} computations that call one another", place)
        return found

    def signature(self) -> None:
        lexer = self.lexer
        first = True
        while not lexer.accept(")"):
            if not first:
                lexer.expect(",")
            first = False
            lexer.reference("the name of a parameter")
            lexer.expect(":")
            read_shape(lexer)
        lexer.expect("->")
        read_shape(lexer)

    def called(self, name: str) -> Computation:
        """The computation with a name, which the one that is read calls."""
        if name not in self.computations:
            raise ValueError(f"there is no computation {name[:40]!r} before this one")
        self.depth = max(self.depth, self.depths[name])
        return self.computations[name]

    def giving_tuple(self, computation: Computation) -> Computation:
        """The computation on arrays, which gives a tuple, also of one array."""
        flat = self.flatten(computation)
        if isinstance(flat.root.shape, TupleShape):
            return flat
        shape = TupleShape((flat.root.shape,))
        root = Instruction(calls.tuple_, (flat.root,), calls.tuple_.attributes(), shape)
        return Computation(flat.name, flat.parameters, [*flat.instructions, root], root)

    # --- instructions

    def instruction(self, frame: _Frame) -> Instruction:
        lexer = self.lexer
        place = lexer.place
        name = lexer.reference("an instruction")
        if name in frame.values:
            lexer.error(f"there are two instructions named {name}", place)
        lexer.expect("=")
        shape = read_shape(lexer)
        op_place = lexer.place
        opcode = lexer.name("an operation")
        if not lexer.at("("):
            lexer.expected("the operands in brackets")
        inside_ = lexer.value()
        fields = self.fields()
        try:
            x = self.build(frame, _Line(name, shape, opcode, inside_, fields))
        except UnreadableError as error:
            lexer.error(str(error), fields[error.name].place if error.name in fields else op_place)
        except _OperandError as error:
            lexer.error(str(error), inside_.place)
        except HloSyntaxError as error:  # of a part that is read by itself
            lexer.error(error.reason, inside_.place)
        except TinyxlaError as error:
            lexer.error(str(error).partition("\n  at ")[0], op_place)
        except _OF_SHAPES_AND_VALUES as error:
            lexer.error(f"{opcode}: {error}", op_place)
        frame.values[name] = x
        return x

    def build(self, frame: _Frame, line: _Line) -> Instruction:
        special = _SPECIAL.get(line.opcode)
        if special is not None:
            return special(self, frame, line)
        if line.opcode in _PERMUTES and "slice_sizes" in line.fields:
            return _permute_in_place(self, frame, line)
        stage = _STAGE.fullmatch(line.opcode)
        if stage is not None and line.opcode not in ops:
            return _async_start(self, frame, line, stage[1]) if stage[2] == "start" else _async_next(self, frame, line)
        op, fields = _meant(line)
        operands = self.operands(frame, line)
        return frame.add(self.made(line, op, operands, fields))

    def made(
        self,
        line: _Line,
        op: Op,
        operands: Sequence[Instruction],
        fields: Mapping[str, str],
        change: Mapping[str, Callable[[Computation], Computation]] | None = None,
    ) -> Instruction:
        """The instruction of a line, whose attributes are read here; `change` says what computations become."""
        shapes = [x.shape for x in operands]
        attributes, used = read_attributes(op, fields, Context(line.shape, shapes), self.called)
        for name, changed in (change or {}).items():
            value = getattr(attributes, name)
            new = changed(value) if isinstance(value, Computation) else tuple(map(changed, value))
            attributes = attributes._replace(**{name: new})
        rest = {name: text for name, text in fields.items() if name not in used}
        inferred = op.shape(*shapes, **attributes._asdict())
        if inferred != line.shape:
            raise ValueError(f"the operands give {inferred}, but the shape here is {line.shape}")
        return self.finished(line, op, operands, attributes, rest)

    def finished(
        self, line: _Line, op: Op, operands: Sequence[Instruction], attributes: Any, rest: Mapping[str, str]
    ) -> Instruction:
        for name in rest:
            if name not in _ANNOTATIONS:
                raise UnreadableError(name, f"{op.name} has no attribute {name}")
        return Instruction(op, operands, attributes, line.shape, self.source(rest), line.name, dict(rest))

    def operands(self, frame: _Frame, line: _Line) -> list[Instruction]:
        found: list[Instruction] = []
        for part in parts(without_comments(inside(line.inside.text, "()"))):
            lexer = Lexer(part)
            name = lexer.reference("an operand") if lexer.at("%") else ""
            if not name and part not in frame.values and "[" in part:
                name = _operand_with_shape(part)
            found.append(frame.values.get(name or part) or _missing(name or part))
        return found

    def source(self, annotations: Mapping[str, str]) -> SourceLine | None:
        """The line of a program that the metadata names."""
        metadata = annotations.get("metadata", "")
        fields = dict(re.findall(r'(op_name|source_file)=("(?:[^"\\]|\\.)*")', metadata) + _number_fields(metadata))
        if "source_file" in fields:
            path = unquoted(fields.get("op_name", '""')).rpartition("/")[0]
            return SourceLine(unquoted(fields["source_file"]), int(fields.get("source_line", 0)), "", path)
        return self.lines.get(fields.get("stack_frame_id", ""))


class _Line(NamedTuple):
    """An instruction as it is written."""

    name: str
    shape: AnyShape
    opcode: str
    inside: Raw  # the brackets behind the opcode, with what they hold
    fields: dict[str, Raw]

    def texts(self) -> dict[str, str]:
        return {name: raw.text for name, raw in self.fields.items()}


class _OperandError(ValueError):
    """Something is wrong between the brackets behind an opcode."""


def _without(absorbed: Sequence[Instruction], instructions: list[Instruction], root: Instruction) -> list[Instruction]:
    """The instructions but for tuples that nothing needs."""
    uses = Counter(o for x in instructions for o in x.operands)
    gone: set[Instruction] = set()
    for x in reversed(absorbed):
        if x is not root and not uses[x] and x not in gone:
            gone.add(x)
            uses.subtract(x.operands)
    return [x for x in instructions if x not in gone]


def _missing(name: str) -> Instruction:
    raise _OperandError(f"there is no instruction {name[:40]!r} before this one")


def _operand_with_shape(part: str) -> str:
    """The name behind a shape, as older texts have it."""
    lexer = Lexer(part)
    read_shape(lexer)
    name = lexer.reference("an operand")
    if not lexer.at_end():
        lexer.expected("a comma")
    return name


def _meant(line: _Line) -> tuple[Op, dict[str, str]]:
    """The op of a line and its attributes: an op that HLO lacks is written as a custom call of its name."""
    fields = line.texts()
    target = unquoted(fields["custom_call_target"]) if "custom_call_target" in fields else ""
    if line.opcode == "custom-call" and target in ops and target not in OPCODES:
        del fields["custom_call_target"]
        if "called_computations" in fields:
            fields["to_apply"] = inside(fields.pop("called_computations"))
        fields |= read_fields(unquoted(fields.pop("backend_config", '""')))
        return ops[target], fields
    if line.opcode not in ops or line.opcode not in OPCODES:
        raise ValueError("there is no such operation")
    return ops[line.opcode], fields


# What rules that are given other shapes or values than they know may raise: a tuple, say, where an array should be.
_OF_SHAPES_AND_VALUES = (TypeError, ValueError, ArithmeticError, LookupError, AttributeError, AssertionError)
_STAGE = re.compile(r"(.+)-(start|update|done)")


def _async_start(parser: _Parser, frame: _Frame, line: _Line, opcode: str) -> Instruction:
    """Another op that is begun: the start of a computation that has nothing else."""
    if not isinstance(line.shape, TupleShape) or len(line.shape.elements) < 2:
        raise ValueError(f"the shape must be the tuple of operands, result and state, but is {line.shape}")
    operands = parser.operands(frame, line)
    inner = _Frame({}, [], {}, [], set())
    for k, x in enumerate(operands):
        inner.parameters[k] = inner.add(Instruction(movement.parameter, (), movement.Parameter(k, x.shape), x.shape))
        inner.values.update({name: inner.parameters[k] for name, y in frame.values.items() if y is x})
    root = parser.build(inner, line._replace(opcode=opcode, shape=line.shape.elements[1], name=""))
    called = Computation(f"{line.name}_begun", list(inner.parameters.values()), inner.instructions, root)
    attributes = hlo_only.AsyncStart(called, line.shape.elements[2:])  # pyright: ignore[reportArgumentType]
    start = hlo_only.async_start
    shape = start.shape(*(x.shape for x in operands), **attributes._asdict())
    if shape != line.shape:
        raise ValueError(f"the operands give {shape}, but the shape here is {line.shape}")
    return frame.add(parser.finished(line, start, operands, attributes, {}))


def _async_next(parser: _Parser, frame: _Frame, line: _Line) -> Instruction:
    """What was begun goes on, or is waited for. Attributes repeat what they were at the start."""
    op = hlo_only.async_update if line.opcode.endswith("-update") else hlo_only.async_done
    rest = {name: text for name, text in line.texts().items() if name in _ANNOTATIONS}
    return frame.add(parser.made(line, op, parser.operands(frame, line), rest))


# --- instructions that are read in their own way ----------------------------------------------------------------------


def _parameter(parser: _Parser, frame: _Frame, line: _Line) -> Instruction:
    number = without_comments(inside(line.inside.text, "()")).strip()
    if re.fullmatch(r"\d{1,6}", number) is None:
        raise _OperandError(f"expected the number of a parameter, but found {number[:40]!r}")
    if int(number) in frame.parameters:
        raise _OperandError(f"there are two parameters with the number {number}")
    attributes = movement.Parameter(int(number), line.shape)
    frame.parameters[int(number)] = parser.finished(line, movement.parameter, (), attributes, line.texts())
    return frame.add(frame.parameters[int(number)])


def _constant(parser: _Parser, frame: _Frame, line: _Line) -> Instruction:
    text = inside(line.inside.text, "()")
    if isinstance(line.shape, Shape):
        literal = _literal(text, line.shape)
        return frame.add(parser.finished(line, movement.constant, (), movement.Constant(literal), line.texts()))
    elements = [
        _constant_element(frame, part, shape)
        for part, shape in zip(parts(inside(without_comments(text), "()")), line.shape.elements, strict=True)
    ]
    return frame.add(parser.finished(line, calls.tuple_, elements, calls.tuple_.attributes(), line.texts()))


def _constant_element(frame: _Frame, text: str, shape: AnyShape) -> Instruction:
    if isinstance(shape, Shape):
        attributes = movement.Constant(_literal(text, shape))
        return frame.add(Instruction(movement.constant, (), attributes, shape))
    pairs = zip(parts(inside(text, "()")), shape.elements, strict=True)
    elements = [_constant_element(frame, part, element) for part, element in pairs]
    return frame.add(Instruction(calls.tuple_, elements, calls.tuple_.attributes(), TupleShape(shape.elements)))


def _literal(text: str, shape: Shape) -> Literal:
    try:
        return read_literal(text, shape)
    except ValueError as error:
        raise _OperandError(str(error)) from error


# --- slices that replicas exchange ------------------------------------------------------------------------------------

_PERMUTES = ("collective-permute", "collective-permute-start")


def _permute_in_place(parser: _Parser, frame: _Frame, line: _Line) -> Instruction:
    """Slices of the first operand, each put into the second one, as it is of the target: the tuples of indices, which
    come third and fourth, say from and to where."""
    source, target, *places = _only(parser.operands(frame, line), 4)
    fields = line.texts()
    sizes = read_groups(without_comments(fields.pop("slice_sizes")).strip())
    rank = len(sizes[0]) if sizes else 0
    starts = [_arrays(frame, x) for x in places]
    if not sizes or any(len(x) != rank * len(sizes) for x in starts):
        raise _OperandError(f"expected the indices of {len(sizes)} slices, but found {[len(x) for x in starts]}")
    permute, update = ops["collective-permute"], ops["dynamic-update-slice"]
    known = Context(target.shape, [source.shape, target.shape])
    attributes, used = read_attributes(permute, fields, known, parser.called)
    for k, size in enumerate(sizes):
        first, there = (x[k * rank : (k + 1) * rank] for x in starts)
        part = _emitted(frame, ops["dynamic-slice"], [source, *first], dynamic_slice_sizes=size)
        part = _emitted(frame, permute, [part], **attributes._asdict())
        target = _emitted(frame, update, [target, part, *there])
    rest = {name: text for name, text in fields.items() if name not in used}
    if line.opcode == "collective-permute":
        frame.instructions.remove(target)
        if target.shape != line.shape:
            raise ValueError(f"the operands give {target.shape}, but the shape here is {line.shape}")
        return frame.add(parser.finished(line, update, target.operands, target.attributes, rest))
    state = line.shape.elements[2:] if isinstance(line.shape, TupleShape) else ()
    zeros = [Literal(np.zeros(s.dimensions, s.dtype)) for s in state if isinstance(s, Shape)]
    context = [source, target, *(_emitted(frame, movement.constant, [], literal=x) for x in zeros)]
    if TupleShape(tuple(x.shape for x in context)) != line.shape:
        raise ValueError(f"the operands give {TupleShape(tuple(x.shape for x in context))}, not {line.shape}")
    return frame.add(parser.finished(line, calls.tuple_, context, calls.tuple_.attributes(), rest))


# --- transfers: in the graph they take and give arrays and tokens -----------------------------------------------------


def _infeed(parser: _Parser, frame: _Frame, line: _Line) -> Instruction:
    op, fields, operands = channels.infeed, line.texts(), parser.operands(frame, line)
    if not isinstance(line.shape, TupleShape) or len(line.shape.elements) != 2:
        raise ValueError(f"the shape must be the tuple of data and a token, but is {line.shape}")
    attributes, used = read_attributes(op, fields, Context(line.shape, [x.shape for x in operands]), parser.called)
    flat = _flat_line(line)._replace(name=line.name)
    inferred = op.shape(*(x.shape for x in operands), **attributes._asdict())
    if inferred != flat.shape:
        raise ValueError(f"the operands give {inferred}, but the shape here is {line.shape}")
    rest = {name: text for name, text in fields.items() if name not in used}
    is_flat = isinstance(line.shape.elements[0], Shape)
    made = frame.add(parser.finished(line if is_flat else flat, op, operands, attributes, rest))
    if is_flat:
        return made
    *data, token = [
        frame.add(Instruction(calls.get_tuple_element, (made,), calls.GetTupleElement(k), shape))
        for k, shape in enumerate(inferred.elements)  # pyright: ignore[reportAttributeAccessIssue]
    ]
    return _regrouped(frame, [_regrouped(frame, data), token])


def _regrouped(frame: _Frame, elements: list[Instruction]) -> Instruction:
    """A tuple that is there only as long as something but its elements is needed."""
    shape = TupleShape(tuple(x.shape for x in elements))
    made = frame.add(Instruction(calls.tuple_, elements, calls.tuple_.attributes(), shape))
    frame.absorbed.append(made)
    frame.regrouped.add(made)
    return made


def _get_tuple_element(parser: _Parser, frame: _Frame, line: _Line) -> Instruction:
    (whole,) = _only(parser.operands(frame, line), 1)
    if whole not in frame.regrouped:
        return frame.add(parser.made(line, calls.get_tuple_element, [whole], line.texts()))
    made = parser.made(line, calls.get_tuple_element, [whole], line.texts())
    element = whole.operands[made.attributes.index]
    if not element.name and element not in frame.regrouped:
        element.name, element.source, element.annotations = line.name, made.source, made.annotations
    return element


def _outfeed(parser: _Parser, frame: _Frame, line: _Line) -> Instruction:
    data, token = _only(parser.operands(frame, line), 2)
    if isinstance(data.shape, TupleShape) and not all(isinstance(x, Shape) for x in data.shape.elements):
        raise _OperandError(f"nested tuples are not supported, but the operand is {data.shape}")
    fields = line.texts()
    said = read_shape(Lexer(fields["outfeed_shape"])) if "outfeed_shape" in fields else data.shape
    if said != data.shape:
        raise ValueError(f"outfeed_shape must be that of the operand, {data.shape}, but is {said}")
    return frame.add(parser.made(line, channels.outfeed, [*_arrays(frame, data), token], fields))


def _recv_done(parser: _Parser, frame: _Frame, line: _Line) -> Instruction:
    (context,) = _only(parser.operands(frame, line), 1)
    fields = line.texts()
    if context.op is channels.recv:
        given = context.attributes
        attributes = channels.Channel(given.channel_id, given.is_host_transfer, given.source_target_pairs)
        fields = {name: text for name, text in fields.items() if name not in ("channel_id", "is_host_transfer")}
        return frame.add(parser.finished(line, channels.recv_done, _arrays(frame, context), attributes, fields))
    return frame.add(parser.made(line, channels.recv_done, _arrays(frame, context), fields))


def _emitted(frame: _Frame, op: Op, operands: Sequence[Instruction], **attributes: Any) -> Instruction:
    shape = op.shape(*(x.shape for x in operands), **attributes)
    return frame.add(Instruction(op, operands, op.attributes(**attributes), shape))


# --- loops, branches and barriers: in the graph they take arrays, in HLO one tuple ------------------------------------


def _arrays(frame: _Frame, x: Instruction) -> list[Instruction]:
    """The arrays of an operand; a tuple that is made for it alone is not needed any more."""
    if isinstance(x.shape, Shape):
        return [x]
    if x.op is calls.tuple_:
        frame.absorbed.append(x)
        return [leaf for o in x.operands for leaf in _arrays(frame, o)]
    found: list[Instruction] = []
    for k, shape in enumerate(x.shape.elements):
        element = Instruction(calls.get_tuple_element, (x,), calls.GetTupleElement(k), shape)
        found += _arrays(frame, frame.add(element))
    return found


def _as_written(frame: _Frame, x: Instruction, shape: AnyShape, name: str) -> Instruction:
    """A flat tuple as the text has it: an array, or nested."""
    if x.shape == shape:
        x.name = name
        return x
    taken = tuples.regrouped(shape, iter(_arrays(frame, x)))
    made = _grouped(frame, taken)
    made.name = name
    return made


def _grouped(frame: _Frame, value: Any) -> Instruction:
    if isinstance(value, Instruction):
        return value
    parts_ = [_grouped(frame, part) for part in value]
    shape = TupleShape(tuple(x.shape for x in parts_))
    return frame.add(Instruction(calls.tuple_, parts_, calls.tuple_.attributes(), shape))


def _flat_line(line: _Line) -> _Line:
    return line._replace(name="", shape=TupleShape(tuple(tuples.leaf_shapes(line.shape))))


def _while(parser: _Parser, frame: _Frame, line: _Line) -> Instruction:
    (carried,) = _only(parser.operands(frame, line), 1)
    change = {"body": parser.giving_tuple, "condition": parser.flatten}
    x = parser.made(_flat_line(line), ops["while"], _arrays(frame, carried), line.texts(), change)
    return _as_written(frame, frame.add(x), line.shape, line.name)


def _scan(parser: _Parser, frame: _Frame, line: _Line) -> Instruction:
    fields = line.texts()
    scan = Scan(
        dimension=_number_field(fields, "dimensions", "{}"),
        num_carries=_number_field(fields, "num_carries"),
        is_reverse=_truth_field(fields, "is_reverse"),
        to_apply=parser.giving_tuple(parser.called(fields.pop("to_apply", "").strip())),
    )
    _truth_field(fields, "is_associative")  # leave to take the steps in another order
    operands = parser.operands(frame, line)
    if scan.num_carries > len(operands):
        raise _OperandError(f"expected {scan.num_carries} initial carries, but found {len(operands)} operands")
    *instructions, results = scan_as_while(scan, operands, line.shape)
    for x in instructions:
        frame.add(x)
    if results.shape != line.shape:
        raise ValueError(f"the operands give {results.shape}, but the shape here is {line.shape}")
    return frame.add(parser.finished(line, calls.tuple_, results.operands, results.attributes, fields))


def _number_field(fields: dict[str, str], name: str, brackets: str = "") -> int:
    text = fields.pop(name, "").strip()
    text = inside(text, brackets) if brackets and text else text
    if re.fullmatch(r"\d{1,6}", text.strip()) is None:
        raise UnreadableError(name, f"scan needs {name}, a number, but has {text[:40]!r}")
    return int(text)


def _truth_field(fields: dict[str, str], name: str) -> bool:
    text = fields.pop(name, "false").strip()
    if text not in ("true", "false"):
        raise UnreadableError(name, f"{name} must be true or false, but is {text[:40]!r}")
    return text == "true"


def _opt_barrier(parser: _Parser, frame: _Frame, line: _Line) -> Instruction:
    (held,) = _only(parser.operands(frame, line), 1)
    x = parser.made(_flat_line(line), ops["opt-barrier"], _arrays(frame, held), line.texts())
    return _as_written(frame, frame.add(x), line.shape, line.name)


def _conditional(parser: _Parser, frame: _Frame, line: _Line) -> Instruction:
    index, *given = parser.operands(frame, line)
    fields = line.texts()
    if "true_computation" in fields:
        both = (fields.pop("true_computation"), fields.pop("false_computation", ""))
        fields["branch_computations"] = f"{{{', '.join(both)}}}"
    several = [_arrays(frame, x) for x in given]
    operands = several[0] if len(set(given)) == 1 else list(dict.fromkeys(x for arrays in several for x in arrays))
    shapes = [x.shape for x in operands]
    whole = list(range(len(operands)))
    places = [whole if arrays == operands else [operands.index(x) for x in arrays] for arrays in several]
    if len(places) != fields.get("branch_computations", "").count(",") + 1:
        raise _OperandError(f"expected an operand for each branch, but found {len(places)}")

    def branch(computation: Computation) -> Computation:
        return _taking(parser.giving_tuple(computation), shapes, places.pop(0))

    change = {"branch_computations": branch}
    x = parser.made(_flat_line(line), ops["conditional"], [index, *operands], fields, change)
    return _as_written(frame, frame.add(x), line.shape, line.name)


def _taking(computation: Computation, shapes: Sequence[AnyShape], places: Sequence[int]) -> Computation:
    """The same computation with these parameters, of which its own are those at `places`."""
    if list(places) == list(range(len(shapes))):
        return computation
    parameters = [Instruction(movement.parameter, (), movement.Parameter(k, s), s) for k, s in enumerate(shapes)]
    new = dict(zip(computation.parameters, (parameters[k] for k in places), strict=True))
    for old, x in new.items():
        x.name = x.name or old.name
    for x in computation.instructions:
        if x not in new:
            operands = [new[o] for o in x.operands]
            new[x] = Instruction(x.op, operands, x.attributes, x.shape, x.source, x.name, x.annotations)
    rest = [new[x] for x in computation.instructions if x.op is not movement.parameter]
    return Computation(computation.name, parameters, [*parameters, *rest], new[computation.root])


def _only(operands: Sequence[Instruction], count: int) -> Sequence[Instruction]:
    if len(operands) != count:
        raise _OperandError(f"expected {count} operand, but found {len(operands)}")
    return operands


_SPECIAL = {
    "async-done": _async_next,
    "async-update": _async_next,
    "conditional": _conditional,
    "get-tuple-element": _get_tuple_element,
    "infeed": _infeed,
    "constant": _constant,
    "opt-barrier": _opt_barrier,
    "outfeed": _outfeed,
    "parameter": _parameter,
    "recv-done": _recv_done,
    "scan": _scan,
    "while": _while,
}


def _stack_frames(tables: Mapping[str, str]) -> dict[str, SourceLine]:
    """The lines that frames stand for, by the frames' numbers: XLA keeps them in tables that refer to one another."""
    files, functions, locations, frames = (dict(_rows(tables.get(name, ""))) for name in TABLES)
    found: dict[str, SourceLine] = {}
    for number, row in frames.items():
        place = _numbers(locations.get(_numbers(row).get("file_location_id", ""), ""))
        file = files.get(place.get("file_name_id", ""), "")
        if file:
            function = functions.get(place.get("function_name_id", ""), '""')
            found[number] = SourceLine(unquoted(file), int(place.get("line", 0)), unquoted(function))
    return found


def _rows(table: str) -> list[tuple[str, str]]:
    return re.findall(r"^(\d+) (\"(?:[^\"\\]|\\.)*\"|\{.*\})$", table, re.MULTILINE)


def _number_fields(text: str) -> list[tuple[str, str]]:
    return re.findall(r"(\w+)=(\d{1,9})\b", text)


def _numbers(row: str) -> dict[str, str]:
    return dict(_number_fields(row))
