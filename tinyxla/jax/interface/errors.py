"""`jax.errors`: the errors of this library that programs catch under JAX's names."""

from tinyxla.errors import (
    ConcretizationError as ConcretizationTypeError,
    LeakedTracerError as UnexpectedTracerError,
    OutOfBoundsError as JAXIndexError,
    TinyxlaError as JaxRuntimeError,
    TracerArrayConversionError as TracerArrayConversionError,
    TracerBoolConversionError as TracerBoolConversionError,
    TracerIntegerConversionError as TracerIntegerConversionError,
)
from tinyxla.jax.errors.filtered_tracebacks import SimplifiedTraceback as SimplifiedTraceback
from tinyxla.jax.random_keys.consumed_keys import KeyReuseError as KeyReuseError

JAXRuntimeError = JaxRuntimeError
