"""The kinds of parallelism, alone and together: what the mesh is, and what a modifier changes in the model's config."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import ax_kernels
from ax_config import AnyModifier, config_for, modifier_for, overriding, partial_for, replacing, setting
from ax_layers import (
    AllToAll,
    Attention,
    Block,
    Capacity,
    CausalLM,
    GatedExperts,
    GatheredAttention,
    Remat,
    RingAttention,
    Schedule,
    UlyssesAttention,
    Zigzag,
    gpipe,
    one_forward_one_backward,
    pipelined,
    zero_bubble,
)
from ax_mesh import Mesh

from .training import Kind, Setup, setup

BLOCKED = partial_for(ax_kernels.attention.blocked, block_q=8, block_k=8)

GATHERED = setting(Attention, attention_fn=GatheredAttention.Config(inner=BLOCKED))
RING = setting(
    Attention,
    attention_fn=RingAttention.Config(part=config_for(ax_kernels.attention.PartialBlocked)(block_q=4, block_k=4)),
)
ULYSSES = setting(Attention, attention_fn=UlyssesAttention.Config(inner=BLOCKED))
ALL_TO_ALL = setting(GatedExperts, dispatch=AllToAll.Config())
CAPACITY = setting(GatedExperts, dispatch=Capacity.Config(factor=1.0))
REMAT = replacing(Block, lambda layer: Remat.Config(layer=layer, prevent_cse=False))
ZIGZAG = replacing(CausalLM, lambda model: Zigzag.Config(model=model))
ZERO_1 = setting(Mesh, optimizer_rules=(("embed", "data"), ("vocab", "data")))


def pipeline(
    schedule: Schedule = one_forward_one_backward,
    *,
    num_microbatches: int = 4,
    num_chunks: int = 1,
    layers_per_run: tuple[int, ...] = (),
) -> AnyModifier:
    """Layers in stages."""
    return modifier_for(
        pipelined,
        num_microbatches=num_microbatches,
        schedule=schedule,
        num_chunks=num_chunks,
        layers_per_run=layers_per_run,
    )


@dataclass(frozen=True)
class Case:
    """A way to train.

    Attributes:
        axes: The mesh's, of as many devices as their product says.
        how: What else changes in the configs of the mesh and of the model.
        what: What changes in what the model computes, and so in the reference too: what drops tokens, or sees microbatches.
        kinds: The models that it is for.
        sample: Whether it is one of the few that are always run.
    """

    axes: dict[str, int]
    how: tuple[AnyModifier, ...] = ()
    what: tuple[AnyModifier, ...] = ()
    kinds: tuple[Kind, ...] = ("dense", "moe")
    sample: bool = False


MOE_ONLY: tuple[Kind, ...] = ("moe",)
PIPELINE = pipeline()

CASES: dict[str, Case] = {
    # Alone.
    "data": Case({"data": 8}),
    "fsdp": Case({"fsdp": 8}),
    "zero-1": Case({"data": 8}, (ZERO_1,)),
    "tensor": Case({"tensor": 4}),
    "gathered": Case({"sequence": 8}, (GATHERED,)),
    "ring": Case({"sequence": 8}, (RING,)),
    "ulysses": Case({"sequence": 4}, (ULYSSES,)),
    "expert": Case({"expert": 8}, (ALL_TO_ALL,), kinds=MOE_ONLY),
    "expert-summed": Case({"expert": 8}, kinds=MOE_ONLY),
    "expert-capacity": Case({"expert": 8}, what=(CAPACITY,), kinds=MOE_ONLY),
    "gpipe": Case({"pipeline": 4}, what=(pipeline(gpipe),)),
    "1f1b": Case({"pipeline": 4}, what=(PIPELINE,)),
    "interleaved": Case({"pipeline": 2}, what=(pipeline(num_chunks=2),)),
    "zero-bubble": Case({"pipeline": 4}, what=(pipeline(zero_bubble),)),
    "uneven": Case({"pipeline": 2}, what=(pipeline(layers_per_run=(3, 1)),)),
    # Together.
    "hybrid-fsdp": Case({"data": 2, "fsdp": 4}),
    "data-tensor": Case({"data": 2, "tensor": 4}),
    "fsdp-tensor": Case({"fsdp": 4, "tensor": 2}),
    "fsdp-tensor-remat": Case({"fsdp": 2, "tensor": 4}, (REMAT,), sample=True),
    "data-fsdp-tensor": Case({"data": 2, "fsdp": 2, "tensor": 2}),
    "zero-1-tensor": Case({"data": 4, "tensor": 2}, (ZERO_1,)),
    "fsdp-gathered": Case({"fsdp": 2, "sequence": 4}, (GATHERED,)),
    "fsdp-ring-zigzag": Case({"fsdp": 2, "sequence": 4}, (RING, ZIGZAG)),
    "tensor-ring": Case({"tensor": 2, "sequence": 4}, (RING,), sample=True),
    "data-tensor-ulysses": Case({"data": 2, "tensor": 2, "sequence": 2}, (ULYSSES,)),
    "fsdp-ulysses-remat": Case({"fsdp": 4, "sequence": 2}, (ULYSSES, REMAT)),
    "expert-fsdp": Case({"fsdp": 2, "expert": 4}, (ALL_TO_ALL,), kinds=MOE_ONLY),
    "expert-tensor": Case({"expert": 4, "tensor": 2}, (ALL_TO_ALL,), kinds=MOE_ONLY),
    "expert-fsdp-tensor": Case({"fsdp": 2, "expert": 2, "tensor": 2}, (ALL_TO_ALL, REMAT), kinds=MOE_ONLY, sample=True),
    "expert-capacity-fsdp": Case({"fsdp": 4, "expert": 2}, what=(CAPACITY,), kinds=MOE_ONLY),
    "expert-ring": Case({"expert": 4, "sequence": 2}, (ALL_TO_ALL, RING), kinds=MOE_ONLY),
    "pipeline-data": Case({"pipeline": 4, "data": 2}, what=(PIPELINE,)),
    "pipeline-fsdp-remat": Case({"pipeline": 2, "fsdp": 4}, (REMAT,), what=(PIPELINE,)),
    "pipeline-tensor": Case({"pipeline": 2, "tensor": 4}, what=(PIPELINE,)),
    "pipeline-fsdp-tensor": Case({"pipeline": 2, "fsdp": 2, "tensor": 2}, what=(PIPELINE,)),
    "interleaved-fsdp": Case({"pipeline": 2, "fsdp": 4}, what=(pipeline(num_chunks=2),)),
    "zero-bubble-tensor": Case({"pipeline": 4, "tensor": 2}, what=(pipeline(zero_bubble),)),
    "gpipe-ring": Case({"pipeline": 2, "sequence": 4}, (RING,), what=(pipeline(gpipe),)),
    "pipeline-ulysses-data": Case({"pipeline": 2, "data": 2, "sequence": 2}, (ULYSSES,), what=(PIPELINE,)),
    "pipeline-expert": Case({"pipeline": 2, "expert": 4}, (ALL_TO_ALL,), what=(PIPELINE,), kinds=MOE_ONLY),
    "pipeline-expert-fsdp": Case(
        {"pipeline": 2, "fsdp": 2, "expert": 2}, (ALL_TO_ALL, REMAT), what=(PIPELINE,), kinds=MOE_ONLY
    ),
    # Of sixteen devices.
    "data-fsdp-tensor-pipeline": Case({"pipeline": 2, "data": 2, "fsdp": 2, "tensor": 2}, what=(PIPELINE,)),
    "fsdp-tensor-ring-zigzag": Case({"fsdp": 4, "tensor": 2, "sequence": 2}, (RING, ZIGZAG)),
    "pipeline-fsdp-expert-tensor": Case(
        {"pipeline": 2, "fsdp": 2, "expert": 2, "tensor": 2}, (ALL_TO_ALL,), what=(PIPELINE,), kinds=MOE_ONLY
    ),
}
"""By name: kinds of parallelism, in the order of the mesh's axes."""


def configured(case: Case, kind: Kind) -> tuple[Setup.Config, Setup.Config]:
    """The reference's config and the case's."""
    plain = reduce(lambda config, modifier: modifier(config), case.what, setup(kind))
    config = reduce(lambda config, modifier: modifier(config), case.how, plain)
    return plain, overriding(f"mesh.axes={case.axes}")(config)
