"""`jit`: functions compiled once for each combination of argument shapes, element types and static arguments.

Calling a compiled function is the hottest Python path of the library. An array has a small number that stands for its
element type, shape and weakness, so a call is looked up by the pytree structure and these numbers.
"""

from __future__ import annotations

import copy
import functools
import inspect
import sys
import weakref
from collections.abc import Callable, Iterable, Sequence
from types import CodeType, FunctionType, MethodType
from typing import Any, Concatenate, Generic, NamedTuple, ParamSpec, overload

import numpy as np

from tinyxla.api import compile_log
from tinyxla.api.aot import Lowered, Traced
from tinyxla.api.compiler_options import check_compiler_options
from tinyxla.api.executables import forget_executables, set_observer
from tinyxla.api.functions import (
    Function,
    ShapeDtypeStruct,
    argument_names,
    as_argument,
    name_of,
    no_array,
    only_described,
    parameter_names,
    trace_tree,
)
from tinyxla.api.jit_arguments import (
    check_conflicting_devices,
    check_constrained,
    check_flags,
    check_static,
    chosen_arguments,
    not_comparable,
    split_positions,
)
from tinyxla.api.kept_traces import forget_traces
from tinyxla.api.per_function import PerFunction
from tinyxla.api.programs import DonatingProgram, PartitionedProgram, Program
from tinyxla.backends import Executable, forget_kernels, load_compiler
from tinyxla.errors import ArgumentError, DTypeError, NestingError, TinyxlaError, WorkError
from tinyxla.partitioning.array import ShardedArray, layout_of
from tinyxla.partitioning.execution import mesh_of
from tinyxla.partitioning.memory_kinds import says_memory_kinds
from tinyxla.partitioning.placement import check_agrees, is_placement, placed, says_where
from tinyxla.runtime.allocation import rarely_collected
from tinyxla.shapes import Shape
from tinyxla.tracing import pytrees
from tinyxla.tracing.array import Array, ConcreteArray, described_signature, signature_of
from tinyxla.tracing.cache_keys import hashable
from tinyxla.tracing.config import config
from tinyxla.tracing.core import Tracer, check_computation, state, unwanted
from tinyxla.tracing.device import Device, check_device, check_placement, default_device
from tinyxla.tracing.float_zeros import is_float0, without_float0
from tinyxla.tracing.meshes import context
from tinyxla.tracing.promotion import as_array
from tinyxla.tracing.references import (
    OuterReferenceError,
    Reference,
    check_aliases,
    closed_over_error,
    discovered,
    filled,
    has_references,
    reference_of,
    slotted,
    updated,
    values_of,
    write_all,
)
from tinyxla.tracing.shardings import SingleDeviceSharding, layout_on
from tinyxla.tracing.signatures import P, R
from tinyxla.tracing.surroundings import Surroundings, surroundings
from tinyxla.tracing.transfers import check_host_values
from tinyxla.transforms.computations import clear_transformed
from tinyxla.transforms.reverse import TapeTracer
from tinyxla.util.tracebacks import PACKAGE, boundary, filter_error
from tinyxla.util.wrapping import Described, wraps

Rest = ParamSpec("Rest")  # the parameters of a method but the first


def observe(observer: Callable[[Executable], Executable] | None) -> None:
    """Let `observer(executable)` run in place of each executable, until this is called with None."""
    set_observer(observer)
    for function in _all_functions():
        function.forget_executables()
    for programs in _shared.values():
        _forget_executables(programs.by_key)


class _Programs(NamedTuple):
    """The programs of a function."""

    by_key: dict[Any, Program]
    by_signatures: dict[Any, Program]  # the same for arrays and numbers, and what is usual besides

    def clear(self) -> None:
        for programs in self:
            programs.clear()


# By functions and what is static and donated: so that a function which is compiled anew by each call is traced once.
_shared = PerFunction[Any, _Programs]()


def _programs_of(function: Function, settings: Any) -> _Programs:
    """The programs of a function, which all that `jit` makes of it with these settings have together."""
    if type(function) is not FunctionType:
        return _Programs({}, {})
    return _shared.of(function).setdefault(settings, _Programs({}, {}))


class _SignatureOfWrapped:
    """The signature of the function that an instance wraps, for `inspect`; the class has its own."""

    def __get__(self, instance: Any, owner: Any = None) -> inspect.Signature | None:
        if instance is None:
            return None
        try:
            return inspect.signature(instance.__wrapped__)
        except ValueError:  # functions of C that say nothing
            return None


class Jitted(Described, Generic[P, R]):
    """A compiled function: what `jit` gives.

    >>> import tinyxla as tx
    >>> double = tx.jit(lambda x: 2 * x)
    >>> double(3.0), isinstance(double, tx.stages.Wrapped)
    (Array(6., dtype=float32, weak_type=True), True)
    """

    __signature__ = _SignatureOfWrapped()

    def __init__(
        self,
        function: Function,
        static: frozenset[int],
        static_names: frozenset[str],
        donated: frozenset[int] = frozenset(),
        donated_names: frozenset[str] = frozenset(),
        inline: bool = False,
        shared_by: tuple[Function, Any] | None = None,
    ) -> None:
        """`shared_by` is the function, and what else decides, whose programs these are, if not `function` alone."""
        wraps(function)(self)
        self._inline = inline
        self.__name__ = name_of(function)
        self._function = function
        self.describe("jit", function)
        self._static = static
        self._static_names = static_names
        self._donated = donated
        self._donated_names = donated_names
        self._flatten = pytrees.Flattener()
        owner, more = (function, None) if shared_by is None else shared_by
        made = _programs_of(owner, (static, static_names, donated, donated_names, more))
        self._programs: dict[Any, Program] = made.by_key
        self._by_signatures: dict[Any, Program] = made.by_signatures
        self._references: list[Reference] = []  # that the function closes over
        self._is_of_values = False  # whether the function is that of references' values, whose caller finds others
        # The functions of references' values, with these.
        self._of_values: dict[Any, tuple[Jitted[..., Any], list[Reference]]] = {}
        _remember(self)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if not (state.staging is not None or state.axes or state.kinds or config.special):
            if kwargs or self._static or self._static_names:
                positional, named, static = self._split(args, kwargs)
                arrays, label = (*positional, *named.values()), (static, *named)
            else:
                arrays, label = args, ()
            signatures = [getattr(x, "_signature", None) for x in arrays]
            try:
                if None in signatures:  # what has one is a concrete array
                    if _CONTAINERS.isdisjoint(map(type, arrays)):
                        arrays, signatures = _with_signatures(arrays)
                    if None in signatures:
                        arrays, treedef = self._flatten(tuple(arrays))
                        arrays, signatures = _with_signatures(arrays)
                        label = (label, treedef)
                program = self._by_signatures.get((label, context.number, *signatures))
            except Exception:  # of what is no array, or static and cannot be hashed or compared: `_program` says so
                program = None
            if program is not None:
                return program.run(arrays)
        try:
            return self._general(args, kwargs)
        except Exception as error:
            filter_error(error)
            raise

    def _general(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Any call: static arguments are taken out, leaves become arrays, and a program is traced if there is none."""
        if config.disable_jit or state.manual is not None:
            return self._function(*args, **kwargs)
        if self._references or has_references((args, kwargs)):
            if Reference.in_rules and any(isinstance(x, TapeTracer) for x in pytrees.leaves((args, kwargs))):
                return self._function(*args, **kwargs)  # backward rules read and write references while they run
            return discovered(lambda references: self._with_references(references, args, kwargs), self._references)
        try:
            program, leaves = self._program(args, kwargs)
        except RecursionError as error:
            raise self._nested_too_deeply(error) from None
        except OuterReferenceError as error:
            if self._is_of_values or not error.reference.is_alive:
                raise
            self._references.append(error.reference)
            return self._general(args, kwargs)
        if program.runs and state.staging is None:
            if config.no_execution:
                raise WorkError(f"jit of {self.__name__}: it runs, but the option no_execution says that nothing does.")
            try:
                program.executable  # noqa: B018 - it is compiled, if it is not yet
            except RecursionError as error:
                raise self._nested_too_deeply(error) from None
            results = program.run(leaves)
            if _checks_values() and unwanted(tuple(x.buffer() for x in pytrees.leaves(results) if not is_float0(x))):
                check_computation(program.computation, [x.buffer() for x in leaves])
            return results
        for k, x in enumerate(leaves):
            if isinstance(x, ShapeDtypeStruct):
                name = parameter_names(self._function, args, kwargs)[k:][:1] or [str(k)]
                raise ArgumentError(
                    f"jit of {self.__name__}: the argument {name[0]} of type {Shape.of(x)} is a ShapeDtypeStruct, "
                    "which has no value to compute with; use lower() or eval_shape."
                )
        try:
            return program.apply(leaves, self._inline and state.staging is not None)
        except RecursionError as error:
            raise self._nested_too_deeply(error) from None

    def _with_references(self, known: list[Reference], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call whose function uses references: that of the function of their values."""
        call = self._of_reference_values(known, args, kwargs)
        result, after = call.function(*call.args, **call.kwargs)
        write_all([*call.outer, *call.passed], after)
        return result

    def _trace_with_references(self, known: list[Reference], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Traced:
        """A trace of a function that uses references: that of the function of their values."""
        call = self._of_reference_values(known, args, kwargs)
        program, _ = call.function._program(call.args, call.kwargs)
        free, named, static = self._split(args, kwargs)
        return Traced(self.__name__, program, self._with_static(len(args), static), (free, named), call.outer)

    def _of_reference_values(
        self, known: list[Reference], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> _CallOfReferenceValues:
        """The function of the values of those references which this one closes over, and of those among its arguments,
        which gives the new ones, too; and its arguments."""
        known[:] = [r for r in known if r.is_alive]
        closed = list(known)
        (given, named), passed = slotted((args, kwargs))
        whole = args, kwargs
        what = f"jit of {self.__name__}"
        check_aliases(what, whole, lambda: parameter_names(self._function, *whole))
        number = len(closed)

        def of_values(values: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
            own = [r.like(x) for r, x in zip(passed, values[number:], strict=True)]
            function = updated(lambda: self._function(*filled(args, own), **filled(kwargs, own)), closed)
            try:
                result, after = function(values[:number])
            except OuterReferenceError as error:
                if any(error.reference.target is r.target for r in passed):
                    names = lambda: parameter_names(self._function, *whole)  # noqa: E731
                    raise closed_over_error(what, error.reference, whole, names) from None
                raise
            for name, x in zip(pytrees.leaf_names(result), pytrees.leaves(result), strict=True):
                if found := reference_of(x):
                    origin = self._origin(found, [*zip(own, passed, strict=True)], whole)
                    raise ArgumentError(
                        f"jit of {self.__name__}: the result{name} is a Ref, {origin}; give the array, ref[...]."
                    )
            return result, [*after, *(r.read() if r.is_written else None for r in own)]

        key = tuple(id(r.target) for r in closed), tuple(r.kind for r in passed)
        made, _ = self._of_values.get(key, (None, None))
        if made is None:
            static, donated = ([n + 1 if n >= 0 else n for n in numbers] for numbers in (self._static, self._donated))
            names = self._static_names, self._donated_names
            function: Any = wraps(self._function)(of_values)
            function.free = None  # it takes the values of references before the arguments
            made = Jitted(function, frozenset(static), names[0], frozenset(donated), names[1])
            made._is_of_values = True
            if all(r.is_lasting for r in closed):
                self._of_values[key] = made, closed
        return _CallOfReferenceValues(made, closed, passed, (values_of([*closed, *passed]), *given), named)

    def _origin(
        self, reference: Reference, passed: Sequence[tuple[Reference, Reference]], whole: tuple[Any, Any]
    ) -> str:
        """Where a reference comes from: the argument for which the traced function has its own one, or the line that
        made it."""
        for own, given in passed:
            if own.target is reference.target:
                numbers = [k for k, x in enumerate(pytrees.leaves(whole)) if x is given.target]
                return f"passed in as the argument {parameter_names(self._function, *whole)[numbers[0]]}"
        return f"made at {reference.source}"

    def _nested_too_deeply(self, error: RecursionError) -> NestingError:
        if isinstance(error, NestingError):
            return error
        return NestingError(
            f"jit of {self.__name__}: Python's limit of {sys.getrecursionlimit()} calls in each other was reached "
            "while it was traced, transformed or compiled. If compiled functions call each other so deeply, take jit "
            "from the inner ones: the outermost compiles them all. If containers are in each other so deeply, use one "
            "list. If the function calls itself, see that it ends, or use lax.fori_loop. Else raise the limit by "
            "sys.setrecursionlimit."
        )

    def _program(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Program, list[Any]]:
        positional, named, static = self._split(args, kwargs)
        leaves, treedef = pytrees.flatten((positional, named) if named else positional)
        signatures = [getattr(x, "_signature", None) for x in leaves]
        if None in signatures:
            if any(map(is_float0, leaves)):
                return self._program(without_float0(args), without_float0(kwargs))
            names = lambda: parameter_names(self._with_static(len(args), static), positional, named)  # noqa: E731
            if config.special:
                check_host_values(f"jit of {self.__name__}", leaves)
            leaves = self._as_arguments(leaves, names)
            signatures = [_signature(x) for x in leaves]
        # a dict may also be the last of the positional arguments
        key = _Key(static, bool(named), surroundings(), treedef, tuple(signatures))
        try:
            program = self._programs.get(key)
        except Exception as error:
            for where, _, value in static:
                check_static(where, value, self.__name__)
            if static and not isinstance(error, TinyxlaError):
                raise not_comparable(self.__name__, static, error) from error
            raise
        if program is None:
            program = self._traced_for_values(key) or self._traced(key, len(args), positional, named, leaves)
            if not any(isinstance(x, Tracer) for x in program.captured):  # which belong to a trace that will end
                have_values = all(type(x) is int for x in signatures)
                program.runs = have_values and not (key.around.axes and program.computation.axis_names)
                if have_values and key.around.are_usual:  # first: an interrupt between must not make it slow
                    self._by_signatures[self._label(positional, named, static), context.number, *signatures] = program
                self._programs[key] = program
        return program, leaves

    def _traced_for_values(self, key: _Key) -> Program | None:
        """For traced arrays, the trace for arrays of the same types, if there is one."""
        if all(type(x) is int for x in key.signatures):
            return None
        numbers = [x if type(x) is int else _signature_of_values(x) for x in key.signatures]
        found = self._programs.get(key._replace(signatures=tuple(numbers)))
        if type(found) is not Program:
            return None
        made = copy.copy(found)
        made.runs = False
        return made

    def _traced(
        self, key: _Key, count: int, args: tuple[Any, ...], kwargs: dict[str, Any], leaves: list[Any]
    ) -> Program:
        """A new program for the arguments that are not static, of `count` that were given by position, and for their
        leaves: for one device or over a mesh."""
        whole = pytrees.unflatten(key.structure, leaves)
        given, others = whole if kwargs else (whole, {})
        if config.no_tracing:
            raise WorkError(
                f"jit of {self.__name__}: it is traced for a call, but the option no_tracing says that nothing is; "
                "explain_cache_misses says why it is."
            )
        function = self._with_static(count, key.static)
        names = functools.partial(parameter_names, function, given, others)
        with compile_log.tracing(self.__name__) as made:
            if state.staging is None:
                traced = rarely_collected(lambda: trace_tree(function, given, others, names=names))
            else:
                traced = trace_tree(function, given, others, names=names)
            made(traced[0])
        program = Program(traced, given, others, key.structure)
        if config.explain_cache_misses:
            self._explain(key, argument_names(args, kwargs))
        names = lambda: parameter_names(self._function, given, others)  # noqa: E731
        mesh = mesh_of(leaves, program.computation, names, program.captured) or context.programs
        if mesh is None and says_memory_kinds(program.computation):
            mesh = layout_on(default_device()).mesh
        if key.around.axes or any(isinstance(x, Tracer) for x in program.captured):
            return program
        if mesh is not None:
            return PartitionedProgram(program, mesh, leaves, self._donated_leaves(count, args, kwargs))
        if (self._donated or self._donated_names) and not _checks_values():
            return DonatingProgram(program, self._donated_leaves(count, args, kwargs))
        return program

    def _label(self, args: tuple[Any, ...], kwargs: dict[str, Any], static: Any) -> Any:
        """The part of the key of `__call__` that is not signatures: static arguments, names and the structure."""
        label = (static, *kwargs) if kwargs or self._static or self._static_names else ()
        arrays = (*args, *kwargs.values())
        return (label, pytrees.flatten(arrays)[1]) if None in _with_signatures(arrays)[1] else label

    def _explain(self, key: _Key, names: list[str]) -> None:
        """Log why there is no program of that key yet; `names` are those of the arrays among the arguments."""
        code = getattr(inspect.unwrap(self._function), "__code__", None)
        if code is not None and code.co_filename.startswith(PACKAGE):
            return  # the user knows nothing of it
        is_remade = code in _traced_code and not self._programs
        if code is not None:
            _traced_code.add(code)
        others = [_facts(other, names) for other in self._programs]
        compile_log.explain(self.__name__, _facts(key, names), others, is_remade)

    def _split(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any], Any]:
        """The arguments that are not static, those by name in the order of these, and a key of the static ones."""
        named = {name: kwargs[name] for name in sorted(kwargs)} if len(kwargs) > 1 else kwargs
        if not (self._static or self._static_names):
            return args, named, ()
        held, free = split_positions(self._static, len(args))
        static = tuple([(n, type(args[n]), args[n]) for n in held])
        if kwargs:
            static += tuple([(name, type(x), x) for name, x in named.items() if name in self._static_names])
            named = {name: x for name, x in named.items() if name not in self._static_names}
        return tuple([args[n] for n in free]), named, static

    def _with_static(self, count: int, static: tuple[Any, ...]) -> Function:
        """The function of the arguments that are not static: what stands at the other positions, of `count`, and
        names is known."""
        if not static:
            return self._function
        held = {where: value for where, _, value in static}
        named = {where: value for where, value in held.items() if isinstance(where, str)}

        def function(*dynamic: Any, **more: Any) -> Any:
            values = iter(dynamic)
            whole = [held[n] if n in held else next(values) for n in range(count)]
            return self._function(*whole, **more, **named)

        made: Any = wraps(self._function)(function)
        made.free = [n for n in range(count) if n not in held]
        return made

    def _donated_leaves(self, count: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[bool]:
        """Whether each leaf of the arguments that are not static, of `count` that were given, is donated."""
        donated, _ = split_positions(self._donated, count)
        _, numbers = split_positions(self._static, count)
        marked = tuple(pytrees.map_tree(lambda _, n=n: n in donated, x) for n, x in zip(numbers, args, strict=True))
        names = self._donated_names
        named = {name: pytrees.map_tree(lambda _, name=name: name in names, x) for name, x in kwargs.items()}
        return pytrees.leaves((marked, named) if kwargs else marked)

    def _as_arguments(self, leaves: list[Any], names: Callable[[], list[str]]) -> list[Any]:
        made: list[Any] = []
        for leaf in leaves:
            try:
                if isinstance(leaf, Array):
                    made.append(leaf)
                elif isinstance(leaf, ShapeDtypeStruct):
                    made.append(as_argument(leaf))
                else:
                    made.append(as_argument(_description(leaf)) if only_described(leaf) else as_array(leaf))
            except DTypeError:
                name = names()[len(made)]
                raise ArgumentError(
                    f"jit of {self.__name__}: argument {name} {no_array(leaf)}. If the function depends on it as a "
                    "Python value, mark it with static_argnums or static_argnames."
                ) from None
        return made

    @overload
    def __get__(self, instance: None, owner: Any = None) -> Jitted[P, R]: ...
    @overload
    def __get__(self: Jitted[Concatenate[Any, Rest], R], instance: object, owner: Any = None) -> Callable[Rest, R]: ...
    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    @boundary
    def trace(self, *args: Any, **kwargs: Any) -> Traced:
        """Trace for arguments of these shapes (arrays or `ShapeDtypeStruct`s).

        Args:
            *args, **kwargs: as in a call; `ShapeDtypeStruct`s may stand for arrays.

        Returns:
            A `Traced`.

        Raises:
            ArgumentError: an argument that is no array or number, and not static.

        >>> import tinyxla as tx
        >>> tx.jit(lambda x: 2 * x).trace(tx.ShapeDtypeStruct((3,), "float32"))
        <traced lambda(f32[3]) -> f32[3], 5 operations>
        """
        try:
            if self._references or has_references((args, kwargs)):
                return discovered(lambda known: self._trace_with_references(known, args, kwargs), self._references)
            free, named, static = self._split(args, kwargs)
            program, function = self._program(args, kwargs)[0], self._with_static(len(args), static)
            return Traced(self.__name__, program, function, (free, named))
        except RecursionError as error:
            raise self._nested_too_deeply(error) from None
        except OuterReferenceError as error:
            if self._is_of_values or not error.reference.is_alive:
                raise
            self._references.append(error.reference)
            return self.trace(*args, **kwargs)

    @boundary
    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        """Trace for arguments of these shapes (arrays or `ShapeDtypeStruct`s), without compiling.

        Args:
            *args, **kwargs: as in a call; `ShapeDtypeStruct`s may stand for arrays.

        Returns:
            A `Lowered`.

        Raises:
            ArgumentError: an argument that is no array or number, and not static.

        >>> import tinyxla as tx
        >>> tx.jit(lambda x: 2 * x).lower(tx.ShapeDtypeStruct((3,), "float32"))
        <lowered lambda(f32[3]) -> f32[3], 5 operations>
        """
        return self.trace(*args, **kwargs).lower()

    @boundary
    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        """The shapes and dtypes of the result for arguments of these shapes.

        Args:
            *args, **kwargs: as in a call; `ShapeDtypeStruct`s may stand for arrays.

        Returns:
            A pytree of `ShapeDtypeStruct`s.

        Raises:
            ArgumentError: an argument that is no array or number, and not static.

        >>> import tinyxla as tx
        >>> tx.jit(lambda x: x @ x.T).eval_shape(tx.ShapeDtypeStruct((3, 4), "float32"))
        ShapeDtypeStruct(shape=(3, 3), dtype=float32)
        """
        return self.trace(*args, **kwargs).out_info

    def forget_executables(self) -> None:
        """Ask for executables anew, by the next calls.

        >>> import tinyxla as tx
        >>> double = tx.jit(lambda x: 2 * x)
        >>> result = double(1.0)
        >>> double.forget_executables()
        >>> double(3.0)  # compiled anew, but not traced
        Array(6., dtype=float32, weak_type=True)
        """
        _forget_executables(self._programs)

    def clear_cache(self) -> None:
        """Forget what was traced and compiled for this function.

        >>> import tinyxla as tx
        >>> @tx.jit
        ... def double(x):
        ...     print("traced")
        ...     return 2 * x
        >>> result = double(1.0)
        traced
        >>> double.clear_cache()
        >>> double(3.0)
        traced
        Array(6., dtype=float32, weak_type=True)
        """
        self._programs.clear()
        self._by_signatures.clear()


def _forget_executables(programs: dict[Any, Program]) -> None:
    for program in list(programs.values()):
        program._executable = None  # pyright: ignore[reportPrivateUsage]


def _checks_values() -> bool:
    """Whether results are looked at, and computed again from the arguments where one is not as it should be."""
    return config.debug_nans or config.debug_infs


_traced_code: weakref.WeakSet[CodeType] = weakref.WeakSet()  # of functions, as far as cache misses were explained


class _Key(NamedTuple):
    """By which a function's programs are kept.

    Attributes:
        static: the static arguments: where each is passed, its type and its value.
        has_kwargs: whether some of the others are passed by name.
        around: what surrounds the call.
        structure: that of the arguments that are not static.
        signatures: those of their leaves.
    """

    static: tuple[tuple[int | str, type, Any], ...]
    has_kwargs: bool
    around: Surroundings
    structure: pytrees.TreeDef
    signatures: tuple[Any, ...]


def _facts(key: _Key, names: list[str]) -> compile_log.Facts:
    """What a key of a program says of a call, by what it says it of. The names are those of another call's arrays."""
    facts: compile_log.Facts = {f"the static argument {where}": value for where, _, value in key.static}
    facts[compile_log.STRUCTURE] = pytrees.structure_text(key.structure) + " with names" * key.has_kwargs
    facts["the named axes around it"] = key.around.axes
    facts["the current mesh"] = key.around.mesh, key.around.kinds
    facts["the options"] = dict(key.around.options)
    for k, signature in enumerate(key.signatures):
        name = names[k] if k < len(names) else str(k)
        facts[f"the argument {name}"] = compile_log.ArrayFact(described_signature(signature))
    return facts


_functions: dict[int, weakref.ref[Jitted[..., Any]]] = {}  # by identity; some of them have ended
_MIN_SWEPT_FUNCTIONS = 64  # functions that are kept without a sweep


def _remember(function: Jitted[..., Any]) -> None:
    """Know a function as long as it lives. No callback runs when it ends: an exception that comes from outside (Ctrl-C,
    say) is lost in one."""
    global _max_functions
    if len(_functions) > _max_functions:
        for identity, reference in tuple(_functions.items()):
            if reference() is None and _functions.get(identity) is reference:
                _functions.pop(identity, None)
        _max_functions = 2 * len(_functions) + _MIN_SWEPT_FUNCTIONS
    _functions[id(function)] = weakref.ref(function)


_max_functions = _MIN_SWEPT_FUNCTIONS


def _all_functions() -> list[Jitted[..., Any]]:
    """Copied at once: another thread may make a function meanwhile."""
    return [function for reference in tuple(_functions.values()) if (function := reference()) is not None]


class _CallOfReferenceValues(NamedTuple):
    """A call of a function that uses references, as one of the function of their values."""

    function: Any  # a `Jitted`, which is no method here
    outer: list[Reference]  # that the function closes over
    passed: list[Reference]  # as arguments
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class PlacingJitted(Jitted[P, R]):
    """A compiled function whose arguments and results have shardings."""

    def __init__(
        self, in_shardings: Any, out_shardings: Any, function: Function, *arguments: Any, moves: bool = False
    ) -> None:
        def constrained(*args: Any, **kwargs: Any) -> Any:
            return self._placed_result(function(*self._placed_arguments(args, kwargs), **kwargs))

        key = (type(self), moves, _key_of(in_shardings), _key_of(out_shardings))
        super().__init__(wraps(function)(constrained), *arguments, shared_by=(function, key))
        self._given = in_shardings, out_shardings
        self._moves = moves  # arguments that are over another mesh

    @property
    def in_shardings(self) -> Any:
        """The shardings of the arguments."""
        return self._given[0]

    @property
    def out_shardings(self) -> Any:
        """The shardings of the results."""
        return self._given[1]

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        placed_args: Any = self._placed_arguments(args, kwargs)
        found = super().__call__(*placed_args, **kwargs)
        for n in split_positions(self._donated, len(args))[
            0
        ]:  # what was donated may have moved to another array before
            pairs: Any = zip(pytrees.leaves(args[n]), pytrees.leaves(placed_args[n]), strict=True)
            for given, used in pairs:
                if given is not used and all(isinstance(x, Array) for x in (given, used)) and used.is_deleted():
                    given.delete()
        return self._placed_result(found)

    @boundary
    def trace(self, *args: Any, **kwargs: Any) -> Traced:
        """Trace for arguments of these shapes (arrays or `ShapeDtypeStruct`s)."""
        traced = super().trace(*self._placed_arguments(args, kwargs), **kwargs)
        traced._program.moves = self._moves  # pyright: ignore[reportPrivateUsage]
        return traced

    @boundary
    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        """The shapes and dtypes of the result for arguments of these shapes, and where it would be."""
        return self._placed_result(super().eval_shape(*args, **kwargs))

    def _placed_arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """The arguments by position, of which those that are not static are placed."""
        if self.in_shardings is not None and not self._moves and kwargs.keys() - self._static_names:
            raise ArgumentError(
                f"jit of {self.__name__}: with in_shardings arguments must be passed by position, but {[*kwargs]} are "
                "passed by name."
            )
        what = f"jit of {self.__name__}: in_shardings"
        static, free = split_positions(self._static, len(args))
        dynamic = tuple(args[n] for n in free)
        if not self._moves:
            check_agrees(what, dynamic, self.in_shardings, moves_whole=True)
        values = dict(zip(free, placed(what, dynamic, self.in_shardings), strict=True))
        values.update((n, args[n]) for n in static)
        return tuple(values[n] for n in range(len(args)))

    def _placed_result(self, result: Any) -> Any:
        return placed(f"jit of {self.__name__}: out_shardings", result, self.out_shardings)


def _key_of(shardings: Any) -> Any:
    """A key for a pytree of shardings, which is equal for equal ones."""
    leaves, structure = pytrees.flatten_shown(shardings, is_placement)
    return hashable((*leaves, structure))


def _forget_programs() -> None:
    """Options decide what a trace records, and whether there is one."""
    for function in _all_functions():
        function.clear_cache()
    for programs in _shared.values():
        programs.clear()


config.watch(_forget_programs)


_CONTAINERS = frozenset((dict, list, tuple))  # types of what is taken apart first
_WITH_SIGNATURE = (ConcreteArray, ShardedArray)
_NUMBERS = frozenset((bool, int, float, complex, np.ndarray, *np.sctypeDict.values()))  # types of what becomes arrays


def _with_signatures(leaves: Sequence[Any]) -> tuple[Sequence[Any], list[int | None]]:
    """Numbers as arrays, and the signatures of all that are arrays."""
    signatures = [getattr(x, "_signature", None) for x in leaves]
    if None in signatures:
        leaves = [as_array(x) if type(x) in _NUMBERS else x for x in leaves]
        signatures = [x.signature() if type(x) in _WITH_SIGNATURE else None for x in leaves]
    return leaves, signatures


def _signature(x: Any) -> Any:
    if isinstance(x, ConcreteArray | ShardedArray):
        return x.signature()
    return (np.dtype(x.dtype), tuple(x.shape), x.weak_type, getattr(x, "sharding", None))


def _signature_of_values(signature: Any) -> int | None:
    """The signature of arrays of the type of a traced one; None of one that is placed."""
    dtype, shape, weak_type, sharding = signature
    is_usual = sharding is None or sharding == SingleDeviceSharding()
    return signature_of(dtype, shape, weak_type) if is_usual else None


def _description(x: Any) -> ShapeDtypeStruct:
    """The shape, type and sharding of what only describes an array."""
    described = ShapeDtypeStruct.like(x)
    return described if layout_of(x) is None else described.update(sharding=x.sharding)


@overload
def jit(
    function: Callable[P, R],
    *,
    static_argnums: int | Iterable[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
    donate_argnums: int | Iterable[int] | None = None,
    donate_argnames: str | Iterable[str] | None = None,
    in_shardings: Any = None,
    out_shardings: Any = None,
    keep_unused: bool = False,
    device: Any = None,
    backend: str | None = None,
    inline: bool = False,
    compiler_options: Any = None,
) -> Jitted[P, R]: ...
@overload
def jit(
    *,
    static_argnums: int | Iterable[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
    donate_argnums: int | Iterable[int] | None = None,
    donate_argnames: str | Iterable[str] | None = None,
    in_shardings: Any = None,
    out_shardings: Any = None,
    keep_unused: bool = False,
    device: Any = None,
    backend: str | None = None,
    inline: bool = False,
    compiler_options: Any = None,
) -> Callable[[Callable[P, R]], Jitted[P, R]]: ...
@boundary
def jit(
    function: Function | None = None,
    *,
    static_argnums: int | Iterable[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
    donate_argnums: int | Iterable[int] | None = None,
    donate_argnames: str | Iterable[str] | None = None,
    in_shardings: Any = None,
    out_shardings: Any = None,
    keep_unused: bool = False,
    device: Any = None,
    backend: str | None = None,
    inline: bool = False,
    compiler_options: Any = None,
) -> Any:
    """Compile a function: it is traced once for each combination of argument shapes, and then runs as native code.

    Args:
        function: of pytrees of arrays and numbers. It is traced with abstract values, so it may not look at them; what
            it does besides returning results happens once, when it is traced.
        static_argnums: positions of arguments that stay Python values; a new value means a new trace. They must be
            hashable.
        static_argnames: the same by name. Naming an argument in one of the two covers both ways of passing it.
        donate_argnums: positions of arguments that the caller does not use again. Where a result has the shape and
            type of such an array, a call deletes the array, and may write the result, or an update of the array, over
            it. A training step then has no second copy of what it trains. Arrays that something else still looks at, as
            a NumPy view does, are copied first. An array that no result can replace stays; a `NoEffectWarning` says
            so. In other transformations and compiled functions nothing is donated.
        donate_argnames: the same by name.
        in_shardings, out_shardings: how arguments and results are sharded: pytrees of shardings, or of `PartitionSpec`s
            for the current mesh, that may stop earlier than the arguments. None leaves it open.
        device: on which the function runs, whatever arguments were placed elsewhere.
        backend: None or "cpu".
        keep_unused: accepted as JAX has it; it changes nothing.
        inline: whether a call in another traced function is recorded as the operations of this one, and not as a call.
        compiler_options: a dictionary of options of XLA, which is another compiler: a `NoEffectWarning` says so once.

    Returns:
        A function with the same arguments; also `lower(*args)` to look at what is compiled, `trace(*args)` and
        `eval_shape(*args)`.

    Raises:
        ArgumentError: an argument that is no array, a static one that cannot be hashed, or another device; a device
            together with shardings or a backend.
        AttributeValueError: an argument that is both static and donated.
        DeletedError: an argument that was donated before, or that is donated and passed a second time.
        ConcretizationError: the function needs a value (`if x > 0`) where only a shape is known.

    Example:
        >>> import tinyxla as tx
        >>> tx.jit(lambda x: x * 2 + 1)(3.0)
        Array(7., dtype=float32, weak_type=True)
    """
    check_device("jit", backend)
    check_device("jit: device", device)
    check_placement("jit: in_shardings", in_shardings)
    check_placement("jit: out_shardings", out_shardings)
    check_flags(keep_unused=keep_unused, inline=inline)
    check_compiler_options(compiler_options)
    check_conflicting_devices(device, backend, in_shardings, out_shardings)
    check_constrained(in_shardings=in_shardings, out_shardings=out_shardings)
    load_compiler()
    if function is None:
        return functools.partial(
            jit,
            static_argnums=static_argnums,
            static_argnames=static_argnames,
            donate_argnums=donate_argnums,
            donate_argnames=donate_argnames,
            in_shardings=in_shardings,
            out_shardings=out_shardings,
            inline=inline,
            device=device,
        )
    static, donated = chosen_arguments(function, static_argnums, static_argnames, donate_argnums, donate_argnames)
    if isinstance(device, Device | SingleDeviceSharding):
        return PlacingJitted(device, device, function, *static, *donated, moves=True)
    if says_where(in_shardings) or says_where(out_shardings):
        return PlacingJitted(in_shardings, out_shardings, function, *static, *donated, bool(inline))
    return Jitted(function, *static, *donated, inline=bool(inline))


def clear_caches() -> None:
    """Forget all compiled programs and kernels of this process. (The cache on disk stays.)

    Example:
        >>> import tinyxla as tx
        >>> tx.clear_caches()
    """
    _forget_programs()
    forget_traces()
    forget_executables()
    clear_transformed()
    forget_kernels()
