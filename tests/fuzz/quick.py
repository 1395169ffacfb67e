"""Every function called eagerly and compiled, at little cost: where NumPy or SciPy gives the same values, and JAX's
abstract evaluation the same types, JAX compiles nothing. The other calls it compiles in groups."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

import tinyxla

from . import compare
from .differences import Case, Difference, Raised, attempt, is_of_numpy
from .programs import Program, wrapped
from .runs import accepted, grouped
from .values import VARIETIES, draw

_GROUP = 16


class Call(NamedTuple):
    """A program, two sets of its arguments, and the results for each of them, eager and compiled."""

    program: Program
    sets: list[list[Any]]
    eager: list[Any]
    compiled: list[Any]

    def agrees(self, expected: Sequence[Any]) -> bool:
        """Whether structures and values are those expected, one result for each set."""
        return all(
            self._has_structure(found, right, weak) and self._has_values(found, right, arrays)
            for results, weak in ((self.eager, False), (self.compiled, True))
            for found, right, arrays in zip(results, expected, self.sets, strict=True)
        )

    def agrees_with_numpy(self, shapes: Any) -> bool:
        """Whether values are NumPy's or SciPy's, and structures those of JAX's abstract evaluation."""
        return all(
            self._has_structure(found, shapes, weak) and is_of_numpy(self.program, found, arrays)
            for results, weak in ((self.eager, False), (self.compiled, True))
            for found, arrays in zip(results, self.sets, strict=True)
        )

    def _has_structure(self, found: Any, right: Any, weak: bool) -> bool:
        raised = isinstance(found, Raised) or isinstance(right, Raised)
        return not raised and compare.structure(found, right, weak) is None

    def _has_values(self, found: Any, right: Any, arrays: list[Any]) -> bool:
        precision = compare.least_precision(arrays)
        return compare.differing(found, right, not self.program.elementwise, precision) is None


def differences(names: Sequence[str], seed: int, x64: bool) -> list[Difference]:
    """How one call of each function, eager and compiled, differs from the oracle."""
    found: list[Difference] = []
    alone: list[Program] = []
    remaining: list[Call] = []
    for name in names:
        given = accepted(name, seed, x64)
        if given is None:
            found.append(Difference(name, "uncalled", "value", "JAX takes no call of it", name))
        elif given.result is None:
            alone.append(given.program)
        else:
            call = _called(given.program, seed)
            if not call.agrees_with_numpy(given.result):
                remaining.append(call)
    for wide in (False, True):
        calls = [call for call in remaining if call.program.x64 == wide]
        for first in range(0, len(calls), _GROUP):
            alone += _disagreeing(calls[first : first + _GROUP])
    for program in alone:
        found += Case(program, np.random.default_rng(seed), sets=2).run(("value",)).differences
    return found


def _called(program: Program, seed: int) -> Call:
    random = np.random.default_rng([seed, zlib.crc32(program.name.encode())])
    varieties = ("plain", str(random.choice(VARIETIES[1:-1] if program.elementwise else VARIETIES[1:-2])))
    with tinyxla.enable_x64(program.x64):
        sets = [[draw(given, variety, random) for given in program.inputs] for variety in varieties]
        function = program.function(tinyxla)
        compiled = wrapped(function, "jit")
        return Call(program, sets, [attempt(function, s) for s in sets], [attempt(compiled, s) for s in sets])


def _disagreeing(calls: list[Call]) -> list[Program]:
    """The programs of those calls that differ from JAX's, which compiles all at once."""
    programs = [call.program for call in calls]
    with jax.enable_x64(programs[0].x64):
        reference = jax.jit(grouped(programs).reference())
        sets = [[x for call in calls for x in call.sets[k]] for k in range(2)]
        results = [attempt(reference, arrays) for arrays in sets]
    if any(isinstance(r, Raised) for r in results):  # by halves, so that the others stay together
        half = len(calls) // 2
        return _disagreeing(calls[:half]) + _disagreeing(calls[half:]) if half else programs
    return [call.program for i, call in enumerate(calls) if not call.agrees([r[i] for r in results])]
