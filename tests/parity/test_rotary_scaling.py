"""Rotary frequencies of real sizes, against those that transformers computes."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from ax_layers import linear_scaling, llama3_scaling, ntk_scaling, yarn_magnitude, yarn_scaling
from ax_layers.protocols import FrequencyScaling
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

THETA, HEAD_DIM, LENGTH = 500_000.0, 128, 8_192


def published(kind: str, seq_len: int | None = None, **parameters: float) -> tuple[np.ndarray, float]:
    config = LlamaConfig(
        head_dim=HEAD_DIM,
        max_position_embeddings=LENGTH,
        rope_parameters={"rope_type": kind, "rope_theta": THETA, **parameters},
    )
    frequencies, magnitude = ROPE_INIT_FUNCTIONS[kind](config, "cpu", seq_len=seq_len)
    return frequencies.numpy(), magnitude


def ours(scaling: FrequencyScaling, **parameters: float) -> np.ndarray:
    half = HEAD_DIM // 2
    return np.asarray(scaling(THETA ** (-jnp.arange(half, dtype=jnp.float32) / half), **parameters))


@pytest.mark.parametrize("factor", [2.0, 8.0, 32.0])
def test_frequencies(factor: float) -> None:
    close = {"rtol": 1e-4}
    np.testing.assert_allclose(ours(linear_scaling, factor=factor), published("linear", factor=factor)[0], **close)

    turns = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
    wanted, _ = published("llama3", factor=factor, original_max_position_embeddings=LENGTH, **turns)
    np.testing.assert_allclose(ours(llama3_scaling, factor=factor, original_length=LENGTH), wanted, **close)

    wanted, magnitude = published("yarn", factor=factor, original_max_position_embeddings=LENGTH)
    got = ours(yarn_scaling, factor=factor, original_length=LENGTH, theta=THETA)
    np.testing.assert_allclose(got, wanted, **close)
    assert yarn_magnitude(factor) == pytest.approx(magnitude)


def test_ntk_is_what_dynamic_scaling_is_at_one_length() -> None:
    # There the factor grows with the text: at twice the length trained on, with a factor of 2, it is 2 · 2 - 1.
    wanted, _ = published("dynamic", seq_len=2 * LENGTH, factor=2.0)
    np.testing.assert_allclose(ours(ntk_scaling, factor=3.0), wanted, rtol=1e-4)
