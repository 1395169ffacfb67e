"""`jax.experimental.layout`: arrays are dense and row-major."""

from tinyxla.jax.devices.formats import (
    Format as Format,
    Layout as Layout,
    with_layout_constraint as with_layout_constraint,
)
