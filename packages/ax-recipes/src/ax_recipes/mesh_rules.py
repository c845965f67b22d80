"""What changes on an accelerator: a page of rules for each size of model, made of the same few pieces.

A page reads as a table, most special row first; a row is what its pieces do, one after the other. The pieces:

- ``data_parallel``: a copy of the model on every device
- ``sharded``: parameters and states split over so many devices of a slice or node (ZeRO-3), and copied for each further group
- ``tensor_parallel``: every matrix split within the node, parameters split over the nodes too
- ``keeping``: what is kept of a layer for its backward pass, on the device or in the host's memory; all else is computed again
- ``microbatches``: the batch in parts, one after the other
- ``blocks_of``: how much attention and the loss hold at a time

What a page says of memory is checked by compiling for these accelerators: ``ax mesh table``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import ax_kernels
from ax_config import AnyModifier, Config, chain, modifier_for, overriding, partial_for, replace, setting
from ax_config.modifiers import Chain
from ax_layers import Attention, Block, CausalLM, Remat
from ax_mesh import Mesh, MeshRules
from ax_trainer import Trainer

ConfigT = TypeVar("ConfigT", bound=Config[object])

IN_BFLOAT16 = overriding("model.**.compute_dtype=bfloat16")
"""Parameters and the optimizer's state stay float32."""


def data_parallel() -> AnyModifier:
    """Every device has a copy of the model and a part of the batch."""
    return setting(Mesh, axes={"data": -1, "fsdp": 1})


def sharded(over: int = -1) -> AnyModifier:
    """Parameters split over ``over`` devices of a group that fast links join, by default all; data parallel over the rest."""
    axes = {"data": 1, "fsdp": -1} if over == -1 else {"data": -1, "fsdp": over}
    return setting(Mesh, axes=axes, between={"data": -1})


def sharded_everywhere() -> AnyModifier:
    """Parameters split over all devices, whatever joins them."""
    return setting(Mesh, axes={"data": 1, "fsdp": -1}, between={"fsdp": -1})


def tensor_parallel(ways: int) -> AnyModifier:
    """Matrices split over ``ways`` neighbours, with the sequence where there are none; parameters split over all the rest."""
    return setting(Mesh, axes={"data": 1, "fsdp": -1, "tensor": ways}, between={"fsdp": -1})


def keeping(*save: str, offload: tuple[str, ...] = (), matmuls: bool = False) -> AnyModifier:
    """Layers rematerialised but for these save points, or for the results of all matmuls with weights."""
    return modifier_for(rematerialised, save=save, offload=offload, matmuls=matmuls)


def rematerialised(tree: ConfigT, *, save: tuple[str, ...], offload: tuple[str, ...], matmuls: bool) -> ConfigT:
    """``tree`` with every block in a ``Remat``."""

    def remat(block: Config[Block]) -> Remat.Config:
        return Remat.Config(layer=block, save=save, offload=offload, save_matmuls=matmuls, prevent_cse=False)

    return replace(tree, Block, remat)


def microbatches(number: int) -> AnyModifier:
    """The batch in ``number`` parts: the same step in less memory."""
    return setting(Trainer, num_microbatches=number)


def blocks_of(rows: int, *, vocab: int = 2_048) -> AnyModifier:
    """Attention ``rows`` × ``rows`` logits at a time, the loss ``vocab`` of each token's, and never all logits at once."""
    attention = partial_for(ax_kernels.attention.blocked, block_q=rows, block_k=rows)
    return chain(
        setting(Attention, attention_fn=attention),
        setting(
            CausalLM,
            cross_entropy=partial_for(ax_kernels.cross_entropy.chunked, chunk_size=vocab),
            eval_accuracy=False,
        ),
    )


ATTENTION = "attention_residuals"
"""The save point of what attention's backward pass needs of its forward pass."""

QKV = ("query", "key", "value")


def small() -> MeshRules:
    """For models of which every chip can hold a copy: rematerialised where memory is small."""
    fast = chain(IN_BFLOAT16, data_parallel())
    lean = chain(fast, keeping(matmuls=True))
    return MeshRules(
        rules={
            "cpu-*": chain(),
            **dict.fromkeys(_all("h100", "h200", "b200", "gb200", "v5p", "tpu7x", "trn2"), fast),
            **dict.fromkeys(_all("a100", "v4", "v5e", "v6e"), lean),
        }
    )


def llama_2_7b() -> MeshRules:
    """For seven billion parameters and four million tokens a step."""
    return _page(
        {
            "v5e-*": (sharded(), keeping(ATTENTION)),
            "v4-*": (sharded(), keeping(ATTENTION)),
            "v6e-*": (sharded(), keeping(ATTENTION, *QKV)),
            "v5p-*": (sharded(64), keeping(ATTENTION, matmuls=True)),
            "tpu7x-*": (sharded(64), keeping(ATTENTION)),
            "a100-*": (sharded(), keeping(ATTENTION)),
            "h100-*": (sharded(), keeping(ATTENTION)),
            "h200-*": (sharded(), keeping(ATTENTION, *QKV)),
            "b200-*": (sharded(), keeping(ATTENTION, *QKV)),
            "gb200-*": (sharded(4), keeping(ATTENTION, *QKV)),
            "trn2-*": (tensor_parallel(4), keeping(ATTENTION)),
        }
    )


def llama_2_70b() -> MeshRules:
    """For seventy billion parameters and four million tokens a step."""
    return _page(
        {
            "v5e-*": (sharded(), keeping(offload=("layer_input",)), microbatches(2)),
            "v4-*": (sharded(), keeping(offload=("layer_input",))),
            "v6e-*": (sharded(), keeping(ATTENTION)),
            "v5p-*": (sharded(), keeping(ATTENTION, *QKV)),
            "tpu7x-*": (sharded(), keeping(ATTENTION, offload=("layer_input",))),
            "a100-*": (tensor_parallel(8), keeping(), microbatches(8)),
            "h100-*": (tensor_parallel(8), keeping(), microbatches(8)),
            "h200-*": (tensor_parallel(8), keeping(), microbatches(4)),
            "b200-*": (sharded_everywhere(), keeping()),
            "gb200-*": (sharded_everywhere(), keeping()),
            "trn2-*": (tensor_parallel(4), keeping(*QKV, "ffn_gate")),
        }
    )


def qwen3_30b_a3b() -> MeshRules:
    """For thirty billion parameters, of which a token meets three, and seventeen million tokens a step."""
    return _page(
        {
            "v5e-*": (sharded(), keeping(offload=("layer_input",)), microbatches(4)),
            "v4-*": (sharded(), keeping(), microbatches(4)),
            "v6e-*": (sharded(), keeping(), microbatches(2)),
            "v5p-*": (sharded(64), keeping()),
            "tpu7x-*": (sharded(64), keeping(), microbatches(2)),
            "a100-*": (sharded_everywhere(), keeping(), microbatches(16)),
            "h100-*": (sharded_everywhere(), keeping(), microbatches(16)),
            "h200-*": (sharded_everywhere(), keeping(), microbatches(8)),
            "b200-*": (sharded_everywhere(), keeping(), microbatches(8)),
            "gb200-*": (sharded_everywhere(), keeping(), microbatches(8)),
            "trn2-*": (tensor_parallel(4), keeping(), microbatches(4)),
        }
    )


def _page(rows: Mapping[str, tuple[AnyModifier, ...]]) -> MeshRules:
    """Rules for a large model: in bfloat16, in blocks, and each row's own pieces."""
    common: Chain = chain(IN_BFLOAT16, blocks_of(512))
    return MeshRules(rules={"cpu-*": chain(), **{pattern: chain(common, *pieces) for pattern, pieces in rows.items()}})


def _all(*kinds: str) -> list[str]:
    return [f"{kind}-*" for kind in kinds]
