"""`shard_map`: which specs and results it takes, what it does without a mesh of its own, and what it captures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tinyxla as tx
import tinyxla.numpy as jnp
from tinyxla import lax
from tinyxla.errors import (
    ArgumentError,
    AttributeValueError,
    ConcretizationError,
    DifferentiationError,
    PytreeError,
    ShapeError,
    ShardingTypeError,
)

P = tx.P
ROWS = np.arange(32.0, dtype=np.float32).reshape(8, 4)


pytestmark = pytest.mark.usefixtures("eight_devices")


def _mapped(f: Any, in_specs: Any, out_specs: Any, **options: Any) -> Any:
    return tx.shard_map(f, mesh=tx.make_mesh((4, 2), ("x", "y")), in_specs=in_specs, out_specs=out_specs, **options)


def test_parts_are_those_of_the_specs() -> None:
    shapes: list[Any] = []

    def function(tree: Any, whole: Any) -> Any:
        shapes.append((tree["a"].shape, tree["b"].shape, whole.shape))
        return tree["a"] + whole, tree["b"].sum(keepdims=True)

    mapped = _mapped(function, (P("x"), None), (P("x"), P("x")))
    total, sums = mapped({"a": ROWS, "b": ROWS[:, 0]}, ROWS[:2])
    assert shapes[0] == ((2, 4), (2,), (2, 4))
    np.testing.assert_array_equal(total, ROWS + np.tile(ROWS[:2], (4, 1)))
    np.testing.assert_array_equal(sums, ROWS[:, 0].reshape(4, 2).sum(1))
    assert total.sharding.spec == P("x")


def test_loops_and_branches_make_values_vary_as_the_results_of_their_functions_do() -> None:
    def function(x: Any) -> Any:
        total, _ = lax.scan(lambda c, r: (c + r, None), jnp.zeros(4), x)
        return lax.cond(True, lambda: total, lambda: jnp.ones(4))[None]

    np.testing.assert_array_equal(_mapped(function, P("x"), P("x"))(ROWS), ROWS.reshape(4, 2, 4).sum(1))


def test_eval_shape_says_along_which_axes_results_vary() -> None:
    seen: list[Any] = []

    def function(x: Any) -> Any:
        seen.append([s.vma for s in tx.eval_shape(lambda y: (y.sum(), jnp.ones(2)), x)])
        return x

    _mapped(function, P("x"), P("x"))(ROWS)
    assert seen[0] == [frozenset({"x"}), frozenset()]


@pytest.mark.parametrize(
    "derivative", [lambda x: tx.vjp(jnp.sin, jnp.ones(4))[1](x), lambda x: tx.linearize(jnp.sin, jnp.ones(4))[1](x)]
)
def test_tangents_and_cotangents_of_what_does_not_vary_must_not_vary(derivative: Any) -> None:
    function = _mapped(lambda x: derivative(x[0])[0], P("x"), P("x"))
    with pytest.raises(DifferentiationError, match=r"f32\[4\] varies along 'x', but belongs to .* that does not"):
        function(ROWS)


def test_the_mesh_may_be_the_current_one_and_values_may_be_captured() -> None:
    offset = jnp.arange(4.0)

    @tx.shard_map(in_specs=P("y"), out_specs=P("y"))
    def shifted(x: Any) -> Any:
        return x + offset + lax.axis_index("y")

    with tx.set_mesh(tx.make_mesh((4, 2), ("x", "y"))):
        found = shifted(ROWS)
    np.testing.assert_array_equal(found, ROWS + np.arange(4) + np.repeat([0, 1], 4)[:, None])
    with pytest.raises(ArgumentError, match="there is no mesh; pass one"):
        shifted(ROWS)


def test_gathered_result_may_be_the_same_on_all_devices() -> None:
    def function(x: Any) -> Any:
        return lax.all_gather(x, "x", tiled=True, to="invarying")

    gathered = _mapped(function, P("x"), P())
    np.testing.assert_array_equal(gathered(ROWS), ROWS)
    np.testing.assert_array_equal(tx.grad(lambda x: (gathered(x) * ROWS).sum())(jnp.asarray(ROWS)), ROWS)
    with pytest.raises(ShapeError, match="must be the same on all devices along 'x'"):
        _mapped(lambda x: lax.all_gather(x, "x", tiled=True), P("x"), P())(ROWS)
    with pytest.raises(AttributeValueError, match="groups have different results"):
        _mapped(lambda x: lax.all_gather(x, "x", axis_index_groups=[[0, 1], [2, 3]], to="invarying"), P("x"), P())(ROWS)


def test_collectives_of_what_all_devices_have() -> None:
    """A value that is the same on all devices counts once for each of them, and so in its derivative."""
    for check_vma in (True, False):
        total = _mapped(lambda w: lax.psum(w, "x"), P(), P(), check_vma=check_vma)
        rows = _mapped(lambda w: lax.all_gather(w, "x").sum(0)[None], P(), P("x"), check_vma=check_vma)
        w = jnp.arange(3.0)
        np.testing.assert_array_equal(total(w), 4 * w)
        np.testing.assert_array_equal(tx.grad(lambda w, f=total: f(w).sum())(w), [4, 4, 4])
        np.testing.assert_array_equal(rows(w), np.tile(4 * w, (4, 1)))
        np.testing.assert_array_equal(tx.grad(lambda w, f=rows: f(w).sum())(w), [16, 16, 16])


@pytest.mark.parametrize(
    "function",
    [jnp.sin, lambda w: w, lambda w: lax.cond(lax.axis_index("x") < 4, lambda: w, lambda: 2 * w)],
    ids=["of one operation", "of none", "of branches"],
)
@pytest.mark.parametrize("check_vma", [True, False])
def test_gradient_of_what_all_devices_have_as_parts_is_their_sum(function: Any, check_vma: bool) -> None:
    w = np.arange(3, dtype=np.float32)
    rows = _mapped(lambda w: function(w)[None], P(), P("x"), check_vma=check_vma)
    expected = 4 * np.cos(w) if function is jnp.sin else np.full(3, 4)
    np.testing.assert_allclose(tx.grad(lambda w: rows(w).sum())(w), expected, rtol=1e-6)


@tx.custom_vjp
def scaled(x: Any, w: Any) -> Any:
    return x * w


scaled.defvjp(lambda x, w: (x * w, (x, w)), lambda kept, g: (g * kept[1], lax.psum((g * kept[0]).sum(0), "x")))


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w: lax.cond(lax.axis_index("x") % 2 == 0, lambda: x * w, lambda: x + w),
        lambda x, w: lax.switch(lax.axis_index("x"), [lambda k=k: (k + x) * (w if k else 1.0) for k in range(4)]),
        lambda x, w: lax.scan(lambda carry, _: (carry * 0.5 + x, None), w + jnp.zeros_like(x), length=2)[0],
    ],
    ids=["cond", "switch", "scan"],
)
def test_gradients_with_and_without_check_vma_agree(function: Any) -> None:
    w = np.linspace(0.5, 1.5, 4, dtype=np.float32)
    checked, unchecked = (
        tx.grad(lambda x, w, f=f: (f(x, w) ** 2).sum(), argnums=(0, 1))(ROWS, w)
        for f in (_mapped(function, (P("x"), P()), P("x"), check_vma=check) for check in (True, False))
    )
    for one, other in zip(checked, unchecked, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


@pytest.mark.parametrize(
    ("function", "order"),
    [
        (scaled, 1),
        (lambda x, w: lax.scan(lambda carry, _: (scaled(carry, w), None), x, length=2)[0], 2),
        (tx.vmap(lambda x, w: scaled(x[None], w)[0], in_axes=(0, None)), 1),
    ],
    ids=["alone", "scan", "vmap"],
)
def test_backward_rule_gives_the_cotangent_of_what_all_devices_have(function: Any, order: int) -> None:
    w = np.linspace(0.5, 1.5, 4, dtype=np.float32)
    mapped = _mapped(function, (P("x"), P()), P("x"))
    found = tx.grad(lambda x, w: mapped(x, w).sum(), argnums=(0, 1))(ROWS, w)
    expected = tx.grad(lambda x, w: (x * w**order).sum(), argnums=(0, 1))(ROWS, w)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


def test_backward_rule_must_sum_what_all_devices_have() -> None:
    @tx.custom_vjp
    def product(x: Any, w: Any) -> Any:
        return x * w

    product.defvjp(lambda x, w: (x * w, (x, w)), lambda kept, g: (g * kept[1], (g * kept[0]).sum(0)))
    mapped = _mapped(product, (P("x"), P()), P("x"))
    inside = _mapped(lambda x, w: tx.grad(lambda w: product(x, w).sum())(w)[None], (P("x"), P()), P("x"))
    for function in tx.grad(lambda x, w: mapped(x, w).sum(), argnums=1), inside:
        with pytest.raises(DifferentiationError, match=r"f32\[4\] that varies along 'x' for an argument that does not"):
            function(ROWS, np.ones(4, np.float32))


def test_cotangent_without_check_vma_is_shared_by_the_devices() -> None:
    """A function whose devices have different losses has the gradient of their mean."""
    mapped = _mapped(lambda x: (x**2).sum(), P("x"), P(), check_vma=False)
    np.testing.assert_allclose(tx.grad(mapped)(ROWS), 2 * ROWS / 4)


HELD = {"held": None, "scale": P()}


@pytest.mark.parametrize(
    ("in_specs", "out_specs", "error", "said"),
    [
        (P("z"), P("x"), ShapeError, "names 'z', but the mesh has the axes"),
        (P("x", "x"), P("x"), ShapeError, "must not name the axis 'x' twice"),
        (P(None, ("x", "y")), P("x"), ShapeError, "the size of dimension 1 of (8, 4) must be a multiple of 8"),
        (P("x"), P(), ShapeError, "must be the same on all devices along 'x', but may vary there"),
        (
            (P("x"), P("x")),
            P("x"),
            PytreeError,
            "in_specs has another structure: at its root it is a tuple of length 2, and",
        ),
        ("x", P("x"), ArgumentError, "in_specs must be PartitionSpecs, but has 'x'"),
    ],
)
def test_specs_that_do_not_fit(in_specs: Any, out_specs: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error) as raised:
        _mapped(lambda x: x, in_specs, out_specs)(ROWS)
    assert said in str(raised.value)


def test_an_argument_without_a_spec_need_not_be_an_array() -> None:
    shifted = _mapped(lambda x, shape: x + jnp.ones(shape, x.dtype), (P("x"), None), P("x"))
    np.testing.assert_array_equal(shifted(ROWS, (2, 4)), ROWS + 1)
    held = object()
    scaled = _mapped(lambda given, x: given["scale"] * x if given["held"] is held else x, (HELD, P("x")), P("x"))
    np.testing.assert_array_equal(scaled({"held": held, "scale": np.float32(3)}, ROWS), 3 * ROWS)


def test_what_is_said_of_axes_that_the_function_is_about() -> None:
    constrained = _mapped(lambda x: tx.lax.with_sharding_constraint(x, P("x")), P("x"), P("x"))
    with (
        tx.set_mesh(tx.make_mesh((4, 2), ("x", "y"))),
        pytest.raises(ShardingTypeError, match="names the axis 'x', which"),
    ):
        constrained(ROWS)
    for specs in (P("x"), P("x")), (P("y"), P(("x", "y"))):
        mapped = tx.vmap(_mapped(jnp.sin, *specs), spmd_axis_name="x")
        with pytest.raises(ShapeError, match="the examples of vmap are split along the mesh axis 'x'"):
            mapped(np.ones((4, 8), np.float32))


def test_abstract_mesh_is_that_of_an_argument() -> None:
    mesh = tx.make_mesh((4, 2), ("x", "y"))
    double = tx.shard_map(lambda x: 2 * x, mesh=mesh.abstract_mesh, in_specs=P("x"), out_specs=P("x"))
    placed = tx.device_put(ROWS, tx.NamedSharding(mesh, P("y")))
    assert double(placed).sharding == tx.NamedSharding(mesh, P("x"))
    with pytest.raises(ArgumentError, match=r"an abstract mesh, .*, has no devices"):
        double(ROWS)
    other = tx.device_put(ROWS, tx.NamedSharding(tx.make_mesh((4,), ("x",)), P("x")))
    with pytest.raises(ArgumentError, match=r"an argument is over a mesh of the axes \(\('x', 4\),\)"):
        double(other)


def test_a_callback_is_called_for_the_part_of_each_device() -> None:
    shapes: list[Any] = []

    def on_host(x: Any) -> Any:
        shapes.append(x.shape)
        return x + 1

    mapped = _mapped(lambda x: tx.pure_callback(on_host, x, x), P("x"), P("x"))
    np.testing.assert_array_equal(tx.jit(mapped)(ROWS), ROWS + 1)
    assert set(shapes) == {(2, 4)}


def test_each_device_prints(capsys: pytest.CaptureFixture[str]) -> None:
    def function(x: Any) -> Any:
        tx.debug.print("part {x}", x=x)
        return x

    _mapped(function, P("x"), P("x"))(ROWS[:, 0])
    tx.effects_barrier()
    assert set(capsys.readouterr().out.splitlines()) == {f"part {ROWS[k : k + 2, 0]}" for k in range(0, 8, 2)}


def test_a_donated_argument_is_deleted_where_it_moves_first() -> None:
    sharding = tx.NamedSharding(tx.make_mesh((4,), ("x",)), P("x"))
    given = jnp.asarray(ROWS).copy()
    tx.jit(lambda x: x + 1, in_shardings=sharding, out_shardings=sharding, donate_argnums=0)(given)
    assert given.is_deleted()


def test_a_mesh_is_a_decorator() -> None:
    @tx.make_mesh((4,), ("x",))
    def placed() -> Any:
        return tx.jit(lambda x: x, out_shardings=P("x"))(ROWS)

    assert placed().sharding.spec == P("x")


def test_parts_on_one_device_are_checked() -> None:
    sharding = tx.NamedSharding(tx.make_mesh((2,), ("x",)), P("x"))
    spread = tx.device_put(ROWS, sharding)
    for arrays, said in (
        (ROWS, "arrays must be a list or tuple"),
        ([spread, spread], "each part must be on one device, but one has 2 parts"),
    ):
        with pytest.raises(ArgumentError, match=said):
            tx.make_array_from_single_device_arrays((8, 4), sharding, arrays)
    halves = [jnp.asarray(ROWS[:4]), jnp.asarray(ROWS[4:])]
    with pytest.raises(ArgumentError, match="must have the dtype int32"):
        tx.make_array_from_single_device_arrays((8, 4), sharding, halves, dtype="int32")
    mixed = [halves[0].astype("int32"), halves[1] / 2]
    with pytest.raises(ArgumentError, match="all parts must have one dtype, but the first has int32 and one has float"):
        tx.make_array_from_single_device_arrays((8, 4), sharding, mixed)
    with pytest.raises(ArgumentError, match="all parts must have one dtype"):
        tx.make_array_from_callback((8, 4), sharding, lambda index: mixed[index[0].start // 4])
    found = tx.make_array_from_callback((8, 4), sharding, lambda index: mixed[index[0].start // 4], dtype="float32")
    np.testing.assert_array_equal(found, np.concatenate([ROWS[:4], ROWS[4:] / 2]))


def test_likes_and_copies_keep_and_change_the_sharding() -> None:
    sharding = tx.NamedSharding(tx.make_mesh((4,), ("x",)), P("x"))
    spread = tx.device_put(ROWS, sharding)
    assert jnp.zeros_like(spread).sharding == sharding
    assert jnp.asarray(ROWS).to_device(tx.devices()[-1]).devices() == {tx.devices()[-1]}


@pytest.mark.parametrize("check_vma", [False, True])
def test_nested_over_another_axis_of_the_same_mesh(check_vma: bool) -> None:
    """The inner function has the mesh of the outer one, and its collectives may be over axes of both."""

    def inner(b: Any) -> Any:
        return lax.psum(b, "x") + 100 * lax.axis_index("x") + lax.axis_index("y")

    def outer(a: Any) -> Any:
        specs: Any = {"in_specs": tx.P(None, "y"), "out_specs": tx.P(None, "y"), "check_vma": check_vma}
        return tx.shard_map(inner, axis_names={"y"}, **specs)(a)

    x = jnp.arange(32.0).reshape(8, 4)
    mesh = tx.make_mesh((4, 2), ("x", "y"))
    specs: Any = {"in_specs": tx.P("x"), "out_specs": tx.P("x"), "check_vma": check_vma}
    f = tx.shard_map(outer, mesh=mesh, axis_names={"x"}, **specs)
    sums = np.tile(np.asarray(x).reshape(4, 2, 4).sum(0), (4, 1))
    expected = sums + 100 * np.repeat(np.arange(4), 2)[:, None] + np.array([0, 0, 1, 1])
    np.testing.assert_array_equal(np.asarray(tx.jit(f)(x)), expected)
    squares = tx.jit(tx.grad(lambda x: (f(x) ** 2).sum()))(x)
    np.testing.assert_allclose(np.asarray(squares), np.tile(2 * expected.reshape(4, 2, 4).sum(0), (4, 1)))


def test_values_that_parts_depend_on_are_no_constants_in_derivatives() -> None:
    mesh = tx.make_mesh((1,), ("x",))
    f = tx.shard_map(lambda x: x * float(lax.psum(x.sum(), "x")), mesh=mesh, in_specs=P("x"), out_specs=P("x"))
    np.testing.assert_array_equal(np.asarray(f(jnp.arange(3.0))), [0, 3, 6])
    with pytest.raises(ConcretizationError, match="its derivative would be lost"):
        tx.grad(lambda x: f(x).sum())(jnp.arange(3.0))


def test_callbacks_do_not_run_again_for_a_value() -> None:
    calls: list[int] = []

    def f(x: Any) -> Any:
        y = tx.experimental.io_callback(lambda a: calls.append(1) or a, x, x)
        return x if lax.psum(y.sum(), "x") > 0 else -x

    with pytest.raises(ConcretizationError):
        tx.shard_map(f, mesh=tx.make_mesh((1,), ("x",)), in_specs=P("x"), out_specs=P("x"))(jnp.arange(3.0))
    assert not calls


@pytest.mark.parametrize("check_vma", [True, False])
def test_function_of_parts_of_parts_sums_over_the_axes_of_both(check_vma: bool) -> None:
    """What varies along an axis of the function around does so inside, too."""
    options: Any = {"out_specs": P(), "check_vma": check_vma}
    inner = tx.shard_map(lambda x, w: lax.psum(x * w, ("x", "y")), in_specs=P(None, "y"), axis_names={"y"}, **options)
    outer = tx.shard_map(lambda x, w: inner(x, w) ** 2, in_specs=(P("x"), P()), axis_names={"x"}, **options)
    w = np.linspace(0.5, 1.5, 8, dtype=np.float32).reshape(2, 4)

    def dense(x: Any, w: Any) -> Any:
        return (x.reshape(4, 2, 2, 2) * w.reshape(2, 2, 2)).sum((0, 2)) ** 2

    with tx.set_mesh(tx.make_mesh((4, 2), ("x", "y"))):
        np.testing.assert_allclose(tx.jit(outer)(ROWS, w), dense(ROWS, w), rtol=1e-5)
        if check_vma:
            found, expected = (tx.grad(lambda x, w, f=f: f(x, w).sum(), (0, 1))(ROWS, w) for f in (outer, dense))
            for one, other in zip(found, expected, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-5)


def test_arguments_without_specs_are_split_as_types_say_along_explicit_axes() -> None:
    kinds = tx.sharding.AxisType.Explicit, tx.sharding.AxisType.Auto
    with tx.set_mesh(tx.make_mesh((4, 2), ("x", "y"), axis_types=kinds)):
        rows = tx.device_put(ROWS, P("x"))
        np.testing.assert_array_equal(tx.smap(lambda x: x + x.shape[0], out_axes=0, axis_name="x")(rows), ROWS + 2)
        for mapped in (
            tx.smap(lambda x: x, out_axes=0, axis_name="y"),
            tx.shard_map(lambda x: x, out_specs=P("x")),
        ):
            with pytest.raises(ArgumentError, match="in_specs must say how arguments are split along 'y'"):
                mapped(ROWS)


@pytest.mark.parametrize("check_vma", [True, False])
@pytest.mark.parametrize("wrap", [tx.jit, lambda f: f], ids=["jit", "eager"])
def test_devices_have_summands_of_what_specs_say_is_unreduced(wrap: Any, check_vma: bool) -> None:
    x = np.asarray(ROWS)

    def marked(x: Any) -> Any:
        return lax.pcast(x, "x", to="unreduced")

    with tx.set_mesh(tx.make_mesh((4,), ("x",), axis_types=(tx.sharding.AxisType.Explicit,))):
        sums = wrap(tx.shard_map(marked, in_specs=P("x"), out_specs=P(unreduced={"x"}), check_vma=check_vma))
        parts = tx.shard_map(
            lambda x: lax.psum_scatter(x, "x", tiled=True),
            in_specs=P(unreduced={"x"}),
            out_specs=P("x"),
            check_vma=check_vma,
        )
        np.testing.assert_array_equal(sums(x), x.reshape(4, 2, 4).sum(0))
        whole = tx.sharding.reshard(x, P(unreduced={"x"}))
        np.testing.assert_array_equal(wrap(parts)(whole), x)
        factor = tx.sharding.reshard(x[:2], P(reduced={"x"}))
        np.testing.assert_array_equal(tx.grad(lambda y: (sums(y) * factor).sum())(x), np.tile(x[:2], (4, 1)))
        np.testing.assert_array_equal(tx.grad(lambda y: (parts(y) * x).sum())(whole), x)


def _over_explicit_axes() -> Any:
    return tx.set_mesh(tx.make_mesh((4, 2), ("x", "y"), axis_types=(tx.sharding.AxisType.Explicit,) * 2))


@pytest.mark.parametrize("wrap", [tx.jit, lambda f: f], ids=["jit", "eager"])
@pytest.mark.parametrize("check_vma", [True, False])
def test_devices_have_summands_of_what_types_say_is_unreduced(wrap: Any, check_vma: bool) -> None:
    with _over_explicit_axes():
        x = tx.sharding.reshard(ROWS, P(None, "y", unreduced={"x"}))
        found = wrap(tx.shard_map(lambda x: lax.psum(x, "x"), out_specs=P(None, "y"), check_vma=check_vma))(x)
        np.testing.assert_array_equal(found, ROWS)
        with pytest.raises(ShardingTypeError, match=r"uses an array of the type f32\[8,4@y\]{U:x} from around"):
            wrap(tx.shard_map(lambda: lax.psum(x, "x"), out_specs=P(), check_vma=check_vma))()
        with pytest.raises(ShardingTypeError, match="both must have the same unreduced and reduced axes"):
            wrap(tx.shard_map(lambda x: x, in_specs=P(), out_specs=P(), check_vma=check_vma))(x)


@pytest.mark.parametrize("wrap", [tx.jit, lambda f: f], ids=["jit", "eager"])
def test_gradients_by_reduced_values_are_summands(wrap: Any) -> None:
    """Gradients of batches are added on each device, and summed over devices once."""

    def loss(w: Any, x: Any) -> Any:
        return jnp.sum(jnp.sin(x @ w))

    def of_parts(w: Any, x: Any) -> Any:
        def step(total: Any, rows: Any) -> Any:
            return total + tx.grad(loss)(w, rows), None

        zeros = lax.pcast(lax.pcast(jnp.zeros(4), "x", to="varying"), "x", to="unreduced")
        total, _ = lax.scan(step, zeros, x[:, None])
        return total, lax.psum(total, "x"), lax.psum_scatter(total, "x", tiled=True)

    with _over_explicit_axes():
        w, x = tx.sharding.reshard(ROWS[0], P(reduced={"x"})), tx.sharding.reshard(ROWS, P("x"))
        function = wrap(tx.shard_map(of_parts, out_specs=(P(unreduced={"x"}), P(), P("x"))))
        found = function(w, x)
        assert found[0].sharding.spec.unreduced == {"x"}
        for y in found:
            np.testing.assert_allclose(y, tx.grad(loss)(ROWS[0], ROWS), rtol=1e-4)
        outer = wrap(tx.grad(lambda w: (function(w, x)[1] ** 2).sum()))(w)
        assert outer.sharding.spec.unreduced == {"x"}
        np.testing.assert_allclose(outer, tx.grad(lambda w: (tx.grad(loss)(w, ROWS) ** 2).sum())(ROWS[0]), rtol=1e-3)


@pytest.mark.parametrize(
    ("function", "spec", "said"),
    [
        (lambda u, r, x: jnp.sin(u), P(unreduced={"x"}), "sine: it is not linear"),
        (lambda u, r, x: u + x.sum(), P(unreduced={"x"}), "add: another operand varies among devices"),
        (lambda u, r, x: u + 1, P(unreduced={"x"}), "add: operands that are added must all be partial sums"),
        (lambda u, r, x: u * u, P(unreduced={"x"}), "multiply: it is linear in either operand"),
        (lambda u, r, x: lax.all_gather(u, "x"), P("x"), "all-gather: another operand varies"),
        (lambda u, r, x: lax.pmax(u, "x"), P(), "all-reduce"),
        (lambda u, r, x: lax.cond(x.sum() > 0, lambda: u, lambda: 2 * u), P(unreduced={"x"}), "unreduced"),
        (lambda u, r, x: u, P(), "is unreduced along 'x'; say so in out_specs"),
        (lambda u, r, x: u, P("x"), "is unreduced along 'x'"),
        (lambda u, r, x: r, P(), "is reduced along 'x'; say so in out_specs"),
        (lambda u, r, x: r, P(unreduced={"x"}), "is reduced along 'x', but its spec says unreduced"),
        (lambda u, r, x: x, P(reduced={"x"}), "is varying along 'x', but its spec says reduced"),
    ],
)
def test_summands_are_not_taken_for_sums(function: Any, spec: Any, said: str) -> None:
    with _over_explicit_axes():
        u, r = (tx.sharding.reshard(ROWS[0], P(**{kind: {"x"}})) for kind in ("unreduced", "reduced"))
        with pytest.raises(ShardingTypeError, match=said):
            tx.shard_map(function, out_specs=spec)(u, r, tx.sharding.reshard(ROWS[:, 0], P("x"))[:8])


@pytest.mark.parametrize(("to", "spec"), [("unreduced", P()), ("reduced", P("x")), ("whole", P())])
def test_casts_that_do_not_fit(to: str, spec: Any) -> None:
    with pytest.raises(AttributeValueError, match="pcast: to"):
        _mapped(lambda x: lax.pcast(x, "x", to=to), spec, P("x"))(ROWS)


def _some_axes(f: Any, in_specs: Any, out_specs: Any, names: set[str]) -> Any:
    """A compiled function of parts along some axes of a mesh of 4 by 2 devices, the others left to the compiler."""
    mesh = tx.make_mesh((4, 2), ("x", "y"))
    return tx.jit(tx.shard_map(f, mesh=mesh, in_specs=in_specs, out_specs=out_specs, axis_names=names))


def test_products_along_axes_left_to_the_compiler_gather_nothing() -> None:
    mesh = tx.make_mesh((4, 2), ("x", "y"))
    weights = tx.device_put(np.arange(24.0, dtype=np.float32).reshape(4, 6), tx.NamedSharding(mesh, P(None, "y")))
    rows = tx.device_put(ROWS, tx.NamedSharding(mesh, P("x")))
    product = _some_axes(lambda a, w: lax.psum(a, "x") @ w + a.sum(), (P("x"), P()), P("x"), {"x"})
    found = product(rows, weights)
    parts = ROWS.reshape(4, 2, 4)
    expected = [parts.sum(0) @ np.asarray(weights) + part.sum() for part in parts]
    np.testing.assert_allclose(found, np.concatenate(expected), rtol=1e-6)
    assert found.sharding.spec == P("x", "y")
    assert "all-gather" not in product.lower(rows, weights).compile().as_text()


PARTWISE: dict[str, Any] = {
    "shift": lambda a: lax.ppermute(a, "x", [(k, (k + 1) % 4) for k in range(4)]) * 2,
    "mean": lambda a: a - lax.pmean(a, "x"),
    "largest": lambda a: a / lax.pmax(abs(a).max(), "x"),
    "gather rows": lambda a: lax.all_gather(a, "x", tiled=True)[1:3] + a,
    "gather columns": lambda a: lax.all_gather(a, "x", axis=1, tiled=True)[:, :4] - a,
    "scatter": lambda a: lax.psum_scatter(jnp.tile(a, (4, 1)), "x", tiled=True),
    "exchange": lambda a: lax.all_to_all(a, "x", 1, 1, tiled=True),
    "index": lambda a: a * lax.axis_index("x").astype(np.float32) + jnp.arange(4.0),
    "scan": lambda a: lax.scan(lambda c, r: (c + lax.psum(r, "x"), c * r), a[0] * 0, a)[1],
    "while": lambda a: lax.while_loop(lambda c: lax.psum(c.sum(), "x") < 1e4, lambda c: c * 2 + 1, a),
    "cond": lambda a: lax.cond(a.sum() > 100, lambda b: b.cumsum(1), lambda b: b[::-1], a),
    "nested": lambda a: tx.shard_map(
        lambda b: b + lax.psum(b, "y") + lax.axis_index("y"), in_specs=P(None, "y"), out_specs=P(None, "y")
    )(a),
}


@pytest.mark.parametrize("spec", [P("x"), P("x", "y"), P(("x", "y"))], ids=["x", "x and y", "xy"])
@pytest.mark.parametrize("name", PARTWISE)
def test_partial_shard_map_equals_the_function_of_whole_arrays(name: str, spec: Any) -> None:
    mesh = tx.make_mesh((4, 2), ("x", "y"))
    f = PARTWISE[name]
    with tx.set_mesh(mesh):
        given = tx.device_put(ROWS + 1, tx.NamedSharding(mesh, spec))
        found = tx.jit(tx.shard_map(f, in_specs=P("x"), out_specs=P("x"), axis_names={"x"}))(given)
        gradient = tx.jit(
            tx.grad(lambda a: (tx.shard_map(f, in_specs=P("x"), out_specs=P("x"), axis_names={"x"})(a) ** 2).sum())
        )
    if name == "nested":
        halves = (ROWS + 1).reshape(8, 2, 2)
        expected = halves + halves.sum(1, keepdims=True) + np.arange(2)[:, None]
        np.testing.assert_allclose(found, expected.reshape(8, 4), rtol=1e-6)
        return
    with tx.set_mesh(tx.make_mesh((4,), ("x",), devices=tx.devices()[:4])):
        whole = tx.shard_map(f, in_specs=P("x"), out_specs=P("x"))
        expected = np.asarray(whole(ROWS + 1))
        if name != "while":
            slopes = np.asarray(tx.grad(lambda a: (whole(a) ** 2).sum())(jnp.asarray(ROWS + 1)))
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    if name != "while":
        with tx.set_mesh(mesh):
            np.testing.assert_allclose(gradient(given), slopes, rtol=1e-5, atol=1e-3)
