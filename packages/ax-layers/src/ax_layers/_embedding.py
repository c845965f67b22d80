"""Token embedding, which may serve as the output head too (tied weights)."""

from __future__ import annotations

import functools

import ax_config
import jax
import jax.numpy as jnp
import numpy as np
from ax_config import REQUIRED, Buildable, field, partial_for

from . import initializers
from ._dtypes import float_dtype
from ._module import Module, scoped
from ._output_head import logits_of
from ._param_spec import ParamSpec
from .protocols import Axes, Initializer


class Embedding(Module):
    """One vector a token; fits ``TokenEmbedding`` and ``OutputHead``."""

    class Config(ax_config.Config["Embedding"]):
        """Sizes and precision."""

        vocab_size: int = REQUIRED
        dim: int = REQUIRED
        scale: float = 1.0  # of the vectors as they are looked up; a tied head is not scaled
        initializer: Buildable[Initializer] = field(default_factory=lambda: partial_for(initializers.normal, std=0.02))
        param_dtype: str = "float32"
        compute_dtype: str = "float32"

    def __init__(self, cfg: Config, /) -> None:
        super().__init__()
        self._dtype, self._scale = float_dtype(cfg.compute_dtype), cfg.scale
        spec = ParamSpec(
            (cfg.vocab_size, cfg.dim),
            float_dtype(cfg.param_dtype),
            ("vocab", "embed"),
            cfg.initializer.build(),
            fan_in=(-1,),
        )
        self.weight = self.param("weight", spec)

    @scoped
    def __call__(self, tokens: jax.Array, /) -> jax.Array:
        """``[B, T]`` int32 → ``[B, T, D]``; a token outside the vocabulary gives NaN."""
        # Whole rows first: to look up slices and regroup them by batch, XLA would copy all of them to every device. And narrowed
        # last: a token's gradient is a sum over all places where it stands, which in bfloat16 ends at 256 times one of them.
        rows_VD = self.constrain(self.weight.value, ("vocab", None))
        in_axes: list[Axes] = [("vocab", None), ("batch", "seq")]
        split = self.sharder.split(in_axes, [rows_VD.shape, tokens.shape]).get("vocab")
        if split is None:
            vectors_BTD = rows_VD.at[tokens].get(mode="fill", wrap_negative_indices=False).astype(self._dtype)
        else:
            # Each device looks up the tokens whose rows it has; left to itself, XLA would gather the rows of all.
            look_up = functools.partial(_look_up_own, split=split, dtype=self._dtype)
            out_axes = ("vocab", "batch", "seq", None)
            parts_PBTD = self.sharder.shard_map(look_up, in_axes=in_axes, out_axes=out_axes)(rows_VD, tokens)
            known_BT1 = ((tokens >= 0) & (tokens < rows_VD.shape[0]))[..., None]
            vectors_BTD = jnp.where(known_BT1, parts_PBTD.sum(axis=0), jnp.nan)
        return vectors_BTD if self._scale == 1 else vectors_BTD * self._scale

    @scoped
    def attend(self, x: jax.Array, /) -> jax.Array:
        """``[…, D] → […, V]`` float32: the dot product with every token's vector."""
        return logits_of(x, self.output_weight())

    @scoped
    def output_weight(self) -> jax.Array:
        """The ``[V, D]`` matrix in the compute type."""
        return self.weight.value.astype(self._dtype)


def _look_up_own(rows_VD: jax.Array, tokens_BT: jax.Array, *, split: tuple[str, ...], dtype: np.dtype) -> jax.Array:
    """``[1, B, T, D]``: of each token the vector, or zeros if its row is on another of the devices over which rows are split."""
    num_rows = rows_VD.shape[0]
    own_BT = tokens_BT - jax.lax.axis_index(split).astype(tokens_BT.dtype) * num_rows
    is_own_BT1 = ((own_BT >= 0) & (own_BT < num_rows))[..., None]
    vectors_BTD = jnp.take(rows_VD, jnp.where(is_own_BT1[..., 0], own_BT, 0), axis=0).astype(dtype)
    return jnp.where(is_own_BT1, vectors_BTD, 0)[None]
