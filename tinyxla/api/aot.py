"""What is known of a compiled function before it is called: `jit(f).trace(x)`, then `.lower()`, then `.compile()`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from tinyxla.api.compile_log import count_operations, signature_text
from tinyxla.api.compiler_options import check_compiler_options
from tinyxla.api.functions import Function, ShapeDtypeStruct, argument_names, parameter_names, shapes_of, typeof
from tinyxla.errors import ArgumentError, AttributeValueError
from tinyxla.hlo import Computation, Module
from tinyxla.ops.cost import bytes_of, cost_of
from tinyxla.runtime.threads import MAX_THREADS
from tinyxla.shapes import Shape
from tinyxla.tracing import pytrees
from tinyxla.tracing.array import ConcreteArray
from tinyxla.tracing.promotion import as_array
from tinyxla.tracing.references import Reference, check_aliases, filled, slotted, values_of, write_all
from tinyxla.tracing.surroundings import surroundings
from tinyxla.transforms.key_arrays import KeyArray
from tinyxla.util.wording import counted

if TYPE_CHECKING:
    from tinyxla.api.programs import Program
    from tinyxla.compiler.report import Machine, Report
    from tinyxla.compiler.step_costs import ProcessCost
    from tinyxla.profiler import Profile


class _Stage:
    """What is known of a program from tracing on: its arguments (those that are not static) and results."""

    def __init__(
        self,
        name: str,
        program: Program,
        function: Function | None = None,
        outer: Sequence[Reference] | None = None,
    ) -> None:
        """`outer` are the references that the function uses from around, None if it uses no references at all: else
        the program is that of their values, and of those of the references among the arguments."""
        self.fun_name = name
        self._program = program
        self._function = function  # of the arguments that are not static, for their names
        self._outer = outer

    @property
    def in_tree(self) -> pytrees.TreeDef:
        """The structure of `(args, kwargs)`."""
        return pytrees.flatten_shown(self.argument_types)[1]

    @property
    def out_tree(self) -> pytrees.TreeDef:
        """The structure of the result."""
        return pytrees.flatten_shown(self.out_info)[1]

    @property
    def result_tree(self) -> pytrees.TreeDef:
        """The structure of the result for the library, to which random keys are containers of their words."""
        return self._program.tree

    @property
    def args_info(self) -> Any:
        """`(args, kwargs)` with a `ShapeDtypeStruct` for each array."""
        return self.argument_types

    @property
    def argument_types(self) -> Any:
        """`args_info`, which `tinyxla.jax` gives JAX's form."""
        return self._of_arguments(self._types)

    @property
    def _types(self) -> list[ShapeDtypeStruct]:
        """The types of the program's arguments."""
        shapes = [x.array_shape for x in self._program.computation.parameters[: self._program.structure.num_leaves]]
        weak = self._program.weak_arguments
        return [ShapeDtypeStruct(x.dimensions, x.dtype, weak_type=w) for x, w in zip(shapes, weak, strict=True)]

    def _split(self, facts: Iterable[Any]) -> tuple[Sequence[Any], Any]:
        """A fact of each of the program's arguments: those of the references among the function's arguments, and
        `(args, kwargs)` with slots in the place of these."""
        found = pytrees.unflatten(self._program.structure, facts)
        args, kwargs = found if self._program.has_kwargs else (found, {})
        if self._outer is None:
            return (), (args, kwargs)
        values, *others = args
        return values[len(self._outer) :], (tuple(others), kwargs)

    def _of_arguments(self, facts: Iterable[Any]) -> Any:
        """`(args, kwargs)` with a fact of each of the program's arguments for each array and reference."""
        values, given = self._split(facts)
        return filled(given, values) if values else given

    def _of_result(self, found: Any) -> Any:
        """That part of a result of the program which is the function's."""
        return found if self._outer is None else found[0]

    @property
    def uses_references(self) -> bool:
        """Whether the function reads or writes references."""
        return self._outer is not None

    @property
    def reference_numbers(self) -> tuple[int, ...]:
        """The numbers of those leaves of `args_info` that are references."""
        values, given = self._split([False] * self._program.structure.num_leaves)
        return _true(filled(given, [True] * len(values)))

    @property
    def donate_argnums(self) -> tuple[int, ...]:
        """The numbers of those arrays, in the order of the leaves of `args_info`, that a call may overwrite."""
        donated = self._program.donate_argnums
        return _true(self._of_arguments(k in donated for k in range(self._program.structure.num_leaves)))

    @property
    def out_info(self) -> Any:
        """The result with a `ShapeDtypeStruct` for each array."""
        return self._of_result(shapes_of(self._program.computation, self._program.weak, self._program.tree))

    def _described(self, what: str, *facts: str) -> str:
        """What stage it is, of which function, for which shapes."""
        return f"<{what} {self.fun_name.strip('<>')}{signature_text(self._program.computation)}, {', '.join(facts)}>"

    def cost_analysis(self) -> dict[str, float]:
        """What a call costs a device: the number of operations (`flops`, `transcendentals`) and of bytes read and
        written (`bytes accessed`), counted on the graph before fusion, where the body of a loop counts once; and what
        the device sends and receives, if it is a process (`bytes sent`, `bytes received`, `messages`), counted on the
        plan, as `process_cost` has it.
        """
        sent, received, messages, _ = self._program.communication
        counts = {"bytes sent": float(sent), "bytes received": float(received), "messages": float(messages)}
        return {**cost_of(self._program.lowered), **counts}

    def process_cost(self) -> ProcessCost:
        """What a call costs a process, if each device of its mesh is one: bytes moved and operations after fusion, and
        what it sends to others. Loops count as often as they run, where that is known, and each branch of a conditional
        once.

        The mesh may be an abstract one, of any number of devices.

        Example:
            >>> import tinyxla as tx
            >>> mesh = tx.sharding.AbstractMesh((1024,), ("x",))
            >>> x = tx.ShapeDtypeStruct((4096, 256), "float32", sharding=tx.NamedSharding(mesh, tx.P("x")))
            >>> cost = tx.jit(lambda x: tx.numpy.sum(x, 0)).lower(x).process_cost()
            >>> cost.cost.operations, cost.communication
            (1024, Communication(sent=10240, received=10240, messages=10, reduced=10240))
        """
        return self._program.process_cost

    @property
    def input_shardings(self) -> Any:
        """`(args, kwargs)` with the sharding of each array."""
        return self._of_arguments(self._program.shardings[0])

    @property
    def output_shardings(self) -> Any:
        """The result with the sharding of each array."""
        return self._of_result(pytrees.unflatten(self._program.tree, self._program.shardings[1]))


def _true(tree: Any) -> tuple[int, ...]:
    """The numbers of the leaves that are true."""
    return tuple(k for k, x in enumerate(pytrees.leaves(tree)) if x)


CallArguments = tuple[tuple[Any, ...], dict[str, Any]]  # of a call, by position and by name; without static ones


def _without_values(x: Any) -> Any:
    """The type of an array, whose memory a stage need not keep."""
    return ShapeDtypeStruct.like(x) if isinstance(x, ConcreteArray) else x


_MAX_DRAWN = 300  # operations; a picture of more is not read


class Traced(_Stage):
    """A traced function.

    >>> import tinyxla as tx
    >>> traced = tx.jit(lambda x: 2 * x).trace(tx.ShapeDtypeStruct((3,), "float32"))
    >>> traced.out_info, traced.args_info
    (ShapeDtypeStruct(shape=(3,), dtype=float32), ((ShapeDtypeStruct(shape=(3,), dtype=float32),), {}))
    """

    def __init__(
        self,
        name: str,
        program: Program,
        function: Function,
        arguments: CallArguments,
        outer: Sequence[Reference] | None = None,
    ) -> None:
        super().__init__(name, program, function, outer)
        self._arguments = pytrees.map_tree(_without_values, arguments)
        self._surroundings = surroundings()

    def __repr__(self) -> str:
        return self._described("traced", counted(len(self._program.computation.instructions), "operation"))

    @property
    def jaxpr(self) -> Module:
        """The graph."""
        return Module(self.fun_name, self._program.computation)

    def lower(self, *, lowering_platforms: Sequence[str] | None = None) -> Lowered:
        """The graph as the compiler gets it: there is nothing between.

        Args:
            lowering_platforms: names of platforms, accepted for compatibility: the graph is the same for all.

        Returns:
            A `Lowered`.

        >>> import tinyxla as tx
        >>> tx.jit(lambda x: 2 * x).trace(1.0).lower()
        <lowered lambda(f32[]) -> f32[], 4 operations>
        """
        return Lowered(self.fun_name, self._program, self._function, self._outer)


class Lowered(_Stage):
    """A traced function: the graph before compilation. Over a mesh of several devices it is that of each device.

    >>> import tinyxla as tx
    >>> lowered = tx.jit(lambda x: tx.numpy.sin(x) * 2).lower(1.0)
    >>> lowered, lowered.cost_analysis()["transcendentals"]
    (<lowered lambda(f32[]) -> f32[], 5 operations>, 1.0)
    """

    def __repr__(self) -> str:
        return self._described("lowered", counted(len(self._program.computation.instructions), "operation"))

    def _repr_html_(self) -> str:
        """For notebooks: the graph as a picture, or of a large one the text."""
        from tinyxla.text import html  # here, since few programs need it

        head = repr(self)[1:-1]
        if count_operations(self._program.computation) > _MAX_DRAWN:
            return html.page(head, html.details("graph", html.scrolling(html.preformatted(self.as_text()))))
        return html.page(head, html.scrolling(self.as_svg()))

    @property
    def module(self) -> Module:
        """The graph."""
        return Module(self.fun_name, self._program.lowered)

    def as_text(self, dialect: str | None = None, *, debug_info: bool = False) -> str:
        """The graph in XLA's HLO text form; with `debug_info` each instruction with its scopes and the user's line.

        By default it is as recorded: operations that only this library has stand as custom calls of their names. With
        the dialect "hlo" they are written out in XLA's operations, so that XLA can run the program; with "stablehlo" it
        is a module of StableHLO, which JAX and other users of XLA read.

        Args:
            dialect: None, "hlo" or "stablehlo".
            debug_info: whether each instruction has its scopes and the user's line.

        Returns:
            The text.

        Raises:
            AttributeValueError: another dialect.

        >>> import tinyxla as tx
        >>> print(tx.jit(lambda x: x * x).lower(1.0).as_text(), end="")
        HloModule lambda, entry_computation_layout={(f32[])->(f32[])}
        <BLANKLINE>
        ENTRY lambda {
          parameter.1 = f32[] parameter(0)
          multiply.1 = f32[] multiply(parameter.1, parameter.1)
          ROOT tuple.1 = (f32[]) tuple(multiply.1)
        }
        """
        if dialect not in (None, "hlo", "stablehlo"):
            raise AttributeValueError(f"as_text: the dialect is 'hlo' or 'stablehlo', but got {dialect!r}.")
        from tinyxla import text  # here, since few programs need it

        if dialect == "stablehlo":
            return text.print_stablehlo(self._in_stablehlo(), debug_info)
        return text.print_module(self.module if dialect is None else self._in_hlo(), metadata=debug_info)

    def stages(self) -> dict[str, str]:
        """The intermediate representations of the program: the graph, then the plan, the schedule and the loops of
        each kernel as Python, by the name of the pass that they come after. Passes that change nothing are left out.

        A pass can be switched off by `config.disabled_passes` or TINYXLA_DISABLED_PASSES, to see what it matters.

        Returns:
            Texts by the names of passes, in their order.

        Example:
            >>> import tinyxla as tx
            >>> stages = tx.jit(lambda x: x * 2).lower(tx.numpy.ones(8)).stages()
            >>> "lowering" in stages
            True
            >>> print(stages["fusion"])
            loop over [8]: multiply f32[8] of parameter f32[8] at [d0]
        """
        from tinyxla.compiler.stages import stages  # here, since few programs need it

        return stages(self.module)

    def _in_hlo(self) -> Module:
        """The graph written out in XLA's operations."""
        from tinyxla.compiler.passes.expand import expand_to_hlo  # here, since few programs need it

        return Module(self.module.name, expand_to_hlo(self.module.entry))

    def _in_stablehlo(self) -> Module:
        """The graph written out in operations that StableHLO has."""
        from tinyxla.compiler.passes.expand import expand_to_stablehlo  # here, since few programs need it

        return Module(self.module.name, expand_to_stablehlo(self.module.entry))

    def compiler_ir(self, dialect: str | None = None) -> Any:
        """The program as an object of an intermediate representation.

        Args:
            dialect: with "hlo" the result is an `xla.XlaComputation` of XLA's operations, which has `as_hlo_text` and
                can be called; with "stablehlo", the default, a module of StableHLO, whose `str` is its text.

        Returns:
            An `xla.XlaComputation`, or a module of StableHLO.

        Raises:
            AttributeValueError: another dialect.

        Example:
            >>> import tinyxla as tx
            >>> program = tx.jit(lambda x: x + 1).lower(2.0).compiler_ir("hlo")
            >>> program.as_hlo_text().splitlines()[0]
            'HloModule lambda, entry_computation_layout={(f32[])->(f32[])}'
        """
        if dialect in (None, "stablehlo"):
            from tinyxla.text.stablehlo import module_op  # here, since few programs need it

            return module_op(self._in_stablehlo())
        if dialect != "hlo":
            raise AttributeValueError(f"compiler_ir: the dialect is 'hlo' or 'stablehlo', but got {dialect!r}.")
        from tinyxla.xla.computation import ProgramShape, XlaComputation  # here, since few programs need it

        entry = self._in_hlo().entry
        names = tuple(f"p{k}" for k in range(len(entry.parameters)))
        shape = ProgramShape(tuple(entry.parameter_shapes), entry.root.shape, names)
        return XlaComputation(Computation(self.module.name, entry.parameters, entry.instructions, entry.root), shape)

    def as_dot(self) -> str:
        """The graph as Graphviz text.

        Returns:
            The text.

        >>> import tinyxla as tx
        >>> "multiply" in tx.jit(lambda x: x * x).lower(1.0).as_dot()
        True
        """
        from tinyxla import text  # here, since few programs need it

        return text.to_dot(self.module.entry)

    def as_svg(self) -> str:
        """The graph as a picture (SVG text).

        Returns:
            The text.

        >>> import tinyxla as tx
        >>> tx.jit(lambda x: x * x).lower(1.0).as_svg()[:4]
        '<svg'
        """
        from tinyxla import text  # here, since few programs need it

        return text.to_svg(self.module.entry)

    def _check_devices(self, device_assignment: Any) -> None:
        """Refuse devices that are not those of the program."""
        given, results = self._program.shardings
        own = sorted(device.id for device in (given + results)[0].device_set) if given + results else []
        if sorted(device.id for device in device_assignment) != own:
            raise ArgumentError(
                f"compile: device_assignment must be the devices {own} of arguments and results, but is "
                f"{device_assignment!r}; leave it out."
            )

    def compile(self, compiler_options: Any = None, *, device_assignment: Any = None) -> Compiled:
        """The compiled program. (Options of XLA's compiler say nothing to this one.)

        Args:
            compiler_options: a dictionary of options of XLA's compiler, or None.
            device_assignment: the devices, a sequence, which must be those of arguments and results; None leaves that
                out.

        Returns:
            A `Compiled`.

        Raises:
            ArgumentError: what is no dictionary, other devices, or a function that closes over traced values.
            AttributeValueError: an option that XLA does not have.

        >>> import tinyxla as tx
        >>> tx.jit(lambda x: 2 * x).lower(tx.ShapeDtypeStruct((3,), "float32")).compile()(tx.numpy.ones(3))
        Array([2., 2., 2.], dtype=float32)
        """
        check_compiler_options(compiler_options)
        if device_assignment is not None:
            self._check_devices(device_assignment)
        return Compiled(self.fun_name, self._program, self._function, self._outer)


def _check_machine(what: str, machine: Any) -> None:
    from tinyxla.compiler.report import Machine  # here, since few programs need it

    if machine is not None and not isinstance(machine, Machine):
        raise ArgumentError(f"{what}: machine must be one that profiler.machine() gives, or None, but got {machine!r}.")


class MemoryAnalysis(NamedTuple):
    """The memory of a compiled program in bytes."""

    argument_size_in_bytes: int
    output_size_in_bytes: int
    temp_size_in_bytes: int
    alias_size_in_bytes: int = 0
    generated_code_size_in_bytes: int = 0


class Compiled(_Stage):
    """A program for one combination of shapes: call it with the (non-static) arguments it was lowered for.

    >>> import tinyxla as tx
    >>> double = tx.jit(lambda x: 2 * x).lower(1.0).compile()
    >>> double(3.0)
    Array(6., dtype=float32, weak_type=True)
    """

    def __init__(
        self,
        name: str,
        program: Program,
        function: Function | None = None,
        outer: Sequence[Reference] | None = None,
    ) -> None:
        super().__init__(name, program, function, outer)
        if program.captured:
            names = ", ".join(str(Shape.of(x)) for x in program.captured)
            raise ArgumentError(
                f"{program.computation.name} closes over traced values of a function around it ({names}), so it is not "
                "compiled by itself; call it, or pass them as arguments."
            )
        self._executable = program.executable

    def __repr__(self) -> str:
        return self._described("compiled", counted(len(self.report().steps), "step"))

    @property
    def out_info(self) -> Any:
        """The result with a `ShapeDtypeStruct` for each array, which says where it is if the program is over a mesh."""
        info = super().out_info
        if not self._program.is_over_mesh:
            return info
        return pytrees.map_tree(lambda x, sharding: x.update(sharding=sharding), info, self.output_shardings)

    def _repr_html_(self) -> str:
        """For notebooks: the steps, with bars of what they move and compute."""
        return self.report()._repr_html_()  # pyright: ignore[reportPrivateUsage]

    def memory_analysis(self) -> MemoryAnalysis:
        """The bytes of arguments, results, and what lies between.

        Returns:
            Numbers of bytes, by name.

        >>> import tinyxla as tx
        >>> memory = tx.jit(lambda x: x.sum(0)).lower(tx.numpy.ones((10, 5))).compile().memory_analysis()
        >>> memory.argument_size_in_bytes, memory.output_size_in_bytes
        (200, 20)
        """
        made = self._program.computation
        temporaries = getattr(self._executable, "temporary_bytes", 0)  # the interpreter keeps no account
        return MemoryAnalysis(sum(map(bytes_of, made.parameter_shapes)), bytes_of(made.root.shape), temporaries)

    @property
    def kernels(self) -> Sequence[Any]:
        """The fused loops; each has its `name`, its `source` as Python text, its `llvm` text and its `assembly`."""
        return self._executable.kernels

    def report(self) -> Report:
        """The `steps`, with what they compute, from which lines, and what they cost; and the memory (`buffers`).

        Returns:
            A `Report`.

        >>> import tinyxla as tx
        >>> report = tx.jit(lambda x: tx.numpy.sin(2 * x)).lower(tx.numpy.ones(10)).compile().report()
        >>> len(report.steps), report.steps[0].cost
        (1, Cost(bytes_read=40, bytes_written=40, operations=10, transcendentals=10))
        """
        report, program = self._executable.report(), self._program
        if not (program.shares_process and program.process_cost.collectives):
            return report
        return replace(report, devices=program.process_cost)

    def as_text(self, machine: Machine | None = None) -> str:
        """The report as a page of text: what runs in which order, what each step computes, reads and writes, and the
        memory. With a machine (`profiler.machine()`) also the least time that each step takes there.

        Args:
            machine: the machine whose least times are told, or None.

        Returns:
            The text.

        Raises:
            ArgumentError: what is no machine.

        >>> import tinyxla as tx
        >>> text = tx.jit(lambda x: tx.numpy.sin(2 * x)).lower(tx.numpy.ones(10)).compile().as_text()
        >>> "sine" in text
        True
        """
        _check_machine("as_text", machine)
        return self.report().text(machine)

    def parallel_efficiency(self, threads: Sequence[int] = (2, 8, 32, 64, 128)) -> dict[int, float]:
        """The bound on parallel efficiency by work and span: the speed-up over one thread, divided by the number of
        threads, that load balance allows if memory and the start of kernels cost nothing. Kernels that change no value
        by it are cut for so many processors.

        Args:
            threads: numbers of threads, each from 1 to 1024.

        Returns:
            The bound, above 0 and at most 1, for each number.

        Raises:
            AttributeValueError: a number of threads is not a whole number from 1 to 1024.

        Example:
            >>> import tinyxla as tx
            >>> compiled = tx.jit(lambda x: x * 2 + 1).lower(tx.numpy.ones(1 << 22)).compile()
            >>> compiled.parallel_efficiency([2, 64])
            {2: 1.0, 64: 1.0}
        """
        for count in threads:
            if type(count) is not int or not 1 <= count <= MAX_THREADS:
                raise AttributeValueError(
                    f"parallel_efficiency: a number of threads must be a whole number from 1 to {MAX_THREADS}, but "
                    f"got {count!r}."
                )
        return self._executable.parallel_efficiency(threads)

    def profile(self, *args: Any, seconds: float = 0.5, machine: Machine | None = None, **kwargs: Any) -> Profile:
        """Run the program for so long and measure each step; see `tinyxla.profiler.Profile`.

        Args:
            args, kwargs: as in a call.
            seconds: for how long the program is run again and again.
            machine: what times are compared with; by default this machine, which is measured once.

        Returns:
            A `Profile`, with times in seconds.

        Raises:
            ArgumentError: arguments of another structure or other shapes, seconds that are no number, or what is no
                machine.

        Example:
            >>> import tinyxla as tx
            >>> compiled = tx.jit(lambda x: x * 2 + 1).lower(3.0).compile()
            >>> profile = compiled.profile(3.0, seconds=0.01)
            >>> [step.info.kind for step in profile.steps]
            ['loop']
        """
        from tinyxla.profiler import profile  # here, since few programs need it

        _check_machine("profile", machine)
        if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArgumentError(f"profile: seconds must be a number, but got {seconds!r}.")
        arrays = self._arguments(args, kwargs)[0]
        return profile(
            self.report(), self._executable, lambda made: self._program.through(made).run(arrays), seconds, machine
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        arrays, references = self._arguments(args, kwargs)
        found = self._program.run(arrays)
        if self._outer is not None:
            write_all(references, found[1])
        return self._of_result(found)

    def _has_structure(self, arguments: Any) -> bool:
        """Whether the program's arguments have the structure of those that it was traced for, of which some were
        `ShapeDtypeStruct`s of random keys."""
        leaves, tree = pytrees.flatten_shown(arguments)
        given = pytrees.unflatten(tree, [typeof(x) if isinstance(x, KeyArray) else x for x in leaves])
        return pytrees.flatten(given)[1] == pytrees.flatten(pytrees.unflatten(self._program.structure, self._types))[1]

    def _arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], list[Reference]]:
        """The arrays of a call, which must be of the shapes that the program was compiled for, and the references that
        it uses, whose values come first."""
        given, named, references = args, kwargs, list[Reference]()
        if self._outer is not None:
            check_aliases(self.fun_name, (args, kwargs), lambda: self._names(args, kwargs))
            (given, named), passed = slotted((args, kwargs))
            references = [*self._outer, *passed]
            given = (values_of(references), *given)
        whole = (given, named) if named else given
        leaves, structure = pytrees.flatten(whole)
        if structure != self._program.structure and not self._has_structure(whole):
            raise ArgumentError(
                f"A program compiled for arguments of the structure {pytrees.structure_text(self._program.structure)} "
                f"was called with {pytrees.structure_text(structure)}."
            )
        arrays = [as_array(x) for x in leaves]
        shapes = [Shape.of(x) for x in arrays]
        wanted = self._program.computation.parameter_shapes
        if shapes != wanted:
            pairs = zip(*(pytrees.leaves(self._of_arguments(x)) for x in (shapes, wanted)), strict=True)
            names = self._names(args, kwargs)
            wrong = [f"{n} is {s}, not {w}" for n, (s, w) in zip(names, pairs, strict=False) if s != w]
            raise ArgumentError(
                f"A program compiled for {wanted} was called with {shapes}: argument {', '.join(wrong)}; lower it for "
                "these shapes."
            )
        return self._program.arguments(arrays), references

    def _names(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
        """How to speak of each leaf among the arguments."""
        names = self._function and parameter_names(self._function, args, kwargs)
        return names or argument_names(args, kwargs)
