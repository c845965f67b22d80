"""Dropout (Srivastava et al. 2014)."""

from __future__ import annotations

import ax_config
import jax
import jax.numpy as jnp

from ._module import Module, scoped


class Dropout(Module):
    """Sets each element to zero with probability ``rate`` and scales the others up; only in calls that have a key."""

    class Config(ax_config.Config["Dropout"]):
        """How much to drop."""

        rate: float = 0.0

    def __init__(self, cfg: Config, /) -> None:
        super().__init__()
        if not 0 <= cfg.rate < 1:
            raise ValueError(f"a dropout rate is at least 0 and below 1, got {cfg.rate}")
        self._rate = cfg.rate

    @scoped
    def __call__(self, x: jax.Array, /) -> jax.Array:
        """An array of any shape."""
        if self._rate == 0 or self.random is None:
            return x
        keep = jax.random.bernoulli(self.key("mask"), 1 - self._rate, x.shape)
        return jnp.where(keep, x / (1 - self._rate), jnp.zeros_like(x))
