"""Programs that JAX writes as StableHLO give JAX's results, in both forms of the text, eagerly and transformed."""

from __future__ import annotations

import contextlib
import math
from typing import Any

import numpy as np
import pytest

import tinyxla as tx
from tinyxla import stablehlo
from tinyxla.errors import ArgumentError, MlirSyntaxError, TinyxlaError

jax = pytest.importorskip("jax")
jnp, lax = jax.numpy, jax.lax

X = np.linspace(0.1, 0.9, 16, dtype=np.float32).reshape(4, 4)
V = X[0]
INDICES = np.array([2, 0, 3, 1], np.int32)
Z = (X + 1j * X.T).astype(np.complex64)
SPD = X @ X.T + 4 * np.eye(4, dtype=np.float32)
SQUARE = X + np.eye(4, dtype=np.float32)

UNARY = """abs acos acosh asin asinh atan atanh bessel_i0e bessel_i1e cbrt ceil cos cosh digamma erf erf_inv erfc exp
    exp2 expm1 floor is_finite lgamma log log1p logistic neg reciprocal round rsqrt sign sin sinh sqrt square tan
    tanh""".split()
BINARY = "add atan2 div max min mul nextafter pow rem sub eq ne lt le gt ge igamma igammac zeta".split()

# ruff: noqa: E501
# A function of `jnp` and `lax`, and its arguments.
PROGRAMS: dict[str, tuple[str, tuple[Any, ...]]] = {
    **{name: (f"lax.{name}", (X + (1 if name == "acosh" else 0),)) for name in UNARY},
    **{name: (f"lax.{name}", (X, X.T)) for name in BINARY},
    "bits": ("lambda i: (i & 3, i | 4, i ^ 1, ~i, i << 1, i >> 1, lax.population_count(i), lax.clz(i))", (INDICES,)),
    "betainc": ("lax.betainc", (X, X, X)),
    "clamp": ("lambda x: lax.clamp(0.2, x, 0.5)", (X,)),
    "complex": ("lambda z: (lax.real(z), lax.conj(z), lax.abs(z), z * z, jnp.exp(z))", (Z,)),
    "conversions": ("lambda x: [x.astype(t) for t in ('int8', 'bool', 'float16', 'bfloat16', 'float8_e4m3fn')]", (X,)),
    "bitcasts": ("lambda x: (lax.bitcast_convert_type(x, 'int32'), lax.reduce_precision(x, 5, 10))", (X,)),
    "movement": ("lambda x: (x.T, x[::-1], x[1:, ::2], jnp.pad(x, 1), jnp.stack([x, x]), x.reshape(2, 8))", (X,)),
    "dynamic slices": ("lambda x, i: lax.dynamic_update_slice(x, lax.dynamic_slice(x, i[:2], (2, 2)), i[2:])", (X, INDICES)),
    "interior padding": ("lambda x: lax.pad(x, 0.0, [(1, 2, 0), (-1, 0, 1)])", (X,)),
    "contractions": ("lambda x: (x @ x, jnp.einsum('ij,kj,kl->il', x, x, x), jnp.dot(x, x, precision='highest'))", (X,)),
    "batched product": ("lambda x: lax.dot_general(x[None], x[None], (((2,), (1,)), ((0,), (0,))))", (X,)),
    "indexing": ("lambda x, i: (x[i], x[i, i], x.at[i].add(1.0), x.at[i, i].set(2.0), x.at[i].mul(3.0))", (X, INDICES)),
    "reductions": ("lambda x: (x.sum(), x.max(0), x.prod(1), (x > 0.5).all(), x.argmax(1), x.var(0), x.mean())", (X,)),
    "cumulative": ("lambda x: (jnp.cumsum(x, 0), lax.cummax(x, 1), lax.cumlogsumexp(x), jnp.cumprod(x))", (X,)),
    "sorts": ("lambda x: (jnp.sort(x), jnp.argsort(-x), lax.sort((x, -x), num_keys=2), lax.top_k(x, 2))", (X,)),
    "windows": ("lambda x: (lax.reduce_window(x, -jnp.inf, lax.max, (2, 2), (1, 2), 'SAME'),)", (X,)),
    "gradient of a window": (
        "jax.grad(lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (2, 2), (1, 1), 'VALID').sum())",
        (X,),
    ),
    "convolution": (
        "jax.value_and_grad(lambda x: (lax.conv_general_dilated(x[None, None], x[None, None, :2, :3], (1, 2), 'SAME', "
        "rhs_dilation=(2, 1)) ** 2).sum())",
        (X,),
    ),
    "transposed convolution": ("lambda x: lax.conv_transpose(x[None, :, :, None], x[:2, :2, None, None], (2, 2), 'SAME')", (X,)),
    "fft": ("lambda x, z: (jnp.fft.fft(z), jnp.fft.rfft2(x), jnp.fft.irfft(z))", (X, Z)),
    "cholesky": ("jnp.linalg.cholesky", (SPD,)),
    "triangular solve": ("lambda a, b: lax.linalg.triangular_solve(a, b, left_side=True, lower=True, transpose_a=True)", (SPD, X)),
    "lu": ("lambda x: (jnp.linalg.solve(x, x.T), jnp.linalg.det(x), jnp.linalg.inv(x))", (SQUARE,)),
    "qr": ("lambda x: jnp.linalg.qr(x)", (SQUARE,)),
    "svd": ("lambda x: jnp.linalg.svd(x, compute_uv=False)", (SQUARE,)),
    "eigh": ("jnp.linalg.eigvalsh", (SPD,)),
    "eigenvalues": ("jnp.linalg.eigvals", (SPD,)),
    "tridiagonal solve": ("lambda v, x: lax.linalg.tridiagonal_solve(v * 0, v, v * 0, x)", (V, X)),
    "control flow": (
        "lambda x: (lax.cond(x[0, 0] > 0, jnp.sin, jnp.cos, x), lax.switch(5, [jnp.sin, jnp.cos], x), "
        "lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * 2), (0, x)), "
        "lax.scan(lambda c, a: (c + a, c * a), x[0], x))",
        (X,),
    ),
    "gradient of a scan": ("jax.grad(lambda x: lax.scan(lambda c, a: (jnp.sin(c + a), c * a), x[0], x)[1].sum())", (X,)),
    "calls": ("lambda x: jax.jit(jnp.sin)(x) + jax.jit(jnp.sin)(2 * x) + jax.checkpoint(jnp.cos)(x)", (X,)),
    "random numbers": ("lambda k: (jax.random.normal(k, (3,)), jax.random.permutation(k, 5))", (np.array([0, 7], np.uint32),)),
    "random bits": ("lambda: lax.rng_bit_generator(jnp.arange(4, dtype='uint32'), (3,))", ()),
    "constants": ("lambda: (jnp.array([1 + 2j, jnp.inf]), jnp.array([True, False]), jnp.full((2, 2), jnp.nan))", ()),
    "network": ("lambda x: jax.nn.softmax(jax.nn.gelu(x @ x))", (X,)),
    "ragged product": ("lambda x: lax.ragged_dot(x, jnp.ones((2, 4, 3)), jnp.array([1, 3]))", (X,)),
}  # fmt: skip

# Functions of arrays with symbolic sizes.
SYMBOLIC: dict[str, tuple[str, tuple[str, ...]]] = {
    "product": ("lambda x, w: jnp.tanh(x @ w) + 1", ("b,3", "3,4")),
    "reshapes": ("lambda x: (x.reshape(-1), x.reshape(x.shape[0], 1, 3), jnp.broadcast_to(x, (2, *x.shape)))", ("b,3",)),
    "concatenation": ("lambda x, y: jnp.concatenate([x, y])[1:]", ("b,3", "c,3")),
    "padding": ("lambda x: jnp.pad(x, ((1, 2), (0, 0)))", ("b,3",)),
    "iota": ("lambda x: jnp.arange(x.shape[0]) + x[:, 0]", ("b,3",)),
    "normalization": ("lambda x: (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5)", ("b,c",)),
    "convolution": ("lambda x: lax.conv_general_dilated(x, jnp.ones((2, 3, 3, 3)), (1, 1), 'SAME')", ("b,3,h,w",)),
    "scan": ("lambda x: lax.scan(lambda c, a: (c + a, c), jnp.zeros(3), x)[1]", ("b,3",)),
    "sort and sum": ("lambda x: (jnp.sort(x, 0), jnp.cumsum(x, 0))", ("b,3",)),
    "gradient": ("jax.grad(lambda x: (jnp.sin(x) ** 2).sum())", ("b,3",)),
    "loop": ("lambda x: lax.fori_loop(0, x.shape[0], lambda i, c: c + x[i], jnp.zeros(3))", ("b,3",)),
}  # fmt: skip


def function_of(source: str) -> Any:
    return eval(source, {"jax": jax, "jnp": jnp, "lax": lax})


def compare(found: Any, expected: Any) -> None:
    found = found if isinstance(found, tuple) else (found,)
    for a, b in zip(found, map(np.asarray, jax.tree.leaves(expected)), strict=True):
        a = np.asarray(a)
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        if b.dtype.kind in "biu":
            np.testing.assert_array_equal(a, b)
        else:
            np.testing.assert_allclose(a.astype(np.complex128), b.astype(np.complex128), rtol=3e-5, atol=2e-6)


@pytest.mark.parametrize("form", ["pretty", "generic"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_program_has_the_results_of_jax(name: str, form: str) -> None:
    source, arguments = PROGRAMS[name]
    compiled = jax.jit(function_of(source))
    lowered = compiled.lower(*arguments)
    module = lowered.compiler_ir("stablehlo").operation
    text = lowered.as_text() if form == "pretty" else module.get_asm(print_generic_op_form=True, enable_debug_info=True)
    compare(stablehlo.parse(text)(*arguments), compiled(*arguments))


@pytest.mark.parametrize("name", SYMBOLIC)
def test_program_with_symbolic_sizes_runs_for_the_sizes_of_its_arguments(name: str) -> None:
    from jax import export

    source, texts = SYMBOLIC[name]
    scope = export.SymbolicScope()
    shapes = [jax.ShapeDtypeStruct(export.symbolic_shape(text, scope=scope), np.float32) for text in texts]
    compiled = jax.jit(function_of(source))
    program = stablehlo.parse(export.export(compiled)(*shapes).mlir_module())
    for sizes in ({"b": 4, "c": 3, "h": 5, "w": 6}, {"b": 2, "c": 5, "h": 4, "w": 3}):
        dimensions = [[sizes.get(d) or int(d) for d in text.split(",")] for text in texts]
        arguments = [np.sin(np.arange(math.prod(d), dtype=np.float32)).reshape(d) for d in dimensions]
        compare(program(*arguments), compiled(*arguments))


PROGRAM = """
module @example {
  func.func public @main(%arg0: tensor<3xf32>, %arg1: tensor<f32>) -> tensor<f32> {
    %0 = call @scaled(%arg0, %arg1) : (tensor<3xf32>, tensor<f32>) -> tensor<3xf32>
    %cst = stablehlo.constant dense<0.0> : tensor<f32>
    %1 = stablehlo.reduce(%0 init: %cst) applies stablehlo.add across dimensions = [0] : (tensor<3xf32>, tensor<f32>) -> tensor<f32>
    return %1 : tensor<f32>
  }
  func.func private @scaled(%x: tensor<3xf32>, %a: tensor<f32>) -> tensor<3xf32> {
    %0 = stablehlo.broadcast_in_dim %a, dims = [] : (tensor<f32>) -> tensor<3xf32>
    %1 = stablehlo.multiply %x, %0 : tensor<3xf32>
    %2 = stablehlo.sine %1 : tensor<3xf32>
    return %2 : tensor<3xf32>
  }
}
"""


def test_programs_are_values_of_the_library() -> None:
    program = stablehlo.parse(PROGRAM)
    x = np.array([0.1, 0.2, 0.3], np.float32)
    expected = np.sin(2 * x).sum()
    np.testing.assert_allclose(program(x, 2.0), expected, rtol=1e-6)
    np.testing.assert_allclose(tx.jit(program)(x, 2.0), expected, rtol=1e-6)
    np.testing.assert_allclose(tx.grad(program)(x, 2.0), 2 * np.cos(2 * x), rtol=1e-6)
    rows = np.stack([x, 2 * x])
    np.testing.assert_allclose(tx.vmap(program, (0, None))(rows, 2.0), np.sin(2 * rows).sum(1), rtol=1e-6)
    np.testing.assert_allclose(program.functions["scaled"](x, 3.0), np.sin(3 * x), rtol=1e-6)
    with tx.disable_jit():
        np.testing.assert_allclose(program(x, 2.0), expected, rtol=1e-6)
    assert program.main.in_types == ("tensor<3xf32>", "tensor<f32>")
    assert repr(program.main) == "<stablehlo function @main: (tensor<3xf32>, tensor<f32>) -> tensor<f32>>"


def test_errors_of_calls_name_the_argument_and_its_type() -> None:
    program = stablehlo.parse(PROGRAM)
    with pytest.raises(ArgumentError, match=r"@main: argument 0 must be tensor<3xf32>, but is f32\[2\]"):
        program(np.zeros(2, np.float32), 1.0)
    with pytest.raises(ArgumentError, match="takes 2 arguments, but got 1"):
        program(np.zeros(3, np.float32))
    with pytest.raises(ArgumentError, match="no handler for the target 'nothing'"):
        stablehlo.parse("""func.func @main(%x: tensor<f32>) -> tensor<f32> {
            %y = stablehlo.custom_call @nothing(%x) : (tensor<f32>) -> tensor<f32>
            return %y : tensor<f32> }""")(1.0)
    with pytest.raises(ArgumentError, match=r"stablehlo.nothing is not supported"):
        stablehlo.parse("""func.func @main(%x: tensor<f32>) -> tensor<f32> {
            %y = stablehlo.nothing %x : tensor<f32>
            return %y : tensor<f32> }""")(1.0)


def test_custom_calls_and_composites_go_to_registered_functions() -> None:
    stablehlo.register_custom_call("example.scale", lambda x, factor: x * factor)
    stablehlo.register_composite("example.square", lambda x: x * x)
    program = stablehlo.parse("""
        func.func @main(%x: tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>) {
          %y = stablehlo.custom_call @example.scale(%x) {backend_config = {factor = 3.0 : f32}} : (tensor<2xf32>) -> tensor<2xf32>
          %z = stablehlo.composite "example.square" %x {decomposition = @twice} : (tensor<2xf32>) -> tensor<2xf32>
          %w = stablehlo.composite "example.other" %z {decomposition = @twice} : (tensor<2xf32>) -> tensor<2xf32>
          return %y, %w : tensor<2xf32>, tensor<2xf32>
        }
        func.func private @twice(%x: tensor<2xf32>) -> tensor<2xf32> {
          %0 = stablehlo.add %x, %x : tensor<2xf32>
          return %0 : tensor<2xf32>
        }""")
    scaled, squared = program([1.0, 2.0])
    np.testing.assert_array_equal(scaled, [3, 6])
    np.testing.assert_array_equal(squared, [2, 8])
    np.testing.assert_array_equal(
        tx.jacfwd(lambda x: program(x)[1])(np.array([1.0, 2.0], np.float32)), np.diag([4.0, 8.0])
    )


@pytest.mark.parametrize("direction", ["gt", "lt"])
def test_approximate_top_k_takes_its_number_as_an_operand(direction: str) -> None:
    program = stablehlo.parse(
        """
        func.func @main(%x: tensor<2x5xf32>) -> (tensor<2x3xf32>, tensor<2x3xi32>) {
          %places = stablehlo.iota dim = 1 : tensor<2x5xi32>
          %first = stablehlo.constant dense<0.0> : tensor<f32>
          %none = stablehlo.constant dense<-1> : tensor<i32>
          %k = stablehlo.constant dense<3> : tensor<i32>
          %sizes = stablehlo.constant dense<[2, 3]> : tensor<2xi32>
          %y:2 = stablehlo.custom_call @stablehlo.dynamic_approx_top_k(%x, %places, %first, %none, %k, %sizes, %sizes)
            {called_computations = [@top_k_DIRECTION_f32_comparator],
             mhlo.backend_config = {is_fallback = true, reduction_dim = 1 : i64}}
            : (tensor<2x5xf32>, tensor<2x5xi32>, tensor<f32>, tensor<i32>, tensor<i32>, tensor<2xi32>, tensor<2xi32>)
            -> (tensor<2x3xf32>, tensor<2x3xi32>)
          return %y#0, %y#1 : tensor<2x3xf32>, tensor<2x3xi32>
        }
        func.func private @top_k_DIRECTION_f32_comparator(%x: tensor<f32>, %y: tensor<f32>) -> tensor<i1> {
          %0 = stablehlo.compare GT, %x, %y : (tensor<f32>, tensor<f32>) -> tensor<i1>
          return %0 : tensor<i1>
        }""".replace("DIRECTION", direction)
    )
    x = np.float32([[3, 1, 4, 1.5, 5], [2, 7, 1, 8, 0]])
    order = np.argsort(-x if direction == "gt" else x)[:, :3]
    values, places = program(x)
    np.testing.assert_array_equal(places, order)
    np.testing.assert_array_equal(values, np.take_along_axis(x, order, 1))


BROKEN = {
    "func.func @main(%x: tensor<f32>) -> tensor<f32> { return %y : tensor<f32> }": "line 1, column 58: %y is not defined",
    "func.func @main(%x: tensor<f32>": "ends",
    "func.func @main(%x: tensor<3yf32>) -> tensor<f32> {": "is no type",
    "func.func @main() -> tensor<2xf32> { %0 = stablehlo.constant dense<[1.0]> : tensor<2xf32>": "elements",
    "func.func @main() -> tensor<2xf32> { %0 = stablehlo.constant dense<[[1.0], [2.0]]> : tensor<2xf32>": "brackets",
    "func.func @main() -> tensor<i8> { %0 = stablehlo.constant dense<300> : tensor<i8>": "outside the range",
    "func.func @main() { %0 = stablehlo.constant dense<1.0> : tensor<99999999x99999xf32>": "larger than",
    "func.func @main(%x: tensor<f32>) { %0 = stablehlo.add %x, %x : tensor<i32>": r"operand 0 is tensor<f32>",
    "func.func @main(%x: tensor<f32>) { %0:2 = stablehlo.sine %x : tensor<f32>": "has 1 results",
    'func.func @main(%x: tensor<f32>) { "stablehlo.sine"(%x) {a = ' + "[" * 300: "nested",
    "func.func @main(%x: tensor<f32>) { garbage %x": "not known in this form",
    "module { module }": "expected a function",
}


@pytest.mark.parametrize("text", BROKEN)
def test_syntax_errors_name_line_and_column(text: str) -> None:
    with pytest.raises(MlirSyntaxError, match=BROKEN[text]) as caught:
        stablehlo.parse(text)
    assert caught.value.lineno == 1


def test_changed_texts_are_read_or_refused() -> None:
    """Parts left out, repeated and exchanged: an error of the library, or a program."""
    random = np.random.default_rng(0)
    pieces = PROGRAM.replace("(", " ( ").split(" ")
    for _ in range(300):
        changed = list(pieces)
        for _ in range(random.integers(1, 4)):
            k, n = random.integers(0, len(changed), 2)
            changed[k : k + random.integers(0, 3)] = [changed[n]]
        with contextlib.suppress(TinyxlaError):
            stablehlo.parse(" ".join(changed))(np.ones(3, np.float32), 1.0)


def test_reading_takes_time_in_proportion_to_the_length() -> None:
    """The lexer and the parser touch each token a bounded number of times."""
    from tinyxla.text.mlir.assembly import parse_module

    body = "\n".join(f"%{k + 1} = stablehlo.add %{k}, %0 : tensor<4xf32>" for k in range(2000))
    text = f"func.func @main(%0: tensor<4xf32>) -> tensor<4xf32> {{ {body}\n return %2000 : tensor<4xf32> }}"
    (function,) = parse_module(text).functions.values()
    assert len(function.body.block.operations) == 2001
