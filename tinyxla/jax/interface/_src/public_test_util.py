"""`jax._src.public_test_util`."""

from tinyxla.test_util import check_close as check_close, check_grads as check_grads
