"""Instructions, computations and modules.

A computation lists its instructions in topological order; instructions refer to their operands directly. Attributes are
named tuples that belong to the op, so equal attributes are equal and hash alike. An attribute may hold a computation
(`to_apply`).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Protocol

import numpy as np

from tinyxla.errors import SourceLine
from tinyxla.shapes import AnyShape, Shape, TupleShape


class Operation(Protocol):
    """What the graph needs to know of an op; `tinyxla.ops.Op` is the one implementation."""

    @property
    def name(self) -> str: ...
    @property
    def shape(self) -> Callable[..., AnyShape]: ...
    @property
    def evaluate(self) -> Callable[..., Any]: ...
    @property
    def expand(self) -> Callable[..., Any] | None: ...
    @property
    def sharding(self) -> Callable[..., Any] | None: ...
    @property
    def cost(self) -> Any: ...
    @property
    def scalar(self) -> Any | None: ...
    def __call__(self, *operands: Any, **attributes: Any) -> Any: ...
    def attributes(self, *args: Any, **kwargs: Any) -> Any: ...


class Literal:
    """The value of a constant: a read-only NumPy array, equal to another if all bits are.

    `elided` marks one whose elements a text has left out (`{...}`): it cannot be run, and `value` has but its shape.

    >>> import numpy as np
    >>> from tinyxla.hlo import Literal
    >>> Literal(np.float32(0.0)) == Literal(np.float32(0.0)), Literal(np.float32(0.0)) == Literal(np.float32(-0.0))
    (True, False)
    """

    __slots__ = ("_hash", "elided", "value")

    def __init__(self, value: np.ndarray[Any, Any], elided: bool = False) -> None:
        self.value = value
        self.elided = elided
        self._hash: int | None = None

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Literal) or self._key() != other._key():
            return False
        return self.elided or self.value is other.value or self.value.tobytes() == other.value.tobytes()

    def _key(self) -> tuple[Any, ...]:
        return (self.value.dtype, self.value.shape, self.elided)

    def __hash__(self) -> int:
        if self._hash is None:
            few = b"" if self.elided else self.value.ravel()[:16].tobytes()
            self._hash = hash((self._key(), few))
        return self._hash

    @property
    def splat(self) -> np.generic | None:
        """The element, if there is only one."""
        return self.value.reshape(-1)[0] if self.value.size == 1 else None

    def __repr__(self) -> str:
        return f"Literal({self.value!r})"


_NO_ANNOTATIONS: Mapping[str, str] = MappingProxyType({})


class Instruction:
    """One operation on the results of others. Compared by identity.

    `name` and `annotations` are for readers, and for what a text says beyond the graph (sharding, metadata of another
    compiler): annotations map the names of HLO's attributes to their text. `origin` is, of what the compiler made, the
    instruction of the program that it stands for or is a part of. One that `has_side_effect` must run even if nothing
    needs its result, and as often as it is there.

    >>> import tinyxla
    >>> root = tinyxla.jit(lambda x: x.T).trace(tinyxla.ShapeDtypeStruct((2, 3), "float32")).jaxpr.entry.outputs[0]
    >>> root.op, root.attributes, root.operands[0].shape, root.shape
    (<op transpose>, Transpose(permutation=(1, 0)), f32[2,3], f32[3,2])
    """

    __slots__ = ("annotations", "attributes", "has_side_effect", "name", "op", "operands", "origin", "shape", "source")

    def __init__(
        self,
        op: Operation,
        operands: Sequence[Instruction],
        attributes: Any,
        shape: AnyShape,
        source: SourceLine | None = None,
        name: str = "",
        annotations: Mapping[str, str] = _NO_ANNOTATIONS,
        origin: Instruction | None = None,
    ) -> None:
        self.op = op
        self.operands = tuple(operands)
        self.attributes = attributes
        self.shape = shape
        self.source = source
        self.name = name
        self.annotations = annotations
        self.origin = origin
        self.has_side_effect = _may_have_side_effect(type(attributes)) and _have_side_effect(attributes)

    @property
    def array_shape(self) -> Shape:
        """The shape, which is known to be an array's."""
        assert isinstance(self.shape, Shape), f"{self.op.name} gives a tuple"
        return self.shape

    def computations(self) -> Iterator[Computation]:
        """The computations that the attributes refer to.

        >>> import tinyxla
        >>> traced = tinyxla.jit(lambda x: tinyxla.lax.while_loop(lambda x: x < 9, lambda x: 2 * x, x)).trace(1.0)
        >>> [len(list(x.computations())) for x in traced.jaxpr.entry.instructions if x.op.name == "while"]
        [2]
        """
        return computations_in(self.attributes) if _may_have_computations(type(self.attributes)) else iter(())

    def __repr__(self) -> str:
        operands = ", ".join(f"{x.op.name}:{x.shape}" for x in self.operands)
        return f"<{self.op.name}({operands}) -> {self.shape}>"


@functools.cache
def _may_have_side_effect(attributes: type) -> bool:
    """Whether attributes of a type may refer to computations, or say that there is an effect."""
    return hasattr(attributes, "custom_call_has_side_effect") or _may_have_computations(attributes)


@functools.cache
def _may_have_computations(attributes: type) -> bool:
    """Whether attributes of a type may refer to computations, by their annotations."""
    types = map(str, getattr(attributes, "__annotations__", {"": "Any"}).values())
    return any(re.search(r"\b(Computation|Any|object)\b", x) for x in types)


def _have_side_effect(attributes: Any) -> bool:
    if getattr(attributes, "custom_call_has_side_effect", False):
        return True
    return any(called.has_side_effect for called in computations_in(attributes))


def computations_in(values: Iterable[Any]) -> Iterator[Computation]:
    """The computations among attributes' values."""
    for value in values:
        if isinstance(value, Computation):
            yield value
        elif isinstance(value, tuple):
            for element in value:
                if isinstance(element, Computation):
                    yield element


def map_computations(attributes: Mapping[str, Any], change: Callable[[Computation], Computation]) -> dict[str, Any]:
    """Attributes with their computations changed."""
    return {name: _changed(value, change) for name, value in attributes.items()}


def _changed(value: Any, change: Callable[[Computation], Computation]) -> Any:
    if isinstance(value, Computation):
        return change(value)
    if isinstance(value, tuple) and any(computations_in((value,))):
        return tuple(change(x) if isinstance(x, Computation) else x for x in value)
    return value


def own_axes(manual_axes: Sequence[Hashable], mesh_axes: Sequence[Hashable]) -> Sequence[Hashable]:
    """The axes that a shard-map is about: all of its mesh, if it does not say."""
    return manual_axes or mesh_axes


def axis_names(attributes: Mapping[str, Any]) -> Iterator[Hashable]:
    """The named axes over which an op with these attributes talks: its own, and those that its computations use, but
    not those that a shard-map is about.

    >>> from tinyxla.hlo import axis_names
    >>> list(axis_names({"axis_name": "rows"})), list(axis_names({"sizes": (2, 3)}))
    (['rows'], [])
    """
    if "axis_name" in attributes:
        yield attributes["axis_name"]
    rule = attributes.get("rule")
    if rule is not None:
        yield from rule.axis_names
    is_shard_map = "manual_axes" in attributes
    own = own_axes(attributes["manual_axes"], attributes["mesh"].axis_names) if is_shard_map else ()
    for computation in computations_in(attributes.values()):
        yield from computation.axis_names.difference(own)


@dataclass(eq=False, slots=True)
class Computation:
    """A function of arrays: parameters (in order, also among the instructions) and the root, its result.

    It does not change once it is made, so what is found out about it is kept: `fixed_points` has the names of the
    compiler's passes that are known to leave it as it is, `translated` what it is in another representation.

    >>> from tinyxla.text import parse_hlo
    >>> computation = parse_hlo("HloModule m ENTRY main { x = f32[2] parameter(0) ROOT y = f32[2] negate(x) }").entry
    >>> [x.op.name for x in computation.instructions], computation.root.shape
    (['parameter', 'negate'], f32[2])
    """

    name: str
    parameters: list[Instruction]
    instructions: list[Instruction]
    root: Instruction
    _key: tuple[Any, ...] | None = field(default=None, repr=False)
    _hash: int | None = field(default=None, repr=False)
    _axis_names: frozenset[Hashable] | None = field(default=None, repr=False)
    _has_side_effect: bool | None = field(default=None, repr=False)
    _opcodes: frozenset[str] | None = field(default=None, repr=False)
    _all_opcodes: frozenset[str] | None = field(default=None, repr=False)
    fixed_points: set[str] = field(default_factory=set[str], repr=False)
    translated: Any = field(default=None, repr=False)

    @property
    def opcodes(self) -> frozenset[str]:
        """The names of the ops of its instructions."""
        if self._opcodes is None:
            self._opcodes = frozenset(x.op.name for x in self.instructions)
        return self._opcodes

    @property
    def all_opcodes(self) -> frozenset[str]:
        """The same with those of the computations that its instructions refer to."""
        if self._all_opcodes is None:
            inner = (called.all_opcodes for x in self.instructions for called in x.computations())
            self._all_opcodes = self.opcodes.union(*inner)
        return self._all_opcodes

    @property
    def has_side_effect(self) -> bool:
        """Whether one of its instructions must run even if nothing needs its result."""
        if self._has_side_effect is None:
            self._has_side_effect = any(x.has_side_effect for x in self.instructions)
        return self._has_side_effect

    @property
    def axis_names(self) -> frozenset[Hashable]:
        """The named axes over which its instructions talk."""
        if self._axis_names is None:
            found = (axis_names(x.attributes._asdict()) for x in self.instructions)
            self._axis_names = frozenset(name for names in found for name in names)
        return self._axis_names

    @property
    def parameter_shapes(self) -> list[AnyShape]:
        return [x.shape for x in self.parameters]

    @property
    def outputs(self) -> tuple[Instruction, ...]:
        """The elements of the result: the operands of the root if that makes a tuple."""
        return self.root.operands if isinstance(self.root.shape, TupleShape) else (self.root,)

    def key(self) -> tuple[Any, ...]:
        """Equal for computations that are the same up to names.

        >>> from tinyxla.text import parse_hlo
        >>> first = parse_hlo("HloModule m ENTRY main { x = f32[2] parameter(0) ROOT y = f32[2] negate(x) }").entry
        >>> second = parse_hlo("HloModule m ENTRY other { a = f32[2] parameter(0) ROOT b = f32[2] negate(a) }").entry
        >>> first.key() == second.key(), first == second
        (True, True)
        """
        if self._key is None:
            number = {x: k for k, x in enumerate(self.instructions)}
            rows: list[Any] = [
                (x.op.name, tuple(number[o] for o in x.operands), x.attributes, x.shape) for x in self.instructions
            ]
            self._key = (*rows, number[self.root])
        return self._key

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Computation) and self.key() == other.key())

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(self.key())
        return self._hash

    def users(self) -> dict[Instruction, list[Instruction]]:
        """For each instruction, those that have it as an operand (once per use).

        >>> from tinyxla.text import parse_hlo
        >>> computation = parse_hlo("HloModule m ENTRY f { x = f32[2] parameter(0) ROOT y = f32[2] add(x, x) }").entry
        >>> [len(users) for users in computation.users().values()]
        [2, 0]
        """
        users: dict[Instruction, list[Instruction]] = {x: [] for x in self.instructions}
        for instruction in self.instructions:
            for operand in instruction.operands:
                users[operand].append(instruction)
        return users

    def copy(self) -> tuple[Computation, dict[Instruction, Instruction]]:
        """An equal computation of new instructions, and which became which.

        >>> from tinyxla.text import parse_hlo
        >>> computation = parse_hlo("HloModule m ENTRY f { x = f32[2] parameter(0) ROOT y = f32[2] negate(x) }").entry
        >>> new, became = computation.copy()
        >>> new == computation, became[computation.root] is new.root
        (True, True)
        """
        new: dict[Instruction, Instruction] = {}
        for x in self.instructions:
            operands = [new[o] for o in x.operands]
            new[x] = Instruction(x.op, operands, x.attributes, x.shape, x.source, x.name, x.annotations, x.origin)
        return Computation(self.name, [new[p] for p in self.parameters], list(new.values()), new[self.root]), new


def _cannot_run(module: Module, *arguments: Any) -> Any:
    raise RuntimeError("modules are run by tinyxla.api.module_call, which has not been imported")


@dataclass(eq=False, slots=True, repr=False)
class Module:
    """A whole program: its entry computation, which refers to all others.

    `attributes` has what a text says of the module beyond its computations: HLO's attributes by name, as text.

    >>> import numpy as np
    >>> from tinyxla.text import parse_hlo
    >>> module = parse_hlo("HloModule twice ENTRY main { x = f32[2] parameter(0) ROOT y = f32[2] add(x, x) }")
    >>> module.name, module(np.float32([1, 2]))
    ('twice', Array([2., 4.], dtype=float32))
    """

    name: str
    entry: Computation
    attributes: Mapping[str, str] = field(default_factory=dict[str, str])
    prepared: dict[Any, Any] = field(default_factory=dict[Any, Any], repr=False)  # what `run` keeps for further calls

    run: ClassVar[Callable[..., Any]] = staticmethod(_cannot_run)  # set once by the layer that has the backends
    run_replicated: ClassVar[Callable[..., Any]] = staticmethod(_cannot_run)  # likewise
    printed: ClassVar[Callable[[Module], str]] = staticmethod(lambda module: f"<module {module.name}>")  # that of text

    def __repr__(self) -> str:
        return Module.printed(self)

    def __call__(self, *arguments: Any, backend: str | None = None) -> Any:
        """The results for these arguments (arrays, or tuples where a parameter is one), shaped like the entry's root;
        `backend` is "numba" or "interpreter", by default the former where it is installed."""
        return Module.run(self, arguments, backend)

    def execute_replicated(
        self,
        arguments: Sequence[Sequence[Any]],
        replica_count: int | None = None,
        partition_count: int | None = None,
        backend: str | None = None,
    ) -> list[Any]:
        """The results for the arguments of each device, `replica * partition_count + partition`. How many replicas and
        partitions there are, the module's own text says (`replica_count`, `num_partitions`) unless it is given."""
        return Module.run_replicated(self, arguments, replica_count, partition_count, backend)

    def computations(self) -> list[Computation]:
        """All computations, each after those it refers to; the entry comes last.

        >>> from tinyxla.text import parse_hlo
        >>> module = parse_hlo(
        ...     "HloModule m twice { x = f32[] parameter(0) ROOT y = f32[] add(x, x) } "
        ...     "ENTRY main { x = f32[] parameter(0) ROOT y = f32[] call(x), to_apply=twice }"
        ... )
        >>> [computation.name for computation in module.computations()]
        ['twice', 'main']
        """
        found: dict[int, Computation] = {}

        def visit(computation: Computation) -> None:
            for instruction in computation.instructions:
                for inner in instruction.computations():
                    if id(inner) not in found:
                        visit(inner)
            found[id(computation)] = computation

        visit(self.entry)
        return list(found.values())


def is_constant(instruction: Instruction) -> bool:
    """>>> from tinyxla.hlo import is_constant
    >>> from tinyxla.text import parse_hlo
    >>> is_constant(parse_hlo("HloModule m ENTRY main { ROOT c = f32[] constant(1) }").entry.root)
    True
    """
    return instruction.op.name == "constant"
