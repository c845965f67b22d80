"""Mamba-2."""

from __future__ import annotations

import pytest
from ax_config import overriding
from ax_recipes import mamba2
from transformers import Mamba2Config, Mamba2ForCausalLM

from .against import check


@pytest.mark.parametrize(
    "sizes", [mamba2.Sizes(2, 32, 4, 16, 8), mamba2.Sizes(3, 32, 4, 16, 8, 2, 3, 1e-3, tied=False)]
)
def test_mamba2(sizes: mamba2.Sizes) -> None:
    theirs = Mamba2Config(
        num_hidden_layers=sizes.num_layers,
        hidden_size=sizes.dim,
        num_heads=sizes.num_heads,
        head_dim=sizes.head_dim,
        state_size=sizes.state_dim,
        n_groups=sizes.num_groups,
        conv_kernel=sizes.conv_width,
        layer_norm_epsilon=sizes.norm_eps,
        tie_word_embeddings=sizes.tied,
        vocab_size=101,
        expand=2,
        chunk_size=4,
    )
    ours = overriding("**.state_space_fn.chunk_size=5")(mamba2.model(sizes))
    check(Mamba2ForCausalLM(theirs), ours, mamba2.weights(sizes))
