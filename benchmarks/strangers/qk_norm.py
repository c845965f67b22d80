"""Norms of queries and keys (Henry et al. 2020, arXiv:2010.04245; Dehghani et al. 2023, arXiv:2302.05442)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeVar

import ax_config
import jax
import jax.numpy as jnp
import numpy as np
from ax_config import REQUIRED, Config, partial_for, setting
from ax_layers import Attention, Module, ParamSpec, initializers, scoped

ConfigT = TypeVar("ConfigT", bound=Config[object])


class HeadNorm(Module):
    """``gain · x / |x|`` over the last dim, in float32; fits ``ArrayFn``."""

    class Config(ax_config.Config["HeadNorm"]):
        """What length is, and what it becomes."""

        dim: int = REQUIRED
        length: Literal["root mean square", "euclidean"] = "root mean square"
        centred: bool = False  # less its mean first, as in a layer norm
        gain: float = 1.0
        learnt: Literal["a gain an element", "one gain", "no gain"] = "a gain an element"
        eps: float = 1e-6

    def __init__(self, cfg: Config, /) -> None:
        super().__init__()
        self._cfg = cfg
        shape = {"a gain an element": (cfg.dim,), "one gain": (1,)}
        self.gain = None
        if cfg.learnt in shape:
            initial = partial_for(initializers.constant, value=cfg.gain).build()
            spec = ParamSpec(shape[cfg.learnt], np.dtype(np.float32), (None,), initial, weight_decay=False)
            self.gain = self.param("gain", spec)

    @scoped
    def __call__(self, x: jax.Array, /) -> jax.Array:
        """``[…, H] → […, H]``."""
        cfg, wide = self._cfg, x.astype(jnp.float32)
        if cfg.centred:
            wide = wide - wide.mean(axis=-1, keepdims=True)
        squares = wide * wide
        average = squares.sum if cfg.length == "euclidean" else squares.mean
        unit = wide * jax.lax.rsqrt(average(axis=-1, keepdims=True) + cfg.eps)
        if self.gain is None:
            return (unit * cfg.gain).astype(x.dtype)
        return (unit * self.gain.value.reshape((1,) * (x.ndim - 1) + (-1,))).astype(x.dtype)


VARIANTS: Mapping[str, HeadNorm.Config] = {
    "RMS": HeadNorm.Config(),
    "RMS, larger eps": HeadNorm.Config(eps=1e-5),
    "RMS, one gain": HeadNorm.Config(learnt="one gain"),
    "RMS, no gain": HeadNorm.Config(learnt="no gain"),
    "RMS, gain from a half": HeadNorm.Config(gain=0.5),
    "layer norm": HeadNorm.Config(centred=True),
    "layer norm, no gain": HeadNorm.Config(centred=True, learnt="no gain"),
    "cosine, gain from 4": HeadNorm.Config(length="euclidean", gain=4.0, learnt="one gain"),
    "cosine, a gain an element": HeadNorm.Config(length="euclidean", gain=4.0),
    "cosine, gain 10": HeadNorm.Config(length="euclidean", gain=10.0, learnt="no gain"),
}


def modify(tree: ConfigT, *, variant: str) -> ConfigT:
    """Queries and keys are normalised, in every attention."""
    return setting(Attention, qk_norm=VARIANTS[variant])(tree)
