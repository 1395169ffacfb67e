"""`jax.ad`: what becomes of gradients."""

from tinyxla.jax.tracing.gradient_refs import (
    DidntWant as DidntWant,
    DontWant as DontWant,
    GradRef as GradRef,
    GradValue as GradValue,
)
