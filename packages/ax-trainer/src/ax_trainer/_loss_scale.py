"""Loss scaling, for gradients in float16, whose small values would be zero (Micikevicius et al. 2018, arXiv:1710.03740).

The step multiplies the loss with the scale and divides the gradients by it again; what it reports is without. The scale is what this rule
remembers, so it stands in the optimizer's state, and in checkpoints. In bfloat16 and float32 nothing of this is needed.
"""

from __future__ import annotations

from typing import NamedTuple, cast

import ax_config
import jax
import jax.numpy as jnp


class LossScaleState(NamedTuple):
    """The scale, and for how many steps it has been good."""

    loss_scale: jax.Array
    num_good: jax.Array


class LossScale:
    """Multiplies the loss, and skips steps whose gradients are too large for their type then; fits ``SkipRule``.

    After such a step the scale is halved; after ``growth_interval`` good ones it is doubled.

    Raises:
        ValueError: The numbers are not in order.
    """

    class Config(ax_config.Config["LossScale"]):
        """Where it begins, and how it goes on."""

        initial: float = 2.0**15
        growth_interval: int | None = 2_000
        """None: the scale stays, and no step is skipped for it."""
        smallest: float = 1.0
        largest: float = 2.0**24

    def __init__(self, cfg: Config, /) -> None:
        if not 0 < cfg.smallest <= cfg.initial <= cfg.largest or (cfg.growth_interval or 1) < 1:
            raise ValueError(
                f"LossScale has 0 < smallest <= initial <= largest and growth_interval >= 1, got {cfg.smallest}, {cfg.initial}, "
                f"{cfg.largest} and {cfg.growth_interval}"
            )
        self.cfg = cfg

    def init(self) -> LossScaleState:
        """The first scale."""
        return LossScaleState(jnp.full((), self.cfg.initial, jnp.float32), jnp.zeros((), jnp.int32))

    def judge(self, state: object, /, *, loss: jax.Array, grad_norm: jax.Array) -> tuple[jax.Array, object]:
        """Whether the gradients aren't finite."""
        cfg, now = self.cfg, cast("LossScaleState", state)
        if cfg.growth_interval is None:
            return jnp.zeros((), jnp.bool_), state
        bad = ~(jnp.isfinite(loss) & jnp.isfinite(grad_norm))
        num_good = jnp.where(bad, 0, now.num_good + 1)
        grows = num_good == cfg.growth_interval
        factor = jnp.where(bad, 0.5, jnp.where(grows, 2.0, 1.0))
        scale = jnp.clip(now.loss_scale * factor, cfg.smallest, cfg.largest)
        return bad, LossScaleState(scale, jnp.where(grows, 0, num_good))
