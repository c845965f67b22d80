"""OLMo 2."""

from __future__ import annotations

from ax_recipes import olmo2
from transformers import Olmo2Config, Olmo2ForCausalLM

from .against import check


def test_olmo2() -> None:
    sizes = olmo2.Sizes(num_layers=3, dim=32, num_heads=4, num_kv_heads=2, head_dim=8, hidden_dim=48)
    config = Olmo2Config(
        vocab_size=101,
        hidden_size=sizes.dim,
        intermediate_size=sizes.hidden_dim,
        num_hidden_layers=sizes.num_layers,
        num_attention_heads=sizes.num_heads,
        num_key_value_heads=sizes.num_kv_heads,
        rms_norm_eps=sizes.norm_eps,
        rope_parameters={"rope_type": "default", "rope_theta": sizes.rope_theta},
        pad_token_id=None,
        attn_implementation="eager",
    )
    check(Olmo2ForCausalLM(config), olmo2.model(sizes), olmo2.weights(sizes))
