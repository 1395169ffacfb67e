"""Cases by number: which function or composition, with which seed; and batches of them in a process of their own."""

from __future__ import annotations

import re
import warnings
import zlib
from typing import Any, NamedTuple

import jax
import numpy as np

from .catalogue import catalogue
from .compositions import composition, prefixes
from .differences import Case, Outcome
from .programs import DERIVED, Program, single
from .values import Input, draw

_COMPOSED = 12  # one case of so many is a composition


def names_of(only: str) -> list[str]:
    """The functions whose name the regular expression matches somewhere."""
    return [n for n in catalogue() if re.search(only, n)]


def drawn(seed: int, number: int, names: list[str], composed: bool = True) -> tuple[Program, np.random.Generator]:
    """The program of a number: functions follow each other in an order that differs in every round."""
    random = np.random.default_rng([seed, number])
    x64 = bool(random.integers(2))
    if composed and (number % _COMPOSED == 0 or not names):
        return composition(random, x64), random
    index, place = divmod(number - number // _COMPOSED * composed, len(names))
    order = np.random.default_rng([seed, index]).permutation(len(names))
    return single(catalogue()[names[order[place]]], random, x64), random


def grouped(programs: list[Program]) -> Program:
    """One program with the calls of several, whose results are a list: compiled at once, in a fraction of the time."""
    calls: list[str] = []
    inputs: list[Input] = []
    for program in programs:
        shift = len(inputs)
        call = program.body.strip().removeprefix("return ")
        calls.append(re.sub(r"\bx(\d+)\b", lambda m, by=shift: f"x{int(m.group(1)) + by}", call))
        inputs.extend(program.inputs)
    body = "    return [\n" + "".join(f"        {call},\n" for call in calls) + "    ]\n"
    return Program("group", body, tuple(inputs), programs[0].x64)


class Accepted(NamedTuple):
    """A program that the oracle takes, and its result's structure if it can be traced."""

    program: Program
    result: Any


def accepted(name: str, seed: int, x64: bool) -> Accepted | None:
    """The first call of a function that the oracle takes when it is traced."""
    random = np.random.default_rng([seed, zlib.crc32(name.encode())])
    for attempt in range(48):
        wide = x64 and attempt < 16  # some functions of JAX's take no 64-bit types
        program = single(catalogue()[name], random, wide, small=True)
        if program.concrete or program.oracle != "jax":
            return Accepted(program, None)
        arrays = [draw(given, "plain", random) for given in program.inputs]
        with jax.enable_x64(wide), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                return Accepted(program, jax.eval_shape(program.reference(), *arrays))
            except (jax.errors.JAXTypeError, jax.errors.JAXIndexError):
                return Accepted(program._replace(concrete=True), None)
            except Exception:  # the oracle refuses it, in whatever way
                continue
    return None


def run_case(seed: int, number: int, names: list[str], composed: bool = True) -> tuple[Program, Outcome]:
    """One case, in all ways. What differs in a composition is looked for in its statements."""
    with jax.enable_x64(True):  # so that the shapes of 64-bit programs can be found
        program, random = drawn(seed, number, names, composed)
    outcome = Case(program, random).run(_derived(random))
    if program.name == "composition" and outcome.differences:
        outcome = outcome._replace(differences=located(program, outcome, seed, number))
    tagged = [d._replace(seed=(seed, number)) for d in outcome.differences]
    return program, outcome._replace(differences=tagged)


def _derived(random: np.random.Generator) -> tuple[str, ...]:
    """Two of the derivatives, or none: each costs a compilation of the oracle's."""
    if random.random() < 0.4:
        return ()
    return tuple(str(d) for d in random.choice(DERIVED[1:], 2, replace=False))


def located(program: Program, outcome: Outcome, seed: int, number: int) -> list[Any]:
    derived = tuple({d.way.split()[0] for d in outcome.differences})
    for prefix in prefixes(program):
        for attempt in range(2):
            smaller = Case(prefix, np.random.default_rng([seed, number, attempt])).run(derived)
            if smaller.differences:
                return smaller.differences
    return outcome.differences
