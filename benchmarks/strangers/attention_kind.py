"""Another kind of attention: linear, with a decay a head (Katharopoulos et al. 2020, arXiv:2006.16236; Sun et al. 2023,
arXiv:2307.08621).

A weight is a product of features of query and key, times what the head's decay leaves of it on the way from one to the other;
so all that was read is held in a state of one matrix a head, and a token costs the same wherever it stands. The state is run
by any ``StateSpaceFn``. Shape suffixes: B batch, T length, G groups of heads, N heads, H head dim.
"""

# ruff: noqa: ARG002  # a signature that fits a protocol takes what it may not need

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeVar, cast

import ax_config
import jax
import jax.numpy as jnp
import numpy as np
from ax_config import REQUIRED, Buildable, Config, field, partial_for, replace
from ax_layers import Attention, LayerNorm, Linear, Module, ParamSpec, RMSNorm, no_positions, rotary, scoped, ssd
from ax_layers.protocols import ArrayFn, ArrayTree, PositionEncoding, Projection, StateSpaceFn

ConfigT = TypeVar("ConfigT", bound=Config[object])


class DecayingAttention(Module):
    """Causal linear attention; fits ``SequenceLayer``. What it remembers of a sequence doesn't grow."""

    class Config(ax_config.Config["DecayingAttention"]):
        """Heads, how fast they forget, and the parts."""

        dim: int = REQUIRED
        num_heads: int = REQUIRED
        head_dim: int = REQUIRED
        num_groups: int | None = (
            None  # of heads that share queries and keys, and differ in their decay; None: num_heads
        )
        features: Buildable[ArrayFn] | None = None  # of queries and keys; None: themselves
        decay: Literal["retention", "slopes"] | None = "retention"
        adapts: Literal["never", "by learning", "to the input"] = "never"
        position_encoding: Buildable[PositionEncoding] = field(default_factory=lambda: partial_for(no_positions))
        norm: Buildable[ArrayFn] | None = field(
            default_factory=RMSNorm.Config
        )  # of a head; None: by the sum of weights
        state_space_fn: Buildable[StateSpaceFn] = field(default_factory=lambda: partial_for(ssd))
        query: Buildable[Projection] = field(default_factory=Linear.Config)
        key: Buildable[Projection] = field(default_factory=Linear.Config)
        value: Buildable[Projection] = field(default_factory=Linear.Config)
        output: Buildable[Projection] = field(default_factory=Linear.Config)
        forget: Buildable[Projection] = field(
            default_factory=Linear.Config
        )  # what the input adds to the decays' logits

    def __init__(self, cfg: Config, /) -> None:
        super().__init__()
        if cfg.decay is None and cfg.adapts != "never":
            raise ValueError(f"there is no decay that could adapt {cfg.adapts}")
        self._num_heads, self._head_dim = cfg.num_heads, cfg.head_dim
        self._forgets = None if cfg.decay is None else forgetting(cfg.decay, cfg.num_heads)
        heads = {"out_dim": (cfg.num_heads, cfg.head_dim), "out_axes": ("heads", None)}
        groups = {"out_dim": (cfg.num_groups or cfg.num_heads, cfg.head_dim), "out_axes": ("kv_heads", None)}
        inward = {"in_dim": cfg.dim, "in_axes": ("embed",)}
        self.query = self.child("query", cfg.query, **inward, **groups)
        self.key_projection = self.child("key", cfg.key, **inward, **groups)
        self.value = self.child("value", cfg.value, **inward, **heads)
        self.output_projection = self.child(
            "output", cfg.output, in_dim=heads["out_dim"], in_axes=("heads", None), out_dim=cfg.dim, out_axes=("embed",)
        )
        self.features = None if cfg.features is None else self.child("features", cfg.features)
        self.position_encoding = self.child("position_encoding", cfg.position_encoding)
        self.norm = None if cfg.norm is None else self.child("norm", cfg.norm, dim=cfg.head_dim)
        self.state_space_fn = self.child("state_space_fn", cfg.state_space_fn)
        self.forget: Projection | None = None
        if cfg.adapts == "to the input":
            self.forget = self.child("forget", cfg.forget, **inward, out_dim=cfg.num_heads, out_axes=("heads",))
        self.logits = None
        if cfg.adapts != "never":
            spec = ParamSpec((cfg.num_heads,), np.dtype(np.float32), ("heads",), self._first_logits, weight_decay=False)
            self.logits = self.param("logits", spec)

    @scoped
    def __call__(
        self, x: jax.Array, /, *, positions: jax.Array | None = None, segments: jax.Array | None = None
    ) -> jax.Array:
        """``[B, T, D] → [B, T, D]``; each position knows of those before it in its segment."""
        return self._attend(x, positions, None, segments)[0]

    def init_cache(self, *, batch_size: int, max_length: int) -> ArrayTree:
        """A state of zeros, whatever the length."""
        width = self._head_dim + (self.norm is None)
        return {"state": jnp.zeros((batch_size, self._num_heads, self._head_dim, width), jnp.float32)}

    @scoped
    def extend(self, x: jax.Array, cache: ArrayTree, /, *, positions: jax.Array) -> tuple[jax.Array, ArrayTree]:
        """The next ``[B, T, D]``."""
        out, state = self._attend(x, positions, cast("jax.Array", cache["state"]), None)
        return out, {"state": state}

    def _attend(
        self, x: jax.Array, positions: jax.Array | None, state: jax.Array | None, segments: jax.Array | None
    ) -> tuple[jax.Array, jax.Array]:
        query, key, value = self.query(x), self.key_projection(x), self.value(x)
        if self.features is not None:
            query, key = self.features(query), self.features(key)
        query = self.position_encoding(query * self._head_dim**-0.5, positions=positions)
        key = self.position_encoding(key, positions=positions)
        log_decay = self._log_decay(x)
        if positions is not None:  # padding neither takes anything from the state nor adds to it
            real = (positions >= 0)[..., None]
            key, log_decay = jnp.where(real[..., None], key, 0), jnp.where(real, log_decay, 0.0)
        query = self.save_point("query", self.constrain(query, ("batch", "seq", "kv_heads", None)))
        key = self.save_point("key", self.constrain(key, ("batch", "seq", "kv_heads", None)))
        value = self.save_point("value", self.constrain(value, ("batch", "seq", "heads", None)))
        if self.norm is None:  # one more column sums the weights
            value = jnp.concatenate([value, jnp.ones_like(value[..., :1])], axis=-1)
        mixed, state = self.state_space_fn(query, key, value, log_decay, state=state, segments=segments)
        mixed = self.constrain(self._normalised(mixed), ("batch", "seq", "heads", None))
        return self.output_projection(self.save_point("attention", mixed)), state

    def _normalised(self, mixed: jax.Array) -> jax.Array:
        if self.norm is not None:
            return self.norm(mixed)
        return mixed[..., :-1] / (mixed[..., -1:] + 1e-6)

    def _log_decay(self, x: jax.Array) -> jax.Array:
        shape = (*x.shape[:2], self._num_heads)
        if self._forgets is None:
            return jnp.zeros(shape, jnp.float32)
        if self.logits is None:
            return jnp.broadcast_to(np.log1p(-self._forgets)[None, None], shape)
        logits = jnp.broadcast_to(self.logits.value[None, None], shape)
        return jax.nn.log_sigmoid(logits if self.forget is None else logits + self.forget(x).astype(jnp.float32))

    def _first_logits(
        self, key: jax.Array, shape: tuple[int, ...], dtype: jax.typing.DTypeLike, /, *, fan_in: int
    ) -> jax.Array:
        assert self._forgets is not None
        return jnp.asarray(np.log1p(-self._forgets) - np.log(self._forgets), dtype)

    def training_flops_per_token(self, seq_length: int, /) -> float:
        """The projections', and 12 per element of the state: 2 products, forward and twice backward."""
        return super().training_flops_per_token(seq_length) + 12 * self._num_heads * self._head_dim**2


def forgetting(schedule: Literal["retention", "slopes"], num_heads: int) -> np.ndarray:
    """What each head forgets at a step, ``[N]``: 1/32, 1/64, … as a RetNet; or at ALiBi's slopes (arXiv:2108.12409)."""
    heads = np.arange(num_heads, dtype=np.float32)
    if schedule == "retention":
        return np.exp2(-5 - heads)
    return -np.expm1(-np.exp2(-8 * (heads + 1) / num_heads))


def positive(x: jax.Array, /) -> jax.Array:
    """``elu(x) + 1``."""
    return jax.nn.elu(x) + 1


_Decaying = DecayingAttention.Config
_BARE = LayerNorm.Config(use_bias=False)
VARIANTS: Mapping[str, DecayingAttention.Config] = {
    "retention": _Decaying(),
    "retention, rotary": _Decaying(position_encoding=partial_for(rotary)),
    "retention, layer norm": _Decaying(norm=_BARE),
    "retention, learnt decays": _Decaying(adapts="by learning"),
    "retention, decays by input": _Decaying(adapts="to the input"),
    "retention, queries and keys shared": _Decaying(num_groups=1),
    "slopes": _Decaying(decay="slopes"),
    "slopes, elu, by sum": _Decaying(decay="slopes", features=partial_for(positive), norm=None),
    "no decay, elu, by sum": _Decaying(decay=None, features=partial_for(positive), norm=None),
    "no decay, softmax, by sum": _Decaying(decay=None, features=partial_for(jax.nn.softmax), norm=None),
}


def modify(tree: ConfigT, *, variant: str) -> ConfigT:
    """Every attention is linear, with as many heads and the same projections."""
    kept = ("num_heads", "head_dim", "query", "key", "value", "output")
    return replace(tree, Attention, VARIANTS[variant], carry=kept)
