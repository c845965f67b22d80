"""What an optimizer remembers, in the memory of the host: it goes to the device for the update, and back.

The arrays lie in "pinned_host" memory between steps. Within the step each goes to the device on its own, so the compiler is free to
move one while it updates another; how much it overlaps, and how many are on the device at once, is its decision.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar, cast

import ax_config
import jax

from ._rules import Rule, made
from .protocols import Optimizer

Tree = TypeVar("Tree")
HOST = "pinned_host"


class OffloadedState(NamedTuple):
    """The state of a rule, whose arrays, scalars aside, lie on the host."""

    on_host: object


class Offload:
    """A rule whose state lies on the host between steps; fits ``SupportsSpecs``. Another rule may be in it, ``Compact`` too."""

    class Config(ax_config.Config["Offload"]):
        """Around what."""

        rule: Rule

    def __init__(self, cfg: Config, /) -> None:
        self.cfg = cfg

    def for_specs(self, specs: object, /) -> Optimizer:
        """The optimizer for parameters of these specs."""
        import optax  # type: ignore[import-untyped]  # it ships no py.typed; imported late for start-up time

        inner = optax.with_extra_args_support(made(self.cfg.rule, specs))

        def init(params: object) -> OffloadedState:
            return OffloadedState(_moved(inner.init(params), to_host=True))

        def update(
            updates: object, state: OffloadedState, params: object = None, **extra: object
        ) -> tuple[object, OffloadedState]:
            on_device = _moved(state.on_host, to_host=False)
            updates, inner_state = inner.update(updates, on_device, params, **extra)
            return updates, OffloadedState(_moved(inner_state, to_host=True))

        return cast("Optimizer", optax.GradientTransformationExtraArgs(init, update))


def _moved(tree: Tree, *, to_host: bool) -> Tree:
    space = jax.memory.Space.Host if to_host else jax.memory.Space.Device
    return cast("Tree", jax.tree.map(lambda x: jax.device_put(x, space) if x.ndim else x, tree))


def placed_on_host(opt_state: Tree) -> Tree:
    """A described state, with what is offloaded placed there."""

    def on_host(x: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
        assert x.sharding is not None, "states are described with their places"
        return x.update(sharding=x.sharding.with_memory_kind(HOST)) if x.ndim else x

    def of_node(node: object) -> object:
        return jax.tree.map(on_host, node) if isinstance(node, OffloadedState) else node

    return cast("Tree", jax.tree.map(of_node, opt_state, is_leaf=lambda node: isinstance(node, OffloadedState)))
