"""`jax.ad`: what becomes of gradients."""

from tinyxla.jax.gradient_refs import (
    DidntWant as DidntWant,
    DontWant as DontWant,
    GradRef as GradRef,
    GradValue as GradValue,
)
