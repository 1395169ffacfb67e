"""`experimental.checkify`: messages of the same programs in JAX, and what goes beyond these."""

import numpy as np
import pytest

import tinyxla as tx
import tinyxla.numpy as tnp
from tinyxla import lax
from tinyxla.errors import ArgumentError
from tinyxla.experimental import checkify

INF = np.float32(np.inf)


def both_positive(ck):
    def function(x, y):
        ck.check(x > 0, "x is {x}", x=x)
        ck.check(y > 0, "y is {}", y)
        return x + y

    return function


def branches(xp, ck):
    def first(x):
        ck.check(x > 0, "first {}", x)
        return x

    def second(x):
        ck.check(x < 0, "second")
        return xp.numpy.sin(x)

    return lambda p, x: xp.lax.cond(p, first, second, x)


def counted(xp, ck):
    def body(i, x):
        ck.check(x < 5, "x {} i {}", x, i)
        return x + 1

    return lambda n: xp.lax.fori_loop(0, n, body, xp.numpy.float32(0))


def condition_checked(xp, ck):
    def condition(x):
        ck.check(x < 3, "condition {}", x)
        return x < 5

    return lambda x: xp.lax.while_loop(condition, lambda x: x + 1, x)


def scanned(xp, ck):
    def body(c, x):
        ck.check(x != 2, "x {}", x)
        return c / x, c

    return lambda xs: xp.lax.scan(body, xp.numpy.float32(1), xs)


def custom_jvp(xp):
    @xp.custom_jvp
    def function(x):
        return xp.numpy.sin(x)

    @function.defjvp
    def _rule(primals, tangents):
        return function(primals[0]), xp.numpy.cos(primals[0]) * tangents[0] / 0.0

    return function


def custom_vjp(xp):
    @xp.custom_vjp
    def function(x):
        return xp.numpy.sin(x)

    function.defvjp(lambda x: (xp.numpy.sin(x), x), lambda x, g: (g * 7 / x,))
    return function


def raised_again(xp, ck):
    def positive(x):
        ck.check(x > 0, "positive")
        return x

    def function(x):
        error, y = xp.jit(ck.checkify(positive))(x)
        ck.check_error(error)
        return y

    return function


def grad_of_custom(xp, make):
    return lambda x: xp.grad(make(xp))(x)


PROGRAMS = {
    "nan": (lambda xp, ck: xp.numpy.sin, (np.array([1, INF], np.float32),)),
    "no_error": (lambda xp, ck: xp.numpy.sin, (np.array([1, 2], np.float32),)),
    "nan_in_jit": (lambda xp, ck: xp.jit(xp.numpy.sin), (INF,)),
    "nan_in_reduction": (lambda xp, ck: xp.numpy.sum, (np.array([1, np.nan], np.float32),)),
    "division": (lambda xp, ck: lambda x, y: x / y, (np.float32(1), np.float32(0))),
    "division_nan": (lambda xp, ck: lambda x, y: x / y, (INF, INF)),
    "index": (lambda xp, ck: lambda x, i: x[i], (np.arange(3.0, dtype=np.float32), np.int32(5))),
    "index_negative": (lambda xp, ck: lambda x, i: x[i], (np.arange(3.0, dtype=np.float32), np.int32(-3))),
    "index_known": (lambda xp, ck: lambda x, i: x[i], (np.arange(3.0, dtype=np.float32), 5)),
    "gather": (lambda xp, ck: lambda x, i: x[i], (np.ones((2, 3), np.float32), np.array([0, 1, 7]))),
    "gather_pairs": (
        lambda xp, ck: lambda x, i, j: x[i, j],
        (np.ones((2, 3), np.float32), np.array([0, 1]), np.array([2, -9])),
    ),
    "scatter": (lambda xp, ck: lambda x, i: x.at[i].set(1.0), (np.ones(3, np.float32), np.array([0, 7]))),
    "scatter_add": (lambda xp, ck: lambda x, i: x.at[i].add(1.0), (np.ones(3, np.float32), np.array([0, 7]))),
    "slice": (lambda xp, ck: lambda x, i: xp.lax.dynamic_slice(x, (i,), (2,)), (np.ones(3, np.float32), np.int32(2))),
    "update": (
        lambda xp, ck: lambda x, y, i: xp.lax.dynamic_update_slice(x, y, (i,)),
        (np.ones(3, np.float32), np.ones(2, np.float32), np.int32(2)),
    ),
    "check_first": (lambda xp, ck: both_positive(ck), (np.float32(-1), np.float32(-2))),
    "check_second": (lambda xp, ck: both_positive(ck), (np.float32(1), np.float32(-2))),
    "check_holds": (lambda xp, ck: both_positive(ck), (np.float32(1), np.float32(2))),
    "debug_check": (lambda xp, ck: lambda x: ck.debug_check(x > 0, "debug"), (np.float32(-1),)),
    "cond_first": (lambda xp, ck: branches(xp, ck), (np.bool_(True), np.float32(-1))),
    "cond_second": (lambda xp, ck: branches(xp, ck), (np.bool_(False), np.float32(1))),
    "cond_holds": (lambda xp, ck: branches(xp, ck), (np.bool_(True), np.float32(1))),
    "fori": (lambda xp, ck: counted(xp, ck), (np.int32(9),)),
    "fori_holds": (lambda xp, ck: counted(xp, ck), (np.int32(3),)),
    "while_condition": (lambda xp, ck: condition_checked(xp, ck), (np.float32(0),)),
    "while_condition_at_once": (lambda xp, ck: condition_checked(xp, ck), (np.float32(10),)),
    "scan": (lambda xp, ck: scanned(xp, ck), (np.arange(1, 4, dtype=np.float32),)),
    "grad": (lambda xp, ck: xp.grad(lambda x: both_positive(ck)(x, x)), (np.float32(-1),)),
    "grad_division": (lambda xp, ck: xp.grad(xp.numpy.sqrt), (np.float32(0),)),
    "custom_jvp": (lambda xp, ck: custom_jvp(xp), (INF,)),
    "custom_jvp_rule": (lambda xp, ck: grad_of_custom(xp, custom_jvp), (np.float32(3),)),
    "custom_vjp": (lambda xp, ck: custom_vjp(xp), (INF,)),
    "custom_vjp_rule": (lambda xp, ck: grad_of_custom(xp, custom_vjp), (np.float32(0),)),
    "check_error": (lambda xp, ck: raised_again(xp, ck), (np.float32(-1),)),
    "checkpoint": (lambda xp, ck: xp.checkpoint(xp.numpy.sin), (INF,)),
    "checkpoint_grad": (lambda xp, ck: xp.grad(xp.checkpoint(lambda x: both_positive(ck)(x, x))), (np.float32(-1),)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_checkify_message_is_that_of_jax(name):
    jax = pytest.importorskip("jax")
    jax_checkify = pytest.importorskip("jax.experimental.checkify")
    make, given = PROGRAMS[name]
    arguments = [x if isinstance(x, int) else jax.numpy.asarray(x) for x in given]
    wanted, _ = jax_checkify.checkify(make(jax, jax_checkify), errors=jax_checkify.all_checks)(*arguments)
    function = checkify.checkify(make(tx, checkify), errors=checkify.all_checks)
    arguments = [x if isinstance(x, int) else tnp.asarray(np.asarray(x)) for x in arguments]
    error, value = function(*arguments)
    assert error.get() == wanted.get()
    compiled_error, compiled_value = tx.jit(function)(*arguments)
    assert compiled_error.get() == wanted.get()
    for x, y in zip(tx.tree_util.tree_leaves(value), tx.tree_util.tree_leaves(compiled_value), strict=True):
        np.testing.assert_allclose(x, y)


def test_check_outside_of_jit_raises_with_the_line():
    with pytest.raises(checkify.JaxRuntimeError, match=r"(?s)x is -1\.0 .*test_checkify\.py"):
        both_positive(checkify)(tnp.float32(-1), tnp.float32(1))


def test_check_in_jit_without_checkify_is_refused():
    with pytest.raises(checkify.JaxRuntimeError, match=r"(?s)not functionalized.*checkify\.checkify"):
        tx.jit(both_positive(checkify))(1.0, 1.0)


def test_debug_check_without_checkify_does_nothing():
    checkify.debug_check(tnp.array(False), "unseen")
    tx.jit(lambda x: checkify.debug_check(x > 0, "unseen"))(-1.0)


def test_check_of_wrong_arguments_raises():
    with pytest.raises(ArgumentError, match="takes a scalar pred"):
        checkify.check(tnp.array([False]), "many")
    with pytest.raises(TypeError, match="Formatting arguments to checkify"):
        checkify.check(tnp.array(False), "{}", 3)
    with pytest.raises(TypeError, match="takes an Error as argument"):
        checkify.check_error(3)
    with pytest.raises(ArgumentError, match="categories"):
        checkify.checkify(lambda x: x, errors={"nan"})


def _positive(x):
    checkify.check(x > 0, "x {}", x)
    return x


def test_vmap_of_checkify_names_the_failing_indices():
    error, _ = tx.vmap(checkify.checkify(_positive))(tnp.array([1.0, -2, -3]))
    assert error.get() == ("at mapped index 1: x -2.0 (`check` failed)\nat mapped index 2: x -3.0 (`check` failed)")
    with pytest.raises(ValueError, match="mapped index 2"):
        error.throw()
    error, _ = tx.jit(tx.vmap(tx.vmap(checkify.checkify(_positive))))(tnp.array([[1.0, 2], [3, -3]]))
    assert error.get() == "at mapped index 1, 1: x -3.0 (`check` failed)"
    error, _ = tx.vmap(checkify.checkify(_positive))(tnp.array([1.0, 2]))
    assert error.get() is None


def test_checkify_of_vmap_reports_the_first_failing_example():
    def function(x, y):
        checkify.check(x > y, "x {} y {}", x, y)

    mapped = tx.vmap(tx.vmap(function, in_axes=(0, None)), in_axes=(0, 0))
    error, _ = checkify.checkify(mapped)(tnp.array([[1.0, 2], [3, 9]]), tnp.array([0.0, 8]))
    assert error.get() == "x 3.0 y 8.0 (`check` failed)"
    with pytest.raises(checkify.JaxRuntimeError, match=r"x 1\.0 y 4\.0"):
        tx.vmap(function)(tnp.array([9.0, 1]), tnp.array([0.0, 4]))


def test_loop_reports_the_first_error_in_time():
    function = checkify.checkify(scanned(tx, checkify), errors=checkify.all_checks)
    error, _ = function(tnp.arange(3.0))
    assert error.get() == "division by zero"


def test_derivative_of_checkify_keeps_custom_rules():
    def value_first(function, x):
        error, y = checkify.checkify(function, errors=checkify.all_checks)(x)
        return y, error

    slope, error = tx.grad(lambda x: value_first(custom_vjp(tx), x), has_aux=True)(3.0)
    assert error.get() is None
    np.testing.assert_allclose(slope, 7 / 3, rtol=1e-6)
    slope, error = tx.grad(lambda x: value_first(custom_vjp(tx), x), has_aux=True)(tnp.inf)
    assert error.get() == "nan generated by primitive: sin."
    (_, moved) = tx.jvp(lambda x: value_first(custom_jvp(tx), x)[0], (3.0,), (1.0,))
    assert np.isinf(moved)


def test_gradient_in_a_scan_reports_its_checks():
    def loss(xs):
        def body(c, x):
            checkify.check(x > 0, "in scan {}", x)
            return c * x, None

        return lax.scan(body, 1.0, xs)[0]

    error, slopes = checkify.checkify(tx.grad(loss))(tnp.array([1.0, 2, -3]))
    assert error.get() == "in scan -3.0 (`check` failed)"
    np.testing.assert_allclose(slopes, [-6, -3, 2])


def test_categories_that_are_not_asked_for_are_not_checked():
    error, _ = checkify.checkify(both_positive(checkify), errors=checkify.nan_checks)(tnp.float32(-1), tnp.float32(1))
    assert error.get() is None
    error, _ = checkify.checkify(tnp.log, errors=frozenset())(tnp.float32(-1))
    assert error.get() is None


def test_error_is_a_pytree_and_names_its_exception():
    error, _ = checkify.checkify(both_positive(checkify))(tnp.float32(-1), tnp.float32(1))
    again = tx.jit(lambda e: e)(error)
    assert again.get() == error.get()
    assert isinstance(error.get_exception(), checkify.FailedCheckError)
    assert str(error) == "Error(x is -1.0 (`check` failed))"
    assert tx.tree_util.tree_leaves(checkify.init_error) == []
    with pytest.raises(TypeError, match="get_exception of a checkify"):
        tx.jit(lambda e: e.get() or 1)(error)


def test_arguments_that_are_no_arrays_stay_python_values():
    error, y = checkify.checkify(lambda x, n: x * len(range(n)))(tnp.float32(2), 3)
    assert error.get() is None
    assert y == 6


def test_checkified_function_is_not_compiled_again_when_traced_again():
    def trace_count():
        return tx.jit(checkify.checkify(_positive)).lower(1.0).as_text()

    assert trace_count() == trace_count()


def test_parts_of_shard_map_are_checked():
    mesh = tx.make_mesh((1,), ("i",))
    share = tx.shard_map(lambda x: x / x, mesh=mesh, in_specs=tx.P("i"), out_specs=tx.P("i"))
    checked = checkify.checkify(share, errors=checkify.float_checks)
    error, y = checked(tnp.arange(1.0, 5.0))
    assert error.get() is None
    np.testing.assert_array_equal(y, np.ones(4))
    assert checked(tnp.arange(4.0))[0].get().startswith("division by zero")


def test_what_a_loop_computes_in_vain_is_checked():
    def condition(x):
        _ = 1 / x
        return x < 2

    def loop(x):
        return lax.while_loop(condition, lambda x: x + 1, x)

    checked = checkify.checkify(loop, errors=checkify.float_checks)
    assert checked(tnp.float32(1))[0].get() is None
    assert checked(tnp.float32(0))[0].get().startswith("division by zero")


def test_options_of_promotion_are_not_about_the_arithmetic_of_checks():
    places = (np.array([1, 20], np.int32), np.array([1, 2], np.int32))
    with tx.numpy_rank_promotion("raise"), tx.numpy_dtype_promotion("strict"):
        checked = checkify.checkify(lambda x, i: x.at[i].set(0.0), errors=checkify.index_checks)
        assert "index 20" in checked(tnp.ones((2, 3)), places)[0].get()


@pytest.mark.parametrize(
    ("index", "said"),
    [(9, "index 9 is out of bounds for axis 0"), ((0, 9), "index 9 is out of bounds for axis 1"), (-4, "index -2")],
)
def test_known_indices_outside_are_errors_of_index_checks_only(index, said):
    x = tx.numpy.ones((2, 3))
    error, _ = checkify.checkify(lambda x: x[index], errors=checkify.index_checks)(x)
    assert said in error.get()
    error, value = checkify.checkify(lambda x: x[index], errors=checkify.nan_checks)(x)
    assert error.get() is None
    assert value.sum() == value.size
    error, _ = checkify.checkify(lambda x, i: x.at[i].get(), errors=checkify.index_checks)(x, ((1, 20), (4, 5)))
    assert "index 4 is out of bounds for axis 1" in error.get()  # the first of the index vectors
