"""Low-rank adapters: a model adjusted by few parameters beside its own, which stay as they are (Hu et al. 2021, arXiv:2106.09685).

An adapter stands around any projection; ``lora`` is the modifier that puts one around each that it is told. With the base
stored in eight bits (``int8_base``) it is what QLoRA does with four (Dettmers et al. 2023, arXiv:2305.14314):

    adapted = lora(model, rank=16, alpha=32.0)  # around every Linear
    smaller = lora(int8_base(model), rank=16, alpha=32.0, targets=Int8Linear)
    fewer = lora(model, rank=16, alpha=32.0, targets=role("query"))

``adopted`` takes a plain model's parameters over.
"""

from __future__ import annotations

from dataclasses import replace as with_fields
from typing import TypeVar, cast

import ax_config
import jax
from ax_config import REQUIRED, Buildable, Config, Target, field, partial_for, replace

from . import initializers
from ._dropout import Dropout
from ._linear import Linear
from ._module import Module, scoped
from ._param_spec import ParamSpec, SpecTree
from .protocols import ArrayFn, Projection

ConfigT = TypeVar("ConfigT", bound=Config[object])


class LoRA(Module):
    """``base(x) + alpha / rank · up(down(dropout(x)))``; fits ``Projection``. At first ``up`` is zero."""

    class Config(ax_config.Config["LoRA"]):
        """The interface of a projection, the projection, and how far and in how many directions it is adjusted."""

        in_dim: int | tuple[int, ...] = REQUIRED
        out_dim: int | tuple[int, ...] = REQUIRED
        in_axes: tuple[str | None, ...] = REQUIRED
        out_axes: tuple[str | None, ...] = REQUIRED
        base: Buildable[Projection]
        rank: int
        alpha: float
        down: Buildable[Projection] = field(default_factory=Linear.Config)
        up: Buildable[Projection] = field(
            default_factory=lambda: Linear.Config(initializer=partial_for(initializers.zeros))
        )
        dropout: Buildable[ArrayFn] = field(default_factory=Dropout.Config)

    def __init__(self, cfg: Config, /) -> None:
        super().__init__()
        if cfg.rank < 1:
            raise ValueError(f"LoRA needs a rank of at least 1, got {cfg.rank}")
        self._scale = cfg.alpha / cfg.rank
        inward = {"in_dim": cfg.in_dim, "in_axes": cfg.in_axes}
        outward = {"out_dim": cfg.out_dim, "out_axes": cfg.out_axes}
        self.base = self.child("base", cfg.base, **inward, **outward)
        self.down = self.child("down", cfg.down, **inward, out_dim=cfg.rank, out_axes=(None,))
        self.up = self.child("up", cfg.up, in_dim=cfg.rank, in_axes=(None,), **outward)
        self.dropout = self.child("dropout", cfg.dropout)

    @scoped
    def __call__(self, x: jax.Array, /) -> jax.Array:
        """``[…, *in_dim] → […, *out_dim]``, in the base's type."""
        y = self.base(x)
        return y + (self._scale * self.up(self.down(self.dropout(x)))).astype(y.dtype)

    def specs(self) -> SpecTree:
        """The base's, which aren't learnt, and the adapter's."""

        def of_base(spec: ParamSpec) -> ParamSpec:
            return with_fields(spec, trainable=False)

        def of_adapter(spec: ParamSpec) -> ParamSpec:
            return with_fields(spec, adapter=True)

        return {
            name: jax.tree.map(of_base if name == "base" else of_adapter, specs)
            for name, specs in super().specs().items()
        }


def lora(tree: ConfigT, /, *, rank: int, alpha: float, targets: Target = Linear) -> ConfigT:
    """The tree with a ``LoRA`` around each projection that ``targets`` selects (see ``ax_config.replace``).

    Raises:
        NoMatchError: ``targets`` selects nothing.
    """

    def adapted(base: Config[object]) -> Config[object]:
        return LoRA.Config(base=cast("Buildable[Projection]", base), rank=rank, alpha=alpha)

    return replace(tree, targets, adapted)
