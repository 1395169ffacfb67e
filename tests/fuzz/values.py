"""Random arrays: element types, shapes, and values that include ties, extremes, infinities and NaN."""

from __future__ import annotations

from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

Generator = np.random.Generator
Array = np.ndarray[Any, Any]

FLOATS = ("float32", "float32", "float32", "float16", "bfloat16")
INTEGERS = ("int32", "int32", "int8", "uint8", "int16", "uint16", "uint32")
COMPLEX = ("complex64",)
TINY = ("int4", "uint4", "float8_e4m3fn", "float8_e5m2")
WIDE = {"float32": "float64", "int32": "int64", "uint32": "uint64", "complex64": "complex128"}

CLASSES: dict[str, tuple[str, ...]] = {
    "float": FLOATS,
    "f32": ("float32",),
    "i32": ("int32",),
    "u8": ("uint8",),
    "u32": ("uint32",),
    "c64": ("complex64",),
    "complex": COMPLEX,
    "inexact": (*FLOATS, *FLOATS, *COMPLEX),
    "int": INTEGERS,
    "bits": (*INTEGERS, "bool"),
    "bool": ("bool",),
    "real": (*FLOATS, *FLOATS, *INTEGERS),
    "number": (*FLOATS, *FLOATS, *INTEGERS, *COMPLEX, *COMPLEX),
    "any": (*FLOATS, *FLOATS, *FLOATS, *INTEGERS, *COMPLEX, *COMPLEX, "bool", "bool", *TINY),
    "key": ("uint32",),
}

SHAPES: tuple[tuple[int, ...], ...] = (
    *((), (3,), (4,), (3, 4), (2, 3), (2, 3, 4)) * 4,
    *((1,), (0,), (4, 1), (0, 3), (1, 1), (17,), (33,)) * 2,
    *((2, 0, 3), (2, 1, 3, 2), (5, 33), (1000,), (70_000,)),
)
SIZES = (0, 1, 1, 2, 3, 3, 3, 4, 4, 5, 7, 17)

VARIETIES = ("plain", "special", "ties", "extreme", "subnormal")


class Input(NamedTuple):
    """An argument of a program: its type, its shape, and what its values must satisfy."""

    dtype: str
    shape: tuple[int, ...]
    kind: str = ""
    bound: int = 0
    scalar: bool = False  # passed as a Python number, which is weakly typed


def dtype_of(name: str) -> np.dtype[Any]:
    """NumPy's or ml_dtypes' type of that name."""
    return np.dtype(getattr(ml_dtypes, name, name))


def is_float(name: str) -> bool:
    return name.startswith(("float", "bfloat"))


def is_inexact(name: str) -> bool:
    return is_float(name) or name.startswith("complex")


def limits(name: str) -> tuple[float, float]:
    """The smallest normal and the largest finite number of a type of floats."""
    information = ml_dtypes.finfo(dtype_of(name))
    return float(information.smallest_normal), float(information.max)


def draw(given: Input, variety: str, random: Generator) -> Any:
    """Values for an argument: an array, or a Python number."""
    values = _values(given, variety, random)
    if given.scalar:
        return values.reshape(-1)[0].item()
    return values


def _values(given: Input, variety: str, random: Generator) -> Array:
    constrained = _CONSTRAINED.get(given.kind)
    if constrained is not None:
        with np.errstate(all="ignore"):
            return np.asarray(constrained(given, random)).reshape(given.shape).astype(dtype_of(given.dtype))
    if given.kind in ("finite", "small") and variety in ("special", "extreme", "subnormal"):
        variety = "plain"
    with np.errstate(all="ignore"):
        return np.asarray(_unconstrained(given, variety, random)).astype(dtype_of(given.dtype))


def _unconstrained(given: Input, variety: str, random: Generator) -> Array:
    if given.dtype == "bool":
        return np.asarray(random.random(given.shape)) < (0.5 if variety != "extreme" else random.integers(2))
    if given.dtype.startswith("complex"):
        part = Input("float" + str(int(given.dtype[7:]) // 2), given.shape, given.kind)
        result = np.empty(given.shape, given.dtype)
        result.real, result.imag = _floats(part, variety, random), _floats(part, variety, random)
        return result
    return _floats(given, variety, random) if is_float(given.dtype) else _integers(given, variety, random)


def _floats(given: Input, variety: str, random: Generator) -> Array:
    shape = given.shape
    if variety == "ties":
        return np.where(random.random(shape) < 0.1, -0.0, random.integers(-3, 4, shape).astype(np.float64))
    plain = random.normal(size=shape) * random.choice((0.5, 1.0, 3.0))
    if variety == "plain":
        return plain
    tiny, huge = limits(given.dtype)
    if variety == "special":
        infinity = huge if given.dtype == "float8_e4m3fn" else np.inf
        chosen = random.choice((np.nan, infinity, -infinity, 0.0, -0.0, 1.0, -1.0, 0.5), shape)
        return np.where(random.random(shape) < 0.4, chosen, plain)
    if variety == "subnormal":
        return np.where(random.random(shape) < 0.5, tiny * random.uniform(-2, 2, shape), plain)
    extremes = (
        huge,
        -huge,
        huge / 2,
        2.0**7 * tiny,
        -(2.0**7) * tiny,
        1e-3,
        1e3,
        88.0,
        -88.0,
        2.0**24 + 1,
        2.0**31,
        -(2.0**31),
        2.0**63,
    )
    return np.clip(random.choice(extremes, shape), -huge, huge)


def _integers(given: Input, variety: str, random: Generator) -> Array:
    information = ml_dtypes.iinfo(dtype_of(given.dtype))
    low, high = int(information.min), int(information.max)
    if variety in ("plain", "ties") or given.kind == "small":
        span = 10 if variety == "plain" else 2
        return random.integers(max(low, -span), min(high, span), given.shape, endpoint=True)
    if variety == "special":
        chosen = np.array([0, 1, low, high, low + 1, high - 1, high // 2], np.uint64 if high > 2**63 else np.int64)
        return np.take(chosen, random.integers(len(chosen), size=given.shape))
    bits = np.asarray(random.integers(0, 2**64, given.shape, np.uint64))
    return bits if high > 2**62 else (bits % np.uint64(high - low + 1)).astype(np.int64) + low


def _uniform(low: float, high: float) -> Any:
    return lambda given, random: random.uniform(low, high, given.shape)


def _symmetric_positive(given: Input, random: Generator) -> Array:
    factor = _gaussian(given, random)
    return factor @ np.conj(np.swapaxes(factor, -1, -2)) + 2 * np.eye(given.shape[-1])


def _gaussian(given: Input, random: Generator) -> Array:
    real = random.normal(size=given.shape)
    return real + 1j * random.normal(size=given.shape) if given.dtype.startswith("complex") else real


def _well_conditioned(given: Input, random: Generator) -> Array:
    size = min(given.shape[-2:])
    result = 0.3 * _gaussian(given, random)
    # Singular values and diagonals that are apart, so that factors are unique and smooth.
    result[..., range(size), range(size)] += 2 + np.arange(size)
    return result


def _hermitian(given: Input, random: Generator) -> Array:
    value = _well_conditioned(given, random)
    return value + np.conj(np.swapaxes(value, -1, -2))


def _distances(given: Input, random: Generator) -> Array:
    """Numbers between -10 and 10 of the type, so that they are in order after the conversion."""
    return (random.choice(400, given.shape, False) / 20 - 10.0).astype(dtype_of(given.dtype))


def _probabilities(given: Input, random: Generator) -> Array:
    values = random.uniform(0.1, 1, given.shape)
    return values / values.sum(-1, keepdims=True) if values.ndim else values


def _permutation(given: Input, random: Generator) -> Array:
    return random.permuted(np.broadcast_to(np.arange(given.shape[-1]), given.shape), axis=-1)


# What only some values are valid for. The condition of the others belongs to the wrong arguments, not here.
_CONSTRAINED: dict[str, Any] = {
    "unit": _uniform(0.02, 0.98),
    "signed_unit": _uniform(-0.98, 0.98),
    "positive": _uniform(0.3, 4.0),
    "normal": lambda given, random: _gaussian(given, random),
    "distinct": lambda given, random: random.permutation(int(np.prod(given.shape))) * 0.37 - 1.0,
    "sorted": lambda given, random: np.sort(_distances(given, random), axis=-1),
    "spd": _symmetric_positive,
    "well": _well_conditioned,
    "hermitian": _hermitian,
    "upper": lambda given, random: np.triu(_well_conditioned(given, random)),
    "probability": _probabilities,
    "permutation": _permutation,
    "index": lambda given, random: random.integers(-given.bound, max(given.bound, 1), given.shape),
    "natural": lambda given, random: random.integers(0, max(given.bound, 1), given.shape),
    "count": lambda given, random: random.integers(1, max(given.bound, 2), given.shape),
    "places": lambda given, random: random.permutation(given.bound)[: int(np.prod(given.shape))],
    "key": lambda given, random: random.integers(0, 2**32, given.shape, np.uint64),
    "zeros": lambda given, random: np.zeros(given.shape),
}


def literal(value: Any) -> str:
    """Python source of a value, for a reproducer."""
    if not isinstance(value, np.ndarray):
        text = repr(value)
        return text.replace("nan", "np.nan").replace("inf", "np.inf")
    if value.size > 64:
        return f"np.frombuffer(bytes.fromhex({value.tobytes().hex()!r}), {str(value.dtype)!r}).reshape({value.shape})"
    if value.dtype.kind == "c":
        pairs = value.view(value.real.dtype).tolist() if value.ndim else [value.real.item(), value.imag.item()]
        return f"np.array({_plain(pairs)}, {value.real.dtype.name!r}).view({value.dtype.name!r}).reshape({value.shape})"
    wide = value.astype(np.float64) if value.dtype.kind == "V" and is_float(str(value.dtype)) else value
    wide = wide.astype(np.int64) if wide.dtype.kind == "V" else wide
    return f"np.array({_plain(wide.tolist())}, {str(value.dtype)!r}).reshape({value.shape})"


def _plain(values: Any) -> str:
    return repr(values).replace("nan", "np.nan").replace("inf", "np.inf")
