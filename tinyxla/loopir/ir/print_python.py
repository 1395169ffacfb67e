"""Python printer of the loop IR: a kernel as a Python function, for users to read and for tests to compare with the
compiled kernel.

The function takes the kernel's arguments as one-dimensional NumPy arrays, the range of the outermost index, and the
kernel's parameters. It runs under CPython; its scalars are NumPy's, so that every operation has its element type's
rounding and wrap-around. Vectors are one-dimensional arrays, tiles two-dimensional ones. As in the compiled kernel,
16-bit floats are widened to 32 bits for each operation and rounded after it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tinyxla.loopir.ir.loop_ir import (
    INDEX,
    Address,
    Buffer,
    Call,
    Compute,
    Copy,
    Fence,
    Fill,
    Gather,
    If,
    Index,
    Kernel,
    Literal,
    Load,
    Loop,
    Multiply,
    Operand,
    Prefetch,
    SelectBuffer,
    Shuffle,
    Statement,
    Store,
    TileLoad,
    TileMultiplyAdd,
    TileOperation,
    TileZero,
    Value,
    View,
    lanes_of,
)
from tinyxla.loopir.ir.routines import kernel_of
from tinyxla.ops import ops

_INTEGERS = {f"{sign}{bits}": bits for sign in "su" for bits in (8, 16, 32, 64)}
_CONSTRUCTORS = {
    "pred": "np.bool_",
    **{type: f"np.{'int' if type[0] == 's' else 'uint'}{bits}" for type, bits in _INTEGERS.items()},
    **{f"f{bits}": f"np.float{bits}" for bits in (16, 32, 64)},
    **{f"c{bits}": f"np.complex{bits}" for bits in (64, 128)},
    "bf16": "ml_dtypes.bfloat16",
}
_16_BIT_FLOATS = ("f16", "bf16")


def print_python(kernel: Kernel, name: str | None = None) -> str:
    """The source of a kernel as the function `name` (by default the kernel's name), with imports, helper functions and
    the routines that it calls."""
    functions: dict[str, str] = {}
    waiting: list[tuple[str, Kernel]] = [(name or kernel.name, kernel)]
    for function, printed in waiting:
        printer = _Printer(printed)
        functions = {function: printer.source(function), **functions}
        waiting += [(x, y) for x, y in printer.routines.items() if x not in functions]
    defined = "\n\n\n".join(functions.values())
    text = "\n\n".join([*(_HELPERS[helper] for helper in _helpers(defined)), f"\n{defined}\n"])
    modules = ["numpy as np", *(module for module in _MODULES if f"{module}." in text)]
    return "\n".join(f"import {module}" for module in sorted(modules)) + f"\n\n{text}"


# A value is an expression over the operands `{0}`, `{1}`, ...; `{bits}` is their width, other names are attributes.

_ARITHMETIC: Mapping[str, str] = {"add": "{0} + {1}", "subtract": "{0} - {1}", "multiply": "{0} * {1}"}

_EXTREMA = {f"{name}{of}": f"np.{name}({{0}}, {{1}})" for name in ("maximum", "minimum") for of in ("", "-of-numbers")}

_FLOAT: Mapping[str, str] = {
    **_ARITHMETIC,
    **{name: op.scalar.expression for name, op in ops.items() if op.scalar},
    **{name: f"np.{name}({{0}})" for name in ("ceil", "floor")},
    "abs": "abs({0})",
    "chain-divide": "chain({0}, {1}, {0} / {1})",
    "chain-multiply": "chain({0}, {1}, {0} * {1}, {either})",
    "clamp": "np.minimum(np.maximum({1}, {0}), {2})",
    "divide": "{0} / {1}",
    "imag": "0",
    "is-finite": "np.isfinite({0})",
    **_EXTREMA,
    "multiply-add": "{0} * {1} + {2}",
    "negate": "-{0}",
    "real": "{0}",
    "reduce-precision": "reduce_precision({0}, {exponent_bits}, {mantissa_bits})",
    "round-nearest-afz": "round_away_from_zero({0})",
    "round-nearest-even": "np.rint({0})",
    "sign": "np.copysign(np.sign({0}), {0})",
}

_COMPLEX: Mapping[str, str] = {
    **_FLOAT,
    "atan2": "complex_atan2({0}, {1})",
    "imag": "{0}.imag",
    "logistic": "1 / (1 + np.exp(-{0}))",
    "real": "{0}.real",
    "sign": "complex_sign({0})",
}

_BITWISE: Mapping[str, str] = {"and": "{0} & {1}", "or": "{0} | {1}", "xor": "{0} ^ {1}"}

# Of vectors; other operations go through their lanes.
_VECTOR: Mapping[str, str] = {
    **_ARITHMETIC,
    **_BITWISE,
    "abs": "abs({0})",
    "dot-product-add": "dot_product_add({0}, {1}, {2}, {factors})",
    **_EXTREMA,
    "multiply-add": "{0} * {1} + {2}",
    "negate": "-{0}",
    "select": "np.where({0}, {1}, {2})",
}

_INTEGER: Mapping[str, str] = {
    **_ARITHMETIC,
    **_BITWISE,
    "abs": "abs({0})",
    "clamp": "min(max({1}, {0}), {2})",
    "count-leading-zeros": "{bits} - unsigned({0}, {bits}).bit_length()",
    "divide": "divide({0}, {1})",
    "imag": "0",
    "iota": "np.arange({0}, {0} + {lanes})",
    "lane-mask": "np.arange({0}, {0} + {lanes}) < {1}",
    "maximum": "max({0}, {1})",
    "minimum": "min({0}, {1})",
    "mulhi": "(int({0}) * int({1})) >> {bits}",
    "negate": "-{0}",
    "not": "~{0}",
    "popcnt": "unsigned({0}, {bits}).bit_count()",
    "power": "power({0}, {1})",
    "real": "{0}",
    "remainder": "remainder({0}, {1})",
    "shift-left": "shift_left({0}, {1}, {bits})",
    "shift-right-arithmetic": "shift_right_arithmetic({0}, {1}, {bits})",
    "shift-right-logical": "shift_right_logical({0}, {1}, {bits})",
    "sign": "np.sign({0})",
}

_PRED: Mapping[str, str] = {
    **_BITWISE,
    "add": "{0} | {1}",
    "clamp": "({1} | {0}) & {2}",
    "maximum": "{0} | {1}",
    "minimum": "{0} & {1}",
    "multiply": "{0} & {1}",
    "not": "not {0}",
}

_INDEX: Mapping[str, str] = {**_INTEGER, "divide": "{0} // {1}", "remainder": "{0} % {1}"}

_DIRECTIONS = {"EQ": "==", "NE": "!=", "GE": ">=", "GT": ">", "LE": "<=", "LT": "<"}

# Functions that NumPy lacks, printed before kernels that call them.
_HELPERS: Mapping[str, str] = {
    "address": """
def address(array, index):  # in bytes from the beginning of the array that it is a part of
    return (getattr(array, "start", 0) + index) * array.dtype.itemsize
""",
    "call": """
def call(name, *arrays):
    routine = tinyxla.backends.numba.runtime.blas_symbols.routine(name)
    types = [ctypes.c_void_p] * len(arrays)
    ctypes.CFUNCTYPE(None, *types)(routine)(*(x.ctypes.data for x in arrays))
""",
    "chain": """
def chain(g, d, product, either=False):
    return type(g)(0) if g == 0 or (either and d == 0) else product
""",
    "complex_atan2": """
def complex_atan2(y, x):
    return -1j * np.log((x + 1j * y) / np.sqrt((x + 1j * y) * (x - 1j * y)))
""",
    "complex_sign": """
def complex_sign(x):
    return x / abs(x) if x != 0 else x
""",
    "divide": """
def divide(x, y):
    if y == 0:
        return ~(x - x)
    if y == -1:
        return -x
    quotient = x // y
    return quotient + 1 if quotient * y != x and (x < 0) != (y < 0) else quotient
""",
    "dot_product_add": """
def dot_product_add(x, y, addend, factors):
    products = x.view(factors).astype(addend.dtype) * y.view(factors).astype(addend.dtype)
    return addend + products.reshape(addend.size, -1).sum(1, addend.dtype)
""",
    "elements": """
class elements:  # of an array from one on, before which others have negative indices
    def __init__(self, array, start):
        is_part = isinstance(array, elements)
        self.array, self.start = (array.array, array.start + start) if is_part else (array, start)
        self.dtype = self.array.dtype

    def __getitem__(self, index):
        return self.array[self.index(index)]

    def __setitem__(self, index, value):
        self.array[self.index(index)] = value

    def index(self, index):
        if not isinstance(index, slice):
            return self.start + index
        return slice(self.start + index.start, None if index.stop is None else self.start + index.stop)

    def view(self, dtype):
        array = self.array.view(dtype)
        return elements(array, self.start * self.dtype.itemsize // array.dtype.itemsize)
""",
    "erf": """
def erf(x):
    return type(x)(math.erf(x))
""",
    "erf_inv": """
def erf_inv(x):
    return scipy.special.erfinv(x)
""",
    "flushed": """
def flushed(x, dtype):  # of floats the normal ones, else zeros
    x = x.astype(dtype)
    return np.where(abs(x) < np.finfo(dtype).tiny, np.copysign(dtype.type(0), x), x) if dtype.kind == "f" else x
""",
    "logistic": """
def logistic(x):
    return 1 / (1 + np.exp(-x))
""",
    "power": """
def power(x, y):
    if y >= 0:
        return x**y
    if x == 1 or x == -1:
        return x if y % 2 else x * x
    return x - x
""",
    "reduce_precision": """
def reduce_precision(x, exponent_bits, mantissa_bits):
    if x == 0 or not np.isfinite(x):
        return x
    fraction, exponent = math.frexp(x)  # 0.5 <= abs(fraction) < 1
    bias = 2 ** (exponent_bits - 1) - 1
    rounded = math.ldexp(round(math.ldexp(fraction, mantissa_bits + 1)), exponent - mantissa_bits - 1)
    if abs(rounded) >= math.ldexp(1.0, bias) * 2:
        rounded = math.inf
    if abs(rounded) < math.ldexp(1.0, 1 - bias):
        rounded = 0.0
    return type(x)(math.copysign(rounded, x))
""",
    "lanewise": """
def lanewise(function, *operands):
    lanes = max(np.size(x) for x in operands)
    return np.array([function(*lane) for lane in zip(*(np.broadcast_to(x, lanes) for x in operands))])
""",
    "masked_gather": """
def masked_gather(buffer, indices, mask):
    lanes = np.zeros(mask.size, buffer.dtype)
    lanes[mask] = buffer[indices[mask]]
    return lanes
""",
    "masked_load": """
def masked_load(buffer, start, mask):
    lanes = np.zeros(mask.size, buffer.dtype)
    lanes[mask] = buffer[start + np.flatnonzero(mask)]
    return lanes
""",
    "masked_store": """
def masked_store(buffer, start, mask, lanes):
    buffer[start + np.flatnonzero(mask)] = lanes[mask]
""",
    "multiply": """
def multiply(c, c_start, c_strides, a, a_start, a_strides, b, b_start, b_strides, m, n, k, accumulate):
    for i in range(m):
        for j in range(n):
            index = c_start + i * c_strides[0] + j * c_strides[1]
            if not accumulate:
                c[index] = 0
            for p in range(k):
                left = a[a_start + i * a_strides[0] + p * a_strides[1]]
                c[index] += left * b[b_start + p * b_strides[0] + j * b_strides[1]]
""",
    "remainder": """
def remainder(x, y):
    if y == 0:
        return x
    if y == -1:
        return x - x
    modulus = x % y
    return modulus - y if modulus != 0 and (x < 0) != (y < 0) else modulus
""",
    "round_away_from_zero": """
def round_away_from_zero(x):
    truncated = np.trunc(x)
    return truncated + np.copysign(type(x)(abs(x - truncated) >= 0.5), x)
""",
    "saturated": """
def saturated(x, low, high):
    x = float(x)  # exact
    if x != x:
        return 0
    return low if x <= low else high if x >= high else int(x)
""",
    "shift_left": """
def shift_left(x, y, bits):
    return x << y if 0 <= y < bits else x - x
""",
    "shift_right_arithmetic": """
def shift_right_arithmetic(x, y, bits):
    high = unsigned(x, bits) >> (bits - 1)
    extended = (unsigned(x, bits) - (high << bits)) >> (min(int(y), bits - 1) if y >= 0 else bits - 1)
    return np.array(extended & ((1 << bits) - 1), f"u{bits // 8}").view(type(x))[()]
""",
    "shift_right_logical": """
def shift_right_logical(x, y, bits):
    shifted = unsigned(x, bits) >> int(y) if 0 <= y < bits else 0
    return np.array(shifted, f"u{bits // 8}").view(type(x))[()]
""",
    "tile_load": """
def tile_load(rows, columns, buffer, start, pitch):
    return np.stack([buffer[start + i * pitch : start + i * pitch + columns] for i in range(rows)])
""",
    "tile_multiply_add": """
def tile_multiply_add(accumulator, left, right, factors):
    dtype = accumulator.dtype
    wide = np.dtype(np.float64) if dtype.kind == "f" else dtype  # products are exact
    left, right = (flushed(x.view(factors).reshape(*x.shape, -1), dtype).astype(wide) for x in (left, right))
    sums = np.zeros((*accumulator.shape, left.shape[2]), dtype)  # of the first factors of words, the second ones, ...
    for k in range(len(right)):
        sums = flushed(sums + left[:, k, None] * right[k], dtype)
    return flushed(flushed(accumulator, dtype) + flushed(sums.sum(2, dtype), dtype), dtype)
""",
    "tile_store": """
def tile_store(tile, buffer, start, pitch):
    for i, row in enumerate(tile):
        buffer[start + i * pitch : start + i * pitch + row.size] = row
""",
    "total_order": """
def total_order(x):
    bits = 8 * x.itemsize
    pattern = int(x.view(f"i{bits // 8}"))
    return pattern if pattern >= 0 else -(1 << (bits - 1)) - 1 - pattern
""",
    "unsigned": """
def unsigned(x, bits):
    return int(x) & ((1 << bits) - 1)
""",
}
_MODULES = ("ctypes", "math", "ml_dtypes", "scipy.special", "tinyxla.backends.numba.runtime.blas_symbols")


class _Printer:
    """Prints one kernel. Indices are Python ints in the printed text, other values NumPy scalars; `indices` are the
    names of the former, `routines` the kernels that it calls."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.lines: list[str] = []
        self.parameters = [kernel.first, kernel.last, *kernel.parameters]
        self.indices = {value.name for value in self.parameters if value.type == INDEX}
        self.routines: dict[str, Kernel] = {}

    def source(self, name: str) -> str:
        kernel = self.kernel
        for buffer in kernel.scratch:
            self.lines.append(f"    {buffer.name} = np.empty({buffer.size}, {_CONSTRUCTORS[buffer.type]})")
        self._block(kernel.body, "    ")
        names = [x.name for x in (*kernel.arguments, *self.parameters)]
        return "\n".join([f"def {name}({', '.join(names)}):", *(self.lines or ["    pass"])])

    def _block(self, statements: Sequence[Statement], indent: str) -> None:
        for statement in statements:
            if isinstance(statement, Compute):
                self.lines.append(f"{indent}{statement.result.name} = {self._expression(statement)}")
            elif isinstance(statement, Load):
                self.lines.append(f"{indent}{statement.result.name} = {self._load(statement)}")
            elif isinstance(statement, Store):
                self.lines.append(f"{indent}{self._store(statement)}")
            elif isinstance(statement, Shuffle):
                self.lines.append(f"{indent}{statement.result.name} = {self._shuffle(statement)}")
            elif isinstance(statement, View):
                elements = self._elements(statement.buffer, statement.index)
                self.lines.append(f"{indent}{statement.result.name} = {elements}")
            elif isinstance(statement, Prefetch | Fence):
                continue  # without effect on values
            elif isinstance(statement, Address):
                self.indices.add(statement.result.name)
                element = f"{statement.buffer.name}, {self._index(statement.index)}"
                self.lines.append(f"{indent}{statement.result.name} = address({element})")
            elif isinstance(statement, Copy):
                target, source = (
                    self._slice(*end, statement.count)
                    for end in ((statement.target, statement.target_index), (statement.source, statement.source_index))
                )
                self.lines.append(f"{indent}{target} = {source}")
            elif isinstance(statement, Fill):
                elements = self._slice(statement.buffer, statement.index, statement.count)
                self.lines.append(f"{indent}{elements} = 0")
            elif isinstance(statement, If):
                self._branch(statement, indent)
            elif isinstance(statement, Multiply):
                self.lines.append(f"{indent}{self._multiply(statement)}")
            elif isinstance(statement, Call):
                self.lines.append(f"{indent}{self._call(statement)}")
            elif isinstance(statement, SelectBuffer):
                x = statement
                chosen = f"{x.on_true.name} if {x.condition.name} else {x.on_false.name}"
                self.lines.append(f"{indent}{x.result.name} = {chosen}")
            elif isinstance(statement, Gather):
                self.lines.append(f"{indent}{statement.result.name} = {self._gather(statement)}")
            elif isinstance(statement, TileOperation):
                self.lines.append(f"{indent}{self._tile_operation(statement)}")
            else:
                self._loop(statement, indent)

    def _call(self, x: Call) -> str:
        """A call of a kernel, with arrays of its types, or of native code."""
        kernel = kernel_of(x.routine)
        if kernel is None:
            arrays = [f"{buffer.name}[{self._index(index)}:]" for buffer, index in x.arguments]
            return f"call({', '.join([repr(x.routine), *arrays])})"
        self.routines[x.routine] = kernel
        arguments = [self._elements(*argument) for argument in x.arguments]
        for k, (parameter, (given, _)) in enumerate(zip(kernel.arguments, x.arguments, strict=False)):
            if parameter.type != given.type:
                arguments[k] += f".view({_CONSTRUCTORS[parameter.type]})"
        bounds = ["0", "1"]
        if kernel.parameters:
            arguments.pop()
            bounds.append(f"*{self._slice(*x.arguments[-1], len(kernel.parameters))}.tolist()")
        return f"{x.routine}({', '.join([*arguments, *bounds])})"

    def _load(self, x: Load) -> str:
        if x.mask is not None:
            return f"masked_load({x.buffer.name}, {self._index(x.index)}, {x.mask.name})"
        element = self._element(x.buffer, x.index, x.result.lanes)
        return element if x.result.lanes == 1 else f"{element}.copy()"

    def _gather(self, x: Gather) -> str:
        if x.mask is not None:
            return f"masked_gather({x.buffer.name}, {x.indices.name}, {x.mask.name})"
        return f"{x.buffer.name}[{x.indices.name}]"

    def _tile_operation(self, x: TileOperation) -> str:
        """An operation on tiles, which are arrays of two dimensions."""
        if isinstance(x, TileMultiplyAdd):
            operands = f"{x.accumulator.name}, {x.left.name}, {x.right.name}, {_CONSTRUCTORS[x.factors]}"
            return f"{x.accumulator.name} = tile_multiply_add({operands})"
        tile = x.tile
        if isinstance(x, TileZero):
            return f"{tile.name} = np.zeros(({tile.rows}, {tile.columns}), {_CONSTRUCTORS[tile.type]})"
        memory = f"{x.buffer.name}, {self._index(x.index)}, {self._index(x.pitch)}"
        if isinstance(x, TileLoad):
            return f"{tile.name} = tile_load({tile.rows}, {tile.columns}, {memory})"
        return f"tile_store({tile.name}, {memory})"

    def _store(self, x: Store) -> str:
        value = self._operand(x.value)
        if x.mask is not None:
            return f"masked_store({x.buffer.name}, {self._index(x.index)}, {x.mask.name}, {value})"
        return f"{self._element(x.buffer, x.index, lanes_of(x.value))} = {value}"

    def _elements(self, buffer: Buffer, index: Index) -> str:
        """The elements of a buffer from an index on; all of a buffer are the buffer."""
        return buffer.name if index == 0 else f"elements({buffer.name}, {self._index(index)})"

    def _element(self, buffer: Buffer, index: Index, lanes: int) -> str:
        """An element of a buffer, or those of a vector."""
        return f"{buffer.name}[{self._index(index)}]" if lanes == 1 else self._slice(buffer, index, lanes)

    def _slice(self, buffer: Buffer, index: Index, count: Index) -> str:
        """So many elements of a buffer."""
        start = self._index(index)
        return f"{buffer.name}[{start} : {start} + {self._index(count)}]"

    def _shuffle(self, x: Shuffle) -> str:
        operands = [self._operand(operand) for operand in x.operands]
        if lanes_of(x.operands[0]) == 1 and not any(x.order):
            return f"np.full({x.result.lanes}, {operands[0]})"
        lanes = operands[0] if len(operands) == 1 else f"np.hstack(({', '.join(operands)}))"
        return f"{lanes}[{x.order[0] if x.result.lanes == 1 else list(x.order)}]"

    def _multiply(self, x: Multiply) -> str:
        matrices = [
            f"{m.buffer.name}, {self._index(m.start)}, {strides[::-1] if m.transposed else strides}"
            for m in (x.result, x.left, x.right)
            for strides in [(m.pitch, 1)]
        ]
        return f"multiply({', '.join([*matrices, *map(self._index, (*x.sizes, x.accumulate))])})"

    def _branch(self, x: If, indent: str) -> None:
        self.lines.append(f"{indent}if {x.condition.name}:")
        self._body(x.on_true, [(choice.result, choice.on_true) for choice in x.choices], indent + "    ")
        if x.on_false or x.choices:
            self.lines.append(f"{indent}else:")
            self._body(x.on_false, [(choice.result, choice.on_false) for choice in x.choices], indent + "    ")

    def _body(self, statements: Sequence[Statement], results: Sequence[tuple[Value, Operand]], indent: str) -> None:
        """A body of a branch, and what values become of it."""
        before = len(self.lines)
        self._block(statements, indent)
        self.lines += [f"{indent}{result.name} = {self._operand(operand)}" for result, operand in results]
        if len(self.lines) == before:
            self.lines.append(f"{indent}pass")

    def _loop(self, loop: Loop, indent: str) -> None:
        self.indices.add(loop.index.name)
        for carried in loop.carried:
            self.lines.append(f"{indent}{carried.arg.name} = {self._operand(carried.init)}")
        start, stop = self._index(loop.start), self._index(loop.stop)
        bounds = stop if loop.start == 0 and loop.step == 1 else f"{start}, {stop}"
        if loop.step != 1:
            bounds += f", {loop.step}"
        self.lines.append(f"{indent}for {loop.index.name} in range({bounds}):")
        body = len(self.lines)
        self._block(loop.body, indent + "    ")
        if loop.continue_while is not None:
            self.lines.append(f"{indent}    more = {self._operand(loop.continue_while)}")
        if loop.carried:
            names = ", ".join(carried.arg.name for carried in loop.carried)
            updates = ", ".join(self._operand(carried.next or carried.arg) for carried in loop.carried)
            self.lines.append(f"{indent}    {names} = {updates}")
        if loop.continue_while is not None:
            self.lines.append(f"{indent}    if not more:")
            self.lines.append(f"{indent}        break")
        if len(self.lines) == body:
            self.lines.append(f"{indent}    pass")
        for carried in loop.carried:
            self.lines.append(f"{indent}{carried.result.name} = {carried.arg.name}")

    def _index(self, index: Index | Operand) -> str:
        if isinstance(index, Value):
            return index.name
        return str(index.value if isinstance(index, Literal) else index)

    def _operand(self, operand: Operand) -> str:
        if isinstance(operand, Literal):
            return _literal(operand)
        return f"np.int64({operand.name})" if operand.name in self.indices else operand.name

    def _expression(self, compute: Compute) -> str:
        op, attributes = compute.op, dict(compute.attributes)
        if "index" in attributes:
            self.indices.add(compute.result.name)
            return _INDEX[op].format(*(self._index(operand) for operand in compute.operands))
        operands = [self._operand(operand) for operand in compute.operands]
        if max(map(lanes_of, compute.operands), default=1) == 1:
            return self._operation(compute, operands)
        if op == "bitcast-convert":
            vector = self._operation(compute, operands)
            return vector if compute.result.lanes > 1 else f"{vector}[0]"
        if op in _VECTOR and compute.result.type not in _16_BIT_FLOATS:
            return _VECTOR[op].format(*operands, **{x: _CONSTRUCTORS.get(y, y) for x, y in attributes.items()})
        lane = [f"x{k}" for k in range(len(operands))]
        return f"lanewise(lambda {', '.join(lane)}: {self._operation(compute, lane)}, {', '.join(operands)})"

    def _operation(self, compute: Compute, operands: list[str]) -> str:
        """An operation on scalars as an expression."""
        op, result, attributes = compute.op, compute.result.type, dict(compute.attributes)
        type = compute.operands[-1].type
        if op == "copy":
            return operands[0]
        if op == "select":
            return f"{operands[1]} if {operands[0]} else {operands[2]}"
        if op == "complex":
            return f"{_CONSTRUCTORS[result]}(complex({operands[0]}, {operands[1]}))"
        if op == "bitcast-convert":
            return f"{operands[0]}.view({_CONSTRUCTORS[result]})"
        if op == "convert":
            return _conversion(operands[0], type, result)
        if type in _16_BIT_FLOATS:
            operands = [f"np.float32({operand})" for operand in operands]
        if op == "compare":
            return _comparison(operands, type, **attributes)
        template = _table(type)[op]
        expression = template.format(*operands, bits=_INTEGERS.get(type, 0), **attributes)
        exact = type in ("f32", "f64", "c64", "c128") and op not in ("imag", "real")
        if exact or (result == "pred" and op != "not"):
            return expression
        return f"{_CONSTRUCTORS[result]}({expression})"


def _table(type: str) -> Mapping[str, str]:
    if type in _INTEGERS:
        return _INTEGER
    return _PRED if type == "pred" else _COMPLEX if type in ("c64", "c128") else _FLOAT


def _comparison(operands: Sequence[str], type: str, direction: str, compare_type: str = "") -> str:
    left, right = operands
    if compare_type == "TOTALORDER" and type not in _INTEGERS:
        left, right = f"total_order({left})", f"total_order({right})"
    return f"{left} {_DIRECTIONS[direction]} {right}"


def _conversion(operand: str, source: str, target: str) -> str:
    """Conversion by value: floats saturate to integers, complex numbers lose their imaginary part to become real."""
    if source in ("c64", "c128") and target not in ("c64", "c128"):
        operand, source = f"{operand}.real", "f32" if source == "c64" else "f64"
    if target == "pred":
        return f"{operand} != 0"
    if target in _INTEGERS and source in _INTEGERS:
        return f"{operand}.astype({_CONSTRUCTORS[target]})"
    if target in _INTEGERS and source != "pred":
        bits = _INTEGERS[target]
        low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if target[0] == "s" else (0, (1 << bits) - 1)
        return f"{_CONSTRUCTORS[target]}(saturated({operand}, {low}, {high}))"
    if target == "bf16" and source != "f32":
        operand = f"np.float32({operand})"
    return f"{_CONSTRUCTORS[target]}({operand})"


def _literal(literal: Literal) -> str:
    value: Any = literal.value
    constructor = _CONSTRUCTORS[literal.type]
    if literal.type in ("c64", "c128"):
        return f"{constructor}(complex({_float(value.real)}, {_float(value.imag)}))"
    if literal.type == "pred":
        return f"{constructor}({bool(value)})"
    return f"{constructor}({int(value) if literal.type in _INTEGERS else _float(value)})"


def _float(value: float) -> str:
    if value != value:
        return "np.nan"
    if abs(value) == float("inf"):
        return "np.inf" if value > 0 else "-np.inf"
    return repr(float(value))


def _helpers(text: str) -> list[str]:
    """The names of the helpers that a text calls, directly or through other helpers, sorted."""
    helpers: set[str] = set()
    texts = [text]
    while texts:
        current = texts.pop()
        new = {name for name in _HELPERS if re.search(rf"(?<![.\w]){name}\(", current)} - helpers
        helpers |= new
        texts += [_HELPERS[name] for name in sorted(new)]
    return sorted(helpers)
