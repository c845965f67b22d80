"""What keeps a router from sending all tokens to the same few experts.

Losses, which pull on the router's weights: ``load_balance_loss`` and ``router_z_loss`` fit ``RouterLoss``. And ``BalancingBias``,
which leaves the loss alone and instead shifts the choice by a state that follows the load.
"""

# ruff: noqa: ARG001  # a signature that fits a protocol takes what it may not need

from __future__ import annotations

import ax_config
import jax
import jax.numpy as jnp
import numpy as np
from ax_config import REQUIRED

from . import initializers
from ._module import Module, scoped
from ._param_spec import ParamSpec


def load_balance_loss(logits: jax.Array, scores: jax.Array, load: jax.Array, /, *, weight: float = 0.01) -> jax.Array:
    """``weight · E · Σ fₑ · pₑ``: the load-balance loss of Switch Transformer (Fedus et al. 2021, arXiv:2101.03961, eq. 4).

    ``fₑ`` is the share of all assignments that expert ``e`` has and ``pₑ`` its mean score, where a token's scores are scaled to
    a sum of 1 (as DeepSeek-V3 does with sigmoids, arXiv:2412.19437, eq. 18). Perfect balance gives ``weight``, whatever top-k.
    The default weight is Switch Transformer's.
    """
    share_E = load / load.sum()
    scaled = scores / scores.sum(axis=-1, keepdims=True)
    return weight * load.shape[0] * (share_E * scaled.mean(axis=(0, 1))).sum()


def router_z_loss(logits: jax.Array, scores: jax.Array, load: jax.Array, /, *, weight: float = 1e-3) -> jax.Array:
    """``weight · mean(logsumexp(logits)²)``: keeps logits small (ST-MoE, Zoph et al. 2022, arXiv:2202.08906, eq. 5).

    The default weight is ST-MoE's.
    """
    return weight * jnp.square(jax.nn.logsumexp(logits, axis=-1)).mean()


class BalancingBias(Module):
    """Balance without a loss (Wang et al. 2024, arXiv:2408.15664): fits ``SelectionBias``.

    The bias is a state. After each step that of every expert with less than the mean load is raised by ``rate``, and that of
    every expert with more is lowered. It gets no gradient, and no weight decay.
    """

    class Config(ax_config.Config["BalancingBias"]):
        """How fast it follows."""

        num_experts: int = REQUIRED
        rate: float = 1e-3

    def __init__(self, cfg: Config, /) -> None:
        super().__init__()
        self._rate = cfg.rate
        dtype, axes = np.dtype("float32"), (None,)
        spec = ParamSpec((cfg.num_experts,), dtype, axes, initializers.zeros, weight_decay=False, trainable=False)
        self.bias = self.param("bias", spec)

    @scoped
    def __call__(self, scores: jax.Array, /) -> jax.Array:
        """``scores + bias``."""
        return scores + jax.lax.stop_gradient(self.bias.value)[None, None]

    @scoped
    def observe(self, load: jax.Array, /) -> None:
        """Hand out the next bias."""
        self.update("bias", jax.lax.stop_gradient(self.bias.value) + self._rate * jnp.sign(load.mean() - load))
