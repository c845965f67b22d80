"""Prediction of tokens beyond the next (DeepSeek-V3, arXiv:2412.19437, §2.2): a denser signal for the same text.

Step ``k`` takes what the step before made of each position and the embedding of the token ``k`` further on, joins them, and
runs a layer of its own; the model's head turns that into the token after. All steps keep the causal chain. Sampling
needs none of it.
"""

from __future__ import annotations

from collections.abc import Sequence

import ax_config
import jax
import jax.numpy as jnp
from ax_config import REQUIRED, Buildable, field

from ._linear import Linear
from ._module import Module, scoped
from ._rms_norm import RMSNorm
from .protocols import ArrayFn, FurtherPrediction, Projection, SequenceLayer


class FurtherTokens(Module):
    """Predicts ``num_tokens`` tokens beyond the next one; fits ``FurtherPredictions``.

    ``weight`` is that of all of them together, so each has ``weight / num_tokens``.
    """

    class Config(ax_config.Config["FurtherTokens"]):
        """How many, and the parts of each step."""

        dim: int = REQUIRED
        num_tokens: int = 1
        weight: float = 0.3
        layer: Buildable[SequenceLayer]
        norm: Buildable[ArrayFn] = field(default_factory=RMSNorm.Config)  # built for both inputs, and for the head
        projection: Buildable[Projection] = field(default_factory=Linear.Config)

    def __init__(self, cfg: Config, /) -> None:
        super().__init__()
        if cfg.num_tokens < 1:
            raise ValueError(f"FurtherTokens predicts at least 1 token, got {cfg.num_tokens}")
        self.weight = cfg.weight / cfg.num_tokens
        self.steps = [
            self.child(f"step_{k}", Step.Config(layer=cfg.layer, norm=cfg.norm, projection=cfg.projection), dim=cfg.dim)
            for k in range(1, cfg.num_tokens + 1)
        ]

    @property
    def num_predictions(self) -> int:
        """How many tokens beyond the next."""
        return len(self.steps)

    @scoped
    def __call__(
        self,
        hidden: jax.Array,
        embedded: jax.Array,
        targets: jax.Array,
        /,
        *,
        positions: jax.Array | None,
        segments: jax.Array | None,
    ) -> Sequence[FurtherPrediction]:
        """See ``FurtherPredictions``."""
        predictions = []
        for k, step in enumerate(self.steps, 1):
            hidden, normed = step(hidden, _ahead(embedded, k, 0), positions=positions, segments=segments)
            wanted = _ahead(targets, k, -1)
            if segments is not None:
                wanted = jnp.where(_ahead(segments, k, -1) == segments, wanted, -1)
            predictions.append(FurtherPrediction(normed, wanted))
        return predictions


class Step(Module):
    """One token further."""

    class Config(ax_config.Config["Step"]):
        """Its parts."""

        dim: int = REQUIRED
        layer: Buildable[SequenceLayer]
        norm: Buildable[ArrayFn]
        projection: Buildable[Projection]

    def __init__(self, cfg: Config, /) -> None:
        super().__init__()
        self.hidden_norm = self.child("hidden_norm", cfg.norm, dim=cfg.dim)
        self.embedded_norm = self.child("embedded_norm", cfg.norm, dim=cfg.dim)
        self.projection = self.child(
            "projection",
            cfg.projection,
            in_dim=2 * cfg.dim,
            out_dim=cfg.dim,
            in_axes=("embed",),
            out_axes=(None,),
        )
        self.layer = self.child("layer", cfg.layer, dim=cfg.dim)
        self.norm = self.child("norm", cfg.norm, dim=cfg.dim)

    @scoped
    def __call__(
        self, hidden: jax.Array, embedded: jax.Array, /, *, positions: jax.Array | None, segments: jax.Array | None
    ) -> tuple[jax.Array, jax.Array]:
        """What the next step is given, and what the head is given; both ``[B, T, D]``."""
        joined = jnp.concatenate([self.hidden_norm(hidden), self.embedded_norm(embedded)], axis=-1)
        hidden = self.layer(self.projection(joined), positions=positions, segments=segments)
        return hidden, self.norm(hidden)


def _ahead(x: jax.Array, steps: int, fill: int) -> jax.Array:
    """``x`` ``[B, T, …]`` as it is ``steps`` positions further on, ``fill`` past the end."""
    length = x.shape[1]
    if steps >= length:
        return jnp.full_like(x, fill)
    padding = [(0, 0), (0, steps), *[(0, 0)] * (x.ndim - 2)]
    return jnp.pad(x[:, steps:], padding, constant_values=fill)
