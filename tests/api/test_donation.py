"""Donated arguments: a call deletes them and may write over their memory; and results over what dies in a kernel."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinyxla as tx
from tests.support import graphs
from tinyxla import lax
from tinyxla.backends import compile_module
from tinyxla.errors import ArgumentError, AttributeValueError, DeletedError
from tinyxla.hlo import Module
from tinyxla.loopir.ir.loop_ir import Builder, Literal
from tinyxla.loopir.lower.emit import LoweredKernel, Temporary
from tinyxla.loopir.passes.alias_in_place import AliasedKernels
from tinyxla.shapes import Shape, element_type

tnp = tx.numpy
SIZES = [5, 70_000]  # memory from NumPy, and from the pool


def normal(*sizes: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(sizes).astype(np.float32)


def address(x: Any) -> int:
    return np.asarray(x).ctypes.data


# --- what is deleted --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
def test_a_donated_array_is_deleted_and_its_memory_used(size: int) -> None:
    function = tx.jit(lambda x, y: (x * 2 + y, tnp.sum(y)), donate_argnums=0)
    x, y = tnp.asarray(normal(size)), tnp.asarray(normal(size, seed=1))
    place = address(x)
    for _ in range(3):
        expected = np.asarray(x) * 2 + np.asarray(y)
        result, _ = function(x, y)
        assert x.is_deleted()
        assert not y.is_deleted()
        assert address(result) == place
        np.testing.assert_array_equal(np.asarray(result), expected)
        x = result


@pytest.mark.usefixtures("eight_devices")
@pytest.mark.parametrize("is_split", [False, True], ids=["one device", "eight devices"])
def test_an_array_that_is_donated_may_not_be_passed_twice(is_split: bool) -> None:
    where = tx.NamedSharding(tx.make_mesh((8,), ("x",)), tx.P("x")) if is_split else None
    x = tx.device_put(np.arange(8.0, dtype=np.float32), where)
    with pytest.raises(DeletedError, match=r"f32\[8\] is donated twice, as argument 0 and as argument 1; pass a copy"):
        tx.jit(lambda x, y: (x + 1, y * 2), donate_argnums=(0, 1))(x, x)
    with pytest.raises(DeletedError, match=r"is donated and used besides, as argument 0 and as argument 1"):
        tx.jit(lambda x, y: (x + 1, y * 2), donate_argnums=1)(x, x)
    with pytest.raises(DeletedError, match="donated twice"):
        tx.jit(lambda tree: {k: 2 * v for k, v in tree.items()}, donate_argnums=0)({"a": x, "b": x})
    assert not x.is_deleted()
    np.testing.assert_array_equal(tx.jit(lambda x, y: x + 1, donate_argnums=0)(x, x), np.arange(1.0, 9.0))  # y: unused


def test_what_is_known_of_a_deleted_array() -> None:
    x = tnp.ones((2, 3), "float16")
    tx.jit(lambda x: x + 1, donate_argnums=0)(x)
    assert (x.shape, x.dtype, x.ndim, x.size, x.is_deleted()) == ((2, 3), np.float16, 2, 6, True)
    assert repr(x) == str(x) == "<deleted Array float16[2,3]>"
    uses: list[Callable[[Any], Any]] = [
        lambda x: x + 1,
        np.asarray,
        lambda x: x[0],
        lambda x: float(x[0, 0]),
        tnp.sum,
        tx.jit(lambda x: x * 2),
        tx.jit(lambda x: x + 1, donate_argnums=0),
        tx.grad(tnp.sum),
        lambda x: x.block_until_ready().tolist(),
        tx.device_get,
    ]
    for use in uses:
        with pytest.raises(DeletedError, match=r"Array has been deleted with shape=float16\[2,3\]: it was donated"):
            use(x)


def test_arrays_can_be_deleted_by_name() -> None:
    x = tnp.ones(3)
    assert not x.is_deleted()
    x.delete()
    x.delete()
    assert x.is_deleted()
    for use in (lambda: x + 1, lambda: x[...], x.block_until_ready):
        with pytest.raises(RuntimeError, match="deleted"):
            use()


@pytest.mark.filterwarnings("ignore:Some donated buffers were not usable")
def test_only_what_a_result_could_replace_is_deleted() -> None:
    function = tx.jit(lambda x, y, z, i: (x + y, tnp.sum(z)), donate_argnums=(0, 1, 2, 3))
    x, y, z, i = tnp.ones(3), tnp.ones(3), tnp.ones(4), tnp.ones(3, "int32")
    function(x, y, z, i)
    assert [a.is_deleted() for a in (x, y, z, i)] == [True, False, False, False]


@pytest.mark.parametrize(
    ("options", "args", "kwargs", "deleted"),
    [
        ({"donate_argnums": 1}, "xy", "", "y"),
        ({"donate_argnums": -1}, "xy", "", "y"),
        ({"donate_argnums": (0, 1)}, "xy", "", "xy"),
        ({"donate_argnames": "y"}, "xy", "", "y"),
        ({"donate_argnames": ["y"]}, "x", "y", "y"),
        ({"donate_argnums": 1}, "x", "y", "y"),
        ({"donate_argnums": 0}, "", "yx", "x"),
        ({"donate_argnums": ()}, "xy", "", ""),
    ],
)
def test_arguments_by_position_and_by_name(options: Any, args: str, kwargs: str, deleted: str) -> None:
    given = {"x": tnp.ones(3), "y": tnp.zeros(3)}
    function = tx.jit(lambda x, y: (x + y, x - y), **options)
    for _ in range(2):
        given = {"x": tnp.ones(3), "y": tnp.zeros(3)}
        results = function(*(given[name] for name in args), **{name: given[name] for name in kwargs})
        assert {name for name, x in given.items() if x.is_deleted()} == set(deleted)
        np.testing.assert_array_equal(np.asarray(results), np.ones((2, 3)))


def test_containers_and_static_arguments() -> None:
    @functools.partial(tx.jit, static_argnums=0, donate_argnums=(1,))
    def step(rate: float, state: Any, gradient: Any) -> Any:
        return tx.tree.map(lambda x, g: x - rate * g, state, gradient)

    state = {"w": [tnp.ones((2, 3)), tnp.ones(4)], "none": None}
    gradient = tx.tree.map(tnp.ones_like, state)
    found = step(0.5, state, gradient)
    assert all(x.is_deleted() for x in tx.tree.leaves(state))
    assert not any(x.is_deleted() for x in tx.tree.leaves(gradient))
    np.testing.assert_array_equal(np.asarray(found["w"][0]), np.full((2, 3), 0.5))


def test_numbers_and_numpy_arrays_may_be_donated() -> None:
    function = tx.jit(lambda x: x + 1, donate_argnums=0)
    x = np.ones(70_000, np.float32)
    for _ in range(2):
        assert float(function(x)[0]) == 2
        assert float(function(1.0)) == 2
    np.testing.assert_array_equal(x, np.ones(70_000))


def test_wrong_options() -> None:
    def function(x: Any, n: Any) -> Any:
        return x

    with pytest.raises(ArgumentError, match="donate_argnums has 2, but it takes 2 positional"):
        tx.jit(function, donate_argnums=2)
    with pytest.raises(ArgumentError, match="donate_argnames has 'z', but there is no such parameter"):
        tx.jit(function, donate_argnames="z")
    with pytest.raises(ArgumentError, match="donate_argnames must be a name"):
        tx.jit(function, donate_argnames=3)
    with pytest.raises(AttributeValueError, match="must not be both static and donated"):
        tx.jit(function, donate_argnums=1, static_argnames="n")


# --- who else looks at the memory -------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    "look",
    [
        np.asarray,
        lambda x: np.asarray(x)[1:],
        lambda x: np.asarray(x).data,
        lambda x: np.from_dlpack(x),
        lambda x: np.asarray(x[2:]),
        lambda x: np.asarray(x.reshape(1, -1)),
        lambda x: np.asarray(tx.jit(lambda x: x)(x)),
    ],
    ids=["array", "slice", "memoryview", "DLPack", "eager slice", "eager reshape", "identity"],
)
def test_views_keep_their_values(look: Callable[[Any], Any], size: int) -> None:
    function = tx.jit(lambda x: x * 3, donate_argnums=0)
    x = tx.jit(lambda x: x + 1)(normal(size))
    expected = np.asarray(x) * 3
    view = look(x)
    before = np.array(view)
    np.testing.assert_array_equal(np.asarray(function(x)), expected)
    np.testing.assert_array_equal(np.asarray(view), before)
    assert x.is_deleted()


def test_memory_of_the_users_is_not_written() -> None:
    function = tx.jit(lambda x: x + 1, donate_argnums=0)
    for array in (np.ones(70_000, np.float32), np.frombuffer(bytearray(280_000), np.float32)):
        before = array.copy()
        function(tnp.from_dlpack(array))
        function(tnp.asarray(array))
        function(tx.device_put(array))
        np.testing.assert_array_equal(array, before)


def test_constants_of_the_program_are_not_written() -> None:
    constant = normal(70_000)
    make = tx.jit(lambda: tnp.asarray(constant))
    change = tx.jit(lambda x: x + 1, donate_argnums=0)
    for _ in range(2):
        np.testing.assert_array_equal(np.asarray(change(make())), constant + 1)


def test_an_exception_on_the_way() -> None:
    def fail(x: Any) -> Any:
        raise KeyError("on the way")

    @functools.partial(tx.jit, donate_argnums=0)
    def function(x: Any) -> Any:
        return x + tx.pure_callback(fail, tx.ShapeDtypeStruct((), np.float32), x[0])

    x = tnp.ones(5)
    for error in (KeyError, DeletedError):
        with pytest.raises(error):
            function(x)


# --- in other settings ------------------------------------------------------------------------------------------------


def test_nothing_is_donated_inside_of_other_functions() -> None:
    function = tx.jit(lambda x: x * x, donate_argnums=0)
    x = tnp.asarray(normal(5))
    tx.jit(lambda x: function(x) + x)(x)
    tx.grad(lambda x: tnp.sum(function(x) + x))(x)
    tx.vmap(function)(x)
    tx.make_graph(function)(x)
    function.lower(x).compile()
    function.eval_shape(x)
    with tx.disable_jit():
        function(x)
    with tx.debug_nans(True):
        function(x)
    assert not x.is_deleted()


def test_staged_programs_donate() -> None:
    x = tnp.asarray(normal(70_000))
    compiled = tx.jit(lambda x: x + 1, donate_argnums=0).lower(x).compile()
    place, expected = address(x), np.asarray(x) + 1
    result = compiled(x)
    assert x.is_deleted()
    assert address(result) == place
    np.testing.assert_array_equal(np.asarray(result), expected)


def test_where_there_is_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tinyxla.backends.default_backend", lambda: "interpreter")
    x = tnp.asarray(normal(5))
    kept = np.array(x)
    np.testing.assert_array_equal(np.asarray(tx.jit(lambda x: x + 1, donate_argnums=0)(x)), kept + 1)
    assert x.is_deleted()
    tx.clear_caches()


# --- results are the same ---------------------------------------------------------------------------------------------


def adam(state: Any, gradient: Any) -> Any:
    def update(p: Any, m: Any, v: Any, g: Any) -> Any:
        m = 0.9 * m + 0.1 * g
        v = 0.99 * v + 0.01 * g * g
        return p - 0.01 * m / (tnp.sqrt(v) + 1e-8), m, v

    return [update(*x, g) for x, g in zip(state, gradient, strict=True)]


def train(parameters: Any, x: Any, y: Any) -> Any:
    def loss(parameters: Any) -> Any:
        h = x
        for w, b in parameters:
            h = tnp.tanh(h @ w + b)
        return tnp.mean((h - y) ** 2)

    value, gradient = tx.value_and_grad(loss)(parameters)
    return tx.tree.map(lambda p, g: p - 0.1 * g, parameters, gradient), value


MATRIX, SQUARE = normal(300, 300), normal(99, 99)
CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "adam": (
        adam,
        ([(normal(99, 99), normal(99, 99, seed=1), normal(99, 99, seed=2) ** 2)] * 3, [MATRIX[:99, :99]] * 3),
    ),
    "training": (train, ([(MATRIX, MATRIX[0]), (MATRIX / 9, MATRIX[1])], normal(64, 300), normal(64, 300, seed=3))),
    "swap": (lambda x, y: (y, x), (MATRIX, MATRIX + 1)),
    "swap and change": (lambda x, y: (y + 1, x * 2), (MATRIX, MATRIX + 1)),
    "both of one": (lambda x: (x + 1, x - 1), (MATRIX,)),
    "used later": (lambda x: (x + 1, tnp.sin(x) @ x), (MATRIX,)),
    "reverse": (lambda x: x[::-1] + 1, (MATRIX,)),
    "transpose": (lambda x: x.T * 2, (MATRIX,)),
    "shift": (lambda x: tnp.concatenate([x[1:], x[:1]]), (MATRIX,)),
    "neighbours": (lambda x: tnp.roll(x, 1, 0) + x + tnp.roll(x, -1, 1), (MATRIX,)),
    "softmax": (tx.nn.softmax, (MATRIX,)),
    "normalised columns": (lambda x: (x - tnp.mean(x, 0)) / tnp.std(x, 0), (MATRIX,)),
    "cumulative": (lambda x: tnp.cumsum(x, 0), (MATRIX,)),
    "sort": (lambda x: tnp.sort(x), (MATRIX,)),
    "product": (lambda x: x @ x, (MATRIX,)),
    "update": (lambda x, v: x.at[3].set(v), (MATRIX, MATRIX[7])),
    "update and old": (lambda x, v: (x.at[3].set(v), x[3] + x[4]), (MATRIX, MATRIX[7])),
    "scatter": (lambda x, i: x.at[i].add(x[i] * 2), (MATRIX, np.array([1, 5, 1]))),
    "two updates": (lambda x: x.at[0].set(1.0).at[:, 1].mul(2.0), (MATRIX,)),
    "loop": (lambda x: lax.fori_loop(0, 5, lambda i, x: x * 0.5 + i, x), (MATRIX,)),
    "updates in a loop": (lambda x: lax.fori_loop(0, 5, lambda i, x: x.at[i].set(x[i + 1]), x), (MATRIX,)),
    "scan": (lambda x: lax.scan(lambda c, a: (c + a, c * a), x[0], x), (MATRIX,)),
    "branches": (lambda x: lax.cond(x[0, 0] > 0, lambda x: x + 1, lambda x: x.at[0].set(0.0), x), (MATRIX,)),
    "reshape": (lambda x: tnp.exp(x.reshape(100, 900)).reshape(300, 300), (MATRIX,)),
    "other type": (lambda x: lax.bitcast_convert_type(lax.bitcast_convert_type(x, "int32") + 1, "float32"), (MATRIX,)),
    "chain of products": (lambda x: tnp.tanh(tnp.tanh(x @ x) @ x) @ x, (MATRIX / 9,)),
    "callback": (
        lambda x: tx.pure_callback(lambda x: np.asarray(x) * 2, tx.ShapeDtypeStruct((300, 300), np.float32), x + 1) + x,
        (MATRIX,),
    ),
}


@pytest.mark.filterwarnings("ignore:Some donated buffers were not usable")
@pytest.mark.parametrize("name", CASES)
def test_results_are_those_without_donation(name: str) -> None:
    function, arguments = CASES[name]

    def given() -> Any:
        return tx.tree.map(tnp.array, arguments)

    expected = tx.tree.leaves(tx.jit(function)(*given()))
    donating = tx.jit(function, donate_argnums=tuple(range(len(arguments))))
    for count in (1, 3, 3):
        with tx.num_threads(count):
            found = tx.tree.leaves(donating(*given()))
            for x, y in zip(found, expected, strict=True):
                np.testing.assert_array_equal(np.asarray(x), np.asarray(y))


@pytest.mark.parametrize(
    "name", ["adam", "training", "swap", "update", "scatter", "two updates", "updates in a loop", "reshape"]
)
def test_what_needs_no_second_copy(name: str) -> None:
    """All results of a step are in the memory of what was donated, or small."""
    function, (state, *rest) = CASES[name]
    step = tx.jit(function, donate_argnums=tuple(range(len(rest) + 1)) if name == "swap" else 0)
    state, rest = tx.tree.map(tnp.array, (state, tuple(rest)))
    places = {address(x) for x in tx.tree.leaves((state, rest))}
    for _ in range(2):
        result = step(state, *rest)
        state = result[0] if name in ("training", "swap") else result
        rest = result[1:] if name == "swap" else rest
        assert {address(x) for x in tx.tree.leaves(state)} <= places


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("seed", range(40))
def test_random_graphs_may_overwrite_all_they_are_given(seed: int) -> None:
    case = graphs.random_case(seed)
    module = Module("donating", case.computation)
    expected = compile_module(module)(case.operands)
    donating = compile_module(module, donated=range(len(case.operands)))
    for _ in range(2):
        found = donating([x.copy() for x in case.operands])
        assert [x.tobytes() for x in found] == [x.tobytes() for x in expected]


# --- kernels that write where they read -------------------------------------------------------------------------------


def kernel(write: Callable[[Builder, Any, Any, Any], None]) -> LoweredKernel:
    """Over rows of 8 elements: `write(builder, operand, result, row)`."""
    b = Builder("sample")
    operand, result = b.argument("f32"), b.argument("f32", True)
    with b.loop(b.kernel.first, b.kernel.last) as (row, _):
        write(b, operand, result, row)
    storages = [Temporary(Shape(element_type("f32"), (8, 8))) for _ in range(2)]
    return LoweredKernel(b.kernel, [*storages], 8, 1, [])


def place(b: Builder, row: Any, column: Any) -> Any:
    return b.compute("add", "s64", b.compute("multiply", "s64", row, Literal("s64", 8)), column)


def same(b: Builder, x: Any, y: Any, row: Any) -> None:
    with b.loop(0, 8) as (column, _):
        at = place(b, row, column)
        b.store(y, at, b.load(x, at))


def other_row(b: Builder, x: Any, y: Any, row: Any) -> None:
    with b.loop(0, 8) as (column, _):
        b.store(y, place(b, row, column), b.load(x, place(b, column, row)))


def first_too(b: Builder, x: Any, y: Any, row: Any) -> None:
    with b.loop(0, 8) as (column, _):
        at = place(b, row, column)
        b.store(y, at, b.compute("add", "f32", b.load(x, at), b.load(x, 0)))


def again(b: Builder, x: Any, y: Any, row: Any) -> None:
    with b.loop(0, 8) as (column, _):
        at = place(b, row, column)
        b.store(y, at, b.load(x, at))
    with b.loop(0, 8) as (column, _):
        b.load(x, place(b, row, column))


def several_times(b: Builder, x: Any, y: Any, row: Any) -> None:
    with b.loop(0, 8):
        b.store(y, row, b.load(x, row))


def after(b: Builder, x: Any, y: Any, row: Any) -> None:
    with b.loop(0, 8) as (column, _):
        at = place(b, row, column)
        b.store(y, at, Literal("f32", 1.0))
        b.load(x, at)


def from_data(b: Builder, x: Any, y: Any, row: Any) -> None:
    with b.loop(0, 8) as (column, _):
        at = b.compute("convert", "s64", b.load(x, place(b, row, column)))
        b.store(y, at, b.load(x, at))


def reads_result(b: Builder, x: Any, y: Any, row: Any) -> None:
    with b.loop(0, 8) as (column, _):
        at = place(b, row, column)
        b.store(y, at, b.compute("add", "f32", b.load(x, at), b.load(y, at)))


def in_place(lowered: LoweredKernel, source: int, target: int) -> LoweredKernel | None:
    """The kernel that writes one argument over another one, if it can."""
    program = AliasedKernels()
    found = program.dependences(lowered)
    able = found.is_source(source) and found.is_target(target) and found.is_safe(source, target)
    return program.merge_buffers(lowered, [(source, target)]) if able else None


def test_a_kernel_that_reads_and_writes_the_same_elements_works_in_place() -> None:
    lowered = kernel(same)
    merged = in_place(lowered, 0, 1)
    assert merged is not None
    assert len(merged.arguments) == len(merged.kernel.arguments) == 1
    assert merged.arguments[0] is lowered.arguments[1]


@pytest.mark.parametrize("write", [other_row, first_too, again, several_times, after, from_data, reads_result])
def test_kernels_that_would_read_what_they_wrote_do_not(write: Any) -> None:
    assert in_place(kernel(write), 0, 1) is None


def test_operations_with_rare_cases_read_their_operands_twice() -> None:
    def sine(b: Builder, x: Any, y: Any, row: Any) -> None:
        b.store(y, row, b.compute("sine", "f32", b.load(x, row)))

    assert in_place(kernel(sine), 0, 1) is None


def test_other_types_do_not_share_memory() -> None:
    b = Builder("sample")
    x, y = b.argument("s32"), b.argument("f32", True)
    with b.loop(b.kernel.first, b.kernel.last) as (at, _):
        b.store(y, at, b.compute("convert", "f32", b.load(x, at)))
    storages = [Temporary(Shape(element_type(name), (8,))) for name in ("s32", "f32")]
    assert in_place(LoweredKernel(b.kernel, [*storages], 8, 1, []), 0, 1) is None


def test_temporaries_that_die_lend_their_memory() -> None:
    """The cumulative sum is made where the result will be; but what its pieces begin with needs memory."""
    compiled = tx.jit(lambda x: tnp.sqrt(tnp.cumsum(x, 0)) * 2).lower(MATRIX).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < MATRIX.nbytes // 50


@pytest.mark.filterwarnings("ignore")
def test_arrays_are_donated_where_types_are_strict() -> None:
    x = tx.numpy.ones(3)
    with tx.numpy_dtype_promotion("strict"):
        tx.jit(lambda x: x + 1, donate_argnums=0)(x)
    assert x.is_deleted()


def test_float0_results_of_compiled_functions_pass_checks_of_values() -> None:
    with tx.debug_nans():
        gradient = tx.jit(tx.grad(lambda x, n: x * n, (0, 1), allow_int=True))(2.0, 3)
    assert (float(gradient[0]), gradient[1].dtype) == (3.0, tx.dtypes.float0)


def test_device_put_of_a_deleted_array_is_an_error() -> None:
    x = tx.numpy.ones(3)
    x.delete()
    with pytest.raises(DeletedError):
        tx.device_put(x)


def test_device_put_makes_another_array_where_it_may_not_be_an_alias() -> None:
    x = tx.numpy.ones(3)
    mesh = tx.sharding.Mesh(np.array(tx.devices()[:1]), ("x",))
    placed = tx.device_put(x, tx.NamedSharding(mesh, tx.P("x")))
    assert tx.device_put(placed, placed.sharding) is placed
    assert tx.device_put(x, may_alias=True) is x is not tx.device_put(x, may_alias=False)
    with pytest.raises(AttributeValueError, match="may_alias and donate must not be both True"):
        tx.device_put(x, may_alias=True, donate=True)


def test_eval_shape_says_where_results_would_be() -> None:
    sharding = tx.sharding.SingleDeviceSharding(tx.devices()[0])
    found = tx.jit(lambda x: x * 2, out_shardings=sharding).eval_shape(np.arange(8))
    assert (found.shape, found.sharding) == ((8,), sharding)
