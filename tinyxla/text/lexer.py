"""A reader of HLO text: where it stands, and the small pieces it takes from there.

White space and comments separate pieces. What an attribute is set to is taken as it stands, up to the comma or bracket
behind it (`Lexer.value`), and given a meaning by the codec of that attribute.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple, NoReturn

from tinyxla.errors import HloSyntaxError

_BLANK = re.compile(r"(?:\s+|/\*.*?\*/|//[^\n]*)*", re.DOTALL)
_COMMENT = re.compile(r'("(?:[^"\\]|\\.)*")|/\*.*?\*/', re.DOTALL)
_PIECE = re.compile(r'"(?:[^"\\\n]|\\.)*"|/\*.*?\*/|[^\s"\[\](){},/]+|.', re.DOTALL)
_NAME = re.compile(r"[A-Za-z_][\w.-]*")
_OPERAND = re.compile(r"%?([A-Za-z0-9_][\w.-]*)")  # a name; with the sign in front also one that begins with a digit
_INTEGER = re.compile(r"-?\d+")
_CLOSING = {"(": ")", "[": "]", "{": "}"}
_SEPARATOR = re.compile(r",?\s*")
_DEVICE_IDS = re.compile(r",\s*device_ids=\(")
_AXES = re.compile(r"\{")
_SHOWN = re.compile(r"\s*(\S{1,20})?")
_MAX_NESTED = 100  # brackets inside brackets


class Raw(NamedTuple):
    """A piece of the text as it stands, and where it begins."""

    text: str
    place: int


class Lexer:
    """Stands at a place in a text, always before something that is neither white space nor a comment."""

    def __init__(self, text: str, place: int = 0) -> None:
        self.text = text
        self.place = place
        self.skip()

    def error(self, message: str, place: int | None = None) -> NoReturn:
        at = self.place if place is None else place
        begin = self.text.rfind("\n", 0, at) + 1
        end = self.text.find("\n", at)
        line = self.text[begin : end if end >= 0 else len(self.text)]
        raise HloSyntaxError(message, self.text.count("\n", 0, at) + 1, at - begin + 1, line)

    def expected(self, what: str) -> NoReturn:
        found = _SHOWN.match(self.text, self.place)
        assert found is not None, "the pattern matches everywhere"
        self.error(f"expected {what}, but found {found[1]!r}" if found[1] else f"expected {what}, but the text ends")

    def skip(self) -> None:
        found = _BLANK.match(self.text, self.place)
        assert found is not None, "the pattern matches everywhere"
        self.place = found.end()

    def at_end(self) -> bool:
        return self.place >= len(self.text)

    def at(self, what: str) -> bool:
        return self.text.startswith(what, self.place)

    def follows(self, what: str) -> bool:
        """Whether this is what stands right before, without a space."""
        return self.text.endswith(what, 0, self.place)

    def at_digit(self) -> bool:
        return self.text[self.place : self.place + 1].isdigit()

    def accept(self, what: str) -> bool:
        """Take a sign or a word if it comes next."""
        if not self.at(what):
            return False
        end = self.place + len(what)
        if (
            what[-1].isalnum()
            and len(what) > 1
            and end < len(self.text)
            and (self.text[end].isalnum() or self.text[end] in "_.-")
        ):
            return False
        self.place = end
        self.skip()
        return True

    def accept_match(self, pattern: re.Pattern[str]) -> bool:
        """Take what a pattern matches if that comes next."""
        found = pattern.match(self.text, self.place)
        if found is not None:
            self.place = found.end()
            self.skip()
        return found is not None

    def expect(self, what: str) -> None:
        if not self.accept(what):
            self.expected(repr(what))

    def _take(self, pattern: re.Pattern[str], what: str) -> re.Match[str]:
        found = pattern.match(self.text, self.place)
        if found is None:
            self.expected(what)
        self.place = found.end()
        self.skip()
        return found

    def name(self, what: str) -> str:
        return self._take(_NAME, what)[0]

    def reference(self, what: str) -> str:
        """A name, with or without the sign in front."""
        return self._take(_OPERAND, what)[1]

    def integer(self, what: str) -> int:
        place = self.place
        number = self._take(_INTEGER, what)[0]
        if len(number) > 20:
            self.error(f"{what} {number[:20]}... is too large", place)
        return int(number)

    def value(self) -> Raw:
        """What comes up to a comma, white space or closing bracket outside all brackets and strings."""
        begin = self.place
        open_: list[str] = []
        place = begin
        while place < len(self.text):
            found = _PIECE.match(self.text, place)
            assert found is not None, "the pattern matches everywhere"
            piece = found[0]
            if piece in _CLOSING:
                open_.append(_CLOSING[piece])
                if len(open_) > _MAX_NESTED:
                    self.error(f"more than {_MAX_NESTED} brackets inside one another", place)
            elif open_:
                if piece == open_[-1]:
                    open_.pop()
                elif piece in (")", "]", "}"):
                    self.error(f"expected {open_[-1]!r}, but found {piece!r}", place)
            elif piece.isspace() or piece in (",", ")", "]", "}") or piece.startswith("/*"):
                break
            if piece == '"':
                self.error("a string without an end", place)
            place = found.end()
        if open_:
            self.error(f"a bracket without its {open_[-1]!r}", begin)
        if place == begin:
            self.expected("a value")
        self.place = place
        self.skip()
        return Raw(self.text[begin:place], begin)

    def mesh_axes(self) -> Raw:
        """Axes of a mesh, `mesh['x'=2,'y'=4], device_ids=(...) {'y'}`, where the middle is optional."""
        begin = self.place
        end = begin + len(self.value().text)
        for pattern in (_DEVICE_IDS, _AXES):
            if pattern.match(self.text, self.place):
                self.accept_match(_SEPARATOR)
                end = self.place + len(self.value().text)
        return Raw(self.text[begin:end], begin)

    def line(self) -> str:
        """The rest of the line."""
        end = self.text.find("\n", self.place)
        end = end if end >= 0 else len(self.text)
        found = self.text[self.place : end].rstrip()
        self.place = end
        self.skip()
        return found


def without_comments(text: str) -> str:
    """The text without comments, but for what looks like one inside a string."""
    return _COMMENT.sub(lambda found: found[1] or " ", text) if "/*" in text else text


def parts(text: str, separator: str = ",") -> Iterator[str]:
    """What stands between the separators that are outside all brackets and strings."""
    depth, begin = 0, 0
    for found in _PIECE.finditer(text):
        piece = found[0]
        if piece in _CLOSING:
            depth += 1
        elif piece in (")", "]", "}"):
            depth -= 1
        elif piece == separator and not depth:
            yield text[begin : found.start()].strip()
            begin = found.end()
    last = text[begin:].strip()
    if last or begin:
        yield last


def inside(text: str, brackets: str = "{}") -> str:
    """What is between the brackets that a text begins and ends with."""
    text = text.strip()
    if len(text) < 2 or text[0] != brackets[0] or text[-1] != brackets[1]:
        raise ValueError(f"expected {brackets[0]}...{brackets[1]}, but found {text[:40]!r}")
    return text[1:-1]


def read_integer(text: str) -> int:
    """The integer that a text is; ValueError for any other."""
    if re.fullmatch(r"-?\d{1,20}", text) is None:
        raise ValueError(f"expected an integer, but found {text[:40]!r}")
    return int(text)
