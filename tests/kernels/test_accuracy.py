"""`docs/accuracy.md` says what is measured, nothing there is much worse than XLA; and `result_accuracy` is obeyed."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tinyxla as tx
from benchmarks import accuracy
from benchmarks.accuracy import FUNCTIONS, TYPES, Function
from tests.support import xla_oracle
from tinyxla import lax
from tinyxla.errors import AttributeValueError
from tinyxla.ops import elementwise, ops
from tinyxla.ops.numerics.accuracy import ResultAccuracy, accurate_ops, largest_error, working_type
from tinyxla.shapes import element_type

jax = pytest.importorskip("jax")

PROMISED = accurate_ops()
OURS = ("compiled", "interpreted")
HIGHEST = ResultAccuracy("highest")
LONG_DOUBLE_IS_LONGER = np.finfo(np.longdouble).nmant >= 63


# --- the document -----------------------------------------------------------------------------------------------------


class Cell:
    """An error in the table, and its marks."""

    def __init__(self, text: str) -> None:
        found = re.fullmatch(r"(\d+\.\d\d|> 9999)( s)?( d)?", text)
        assert found, f"{text!r} is no error"
        self.places = float("inf") if found[1] == "> 9999" else float(found[1])
        self.special, self.subnormal = not found[2], not found[3]


def table() -> dict[tuple[str, str], dict[str, Cell]]:
    text = accuracy.DOCUMENT.read_text(encoding="utf-8")
    lines = [line.strip("| ").split(" | ") for line in text.partition("## Errors")[2].splitlines() if line[:1] == "|"]
    head, _, *rows = lines
    assert head == ["function", "type", *accuracy.CONTESTANTS]
    cells = {(name, type): dict(zip(head[2:], map(Cell, rest), strict=True)) for name, type, *rest in rows}
    assert len(cells) == len(rows)
    return cells


MEASURED = [(function, type) for function in FUNCTIONS for type in function.types]


def test_the_document_has_every_function_of_every_type() -> None:
    assert list(table()) == [(function.name, type) for function, type in MEASURED]


def test_nothing_is_worse_than_xla_by_more_than_one_place() -> None:
    worse = {key: row for key, row in table().items() for ours in OURS if row[ours].places > row["XLA:CPU"].places + 1}
    assert worse == {}


def test_special_values_are_right() -> None:
    assert [key for key, row in table().items() for ours in OURS if not row[ours].special] == []


def test_subnormal_numbers_are_right_where_code_is_not_compiled() -> None:
    assert [key for key, row in table().items() if not row["interpreted"].subnormal] == []


def test_the_document_has_the_promises_of_the_code() -> None:
    assert accuracy.table(accuracy.promises()) in accuracy.DOCUMENT.read_text(encoding="utf-8")


def test_the_document_keeps_what_result_accuracy_promises() -> None:
    cells = table()
    broken = [
        (op, type)
        for op, name in PROMISED.items()
        for type in TYPES
        if (name, type) in cells
        for ours in (OURS if type in ("f64", "c128") else OURS[:1])
        if cells[name, type][ours].places > largest_error(op, element_type(type), element_type(type))
    ]
    assert broken == []


@pytest.mark.sample(every=4)
@pytest.mark.skipif(not LONG_DOUBLE_IS_LONGER, reason="NumPy has no number wider than float64 here.")
@pytest.mark.parametrize("contestant", OURS)
@pytest.mark.parametrize(
    ("function", "type"), [x for x in MEASURED if x[1] in ("f32", "c64")], ids=lambda x: getattr(x, "name", x)
)
def test_the_document_is_true(function: Function, type: str, contestant: str) -> None:
    """At fewer arguments the largest error is smaller, unless something has become worse."""
    found = accuracy.measure(function, type, 12, [contestant])[contestant]
    stated = table()[function.name, type][contestant]
    assert found.places <= 1.05 * stated.places + 0.05, found.worst
    assert (found.special, found.subnormal) == (stated.special, stated.subnormal)


def test_errors_are_seen() -> None:
    one = np.ones(1, np.float32)
    assert accuracy.errors_of(np.nextafter(one, np.float32(2)), np.ones(1), [one]).places == 1
    zero = np.zeros(1, np.float32)
    assert not accuracy.errors_of(-zero, np.zeros(1), [zero]).special
    tiny = np.full(1, 1e-40, np.float32)
    assert not accuracy.errors_of(zero, tiny.astype(np.float64), [tiny]).subnormal
    assert accuracy.errors_of(np.full(1, np.inf, np.float32), np.full(1, 3e38), [one]).places > 1e6


# --- result_accuracy --------------------------------------------------------------------------------------------------


def arguments(op: str, type: str) -> np.ndarray[Any, Any]:
    function = next(f for f in FUNCTIONS if f.name == PROMISED[op].name and type in f.types)
    return accuracy.arguments(function, type, 10)[0]


def largest(op: str, type: str, wanted: ResultAccuracy | None, compiled: bool) -> float:
    function = next(f for f in FUNCTIONS if f.name == PROMISED[op].name and type in f.types)
    x = arguments(op, type)
    exact = accuracy.exact_results(function, type, [x])
    attributes = {"result_accuracy": wanted} if wanted else {}

    def apply(x: Any) -> Any:
        return ops[op](x, **attributes)

    result = (tx.jit(apply) if compiled else apply)(tx.numpy.asarray(x, x.dtype))
    return accuracy.errors_of(np.asarray(result), exact, [x]).places


TAKEN = [(op, type) for op in PROMISED for type in ("f32", "c64") if type == "f32" or op not in ("cbrt", "erf")]


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize(("op", "type"), TAKEN)
def test_the_highest_accuracy_is_nearly_correct_rounding(op: str, type: str, compiled: bool) -> None:
    bound = largest_error(op, element_type(type), element_type({"f32": "f64", "c64": "c128"}[type]))
    assert bound < 0.75
    assert largest(op, type, HIGHEST, compiled) <= bound


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize(("op", "type"), TAKEN)
def test_a_tolerance_is_met(op: str, type: str, compiled: bool) -> None:
    assert largest(op, type, ResultAccuracy("tolerance", ulps=2), compiled) <= 2


def test_the_cheapest_implementation_that_meets_a_tolerance_is_taken() -> None:
    f32, f64 = element_type("f32"), element_type("f64")
    assert working_type("exponential", f32, None) is f32
    assert working_type("exponential", f32, ResultAccuracy()) is f32
    assert working_type("exponential", f32, HIGHEST) is f64
    assert working_type("exponential", f64, HIGHEST) is f64
    assert working_type("exponential", f32, ResultAccuracy("tolerance", ulps=2)) is f32
    assert working_type("exponential", f32, ResultAccuracy("tolerance", ulps=1)) is f64
    assert working_type("exponential", f32, ResultAccuracy("tolerance", rtol=1e-6)) is f32
    assert working_type("exponential", f32, ResultAccuracy("tolerance", rtol=1e-7)) is f64
    assert working_type("tanh", f32, ResultAccuracy("tolerance", atol=1e-6)) is f32


@pytest.mark.parametrize(
    ("op", "x", "wanted", "message"),
    [
        ("tan", np.ones(2), ("tolerance", 0, 0, 1), r"tan: result_accuracy asks for ulps 1 of f64, but the best "
            r"implementation is within 1.4 ulps; ask for ulps >= 2, or for the mode highest, or leave it out"),
        ("exponential", np.ones(2, np.float32), ("tolerance", 1e-3), "asks for atol 0.001 of f32"),
        ("log", np.ones(2, np.float32), ("tolerance", 1e-9, 1e-9), "asks for atol 1e-09 or rtol 1e-09 of f32"),
        ("log", np.ones(2), ("best",), "the mode of result_accuracy must be default, highest or tolerance, but got 'b"),
        ("log", np.ones(2), ("tolerance", -1.0), "tolerances must be finite and not negative"),
        ("log", np.ones(2), ("tolerance",), "must have at least one of atol, rtol and ulps in the mode tolerance"),
        ("log", np.ones(2), ("highest", 1.0), "and none in others, but got the mode highest with atol 1"),
    ],
)  # fmt: skip
def test_what_cannot_be_met_is_refused(op: str, x: Any, wanted: tuple[Any, ...], message: str) -> None:
    array = tx.numpy.asarray(x, x.dtype)
    for call in (ops[op], lambda *args, **attributes: tx.jit(lambda x: ops[op](x, **attributes))(*args)):
        with pytest.raises(AttributeValueError, match=message):
            call(array, result_accuracy=ResultAccuracy(*wanted))


def test_transformations_keep_it() -> None:
    def function(x: Any) -> Any:
        return lax.sin(x, accuracy=lax.AccuracyMode.HIGHEST)

    x = np.linspace(0, 1, 6, dtype=np.float32).reshape(2, 3)
    for transformed in (tx.vmap(function), lambda x: tx.jvp(function, (x,), (x,))[0]):
        assert "sine(parameter.1), result_accuracy={mode=highest}" in tx.jit(transformed).lower(x).as_text()
    slope = tx.vmap(tx.vmap(tx.grad(function)))(x)
    np.testing.assert_allclose(slope, np.cos(x), rtol=1e-6)


TEXTS = {
    "{mode=highest}": HIGHEST,
    "{tolerance={atol=0.001,rtol=0,ulps=2}}": ResultAccuracy("tolerance", atol=1e-3, ulps=2),
    "{tolerance={atol=0,rtol=1e-05,ulps=0}}": ResultAccuracy("tolerance", rtol=1e-5),
}


@pytest.mark.parametrize("text", TEXTS)
def test_the_text_is_that_of_xla(text: str) -> None:
    for op in PROMISED:
        lowered = tx.jit(lambda x, op=op: ops[op](x, result_accuracy=TEXTS[text])).lower(np.ones(3, np.float32))
        assert f"{op}(parameter.1), result_accuracy={text}" in lowered.as_text()
        assert f"result_accuracy={text}" in xla_oracle.parse(lowered.as_text()).to_string()


def test_accuracies_of_lax_are_those_of_jax() -> None:
    x = np.ones(3, np.float32)
    assert "result_accuracy" not in tx.jit(lambda x: lax.exp(x, accuracy=lax.AccuracyMode.DEFAULT)).lower(x).as_text()
    assert {mode.name: mode.value for mode in lax.AccuracyMode} == {m.name: m.value for m in jax.lax.AccuracyMode}
    for name in ("cbrt", "cos", "exp", "expm1", "log", "log1p", "logistic", "rsqrt", "sin", "sqrt", "tan", "tanh"):
        for library in (lax, jax.lax):
            tolerance = library.Tolerance(atol=1e-4, ulps=4)
            np.testing.assert_allclose(getattr(library, name)(x, accuracy=tolerance), getattr(lax, name)(x), rtol=1e-6)
    for arguments in ({}, {"atol": -1.0}):
        for library in (lax, jax.lax):
            with pytest.raises(ValueError, match=r"negative|at least one|At least one"):
                library.Tolerance(**arguments)
    with pytest.raises(AttributeValueError, match="accuracy must be a Tolerance or an AccuracyMode, but got 'high'"):
        lax.exp(x, accuracy="high")  # pyright: ignore[reportArgumentType]


def test_default_calls_do_not_look_at_accuracies(monkeypatch: pytest.MonkeyPatch) -> None:
    x = tx.numpy.asarray(np.ones(3, np.float32))
    tx.numpy.exp(x)
    monkeypatch.setattr(elementwise, "working_type", None)
    assert tx.numpy.exp(x).shape == (3,)
