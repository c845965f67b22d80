"""What changes on an accelerator: a page of rules for each size of model, made of the same few pieces.

A page reads as a table, most special row first; a row is what its pieces do, one after the other. The pieces:

- ``data_parallel``: a copy of the model on every device
- ``sharded``: parameters and states split over so many devices of a slice or node (ZeRO-3), and copied for each further group
- ``states_everywhere``: what the optimizer remembers, and gradients, split over all devices whatever holds parameters (ZeRO-1)
- ``tensor_parallel``: every matrix split within the node, parameters split over the nodes too
- ``keeping``: what is kept of a layer for its backward pass, on the device or in the host's memory; all else is computed again
- ``microbatches``: the batch in parts, one after the other
- ``blocks_of``, ``experts_in_blocks``: how much attention, the loss and experts have in hand at a time

What a page says of memory is checked by compiling for these accelerators: ``ax mesh table``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import ax_kernels
from ax_config import AnyModifier, Config, chain, modifier_for, overriding, partial_for, replace, setting
from ax_layers import Attention, Block, CausalLM, Dropless, Remat
from ax_mesh import Mesh, MeshRules, compiler_options
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


def states_everywhere() -> AnyModifier:
    """The optimizer's state split over the groups too, where parameters are copied."""
    return setting(Mesh, optimizer_rules=(("embed", ("fsdp", "data")),))


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
    """The batch in ``number`` parts: the same step in less memory, but that experts are balanced in each part."""
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


def experts_in_blocks(rows: int) -> AnyModifier:
    """Experts' rows in batched matmuls of ``rows``, for compilers that multiply all rows with all experts otherwise."""
    return setting(Dropless, grouped_matmul=partial_for(ax_kernels.grouped_matmul.batched, block=rows))


ATTENTION = "attention_residuals"
"""The save point of what attention's backward pass needs of its forward pass."""

QKV = ("query", "key", "value")


def small() -> MeshRules:
    """For models of which every chip can hold a copy: rematerialised where memory is small, or slower than the matmuls."""
    fast = chain(IN_BFLOAT16, data_parallel())
    lean = chain(fast, keeping(matmuls=True))
    return MeshRules(
        rules={
            "cpu-*": keeping(ATTENTION, matmuls=True),
            **dict.fromkeys(_all("h100", "h200", "b200", "gb200", "v5p", "tpu7x", "trn2"), fast),
            **dict.fromkeys(_all("a100", "v4", "v5e", "v6e"), lean),
        }
    )


def tiny() -> MeshRules:
    """``small()``, but that a CPU changes nothing: what one begins with keeps its plain paths for ``--set``."""
    return MeshRules(rules={**small().rules, "cpu-*": chain()})


def llama_2_7b() -> MeshRules:
    """For seven billion parameters and four million tokens a step."""
    return _page(
        {
            "v5e-*": (sharded(), keeping(ATTENTION)),
            "v4-*": (sharded(), keeping(ATTENTION)),
            "v6e-256": (sharded(), keeping(ATTENTION, *QKV)),
            "v6e-*": (sharded(), keeping(ATTENTION, matmuls=True)),
            "v5p-*": (sharded(64), keeping(ATTENTION, matmuls=True)),
            "tpu7x-*": (sharded(64), keeping(ATTENTION)),
            "a100-*": (sharded(), keeping(ATTENTION)),
            "h100-64": (sharded(), keeping(ATTENTION)),
            "h100-*": (sharded(), keeping(ATTENTION, *QKV, "ffn_gate", "ffn_up")),
            "h200-*": (sharded(), keeping(ATTENTION, *QKV, "ffn_gate", "ffn_up")),
            "b200-*": (sharded(), keeping(ATTENTION, *QKV)),
            "gb200-*": (sharded(), keeping(ATTENTION, *QKV)),
            "trn2-*": (tensor_parallel(4), keeping(ATTENTION)),
        }
    )


def llama_2_70b() -> MeshRules:
    """For seventy billion parameters and four million tokens a step."""
    return _page(
        {
            **_in_parts("v5e", 512, sharded(), keeping(offload=("layer_input",))),
            "v4-*": (sharded(), keeping(offload=("layer_input",))),
            **_in_parts("v6e", 512, sharded(), keeping(ATTENTION, offload=("layer_input",))),
            "v5p-*": (sharded(), keeping(ATTENTION, *QKV)),
            "tpu7x-*": (sharded(), keeping(ATTENTION, offload=("layer_input",))),
            **_in_parts("a100", 512, tensor_parallel(8), keeping(ATTENTION, "attention_output")),
            **_in_parts("h100", 512, tensor_parallel(8), keeping(ATTENTION, "attention_output")),
            **_in_parts("h200", 256, tensor_parallel(8), keeping(ATTENTION, "attention_output")),
            **_in_parts("b200", 64, sharded_everywhere(), keeping()),
            **_in_parts("gb200", 64, sharded_everywhere(), keeping()),
            "trn2-*": (tensor_parallel(4), keeping(*QKV, "ffn_gate")),
        }
    )


def qwen3_30b_a3b() -> MeshRules:
    """For thirty billion parameters, of which a token meets three, and seventeen million tokens a step."""
    in_nodes = chain(sharded(), states_everywhere(), experts_in_blocks(512))
    return _page(
        {
            **_in_parts("v5e", 1_024, sharded(), keeping(offload=("layer_input",))),
            **_in_parts("v4", 1_024, sharded(), keeping()),
            **_in_parts("v6e", 512, sharded(), keeping()),
            "v5p-*": (sharded(64), keeping()),
            **_in_parts("tpu7x", 1_024, sharded(64), keeping(ATTENTION)),
            **_in_parts("a100", 1_024, in_nodes, keeping(ATTENTION)),
            **_in_parts("h100", 1_024, in_nodes, keeping(ATTENTION)),
            **_in_parts("h200", 1_024, in_nodes, keeping(ATTENTION, *QKV, "attention_output")),
            **_in_parts("b200", 1_024, in_nodes, keeping(ATTENTION, *QKV, "attention_output")),
            **_in_parts("gb200", 1_024, in_nodes, keeping(ATTENTION, *QKV, "attention_output")),
            **_in_parts("trn2", 1_024, tensor_parallel(4), experts_in_blocks(512), keeping()),
        }
    )


def _in_parts(kind: str, whole_from: int, *pieces: AnyModifier) -> dict[str, tuple[AnyModifier, ...]]:
    """Rows for an accelerator: from ``whole_from`` on the batch is whole, below it in as many parts as chips are fewer."""
    sizes = [2**power for power in range(2, whole_from.bit_length() - 1)]
    rows = {f"{kind}-{size}": (*pieces, microbatches(whole_from // size)) for size in sizes}
    return {**rows, f"{kind}-*": pieces}


def _page(rows: Mapping[str, tuple[AnyModifier, ...]]) -> MeshRules:
    """Rules for a large model: in bfloat16, in blocks, with the compiler's options for its kind, and each row's own pieces."""

    def row(kind: str, pieces: tuple[AnyModifier, ...]) -> AnyModifier:
        return chain(IN_BFLOAT16, blocks_of(512), setting(Mesh, compiler_options=compiler_options(kind)), *pieces)

    return MeshRules(
        rules={"cpu-*": chain(), **{name: row(name.partition("-")[0], pieces) for name, pieces in rows.items()}}
    )


def _all(*kinds: str) -> list[str]:
    return [f"{kind}-*" for kind in kinds]
