"""HLO text is read back: what is printed here, exactly; and modules that JAX prints, before and after XLA's passes."""

from __future__ import annotations

import random as python_random
import re
import zlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from jax import lax

import tinyxla
from tests.support import op_checks, random_graphs, xla_oracle
from tinyxla.errors import ArgumentError, HloSyntaxError, KernelError
from tinyxla.hlo import Computation, Literal, Module, verify
from tinyxla.ops import Op, Sample, calls, movement, ops
from tinyxla.shapes import OPAQUE, TOKEN, Shape, element_type, element_types
from tinyxla.text import parse_hlo, print_module
from tinyxla.tracing.core import trace

BACKENDS = ("interpreter", "numba")


def round_trip(computation: Computation) -> Module:
    """What reading gives, which prints the same again."""
    text = print_module(Module("module", computation), metadata=True)
    module = parse_hlo(text)
    verify(module)
    assert print_module(module, metadata=True) == text
    return module


# --- what is printed here ---------------------------------------------------------------------------------------------

AS_COPY = ("dynamic-slice", "pad")  # of scalars, they change nothing and print as copies


def samples_of(name: str) -> list[Sample]:
    return list(ops[name].samples(np.random.default_rng(zlib.crc32(name.encode()))))


def check_round_trip(op: Op, sample: Sample) -> None:
    """What is read has the same graph, and computes the same."""
    computation = op_checks.graph_of(op, sample)
    module = round_trip(computation)
    if op.name in AS_COPY and not sample.operands[0].ndim:
        assert module.entry.instructions[-2].op.name == "copy"
        return
    assert module.entry == computation
    if op.name not in ("rng", "rng-get-and-update-state"):
        results = op_checks.flat(calls.evaluate(module.entry, op_checks.flat(sample.operands)))
        op_checks.assert_equal(results, op_checks.evaluated(op, sample), op.name)


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("name", sorted(ops.keys() - {"parameter", "callback", "shard-map", "sharding-constraint"}))
def test_every_op_is_read_back(name: str) -> None:
    for sample in samples_of(name):
        check_round_trip(ops[name], sample)


def test_python_functions_are_not_in_texts() -> None:
    for sample in samples_of("callback"):
        with pytest.raises(HloSyntaxError, match="callback: function: a text cannot hold a Python function, but only"):
            check_round_trip(ops["callback"], sample)


@pytest.mark.parametrize("name", ["shard-map", "sharding-constraint"])
def test_devices_are_not_in_texts(name: str) -> None:
    for sample in samples_of(name):
        with pytest.raises(HloSyntaxError, match="a text cannot hold the devices of a mesh"):
            check_round_trip(ops[name], sample)


@settings(max_examples=20)
@given(st.data())
def test_random_programs_are_read_back(data: st.DataObject) -> None:
    computation = data.draw(random_graphs.programs()).computation()
    assert round_trip(computation).entry == computation


@pytest.mark.parametrize("name", sorted(element_types))
def test_constants_of_every_type_are_read_back_bit_by_bit(name: str) -> None:
    kind = element_types[name]
    random = np.random.default_rng(zlib.crc32(name.encode()))
    raw = random.integers(0, 256, (7, 5, kind.dtype.itemsize), np.uint8)
    if kind.kind == "pred":
        value = raw[..., 0] < 128
    elif kind.bits < 8:
        value = random.integers(0, 2, (7, 5)).astype(kind.dtype)
    else:
        value = raw.view(kind.dtype)[..., 0]
    for x in (value, value[0, 0].reshape(()), value[:0], value.reshape(7, 1, 5, 1)):
        literal = Literal(np.ascontiguousarray(x).reshape(x.shape))
        (made,) = round_trip(trace(lambda x=literal: [movement.constant(literal=x)], [], "main")[0]).entry.outputs
        found = made.attributes.literal.value
        if kind.kind in ("float", "complex") and (kind.bits < 16 or kind.kind == "complex"):
            np.testing.assert_array_equal(op_checks.comparable(found), op_checks.comparable(literal.value))
        else:
            assert made.attributes.literal == literal


# --- what JAX prints --------------------------------------------------------------------------------------------------


def normal(*sizes: int) -> Any:
    return np.random.default_rng(0).normal(size=sizes).astype(np.float32)


def attention(q: Any, k: Any, v: Any) -> Any:
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) / 2
    mask = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(jnp.where(mask, scores, -1e9)), v)


def training_step(layers: Any, x: Any, y: Any) -> Any:
    def loss(layers: Any) -> Any:
        h = x
        for w, b in layers:
            h = jax.nn.relu(h @ w + b)
        return ((h - y) ** 2).mean()

    value, slope = jax.value_and_grad(loss)(layers)
    return value, jax.tree.map(lambda a, g: a - 0.1 * g, layers, slope)


def convolution(x: Any, w: Any) -> Any:
    return lax.conv_general_dilated(x, w, (2, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def pooled(x: Any) -> Any:
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def positive(x: Any) -> Any:
    return x @ jnp.swapaxes(x, -1, -2) + 5 * jnp.eye(x.shape[-1])


IMAGE, KERNEL = normal(2, 4, 4, 3), normal(3, 3, 3, 2)
KEY = np.array([0, 3], np.uint32)
ROWS = np.array([1, 3, 0])

PROGRAMS: dict[str, tuple[Callable[..., Any], ...]] = {
    "elementwise": (lambda x, y: jnp.tanh(x) * jnp.exp(y) + jnp.where(x > y, x, -y), normal(3, 4), normal(3, 4)),
    "inverse functions": (lambda x: (jnp.arccos(x), jnp.arcsinh(x), jax.scipy.special.erfinv(x)), normal(4) / 4),
    "matmul": (lambda x, y: jnp.maximum(x @ y + 1, 0), normal(8, 5), normal(5, 6)),
    "einsum": (lambda x, y: jnp.einsum("bij,bkj->bik", x, y), normal(2, 3, 4), normal(2, 5, 4)),
    "training step": (
        training_step,
        [(normal(4, 8), normal(8)), (normal(8, 3), normal(3))],
        normal(5, 4),
        normal(5, 3),
    ),
    "attention": (lambda *x: jax.grad(lambda *x: attention(*x).sum(), (0, 1, 2))(*x), *[normal(2, 2, 6, 4)] * 3),
    "convolution": (lambda x, w: jax.value_and_grad(lambda w: (convolution(x, w) ** 2).sum())(w), IMAGE, KERNEL),
    "pooling": (lambda x: jax.value_and_grad(lambda x: (pooled(x) ** 2).sum())(x), IMAGE),
    "softmax": (lambda x: jax.grad(lambda x: jnp.log(jax.nn.softmax(x))[..., 0].sum())(x), normal(4, 5)),
    "scan": (lambda x: lax.scan(lambda c, a: (c * 0.5 + a, c), jnp.zeros(3), x), normal(6, 3)),
    "while": (
        lambda x: lax.while_loop(lambda s: s[1].sum() < 100, lambda s: (s[0] + 1, s[1] * 1.5), (0, x)),
        normal(4) + 2,
    ),
    "nested loops": (
        lambda x: lax.fori_loop(0, 3, lambda i, x: lax.fori_loop(0, i, lambda j, y: y * 0.5 + j, x), x),
        normal(4),
    ),
    "cond": (lambda p, x: lax.cond(p > 0, jnp.sin, lambda x: x * 2, x), np.int32(1), normal(4)),
    "switch": (lambda k, x: lax.switch(k, [jnp.sin, jnp.cos, lambda x: x * 2], x), np.int32(1), normal(4)),
    "sort": (lambda x: (jnp.sort(x), jnp.argsort(x)), normal(4, 9)),
    "top k": (lambda x: lax.top_k(x, 3), normal(4, 9)),
    "gather": (lambda x, i: (x[i], jnp.take_along_axis(x, i[None, :], 0)), normal(4, 3), ROWS),
    "scatter": (lambda x, i, u: (x.at[i].add(u), x.at[i].set(u), x.at[i].max(u)), normal(4, 9), ROWS, normal(3, 9)),
    "cumulative": (lambda x: (jnp.cumsum(x, 1), jnp.cumprod(x, 0), lax.cummax(x)), normal(4, 9)),
    "fft": (lambda x: (jnp.fft.fft(x), jnp.fft.irfft(jnp.fft.rfft(x))), normal(4, 8)),
    "cholesky": (lambda x: jnp.linalg.cholesky(positive(x)), normal(2, 4, 4)),
    "factorizations": (
        lambda x, b: (
            jnp.linalg.solve(x, b),
            abs(jnp.linalg.qr(x).R),
            jnp.linalg.eigvalsh(positive(x)),
            jnp.linalg.det(x),
        ),
        normal(4, 4),
        normal(4, 2),
    ),
    "singular values": (lambda x: (jnp.linalg.svd(x).S, jnp.linalg.svd(x, compute_uv=False)), normal(4, 3)),
    "random": (lambda k: (jax.random.normal(k, (4, 3)), jax.random.randint(k, (5,), 0, 10)), KEY),
    "dynamic slices": (
        lambda x, i: lax.dynamic_update_slice(x, lax.dynamic_slice(x, (i, i), (2, 2)), (i + 1, 0)),
        normal(5, 6),
        np.int32(2),
    ),
    "integers": (lambda a, b: (a // b, a % b, a ^ b, a << 2, lax.clz(b)), np.arange(9), np.arange(1, 10)),
    "bytes": (
        lambda a: (a * a, lax.dot(a, a.T, preferred_element_type=np.int32)),
        np.arange(6, dtype=np.int8).reshape(2, 3),
    ),
    "complex": (lambda x, y: (abs(x + 1j * y), jnp.exp(1j * x) @ (y.T + 0j)), normal(3, 4), normal(3, 4)),
    "bf16": (lambda x: (x.astype(jnp.bfloat16) @ x.astype(jnp.bfloat16).T, x.astype(jnp.bfloat16) * 2), normal(3, 4)),
    "truth values": (lambda x: (x.any(0), x.all(1), ~x, x.sum()), normal(3, 4) > 0),
    "empty": (lambda x: (x + 1, x.sum(0), jnp.concatenate([x, x])), normal(0, 4)),
    "barrier": (lambda x, y: lax.optimization_barrier((x + 1, y)), normal(3), normal(2)),
    "composite": (lambda x: lax.composite(lambda x, k: x * k, "my.op")(x, k=2.0), normal(3)),
    "pad and reverse": (lambda x: lax.pad(x[::-1], np.float32(2), ((1, 2, 1), (-1, 0, 0))), normal(5, 5)),
}


def near(actual: Any, expected: Any, what: str) -> None:
    x, y = (np.asarray(v) for v in (actual, expected))
    assert Shape.of(x) == Shape.of(y), what
    bound = 2e-2 if y.dtype == element_type("bf16").dtype else 5e-5
    x, y = op_checks.comparable(x), op_checks.comparable(y)
    scale = max(1.0, float(np.abs(y).max())) if y.size and y.dtype.kind in "fc" else 0.0
    np.testing.assert_allclose(x, y, bound if scale else 0, bound * scale, err_msg=what)


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("name", PROGRAMS)
def test_modules_of_jax(name: str) -> None:
    function, *operands = PROGRAMS[name]
    lowered = jax.jit(function).lower(*operands)
    compiled = lowered.compile()
    leaves = jax.tree.leaves(operands)
    expected = jax.tree.leaves(compiled(*operands))
    for text in (lowered.as_text(dialect="hlo"), compiled.as_text()):
        module = parse_hlo(text)
        verify(module)
        printed = print_module(module, metadata=True)
        again = parse_hlo(printed)
        assert print_module(again, metadata=True) == printed
        assert again.entry == module.entry
        assert set(re.findall(r"^ *(?:ROOT )?%?([\w.-]+) = ", text, re.M)) >= {
            x.name for c in module.computations() for x in c.instructions if x.name
        }
        for backend in BACKENDS:
            results = op_checks.flat(module(*leaves, backend=backend))
            for x, y in zip(results, expected, strict=True):
                near(x, y, f"{name} with {backend}")


@pytest.mark.parametrize(
    "name", ["attention", "convolution", "factorizations", "nested loops", "sort", "switch", "top k"]
)
def test_xla_reads_what_was_read_and_printed(name: str) -> None:
    function, *operands = PROGRAMS[name]
    lowered = jax.jit(function).lower(*operands)
    for text in (lowered.as_text(dialect="hlo"), lowered.compile().as_text()):
        module = parse_hlo(text)
        assert parse_hlo(xla_oracle.parse(print_module(module, metadata=True)).to_string()).entry == module.entry


def test_a_module_of_64_bits() -> None:
    with jax.enable_x64(True):
        x = np.linspace(0, 1, 5)
        lowered = jax.jit(lambda x, n: (jnp.sin(x) + n, n + 1)).lower(x, np.int64(1 << 40))
        module = parse_hlo(lowered.compile().as_text())
        found = module(x, np.array(1 << 40))
    assert [str(Shape.of(y)) for y in found] == ["f64[5]", "s64[]"]
    np.testing.assert_allclose(found[0], np.sin(x) + (1 << 40), 1e-15)


def test_a_constant_that_xla_leaves_out_is_kept_but_cannot_be_run() -> None:
    table = normal(30)
    lowered = jax.jit(lambda x: x + jnp.asarray(table)).lower(table)
    np.testing.assert_array_equal(parse_hlo(lowered.as_text(dialect="hlo"))(table), 2 * table)
    text = lowered.compile().as_text()
    assert "constant({...})" in text
    module = parse_hlo(text)
    assert "constant({...})" in print_module(module)
    with pytest.raises(ArgumentError, match=r"leaves out the value of the constant \S+ of shape f32\[30\]"):
        module(table)


def test_what_the_graph_does_not_know_is_kept() -> None:
    text = jax.jit(lambda x: jnp.linalg.cholesky(jnp.sin(x))).lower(normal(3, 3)).compile().as_text()
    module = parse_hlo(text)
    assert module.attributes["is_scheduled"] == "true"
    assert module.attributes["FunctionNames"].startswith('FunctionNames\n1 "')
    printed = print_module(module, metadata=True)
    for kept in (
        "is_scheduled=true",
        "output_to_operand_aliasing={{0}: (0, {})}",
        'metadata={op_name="jit(<lambda>)/sin"',
    ):
        assert kept in text
        assert kept in printed
    sources = {x.source for c in module.computations() for x in c.instructions}
    assert any(source is not None and source.file == __file__ for source in sources)
    assert "metadata" not in print_module(module)
    assert "StackFrames" not in print_module(module)


# --- forms of text ----------------------------------------------------------------------------------------------------


def run(body: str, *operands: Any, before: str = "", backend: str = "interpreter") -> Any:
    """The result of an entry computation with these lines."""
    module = parse_hlo(f"HloModule m\n{before}\nENTRY main {{\n{body}\n}}\n")
    printed = print_module(module, metadata=True)
    assert print_module(parse_hlo(printed), metadata=True) == printed
    return module(*operands, backend=backend)


X = np.array([[1, 2, 3], [4, 5, 6]], np.float32)


@pytest.mark.parametrize(
    "text",
    [
        "HloModule m\nENTRY main {\n  x = f32[2,3] parameter(0)\n  ROOT y = f32[2,3] negate(x)\n}",
        "HloModule %m, is_scheduled=true\nENTRY %main (x: f32[2,3]) -> f32[2,3] {\n  %x = f32[2,3]{1,0} parameter(0)\n"
        "  ROOT %y = f32[2,3]{1,0} negate(f32[2,3]{1,0} %x)\n}",
        "HloModule m ENTRY main{x=f32[2,3]parameter(0) y=f32[2,3]{1,0:T(8,128)(2,1)S(1)}negate(f32[2,3] x)}",
        "// a comment\nHloModule m /* and\n one */ ENTRY main {\n  x = /*index=0*/f32[2,3] parameter(/*first*/0)\n"
        '  y = f32[2,3] negate(/*x*/x), // behind\n  metadata={op_name="//"}\n}',
        "HloModule m\nunused { p = f32[] parameter(0) }\n"
        "ENTRY main { %0 = f32[2,3] parameter(0) %1 = f32[2,3] negate(%0) }",
        "HloModule m\nENTRY main { x = f32[2,3] parameter(0)\n y = f32[2,3] negate(x), control-predecessors={x}, "
        'sharding={devices=[2,1]0,1}, frontend_attributes={a="},{",b="1"}\n}, execution_thread="main"',
    ],
)
def test_forms_that_mean_the_same(text: str) -> None:
    module = parse_hlo(text)
    np.testing.assert_array_equal(module(X, backend="interpreter"), -X)
    assert parse_hlo(print_module(module)).entry == module.entry


@pytest.mark.parametrize(
    ("shape", "text", "value"),
    [
        ("f32[]", "1", np.float32(1)),
        ("f32[2]", "{-inf, 0x1.8p1}", np.float32([-np.inf, 3])),
        ("f32[2,0]", "{ {}, {} }", np.zeros((2, 0), np.float32)),
        ("f32[0,2]", "{}", np.zeros((0, 2), np.float32)),
        ("s8[2,2]", "{ /*i0=0*/ {-128, 127}, /*i0=1*/ {0, -1} }", np.int8([[-128, 127], [0, -1]])),
        ("u64[]", "18446744073709551615", np.uint64(2**64 - 1)),
        ("pred[2]", "{true, 0}", np.array([True, False])),
        ("c64[2]", "{(1, -2), 3}", np.complex64([1 - 2j, 3])),
        ("bf16[]", "1e30", np.array(1e30, element_type("bf16").dtype)),
        ("f64[]", "1e400", np.float64(np.inf)),
    ],
)
def test_constants(shape: str, text: str, value: Any) -> None:
    found = run(f"ROOT x = {shape} constant({text})")
    assert Shape.of(found) == Shape.of(value)
    assert np.asarray(found).tobytes() == np.asarray(value).tobytes()


def test_bits_of_a_nan() -> None:
    found = np.asarray(run("ROOT x = f32[3] constant({nan, -nan(0x1), nan(0x7fffff)})"))
    assert [hex(x) for x in found.view(np.uint32)] == ["0x7fc00000", "0xff800001", "0x7fffffff"]


def test_constants_that_are_tuples() -> None:
    number, (array, nothing) = run("ROOT x = (s32[], (f32[2], ())) constant((7, ({1, 2}, ())))")
    assert (int(number), list(np.asarray(array)), nothing) == (7, [1, 2], ())


LOOP = """
body {
  t = ((s32[], f32[2]), f32[]) parameter(0)
  a = (s32[], f32[2]) get-tuple-element(t), index=0
  i = s32[] get-tuple-element(a), index=0
  x = f32[2] get-tuple-element(a), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[2] multiply(x, x)
  s = f32[] get-tuple-element(t), index=1
  u = (s32[], f32[2]) tuple(j, y)
  ROOT r = ((s32[], f32[2]), f32[]) tuple(u, s)
}
condition {
  t = ((s32[], f32[2]), f32[]) parameter(0)
  a = (s32[], f32[2]) get-tuple-element(t), index=0
  i = s32[] get-tuple-element(a), index=0
  n = s32[] constant(3)
  ROOT less = pred[] compare(i, n), direction=LT
}
inner {
  p = (s32[], f32[2]) parameter(0)
  q = f32[] parameter(1)
  t = ((s32[], f32[2]), f32[]) tuple(p, q)
  ROOT w = ((s32[], f32[2]), f32[]) while(t), condition=condition, body=body
}
"""
CALL = """
  p = (s32[], f32[2]) parameter(0)
  q = f32[] parameter(1)
  ROOT c = ((s32[], f32[2]), f32[]) call(p, q), to_apply=inner
"""


@pytest.mark.parametrize("backend", BACKENDS)
def test_tuples_inside_tuples(backend: str) -> None:
    (count, x), scale = run(CALL, (0, np.float32([1, 2])), 2.5, before=LOOP, backend=backend)
    assert int(count) == 3
    np.testing.assert_array_equal(x, [1, 256])
    assert float(scale) == 2.5


def test_loops_print_as_xla_reads_them() -> None:
    module = parse_hlo(f"HloModule m\n{LOOP}\nENTRY main {{{CALL}}}")
    xla_oracle.parse(print_module(module))


def test_a_loop_that_carries_one_array() -> None:
    before = """
    double { x = f32[2] parameter(0)  ROOT y = f32[2] add(x, x) }
    small { x = f32[2] parameter(0)  k = s32[] constant(0)  a = f32[1] slice(x), slice={[1:2]}
            b = f32[] reshape(a)  n = f32[] constant(9)  ROOT c = pred[] compare(b, n), direction=LT }
    """
    body = "x = f32[2] parameter(0)\nROOT w = f32[2] while(x), condition=small, body=double"
    np.testing.assert_array_equal(run(body, np.float32([1, 2]), before=before), [8, 16])


BRANCHES = """
plus { p = (f32[], f32[]) parameter(0)  a = f32[] get-tuple-element(p), index=0  b = f32[] get-tuple-element(p), index=1
       ROOT s = f32[] add(a, b) }
minus { x = f32[] parameter(0)  ROOT y = f32[] negate(x) }
"""


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("kind", "chosen", "computations", "expected"),
    [
        ("pred[]", True, "true_computation=plus, false_computation=minus", 5),
        ("pred[]", False, "true_computation=%plus, false_computation=%minus", -7),
        ("s32[]", 0, "branch_computations={plus, minus}", 5),
        ("s32[]", -3, "branch_computations={%plus, %minus}", -7),
    ],
)
def test_branches_that_take_other_things(
    kind: str, chosen: Any, computations: str, expected: float, backend: str
) -> None:
    body = f"""
      p = {kind} parameter(0)
      t = (f32[], f32[]) parameter(1)
      x = f32[] parameter(2)
      ROOT c = f32[] conditional(p, t, x), {computations}
    """
    assert float(run(body, chosen, (2, 3), 7, before=BRANCHES, backend=backend)) == expected


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_is_begun_and_waited_for(backend: str) -> None:
    before = "double { x = f32[2,3] parameter(0)  ROOT y = f32[2,3] add(x, x) }"
    body = """
      x = f32[2,3] parameter(0)
      none = token[] after-all()
      late = f32[2,3] add-dependency(x, none)
      started = (f32[2,3], f32[2,3], u32[]) copy-start(late)
      copied = f32[2,3] copy-done(started)
      begun = ((f32[2,3]), f32[2,3], u32[]) async-start(copied), calls=double
      moved = ((f32[2,3]), f32[2,3], u32[]) async-update(begun)
      waited = f32[2,3] async-done(moved), calls=double
      add-start = ((f32[2,3], f32[2,3]), f32[2,3]) add-start(waited, x), async_execution_thread="other"
      done = f32[2,3] add-done(add-start)
      ROOT y = f32[2,3] domain(done), domain={kind="sharding", entry={replicated}, exit={maximal device=0}}
    """
    np.testing.assert_array_equal(run(body, X, before=before, backend=backend), 3 * X)


@pytest.mark.parametrize("backend", BACKENDS)
def test_bitcasts_see_layouts(backend: str) -> None:
    body = """
      x = f32[2,3]{1,0} parameter(0)
      columns = f32[2,3]{0,1} copy(x)
      turned = f32[3,2]{1,0} bitcast(columns)
      flat = f32[6]{0} bitcast(columns)
      bits = s32[2,3]{1,0} bitcast(x)
      ROOT all = (f32[3,2], f32[6], s32[2,3]) tuple(turned, flat, bits)
    """
    turned, flat, bits = run(body, X, backend=backend)
    np.testing.assert_array_equal(turned, X.T)
    np.testing.assert_array_equal(flat, X.T.ravel())
    np.testing.assert_array_equal(bits, X.view(np.int32))


def test_instructions_and_layouts_keep_their_text() -> None:
    body = "  x.1 = f32[2,3]{0,1} parameter(0)\n  ROOT half_of_x = f32[2,3]{0,1} multiply(x.1, x.1)"
    layout = "entry_computation_layout={(f32[2,3]{0,1})->f32[2,3]{0,1}}"
    text = (
        f"HloModule m, {layout}, input_output_alias={{ {{}}: (0, {{}}, may-alias) }}\n\nENTRY main.3 {{\n{body}\n}}\n"
    )
    assert print_module(parse_hlo(text)) == text


def test_tokens_are_no_dtype_of_numbers() -> None:
    assert element_type(np.bool_) is element_type("pred")
    for kind in (TOKEN, OPAQUE):
        assert kind.name not in element_types
        with pytest.raises(tinyxla.errors.DTypeError):
            element_type(kind.name)


# --- calls ------------------------------------------------------------------------------------------------------------

SQUARE = "HloModule square ENTRY main { x = f32[3] parameter(0)  ROOT y = f32[3] multiply(x, x) }"


def test_modules_are_functions_for_the_transformations() -> None:
    module, x = parse_hlo(SQUARE), tinyxla.numpy.arange(3.0)
    np.testing.assert_array_equal(tinyxla.jit(lambda x: module(x) + 1)(x), [1, 2, 5])
    np.testing.assert_array_equal(tinyxla.grad(lambda x: module(x).sum())(x), [0, 2, 4])
    np.testing.assert_array_equal(tinyxla.vmap(module)(np.stack([x, x + 1])), [[0, 1, 4], [1, 4, 9]])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), r"takes 1 arguments, \(f32\[3\]\), but got 0"),
        ((X[0], X[0]), "but got 2"),
        ((X,), r"argument 0 must be f32\[3\], but got f32\[2,3\]"),
        ((np.arange(3),), r"argument 0 must be f32\[3\], but got s32\[3\]; convert it"),
    ],
)
def test_arguments_are_checked(arguments: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        parse_hlo(SQUARE)(*arguments)


def test_a_tuple_is_needed_where_the_parameter_is_one() -> None:
    module = parse_hlo(f"HloModule m\n{LOOP}\nENTRY main {{{CALL}}}")
    for wrong in (X[0], (0,), "text"):
        with pytest.raises(ArgumentError, match=r"argument 0 must be a tuple \(s32\[\], f32\[2\]\)"):
            module(wrong, 1.0)


def test_an_unknown_target_is_an_error_when_it_runs() -> None:
    module = parse_hlo('HloModule m ENTRY e { ROOT x = f32[] custom-call(), custom_call_target="nobody\\"s" }')
    assert r'custom_call_target="nobody\"s"' in print_module(module)
    with pytest.raises(KernelError, match="no target 'nobody\"s'"):
        module()


# --- errors -----------------------------------------------------------------------------------------------------------

VALID = """HloModule m

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

ENTRY main {
  x = f32[2,3]{1,0} parameter(0)
  zero = f32[] constant(0)
  total = f32[2]{0} reduce(x, zero), dimensions={1}, to_apply=add
  window = f32[2,2]{1,0} reduce-window(x, zero), window={size=1x2}, to_apply=add
  part = f32[1,3]{1,0} slice(x), slice={[0:1], [0:3]}
  wide = f32[2,4]{1,0} pad(x, zero), padding=0_0x1_0
  ROOT all = (f32[2]{0}, f32[2,2]{1,0}) tuple(total, window)
}
"""


@pytest.mark.parametrize(
    ("old", "new", "message", "place"),
    [
        ("HloModule m", "Module m", "expected 'HloModule', but found 'Module'", (1, 1)),
        ("ENTRY main", "main", "expected a computation marked ENTRY, but the text ends", (18, 1)),
        ("b = f32[] param", "a = f32[] param", "there are two instructions named a", (5, 3)),
        ("parameter(1)", "parameter(0)", "two parameters with the number 0", (5, 22)),
        ("parameter(1)", "parameter(2)", r"numbers \[0, 2\], which leave one out", (3, 1)),
        ("f32[] add", "f33[] add", "'f33' is no element type; the types are pred, s8", (6, 12)),
        ("f32[] add", "f32[-1] add", r"sizes \(-1,\) must be from 0", (6, 12)),
        ("f32[] add", "f32 add", r"expected '\[', but found 'add\(a,'", (6, 16)),
        ("add(a, b)", "sum(a, b)", "sum: there is no such operation", (6, 18)),
        ("add(a, b)", "add(a, d)", "there is no instruction 'd' before this one", (6, 21)),
        ("add(a, b)", "add(a", r"expected '\)', but found '}'", (7, 1)),
        ("add(a, b)", "add(a)", "add: ", (6, 18)),
        ("add(a, b)", "add a, b", "expected the operands in brackets", (6, 22)),
        (
            "{1,0} parameter",
            "{1,1} parameter",
            r"a layout must be an order of all 2 dimensions, but is \[1, 1\]",
            (10, 16),
        ),
        ("constant(0)", "constant(zero)", "could not convert", (11, 24)),
        ("constant(0)", "constant({0})", "'{' does not belong there in a constant of sizes", (11, 24)),
        (
            "f32[2]{0} reduce",
            "f32[3]{0} reduce",
            r"the operands give f32\[2\], but the shape here is f32\[3\]",
            (12, 21),
        ),
        ("dimensions={1}", "dimensions={2}", "reduce: dimensions", (12, 21)),
        ("dimensions={1}", "dimensions={x}", "reduce: dimensions: expected an integer, but found 'x'", (12, 49)),
        ("dimensions={1}", "dimensions=", "expected a value, but found ','", (12, 49)),
        ("dimensions={1}, ", "", "reduce needs the attribute dimensions", (12, 21)),
        ("dimensions={1}", "dimension={1}", "reduce needs the attribute dimensions", (12, 21)),
        ("dimensions={1}", "dimensions={1}, dimensions={1}", "the attribute dimensions is there twice", (12, 54)),
        ("dimensions={1}", "dimensions={1}, sorted=true", "reduce has no attribute sorted", (12, 61)),
        ("to_apply=add\n  w", "to_apply=sub\n  w", "there is no computation 'sub' before this one", (12, 63)),
        ("size=1x2}", "size=1x2 stride=2}", "every field of a window has as many values as size, 2", (13, 57)),
        ("size=1x2}", "size=1x2 speed=2x2}", "a window has size, stride, pad", (13, 57)),
        ("[0:3]}", "0:3]}", "expected '}', but found ']'", (14, 51)),
        ("padding=0_0x1_0", "padding=0x1_0", "padding is low_high or low_high_interior", (15, 46)),
        ("ROOT c", "ROOT ROOT c", "expected '=', but found 'c'", (6, 13)),
        ("  zero = ", "  ROOT zero = ", "a computation has one ROOT", (16, 8)),
    ],
)
def test_errors_say_what_and_where(old: str, new: str, message: str, place: tuple[int, int]) -> None:
    assert old in VALID
    with pytest.raises(HloSyntaxError, match=message) as caught:
        parse_hlo(VALID.replace(old, new, 1))
    error = caught.value
    assert (error.lineno, error.column) == place
    assert str(error).startswith(f"line {error.lineno}, column {error.column}: {error.reason}\n    ")
    lines = VALID.replace(old, new, 1).split("\n")
    assert error.text == lines[error.lineno - 1]


def test_the_error_shows_the_place() -> None:
    with pytest.raises(HloSyntaxError) as caught:
        parse_hlo(VALID.replace("add(a, b)", "sum(a, b)"))
    shown = str(caught.value).split("\n")
    assert shown[1] == "      ROOT c = f32[] sum(a, b)"
    assert shown[2].index("^") == shown[1].index("sum")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "HloModule",
        "HloModule m",
        "HloModule m ENTRY e { ROOT x = " + "(" * 100_000,
        "HloModule m ENTRY e { ROOT x = f32[] constant(" + "{" * 100_000,
        "HloModule m ENTRY e { x = f32[] parameter(0), metadata=" + "{[(" * 10_000,
        "HloModule m ENTRY e { x = f32[" + "9" * 100_000 + "] parameter(0) }",
        "HloModule m ENTRY e { x = f32[99999999999] constant({1}) }",
        "HloModule m ENTRY e { x = s32[] constant(" + "9" * 100_000 + ") }",
        "HloModule m /*",
        'HloModule m, a="b',
        "HloModule m c { x = f32[] parameter(0) } "
        + " ".join(
            f"c{k} {{ x = f32[] parameter(0) y = f32[] call(x), to_apply=c{k - 1 if k else ''} }}" for k in range(150)
        ),
    ],
    ids=range(12),
)
def test_texts_that_could_overflow_or_never_end(text: str) -> None:
    with pytest.raises(HloSyntaxError):
        parse_hlo(text)


def test_what_is_called_often_is_read_once() -> None:
    """Each computation calls the one before twice: as a tree these would be 2^60 calls."""
    calls_ = "".join(
        f"c{k} {{ t = (f32[]) parameter(0)  a = (f32[]) call(t), to_apply=c{k - 1}  "
        f"ROOT b = (f32[]) call(a), to_apply=c{k - 1} }}\n"
        for k in range(1, 60)
    )
    last = "w { t = (f32[]) parameter(0)  ROOT p = pred[] constant(false) }"
    body = "t = (f32[]) parameter(0)  ROOT w = (f32[]) while(t), condition=w, body=c59"
    text = f"HloModule m c0 {{ ROOT t = (f32[]) parameter(0) }}\n{calls_} {last} ENTRY e {{ {body} }}"
    printed = print_module(parse_hlo(text))
    assert print_module(parse_hlo(printed)) == printed


def mutated(random: python_random.Random, text: str) -> str:
    """The text with a few changes: cut off, a sign more or less, a piece moved or replaced by a word."""
    words = '{ } ( ) , = [ ] % " /* // \\ ROOT ENTRY f32[] f32[<=5] token[] -1 {...} nan(0x1) while tuple é \0'.split(
        " "
    )
    for _ in range(random.choice([1, 1, 2, 5])):
        at, other, length = random.randrange(len(text)), random.randrange(len(text)), random.randrange(30)
        text = random.choice(
            [
                text[: at + 1],
                text[:at] + text[at + 1 :],
                text[:at] + text[at + length :],
                text[:at] + random.choice(words) + text[at:],
                text[:at] + text[other : other + length] + text[at:],
                text[:at] + text[other : other + length] + text[at + length :],
            ]
        )
    return text or " "


def exchanged(random: python_random.Random, text: str, others: str) -> str:
    """The text with a few shapes, operations, names or attributes that are those of other places."""
    kind = random.choice(
        [r"\w+\[[\d,<=]*\]", r"[a-z-]+(?=\()", r"(?<=[(,] )[a-z-]+\.\d+", r"(?<==)(?:\{[^{}\n]*\}|\w+)"]
    )
    for _ in range(random.choice([1, 1, 3])):
        places = list(re.finditer(kind, text))
        found = re.findall(kind, others)
        if places and found:
            at = random.choice(places)
            text = text[: at.start()] + random.choice(found) + text[at.end() :]
    return text


def test_operations_with_the_wrong_operands_and_attributes_are_modules_or_errors() -> None:
    random = python_random.Random(0)
    first = {name: next(iter(samples_of(name)), None) for name in sorted(ops)}
    graphs = [op_checks.graph_of(ops[name], sample) for name, sample in first.items() if sample is not None]
    texts = [print_module(Module("m", graph)) for graph in graphs]
    refused = 0
    for _ in range(1000):
        text = exchanged(random, random.choice(texts), "\n".join(random.choices(texts, k=3)))
        try:
            verify(parse_hlo(text))
        except HloSyntaxError:
            refused += 1
    assert 300 < refused < 1000


@pytest.mark.parametrize("seed", range(2))
def test_mutations_are_modules_or_errors(seed: int) -> None:
    random = python_random.Random(seed)
    compiled = jax.jit(lambda x: lax.scan(lambda c, a: (c * 0.5 + a, c), jnp.zeros(2), x)).lower(normal(3, 2)).compile()
    texts = [VALID, f"HloModule m\n{LOOP}{BRANCHES}\nENTRY main {{{CALL}}}", compiled.as_text()]
    outcomes = {True: 0, False: 0}
    for _ in range(200):
        text = mutated(random, random.choice(texts))
        try:
            module = parse_hlo(text)
        except HloSyntaxError:
            outcomes[False] += 1
        else:
            verify(module)
            printed = print_module(module, metadata=True)
            assert print_module(parse_hlo(printed), metadata=True) == printed
            outcomes[True] += 1
    assert min(outcomes.values()) > 10
