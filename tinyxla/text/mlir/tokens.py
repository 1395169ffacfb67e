"""The lexer of MLIR text: all tokens at once.

A tensor type, the elements of a `dense` attribute and a string are each one token, so that what is long or frequent is
neither split nor parsed twice.
"""

from __future__ import annotations

import re
from typing import NoReturn

from tinyxla.errors import MlirSyntaxError

_ANGLED = r"<(?:[^<>]|<(?:[^<>]|<[^<>]*>)*>)*>"
_TOKEN = re.compile(
    r"(?:\s+|//[^\n]*)*("
    rf"tensor{_ANGLED}"
    r'|dense<(?:"[^"]*"|[^<>"]*)>|dense_resource<[^<>]*>|array<[^<>]*>'
    r'|@?"(?:[^"\\\n]|\\.)*"'
    r"|->|::|\{-#|#-\}"
    r"|%[\w$.-]*[\w$](?:\#\d+)?|[@#!^][\w$.-]*[\w$]"
    r"|-?(?:0x[0-9A-Fa-f]+|\d+(?:\.\d*(?:[eE][-+]?\d+)?)?)"
    r"|[A-Za-z_][\w$.]*"
    r"|\S)?"
)


class Tokens:
    """The tokens of a text in order, of which the last is empty, and where the reader stands among them."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[str] = _TOKEN.findall(text)
        self.place = 0

    def peek(self) -> str:
        """The token that comes next, which is empty at the end."""
        return self.tokens[self.place]

    def take(self) -> str:
        token = self.tokens[self.place]
        if not token:
            self.fail("the text ends too early")
        self.place += 1
        return token

    def accept(self, token: str) -> bool:
        """Whether this token comes next, which is taken then."""
        if self.tokens[self.place] == token:
            self.place += 1
            return True
        return False

    def expect(self, token: str) -> None:
        if self.tokens[self.place] != token:
            found = self.peek()
            self.fail(f"expected {token!r}, but found {found[:40]!r}" if found else f"the text ends before {token!r}")
        self.place += 1

    def offset(self, place: int | None = None) -> int:
        """Where a token begins in the text."""
        wanted = self.place if place is None else place
        for k, found in enumerate(_TOKEN.finditer(self.text)):
            if k == wanted:
                return found.start(1) if found[1] else len(self.text)
        return len(self.text)

    def fail(self, message: str, place: int | None = None) -> NoReturn:
        """Refuse the text where a token stands."""
        at = self.offset(place)
        begin = self.text.rfind("\n", 0, at) + 1
        end = self.text.find("\n", at)
        line = self.text[begin : end if end >= 0 else len(self.text)]
        raise MlirSyntaxError(message, self.text.count("\n", 0, at) + 1, at - begin + 1, line)
