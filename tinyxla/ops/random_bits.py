"""Random numbers: RngBitGenerator, which is a function of a state, and Rng, which draws from a hidden one.

Sources: sections "RngBitGenerator", "RngUniform", "RngNormal", "RngBernoulli" and "RngGetAndUpdateState" of the XLA
documents. The generators are ciphers of counters: J. K. Salmon, M. A. Moraes, R. O. Dror and D. E. Shaw, "Parallel
random numbers: as easy as 1, 2, 3", SC 2011, sections 3.3 (Threefry-2x32, 20 rounds) and 3.2 (Philox-4x32, 10 rounds).
How counters become elements follows XLA, so the bits are those of its CPU backend.

What is computed is written once, for NumPy arrays and for values: `run(op, *operands, **attributes)` evaluates an op on
the one, calls it on the other, and both have operators.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tinyxla.errors import AttributeValueError, DTypeError, ShapeError
from tinyxla.hlo import Literal
from tinyxla.ops import bits, elementwise, movement
from tinyxla.ops.distributed.replica_groups import REPLICAS
from tinyxla.ops.op import Array, Axes, Ints, NotDifferentiable, Op, Sample, Value, Zero, but_for
from tinyxla.shapes import AnyShape, Shape, TupleShape, element_type

Run = Callable[..., Any]
_WORD, _LONG = element_type("u32"), element_type("u64")


def _evaluating(op: Op, *operands: Any, **attributes: Any) -> Any:
    return op.evaluate(*operands, **attributes)


def _calling(op: Op, *operands: Any, **attributes: Any) -> Any:
    return op(*operands, **attributes)


# --- ciphers ----------------------------------------------------------------------------------------------------------

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))  # of Threefry's rounds, in groups of four that take turns
_PARITY = 0x1BD11BDA  # from the key schedule of Skein, so that no key is all zeros
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)  # the golden ratio and the square root of 3, as Weyl sequences


def threefry2x32(keys: tuple[Any, Any], counters: tuple[Any, Any]) -> tuple[Any, Any]:
    """The ciphertext of a counter under a key, each as two 32-bit words: unsigned arrays, NumPy's or this library's."""
    schedule = (*keys, keys[0] ^ keys[1] ^ _PARITY)
    x, y = counters[0] + schedule[0], counters[1] + schedule[1]
    for group in range(5):
        for rotation in _ROTATIONS[group % 2]:
            x = x + y
            y = ((y << rotation) | (y >> (32 - rotation))) ^ x
        x = x + schedule[(group + 1) % 3]
        y = y + schedule[(group + 2) % 3] + (group + 1)
    return x, y


def _cipher_shape(*operands: AnyShape) -> TupleShape:
    shape = elementwise.check_operands("threefry-2x32", frozenset(("unsigned",)), *operands)
    if shape.element_type is not _WORD:
        raise DTypeError(f"threefry-2x32: keys and counters must be 32-bit words u32, but got {shape}; convert them.")
    return TupleShape((shape, shape))


def _encrypt(*words: Any) -> tuple[Any, Any]:
    return threefry2x32(words[:2], words[2:])


def _cipher_evaluate(*words: Array) -> tuple[Array, ...]:
    with np.errstate(over="ignore"):
        return tuple(map(np.asarray, _encrypt(*words)))


def _cipher_batch(size: int, operands: tuple[Value, ...], axes: Axes) -> tuple[Any, tuple[int, int]]:
    found, axis = elementwise.batch_elementwise(threefry, size, operands, axes)
    return found, (axis, axis)


def _cipher_samples(random: np.random.Generator) -> Iterator[Sample]:
    for shape in ((), (3, 4), (0, 2)):
        yield Sample(tuple(random.integers(0, 2**32, shape, np.uint32) for _ in range(4)))


# One operation, which all random numbers of keys are made with: so these are quickly traced, and mapped, and computed.
threefry = Op(
    "threefry-2x32",
    shape=_cipher_shape,
    evaluate=_cipher_evaluate,
    derivative=Zero(),
    batch=_cipher_batch,
    samples=_cipher_samples,
    expand=_encrypt,
    sharding=lambda *words: but_for((), words[0].rank, 4, 2),
)


def philox2x32(run: Run, key: Any, counters: tuple[Any, Any]) -> tuple[Any, Any]:
    """The ciphertext of a counter of two 32-bit words under a key of one."""
    a, b = counters
    for _ in range(10):
        low, high = _words(run, _convert(run, a, _LONG) * 0xD256D193)
        a, b = high ^ b ^ key, low
        key = key + _KEY_STEPS[0]
    return a, b


_ROTATIONS_OF_FOUR = ((10, 26), (11, 21), (13, 27), (23, 5), (6, 20), (17, 11), (25, 10), (18, 20))


def threefry4x32(keys: Sequence[Any], counters: Sequence[Any]) -> tuple[Any, Any, Any, Any]:
    """The ciphertext of a counter of four 32-bit words under a key of four."""
    schedule = (*keys, keys[0] ^ keys[1] ^ keys[2] ^ keys[3] ^ _PARITY)
    a, b, c, d = (x + k for x, k in zip(counters, keys, strict=True))
    for turn in range(20):
        left, right = _ROTATIONS_OF_FOUR[turn % 8]
        a, c = a + b, c + d
        b, d = _rotated(b, left) ^ a, _rotated(d, right) ^ c
        b, d = d, b  # which are mixed with the other halves next
        if turn % 4 == 3:
            g = turn // 4 + 1
            a, b, c, d = (x + schedule[(g + k) % 5] for k, x in enumerate((a, b, c, d)))
            d = d + g
    return a, b, c, d


def _rotated(x: Any, distance: int) -> Any:
    return (x << distance) | (x >> (32 - distance))


def philox4x32(run: Run, keys: tuple[Any, Any], counters: tuple[Any, Any, Any, Any]) -> tuple[Any, Any, Any, Any]:
    """The ciphertext of a counter of four 32-bit words under a key of two."""
    a, b, c, d = counters
    for _ in range(10):
        (low, high), (other_low, other_high) = (
            _words(run, _convert(run, x, _LONG) * factor) for x, factor in zip((a, c), _MULTIPLIERS, strict=True)
        )
        a, b, c, d = other_high ^ b ^ keys[0], other_low, high ^ d ^ keys[1], low
        keys = (keys[0] + _KEY_STEPS[0], keys[1] + _KEY_STEPS[1])
    return a, b, c, d


def _convert(run: Run, x: Any, kind: Any) -> Any:
    return run(elementwise.convert, x, new_element_type=kind)


def _words(run: Run, x: Any) -> tuple[Any, Any]:
    """The lower and the upper half of 64-bit numbers."""
    return _convert(run, x, _WORD), _convert(run, x >> 32, _WORD)


def _long(run: Run, low: Any, high: Any) -> Any:
    return (_convert(run, high, _LONG) << 32) | _convert(run, low, _LONG)


# --- rng-bit-generator ------------------------------------------------------------------------------------------------


class RngBitGenerator(NamedTuple):
    algorithm: str  # rng_default, rng_three_fry or rng_philox
    shape: Shape


_STATES = {"rng_default": (2, 3), "rng_three_fry": (2,), "rng_philox": (2, 3)}  # how many numbers


def _rng_bit_generator_shape(state: AnyShape, *, algorithm: str, shape: Shape) -> TupleShape:
    name, given = "rng-bit-generator", movement.array_operand("rng-bit-generator", state)
    if algorithm not in _STATES:
        raise AttributeValueError(f"{name}: algorithm must be one of {', '.join(_STATES)}, but got {algorithm!r}.")
    if given.element_type is not _LONG:
        raise DTypeError(f"{name}: the state must be of 64-bit unsigned integers, but got {given}; convert it.")
    if given.dimensions not in [(n,) for n in _STATES[algorithm]]:
        sizes = " or ".join(f"u64[{n}]" for n in _STATES[algorithm])
        raise ShapeError(f"{name}: the state of {algorithm} must be {sizes}, but got {given}.")
    if shape.element_type.kind in ("pred", "complex"):
        raise DTypeError(f"{name}: the result must be of an integer or floating type, but got {shape}.")
    return TupleShape((given, shape))


def _generate(run: Run, state: Any, *, algorithm: str, shape: Shape) -> tuple[Any, Any]:
    """The state afterwards and the bits. The state may have leading dimensions, one generator for each index; the
    result has them, too."""
    numbers = [_entry(run, state, k) for k in range(state.shape[-1])]
    generate = _by_threefry if algorithm == "rng_three_fry" else _by_philox
    after, found = generate(run, numbers, shape)
    unsigned = element_type(f"u{shape.element_type.bits}")
    found = found if unsigned is _LONG else _convert(run, found, unsigned)
    if shape.element_type is not unsigned:
        found = run(bits.bitcast_convert, found, new_element_type=shape.element_type)
    return _stacked(run, after, state.ndim - 1), found


def _by_threefry(run: Run, numbers: list[Any], shape: Shape) -> tuple[list[Any], Any]:
    """64-bit elements are one ciphertext each; of narrower ones two neighbours along one dimension are."""
    key, start = numbers
    wide = shape.element_type.bits == 64
    sizes = shape.dimensions or (1,)
    along = _halved_dimension(sizes)
    half = sizes if wide else (*sizes[:along], (sizes[along] + 1) // 2, *sizes[along + 1 :])
    keys = _words(run, _spread(run, key, half))
    x, y = threefry2x32(keys, _words(run, _counted(run, start, half)))
    after = [key, start + math.prod(half)]
    lead, whole = start.shape, (*start.shape, *shape.dimensions)
    if wide:
        return after, run(movement.reshape, _long(run, x, y), sizes=whole)
    pairs = _stacked(run, [x, y], len(lead) + along + 1)
    doubled = run(movement.reshape, pairs, sizes=(*lead, *sizes[:along], 2 * half[along], *sizes[along + 1 :]))
    return after, run(movement.reshape, _cut(run, doubled, len(lead) + along, sizes[along]), sizes=whole)


def _halved_dimension(sizes: Ints) -> int:
    """XLA's choice: the first of even size, else the first of the largest size."""
    even = [d for d, size in enumerate(sizes) if size % 2 == 0]
    return even[0] if even else sizes.index(max(sizes))


def _by_philox(run: Run, numbers: list[Any], shape: Shape) -> tuple[list[Any], Any]:
    """Ciphertexts one after the other, each four 32-bit elements or two 64-bit ones. The counter has 128 bits; with
    two numbers for a state, its upper half is the key."""
    key, low = numbers[:2]
    high = numbers[2] if len(numbers) == 3 else key
    each = 2 if shape.element_type.bits == 64 else 4
    blocks = (-(-shape.size // each),)
    at = _counted(run, low, blocks)
    carried = _spread(run, high, blocks) + _convert(run, at < _spread(run, low, blocks), _LONG)
    counters = (*_words(run, at), *_words(run, carried))
    words = philox4x32(run, _words(run, _spread(run, key, blocks)), counters)
    parts = [_long(run, *words[:2]), _long(run, *words[2:])] if each == 2 else list(words)
    lead = low.shape
    line = run(movement.reshape, _stacked(run, parts, len(lead) + 1), sizes=(*lead, blocks[0] * each))
    found = run(movement.reshape, _cut(run, line, len(lead), shape.size), sizes=(*lead, *shape.dimensions))
    end = low + blocks[0]
    return [key, end, high + _convert(run, end < low, _LONG)][: len(numbers)], found


def _entry(run: Run, x: Any, k: int) -> Any:
    """One index of the last dimension."""
    rank = len(x.shape)
    limits = (*x.shape[:-1], k + 1)
    one = run(movement.slice_, x, start_indices=(0,) * (rank - 1) + (k,), limit_indices=limits, strides=(1,) * rank)
    return run(movement.reshape, one, sizes=x.shape[:-1])


def _cut(run: Run, x: Any, axis: int, size: int) -> Any:
    limits = (*x.shape[:axis], size, *x.shape[axis + 1 :])
    rank = len(x.shape)
    return run(movement.slice_, x, start_indices=(0,) * rank, limit_indices=limits, strides=(1,) * rank)


def _stacked(run: Run, parts: list[Any], axis: int) -> Any:
    sizes = (*parts[0].shape[:axis], 1, *parts[0].shape[axis:])
    return run(movement.concatenate, *(run(movement.reshape, x, sizes=sizes) for x in parts), dimension=axis)


def _spread(run: Run, x: Any, sizes: Ints) -> Any:
    """x for each index of further dimensions."""
    return run(movement.broadcast, x, sizes=(*x.shape, *sizes), dimensions=tuple(range(len(x.shape))))


def _counted(run: Run, start: Any, sizes: Ints) -> Any:
    """For each index of further dimensions, in row-major order, consecutive numbers from the start."""
    line = run(movement.iota, shape=Shape(_LONG, (math.prod(sizes),)), iota_dimension=0)
    lead = start.shape
    dimensions = tuple(range(len(lead), len(lead) + len(sizes)))
    numbers = run(movement.reshape, line, sizes=sizes)
    return _spread(run, start, sizes) + run(movement.broadcast, numbers, sizes=(*lead, *sizes), dimensions=dimensions)


def _rng_bit_generator_batch(size: int, operands: tuple[Value], axes: tuple[int], **attributes: Any) -> Any:
    return _generate(_calling, movement.move_axis(operands[0], axes[0], 0), **attributes), (0, 0)


def _rng_bit_generator_samples(random: np.random.Generator) -> Iterator[Sample]:
    for algorithm, sizes in _STATES.items():
        state = random.integers(0, 2**64, sizes[-1], np.uint64)
        for kind in ("u32", "u64", "u8", "s16", "s4", "u2", "f32", "bf16", "f64"):
            yield Sample((state,), {"algorithm": algorithm, "shape": Shape(element_type(kind), (3, 5))})
        for dimensions in ((), (1,), (0, 3), (5,), (2, 3), (3, 2, 1)):
            yield Sample((state,), {"algorithm": algorithm, "shape": Shape(_WORD, dimensions)})
        for count in sizes:
            last = np.full(count, 2**64 - 2, np.uint64)  # the counter wraps
            yield Sample((last,), {"algorithm": algorithm, "shape": Shape(_WORD, (17,))})


rng_bit_generator = Op(
    "rng-bit-generator",
    attributes=RngBitGenerator,
    shape=_rng_bit_generator_shape,
    evaluate=partial(_generate, _evaluating),
    derivative=Zero(),
    batch=_rng_bit_generator_batch,
    samples=_rng_bit_generator_samples,
    expand=partial(_generate, _calling),
)

# --- rng-get-and-update-state -----------------------------------------------------------------------------------------


class RngGetAndUpdateState(NamedTuple):
    delta: int


class _HiddenState:
    """A counter of 128 bits that all draws share, in every thread. It starts anywhere."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._value = int.from_bytes(os.urandom(16), "little")

    def advance(self, delta: int) -> int:
        with self._lock:
            before = self._value
            self._value = (before + delta) % 2**128
        return before


_hidden = _HiddenState()


def _rng_get_and_update_state_shape(*, delta: int) -> Shape:
    if delta < 0:
        raise AttributeValueError(f"rng-get-and-update-state: delta must not be negative, but got {delta}.")
    return Shape(_LONG, (2,))


def _rng_get_and_update_state_evaluate(*, delta: int) -> Array:
    before = _hidden.advance(delta)
    return np.array([before % 2**64, before >> 64], np.uint64)


rng_get_and_update_state = Op(
    "rng-get-and-update-state",
    attributes=RngGetAndUpdateState,
    shape=_rng_get_and_update_state_shape,
    evaluate=_rng_get_and_update_state_evaluate,
    derivative=Zero(),
    batch=movement.iota.batch,  # which has no operands, either
    samples=lambda random: iter([Sample((), {"delta": 0})]),  # which gives the same again
)

# --- rng --------------------------------------------------------------------------------------------------------------


class Rng(NamedTuple):
    distribution: str  # rng_uniform or rng_normal
    shape: Shape
    axis_name: Hashable = REPLICAS  # each lane of it draws numbers of its own


def _rng_shape(a: AnyShape, b: AnyShape, *, distribution: str, shape: Shape, axis_name: Hashable = REPLICAS) -> Shape:
    kinds = {"rng_uniform": ("pred", "signed", "unsigned", "float"), "rng_normal": ("float",)}
    if distribution not in kinds:
        raise AttributeValueError(f"rng: distribution must be one of {', '.join(kinds)}, but got {distribution!r}.")
    kind = shape.element_type
    if kind.kind not in kinds[distribution] or kind.bits < (16 if kind.kind == "float" else 8):
        raise DTypeError(f"rng: {distribution} must be of a type that it is defined for, but got {shape}; convert it.")
    for x in (a, b):
        if x != Shape(kind):
            raise ShapeError(f"rng: the parameters of {distribution} for {shape} must be scalars {kind}, but got {x}.")
    return shape


def _draw(run: Run, a: Any, b: Any, *, distribution: str, shape: Shape, axis_name: Hashable = REPLICAS) -> Any:
    """The parameters may have leading dimensions, and so has the result: each number is drawn on its own."""
    kind, sizes = shape.element_type, (*a.shape, *shape.dimensions)
    a, b = (_spread(run, x, shape.dimensions) for x in (a, b))
    draws = Shape(element_type("u64" if kind.is_integer or kind.bits == 64 else "u32"), sizes)
    found = _fresh_bits(run, draws)
    if kind.kind == "pred":
        return run(elementwise.select, _convert(run, found & 1, kind), a, b)
    if kind.is_integer:
        unsigned = element_type(f"u{kind.bits}")
        span = _convert(run, _convert(run, b, unsigned) - _convert(run, a, unsigned), _LONG)
        return a + _convert(run, run(elementwise.rem, found, span), kind)
    wide = element_type("f64" if kind.bits == 64 else "f32")
    digits = 52 if kind.bits == 64 else 23
    whole = _convert(run, found >> (draws.element_type.bits - digits), wide)
    low, high = (_convert(run, x, wide) for x in (a, b))
    if distribution == "rng_normal":
        middle = (whole * 2 + 1) * 2.0 ** -(digits + 1)  # of each of the equal parts of the interval from 0 to 1
        return _convert(run, low + high * (math.sqrt(2) * run(elementwise.erf_inv, middle * 2 - 1)), kind)
    scaled = _convert(run, low + (high - low) * (whole * 2.0**-digits), kind)
    return run(elementwise.select, scaled < b, scaled, a)  # what rounding took to the end is put at the beginning


def _fresh_bits(run: Run, shape: Shape) -> Any:
    each = 2 if shape.element_type.bits == 64 else 4
    counter = run(rng_get_and_update_state, delta=-(-shape.size // each))
    key = run(movement.broadcast, _zero(run), sizes=(1,), dimensions=())
    state = run(movement.concatenate, key, counter, dimension=0)
    return run(rng_bit_generator, state, algorithm="rng_philox", shape=shape)[1]


def _zero(run: Run) -> Any:
    return run(movement.constant, literal=Literal(np.zeros((), np.uint64)))


def _rng_batch(size: int, operands: tuple[Value, Value], axes: Axes, **attributes: Any) -> Any:
    a, b = movement.in_front(operands, axes, size)
    return _draw(_calling, a, b, **attributes), 0


def _rng_samples(random: np.random.Generator) -> Iterator[Sample]:
    """Of which there is only one outcome."""
    for name in ("f32", "f64", "bf16", "f16", "s32", "u8", "s64", "pred"):
        kind = element_type(name)
        at, following, zero = (np.asarray(x).astype(kind.dtype) for x in (3, 4, 0))
        for dimensions in ((), (3, 2), (0,)):
            shape = Shape(kind, dimensions)
            yield Sample((at, following if kind.is_integer else at), {"distribution": "rng_uniform", "shape": shape})
            if kind.is_inexact:
                yield Sample((at, zero), {"distribution": "rng_normal", "shape": shape})


rng = Op(
    "rng",
    attributes=Rng,
    fill_defaults=True,
    shape=_rng_shape,
    evaluate=partial(_draw, _evaluating),
    derivative=NotDifferentiable("its numbers come from a hidden state; scale and shift standard ones instead"),
    batch=_rng_batch,
    samples=_rng_samples,
    expand=partial(_draw, _calling),
)
