"""Calls as templates: source text with placeholders, of which one call after another is drawn.

    {class dims kind}   an array: the class of its element type (values.CLASSES), its dimensions, and a kind of values
    {?a|b|c}            one of the alternatives
    {axis} {axes}       an axis, or several, of the first array
    {shape} {dtype}     a shape; an element type
    <<text>>            may be left out

Dimensions are "S" (the shape of the call), "S~" (one that broadcasts against it), "-" (a scalar), or a list of numbers,
of letters (sizes that are drawn once in a call), and of "*B" (zero or one leading dimension). "key" stands for a random
key; "number" without dimensions for a Python number. A kind may carry a bound: "index:N".
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from .values import CLASSES, SHAPES, SIZES, WIDE, Input, is_inexact

_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_OPTIONAL = re.compile(r"<<((?:(?!<<|>>).)*)>>")
_TYPES = "float32 float32 int32 bool float16 bfloat16 complex64 int8 uint8 uint32".split()


class Drawn:
    """A call that is being drawn: the inputs so far and what later ones must agree with."""

    def __init__(self, random: np.random.Generator, x64: bool, *, small: bool = False) -> None:
        self.random = random
        self.x64 = x64
        self.inputs: list[Input] = []
        self._sizes: dict[str, int] = {}
        self._types: dict[str, str] = {}
        shapes = [s for s in SHAPES if int(np.prod(s)) < 1000] if small else SHAPES
        self.shape: tuple[int, ...] = shapes[random.integers(len(shapes))]
        self.batch: tuple[int, ...] = () if random.random() < 0.6 else (int(random.choice((1, 2, 0))),)
        self.narrow = False

    def text(self, template: str) -> str:
        """The call, as source."""
        while "<<" in template:
            template = _OPTIONAL.sub(lambda m: m.group(1) if self.random.random() < 0.4 else "", template)
        while "{" in template:  # of nested ones the inner are drawn first
            template = _PLACEHOLDER.sub(lambda m: self._placeholder(m.group(1)), template)
        return template

    def size(self, letter: str) -> int:
        if letter.isdigit():
            return int(letter)
        if letter not in self._sizes:
            self._sizes[letter] = int(self.random.choice(SIZES))
        return self._sizes[letter]

    def _choice(self, options: Any) -> Any:
        return options[self.random.integers(len(options))]

    def _placeholder(self, text: str) -> str:
        if text.startswith("?"):
            return self._choice(text[1:].split("|"))
        simple = _SIMPLE.get(text)
        if simple is not None:
            return simple(self)
        if text in self._sizes or (len(text) == 1 and text.isupper()):
            return str(self.size(text))
        return self._array(text.split())

    def _array(self, words: list[str]) -> str:
        kind, _, bound = (words[2] if len(words) > 2 else "").partition(":")
        if words[0] == "key":
            return self._input(Input("uint32", (2,), "key"))
        scalar = len(words) == 1
        if scalar and words[0] == "number":
            return self._input(Input(self._choice(("int32", "float32")), (1,), kind, scalar=True))
        dims = () if scalar else self._dimensions(words[1])
        return self._input(Input(self._type(words[0]), dims, kind, self.size(bound) if bound else 0))

    def _input(self, given: Input) -> str:
        self.inputs.append(given)
        return f"x{len(self.inputs) - 1}"

    def _dimensions(self, text: str) -> tuple[int, ...]:
        if text == "S":
            return self.shape
        if text == "S~":
            cut = int(self.random.integers(len(self.shape) + 1)) if self.random.random() < 0.3 else 0
            return tuple(1 if self.random.random() < 0.15 else n for n in self.shape[cut:])
        if text == "-":
            return ()
        sizes = [self.batch if d == "*B" else (self.size(d),) for d in text.split(",")]
        return tuple(n for several in sizes for n in several)

    def _type(self, name: str) -> str:
        """Of one class the arrays of a call mostly share their type."""
        if name not in self._types or self.random.random() < 0.1:
            dtype = self._choice(CLASSES[name])
            wide = self.x64 and len(CLASSES[name]) > 1 and self.random.random() < 0.6
            self._types[name] = WIDE.get(dtype, dtype) if wide else dtype
            # Of another class too: a function of real and integer arrays is given one type, where that fits.
            for other in self._types.values():
                base = next((k for k, v in WIDE.items() if v == other), other)
                if base in CLASSES[name] and len(CLASSES[name]) > 1 and self.random.random() < 0.8:
                    self._types[name] = other
        return self._types[name]

    @property
    def rank(self) -> int:
        return len(self.inputs[0].shape) if self.inputs else len(self.shape)

    def axis(self) -> str:
        rank = self.rank
        return str(self.random.integers(-rank, rank)) if rank else self._choice(("0", "-1"))

    def axes(self) -> str:
        chosen = self.random.permutation(self.rank)[: self.random.integers(self.rank + 1)]
        return repr(tuple(int(a) - (self.rank if self.random.random() < 0.3 else 0) for a in chosen))

    def permutation(self) -> str:
        return repr(tuple(self.random.permutation(self.rank).tolist()))

    def new_shape(self) -> str:
        return repr(self._choice([s for s in SHAPES if int(np.prod(s)) < 100]))

    def reshaped(self) -> str:
        """A shape with as many elements as the first array has."""
        size = int(np.prod(self.inputs[0].shape))
        factors = [n for n in (2, 3, 4, 5) if size and size % n == 0]
        options = [(size,), (-1,) if size else (0,), (1, size), (size, 1), *((n, size // n) for n in factors)]
        return repr(self._choice(options))

    def dtype(self) -> str:
        name = self._choice(_TYPES)
        return f"'{WIDE.get(name, name) if self.x64 else name}'"

    def inexact(self) -> bool:
        return any(is_inexact(i.dtype) for i in self.inputs)


_SIMPLE: dict[str, Any] = {
    "axis": Drawn.axis,
    "axes": Drawn.axes,
    "permutation": Drawn.permutation,
    "shape": Drawn.new_shape,
    "reshaped": Drawn.reshaped,
    "dtype": Drawn.dtype,
    "rank": lambda drawn: str(drawn.rank),
    "ftype": lambda drawn: (
        f"'{drawn._choice(('float32', 'float16', 'bfloat16', 'float64' if drawn.x64 else 'float32'))}'"
    ),
}
