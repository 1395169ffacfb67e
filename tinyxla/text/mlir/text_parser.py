"""The parser of MLIR text: modules, functions, regions and operations, in the generic form and in the forms of their
own that `assembly` has.

Recursive descent over the tokens of `tokens`. Names of values are resolved while they are read, so that each is
defined before it is used. Aliases of attributes and locations may be defined anywhere.

Source: MLIR Language Reference, https://mlir.llvm.org/docs/LangRef/.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from tinyxla.text.mlir.dense import array, dense
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
    TupleType,
    Type,
    TypeAttr,
    UnitAttr,
    Value,
)
from tinyxla.text.mlir.tokens import Tokens

MAX_DEPTH = 200  # of attributes in attributes, and of regions in regions
_ESCAPES = {"n": 10, "t": 9, '"': 34, "\\": 92}
_FLOAT_TYPES = ("f", "bf", "tf")
_CLOSING = {"<": ">", "(": ")", "[": "]", "{": "}"}

_T = TypeVar("_T")
Format = Callable[["Parser", Operation], None]


class Parser(Tokens):
    """Reads one text. `formats` are the forms of operations that are not generic, by name, and `plain` that of all
    others."""

    def __init__(self, text: str, formats: dict[str, Format], plain: Format | None = None) -> None:
        super().__init__(text)
        self.formats = formats
        self.plain = plain
        self.depth = 0
        self._values: dict[str, Value | list[Value]] = {}
        self._shadowed: list[dict[str, Value | list[Value] | None]] = []
        self._types: dict[str, Type] = {}
        self._aliases = self._find_aliases()
        self._resolved: dict[str, Attribute | Location | Type | None] = {}

    # --- modules and functions ----------------------------------------------------------------------------------------

    def module(self) -> ModuleOp:
        """The whole text: a module, or functions without one."""
        made = ModuleOp()
        self._skip_aliases()
        if self.peek() == '"builtin.module"':
            made = _generic_module(self, self.operation())
            self._skip_aliases()
        elif self.accept("module"):
            if self.peek().startswith("@"):
                made.name = self.symbol_name()
            if self.accept("attributes"):
                made.attributes = self.dictionary()
            self.expect("{")
            while not self.accept("}"):
                self._module_item(made)
            self.trailing_location()
            self._skip_aliases()
        else:
            while self.peek() and self.peek() != "{-#":
                self._module_item(made)
                self._skip_aliases()
        if self.peek() == "{-#":  # resources
            self.fail("constants in dense_resource are not supported; write them as dense<...>")
        if self.peek():
            self.fail(f"{self.peek()[:40]!r} does not belong there")
        return made

    def _module_item(self, made: ModuleOp) -> None:
        self._skip_aliases()
        if self.peek() in ("func.func", "func"):
            place = self.place
            function = self.function()
            if function.name in made.functions:
                self.fail(f"the function @{function.name} is there twice", place)
            made.functions[function.name] = function
        elif self.peek() == "sdy.mesh":
            self.take()
            name = self.symbol_name()
            self.expect("=")
            made.attributes[f"sdy.mesh.{name}"] = OpaqueAttr(self.balanced())
            if self.peek() == "{":
                self.dictionary()
            self.trailing_location()
        elif self.peek() != "}":
            self.fail(f"expected a function, but found {self.peek()[:40]!r}")

    def function(self) -> Function:
        """`func.func public @name(%x: T {attributes}, ...) -> (T {attributes}, ...) attributes {...} { body }`."""
        place = self.place
        self.take()
        is_public = not self.accept("private")
        self.accept("public")
        name = self.symbol_name()
        with self.scope():
            arguments: list[Value] = []
            argument_attributes: list[dict[str, Attribute]] = []
            self.expect("(")
            while not self.accept(")"):
                if self.peek().startswith("%"):
                    label = self.take()
                    self.expect(":")
                    arguments.append(self.define(label, Value(self.type())))
                else:
                    arguments.append(Value(self.type()))
                argument_attributes.append(self.dictionary() if self.peek() == "{" else {})
                self.trailing_location()
                self.comma_before(")")
            results: list[Type] = []
            result_attributes: list[dict[str, Attribute]] = []
            if self.accept("->"):
                is_group = self.accept("(")
                while not (is_group and self.accept(")")):
                    results.append(self.type())
                    result_attributes.append(self.dictionary() if is_group and self.peek() == "{" else {})
                    if not is_group:
                        break
                    self.comma_before(")")
            attributes = self.dictionary() if self.accept("attributes") else {}
            if self.peek() != "{":
                self.fail(f"the function @{name} has no body")
            body = self.region(arguments)
        location = self.trailing_location()
        return Function(
            name,
            FunctionType(tuple(x.type for x in arguments), tuple(results)),
            body,
            argument_attributes,
            result_attributes,
            attributes,
            is_public,
            location,
            place,
        )

    # --- regions and operations ---------------------------------------------------------------------------------------

    def region(self, arguments: Sequence[Value] = ()) -> Region:
        """`{ operations }`, or with a label `{ ^bb0(%x: T): operations }`; arguments named outside are given."""
        self.expect("{")
        self._descend()
        with self.scope():
            block = Block(list(arguments))
            if self.peek().startswith("^"):
                self.take()
                if self.accept("("):
                    while not self.accept(")"):
                        label = self.take()
                        self.expect(":")
                        block.arguments.append(self.define(label, Value(self.type())))
                        self.trailing_location()
                        self.comma_before(")")
                self.expect(":")
            while not self.accept("}"):
                if self.peek().startswith("^"):
                    self.fail("a region of several blocks is not supported: StableHLO's have one")
                block.operations.append(self.operation())
        self.depth -= 1
        return Region([block])

    def operation(self) -> Operation:
        """One operation, with the names of its results."""
        labels: list[tuple[str, int]] = []
        if self.peek().startswith("%"):
            while True:
                label = self.take()
                labels.append((label, self.integer() if self.accept(":") else 1))
                if not self.accept(","):
                    break
            self.expect("=")
        place = self.place
        name = self.take()
        if name.startswith('"'):
            operation = Operation(name[1:-1], offset=place)
            self._generic(operation)
        else:
            read = self.formats.get(name, self.plain if "." in name else None)
            if read is None:
                self.fail(f"the operation {name!r} is not known in this form", place)
            operation = Operation(name, offset=place)
            read(self, operation)
        operation.location = self.trailing_location()
        if sum(count for _, count in labels) != len(operation.results) and labels:
            self.fail(f"{operation.name} has {len(operation.results)} results", place)
        k = 0
        for label, count in labels:
            self.define(label, operation.results[k] if count == 1 else list(operation.results[k : k + count]))
            k += count
        return operation

    def _generic(self, operation: Operation) -> None:
        self.expect("(")
        operation.operands = self.operands(")")
        self.expect(")")
        if self.accept("<"):
            operation.attributes |= self.dictionary()
            self.expect(">")
        if self.accept("("):
            regions: list[Region] = []
            while not self.accept(")"):
                regions.append(self.region())
                self.comma_before(")")
            operation.regions = regions
        if self.peek() == "{":
            operation.attributes |= self.dictionary()
        self.expect(":")
        self.finish(operation, self.function_type())

    def finish(self, operation: Operation, type: FunctionType) -> None:
        """Give an operation its results, and check the types of its operands."""
        place = self.place
        if len(type.inputs) != len(operation.operands):
            self.fail(f"{operation.name} has {len(operation.operands)} operands, but {len(type.inputs)} types", place)
        for k, (operand, wanted) in enumerate(zip(operation.operands, type.inputs, strict=True)):
            if operand.type != wanted:
                self.fail(f"{operation.name}: operand {k} is {type_text(operand.type)}, not {type_text(wanted)}", place)
        operation.results = [Value(x) for x in type.results]

    def operands(self, *ends: str) -> list[Value]:
        """Values, separated by commas."""
        found: list[Value] = []
        while self.peek().startswith("%"):
            found.append(self.value())
            if self.peek() in ends or not self.accept(","):
                break
        return found

    def value(self) -> Value:
        """A value that was defined before; `%x#1` is one of several."""
        label = self.take()
        name, _, number = label.partition("#")
        found = self._values.get(name)
        if found is None:
            self.fail(f"{label} is not defined before", self.place - 1)
        if not isinstance(found, list):
            if number not in ("", "0"):
                self.fail(f"{name} is one value", self.place - 1)
            return found
        if not number or int(number) >= len(found):
            self.fail(f"{name} is {len(found)} values, of which {label} is none", self.place - 1)
        return found[int(number)]

    def define(self, label: str, value: Value | list[Value]) -> Value:
        """Give values a name, which must be a new one."""
        if not label.startswith("%"):
            self.fail(f"expected the name of a value, but found {label[:40]!r}", self.place - 1)
        if self._shadowed and label not in self._shadowed[-1]:
            self._shadowed[-1][label] = self._values.get(label)
        self._values[label] = value
        first = value[0] if isinstance(value, list) else value
        first.name = label[1:]
        return first

    @contextmanager
    def scope(self) -> Generator[None]:
        """Names that are defined inside end with it; those of outside are seen."""
        self._shadowed.append({})
        yield
        for label, before in self._shadowed.pop().items():
            if before is None:
                del self._values[label]
            else:
                self._values[label] = before

    def _descend(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.fail(f"more than {MAX_DEPTH} brackets are nested")

    # --- types --------------------------------------------------------------------------------------------------------

    def type(self) -> Type:
        """A type."""
        token = self.take()
        found = self._types.get(token)
        if found is not None:
            return found
        if token.startswith("tensor<"):
            found = self._types[token] = self._tensor(token[7:-1])
            return found
        if token == "tuple":
            self.expect("<")
            self._descend()
            elements: list[Type] = []
            while not self.accept(">"):
                elements.append(self.type())
                self.comma_before(">")
            self.depth -= 1
            return TupleType(tuple(elements))
        if token == "(":
            self.place -= 1
            return self.function_type()
        if token.startswith("!"):
            if token[1:] in self._aliases and "." not in token:
                return self._resolve("!" + token[1:], Parser.type)  # type: ignore[return-value]
            return OtherType(token + (self.balanced() if self.peek() == "<" else ""))
        if token == "complex":
            return OtherType("complex" + self.balanced())
        if not token[0].isalpha():
            self.fail(f"expected a type, but found {token[:40]!r}", self.place - 1)
        return OtherType(token)

    def _tensor(self, text: str) -> TensorType:
        place = self.place - 1
        body, comma, rest = text.partition(",")
        encoding = None
        if comma:
            inner = Parser(rest.strip(), {})
            encoding = inner.attribute()
        body = body.strip()
        if body.startswith("*x"):
            return TensorType((), body[2:].strip(), encoding, is_ranked=False)
        sizes: list[int | None] = []
        while body[:1].isdigit() or body[:1] == "?":
            size, _, body = body.partition("x")
            size, body = size.strip(), body.strip()
            if not body or not (size.isdigit() or size == "?") or len(size) > 18:
                self.fail(f"tensor<{text[:40]}> is no type", place)
            sizes.append(None if size == "?" else int(size))
        if not body or not (body[0].isalpha() or body[0] == "!"):
            self.fail(f"tensor<{text[:40]}> is no type", place)
        return TensorType(tuple(sizes), body.replace(" ", ""), encoding)

    def types(self) -> tuple[Type, ...]:
        """One type, or several in parentheses."""
        if not self.accept("("):
            return (self.type(),)
        found: list[Type] = []
        while not self.accept(")"):
            found.append(self.type())
            self.comma_before(")")
        return tuple(found)

    def function_type(self) -> FunctionType:
        """`(T, U) -> V` or `(T, U) -> (V, W)`."""
        if self.peek() != "(":
            self.fail(f"expected types in parentheses, but found {self.peek()[:40]!r}")
        inputs = self.types()
        self.expect("->")
        return FunctionType(inputs, self.types())

    # --- attributes ---------------------------------------------------------------------------------------------------

    def dictionary(self) -> dict[str, Attribute]:
        """`{a = 1, b}`."""
        self.expect("{")
        self._descend()
        found: dict[str, Attribute] = {}
        while not self.accept("}"):
            name = self.take()
            if name.startswith('"'):
                name = unescaped(name).decode(errors="replace")
            found[name] = self.attribute() if self.accept("=") else UnitAttr()
            self.comma_before("}")
        self.depth -= 1
        return found

    def attribute(self) -> Attribute:
        """An attribute."""
        token = self.peek()
        first = token[:1]
        if first == "[":
            return ArrayAttr(self.list_of(self.attribute))
        if first == "{":
            return DictAttr(self.dictionary())
        if first == '"':
            self.place += 1
            return StringAttr(unescaped(token))
        if first == "@":
            return self.symbol()
        if first == "#":
            return self._hash_attribute()
        if first.isdigit() or (first == "-" and token != "->"):
            return self.number()
        if token.startswith("dense<"):
            return self.dense()
        if token.startswith("array<"):
            self.place += 1
            return self._checked(array, token)
        if token in ("true", "false"):
            self.place += 1
            return IntegerAttr(int(token == "true"), "i1")
        if token == "unit":
            self.place += 1
            return UnitAttr()
        if token == "loc":
            self.trailing_location()
            return UnitAttr()
        if token in ("affine_map", "affine_set", "opaque", "dense_resource", "sparse"):
            self.take()
            return OpaqueAttr(token + self.balanced())
        return TypeAttr(self.type())

    def dense(self) -> DenseAttr:
        """`dense<...> : tensor<...>`."""
        token, place = self.take(), self.place - 1
        if not token.startswith("dense<"):
            self.fail(f"expected dense<...>, but found {token[:40]!r}", place)
        self.expect(":")
        type = self.type()
        if not isinstance(type, TensorType):
            self.fail("the type of dense<...> is a tensor's")
        try:
            return dense(token, type)
        except ValueError as error:
            self.fail(f"in dense<...>: {error}", place)

    def _checked(self, read: Callable[[str], DenseAttr], token: str) -> DenseAttr:
        try:
            return read(token)
        except ValueError as error:
            self.fail(f"in {token[:20]}...: {error}", self.place - 1)

    def number(self) -> Attribute:
        """`3`, `3 : i32`, `1.5 : f32` or bits `0x7FC00000 : f32`."""
        token = self.take()
        type = None
        if self.peek() == ":":
            self.place += 1
            found = self.type()
            type = found.text if isinstance(found, OtherType) else None
            if type is None:
                self.fail("a number's type is an element type")
        if type is not None and type.startswith(_FLOAT_TYPES):
            bits = int(token, 16) if "0x" in token else None
            return FloatAttr(float("nan") if bits is not None else float(token), type, bits)
        if "." in token:
            return FloatAttr(float(token))
        return IntegerAttr(int(token, 0), type or "i64")

    def integer(self) -> int:
        """A plain integer."""
        token = self.take()
        try:
            return int(token, 0)
        except ValueError:
            self.fail(f"expected an integer, but found {token[:40]!r}", self.place - 1)

    def integers(self) -> tuple[int, ...]:
        """`[1, 2]`."""
        return self.list_of(self.integer)

    def list_of(self, read: Callable[[], _T]) -> tuple[_T, ...]:
        """`[x, y]` of what a function reads."""
        self.expect("[")
        self._descend()
        found: list[_T] = []
        while not self.accept("]"):
            found.append(read())
            self.comma_before("]")
        self.depth -= 1
        return tuple(found)

    def symbol(self) -> SymbolAttr:
        """`@a` or `@a::@b`."""
        path = [self.symbol_name()]
        while self.accept("::"):
            path.append(self.symbol_name())
        return SymbolAttr(tuple(path))

    def symbol_name(self) -> str:
        token = self.take()
        if not token.startswith("@"):
            self.fail(f"expected a name such as @main, but found {token[:40]!r}", self.place - 1)
        return unescaped(token[1:]).decode(errors="replace") if token[1] == '"' else token[1:]

    def _hash_attribute(self) -> Attribute:
        token = self.take()
        if token in self._aliases and self.peek() != "<":
            found = self._resolve(token, Parser.attribute)
            return found if found is not None and not isinstance(found, Location) else UnitAttr()  # type: ignore[return-value]
        name = token[1:]
        if self.peek() != "<":
            if "." not in name:
                self.fail(f"{token} is not defined", self.place - 1)
            return DialectAttr(name, {})
        if name.partition(".")[0] not in ("stablehlo", "chlo", "vhlo"):
            return OpaqueAttr(token + self.balanced())
        return DialectAttr(name, self.parameters(name))

    def parameters(self, name: str) -> dict[str, Attribute]:
        """What stands in the angle brackets of a dialect's attribute. Words that are no attributes are kept as
        strings."""
        if name == "stablehlo.conv":
            return {"text": StringAttr(self.balanced().encode())}
        self.expect("<")
        self._descend()
        found: dict[str, Attribute] = {}
        while not self.accept(">"):
            word = self.take()
            if self.peek() == "=":
                self.take()
                found[word] = self._parameter()
            elif self.peek() in (",", ">"):
                found[str(len(found))] = StringAttr(word.encode())
            else:  # an enumeration: `precision DEFAULT`
                found["kind"] = StringAttr(word.encode())
                found["value"] = StringAttr(self.take().encode())
            self.comma_before(">")
        self.depth -= 1
        return found

    def _parameter(self) -> Attribute:
        token = self.peek()
        if token == "<":
            return DialectAttr("", self.parameters(""))
        if token == "[":
            return ArrayAttr(self.list_of(self._parameter))
        if token[:1].isalpha() and not token.startswith(("tensor<", "dense<", "array<", "tuple", "true", "false")):
            following = self.tokens[self.place + 1]
            if following in (",", ">", "]") and not self._is_type(token):
                self.place += 1
                return StringAttr(token.encode())
        if token == "?":
            self.place += 1
            return OpaqueAttr("?")
        return self.attribute()

    @staticmethod
    def _is_type(word: str) -> bool:
        return word in ("index", "none", "complex") or (word.lstrip("uisbtf")[:1].isdigit() and word[0] in "uisbtf")

    def balanced(self) -> str:
        """A part of the text in brackets, as it stands."""
        start = self.place
        closing: list[str] = []
        while True:
            token = self.take()
            if token in _CLOSING:
                closing.append(_CLOSING[token])
            elif token in (">", ")", "]", "}") and (not closing or closing.pop() != token):
                self.fail(f"{token!r} closes nothing", self.place - 1)
            if not closing:
                return " ".join(self.tokens[start : self.place])

    # --- aliases and locations ----------------------------------------------------------------------------------------

    def _find_aliases(self) -> dict[str, int]:
        tokens = self.tokens
        return {
            tokens[k - 1]: k + 1
            for k, token in enumerate(tokens)
            if token == "=" and k and tokens[k - 1][:1] in "#!" and len(tokens[k - 1]) > 1
        }

    def _resolve(self, token: str, read: Callable[[Parser], object]) -> object:
        if token not in self._resolved:
            outer = self.place
            self._resolved[token] = None  # of an alias that is defined by itself
            self._descend()
            self.place = self._aliases[token]
            if self.peek() == "loc":
                self._resolved[token] = self.trailing_location()
            else:
                self._resolved[token] = read(self)  # type: ignore[assignment]
            self.depth -= 1
            self.place = outer
        return self._resolved[token]

    def _skip_aliases(self) -> None:
        while self.peek()[:1] in ("#", "!") and self.tokens[self.place + 1] == "=":
            self.place += 2
            if self.peek() == "loc":
                self.trailing_location()
            elif self.peek()[:1] == "!" or self.tokens[self.place - 2].startswith("!"):
                self.type()
            else:
                self.attribute()

    def trailing_location(self) -> Location | None:
        """`loc(...)`, where there is one."""
        if self.peek() != "loc":
            return None
        self.take()
        self.expect("(")
        found = self._location()
        self.expect(")")
        return found

    def _location(self) -> Location | None:
        self._descend()
        token = self.take()
        found: Location | None = None
        if token.startswith("#"):
            if token not in self._aliases:
                self.fail(f"{token} is not defined", self.place - 1)
            resolved = self._resolve(token, Parser.attribute)
            found = resolved if isinstance(resolved, Location) else None
        elif token.startswith('"'):
            name = unescaped(token).decode(errors="replace")
            if self.accept(":"):
                line = self.integer()
                self.expect(":")
                found = Location(name, line, self.integer())
                if self.accept("to"):
                    while self.peek() in (":",) or self.peek().isdigit():
                        self.take()
            elif self.accept("("):
                inner = self._location()
                self.expect(")")
                found = Location(inner.file, inner.line, inner.column, name) if inner else Location(name=name)
            else:
                found = Location(name=name)
        elif token == "callsite":
            self.expect("(")
            found = self._location()
            self.expect("at")
            self._location()
            self.expect(")")
        elif token == "fused":
            if self.peek() == "<":
                self.balanced()
            parts = self.list_of(self._location)
            found = next((part for part in parts if part is not None), None)
        elif token == "[":
            self.place -= 1
            parts = self.list_of(self._location)
            found = next((part for part in parts if part is not None), None)
        elif token != "unknown":
            self.fail(f"{token[:40]!r} is no location", self.place - 1)
        self.depth -= 1
        return found

    def comma_before(self, end: str) -> None:
        """A comma, or the bracket that ends a list, which is left."""
        if self.peek() != end:
            self.expect(",")
            if self.peek() == end:
                self.fail(f"there is nothing between ',' and {end!r}")


def _generic_module(parser: Parser, operation: Operation) -> ModuleOp:
    """A module whose functions are operations in the generic form."""
    made = ModuleOp(attributes=operation.attributes)
    named = made.attributes.pop("sym_name", None)
    made.name = named.text if isinstance(named, StringAttr) else ""
    for inner in operation.regions[0].block.operations:
        if inner.name == "sdy.mesh":
            continue
        a = inner.attributes
        named, typed = a.get("sym_name"), a.get("function_type")
        type = typed.type if isinstance(typed, TypeAttr) else None
        if not isinstance(named, StringAttr) or not isinstance(type, FunctionType) or not inner.regions[0].blocks:
            parser.fail(f"expected a function with a body, but found {inner.name}", inner.offset)
        name = named.text
        made.functions[name] = Function(
            name,
            type,
            inner.regions[0],
            _dictionaries(a.get("arg_attrs"), len(type.inputs)),
            _dictionaries(a.get("res_attrs"), len(type.results)),
            a,
            a.get("sym_visibility") != StringAttr(b"private"),
            inner.location,
            inner.offset,
        )
    return made


def _dictionaries(attribute: Attribute | None, count: int) -> list[dict[str, Attribute]]:
    given = attribute.elements if isinstance(attribute, ArrayAttr) else ()
    return [dict(x.entries) if isinstance(x, DictAttr) else {} for x in given] or [{} for _ in range(count)]


def unescaped(token: str) -> bytes:
    r"""The bytes of a string in quotes: `\n`, `\t`, `\\`, `\"` and two hexadecimal digits behind `\`."""
    body = token[1:-1]
    if "\\" not in body:
        return body.encode()
    found = bytearray()
    k = 0
    while k < len(body):
        if body[k] != "\\":
            found += body[k].encode()
            k += 1
        elif body[k + 1] in _ESCAPES:
            found.append(_ESCAPES[body[k + 1]])
            k += 2
        else:
            found += bytes.fromhex(body[k + 1 : k + 3])
            k += 3
    return bytes(found)


def type_text(type: Type) -> str:
    """A type as MLIR writes it."""
    if isinstance(type, TensorType):
        if not type.is_ranked:
            return f"tensor<*x{type.element}>"
        sizes = "".join(f"{'?' if size is None else size}x" for size in type.sizes)
        return f"tensor<{sizes}{type.element}{_encoding_text(type.encoding)}>"
    if isinstance(type, TupleType):
        return f"tuple<{', '.join(map(type_text, type.elements))}>"
    if isinstance(type, FunctionType):
        return f"({', '.join(map(type_text, type.inputs))}) -> ({', '.join(map(type_text, type.results))})"
    return type.text


def _encoding_text(encoding: Attribute | None) -> str:
    """The encoding of a tensor's type, such as `, #stablehlo.bounds<4, ?>`."""
    if not isinstance(encoding, DialectAttr):
        return ""
    words = (x.text for x in encoding.parameters.values() if isinstance(x, StringAttr))
    return f", #{encoding.name}<{', '.join(words)}>"


def parse_attribute(text: str) -> Attribute:
    """The attribute that a text is.

    Raises:
        MlirSyntaxError: with the line and column of what cannot be read.
    """
    return Parser(text, {}).attribute()
