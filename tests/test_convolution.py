"""Convolutions: against `jax.lax.conv_general_dilated` and XLA over random windows, groups and dimension numbers; all
derivatives and batch rules over the same; the functions of `tinyxla.lax`; and errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax_oracle
import numpy as np
import op_checks
import pytest
import xla_oracle

import tinyxla
from tinyxla import lax
from tinyxla.backends.numba import convolution as nests
from tinyxla.backends.numba import runtime
from tinyxla.errors import ArgumentError, AttributeValueError, DTypeError, ShapeError, TinyxlaError
from tinyxla.hlo import Module
from tinyxla.ops import Sample, elementwise
from tinyxla.ops.convolution import ConvDimensionNumbers, Convolution, convolution, labels_of
from tinyxla.shapes import WindowDimension, element_type
from tinyxla.text import print_module

NumPyArray = np.ndarray[Any, Any]


def random_sample(random: np.random.Generator, dtype: Any = np.float32, most: int = 3, features: int = 1) -> Sample:
    """Any number of spatial dimensions up to `most`, with all that a window can have, and groups of either kind;
    features are multiples of a number."""
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
    groups[int(random.integers(0, 2))] = int(random.choice([1, 1, 2, 3]))
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


@pytest.mark.parametrize("part", range(4))
def test_compiled(generator: np.random.Generator, part: int) -> None:
    for k in range(12):
        op_checks.check_compiled(tinyxla.jit, convolution, random_sample(generator, TYPES[k % len(TYPES)]))


@pytest.mark.parametrize("part", range(4))
def test_compiled_by_tiles(generator: np.random.Generator, part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the BLAS gets, in tiles so small that all have several."""
    monkeypatch.setattr(nests, "_TILE_BYTES", 1 << 12)
    monkeypatch.setattr(nests, "_MOST_TERMS", 24)
    for dtype in (np.float32, np.float64, np.complex64, np.float16):
        op_checks.check_compiled(tinyxla.jit, convolution, random_sample(generator, dtype, features=5))


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
    assert "host call" not in compiled.lower(x, y).compile().as_text()
    with runtime.threads(1):
        alone = [z.numpy() for z in compiled(x, y)]
    with runtime.threads(3):
        found = [z.numpy() for z in compiled(x, y)]
    op_checks.assert_equal(found, alone, layout)
    for a, b in zip(found, jax.jit(expected_of)(x, y), strict=True):
        np.testing.assert_allclose(a, b, 1e-4, 1e-4 * float(np.abs(b).max()))


def test_the_printed_kernel(generator: np.random.Generator) -> None:
    """As Python it computes the same, products of matrices included."""
    x, y = (generator.normal(size=shape).astype(np.float32) for shape in ((2, 6, 5, 4), (3, 2, 4, 8)))
    compiled = tinyxla.jit(lambda x, y: lax.conv_general_dilated(x, y, (1, 2), "VALID", dimension_numbers=LAST))
    (kernel,) = compiled.lower(x, y).compile().kernels
    names: dict[str, Any] = {}
    exec(kernel.source, names)
    expected = compiled(x, y).numpy()
    found = np.full(expected.size, np.nan, np.float32)
    names[kernel.name](x.ravel(), y.ravel(), found, 0, kernel.extent)
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


@pytest.mark.parametrize("name", CASES)
def test_function(name: str) -> None:
    call, arrays = CASES[name]
    expected = jax.jit(lambda *xs: call(jax.lax, *xs))(*arrays)
    _same(tinyxla.jit(lambda *xs: call(lax, *xs))(*arrays), expected)
    _same(call(lax, *map(tinyxla.numpy.asarray, arrays)), expected)


@pytest.mark.parametrize("name", ["labels", "feature groups", "batch groups", "with general padding", "transpose"])
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
        (lambda: lax.conv(F, K, (1,), "SAME", precision="exact"), ArgumentError, "precision must be None, default"),
    ],
)
def test_errors(call: Callable[[], Any], error: type[TinyxlaError], message: str) -> None:
    with pytest.raises(error, match=message):
        call()
