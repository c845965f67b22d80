"""What all routers share: logits in float32, the load that a routing makes, and the losses."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp

from ._as_model import AUX_LOSS
from ._dtypes import float_dtype
from ._module import Module
from ._param_spec import ParamSpec
from .protocols import Initializer, RouterLoss, Routing


def router_weight(dim: int, num_experts: int, *, dtype: str, initializer: Initializer) -> ParamSpec:
    """The matrix from tokens to logits. Its experts' dim isn't split over devices: the choice needs all of a token's logits."""
    return ParamSpec((dim, num_experts), float_dtype(dtype), ("embed", None), initializer, fan_in=(-2,))


def router_logits(module: Module, x: jax.Array, weight: jax.Array, /) -> jax.Array:
    """``[B, T, D] × [D, E] → [B, T, E]``, in float32 from the start, where the tokens are: ``module``'s small weight goes there."""
    weight_DE = module.constrain(weight.astype(jnp.float32), (None, None))
    logits_BTE = jnp.einsum("btd,de->bte", x.astype(jnp.float32), weight_DE)
    return module.constrain(logits_BTE, ("batch", "seq", None))


def expert_load(routing: Routing, /, *, num_experts: int) -> jax.Array:
    """How many tokens each expert was given, ``[E]`` float32."""
    return jnp.bincount(routing.experts.reshape(-1), length=num_experts).astype(jnp.float32)


def hand_out_losses(
    router: Module, losses: Mapping[str, RouterLoss], logits: jax.Array, scores: jax.Array, load: jax.Array, /
) -> None:
    """Report each loss under its name, and hand out their sum to be added to the model's; a load has no gradient."""
    if not losses:
        return
    values = {name: loss(logits, scores, jax.lax.stop_gradient(load)) for name, loss in losses.items()}
    for name, value in values.items():
        router.summarise(name, value)
    router.output(AUX_LOSS, jnp.stack(list(values.values())).sum())
