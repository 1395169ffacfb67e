"""Attributes and operands that no wrapper has looked at: the samples of every op, changed at random, are refused with
an error of the library or have one value, whatever computes it.

Numbers go one up or down, become negative or huge; lists are lengthened, shortened, permuted; operands get other
element types, ranks and sizes; computations are exchanged. What the shape rule lets through is evaluated and compiled.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

import tinyxla
from tests.support import op_checks
from tinyxla.errors import SizeError, TinyxlaError
from tinyxla.hlo import Computation
from tinyxla.ops import Op, Sample, ops, reduction
from tinyxla.shapes import AnyShape, ElementType, Shape, TupleShape, element_type
from tinyxla.tracing import wrap
from tinyxla.tracing.core import checked_size

Random = np.random.Generator
TYPES = ("pred", "s8", "s32", "u8", "u64", "s4", "f8e4m3fn", "bf16", "f16", "f32", "f64", "c64", "c128")
FAR = (2**31 - 1, 2**31, -(2**31), 2**32, 2**62, 2**63, -(2**63))
MAX_STEPS = 1000
LARGEST = 1 << 16  # elements of a result that is computed
NAMES = sorted(name for name in ops if name not in op_checks.WITHOUT_SAMPLES and name != "infeed")  # it would wait
NUMBERS = ("sizes", "dimensions", "permutation", "slice_sizes", "dynamic_slice_sizes", "fft_length")
DRAWN = ("rng", "rng-get-and-update-state")  # what they give is not what they gave before
NOT_UNIQUE = ("Eig", "Eigh", "Qr", "Svd")  # of a singular matrix, in which a change of sizes may end
FOREIGN = ("callback", "custom-call")  # computes whatever it was registered for


def _number(value: int, random: Random) -> int:
    near = (value + 1, value - 1, -value, -1, 0, 1)
    return int((FAR if random.random() < 0.3 else near)[random.integers(6)])


def _list(values: tuple[Any, ...], random: Random) -> tuple[Any, ...]:
    """One element changed, left out or twice, or another order; of nothing a number."""
    if not values:
        return (int(random.integers(-1, 3)),)
    at = int(random.integers(len(values)))
    changes: list[Callable[[], tuple[Any, ...]]] = [
        lambda: (*values[:at], mutated(values[at], random), *values[at + 1 :]),
        lambda: (*values[:at], *values[at + 1 :]),
        lambda: (*values, values[at]),
        lambda: tuple(values[k] for k in random.permutation(len(values))),
    ]
    return changes[0 if random.random() < 0.5 else int(random.integers(4))]()


def _shape(shape: AnyShape, random: Random) -> AnyShape:
    if isinstance(shape, TupleShape):
        return TupleShape(_list(shape.elements, random))
    if random.random() < 0.5:
        return shape.with_type(TYPES[random.integers(len(TYPES))])
    return shape.with_dimensions([abs(int(n)) for n in _list(shape.dimensions, random)])


def _computation(computation: Computation, random: Random) -> Computation:
    name = ("add", "multiply", "maximum", "minimum")[random.integers(4)]
    return reduction.scalar_computation(name, element_type(("f32", "s32", "f64")[random.integers(3)]).dtype)


def mutated(value: Any, random: Random) -> Any:
    """Something like the attribute, which is no longer right perhaps."""
    match value:
        case bool():
            return not value
        case int():
            return _number(value, random)
        case float():
            return (-value, 0.0, math.nan, math.inf)[random.integers(4)]
        case str():
            return ("", "nonsense", value.lower(), value.upper())[random.integers(4)]
        case ElementType():
            return element_type(TYPES[random.integers(len(TYPES))])
        case Shape() | TupleShape():
            return _shape(value, random)
        case Computation():
            return _computation(value, random)
        case tuple() if hasattr(value, "_fields"):
            field = value._fields[random.integers(len(value))]
            return value._replace(**{field: mutated(getattr(value, field), random)})
        case tuple():
            return _list(value, random)
        case _:
            return value


def _array(x: Any, random: Random) -> Any:
    """Another element type, one dimension more or fewer, or another size."""
    x = np.asarray(x)
    kind = int(random.integers(5))
    with np.errstate(all="ignore"):
        if kind == 0:
            kind = element_type(TYPES[random.integers(len(TYPES))])
            return np.asarray(np.real(x).astype(np.float32).astype(kind.dtype))
        if kind == 1 or not x.ndim:
            return np.repeat(x[..., None], int(random.integers(3)), -1)
        axis = int(random.integers(x.ndim))
        if kind == 2:
            return x[(slice(None),) * axis + (0,)] if x.shape[axis] else x.reshape(-1)
        if kind == 3:
            return np.concatenate([x, x[(slice(None),) * axis + (slice(0, 1),)]], axis)
        return x[(slice(None),) * axis + (slice(1, None),)]


def _far_indices(x: Any, random: Random) -> Any:
    """The same with integers far outside of anything."""
    x = np.array(x)
    if element_type(x.dtype).is_integer and x.size:
        limits = np.iinfo(x.dtype) if x.dtype.kind in "iu" else None
        if limits is not None:
            x.flat[random.integers(x.size)] = (limits.min, limits.max, limits.max // 2, 100)[random.integers(4)]
    return x


def _operand(value: Any, random: Random) -> Any:
    if isinstance(value, tuple):
        return _list(value, random) if not value else (_operand(value[0], random), *value[1:])
    return (_far_indices if random.random() < 0.4 else _array)(value, random)


def mutated_sample(sample: Sample, random: Random) -> Sample:
    """One to three changes. Loops keep their operands, lest they run for ever, and the number of their steps, which is
    trusted where it is given."""
    operands, attributes = list(sample.operands), dict(sample.attributes)
    for _ in range(random.integers(1, 4)):
        if attributes and (not operands or random.random() < 0.6):
            name = sorted(attributes)[random.integers(len(attributes))]
            if (attributes[name] != () or name in NUMBERS) and name != "known_trip_count":
                attributes[name] = mutated(attributes[name], random)
        elif operands and "body" not in attributes:
            at = int(random.integers(len(operands)))
            operands[at] = _operand(operands[at], random)
    return Sample(tuple(operands), attributes)


def size_of(shape: AnyShape) -> int:
    return sum(map(size_of, shape.elements)) if isinstance(shape, TupleShape) else shape.size


def check_refused_or_equal(op: Op, sample: Sample, compiled: bool) -> str:
    """What became of it."""
    shapes = [op_checks.shape_of(x) for x in sample.operands]
    try:
        inferred = checked_size(op.name, op.shape(*shapes, **op_checks.attributes_of(op, sample)))
    except TinyxlaError as error:
        refused = str(error)
    else:
        refused = ""
    if refused:
        name = op.name.removesuffix("-start")  # the error may be of what is begun
        assert refused.startswith((f"{op.name}: ", f"{name}: ")), f"the message does not name the op: {refused}"
        return "refused"
    assert isinstance(inferred, Shape | TupleShape), inferred
    if op.name in FOREIGN or size_of(inferred) > LARGEST:
        return "not computed"
    if op.name == "while-pullback" and sample.operands[0] > MAX_STEPS:
        return "not computed"  # it would take that many steps
    try:
        op_checks.check_shape(op, sample)
        results = op_checks.evaluated(op, sample)
        if compiled and op.name not in (*DRAWN, *NOT_UNIQUE):
            operands = [wrap(np.asarray(x)) for x in op_checks.flat(sample.operands)]
            found = [op_checks.to_numpy(x) for x in tinyxla.jit(op_checks.on_arrays(op, sample))(*operands)]
            op_checks.assert_close(found, results, f"{op.name} of {sample}, compiled", scale=10.0)
    except TinyxlaError:
        return "refused"
    return "computed"


def fuzzed(name: str, count: int, seed: int = 0) -> Iterator[Sample]:
    random = np.random.default_rng(zlib.crc32(f"{name} {seed}".encode()))
    samples = list(ops[name].samples(random))
    for _ in range(count):
        yield mutated_sample(samples[random.integers(len(samples))], random)


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("name", NAMES)
def test_refused_or_equal(name: str) -> None:
    for number, sample in enumerate(fuzzed(name, 100)):
        check_refused_or_equal(ops[name], sample, compiled=number % 5 == 0)


HUGE: dict[str, tuple[str, tuple[Any, ...], dict[str, Any]]] = {
    "broadcast": ("broadcast", (np.float32(1),), {"sizes": (1 << 63,), "dimensions": ()}),
    "iota": ("iota", (), {"shape": Shape(element_type("f32"), (1 << 60,)), "iota_dimension": 0}),
    "pad": ("pad", (np.ones(2, np.float32), np.float32(0)), {"padding_config": ((0, 0, 1 << 63),)}),
    "with an empty dimension": ("broadcast", (np.float32(1),), {"sizes": (1 << 63, 0), "dimensions": ()}),
    "more than there is": ("pad", (np.ones(1, np.float32), np.float32(0)), {"padding_config": ((1 << 52, 0, 0),)}),
}


@pytest.mark.parametrize("case", HUGE)
def test_huge_arrays_are_refused(case: str) -> None:
    name, operands, attributes = HUGE[case]
    arrays = [wrap(np.asarray(x)) for x in operands]
    function = partial(ops[name], **attributes)
    for run in (function, tinyxla.jit(function)):
        with pytest.raises(SizeError, match="smaller sizes"):
            run(*arrays)
