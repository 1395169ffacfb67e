"""`jax.experimental.key_reuse`."""

from tinyxla.jax.random_keys.consumed_keys import KeyReuseError as KeyReuseError
from tinyxla.jax.random_keys.key_reuse import (
    KeyReuseSignature as KeyReuseSignature,
    check_key_reuse as check_key_reuse,
    function_type_signature as function_type_signature,
)
