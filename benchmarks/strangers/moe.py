"""A mixture of experts (Shazeer et al. 2017, arXiv:1701.06538) in place of a feed-forward; the experts are that feed-forward.

The router weighs the experts for each token and keeps the ``top_k`` best. Then each expert takes the tokens that want it
most, up to its capacity; without one it takes all, and none is dropped.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal, TypeVar

import ax_config
import jax
import jax.numpy as jnp
from ax_config import REQUIRED, Buildable, Config, field, replace, role
from ax_layers import Collected, Linear, Module, ParamSpec, SpecTree, Wrapper, functional, scoped
from ax_layers.protocols import ArrayFn, ArrayTree, Projection

ConfigT = TypeVar("ConfigT", bound=Config[object])


class Experts(Wrapper):
    """The same layer ``num_experts`` times, side by side: parameters stacked, each with an input of its own."""

    class Config(ax_config.Config["Experts"]):
        """How many, and of what."""

        dim: int = REQUIRED
        num_experts: int
        expert: Buildable[ArrayFn]

    def __init__(self, cfg: Config, /) -> None:
        super().__init__()
        self._num_experts = cfg.num_experts
        self._expert = self.wrap(cfg.expert, dim=cfg.dim)

    def specs(self) -> SpecTree:
        """The expert's, with a leading "expert" axis."""

        def stacked(spec: ParamSpec) -> ParamSpec:
            return spec.stacked(self._num_experts, "expert")

        tree: SpecTree = jax.tree.map(stacked, super().specs())
        return tree

    def init(self, key: jax.Array, /) -> ArrayTree:
        """Each expert drawn by itself."""
        init = super().init
        return jax.vmap(lambda i: init(jax.random.fold_in(key, i)))(jnp.arange(self._num_experts))

    @scoped
    def __call__(self, x_ECD: jax.Array, /) -> jax.Array:
        """``[E, C, D] → [E, C, D]``."""
        call, random = functional(self._expert), self.random

        def run(params: ArrayTree, i: jax.Array, x_CD: jax.Array) -> tuple[jax.Array, Collected]:
            y_C1D, collected = call(params, None if random is None else random.fold(i), x_CD[:, None])
            return y_C1D[:, 0], collected

        y_ECD, collected = jax.vmap(run)(self.params, jnp.arange(self._num_experts), x_ECD)
        self.absorb(collected)
        return y_ECD


class MixtureOfExperts(Module):
    """Fits ``ArrayFn``."""

    class Config(ax_config.Config["MixtureOfExperts"]):
        """The experts, and how tokens find them."""

        dim: int = REQUIRED
        expert: Buildable[ArrayFn] = REQUIRED
        num_experts: int
        top_k: int
        gating: Literal["softmax", "softmax of the best", "sigmoid"] = "softmax"
        capacity_factor: float | None = None  # times the tokens that an expert gets if all get the same; None: all
        balance_weight: float = 0.01  # of the load-balancing loss (Fedus et al. 2021, arXiv:2101.03961)
        z_weight: float = 0.0  # of the router's z-loss (Zoph et al. 2022, arXiv:2202.08906)
        shared: bool = False  # one more expert, for all tokens (Dai et al. 2024, arXiv:2401.06066)
        router: Buildable[Projection] = field(default_factory=Linear.Config)

    def __init__(self, cfg: Config, /) -> None:
        super().__init__()
        if not 1 <= cfg.top_k <= cfg.num_experts:
            raise ValueError(f"top_k is between 1 and num_experts ({cfg.num_experts}), got {cfg.top_k}")
        self._cfg = cfg
        self.router = self.child(
            "router", cfg.router, in_dim=cfg.dim, out_dim=cfg.num_experts, in_axes=("embed",), out_axes=(None,)
        )
        experts = Experts.Config(num_experts=cfg.num_experts, expert=cfg.expert)
        self.experts = self.child("experts", experts, dim=cfg.dim)
        self.shared = self.child("shared", cfg.expert, dim=cfg.dim) if cfg.shared else None

    @scoped
    def __call__(self, x: jax.Array, /) -> jax.Array:
        """``[B, T, D] → [B, T, D]``."""
        x_MD = x.reshape(-1, x.shape[-1])
        weights_ME = self._route(self.router(x_MD).astype(jnp.float32))
        weights_EC, tokens_EC = jax.lax.top_k(weights_ME.T, self._capacity(len(x_MD)))
        outputs_ECD = self.experts(x_MD[tokens_EC]) * weights_EC[..., None].astype(x.dtype)
        y = jnp.zeros_like(x_MD).at[tokens_EC].add(outputs_ECD).reshape(x.shape)
        kept, wanted = (weights_EC > 0).sum(dtype=jnp.int32), (weights_ME > 0).sum(dtype=jnp.int32)
        self.summarise("dropped", 1.0 - kept.astype(jnp.float32) / wanted.astype(jnp.float32))
        return y if self.shared is None else y + self.shared(x)

    def training_flops_per_token(self, seq_length: int, /) -> float:
        """The router's, and those of the experts that a token meets."""
        all_children = super().training_flops_per_token(seq_length)
        one_expert = self.experts.training_flops_per_token(seq_length)
        return all_children + (self._cfg.top_k - 1) * one_expert

    def _capacity(self, num_tokens: int) -> int:
        cfg = self._cfg
        if cfg.capacity_factor is None:
            return num_tokens
        return min(num_tokens, math.ceil(cfg.capacity_factor * num_tokens * cfg.top_k / cfg.num_experts))

    def _route(self, logits_ME: jax.Array) -> jax.Array:
        """The weight of each expert for each token, zero for all but the best; hands out the losses."""
        cfg = self._cfg
        scores_ME = jax.nn.sigmoid(logits_ME) if cfg.gating == "sigmoid" else jax.nn.softmax(logits_ME)
        _, best_MK = jax.lax.top_k(logits_ME, cfg.top_k)
        chosen_ME = jax.nn.one_hot(best_MK, cfg.num_experts, dtype=jnp.float32).sum(axis=1)
        weights_ME = scores_ME * chosen_ME
        if cfg.gating != "softmax":
            weights_ME = weights_ME / weights_ME.sum(axis=-1, keepdims=True)
        load_E, meant_E = chosen_ME.mean(axis=0), scores_ME.mean(axis=0)
        balance = cfg.num_experts / cfg.top_k * (load_E * meant_E).sum()
        z = jnp.square(jax.nn.logsumexp(logits_ME, axis=-1)).mean()
        self.summarise("load_balance", balance)
        self.output("aux_loss", cfg.balance_weight * balance + cfg.z_weight * z)
        return weights_ME


_Moe = MixtureOfExperts.Config
VARIANTS: Mapping[str, MixtureOfExperts.Config] = {
    "4, top 1": _Moe(num_experts=4, top_k=1),
    "4, top 2": _Moe(num_experts=4, top_k=2),
    "8, top 1, capacity 1.25": _Moe(num_experts=8, top_k=1, capacity_factor=1.25),
    "8, top 2": _Moe(num_experts=8, top_k=2, gating="softmax of the best"),
    "8, top 2, capacity 2": _Moe(num_experts=8, top_k=2, gating="softmax of the best", capacity_factor=2.0),
    "8, top 2, sigmoid": _Moe(num_experts=8, top_k=2, gating="sigmoid"),
    "8, top 2, z-loss": _Moe(num_experts=8, top_k=2, z_weight=1e-3),
    "8, top 2, shared": _Moe(num_experts=8, top_k=2, shared=True),
    "16, top 4": _Moe(num_experts=16, top_k=4, gating="softmax of the best", balance_weight=1e-3),
    "16, top 4, unbalanced": _Moe(num_experts=16, top_k=4, gating="sigmoid", balance_weight=0.0),
}


def modify(tree: ConfigT, *, variant: str) -> ConfigT:
    """Every feed-forward becomes the expert of a mixture."""
    return replace(tree, role("ffn"), lambda ffn: VARIANTS[variant].clone(expert=ffn))
