"""Noisy gating: routers try other experts in training (Shazeer et al. 2017, arXiv:1701.06538, eq. 4)."""

# ruff: noqa: ARG002  # a signature that fits a protocol takes what it may not need

from __future__ import annotations

import ax_config
import jax
from ax_config import REQUIRED

from . import initializers
from ._module import Module, scoped
from ._routing import router_logits, router_weight


class NoisyGating(Module):
    """``logits + normal · softplus(x · weight)``, with noise of a size that is learnt; only in calls that have a key."""

    class Config(ax_config.Config["NoisyGating"]):
        """Nothing to choose; the weight starts at zero, as in the paper."""

        dim: int = REQUIRED
        num_experts: int = REQUIRED
        param_dtype: str = "float32"

    def __init__(self, cfg: Config, /) -> None:
        super().__init__()
        self._flops = 6 * cfg.dim * cfg.num_experts
        spec = router_weight(cfg.dim, cfg.num_experts, dtype=cfg.param_dtype, initializer=initializers.zeros)
        self.weight = self.param("weight", spec)

    @scoped
    def __call__(self, logits: jax.Array, x: jax.Array, /) -> jax.Array:
        """See ``LogitNoise``."""
        if self.random is None:
            return logits
        size = jax.nn.softplus(router_logits(self, x, self.weight.value))
        return logits + jax.random.normal(self.key("noise"), logits.shape) * size

    def training_flops_per_token(self, seq_length: int, /) -> float:
        """6 per weight."""
        return self._flops
