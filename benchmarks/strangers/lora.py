"""Low-rank adaptation (Hu et al. 2021, arXiv:2106.09685): a projection learns by a product of two thin ones beside it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import NamedTuple, TypeVar, cast

import ax_config
import jax
from ax_config import REQUIRED, Buildable, Config, field, partial_for, replace, role
from ax_layers import Linear, Module, ParamSpec, SpecTree, functional, initializers, scoped
from ax_layers.protocols import ArrayTree, Projection

ConfigT = TypeVar("ConfigT", bound=Config[object])


def _zero_linear() -> Linear.Config:
    return Linear.Config(initializer=partial_for(initializers.zeros))


class LoRA(Module):
    """``base(x) + scale · up(down(x))``, at first ``base(x)``; fits ``Projection``.

    A frozen base gets no gradient, and its specs tell the optimizer that its weights don't decay: they stay as they are.
    """

    class Config(ax_config.Config["LoRA"]):
        """The projection, and what learns beside it."""

        in_dim: int | tuple[int, ...] = REQUIRED
        out_dim: int | tuple[int, ...] = REQUIRED
        in_axes: tuple[str | None, ...] = REQUIRED
        out_axes: tuple[str | None, ...] = REQUIRED
        base: Buildable[Projection] = REQUIRED
        rank: int
        alpha: float = 16.0
        rank_stabilised: bool = False  # scale by alpha / sqrt(rank) (Kalajdzievski 2023, arXiv:2312.03732)
        frozen: bool = True
        down: Buildable[Projection] = field(default_factory=Linear.Config)
        up: Buildable[Projection] = field(default_factory=_zero_linear)

    def __init__(self, cfg: Config, /) -> None:
        super().__init__()
        into, out_of = (
            {"in_dim": cfg.in_dim, "in_axes": cfg.in_axes},
            {"out_dim": cfg.out_dim, "out_axes": cfg.out_axes},
        )
        self.base = self.child("base", cfg.base, **into, **out_of)
        self.down = self.child("down", cfg.down, **into, out_dim=cfg.rank, out_axes=(None,))
        self.up = self.child("up", cfg.up, in_dim=cfg.rank, in_axes=(None,), **out_of)
        self._scale = cfg.alpha / (math.sqrt(cfg.rank) if cfg.rank_stabilised else cfg.rank)
        self._frozen = cfg.frozen

    @scoped
    def __call__(self, x: jax.Array, /) -> jax.Array:
        """``[…, *in_dim] → […, *out_dim]``."""
        y = self._call_frozen(x) if self._frozen else self.base(x)
        return y + self._scale * self.up(self.down(x)).astype(y.dtype)

    def specs(self) -> SpecTree:
        """The children's."""

        def without_decay(spec: ParamSpec) -> ParamSpec:
            return dataclasses.replace(spec, weight_decay=False)

        tree = super().specs()
        if self._frozen:
            tree["base"] = jax.tree.map(without_decay, tree["base"])
        return tree

    def _call_frozen(self, x: jax.Array) -> jax.Array:
        params = cast("ArrayTree", jax.lax.stop_gradient(self.params["base"]))
        key = None if self.random is None else self.random.fold("base")
        y, collected = functional(self.base)(params, key, x)
        self.absorb(collected, name="base")
        return y


class Variant(NamedTuple):
    """An adapter, and the roles of those projections that get one."""

    adapter: LoRA.Config
    projections: tuple[str, ...]


_QV, _ATTENTION, _FFN = ("query", "value"), ("query", "key", "value", "output"), ("gate", "up", "down")
VARIANTS: Mapping[str, Variant] = {
    "query and value, rank 4": Variant(LoRA.Config(rank=4), _QV),
    "query and value, rank 8": Variant(LoRA.Config(rank=8), _QV),
    "query and value, rank 8, alpha 32": Variant(LoRA.Config(rank=8, alpha=32.0), _QV),
    "attention, rank 8": Variant(LoRA.Config(rank=8), _ATTENTION),
    "attention, rank 16, stabilised": Variant(LoRA.Config(rank=16, rank_stabilised=True), _ATTENTION),
    "feed-forward, rank 8": Variant(LoRA.Config(rank=8), _FFN),
    "all, rank 1": Variant(LoRA.Config(rank=1), _ATTENTION + _FFN),
    "all, rank 8": Variant(LoRA.Config(rank=8), _ATTENTION + _FFN),
    "all, rank 8, in bfloat16": Variant(
        LoRA.Config(rank=8, down=Linear.Config(compute_dtype="bfloat16")), _ATTENTION + _FFN
    ),
    "all, rank 8, base not frozen": Variant(LoRA.Config(rank=8, frozen=False), _ATTENTION + _FFN),
}


def modify(tree: ConfigT, *, variant: str) -> ConfigT:
    """The projections that the variant names become the base of an adapter."""
    adapter, projections = VARIANTS[variant]

    def wanted(part: Config[object]) -> bool:
        return any(role(name)(part) for name in projections)

    return replace(tree, wanted, lambda base: adapter.clone(base=base))
