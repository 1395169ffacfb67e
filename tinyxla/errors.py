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

from tinyxla.util.name_stacks import extended, shown
from tinyxla.util.tracebacks import PACKAGE as _PACKAGE, FilteredTraceback, install, is_own


class SourceLine(NamedTuple):
    """A line of the user's program: where an instruction was made, or where an error arose."""

    file: str
    line: int
    function: str
    scope: str = ""  # the `named_scope`s around it and what transformed it, as `util.name_stacks` says
    frontend_attributes: tuple[tuple[str, str], ...] = ()  # names and texts for the compiler, as programs give them

    def __str__(self) -> str:
        text = linecache.getline(self.file, self.line).strip()
        where = ", ".join(filter(None, (self.function, shown(self.scope))))
        return f"{self.file}:{self.line} ({where})" + (f": {text}" if text else "")

    def inside(self, scope: str) -> SourceLine:
        """The same line inside of further scopes."""
        return self.moved(extended(scope, self.scope)) if scope else self

    def moved(self, scope: str) -> SourceLine:
        """The same line in another scope."""
        if self.scope == scope:
            return self
        return SourceLine(self.file, self.line, self.function, scope, self.frontend_attributes)


def user_line(scope: str = "") -> SourceLine | None:
    """The innermost line on the call stack that is not the library's own, in a scope."""
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        code = frame.f_code
        file = code.co_filename
        passed = _passed_files.get(file)
        if passed is None:
            names = frame.f_globals
            own = str(names.get("__file__", "")).startswith(_PACKAGE)
            module = str(names.get("__name__", ""))  # of decorators, or one that has an error to tell
            passed = own or module == "contextlib" or module.startswith("importlib")
            if not file.startswith("<"):  # generated methods have no file: their modules have
                _passed_files[file] = passed
        if not passed:
            return SourceLine(file, frame.f_lineno, code.co_name, scope)
        frame = frame.f_back
    return None


_passed_files: dict[str, bool] = {}  # whether lines of a file are not the user's


_MAX_WRAPPERS = 4  # calls between the user's and the function that it names: wrappers, at most


def _called_function() -> str:
    """The public function of the library that the user's innermost line calls, such as "scipy.linalg.expm"; nothing for
    methods and operators."""
    frame: FrameType | None = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    own: list[FrameType] = []
    while frame is not None and is_own(frame):
        own.append(frame)
        frame = frame.f_back
    names = (_public_name(frame) for frame in own[: -_MAX_WRAPPERS - 1 : -1])
    return next((name for name in names if name), "")


def _public_name(frame: FrameType) -> str:
    """The name, without that of the package, of a function in a public module; nothing for others. The modules that
    users import from are those that explain a missing name: they have a `__getattr__`."""
    name, path = frame.f_code.co_name, str(frame.f_globals.get("__name__", ""))
    while name[:1] not in "_<" and "." in path:
        names = vars(sys.modules[path]) if path in sys.modules else {}
        function = inspect.unwrap(names[name]) if callable(names.get(name)) else None
        is_public = "__getattr__" in names and name in names.get("__all__", names)
        if is_public and getattr(function, "__code__", None) is frame.f_code:
            return f"{path.partition('.')[2]}.{name}"
        path = path.rpartition(".")[0]
    return ""


class TinyxlaError(FilteredTraceback, Exception):
    """Base of all errors that the library raises on purpose; `line` is the user's line, if there is one. `ending()` is
    the end of the message: it is asked for when the text is, since programs catch errors and never look at them.

    Each is also what NumPy and JAX raise: a `ShapeError` is a `ValueError` and a `TypeError`.

    >>> import tinyxla.numpy as jnp
    >>> from tinyxla.errors import TinyxlaError
    >>> try:
    ...     jnp.zeros(2) + jnp.zeros(3)
    ... except TinyxlaError as error:
    ...     print(type(error).__name__, error.line.function, error.line.line)
    ShapeError <module> 2
    """

    _names_function = False  # whether the text begins with the function that was called, where it does not name it

    _ending: Callable[[], str] = staticmethod(str)

    def __init__(self, message: str, line: SourceLine | None = None, ending: Callable[[], str] | None = None) -> None:
        self.line = line if line and line.file else user_line()
        install(TinyxlaError)
        if self._names_function:
            called = _called_function()
            if called and not re.match(rf"([\w.]+\.)?{called.rpartition('.')[2]}\b", message):
                message = f"{called}: {message}"
        self._message = message
        super().__init__(self._with_line(message))
        if ending is not None:
            self._ending = lambda: self._with_line(f"{self._message}{ending()}")

    def _with_line(self, message: str) -> str:
        return f"{message}\n  at {self.line}" if self.line else message

    def add_prefix(self, prefix: str) -> None:
        """Say at the beginning of the message of what it is."""
        self._message = f"{prefix}{self._message}"
        self.args = (self._with_line(self._message),)

    def __str__(self) -> str:
        return self._ending() or super().__str__()

    def __reduce__(self) -> tuple[Any, ...]:
        """What pickles hold: the text and the line, so that an error in another process is seen as it is."""
        known = (bool, int, float, str, tuple, type(None))
        text = self._ending()
        arguments = (text,) if text else self.args
        return _unpickled, (type(self), arguments, {k: v for k, v in vars(self).items() if isinstance(v, known)})

    def add_user_line(self) -> None:
        """Name the line of the user who waits for the thread in which this was raised, where there is no such line."""
        line = user_line()
        if self.line is None and line is not None:
            self.line = line
            self.args = (self._with_line(self._message),)


def _unpickled(kind: type[TinyxlaError], arguments: tuple[Any, ...], attributes: dict[str, Any]) -> TinyxlaError:
    error = kind.__new__(kind)
    error.args = arguments
    vars(error).update(attributes)
    return error


# NumPy and JAX raise different built-in classes for the same mistake: NumPy a `ValueError` for shapes that do not
# broadcast, JAX a `TypeError`. The classes here derive from both, so programs written for either catch them.


class ShapeError(TinyxlaError, TypeError, ValueError):
    """Shapes, dimensions or sizes that do not fit each other or the operation.

    >>> import tinyxla.numpy as jnp
    >>> jnp.zeros(2) + jnp.zeros(3)
    Traceback (most recent call last):
        ...
    tinyxla.errors.ShapeError: add: Incompatible shapes for broadcasting: (2,) and (3,): sizes at dimension -1 ...
    """

    _names_function = True


class AxisError(ShapeError, np.exceptions.AxisError):
    """An axis that the array does not have. NumPy's error of this name is also an `IndexError`.

    >>> import tinyxla.numpy as jnp
    >>> jnp.sum(jnp.zeros((2, 3)), axis=2)
    Traceback (most recent call last):
        ...
    tinyxla.errors.AxisError: sum: axis 2 is out of range for an array with 2 dimensions; use one from -2 to 1.
      at ...
    """

    def __init__(self, message: str, line: SourceLine | None = None) -> None:
        super().__init__(message, line)
        self.axis = self.ndim = None

    __str__ = Exception.__str__  # NumPy's builds a text from its own arguments


class SquareMatrixError(ShapeError, np.linalg.LinAlgError):
    """Arrays that are not matrices, or not square ones, where linear algebra needs them.

    >>> import tinyxla.numpy as jnp
    >>> jnp.linalg.inv(jnp.zeros((2, 3)))
    Traceback (most recent call last):
        ...
    tinyxla.errors.SquareMatrixError: linalg.inv: takes square matrices, but got f32[2,3].
      at ...
    """


class DTypeError(TinyxlaError, TypeError, ValueError):
    """Element types that do not fit each other or the operation.

    >>> import tinyxla.numpy as jnp
    >>> jnp.floor_divide(jnp.zeros(2, complex), 2)
    Traceback (most recent call last):
        ...
    tinyxla.errors.DTypeError: floor_divide: complex numbers have no order, so there is no floor of their quotient.
      at ...
    """

    _names_function = True


class PromotionError(DTypeError):
    """Element types without a common one, or different ones where that is not allowed.

    >>> import tinyxla.numpy as jnp
    >>> import tinyxla
    >>> with tinyxla.numpy_dtype_promotion("strict"):
    ...     jnp.zeros(2, jnp.int32) + jnp.zeros(2, jnp.float32)
    Traceback (most recent call last):
        ...
    tinyxla.errors.PromotionError: The element types f32 and s32 differ, and numpy_dtype_promotion is 'strict'; ...
    """


class ResultTypeError(ShapeError, DTypeError):
    """The function of a loop or of a branch gives other shapes or element types than it must.

    >>> import tinyxla.numpy as jnp
    >>> from tinyxla import lax
    >>> lax.while_loop(lambda x: True, lambda x: jnp.zeros(3), 0.0)
    Traceback (most recent call last):
        ...
    tinyxla.errors.ResultTypeError: lax.while_loop: what is carried is f32[] (weakly typed) at the start, but the ...
    """


class NonFiniteError(TinyxlaError, FloatingPointError):
    """A result with a NaN or an infinity, where `debug_nans` or `debug_infs` is set.

    >>> import tinyxla
    >>> import tinyxla.numpy as jnp
    >>> with tinyxla.debug_nans(True):
    ...     jnp.log(-1.0)
    Traceback (most recent call last):
        ...
    tinyxla.errors.NonFiniteError: log: the result has a NaN, while no operand has any.
      at ...
    """


class AttributeValueError(TinyxlaError, TypeError, ValueError):
    """An attribute or option of an operation with a value that it cannot have.

    >>> from tinyxla import lax
    >>> lax.round(1.5, rounding_method=7)
    Traceback (most recent call last):
        ...
    tinyxla.errors.AttributeValueError: lax.round: rounding_method is one of RoundingMethod, but got 7.
      at ...
    """

    _names_function = True


class NumberRangeError(TinyxlaError, OverflowError, TypeError, ValueError):
    """A Python number that is outside the range of an element type: an OverflowError as of NumPy, a TypeError as of
    JAX's `lax`, whose numbers have types of their own.

    >>> import tinyxla.numpy as jnp
    >>> jnp.zeros(2, jnp.int8) + 300
    Traceback (most recent call last):
        ...
    tinyxla.errors.NumberRangeError: The Python integer 300 does not fit the element type int8.
      at ...
    """

    _names_function = True


class InconclusiveDimensionOperation(TinyxlaError, TypeError, ValueError):
    """A comparison of symbolic dimensions that their constraints do not decide, or their value is wanted.

    >>> from tinyxla import export
    >>> (n,) = export.symbolic_shape("n")
    >>> n > 3
    Traceback (most recent call last):
        ...
    tinyxla.errors.InconclusiveDimensionOperation: Whether n > 3 depends on the size of symbolic dimensions. If ...
    """


class SizeError(TinyxlaError, MemoryError, ValueError):
    """An array that no memory can hold: a MemoryError, and a ValueError as of NumPy.

    >>> import tinyxla.numpy as jnp
    >>> jnp.zeros(10**18)
    Traceback (most recent call last):
        ...
    tinyxla.errors.SizeError: numpy.zeros: broadcast: an array f32[1000000000000000000] has more bytes than a ...
    """

    _names_function = True


class ArgumentError(TinyxlaError, TypeError, ValueError):
    """An argument that is not of a kind the function takes.

    >>> import tinyxla
    >>> tinyxla.grad(3.0)
    Traceback (most recent call last):
        ...
    tinyxla.errors.ArgumentError: grad takes a function, but got 3.0 of type float.
      at ...
    """

    _names_function = True


class BatchingError(ArgumentError, NotImplementedError):
    """A function that cannot be mapped over examples by `vmap`.

    >>> import numpy as np
    >>> import tinyxla
    >>> tinyxla.vmap(lambda x: tinyxla.pure_callback(np.sin, x, x))(tinyxla.numpy.ones(3))
    Traceback (most recent call last):
        ...
    tinyxla.errors.BatchingError: vmap: the call of pure_callback of sin does not say how it is mapped; pass ...
    """


class SparseRuleError(ArgumentError, NotImplementedError):
    """An operation of sparse arrays whose result would be dense, or that has no form for them.

    >>> import tinyxla
    >>> from tinyxla.experimental import sparse
    >>> sparse.sparsify(tinyxla.numpy.cos)(sparse.BCOO.fromdense(tinyxla.numpy.arange(3.0)))
    Traceback (most recent call last):
        ...
    tinyxla.errors.SparseRuleError: sparsify: a function whose value at zero is 1.0. Use sparse.todense() on the ...
      at ...
    """


class CallbackError(ArgumentError, RuntimeError):
    """A result of a function that runs on the host which is not as it was declared.

    >>> import numpy as np
    >>> import tinyxla
    >>> tinyxla.pure_callback(np.sum, tinyxla.ShapeDtypeStruct((3,), "float32"), np.ones(3, np.float32))
    Traceback (most recent call last):
        ...
    tinyxla.errors.CallbackError: pure_callback of sum must give f32[3], as result_shape_dtypes says, but it gave ...
    """


class ShardingTypeError(ShapeError):
    """An operation on sharded arrays whose result has no unique sharding."""


class PartialSumError(ShardingTypeError, NotImplementedError):
    """An operation on partial sums that is not linear in them: it needs the sum.

    >>> import tinyxla as tx
    >>> from tinyxla.sharding import AxisType, PartitionSpec as P, reshard
    >>> with tx.set_mesh(tx.make_mesh((1,), ("x",), axis_types=(AxisType.Explicit,))):
    ...     tx.numpy.sin(reshard(tx.numpy.ones(2), P(unreduced={"x"})))
    Traceback (most recent call last):
        ...
    tinyxla.errors.PartialSumError: sine: it is not linear, so it does not take partial sums, of f32[2]{U:x}; ...
    """


class ManualAxisError(ArgumentError, NotImplementedError):
    """A transformation of axes that a function of parts, of `shard_map`, is about.

    >>> import tinyxla
    >>> from tinyxla.sharding import auto_axes
    >>> P, mesh = tinyxla.P, tinyxla.make_mesh((1,), ("x",))
    >>> f = auto_axes(lambda x: x, axes="x", out_sharding=P())
    >>> tinyxla.shard_map(f, mesh=mesh, in_specs=P("x"), out_specs=P("x"))(tinyxla.numpy.ones(2))
    Traceback (most recent call last):
        ...
    tinyxla.errors.ManualAxisError: auto_axes: the axis 'x' is manual here, in a function of parts; ...
    """


class PartitioningRuleError(ArgumentError, NotImplementedError):
    """A function of `custom_partitioning` without a rule that is needed.

    >>> import tinyxla
    >>> raise tinyxla.errors.PartitioningRuleError("f: pass sharding_rule to def_partition.")
    Traceback (most recent call last):
        ...
    tinyxla.errors.PartitioningRuleError: f: pass sharding_rule to def_partition.
      at ...
    """


class MeshError(ArgumentError, RuntimeError):
    """A partition spec where there is no mesh with its axes.

    >>> import tinyxla
    >>> import tinyxla.numpy as jnp
    >>> tinyxla.device_put(jnp.zeros(2), tinyxla.P("x"))
    Traceback (most recent call last):
        ...
    tinyxla.errors.MeshError: device_put: PartitionSpec('x') needs a mesh; use set_mesh, or pass a NamedSharding.
      at ...
    """


class PlatformError(TinyxlaError, NotImplementedError):
    """A platform (such as "gpu") that the library does not run on.

    >>> import tinyxla
    >>> tinyxla.devices("gpu")
    Traceback (most recent call last):
        ...
    tinyxla.errors.PlatformError: devices: Unknown backend 'gpu'; the only one is 'cpu'.
      at ...
    """


class ProfilerError(ArgumentError, RuntimeError):
    """A trace of the profiler that is started while one is running, or stopped while none is.

    >>> import tinyxla
    >>> tinyxla.profiler.stop_trace()
    Traceback (most recent call last):
        ...
    tinyxla.errors.ProfilerError: stop_trace: no trace is running; call start_trace first.
      at ...
    """


class PlatformsDifferError(PlatformError):
    """A function that is not the same for all platforms, in a program of several devices: these have one function for
    all."""


class ExportedPlatformError(PlatformError, ArgumentError):
    """A program that was exported for other platforms than that on which it is called.

    >>> import tinyxla
    >>> from tinyxla import export
    >>> export.export(tinyxla.jit(lambda x: x), platforms=["tpu"])(1.0).call(1.0)
    Traceback (most recent call last):
        ...
    tinyxla.errors.ExportedPlatformError: <lambda> was exported for the platforms tpu, but runs on a CPU here; ...
      at ...
    """


class PytreeError(ArgumentError):
    """Trees whose structures do not fit each other.

    >>> import tinyxla
    >>> tinyxla.tree.map(lambda x, y: x + y, [1, 2], [1, 2, 3])
    Traceback (most recent call last):
        ...
    tinyxla.errors.PytreeError: tree_map: the trees have different structures. At the root the first list has 2 ...
    """


class NestingError(TinyxlaError, RecursionError):
    """Functions, or containers, that are nested deeper than Python's or optree's recursion goes.

    >>> import tinyxla
    >>> tree = 1
    >>> for _ in range(5000):
    ...     tree = [tree]
    >>> tinyxla.tree.leaves(tree)
    Traceback (most recent call last):
        ...
    tinyxla.errors.NestingError: A pytree has containers in each other, more than 1000 levels or as many as ...
    """


class DeletedError(TinyxlaError, RuntimeError):
    """An array that was deleted, or whose memory was donated to a compiled function.

    >>> import tinyxla.numpy as jnp
    >>> x = jnp.zeros(2)
    >>> x.delete()
    >>> x + 1
    Traceback (most recent call last):
        ...
    tinyxla.errors.DeletedError: Array has been deleted with shape=float32[2]: it was donated to a compiled ...
    """


class ExportError(TinyxlaError, BufferError):
    """An array that cannot be exported as another library wants it.

    >>> import tinyxla.numpy as jnp
    >>> jnp.zeros(2).__dlpack__(dl_device=(2, 0))
    Traceback (most recent call last):
        ...
    tinyxla.errors.ExportError: __dlpack__: the array is on the CPU, (1, 0), but dl_device is (2, 0); leave it out.
      at ...
    """


class MissingPackageError(TinyxlaError, ImportError):
    """A package that a function needs, and that cannot be imported.

    >>> from tinyxla.runtime.imports import requiring
    >>> with requiring("scypy", "SciPy", "lax.zeta"):
    ...     import scypy
    Traceback (most recent call last):
        ...
    tinyxla.errors.MissingPackageError: lax.zeta needs SciPy, which cannot be imported (ModuleNotFoundError: No ...
    """


class OutOfBoundsError(TinyxlaError, IndexError):
    """An index outside its axis.

    >>> import tinyxla.numpy as jnp
    >>> jnp.zeros(2)[5]
    Traceback (most recent call last):
        ...
    tinyxla.errors.OutOfBoundsError: indexing: index 5 is out of range for axis 0 of size 2, of an array of shape ...
    """


class IndexTypeError(DTypeError, IndexError):
    """An index of a kind or element type that cannot index.

    >>> import tinyxla.numpy as jnp
    >>> jnp.zeros(2)[0.5]
    Traceback (most recent call last):
        ...
    tinyxla.errors.IndexTypeError: indexing: indices are integers or booleans, but got an array of float64; ...
    """


class UnknownOptionError(AttributeValueError, AttributeError):
    """A name that is no option of `config`.

    >>> import tinyxla
    >>> tinyxla.config.update("enable_x46", True)
    Traceback (most recent call last):
        ...
    tinyxla.errors.UnknownOptionError: There is no option 'enable_x46'. Did you mean 'enable_x64'? The options ...
    """


class UnknownNameError(TinyxlaError, AttributeError):
    """A name that a module does not have. What may be meant is looked for when the text is asked for, since Python
    itself tries names that do not exist.

    >>> import tinyxla.numpy as jnp
    >>> jnp.cumsums
    Traceback (most recent call last):
        ...
    tinyxla.errors.UnknownNameError: The module tinyxla.numpy has no 'cumsums'. Did you mean 'cumsum'?
      at ...
    """


class AxisNameError(TinyxlaError, NameError):
    """The name of an axis that no function around is mapped over.

    >>> from tinyxla import lax
    >>> lax.psum(1.0, "batch")
    Traceback (most recent call last):
        ...
    tinyxla.errors.AxisNameError: lax.psum: there is no axis named 'batch'; no axis has a name here. Call it ...
    """


class DifferentiationError(TinyxlaError, TypeError, ValueError):
    """A derivative that is not defined, or not for these arguments.

    >>> import tinyxla
    >>> tinyxla.grad(lambda x: x * x)(3)
    Traceback (most recent call last):
        ...
    tinyxla.errors.DifferentiationError: grad of <lambda>: argument 0 is s32[], of element type int32, for which ...
    """


class MissingRuleError(DifferentiationError, AttributeError):
    """A function that was decorated with `custom_jvp`, `custom_vjp` or `custom_vmap` is called and has no rule.

    >>> import tinyxla
    >>> @tinyxla.custom_jvp
    ... def f(x):
    ...     return x
    >>> f(1.0)
    Traceback (most recent call last):
        ...
    tinyxla.errors.MissingRuleError: custom_jvp of f has no rule; define one with f.defjvp.
      at ...
    """


class TracerError(TinyxlaError, TypeError):
    """A traced value used where only a concrete one can stand.

    >>> import tinyxla
    >>> from tinyxla.errors import TracerError
    >>> try:
    ...     tinyxla.jit(float)(1.0)
    ... except TracerError as error:
    ...     print(type(error).__name__)
    ConcretizationError
    """


class ConcretizationError(TracerError):
    """The value of a tracer is needed, but at this point only its shape and type are known.

    >>> import tinyxla
    >>> tinyxla.jit(float)(1.0)
    Traceback (most recent call last):
        ...
    tinyxla.errors.ConcretizationError: float() needs the value of a traced array f32[], but inside the traced ...
    """


class TracerBoolConversionError(ConcretizationError):
    """A tracer decides what Python does next: `if`, `while`, `and`, `or`, `not`.

    >>> import tinyxla
    >>> tinyxla.jit(lambda x: 1 if x > 0 else 0)(2.0)
    Traceback (most recent call last):
        ...
    tinyxla.errors.TracerBoolConversionError: A Python condition (if, while, and, or, not, bool()) needs the ...
    """


class TracerIntegerConversionError(ConcretizationError):
    """A tracer is used as a Python index.

    >>> import tinyxla
    >>> tinyxla.jit(lambda k: [1, 2, 3][k])(0)
    Traceback (most recent call last):
        ...
    tinyxla.errors.TracerIntegerConversionError: A Python integer (an index, a size, the end of a range) needs ...
    """


class TracerArrayConversionError(ConcretizationError):
    """A tracer is made into a NumPy array.

    >>> import numpy as np
    >>> import tinyxla
    >>> tinyxla.jit(np.asarray)(1.0)
    Traceback (most recent call last):
        ...
    tinyxla.errors.TracerArrayConversionError: A NumPy array (functions of tinyxla.numpy take traced arrays) ...
    """


class NonConcreteBooleanIndexError(ConcretizationError, IndexError):
    """A traced boolean mask is used as an index: how many elements it picks is not known.

    >>> import tinyxla
    >>> import tinyxla.numpy as jnp
    >>> tinyxla.jit(lambda x: x[x > 0])(jnp.zeros(2))
    Traceback (most recent call last):
        ...
    tinyxla.errors.NonConcreteBooleanIndexError: A boolean mask as an index needs the value of a traced array ...
    """


class NonConcreteSliceError(ConcretizationError, IndexError):
    """A bound of a slice is traced: which size the result has is not known.

    >>> import tinyxla
    >>> tinyxla.jit(lambda n: tinyxla.numpy.arange(5)[:n])(2)
    Traceback (most recent call last):
        ...
    tinyxla.errors.NonConcreteSliceError: A slice bound (for a slice of fixed size at a traced place use ...
    """


class LeakedTracerError(TracerError):
    """A tracer was used after the function that it belongs to had ended.

    >>> import tinyxla
    >>> kept = []
    >>> result = tinyxla.jit(lambda x: kept.append(x) or x)(1.0)
    >>> kept[0] + 1
    Traceback (most recent call last):
        ...
    tinyxla.errors.LeakedTracerError: A tracer f32[] is used after the traced function <lambda>, to which it ...
    """


class ClosedOverTracerError(DifferentiationError, LeakedTracerError):
    """A function with derivative rules of its own, or such a rule, closes over a tracer that the rules know nothing of.

    >>> import tinyxla
    >>> def f(x):
    ...     g = tinyxla.custom_jvp(lambda y: x * y)
    ...     g.defjvp(lambda primals, tangents: (g(*primals), x * tangents[0]))
    ...     return g(2.0)
    >>> tinyxla.grad(f)(3.0)
    Traceback (most recent call last):
        ...
    tinyxla.errors.ClosedOverTracerError: <lambda>: the function uses an outer value that a derivative is wanted ...
    """


class WorkError(TinyxlaError, RuntimeError):
    """Something is traced or run where an option says that nothing must be."""


class TextError(TinyxlaError, ValueError):
    """Text that cannot be read: `lineno` and `column` (from 1) say where, and `text` is that line; `reason` says what
    is wrong.

    >>> from tinyxla.errors import TextError
    >>> from tinyxla.text import parse_hlo
    >>> try:
    ...     parse_hlo("HloModule m, x")
    ... except TextError as error:
    ...     print(error.lineno, error.column, error.reason)
    1 15 expected '=', but the text ends
    """

    def __init__(self, message: str, lineno: int, column: int, text: str) -> None:
        self.reason = message
        self.lineno = lineno
        self.column = column
        self.text = text
        start = max(0, column - 80)
        shown = text[start : column + 40]
        super().__init__(f"line {lineno}, column {column}: {message}\n    {shown}\n    {' ' * (column - 1 - start)}^")


class HloSyntaxError(TextError):
    """HLO text that cannot be read.

    >>> from tinyxla.text import parse_hlo
    >>> parse_hlo("HloModule m, x")
    Traceback (most recent call last):
        ...
    tinyxla.errors.HloSyntaxError: line 1, column 15: expected '=', but the text ends
        HloModule m, x
             ...
    """


class MlirSyntaxError(TextError):
    """MLIR text, such as that of StableHLO programs, that cannot be read.

    >>> from tinyxla import stablehlo
    >>> stablehlo.parse("func.func @main(")
    Traceback (most recent call last):
        ...
    tinyxla.errors.MlirSyntaxError: line 1, column 17: the text ends too early
        func.func @main(
                  ...
    """


class BytecodeError(TinyxlaError, ValueError):
    """Bytes that are no artifact of StableHLO, or a damaged one: `offset` is the byte where reading ended, and `reason`
    says what is wrong.

    >>> from tinyxla import stablehlo
    >>> stablehlo.parse(bytes([0x4D, 0x4C, 0xEF, 0x52]))  # the number of MLIR's format, and nothing behind it
    Traceback (most recent call last):
        ...
    tinyxla.errors.BytecodeError: byte 4: the bytes end too early
      at ...
    """

    def __init__(self, message: str, offset: int) -> None:
        self.reason = message
        self.offset = offset
        super().__init__(f"byte {offset}: {message}")


class FileFormatError(TinyxlaError, ValueError):
    """A file that is not in the format it should have, or is damaged.

    >>> import pathlib, tempfile
    >>> import tinyxla
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "weights")
    ...     _ = path.write_text("no tree")
    ...     tinyxla.load(path)
    Traceback (most recent call last):
        ...
    tinyxla.errors.FileFormatError: ...weights is no file of arrays in the safetensors format, or ...
    """


class DeadlockError(TinyxlaError, RuntimeError):
    """Replicas wait for one another, or for one that has ended.

    >>> from tinyxla import xla
    >>> b, other = xla.XlaBuilder("receiver"), xla.XlaBuilder("other")
    >>> x = b.Recv(xla.ShapeUtil.MakeShape(xla.F32, []), xla.CreateChannelHandle())
    >>> xla.execute_parallel([(b.Build(x), []), (other.Build(other.Constant(1.0)), [])])
    Traceback (most recent call last):
        ...
    tinyxla.errors.DeadlockError: execute_parallel: no replica can go on: replica 0 waits in recv-done on channel ...
    """


class ProcessError(TinyxlaError, RuntimeError):
    """Processes of an MPI program that went different ways, or one that uses what only the program's own may."""


class KernelError(TinyxlaError, RuntimeError):
    """A kernel of the user's raised an exception in a compiled program. Inside `with tinyxla.disable_jit():` the
    kernel's own exception is raised instead."""


class ChannelError(TinyxlaError, RuntimeError):
    """A channel with more than two ends, or one that nothing is at the other end of.

    >>> from tinyxla import xla
    >>> b = xla.XlaBuilder("sender")
    >>> token = b.Send(b.Constant(1.0), xla.ChannelHandle(7))
    >>> program = b.Build(b.Constant(True))
    >>> xla.execute_parallel([(program, []), (program, [])])
    Traceback (most recent call last):
        ...
    tinyxla.errors.ChannelError: execute_parallel: channel 7 has two senders, replica ...
    """


class TransferError(TinyxlaError, RuntimeError):
    """A transfer between the host and a program that did not come about in time, or was closed.

    >>> from tinyxla import xla
    >>> xla.transfer_from_outfeed(timeout=0.0)
    Traceback (most recent call last):
        ...
    tinyxla.errors.TransferError: the outfeed of replica 0 has nothing to be taken; transfer something first ...
    """


class VerificationError(TinyxlaError, ValueError):
    """A graph that breaks a rule of graphs: an error in the library, or in a graph built by hand.

    >>> from tinyxla import hlo, xla
    >>> b = xla.XlaBuilder("main")
    >>> computation = b.Build(b.Neg(b.Constant(1.0))).computation
    >>> reordered = hlo.Computation("main", [], computation.instructions[::-1], computation.root)
    >>> hlo.verify(hlo.Module("main", reordered))
    Traceback (most recent call last):
        ...
    tinyxla.errors.VerificationError: main: <negate(constant:f32[]) -> f32[]> comes before its operand ...
    """


class TransferGuardError(TinyxlaError, RuntimeError):
    """An implicit transfer to a device, or between devices, that a transfer guard refuses.

    >>> import numpy as np
    >>> import tinyxla
    >>> with tinyxla.transfer_guard("disallow"):
    ...     tinyxla.jit(lambda x: 2 * x)(np.ones(3))
    Traceback (most recent call last):
        ...
    tinyxla.errors.TransferGuardError: jit of <lambda>: float64[3] is copied from the host to a device, which ...
    """


class NoEffectWarning(UserWarning):
    """An option or an argument that changes nothing here, though it asks for something.

    >>> import warnings
    >>> from tinyxla.errors import NoEffectWarning, warn
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     warn("The option has no effect here.")
    >>> caught[0].category is NoEffectWarning
    True
    """


class RankPromotionWarning(UserWarning):
    """Arrays of different ranks that broadcast, where the option `numpy_rank_promotion` is "warn".

    >>> import warnings
    >>> import tinyxla
    >>> import tinyxla.numpy as jnp
    >>> with warnings.catch_warnings(record=True) as seen, tinyxla.numpy_rank_promotion("warn"):
    ...     warnings.simplefilter("always")
    ...     result = jnp.ones((2, 3)) + jnp.ones(3)
    >>> seen[0].category.__name__
    'RankPromotionWarning'
    """


def warn(message: str, category: type[Warning] = NoEffectWarning) -> None:
    """A warning that names the user's line.

    >>> import warnings
    >>> from tinyxla.errors import warn
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     warn("donation has no effect here")
    >>> caught[0].category.__name__, str(caught[0].message)
    ('NoEffectWarning', 'donation has no effect here')
    """
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
    "CallbackError",
    "ChannelError",
    "ClosedOverTracerError",
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
    "NonConcreteSliceError",
    "NonFiniteError",
    "NumberRangeError",
    "OutOfBoundsError",
    "PlatformError",
    "PromotionError",
    "PytreeError",
    "RankPromotionWarning",
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
    "TransferGuardError",
    "UnexpectedTracerError",
    "UnknownNameError",
    "UnknownOptionError",
    "VerificationError",
]


def __dir__() -> list[str]:
    return __all__
