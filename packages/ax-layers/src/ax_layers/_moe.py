"""The mixture of experts (Shazeer et al. 2017, arXiv:1701.06538), which stands wherever a feed-forward does.

It is three parts that know nothing of each other. The *router* says which experts see which tokens. The *experts* hold the
weights, and run them on whatever their *dispatch* brings them. *Shared* layers see every token (DeepSeekMoE, Dai et al.
2024, arXiv:2401.06066). To put one into a model:

    replace(model, role("ffn"), MoE.Config(num_experts=8, router=TopKRouter.Config(top_k=2), experts=GatedExperts.Config(…)))
"""

from __future__ import annotations

import ax_config
import jax
import jax.numpy as jnp
from ax_config import REQUIRED, Buildable

from ._module import Module, scoped
from ._routing import expert_load
from .protocols import ArrayFn, Experts, Router


class MoE(Module):
    """The weighted sum of the outputs of each token's experts, and the shared layer's; fits ``ArrayFn``.

    Reports "dropped_fraction", the part of the router's assignments that the dispatch had no room for;
    "unserved_fraction", the part of the tokens that reached no expert; and "max_load" and "min_load", the most and the
    fewest tokens that an expert was given, in units of the mean.
    """

    class Config(ax_config.Config["MoE"]):
        """How many experts, and the parts."""

        dim: int = REQUIRED
        num_experts: int
        router: Buildable[Router]
        experts: Buildable[Experts]
        shared: Buildable[ArrayFn] | None = None

    def __init__(self, cfg: Config, /) -> None:
        super().__init__()
        self._num_experts = cfg.num_experts
        self.router = self.child("router", cfg.router, dim=cfg.dim, num_experts=cfg.num_experts)
        self.experts = self.child("experts", cfg.experts, dim=cfg.dim, num_experts=cfg.num_experts)
        self.shared = None if cfg.shared is None else self.child("shared", cfg.shared, dim=cfg.dim)

    @scoped
    def __call__(self, x: jax.Array, /) -> jax.Array:
        """``[B, T, D] → [B, T, D]``."""
        routing = self.router(x)
        y, reached_BT = self.experts(x, routing)
        load_E = expert_load(routing, num_experts=self._num_experts)
        served = reached_BT.sum(dtype=jnp.int32).astype(jnp.float32)
        self.summarise("dropped_fraction", 1.0 - served / routing.experts.size)
        self.summarise("unserved_fraction", (reached_BT == 0).astype(jnp.float32).mean())
        self.summarise("max_load", load_E.max() / load_E.mean())
        self.summarise("min_load", load_E.min() / load_E.mean())
        return y if self.shared is None else y + self.shared(x)

    def training_flops_per_token(self, seq_length: int, /) -> float:
        """The router's, those of the experts that a token meets, and the shared layer's."""
        one_expert = self.experts.training_flops_per_token(seq_length)
        return super().training_flops_per_token(seq_length) + (self.router.experts_per_token - 1) * one_expert
