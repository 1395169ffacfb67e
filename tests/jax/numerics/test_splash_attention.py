"""`jax.experimental.pallas.ops.tpu.splash_attention` under the hook, compared with attention as a formula."""

from __future__ import annotations

import textwrap

from tests.jax.test_jax_hook import lines as printed

PROGRAM = """
    import numpy as np
    import jax, jax.numpy as jnp
    from jax.experimental.pallas.ops.tpu.splash_attention import (
        splash_attention_kernel as kernels, splash_attention_mask as masks)

    q, k, v = jax.random.normal(jax.random.key(0), (3, 4, 6, 5))
    allowed = masks.MultiHeadMask([masks.CausalMask((6, 6)), masks.LocalMask((6, 6), (1, None), 0),
                                   masks.FullMask((6, 6)), masks.CausalMask((6, 6)) & masks.NumpyMask(np.eye(6))])
    ids = jnp.array([0, 0, 0, 1, 1, 1])

    def formula(q, k, v, allowed, cap=None, same=True):
        logits = np.einsum("hqd,hkd->hqk", q, k)
        logits = logits if cap is None else cap * np.tanh(logits / cap)
        weights = np.where(np.asarray(allowed[:]) & same, np.exp(logits), 0)
        return np.einsum("hqk,hkd->hqd", weights / weights.sum(-1, keepdims=True), v)

    def close(a, b):
        return np.allclose(a, b, atol=1e-5)

    x, y, z = map(np.asarray, (q, k, v))
    print(close(kernels.make_splash_mha(allowed, head_shards=1, q_seq_shards=1)(q, k, v), formula(x, y, z, allowed)))
    capped = kernels.make_splash_mha(allowed, head_shards=1, q_seq_shards=1, attn_logits_soft_cap=2.0)
    mapped = jax.vmap(capped)(q[None], k[None], v[None], segment_ids=kernels.SegmentIds(ids[None], ids[None]))
    print(close(mapped[0], formula(x, y, z, allowed, 2.0, np.equal.outer(ids, ids))))
    grouped, (sums,) = kernels.make_splash_mha(allowed, save_residuals=True)(q, k[:2], v[:2])
    print(close(grouped, formula(x, y[[0, 0, 1, 1]], z[[0, 0, 1, 1]], allowed)), sums.shape)
    shared = kernels.make_splash_mqa_single_device(allowed)(q, k[0], v[0])
    print(close(shared, formula(x, y[[0] * 4], z[[0] * 4], allowed)))
    print(masks.make_causal_mask((2, 3), 1).tolist(), allowed.shape, allowed.masks[0] == masks.CausalMask((6, 6)))
    for refused in (
        lambda: kernels.make_splash_mha(masks.FullMask((6, 6))),
        lambda: kernels.make_splash_mha(allowed)(q[:3], k, v),
        lambda: masks.MultiHeadMask([]),
        lambda: masks.FullMask((2, 3)) | masks.FullMask((2, 2)),
        lambda: bool(allowed),
    ):
        try:
            refused()
        except ValueError as error:
            print(str(error).splitlines()[0])
    """


def test_heads_masks_segments_and_caps_give_the_attention_of_the_formula() -> None:
    lines = printed(textwrap.dedent(PROGRAM))
    assert lines[:5] == [
        "True",
        "True",
        "True (4, 6)",
        "True",
        "[[True, True, False], [True, True, True]] (4, 6, 6) True",
    ]
    assert [line.split(":")[0] for line in lines[5:]] == [
        "make_splash_mha",
        "splash_attention",
        "MultiHeadMask",
        "splash_attention",
        "splash_attention",
    ]
