"""Running a program in all ways, and the differences found."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

import tinyxla

from . import compare
from .catalogue import SINGLE
from .compositions import results_of, statements, with_all_values
from .programs import DERIVED, HERMITIAN, Program, SciPy, derive, wrapped
from .values import VARIETIES, Input, draw, literal

SINGLE_PRECISION = compare.epsilon(np.dtype(np.float32))
_SETS = 12  # of values, which are the lanes of `vmap`


class Difference(NamedTuple):
    """A result that is not the oracle's.

    `inputs` are "finite", "infinite" if one is infinite or NaN, "subnormal" if one is a subnormal number, or "huge" if
    one is beyond a million; of derivatives, the oracle's `value` at these inputs is "finite" or "infinite". `types`:
    those of the inputs' elements.
    """

    name: str
    kind: str
    way: str
    detail: str
    reproducer: str
    seed: tuple[int, ...] = ()
    inputs: str = "finite"
    value: str = ""
    types: str = ""


class Raised(NamedTuple):
    """What a call raised instead of a result."""

    error: Exception

    def __str__(self) -> str:
        return f"{type(self.error).__name__}: {str(self.error)[:300]}"


class Outcome(NamedTuple):
    """How many programs of a case were run, and what was found; whether the oracle took the call."""

    programs: int
    accepted: bool
    differences: list[Difference]


def attempt(function: Callable[..., Any], arrays: Any) -> Any:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            result = function(*arrays)
            for x in compare.leaves(result):
                np.asarray(x) if hasattr(x, "dtype") else None
            return result
        except Exception as error:
            return Raised(error)


def is_of_numpy(program: Program, found: Any, arrays: list[Any]) -> bool:
    """Whether the result is that of NumPy or SciPy with 64 bits, which JAX's may be less exact than."""
    expected = attempt(program.function(SciPy), [compare.widened(x) for x in arrays])
    if isinstance(expected, Raised) or len(compare.leaves(expected)) != len(compare.leaves(found)):
        return False
    return all(
        compare.narrows_to(np.asarray(x), np.asarray(y))
        for x, y in zip(compare.leaves(found), compare.leaves(expected), strict=True)
    )


class Case:
    """A program with several sets of values: compared in value and derivatives, eager, compiled and mapped."""

    def __init__(self, program: Program, random: np.random.Generator, sets: int = _SETS) -> None:
        self.program, self.random = program, random
        self.found: list[Difference] = []
        self.programs = 0
        shared = [g.scalar or random.random() < 0.2 for g in program.inputs]
        first = [draw(g, "plain", random) for g in program.inputs]
        # Sums of numbers near the largest overflow or not, as their order has it.
        varieties = VARIETIES if program.elementwise and program.oracle == "jax" else VARIETIES[:-2]
        self.varieties = ["plain", *np.resize(random.permutation(varieties), sets - 1)]
        self.shared = shared
        self.sets = [
            [first[i] if shared[i] else draw(g, v, random) for i, g in enumerate(program.inputs)]
            for v in self.varieties
        ]

    def run(self, derived: tuple[str, ...] = DERIVED) -> Outcome:
        with tinyxla.enable_x64(self.program.x64), jax.enable_x64(self.program.x64):
            accepted = self._values()
            if accepted and self._has_derivatives():
                for what in derived:
                    if what != "value" and not self.found:
                        self._derivatives(what)
        return Outcome(self.programs, accepted, self.found)

    # --- values -------------------------------------------------------------------------------------------------------

    def _values(self) -> bool:
        program = self.program
        reference, concrete = self._reference(), program.concrete
        expected = attempt(reference, self.sets[0])
        if isinstance(expected, Raised) and _is_concretization(expected.error):
            concrete, reference = True, program.reference()
            expected = attempt(reference, self.sets[0])
        if isinstance(expected, Raised):
            self._expect_error(expected)
            return False
        results = [expected, *(attempt(reference, s) for s in self.sets[1:])]
        self._each("value", "eager", program.function(tinyxla), reference, results, self.sets)
        if concrete or self.found:
            return not concrete
        function = program.function(tinyxla)
        self._each("value", "jit", wrapped(function, "jit"), reference, results, self.sets)
        self._threads(wrapped(function, "jit"))
        if self.random.random() < 0.2:
            self._each("value", "interpreter", wrapped(function, "interpreter"), reference, results, self.sets)
        if len(self.found) == 0 and not all(self.shared):
            self._mapped("value", function, reference, results, self.sets)
        return True

    def _reference(self) -> Callable[..., Any]:
        if self.program.concrete or self.program.oracle != "jax":
            return self.program.reference()
        return jax.jit(self.program.reference())

    def _expect_error(self, expected: Raised) -> None:
        self.programs += 1
        result = attempt(self.program.function(tinyxla), self.sets[0])
        if not isinstance(result, Raised):
            self._add("accepts", "eager", f"no error, but {expected}", self.sets[0])

    def _each(
        self, what: str, way: str, function: Any, reference: Any, results: list[Any], sets: list[list[Any]]
    ) -> None:
        for arrays, expected in zip(sets, results, strict=True):
            if isinstance(expected, Raised):
                continue
            given = self._as_ours(arrays) if way.startswith("eager") else arrays
            self._one(what, way, attempt(function, given), expected, reference, arrays)

    def _as_ours(self, arrays: list[Any]) -> list[Any]:
        """The arrays as users have them: ours, NumPy's, or NumPy's in another order of memory."""
        way = 2 if self.program.name.startswith("composition") else self.random.integers(4)
        if way == 0:
            return [x.copy() if isinstance(x, np.ndarray) else x for x in arrays]
        if way == 1:
            return [np.asfortranarray(x) if isinstance(x, np.ndarray) and x.ndim else x for x in arrays]
        return [tinyxla.numpy.asarray(x) if isinstance(x, np.ndarray) else x for x in arrays]

    def _one(self, what: str, way: str, found: Any, expected: Any, reference: Any, arrays: list[Any]) -> None:
        self.programs += 1
        if isinstance(found, Raised):
            self._add("raises", f"{what} {way}", str(found), arrays)
            return
        weak = what == "value" and way == "jit" and self.program.oracle == "jax"
        exact_types = self.program.oracle == "jax"
        unlike = compare.structure(found, expected, weak) if exact_types else None
        if unlike is not None:
            self._add(unlike.partition(":")[0], f"{what} {way}", unlike, arrays)
            return
        scaled = what != "value" or not self.program.elementwise
        least = SINGLE_PRECISION if self.program.name in SINGLE else 0.0
        arbiter = compare.Arbiter(reference, arrays, np.random.default_rng(0), self.program.oracle == "jax", least)
        # Sums in a composition may cancel to zero in one order, and to some units of a large term in another.
        least = compare.largest(arrays) / 16 if self.program.name.startswith("composition") else 0.0
        unlike = compare.differing(found, expected, scaled, arbiter.precision, least)
        if unlike is None:
            if what == "value" and self.program.elementwise:
                self._signs_of_zeros(way, found, expected, arrays)
            return
        try:
            if arbiter.agrees(found, expected) or self._is_difference_quotient(what, found, arrays):
                return
        except Exception as error:  # the oracle does not take wide types
            unlike += f" [{type(error).__name__} in the arbiter]"
        if what == "value" and (is_of_numpy(self.program, found, arrays) or self._is_flushed(found, reference, arrays)):
            return
        if what == "value" and self._follows_in_every_statement(way, found, arrays):
            return
        self._add(unlike.partition(":")[0], f"{what} {way}", unlike, arrays)

    def _is_flushed(self, found: Any, reference: Any, arrays: list[Any]) -> bool:
        """Whether the result is that of zeros for subnormal numbers, which compiled code reads them as, or for numbers
        that a scale makes subnormal; element by element, where elements do not depend on each other, also NumPy's."""
        if any(self._is_that_of_zeros(found, reference, arrays, scale) for scale in (1.0, 4.0)):
            return True
        if not self.program.elementwise:
            return False
        given = (arrays, *([compare.flushed(x, scale) for x in arrays] for scale in (1.0, 4.0)))
        results = [attempt(reference, x) for x in given]
        exact = attempt(self.program.function(SciPy), [compare.widened(x) for x in arrays])
        results += [] if isinstance(exact, Raised) else [exact]
        return not any(isinstance(r, Raised) for r in results) and compare.agree_with_any(found, results)

    def _follows_in_every_statement(self, way: str, found: Any, arrays: list[Any]) -> bool:
        """Whether the result of a composition is that of its statements, each of which agrees with the oracle's for the
        operands that it had here: an order of nearly equal numbers that rounding decides is then no difference."""
        if not self.program.name.startswith("composition"):
            return False
        way = "jit" if "vmap" in way else way  # a lane has the values of one call
        whole = with_all_values(self.program)
        values = attempt(wrapped(whole.function(tinyxla), way), arrays)
        again = attempt(wrapped(self.program.function(tinyxla), way), arrays)
        if isinstance(values, Raised) or isinstance(again, Raised):
            return False
        names = results_of(self.program)
        if compare.differing([values[name] for name in names], compare.leaves(found), scaled=True) is not None:
            return False
        magnitude = compare.largest(arrays) / 16
        known = {**{f"x{i}": x for i, x in enumerate(arrays)}, **{k: np.asarray(x) for k, x in values.items()}}
        return all(
            compare.differing([known[name]], [attempt(alone, [known])], True, magnitude=magnitude) is None
            for name, alone in statements(self.program)
        )

    def _is_that_of_zeros(self, found: Any, reference: Any, arrays: list[Any], scale: float) -> bool:
        zeros = [compare.flushed(x, scale) for x in arrays]
        if all(np.array_equal(x, y, equal_nan=True) for x, y in zip(arrays, zeros, strict=True) if np.size(x)):
            return False
        expected = attempt(reference, zeros)
        if not isinstance(expected, Raised) and compare.differing(found, expected, scaled=False) is None:
            return True
        return is_of_numpy(self.program, found, zeros)

    def _signs_of_zeros(self, way: str, found: Any, expected: Any, arrays: list[Any]) -> None:
        """Zeros must have the sign of JAX's or NumPy's, or of JAX's of zeros for subnormal numbers."""
        unlike = compare.zeros_of_other_sign(found, expected)
        if unlike is None:
            return
        flushed = attempt(self.program.reference(), [compare.flushed(x) for x in arrays])
        if not isinstance(flushed, Raised) and compare.zeros_of_other_sign(found, flushed) is None:
            return
        exact = attempt(self.program.function(SciPy), [compare.widened(x) for x in arrays])
        if not isinstance(exact, Raised) and len(compare.leaves(exact)) == len(compare.leaves(found)):
            narrow = [
                np.asarray(x).astype(np.asarray(y).dtype)
                for x, y in zip(compare.leaves(exact), compare.leaves(found), strict=True)
            ]
            if compare.zeros_of_other_sign(found, narrow) is None:
                return
        self._add("sign of zero", f"value {way}", unlike, arrays)

    def _is_difference_quotient(self, what: str, found: Any, arrays: list[Any]) -> bool:
        """Whether derivatives are what central differences give in 64 bits, whatever JAX's rules make of them: of the
        function, or of its gradient."""
        if what == "value":
            return False
        count, which = len(self.program.inputs), self.program.differentiable
        if "_over_" in what:  # first of JAX's gradient, then of ours, which is compared on its own
            gradients = (jax.jit(derive(self.program, "vjp", jax)), tinyxla.jit(derive(self.program, "vjp", tinyxla)))
            quotients = (compare.Quotients(gradient, which, arrays) for gradient in gradients)
            return any(q.agree_second(compare.leaves(found), arrays[count:]) for q in quotients)
        quotient = compare.Quotients(jax.jit(self.program.reference()), which, arrays[:count])
        if what == "vjp":
            return quotient.agree_backward(compare.leaves(found), arrays[count + len(which) :])
        half = len(compare.leaves(found)) // 2
        return quotient.agree_forward(compare.leaves(found)[half:], arrays[count:])

    def _mapped(
        self, what: str, function: Any, reference: Any, results: list[Any], sets: list[list[Any]], of: str = ""
    ) -> None:
        if any(isinstance(r, Raised) for r in results):
            return
        ways = ("vmap", "jit(vmap)", "vmap(jit)") if what == "value" else ("vmap", "jit(vmap)", "jit(vmap)")
        way = str(self.random.choice(ways)) + of
        # Axes for the program's inputs; tangents and cotangents, which follow them, are mapped over the first.
        shared = [*self.shared, *[False] * (len(sets[0]) - len(self.shared))]
        axes = [
            None if s else int(self.random.integers(np.ndim(x) + 1)) if i < len(self.shared) else 0
            for i, (s, x) in enumerate(zip(shared, sets[0], strict=True))
        ]
        stacked = [sets[0][i] if axis is None else np.stack([s[i] for s in sets], axis) for i, axis in enumerate(axes)]
        given = (
            stacked if "jit(" in way or "(jit" in way else self._as_ours(stacked)
        )  # unmapped arrays stay what they are
        found = attempt(wrapped(function, way, tuple(axes)), given)
        if isinstance(found, Raised):
            self.programs += 1
            self._add("raises", f"{what} {way}", f"{found} in_axes={axes}", sets[0])
            return
        flat = _flat(reference)  # one function for all lanes, which JAX compiles once
        for lane, (arrays, expected) in enumerate(zip(sets, results, strict=True)):
            one = [x[lane] if np.ndim(x) else x for x in compare.leaves(found)]
            if any(np.ndim(x) == 0 for x in compare.leaves(found)):
                return  # a result that is no array
            self._one(what, way, one, compare.leaves(expected), flat, arrays)

    def _threads(self, function: Any) -> None:
        """Large arrays are divided among threads; the bits must not depend on that."""
        if max((int(np.prod(g.shape)) for g in self.program.inputs), default=0) < 50_000:
            return
        with tinyxla.num_threads(1):
            one = attempt(function, self.sets[0])
        with tinyxla.num_threads(2):
            two = attempt(function, self.sets[0])
        self.programs += 1
        if isinstance(one, Raised) or isinstance(two, Raised):
            return
        for x, y in zip(compare.leaves(one), compare.leaves(two), strict=True):
            if np.asarray(x).tobytes() != np.asarray(y).tobytes():
                self._add("threads", "jit", "other bits with two threads", self.sets[0])
                return

    # --- derivatives --------------------------------------------------------------------------------------------------

    def _has_derivatives(self) -> bool:
        if self.program.oracle != "jax" or self.found or not self.program.differentiable:
            return False
        largest = max(int(np.prod(g.shape)) for g in self.program.inputs)
        return largest <= 1000

    def _derivatives(self, what: str) -> None:
        program = self.program
        reference = jax.jit(derive(program, what, jax))
        finite = [s for s, v in zip(self.sets, self.varieties, strict=True) if v in ("plain", "ties")]
        shapes = jax.eval_shape(program.reference(), *finite[0])
        sets = [self._with_directions(s, compare.leaves(shapes)) for s in finite[:6]]
        results = [attempt(reference, s) for s in sets]
        if any(isinstance(r, Raised) for r in results):
            return
        of = str(self.random.choice(("", " of jit")))
        function = derive(program, what, tinyxla, compiled=bool(of))
        ways = ("eager", "jit", "jit(checkpoint)") if what != "reverse_over_reverse" and not of else ("eager", "jit")
        way = str(self.random.choice(ways)) + of
        self._each(what, way, wrapped(function, way), reference, results, sets)
        if not self.found and self.random.random() < 0.4:
            self._mapped(what, function, reference, results, sets, of)

    def _with_directions(self, arrays: list[Any], shapes: list[Any]) -> list[Any]:
        """Tangents for the inputs and cotangents for the results, which have the `shapes`."""
        results = [x for x in shapes if jax.numpy.issubdtype(x.dtype, jax.numpy.inexact)]
        tangents = [_tangent(self.program.inputs[i], arrays[i], self.random) for i in self.program.differentiable]
        return [*arrays, *tangents, *(_direction(x.shape, x.dtype, self.random) for x in results)]

    # --- reports ------------------------------------------------------------------------------------------------------

    def _add(self, kind: str, way: str, detail: str, arrays: list[Any]) -> None:
        inputs = _magnitude(arrays)
        text = self.reproducer(way, arrays)
        value = "" if way.startswith(("value", "eager")) else self._finiteness(arrays)
        types = " ".join(given.dtype for given in self.program.inputs)
        self.found.append(Difference(self.program.name, kind, way, detail, text, (), inputs, value, types))

    def _finiteness(self, arrays: list[Any]) -> str:
        """Whether the oracle's value, of which derivatives are compared, is finite."""
        value = attempt(self.program.reference(), arrays[: len(self.program.inputs)])
        if isinstance(value, Raised):
            return ""
        return "finite" if compare.is_finite([np.asarray(x) for x in compare.leaves(value)]) else "infinite"

    def reproducer(self, way: str, arrays: list[Any]) -> str:
        given = "\n".join(f"x{i} = {literal(x)}" for i, x in enumerate(arrays[: len(self.program.inputs)]))
        names = ", ".join(f"x{i}" for i in range(len(self.program.inputs)))
        return (
            "import ml_dtypes, numpy as np, jax, tinyxla\n"
            + (
                "jax.config.update('jax_enable_x64', True)\ntinyxla.config.update('enable_x64', True)\n"
                * self.program.x64
            )
            + f"{self.program.source}\n{given}\n"
            + f"print(program(tinyxla, np, {names}))\nprint(program(jax, np, {names}))  # {way}\n"
        )


def _magnitude(arrays: list[Any]) -> str:
    """What `Difference` says of inputs."""
    if not compare.is_finite(arrays):
        return "infinite"
    if not all(np.array_equal(x, compare.flushed(x)) for x in arrays):
        return "subnormal"
    return "huge" if compare.largest(arrays) > 1e6 else "finite"


def _is_concretization(error: Exception) -> bool:
    return isinstance(
        error,
        jax.errors.ConcretizationTypeError
        | jax.errors.TracerArrayConversionError
        | jax.errors.NonConcreteBooleanIndexError
        | jax.errors.TracerIntegerConversionError,
    )


def _flat(function: Any) -> Any:
    return lambda *arrays: compare.leaves(function(*arrays))


def _tangent(given: Input, x: Any, random: np.random.Generator) -> Any:
    """Of Hermitian matrices, of which functions read one triangle or both, tangents are Hermitian too."""
    values = _direction(x.shape, x.dtype, random)
    return (values + np.conj(np.swapaxes(values, -1, -2))) / 2 if given.kind in HERMITIAN else values


def _direction(shape: tuple[int, ...], dtype: Any, random: np.random.Generator) -> Any:
    values = random.normal(size=shape)
    values = values + 1j * random.normal(size=shape) if np.dtype(dtype).kind == "c" else values
    return np.asarray(values).astype(dtype)
