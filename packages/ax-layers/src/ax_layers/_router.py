"""The router in which tokens choose experts: each the ``k`` with the best scores.

It computes in float32, whatever the rest of the model does. What varies between models is a child: how logits become scores,
noise on them, which of the scores are the best, a bias that takes part in the choice only, and the losses that keep the
load even. Shape suffixes: B batch, T length, D model dim, E experts, K experts of a token.
"""

from __future__ import annotations

import ax_config
import jax
import jax.numpy as jnp
from ax_config import REQUIRED, Buildable, field, partial_for

from . import initializers
from ._module import Module, scoped
from ._routing import expert_load, hand_out_losses, router_logits, router_weight
from .protocols import ArrayFn, Initializer, LogitNoise, RouterLoss, Routing, SelectFn, SelectionBias


def best_scores(scores: jax.Array, /, *, k: int) -> jax.Array:
    """The ``k`` experts of the highest scores; fits ``SelectFn``."""
    return jax.lax.top_k(scores, k)[1]


def best_scores_of_best_groups(
    scores: jax.Array, /, *, k: int, num_groups: int = 1, num_kept_groups: int = 1, best_of_group: int = 2
) -> jax.Array:
    """The ``k`` best of those experts whose groups are the best; fits ``SelectFn``.

    Experts stand in ``num_groups`` groups of neighbours, those of one node, say, so that a token is sent to few nodes. A
    group counts for the sum of its ``best_of_group`` best scores: 2 in DeepSeek-V3 (arXiv:2412.19437, §2.1.2), 1 in -V2.

    Raises:
        ValueError: The groups don't divide the experts, or the kept ones have fewer than ``k``.
    """
    num_batch, length, num_experts = scores.shape
    if num_experts % num_groups or num_kept_groups * (num_experts // num_groups) < k:
        raise ValueError(
            f"{num_experts} experts in {num_groups} groups, of which {num_kept_groups} are kept, can't give {k} a token"
        )
    grouped = scores.reshape(num_batch, length, num_groups, num_experts // num_groups)
    ranks = jax.lax.top_k(grouped, min(best_of_group, grouped.shape[-1]))[0].sum(axis=-1)
    kept = jax.lax.top_k(ranks, num_kept_groups)[1]
    is_kept = (kept[..., None] == jnp.arange(num_groups)[None, None, None]).any(axis=-2)
    return best_scores(jnp.where(is_kept[..., None], grouped, -jnp.inf).reshape(scores.shape), k=k)


class TopKRouter(Module):
    """Every token chooses ``top_k`` experts; fits ``Router``."""

    class Config(ax_config.Config["TopKRouter"]):
        """How many experts a token meets, and how they are chosen and weighed."""

        dim: int = REQUIRED
        num_experts: int = REQUIRED
        top_k: int
        score: Buildable[ArrayFn] = field(default_factory=lambda: partial_for(jax.nn.softmax))  # over the last dim
        normalise: bool = True  # scale the weights of a token's experts to a sum of 1
        scale: float = 1.0  # of all weights, after that
        noise: Buildable[LogitNoise] | None = None
        select: Buildable[SelectFn] = field(default_factory=lambda: partial_for(best_scores))
        bias: Buildable[SelectionBias] | None = None
        losses: dict[str, Buildable[RouterLoss]] = field(default_factory=dict)  # each is reported under its name
        initializer: Buildable[Initializer] = field(
            default_factory=lambda: partial_for(initializers.fan_in_truncated_normal)
        )
        param_dtype: str = "float32"

    def __init__(self, cfg: Config, /) -> None:
        super().__init__()
        if not 1 <= cfg.top_k <= cfg.num_experts:
            raise ValueError(f"top_k is between 1 and num_experts ({cfg.num_experts}), got {cfg.top_k}")
        self._cfg = cfg
        spec = router_weight(cfg.dim, cfg.num_experts, dtype=cfg.param_dtype, initializer=cfg.initializer.build())
        self.weight = self.param("weight", spec)
        self.score = self.child("score", cfg.score)
        self.select = self.child("select", cfg.select)
        self.noise = self.bias = None
        if cfg.noise is not None:
            self.noise = self.child("noise", cfg.noise, dim=cfg.dim, num_experts=cfg.num_experts)
        if cfg.bias is not None:
            self.bias = self.child("bias", cfg.bias, num_experts=cfg.num_experts)
        self.losses = {name: self.child(name, loss) for name, loss in cfg.losses.items()}

    @property
    def experts_per_token(self) -> float:
        """``top_k``."""
        return self._cfg.top_k

    @scoped
    def __call__(self, x: jax.Array, /) -> Routing:
        """``[B, T, D]`` → ``T · top_k`` assignments a sequence."""
        (num_batch, length, _), cfg = x.shape, self._cfg
        logits_BTE = router_logits(self, x, self.weight.value)
        if self.noise is not None:
            logits_BTE = self.noise(logits_BTE, x)
        scores_BTE = self.score(logits_BTE)
        # The choice has no gradient, the weights have.
        choice_BTE = jax.lax.stop_gradient(scores_BTE)
        if self.bias is not None:
            choice_BTE = self.bias(choice_BTE)
        experts_BTK = self.select(choice_BTE, k=cfg.top_k)
        weights_BTK = jnp.take_along_axis(scores_BTE, experts_BTK, axis=-1)
        if cfg.normalise:
            weights_BTK = weights_BTK / (weights_BTK.sum(axis=-1, keepdims=True) + 1e-20)
        tokens_BTK = jnp.broadcast_to(jnp.arange(length, dtype=jnp.int32)[None, :, None], experts_BTK.shape)
        routing = Routing(*(x.reshape(num_batch, -1) for x in (tokens_BTK, experts_BTK, weights_BTK * cfg.scale)))

        load_E = self.of_batch("load", expert_load(routing, num_experts=cfg.num_experts))
        if self.bias is not None:
            self.bias.observe(load_E)
        hand_out_losses(self, self.losses, logits_BTE, scores_BTE, load_E)
        return routing

    def training_flops_per_token(self, seq_length: int, /) -> float:
        """6 per weight, and the children's."""
        return super().training_flops_per_token(seq_length) + 6 * self._cfg.dim * self._cfg.num_experts
