"""The errors users meet. Each says what is wrong, with the values, and what to do; and each names the user's own
line.
"""

from __future__ import annotations

import inspect
import linecache
import re
import sys
import warnings
from collections.abc import Callable
from types import FrameType
from typing import Any, NamedTuple

import numpy as np

from tinyxla.util.tracebacks import PACKAGE as _PACKAGE, FilteredTraceback, install, is_own


class SourceLine(NamedTuple):
    """A line of the user's program: where an instruction was made, or where an error arose."""

    file: str
    line: int
    function: str
    scope: str = ""  # the names of the `named_scope`s around it, joined by "/"

    def __str__(self) -> str:
        text = linecache.getline(self.file, self.line).strip()
        where = f"{self.function}, {self.scope}" if self.scope else self.function
        return f"{self.file}:{self.line} ({where})" + (f": {text}" if text else "")


def user_line() -> SourceLine | None:
    """The innermost line on the call stack that is not the library's own."""
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        code = frame.f_code
        own = str(frame.f_globals.get("__file__", "")).startswith(_PACKAGE)  # methods that are generated have no file
        imports = str(frame.f_globals.get("__name__", "")).startswith("importlib")  # modules that have an error to tell
        if not (own or imports):
            return SourceLine(code.co_filename, frame.f_lineno, code.co_name)
        frame = frame.f_back
    return None


_MOST_WRAPPERS = 4  # calls between the user's and the function that it names: wrappers, at most


def _called_function() -> str:
    """The public function of the library that the user's innermost line calls, such as "scipy.linalg.expm"; nothing for
    methods and operators."""
    frame: FrameType | None = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    own: list[FrameType] = []
    while frame is not None and is_own(frame):
        own.append(frame)
        frame = frame.f_back
    names = (_public_name(frame) for frame in own[: -_MOST_WRAPPERS - 1 : -1])
    return next((name for name in names if name), "")


def _public_name(frame: FrameType) -> str:
    """The name, without that of the package, of a function in a public module; nothing for others. The modules that
    users import from are those that explain a missing name: they have a `__getattr__`."""
    name, path = frame.f_code.co_name, str(frame.f_globals.get("__name__", ""))
    while name[:1] not in "_<" and "." in path:
        names = vars(sys.modules[path]) if path in sys.modules else {}
        function = inspect.unwrap(names[name]) if callable(names.get(name)) else None
        if "__getattr__" in names and getattr(function, "__code__", None) is frame.f_code:
            return f"{path.partition('.')[2]}.{name}"
        path = path.rpartition(".")[0]
    return ""


class TinyxlaError(FilteredTraceback, Exception):
    """Base of all errors that the library raises on purpose; `line` is the user's line, if there is one."""

    _names_function = False  # whether the text begins with the function that was called, where it does not name it

    def __init__(self, message: str, line: SourceLine | None = None) -> None:
        self.line = line or user_line()
        install(TinyxlaError)
        if self._names_function:
            called = _called_function()
            if called and not re.match(rf"([\w.]+\.)?{called.rpartition('.')[2]}\b", message):
                message = f"{called}: {message}"
        super().__init__(f"{message}\n  at {self.line}" if self.line else message)

    def __reduce__(self) -> tuple[Any, ...]:
        """What pickles hold: the text and the line, so that an error in another process is seen as it is."""
        known = (bool, int, float, str, tuple, type(None))
        return _unpickled, (type(self), self.args, {k: v for k, v in vars(self).items() if isinstance(v, known)})

    def add_user_line(self) -> None:
        """Name the line of the user who waits for the thread in which this was raised, where there is no such line."""
        line = user_line()
        if self.line is None and line is not None:
            self.line = line
            self.args = (f"{self.args[0]}\n  at {line}",)


def _unpickled(kind: type[TinyxlaError], arguments: tuple[Any, ...], attributes: dict[str, Any]) -> TinyxlaError:
    error = kind.__new__(kind)
    error.args = arguments
    vars(error).update(attributes)
    return error


# NumPy and JAX raise different built-in classes for the same mistake: NumPy a `ValueError` for shapes that do not
# broadcast, JAX a `TypeError`. The classes here derive from both, so programs written for either catch them.


class ShapeError(TinyxlaError, TypeError, ValueError):
    """Dimensions, axes or sizes that do not fit."""

    _names_function = True


class AxisError(ShapeError, np.exceptions.AxisError):
    """An axis that the array does not have. NumPy's error of this name is also an `IndexError`."""

    def __init__(self, message: str, line: SourceLine | None = None) -> None:
        super().__init__(message, line)
        self.axis = self.ndim = None

    __str__ = Exception.__str__  # NumPy's builds a text from its own arguments


class SquareMatrixError(ShapeError, np.linalg.LinAlgError):
    """Arrays that are not matrices, or not square ones, where linear algebra needs them."""


class DTypeError(TinyxlaError, TypeError, ValueError):
    """Element types that do not fit."""

    _names_function = True


class PromotionError(DTypeError):
    """Element types without a common one, or different ones where that is not allowed."""


class ResultTypeError(ShapeError, DTypeError):
    """Results of the functions of a loop or of a branch with other shapes or types than they must have."""


class NonFiniteError(TinyxlaError, FloatingPointError):
    """A result with a NaN or an infinity, where `debug_nans` or `debug_infs` is set."""


class AttributeValueError(TinyxlaError, TypeError, ValueError):
    """An attribute or option of an operation with a value that it cannot have."""

    _names_function = True


class NumberRangeError(TinyxlaError, OverflowError, TypeError, ValueError):
    """A Python number that is outside the range of an element type: an OverflowError as of NumPy, a TypeError as of
    JAX's `lax`, whose numbers have types of their own."""

    _names_function = True


class InconclusiveDimensionOperation(TinyxlaError, TypeError, ValueError):
    """A comparison of symbolic dimensions that their constraints do not decide, or their value is wanted."""


class SizeError(TinyxlaError, MemoryError, ValueError):
    """An array that no memory can hold: a MemoryError, and a ValueError as of NumPy."""

    _names_function = True


class ArgumentError(TinyxlaError, TypeError, ValueError):
    """An argument that is not of a kind the function takes."""

    _names_function = True


class ShardingTypeError(ShapeError):
    """How arrays are split does not say how the result of an operation is."""


class MeshError(ArgumentError, RuntimeError):
    """A partition spec without a mesh that it speaks of."""


class PlatformError(TinyxlaError, RuntimeError):
    """A platform that is not there."""


class PytreeError(ArgumentError):
    """Trees whose structures do not fit each other."""


class NestingError(TinyxlaError, RecursionError):
    """Functions, or containers, that are nested deeper than Python's or optree's recursion goes."""


class DeletedError(TinyxlaError, RuntimeError):
    """An array whose memory was given to a compiled function."""


class ExportError(TinyxlaError, BufferError):
    """An array that cannot be exported as another library wants it."""


class MissingPackageError(TinyxlaError, ImportError):
    """A package that a function needs, and that cannot be imported."""


class OutOfBoundsError(TinyxlaError, IndexError):
    """An index outside its axis."""


class IndexTypeError(DTypeError, IndexError):
    """An index of a kind or element type that cannot index."""


class UnknownOptionError(AttributeValueError, AttributeError):
    """A name that is no option of `config`."""


class UnknownNameError(TinyxlaError, AttributeError):
    """A name that a module does not have. What may be meant is looked for when the text is asked for, since Python
    itself tries names that do not exist."""

    _hint: Callable[[], str] = staticmethod(str)

    def __init__(self, message: str, hint: Callable[[], str] = str) -> None:
        super().__init__(message)
        self._message = message
        self._hint = hint

    def __reduce__(self) -> tuple[Any, ...]:
        self._message, self._hint = self._message + self._hint(), str
        return super().__reduce__()

    def __str__(self) -> str:
        where = f"\n  at {self.line}" if self.line else ""
        return f"{self._message}{self._hint()}{where}"


class AxisNameError(TinyxlaError, NameError):
    """The name of an axis that no function around is mapped over."""


class DifferentiationError(TinyxlaError, TypeError, ValueError):
    """A derivative that is not defined, or not for these arguments."""


class MissingRuleError(DifferentiationError, AttributeError):
    """A derivative of a function that was decorated with `custom_jvp` or `custom_vjp` and has no rule."""


class TracerError(TinyxlaError, TypeError):
    """A traced value used where only a concrete one can stand."""


class ConcretizationError(TracerError):
    """The value of a tracer is needed, but at this point only its shape and type are known."""


class TracerBoolConversionError(ConcretizationError):
    """A tracer decides what Python does next: `if`, `while`, `and`, `or`, `not`."""


class TracerIntegerConversionError(ConcretizationError):
    """A tracer is used as a Python index."""


class TracerArrayConversionError(ConcretizationError):
    """A tracer is made into a NumPy array."""


class NonConcreteBooleanIndexError(ConcretizationError, IndexError):
    """A traced boolean mask is used as an index: how many elements it picks is not known."""


class LeakedTracerError(TracerError):
    """A tracer was used after the function that it belongs to had ended."""


class TextError(TinyxlaError, ValueError):
    """Text that cannot be read: `lineno` and `column` (from 1) say where, and `text` is that line; `reason` says what
    is wrong."""

    def __init__(self, message: str, lineno: int, column: int, text: str) -> None:
        self.reason = message
        self.lineno = lineno
        self.column = column
        self.text = text
        start = max(0, column - 80)
        shown = text[start : column + 40]
        super().__init__(f"line {lineno}, column {column}: {message}\n    {shown}\n    {' ' * (column - 1 - start)}^")


class HloSyntaxError(TextError):
    """HLO text that cannot be read."""


class MlirSyntaxError(TextError):
    """MLIR text, such as that of StableHLO programs, that cannot be read."""


class BytecodeError(TinyxlaError, ValueError):
    """Bytes that are no artifact of StableHLO, or a damaged one: `offset` is the byte where reading ended, and `reason`
    says what is wrong."""

    def __init__(self, message: str, offset: int) -> None:
        self.reason = message
        self.offset = offset
        super().__init__(f"byte {offset}: {message}")


class FileFormatError(TinyxlaError, ValueError):
    """A file that is not in the format it should have, or is damaged."""


class DeadlockError(TinyxlaError, RuntimeError):
    """Replicas wait for one another, or for one that has ended."""


class ProcessError(TinyxlaError, RuntimeError):
    """Processes of an MPI program that went different ways, or one that uses what only the program's own may."""


class KernelError(TinyxlaError, RuntimeError):
    """A kernel of the user's that raised an exception in a compiled program."""


class ChannelError(TinyxlaError, RuntimeError):
    """A channel with more than two ends, or one that nothing is at the other end of."""


class TransferError(TinyxlaError, RuntimeError):
    """A transfer between the host and a program that did not come about in time, or was closed."""


class VerificationError(TinyxlaError, ValueError):
    """A graph that breaks a rule of graphs: an error in the library, or in a graph built by hand."""


class NoEffectWarning(UserWarning):
    """An option or an argument that changes nothing here, though it asks for something."""


def warn(message: str, category: type[Warning] = NoEffectWarning) -> None:
    """A warning that names the user's line."""
    line = user_line()
    if line is None:
        warnings.warn(message, category, stacklevel=2)
    else:
        warnings.warn_explicit(message, category, line.file, line.line)


# JAX's names of these errors, for programs that catch them.
ConcretizationTypeError = ConcretizationError
JAXIndexError = OutOfBoundsError
JAXTypeError = TracerError
JaxRuntimeError = TinyxlaError
JaxprTypeError = VerificationError
UnexpectedTracerError = LeakedTracerError


__all__ = [
    "ArgumentError",
    "AttributeValueError",
    "AxisError",
    "AxisNameError",
    "ChannelError",
    "ConcretizationError",
    "ConcretizationTypeError",
    "DTypeError",
    "DeadlockError",
    "DeletedError",
    "DifferentiationError",
    "ExportError",
    "FileFormatError",
    "HloSyntaxError",
    "IndexTypeError",
    "JAXIndexError",
    "JAXTypeError",
    "JaxRuntimeError",
    "JaxprTypeError",
    "KernelError",
    "LeakedTracerError",
    "MissingPackageError",
    "MissingRuleError",
    "MlirSyntaxError",
    "NestingError",
    "NoEffectWarning",
    "NonConcreteBooleanIndexError",
    "NonFiniteError",
    "NumberRangeError",
    "OutOfBoundsError",
    "PlatformError",
    "PromotionError",
    "PytreeError",
    "ResultTypeError",
    "ShapeError",
    "SizeError",
    "SquareMatrixError",
    "TextError",
    "TinyxlaError",
    "TracerArrayConversionError",
    "TracerBoolConversionError",
    "TracerError",
    "TracerIntegerConversionError",
    "TransferError",
    "UnexpectedTracerError",
    "UnknownNameError",
    "UnknownOptionError",
    "VerificationError",
]


def __dir__() -> list[str]:
    return __all__
