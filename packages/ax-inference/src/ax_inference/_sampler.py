"""From logits to a token: temperature, then top-k, then top-p, then one draw a sequence."""

from __future__ import annotations

from functools import partial
from typing import final

import ax_config
import jax
import jax.numpy as jnp
from jax import lax


@final
class Sampler:
    """Draws tokens. Two samplers of equal settings are equal, so compiled programs are shared between them."""

    class Config(ax_config.Config["Sampler"]):
        """How random, and among which tokens.

        The distribution is ``softmax(logits / temperature)``, cut to the ``top_k`` likeliest tokens, then to the smallest
        set of likeliest tokens whose share of what is left reaches ``top_p`` (nucleus sampling, Holtzman et al. 2020),
        and renormalised. Tokens as likely as the last one kept are kept too.
        """

        temperature: float = 1.0
        """0 takes the likeliest token (the first of equals); the other two then change nothing."""
        top_k: int | None = None
        top_p: float | None = None

    def __init__(self, cfg: Config, /) -> None:
        if not 0 <= cfg.temperature < float("inf"):
            raise ValueError(f"Sampler wants a finite temperature of at least 0 (0: greedy); got {cfg.temperature}")
        if cfg.top_k is not None and cfg.top_k < 1:
            raise ValueError(f"Sampler wants a top_k of at least 1, or None to keep all tokens; got {cfg.top_k}")
        if cfg.top_p is not None and not 0 < cfg.top_p <= 1:
            raise ValueError(
                f"Sampler wants a top_p above 0 and at most 1, or None to keep all tokens; got {cfg.top_p}"
            )
        self._settings = (cfg.temperature, cfg.top_k, cfg.top_p)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sampler) and self._settings == other._settings

    def __hash__(self) -> int:
        return hash(self._settings)

    @partial(jax.jit, static_argnums=0)
    def __call__(self, logits: jax.Array, keys: jax.Array, /) -> jax.Array:
        """A token for each row of logits ``[…, V]``, int32 ``[…]``, drawn with that row's own key of ``keys`` ``[…]``."""
        if keys.shape != logits.shape[:-1]:
            raise ValueError(f"Sampler wants a key a row of logits {logits.shape}; got keys of shape {keys.shape}")
        temperature, _, _ = self._settings
        if temperature == 0:
            return jnp.argmax(logits, axis=-1).astype(jnp.int32)
        rows = self.log_weights(logits).reshape(-1, logits.shape[-1])
        return jax.vmap(jax.random.categorical)(keys.reshape(-1), rows).reshape(keys.shape).astype(jnp.int32)

    @partial(jax.jit, static_argnums=0)
    def log_weights(self, logits: jax.Array, /) -> jax.Array:
        """Unnormalised log-probabilities ``[…, V]`` float32 that a positive temperature draws from; -inf for tokens cut."""
        temperature, top_k, top_p = self._settings
        if temperature == 0:
            raise ValueError("a greedy Sampler (temperature 0) draws from no distribution")
        scaled = logits.astype(jnp.float32) / temperature
        if top_k is None and top_p is None:
            return scaled
        num_kept = min(top_k or scaled.shape[-1], scaled.shape[-1])
        descending = lax.top_k(scaled, num_kept)[0]
        if top_p is not None:
            shares = jax.nn.softmax(descending, axis=-1)
            before = jnp.cumsum(shares, axis=-1) - shares
            # The first is always kept: nothing stands before it.
            descending = jnp.where(before < top_p, descending, descending[..., :1])
        return jnp.where(scaled < descending.min(axis=-1, keepdims=True), -jnp.inf, scaled)
