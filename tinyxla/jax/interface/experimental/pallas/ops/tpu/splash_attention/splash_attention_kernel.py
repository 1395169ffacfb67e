"""`jax.experimental.pallas.ops.tpu.splash_attention.splash_attention_kernel`."""

from tinyxla.jax.numerics.splash_attention import (
    DEFAULT_MASK_VALUE as DEFAULT_MASK_VALUE,
    SegmentIds as SegmentIds,
    make_splash_mha as make_splash_mha,
    make_splash_mha_single_device as make_splash_mha_single_device,
    make_splash_mqa as make_splash_mqa,
    make_splash_mqa_single_device as make_splash_mqa_single_device,
)
