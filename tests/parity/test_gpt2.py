"""GPT-2."""

from __future__ import annotations

from ax_recipes import gpt2
from transformers import GPT2Config, GPT2LMHeadModel

from .against import check


def test_gpt2() -> None:
    sizes = gpt2.Sizes(num_layers=3, dim=32, num_heads=4, head_dim=8, max_length=32)
    config = GPT2Config(
        vocab_size=101,
        n_positions=sizes.max_length,
        n_embd=sizes.dim,
        n_layer=sizes.num_layers,
        n_head=sizes.num_heads,
        bos_token_id=None,
        eos_token_id=None,
        attn_implementation="eager",
    )
    check(GPT2LMHeadModel(config), gpt2.model(sizes), gpt2.weights(sizes))
