"""Options for blocks of code, scopes, stages of compilation, devices, and the errors' names in JAX."""

from __future__ import annotations

import functools
import threading
import warnings
from typing import Any

import numpy as np
import pytest

import tinyxla as tx
from tinyxla import errors, numpy as tnp, stablehlo, xla
from tinyxla.hlo import Module
from tinyxla.text import print_module

# --- options ----------------------------------------------------------------------------------------------------------


def test_options_end_with_their_block_and_hold_in_one_thread() -> None:
    seen: list[Any] = []

    @tx.jit
    def f(x: Any) -> Any:
        return x + tnp.arange(2.0)

    assert f(1).dtype == np.float32
    with tx.enable_x64():
        assert tnp.ones(2).dtype == np.float64
        assert f(1).dtype == np.float64
        other = threading.Thread(target=lambda: seen.append((tnp.ones(2).dtype, f(1).dtype)))
        other.start()
        other.join()
        with tx.enable_x64(False):
            assert f(1).dtype == np.float32
        assert tx.config.jax_enable_x64 is True
    assert seen == [(np.float32, np.float32)]
    assert f(1).dtype == np.float32
    with pytest.raises(ZeroDivisionError), tx.enable_x64():
        raise ZeroDivisionError
    assert not tx.config.enable_x64


def test_options_by_the_names_of_jax() -> None:
    tx.config.update("jax_platform_name", "cpu")
    assert tx.config.jax_platform_name == "cpu"
    tx.config.update("jax_default_matmul_precision", "highest")
    with (
        tx.default_matmul_precision("highest"),
        tx.checking_leaks(),
        tx.default_device(tx.devices()[0]),
    ):
        assert tnp.ones(2).sum() == 2
    with pytest.raises(errors.AttributeValueError, match=r"'such'.*enable_x64"):
        tx.config.update("jax_such", 1)
    with pytest.raises(AttributeError, match="enable_x64"):
        _ = tx.config.jax_such


def test_disable_jit() -> None:
    calls: list[float] = []

    @tx.jit
    def f(x: Any) -> Any:
        calls.append(float(x) if tx.config.disable_jit else 0.0)
        return x * 2

    with tx.disable_jit():
        assert f(2.0) == 4
        assert f(3.0) == 6
        with tx.disable_jit(False):
            assert f(5.0) == 10
    assert calls == [2.0, 3.0, 0.0]


def log_of(x: Any) -> Any:
    return tnp.log(x)  # the line that the error names


@pytest.mark.parametrize(
    "run",
    [
        lambda: log_of(-1.0),
        lambda: tx.jit(lambda x: log_of(x) * 2)(-1.0),
        lambda: tx.jit(lambda x: tx.jit(log_of)(x) * 2)(-1.0),
        lambda: tx.grad(lambda x: log_of(x))(-1.0),
        lambda: tx.vmap(log_of)(np.array([1.0, -1.0])),
        lambda: tx.jit(tx.vmap(tx.value_and_grad(log_of)))(np.array([1.0, -1.0])),
    ],
)
def test_debug_nans_names_operation_and_line(run: Any) -> None:
    run()
    with tx.debug_nans(), pytest.raises(FloatingPointError, match="log: the result has a NaN") as caught:
        run()
    assert "the line that the error names" in str(caught.value)
    run()


def test_debug_nans_lets_through_what_is_given() -> None:
    with tx.debug_nans():
        assert np.isnan(float(tx.jit(lambda x: x + 1)(np.nan)))
        assert float(tx.jit(lambda x: tnp.where(x > 0, x, tnp.log(tnp.abs(x))))(2.0)) == 2
        assert float(tx.jit(lambda x: tnp.exp(x))(1000.0)) == np.inf
        assert tx.jit(lambda n: n + 1)(3) == 4


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(
    "function",
    [
        lambda: tx.scipy.special.ndtri(np.float32([0.0, 0.1, 0.5, 1.0])),
        lambda: tnp.logaddexp(np.float32([-np.inf, np.inf, 1.0]), np.float32([-np.inf, np.inf, 2.0])),
        lambda: tx.random.dirichlet(tx.random.key(42), np.ones(3, np.float32), (4,)),
    ],
)
def test_debug_nans_finds_none_in_formulas_whose_value_has_none(function: Any, compiled: bool) -> None:
    expected = function()
    with tx.debug_nans():
        np.testing.assert_allclose(tx.jit(function)() if compiled else function(), expected, 1e-5)


def test_debug_nans_lets_through_memory_that_nothing_was_written_to(monkeypatch: pytest.MonkeyPatch) -> None:
    def not_a_number(shape: Any, dtype: Any = float) -> Any:
        return np.full(shape, np.nan, dtype)

    monkeypatch.setattr(np, "empty", not_a_number)
    with tx.debug_nans():
        assert tx.lax.scan(lambda c, x: (c, x * 2), 0, tnp.arange(3.0))[1].tolist() == [0, 2, 4]


def test_debug_infs_and_the_option_for_the_process() -> None:
    with tx.debug_infs(), pytest.raises(errors.NonFiniteError, match="exponential: the result has an infinity"):
        tnp.exp(1000.0)
    f = tx.jit(tnp.log)
    f(-1.0)
    tx.config.update("jax_debug_nans", True)
    try:
        with pytest.raises(FloatingPointError, match="log"):
            f(-1.0)
    finally:
        tx.config.update("jax_debug_nans", False)
    f(-1.0)


def test_strict_promotion() -> None:
    x, n = tnp.ones(2), tnp.arange(2)
    assert (x + n).dtype == np.float32
    with tx.numpy_dtype_promotion("strict"):
        assert (x + 1).dtype == np.float32
        assert (n + 1).dtype == np.int32
        with pytest.raises(tx.dtypes.TypePromotionError, match="astype"):
            x + n
        with pytest.raises(errors.PromotionError):
            tx.jit(lambda a, b: a * b)(x, n)
    assert (x + n).dtype == np.float32


def test_rank_promotion() -> None:
    x, y = tnp.ones((2, 3)), tnp.ones(3)
    with tx.numpy_rank_promotion("raise"):
        assert (x + 1).shape == (2, 3)
        with pytest.raises(errors.ShapeError, match="reshape"):
            x + y
    with tx.numpy_rank_promotion("warn"), pytest.warns(UserWarning, match="different ranks"):
        x + y
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x + y


def test_ensure_compile_time_eval() -> None:
    @tx.jit
    def f(x: Any) -> Any:
        with tx.ensure_compile_time_eval():
            n = tnp.arange(4).sum()
            assert int(n) == 6
            with pytest.raises(errors.ConcretizationError):
                float(x + 1)
        return x * n

    assert f(2.0) == 12
    assert tx.grad(f)(2.0) == 6


# --- scopes -----------------------------------------------------------------------------------------------------------


@tx.named_scope("outer")
def scoped(x: Any) -> Any:
    with tx.named_scope("inner"):
        y = tnp.sin(x)
    return tx.lax.scan(lambda c, _: (c * y, None), y, None, length=3)[0] + 1


def choosing(x: Any) -> Any:
    return tx.lax.cond(x > 0, tx.named_scope("positive")(tnp.sin), tx.named_scope("negative")(tnp.cos), x)


@pytest.mark.parametrize(
    ("f", "x", "parts"),
    [
        (scoped, 1.0, ["jit(scoped)/outer/inner/sine", "outer/while/body/multiply", "outer/add"]),
        (tx.grad(scoped), 1.0, ["/jvp(outer)/inner/sine", "/transpose(jvp(outer))/inner/cosine"]),
        (tx.vmap(scoped), np.ones(2), ["/vmap(outer)/inner/sine", "/vmap(outer)/add"]),
        (tx.vmap(tx.grad(scoped)), np.ones(2), ["/vmap(transpose(jvp(outer)))/inner/cosine"]),
        (lambda x: tx.jvp(scoped, (x,), (x,))[1], 1.0, ["/jvp(outer)/inner/cosine"]),
        (lambda x: tx.linearize(scoped, x)[1](x), 1.0, ["/jvp(outer)/inner/cosine"]),
        (tx.named_scope("around")(tx.grad(scoped)), 1.0, ["/around/transpose(jvp(outer))/inner/cosine"]),
        (tx.grad(tx.jit(scoped)), 1.0, ["outer/inner/cosine", "/jvp(jit(scoped))", "/transpose(jvp(jit(scoped)))"]),
        (tx.named_call(tx.jit(scoped), name="call"), 1.0, ["/call/jit(scoped)", "outer/inner/sine"]),
        (tx.vmap(choosing), np.ones(2), ["/vmap(positive)/sine", "/vmap(negative)/cosine"]),
        (choosing, 1.0, ["/cond/branch_1_fun/positive/sine", "/cond/branch_0_fun/negative/cosine"]),
        (
            tx.grad(tx.checkpoint(scoped)),
            1.0,
            [f"/checkpoint/rematted_computation/outer/inner/{name}" for name in ("sine", "cosine")],
        ),
    ],
)
def test_scopes_stay_through_transformations(f: Any, x: Any, parts: list[str]) -> None:
    lowered = tx.jit(f).lower(x)
    located = lowered.as_text("stablehlo", debug_info=True)
    for shown in (lowered.as_text(debug_info=True), located):
        for part in parts:
            assert f'{part}"' in shown, f"{part} in {shown}"
    np.testing.assert_allclose(stablehlo.parse(located)(x), f(x), rtol=1e-6)
    assert "loc(" not in lowered.as_text("stablehlo")
    assert "outer" not in lowered.as_text()


@pytest.mark.llvm
def test_scopes_of_plans_and_of_functions_used_elsewhere() -> None:
    inner = tx.jit(lambda x: tnp.sin(x))
    with tx.named_scope("first"):
        tx.jit(inner)(1.0)
    assert "first" not in tx.jit(inner).lower(1.0).as_text(debug_info=True)
    kernels = tx.jit(tx.named_scope("around")(tx.grad(tx.jit(scoped)))).lower(1.0).compile().kernels
    lines = [line for kernel in kernels for line in kernel.lines]
    for scope in ("around/jvp(jit(scoped))/outer/inner)", "around/transpose(jvp(jit(scoped)))/outer)"):
        assert any(scope in line for line in lines), lines
    builder = xla.XlaBuilder("built")
    with tx.named_scope("layer"):
        built = builder.Sin(builder.Constant(1.0))
    module = Module("built", builder.Build(built).computation)
    assert "jit(built)/layer/sine" in print_module(module, metadata=True)
    with pytest.raises(errors.ArgumentError, match="named_scope takes a string"), tx.named_scope(3):  # type: ignore[arg-type]
        pass


# --- stages -----------------------------------------------------------------------------------------------------------


def test_stages_tell_structures_and_costs() -> None:
    f = tx.jit(lambda x, *, scale: {"y": x @ x * scale})
    x = tx.ShapeDtypeStruct((4, 4), "float32")
    traced = f.trace(x, scale=1.0)
    lowered = traced.lower()
    compiled = lowered.compile()
    assert traced.out_info == {"y": tx.ShapeDtypeStruct((4, 4), "float32")} == f.eval_shape(x, scale=1.0)
    assert traced.in_tree == tx.tree.structure(((0,), {"scale": 0}))
    assert compiled.out_tree == tx.tree.structure({"y": 0})
    assert lowered.cost_analysis()["flops"] == 2 * 4**3 + 16
    assert compiled.cost_analysis() == lowered.cost_analysis()
    assert tx.jit(lambda x: (x @ x, x + 1)[1]).lower(x).cost_analysis()["flops"] == 16  # dead code costs nothing
    y = tx.ShapeDtypeStruct((1, 1, 4, 4), "float32")
    convolve = tx.jit(lambda x: tx.lax.conv(x, x[:, :, 1:], (2, 1), [(0, 0), (1, 0)]))
    assert convolve.lower(y).cost_analysis()["flops"] == 2 * 3 * (3 + 4)  # one of four columns is padding, once
    pooled = tx.jit(lambda x: tx.lax.reduce_window(x, 0.0, tx.lax.add, (2, 2), (2, 2), "VALID"))
    assert pooled.lower(x).cost_analysis()["flops"] == 4 * 3
    assert compiled.memory_analysis().argument_size_in_bytes == 68
    assert compiled(np.ones((4, 4), np.float32), scale=2.0)["y"].tolist() == [[8.0] * 4] * 4
    assert isinstance(f, tx.stages.Wrapped)
    assert isinstance(lowered, tx.stages.Lowered)
    assert "dot" in str(traced.jaxpr)
    with pytest.raises(errors.ArgumentError, match="structure"):
        compiled(np.ones((4, 4), np.float32))
    with pytest.raises(errors.ArgumentError, match=r"argument x is f32.3,3., not f32.4,4.; lower it"):
        compiled(np.ones((3, 3), np.float32), scale=2.0)
    with pytest.raises(errors.AttributeValueError, match="dialect"):
        lowered.as_text("mhlo")


def test_make_jaxpr() -> None:
    module, shapes = tx.make_jaxpr(lambda n, x: [x] * n, static_argnums=0, return_shape=True)(2, np.ones(3))
    assert shapes == [tx.ShapeDtypeStruct((3,), "float32")] * 2
    assert str(module).startswith("HloModule")
    assert "parameter(0)" in repr(module)


def test_jit_takes_methods_partials_and_callables() -> None:
    class Layer:
        def __init__(self, scale: float) -> None:
            self.scale = scale

        @functools.partial(tx.jit, static_argnums=0)
        def apply(self, x: Any) -> Any:
            return x * self.scale

        def __call__(self, x: Any) -> Any:
            return x + self.scale

    layer = Layer(3.0)
    assert layer.apply(2.0) == 6
    assert tx.jit(layer)(2.0) == 5
    assert tx.jit(layer.__call__, inline=True, keep_unused=True, backend="cpu", device=None)(2.0) == 5
    assert tx.jit(functools.partial(lambda a, b: a - b, 1.0))(2.0) == -1
    assert tx.jit(lambda f, x: f(x))(tx.tree_util.Partial(lambda a, b: a - b, 1.0), 2.0) == -1
    with pytest.raises(errors.ArgumentError, match="generator"):
        tx.jit(lambda x: (yield x))


def test_shapes_and_types() -> None:
    s = tx.ShapeDtypeStruct((2, 3), tnp.float32)
    assert (s.ndim, s.size, len(s)) == (2, 6, 2)
    assert s == tx.typeof(tnp.ones((2, 3)))
    assert hash(s) == hash(tx.typeof(tnp.ones((2, 3))))
    assert s.update(shape=(1,), weak_type=True) == tx.ShapeDtypeStruct((1,), "float32", weak_type=True)
    assert tx.typeof(1.0).weak_type
    tx.jit(lambda x: (isinstance(x, tx.Array) and isinstance(x, tx.core.Tracer)) or pytest.fail("no tracer"))(1.0)
    assert isinstance(tnp.ones(1), tx.typing.ArrayLike)
    assert not tx.dtypes.issubdtype(np.uint32, tx.dtypes.prng_key)
    with pytest.raises(errors.ArgumentError, match="needs a dtype"):
        tx.ShapeDtypeStruct((1,), None)


def test_devices() -> None:
    (device,) = tx.devices()
    x = tx.device_put({"x": [1.0, 2]}, device)
    assert x["x"][0].devices() == {device}
    assert x["x"][1].device == device
    assert (tx.device_count(), tx.local_device_count(), tx.process_index(), tx.process_count()) == (1, 1, 0, 1)
    assert (device.platform, tx.default_backend(), repr(device)) == ("cpu", "cpu", "CpuDevice(id=0)")
    assert tx.device_get(x) == {"x": [1.0, 2]}
    assert "tinyxla: " in str(tx.print_environment_info(return_string=True))
    with pytest.raises(errors.PlatformError, match="gpu"):
        tx.devices("gpu")


@pytest.mark.parametrize(
    ("kind", "function"),
    [
        ("TracerBoolConversionError", lambda x: 1 if x[0] > 0 else 2),
        ("TracerIntegerConversionError", lambda x: [1, 2][x[0].astype(int)]),
        ("TracerArrayConversionError", lambda x: np.asarray(x)),
        ("NonConcreteBooleanIndexError", lambda x: x[x > 0]),
        ("ConcretizationTypeError", lambda x: float(x[0])),
    ],
)
def test_errors_by_the_names_of_jax(kind: str, function: Any) -> None:
    with pytest.raises(getattr(errors, kind)) as caught:
        tx.jit(function)(np.ones(2))
    assert type(caught.value) is getattr(errors, kind)
    assert isinstance(caught.value, errors.ConcretizationTypeError | errors.JAXTypeError)


# --- trees and segments -----------------------------------------------------------------------------------------------


def test_ravel_pytree() -> None:
    tree = {"a": 1.0, "b": [np.arange(2), np.ones((2, 2), bool)], "c": None}
    vector, unravel = tx.flatten_util.ravel_pytree(tree)
    assert vector.tolist() == [1, 0, 1, 1, 1, 1, 1]
    assert vector.dtype == np.float32
    back = unravel(vector)
    assert [x.dtype for x in tx.tree.leaves(back)] == [np.float32, np.int32, np.bool_]
    assert tx.tree.structure(back) == tx.tree.structure(tree)
    assert tx.grad(lambda v: unravel(v)["a"] ** 2)(vector).tolist() == [2, 0, 0, 0, 0, 0, 0]
    assert tx.flatten_util.ravel_pytree(())[0].shape == (0,)
    with pytest.raises(errors.ShapeError, match="unravel"):
        unravel(vector[1:])
    with pytest.raises(errors.DTypeError, match="unravel"):
        unravel(vector.astype(int))


def test_one_level_of_a_tree() -> None:
    util = tx.tree_util
    assert util.flatten_one_level({"a": (1,), "b": None})[0] == [(1,), None]
    assert util.flatten_one_level_with_keys([1, (2,)])[0] == [(util.SequenceKey(0), 1), (util.SequenceKey(1), (2,))]
    assert [util.is_tree_node(t) for t in (dict, util.Partial, int)] == [True, True, False]
    with pytest.raises(ValueError, match="takes a container"):
        util.flatten_one_level(1)


def test_contexts_without_effect_are_decorators() -> None:
    @tx.default_matmul_precision("float32")
    def double(x: float) -> float:
        return 2 * x

    assert [double(1.0), double(2.0)] == [2.0, 4.0]


# --- leaked tracers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "holder"),
    [
        (lambda keep: tx.jit(keep)(1.0), "a list"),
        (lambda keep: tx.vmap(keep)(tnp.arange(3.0)), "a list"),
        (lambda keep: tx.eval_shape(keep, 1.0), "a list"),
        (lambda keep: tx.lax.scan(lambda c, x: (keep(c), None), 1.0, tnp.arange(3.0)), "a list"),
        (lambda keep: tx.jit(lambda x: keep(lambda: x)())(1.0), "a cell"),
    ],
    ids=["jit", "vmap", "eval_shape", "scan", "closure"],
)
def test_leaked_tracers_are_errors_at_the_end_of_the_function_where_that_is_asked_for(call: Any, holder: str) -> None:
    kept: list[Any] = []

    def keep(x: Any) -> Any:
        kept.append(x)
        return x

    call(keep)  # no error here, but where it is used
    kept.clear()
    with tx.checking_leaks(), pytest.raises(errors.LeakedTracerError, match=rf"has ended, but .* is left in {holder}"):
        call(keep)


def test_functions_that_keep_no_tracers_are_no_errors_of_the_leak_check() -> None:
    scale = tx.custom_jvp(lambda x: 2 * x)
    scale.defjvp(lambda p, t: (scale(*p), 3 * t[0]))

    def f(x: Any) -> Any:
        return tx.lax.scan(lambda c, x: (tnp.sin(scale(c)) + x, c), x, tnp.arange(2.0))[0]

    with tx.checking_leaks():
        assert tx.jit(tx.grad(f))(1.0) == tx.grad(tx.jit(f))(1.0)
        assert tx.vmap(tx.jit(tx.grad(tx.checkpoint(f))))(tnp.ones(3)).shape == (3,)


def test_inlined_functions_are_recorded_by_their_operations() -> None:
    for inline, names in ((True, ["constant", "multiply"]), (False, ["call"])):
        inner = tx.jit(lambda x: 2 * x, inline=inline)
        graph = tx.make_graph(lambda x, inner=inner: inner(x))(1.0)
        assert [x.op.name for x in graph.entry.instructions[1:-1] if x.op.name != "get-tuple-element"] == names
        assert tx.grad(tx.jit(inner))(3.0) == 2


def test_static_argnums_of_checkpoint_are_positions_of_the_call() -> None:
    with pytest.raises(errors.ArgumentError, match=r"static_argnums is \(5,\), but the call has 1 positional"):
        tx.checkpoint(lambda x: x, static_argnums=5)(1.0)


@pytest.mark.parametrize("transform", [tx.jit, tx.grad, tx.vmap, lambda f: lambda x: tx.jvp(f, (x,), (x,))])
def test_traced_array_has_no_attribute_by_which_programs_tell_boxes_of_arrays(transform: Any) -> None:
    unboxed = lambda x: x.value if hasattr(x, "value") else x  # noqa: E731
    x = tnp.ones(2) if transform is tx.vmap else tnp.float32(1)
    assert not any(hasattr(y, "value") for y in [x])
    result = transform(lambda y: unboxed(y) * 2)(x)
    assert np.all(np.asarray(result) == 2)
