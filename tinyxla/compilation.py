"""`jit`: functions compiled once for each combination of argument shapes, element types and static arguments.

Calling a compiled function is the hottest Python path of the library. An array has a small number that stands for its
element type, shape and weakness, so a call is looked up by the pytree structure and these numbers.
"""

from __future__ import annotations

import copy
import functools
import inspect
import reprlib
import weakref
from collections.abc import Callable, Iterable, Sequence
from types import MethodType
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from tinyxla.api import ShapeDtypeStruct, argument_names, as_integers, check_callable, no_array, shapes_of, trace_tree
from tinyxla.backends import Executable, compile_module, default_backend, forget_kernels
from tinyxla.errors import ArgumentError, AttributeValueError
from tinyxla.hlo import Computation, Module
from tinyxla.ops.cost import bytes_of, cost_of
from tinyxla.ops.dynamic_sizes import has_dynamic_sizes
from tinyxla.ops.op import Op
from tinyxla.shapes import Shape
from tinyxla.tracing import pytrees
from tinyxla.tracing.array import Array, ConcreteArray, signature_of, wrap_dense
from tinyxla.tracing.core import GraphTrace, Tracer, check_computation, set_compute_large, state, unwanted
from tinyxla.tracing.promotion import as_array, config
from tinyxla.transforms import call
from tinyxla.transforms.calls import grouped, set_execute
from tinyxla.transforms.computations import clear_transformed

if TYPE_CHECKING:
    from tinyxla.backends.report import Machine, Report
    from tinyxla.profiler import Profile

Function = Callable[..., Any]


class Program:
    """A traced function: its computation, what it captured, and how arguments and results are put together."""

    def __init__(
        self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any], structure: pytrees.TreeDef
    ) -> None:
        outer, state.scope = state.scope, ""  # the program may be used again outside the scope
        try:
            made, captured, weak, tree = trace_tree(function, args, kwargs)
        finally:
            state.scope = outer
        self.structure = structure  # of the arguments
        self.has_kwargs = bool(kwargs)  # else the structure is that of the positional ones alone
        self.weak = weak
        self.computation: Computation = made
        self.captured: list[Tracer] = captured
        self.tree = tree
        self._is_single = tree.is_leaf()
        self._executable: Executable | None = None
        shapes = [x.array_shape for x in made.outputs]
        self._results = [(w, signature_of(x.dtype, x.dimensions, w)) for w, x in zip(weak, shapes, strict=True)]

    @property
    def executable(self) -> Executable:
        if self._executable is None:
            self._executable = compiled(self.computation)
        return self._executable

    def run(self, leaves: Sequence[ConcreteArray]) -> Any:
        """The results for concrete arguments, whose signatures have been asked for: so they are dense."""
        return self._wrapped((self._executable or self.executable)([x._value for x in leaves]))  # pyright: ignore[reportPrivateUsage]

    def _wrapped(self, outputs: Sequence[np.ndarray[Any, Any]]) -> Any:
        arrays = [
            wrap_dense(value, weak, signature)
            for value, (weak, signature) in zip(outputs, self._results)  # noqa: B905 - strict takes time
        ]
        return arrays[0] if self._is_single else self.tree.unflatten(arrays)

    def through(self, executable: Executable) -> Program:
        """The same program, run by another executable."""
        made = copy.copy(self)
        made._executable = executable
        return made

    def apply(self, leaves: Sequence[Array]) -> Any:
        """The results as one op of the surrounding trace."""
        outputs = call(*leaves, *self.captured, to_apply=self.computation)
        return pytrees.unflatten(self.tree, outputs)


class DonatingProgram(Program):
    """A program that may overwrite arguments of the user's: those of the numbers `donated`, each of which has the shape
    and type of a result. A call deletes them."""

    def __init__(self, program: Program, flags: Sequence[bool]) -> None:
        self.__dict__.update(program.__dict__)
        results = [x.array_shape for x in self.computation.outputs]
        self.donated: list[int] = []
        for k, (parameter, is_donated) in enumerate(zip(self.computation.parameters, flags, strict=False)):
            if is_donated and parameter.array_shape in results:
                results.remove(parameter.array_shape)
                self.donated.append(k)

    @property
    def executable(self) -> Executable:
        if self._executable is None:
            self._executable = compiled(self.computation, tuple(self.donated))
        return self._executable

    def run(self, leaves: Sequence[ConcreteArray]) -> Any:
        executable = self.executable
        values = [x._value for x in leaves]  # pyright: ignore[reportPrivateUsage]
        for k in self.donated:
            leaves[k].delete()
        return self._wrapped(executable(values))

    def through(self, executable: Executable) -> Program:
        """The same, but not donating: for what runs the program several times."""
        made = Program.__new__(Program)
        made.__dict__.update(self.__dict__, _executable=executable)
        return made


def compiled(computation: Computation, donated: tuple[int, ...] = ()) -> Executable:
    """The executable of a computation, which may overwrite some arguments; equal computations share one."""
    found = _compiled(computation, config.while_residual_bytes, config.interpret_first, donated)
    return found if _observer is None else _observer(found)


_observer: Callable[[Executable], Executable] | None = None


def observe(observer: Callable[[Executable], Executable] | None) -> None:
    """Let `observer(executable)` run in place of each executable, until this is called with None."""
    global _observer
    _observer = observer
    for function in _all_functions():
        function.forget_executables()


@functools.lru_cache(4096)
def _compiled(
    computation: Computation, residual_bytes: int, interpret_first: bool, donated: tuple[int, ...]
) -> Executable:
    compile = functools.partial(compile_module, Module(computation.name, computation), donated=donated)
    if not interpret_first or default_backend() == "interpreter" or has_dynamic_sizes(computation):
        return compile()
    from tinyxla.backends.tiered import TieredExecutable  # here, since few programs need it

    return cast(Executable, TieredExecutable(computation, compile))


def _execute(*operands: Any, to_apply: Computation) -> Any:
    results = compiled(to_apply)([np.ascontiguousarray(x) if np.ndim(x) else np.asarray(x) for x in operands])
    return grouped(to_apply, results)


set_execute(_execute)


def _compute_large(op: Op, values: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """An op alone, as a program."""
    program = _alone(op, tuple(map(Shape.of, values)), tuple(attributes.items()))
    return _execute(*values, to_apply=program)


@functools.lru_cache(4096)
def _alone(op: Op, shapes: tuple[Shape, ...], attributes: tuple[tuple[str, Any], ...]) -> Computation:
    graph = GraphTrace(op.name)
    with graph.run():
        result = op(*map(graph.parameter, shapes), **dict(attributes))
        return graph.finish(op.name, result if isinstance(result, tuple) else (result,), isinstance(result, tuple))


set_compute_large(_compute_large)


class Jitted:
    """A compiled function: what `jit` gives."""

    def __init__(
        self,
        function: Function,
        static: frozenset[int],
        static_names: frozenset[str],
        donated: frozenset[int] = frozenset(),
        donated_names: frozenset[str] = frozenset(),
    ) -> None:
        functools.update_wrapper(self, function)
        self.__name__: str = getattr(function, "__name__", type(function).__name__)
        self._function = function
        self._static = static
        self._static_names = static_names
        self._donated = donated
        self._donated_names = donated_names
        self._programs: dict[Any, Program] = {}
        self._by_signatures: dict[Any, Program] = {}  # the same for calls with arrays, and nothing else, as arguments
        _functions[id(self)] = self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if state.staging is None and not (kwargs or self._static or self._static_names or state.axes or config.special):
            try:  # what has a signature is a concrete array
                program = self._by_signatures[tuple([x._signature for x in args])]
            except (AttributeError, KeyError):
                pass
            else:
                return program.run(args)
            leaves, treedef = pytrees.flatten(args)
            try:
                program = self._programs[treedef, *[x._signature for x in leaves]]
            except (AttributeError, KeyError):
                pass
            else:
                return program.run(leaves)
        return self._general(args, kwargs)

    def _general(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Any call: static arguments are taken out, leaves become arrays, and a program is traced if there is none."""
        if config.disable_jit:
            return self._function(*args, **kwargs)
        program, leaves = self._program(args, kwargs)
        alone = not program.captured and not (state.axes and program.computation.axis_names)
        if state.staging is None and alone and all(isinstance(x, ConcreteArray) for x in leaves):
            results = program.run(leaves)
            if config.special and unwanted(tuple(x.numpy() for x in pytrees.leaves(results))):
                check_computation(program.computation, [x.numpy() for x in leaves])
            return results
        for x in leaves:
            if isinstance(x, ShapeDtypeStruct):
                raise ArgumentError(
                    f"jit of {self.__name__}: a ShapeDtypeStruct has no value to compute with; use lower() or "
                    "eval_shape."
                )
        return program.apply(leaves)

    def _program(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Program, list[Any]]:
        given = args
        function, args, kwargs, static = self._without_static(args, kwargs)
        leaves, treedef = pytrees.flatten((args, kwargs) if kwargs else args)
        arrays = [self._as_argument(x, args, kwargs, k) for k, x in enumerate(leaves)]
        key = (treedef, *[_signature(x) for x in arrays])
        axes = tuple((name, size) for name, (_, size) in state.axes.items())
        if static or kwargs or axes or config.special:
            key = (
                static,
                bool(kwargs),
                axes,
                config.special,
                *key,
            )  # a dict may also be the last of the positional arguments
        program = self._programs.get(key)
        if program is None:
            whole = pytrees.unflatten(treedef, arrays)
            positional, named = whole if kwargs else (whole, {})
            program = Program(function, positional, named, treedef)
            if (self._donated or self._donated_names) and not (program.captured or axes or config.special):
                program = DonatingProgram(program, self._donated_leaves(len(given), args, kwargs))
            if not program.captured:  # what it captured belongs to a trace that will end
                self._programs[key] = program
                plain = not (static or kwargs or axes or config.special)
                if plain and all(type(x) is ConcreteArray for x in args):
                    self._by_signatures[key[1:]] = program
        return program, arrays

    def _without_static(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """The function of the other arguments, these, and a key of the static ones."""
        if not self._static and not self._static_names:
            return self._function, args, kwargs, ()
        numbers = {n % len(args) for n in self._static if -len(args) <= n < len(args)}
        held = {n: args[n] for n in numbers}
        named = {name: value for name, value in kwargs.items() if name in self._static_names}
        for where, value in [*held.items(), *named.items()]:
            _check_static(where, value, self.__name__)
        rest = tuple(x for n, x in enumerate(args) if n not in numbers)
        others = {name: value for name, value in kwargs.items() if name not in named}

        def function(*dynamic: Any, **more: Any) -> Any:
            values = iter(dynamic)
            whole = [held[n] if n in held else next(values) for n in range(len(args))]
            return self._function(*whole, **more, **named)

        functools.update_wrapper(function, self._function)
        key = (
            tuple((n, type(v), v) for n, v in sorted(held.items())),
            tuple((n, type(v), v) for n, v in sorted(named.items())),
        )
        return function, rest, others, key

    def _donated_leaves(self, count: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[bool]:
        """Whether each leaf of the arguments that are not static, of `count` that were given, is donated."""
        static = {n % count for n in self._static if -count <= n < count}
        donated = {n % count for n in self._donated if -count <= n < count}
        numbers = [n for n in range(count) if n not in static]
        marked = tuple(pytrees.map_tree(lambda _, n=n: n in donated, x) for n, x in zip(numbers, args, strict=True))
        names = self._donated_names
        named = {name: pytrees.map_tree(lambda _, name=name: name in names, x) for name, x in kwargs.items()}
        return pytrees.leaves((marked, named) if kwargs else marked)

    def _as_argument(self, leaf: Any, args: Any, kwargs: Any, number: int) -> Any:
        if isinstance(leaf, (Array, ShapeDtypeStruct)):
            return leaf
        try:
            return as_array(leaf)
        except TypeError:
            name = argument_names(args, kwargs)[number]
            raise ArgumentError(
                f"jit of {self.__name__}: argument {name} {no_array(leaf)}. If the function depends on it as a Python "
                "value, mark it with static_argnums or static_argnames."
            ) from None

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def trace(self, *args: Any, **kwargs: Any) -> Traced:
        """Trace for arguments of these shapes (arrays or `ShapeDtypeStruct`s)."""
        return Traced(self.__name__, self._program(args, kwargs)[0])

    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        """Trace for arguments of these shapes (arrays or `ShapeDtypeStruct`s), without compiling."""
        return self.trace(*args, **kwargs).lower()

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        """The shapes and dtypes of the result for arguments of these shapes."""
        return self.trace(*args, **kwargs).out_info

    def forget_executables(self) -> None:
        """Ask for executables anew, by the next calls."""
        for program in list(self._programs.values()):
            program._executable = None  # pyright: ignore[reportPrivateUsage]

    def clear_cache(self) -> None:
        """Forget what was traced and compiled for this function."""
        self._programs.clear()
        self._by_signatures.clear()


_functions: weakref.WeakValueDictionary[int, Jitted] = weakref.WeakValueDictionary()


def _all_functions() -> list[Jitted]:
    """Copied at once: an iterator of weak references would fail when another thread makes a function meanwhile."""
    return [function for reference in _functions.valuerefs() if (function := reference()) is not None]


def _forget_programs() -> None:
    """Options decide what a trace records, and whether there is one."""
    for function in _all_functions():
        function.clear_cache()


config.watch(_forget_programs)


def _signature(x: Any) -> Any:
    if type(x) is ConcreteArray:
        return x.signature()
    return (np.dtype(x.dtype), tuple(x.shape), x.weak_type)


def _check_static(where: int | str, value: Any, name: str) -> None:
    try:
        hash(value)
    except TypeError:
        raise ArgumentError(
            f"jit of {name}: the static argument {where!r} is {reprlib.repr(value)} of type {type(value).__name__}, "
            "which cannot be hashed; pass a tuple instead of a list, or an array as an argument that is not static."
        ) from None


class _Stage:
    """What is known of a program from tracing on: its arguments (those that are not static) and results."""

    def __init__(self, name: str, program: Program) -> None:
        self.fun_name = name
        self._program = program

    @property
    def in_tree(self) -> pytrees.TreeDef:
        """The structure of `(args, kwargs)`."""
        return pytrees.flatten(self.args_info)[1]

    @property
    def out_tree(self) -> pytrees.TreeDef:
        """The structure of the result."""
        return self._program.tree

    @property
    def args_info(self) -> Any:
        """`(args, kwargs)` with a `ShapeDtypeStruct` for each array."""
        shapes = [x.array_shape for x in self._program.computation.parameters]
        count = self._program.structure.num_leaves
        found = [ShapeDtypeStruct(x.dimensions, x.dtype) for x in shapes[:count]]
        given = pytrees.unflatten(self._program.structure, found)
        return given if self._program.has_kwargs else (given, {})

    @property
    def out_info(self) -> Any:
        """The result with a `ShapeDtypeStruct` for each array."""
        return shapes_of(self._program.computation, self._program.weak, self._program.tree)


class Traced(_Stage):
    """A traced function."""

    @property
    def jaxpr(self) -> Module:
        """The graph."""
        return Module(self.fun_name, self._program.computation)

    def lower(self) -> Lowered:
        """The graph as the compiler gets it: there is nothing between."""
        return Lowered(self.fun_name, self._program)


class Lowered(_Stage):
    """A traced function: the graph before compilation."""

    @property
    def module(self) -> Module:
        """The graph."""
        return Module(self.fun_name, self._program.computation)

    def as_text(self, dialect: str | None = None, *, debug_info: bool = False) -> str:
        """The graph in XLA's HLO text form; with `debug_info` each instruction with its scopes and the user's line.

        By default it is as recorded: operations that only this library has stand as custom calls of their names. With
        the dialect "hlo" they are written out in XLA's operations, so that XLA can run the program.
        """
        if dialect not in (None, "hlo"):
            raise AttributeValueError(f"as_text: the only dialect is 'hlo', but got {dialect!r}.")
        from tinyxla import text  # here, since few programs need it
        from tinyxla.compiler import write_out

        module = self.module if dialect is None else Module(self.module.name, write_out(self.module.entry))
        return text.print_module(module, metadata=debug_info)

    def cost_analysis(self) -> dict[str, float]:
        """The number of operations (`flops`, `transcendentals`) and of bytes read and written (`bytes accessed`)."""
        return cost_of(self._program.computation)

    def as_dot(self) -> str:
        """The graph as Graphviz text."""
        from tinyxla import text  # here, since few programs need it

        return text.to_dot(self.module.entry)

    def as_svg(self) -> str:
        """The graph as a picture (SVG text)."""
        from tinyxla import text  # here, since few programs need it

        return text.to_svg(self.module.entry)

    def compile(self, compiler_options: Any = None) -> Compiled:
        """The compiled program. (Options of XLA's compiler say nothing to this one.)"""
        return Compiled(self.fun_name, self._program)


class MemoryAnalysis(NamedTuple):
    """The memory of a compiled program in bytes."""

    argument_size_in_bytes: int
    output_size_in_bytes: int
    temp_size_in_bytes: int
    alias_size_in_bytes: int = 0
    generated_code_size_in_bytes: int = 0


class Compiled(_Stage):
    """A program for one combination of shapes: call it with the (non-static) arguments it was lowered for."""

    def __init__(self, name: str, program: Program) -> None:
        super().__init__(name, program)
        if program.captured:
            names = ", ".join(x.described() for x in program.captured)
            raise ArgumentError(
                f"{program.computation.name} closes over traced values of a function around it ({names}), so it is not "
                "compiled by itself; call it, or pass them as arguments."
            )
        self._executable = program.executable

    def cost_analysis(self) -> dict[str, float]:
        """As that of the lowered program."""
        return cost_of(self._program.computation)

    def memory_analysis(self) -> MemoryAnalysis:
        """The bytes of arguments, results, and what lies between."""
        made = self._program.computation
        temporaries = getattr(self._executable, "temporary_bytes", 0)  # the interpreter keeps no account
        return MemoryAnalysis(sum(map(bytes_of, made.parameter_shapes)), bytes_of(made.root.shape), temporaries)

    @property
    def kernels(self) -> Sequence[Any]:
        """The fused loops; each has its `name`, its `source` as Python text, its `llvm` text and its `assembly`."""
        return self._executable.kernels

    def report(self) -> Report:
        """The `steps`, with what they compute, from which lines, and what they cost; and the memory (`buffers`)."""
        return self._executable.report()

    def as_text(self, machine: Machine | None = None) -> str:
        """The report as a page of text: what runs in which order, what each step computes, reads and writes, and the
        memory. With a machine (`profiler.machine()`) also the least time that each step takes there."""
        return self.report().text(machine)

    def profile(self, *args: Any, seconds: float = 0.5, machine: Machine | None = None, **kwargs: Any) -> Profile:
        """Run the program for so long and measure each step; see `tinyxla.profiler.Profile`.

        Args:
            args, kwargs: as in a call.
            seconds: for how long the program is run again and again.
            machine: what times are compared with; by default this machine, which is measured once.

        Example:
            >>> import tinyxla as tx
            >>> compiled = tx.jit(lambda x: x * 2 + 1).lower(3.0).compile()
            >>> profile = compiled.profile(3.0, seconds=0.01)
            >>> [step.info.kind for step in profile.steps]
            ['loop']
        """
        from tinyxla.profiler import profile  # here, since few programs need it

        arrays = self._arguments(args, kwargs)
        return profile(
            self.report(), self._executable, lambda made: self._program.through(made).run(arrays), seconds, machine
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._program.run(self._arguments(args, kwargs))

    def _arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[ConcreteArray]:
        """The arrays of a call, which must be of the shapes that the program was compiled for."""
        leaves, structure = pytrees.flatten((args, kwargs) if kwargs else args)
        if structure != self._program.structure:
            raise ArgumentError(
                f"A program compiled for arguments of the structure {pytrees.structure_text(self._program.structure)} "
                f"was called with {pytrees.structure_text(structure)}."
            )
        arrays = [as_array(x) for x in leaves]
        shapes = [Shape.of(x) for x in arrays]
        wanted = self._program.computation.parameter_shapes
        if shapes != wanted:
            raise ArgumentError(f"A program compiled for {wanted} was called with {shapes}; lower it for these shapes.")
        concrete = [x.concrete("A compiled program") for x in arrays]
        for x in concrete:
            x.signature()
        return concrete


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
        static_argnames: the same by name. Naming an argument either way covers both ways of passing it.
        donate_argnums: positions of arguments that the caller does not use again. Where a result has the shape and
            type of such an array, a call deletes the array, and may write the result, or an update of the array, over
            it. A training step then has no second copy of what it trains. Arrays that something else still looks at, as
            a NumPy view does, are copied first. In other transformations and compiled functions nothing is donated.
        donate_argnames: the same by name.
        in_shardings, out_shardings, keep_unused, device, backend, inline, compiler_options: accepted as JAX has them;
            with one device and a compiler of its own none of them changes anything.

    Returns:
        A function with the same arguments; also `lower(*args)` to look at what is compiled, `trace(*args)` and
        `eval_shape(*args)`.

    Raises:
        ArgumentError: an argument that is no array, or a static one that cannot be hashed.
        AttributeValueError: an argument that is both static and donated.
        DeletedError: an argument that was donated before.
        ConcretizationError: the function needs a value (`if x > 0`) where only a shape is known.

    Example:
        >>> import tinyxla as tx
        >>> tx.jit(lambda x: x * 2 + 1)(3.0)
        Array(7., dtype=float32, weak_type=True)
    """
    if function is None:
        return functools.partial(
            jit,
            static_argnums=static_argnums,
            static_argnames=static_argnames,
            donate_argnums=donate_argnums,
            donate_argnames=donate_argnames,
        )
    check_callable("jit", function)
    if inspect.isgeneratorfunction(function):
        raise ArgumentError(
            f"jit of {function.__name__}: it is a generator, whose results are made after it returns; return a list of "
            "them."
        )
    static = _chosen(function, "static", static_argnums, static_argnames)
    donated = _chosen(function, "donate", donate_argnums, donate_argnames)
    both = [*(static[0] & donated[0]), *(static[1] & donated[1])]
    if both:
        raise AttributeValueError(
            f"jit of {getattr(function, '__name__', function)}: the argument {both[0]!r} must not be both static and "
            "donated; only arrays can be donated."
        )
    return Jitted(function, *static, *donated)


def _chosen(function: Function, what: str, argnums: Any, argnames: Any) -> tuple[frozenset[int], frozenset[str]]:
    """The numbers and the names of arguments that `static_argnums` and `static_argnames`, or those of `donate`, say."""
    numbers = set(as_integers(() if argnums is None else argnums, f"jit: {what}_argnums"))
    names = set(_names(() if argnames is None else argnames, f"{what}_argnames"))
    if numbers or names:
        _complete(function, what, numbers, names)
    return frozenset(numbers), frozenset(names)


def _names(given: Any, option: str) -> tuple[str, ...]:
    """One name, or several, as a tuple."""
    names: tuple[Any, ...] = tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else (given,)
    for name in names:
        if not isinstance(name, str):
            raise ArgumentError(f"jit: {option} must be a name or a tuple of names, but is {given!r}.")
    return names


def _complete(function: Function, what: str, numbers: set[int], names: set[str]) -> None:
    """Let an argument that is static (or donated) by position be so by name too, and the other way round."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return
    by_position = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.POSITIONAL_ONLY)
    positional = [p.name for p in parameters if p.kind in by_position]
    by_name = (
        {p.name for p in parameters} if all(p.kind != inspect.Parameter.VAR_KEYWORD for p in parameters) else names
    )
    for name in names - by_name:
        raise ArgumentError(
            f"jit of {getattr(function, '__name__', function)}: {what}_argnames has {name!r}, but there is no such "
            "parameter."
        )
    variadic = any(p.kind == inspect.Parameter.VAR_POSITIONAL for p in parameters)
    for n in numbers:
        if not variadic and not -len(positional) <= n < len(positional):
            raise ArgumentError(
                f"jit of {getattr(function, '__name__', function)}: {what}_argnums has {n}, but it takes "
                f"{len(positional)} positional arguments."
            )
    named = {positional[n] for n in numbers if -len(positional) <= n < len(positional)}
    numbers.update(k for k, name in enumerate(positional) if name in names)
    names.update(named)


def clear_caches() -> None:
    """Forget all compiled programs and kernels of this process. (The cache on disk stays.)"""
    _forget_programs()
    _compiled.cache_clear()
    _alone.cache_clear()
    clear_transformed()
    forget_kernels()
