"""Sampled cases of parametrized tests: the same ones as JAX's, in the same order, so that a test's name means the same
arguments."""

from __future__ import annotations

import functools
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tinyxla.errors import ArgumentError
from tinyxla.jax.flags import Flag
from tinyxla.jax.testing.absl_testing import parameterized

Case = dict[str, Any]

NUM_GENERATED_CASES = Flag(
    "jax_num_generated_cases",
    int(os.environ.get("JAX_NUM_GENERATED_CASES", "10")),
    "How many cases of a sampled test are run.",
)
_MAX_RETRIES = Flag(
    "max_cases_sampling_retries",
    int(os.environ.get("JAX_MAX_CASES_SAMPLING_RETRIES", "100")),
    "How many samples in a row may have been drawn before, until no more are drawn.",
)
_SEED = 42


@functools.cache
def _chosen(total: int, count: int) -> np.ndarray[Any, Any]:
    """Different numbers below a total."""
    return np.random.RandomState(_SEED).choice(total, size=count, replace=False)


def sample_product_testcases(*args: Any, **kw: Any) -> list[Case]:
    """Samples of a product of sets of arguments.

    Args:
        *args: sets of dicts of arguments that belong together.
        **kw: sets of values of one argument.

    Returns:
        As many dicts of arguments as the flag `jax_num_generated_cases` says, or all.
    """
    together = [list(dicts) for dicts in args]
    single = [[{name: value} for value in values] for name, values in kw.items()]
    axes = [*together, *single]
    sizes = [len(axis) for axis in axes]
    total = math.prod(sizes)
    cases: list[Case] = []
    for number in _chosen(total, min(total, NUM_GENERATED_CASES.value)):
        case: Case = {}
        for axis, size in zip(axes, sizes, strict=True):  # the first one is the fastest
            number, index = divmod(number, size)
            case |= axis[index]
        cases.append(case)
    return cases


def sample_product(*args: Any, **kw: Any) -> Any:
    """A decorator of a test, which runs for samples of a product of arguments: see `sample_product_testcases`."""
    return parameterized.parameters(*sample_product_testcases(*args, **kw))


def cases_from_gens(*gens: Callable[[int], Any]) -> Iterator[tuple[Any, ...]]:
    """Named cases whose arguments functions of a size give, for the sizes 1, 3 and 10."""
    sizes = (1, 3, 10)
    for size in sizes:
        for k in range(NUM_GENERATED_CASES.value // len(sizes) + 1):
            yield (f"_{size}_{k}", *(gen(size) for gen in gens))


def named_cases_from_sampler(gen: Callable[[Callable[[Any], list[Any]]], Any]) -> Iterator[Case]:
    """Different cases of a generator, which gives one for a function that chooses one element of a collection.

    Raises:
        ArgumentError: it gives several cases.
    """
    rng = np.random.RandomState(_SEED)

    def choose_one(elements: Any) -> list[Any]:
        known = elements if isinstance(elements, list | tuple) else list(elements)
        return [known[rng.randint(len(known))]]

    seen: set[str] = set()
    failures = 0
    while len(seen) < NUM_GENERATED_CASES.value and failures < _MAX_RETRIES.value:
        failures += 1
        cases = list(gen(choose_one))
        if len(cases) > 1:
            raise ArgumentError(f"named_cases_from_sampler: the generator must give one case, but gave {len(cases)}.")
        for case in cases:
            name = case["testcase_name"]
            if name not in seen:
                failures = 0
                seen.add(name)
                yield case


_SPECIAL = re.compile(r"[ \"'\[\](){}<>=,._]+")


def sanitize_test_name(s: str) -> str:
    """A name that `-k` of pytest and unittest takes.

    >>> sanitize_test_name("f[2,3]=x")
    'f_2_3_x'
    """
    return _SPECIAL.sub("_", s)


def parameterized_filterable(
    *,
    kwargs: Sequence[Case],
    testcase_name: Callable[[Mapping[str, Any]], Any] | None = None,
    one_containing: str | None = None,
) -> Any:
    """A decorator of a test, which runs for each dict of arguments under a name that `-k` takes.

    Args:
        kwargs: the arguments. `testcase_name` among them is the name; without it, it is made of all of them.
        testcase_name: a function from arguments to the name.
        one_containing: run one case alone whose name has this text, under the name of the test.

    Raises:
        ArgumentError: no name has that text.
    """

    def name_of(case: Case) -> str:
        if testcase_name is not None:
            return str(testcase_name(case))
        given = case.get("testcase_name")
        return "_".join(f"{name}={case[name]}" for name in sorted(case)) if given is None else given

    cases = [{**case, "testcase_name": sanitize_test_name(name_of(case))} for case in kwargs]
    if one_containing is None:
        return parameterized.named_parameters(*cases)
    found = [case for case in cases if one_containing in case["testcase_name"]]
    if not found:
        names = "\n  ".join(case["testcase_name"] for case in cases)
        raise ArgumentError(f"parameterized_filterable: no name has the text {one_containing!r}; they are\n  {names}")
    return parameterized.named_parameters([{**found[0], "testcase_name": ""}])
