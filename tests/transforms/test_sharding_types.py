"""Sharding types: what follows from operands, and errors where it does not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tinyxla as tx
import tinyxla.numpy as jnp
from tinyxla import lax
from tinyxla.errors import (
    ArgumentError,
    ManualAxisError,
    MeshError,
    PartialSumError,
    ResultTypeError,
    ShardingTypeError,
)
from tinyxla.sharding import AxisType, auto_axes, explicit_axes, get_abstract_mesh, reshard

P = tx.P


@pytest.fixture(autouse=True)
def _current_mesh(eight_devices: None) -> Iterator[None]:
    """Four devices along x and two along y, both explicit."""
    with tx.set_mesh(tx.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)):
        yield


def _split(shape: tuple[int, ...], *spec: Any) -> Any:
    return tx.device_put(np.arange(np.prod(shape), dtype=np.float32).reshape(shape), P(*spec))


def _type(x: Any) -> Any:
    sharding = tx.typeof(x).sharding
    return tuple(sharding.spec) if sharding else None


AMBIGUOUS: list[tuple[Callable[[], Any], str]] = [
    (
        lambda: _split((8, 4), "x", "y") + _split((8, 4), "y", "x"),
        "add: dimensions that go together are split in different ways, along 'x' and 'y', of f32[8@x,4@y] and "
        "f32[8@y,4@x]; give out_sharding where the function has it, reshard an operand, or leave it to the compiler by "
        "auto_axes.",
    ),
    (
        lambda: _split((8, 4), None, "y") @ _split((4, 8), "y"),
        "dot: both operands are split along 'y' where they are contracted, so it is ambiguous, of f32[8,4@y] and",
    ),
    (
        lambda: jnp.outer(_split((8,), "x"), _split((8,), "x")),
        "two dimensions of the result would be split along the same axis, as f32[8@x,8@x]",
    ),
    (lambda: _split((8, 4), "x")[:2], "slice: dimension 0 of the result has the size 2, which has no equal parts"),
    (lambda: _split((8, 4), "x")[jnp.array([1, 2])], "gather: elements are looked up along a dimension that is split"),
    (
        lambda: jnp.concatenate([_split((8,), "x"), _split((4,))]),
        "concatenate: operands are split in different ways, f32[8@x] and f32[4];",
    ),
    (lambda: jnp.sort(_split((8,), "x")), "sort: dimension 0 must be whole, but is split along 'x'"),
]


@pytest.mark.parametrize(("function", "said"), AMBIGUOUS)
@pytest.mark.parametrize("compiled", [False, True])
def test_ambiguous_types_are_errors(function: Callable[[], Any], said: str, compiled: bool) -> None:
    with pytest.raises(ShardingTypeError) as error:
        tx.jit(function)() if compiled else function()
    assert said in str(error.value)


def test_values_of_control_flow_have_one_type() -> None:
    x, y, whole = _split((8,), "x"), _split((8,), "y"), _split((8,))
    lax, reshard = tx.lax, tx.sharding.reshard
    alike = "must be split alike, but one is"
    for other, shown in ((y, "8@y"), (whole, "8")):
        with pytest.raises(ResultTypeError, match=rf"{alike} f32\[8@x\] or f32\[{shown}\]"):
            tx.jit(lambda k, other: lax.cond(k, lambda: x, lambda: other))(True, other)
    with pytest.raises(
        ResultTypeError, match=r"fori_loop: what is carried is split as f32\[8@x\] at the start, but .*@y"
    ):
        tx.jit(lambda x, y: lax.fori_loop(0, 3, lambda k, c: (c[1], c[0]), (x, y)))(x, y)
    for loop in (
        lambda x: lax.while_loop(lambda c: c.sum() < 5, lambda c: reshard(c, P()), x),
        lambda x: lax.scan(lambda c, _: (reshard(c, P()), None), x, None, length=1),
        lambda x: lax.scan(lambda c, _: (c + x, None), jnp.zeros(8), None, length=1),
    ):
        with pytest.raises(ResultTypeError, match="what is carried is split as"):
            tx.jit(loop)(x)
    step = lambda c, row: (c + row, c * 2)  # noqa: E731
    found = tx.jit(lambda x: lax.scan(step, 0 * x[0], x))(_split((3, 8), None, "x"))
    assert [tuple(z.sharding.spec) for z in found] == [("x",), (None, "x")]


def test_out_sharding_names_axes_that_are_in_types_here() -> None:
    x = _split((8, 4), "x", None)
    product = lambda a: jnp.dot(a, a.T, out_sharding=P("x"))  # noqa: E731
    with pytest.raises(ShardingTypeError, match=r"dot: out_sharding: .* names the axis 'x', which is Auto here"):
        auto_axes(product, out_sharding=P())(x)
    auto = tx.sharding.AbstractMesh((4, 2), ("x", "y"))
    with pytest.raises(ShardingTypeError, match=r"a sharding is over .*Auto.*, but the current mesh is .*Explicit"):
        jnp.dot(x, x.T, out_sharding=tx.NamedSharding(auto, P("x")))
    parts = tx.shard_map(auto_axes(lambda a: a, axes="x", out_sharding=P("x")), in_specs=P("x"), out_specs=P("x"))
    with pytest.raises(ManualAxisError, match="auto_axes: the axis 'x' is manual here"):
        parts(x)


def test_parts_have_types_along_axes_that_their_function_is_not_about() -> None:
    seen: list[Any] = []

    def of_parts(x: Any) -> Any:
        seen.extend((tx.typeof(x).sharding.mesh.axis_types, _type(x), _type(jnp.sin(x).T)))
        return 2 * x

    x = _split((8, 4), "x", "y")
    for compile in (lambda f: f, tx.jit):
        seen.clear()
        found = compile(tx.shard_map(of_parts, in_specs=P("x"), out_specs=P("x"), axis_names={"x"}))(x)
        assert seen == [(AxisType.Manual, AxisType.Explicit), (None, "y"), ("y", None)]
        assert found.sharding.spec == P("x", "y")
        np.testing.assert_array_equal(found, 2 * np.asarray(x))
    for collective, spec, wanted in (
        (lambda x: tx.lax.psum(x, "x"), P(), np.asarray(x).reshape(4, 2, 4).sum(0)),
        (lambda x: tx.lax.all_gather(x, "x", tiled=True), P("x"), np.tile(np.asarray(x), (4, 1))),
        (lambda x: tx.lax.ppermute(x, "x", [(k, (k + 1) % 4) for k in range(4)]), P("x"), np.roll(np.asarray(x), 2, 0)),
    ):
        found = tx.jit(tx.shard_map(collective, in_specs=P("x"), out_specs=spec, axis_names={"x"}))(x)
        np.testing.assert_array_equal(found, wanted)
        assert found.sharding.spec == P(*spec, *[None] * (not spec), "y")


def test_devices_of_a_program_that_is_compiled_ahead_may_be_stated() -> None:
    lowered = tx.jit(lambda x: 2 * x).lower(_split((8,), "x"))
    assert lowered.compile(device_assignment=tx.devices())(_split((8,), "x")).shape == (8,)
    with pytest.raises(ArgumentError, match="device_assignment must be the devices"):
        lowered.compile(device_assignment=tx.devices()[:1])


def test_results_are_split_as_their_types_say() -> None:
    seen: list[Any] = []

    @tx.jit
    def function(x: Any, w: Any) -> Any:
        results = x + 1, x.T, x @ w, tx.nn.softmax(x, 0), jnp.dot(x.T, x, out_sharding=P("y"))
        seen.extend(map(_type, results))
        return results

    found = function(_split((8, 4), "x", "y"), _split((4, 8)))
    assert seen == [("x", "y"), ("y", "x"), ("x", None), ("x", "y"), ("y", None)]
    assert [_type(x) for x in found] == seen
    x, w = np.arange(32.0).reshape(8, 4), np.arange(32.0).reshape(4, 8)
    np.testing.assert_allclose(found[2], x @ w)


@pytest.mark.parametrize("wrap", [tx.jit, lambda f: f])
def test_callbacks_take_and_return_whole_arrays(wrap: Any, capfd: pytest.CaptureFixture[str]) -> None:
    seen: list[Any] = []

    def on_host(x: Any) -> Any:
        seen.append(x.shape)
        return np.asarray(x) * 2

    @wrap
    def function(x: Any) -> Any:
        tx.debug.print("{}", x)
        return tx.pure_callback(on_host, tx.ShapeDtypeStruct(x.shape, x.dtype), x), x

    doubled, x = function(_split((8, 4), "x", "y"))
    tx.effects_barrier()
    assert seen == [(8, 4)]
    assert (_type(doubled), _type(x)) == ((None, None), ("x", "y"))
    np.testing.assert_array_equal(doubled, 2 * np.asarray(x))
    assert capfd.readouterr().out.split() == str(np.asarray(x)).split()


def test_cotangents_have_the_types_of_arguments() -> None:
    def loss(x: Any, w: Any) -> Any:
        return jnp.sum(jnp.dot(x, w, out_sharding=P("x")) ** 2)

    x, w = _split((8, 4), "x", "y"), _split((4, 2), "y")
    for gradient in (tx.grad(loss, (0, 1)), tx.jit(tx.grad(loss, (0, 1)))):
        found = gradient(x, w)
        assert [_type(g) for g in found] == [("x", "y"), ("y", None)]
        y = 2 * np.asarray(x) @ np.asarray(w)
        np.testing.assert_allclose(found[0], y @ np.asarray(w).T)
        np.testing.assert_allclose(found[1], np.asarray(x).T @ y)


def test_axes_are_of_another_kind_inside() -> None:
    x = _split((8, 8), "x", "y")
    kinds: list[Any] = []

    def product(a: Any) -> Any:
        kinds.append((get_abstract_mesh().axis_types, _type(a)))
        return jnp.sort(a @ a)

    found = auto_axes(product, out_sharding=P("x", None))(x)
    assert kinds == [((AxisType.Auto, AxisType.Auto), None)]
    assert _type(found) == ("x", None)
    np.testing.assert_allclose(found, np.sort(np.asarray(x) @ np.asarray(x)))
    auto_axes(product, axes="y")(x, out_sharding=P("x", "y"))
    assert kinds[1] == ((AxisType.Explicit, AxisType.Auto), ("x", None))
    with tx.set_mesh(tx.make_mesh((4, 2), ("x", "y"))):
        doubled = explicit_axes(lambda a: kinds.append(_type(a)) or 2 * a.T, in_sharding=P("x", "y"))(np.ones((8, 4)))
        rows = explicit_axes(lambda a: jnp.matmul(a, a.T, out_sharding=P("y", None)), axes="y", in_sharding=P("y"))
        of_rows = tx.jit(rows)(np.ones((8, 4)))
    assert kinds[2] == ("x", "y")
    assert doubled.sharding.spec == P("y", "x")
    assert of_rows.sharding.spec == P("y")


def test_wrong_uses_of_kinds_of_axes() -> None:
    with pytest.raises(ArgumentError, match="there must be an out_sharding"):
        auto_axes(jnp.sin)(1.0)
    with pytest.raises(ArgumentError, match="there must be an in_sharding"):
        explicit_axes(jnp.sin)(1.0)
    with pytest.raises(ArgumentError, match="there is no axis 'z' in the current mesh"):
        auto_axes(jnp.sin, axes="z", out_sharding=P())(1.0)
    with tx.set_mesh(tx.sharding.AbstractMesh()), pytest.raises(MeshError, match="there is no mesh"):
        auto_axes(jnp.sin, out_sharding=P())(1.0)


def test_compiled_functions_are_kept_for_each_mesh() -> None:
    doubled = tx.jit(lambda x: tx.lax.with_sharding_constraint(x * 2, P("x")))
    assert doubled(jnp.ones(8)).sharding.mesh.shape == {"x": 4, "y": 2}
    with tx.set_mesh(tx.make_mesh((2,), ("x",))):
        assert doubled(jnp.ones(8)).sharding.mesh.shape == {"x": 2}
    with tx.set_mesh(tx.sharding.AbstractMesh()), pytest.raises(MeshError, match="needs a mesh"):
        doubled(jnp.ones(8))


@pytest.mark.parametrize("wrap", [tx.jit, lambda f: f], ids=["jit", "eager"])
def test_functions_of_parts_are_split_as_types_say(wrap: Any) -> None:
    x = _split((4, 2, 3), "x", "y")
    rows = tx.shard_map(lambda a: 2 * a.squeeze(0)[None], out_specs=P("x"), axis_names={"x"})
    found = wrap(rows)(x)
    np.testing.assert_array_equal(found, 2 * np.asarray(x))
    assert _type(found) == ("x", "y", None)
    assert tx.shard_map(lambda a: a, out_specs=P("x", "y"))(x).sharding == x.sharding


def test_constraint_along_other_axes_keeps_the_type() -> None:
    mesh = tx.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Explicit, AxisType.Auto))
    with tx.set_mesh(mesh):
        found = tx.jit(lambda a: tx.lax.with_sharding_constraint(a, P("y")))(_split((8, 4), "x"))
        assert found.sharding.is_equivalent_to(tx.NamedSharding(mesh, P(("x", "y"))), 2)


@pytest.mark.parametrize(
    "make",
    [
        lambda where: tx.reshard(jnp.ones((8, 4)), where),
        lambda where: jnp.zeros((8, 4), out_sharding=where),
        lambda where: auto_axes(jnp.dot)(jnp.ones((8, 3)), jnp.ones((3, 4)), out_sharding=where),
        lambda where: tx.nn.initializers.he_normal()(tx.random.key(0), (8, 4), out_sharding=where),
    ],
)
def test_shardings_that_are_types_speak_of_all_dimensions(make: Callable[[Any], Any]) -> None:
    assert make(P("x")).sharding.spec == P("x", None)


def test_descriptions_of_arrays_have_their_shardings() -> None:
    x = _split((8, 4), "x")
    described = tx.ShapeDtypeStruct.like(x)
    assert described.sharding == x.sharding
    assert repr(described) == f"ShapeDtypeStruct(shape=(8, 4), dtype=float32, sharding={x.sharding})"
    assert _type(tx.jit(lambda x: 2 * x).lower(described).compile()(x)) == ("x", None)
    seen: list[Any] = []
    tx.jit(lambda x: seen.append(tx.ShapeDtypeStruct.like(x).sharding.spec))(x)
    assert seen == [P("x", None)]


def test_descriptions_of_results_have_types() -> None:
    x = _split((8, 4), "x", "y")
    found = tx.eval_shape(tx.jit(lambda a, b: (2 * a, a.sum(1), b)), x, 1.0)
    mesh = get_abstract_mesh()
    assert found[0].sharding == tx.NamedSharding(mesh, P("x", "y"))
    assert found[1].sharding == tx.NamedSharding(mesh, P("x"))
    described = tx.ShapeDtypeStruct((8, 4), np.float32, sharding=P("x"))
    assert described.sharding.mesh == tx.sharding.get_mesh()
    assert tx.jit(lambda a: 2 * a).lower(described).compile().input_shardings[0][0].spec == P("x")


@pytest.mark.parametrize("batch_size", [2, 10])
def test_map_of_several_elements_keeps_types(batch_size: int) -> None:
    found = tx.lax.map(lambda a: a + 1, _split((5, 4, 2), None, "x"), batch_size=batch_size)
    assert _type(found) == (None, "x", None)


@pytest.mark.parametrize("wrap", [tx.jit, lambda f: f], ids=["jit", "eager"])
def test_examples_stay_split_along_explicit_axes(wrap: Any) -> None:
    rows, places = _split((8, 4, 3), "x", "y"), tx.device_put(np.ones((8, 2), np.int32), P("x"))
    looked_up = wrap(tx.vmap(lambda a, k: a.at[k].get(out_sharding=P(None, "y"))))
    assert _type(looked_up(_split((8, 4, 2), "x"), places)) == ("x", None, "y")
    assert _type(wrap(tx.vmap(lambda a: jnp.zeros(5), out_axes=-1))(rows)) == (None, "x")
    assert _type(wrap(tx.vmap(lambda a: a + 1, spmd_axis_name="x"))(rows)) == ("x", "y", None)
    with pytest.raises(ShardingTypeError, match="examples of arguments are split in different ways, along 'x' and 'y'"):
        wrap(tx.vmap(lambda a, b: a))(rows, _split((8,), "y"))
    with pytest.raises(ShardingTypeError, match="spmd_axis_name is"):
        wrap(tx.vmap(lambda a: a, spmd_axis_name="y"))(rows)


def test_types_inside_of_explicit_axes_of_compiled_functions() -> None:
    mesh = tx.make_mesh((4, 2), ("x", "y"))
    seen: list[Any] = []

    def rows(a: Any) -> Any:
        seen.append(_type(a))
        return (2 * a).sum(1)

    with tx.set_mesh(mesh):
        x = tx.device_put(np.ones((8, 4), np.float32), P("x", "y"))
        found = tx.jit(lambda a: explicit_axes(rows, in_sharding=P("x"))(a + 1) + 1)(x)
        np.testing.assert_array_equal(found, np.full(8, 17))
        assert seen == [("x", None)]
        assert found.sharding.spec == P("x")
        described = tx.ShapeDtypeStruct((8, 4), np.float32, sharding=tx.NamedSharding(mesh.abstract_mesh, P("x")))
        assert jnp.zeros_like(described).sharding == tx.NamedSharding(mesh, P("x"))


def test_meshes_of_shardings_stand_for_the_current_one() -> None:
    mesh = tx.make_mesh((8,), ("z",), axis_types=(AxisType.Explicit,))
    where = tx.NamedSharding(mesh, P("z"))
    x = tx.device_put(np.arange(8.0), where)
    with tx.set_mesh(tx.sharding.AbstractMesh((), ())):
        assert auto_axes(lambda a: 2 * a, out_sharding=where)(x).sharding == where
        abstract = tx.NamedSharding(mesh.abstract_mesh, P())
        assert tx.lax.with_sharding_constraint(x, abstract).sharding == tx.NamedSharding(mesh, P())
        with pytest.raises(ArgumentError, match="and the array is on one device"):
            tx.lax.with_sharding_constraint(jnp.ones(8), abstract)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x[0],
        lambda x: x[0, 0],
        lambda x: x[np.array([1, 2])],
        lambda x: jnp.sort(x, 0),
        lambda x: jnp.fft.fft(x, axis=0),
        lambda x: jnp.linalg.svd(x, compute_uv=False),
        lambda x: x.reshape(2, 4),
    ],
)
def test_axes_of_one_device_split_nothing(function: Callable[[Any], Any]) -> None:
    with tx.set_mesh(tx.make_mesh((1,), ("z",), axis_types=(AxisType.Explicit,))):
        x = _split((4, 2), "z")
        wanted = function(jnp.asarray(np.asarray(x)))
        for call in (function, tx.jit(function)):
            np.testing.assert_allclose(call(x), wanted, rtol=1e-5, atol=1e-6)


def _sum(*, along: str = "x", kind: str = "unreduced") -> Any:
    return reshard(np.arange(8, dtype=np.float32), P(**{kind: {along}}))


SUMS: list[tuple[Callable[[Any, Any], Any], Any, Callable[[Any], Any]]] = [
    (lambda u, r: u + u, P(None, unreduced={"x"}), lambda x: x + x),
    (lambda u, r: u * r, P(None, unreduced={"x"}), lambda x: x * x),
    (lambda u, r: -u / 2 - 3 * u, P(None, unreduced={"x"}), lambda x: -3.5 * x),
    (lambda u, r: u.reshape(2, 4).T, P(None, None, unreduced={"x"}), lambda x: x.reshape(2, 4).T),
    (lambda u, r: jnp.pad(u[1:], 1).sum(), P(unreduced={"x"}), lambda x: x.sum()),
    (lambda u, r: jnp.where(np.arange(8) > 3, u, 0), P(None, unreduced={"x"}), lambda x: np.where(x > 3, x, 0)),
    (lambda u, r: jnp.sin(r) * r, P(None, reduced={"x"}), lambda x: np.sin(x) * x),
    (lambda u, r: r @ r, P(), lambda x: x @ x),
    (lambda u, r: reshard(u, P("x")), P("x"), lambda x: x),
    (lambda u, r: reshard(r, P(unreduced={"x", "y"})), P(None, unreduced={"x", "y"}), lambda x: x),
    (lambda u, r: lax.fori_loop(0, 2, lambda i, c: c + u, u), P(None, unreduced={"x"}), lambda x: 3 * x),
]


@pytest.mark.parametrize("wrap", [tx.jit, lambda f: f], ids=["jit", "eager"])
@pytest.mark.parametrize(("function", "spec", "expected"), SUMS)
def test_what_is_linear_in_partial_sums_gives_such(function: Any, spec: Any, expected: Any, wrap: Any) -> None:
    seen: list[Any] = []

    def noted(u: Any, r: Any) -> Any:
        found = function(u, r)
        seen.append(tx.typeof(found).sharding.spec)
        return found

    found = wrap(noted)(_sum(), _sum(kind="reduced"))
    assert seen == [spec] == [found.sharding.spec]
    np.testing.assert_allclose(found, expected(np.arange(8, dtype=np.float32)), rtol=1e-6)


NO_SUMS: list[tuple[Callable[[Any, Any, Any], Any], type[Exception], str]] = [
    (lambda u, r, w: jnp.sin(u), PartialSumError, r"sine: it is not linear, .* of f32\[8\]{U:x}"),
    (lambda u, r, w: u.max(), PartialSumError, "reduce: it is not linear"),
    (lambda u, r, w: u + w, ShardingTypeError, "add: operands that are added must all be partial sums, or none"),
    (lambda u, r, w: u * u, ShardingTypeError, "multiply: it is linear in either operand, so both must not be"),
    (lambda u, r, w: u * w, ShardingTypeError, "multiply: the factor of partial sums must be reduced along 'x'"),
    (lambda u, r, w: r / u, ShardingTypeError, "divide: it is not linear in the divisor"),
    (lambda u, r, w: u @ w, ShardingTypeError, "dot: operands that are contracted must not be partial sums"),
    (lambda u, r, w: r + w, ShardingTypeError, "add: an operand is whole, where another one is reduced along 'x'"),
    (lambda u, r, w: r + reshard(w, P("x")), ShardingTypeError, "add: an operand is split along 'x', where another"),
    (lambda u, r, w: u + _sum(along="y"), ShardingTypeError, "add: operands are partial sums, or reduced, along diff"),
]


@pytest.mark.parametrize("wrap", [tx.jit, lambda f: f], ids=["jit", "eager"])
@pytest.mark.parametrize(("function", "error", "said"), NO_SUMS)
def test_operations_that_need_the_sum_refuse_partial_sums(function: Any, error: Any, said: str, wrap: Any) -> None:
    w = reshard(np.arange(8, dtype=np.float32), P())
    with pytest.raises(error, match=said):
        wrap(function)(_sum(), _sum(kind="reduced"), w)


@pytest.mark.parametrize("wrap", [tx.jit, lambda f: f], ids=["jit", "eager"])
def test_cotangents_of_unreduced_arrays_are_reduced(wrap: Any) -> None:
    def loss(u: Any, r: Any, x: Any, w: Any) -> Any:
        product = jnp.einsum("ab,bc->ac", x, w, out_sharding=P(None, None, unreduced={"y"}))
        return reshard((u * r).sum(), P()) + (reshard(product, P("x")) ** 2).sum()

    x, w = _split((8, 4), None, "y"), _split((4, 2), "y")
    found = wrap(tx.grad(loss, (0, 1, 2, 3)))(_sum(), _sum(kind="reduced"), x, w)
    specs = P(None, reduced={"x"}), P(None, unreduced={"x"}), P(None, "y"), P("y", None)
    assert tuple(g.sharding.spec for g in found) == specs
    y = 2 * np.asarray(x) @ np.asarray(w)
    for g, expected in zip(found, (np.arange(8), np.arange(8), y @ np.asarray(w).T, np.asarray(x).T @ y), strict=True):
        np.testing.assert_allclose(g, expected)


@pytest.mark.parametrize("kind", ["unreduced", "reduced"])
def test_derivatives_of_linearize_have_the_types_of_results(kind: str) -> None:
    x, r = _sum(kind=kind), _sum(kind="reduced")
    y, derivative = tx.linearize(lambda x, r: x * jnp.tanh(r), x, r)
    found = derivative(x, r)
    assert found.sharding.spec == y.sharding.spec == P(None, **{kind: {"x"}})
    a = np.arange(8)
    np.testing.assert_allclose(found, a * np.tanh(a) + a * a * (1 - np.tanh(a) ** 2), rtol=1e-4, atol=1e-6)


def test_devices_of_partial_sums_have_summands() -> None:
    u = _sum()
    assert not u.is_fully_replicated
    assert repr(u).startswith("Array(shape=(8,)")
    parts = [shard.data for shard in u.addressable_shards]
    np.testing.assert_array_equal(sum(map(np.asarray, parts)), 2 * np.arange(8))  # two devices along y have the same
    assert not u.sharding.is_equivalent_to(reshard(u, P()).sharding, 1)
    with pytest.raises(ArgumentError, match="is of summands, of which an array cannot be made"):
        tx.make_array_from_callback((8,), u.sharding, lambda index: np.arange(8))


@pytest.mark.parametrize(
    ("specs", "along", "said"),
    [
        ((P(None, "y"), P("y")), "x", "what is contracted is split along 'y' there, of f32"),
        ((P(None, "y"), P()), "y", "what is contracted is split in different ways there"),
        ((P("x"), P()), "y", "what is contracted is whole there"),
    ],
)
@pytest.mark.parametrize(
    "product",
    [
        jnp.dot,
        jnp.matmul,
        lax.dot,
        lambda x, w, **options: jnp.einsum("ab,bc->ac", x, w, **options),
        lambda x, w, **options: jnp.tensordot(x, w, 1, **options),
        lambda x, w, **options: lax.dot_general(x, w, (((1,), (0,)), ((), ())), **options),
    ],
)
def test_products_are_left_as_partial_sums_along_the_axes_they_are_summed_over(
    product: Any, specs: Any, along: str, said: str
) -> None:
    x, w = (_split(shape, *spec) for shape, spec in zip(((8, 4), (4, 8)), specs, strict=True))
    with pytest.raises(ShardingTypeError, match=said):
        product(x, w, out_sharding=P(unreduced={along}))
    x, w = _split((8, 4), None, "y"), _split((4, 8), "y")
    found = product(x, w, out_sharding=P(unreduced={"y"}))
    assert found.sharding.spec == P(None, None, unreduced={"y"})
    np.testing.assert_array_equal(found, np.asarray(x) @ np.asarray(w))


@pytest.mark.parametrize("inner", [tx.jit, lambda f: f], ids=["inner jit", "inner eager"])
@pytest.mark.parametrize("outer", [tx.jit, lambda f: f], ids=["jit", "eager"])
def test_axes_are_explicit_in_a_backward_rule_of_custom_vjp(inner: Any, outer: Any) -> None:
    seen: list[Any] = []

    @tx.custom_vjp
    def product(a: Any, b: Any) -> Any:
        return jnp.einsum("ab,bc->ac", a, reshard(b, P()))

    def backward(kept: Any, g: Any) -> Any:
        a, b = kept
        seen.extend(map(_type, (a, b, g)))
        a_bar = jnp.einsum("ac,bc->ab", g, reshard(b, P()), out_sharding=P("x", None))
        sums = jnp.einsum("ab,ac->bc", a, g, out_sharding=P(unreduced={"x"}))
        seen.append(tx.typeof(sums).sharding.spec.unreduced)
        return a_bar, reshard(sums, P("y", None))

    product.defvjp(lambda a, b: (product(a, b), (a, b)), backward)
    called = inner(product)
    a, b = _split((8, 4), "x"), _split((4, 2), "y")
    found = outer(tx.grad(lambda a, b: (called(a, b) ** 2).sum(), (0, 1)))(a, b)
    assert seen[:4] == [("x", None), ("y", None), ("x", None), {"x"}]
    values = np.asarray(a), np.asarray(b)
    np.testing.assert_allclose(found[0], 2 * values[0] @ values[1] @ values[1].T, rtol=1e-6)
    np.testing.assert_allclose(found[1], 2 * values[0].T @ values[0] @ values[1], rtol=1e-6)
    assert [_type(x) for x in found] == [("x", None), ("y", None)]
