"""The state of training: everything that changes from step to step, and nothing else.

It is described before it exists. ``abstract_state`` gives its shapes and shardings from the model's specs alone; what is
initialised, restored or compiled for is that description. The optimizer's state follows the parameters: an array that
belongs to a parameter lies where the parameter lies (see ``_placement``), unless the partitioner splits it further
(``SupportsOptimizerShardings``); all else (counters, hyperparameters) is whole on every device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, cast

import jax
import jax.numpy as jnp

from ._learnt import learnt, specs_of
from ._offload import placed_on_host
from ._placement import sharding_like
from ._promotion import standard_promotion
from ._remembered import remembered
from .protocols import Model, Optimizer, Params, Partitioner, Spec, SupportsFirstValues


class TrainState(NamedTuple, Generic[Params]):
    """What a step turns into the next, and what a checkpoint keeps."""

    params: Params
    opt_state: object
    step: jax.Array
    """How many steps have been done, int32."""
    key: jax.Array
    """The data of the PRNG key that every step folds its number into: plain integers, so that any checkpointer can keep it."""


def abstract_state(model: Model[Params], optimizer: Optimizer, partitioner: Partitioner) -> TrainState[Params]:
    """The state as ``jax.ShapeDtypeStruct`` leaves that carry their shardings. Touches no device."""
    specs = specs_of(model, optimizer)
    shardings = partitioner.shardings(specs)
    replicated = partitioner.replicated()

    def described(leaf: Spec, sharding: jax.sharding.Sharding) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)

    def whole(leaf: Spec) -> jax.ShapeDtypeStruct:
        return described(leaf, replicated)

    params = cast("Params", jax.tree.map(described, specs, shardings))
    with partitioner.activate(), standard_promotion():
        learning = learnt(specs, jax.tree.map(described, specs, remembered(partitioner, specs)))
        opt_state = _like_params(optimizer, jax.eval_shape(optimizer.init, learning), learning, whole)
    key = jax.eval_shape(lambda: jax.random.key_data(jax.random.key(0)))
    step = jax.ShapeDtypeStruct((), jnp.int32, sharding=replicated)
    return TrainState(params, opt_state, cast("jax.Array", step), cast("jax.Array", whole(cast("Spec", key))))


def _like_params(optimizer: Optimizer, opt_state: object, params: object, whole: Callable[[Spec], object]) -> object:
    import optax  # type: ignore[import-untyped]  # it ships no py.typed; imported late for start-up time

    def placed(leaf: Spec, param: jax.ShapeDtypeStruct) -> object:
        if isinstance(leaf, optax.MaskedNode):
            return leaf
        sharding = sharding_like(leaf.shape, param)
        return whole(leaf) if sharding is None else jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)

    described = optax.tree.map_params(
        lambda params: jax.eval_shape(optimizer.init, params),  # optax would make the counters: arrays, on some device
        placed,
        opt_state,
        params,
        transform_non_params=whole,
        is_leaf=lambda node: isinstance(node, optax.MaskedNode),
    )
    return placed_on_host(described)


def init_state(
    model: Model[Params], optimizer: Optimizer, partitioner: Partitioner, *, seed: int
) -> TrainState[Params]:
    """The state before the first step, a pure function of ``seed``; every array is born where it belongs."""

    def init() -> TrainState[Params]:
        keys = keys_of(seed)
        params = model.init(keys.init)
        if isinstance(optimizer, SupportsFirstValues):
            params = optimizer.first_values(params)
        with standard_promotion():
            opt_state = optimizer.init(learnt(specs_of(model, optimizer), params))
        return TrainState(params, opt_state, jnp.zeros((), jnp.int32), jax.random.key_data(keys.steps))

    described = abstract_state(model, optimizer, partitioner)
    with partitioner.activate():
        return cast("TrainState[Params]", jax.jit(init, out_shardings=shardings_of(described))())


class Keys(NamedTuple):
    """The independent sources of randomness of a run."""

    init: jax.Array
    steps: jax.Array
    evaluations: jax.Array


def keys_of(seed: int) -> Keys:
    """The keys that a seed gives."""
    return Keys(*jax.random.split(jax.random.key(seed), 3))


def shardings_of(tree: object) -> object:
    """The sharding of each array in ``tree``, in a tree of the same structure."""
    return jax.tree.map(lambda leaf: leaf.sharding, tree)
