"""Exported functions: symbolic sizes, round trips, derivatives, damaged bytes, and what JAX and XLA make of them."""

from __future__ import annotations

import contextlib
import operator
import random as python_random
import re
import warnings
from collections import OrderedDict
from typing import Any, NamedTuple

import numpy as np
import pytest

import tinyxla as tx
import tinyxla.numpy as tnp
from tests.support.symbolic_programs import PROGRAMS, loss, parameters, rows, train
from tinyxla import export, lax, random, stablehlo
from tinyxla.errors import (
    ArgumentError,
    AttributeValueError,
    BytecodeError,
    InconclusiveDimensionOperation,
    PlatformError,
    TinyxlaError,
)

Struct = tx.ShapeDtypeStruct


def batch(text: str = "b, 4", **options: Any) -> Struct:
    return Struct(export.symbolic_shape(text, **options), "float32")


def leaves(found: Any) -> list[np.ndarray[Any, Any]]:
    return [np.asarray(x) for x in tx.tree.leaves(found)]


def close(found: Any, expected: Any) -> None:
    assert tx.tree.structure(found) == tx.tree.structure(expected)
    for a, b in zip(leaves(found), leaves(expected), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=2e-6)


# --- symbolic batch sizes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_with_a_symbolic_size_runs_for_all_sizes(name: str) -> None:
    compiled = tx.jit(PROGRAMS[name])
    made = export.export(compiled)(batch())
    assert re.search(r"@main\(%arg0: tensor<\?x4xf32>\)", made.mlir_module())
    exported = export.deserialize(made.serialize())
    for b in (2, 3, 8):
        close(exported.call(rows(b)), compiled(rows(b)))


def test_sizes_of_one_work_where_the_function_does() -> None:
    for name in ("elementwise", "product", "statistics", "scan", "counted loop", "softmax", "gradient of a loss"):
        compiled = tx.jit(PROGRAMS[name])
        close(export.export(compiled)(batch()).call(rows(1)), compiled(rows(1)))


def test_training_step_with_a_symbolic_batch() -> None:
    compiled = tx.jit(train)
    like = tx.tree.map(lambda w: Struct(w.shape, w.dtype), parameters())
    exported = export.deserialize(export.export(compiled)(like, batch()).serialize())
    found = expected = parameters()
    for b in (3, 16, 1, 7):
        (value, found), (right, expected) = exported.call(found, rows(b)), compiled(expected, rows(b))
        close((value, found), (right, expected))
    assert exported.in_tree.num_leaves == 4


def test_several_variables_and_polynomials() -> None:
    scope = export.SymbolicScope()
    shapes = [Struct(export.symbolic_shape(t, scope=scope), "float32") for t in ("b, 2*c", "c, b+1")]
    f = tx.jit(lambda x, y: (x.reshape(-1), tnp.concatenate([y, y]).T @ tnp.ones(2 * y.shape[0]), x.T[: y.shape[0]]))
    exported = export.export(f)(*shapes)
    assert [str(t.shape) for t in exported.out_avals] == ["(2*b*c,)", "(b + 1,)", "(c, b)"]
    for b, c in ((2, 3), (5, 1)):
        x, y = np.ones((b, 2 * c), np.float32), np.ones((c, b + 1), np.float32)
        close(exported.call(x, y), f(x, y))
    with pytest.raises(
        ArgumentError, match=r"argument 0 of .*: dimension 1 is 5, which does not fit 2\*c: it must be 6"
    ):
        exported.call(np.ones((2, 5), np.float32), np.ones((3, 3), np.float32))
    with pytest.raises(
        ArgumentError, match=r"argument 1 of .*: dimension 1 is 4, which does not fit b .* 1: it must be 3"
    ):
        exported.call(np.ones((2, 6), np.float32), np.ones((3, 4), np.float32))


def test_variable_must_follow_from_the_arguments() -> None:
    with pytest.raises(ArgumentError, match=r"the variable 'b' does not follow .* b \+ c"):
        export.export(tx.jit(tnp.sin))(batch("b + c, 4"))
    with pytest.raises(ArgumentError, match="of different scopes"):
        export.export(tx.jit(lambda x, y: (x, y)))(batch(), batch())


def test_what_depends_on_a_size_is_an_error() -> None:
    for f in (
        lambda x: x if x.shape[0] > 3 else -x,
        lambda x: sum(x[i] for i in range(x.shape[0])),
        lambda x: x * float(x.shape[0]),
        lambda x: x + np.ones(x.shape),
        lambda x: x[7],
    ):
        with pytest.raises(InconclusiveDimensionOperation, match="b"):
            export.export(tx.jit(f))(batch())


def test_symbolic_sizes_with_equality_constraints_of_products() -> None:
    """As by JAX's rewrite rules, whose left side is a product."""
    a, b, c, d = export.symbolic_shape("a, b, c, d", constraints=["a * b == c + d"])
    assert 2 * b * a == 2 * c + 2 * d
    assert a * b * b == b * c + b * d
    (e, f) = export.symbolic_shape("e, f", constraints=["4*e == f"])
    assert (8 * e + 1, 2 * e * e * 2) == (2 * f + 1, e * f)
    assert 2 * e != f
    sizes = export.symbolic_shape("m, n", constraints=["m * n == 12"])
    flat = export.export(tx.jit(lambda x: x.reshape(-1)))(tx.ShapeDtypeStruct(sizes, "float32"))
    assert flat.out_avals[0].shape == (12,)
    assert flat.call(np.ones((3, 4), np.float32)).shape == (12,)
    with pytest.raises(ArgumentError, match=r"do not obey the constraint m\*n - 12 == 0"):
        flat.call(np.ones((3, 5), np.float32))
    for text, said in (
        ("a + b == c", "must be a product"),
        ("3 == a", "must be a product"),
        ("a*b == 2*a*b*c", "a part of"),
    ):
        with pytest.raises(ArgumentError, match=said):
            export.symbolic_shape("a, b, c", constraints=[text])


def test_constraints_decide_and_are_checked_at_calls() -> None:
    f = tx.jit(lambda x: x.reshape(-1, 8, 4)[:2] if x.shape[0] >= 16 else x)
    exported = export.export(f)(batch(constraints=["b >= 16", "mod(b, 8) == 0"]))
    again = export.deserialize(exported.serialize())
    close(again.call(rows(24)), f(rows(24)))
    for size, said in ((8, "b - 16 >= 0"), (20, r"mod\(b, 8\) == 0")):
        with pytest.raises(ArgumentError, match=rf"b = {size}, do not obey the constraint {said}"):
            again.call(rows(size))


# --- dimensions -------------------------------------------------------------------------------------------------------


def test_arithmetic_of_dimensions() -> None:
    b, c = export.symbolic_shape("b, c")
    assert [str(x) for x in ((b + 1) * (b - 1), 2 * b // 2, (4 * b + 2) // 4, (3 * b + 1) % 3, -b, b - b + 3)] == [
        "b^2 - 1", "b", "b", "1", "-b", "3",
    ]  # fmt: skip
    assert b + c == c + b
    assert b != c
    assert b != 7
    assert b >= 1
    assert b * c > 0
    assert len({b, b + 0, c}) == 2
    assert export.is_symbolic_dim(b)
    assert not export.is_symbolic_dim(b - b)
    assert isinstance(b, int)
    for undecided in (lambda: b > c, lambda: b <= 7, lambda: max(b, 3), lambda: bool(b - 1)):
        with pytest.raises(InconclusiveDimensionOperation):
            undecided()
    with pytest.raises(ArgumentError, match="of different scopes"):
        b + export.symbolic_shape("b")[0]


def test_dimensions_with_numbers_of_numpy() -> None:
    (b,) = export.symbolic_shape("b")
    assert [str(x) for x in (np.int64(3) * b, b + np.int32(1), np.int64(7) % b, b // np.int8(2))] == [
        "3*b", "b + 1", "mod(7, b)", "floordiv(b, 2)",
    ]  # fmt: skip
    assert b >= np.int64(1)
    f = tx.jit(lambda x: (x / np.sqrt(x.shape[0]), x * (np.float32(2) * x.shape[0]), x[-2:], x[1:-1], x[:-1]))
    for n in (2, 5):
        close(export.export(f)(batch()).call(rows(n)), f(rows(n)))


def test_dimensions_agree_with_integers() -> None:
    """Random expressions: values, and every comparison that is decided, are those for all sizes tried."""
    from tinyxla.shapes.symbolic import is_symbolic, max_dim, min_dim, size_of

    choices = python_random.Random(3)
    decided = 0
    for _ in range(60):
        scope = export.SymbolicScope(choices.choice(([], ["b >= 3"], ["a <= 2*b"], ["mod(a, 4) == 0"])))
        a, b = export.symbolic_shape("a, b", scope=scope)
        tried = [{"a": m, "b": n} for m in range(1, 13) for n in range(1, 13)]
        holds = {"b >= 3": lambda s: s["b"] >= 3, "a <= 2*b": lambda s: s["a"] <= 2 * s["b"]}
        holds["mod(a, 4) == 0"] = lambda s: s["a"] % 4 == 0
        tried = [s for s in tried if all(holds[text](s) for text in scope.texts)]
        pool: list[Any] = [(a, [s["a"] for s in tried]), (b, [s["b"] for s in tried]), (2, [2] * len(tried))]
        for _ in range(6):
            (x, xs), (y, ys) = choices.choice(pool), choices.choice(pool)
            symbolic, usual = choices.choice(
                [
                    *[(f, f) for f in (operator.add, operator.sub, operator.mul)],
                    *[(f, f) for f in (lambda p, q: p // 3, lambda p, q: p % 4)],
                    (max_dim, max),
                    (min_dim, min),
                ]
            )
            z, zs = symbolic(x, y), [usual(p, q) for p, q in zip(xs, ys, strict=True)]
            assert [size_of(z, s) for s in tried] == zs
            pool.append((z, zs))
        for x, xs in pool:
            if not is_symbolic(x):
                continue
            (again,) = export.symbolic_shape(str(x), scope=scope)
            assert [size_of(again, s) for s in tried] == xs
            for y, ys in pool[:3]:
                try:
                    found = x >= y
                except InconclusiveDimensionOperation:
                    continue
                decided += 1
                assert {p >= q for p, q in zip(xs, ys, strict=True)} == {found}
    assert decided > 100


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("b,, c", "a dimension is wanted"),
        ("b + ", "the end"),
        ("(b", "wanted"),
        ("b / 2", "'/'"),
        ("f(b, 2)", "no function 'f'"),
        ("floordiv(b, 0)", "divides by zero"),
        ("b^-1", "power"),
        ("b^1000", "power"),
        ("9" * 5000, "digits"),
        ("_", "needs the shape"),
        ("..., b", "must come last"),
        ("(" * 200 + "b" + ")" * 200, "nested"),
    ],
)
def test_bad_texts_of_shapes_are_refused(text: str, said: str) -> None:
    with pytest.raises(ArgumentError, match=re.escape(said)):
        export.symbolic_shape(text)


def test_shapes_like_others() -> None:
    assert str(export.symbolic_shape("b, _, ...", like=(3, 4, 5, 6))) == "(b, 4, 5, 6)"
    with pytest.raises(ArgumentError, match="2 dimensions, but the argument has 3"):
        export.symbolic_shape("b, 4", like=(3, 4, 5))
    with pytest.raises(ArgumentError, match="dimension 1 is 5, but the argument has 4"):
        export.symbolic_shape("b, 5", like=(3, 4))
    specs = export.symbolic_args_specs({"x": rows(3), "y": [np.ones(4, np.int32)]}, {"x": "b, ...", "y": None})
    assert str(specs["x"].shape) == "(b, 4)"
    assert specs["y"][0] == Struct((4,), "int32")


def test_constraints_that_cannot_be_read_are_refused() -> None:
    for text, said in (
        ("b > 3", "'>'"),
        ("b", "of the form"),
        ("b + 1 == 5", "left side"),
        ("b == b + 1", "part of"),
    ):
        with pytest.raises(ArgumentError, match=re.escape(said)):
            export.SymbolicScope([text])
    with pytest.raises(ArgumentError, match="must be a list"):
        export.SymbolicScope("b >= 3")
    with pytest.raises(ArgumentError, match="part of"):
        export.SymbolicScope(["a == b + 1", "c == a", "b == c"])
    with pytest.raises(ArgumentError, match="at most 100"):
        export.SymbolicScope([f"b{k} >= a{k} + 1" for k in range(200)])


def test_what_is_traced_for_symbolic_sizes_is_not_compiled() -> None:
    lowered = tx.jit(lambda x: tnp.sin(x) + 1).lower(batch())
    assert "f32[b,4]" in lowered.as_text()
    with pytest.raises(InconclusiveDimensionOperation):
        lowered.compile()
    with pytest.raises((InconclusiveDimensionOperation, ArgumentError)):
        tx.jit(tnp.sin)(batch())


def test_shapes_are_inferred_for_symbolic_sizes() -> None:
    found = tx.eval_shape(lambda x: tnp.concatenate([x, x]).reshape(-1), batch())
    assert str(found.shape) == "(8*b,)"


# --- exported functions -----------------------------------------------------------------------------------------------


def test_fields_of_an_exported_function() -> None:
    def scaled(x: Any, *, by: Any) -> dict[str, Any]:
        return {"y": x * by, "n": (x > 0).sum()}

    exported = export.export(tx.jit(scaled), platforms=["cpu", "tpu"])(batch(), by=2.0)
    assert exported.fun_name == "scaled"
    assert exported.platforms == ("cpu", "tpu")
    assert exported.nr_devices == 1
    assert [str(t.shape) for t in exported.in_avals] == ["(b, 4)", "()"]
    assert [t.dtype.name for t in exported.out_avals] == ["int32", "float32"]
    assert exported.module_kept_var_idx == (0, 1)
    minimum, maximum = (
        export.minimum_supported_calling_convention_version,
        export.maximum_supported_calling_convention_version,
    )
    assert minimum <= exported.calling_convention_version <= maximum
    again = export.deserialize(exported.serialize())
    for name in ("fun_name", "in_tree", "out_tree", "platforms", "module_kept_var_idx", "calling_convention_version"):
        assert getattr(again, name) == getattr(exported, name)
    assert exported.in_avals[1].weak_type
    assert str(again.in_avals) == str(tuple(t.update(weak_type=False) for t in exported.in_avals))
    assert "%arg1: tensor<?x4xf32>, %arg2: tensor<f32>)" in again.mlir_module()  # %arg0 is the platform's number
    assert exported.mlir_module_serialized.startswith(b"ML\xefR")


def test_static_arguments_and_keys() -> None:
    f = tx.jit(lambda n, key, x: random.normal(key, (n,)) + x, static_argnums=0)
    exported = export.export(f)(3, random.key(0), 1.0)
    assert [t.dtype.name for t in exported.in_avals] == ["key<fry>", "float32"]
    close(export.deserialize(exported.serialize()).call(random.key(7), 2.0), f(3, random.key(7), 2.0))
    keys = export.export(tx.jit(lambda key: random.split(key, 2)))(random.key(0))
    found = export.deserialize(keys.serialize()).call(random.key(3))
    close(random.key_data(found), random.key_data(random.split(random.key(3), 2)))


def test_functions_of_one_name_that_call_each_other_are_several_functions() -> None:
    def named_step(function: Any) -> Any:
        function.__name__ = "step"
        return tx.jit(function)

    inner = named_step(lambda x: 2 * x)
    outer = named_step(lambda x, y: inner(x) - inner(inner(y)))
    x = np.arange(3, dtype=np.float32)
    exported = export.export(tx.jit(lambda x: outer(x, x + 1)))(x)
    close(export.deserialize(exported.serialize()).call(x), outer(x, x + 1))


def test_calls_are_transformed() -> None:
    like = tx.tree.map(lambda w: Struct(w.shape, w.dtype), parameters())
    exported = export.deserialize(export.export(tx.jit(loss))(like, batch()).serialize())
    close(tx.grad(exported.call)(parameters(), rows(5)), tx.grad(loss)(parameters(), rows(5)))
    many = np.stack([rows(3), rows(3) + 1])
    close(tx.vmap(exported.call, (None, 0))(parameters(), many), tx.vmap(loss, (None, 0))(parameters(), many))
    close(tx.jit(lambda x: exported.call(parameters(), 2 * x))(rows(6)), loss(parameters(), 2 * rows(6)))
    hessian = tx.hessian(lambda x: exported.call(parameters(), x))(rows(2))
    np.testing.assert_allclose(hessian, tx.hessian(lambda x: loss(parameters(), x))(rows(2)), atol=1e-5)


@pytest.mark.parametrize("name", ["product", "statistics", "scan", "softmax", "indexing", "cumulative sum"])
def test_exported_derivative(name: str) -> None:
    function = PROGRAMS.get(name, lambda x: tnp.cumsum(x, 0))
    f = tx.jit(lambda x: [y for y in tx.tree.leaves(function(x)) if y.dtype == np.float32])
    exported = export.deserialize(export.export(f)(batch()).serialize(vjp_order=2))
    x = rows(3)
    results, pull = tx.vjp(f, x)
    cotangents = [np.cos(y) for y in leaves(results)]
    assert exported.has_vjp()
    close(exported.vjp().call(x, *cotangents), pull(list(map(tnp.asarray, cotangents))))
    assert exported.vjp().has_vjp()
    assert not exported.vjp().vjp().has_vjp()


@pytest.mark.parametrize("name", PROGRAMS)
def test_deserialized_functions_are_exported_again_for_all_sizes(name: str) -> None:
    compiled = tx.jit(PROGRAMS[name])
    once = export.deserialize(export.export(compiled)(batch()).serialize())
    twice = export.export(tx.jit(lambda x: once.call(2 * x)))(batch("c, 4"))
    for b in (2, 5):
        close(twice.call(rows(b)), compiled(2 * rows(b)))


def test_constraints_of_a_function_that_is_called_must_hold() -> None:
    once = export.deserialize(export.export(tx.jit(tnp.sin))(batch(constraints=["b >= 4"])).serialize())
    again = export.export(tx.jit(once.call))
    close(again(batch("c, 4", constraints=["c >= 5"])).call(rows(5)), tnp.sin(rows(5)))
    with pytest.raises(InconclusiveDimensionOperation, match="c"):
        again(batch("c, 4"))


def test_derivative_by_integers_is_float0() -> None:
    f = tx.jit(lambda i, x: (i + 1, x * i))
    exported = export.export(f)(Struct((3,), "int32"), Struct((3,), "float32"))
    by = export.deserialize(exported.serialize(1)).vjp()
    i, x = np.arange(3, dtype=np.int32), np.ones(3, np.float32)
    found = by.call(i, x, np.zeros(3, tx.dtypes.float0), np.full(3, 2, np.float32))
    assert found[0].dtype == tx.dtypes.float0
    np.testing.assert_array_equal(found[1], 2.0 * i)


def test_derivative_that_was_not_written_is_an_error() -> None:
    again = export.deserialize(export.export(tx.jit(tnp.sin))(1.0).serialize())
    assert not again.has_vjp()
    with pytest.raises(ArgumentError, match="vjp_order=1"):
        again.vjp()
    assert float(tx.grad(again.call)(1.0)) == pytest.approx(np.cos(1.0))


def test_wrong_calls_are_refused() -> None:
    exported = export.export(tx.jit(lambda p, x: p["w"] * x))({"w": Struct((4,), "float32")}, batch())
    w = {"w": np.ones(4, np.float32)}
    for arguments, said in (
        ((w,), r"arguments of the structure"),
        (([1.0], rows(2)), r"arguments of the structure"),
        ((w, rows(2)[:, :3]), r"argument 1 must be f32\[b,4\], but is f32\[2,3\]"),
        ((w, rows(2)[0]), r"argument 1 must be f32\[b,4\], but is f32\[4\]"),
        ((w, rows(2).astype(np.int32)), r"argument 1 must be f32\[b,4\], but is s32\[2,4\]"),
        ((w, "text"), r"argument 1 is 'text' of type str"),
        (({"w": random.key(0)}, rows(2)), r"argument 0\['w'\] must be"),
        ((w, rows(2)[:0]), r"dimension 0 is 0, which does not fit b: b = 0 is 0, which must be positive"),
    ):
        with pytest.raises(ArgumentError, match=said):
            exported.call(*arguments)


def test_platform_dependent_functions_are_those_of_the_platforms_of_the_program() -> None:
    f = tx.jit(lambda x: tx.jit(lambda y: lax.platform_dependent(y, tpu=tnp.cos, default=tnp.sin))(x))
    assert [x in export.export(f)(1.0).mlir_module() for x in ("sine", "cosine")] == [True, False]
    for platforms in ("tpu", ["tpu"]):
        assert "stablehlo.cosine" in export.export(f, platforms=platforms)(1.0).mlir_module()
        assert "stablehlo.negate" in export.export(f, platforms=platforms)(1.0).vjp().mlir_module()  # of -sin
    assert "stablehlo.sine" in export.export(f, platforms=["cpu", "cuda"])(1.0).mlir_module()
    derivative = export.export(f, platforms=["cpu", "tpu"])(1.0).vjp()
    close(derivative.call(1.0, 2.0), (2 * np.cos(np.float32(1)),))
    close(stablehlo.Program(derivative.module).main(np.int32(1), 1.0, 2.0), -2 * np.sin(np.float32(1)))
    assert float(f(0.0)) == 0


def test_program_for_platforms_with_different_functions_takes_the_number_of_the_platform() -> None:
    inner = tx.jit(
        lambda x, n: n * lax.platform_dependent(x, tpu=tnp.cos, rocm=tnp.cos, default=tnp.sin), static_argnums=1
    )
    f = tx.jit(lambda d, *, n: {"y": inner(d["x"], n) + inner(d["x"], n)}, static_argnames="n")
    made = export.export(f, platforms=["tpu", "cpu", "cuda", "rocm"])({"x": np.zeros(2, np.float32)}, n=2)
    assert [made.mlir_module().count(f"stablehlo.{x}") for x in ("sine", "cosine", "case")] == [1, 1, 1]
    assert "_platform_index" in made.mlir_module()
    exported = export.deserialize(made.serialize())
    x = {"x": np.ones(2, np.float32)}
    for function in (exported.call, tx.jit(exported.call), export.export(tx.jit(exported.call))(x).call):
        close(function(x), f(x, n=2))
    again = export.export(tx.jit(exported.call), platforms=["rocm", "cpu"])(x)
    assert "_platform_index" in again.mlir_module()
    close(again.call(x), f(x, n=2))
    for number, expected in enumerate((np.cos, np.sin)):
        found = stablehlo.Program(again.module).main(np.int32(number), x["x"])
        np.testing.assert_allclose(found, 4 * expected(x["x"]), rtol=1e-6)
    with pytest.raises(PlatformError, match=r"exported for the platforms .*, but is part of a program for metal"):
        export.export(tx.jit(exported.call), platforms=["metal"])(x)


def test_ragged_dots_are_exported_as_dots_over_all_groups() -> None:
    x, y = np.arange(12, dtype=np.float32).reshape(4, 3), np.arange(12, dtype=np.float32).reshape(2, 3, 2)
    f = tx.jit(lambda x, y, sizes: lax.cond(sizes[0] > 0, lambda: lax.ragged_dot(x, y, sizes), lambda: x[:, :2]))
    sizes = np.array([1, 3], np.int32)
    exported = export.deserialize(export.export(f)(x, y, sizes).serialize())
    close(exported.call(x, y, sizes), f(x, y, sizes))
    assert "dot_general" in f.lower(x, y, sizes).as_text("stablehlo")


def test_version_of_the_calling_convention_is_an_option() -> None:
    with setting_without_effect("export_calling_convention_version", 9):
        assert export.export(tx.jit(tnp.sin))(1.0).calling_convention_version == 9
    with (
        setting_without_effect("export_calling_convention_version", 8),
        pytest.raises(AttributeValueError, match="must be from 9 to 10, but is 8"),
    ):
        export.export(tx.jit(tnp.sin))(1.0)


@contextlib.contextmanager
def setting_without_effect(option: str, value: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tx.config.update(option, value)
        try:
            yield
        finally:
            tx.config.update(option, None)


def test_images_of_symbolic_sizes_are_resized() -> None:
    for f in (
        lambda x: tx.image.resize(x, (5, 7), "nearest"),
        lambda x: tx.image.resize(x, (2 * x.shape[0], 3), "nearest"),
    ):
        exported = export.deserialize(export.export(tx.jit(f))(batch()).serialize())
        for b in (1, 3, 8):
            close(exported.call(rows(b)), f(rows(b)))


@pytest.mark.parametrize("stride", [1, 3])
def test_windows_move_over_symbolic_sizes(stride: int) -> None:
    f = tx.jit(lambda x: lax.reduce_window(x, 0.0, lax.add, (3, 2), (stride, 1), "VALID"))
    exported = export.deserialize(export.export(f)(batch()).serialize())
    for b in (1, 2, 3, 8):
        close(exported.call(rows(b)), f(rows(b)))


def test_wrong_exports_are_refused() -> None:
    with pytest.raises(ArgumentError, match=r"export\(jit\(f\)\)"):
        export.export(lambda x: tnp.sin(x))  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"names such as 'cpu' or 'tpu', at least one, but got \[\]"):
        export.export(tx.jit(tnp.sin), platforms=[])
    with pytest.raises(ArgumentError, match="no form of the operation"):
        export.export(tx.jit(lambda x: tx.pure_callback(lambda v: v, x, x)))(1.0)
    with pytest.raises(PlatformError, match="exported for the platforms cuda"):
        export.export(tx.jit(tnp.sin), platforms=["cuda"])(1.0).call(1.0)
    checks = [export.DisabledSafetyCheck.platform()]
    assert float(export.export(tx.jit(tnp.sin), platforms=["cuda"], disabled_checks=checks)(1.0).call(0.0)) == 0


# --- containers -------------------------------------------------------------------------------------------------------


class Point(NamedTuple):
    x: Any
    y: Any


class Unknown(NamedTuple):
    x: Any


@tx.tree_util.register_pytree_node_class
class Scaled:
    def __init__(self, value: Any, by: float) -> None:
        self.value, self.by = value, by

    def tree_flatten(self) -> Any:
        return (self.value,), self.by

    @classmethod
    def tree_unflatten(cls, by: float, children: Any) -> Scaled:
        return cls(children[0], by)


def test_registered_containers() -> None:
    export.register_namedtuple_serialization(Point, serialized_name="tests.Point")
    export.register_pytree_node_serialization(
        Scaled,
        serialized_name="tests.Scaled",
        serialize_auxdata=lambda by: str(by).encode(),
        deserialize_auxdata=lambda data: float(data),
    )
    f = tx.jit(lambda p, s: (Point(p.y, s.value * s.by), [None, {"a": p.x}]))
    given = Point(1.0, 2.0), Scaled(3.0, 4.0)
    found = export.deserialize(export.export(f)(*given).serialize()).call(*given)
    assert isinstance(found[0], Point)
    close(found, f(*given))
    with pytest.raises(ArgumentError, match="arguments of the structure"):
        export.export(f)(*given).call(given[0], Scaled(3.0, 5.0))
    with pytest.raises(ArgumentError, match="registered already"):
        export.register_namedtuple_serialization(Point, serialized_name="tests.Other")
    with pytest.raises(ArgumentError, match="register_namedtuple_serialization"):
        export.export(tx.jit(lambda u: u.x))(Unknown(1.0)).serialize()


def test_ordered_dicts_keep_their_order() -> None:
    given = OrderedDict([("b", tnp.ones(2)), ("a", tnp.zeros(3)), (3, tnp.ones(()))])
    exported = export.export(tx.jit(lambda x: (x, {"c": x["b"]})))(given)
    again = export.deserialize(exported.serialize())
    assert (again.in_tree, again.out_tree) == (exported.in_tree, exported.out_tree)
    found = again.call(given)[0]
    assert isinstance(found, OrderedDict)
    assert list(found) == ["b", "a", 3]
    for kind in (dict, OrderedDict):
        message = f"keys of {kind.__name__}s of an exported function are strings or integers, but one is \\(1, 2\\)"
        with pytest.raises(ArgumentError, match=message):
            export.export(tx.jit(lambda x: x))(kind([((1, 2), tnp.ones(2))])).serialize()


def test_functions_of_the_library_are_exported_without_jit() -> None:
    x = np.arange(4, dtype=np.float32)
    exported = export.deserialize(export.export(tnp.sin)(x).serialize())
    assert exported.fun_name == "sin"
    close(exported.call(x), np.sin(x))
    with pytest.raises(ArgumentError, match="takes a compiled function"):
        export.export(lambda x: x)


# --- bytes ------------------------------------------------------------------------------------------------------------


def test_damaged_bytes_are_refused() -> None:
    exported = export.export(tx.jit(lambda x: x @ x.T))(batch())
    data = bytes(exported.serialize(vjp_order=1))
    choices = python_random.Random(1)
    for _ in range(60):
        with pytest.raises(BytecodeError):
            export.deserialize(data[: choices.randrange(len(data))])
    for _ in range(200):
        at = choices.randrange(len(data))
        flipped = bytes([*data[:at], data[at] ^ (1 << choices.randrange(8)), *data[at + 1 :]])
        with pytest.raises(BytecodeError):
            export.deserialize(flipped)
    for other in (b"", b"text", data + b"\0"):
        with pytest.raises(BytecodeError):
            export.deserialize(other)
    with pytest.raises(ArgumentError, match="takes bytes"):
        export.deserialize("text")  # type: ignore[arg-type]


def test_bytes_that_are_changed_on_purpose_are_refused() -> None:
    """With a right checksum: the header and the program are not trusted."""
    import hashlib

    data = bytes(export.export(tx.jit(lambda x: x @ x.T))(batch()).serialize())
    body = data[:-32]
    choices = python_random.Random(2)
    refused = 0
    for _ in range(200):
        at = choices.randrange(len(body))
        changed = bytes([*body[:at], choices.randrange(256), *body[at + 1 :]])
        try:
            export.deserialize(changed + hashlib.sha256(changed).digest()).call(rows(2))
        except TinyxlaError:
            refused += 1
    assert refused > 100


# --- JAX and XLA ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PROGRAMS)
def test_xla_runs_it_for_all_sizes(name: str) -> None:
    jax_programs = pytest.importorskip("tests.support.exported_to_jax")
    compiled = tx.jit(PROGRAMS[name])
    exported = export.export(compiled)(batch())
    in_jax = jax_programs.exported_of(exported)
    for b in (3, 5):
        found = in_jax.call(rows(b))
        for x, y in zip(found, leaves(compiled(rows(b))), strict=True):
            assert x.shape == y.shape
            np.testing.assert_allclose(np.asarray(x), y, rtol=2e-4, atol=2e-5)


def test_xla_trains_with_a_symbolic_batch() -> None:
    jax_programs = pytest.importorskip("tests.support.exported_to_jax")
    like = tx.tree.map(lambda w: Struct(w.shape, w.dtype), parameters())
    exported = export.export(tx.jit(train))(like, batch())
    in_jax = jax_programs.exported_of(exported)
    for b in (2, 9):
        found = in_jax.call(*tx.tree.leaves(parameters()), rows(b))
        for x, y in zip(found, leaves(train(parameters(), rows(b))), strict=True):
            np.testing.assert_allclose(np.asarray(x), y, rtol=1e-5, atol=1e-6)


def test_xla_checks_the_sizes() -> None:
    jax_programs = pytest.importorskip("tests.support.exported_to_jax")
    exported = export.export(tx.jit(lambda x: x + 1))(batch("2*b, 4", constraints=["b >= 2"]))
    text = exported.mlir_module()
    assert 'call_target_name = "shape_assertion"' in text
    assert jax_programs.exported_of(exported).call(rows(6))[0].shape == (6, 4)


JAX_PROGRAMS = {
    "network": "lambda x: jax.nn.softmax(jnp.tanh(x @ x.T))",
    "scan": "lambda x: jax.lax.scan(lambda c, a: (c + a, c * a), jnp.zeros(4), x)",
    "statistics": "lambda x: {'m': x.mean(0), 'n': x.argmax(0), 'k': [x.shape[0] * x, None]}",
    "gradient": "jax.grad(lambda x: (jnp.sin(x) ** 2).mean())",
    "sort": "lambda x: (jnp.sort(x, 0), jnp.cumsum(x, 0))",
}


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("name", JAX_PROGRAMS)
def test_artifacts_of_jax_are_read(name: str, symbolic: bool) -> None:
    jax, _ = pytest.importorskip("jax"), pytest.importorskip("flatbuffers")
    function = jax.jit(eval(JAX_PROGRAMS[name], {"jax": jax, "jnp": jax.numpy}))
    shape = jax.export.symbolic_shape("b, 4") if symbolic else (3, 4)
    made = jax.export.export(function)(jax.ShapeDtypeStruct(shape, np.float32))
    read = export.deserialize(made.serialize(vjp_order=1 if name == "network" else 0))
    assert str([t.shape for t in read.in_avals]) == str([t.shape for t in made.in_avals])
    for b in (3, 6) if symbolic else (3,):
        found, expected = read.call(rows(b)), function(rows(b))
        assert str(tx.tree.structure(found)).replace("PyTreeSpec", "") == str(jax.tree.structure(expected)).replace(
            "PyTreeDef", ""
        )
        for x, y in zip(leaves(found), map(np.asarray, jax.tree.leaves(expected)), strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)
    if name == "network":
        g = np.ones((3, 3), np.float32)
        (expected,) = jax.vjp(function, rows(3))[1](g)
        np.testing.assert_allclose(read.vjp().call(rows(3), g)[0], expected, atol=1e-6)


# Of `lax` and a batch of matrices; the absolute values where signs and phases are free.
FACTORIZATIONS = {
    "lu": "lambda lax, x: lax.linalg.lu(x)",
    "lu of wide matrices": "lambda lax, x: lax.linalg.lu(x[:, :2])",
    "qr": "lambda lax, x: lax.linalg.qr(x[..., :2], full_matrices=False)",
    "full qr": "lambda lax, x: lax.linalg.qr(x[..., :2])",
    "qr of wide matrices": "lambda lax, x: lax.linalg.qr(x[:, :2])",
    "householder": "lambda lax, x: lax.linalg.householder_product(x, x[:, 0] / 2)",
    "eigh": "lambda lax, x: [abs(y) for y in lax.linalg.eigh(x)]",
    "eigh of the upper triangle": "lambda lax, x: lax.linalg.eigh(x, lower=False, symmetrize_input=False)[1]",
    "svd": "lambda lax, x: [abs(y) for y in lax.linalg.svd(x[..., :2], full_matrices=False)]",
    "full svd": "lambda lax, x: [abs(y) for y in lax.linalg.svd(x[..., :2, :])[::2]][1][..., :2, :]",
    "singular values": "lambda lax, x: lax.linalg.svd(x, compute_uv=False)",
    "eig": "lambda lax, x: [abs(y) for y in lax.linalg.eig(x)]",
    "right eigenvectors": "lambda lax, x: abs(lax.linalg.eig(x, compute_left_eigenvectors=False)[1])",
    "schur": "lambda lax, x: lax.linalg.schur(x)",
    "hessenberg": "lambda lax, x: lax.linalg.hessenberg(x)",
    "tridiagonal": "lambda lax, x: lax.linalg.tridiagonal(x)",
    "tridiagonal solve": "lambda lax, x: lax.linalg.tridiagonal_solve(x[:, 0], x[:, 1] + 4, x[:, 2], x)",
    "no elements": "lambda lax, x: (*lax.linalg.qr(x[:, :0]), *lax.linalg.svd(x[..., :0]), lax.linalg.lu(x[:0])[2])",
}


@pytest.mark.sample(every=8)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
@pytest.mark.parametrize("name", FACTORIZATIONS)
def test_factorizations_are_exchanged_with_jax(name: str, dtype: Any) -> None:
    jax, _ = pytest.importorskip("jax"), pytest.importorskip("flatbuffers")
    random = np.random.default_rng(0)
    x = (
        random.normal(size=(2, 3, 3)) + (1j * random.normal(size=(2, 3, 3)) if np.dtype(dtype).kind == "c" else 0)
    ).astype(dtype)
    function = eval(FACTORIZATIONS[name])
    with jax.enable_x64(True), tx.enable_x64(True):
        in_jax = jax.jit(lambda x: function(jax.lax, x))
        expected = jax.tree.leaves(in_jax(x))
        here = export.export(tx.jit(lambda x: function(lax, x)))(x).serialize()
        there = jax.export.export(in_jax)(x).serialize()
        several = [jax.tree.leaves(jax.export.deserialize(here).call(x))]
        several += [leaves(export.deserialize(data).call(x)) for data in (here, there)]
    rtol, atol = (1e-3, 1e-4) if np.dtype(dtype) in (np.float32, np.complex64) else (1e-7, 1e-9)
    for found in several:
        for y, z in zip(found, expected, strict=True):
            assert y.dtype == z.dtype
            np.testing.assert_allclose(y, z, rtol=rtol, atol=atol)


SYMBOLIC_FACTORIZATIONS = {
    "lu": "lambda lax, x: lax.linalg.lu(x)",
    "lu of wide matrices": "lambda lax, x: lax.linalg.lu(x[:, :2])",
    "qr": "lambda lax, x: lax.linalg.qr(x)",
    "eigh": "lambda lax, x: abs(lax.linalg.eigh(x)[0])",
    "singular values": "lambda lax, x: lax.linalg.svd(x, compute_uv=False)",
    "schur": "lambda lax, x: lax.linalg.schur(x)",
    "determinant": "lambda lax, x: lax.linalg.lu(x)[0].sum()",
}


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("name", SYMBOLIC_FACTORIZATIONS)
def test_factorizations_of_symbolic_sizes_are_exchanged_with_jax(name: str) -> None:
    jax, _ = pytest.importorskip("jax"), pytest.importorskip("flatbuffers")
    x = np.random.default_rng(0).normal(size=(2, 3, 3)).astype(np.float32)
    function = eval(SYMBOLIC_FACTORIZATIONS[name])
    sizes = "b, 3, 3" if "wide" in name else "b, n, n"
    here = export.export(tx.jit(lambda x: function(lax, x)))(
        Struct(export.symbolic_shape(sizes), "float32")
    ).serialize()
    in_jax = jax.jit(lambda x: function(jax.lax, x))
    there = jax.export.export(in_jax)(jax.ShapeDtypeStruct(jax.export.symbolic_shape(sizes), x.dtype)).serialize()
    several = [jax.tree.leaves(jax.export.deserialize(here).call(x))]
    several += [leaves(export.deserialize(data).call(x)) for data in (here, there)]
    for found in several:
        for y, z in zip(found, jax.tree.leaves(in_jax(x)), strict=True):
            np.testing.assert_allclose(y, z, rtol=1e-3, atol=1e-4)


def test_programs_with_lapack_are_for_cpus() -> None:
    for platforms in (["tpu"], ["cpu", "cuda"]):
        with pytest.raises(ArgumentError, match="'lapack_sgetrf_ffi', which there is on CPUs alone"):
            export.export(tx.jit(lax.linalg.lu), platforms=platforms)(np.eye(2, dtype=np.float32))
    pivoted = tx.jit(lambda x: lax.linalg.qr(x, pivoting=True))
    with pytest.raises(ArgumentError, match=r"DisabledSafetyCheck.custom_call\('lapack_sgeqp3_ffi'\)"):
        export.export(pivoted)(np.eye(2, dtype=np.float32))


def test_jax_reads_derivatives_and_containers() -> None:
    jax, _ = pytest.importorskip("jax"), pytest.importorskip("flatbuffers")
    made = export.export(tx.jit(lambda d: {"y": [d["x"] ** 3 * d["n"], None]}), platforms=["cpu", "tpu"])
    x, n = np.float32(2), np.int32(3)
    data = made({"x": x, "n": n}).serialize(vjp_order=2)
    function = jax.export.deserialize(data).call
    assert str(function({"x": x, "n": n})) == "{'y': [Array(24., dtype=float32), None]}"
    slope = jax.grad(lambda x: function({"x": x, "n": n})["y"][0])
    assert (float(slope(x)), float(jax.grad(slope)(x))) == (36, 36)
    again = export.deserialize(data)
    found = again.vjp().vjp().call(n, x, np.float32(1), np.zeros((), bool), np.float32(1))
    assert float(found[1]) == 36


def test_jax_reads_results_of_the_type_float0() -> None:
    jax, _ = pytest.importorskip("jax"), pytest.importorskip("flatbuffers")
    x, n = np.float32(2), np.int32(3)
    exported = export.export(tx.jit(lambda x, n: tx.vjp(lambda x, n: x * n, x, n)[1](x)))(x, n)
    for found in (exported.call(x, n), jax.export.deserialize(exported.serialize()).call(x, n)):
        assert float(found[0]) == 6
        assert found[1].dtype == tx.dtypes.float0


def test_singular_vectors_that_jax_does_not_compute_have_any_shape() -> None:
    jax, _ = pytest.importorskip("jax"), pytest.importorskip("flatbuffers")
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    f = jax.jit(lambda x: jax.lax.linalg.svd(x, full_matrices=False, compute_uv=False))
    found = export.deserialize(jax.export.export(f)(x).serialize()).call(x)
    np.testing.assert_allclose(found, np.linalg.svd(x)[1], rtol=1e-5)


def test_results_are_weakly_typed_as_the_functions_are() -> None:
    exported = export.export(tx.jit(lambda x, y: (x * 2, y, x + y)))(1.0, np.float32(1))
    results = exported.call(1.0, np.float32(1))
    assert [x.weak_type for x in results] == [t.weak_type for t in exported.out_avals] == [True, False, False]
    assert [x.weak_type for x in export.deserialize(exported.serialize()).call(1.0, 1.0)] == [False] * 3


@pytest.mark.thorough
def test_damaged_artifacts_of_jax_are_refused() -> None:
    jax, _ = pytest.importorskip("jax"), pytest.importorskip("flatbuffers")
    made = jax.export.export(jax.jit(lambda x: x @ x.T))(
        jax.ShapeDtypeStruct(jax.export.symbolic_shape("b, 4"), np.float32)
    )
    data = bytes(made.serialize(vjp_order=1))
    choices = python_random.Random(4)
    for k in range(150):
        at = choices.randrange(len(data))
        changed = data[:at] if k % 2 else bytes([*data[:at], choices.randrange(256), *data[at + 1 :]])
        with contextlib.suppress(TinyxlaError):  # an error of another class would be one of the library
            export.deserialize(changed).call(rows(2))


def test_functions_of_lax_take_symbolic_sizes() -> None:
    f = tx.jit(lambda x: (lax.iota(np.int32, x.shape[0]), lax.full(x.shape, 2.0), lax.broadcast(x, (x.shape[0],))))
    close(export.export(f)(batch()).call(rows(3)), f(rows(3)))
