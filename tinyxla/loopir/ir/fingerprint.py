"""Fingerprints of kernels: the text of the loop IR with names replaced by ordinals in order of appearance
(alpha-renaming), so that kernels that differ in names only have equal fingerprints.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from tinyxla.loopir.ir.loop_ir import (
    Address,
    Buffer,
    Call,
    Compute,
    Copy,
    Fence,
    Fill,
    Gather,
    If,
    Kernel,
    Literal,
    Load,
    Matrix,
    Multiply,
    Prefetch,
    SelectBuffer,
    Shuffle,
    Statement,
    Store,
    Tile,
    TileLoad,
    TileMultiplyAdd,
    TileStore,
    TileZero,
    Value,
    View,
)


def kernel_fingerprint(kernel: Kernel) -> str:
    """The key of a kernel in the caches of compiled code: equal texts mean equal kernels. Much cheaper than code
    generation."""
    return _Fingerprint().kernel(kernel)


class _Fingerprint:
    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self.lines: list[str] = []

    def kernel(self, kernel: Kernel) -> str:
        for buffer in (*kernel.arguments, *kernel.scratch):
            self.lines.append(f"{self._new(buffer)} {buffer.type} {buffer.size} {buffer.written}")
        for value in (kernel.first, kernel.last, *kernel.parameters):
            self.lines.append(f"{self._new(value)} {value.type}")
        for tile in kernel.tiles:
            self.lines.append(f"{self._new(tile)} {tile.type} tile {tile.rows} {tile.columns}")
        self._block(kernel.body)
        return "\n".join(self.lines)

    def _new(self, defined: Value | Buffer | Tile) -> str:
        return self.names.setdefault(defined.name, f"%{len(self.names)}")

    def _text(self, operand: Any) -> str:
        if isinstance(operand, Value):
            return self.names[operand.name]
        if isinstance(operand, Literal):
            return f"{operand.type}:{_exact(operand.value)}"
        return str(operand)

    def _matrix(self, x: Matrix) -> str:
        return f"({self.names[x.buffer.name]} {self._text(x.start)} {x.pitch} {x.transposed})"

    def _mask(self, mask: Value | None) -> str:
        return "" if mask is None else f" mask {self.names[mask.name]}"

    def _block(self, statements: Sequence[Statement]) -> None:
        lines, text = self.lines, self._text
        for statement in statements:
            if isinstance(statement, Compute):
                operands = " ".join(map(text, statement.operands))
                result = statement.result
                lines.append(f"{self._new(result)} {result.type} {statement.op} {operands} {statement.attributes}")
            elif isinstance(statement, Load):
                source = self.names[statement.buffer.name]
                lanes = "" if statement.result.lanes == 1 else f" {statement.result.lanes}"
                masked = self._mask(statement.mask)
                lines.append(f"{self._new(statement.result)} load {source} {text(statement.index)}{lanes}{masked}")
            elif isinstance(statement, Store):
                target = self.names[statement.buffer.name]
                options = self._mask(statement.mask) + " nontemporal" * statement.is_nontemporal
                lines.append(f"store {target} {text(statement.index)} {text(statement.value)}{options}")
            elif isinstance(statement, Shuffle):
                operands = " ".join(map(text, statement.operands))
                lines.append(f"{self._new(statement.result)} shuffle {operands} {statement.order}")
            elif isinstance(statement, View):
                source = self.names[statement.buffer.name]
                lines.append(f"{self._new(statement.result)} view {source} {text(statement.index)}")
            elif isinstance(statement, Prefetch):
                target = self.names[statement.buffer.name]
                level = statement.cache_level
                lines.append(f"prefetch {target} {text(statement.index)} {statement.for_writing} {level}")
            elif isinstance(statement, Copy):
                x = statement
                ends = f"{self.names[x.target.name]} {text(x.target_index)} {self.names[x.source.name]}"
                lines.append(f"copy {ends} {text(x.source_index)} {text(x.count)}")
            elif isinstance(statement, Fill):
                target = self.names[statement.buffer.name]
                lines.append(f"fill {target} {text(statement.index)} {text(statement.count)}")
            elif isinstance(statement, Address):
                source = self.names[statement.buffer.name]
                lines.append(f"{self._new(statement.result)} address {source} {text(statement.index)}")
            elif isinstance(statement, Fence):
                lines.append("fence")
            elif isinstance(statement, If):
                lines.append(f"if {text(statement.condition)} {{")
                self._block(statement.on_true)
                lines.append("} else {")
                self._block(statement.on_false)
                lines.append("}")
                for choice in statement.choices:
                    lines.append(f"{self._new(choice.result)} choice {text(choice.on_true)} {text(choice.on_false)}")
            elif isinstance(statement, Multiply):
                matrices = " ".join(map(self._matrix, (statement.result, statement.left, statement.right)))
                lines.append(f"multiply {matrices} {' '.join(map(text, (*statement.sizes, statement.accumulate)))}")
            elif isinstance(statement, Call):
                operands = " ".join(f"{self.names[buffer.name]} {text(index)}" for buffer, index in statement.arguments)
                lines.append(f"call {statement.routine} {operands}")
            elif isinstance(statement, SelectBuffer):
                sources = f"{self.names[statement.on_true.name]} {self.names[statement.on_false.name]}"
                lines.append(f"{self._new(statement.result)} select-buffer {text(statement.condition)} {sources}")
            elif isinstance(statement, Gather):
                source, masked = self.names[statement.buffer.name], self._mask(statement.mask)
                lines.append(f"{self._new(statement.result)} gather {source} {text(statement.indices)}{masked}")
            elif isinstance(statement, TileZero):
                lines.append(f"tile-zero {self.names[statement.tile.name]}")
            elif isinstance(statement, TileLoad | TileStore):
                op = "tile-load" if isinstance(statement, TileLoad) else "tile-store"
                ends = f"{self.names[statement.tile.name]} {self.names[statement.buffer.name]}"
                lines.append(f"{op} {ends} {text(statement.index)} {text(statement.pitch)}")
            elif isinstance(statement, TileMultiplyAdd):
                tiles = " ".join(
                    self.names[tile.name] for tile in (statement.accumulator, statement.left, statement.right)
                )
                lines.append(f"tile-multiply-add {tiles} {statement.factors}")
            else:
                bounds = f"{text(statement.start)} {text(statement.stop)} {statement.step} {statement.sequential}"
                bounds += f" {statement.force_vectorize} {statement.has_remainder} {statement.nonempty}"
                initials = " ".join(text(carried.init) for carried in statement.carried)
                parameters = " ".join(f"{self._new(c.arg)} {c.arg.type}" for c in statement.carried)
                lines.append(f"for {self._new(statement.index)} {bounds} ({initials}) ({parameters}) {{")
                self._block(statement.body)
                lines.append(f"}} {' '.join(text(c.next) for c in statement.carried)} {text(statement.continue_while)}")
                for carried in statement.carried:
                    self._new(carried.result)


def _exact(value: Any) -> str:
    """The text of a literal; of a NaN its bits, which its text hides."""
    if value == value:
        return repr(value)
    return struct.pack("dd", value.real, value.imag).hex()
