"""`jax._src.test_warning_util`."""

from tinyxla.jax.testing.warning_records import (
    ignore_warning as ignore_warning,
    install_threadsafe_warning_handlers as install_threadsafe_warning_handlers,
    raise_on_warnings as raise_on_warnings,
    record_warnings as record_warnings,
)
