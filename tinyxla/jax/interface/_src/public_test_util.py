"""`jax._src.public_test_util`: comparisons of arrays and derivatives, with JAX's tolerances."""

from tinyxla.jax.testing.tolerances import (
    EPS as EPS,
    ToleranceDict as ToleranceDict,
    assert_numpy_allclose as _assert_numpy_allclose,
    check_close as check_close,
    check_dtypes_match as _check_dtypes_match,
    check_grads as check_grads,
    check_jvp as check_jvp,
    check_vjp as check_vjp,
    default_gradient_tolerance as default_gradient_tolerance,
    default_tolerance as default_tolerance,
    dtype_of as _dtype,
    numerical_jvp as numerical_jvp,
    rand_like as rand_like,
    tolerance as tolerance,
)
