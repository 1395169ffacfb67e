"""Reports on compiled programs, for reading: the steps with their costs (`step_costs`), kernels, and memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tinyxla.compiler.step_costs import CollectiveCost, Cost, ProcessCost, communication_text
from tinyxla.errors import ArgumentError
from tinyxla.ops.distributed.communication import Communication
from tinyxla.util.wording import amount, counted, duration


@dataclass(frozen=True)
class Machine:
    """Roofline of a machine with `threads` threads.

    Attributes:
        threads: how many threads share the work.
        bandwidths: pairs (bytes, bytes per second), ascending: the bandwidth of a loop whose working set has that
            many bytes or more, up to the next pair; the last pair is that of main memory.
        operations: additions and multiplications of f32 per second, in fused multiply-adds.
        transcendentals: exponentials of f32 per second.

    >>> from tinyxla.profiler import Machine
    >>> print(Machine(1, bandwidths=((0, 2e11), (1e6, 1e10)), operations=1e11, transcendentals=1e9))
    1 thread: 200 GB/s over 0 B, 10 GB/s over 1 MB; 100 GFLOP/s (f32), 1.00 G exponentials/s
    """

    threads: int
    bandwidths: tuple[tuple[float, float], ...]
    operations: float
    transcendentals: float

    def bound(self, cost: Cost) -> Bound:
        """The minimum time of a cost on the roofline: by memory, at the bandwidth of its working set with cold
        caches, or by arithmetic.

        Args:
            cost: bytes and operations.

        Returns:
            The time in seconds, and what sets it: "memory" or "arithmetic".

        Raises:
            ArgumentError: what is no cost.

        >>> from tinyxla.distributed.scaling import Cost
        >>> from tinyxla.profiler import Machine
        >>> machine = Machine(1, bandwidths=((0, 2e11), (1e6, 1e10)), operations=1e11, transcendentals=1e9)
        >>> machine.bound(Cost(bytes_read=10**7, operations=10**6))
        Bound(seconds=0.001, by='memory')
        """
        if not isinstance(cost, Cost):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArgumentError(f"Machine.bound: takes a Cost, but got {cost!r}.")
        fitting = [speed for size, speed in self.bandwidths if size <= cost.bytes]
        speed = fitting[-1] if fitting else self.bandwidths[0][1]
        memory = cost.bytes / speed
        arithmetic = cost.operations / self.operations + cost.transcendentals / self.transcendentals
        return Bound(max(memory, arithmetic), "memory" if memory >= arithmetic else "arithmetic")

    def __str__(self) -> str:
        levels: list[str] = []
        for size, speed in self.bandwidths:
            levels.append(f"{speed / 1e9:.0f} GB/s over {amount(size, 'B')}")
        threads = f"{self.threads} thread{'s' if self.threads > 1 else ''}"
        return (
            f"{threads}: {', '.join(levels)}; {self.operations / 1e9:.0f} GFLOP/s (f32), "
            f"{self.transcendentals / 1e9:.2f} G exponentials/s"
        )


@dataclass(frozen=True)
class Bound:
    """The roofline bound of a step: the minimum `seconds`, by "memory" or by "arithmetic"."""

    seconds: float
    by: str


@dataclass(frozen=True)
class AccessInfo:
    """An array that a step reads or writes.

    Attributes:
        name: of its buffer.
        shape: as text.
        bytes: its size.
        space: the sizes of the loops of the nest that the maps are over; empty if there are no maps.
        maps: the elements that an iteration accesses, such as "[d0, f(d1)]": the index in each dimension is that of a
            loop, 0, or a function of indices; "f()" is fixed or depends on data. Kernels of single operations and
            calls have none: they go over whole arrays.
        is_written: whether it is written.
    """

    name: str
    shape: str
    bytes: int
    space: tuple[int, ...] = ()
    maps: tuple[str, ...] = ()
    is_written: bool = False

    def __str__(self) -> str:
        at = f" at {' and '.join(self.maps)}" if self.maps else ""
        return f"{self.name} {self.shape} {amount(self.bytes, 'B')}{at}"


@dataclass(frozen=True)
class StepInfo:
    """One step of a compiled program.

    Attributes:
        number: its number in the program, counting steps in loops and branches.
        kind: what runs: "row", "loop", ... for kernels, "product", "host call", "while", "conditional",
            "concurrent" for steps that run at the same time.
        instructions: the names of the instructions it computes, as in `lowered.as_text()`.
        roots: the operations whose results it writes.
        lines: the user's source lines of these.
        shares: for each line its share of the step's work.
        reads, writes: names of buffers.
        cost: of one execution. The cost of a loop or branch is that of the steps in it.
        over: of a kernel, the extent of its outermost loop, and the size of the chunks that threads share.
        type: the type of the plan's step: "LoopNest", "LibraryKernel", "BlasCall", "HostCall", "Collective", "Loop" or
            "Switch".
        loops: of a kernel, the trip counts of its loops.
        schedule: of a kernel, the directives that made its loops, such as "parallel(4096 by 128)".
        accesses: what it reads and writes.
        depth: nesting depth in loops and branches.
        times: executions per call; None if unknown before the call.
        communication: what a process sends and receives in one execution.
    """

    number: int
    kind: str
    instructions: tuple[str, ...]
    roots: tuple[str, ...]
    lines: tuple[str, ...]
    shares: tuple[float, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    cost: Cost
    over: str = ""
    depth: int = 0
    times: int | None = 1
    type: str = ""
    loops: str = ""
    schedule: tuple[str, ...] = ()
    accesses: tuple[AccessInfo, ...] = ()
    communication: Communication = field(default_factory=Communication)

    @property
    def title(self) -> str:
        """One line: the kind of step and its results."""
        results = ", ".join(self.roots)
        if self.over:
            return f"{self.kind} over {self.over}" + (f" ({results})" if results else "")
        return self.kind if self.kind == results else f"{self.kind} of {results}"

    def __str__(self) -> str:
        return "\n".join(self.text())

    def text(self, machine: Machine | None = None) -> list[str]:
        margin = "  " * self.depth
        head = f"{self.number:4} {margin}{self.title}: {', '.join(self.reads)} -> {', '.join(self.writes)}"
        indent = " " * 5 + margin
        lines = [head]

        def add(label: str, *words: str) -> None:
            lines.extend(f"{indent}  {label:9}{line}" for line in _folded(words, 98 - len(indent)))

        add("kind", *filter(None, [self.type]))
        add("loops", *self.loops.split())
        add("schedule", *self.schedule)
        space: tuple[int, ...] = ()
        for x in self.accesses:
            if x.space not in ((), space):
                space = x.space
                add("nest", ", ".join(f"d{k} < {size}" for k, size in enumerate(space)))
            add("writes" if x.is_written else "reads", str(x))
        add("does", *self.instructions)
        repetitions = "" if self.times == 1 else f", {'?' if self.times is None else self.times} times"
        if self.communication.messages:
            add("process", f"{communication_text(self.communication)}{repetitions}")
        if self.cost != Cost():
            bound_text = ""
            if machine is not None:
                bound = machine.bound(self.cost)
                bound_text = f"; at least {duration(bound.seconds)} ({bound.by})"
            lines.append(f"{indent}  {'cost':9}{self.cost}{repetitions}{bound_text}")
        lines += [f"{indent}  {'line':9}{line}" for line in self.lines]
        return lines


@dataclass(frozen=True)
class BufferInfo:
    """One buffer.

    Attributes:
        name: of the instruction whose value it holds.
        shape: as text.
        bytes: its size.
        place: "argument 0", "result 0", "constant", "arena" or, if chosen at run time, "pointer".
        offset: in the arena, or in a result's memory before the result is computed; None elsewhere.
        life: the first and the last step that access it; None if it lives for the whole call.
        aliases: names of other values in the same memory.
    """

    name: str
    shape: str
    bytes: int
    place: str
    offset: int | None = None
    life: tuple[int, int] | None = None
    aliases: tuple[str, ...] = ()

    def row(self) -> tuple[str, ...]:
        place = self.place if self.offset is None else f"{self.place} + {self.offset}"
        life = "" if self.life is None else f"steps {self.life[0]}-{self.life[1]}"
        return self.name, self.shape, amount(self.bytes, "B"), place, life, " ".join(self.aliases)


@dataclass(frozen=True)
class Report:
    """A compiled program: its steps in order, its buffers, the size of the arena of temporaries, and what a call costs
    and communicates. Where devices share a process, `devices` is what a call would cost if each was one."""

    name: str
    steps: tuple[StepInfo, ...]
    buffers: tuple[BufferInfo, ...] = ()
    arena_bytes: int = 0
    cost: Cost = field(default_factory=Cost)
    communication: Communication = field(default_factory=Communication)
    devices: ProcessCost | None = None

    def __repr__(self) -> str:
        return f"<report of {self.name}, {counted(len(self.steps), 'step')}>"

    def _repr_html_(self) -> str:
        """For notebooks: the steps, with bars of what they move and compute."""
        from tinyxla.text import html  # here, since few programs need it

        costs = [step.cost * (1 if step.times is None else step.times) for step in self.steps]
        bytes_moved = max([cost.bytes for cost in costs], default=0) or 1
        operations = max([cost.operations + cost.transcendentals for cost in costs], default=0) or 1

        def row(step: StepInfo, cost: Cost) -> list[str | html.Bar]:
            done = cost.operations + cost.transcendentals
            return [
                str(step.number),
                f"{'  ' * step.depth}{step.title}",
                html.Bar(cost.bytes / bytes_moved, amount(cost.bytes, "B")),
                html.Bar(done / operations, amount(done)),
                "\n".join(step.lines),
            ]

        head = f"{self.name}: {counted(len(self.steps), 'step')}, {amount(self.arena_bytes, 'B')} of temporaries"
        return html.page(
            head,
            html.paragraph(f"one call {self.cost}"),
            html.table(("", "step", "moves", "operations", "line"), map(row, self.steps, costs), right=[0]),
            html.details("plan and memory", html.scrolling(html.preformatted(self.text()))),
        )

    def __str__(self) -> str:
        return self.text()

    def text(self, machine: Machine | None = None) -> str:
        """The report as text; with a machine, with the roofline bound of each step."""
        unknown = any(step.times is None for step in self.steps)
        bound_text = ""
        if machine is not None:
            seconds = sum(machine.bound(s.cost).seconds * (1 if s.times is None else s.times) for s in self.steps)
            bound_text = f"; at least {duration(seconds)}"
        lines = [
            f"{self.name}: {counted(len(self.steps), 'step')}, {self.arena_bytes} bytes of temporaries",
            f"one call {self.cost}{' (loops of unknown length counted once)' if unknown else ''}{bound_text}",
            *([str(machine)] if machine is not None else []),
            *([f"each process {communication_text(self.communication)}"] if self.communication.messages else []),
            *(self._of_devices() if self.devices is not None else []),
        ]
        for step in self.steps:
            lines += ["", *step.text(machine)]
        if self.buffers:
            lines += [
                "",
                *table(("buffer", "shape", "size", "place", "life", "also holds"), map(BufferInfo.row, self.buffers)),
            ]
        return "\n".join(lines)

    def _of_devices(self) -> list[str]:
        """What devices would send that now share a process."""
        assert self.devices is not None
        head = (
            f"each of {self.devices.processes} devices, as a process, {communication_text(self.devices.communication)}"
        )
        columns = ("collective", "among", "times", "sends", "receives", "messages")
        return [head, *table(columns, map(CollectiveCost.row, self.devices.collectives))]


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int] = ()) -> list[str]:
    """Rows of text below their heads, in aligned columns; columns in `right` are right-aligned."""
    all_rows = [tuple(heads), *map(tuple, rows)]
    widths = [max(len(row[k]) for row in all_rows) for k in range(len(heads))]
    return [
        "  ".join(
            x.rjust(w) if k in right else x.ljust(w) for k, (x, w) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in all_rows
    ]


def _folded(words: Sequence[str], width: int) -> list[str]:
    lines: list[str] = []
    for word in words:
        if lines and len(lines[-1]) + 1 + len(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines
