"""The router in which experts choose tokens (Zhou et al. 2022, arXiv:2202.09368).

Every expert takes the same number of tokens of each sequence, so the load is even by construction; a token may be taken by
several experts or by none. An expert looks at the whole sequence when it chooses. So the choice isn't causal: a language
model trained so can't be decoded token by token as it was trained.
"""

from __future__ import annotations

import math

import ax_config
import jax
import jax.numpy as jnp
from ax_config import REQUIRED, Buildable, field, partial_for

from . import initializers
from ._module import Module, scoped
from ._routing import expert_load, hand_out_losses, router_logits, router_weight
from .protocols import ArrayFn, Initializer, RouterLoss, Routing


class ExpertChoiceRouter(Module):
    """Every expert takes its ``experts_per_token · T / E`` best tokens of a sequence, rounded up; fits ``Router``."""

    class Config(ax_config.Config["ExpertChoiceRouter"]):
        """How many experts a token meets on average, and how tokens are weighed."""

        dim: int = REQUIRED
        num_experts: int = REQUIRED
        experts_per_token: float
        score: Buildable[ArrayFn] = field(default_factory=lambda: partial_for(jax.nn.softmax))  # over the last dim
        losses: dict[str, Buildable[RouterLoss]] = field(default_factory=dict)  # each is reported under its name
        initializer: Buildable[Initializer] = field(
            default_factory=lambda: partial_for(initializers.fan_in_truncated_normal)
        )
        param_dtype: str = "float32"

    def __init__(self, cfg: Config, /) -> None:
        super().__init__()
        if not 0 < cfg.experts_per_token <= cfg.num_experts:
            raise ValueError(
                f"experts_per_token is more than 0 and at most num_experts ({cfg.num_experts}), got {cfg.experts_per_token}"
            )
        self._cfg = cfg
        spec = router_weight(cfg.dim, cfg.num_experts, dtype=cfg.param_dtype, initializer=cfg.initializer.build())
        self.weight = self.param("weight", spec)
        self.score = self.child("score", cfg.score)
        self.losses = {name: self.child(name, loss) for name, loss in cfg.losses.items()}

    @property
    def experts_per_token(self) -> float:
        """On average."""
        return self._cfg.experts_per_token

    @scoped
    def __call__(self, x: jax.Array, /) -> Routing:
        """``[B, T, D]`` → as many assignments for every expert."""
        (num_batch, length, _), cfg = x.shape, self._cfg
        logits_BTE = router_logits(self, x, self.weight.value)
        scores_BTE = self.score(logits_BTE)
        num_taken = min(length, math.ceil(cfg.experts_per_token * length / cfg.num_experts))
        weights_BEC, tokens_BEC = jax.lax.top_k(jnp.swapaxes(scores_BTE, 1, 2), num_taken)
        experts_BEC = jnp.broadcast_to(jnp.arange(cfg.num_experts, dtype=jnp.int32)[None, :, None], tokens_BEC.shape)
        routing = Routing(*(x.reshape(num_batch, -1) for x in (tokens_BEC, experts_BEC, weights_BEC)))

        load_E = expert_load(routing, num_experts=cfg.num_experts)
        hand_out_losses(self, self.losses, logits_BTE, scores_BTE, load_E)
        return routing

    def training_flops_per_token(self, seq_length: int, /) -> float:
        """6 per weight, and the children's."""
        return super().training_flops_per_token(seq_length) + 6 * self._cfg.dim * self._cfg.num_experts
