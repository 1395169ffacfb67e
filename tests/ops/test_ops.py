"""Every op of the registry, with every sample that it gives, against all the demands of `op_checks`; and whether these
demands can object at all: ops with one wrong rule are planted, one for each kind of rule."""

from __future__ import annotations

import itertools
import mmap
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tinyxla
from tests.support import jax_oracle, op_checks
from tests.support.guarded_memory import Guard
from tinyxla.ops import Op, Sample, elementwise, movement, ops
from tinyxla.ops.numerics import integers
from tinyxla.ops.op import Bilinear, Linear, NotDifferentiable, Partials, Rules, Zero
from tinyxla.shapes import Shape

NAMES = sorted(ops)
EVERY = 3  # of so many samples one is compiled, and one given to JAX, in the default run


def seeded(text: str) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(text.encode()))


@pytest.fixture
def random(request: pytest.FixtureRequest) -> np.random.Generator:
    return seeded(request.node.name)


def samples_of(name: str) -> list[Sample]:
    return list(ops[name].samples(seeded(name)))


# --- every op ---------------------------------------------------------------------------------------------------------


def test_every_op_has_samples() -> None:
    assert {name for name in NAMES if not samples_of(name)} == op_checks.WITHOUT_SAMPLES.keys()


VALUE_CHECKS = [
    op_checks.check_shape,
    op_checks.check_eager,
    op_checks.check_graph,
    op_checks.check_prints,
    op_checks.check_derivative_types,
    op_checks.check_no_derivative,
    op_checks.check_batch,
]


# Of many operands each is mapped over any axis or none, in all combinations: hundreds for each sample.
MANY_BATCHES = [
    "batch-norm-grad",
    "batch-norm-inference",
    "ragged-all-to-all",
    "scaled-dot",
    "scatter",
    "while-pullback",
]


def _name_of(check: Callable[..., Any]) -> str:
    return check.__name__.removeprefix("check_")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("check", VALUE_CHECKS, ids=_name_of)
def test_op(check: Callable[..., Any], name: str) -> None:
    samples = samples_of(name)
    for sample in samples[:1] if check is op_checks.check_batch and name in MANY_BATCHES else samples:
        check(ops[name], sample)


@pytest.mark.thorough
@pytest.mark.parametrize("name", MANY_BATCHES)
def test_batch_of_op_with_many_operands(name: str) -> None:
    for sample in samples_of(name)[1:]:
        op_checks.check_batch(ops[name], sample)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("check", [op_checks.check_forward, op_checks.check_reverse], ids=_name_of)
def test_derivative(check: Callable[..., Any], name: str, random: np.random.Generator) -> None:
    for sample in samples_of(name):
        if not op_checks.is_narrow(sample):
            check(ops[name], sample, random)


def check_compiled(name: str, samples: list[Sample], monkeypatch: pytest.MonkeyPatch) -> None:
    """It is called twice, in memory whose end is guarded, and in memory whose start is."""
    if hasattr(mmap, "MAP_PRIVATE"):
        Guard(monkeypatch)
    for sample in samples:
        op_checks.check_compiled(tinyxla.jit, ops[name], sample)


@pytest.mark.parametrize("name", NAMES)
def test_op_compiled(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_compiled(name, samples_of(name)[::EVERY], monkeypatch)


@pytest.mark.thorough
@pytest.mark.parametrize("name", NAMES)
def test_op_compiled_with_every_sample(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_compiled(name, samples_of(name), monkeypatch)


def test_every_op_has_an_oracle() -> None:
    assert [name for name in NAMES if (name in jax_oracle.functions) == (name in jax_oracle.absent)] == []


def check_against_jax(name: str, samples: list[Sample]) -> None:
    for sample, expected in zip(samples, jax_oracle.results(name, samples), strict=True):
        op_checks.check_against(lambda *_, expected=expected, **__: expected, ops[name], sample)


@pytest.mark.parametrize("name", sorted(jax_oracle.functions))
def test_op_against_jax(name: str) -> None:
    check_against_jax(name, samples_of(name)[::EVERY])


@pytest.mark.thorough
@pytest.mark.parametrize("name", sorted(jax_oracle.functions))
def test_op_against_jax_with_every_sample(name: str) -> None:
    check_against_jax(name, samples_of(name))


# --- ops with a wrong rule --------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def registry() -> Iterator[None]:
    """Whatever a test adds to the registry is taken out again."""
    before = dict(ops)
    yield
    ops.clear()
    ops.update(before)


def _samples(random: np.random.Generator) -> Iterator[Sample]:
    yield Sample((random.uniform(0.5, 2, (2, 3)), random.uniform(0.5, 2, (2, 3))))


def planted(**rules: Any) -> Op:
    """Multiplication, but for the rules given."""
    partials = Partials((lambda g, ans, x, y: elementwise.mul(g, y), lambda g, ans, x, y: elementwise.mul(g, x)))
    right: dict[str, Any] = {
        "shape": lambda x, y: elementwise.mul.shape(x, y),
        "evaluate": lambda x, y: x * y,
        "derivative": partials,
        "batch": lambda size, operands, axes: elementwise.batch_elementwise(op, size, operands, axes),
        "samples": _samples,
    }
    op = Op("planted", **(right | rules))
    return op


def objects(check: Callable[..., Any], op: Op, *more: Any) -> bool:
    (sample,) = op.samples(seeded("planted"))
    try:
        check(op, sample, *more)
    except (AssertionError, TypeError, ValueError):  # the latter two are what shapes or types that do not fit lead to
        return True
    return False


CHECKS: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]] = {
    "shape": (op_checks.check_shape, lambda: ()),
    "eager": (op_checks.check_eager, lambda: ()),
    "graph": (op_checks.check_graph, lambda: ()),
    "types": (op_checks.check_derivative_types, lambda: ()),
    "forward": (op_checks.check_forward, lambda: (seeded("forward"),)),
    "reverse": (op_checks.check_reverse, lambda: (seeded("reverse"),)),
    "none": (op_checks.check_no_derivative, lambda: ()),
    "batch": (op_checks.check_batch, lambda: ()),
}


def _complaints(op: Op) -> set[str]:
    return {name for name, (check, more) in CHECKS.items() if objects(check, op, *more())}


def test_no_check_objects_to_a_right_op() -> None:
    assert _complaints(planted()) == set()
    ops.pop("planted")
    assert _complaints(planted(derivative=NotDifferentiable("planted"))) == set()


def _right(g: Any, x: Any, y: Any) -> Any:
    return elementwise.mul(g, x)


def _left(g: Any, x: Any, y: Any) -> Any:
    return elementwise.mul(g, y)


def _product_jvp(tangents: Any, ans: Any, x: Any, y: Any) -> Any:
    dx, dy = (elementwise.zeros_like(x) if t is None else t for t in tangents)
    return elementwise.add(elementwise.mul(dx, y), elementwise.mul(x, dy))


def _product_vjp(g: Any, ans: Any, x: Any, y: Any) -> Any:
    return elementwise.mul(g, y), elementwise.mul(g, x)


def _twice(x: Any) -> Any:
    return elementwise.add(x, x)


def _unmapped_batch(size: int, operands: Any, axes: Any) -> Any:
    """As if the mapped axes of both operands were the first."""
    x, y = (movement.align_axis(x, None if a is None else 0, 0, size) for x, a in zip(operands, axes, strict=True))
    return elementwise.mul(x, y), 0


def _overwriting(x: Any, y: Any) -> Any:
    x *= y
    return x


WRONG: dict[str, tuple[dict[str, Any], set[str]]] = {
    "shape: of the result": ({"shape": lambda x, y: x.with_dimensions((*x.dimensions, 1))}, {"shape"}),
    "shape: its type": ({"shape": lambda x, y: x.with_type(np.float32)}, {"shape"}),
    "evaluate: changes its operand": ({"evaluate": _overwriting}, {"eager"}),
    "partial: one is wrong": (
        {"derivative": Partials((lambda g, ans, x, y: elementwise.mul(g, y), lambda g, ans, x, y: g))},
        {"forward"},
    ),
    "partial: one is missing": (
        {"derivative": Partials((lambda g, ans, x, y: elementwise.mul(g, y), None))},
        {"forward"},
    ),
    "partial: another type": (
        {"derivative": Partials((lambda g, ans, x, y: _as(np.float32, g), lambda g, ans, x, y: _as(np.float32, g)))},
        {"types", "forward"},
    ),
    "bilinear: left": ({"derivative": Bilinear(lambda g, x, y: _twice(_left(g, x, y)), _right)}, {"reverse"}),
    "bilinear: right": ({"derivative": Bilinear(_left, _left)}, {"reverse"}),
    "rules: jvp": ({"derivative": Rules(lambda *a: _twice(_product_jvp(*a)), _product_vjp)}, {"forward", "reverse"}),
    "rules: vjp": ({"derivative": Rules(_product_jvp, lambda *a: _product_vjp(*a)[::-1])}, {"reverse"}),
    "zero: it is not": ({"derivative": Zero()}, {"forward"}),
    "batch: wrong axis": ({"batch": _unmapped_batch}, {"batch"}),
}


def _as(dtype: Any, x: Any) -> Any:
    return elementwise.convert(x, new_element_type=Shape.of(np.zeros(0, dtype)).element_type)


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_rule_is_objected_to(what: str) -> None:
    rules, expected = WRONG[what]
    assert expected <= _complaints(planted(**rules))


def test_a_wrong_second_order_is_objected_to() -> None:
    """The first derivative is right, but it is computed by an op that has a wrong one itself."""
    halfway = planted(derivative=Partials((lambda g, ans, x, y: elementwise.mul(g, y), lambda g, ans, x, y: g)))
    ops.pop("planted")
    partials = Partials((lambda g, ans, x, y: halfway(g, y), lambda g, ans, x, y: elementwise.mul(g, x)))
    assert _complaints(planted(derivative=partials)) >= {"forward"}


def linear_op(transpose: Callable[..., Any]) -> Op:
    """3 x - 2 y."""

    def samples(random: np.random.Generator) -> Iterator[Sample]:
        yield Sample((random.normal(size=3), random.normal(size=3)))

    return Op(
        "planted",
        shape=lambda x, y: x,
        evaluate=lambda x, y: 3 * x - 2 * y,
        derivative=Linear(transpose),
        batch=lambda size, operands, axes: elementwise.batch_elementwise(ops["planted"], size, operands, axes),
        samples=samples,
    )


def _scaled(x: Any, factor: float) -> Any:
    return elementwise.mul(x, movement.full(factor, x.dtype, x.shape))


def test_a_wrong_transpose_is_objected_to() -> None:
    assert "reverse" not in _complaints(linear_op(lambda g, x, y: (_scaled(g, 3), _scaled(g, -2))))
    ops.pop("planted")
    assert "reverse" in _complaints(linear_op(lambda g, x, y: (_scaled(g, 3), _scaled(g, 2))))


def _retracing(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


def _wrong_compiler(function: Callable[..., Any]) -> Callable[..., Any]:
    kept: list[Any] = []

    def compiled(*operands: Any) -> list[Any]:
        if not kept:
            kept.extend(_twice(x) for x in function(*operands))
        return kept

    return compiled


@pytest.mark.parametrize("jit", [_retracing, _wrong_compiler])
def test_a_wrong_compiler_is_objected_to(jit: Callable[..., Any]) -> None:
    assert objects(lambda op, sample: op_checks.check_compiled(jit, op, sample), planted())


def test_a_wrong_oracle_is_objected_to() -> None:
    assert objects(lambda op, sample: op_checks.check_against(lambda x, y: [x * y * 1.0001], op, sample), planted())


def test_a_missing_rule_fails_at_construction() -> None:
    with pytest.raises(TypeError, match="derivative"):
        Op("planted", shape=min, evaluate=min, batch=min, samples=_samples)  # type: ignore[call-arg]


def test_two_ops_of_one_name_fail_at_construction() -> None:
    with pytest.raises(ValueError, match="two ops named add"):
        elementwise.binary("add", np.add, elementwise.NUMBER)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64, np.uint64])
def test_integers_are_divided_towards_zero(dtype: type) -> None:
    limits = np.iinfo(dtype)
    ends = [limits.min, limits.min + 1, limits.max - 1, limits.max]
    numbers = [x for x in (-7, -2, -1, 0, 1, 2, 7, *ends) if x >= limits.min]
    for x, y in itertools.product(numbers, numbers):
        size = abs(x) // abs(y) if y else 0
        quotient = (size if (x < 0) == (y < 0) else -size) if y else -1
        found = integers.divide(np.array(x, dtype), np.array(y, dtype))
        assert found == np.array(quotient & (1 << limits.bits) - 1, f"u{limits.bits // 8}").view(dtype), (x, y)
        assert integers.remainder(np.array(x, dtype), np.array(y, dtype)) == (x - quotient * y if y else x), (x, y)
