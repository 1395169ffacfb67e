"""Whether results agree: structure, types and values, with tolerances that follow from types and conditioning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import ml_dtypes
import numpy as np

import tinyxla

Array = np.ndarray[Any, Any]


class Tolerance(NamedTuple):
    """How far results may be apart: by the machine epsilon of their type.

    `ulps`: units in the last place, before anything is known of the conditioning. `perturbation`: units in the last
    place by which the arbiter moves inputs. `slack`: a result may be as far from the exact one as the error that
    perturbed inputs cause, or JAX's own, times this.
    """

    ulps: float
    perturbation: float
    slack: float


def tolerance(precision: float) -> Tolerance:
    """Few units for narrow types, of which 64 in bfloat16 are half of the number: they are computed in wider types and
    rounded."""
    if precision < 1e-6:
        return Tolerance(64, 4, 16)
    if precision < 1e-3:
        return Tolerance(8, 1, 4)
    return Tolerance(4, 1, 4) if precision < 1e-2 else Tolerance(2, 0.5, 2)


def leaves(tree: Any) -> list[Any]:
    return jax.tree_util.tree_leaves(tree)


def epsilon(dtype: np.dtype[Any]) -> float:
    if dtype.kind in "fc" or dtype.kind == "V":
        return float(ml_dtypes.finfo(dtype).eps)
    return 0.0


def is_inexact(dtype: np.dtype[Any]) -> bool:
    try:
        ml_dtypes.finfo(dtype)
    except ValueError:
        return False
    return True


def structure(ours: Any, theirs: Any, weak: bool = False) -> str | None:
    """How results differ without looking at their values."""
    a, b = leaves(ours), leaves(theirs)
    if len(a) != len(b):
        return f"structure: {len(a)} results, expected {len(b)}"
    for x, y in zip(a, b, strict=True):
        if isinstance(y, str | bytes | type(None)):
            continue
        if np.shape(x) != np.shape(y):
            return f"shape: {np.shape(x)}, expected {np.shape(y)}"
        if not hasattr(x, "dtype") or not hasattr(y, "dtype"):
            continue  # Python's numbers, which JAX compiles to arrays
        if x.dtype != y.dtype:
            return f"dtype: {x.dtype}, expected {y.dtype}"
        if weak and hasattr(y, "weak_type") and getattr(x, "weak_type", False) != y.weak_type:
            return f"weak_type: {getattr(x, 'weak_type', False)}, expected {y.weak_type}"
    return None


def differing(ours: Any, theirs: Any, scaled: bool, precision: float = 0.0, magnitude: float = 0.0) -> str | None:
    """How values differ by more than rounding, or None. `scaled`: errors are relative to the largest element, or to
    `magnitude` if that is larger.

    `precision` is that of the inputs, where it is less than the result's.
    """
    for x, y in zip(leaves(ours), leaves(theirs), strict=True):
        if isinstance(y, str | bytes):
            if x != y:
                return f"value: {x!r}, expected {y!r}"
            continue
        found, expected = np.asarray(x), np.asarray(y)
        if found.shape != expected.shape:
            return f"shape: {found.shape}, expected {expected.shape}"
        bad = ~agreeing(found, expected, scaled, precision, magnitude)
        if bad.any():
            return _described(found, expected, bad)
    return None


def _described(found: Array, expected: Array, bad: Array) -> str:
    first = tuple(int(i) for i in np.argwhere(bad)[0])
    kind = "value"
    a, b = found[first], expected[first]
    if is_inexact(expected.dtype) and (np.isnan(_wide(a)) != np.isnan(_wide(b))):
        kind = "nan"
    elif is_inexact(expected.dtype) and bool(np.isinf(_wide(a))) != bool(np.isinf(_wide(b))):
        kind = "infinity"
    return f"{kind}: {a} at {first}, expected {b} ({int(bad.sum())} of {bad.size} elements)"


def _wide(x: Any) -> Array:
    x = np.asarray(x)
    if x.dtype.kind == "c":
        return x.astype(np.complex128)
    return x.astype(np.float64) if is_inexact(x.dtype) else x


def widened(x: Any) -> Any:
    """An array in 64 bits, if it is of floats or complex numbers."""
    return _wide(x) if isinstance(x, np.ndarray) and is_inexact(x.dtype) else x


def narrows_to(found: Array, exact: Array) -> bool:
    """Whether a result is the exact one, rounded to its type."""
    if found.shape != exact.shape or not is_inexact(found.dtype):
        return found.shape == exact.shape and bool(np.all(found == exact))
    with np.errstate(all="ignore"):
        return bool(np.all(agreeing(found, exact.astype(found.dtype), False)))


def agreeing(found: Array, expected: Array, scaled: bool, least: float = 0.0, magnitude: float = 0.0) -> Array:
    """Where elements are equal but for some units in the last place; NaN and infinities agree with themselves."""
    if found.dtype.kind == "V" and expected.dtype.kind == "O":  # tokens, which have no value
        return np.ones(found.shape, bool)
    if not is_inexact(expected.dtype):
        return np.asarray(found == expected)
    precision = max(epsilon(expected.dtype), least)
    a, b = _wide(found), _wide(expected)
    relative = tolerance(precision).ulps * precision
    allowed = relative * np.abs(b) + 4 * _tiny(expected.dtype)
    if scaled:
        finite = np.abs(b[np.isfinite(b)])
        allowed = allowed + relative * finite.max(initial=magnitude)
    if a.dtype.kind == "c":  # beside an infinite part the other one is compared on its own
        parts = [
            (x, y, np.where(np.isfinite(b), allowed, relative * np.abs(y)))
            for x, y in zip((a.real, a.imag), (b.real, b.imag), strict=True)
        ]
        return _parts_agree(*parts[0]) & _parts_agree(*parts[1])
    return _parts_agree(a, b, allowed)


def agree_with_any(found: Any, results: list[Any]) -> bool:
    """Whether every element is that of one of several results, rounded to its type."""
    ours = [np.asarray(x) for x in leaves(found)]
    candidates = [[np.asarray(x) for x in leaves(r)] for r in results]
    alike = [c for c in candidates if [x.shape for x in c] == [x.shape for x in ours]]
    return all(
        bool(np.any([agreeing(x, c[i].astype(x.dtype), scaled=False) for c in alike], axis=0).all())
        for i, x in enumerate(ours)
    )


def _parts_agree(a: Array, b: Array, allowed: Array) -> Array:
    with np.errstate(all="ignore"):
        allowed = np.where(np.isfinite(allowed), allowed, 0)
        return np.asarray((a == b) | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= allowed))


def zeros_of_other_sign(ours: Any, theirs: Any) -> str | None:
    """Where both results are zero, but of different sign."""
    for x, y in zip(leaves(ours), leaves(theirs), strict=True):
        if not hasattr(y, "dtype") or not is_inexact(np.asarray(y).dtype):
            continue
        found, expected = _parts(x), _parts(y)
        bad = (found == 0) & (expected == 0) & (np.signbit(found) != np.signbit(expected))
        if bad.any():
            return "sign of zero" + _described(found, expected, bad).removeprefix("value")
    return None


def _parts(x: Any) -> Array:
    """Real and imaginary parts, along a new last axis."""
    wide = _wide(x)
    return np.stack([wide.real, wide.imag], -1) if wide.dtype.kind == "c" else wide


def flushed(x: Any, scale: float = 1.0) -> Any:
    """The array with zeros, of the same sign, for subnormal numbers, as compiled code reads it; with a `scale` also for
    those that are subnormal when they are divided by it."""
    if not isinstance(x, np.ndarray) or not is_inexact(x.dtype):
        return x
    if x.dtype.kind == "c":
        parts = np.ascontiguousarray(x).view(x.real.dtype)
        return flushed(parts, scale).view(x.dtype).reshape(x.shape)
    wide = _wide(x)
    return np.where(np.abs(wide) < scale * _tiny(x.dtype), np.copysign(0, wide), wide).astype(x.dtype)


def largest(arrays: list[Any]) -> float:
    """The largest magnitude of a finite number."""
    wide = [_wide(x) for x in arrays if isinstance(x, np.ndarray) and is_inexact(x.dtype)]
    return max((float(np.abs(x[np.isfinite(x)]).max(initial=0)) for x in wide), default=0.0)


def is_finite(arrays: list[Any]) -> bool:
    """Whether there is neither an infinity nor a NaN."""
    return all(np.isfinite(_wide(x)).all() for x in arrays if isinstance(x, np.ndarray) and is_inexact(x.dtype))


def _tiny(dtype: np.dtype[Any]) -> float:
    return float(ml_dtypes.finfo(dtype).smallest_normal)


def least_precision(arrays: list[Any]) -> float:
    """The machine epsilon of the least precise of the arrays' types."""
    return max((epsilon(x.dtype) for x in arrays if isinstance(x, np.ndarray) and is_inexact(x.dtype)), default=0)


class Arbiter:
    """How far apart two correct implementations may be: asked after two results differed by more than some units in
    the last place.

    JAX computes with inputs that are perturbed by some units in the last place, in the type of the program and in one
    with twice the digits: the difference of the two is the error of rounding, and what a perturbation moves is the
    condition. For 64-bit types, which have no wider one, the errors of 32-bit types are scaled.
    """

    def __init__(
        self,
        reference: Callable[..., Any],
        arrays: list[Any],
        random: np.random.Generator,
        compiled: bool,
        least: float = 0.0,
    ) -> None:
        """`least`: the machine epsilon of the reference's own arithmetic, if it does not follow from the arrays."""
        self.precision = max(least_precision(arrays), least)
        self._random = random
        self._compiled = jax.jit(reference) if compiled else reference
        self._arrays = arrays

    def _run(self, arrays: list[Any]) -> list[Array]:
        with np.errstate(all="ignore"):
            return [np.asarray(x) for x in leaves(self._compiled(*arrays))]

    def _perturbed(self, x: Any, scale: float) -> tuple[Any, Any]:
        """A perturbed input in the narrower type, and the same number in the wider one; of a number that the narrower
        type does not reach, that number perturbed."""
        if not isinstance(x, np.ndarray) or not is_inexact(x.dtype):
            return x, x
        narrow = {"float64": np.float32, "complex128": np.complex64}.get(x.dtype.name, x.dtype)
        precision = epsilon(np.dtype(narrow))
        scale *= tolerance(precision).perturbation
        with np.errstate(all="ignore"):
            factor = 1 + precision * self._random.uniform(-scale, scale, x.shape)
            factor = np.where(np.isfinite(_wide(x) * factor), factor, 2 - factor)  # the largest numbers become smaller
            moved = (_wide(x.astype(narrow)) * factor).astype(narrow)
            wide = _wide(x) * factor
            reached = (narrow == x.dtype) | np.isclose(_wide(moved), wide, rtol=4 * precision, atol=0)
            return moved, np.where(reached, _wide(moved), wide)

    def agrees(self, ours: Any, theirs: Any) -> bool:
        """Whether our result is within what rounding and conditioning explain."""
        narrow, exact = [], []
        with jax.enable_x64(True):
            for scale in (0, 0.5, 1, 1, 1, 1):
                arrays = [self._perturbed(x, scale) for x in self._arrays]
                narrow.append(self._run([x for x, _ in arrays]))
                exact.append(self._run([x for _, x in arrays]))
        results = zip(leaves(ours), leaves(theirs), strict=True)
        return all(
            _within(np.asarray(x), np.asarray(y), [r[i] for r in narrow], [r[i] for r in exact], self.precision)
            for i, (x, y) in enumerate(results)
        )


def _within(found: Array, theirs: Array, narrow: list[Array], exact: list[Array], least: float) -> bool:
    double = least == epsilon(np.dtype(np.float64))
    if found.shape != exact[0].shape:
        return False
    agree = agreeing(found, theirs, False, least)
    if not is_inexact(theirs.dtype):
        unstable = np.any([m != exact[0] for m in (*exact, *narrow)], axis=0)
        return bool(np.all(agree | unstable | (found == exact[0])))
    a, b, wide = _wide(found), _wide(theirs), _wide(theirs if double else exact[0])
    precision = max(epsilon(theirs.dtype), least)
    ulps, _, slack = tolerance(precision)
    with np.errstate(all="ignore"):
        moved = [np.abs(_wide(m) - _wide(exact[0])) for m in exact]
        errors = [np.abs(_wide(n) - _wide(m)) for n, m in zip(narrow, exact, strict=True)]
        explained = np.max([np.where(np.isfinite(x), x, 0) for x in (*moved, *errors)], axis=0)
        explained = slack * explained * (precision / epsilon(np.dtype(np.float32)) if double else 1)
        # Of 64 bits the narrower results, which overflow early, say nothing.
        finite = [np.isfinite(_wide(m)) for m in (exact if double else (*exact, *narrow))]
        unstable = np.any(finite, axis=0) != np.all(finite, axis=0)
        if double:  # the inputs are moved by units of 32 bits, so that only a discontinuity makes a difference
            unstable |= np.max(np.nan_to_num(moved), axis=0) > 0.1 * np.abs(_wide(exact[0]))
        allowed = explained + ulps * precision * np.abs(wide) + 4 * _tiny(theirs.dtype)
        near = (np.abs(a - wide) <= allowed) | (np.abs(a - b) <= allowed)
        largest = float(ml_dtypes.finfo(theirs.dtype).max)
        overflow = ~np.isfinite(a) & (np.abs(wide) * (1 + ulps * precision) + explained > largest)
        same = (np.isnan(a) & np.isnan(wide)) | (a == wide)
    return bool(np.all(agree | near | overflow | unstable | same))


class Quotients:
    """Derivatives as central difference quotients of the reference in 64 bits."""

    def __init__(self, reference: Callable[..., Any], which: tuple[int, ...], arrays: list[Any]) -> None:
        self._which = which
        self._arrays = [widened(x) for x in arrays]
        self._reference = reference
        self._steps = 1e-5

    def _along(self, directions: list[Array]) -> list[Array]:
        """Central differences."""
        (before, after), _ = self._sides(directions)
        return [(a + b) / 2 for a, b in zip(before, after, strict=True)]

    def _sides(self, directions: list[Array]) -> Any:
        """Differences to both sides, and where they show that the function has no derivative."""
        with jax.enable_x64(True), tinyxla.enable_x64(True), np.errstate(all="ignore"):
            ends = []
            for step in (-self._steps, 0, self._steps):
                moved = list(self._arrays)
                for i, d in zip(self._which, directions, strict=True):
                    moved[i] = moved[i] + step * d
                results = (np.asarray(x) for x in leaves(self._reference(*moved)))
                ends.append([_wide(x) for x in results if is_inexact(x.dtype)])
            before = [(b - a) / self._steps for a, b in zip(ends[0], ends[1], strict=True)]
            after = [(b - a) / self._steps for a, b in zip(ends[1], ends[2], strict=True)]
            kinks = [
                np.abs(a - b) > 0.01 * (np.abs(a) + np.abs(b)).max(initial=1e-3)
                for a, b in zip(before, after, strict=True)
            ]
        return (before, after), kinks

    def agree_forward(self, tangents: list[Any], directions: list[Any]) -> bool:
        expected = self._along([_wide(d) for d in directions[: len(self._which)]])
        return all(_roughly(np.asarray(x), y) for x, y in zip(tangents, expected, strict=True))

    def agree_second(self, results: list[Any], directions: list[Any]) -> bool:
        """Of a reference that is a gradient; what it gives is the Hessian by the direction, of real arguments.

        Where the gradient has no derivative, any finite number will do."""
        if any(np.iscomplexobj(self._arrays[i]) for i in self._which):
            return False
        (before, after), kinks = self._sides([_wide(d) for d in directions[: len(self._which)]])
        return all(
            _roughly(np.where(kink, 0, found), np.where(kink, 0, (a + b) / 2)) and bool(np.isfinite(_wide(found)).all())
            for found, a, b, kink in zip(map(np.asarray, results), before, after, kinks, strict=True)
        )

    def agree_backward(self, gradients: list[Any], weights: list[Any]) -> bool:
        """Along each coordinate; of complex ones JAX's convention gives the conjugate's, which is not told here."""
        sizes = [np.size(self._arrays[i]) for i in self._which]
        if sum(sizes) > 100 or any(np.iscomplexobj(self._arrays[i]) for i in self._which):
            return False
        for place, i in enumerate(self._which):
            expected = np.zeros(np.size(self._arrays[i]))
            for at in range(expected.size):
                directions = [np.zeros(np.shape(self._arrays[j])) for j in self._which]
                directions[place].reshape(-1)[at] = 1
                moved = self._along(directions)
                expected[at] = sum(float(np.real(m * _wide(w)).sum()) for m, w in zip(moved, weights, strict=True))
            if not _roughly(np.asarray(gradients[place]), expected.reshape(np.shape(gradients[place]))):
                return False
        return True


def _roughly(found: Array, expected: Array) -> bool:
    scale = np.abs(expected[np.isfinite(expected)]).max(initial=1e-3)
    return bool(np.allclose(_wide(found), expected, rtol=2e-4, atol=2e-4 * scale))
