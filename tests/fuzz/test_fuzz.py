"""The fixed part of the fuzzer: every public function, and compositions, against the oracle; and that it can object."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinyxla
from tests.fuzz import catalogue, catalogue_methods, compositions, differences, intended, quick, runs
from tests.fuzz.differences import Case, Difference
from tests.fuzz.programs import DERIVED, Program, single
from tests.fuzz.values import Input

SEED = 2026


def test_public_functions_are_called_or_excluded_with_a_reason() -> None:
    assert catalogue.unaccounted() == []
    assert sorted(catalogue.EXCLUDED.keys() - set(catalogue.public_names())) == []
    assert sorted(catalogue.EXCLUDED.keys() & catalogue.catalogue().keys()) == []


def test_templates_name_public_functions() -> None:
    declared = {f"{module}.{name}" for module, table in catalogue.TABLES.items() for name in table}
    shared = {f"scipy.special.{name}" for name in catalogue.TABLES["nn"]}
    assert sorted(declared - set(catalogue.public_names()) - shared) == []


def _open(found: list[Difference]) -> list[str]:
    """What is found and not intended, as text."""
    unknown = [d for d in found if intended.reason_for(d) is None]
    return [f"{d.reproducer}\n{d.kind} {d.way}: {d.detail}" for d in unknown]


_PARTS = 16  # of those with odd numbers in 64 bits; the first is in the default run


@pytest.mark.parametrize(
    "part", [pytest.param(part, marks=pytest.mark.thorough if part > 0 else ()) for part in range(_PARTS)]
)
def test_public_functions_agree_with_the_oracle_eager_and_compiled(part: int) -> None:
    names = sorted(catalogue.catalogue().keys() - catalogue_methods.EXPRESSIONS.keys())[part::_PARTS]
    assert _open(quick.differences(names, SEED + part, x64=part % 2 == 1)) == []


def test_planted_defect_is_found_in_the_fixed_part(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["numpy.cos", "lax.cos"]
    assert quick.differences(names, SEED, x64=False) == []
    cosine = tinyxla.numpy.cos
    monkeypatch.setattr(tinyxla.numpy, "cos", lambda x: cosine(x) + 10)
    monkeypatch.setattr(tinyxla.lax, "cos", lambda x: cosine(x)[None])
    found = {(d.name, d.kind) for d in quick.differences(names, SEED, x64=False)}
    assert found == {("numpy.cos", "value"), ("lax.cos", "shape")}


@pytest.mark.sample(every=2)
@pytest.mark.parametrize("number", range(2))
def test_compositions_agree_with_the_oracle_under_transformations(number: int) -> None:
    program, outcome = runs.run_case(SEED, number * 12, [])
    assert program.name == "composition"
    assert outcome.accepted
    assert _open(outcome.differences) == []


SIN = Program("numpy.sin", "    return jx.numpy.sin(x0)\n", (Input("float32", (3,)),), False, elementwise=True)


def _off(x: Any) -> Any:
    return tinyxla.numpy.cos(x - np.pi / 2) + 1e-4


@tinyxla.custom_jvp
def _wrong_derivative(x: Any) -> Any:
    return tinyxla.numpy.cos(x - np.pi / 2)


_wrong_derivative.defjvp(lambda primals, tangents: (_wrong_derivative(*primals), tangents[0] * 1.01))


def _not_on_special_values(x: Any) -> Any:
    return tinyxla.numpy.nan_to_num(tinyxla.numpy.cos(x - np.pi / 2))


def _raises(x: Any) -> Any:
    raise tinyxla.errors.ArgumentError("sin: planted.")


PLANTED: dict[str, tuple[Callable[..., Any], str]] = {
    "value": (_off, "value"),
    "derivative": (_wrong_derivative, "value"),
    "nan": (_not_on_special_values, "nan"),
    "dtype": (lambda x: tinyxla.numpy.cos(x - np.pi / 2).astype("float16"), "dtype"),
    "shape": (lambda x: tinyxla.numpy.cos(x - np.pi / 2)[None], "shape"),
    "error": (_raises, "raises"),
}


@pytest.mark.parametrize("defect", PLANTED)
def test_planted_defect_is_found(defect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _found(defect) == []
    wrong, kind = PLANTED[defect]
    monkeypatch.setattr(tinyxla.numpy, "sin", wrong)
    kinds = {d.kind for d in _found(defect)}
    assert kind in kinds


def _found(defect: str) -> list[Difference]:
    derived = DERIVED if defect == "derivative" else ("value",)
    return Case(SIN, np.random.default_rng(0), sets=12).run(derived).differences


def test_planted_acceptance_of_what_the_oracle_refuses_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = SIN._replace(body="    return jx.numpy.sin(x0, x0)\n")
    monkeypatch.setattr(tinyxla.numpy, "sin", lambda x, y: x)
    (found,) = Case(refused, np.random.default_rng(0), sets=2).run().differences
    assert found.kind == "accepts"


def test_difference_in_composition_is_located_in_its_statement(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ("jnp, lax = jx.numpy, jx.lax", "t0 = jnp.tanh(x0)", "t1 = jnp.sin(t0)", "t2 = t1 * 2", "return [t2]")
    body = "".join(f"    {line}\n" for line in lines)
    program = Program("composition", body, (Input("float32", (3,)),), False)
    assert [p.name for p in compositions.prefixes(program)][1] == "composition: jnp.sin(_)"
    monkeypatch.setattr(tinyxla.numpy, "sin", _off)
    outcome = Case(program, np.random.default_rng(0)).run(("value",))
    located = runs.located(program, outcome, SEED, 0)
    assert {d.name for d in located} == {"composition: jnp.sin(_)"}


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_planted_offset_is_found_in_each_type_of_floats(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = Program("numpy.cos", "    return jx.numpy.cos(x0)\n", (Input(dtype, (3,)),), False, elementwise=True)
    assert Case(program, np.random.default_rng(0), sets=8).run(("value",)).differences == []
    cosine = tinyxla.numpy.cos
    monkeypatch.setattr(tinyxla.numpy, "cos", lambda x: (cosine(x) + 0.5).astype(dtype))
    found = Case(program, np.random.default_rng(0), sets=8).run(("value",)).differences
    assert "value" in {d.kind for d in found}


def test_planted_sign_of_zero_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    sine = tinyxla.numpy.sin
    monkeypatch.setattr(tinyxla.numpy, "sin", lambda x: sine(x) + 0.0)
    program = SIN._replace(inputs=(Input("float32", (33,)),))
    found = Case(program, np.random.default_rng(0), sets=8).run(("value",)).differences
    assert {d.kind for d in found} == {"sign of zero"}


def test_intended_differences_name_functions_that_exist() -> None:
    names = [*catalogue.catalogue(), *catalogue.EXCLUDED, "composition: of several", "composition: jnp.argsort(_)"]
    assert [word for line in intended.INTENDED for word in line.unknown(names)] == []


def test_intended_differences_have_reasons_and_match_narrowly() -> None:
    assert all(line.reason and line.kind != ".*" for line in intended.INTENDED)
    any_value = Difference("numpy.sin", "value", "value eager", "value: 1 at (0,), expected 2", "")
    assert intended.reason_for(any_value) is None


def test_reproducer_runs_and_shows_both_results(capsys: pytest.CaptureFixture[str]) -> None:
    case = Case(SIN, np.random.default_rng(0), sets=2)
    exec(compile(case.reproducer("value eager", case.sets[0]), "<reproducer>", "exec"), {})
    ours, theirs = capsys.readouterr().out.splitlines()
    assert ours.split() == theirs.split()


def test_single_draws_all_templates_of_an_entry() -> None:
    entry = catalogue.catalogue()["numpy.einsum"]
    bodies = {single(entry, np.random.default_rng(k), False).body for k in range(200)}
    assert len(bodies) >= len(entry.templates)


def test_concretization_is_compared_eagerly() -> None:
    program = Program("numpy.nonzero", "    return jx.numpy.nonzero(x0)\n", (Input("int32", (4,)),), False)
    assert differences.Case(program, np.random.default_rng(1), sets=2).run().differences == []
