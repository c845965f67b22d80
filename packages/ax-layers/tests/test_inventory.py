"""The table of modules."""

from __future__ import annotations

import math

import jax
from ax_layers import Attention, Block, CausalLM, GatedFeedForward, Remat, Repeat, inventory


def lm(*, num_layers: int, remat: bool = False) -> CausalLM:
    block = Block.Config(
        attention=Attention.Config(num_heads=4, num_kv_heads=2, head_dim=8), ffn=GatedFeedForward.Config(hidden_dim=48)
    )
    layer = Remat.Config(layer=block) if remat else block
    return CausalLM.Config(dim=32, layers=Repeat.Config(num_layers=num_layers, layer=layer)).build(vocab_size=100)


def test_the_root_counts_everything_and_children_add_up_to_their_parent() -> None:
    module = lm(num_layers=3)
    rows = {row.path: row for row in inventory(module, seq_length=16)}
    assert rows[""].num_params == sum(math.prod(spec.shape) for spec in jax.tree.leaves(module.specs()))
    assert rows[""].num_bytes == 4 * rows[""].num_params
    assert rows[""].training_flops == module.training_flops_per_token(16)
    ffn = rows["layers/ffn"]
    assert ffn.num_params == 3 * 3 * 32 * 48
    assert ffn.training_flops == 6 * ffn.num_params
    attention = rows["layers/attention"]
    assert attention.training_flops == 6 * attention.num_params + 3 * 12 * 4 * 8 * 16
    for path in ("", "layers", "layers/ffn"):
        below = [row for row in rows.values() if row.path and row.path.rpartition("/")[0] == path]
        assert sum(row.num_params for row in below) == rows[path].num_params


def test_wrappers_and_what_they_stand_for_are_one_row() -> None:
    plain, wrapped = (inventory(lm(num_layers=2, remat=remat), seq_length=16) for remat in (False, True))
    assert [row._replace(kind="") for row in plain] == [row._replace(kind="") for row in wrapped]
    assert [row.kind for row in plain if row.path == "layers"] == ["Repeat of Block"]
    assert [row.kind for row in wrapped if row.path == "layers"] == ["Repeat of Remat of Block"]
    assert [row.depth for row in plain] == [row.path.count("/") + 1 if row.path else 0 for row in plain]
