"""`jax.experimental.pallas.ops.tpu.splash_attention.splash_attention_mask`."""

from tinyxla.jax.numerics.splash_attention import (
    CausalMask as CausalMask,
    FullMask as FullMask,
    LocalMask as LocalMask,
    Mask as Mask,
    MultiHeadMask as MultiHeadMask,
    NumpyMask as NumpyMask,
    make_causal_mask as make_causal_mask,
    make_local_attention_mask as make_local_attention_mask,
)
