"""Stochastic depth (Huang et al. 2016, arXiv:1603.09382): a residual branch is left out, for some rows of a batch."""

from __future__ import annotations

import ax_config
import jax
import jax.numpy as jnp

from ._module import Module, scoped


class StochasticDepth(Module):
    """Sets all of a row to zero with probability ``rate`` and scales the others up; only in calls that have a key.

    Fits ``ArrayFn``; put it in the place of a block's dropout.
    """

    class Config(ax_config.Config["StochasticDepth"]):
        """How often a branch is left out."""

        rate: float = 0.0

    def __init__(self, cfg: Config, /) -> None:
        super().__init__()
        if not 0 <= cfg.rate < 1:
            raise ValueError(f"a rate of stochastic depth is at least 0 and below 1, got {cfg.rate}")
        self._rate = cfg.rate

    @scoped
    def __call__(self, x: jax.Array, /) -> jax.Array:
        """``[B, …]``, of which each of the ``B`` rows is kept or not."""
        if self._rate == 0 or self.random is None:
            return x
        keep = jax.random.bernoulli(self.key("row"), 1 - self._rate, (x.shape[0], *(1,) * (x.ndim - 1)))
        return jnp.where(keep, x / (1 - self._rate), jnp.zeros_like(x))
