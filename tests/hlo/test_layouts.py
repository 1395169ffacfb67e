"""Layouts: where elements are in memory, results laid out as asked, and memory read in another layout (bitcasts)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from jax.experimental import layout as jax_layout

import tinyxla as tx
from tests.support import xla_oracle
from tinyxla import errors, xla
from tinyxla.shapes import Layout, Shape, TupleShape, element_type
from tinyxla.text import parse_hlo, print_module

BACKENDS = ("numba", "interpreter")
make, of_shape = xla.LayoutUtil.MakeLayout, xla.ShapeUtil.MakeShapeWithLayout


def numbers(sizes: Sequence[int], dtype: Any = np.int32) -> Any:
    return np.arange(math.prod(sizes)).reshape(sizes).astype(dtype)


def in_order(x: Any, minor_to_major: Sequence[int]) -> bool:
    """Whether an array lies in memory with its dimensions in this order, without gaps."""
    return bool(np.asarray(x).transpose(tuple(reversed(minor_to_major))).flags.c_contiguous)


# --- places -----------------------------------------------------------------------------------------------------------


@st.composite
def layouts(draw: Any) -> tuple[tuple[int, ...], Layout]:
    """Sizes, and a layout with any of an order, padding, and tiles that cut and take together."""
    sizes = tuple(draw(st.lists(st.integers(0, 4), max_size=4)))
    order = draw(st.permutations(range(len(sizes))))
    padded = [n + draw(st.integers(0, 2)) for n in sizes] if draw(st.booleans()) else []
    tiles: list[list[int]] = []
    dimensions = len(sizes)
    for _ in range(draw(st.integers(0, 2))):
        tile = [draw(st.sampled_from([-1, 1, 2, 3])) for _ in range(draw(st.integers(0, min(dimensions, 3))))]
        if tile:
            tile[-1] = abs(tile[-1])
        tiles.append(tile)
        dimensions += len(tile) - 2 * tile.count(-1)
    return sizes, make(order, tiles, padded, -7)


def place(index: Sequence[int], sizes: Sequence[int], tiles: Sequence[Sequence[int]]) -> tuple[int, int]:
    """The place of an index, and how many there are, by the formulas of "Tiled layout"."""
    index, sizes = list(index), list(sizes)
    if not tiles:
        return sum(i * math.prod(sizes[d + 1 :]) for d, i in enumerate(index)), math.prod(sizes)
    first, rest = tiles[0], tiles[1:]
    tile = [1] * (len(sizes) - len(first)) + list(first)  # a tile of one element cuts nothing
    k = 0
    while k < len(tile):
        if tile[k] == -1:
            index[k : k + 2] = [index[k] * sizes[k + 1] + index[k + 1]]
            sizes[k : k + 2] = [sizes[k] * sizes[k + 1]]
            del tile[k]
        else:
            k += 1
    cut = len(tile) - (len(first) - list(first).count(-1))
    inside = tile[cut:]
    found = [i // t for i, t in zip(index, tile, strict=True)] + [
        i % t for i, t in zip(index[cut:], inside, strict=True)
    ]
    return place(found, [-(-n // t) for n, t in zip(sizes, tile, strict=True)] + inside, rest)


@settings(max_examples=120, deadline=None)
@given(layouts())
def test_places(example: tuple[tuple[int, ...], Layout]) -> None:
    """Indices and places of elements correspond one to one; all other places are padding."""
    sizes, layout = example
    shape, values = of_shape(xla.S32, sizes, layout), numbers(sizes)
    linear = xla.LiteralUtil.LinearValues(values, layout)
    np.testing.assert_array_equal(xla.LiteralUtil.FromLinearValues(shape, linear), values)
    order = tuple(reversed(layout.minor_to_major))
    physical = [(layout.padded_dimensions or sizes)[d] for d in order]
    found: set[int] = set()
    for index in np.ndindex(*sizes):
        at = xla.IndexUtil.MultidimensionalIndexToLinearIndex(shape, index)
        assert (at, linear.size) == place([index[d] for d in order], physical, layout.tiles)
        assert linear[at] == values[index]
        assert xla.IndexUtil.LinearIndexToMultidimensionalIndex(shape, at) == list(index)
        found.add(at)
    assert len(found) == values.size
    for at in set(range(linear.size)) - found:
        assert linear[at] == -7
        with pytest.raises(errors.OutOfBoundsError, match="padding"):
            xla.IndexUtil.LinearIndexToMultidimensionalIndex(shape, at)
    for at in (-1, linear.size):
        with pytest.raises(errors.OutOfBoundsError):
            xla.IndexUtil.LinearIndexToMultidimensionalIndex(shape, at)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 4), max_size=4).flatmap(lambda n: st.tuples(st.just(n), st.permutations(range(len(n))))))
def test_orders_are_those_of_numpy(example: tuple[list[int], list[int]]) -> None:
    sizes, order = example
    values, layout = numbers(sizes), make(order)
    linear = xla.LiteralUtil.LinearValues
    np.testing.assert_array_equal(linear(values, layout), values.transpose(order[::-1]).ravel())
    np.testing.assert_array_equal(linear(values), values.ravel("C"))
    np.testing.assert_array_equal(linear(values, xla.LayoutUtil.MakeAscendingLayout(len(sizes))), values.ravel("F"))
    inverse = np.argsort(order[::-1])
    laid_out = values.transpose(order[::-1]).copy().transpose(inverse)
    shape = of_shape(xla.S32, sizes, layout)
    strides = [xla.IndexUtil.GetDimensionStride(shape, d) * 4 for d in range(len(sizes))]
    assert all(n == 1 or a == b for n, a, b in zip(sizes, strides, laid_out.strides, strict=True))
    for linear_index in range(values.size):
        at = np.unravel_index(linear_index, [sizes[d] for d in order[::-1]]) if sizes else ()
        index = xla.IndexUtil.LinearIndexToMultidimensionalIndex(shape, linear_index)
        assert index == [int(at[inverse[d]]) for d in range(len(sizes))]


def test_examples_of_the_page_on_tiles() -> None:
    """Figures 1 and 2, the element with the red dot, and dimensions that are taken together."""
    to_linear = xla.IndexUtil.MultidimensionalIndexToLinearIndex
    assert to_linear(of_shape(xla.F32, [3, 5], make([1, 0], [[2, 2]])), [2, 3]) == 17
    assert to_linear(of_shape(xla.BF16, [8, 8], make([1, 0], [[2, 4], [2, 1, 1, 1]])), [6, 5]) == 51
    figure = of_shape(xla.S32, [4, 8], make([1, 0], [[2, 4], [2, 1]]))
    assert figure.text() == "s32[4,8]{1,0:T(2,4)(2,1)}"
    rows = xla.LiteralUtil.FromLinearValues(figure, range(32)).tolist()
    assert rows[:2] == [[0, 2, 4, 6, 8, 10, 12, 14], [1, 3, 5, 7, 9, 11, 13, 15]]
    assert rows[2][0] == 16
    together = of_shape(xla.S32, [2, 7, 8, 11, 10], make([4, 3, 2, 1, 0], [[-1, -1, 2, -1, 3]]))
    apart = of_shape(xla.S32, [112, 110], make([1, 0], [[2, 3]]))
    assert together.text() == "s32[2,7,8,11,10]{4,3,2,1,0:T(*,*,2,*,3)}"
    values = numbers([112, 110])
    linear = xla.LiteralUtil.LinearValues(values.reshape(together.dimensions), together.layout)
    np.testing.assert_array_equal(linear, xla.LiteralUtil.LinearValues(values, apart.layout))


def test_padding_inside_tiles_is_no_element() -> None:
    """The second tile pads the first one, so a place may look like one of the next tile."""
    shape = of_shape(xla.S32, [4, 6], make([1, 0], [[4, 3], [2, 2]]))
    linear = xla.LiteralUtil.LinearValues(numbers([4, 6]) + 1, shape.layout)
    assert linear.size == 32
    with pytest.raises(errors.OutOfBoundsError, match="5 is in its padding"):
        xla.IndexUtil.LinearIndexToMultidimensionalIndex(shape, 5)
    assert linear[5] == 0


@pytest.mark.parametrize(
    ("padding", "kind", "expected"),
    [
        ("ZERO_PAD", xla.F32, 0.0),
        ("ONE_PAD", xla.BF16, 1.0),
        ("LOWEST_PAD", xla.F32, -np.inf),
        ("HIGHEST_PAD", xla.S8, 127),
        ("UNKNOWN_PAD", xla.PRED, False),
        (-1, xla.S32, -1),
        (True, xla.PRED, True),
        (np.float16(0.5), xla.F16, 0.5),
    ],
)
def test_padding_values(padding: Any, kind: Any, expected: Any) -> None:
    value = xla.PaddingValue[padding] if isinstance(padding, str) else padding
    linear = xla.LiteralUtil.LinearValues(np.ones(2, kind.dtype), make([0], padded_dimensions=[3], padding_value=value))
    assert linear.tolist() == [1, 1, expected]


def test_dimension_numbers() -> None:
    shape = xla.ShapeUtil.MakeShape(xla.F32, [4, 1, 3])
    assert [xla.ShapeUtil.GetDimensionNumber(shape, d) for d in (-1, -2, -3, 2)] == [2, 1, 0, 2]
    assert [xla.ShapeUtil.GetDimension(shape, d) for d in (-1, -2, -3)] == [3, 1, 4]
    assert xla.ShapeUtil.TrueRank(shape) == 2
    assert xla.IndexUtil.GetDimensionStride(shape, -1) == 1
    dynamic = xla.ShapeUtil.MakeShape(xla.F32, [4, 1, 3], [True, False, False])
    laid_out = xla.LayoutUtil.WithLayout(dynamic, make([0, 1, 2]))
    assert laid_out.text() == "f32[<=4,1,3]{0,1,2}"


# --- results ----------------------------------------------------------------------------------------------------------

ARGUMENTS: list[Callable[[Any], Any]] = [
    lambda x: x,
    np.asfortranarray,
    lambda x: x[::-1, :, ::-1][::-1, :, ::-1],  # strides from back to front
    lambda x: np.repeat(x, 2, 1)[:, ::2],  # with gaps
    lambda x: np.broadcast_to(x[:, :1], x.shape),
    lambda x: tx.numpy.asarray(x).T.T,
]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_results_of_modules(order: tuple[int, ...], backend: str) -> None:
    """In the layout that the head of the text asks for, whatever that of the root and of arguments."""
    layouts_ = ",".join(map(str, order))
    text = f"""
    HloModule laid_out, entry_computation_layout={{(f32[2,3,4]{{0,2,1}})->f32[4,2,3]{{{layouts_}}}}}

    ENTRY main {{
      x = f32[2,3,4]{{0,2,1}} parameter(0)
      y = f32[4,2,3]{{0,1,2}} transpose(x), dimensions={{2,0,1}}
      ROOT z = f32[4,2,3]{{1,0,2}} multiply(y, y)
    }}
    """
    module = parse_hlo(text)
    assert print_module(parse_hlo(print_module(module))) == print_module(module)
    for lay in ARGUMENTS:
        x = lay(numbers([2, 3, 4], np.float32))
        found = module(x, backend=backend)
        np.testing.assert_array_equal(found, np.asarray(x).transpose(2, 0, 1) ** 2)
        assert in_order(found, order)
        assert np.asarray(found).size == 24


@pytest.mark.parametrize("backend", BACKENDS)
def test_results_of_builders(backend: str) -> None:
    """In the layout given to `Build`, else in that of the root; a parameter that is the result too."""
    builder = xla.XlaBuilder("laid_out")
    x = xla.Parameter(builder, 0, of_shape(xla.F32, [2, 3], [0, 1]), "x")
    plain = xla.Parameter(builder, 1, xla.ShapeUtil.MakeShape(xla.F32, [2, 3]), "y")
    both = xla.Tuple(builder, [x, xla.Tuple(builder, [plain, xla.Add(plain, plain)])])
    given = [np.ones((2, 3), np.float32), numbers([2, 3], np.float32)]
    column = of_shape(xla.F32, [2, 3], [0, 1])
    asked = xla.ShapeUtil.MakeTupleShape(
        [xla.ShapeUtil.MakeShape(xla.F32, [2, 3]), xla.ShapeUtil.MakeTupleShape([column, column])]
    )
    for wanted, orders in ((None, ([0, 1], [1, 0], [1, 0])), (asked, ([1, 0], [0, 1], [0, 1]))):
        made = builder.Build(both, result_layout=wanted)
        first, (second, third) = made(*given, backend=backend)
        for found, expected, order in zip(
            (first, second, third), (given[0], given[1], 2 * given[1]), orders, strict=True
        ):
            np.testing.assert_array_equal(found, expected)
            assert in_order(found, order)
        again = parse_hlo(str(made))(*given, backend=backend)
        assert [in_order(found, order) for found, order in zip(again, orders, strict=True)] == [True] * 3
        assert made.GetProgramShape().result_shape.text() == (wanted or both.shape).text()
    alone = builder.Build(plain, result_layout=column)
    assert in_order(alone(*given, backend=backend), [0, 1])
    assert "ROOT copy.1 = f32[2,3]{0,1} copy(y)" in str(alone)
    jitted = tx.jit(lambda x, y: alone(x, y).sum())
    assert float(jitted(*given)) == 15
    np.testing.assert_array_equal(tx.grad(jitted, argnums=1)(*map(tx.numpy.asarray, given)), np.ones((2, 3)))


@pytest.mark.parametrize("backend", BACKENDS)
def test_padded_results(backend: str) -> None:
    """An array has no padding; its values in memory do, as a literal's."""
    layout = make([0, 1], padded_dimensions=[3, 5], padding_value=xla.PaddingValue.ONE_PAD)
    builder = xla.XlaBuilder("padded")
    x = xla.Parameter(builder, 0, xla.ShapeUtil.MakeShape(xla.S32, [2, 3]))
    negated = builder.Build(xla.Neg(x), result_layout=of_shape(xla.S32, [2, 3], layout))
    found = negated(numbers([2, 3]), backend=backend)
    assert found.shape == (2, 3)
    assert in_order(found, [0, 1])
    chosen = negated.GetProgramShape().result_shape.layout
    assert xla.LiteralUtil.LinearValues(found, chosen).tolist() == [0, -3, 1, -1, -4, 1, -2, -5, *[1] * 7]


@pytest.mark.parametrize("backend", BACKENDS)
def test_results_without_elements_and_of_late_sizes(backend: str) -> None:
    text = """
    HloModule m, entry_computation_layout={
      (f32[<=4,3]{1,0}, f32[0,2]{1,0}, f32[])->(f32[<=4,3]{0,1}, /*index=1*/f32[0,2]{0,1}, f32[])}

    ENTRY main {
      x = f32[<=4,3]{1,0} parameter(0)
      y = f32[0,2]{1,0} parameter(1)
      z = f32[] parameter(2)
      w = f32[<=4,3]{1,0} negate(x)
      ROOT all = (f32[<=4,3]{1,0}, f32[0,2]{1,0}, f32[]) tuple(w, y, z)
    }
    """
    x = numbers([2, 3], np.float32)
    negative, empty, scalar = parse_hlo(text)(x, np.zeros((0, 2), np.float32), np.float32(1), backend=backend)
    np.testing.assert_array_equal(negative, -x)
    assert in_order(negative, [0, 1])
    assert (empty.shape, float(scalar)) == ((0, 2), 1.0)


def test_kernels_write_in_the_order_that_is_asked_for() -> None:
    """The change of order is no pass over memory of its own."""
    head = "HloModule m, entry_computation_layout={(f32[64,32]{1,0})->f32[64,32]{0,1}}"
    body = "ENTRY e { x = f32[64,32] parameter(0) y = f32[64,32] sine(x) ROOT z = f32[64,32] multiply(y, y) }"
    module = parse_hlo(f"{head}\n{body}")
    x = np.random.default_rng(0).normal(size=(64, 32)).astype(np.float32)
    np.testing.assert_allclose(module(x, backend="numba"), np.sin(x) ** 2, rtol=1e-5)
    assert len(module.prepared["numba"].kernels) == 1


# --- memory read in another layout ------------------------------------------------------------------------------------


@st.composite
def bitcasts(draw: Any) -> tuple[Any, ...]:
    count = draw(st.sampled_from([1, 6, 12, 16]))

    def sizes() -> tuple[int, ...]:
        left, found = count, []
        while left > 1:
            found.append(draw(st.sampled_from([n for n in range(2, left + 1) if left % n == 0])))
            left //= found[-1]
        return (*found, *[1] * draw(st.integers(0, 1)))

    before, after = sizes(), sizes()
    orders = [draw(st.permutations(range(len(n)))) for n in (before, after)]
    return before, orders[0], after, orders[1]


def _listed(values: Sequence[int]) -> str:
    return ",".join(map(str, values))


@settings(max_examples=40, deadline=None)
@given(bitcasts())
def test_bitcasts(example: tuple[Any, ...]) -> None:
    """The operand's elements in the order of its memory are those of the result in the order of its own."""
    before, order, after, new_order = example
    text = f"""
    HloModule m

    ENTRY main {{
      x = s32[{_listed(before)}] parameter(0)
      y = s32[{_listed(before)}]{{{_listed(order)}}} copy(x)
      z = s32[{_listed(before)}]{{{_listed(order)}}} negate(y)
      w = f32[{_listed(after)}]{{{_listed(new_order)}}} bitcast(z)
      ROOT back = s32[{_listed(after)}]{{{_listed(new_order)}}} bitcast(w)
    }}
    """
    module, x = parse_hlo(text), numbers(before)
    shapes = [of_shape(xla.S32, n, o) for n, o in ((before, order), (after, new_order))]
    expected = xla.LiteralUtil.FromLinearValues(shapes[1], xla.LiteralUtil.LinearValues(-x, shapes[0].layout))
    found = module(x, backend="interpreter")
    np.testing.assert_array_equal(found, expected)
    assert in_order(found, new_order)


@pytest.mark.parametrize("backend", BACKENDS)
def test_bitcasts_inside_computations(backend: str) -> None:
    """In a fusion, whose parameters have layouts of their own, and in a loop."""
    text = """
    HloModule m

    fused {
      p = f32[2,3]{0,1} parameter(0)
      q = f32[3,2]{1,0} bitcast(p)
      ROOT r = f32[3,2]{1,0} add(q, q)
    }

    body {
      s = (s32[], f32[2,3]{0,1}) parameter(0)
      i = s32[] get-tuple-element(s), index=0
      a = f32[2,3]{0,1} get-tuple-element(s), index=1
      one = s32[] constant(1)
      next = s32[] add(i, one)
      flat = f32[6]{0} bitcast(a)
      turned = f32[6]{0} reverse(flat), dimensions={0}
      b = f32[2,3]{0,1} bitcast(turned)
      ROOT t = (s32[], f32[2,3]{0,1}) tuple(next, b)
    }

    condition {
      s = (s32[], f32[2,3]{0,1}) parameter(0)
      i = s32[] get-tuple-element(s), index=0
      three = s32[] constant(3)
      ROOT c = pred[] compare(i, three), direction=LT
    }

    ENTRY main {
      x = f32[2,3]{1,0} parameter(0)
      y = f32[2,3]{0,1} copy(x)
      zero = s32[] constant(0)
      start = (s32[], f32[2,3]{0,1}) tuple(zero, y)
      loop = (s32[], f32[2,3]{0,1}) while(start), condition=condition, body=body
      z = f32[2,3]{0,1} get-tuple-element(loop), index=1
      ROOT w = f32[3,2]{1,0} fusion(z), kind=kLoop, calls=fused
    }
    """
    x = numbers([2, 3], np.float32)
    turned = x.ravel("F")[::-1].reshape((2, 3), order="F")
    np.testing.assert_array_equal(parse_hlo(text)(x, backend=backend), 2 * turned.T)


def test_bitcasts_of_mapped_modules_are_printed() -> None:
    """The operand that mapping makes is in another layout, so a copy stands before the bitcast."""
    text = """
    HloModule m

    ENTRY main {
      x = f32[2,3]{0,1} parameter(0)
      ROOT y = f32[3,2]{0,1} bitcast(x)
    }
    """
    module = parse_hlo(text)
    mapped, x = tx.jit(tx.vmap(module)), numbers([4, 2, 3], np.float32)
    expected = [v.ravel("F").reshape((3, 2), order="F") for v in x]
    np.testing.assert_array_equal(mapped(x), expected)
    text = mapped.lower(x).as_text()
    assert "f32[4,2,3]{1,2,0} copy(" in text
    (found,) = parse_hlo(text)(x)
    np.testing.assert_array_equal(found, expected)


Order = tuple[int, ...]
COMPILED: list[tuple[Callable[..., Any], list[tuple[Order, Order]], Order]] = [  # orders are from major to minor
    (lambda x: x.T, [((2, 3), (0, 1))], (1, 0)),
    (lambda x: jnp.transpose(x, (2, 0, 1)) + 1, [((2, 3, 4), (1, 0, 2))], (0, 2, 1)),
    (lambda x: x.reshape(6, 4).T * 2, [((2, 3, 4), (2, 0, 1))], (1, 0)),
    (lambda x: jnp.sort(x, 0)[::2], [((4, 5), (1, 0))], (1, 0)),
    (lambda x: x[jnp.array([2, 0, 1])], [((4, 5), (1, 0))], (1, 0)),
    (lambda x, y: jnp.einsum("bij,bkj->kbi", x, y), [((2, 3, 4), (1, 0, 2)), ((2, 5, 4), (2, 1, 0))], (1, 2, 0)),
    (lambda x: jnp.concatenate([x, x[::-1]], 1).sum(2), [((2, 3, 4), (2, 0, 1))], (1, 0)),
]


@pytest.mark.parametrize("number", range(len(COMPILED)))
def test_modules_that_xla_has_laid_out(number: int) -> None:
    """XLA's optimised texts, in which transposes and reshapes have become bitcasts between layouts."""
    function, operands, order = COMPILED[number]
    device = jax.sharding.SingleDeviceSharding(jax.devices("cpu")[0])

    def wanted(order: Order) -> Any:
        return jax_layout.Format(jax_layout.Layout(order), device)

    jitted = jax.jit(function, in_shardings=tuple(wanted(o) for _, o in operands), out_shardings=wanted(order))
    random = np.random.default_rng(number)
    given = [random.normal(size=sizes).astype(np.float32) for sizes, _ in operands]
    compiled = jitted.lower(*given).compile()
    module = parse_hlo(compiled.as_text())
    expected = np.asarray(compiled(*(jax.device_put(x, wanted(o)) for x, (_, o) in zip(given, operands, strict=True))))
    for backend in BACKENDS:
        found = module(*given, backend=backend)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
        assert in_order(found, order[::-1])


# --- literals ---------------------------------------------------------------------------------------------------------


def test_literals_with_layouts() -> None:
    """In text, values are in logical order whatever the layout, inside tuples too."""
    text = """
    HloModule m

    ENTRY main {
      c = s32[2,3]{0,1} constant({ { 1, 2, 3 }, { 4, 5, 6 } })
      i = s32[2,3]{0,1} iota(), iota_dimension=1
      ROOT r = s32[2,3]{0,1} multiply(c, i)
    }
    """
    (expected,) = xla_oracle.run(text, [])
    tupled = text.replace(
        "c = s32[2,3]{0,1} constant({ { 1, 2, 3 }, { 4, 5, 6 } })",
        "t = (s32[], s32[2,3]{0,1}) constant((7, { { 1, 2, 3 }, { 4, 5, 6 } }))\n"
        "c = s32[2,3]{0,1} get-tuple-element(t), index=1",
    )
    for module in map(parse_hlo, (text, tupled)):
        for backend in BACKENDS:
            found = module(backend=backend)
            np.testing.assert_array_equal(found, expected)
            assert in_order(found, [0, 1])


def test_results_that_are_constants_are_dense() -> None:
    """A compiled function may rely on that, whatever the strides of the array that was captured."""
    strided = numbers([2, 3]).T
    constant = tx.jit(lambda: tx.numpy.asarray(strided))()
    np.testing.assert_array_equal(tx.jit(lambda x: x + 1)(constant), strided + 1)


@pytest.mark.parametrize("backend", BACKENDS)
def test_constants_of_builders(backend: str) -> None:
    values = numbers([2, 3, 4])
    for order in itertools.permutations(range(3)):
        builder = xla.XlaBuilder("constant")
        constant = xla.ConstantLiteral(builder, values.transpose(2, 0, 1).copy().transpose(1, 2, 0), make(order))
        assert constant.shape.text() == f"s32[2,3,4]{{{_listed(order)}}}"
        found = builder.Build()(backend=backend)
        np.testing.assert_array_equal(found, values)
        assert in_order(found, order)


@pytest.mark.parametrize(
    ("text", "ours"),
    [
        ("f32[2,3]{0,1}", None),
        ("f32[2,3]{1,0:T(8,128)}", None),
        ("bf16[2,3]{1,0:T(8,128)(2,1)}", None),
        ("bf16[2,3]{1,0:T(8,128)(2,1)S(1)}", "bf16[2,3]{1,0:T(8,128)(2,1)}"),
        ("s4[2,3]{0,1:T(2,2)E(4)}", "s4[2,3]{0,1:T(2,2)}"),
        ("f32[2,3,4]{2,1,0:T(*,2,2)}", None),
    ],
)
def test_text(text: str, ours: str | None) -> None:
    """As XLA has it, but for what there is no memory for here."""
    module = f"HloModule m\n\nENTRY e {{\n  ROOT p = {text} parameter(0)\n}}\n"
    assert f"ROOT %p = {text} parameter(0)" in xla_oracle.parse(module).to_string()
    assert f"ROOT p = {ours or text} parameter(0)" in print_module(parse_hlo(module))


# --- errors -----------------------------------------------------------------------------------------------------------


def _build(result_layout: Any) -> Any:
    builder = xla.XlaBuilder("b")
    xla.Parameter(builder, 0, xla.ShapeUtil.MakeShape(xla.F32, [2, 3]))
    return builder.Build(result_layout=result_layout)


MISTAKES: list[tuple[type[Exception], str, Callable[[], Any]]] = [
    (errors.ShapeError, r"each of 0 to 2 once, but is \[0, 2, 2\]", lambda: make([0, 2, 2])),
    (errors.ShapeError, r"each of 0 to 1 once, but is \[1, 2\]", lambda: Layout((1, 2))),
    (errors.ShapeError, r"positive sizes.* but is \[2, 0\]", lambda: make([1, 0], [[2, 0]])),
    (errors.ShapeError, r"but is \[2, -1\]", lambda: make([1, 0], [[2, -1]])),
    (errors.ShapeError, r"each of the 2 dimensions, but is \[3\]", lambda: make([1, 0], [], [3])),
    (errors.ArgumentError, "minor_to_major must be a list of integers", lambda: make([0.5])),
    (errors.ShapeError, r"2 dimensions of f32\[2,3\], but is \[0\]", lambda: of_shape(xla.F32, [2, 3], [0])),
    (
        errors.ShapeError,
        r"each dimension of f32\[2,3\] a size no less than its own, but is \[2, 2\]",
        lambda: of_shape(xla.F32, [2, 3], make([0, 1], padded_dimensions=[2, 2])),
    ),
    (
        errors.ShapeError,
        r"no more sizes than the 1 dimensions .* f32\[3\], but is \[2, 2\]",
        lambda: of_shape(xla.F32, [3], make([0], [[2, 2]])),
    ),
    (
        errors.DTypeError,
        "padding_value must be s32.*0.5",
        lambda: of_shape(xla.S32, [3], make([0], padded_dimensions=[4], padding_value=0.5)),
    ),
    (
        errors.DTypeError,
        r"padding_value must be f32\[\], but is f64\[\]",
        lambda: of_shape(xla.F32, [3], make([0], padded_dimensions=[4], padding_value=np.float64(1))),
    ),
    (
        errors.NumberRangeError,
        "300 does not fit",
        lambda: of_shape(xla.U8, [3], make([0], padded_dimensions=[4], padding_value=300)),
    ),
    (
        errors.ArgumentError,
        "must be one of .*ZERO_PAD.* but is INVALID_PAD",
        lambda: of_shape(xla.F32, [3], make([0], padding_value=xla.PaddingValue.INVALID_PAD)),
    ),
    (errors.ArgumentError, "must be of type Layout", lambda: xla.LiteralUtil.LinearValues([1, 2], (0,))),
    (errors.ShapeError, "out of range", lambda: xla.LayoutUtil.Minor(make([0, 1]), 2)),
    (errors.ShapeError, "out of range", lambda: xla.LayoutUtil.Major(make([0, 1]), 2)),
    (
        errors.ShapeError,
        "no one distance",
        lambda: xla.IndexUtil.GetDimensionStride(of_shape(xla.F32, [3], make([0], [[2]])), 0),
    ),
    (
        errors.ArgumentError,
        "linear_index must be a list of integers",
        lambda: xla.IndexUtil.LinearIndexToMultidimensionalIndex(Shape(element_type("f32"), (2,)), 0.5),
    ),
    (
        errors.ShapeError,
        r"result_layout must be the shape f32\[2,3\] of the root in some layout, but is f32\[3,2\]",
        lambda: _build(of_shape(xla.F32, [3, 2], [0, 1])),
    ),
    (errors.ShapeError, r"but is \(f32\[2,3\]\)", lambda: _build(TupleShape((of_shape(xla.F32, [2, 3], [0, 1]),)))),
    (
        errors.ShapeError,
        "layout must be that of an array",
        lambda: xla.ConstantLiteral(xla.XlaBuilder("b"), (1, 2), make([])),
    ),
    (
        errors.ArgumentError,
        "ConstantLiteral: layout must be of type Layout",
        lambda: xla.ConstantLiteral(xla.XlaBuilder("b"), np.ones((2, 3)), [0, 1]),
    ),
]


@pytest.mark.parametrize("number", range(len(MISTAKES)))
def test_mistakes(number: int) -> None:
    kind, message, act = MISTAKES[number]
    with pytest.raises(kind, match=message) as caught:
        act()
    line = getattr(caught.value, "line", None)
    assert line is not None
    assert line.file == __file__


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ("{(f32[2,3]{0,1})->f32[3,2]{0,1}}", r"f32\[2,3\], what e takes and gives, but is of .*f32\[3,2\]"),
        ("{(f32[2,3]{0,1}, f32[])->f32[2,3]{0,1}}", r"but is of \(f32\[2,3\], f32\[\]\)"),
        ("{f32[2,3]->f32[2,3]}", "shapes of parameters in brackets"),
        ("{(f32[2,3]) f32[2,3]}", "expected '->'"),
        ("{(f32[2,3])->f32[2,3]{0,0}}", "an order of all 2 dimensions"),
        ("{(f32[2,3])->f32[2,3] f32[]}", "the end of the shape of the result"),
        ("{(f32[2,3])->f32[2,3]{1,0:T(0,2)}}", r"positive sizes.* \[0, 2\]"),
        ("{(f32[2,3])->f32[2,3]{1,0:?}}", "tiles or another property"),
        ("(f32[2,3])->f32[2,3]", "expected"),
    ],
)
def test_heads_that_are_wrong(head: str, message: str) -> None:
    text = f"HloModule m, entry_computation_layout={head}\n\nENTRY e {{\n  ROOT p = f32[2,3]{{0,1}} parameter(0)\n}}\n"
    with pytest.raises(errors.HloSyntaxError, match=message) as caught:
        parse_hlo(text)
    assert caught.value.lineno == 1
