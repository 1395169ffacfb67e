"""`jax.experimental.key_reuse`."""

from tinyxla.jax.consumed_keys import KeyReuseError as KeyReuseError
from tinyxla.jax.key_reuse import (
    KeyReuseSignature as KeyReuseSignature,
    check_key_reuse as check_key_reuse,
    function_type_signature as function_type_signature,
)
