"""Convolutions: against `jax.lax.conv_general_dilated` and XLA over random windows, groups and dimension numbers; all
derivatives and batch rules over the same; the functions of `tinyxla.lax`; and errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import tinyxla
from tests.support import jax_oracle, op_checks, xla_oracle
from tinyxla import lax
from tinyxla.compiler.passes.canonicalize import convolution as canonical_convolution
from tinyxla.compiler.pipeline import compile_program
from tinyxla.errors import ArgumentError, AttributeValueError, DTypeError, ShapeError, TinyxlaError
from tinyxla.hlo import Module
from tinyxla.loopir.ir.print_python import print_python
from tinyxla.loopir.kernels import convolution as nests
from tinyxla.loopir.lower.emit import LoweredKernel
from tinyxla.loopir.target import has_feature
from tinyxla.ops import Sample, elementwise
from tinyxla.ops.products.convolution import ConvDimensionNumbers, Convolution, convolution, labels_of
from tinyxla.runtime.threads import num_threads
from tinyxla.shapes import WindowDimension, element_type
from tinyxla.text import print_module

NumPyArray = np.ndarray[Any, Any]


def random_sample(
    random: np.random.Generator,
    dtype: Any = np.float32,
    most: int = 3,
    features: int = 1,
    counts: tuple[int, ...] = (1, 1, 2, 3),
) -> Sample:
    """Any number of spatial dimensions up to `most`, with all that a window can have, and one of these counts of groups
    of either kind; features are multiples of a number."""
    rank = int(random.integers(0, most + 1))
    window = tuple(
        WindowDimension(
            size=int(random.integers(1, 4)),
            stride=int(random.integers(1, 4)),
            padding_low=int(random.integers(-2, 4)),
            padding_high=int(random.integers(-2, 4)),
            window_dilation=int(random.integers(1, 4)),
            base_dilation=int(random.integers(1, 4)),
            window_reversal=bool(random.integers(0, 2)),
        )
        for _ in range(rank)
    )
    groups = [1, 1]
    groups[int(random.integers(0, 2))] = int(random.choice(counts))
    batch = int(random.integers(1, 3)) * groups[1]
    inner, out = (features * int(n) for n in random.integers(1, 3, 2))
    out *= groups[0] * groups[1]
    specs = [tuple(map(int, random.permutation(rank + 2))) for _ in range(3)]
    lhs, rhs = [0] * (rank + 2), [0] * (rank + 2)
    sizes = [int(n) for n in random.integers(1, 6, rank)]
    for d, n in zip(specs[0], (batch, inner * groups[0], *sizes), strict=True):
        lhs[d] = n
    for d, n in zip(specs[1], (out, inner, *(w.size for w in window)), strict=True):
        rhs[d] = n
    x, y = (elementwise.sample_array(random, dtype, tuple(shape), -3, 3) for shape in (lhs, rhs))
    return Sample((x, y), Convolution(window, ConvDimensionNumbers(*specs), *groups)._asdict())


def is_within(sample: Sample) -> bool:
    """Whether XLA takes it: negative padding does not take away more than there is."""
    given = Convolution(**sample.attributes)
    sizes = (sample.operands[0].shape[d] for d in given.dim_labels.lhs_spec[2:])
    return all(
        w.padding_low + (n - 1) * w.base_dilation + 1 + w.padding_high >= 0
        for w, n in zip(given.window, sizes, strict=True)
    )


TYPES = (np.float32, np.float64, np.complex64, np.int32, np.int8, np.uint16, np.float16, element_type("bf16").dtype)


@pytest.mark.sample(every=2)
@pytest.mark.parametrize("part", range(4))
def test_against_jax(generator: np.random.Generator, part: int) -> None:
    oracle = jax_oracle.oracle("convolution")
    for k in range(12):
        sample = random_sample(generator, TYPES[(12 * part + k) % len(TYPES)])
        if is_within(sample):
            op_checks.check_against(oracle, convolution, sample, scale=4)


@pytest.mark.parametrize("part", range(2))
def test_printed_text_in_xla(generator: np.random.Generator, part: int) -> None:
    """Window reversal and precision, which JAX does not have, and the printed form of all else."""
    for _ in range(10):
        sample = random_sample(generator)
        if is_within(sample):
            exact = Sample(sample.operands, sample.attributes | {"operand_precision": ("highest", "default")})
            text = print_module(Module("sample", op_checks.graph_of(convolution, exact)))
            found = xla_oracle.run(text, exact.operands)
            op_checks.assert_close(op_checks.evaluated(convolution, exact), found, text, scale=4)


@pytest.mark.sample(every=5)
@pytest.mark.parametrize("part", range(4))
def test_compiled(generator: np.random.Generator, part: int) -> None:
    for k in range(12):
        op_checks.check_compiled(tinyxla.jit, convolution, random_sample(generator, TYPES[k % len(TYPES)]))


@pytest.mark.parametrize("part", range(4))
def test_compiled_by_tiles(generator: np.random.Generator, part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Products, in tiles so small that all have several."""
    for name, most in (("_MAX_TILE_POSITIONS", 32), ("_MIN_TILE_POSITIONS", 10), ("_MAX_KC", 32)):
        monkeypatch.setattr(nests, name, most)
    for dtype in (np.float32, np.float64, np.float16):
        op_checks.check_compiled(tinyxla.jit, convolution, random_sample(generator, dtype, features=5))


@pytest.mark.parametrize("part", range(4))
def test_compiled_in_groups_of_few_features(
    generator: np.random.Generator, part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Columns, with places at edges apart even if they are few; and rows of places."""
    for name, least in (("MIN_RANGE_POSITIONS", 1), ("VECTOR_ELEMENTS", 4)):
        monkeypatch.setattr(canonical_convolution, name, least)
    for k in range(6):
        sample = random_sample(generator, (np.float32, np.float64, np.float16)[k % 3], counts=(3, 5, 17))
        op_checks.check_compiled(tinyxla.jit, convolution, sample)


@pytest.mark.sample(every=6)
@pytest.mark.parametrize(
    "window", [(3, 1, 1, 1), (4, 2, 1, 2), (3, 3, 2, 0), (3, 1, 2, 2, 2), (5, 1, 9, 3), (2, 1, -1, -2)]
)
@pytest.mark.parametrize("layout", ["b01f_01io->b01f", "bf01_oi01->f01b"])
@pytest.mark.parametrize("each", [1, 2, 3, 8])
def test_each_feature_alone(
    generator: np.random.Generator, window: tuple[int, ...], layout: str, each: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Value and both cotangents, with one or several features of the result for each of the input."""
    monkeypatch.setattr(canonical_convolution, "MIN_RANGE_POSITIONS", 1)
    labels, sizes = labels_of(layout), ((2, 17, 9, 8), (17 * each, 1, window[0], window[0]))
    x, y = (
        generator.normal(size=tuple(n for _, n in sorted(zip(spec, shape, strict=True)))).astype(np.float32)
        for spec, shape in zip((labels.lhs_spec, labels.rhs_spec), sizes, strict=True)
    )
    d = WindowDimension(*window)

    def all_of(module: Any, numbers: Any) -> Any:
        def call(a: Any, b: Any) -> Any:
            pads, dilation = ((d.padding_low, d.padding_high),) * 2, (d.window_dilation,) * 2
            how = {"dimension_numbers": numbers, "rhs_dilation": dilation, "feature_group_count": 17}
            return module.lax.conv_general_dilated(a, b, (d.stride,) * 2, pads, **how)

        def both(a: Any, b: Any) -> Any:
            value, pullback = module.vjp(call, a, b)
            return (value, *pullback(value))

        return module.jit(both)(x, y)

    for a, b in zip(all_of(tinyxla, labels), all_of(jax, jax.lax.ConvDimensionNumbers(*labels)), strict=True):
        np.testing.assert_allclose(a.numpy(), b, 1e-4, 1e-4 * float(np.abs(b).max()))


@pytest.mark.parametrize("labels", ["bf0_oi0->bf0", "b0f_0io->b0f", "b0f_0io->0bf"])
def test_one_output_feature_of_many_terms(generator: np.random.Generator, labels: str) -> None:
    numbers = labels_of(labels)
    shapes = [
        tuple(n for _, n in sorted(zip(spec, shape, strict=True)))
        for spec, shape in ((numbers.lhs_spec, (3, 40, 9)), (numbers.rhs_spec, (1, 40, 2)))
    ]
    x, y = (generator.normal(size=shape) for shape in shapes)
    attributes = Convolution((WindowDimension(2),), numbers)._asdict()
    op_checks.check_compiled(tinyxla.jit, convolution, Sample((x, y), attributes))


@pytest.mark.sample(every=5)
@pytest.mark.parametrize("layout", ["bf01_oi01->bf01", "b01f_01io->b01f", "b01f_oi01->f01b", "fb10_i01o->b0f1"])
def test_larger_ones(generator: np.random.Generator, layout: str) -> None:
    """Value and both cotangents of a strided convolution, for dimension numbers in which kernels differ; the same bits
    with any number of threads."""
    labels = labels_of(layout)
    sizes = ((3, 6, 17, 15), (8, 6, 3, 4))
    x, y = (
        generator.normal(size=tuple(n for _, n in sorted(zip(spec, shape, strict=True)))).astype(np.float32)
        for spec, shape in zip((labels.lhs_spec, labels.rhs_spec), sizes, strict=True)
    )

    def call(a: Any, b: Any) -> Any:
        return lax.conv_general_dilated(a, b, (2, 1), "SAME", dimension_numbers=labels)

    def all_of(a: Any, b: Any) -> Any:
        value, pullback = tinyxla.vjp(call, a, b)
        return (value, *pullback(value))

    def expected_of(a: Any, b: Any) -> Any:
        numbers = jax.lax.ConvDimensionNumbers(*labels)
        value, pullback = jax.vjp(
            lambda a, b: jax.lax.conv_general_dilated(a, b, (2, 1), "SAME", dimension_numbers=numbers), a, b
        )
        return (value, *pullback(value))

    compiled = tinyxla.jit(all_of)
    told = compiled.lower(x, y).compile().as_text()
    assert "host call" not in told
    with num_threads(1):
        alone = [z.numpy() for z in compiled(x, y)]
    with num_threads(3):
        found = [z.numpy() for z in compiled(x, y)]
    op_checks.assert_equal(found, alone, layout)
    for a, b in zip(found, jax.jit(expected_of)(x, y), strict=True):
        np.testing.assert_allclose(a, b, 1e-4, 1e-4 * float(np.abs(b).max()))


def test_the_printed_kernel(generator: np.random.Generator) -> None:
    """As Python it computes the same, products of matrices included."""
    x, y = (generator.normal(size=shape).astype(np.float32) for shape in ((2, 6, 5, 4), (3, 2, 4, 8)))
    attributes = Convolution((WindowDimension(3), WindowDimension(2, 2)), labels_of("b01f_01io->b01f"))._asdict()
    graph = op_checks.graph_of(convolution, Sample((x, y), attributes))
    (step,) = compile_program(graph, (), lambda *_: None)[0].steps
    assert isinstance(step.work, LoweredKernel)
    names: dict[str, Any] = {}
    exec(print_python(step.work.kernel), names)
    expected = convolution.evaluate(x, y, **attributes)
    found = np.full(expected.size, np.nan, np.float32)
    names[step.work.kernel.name](x.ravel(), y.ravel(), found, 0, step.work.extent, *step.work.parameters)
    np.testing.assert_allclose(found.reshape(expected.shape), expected, 1e-4, 1e-4)


@pytest.mark.parametrize("part", range(3))
def test_derivatives(generator: np.random.Generator, part: int) -> None:
    for _ in range(10):
        sample = random_sample(generator, most=2)
        op_checks.check_forward(convolution, sample, generator)
        op_checks.check_reverse(convolution, sample, generator)


@pytest.mark.parametrize("part", range(3))
def test_batching(generator: np.random.Generator, part: int) -> None:
    for _ in range(8):
        op_checks.check_batch(convolution, random_sample(generator, most=2), size=3)


def test_an_empty_batch() -> None:
    x, y = np.ones((0, 1, 2, 4), np.float32), np.ones((0, 3, 2, 2), np.float32)
    attributes = Convolution((WindowDimension(2),), labels_of("bf0_oi0->bf0"))._asdict()
    found = tinyxla.vmap(lambda a, b: convolution(a, b, **attributes))(x, y)
    assert found.shape == (0, 1, 3, 3)


# --- functions --------------------------------------------------------------------------------------------------------

IMAGE = np.random.default_rng(0).normal(size=(2, 7, 6, 4)).astype(np.float32)
KERNEL = np.random.default_rng(1).normal(size=(3, 2, 4, 6)).astype(np.float32)
GROUPED = KERNEL[:, :, :2]
FIRST = np.ascontiguousarray(IMAGE.transpose(0, 3, 1, 2))
OUT_FIRST = np.ascontiguousarray(KERNEL.transpose(3, 2, 0, 1))
LAST = ("NHWC", "HWIO", "NHWC")
LOCAL = np.random.default_rng(2).normal(size=(3, 5, 24, 6)).astype(np.float32)
CASES: dict[str, tuple[Callable[..., Any], tuple[NumPyArray, ...]]] = {
    "conv": (lambda ns, x, y: ns.conv(x, y, (2, 1), "SAME"), (FIRST, OUT_FIRST)),
    "conv same lower": (lambda ns, x, y: ns.conv(x, y, (1, 2), "SAME_LOWER"), (FIRST, OUT_FIRST)),
    "conv precise": (lambda ns, x, y: ns.conv(x, y, (1, 1), "valid", ns.Precision.HIGHEST), (FIRST, OUT_FIRST)),
    "conv preferred": (
        lambda ns, x, y: ns.conv(x, y, (1, 1), "VALID", preferred_element_type=np.float32),
        (FIRST.astype(element_type("bf16").dtype), OUT_FIRST.astype(element_type("bf16").dtype)),
    ),
    "with general padding": (
        lambda ns, x, y: ns.conv_with_general_padding(x, y, (1, 2), [(1, -1), (0, 2)], (2, 1), (1, 2)),
        (FIRST, OUT_FIRST),
    ),
    "labels": (
        lambda ns, x, y: ns.conv_general_dilated(x, y, (2, 1), "SAME", None, (2, 1), LAST),
        (IMAGE, KERNEL),
    ),
    "labels in another order": (
        lambda ns, x, y: ns.conv_general_dilated(x, y, (2, 1), "SAME", dimension_numbers=("NWHC", "HWIO", "CHNW")),
        (IMAGE, KERNEL),
    ),
    "dimension numbers": (
        lambda ns, x, y: ns.conv_general_dilated(
            x, y, (1, 1), "VALID", dimension_numbers=ns.conv_dimension_numbers(x.shape, y.shape, LAST)
        ),
        (IMAGE, KERNEL),
    ),
    "feature groups": (
        lambda ns, x, y: ns.conv_general_dilated(
            x, y, (1, 1), "SAME", dimension_numbers=LAST, feature_group_count=2, precision="high"
        ),
        (IMAGE, GROUPED),
    ),
    "batch groups": (
        lambda ns, x, y: ns.conv_general_dilated(x, y, (1, 1), "SAME", dimension_numbers=LAST, batch_group_count=2),
        (IMAGE, KERNEL),
    ),
    "no spatial dimensions": (
        lambda ns, x, y: ns.conv_general_dilated(x, y, (), "VALID"),
        (FIRST[:, :, 0, 0], OUT_FIRST[:, :, 0, 0]),
    ),
    "transpose": (lambda ns, x, y: ns.conv_transpose(x, y, (2, 3), "SAME"), (IMAGE, KERNEL)),
    "transpose valid": (lambda ns, x, y: ns.conv_transpose(x, y, (1, 3), "VALID", (2, 1)), (IMAGE, KERNEL)),
    "transpose by tiles": (lambda ns, x, y: ns.conv_transpose(x, y, (3, 2), "VALID"), (IMAGE, KERNEL)),
    "tiles": (
        lambda ns, x, y: ns.conv_general_dilated(x, y, (3, 2), "VALID", dimension_numbers=LAST),
        (IMAGE[:, :6], KERNEL),
    ),
    "transpose padded": (lambda ns, x, y: ns.conv_transpose(x, y, (2, 1), [(1, 2), (0, 0)]), (IMAGE, KERNEL)),
    "transpose of the kernel": (
        lambda ns, x, y: ns.conv_transpose(
            x, y, (2, 2), [(1, 2), (0, 0)], None, LAST, transpose_kernel=True, use_consistent_padding=True
        ),
        (IMAGE, np.ascontiguousarray(KERNEL.transpose(0, 1, 3, 2))),
    ),
    "transpose of one dimension": (lambda ns, x, y: ns.conv_transpose(x, y, (2,), "SAME"), (IMAGE[0], KERNEL[0])),
    "patches": (
        lambda ns, x: ns.conv_general_dilated_patches(x, (3, 2), (2, 1), "SAME", dimension_numbers=LAST),
        (IMAGE,),
    ),
    "patches dilated": (
        lambda ns, x: ns.conv_general_dilated_patches(x, (2, 2), (1, 1), [(0, 1), (2, 0)], (1, 2), (2, 1)),
        (FIRST,),
    ),
    "local": (
        lambda ns, x, y: ns.conv_general_dilated_local(x, y, (2, 1), "VALID", (3, 2), None, None, LAST),
        (IMAGE, LOCAL),
    ),
}


def _same(found: Any, expected: Any, scale: float = 16) -> None:
    op_checks.assert_close([np.asarray(found.numpy())], [np.asarray(expected)], "lax", scale=scale)


@pytest.mark.sample(every=6)
@pytest.mark.parametrize("name", CASES)
def test_function(name: str) -> None:
    call, arrays = CASES[name]
    expected = jax.jit(lambda *xs: call(jax.lax, *xs))(*arrays)
    _same(tinyxla.jit(lambda *xs: call(lax, *xs))(*arrays), expected)
    _same(call(lax, *map(tinyxla.numpy.asarray, arrays)), expected)


@pytest.mark.sample(every=5)
@pytest.mark.parametrize(
    "name", ["labels", "feature groups", "batch groups", "with general padding", "transpose", "tiles"]
)
def test_gradients(name: str) -> None:
    call, arrays = CASES[name]

    def loss(ns: Any, numpy: Any) -> Callable[..., Any]:
        return lambda *xs: numpy.sum(numpy.sin(call(ns, *xs)))

    expected = jax.jit(jax.grad(loss(jax.lax, jax.numpy), (0, 1)))(*arrays)
    found = tinyxla.jit(tinyxla.grad(loss(lax, tinyxla.numpy), (0, 1)))(*arrays)
    for a, b in zip(found, expected, strict=True):
        _same(a, b, scale=64)


@pytest.mark.parametrize("axes", [(0, None), (None, 0), (0, 0)])
def test_vmap(axes: tuple[int | None, int | None]) -> None:
    arrays = [x if a is None else np.stack([x, 2 * x, x - 1]) for x, a in zip((IMAGE, GROUPED), axes, strict=True)]
    call = CASES["feature groups"][0]
    expected = jax.jit(jax.vmap(lambda x, y: call(jax.lax, x, y), axes))(*arrays)
    _same(tinyxla.jit(tinyxla.vmap(lambda x, y: call(lax, x, y), axes))(*arrays), expected, scale=64)


def test_padding_by_name() -> None:
    for name in ("SAME", "SAME_LOWER", "valid"):
        for sizes in (((5, 8), (2, 3), (1, 2)), ((4,), (7,), (3,)), ((), (), ())):
            assert lax.padtype_to_pads(*sizes, name) == jax.lax.padtype_to_pads(*map(np.array, sizes), name)


# --- errors -----------------------------------------------------------------------------------------------------------

F = np.ones((2, 4, 5), np.float32)
K = np.ones((6, 4, 3), np.float32)


def _op(x: Any, y: Any, *window: WindowDimension, labels: str = "bf0_oi0->bf0", **more: Any) -> Any:
    attributes = Convolution(window, labels_of(labels))._asdict() | more
    return convolution(tinyxla.numpy.asarray(x), tinyxla.numpy.asarray(y), **attributes)


THREE = WindowDimension(3)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: _op(F, K.astype(np.int32), THREE), DTypeError, r"one element type, but got f32.* and s32"),
        (lambda: _op(F, K[0], THREE), ShapeError, "a window of 1 dimensions the operands must have 3"),
        (
            lambda: _op(F, K, THREE, dim_labels=ConvDimensionNumbers((0, 0, 1), (0, 1, 2), (0, 1, 2))),
            AttributeValueError,
            r"lhs_spec must name each of the 3 dimensions once, but got \(0, 0, 1\)",
        ),
        (lambda: _op(F, K, WindowDimension(2)), ShapeError, r"the kernel's sizes \(3,\), but it has \(2,\)"),
        (lambda: _op(F, K, WindowDimension(3, 0)), AttributeValueError, "stride must be positive, but got 0"),
        (lambda: _op(F, K[:, :, :0], WindowDimension(0)), AttributeValueError, "size must be positive, but got 0"),
        (
            lambda: _op(F, K, WindowDimension(3, base_dilation=-1)),
            AttributeValueError,
            "base_dilation must be positive, but got -1 in spatial dimension 0",
        ),
        (lambda: _op(F, K[:, :3], THREE), ShapeError, "feature_group_count = 1 times the 3 input features"),
        (
            lambda: _op(F, K[:, :2], THREE, feature_group_count=2, batch_group_count=2),
            AttributeValueError,
            "one of them 1, but got 2 and 2",
        ),
        (lambda: _op(F, K[:5, :2], THREE, feature_group_count=2), ShapeError, "must divide the output features, but"),
        (lambda: _op(F, K, THREE, batch_group_count=3), ShapeError, "divide the elements of the batch, but got 3 and"),
        (lambda: _op(F, K, THREE, operand_precision=("most",)), AttributeValueError, "default, high or highest"),
        (lambda: _op(F, K, THREE, preferred_element_type=element_type("s32")), DTypeError, "cannot be summed in"),
        (lambda: lax.conv(F, K, (1, 1), "SAME"), ArgumentError, "window_strides must have 1 entries"),
        (lambda: lax.conv(F, K, (1,), "TIGHT"), AttributeValueError, "must be VALID, SAME, SAME_LOWER"),
        (lambda: lax.conv(F, K, (1,), 3), ArgumentError, "pair for each dimension, but got 3"),
        (lambda: lax.conv_general_dilated(F, K, (1,), [(1, 1)] * 2), ArgumentError, "must have 1 pairs"),
        (lambda: lax.conv_general_dilated(F, K, (0,), "SAME"), AttributeValueError, "window_strides must be positive"),
        (lambda: lax.conv_general_dilated(F, K, (1,), "SAME", (2,)), AttributeValueError, "see conv_transpose"),
        (lambda: lax.conv(F, K[0], (1,), "SAME"), ShapeError, r"equal ranks of at least 2, but .* and \(4, 3\)"),
        (
            lambda: lax.conv_general_dilated(F, K, (1,), "SAME", dimension_numbers=("NCH", "OIW", "NCH")),
            ArgumentError,
            "the same letters for spatial dimensions in each, but got 'NCH'",
        ),
        (lambda: lax.conv_general_dilated(F, K, (1,), "SAME", dimension_numbers=3), ArgumentError, "three strings or"),
        (lambda: lax.conv(F, K, (1,), "SAME", precision="exact"), ArgumentError, "precision must be None, fastest"),
    ],
)
def test_errors(call: Callable[[], Any], error: type[TinyxlaError], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


# --- what is made of results ------------------------------------------------------------------------------------------


def _numbers(*shapes: tuple[int, ...]) -> list[NumPyArray]:
    random = np.random.default_rng(3)
    return [random.normal(size=shape).astype(np.float32) for shape in shapes]


def _convolved(ns: Any, x: Any, y: Any, **how: Any) -> Any:
    how = {"padding": "VALID", **how}
    strides = how.pop("strides", (1, 1))
    return ns.lax.conv_general_dilated(x, y, strides, **how, dimension_numbers=LAST)


EPILOGUES: dict[str, tuple[int, Callable[..., Any], list[NumPyArray]]] = {
    "bias and relu": (
        1,
        lambda ns, x, y, b: ns.nn.relu(_convolved(ns, x, y) + b),
        _numbers((2, 9, 20, 5), (3, 3, 5, 24), (24,)),
    ),
    "many features": (
        1,
        lambda ns, x, y, b: ns.numpy.tanh(_convolved(ns, x, y) * b),
        _numbers((1, 5, 4, 3), (2, 2, 3, 150), (150,)),
    ),
    "padded": (
        2,
        lambda ns, x, y: ns.nn.relu(_convolved(ns, x, y, padding="SAME")),
        _numbers((2, 9, 9, 8), (3, 3, 8, 16)),
    ),
    "added to the input": (
        1,
        lambda ns, x, y: ns.numpy.exp(x[:, :-2, :-2] + _convolved(ns, x, y)),
        _numbers((2, 9, 9, 8), (3, 3, 8, 8)),
    ),
    "holes": (
        4,
        lambda ns, x, y, b: ns.nn.relu(_convolved(ns, x, y, padding=((0, 0), (0, 0)), lhs_dilation=(2, 2)) - b),
        _numbers((2, 5, 4, 8), (3, 3, 8, 8), (2, 7, 5, 8)),
    ),
    "several results": (
        1,
        lambda ns, x, y: (lambda z: (ns.numpy.sin(z), z > 0))(_convolved(ns, x, y)),
        _numbers((2, 9, 9, 8), (3, 3, 8, 8)),
    ),
    "few places and many terms": (
        3,
        lambda ns, x, y: 2 * _convolved(ns, x, y),
        _numbers((1, 3, 3, 700), (2, 2, 700, 8)),
    ),
    "also the result itself": (
        2,
        lambda ns, x, y: (lambda z: (ns.numpy.sin(z), z))(_convolved(ns, x, y)),
        _numbers((2, 9, 9, 8), (3, 3, 8, 8)),
    ),
    "minus a mean of it": (
        3,
        lambda ns, x, y: (lambda z: z - ns.numpy.mean(z))(_convolved(ns, x, y)),
        _numbers((2, 40, 40, 8), (3, 3, 8, 8)),
    ),
    "moved": (
        2,
        lambda ns, x, y: _convolved(ns, x, y)[:, ::-1] + 1,
        _numbers((2, 9, 9, 8), (3, 3, 8, 8)),
    ),
}


@pytest.mark.sample(every=5)
@pytest.mark.parametrize("name", EPILOGUES)
def test_what_is_made_of_a_result_is_made_with_it(name: str) -> None:
    """The number of kernels, and the same values as JAX's with any number of threads."""
    most, function, operands = EPILOGUES[name]
    compiled = tinyxla.jit(lambda *x: function(tinyxla, *x))
    assert len(compiled.lower(*operands).compile().kernels) <= most
    expected = jax.tree.leaves(jax.jit(lambda *x: function(jax, *x))(*operands))
    for threads in (1, 3):
        with num_threads(threads):
            found = jax.tree.leaves(compiled(*operands), is_leaf=lambda x: hasattr(x, "numpy"))
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a.numpy(), b, 1e-4, 1e-4)


@pytest.mark.parametrize("places", [1, 7, 100, 300])
@pytest.mark.parametrize("features", [4, 15, 16, 33, 64, 65, 200])
def test_tiles_of_all_widths(places: int, features: int) -> None:
    """Rows and columns that do not fill the last tile, and terms that do not fill the last part of the sum."""
    x, y = (x / 10 for x in _numbers((1, places + 1, 260), (2, 260, features)))
    attributes = Convolution((WindowDimension(2),), labels_of("b0f_0io->b0f"))._asdict()
    for dtype in (np.float32, np.float64):
        op_checks.check_compiled(tinyxla.jit, convolution, Sample((x.astype(dtype), y.astype(dtype)), attributes))


@pytest.mark.sample(every=5)
@pytest.mark.parametrize("layout", ["bf01_oi01->bf01", "b01f_01io->b01f", "1bf0_o1i0->f0b1"])
def test_few_features_of_many(generator: np.random.Generator, layout: str) -> None:
    """Without strides: with holes in the input or in the window, and with padding of any kind."""
    labels = labels_of(layout)
    for apart in (1, 1, 2, 3):
        window = tuple(
            WindowDimension(
                size=int(generator.integers(1, 5)),
                padding_low=int(generator.integers(-1, 5)),
                padding_high=int(generator.integers(-1, 5)),
                window_dilation=int(generator.integers(1, 3)) if apart == 1 else 1,
                base_dilation=apart,
            )
            for _ in range(2)
        )
        features, channels = int(generator.integers(1, 4)), int(generator.integers(16, 20))
        sizes = ((2, channels, 5, 6), (features, channels, *(w.size for w in window)))
        x, y = (
            generator.normal(size=tuple(n for _, n in sorted(zip(spec, shape, strict=True)))) / 4
            for spec, shape in zip((labels.lhs_spec, labels.rhs_spec), sizes, strict=True)
        )
        attributes = Convolution(window, labels)._asdict()
        for dtype in (np.float32, np.float64):
            op_checks.check_compiled(tinyxla.jit, convolution, Sample((x.astype(dtype), y.astype(dtype)), attributes))


@pytest.mark.sample(every=5)
@pytest.mark.parametrize("channels", [4, 5, 16, 70, 130])
def test_depthwise(channels: int) -> None:
    """Value and both cotangents, with and without strides."""
    x, y = _numbers((2, 9, 8, channels), (3, 3, 1, channels))
    for strides in ((1, 1), (2, 2)):

        def total(ns: Any, x: Any, y: Any, strides: Any = strides) -> Any:
            found = _convolved(ns, x, y, strides=strides, padding="SAME", feature_group_count=channels)
            return ns.numpy.sum(found**3)

        found = tinyxla.jit(tinyxla.value_and_grad(lambda x, y: total(tinyxla, x, y), (0, 1)))(x, y)
        expected = jax.jit(jax.value_and_grad(lambda x, y: total(jax, x, y), (0, 1)))(x, y)
        for a, b in zip((found[0], *found[1]), (expected[0], *expected[1]), strict=True):
            np.testing.assert_allclose(a.numpy(), b, 1e-3, 1e-3 * float(np.abs(b).max()))


@pytest.mark.sample(every=5)
@pytest.mark.parametrize(
    "sizes", [(16, 8, 8, 12), (9, 3, 4, 10), (7, 2, 2, 5), (33, 4, 8, 6), (5, 3, 6, 4), (3, 2, 4, 23), (2, 3, 5, 19)]
)
def test_groups_of_few_features(sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Value and both cotangents, for widths of which pairs, fours or no places divide the innermost axis; of the last
    sizes, places are vectors, although the features of a group would be enough for products."""
    monkeypatch.setattr(nests, "_MAX_KC", 32)
    groups, inputs, features, width = sizes
    x, y = _numbers((2, 6, width, groups * inputs), (3, 3, inputs, groups * features))

    def total(ns: Any, x: Any, y: Any) -> Any:
        return ns.numpy.sum(_convolved(ns, x, y, strides=(1, 1), padding="SAME", feature_group_count=groups) ** 3)

    found = tinyxla.jit(tinyxla.value_and_grad(lambda x, y: total(tinyxla, x, y), (0, 1)))(x, y)
    expected = jax.jit(jax.value_and_grad(lambda x, y: total(jax, x, y), (0, 1)))(x, y)
    for a, b in zip((found[0], *found[1]), (expected[0], *expected[1]), strict=True):
        np.testing.assert_allclose(a.numpy(), b, 1e-3, 1e-3 * float(np.abs(b).max()))


@pytest.mark.sample(every=6)
@pytest.mark.parametrize(
    "window", [((3, 1, 1, 1), (3, 1, 1, 1)), ((4, 2, 0, 3), (3, 1, -1, 1)), ((2, 3, 1, 1), (5, 2, 2, 1))]
)
@pytest.mark.parametrize("features", [1, 3])
@pytest.mark.parametrize("layout", ["b01f_01io->b01f", "bf01_oi01->bf01"])
def test_gradient_by_a_kernel_of_few_features(
    window: tuple[tuple[int, ...], ...], features: int, layout: str, generator: np.random.Generator
) -> None:
    """The operands change their parts, and places come in the opposite order."""
    labels, pads = labels_of(layout), [d[2:] for d in window]
    sizes = ((2, 5, 13, 12), (features, 5, window[0][0], window[1][0]))
    x, y = (
        generator.normal(size=tuple(n for _, n in sorted(zip(spec, shape, strict=True)))).astype(np.float32)
        for spec, shape in zip((labels.lhs_spec, labels.rhs_spec), sizes, strict=True)
    )

    def gradient(module: Any, numbers: Any) -> Any:
        def total(b: Any) -> Any:
            strides = [d[1] for d in window]
            return (module.lax.conv_general_dilated(x, b, strides, pads, dimension_numbers=numbers) ** 2).sum()

        return module.jit(module.grad(total))(y)

    found, expected = gradient(tinyxla, labels), gradient(jax, jax.lax.ConvDimensionNumbers(*labels))
    np.testing.assert_allclose(found.numpy(), expected, 1e-4, 1e-4 * float(np.abs(expected).max()))


@pytest.mark.sample(every=6)
@pytest.mark.parametrize("layout", ["b01f_01io->b01f", "bf01_oi01->bf01"])
@pytest.mark.parametrize("features", [7, 16])
@pytest.mark.parametrize("taps", [2, 3, 9])
def test_rows_slide_along_terms(
    taps: int, features: int, layout: str, generator: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For results of few features, in parts of the terms, and of widths that are divided, or are not."""
    monkeypatch.setattr(nests, "_MAX_KC", 8)
    labels = labels_of(layout)
    for width, dilation in ((12, 1), (15, 1), (13, 1), (12, 2)):
        sizes = ((2, 5, 6, width + dilation * (taps - 1)), (features, 5, 3, taps))
        x, y = (
            generator.normal(size=tuple(n for _, n in sorted(zip(spec, shape, strict=True))))
            for spec, shape in zip((labels.lhs_spec, labels.rhs_spec), sizes, strict=True)
        )
        attributes = Convolution(
            (WindowDimension(3), WindowDimension(taps, window_dilation=dilation)), labels
        )._asdict()
        for dtype in (np.float32, np.float64):
            op_checks.check_compiled(tinyxla.jit, convolution, Sample((x.astype(dtype), y.astype(dtype)), attributes))


@pytest.mark.sample(every=5)
@pytest.mark.parametrize("has_shortcuts", [False, True])
@pytest.mark.parametrize("is_mean", [False, True])
def test_layers_with_features_first(has_shortcuts: bool, is_mean: bool) -> None:
    """They hand on to one another what they compute with features last."""
    x, y, bias = _numbers((2, 8, 9, 8), (8, 8, 3, 3), (8, 1, 1))

    def layers(ns: Any, x: Any, y: Any, bias: Any) -> Any:
        for _ in range(3):
            found = ns.lax.conv_general_dilated(x, y, (1, 1), "SAME", dimension_numbers=("NCHW", "OIHW", "NCHW"))
            x = ns.numpy.tanh(found / 9 + bias) + (x if has_shortcuts else 0)
        return ns.numpy.mean(x, (2, 3)) if is_mean else x

    found = tinyxla.jit(lambda *given: layers(tinyxla, *given))(x, y, bias)
    np.testing.assert_allclose(found.numpy(), layers(jax, x, y, bias), 1e-4, 1e-4)


# --- bf16 and padding -------------------------------------------------------------------------------------------------


def _bf16_case(random: np.random.Generator) -> tuple[list[NumPyArray], dict[str, Any]]:
    """Operands with an even number of input features, or an odd one, in one order of dimensions or the other."""
    rank, groups = int(random.integers(1, 4)), int(random.choice([1, 1, 2]))
    inputs, features = int(random.choice([2, 3, 4, 6, 20])), int(random.choice([4, 17, 70])) * groups
    sizes, window = random.integers(5, 10, rank).tolist(), random.integers(1, 4, rank).tolist()
    spatial, batch = "DHW"[-rank:], int(random.integers(1, 4))
    if random.integers(0, 2):
        numbers = (f"N{spatial}C", f"{spatial}IO", f"N{spatial}C")
        shapes = [(batch, *sizes, inputs * groups), (*window, inputs, features)]
    else:
        numbers = (f"NC{spatial}", f"OI{spatial}", f"NC{spatial}")
        shapes = [(batch, inputs * groups, *sizes), (features, inputs, *window)]
    arrays = [random.standard_normal(shape).astype(element_type("bf16").dtype) for shape in shapes]
    return arrays, {
        "window_strides": random.integers(1, 3, rank).tolist(),
        "padding": [tuple(random.integers(0, 3, 2).tolist()) for _ in range(rank)],
        "rhs_dilation": random.integers(1, 3, rank).tolist(),
        "dimension_numbers": numbers,
        "feature_group_count": groups,
    }


@pytest.mark.sample(every=5)
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("has_dots", [True, False])
def test_bf16_is_summed_in_f32_and_rounded_once(monkeypatch: pytest.MonkeyPatch, has_dots: bool, seed: int) -> None:
    if not has_dots:
        monkeypatch.setattr("tinyxla.loopir.kernels.gemm.arithmetic.has_feature", lambda name: False)
    random = np.random.default_rng(seed if has_dots else 100 + seed)  # a program is compiled once
    operands, how = _bf16_case(random)
    wide = [x.astype(np.float32) for x in operands]
    exact = np.asarray(jax.lax.conv_general_dilated(*wide, **how))
    found = tinyxla.jit(lambda x, y: lax.conv_general_dilated(x, y, preferred_element_type=np.float32, **how))(
        *operands
    )
    np.testing.assert_allclose(found, exact, rtol=1e-5, atol=1e-4)
    rounded = tinyxla.jit(lambda x, y: lax.conv_general_dilated(x, y, **how))(*operands)
    np.testing.assert_allclose(np.asarray(rounded, np.float32), exact, rtol=2.0**-8, atol=1e-4)


@pytest.mark.skipif(not has_feature("avx512bf16"), reason="this processor has no products of pairs")
def test_bf16_operands_are_read_as_they_are() -> None:
    """No f32 copies of them are made."""
    x, y = (np.zeros(shape, element_type("bf16").dtype) for shape in ((2, 8, 8, 16), (3, 3, 16, 8)))
    program = tinyxla.jit(
        lambda x, y: lax.conv_general_dilated(x, y, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    )
    assert "f32[2," not in program.lower(x, y).compile().as_text()


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.int16, np.complex64, np.bool_, element_type("bf16").dtype])
def test_padding_with_zeros_copies_rows(dtype: Any) -> None:
    random = np.random.default_rng(0)
    for _ in range(12):
        rank = int(random.integers(1, 6))
        sizes = (*random.integers(1, 6, rank - 1).tolist(), int(random.choice([3, 600])))
        config = [(*random.choice([0, 0, 1, 2], 2).tolist(), 0) for _ in range(rank)]
        x = (random.standard_normal(sizes) * 9).astype(dtype)
        found = tinyxla.jit(lambda x, config=config: lax.pad(x, np.zeros((), dtype), config))(x)
        np.testing.assert_array_equal(found, np.pad(x, [c[:2] for c in config]))


@pytest.mark.sample(every=5)
@pytest.mark.parametrize("kind", ["int8", "uint8"])
@pytest.mark.parametrize("labels", [("NHWC", "HWIO", "NHWC"), ("NCHW", "OIHW", "NCHW"), ("HWCN", "WIHO", "CNWH")])
def test_8_bit_integers_are_multiplied_as_matrices(kind: str, labels: tuple[str, str, str]) -> None:
    random, sums = np.random.default_rng(3), np.int32 if kind == "int8" else np.uint32
    limits = np.iinfo(kind)
    x, y = (
        random.integers(limits.min, limits.max, [sizes[c] for c in spec], kind, endpoint=True)
        for spec, sizes in zip(
            labels[:2], ({"N": 2, "C": 5, "H": 9, "W": 8}, {"O": 17, "I": 5, "H": 3, "W": 2}), strict=True
        )
    )
    how: dict[str, Any] = {"window_strides": (2, 1), "padding": [(1, 2), (0, 3)], "rhs_dilation": (1, 2)}
    how |= {"dimension_numbers": labels, "preferred_element_type": sums}
    compiled = tinyxla.jit(lambda x, y: lax.conv_general_dilated(x, y, **how)).lower(x, y).compile()
    assert "dot" in compiled.as_text()
    np.testing.assert_array_equal(compiled(x, y), jax.lax.conv_general_dilated(x, y, **how))
