"""`jax._src.test_loader`."""

from tinyxla.jax.testing.threads import (
    TEST_NUM_THREADS as TEST_NUM_THREADS,
    JaxTestLoader as JaxTestLoader,
    JaxTestSuite as JaxTestSuite,
    thread_unsafe_test as thread_unsafe_test,
    thread_unsafe_test_class as thread_unsafe_test_class,
)
